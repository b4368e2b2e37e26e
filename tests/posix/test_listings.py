"""Reading directories while they change."""
import ctypes
import os
import random
import threading

import pytest

from lab import LONG
from lab.system import libc

pytestmark = pytest.mark.P6

libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.c_void_p
libc.readdir.argtypes = libc.closedir.argtypes = libc.rewinddir.argtypes = libc.telldir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
NAME_OFFSET = 19  # of struct dirent


class Stream:
    """opendir(3) and what goes with it."""

    def __init__(self, path):
        self.pointer = libc.opendir(os.fsencode(path))
        assert self.pointer

    def read(self):
        entry = libc.readdir(self.pointer)
        return ctypes.string_at(entry + NAME_OFFSET).decode() if entry else None

    def rest(self):
        return list(iter(self.read, None))

    def tell(self):
        return libc.telldir(self.pointer)

    def seek(self, position):
        libc.seekdir(self.pointer, position)

    def rewind(self):
        libc.rewinddir(self.pointer)

    def close(self):
        libc.closedir(self.pointer)


def make(directory, names):
    for name in names:
        os.close(os.open(directory / name, os.O_CREAT | os.O_WRONLY))


def test_a_moved_directory_lists_its_new_parent(same):
    """Also when the kernel keeps what was listed before."""
    def behaviour(directory):
        for name in ("one", "other", "one/moving"):
            (directory / name).mkdir()
        make(directory / "one/moving", ["file"])

        def parent(path):
            stream = Stream(path)
            numbers = {}
            while entry := libc.readdir(stream.pointer):
                numbers[ctypes.string_at(entry + NAME_OFFSET)] = ctypes.c_uint64.from_address(entry).value
            stream.close()
            assert set(numbers) == {b".", b"..", b"file"}
            return [name for name in ("one", "other") if numbers[b".."] == os.stat(directory / name).st_ino]

        seen = [parent(directory / "one/moving") for _ in range(3)]
        os.rename(directory / "one/moving", directory / "other/moved")
        seen += [parent(directory / "other/moved") for _ in range(3)]
        return seen

    same(behaviour)


def test_a_listing_that_was_kept_shows_every_name(same):
    def behaviour(directory):
        make(directory, [f"file{number:03d}" for number in range(300)])
        seen = [sorted(os.listdir(directory)) for _ in range(3)]
        for number in range(0, 300, 50):
            os.unlink(directory / f"file{number:03d}")
            seen.append(sorted(os.listdir(directory)))
            make(directory, [f"new{number}"])
            seen.append(sorted(os.listdir(directory)))
            os.rename(directory / f"file{number + 1:03d}", directory / f"moved{number}")
            seen += [sorted(os.listdir(directory)) for _ in range(2)]
            stream = Stream(directory)
            some = [stream.read() for _ in range(100)]
            os.symlink("x", directory / f"link{number}")
            stream.rewind()
            seen.append((len(set(some)), sorted(stream.rest())))
            stream.close()
        return seen

    same(behaviour)


def test_positions_are_kept(same):
    def behaviour(directory):
        make(directory, [f"entry{number:04d}" for number in range(3000)])
        stream = Stream(directory)
        seen = [stream.read() for _ in range(1000)]
        position = stream.tell()
        rest = stream.rest()
        stream.seek(position)
        again = stream.rest()
        stream.rewind()
        whole = stream.rest()
        make(directory, ["new"])
        stream.rewind()
        with_new = stream.rest()
        stream.close()
        return rest == again, seen + rest == whole, sorted(whole), sorted(set(with_new) - set(whole))

    same(behaviour)


def test_an_open_listing_of_a_removed_directory(same):
    def behaviour(directory):
        sub = directory / "sub"
        sub.mkdir()
        stream = Stream(sub)
        os.rmdir(sub)
        first = stream.rest()
        stream.rewind()
        second = stream.rest()
        stream.close()
        return set(first) <= {".", ".."}, second

    same(behaviour)


@pytest.mark.P5
@pytest.mark.root
@pytest.mark.time_limit(300)
def test_more_files_than_descriptors(array, make_mount):
    """The kernel remembers every file that was looked at, and each costs the daemon a descriptor: some are forgotten."""
    limited = ["prlimit", "--nofile=4000:4000", "setpriv", "--bounding-set=-sys_resource"]
    mount = make_mount(array, prefix=limited)
    names = [f"file-{number:05d}" for number in range(12_000 if LONG else 4_500)]
    held = [os.open(mount.path / name, os.O_CREAT | os.O_RDWR) for name in names[:500]]
    for number in range(500, len(names)):
        os.close(os.open(mount.path / names[number], os.O_CREAT | os.O_WRONLY))
    with os.scandir(mount.path) as entries:
        assert sorted(entry.name for entry in entries if entry.stat(follow_symlinks=False).st_size == 0) == names
    assert all(os.stat(mount.path / name).st_nlink == 1 for name in names)
    # Open files are not among the forgotten.
    for number, descriptor in enumerate(held):
        os.write(descriptor, b"%d" % number)
        os.close(descriptor)
    assert [(mount.path / name).read_bytes() for name in names[:500]] == [b"%d" % number for number in range(500)]


@pytest.mark.mount_options("durable=fsync")  # what is listed is the same, and making it takes no sync for each file
@pytest.mark.time_limit(400)
def test_a_hundred_thousand_entries_under_change(mount):
    """What is there from the beginning to the end of a listing is listed exactly once; nothing appears that never was."""
    count = 100_000 if LONG else 10_000
    stable = {f"stable-{number:06d}" for number in range(count)}
    make(mount.path, stable)
    stop = threading.Event()
    made = set()

    def change():
        rolls = random.Random(3)
        number = 0
        present = []
        while not stop.is_set():
            number += 1
            name = f"coming-{number}"
            made.add(name)
            make(mount.path, [name])
            present.append(name)
            if len(present) > 200:
                index = rolls.randrange(len(present))
                present[index], present[-1] = present[-1], present[index]
                gone = present.pop()
                if number % 2:
                    os.unlink(mount.path / gone)
                else:
                    os.rename(mount.path / gone, mount.path / (gone + "-moved"))
                    made.add(gone + "-moved")

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(3):
            stream = Stream(mount.path)
            seen = stream.rest()
            stream.close()
            assert len(seen) == len(set(seen)), "an entry was listed twice"
            names = set(seen) - {".", ".."}
            assert stable <= names, f"{len(stable - names)} entries were left out"
            assert names - stable <= made
        with os.scandir(mount.path) as entries:  # with attributes: readdirplus
            # Of the others some are removed before they are looked at.
            listed = [entry.name for entry in entries
                      if entry.name in stable and entry.stat(follow_symlinks=False).st_size == 0]
            assert stable == set(listed) and len(listed) == count
    finally:
        stop.set()
        changer.join()
    # Removing what is being listed, as rm -r does.
    with os.scandir(mount.path) as entries:
        for entry in entries:
            os.unlink(entry.path)
    assert os.listdir(mount.path) == []


def test_listed_again_after_every_kind_of_change(same):
    """What the kernel was told by one listing must not be shown by the next when it is no longer true."""
    def behaviour(directory):
        for number in range(40):
            (directory / f"file{number:02d}").write_bytes(b"x" * number)

        def listing():
            with os.scandir(directory) as entries:
                found = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
            return [(name, status.st_mode, status.st_nlink, status.st_uid, status.st_size if name != "sub" else 0)
                    for name, status in found]

        seen = [listing(), listing()]
        kept = os.open(directory / "file30", os.O_RDWR)

        def exchange(one, other):
            os.rename(directory / one, directory / "aside")
            os.rename(directory / other, directory / one)
            os.rename(directory / "aside", directory / other)

        for change in (
                lambda: (directory / "file01").write_bytes(b"longer" * 1000),
                lambda: os.truncate(directory / "file02", 77_777),
                lambda: os.chmod(directory / "file03", 0o600),
                lambda: os.chown(directory / "file04", 1234, 1234),
                lambda: os.link(directory / "file05", directory / "link"),
                lambda: os.unlink(directory / "file06"),
                lambda: exchange("file07", "file17"),
                lambda: os.rename(directory / "file08", directory / "file18"),
                lambda: os.mkdir(directory / "sub"),
                lambda: os.pwrite(kept, b"while open" * 100, 0),
                lambda: os.close(kept)):
            change()
            seen += [listing(), listing()]
        return seen

    same(behaviour)
