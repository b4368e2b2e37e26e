"""The .deb: what is in it, that Debian's own checks accept it, and that what was unpacked works."""
import os
import re
import shlex
import shutil
import signal
import socket

import pytest

from lab import mount_table
from lab.programs import REPOSITORY, run
from lab.system import wait_until

UNITS = "usr/lib/systemd/system"
GUIDES = {str(path.relative_to(REPOSITORY / "docs")) for path in (REPOSITORY / "docs").rglob("*.md")}


def test_contents(deb):
    listed = run("dpkg-deb", "-c", deb).stdout.splitlines()
    assert all(line.split()[1] == "root/root" for line in listed)
    files = {line.split(None, 5)[5].removeprefix("./") for line in listed if line.startswith("-")}
    assert {"usr/bin/fastpersistfs", "usr/bin/fpfs", "usr/sbin/mkfs.fastpersistfs", "usr/sbin/fsck.fastpersistfs",
            "usr/sbin/mount.fastpersistfs", "usr/sbin/umount.fastpersistfs", "usr/sbin/umount.fuse.fastpersistfs",
            "usr/sbin/umount.fuse", "usr/sbin/setup-nvme", f"{UNITS}/fastpersistfs@.service",
            f"{UNITS}/fastpersistfs-scrub@.service",
            f"{UNITS}/fastpersistfs-scrub@.timer", "usr/lib/systemd/system-generators/fastpersistfs-generator",
            "usr/libexec/fastpersistfs/node.sh", "usr/libexec/fastpersistfs/containers/serve-array",
            *(f"usr/libexec/fastpersistfs/slurm/{name}" for name in ("prolog", "epilog", "task-prolog", "common.sh")),
            *(f"usr/include/fastpersist/{name}.h" for name in ("aio", "array", "error")),
            *(f"usr/lib/pkgconfig/fastpersist-{name}.pc" for name in ("aio", "array")),
            "usr/lib/cmake/fastpersist/fastpersist-config.cmake",
            "usr/share/man/man5/fastpersistfs.5.gz", "usr/share/bash-completion/completions/fpfs",
            "usr/share/zsh/vendor-completions/_fastpersistfs", "usr/share/doc/fastpersistfs/copyright",
            *(f"usr/share/doc/fastpersistfs/{name}" for name in GUIDES),
            "usr/share/doc/fastpersistfs/examples/read_direct",
            "usr/share/doc/fastpersistfs/monitoring/alerts.yml", "usr/share/doc/fastpersistfs/monitoring/dashboard.json",
            "usr/share/doc/fastpersistfs/examples/array.conf.example"} <= files
    assert not [name for name in files if re.search(r"bench|test|\.(a|h)$", name)
                and not name.startswith(("usr/include/fastpersist/", "usr/share/doc/"))]


def test_the_guides_lead_to_what_is_installed(root):
    """Their links: what only the source has is named, with no link to nowhere."""
    place = root / "usr/share/doc/fastpersistfs"
    guides = [*place.rglob("*.md")]
    assert {str(guide.relative_to(place)) for guide in guides} == GUIDES | {"README.md"}
    links = [(guide, link) for guide in guides for link in re.findall(r"\]\(([^)\s]+)\)", guide.read_text())
             if not re.match(r"[a-z]+:|#", link)]
    assert len(links) > 100
    assert not [str(each) for each in links if not (each[0].parent / each[1].split("#")[0]).exists()]
    library = (place / "library.md").read_text()
    assert "`<fastpersist/aio.h>` is the whole contract" in library and "](examples/save_tensor.cpp)" in library
    assert not re.search(r"`([^`]+)` \(`\1` of the source\)", library)
    # And nothing else was changed.
    for name in ("durability.md", "format.md", "benchmarks/row09.md"):
        assert (place / name).read_text() == (REPOSITORY / "docs" / name).read_text(), name


def test_dependencies(deb):
    """Libraries by dpkg-shlibdeps, whatever this release calls the packages."""
    depends = run("dpkg-deb", "-f", deb, "Depends").stdout
    for package in ("fuse3", "python3", "libfuse3-", "libaio1", "libcurl4", "libssl3", "libzstd1", "libxxhash0"):
        assert re.search(rf"(^|, ){package}", depends), depends


@pytest.mark.skipif(not shutil.which("lintian"), reason="needs lintian")
def test_lintian(deb):
    result = run("lintian", "--allow-root", "--fail-on", "error", deb, check=False)
    assert result.returncode == 0, result.stdout


# --- units -----------------------------------------------------------------------------------------------------------

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


@pytest.fixture(scope="session")
def system(root, tmp_path_factory):
    """A root with the package and systemd's own units."""
    directory = tmp_path_factory.mktemp("system")
    shutil.copytree(root, directory, dirs_exist_ok=True)
    for place in ("/usr/lib/systemd/system", "/lib/systemd/system"):
        if os.path.isdir(place):
            shutil.copytree(place, directory / UNITS, symlinks=True, dirs_exist_ok=True)
            break
    # What any system has, and units run.
    shell = directory / "bin" / "sh"
    shell.parent.mkdir(exist_ok=True)
    shell.touch(mode=0o755)
    return directory


@needs_systemd
@pytest.mark.parametrize("unit", ["fastpersistfs@mnt-ckpt.service", "fastpersistfs-scrub@mnt-ckpt.service",
                                  "fastpersistfs-scrub@mnt-ckpt.timer"])
def test_units_are_valid(system, unit):
    result = run("systemd-analyze", "verify", "--man=no", f"--root={system}", unit)
    assert result.stderr == ""


@needs_systemd
@pytest.mark.parametrize("unit, exposure", [("fastpersistfs@x.service", 56), ("fastpersistfs-scrub@x.service", 20)])
def test_units_are_confined(system, unit, exposure):
    """In tenths; a unit without any of it has 96."""
    run("systemd-analyze", "security", "--offline=true", f"--root={system}", f"--threshold={exposure}", unit)


def settings(root, unit):
    """(name, value) of each line."""
    return re.findall(r"^(\w+)=(.*)$", (root / UNITS / unit).read_text().replace("\\\n", " "), re.MULTILINE)


def test_the_mount_of_the_service_is_seen_by_others(root):
    """What gives a service a mount namespace (systemd.exec(5)) would keep the mount inside of it."""
    hides = re.compile("Private(Tmp|Devices|Mounts|Users|IPC)|Protect(System|Home|Kernel.*|ControlGroups|Proc)|"
                       "MountFlags|(ReadOnly|ReadWrite|Inaccessible|Exec|NoExec|Bind|BindReadOnly)Paths|"
                       "TemporaryFileSystem|Root(Directory|Image)|DynamicUser|MountAPIVFS|LogNamespace|.*Images|ProcSubset|PrivatePIDs")
    assert not [name for name, _ in settings(root, "fastpersistfs@.service") if hides.fullmatch(name)]


def test_the_generator_orders_arrays_behind_their_drives(root, tmp_path):
    configuration, units = tmp_path / "etc", tmp_path / "units"
    configuration.mkdir()
    generator = [root / "usr/lib/systemd/system-generators/fastpersistfs-generator", units, units, units, configuration]
    run(*generator)
    assert not units.exists()
    (configuration / "mnt-ckpt.conf").write_text("#DIRS=/other\nOPTIONS=ro\nDIRS=/old\nDIRS=/nvme0/fp:/nvme1/fp\n")
    (configuration / "a\\x20b.conf").write_text("DIRS='/my drive/100%:/nvme1/fp'\n")
    (configuration / "joined.conf").write_text("DIRS = /nvme0/fp:\\\n/nvme1/fp  \t\nOPTIONS=ro\n")
    (configuration / "windows.conf").write_bytes(b'DIRS="/nvme0/fp" \r\nOPTIONS=ro')
    (configuration / "mnt-ckpt.conf.old").write_text("DIRS=/wrong\n")
    run(*generator)
    found = {path.parent.name: path.read_text().splitlines() for path in units.rglob("*.conf")}
    assert found == {
        "fastpersistfs@mnt-ckpt.service.d": ["[Unit]", 'RequiresMountsFor="/nvme0/fp"',
                                             'RequiresMountsFor="/nvme1/fp"'],
        "fastpersistfs@a\\x20b.service.d": ["[Unit]", 'RequiresMountsFor="/my drive/100%%"',
                                           'RequiresMountsFor="/nvme1/fp"'],
        "fastpersistfs@joined.service.d": ["[Unit]", 'RequiresMountsFor="/nvme0/fp"', 'RequiresMountsFor="/nvme1/fp"'],
        "fastpersistfs@windows.service.d": ["[Unit]", 'RequiresMountsFor="/nvme0/fp"']}


# --- what was unpacked works -----------------------------------------------------------------------------------------


@pytest.mark.root
def test_programs_work_together(make_array, search_path, lab, root):
    """Through the helpers of mount(8) and umount(8), which find the daemon and fpfs of the package."""
    array = make_array()
    mount = lab / "packaged"
    mount.mkdir()
    options = ["-o", "buffered_members"] if not array.direct_io else []
    run(root / "usr/sbin/mount.fastpersistfs", array.argument, mount, *options)
    try:
        (mount / "file").write_bytes(b"content" * 1000)
        assert "members" in run("fpfs", "status", "--json", mount).stdout
    finally:
        run(root / "usr/sbin/umount.fuse", mount)
    assert not mount_table.entry_of(mount)
    run("fsck.fastpersistfs", *(["--buffered-members"] if not array.direct_io else []), "--verify-data", array.argument)


@pytest.mark.root
def test_the_unit_starts_after_a_daemon_that_died(make_array, make_mount, search_path, root):
    """Its ExecStartPre detaches what a dead daemon left, and leaves a live mount alone."""
    command, = [value for name, value in settings(root, "fastpersistfs@.service") if name == "ExecStartPre"]
    array = make_array()
    mount = make_mount(array)
    words = [word.replace("$$", "$").replace("%f", str(mount.path)) for word in shlex.split(command.removeprefix("-"))]
    run(*words, check=False)
    (mount.path / "file").write_bytes(b"content")
    mount.process.send_signal(signal.SIGKILL)
    mount.process.wait()
    with pytest.raises(OSError):
        (mount.path / "file").read_bytes()
    run(*words)
    assert not mount_table.entry_of(mount.path)
    mount.process = None
    mount.start()
    assert (mount.path / "file").read_bytes() == b"content"


@pytest.mark.root
def test_reloading_the_unit_opens_the_log_file_anew(make_array, make_mount, root, tmp_path):
    command, = [value for name, value in settings(root, "fastpersistfs@.service") if name == "ExecReload"]
    log = tmp_path / "log"
    mount = make_mount(make_array(), f"log_file={log}")
    log.rename(tmp_path / "log.1")
    run(*[word.replace("$MAINPID", str(mount.pid)) for word in shlex.split(command)])
    wait_until(log.exists)
    assert mount_table.entry_of(mount.path)


@pytest.mark.root
@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told_when_the_mount_is_live(make_array, make_mount, monkeypatch, tmp_path, abstract):
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = f"@fpfs-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    manager.bind(address.replace("@", "\0", 1) if abstract else address)
    manager.settimeout(30)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    mount = make_mount(make_array())
    assert manager.recv(100) == b"READY=1"
    assert mount_table.entry_of(mount.path)
    manager.close()
