"""Members that are removed from an array in use, or replaced: what they hold is moved, and they hold nothing then."""
import json
import mmap
import os
import signal
import subprocess
import threading
import time

import pytest

from lab.copies import fpfs, set_tier, sync
from lab.damage import extents_of, flip
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import wait_until
from lab.terminal import Terminal, screen

pytestmark = [pytest.mark.P1, pytest.mark.P7]

MIB = 1 << 20
CHUNK = 65536


def members_with(mount, name):
    return {extent["member"] for extent in extents_of(mount, mount.path / name)["extents"]}


def states(mount):
    listed = json.loads(fpfs(mount, "member", "list", "--json", mount.path).stdout)
    return [member["state"] for member in listed["members"]]


def objects_on(member):
    return [name for _, _, names in os.walk(member / "objects") for name in names]


def is_moving(mount):
    return json.loads(fpfs(mount, "rebalance", "--status", "--json", mount.path).stdout)["state"] == "running"


@pytest.fixture
def three(make_array, drives):
    return make_array(chunk_size=CHUNK, paths=drives.paths[:3])


def test_a_member_is_removed_while_files_are_used(three, drives, make_mount):
    mount = make_mount(three)
    for number in range(3):
        write_pattern(mount.path / f"file{number}", number, 2 * MIB)
    write_pattern(mount.path / "mapped", 7, MIB)
    leaving = three.members[1]
    stop = threading.Event()

    def rewrite():
        number = 0
        while not stop.is_set():
            write_pattern(mount.path / "new", number, MIB)
            os.replace(mount.path / "new", mount.path / "saved")
            number += 1
        return number

    writer = threading.Thread(target=rewrite)
    with open(mount.path / "mapped", "r+b") as file, mmap.mmap(file.fileno(), MIB) as memory, \
            open(mount.path / "during", "wb", buffering=0) as during:
        during.write(pattern(8, 0, MIB))
        os.fsync(during.fileno())
        memory[:CHUNK] = pattern(9, 0, CHUNK)
        memory.flush()
        writer.start()
        done = fpfs(mount, "member", "remove", "--json", mount.path, os.path.relpath(leaving), check=False)
        stop.set()
        writer.join()
        memory[CHUNK:2 * CHUNK] = pattern(9, CHUNK, CHUNK)
        during.write(pattern(8, MIB, MIB))
    if done.returncode != 0:  # somebody was always writing
        assert "being written" in done.stderr
        done = fpfs(mount, "member", "remove", "--json", mount.path, leaving)
    told = json.loads(done.stdout)
    assert [member["state"] for member in told["members"]] == ["ok", "removed", "ok"]
    assert mount.status()["state"] == "ok"
    assert told["moved"]["state"] == "finished" and told["moved"]["kind"] == "removal"
    assert mount.status()["array"]["member_count"] == 2 and not mount.status()["array"]["degraded"]
    assert objects_on(leaving) == []
    for name in ("file0", "mapped", "during", "saved"):
        assert members_with(mount, name) == {0, 2}, name
    lines = fpfs(mount, "member", "list", mount.path).stdout.splitlines()
    assert "removed" in lines[2] and str(leaving) not in lines[2]
    listed = list(three.members)
    mount.unmount()

    three.assert_clean()  # the removed one is in the list still
    told = run(three.programs.fsck, "-n", ":".join(map(str, three.members)), check=False)
    assert f"fsck.fastpersistfs: {leaving}: it was member 1" in told.stderr
    mount = make_mount(three)
    assert f"{leaving}: it was member 1" in mount.log()
    mount.kill()
    three.members = [listed[2], listed[0]]
    mount = make_mount(three)
    assert all(is_pattern(mount.path / f"file{number}", number, 2 * MIB) for number in range(3))
    assert is_pattern(mount.path / "during", 8, 2 * MIB)
    content = (mount.path / "mapped").read_bytes()
    assert content[:2 * CHUNK] == pattern(9, 0, 2 * CHUNK)
    assert content[2 * CHUNK:] == pattern(7, 2 * CHUNK, MIB - 2 * CHUNK)
    # It is a directory like any other again.
    fpfs(mount, "member", "add", mount.path, leaving)
    assert states(mount) == ["ok", "removed", "ok", "ok"]
    three.members.append(leaving)
    write_pattern(mount.path / "after", 5, MIB)
    assert members_with(mount, "after") == {0, 2, 3}


@pytest.mark.parametrize("replaces", [False, True])
def test_one_that_was_killed_or_interrupted_goes_on(three, drives, make_mount, replaces):
    mount = make_mount(three)
    write_pattern(mount.path / "file", 1, 4 * MIB)
    before = [extent["member"] for extent in extents_of(mount, mount.path / "file")["extents"]]
    leaving, other = three.members[2], drives.paths[3] / three.members[0].name
    words = ("replace", "--limit", "512K", mount.path, leaving, other) if replaces else \
        ("remove", "--limit", "512K", mount.path, leaving)
    terminal = Terminal(three.programs.fpfs, "member", *words, columns=60)
    wait_until(terminal.drawn)
    assert any("moved" in line for line in terminal.drawn())
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 1
    said = screen(terminal.text)
    assert "interrupted" in said[0] and f"fpfs member remove {mount.path} {leaving}" in " ".join(said)
    assert states(mount)[2] == "leaving" and not is_moving(mount)
    if replaces:
        three.members.append(other)
    slow = subprocess.Popen([three.programs.fpfs, "member", "remove", "--limit", "512K", str(mount.path), str(leaving)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: is_moving(mount))
    again = fpfs(mount, "member", "remove", mount.path, leaving, check=False)
    said, = again.stderr.splitlines()
    assert again.returncode == 1 and f"a removal of {leaving} is under way, " in said and " of 4 MiB (" in said
    assert f"fpfs rebalance --wait {mount.path}" in said
    mount.kill()
    assert f"so {leaving} is leaving still: when the array is mounted again, " in slow.communicate(timeout=30)[1]

    mount = make_mount(three)
    assert f"{leaving}, member 2, is leaving the array still: fpfs member remove {mount.path} {leaving}" in mount.log()
    assert states(mount)[2] == "leaving" and is_pattern(mount.path / "file", 1, 4 * MIB)
    fpfs(mount, "member", "remove", "--cancel", mount.path, leaving)
    assert "leaving" not in states(mount)
    fpfs(mount, "rebalance", mount.path)
    assert 2 in members_with(mount, "file")
    fpfs(mount, "member", "remove", mount.path, leaving)
    assert states(mount) == ["ok", "ok", "removed"] + ["ok"] * replaces
    assert 2 not in members_with(mount, "file")
    three.members.remove(leaving)
    mount.unmount()
    three.assert_clean()
    mount = make_mount(three)
    assert is_pattern(mount.path / "file", 1, 4 * MIB) and len(before) == 64


def test_one_that_goes_with_another_is_named(three, make_mount):
    """All that are leaving go together: by whichever command, and whatever ends the moving."""
    mount = make_mount(three)
    write_pattern(mount.path / "file", 1, 4 * MIB)
    first, second = three.members[1:]
    slow = subprocess.Popen([three.programs.fpfs, "member", "remove", "--limit", "512K", mount.path, first],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: is_moving(mount))
    for words in (("rebalance", mount.path), ("member", "remove", mount.path, second)):
        line, = fpfs(mount, *words, check=False).stderr.splitlines()
        assert f"a removal of {first} is under way" in line
        assert f"--cancel ends the moving only (it is leaving still); to keep the member: " \
               f"fpfs member remove --cancel {mount.path} {first}" in line
    cancelled = fpfs(mount, "rebalance", "--cancel", mount.path)
    line, = cancelled.stderr.splitlines()
    goes_on = f"fpfs member remove {mount.path} {first} goes on with it"
    assert "cancelled" in cancelled.stdout and f"note: {first} is leaving: {goes_on}" in line
    assert slow.wait(30) == 1 and goes_on in slow.stderr.read()
    fpfs(mount, "member", "add", mount.path, three.members[0].with_name(three.members[0].name + "-more"))
    three.members.append(three.members[0].with_name(three.members[0].name + "-more"))
    line, = fpfs(mount, "member", "remove", mount.path, second).stderr.splitlines()
    assert f"note: {first} goes with it" in line
    assert f"fpfs member remove --cancel {mount.path} {first}" in line
    assert states(mount) == ["ok", "removed", "removed", "ok"]
    three.members = [three.members[0], three.members[3]]


@pytest.mark.parametrize("json_too", [False, True])
@pytest.mark.parametrize("replaces", [False, True])
def test_who_waits_for_a_removal_that_is_cancelled_is_told(three, drives, make_mount, replaces, json_too):
    """By the exit code, too: behind it somebody unmounts the drive and formats it."""
    mount = make_mount(three)
    write_pattern(mount.path / "file", 1, 4 * MIB)
    leaving, other = three.members[1], drives.paths[3] / three.members[0].name
    words = ("replace", mount.path, leaving, other) if replaces else ("remove", mount.path, leaving)
    waits = subprocess.Popen([three.programs.fpfs, "member", words[0], "--limit", "512K", *["--json"] * json_too, *words[1:]],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: is_moving(mount))
    if replaces:
        three.members.append(other)
    other_waits = subprocess.Popen([three.programs.fpfs, "rebalance", "--wait", mount.path], text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(0.5)
    fpfs(mount, "member", "remove", "--cancel", mount.path, leaving)
    line, = other_waits.communicate(timeout=30)[1].splitlines()
    assert other_waits.returncode == 1 and "cancelled: no member is leaving any more" in line
    line, = fpfs(mount, "rebalance", "--cancel", mount.path, check=False).stderr.splitlines()
    assert "nothing to cancel: no content of a member is being moved" in line
    out, said = waits.communicate(timeout=30)
    line, = said.splitlines()
    assert waits.returncode == 1 and f"{leaving} is a member, and stays one" in line and "From now on" not in out
    assert line.endswith(f"; the array is mounted with {':'.join(map(str, three.members))}")
    assert not json_too or json.loads(out)["members"][1]["state"] == "ok"
    assert is_pattern(mount.path / "file", 1, 4 * MIB)


def test_what_was_on_the_one_is_on_the_other(three, drives, directory, make_mount):
    mount = make_mount(three)
    set_tier(mount, directory.url)
    write_pattern(mount.path / "file", 1, 3 * MIB)
    sync(mount)
    placed = extents_of(mount, mount.path / "file")["extents"]
    broken = [extent for extent in placed if extent["member"] == 1]
    flip(broken[3]["file"], broken[3]["file_offset"] + 100)  # which its copy heals
    leaving, other = three.members[1], drives.paths[3] / three.members[0].name
    fpfs(mount, "member", "replace", mount.path, leaving, other)
    three.members[1] = other
    moved = extents_of(mount, mount.path / "file")["extents"]
    expected = [{1: 3}.get(extent["member"], extent["member"]) for extent in placed]
    assert [extent["member"] for extent in moved] == expected
    assert json.loads(fpfs(mount, "rebalance", "--json", mount.path).stdout)["chunks_moved"] == 0
    assert objects_on(leaving) == []
    assert run(three.programs.mkfs, leaving).returncode == 0, "it is no member of anything"
    mount.unmount()
    three.assert_clean()
    mount = make_mount(three)
    assert is_pattern(mount.path / "file", 1, 3 * MIB)


def test_a_drive_that_fails_in_part_keeps_what_nobody_has_a_copy_of(three, make_mount):
    mount = make_mount(three)
    write_pattern(mount.path / "file", 1, 3 * MIB)
    broken = [extent for extent in extents_of(mount, mount.path / "file")["extents"] if extent["member"] == 1][3]
    flip(broken["file"], broken["file_offset"] + 100)
    result = fpfs(mount, "member", "remove", mount.path, three.members[1], check=False)
    line, = result.stderr.splitlines()
    assert result.returncode == 1 and "1 chunk stays where it is" in line
    chunk = broken["offset"] // broken["length"]
    assert f"/file: 1 chunk ({chunk}): it cannot be read: " in result.stdout
    assert "put the file back from a copy, or remove it, and then the same command again" in result.stdout
    assert states(mount)[1] == "leaving"
    left = [extent for extent in extents_of(mount, mount.path / "file")["extents"] if extent["member"] == 1]
    assert [extent["offset"] for extent in left] == [broken["offset"]]
    (mount.path / "file").unlink()
    fpfs(mount, "member", "remove", mount.path, three.members[1])
    assert states(mount) == ["ok", "removed", "ok"]


def test_what_keeps_it_is_named(three, make_mount):
    """What fsck set aside, and strangers: each by its path, with what to do; and numbers of what is moved only."""
    three.damaged = True
    mount = make_mount(three)
    write_pattern(mount.path / "file", 1, 2 * MIB)
    write_pattern(mount.path / "bad", 2, MIB)
    broken = [extent for extent in extents_of(mount, mount.path / "bad")["extents"] if extent["member"] == 1][3]
    mount.unmount()
    flip(broken["file"], broken["file_offset"] + 100)
    assert three.fsck("-y", "--verify-data").returncode == 1
    (sidecar,) = (three.members[0] / "lost+found").glob("*.sidecar")
    leaving = three.members[1]
    strays = [leaving / "objects/mine", leaving / "objects/07/mine"]
    in_tree = three.members[0] / "tree/mine"  # on no member
    for stray in (*strays, in_tree):
        stray.write_text("not of the array")
    mount = make_mount(three)
    kept = set(objects_on(leaving))
    result = fpfs(mount, "member", "remove", "--json", mount.path, leaving, check=False)
    line, = result.stderr.splitlines()
    assert result.returncode == 1 and "for the reasons under" in line
    moved = json.loads(result.stdout)["moved"]
    assert {left["path"] for left in moved["left"]} == {str(path) for path in (sidecar, *strays)}
    whys = {left["path"]: left["why"] for left in moved["left"]}
    assert str(leaving) in whys[str(sidecar)] and "fsck.fastpersistfs -p" in whys[str(sidecar)]
    assert all("move it elsewhere" in whys[str(stray)] for stray in strays)
    assert (moved["files_done"], moved["chunks_left"]) == (2, 0)
    assert moved["bytes_done"] == moved["bytes_total"] == 2 * MIB and moved["bytes_moved"] < MIB
    assert set(objects_on(leaving)) < kept and broken["file"] in map(str, leaving.glob("objects/*/*"))

    # As it says.
    for path in (in_tree, *strays, *sidecar.parent.iterdir()):
        path.unlink()
    result = fpfs(mount, "member", "remove", mount.path, leaving, check=False)
    assert result.returncode == 1 and f"\n{broken['file']}: no file is known to have it" in result.stdout
    assert "for the reasons above" in result.stderr
    both = subprocess.run([three.programs.fpfs, "member", "remove", mount.path, leaving], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout.splitlines()
    assert "for the reasons above" in both[-1] and any("no file is known to have it" in line for line in both[:-1]), both
    mount.unmount()
    assert three.fsck("-p").returncode == 1
    three.damaged = False
    mount = make_mount(three)
    assert is_pattern(mount.path / "file", 1, 2 * MIB)
    fpfs(mount, "member", "remove", mount.path, leaving)
    assert states(mount) == ["ok", "removed", "ok"] and objects_on(leaving) == []
    write_pattern(mount.path / "removed", 3, MIB)
    with open(mount.path / "removed", "rb") as file:
        (mount.path / "removed").unlink()
        result = fpfs(mount, "member", "remove", mount.path, three.members[2], check=False)
        assert result.returncode == 1 and "removed, and is open still; close it" in result.stdout
        assert fpfs(mount, "rebalance", "--wait", mount.path, check=False).returncode == 1
        assert file.read(100) == pattern(3, 0, 100)
    fpfs(mount, "member", "remove", mount.path, three.members[2])


def test_the_drive_can_be_unmounted_and_one_without_room_stays(make_drive, make_array, make_mount, drives):
    if drives.kind == "directories":
        pytest.skip("no loop devices here: one drive cannot be full alone")
    small, taken = make_drive(64 * MIB), make_drive(256 * MIB)
    array = make_array(chunk_size=CHUNK, paths=[small.path, taken.path])
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 70 * MIB)
    full = fpfs(mount, "member", "remove", mount.path, array.members[1], check=False)
    line, = full.stderr.splitlines()
    assert full.returncode == 1 and "have room for" in line and "nothing was changed" in line
    assert states(mount) == ["ok", "ok"]
    os.truncate(mount.path / "file", 20 * MIB)
    fpfs(mount, "member", "remove", mount.path, array.members[1])
    run("umount", taken.path)  # nobody uses it
    assert is_pattern(mount.path / "file", 1, 20 * MIB)
    write_pattern(mount.path / "after", 2, 4 * MIB)
    assert states(mount) == ["ok", "removed"]
    array.members.pop()
    mount.unmount()
    array.assert_clean()


def test_what_cannot_be_removed_is_refused_in_one_line(three, drives, make_mount):
    mount = make_mount(three)
    empty = drives.paths[3] / f"{three.members[0].name}-none"
    cases = [(1, ("remove", mount.path, three.members[0])), (1, ("remove", mount.path, empty)),
             (1, ("remove", mount.path, mount.path)), (1, ("remove", "--cancel", mount.path, three.members[1])),
             (1, ("replace", mount.path, three.members[0], empty)),
             (1, ("replace", mount.path, three.members[1], three.members[2])),
             (1, ("replace", mount.path, three.members[1], mount.path / "inside")),
             (16, ("remove", mount.path)), (16, ("remove", mount.path, three.members[1], three.members[2])),
             (16, ("replace", mount.path, three.members[1])), (16, ("add", "--cancel", mount.path, empty)),
             (16, ("list", "--limit", "1M", mount.path))]
    for code, words in cases:
        result = fpfs(mount, "member", *words, check=False)
        assert result.returncode == code and len(result.stderr.splitlines()) == 1, (words, result.stderr)
    assert states(mount) == ["ok", "ok", "ok"] and not empty.exists()
    mount.unmount()
    mount = make_mount(three, "ro")
    assert "read-only" in fpfs(mount, "member", "remove", mount.path, three.members[1], check=False).stderr
    mount.unmount()


def test_the_only_member_is_replaced_where_the_names_lie_apart(make_array, drives, make_mount, numbers):
    names = drives.paths[3] / f"names-of-{next(numbers)}"
    array = make_array(chunk_size=CHUNK, paths=drives.paths[:1], format_options=("--meta-dir", str(names)))
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 2 * MIB)
    first, other = array.members[0], drives.paths[1] / array.members[0].name
    line, = fpfs(mount, "member", "remove", mount.path, first, check=False).stderr.splitlines()
    assert "last member" in line
    with open(mount.path / "open", "wb", buffering=0) as file:
        file.write(pattern(2, 0, MIB))
        os.fsync(file.fileno())
        # It is as wide as the array was when it was opened: it has no other member to go to.
        result = fpfs(mount, "member", "replace", mount.path, first, other, check=False)
        assert result.returncode == 1 and f"fpfs member remove {mount.path} {first} goes on" in result.stderr
        array.members.append(other)
        assert states(mount) == ["leaving", "ok"] and members_with(mount, "file") == {1}
        file.write(pattern(2, MIB, MIB))
    fpfs(mount, "member", "remove", mount.path, first)
    assert states(mount) == ["removed", "ok"] and objects_on(first) == []
    array.members = [other]
    mount.unmount()
    array.assert_clean()
    mount = make_mount(array)
    assert is_pattern(mount.path / "file", 1, 2 * MIB) and is_pattern(mount.path / "open", 2, 2 * MIB)


def chunks_of_members(mount, members=4):
    chunks = [0] * members
    for number in range(4):
        for extent in extents_of(mount, mount.path / f"file{number}")["extents"]:
            chunks[extent["member"]] += 1
    return chunks


def test_after_another_was_added_what_is_moved_goes_to_that_one(make_array, drives, make_mount):
    """Not all to one of those that have their share already, which would be full then."""
    array = make_array(chunk_size=CHUNK, paths=drives.paths[:3])
    mount = make_mount(array)
    for number in range(4):
        write_pattern(mount.path / f"file{number}", number, 3 * MIB)
    added = drives.paths[3] / array.members[0].name
    before = chunks_of_members(mount)
    fpfs(mount, "member", "add", mount.path, added)
    array.members.append(added)
    fpfs(mount, "member", "remove", mount.path, array.members[1])
    assert chunks_of_members(mount) == [before[0], 0, before[2], before[1]]
    assert all(is_pattern(mount.path / f"file{number}", number, 3 * MIB) for number in range(4))


def test_what_is_moved_goes_to_those_that_have_room(make_array, drives, make_mount):
    """Whatever the arithmetic of stripes says: one that is fuller than the others is not filled."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: the drives are one")
    array = make_array(chunk_size=CHUNK)
    mount = make_mount(array)
    for number in range(4):
        write_pattern(mount.path / f"file{number}", number, 3 * MIB)
    filling = drives.paths[1] / "filling"
    with open(filling, "wb") as file:
        space = os.statvfs(drives.paths[1])
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize // 2)
    try:
        before = chunks_of_members(mount)
        fpfs(mount, "member", "remove", mount.path, array.members[2])
        after = chunks_of_members(mount)
    finally:
        filling.unlink()
    assert after[1] == before[1] and after[2] == 0 and after[0] > before[0] and after[3] > before[3]
    assert all(is_pattern(mount.path / f"file{number}", number, 3 * MIB) for number in range(4))


@pytest.mark.root
def test_a_new_drive_gets_most_of_what_is_moved(make_drive, make_array, drives, make_mount):
    """Also when the files were made by another number of members, whose stripe says something else."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: no small drives")
    places = [make_drive(96 * MIB).path for _ in range(6)]
    array = make_array(chunk_size=CHUNK, paths=places[:4])
    mount = make_mount(array, "buffer_memory=16M")
    for number in range(4):
        write_pattern(mount.path / f"file{number}", number, 40 * MIB)
    fpfs(mount, "member", "remove", mount.path, array.members[3])
    leaving, new = array.members[1], places[4] / array.members[1].name
    before = chunks_of_members(mount, 5)
    fpfs(mount, "member", "replace", mount.path, leaving, new)
    array.members[1] = new
    after = chunks_of_members(mount, 5)
    assert after[1] == after[3] == 0 and after[4] > 0.7 * before[1]
    # And another one.
    leaving, new = array.members[2], places[5] / array.members[1].name
    fpfs(mount, "member", "replace", mount.path, leaving, new)
    array.members[2] = new
    last = chunks_of_members(mount, 6)
    assert last[2] == 0 and last[5] > 0.7 * after[2], (before, after, last)
    assert all(is_pattern(mount.path / f"file{number}", number, 40 * MIB) for number in range(4))


def test_the_room_of_a_drive_that_comes_back_is_looked_at(make_array, drives, make_mount):
    """Of a member that was removed nobody looks at it any more; the next one has the same device number."""
    if drives.kind == "directories":
        pytest.skip("no loop devices here: the drives are one")
    array = make_array(chunk_size=CHUNK, paths=drives.paths[:3])
    mount = make_mount(array)
    for number in range(4):
        write_pattern(mount.path / f"file{number}", number, 3 * MIB)
    fpfs(mount, "member", "remove", mount.path, array.members[2])
    again = drives.paths[2] / (array.members[2].name + "-again")
    array.members.append(again)
    fpfs(mount, "member", "add", mount.path, again)
    filling = drives.paths[2] / "filling"
    with open(filling, "wb") as file:
        space = os.statvfs(drives.paths[2])
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize // 2)
    try:
        fpfs(mount, "member", "remove", mount.path, array.members[1])
        after = chunks_of_members(mount)
    finally:
        filling.unlink()
    assert after == [4 * 3 * MIB // CHUNK, 0, 0, 0]
