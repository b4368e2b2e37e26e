"""Member directories that are missing, moved, foreign or copied: never a guess, always one sentence."""
import errno
import os
import shutil

import pytest

from lab.array import MountFailed
from lab.data import is_pattern, write_pattern
from lab.programs import run

pytestmark = pytest.mark.P7

MIB = 1 << 20


def refusal(make_mount, array, *options):
    with pytest.raises(MountFailed) as refused:
        make_mount(array, *options)
    lines = str(refused.value).strip().splitlines()
    assert len(lines) == 1, f"one line was expected: {refused.value}"
    return lines[0]


@pytest.fixture
def filled(array, make_mount):
    """An array that holds two files, unmounted."""
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 9 * MIB)
    write_pattern(mount.path / "small", 2, 100)
    mount.unmount()
    return array


def check_content(mount):
    assert is_pattern(mount.path / "file", 1, 9 * MIB) and is_pattern(mount.path / "small", 2, 100)


def test_order_of_directories_does_not_matter(filled, make_mount):
    for order in ([3, 2, 1, 0], [1, 3, 0, 2]):
        filled.members = [filled.members[index] for index in order]
        mount = make_mount(filled)
        check_content(mount)
        mount.unmount()


def test_moved_directories_are_found_by_their_superblock(filled, make_mount):
    """Two members that changed their paths: what they are is written in them."""
    one, two = filled.members[1], filled.members[2]
    parked = one.with_name(one.name + "-parked")
    shutil.copytree(one, parked)
    shutil.rmtree(one)
    shutil.copytree(two, one)
    shutil.rmtree(two)
    shutil.copytree(parked, two)
    shutil.rmtree(parked)
    check_content(make_mount(filled))


def test_a_backup_of_all_directories_comes_back(filled, make_mount, drives):
    """As docs/operations.md says: copied while it is not mounted, an array like any; put back into empty directories."""
    backup = [drives.paths[0] / f"{filled.members[0].name}-backup{index}" for index in range(len(filled.members))]
    for member, copy in zip(filled.members, backup):
        run("cp", "-a", "--sparse=always", member, copy)
    mount = make_mount(filled)
    (mount.path / "small").unlink()
    write_pattern(mount.path / "file", 3, 5 * MIB)
    mount.unmount()

    now = filled.members
    filled.members = [*now[:2], backup[2], *now[3:]]
    assert str(backup[2]) in refusal(make_mount, filled), "one directory of it among newer ones is not taken"
    filled.members = backup
    filled.assert_clean()
    filled.members = now
    for member, copy in zip(now, backup):
        shutil.rmtree(member)
        run("cp", "-a", "--sparse=always", copy, member)
        shutil.rmtree(copy)
    check_content(make_mount(filled))



@pytest.mark.parametrize("index", [0, 3])
def test_missing_directory(filled, make_mount, index):
    filled.damaged = True
    parked = filled.members[index].with_name("parked")
    filled.members[index].rename(parked)
    try:
        assert str(filled.members[index]) in refusal(make_mount, filled)
        assert not filled.members[index].exists()
        filled.members[index].mkdir()  # empty: the drive is not mounted
        assert str(filled.members[index]) in refusal(make_mount, filled)
        assert os.listdir(filled.members[index]) == []  # nothing was formatted
        filled.members[index].rmdir()
    finally:
        parked.rename(filled.members[index])
    check_content(make_mount(filled))


def test_too_few_directories_named(filled, make_mount):
    whole = filled.members
    filled.members = whole[:3]
    assert "4" in refusal(make_mount, filled)
    filled.members = whole


def test_same_directory_twice(filled, make_mount):
    whole = filled.members
    filled.members = whole[:3] + whole[:1]
    assert str(whole[0]) in refusal(make_mount, filled)
    filled.members = whole


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/hostname", path)],
                         ids=["directory", "pipe", "link"])
def test_what_lies_where_the_record_of_the_mount_is_written(filled, make_mount, make):
    """Nothing hangs, nothing else is written to, and whoever mounts is told what to do."""
    path = filled.members[1] / "mount.new"
    path.unlink()
    make(path)
    with pytest.raises(MountFailed, match="'mount.new' in it is no file, so the array did not make it; remove it"):
        make_mount(filled)
    os.rmdir(path) if path.is_dir() else path.unlink()
    make_mount(filled).unmount()
    filled.assert_clean()


def test_member_of_another_array(filled, make_array, make_mount):
    other = make_array()
    whole = filled.members
    filled.members = whole[:3] + other.members[3:]
    message = refusal(make_mount, filled)
    assert str(other.members[3]) in message or str(whole[0]) in message
    filled.members = whole


def test_copied_member(filled, make_mount, drives):
    """A copy of member 1 in the place of member 2: the same member twice."""
    whole = list(filled.members)
    copy = drives.paths[2] / "copy"
    shutil.copytree(whole[1], copy)
    try:
        filled.members = [whole[0], whole[1], copy, whole[3]]
        message = refusal(make_mount, filled)
        assert str(copy) in message or str(whole[1]) in message
    finally:
        filled.members = whole
        shutil.rmtree(copy)
    check_content(make_mount(filled))


def test_degraded_read_only(filled, make_mount):
    """With a member missing, `ro,degraded` gives what is left: names, and content that lies elsewhere."""
    filled.damaged = True
    parked = filled.members[2].with_name("parked")
    filled.members[2].rename(parked)
    try:
        whole, filled.members = filled.members, [m for m in filled.members if m.exists()]
        mount = make_mount(filled, "ro", "degraded")
        assert sorted(os.listdir(mount.path)) == ["file", "small"]
        assert is_pattern(mount.path / "small", 2, 100)
        good = bad = 0
        with open(mount.path / "file", "rb", buffering=0) as file:
            for chunk in range(9):
                try:
                    os.pread(file.fileno(), MIB, chunk * MIB)
                    good += 1
                except OSError:
                    bad += 1
        assert good >= 6 and bad >= 2
        result = run(filled.programs.fpfs, "verify", mount.path / "file", check=False)
        assert result.returncode == 4 and "damaged (" not in result.stderr and "lost" not in result.stderr
        assert f"{mount.path}/file: {bad} of 9 chunks cannot be read (" in result.stderr
        assert "(missing)/" not in result.stderr + mount.log() and "the member is missing (member 2," in result.stderr
        assert "does not mean damage" in result.stderr and len(result.stderr.splitlines()) == 1
        assert [bool(member["id"]) for member in mount.status()["members"]] == [True, True, False, True]
        mount.unmount()
        filled.members = whole
    finally:
        parked.rename(filled.members[2])


def test_read_only_mount_changes_nothing(filled, make_mount):
    before = [(path, path.stat().st_mtime_ns, path.stat().st_size)
              for member in filled.members for path in sorted(member.rglob("*")) if path.name != "lock"]
    mount = make_mount(filled, "ro")
    check_content(mount)
    for action in (lambda: (mount.path / "new").touch(), lambda: os.truncate(mount.path / "file", 0),
                   lambda: os.unlink(mount.path / "file"), lambda: os.chmod(mount.path / "file", 0o600)):
        with pytest.raises(OSError) as refused:
            action()
        assert refused.value.errno == errno.EROFS
    mount.unmount()
    assert before == [(path, path.stat().st_mtime_ns, path.stat().st_size)
                      for member in filled.members for path in sorted(member.rglob("*")) if path.name != "lock"]


# --- members of another time ------------------------------------------------------------------------------------------


def objects_of(array):
    """Every object there is, with the space that it takes."""
    return {str(path): path.stat().st_blocks for member in array.members for path in (member / "objects").rglob("*.*")}


class OldMember:
    """A copy of one member, made now; put_back() has it take the member's place, bring_right() undoes that."""

    def __init__(self, array, index, tool):
        self.place = array.members[index]
        self.copy = self.place.with_name(self.place.name + "-copy")
        self.right = self.place.with_name(self.place.name + "-right")
        if tool == "rsync":
            run("rsync", "-aHAX", "--delete", f"{self.place}/", f"{self.copy}/")
        else:
            run("cp", "-a", f"--reflink={'auto' if tool == 'cp' else 'always'}", self.place, self.copy)

    def put_back(self):
        self.place.rename(self.right)
        self.copy.rename(self.place)

    def bring_right(self):
        self.place.rename(self.copy)
        self.right.rename(self.place)

    def remove(self):
        for path in (self.copy, self.right):
            shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def copy_member(drives):
    made = []

    def copy(array, index, tool="cp"):
        made.append(OldMember(array, index, tool))
        return made[-1]

    yield copy
    for old in made:
        old.remove()


@pytest.mark.parametrize("index, tool", [(0, "rsync"), (2, "cp"), (0, "reflink")])
def test_a_member_that_missed_a_mount(filled, make_mount, copy_member, drives, index, tool):
    """A backup that was restored, or a stale clone, after a crash: refused, and nothing of the newer checkpoints is freed."""
    if tool == "reflink" and drives.kind != "xfs":
        pytest.skip("its filesystem has no reflinks")
    filled.damaged = True
    mount = make_mount(filled)
    old = copy_member(filled, index, tool)
    mount.unmount()
    mount.start()
    write_pattern(mount.path / "newer", 3, 40 * MIB)
    mount.kill()
    old.put_back()
    before = objects_of(filled)
    message = refusal(make_mount, filled)
    assert str(filled.members[index]) in message and "1 mount older" in message and "degraded" in message
    for option in ("-n", "-p", "-y"):
        status, report = filled.fsck_report(option)
        # Without the newer content of that member there is more to report, which only -n looks at.
        assert status == 4 and report["errors"][0]["kind"] == "older-member" and report["repaired"] == 0
        assert report["errors"][0]["member"] == index and "1 mount older" in report["errors"][0]["detail"]
    verdict = filled.fsck("-n").stdout
    assert "INCOMPLETE: 1 member is older than the others, of which " in verdict and "DAMAGED" not in verdict
    assert objects_of(filled) == before
    old.bring_right()
    mount = make_mount(filled)
    check_content(mount)
    assert is_pattern(mount.path / "newer", 3, 40 * MIB)
    mount.unmount()
    filled.assert_clean()


def test_a_member_from_within_a_mount(filled, make_mount, copy_member):
    """Copied while it was mounted, put back after the array was unmounted."""
    mount = make_mount(filled)
    old = copy_member(filled, 0)
    write_pattern(mount.path / "newer", 3, 9 * MIB)
    mount.unmount()
    old.put_back()
    assert "from within mount 2" in refusal(make_mount, filled)
    old.bring_right()


def test_reading_beside_an_old_member(filled, make_mount, copy_member):
    """When the newer state of a member is lost: ro and degraded give what is whole, and say what it is."""
    filled.damaged = True
    old = copy_member(filled, 3)
    mount = make_mount(filled)
    write_pattern(mount.path / "newer", 3, 40 * MIB)
    mount.unmount()
    old.put_back()
    before = objects_of(filled)
    assert "older" in refusal(make_mount, filled, "ro")
    mount = make_mount(filled, "ro", "degraded")
    check_content(mount)
    with pytest.raises(OSError) as failure:
        (mount.path / "newer").read_bytes()
    assert failure.value.errno == errno.EIO
    status = mount.status()
    assert status["state"] == "degraded"
    assert [member["state"] for member in status["members"]] == ["ok", "ok", "ok", "outdated"]
    assert "1 mount older" in mount.log()
    mount.unmount()
    assert objects_of(filled) == before


def test_a_repair_counts_as_a_mount(filled, make_mount, copy_member):
    """What fsck -p changed, a copy of before has not seen."""
    old = copy_member(filled, 1)
    assert filled.fsck("-p").returncode == 0
    old.put_back()
    assert "1 mount older" in refusal(make_mount, filled)
    old.bring_right()
    check_content(make_mount(filled))
