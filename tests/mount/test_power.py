"""Small files that were just made when the power goes: those that were closed are there, out of the commit log."""
import os
import re
import threading
import time

import pytest

from lab.system import attempt

pytestmark = [pytest.mark.P1, pytest.mark.root]

MIB = 1 << 20


def content_of(name):
    return (name.encode() * 7000)[:17 + len(name) * 313]


class Maker(threading.Thread):
    """Makes small files in directories of 20, one after the other, until a call fails; removes and renames some."""

    def __init__(self, root, number):
        super().__init__()
        self.root, self.number = root, number
        self.kept, self.gone = {}, set()  # path below the mount: name that its content is of

    def run(self):
        for count in range(100_000):
            if attempt(self.make, count) is not None:
                return

    def make(self, count):
        directory = f"d{self.number}-{count // 20}"
        if count % 20 == 0:
            os.mkdir(self.root / directory)
        path = f"{directory}/file{count}"
        with open(self.root / path, "xb", buffering=0) as file:
            file.write(content_of(path))
        self.kept[path] = path
        if count % 50 == 49:
            # Before it is made: of what is under way when the power goes nothing is known.
            content = self.kept.pop(path)
            os.rename(self.root / path, self.root / f"{path}-moved")
            descriptor = os.open(self.root / directory, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            self.kept[f"{path}-moved"] = content
            self.gone.add(path)
        elif count % 70 == 69:
            self.kept.pop(path, None)
            os.unlink(self.root / path)
            with open(self.root / f"{path}-behind", "xb", buffering=0) as file:
                file.write(content_of(f"{path}-behind"))
            self.kept[f"{path}-behind"] = f"{path}-behind"
            self.gone.add(path)  # as what came later is durable


@pytest.mark.time_limit(240)
@pytest.mark.parametrize("makers", [1, 3])
def test_small_new_files_outlast_a_power_cut(makers, make_drive, make_array, make_mount):
    drives = [make_drive(320 * MIB, "xfs") for _ in range(2)]
    array = make_array(paths=[drive.path for drive in drives])
    mount = make_mount(array)
    for number in range(4):
        making = [Maker(mount.path, f"{number}-{index}") for index in range(makers)]
        for maker in making:
            maker.start()
        while sum(len(maker.kept) for maker in making) < 150 * (number + 1):
            assert all(maker.is_alive() for maker in making)
            time.sleep(0.002)
        mount.freeze()
        for drive in drives:
            drive.shut_down()
        mount.kill()
        for maker in making:
            maker.join()
        for drive in drives:
            drive.remount()
        mount.start()
        for maker in making:
            for path, name in maker.kept.items():
                assert (mount.path / path).read_bytes() == content_of(name), path
            for path in maker.gone:
                assert not (mount.path / path).exists(), path
    mount.unmount()
    array.assert_clean()
    assert re.search(r"small files? w\w+ put back", mount.log()), "none was in the commit log only: this tests nothing"
