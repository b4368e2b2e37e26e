"""setup-nvme: which drives it takes, and that it does what it shows. Drives are loop devices and lsblk's words."""
import json
import os
import re
import shutil
import subprocess

import pytest

from lab import mount_table
from lab.programs import REPOSITORY, run

SCRIPT = REPOSITORY / "mount-scripts" / "setup-nvme"
GIB = 1 << 30

pytestmark = pytest.mark.root


def assert_refused(result, *words):
    """With one line, and nothing was shown."""
    assert result.returncode == 1 and result.stdout == "", result.stdout
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine(drive...): what lsblk finds; each is a sparse file, and unused unless its description says otherwise.
    Returns a call of setup-nvme that shows what it would do."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "fstab").write_text("# static\nUUID=1 / ext4 defaults 0 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def make(*descriptions):
        drives = []
        for number, description in enumerate(descriptions):
            path = tmp_path / f"nvme{number}n1"
            with open(path, "wb") as file:
                file.truncate(2 * GIB)
            drives.append({"name": path.name, "path": str(path), "type": "disk", "size": 2 * GIB, "model": "Drive",
                           "tran": "nvme", "fstype": None, "pttype": None, "mountpoints": [None], "ro": False,
                           "rm": False, "zoned": "none", **description})
        answer = tmp_path / "lsblk.json"
        answer.write_text(json.dumps({"blockdevices": drives}))
        (tmp_path / "bin" / "lsblk").write_text(f"#!/bin/sh\ncat {answer}\n")
        (tmp_path / "bin" / "lsblk").chmod(0o755)
        return lambda *arguments: run(SCRIPT, "--fstab", tmp_path / "fstab", "--prefix", tmp_path / "nvme", *arguments,
                                      check=False)

    return make


USED = {
    "a partition": ({"children": [{"name": "nvme0n1p1", "type": "part"}]}, "it has nvme0n1p1 (part)"),
    "LVM": ({"children": [{"name": "vg-lv", "type": "lvm"}], "fstype": "LVM2_member"}, "it has vg-lv (lvm)"),
    "md": ({"fstype": "linux_raid_member"}, "it holds linux_raid_member"),
    "ZFS": ({"fstype": "zfs_member"}, "it holds zfs_member"),
    "a filesystem": ({"fstype": "xfs"}, "it holds xfs"),
    "an empty partition table": ({"pttype": "gpt"}, "it holds a partition table, gpt"),
    "mounted": ({"fstype": "xfs", "mountpoints": [None, "/data"]}, "it is mounted at /data"),
    "swap": ({"fstype": "swap", "mountpoints": ["[SWAP]"]}, "it is mounted at [SWAP]"),
    "read-only": ({"ro": True}, "it is read-only"),
    "removable": ({"rm": True}, "it is removable"),
    "zoned": ({"zoned": "host-managed"}, "it is zoned"),
    "empty": ({"size": 0}, "it has 0 bytes"),
}


@pytest.mark.parametrize("description, reason", USED.values(), ids=USED)
def test_what_may_be_in_use_is_not_touched(machine, tmp_path, description, reason):
    """Among others it is passed over; named, it is an error; alone, there is nothing to do."""
    setup = machine(description, {})
    result = setup()
    assert result.returncode == 0, result.stderr
    assert f"nvme0n1: {description.get('size', 2 * GIB) // GIB} GiB, Drive: {reason}" in result.stdout
    commands = [line for line in result.stdout.splitlines() if line.startswith("mkfs.xfs")]
    assert len(commands) == 1 and commands[0].endswith("/nvme1n1")
    assert_refused(setup(tmp_path / "nvme0n1"), "nvme0n1 will not be used: ", reason)
    assert_refused(machine(description)(tmp_path / "nvme0n1", "--yes"), reason)


def test_nothing_to_use(machine):
    result = machine({"fstype": "xfs"}, {"name": "sda", "tran": "sata"})("--yes")
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert "no unused NVMe drive" in result.stderr and "sda" not in result.stdout


@pytest.mark.parametrize("offset", [0, 5 << 20, 2 * GIB - 1])
def test_content_without_a_signature_is_content(machine, tmp_path, offset):
    setup = machine({})
    with open(tmp_path / "nvme0n1", "r+b") as drive:
        drive.seek(offset)
        drive.write(b"x")
    assert_refused(setup(tmp_path / "nvme0n1"), "nvme0n1", "not empty")


def test_a_signature_that_lsblk_does_not_know(machine, tmp_path):
    setup = machine({})
    run("mkfs.ext4", "-q", "-F", tmp_path / "nvme0n1")
    assert_refused(setup(tmp_path / "nvme0n1"), "nvme0n1", "ext4")


def test_what_is_shown(machine, tmp_path):
    """Mount points that are taken are left alone; without --yes nothing changes."""
    (tmp_path / "nvme0").mkdir()
    (tmp_path / "nvme0" / "something").touch()
    with open(tmp_path / "fstab", "a") as file:
        file.write(f"\nUUID=2 {tmp_path}/nvme2 xfs nofail 0 0\n")
    before = (tmp_path / "fstab").read_text()
    result = machine({}, {})("--mount-point", tmp_path / "ckpt", "--options", "allow_other,durable=fsync")
    assert result.returncode == 0, result.stderr
    first, second = tmp_path / "nvme1", tmp_path / "nvme3"
    assert f"mkfs.fastpersistfs --quiet {first}/fp:{second}/fp\n" in result.stdout
    assert (f"{first}/fp:{second}/fp {tmp_path}/ckpt fastpersistfs allow_other,durable=fsync,nofail,"
            f"x-systemd.requires-mounts-for={first},x-systemd.requires-mounts-for={second} 0 0\n") in result.stdout
    assert result.stdout.endswith("# Nothing was done; --yes does it.\n")
    assert (tmp_path / "fstab").read_text() == before and not first.exists()


@pytest.mark.parametrize("arguments, status, words", [
    (["--mount-point", "/proc"], 1, "is a mount point already"),
    (["--mount-point", "relative"], 16, "no absolute path"), (["--prefix", "/a b"], 16, "no absolute path"),
    (["--options", "ro, x"], 16, "no spaces"), (["--bogus"], 16, "--bogus")])
def test_wrong_calls(machine, arguments, status, words):
    result = machine({})(*arguments)
    assert result.returncode == status
    assert len(result.stderr.splitlines()) == 1 and words in result.stderr


def test_what_is_no_drive_is_one_clear_line(tmp_path):
    (tmp_path / "file").touch()
    for path, words in ((tmp_path / "nope", "there is no such device"), (tmp_path / "file", "no block device")):
        refused = run(SCRIPT, path, check=False)
        assert_refused(refused, f"setup-nvme: {path}: ", words)
        assert "--json" not in refused.stderr


def test_its_version_names_it(tmp_path, monkeypatch):
    (tmp_path / "fpfs").write_text("#!/bin/sh\necho 'fpfs (fastpersistfs) 1.2.3'\n")
    (tmp_path / "fpfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(SCRIPT, "--version").stdout == "setup-nvme (fastpersistfs) 1.2.3\n"


@pytest.fixture
def loops(lab):
    """Two loop devices over sparse files."""
    devices = []
    files = [lab / f"setup{number}.image" for number in range(2)]
    try:
        for path in files:
            with open(path, "wb") as file:
                file.truncate(GIB)
            devices.append(run("losetup", "--find", "--show", path).stdout.strip())
        yield devices
    finally:
        for device in devices:
            subprocess.run(["losetup", "-d", device], capture_output=True)
        for path in files:
            path.unlink()


@pytest.mark.skipif(not shutil.which("mkfs.xfs"), reason="needs mkfs.xfs")
def test_what_is_done(loops, lab, root, search_path, tmp_path, monkeypatch):
    # mount(8) looks for its helper in /sbin, where the package is not.
    wrapper = tmp_path / "mount"
    wrapper.write_text(f"""#!/bin/sh
if [ "$2" = fastpersistfs ]; then o=$4; shift 4; exec {root}/usr/sbin/mount.fastpersistfs "$@" -o "$o"; fi
exec {shutil.which("mount")} "$@"
""")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fstab = tmp_path / "fstab"
    fstab.write_text("UUID=1 / ext4 defaults 0 1")
    places = [lab / "setup-nvme0", lab / "setup-nvme1"]
    point = lab / "setup-ckpt"
    call = ["setup-nvme", "--fstab", fstab, "--prefix", lab / "setup-nvme", "--mount-point", point]
    try:
        shown = run(*call, *loops).stdout.splitlines()
        result = run(*call, "--yes", *loops)
        done = result.stdout.splitlines()
        without_uuids = [[re.sub("[0-9a-f-]{36}", "UUID", line) for line in lines[:-1]] for lines in (shown, done)]
        assert without_uuids[0] == without_uuids[1]
        (point / "file").write_bytes(b"content")
        assert mount_table.entry_of(point) and all(mount_table.entry_of(place) for place in places)
        lines = fstab.read_text().splitlines()
        assert lines[0] == "UUID=1 / ext4 defaults 0 1" and len(lines) == 4
        for line, place, device in zip(lines[1:], places, loops):
            identity = run("blkid", "-p", "-s", "UUID", "-o", "value", device).stdout.strip()
            assert line == f"UUID={identity} {place} xfs nofail 0 0"
        result = run("findmnt", "--verify", "--tab-file", fstab, check=False)
        assert "parse error" not in result.stdout, result.stdout
        # They are in use now.
        assert_refused(run(*call, "--yes", loops[0], check=False), "mounted")
        run("umount.fuse", point)
        for place in places:
            run("umount", place)
        assert_refused(run(*call, "--yes", loops[0], check=False), "xfs")
    finally:
        for path in (point, *places):
            if mount_table.entry_of(path):
                mount_table.unmount(path, lazy=True)


@pytest.mark.skipif(not shutil.which("mkfs.xfs"), reason="needs mkfs.xfs")
def test_a_failure_leaves_fstab_alone(loops, tmp_path, monkeypatch):
    broken = tmp_path / "mkfs.xfs"
    broken.write_text("#!/bin/sh\necho 'no\nroom' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fstab = tmp_path / "fstab"
    fstab.write_text("")
    result = run(SCRIPT, "--fstab", fstab, "--prefix", tmp_path / "nvme", "--yes", *loops, check=False)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert "mkfs.xfs" in result.stderr and "no room" in result.stderr
    assert fstab.read_text() == "" and "mkfs.fastpersistfs" not in result.stdout
