"""fpfs scrub on a live mount: commands, progress, findings, and what a remount keeps."""
import json
import os
import signal
import subprocess
import time

import pytest

from command_lines import assert_one_line_error
from lab.damage import flip
from lab.data import write_pattern
from lab.programs import run
from lab.system import wait_until

CHUNK = 64 * 1024
KEYS = ["state", "started", "ended", "seconds", "limit", "files_done", "chunks_done", "bytes_done", "bytes_total",
        "bytes_per_second", "eta_seconds", "errors", "healed", "chunks_away", "failed_saves", "note", "damage", "damage_omitted", "paths_hidden"]


@pytest.fixture
def scrub(binaries):
    """scrub(mount, action, *options): the finished command."""
    return lambda mount, action, *options: run(binaries.fpfs, "scrub", action, mount.path, *options, check=False)


@pytest.fixture
def state(scrub):
    """state(mount): the JSON object, whose form is checked."""
    def read(mount):
        result = scrub(mount, "status", "--json")
        assert result.returncode == 0, result.stderr
        found = json.loads(result.stdout)
        assert sorted(found) == sorted(KEYS)
        return found
    return read


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_a_clean_array(mount, scrub, state):
    assert state(mount)["state"] == "none"
    assert "No scrub" in scrub(mount, "status").stdout
    for number in range(3):
        write_pattern(mount.path / f"file{number}", number, 20 * CHUNK)
    result = scrub(mount, "start", "--wait", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["state"] == "finished" and found["errors"] == 0
    assert (found["files_done"], found["chunks_done"], found["bytes_done"]) == (3, 60, 60 * CHUNK)
    assert 0 < found["started"] <= found["ended"] <= time.time() + 1
    assert "finished" in scrub(mount, "status").stdout


@pytest.mark.chunk_size(CHUNK)
def test_progress_pause_remount_resume(mount, scrub, state):
    """At a limit of 1 MiB a second: it keeps to it, tells how long it will take, and reads nothing twice."""
    for number in range(2):
        write_pattern(mount.path / f"file{number}", number, 24 * CHUNK)
    started = time.monotonic()
    assert scrub(mount, "start", "--limit", "1M").returncode == 0
    wait_until(lambda: state(mount)["chunks_done"] >= 8)
    found = state(mount)
    assert found["state"] == "running" and found["limit"] == 1 << 20 and found["bytes_total"] == 48 * CHUNK
    assert 0.3 * (1 << 20) < found["bytes_per_second"] < 1.6 * (1 << 20)
    assert 0 < found["eta_seconds"] < 10
    assert "left" in scrub(mount, "status").stdout
    mount.remount()
    found = state(mount)
    assert found["state"] == "running" and found["chunks_done"] >= 8
    assert scrub(mount, "pause").returncode == 0
    paused = state(mount)
    assert paused["state"] == "paused" and paused["chunks_done"] < 48
    assert paused["bytes_done"] <= (time.monotonic() - started + 0.3) * (1 << 20)
    mount.kill()
    mount.start()
    time.sleep(0.2)
    assert {key: state(mount)[key] for key in ("state", "chunks_done", "files_done")} == {
        key: paused[key] for key in ("state", "chunks_done", "files_done")}
    result = scrub(mount, "resume", "--limit", "0", "--wait")
    assert result.returncode == 0, result.stdout + result.stderr
    assert state(mount)["chunks_done"] == 48


@pytest.mark.chunk_size(CHUNK)
def test_one_that_runs_can_be_waited_for(mount, scrub, state):
    """Also by who did not begin it; who would begin another is told how."""
    assert scrub(mount, "status", "--wait").returncode == 0, "there is none"
    write_pattern(mount.path / "file", 1, 24 * CHUNK)
    assert scrub(mount, "start", "--limit", "1M").returncode == 0
    line, = scrub(mount, "start").stderr.splitlines()
    assert "a scrub is under way, " in line and f"fpfs scrub status --wait {mount.path} waits for it" in line
    result = scrub(mount, "status", "--wait", "--json")
    assert result.returncode == 0 and json.loads(result.stdout)["state"] == "finished"
    assert json.loads(result.stdout)["chunks_done"] == 24
    assert_one_line_error(scrub(mount, "pause", "--wait"), 16, "--wait goes with start, resume and status")


@pytest.mark.chunk_size(CHUNK)
def test_one_whose_array_is_unmounted(mount, scrub, binaries):
    write_pattern(mount.path / "file", 1, 24 * CHUNK)
    waiting = subprocess.Popen([binaries.fpfs, "scrub", "start", "--limit", "256K", "--wait", str(mount.path)],
                               stderr=subprocess.PIPE, text=True)
    wait_until(lambda: "running" in scrub(mount, "status").stdout)
    mount.unmount()
    said, = waiting.communicate(timeout=60)[1].splitlines()
    assert waiting.returncode == 1 and "it ended before the scrub did, which goes on" in said
    mount.start()
    assert scrub(mount, "resume", "--limit", "0").returncode in (0, 1)
    assert scrub(mount, "status", "--wait").returncode == 0


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_damage_is_named(array, make_mount, scrub, state):
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "good", 1, 10 * CHUNK)
    write_pattern(mount.path / "bad", 2, 10 * CHUNK)
    extent = json.loads(run(array.programs.fpfs, "map", "--json", mount.path / "bad").stdout)["extents"][4]
    with open(extent["file"], "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"other bytes", extent["file_offset"] + 100)
    result = scrub(mount, "start", "--wait")
    assert result.returncode == 4
    place = f"chunk 4, member {extent['member']}, object offset {extent['file_offset']}"
    assert f"/bad: {place}: checksum: " in result.stdout
    found = state(mount)
    (damage,) = found["damage"]
    assert (damage["path"], damage["chunk"], damage["member"], damage["object_offset"], damage["kind"]) == (
        "/bad", 4, extent["member"], extent["file_offset"], "checksum")
    assert mount.status()["members"][extent["member"]]["checksum_errors"] >= 1
    assert "scrub: /bad" in mount.log()
    mount.remount()
    assert state(mount)["damage"] == found["damage"]  # also after a remount


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_many_damaged_chunks_of_a_file_are_one_line(array, make_mount, scrub):
    """In its status and in the log."""
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "bad", 2, 20 * CHUNK)
    for extent in json.loads(run(array.programs.fpfs, "map", "--json", mount.path / "bad").stdout)["extents"][3:17]:
        flip(extent["file"], extent["file_offset"] + 100)
    said = scrub(mount, "start", "--wait").stdout.splitlines()
    assert len([line for line in said if line.startswith("/bad: 14 chunks (3-16) on members ")]) == 1, said
    line, = [line for line in said if "/bad" in line]
    assert all(str(member / "objects") in line for member in array.members), line
    logged = [line for line in mount.log().splitlines() if "/bad" in line]
    assert len(logged) == 1 and "error scrub: /bad: 14 chunks (3-16) on members " in logged[0], logged


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_a_file_whose_save_has_failed(mount, scrub, state, binaries):
    """While it is open, what was committed of it cannot be looked at. It is whole, and that is not called damage."""
    write_pattern(mount.path / "file", 1, 4 * CHUNK)

    def fpfs(verb):
        return run(binaries.fpfs, verb, mount.path / "file", check=False)

    failed = os.open(mount.path / "file", os.O_WRONLY | os.O_TRUNC)
    os.write(failed, bytes(3 * CHUNK))
    other = os.fork()
    if other == 0:
        os.write(failed, bytes(3 * CHUNK))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(other, 0)
    result = scrub(mount, "start", "--wait")
    assert result.returncode == 1, result.stdout
    assert "1 file of which a save has failed and that is open" in result.stdout
    assert "/file: failed-save: " in result.stdout, result.stdout
    assert state(mount)["failed_saves"] == 1 and state(mount)["errors"] == 0
    assert "1 file of which a save has failed, not looked at" in mount.log()
    assert_one_line_error(fpfs("verify"), 1, "a save of it has failed")
    stat = fpfs("stat").stdout
    assert ", of the save that has failed\n" in stat
    assert f"what was committed before, 256 KiB ({4 * CHUNK} bytes), is there again when" in stat
    with pytest.raises(OSError):
        os.close(failed)
    assert fpfs("verify").returncode == 0
    assert scrub(mount, "start", "--wait").returncode == 0
    assert f"({4 * CHUNK} bytes)\n" in fpfs("stat").stdout


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_beside_a_writer(mount, scrub, state):
    """Writers and their checkpoints are none of its errors."""
    for number in range(6):
        write_pattern(mount.path / f"file{number}", number, 40 * CHUNK)
    assert scrub(mount, "start", "--limit", "8M").returncode == 0
    for version in range(40):
        write_pattern(mount.path / f"file{version % 6}", 100 + version, (30 + version) * CHUNK)
        if state(mount)["state"] != "running":
            break
    wait_until(lambda: state(mount)["state"] == "finished")
    assert state(mount)["errors"] == 0


@pytest.mark.chunk_size(CHUNK)
def test_refusals(mount, scrub, tmp_path):
    for action in ("pause", "resume", "cancel"):
        assert_one_line_error(scrub(mount, action), 1, "never started")
    write_pattern(mount.path / "file", 1, 40 * CHUNK)
    assert scrub(mount, "start", "--limit", "64K").returncode == 0
    assert_one_line_error(scrub(mount, "start"), 1, "a scrub is under way", "fpfs scrub cancel")
    assert scrub(mount, "cancel").returncode == 0
    assert "cancelled" in scrub(mount, "status").stdout
    assert_one_line_error(scrub(mount, "resume"), 1, "was cancelled")
    for words in (("bogus",), ("status", "--limit", "1M"), ("pause", "--wait"), ("start", "--limit", "fast")):
        assert_one_line_error(scrub(mount, *words), 16, "fpfs")
    assert_one_line_error(run(mount.array.programs.fpfs, "scrub", "status", tmp_path, check=False), 1, "fastpersistfs")


@pytest.mark.root
@pytest.mark.mount_options("allow_other")
def test_others_may_look_but_not_command(mount, binaries):
    from lab.system import in_child

    def as_nobody(action):
        return run(binaries.fpfs, "scrub", action, mount.path, check=False).returncode

    assert in_child(lambda: bytes([as_nobody("status")]), uid=65534) == b"\0"
    assert in_child(lambda: bytes([as_nobody("start")]), uid=65534) == b"\1"
