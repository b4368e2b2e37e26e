"""Rows 1, 2, 4 and 12: saves on the lab's drives."""
from ..bench import Skipped
from ..measure import Measure, Samples, limit, ratio
from . import kernels_part, load

FORMATS = ("zip", "legacy")


def four_drives(bench):
    measures = []
    with bench.raw(bench.size) as raw, bench.mounted() as mount, bench.mounted("null_write") as sink:
        for format in filter(bench.wants, FORMATS):
            figures = bench.rotate({"raw": raw.write,
                                    "sink": lambda: bench.save_rate(sink.path / "sink", format),
                                    "fastpersistfs": lambda: bench.save_rate(mount.path / "saved", format)})
            measures.append(Measure(format, figures, [ratio(figures, "fastpersistfs", ["raw", "sink"], 0.97)]))
            (mount.path / "saved").unlink()
            raw.remove()
    return measures


def others(bench):
    def save_to_mount(format):
        with bench.mounted() as mount:
            return bench.save_rate(mount.path / "saved", format)

    def save_to_drive(format):
        path = bench.lab.paths[0] / "plain"
        try:
            return bench.save_rate(path, format, fsync=True)
        finally:
            path.unlink(missing_ok=True)
            bench.lab.trim()

    def save_to_btrfs(format):
        with bench.lab.btrfs() as directory:
            return bench.save_rate(directory / "plain", format, fsync=True)

    measures = []
    for format in filter(bench.wants, FORMATS):
        contestants = {"fastpersistfs": lambda: save_to_mount(format), "one drive": lambda: save_to_drive(format)}
        if bench.lab.can_reformat:
            contestants["btrfs raid0"] = lambda: save_to_btrfs(format)
        else:
            bench.note("btrfs raid0 needs drives that may be formatted (the lab, as root)")
        figures = bench.rotate(contestants)
        ratios = [ratio(figures, "fastpersistfs", ["one drive"], 4.0)]
        if "btrfs raid0" in figures:
            ratios.append(ratio(figures, "fastpersistfs", ["btrfs raid0"], 2.0))
        measures.append(Measure(format, figures, ratios))
    if bench.wants("DeepSpeed"):
        contestants = {"fastpersistfs": lambda: save_to_mount("zip"),
                       "fastpersistfs, legacy": lambda: save_to_mount("legacy")}
        bench.deepspeed(bench.lab.paths[0] / "plain", contestants)
        if len(contestants) > 2:
            measures.append(Measure("DeepSpeed", bench.rotate(contestants)))
    return measures


def scaling(bench):
    """Rates of arrays of one drive and of all; efficiency is their ratio over the number of drives."""
    drives = len(bench.lab.paths)
    if drives < 2:
        raise Skipped("scaling needs two drives at least")
    measures = []
    with bench.mounted(paths=bench.lab.paths[:1]) as one, bench.mounted() as every:
        for format in FORMATS:
            if bench.wants(f"save, {format}"):
                figures = bench.rotate({"1 drive": lambda: bench.save_rate(one.path / "saved", format),
                                        f"{drives} drives": lambda: bench.save_rate(every.path / "saved", format)})
                measures.append(_efficiency(f"save, {format}", figures, drives))
        if bench.wants("load"):
            for mount in (one, every):
                bench.save_rate(mount.path / "saved", "zip")
            figures = bench.rotate({"1 drive": lambda: load.cold_rate(bench, one, "torch"),
                                    f"{drives} drives": lambda: load.cold_rate(bench, every, "torch")})
            measures.append(_efficiency("load", figures, drives))
    return measures


def _efficiency(name, figures, drives):
    one, every = figures["1 drive"], figures[f"{drives} drives"]
    figures["efficiency"] = Samples("", [b / a / drives for a, b in zip(one.values, every.values)])
    return Measure(name, figures, [limit(figures, "efficiency", 0.97, at_least=True)])


def overlap(bench):
    """durable=fsync and a pool that holds the checkpoint: the trainer goes on at memory speed, the drives catch up."""
    measures = []
    options = ("durable=fsync", f"buffer_memory={bench.pool_size >> 20}M")
    sync = [bench.programs.fpfs, "sync"]
    with bench.raw(bench.size) as raw, bench.mounted(*options) as mount, bench.mounted(*options, "null_write") as sink, \
            kernels_part.of_saves(bench) as least:
        for format in filter(bench.wants, FORMATS):
            committed = []

            def save():
                path = mount.path / "saved"
                path.unlink(missing_ok=True)
                bench.settle()
                result = bench.torch.save(path, format, bench.size, then=[*sync, str(path)])
                committed.append(bench.size / result["seconds_then"])
                return bench.size / result["seconds"]

            figures = bench.rotate({"raw": raw.write, "sink": lambda: bench.save_rate(sink.path / "sink", format),
                                    "kernel's part": lambda: least(format), "save returned": save})
            figures["committed"] = Samples("B/s", committed)
            measures.append(Measure(format, figures, [ratio(figures, "save returned", ["sink"], 0.95, least="kernel's part"),
                                                      ratio(figures, "save returned", ["kernel's part"], 0.95),
                                                      ratio(figures, "committed", ["raw"], 0.95)]))
            raw.remove()
    return measures
