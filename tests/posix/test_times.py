"""Access, modification and change times: what moves them and what does not."""
import contextlib
import itertools
import mmap
import os
import random
import time

import pytest

from lab.data import pattern

pytestmark = pytest.mark.P6

DAY = 86400
NAMES = {"st_atime_ns": "a", "st_mtime_ns": "m", "st_ctime_ns": "c"}


def times(path):
    found = os.lstat(path)
    return {letter: getattr(found, name) for name, letter in NAMES.items()}


def moved(path, action, *arguments):
    """Which times of `path` an action moved: some of "amc"."""
    time.sleep(0.012)  # the kernel's clock for times is coarse
    before = times(path)
    action(*arguments)
    after = times(path)
    assert after["c"] >= before["c"]
    return "".join(letter for letter in "amc" if after[letter] != before[letter])


def test_reading_moves_the_access_time_once(same):
    """relatime: when it is not later than the last change, or a day old."""
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(1, 0, 200000))
        seen = [moved(path, path.read_bytes), moved(path, path.read_bytes)]
        seen += [moved(path, os.stat, path), moved(path, os.listxattr, path), moved(path, os.close, os.open(path, os.O_RDONLY))]
        seen += [moved(path, path.write_bytes, b"new"), moved(path, path.read_bytes), moved(path, path.read_bytes)]
        seen += [moved(path, os.chmod, path, 0o600), moved(path, path.read_bytes)]
        old = time.time_ns() - 2 * DAY * 10**9
        seen.append(moved(path, lambda: os.utime(path, ns=(old, old - 5))))
        seen += [moved(path, path.read_bytes), moved(path, path.read_bytes)]
        with open(path, "r+b", buffering=0) as file:
            seen += [moved(path, os.pread, file.fileno(), 10, 0), moved(path, os.pwrite, file.fileno(), b"x", 0)]
            os.fsync(file.fileno())
            seen += [moved(path, path.read_bytes), moved(path, path.read_bytes)]
        return seen

    same(behaviour)


def test_access_times_of_other_things(same):
    def behaviour(directory):
        sub = directory / "sub"
        sub.mkdir()
        (sub / "file").touch()
        seen = [moved(sub, os.listdir, sub), moved(sub, os.listdir, sub)]
        seen += [moved(sub, (sub / "more").touch), moved(sub, os.listdir, sub), moved(sub, os.stat, sub / "file")]
        os.symlink("sub/file", directory / "link")
        (sub / "file").write_bytes(b"one byte more than nothing: the kernel does not ask the daemon for that")
        seen += [moved(sub / "file", (sub / "file").read_bytes), moved(sub / "file", (directory / "link").read_bytes)]
        seen.append(moved(directory / "link", os.stat, directory / "link"))
        return seen

    same(behaviour)


def test_mapped_reading_counts(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(1, 0, 200000))

        def read():
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
                return view[100000]

        return moved(path, read)

    same(behaviour)


@pytest.mark.parametrize("option, expected", [("noatime", ["", ""]), ("nodiratime", ["a", ""]), ("atime", ["a", "a"])])
def test_mount_options(make_array, make_mount, option, expected):
    mount = make_mount(make_array(), option)
    (mount.path / "file").write_bytes(b"x" * 50000)
    (mount.path / "dir").mkdir()
    assert [moved(mount.path / "file", (mount.path / "file").read_bytes),
            moved(mount.path / "dir", os.listdir, mount.path / "dir")] == expected


def test_read_only_mounts_move_nothing(array, make_mount):
    mount = make_mount(array)
    (mount.path / "file").write_bytes(b"x" * 50000)
    mount.unmount()
    mount = make_mount(array, "ro")
    assert moved(mount.path / "file", (mount.path / "file").read_bytes) == ""
    assert moved(mount.path, os.listdir, mount.path) == ""


def test_content_moves_modification_and_change_time(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"x" * 100)
        seen = [moved(path, os.truncate, path, 10), moved(path, os.truncate, path, 10), moved(path, os.truncate, path, 20)]
        with open(path, "r+b", buffering=0) as file:
            descriptor = file.fileno()
            seen += [moved(path, os.write, descriptor, b"y"), moved(path, os.write, descriptor, b"")]
            seen += [moved(path, os.ftruncate, descriptor, 5), moved(path, os.ftruncate, descriptor, 50)]
            seen += [moved(path, os.fsync, descriptor), moved(path, os.posix_fallocate, descriptor, 0, 100)]
        seen += [moved(path, path.write_bytes, b""), moved(path, path.write_bytes, b"")]  # O_TRUNC, also of nothing
        return seen

    same(behaviour)


def test_attributes_and_names_move_the_change_time(same):
    def behaviour(directory):
        path, other = directory / "file", directory / "other"
        path.write_bytes(b"x" * 100)
        seen = [moved(path, os.chmod, path, 0o640), moved(path, os.setxattr, path, "user.a", b"1"),
                moved(path, os.removexattr, path, "user.a"), moved(path, os.link, path, other),
                moved(path, os.unlink, other)]
        now = time.time_ns()
        seen.append(moved(path, lambda: os.utime(path, ns=(now, now))))
        seen += [moved(directory, (directory / "new").touch), moved(directory, os.unlink, directory / "new"),
                 moved(directory, os.mkdir, directory / "sub"), moved(directory, os.rmdir, directory / "sub"),
                 moved(directory, os.rename, path, other), moved(directory, os.symlink, "x", directory / "link"),
                 moved(directory, os.chmod, other, 0o600)]
        return seen

    same(behaviour)


def test_closing_moves_no_time(same):
    """The commit at close writes to the index of the file, which is no change of the file."""
    def behaviour(directory):
        paths = [directory / str(size) for size in (100, 50000, 3 << 20)]
        seen, before = [], []
        for path in paths:
            file = open(path, "wb", buffering=0)
            file.write(pattern(1, 0, int(path.name)))
            before.append(times(path))
            seen.append(moved(path, file.close))
        time.sleep(1.1)  # what the kernel remembers of a file that is being written
        seen += [times(path) == old and old["m"] == old["c"] for path, old in zip(paths, before)]
        return seen

    same(behaviour)


@pytest.mark.parametrize("durable", ["close", "fsync"])
def test_a_change_that_nobody_saw_is_not_later_than_its_close(array, make_mount, durable):
    """Where nobody was told of a modification time yet, the index keeps the one that it has by itself."""
    tick = 10**7
    mount = make_mount(array, f"durable={durable}")
    now, at = time.time_ns, {}
    for number in range(50):
        for slow in (False, True):
            with open(mount.path / f"{number} {slow}", "wb", buffering=0) as file:
                begun = now()
                file.write(b"x" * 100)
                written = now()
                if slow:
                    time.sleep(0.03)
            at[file.name] = begun - tick, written if slow else now()
    for number in range(5):
        with open(mount.path / f"set {number}", "wb", buffering=0) as file:
            file.write(b"x")
            os.utime(file.fileno(), ns=(10**18, 10**18 + 3))
        at[file.name] = 10**18 + 3, 10**18 + 3
    seen = {path: times(path) for path in at}
    for path, (earliest, latest) in at.items():
        assert earliest <= seen[path]["m"] <= latest, path
        assert seen[path]["c"] >= seen[path]["m"] or "set" in path, path
    mount.remount()
    assert {path: times(path)["m"] for path in at} == {path: time["m"] for path, time in seen.items()}


@pytest.mark.parametrize("durable", ["close", "fsync"])
def test_who_closes_first_is_not_newer(array, make_mount, durable):
    """As make(1) needs it."""
    mount = make_mount(array, f"durable={durable}")
    paths = [mount.path / str(number) for number in range(400)]
    for path in paths:
        path.write_bytes(b"x")
    mount.remount()
    seen = [times(path)["m"] for path in paths]
    assert seen == sorted(seen)


def test_times_survive_compaction_of_the_index(mount):
    """Many commits make the index long; the old part of it is given back in the background."""
    path = mount.path / "file"
    with open(path, "wb", buffering=0) as file:
        for number in range(1500):
            os.pwrite(file.fileno(), b"x" * 1000, number)
            os.fsync(file.fileno())
        os.utime(path, ns=(10**18, 10**18 + 3))
        for _ in range(3):
            os.fsync(file.fileno())
    mount.remount()
    assert os.stat(path).st_mtime_ns == 10**18 + 3


def test_now_and_omit(same):
    """UTIME_NOW and UTIME_OMIT, one time each."""
    import ctypes

    from lab.system import AT_FDCWD, libc

    now, omit = (1 << 30) - 1, (1 << 30) - 2

    class Times(ctypes.Structure):
        _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"x")
        os.utime(path, ns=(10**18, 10**18))
        seen = []
        for access, modification in ((omit, now), (now, omit), (omit, omit), (now, now), (omit, 5), (7, omit)):
            pair = (Times * 2)(Times(9, access), Times(9, modification))

            def set_times():
                assert libc.utimensat(AT_FDCWD, os.fsencode(path), pair, 0) == 0

            seen.append(moved(path, set_times))
        return seen

    same(behaviour)


def test_many_readers_and_a_writer(mount):
    """Access times are moved by whoever comes first; nothing depends on who."""
    path = mount.path / "file"
    path.write_bytes(pattern(1, 0, 300000))
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(open(path, "rb", buffering=0)) for _ in range(20)]
        assert moved(path, lambda: [reader.read(1000) for reader in readers]) == "a"
        assert moved(path, lambda: [reader.read(1000) for reader in readers]) == ""


@pytest.mark.parametrize("looks", ["at once", "at the end", "before and after"])
def test_times_follow_the_order_of_changes(same, looks):
    """Content is stamped by another clock than names and attributes: what comes later is never older."""
    def behaviour(directory):
        rounds = 400
        for number in range(rounds):
            (directory / f"file{number}").touch()
        rolls = random.Random(5)
        seen = []

        def look(kind, path):
            found = os.lstat(path)
            return kind, found.st_ctime_ns if kind in ("chmod", "link") else found.st_mtime_ns

        changes = []
        for number in range(rounds):
            kind = rolls.choice(["write", "write", "symlink", "mkdir", "chmod", "link", "write anew"])
            path = directory / (f"file{number}" if kind in ("write", "chmod", "link") else f"new{number}")
            if looks == "before and after" and kind in ("write", "chmod", "link"):
                os.lstat(path)
                os.lstat(directory)
            if kind == "symlink":
                os.symlink("target", path)
            elif kind == "mkdir":
                os.mkdir(path)
            elif kind == "chmod":
                os.chmod(path, 0o600)
            elif kind == "link":
                os.link(path, directory / f"link{number}")
            else:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
                os.write(descriptor, b"x")
                os.close(descriptor)
            changes.append((kind, path))
            if looks != "at the end":
                seen.append(look(*changes[-1]))
        if looks == "at the end":
            seen = [look(*change) for change in changes]
        return [(a[0], b[0]) for a, b in itertools.pairwise(seen) if b[1] < a[1]][:5]

    same(behaviour)
