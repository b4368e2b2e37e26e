"""kill -9 of a store's service, of one of its daemons, or of the daemon of a mount, while nodes share, while what is away
comes back, and while damage heals. Afterwards nothing is lost. Through mounts.

A long run kills the gateway and the OSD of a Ceph, and the client, the MDS and the OSD of a CephFS.
"""
import errno
import os
import random
import threading
import time

import pytest

from lab import LONG
from lab.copies import Directory, copied_file, fpfs, set_tier, sync, tier
from lab.damage import flip, read_at
from lab.data import is_pattern, pattern, write_pattern
from lab.object_stores import CephDirectoryStore, CephStore, SeaweedStore
from lab.system import wait_until

CHUNK = 65536
MIB = 1 << 20
DAEMON = "daemon"  # the mount's

pytestmark = [pytest.mark.P2, pytest.mark.P3, pytest.mark.chunk_size(CHUNK), pytest.mark.time_limit(300)]

KINDS = [SeaweedStore, *([CephStore, CephDirectoryStore] if LONG else [])]
SERVICES_KILLED = [(kind, daemon) for kind in KINDS for daemon in kind.DAEMONS]
DAEMONS_KILLED = [(kind, DAEMON) for kind in (KINDS if LONG else [Directory])]
AWAY_SECONDS = 6 if LONG else 1
# A store that did not answer is not asked for content for 10 s. A CephFS client that was killed keeps what it had open
# until its MDS gives it up, after a minute: who opens the same waits, and is told EIO after 30 s.
PATIENCE_SECONDS = 120 if LONG else 15


def killed_and_back(services, kind, victim, node):
    """`node` is a Node. It returns when what was killed answers again."""
    if victim == DAEMON:
        node.kill_and_start()
        return
    services(kind).kill(victim)
    try:
        time.sleep(AWAY_SECONDS)
    finally:
        services(kind).start(victim)


class Node(threading.Thread):
    """A mount, and a client of it: saves new files, replaces one of its own, and reads what the others have saved."""

    def __init__(self, name, mount):
        super().__init__(daemon=True)
        self.name, self.mount = name, mount
        self.others = []
        self.saved = {}  # of this node's files: {name: seed}
        self.latest = 0  # version of the file that is replaced
        self.reads = self.reads_refused = 0
        self.wrong = []
        self.dies = False
        self.pause = 0.1  # between steps
        self._ends = threading.Event()
        self._is_there = threading.Lock()  # the mount, for one step

    def kill_and_start(self):
        self.dies = True
        self.mount.process.kill()
        with self._is_there:
            self.mount.kill()
            self.mount.start()

    def stop(self):
        self._ends.set()
        self.join()

    def run(self):
        rolls = random.Random(self.name)
        step = 0
        while not self._ends.is_set():
            with self._is_there:
                try:
                    self._save(step)
                    step += 1
                except OSError as error:
                    if not self.dies:
                        self.wrong.append(f"{self.name}: step {step}: {error}")
                try:
                    self._read(rolls)
                except OSError as error:
                    self.reads_refused += 1
                    if not self.dies and error.errno not in (errno.EIO, errno.ENOENT):
                        self.wrong.append(f"{self.name}: read: {error}")
            time.sleep(self.pause)

    def _save(self, step):
        seed = step * 4 + (1 if self.name == "a" else 5) + 1000
        name = f"{self.name}-{step}"
        write_pattern(self.mount.path / "run" / name, seed, size_of(seed))
        self.saved[name] = seed
        if step % 3 == 0:
            self._replace(self.latest + 1)

    def _replace(self, version):
        beside = self.mount.path / "run" / f"latest-{self.name}.new"
        write_pattern(beside, version, 3 * CHUNK + version)
        os.replace(beside, beside.with_suffix(""))
        self.latest = version

    def _read(self, rolls):
        other = rolls.choice(self.others)
        if not other.saved:
            return
        name, seed = rolls.choice(list(other.saved.items()))
        if not is_pattern(self.mount.path / "run" / name, seed, size_of(seed)):
            self.wrong.append(f"{self.name}: {name} is another content")
        self.reads += 1
        with open(self.mount.path / "run" / f"latest-{other.name}", "rb") as file:
            content = file.read()
        version = len(content) - 3 * CHUNK
        if content != pattern(version, 0, len(content)):
            self.wrong.append(f"{self.name}: latest-{other.name} is no version of it")


def size_of(seed):
    return seed * 7919 % (4 * CHUNK) + 1


def has_pattern(path, seed, size):
    """Once the store is asked again."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return is_pattern(path, seed, size)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def listing(mount):
    return sorted(path.name for path in (mount.path / "run").iterdir())


def assert_both_have_all(nodes, store):
    wanted = {name: (seed, size_of(seed)) for node in nodes for name, seed in node.saved.items()}
    wanted |= {f"latest-{node.name}": (node.latest, 3 * CHUNK + node.latest) for node in nodes}
    for node in nodes:
        wait_until(lambda node=node: listing(node.mount) == sorted(wanted), seconds=PATIENCE_SECONDS)
    for name, (seed, size) in wanted.items():
        for node in nodes:
            assert has_pattern(node.mount.path / "run" / name, seed, size), f"{name} on {node.name}"
        assert store.content(f"run/{name}") == pattern(seed, 0, size), name


@pytest.mark.parametrize("kind, victim", SERVICES_KILLED + DAEMONS_KILLED)
def test_two_nodes_share(make_array, make_mount, make_store, services, kind, victim):
    """Both see the same names and contents, nothing is lost, nothing is a conflict."""
    store = make_store(kind)
    nodes = [Node(name, make_mount(make_array(chunk_size=CHUNK), "tier_share=0")) for name in "ab"]
    for node in nodes:
        set_tier(node.mount, store.url, *(["--share"] if node is not nodes[0] else []))
        node.others = [other for other in nodes if other is not node]
    (nodes[0].mount.path / "run").mkdir()
    sync(nodes[0].mount)
    assert (nodes[1].mount.path / "run").is_dir()
    for node in nodes:
        node.start()
    try:
        wait_until(lambda: all(node.reads >= 3 and node.latest > 1 for node in nodes))
        for node in nodes:
            node.pause = 0.4
        killed_and_back(services, kind, victim, nodes[0])
        before = [len(node.saved) for node in nodes]
        wait_until(lambda: all(len(node.saved) > count + 2 for node, count in zip(nodes, before)), seconds=60)
    finally:
        for node in nodes:
            node.stop()
    print([(node.name, len(node.saved), node.latest, node.reads, node.reads_refused) for node in nodes])
    assert [node.wrong for node in nodes] == [[], []]
    for node in nodes:
        sync(node.mount)
    assert_both_have_all(nodes, store)
    assert [tier(node.mount)["conflicts"] for node in nodes] == [0, 0]
    for node in nodes:
        node.mount.remount()
    assert_both_have_all(nodes, store)


def restored(make_array, make_mount, store, files, size):
    """A mount of an empty array, whose content is in the store only."""
    array = make_array(chunk_size=CHUNK)
    mount = make_mount(array)
    set_tier(mount, store.url)
    for number in range(files):
        write_pattern(mount.path / f"file{number}", number, size)
    sync(mount)
    mount.unmount()
    array.damaged = True
    array.remove()
    mount = make_mount(make_array(chunk_size=CHUNK))
    set_tier(mount, store.url, "--restore")
    return mount


def damaged(make_array, make_mount, store, files, size):
    """A mount of an array that lacks every other chunk of its first file."""
    mount, extents = copied_file(make_array(chunk_size=CHUNK), make_mount, store, size)
    for chunk in range(0, size // CHUNK, 2):
        flip(extents[chunk]["file"], extents[chunk]["file_offset"] + 77)
    return mount.start()


class Reader(threading.Thread):
    """Reads chunks of files: each is right, or EIO, or its mount is dead."""

    def __init__(self, paths, seeds, size):
        super().__init__(daemon=True)
        self.paths, self.seeds, self.size = paths, seeds, size
        self.wrong, self.errors, self.ends, self.may_die = [], 0, threading.Event(), threading.Lock()

    def run(self):
        rolls = random.Random(3)
        while not self.ends.is_set():
            number, chunk = rolls.randrange(len(self.paths)), rolls.randrange(self.size // CHUNK)
            with self.may_die:
                try:
                    found = read_at(self.paths[number], chunk * CHUNK, CHUNK)
                except OSError as error:  # of the open
                    found = errno.errorcode[error.errno]
            if isinstance(found, str):
                self.errors += 1
                time.sleep(0.05)
            elif found != pattern(self.seeds[number], chunk * CHUNK, CHUNK):
                self.wrong.append((self.paths[number].name, chunk))


@pytest.mark.parametrize("kind, victim", (SERVICES_KILLED if LONG else []) + DAEMONS_KILLED)
@pytest.mark.parametrize("state", [restored, damaged])
def test_content_comes_from_the_store(make_array, make_mount, make_store, services, kind, victim, state):
    """Readers get what was saved or EIO; afterwards all of it."""
    store = make_store(kind)
    files, size = (4 if state is restored else 1), 6 * MIB
    mount = state(make_array, make_mount, store, files, size)
    paths = [mount.path / (f"file{number}" if state is restored else "file") for number in range(files)]
    seeds = list(range(files)) if state is restored else [1]
    reader = Reader(paths, seeds, size)
    reader.start()
    try:
        counter = "fetched" if state is restored else "from_copy"
        wait_until(lambda: mount.status()["healing"][counter] > 3)
        if victim == DAEMON:
            mount.process.kill()
            with reader.may_die:
                mount.kill()
                mount.start()
        else:
            killed_and_back(services, kind, victim, None)
        time.sleep(0.5)
    finally:
        reader.ends.set()
        reader.join()
    assert not reader.wrong
    for path, seed in zip(paths, seeds):
        assert has_pattern(path, seed, size), path
    if state is restored:
        fpfs(mount, "tier", "restore", mount.path)
    sync(mount)
    # The one that a kill met between the commit of what came back and its note is sent once more.
    assert tier(mount)["bytes_copied"] <= (size if victim == DAEMON and state is restored else 0)
    for path in paths:
        fpfs(mount, "sync", path)  # what was healed is on the drives then
    mount.options = ["tier=none"]
    mount.remount()
    for path, seed in zip(paths, seeds):
        assert is_pattern(path, seed, size), path
    mount.unmount()
    mount.array.assert_clean()
