"""A full drive, seen by who writes: what ext4 does on a drive of the same size, the mount does.

The drives have room for the same amount of data, not for exactly the same: behaviours return what must be equal, never
how much fitted.
"""
import contextlib
import os
import random
import re
import signal
import time

import pytest

from lab import LONG
from lab.data import is_pattern, pattern, write_pattern
from lab.system import FALLOC_KEEP_SIZE, attempt, die_with_parent, fallocate, within

pytestmark = [pytest.mark.P6, pytest.mark.root, pytest.mark.time_limit(240)]
MIB = 1 << 20
DRIVE = 48 * MIB


@pytest.fixture
def same_when_full(make_drive, make_array, make_mount, drives):
    """same_when_full(behaviour): on a small drive and on an array of two, which together are as large."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    native = make_drive(2 * DRIVE).path
    array = make_array(paths=[make_drive(DRIVE).path for _ in range(2)])
    mount = make_mount(array)

    def compare(behaviour):
        results = [behaviour(path) for path in (native, mount.path)]
        assert results[1] == results[0], "mount (left) and native directory (right) differ"
        return mount

    return compare


def free(directory):
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize


def fill(path, block=MIB, flags=0):
    """Writes until an error: its name, what fsync and close said, and how much was written."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o644)
    written = 0
    while written < 1 << 30:
        result = attempt(os.write, descriptor, pattern(1, written, block))
        if isinstance(result, str):
            break
        written += result
    return (result, attempt(os.fsync, descriptor), attempt(os.close, descriptor)), written


@pytest.mark.P4
def test_the_write_that_does_not_fit_fails(same_when_full):
    """It alone: what was written before stays, fsync and close have nothing to report."""
    def behaviour(directory):
        path = directory / "file"
        room = free(directory)
        said, written = fill(path)
        enough = written > 0.95 * room
        whole = path.stat().st_size == written and is_pattern(path, 1, written)
        with open(path, "r+b", buffering=0) as file:
            file.truncate(5 * MIB)
        again = [attempt(write_pattern, directory / "next", 2, 25 * MIB), is_pattern(directory / "next", 2, 25 * MIB)]
        return said, enough, whole, again, is_pattern(path, 1, 5 * MIB)

    mount = same_when_full(behaviour)
    mount.remount()
    assert is_pattern(mount.path / "file", 1, 5 * MIB) and is_pattern(mount.path / "next", 2, 25 * MIB)


def test_removed_space_is_there_at_once(same_when_full):
    """Rotation on a drive with room for one checkpoint and a half: no waiting between unlink and the next save."""
    def behaviour(directory):
        before = free(directory)
        seen = []
        for number in range(4):
            seen.append(attempt(write_pattern, directory / f"step{number}", number, 55 * MIB))
            seen.append(is_pattern(directory / f"step{number}", number, 55 * MIB))
            os.unlink(directory / f"step{number}")
        return seen, abs(free(directory) - before) < 4 * MIB

    same_when_full(behaviour)


@pytest.mark.P4
def test_many_files_until_it_is_full(same_when_full):
    def behaviour(directory):
        errors, taken = set(), []
        while len(taken) < 2000 and "ENOSPC" not in errors:
            number = len(taken)
            data = pattern(number, 0, (20_000, 200_000, 900_000)[number % 3])
            descriptor = os.open(directory / str(number), os.O_CREAT | os.O_WRONLY, 0o644)
            result = attempt(os.write, descriptor, data)
            taken.append(0 if isinstance(result, str) else result)
            errors.add(result if isinstance(result, str) else "taken")
            errors.add(f"close {attempt(os.close, descriptor)}")
        damaged = [number for number, size in enumerate(taken) if not is_pattern(directory / str(number), number, size)]
        for number in range(len(taken)):
            os.unlink(directory / str(number))
        return errors, damaged, len(taken) > 100, attempt(write_pattern, directory / "last", 1, 50 * MIB)

    same_when_full(behaviour)


def test_names_on_a_full_drive(same_when_full):
    """Removing, renaming and truncating work; with them there is room again."""
    def behaviour(directory):
        (directory / "sub").mkdir()
        for number in range(10):
            write_pattern(directory / f"sub/{number}", number, 2 * MIB)
        fill(directory / "big")
        fill(directory / "rest", block=4096)
        seen = [attempt(os.rename, directory / "sub/1", directory / "sub/renamed"),
                attempt(os.chmod, directory / "sub/2", 0o600), attempt(os.unlink, directory / "sub/3"),
                attempt(os.unlink, directory / "sub/6"),
                attempt(os.truncate, directory / "sub/4", MIB), attempt(os.link, directory / "sub/5", directory / "link"),
                attempt(write_pattern, directory / "new", 9, MIB), is_pattern(directory / "new", 9, MIB),
                is_pattern(directory / "sub/renamed", 1, 2 * MIB), is_pattern(directory / "sub/4", 4, MIB)]
        return seen

    same_when_full(behaviour)


def test_fallocate_beyond_what_is_free(same_when_full):
    def behaviour(directory):
        with open(directory / "file", "w+b", buffering=0) as file:
            seen = [attempt(fallocate, file.fileno(), 0, 0, 400 * MIB)]
            file.truncate(0)  # what of it was allocated all the same
            seen += [attempt(fallocate, file.fileno(), 0, 0, 30 * MIB), os.fstat(file.fileno()).st_size]
            seen += [attempt(write_pattern, directory / "other", 1, 30 * MIB), is_pattern(directory / "other", 1, 30 * MIB)]
        return seen

    mount = same_when_full(behaviour)
    # Who reads the log learns which drive it is.
    assert re.search(r" warning /file: member \d \(/\S+\) has no room for what is to be set aside; fallocate fails",
                     mount.log()), mount.log()


@pytest.mark.parametrize("keep_size", [0, FALLOC_KEEP_SIZE])
def test_room_that_fallocate_got_is_kept_for_its_file(same_when_full, keep_size):
    """Others fill the drive meanwhile; statfs does not offer it to them either."""
    def behaviour(directory):
        before = free(directory)
        with open(directory / "file", "w+b", buffering=0) as file:
            seen = [attempt(fallocate, file.fileno(), keep_size, 0, 30 * MIB), os.fstat(file.fileno()).st_size,
                    29 * MIB < before - free(directory) < 34 * MIB]
            said, taken = fill(directory / "other")
            seen += [said, taken > 30 * MIB, attempt(fallocate, file.fileno(), 0, 0, 60 * MIB)]
            file.truncate(30 * MIB)
            seen += [attempt(os.pwrite, file.fileno(), pattern(3, offset, MIB), offset)
                     for offset in range(0, 30 * MIB, MIB)]
            seen.append(attempt(os.fsync, file.fileno()))
        seen += [is_pattern(directory / "file", 3, 30 * MIB), is_pattern(directory / "other", 1, taken)]
        os.unlink(directory / "other")
        with open(directory / "file", "r+b", buffering=0) as file:
            seen.append(attempt(fallocate, file.fileno(), keep_size, 0, 45 * MIB))
            file.truncate(30 * MIB)  # gives back what lies behind it
            seen.append(free(directory) > 36 * MIB)
        return seen

    same_when_full(behaviour)


@pytest.mark.P4
def test_appending_goes_on_after_the_error(same_when_full):
    """A log on a full drive: the refused line is lost, those before and after are not."""
    def behaviour(directory):
        log = os.open(directory / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        os.write(log, b"first\n" * 10000)
        fill(directory / "big")
        fill(directory / "rest", block=4096)
        line = b"x" * (8 * MIB)
        refused = attempt(os.write, log, line)
        os.unlink(directory / "big")
        deadline = time.monotonic() + 5
        os.write(log, b"second\n")
        os.fsync(log)
        os.close(log)
        content = (directory / "log").read_bytes()
        return (refused == "ENOSPC" or refused < len(line), content.startswith(b"first\n" * 10000),
                content.endswith(b"second\n"), time.monotonic() < deadline)

    same_when_full(behaviour)


@contextlib.contextmanager
def removing_for_ever(directory, processes=3):
    """Processes that keep a removed file open, and make and remove an empty one again and again."""
    def remove(number):
        die_with_parent()
        name = directory / f"coming{number}"
        kept = os.open(name, os.O_CREAT | os.O_RDWR)
        while kept >= 0:
            os.unlink(name)
            os.mknod(name)

    children = []
    try:
        for number in range(processes):
            children.append(os.fork())
            if children[-1] == 0:
                try:
                    remove(number)
                finally:
                    os._exit(1)
        yield
        assert all(os.waitpid(child, os.WNOHANG) == (0, 0) for child in children), "one has ended"
    finally:
        for number, child in enumerate(children):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            (directory / f"coming{number}").unlink(missing_ok=True)


def test_who_removes_for_ever_holds_up_nobody(make_drive, make_array, make_mount, drives):
    """What does not fit is refused, however much is being removed meanwhile."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    mount = make_mount(make_array(paths=[make_drive(DRIVE).path for _ in range(2)]))
    fill(mount.path / "big")
    with removing_for_ever(mount.path):
        with open(mount.path / "more", "w+b", buffering=0) as file:
            for _ in range(5):
                assert within(20, os.write, file.fileno(), bytes(MIB)) == "ENOSPC"
                assert within(20, fallocate, file.fileno(), 0, 0, 40 * MIB) == "ENOSPC"
                assert within(20, os.statvfs, mount.path).f_blocks > 0
    # What was removed before counts all the same.
    for _ in range(3):
        os.unlink(mount.path / "big")
        with removing_for_ever(mount.path):
            write_pattern(mount.path / "big", 1, 60 * MIB)


@pytest.mark.P2
@pytest.mark.P4
def test_replacement_that_does_not_fit_leaves_the_old(make_drive, make_array, make_mount, drives):
    """Better than ext4, which has thrown the old content away by then: the writer is told, also at close."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    mount = make_mount(make_array(paths=[make_drive(DRIVE).path for _ in range(2)]))
    path = mount.path / "checkpoint"
    write_pattern(path, 1, 45 * MIB)
    said, _ = fill(path, flags=os.O_TRUNC)
    assert said == ("ENOSPC", "ENOSPC", "ENOSPC")
    assert is_pattern(path, 1, 45 * MIB)


@contextlib.contextmanager
def filled(drive):
    """To the last block, by somebody else."""
    paths = [drive / "filling", drive / "filling-2"]
    for path, block in zip(paths, (MIB, 4096)):
        fill(path, block)
    try:
        yield
    finally:
        for path in paths:
            path.unlink()
        os.sync()


def durably_opened(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    return descriptor


@pytest.mark.P2
@pytest.mark.P4
@pytest.mark.parametrize("size", [100, 300_000])
@pytest.mark.parametrize("durable", ["close", "fsync"])
def test_a_drive_that_somebody_else_fills(make_drive, make_array, make_mount, drives, durable, size):
    """The write is told, not only the close; and what could not be saved does not replace what was."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    drive = make_drive(DRIVE).path
    mount = make_mount(make_array(paths=[drive]), f"durable={durable}", "buffer_memory=16M")
    write_pattern(mount.path / "latest", 1, size)
    os.close(durably_opened(mount.path / "latest"))
    with filled(drive):
        time.sleep(1.1)
        descriptor = os.open(mount.path / "new", os.O_CREAT | os.O_WRONLY)
        assert attempt(os.write, descriptor, pattern(2, 0, size)) == "ENOSPC"
        os.close(descriptor)
    (mount.path / "new").unlink()
    # Filled behind the write: the last to say so is close, and not everybody listens.
    descriptor = os.open(mount.path / "new", os.O_CREAT | os.O_WRONLY)
    assert os.write(descriptor, pattern(2, 0, size)) == size
    with filled(drive):
        said = [attempt(os.fsync, descriptor), attempt(os.close, descriptor)]
        if size > 100:  # a small file's record may find a place still
            assert "ENOSPC" in said
            for _ in range(2):
                assert attempt(os.rename, mount.path / "new", mount.path / "latest") == "ENOSPC"
            assert "/new does not replace /latest, as its only save has failed" in mount.log()
            assert is_pattern(mount.path / "latest", 1, size)
            os.rename(mount.path / "new", mount.path / "moved")  # which replaces nothing
            os.rename(mount.path / "moved", mount.path / "new")
    write_pattern(mount.path / "new", 3, size)
    os.rename(mount.path / "new", mount.path / "latest")
    assert is_pattern(mount.path / "latest", 3, size)
    # What was saved before stays, and takes any place; so does what is meant to be empty, and another file.
    for turn in range(3 if size > 100 else 0):
        path = mount.path / "rotated"
        if turn == 0:
            write_pattern(path, 4, size)
            os.close(durably_opened(path))
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        assert os.write(descriptor, pattern(5, 0, size)) == size
        with filled(drive):
            assert "ENOSPC" in [attempt(os.fsync, descriptor), attempt(os.close, descriptor)]
        if turn == 1:
            path.write_bytes(b"")
        elif turn == 2:
            path.unlink()
            path.touch()
        write_pattern(mount.path / "target", 6, size)
        os.rename(path, mount.path / "target")
        assert (mount.path / "target").stat().st_size == (size if turn == 0 else 0)


@pytest.mark.P2
def test_old_content_is_read_with_its_own_size(make_drive, make_array, make_mount, drives):
    """Also by who opens the file while the failed writer's handle is on its way out, behind its close."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    mount = make_mount(make_array(paths=[make_drive(DRIVE).path for _ in range(2)]))
    path = mount.path / "checkpoint"
    size = 60 * MIB
    write_pattern(path, 1, size)
    sizes = set()
    for _ in range(30):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        while attempt(os.write, descriptor, bytes(MIB)) != "ENOSPC":
            pass
        assert attempt(os.close, descriptor) == "ENOSPC"
        with open(path, "rb", buffering=0) as file:
            sizes.add(file.seek(size - 5) + len(file.read(10)))
    assert sizes == {size}


@pytest.mark.parametrize("members, chunk_size, kind", [(1, None, "ext4"), (2, None, "xfs"), (3, None, "ext4"),
                                                       (2, 64 << 10, "xfs"), (3, 4 << 20, "ext4")])
def test_what_statfs_offers_can_be_allocated(make_drive, make_array, make_mount, drives, members, chunk_size, kind):
    """Right then: whatever was written, removed or set aside just before."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    # The smallest XFS has 300 MiB; few large chunks may lie on few members.
    size = (320 if kind == "xfs" else 48 if chunk_size is None else 96) * MIB
    array = make_array(chunk_size, paths=[make_drive(size, kind).path for _ in range(members)])
    mount = make_mount(array)
    rolls = random.Random(members)
    for number in range(12 if LONG else 5):
        path = mount.path / f"file{number}"
        kept = mount.path / f"kept{number}"
        write_pattern(path, 1, rolls.randrange(1, members * size * 2 // 3))
        write_pattern(kept, 1, rolls.randrange(1, 3 * MIB))
        if number % 2:
            os.unlink(path)
        offered = free(mount.path)
        with open(mount.path / "all", "wb", buffering=0) as file:
            assert attempt(fallocate, file.fileno(), 0, 0, offered) is None, f"{offered} in round {number}"
            # And one round writes all of it.
            for offset in range(0, offered, 8 * MIB) if number == 3 else ():
                length = min(8 * MIB, offered - offset)
                assert os.pwrite(file.fileno(), bytes(length), offset) == length
        os.unlink(mount.path / "all")
        path.unlink(missing_ok=True)
