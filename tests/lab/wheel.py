"""The wheel of engine/aio/python: built by the packages of this Python environment, installed into a directory."""
import importlib.util
import os
import shutil
import sys
import tempfile

from .programs import REPOSITORY, run

NEEDED = ("nanobind", "scikit_build_core")


def missing():
    """What it cannot be built without, of Python's packages."""
    return [package for package in NEEDED if importlib.util.find_spec(package) is None]


def install(build, site):
    """`site`: a directory that has the wheel then, and nothing else of it. Compiled below `build`, once."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    environment = {"CCACHE_BASEDIR": str(REPOSITORY), "CCACHE_NOHASHDIR": "1", **os.environ}
    if shutil.which("ccache"):
        environment["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    with tempfile.TemporaryDirectory() as directory:
        run(*pip, "wheel", "--no-deps", "--no-build-isolation", f"-Cbuild-dir={build}/python", "-w", directory,
            REPOSITORY / "engine/aio/python", env=environment, timeout=600)
        wheel, = os.listdir(directory)
        run(*pip, "install", "--no-deps", "--no-index", "--target", site, os.path.join(directory, wheel))
