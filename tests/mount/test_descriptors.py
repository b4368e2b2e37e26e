"""Few descriptors for the daemon: a call that fails has changed nothing, what was opened can be written, synced and closed,
and one user's open files leave enough for everybody else."""
import contextlib
import os
import pwd
import stat

import pytest

from lab.data import pattern
from lab.system import attempt, die_with_parent, in_child

ALICE, BOB = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("daemon").pw_uid
DESCRIPTORS = 1700
KIB = 1024
REFUSALS = ("EMFILE", "ENFILE")

pytestmark = pytest.mark.root


@pytest.fixture(params=["xfs", "ext4"])
def mount(request, make_array, make_drive, make_mount):
    """One that has few descriptors and may not raise its limit, though it is root's. Its names are on XFS, where a new file
    needs no handle of its directory, and on ext4, where it does."""
    paths = [make_drive(4 << 30, request.param).path for _ in range(2)]
    return make_mount(make_array(chunk_size=64 * KIB, paths=paths), "allow_other,buffer_memory=16M",
                      prefix=("setpriv", "--bounding-set=-sys_resource", "prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"))


@pytest.fixture
def place(mount):
    """A directory of it."""
    os.chmod(mount.path, 0o755)
    shared = mount.path / "shared"
    shared.mkdir()
    os.chmod(shared, 0o1777)
    (shared / "roots").write_bytes(pattern(7, 0, 100 * KIB))
    for number in range(20):
        (shared / f"there{number}").write_bytes(b"x" * number)
    return shared


def open_many(directory, keep=lambda path, descriptor: descriptor):
    """Makes and opens files, and keeps of each the descriptor that `keep` gives, until it is refused: (descriptors, the
    error)."""
    descriptors = []
    for number in range(3000):
        path = directory / f"many{number}"
        made = attempt(os.open, path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        if not isinstance(made, int):
            return descriptors, made
        descriptors.append(keep(path, made))
    return descriptors, None


def table_size(process):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("FDSize:"))


@pytest.mark.time_limit(300)  # as many commits as there can be descriptors
def test_their_table_has_its_size_from_the_beginning(mount, place):
    """The kernel holds up for milliseconds who wants the descriptor for which it enlarges the table."""
    before = table_size(mount.pid)
    assert before >= DESCRIPTORS
    descriptors, failure = open_many(place)
    for descriptor in descriptors:
        os.close(descriptor)
    assert failure and table_size(mount.pid) == before


MAKERS = {
    "file": lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)),
    "mkdir": os.mkdir,
    "symlink": lambda path: os.symlink("target", path),
    "mkfifo": os.mkfifo,
    "mknod": lambda path: os.mknod(path, stat.S_IFREG | 0o600),
    "link": lambda path: os.link(path.parent / "many0", path),
}


@pytest.mark.P5
@pytest.mark.P6
def test_a_call_that_fails_has_changed_nothing(place):
    def use_up():
        descriptors, refusal = open_many(place)
        outcomes = {}
        kept = []
        for name, make in MAKERS.items():
            for number in range(8):
                path = place / f"{name}{number}"
                outcomes[path.name] = attempt(make, path)
                if outcomes[path.name] is None and name != "link":
                    kept.append(attempt(os.open, path, os.O_PATH | os.O_NOFOLLOW))  # nobody may forget it
        failed = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
        listed = set(os.listdir(place))
        assert not listed & set(failed), f"failed and there: {sorted(listed & set(failed))[:5]}"
        return repr((refusal, sorted(set(failed.values())), len(failed))).encode()

    refusal, errors, failed = eval(in_child(use_up, uid=ALICE))
    print(f"{failed} calls failed: {errors}")
    assert refusal in REFUSALS and set(errors) <= set(REFUSALS)
    # All that is listed is there, and belongs to who made it.
    for name in os.listdir(place):
        found = os.lstat(place / name)
        assert found.st_uid == (0 if name == "roots" or name.startswith("there") else ALICE), name


@pytest.mark.P4
@pytest.mark.P5
def test_what_was_opened_can_be_written_synced_and_closed(place):
    size = 150 * KIB  # three chunks

    def write_all():
        descriptors, refusal = open_many(place)
        failures = [attempt(os.pwrite, descriptor, pattern(number, 0, size), 0) for number, descriptor in enumerate(descriptors)]
        failures += [attempt(os.fsync, descriptor) for descriptor in descriptors[::3]]
        failures += [attempt(os.pwrite, descriptor, b"again", 0) for descriptor in descriptors[::2]]
        seen = [attempt(os.pread, descriptor, 5, 70_000) for descriptor in descriptors]
        failures += [attempt(os.close, descriptor) for descriptor in descriptors]
        failures = [each for each in failures if each not in (None, size, 5)]
        wrong = [number for number, got in enumerate(seen) if got != pattern(number, 70_000, 5)]
        return repr((len(descriptors), refusal, failures[:5], len(failures), wrong[:5])).encode()

    count, refusal, failures, failed, wrong = eval(in_child(write_all, uid=ALICE))
    print(f"{count} files opened")
    assert count > 100 and refusal in REFUSALS
    assert not failed and not wrong, (failures, failed, wrong)
    for number in range(0, count, 7):
        expected = pattern(number, 0, size)
        expected = b"again" + expected[5:] if number % 2 == 0 else expected
        assert (place / f"many{number}").read_bytes() == expected, number


def remove_open(directory):
    """As open_many(), but each is removed again and stays open: the daemon has to know where its name was until it ends."""
    def keep(path, descriptor):
        os.pwrite(descriptor, b"x", 70_000)
        os.unlink(path)
        return descriptor
    return open_many(directory, keep)


def remove_known(directory):
    """The same of files that nobody has open: what holds them is a descriptor made with O_PATH."""
    def keep(path, descriptor):
        os.pwrite(descriptor, b"x", 70_000)
        known = os.open(path, os.O_PATH)
        os.close(descriptor)
        os.unlink(path)
        return known
    return open_many(directory, keep)


@contextlib.contextmanager
def holding_many(directory, uid, open_many=open_many):
    """Another process, of this user, that has opened as many files as it is given: (how many, the error)."""
    to_parent, to_child = os.pipe(), os.pipe()
    holder = os.fork()
    if holder == 0:
        try:
            os.close(to_child[1])
            die_with_parent()
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            descriptors, refusal = open_many(directory)
            os.write(to_parent[1], f"{len(descriptors)} {refusal}".encode())
            os.read(to_child[0], 1)
        finally:
            os._exit(0)
    os.close(to_parent[1])
    try:
        count, refusal = os.read(to_parent[0], 100).decode().split()
        yield int(count), refusal
    finally:
        os.close(to_child[1])
        os.waitpid(holder, 0)
        os.close(to_parent[0])
        os.close(to_child[0])


@pytest.mark.P5
@pytest.mark.parametrize("how", [open_many, remove_open, remove_known])
def test_open_files_of_one_user_leave_the_others_enough(mount, place, how):
    def use():
        for number in range(20):
            assert os.stat(place / f"there{number}").st_size == number
        assert (place / "roots").read_bytes() == pattern(7, 0, 100 * KIB)
        assert len(os.listdir(place)) > (100 if how is open_many else 20)
        for number in range(30):
            (place / f"bobs{number}").write_bytes(pattern(number, 0, 100 * KIB))
            assert (place / f"bobs{number}").read_bytes() == pattern(number, 0, 100 * KIB)
            os.unlink(place / f"bobs{number}")
        os.mkdir(place / "bobs")
        os.rename(place / "bobs", place / "moved")

    with holding_many(place, ALICE, how) as (count, refusal):
        held = len(os.listdir(f"/proc/{mount.pid}/fd"))
        print(f"{count} files opened, then {refusal}; the daemon has {held} descriptors")
        assert refusal in REFUSALS and count > 100
        assert held < DESCRIPTORS - 256, "what calls need while they run is left to them"
        in_child(use, uid=BOB)
    # What is given back can be had again.
    with open(place / ("many0" if how is open_many else "roots"), "r+b") as file:
        file.write(b"x")


@pytest.mark.P6
def test_creating_opens_what_it_finds_by_the_rules(make_array, make_mount):
    """A name that appeared since the kernel looked (it keeps what it saw for a day): O_CREAT opens it as any other open."""
    array = make_array()
    mount = make_mount(array, "allow_other")
    os.chmod(mount.path, 0o1777)
    tree = array.members[0] / "tree"
    names = ("private", "readable", "directory", "link", "fifo", "device", "own", "hidden")
    for name in names:
        assert attempt(os.stat, mount.path / name) == "ENOENT"
    for name, mode in (("private", 0o600), ("readable", 0o644), ("own", 0o600)):
        os.close(os.open(tree / name, os.O_CREAT | os.O_WRONLY, mode))
    os.chown(tree / "own", ALICE, ALICE)
    (tree / "directory").mkdir()
    (tree / "link").symlink_to("own")
    os.mkfifo(tree / "fifo", 0o600)
    os.mknod(tree / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (tree / "hidden").mkdir()

    def create():
        # In a directory that is sticky and open to everybody, O_CREAT takes no file of somebody else
        # (fs.protected_regular); without it the rights to the file count.
        return repr([attempt(os.open, mount.path / "private", os.O_CREAT | os.O_RDWR, 0o666),
                     attempt(os.open, mount.path / "readable", os.O_CREAT | os.O_WRONLY, 0o666),
                     attempt(os.open, mount.path / "directory", os.O_CREAT | os.O_RDWR, 0o666),
                     attempt(os.open, mount.path / "link", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666),
                     attempt(os.open, mount.path / "fifo", os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o666),
                     attempt(os.open, mount.path / "device", os.O_CREAT | os.O_RDWR, 0o666),
                     attempt(os.open, mount.path / "own", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666),
                     attempt(os.mkdir, mount.path / "hidden"), stat.S_ISDIR(os.stat(mount.path / "hidden").st_mode),
                     isinstance(attempt(os.open, mount.path / "own", os.O_CREAT | os.O_RDWR, 0o666), int)]).encode()

    said = eval(in_child(create, uid=ALICE))
    assert said == ["EACCES", "EACCES", "EISDIR", "ELOOP", "EACCES", "EACCES", "EEXIST", "EEXIST", True, True], said
