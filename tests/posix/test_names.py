"""Names: directories, links, renames, files that are unlinked while open."""
import os
import socket
import stat

import pytest

from lab import LONG
from lab.data import pattern
from lab.system import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, attempt, renameat2

pytestmark = pytest.mark.P6


def test_hard_links(same):
    def behaviour(directory):
        one, two = directory / "one", directory / "two"
        one.write_bytes(pattern(1, 0, 100000))
        os.link(one, two)
        seen = [os.stat(one).st_nlink, os.stat(one).st_ino == os.stat(two).st_ino]
        with open(two, "r+b") as file:
            file.write(b"through two")
        seen.append(one.read_bytes()[:20])
        one.unlink()
        seen += [os.stat(two).st_nlink, len(two.read_bytes()), attempt(os.link, directory, directory / "x"),
                 attempt(os.link, two, two), attempt(os.link, directory / "absent", directory / "x")]
        return seen

    same(behaviour)


def test_symbolic_links(same):
    def behaviour(directory):
        (directory / "target").write_bytes(b"content")
        os.symlink("target", directory / "link")
        os.symlink("nowhere", directory / "dangling")
        os.symlink("loop", directory / "loop")
        os.symlink("x" * 1000, directory / "long")
        return [(directory / "link").read_bytes(), os.readlink(directory / "link"), os.readlink(directory / "long"),
                os.lstat(directory / "link").st_size, stat.S_ISLNK(os.lstat(directory / "link").st_mode),
                attempt(os.stat, directory / "dangling"), attempt(os.stat, directory / "loop"),
                attempt(os.open, directory / "link", os.O_NOFOLLOW), attempt(os.symlink, "x", directory / "link"),
                attempt(os.readlink, directory / "target")]

    same(behaviour)


def test_rename(same):
    def behaviour(directory):
        a, b, sub = directory / "a", directory / "b", directory / "sub"
        a.write_bytes(b"A" * 50000)
        b.write_bytes(b"B" * 100000)
        sub.mkdir()
        (sub / "inside").write_bytes(b"inside")
        seen = [attempt(os.rename, a, b), b.read_bytes()[:3], attempt(os.stat, a)]
        seen += [attempt(os.rename, b, sub / "moved"), (sub / "moved").read_bytes()[:3]]
        seen += [attempt(os.rename, sub, directory / "other"), sorted(os.listdir(directory / "other"))]
        empty = directory / "empty"
        empty.mkdir()
        seen += [attempt(os.rename, directory / "other", empty), sorted(os.listdir(empty))]
        seen += [attempt(os.rename, empty, empty / "below"), attempt(os.rename, directory / "absent", a)]
        a.write_bytes(b"A")
        seen += [attempt(os.rename, a, empty), attempt(os.rename, empty, a)]
        os.link(a, directory / "same")
        seen += [attempt(os.rename, a, directory / "same"), sorted(os.listdir(directory))]
        return seen

    same(behaviour)


def test_rename_flags(same):
    def behaviour(directory):
        a, b = directory / "a", directory / "b"
        a.write_bytes(b"A" * 40000)
        b.mkdir()
        (b / "x").write_bytes(b"x")
        seen = [attempt(renameat2, a, b, RENAME_NOREPLACE), attempt(renameat2, a, directory / "c", RENAME_NOREPLACE)]
        seen += [attempt(renameat2, directory / "c", b, RENAME_EXCHANGE), b.read_bytes()[:2],
                 os.listdir(directory / "c"), attempt(renameat2, b, directory / "absent", RENAME_EXCHANGE),
                 attempt(renameat2, b, directory / "d", RENAME_NOREPLACE | RENAME_EXCHANGE)]
        return seen

    same(behaviour)


@pytest.mark.root
def test_rename_whiteout(same):
    def behaviour(directory):
        (directory / "a").write_bytes(b"A")
        renameat2(directory / "a", directory / "b", RENAME_WHITEOUT)
        left = os.lstat(directory / "a")
        return stat.S_ISCHR(left.st_mode), left.st_rdev, (directory / "b").read_bytes()

    same(behaviour)


def test_replaced_while_open(same):
    """write-then-rename under a reader: it goes on reading what it opened."""
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(1, 0, 300000))
        with open(path, "rb", buffering=0) as reader:
            seen = [reader.read(10)]
            (directory / "new").write_bytes(pattern(2, 0, 200000))
            os.replace(directory / "new", path)
            seen += [os.pread(reader.fileno(), 100, 250000), os.fstat(reader.fileno()).st_nlink, path.read_bytes()[:10]]
        return seen

    same(behaviour)


def test_unlinked_while_open(same):
    def behaviour(directory):
        path = directory / "file"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        os.write(descriptor, pattern(1, 0, 150000))
        os.unlink(path)
        seen = [attempt(os.stat, path), os.fstat(descriptor).st_nlink, os.fstat(descriptor).st_size]
        os.pwrite(descriptor, b"still here", 140000)
        seen += [os.pread(descriptor, 20, 139995), os.listdir(directory)]
        os.ftruncate(descriptor, 10)
        seen.append(os.pread(descriptor, 100, 0))
        os.fsync(descriptor)
        seen.append(attempt(os.fchmod, descriptor, 0o600))
        os.close(descriptor)
        path.write_bytes(b"another file of the same name")
        seen.append(path.read_bytes())
        return seen

    same(behaviour)


def reopened(path_only, flags):
    return os.open(f"/proc/self/fd/{path_only}", flags)


def link_descriptor(descriptor, path):
    proc = os.open("/proc", os.O_PATH)  # without it Python calls link(2), which does not follow
    try:
        os.link(f"self/fd/{descriptor}", path, src_dir_fd=proc, follow_symlinks=True)
    finally:
        os.close(proc)


@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_removed_and_opened_again(same, size):
    """A descriptor made with O_PATH opens its file after the last name went, as often as its owner likes."""
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(1, 0, size))
        path_only = os.open(path, os.O_PATH)
        os.unlink(path)
        seen = [os.fstat(path_only).st_nlink, os.fstat(path_only).st_size]
        with open(reopened(path_only, os.O_RDWR), "r+b") as file:
            seen.append(file.read() == pattern(1, 0, size))
            file.write(pattern(2, size, 2_000_000))
        with open(reopened(path_only, os.O_RDONLY), "rb") as file:
            seen.append(file.read() == pattern(1, 0, size) + pattern(2, size, 2_000_000))
        os.truncate(f"/proc/self/fd/{path_only}", 10)
        with open(reopened(path_only, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(pattern(3, 0, 500_000))
        with open(reopened(path_only, os.O_RDONLY), "rb") as file:
            seen.append(file.read() == pattern(3, 0, 500_000))
        seen.append(attempt(link_descriptor, path_only, directory / "again"))
        os.close(path_only)
        return seen

    assert same(behaviour)[2:5] == [True] * 3


def test_replaced_and_opened_again(same):
    """The same for what a rename replaced, and for what was open when its name went."""
    def behaviour(directory):
        path = directory / "file"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        os.write(descriptor, pattern(1, 0, 1_500_000))
        path_only = os.open(path, os.O_PATH)
        (directory / "new").write_bytes(pattern(2, 0, 1_000_000))
        os.replace(directory / "new", path)
        os.pwrite(descriptor, b"not committed by anybody", 700_000)
        os.close(descriptor)
        with open(reopened(path_only, os.O_RDONLY), "rb") as file:
            content = file.read()
        os.close(path_only)
        return len(content), content[700_000:700_030], content[-10:], path.read_bytes() == pattern(2, 0, 1_000_000)

    same(behaviour)


def test_unnamed_and_opened_again(same):
    def behaviour(directory):
        unnamed = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(unnamed, pattern(1, 0, 1_500_000))
        path_only = reopened(unnamed, os.O_PATH)
        os.close(unnamed)
        again = reopened(path_only, os.O_RDWR)
        seen = [os.pread(again, 2_000_000, 0) == pattern(1, 0, 1_500_000), os.fstat(again).st_nlink]
        link_descriptor(again, directory / "named")
        os.close(again)
        os.close(path_only)
        return seen, (directory / "named").read_bytes() == pattern(1, 0, 1_500_000), os.listdir(directory)

    same(behaviour)


def test_directories(same):
    def behaviour(directory):
        sub = directory / "sub"
        seen = [attempt(os.mkdir, sub), attempt(os.mkdir, sub), os.stat(directory).st_nlink > 0]
        (sub / "file").touch()
        seen += [attempt(os.rmdir, sub), attempt(os.unlink, sub), attempt(os.rmdir, sub / "file"),
                 attempt(os.mkdir, directory / "absent" / "x"), attempt(os.stat, sub / "file" / "x"),
                 attempt(os.mkdir, directory / ("n" * 255)), attempt(os.mkdir, directory / ("n" * 256))]
        (sub / "file").unlink()
        seen += [attempt(os.rmdir, sub), attempt(os.rmdir, sub)]
        odd = ["with space", "quo'te\"", "line\nbreak", "ünïcode", b"\xff\xfe".decode("utf-8", "surrogateescape"), "-n", "*"]
        for name in odd:
            (directory / name).write_text(name, errors="surrogateescape")
        seen.append(sorted(os.listdir(directory)))
        return seen

    same(behaviour)


@pytest.mark.time_limit(300)
def test_many_entries(same):
    count = 10_000 if LONG else 3000

    def behaviour(directory):
        names = [f"entry-{number:05d}-{'x' * (number % 40)}" for number in range(count)]
        for name in names:
            os.close(os.open(directory / name, os.O_CREAT | os.O_WRONLY))
        with os.scandir(directory) as entries:
            listed = sorted((entry.name, entry.is_file(follow_symlinks=False)) for entry in entries)
        # Removing while reading must not skip an entry that stays nor show one twice.
        seen = []
        with os.scandir(directory) as entries:
            for entry in entries:
                seen.append(entry.name)
                if len(seen) % 2:
                    os.unlink(directory / entry.name)
        return listed, sorted(seen), len(os.listdir(directory))

    listed, seen, left = same(behaviour)
    assert len(listed) == len(set(seen)) == count and left == count // 2


@pytest.mark.root
def test_special_files(same):
    def behaviour(directory):
        os.mkfifo(directory / "pipe", 0o600)
        os.mknod(directory / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(directory)
            listener.bind("socket")
            os.chdir("/")
        return [(name, stat.filemode(os.lstat(directory / name).st_mode), os.lstat(directory / name).st_rdev)
                for name in sorted(os.listdir(directory))]

    same(behaviour)


def test_fifo_carries_bytes(same):
    def behaviour(directory):
        os.mkfifo(directory / "pipe")
        child = os.fork()
        if child == 0:
            try:
                (directory / "pipe").write_bytes(b"through the pipe")
                os._exit(0)
            finally:
                os._exit(1)
        said = (directory / "pipe").read_bytes()
        return said, os.waitpid(child, 0)[1]

    same(behaviour)


def test_names_survive_a_remount(mount):
    root = mount.path
    (root / "dir/sub").mkdir(parents=True)
    (root / "dir/sub/file").write_bytes(pattern(1, 0, 200000))
    os.link(root / "dir/sub/file", root / "dir/second")
    os.symlink("dir/second", root / "link")
    os.mkfifo(root / "pipe")
    inode = os.stat(root / "dir/second").st_ino
    mount.remount()
    assert (root / "link").read_bytes() == pattern(1, 0, 200000)
    assert os.stat(root / "dir/sub/file").st_nlink == 2
    assert os.stat(root / "dir/sub/file").st_ino == os.stat(root / "dir/second").st_ino == inode
    assert stat.S_ISFIFO(os.lstat(root / "pipe").st_mode)


@pytest.mark.root
def test_a_directory_is_asked_for_several_names_at_a_time(mount):
    """... and listed meanwhile. The kernel does one after the other unless it is told that it need not."""
    folder = mount.path / "folder"
    folder.mkdir()
    names = [f"name{number}" for number in range(4)]
    for name in names:
        (folder / name).touch()
    listing = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = mount.at_once(*[lambda name=name: os.lstat(folder / f"no-{name}") for name in names],
                              lambda: sorted(os.listdir(listing)))
    finally:
        os.close(listing)
    assert found == ["ENOENT"] * len(names) + [names]
