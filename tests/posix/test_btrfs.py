"""Members on btrfs: subvolumes that share one drive's space, and quotas."""
import os
import shutil

import pytest

from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import attempt

MIB = 1 << 20
pytestmark = [pytest.mark.P6, pytest.mark.root,
              pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="needs btrfs-progs")]


@pytest.fixture
def btrfs(make_drive, drives):
    if drives.kind == "directories":
        pytest.skip("no loop devices here")
    return make_drive(512 * MIB, "btrfs").path


def subvolumes(where, count):
    paths = [where / f"volume{number}" for number in range(count)]
    for path in paths:
        run("btrfs", "subvolume", "create", path)
    return paths


def test_space_that_subvolumes_share_counts_once(btrfs, make_array, make_mount):
    native = os.statvfs(btrfs)
    mount = make_mount(make_array(paths=subvolumes(btrfs, 3)))
    seen = os.statvfs(mount.path)
    total, there = seen.f_blocks * seen.f_frsize, native.f_blocks * native.f_frsize
    assert 0.95 * there <= total <= 1.05 * there
    available = seen.f_bavail * seen.f_frsize
    assert available <= native.f_bavail * native.f_frsize
    assert available >= 0.7 * native.f_bavail * native.f_frsize
    write_pattern(mount.path / "file", 1, 20 * MIB)
    mount.remount()
    assert is_pattern(mount.path / "file", 1, 20 * MIB)


def fill(path):
    """What refused the writer: by write, fsync or close."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    said = set()
    for offset in range(0, 200 * MIB, MIB):
        result = attempt(os.write, descriptor, pattern(1, offset, MIB))
        if isinstance(result, str):
            said.add(result)
            break
    said |= {attempt(os.fsync, descriptor), attempt(os.close, descriptor)}
    return said - {None}


@pytest.mark.P4
def test_a_quota_refuses_by_its_name(btrfs, make_array, make_mount):
    """EDQUOT, not ENOSPC: the user is told what to do something about."""
    run("btrfs", "quota", "enable", btrfs)
    native, *members = subvolumes(btrfs, 3)
    for path in (native, *members):
        run("btrfs", "qgroup", "limit", "24M", path)
    mount = make_mount(make_array(paths=members))
    write_pattern(mount.path / "kept", 2, 8 * MIB)
    assert fill(native / "file") == {"EDQUOT"}
    assert fill(mount.path / "file") == {"EDQUOT"}
    assert is_pattern(mount.path / "kept", 2, 8 * MIB)
    os.unlink(mount.path / "file")
