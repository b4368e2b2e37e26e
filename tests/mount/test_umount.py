"""Unmounting that waits: fpfs umount, and the helpers of umount(8), return when the daemon has ended, with its status."""
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab import mount_table
from lab.data import is_pattern, write_pattern
from lab.programs import REPOSITORY, run


MIB = 1 << 20
BOUNDED = 60


def umount(mount, *options, **how):
    return subprocess.Popen([mount.array.programs.fpfs, "umount", *options, str(mount.path)], text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


def finish(process):
    """The exit status and the lines on stderr."""
    output, errors = process.communicate(timeout=BOUNDED)
    assert output == ""
    return process.returncode, errors.splitlines()


def assert_over(mount):
    """Nobody holds the array, and it is clean."""
    for member in mount.array.members:
        with open(member / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not (mount.array.members[0] / "state").exists()
    with open(f"/proc/{mount.pid}/stat") as stat:  # the tests are its parent, so it stays until they ask
        assert stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    assert mount.process.wait() == 0
    mount.process = None


def write_without_commit(path, seed, size):
    """On a mount with durable=fsync: closed, and not on the drives."""
    write_pattern(path, seed, size)


@pytest.mark.P1
def test_it_returns_when_everything_is_over(array, make_mount):
    mount = make_mount(array, "durable=fsync")
    write_without_commit(mount.path / "file", 1, 40 * MIB)
    assert finish(umount(mount)) == (0, [])
    assert_over(mount)
    mount.start()
    assert is_pattern(mount.path / "file", 1, 40 * MIB)


@pytest.fixture
def ending(drives, faulty, make_array, make_mount):
    """A mount that is taken away already, whose daemon commits until the faulty drive is well again, and who waits for it."""
    mount = make_mount(make_array(paths=[*drives.paths[:2], faulty.path]), "durable=fsync")
    faulty.hang("write", "sync")
    write_without_commit(mount.path / "file", 1, 12 * MIB)
    waiting = umount(mount)
    while mount_table.entry_of(mount.path):
        time.sleep(0.01)
    return mount, waiting


@pytest.mark.P1
@pytest.mark.root
def test_it_waits_for_a_slow_drive(faulty, ending):
    mount, waiting = ending
    # What plain umount(2) returns to.
    time.sleep(1)
    assert waiting.poll() is None and mount.process.poll() is None
    faulty.heal()
    assert finish(waiting) == (0, [])
    assert_over(mount)
    mount.start()
    assert is_pattern(mount.path / "file", 1, 12 * MIB)


@pytest.mark.P4
@pytest.mark.root
def test_it_says_what_could_not_be_done(drives, faulty, make_array, make_mount):
    array = make_array(paths=[*drives.paths[:2], faulty.path])
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 12 * MIB)
    faulty.fail("write", "sync")  # the end of the mount cannot be recorded there
    status, lines = finish(umount(mount))
    assert mount.process.wait(timeout=BOUNDED) == 1
    mount.process = None
    assert status == 1 and len(lines) == 1, lines
    assert lines[0].startswith(f"fpfs umount: {mount.path}: unmounted, but the daemon ended with exit status 1: ")
    assert (array.members[0] / "state").exists()
    faulty.heal()


@pytest.mark.P4
@pytest.mark.root
def test_a_drive_that_hangs_for_good_does_not_keep_it(drives, faulty, make_array, make_mount):
    array = make_array(paths=[*drives.paths[:2], faulty.path])
    array.damaged = True
    mount = make_mount(array, "durable=fsync", "io_timeout=1")
    faulty.hang("write", "sync")
    with open(mount.path / "file", "wb") as file:
        file.write(b"x" * 12 * MIB)
    status, lines = finish(umount(mount))
    assert status == 1 and len(lines) == 1 and "exit status 1" in lines[0], lines
    faulty.heal()
    mount.process.wait(timeout=BOUNDED)
    mount.process = None


@pytest.mark.P4
def test_a_daemon_that_is_killed_meanwhile(array, make_mount):
    array.damaged = True
    mount = make_mount(array)
    mount.freeze()
    waiting = umount(mount)
    while mount_table.entry_of(mount.path):
        time.sleep(0.01)
    mount.process.kill()
    status, lines = finish(waiting)
    assert status == 1 and len(lines) == 1 and f"process {mount.pid}) was killed" in lines[0], lines
    mount.process.wait()
    mount.process = None


def test_what_is_busy_stays(mount):
    with open(mount.path / "file", "wb"):
        status, lines = finish(umount(mount))
        assert status == 1 and len(lines) == 1 and "in use" in lines[0]
        assert mount_table.entry_of(mount.path)
        # Detached, it does not wait, and says so.
        status, lines = finish(umount(mount, "-l"))
        assert status == 0 and len(lines) == 1 and "not waited for" in lines[0]
        assert mount.process.poll() is None
    assert mount.process.wait(timeout=BOUNDED) == 0
    mount.process = None


@pytest.mark.P1
@pytest.mark.root
def test_one_whose_device_was_that_of_a_daemon_that_still_commits(faulty, ending, make_array, make_mount):
    first, waiting = ending
    # The kernel gives its device to the next mount, of whoever that is.
    others = [make_mount(make_array()) for _ in range(3)]
    for other in others:
        assert "cannot wait" not in other.log()
        write_without_commit(other.path / "file", 2, 4 * MIB)
        assert finish(umount(other)) == (0, [])
        assert_over(other)
    assert waiting.poll() is None and first.process.poll() is None
    faulty.heal()
    assert finish(waiting) == (0, [])
    assert_over(first)


# Loaded before a program's libraries: it stays in umount2(2), with the mount gone, while the file is there.
LINGERING_UMOUNT = """
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int umount2(const char* path, int flags) {
  const int result = syscall(SYS_umount2, path, flags);
  while (access(getenv("LINGER"), F_OK) == 0) usleep(1000);
  return result;
}
"""


@pytest.mark.P1
@pytest.mark.root
def test_one_whose_device_is_taken_at_once(array, make_array, make_mount, tmp_path):
    """Not a mount that shows at another place too."""
    (tmp_path / "linger.c").write_text(LINGERING_UMOUNT)
    run("cc", "-shared", "-fPIC", "-o", tmp_path / "linger.so", tmp_path / "linger.c")
    (tmp_path / "linger").touch()
    mount = make_mount(array)
    device = pathlib.Path("/sys/class/bdi", mount_table.entry_of(mount.path).device)
    lingering = {"LD_PRELOAD": str(tmp_path / "linger.so"), "LINGER": str(tmp_path / "linger")}
    waiting = umount(mount, env={**os.environ, **lingering})
    assert mount.process.wait(timeout=BOUNDED) == 0
    for _ in range(8):  # what else is mounted on this machine meanwhile may be in the way
        if not device.exists():
            make_mount(make_array())
    assert waiting.poll() is None
    (tmp_path / "linger").unlink()
    assert finish(waiting) == (0, [])
    mount.process = None


@pytest.mark.P1
def test_many_at_once(make_array, make_mount, tmp_path):
    """Devices go from one mount to the next all the time."""
    mounts = [make_mount(make_array()) for _ in range(4)]
    write_pattern(tmp_path / "file", 1, 1 * MIB)
    stop = time.monotonic() + 5

    def come_and_go(mount):
        while True:
            # By a process of its own: what this one has open, the next that another thread starts has until it is another
            # program, and then the mount is in use.
            run("cp", tmp_path / "file", mount.path)
            ended = finish(umount(mount))
            if ended != (0, []):
                return ended
            assert_over(mount)
            if time.monotonic() > stop:
                return ended
            mount.start()

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(come_and_go, mounts)) == [(0, [])] * 4


@pytest.mark.root
def test_a_mount_that_shows_twice_is_not_waited_for(mount, lab, numbers):
    other = lab / f"other{next(numbers)}"
    other.mkdir()
    run("mount", "--bind", mount.path, other)
    try:
        process = subprocess.run([mount.array.programs.fpfs, "umount", str(other)], capture_output=True, text=True,
                                 timeout=BOUNDED)
        assert process.returncode == 0 and "another place" in process.stderr
        assert mount.process.poll() is None and os.listdir(mount.path) == []
    finally:
        if mount_table.entry_of(other):
            mount_table.unmount(other, lazy=True)
        other.rmdir()
    assert finish(umount(mount)) == (0, [])
    assert_over(mount)


def test_a_mount_whose_daemon_is_gone(array, make_mount):
    """Removed, also while somebody has a file open there, who gets errors already."""
    mount = make_mount(array)
    for is_used, options in ((False, []), (True, []), (True, ["-l"])):
        used = os.open(mount.path, os.O_RDONLY) if is_used else None
        mount.process.kill()
        mount.process.wait()
        status, lines = finish(umount(mount, *options))
        if is_used:
            os.close(used)
        assert status == 0 and len(lines) == 1
        assert "daemon had ended" in lines[0] and "mount the array again" in lines[0]
        assert mount_table.entry_of(mount.path) is None
        mount.process = None
        mount.start()


@pytest.mark.root
def test_what_keeps_a_detached_mount_is_found_as_the_guide_says(array, make_mount):
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
    command, = [line.strip() for line in page.splitlines() if "-exec stat -fLc" in line]
    mount = make_mount(array)
    with open(mount.path / "held", "wb") as held:
        assert finish(umount(mount, "-l"))[0] == 0
        found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=BOUNDED).stdout
        place = f"/proc/{os.getpid()}/fd/{held.fileno()}"
        assert place in found and os.readlink(place) == "/held"
    assert mount.process.wait(timeout=BOUNDED) == 0
    mount.process = None


def test_links_and_relative_names(array, make_mount, tmp_path):
    mount = make_mount(array)
    (tmp_path / "link").symlink_to(mount.path)
    result = run(array.programs.fpfs, "umount", "--json", tmp_path / "link")
    assert result.stderr == "" and json.loads(result.stdout)["unmounted"] is True
    assert_over(mount)
    mount.start()
    assert run(array.programs.fpfs, "umount", mount.path.name + "/", cwd=mount.path.parent).stderr == ""
    assert_over(mount)


@pytest.mark.parametrize("path", ["/", "/nowhere/at/all", "."])
def test_what_is_no_mount_of_ours(binaries, path, tmp_path):
    refused = run(binaries.fpfs, "umount", path, check=False, cwd=tmp_path)
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1


# --- umount(8) --------------------------------------------------------------------------------------------------------

# In a mount namespace of its own, whose /sbin has the helpers as an installation has them: nobody else sees them.
INSTALLED = """
set -e
sbin=$(readlink -f /sbin)
mount -t tmpfs none "$1"
mkdir "$1/new" "$1/work"
mount -t overlay -o "lowerdir=$sbin,upperdir=$1/new,workdir=$1/work" none "$sbin"
for name in umount.fastpersistfs umount.fuse.fastpersistfs umount.fuse; do install -m 755 "$2/umount.fastpersistfs" "$sbin/$name"; done
install -m 755 "$3/fpfs" "$sbin/fpfs"  # umount(8) has a PATH of its own
shift 3
exec "$@"
"""


@pytest.mark.root
def test_umount_calls_the_helper(array, lab, binaries, numbers):
    place = lab / f"umount{next(numbers)}"
    for name in ("sbin", "programs", "mount"):
        (place / name).mkdir(parents=True)
    shutil.copy(binaries.fpfs, place / "programs")
    body = f"""
import os, subprocess, sys
sys.path.insert(0, {str(REPOSITORY / "tests")!r})
from lab.data import write_pattern
def is_over(pid):  # nobody may be there to ask for its status
    try:
        return open(f"/proc/{{pid}}/stat").read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
mount, members = {str(place / "mount")!r}, {[str(member) for member in array.members]!r}
for flags, said in ([], ""), (["-v"], "umount.fastpersistfs: "), (["-n", "-r"], ""), (["-l"], ""):
    subprocess.run([{binaries.mount!r}, "-o", "durable=fsync{"" if array.direct_io else ",buffered_members"}",
                    ":".join(members), mount], check=True)
    pid = int(open(members[0] + "/lock").read())
    write_pattern(mount + "/file", 1, 40 << 20)
    done = subprocess.run(["umount", *flags, mount], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (flags, done)
    assert done.stdout.startswith(said) and (said or not done.stdout), done
    if flags == ["-l"]:
        assert "not waited for" in done.stderr, done
        while not is_over(pid): pass
    assert done.stderr == "" or flags == ["-l"], done
    assert is_over(pid), "umount returned before its daemon had ended"
    assert not os.path.exists(members[0] + "/state")
# What is not ours is taken away as ever.
subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=True)
subprocess.run(["/sbin/umount.fuse", mount, "-n"], check=True)
assert not os.path.ismount(mount)
print("well")
"""
    try:
        done = run("unshare", "--mount", "--propagation", "private", "sh", "-c", INSTALLED, "sh", place / "sbin",
                   REPOSITORY / "mount-scripts", place / "programs", sys.executable, "-c", body, check=False)
        if "overlay" in done.stderr and "unknown filesystem type" in done.stderr:
            pytest.skip("this kernel has no overlay filesystem")
        assert done.stdout == "well\n", done.stdout + done.stderr
    finally:
        shutil.rmtree(place)
    array.assert_clean()
