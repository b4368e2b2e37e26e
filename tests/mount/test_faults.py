"""Drives that fail, hang, fill up, turn read-only or vanish, and a system that runs out of things: the application gets an
error in bounded time, no other file is harmed, and fpfs status shows which member it is."""
import json
import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from lab import LONG, mount_table
from lab.array import Mount, MountFailed
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import attempt, wait_until, within

MIB = 1 << 20
TIMEOUT = 2  # seconds: io_timeout of the mounts that meet a hanging drive; the others must keep to it, too
BOUNDED = 25  # seconds: much more than any answer takes, much less than for ever
FAILED = ("EIO", "EROFS")

pytestmark = [pytest.mark.P4, pytest.mark.root]


@pytest.fixture
def faulty_array(drives, faulty, make_array):
    """Names on a good drive, the faulty one is the last member."""
    array = make_array(paths=[*drives.paths[:2], faulty.path])
    array.faulty = 2
    array.damaged = True  # these tests judge it themselves
    yield array
    faulty.let_go()


@pytest.fixture
def faulty_mount(faulty_array, make_mount):
    mount = make_mount(faulty_array)
    write_pattern(mount.path / "before", 1, 9 * MIB)
    write_pattern(mount.path / "small", 2, 1000)
    return mount


def member(mount, index=2):
    return mount.status()["members"][index]


def save(path, seed, size=12 * MIB):
    """The error that a saver gets, or None."""
    return attempt(write_pattern, path, seed, size)


SLOW_SAVER = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.write(bytes(1 << 20))
        time.sleep(.01)
"""


def start_saver(mount, **options):
    """A saver that does not end by itself, when it has written something; slow enough that no drive is full before long."""
    saver = subprocess.Popen([sys.executable, "-c", SLOW_SAVER, mount.path / "file"], **options)
    wait_until(lambda: (mount.path / "file").exists() and (mount.path / "file").stat().st_size >= 8 * MIB)
    return saver


def end(mount):
    """Takes the mount down, whatever the daemon thinks of it."""
    if mount_table.entry_of(mount.path):
        assert mount_table.unmount(mount.path).returncode == 0
    mount.process.wait(timeout=BOUNDED)
    mount.process = None


def recover(mount, drive):
    """The drive is good again, its filesystem was mounted anew: what was committed is there."""
    end(mount)
    drive.remount()
    mount.start()
    assert is_pattern(mount.path / "before", 1, 9 * MIB) and is_pattern(mount.path / "small", 2, 1000)
    assert save(mount.path / "new", 7) is None
    assert is_pattern(mount.path / "new", 7, 12 * MIB)
    mount.unmount()
    mount.array.assert_clean()


@pytest.mark.parametrize("faulty", ["xfs", "ext4"], indirect=True)
@pytest.mark.parametrize("what", ["write", "sync"])
def test_errors_while_saving(faulty, faulty_mount, what):
    mount = faulty_mount
    faulty.fail(what)
    failure = within(BOUNDED, save, mount.path / "before", 3)
    assert failure in FAILED
    assert within(BOUNDED, save, mount.path / "another", 4) in FAILED
    found = member(mount)
    assert found["state"] == "failing" and found["write_errors"] + found["sync_errors"] > 0
    assert mount.status()["state"] in ("failing", "failed")
    assert [other["state"] for other in mount.status()["members"][:2]] == ["ok", "ok"]
    # Small files lie with the names, on a drive that is well.
    assert is_pattern(mount.path / "small", 2, 1000)
    assert within(BOUNDED, save, mount.path / "small2", 5, 1000) is None
    recover(mount, faulty)


@pytest.mark.parametrize("durable", ["close", "fsync"])
def test_umount_names_what_was_not_saved(faulty, faulty_array, make_mount, binaries, durable):
    """What savers were told of, and what nobody was: the first few by their paths, and how many more."""
    mount = make_mount(faulty_array, f"durable={durable}")
    write_pattern(mount.path / "before", 1, 9 * MIB)
    write_pattern(mount.path / "small", 2, 1000)
    run(binaries.fpfs, "sync", mount.path)
    if durable == "fsync":
        faulty.hang()  # no close waits for the drive then, so none can be told
    else:
        faulty.vanish()
    told = [within(BOUNDED, save, mount.path / f"file{number}", number, 4 * MIB) for number in range(7)]
    if durable == "fsync":
        assert told == [None] * 7
        faulty.vanish()
    result = within(BOUNDED, lambda: run(binaries.fpfs, "umount", mount.path, check=False))
    line, = result.stderr.splitlines()
    named = re.findall(r"/file\d", line)
    assert len(set(named)) >= 5 and " and 2 other files" in line, line
    if durable == "fsync":
        assert result.returncode == 1 and "unmounted, but" in line, line
        assert "; and so is what was closed in /file" in line or "; all saves that failed: /file0, " in line, line
    elif result.returncode == 0:
        assert "unmounted; saves failed, as those who made them were told: /file0, " in line, line
    else:  # another chunk failed behind a close that had told of the first
        assert "unmounted, but" in line and "; all saves that failed: /file0, " in line, line
    assert durable == "fsync" or set(told) <= set(FAILED)
    assert mount.process.wait(timeout=BOUNDED) == result.returncode
    mount.process = None
    assert " and 2 other files" in mount.log().splitlines()[-1]
    faulty.plug_in()
    mount.start()
    assert is_pattern(mount.path / "before", 1, 9 * MIB)


def test_a_removal_that_stopped(make_drive, drives, make_array, make_mount, binaries):
    """It says why, and the command that it names begins anew: it is no other's to be resumed or cancelled."""
    failing = make_drive(200 * MIB, "ext4")
    array = make_array(paths=[*drives.paths[:2], failing.path])
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 60 * MIB)
    run("mount", "-o", "remount,abort", failing.path)  # as ext4 does after an error of its drive
    for _ in range(2):
        said = run(binaries.fpfs, "member", "remove", mount.path, array.members[2], check=False)
        assert said.returncode == 1 and "it has stopped by itself, because of: " in said.stderr, said.stderr
        assert "Read-only file system" in said.stderr
        assert f"; fpfs member remove {mount.path} {array.members[2]} goes on with it" in said.stderr, said.stderr
    assert is_pattern(mount.path / "file", 1, 60 * MIB)
    end(mount)


def test_no_member_is_added_beside_a_dead_one(make_drive, drives, make_array, make_mount, binaries):
    dying = make_drive(400 * MIB, "xfs")
    array = make_array(paths=[*drives.paths[:2], dying.path])
    array.damaged = True
    mount = make_mount(array)
    dying.shut_down()
    added = drives.paths[3] / array.members[0].name
    said = run(binaries.fpfs, "member", "add", mount.path, added, check=False)
    assert said.returncode == 1 and f"{array.members[2]} fails; look at its drive (dmesg)" in said.stderr, said.stderr
    end(mount)
    dying.remount()


def test_status_while_the_drive_of_the_names_is_dead(make_drive, drives, make_array, make_mount, binaries):
    """As after the loss of a controller: that is when it is asked for."""
    dying = make_drive(400 * MIB, "xfs")
    array = make_array(paths=[dying.path, *drives.paths[:2]])
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 3 * MIB)
    os.chmod(mount.path, 0o700)
    dying.shut_down()
    for name in ("a", "b"):
        assert attempt(os.mkdir, mount.path / name) in FAILED
    assert mount.path.stat().st_mode & 0o777 == 0o700
    status = mount.status()
    assert status["metadata"]["state"] == "failing" and status["metadata"]["errors"] > 0
    said = run(binaries.fpfs, "verify", mount.path / "file", check=False)
    assert said.returncode != 0 and "fpfs status" in said.stderr and "dmesg" in said.stderr, said.stderr
    end(mount)
    dying.remount()
    mount.start()
    assert is_pattern(mount.path / "file", 1, 3 * MIB)


@pytest.mark.P3
@pytest.mark.chunk_size(65536)
def test_unreadable_sectors(faulty, drives, make_array, make_mount, tmp_path):
    """Exactly the chunks on them fail; fsck, verify, scrub and export say which and go on."""
    array = make_array(chunk_size=65536, paths=[*drives.paths[:2], faulty.path])
    array.damaged = True
    mount = make_mount(array)
    count = 30
    write_pattern(mount.path / "bad", 1, count * 65536)
    write_pattern(mount.path / "good", 2, count * 65536)
    extents = json.loads(run(array.programs.fpfs, "map", "--json", mount.path / "bad").stdout)["extents"]
    mount.unmount()
    victims = [extent for extent in extents if extent["member"] == 2][2:4]
    for victim in victims:
        (begin,) = [physical + victim["file_offset"] - offset
                    for offset, physical, length in faulty.where(victim["file"])
                    if offset <= victim["file_offset"] < offset + length]
        faulty.fail("read", begin=begin, end=begin + 512)
    faulty.drop_caches()
    status, report = array.fsck_report("--verify-data")
    assert status == 4
    assert [(error["kind"], error["path"], error["chunk"], error["member"], error["object_offset"])
            for error in report["errors"]] == [
                ("unreadable", "/bad", victim["offset"] // 65536, 2, victim["file_offset"]) for victim in victims]

    mount.start()
    lost = {victim["offset"] for victim in victims}
    buffer = mmap.mmap(-1, 65536)  # aligned, for O_DIRECT: then the daemon alone reads ahead

    def read_chunk(descriptor, offset):
        return buffer[:os.preadv(descriptor, [buffer], offset)]

    for flags in (0, os.O_DIRECT):
        descriptor = os.open(mount.path / "bad", os.O_RDONLY | flags)
        for extent in extents:
            got = within(BOUNDED, read_chunk, descriptor, extent["offset"])
            assert got == ("EIO" if extent["offset"] in lost else pattern(1, extent["offset"], 65536)), (flags, extent)
        os.close(descriptor)
        if flags == 0:
            mount.remount()
    assert is_pattern(mount.path / "good", 2, count * 65536)
    assert member(mount)["state"] == "failing" and member(mount)["read_errors"] >= len(victims)
    result = run(array.programs.fpfs, "verify", mount.path / "bad", check=False)
    assert result.returncode == 4 and " cannot be read (" in result.stderr and "Input/output error" in result.stderr
    assert "damaged (" not in result.stderr and "lost" not in result.stderr, result.stderr
    scrub = run(array.programs.fpfs, "scrub", "start", mount.path, "--wait", "--json", check=False)
    assert scrub.returncode == 4
    assert [(damage["kind"], damage["path"], damage["chunk"]) for damage in json.loads(scrub.stdout)["damage"]] == [
        ("unreadable", "/bad", victim["offset"] // 65536) for victim in victims]
    mount.unmount()

    result = run(array.programs.fpfs, "export", "--partial", array.argument, "bad", "-o", tmp_path / "bad", check=False)
    assert result.returncode == 1 and f"{len(victims) * 65536} of {count * 65536} bytes" in result.stderr
    content = (tmp_path / "bad").read_bytes()
    for extent in extents:
        piece = content[extent["offset"]:extent["offset"] + 65536]
        assert piece == (bytes(65536) if extent["offset"] in lost else pattern(1, extent["offset"], 65536))
    # Set aside, with what survives; the rest is whole.
    status, report = array.fsck_report("-y")
    assert status == 0 or report["set_aside"] == []  # -y alone does not read what nothing says is damaged
    status, report = array.fsck_report("-y", "--verify-data")
    assert status == 1
    (aside,) = report["set_aside"]
    assert aside["path"] == "/bad" and sum(each["length"] for each in aside["surviving"]) == (count - 2) * 65536
    faulty.heal()
    array.assert_clean()


def test_a_full_member(drives, make_drive, make_array, make_mount):
    """One drive is smaller than the others: its end is ENOSPC for the file that met it, and for no other."""
    drive = make_drive(96 * MIB)
    array = make_array(paths=[*drives.paths[:2], drive.path])
    mount = make_mount(array)
    write_pattern(mount.path / "before", 1, 30 * MIB)
    write_pattern(mount.path / "replaced", 2, 6 * MIB)
    assert within(60, save, mount.path / "large", 3, 400 * MIB) == "ENOSPC"
    assert within(60, save, mount.path / "replaced", 4, 400 * MIB) == "ENOSPC"
    for name in ("large", "replaced"):  # a line for each
        line = rf" warning /{name}: member \d \(\S+\) has no room for what is written"
        assert re.search(line, mount.log()), mount.log()
    assert is_pattern(mount.path / "before", 1, 30 * MIB)
    assert mount.status()["state"] in ("ok", "failing")
    assert save(mount.path / "small", 5, 1000) is None
    os.unlink(mount.path / "large")
    mount.remount()
    assert is_pattern(mount.path / "replaced", 2, 6 * MIB)  # the last committed content
    assert save(mount.path / "fits", 6, 12 * MIB) is None
    assert is_pattern(mount.path / "fits", 6, 12 * MIB)


@pytest.fixture
def hanging_mount(faulty, faulty_array, make_mount):
    mount = make_mount(faulty_array, f"io_timeout={TIMEOUT}")
    write_pattern(mount.path / "before", 1, 9 * MIB)
    write_pattern(mount.path / "small", 2, 1000)
    yield mount
    faulty.let_go()  # or nothing could be taken down


def test_a_hanging_member(faulty, hanging_mount):
    """For ever: savers and readers get EIO in bounded time, everything else goes on; when it answers again, so does the mount."""
    mount = hanging_mount
    extents = json.loads(run(mount.array.programs.fpfs, "map", "--json", mount.path / "before").stdout)["extents"]
    mount.remount()
    faulty.hang()
    begin = time.monotonic()
    assert within(BOUNDED, save, mount.path / "file", 3) == "EIO"
    assert time.monotonic() - begin < TIMEOUT + 5
    assert mount.status()["state"] == "stalled" and member(mount)["state"] == "stalled"
    assert member(mount)["write_errors"] > 0
    assert [other["state"] for other in mount.status()["members"][:2]] == ["ok", "ok"]
    begin = time.monotonic()
    assert within(BOUNDED, save, mount.path / "another", 4) == "EIO"  # at once now
    with open(mount.path / "before", "rb", buffering=0) as file:
        for extent in extents:
            got = within(BOUNDED, os.pread, file.fileno(), MIB, extent["offset"])
            assert got == ("EIO" if extent["member"] == 2 else pattern(1, extent["offset"], MIB))
    assert within(BOUNDED, save, mount.path / "small2", 5, 1000) is None
    assert is_pattern(mount.path / "small", 2, 1000)
    assert sorted(os.listdir(mount.path)) == ["another", "before", "file", "small", "small2"]
    assert time.monotonic() - begin < 5 * TIMEOUT
    assert "has not answered" in mount.log()
    faulty.heal()
    wait_until(lambda: member(mount)["state"] != "stalled", 20)
    assert "answers again" in mount.log()
    assert save(mount.path / "after", 6) is None
    assert is_pattern(mount.path / "after", 6, 12 * MIB) and is_pattern(mount.path / "before", 1, 9 * MIB)
    recover(mount, faulty)


@pytest.mark.parametrize("faulty", ["xfs", "ext4"], indirect=True)
@pytest.mark.skipif(not LONG, reason="--long: the short run has the drive that hangs wholly")
@pytest.mark.parametrize("what", ["read", "write", "sync"])
def test_a_member_that_hangs_in_one_way(faulty, hanging_mount, what):
    mount = hanging_mount
    mount.remount()
    faulty.drop_caches()
    faulty.hang(what)
    if what == "read":
        assert within(BOUNDED, (mount.path / "before").read_bytes) == "EIO"
        assert member(mount)["read_errors"] > 0
    else:
        assert within(BOUNDED, save, mount.path / "before", 3) == "EIO"
        assert member(mount)["write_errors"] + member(mount)["sync_errors"] > 0
    assert within(BOUNDED, save, mount.path / "small2", 5, 1000) is None
    faulty.heal()
    wait_until(lambda: member(mount)["state"] != "stalled", 20)
    recover(mount, faulty)


def test_a_hanging_drive_of_names(faulty, drives, make_array, make_mount):
    """The names themselves: every call fails in bounded time, fpfs status works, and what was closed is there afterwards."""
    array = make_array(paths=[faulty.path, *drives.paths[:2]])
    array.damaged = True
    mount = make_mount(array, f"io_timeout={TIMEOUT}", "threads=4")
    os.mkdir(mount.path / "dir")
    write_pattern(mount.path / "dir/file", 1, 6 * MIB)
    reader = open(mount.path / "dir/file", "rb", buffering=0)
    faulty.drop_caches()
    faulty.hang()
    try:
        # More callers than the daemon has threads.
        savers = [subprocess.Popen(["dd", "if=/dev/zero", f"of={mount.path}/dir/new{number}", "bs=64K", "count=4",
                                    "conv=fsync", "status=none"], stderr=subprocess.DEVNULL) for number in range(6)]
        assert 0 not in [within(BOUNDED, saver.wait) for saver in savers]
        status = within(BOUNDED, mount.status)
        assert status["state"] in ("stalled", "failed") and status["metadata"]["state"] == "stalled"
        assert status["members"][0]["state"] == "stalled"
        begin = time.monotonic()
        assert within(BOUNDED, os.mkdir, mount.path / "another") == "EIO"
        assert within(BOUNDED, os.listdir, mount.path) == "EIO"
        assert time.monotonic() - begin < TIMEOUT
    finally:
        faulty.let_go()
    wait_until(lambda: mount.status()["metadata"]["state"] != "stalled", 20)
    assert within(BOUNDED, os.listdir, mount.path / "dir")
    assert os.pread(reader.fileno(), MIB, 0) == pattern(1, 0, MIB)
    reader.close()
    end(mount)
    mount.start()
    assert is_pattern(mount.path / "dir/file", 1, 6 * MIB)
    mount.unmount()
    array.fsck("-p")
    array.assert_clean()


OVERWRITES_WHAT_IT_FREES = ("env", "GLIBC_TUNABLES=glibc.malloc.tcache_count=0", "MALLOC_PERTURB_=165")


def test_the_mount_ends_while_a_rename_is_caught(faulty, drives, make_array, make_mount):
    """The drive answers again while the daemon ends: what it had under way has a daemon as long as it needs it."""
    array = make_array(paths=[faulty.path, *drives.paths[:2]])
    array.damaged = True
    mount = make_mount(array, f"io_timeout={TIMEOUT}", "durable=fsync", prefix=OVERWRITES_WHAT_IT_FREES)
    write_pattern(mount.path / "old", 1, 1000)
    run(mount.array.programs.fpfs, "sync", mount.path)
    write_pattern(mount.path / "new", 2, 1000)
    wait_until((array.members[0] / "tree/new").read_bytes)  # to be synced by who renames it
    faulty.hang("sync", "write")
    try:
        assert within(BOUNDED, os.rename, mount.path / "new", mount.path / "old") == "EIO"
        assert mount_table.unmount(mount.path).returncode == 0
        time.sleep(0.5)  # it has come as far as it comes
    finally:
        faulty.let_go()
    assert mount.process.wait(timeout=BOUNDED) in (0, 1), mount.log()
    mount.process = None
    mount.start()
    assert is_pattern(mount.path / "old", 1, 1000) or is_pattern(mount.path / "old", 2, 1000)


@pytest.mark.parametrize("what", ["names", "attributes"])
def test_a_listing_is_caught_in_a_drive_that_hangs(faulty, drives, make_array, make_mount, what):
    """Who lists is told, closes and ends; the listing goes on when the drive answers again, and finds what it was reading.
    Of the names that it then tells nobody of the daemon keeps nothing.

    (The daemon's memory is overwritten when it is freed.)"""
    array = make_array(paths=[faulty.path, *drives.paths[:2]])
    array.damaged = True
    mount = make_mount(array, f"io_timeout={TIMEOUT}", prefix=OVERWRITES_WHAT_IT_FREES)
    directory, below = mount.path / "dir", array.members[0] / "tree/dir"

    def is_forgotten():
        run("sync", "--file-system", faulty.path)
        for _ in range(5):  # XFS keeps the blocks of a directory for some times
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        held = [attempt(os.readlink, held) for held in pathlib.Path(f"/proc/{mount.pid}/fd").iterdir()]
        return not any(name.startswith(f"{below}/") for name in held)

    directory.mkdir()
    for number in range(300):
        (directory / str(number)).touch()
    wait_until(is_forgotten, 60)
    descriptor = os.open(directory, os.O_RDONLY)
    if what == "attributes":
        os.listdir(below)
    faulty.hang("read")
    try:
        assert within(BOUNDED, os.listdir, descriptor) == "EIO"
        os.close(descriptor)
        mount.wait_until_answered()
    finally:
        faulty.let_go()
    wait_until(lambda: mount.status()["metadata"]["state"] != "stalled", 20)
    # (What was closed while the drive was said to hang is closed with a later call.)
    wait_until(lambda: len(os.listdir(directory)) == 300 and is_forgotten(), 60)
    end(mount)
    array.assert_clean()


@pytest.mark.parametrize("way", ["umount", pytest.param("SIGTERM", marks=pytest.mark.skipif(not LONG, reason="--long"))])
def test_the_end_of_a_mount_with_a_hanging_member(faulty, hanging_mount, way):
    """The mount goes in bounded time, other drives get what is theirs; the daemon says why it ended badly."""
    mount = hanging_mount
    faulty.hang()
    small = open(mount.path / "open", "wb", buffering=0)
    small.write(pattern(9, 0, 1000))
    assert within(BOUNDED, save, mount.path / "file", 3) == "EIO"
    if way == "umount":
        small.close()
        assert within(BOUNDED, lambda: mount_table.unmount(mount.path).returncode) == 0
    else:
        mount.process.send_signal(signal.SIGTERM)
    wait_until(lambda: mount_table.entry_of(mount.path) is None, BOUNDED)
    wait_until(lambda: "ends without a drive" in mount.log(), BOUNDED)
    assert re.search(r"ends without a drive .* is lost, the next mount cleans up: .*/file", mount.log()), mount.log()
    attempt(small.close)
    # The kernel keeps the process, and with it the array's lock, for as long as the drive keeps its transfers.
    faulty.heal()
    assert mount.process.wait(timeout=BOUNDED) == 1
    mount.process = None
    mount.start()
    assert is_pattern(mount.path / "open", 9, 1000)
    recover(mount, faulty)


@pytest.mark.skipif(not LONG, reason="--long")
def test_mounting_with_a_hanging_member(faulty, faulty_array, binaries, lab):
    """In the background, as people mount: one line, and exit 1."""
    faulty.drop_caches()
    faulty.hang()
    place = lab / "mountpoint"
    place.mkdir(exist_ok=True)
    command = [binaries.mount, "-o", f"io_timeout={TIMEOUT}", faulty_array.argument, str(place)]
    result = within(BOUNDED, lambda: subprocess.run(command, capture_output=True, text=True, timeout=BOUNDED))
    assert result.returncode == 1, result
    assert len(result.stderr.splitlines()) == 1 and "has not answered" in result.stderr
    assert mount_table.entry_of(place) is None


def test_a_short_hang_is_survived(faulty, faulty_array, make_mount):
    """What was written waits for the drive, and nothing fails. 30 s in the long run."""
    mount = make_mount(faulty_array)
    faulty.hang()
    saver = subprocess.Popen(["dd", "if=/dev/zero", f"of={mount.path}/file", "bs=1M", "count=24", "status=none"])
    time.sleep(30 if LONG else 3)
    assert saver.poll() is None
    faulty.heal()
    assert saver.wait(timeout=BOUNDED) == 0
    mount.unmount()
    faulty_array.assert_clean()


@pytest.mark.parametrize("faulty", ["xfs", "ext4"], indirect=True)
def test_a_member_that_vanishes_while_saving(faulty, faulty_mount, make_mount):
    """Pulled out: savers fail, and `ro,degraded` serves what lies elsewhere."""
    mount = faulty_mount
    extents = json.loads(run(mount.array.programs.fpfs, "map", "--json", mount.path / "before").stdout)["extents"]
    saver = start_saver(mount, stderr=subprocess.PIPE, text=True)
    faulty.vanish()
    assert within(BOUNDED, saver.wait) == 1
    assert "Input/output error" in saver.stderr.read()
    saver.stderr.close()
    assert member(mount)["state"] == "failing"
    assert is_pattern(mount.path / "small", 2, 1000)
    end(mount)
    mount.array.members = mount.array.members[:2]
    left = make_mount(mount.array, "ro", "degraded")
    assert left.status()["state"] == "degraded" and member(left)["state"] == "missing"
    assert is_pattern(left.path / "small", 2, 1000)
    with open(left.path / "before", "rb", buffering=0) as file:
        for extent in extents:
            got = within(BOUNDED, os.pread, file.fileno(), MIB, extent["offset"])
            assert got == ("EIO" if extent["member"] == 2 else pattern(1, extent["offset"], MIB))
    left.unmount()


def test_a_member_that_turns_read_only(drives, make_drive, make_array, make_mount):
    """As ext4 does it when it has found its journal broken."""
    drive = make_drive(200 * MIB, "ext4")
    array = make_array(paths=[*drives.paths[:2], drive.path])
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "before", 1, 9 * MIB)
    write_pattern(mount.path / "small", 2, 1000)
    subprocess.run(["mount", "-o", "remount,abort", str(drive.path)], capture_output=True)
    assert within(BOUNDED, save, mount.path / "file", 3) in FAILED
    assert within(BOUNDED, save, mount.path / "before", 4) in FAILED
    assert member(mount)["state"] == "failing"
    assert is_pattern(mount.path / "before", 1, 9 * MIB) and is_pattern(mount.path / "small", 2, 1000)
    assert within(BOUNDED, save, mount.path / "small2", 5, 1000) is None
    recover(mount, drive)


@pytest.mark.P1
@pytest.mark.parametrize("faulty", ["xfs", "ext4"], indirect=True)
def test_the_drive_of_names_fails(faulty, drives, make_array, make_mount):
    """Nobody knows what its filesystem has kept: no write is promised anything, until the array is mounted anew."""
    array = make_array(paths=[faulty.path, *drives.paths[:2]])
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "before", 1, 9 * MIB)
    write_pattern(mount.path / "small", 2, 1000)
    faulty.fail("write", "sync")
    assert within(BOUNDED, save, mount.path / "new", 3) in FAILED
    assert within(BOUNDED, save, mount.path / "small", 4, 500) in FAILED
    status = mount.status()
    assert status["state"] == "failed" and status["array"]["read_only_reason"]
    assert within(BOUNDED, save, mount.path / "another", 5) in FAILED
    for words in (("sync", mount.path), ("tier", "set", mount.path, f"file://{drives.paths[0]}")):
        said = run(array.programs.fpfs, *words, check=False)
        assert said.returncode == 1 and "the array turned read-only: " in said.stderr, said.stderr
    recover(mount, faulty)


# --- what the system runs out of ---------------------------------------------------------------------------------------


def start_with_descriptors(array, place, count):
    """A mount whose daemon may hold so many descriptors."""
    mount = Mount(array, place)
    # Root may raise the limit again, and the daemon would; without that privilege it may not.
    mount.prefix = ["prlimit", f"--nofile={count}:{count}", "setpriv", "--bounding-set=-sys_resource",
                    "--inh-caps=-sys_resource"]
    return mount.start()


def test_too_few_descriptors_are_said_at_the_start(array, lab):
    with pytest.raises(MountFailed, match="open files are needed"):
        start_with_descriptors(array, lab / "few", 300)


@pytest.mark.P5
def test_out_of_descriptors(array, lab):
    """More files open than the daemon may hold: an error for the ones too many, and nothing else."""
    mount = start_with_descriptors(array, lab / "limited", 1700)
    try:
        opened, failure = [], None
        for number in range(3000):
            outcome = attempt(os.open, mount.path / f"file{number}", os.O_CREAT | os.O_RDWR)
            if isinstance(outcome, str):
                failure = outcome
                break
            opened.append(outcome)
        assert failure in ("EMFILE", "ENFILE") and len(opened) > 100
        os.write(opened[0], b"x" * 100)
        for descriptor in opened:
            os.close(descriptor)
        assert (mount.path / "file0").read_bytes() == b"x" * 100
        wait_until(lambda: attempt(write_pattern, mount.path / "after", 1, 3 * MIB) is None, 20)
        assert is_pattern(mount.path / "after", 1, 3 * MIB)
        mount.unmount()
    finally:
        mount.destroy()


@pytest.mark.alone
@pytest.mark.skipif(not LONG, reason="changes a limit of the whole machine for a moment: --long")
def test_no_asynchronous_io_left(array, make_mount):
    limit = "/proc/sys/fs/aio-max-nr"
    before = open(limit).read()
    try:
        with open(limit, "w") as file:
            file.write(open("/proc/sys/fs/aio-nr").read())
        with pytest.raises(MountFailed, match="fs.aio-max-nr"):
            make_mount(array)
    finally:
        with open(limit, "w") as file:
            file.write(before)
    write_pattern(make_mount(array).path / "file", 1, 3 * MIB)


@pytest.mark.P1
def test_the_connection_is_aborted_while_saving(mount):
    """/dev/fuse closed under us: savers get an error at once, the daemon ends, what was closed is there."""
    write_pattern(mount.path / "before", 1, 9 * MIB)
    saver = start_saver(mount, stderr=subprocess.DEVNULL)
    assert mount_table.abort(mount_table.entry_of(mount.path))
    assert within(BOUNDED, saver.wait) == 1
    assert attempt(os.listdir, mount.path) in ("ENOTCONN", "ECONNABORTED")
    mount.process.wait(timeout=BOUNDED)
    mount.process = None
    mount_table.unmount(mount.path, lazy=True)
    mount.start()
    assert is_pattern(mount.path / "before", 1, 9 * MIB)


@pytest.mark.P2
@pytest.mark.parametrize("way", ["umount", "SIGTERM"])
def test_the_end_of_a_mount_while_saving(mount, way):
    """umount is refused while files are open; SIGTERM ends it all the same, and says what was left half. No saver hangs."""
    write_pattern(mount.path / "before", 1, 9 * MIB)
    saver = start_saver(mount, stderr=subprocess.DEVNULL)
    if way == "umount":
        assert mount_table.unmount(mount.path).returncode != 0
        assert saver.poll() is None
        saver.send_signal(signal.SIGINT)
        assert within(BOUNDED, saver.wait) != 0
        mount.unmount()
    else:
        mount.process.send_signal(signal.SIGTERM)
        assert within(40, saver.wait) != 0
        assert mount.process.wait(timeout=BOUNDED) == 1, mount.log()
        assert "was being written" in mount.log()
        mount.process = None
    mount.start()
    assert is_pattern(mount.path / "before", 1, 9 * MIB)


@pytest.mark.P6
@pytest.mark.parametrize("faulty", ["ext4"], indirect=True)
def test_a_failed_look_at_a_default_acl(faulty, drives, make_array, make_mount):
    """Whether a directory has one is remembered; that its drive could not say is not."""
    array = make_array(paths=[faulty.path, *drives.paths[:2]])
    array.damaged = True
    mount = make_mount(array)
    folder = mount.path / "folder"
    folder.mkdir()
    # So long that ext4 keeps it in a block of its own, which is read when it is asked for.
    run("setfacl", "-d", "-m", ",".join(f"u:{uid}:r-x" for uid in range(2000, 2040)) + ",g::rwx,o::rwx,m::rwx", folder)
    mount.remount()
    faulty.drop_caches()
    os.listdir(folder)
    umask = os.umask(0o077)
    try:
        faulty.fail("read")
        assert attempt(os.mknod, folder / "first", 0o100666) == "EIO"
        faulty.heal()
        os.mknod(folder / "second", 0o100666)
    finally:
        os.umask(umask)
    assert os.stat(folder / "second").st_mode & 0o777 == 0o666
    assert "user:2000:r-x" in run("getfacl", "-c", folder / "second").stdout
