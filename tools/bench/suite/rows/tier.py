"""Row 21: copies in a store outside this machine: how fast they go out, against rclone and aws, and what they cost a save.
The store is SeaweedFS on this machine, or a directory. A user's runs elsewhere: for the saves its processes get only what
processor time others leave."""
import functools
import os
import time

from lab.copies import tier as tier_status
from lab.object_stores import SeaweedStore

from .. import stores
from ..bench import Skipped
from ..measure import Measure, Samples, ratio
from ..stores import PARTS, fpfs

SMALL = 8192


# --- out -------------------------------------------------------------------------------------------------------------------


def _copy_with_fpfs(bench, store, mount, path):
    """What began by itself."""
    fpfs(bench, "sync", "--tier", path if path.is_file() else mount.path)


def _copy_with_rclone(bench, store, mount, path):
    words = ["copyto" if path.is_file() else "copy", f"--s3-upload-concurrency={PARTS}", f"--s3-chunk-size={PARTS}M",
             f"--transfers={PARTS}"]
    bench.commands.note(["rclone", *words, "MOUNT/PATH", ":s3:BUCKET/KEY"])
    bench.commands.run(*stores.rclone(store), *words, path, f":s3:{store.BUCKET}/{path.name}")


def _copy_with_aws(bench, store, mount, path):
    words = [] if path.is_file() else ["--recursive"]
    bench.commands.note(["aws s3 cp", "--quiet", *words, "--endpoint-url", "ENDPOINT", "MOUNT/PATH", "s3://BUCKET/KEY"])
    bench.commands.run(*stores.aws(store), *words, path, f"s3://{store.BUCKET}/{path.name}")


def _out_rate(bench, save, amount, copy):
    """Of what was just saved, by `save(mount)`, which returns its path and when the clock began to run."""
    with stores.opened(bench, SeaweedStore) as store, bench.mounted() as mount:
        if copy is _copy_with_fpfs:
            fpfs(bench, "tier", "set", mount.path, store.url)
        path, began = save(mount)
        copy(bench, store, mount, path)
        return amount / (time.monotonic() - began)


def _save_one(bench, mount):
    bench.save_rate(mount.path / "saved", "zip")
    return mount.path / "saved", time.monotonic()


def _save_small(count, mount):
    folder = stores.made(mount.path / "small")
    began = time.monotonic()
    for index in range(count):
        (folder / f"file{index}").write_bytes(os.urandom(SMALL))
    return folder, began


def _against_others(bench, name, save, amount, unit):
    copies = {"fastpersistfs": _copy_with_fpfs}
    for program, copy in (("rclone", _copy_with_rclone), ("aws", _copy_with_aws)):
        if stores.installed(bench, program):
            copies[program] = copy
    figures = bench.rotate({who: functools.partial(_out_rate, bench, save, amount, copy)
                            for who, copy in copies.items()}, unit)
    others = [who for who in figures if who != "fastpersistfs"]
    return Measure(name, figures, [ratio(figures, "fastpersistfs", [who], 1.0) for who in others])


# --- beside saves ------------------------------------------------------------------------------------------------------------


BEHIND = {"bytes behind at its end": "B", "seconds behind at its end": "s", "current after": "s"}


def _save_with_copies(bench, kind, behind):
    """While a file that was saved before is being copied. How far behind the copies are then goes into `behind`."""
    with stores.opened(bench, kind, leaves_time=True) as store, bench.mounted() as mount:
        bench.save_rate(mount.path / "before", "zip")
        fpfs(bench, "tier", "set", mount.path, store.url)
        rate = bench.save_rate(mount.path / "saved", "zip")
        began, status = time.monotonic(), tier_status(mount)
        fpfs(bench, "sync", "--tier", mount.path)
        for name, value in zip(BEHIND, (status["bytes_waiting"], status["lag_seconds"], time.monotonic() - began)):
            behind[name].append(value)
        return rate


def _save_without(bench):
    with bench.mounted() as mount:
        bench.save_rate(mount.path / "before", "zip")
        return bench.save_rate(mount.path / "saved", "zip")


def _lag(bench, kind):
    """From the end of a save until it is copied."""
    with stores.opened(bench, kind) as store, bench.mounted() as mount:
        fpfs(bench, "tier", "set", mount.path, store.url)
        bench.save_rate(mount.path / "saved", "zip")
        began = time.monotonic()
        fpfs(bench, "sync", "--tier", mount.path / "saved")
        return time.monotonic() - began


def copies(bench):
    measures = []
    kinds = stores.kinds(bench)
    if "S3" in kinds and bench.wants("out, one file"):
        measures.append(_against_others(bench, "out, one file", functools.partial(_save_one, bench), bench.size, "B/s"))
    if "S3" in kinds and bench.wants("out, small files"):
        count = max(10, min(1000, bench.options.files // 20))
        measures.append(_against_others(bench, f"out, {count} files of 8 KiB", functools.partial(_save_small, count),
                                        count, "files/s"))
    for name, kind in kinds.items():
        if bench.wants(f"saves while copying, {name}"):
            behind = {figure: [] for figure in BEHIND}
            figures = bench.rotate({"while copying": lambda kind=kind: _save_with_copies(bench, kind, behind),
                                    "without": lambda: _save_without(bench)})
            ratios = [ratio(figures, "while copying", ["without"], 0.95)]
            figures |= {figure: Samples(unit, behind[figure]) for figure, unit in BEHIND.items()}
            measures.append(Measure(f"saves while copying, {name}", figures, ratios))
        if bench.wants(f"lag, {name}"):
            figures = bench.rotate({"copied behind the close": lambda kind=kind: _lag(bench, kind)}, "s")
            measures.append(Measure(f"lag, {name}", figures))
    if not measures:
        raise Skipped("nothing of it was asked for")
    return measures
