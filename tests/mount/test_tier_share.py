"""Several nodes, one store: what one has closed and copied, the others list and read. Two arrays, each with a mount."""
import os
import shutil
import time

import pytest

from lab.copies import fpfs, set_tier, state, sync, tier
from lab.data import is_pattern, pattern, write_pattern
from lab.system import wait_until

CHUNK = 65536
MIB = 1 << 20

pytestmark = [pytest.mark.P2, pytest.mark.P3, pytest.mark.chunk_size(CHUNK)]


def listing(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def nodes(make_array, make_mount):
    """nodes(store, count): mounts of arrays that share it. What is copied is seen at once."""
    def make(store, count=2, options=("tier_share=0",)):
        mounts = [make_mount(make_array(chunk_size=CHUNK), *options) for _ in range(count)]
        for mount in mounts:
            set_tier(mount, store.url, *(["--share"] if mount is not mounts[0] else []))
        return mounts

    return make


def test_what_one_node_has_copied_the_other_reads(nodes, store):
    a, b = nodes(store)
    (a.path / "run" / "step-1").mkdir(parents=True)
    write_pattern(a.path / "run" / "step-1" / "model.pt", 1, 3 * MIB + 77)
    (a.path / "run" / "notes.txt").write_text("small\n")
    (a.path / "run" / "latest").symlink_to("step-1")
    (a.path / "empty").touch()
    os.setxattr(a.path / "run" / "notes.txt", "user.mine", b"17")
    os.chmod(a.path / "run" / "notes.txt", 0o640)
    os.utime(a.path / "run" / "notes.txt", ns=(10**18, 10**18 + 5))
    sync(a)
    assert listing(b.path) == ["empty", "run"]
    assert listing(b.path / "run") == ["latest", "notes.txt", "step-1"]
    assert (b.path / "run/latest/model.pt").stat().st_size == 3 * MIB + 77
    assert is_pattern(b.path / "run/step-1/model.pt", 1, 3 * MIB + 77)
    notes = b.path / "run/notes.txt"
    assert notes.read_text() == "small\n" and os.getxattr(notes, "user.mine") == b"17"
    assert notes.stat().st_mode & 0o777 == 0o640 and notes.stat().st_mtime_ns == 10**18 + 5
    assert (b.path / "empty").read_bytes() == b""
    # What is read is on this node's drives from then on, and nothing was sent again.
    wait_until(lambda: b"away" not in os.getxattr(b.path / "run/step-1/model.pt", "user.fastpersistfs.codec"))
    sync(b)
    assert tier(b)["bytes_copied"] == 0 and tier(b)["errors"] == 0
    assert state(b.path / "run/step-1/model.pt") == "copied"
    a.unmount()
    assert is_pattern(b.path / "run/step-1/model.pt", 1, 3 * MIB + 77)


def test_changes_of_one_node_reach_the_other(nodes, store):
    a, b = nodes(store)
    for name in ("replaced", "changed", "renamed", "removed", "mode"):
        write_pattern(a.path / name, 1, 5 * CHUNK)
    sync(a)
    assert len(listing(b.path)) == 5 and is_pattern(b.path / "replaced", 1, 5 * CHUNK)
    write_pattern(a.path / "new", 2, 3 * CHUNK)
    os.rename(a.path / "new", a.path / "replaced")
    with open(a.path / "changed", "r+b") as file:
        file.seek(CHUNK + 5)
        file.write(b"changed")
    os.rename(a.path / "renamed", a.path / "moved")
    os.unlink(a.path / "removed")
    os.chmod(a.path / "mode", 0o600)
    sync(a)
    assert listing(b.path) == ["changed", "mode", "moved", "replaced"]
    assert is_pattern(b.path / "replaced", 2, 3 * CHUNK)
    changed = bytearray(pattern(1, 0, 5 * CHUNK))
    changed[CHUNK + 5:CHUNK + 12] = b"changed"
    assert (b.path / "changed").read_bytes() == changed
    assert is_pattern(b.path / "moved", 1, 5 * CHUNK)
    assert (b.path / "mode").stat().st_mode & 0o777 == 0o600
    sync(b)
    assert tier(b)["conflicts"] == 0 and tier(b)["bytes_copied"] == 0


def test_a_node_changes_what_another_has_made(nodes, store):
    """Replaced in place, by a rename, and removed: the other one follows, and nothing is a conflict."""
    a, b = nodes(store)
    (a.path / "d").mkdir()
    for name in ("d/written", "d/renamed-over", "d/removed", "d/moved", "d/stays"):
        write_pattern(a.path / name, 1, 5 * CHUNK)
    sync(a)
    assert len(listing(b.path / "d")) == 5
    write_pattern(b.path / "d/written", 2, 4 * CHUNK)
    write_pattern(b.path / "d/tmp", 3, 3 * CHUNK)
    os.rename(b.path / "d/tmp", b.path / "d/renamed-over")
    os.unlink(b.path / "d/removed")
    os.rename(b.path / "d/moved", b.path / "d/elsewhere")
    sync(b)
    assert listing(a.path / "d") == ["elsewhere", "renamed-over", "stays", "written"] == listing(b.path / "d")
    assert is_pattern(a.path / "d/written", 2, 4 * CHUNK) and is_pattern(a.path / "d/renamed-over", 3, 3 * CHUNK)
    assert is_pattern(a.path / "d/elsewhere", 1, 5 * CHUNK)
    shutil.rmtree(b.path / "d")
    sync(b)
    wait_until(lambda: not (a.path / "d").exists() or not listing(a.path / "d"))
    sync(a)
    assert listing(a.path) == [] == listing(b.path)
    assert [tier(node)["conflicts"] for node in (a, b)] == [0, 0]
    for node in (a, b):
        node.remount()
        assert listing(node.path) == []


def test_both_are_kept_of_what_two_nodes_have_changed(nodes, directory):
    a, b = nodes(directory)
    write_pattern(a.path / "file", 1, 5 * CHUNK)
    sync(a)
    assert is_pattern(b.path / "file", 1, 5 * CHUNK)
    write_pattern(a.path / "file", 2, 4 * CHUNK)
    time.sleep(0.05)
    write_pattern(b.path / "file", 3, 3 * CHUNK)
    sync(a)
    sync(b)
    for node in (a, b):
        names = listing(node.path)
        assert len(names) == 2 and names[1].startswith("file.conflict-"), names
        assert is_pattern(node.path / "file", 3, 3 * CHUNK)
        assert is_pattern(node.path / names[1], 2, 4 * CHUNK)
    assert tier(a)["conflicts"] + tier(b)["conflicts"] == 1
