"""Mounting itself: one clear line when it cannot be done, fstab and mount(8), options."""
import contextlib
import errno
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from lab import mount_table
from lab.array import Array, Mount, MountFailed
from lab.data import is_pattern, write_pattern
from lab.programs import REPOSITORY, run
from lab.system import wait_until, wait_until_gone

MIB = 1 << 20


@pytest.fixture
def daemon(array):
    """daemon(*arguments): the program as a user calls it, in the background; the finished command."""
    def call(*arguments):
        options = [] if array.direct_io else ["-o", "buffered_members"]
        return run(array.programs.mount, *options, *arguments, check=False)

    return call


@pytest.fixture
def place(lab, numbers):
    """An empty directory to mount on; whatever is mounted there afterwards goes away."""
    path = lab / f"place{next(numbers)}"
    path.mkdir()
    yield path
    entry = mount_table.entry_of(path)
    if entry:
        mount_table.abort(entry)
        mount_table.unmount(path, lazy=True)


def assert_refused(result, *words):
    assert result.returncode == 1, result.stdout + result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, f"one line was expected: {result.stderr}"
    for word in words:
        assert str(word) in lines[0], f"'{word}' is not in: {lines[0]}"


def daemon_pid(array, place):
    return json.loads(run(array.programs.fpfs, "status", "--json", place).stdout)["pid"]


def test_returns_when_the_mount_is_live(array, daemon, place):
    result = daemon(array.argument, place)
    assert result.returncode == 0, result.stderr
    write_pattern(place / "file", 1, 3 * MIB)
    pid = daemon_pid(array, place)
    assert mount_table.unmount(place).returncode == 0
    wait_until_gone(pid)
    assert daemon(array.argument, place).returncode == 0
    assert is_pattern(place / "file", 1, 3 * MIB)
    pid = daemon_pid(array, place)
    assert mount_table.unmount(place).returncode == 0
    wait_until_gone(pid)
    array.assert_clean()


@pytest.mark.P7
def test_missing_mount_point(array, daemon, place):
    assert_refused(daemon(array.argument, place / "absent"), place / "absent")


@pytest.mark.P7
def test_mount_point_is_a_file(array, daemon, place):
    (place / "file").touch()
    assert_refused(daemon(array.argument, place / "file"), place / "file")


@pytest.mark.P7
def test_mount_point_holds_something(array, daemon, place):
    (place / "file").touch()
    assert_refused(daemon(array.argument, place), place)


@pytest.mark.P7
def test_mount_point_inside_a_member(array, daemon, place):
    inside = array.members[0] / "objects"
    assert_refused(daemon(array.argument, inside), inside)


@pytest.mark.P7
def test_what_is_mounted_within_a_member(array, daemon, place):
    inside = array.members[0] / "objects" / "3d"
    run("mount", "-t", "tmpfs", "none", inside)
    try:
        assert_refused(daemon(array.argument, place), array.members[0],
                       "'objects/3d' in it is on another filesystem; a member lies on one")
    finally:
        run("umount", inside)


@pytest.mark.P7
def test_a_link_to_a_drive_that_is_not_mounted(array, daemon, place, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    others = ":".join(str(member) for member in array.members[1:])
    assert_refused(daemon(f"{tmp_path / 'link'}:{others}", place), tmp_path / "link",
                   "it is a symbolic link that leads nowhere; is the drive behind it mounted?")


@pytest.mark.P7
def test_directories_of_objects_that_are_missing(array, make_mount, tmp_path):
    """The mount says so, and so does whoever comes there. Half of them, so that a few saves do."""
    objects = array.members[0] / "objects"
    moved = [f"{number:02x}" for number in range(128)]
    for name in moved:
        shutil.move(objects / name, tmp_path / name)
    mount = make_mount(array)
    assert f"{objects}: 128 of its 256 directories are missing (00, ...)" in mount.log()
    failed = []
    for number in range(30):
        try:
            write_pattern(mount.path / f"file{number}", number, 9 * MIB)
        except OSError as error:
            failed.append(error.errno)
    assert failed and set(failed) == {errno.EIO}
    assert "fsck.fastpersistfs -n says what to do" in mount.log()
    # Whoever closed the last one was told; the kernel lets go of it behind that.
    wait_until(lambda: not mount.status()["open_files"])
    mount.unmount()
    for name in moved:
        shutil.move(tmp_path / name, objects / name)
    mount.start()
    assert "directories are missing" not in mount.log().split("unmounted")[-1]


@pytest.mark.P7
def test_array_in_use_names_the_holder(array, daemon, place, mount):
    assert_refused(daemon(array.argument, place), mount.pid)
    assert mount_table.entry_of(place) is None
    write_pattern(mount.path / "file", 1, MIB)  # and the holder goes on


@pytest.mark.P7
def test_mount_point_in_use(array, make_array, daemon, mount):
    assert_refused(daemon(make_array().argument, mount.path), mount.path)


def test_mount_point_whose_daemon_died(array, daemon, mount):
    mount.process.kill()
    mount.process.wait()
    for given in (mount.path, f"{mount.path}/"):
        assert_refused(daemon(array.argument, given), "daemon is gone", f"umount -l {mount.path}")
    mount.kill()


def test_array_that_was_detached_names_what_keeps_it(array, daemon, place, mount):
    with open(mount.path / "file", "wb"):
        mount_table.unmount(mount.path, lazy=True)
        mkfs = run(array.programs.mkfs, "--force", array.argument, check=False)
        assert mkfs.returncode == 1 and f"process {mount.pid}" in mkfs.stderr and "umount -l" in mkfs.stderr
    mount.process.wait(timeout=60)
    mount.process = None


def test_a_wait_for_who_holds_the_array_is_told(array, binaries, place, mount, lab, numbers):
    """A mount waits for a daemon that is on its way out; after a second it says so, and for whom."""
    options = [] if array.direct_io else ["-o", "buffered_members"]
    log = lab / f"log{next(numbers)}"
    with open(mount.path / "file", "wb"):
        mount_table.unmount(mount.path, lazy=True)
        waiting = subprocess.Popen([binaries.mount, *options, f"--log_file={log}", array.argument, place],
                                   stderr=subprocess.PIPE, text=True)
        line = waiting.stderr.readline()
        assert "waiting for at most 30 s" in line and f"process {mount.pid}" in line and str(mount.path) in line
    assert waiting.communicate(timeout=60) == (None, "") and waiting.returncode == 0
    assert "waiting for at most" in log.read_text()
    mount.process.wait(timeout=60)
    mount.process = None
    run(array.programs.fpfs, "umount", place)


@pytest.mark.root
def test_read_only_drive(make_array, make_drive, drives, daemon, place):
    drive = make_drive(64 << 20)
    array = make_array(paths=[drive.path, drives.paths[1]])
    run("mount", "-o", "remount,ro", drive.path)
    assert_refused(daemon(array.argument, place), array.members[0], "read-only", "mount the array with ro")
    assert daemon("-o", "ro", array.argument, place).returncode == 0
    run(array.programs.fpfs, "umount", place)
    run("mount", "-o", "remount,rw", drive.path)


def test_more_memory_than_there_is(array, daemon, place):
    assert_refused(daemon("-o", "buffer_memory=1000G", array.argument, place), "buffer_memory=1000 GiB", "this machine")


@pytest.mark.root
def test_more_memory_than_the_control_group_may_have(array, place):
    """The daemon would be killed for it as soon as it is mounted."""
    hierarchy, limit = pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not hierarchy.exists():
        hierarchy, limit = hierarchy.parent, "memory.max"
    group = hierarchy / f"fpfs-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(270 * MIB))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group for memory can be made here: {error}")
    command = [array.programs.mount, *([] if array.direct_io else ["-o", "buffered_members"]), array.argument, place]
    try:
        result = run("sh", "-c", f'echo $$ >"{group}/cgroup.procs" && exec "$@"', "sh", *command, check=False)
        assert_refused(result, "buffer_memory=256 MiB", "control group", "270 MiB")
    finally:
        mount_table.unmount(place)  # when it was not refused
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_directories_as_several_arguments(array, daemon, place):
    assert_refused(daemon(*array.members, place), "directories are one argument: " + array.argument)


@pytest.mark.P7
def test_not_formatted(binaries, daemon, drives, place, numbers):
    directory = drives.paths[0] / f"unformatted{next(numbers)}"
    directory.mkdir()
    try:
        assert_refused(daemon(directory, place), directory)
        assert os.listdir(directory) == []
    finally:
        directory.rmdir()


@pytest.mark.parametrize("options", [["-o", "durable=sometimes"], ["-o", "nonsense"], ["--buffer_memory=12X"], []])
def test_wrong_calls(array, binaries, place, options):
    arguments = [array.argument, place] if options else [array.argument]
    result = run(binaries.mount, *options, *arguments, check=False)
    assert result.returncode in (1, 16) and len(result.stderr.strip().splitlines()) == 1, result.stderr


def test_busy_unmount_keeps_working(mount):
    with open(mount.path / "file", "wb", buffering=0) as file:
        file.write(b"x" * 100)
        assert mount_table.unmount(mount.path).returncode != 0
        file.write(b"y" * 100)
    assert (mount.path / "file").read_bytes() == b"x" * 100 + b"y" * 100


@pytest.mark.P7
def test_init_formats_only_what_is_blank(binaries, drives, place, numbers, daemon):
    number = next(numbers)
    members = [path / f"init{number}" for path in drives.paths]
    argument = ":".join(str(member) for member in members)
    members[0].mkdir()
    (members[0] / "precious").write_text("data")
    refused = daemon("--init", argument, place)
    assert refused.returncode == 1
    assert "(it holds 'precious')" in refused.stderr and "--init formatted nothing" in refused.stderr
    assert (members[0] / "precious").read_text() == "data" and not members[1].exists()
    (members[0] / "precious").unlink()
    for first in (True, False):  # formats the first time, mounts what is there the second time
        result = daemon("--init", argument, place)
        assert result.returncode == 0, result.stderr
        assert (f"{argument}: an array was made there" in result.stderr) == first, result.stderr
        if not first:
            assert is_pattern(place / "file", 1, MIB)
        write_pattern(place / "file", 1, MIB)
        pid = json.loads(run(binaries.fpfs, "status", "--json", place).stdout)["pid"]
        assert mount_table.unmount(place).returncode == 0
        wait_until_gone(pid)
    for member in members:
        shutil.rmtree(member)


def test_usual_options(array, make_mount):
    mount = make_mount(array, "noatime", "nosuid", "nodev", "noexec")
    entry = mount_table.entry_of(mount.path)
    assert {"noatime", "nosuid", "nodev", "noexec"} <= set(entry.options.split(","))
    assert entry.kind == "fuse.fastpersistfs"
    (mount.path / "program").write_text("#!/bin/sh\n")
    os.chmod(mount.path / "program", 0o755)
    with pytest.raises(PermissionError):
        subprocess.run([str(mount.path / "program")], check=False)


def test_odd_paths(binaries, drives, make_mount, lab, numbers):
    """Spaces, commas' neighbours and letters beyond ASCII in the paths of members and of the mount point."""
    number = next(numbers)
    members = [path / f"odd {number} ü" for path in drives.paths]
    array = Array(binaries, members, drives.direct_io)
    mount = Mount(array, lab / f"mount point {number} é\\").start()
    try:
        write_pattern(mount.path / "file", 1, MIB)
        assert run(binaries.fpfs, "stat", mount.path / "file").returncode == 0
        mount.unmount()
        array.assert_clean()
    finally:
        mount.destroy()
        array.remove()


def test_null_write_discards(array, make_mount):
    """null_write measures the path alone; the array must not look damaged for it."""
    mount = make_mount(array, "null_write")
    with open(mount.path / "file", "wb", buffering=0) as file:
        for _ in range(64):
            assert file.write(bytes(MIB)) == MIB
    assert sum(member["bytes_written"] for member in mount.status()["members"]) < 8 * MIB
    mount.remount()
    # Content that is there would be lost.
    mount.unmount()
    mount.options = []
    mount.start()
    (mount.path / "kept").write_bytes(b"content")
    mount.unmount()
    mount.options = ["null_write"]
    with pytest.raises(MountFailed, match="null_write stores nothing.*/kept for one"):
        mount.start()
    mount.options = ["null_write", "ro"]
    mount.start()
    assert (mount.path / "kept").read_bytes() == b"content"


# --- mount(8) ----------------------------------------------------------------------------------------------------

HELPER = pathlib.Path("/sbin/mount.fastpersistfs")


@pytest.fixture
def installed(binaries, tmp_path):
    """mount(8) looks for the helper in /sbin only, and the helper for the daemon beside itself; only for this test."""
    if HELPER.exists() or HELPER.is_symlink():
        pytest.skip(f"{HELPER} is installed on this machine: left alone")
    shutil.copy(REPOSITORY / "mount-scripts/mount.fastpersistfs", tmp_path)
    (tmp_path / "fastpersistfs").symlink_to(binaries.mount)
    HELPER.symlink_to(tmp_path / HELPER.name)
    yield
    HELPER.unlink()


def ended(array, place):
    pid = daemon_pid(array, place)
    run("umount", place)
    wait_until_gone(pid)


@pytest.mark.root
def test_mount_by_type(array, installed, place):
    options = "noatime" if array.direct_io else "noatime,buffered_members"
    run("mount", "-t", "fastpersistfs", array.argument, place, "-o", options)
    seen = mount_table.entry_of(place).options.split(",")
    assert "noatime" in seen and not {"nosuid", "nodev"} & set(seen), "as a local filesystem"
    write_pattern(place / "file", 1, 2 * MIB)
    assert is_pattern(place / "file", 1, 2 * MIB)
    ended(array, place)
    array.assert_clean()


@pytest.mark.root
def test_mount_from_fstab(array, installed, place, tmp_path):
    options = "defaults,nofail,allow_other" + ("" if array.direct_io else ",buffered_members")
    fstab = tmp_path / "fstab"
    fstab.write_text(f"{array.argument} {place} fastpersistfs {options} 0 0\n")
    run("mount", "--fstab", fstab, place)
    assert "allow_other" in mount_table.entry_of(place).options
    write_pattern(place / "file", 1, 2 * MIB)
    ended(array, place)
    run("mount", "--fstab", fstab, "-o", "ro,nosuid", place)
    assert "nosuid" in mount_table.entry_of(place).options.split(",")
    assert is_pattern(place / "file", 1, 2 * MIB)
    with pytest.raises(OSError):
        (place / "new").touch()
    ended(array, place)


@pytest.mark.P7
@pytest.mark.root
def test_mount_by_type_says_why_not(array, installed, place):
    result = run("mount", "-t", "fastpersistfs", "/nonexistent/member", place, check=False)
    assert result.returncode == 32 and "/nonexistent/member" in result.stderr
