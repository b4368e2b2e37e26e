"""A full drive: the writer is told, in bounded time; everything else stays as it is."""

import gc
import os
import re
import time

import pytest

from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import attempt, wait_until

MIB = 1 << 20


def fill(path, limit):
    """Writes until an error; its name, from write, fsync or close, and how long it took."""
    start = time.monotonic()
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    result = None
    for offset in range(0, limit, MIB):
        result = attempt(os.write, descriptor, pattern(1, offset, MIB))
        if isinstance(result, str):
            break
    synced = attempt(os.fsync, descriptor)
    closed = attempt(os.close, descriptor)
    errors = [each for each in (result, synced, closed) if isinstance(each, str)]
    return errors, time.monotonic() - start


@pytest.mark.P4
@pytest.mark.root
@pytest.mark.time_limit(240)
@pytest.mark.parametrize("smallest", [0, 2])  # with member 0, the names and indexes are on the full drive too
def test_full_member(make_drive, make_array, make_mount, drives, smallest):
    if drives.kind == "directories":
        pytest.skip("no loop devices here: one drive cannot be full alone")
    paths = list(drives.paths)
    paths[smallest] = make_drive(96 * MIB).path
    array = make_array(paths=paths)
    mount = make_mount(array)
    write_pattern(mount.path / "kept", 7, 20 * MIB)
    errors, seconds = fill(mount.path / "full", 2048 * MIB)
    assert "ENOSPC" in errors, f"no error said that the drive is full: {errors}"
    assert seconds < 60
    # What was there is there, and metadata works.
    assert is_pattern(mount.path / "kept", 7, 20 * MIB)
    assert sorted(os.listdir(mount.path)) in (["full", "kept"], ["kept"])
    # A second writer is told as well, not made to wait.
    errors, seconds = fill(mount.path / "second", 1024 * MIB)
    assert "ENOSPC" in errors and seconds < 60
    for name in ("full", "second"):
        attempt(os.unlink, mount.path / name)
    # With room again, writing works again.
    deadline = time.monotonic() + 30
    while attempt(write_pattern, mount.path / "again", 3, 60 * MIB):
        assert time.monotonic() < deadline, "no room 30 seconds after everything was removed"
        attempt(os.unlink, mount.path / "again")
        time.sleep(0.5)
    assert is_pattern(mount.path / "again", 3, 60 * MIB)
    mount.remount()
    assert is_pattern(mount.path / "again", 3, 60 * MIB) and is_pattern(mount.path / "kept", 7, 20 * MIB)


@pytest.mark.P2
@pytest.mark.P4
@pytest.mark.root
@pytest.mark.time_limit(240)
def test_replacing_on_a_full_array_keeps_the_old(make_drive, make_array, make_mount, drives):
    """Not enough room for the new version: the old one stays, also after a crash."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: one drive cannot be full alone")
    array = make_array(paths=[make_drive(96 * MIB).path for _ in range(2)])
    mount = make_mount(array)
    write_pattern(mount.path / "checkpoint", 1, 90 * MIB)
    error = attempt(write_pattern, mount.path / "new", 2, 180 * MIB)
    assert error == "ENOSPC"
    os.unlink(mount.path / "new")
    assert is_pattern(mount.path / "checkpoint", 1, 90 * MIB)
    # In place: what did not become durable must not have destroyed what was.
    error = attempt(write_pattern, mount.path / "checkpoint", 3, 180 * MIB)
    assert error == "ENOSPC"
    mount.kill()
    mount.start()
    assert is_pattern(mount.path / "checkpoint", 1, 90 * MIB)


def free_bytes(path):
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


@pytest.mark.P4
@pytest.mark.root
@pytest.mark.time_limit(240)
@pytest.mark.parametrize("options", [("ext4", "-N", "700"), ("xfs", "-i", "maxpct=1")], ids=["ext4", "xfs"])
def test_a_drive_of_names_without_inodes(make_drive, make_array, make_mount, drives, options):
    """The log says of whom; and the array can be mounted anew, after a crash as well, and files removed."""
    names = make_drive(400 * MIB, *options)
    array = make_array(paths=[names.path, *drives.paths[:2]])
    array.damaged = True  # nothing can be set right on a full drive
    mount = make_mount(array)
    mount.remount()  # the second mount sets room for its record aside
    write_pattern(mount.path / "kept", 7, 20 * MIB)
    os.mkdir(mount.path / "many")
    count = 0
    while (error := attempt((mount.path / f"many/{count}").touch)) is None:
        count += 1
    assert error == "ENOSPC" and count > 100
    assert attempt(os.mkdir, mount.path / "directory") == attempt(os.symlink, "x", mount.path / "link") == "ENOSPC"
    said = [line for line in mount.log().splitlines() if " warning " in line]
    assert len(said) == 1 and f"/many/{count}: {names.path}" in said[0] and "no inodes left" in said[0], said
    mount.remount()
    os.unlink(mount.path / "many/0")
    wait_until(lambda: attempt((mount.path / "new").touch) is None)  # XFS frees an inode by and by
    mount.kill()
    mount.start()
    os.unlink(mount.path / "new")
    wait_until(lambda: attempt((mount.path / "newer").touch) is None)
    assert is_pattern(mount.path / "kept", 7, 20 * MIB)


@pytest.mark.P4
@pytest.mark.root
def test_an_inode_is_free_as_soon_as_its_file_is_removed(make_drive, make_array, make_mount):
    """Where there are none left: removed files are not kept open to be closed together (fs/nodes/late_closes.h)."""
    array = make_array(paths=[make_drive(400 * MIB, "ext4", "-N", "700").path])
    array.damaged = True  # nothing can be set right on a full drive
    mount = make_mount(array)
    count = 0
    while attempt((mount.path / f"{count}").touch) is None:
        count += 1
    assert count > 100
    turns, failed = 100, 0
    for turn in range(turns):
        name = mount.path / f"{turn}"
        os.unlink(name)
        if attempt(name.touch) is not None:  # the kernel forgets a file behind the answer to unlink(2)
            failed += 1
            wait_until(lambda: attempt(name.touch) is None)
    assert failed < turns // 2


@pytest.mark.P4
@pytest.mark.root
@pytest.mark.time_limit(240)
def test_torch_is_told(make_drive, make_array, make_mount, drives):
    torch = pytest.importorskip("torch")
    if drives.kind == "directories":
        pytest.skip("no loop devices here: one drive cannot be full alone")
    array = make_array(paths=[make_drive(96 * MIB).path for _ in range(2)])
    mount = make_mount(array)
    state = {"weights": torch.randn(100 * MIB)}
    with pytest.raises((OSError, RuntimeError)):
        torch.save(state, mount.path / "file.pt")
    gc.collect()  # torch's writer may still hold the file
    os.unlink(mount.path / "file.pt")
    # What was removed is freed in the background, soon.
    deadline = time.monotonic() + 30
    while free_bytes(mount.path) < 64 * MIB and time.monotonic() < deadline:
        time.sleep(0.05)
    torch.save({"weights": state["weights"][:4 * MIB].clone()}, mount.path / "small.pt")
    assert torch.equal(torch.load(mount.path / "small.pt")["weights"], state["weights"][:4 * MIB])


def objects_of(array):
    return {path.stat().st_ino: path for member in array.members for path in (member / "objects").rglob("*.*")}


def free_space(path):
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def settled_space(path, expected):
    """The free space of a mount, once what was removed counts as free."""
    deadline = time.monotonic() + 10
    while free_space(path) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return free_space(path)


@pytest.mark.P6
@pytest.mark.root
@pytest.mark.parametrize("end", ["unmount", "crash"])
def test_freed_objects_serve_the_next_file(make_drive, make_array, make_mount, drives, end):
    if drives.kind == "directories":
        pytest.skip("no loop devices here: the filesystem below may not overwrite in place")
    size = 48 * MIB
    array = make_array(paths=[make_drive(384 * MIB).path for _ in range(2)])
    mount = make_mount(array)
    free = free_space(mount.path)
    write_pattern(mount.path / "first", 1, size)
    assert free_space(mount.path) < free - size * 0.9
    held = set(objects_of(array))
    os.unlink(mount.path / "first")
    # Free for whoever asks the mount, and still on the drives.
    assert settled_space(mount.path, free - MIB) >= free - MIB
    assert sum(member["space_spare"] for member in mount.status()["members"]) >= size
    assert set(objects_of(array)) == held
    # What people see of that; with it, what the drives have is what the mount offers, but for what is kept free.
    heading, *rows = run(array.programs.fpfs, "status", mount.path).stdout.strip().split("\n\n")[1].splitlines()
    column = re.split(r"\s{2,}", heading.strip()).index("SPARE")
    for row, member in zip(rows, mount.status()["members"], strict=True):
        assert re.split(r"\s{2,}", row.strip())[column] == f"{member['space_spare'] / MIB:.1f} MiB".replace(".0", "")
    usable = [member["space_free"] + member["space_spare"] for member in mount.status()["members"]]
    assert 0 <= 2 * min(usable) - free_space(mount.path) < 16 * MIB
    write_pattern(mount.path / "second", 2, size)
    assert set(objects_of(array)) == held, "the second file has taken space of its own"
    assert is_pattern(mount.path / "second", 2, size)
    # A rotation: what the second leaves is spare when the array ends.
    write_pattern(mount.path / "third", 3, size)
    os.unlink(mount.path / "second")
    settled_space(mount.path, free - size - MIB)
    if end == "crash":
        mount.kill()
        mount.start()
    else:
        mount.remount()
    assert len(objects_of(array)) == len(held), "what was spare is not freed"
    assert is_pattern(mount.path / "third", 3, size)
    mount.unmount()
    assert array.fsck("--verify-data").returncode == 0
