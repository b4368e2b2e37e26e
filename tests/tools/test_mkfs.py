"""mkfs.fastpersistfs: what it makes, and what it refuses to touch."""
import json
import os
import stat

import pytest

from command_lines import assert_one_line_error
from lab.programs import run


def mkfs(binaries, *arguments):
    return run(binaries.mkfs, *arguments, check=False)


def fsck_is_clean(binaries, members, buffered):
    return run(binaries.fsck, "-n", "--json", *buffered, members, check=False).returncode == 0


def test_formats_missing_directories_private(binaries, fresh, members, buffered):
    result = mkfs(binaries, members)
    assert result.returncode == 0, result.stderr
    for path in fresh:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert (path / "superblock").stat().st_size == 4096
        assert str(path) in result.stdout
    assert fsck_is_clean(binaries, members, buffered)


def test_formats_empty_directories(binaries, fresh, members, buffered):
    for path in fresh:
        path.mkdir()
    assert mkfs(binaries, members).returncode == 0
    assert fsck_is_clean(binaries, members, buffered)


def test_json_is_one_object_in_any_order_of_paths(binaries, fresh, buffered):
    result = mkfs(binaries, "--json", "--chunk-size", "256K", "--label", "run 7", ":".join(map(str, fresh)))
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert list(report) == ["array_id", "label", "chunk_size", "members", "metadata_directory"]
    assert report["label"] == "run 7" and report["chunk_size"] == 256 * 1024
    assert report["members"] == [str(path) for path in fresh]
    backwards = ":".join(str(path) for path in reversed(fresh))
    assert fsck_is_clean(binaries, backwards, buffered)


def test_names_in_a_directory_of_their_own(binaries, fresh, drives, buffered):
    *data, names = fresh
    result = mkfs(binaries, "--json", "--meta-dir", names, ":".join(map(str, data)))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["metadata_directory"] == str(names)
    assert (names / "tree").is_dir()
    assert not any((path / "tree").exists() for path in data)
    assert fsck_is_clean(binaries, ":".join(map(str, data)), buffered)


@pytest.mark.parametrize("size", ["64K", "1M", "16M"])
def test_chunk_sizes_at_the_limits(binaries, members, size):
    assert mkfs(binaries, "--chunk-size", size, members).returncode == 0


@pytest.mark.parametrize("size", ["32K", "32M", "1000000", "96K", "0", "-1", "1X", ""])
def test_other_chunk_sizes_are_refused(binaries, fresh, members, size):
    assert_one_line_error(mkfs(binaries, f"--chunk-size={size}", members), 16, "chunk-size")
    assert not any(path.exists() for path in fresh)


@pytest.mark.P7
def test_an_array_is_refused_unless_forced(binaries, fresh, members, buffered):
    first = json.loads(run(binaries.mkfs, "--json", members).stdout)
    assert_one_line_error(mkfs(binaries, members), 1, fresh[0])
    again = json.loads(run(binaries.mkfs, "--json", "--force", members).stdout)
    assert first["array_id"] != again["array_id"]
    assert fsck_is_clean(binaries, members, buffered)


@pytest.mark.P7
def test_one_directory_with_content_stops_everything(binaries, fresh, members):
    fresh[2].mkdir()
    precious = fresh[2] / "precious"
    precious.write_text("data")
    assert_one_line_error(mkfs(binaries, members), 1, fresh[2])
    assert precious.read_text() == "data"
    for path in fresh[:2] + fresh[3:]:
        assert not path.exists() or not any(path.iterdir())


@pytest.mark.P7
def test_same_directory_twice_is_refused(binaries, fresh):
    fresh[0].mkdir()
    assert_one_line_error(mkfs(binaries, f"{fresh[0]}:{fresh[1]}:{fresh[0]}"), 16, fresh[0])
    assert_one_line_error(mkfs(binaries, f"{fresh[0]}:{fresh[0]}/."), 16, fresh[0])
    link = fresh[1]
    os.symlink(fresh[0], link)
    try:
        assert_one_line_error(mkfs(binaries, f"{fresh[0]}:{link}"), 16)
    finally:
        link.unlink()
    assert not any(fresh[0].iterdir())


@pytest.mark.P7
def test_nested_directories_are_refused(binaries, fresh):
    fresh[0].mkdir()
    inner = fresh[0] / "inner"
    assert_one_line_error(mkfs(binaries, f"{fresh[0]}:{inner}"), 16, inner)
    assert_one_line_error(mkfs(binaries, f"{inner}:{fresh[0]}"), 16, inner)
    assert not (fresh[0] / "superblock").exists()


@pytest.mark.P7
def test_what_lies_in_an_array_is_no_member(binaries, fresh, members):
    """What is made there is the array's."""
    assert mkfs(binaries, members).returncode == 0
    for inside in (fresh[0] / "nested", fresh[0] / "tree" / "new", fresh[-1] / "objects" / "00" / "new"):
        for made in (False, True):
            if made:
                inside.mkdir()
            for force in ([], ["--force"]):
                result = mkfs(binaries, *force, inside)
                assert_one_line_error(result, 16, "it lies in", "a directory of an array")
        inside.rmdir()


def test_a_directory_without_a_parent_is_refused(binaries, fresh):
    assert_one_line_error(mkfs(binaries, fresh[0] / "no" / "parent"), 1, fresh[0])


@pytest.mark.P7
def test_a_file_is_no_directory(binaries, fresh):
    fresh[0].write_text("a file")
    try:
        assert_one_line_error(mkfs(binaries, fresh[0]), 1, fresh[0])
        assert fresh[0].read_text() == "a file"
    finally:
        fresh[0].unlink()


def test_labels_that_do_not_fit_are_refused(binaries, fresh, members):
    assert_one_line_error(mkfs(binaries, "--label", "x" * 64, members), 16, "label")
    assert not any(path.exists() for path in fresh)


@pytest.mark.parametrize("arguments", [[], ["--bogus", "/nowhere"], ["/nowhere:"], [":"], ["/nowhere", "/elsewhere"], [""]])
def test_usage_errors(binaries, arguments):
    assert_one_line_error(mkfs(binaries, *arguments), 16, "mkfs.fastpersistfs: ")


@pytest.mark.root
def test_what_an_array_will_suffer_from_is_said(binaries, make_drive, fresh):
    drive = make_drive(64 << 20)
    result = run(binaries.mkfs, "--quiet", f"{drive.path}/a:{drive.path}/b")
    (warning,) = result.stderr.splitlines()
    assert f"warning: {drive.path}/b: on the same drive as {drive.path}/a" in warning


def test_a_member_that_lost_its_superblock_is_not_formatted(binaries, fresh, members):
    run(binaries.mkfs, members)
    (fresh[0] / "objects/00/0000000000000000.00000000").touch()
    (fresh[0] / "superblock").unlink()
    for options in ([], ["--force"]):
        result = run(binaries.mkfs, *options, members, check=False)
        assert_one_line_error(result, 1, fresh[0], "superblock is lost", "fsck.fastpersistfs -y")
