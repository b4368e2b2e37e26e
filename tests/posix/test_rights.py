"""Set-ID bits, sticky and setgid directories, default ACLs and umask: who gets what, for several users (a root mount)."""
import os
import stat

import pytest

from lab.data import pattern
from lab.programs import run
from lab.system import attempt, fallocate, in_child, renameat2, RENAME_EXCHANGE, RENAME_WHITEOUT

pytestmark = [pytest.mark.P6, pytest.mark.root]
USER, OTHER, GROUP = 1234, 1235, 4321


@pytest.fixture
def same_for_users(make_array, make_mount, native):
    """Like `same`, on a mount that lets other users in; the behaviour's directory is open to everybody."""
    mount = make_mount(make_array(), "allow_other", "suid")

    def compare(behaviour):
        results = []
        for parent in (native, mount.path):
            os.chmod(parent, 0o755)
            directory = parent / behaviour.__name__
            directory.mkdir()
            os.chmod(directory, 0o777)
            results.append(behaviour(directory))
        assert results[1] == results[0], "mount (left) and native directory (right) differ"
        return results[1]

    return compare


def mode(path):
    return oct(stat.S_IMODE(os.lstat(path).st_mode))


def owner(path):
    found = os.lstat(path)
    return found.st_uid, found.st_gid, mode(path)


def as_user(body, uid=USER, groups=()):
    return in_child(lambda: repr(body()).encode(), uid=uid, groups=groups)


CHANGES = {
    "write": lambda path, file: os.write(file, b"new"),
    "write nothing": lambda path, file: os.write(file, b""),
    "append": lambda path, file: os.pwrite(file, b"new", 9000),
    "truncate": lambda path, file: os.truncate(path, 10),
    "truncate to the same": lambda path, file: os.truncate(path, 5000),
    "ftruncate": lambda path, file: os.ftruncate(file, 10),
    "extend": lambda path, file: os.ftruncate(file, 100000),
    "O_TRUNC": lambda path, file: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "fallocate": lambda path, file: fallocate(file, 0, 0, 20000),
    "copy_file_range": lambda path, file: os.copy_file_range(file, file, 100, 0, 1000),
    "chmod": lambda path, file: attempt(os.chmod, path, 0o6777),
    "touch": lambda path, file: os.utime(path),
    "read": lambda path, file: os.pread(file, 10, 0),
}


@pytest.mark.parametrize("bits", [0o6777, 0o4755 | 0o022, 0o2777, 0o2767, 0o1777])
def test_set_id_bits_do_not_survive_a_change_by_others(same_for_users, bits):
    def behaviour(directory):
        seen = []
        for number, (name, change) in enumerate(CHANGES.items()):
            for uid in (0, USER):
                path = directory / f"{number}-{uid}"
                path.write_bytes(pattern(1, 0, 5000))
                os.chmod(path, bits)

                def body():
                    file = os.open(path, os.O_RDWR)
                    change(path, file)
                    inside = mode(path)
                    os.close(file)
                    return inside

                said = as_user(body, uid) if uid else repr(body()).encode()
                seen.append((name, uid, said, mode(path)))
        return seen

    same_for_users(behaviour)


def test_capabilities_do_not_survive_a_change(same_for_users):
    capability = bytes.fromhex("0100000200040000000000000000000000000000")

    def behaviour(directory):
        seen = []
        for number, (name, change) in enumerate(CHANGES.items()):
            path = directory / str(number)
            path.write_bytes(pattern(1, 0, 5000))
            os.chmod(path, 0o777)
            os.setxattr(path, "security.capability", capability)
            file = os.open(path, os.O_RDWR)
            change(path, file)
            os.close(file)
            seen.append((name, attempt(os.getxattr, path, "security.capability")))
        return seen

    same_for_users(behaviour)


def test_new_entries_belong_to_their_maker(same_for_users):
    def behaviour(directory):
        def make():
            os.umask(0o027)
            os.close(os.open(directory / "file", os.O_CREAT | os.O_WRONLY, 0o6777))
            os.mkdir(directory / "dir", 0o7777)
            os.symlink("x", directory / "link")
            os.mkfifo(directory / "pipe", 0o666)
            os.link(directory / "file", directory / "hard")
            unnamed = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o666)
            return owner(f"/proc/self/fd/{unnamed}")[2], os.fstat(unnamed).st_uid, stat.S_IMODE(os.fstat(unnamed).st_mode)

        return as_user(make, groups=[GROUP]), [owner(directory / name) for name in sorted(os.listdir(directory))]

    same_for_users(behaviour)


def test_setgid_directories_hand_down_their_group(same_for_users):
    def behaviour(directory):
        os.chown(directory, 0, GROUP)
        os.chmod(directory, 0o2777)

        def make():
            os.umask(0)
            for name, bits in (("plain", 0o666), ("set-id", 0o2775), ("all", 0o6777)):
                os.close(os.open(directory / name, os.O_CREAT | os.O_WRONLY, bits))
            os.mkdir(directory / "dir", 0o755)
            os.mkdir(directory / "dir/below", 0o700)
            os.mkfifo(directory / "pipe", 0o600)
            os.symlink("x", directory / "link")

        def chmod():
            return attempt(os.chmod, directory / "plain", 0o2775)

        seen = [as_user(make), as_user(chmod), as_user(chmod, groups=[GROUP])]
        names = [os.path.join(base, name) for base, dirs, files in os.walk(directory) for name in dirs + files]
        return seen, [(name[len(str(directory)):], owner(name)) for name in sorted(names)]

    same_for_users(behaviour)


def test_sticky_directories(same_for_users):
    def behaviour(directory):
        os.chmod(directory, 0o1777)
        as_user(lambda: [(directory / name).touch() for name in ("a", "b", "c", "d")], USER)
        as_user(lambda: [(directory / name).touch() for name in ("x", "y", "z")], OTHER)

        def try_all():
            return [attempt(os.unlink, directory / "a"), attempt(os.rename, directory / "b", directory / "bb"),
                    attempt(os.rename, directory / "x", directory / "c"),
                    attempt(renameat2, directory / "y", directory / "d", RENAME_EXCHANGE),
                    attempt(os.rename, directory / "z", directory / "zz"), attempt(os.unlink, directory / "zz"),
                    attempt(os.link, directory / "a", directory / "linked")]

        return as_user(try_all, OTHER), sorted(os.listdir(directory))

    same_for_users(behaviour)


def test_default_acls_and_umask(same_for_users):
    def acl(path):
        return run("getfacl", "-cnp", path).stdout

    def behaviour(directory):
        with_acl, without = directory / "with", directory / "without"
        for each in (with_acl, without):
            each.mkdir()
            os.chmod(each, 0o777)
        run("setfacl", "-d", "-m", f"u::rwx,u:{OTHER}:rwx,g::r-x,o::---", with_acl)

        def make():
            os.umask(0o077)
            for base in (with_acl, without):
                os.close(os.open(base / "file", os.O_CREAT | os.O_WRONLY, 0o666))
                os.close(os.open(base / "program", os.O_CREAT | os.O_WRONLY, 0o755))
                os.mkdir(base / "dir", 0o777)
                os.mkfifo(base / "pipe", 0o622)
                (base / "dir/below").touch()

        as_user(make)
        names = sorted(os.path.join(base, name) for base, dirs, files in os.walk(directory) for name in dirs + files)
        seen = [(name[len(str(directory)):], owner(name), acl(name)) for name in names]

        def use():
            return [attempt(os.close, os.open(with_acl / "file", os.O_RDWR)), attempt(os.open, without / "file", os.O_RDONLY)]

        return seen, as_user(use, OTHER)

    same_for_users(behaviour)


def test_a_default_acl_comes_and_goes_between_files(same_for_users):
    def behaviour(directory):
        os.umask(0o077)
        seen = []
        for number, acl in enumerate((None, ("-d", "-m", "u::rwx,g::r-x,o::r--"), ("-k",), ("-d", "-m", "u::rwx,g::rwx,o::---"))):
            if acl is not None:
                run("setfacl", *acl, directory)
            for again in range(2):
                os.close(os.open(directory / f"file{number}{again}", os.O_CREAT | os.O_WRONLY, 0o666))
                os.mkdir(directory / f"dir{number}{again}", 0o777)
                os.close(os.open(directory / f"dir{number}{again}/file", os.O_CREAT | os.O_WRONLY, 0o666))
                seen += [mode(directory / f"{name}{number}{again}") for name in ("file", "dir")]
                seen.append(mode(directory / f"dir{number}{again}/file"))
        return seen

    same_for_users(behaviour)


def test_setting_an_acl_changes_the_mode(same_for_users):
    def behaviour(directory):
        path = directory / "file"
        path.touch()
        seen = []
        for entries in (f"u:{USER}:rwx", f"g:{GROUP}:r,m::r", "u::r,g::-,o::-"):
            run("setfacl", "-m", entries, path)
            seen += [mode(path), run("getfacl", "-cnp", path).stdout]
        os.chmod(path, 0o765)
        seen += [run("getfacl", "-cnp", path).stdout]
        run("setfacl", "-b", path)
        seen += [mode(path), run("getfacl", "-cnp", path).stdout, os.listxattr(path)]
        os.chown(path, USER, GROUP)
        os.chmod(path, 0o2770)
        # Who sets an ACL on a file of a foreign group takes its set-group-ID bit away.
        as_user(lambda: run("setfacl", "-m", f"u:{OTHER}:r", path).returncode, USER)
        seen.append(mode(path))
        return seen

    same_for_users(behaviour)


def test_what_users_may_not(same_for_users):
    def behaviour(directory):
        path = directory / "roots"
        path.write_bytes(b"content")
        os.chmod(path, 0o644)

        def try_all():
            return [attempt(os.chown, path, USER, -1), attempt(os.chmod, path, 0o777), attempt(os.truncate, path, 0),
                    attempt(os.utime, path), attempt(os.utime, path, ns=(1, 1)), attempt(os.setxattr, path, "user.x", b"1"),
                    attempt(os.setxattr, path, "trusted.x", b"1"), attempt(os.getxattr, path, "trusted.x"),
                    attempt(os.mknod, directory / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
                    attempt(os.open, path, os.O_RDONLY | os.O_NOATIME), attempt(os.link, path, directory / "link"),
                    attempt(os.rename, path, directory / "moved")]

        return as_user(try_all), sorted(os.listdir(directory))

    same_for_users(behaviour)


@pytest.mark.parametrize("umask", [0, 0o022])
def test_set_id_bits_of_new_nodes(same_for_users, umask):
    """What mkfifo and mknod are told to set is set, for users as for root."""
    def behaviour(directory):
        os.chown(directory, 0, GROUP)
        seen = []
        for uid, groups in ((0, ()), (USER, ()), (USER, (GROUP,))):
            for bits in (0o2777, 0o777):
                os.chmod(directory, bits)

                def make():
                    os.umask(umask)
                    for each in (0o6777, 0o4755, 0o2775, 0o2765, 0o1777):
                        name = f"{uid}-{len(groups)}-{bits:o}-{each:o}"
                        os.mkfifo(directory / f"pipe-{name}", each)
                        os.mknod(directory / f"file-{name}", stat.S_IFREG | each)
                        os.mknod(directory / f"socket-{name}", stat.S_IFSOCK | each)
                        os.close(os.open(directory / f"open-{name}", os.O_CREAT | os.O_WRONLY, each))
                        os.mkdir(directory / f"dir-{name}", each)

                as_user(make, uid, groups)
        seen += [(name, owner(directory / name)) for name in sorted(os.listdir(directory))]
        return seen

    same_for_users(behaviour)


@pytest.mark.parametrize("uid", [0, USER])
def test_a_whiteout_is_its_makers(same_for_users, uid):
    """What RENAME_WHITEOUT leaves can be removed by who called it, also where others' entries cannot."""
    def behaviour(directory):
        os.chmod(directory, 0o1777)

        def rename():
            (directory / "old").write_bytes(b"x")
            return attempt(renameat2, directory / "old", directory / "new", RENAME_WHITEOUT)

        said = as_user(rename, uid)
        found = os.lstat(directory / "old")
        seen = [said, owner(directory / "old"), stat.S_IFMT(found.st_mode), found.st_rdev]
        return seen + [as_user(lambda: attempt(os.unlink, directory / "old"), uid), sorted(os.listdir(directory))]

    same_for_users(behaviour)
