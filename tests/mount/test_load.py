"""Many writers, much data: fio's own verification, and memory that stays within the pool."""
import json
import mmap
import os
import subprocess
import sys
import threading
import time

import pytest

from lab import LONG
from lab.data import is_pattern, pattern, write_pattern
from lab.machine_setting import PAGES_LIMIT, changed
from lab.programs import run

MIB = 1 << 20


def fio(mount, name, *options):
    size = "1g" if LONG else "64m"
    result = run("fio", f"--name={name}", f"--directory={mount.path}", f"--size={size}", "--verify=xxhash",
                 "--verify_fatal=1", "--verify_state_save=0", "--do_verify=1", "--numjobs=4", "--output-format=json",
                 "--randrepeat=0", *options, timeout=900, cwd=mount.path.parent)
    report = json.loads(result.stdout[result.stdout.index("{"):])
    assert all(job["error"] == 0 for job in report["jobs"])
    assert sum(job["read"]["io_bytes"] for job in report["jobs"]) > 0  # it did read back


@pytest.mark.P6
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("direct", [0, 1])
@pytest.mark.parametrize("order", ["randwrite", "write"])
def test_fio_verifies_what_it_wrote(anywhere, order, direct):
    fio(anywhere, f"{order}{direct}", f"--rw={order}", f"--direct={direct}", "--bsrange=4k-1m", "--ioengine=psync",
        "--fsync_on_close=1")


@pytest.mark.P6
@pytest.mark.time_limit(300)
def test_fio_asynchronous(anywhere):
    fio(anywhere, "libaio", "--rw=randrw", "--direct=1", "--bs=128k", "--ioengine=libaio", "--iodepth=16")


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from lab.data import write_pattern
write_pattern(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
"""


@pytest.mark.P5
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("pool", [32, 256])
def test_eight_writers_stay_within_the_pool(array, make_mount, pool):
    mount = make_mount(array, f"buffer_memory={pool}M")
    size = (1024 if LONG else 128) * MIB  # the drives have 12 GiB in all
    tests = __file__.rsplit("/", 2)[0]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, tests, str(mount.path / f"file{number}"), str(number),
                                 str(size)]) for number in range(8)]
    slowest = 0
    while any(writer.poll() is None for writer in writers):
        # Metadata must not wait for the drives, however full the pool is.
        start = time.monotonic()
        names = len(list(mount.path.iterdir()))
        slowest = max(slowest, time.monotonic() - start)
        assert names <= 8
        time.sleep(0.02)
    assert [writer.returncode for writer in writers] == [0] * 8
    readers = [threading.Thread(target=lambda number=number: results.append(
        is_pattern(mount.path / f"file{number}", number, size))) for number in range(8)]
    results = []
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert results == [True] * 8
    peak = mount.memory("VmHWM")
    print(f"peak memory {peak / MIB:.0f} MiB with a pool of {pool} MiB; slowest listing {slowest * 1000:.0f} ms")
    assert peak < (pool + 150) * MIB
    assert slowest < 5


@pytest.mark.P6
@pytest.mark.time_limit(180)
def test_many_small_files(anywhere):
    for number in range(2000):
        directory = anywhere.path / str(number % 20)
        directory.mkdir(exist_ok=True)
        (directory / f"file{number}").write_bytes(b"%d" % number * (number % 300))
    anywhere.remount()
    for number in range(2000):
        assert (anywhere.path / str(number % 20) / f"file{number}").read_bytes() == b"%d" % number * (number % 300)


@pytest.mark.P5
@pytest.mark.root  # without the privilege to raise the kernel's read-ahead readers go past the page cache
def test_a_load_leaves_few_buffers(array, make_mount):
    """What the kernel keeps does not stay in the pool as well."""
    mount = make_mount(array, "buffer_memory=256M")
    content = bytes(range(256)) * (200 * MIB // 256)
    (mount.path / "file").write_bytes(content)
    mount.unmount()
    mount.start()
    assert (mount.path / "file").read_bytes() == content
    buffers = mount.status()["buffers"]
    kept = (buffers["total"] - buffers["free"]) * buffers["size"]
    assert kept < 100 * MIB, f"{kept >> 20} MiB of buffers after a load of 200 MiB"


@pytest.mark.P5
def test_the_pool_is_there_before_the_first_load(array, make_mount):
    """What it takes to clear its pages is not a part of that."""
    mount = make_mount(array, "buffer_memory=64M")
    assert mount.wait_for_pool() == 64 * MIB


@pytest.fixture(params=[256, 1024], ids=["reads of 1 MiB", "reads of 4 MiB"])
def pages_limit(request):
    """The most pages that the kernel puts into one request, while the test runs."""
    if not PAGES_LIMIT.exists():
        if request.param == 256:
            yield 256
            return
        pytest.skip("this kernel's requests have 256 pages at most")
    with changed(PAGES_LIMIT, request.param):
        yield request.param


@pytest.mark.P6
@pytest.mark.parametrize("chunk_size", [1 << 16, None], ids=["small chunks", "chunks"])
def test_reads_are_as_long_as_the_kernel_allows(pages_limit, make_array, make_mount, chunk_size):
    mount = make_mount(make_array(chunk_size), "buffer_memory=64M", "io_uring=off")  # whose answers are no calls of write
    size = 40 * MIB + 12_345
    write_pattern(mount.path / "file", 5, size)
    with open(mount.path / "file", "r+b") as file:  # with a hole
        file.seek(9 * MIB + 1)
        file.write(bytes(6 * MIB))
    mount.remount()
    expected = bytearray(pattern(5, 0, size))
    expected[9 * MIB + 1:15 * MIB + 1] = bytes(6 * MIB)
    buffer = mmap.mmap(-1, 8 * MIB)
    offsets = list(range(0, size, 8 * MIB))
    with open(os.open(mount.path / "file", os.O_RDONLY | os.O_DIRECT), "rb", buffering=0) as file:
        for offset in offsets + [4096, 5 * MIB - 4096, 8 * MIB + 512 * 7, size // 4096 * 4096 - 4 * MIB]:
            got = os.preadv(file.fileno(), [buffer], offset)
            assert buffer[:got] == expected[offset:offset + 8 * MIB]

        def writes():  # system calls: once everything is in the daemon's memory, an answer is one
            with open(f"/proc/{mount.pid}/io") as counts:
                return int(dict(line.split(": ") for line in counts)["syscw"])

        before = writes()
        for offset in offsets:
            os.preadv(file.fileno(), [buffer], offset)
        answers = writes() - before
    least = -(-size // (pages_limit * 4096))
    assert least <= answers <= least + 4
    assert (mount.path / "file").read_bytes() == expected  # through the page cache
