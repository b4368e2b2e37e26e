"""fpfs-bench-discard --pool, which rows 3, 6 and 12 are measured against: what it gives back is what was written."""
import contextlib
import os
import random
import subprocess

from lab.programs import Programs
from lab.system import wait_until

MIB = 1 << 20


@contextlib.contextmanager
def pool(programs, path, size):
    path.mkdir()
    process = subprocess.Popen([programs.build / "tools" / "fpfs-bench-discard", "--pool", str(size), path])
    try:
        wait_until(lambda: process.poll() is not None or path.is_mount())
        assert path.is_mount()
        yield path
    finally:
        subprocess.run(["umount", path], check=True)
        assert process.wait(timeout=20) == 0


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
