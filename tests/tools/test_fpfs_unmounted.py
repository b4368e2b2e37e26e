"""fpfs on an array that is not mounted: export, bench."""
import json
import os
import subprocess

import pytest

from command_lines import assert_one_line_error
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import wait_until

CHUNK = 64 * 1024
SIZE = 9 * CHUNK + 1000


@pytest.fixture
def fpfs(binaries, buffered):
    return lambda verb, *arguments: run(binaries.fpfs, verb, *buffered, *arguments, check=False)


@pytest.fixture
def filled(array, make_mount):
    mount = make_mount(array)
    (mount.path / "run").mkdir()
    path = mount.path / "run" / "model.pt"
    write_pattern(path, 1, SIZE)
    path.chmod(0o640)
    os.utime(path, (1_600_000_000, 1_600_000_001))
    (mount.path / "small").write_bytes(b"0123456789")
    (mount.path / "empty").touch()
    with open(mount.path / "sparse", "wb") as file:
        file.seek(3 * CHUNK)
        file.write(pattern(2, 0, CHUNK))
        file.truncate(6 * CHUNK)
    os.symlink("run/model.pt", mount.path / "link")
    mount.unmount()
    return array


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


def flip_byte(path, offset):
    with open(path, "r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 0x40]), offset)
        os.fsync(file.fileno())


# --- export -------------------------------------------------------------------------------------------------------------


@pytest.mark.chunk_size(CHUNK)
def test_export_copies_content_mode_and_time(fpfs, filled, copy):
    for path in ("run/model.pt", "/run/model.pt", "//run/./model.pt"):
        result = fpfs("export", filled.argument, path, "-o", copy)
        assert result.returncode == 0 and result.stdout == "" and result.stderr == "", result.stderr
        assert is_pattern(copy, 1, SIZE)
        assert copy.stat().st_mode & 0o777 == 0o640 and int(copy.stat().st_mtime) == 1_600_000_001
        copy.write_bytes(b"an older copy, to be replaced")
    assert fpfs("export", filled.argument, "small", "-o", copy).returncode == 0
    assert copy.read_bytes() == b"0123456789"
    assert fpfs("export", filled.argument, "empty", "-o", copy).returncode == 0
    assert copy.read_bytes() == b""
    assert fpfs("export", filled.argument, "sparse", "-o", copy).returncode == 0
    assert copy.read_bytes() == bytes(3 * CHUNK) + pattern(2, 0, CHUNK) + bytes(2 * CHUNK)
    assert copy.stat().st_blocks * 512 < 6 * CHUNK
    assert [entry.name for entry in copy.parent.iterdir()] == ["copy"]


@pytest.mark.P3
@pytest.mark.chunk_size(CHUNK)
def test_export_of_a_damaged_file(fpfs, filled, copy):
    filled.damaged = True
    # Object slot 1 of one member: exactly one chunk, wherever it is in the file.
    victim = max((path for path in filled.members[2].glob("objects/*/*")), key=lambda path: path.stat().st_size)
    flip_byte(victim, CHUNK + 5)
    result = fpfs("export", filled.argument, "run/model.pt", "-o", copy)
    assert_one_line_error(result, 1, "--partial")
    assert not copy.exists() and not any(copy.parent.iterdir())
    result = fpfs("export", "--partial", filled.argument, "run/model.pt", "-o", copy)
    assert result.returncode == 1
    assert f"{CHUNK} of {SIZE} bytes in 1 chunk could" in result.stderr.splitlines()[-1]
    content, original = copy.read_bytes(), pattern(1, 0, SIZE)
    assert len(content) == SIZE
    lost = [offset for offset in range(0, SIZE, CHUNK) if content[offset:offset + CHUNK] != original[offset:offset + CHUNK]]
    assert len(lost) == 1 and content[lost[0]:lost[0] + CHUNK] == bytes(CHUNK)
    assert f"lost bytes {lost[0]} to {lost[0] + CHUNK - 1}: " in result.stderr


@pytest.mark.P3
@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
def test_export_without_a_member(fpfs, filled, copy):
    members = [member for member in filled.members if (member / "tree").exists()]
    gone = next(member for member in filled.members if member not in members)
    left = ":".join(str(member) for member in filled.members if member != gone)
    assert_one_line_error(fpfs("export", left, "run/model.pt", "-o", copy), 1, "(here: --partial)")
    result = fpfs("export", "--partial", left, "run/model.pt", "-o", copy)
    assert result.returncode == 1, result.stderr
    content, original = copy.read_bytes(), pattern(1, 0, SIZE)
    assert len(content) == SIZE
    for offset in range(0, SIZE, CHUNK):
        piece = content[offset:offset + CHUNK]
        assert piece in (original[offset:offset + CHUNK], bytes(len(piece)))
    lost = sum(content[offset:offset + CHUNK] != original[offset:offset + CHUNK] for offset in range(0, SIZE, CHUNK))
    assert 2 <= lost <= 3
    small = ("export", "--partial", left, "small", "-o", copy)  # lives in its index
    assert_one_line_error(fpfs(*small), 1, copy, "exists", "--force")
    assert copy.read_bytes() == content
    assert fpfs(*small, "--force").returncode == 0 and copy.read_bytes() == b"0123456789"
    copy.write_bytes(b"")  # as mktemp makes one
    assert fpfs(*small).returncode == 0 and copy.read_bytes() == b"0123456789"


@pytest.mark.chunk_size(CHUNK)
def test_export_of_what_has_lost_much(fpfs, filled, copy, make_mount):
    """Its first places are lines, not all."""
    mount = make_mount(filled)
    write_pattern(mount.path / "large", 1, 100 * CHUNK)
    mount.unmount()
    gone = next(member for member in filled.members if not (member / "tree").exists())
    left = ":".join(str(member) for member in filled.members if member != gone)
    lines = fpfs("export", "--partial", left, "large", "-o", copy).stderr.splitlines()
    assert len(lines) == 22 and "lost bytes in more places" in lines[20] and "in 25 chunks" in lines[21]
    found = json.loads(fpfs("export", "--partial", "--force", "--json", left, "large", "-o", copy).stdout)
    assert len(found["lost"]) == 25


def test_partial_is_advised_where_it_helps(fpfs, make_array, drives, fresh, copy):
    names = fresh[1]
    array = make_array(paths=drives.paths[:2], format_options=("--meta-dir", str(names)))
    moved = names.rename(f"{names}-moved")
    try:
        result = fpfs("export", array.argument, "file", "-o", copy)
        assert_one_line_error(result, 1, names, "no such directory")
        assert "--partial" not in result.stderr
    finally:
        moved.rename(names)


@pytest.mark.chunk_size(CHUNK)
def test_export_refusals(fpfs, filled, copy, make_mount, fresh):
    assert_one_line_error(fpfs("export", filled.argument, "run/absent", "-o", copy), 1, "run/absent")
    for path in ("run", "link", "/", "..", "run/../small", "link/x"):
        result = fpfs("export", filled.argument, path, "-o", copy)
        assert_one_line_error(result, 1, path)
    assert_one_line_error(fpfs("export", filled.argument, "small", "-o", copy.parent / "no" / "copy"), 1, "no/copy")
    assert_one_line_error(fpfs("export", filled.argument, "small", "-o", copy.parent), 1, copy.parent)
    assert_one_line_error(fpfs("export", filled.argument, "small"), 16)
    assert_one_line_error(fpfs("export", filled.argument, "small", "-o", "-"), 16, "./-")
    assert_one_line_error(fpfs("export", fresh[0], "small", "-o", copy), 1, fresh[0])
    mount = make_mount(filled)
    assert_one_line_error(fpfs("export", filled.argument, "small", "-o", copy), 1, mount.pid)
    assert not copy.exists()


# --- bench --------------------------------------------------------------------------------------------------------------

SMALL = ("--size", "3M", "--buffer-memory", "32M")


def contents(paths):
    return sorted(str(entry) for path in paths if path.exists() for entry in path.rglob("*"))


def test_bench_of_empty_directories_leaves_them_as_they_were(fpfs, fresh, members):
    for path in fresh:
        path.mkdir()
    result = fpfs("bench", members, "--json", *SMALL, "--jobs", "2", "--block-size", "100000", "--queue-depth", "4")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["size"], found["jobs"], found["block_size"], found["queue_depth"]) == (3 << 20, 2, 100000, 4)
    assert found["members"] == len(fresh)
    for what in ("write", "read"):
        assert found[what]["bytes"] == 3 << 20
        assert found[what]["bytes_per_second"] == pytest.approx(found[what]["bytes"] / found[what]["seconds"])
        assert found[what]["drive_bytes"] >= 3 << 20  # also what was read came from the drives
    assert all(path.is_dir() and not any(path.iterdir()) for path in fresh)


def test_bench_makes_no_directory(fpfs, fresh, members):
    """A misspelt one, or one whose drive is not mounted, would be on the system's drive."""
    for path in (fresh[0], fresh[0] / "deeper"):
        assert_one_line_error(fpfs("bench", path, *SMALL), 1, path, "no such directory; is its drive mounted?", "make")
    assert not fresh[0].exists()
    for path in fresh[:-1]:
        path.mkdir()
    assert_one_line_error(fpfs("bench", members, *SMALL), 1, fresh[-1], "no such directory")
    assert contents(fresh) == []


def test_bench_of_an_array_leaves_it_as_it_was(fpfs, filled):
    before = [entry for entry in contents([member / "tree" for member in filled.members])]
    for option, keys in (("--write", {"write"}), ("--read", {"read"}), ("--both", {"write", "read"})):
        result = fpfs("bench", filled.argument, option, "--json", *SMALL)
        assert result.returncode == 0, result.stderr
        assert {"write", "read"} & set(json.loads(result.stdout)) == keys
    assert contents([member / "tree" for member in filled.members]) == before
    filled.assert_clean()


def test_bench_removes_what_a_killed_one_left(fpfs, binaries, buffered, filled, fresh, members):
    """In an array its files, in directories that were empty the array that it made there."""
    for path in fresh:
        path.mkdir()
    places = [member / "tree" for member in filled.members]
    for argument, watched in ((filled.argument, places), (members, fresh)):
        before = contents(watched)
        process = subprocess.Popen([binaries.fpfs, "bench", *buffered, argument, "--size", "1G", "--block-size", "4K",
                                    "--buffer-memory", "32M"])
        wait_until(lambda: any(path.name.startswith("job-") for place in watched for path in place.rglob("*")))
        process.kill()
        process.wait()
        assert contents(watched) != before
        result = fpfs("bench", argument, *SMALL)
        assert result.returncode == 0, result.stderr
        assert contents(watched) == before
    filled.assert_clean()


def test_bench_for_people(fpfs, filled):
    text = fpfs("bench", filled.argument, *SMALL).stdout
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith(("write", "read"))}
    assert set(rows) == {"write", "read"} and all("/s" in row for row in rows.values())


@pytest.mark.parametrize("options", [["--queue-depth", "0"], ["--queue-depth", "1025"], ["--jobs", "0"], ["--size", "0"],
                                     ["--size", "1X"], ["--read", "--write"], ["--block-size", "0"],
                                     ["--buffer-memory", "1K"]])
def test_bench_usage_errors(fpfs, fresh, members, options):
    for path in fresh:
        path.mkdir()
    assert_one_line_error(fpfs("bench", members, *options), 16)
    assert contents(fresh) == []


def test_bench_refuses_directories_that_are_no_array(fpfs, fresh):
    fresh[0].mkdir()
    (fresh[0] / "precious").write_text("data")
    assert_one_line_error(fpfs("bench", fresh[0], *SMALL), 1, fresh[0])
    assert [entry.name for entry in fresh[0].iterdir()] == ["precious"]


def test_bench_of_a_mounted_array_is_refused(fpfs, filled, make_mount):
    mount = make_mount(filled)
    assert_one_line_error(fpfs("bench", filled.argument, *SMALL), 1, mount.pid)


@pytest.mark.root
def test_on_a_read_only_drive(fpfs, make_drive, make_array):
    """What is named as possible is, and nothing else."""
    drive = make_drive(64 << 20)
    array = make_array(paths=[drive.path])
    run("mount", "-o", "remount,ro", drive.path)
    try:
        said = "its drive is read-only: make it writable"
        assert_one_line_error(array.fsck("-p"), 8, said, "fsck.fastpersistfs -n")
        assert array.fsck("-n").returncode == 0
        for verb in ("bench", "tune"):
            assert_one_line_error(fpfs(verb, array.argument, "--size", "1M"), 1, said)
    finally:
        run("mount", "-o", "remount,rw", drive.path)


@pytest.mark.root
def test_bench_on_a_full_drive_fails_and_cleans_up(fpfs, make_drive, drives):
    small = make_drive(64 << 20)
    array = small.path / "array"
    array.mkdir()
    assert_one_line_error(fpfs("bench", array, "--size", "200M"), 1)
    assert contents([array]) == []
