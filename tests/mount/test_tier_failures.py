"""Copies as the last place of content that members do not give any more: right after a mount, on a mount that is
read-only or lacks a member, and whatever way leads to the store. Through a mount."""
import json
import os
import time

import pytest

from lab.copies import SERVICES, copied_file, fpfs, set_tier, state, sync, tier
from lab.damage import extents_of, flip, read_at
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import wait_until

CHUNK = 65536
MIB = 1 << 20
SIZE = 24 * CHUNK + 1234

pytestmark = [pytest.mark.P3, pytest.mark.chunk_size(CHUNK)]


@pytest.fixture
def copied(array, make_mount):
    """copied(store): lab.copies.copied_file()."""
    return lambda store: copied_file(array, make_mount, store, SIZE)


def spoil(extents, chunks):
    for chunk in chunks:
        flip(extents[chunk]["file"], extents[chunk]["file_offset"] + 77)


def test_the_first_read_of_a_mount_waits_for_the_store(copied, store):
    """It comes long before the daemon has found out that the store is the right one."""
    mount, extents = copied(store)
    spoil(extents, (0, 7))
    for _ in range(3):
        mount.start()
        assert read_at(mount.path / "file", 0, CHUNK) == pattern(1, 0, CHUNK)
        assert read_at(mount.path / "file", 7 * CHUNK, CHUNK) == pattern(1, 7 * CHUNK, CHUNK)
        assert mount.status()["healing"]["without_copy"] == 0
        mount.unmount()


def test_a_store_that_is_away_fails_the_first_read_soon(copied, directory):
    mount, extents = copied(directory)
    spoil(extents, (3,))
    aside = directory.path.with_name(directory.path.name + "-aside")
    directory.path.rename(aside)
    mount.start()
    assert read_at(mount.path / "file", 3 * CHUNK, CHUNK) == "EIO"
    assert read_at(mount.path / "file", 4 * CHUNK, CHUNK) == pattern(1, 4 * CHUNK, CHUNK)
    aside.rename(directory.path)
    wait_until(lambda: tier(mount)["state"] not in ("away", "scanning"), seconds=60)
    assert read_at(mount.path / "file", 3 * CHUNK, CHUNK) == pattern(1, 3 * CHUNK, CHUNK)


def test_a_read_only_mount_heals_what_is_read(copied, store):
    """Nothing is written back, and nothing is copied."""
    mount, extents = copied(store)
    spoil(extents, (2, 9))
    mount.options = ("ro",)
    mount.start()
    assert is_pattern(mount.path / "file", 1, SIZE)
    healing = mount.status()["healing"]
    assert healing["from_copy"] >= 2 and healing["healed"] == 0 and healing["without_copy"] == 0
    status = tier(mount)
    assert status["state"] == "reading" and not status["required"] and status["errors"] == 0
    assert state(mount.path / "file") == "copied"
    for words in (("tier", "set", mount.path, "none"), ("tier", "set", mount.path, store.url),
                  ("sync", "--tier", mount.path)):
        refused = fpfs(mount, *words, check=False)
        assert refused.returncode == 1 and "read-only" in refused.stderr and len(refused.stderr.splitlines()) == 1
    mount.unmount()
    assert mount.array.fsck_report("--verify-data")[0] == 4  # as it was


def test_a_read_only_mount_goes_on_without_its_store(copied, directory):
    mount, _ = copied(directory)
    directory.path.rename(directory.path.with_name(directory.path.name + "-aside"))
    for options in (("ro",), ("ro", f"tier={directory.url}")):
        mount.options = options
        mount.start()
        assert is_pattern(mount.path / "file", 1, SIZE)
        wait_until(lambda: tier(mount)["state"] == "away")
        mount.unmount()


def test_a_member_that_is_lost(copied, array, store):
    """With ro,degraded everything can be read, that member's part from the copy."""
    mount, _ = copied(store)
    lost, whole = array.members[2], array.members
    parked = lost.with_name("parked")
    lost.rename(parked)
    array.members = [member for member in whole if member != lost]
    mount.options = ("ro", "degraded")
    mount.start()
    assert is_pattern(mount.path / "file", 1, SIZE)
    healing = mount.status()["healing"]
    assert healing["from_copy"] >= SIZE // CHUNK // len(whole) and healing["without_copy"] == 0
    mount.options = ("ro", "degraded", "tier=none")
    mount.remount()
    assert any(read_at(mount.path / "file", chunk * CHUNK, CHUNK) == "EIO" for chunk in range(24))
    mount.unmount()
    array.members = whole
    parked.rename(lost)


def test_another_way_to_the_same_store(array, make_mount, directory):
    """Notes speak of the store, not of its URL: nothing is copied again, and fsck knows the copies."""
    array.damaged = True
    mount = make_mount(array)
    set_tier(mount, directory.url)
    for number in range(5):
        write_pattern(mount.path / f"file{number}", number, 3 * CHUNK + number)
    sync(mount)
    extents = extents_of(mount, mount.path / "file1")["extents"]
    mount.unmount()
    other = directory.path.with_name(directory.path.name + "-too")
    other.symlink_to(directory.path)
    mount.options = (f"tier=file://{other}",)
    mount.start()
    sync(mount)
    status = tier(mount)
    assert status["files_copied"] == 0 and status["bytes_copied"] == 0 and status["store"] == f"file://{other}"
    assert all(state(mount.path / f"file{number}") == "copied" for number in range(5))
    mount.options = ()
    mount.remount()
    wait_until(lambda: tier(mount)["state"] == "current")
    assert tier(mount)["store"] == directory.url  # what the array remembers is still what was set
    mount.unmount()
    spoil(extents, (1,))
    _, report = array.fsck_report("--verify-data")
    assert [error["healing"] for error in report["errors"]] == ["healable"]


def test_members_from_a_backup_replace_nothing_newer(array, make_mount, directory):
    """All of them, so that nothing in the array tells. The store does."""
    array.damaged = True  # what the backup does not have is missing
    mount = make_mount(array)
    set_tier(mount, directory.url)
    write_pattern(mount.path / "latest", 1, SIZE)
    sync(mount)
    mount.unmount()
    for member in array.members:
        run("cp", "-a", member, member.with_name("backup"))
    mount.start()
    write_pattern(mount.path / "latest", 2, SIZE)
    write_pattern(mount.path / "newer", 3, SIZE)
    sync(mount)
    mount.unmount()
    for member in array.members:
        run("rm", "-r", member)
        member.with_name("backup").rename(member)
    mount.start()
    wait_until(lambda: tier(mount)["last_error"] != "")
    assert tier(mount)["state"] == "away" and "a newer state of this array" in tier(mount)["last_error"]
    write_pattern(mount.path / "after", 4, SIZE)  # saves go on
    assert directory.content("latest") == pattern(2, 0, SIZE) and directory.content("newer") == pattern(3, 0, SIZE)
    (mount.path / "newer").write_bytes(directory.content("newer"))  # whoever has looked, and not at all
    refused = fpfs(mount, "tier", "set", mount.path, directory.url, check=False)
    assert refused.returncode == 1 and "missing here, or newer there; then fpfs tier set --existing" in refused.stderr
    assert tier(mount)["state"] == "away" and directory.content("latest") == pattern(2, 0, SIZE)
    (mount.path / "latest").write_bytes(directory.content("latest"))
    set_tier(mount, directory.url, "--existing")
    sync(mount)
    assert all(directory.content(name) == pattern(number, 0, SIZE)
               for name, number in (("latest", 2), ("newer", 3), ("after", 4)))
    mount.remount()
    sync(mount)


def test_a_file_that_cannot_be_read_keeps_its_older_copy(array, make_mount, directory):
    """A damaged commit is not copied: what the store has stays, and the state says that it is not the last one."""
    array.damaged = True
    mount = make_mount(array)
    set_tier(mount, directory.url)
    write_pattern(mount.path / "file", 1, SIZE)
    sync(mount)
    mount.options = ("tier=none",)
    mount.remount()
    write_pattern(mount.path / "file", 2, SIZE)
    extents = extents_of(mount, mount.path / "file")["extents"]
    mount.unmount()
    spoil(extents, (4,))
    mount.options = ()
    mount.start()
    wait_until(lambda: tier(mount)["files_failed"] == 1)
    assert state(mount.path / "file") == "local"
    assert directory.content("file") == pattern(1, 0, SIZE)
    assert read_at(mount.path / "file", 4 * CHUNK, CHUNK) == "EIO"
    failed = sync(mount, mount.path / "file", check=False)
    assert failed.returncode == 1 and "file" in failed.stderr


@pytest.mark.parametrize("kind, daemon", [(kind, daemon) for kind in SERVICES for daemon in kind.DAEMONS])
def test_the_service_stops_while_a_chunk_is_wanted(copied, make_store, services, kind, daemon):
    """The read ends within its time-out, with EIO; when the service is back, with the content."""
    mount, extents = copied(make_store(kind))
    spoil(extents, (5,))
    mount.start()
    wait_until(lambda: tier(mount)["state"] != "away")
    services(kind).kill(daemon)
    try:
        assert read_at(mount.path / "file", 5 * CHUNK, CHUNK) == "EIO"
    finally:
        services(kind).start(daemon)
    wait_until(lambda: read_at(mount.path / "file", 5 * CHUNK, CHUNK) == pattern(1, 5 * CHUNK, CHUNK), seconds=90)


@pytest.mark.root
@pytest.mark.time_limit(240)
@pytest.mark.parametrize("reads_first", [False, True], ids=["saves", "reads"])
def test_a_directory_whose_drive_dies_is_away(array, make_mount, make_drive, reads_first):
    """As a whole, with one line. Its filesystem can be unmounted, repaired, and mounted again under the array."""
    array.damaged = True
    drive = make_drive(400 * MIB, "xfs")
    (drive.path / "store").mkdir()
    mount = make_mount(array, "tier_keep=1")
    set_tier(mount, f"file://{drive.path}/store")
    for number in range(2):
        write_pattern(mount.path / f"file{number}", number, SIZE)
        sync(mount)
    first = mount.path / "file0"
    wait_until(lambda: b"away" in os.getxattr(first, "user.fastpersistfs.codec"), seconds=60)
    drive.shut_down()
    if reads_first:
        assert read_at(first, 0, CHUNK) == "EIO"
    else:
        for number in range(2, 7):
            write_pattern(mount.path / f"file{number}", number, SIZE)
    wait_until(lambda: tier(mount)["state"] == "away", seconds=20)
    assert "I/O errors" in tier(mount)["last_error"] or "Input/output error" in tier(mount)["last_error"]
    assert json.loads(fpfs(mount, "status", "--json", mount.path).stdout)["tier"]["state"] == "away"
    time.sleep(4)
    assert "is not up to date" not in mount.log() and tier(mount)["state"] == "away"
    assert mount.log().count("until that is right") == 1
    drive.remount()
    sync(mount)
    assert read_at(first, 0, CHUNK) == pattern(0, 0, CHUNK)
    assert tier(mount)["state"] == "current"


@pytest.mark.root
@pytest.mark.time_limit(120)
def test_a_store_that_has_no_room_for_one_file(array, make_mount, make_drive):
    """The others go first; and what is removed here makes room there, whatever waits."""
    store = make_drive(100 * MIB).path / "store"
    store.mkdir()
    mount = make_mount(array)
    write_pattern(mount.path / "first", 1, 50 * MIB)
    fpfs(mount, "tier", "set", mount.path, f"file://{store}")
    sync(mount)
    write_pattern(mount.path / "large", 2, 60 * MIB)
    wait_until(lambda: tier(mount)["state"] == "away")
    for number in range(60):
        write_pattern(mount.path / f"small{number}", number, 3 * CHUNK)
    wait_until(lambda: tier(mount)["files_waiting"] == 1, seconds=40)
    assert sum(path.name.startswith("small") for path in store.iterdir()) == 60
    os.unlink(mount.path / "first")
    sync(mount)
    assert (store / "large").stat().st_size == 60 * MIB and not (store / "first").exists()
