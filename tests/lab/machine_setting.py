"""Settings of the whole machine, below /proc/sys and /sys. Changing one needs root."""
import contextlib
import fcntl
import os
import pathlib

PAGES_LIMIT = pathlib.Path("/proc/sys/fs/fuse/max_pages_limit")  # the most pages of a FUSE request (Linux 6.13)
RINGS_OFFERED = pathlib.Path("/sys/module/fuse/parameters/enable_uring")  # FUSE over io_uring (Linux 6.14): Y, N
RINGS_FORBIDDEN = pathlib.Path("/proc/sys/kernel/io_uring_disabled")  # 0: to nobody, 2: to everybody


@contextlib.contextmanager
def changed(path, value):
    """`value` in the file, then again what was there. The machine is one, and tests run side by side: whoever else wants to
    change it waits until then."""
    with path.open() as setting:
        fcntl.flock(setting, fcntl.LOCK_EX)
        before = setting.read()
        path.write_text(str(value))
        try:
            yield
        finally:
            path.write_text(before)
            fcntl.flock(setting, fcntl.LOCK_UN)  # a process that was forked meanwhile has it, too


def rings_can_be_offered():
    if os.geteuid() != 0 or not RINGS_OFFERED.exists():
        return False
    return not RINGS_FORBIDDEN.exists() or RINGS_FORBIDDEN.read_text().strip() == "0"
