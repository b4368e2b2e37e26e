"""dedup=previous: what a checkpoint has in common with the one before takes no space, and each is whole by itself."""
import json
import os
import shutil

import pytest

from lab.array import MountFailed
from lab.data import is_pattern, pattern
from lab.programs import run
from lab.system import attempt

pytestmark = [pytest.mark.P2, pytest.mark.P3, pytest.mark.root]

torch = pytest.importorskip("torch")

MIB = 1 << 20
TENSORS, LENGTH = 16, 2 * MIB  # of each; 4 bytes an element


@pytest.fixture(autouse=True)
def sharing_drives(drives):
    if drives.kind != "xfs":
        pytest.skip("needs drives with XFS")


@pytest.fixture(params=["off", "zstd"])
def mount(request, array, make_mount):
    return make_mount(array, "dedup=previous", f"compress={request.param}")


def state(step, frozen=TENSORS // 2):
    """Weights, of which the first are the same at each step."""
    tensors = {}
    for number in range(TENSORS):
        generator = torch.Generator().manual_seed(number if number < frozen else 1000 * step + number)
        tensors[f"layer{number}"] = torch.randn(LENGTH, generator=generator) * 0.02
    return tensors


def is_same(loaded, expected):
    return loaded.keys() == expected.keys() and all(torch.equal(loaded[name], expected[name]) for name in expected)


def used(drives):
    """Bytes of all drives. What is freed is freed in the background, but XFS counts it at once when it is."""
    found = [os.statvfs(path) for path in drives.paths]
    return sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in found)


def shared(mount):
    return mount.status()["shared"]


def settle(mount):
    """Nothing waits to be freed, and no space is left over."""
    mount.remount()


def test_half_of_a_checkpoint_takes_half_of_the_space(mount, drives):
    before = used(drives)
    torch.save(state(1), mount.path / "step100.pt")
    settle(mount)
    first = used(drives) - before
    torch.save(state(2), mount.path / "step200.pt")  # the one before is looked for: it is the first since the mount
    torch.save(state(2), mount.path / "step250.pt")
    assert mount.status()["options"]["dedup"] == "previous"
    settle(mount)
    three = used(drives) - before
    # The names of a zip's entries begin with the file's: so one chunk of each tensor is another one.
    assert first * 1.4 < three < first * 1.75, (first, three)
    for name, step in (("step100.pt", 1), ("step200.pt", 2), ("step250.pt", 2)):
        assert is_same(torch.load(mount.path / name), state(step))
    (mount.path / "step100.pt").unlink()
    (mount.path / "step250.pt").unlink()
    settle(mount)
    assert is_same(torch.load(mount.path / "step200.pt"), state(2))
    assert first * 0.9 < used(drives) - before < first * 1.15


def test_what_all_checkpoints_have_is_there_once(mount, drives):
    before = used(drives)
    for step in range(1, 6):
        (mount.path / f"checkpoint-{step}").mkdir()
        torch.save(state(step, frozen=TENSORS - 2), mount.path / f"checkpoint-{step}" / "model.pt")
        if step == 1:
            first = used(drives) - before
        if step > 3:
            shutil.rmtree(mount.path / f"checkpoint-{step - 3}")
    settle(mount)
    assert used(drives) - before < 1.6 * first
    for step in (3, 4, 5):
        loaded = torch.load(mount.path / f"checkpoint-{step}" / "model.pt", mmap=True)
        assert is_same(loaded, state(step, frozen=TENSORS - 2))


def test_a_checkpoint_that_is_written_over(mount, drives):
    path = mount.path / "latest.pt"
    for step in (1, 2, 3):
        torch.save(state(step), path)
        assert is_same(torch.load(path), state(step))
    assert shared(mount)["bytes"] > 0
    mount.kill()
    mount.start()
    assert is_same(torch.load(path), state(3))


def test_killed_in_the_middle_of_it(mount):
    torch.save(state(1), mount.path / "step1.pt")
    file = open(mount.path / "step2.pt", "wb", buffering=0)
    content = (mount.path / "step1.pt").read_bytes()
    for offset in range(0, len(content) // 2, MIB):
        file.write(content[offset:offset + MIB])
    mount.kill()
    attempt(file.close)
    mount.start()
    assert is_same(torch.load(mount.path / "step1.pt"), state(1))
    left = mount.path / "step2.pt"
    assert not left.exists() or left.stat().st_size == 0
    torch.save(state(2), left)
    mount.kill()
    mount.start()
    assert is_same(torch.load(left), state(2))
    (mount.path / "step1.pt").unlink()
    mount.remount()
    assert is_same(torch.load(left), state(2))


def test_the_power_goes_after_the_close(request, make_drive, make_array, make_mount):
    drive = make_drive(1 << 30, "xfs")
    array = make_array(paths=[drive.path])
    mount = make_mount(array, "dedup=previous")
    for number in (1, 2, 3):
        (mount.path / f"file{number}").write_bytes(pattern(7, 0, 40 * MIB))
    assert shared(mount)["chunks"] >= 60
    drive.shut_down()
    mount.kill()
    drive.remount()
    mount.start()
    for number in (1, 2, 3):
        assert is_pattern(mount.path / f"file{number}", 7, 40 * MIB)


def test_damage_is_not_inherited(binaries, mount, array):
    content = pattern(3, 0, 16 * MIB)
    (mount.path / "file1").write_bytes(content)
    place = json.loads(run(binaries.fpfs, "map", "--json", mount.path / "file1").stdout)["extents"][5]
    with open(place["file"], "r+b") as file:
        file.seek(place["file_offset"] + min(place["stored_length"], MIB) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
        os.fsync(file.fileno())
    array.damaged = True
    (mount.path / "file2").write_bytes(content)
    assert shared(mount)["chunks"] == 15
    assert (mount.path / "file2").read_bytes() == content
    assert sum(member["checksum_errors"] for member in mount.status()["members"]) == 1
    _, report = array.fsck_report("-n", "--verify-data")
    assert {error["path"] for error in report["errors"]} == {"/file1"}


@pytest.mark.P7
def test_a_filesystem_that_cannot_share_is_refused(make_drive, make_array, make_mount):
    array = make_array(paths=[make_drive(256 * MIB, "ext4").path])
    with pytest.raises(MountFailed, match=r"dedup=previous: files on member 0 \(.*\) cannot share blocks .* reflink=1"):
        make_mount(array, "dedup=previous")
    make_mount(array, "dedup=previous,ro")


@pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="needs btrfs-progs")
def test_on_btrfs(make_drive, make_array, make_mount):
    mount = make_mount(make_array(paths=[make_drive(512 * MIB, "btrfs").path]), "dedup=previous")
    content = pattern(5, 0, 32 * MIB + 5000)
    for number in (1, 2):
        (mount.path / f"file{number}").write_bytes(content)
    assert shared(mount)["chunks"] == 33
    (mount.path / "file1").unlink()
    mount.remount()
    assert (mount.path / "file2").read_bytes() == content
