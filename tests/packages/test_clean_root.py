"""The package on a system that has nothing but Debian's (or Ubuntu's) base: installed by apt, used, removed; and its
units under a systemd that runs there."""
import os
import pathlib
import shutil
import subprocess

import pytest

from lab import LONG, mount_table
from lab.programs import run
from lab.system import wait_until

pytestmark = [pytest.mark.root, pytest.mark.skipif(not LONG, reason="a minute and the network: only in a long run"),
              pytest.mark.skipif(not shutil.which("debootstrap"), reason="needs debootstrap")]

# In the clean root.
USE = r"""
set -eux
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
apt-get install -q -y --no-install-recommends /package.deb
for program in fastpersistfs fpfs mkfs.fastpersistfs fsck.fastpersistfs mount.fastpersistfs umount.fuse setup-nvme; do
  $program --help >/dev/null
  $program --version
done
ls -l /sbin/mount.fastpersistfs /sbin/umount.fuse.fastpersistfs
mkdir -p /srv/a /srv/b /mnt/ckpt
mkfs.fastpersistfs /srv/a/fp:/srv/b/fp

# By hand, by root.
mount -t fastpersistfs -o allow_other /srv/a/fp:/srv/b/fp /mnt/ckpt
chmod 1777 /mnt/ckpt
head -c 20M /dev/urandom >/mnt/ckpt/checkpoint
sum=$(sha256sum </mnt/ckpt/checkpoint)
setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'echo mine >/mnt/ckpt/user; cat /mnt/ckpt/checkpoint >/dev/null'
fpfs verify /mnt/ckpt
fpfs scrub start --wait /mnt/ckpt
umount /mnt/ckpt
[ ! -e /srv/a/fp/state ]  # umount waited until all was committed
fsck.fastpersistfs --verify-data /srv/a/fp:/srv/b/fp

# By fstab.
echo '/srv/a/fp:/srv/b/fp /mnt/ckpt fastpersistfs nofail,x-systemd.requires-mounts-for=/srv 0 0' >>/etc/fstab
mount /mnt/ckpt
[ "$(sha256sum </mnt/ckpt/checkpoint)" = "$sum" ]
[ "$(findmnt -n -o FSTYPE /mnt/ckpt)" = fuse.fastpersistfs ]
if mount -o remount,noatime /mnt/ckpt 2>/said; then exit 1; fi
grep 'options of a mounted array cannot be changed; umount it and mount it again' /said
umount -v /mnt/ckpt

apt-get remove -q -y fastpersistfs
[ ! -e /sbin/mount.fastpersistfs ]
apt-get purge -q -y fastpersistfs
[ ! -e /usr/bin/fpfs ]
[ ! -e /usr/lib/systemd/system/fastpersistfs@.service ]
[ -f /srv/a/fp/superblock ]
"""


@pytest.fixture
def prepared(deb, clean_root):
    shutil.copy(deb, clean_root / "package.deb")
    (clean_root / "dev" / "fuse").touch()
    return clean_root


def test_a_clean_root(prepared):
    (prepared / "use").write_text(USE)
    # Whatever happens, its processes and mounts end with this command.
    setup = (f"mount -t proc proc {prepared}/proc && mount --bind /dev/fuse {prepared}/dev/fuse && "
             f"exec chroot {prepared} sh /use")
    result = run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", setup, timeout=600,
                 env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    assert "Errors:    0" in result.stdout


# --- the units under systemd -----------------------------------------------------------------------------------------

# Where systemd finds its groups of processes: what is mounted there, by which option.
HIERARCHIES = [("/sys/fs/cgroup/systemd", "cgroup", "none,name=systemd"), ("/sys/fs/cgroup/unified", "cgroup2", "rw"),
               ("/sys/fs/cgroup", "cgroup2", "rw")]

BOOT = r"""
set -eu
for group in $groups; do mkdir "$group"; echo $$ >"$group/cgroup.procs"; done
exec unshare --fork --pid --mount --cgroup --ipc --uts --kill-child --mount-proc sh -euc '
cd "$root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs sys/fs/cgroup
eval "$hierarchies"
mount --bind /dev/fuse dev/fuse
mkdir -p old
pivot_root . old
cd /
umount -l old
mount --make-rshared /
exec env -i container=test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --show-status=no'
"""

SERVICE = r"""
set -eux
export LC_ALL=C
unit=fastpersistfs@mnt-ckpt.service
state() { systemctl show --property "$1" --value "${2:-$unit}"; }
reaches() {
  for i in $(seq 100); do [ "$(state "$1")" != "$2" ] || return 0; sleep 0.1; done
  systemctl status $unit
  exit 1
}

# What fstab has of the test before was mounted at boot.
[ "$(findmnt -n -o FSTYPE /mnt/ckpt)" = fuse.fastpersistfs ]
umount /mnt/ckpt
sed -i /fastpersistfs/d /etc/fstab

mkdir -p /etc/fastpersistfs
mkfs.fastpersistfs --force /srv/a/fp:/srv/b/fp
echo DIRS=/srv/a/fp:/srv/b/fp >/etc/fastpersistfs/mnt-ckpt.conf
systemctl daemon-reload
systemctl cat $unit | grep -F 'RequiresMountsFor="/srv/b/fp"'

# Started, it is live; others see the mount, and all kinds of calls pass what confines the daemon.
systemctl start $unit
[ "$(findmnt -n -o FSTYPE /mnt/ckpt)" = fuse.fastpersistfs ]
cd /mnt/ckpt
head -c 20M /dev/urandom >checkpoint
sum=$(sha256sum <checkpoint)
chmod 1777 . && setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'echo mine >user; chmod 2640 user; mkdir own'
mknod null c 1 3; mkfifo pipe; ln -s a b; ln user hard; mv hard soft; chown 1000:1000 checkpoint; fallocate -l 1M room
truncate -s 100 room; flock room true; fpfs sync .; fpfs verify .; fpfs status /mnt/ckpt
cd /
systemctl reload $unit
[ "$(state ActiveState)" = active ]

# A daemon that dies: an error until it is there again, and nothing that was closed is lost.
systemctl kill --signal KILL $unit
reaches NRestarts 1
reaches ActiveState active
[ "$(sha256sum </mnt/ckpt/checkpoint)" = "$sum" ]
[ "$(findmnt -n /mnt/ckpt | wc -l)" = 1 ]

# The scrub finds nothing; where nothing is mounted it is not begun.
systemctl start fastpersistfs-scrub@mnt-ckpt.service
[ "$(state Result fastpersistfs-scrub@mnt-ckpt.service)" = success ]
systemctl enable --now fastpersistfs-scrub@mnt-ckpt.timer
systemctl list-timers | grep fastpersistfs-scrub@mnt-ckpt

# Who unmounts it by hand has it unmounted.
umount /mnt/ckpt
reaches ActiveState inactive
[ "$(state Result)" = success ]
! findmnt /mnt/ckpt || exit 1
systemctl start fastpersistfs-scrub@mnt-ckpt.service
[ "$(state ConditionResult fastpersistfs-scrub@mnt-ckpt.service)" = no ]

# Stopping returns when all is committed.
systemctl start $unit
echo last >/mnt/ckpt/last
systemctl stop $unit
[ "$(state Result)" = success ]
[ ! -e /srv/a/fp/state ]
fsck.fastpersistfs --verify-data /srv/a/fp:/srv/b/fp

# What cannot be mounted is a failure with a reason.
echo OPTIONS=bogus >>/etc/fastpersistfs/mnt-ckpt.conf
! systemctl start $unit || exit 1
journalctl -u $unit | grep "unknown option 'bogus'"
"""


def first_process(starter):
    """The systemd that is a child of this process, which has had other children before; None while it is not there."""
    for child in pathlib.Path(f"/proc/{starter}/task/{starter}/children").read_text().split():
        try:
            if pathlib.Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return child
        except OSError:
            pass  # gone meanwhile
    return None


@pytest.fixture
def booted(prepared):
    """Runs a command beside a systemd that has the clean root for its own."""
    run("chroot", prepared, "sh", "-ec", "export DEBIAN_FRONTEND=noninteractive LC_ALL=C; apt-get install -q -y "
        "--no-install-recommends systemd-sysv dbus /package.deb", timeout=600)
    there = [(path, kind, options) for path, kind, options in HIERARCHIES
             if (entry := mount_table.entry_of(path)) and entry.kind == kind and os.access(path, os.W_OK)]
    if not there:
        pytest.skip("no hierarchy of control groups")
    groups = [pathlib.Path(path) / f"fpfs-test-{os.getpid()}" for path, _, _ in there]
    hierarchies = "\n".join(f"mkdir -p .{path}; mount -t {kind} -o {options} {kind} .{path}"
                            for path, kind, options in there)
    systemd = subprocess.Popen(["sh", "-c", BOOT], stdin=subprocess.DEVNULL, env={
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "root": str(prepared), "groups": " ".join(map(str, groups)),
        "hierarchies": hierarchies})
    try:
        wait_until(lambda: first_process(systemd.pid), 60)
        first = first_process(systemd.pid)

        def inside(*command, check=True):
            return run("nsenter", "-t", first, "-a", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command,
                       timeout=300, check=check)

        def has_booted():
            return inside("systemctl", "is-system-running", check=False).stdout in ("running\n", "degraded\n")

        try:
            wait_until(has_booted, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {inside('systemctl', 'list-jobs', check=False).stdout}")
        yield inside
    finally:
        systemd.kill()
        systemd.wait()
        for group in groups:
            wait_until(lambda: not any(path.read_text() for path in group.rglob("cgroup.procs")))
            for directory, _, _ in os.walk(group, topdown=False):
                os.rmdir(directory)


def test_the_units(prepared, booted):
    (prepared / "service").write_text(SERVICE)
    booted("bash", "/service")
