"""What users can make the daemon hold: memory beyond the pool of buffers, and whether it is given back."""
import os
import resource

import pytest

from lab import LONG
from lab.data import is_pattern, pattern, write_pattern
from lab.system import wait_until

MIB = 1 << 20
KIB = 1 << 10
# Small chunks make the index of a file large. Closing commits in the background, so that making files takes no syncs.
pytestmark = [pytest.mark.P5, pytest.mark.chunk_size(64 * KIB),
              pytest.mark.mount_options("buffer_memory=16M", "durable=fsync")]


class Growth:
    """How much more memory of its own a daemon has than at the beginning."""

    def __init__(self, mount):
        self.mount = mount
        self.begin = mount.memory("RssAnon")

    def now(self):
        growth = self.mount.memory("RssAnon") - self.begin
        print(f"{growth / MIB:.1f} MiB more")
        return growth

    def assert_given_back(self, limit=6 * MIB):
        wait_until(lambda: self.now() < limit)


def fill_pool(mount):
    """Every buffer of the pool has been used: from now on it is not what grows."""
    write_pattern(mount.path / "filler", 1, 40 * MIB)
    assert is_pattern(mount.path / "filler", 1, 40 * MIB)
    os.unlink(mount.path / "filler")


@pytest.fixture
def many_descriptors():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, limits[1]), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_open_listings(mount):
    """Each that is open in the middle of a large directory."""
    directory = mount.path / "many"
    directory.mkdir()
    for number in range(20_000 if LONG else 8_000):
        os.close(os.open(directory / f"an-entry-with-a-name-{number:06d}", os.O_CREAT | os.O_WRONLY))
    with os.scandir(directory) as entries:
        assert sum(1 for _ in entries) >= 8_000  # and the kernel has the names
    fill_pool(mount)
    growth = Growth(mount)
    listings = [os.scandir(directory) for _ in range(200)]
    for listing in listings:
        next(listing)
    assert growth.now() < 8 * MIB
    for listing in listings:
        listing.close()
    growth.assert_given_back()


def test_open_small_files(mount, many_descriptors):
    """Their content, which lies in their indexes, goes through the pool, and what was evicted is read again. It was kept
    beside the pool: 2,500 and 3,500 of 30 KiB, opened and read, took 77 and 107 MiB, now 3.4 and 4.8."""
    count, size = (10_000 if LONG else 2_500), 30 * KIB
    for number in range(count):
        (mount.path / str(number)).write_bytes(pattern(number, 0, size))
    fill_pool(mount)
    growth = Growth(mount)
    files = [os.open(mount.path / str(number), os.O_RDWR) for number in range(count)]
    for number, file in enumerate(files):
        assert os.pread(file, size + 1, 0) == pattern(number, 0, size)
    assert growth.now() < 12 * MIB + count * 3 * KIB
    for number, file in enumerate(files):
        os.pwrite(file, b"changed", size - 7)
        os.ftruncate(file, size - number % 5)
    for number, file in enumerate(files):
        assert os.pread(file, 100, number) == pattern(number, number, 100)
    assert growth.now() < 12 * MIB + count * 6 * KIB
    for file in files:
        os.close(file)
    growth.assert_given_back(20 * MIB)


def test_the_index_of_a_sparse_file(mount):
    """It is as large as what is stored, not as what lies between."""
    count, distance = (65_536 if LONG else 8_192), 16 * MIB
    path = mount.path / "sparse"
    fill_pool(mount)
    growth = Growth(mount)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    for number in range(count):
        os.pwrite(file, b"x", number * distance)
    os.fsync(file)
    assert growth.now() < 12 * MIB + count * 256
    os.close(file)
    growth.assert_given_back()
    file = os.open(path, os.O_RDONLY)
    assert os.pread(file, 3, distance * (count // 2) - 1) == b"\0x\0"
    assert growth.now() < 12 * MIB + count * 256
    os.close(file)
    growth.assert_given_back()
