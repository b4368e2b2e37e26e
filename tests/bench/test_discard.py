"""fpfs-bench-discard --pool, which rows 3, 6 and 12 are measured against: what it gives back is what was written."""
import contextlib
import os
import pathlib
import random
import subprocess
import tempfile
import time

import pytest

from lab.programs import Programs
from lab.system import wait_until
from suite.commands import Commands
from suite.drives import LoopDrive, bytes_moved

MIB = 1 << 20


@contextlib.contextmanager
def pool(programs, path, size, *arguments):
    path.mkdir()
    words = [programs.build / "tools" / "fpfs-bench-discard", "--pool", str(size), *arguments, path]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: process.poll() is not None or path.is_mount())
        assert path.is_mount()
        yield path
    finally:
        if path.is_mount():
            subprocess.run(["umount", path], check=True)
        else:
            process.kill()
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, "")


def test_a_file_that_the_pool_holds_is_whole_how_often_it_came_round(tmp_path):
    lengths = (MIB, 8, 4096)  # as torch.save writes in the legacy format
    source = random.Random(1).randbytes(3 * MIB)
    pieces = [source[16 * number:16 * number + lengths[number % 3]] for number in range(36 * 3)]
    with pool(Programs(), tmp_path / "mount", 48 * MIB) as mount:
        for turn in range(20):
            path = mount / f"saved-{turn}"
            with open(path, "wb", buffering=0) as file:
                for piece in pieces:
                    assert file.write(piece) == len(piece)
            with open(path, "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for number, piece in enumerate(pieces):
                    assert file.read(len(piece)) == piece, (turn, number)
            path.unlink()


def bytes_read(drives):
    """Of files on block devices, by the kernel's count."""
    return sum(bytes_moved([drive.name])[0] for drive in drives)


@pytest.mark.root
def test_what_is_read_came_from_the_drives_meanwhile(tmp_path, lab):
    size = 24 * MIB
    content = random.Random(2).randbytes(size)
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=lab)))
        drives = []
        for index in range(2):
            drives.append(LoopDrive(Commands(), directory, index, 512 * MIB))
            stack.callback(drives[-1].close)
            drives[-1].format_xfs()
            (drives[-1].path / "raw").write_bytes(bytes(size // 2))
        os.sync()
        files = ":".join(str(drive.path / "raw") for drive in drives)
        mount = stack.enter_context(pool(Programs(), tmp_path / "mount", 48 * MIB, "--drives", files))
        with open(mount / "saved", "wb", buffering=0) as file:
            for offset in range(0, size, MIB):
                file.write(content[offset:offset + MIB])
        for _ in range(2):  # each load
            before = bytes_read(drives)
            with open(mount / "saved", "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for offset in range(0, size, MIB):
                    assert file.read(MIB) == content[offset:offset + MIB]
                    assert bytes_read(drives) - before >= offset + MIB
            time.sleep(0.6)
            assert bytes_read(drives) - before < size + MIB
