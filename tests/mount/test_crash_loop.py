"""Round after round: torch saves checkpoints, the daemon is killed or the power goes in the middle of it, everything is mounted
again, and what close returned for is there, bit for bit.

Or one drive vanishes under a daemon that lives on. Eighteen rounds by default, 360 with tests/run --long.
"""
import os
import random
import shutil
import subprocess
import sys
import time

import pytest

from lab import LONG, mount_table
from lab.system import attempt, within

torch = pytest.importorskip("torch")

MIB = 1 << 20
TESTS = __file__.rsplit("/", 2)[0]
# power: each of four ways; vanished: the drive with the names, and another
ROUNDS = {"killed": 100 if LONG else 6, "power": 50 if LONG else 2, "vanished": 30 if LONG else 2}

# Saves version after version until something fails; says on stdout what was saved, and what failed.
SAVER = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
from mount.test_crash_loop import state_of
path, way, words = sys.argv[2], sys.argv[3], int(sys.argv[4])
print("ready", flush=True)
for line in sys.stdin:
    version = int(line)
    try:
        while True:
            state = state_of(version, words)
            if way == "replace":
                torch.save(state, path + ".new")
                os.replace(path + ".new", path)
                directory = os.open(os.path.dirname(path), os.O_RDONLY)
                try:
                    os.fsync(directory)  # what makes the new name durable
                finally:
                    os.close(directory)  # an open file would keep the mount alive
            elif way == "overwrite":
                torch.save(state, path)
            else:
                torch.save(state, f"{path}-{version}", _use_new_zipfile_serialization=False)
                if version > 1 and os.path.exists(f"{path}-{version - 2}"):
                    os.unlink(f"{path}-{version - 2}")
            print(version, flush=True)
            version += 1
    except BaseException as error:
        print("failed", repr(error), flush=True)
"""


def state_of(version, words):
    return {"step": version, "weights": torch.arange(words, dtype=torch.int64) * 31 + version * 1_000_003,
            "bias": torch.full((1000,), float(version))}


def holds(path, version, words):
    """Whether the file is exactly this version."""
    if os.stat(path).st_size == 0:
        return False
    loaded, expected = torch.load(path), state_of(version, words)
    return loaded["step"] == version and all(torch.equal(loaded[name], expected[name]) for name in ("weights", "bias"))


def what_it_is(path):
    """For the report of a failure."""
    size = os.stat(path).st_size
    try:
        return f"{size} bytes of version {torch.load(path)['step']}"
    except Exception as error:
        return f"{size} bytes: {error!r}"


class Saver:
    """One of the ways that programs keep checkpoints, in a process of its own that outlives the mounts."""

    def __init__(self, directory, way, megabytes):
        self.path, self.way, self.words = directory / way, way, megabytes * MIB // 8
        self.version = 0  # the last one that is known to be there
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, "-c", SAVER, TESTS, str(self.path), self.way,
                                         str(self.words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)

    def wait_until_ready(self):
        assert self.process.stdout.readline() == "ready\n"

    def go(self):
        self.process.stdin.write(f"{self.version + 1}\n")
        self.process.stdin.flush()

    def until_it_failed(self):
        """The last version that it could save."""
        saved = self.version
        while not (line := self.process.stdout.readline()).startswith("failed"):
            if not line:  # an error while torch ends its zip file ends the process with it
                self.close()
                self.start()
                self.wait_until_ready()
                break
            saved = int(line)
        return saved

    def check(self, saved):
        """The last version that was saved, or the one whose save failed, and never a mixture."""
        if self.way != "rotate":
            # One whose first save was cut short is absent or empty.
            if saved == 0 and (not self.path.exists() or self.path.stat().st_size == 0):
                return
            found = [each for each in (saved, saved + 1) if each > 0 and holds(self.path, each, self.words)]
            assert found, f"{self.path} is neither version {saved} nor {saved + 1}, but {what_it_is(self.path)}"
            self.version = found[0]
            return
        for version in range(max(1, saved - 1), saved + 1):
            assert holds(f"{self.path}-{version}", version, self.words)
        # The next may be there, whole or empty, or not at all; nothing else.
        following = self.path.with_name(f"{self.path.name}-{saved + 1}")
        if following.exists() and following.stat().st_size > 0:
            assert holds(following, saved + 1, self.words)
        # A power cut may undo the removal of an older one, whose directory nobody synced: it is whole then, too.
        for name in following.parent.glob(f"{self.path.name}-*"):
            version = int(name.name.rsplit("-", 1)[1])
            assert version <= saved + 1, name
            if version < saved - 1:
                assert holds(name, version, self.words), f"{name}: {what_it_is(name)}"
                name.unlink()
        self.version = saved

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def savers():
    made = []
    yield made
    for saver in made:
        saver.close()


def changed(path):
    """When a file was changed last; 0 when it is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_for_a_save(saver, before):
    """A crash before anything was saved would show nothing."""
    deadline = time.monotonic() + 120
    while changed(saver.path) == before:
        assert time.monotonic() < deadline, "nothing is saved"
        time.sleep(0.02)


def run_rounds(mount, savers, count, crash, restart):
    """`crash(mount)` in the middle of the saves, then `restart(mount)` until it is mounted again."""
    rolls = random.Random(11)
    for way, megabytes in (("replace", 12), ("overwrite", 9), ("rotate", 5)):
        savers.append(Saver(mount.path, way, megabytes))
    for saver in savers:
        saver.wait_until_ready()
    for number in range(count):
        before = changed(savers[0].path)
        for saver in savers:
            saver.go()
        wait_for_a_save(savers[0], before)
        time.sleep(rolls.random())
        crash(mount)
        saved = [within(60, saver.until_it_failed) for saver in savers]
        restart(mount)
        for saver, version in zip(savers, saved):
            saver.check(version)
        print(f"round {number}: versions {[saver.version for saver in savers]}")
    assert all(saver.version > 0 for saver in savers)
    mount.unmount()
    mount.array.assert_clean()


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("options", [(), ("compress=zstd",)], ids=["as-it-is", "compressed"])
def test_the_daemon_is_killed(array, make_mount, savers, options):
    # The dead mount stays until the savers have seen it: without it they would go on in the directory below.
    def restart(mount):
        mount.kill()
        mount.start()

    run_rounds(make_mount(array, *options), savers, ROUNDS["killed"] // 2, lambda mount: mount.process.kill(), restart)


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.root
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("daemon_goes_on", [False, True], ids=["power", "drives"])
@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_the_power_goes(kind, daemon_goes_on, make_drive, make_array, make_mount, savers):
    """All drives stop taking anything at all, and their filesystems come back by their journals. With the power the daemon
    is gone at that moment; when only the drives are, it goes on for a while: what it says then must be true, too (a filesystem
    that goes down during a sync may let it return 0; see Storage::check_running)."""
    drives = [make_drive(400 * MIB, kind) for _ in range(3)]

    def crash(mount):
        if not daemon_goes_on:
            mount.freeze()
        for drive in drives:
            drive.shut_down()
        mount.process.kill()

    def restart(mount):
        mount.kill()
        for drive in drives:
            drive.remount()
        mount.start()

    array = make_array(paths=[drive.path for drive in drives])
    # What is stored smaller goes through the same commits, in other places: half of the ways, each filesystem once.
    options = ["compress=zstd"] if daemon_goes_on == (kind == "xfs") else []
    run_rounds(make_mount(array, *options), savers, ROUNDS["power"], crash, restart)


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.P4
@pytest.mark.root
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("place", [0, 2], ids=["with-the-names", "another"])
def test_a_drive_vanishes(drives, faulty, make_array, make_mount, savers, place):
    """One drive is pulled out: savers get errors from a daemon that lives on; then it is plugged in again."""
    paths = list(drives.paths[:2])
    paths.insert(place, faulty.path)

    def restart(mount):
        attempt(os.listdir, mount.path)
        mount_table.unmount(mount.path, lazy=True)
        mount.process.wait(timeout=60)
        mount.process = None
        faulty.plug_in()
        mount.start()

    run_rounds(make_mount(make_array(paths=paths)), savers, ROUNDS["vanished"], lambda mount: faulty.vanish(), restart)


@pytest.fixture
def slow_umount(monkeypatch, tmp_path):
    """umount(8) takes its time, as it does on a busy machine."""
    program = tmp_path / "umount"
    program.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which("umount")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.root
def test_the_drive_that_vanishes_comes_back_whole(slow_umount, faulty):
    """The test's own drive: what is left of taking the old one down must not reach the new one."""
    (faulty.path / "file").write_text("content")
    os.sync()
    for _ in range(2):
        faulty.vanish()
        faulty.plug_in()
        faulty.remount()
        assert (faulty.path / "file").read_text() == "content"
