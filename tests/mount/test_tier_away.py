"""Content that is in the store only: an array that is lost and restored from there, and files that leave the drives.
Through a mount."""
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import sys
import threading
import time

import pytest

from lab import LONG
from lab.array import MountFailed
from lab.copies import Directory, fpfs, set_tier, state, sync, tier
from lab.data import is_pattern, pattern, write_pattern
from lab.damage import read_at
from lab.object_stores import SeaweedStore
from lab.programs import run
from lab.system import wait_until
from lab.terminal import Terminal, screen

CHUNK = 65536
MIB = 1 << 20

pytestmark = [pytest.mark.P2, pytest.mark.P3, pytest.mark.chunk_size(CHUNK)]


def codec(path):
    return os.getxattr(path, "user.fastpersistfs.codec").decode()


def is_away(path):
    return "away" in codec(path)


def digests(root):
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()}


def names(root):
    """What there is besides content."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        size = None if path.is_dir() else status.st_size
        xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.mine")}
        found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid, size, status.st_mtime_ns,
                                              os.readlink(path) if path.is_symlink() else "", xattrs)
    return found


def make_tree(root):
    (root / "run" / "step-1").mkdir(parents=True)
    write_pattern(root / "run" / "step-1" / "model.pt", 1, 3 * MIB + 77)
    write_pattern(root / "run" / "model.pt", 2, 40 * CHUNK)
    (root / "run" / "notes.txt").write_text("small\n")
    (root / "empty").touch()
    (root / "latest").symlink_to("run/step-1")
    os.link(root / "run" / "model.pt", root / "same.pt")
    with open(root / "sparse", "wb") as file:
        file.seek(10 * CHUNK + 5)
        file.write(b"end")
    os.setxattr(root / "run" / "model.pt", "user.mine.step", b"17")
    os.chmod(root / "run" / "notes.txt", 0o640)
    if os.geteuid() == 0:
        os.chown(root / "run" / "model.pt", 12, 34)
    os.utime(root / "run" / "step-1", ns=(10**18, 10**18 + 5))


@pytest.fixture
def lost(array, make_mount, make_array):
    """lost(store): (names, digests) of a tree that was copied, and an empty array's mount instead of the one it was in."""
    def lose(store, make=make_tree):
        mount = make_mount(array)
        set_tier(mount, store.url)
        make(mount.path)
        sync(mount)
        had = names(mount.path), digests(mount.path)
        lost_id = mount.status()["array"]["id"]
        mount.unmount()
        array.damaged = True
        array.remove()
        empty = make_mount(make_array(chunk_size=CHUNK))
        empty.lost_path, empty.lost_id = mount.path, lost_id
        return had, empty

    return lose


# --- restoring -------------------------------------------------------------------------------------------------------

def test_an_array_that_is_lost_is_restored(lost, store):
    """Names and attributes at once, content when it is read; then it is on the drives."""
    (tree, content), mount = lost(store)
    set_tier(mount, store.url, "--restore")
    assert names(mount.path) == tree
    assert is_away(mount.path / "run/model.pt") and mount.status()["healing"]["fetched"] == 0
    assert (mount.path / "run/model.pt").stat().st_blocks == 0
    restored = tier(mount)["restored"]
    assert restored["files"] == 6 and restored["failed"] == 0 and restored["were_there"] == 0
    assert digests(mount.path) == content
    wait_until(lambda: not is_away(mount.path / "run/model.pt"))
    assert names(mount.path) == tree
    sync(mount)
    # Nothing is sent again, but of a file with two names, of which the array cannot note both.
    assert tier(mount)["bytes_copied"] in (0, 40 * CHUNK, 80 * CHUNK) and tier(mount)["errors"] == 0
    fpfs(mount, "tier", "restore", mount.path)
    mount.unmount()
    mount.array.assert_clean()
    mount.options = ["tier=none"]
    mount.start()
    assert names(mount.path) == tree and digests(mount.path) == content


@pytest.mark.parametrize("kind", ["file", "directory", "symlink", "above"])
def test_what_is_there_already_takes_no_copys_place(lost, directory, kind):
    """Neither here nor in the store, where it is the only one."""
    (tree, content), mount = lost(directory)
    path = next(path for path in sorted(content) if "/" in path)
    there, copy = mount.path / path, directory.content(path)
    if kind == "above":
        there = mount.path / path.split("/")[0]
    there.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        there.mkdir()
    elif kind == "symlink":
        there.symlink_to("/etc/hostname")
    else:
        there.write_text("mine")
    refused = fpfs(mount, "tier", "set", "--restore", mount.path, directory.url, check=False)
    line, = refused.stderr.splitlines()
    assert refused.returncode == 1 and "here already, and would take the place of what is to be restored" in line
    assert "rename or remove" in line and (kind == "above" or f"{path} is here" in line), line
    assert tier(mount)["state"] == "none" and directory.content(path) == copy
    assert mount.status()["array"]["id"] not in {path.name for path in directory.path.rglob("arrays/*")}
    there.rename(mount.path / "mine")
    # What was restored before, and directories, are no reason.
    for words in (["--array", mount.lost_id], [], ["--array", mount.lost_id]):
        fpfs(mount, "tier", "set", "--restore", mount.path, directory.url, *words)
        assert digests(mount.path / path.split("/")[0])
    (mount.path / "mine").rmdir() if kind == "directory" else (mount.path / "mine").unlink()
    assert names(mount.path) == tree and digests(mount.path) == content


def test_what_is_removed_right_behind_a_restore_is_removed_there(lost, directory):
    """Before the manifests are this array's; what was moved, too."""
    (_, content), mount = lost(directory)
    set_tier(mount, directory.url, "--restore")
    os.unlink(mount.path / "empty")
    os.unlink(mount.path / "sparse")
    os.unlink(mount.path / "run/notes.txt")
    os.rename(mount.path / "run/step-1", mount.path / "moved")
    sync(mount)
    assert [name for name in ("empty", "sparse", "run/notes.txt", "run/step-1/model.pt")
            if directory.content(name) is not None] == []
    assert directory.content("moved/model.pt") is not None
    left = {str(path.relative_to(directory.path / ".fastpersistfs")) for path in
            (directory.path / ".fastpersistfs").rglob("*") if path.is_file()}
    assert not any(name.startswith(("empty", "sparse", "run/notes.txt", "run/step-1")) for name in left), left
    assert digests(mount.path)["moved/model.pt"] == content["run/step-1/model.pt"]


def test_what_is_restored_is_an_array_like_any_other(lost, directory):
    (_, content), mount = lost(directory)
    set_tier(mount, directory.url, "--restore")
    write_pattern(mount.path / "run/step-1/model.pt", 9, 2 * MIB)  # never read before
    with open(mount.path / "run/model.pt", "r+b") as file:  # within a chunk that is away
        file.seek(5 * CHUNK + 100)
        file.write(b"changed")
    os.truncate(mount.path / "sparse", 3 * CHUNK)
    os.rename(mount.path / "run/notes.txt", mount.path / "moved.txt")
    os.unlink(mount.path / "empty")
    sync(mount)
    changed = bytearray(pattern(2, 0, 40 * CHUNK))
    changed[5 * CHUNK + 100:5 * CHUNK + 107] = b"changed"
    assert directory.content("run/step-1/model.pt") == pattern(9, 0, 2 * MIB)
    assert directory.content("run/model.pt") == changed == directory.content("same.pt")
    assert directory.content("sparse") == bytes(3 * CHUNK)
    assert directory.content("moved.txt") == b"small\n"
    assert directory.content("empty") is None and directory.content("run/notes.txt") is None
    mount.remount()
    assert (mount.path / "run/model.pt").read_bytes() == changed
    assert digests(mount.path)["moved.txt"] == content["run/notes.txt"]


def test_who_has_looked_before_sees_what_is_restored(lost, directory):
    """The kernel knows that names are not there, and what directories have: until they appear."""
    (tree, content), mount = lost(directory)
    (mount.path / "run").mkdir(mode=0o700)
    for _ in range(2):
        assert [path.name for path in mount.path.iterdir()] == ["run"] and not list((mount.path / "run").iterdir())
        assert not (mount.path / "run/model.pt").exists() and not (mount.path / "latest").exists()
    set_tier(mount, directory.url, "--restore")
    assert {path.name for path in mount.path.iterdir()} == {name for name in tree if "/" not in name}
    assert (mount.path / "run/model.pt").exists()
    assert names(mount.path) == tree and digests(mount.path) == content


def test_a_daemon_that_is_killed_goes_on_restoring(lost, directory):
    """At any moment: the next mount does what is left."""
    (tree, content), mount = lost(directory)
    for delay in (0.0, 0.02, 0.05):
        asked = threading.Thread(target=fpfs, args=(mount, "tier", "set", mount.path, directory.url, "--restore"),
                                 kwargs={"check": False})
        asked.start()
        asked.join(delay)
        mount.kill()
        asked.join()
        mount.start()
    set_tier(mount, directory.url, *(["--restore"] if tier(mount)["state"] == "none" else []))
    wait_until(lambda: tier(mount)["state"] in ("current", "copying"))
    assert names(mount.path) == tree
    assert digests(mount.path) == content


def test_an_array_that_still_runs_changes_nothing_once_it_is_restored(array, make_mount, make_array, directory):
    """What lies in the store only is the new array's: the old machine may still be there, or come back."""
    array.damaged = True
    old = make_mount(array)
    set_tier(old, directory.url)
    for seed, name in enumerate(("replaced", "removed", "moved")):
        write_pattern(old.path / name, seed, 2 * MIB)
    sync(old)
    new = make_mount(make_array(chunk_size=CHUNK))
    begun = time.monotonic()
    set_tier(new, directory.url, "--restore")
    assert time.monotonic() - begun > 10  # for as long as the old one may change something without a look
    os.unlink(old.path / "removed")
    write_pattern(old.path / "replaced", 8, 2 * MIB)
    os.rename(old.path / "moved", old.path / "elsewhere")
    assert fpfs(old, "sync", "--tier", "--timeout", "2", old.path, check=False).returncode != 0
    wait_until(lambda: "not by this one" in tier(old)["last_error"])
    assert tier(old)["state"] == "away" and "nothing is copied" in old.log()
    sync(new)
    for seed, name in enumerate(("replaced", "removed", "moved")):
        assert is_away(new.path / name) and is_pattern(new.path / name, seed, 2 * MIB)
    assert directory.content("elsewhere") is None


def test_which_array_is_restored(lost, make_array, make_mount, directory):
    """Of several it is asked; a wrong one, one that is none, chunks of another size: one line each."""
    (tree, content), mount = lost(directory)
    other = make_mount(make_array(chunk_size=CHUNK))
    set_tier(other, directory.url, "--share")
    write_pattern(other.path / "other", 5, 3 * CHUNK)
    sync(other)
    other_id = other.status()["array"]["id"]

    def refused(*words, mounted=mount):
        result = fpfs(mounted, "tier", "set", mounted.path, directory.url, *words, check=False)
        assert result.returncode == 1 and len(result.stderr.splitlines()) == 1, result.stderr
        return result.stderr

    said = refused("--restore")
    assert "--array" in said and other_id in said
    lost_id = next(word.strip(",;") for word in said.split() if len(word.strip(",;")) == 36 and other_id not in word)
    assert "--share" in refused("--restore", "--array", lost_id)
    # Which is which: where they were mounted, and since when.
    for path in (mount.lost_path, other.path):
        assert f"(on {os.uname().nodename} at {path}, since " in said and ", last there " in said, said
    assert "is no id" in refused("--restore", "--array", "nonsense", "--share")
    mistyped = refused("--restore", "--array", "11111111" + lost_id[8:], "--share")
    assert "has no copies there; those that copy there: " in mistyped and lost_id in mistyped and other_id in mistyped
    assert tier(mount)["state"] == "none" and names(mount.path) == {}
    assert mount.status()["array"]["id"] not in {path.name for path in directory.path.rglob("arrays/*")}
    large = make_mount(make_array(chunk_size=4 * CHUNK))
    assert "--chunk-size" in refused("--restore", "--array", lost_id, "--share", mounted=large)
    assert tier(large)["state"] == "none"
    assert large.status()["array"]["id"] not in {path.name for path in directory.path.rglob("arrays/*")}
    set_tier(mount, directory.url, "--restore", "--array", lost_id, "--share")
    assert names(mount.path) == tree and digests(mount.path) == content
    assert not (mount.path / "other").exists() and directory.content("other") is not None
    empty = make_mount(make_array(chunk_size=CHUNK))
    for words in (("set", empty.path, "none", "--restore"), ("set", empty.path, directory.url, "--array", lost_id),
                  ("status", empty.path, "--restore")):
        assert fpfs(empty, "tier", *words, check=False).returncode == 16


def test_an_array_that_comes_back_after_it_was_restored_elsewhere(array, make_mount, make_array, directory):
    """It copies nothing and removes nothing: its copies are another array's now."""
    mount = make_mount(array)
    set_tier(mount, directory.url)
    make_tree(mount.path)
    sync(mount)
    mount.unmount()
    heir = make_mount(make_array(chunk_size=CHUNK))
    set_tier(heir, directory.url, "--restore")
    content = digests(heir.path)
    mount.start()
    os.unlink(mount.path / "run/model.pt")
    write_pattern(mount.path / "run/step-1/model.pt", 8, MIB)
    wait_until(lambda: "array" in tier(mount)["last_error"])
    assert tier(mount)["state"] == "away"
    sync(heir)
    assert digests(heir.path) == content
    heir.remount()
    fpfs(heir, "tier", "restore", heir.path)
    assert digests(heir.path) == content


def make_small_files(root):
    """More than fpfs reads before it looks where the first ones are; a few have several chunks. Each third is so small
    that it comes with its name."""
    for number in range(450):
        path = root / f"step-{number % 7}" / f"file{number}"
        path.parent.mkdir(exist_ok=True)
        least = 1 if is_small(number) else SMALL_MAX + 1
        write_pattern(path, number, 4 * CHUNK if number % 50 == 0 else least + number * 60)


SMALL_MAX = 32 * 1024  # what comes with its name: TierManifest::kContentMax


def is_small(number):
    return number % 3 == 1 and number % 50 != 0


def test_small_files_are_restored_with_few_descriptors(lost, store):
    """Many are under way at once, each with descriptors of its own; a mount starts with room for about as many as here."""
    def make(root):
        for number in range(1000):
            write_pattern(root / f"file{number}", number, 100 + number)

    (tree, content), mount = lost(store, make)
    limit = len(os.listdir(f"/proc/{mount.pid}/fd")) + 520
    resource.prlimit(mount.pid, resource.RLIMIT_NOFILE, (limit, limit))
    set_tier(mount, store.url, "--restore")
    mount.unmount()
    mount.start()
    assert names(mount.path) == tree and digests(mount.path) == content


def test_many_small_files_are_restored_together(lost, store):
    (tree, content), mount = lost(store, make_small_files)
    set_tier(mount, store.url, "--restore")
    paths = [mount.path / name for name in content]
    assert len(paths) == 450
    away = [path for path in paths if is_away(path)]
    assert {int(path.name.removeprefix("file")) for path in away} == {n for n in range(450) if not is_small(n)}
    restoring = Terminal(mount.array.programs.fpfs, "tier", "restore", mount.path)
    assert restoring.wait() == 0
    assert re.fullmatch(r"[\d.]+ [KM]?i?B of [\d.]+ MiB \(.+ %\)(, .+/s(, .+ left)?)?, \d+ of \d+ files",
                        restoring.drawn()[-1]), restoring.text
    assert screen(restoring.text) == [""]
    assert not any(is_away(path) for path in paths) and all(path.stat().st_blocks > 0 for path in paths)
    assert restoring.stdout.startswith(f"{len(away)} files fetched"), restoring.stdout
    mount.unmount()
    mount.array.assert_clean()
    mount.options = ["tier=none"]
    mount.start()
    assert names(mount.path) == tree and digests(mount.path) == content


@pytest.mark.time_limit(180)
@pytest.mark.parametrize("kind", [Directory, SeaweedStore])
def test_a_whole_array_is_restored_bit_for_bit(make_array, make_mount, make_store, lab, kind):
    """Every member of it is deleted. In a long run it has 4 GiB."""
    size = 4 << 30 if LONG and shutil.disk_usage(lab).free > 14 << 30 else 64 * MIB
    sizes = {"run/model.pt": size // 2 + 77, "run/optimizer.pt": size // 4, "run/step-1/model.pt": size // 4 - CHUNK - 1,
             **{f"run/small-{number}": 3000 * number for number in range(16)}}
    store = make_store(kind)
    mount = make_mount(make_array())
    set_tier(mount, store.url)
    (mount.path / "run/step-1").mkdir(parents=True)
    for seed, (name, length) in enumerate(sizes.items()):
        write_pattern(mount.path / name, seed, length)
    run(mount.array.programs.fpfs, "sync", "--tier", mount.path, timeout=1800)
    tree = names(mount.path)
    mount.unmount()
    mount.array.damaged = True
    mount.array.remove()

    restored = make_mount(make_array())
    begun = time.monotonic()
    set_tier(restored, store.url, "--restore")
    run(restored.array.programs.fpfs, "tier", "restore", restored.path, timeout=1800)
    run(restored.array.programs.fpfs, "sync", restored.path)
    seconds = time.monotonic() - begun
    print(f"{size / MIB:.0f} MiB in {len(sizes)} files: {seconds:.1f} s, {size / seconds / 1e6:.0f} MB/s")
    restored.unmount()
    restored.array.assert_clean()
    restored.options = ["tier=none"]
    restored.start()
    assert names(restored.path) == tree
    for seed, (name, length) in enumerate(sizes.items()):
        assert is_pattern(restored.path / name, seed, length), name


# --- files that leave ------------------------------------------------------------------------------------------------

def save(mount, number, size=20 * CHUNK):
    path = mount.path / "run" / f"step-{number}.pt"
    path.parent.mkdir(exist_ok=True)
    write_pattern(path, number, size)
    os.utime(path, ns=(number * 10**9, number * 10**9))
    return path


def save_two(mount, store):
    """Two files, of which the first has left: with tier_keep=1."""
    set_tier(mount, store.url)
    first, second = save(mount, 1), save(mount, 2)
    sync(mount)
    wait_until(lambda: is_away(first), seconds=60)
    return first, second


@pytest.mark.mount_options("tier_keep=1")
def test_no_other_place_becomes_the_store_while_content_is_away(directory, mount, tmp_path):
    """Nothing is written there: it may be the mount point of the store, with nothing mounted."""
    first, _ = save_two(mount, directory)
    path = directory.path
    stands = path.with_name("stands")
    path.rename(stands)
    path.mkdir()
    refused = fpfs(mount, "tier", "set", mount.path, directory.url, check=False)
    assert refused.returncode == 1 and "is it mounted?" in refused.stderr
    other = tmp_path / "other"
    other.mkdir()
    refused = fpfs(mount, "tier", "set", mount.path, f"file://{other}", check=False)
    assert refused.returncode == 1 and "bring it back before" in refused.stderr
    assert not list(path.iterdir()) and not list(other.iterdir())
    path.rmdir()
    stands.rename(path)
    assert is_pattern(first, 1, 20 * CHUNK)


@pytest.mark.mount_options("tier_keep=2")
def test_all_but_the_newest_leave_once_they_are_copied(store, mount):
    set_tier(mount, store.url)
    pinned = save(mount, 1)
    fpfs(mount, "tier", "pin", pinned)
    paths = [save(mount, number) for number in range(2, 7)]
    sync(mount)
    wait_until(lambda: [is_away(path) for path in paths] == [True] * 3 + [False] * 2, seconds=60)
    assert not is_away(pinned)
    wait_until(lambda: tier(mount)["files_pinned"] == 1)
    assert tier(mount)["bytes_pinned"] == 20 * CHUNK
    assert re.search(r"^Pinned: +1 file \(1.3 MiB\), which do not leave", fpfs(mount, "tier", "status", mount.path).stdout,
                     re.M)
    wait_until(lambda: tier(mount)["files_left"] == 3)  # it is counted a moment later
    status = tier(mount)
    assert status["keep"] == "2" and status["bytes_left"] == 3 * 20 * CHUNK
    for number, path in enumerate(paths, 2):
        assert path.stat().st_size == 20 * CHUNK and state(path) == "copied"
        assert path.stat().st_mtime_ns == number * 10**9
        assert (path.stat().st_blocks == 0) == is_away(path)
    sent = status["bytes_copied"]
    assert all(is_pattern(path, number, 20 * CHUNK) for number, path in enumerate(paths, 2))
    # What comes back leaves again; nothing is copied for that.
    wait_until(lambda: tier(mount)["files_left"] >= 6, seconds=60)
    sync(mount)
    assert tier(mount)["bytes_copied"] == sent
    assert fpfs(mount, "tier", "pins", mount.path).stdout == f"{pinned}: 1.3 MiB\n1 file pinned (1.3 MiB)\n"
    fpfs(mount, "tier", "unpin", pinned)
    wait_until(lambda: tier(mount)["files_pinned"] == 0)  # nothing was copied meanwhile
    fpfs(mount, "tier", "pin", mount.path / "run")
    listed = json.loads(fpfs(mount, "tier", "pins", "--json", mount.path).stdout)
    assert (listed["files"], listed["bytes"]) == (6, 6 * 20 * CHUNK)
    assert [one["path"] for one in listed["pinned"] if one["directory"]] == [str(mount.path / "run")]
    assert f"{mount.path}/run/: and what is made in it\n" in fpfs(mount, "tier", "pins", mount.path).stdout
    restored = json.loads(fpfs(mount, "tier", "restore", "--json", mount.path / "run").stdout)
    assert set(restored) == {"files", "bytes", "errors"} and restored["errors"] == []
    assert restored["bytes"] == restored["files"] * 20 * CHUNK
    assert not any(is_away(path) for path in paths)


@pytest.mark.root
@pytest.mark.time_limit(180)
def test_what_has_no_room_is_not_to_be_removed(make_array, make_mount, make_drive, directory):
    """It is well in the store: nothing in what restore says is to be read as that its copy is lost."""
    array = make_array(paths=[make_drive(120 * MIB).path, make_drive(120 * MIB).path])
    array.damaged = True
    mount = make_mount(array, "tier_keep=1")
    set_tier(mount, directory.url)
    (mount.path / "run").mkdir()
    for number in range(4):
        write_pattern(mount.path / "run" / f"s{number}", number, 60 * MIB)
        sync(mount)
        if number > 0:
            wait_until(lambda before=mount.path / "run" / f"s{number - 1}": is_away(before), seconds=60)
    mount.options = [option for option in mount.options if option != "tier_keep=1"]
    mount.remount()
    said = fpfs(mount, "tier", "restore", mount.path / "run", check=False)
    assert said.returncode == 1 and "in the store, which gives" in said.stderr.splitlines()[-1], said.stderr
    assert "does not stay on the drives" in said.stderr and "remove" not in said.stderr, said.stderr
    # A file that left is well, and readable, all the same.
    assert is_pattern(mount.path / "run" / "s0", 0, 60 * MIB)


@pytest.mark.mount_options("tier_keep=1")
def test_what_cannot_be_fetched_is_named(mount, directory):
    """Each of it, behind all that could; and removing it is the way on."""
    set_tier(mount, directory.url)
    paths = [save(mount, number) for number in range(4)]
    sync(mount)
    wait_until(lambda: all(is_away(path) for path in paths[:3]), seconds=60)
    (lost, whole), cut = paths[:2], paths[2]
    for path, size in ((lost, 0), (cut, CHUNK)):
        os.truncate(directory.path / path.relative_to(mount.path), size)
    mount_without = list(mount.options)
    mount.unmount()
    mount.options = [option for option in mount_without if option != "tier_keep=1"]
    mount.start()
    restore = (mount.array.programs.fpfs, "tier", "restore")
    told = run(*restore, "--json", mount.path, check=False)
    assert told.returncode == 1
    report = json.loads(told.stdout)
    assert report["files"] == 1 and {error["path"] for error in report["errors"]} == {str(lost), str(cut)}
    said = run(*restore, mount.path, check=False)
    assert said.returncode == 1 and "2 files could not be fetched" in said.stderr.splitlines()[-1], said.stderr
    assert all(path.name in said.stderr for path in (lost, cut)) and not is_away(whole)
    refused = run(mount.array.programs.fpfs, "tier", "set", mount.path, "none", check=False)
    assert refused.returncode == 1 and "remove what cannot be had" in refused.stderr, refused.stderr
    os.unlink(lost)
    os.unlink(cut)
    fpfs(mount, "tier", "set", mount.path, "none")


@pytest.mark.mount_options("tier_keep=8M")
def test_no_more_than_so_many_bytes_stay(mount, directory):
    set_tier(mount, directory.url)
    paths = [save(mount, number, 2 * MIB) for number in range(8)]
    sync(mount)
    wait_until(lambda: sum(path.stat().st_blocks for path in paths) * 512 <= 8 * MIB, seconds=60)
    assert not is_away(paths[-1])
    assert 3 * MIB < sum(path.stat().st_blocks for path in paths) * 512, "no more than necessary leaves"
    assert all(is_pattern(path, number, 2 * MIB) for number, path in enumerate(paths))


@pytest.mark.mount_options("tier_keep=1")
def test_what_is_open_or_not_copied_stays(mount, directory):
    first, second = save_two(mount, directory)
    third = save(mount, 3)
    with open(second, "rb") as reader:
        sync(mount)
        reader.read(100)
        wait_until(lambda: tier(mount)["state"] == "current")
        for _ in range(3):
            save(mount, 4)
            sync(mount)
        assert not is_away(second)
    wait_until(lambda: is_away(second) and is_away(third), seconds=60)
    # A reader keeps what it has open, whatever takes its name.
    with open(first, "rb") as reader:
        write_pattern(mount.path / "new", 11, 3 * CHUNK)
        os.rename(mount.path / "new", first)
        os.unlink(second)
        assert reader.read() == pattern(1, 0, 20 * CHUNK)
    sync(mount)
    assert directory.content("run/step-1.pt") == pattern(11, 0, 3 * CHUNK)
    assert directory.content("run/step-2.pt") is None


@pytest.mark.mount_options("tier_keep=1")
def test_the_only_place_of_content_is_not_left(mount, directory, make_store):
    first, second = save_two(mount, directory)
    other = make_store(type(directory))
    for url in ("none", other.url):
        result = fpfs(mount, "tier", "set", mount.path, url, check=False)
        assert result.returncode == 1 and len(result.stderr.splitlines()) == 1, result.stderr
        assert "fpfs tier restore" in result.stderr and "run/step-1.pt" in result.stderr
    assert is_pattern(first, 1, 20 * CHUNK) and state(second) == "copied"
    mount.unmount()
    mount.options = []
    mount.start()
    fpfs(mount, "tier", "restore", mount.path)
    set_tier(mount, "none")
    shutil.rmtree(directory.path)
    assert is_pattern(first, 1, 20 * CHUNK)


@pytest.mark.mount_options("tier_keep=1")
def test_a_store_that_is_away_fails_only_what_is_there(mount, directory):
    first, second = save_two(mount, directory)
    mount.unmount()  # the kernel's page cache has it no more
    # Later, as much of it is here as was read ahead.
    assert "in the store of the copies only" in mount.array.fsck(check=True).stdout
    aside = directory.path.with_name(directory.path.name + "-aside")
    directory.path.rename(aside)
    mount.start()
    assert [read_at(first, chunk * CHUNK, CHUNK) for chunk in range(5)] == ["EIO"] * 5
    assert is_pattern(second, 2, 20 * CHUNK)
    told = [line for line in mount.log().splitlines() if "in the store of the copies only" in line]
    assert len(told) == 1 and "/step-1.pt, chunk" in told[0], told
    aside.rename(directory.path)
    wait_until(lambda: read_at(first, 0, CHUNK) == pattern(1, 0, CHUNK), seconds=60)
    mount.unmount()
    mount.array.fsck(check=True)


@pytest.mark.mount_options("tier_keep=1")
def test_who_checks_says_what_was_not_looked_at(mount, directory):
    first, second = save_two(mount, directory)
    aside = directory.path.with_name(directory.path.name + "-aside")
    directory.path.rename(aside)  # whether it is there makes no difference
    result = fpfs(mount, "verify", first, second)
    assert result.stdout.splitlines() == [
        f"{first}: 20 of 20 chunks are only in {directory.url}, not looked at; fpfs tier restore {first} fetches and "
        "checks them", f"{second}: 20 chunks, as written"]
    assert json.loads(fpfs(mount, "verify", "--json", first.parent).stdout) == {
        "clean": False, "files": 2, "chunks": 40, "away": 20,
        "away_files": [{"path": str(first), "away": 20, "chunks": 20}], "errors": []}
    assert json.loads(fpfs(mount, "verify", "--json", second).stdout)["clean"]
    assert not fpfs(mount, "verify", "--quiet", first).stdout
    scrub = fpfs(mount, "scrub", "start", "--wait", mount.path).stdout
    assert re.search(r"Not looked at: +20 chunks in the store of the copies only\n", scrub), scrub
    assert "; 20 chunks in the store of the copies only, not looked at" in mount.log()
    mount.unmount()
    aside.rename(directory.path)
    as_before = mount.options
    mount.options = ("ro",)
    mount.start()
    assert "not looked at; mounted without ro, fpfs tier restore" in fpfs(mount, "verify", first).stdout
    mount.unmount()
    mount.options = as_before
    mount.start()
    assert json.loads(fpfs(mount, "scrub", "status", "--json", mount.path).stdout)["chunks_away"] == 20
    fpfs(mount, "tier", "pin", first)
    fpfs(mount, "tier", "restore", first)
    assert fpfs(mount, "verify", first).stdout == f"{first}: 20 chunks, as written\n"


@pytest.mark.mount_options("tier_keep=1")
def test_export_says_where_content_that_is_away_is(mount, directory, tmp_path):
    first, _ = save_two(mount, directory)
    mount.unmount()

    def export(*options):
        return fpfs(mount, "export", *options, mount.array.argument, "/run/step-1.pt", "-o", tmp_path / "copy",
                    check=False)

    for result in (export(), export("--partial")):  # there is nothing to save
        assert result.returncode == 1 and result.stderr == (
            "fpfs export: /run/step-1.pt: its content is only in the store of the copies "
            f"({directory.url}): copy run/step-1.pt from there\n")
    assert not any(tmp_path.iterdir())
    mount.start()
    assert read_at(first, 5 * CHUNK, 100) == pattern(1, 5 * CHUNK, 100)
    os.truncate(first, 19 * CHUNK + 7)  # the last chunk comes for that, too
    os.truncate(first, 20 * CHUNK)
    mount.unmount()
    result = export()
    assert f" of its 20 chunks are only in the store of the copies ({directory.url}): copy run/" in result.stderr
    *ranges, sum_of_it = export("--partial").stderr.splitlines()
    lost = [tuple(map(int, re.search(r"lost bytes (\d+) to (\d+): only in the store", line).groups()))
            for line in ranges]
    assert lost[0] == (0, 5 * CHUNK - 1) and len(lost) == 2
    assert f"{sum(end - begin + 1 for begin, end in lost)} of {20 * CHUNK} bytes in " in sum_of_it
    content = (tmp_path / "copy").read_bytes()
    assert content[5 * CHUNK:lost[1][0]] == pattern(1, 5 * CHUNK, lost[1][0] - 5 * CHUNK) and lost[1][0] > 5 * CHUNK
    assert content[19 * CHUNK:] == pattern(1, 19 * CHUNK, 7) + bytes(CHUNK - 7)


@pytest.mark.mount_options("tier_keep=1")
def test_what_is_shown_of_content_that_is_away(mount, directory):
    first, second = save_two(mount, directory)
    line, heading, *rows = fpfs(mount, "map", first).stdout.splitlines()
    assert line.startswith(f"{first}: 1.3 MiB, ") and line.endswith(", in the store of the copies only")
    assert heading.split()[0] == "OFFSET"
    assert [row.split() for row in rows if row] == [
        [str(offset), str(min(CHUNK, first.stat().st_size - offset)), "-", "-", "-", "away", "-"]
        for offset in range(0, first.stat().st_size, CHUNK)]
    # A direct reader that does not know of this fails, for want of a place; ours says what to do.
    told = json.loads(fpfs(mount, "map", "--json", first).stdout)
    assert {extent["codec"] for extent in told["extents"]} == {"away"} and told["extents"][0]["file"] is None
    reader = pathlib.Path(__file__).parents[2] / "tools" / "examples" / "read_direct"
    refused = run(sys.executable, reader, "--fpfs", mount.array.programs.fpfs, "--compare", first, check=False)
    assert refused.returncode == 1 and f"fpfs tier restore {first}" in refused.stderr, refused.stderr
    assert "store of the copies" not in fpfs(mount, "map", second).stdout
    wait_until(lambda: tier(mount)["files_left"] == 1)
    status = fpfs(mount, "tier", "status", mount.path).stdout
    assert re.search(r"Left the drives: +1 file \(1.3 MiB\) since .*, to be in the store only \(tier_keep=1\)", status)


@pytest.mark.parametrize("text", ["none", "0", "-1", "x", "3.5", "0G", ""])
def test_what_tier_keep_cannot_be(array, make_mount, text):
    with pytest.raises(MountFailed) as refused:
        make_mount(array, f"tier_keep={text}")
    assert "tier_keep" in str(refused.value) and len(str(refused.value).splitlines()) == 1
