"""Rows 5 and 10: the machine's own drive, without limits, and what rotation costs."""
import contextlib
import os
import pathlib
import shutil
import tempfile
import time

from lab.drives import takes_direct_io

from . import kernels_part
from ..bench import Skipped
from ..measure import Measure, Samples, ratio

CASES = {"zip": ("zip", True), "zip, CRC32 off": ("zip", False), "legacy": ("legacy", True),
         "legacy, CRC32 off": ("legacy", False)}


@contextlib.contextmanager
def own_directory(bench):
    """A directory on the drive of --disk, removed afterwards."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="fpfs-bench-", dir=bench.options.disk))
    try:
        if not takes_direct_io(path):
            raise Skipped(f"{bench.options.disk} has no O_DIRECT; name a directory on a drive with --disk")
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def own_drive(bench):
    measures = []
    with own_directory(bench) as directory:
        plain = directory / "plain"

        def save_plain(format, crc):
            rate = bench.save_rate(plain, format, fsync=True, crc=crc)
            plain.unlink()
            return rate

        def write_raw():
            bench.settle()
            rate = raw.write()
            raw.remove()
            return rate

        def save_in(mount, format, crc):
            rate = bench.save_rate(mount.path / "saved", format, crc=crc)
            os.unlink(mount.path / "saved")
            return rate

        rates = []  # of fastpersistfs

        def save_in_fastpersistfs(format, crc):
            rates.append(save_in(mount, format, crc))
            return rates[-1]

        with bench.raw(bench.size, [directory]) as raw, bench.mounted(paths=[directory]) as mount, \
                bench.mounted("null_write", paths=[directory]) as sink, kernels_part.of_durable_saves(bench, raw) as least:
            for name, (format, crc) in CASES.items():
                if not bench.wants(name):
                    continue
                figures = bench.rotate({
                    "raw": write_raw,
                    "sink": lambda: save_in(sink, format, crc),
                    "fastpersistfs": lambda: save_in_fastpersistfs(format, crc),
                    "plain directory": lambda: save_plain(format, crc),
                    "kernel's part": lambda: least(format, crc, rates[-1])})
                measures.append(Measure(name, figures, [
                    ratio(figures, "fastpersistfs", ["raw", "sink"], 0.95, least="kernel's part"),
                    ratio(figures, "fastpersistfs", ["raw", "kernel's part"], 0.95),
                    ratio(figures, "fastpersistfs", ["plain directory"], 1.0)]))
            if bench.wants("DeepSpeed"):
                contestants = {"fastpersistfs": lambda: save_in(mount, "zip", True),
                               "fastpersistfs, legacy": lambda: save_in(mount, "legacy", True)}
                bench.deepspeed(plain, contestants)
                if len(contestants) > 2:
                    measures.append(Measure("DeepSpeed", bench.rotate(contestants)))
    return measures


def rotation(bench):
    """Ten saves by one process, as checkpoints are rotated; on the lab's drives and on the machine's own."""
    measures = []
    with own_directory(bench) as directory:
        for where, paths in (("own drive", [directory]), ("four drives", None)):
            for way, remove in (("overwrite", False), ("delete and save again", True)):
                name = f"{way}, {where}"
                if bench.wants(name):
                    measures.append(_rotation(bench, name, paths, remove))
    return measures


SAVES, PAUSE = 10, 0.2  # of a rotation; seconds between two


def _rotation(bench, name, paths, remove):
    """Beside it the drives' own first and tenth write: some drives are fast only for a while."""
    saves, writes = [], []
    for _ in range(bench.options.runs):
        with bench.mounted(paths=paths) as mount:
            bench.settle()
            seconds = bench.torch.save(mount.path / "saved", "legacy", bench.size, repeat=SAVES, remove=remove,
                                       pause=PAUSE)["all_seconds"]
            saves.append([bench.size / one for one in seconds])
            bench.say(" ".join(f"{rate / 1e6:.0f}" for rate in saves[-1]) + " MB/s")
        with bench.raw(bench.size, paths) as raw:
            bench.settle()
            writes.append([_write_again(raw) for _ in range(SAVES)])
            bench.say("raw: " + " ".join(f"{rate / 1e6:.0f}" for rate in writes[-1]) + " MB/s")
    figures = {f"{what} {number}": Samples("B/s", [rates[number - 1] for rates in found])
               for what, found in (("save", saves), ("raw", writes)) for number in range(1, SAVES + 1)}
    return Measure(name, figures, [ratio(figures, f"save {SAVES}", ["save 1"], 1.0)])


def _write_again(raw):
    time.sleep(PAUSE)
    return raw.write()
