"""Sizes at the edge: the largest file, RLIMIT_FSIZE, long names and paths, sparse files."""
import os
import resource
import signal

import pytest

from lab.data import pattern
from lab.system import attempt, fallocate, in_child

pytestmark = pytest.mark.P6

MIB = 1 << 20
MAX = 2**63 - 1


def test_the_largest_file(make_array, make_mount, make_drive):
    """8 EiB, as XFS has it, whatever the members' filesystem allows for one file."""
    mount = make_mount(make_array())
    path = mount.path / "file"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    assert os.pwrite(descriptor, b"last", MAX - 4) == 4
    assert os.fstat(descriptor).st_size == MAX
    assert os.pread(descriptor, 8, MAX - 8) == b"\0\0\0\0last"
    for offset in (MAX, MAX - 1):
        result = attempt(os.pwrite, descriptor, b"xy", offset)
        assert result in ("EFBIG", "EINVAL") or result == MAX - offset, result
    assert attempt(os.ftruncate, descriptor, MAX) is None
    assert attempt(fallocate, descriptor, 0, MAX - 10, 20) == "EFBIG"
    assert os.lseek(descriptor, MIB, os.SEEK_DATA) > MAX - 3 * MIB
    assert os.lseek(descriptor, 0, os.SEEK_HOLE) == 0
    os.pwrite(descriptor, b"middle", 2**62)
    os.pwrite(descriptor, b"first", 0)
    os.close(descriptor)
    mount.remount()
    with open(path, "rb", buffering=0) as file:
        assert [os.pread(file.fileno(), 4, offset) for offset in (0, 2**62, MAX - 4)] == [b"firs", b"midd", b"last"]
        assert os.fstat(file.fileno()).st_blocks * 512 < 4 * MIB + 65536
    os.truncate(path, 5)
    assert path.read_bytes() == b"first"


def test_truncating_beyond_the_limit(same):
    def behaviour(directory):
        path = directory / "file"
        path.touch()
        return attempt(os.truncate, path, -1), attempt(os.truncate, path, 10**12), os.stat(path).st_size

    same(behaviour)


def test_file_size_limit_of_the_process(same):
    """RLIMIT_FSIZE: up to it, then EFBIG and SIGXFSZ."""
    def behaviour(directory):
        path = directory / "file"

        def body():
            signals = []
            signal.signal(signal.SIGXFSZ, lambda number, frame: signals.append(number))
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
            seen = [attempt(os.write, descriptor, b"x" * 99_999), attempt(os.write, descriptor, b"yz"),
                    attempt(os.write, descriptor, b"z"), attempt(os.ftruncate, descriptor, 100_001),
                    attempt(os.ftruncate, descriptor, 100_000), attempt(os.pwrite, descriptor, b"x", 200_000),
                    attempt(os.posix_fallocate, descriptor, 0, 200_000), attempt(os.pwrite, descriptor, b"x", 50)]
            return repr((seen, len(signals), os.fstat(descriptor).st_size)).encode()

        return in_child(body)

    same(behaviour)


def test_names_of_255_bytes_and_paths_of_4096(same):
    def behaviour(directory):
        seen = [attempt((directory / ("n" * 255)).touch), attempt((directory / ("n" * 256)).touch),
                attempt((directory / ("é" * 127)).touch), attempt((directory / ("é" * 128)).touch)]
        here = os.getcwd()
        os.chdir(directory)
        try:
            depth = 0
            # Relative, so that the path's length does not depend on where the directory is.
            while len("d" * 200 + "/") * (depth + 1) < 4095:
                depth += 1
                os.mkdir("/".join(["d" * 200] * depth))
            base = "/".join(["d" * 200] * depth) + "/"
            for length in (4094, 4095, 4096):
                name = base + "f" * (length - len(base))
                seen.append(attempt(os.close, os.open(name, os.O_CREAT | os.O_WRONLY)) if length < 4096
                            else attempt(os.open, name, os.O_CREAT | os.O_WRONLY))
            seen.append(len(os.listdir(base)))
            os.symlink("t" * 1000, "link")
            seen += [len(os.readlink("link")), attempt(os.symlink, "", "empty"), attempt(os.symlink, "t" * 4096, "long")]
        finally:
            os.chdir(here)
        return seen

    same(behaviour)


@pytest.mark.parametrize("distance", [7, 33, 40])
def test_holes_between_far_writes(same, distance):
    """Powers of two apart: holes read as zeros, and cost nothing."""
    def behaviour(directory):
        path = directory / "sparse"
        offsets = [0] + [1 << bits for bits in range(20, distance)]
        with open(path, "w+b", buffering=0) as file:
            for offset in offsets:
                os.pwrite(file.fileno(), pattern(offset, 0, 5000), offset)
            found, position = [], 0
            seen = [os.pread(file.fileno(), 5000, offset) == pattern(offset, 0, 5000) for offset in offsets]
            seen += [os.pread(file.fileno(), 10, offset + (offset >> 1) + 4096 * 3) for offset in offsets[5:]]
            while isinstance(position := attempt(os.lseek, file.fileno(), position, os.SEEK_DATA), int):
                end = os.lseek(file.fileno(), position, os.SEEK_HOLE)
                found.append((position, end))
                position = end
            covered = all(any(start <= offset < end for start, end in found) for offset in offsets)
        return seen, covered, os.stat(path).st_size, os.stat(path).st_blocks * 512 < 64 * MIB

    same(behaviour)
