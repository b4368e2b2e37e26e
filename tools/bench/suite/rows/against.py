"""Row 15: this build against another one (--against), which a change must not have made worse: what rows 1, 3, 5, 6, 7, 9,
11 and 13 measure, by turns in one run, each build with mounts of its own."""
import contextlib
import os

from lab.programs import Programs

from ..bench import Skipped
from ..measure import Measure, Samples, ratio
from . import crowd, load, sink, small
from .disk import own_directory

THIS, OTHER = "this build", "other build"
SMALL_ROUNDS = 8  # of the small files for each round of anything else: theirs are short, and vary most


def another_build(bench):
    if bench.options.against is None:
        raise Skipped("nothing to compare with: name another build directory with --against")
    builds = {THIS: bench.programs, OTHER: Programs(bench.options.against)}
    measures = []
    with own_directory(bench) as directory:
        for where, paths in (("four drives", None), ("own drive", [directory])):
            with _mounts(bench, builds, paths) as mounts:
                measures += _saves(bench, mounts, where)
                measures += _loads(bench, mounts, where, load.HOWS if paths is None else ["torch.load"])
                if paths is None:
                    measures += _crowds(bench, mounts)
    with _mounts(bench, builds, None, "null_write") as mounts:
        measures += _null_writes(bench, mounts)
    measures += _small_files(bench, builds)
    if bench.wants("memory"):
        figures = bench.rotate({who: lambda programs=programs: _memory(bench, programs) for who, programs in builds.items()},
                               unit="B")
        measures.append(_no_more("memory after saves and loads of eight", figures))
    return measures


@contextlib.contextmanager
def _mounts(bench, builds, paths=None, *options):
    with contextlib.ExitStack() as stack:
        yield {who: stack.enter_context(bench.mounted(*options, paths=paths, programs=programs))
               for who, programs in builds.items()}


def _no_less(name, figures):
    return Measure(name, figures, [ratio(figures, THIS, [OTHER], 0.97)])


def _no_more(name, figures):
    return Measure(name, figures, [ratio(figures, THIS, [OTHER], 1.03, at_least=False)])


def _saves(bench, mounts, where):
    measures = []
    for format in ("zip", "legacy"):
        if not bench.wants(f"save, {format}, {where}"):
            continue
        spent = {who: [] for who in mounts}

        def save(who):
            path = mounts[who].path / "saved"
            path.unlink(missing_ok=True)
            before = mounts[who].cpu_seconds()
            rate = bench.save_rate(path, format)
            spent[who].append((mounts[who].cpu_seconds() - before) / (bench.size / 1e9))
            return rate

        measures += _measures(bench, f"save, {format}, {where}", mounts, save, spent)
    return measures


def _loads(bench, mounts, where, hows):
    measures = []
    for how in hows:
        name = f"{how}, {where}"
        if not bench.wants(name):
            continue
        client, format, _ = load.HOWS[how]
        for mount in mounts.values():
            bench.save_rate(mount.path / "saved", format)
        spent = {who: [] for who in mounts}

        def cold_load(who):
            rate = load.cold_rate(bench, mounts[who], client)
            spent[who].append(mounts[who].cpu_seconds() / (bench.size / 1e9))  # of a daemon that is new
            return rate

        measures += _measures(bench, name, mounts, cold_load, spent)
    return measures


def _crowds(bench, mounts):
    measures = []
    if bench.wants("eight saves"):
        figures = bench.rotate({who: lambda mount=mount: crowd.save_together(bench, mount)
                                for who, mount in mounts.items()})
        measures.append(_no_less("eight saves", figures))
        for mount in mounts.values():
            for rank in range(crowd.PROCESSES):
                os.unlink(mount.path / f"rank{rank}")
    if bench.wants("eight loads"):
        size = bench.size // 2  # eight copies of it have to fit into memory
        for mount in mounts.values():
            bench.save_rate(mount.path / "shared", "zip", size)
        figures = bench.rotate({who: lambda mount=mount: crowd.load_together(bench, mount, size)[0]
                                for who, mount in mounts.items()})
        measures.append(_no_less("eight loads of one file", figures))
    return measures


def _null_writes(bench, mounts):
    works = {format: lambda path, format=format: bench.save_rate(path / "saved", format) for format in ("zip", "legacy")}
    works["dd"] = lambda path: sink.dd_rate(bench, path / "dd")
    measures = []
    for name, work in works.items():
        if bench.wants(f"null_write, {name}"):
            figures = bench.rotate({who: lambda mount=mount: work(mount.path) for who, mount in mounts.items()})
            measures.append(_no_less(f"null_write, {name}", figures))
    return measures


def _measures(bench, name, mounts, work, spent):
    figures = bench.rotate({who: lambda who=who: work(who) for who in mounts})
    cpu = {who: Samples("s/GB", found) for who, found in spent.items()}
    return [_no_less(name, figures), _no_more(f"{name}, daemon CPU", cpu)]


def _small_files(bench, builds):
    measures = []
    with small.archive(bench) as archive:
        for mode in filter(lambda mode: bench.wants(f"small files, {mode}"), small.MODES):
            with _mounts(bench, builds, None, mode) as mounts:
                places = {who: mount.path for who, mount in mounts.items()}
                figures = small.rates(bench, archive, places, SMALL_ROUNDS * bench.options.runs)
                measures += [_no_less(f"{work}, {mode}", found) for work, found in figures.items()]
                spent = {who: Samples("s", [mount.cpu_seconds()]) for who, mount in mounts.items()}
                measures.append(_no_more(f"small files, {mode}, daemon CPU", spent))
    return measures


def _memory(bench, programs):
    with bench.mounted(programs=programs) as mount:
        return max(crowd.memory_peaks(bench, mount))
