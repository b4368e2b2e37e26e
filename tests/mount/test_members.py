"""Member directories that are missing, moved, foreign or copied: never a guess, always one sentence."""
import errno
import os
import shutil

import pytest

from lab.array import MountFailed
from lab.data import is_pattern, write_pattern

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
