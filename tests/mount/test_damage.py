"""Damage on the drives: exactly what is damaged fails, by name; nothing damaged is ever handed out."""
import errno
import json
import os
import random
import sys

import pytest

from lab.array import MountFailed
from lab.damage import extents_of, flip, read_at
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run

MIB = 1 << 20


@pytest.mark.P3
@pytest.mark.chunk_size(65536)
@pytest.mark.time_limit(240)
def test_flipped_bytes_of_chunks(array, make_mount):
    """One byte in each of several chunks: their reads give EIO, all others their data; fsck and fpfs verify say which."""
    array.damaged = True
    mount = make_mount(array)
    (mount.path / "dir").mkdir()
    sizes = {"dir/even": 32 * 65536, "odd": 20 * 65536 + 4321, "fine": 10 * 65536}
    for number, (name, size) in enumerate(sizes.items()):
        write_pattern(mount.path / name, number, size)
    maps = {name: extents_of(mount, mount.path / name) for name in sizes}
    mount.unmount()

    rolls = random.Random(3)
    damaged = set()
    for name in ("dir/even", "odd"):
        extents = maps[name]["extents"]
        assert sum(extent["length"] for extent in extents) == sizes[name]
        # First byte, last byte, somewhere inside; the file's last, short chunk too.
        chosen = rolls.sample(range(len(extents) - 1), 5) + [len(extents) - 1]
        for turn, index in enumerate(chosen):
            extent = extents[index]
            inside = [0, extent["length"] - 1, rolls.randrange(extent["length"])][turn % 3]
            flip(extent["file"], extent["file_offset"] + inside, 1 << rolls.randrange(8))
            damaged.add((name, extent["offset"] // 65536))

    status, report = array.fsck_report("--verify-data")
    assert status == 4 and not report["clean"]
    found = {(error["path"].lstrip("/"), error["chunk"]) for error in report["errors"]}
    assert found == damaged
    for error in report["errors"]:
        extent = next(extent for extent in maps[error["path"].lstrip("/")]["extents"]
                      if extent["offset"] == error["chunk"] * 65536)
        assert (error["kind"], error["member"], error["object_offset"]) == (
            "checksum", extent["member"], extent["file_offset"])

    mount.start()
    for number, (name, size) in enumerate(sizes.items()):
        for chunk in range((size + 65535) // 65536):
            length = min(65536, size - chunk * 65536)
            got = read_at(mount.path / name, chunk * 65536, length)
            expected = "EIO" if (name, chunk) in damaged else pattern(number, chunk * 65536, length)
            assert got == expected, f"{name}, chunk {chunk}: {got[:20]!r}"
    errors = sum(member["checksum_errors"] for member in mount.status()["members"])
    assert errors >= len(damaged)
    assert "odd" in mount.log() and "checksum" in mount.log()
    verify = run(mount.array.programs.fpfs, "verify", mount.path / "fine", check=False)
    assert verify.returncode == 0, verify.stderr
    verify = run(mount.array.programs.fpfs, "verify", mount.path / "odd", check=False)
    assert verify.returncode == 4 and "odd" in verify.stdout + verify.stderr

    # Written anew, the file is good again.
    write_pattern(mount.path / "odd", 9, sizes["odd"])
    assert is_pattern(mount.path / "odd", 9, sizes["odd"])


@pytest.mark.P3
def test_torch_load_of_a_damaged_file_fails(array, make_mount):
    torch = pytest.importorskip("torch")
    array.damaged = True
    mount = make_mount(array)
    torch.save({"weights": torch.randn(1 << 21)}, mount.path / "file.pt")
    extent = extents_of(mount, mount.path / "file.pt")["extents"][5]
    mount.unmount()
    flip(extent["file"], extent["file_offset"] + 1000)
    mount.start()
    for options in ({}, {"mmap": True}):
        # A mapped read of a damaged page is SIGBUS by nature: it ends the process, so it runs in one of its own.
        code = f"import torch; print(torch.load({str(mount.path / 'file.pt')!r}, **{options!r})['weights'].sum())"
        result = run(sys.executable, "-c", code, check=False)
        assert result.returncode != 0, result.stdout


@pytest.mark.P3
@pytest.mark.chunk_size(65536)
def test_misplaced_chunks_fail(array, make_mount):
    """Two chunks of one file exchanged on their drive: both are good data in the wrong place."""
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 24 * 65536)
    extents = extents_of(mount, mount.path / "file")["extents"]
    mount.unmount()
    first, second = [extent for extent in extents if extent["member"] == extents[0]["member"]][1:3]
    with open(first["file"], "r+b", buffering=0) as one, open(second["file"], "r+b", buffering=0) as two:
        left = os.pread(one.fileno(), 65536, first["file_offset"])
        right = os.pread(two.fileno(), 65536, second["file_offset"])
        os.pwrite(one.fileno(), right, first["file_offset"])
        os.pwrite(two.fileno(), left, second["file_offset"])
    mount.start()
    for extent in extents:
        got = read_at(mount.path / "file", extent["offset"], extent["length"])
        assert (got == "EIO") == (extent in (first, second))


@pytest.mark.P3
@pytest.mark.chunk_size(65536)
@pytest.mark.parametrize("loss", ["removed", "cut", "emptied"])
def test_lost_objects_fail_by_name(array, make_mount, loss):
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 16 * 65536)
    write_pattern(mount.path / "fine", 2, 16 * 65536)
    extents = extents_of(mount, mount.path / "file")["extents"]
    mount.unmount()
    victim = extents[2]["file"]
    if loss == "removed":
        os.unlink(victim)
    else:
        os.truncate(victim, 65536 if loss == "cut" else 0)
    status, report = array.fsck_report("--verify-data")
    assert status == 4 and {error["path"] for error in report["errors"]} == {"/file"}
    assert {error["member"] for error in report["errors"]} == {extents[2]["member"]}
    mount.start()
    lost = [extent for extent in extents if extent["file"] == victim
            and (loss != "cut" or extent["file_offset"] >= 65536)]
    assert lost
    for extent in extents:
        got = read_at(mount.path / "file", extent["offset"], extent["length"])
        assert got == ("EIO" if extent in lost else pattern(1, extent["offset"], extent["length"]))
    assert is_pattern(mount.path / "fine", 2, 16 * 65536)


@pytest.mark.P3
@pytest.mark.P7
@pytest.mark.time_limit(240)
@pytest.mark.parametrize("size", [20000, 5 * 65536])
def test_flipped_bytes_of_sidecars(make_array, make_mount, size):
    """Any byte of the index of a closed file: the content is right, or opening or reading fails, and fsck names it."""
    array = make_array(chunk_size=65536)
    array.damaged = True
    mount = make_mount(array)
    count = 60
    for number in range(count):
        write_pattern(mount.path / f"file{number}", number, size)
    mount.unmount()
    tree = next(member / "tree" for member in array.members if (member / "tree").is_dir())
    length = (tree / "file0").stat().st_size
    for number in range(count):
        sidecar = tree / f"file{number}"
        assert sidecar.stat().st_size == length
        flip(sidecar, number * (length - 1) // (count - 1))  # from the first byte to the last
    status, report = array.fsck_report("--verify-data")
    assert status & 4 and not report["clean"]
    named = {error["path"] for error in report["errors"]}
    mount.start()
    for number in range(count):
        path = mount.path / f"file{number}"
        try:
            right = is_pattern(path, number, size)
        except OSError as error:
            assert error.errno == errno.EIO, f"{path}: {error}"
            assert f"/file{number}" in named, f"{path} cannot be read, and fsck did not name it"
        else:
            where = number * (length - 1) // (count - 1)
            assert right, f"{path}, byte {where} of its sidecar ({length} bytes) flipped: wrong content, no error"


@pytest.mark.P7
@pytest.mark.parametrize("offset", [0, 7, 8, 20, 40, 60, 100, 200, 1000, 2000, 4000, 4088, 4095])
def test_flipped_bytes_of_a_superblock(array, make_mount, offset):
    array.damaged = True
    flip(array.members[offset % 4] / "superblock", offset)
    with pytest.raises(MountFailed) as refused:
        make_mount(array)
    assert str(array.members[offset % 4]) in str(refused.value)
    status, report = array.fsck_report()
    assert status & 12
    flip(array.members[offset % 4] / "superblock", offset)
    array.assert_clean()


@pytest.mark.P3
@pytest.mark.P7
@pytest.mark.chunk_size(65536)
def test_setting_damaged_files_aside(array, make_mount):
    """fsck -y: the damaged file goes to lost+found, the others stay, and what is left is clean."""
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "bad", 1, 8 * 65536)
    write_pattern(mount.path / "good", 2, 8 * 65536)
    extent = extents_of(mount, mount.path / "bad")["extents"][3]
    mount.unmount()
    flip(extent["file"], extent["file_offset"])
    result = array.fsck("-n", "--verify-data")
    assert result.returncode == 4 and "/bad" in result.stdout and "chunk 3" in result.stdout
    result = array.fsck("-y", "--verify-data")
    assert result.returncode in (1, 4, 5), result.stdout + result.stderr
    array.assert_clean()
    mount.start()
    assert os.listdir(mount.path) == ["good"] or sorted(os.listdir(mount.path)) == ["good", "lost+found"]
    assert is_pattern(mount.path / "good", 2, 8 * 65536)


@pytest.mark.P4
@pytest.mark.chunk_size(65536)
@pytest.mark.parametrize("what", ["stray", "damaged"])
def test_removing_what_has_no_index(array, make_mount, what):
    """No save has failed: of somebody else's file nothing is left over, of a damaged one the next mount frees it."""
    array.damaged = True
    mount = make_mount(array)
    for name in ("file", "other"):
        write_pattern(mount.path / name, 1, 8 * 65536)
    mount.unmount()
    path = tree_of(array) / what
    if what == "damaged":
        os.rename(tree_of(array) / "other", path)
        flip(path, 20)
        flip(path, path.stat().st_size - 20)  # the end tells, too, whose it is
    else:
        path.write_bytes(b"somebody's own" * 1000)
    mount.start()
    (mount.path / what).unlink()
    log_before = len(mount.log())
    mount.unmount()
    last = mount.log()[log_before:].splitlines()[-1]
    assert "unmounted, everything is committed" in last
    assert ("could not be freed" in last) == ("cannot free" in mount.log()) == (what == "damaged")
    mount.start()
    assert is_pattern(mount.path / "file", 1, 8 * 65536)
    mount.unmount()
    assert len(objects_of(array)) == (4 if what == "damaged" else 8)
    array.assert_clean()


@pytest.mark.P3
@pytest.mark.chunk_size(65536)
def test_export_of_what_is_left(array, make_mount, tmp_path):
    """fpfs export reads an unmounted array, all of a whole file, with --partial what survives of a damaged one."""
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "good", 1, 8 * 65536 + 5)
    write_pattern(mount.path / "bad", 2, 8 * 65536)
    extent = extents_of(mount, mount.path / "bad")["extents"][3]
    mount.unmount()
    flip(extent["file"], extent["file_offset"])
    buffered = [] if array.direct_io else ["--buffered-members"]
    export = [array.programs.fpfs, "export", *buffered, array.argument]
    run(*export, "good", "-o", tmp_path / "good")
    assert is_pattern(tmp_path / "good", 1, 8 * 65536 + 5)
    result = run(*export, "bad", "-o", tmp_path / "bad", check=False)
    assert result.returncode != 0
    result = run(*export, "--partial", "bad", "-o", tmp_path / "bad", check=False)
    content, expected = (tmp_path / "bad").read_bytes(), pattern(2, 0, 8 * 65536)
    assert len(content) == len(expected), result.stderr
    different = {index // 65536 for index in range(0, len(expected), 64)
                 if content[index:index + 64] != expected[index:index + 64]}
    assert different == {3}


def tree_of(array):
    return next(member / "tree" for member in array.members if (member / "tree").is_dir())


def objects_of(array):
    return {path: path.stat().st_size for member in array.members for path in member.glob("objects/*/*")}


@pytest.mark.P7
@pytest.mark.chunk_size(65536)
@pytest.mark.parametrize("left", ["all but 20 bytes", "header", "nothing"])
def test_a_sidecar_cut_after_a_clean_end_frees_nothing(array, make_mount, left):
    """Neither fsck -p nor a mount takes it for what a crash leaves; where it can be told, -y sets it aside."""
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 16 * 65536)
    write_pattern(mount.path / "fine", 2, 4 * 65536)
    mount.unmount()
    sidecar = tree_of(array) / "file"
    objects = objects_of(array)
    os.truncate(sidecar, {"all but 20 bytes": sidecar.stat().st_size - 20, "header": 128, "nothing": 0}[left])
    size = sidecar.stat().st_size

    status, report = array.fsck_report("-p")
    assert status == 4 and report["repaired"] == 0
    if left == "nothing":  # like an empty file: its objects are what tells
        assert {error["kind"] for error in report["errors"]} == {"orphan"} and report["orphans"] > 0
        assert all("ended cleanly" in error["detail"] for error in report["errors"])
        assert objects_of(array) == objects
        return
    assert [(error["path"], error["kind"]) for error in report["errors"]] == [("/file", "sidecar")]
    assert objects_of(array) == objects and sidecar.stat().st_size == size

    for _ in range(2):  # the second mount recovers after a crash
        mount.start()
        with pytest.raises(OSError) as refused:
            (mount.path / "file").read_bytes()
        assert refused.value.errno == errno.EIO
        assert (mount.path / "file").stat().st_size == 1
        archived = run("tar", "-c", "-f", "-", "-C", mount.path, "file", check=False)
        assert archived.returncode == 2 and "Input/output error" in archived.stderr, "not as an empty one"
        assert is_pattern(mount.path / "fine", 2, 4 * 65536)
        assert "cut short or damaged" in mount.log()
        mount.kill()
    assert objects_of(array) == objects
    # A new mode and another name change what tells that nobody was writing it.
    mount.start()
    os.chmod(mount.path / "file", 0o600)
    os.rename(mount.path / "file", mount.path / "other")
    with pytest.raises(OSError) as refused:
        (mount.path / "other").read_bytes()
    assert refused.value.errno == errno.EIO
    os.rename(mount.path / "other", mount.path / "file")
    mount.unmount()

    status, report = array.fsck_report("-p")
    assert status & 4 and "/file" in {error["path"] for error in report["errors"]}
    status, report = array.fsck_report("-y")
    assert status == 1 and [aside["path"] for aside in report["set_aside"]] == ["/file"]
    assert objects_of(array) == objects
    array.assert_clean()


@pytest.mark.P3
def test_content_in_sidecars_is_verified(array, make_mount):
    mount = make_mount(array)
    count = 300
    for number in range(count):
        write_pattern(mount.path / f"small{number}", number, 512)
    result = run(array.programs.fpfs, "scrub", "start", mount.path, "--wait", "--json")
    found = json.loads(result.stdout)
    assert (found["state"], found["files_done"], found["bytes_done"], found["bytes_total"]) == (
        "finished", count, count * 512, count * 512)
    mount.unmount()
    report = array.assert_clean()
    assert report["bytes_stored"] == report["bytes_verified"] == count * 512


@pytest.mark.P3
@pytest.mark.root
def test_content_in_sidecars_is_read_from_the_drive(drives, faulty, make_array, make_mount):
    """What the drive holds counts, not what caches remember: fpfs verify, scrub and fsck name the file."""
    array = make_array(paths=[faulty.path, *drives.paths[:2]])  # the first member keeps the names
    array.damaged = True
    mount = make_mount(array)
    for name in ("wrong", "right"):
        write_pattern(mount.path / name, len(name), 3000)
    mount.remount()
    fpfs = array.programs.fpfs
    assert run(fpfs, "verify", mount.path).returncode == 0
    (_, place, _), = faulty.where(array.members[0] / "tree" / "wrong")
    # Not through the filesystem, whose cache goes on to hold what was written.
    device = os.open(faulty.device, os.O_RDWR)
    try:
        byte = os.pread(device, 1, place + 1000)
        assert os.pwrite(device, bytes([byte[0] ^ 4]), place + 1000) == 1
        os.fsync(device)
    finally:
        os.close(device)

    assert is_pattern(mount.path / "wrong", 5, 3000), "the test shows nothing when the content was not in a cache"
    result = run(fpfs, "verify", mount.path, check=False)
    assert result.returncode == 4 and "/wrong" in result.stderr and "/right" not in result.stderr, result.stderr
    result = run(fpfs, "scrub", "start", mount.path, "--wait", "--json", check=False)
    found = json.loads(result.stdout)
    assert result.returncode == 4
    assert [(damage["path"], damage["kind"]) for damage in found["damage"]] == [("/wrong", "sidecar")]
    status, report = array.fsck_report("-n", "--verify-data")  # beside the mount
    assert status == 4 and report["bytes_verified"] == report["bytes_stored"] - 3000
    assert [(error["path"], error["kind"]) for error in report["errors"]] == [("/wrong", "sidecar")]
    assert is_pattern(mount.path / "right", 5, 3000)


@pytest.mark.P3
@pytest.mark.chunk_size(65536)
def test_holes_of_any_size_take_no_time(array, make_mount, tmp_path):
    """A chunk at each end of 8 TiB: verifying and exporting it takes as long as two chunks do."""
    mount = make_mount(array)
    size = 8 << 40
    with open(mount.path / "sparse", "wb") as file:
        file.write(pattern(1, 0, 65536))
        file.seek(size - 65536)
        file.write(pattern(1, size - 65536, 65536))
    fpfs = array.programs.fpfs
    found = json.loads(run(fpfs, "verify", "--json", mount.path / "sparse", timeout=60).stdout)
    assert found["clean"] and found["chunks"] == size // 65536
    mount.unmount()
    buffered = [] if array.direct_io else ["--buffered-members"]
    run(fpfs, "export", *buffered, array.argument, "sparse", "-o", tmp_path / "copy", timeout=60)
    with open(tmp_path / "copy", "rb") as copy:
        assert os.fstat(copy.fileno()).st_size == size
        assert os.pread(copy.fileno(), 65536, 0) == pattern(1, 0, 65536)
        assert os.pread(copy.fileno(), 65536, size - 65536) == pattern(1, size - 65536, 65536)
