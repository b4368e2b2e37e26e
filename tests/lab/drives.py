"""Four drives on any machine: loop devices with a filesystem each, or plain directories where there is no root."""
import errno
import fcntl
import os
import pathlib
import struct
import subprocess
import time

from . import mount_table
from .programs import run


def takes_direct_io(directory):
    """Whether O_DIRECT works for files there."""
    probe = pathlib.Path(directory) / ".direct-io-probe"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600))
        return True
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise
    finally:
        probe.unlink(missing_ok=True)


# XFS_IOC_GOINGDOWN and EXT4_IOC_SHUTDOWN are one number. 2: the journal is not written out first, as when power fails.
SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2


# No lazy initialisation: it would write behind the tests' back.
MKFS_FLAGS = {"xfs": ["-q", "-f"], "ext4": ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
              "btrfs": ["-q", "-f"]}


def make_filesystem(kind, device, *options):
    """mkfs.btrfs looks at every mount of the machine, and fails while one of them does, as other tests want theirs to."""
    deadline = time.monotonic() + 30
    while True:
        made = run(f"mkfs.{kind}", *MKFS_FLAGS[kind], *options, device, check=False)
        if made.returncode == 0:
            return
        assert "cannot check mount status" in made.stderr and time.monotonic() < deadline, made.stderr
        time.sleep(0.2)


class LoopDrive:
    """One loop device over a sparse file, with a filesystem on it, mounted at `path`.

    `discard`: what is freed also leaves the backing file. Not for a drive that will be shut down: ext4 then discards blocks
    whose freeing its aborted journal never committed (ext4_journal_commit_callback), which no power cut does.
    """

    def __init__(self, directory, name, size, kind="xfs", discard=True, options=()):
        self.path = pathlib.Path(directory) / name
        self._backing = pathlib.Path(directory) / f"{name}.image"
        self._kept = pathlib.Path(directory) / f"{name}.kept"
        self._device = None
        self._mount_options = ["-o", "discard"] if discard else []
        self.path.mkdir(parents=True)
        try:
            with open(self._backing, "wb") as file:
                file.truncate(size)
            self._device = run("losetup", "--find", "--show", self._backing).stdout.strip()
            make_filesystem(kind, self._device, *options)
            run("mount", *self._mount_options, self._device, self.path)
        except BaseException:
            self.close()
            raise

    def shut_down(self):
        """From now on nothing reaches the drive any more, not even what its filesystem has in its journal's buffers."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(directory)

    def remount(self):
        """What a reboot does: the filesystem recovers from its journal."""
        run("umount", self.path)
        run("mount", *self._mount_options, self._device, self.path)

    def keep(self):
        """What is on the drive at this moment, for go_back(): what a power cut would leave, also with filesystems that cannot
        be shut down."""
        run("cp", "--sparse=always", self._backing, self._kept)

    def go_back(self):
        """The power went when keep() was called, and is there again."""
        run("umount", self.path)
        run("cp", "--sparse=always", self._kept, self._backing)
        run("blockdev", "--flushbufs", self._device)
        run("mount", *self._mount_options, self._device, self.path)

    def close(self):
        if mount_table.entry_of(self.path):
            subprocess.run(["umount", str(self.path)], capture_output=True)
        if mount_table.entry_of(self.path):
            subprocess.run(["umount", "-l", str(self.path)], capture_output=True)
        if self._device:
            subprocess.run(["losetup", "-d", self._device], capture_output=True)
        self._backing.unlink(missing_ok=True)
        self._kept.unlink(missing_ok=True)
        if not mount_table.entry_of(self.path):
            self.path.rmdir()


class Drives:
    """`paths`: four directories, one per drive. `kind`: their filesystem, or "directories" when they share one."""

    def __init__(self, directory, count=4, size=3 << 30):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True)
        self._loops = []
        self.paths = []
        self.kind = "directories"
        if os.geteuid() == 0:
            for kind in ("xfs", "ext4"):
                if self._make_loops(count, size, kind):
                    break
        if not self.paths:
            self.paths = [self.directory / f"drive{index}" for index in range(count)]
            for path in self.paths:
                path.mkdir()
        self.direct_io = takes_direct_io(self.paths[0])

    def _make_loops(self, count, size, kind):
        try:
            for index in range(count):
                self._loops.append(LoopDrive(self.directory, f"drive{index}", size, kind))
        except (AssertionError, OSError) as error:
            print(f"no loop drives with {kind}: {error}")
            self.close()
            return False
        self.paths = [loop.path for loop in self._loops]
        self.kind = kind
        return True

    def close(self):
        for loop in self._loops:
            loop.close()
        self._loops = []
