"""Row 19: what grows with what is stored, and how fast: files in one directory and in a tree, the chunks of one file, open
files, members. A figure's exponent is the slope of its logarithm over that of the count: 1 is linear, 0 does not grow."""
import contextlib
import functools
import itertools
import math
import os
import resource
import shutil
import subprocess
import time

from ..drives import LoopDrive, LoopLab
from ..measure import Measure, Ratio, Samples

FILES = (1_000, 10_000, 100_000)  # and --growth-files, where that is more
CHUNKS = (1_024, 16_384, 131_072, 1_048_576)  # of 1 MiB: 1 GiB to 1 TiB
OPEN = (100, 1_000, 10_000)
MEMBERS = (1, 4, 16)
PER_DIRECTORY = 1_000
WANTED = 1 << 20  # descriptors of the daemon
# Of those, as a sixteenth and an eighth are for others, and a user gets two thirds (docs/operations.md, "Descriptors"):
PER_OPEN_FILE, PER_OPEN_FILE_NOT_ON_XFS = 2, 4
PAST_INLINE = 256 << 10
COMMITS = 1_024  # that a file of many chunks was written by
OPENS = 5
APPENDS = 20
LINEAR, CONSTANT = 1.1, 0.1
HOUR = 3600


# --- the table -------------------------------------------------------------------------------------------------------------

class Figures:
    """{what: {count: Samples}}, and what may grow how."""

    def __init__(self):
        self._found = {}
        self._targets = {}

    def add(self, what, count, value, unit="s", exponent=LINEAR):
        """`exponent`: the largest that it may have; None: a part of another figure, which has no target of its own."""
        self._targets[what] = exponent
        counts = self._found.setdefault(what, {})
        counts.setdefault(count, Samples(unit, [])).values.append(value)

    def measures(self, group, of, sizes):
        """One measure for each quantity: its figures, what one more of `of` costs, and its exponents."""
        measures = []
        for what, counts in self._found.items():
            figures = {f"{count:,} {of}": samples for count, samples in counts.items()}
            target = self._targets[what]
            grows = target is None or target >= 1
            if grows and counts[sizes[0]].unit == "s":
                figures |= {f"each of {count:,}": Samples("µs", [value * 1e6 / count for value in samples.values])
                            for count, samples in counts.items()}
            # What does not grow is judged from the least to the most, what grows where it counts: at the end.
            first = sizes[-2] if grows else sizes[0]
            ratios = [exponent(counts, first, sizes[-1], target)] if target is not None else []
            measures.append(Measure(f"{group}: {what}", figures, ratios))
        return measures


def exponent(counts, smaller, larger, target):
    def slope(a, b):
        return math.log(max(b, 1e-9) / max(a, 1e-9)) / math.log(larger / smaller)
    few, many = counts[smaller], counts[larger]
    slopes = [slope(a, b) for a, b in zip(few.values, many.values)]
    value = slope(few.median, many.median)
    return Ratio(f"exponent, {smaller:,} to {larger:,}", value, min([value, *slopes]), max([value, *slopes]), target, False)


def timed(work):
    started = time.monotonic()
    work()
    return time.monotonic() - started


# --- steps that all have in common --------------------------------------------------------------------------------------------

def grow(bench, what, array, name, count, parts):
    program = bench.programs.build / "tools" / "fpfs-bench-grow"
    bench.commands.note(["build/tools/fpfs-bench-grow", what, "DIRS", "NAME", "COUNT", "PARTS"])
    bench.commands.run(program, what, array.argument, name, count, parts, timeout=HOUR)


def check(bench, array, figures, count):
    """fsck: its time and its memory."""
    bench.drop_caches()
    bench.commands.note(["fsck.fastpersistfs", "-n", "DIRS"])
    options = [] if array.direct_io else ["--buffered-members"]
    started = time.monotonic()
    process = subprocess.Popen([bench.programs.fsck, "-n", *options, array.argument], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, "fsck found errors"
    figures.add("fsck", count, time.monotonic() - started)
    figures.add("fsck, memory", count, used.ru_maxrss * 1024, "B")


def recover(bench, mount, figures, count):
    """The mount behind a kill -9."""
    mount.kill()
    bench.drop_caches()
    figures.add("mount after a kill", count, timed(mount.start))


def mount_again(mount, figures, count, exponent=CONSTANT):
    # Of several: one may meet what the drive's filesystem does behind 100,000 new files.
    figures.add("mount", count, median_of(OPENS, mount.start, before=mount.unmount), exponent=exponent)


def median_of(times, work, before=lambda: None):
    def once():
        before()
        return timed(work)
    return sorted(once() for _ in range(times))[times // 2]


@contextlib.contextmanager
def names_drive(bench, count):
    """A drive with blocks of 1 KiB for very many names, without limits; one of the user's where the lab is."""
    if not isinstance(bench.lab, LoopLab):
        yield bench.lab.paths[0]
        return
    directory = bench.scratch / "names"
    directory.mkdir()
    drive = None
    try:
        drive = LoopDrive(bench.commands, directory, 0, (512 << 20) + count * 2560)
        bench.commands.run("mkfs.xfs", "-q", "-f", "-b", "size=1024", "-i", "maxpct=60", drive.device)
        drive.mount(drive.device)
        yield drive.path
    finally:
        if drive:
            drive.close()
        shutil.rmtree(directory, ignore_errors=True)


# --- files in one directory, and in a tree --------------------------------------------------------------------------------------

def many_files(bench, sizes, per_directory):
    figures = Figures()
    for _ in range(bench.options.runs):
        for count in sizes:
            with names_drive(bench, count) as drive, bench.array([drive]) as array:
                grow(bench, "files", array, "many", count, per_directory)
                check(bench, array, figures, count)
                with bench.mount(array, "durable=fsync") as mount:
                    list_and_remove(bench, mount, figures, count)
                    bench.say(f"{count:,} files")
    return figures


def beside_pool(mount):
    """The daemon's memory but for its buffers."""
    pool = mount.wait_for_pool()
    return mount.memory() - pool


def list_and_remove(bench, mount, figures, count):
    path = mount.path / "many"
    mount_again(mount, figures, count)

    def run(*words):
        bench.commands.note([*[word for word in words if word != path], "MOUNT/many"])
        bench.drop_caches()
        return timed(lambda: bench.commands.run(*words, timeout=HOUR))

    figures.add("list the names", count, run("find", path, "-fprintf", "/dev/null", "%f\n"))
    figures.add("list with attributes", count, run("find", path, "-fprintf", "/dev/null", "%f %s\n"))
    figures.add("memory beside the pool", count, beside_pool(mount), "B")
    recover(bench, mount, figures, count)
    figures.add("rm -r", count, run("rm", "-r", path))


def in_one_directory(bench, sizes):
    return many_files(bench, sizes, 0).measures("in one directory", "files", sizes)


def in_a_tree(bench, sizes):
    return many_files(bench, sizes, PER_DIRECTORY).measures("in directories of 1,000", "files", sizes)


# --- one large file -------------------------------------------------------------------------------------------------------------

def large_file(bench, sizes):
    """Of chunks that are all stored."""
    figures = Figures()
    for _ in range(bench.options.runs):
        for count in sizes:
            with bench.array() as array:
                grow(bench, "chunks", array, "large", count, min(COMMITS, count))
                check(bench, array, figures, count)
                with bench.mount(array) as mount:
                    mount_again(mount, figures, count)
                    append(mount.path / "large", figures, count)
                    figures.add("memory beside the pool", count, beside_pool(mount), "B")
                    recover(bench, mount, figures, count)
                    figures.add("rm", count, timed((mount.path / "large").unlink))
            bench.say(f"{count:,} chunks")
    return figures.measures("one file", "chunks", sizes)


def sparse_file(bench, sizes):
    """Of as many bytes, of which nearly none are stored."""
    figures = Figures()
    for _ in range(bench.options.runs):
        for count in sizes:
            with bench.array() as array:
                with bench.mount(array) as mount:
                    path = mount.path / "sparse"
                    path.touch()
                    os.truncate(path, count << 20)
                    append(path, figures, count, CONSTANT)
                check(bench, array, figures, count)
            bench.say(f"{count:,} MiB, sparse")
    return figures.measures("one sparse file", "MiB", sizes)


def append(path, figures, count, opening=LINEAR):
    """Opens it, reads a little, and appends to it: committed by fsync, and by close while somebody else has it open."""
    def open_and_close():
        os.close(os.open(path, os.O_RDWR))

    figures.add("open, close", count, median_of(OPENS, open_and_close), exponent=opening)
    descriptor = os.open(path, os.O_RDWR)
    try:
        places = itertools.count(os.fstat(descriptor).st_size // 2, 8 << 20)
        figures.add("read 4 KiB", count, median_of(OPENS, lambda: os.pread(descriptor, 4096, next(places))),
                    exponent=CONSTANT)

        def append_and_sync():
            os.pwrite(descriptor, b"a" * 4096, os.fstat(descriptor).st_size)
            os.fsync(descriptor)

        def append_and_close():
            with open(path, "ab") as file:
                file.write(b"a" * (2 << 20))

        for what, work in (("append 4 KiB, fsync", append_and_sync), ("append 2 MiB, close", append_and_close)):
            figures.add(what, count, median_of(APPENDS, work), exponent=CONSTANT)
    finally:
        os.close(descriptor)


# --- open files, members ----------------------------------------------------------------------------------------------------------

def open_files(bench, sizes):
    figures = Figures()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, WANTED)))  # as the daemon does
        hard = max(hard, WANTED)
    kind = bench.commands.run("stat", "--file-system", "--format=%T", bench.lab.paths[0]).strip()
    each = PER_OPEN_FILE if kind == "xfs" else PER_OPEN_FILE_NOT_ON_XFS
    if sizes[-1] * each > hard:
        sizes = [*[count for count in sizes if count * each * 2 <= hard], hard // each]
        bench.note(f"the limit of {hard:,} descriptors, which may not be raised here, leaves one user {sizes[-1]:,} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(sizes[-1] + 1000, hard), hard))
    try:
        for _ in range(bench.options.runs):
            for count in sizes:
                with bench.mounted("durable=fsync") as mount, on_one_core(mount):
                    hold_open(bench, mount, figures, count)
                bench.say(f"{count:,} open files")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return figures.measures("open files", "files", sizes)


@contextlib.contextmanager
def on_one_core(mount):
    """Caller and daemon. With more it is the scheduler that grows: after some thousand calls it begins to wake each on
    another's core, and every call takes twice as long (a close 20 and 40 µs)."""
    before = os.sched_getaffinity(0)
    core = {max(before)}
    for task in os.listdir(f"/proc/{mount.pid}/task"):
        os.sched_setaffinity(int(task), core)
    os.sched_setaffinity(0, core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def hold_open(bench, mount, figures, count):
    descriptors = []

    def create():
        for index in range(count):
            descriptors.append(os.open(mount.path / f"file{index}", os.O_RDWR | os.O_CREAT, 0o644))

    def write():
        for descriptor in descriptors:
            os.pwrite(descriptor, b"w" * 4096, 0)

    # Past what an index holds (inline_max), so that it is a chunk with few files, too, as it is with more than buffers.
    def append_and_sync():
        os.pwrite(descriptors[0], b"a" * 4096, PAST_INLINE)
        os.fsync(descriptors[0])

    def close():
        while descriptors:
            os.close(descriptors.pop())

    try:
        figures.add("create", count, timed(create))
        written = timed(write)
        figures.add("write 4 KiB to each", count, written, exponent=None)
        figures.add("commit one of them", count, median_of(APPENDS, append_and_sync), exponent=CONSTANT)
        figures.add("memory beside the pool", count, beside_pool(mount), "B")
        bench.commands.note(["fpfs", "status", "--json", "MOUNT"])
        figures.add("status", count, timed(mount.status))
    finally:
        figures.add("close", count, timed(close))
    bench.commands.note(["fpfs", "sync", "MOUNT"])
    synced = timed(lambda: bench.commands.run(bench.programs.fpfs, "sync", mount.path))
    figures.add("sync", count, synced)
    # Together: of more files than there are buffers, or objects that are kept open, the writes do what else the sync does.
    figures.add("write, sync", count, written + synced)


def members(bench, sizes):
    figures = Figures()
    for _ in range(bench.options.runs):
        for count in sizes:
            paths = [bench.lab.paths[index % len(bench.lab.paths)] / f"member{index}" for index in range(count)]
            for path in paths:
                path.mkdir()
            try:
                with bench.array(paths) as array:
                    with bench.mount(array) as mount:
                        mount_again(mount, figures, count, LINEAR)
                        (mount.path / "file").write_bytes(bytes(count << 20))
                        append(mount.path / "file", figures, count)
                        figures.add("memory beside the pool", count, beside_pool(mount), "B")
                        recover(bench, mount, figures, count)
                    check(bench, array, figures, count)
            finally:
                for path in paths:
                    shutil.rmtree(path, ignore_errors=True)
            bench.say(f"{count} members")
    return figures.measures("members", "members", sizes)


def growth(bench):
    least = bench.options.files < FILES[1]  # --quick, and less
    files = (bench.options.files // 4, bench.options.files) if least else tuple(sorted({*FILES, bench.options.growth_files}))
    parts = {
        "one directory": functools.partial(in_one_directory, sizes=files),
        "tree": functools.partial(in_a_tree, sizes=files),
        "large file": functools.partial(large_file, sizes=CHUNKS[:2] if least else CHUNKS),
        "sparse file": functools.partial(sparse_file, sizes=CHUNKS[:2] if least else CHUNKS),
        "open files": functools.partial(open_files, sizes=files if least else OPEN),
        "members": functools.partial(members, sizes=MEMBERS[:2] if least else MEMBERS),
    }
    return [measure for name, part in parts.items() if bench.wants(name) for measure in part(bench)]
