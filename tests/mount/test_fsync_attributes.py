"""What fsync(2) of a file makes durable beside its content, and through which handles: shown by a power cut behind it.

Each case runs on plain XFS and ext4 as well: what is asked of the mount is what they do. Every short sequence of such calls,
with syncs in every place: tests/ace.
"""
import ctypes
import os
import struct

import pytest

from lab.data import is_pattern, write_pattern
from lab.system import attempt, libc, wait_until

pytestmark = [pytest.mark.P1, pytest.mark.root]

MIB = 1 << 20
# Owner rw-, user 1000 r--, group r--, mask r--, others nothing: linux/posix_acl_xattr.h.
ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, permissions, who) for tag, permissions, who in
                                      ((1, 6, 0xFFFFFFFF), (2, 4, 1000), (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF),
                                       (32, 0, 0xFFFFFFFF)))


def with_descriptor(path, call, flags=os.O_RDONLY):
    descriptor = os.open(path, flags)
    try:
        return call(descriptor)
    finally:
        os.close(descriptor)


def sync_drives(drives):
    for drive in drives:
        with_descriptor(drive.path, libc.syncfs)


def close_all(descriptors):
    for descriptor in descriptors:
        attempt(os.close, descriptor)


class Plain:
    """`cut`: the power goes, what is open then is closed, and everything is there again."""

    def __init__(self, drive):
        self.drives, self.path = [drive], drive.path

    def cut(self, *descriptors):
        for drive in self.drives:
            drive.shut_down()
        close_all(descriptors)
        for drive in self.drives:
            drive.remount()


class OnMount:
    def __init__(self, drives, array, mount):
        self.drives, self.array, self.mount, self.path = drives, array, mount, mount.path

    def cut(self, *descriptors):
        self.mount.freeze()
        for drive in self.drives:
            drive.shut_down()
        self.mount.kill()
        close_all(descriptors)
        for drive in self.drives:
            drive.remount()
        self.mount.start()


@pytest.fixture
def make_place(make_drive, make_array, make_mount):
    """make_place("plain xfs") or make_place("xfs", *mount_options)."""
    def make(kind, *options):
        if kind.startswith("plain "):
            return Plain(make_drive(320 * MIB, kind.removeprefix("plain ")))
        drives = [make_drive(320 * MIB, kind) for _ in range(2)]
        array = make_array(chunk_size=65536, paths=[drive.path for drive in drives])
        return OnMount(drives, array, make_mount(array, "buffer_memory=16M", *options))

    return make


EVERYWHERE = pytest.mark.parametrize("kind", ["plain xfs", "plain ext4", "xfs", "ext4"])
MEMBERS = pytest.mark.parametrize("kind", ["xfs", "ext4"])

# What is done to A/file (which has a second name, A/second, and an attribute user.old), and its name from then on.
CHANGES = {
    "chmod": lambda a, b: os.chmod(a / "file", 0o604),
    "chown": lambda a, b: os.chown(a / "file", 1001, 1002),
    "utimensat": lambda a, b: os.utime(a / "file", ns=(1_000_000_000_000_000_001, 1_100_000_000_000_000_002)),
    "setxattr": lambda a, b: os.setxattr(a / "file", "user.new", b"value"),
    "removexattr": lambda a, b: os.removexattr(a / "file", "user.old"),
    "acl": lambda a, b: os.setxattr(a / "file", "system.posix_acl_access", ACL),
    "rename": lambda a, b: os.rename(a / "file", a / "moved"),
    "rename-over": lambda a, b: os.rename(a / "file", b / "covered"),
    "link": lambda a, b: os.link(a / "file", b / "linked"),
    "unlink-one-name": lambda a, b: os.unlink(a / "second"),
}
NAMES_AFTER = {"rename": "A/moved", "rename-over": "B/covered"}


def look(root):
    """Names, attributes and content: everything that a change may change but the times nobody set."""
    found = {}
    for path in sorted(root.glob("[AB]/*")):
        status = path.stat()
        xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink,
                                              status.st_mtime_ns, xattrs, path.read_bytes())
    return found


def set_up(place):
    """Committed, and in the journals of nobody's making any more."""
    root = place.path / "root"
    for directory in (root, root / "A", root / "B"):
        directory.mkdir()
    write_pattern(root / "A/file", 1, 100_000)
    os.setxattr(root / "A/file", "user.old", b"old")
    os.link(root / "A/file", root / "A/second")
    write_pattern(root / "B/covered", 2, 1000)  # without objects, which a sync in the background would free
    for path in (*root.glob("*/*"), root / "A", root / "B", root, place.path):
        with_descriptor(path, os.fsync)
    sync_drives(place.drives)
    return root


@pytest.mark.parametrize("change", CHANGES)
@EVERYWHERE
def test_fsync_keeps_what_changed_beside_the_content(make_place, kind, change):
    place = make_place(kind)
    root = set_up(place)
    before = look(root)
    CHANGES[change](root / "A", root / "B")
    with_descriptor(root / NAMES_AFTER.get(change, "A/file"), os.fsync)
    expected = look(root)
    assert expected != before
    place.cut()
    assert look(root) == expected


@pytest.mark.parametrize("change", ["chmod", "setxattr"])
@EVERYWHERE
def test_through_a_handle_that_could_write(make_place, kind, change):
    """With content that was written through it before, and committed."""
    place = make_place(kind)
    root = set_up(place)
    descriptor = os.open(root / "A/file", os.O_RDWR)
    os.pwrite(descriptor, b"new", 50_000)
    os.fsync(descriptor)
    CHANGES[change](root / "A", root / "B")
    os.fsync(descriptor)
    expected = look(root)
    place.cut(descriptor)
    assert look(root) == expected


# --- durable=fsync: content, through whatever handle ------------------------------------------------------------------
#
# Content that fits the sidecar goes there when it is closed, without a sync: whoever opens the file next has to know.


@pytest.fixture
def relaxed(make_place, kind):
    """A mount with durable=fsync, and a file "file" in it with content that is durable."""
    place = make_place(kind, "durable=fsync")
    write_pattern(place.path / "file", 1, 900)
    with_descriptor(place.path / "file", os.fsync, os.O_RDWR)
    with_descriptor(place.path, os.fsync)
    sync_drives(place.drives)
    return place


def sidecar_of(place, path):
    return place.array.members[0] / "tree" / path.name


def write_and_wait(place, path, version, size):
    """Until the record is written, and nobody has the file open any more."""
    sidecar = sidecar_of(place, path)
    before = sidecar.stat().st_size if sidecar.exists() else 0
    write_pattern(path, version, size)
    wait_until(lambda: sidecar.stat().st_size > before)
    wait_until(lambda: not place.mount.status()["open_files"])


@pytest.mark.parametrize("size", [1000, 300_000])
@MEMBERS
def test_fsync_through_a_handle_that_only_reads(relaxed, size):
    path = relaxed.path / "file"
    write_and_wait(relaxed, path, 2, size)
    with_descriptor(path, os.fsync)
    relaxed.cut()
    assert is_pattern(path, 2, size), f"{path.stat().st_size} of {size} bytes"


@pytest.mark.parametrize("through", ["reader", "writer"])
@MEMBERS
def test_fsync_of_a_file_that_a_reader_opened_first(relaxed, through):
    path = relaxed.path / "file"
    write_and_wait(relaxed, path, 2, 1000)
    reader, writer = os.open(path, os.O_RDONLY), os.open(path, os.O_WRONLY)
    os.fsync(reader if through == "reader" else writer)
    relaxed.cut(reader, writer)
    assert is_pattern(path, 2, 1000), f"{path.stat().st_size} of 1000 bytes"


@pytest.mark.parametrize("size", [1000, 300_000])
@MEMBERS
def test_replaced_by_a_file_that_somebody_reads(relaxed, size):
    path, temporary = relaxed.path / "file", relaxed.path / "file.new"
    write_and_wait(relaxed, temporary, 2, size)
    reader = os.open(temporary, os.O_RDONLY)
    os.rename(temporary, path)
    with_descriptor(relaxed.path, os.fsync)
    relaxed.cut(reader)
    assert is_pattern(path, 2, size), f"{path.stat().st_size} of {size} bytes"


@MEMBERS
def test_a_later_record_does_not_overtake_what_was_fsynced(relaxed):
    """The later one reaches the drive first, as the kernel writes back what it likes."""
    path = relaxed.path / "file"
    sidecar = sidecar_of(relaxed, path)
    write_and_wait(relaxed, path, 2, 20_000)
    end = sidecar.stat().st_size
    reader = os.open(path, os.O_RDONLY)
    os.fsync(reader)
    write_pattern(path, 3, 20_000)
    wait_until(lambda: sidecar.stat().st_size > end)
    WAIT_WRITE_WAIT, begin = 7, (end + 4095) // 4096 * 4096
    libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    assert with_descriptor(sidecar, lambda descriptor: libc.sync_file_range(
        descriptor, begin, sidecar.stat().st_size - begin, WAIT_WRITE_WAIT), os.O_RDWR) == 0
    # The sync of another file writes the journal, and with it the sidecar's length.
    other = relaxed.drives[0].path / "other"
    other.write_bytes(b"x")
    with_descriptor(other, os.fsync)
    relaxed.cut(reader)
    assert is_pattern(path, 2, 20_000) or is_pattern(path, 3, 20_000), f"{path.stat().st_size} bytes"
