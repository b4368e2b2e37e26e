"""Requests that come through io_uring instead of /dev/fuse, where the kernel offers that (Linux 6.14, fs.fuse's enable_uring).

A run of everything else with it: echo Y >/sys/module/fuse/parameters/enable_uring, then tests/run.
"""
import contextlib
import itertools
import os
import pathlib
import random
import subprocess
import threading
import time

import pytest

from lab import LONG, mount_table
from lab.data import is_pattern, pattern, write_pattern
from lab.machine_setting import RINGS_FORBIDDEN, RINGS_OFFERED, changed, rings_can_be_offered
from lab.replacing import kills_while_replacing
from lab.system import attempt, wait_until, within

MIB = 1 << 20
TIMEOUT = 3  # seconds: io_timeout of the mounts that meet a hanging drive; the others must keep to it, too
BOUNDED = 25

pytestmark = [pytest.mark.root, pytest.mark.alone,  # every mount that begins meanwhile has rings, or is forbidden to
              pytest.mark.skipif(not rings_can_be_offered(), reason="FUSE over io_uring cannot be had on this machine")]

ALL_PROCESSORS = pytest.mark.skipif(not 1 < len(os.sched_getaffinity(0)) == os.sysconf("SC_NPROCESSORS_CONF"),
                                    reason="there is one processor, or some cannot be used")


@pytest.fixture
def offered():
    with changed(RINGS_OFFERED, "Y"):
        yield


def is_in_use(mount):
    return mount.status()["options"]["io_uring"]


def transferred(mount):
    """Bytes that the daemon read and wrote with read(2), write(2) and their kin: from and to /dev/fuse, too."""
    with open(f"/proc/{mount.pid}/io") as counts:
        found = dict(line.split(": ") for line in counts)
    return int(found["rchar"]) + int(found["wchar"])


@pytest.mark.P6
@pytest.mark.parametrize("chunk_size", [65536, None], ids=["small chunks", "chunks"])
def test_content_comes_and_goes_through_it(offered, make_array, make_mount, chunk_size):
    mount = make_mount(make_array(chunk_size), "io_uring")
    if not is_in_use(mount):
        pytest.fail("offered, but not in use; was liburing there when this was built?")
    before = transferred(mount)
    write_pattern(mount.path / "file", 1, 40 * MIB)
    assert is_pattern(mount.path / "file", 1, 40 * MIB)
    assert transferred(mount) - before < MIB
    mount.remount()
    assert is_in_use(mount) and is_pattern(mount.path / "file", 1, 40 * MIB)
    assert "through io_uring" in mount.log()


@pytest.mark.parametrize("option, is_offered, is_used, complains", [
    (None, True, True, False),  # auto
    ("io_uring=auto", True, True, False),
    ("io_uring=auto", False, False, False),
    ("io_uring=on", False, False, True),
    ("io_uring=off", True, False, False),
])
def test_only_where_it_is_offered_and_wanted(array, make_mount, option, is_offered, is_used, complains):
    if option is None and os.environ.get("FPFS_TEST_OPTIONS"):
        pytest.skip("this run gives options to every mount")
    with changed(RINGS_OFFERED, "Y" if is_offered else "N"):
        mount = make_mount(array, *filter(None, [option]))
    assert is_in_use(mount) == is_used and ("through io_uring" in mount.log()) == (is_used or complains)
    assert ("the kernel does not offer it" in mount.log()) == complains
    write_pattern(mount.path / "file", 1, 3 * MIB)
    assert is_pattern(mount.path / "file", 1, 3 * MIB)


def processors_allowed(mount):
    """Of each thread that answers requests."""
    found = []
    for task in pathlib.Path(f"/proc/{mount.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if (task / "comm").read_text().startswith("fpfs-serve"):
                found.append(len(os.sched_getaffinity(int(task.name))))
    return found


@ALL_PROCESSORS
def test_long_reads_are_copied_beside_their_reader(offered, array, make_mount):
    """Who answers them may run on any processor; who answers what callers wait for stays on theirs."""
    mount = make_mount(array, "io_uring", "threads=1")
    assert is_in_use(mount)
    everywhere = len(os.sched_getaffinity(0))
    wait_until(lambda: processors_allowed(mount).count(everywhere) <= 1)  # the one at /dev/fuse
    write_pattern(mount.path / "file", 1, 8 * MIB)
    assert is_pattern(mount.path / "file", 1, 8 * MIB)
    assert processors_allowed(mount).count(everywhere) >= 2


@contextlib.contextmanager
def on_one_processor():
    """The test's thread, so that all its requests come to one queue."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


@ALL_PROCESSORS
def test_who_asks_for_commits_or_only_looks_is_served_beside(offered, array, make_mount):
    """... as he is back soon: his worker may run on any processor, where it can look for his next request. It is back on his
    when he does something else. (Whether it does look is not seen here: row 9 of the benchmarks shows it.)"""
    mount = make_mount(array, "io_uring", "threads=1", "durable=close")
    assert is_in_use(mount)
    everywhere = len(os.sched_getaffinity(mount.pid))
    assert everywhere > 1

    numbers = itertools.count()

    def away():
        return processors_allowed(mount).count(everywhere) - 1  # without the one at /dev/fuse

    def ask_for_names(count):
        for _ in range(count):
            attempt(os.lstat, mount.path / f"none{next(numbers)}")  # a new one: the kernel keeps what is not there

    def all_are_back():
        """A worker goes back after some requests, and the kernel asks who came last. While the daemon stands still, it has
        one request for each that waits."""
        mount.at_once(*[lambda: ask_for_names(1)] * len(processors_allowed(mount)))
        return away() == 0

    def write_file():
        (mount.path / "file").write_bytes(b"x" * 4096)
        return away() > 0

    with on_one_processor():
        wait_until(all_are_back)
        assert any(write_file() for _ in range(5))  # again if a slow drive has cost its worker his place
        wait_until(all_are_back)
        wait_until(lambda: ask_for_names(random.randrange(150, 250)) or away() > 0)
        wait_until(all_are_back)


def written_by_threads_that_answer(mount):
    """Bytes that they wrote with write(2) and its kin; those of the other threads."""
    found = {True: 0, False: 0}
    for task in pathlib.Path(f"/proc/{mount.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            counts = dict(line.split(": ") for line in (task / "io").read_text().splitlines())
            found[(task / "comm").read_text().startswith("fpfs-serve")] += int(counts["wchar"])
    return found[True], found[False]


@pytest.mark.parametrize("durable", ["close", "fsync"])
def test_who_commits_is_who_answers_only_while_the_caller_waits_for_it(offered, array, make_mount, durable):
    """An answer is handed over when its thread is back at the ring: what nobody waits for would hold it up."""
    mount = make_mount(array, "io_uring", f"durable={durable}")
    assert is_in_use(mount)
    count, size = 50, 4096
    before = written_by_threads_that_answer(mount)
    for number in range(count):
        (mount.path / str(number)).write_bytes(pattern(number, 0, size))
        if number % 3 == 0:  # so that the other threads keep up
            subprocess.run([array.programs.fpfs, "sync", mount.path], check=True)
    subprocess.run([array.programs.fpfs, "sync", mount.path], check=True)
    answering, others = (now - then for now, then in zip(written_by_threads_that_answer(mount), before))
    assert (answering if durable == "close" else others) > count * size / 2
    assert (others if durable == "close" else answering) < count * size / 2
    for number in range(count):
        assert is_pattern(mount.path / str(number), number, size)


def test_what_is_discarded_leaves_the_rest_as_it_is(offered, array, make_mount):
    """null_write: payloads are not looked at; names, sizes and attributes are."""
    mount = make_mount(array, "io_uring", "null_write")
    assert is_in_use(mount)
    write_pattern(mount.path / "file", 1, 3 * MIB + 5)
    os.rename(mount.path / "file", mount.path / "renamed")
    os.setxattr(mount.path / "renamed", "user.some", b"value")
    assert os.listdir(mount.path) == ["renamed"]
    assert os.getxattr(mount.path / "renamed", "user.some") == b"value"


@pytest.mark.skipif(not RINGS_FORBIDDEN.exists(), reason="io_uring cannot be forbidden on this kernel")
def test_forbidden_to_the_daemon(offered, array, make_mount):
    """The kernel offers it to every mount, but lets nobody make an io_uring: the mount does without, and says so."""
    with changed(RINGS_FORBIDDEN, 2):
        mount = make_mount(array, "io_uring")
    assert not is_in_use(mount) and "do not come through io_uring" in mount.log()
    write_pattern(mount.path / "file", 1, 3 * MIB)
    assert is_pattern(mount.path / "file", 1, 3 * MIB)


@pytest.mark.P6
def test_more_callers_than_workers(offered, array, make_mount):
    """Each waits in a call of its own; all are served, and the tree is read meanwhile."""
    mount = make_mount(array, "io_uring")
    assert is_in_use(mount)
    count = 200
    names = [f"file{number}" for number in range(count)]
    barrier = threading.Barrier(count)
    failures = []

    def work(number):
        barrier.wait()
        try:
            for version in range(3):
                with open(mount.path / names[number], "wb", buffering=0) as file:
                    file.write(pattern(number + version, 0, 70_000))
                    os.fsync(file.fileno())
                assert (mount.path / names[number]).read_bytes() == pattern(number + version, 0, 70_000)
        except BaseException as failure:
            failures.append((number, repr(failure)))

    threads = [threading.Thread(target=work, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert within(BOUNDED, os.listdir, mount.path) is not None
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(os.listdir(mount.path)) == sorted(names)
    assert len(os.listdir(f"/proc/{mount.pid}/task")) < 300
    for number in range(count):
        assert is_pattern(mount.path / names[number], number + 2, 70_000)


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.time_limit(120)
def test_the_daemon_dies_while_fpfs_asks_it(offered, array, make_mount):
    """What came through a ring and was not answered fails otherwise (ECANCELED) than by /dev/fuse (ECONNABORTED)."""
    mount = make_mount(array, "io_uring")
    mount.freeze()
    with subprocess.Popen([array.programs.fpfs, "status", mount.path], stderr=subprocess.PIPE, text=True) as asking:
        stack = pathlib.Path(f"/proc/{asking.pid}/stack")
        wait_until(lambda: "fuse" in stack.read_text())
        mount.kill()
        _, said = asking.communicate(timeout=30)
    assert asking.returncode == 1 and len(said.splitlines()) == 1 and "daemon of this mount is gone" in said


def test_the_daemon_is_killed(offered, array, make_mount):
    """What close returned for is there."""
    mount = make_mount(array, "io_uring")
    assert is_in_use(mount)
    for _ in kills_while_replacing(mount, "truncate", 30 if LONG else 4, size=9 * MIB):
        assert is_in_use(mount)
    mount.unmount()
    array.assert_clean()


@pytest.mark.P4
@pytest.mark.parametrize("place", [0, 2], ids=["with-the-names", "another"])
def test_a_drive_hangs(offered, drives, faulty, make_array, make_mount, place):
    """Callers get EIO in bounded time, also more of them than there are workers; when it answers again, so does the mount, and
    what a call does that was caught there harms nothing."""
    paths = list(drives.paths[:2])
    paths.insert(place, faulty.path)
    array = make_array(paths=paths)
    array.damaged = True
    mount = make_mount(array, "io_uring", f"io_timeout={TIMEOUT}")
    assert is_in_use(mount)
    os.mkdir(mount.path / "dir")
    write_pattern(mount.path / "dir/file", 1, 9 * MIB)
    faulty.drop_caches()
    faulty.hang()
    try:
        savers = [subprocess.Popen(["dd", "if=/dev/zero", f"of={mount.path}/dir/new{number}", "bs=64K", "count=40",
                                    "conv=fsync", "status=none"], stderr=subprocess.DEVNULL) for number in range(20)]
        results = [within(BOUNDED, saver.wait) for saver in savers]
        assert all(results)  # each file has a chunk on every member
        assert within(BOUNDED, mount.status)["state"] in ("stalled", "failed")
        if place == 0:
            assert within(BOUNDED, os.mkdir, mount.path / "another") == "EIO"
        else:
            assert within(BOUNDED, os.mkdir, mount.path / "another") is None
    finally:
        faulty.let_go()
    deadline = time.monotonic() + 20
    while mount.status()["state"] == "stalled":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert within(BOUNDED, is_pattern, mount.path / "dir/file", 1, 9 * MIB)
    assert attempt(write_pattern, mount.path / "after", 3, 9 * MIB) is None
    assert is_pattern(mount.path / "after", 3, 9 * MIB)
    mount_table.unmount(mount.path)
    mount.process.wait(timeout=BOUNDED)
    mount.process = None
    faulty.remount()
    mount.start()
    assert is_pattern(mount.path / "dir/file", 1, 9 * MIB)
    mount.unmount()
    array.fsck("-p")
    array.assert_clean()


@pytest.mark.P1
@pytest.mark.P2
def test_the_mount_goes_while_files_are_open(offered, array, make_mount):
    """A lazy unmount keeps the connection; SIGTERM then ends the daemon all the same. What was fsynced is there."""
    mount = make_mount(array, "io_uring")
    assert is_in_use(mount)
    file = open(mount.path / "file", "wb", buffering=0)
    file.write(pattern(1, 0, MIB))
    mount_table.unmount(mount.path, lazy=True)
    file.write(pattern(1, MIB, MIB))
    os.fsync(file.fileno())
    file.write(pattern(2, 0, MIB))
    file.write(pattern(2, 0, MIB))  # more than a log would in so short a time
    mount.process.terminate()
    assert mount.process.wait(timeout=60) == 1
    mount.process = None
    assert attempt(file.write, b"x") in ("ENOTCONN", "ECONNABORTED", "EIO")
    attempt(file.close)
    mount.start()
    assert is_pattern(mount.path / "file", 1, 2 * MIB)


@pytest.mark.P5
def test_many_callers_take_no_more_memory(offered, array, make_mount):
    """Who waits holds an entry of a ring and maybe a buffer: both are bounded by the pool's size."""
    pool = 64 * MIB
    mount = make_mount(array, "io_uring", "buffer_memory=64M", "durable=fsync")
    assert is_in_use(mount)

    def behaviour(number):
        for _ in range(2):
            write_pattern(mount.path / str(number), number, 3 * MIB)
            assert is_pattern(mount.path / str(number), number, 3 * MIB)

    failures = []

    def call(number):
        try:
            behaviour(number)
        except BaseException as error:
            failures.append(error)

    write_pattern(mount.path / "before", 1, 2 * pool)
    assert is_pattern(mount.path / "before", 1, 2 * pool)
    callers = [threading.Thread(target=call, args=(number,)) for number in range(150)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures, failures[0]
    # The pool, half as much for rings, and what else there is.
    assert mount.memory("VmHWM") < pool + pool // 2 + 80 * MIB
