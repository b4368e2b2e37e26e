"""The log, as whoever runs a mount as a service finds it: where it goes, which names it uses, how long it gets."""
import os
import re
import signal
import subprocess
import sys

import pytest

from lab.array import MountFailed
from lab.damage import extents_of, flip, read_at
from lab.data import write_pattern
from lab.programs import run
from lab.system import wait_until

CHUNK = 65536


@pytest.fixture
def damaged(make_array, make_mount):
    """An array whose /run7/x.pt has damage in chunk 1, and /run7/small in its index; not mounted."""
    array = make_array(chunk_size=CHUNK)
    array.damaged = True
    mount = make_mount(array)
    (mount.path / "run7").mkdir()
    write_pattern(mount.path / "run7/x.pt", 1, 4 * CHUNK)
    write_pattern(mount.path / "run7/small", 2, 100)
    extent = extents_of(mount, mount.path / "run7/x.pt")["extents"][1]
    mount.unmount()
    flip(extent["file"], extent["file_offset"] + 77)
    flip(array.members[0] / "tree/run7/small", 200)
    return array


@pytest.mark.P3
def test_one_bad_chunk_is_one_line_with_the_path_in_the_mount(damaged, make_mount):
    mount = make_mount(damaged)
    for _ in range(3):
        assert read_at(mount.path / "run7/x.pt", CHUNK, CHUNK) == "EIO"
        with pytest.raises(OSError):
            (mount.path / "run7/small").read_bytes()
    errors = [line.split(" error ", 1)[1] for line in mount.log().splitlines() if " error " in line]
    assert sorted(line.split(" ")[0] for line in errors) == ["/run7/small:", "/run7/x.pt,"], errors
    assert "/tree/" not in mount.log()


@pytest.mark.P3
def test_verify_off_is_for_measuring_reads_only(damaged, make_mount):
    """What is asked to check does, and nothing that was read unchecked can be written back."""
    with pytest.raises(MountFailed, match="verify=off needs ro"):
        make_mount(damaged, "verify=off")
    mount = make_mount(damaged, "ro,verify=off")
    assert "what programs read is not checked" in mount.log()
    assert len((mount.path / "run7/x.pt").read_bytes()) == 4 * CHUNK  # which is not what was written
    result = run(mount.array.programs.fpfs, "verify", mount.path / "run7/x.pt", check=False)
    assert result.returncode == 4 and "1 of 4 chunks is damaged (1)" in result.stderr, result
    result = run(mount.array.programs.fpfs, "scrub", "start", "--wait", mount.path, check=False)
    assert result.returncode == 4, result


def test_sighup_opens_the_log_file_anew(array, make_mount, lab, numbers):
    log = lab / f"log{next(numbers)}"
    mount = make_mount(array, f"log_file={log}")
    assert log.stat().st_mode & 0o7777 == 0o640
    assert "mounted at" in log.read_text()
    moved = log.rename(log.with_suffix(".1"))
    mount.process.send_signal(signal.SIGHUP)
    wait_until(log.exists)
    assert os.path.ismount(mount.path)
    mount.unmount()
    assert "everything is committed" in log.read_text() and "everything is committed" not in moved.read_text()


def test_a_log_file_in_no_directory_is_refused(array, make_mount, lab):
    with pytest.raises(MountFailed, match="no-such-directory.*No such file"):
        make_mount(array, f"log_file={lab}/no-such-directory/log")
    assert not (lab / "no-such-directory").exists()


def test_a_log_file_in_the_mount_itself_is_refused(array, make_mount, lab, numbers):
    """It would keep the mount busy, once it was opened anew."""
    place = lab / f"mount{next(numbers)}"
    place.mkdir()
    link = lab / f"link{next(numbers)}"
    link.symlink_to(place)
    for log in (place / "log", link / "log"):
        refused = subprocess.run([array.programs.mount, "-o", f"nonempty,log_file={log}", array.argument, place],
                                 capture_output=True, text=True, check=False)
        said, = refused.stderr.splitlines()
        assert refused.returncode == 1 and f"{log} is in the mount itself ({place}); name a file elsewhere" in said
        assert list(place.iterdir()) == []


def test_a_service_logs_to_the_journal_with_priorities(damaged, make_mount, binaries, lab, numbers):
    """As the unit has it: in the foreground, with what systemd says of stderr (systemd.exec(5), sd-daemon(3))."""
    mount = make_mount(damaged)
    mount.unmount()
    mount.log_path.write_text("")
    journal = mount.log_path.stat()
    mount.prefix = ["env", f"JOURNAL_STREAM={journal.st_dev}:{journal.st_ino}"]
    mount.start()
    assert read_at(mount.path / "run7/x.pt", CHUNK, CHUNK) == "EIO"
    mount.unmount()
    begun, damage, ended = mount.log().splitlines()
    assert begun.startswith(f"<6>{mount.path}: ") and " mounted at " in begun
    assert damage.startswith(f"<3>{mount.path}: /run7/x.pt, chunk 1: ")
    assert ended == f"<6>{mount.path}: {damaged.argument} unmounted, everything is committed"
    # And why there is no mount.
    said = lab / f"said{next(numbers)}"
    said.touch()
    with open(said, "ab") as stderr:
        subprocess.run([binaries.mount, "-f", lab / "no-such-member", mount.path], stderr=stderr, check=False,
                       env={**os.environ, "JOURNAL_STREAM": f"{said.stat().st_dev}:{said.stat().st_ino}"})
    assert re.fullmatch(r"<3>fastpersistfs: .*no-such-member.*\n", said.read_text())


def test_what_recovery_freed_is_logged(array, make_mount):
    mount = make_mount(array)
    descriptor = os.open(mount.path / "unfinished", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, os.urandom(3 << 20))
    wait_until(lambda: any(member["bytes_written"] for member in mount.status()["members"]))
    mount.kill()
    with pytest.raises(OSError):
        os.close(descriptor)
    mount.start()
    freed = re.search(r"was not unmounted cleanly: (\d+) objects? (?:was|were) freed that no file has", mount.log())
    assert freed and int(freed[1]) > 0, mount.log()


def test_a_recovery_that_finds_nothing_says_so(array, make_mount):
    mount = make_mount(array)
    mount.kill()
    mount.start()
    said = r" info the array was not unmounted cleanly: recovery ran, and found nothing to free$"
    assert re.search(said, mount.log(), re.MULTILINE), mount.log()


def test_why_a_mount_failed_is_in_the_log_file(array, binaries, lab, numbers):
    log, place = lab / f"log{next(numbers)}", lab / f"place{next(numbers)}"
    place.mkdir()
    (place / "precious").touch()
    options = [] if array.direct_io else ["-o", "buffered_members"]
    for foreground in ([], ["-f"]):
        result = subprocess.run([binaries.mount, *foreground, *options, f"--log_file={log}", array.argument, place],
                                capture_output=True, text=True)
        assert result.returncode == 1 and "not empty" in result.stderr and len(result.stderr.splitlines()) == 1
        line, = log.read_text().splitlines()
        assert " error not mounted: " in line and line.endswith(result.stderr.strip().removeprefix("fastpersistfs: "))
        log.unlink()


def test_relative_directories_are_absolute_in_the_log(array, binaries, lab, numbers):
    log, place = lab / f"log{next(numbers)}", lab / f"place{next(numbers)}"
    place.mkdir()
    options = [] if array.direct_io else ["-o", "buffered_members"]
    relative = ":".join(os.path.relpath(member, lab) for member in array.members)
    subprocess.run([binaries.mount, *options, f"--log_file={log}", relative, place], cwd=lab, check=True)
    subprocess.run([binaries.fpfs, "umount", place], check=True)
    assert f" {array.argument} mounted at {place}," in log.read_text(), log.read_text()
    assert f" {array.argument} unmounted" in log.read_text() and "../" not in log.read_text()


def test_a_failed_mount_does_not_say_that_it_unmounted(array, make_mount, lab):
    with pytest.raises(MountFailed) as refused:
        make_mount(array, f"tier=file://{lab}/no-such-store")
    assert "unmounted" not in str(refused.value) and "committed" not in str(refused.value)


# Runs in a mount namespace of its own, whose /dev has a log, or none.
IN_BACKGROUND = """
import os, socket, subprocess, sys
work, fastpersistfs, fpfs, members, mount_point, options, has_log = sys.argv[1:]
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind(work + "/socket")
os.mkdir(work + "/dev")
def run(*command):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)
run("mount", "-t", "tmpfs", "tmpfs", work + "/dev")
os.mkdir(work + "/dev/shm")
for name in ("fuse", "null", "full"):
    open(work + "/dev/" + name, "w").close()
for name in ("fuse", "null", "full", "shm"):
    run("mount", "--rbind", "/dev/" + name, work + "/dev/" + name)
if has_log == "yes":
    open(work + "/dev/log", "w").close()
    run("mount", "--bind", work + "/socket", work + "/dev/log")
run("mount", "--rbind", work + "/dev", "/dev")
sys.stderr.write(run(fastpersistfs, "-o", options, members, mount_point).stderr)
try:
    open(mount_point + "/run7/x.pt", "rb").read()
except OSError as error:
    print(error.strerror)
run(fpfs, "umount", mount_point)
log.setblocking(False)
try:
    while True:
        print(log.recv(65536).decode())
except BlockingIOError:
    pass
"""


@pytest.mark.root
@pytest.mark.P3
def test_in_the_background_the_log_is_the_systems(damaged, binaries, lab, numbers):
    def mounted_in_the_background(has_log, more=""):
        work = lab / f"namespace{next(numbers)}"
        (work / "mount").mkdir(parents=True)
        options = "durable=close" + ("" if damaged.direct_io else ",buffered_members") + more
        seen = subprocess.run(["unshare", "--mount", sys.executable, "-c", IN_BACKGROUND, work, binaries.mount,
                               binaries.fpfs, damaged.argument, work / "mount", options, has_log],
                              capture_output=True, text=True, timeout=60)
        assert seen.returncode == 0, seen.stdout + seen.stderr
        lines = seen.stdout.splitlines()
        assert lines[0] == "Input/output error"
        return work, lines, seen.stderr.splitlines()

    _, lines, said = mounted_in_the_background(has_log="no")
    assert len(lines) == 1 and len(said) == 1
    assert "no /dev/log" in said[0] and "log_file=FILE" in said[0], said
    work, lines, said = mounted_in_the_background(has_log="yes")
    assert not said
    # "<27>Nov 26 10:00:00 fastpersistfs[123]: /mnt/ckpt: ...": facility daemon, priority error or info
    told = [line for line in lines if line.startswith("<27>")]
    assert len(told) == 1 and f"]: {work}/mount: /run7/x.pt, chunk 1: " in told[0], lines
    assert any(line.startswith("<30>") and "everything is committed" in line for line in lines), lines
    # A log file whose drive is full.
    _, lines, said = mounted_in_the_background(has_log="yes", more=",log_file=/dev/full")
    assert not said
    told = [line for line in lines if ": /dev/full cannot be written (No space left on device), so this line is here: " in line]
    assert sum(" error /run7/x.pt, chunk 1: " in line for line in told) == 1, lines
    assert any("everything is committed" in line for line in told), lines
