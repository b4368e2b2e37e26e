"""Row 24: the library, from C++ and from Python, against fio with the same knobs, and against torch.save."""
import contextlib
import json
import sys

from lab import wheel

from .. import library_client
from ..measure import Measure, ratio
from ..stores import LEAST
from .disk import own_directory

SETTINGS = [(1 << 20, 32, 1), (1 << 20, 128, 1), (128 << 10, 32, 1), (1 << 20, 32, 2)]  # block, depth, threads
PYTHON = SETTINGS[0]  # of what is compared with torch.save
# For each of a run: a round is over in a tenth of a second, and six say nothing. (Nobody compares tiny ones.)
ROUNDS = 3


class Contestants:
    def __init__(self, bench, file, site):
        self._bench, self._file, self._site = bench, file, site
        self._size = max(bench.size >> 21, 1) << 21  # whole blocks for each thread

    def _rate(self, *words):
        self._bench.settle()
        return float(self._bench.commands.run(*words))

    def library(self, kind, *setting):
        program = self._bench.programs.build / "tools/fpfs-bench-aio"
        return self._rate(program, kind, self._file, self._size, *setting)

    def python(self, kind, *setting):
        return self._rate(sys.executable, library_client.__file__, self._site, kind, self._file, self._size, *setting)

    def fio(self, kind, block, depth, threads):
        """Each job has a part of the file of its own; the time is that of the slowest. Memory in huge pages, as the
        others have it."""
        part = self._size // threads
        words = ["fio", "--output-format=json", "--ioengine=libaio", "--direct=1", "--thread", "--end_fsync=1",
                 "--overwrite=1", "--mem=malloc", f"--rw={kind}", f"--bs={block}", f"--iodepth={depth}",
                 f"--size={part}"]
        self._bench.commands.note(["GLIBC_TUNABLES=glibc.malloc.hugetlb=1", *words[:1], *words[2:8], "..."])
        self._bench.settle()
        for index in range(threads):
            words += [f"--name=job{index}", f"--offset={index * part}", f"--filename={self._file}"]
        output = self._bench.commands.run("env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", *words)
        jobs = [job[kind] for job in json.loads(output[output.index("{"):])["jobs"]]
        return sum(job["io_bytes"] for job in jobs) * 1000 / max(job["runtime"] for job in jobs)

    def all(self, kind, setting):
        ways = {"library": self.library, "Python": self.python, "fio": self.fio}
        if self._site is None:
            del ways["Python"]
        return {name: lambda way=way: way(kind, *setting) for name, way in ways.items()}


def _site(bench):
    """A directory with the wheel, or None."""
    if missing := wheel.missing():
        bench.note(f"Python takes no part: {', '.join(missing)} is missing; pip install nanobind scikit-build-core")
        return None
    site = bench.scratch / "site"
    wheel.install(bench.programs.build, site)
    return site


def against_fio(bench):
    """Over one file of the machine's own drive, which is there before: a write goes over it, and ends durable."""
    measures = []
    with own_directory(bench) as directory:
        file = directory / "file"
        site = _site(bench)
        contestants = Contestants(bench, file, site)
        bench.commands.note(["fpfs-bench-aio", "KIND", "FILE", bench.size, "BLOCK", "DEPTH", "THREADS"])
        contestants.library("write", *SETTINGS[0])
        rounds = bench.options.runs * (ROUNDS if bench.size >= LEAST else 1)
        for setting in SETTINGS:
            for kind in ("write", "read"):
                block, depth, threads = setting
                name = f"{kind}, blocks of {block >> 10} KiB, depth {depth}, threads {threads}"
                if not bench.wants(name):
                    continue
                figures = bench.rotate(contestants.all(kind, setting), runs=rounds)
                measures.append(Measure(name, figures, [ratio(figures, who, ["fio"], 0.97)
                                                        for who in ("library", "Python") if who in figures]))
        if site is not None and bench.wants("durable save, Python"):
            saved = directory / "saved"
            figures = bench.rotate({"Python": lambda: contestants.python("write", *PYTHON),
                                    **{f"torch.save, {format}": lambda format=format: _torch_save(bench, saved, format)
                                       for format in ("zip", "legacy")}})
            measures.append(Measure("durable save, Python", figures))
    return measures


def _torch_save(bench, path, format):
    with contextlib.ExitStack() as stack:
        stack.callback(path.unlink, missing_ok=True)
        return bench.save_rate(path, format, fsync=True)
