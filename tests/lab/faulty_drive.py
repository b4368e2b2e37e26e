"""A drive that fails or hangs when a test says so: a loop device with a filesystem, over tests/lab/fault_device.cpp."""
import errno
import os
import pathlib
import subprocess

from . import mount_table
from .drives import MKFS_FLAGS
from .programs import run
from .system import attempt, wait_until


class FaultyDrive:
    """Mounted at `path`. Needs root."""

    def __init__(self, programs, directory, name, size=400 << 20, kind="xfs"):
        self.path = pathlib.Path(directory) / name
        self._backing = pathlib.Path(directory) / f"{name}.image"
        self._layer = pathlib.Path(directory) / f"{name}.layer"
        self._server = self._device = None
        self.path.mkdir(parents=True)
        self._layer.mkdir()
        self._program = programs.build / "tests/fault_device"
        try:
            with open(self._backing, "wb") as file:
                file.truncate(size)
            self._start()
            run(f"mkfs.{kind}", *MKFS_FLAGS[kind], self._device)
            run("mount", self._device, self.path)
        except BaseException:
            self.close()
            raise

    def _start(self):
        self._server = subprocess.Popen([self._program, self._backing, self._layer], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self._server.stdout.readline() == "ready\n", "the fault device does not start"
        self._device = run("losetup", "--find", "--show", self._layer / "disk").stdout.strip()

    def _command(self, *words):
        self._server.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline().strip()

    def fail(self, *kinds, error=errno.EIO, begin=0, end=(1 << 63), count=(1 << 63)):
        """Requests of these kinds (read, write, sync) that touch bytes [begin, end) of the drive fail from now on, the first
        `count` of each."""
        for kind in kinds:
            assert self._command("fail", kind, error, begin, end, count) == "ok"

    def leave(self, room=(1 << 63)):
        """A thin drive: only so many bytes can be written to places that were never written; then ENOSPC."""
        assert self._command("room", room) == "ok"

    def cut_power(self):
        """What is on the drive at this moment is all that is left. Nobody may use it any more."""
        copy = self._backing.with_suffix(".copy")
        run("cp", "--sparse=always", self._backing, copy)
        subprocess.run(["umount", str(self.path)], capture_output=True)
        if mount_table.entry_of(self.path):
            run("umount", "-l", self.path)
        run("losetup", "-d", self._device)
        self._device = None
        self._end_server()
        os.replace(copy, self._backing)
        self._start()
        run("mount", self._device, self.path)

    def hang(self, *kinds):
        """Requests of these kinds (all, when none is given) get no answer until heal()."""
        for kind in kinds or ("read", "write", "sync"):
            assert self._command("hang", kind) == "ok"

    def heal(self):
        assert self._command("heal") == "ok"

    def let_go(self):
        """Nothing waits for it any more, whatever state it is in."""
        if self._server and self._server.poll() is None:
            try:
                self.heal()
            except (OSError, AssertionError):
                pass

    def vanish(self):
        """As if it was pulled out: every request fails at once, for ever."""
        entry = mount_table.entry_of(self._layer)
        assert entry and mount_table.abort(entry)

    def where(self, path):
        """The bytes of the drive that hold a file: [(offset in the file, offset on the drive, length)]."""
        lines = run("xfs_io", "-r", "-c", "fiemap -v", path).stdout.splitlines()[2:]
        found = []
        for line in lines:
            words = line.split()
            if words[2] == "hole":
                continue
            first, last = words[1].strip("[]:").split("..")
            block = words[2].split("..")[0]
            found.append((int(first) * 512, int(block) * 512, (int(last) - int(first) + 1) * 512))
        return found

    @property
    def device(self):
        """The drive itself, below its filesystem."""
        return self._device

    def plug_in(self):
        """After vanish(): the drive is there again."""
        run("umount", self.path)
        run("losetup", "-d", self._device)
        self._device = None
        self._end_server()
        self._start()
        run("mount", self._device, self.path)

    def remount(self):
        """The drive is well again, and a filesystem that had given it up is mounted anew."""
        self.heal()
        run("umount", self.path)
        wait_until(self._is_free)  # a copy of the mount keeps the filesystem as it is: unshare --mount makes one
        run("mount", self._device, self.path)

    def _is_free(self):
        """Nobody has its filesystem mounted, here or in another mount namespace (open(2): O_EXCL of a block device)."""
        device = attempt(os.open, self._device, os.O_RDONLY | os.O_EXCL)
        if device == "EBUSY":
            return False
        os.close(device)
        return True

    def drop_caches(self):
        """What the members' filesystems know by heart is read from the drives again."""
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")

    def close(self):
        self.let_go()
        for lazy in (False, True):
            if mount_table.entry_of(self.path):
                subprocess.run(["umount", *(["-l"] if lazy else []), str(self.path)], capture_output=True)
        if self._device:
            subprocess.run(["losetup", "-d", self._device], capture_output=True)
        if self._server:
            self._end_server()
        self._backing.unlink(missing_ok=True)
        for directory in (self.path, self._layer):
            if not mount_table.entry_of(directory):
                directory.rmdir()

    def _end_server(self):
        """Its mount is gone, too."""
        try:
            self._server.stdin.close()
        except OSError:
            pass
        try:
            self._server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        if self._server.returncode != 0:
            mount_table.unmount(self._layer, lazy=True)
        self._server.stdout.close()
        self._server = None
