"""user.fastpersistfs.durable: when a close of single files and directories may return; with `tier`, when it is copied."""
import errno
import hashlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from lab import mount_table
from lab.copies import Directory, set_tier, state, sync
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import wait_until

MIB = 1 << 20
DURABLE = "user.fastpersistfs.durable"


def ask_for(path, durable):
    os.setxattr(path, DURABLE, durable.encode())


def assert_is_copied(store, mount, key):
    """At this moment, to whoever looks at the store: no waiting here."""
    copy = store.content(key)
    assert copy is not None, f"{key} is not there"
    assert store.content(f".fastpersistfs/{key}") is not None, f"{key} has no manifest"
    content = (mount.path / key).read_bytes()
    assert hashlib.sha256(copy).digest() == hashlib.sha256(content).digest(), f"{len(copy)} bytes, not {len(content)}"


class SmallStore(Directory):
    """A directory on a filesystem of its own, which can be full: then the store takes nothing."""

    def __init__(self, path, name):
        super().__init__(path, name)
        run("mount", "-t", "tmpfs", "-o", "size=16m", "fpfs-test", self.path)

    def take_away(self):
        with open(self.path / "filler", "wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)

    def bring_back(self):
        (self.path / "filler").unlink()

    def close(self):
        mount_table.unmount(self.path, lazy=True)


@pytest.fixture
def small_store(lab, numbers):
    store = SmallStore(lab, f"store{next(numbers)}")
    yield store
    store.close()


# --- what a close returns for ----------------------------------------------------------------------------------------


def test_a_close_returns_with_the_copy(array, make_mount, store):
    """Of everything that is made in the directory; saves of torch among it."""
    torch = pytest.importorskip("torch")
    mount = make_mount(array)
    set_tier(mount, store.url)
    run = mount.path / "run"
    run.mkdir()
    ask_for(run, "tier")
    for step in range(3):
        torch.save({"weights": torch.randn(2_000_000), "step": step}, run / "model.pt")
        assert_is_copied(store, mount, "run/model.pt")
    (run / "deeper").mkdir()
    (run / "deeper" / "small").write_text("small\n")
    assert_is_copied(store, mount, "run/deeper/small")
    assert os.getxattr(run / "deeper" / "small", DURABLE) == b"tier"
    assert state(run / "deeper" / "small") == "copied"


def test_so_do_fsync_and_truncate(array, make_mount, directory):
    mount = make_mount(array)
    set_tier(mount, directory.url)
    path = mount.path / "log"
    path.touch()
    ask_for(path, "tier")
    with open(path, "r+b", buffering=0) as file:
        for part in range(3):
            file.write(pattern(part, 0, MIB))
            os.fsync(file.fileno())
            assert_is_copied(directory, mount, "log")
    # Who still has it open to write finishes a truncation by its close; the kernel tells of the last one behind close(2).
    wait_until(lambda: not mount.status()["open_files"])
    os.truncate(path, MIB + 7)
    assert_is_copied(directory, mount, "log")
    assert path.stat().st_size == MIB + 7


def test_many_at_once(array, make_mount, directory):
    mount = make_mount(array)
    set_tier(mount, directory.url)
    ask_for(mount.path, "tier")
    failures = []

    def save(number):
        for turn in range(3):
            name = f"file{number}"
            write_pattern(mount.path / name, number * 10 + turn, 200_000 + number)
            try:
                assert_is_copied(directory, mount, name)
            except AssertionError as failure:
                failures.append(failure)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_who_renames_while_a_close_waits(array, make_mount, directory):
    mount = make_mount(array)
    set_tier(mount, directory.url)
    path = mount.path / "model.tmp"
    path.touch()
    ask_for(path, "tier")
    sync(mount)
    closing = threading.Thread(target=write_pattern, args=(path, 5, 64 * MIB))
    closing.start()
    wait_until(lambda: path.stat().st_size == 64 * MIB)
    path.rename(mount.path / "model")
    closing.join(60)
    assert not closing.is_alive()
    sync(mount)
    assert_is_copied(directory, mount, "model")


@pytest.mark.root
def test_who_has_committed_nothing_waits_for_nothing(array, make_mount, small_store):
    """A child that closes what it inherited, in the middle of its parent's save; and a saver that is killed."""
    mount = make_mount(array)
    set_tier(mount, small_store.url)
    ask_for(mount.path, "tier")
    write_pattern(mount.path / "a", 1, MIB)
    small_store.take_away()
    saver = subprocess.Popen(
        ["python3", "-c", f"import os\nf = os.open({str(mount.path / 'a')!r}, os.O_TRUNC | os.O_WRONLY)\n"
                          "os.write(f, b'x' * 100000)\npid = os.fork()\nif pid == 0: os._exit(0)\n"
                          "os.waitpid(pid, 0)\nprint('in the middle', flush=True)\nos.read(0, 1)"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert saver.stdout.readline() == "in the middle\n"
    saver.kill()
    saver.communicate(timeout=20)
    assert is_pattern(mount.path / "a", 1, MIB)
    small_store.bring_back()


@pytest.mark.root
def test_a_removed_file_waits_for_nothing(array, make_mount, small_store):
    mount = make_mount(array)
    set_tier(mount, small_store.url)
    ask_for(mount.path, "tier")
    with open(mount.path / "a", "wb", buffering=0) as file:
        file.write(pattern(1, 0, MIB))
        os.unlink(mount.path / "a")
        small_store.take_away()


# --- when there is no copy to be had ---------------------------------------------------------------------------------


@pytest.mark.root
def test_a_store_that_is_away_fails_the_close(array, make_mount, small_store):
    """Nothing is lost: it is committed here, and copied when the store is back."""
    mount = make_mount(array, "tier_timeout=2")
    set_tier(mount, small_store.url)
    ask_for(mount.path, "tier")
    write_pattern(mount.path / "a", 1, MIB)
    small_store.take_away()
    began = time.monotonic()
    with pytest.raises(OSError) as failure:
        write_pattern(mount.path / "a", 2, 2 * MIB)
    assert failure.value.errno == errno.EIO
    assert 1.9 < time.monotonic() - began < 30
    assert "committed here, but not copied (durable=tier)" in mount.log() and "tier_timeout" in mount.log()
    assert is_pattern(mount.path / "a", 2, 2 * MIB)
    small_store.bring_back()
    sync(mount)
    assert_is_copied(small_store, mount, "a")
    mount.remount()
    assert is_pattern(mount.path / "a", 2, 2 * MIB)
    write_pattern(mount.path / "a", 3, MIB)
    assert_is_copied(small_store, mount, "a")


def test_a_store_that_is_slow_does_not(array, make_mount, directory):
    """A copy that takes longer than tier_timeout, but goes on."""
    mount = make_mount(array, "tier_timeout=2", "tier_rate=6M", "tier_rate_saving=6M")
    set_tier(mount, directory.url)
    ask_for(mount.path, "tier")
    began = time.monotonic()
    write_pattern(mount.path / "a", 1, 40 * MIB)
    assert time.monotonic() - began > 3
    assert_is_copied(directory, mount, "a")


def test_without_a_store(array, make_mount):
    mount = make_mount(array)
    ask_for(mount.path, "tier")
    with pytest.raises(OSError) as failure:
        write_pattern(mount.path / "a", 1, MIB)
    assert failure.value.errno == errno.EIO
    assert "copies nowhere" in mount.log()
    assert is_pattern(mount.path / "a", 1, MIB)
    os.removexattr(mount.path / "a", DURABLE)
    write_pattern(mount.path / "a", 2, MIB)


@pytest.mark.root
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_mount_that_ends_while_a_close_waits(array, make_mount, small_store, end):
    mount = make_mount(array)
    set_tier(mount, small_store.url)
    ask_for(mount.path, "tier")
    small_store.take_away()
    saver = subprocess.Popen(
        ["python3", "-c", f"import os\nf = os.open({str(mount.path / 'a')!r}, os.O_CREAT | os.O_WRONLY)\n"
                          "os.write(f, b'x' * 100000)\nprint('closing', flush=True)\nos.close(f)"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert saver.stdout.readline() == "closing\n"
    wait_until(lambda: (mount.path / "a").stat().st_size == 100000)
    time.sleep(0.5)
    mount.process.send_signal(end)
    _, said = saver.communicate(timeout=60)
    assert saver.returncode == 1 and "Error" in said
    mount.process.wait(60)
    mount.kill()
    small_store.bring_back()
    mount.start()
    assert (mount.path / "a").read_bytes() == b"x" * 100000
    sync(mount)
    assert_is_copied(small_store, mount, "a")


@pytest.mark.root
@pytest.mark.parametrize("call", ["os.close(f)", "os.fsync(f)", f"os.truncate({{path!r}}, {MIB})"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_who_is_killed_waits_no_longer(array, make_mount, small_store, call, end):
    mount = make_mount(array)
    set_tier(mount, small_store.url)
    ask_for(mount.path, "tier")
    small_store.take_away()
    path = str(mount.path / "a")
    saver = subprocess.Popen(
        ["python3", "-c", f"import os\nf = os.open({path!r}, os.O_CREAT | os.O_WRONLY)\nos.write(f, b'x' * {MIB + 7})\n"
                          f"print('waits', flush=True)\n{call.format(path=path)}"], stdout=subprocess.PIPE, text=True)
    assert saver.stdout.readline() == "waits\n"
    stack = Path(f"/proc/{saver.pid}/stack")
    wait_until(lambda: "request_wait_answer" in stack.read_text())
    time.sleep(1)
    saver.send_signal(end)
    saver.communicate(timeout=15)  # tier_timeout is a minute
    assert saver.returncode == -end
    small_store.bring_back()
    sync(mount)
    assert_is_copied(small_store, mount, "a")
    assert (mount.path / "a").stat().st_size in (MIB, MIB + 7)


@pytest.mark.root
def test_who_exits_waits_for_nothing(array, make_mount, small_store):
    """Nobody is told what the kernel's close at the end of a process came to. It commits all the same."""
    mount = make_mount(array)
    set_tier(mount, small_store.url)
    ask_for(mount.path, "tier")
    small_store.take_away()
    began = time.monotonic()
    subprocess.run(
        ["python3", "-c", f"import os\nf = os.open({str(mount.path / 'a')!r}, os.O_CREAT | os.O_WRONLY)\n"
                          "os.write(f, b'x' * 100000)\nos._exit(0)"], check=True, timeout=30)
    assert time.monotonic() - began < 10
    mount.kill()
    small_store.bring_back()
    mount.start()
    assert (mount.path / "a").read_bytes() == b"x" * 100000


# --- the other values ------------------------------------------------------------------------------------------------


def test_fsync_of_one_directory(array, make_mount):
    """close returns before anything is on a drive, and what is saved comes there soon; beside it nothing changes."""
    mount = make_mount(array)
    (mount.path / "scratch").mkdir()
    ask_for(mount.path / "scratch", "fsync")
    write_pattern(mount.path / "scratch" / "a", 1, 8 * MIB)
    write_pattern(mount.path / "b", 2, 8 * MIB)
    with open(mount.path / "scratch" / "c", "wb") as file:
        file.write(pattern(3, 0, MIB))
        file.flush()
        os.fsync(file.fileno())
    mount.kill()
    mount.start()
    assert is_pattern(mount.path / "b", 2, 8 * MIB)
    assert is_pattern(mount.path / "scratch" / "c", 3, MIB)
    write_pattern(mount.path / "scratch" / "a", 4, 8 * MIB)
    wait_until(lambda: mount.status()["files"]["dirty"] == 0)
    mount.kill()
    mount.start()
    assert is_pattern(mount.path / "scratch" / "a", 4, 8 * MIB)


@pytest.mark.mount_options("durable=fsync")
def test_close_of_one_directory(array, make_mount):
    mount = make_mount(array, "durable=fsync")
    (mount.path / "kept").mkdir()
    ask_for(mount.path / "kept", "close")
    write_pattern(mount.path / "kept" / "a", 1, 8 * MIB)
    mount.kill()
    mount.start()
    assert is_pattern(mount.path / "kept" / "a", 1, 8 * MIB)


# --- what can be asked for -------------------------------------------------------------------------------------------


def test_values(mount):
    path = mount.path / "a"
    path.touch()
    for bad in (b"", b"Tier", b"close,tier", b"tier " * 30):
        with pytest.raises(OSError) as failure:
            os.setxattr(path, DURABLE, bad)
        assert failure.value.errno == errno.EINVAL, bad
    assert DURABLE not in os.listxattr(path)
    for value in (b"tier", b"fsync", b"close"):
        os.setxattr(path, DURABLE, value)
        assert os.getxattr(path, DURABLE) == value and DURABLE in os.listxattr(path)
    os.removexattr(path, DURABLE)
    with pytest.raises(OSError) as failure:
        os.removexattr(path, DURABLE)
    assert failure.value.errno == errno.ENODATA


def test_both_settings_are_handed_down(mount):
    directory = mount.path / "run"
    directory.mkdir()
    os.setxattr(directory, "user.fastpersistfs.compress", b"zstd:3")
    ask_for(directory, "fsync")
    (directory / "a").touch()
    (directory / "deeper").mkdir()
    for path in (directory / "a", directory / "deeper"):
        assert os.getxattr(path, "user.fastpersistfs.compress") == b"zstd:3"
        assert os.getxattr(path, DURABLE) == b"fsync"
    os.removexattr(directory, "user.fastpersistfs.compress")
    (directory / "b").touch()
    assert os.listxattr(directory / "b") == [DURABLE]
    ask_for(directory, "close")
    (directory / "c").touch()
    assert os.getxattr(directory / "c", DURABLE) == b"close"
    assert os.getxattr(directory / "b", DURABLE) == b"fsync"
