"""Every way that bytes enter and leave a file: vectors, flags, splice and friends, asynchronous I/O, direct I/O."""
import ctypes
import errno
import hashlib
import mmap
import os
import socket
import subprocess
import threading

import pytest

from lab.data import pattern
from lab.programs import run
from lab.system import attempt, libc

pytestmark = pytest.mark.P6

MIB = 1 << 20
RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND = 2, 4, 8, 16


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size


def test_vectors(same):
    def behaviour(directory):
        path = directory / "file"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        pieces = [pattern(number, 0, size) for number, size in enumerate((1, 4095, 70000, 0, MIB, 3))]
        seen = [os.writev(descriptor, pieces), os.pwritev(descriptor, pieces[:3], 500_000),
                os.pwritev(descriptor, [b"synced"], 10, RWF_DSYNC | RWF_SYNC),
                os.pwritev(descriptor, [b"appended"], 0, RWF_APPEND)]
        buffers = [bytearray(10), bytearray(100_000), bytearray(2 * MIB)]
        seen += [os.preadv(descriptor, buffers, 5), hashlib.sha256(b"".join(buffers)).hexdigest()]
        seen.append(os.writev(descriptor, [b"v"] * 1024))
        os.close(descriptor)
        return seen, digest(path)

    same(behaviour)


def test_sendfile(same):
    def behaviour(directory):
        source = directory / "source"
        source.write_bytes(pattern(1, 0, 3 * MIB + 77))
        with open(source, "rb") as reader, open(directory / "target", "wb") as writer:
            sent, seen = 0, []
            while count := os.sendfile(writer.fileno(), reader.fileno(), sent, MIB):
                sent += count
        ours, theirs = socket.socketpair()
        received = []
        thread = threading.Thread(target=lambda: received.extend(iter(lambda: theirs.recv(65536), b"")))
        thread.start()
        with open(source, "rb") as reader:
            ours.sendfile(reader)
        ours.close()
        thread.join()
        theirs.close()
        # What was sent once is not remembered: the content may change behind it.
        source.write_bytes(pattern(2, 0, MIB))
        with open(source, "rb") as reader, open(directory / "again", "wb") as writer:
            os.sendfile(writer.fileno(), reader.fileno(), 0, MIB)
        return seen, sent, hashlib.sha256(b"".join(received)).hexdigest(), digest(directory / "target"), \
            digest(directory / "again")

    same(behaviour)


def test_splice_through_a_pipe(same):
    def behaviour(directory):
        source, target = directory / "source", directory / "target"
        source.write_bytes(pattern(3, 0, MIB + 9))
        read_end, write_end = os.pipe()
        with open(source, "rb") as reader, open(target, "wb") as writer:
            moved = 0
            while count := os.splice(reader.fileno(), write_end, 65536):
                while count:
                    step = os.splice(read_end, writer.fileno(), count)
                    moved += step
                    count -= step
            os.write(write_end, b"tail")
            os.splice(read_end, writer.fileno(), 4, offset_dst=MIB + 9)
        os.close(read_end)
        os.close(write_end)
        return moved, digest(target)

    same(behaviour)


def test_copy_file_range_within_and_between(same):
    def behaviour(directory):
        source, target = directory / "source", directory / "target"
        source.write_bytes(pattern(4, 0, 2 * MIB))
        target.write_bytes(b"t" * 100)
        with open(source, "r+b") as one, open(target, "r+b") as two:
            seen = [os.copy_file_range(one.fileno(), two.fileno(), 70_000, 1000, 500_000),
                    os.copy_file_range(one.fileno(), one.fileno(), 65_536, 0, 1_500_000),
                    attempt(os.copy_file_range, one.fileno(), one.fileno(), 65_536, 0, 100),  # overlaps
                    os.copy_file_range(one.fileno(), two.fileno(), 10, 10 * MIB, 0)]  # past the end
        return seen, digest(source), digest(target)

    same(behaviour)


def test_direct_io_of_any_alignment(same):
    """A native filesystem refuses what is not aligned; the mount takes it. What both take must come out equal."""
    def behaviour(directory):
        path = directory / "file"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644)
        memory = mmap.mmap(-1, 2 * MIB)
        memory[:] = pattern(5, 0, 2 * MIB)
        view = memoryview(memory)
        seen = []
        for offset, size in ((0, MIB), (MIB, 4096), (4096, 8192), (3 * MIB, 512 * 1024)):
            seen.append(os.pwritev(descriptor, [view[:size]], offset))
        back = mmap.mmap(-1, 4 * MIB)
        seen += [os.preadv(descriptor, [back], 0), hashlib.sha256(back).hexdigest()]
        odd = attempt(os.pwritev, descriptor, [view[:1000]], 4 * MIB)
        assert odd in ("EINVAL", 1000)
        os.ftruncate(descriptor, 3 * MIB + 512 * 1024)
        os.close(descriptor)
        return seen, digest(path)

    same(behaviour)


@pytest.mark.parametrize("engine", ["io_uring", "libaio", "posixaio", "mmap", "splice", "pvsync2"])
def test_asynchronous_and_other_engines(mount, engine):
    """fio writes, reads back and compares; buffered where the engine does that."""
    direct = engine in ("io_uring", "libaio")
    result = run("fio", "--name=job", f"--directory={mount.path}", "--size=24m", "--bsrange=4k-256k", "--rw=randwrite",
                 f"--ioengine={engine}", "--iodepth=8", f"--direct={int(direct)}", "--verify=crc32c", "--verify_fatal=1",
                 "--verify_state_save=0", "--do_verify=1", "--group_reporting", cwd=mount.path.parent, check=False)
    if result.returncode != 0 and f"engine {engine} not loadable" in result.stdout + result.stderr:
        pytest.skip(f"this fio has no {engine}")
    assert result.returncode == 0, result.stdout + result.stderr


def test_appending_by_many_writers(same):
    """O_APPEND, RWF_APPEND and plain writers of one file: every line whole, none lost."""
    def behaviour(directory):
        path = directory / "log"
        path.touch()

        def write(letter):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            for number in range(100):
                os.write(descriptor, letter * (100 + 300 * (number % 40)) + b"\n")
            os.close(descriptor)

        writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c", b"d", b"e", b"f")]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        lines = path.read_bytes().split(b"\n")
        return sorted(lines), len(lines)

    same(behaviour)


def test_reading_and_writing_directories_and_ends(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"0123456789")
        with open(path, "r+b", buffering=0) as file:
            descriptor = file.fileno()
            seen = [os.pread(descriptor, 10, 10), os.pread(descriptor, 10, 2**40), os.pwrite(descriptor, b"", 2**40),
                    attempt(os.pread, descriptor, 1, -1), attempt(os.lseek, descriptor, -1, os.SEEK_SET),
                    os.lseek(descriptor, 100, os.SEEK_END), os.read(descriptor, 5), os.fstat(descriptor).st_size]
        folder = os.open(directory, os.O_RDONLY)
        seen += [attempt(os.read, folder, 10), attempt(os.pwrite, folder, b"x", 0), attempt(os.fsync, folder),
                 attempt(os.ftruncate, folder, 0)]
        os.close(folder)
        return seen

    same(behaviour)


def test_bad_addresses(same):
    """A buffer that is not there: EFAULT, and the daemon does not care."""
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"0123456789" * 10000)
        descriptor = os.open(path, os.O_RDWR)
        libc.pread.argtypes = libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
        libc.pread.restype = libc.pwrite.restype = ctypes.c_ssize_t
        seen = []
        for call in (libc.pread, libc.pwrite):
            seen.append((call(descriptor, 8, 5000, 0), errno.errorcode[ctypes.get_errno()]))
        os.close(descriptor)
        return seen, digest(path)

    same(behaviour)


def test_dd_flags(same):
    def behaviour(directory):
        source = directory / "source"
        source.write_bytes(pattern(7, 0, MIB))
        seen = []
        for flags in ("oflag=append conv=notrunc", "oflag=sync", "oflag=dsync", "oflag=direct", "conv=fsync",
                      "conv=fdatasync", "conv=sparse", "oflag=nocache", "oflag=noatime", "iflag=direct", "iflag=fullblock",
                      "conv=excl", "conv=nocreat"):
            target = directory / f"target-{flags.split('=')[1].split()[0]}-{flags[:2]}"
            result = subprocess.run(["dd", f"if={source}", f"of={target}", "bs=64k", *flags.split()], capture_output=True)
            seen.append((flags, result.returncode, digest(target) if target.exists() else None))
        return seen

    same(behaviour)
