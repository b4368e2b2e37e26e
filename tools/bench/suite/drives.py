"""The drives of a run: throttled loop devices, or directories of the user's own."""
import contextlib
import mmap
import os
import pathlib
import shutil
import time

from lab import mount_table

from . import throttle

MIB = 1 << 20


class LoopDrive:
    """A loop device over a sparse file. `path` is where its filesystem is mounted, when it has one."""

    def __init__(self, commands, directory, index, size):
        self._commands = commands
        self.path = directory / f"drive{index}"
        self.path.mkdir()
        self.device = None
        self._image = directory / f"drive{index}.image"
        with open(self._image, "wb") as file:
            file.truncate(size)
        self.device = commands.run("losetup", "--find", "--show", self._image).strip()
        self.name = pathlib.Path(self.device).name
        self.number = pathlib.Path(f"/sys/block/{self.name}/dev").read_text().strip()

    def format_xfs(self):
        self._commands.run("mkfs.xfs", "-q", "-f", self.device)
        self.mount(self.device)

    def mount(self, device):
        self._commands.run("mount", "-o", "discard", device, self.path)

    def unmount(self):
        if mount_table.entry_of(self.path):
            self._commands.run("umount", self.path)

    def close(self):
        with contextlib.suppress(Exception):
            self.unmount()
        if mount_table.entry_of(self.path):
            mount_table.unmount(self.path, lazy=True)
        self._commands.run("losetup", "-d", self.device, check=False)
        self._image.unlink(missing_ok=True)


def bytes_moved(devices):
    """(read, written) by these block devices (names as in /sys/block) since they exist."""
    read = written = 0
    for name in devices:
        fields = pathlib.Path(f"/sys/block/{name}/stat").read_text().split()
        read += int(fields[2]) * 512
        written += int(fields[6]) * 512
    return read, written


class LoopLab:
    """Four (by default) loop devices over files in memory, each with its own XFS and its own bandwidth limit."""

    kind = "loop devices over files in memory, each with its own XFS"
    can_reformat = True

    def __init__(self, commands, directory, count, size, write_limit, read_limit):
        self._commands = commands
        self.directory = pathlib.Path(directory)
        self._marks = self.directory / "throttled"  # what tools/bench/run lifts should this process be killed
        self.limits = {"write": write_limit, "read": read_limit}
        self._loops = []
        self._throttle = throttle.make_throttle()
        try:
            for index in range(count):
                loop = LoopDrive(commands, self.directory, index, size)
                self._loops.append(loop)
                with open(self._marks, "a") as marks:
                    marks.write(loop.number + "\n")
                self._throttle.limit(loop.number, write_limit, read_limit)
                loop.format_xfs()
            self.throttle_kind = self._throttle.kind
            self.verified = self._verify()
        except BaseException:
            self.close()
            raise

    @property
    def paths(self):
        return [loop.path for loop in self._loops]

    @property
    def devices(self):
        return [loop.name for loop in self._loops]

    def _verify(self):
        """What one drive really gives, written with O_DIRECT and through the page cache. Both must obey the limit."""
        rates = {"direct": _write_rate(self.paths[0] / "probe", os.O_DIRECT),
                 "buffered": _write_rate(self.paths[0] / "probe", 0)}
        for how, rate in rates.items():
            if rate > 1.1 * self.limits["write"]:
                raise throttle.Unavailable(f"the {how} probe wrote {rate / 1e6:.0f} MB/s past the limit of "
                                           f"{self.limits['write'] / 1e6:.0f}")
        return rates

    @contextlib.contextmanager
    def btrfs(self):
        """One btrfs over all drives (raid0, xxhash checksums) in place of their XFS, which come back empty."""
        for loop in self._loops:
            loop.unmount()
        first = self._loops[0]
        try:
            self._commands.run("mkfs.btrfs", "-q", "-f", "-d", "raid0", "-m", "raid0", "--csum", "xxhash",
                               *[loop.device for loop in self._loops], note=True)
            first.mount(first.device)
            yield first.path
        finally:
            first.unmount()
            for loop in self._loops:
                loop.format_xfs()

    @contextlib.contextmanager
    def limited(self, write, read):
        """Other limits for a while, of each drive, in bytes per second; 0 is none."""
        try:
            self._limit(write, read)
            yield
        finally:
            self._limit(**self.limits)

    def _limit(self, write, read):
        for loop in self._loops:
            self._throttle.limit(loop.number, write, read)

    def trim(self):
        """Gives the memory of deleted files back."""
        for loop in self._loops:
            self._commands.run("fstrim", loop.path, check=False)

    def close(self):
        for loop in self._loops:
            with contextlib.suppress(OSError):
                self._throttle.limit(loop.number, 0, 0)
            loop.close()
        self._loops = []
        self._marks.unlink(missing_ok=True)
        self._throttle.close()


def _write_rate(path, flag, size=192 * MIB):
    block = mmap.mmap(-1, MIB)
    block.write(os.urandom(MIB))
    started = time.monotonic()
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | flag, 0o600)
    try:
        for _ in range(size // MIB):
            os.write(descriptor, block)
        os.fsync(descriptor)
        return size / (time.monotonic() - started)
    finally:
        os.close(descriptor)
        os.unlink(path)


class Directories:
    """A directory below each of the given ones, without limits: the user's own drives, or one drive under all of them."""

    can_reformat = False
    throttle_kind = None
    verified = None
    limits = None

    def __init__(self, parents):
        self.paths = []
        for index, parent in enumerate(parents):
            path = pathlib.Path(parent).resolve() / f"fpfs-bench-{os.getpid()}-{index}"
            path.mkdir(parents=True)
            self.paths.append(path)
        self.devices = sorted({name for name in map(device_of, self.paths) if name})
        numbers = {os.stat(path).st_dev for path in self.paths}
        self.kind = "plain directories" if len(numbers) == len(self.paths) else (
            f"plain directories: {len(self.paths)} of them on {len(numbers)} filesystem(s), so they SHARE drives")

    def trim(self):
        pass

    def close(self):
        for path in self.paths:
            shutil.rmtree(path, ignore_errors=True)


def device_of(path):
    """The name in /sys/block of the whole drive that a directory lies on, or None."""
    number = os.stat(path).st_dev
    link = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not link.exists():
        return None
    device = link.resolve()
    return device.parent.name if (device / "partition").exists() else device.name
