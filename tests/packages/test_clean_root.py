"""The package on a system that has nothing but Debian's (or Ubuntu's) base: installed by apt, used, removed."""
import platform
import shutil

import pytest

from lab import LONG
from lab.drives import LoopDrive
from lab.programs import run

pytestmark = [pytest.mark.root, pytest.mark.skipif(not LONG, reason="a minute and the network: only in a long run"),
              pytest.mark.skipif(not shutil.which("debootstrap"), reason="needs debootstrap")]

# In the clean root. The session of apt is not asked anything; what is mounted ends with the mount namespace.
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
echo '/srv/a/fp:/srv/b/fp /mnt/ckpt fastpersistfs allow_other,nofail,x-systemd.requires-mounts-for=/srv 0 0' >>/etc/fstab
mount /mnt/ckpt
[ "$(sha256sum </mnt/ckpt/checkpoint)" = "$sum" ]
[ "$(findmnt -n -o FSTYPE /mnt/ckpt)" = fuse.fastpersistfs ]
umount -v /mnt/ckpt

apt-get remove -q -y fastpersistfs
[ ! -e /sbin/mount.fastpersistfs ]
apt-get purge -q -y fastpersistfs
[ ! -e /usr/bin/fpfs ]
[ ! -e /usr/lib/systemd/system/fastpersistfs@.service ]
[ -f /srv/a/fp/superblock ]
"""


@pytest.fixture
def clean_root(lab):
    """The base system of the release that this runs on, from the mirror that this machine's apt uses."""
    drive = LoopDrive(lab, "clean-root", 4 << 30)
    try:
        codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
        sources = run("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(SITE)").stdout.splitlines()
        mirror = next(line.split()[2] for line in sources if line.split()[:2] == [codename, "main"])
        run("debootstrap", "--variant=minbase", codename, drive.path, mirror, timeout=900)
        yield drive.path
    finally:
        drive.close()


def test_a_clean_root(deb, clean_root):
    shutil.copy(deb, clean_root / "package.deb")
    (clean_root / "dev" / "fuse").touch()
    script = clean_root / "use"
    script.write_text(USE)
    # Whatever happens, its processes and mounts end with this command.
    setup = (f"mount -t proc proc {clean_root}/proc && mount --bind /dev/fuse {clean_root}/dev/fuse && "
             f"exec chroot {clean_root} sh /use")
    result = run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", setup, timeout=600,
                 env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    assert "Errors:    0" in result.stdout
    print(result.stdout[-2000:], result.stderr[-2000:])
