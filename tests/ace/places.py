"""Where a sequence runs: on a plain filesystem, or on the mount of an array with a filesystem on each member's drive."""
import contextlib
import ctypes
import errno
import mmap
import os
import signal
import stat
import time

from lab.array import Array, Mount
from lab.drives import LoopDrive
from lab.system import attempt, libc

MIB = 1 << 20
DRIVE_SIZE = {"xfs": 300 * MIB, "ext4": 128 * MIB}  # no XFS is smaller
CHUNK_SIZE = 65536
MNT_DETACH = 2
XATTR = "user.ace"
FLAGS = {"read": os.O_RDONLY, "write": os.O_WRONLY, "both": os.O_RDWR, "append": os.O_WRONLY | os.O_APPEND,
         "truncate": os.O_WRONLY | os.O_TRUNC}


def _system(function, *arguments):
    """A system call by libc; a drive may be busy for a moment yet."""
    for _ in range(500):
        if function(*arguments) == 0:
            return
        number = ctypes.get_errno()
        if number != errno.EBUSY:
            break
        time.sleep(0.01)
    raise OSError(number, os.strerror(number), str(arguments))


def _make_durable(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def as_group(group):
    """What is made here belongs to this group. Only the calls' group changes: the process may still use the mount."""
    libc.setfsgid(group)
    try:
        yield
    finally:
        libc.setfsgid(0)


class Drive(LoopDrive):
    """One that is cut and mounted again some thousand times: without a program for each."""

    def __init__(self, directory, name, kind):
        self.kind = kind
        super().__init__(directory, name, DRIVE_SIZE[kind], kind, discard=False)

    def remount(self):
        """While another namespace of mounts still has the one that was shut down (a container that starts somewhere), mount(2)
        gives the same again: its sync fails."""
        for attempts_left in range(200, -1, -1):
            _system(libc.umount2, os.fsencode(self.path), 0)
            _system(libc.mount, os.fsencode(self._device), os.fsencode(self.path), self.kind.encode(), 0, None)
            try:
                return _make_durable(self.path)
            except OSError as error:
                if error.errno != errno.EIO or attempts_left == 0:
                    raise
            time.sleep(0.05)

    def sync(self):
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            _system(libc.syncfs, descriptor)
        finally:
            os.close(descriptor)


class QuickMount(Mount):
    """One that is cut and mounted again some thousand times: without a look at tables of processes and mounts."""

    def _is_mounted(self):
        return self.path.stat().st_dev != self.path.parent.stat().st_dev

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def cut_off(self):
        """The daemon is gone, and nobody finds its mount any more."""
        self.process.kill()
        self.process.wait()
        self.process = None
        _system(libc.umount2, os.fsencode(self.path), MNT_DETACH)


class Descriptors:
    """Those of one sequence, and its mappings."""

    def __init__(self, root):
        self._root = root
        self._open, self._mappings = {}, {}

    def _path(self, name):
        return os.path.join(self._root, name)

    def do(self, word, *arguments):
        getattr(self, "_" + word)(*arguments)

    def _create(self, slot, path, group):
        with as_group(group):
            self._open[slot] = os.open(self._path(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def _mkdir(self, path, group):
        with as_group(group):
            os.mkdir(self._path(path), 0o700)

    def _open_(self, slot, path, how):
        self._open[slot] = os.open(self._path(path), FLAGS[how])

    def _write(self, slot, offset, data):
        written = os.pwrite(self._open[slot], data, offset)
        assert written == len(data), f"{written} of {len(data)} bytes"

    def _ftruncate(self, slot, size):
        os.ftruncate(self._open[slot], size)

    def _truncate(self, path, size):
        os.truncate(self._path(path), size)

    def _store(self, slot, size, offset, data):
        self._mappings[slot] = mapping = mmap.mmap(self._open[slot], size)
        mapping[offset:offset + len(data)] = data

    def _msync(self, slot):
        self._mappings[slot].flush()

    def _sync(self, word, slot):
        getattr(os, word)(self._open[slot])

    def _sync_by_name(self, word, path):
        descriptor = os.open(self._path(path), os.O_RDONLY)
        try:
            getattr(os, word)(descriptor)
        finally:
            os.close(descriptor)

    def _close(self, slot):
        if slot in self._mappings:
            self._mappings.pop(slot).close()
        os.close(self._open.pop(slot))

    def _rename(self, old, new):
        os.rename(self._path(old), self._path(new))

    def _link(self, old, new):
        os.link(self._path(old), self._path(new))

    def _unlink(self, path):
        os.unlink(self._path(path))

    def _chmod(self, path, mode):
        os.chmod(self._path(path), mode)

    def _setxattr(self, path, value):
        os.setxattr(self._path(path), XATTR, value)

    def abandon(self):
        """After the cut: what the calls say does not matter any more."""
        for mapping in self._mappings.values():
            attempt(mapping.close)
        for descriptor in self._open.values():
            attempt(os.close, descriptor)


def look(root):
    """Everything below: {name: attributes and content}. Content that cannot be read is the name of the error."""
    found = {}
    for directory, names, files in os.walk(root, onerror=_raise):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            found[os.path.relpath(path, root)] = _look_at(path)
    return found


def _raise(error):
    raise error


def _look_at(path):
    status = os.lstat(path)
    is_file = stat.S_ISREG(status.st_mode)
    xattr = attempt(os.getxattr, path, XATTR)
    return {"kind": "file" if is_file else "directory", "group": status.st_gid, "mode": status.st_mode & 0o7777,
            "links": status.st_nlink if is_file else None, "xattr": b"" if xattr == "ENODATA" else xattr,
            "content": attempt(_content, path) if is_file else None}


def _content(path):
    with open(path, "rb", buffering=0) as file:
        parts = []
        while part := file.read(1 << 22):
            parts.append(part)
    return b"".join(parts)


def set_up(root, model):
    """What is there before the sequence begins, in a new directory."""
    root.mkdir(mode=0o755)
    for name, inode in model.snapshots[0].items():
        path = root / name
        if inode["kind"] == "directory":
            path.mkdir()
            os.chmod(path, inode["mode"])
            os.chown(path, 0, inode["group"])
            continue
        content = next(each for each in model.inodes if each.group == inode["group"]).commits[0].content
        with open(path, "wb", buffering=0) as file:
            assert file.write(content) == len(content)
            os.fchmod(file.fileno(), inode["mode"])
            os.fchown(file.fileno(), 0, inode["group"])
            os.fsync(file.fileno())


def perform(root, model, descriptors, behind=lambda word: None):
    """The calls of the sequence; `behind` is called after each."""
    for step, word, *arguments in model.calls:
        try:
            descriptors.do("open_" if word == "open" else word, *arguments)
        except OSError as error:
            raise AssertionError(f"{root}: step {step}: {word} {arguments[:2]} failed: {error}") from error
        behind(word)


class Place:
    """One of the two kinds. `directory` is where it puts its sequences' directories."""

    def __init__(self, name, drives):
        self.name, self.drives = name, drives

    def run(self, model, name, pauses=False):
        """The set-up, the calls, the cut; what is there after it. `pauses`: where something goes on in the background once
        a call has returned it gets its turn."""
        root = self.directory / name
        set_up(root, model)
        for path in (*(root / each for each in model.snapshots[0]), root, root.parent):
            _make_durable(path)
        for drive in self.drives:
            drive.sync()
        descriptors = Descriptors(root)
        try:
            perform(root, model, descriptors, lambda word: self._behind(word, pauses))
            self._cut()
        finally:
            descriptors.abandon()
        self._restart()
        return look(root)

    def _behind(self, word, pauses):
        pass


class Plain(Place):
    def __init__(self, directory, kind):
        super().__init__(kind, [Drive(directory, f"plain-{kind}", kind)])
        self.directory = self.drives[0].path

    def _cut(self):
        self.drives[0].shut_down()

    def _restart(self):
        self.drives[0].remount()

    def finish(self):
        pass

    def destroy(self):
        self.drives[0].close()


class Mounted(Place):
    def __init__(self, programs, directory, kind, durable):
        super().__init__(f"{kind} members, durable={durable}", [])
        self.durable = durable
        stem = f"{kind}-{durable}"
        self.mount = None
        try:
            for number in range(2):
                self.drives.append(Drive(directory, f"{stem}-{number}", kind))
            array = Array(programs, [drive.path / "array" for drive in self.drives], chunk_size=CHUNK_SIZE)
            self.mount = QuickMount(array, directory / f"{stem}-mount", ["buffer_memory=16M", f"durable={durable}"])
            self.directory = self.mount.start().path
        except BaseException:
            self.destroy()
            raise

    def _cut(self):
        self.mount.freeze()
        for drive in self.drives:
            drive.shut_down()
        self.mount.cut_off()

    def _restart(self):
        for drive in self.drives:
            drive.remount()
        self.mount.start()

    def _behind(self, word, pauses):
        if pauses and self.durable == "fsync" and word in ("close", "truncate"):
            time.sleep(0.005)

    def finish(self):
        """What all the cuts left behind is in order."""
        self.mount.unmount()
        self.mount.array.assert_clean()

    def destroy(self):
        if self.mount:
            self.mount.destroy()
        for drive in self.drives:
            drive.close()
