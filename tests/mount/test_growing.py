"""Members that are added to an array in use, and what it holds spread over them."""
import json
import os
import re
import shutil
import subprocess

import pytest

from lab.array import MountFailed
from lab.copies import fpfs, set_tier, state, sync
from lab.damage import extents_of, flip
from lab.data import is_pattern, pattern, write_pattern
from lab.system import wait_until
pytestmark = [pytest.mark.P1, pytest.mark.P7]

MIB = 1 << 20
CHUNK = 65536



def chunks_by_member(mount, name):
    counts = {}
    for extent in extents_of(mount, mount.path / name)["extents"]:
        counts[extent["member"]] = counts.get(extent["member"], 0) + 1
    return counts


@pytest.fixture
def narrow(make_array, drives):
    return make_array(chunk_size=CHUNK, paths=drives.paths[:2])


def test_an_array_grows_while_it_is_in_use(narrow, drives, make_mount):
    mount = make_mount(narrow)
    write_pattern(mount.path / "before", 1, 3 * MIB)
    added = [drives.paths[index] / narrow.members[0].name for index in (2, 3)]
    copy = narrow.members[0].with_name(f"{narrow.members[0].name}-copy")
    shutil.copytree(narrow.members[0], copy)
    with open(mount.path / "during", "wb", buffering=0) as during:
        during.write(pattern(2, 0, MIB))
        # By a name of its own, which the daemon does not share: it is another directory there.
        relative = os.path.relpath(added[0])
        text = fpfs(mount, "member", "add", mount.path, relative, added[1]).stdout
        assert f"{narrow.argument}:{added[0]}:{added[1]}" in text, "how to mount it from now on"
        during.write(pattern(2, MIB, MIB))
    listed = json.loads(fpfs(mount, "member", "list", "--json", mount.path).stdout)
    assert [member["path"] for member in listed["members"]] == [str(path) for path in [*narrow.members, *added]]
    assert [member["index"] for member in listed["members"]] == [0, 1, 2, 3]
    assert all(member["state"] == "ok" and member["space_total"] > 0 for member in listed["members"])
    assert len({member["id"] for member in listed["members"]}) == 4
    assert mount.status()["array"]["member_count"] == 4

    write_pattern(mount.path / "after", 3, 3 * MIB)
    assert chunks_by_member(mount, "after") == {0: 12, 1: 12, 2: 12, 3: 12}
    assert chunks_by_member(mount, "during") == {0: 16, 1: 16}
    assert chunks_by_member(mount, "before") == {0: 24, 1: 24}
    old = list(narrow.members)
    mount.unmount()

    with pytest.raises(MountFailed) as refused:
        make_mount(narrow)
    line, = str(refused.value).strip().splitlines()
    assert "has 4 members" in line and "missing 2, 3" in line
    narrow.members = [copy, old[1], *added]
    with pytest.raises(MountFailed) as refused:
        make_mount(narrow)
    line, = str(refused.value).strip().splitlines()
    assert f"{copy}: it is an older copy: {old[1]} was in array" in line
    shutil.rmtree(copy)

    narrow.members = [*added, *old]
    narrow.assert_clean()
    mount = make_mount(narrow)
    assert is_pattern(mount.path / "during", 2, 2 * MIB)
    assert "Nothing was moved" in fpfs(mount, "rebalance", "--wait", mount.path).stdout
    slow = subprocess.Popen([narrow.programs.fpfs, "rebalance", "--limit", "2M", "--json", str(mount.path)],
                            stdout=subprocess.PIPE, text=True)
    wait_until(lambda: "running" in fpfs(mount, "rebalance", "--status", mount.path).stdout)
    second, = fpfs(mount, "rebalance", mount.path, check=False).stderr.splitlines()
    assert "a rebalance is under way, " in second and f"fpfs rebalance --wait {mount.path} waits for it" in second
    waited = json.loads(fpfs(mount, "rebalance", "--wait", "--json", mount.path).stdout)
    moved = json.loads(slow.communicate(timeout=30)[0])
    assert slow.returncode == 0 and waited == moved
    assert moved["state"] == "finished" and moved["chunks_left"] == 0 and moved["chunks_moved"] > 0
    for name, size in (("before", 12), ("during", 8), ("after", 12)):
        assert chunks_by_member(mount, name) == {member: size for member in range(4)}
    again = json.loads(fpfs(mount, "rebalance", "--json", mount.path).stdout)
    assert again["state"] == "finished" and again["chunks_moved"] == 0
    mount.kill()  # what was moved is durable

    mount = make_mount(narrow)
    assert is_pattern(mount.path / "before", 1, 3 * MIB) and is_pattern(mount.path / "after", 3, 3 * MIB)
    assert is_pattern(mount.path / "during", 2, 2 * MIB)


def test_a_rebalance_whose_array_is_unmounted(narrow, drives, make_mount):
    mount = make_mount(narrow)
    write_pattern(mount.path / "file", 1, 3 * MIB)
    added = drives.paths[2] / narrow.members[0].name
    fpfs(mount, "member", "add", mount.path, added)
    narrow.members.append(added)
    waiting = subprocess.Popen([narrow.programs.fpfs, "rebalance", "--limit", "256K", str(mount.path)],
                               stderr=subprocess.PIPE, text=True)
    wait_until(lambda: "running" in fpfs(mount, "rebalance", "--status", mount.path).stdout)
    mount.unmount()
    said, = waiting.communicate(timeout=60)[1].splitlines()
    assert waiting.returncode == 1 and "it ended before the rebalance did" in said
    assert f"fpfs rebalance {mount.path} goes on" in said
    mount.start()
    fpfs(mount, "rebalance", mount.path)


def test_what_moves_is_not_copied_again_and_its_copy_still_heals(narrow, drives, directory, make_mount):
    mount = make_mount(narrow, "compress=zstd")
    set_tier(mount, directory.url)
    write_pattern(mount.path / "file", 2, 3 * MIB)
    sync(mount)
    copy = (directory.path / "file").stat()
    narrow.members.append(drives.paths[2] / narrow.members[0].name)
    fpfs(mount, "member", "add", mount.path, narrow.members[2])
    before = os.stat(mount.path / "file")
    fpfs(mount, "rebalance", "--limit", "1G", mount.path)
    after = os.stat(mount.path / "file")
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    sync(mount)
    again = (directory.path / "file").stat()
    assert (again.st_ino, again.st_mtime_ns) == (copy.st_ino, copy.st_mtime_ns)
    assert state(mount.path / "file") == "copied"

    moved = [extent for extent in extents_of(mount, mount.path / "file")["extents"] if extent["member"] == 2]
    assert len(moved) == 16 and {extent["codec"] for extent in moved} != {"raw"}
    flip(moved[3]["file"], moved[3]["file_offset"] + 100)
    fpfs(mount, "verify", mount.path / "file")
    assert mount.status()["healing"]["healed"] == 1
    assert is_pattern(mount.path / "file", 2, 3 * MIB)


def test_what_stays_where_it_is_is_named_with_the_reason(narrow, drives, make_mount):
    narrow.damaged = True
    mount = make_mount(narrow)
    for name in ("bad", "written"):
        write_pattern(mount.path / name, 1, 3 * MIB)
    narrow.members.append(drives.paths[2] / narrow.members[0].name)
    fpfs(mount, "member", "add", mount.path, narrow.members[2])
    for place in extents_of(mount, mount.path / "bad")["extents"][1:7]:  # of which two at least are to be moved
        flip(place["file"], place["file_offset"] + 100)
    with open(mount.path / "written", "r+b", buffering=0) as writer:
        writer.write(b"new")
        result = fpfs(mount, "rebalance", mount.path, check=False)
        line, = result.stderr.splitlines()
        assert result.returncode == 1 and "chunks stay where they are" in line and f"rebalance {mount.path}" in line
        for expected in (r"/bad: \d chunks? \([1-6, -]+\): it cannot be read: .*checksum",
                         r"/written: \d+ chunks \(\d.*\): it is being written; "):
            assert re.search(f"^{expected}", result.stdout, re.MULTILINE), result.stdout
        assert re.search(r"warning rebalance: /bad: \d chunks? \(.*\) w\w+ not moved: it cannot", mount.log())
    result = fpfs(mount, "rebalance", "--json", mount.path, check=False)
    left = json.loads(result.stdout)["left"]
    assert {one["path"] for one in left} == {"/bad"} and all("cannot be read" in one["why"] for one in left)
    chunks = [chunk for one in left for chunk in one["first_chunks"]]
    assert len(chunks) == sum(one["chunks"] for one in left) and set(chunks) <= set(range(1, 7))
    assert f"{len(chunks)} chunks stay where they are" in result.stderr


def test_what_cannot_be_added_is_refused_in_one_line(narrow, drives, make_mount, make_array):
    other = make_array(paths=drives.paths[2:4])
    mount = make_mount(narrow)
    foreign = drives.paths[2] / f"{narrow.members[0].name}-foreign"
    foreign.mkdir()
    (foreign / "mine").write_text("not yours")
    (mount.path / "inside").mkdir()
    for directory in (foreign, narrow.members[1], narrow.members[0] / "objects", foreign / "absent" / "absent", mount.path,
                      mount.path / "inside", mount.path / "absent" / "absent"):
        result = fpfs(mount, "member", "add", mount.path, directory, check=False)
        assert result.returncode == 1 and str(directory) in result.stderr and len(result.stderr.splitlines()) == 1
        assert "--force" not in result.stderr  # which is mkfs's
    assert "of this array already" in fpfs(mount, "member", "add", mount.path, narrow.members[1], check=False).stderr
    result = fpfs(mount, "member", "add", mount.path, other.members[1], check=False)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert f"{other.members[1]}: it is member 1 of another array, " in result.stderr and "not needed" in result.stderr
    (foreign / "mine").unlink()
    for words in (("add", mount.path), ("list", mount.path, foreign)):
        result = fpfs(mount, "member", *words, check=False)
        assert result.returncode == 16 and len(result.stderr.splitlines()) == 1
    assert fpfs(mount, "member", "list", drives.paths[2], check=False).returncode == 1
    assert mount.status()["array"]["member_count"] == 2
    nothing = json.loads(fpfs(mount, "rebalance", "--json", mount.path).stdout)
    assert nothing["state"] == "finished" and nothing["chunks_moved"] == 0
    # The directory that holds nothing any more is taken.
    fpfs(mount, "member", "add", mount.path, foreign)
    narrow.members.append(foreign)
