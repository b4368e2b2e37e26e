"""Row 14: everything that is stored read back and checked, as fsck does it."""
import time

from ..measure import Measure, ratio


def verification(bench):
    # A check looks into 256 directories of each member, whatever they hold: 0.06 s for four members. Twice the usual size, so that
    # it is the reading that counts.
    size = bench.size * 2
    with bench.array() as array, bench.raw(size) as raw:
        with bench.mount(array) as mount:
            bench.torch.save(mount.path / "saved", "legacy", size)
        raw.write()

        def verify():
            bench.drop_caches()
            started = time.monotonic()
            status, report = array.fsck_report("--verify-data")
            seconds = time.monotonic() - started
            assert status == 0 and report["bytes_verified"] >= size, report
            return report["bytes_verified"] / seconds

        def read():
            bench.drop_caches()
            return raw.read()

        bench.commands.note(["fsck.fastpersistfs", "--json", "--verify-data", "DIRS"])
        figures = bench.rotate({"raw": read, "fsck": verify})
    return [Measure("fsck --verify-data", figures, [ratio(figures, "fsck", ["raw"], 0.95)])]
