"""The package as cpack makes it of the build, and what is in it."""
import os
import platform
import shutil

import pytest

from lab.drives import LoopDrive
from lab.programs import run


@pytest.fixture(scope="session")
def deb(binaries, tmp_path_factory):
    """The .deb. What it needs of the build is made when it is missing or old, and nothing else."""
    for tool in ("cpack", "dpkg-shlibdeps", "file"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    targets = ["fastpersistfs", "fpfs", "mkfs.fastpersistfs", "fsck.fastpersistfs", "fastpersist_aio", "fastpersist_array"]
    if "manual" in run("cmake", "--build", binaries.build, "--target", "help").stdout:
        targets.append("manual")
    run("cmake", "--build", binaries.build, "--target", *targets, timeout=600)
    directory = tmp_path_factory.mktemp("package")
    run("cpack", "-G", "DEB", "--config", binaries.build / "CPackConfig.cmake", "-B", directory)
    shutil.rmtree(directory / "_CPack_Packages")
    package, = directory.glob("*.deb")
    return package


@pytest.fixture(scope="session")
def root(deb):
    """A directory with what the package puts below /."""
    directory = deb.parent / "root"
    run("dpkg-deb", "-x", deb, directory)
    return directory


@pytest.fixture
def search_path(root, monkeypatch):
    """Programs are found in the unpacked package first."""
    monkeypatch.setenv("PATH", f"{root}/usr/bin:{root}/usr/sbin:{os.environ['PATH']}")


@pytest.fixture(scope="module")
def clean_root(lab):
    """The base system of the release that this runs on, from the mirror that this machine's apt uses."""
    drive = LoopDrive(lab, "clean-root", 4 << 30)
    try:
        codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
        sources = run("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(SITE)").stdout.splitlines()
        mirror = next(line.split()[2] for line in sources if line.split()[:2] == [codename, "main"])
        run("debootstrap", "--variant=minbase", codename, drive.path, mirror, timeout=900)
        yield drive.path
    finally:
        drive.close()
