"""tools/examples/read_direct: a file's extents, read from the members by O_DIRECT, checked and compared."""
import os
import pathlib
import subprocess
import sys

import pytest

from lab.data import write_pattern

READER = pathlib.Path(__file__).parents[2] / "tools" / "examples" / "read_direct"
CHUNK = 1 << 20
SIZE = 9 * CHUNK + 12345

pytestmark = pytest.mark.mount_options("compress=off")


@pytest.fixture
def read(binaries):
    def run(*arguments):
        return subprocess.run([sys.executable, READER, "--fpfs", binaries.fpfs, *arguments], capture_output=True,
                              text=True)

    return run


@pytest.fixture
def saved(mount, array):
    if not array.direct_io:
        pytest.skip("the members have no O_DIRECT")
    path = mount.path / "model.pt"
    write_pattern(path, 1, SIZE)
    with open(path, "r+b") as file:
        file.truncate(SIZE + 3 * CHUNK)  # a hole
        file.seek(SIZE + 3 * CHUNK)
        file.write(b"the end")
    return path


def test_it_is_what_the_mount_has(read, saved, tmp_path):
    compared = read("--compare", saved)
    assert compared.returncode == 0 and "all right" in compared.stdout, compared.stderr
    copied = read("--output", tmp_path / "copy", saved)
    assert copied.returncode == 0, copied.stderr
    assert (tmp_path / "copy").read_bytes() == saved.read_bytes()


def test_another_file_s_bytes_in_its_place_are_found(read, saved, mount, array, tmp_path):
    """What somebody else has stored there meanwhile has a checksum of its own, which fails here."""
    other = mount.path / "other.pt"
    write_pattern(other, 2, SIZE)
    objects = [sorted(path for path in (member / "objects").rglob("*")
                      if path.is_file() and path.stat().st_size >= CHUNK) for member in array.members]
    mine, theirs = next(found for found in objects if len(found) >= 2)[:2]
    kept = mine.read_bytes()[:CHUNK]

    def put(content):
        with open(mine, "r+b") as file:
            file.write(content)
            os.fsync(file.fileno())

    put(theirs.read_bytes()[:CHUNK])
    results = [read(path) for path in (saved, other)]
    kept_copy = tmp_path / "copy"
    kept_copy.write_bytes(b"the copy of before")
    damaged = saved if results[0].returncode else other
    copied = [read("--output", path, damaged) for path in (kept_copy, tmp_path / "new")]
    put(kept)  # the array is checked at its end
    assert [result.returncode for result in copied] == [1, 1]
    assert os.listdir(tmp_path) == ["copy"] and kept_copy.read_bytes() == b"the copy of before"
    assert sorted(result.returncode for result in results) == [0, 1]
    failed = next(result.stderr for result in results if result.returncode)
    assert "not what the file has" in failed and len(failed.splitlines()) == 1


def test_what_it_cannot_read_is_said_in_one_line(read, mount, tmp_path):
    (mount.path / "small").write_bytes(b"x" * 100)
    with open(mount.path / "hole", "wb") as file:
        file.truncate(3 << 20)
    (tmp_path / "elsewhere").write_bytes(b"x")
    for path, says in ((mount.path / "small", "lies in its index"), (mount.path / "hole", "it is one hole"),
                       (tmp_path / "elsewhere", "elsewhere"),
                       (mount.path / "none", "none")):
        result = read(path)
        assert result.returncode == 1 and says in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr


def test_without_the_module_for_checksums(tmp_path):
    (tmp_path / "xxhash.py").write_text("raise ImportError\n")
    call = [sys.executable, READER]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run([*call, "/file"], capture_output=True, text=True, env=environment)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1 and "python3-xxhash" in result.stderr
    assert subprocess.run([*call, "--help"], capture_output=True, env=environment).returncode == 0
