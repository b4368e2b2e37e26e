"""What copies in a store outside this machine are for: damaged and lost chunks come back from them; and that they follow
the names of the array. Through a mount."""
import json
import os

import pytest

from lab.copies import copied_file, fpfs, set_tier, sync, tier
from lab.damage import flip, read_at
from lab.data import is_pattern, pattern, write_pattern
from lab.system import wait_until

CHUNK = 65536
SIZE = 24 * CHUNK + 1234


def healing(mount):
    return mount.status()["healing"]


def damage(extents):
    """One bit of some chunks, among them the first and the last, and one whole object without them. How many chunks that
    are."""
    chosen = [extents[0], extents[5], extents[10], extents[-1]]
    for extent in chosen:
        flip(extent["file"], extent["file_offset"] + extent["length"] // 2)
    lost, = {extent["file"] for extent in extents} - {extent["file"] for extent in chosen}
    os.unlink(lost)
    return sum(extent["file"] == lost or extent in chosen for extent in extents)


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_damaged_and_lost_chunks_come_back_from_the_copy(array, make_mount, store):
    mount, extents = copied_file(array, make_mount, store, SIZE)
    count = damage(extents)
    status, report = array.fsck_report("--verify-data")
    found = [error for error in report["errors"] if error["chunk"] >= 0]
    assert status == 4 and len(found) == 5  # the lost object is one
    assert {(error["path"], error["healing"]) for error in found} == {("/file", "healable")}

    mount.start()
    wait_until(lambda: tier(mount)["state"] != "away")  # until it is connected there is no copy
    for chunk in range(25):
        length = min(CHUNK, SIZE - chunk * CHUNK)
        assert read_at(mount.path / "file", chunk * CHUNK, length) == pattern(1, chunk * CHUNK, length), chunk
    assert healing(mount)["from_copy"] >= count and healing(mount)["without_copy"] == 0
    fpfs(mount, "sync", mount.path / "file")
    assert healing(mount)["healed"] == healing(mount)["from_copy"]
    # They are on the members again: nobody asks the store any more.
    mount.options = ("tier=none",)
    mount.remount()
    assert is_pattern(mount.path / "file", 1, SIZE)
    verify = fpfs(mount, "verify", mount.path / "file")
    assert verify.returncode == 0


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_a_scrub_that_healed_everything_ends_as_verify_does(array, make_mount, directory):
    """What is left to do is in the exit code, what was wrong in what it says."""
    mount, extents = copied_file(array, make_mount, directory, SIZE)
    count = damage(extents)
    mount.start()
    wait_until(lambda: tier(mount)["state"] != "away")
    scrub = fpfs(mount, "scrub", "start", "--wait", mount.path, check=False)
    assert scrub.returncode == 0 and f"{count}, of which {count} are healed from copies" in scrub.stdout, scrub.stdout
    status = json.loads(fpfs(mount, "scrub", "status", "--json", mount.path).stdout)
    assert status["errors"] == status["healed"] == count
    assert fpfs(mount, "verify", mount.path).returncode == 0
    mount.options = ("tier=none",)
    mount.remount()
    assert json.loads(fpfs(mount, "scrub", "status", "--json", mount.path).stdout)["healed"] == count
    flip(extents[9]["file"], extents[9]["file_offset"] + 5)  # which is where it was
    again = fpfs(mount, "scrub", "start", "--wait", mount.path, check=False)
    assert again.returncode == fpfs(mount, "verify", mount.path, check=False).returncode == 4


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_a_copy_of_another_content_heals_nothing(array, make_mount, directory):
    """The content of the copy was changed in the store: readers get EIO, and no byte of it."""
    mount, extents = copied_file(array, make_mount, directory, SIZE)
    flip(directory.path / "file", 5 * CHUNK + 100)
    flip(extents[5]["file"], extents[5]["file_offset"] + 7)
    mount.start()
    wait_until(lambda: tier(mount)["state"] != "away")
    assert read_at(mount.path / "file", 5 * CHUNK, CHUNK) == "EIO"
    assert read_at(mount.path / "file", 4 * CHUNK, CHUNK) == pattern(1, 4 * CHUNK, CHUNK)
    assert healing(mount)["healed"] == 0


@pytest.mark.P2
def test_copies_follow_names(array, make_mount, store):
    mount = make_mount(array)
    set_tier(mount, store.url)
    (mount.path / "old").mkdir()
    for number, name in enumerate(("moved", "removed", "stays")):
        write_pattern(mount.path / "old" / name, number, 300_000)
    sync(mount)
    copied = {name: store.content(f"old/{name}") for name in ("moved", "removed", "stays")}
    assert all(copied.values())
    os.rename(mount.path / "old/moved", mount.path / "moved")
    os.unlink(mount.path / "old/removed")
    os.rename(mount.path / "old", mount.path / "new")
    sync(mount)
    assert store.content("moved") == copied["moved"] and store.content("new/stays") == copied["stays"]
    for gone in ("old/moved", "old/removed", "old/stays", "new/removed"):
        assert store.content(gone) is None, gone


def test_what_is_removed_may_stay_in_the_store(array, make_mount, directory):
    mount = make_mount(array, "tier_delete=keep")
    set_tier(mount, directory.url)
    write_pattern(mount.path / "file", 1, 300_000)
    sync(mount)
    os.unlink(mount.path / "file")
    write_pattern(mount.path / "other", 2, 300_000)
    sync(mount)
    assert len(directory.content("file")) == 300_000 and directory.content("other") is not None
