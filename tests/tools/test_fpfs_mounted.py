"""fpfs on a mount: status, top, stat, map, sync, verify."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from command_lines import assert_one_line_error
from lab import mount_table
from lab.data import pattern, write_pattern
from lab.programs import run
from lab.system import wait_until

CHUNK = 64 * 1024
SIZE = 9 * CHUNK + 1000


@pytest.fixture
def fpfs(binaries):
    return lambda *arguments: run(binaries.fpfs, *arguments, check=False)


def json_of(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def model(mount):
    path = mount.path / "model.pt"
    write_pattern(path, 1, SIZE)
    return path


# --- status, top --------------------------------------------------------------------------------------------------------


@pytest.mark.mount_options("queue_depth=7", "durable=fsync", "killed_saver=commit", "tier_keep=3", "tier_rate=1M")
def test_status_json(fpfs, mount, array):
    write_pattern(mount.path / "file", 3, 5 << 20)
    status = json_of(fpfs("status", "--json", mount.path))
    assert status["state"] == "ok" and status["pid"] == mount.pid
    assert [member["path"] for member in status["members"]] == [str(path) for path in array.members]
    for member in status["members"]:
        assert 0 < member["space_free"] <= member["space_total"]
        assert not any(member[key] for key in ("read_errors", "write_errors", "sync_errors", "checksum_errors"))
        assert member["read_bytes_per_second"] >= 0 and member["write_bytes_per_second"] >= 0
    assert status["options"]["queue_depth"] == 7 and status["options"]["durable"] == "fsync"
    assert {"allow_other": False, "killed_saver": "commit", "commit_interval": 30, "metrics": "", "tier_keep": "3",
            "tier_delete": "follow", "tier_rate": 1 << 20}.items() <= status["options"].items()
    text = fpfs("status", mount.path).stdout
    assert "killed_saver=commit" in text and "commit_interval=30" in text and "tier_" not in text
    assert "tier_keep, tier_rate: without effect, as this array copies nowhere" in mount.log()
    seen = os.statvfs(mount.path)
    assert status["space"]["total"] == seen.f_blocks * seen.f_frsize
    assert status["rates"]["seconds"] > 0


def test_no_array_is_made_within_another(binaries, mount):
    for place in (mount.path, mount.path / "new"):
        refused = run(binaries.mkfs, "--force", place, check=False)
        assert_one_line_error(refused, 16, place, "it is within a mounted array", mount.path)
    assert not list(mount.path.iterdir())


def test_status_of_a_path_inside_the_mount(fpfs, mount):
    inside = mount.path / "directory"
    inside.mkdir()
    assert json_of(fpfs("status", "--json", inside))["mountpoint"] == str(mount.path)


def test_status_for_people(fpfs, mount, array):
    text = fpfs("status", mount.path).stdout
    assert re.search(rf"^Mounted: +{re.escape(str(mount.path))}, process {mount.pid}, for ", text, re.MULTILINE)
    for member in array.members:
        assert str(member) in text
    assert re.search(r"^State: +ok$", text, re.MULTILINE)
    assert re.search(r"^Chunk size: +1 MiB$", text, re.MULTILINE)
    heading, *rows = text.strip().split("\n\n")[1].splitlines()
    assert heading.split()[:3] == ["MEMBER", "PATH", "STATE"] and len(rows) == len(array.members)


def test_top_shows_who_writes(fpfs, mount):
    with open(mount.path / "busy.pt", "wb", buffering=0) as file:
        file.write(pattern(1, 0, 1 << 20))
        result = fpfs("top", mount.path, "--interval", "0.1", "--count", "2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("MEMBER") == 2
    assert re.search(r"writing +/busy.pt$", result.stdout, re.MULTILINE)
    assert "\033" not in result.stdout  # no terminal


# --- stat, map ----------------------------------------------------------------------------------------------------------


@pytest.mark.chunk_size(CHUNK)
def test_stat(fpfs, model):
    stat = json_of(fpfs("stat", "--json", model))
    assert stat["path"] == str(model)
    assert (stat["size"], stat["chunks"], stat["chunk_size"]) == (SIZE, 10, CHUNK)
    assert stat["codecs"]["raw"] == 10 and not stat["dirty"] and not stat["inline"]
    assert stat["stored_bytes"] >= SIZE
    assert stat["members"] == [0, 1, 2, 3]
    assert re.fullmatch(r"[0-9a-f]{16}", stat["file_id"])
    text = fpfs("stat", model).stdout
    assert stat["file_id"] in text and f"({SIZE} bytes)" in text and "raw 100.0 %" in text


def test_stat_of_a_small_and_an_empty_file(fpfs, mount):
    (mount.path / "small").write_bytes(b"x" * 100)
    (mount.path / "empty").touch()
    assert json_of(fpfs("stat", "--json", mount.path / "small"))["inline"]
    assert json_of(fpfs("stat", "--json", mount.path / "empty"))["size"] == 0
    assert "inline" in fpfs("stat", mount.path / "small").stdout
    os.truncate(mount.path / "empty", 5 << 20)
    assert "nothing is stored (a hole)" in fpfs("stat", mount.path / "empty").stdout


@pytest.mark.chunk_size(CHUNK)
def test_map_says_where_the_bytes_are(fpfs, model, array):
    found = json_of(fpfs("map", model, "--json"))
    assert (found["path"], found["size"], found["chunk_size"]) == (str(model), SIZE, CHUNK)
    content = b""
    for extent in found["extents"]:
        assert set(extent) >= {"offset", "length", "member", "file", "file_offset", "stored_length", "codec", "xxh3"}
        assert extent["offset"] == len(content)
        assert extent["codec"] == "raw" and re.fullmatch(r"[0-9a-f]{16}", extent["xxh3"])
        assert extent["file"].startswith(str(array.members[extent["member"]]) + "/")
        assert extent["length"] <= extent["stored_length"]
        with open(extent["file"], "rb") as file:
            file.seek(extent["file_offset"])
            content += file.read(extent["length"])
    assert content == pattern(1, 0, SIZE)
    text = fpfs("map", model).stdout
    assert found["extents"][3]["xxh3"] in text and found["extents"][0]["file"] in text


@pytest.mark.chunk_size(CHUNK)
def test_map_of_more_extents_than_one_answer_holds(fpfs, mount):
    path = mount.path / "many"
    write_pattern(path, 2, 700 * CHUNK)
    found = json_of(fpfs("map", path, "--json"))
    assert [extent["offset"] for extent in found["extents"]] == [index * CHUNK for index in range(700)]


@pytest.mark.chunk_size(CHUNK)
def test_map_leaves_holes_out(fpfs, mount):
    path = mount.path / "sparse"
    with open(path, "wb") as file:
        file.write(pattern(1, 0, CHUNK))
        file.seek(5 * CHUNK)
        file.write(pattern(1, 0, CHUNK))
    assert [extent["offset"] for extent in json_of(fpfs("map", path, "--json"))["extents"]] == [0, 5 * CHUNK]


def test_map_of_a_file_inside_its_index(fpfs, mount):
    (mount.path / "small").write_bytes(b"x" * 100)
    found = json_of(fpfs("map", mount.path / "small", "--json"))
    assert found["extents"] == [] and found["inline"] and found["size"] == 100


def test_names_cannot_steer_the_terminal(fpfs, mount):
    """What a name holds is escaped in JSON, and no control character of it reaches people."""
    name = 'a\n"b"\\\t\033[2J\x7fé'
    path = mount.path / name
    path.write_bytes(b"x" * 100)
    for verb in ("map", "stat"):
        assert json_of(fpfs(verb, path, "--json"))["path"] == str(path)
        text = fpfs(verb, path).stdout
        assert 'a?"b"\\??[2J?é' in text and not re.search(r"[^\n -~é]", text), text
    assert 'a?"b"\\??[2J?é: ' in fpfs("verify", path).stdout


# --- sync ---------------------------------------------------------------------------------------------------------------


@pytest.mark.P1
@pytest.mark.chunk_size(CHUNK)
@pytest.mark.mount_options("durable=fsync")
@pytest.mark.parametrize("what", ["file", "root", "directory"])
def test_what_was_synced_survives_the_daemon(fpfs, mount, array, what):
    directory = mount.path / "run"
    directory.mkdir()
    path = directory / "model.pt"
    path.write_bytes(pattern(4, 0, SIZE))
    target = {"file": path, "root": mount.path, "directory": directory}[what]
    result = fpfs("sync", target)
    assert result.returncode == 0 and result.stdout == "", result.stderr
    mount.kill()
    mount.start()
    assert path.read_bytes() == pattern(4, 0, SIZE)


def test_sync_json(fpfs, mount):
    assert json_of(fpfs("sync", "--json", mount.path)) == {"synced": True, "being_written": [], "errors": []}
    result = fpfs("sync", "--json", mount.path / "absent", mount.path)
    found = json.loads(result.stdout)
    assert result.returncode == 1 and not found["synced"] and len(result.stderr.splitlines()) == 1
    assert [error["path"] for error in found["errors"]] == [str(mount.path / "absent")]


def test_a_time_limit_goes_with_copies(fpfs, mount):
    assert_one_line_error(fpfs("sync", "--timeout", "5", mount.path), 16, "--timeout goes with --tier")


def test_sync_goes_on_after_a_path_that_fails(fpfs, model, mount):
    result = fpfs("sync", mount.path / "absent", model)
    assert_one_line_error(result, 1, "absent")


# --- verify -------------------------------------------------------------------------------------------------------------


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_verify_whole_files(fpfs, mount, model):
    result = fpfs("verify", model)
    assert result.returncode == 0 and result.stdout == f"{model}: 10 chunks, as written\n"
    (mount.path / "sub").mkdir()
    write_pattern(mount.path / "sub" / "other", 5, 400 * CHUNK)
    (mount.path / "empty").touch()
    found = json_of(fpfs("verify", mount.path, "--json"))
    assert found == {"clean": True, "files": 3, "chunks": 410, "away": 0, "away_files": [], "errors": []}


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_verify_finds_what_the_drive_changed(fpfs, mount, model, array):
    array.damaged = True
    extents = json_of(fpfs("map", model, "--json"))["extents"]
    for index in (2, 5, 6):
        with open(extents[index]["file"], "r+b", buffering=0) as file:
            byte = os.pread(file.fileno(), 1, extents[index]["file_offset"] + 99)
            os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), extents[index]["file_offset"] + 99)
            os.fsync(file.fileno())
    result = fpfs("verify", model)
    assert_one_line_error(result, 4, f"{model}: 3 of 10 chunks are damaged (2, 5-6): {extents[2]['file']}: the ")
    assert extents[2]["member"] == extents[5]["member"] != extents[6]["member"]
    assert result.stderr.count("; no copy has it: remove the file, and restore it from a backup") == 2
    assert "; lost" not in result.stderr
    for said_once in ("model.pt", "chunk", *(f"{extents[index]['file']}: the " for index in (2, 6)),
                      *(f"member {extents[index]['member']}," for index in (2, 6))):
        assert result.stderr.count(said_once) == 1, result.stderr
    result = fpfs("verify", "--json", model)
    assert result.returncode == 4
    found = json.loads(result.stdout)
    assert not found["clean"] and [error["chunk"] for error in found["errors"]] == [2, 5, 6]
    assert all(error["path"] == str(model) and error["detail"] for error in found["errors"])
    assert {error["kind"] for error in found["errors"]} == {"damaged"}
    wait_until(lambda: "/model.pt" in mount.log())
    lines = [line for line in mount.log().splitlines() if "/model.pt" in line]
    assert len(lines) == 1 and "verify: /model.pt: 3 chunks (2, 5-6) on members" in lines[0], "what repeats is counted"

    assert fpfs("status", mount.path).stdout.split("State:")[1].split()[0] == "failing"
    cleared = fpfs("clear", mount.path)
    assert (cleared.returncode, cleared.stdout, cleared.stderr) == (0, "", "")
    status = mount.status()
    assert status["state"] == "ok" and not any(member["checksum_errors"] for member in status["members"])
    assert fpfs("verify", model).returncode == 4 and mount.status()["state"] == "failing"


def test_verify_of_nothing_says_so(fpfs, mount):
    (mount.path / "empty").mkdir()
    result = fpfs("verify", mount.path / "empty")
    assert result.returncode == 0 and result.stdout == f"{mount.path / 'empty'}: no files\n"


@pytest.mark.parametrize("below", ["", "run"])
def test_verify_while_it_is_unmounted_is_not_clean(binaries, mount, below):
    """What went with the mount was not removed: not all was looked at."""
    (mount.path / "run").mkdir()
    for number in range(300):
        write_pattern(mount.path / "run" / f"file{number}", number, CHUNK)
    not_the_last = os.listdir(mount.path / "run")[:200]

    def in_the_middle(verify):
        descriptors = Path(f"/proc/{verify.pid}/fd")
        links = [os.readlink(path) for path in descriptors.iterdir() if path.is_symlink()]
        return any(link == str(mount.path / "run" / name) for link in links for name in not_the_last)

    # The daemon stands still whenever somebody looks, so what was seen stays so. It goes on for a moment in between.
    verify = None
    while verify is None or not within_a_race(lambda: in_the_middle(verify)):
        if verify is None or verify.poll() is not None:  # all in one moment: once more
            mount.freeze()
            verify = subprocess.Popen([binaries.fpfs, "verify", "--json", mount.path / below], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
        mount.thaw()
        mount.freeze()
    assert mount_table.unmount(mount.path, lazy=True).returncode == 0
    mount.thaw()
    out, said = verify.communicate(timeout=60)
    assert verify.returncode == 1 and "it was unmounted meanwhile; not everything was checked" in said, said
    assert json.loads(out)["clean"] is False and json.loads(out)["files"] < 300
    mount.process.wait(timeout=60)
    mount.process = None


def within_a_race(condition):
    """What is looked at may be gone in the middle of the look."""
    try:
        return condition()
    except OSError:
        return False


def test_verify_of_what_is_not_there_is_not_clean(fpfs, mount):
    result = fpfs("verify", "--json", mount.path / "missing")
    assert result.returncode == 1 and f"{mount.path / 'missing'}: No such file or directory" in result.stderr
    found = json.loads(result.stdout)
    assert found["clean"] is False and found["files"] == 0


# --- not a mount --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [("status",), ("top", "--count", "2", "--interval", "0.1"), ("stats",),
                                  ("stats", "--interval", "0.1", "--count", "2")])
def test_output_that_cannot_be_written_has_its_reason(binaries, mount, verb):
    with open("/dev/full", "w") as full:
        result = subprocess.run([binaries.fpfs, *verb, mount.path], stdout=full, stderr=subprocess.PIPE, text=True)
    line, = result.stderr.splitlines()
    assert result.returncode == 1 and line.endswith(": writing the output: No space left on device"), line


@pytest.mark.parametrize("verb", ["status", "top", "stat", "map", "sync", "verify"])
def test_elsewhere(fpfs, native, verb):
    file = native / "file"
    file.write_bytes(b"x")
    directory_verbs = ("status", "top", "sync")
    target = native if verb in directory_verbs else file
    assert_one_line_error(fpfs(verb, target), 1, target, "not on a mounted fastpersistfs")
    assert_one_line_error(fpfs(verb, native / "absent"), 1, native / "absent")


@pytest.mark.parametrize("call", [["verify"], ["tier", "pin"], ["tier", "unpin"], ["tier", "restore"], ["tier", "status"],
                                  ["scrub", "status"], ["clear"]], ids=" ".join)
def test_a_directory_where_nothing_is_mounted(fpfs, native, call):
    """Nothing of ours to look at is no success."""
    assert_one_line_error(fpfs(*call, native), 1, native, "not on a mounted fastpersistfs")
    assert os.listxattr(native) == []


@pytest.mark.parametrize("call", [("status",), ("scrub", "status"), ("member", "list"), ("rebalance",), ("sync",)])
def test_a_path_below_a_file(fpfs, tmp_path, call):
    (tmp_path / "file").touch()
    assert_one_line_error(fpfs(*call, tmp_path / "file" / "x"), 1, "file/x", "below a file; name where the array")


@pytest.mark.root
def test_what_another_user_may_not_look_into(binaries, mount, array):
    """The mount of another user, and members."""
    for words, advice in [((binaries.fpfs, "status", mount.path), "without allow_other a mount is for the user"),
                          ((binaries.fpfs, "verify", mount.path), "without allow_other a mount is for the user"),
                          ((binaries.fsck, array.argument), "run this as root, or as the user whose directory it is"),
                          ((binaries.mkfs, array.members[0].parent / "new"), "run this as root, or as the user"),
                          ((binaries.fpfs, "tune", array.argument), "run this as root, or as the user")]:
        result = subprocess.run([str(word) for word in words], user=65534, group=65534, extra_groups=[],
                                capture_output=True, text=True)
        assert result.returncode in (1, 8)
        line, = result.stderr.splitlines()
        assert "Permission denied; " in line and advice in line


@pytest.mark.root
@pytest.mark.mount_options("allow_other")
def test_what_another_user_may_not_read_of_a_mount_that_is_for_all(binaries, mount):
    os.chmod(mount.path, 0o755)
    (mount.path / "a" / "deep" / "secret").mkdir(parents=True)
    os.chmod(mount.path / "a" / "deep" / "secret", 0o700)
    for name in ("a/deep/secret/file", "a/private", "a/public"):
        write_pattern(mount.path / name, 1, CHUNK)
    os.chmod(mount.path / "a" / "private", 0o600)

    def as_other(*words):
        return subprocess.run([str(word) for word in (binaries.fpfs, *words)], user=65534, group=65534, extra_groups=[],
                              capture_output=True, text=True)

    may_not = "Permission denied; ask as root, or as a user who may read it"
    result = as_other("verify", mount.path / "a")
    assert result.returncode == 1 and result.stdout.splitlines() == [f"{mount.path}/a/public: 1 chunk, as written"]
    assert sorted(result.stderr.splitlines()) == [
        f"fpfs verify: {mount.path}/a/{name}: {may_not}" for name in ("deep/secret", "private")]
    assert_one_line_error(as_other("verify", mount.path / "a/deep/secret/file"), 1, "secret/file: " + may_not)
    assert_one_line_error(as_other("tier", "restore", mount.path / "a/deep"), 1, "deep/secret: " + may_not)
    for path in ("a/public", "a/deep"):
        assert_one_line_error(as_other("tier", "pin", mount.path / path), 1,
                              f"{mount.path / path}: only root, who mounted it, and for a file who may write it")


@pytest.mark.P3
def test_verify_of_a_file_whose_index_is_damaged(fpfs, mount, model, array):
    array.damaged = True
    mount.unmount()
    with open(next(array.members[0].glob("tree/model.pt")), "r+b") as file:
        file.write(b"damage")
    mount.start()
    for path in (model, mount.path):
        assert_one_line_error(fpfs("verify", path), 4, f"fpfs verify: {model}: its index cannot be read; "
                              "fsck.fastpersistfs -n DIRS says what is left")
        result = fpfs("verify", "--json", path)
        (error,) = json.loads(result.stdout)["errors"]
        assert result.returncode == 4 and (error["path"], error["chunk"], error["kind"]) == (str(model), -1, "index")
    assert_one_line_error(fpfs("stat", model), 1, f"fpfs stat: {model}: its index cannot be read; fsck.fastpersistfs")
    # Who watches the mount is told, whichever reads it.
    status = mount.status()
    assert status["state"] == "failing" and status["metadata"]["state"] == "failing"
    errors = status["metadata"]["errors"]
    assert errors > 0 and f"(member 0): failing, {errors} errors" in fpfs("status", mount.path).stdout
    assert json.loads(fpfs("clear", "--json", mount.path).stdout) == {"mount_point": str(mount.path), "cleared": True}
    assert mount.status()["state"] == "ok"
    assert fpfs("scrub", "start", "--wait", mount.path).returncode == 4
    assert mount.status()["state"] == "failing" and mount.status()["metadata"]["errors"] > 0


@pytest.mark.parametrize("verb", ["stat", "map"])
def test_a_directory_is_no_file(fpfs, mount, verb):
    assert_one_line_error(fpfs(verb, mount.path), 1, mount.path, "not a regular file; name a file of a mounted array")


def test_the_daemon_dies_while_it_is_asked(binaries, mount):
    """What it has not answered when it goes fails otherwise (ECONNABORTED) than what comes later (ENOTCONN)."""
    mount.freeze()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([binaries.fpfs, "status", mount.path], **pipes) as asking:
        stack = Path(f"/proc/{asking.pid}/stack")
        wait_until(lambda: "fuse" in stack.read_text() or asking.poll() is not None)
        mount.kill()
        told = subprocess.CompletedProcess(asking.args, None, *asking.communicate(timeout=30))
        told.returncode = asking.returncode
    assert_one_line_error(told, 1, "daemon of this mount is gone")


def test_after_the_daemon_died(fpfs, mount):
    mount.process.kill()
    mount.process.wait()
    for verb in ("status", "verify", "sync"):
        assert_one_line_error(fpfs(verb, mount.path), 1, "daemon of this mount is gone")
    mount.kill()
