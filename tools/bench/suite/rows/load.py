"""Rows 3 and 6: loads, and what the daemon spends."""
import os

from ..bench import cpu_seconds
from ..measure import Measure, Samples, limit, ratio
from . import kernels_part

HOWS = {"torch.load": ("torch", "zip", 0.95), "torch.load, legacy": ("torch", "legacy", 0.95),
        "torch.load mmap": ("torch-mmap", "zip", 0.8), "safetensors load_file": ("safetensors", "safetensors", 0.95),
        "safetensors safe_open": ("safetensors-open", "safetensors", 0.95)}


def cold_rate(bench, mount, how, idle=None, **options):
    """A load that nobody in between remembers."""
    mount.remount_cold()
    return bench.load_rate(mount.path / "saved", how, idle, **options)


def cold(bench):
    """The sink of a load is a mount whose pool holds the whole file, which is open, so that its chunks stay there; the
    page cache does not: the same path without the drives."""
    measures = []
    memory = f"buffer_memory={bench.pool_size >> 20}M"
    with bench.raw(bench.size) as raw, bench.mounted() as mount:
        raw.write()
        for name, (how, format, target) in HOWS.items():
            if not bench.wants(name):
                continue
            bench.save_rate(mount.path / "saved", format)
            with bench.mounted(memory) as sink, kernels_part.of_loads(bench, raw, mount) as least:
                bench.save_rate(sink.path / "saved", format)
                held = os.open(sink.path / "saved", os.O_RDONLY)

                idle, sink_idle = [], []

                def load_from_pool(idle=None):
                    bench.drop_caches()
                    return bench.load_rate(sink.path / "saved", how, idle)

                try:
                    load_from_pool()
                    figures = bench.rotate({"raw": raw.read,
                                            "sink": lambda: load_from_pool(sink_idle),
                                            "kernel's part": lambda: least(how),
                                            "fastpersistfs": lambda: cold_rate(bench, mount, how, idle)})
                finally:
                    os.close(held)
            figures["processors idle, sink"] = Samples("%", [100 * share for share in sink_idle])
            figures["processors idle, fastpersistfs"] = Samples("%", [100 * share for share in idle])
            measures.append(Measure(name, figures, [ratio(figures, "fastpersistfs", ["raw", "sink"], target,
                                                           least="kernel's part")]))
    return measures


# Of a mount, until its saves go through memory that they have used before.
SAVES_BEFORE = 5


def daemon_cpu(bench):
    """CPU seconds of the daemon per 10^9 bytes, from just before the call until the daemon has nothing left to do. Beside
    it the kernel's part: those of a filesystem that keeps everything in its memory. Both have taken that before."""
    measures = []

    def spent(process, path, work):
        before = cpu_seconds(process())
        work()
        return (cpu_seconds(process()) - before) / (os.path.getsize(path) / 1e9)

    with bench.mounted() as mount, \
            bench.program_process("fpfs-bench-discard", "--pool", bench.pool_size) as (least, least_process):
        kernels_part.read_ahead_as(least, mount.path)

        def remount():
            mount.remount_cold()
            mount.wait_for_pool()

        contestants = {"daemon": (lambda: mount.pid, mount.path / "saved", remount),
                       "kernel's part": (lambda: least_process, least / "saved", bench.drop_caches)}

        def saver(process, path, format):
            def save():
                path.unlink(missing_ok=True)
                return spent(process, path, lambda: bench.torch.save(path, format, bench.size))
            return save

        def loader(process, path, forget, how):
            def load():
                forget()
                return spent(process, path, lambda: bench.torch.load(path, how))
            return load

        if any(bench.wants(f"save, {format}") for format in ("zip", "legacy")):
            for _ in range(SAVES_BEFORE):
                saver(lambda: mount.pid, mount.path / "saved", "zip")()
        for format in ("zip", "legacy"):
            if bench.wants(f"save, {format}"):
                figures = bench.rotate({who: saver(process, path, format)
                                        for who, (process, path, _) in contestants.items()}, unit="s/GB")
                measures.append(Measure(f"save, {format}", figures, [limit(figures, "daemon", 0.30, least="kernel's part")]))
        for name, how in (("load", "torch"), ("load, mmap", "torch-mmap")):
            if bench.wants(name):
                for _, path, _ in contestants.values():
                    bench.save_rate(path, "zip")
                figures = bench.rotate({who: loader(*contestant, how) for who, contestant in contestants.items()}, unit="s/GB")
                measures.append(Measure(name, figures, [limit(figures, "daemon", 0.30, least="kernel's part")]))
    return measures
