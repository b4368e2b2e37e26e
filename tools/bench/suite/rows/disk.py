"""Row 5: the machine's own drive, without limits."""
import contextlib
import os
import pathlib
import shutil
import tempfile

from lab.drives import takes_direct_io

from ..measure import Measure, ratio
from ..bench import Skipped

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

        with bench.raw(bench.size, [directory]) as raw, bench.mounted(paths=[directory]) as mount, \
                bench.mounted("null_write", paths=[directory]) as sink:
            for name, (format, crc) in CASES.items():
                figures = bench.rotate({
                    "raw": write_raw,
                    "sink": lambda: save_in(sink, format, crc),
                    "fastpersistfs": lambda: save_in(mount, format, crc),
                    "plain directory": lambda: save_plain(format, crc)})
                measures.append(Measure(name, figures, [
                    ratio(figures, "fastpersistfs", ["raw", "sink"], 0.95),
                    ratio(figures, "fastpersistfs", ["plain directory"], 1.0)]))
    return measures
