"""kill -9 of the daemon: what was closed is there, what was not is old or absent, never a mixture."""
import json
import mmap
import os
import signal
import time

import pytest

from lab import LONG
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.replacing import kills_while_replacing
from lab.system import attempt

MIB = 1 << 20


def free_bytes(mount):
    found = os.statvfs(mount.path)
    return found.f_bavail * found.f_frsize


@pytest.mark.P1
@pytest.mark.time_limit(600)
def test_closed_means_durable_for_torch(mount):
    torch = pytest.importorskip("torch")
    gib = 4 if LONG and free_bytes(mount) > 5 << 30 else 0
    tensors = gib * 64 if gib else 32  # of 16 MiB
    torch.manual_seed(1)
    state = {f"layer{index}": torch.randn(2048, 2048) for index in range(tensors)}
    torch.save(state, mount.path / "checkpoint.pt")
    mount.kill()
    mount.start()
    loaded = torch.load(mount.path / "checkpoint.pt")
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    # And mounting again has nothing left to mend.
    mount.unmount()
    mount.array.assert_clean()
    mount.start()


@pytest.mark.P1
@pytest.mark.parametrize("size", [0, 5, 30000, 33000, MIB, 9 * MIB + 77])
def test_closed_files_of_every_size(anywhere, size):
    for number in range(5):
        write_pattern(anywhere.path / f"file{number}", number, size)
    anywhere.kill()
    anywhere.start()
    for number in range(5):
        assert is_pattern(anywhere.path / f"file{number}", number, size)
    if size > MIB and "compress=zstd" in anywhere.options:
        found = run(anywhere.array.programs.fpfs, "stat", "--json", anywhere.path / "file2").stdout
        assert json.loads(found)["codecs"]["blocks"] > 0


@pytest.mark.P1
@pytest.mark.mount_options("durable=fsync")
def test_fsync_is_durable_with_durable_fsync(mount):
    with open(mount.path / "file", "wb", buffering=0) as file:
        file.write(pattern(1, 0, 5 * MIB))
        os.fsync(file.fileno())
        mount.kill()
        attempt(file.close)
    mount.start()
    assert is_pattern(mount.path / "file", 1, 5 * MIB)


@pytest.mark.P2
def test_unfinished_new_file_is_absent_or_empty(anywhere):
    descriptor = os.open(anywhere.path / "file", os.O_CREAT | os.O_WRONLY)
    for offset in range(0, 8 * MIB, MIB):
        os.write(descriptor, pattern(1, offset, MIB))
    anywhere.kill()
    attempt(os.close, descriptor)
    anywhere.start()
    assert attempt(lambda: (anywhere.path / "file").stat().st_size) in ("ENOENT", 0)


@pytest.mark.P1
@pytest.mark.P2
def test_uncommitted_changes_in_place_are_gone(anywhere):
    """fsync, then more writes, then the crash: the content is that of the fsync, no newer byte among it."""
    size = 5 * MIB
    write_pattern(anywhere.path / "file", 1, size)
    descriptor = os.open(anywhere.path / "file", os.O_RDWR)
    os.pwrite(descriptor, pattern(2, MIB, 2 * MIB), MIB)
    os.fsync(descriptor)
    os.pwrite(descriptor, pattern(3, 0, size), 0)
    os.ftruncate(descriptor, size + 1000)
    anywhere.kill()
    attempt(os.close, descriptor)
    anywhere.start()
    expected = pattern(1, 0, MIB) + pattern(2, MIB, 2 * MIB) + pattern(1, 3 * MIB, 2 * MIB)
    assert (anywhere.path / "file").read_bytes() == expected


@pytest.mark.P1
def test_names_after_a_crash(mount):
    root = mount.path
    (root / "dir").mkdir()
    write_pattern(root / "dir/a", 1, MIB)
    os.rename(root / "dir/a", root / "dir/b")
    write_pattern(root / "dir/gone", 2, MIB)
    os.unlink(root / "dir/gone")
    os.setxattr(root / "dir/b", "user.x", b"y")
    mount.kill()
    mount.start()
    assert os.listdir(root / "dir") == ["b"]
    assert is_pattern(root / "dir/b", 1, MIB) and os.getxattr(root / "dir/b", "user.x") == b"y"


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("way", ["truncate", "rename"])
def test_replaced_checkpoint_is_old_or_new(anywhere, way):
    for _ in kills_while_replacing(anywhere, way, 60 if LONG else 8):
        pass


@pytest.mark.P2
def test_an_earlier_handle_commits_nothing_of_the_next_writer(mount):
    """Its last close and its release may come when the file was truncated to be written anew."""
    path = mount.path / "checkpoint"
    write_pattern(path, 1, 3 * MIB)
    first = os.open(path, os.O_RDWR)
    mapping = mmap.mmap(first, MIB)
    os.close(first)
    second = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(second, pattern(2, 0, 2 * MIB))
    mapping.close()  # the last close and the release of the first handle
    time.sleep(0.5)
    mount.kill()
    with pytest.raises(OSError):
        os.close(second)
    mount.start()
    assert is_pattern(path, 1, 3 * MIB), f"{path.stat().st_size} bytes"


@pytest.mark.P1
@pytest.mark.P6
@pytest.mark.time_limit(300)
def test_crashes_leave_no_lost_space(mount):
    """Orphans of crashes are freed when mounting again."""
    write_pattern(mount.path / "kept", 1, 4 * MIB)
    mount.remount()
    before = free_bytes(mount)
    for number in range(4):
        descriptor = os.open(mount.path / f"lost{number}", os.O_CREAT | os.O_WRONLY)
        for offset in range(0, 48 * MIB, 4 * MIB):
            os.write(descriptor, pattern(number, offset, 4 * MIB))
        mount.kill()
        attempt(os.close, descriptor)
        mount.start()
    mount.remount()
    assert is_pattern(mount.path / "kept", 1, 4 * MIB)
    assert before - free_bytes(mount) < 16 * MIB


@pytest.mark.P1
@pytest.mark.P4
def test_dead_daemon_gives_errors_not_hangs(mount):
    path = mount.path / "file"
    write_pattern(path, 1, MIB)
    with open(path, "rb") as file:
        mount.process.kill()
        mount.process.wait()
        # What the kernel still has cached it may answer; everything else is an error at once.
        for call in (lambda: os.statvfs(mount.path), lambda: os.open(path, os.O_RDONLY), lambda: os.fsync(file.fileno()),
                     lambda: os.mkdir(mount.path / "new")):
            assert attempt(call) in ("ENOTCONN", "ECONNABORTED")
    mount.kill()
    mount.start()
    assert is_pattern(path, 1, MIB)


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_end_the_daemon_in_good_order(mount, name):
    with open(mount.path / "open", "wb", buffering=0) as file:
        write_pattern(mount.path / "closed", 1, 3 * MIB)
        file.write(pattern(2, 0, 3 * MIB))
        mount.process.send_signal(getattr(signal, name))
        assert mount.process.wait(timeout=60) == 1, mount.log()
        attempt(file.close)
    mount.kill()
    mount.start()
    # What was closed is committed before the daemon ends; a half is not, and is named.
    assert "/open was being written" in mount.log()
    assert is_pattern(mount.path / "closed", 1, 3 * MIB)
    assert attempt(lambda: (mount.path / "open").stat().st_size) in (0, "ENOENT")
