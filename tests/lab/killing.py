"""Clients that are killed (kill -9) while they save, and what must be true afterwards.

A client that is killed has its files closed by the kernel, which to a filesystem looks like any other close: what it had
written is there, as on a local filesystem. So a saver that writes a file of its own and renames it leaves the old or the
new state; one that writes in place leaves the old state, the new one, nothing, or a part of the new that its library
refuses to load. When the daemon dies with it, that last case is gone: what was not closed is not committed.
"""
import dataclasses
import operator
import os
import pathlib
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable

from . import LONG
from .system import die_with_parent

ROUNDS = 40 if LONG else 3  # kills that landed in the middle of a save
PART = "a part of the new"


def no_part(loaded, old, new):
    return False


@dataclasses.dataclass
class Client:
    """How a client saves and loads. The state number n is `make(n)`; making it is no part of the save."""
    make: Callable
    save: Callable  # save(path, state)
    load: Callable  # load(path): the state found there
    same: Callable = operator.eq
    # What `load` raises for what a killed client left unfinished. Empty: it must not leave such a thing.
    refusals: tuple = ()
    # Where the library cannot tell: is_part(loaded, old, new), whether a kill may leave this.
    is_part: Callable = no_part
    # Whether an unfinished file holds exactly a beginning of the finished one.
    sequential: bool = False
    # Names (without directories) of files whose bytes differ from save to save of the same state.
    varying: tuple = ()
    # What the client's process does with a state before the save, which it may be killed in, begins.
    prepare: Callable = lambda state: state
    # Which part of the save's duration is worth a kill.
    window: tuple = (0.05, 0.9)


class Refused(Exception):
    """For a `load` whose library has no exception of its own for what it refuses."""


class Child:
    """Runs `body` in a process of its own, with all that it starts in one process group. Made once prepare() returned."""

    def __init__(self, body, prepare=lambda: None):
        started, ready = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.setsid()
                die_with_parent()
                signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the tests' time limit
                prepared = prepare()
                os.write(ready, b"x")
                body() if prepared is None else body(prepared)
                status = 0
            except BaseException:  # os._exit below must not hide it
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(ready)
        said = os.read(started, 1)
        os.close(started)
        assert said == b"x", f"the client failed before it began: status {self.wait()}"

    def kill(self):
        """Kills the group. Whether the process had not finished, well, before."""
        os.killpg(self.pid, signal.SIGKILL)
        return self.wait() != 0

    def wait(self):
        try:
            return os.waitpid(self.pid, 0)[1]
        except BaseException:  # the tests' time limit
            os.killpg(self.pid, signal.SIGKILL)
            raise


def in_child(body):
    """Runs `body` to its end; the seconds that it took."""
    started = time.monotonic()
    status = Child(body).wait()
    assert status == 0, f"the client failed by itself: status {status}"
    return time.monotonic() - started


def files_under(path):
    """The regular files at or below a path."""
    if path.is_file():
        return [path]
    found = (pathlib.Path(directory) / name for directory, _, names in os.walk(path) for name in names)
    return sorted(file for file in found if file.is_file())


def assert_alive(mount):
    """The mount answers, takes new files, and gives every byte of the files there are."""
    assert mount.process.poll() is None, mount.log()
    assert mount.status()["state"] == "ok"
    probe = mount.path / "probe"
    probe.write_bytes(b"alive" * 10000)
    assert probe.read_bytes() == b"alive" * 10000
    probe.unlink()
    for path in files_under(mount.path):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


class Trial:
    """Saves state after state to one path of a mount, and kills while it does."""

    def __init__(self, mount, client, native, name="state"):
        self.mount, self.client, self.native, self.path = mount, client, native, mount.path / name
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        self._random = random.Random(seed)
        self._number = 0
        self._old = self._new = None  # the state that is there whole, or None; the one being saved
        self._duration = min(self._save_whole(), self._save_whole())

    def kill_client(self, rounds=ROUNDS):
        """Until so many kills landed in the middle of a save."""
        outcomes = []
        for _ in range(20 * rounds):
            if len(outcomes) == rounds:
                break
            child = self._start_save()
            time.sleep(self._moment())
            landed = child.kill()
            assert_alive(self.mount)
            found = self._look()
            if landed:
                outcomes.append(found)
            else:
                assert found == "new"
            if found == PART:
                self._save_whole()
            elif found != "old":
                self._old = self._new if found == "new" else None
        print(f"killed clients left: {outcomes}")
        assert len(outcomes) == rounds, f"only {len(outcomes)} kills came before the save was over ({self._duration} s)"
        self._save_whole()
        self.mount.remount()
        assert self._look() == "new"

    def kill_daemon(self, rounds=(ROUNDS + 1) // 2):
        """The same with the daemon, and with it the client: each file is old or new, new names may be empty."""
        outcomes = []
        for _ in range(20 * rounds):
            if len(outcomes) == rounds:
                break
            before = self._contents(self.path)
            child = self._start_save()
            time.sleep(self._moment())
            self.mount.process.kill()
            landed = child.kill()  # before the dead mount goes: it would go on in the directory below
            self.mount.kill()
            self.mount.start()
            found = self._look()
            assert found in ("old", "new"), found
            if landed:
                outcomes.append(found)
                self._assert_old_or_new(before)
            self._save_whole()
        print(f"killed daemons left: {outcomes}")
        assert len(outcomes) == rounds, f"only {len(outcomes)} kills came before the save was over ({self._duration} s)"

    def _start_save(self):
        self._number += 1
        self._new = self.client.make(self._number)
        return Child(lambda prepared: self.client.save(self.path, prepared), lambda: self.client.prepare(self._new))

    def _save_whole(self):
        child = self._start_save()
        started = time.monotonic()
        status = child.wait()
        duration = time.monotonic() - started
        assert status == 0, f"the client failed by itself: status {status}"
        assert self._look() == "new", "what was saved is not what is loaded"
        self._old = self._new
        return duration

    def _look(self):
        """What is there: "old", "new", "nothing" or PART; anything else fails."""
        if not any(path.stat().st_size for path in files_under(self.path)):
            # Between opening with O_TRUNC and the first write, unless it is none of those that write in place.
            in_place = self.client.refusals or self.client.is_part is not no_part
            assert self._old is None or in_place, "the old state is gone"
            return "nothing"
        try:
            loaded = self.client.load(self.path)
        except self.client.refusals as refusal:
            print(f"refused: {refusal!r}"[:200])
            if self.client.sequential:
                self._assert_beginning()
            return PART
        if self.client.same(loaded, self._new):
            return "new"
        if self._old is not None and self.client.same(loaded, self._old):
            return "old"
        assert self.client.is_part(loaded, self._old, self._new), "neither old nor new, and its library does not refuse"
        return PART

    def _moment(self):
        return self._random.uniform(*self.client.window) * self._duration

    def _contents(self, top):
        return {path.relative_to(top).as_posix(): path.read_bytes() for path in files_under(top)}

    def _undisturbed(self):
        """What the save that was interrupted writes when it is not."""
        target = self.native / self.path.name
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
        in_child(lambda: self.client.save(target, self.client.prepare(self._new)))
        return self._contents(target)

    def _assert_old_or_new(self, before):
        after, whole = self._contents(self.path), self._undisturbed()
        for name, content in after.items():
            if (name in before or name in whole) and pathlib.PurePath(name).name not in self.client.varying:
                assert content in (before.get(name, b""), whole.get(name)), f"{name} is neither old nor new"

    def _assert_beginning(self):
        whole = self._undisturbed()
        for name, content in self._contents(self.path).items():
            assert whole.get(name, b"").startswith(content), f"{name} is no beginning of what was being written"
