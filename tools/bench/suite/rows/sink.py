"""Row 13: the path itself, against the least that a FUSE filesystem can do."""
import time

from ..measure import Measure, ratio


def dd_rate(bench, path):
    """dd with blocks of 1 MiB."""
    blocks = max(bench.size >> 20, 1)
    path.unlink(missing_ok=True)
    words = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={blocks}", "status=none"]
    bench.commands.note(["dd", "if=/dev/zero", "of=MOUNT/FILE", "bs=1M", f"count={blocks}"])
    started = time.monotonic()
    bench.commands.run(*words)
    return (blocks << 20) / (time.monotonic() - started)


def against_discarding(bench):
    measures = []
    with bench.mounted("null_write") as sink, bench.program_mount("fpfs-bench-discard") as discard:
        for format in filter(bench.wants, ("zip", "legacy")):
            figures = bench.rotate({"discarding": lambda: bench.save_rate(discard / "saved", format),
                                    "null_write": lambda: bench.save_rate(sink.path / "saved", format)})
            measures.append(Measure(format, figures, [ratio(figures, "null_write", ["discarding"], 1.0)]))
        if bench.wants("dd"):
            figures = bench.rotate({"discarding": lambda: dd_rate(bench, discard / "dd"),
                                    "null_write": lambda: dd_rate(bench, sink.path / "dd")})
            measures.append(Measure("dd", figures, [ratio(figures, "null_write", ["discarding"], 1.0)]))
    return measures
