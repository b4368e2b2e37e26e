"""No link, no `..` and no mount, in the mount or in the members, leads the daemon out of its members.

The daemon of these tests is root. What it could be led to is a directory with a file that only root may read or write;
the members are changed behind its back, as somebody could who got at a drive.
"""
import os
import shutil
import stat
import threading
import time

import pytest

from lab import LONG, mount_table
from lab.array import MountFailed
from lab.data import is_pattern, write_pattern
from lab.programs import run
from lab.system import RENAME_EXCHANGE, attempt, in_child, renameat2

MIB = 1 << 20
ALICE = 4201
SECRET = b"only root may read or change this"


@pytest.fixture
def outside(lab, numbers):
    """A directory that nothing may be read from or changed in; looked at after the test."""
    path = lab / f"outside{next(numbers)}"
    path.mkdir(mode=0o700)
    (path / "secret").write_bytes(SECRET)
    os.chmod(path / "secret", 0o600)
    before = facts(path)
    yield path
    assert facts(path) == before, "the world outside the members was changed"
    shutil.rmtree(path)


def facts(path):
    found = {}
    for entry in [path, *path.rglob("*")]:
        info = os.lstat(entry)
        found[str(entry)] = (info.st_ino, info.st_mode, info.st_uid, info.st_gid, info.st_nlink, info.st_mtime_ns,
                             entry.read_bytes() if entry.is_file() else None)
    return found


def assert_one_line(text):
    assert len(text.strip().splitlines()) == 1, f"one line was expected: {text}"


@pytest.fixture
def bind(drives):
    """bind(source, target): mounts a directory or a file over one in a member; the call that undoes it (needs root)."""
    def call(source, target):
        run("mount", "--bind", source, target)
        return lambda: run("umount", target)

    yield call
    for entry in reversed(mount_table.entries()):  # where they are now, as directories may have been renamed
        if any(entry.path.startswith(f"{path}/") for path in drives.paths):
            run("umount", entry.path)


def assert_not_checked(array):
    for options in (["-n"], ["-p"], ["-y", "--verify-data"]):
        result = array.fsck(*options)
        assert result.returncode == 8 and "is hidden" in result.stderr
        assert_one_line(result.stderr)


def refusal(make_mount, array, *options):
    with pytest.raises(MountFailed) as refused:
        make_mount(array, *options)
    assert_one_line(str(refused.value))
    return str(refused.value)


def replace_by_link(path, target):
    """Puts a symbolic link where something was; the call that undoes it."""
    parked = path.with_name(path.name + ".parked")
    if path.exists():
        path.rename(parked)
    path.symlink_to(target)

    def undo():
        path.unlink(missing_ok=True)
        if parked.exists():
            parked.rename(path)

    return undo


# --- links in the members ----------------------------------------------------------------------------------------

@pytest.mark.P7
@pytest.mark.parametrize("name", ["superblock", "lock", "state", "objects", "tree"])
def test_member_entry_that_is_a_link(array, make_mount, outside, name):
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 5 * MIB)
    mount.unmount()
    undo = replace_by_link(array.members[0] / name, outside if name in ("objects", "tree") else outside / "secret")
    try:
        assert str(array.members[0]) in refusal(make_mount, array)
        status = array.fsck("-y").returncode
        # A leftover `state` is what a crash leaves: fsck takes the link away, not what it names.
        assert status == 0 if name == "state" else status & 12
    finally:
        undo()
    mount.start()
    assert is_pattern(mount.path / "file", 1, 5 * MIB)


@pytest.mark.P7
def test_object_directories_that_are_links(array, make_mount, outside):
    """Every objects/xx of one member leads outside: what belongs there fails, and nothing is written elsewhere."""
    mount = make_mount(array)
    write_pattern(mount.path / "before", 1, 5 * MIB)
    mount.unmount()
    undo = [replace_by_link(array.members[1] / "objects" / f"{index:02x}", outside) for index in range(256)]
    try:
        mount.start()
        assert attempt((mount.path / "before").read_bytes) == "EIO"
        assert attempt(write_pattern, mount.path / "new", 2, 16 * MIB) == "EIO"
        (mount.path / "small").write_bytes(b"still works")
        mount.unmount()
        assert_not_checked(array)
    finally:
        for each in undo:
            each()
    mount.start()
    assert (mount.path / "small").read_bytes() == b"still works"
    assert is_pattern(mount.path / "before", 1, 5 * MIB)


@pytest.mark.P3
@pytest.mark.P7
def test_object_that_is_a_link_or_a_fifo(array, make_mount, outside):
    """In the place of a chunk's object: a link to a file of the right size, a FIFO that would never answer."""
    mount = make_mount(array)
    for name in ("link", "fifo"):
        write_pattern(mount.path / name, 1, 8 * MIB)
    mount.unmount()
    array.damaged = True
    objects = sorted(array.members[2].glob("objects/*/*"))
    assert len(objects) == 2
    parked = [path.with_name(path.name + ".parked") for path in objects]
    copy = outside.with_name(outside.name + "-copy")
    shutil.copy(objects[0], copy)
    for path, aside in zip(objects, parked):
        path.rename(aside)
    objects[0].symlink_to(copy)
    os.mkfifo(objects[1])
    try:
        mount.start()
        for name in ("link", "fifo"):
            assert attempt((mount.path / name).read_bytes) == "EIO"

            with open(mount.path / name, "r+b", buffering=0) as file:
                lost = [chunk for chunk in range(8) if attempt(os.pread, file.fileno(), MIB, chunk * MIB) == "EIO"]
                assert len(lost) == 2
                assert attempt(os.pwrite, file.fileno(), b"changed", lost[0] * MIB) == "EIO"
        mount.unmount()
        assert array.fsck("-n", "--verify-data").returncode & 4
        assert copy.read_bytes() == parked[0].read_bytes()
    finally:
        copy.unlink()
        for path, aside in zip(objects, parked):
            path.unlink(missing_ok=True)
            aside.rename(path)
    array.damaged = False
    mount.start()
    for name in ("link", "fifo"):
        assert is_pattern(mount.path / name, 1, 8 * MIB)


@pytest.mark.root
def test_directory_swapped_for_a_link_under_the_mount(array, make_mount, outside):
    """In tree/, while mounted: whoever follows the link does so himself, with his own rights."""
    mount = make_mount(array, "allow_other")
    os.chmod(mount.path, 0o755)
    (mount.path / "d").mkdir()
    (mount.path / "d/secret").write_bytes(b"inside")
    tree = array.members[0] / "tree"
    undo = replace_by_link(tree / "d", outside)
    try:
        for _ in range(2):  # with the kernel's names cached, and without
            def look():
                return repr([attempt((mount.path / "d/secret").read_bytes),
                             attempt((mount.path / "d/new").write_bytes, b"x"),
                             attempt(os.unlink, mount.path / "d/secret")]).encode()

            said = in_child(look, uid=ALICE)
            assert SECRET not in said and said.count(b"EACCES") == 3 - said.count(b"inside"), said
            mount.remount()
        assert stat.S_ISLNK(os.lstat(mount.path / "d").st_mode)
        mount.unmount()
        assert array.fsck("-y", "--verify-data").returncode == 0  # a symbolic link like another
        result = run(array.programs.fpfs, "export", array.argument, "/d/secret", "-o", mount.path.with_name("stolen"),
                     check=False)
        assert result.returncode == 1 and "symbolic link" in result.stderr
    finally:
        undo()
    mount.start()
    assert (mount.path / "d/secret").read_bytes() == b"inside"


def test_paths_that_climb_out(array, make_mount, outside):
    mount = make_mount(array)
    (mount.path / "file").write_bytes(b"x")
    mount.unmount()
    climb = "/".join([".."] * 12) + str(outside / "secret")
    for path in (climb, "/" + climb, f"file/../{climb}", f"./{climb}"):
        for options in ([], ["--partial"]):
            result = run(array.programs.fpfs, "export", *options, array.argument, path, "-o",
                         mount.path.with_name("stolen"), check=False)
            assert result.returncode == 1 and not mount.path.with_name("stolen").exists()
            assert_one_line(result.stderr)


# --- mounts ------------------------------------------------------------------------------------------------------

@pytest.mark.P7
@pytest.mark.root
def test_something_mounted_over_a_directory_in_the_tree(array, make_mount, outside, bind):
    mount = make_mount(array)
    (mount.path / "d").mkdir()
    (mount.path / "d/secret").write_bytes(b"inside")
    (mount.path / "file").write_bytes(b"f")
    mount.unmount()
    tree = array.members[0] / "tree"
    places = [(outside, tree / "d"), (outside / "secret", tree / "file")]
    for undo in [bind(*place) for place in places]:
        assert "in it is on another filesystem" in refusal(make_mount, array)
        undo()
    mount.start()
    for place in places:  # while it is mounted
        bind(*place)
    for action in (lambda: os.listdir(mount.path / "d"), lambda: (mount.path / "d/secret").read_bytes(),
                   lambda: (mount.path / "d/new").write_bytes(b"x"), lambda: (mount.path / "file").read_bytes(),
                   lambda: (mount.path / "file").write_bytes(b"x")):
        assert attempt(action) == "EXDEV"
    assert sorted(os.listdir(mount.path)) == ["d", "file"]
    (mount.path / "other").write_bytes(b"works")
    mount.unmount()
    for options in (["-n", "--verify-data"], ["-p"], ["-y", "--verify-data"]):
        result = array.fsck(*options)
        assert result.returncode == 8 and str(tree / "d") in result.stderr, result
        assert_one_line(result.stderr)
    # Formatting anew removes what the array held, and stops where it would go on to remove other things.
    result = run(array.programs.mkfs, "--force", array.argument, check=False)
    assert result.returncode == 1 and (outside / "secret").read_bytes() == SECRET, result
    assert_one_line(result.stderr)
    for entry in reversed(mount_table.entries()):
        if entry.path.startswith(f"{array.members[0]}/"):
            run("umount", entry.path)
    run(array.programs.mkfs, "--force", array.argument)


@pytest.mark.P7
@pytest.mark.root
def test_something_mounted_over_object_directories(array, make_mount, outside, bind):
    mount = make_mount(array)
    write_pattern(mount.path / "before", 1, 5 * MIB)
    mount.unmount()
    directory = next(array.members[1].glob("objects/*/*")).parent
    unbind = bind(outside, directory)
    assert f"'objects/{directory.name}' in it is on another filesystem" in refusal(make_mount, array)
    unbind()
    mount.start()
    unbind = bind(outside, directory)  # while it is mounted
    assert attempt((mount.path / "before").read_bytes) == "EIO"
    mount.unmount()
    assert_not_checked(array)
    unbind()
    mount.start()
    assert is_pattern(mount.path / "before", 1, 5 * MIB)


@pytest.mark.P7
@pytest.mark.root
def test_recovery_with_something_mounted_over_the_tree(array, make_mount, outside, bind):
    """What is hidden is not gone: recovery must not free the objects of files that it does not see."""
    mount = make_mount(array)
    (mount.path / "d").mkdir()
    write_pattern(mount.path / "d/file", 1, 5 * MIB)
    mount.kill()
    unbind = bind(outside, array.members[0] / "tree/d")
    assert f"{array.members[0]}: 'tree/d' in it is on another filesystem" in refusal(make_mount, array)
    assert array.fsck("-p").returncode == 8
    unbind()
    mount.start()
    assert is_pattern(mount.path / "d/file", 1, 5 * MIB)


@pytest.mark.P7
@pytest.mark.root
@pytest.mark.parametrize("way", ["bind", "link"])
def test_mounted_inside_itself_by_another_path(array, binaries, lab, numbers, way, drives):
    """The mount point is a directory of the array's own tree, reached by a path that does not say so."""
    alias = lab / f"alias{next(numbers)}"
    (array.members[0] / "tree/inner").mkdir()
    if way == "bind":
        alias.mkdir()
        run("mount", "--bind", array.members[0], alias)
    else:
        alias.symlink_to(array.members[0])
    options = [] if drives.direct_io else ["-o", "buffered_members"]
    place = array.members[0] / "tree/inner" if way == "link" else alias / "tree/inner"
    argument = ":".join([str(alias), *array.argument.split(":")[1:]]) if way == "link" else array.argument
    try:
        result = run(binaries.mount, *options, argument, place, check=False)
        assert result.returncode == 1, "mounted inside itself"
        assert_one_line(result.stderr)
        assert "lies in member directory" in result.stderr
    finally:
        entry = mount_table.entry_of(place)
        if entry:
            mount_table.abort(entry)
            mount_table.unmount(place, lazy=True)
        run("umount", alias) if way == "bind" else alias.unlink()


# --- races -------------------------------------------------------------------------------------------------------

@pytest.mark.root
def test_entries_swapped_while_others_use_them(array, make_mount, outside, numbers):
    """A user swaps names for links and FIFOs as fast as he can while root works in the same directory.

    Root's own calls do not follow links (O_NOFOLLOW); so whatever reaches the outside was the daemon's doing: it makes
    entries by name and gives them to their owners afterwards.
    """
    mount = make_mount(array, "allow_other")
    os.chmod(mount.path, 0o755)
    shared = mount.path / "shared"
    shared.mkdir()
    os.chmod(shared, 0o777)
    seconds = 60 if LONG else 4
    stop = time.monotonic() + seconds

    def swap():
        turn = 0
        while time.monotonic() < stop:
            turn += 1
            try:
                for name, make in (("link", lambda p: os.symlink(outside / "secret", p)), ("fifo", os.mkfifo),
                                   ("file", lambda p: p.write_bytes(b"x" * 50000)), ("dir", os.mkdir)):
                    bait = shared / f"bait-{name}"
                    if attempt(os.lstat, bait) == "ENOENT":
                        make(bait)
                    for victim in range(3):
                        attempt(renameat2, bait, shared / f"name{victim}", RENAME_EXCHANGE)
                        attempt(os.rename, bait, shared / f"name{victim}")
            except OSError:
                pass

    def work():
        while time.monotonic() < stop:
            for number in range(3):
                path = shared / f"name{number}"
                descriptor = attempt(os.open, path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
                if isinstance(descriptor, int):
                    attempt(os.write, descriptor, b"y" * 40000)
                    os.close(descriptor)
                attempt(os.mkdir, path)
                attempt(os.mkfifo, path)
                attempt(os.link, shared / f"name{(number + 1) % 3}", path, follow_symlinks=False)
                attempt(os.rmdir, path)
                attempt(os.unlink, path)

    swapper = threading.Thread(target=lambda: in_child(swap, uid=ALICE))
    swapper.start()
    work()
    swapper.join()
    assert mount.status()["state"] == "ok"
    assert SECRET not in b"".join(path.read_bytes() for path in shared.iterdir()
                                  if stat.S_ISREG(os.lstat(path).st_mode))
