"""fsck.fastpersistfs: exit codes, JSON and repairs, on arrays that were damaged by hand."""
import json
import os
import pty
import re
import shutil
import signal
import subprocess

import pytest

from command_lines import assert_one_line_error
from lab.data import write_pattern
from lab.programs import run

KEYS = ["clean", "files", "chunks", "bytes_stored", "bytes_verified", "seconds", "orphans", "errors", "repaired",
        "set_aside"]
ERROR_KEYS = ["path", "chunk", "member", "object_offset", "kind", "detail"]
CHUNK = 64 * 1024
SIZE = 12 * CHUNK + 100


@pytest.fixture
def fsck(binaries, array, buffered):
    def check(*options):
        return run(binaries.fsck, *buffered, *options, array.argument, check=False)

    return check


@pytest.fixture
def report(fsck):
    """report(options): the exit code and the JSON object, whose form is checked."""
    def check(*options):
        result = fsck("--json", *options)
        assert result.stderr == ""
        found = json.loads(result.stdout)
        assert list(found) == KEYS
        for error in found["errors"]:
            assert list(error) == ERROR_KEYS
            assert all(isinstance(error[key], int) for key in ("chunk", "member", "object_offset"))
        return result.returncode, found

    return check


@pytest.fixture
def filled(array, make_mount):
    """The array with one file of known content, not mounted."""
    array.damaged = True  # these tests judge it themselves
    mount = make_mount(array)
    write_pattern(mount.path / "model.pt", 1, SIZE)
    mount.unmount()
    return array


def objects_of(array):
    return sorted(path for member in array.members for path in member.glob("objects/*/*"))


def flip_byte(path, offset):
    with open(path, "r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, offset)
        assert len(byte) == 1
        os.pwrite(file.fileno(), bytes([byte[0] ^ 0x40]), offset)
        os.fsync(file.fileno())


@pytest.mark.chunk_size(CHUNK)
def test_clean(filled, report):
    code, found = report("-n")
    assert code == 0 and found["clean"] and found["errors"] == []
    assert (found["files"], found["chunks"], found["bytes_stored"]) == (1, 13, SIZE)
    assert found["bytes_verified"] == 0
    code, found = report("--verify-data")
    assert code == 0 and found["clean"] and found["bytes_verified"] == SIZE


@pytest.mark.chunk_size(CHUNK)
def test_people_read_counts_and_a_verdict(filled, fsck):
    result = fsck("--verify-data", "--no-progress")
    assert result.returncode == 0 and result.stderr == ""
    assert re.search(r"^Files: +1$", result.stdout, re.MULTILINE)
    assert re.search(r"^Result: +clean$", result.stdout, re.MULTILINE)


@pytest.mark.chunk_size(CHUNK)
def test_a_flipped_bit_is_found_by_reading_and_set_aside(filled, report, fsck):
    victim = objects_of(filled)[1]
    flip_byte(victim, CHUNK + 17)
    code, found = report("-n")
    assert code == 0 and found["clean"]  # the structure is whole
    code, found = report("-n", "--verify-data")
    assert code == 4 and not found["clean"]
    (error,) = found["errors"]
    assert error["path"] == "/model.pt" and error["kind"] == "checksum"
    assert error["object_offset"] == CHUNK
    assert str(victim).startswith(str(filled.members[error["member"]]))
    assert "/model.pt: chunk " in fsck("--verify-data").stdout

    code, found = report("-p", "--verify-data")  # damage is not safe to repair without asking
    assert code == 4 and found["repaired"] == 0
    result = fsck("-y", "--verify-data")
    assert result.returncode == 1 and "lost+found" in result.stdout
    lost = error["chunk"]
    kept = [f"{begin}-{end - 1}" for begin, end in ((0, lost * CHUNK), ((lost + 1) * CHUNK, SIZE)) if begin < end]
    assert re.search(rf"^/model.pt: set aside as lost.found/\S+; of its {SIZE} bytes survive: {', '.join(kept)}$",
                     result.stdout, re.MULTILINE), result.stdout
    code, found = report("-n", "--verify-data")
    assert code == 0 and found["clean"] and found["files"] == 0


@pytest.mark.chunk_size(CHUNK)
def test_an_orphan_is_removed_by_p(filled, report):
    original = objects_of(filled)[0]
    name = original.name
    orphan = original.with_name(f"{int(name[:16], 16) ^ (1 << 40):016x}{name[16:]}")
    shutil.copy(original, orphan)
    code, found = report("-n")
    assert code == 4 and found["orphans"] == 1
    assert [error["kind"] for error in found["errors"]] == ["orphan"]
    assert orphan.exists()
    code, found = report("-p")
    assert code == 1 and found["repaired"] == 1
    assert not orphan.exists() and original.exists()
    assert report("-n")[0] == 0


@pytest.mark.chunk_size(CHUNK)
def test_some_corrected_some_left(filled, report):
    original = objects_of(filled)[0]
    orphan = original.with_name(f"{int(original.name[:16], 16) ^ (1 << 40):016x}{original.name[16:]}")
    shutil.copy(original, orphan)
    flip_byte(original, 5)
    assert report("-p", "--verify-data")[0] == 1 | 4


@pytest.mark.chunk_size(CHUNK)
def test_beside_a_mount(filled, make_mount, report, fsck):
    mount = make_mount(filled)
    assert report("-n", "--verify-data")[0] == 0
    for option in ("-p", "-y"):
        assert_one_line_error(fsck(option), 8, str(mount.pid))


@pytest.mark.chunk_size(CHUNK)
def test_ctrl_c(filled, binaries, buffered):
    """The signal waits, blocked, from before the start: it arrives when fsck listens for it, however fast the check is."""
    def interrupt_before_start():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.kill(os.getpid(), signal.SIGINT)

    result = subprocess.run([binaries.fsck, *buffered, "--json", "--verify-data", filled.argument], capture_output=True,
                            text=True, preexec_fn=interrupt_before_start)
    assert result.returncode == 32, result.stderr
    found = json.loads(result.stdout)
    assert list(found) == KEYS and not found["clean"] and found["errors"] == []


@pytest.mark.chunk_size(CHUNK)
def test_progress_goes_to_stderr(filled, fsck):
    line = r"[\d.]+ [KM]?i?B of [\d.]+ [KM]?i?B \([\d.]+ %\), .+/s(, .+ left)?"
    result = fsck("--progress", "--verify-data", "--json")
    assert result.returncode == 0
    json.loads(result.stdout)
    lines = result.stderr.splitlines()
    assert lines and all(re.fullmatch(line, text) for text in lines), result.stderr
    assert "(100.0 %)" in lines[-1]
    assert fsck("--verify-data").stderr == ""  # stderr is no terminal


@pytest.mark.chunk_size(CHUNK)
def test_progress_is_on_by_default_on_a_terminal(filled, binaries, buffered):
    for options, expected in (([], True), (["--no-progress"], False)):
        terminal, end = pty.openpty()
        try:
            subprocess.run([binaries.fsck, *buffered, "--verify-data", *options, filled.argument], check=True,
                           stdout=subprocess.DEVNULL, stderr=end)
            os.close(end)
            end = None
            text = b""
            try:
                while piece := os.read(terminal, 4096):
                    text += piece
            except OSError:  # EIO: the other end is closed and everything was read
                pass
        finally:
            os.close(terminal)
            if end is not None:
                os.close(end)
        assert (b"100.0 %" in text) == expected, text


def test_a_damaged_superblock(array, report, fsck):
    array.damaged = True
    flip_byte(array.members[1] / "superblock", 100)
    code, found = report("-n")
    assert code == 4 and not found["clean"]
    assert "superblock" in {error["kind"] for error in found["errors"]}
    assert str(array.members[1]) in fsck("-n").stdout


@pytest.mark.chunk_size(CHUNK)
def test_a_missing_member(filled, binaries, buffered):
    """What the other members hold is checked; nothing is repaired until the member is back."""
    others = ":".join(str(member) for member in filled.members[:-1])
    for option in ("-n", "-p", "-y"):
        result = run(binaries.fsck, *buffered, option, "--json", others, check=False)
        assert result.returncode == 4, result.stdout
        errors = json.loads(result.stdout)["errors"]
        assert (errors[0]["kind"], errors[0]["path"], errors[0]["member"]) == ("missing-member", "", 3)
        assert [error["path"] for error in errors[1:]] == (["/model.pt"] if option == "-n" else [])
        assert json.loads(result.stdout)["repaired"] == 0


def test_no_such_directory(binaries, fresh):
    assert_one_line_error(run(binaries.fsck, "-n", fresh[0], check=False), 8, fresh[0])


def test_a_directory_that_is_no_member(binaries, fresh):
    fresh[0].mkdir()
    assert_one_line_error(run(binaries.fsck, "-n", fresh[0], check=False), 8, fresh[0])


@pytest.mark.parametrize("options", [["-n", "-p"], ["-n", "-y"], ["-p", "-y"], ["--bogus"], ["-x"],
                                     ["--progress", "--no-progress"]])
def test_usage_errors(fsck, options):
    assert_one_line_error(fsck(*options), 16, "fsck.fastpersistfs: ")


@pytest.mark.parametrize("directories", [[], [""], ["/a:"], ["/a", "/b"]])
def test_directories_that_make_no_sense(binaries, directories):
    assert_one_line_error(run(binaries.fsck, *directories, check=False), 16, "fsck.fastpersistfs: ")
