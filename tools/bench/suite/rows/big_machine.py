"""Row 18: a model of a big machine (tools/bench/scale): the daemon and its clients, whose copies, hashes and drives are waits
of given cost."""
import contextlib
import dataclasses
import json
import pathlib
import shutil
import struct
import tempfile

from ..measure import Measure, Samples, ratio

MIB = 1 << 20
WORK = ("copy", "move", "hash", "request", "submit", "client")  # as in tools/bench/scale/cores.h
BUSY_MAX = 0.7  # of the real processors: beyond, they may be what is measured
LOADED = MIB << 7  # the length of a file that is read, as long as a copying loader gets in the time of a measurement
LOADED_ALONE = MIB << 10  # of a file that all read


@dataclasses.dataclass(frozen=True)
class Machine:
    """Seconds, and bytes a second, of the big machine. `slow`: how much slower its time runs here."""
    cores: int = 64
    members: int = 8
    slow: int = 400
    copy: float = 12e9
    move: float = 12e9
    hash: float = 20e9
    request: float = 2e-6
    submit: float = 8e-6
    read: float = 14e9
    write: float = 12e9
    read_latency: float = 80e-6
    write_latency: float = 20e-6
    sync: float = 30e-6

    def words(self, shared, client=False):
        values = dataclasses.asdict(self)
        del values["members"]
        return ",".join([*(f"{name}={value}" for name, value in values.items()), f"shared={shared}", f"client={int(client)}"])

    def one_saver(self, block=MIB):
        """What one saver can get: one request at a time, whose payload the daemon copies."""
        return block / (block / self.copy + 2 * self.request)


@dataclasses.dataclass(frozen=True)
class Load:
    """Streams of one kind. `files`: how many there are; with one, and `parts`, each stream has a part of it."""
    mode: str  # of fpfs-bench-streams
    streams: int
    how: str = "cached"
    block: int = MIB
    files: int = None
    parts: bool = False


class Model:
    """Arrays and mounts on the modelled machine. Members are directories: what they are said to store, they do not."""

    def __init__(self, bench):
        self.bench = bench
        self.is_tiny = bench.size < 256 * MIB
        self.seconds = 0.8 if self.is_tiny else 4
        self.loaded, self.alone = (MIB << 5, MIB << 6) if self.is_tiny else (LOADED, LOADED_ALONE)
        self.spent = {}  # load: core-seconds per 10⁹ bytes by kind of work
        self._shared = bench.scratch / "machine-cores"

    @contextlib.contextmanager
    def array(self, members, files, length=None):
        paths = [pathlib.Path(tempfile.mkdtemp(prefix="machine", dir=self.bench.scratch)) for _ in range(members)]
        try:
            with self.bench.array(paths) as array:
                if files:
                    with self._mount(array, Machine(slow=0, members=members)) as mount:
                        self._streams(mount, Machine(slow=0), "make", length or self.loaded, MIB, "direct", self._kept(mount, files))
                yield array
        finally:
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)

    def rate(self, array, machine, load):
        """Bytes a second on that machine."""
        with self._mount(array, machine) as mount:
            before = busy_ticks()
            said = self._streams(mount, machine, load.mode, self.seconds, load.block, load.how, self._paths(mount, load))
            busy, everything = (now - then for now, then in zip(busy_ticks(), before))
            if busy > BUSY_MAX * everything:
                self.bench.note(f"{load.mode}, {load.streams} streams, {machine.cores} cores, {machine.members} members: the "
                                f"real processors were more than {100 * BUSY_MAX:.0f} % busy in a round: the figure may be "
                                "too low")
            self._account(machine, load, said["bytes"])
            for index in range(load.streams):
                (mount.path / f"new{index}").unlink(missing_ok=True)
        return said["rate"] * machine.slow

    def _kept(self, mount, files):
        return [mount.path / f"kept{index}" for index in range(files)]

    def _paths(self, mount, load):
        if load.mode != "read":
            return [mount.path / f"new{index}" for index in range(load.streams)]
        kept = self._kept(mount, load.files or load.streams)
        if load.parts:
            part = self.alone // load.streams
            return [f"{kept[0]}@{index * part}" for index in range(load.streams)]
        return [kept[index % len(kept)] for index in range(load.streams)]

    def _streams(self, mount, machine, mode, amount, block, how, paths):
        program = self.bench.programs.build / "tools" / "fpfs-bench-streams"
        self.bench.commands.note(["build/tools/fpfs-bench-streams", mode, amount, block, how, "MOUNT/FILE..."])
        words = [*self._prefix(machine, client=True), program, mode, amount, block, how, *paths]
        return json.loads(self.bench.commands.run(*words, timeout=120))

    def _prefix(self, machine, client=False):
        library = self.bench.programs.build / "tools" / "libfpfs-bench-machine.so"
        return ["env", f"FPFS_MACHINE={machine.words(self._shared, client)}", f"LD_PRELOAD={library}"]

    @contextlib.contextmanager
    def _mount(self, array, machine):
        self._shared.write_bytes(b"")
        prefix = self._prefix(machine)
        shown = ["env", f"FPFS_MACHINE=cores={machine.cores},slow={machine.slow},...", prefix[-1]]
        with self.bench.mount(array, "io_uring=off", prefix=prefix, shown=shown) as mount:
            yield mount
        self._shared.unlink()

    def _account(self, machine, load, moved):
        """The daemon may have moved a little more: what it had read ahead."""
        with open(self._shared, "rb") as file:
            worked = struct.unpack(f"{len(WORK)}Q", file.read(8 * len(WORK)))
        self.spent.setdefault(load, []).append({kind: ns / 1e9 / machine.slow / moved for kind, ns in zip(WORK, worked)})


def busy_ticks():
    """(busy, all) of the real processors."""
    values = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)



def big_machine(bench):
    model = Model(bench)
    parts = {"filled": filled, "one stream": one_stream, "by cores": by_cores, "by streams": by_streams,
             "by members": by_members}
    return [measure for name, part in parts.items() if bench.wants(name) for measure in part(bench, model)]


def filled(bench, model):
    """Eight drives, and 64 cores."""
    machine = Machine()
    few, many = (2, 4) if model.is_tiny else (8, 64)
    written, read = machine.members * machine.write, machine.members * machine.read
    with model.array(machine.members, 1, model.alone) as one, model.array(machine.members, many) as several:
        def figures(array, loads, **limits):
            contestants = {name: (lambda load=load: model.rate(array, machine, load)) for name, load in loads.items()}
            contestants.update({name: (lambda value=value: value) for name, value in limits.items()})
            return bench.rotate(contestants)
        saved = figures(several, {"8 savers": Load("write", few), "64 savers": Load("write", many)},
                        drives=written, copies=few * machine.one_saver())
        loaded = figures(several, {"8 loaders, 8 files": Load("read", few), "64 loaders, 64 files": Load("read", many),
                                   "8 loaders, 8 files, O_DIRECT": Load("read", few, "direct", 8 * MIB)},
                         drives=read, copies=few * machine.copy)
        shared = figures(one, {"8 loaders, parts of one file": Load("read", few, files=1, parts=True),
                               "8 loaders, all of one file": Load("read", few, files=1),
                               "8 loaders, parts of one file, O_DIRECT":
                                   Load("read", few, "direct", 8 * MIB, files=1, parts=True)},
                         drives=read, copies=few * machine.copy)
    spent = [Measure(f"{load.streams} × {load.mode}, {load.how}", {kind: of_all(values, kind) for kind in WORK},
                     table="Core-seconds for 10⁹ bytes") for load, values in model.spent.items()]
    def targets(figures, limits):
        return [ratio(figures, name, limit, 0.95) for name, limit in limits.items()]
    return [Measure("save", saved, targets(saved, {"8 savers": ["drives", "copies"], "64 savers": ["drives"]})),
            Measure("load", loaded, targets(loaded, {"8 loaders, 8 files": ["drives", "copies"],
                                                     "64 loaders, 64 files": ["drives"],
                                                     "8 loaders, 8 files, O_DIRECT": ["drives"]})),
            Measure("load one file", shared, targets(shared, {"8 loaders, parts of one file": ["drives", "copies"],
                                                              "8 loaders, parts of one file, O_DIRECT": ["drives"]})),
            *spent]


def of_all(values, kind):
    return Samples("s/GB", [1e9 * value[kind] for value in values])


def one_stream(bench, model):
    machine = Machine()
    loads = {"save": Load("write", 1), "save, O_DIRECT, 8 MiB, length set before": Load("fill", 1, "direct", 8 * MIB),
             "load": Load("read", 1), "load, O_DIRECT, 1 MiB": Load("read", 1, "direct"),
             "load, O_DIRECT, 8 MiB": Load("read", 1, "direct", 8 * MIB)}
    with model.array(machine.members, 1, model.alone) as array:
        figures = bench.rotate({name: (lambda load=load: model.rate(array, machine, load)) for name, load in loads.items()})
    return [Measure("one stream", figures)]


def sweep(bench, model, title, points, loads, array):
    """A measure for each (name, machine, streams)."""
    measures = []
    for name, machine, streams in points:
        figures = bench.rotate({what: (lambda load=load: model.rate(array, machine, load(streams)))
                                for what, load in loads.items()})
        measures.append(Measure(name, figures, table=title))
    return measures


KINDS = {"savers": lambda streams: Load("write", streams),
         "loaders": lambda streams: Load("read", streams)}


def by_cores(bench, model):
    counts, streams = ((2,), 2) if model.is_tiny else ((1, 2, 4, 8, 16, 32, 64, 128), 64)
    with model.array(8, streams) as array:
        return sweep(bench, model, f"GB/s by cores, {streams} streams, 8 members",
                     [(counted(count, "core"), Machine(cores=count, slow=min(Machine.slow, max(50, 4 * count))), streams)
                      for count in counts], KINDS, array)


def by_streams(bench, model):
    counts = (1, 2) if model.is_tiny else (1, 2, 4, 8, 16, 32, 64)
    with model.array(8, max(counts)) as array:
        return sweep(bench, model, "GB/s by streams, 64 cores, 8 members",
                     [(counted(count, "stream"), Machine(), count) for count in counts], KINDS, array)


def by_members(bench, model):
    counts, streams = ((1, 2), 2) if model.is_tiny else ((1, 2, 4, 8, 16), 64)
    measures = []
    for count in counts:
        with model.array(count, streams) as array:
            measures += sweep(bench, model, f"GB/s by members, 64 cores, {streams} streams",
                              [(counted(count, "member"), Machine(members=count), streams)], KINDS, array)
    return measures


def counted(number, what):
    return f"{number} {what}" + ("s" if number > 1 else "")
