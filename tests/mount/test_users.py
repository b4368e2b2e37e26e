"""Several users on one mount: whose are new entries, what each may do, and that nobody gets past the mount."""
import fcntl
import json
import os
import pwd
import stat
import struct

import pytest

from lab.data import pattern, write_pattern
from lab.programs import run
from lab.system import attempt, in_child, wait_until

KIB, MIB = 1 << 10, 1 << 20
STATUS, SCRUB = "user.fastpersistfs.status", "user.fastpersistfs.scrub"
IOCTLS = ((1, 10328), (2, 4120), (3, 592))  # fs/interface/ioctl.h: numbers and sizes of extents, object path, verify
# Users that every machine has.
ALICE, BOB = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("daemon").pw_uid
TEAM, OTHERS = 4300, 4301

pytestmark = pytest.mark.root


@pytest.fixture(params=["native", "mount"])
def place(request, native, make_array, make_mount):
    """A directory that everybody may use, on the drive's own filesystem and on the mount: what holds here holds there."""
    if request.param == "native":
        top = native
    else:
        top = make_mount(make_array(), "allow_other").path
    os.chmod(top, 0o755)
    shared = top / "shared"
    shared.mkdir()
    os.chmod(shared, 0o1777)
    return shared


def owner(path):
    found = os.lstat(path)
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@pytest.mark.P6
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0])
def test_new_entries_belong_to_who_made_them(place, umask):
    def make():
        os.umask(umask)
        (place / "file").write_bytes(pattern(1, 0, MIB))
        os.close(os.open(place / "executable", os.O_CREAT | os.O_WRONLY, 0o755))
        os.mkdir(place / "directory")
        os.symlink("file", place / "link")
        os.mkfifo(place / "fifo")
        os.link(place / "file", place / "hard")
        (place / "directory/inner").write_bytes(b"x")
        os.rename(place / "directory/inner", place / "moved")
        unnamed = os.open(place, os.O_TMPFILE | os.O_RDWR, 0o666)
        os.write(unnamed, b"y")
        # With a directory descriptor Python calls linkat, which alone can follow this link.
        os.link(f"self/fd/{unnamed}", place / "named", src_dir_fd=os.open("/proc", os.O_PATH), follow_symlinks=True)

    in_child(make, uid=ALICE, groups=[TEAM])
    for name, mode in {"file": 0o666, "executable": 0o755, "directory": 0o777, "fifo": 0o666, "hard": 0o666,
                       "moved": 0o666, "named": 0o666}.items():
        assert owner(place / name) == (ALICE, ALICE, mode & ~umask), name
    assert owner(place / "link")[:2] == (ALICE, ALICE)


@pytest.mark.P6
def test_groups(place):
    """The groups of the caller count: its own, its further ones, and not those that it is not in."""
    os.mkdir(place / "team")
    os.chown(place / "team", 0, TEAM)
    os.chmod(place / "team", 0o2770)

    def take_part():
        (place / "mine").write_bytes(b"x")
        return repr([
            attempt(os.chown, place / "mine", -1, TEAM), attempt(os.chown, place / "mine", -1, OTHERS),
            attempt(os.chown, place / "mine", BOB, -1), attempt((place / "team/file").write_bytes, b"x"),
            attempt(os.mkdir, place / "team/sub"),
            # A set-group-ID bit for a group that one is in.
            attempt(os.chmod, place / "team/file", 0o2755)]).encode()

    assert in_child(take_part, uid=ALICE, groups=[TEAM]) == b"[None, 'EPERM', 'EPERM', 1, None, None]"
    assert owner(place / "mine")[:2] == (ALICE, TEAM)
    assert owner(place / "team/file") == (ALICE, TEAM, 0o2755)
    assert owner(place / "team/sub")[:2] == (ALICE, TEAM) and owner(place / "team/sub")[2] & stat.S_ISGID

    def stay_out():
        return repr([attempt(os.listdir, place / "team"), attempt((place / "team/other").write_bytes, b"x"),
                     attempt(os.stat, place / "team/file")]).encode()

    assert in_child(stay_out, uid=BOB) == b"['EACCES', 'EACCES', 'EACCES']"
    # The bit does not go to a member of another group than the file's.
    os.mkdir(place / "given")
    os.chown(place / "given", 0, OTHERS)
    os.chmod(place / "given", 0o2777)

    def ask_for_the_bit():
        os.umask(0)
        os.close(os.open(place / "given/file", os.O_CREAT | os.O_WRONLY, 0o2775))

    in_child(ask_for_the_bit, uid=ALICE)
    assert owner(place / "given/file") == (ALICE, OTHERS, 0o775)


@pytest.mark.P6
def test_sticky_directory_and_foreign_files(place):
    in_child(lambda: (place / "alices").write_bytes(b"x"), uid=ALICE)
    os.chmod(place / "alices", 0o644)

    def intrude():
        (place / "bobs").write_bytes(b"y")
        return repr([attempt(os.unlink, place / "alices"), attempt(os.rename, place / "alices", place / "taken"),
                     attempt(os.rename, place / "bobs", place / "alices"), attempt(open, place / "alices", "ab"),
                     attempt(os.chmod, place / "alices", 0o777), attempt(os.utime, place / "alices", (0, 0)),
                     attempt(os.setxattr, place / "alices", "user.x", b"y"),
                     attempt(os.truncate, place / "alices", 0)]).encode()

    assert in_child(intrude, uid=BOB) == repr(["EPERM"] * 3 + ["EACCES", "EPERM", "EPERM", "EACCES", "EACCES"]).encode()
    assert (place / "alices").read_bytes() == b"x" and owner(place / "alices") == (ALICE, ALICE, 0o644)


@pytest.mark.P6
def test_privileges_that_only_root_gives(place):
    """Device nodes, file capabilities and trusted attributes: not for users, whatever the daemon may do."""
    def ask():
        (place / "file").write_bytes(b"x")
        return repr([attempt(os.mknod, place / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
                     attempt(os.setxattr, place / "file", "security.capability", b"\1\0\0\2" + bytes(16)),
                     attempt(os.setxattr, place / "file", "trusted.x", b"y")]).encode()

    assert in_child(ask, uid=ALICE) == b"['EPERM', 'EPERM', 'EPERM']"


@pytest.mark.P6
def test_users_save_side_by_side(make_array, make_mount):
    torch = pytest.importorskip("torch")
    mount = make_mount(make_array(), "allow_other")
    os.chmod(mount.path, 0o1777)
    children = []
    for uid in (0, ALICE, BOB):
        child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                for step in range(3):
                    torch.save(torch.full((1 << 20,), float(uid + step)), mount.path / f"user{uid}.pt")
                    assert torch.load(mount.path / f"user{uid}.pt")[5] == uid + step
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    for uid in (0, ALICE, BOB):
        assert owner(mount.path / f"user{uid}.pt")[:2] == (uid, uid)


def test_nobody_reads_members_directly(make_array, make_mount):
    array = make_array()
    mount = make_mount(array, "allow_other")
    os.chmod(mount.path, 0o1777)
    in_child(lambda: write_pattern(mount.path / "file", 1, 5 * MIB), uid=ALICE)
    secret = next(array.members[0].glob("objects/*/*"))

    def look():
        return repr([attempt(os.listdir, array.members[0]), attempt(os.stat, array.members[0] / "superblock"),
                     attempt(open, array.members[0] / "tree/file", "rb"), attempt(open, secret, "rb"),
                     attempt((array.members[1] / "new").write_bytes, b"x")]).encode()

    for member in array.members:
        assert owner(member) == (0, 0, 0o700)
    # Also not the content of one's own files: their indexes would be open to forgery.
    assert in_child(look, uid=ALICE) == b"['EACCES', 'EACCES', 'EACCES', 'EACCES', 'EACCES']"
    mount.unmount()
    os.chmod(array.members[0], 0o755)
    os.chmod(array.members[2], 0o777)
    mount.start()
    assert [owner(member)[2] for member in array.members] == [0o700] * 4
    assert f"{array.members[2]} was open to other users" in mount.log()
    assert in_child(look, uid=ALICE) == b"['EACCES', 'EACCES', 'EACCES', 'EACCES', 'EACCES']"


@pytest.mark.P7
def test_member_of_another_user_is_pointed_out(make_array, make_mount):
    array = make_array()
    os.chown(array.members[1], ALICE, ALICE)
    mount = make_mount(array)
    assert f"{array.members[1]} belongs to user {ALICE}" in mount.log()
    mount.unmount()
    os.chown(array.members[1], 0, 0)


# --- what the filesystem tells about itself --------------------------------------------------------------------------

def test_names_in_private_directories_stay_private(make_array, make_mount):
    """fpfs status and fpfs scrub tell root which files are open and damaged; others get figures only."""
    array = make_array(chunk_size=64 * KIB)
    mount = make_mount(array, "allow_other")
    os.chmod(mount.path, 0o755)
    private = mount.path / "private"
    private.mkdir(mode=0o700)
    write_pattern(private / "secret-name", 1, MIB)
    mount.unmount()
    array.damaged = True
    with open(max(array.members[0].glob("objects/*/*"), key=os.path.getsize), "r+b") as file:
        file.write(b"damage")
    mount.start()
    run(array.programs.fpfs, "scrub", "start", mount.path)
    wait_until(lambda: b'"finished"' in os.getxattr(mount.path, SCRUB))
    with open(private / "secret-name", "rb"):
        assert b"secret-name" in os.getxattr(mount.path, STATUS) and b"secret-name" in os.getxattr(mount.path, SCRUB)

        def look():
            return os.getxattr(mount.path, STATUS) + b"\n" + os.getxattr(mount.path, SCRUB)

        status, scrub = (json.loads(each) for each in in_child(look, uid=ALICE).split(b"\n"))
    assert "secret-name" not in json.dumps([status, scrub]) and "private" not in json.dumps([status, scrub])
    assert status["open_files"] == [] and status["open_files_omitted"] == 1 and status["files"]["open"] == 1
    assert status["paths_hidden"] and not mount.status()["paths_hidden"]
    assert scrub["damage"] == [] and scrub["damage_omitted"] == scrub["errors"] == 1


def test_only_who_may_read_a_file_learns_about_its_content(make_array, make_mount):
    """Checksums, places of chunks, what a check finds."""
    mount = make_mount(make_array(chunk_size=64 * KIB), "allow_other")
    os.chmod(mount.path, 0o755)
    path = mount.path / "file"
    write_pattern(path, 1, 300 * KIB)
    os.chmod(path, 0o622)

    def ask():
        found = []
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY):
            descriptor = attempt(os.open, path, flags)
            for command, size in IOCTLS:
                argument = bytearray(struct.pack("<I", 1) + bytes(size - 4))
                found.append(attempt(fcntl.ioctl, descriptor, 0xC000F500 | size << 16 | command, argument)
                             if isinstance(descriptor, int) else descriptor)
        found += [attempt(os.getxattr, path, "user.fastpersistfs." + name) for name in ("stat", "id", "stored", "members")]
        return repr(found).encode()

    assert in_child(ask, uid=ALICE) == repr(["EBADF"] * 3 + ["EACCES"] * 10).encode()
    os.chmod(path, 0o666)
    assert eval(in_child(ask, uid=ALICE))[:9] == ["EBADF"] * 3 + [0] * 6


@pytest.mark.P5
def test_many_open_files_with_long_names(make_array, make_mount):
    """An attribute holds 64 KiB: the list of open files is cut, the status is not."""
    mount = make_mount(make_array())
    deep = mount.path / ("d" * 255) / ("\x01" * 255) / ("e" * 255) / ("f" * 255)
    deep.mkdir(parents=True)
    files = [open(deep / (f"{number:02}" + "n" * 250), "wb") for number in range(64)]
    status = mount.status()
    assert 10 < len(status["open_files"]) < 64
    assert len(status["open_files"]) + status["open_files_omitted"] == 64
    for file in files:
        file.close()
