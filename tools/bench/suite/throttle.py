"""Bandwidth limits per block device, for everything that reaches the device: O_DIRECT, page cache and journal alike.

Two kinds of control group can do it:
- version 1 (blkio): the rules of the root group. Writeback of the page cache comes from kernel threads, and those belong to
  the root group, so this process has to be there too; then fio, torch, the daemon and the kernel share one limit.
- version 2 (io.max): a group of our own with the controllers io and memory. Dirty pages are written back on the account of
  the group that dirtied them, so everything that is started from here is limited.
"""
import os
import pathlib


class Unavailable(Exception):
    """No control group here can limit a device; the text says why."""


def _mounted(kind, option=None):
    """Where a cgroup hierarchy is mounted, or None."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, path, fs_type, options = line.split()[:4]
        if fs_type == kind and (option is None or option in options.split(",")):
            return pathlib.Path(path)
    return None


def _move_here(group):
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        raise Unavailable(f"this process cannot be moved to the control group {group}: {error.strerror}") from error


class BlkioThrottle:
    """cgroup v1."""

    kind = "cgroup v1 blkio.throttle, root group"

    def __init__(self, root=None):
        self._root = root or _mounted("cgroup", "blkio")
        if self._root is None or not (self._root / "blkio.throttle.write_bps_device").exists():
            raise Unavailable("no cgroup v1 blkio throttle in the root group")
        _move_here(self._root)

    def limit(self, device, write, read):
        """`device` is "major:minor"; bytes per second, 0 lifts the limit."""
        (self._root / "blkio.throttle.write_bps_device").write_text(f"{device} {write}")
        (self._root / "blkio.throttle.read_bps_device").write_text(f"{device} {read}")

    def close(self):
        pass


class IoMaxThrottle:
    """cgroup v2."""

    kind = "cgroup v2 io.max"

    def __init__(self, root=None):
        root = root or _mounted("cgroup2")
        controllers = (root / "cgroup.controllers").read_text().split() if root else []
        if not {"io", "memory"} <= set(controllers):
            raise Unavailable("no cgroup v2 with the controllers io and memory")
        self._root = root
        self._group = root / f"fpfs-bench-{os.getpid()}"
        self._before = self._own_group(root)
        try:
            (root / "cgroup.subtree_control").write_text("+io +memory")
            self._group.mkdir()
        except OSError as error:
            raise Unavailable(f"no control group can be made in {root}: {error.strerror}") from error
        _move_here(self._group)

    @staticmethod
    def _own_group(root):
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return root / line[3:].lstrip("/")
        return root

    def limit(self, device, write, read):
        word = lambda value: value or "max"  # noqa: E731
        (self._group / "io.max").write_text(f"{device} wbps={word(write)} rbps={word(read)}")

    def close(self):
        try:
            _move_here(self._before)
            self._group.rmdir()
        except (OSError, Unavailable) as error:
            print(f"the control group {self._group} stays behind: {error}")


def make_throttle():
    """The throttle that this machine has; Unavailable with both reasons when it has none."""
    reasons = []
    for kind in (IoMaxThrottle, BlkioThrottle):
        try:
            return kind()
        except (Unavailable, OSError) as error:
            reasons.append(str(error))
    raise Unavailable("; ".join(reasons))
