"""Row 17: how well streams go side by side, on a machine that copies or hashes slowly and has as many cores as it takes: each
transfer between the daemon and the kernel is held up, or each hash of a chunk (tools/bench/scale/hold.cpp)."""
import contextlib
import subprocess
import tempfile
import time

from ..measure import Measure, ratio

RATE = 131072000  # bytes a second of one transfer, or one hash: 1 MiB in 8 ms
STREAMS = 8


@contextlib.contextmanager
def held_up(bench, what, *options, paths=None):
    """A mount whose daemon is held up."""
    library = bench.programs.build / "tools" / "libfpfs-bench-hold.so"
    with bench.array(paths) as array:
        prefix = ["env", f"FPFS_HOLD_{what}={RATE}", f"LD_PRELOAD={library}"]
        with bench.mount(array, *options, prefix=prefix) as mount:
            yield mount


def together(bench, copies, size):
    """dd from and to these paths, all at once; bytes per second."""
    blocks = max(size >> 20, 1)
    started = time.monotonic()
    running = [subprocess.Popen(["dd", f"if={source}", f"of={target}", "bs=1M", f"count={blocks}", "status=none"])
               for source, target in copies]
    if any([process.wait() != 0 for process in running]):
        raise RuntimeError("dd failed")
    return len(copies) * (blocks << 20) / (time.monotonic() - started)


def side_by_side(bench):
    return copies(bench) + one_member(bench)


def copies(bench):
    size = bench.size // STREAMS
    bench.commands.note(["dd", "if=/dev/zero", "of=MOUNT/FILE", "bs=1M", f"count={max(size >> 20, 1)}"])
    bench.commands.note(["dd", "if=MOUNT/FILE", "of=/dev/null", "bs=1M"])
    with held_up(bench, "COPY", "threads=16") as mount:
        kept = [mount.path / f"kept{index}" for index in range(STREAMS)]
        together(bench, [("/dev/zero", path) for path in kept], size)

        def write(count):
            paths = [mount.path / f"new{index}" for index in range(count)]
            for path in paths:
                path.unlink(missing_ok=True)
            return together(bench, [("/dev/zero", path) for path in paths], size)

        def read(count):
            mount.remount_cold()
            return together(bench, [(path, "/dev/null") for path in kept[:count]], size)

        figures = bench.rotate({"one at a time": lambda: RATE, "one writer": lambda: write(1),
                                "eight writers": lambda: write(STREAMS), "one reader": lambda: read(1),
                                "eight readers": lambda: read(STREAMS)})
    targets = {"eight writers": 6, "eight readers": 6, "one reader": 2.5}
    return [Measure("streams", figures, [ratio(figures, name, ["one at a time"], target)
                                         for name, target in targets.items()])]


def one_member(bench):
    """Whether what a member's chunks cost a processor is bounded by one thread."""
    size = bench.size // STREAMS
    bench.commands.note(["dd", "if=/dev/zero", "of=MOUNT/FILE", "bs=1M", f"count={max(size >> 20, 1)}"])
    bench.commands.note(["dd", "if=MOUNT/FILE", "of=/dev/null", "bs=1M"])
    with tempfile.TemporaryDirectory(prefix="fpfs-member-", dir="/dev/shm") as memory, \
            held_up(bench, "HASH", "threads=16", paths=[memory]) as mount:
        kept = [mount.path / f"kept{index}" for index in range(STREAMS)]
        together(bench, [("/dev/zero", path) for path in kept], size)

        def write():
            paths = [mount.path / f"new{index}" for index in range(STREAMS)]
            for path in paths:
                path.unlink(missing_ok=True)
            return together(bench, [("/dev/zero", path) for path in paths], size)

        def read():
            mount.remount_cold()
            return together(bench, [(path, "/dev/null") for path in kept], size)

        figures = bench.rotate({"one at a time": lambda: RATE, "eight writers": write, "eight readers": read})
    return [Measure("one member", figures, [ratio(figures, name, ["one at a time"], 6)
                                            for name in ("eight writers", "eight readers")])]
