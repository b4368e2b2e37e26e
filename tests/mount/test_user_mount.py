"""A mount by a user who is not root, through fusermount3."""
import json
import os
import pwd
import shutil
import stat

import pytest

from lab import mount_table
from lab.data import is_pattern, write_pattern
from lab.programs import run
from lab.system import attempt, in_child, wait_until_gone

MIB = 1 << 20
# Users that every machine has: fusermount3 wants to know their names.
ALICE, BOB = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("daemon").pw_uid
TEAM = 4300

pytestmark = pytest.mark.root


def owner(path):
    found = os.lstat(path)
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@pytest.fixture
def fuse_for_users():
    """/dev/fuse as udev makes it on any distribution; bare machines leave it to root."""
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    yield
    os.chmod("/dev/fuse", mode)


@pytest.fixture
def as_alice(fuse_for_users, binaries, drives, lab, numbers):
    """as_alice(*command): runs it as an ordinary user. It has .members and .place, which belong to her."""
    number = next(numbers)
    # The build may lie where only root may look.
    programs = lab / f"programs{number}"
    programs.mkdir()
    for program in (binaries.mount, binaries.mkfs, binaries.fsck, binaries.fpfs):
        shutil.copy(program, programs)
    homes = [path / f"alice{number}" for path in drives.paths]
    place = lab / f"alices{number}"
    for path in (*homes, place):
        path.mkdir()
        os.chown(path, ALICE, ALICE)

    def call(program, *arguments, check=True, **options):
        words = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", f"--groups={TEAM}", "--inh-caps=-all",
                 str(programs / program) if (programs / program).exists() else program]
        if call.options and program == "fastpersistfs":
            words += ["-o", call.options[1:]]
        return run(*words, *arguments, check=check, cwd="/", **options)

    call.members, call.place = ":".join(str(path / "array") for path in homes), place
    call.first_member, call.programs = homes[0] / "array", programs
    call.options = "" if drives.direct_io else ",buffered_members"
    yield call
    entry = mount_table.entry_of(place)
    if entry:
        mount_table.abort(entry)
        mount_table.unmount(place, lazy=True)
    for path in (*homes, place, programs):
        shutil.rmtree(path)


@pytest.mark.P6
def test_mount_by_an_ordinary_user(as_alice):
    place = as_alice.place
    as_alice("mkfs.fastpersistfs", as_alice.members)
    assert owner(as_alice.first_member) == (ALICE, ALICE, 0o700)
    as_alice("fastpersistfs", as_alice.members, place)
    entry = mount_table.entry_of(place)
    assert entry.kind == "fuse.fastpersistfs" and {"nosuid", "nodev", f"user_id={ALICE}"} <= set(entry.options.split(","))

    def use():
        write_pattern(place / "file", 1, 9 * MIB)
        os.chmod(place / "file", 0o400)
        os.chown(place / "file", -1, TEAM)
        os.mkdir(place / "d")
        os.rename(place / "file", place / "d/file")
        os.symlink("d/file", place / "link")
        os.setxattr(place / "d", "user.note", b"kept")
        assert is_pattern(place / "link", 1, 9 * MIB)

    in_child(use, uid=ALICE, groups=[TEAM])
    # Nobody else gets in, not even root.
    assert attempt(os.listdir, place) == "EACCES"
    assert in_child(lambda: repr(attempt(os.stat, place / "link")).encode(), uid=BOB) == b"'EACCES'"
    status = as_alice("fpfs", "status", "--json", place)
    assert status.returncode == 0
    as_alice("fpfs", "sync", place)
    assert as_alice("fsck.fastpersistfs", "-n", as_alice.members, check=False).returncode == 0
    as_alice("fusermount3", "-u", place)
    wait_for_free(as_alice)
    report = as_alice("fsck.fastpersistfs", "-n", "--verify-data", as_alice.members)
    assert report.returncode == 0
    as_alice("fastpersistfs", "-o", "ro", as_alice.members, place)
    in_child(lambda: None if is_pattern(place / "d/file", 1, 9 * MIB) else 1 / 0, uid=ALICE)
    as_alice("fusermount3", "-u", place)
    wait_for_free(as_alice)


@pytest.mark.P7
def test_root_has_mounted_it_meanwhile(as_alice, binaries):
    """Its files are in the way; the refusal says how to get over that, and then they are there."""
    as_alice("mkfs.fastpersistfs", as_alice.members)
    options = ["-o", as_alice.options[1:]] if as_alice.options else []
    run(binaries.mount, *options, as_alice.members, as_alice.place)
    write_pattern(as_alice.place / "file", 1, 9 * MIB)
    run(binaries.fpfs, "umount", as_alice.place)
    refused = as_alice("fastpersistfs", as_alice.members, as_alice.place, check=False)
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1, refused.stderr
    said, command = refused.stderr.strip().split("have root make it yours: ")
    assert "Permission denied; another user, perhaps root, has mounted the array" in said
    assert command == f"chown -R {ALICE}:{ALICE} {as_alice.members.replace(':', ' ')}"
    run(*command.split())
    as_alice("fastpersistfs", as_alice.members, as_alice.place)
    in_child(lambda: None if is_pattern(as_alice.place / "file", 1, 9 * MIB) else 1 / 0, uid=ALICE)
    in_child(lambda: write_pattern(as_alice.place / "file", 2, 9 * MIB), uid=ALICE)
    as_alice("fusermount3", "-u", as_alice.place)
    wait_for_free(as_alice)


def wait_for_free(as_alice):
    """Until the daemon, whose mount is gone, has committed everything: fsck takes the lock for a moment."""
    deadline = 300
    while as_alice("fsck.fastpersistfs", "-p", as_alice.members, check=False).returncode == 8:
        deadline -= 1
        assert deadline


@pytest.mark.P1
def test_ordinary_user_crashes_and_mounts_again(as_alice):
    as_alice("fastpersistfs", "--init", as_alice.members, as_alice.place)
    in_child(lambda: write_pattern(as_alice.place / "file", 2, 5 * MIB), uid=ALICE)
    pid = json.loads(as_alice("fpfs", "status", "--json", as_alice.place).stdout)["pid"]
    os.kill(pid, 9)
    as_alice("fusermount3", "-u", "-z", as_alice.place)
    as_alice("fastpersistfs", as_alice.members, as_alice.place)
    in_child(lambda: None if is_pattern(as_alice.place / "file", 2, 5 * MIB) else 1 / 0, uid=ALICE)
    as_alice("fusermount3", "-u", as_alice.place)
    wait_for_free(as_alice)


@pytest.mark.P6
def test_files_that_their_owner_may_not_write_inherit_compression(as_alice):
    """Setting an attribute takes the right to write, which the daemon has as the owner only."""
    place, attribute = as_alice.place, "user.fastpersistfs.compress"

    def make():
        os.setxattr(place, attribute, b"zstd")
        for mode in (0o444, 0o555, 0o644):
            descriptor = os.open(place / f"{mode:03o}", os.O_CREAT | os.O_WRONLY, mode)
            os.write(descriptor, bytes(MIB))
            os.close(descriptor)
        os.mkdir(place / "d", 0o555)

    def look():
        for path in place.iterdir():
            assert os.getxattr(path, attribute) == b"zstd"
            assert path.name == "d" or f"{stat.S_IMODE(os.stat(path).st_mode):03o}" == path.name

    as_alice("fastpersistfs", "--init", as_alice.members, place)
    in_child(make, uid=ALICE)
    in_child(look, uid=ALICE)
    as_alice("fusermount3", "-u", place)
    wait_for_free(as_alice)


@pytest.mark.P6
def test_files_that_their_owner_may_not_read(as_alice):
    """The daemon is that owner: it keeps what it cannot read, and gives it back with the permission."""
    place = as_alice.place

    def unmount():  # without a look by fsck -p, which would free what is left over
        daemon = json.loads(as_alice("fpfs", "status", "--json", place).stdout)["pid"]
        as_alice("fusermount3", "-u", place)
        wait_until_gone(daemon)

    def remount():
        unmount()
        as_alice("fastpersistfs", as_alice.members, place)

    def save():
        for seed, name in enumerate(("kept", "removed")):
            write_pattern(place / name, seed, 5 * MIB)
            os.chmod(place / name, 0)

    as_alice("fastpersistfs", "--init", as_alice.members, place)
    in_child(save, uid=ALICE)
    remount()
    in_child(lambda: os.unlink(place / "removed"), uid=ALICE)
    in_child(lambda: os.chmod(place / "kept", 0o600), uid=ALICE)
    remount()
    in_child(lambda: None if is_pattern(place / "kept", 0, 5 * MIB) else 1 / 0, uid=ALICE)
    unmount()
    report = json.loads(as_alice("fsck.fastpersistfs", "-n", "--json", "--verify-data", as_alice.members).stdout)
    assert report["clean"] and report["orphans"] == 0, report


def test_little_locked_memory_is_enough(as_alice):
    """DeepNVMe ends the process of a user with the usual limit of 8 MiB."""
    program = as_alice.programs / "fastpersistfs"
    as_alice("prlimit", "--memlock=8388608", str(program), *(["-o", as_alice.options[1:]] if as_alice.options else []), "--init",
             as_alice.members, as_alice.place)
    in_child(lambda: write_pattern(as_alice.place / "file", 3, 64 * MIB), uid=ALICE)
    in_child(lambda: None if is_pattern(as_alice.place / "file", 3, 64 * MIB) else 1 / 0, uid=ALICE)
    as_alice("fusermount3", "-u", as_alice.place)
    wait_for_free(as_alice)


@pytest.mark.P7
def test_what_an_ordinary_user_may_not(as_alice, drives):
    as_alice("mkfs.fastpersistfs", as_alice.members)
    # allow_other is the administrator's to permit (user_allow_other in /etc/fuse.conf).
    permitted = any(line.strip() == "user_allow_other" for line in open("/etc/fuse.conf"))
    result = as_alice("fastpersistfs", "-o", "allow_other", as_alice.members, as_alice.place, check=False)
    if permitted:
        as_alice("fusermount3", "-u", as_alice.place)
        wait_for_free(as_alice)
    else:
        assert result.returncode == 1 and "user_allow_other" in result.stderr, result.stderr
        assert mount_table.entry_of(as_alice.place) is None
    # A place of somebody else's; members of somebody else's.
    foreign = drives.paths[0] / "foreign"
    foreign.mkdir(mode=0o755)
    try:
        result = as_alice("fastpersistfs", as_alice.members, foreign, check=False)
        assert result.returncode == 1 and mount_table.entry_of(foreign) is None
        assert str(foreign) in result.stderr, result.stderr
        result = as_alice("mkfs.fastpersistfs", foreign / "member", check=False)
        assert result.returncode == 1 and "Permission denied" in result.stderr
    finally:
        foreign.rmdir()
    os.chown(as_alice.first_member, BOB, BOB)
    result = as_alice("fastpersistfs", as_alice.members, as_alice.place, check=False)
    assert result.returncode == 1 and str(as_alice.first_member) in result.stderr
    assert len(result.stderr.splitlines()) == 1
    os.chown(as_alice.first_member, ALICE, ALICE)


@pytest.mark.P6
def test_daemon_without_root_serves_others_what_it_can(as_alice, tmp_path):
    """With allow_other others read what modes allow them. What they make cannot be given to them: it is refused, and not
    left behind as the daemon's own."""
    permitting = tmp_path / "fuse.conf"
    permitting.write_text("user_allow_other\n")
    place = as_alice.place
    bob = f"setpriv --reuid={BOB} --regid={BOB} --clear-groups --inh-caps=-all"
    alice = f"setpriv --reuid={ALICE} --regid={ALICE} --clear-groups --inh-caps=-all"
    script = f"""
        mount --bind {permitting} /etc/fuse.conf
        {alice} {as_alice.programs}/fastpersistfs --init -o allow_other{as_alice.options} {as_alice.members} {place}
        {alice} sh -euc 'cd {place}; umask 0; echo shared > file; chmod 644 file; echo own > private; chmod 600 private
                         mkdir -m 777 open; echo written > blind; chmod 200 blind
                         sleep 0.5  # until it is closed here, too
                         if echo more > blind; then echo blind; fi 2>/dev/null'
        {bob} sh -uc 'cd {place}; cat file; cat private 2>&1; cd open; touch file 2>&1; mkdir d 2>&1; ln -s x link 2>&1; ls -A'
        {alice} fusermount3 -u {place}
    """
    # /etc/fuse.conf changes in this mount namespace only.
    said = run("unshare", "--mount", "--propagation", "private", "sh", "-euc", script, cwd="/").stdout.splitlines()
    assert said[0] == "shared" and "Permission denied" in said[1]
    assert len(said) == 5 and all("Operation not permitted" in line for line in said[2:]), said
    wait_for_free(as_alice)
