"""Row 20: what of the daemon is serial: how long each lock is held and how long each single thread works, for so many bytes
or requests (tools/bench/scale/locks.cpp)."""
import bisect
import collections
import contextlib
import dataclasses
import json
import pathlib
import re
import struct
import subprocess
import sys

from ..measure import Measure, Samples, limit

MIB = 1 << 20
COUNTERS, MEMBERS = 4 * 8, 64
HEAD, ENTRY, BUCKETS = COUNTERS + MEMBERS * 16, 3 * 8 + 128 * 4, 128
KEPT = 0.99  # of the holds: the longest ones are mostly of holders that lost their processor meanwhile
DRIVES = 8  # of the machine that is asked about: a member's thread has that part of all bytes
TIMES_MIN = 100  # a lock that was taken less often, as once for a file, bounds nothing
BYTES_MAX, REQUESTS_MAX = 1e12, 1e8  # what allows more a second is not shown, and counts as that
SINGLE = re.compile(r"fpfs-aio-|fpfs-timer|fpfs-watch|fpfs-sharer|fastpersistfs")

# Each in four processes, until the time is over: KIND DIRECTORY SECONDS.
REQUESTS = """
import os, sys, time
kind, directory, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
end, number, block = time.monotonic() + seconds, 0, bytes(4096)
def create(path):
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(file, block)
    os.close(file)
def read(path):
    file = os.open(path, os.O_RDONLY)
    os.pread(file, 4096, 0)
    os.close(file)
if kind == "open":
    for index in range(50):
        create(f"{directory}/{os.getpid()}-{index}")
while time.monotonic() < end:
    number += 1
    if kind == "create":
        create(f"{directory}/{os.getpid()}-{number}")
    elif kind == "open":
        read(f"{directory}/{os.getpid()}-{number % 50}")
    else:
        try:
            os.stat(f"{directory}/{os.getpid()}-{number}")
        except FileNotFoundError:
            pass
"""


@dataclasses.dataclass
class Part:
    """One lock, or one thread: seconds of its time."""
    name: str
    count: float = 0  # how many of its kind there are
    times: float = 0  # it was taken
    median: float = 0
    held: float = 0  # without the longest


class Symbols:
    """Functions by address, of the modules that a process has mapped."""

    def __init__(self, pid):
        self._modules = []
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if len(words) == 6 and words[5].startswith("/") and words[2] == "00000000":
                self._modules.append((int(words[0].split("-")[0], 16), words[5]))
        self._modules.sort()
        self._functions = {}

    def name(self, address):
        """None where there is none."""
        at = bisect.bisect(self._modules, (address, "")) - 1
        if at < 0:
            return None
        base, path = self._modules[at]
        functions = self._of(path)
        found = bisect.bisect(functions, (address - base, "")) - 1
        return functions[found][1] if found >= 0 else None

    def _of(self, path):
        if path not in self._functions:
            said = subprocess.run(["nm", "-C", "--defined-only", path], capture_output=True, text=True).stdout
            said = said or subprocess.run(["nm", "-DC", "--defined-only", path], capture_output=True, text=True).stdout
            lines = [line.split(" ", 2) for line in said.splitlines()]
            self._functions[path] = sorted((int(line[0], 16), line[2]) for line in lines if line[1] in "tTwW")
        return self._functions[path]


def owner(name):
    """The class of a function, or its name."""
    found = re.search(r"fpfs::(?:\(anonymous namespace\)::)?(\w+)(?:::|\()", name or "")
    if found and not name.startswith("std::condition_variable"):
        return found.group(1)
    return "libfuse" if (name or "").startswith("fuse_") else None


def seconds_of(bucket):
    if bucket < 4:
        return bucket * 1e-9
    return (1 << (bucket // 4 + 1)) * (1 + (bucket % 4 + 0.5) / 4) * 1e-9


def without_longest(buckets):
    """(times, median, sum without the longest)."""
    times = sum(buckets)
    left, total, seen, median = KEPT * times, 0.0, 0, None
    for bucket, count in enumerate(buckets):
        seen += count
        if median is None and 2 * seen >= times:
            median = seconds_of(bucket)
        taken = min(count, left)
        total += taken * seconds_of(bucket)
        left -= taken
    return times, median, total


class Locks:
    """What the library counts, in a file."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(b"")

    def switch(self, is_on):
        with open(self.path, "r+b") as file:
            file.write(struct.pack("Q", int(is_on)))

    def read(self, symbols):
        """(requests, parts by name): of each kind of lock the one that was held longest."""
        data = self.path.read_bytes()
        requests, lost = struct.unpack_from("QQ", data, 8)
        assert lost == 0, "too many locks for the table"
        buckets, names = {}, collections.defaultdict(collections.Counter)
        for at in range(HEAD, len(data), ENTRY):
            mutex, place = struct.unpack_from("QQ", data, at)
            if mutex == 0:
                continue
            found = struct.unpack_from(f"{BUCKETS}I", data, at + 24)
            before = buckets.get(mutex)
            buckets[mutex] = found if before is None else tuple(map(sum, zip(before, found)))
            names[mutex][owner(symbols.name(place))] += sum(found)
        parts = {}
        for mutex, found in buckets.items():
            name = next((name for name, _ in names[mutex].most_common() if name), "others")
            times, median, held = without_longest(found)
            part = parts.setdefault(name, Part(name))
            part.count += 1
            if held > part.held and times >= TIMES_MIN:
                part.times, part.median, part.held = times, median, held
        return requests, parts

    def left_to_workers(self):
        """{thread: seconds} of what a member's thread would not do if it had more to do."""
        pairs = struct.unpack_from(f"{2 * MEMBERS}Q", self.path.read_bytes()[:HEAD], COUNTERS)
        return {thread: ns / 1e9 for thread, ns in zip(pairs[::2], pairs[1::2]) if thread}


def thread_seconds(pid):
    """{thread: (name, processor time so far)} of each single thread."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        if SINGLE.match(name):
            found[int(task.name)] = name, int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


@contextlib.contextmanager
def watched(bench, *options, paths=None):
    """A mount whose locks are counted: (mount, locks)."""
    locks = Locks(bench.scratch / "locks")
    library = bench.programs.build / "tools" / "libfpfs-bench-locks.so"
    with bench.array(paths) as array:
        prefix = ["env", f"FPFS_LOCKS={locks.path}", f"LD_PRELOAD={library}"]
        with bench.mount(array, "io_uring=off", *options, prefix=prefix) as mount:
            yield mount, locks
    locks.path.unlink()


def counted(mount, locks, work):
    """Runs it: (what it says, requests, parts: locks and threads)."""
    before = thread_seconds(mount.pid)
    locks.switch(True)
    said = work()
    locks.switch(False)
    requests, parts = locks.read(Symbols(mount.pid))
    left = locks.left_to_workers()
    for thread, (name, seconds) in thread_seconds(mount.pid).items():
        kind = "thread " + re.sub(r"\d+$", "N", name)
        part = parts.setdefault(kind, Part(kind))
        part.count += 1
        part.held = max(part.held, seconds - before.get(thread, (name, 0))[1] - left.get(thread, 0))
    if (member := parts.get("thread fpfs-aio-N")) is not None:
        member.held *= member.count / DRIVES
    return said, requests, parts


def streams(bench, mode, seconds, paths, length=None):
    program = bench.programs.build / "tools" / "fpfs-bench-streams"
    words = [program, mode, length or seconds, MIB, "cached", *paths]
    bench.commands.note(["build/tools/fpfs-bench-streams", *words[1:5], "MOUNT/FILE..."])
    return json.loads(bench.commands.run(*words, timeout=120))["bytes"]


def transfers(bench, mode, count, *options):
    """[(bytes, parts)] of rounds."""
    seconds = 0.3 if bench.size < 256 * MIB else 2
    rounds = []
    for _ in range(bench.options.runs):
        with watched(bench, *options) as (mount, locks):
            paths = [mount.path / f"file{index}" for index in range(count)]
            others = []
            if mode == "read":
                others = [mount.path / f"other{index}" for index in range(count)]
                streams(bench, "make", seconds, [*paths, *others], length=max(bench.size // count, MIB))
                mount.remount_cold()
                read_all(bench, others)  # so that the memory of the buffers is not made within what is counted
            moved, _, parts = counted(mount, locks, lambda: read_all(bench, paths) if mode == "read" else
                                      streams(bench, mode, seconds, paths))
            for path in [*paths, *others]:
                path.unlink(missing_ok=True)
        rounds.append((moved, parts))
    return rounds


def read_all(bench, paths):
    """Their bytes, by a dd for each."""
    running = [subprocess.Popen(["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"]) for path in paths]
    if any([process.wait() != 0 for process in running]):
        raise RuntimeError("dd failed")
    return sum(path.stat().st_size for path in paths)


def requests(bench, kind):
    """[(requests, parts)] of rounds."""
    seconds = 0.3 if bench.size < 256 * MIB else 2
    rounds = []
    for _ in range(bench.options.runs):
        with watched(bench) as (mount, locks):
            def work():
                running = [subprocess.Popen([sys.executable, "-c", REQUESTS, kind, str(mount.path), str(seconds)])
                           for _ in range(4)]
                if any([process.wait() != 0 for process in running]):
                    raise RuntimeError(f"the client of '{kind}' failed")
            _, count, parts = counted(mount, locks, work)
        rounds.append((count, parts))
    return rounds


def as_measures(title, rounds, unit, scale, most, target):
    """A line for each part that may matter, and what the largest of them allows. `scale`: bytes or requests of a line."""
    names = {name for _, parts in rounds for name, part in parts.items() if part.held > 0}
    lines = []
    for name in names:
        found = [(amount, parts[name]) for amount, parts in rounds if name in parts and parts[name].held > 0]
        allowed = [amount / part.held for amount, part in found]
        if min(allowed) >= most:
            continue
        figures = {"there are": Samples("of them", [part.count for _, part in found]),
                   "allows": Samples(unit, allowed)}
        if not name.startswith("thread"):
            figures["taken"] = Samples("times", [part.times * scale / amount for amount, part in found])
            figures["µs held"] = Samples("µs", [1e6 * part.median for _, part in found])
        lines.append(Measure(name, figures, table=title))
    lines.sort(key=lambda line: line.figures["allows"].median)
    least = [min([most, *(amount / part.held for part in parts.values() if part.held > 0)]) for amount, parts in rounds]
    name = "all allow"
    figures = {name: Samples(unit, least)}
    return [Measure(title, figures, [limit(figures, name, target, at_least=True)]), *lines]


def serial_parts(bench):
    measures, few, many = [], *((2, 4) if bench.size < 256 * MIB else (8, 64))
    unlimited = bench.lab.limited(0, 0) if bench.lab.can_reformat else contextlib.nullcontext()
    with unlimited:
        for title, take in {
                f"{few} writers": lambda: transfers(bench, "write", few, "threads=16"),
                f"{many} writers, null_write": lambda: transfers(bench, "write", many, "threads=128", "null_write"),
                f"{few} readers": lambda: transfers(bench, "read", few, "threads=16")}.items():
            if bench.wants(title):
                measures += as_measures(title, take(), "B/s", 1e9, BYTES_MAX, 100e9)
        for title, kind in {"names that are not there": "lookup", "open, read 4 KiB, close": "open",
                            "create, write 4 KiB, close": "create"}.items():
            if bench.wants(title):
                measures += as_measures(title, requests(bench, kind), "requests/s", 1, REQUESTS_MAX, 500e3)
    return measures
