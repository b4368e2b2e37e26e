"""Copies in a store outside this machine, through a mount: fpfs tier, fpfs sync --tier, the options tier*.

The stores are real: a directory, and S3 by SeaweedFS; a long run asks Ceph as well.
"""
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from lab.copies import SERVICES, Directory, fpfs, set_tier, state, sync, tier
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import in_child, wait_until
from lab.terminal import Terminal, screen

MIB = 1 << 20


def one_line(result, *words):
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and result.stdout == "", f"{result.stdout}{result.stderr}"
    for word in words:
        assert word in lines[0], lines[0]


def files_below(root):
    return sorted(path for path in root.rglob("*") if path.is_file())


def assert_copied(store, mount):
    for path in files_below(mount.path):
        key = str(path.relative_to(mount.path))
        copy = store.content(key)
        assert copy is not None, f"{key} is not there"
        assert hashlib.sha256(copy).digest() == hashlib.sha256(path.read_bytes()).digest(), key
        assert state(path) == "copied"


# --- what is copied --------------------------------------------------------------------------------------------------

def test_what_torch_saves_is_copied_bit_for_bit(array, make_mount, store):
    """Plain tools find each file under its path, equal bit for bit, and the figures say what was done."""
    torch = pytest.importorskip("torch")
    mount = make_mount(array)
    (mount.path / "run" / "step-1").mkdir(parents=True)
    torch.save({"weights": torch.randn(5_000_000), "step": 1}, mount.path / "run/step-1/model.pt")
    assert state(mount.path / "run/step-1/model.pt") == "local"
    set_tier(mount, store.url)
    torch.save({"weights": torch.randn(3_000_000), "step": 2}, mount.path / "run/model.pt")
    (mount.path / "empty").touch()
    (mount.path / "small").write_text("small\n")
    sync(mount)
    assert_copied(store, mount)
    sizes = [path.stat().st_size for path in files_below(mount.path)]
    status = tier(mount)
    assert status["state"] == "current" and status["errors"] == 0 and status["last_error"] == ""
    assert (status["files_copied"], status["bytes_copied"]) == (len(sizes), sum(sizes))
    assert (status["files_waiting"], status["bytes_waiting"], status["lag_seconds"]) == (0, 0, 0)
    assert mount.status()["tier"] == {key: status[key] for key in mount.status()["tier"]}
    assert set(mount.status()["tier"]) == {"state", "store", "files_waiting", "bytes_waiting", "lag_seconds"}

    # A file that is replaced is local until its new content is there.
    torch.save({"weights": torch.ones(2_000_000)}, mount.path / "run/model.pt")
    sync(mount, mount.path / "run/model.pt")
    assert_copied(store, mount)
    assert tier(mount)["files_copied"] == len(sizes) + 1


def test_what_somebody_waits_for_has_the_priority_of_requests(array, make_mount, store):
    """Threads that copy are nice to all others; those by which a restore and a read fetch are not."""
    mount = make_mount(array)
    set_tier(mount, store.url)
    wait_until(lambda: tier(mount)["state"] == "current")
    tasks = pathlib.Path(f"/proc/{mount.pid}/task")

    def nices(name):
        fields = [(task / "stat").read_text().rsplit(")", 1)[1].split() for task in tasks.iterdir()
                  if (task / "comm").read_text().startswith(name)]
        return [int(each[16]) for each in fields]

    requests, = set(nices("fpfs-call"))
    if requests >= 10:
        pytest.skip("the tests are as nice as copies are, and may not make the daemon less so")
    found = nices("fpfs-tier")
    assert set(found) == {requests, 10}
    assert found.count(10) > 1, "the one that begins all is not the one that copies"


def test_an_array_remembers_its_store(array, make_mount, directory):
    mount = make_mount(array)
    set_tier(mount, directory.url)
    write_pattern(mount.path / "a", 1, 3 * MIB)
    mount.remount()
    write_pattern(mount.path / "b", 2, 3 * MIB)
    sync(mount)
    assert_copied(directory, mount)
    mount.unmount()
    mount.options = ["tier=none"]  # for one mount
    mount.start()
    write_pattern(mount.path / "c", 3, 3 * MIB)
    one_line(sync(mount, check=False), "copies nowhere", "fpfs tier set")
    assert tier(mount)["state"] == "none"
    mount.unmount()
    mount.options = []
    mount.start()
    sync(mount)
    assert_copied(directory, mount)


def test_an_array_that_leaves_its_store(array, make_mount, directory):
    """What was copied stays, nothing more comes, and another array may have the place."""
    mount = make_mount(array)
    set_tier(mount, directory.url)
    write_pattern(mount.path / "a", 1, MIB)
    sync(mount)
    fpfs(mount, "tier", "set", mount.path, "none")
    one_line(fpfs(mount, "tier", "set", mount.path, "none", check=False), "no store to leave")
    write_pattern(mount.path / "b", 2, MIB)
    mount.remount()
    assert tier(mount)["state"] == "none"
    assert state(mount.path / "a") == "local"
    time.sleep(0.3)
    assert directory.content("a") == pattern(1, 0, MIB) and directory.content("b") is None


def test_a_store_that_is_left_while_it_is_away(array, make_array, make_mount, directory):
    """It cannot be told: another array gets the place when that was made up for."""
    mount = make_mount(array)
    set_tier(mount, directory.url)
    write_pattern(mount.path / "a", 1, MIB)
    sync(mount)
    elsewhere = directory.path.with_name("elsewhere")
    directory.path.rename(elsewhere)
    for _ in range(2):
        one_line(fpfs(mount, "tier", "set", mount.path, "none", check=False), "the store still lists it", "none once more")
        assert tier(mount)["state"] == "none"
        mount.remount()
        assert tier(mount)["state"] == "none"
    elsewhere.rename(directory.path)
    another = make_mount(make_array())
    one_line(fpfs(another, "tier", "set", another.path, directory.url, check=False), "is in use by array")
    fpfs(mount, "tier", "set", mount.path, "none")
    one_line(fpfs(mount, "tier", "set", mount.path, "none", check=False), "no store to leave")
    set_tier(another, directory.url, "--existing")
    assert directory.content("a") == pattern(1, 0, MIB)


# --- ends ------------------------------------------------------------------------------------------------------------

def test_unmounting_does_not_wait_and_the_next_mount_goes_on(array, make_mount, directory):
    mount = make_mount(array, "tier_rate=1M")
    set_tier(mount, directory.url)
    for number in range(4):
        write_pattern(mount.path / f"file{number}", number, 10 * MIB)
    status = tier(mount)
    assert status["state"] == "copying" and status["files_waiting"] > 0 and status["bytes_waiting"] > 10 * MIB
    assert "copying" in {state(mount.path / f"file{number}") for number in range(4)}
    time.sleep(1.1)
    assert 0 < tier(mount)["lag_seconds"] < 60
    before = time.monotonic()
    ended = run(array.programs.fpfs, "umount", mount.path)
    assert time.monotonic() - before < 5
    assert mount.process.wait() == 0
    mount.process = None
    one_line(ended, " files (", "are not copied to file://", "the next mount goes on")
    mount.options = []
    mount.start()
    sync(mount)
    assert_copied(directory, mount)


def test_the_daemon_is_killed_in_the_middle(array, make_mount, store):
    """Nothing that was not whole counts as a copy, and the next mount makes it whole."""
    mount = make_mount(array, "tier_rate=8M")
    set_tier(mount, store.url)
    write_pattern(mount.path / "first", 1, 2 * MIB)
    sync(mount, mount.path / "first")
    write_pattern(mount.path / "second", 2, 40 * MIB)
    wait_until(lambda: tier(mount)["files_copying"] == 1)
    time.sleep(0.2)
    mount.kill()
    assert store.content(".fastpersistfs/second") is None
    mount.options = []
    mount.start()
    assert state(mount.path / "first") == "copied"
    sync(mount)
    assert_copied(store, mount)
    assert tier(mount)["files_copied"] == 1


def test_waiting_can_be_interrupted(array, make_mount, directory):
    mount = make_mount(array, "tier_rate=1M")
    set_tier(mount, directory.url)
    write_pattern(mount.path / "file", 1, 40 * MIB)
    waiting = Terminal(array.programs.fpfs, "sync", "--tier", mount.path / "file")
    wait_until(lambda: len(waiting.drawn()) >= 2)
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.wait(timeout=5) == 1
    assert all(re.fullmatch(r"\d files? \([\d.]+ \w+\) to copy(, .+/s(, .+ left)?)?", line)
               for line in waiting.drawn()), waiting.text
    said, end = screen(waiting.text)
    assert said.startswith("fpfs sync: ") and "copying goes on" in said and end == ""
    timed_out = fpfs(mount, "sync", "--tier", "--timeout", "1", mount.path / "file", check=False)
    assert timed_out.returncode == 1
    one_line(timed_out, "not over after 1 s")
    # One that is killed leaves nothing that holds up the unmount.
    waiting = subprocess.Popen([array.programs.fpfs, "sync", "--tier", str(mount.path / "file")])
    time.sleep(0.2)
    waiting.kill()
    waiting.wait(timeout=5)


def test_saves_go_first(array, make_mount, directory):
    """While something is saved, copies go at tier_rate_saving; then as fast as they can."""
    mount = make_mount(array, "tier_rate_saving=8M")
    for number in range(48):
        write_pattern(mount.path / f"first{number}", number, 4 * MIB)
    set_tier(mount, directory.url)
    seen = []
    with open(mount.path / "second", "wb", buffering=0) as file:
        end, never = time.monotonic() + 2, time.monotonic() + 20
        while time.monotonic() < end:
            assert time.monotonic() < never
            file.write(bytes(2 * MIB))
            status = tier(mount)
            if status["paced"]:
                seen.append((time.monotonic(), status["bytes_copied"]))
            elif not seen:
                end = time.monotonic() + 2
            time.sleep(0.02)
        (began, before), (ended, after) = seen[0], seen[-1]
        # What was on its way when it began comes besides.
        assert after - before <= 8 * MIB * (ended - began) + 40 * MIB
    wait_until(lambda: not tier(mount)["paced"])
    sync(mount)
    assert_copied(directory, mount)


# --- a store that is away --------------------------------------------------------------------------------------------

def save_while_away(mount, name, seed):
    """As fast as ever."""
    before = time.monotonic()
    write_pattern(mount.path / name, seed, 8 * MIB)
    assert time.monotonic() - before < 5
    assert is_pattern(mount.path / name, seed, 8 * MIB)


@pytest.mark.time_limit(300)
@pytest.mark.parametrize("kind, daemon", [(kind, daemon) for kind in SERVICES for daemon in kind.DAEMONS])
def test_the_service_is_killed_and_away_for_a_while(array, make_mount, make_store, services, kind, daemon):
    store = make_store(kind)
    mount = make_mount(array, "tier_rate=8M")
    set_tier(mount, store.url)
    write_pattern(mount.path / "first", 1, 24 * MIB)
    wait_until(lambda: tier(mount)["files_copying"] == 1)
    services(kind).kill(daemon)
    try:
        save_while_away(mount, "second", 2)
        # Without its OSD a gateway accepts requests and does not answer them.
        wait_until(lambda: tier(mount)["state"] == "away", seconds=240 if daemon == "osd" else 30)
        status = tier(mount)
        assert status["files_waiting"] == 2 and status["errors"] > 0 and status["last_error"]
        assert "does not take copies" in mount.log()
        # Also for a mount that begins meanwhile.
        mount.remount()
        save_while_away(mount, "third", 3)
        assert tier(mount)["state"] == "away"
    finally:
        services(kind).start(daemon)
    sync(mount)
    assert_copied(store, mount)


def test_a_directory_that_is_not_mounted_for_a_while(array, make_mount, directory):
    """An empty mount point is not taken for the store."""
    mount = make_mount(array)
    set_tier(mount, directory.url)
    write_pattern(mount.path / "first", 1, MIB)
    sync(mount)
    mount.unmount()
    away = directory.path.with_name("away")
    directory.path.rename(away)
    directory.path.mkdir()
    mount.start()
    save_while_away(mount, "second", 2)
    wait_until(lambda: tier(mount)["last_error"] != "")  # until it has been tried, it is away without one
    status = tier(mount)
    assert status["state"] == "away" and "is the filesystem mounted" in status["last_error"]
    assert status["files_waiting"] is None and status["bytes_waiting"] is None
    wait_until(lambda: tier(mount)["lag_seconds"] > 0)
    text = run(mount.array.programs.fpfs, "tier", "status", mount.path).stdout
    assert "what waits is not known, and nothing was copied for" in text
    assert not list(directory.path.iterdir())
    directory.path.rmdir()
    away.rename(directory.path)
    sync(mount)
    assert_copied(directory, mount)


# --- what is wrong ---------------------------------------------------------------------------------------------------

def mount_by_hand(mount, url, *options):
    if not mount.array.direct_io:
        options = (*options, "buffered_members")
    return run(mount.array.programs.mount, "-o", ",".join([f"tier={url}", *options]), mount.array.argument, mount.path,
               check=False)


def test_a_store_that_is_required_is_to_be_named(array, make_mount):
    mount = make_mount(array)
    mount.unmount()
    options = "tier_required=yes" + ("" if array.direct_io else ",buffered_members")
    refused = run(array.programs.mount, "-o", options, array.argument, mount.path, check=False)
    assert refused.returncode == 1 and "copies nowhere: name its store (tier=URL)" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def assert_goes_on_without(mount, url, words):
    """With tier_required=no, and says in the status what is wrong."""
    mount.options = [f"tier={url}", "tier_required=no"]
    mount.start()
    save_while_away(mount, "local", 7)
    wait_until(lambda: tier(mount)["last_error"] != "")
    assert tier(mount)["state"] == "away" and words in tier(mount)["last_error"]
    mount.unmount()


def test_wrong_directories_are_one_clear_line(array, make_array, make_mount, make_store):
    """Not mounted; nobody's; of another array."""
    mine, other, unused = (make_store(Directory) for _ in range(3))
    another = make_mount(make_array())
    set_tier(another, other.url)
    mount = make_mount(array)
    mount.unmount()
    for url, words in [("file:///nowhere/at/all", "is it mounted?"),
                       (unused.url, "fpfs tier set MOUNTPOINT URL"),
                       (other.url, "is in use by array")]:
        refused = mount_by_hand(mount, url)
        assert refused.returncode == 1
        one_line(refused, words)
    assert_goes_on_without(mount, other.url, "is in use by array")
    mount.options = []
    mount.start()
    set_tier(mount, mine.url)
    mount.unmount()
    refused = mount_by_hand(mount, other.url)
    assert refused.returncode == 1
    one_line(refused, "but this array copies to store")
    assert files_below(other.path) == [path for path in files_below(other.path) if ".fastpersistfs-store" in str(path)]


@pytest.mark.parametrize("kind", SERVICES)
def test_wrong_buckets_and_keys_are_one_clear_line(array, make_mount, make_store, monkeypatch, kind):
    store = make_store(kind)
    mount = make_mount(array)
    set_tier(mount, store.url)
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    assert secret not in mount.log() + json.dumps(tier(mount)) + json.dumps(mount.status())
    assert secret not in pathlib.Path(f"/proc/{mount.pid}/cmdline").read_text()
    mount.unmount()
    bucket = store.url.split("/")[2]
    for url, words in [(store.url.replace(f"//{bucket}/", "//other-bucket/"), "NoSuchBucket"),
                       (store.url.replace(store.name, "empty-prefix"), "but this array copies to store"),
                       (store.url.replace("deadline=2", "deadline=1").replace("endpoint=http:", "endpoint=https:"),
                        "s3://")]:
        refused = mount_by_hand(mount, url)
        assert refused.returncode == 1
        one_line(refused, words)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    refused = mount_by_hand(mount, store.url)
    assert refused.returncode == 1 and "not-the-secret" not in refused.stderr
    one_line(refused, "SignatureDoesNotMatch")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", "/nowhere")
    one_line(mount_by_hand(mount, store.url), "AWS_ACCESS_KEY_ID")
    assert_goes_on_without(mount, store.url, "AWS_ACCESS_KEY_ID")
    assert secret not in mount.log()


def test_a_secret_in_the_url_is_refused_and_not_shown(array, make_mount):
    mount = make_mount(array)
    url = "s3://bucket/prefix?secret_key=Open-Sesame"
    refused = fpfs(mount, "tier", "set", mount.path, url, check=False)
    one_line(refused, "would show a secret")
    mount.unmount()
    by_hand = mount_by_hand(mount, url)
    one_line(by_hand, "would show a secret")
    assert "Sesame" not in refused.stderr + by_hand.stderr + mount.log()


def test_two_arrays_share_a_place_only_when_told_to(array, make_array, make_mount, store):
    first, second = make_mount(array), make_mount(make_array())
    set_tier(first, store.url)
    refused = fpfs(second, "tier", "set", second.path, store.url, check=False)
    assert refused.returncode == 1
    one_line(refused, "is in use by array")
    assert tier(second)["state"] == "none"
    write_pattern(second.path / "of-second", 2, MIB)
    set_tier(second, store.url, "--share")
    write_pattern(first.path / "of-first", 1, MIB)
    for mount in (first, second):
        sync(mount)
        assert_copied(store, mount)


def test_a_place_with_other_files_is_taken_only_when_told_to(array, make_mount, directory):
    (directory.path / "thesis.tex").write_text("do not overwrite")
    mount = make_mount(array)
    one_line(fpfs(mount, "tier", "set", mount.path, directory.url, check=False), "thesis.tex")
    set_tier(mount, directory.url, "--existing")
    write_pattern(mount.path / "a", 1, MIB)
    sync(mount)
    assert directory.content("thesis.tex") == b"do not overwrite" and directory.content("a") == pattern(1, 0, MIB)


def test_what_an_array_remembers_may_be_damaged(array, make_mount, directory):
    mount = make_mount(array)
    set_tier(mount, directory.url)
    mount.unmount()
    (array.members[0] / "tier").write_text("{")
    mount.start()
    save_while_away(mount, "a", 1)
    assert tier(mount)["state"] == "away" and "is damaged" in tier(mount)["last_error"]
    set_tier(mount, directory.url)
    sync(mount)
    assert_copied(directory, mount)


@pytest.mark.root
@pytest.mark.mount_options("allow_other")
def test_others_see_figures_and_change_nothing(mount, directory):
    set_tier(mount, directory.url)
    (mount.path / "theirs").write_text("x")
    os.chown(mount.path / "theirs", 1234, 1234)

    def as_user():
        assert tier(mount)["state"] in ("scanning", "copying", "current")
        for words in (("tier", "set", mount.path, "none"), ("sync", "--tier", mount.path)):
            refused = fpfs(mount, *words, check=False)
            assert refused.returncode == 1 and "only root" in refused.stderr
        sync(mount, mount.path / "theirs")

    in_child(as_user, uid=1234)
    sync(mount)
    assert_copied(directory, mount)


def test_a_directory_that_hangs_lets_the_mount_end(make_array, make_mount):
    """As one of NFS whose server is gone: once what was saved is committed, nothing of it keeps the daemon."""
    holder = make_mount(make_array())
    place = Directory(holder.path, "copies")
    array = make_array()
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        mount = make_mount(array, f"tier={place.url}", "tier_required=no")
        write_pattern(mount.path / "file", 1, MIB)
        mount.unmount()
        assert "does not let go of what was being copied" in mount.log()
    finally:
        os.kill(holder.pid, signal.SIGCONT)
