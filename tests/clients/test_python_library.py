"""The wheel of the library (engine/aio/python): built, installed beside torch, used on a drive and on a mount."""
import array
import errno
import gc
import importlib
import mmap
import os
import subprocess
import sys
import threading
import time

import numpy
import pytest

from lab import wheel
from lab.programs import REPOSITORY, run

torch = pytest.importorskip("torch")

EXAMPLE = REPOSITORY / "tools/examples/save_tensor.py"
BLOCK = 16384
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]


@pytest.fixture(scope="module")
def site(binaries, tmp_path_factory):
    """A directory with the wheel in it and nothing else."""
    if missing := wheel.missing():
        pytest.skip(f"needs {', '.join(missing)}")
    site = tmp_path_factory.mktemp("site")
    wheel.install(binaries.build, site)
    return site


@pytest.fixture(scope="module")
def fastpersist(site):
    sys.path.insert(0, str(site))
    yield importlib.import_module("fastpersist")
    sys.path.remove(str(site))


def run_python(site, program, *words, **options):
    return run(sys.executable, "-c", program, *words, env={**os.environ, "PYTHONPATH": str(site)}, **options)


@pytest.fixture
def open_handle(fastpersist, drives):
    def make(*knobs, **named):
        return fastpersist.aio_handle(*(knobs or (BLOCK, 4, False, True, 2)), **{"direct": drives.direct_io, **named})
    return make


@pytest.fixture
def aio(open_handle):
    return open_handle()


def numbers(count, dtype=torch.uint8, seed=1):
    made = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8,
                         generator=torch.Generator().manual_seed(seed))
    return made.bitwise_and(1).bool() if dtype == torch.bool else made.view(dtype)


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def expect_error(number, filename, call):
    with pytest.raises(OSError) as caught:
        call()
    assert (caught.value.errno, caught.value.filename) == (number, os.fspath(filename))
    return caught.value


# --- what is saved is loaded -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("place", ["native", "mount"])
def test_tensors(place, request, aio):
    place = request.getfixturevalue(place)
    directory = getattr(place, "path", place)
    saved = {f"{dtype}-{count}": numbers(count, dtype) for dtype in DTYPES for count in (1, 1000, 3 * BLOCK + 5)}
    saved.update(none=torch.empty(0), one=torch.tensor(2.5), view=numbers(9 * BLOCK)[1:-3])
    for name, tensor in saved.items():
        assert aio.async_pwrite(tensor, directory / name, 0) == 0
    assert aio.wait() == len(saved)
    if place is not directory:
        place.remount()
    loaded = {name: torch.empty_like(tensor) for name, tensor in saved.items()}
    for name, tensor in saved.items():
        assert (directory / name).read_bytes() == bytes_of(tensor)
        aio.async_pread(loaded[name], str(directory / name))
    assert aio.wait() == len(saved)
    assert all(bytes_of(loaded[name]) == bytes_of(saved[name]) for name in saved)


def test_anything_with_the_buffer_protocol(native, aio, fastpersist):
    content = bytes_of(numbers(5 * BLOCK + 7))
    pinned = fastpersist.PinnedBuffer(len(content))
    memoryview(pinned)[:] = content
    for source in (content, bytearray(content), memoryview(b"ab" + content)[2:], array.array("b", content),
                   numpy.frombuffer(content, numpy.uint8), pinned):
        path = native / type(source).__name__
        assert aio.sync_pwrite(source, path) == 1 and path.read_bytes() == content
    for target in (bytearray(len(content)), numpy.empty(len(content), numpy.int8), mmap.mmap(-1, len(content)),
                   fastpersist.PinnedBuffer(len(content))):
        assert aio.sync_pread(target, path) == 1 and bytes(memoryview(target)) == content


def test_any_offset(mount, aio):
    path, expected = mount.path / "file", bytearray(bytes_of(numbers(8 * BLOCK)))
    path.write_bytes(expected)
    parts = [(0, 10), (1, 4096), (4095, 3 * BLOCK), (BLOCK + 7, 9), (7 * BLOCK, 2 * BLOCK)]
    for seed, (offset, count) in enumerate(parts):
        part = numbers(count, seed=seed)
        expected[offset:offset + count] = bytes_of(part)
        assert aio.sync_pwrite(part, path, offset) == 1
        read = torch.empty_like(part)
        assert aio.pread(read, path, True, False, offset) == 1 and torch.equal(read, part)
    assert path.read_bytes() == expected


# --- what DeepNVMe code does -----------------------------------------------------------------------------------------

def test_the_calls_of_deepnvme(native, fastpersist):
    """As its own tests make them. A block of 1 KiB is what they use."""
    module = fastpersist.AsyncIOBuilder().load()
    handle = module.aio_handle(1024, 2, True, False, 2)
    assert (handle.get_block_size(), handle.get_queue_depth(), handle.get_single_submit(), handle.get_overlap_events(),
            handle.get_intra_op_parallelism()) == (1024, 2, True, False, 2)
    data = numbers(6 * handle.get_alignment())
    buffer = handle.new_cpu_locked_tensor(len(data), torch.empty(0, dtype=torch.uint8))
    assert handle.is_pinned(buffer) and handle.is_pinned(buffer[5:]) and not handle.is_pinned(data)
    buffer.copy_(data)
    path = str(native / "file")
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    for first in range(0, len(data), handle.get_alignment()):
        part = torch.narrow(buffer, 0, first, handle.get_alignment())
        assert handle.async_pwrite(buffer=part, fd=file, file_offset=first) == 0 and handle.wait() == 1
    os.close(file)
    assert handle.write(buffer, path + "2", True) == 0
    assert module.aio_write(buffer, path + "3", 1 << 20, 8, False, True, True) == 0
    for name in (path, path + "2", path + "3"):
        assert handle.pread(buffer.zero_(), name, False, True) == 0 and handle.wait() == 1 and torch.equal(buffer, data)
        assert handle.read(buffer.zero_(), name, True) == 0 and torch.equal(buffer, data)
    assert module.aio_read(buffer.zero_(), path, 1 << 20, 8, False, True, False) == 0 and torch.equal(buffer, data)
    assert handle.free_cpu_locked_tensor(buffer) and buffer.numel() == 0
    assert not handle.free_cpu_locked_tensor(data) and not handle.is_pinned(data) and len(data) > 0


def test_the_example(site, mount):
    environment = {**os.environ, "PYTHONPATH": str(site)}
    said = run(sys.executable, EXAMPLE, mount.path / "file", "100003", env=environment).stdout
    assert said == "400012 bytes saved and loaded\n" and (mount.path / "file").stat().st_size == 400012


def test_a_longer_file_is_not_written_over(native, aio):
    path, short = native / "file", numbers(1000)
    aio.sync_pwrite(numbers(5000), path)
    expect_error(errno.EEXIST, path, lambda: aio.sync_pwrite(short, path))
    expect_error(errno.EEXIST, path, lambda: aio.async_pwrite(short, path))
    assert path.stat().st_size == 5000 and aio.wait() == 0
    aio.sync_pwrite(short, path, 0)
    assert path.read_bytes() == bytes_of(short) + bytes_of(numbers(5000))[1000:]
    assert aio.async_write_file(short[:999], path) == 0 and aio.wait() == 1
    assert path.read_bytes() == bytes_of(short)[:999]


# --- what goes wrong is raised ---------------------------------------------------------------------------------------

def test_errors(native, aio):
    path = native / "file"
    aio.sync_pwrite(numbers(100), path)
    expect_error(errno.ENOENT, native / "no/file", lambda: aio.sync_pwrite(b"x", native / "no/file"))
    expect_error(errno.ENODATA, path, lambda: aio.sync_pread(bytearray(101), path))
    expect_error(errno.ENODATA, path, lambda: aio.sync_pread(bytearray(1), path, 100))
    # Of several requests all that failed are told, and the others are done.
    good = bytearray(100)
    assert aio.async_pread(bytearray(5), native / "none") == aio.async_pread(bytearray(200), path) == 0
    assert aio.async_pread(good, path) == aio.async_pwrite(good, fd=9999, file_offset=0) == 0
    with pytest.raises(OSError) as caught:
        aio.wait()
    assert caught.value.completed == 4
    assert sorted((error.errno, error.filename) for error in caught.value.failures) == [
        (errno.ENOENT, str(native / "none")), (errno.EBADF, "/proc/self/fd/9999"), (errno.ENODATA, str(path))]
    assert good == bytes_of(numbers(100)) and aio.wait() == 0


@pytest.mark.root
def test_a_full_drive(make_drive, fastpersist):
    """DeepNVMe says that all was written."""
    aio, path = fastpersist.aio_handle(BLOCK, 4), make_drive(64 << 20).path / "file"
    expect_error(errno.ENOSPC, path, lambda: aio.sync_pwrite(numbers(100 << 20), path))
    aio.async_pwrite(numbers(100 << 20), path, 0)
    expect_error(errno.ENOSPC, path, aio.wait)


def test_validate_finds_what_was_changed(native, aio):
    path, data = native / "file", numbers(3 * BLOCK + 3)
    for offset in (0, 1000):
        assert aio.pwrite(data, path, True, True, offset) == 0
        deadline = time.monotonic() + 30
        while not path.exists() or path.read_bytes()[offset:] != bytes_of(data):
            assert time.monotonic() < deadline
        with open(path, "r+b") as file:
            os.pwrite(file.fileno(), bytes([data[7] ^ 1]), offset + 7)
        expect_error(errno.EIO, path, aio.wait)
    assert aio.pwrite(data, path, True, False, 1000) == 1 and aio.wait() == 0


def test_arguments(native, aio, fastpersist):
    path = native / "file"
    matrix = torch.randn(64, 64)
    for error, buffer in [(ValueError, matrix.t()), (ValueError, matrix[:, :7]), (TypeError, matrix.to("meta")),
                          (ValueError, torch.randn(5, dtype=torch.complex64).conj()), (TypeError, matrix.to_sparse()),
                          (ValueError, torch.randn(5, dtype=torch.complex64).conj().imag), (TypeError, 3),
                          (ValueError, numpy.empty((8, 8))[:, ::2]), (TypeError, "text")]:
        for call in (aio.sync_pwrite, aio.async_pwrite, aio.async_pread):
            with pytest.raises((error, BufferError)):
                call(buffer, path, 0)
    for buffer in (bytes(5), memoryview(bytes(5))):
        with pytest.raises(BufferError):
            aio.async_pread(buffer, path)
    for wrong in (-1, 1 << 63):
        with pytest.raises(ValueError, match="file_offset"):
            aio.sync_pwrite(b"x", path, wrong)
    with pytest.raises(ValueError, match="null"):
        aio.sync_pwrite(b"x", f"{path}\0x")
    with pytest.raises(TypeError):
        aio.sync_pwrite(b"x", None)
    assert aio.wait() == 0 and not path.exists()
    for knobs in ({"block_size": 0}, {"block_size": 2 << 30}, {"queue_depth": 4097}, {"queue_depth": -1},
                  {"intra_op_parallelism": 65}):
        with pytest.raises(ValueError, match=next(iter(knobs))):
            fastpersist.aio_handle(**knobs)
    with pytest.raises(ValueError):
        fastpersist.PinnedBuffer(0)


# --- memory, threads, processes --------------------------------------------------------------------------------------

def test_memory_is_held_until_the_request_has_ended(native, aio):
    held = bytearray(bytes_of(numbers(64 * BLOCK)))
    aio.async_pwrite(held, native / "held", 0)
    aio.async_pwrite(numbers(64 * BLOCK), native / "nobody's", 0)
    pinned = aio.new_cpu_locked_tensor(64 * BLOCK, torch.empty(0, dtype=torch.uint8))
    aio.async_pwrite(pinned, native / "pinned", 0)
    aio.free_cpu_locked_tensor(pinned)
    gc.collect()
    with pytest.raises(BufferError):
        held.append(1)
    assert aio.wait() == 3
    held.append(1)
    assert (native / "nobody's").read_bytes() == bytes_of(numbers(64 * BLOCK))
    assert (native / "pinned").read_bytes() == bytes(64 * BLOCK)


def test_threads_share_a_handle(native, aio):
    data, count = numbers(8 * 20 * (BLOCK + 9)), []

    def write(thread):
        for part in range(20):
            first = (part * 8 + thread) * (BLOCK + 9)
            aio.async_pwrite(data[first:first + BLOCK + 9], native / "file", first)
            if part % 5 == 0:
                count.append(aio.wait())

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(count) + aio.wait() == 8 * 20
    assert (native / "file").read_bytes() == bytes_of(data)


def test_others_run_while_a_call_waits(native, open_handle):
    """For a pipe: first for its other end, then for what comes out of it."""
    pipes = [native / "first", native / "second"]
    for pipe in pipes:
        os.mkfifo(pipe)
    aio, buffers = open_handle(direct=False), [bytearray(5), bytearray(6)]

    def read():
        aio.sync_pread(buffers[0], pipes[0])
        aio.async_pread(buffers[1], pipes[1])
        aio.wait()

    thread = threading.Thread(target=read)
    thread.start()
    for path, content in zip(pipes, (b"first", b"second"), strict=True):
        with open(path, "wb") as pipe:
            time.sleep(0.05)
            pipe.write(content)
    thread.join(30)
    assert buffers == [b"first", b"second"]


def test_fork(native, aio, open_handle):
    data = numbers(64 * BLOCK)
    aio.async_pwrite(data, native / "parent", 0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (aio.wait, lambda: aio.sync_pwrite(b"x", native / "no")):
                with pytest.raises(RuntimeError, match="fork"):
                    call()
            aio.__del__()
            with open_handle() as own:
                own.async_pwrite(data, native / "child", 0)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert aio.wait() == 1
    assert (native / "parent").read_bytes() == (native / "child").read_bytes() == bytes_of(data)


FORGETFUL = """
import os, sys, fastpersist
assert "torch" not in sys.modules
aio = fastpersist.aio_handle(16384, 4, direct=sys.argv[2] == "True")
aio.async_pwrite(bytes(range(256)) * 65536, sys.argv[1], 0)
if sys.argv[3] == "gone": del aio
"""


@pytest.mark.parametrize("what", ["kept", "gone"])
def test_a_program_that_does_not_wait(site, native, drives, what):
    """All is written nevertheless, and what failed is said. torch is not needed for any of it."""
    assert run_python(site, FORGETFUL, native / "file", drives.direct_io, what).stderr == ""
    assert (native / "file").read_bytes() == bytes(range(256)) * 65536
    assert "FileNotFoundError" in run_python(site, FORGETFUL, native / "no/file", drives.direct_io, what).stderr


def test_durable(native, open_handle):
    with open_handle(durable=True) as aio:
        aio.async_pwrite(numbers(1000), native / "file", 0)
    assert (native / "file").read_bytes() == bytes_of(numbers(1000))
    with pytest.raises(FileNotFoundError), open_handle() as aio:
        aio.async_pread(bytearray(1), native / "none")


def test_the_contract_is_in_the_wheel(site):
    help_text = run_python(site, "import fastpersist; help(fastpersist)").stdout
    assert "Durability" in help_text and "sync_pwrite" in help_text
    assert subprocess.run(["ldd", next(site.glob("fastpersist/_aio*.so"))], capture_output=True,
                          text=True).stdout.find("libtorch") == -1
