"""Fixtures of the tests through a mount (tests/mount, tests/posix, tests/clients).

FPFS_LAB names the directory for drives, arrays and mounts (tests/run makes one and clears it away whatever happens);
FPFS_BUILD the build under test; FPFS_TEST_LONG=1 asks for the long versions; FPFS_TEST_OPTIONS is given to each mount before
its own options.
"""

import itertools
import os
import pathlib
import shutil
import signal
import tempfile

import pytest

from lab import LONG
from lab.array import Array, Mount
from lab.drives import Drives, LoopDrive
from lab.faulty_drive import FaultyDrive
from lab.programs import Programs
from lab.promises import PROMISES
from lab.watchdog import Watchdog

# Started in the background (nohup, a service), this process ignores SIGINT, and so would every program under test; with a
# handler here they start with the default.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "time_limit(seconds): how long a test may take, set-up and tear-down included")
    config.addinivalue_line("markers", "mount_options(*options): what the `mount` fixture mounts with")
    config.addinivalue_line("markers", "chunk_size(size): what the `array` fixture formats with")
    config.addinivalue_line("markers", "alone: changes what the whole machine is; no other session of tests runs beside it")
    config.addinivalue_line("markers", "root: needs root (loop devices, other users, mount(8))")
    for name, promise in PROMISES.items():
        config.addinivalue_line("markers", f"{name}: {promise}")


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the daemons' logs with a failure."""
    report = (yield).get_result()
    if report.failed:
        for mount in item.session.stash.get(MOUNTS, []):
            if mount.log_path.exists():
                report.sections.append((f"log of {mount.path.name}", mount.log()[-4000:]))


MOUNTS = pytest.StashKey()


@pytest.fixture(scope="session")
def lab():
    """The directory where this session may put anything."""
    given = os.environ.get("FPFS_LAB")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="session-" if given else "fpfs-lab-", dir=given or "/var/tmp"))
    directory.chmod(0o755)  # other users take part in some tests
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def watchdog(lab):
    return Watchdog(lab)


@pytest.fixture(autouse=True)
def time_limit(request, watchdog):
    marker = request.node.get_closest_marker("time_limit")
    seconds = marker.args[0] if marker else 120
    with watchdog.limit(seconds * 20 if LONG else seconds):
        yield


@pytest.fixture(autouse=True)
def usual_umask():
    """What clients in this process, or tests before, have left may be another."""
    os.umask(0o022)


@pytest.fixture(scope="session")
def binaries():
    return Programs()


@pytest.fixture(scope="session")
def drives(lab):
    made = Drives(lab / "drives")
    print(f"drives: {made.kind}, O_DIRECT {'works' if made.direct_io else 'does not work'}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def numbers():
    return itertools.count(1)


@pytest.fixture
def make_array(binaries, drives, numbers):
    """make_array(chunk_size=..., paths=...): a fresh array, removed after the test."""
    arrays = []

    def make(chunk_size=None, paths=None, **options):
        number = next(numbers)
        members = [path / f"array{number}" for path in paths or drives.paths]
        arrays.append(Array(binaries, members, drives.direct_io, chunk_size, **options))
        return arrays[-1]

    yield make
    for array in arrays:
        array.remove()


@pytest.fixture
def make_mount(request, lab, numbers):
    """make_mount(array, *options): mounts; unmounted after the test, and what is stored must be clean then."""
    mounts = request.session.stash.setdefault(MOUNTS, [])
    mounts.clear()

    def make(array, *options, prefix=()):
        mounts.append(Mount(array, lab / f"mount{next(numbers)}", options))
        mounts[-1].prefix = list(prefix)
        return mounts[-1].start()

    yield make
    try:
        for mount in mounts:
            if mount.process:
                mount.unmount()
        for array in {id(mount.array): mount.array for mount in mounts}.values():
            if not array.damaged:
                array.assert_clean()
    finally:
        for mount in mounts:
            mount.destroy()


@pytest.fixture
def array(request, make_array):
    marker = request.node.get_closest_marker("chunk_size")
    return make_array(chunk_size=marker.args[0] if marker else None)


@pytest.fixture
def mount(request, array, make_mount):
    marker = request.node.get_closest_marker("mount_options")
    return make_mount(array, *(marker.args if marker else ()))


# What must not make a difference to any behaviour. Small chunks and few buffers make boundaries and waiting routine.
CONFIGURATIONS = {
    "default": (None, ()),
    "tiny": (65536, ("buffer_memory=16M", "read_ahead=2")),
    "compressed": (262144, ("compress=zstd",)),
}


@pytest.fixture(params=CONFIGURATIONS)
def anywhere(request, make_array, make_mount):
    """A mount, once for each configuration."""
    chunk_size, options = CONFIGURATIONS[request.param]
    return make_mount(make_array(chunk_size=chunk_size), *options)


@pytest.fixture
def make_drive(lab, numbers):
    """make_drive(size, kind, OPTION...): one more drive of a given size, with a filesystem of its own (needs root), made with
    these options of its mkfs."""
    made = []

    def make(size, kind="ext4", *options):
        made.append(LoopDrive(lab, f"extra{next(numbers)}", size, kind, discard=False, options=options))
        return made[-1]

    yield make
    for drive in made:
        drive.close()


@pytest.fixture
def faulty(request, binaries, lab, numbers):
    """A drive that fails or hangs on command (needs root). Its filesystem: XFS, or the test's parameter."""
    drive = FaultyDrive(binaries, lab, f"faulty{next(numbers)}", kind=getattr(request, "param", "xfs"))
    yield drive
    drive.close()


@pytest.fixture
def native(drives, numbers):
    """A directory of the first drive's own filesystem: what the mount is compared with."""
    directory = drives.paths[0] / f"native{next(numbers)}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)
