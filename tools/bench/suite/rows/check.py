"""Row 14: everything that is stored read back and checked, as fsck does it."""
import time

from ..measure import Measure, ratio


def verification(bench):
    with bench.array() as array, bench.raw(bench.size) as raw:
        with bench.mount(array) as mount:
            bench.torch.save(mount.path / "saved", "legacy", bench.size)
        raw.write()

        def verify():
            bench.drop_caches()
            started = time.monotonic()
            status, report = array.fsck_report("--verify-data")
            seconds = time.monotonic() - started
            assert status == 0 and report["bytes_verified"] >= bench.size, report
            return report["bytes_verified"] / seconds

        def read():
            bench.drop_caches()
            return raw.read()

        bench.commands.note(["fsck.fastpersistfs", "--json", "--verify-data", "DIRS"])
        figures = bench.rotate({"raw": read, "fsck": verify})
    return [Measure("fsck --verify-data", figures, [ratio(figures, "fsck", ["raw"], 0.95)])]
