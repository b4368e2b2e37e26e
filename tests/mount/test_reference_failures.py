"""Where DeepNVMe's aio_handle (0.19.8) returned success and lost data: here the same is correct, or reported.

docs/reliability.md lists the cases. The reference writes through its own handle; the saver here is torch.save, and plain writes
where the size of the file matters.
"""
import os

import pytest

from lab.system import attempt

torch = pytest.importorskip("torch")
MIB = 1 << 20


def tensor(size, seed):
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.P1
@pytest.mark.parametrize("size", [1, 4095, 1_000_000, 2 * MIB + 100])
def test_no_size_loses_its_tail(anywhere, size):
    """1,000,000 bytes left nothing on the drive, 2 MiB + 100 bytes came without their end. And nothing was synced: here the
    daemon is killed as soon as the saver has returned."""
    bytes_ = tensor(size, 1)
    torch.save(bytes_, anywhere.path / "saved.pt")
    (anywhere.path / "plain").write_bytes(bytes_.numpy().tobytes())
    anywhere.kill()
    anywhere.start()
    assert (anywhere.path / "plain").stat().st_size == size
    assert (anywhere.path / "plain").read_bytes() == bytes_.numpy().tobytes()
    assert torch.equal(torch.load(anywhere.path / "saved.pt"), bytes_)


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_a_shorter_file_over_a_longer_one_leaves_nothing_of_it(anywhere, legacy):
    path = anywhere.path / "saved.pt"
    for size, seed in ((9 * MIB, 1), (MIB + 7, 2)):
        torch.save(tensor(size, seed), path, _use_new_zipfile_serialization=not legacy)
    assert path.stat().st_size < 2 * MIB
    anywhere.kill()
    anywhere.start()
    assert torch.equal(torch.load(path), tensor(MIB + 7, 2))


@pytest.mark.P2
@pytest.mark.P4
@pytest.mark.root
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_a_checkpoint_that_does_not_fit_is_an_error(make_drive, make_array, make_mount, drives, legacy):
    """ENOSPC at 47 of 256 MiB was success. Here the save fails, and the checkpoint before it is still whole."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    mount = make_mount(make_array(paths=[make_drive(48 * MIB).path for _ in range(2)]))
    path = mount.path / "saved.pt"
    torch.save(tensor(9 * MIB, 1), path)
    with pytest.raises((OSError, RuntimeError)) as failure:
        torch.save(tensor(128 * MIB, 2), path, _use_new_zipfile_serialization=not legacy)
    if isinstance(failure.value, OSError):
        assert failure.value.errno == 28, failure.value
    mount.kill()
    mount.start()
    assert torch.equal(torch.load(path), tensor(9 * MIB, 1))


@pytest.mark.P4
@pytest.mark.root
def test_half_written_when_the_drive_fails_is_an_error(drives, faulty, make_array, make_mount):
    """EIO halfway was success."""
    array = make_array(paths=[*drives.paths[:2], faulty.path])
    array.damaged = True  # judged here
    mount = make_mount(array)
    file = open(mount.path / "saved", "wb", buffering=0)
    file.write(bytes(tensor(6 * MIB, 1).numpy()))
    faulty.fail("write")
    later = [attempt(file.write, bytes(MIB)) for _ in range(9)]
    synced, closed = attempt(os.fsync, file.fileno()), attempt(file.close)
    assert synced in ("EIO", "EROFS") and closed in ("EIO", "EROFS"), f"writes {later}, fsync {synced}, close {closed}"
    faulty.let_go()
    mount.kill()
