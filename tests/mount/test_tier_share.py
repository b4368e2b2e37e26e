"""Several nodes, one store: what one has closed and copied, the others list and read. Two arrays, each with a mount."""
import contextlib
import os
import shutil
import signal
import time

import pytest

from lab.array import MountFailed
from lab.copies import SERVICES, fpfs, set_tier, state, sync, tier
from lab.data import is_pattern, pattern, write_pattern
from lab.system import attempt, wait_until

CHUNK = 65536
MIB = 1 << 20

pytestmark = [pytest.mark.P2, pytest.mark.P3, pytest.mark.chunk_size(CHUNK)]


def listing(directory):
    return sorted(path.name for path in directory.iterdir())


def mount_again(mount, *options):
    if mount.process is not None:
        mount.unmount()
    mount.options = list(options)
    mount.start()


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


def test_a_directory_that_nobody_has_looked_into(nodes, store):
    """It is moved with all that others have in it, and not removed for empty."""
    a, b = nodes(store)
    (a.path / "ck-tmp" / "deep" / "er").mkdir(parents=True)
    write_pattern(a.path / "ck-tmp/shard0", 1, 3 * CHUNK)
    write_pattern(a.path / "ck-tmp/deep/er/shard1", 2, 2 * CHUNK)
    for name in ("kept", "target"):
        (a.path / name).mkdir()
        (a.path / name / "file").write_text(name)
    (b.path / "own").mkdir()
    sync(a)
    assert listing(b.path) == ["ck-tmp", "kept", "own", "target"]
    os.rename(b.path / "ck-tmp", b.path / "ck-100")
    assert attempt(os.rmdir, b.path / "kept") == "ENOTEMPTY"
    assert attempt(os.rename, b.path / "own", b.path / "target") in ("ENOTEMPTY", "EEXIST")  # as the drive's filesystem says
    for mount in (b, a):
        assert is_pattern(mount.path / "ck-100/shard0", 1, 3 * CHUNK)
        assert is_pattern(mount.path / "ck-100/deep/er/shard1", 2, 2 * CHUNK)
        assert (mount.path / "kept/file").read_text() == "kept" and (mount.path / "target/file").read_text() == "target"
        sync(b)
    os.unlink(b.path / "kept/file")
    os.rmdir(b.path / "kept")
    assert "kept" not in listing(b.path)


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
    os.chmod(b.path / "d/stays", 0o600)  # which is its maker's still, and not fetched for it
    sync(b)
    assert b"away" in os.getxattr(b.path / "d/stays", "user.fastpersistfs.codec")
    assert listing(a.path / "d") == ["elsewhere", "renamed-over", "stays", "written"] == listing(b.path / "d")
    assert is_pattern(a.path / "d/written", 2, 4 * CHUNK) and is_pattern(a.path / "d/renamed-over", 3, 3 * CHUNK)
    assert is_pattern(a.path / "d/elsewhere", 1, 5 * CHUNK)
    assert (a.path / "d/stays").stat().st_mode & 0o777 == 0o600
    os.chmod(a.path / "d/stays", 0o640)
    sync(a)
    assert (b.path / "d/stays").stat().st_mode & 0o777 == 0o640 and is_pattern(b.path / "d/stays", 1, 5 * CHUNK)
    shutil.rmtree(b.path / "d")
    sync(b)
    wait_until(lambda: attempt(listing, a.path / "d") in ([], "ENOENT"))
    sync(a)
    assert listing(a.path) == [] == listing(b.path)
    assert [tier(node)["conflicts"] for node in (a, b)] == [0, 0]
    for node in (a, b):
        node.remount()
        assert listing(node.path) == []


def conflicting(names, name):
    return [other for other in names if other.startswith(f"{name}.conflict-")]


def test_both_are_kept_of_what_two_nodes_have_changed(nodes, store):
    """Neither has seen the other's: what was changed last keeps the name, on both."""
    a, b = nodes(store, options=["tier_share=3601"])
    assert a.status()["options"]["tier_share"] == 3601
    write_pattern(a.path / "mine-last", 1, 5 * CHUNK)
    write_pattern(a.path / "theirs-last", 1, 5 * CHUNK)
    sync(a)
    assert listing(b.path) == ["mine-last", "theirs-last"]
    assert is_pattern(b.path / "mine-last", 1, 5 * CHUNK) and is_pattern(b.path / "theirs-last", 1, 5 * CHUNK)
    write_pattern(b.path / "theirs-last", 4, 2 * CHUNK)
    time.sleep(0.05)
    write_pattern(a.path / "theirs-last", 5, 6 * CHUNK)
    write_pattern(a.path / "mine-last", 2, 4 * CHUNK)
    sync(a)
    time.sleep(0.05)
    write_pattern(b.path / "mine-last", 3, 3 * CHUNK)
    sync(b)
    assert tier(b)["conflicts"] >= 1
    for node in (a, b):
        node.remount()  # what is known is looked at anew
    for node in (a, b, a, b):
        listing(node.path)
        sync(node)
    for node in (a, b):
        node.remount()
        names = listing(node.path)
        assert len(names) == 4 and len(conflicting(names, "mine-last")) == len(conflicting(names, "theirs-last")) == 1
        assert is_pattern(node.path / "mine-last", 3, 3 * CHUNK)
        assert is_pattern(node.path / conflicting(names, "mine-last")[0], 2, 4 * CHUNK)
        assert is_pattern(node.path / "theirs-last", 5, 6 * CHUNK)
        assert is_pattern(node.path / conflicting(names, "theirs-last")[0], 4, 2 * CHUNK)


def test_links_follow_also_behind_a_remount(nodes, directory):
    """A link that another node replaces while this one is away is no conflict."""
    a, b = nodes(directory)
    for name in ("latest", "mine", "stays"):
        (a.path / name).symlink_to("step-1")
    sync(a)
    assert listing(b.path) == ["latest", "mine", "stays"]
    assert os.listxattr(b.path / "latest", follow_symlinks=False) == []  # what the array notes there is its own
    b.unmount()
    (a.path / "new").symlink_to("step-2")
    os.rename(a.path / "new", a.path / "latest")
    sync(a)
    b.start()
    sync(b)
    (b.path / "new").symlink_to("step-3")
    os.rename(b.path / "new", b.path / "mine")
    sync(b)
    expected = {"latest": "step-2", "mine": "step-3", "stays": "step-1"}
    for node in (a, b):
        assert {name: os.readlink(node.path / name) for name in listing(node.path)} == expected
        assert tier(node)["conflicts"] == 0


def test_a_file_and_a_directory_of_one_name(nodes, directory):
    """Neither knows of the other's: the directory keeps the name, the file gets another one."""
    a, b = nodes(directory)
    mount_again(b, "tier=none")
    write_pattern(b.path / "run", 2, 3 * CHUNK)
    (a.path / "run").mkdir()
    write_pattern(a.path / "run/model.pt", 1, 3 * CHUNK)
    sync(a)
    mount_again(b, "tier_share=0")
    sync(b)
    for node in (b, a):
        names = listing(node.path)
        assert names == ["run", *conflicting(names, "run")] and len(names) == 2
        assert is_pattern(node.path / names[1], 2, 3 * CHUNK) and is_pattern(node.path / "run/model.pt", 1, 3 * CHUNK)
    assert [tier(node)["conflicts"] for node in (a, b)] == [0, 1]
    assert [tier(node)["files_failed"] for node in (a, b)] == [0, 0]


def test_who_is_writing_loses_nothing(nodes, directory):
    """Another node replaces the file meanwhile."""
    a, b = nodes(directory)
    write_pattern(a.path / "file", 1, 5 * CHUNK)
    sync(a)
    assert is_pattern(b.path / "file", 1, 5 * CHUNK)
    with open(b.path / "file", "r+b") as file:
        file.write(pattern(7, 0, CHUNK))
        write_pattern(a.path / "file", 2, 3 * CHUNK)
        sync(a)
        assert listing(b.path) == ["file"]
        file.seek(0)
        file.write(pattern(8, 0, CHUNK))
    sync(b)
    changed = pattern(8, 0, CHUNK) + pattern(1, CHUNK, 4 * CHUNK)
    for node in (a, b):
        names = listing(node.path)
        kept = conflicting(names, "file")
        assert len(kept) == 1 and (node.path / "file").read_bytes() == changed
        assert is_pattern(node.path / kept[0], 2, 3 * CHUNK)


def test_what_is_copied_when_close_returns_is_seen_by_the_next_open(nodes, store):
    """tier_share=0 and durable=tier: one node closes, another opens, without anything in between."""
    a, b = nodes(store)
    (a.path / "d").mkdir()
    os.setxattr(a.path / "d", "user.fastpersistfs.durable", b"tier")
    sync(a)
    wait_until(lambda: listing(b.path) == ["d"])
    for step in range(10):
        write_pattern(a.path / f"d/step-{step}", step + 1, 2 * CHUNK + step)
        assert is_pattern(b.path / f"d/step-{step}", step + 1, 2 * CHUNK + step)
        write_pattern(a.path / "d/latest", step + 1, CHUNK + step)
        assert is_pattern(b.path / "d/latest", step + 1, CHUNK + step)
        (a.path / f"d/new-{step}/inner").mkdir(parents=True)  # which the store is told of before
        write_pattern(a.path / f"d/new-{step}/inner/file", step + 1, CHUNK)
        assert is_pattern(b.path / f"d/new-{step}/inner/file", step + 1, CHUNK)
    # The setting came along.
    write_pattern(b.path / "d/answer", 20, CHUNK)
    assert is_pattern(a.path / "d/answer", 20, CHUNK)


def test_processes_of_one_node_fetch_a_chunk_once(nodes, store):
    a, b = nodes(store)
    write_pattern(a.path / "model.pt", 1, 40 * CHUNK)
    sync(a)
    assert listing(b.path) == ["model.pt"]
    in_children(4, lambda number: is_pattern(b.path / "model.pt", 1, 40 * CHUNK))
    # One that leaves the memory in the moment before it is committed on the drives is fetched again.
    assert 40 <= b.status()["healing"]["fetched"] <= 44


def in_children(count, check):
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os._exit(0 if check(number) else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * count


def test_three_nodes_follow_a_removal(nodes, directory):
    """Of what the first has made the second removes; also the third, which was not there meanwhile, has it no more."""
    a, b, c = nodes(directory, 3)
    (a.path / "run").mkdir()
    write_pattern(a.path / "run/model.pt", 1, 5 * CHUNK)
    (a.path / "latest").symlink_to("run")
    sync(a)
    for node in (b, c):
        assert is_pattern(node.path / "run/model.pt", 1, 5 * CHUNK) and os.readlink(node.path / "latest") == "run"
    c.unmount()
    shutil.rmtree(b.path / "run")
    os.unlink(b.path / "latest")
    sync(b)
    assert listing(a.path / "run") == [] and listing(a.path) == []
    sync(a)
    c.start()
    wait_until(lambda: tier(c)["state"] == "current")
    for _ in range(2):
        for path in (c.path / "run", c.path):
            if path.exists():
                listing(path)
    assert listing(c.path) == []
    assert not (c.path / "run").exists()


def test_a_store_that_hangs_holds_nobody_up(nodes, make_store):
    """Who looks waits for two seconds now and then; if each did, the test would take longer than it may."""
    store = make_store(SERVICES[0])
    a, b = nodes(store)
    write_pattern(a.path / "file", 1, 5 * CHUNK)
    sync(a)
    assert is_pattern(b.path / "file", 1, 5 * CHUNK)
    service = store.service.process
    service.send_signal(signal.SIGSTOP)
    try:
        for number in range(20):
            write_pattern(b.path / f"new-{number}", number, CHUNK)
            assert is_pattern(b.path / "file", 1, 5 * CHUNK)
        assert len(listing(b.path)) == 21
    finally:
        service.send_signal(signal.SIGCONT)
    sync(b)
    assert len(listing(a.path)) == 21


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_lost_while_the_store_was_away_is_remembered(nodes, directory, is_killed):
    """Removed, replaced and moved, and then the mount ends before the store has heard of it: nothing comes back, and
    nothing is a conflict."""
    a, b = nodes(directory)
    (a.path / "d").mkdir()
    (a.path / "gone").mkdir()
    for name in ("d/removed", "d/replaced", "d/moved", "d/stays", "gone/file"):
        write_pattern(a.path / name, 1, 5 * CHUNK)
    (a.path / "link").symlink_to("d")
    sync(a)
    assert listing(b.path) == ["d", "gone", "link"] and len(listing(b.path / "d")) == 4
    assert is_pattern(b.path / "d/moved", 1, 5 * CHUNK) and listing(b.path / "gone") == ["file"]
    aside = directory.path.with_name("aside")
    os.rename(directory.path, aside)
    mount_again(b, "tier_share=0", "tier_required=no")
    os.unlink(b.path / "d/removed")
    os.unlink(b.path / "link")
    shutil.rmtree(b.path / "gone")
    write_pattern(b.path / "d/new", 2, 3 * CHUNK)
    os.rename(b.path / "d/new", b.path / "d/replaced")
    os.rename(b.path / "d/moved", b.path / "d/elsewhere")
    if is_killed:
        errors = tier(b)["errors"]
        wait_until(lambda: tier(b)["errors"] > errors + 1)  # it is noted when the store is asked for again
        b.kill()
    os.rename(aside, directory.path)
    mount_again(b, "tier_share=0")
    sync(b)
    expected = ["elsewhere", "replaced", "stays"]

    def follows():
        with contextlib.suppress(FileNotFoundError):
            listing(a.path / "gone")  # who looks into it sees that it is gone
        return listing(a.path) == ["d"] and listing(a.path / "d") == expected

    wait_until(follows)
    assert listing(b.path) == ["d"] and listing(b.path / "d") == expected
    for node in (a, b):
        assert is_pattern(node.path / "d/replaced", 2, 3 * CHUNK) and is_pattern(node.path / "d/elsewhere", 1, 5 * CHUNK)
        assert tier(node)["conflicts"] == 0


def test_what_was_changed_away_from_the_store_is_not_taken_for_the_others(nodes, directory):
    """An array that leaves the shared store, changes what the other has made, and comes back."""
    a, b = nodes(directory)
    for name in ("changed", "grown", "stays"):
        write_pattern(a.path / name, 1, 5 * CHUNK)
    sync(a)
    for name in listing(b.path):
        assert is_pattern(b.path / name, 1, 5 * CHUNK)
    wait_until(lambda: not any(b"away" in os.getxattr(b.path / name, "user.fastpersistfs.codec") for name in
                               ("changed", "grown", "stays")))
    fpfs(b, "tier", "set", b.path, "none")
    mount_again(b)
    with open(b.path / "changed", "r+b") as file:
        file.write(b"changed")
    with open(b.path / "grown", "ab") as file:
        file.write(b"grown")
    changed, grown = ((b.path / name).read_bytes() for name in ("changed", "grown"))
    write_pattern(a.path / "changed", 2, 3 * CHUNK)
    os.unlink(a.path / "grown")
    sync(a)
    mount_again(b, "tier_share=0")
    set_tier(b, directory.url, "--share")
    for node in (b, a, b):
        listing(node.path)
        sync(node)
    for node in (a, b):
        names = listing(node.path)
        kept = conflicting(names, "changed")
        assert len(kept) == 1 and names == ["changed", kept[0], "grown", "stays"]
        assert {(node.path / "changed").read_bytes(), (node.path / kept[0]).read_bytes()} == {
            changed, pattern(2, 0, 3 * CHUNK)}
        assert (node.path / "grown").read_bytes() == grown


def test_a_mount_that_is_not_told_to_share_replaces_nothing_unseen(nodes, directory):
    """The array remembers that it shares."""
    a, b = nodes(directory)
    write_pattern(a.path / "file", 1, 5 * CHUNK)
    sync(a)
    assert is_pattern(b.path / "file", 1, 5 * CHUNK)
    mount_again(b)
    sync(b)  # its look through the tree, which takes in what is newer of others' files, is over
    write_pattern(a.path / "file", 2, 4 * CHUNK)
    write_pattern(a.path / "other", 2, 4 * CHUNK)
    sync(a)
    write_pattern(b.path / "file", 3, 3 * CHUNK)
    write_pattern(b.path / "other", 3, 3 * CHUNK)
    sync(b)
    names = listing(a.path)
    for name in ("file", "other"):
        kept = conflicting(names, name)
        assert len(kept) == 1, names
        assert is_pattern(a.path / name, 3, 3 * CHUNK) and is_pattern(a.path / kept[0], 2, 4 * CHUNK)


def test_files_that_are_called_like_conflicts_are_as_any(nodes, directory):
    """A user gives such a name, also to what another node has made, and it stays."""
    a, b = nodes(directory)
    write_pattern(a.path / "file", 1, 5 * CHUNK)
    sync(a)
    assert is_pattern(b.path / "file", 1, 5 * CHUNK)
    write_pattern(a.path / "file", 2, 4 * CHUNK)  # what the other shows was at a name aside
    sync(a)
    assert is_pattern(b.path / "file", 2, 4 * CHUNK)
    os.rename(b.path / "file", b.path / "file.conflict-20260101T000000-00000000")
    write_pattern(b.path / "own.conflict-1", 3, 3 * CHUNK)
    sync(b)
    for node in (b, a):
        node.remount()
        sync(node)
        assert listing(node.path) == ["file.conflict-20260101T000000-00000000", "own.conflict-1"]
        assert is_pattern(node.path / "file.conflict-20260101T000000-00000000", 2, 4 * CHUNK)


def test_arrays_must_have_chunks_of_one_size(make_array, make_mount, directory):
    a, b = (make_mount(make_array(chunk_size=size), "tier_share=0") for size in (CHUNK, 2 * CHUNK))
    set_tier(a, directory.url)
    set_tier(b, directory.url, "--share")
    write_pattern(a.path / "file", 1, 5 * CHUNK)
    sync(a)
    assert listing(b.path) == []
    wait_until(lambda: tier(b)["files_failed"] == 1)
    assert "chunks of 64 KiB" in tier(b)["last_error"] and "--chunk-size" in tier(b)["last_error"]


def test_options_that_contradict_each_other(make_array, make_mount):
    with pytest.raises(MountFailed, match="tier_share and tier_delete=keep exclude each other"):
        make_mount(make_array(chunk_size=CHUNK), "tier_share=1", "tier_delete=keep")
