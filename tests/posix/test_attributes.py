"""Owner, mode, times, extended attributes, access control lists, free space."""
import os
import stat
import subprocess
import time

import pytest

from lab.data import pattern
from lab.programs import run
from lab.system import attempt, in_child

pytestmark = pytest.mark.P6

NOBODY = 65534


def facts(path):
    found = os.lstat(path)
    return stat.filemode(found.st_mode), found.st_uid, found.st_gid, found.st_size, found.st_nlink


def test_modes(same):
    def behaviour(directory):
        path = directory / "file"
        old = os.umask(0o027)
        try:
            path.touch()
            (directory / "dir").mkdir()
            os.close(os.open(directory / "asked", os.O_CREAT | os.O_WRONLY, 0o666))
        finally:
            os.umask(old)
        seen = [facts(path)[0], facts(directory / "dir")[0], facts(directory / "asked")[0]]
        for mode in (0o000, 0o600, 0o644, 0o4755, 0o2755, 0o1777, 0o7777):
            os.chmod(path, mode)
            seen.append(facts(path)[0])
        return seen

    same(behaviour)


@pytest.mark.root
def test_owners(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"x" * 100)
        seen = []
        for uid, gid in ((1000, 1000), (-1, 5), (7, -1)):
            os.chmod(path, 0o6755)
            os.chown(path, uid, gid)
            seen.append(facts(path))  # set-id bits are cleared
        os.symlink("file", directory / "link")
        os.lchown(directory / "link", 3, 3)
        seen += [facts(directory / "link"), facts(path)]
        return seen

    same(behaviour)


@pytest.mark.root
def test_group_of_a_setgid_directory_is_inherited(same):
    def behaviour(directory):
        os.chown(directory, -1, 1234)
        os.chmod(directory, 0o2777)
        (directory / "file").touch()
        (directory / "dir").mkdir()
        return facts(directory / "file"), facts(directory / "dir")[:3]

    same(behaviour)


@pytest.mark.root
def test_writing_clears_setuid(make_array, make_mount, native):
    mounted = make_mount(make_array(), "allow_other")
    results = []
    for directory in (native, mounted.path):
        path = directory / "program"
        path.write_bytes(b"x" * 5000)
        os.chmod(path, 0o6777)
        os.chmod(directory, 0o777)

        def write():
            with open(path, "r+b", buffering=0) as file:
                file.write(b"changed")

        in_child(write, uid=NOBODY)
        results.append(facts(path)[0])
    assert results[1] == results[0]


@pytest.mark.root
def test_permissions_of_another_user(make_array, make_mount, native):
    """The kernel checks them (default_permissions), with what the mount says about owners and modes."""
    mounted = make_mount(make_array(), "allow_other")
    results = []
    for parent in (native, mounted.path):
        os.chmod(parent, 0o755)
        directory = parent / "place"
        directory.mkdir(mode=0o755)
        (directory / "secret").write_bytes(b"secret")
        os.chmod(directory / "secret", 0o600)
        (directory / "public").write_bytes(b"public")
        (directory / "own").write_bytes(b"own")
        os.chown(directory / "own", NOBODY, NOBODY)
        (directory / "sticky").mkdir()
        os.chmod(directory / "sticky", 0o1777)
        (directory / "sticky/roots").touch()

        def look():
            seen = [attempt(os.open, directory / "secret", os.O_RDONLY), (directory / "public").read_bytes(),
                    attempt(os.open, directory / "public", os.O_WRONLY), attempt(os.unlink, directory / "own"),
                    attempt(os.chmod, directory / "public", 0o777), attempt(os.chmod, directory / "own", 0o600),
                    attempt(os.chown, directory / "own", 0, 0), attempt(os.unlink, directory / "sticky/roots"),
                    attempt(os.mkdir, directory / "new")]
            (directory / "sticky/mine").write_bytes(b"mine")
            seen.append(facts(directory / "sticky/mine"))
            return repr(seen).encode()

        results.append(in_child(look, uid=NOBODY))
    assert results[1] == results[0]


@pytest.mark.root
def test_other_users_are_kept_out_without_allow_other(mount):
    (mount.path / "file").write_bytes(b"x")
    assert in_child(lambda: repr(attempt(os.listdir, mount.path)).encode(), uid=NOBODY) == b"'EACCES'"


def test_times_to_the_nanosecond(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(pattern(1, 0, 100000))
        seen = []
        for times in ((1_000_000_001, 1_700_000_000_123_456_789), (0, 1), (2**32 * 10**9 + 7, 5 * 10**9)):
            os.utime(path, ns=times)
            seen.append((os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns))
        os.utime(directory, ns=(5, 6))
        seen.append(os.stat(directory).st_mtime_ns)
        os.symlink("file", directory / "link")
        os.utime(directory / "link", ns=(7, 8), follow_symlinks=False)
        seen += [os.lstat(directory / "link").st_mtime_ns, os.stat(path).st_mtime_ns]
        return seen

    same(behaviour)


def test_times_set_while_open_stay(same):
    """What cp -p, rsync and tar do: write, set the times, close."""
    def behaviour(directory):
        path = directory / "file"
        with open(path, "wb", buffering=0) as file:
            file.write(pattern(1, 0, 500000))
            os.utime(file.fileno(), ns=(10**18, 10**18 + 3))
        return os.stat(path).st_mtime_ns

    same(behaviour)
    # and they stay through a remount: test_times_survive_a_remount


def test_times_survive_a_remount(mount):
    path = mount.path / "file"
    with open(path, "wb", buffering=0) as file:
        file.write(pattern(1, 0, 500000))
        os.utime(file.fileno(), ns=(10**18, 10**18 + 3))
    mount.remount()
    assert os.stat(path).st_mtime_ns == 10**18 + 3


def test_changes_move_times(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"x" * 100)

        def moved(action):
            os.utime(path, ns=(10**18, 10**18))
            os.utime(directory, ns=(10**18, 10**18))
            before = time.time_ns() - 50_000_000  # the kernel's clock for times is coarse
            action()
            now = [os.stat(path).st_mtime_ns, os.stat(path).st_ctime_ns, os.stat(directory).st_mtime_ns]
            return [before <= each <= time.time_ns() + 10**9 for each in now]

        def rewrite():
            with open(path, "r+b") as file:
                file.write(b"y")

        def read():
            path.read_bytes()

        return [moved(rewrite), moved(lambda: os.truncate(path, 10)), moved(lambda: os.chmod(path, 0o600)),
                moved(read), moved(lambda: (directory / "new").touch()), moved(lambda: os.unlink(directory / "new"))]

    same(behaviour)


def test_extended_attributes(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"x")
        seen = [os.listxattr(path), attempt(os.getxattr, path, "user.none"), attempt(os.removexattr, path, "user.none")]
        os.setxattr(path, "user.color", b"blue\0binary\xff")
        os.setxattr(path, "user.long", b"v" * 2000)
        seen += [sorted(os.listxattr(path)), os.getxattr(path, "user.color"), len(os.getxattr(path, "user.long"))]
        seen += [attempt(os.setxattr, path, "user.color", b"x", os.XATTR_CREATE),
                 attempt(os.setxattr, path, "user.other", b"x", os.XATTR_REPLACE),
                 attempt(os.setxattr, path, "user.color", b"", os.XATTR_REPLACE), os.getxattr(path, "user.color")]
        os.removexattr(path, "user.long")
        os.setxattr(directory, "user.on-directory", b"d")
        seen += [os.listxattr(path), os.listxattr(directory), attempt(os.setxattr, path, "nonsense.name", b"x")]
        return seen

    same(behaviour)


@pytest.mark.root
def test_extended_attributes_that_come_after_somebody_looked(same):
    """That there are none is remembered."""
    def behaviour(directory):
        path, other = directory / "file", directory / "other name"
        path.write_bytes(b"x")
        os.link(path, other)
        names = ("security.selinux", "security.capability", "security.some", "system.posix_acl_access")
        capability = b"\x01\x00\x00\x02\x00\x04" + bytes(14)

        def look():
            return [attempt(os.getxattr, path, name) for name in names] + [os.listxattr(path)]

        seen = [look(), look()]
        os.setxattr(other, "security.some", b"value")
        seen.append(look())
        os.removexattr(path, "security.some")
        seen.append(look())
        os.setxattr(path, "security.capability", capability)
        seen.append(look())
        path.write_bytes(b"changed")  # drops the capability
        seen += [look(), look()]
        run("setfacl", "-m", "u:1:r", path)
        seen.append([os.listxattr(path), len(os.getxattr(path, "system.posix_acl_access"))])
        run("setfacl", "-b", path)
        os.setxattr(path, "security.selinux", b"label\0")
        seen.append(look())
        return seen

    same(behaviour)


def test_extended_attributes_survive_replacing_the_content(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"x" * 100000)
        os.setxattr(path, "user.kept", b"1")
        os.chmod(path, 0o640)
        path.write_bytes(b"y" * 200000)  # O_TRUNC and rewrite
        return os.listxattr(path), os.getxattr(path, "user.kept"), facts(path)[0]

    same(behaviour)


@pytest.mark.root
def test_access_control_lists(make_array, make_mount, native):
    mounted = make_mount(make_array(), "allow_other")
    results = []
    for parent in (native, mounted.path):
        os.chmod(parent, 0o755)
        path = parent / "file"
        path.write_bytes(b"content")
        os.chmod(path, 0o600)
        run("setfacl", "-m", f"u:{NOBODY}:r", path)
        (parent / "dir").mkdir()
        run("setfacl", "-d", "-m", f"u:{NOBODY}:rwx,g::r", parent / "dir")
        (parent / "dir/child").touch()
        listing = run("getfacl", "-cnp", path, parent / "dir", parent / "dir/child").stdout
        granted = in_child(lambda: path.read_bytes(), uid=NOBODY)
        denied = in_child(lambda: repr(attempt(os.open, path, os.O_WRONLY)).encode(), uid=NOBODY)
        os.chmod(path, 0o640)
        results.append((listing, granted, denied, run("getfacl", "-cnp", path).stdout))
    assert results[1] == results[0]


def test_free_space_is_honest(mount, array, drives):
    seen = os.statvfs(mount.path)
    assert seen.f_namemax == 255
    if drives.kind != "directories":  # four drives: the sum of what they have
        native = [os.statvfs(member) for member in array.members]
        total = sum(each.f_blocks * each.f_frsize for each in native)
        assert 0.95 * total <= seen.f_blocks * seen.f_frsize <= 1.05 * total
    before = seen.f_bavail * seen.f_frsize
    size = 128 << 20
    with open(mount.path / "file", "wb") as file:
        for offset in range(0, size, 1 << 22):
            file.write(pattern(1, offset, 1 << 22))
    after = os.statvfs(mount.path)
    used = before - after.f_bavail * after.f_frsize
    if drives.kind != "directories":
        assert 0.9 * size <= used <= 1.3 * size
        os.unlink(mount.path / "file")
        deadline = time.monotonic() + 20  # freeing is background work
        while time.monotonic() < deadline:
            now = os.statvfs(mount.path)
            if before - now.f_bavail * now.f_frsize < size // 8:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the space of a removed file did not come back within 20 seconds")


def test_allocated_blocks(mount):
    path = mount.path / "file"
    path.write_bytes(pattern(1, 0, 5 << 20))
    assert (5 << 20) <= os.stat(path).st_blocks * 512 <= (7 << 20)
    assert int(subprocess.run(["du", "-B1", str(path)], capture_output=True, text=True).stdout.split()[0]) <= (7 << 20)


def test_virtual_attributes(mount):
    """user.fastpersistfs.*: read-only, on any file, not in the list (copying tools must not take them along)."""
    path = mount.path / "file"
    path.write_bytes(pattern(1, 0, 3 << 20))
    for name in ("id", "codec", "stored", "members"):
        assert os.getxattr(path, f"user.fastpersistfs.{name}")
        assert attempt(os.setxattr, path, f"user.fastpersistfs.{name}", b"x") in ("EPERM", "EACCES", "EROFS")
    assert not [name for name in os.listxattr(path) if name.startswith("user.fastpersistfs")]


def test_attributes_of_the_engine_do_not_show(mount):
    """What the engine notes in a sidecar (that the file is copied) is neither listed nor read nor changed by anybody."""
    path, note = mount.path / "file", "user.fastpersistfs.tier-note"
    path.write_bytes(b"content")
    os.setxattr(path, "user.color", b"red")
    os.setxattr(mount.array.members[0] / "tree" / "file", note, b"x" * 64)
    assert os.listxattr(path) == ["user.color"]
    assert attempt(os.getxattr, path, note) == "ENODATA"
    assert attempt(os.setxattr, path, note, b"y") == attempt(os.removexattr, path, note) == "EPERM"
    os.removexattr(path, "user.color")
    assert os.listxattr(path) == []
