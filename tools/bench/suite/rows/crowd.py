"""Rows 7, 8 and 11: many processes at once: their rate, what metadata feels of it, and the daemon's memory."""
import contextlib
import json
import os
import statistics
import subprocess
import sys

from ..measure import Measure, Samples, limit, ratio
from ..prober import DAEMON_PRIORITY
from ..torch_client import BENCH

PROCESSES = 8
POOL = 256 << 20  # the default of buffer_memory


def save_together(bench, mount):
    """Eight files at once, twice the usual size in all; bytes per second from the first start to the last end."""
    each = bench.size * 2 // PROCESSES
    paths = [mount.path / f"rank{rank}" for rank in range(PROCESSES)]
    for path in paths:
        path.unlink(missing_ok=True)
    bench.settle()
    results = bench.torch.run([{"call": "save", "path": str(path), "format": "zip", "size": each} for path in paths])
    return each * PROCESSES / _span(results)


def load_together(bench, mount, size):
    """One file of `size` bytes, loaded by eight processes at once; (bytes per second, bytes read from the drives / size).
    The file is there already."""
    mount.remount_cold()
    before = bench.bytes_read(mount)
    results = bench.torch.run([{"call": "load", "path": str(mount.path / "shared"), "how": "torch"}] * PROCESSES)
    return size * PROCESSES / _span(results), (bench.bytes_read(mount) - before) / size


def _span(results):
    return max(result["ended"] for result in results) - min(result["began"] for result in results)


def many(bench):
    measures = []
    with bench.mounted() as mount:
        if bench.wants("save"):
            with bench.raw(bench.size * 2, jobs=PROCESSES) as raw, bench.mounted("null_write") as sink:
                figures = bench.rotate({"raw": raw.write, "sink": lambda: save_together(bench, sink),
                                        "fastpersistfs": lambda: save_together(bench, mount)})
            measures.append(Measure("save", figures, [ratio(figures, "fastpersistfs", ["raw"], 0.97)]))
            for rank in range(PROCESSES):
                os.unlink(mount.path / f"rank{rank}")
        if bench.wants("load"):
            size = bench.size // 2  # eight copies of it have to fit into memory
            bench.save_rate(mount.path / "shared", "zip", size)
            rounds = []
            for _ in range(bench.options.runs):
                rounds.append(load_together(bench, mount, size))
                bench.say(f"{rounds[-1][0] / 1e6:.0f} MB/s, {rounds[-1][1]:.3f} times read")
            figures = {"all together": Samples("B/s", [rate for rate, _ in rounds]),
                       "read from drives / size": Samples("", [times for _, times in rounds])}
            measures.append(Measure("load", figures, [limit(figures, "read from drives / size", 1.1)]))
    return measures


# --- row 8 ---------------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def prober(places):
    """Asks for attributes and directories in all of {who: directory}, all the time; yields a function that stops it and
    returns its figures."""
    words = [sys.executable, "-m", "suite.prober", *(f"{who}={directory}" for who, directory in places.items())]
    process = subprocess.Popen(words, cwd=BENCH, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()  # it has begun
    try:
        yield lambda: json.loads(process.communicate("\n")[0])
    finally:
        process.kill()
        process.wait()


def latency(bench):
    """Beside the mount are asked: the first drive's own filesystem (control), and the kernel's part: the same directory through
    a FUSE passthrough that has the daemon's priority."""
    measures = []
    control = bench.lab.paths[0] / "control"
    control.mkdir()
    try:
        with bench.mounted() as mount, \
                bench.program_mount("fpfs-bench-passthrough", control, prefix=["nice", "-n", DAEMON_PRIORITY]) as passed:
            probed = mount.path / "probed"
            probed.mkdir()
            for directory in (probed, control):
                for index in range(200):
                    (directory / f"entry{index}").touch()
            places = {"fastpersistfs": probed, "control": control, "kernel's part": passed}
            for name in ("saves", "loads"):
                if bench.wants(name):
                    measures += _latencies(bench, mount, name, places)
    finally:
        for entry in control.iterdir():
            entry.unlink()
        control.rmdir()
    return measures


def _latencies(bench, mount, name, places):
    size = bench.size // 2
    if name == "loads":
        bench.save_rate(mount.path / "shared", "zip", size)
    rounds = []
    for _ in range(bench.options.runs):
        if name == "loads":
            mount.remount_cold()
            jobs = [{"call": "load", "path": str(mount.path / "shared"), "how": "torch"}] * PROCESSES
        else:
            for rank in range(PROCESSES):
                (mount.path / f"rank{rank}").unlink(missing_ok=True)
            jobs = [{"call": "save", "path": str(mount.path / f"rank{rank}"), "format": "zip",
                     "size": bench.size * 2 // PROCESSES} for rank in range(PROCESSES)]
        with prober(places) as stop:
            results = bench.torch.run(jobs)
            samples = stop()
        # Only what fell into the time in which they all ran: not while they made their states.
        begin, end = min(result["began"] for result in results), max(result["ended"] for result in results)
        rounds.append({kind: [seconds for at, seconds in found if begin <= at <= end] for kind, found in samples.items()})
    measures = []
    for kind in ("stat", "lookup", "readdir"):
        figures = {f"{who} {what}": Samples("s", [figure(found[f"{who} {kind}"]) for found in rounds])
                   for who in places
                   for what, figure in (("median", statistics.median), ("p99", _percentile_99), ("max", max))}
        figures["echo p99"] = Samples("s", [_percentile_99(found["echo"]) for found in rounds])
        measures.append(Measure(f"{kind} during {name}", figures,
                                [limit(figures, "fastpersistfs p99", 0.005, least="kernel's part p99")]))
        passed = figures["kernel's part p99"].median
        bench.say(f"{kind}: p99 {figures['fastpersistfs p99'].median * 1e3:.2f} ms of "
                  f"{sum(len(found[f'fastpersistfs {kind}']) for found in rounds)} calls; on the drive's own filesystem "
                  f"{figures['control p99'].median * 1e3:.2f} ms, a passthrough "
                  f"{passed * 1e3:.2f} ms, an echo {figures['echo p99'].median * 1e3:.2f} ms")
    return measures


def _percentile_99(values):
    return sorted(values)[min(len(values) * 99 // 100, len(values) - 1)]


# --- row 11 --------------------------------------------------------------------------------------------------------------

def memory_peaks(bench, mount):
    """Of its daemon: after eight saves at once, and after eight loads behind them, by a daemon that is new."""
    save_together(bench, mount)
    saved = mount.memory("VmHWM")
    for rank in range(PROCESSES):
        os.unlink(mount.path / f"rank{rank}")
    size = bench.size // 2
    bench.save_rate(mount.path / "shared", "zip", size)
    load_together(bench, mount, size)
    loaded = mount.memory("VmHWM")
    bench.say(f"{saved / 2**20:.0f} MiB after saves, {loaded / 2**20:.0f} MiB after loads")
    return saved, loaded


def memory(bench):
    """Largest resident memory of the daemon (VmHWM) after eight saves and eight loads at once."""
    peaks = []
    for _ in range(bench.options.runs):
        with bench.mounted() as mount:
            peaks.append(memory_peaks(bench, mount))
    figures = {"after saves": Samples("B", [saved for saved, _ in peaks]),
               "after loads": Samples("B", [loaded for _, loaded in peaks])}
    return [Measure("daemon", figures, [limit(figures, name, POOL + (100 << 20)) for name in figures])]
