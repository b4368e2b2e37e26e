"""Reading and writing: what a local filesystem does, the mount does."""
import errno
import hashlib
import mmap
import os
import random
import tempfile

import pytest

from lab.data import pattern
from lab.system import (FALLOC_COLLAPSE_RANGE, FALLOC_INSERT_RANGE, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE,
                        FALLOC_ZERO_RANGE, attempt, fallocate, in_child)

pytestmark = pytest.mark.P6

MIB = 1 << 20
# Around inline size, pages, small chunks, default chunks.
SIZES = [0, 1, 4095, 4096, 4097, 32 * 1024, 32 * 1024 + 1, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1, 3 * MIB + 12345]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size


def test_whole_files_of_many_sizes(same):
    def behaviour(directory):
        for size in SIZES:
            (directory / str(size)).write_bytes(pattern(size, 0, size))
        return [digest(directory / str(size)) for size in SIZES]

    same(behaviour)


def test_random_writes(same):
    def behaviour(directory):
        rolls = random.Random(5)
        path = directory / "file"
        path.write_bytes(pattern(1, 0, 5 * MIB + 777))
        with open(path, "r+b", buffering=0) as file:
            seen = []
            for number in range(120):
                offset, size = rolls.randrange(6 * MIB), rolls.choice([1, 64, 4096, 70000, 300000, 2 * MIB])
                os.pwrite(file.fileno(), pattern(number, offset, size), offset)
                if number % 7 == 0:
                    offset = rolls.randrange(7 * MIB)
                    seen.append(hashlib.sha256(os.pread(file.fileno(), 500000, offset)).hexdigest())
                if number % 31 == 0:
                    os.fsync(file.fileno())
        return seen, digest(path)

    same(behaviour)


def test_append_and_positions(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"head")
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        seen = [os.write(descriptor, b"-tail"), os.lseek(descriptor, 0, os.SEEK_CUR)]
        os.lseek(descriptor, 2, os.SEEK_SET)
        seen += [os.write(descriptor, b"!"), os.lseek(descriptor, 0, os.SEEK_CUR)]
        seen += [os.pwrite(descriptor, b"?", 0), os.pread(descriptor, 100, 0)]  # Linux appends here too
        os.ftruncate(descriptor, 3)
        seen += [os.write(descriptor, b"x"), os.pread(descriptor, 100, 0), os.fstat(descriptor).st_size]
        os.close(descriptor)
        return seen

    same(behaviour)


def test_append_from_several_processes(same):
    def behaviour(directory):
        path = directory / "log"
        path.touch()

        def writer(letter):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            for _ in range(300):
                os.write(descriptor, letter * 99 + b"\n")
            os.close(descriptor)

        children = []
        for letter in (b"a", b"b", b"c", b"d"):
            child = os.fork()
            if child == 0:
                try:
                    writer(letter)
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        lines = path.read_bytes().split(b"\n")
        return statuses, sorted(lines)  # every line whole, none lost

    same(behaviour)


def test_truncate_both_ways(same):
    def behaviour(directory):
        path = directory / "file"
        seen = []
        for size in SIZES:
            path.write_bytes(pattern(size, 0, size))
            for new in (size // 2, size + 100, 0, 70000, 2 * MIB + 5, 1):
                os.truncate(path, new)
                seen.append(digest(path))
        with open(path, "r+b") as file:
            file.write(b"z" * 100)
            file.truncate(50)
            seen.append(os.fstat(file.fileno()).st_size)
            seen.append(attempt(os.ftruncate, file.fileno(), -1))
        seen.append(attempt(os.truncate, directory, 0))
        seen.append(attempt(os.truncate, directory / "absent", 0))
        with open(path, "rb") as file:
            seen.append(attempt(os.ftruncate, file.fileno(), 0))
        return seen

    same(behaviour)


def test_shrunk_tail_comes_back_as_zeros(same):
    def behaviour(directory):
        path = directory / "file"
        seen = []
        for size in (100, 40000, 70000, MIB + 300):
            path.write_bytes(b"\xff" * size)
            os.truncate(path, size - 50)
            os.truncate(path, size + 50)
            seen.append(path.read_bytes()[size - 60:])
            with open(path, "r+b") as file:  # written past the end: the gap is zeros
                os.pwrite(file.fileno(), b"end", size + 5000)
            seen.append(path.read_bytes()[size - 60:])
        return seen

    same(behaviour)


def test_sparse_files(same):
    def behaviour(directory):
        path = directory / "sparse"
        with open(path, "wb") as file:
            os.pwrite(file.fileno(), b"a", 0)
            os.pwrite(file.fileno(), b"m", 50 * MIB + 3)
            os.ftruncate(file.fileno(), 120 * MIB)
        with open(path, "rb") as file:
            seen = [os.pread(file.fileno(), 10, 50 * MIB), os.pread(file.fileno(), 10, 119 * MIB),
                    os.pread(file.fileno(), 10, 120 * MIB), os.pread(file.fileno(), 10, 120 * MIB - 4)]
        return seen, path.stat().st_size, path.stat().st_blocks * 512 < 8 * MIB

    same(behaviour)


def test_seek_data_and_hole(same):
    """Granularity may differ; what is asked is that no data hides in a hole and that a big hole is seen as one."""
    def behaviour(directory):
        path = directory / "sparse"
        with open(path, "w+b", buffering=0) as file:
            pieces = [(0, 5000), (10 * MIB, MIB), (30 * MIB + 17, 3)]
            for offset, size in pieces:
                os.pwrite(file.fileno(), b"\x55" * size, offset)
            os.ftruncate(file.fileno(), 40 * MIB)
            os.fsync(file.fileno())
            ranges, offset = [], 0
            while True:
                offset = attempt(os.lseek, file.fileno(), offset, os.SEEK_DATA)
                if offset == "ENXIO":
                    break
                end = os.lseek(file.fileno(), offset, os.SEEK_HOLE)
                ranges.append((offset, end))
                offset = end
            covered = [any(start <= offset and offset + size <= end for start, end in ranges) for offset, size in pieces]
            hole = os.lseek(file.fileno(), 15 * MIB, os.SEEK_HOLE)
            beyond = [attempt(os.lseek, file.fileno(), 40 * MIB, kind) for kind in (os.SEEK_DATA, os.SEEK_HOLE)]
            return covered, hole, sum(end - start for start, end in ranges) < 12 * MIB, beyond

    same(behaviour)


def test_the_hole_begins_behind_the_data(same):
    """Not at the next chunk: what copies holes as holes must not copy zeros."""
    def behaviour(directory):
        with open(directory / "sparse", "w+b", buffering=0) as file:
            descriptor = file.fileno()
            for offset in (0, 8 << 30):
                os.pwrite(descriptor, b"\x55" * 65536, offset)
            seen = []
            for committed in (False, True):
                seen += [os.lseek(descriptor, offset, whence) for offset in (0, 1, 65535, 65536, 300_000, 8 << 30)
                         for whence in (os.SEEK_HOLE, os.SEEK_DATA)]
                seen.append(attempt(os.lseek, descriptor, (8 << 30) + 65536, os.SEEK_HOLE))
                os.fsync(descriptor)
        return seen

    same(behaviour)


def test_fallocate(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(9, 0, 3 * MIB))
        seen = []
        with open(path, "r+b", buffering=0) as file:
            descriptor = file.fileno()
            seen.append(attempt(fallocate, descriptor, 0, 0, 4 * MIB))
            seen.append(os.fstat(descriptor).st_size)
            seen.append(attempt(fallocate, descriptor, FALLOC_KEEP_SIZE, 4 * MIB, 2 * MIB))
            seen.append(os.fstat(descriptor).st_size)
            for offset, length in ((100, 50), (MIB - 10, 20), (MIB, MIB), (2 * MIB + 4096, 65536), (3 * MIB - 5, 2 * MIB)):
                seen.append(attempt(fallocate, descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length))
                seen.append(digest(path))
            seen.append(attempt(fallocate, descriptor, FALLOC_ZERO_RANGE, 10, 200000))
            seen.append(digest(path))
            seen.append(attempt(fallocate, descriptor, 0, 0, 0))
            seen.append(attempt(fallocate, descriptor, 0, -1, 10))
            os.posix_fallocate(descriptor, 0, 5 * MIB)
            seen.append(digest(path))
        return seen

    same(behaviour)


@pytest.mark.parametrize("mode", [FALLOC_COLLAPSE_RANGE, FALLOC_INSERT_RANGE])
def test_ranges_are_neither_collapsed_nor_inserted(mount, mode):
    """Refused as by a filesystem that cannot do it, so that callers copy instead; nothing of the file changes."""
    path, content = mount.path / "file", pattern(9, 0, 3 * MIB)
    path.write_bytes(content)
    with open(path, "r+b", buffering=0) as file:
        file.write(b"new")
        for offset, length in ((0, MIB), (MIB, 4096), (MIB + 1, 100), (2 * MIB, MIB), (4 * MIB, MIB)):
            assert attempt(fallocate, file.fileno(), mode, offset, length) == errno.errorcode[errno.EOPNOTSUPP]
        assert os.fstat(file.fileno()).st_size == len(content)
    assert path.read_bytes() == b"new" + content[3:]
    mount.remount()
    assert path.read_bytes() == b"new" + content[3:]


def test_mapped_reads(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(3, 0, 2 * MIB + 5000))
        seen = []
        with open(path, "rb") as file:
            for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                with mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as view:
                    seen.append(hashlib.sha256(view).hexdigest())
                    seen.append([view[offset] for offset in range(0, len(view), 99991)])
            with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as view:
                view[0:4] = b"mine"
                seen.append(bytes(view[0:8]))
        seen.append(digest(path))  # a private write stays private
        return seen

    same(behaviour)


def test_mapped_writes(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(4, 0, 2 * MIB + 100))
        with open(path, "r+b") as file:
            with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED) as view:
                view[10:20] = b"0123456789"
                view[MIB - 3:MIB + 3] = b"border"
                view.flush()
                through_file = os.pread(file.fileno(), 6, MIB - 3)
                view[-4:] = b"last"
        return through_file, digest(path)

    same(behaviour)


def test_map_and_file_stay_coherent(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"\0" * MIB)
        seen = []
        with open(path, "r+b", buffering=0) as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED) as view:
            seen.append(view[5000])
            os.pwrite(file.fileno(), b"abc", 5000)
            seen.append(bytes(view[5000:5003]))
            view[6000:6003] = b"xyz"
            view.flush()
            seen.append(os.pread(file.fileno(), 3, 6000))
        return seen

    same(behaviour)


def test_direct_io(same, drives):
    if not drives.direct_io:
        pytest.skip("the native directory takes no O_DIRECT: nothing to compare with")

    def behaviour(directory):
        path = directory / "file"
        buffer = mmap.mmap(-1, 2 * MIB)  # page-aligned
        buffer[:] = pattern(6, 0, 2 * MIB)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644)
        seen = [os.pwritev(descriptor, [buffer], 0), os.pwritev(descriptor, [memoryview(buffer)[:4096]], 3 * MIB)]
        os.fsync(descriptor)
        back = mmap.mmap(-1, 4 * MIB)
        seen.append(os.preadv(descriptor, [back], 0))
        seen.append(hashlib.sha256(back).hexdigest())
        os.close(descriptor)
        return seen, digest(path)

    same(behaviour)


def test_two_descriptors_see_each_other(same):
    def behaviour(directory):
        path = directory / "file"
        with open(path, "w+b", buffering=0) as writer, open(path, "rb", buffering=0) as reader:
            seen = []
            for size in (10, 5000, 100000, 2 * MIB):
                writer.write(pattern(size, 0, size))
                seen.append(hashlib.sha256(reader.read(3 * MIB)).hexdigest())
                seen.append(os.fstat(reader.fileno()).st_size)
                seen.append(os.stat(path).st_size)
            seen.append(in_child(lambda: hashlib.sha256(path.read_bytes()).digest()))
            writer.truncate(20000)
            seen.append(os.pread(reader.fileno(), 100, 19950))
        return seen

    same(behaviour)


def test_open_flags(same):
    def behaviour(directory):
        path = directory / "file"
        seen = [attempt(os.open, path, os.O_RDONLY)]
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
        seen.append(attempt(os.open, path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        path.write_bytes(b"content")
        os.close(os.open(path, os.O_WRONLY))
        seen.append(path.read_bytes())
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
        seen.append(path.read_bytes())
        seen.append(attempt(os.open, directory, os.O_WRONLY))
        seen.append(attempt(os.open, path, os.O_DIRECTORY))
        descriptor = os.open(path, os.O_RDONLY)
        seen.append(attempt(os.write, descriptor, b"x"))
        os.close(descriptor)
        descriptor = os.open(path, os.O_WRONLY)
        seen.append(attempt(os.read, descriptor, 10))
        os.close(descriptor)
        return seen

    same(behaviour)


def test_unnamed_file(anywhere):
    """O_TMPFILE, which the kernel offers a FUSE daemon since 6.1 and libfuse not in every version: either it works in
    full, or the error is the one that makes programs use a name instead."""
    flags = os.O_TMPFILE | os.O_RDWR
    descriptor = attempt(os.open, anywhere.path, flags, 0o644)
    if descriptor in ("EOPNOTSUPP", "ENOTSUP"):
        with tempfile.TemporaryFile(dir=anywhere.path) as file:
            file.write(pattern(8, 0, 200000))
            file.seek(0)
            assert file.read() == pattern(8, 0, 200000)
    else:
        os.write(descriptor, pattern(8, 0, 200000))
        assert os.listdir(anywhere.path) == [] and os.fstat(descriptor).st_nlink == 0
        # With a directory descriptor Python calls linkat, which alone can follow this link.
        proc = os.open("/proc", os.O_PATH)
        os.link(f"self/fd/{descriptor}", anywhere.path / "named", src_dir_fd=proc, follow_symlinks=True)
        os.close(proc)
        os.close(descriptor)
        assert (anywhere.path / "named").read_bytes() == pattern(8, 0, 200000)
        os.unlink(anywhere.path / "named")
        # Never linked: what it held must be gone with it (fsck looks after the test).
        descriptor = os.open(anywhere.path, flags, 0o644)
        os.write(descriptor, pattern(9, 0, 3 * MIB + 1))
        os.fsync(descriptor)
        os.write(descriptor, pattern(10, 0, 2 * MIB))
        os.close(descriptor)
    assert os.listdir(anywhere.path) == []


def test_copy_file_range(same):
    def behaviour(directory):
        (directory / "source").write_bytes(pattern(2, 0, 2 * MIB + 3))
        with open(directory / "source", "rb") as source, open(directory / "target", "wb") as target:
            left = 2 * MIB + 3
            while left:
                left -= os.copy_file_range(source.fileno(), target.fileno(), left)
        return digest(directory / "target")

    same(behaviour)
