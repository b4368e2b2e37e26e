"""Names that a close or an fsync(2) made durable, on the three filesystems of which the engine believes that a file's own sync
covers them (Storage::syncs_own_names()): the drive as it is when the call has returned is what a power cut leaves.

The simulation has this in tests/engine/store/own_names_test.cpp, also where only the sync of a directory does it; sequences of
such calls on XFS and ext4 are in tests/ace.
"""
import os

import pytest

from lab.data import is_pattern, write_pattern
from lab.system import RENAME_EXCHANGE, renameat2

pytestmark = [pytest.mark.P1, pytest.mark.root]

MIB = 1 << 20


def fsync(path, flags=os.O_RDONLY):
    descriptor = os.open(path, flags, 0o644)
    os.fsync(descriptor)
    os.close(descriptor)


def create(folder):
    write_pattern(folder / "file", 1, 1000)


def create_large(folder):
    write_pattern(folder / "file", 1, 300_000)


def create_empty(folder):
    fsync(folder / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def link(folder):
    os.link(folder.parent / "old", folder / "file")
    fsync(folder / "file")


def rename(folder):
    os.rename(folder.parent / "old", folder / "file")
    fsync(folder / "file")


def rename_open(folder):
    """Whoever has it open has synced it before, and changes nothing any more."""
    descriptor = os.open(folder.parent / "open", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    os.write(descriptor, b"y" * 1000)
    os.fsync(descriptor)
    os.rename(folder.parent / "open", folder / "elsewhere")
    os.rename(folder / "elsewhere", folder / "file")
    os.fsync(descriptor)
    os.close(descriptor)


def exchange(folder):
    write_pattern(folder / "file", 3, 700)
    write_pattern(folder / "other", 2, 5000)
    fsync(folder)
    renameat2(folder / "other", folder / "file", RENAME_EXCHANGE)
    fsync(folder / "file")


def exchange_open(folder):
    """As rename_open, across directories."""
    write_pattern(folder / "file", 3, 700)
    descriptor = os.open(folder.parent / "other", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    os.write(descriptor, b"y" * 1000)
    os.fsync(descriptor)
    fsync(folder)
    renameat2(folder.parent / "other", folder / "file", RENAME_EXCHANGE)
    os.fsync(descriptor)
    os.close(descriptor)


def link_unnamed(folder):
    descriptor, proc = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644), os.open("/proc", os.O_PATH)
    os.write(descriptor, b"x" * 1000)
    os.link(f"self/fd/{descriptor}", folder / "file", src_dir_fd=proc, follow_symlinks=True)
    os.fsync(descriptor)
    os.close(descriptor)
    os.close(proc)


def create_below_a_renamed(folder):
    """The directory was on the drive under another name, and one below it."""
    folder.rmdir()
    before = folder.parent / "before"
    (before / "below").mkdir(parents=True)
    for synced in (before / "below", before, folder.parent):
        fsync(synced)
    before.rename(folder)
    write_pattern(folder / "below" / "file", 1, 1000)
    return folder / "below" / "file"


CASES = {create: (1, 1000), create_large: (1, 300_000), create_empty: b"", link: (2, 5000), link_unnamed: b"x" * 1000,
         create_below_a_renamed: (1, 1000), rename_open: b"y" * 1000, exchange: (2, 5000), exchange_open: b"y" * 1000,
         rename: (2, 5000)}


@pytest.mark.parametrize("kind", ["xfs", "ext4", "btrfs"])
def test_a_name_is_there_after_a_power_cut(make_drive, make_array, make_mount, kind):
    drive = make_drive(320 * MIB, kind)
    mount = make_mount(make_array(chunk_size=65536, paths=[drive.path]), "buffer_memory=16M")
    write_pattern(mount.path / "old", 2, 5000)
    for make, expected in CASES.items():
        folder = mount.path / make.__name__
        folder.mkdir()  # nobody syncs it: new names above a new name come with it
        path = make(folder) or folder / "file"
        drive.keep()
        mount.kill()
        drive.go_back()
        mount.start()
        assert folder.is_dir() and path.exists(), make.__name__
        if isinstance(expected, bytes):
            assert path.read_bytes() == expected, make.__name__
        else:
            assert is_pattern(path, *expected), make.__name__
