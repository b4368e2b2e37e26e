"""Row 9: small files, against a FUSE passthrough over one of the drives that makes the same fsyncs. Where the kernel has it
(and this is root), also a mount whose requests come through io_uring."""
import contextlib
import os
import shutil
import tarfile
import time

from lab.machine_setting import RINGS_OFFERED, changed, rings_can_be_offered

from ..measure import Measure, Samples, ratio

PER_DIRECTORY = 500
PER_TURN = 1000
# Seconds. What was removed is given up behind the removal: without a pause, who comes first in the next work has the kernel
# beside it, and 15 % less.
PAUSE = 0.5
MODES = {"durable=close": "--sync", "durable=fsync": None}


def _tar_of_small_files(path, count):
    """Files of 0.5 to 8 KiB in directories of 500."""
    with tarfile.open(path, "w") as archive:
        for index in range(count):
            if index % PER_DIRECTORY == 0:
                folder = tarfile.TarInfo(f"tree/folder{index // PER_DIRECTORY}")
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                if index == 0:
                    top = tarfile.TarInfo("tree")
                    top.type, top.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(top)
                archive.addfile(folder)
            entry = tarfile.TarInfo(f"tree/folder{index // PER_DIRECTORY}/file{index}")
            entry.size = 512 * (1 + index * 7 % 16)
            archive.addfile(entry, _Zeros(entry.size))


class _Zeros:
    def __init__(self, size):
        self._left = size

    def read(self, size):
        size = min(size, self._left)
        self._left -= size
        return b"x" * size


def _create_seconds(directory, count):
    """Files of 4 KiB created, written and closed."""
    folder = directory / "created"
    folder.mkdir()
    content = b"c" * 4096
    started = time.monotonic()
    for index in range(count):
        descriptor = os.open(folder / f"file{index}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
        os.write(descriptor, content)
        os.close(descriptor)
    seconds = time.monotonic() - started
    shutil.rmtree(folder)
    return seconds


def _seconds(bench, *words):
    bench.commands.note([word if "/" not in str(word) else "PATH" for word in words])
    started = time.monotonic()
    bench.commands.run(*words)
    return time.monotonic() - started


@contextlib.contextmanager
def archive(bench):
    """Of one turn's small files."""
    path = bench.scratch / "small.tar"
    _tar_of_small_files(path, _turn(bench))
    try:
        yield path
    finally:
        path.unlink()
        bench.lab.trim()


def small_files(bench):
    measures = []
    with archive(bench) as files:
        for mode, flag in MODES.items():
            if not any(bench.wants(f"{work}, {mode}") for work in ("create", "tar x", "ls -lR", "rm -r")):
                continue
            with contextlib.ExitStack() as stack:
                mount = stack.enter_context(bench.mounted(mode, "io_uring=off"))
                below = bench.lab.paths[0] / "below"
                below.mkdir()
                stack.callback(shutil.rmtree, below, ignore_errors=True)
                passed = stack.enter_context(bench.program_mount("fpfs-bench-passthrough", *([flag] if flag else []), below))
                places = {"fastpersistfs": mount.path, "passthrough": passed}
                if rings_can_be_offered():
                    with changed(RINGS_OFFERED, "Y"):
                        by_rings = stack.enter_context(bench.mounted(mode, "io_uring"))
                    if by_rings.status()["options"]["io_uring"]:
                        places["with io_uring"] = by_rings.path
                mine = [who for who in places if who != "passthrough"]
                measures += [Measure(f"{work}, {mode}", found, [ratio(found, who, ["passthrough"], 1.0) for who in mine])
                             for work, found in rates(bench, files, places, bench.options.runs).items()]
    return measures


def _turn(bench):
    """Files that a contestant handles before it is the next one's turn."""
    return min(PER_TURN, bench.options.files)


def rates(bench, archive, places, runs):
    """{work: {who: Samples}} of `runs` rounds in the directories of `places`. In a round each work is done in turns of
    PER_TURN files: which processor a thread is woken on stays as it is for thousands of requests, then changes, and
    with it everybody's rate."""
    files = _turn(bench)
    turns = bench.options.files // files
    order = list(places)  # everybody is the first as often as the others

    def tree(place, turn):
        return place / f"turn{turn}"

    def extract(place, turn):
        tree(place, turn).mkdir()
        return _seconds(bench, "tar", "-x", "-f", archive, "-C", tree(place, turn))

    def list_cold(place, turn):
        bench.drop_caches()
        return _seconds(bench, "ls", "-lR", tree(place, turn))

    works = {
        "create": (max(files // 4, 100), lambda place, _: _create_seconds(place, max(files // 4, 100))),
        "tar x": (files, extract),
        "ls -lR": (files, list_cold),
        "rm -r": (files, lambda place, turn: _seconds(bench, "rm", "-r", tree(place, turn))),
    }
    # Each work needs what the one before left, so a round is all of them.
    figures = {work: {who: Samples("files/s", []) for who in places} for work in works}
    for run in range(runs):
        for work, (count, seconds) in works.items():
            bench.settle()
            time.sleep(PAUSE)
            spent = dict.fromkeys(places, 0.0)
            for turn in range(turns):
                for who in order[(run + turn) % len(order):] + order[:(run + turn) % len(order)]:
                    spent[who] += seconds(places[who], turn)
            for who, total in spent.items():
                figures[work][who].values.append(count * turns / total)
                bench.say(f"{work}, {who}: {figures[work][who].values[-1]:.0f} files/s")
    return figures
