"""fsck.fastpersistfs: exit codes, JSON and repairs, on arrays that were damaged by hand."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from command_lines import assert_one_line_error
from lab.array import MountFailed
from lab.data import write_pattern
from lab.programs import run

KEYS = ["clean", "files", "chunks", "bytes_stored", "bytes_verified", "seconds", "orphans", "meta_dir", "errors",
        "repaired", "set_aside", "empty_files"]
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
            assert [key for key in error if key != "healing"] == ERROR_KEYS
            assert error.get("healing") in (None, "lost"), "this array has no copies"
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


@pytest.mark.P3
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


@pytest.mark.P3
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
    assert "NOT restored" in result.stdout and "epaired" not in result.stdout
    lost = error["chunk"]
    kept = [f"{begin}-{end - 1}" for begin, end in ((0, lost * CHUNK), ((lost + 1) * CHUNK, SIZE)) if begin < end]
    assert re.search(rf"^/model.pt: set aside as lost.found/\S+; of its {SIZE} bytes survive: {', '.join(kept)}$",
                     result.stdout, re.MULTILINE), result.stdout
    code, found = report("-n", "--verify-data")
    assert code == 0 and found["clean"] and found["files"] == 0


@pytest.mark.chunk_size(CHUNK)
def test_an_orphan_is_removed_by_p(filled, report, fsck):
    original = objects_of(filled)[0]
    name = original.name
    orphan = original.with_name(f"{int(name[:16], 16) ^ (1 << 40):016x}{name[16:]}")
    shutil.copy(original, orphan)
    code, found = report("-n")
    assert code == 4 and found["orphans"] == 1
    assert [error["kind"] for error in found["errors"]] == ["orphan"]
    assert orphan.exists()
    result = fsck("-n")
    assert "DAMAGED" not in result.stdout and re.search("^Result: +1 leftover .* -p removes it$", result.stdout, re.M)
    code, found = report("-p")
    assert code == 1 and found["repaired"] == 1
    assert not orphan.exists() and original.exists()
    assert report("-n")[0] == 0


def test_an_orphan_beside_an_empty_index_may_be_content(filled, make_mount, fsck):
    """Nobody can tell that index from one that was cut to nothing."""
    mount = make_mount(filled)
    (mount.path / "empty").touch()
    mount.unmount()
    original = objects_of(filled)[0]
    shutil.copy(original, original.with_name(f"{int(original.name[:16], 16) ^ (1 << 40):016x}{original.name[16:]}"))
    assert "DAMAGED: 1 error" in fsck("-n").stdout and "DAMAGED: 1 error" in fsck("-p").stdout


def test_strays_in_a_member(array, report, fsck):
    """Named with what to do, and never removed."""
    array.damaged = True
    strays = [array.members[0] / "objects/00/a", array.members[1] / "objects/b", array.members[0] / "tree/c"]
    for stray in strays:
        stray.write_text("mine")
    for repair in ("-n", "-p", "-y"):
        code, found = report(repair)
        assert code == 4
        assert [error["kind"] for error in found["errors"]] == ["foreign"] * 3
        assert all("move it elsewhere" in error["detail"] for error in found["errors"])
        assert any(str(strays[0]) in error["detail"] for error in found["errors"])
    assert all(stray.read_text() == "mine" for stray in strays)
    # What has a name in the tree may have been a file; what lies beside objects harms none.
    assert "DAMAGED: 1 error; 2 entries of members are not the array's" in fsck("-n").stdout
    strays[2].unlink()
    result = fsck("-n")
    assert result.returncode == 4 and "DAMAGED" not in result.stdout and "move them elsewhere" in result.stdout


@pytest.mark.parametrize("name", ["mkfs", "fsck"])
def test_directories_are_one_argument(binaries, fresh, name):
    result = run(getattr(binaries, name), *fresh, check=False)
    assert_one_line_error(result, 16, "one argument: " + ":".join(map(str, fresh)))
    text = run(getattr(binaries, name), "--help").stdout
    assert re.search(r"^Usage: .* DIRS$", text, re.MULTILINE) and re.search("^  DIRS  ", text, re.MULTILINE), text
    assert not any(path.exists() for path in fresh)


@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
def test_some_corrected_some_left(filled, report):
    original = objects_of(filled)[0]
    orphan = original.with_name(f"{int(original.name[:16], 16) ^ (1 << 40):016x}{original.name[16:]}")
    shutil.copy(original, orphan)
    flip_byte(original, 5)
    assert report("-p", "--verify-data")[0] == 1 | 4


@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
def test_beside_a_mount(filled, make_mount, report, fsck):
    mount = make_mount(filled)
    assert report("-n", "--verify-data")[0] == 0
    for option in ("-p", "-y"):
        assert_one_line_error(fsck(option), 8, f"process {mount.pid} ({filled.programs.mount} ", f"{mount.path}); unmount")


def test_the_mount_point_is_not_the_array(filled, make_mount, binaries, buffered):
    """Whoever names it is told the array's directories, and what looks at it there."""
    mount = make_mount(filled)
    (mount.path / "below").mkdir()
    for path in (mount.path, f"{mount.path}/", mount.path / "below"):
        result = run(binaries.fsck, *buffered, "-n", path, check=False)
        assert_one_line_error(result, 8, f"the array of {filled.argument} is mounted here, at {mount.path}", "fpfs scrub",
                              "fpfs verify", "unmount it first")
    result = run(binaries.fpfs, "export", mount.path, "model.pt", "-o", "/dev/null", check=False)
    assert_one_line_error(result, 16, f"the array of {filled.argument} is mounted here", "copy the file from there")
    mount.process.kill()
    mount.process.wait()
    result = run(binaries.fsck, *buffered, "-n", mount.path, check=False)
    assert_one_line_error(result, 8, f"was mounted here, at {mount.path}, and the daemon of that mount is gone", "umount -l")
    mount.kill()


@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
def test_a_directory_of_objects_is_missing(filled, make_mount, report, fsck):
    """Everything else is checked; what was there is damage until it is put back."""
    place = objects_of(filled)[0].parent
    away = place.parents[1] / "away"
    place.rename(away)
    for option in ("-n", "-p"):
        code, found = report(option)
        assert code == 4 and [error["kind"] for error in found["errors"]] == ["missing-directory", "missing-object"]
        detail = found["errors"][0]["detail"]
        assert f"{place.parent}: 1 of its 256 directories is missing ({place.name})" in detail and "lost+found" in detail
        assert found["errors"][1]["path"] == "/model.pt" and found["files"] == 1
    assert "DAMAGED: 2 errors; bring back from a copy what is named" in fsck("--verify-data").stdout
    away.rename(place)
    assert report("-n", "--verify-data")[0] == 0
    shutil.rmtree(place)
    code, found = report("-y")
    assert code == 1 and found["repaired"] == 1 and len(found["set_aside"]) == 1 and place.is_dir()
    assert place.stat().st_mode & 0o777 == 0o700
    mount = make_mount(filled)
    write_pattern(mount.path / "model.pt", 2, SIZE)
    mount.unmount()
    assert report("-n", "--verify-data")[0] == 0
    shutil.rmtree(filled.members[1] / "objects")
    (filled.members[1] / "objects").mkdir()
    assert "256 of its 256 directories are missing (00, 01, 02, 03, 04, 05, 06, 07, ...)" in fsck("-n").stdout


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
    line = r"([\d.]+ [KM]?i?B of [\d.]+ [KM]?i?B \([\d.]+ %\)(, .+/s(, .+ left)?)?, )?1 file(, \d+ files/s)?"
    result = fsck("--progress", "--verify-data", "--json")
    assert result.returncode == 0
    json.loads(result.stdout)
    lines = result.stderr.splitlines()
    assert lines and all(re.fullmatch(line, text) for text in lines), result.stderr
    assert "(100.0 %)" in lines[-1]
    assert fsck("--verify-data").stderr == ""  # stderr is no terminal


@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
def test_further_names_of_a_damaged_file(filled, make_mount, report, fsck, binaries):
    """Whoever brings back what -n names misses none of them, and -y finds no other."""
    mount = make_mount(filled)
    (mount.path / "a").mkdir()
    write_pattern(mount.path / "a" / "first", 2, SIZE)
    os.link(mount.path / "a" / "first", mount.path / "second")
    mount.unmount()
    tree, = [member / "tree" for member in filled.members if (member / "tree").exists()]
    flip_byte(tree / "a" / "first", 4)
    code, found = report("-n")
    assert code == 4 and {error["path"] for error in found["errors"]} == {"/a/first", "/second"}
    assert "/a/first" in next(error for error in found["errors"] if error["path"] == "/second")["detail"]
    mount = make_mount(filled)
    scrub = run(binaries.fpfs, "scrub", "start", "--wait", "--json", mount.path, check=False)
    damage, = json.loads(scrub.stdout)["damage"]
    assert damage["path"] == "/a/first" and "one of 2 names" in damage["detail"]
    mount.unmount()
    code, found = report("-y")
    assert {error["path"] for error in found["errors"]} == {aside["path"] for aside in found["set_aside"]} == {
        "/a/first", "/second"}
    filled.assert_clean()


@pytest.mark.P7
def test_y_advises_no_y(filled, fsck):
    """What -y cannot mend is not left to -y."""
    tree, = [member / "tree" for member in filled.members if (member / "tree").exists()]
    tree.rename(tree.parent / "elsewhere")
    for option in ("-n", "-y"):
        result = fsck(option)
        verdict = result.stdout[result.stdout.index("Result:"):]
        assert result.returncode == 4 and "-y" not in verdict and "above" in verdict, verdict


@pytest.mark.P7
def test_a_damaged_superblock(array, report, fsck):
    array.damaged = True
    flip_byte(array.members[1] / "superblock", 100)
    code, found = report("-n")
    assert code == 4 and not found["clean"]
    assert "superblock" in {error["kind"] for error in found["errors"]}
    assert str(array.members[1]) in fsck("-n").stdout


def lose_superblock(member, how):
    if how == "missing":
        (member / "superblock").unlink()
    else:
        flip_byte(member / "superblock", 100)


@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
@pytest.mark.parametrize("index, how", [(0, "missing"), (0, "damaged"), (2, "missing"), (3, "damaged")])
def test_a_lost_superblock_is_made_again(filled, make_mount, index, how):
    """-n says that it can be, mount says what to do, -y does it: the bytes are those of before."""
    before = (filled.members[index] / "superblock").read_bytes()
    lose_superblock(filled.members[index], how)
    for option in ("-n", "-p"):
        status, found = filled.fsck_report(option)
        assert status == 4 and [error["kind"] for error in found["errors"]] == ["superblock"]
        assert found["errors"][0]["member"] == index
        assert str(filled.members[index]) in found["errors"][0]["detail"] and "-y" in found["errors"][0]["detail"]
    with pytest.raises(MountFailed, match="fsck.fastpersistfs -y"):
        make_mount(filled)
    status, found = filled.fsck_report("-y")
    assert status == 1 and found["repaired"] == 1 and found["files"] > 0
    assert (filled.members[index] / "superblock").read_bytes() == before
    filled.assert_clean()
    make_mount(filled)


@pytest.mark.P7
@pytest.mark.parametrize("has_copy", [True, False])
def test_a_superblock_is_lost_with_its_copies(filled, make_mount, has_copy):
    """A copy on another member will do: mount says what fsck says."""
    for member in filled.members[:1] if has_copy else filled.members:
        (member / "superblocks").unlink()
    lose_superblock(filled.members[0], "missing")
    with pytest.raises(MountFailed, match="fsck.fastpersistfs -y makes" if has_copy else "holds .* but no superblock"):
        make_mount(filled)
    status, found = filled.fsck_report("-n")
    assert status == 4 and ("-y makes" in found["errors"][0]["detail"]) == has_copy
    assert filled.fsck("-y").returncode == (1 if has_copy else 4)


@pytest.mark.P7
@pytest.mark.parametrize("members", [1, 4])
def test_all_superblocks_are_lost(make_array, drives, make_mount, members):
    """Every member has what it takes to tell who it is, also when there is only one."""
    array = make_array(paths=drives.paths[:members])
    mount = make_mount(array)
    (mount.path / "file").write_bytes(b"content")
    mount.unmount()
    for member in array.members:
        lose_superblock(member, "missing")
    assert array.fsck_report("-n")[0] == 4
    status, found = array.fsck_report("-y")
    assert status == 1 and found["repaired"] == members
    mount = make_mount(array)
    assert (mount.path / "file").read_bytes() == b"content"


@pytest.mark.P7
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_the_metadata_directorys_superblock(make_array, make_mount, drives, fresh, how):
    names = fresh[1]
    array = make_array(paths=drives.paths[:2], format_options=("--meta-dir", str(names)))
    mount = make_mount(array)
    (mount.path / "file").write_bytes(b"content")
    mount.unmount()
    lose_superblock(names, how)
    status, found = array.fsck_report("-n")
    assert status == 4 and str(names) in found["errors"][0]["detail"]
    assert array.fsck_report("-y")[0] == 1
    mount.start()
    assert (mount.path / "file").read_bytes() == b"content"
    mount.unmount()
    array.damaged = True  # the fixture takes the names away first


@pytest.mark.P7
def test_a_copy_of_an_array_with_its_names_elsewhere(binaries, make_array, make_mount, drives, fresh, tmp_path, buffered):
    """Its superblocks know the original's names: those are not taken for its own in silence."""
    names = fresh[1]
    array = make_array(paths=drives.paths[:2], format_options=("--meta-dir", str(names)))
    array.damaged = True
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, SIZE)
    mount.unmount()
    copies = [tmp_path / name for name in ("a", "b", "names")]
    for original, copy in zip([*array.members, names], copies):
        shutil.copytree(original, copy)

    def fsck(*options):
        return run(binaries.fsck, "-n", "--verify-data", "--buffered-members", *options, f"{copies[0]}:{copies[1]}",
                   check=False)

    own = ("--meta-dir", copies[2])
    assert f"{names} (--meta-dir names another)" in fsck().stdout
    for mounted in (True, False):
        if mounted:
            mount.start()
            write_pattern(mount.path / "file", 2, SIZE)
        else:
            mount.unmount()
        result = fsck()
        assert result.returncode == 4 and "or the right names (--meta-dir)" in result.stdout, result.stdout
        assert f"{names} (--meta-dir names another)" in result.stdout
        assert fsck(*own).returncode == 0
    result = fsck(*own)
    assert result.returncode == 0 and f"{copies[2]} (" in result.stdout
    refused = run(binaries.fpfs, "export", *buffered, f"{copies[0]}:{copies[1]}", "file", "-o", tmp_path / "out", check=False)
    assert refused.returncode == 1 and f"The names are of {names}" in refused.stderr, refused.stderr


@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
def test_a_superblock_is_never_guessed(filled, make_mount):
    """A directory that does not show which member it is, or is not what it shows, gets none."""
    filled.damaged = True
    member = filled.members[2]
    (member / "superblock").unlink()
    whole = (member / "mount").read_bytes()

    def refused():
        status, found = filled.fsck_report("-y")
        assert status == 4 and found["repaired"] == 0 and not (member / "superblock").exists()
        assert found["errors"][0]["kind"] == "superblock" and "no copy" in found["errors"][0]["detail"]

    (member / "mount").write_bytes(whole[:-1] + b"x")
    refused()
    (member / "mount").write_bytes((filled.members[1] / "mount").read_bytes())  # says that it is another
    refused()
    (member / "mount").write_bytes(whole)
    (member / "objects").rename(member / "elsewhere")
    refused()
    (member / "elsewhere").rename(member / "objects")
    (member / ".fastpersistfs-former").mkdir()  # being formatted anew
    refused()
    (member / ".fastpersistfs-former").rmdir()
    # The member's own copies are not needed: the others have them.
    (member / "superblocks").unlink()
    assert filled.fsck_report("-y")[0] == 1
    make_mount(filled).unmount()
    assert (member / "superblocks").read_bytes() == (filled.members[0] / "superblocks").read_bytes()
    filled.assert_clean()


@pytest.mark.P7
def test_an_array_of_before_gets_its_copies_at_a_mount(array, make_mount):
    for member in array.members:
        (member / "superblocks").unlink()
    make_mount(array).unmount()
    lose_superblock(array.members[3], "damaged")
    assert array.fsck_report("-y")[0] == 1
    make_mount(array)


@pytest.mark.P7
def test_an_old_member_stays_old_with_a_new_superblock(array, make_mount):
    """What age a directory has is not the superblock's to say."""
    array.damaged = True
    member = array.members[1]
    before = (member / "mount").read_bytes()
    make_mount(array).unmount()
    (member / "mount").write_bytes(before)
    (member / "superblock").unlink()
    status, found = array.fsck_report("-y")
    assert status == 5 and [error["kind"] for error in found["errors"]] == ["superblock", "older-member"]
    verdict = array.fsck("-n").stdout
    assert "INCOMPLETE: 1 member is older than the others" in verdict and "DAMAGED" not in verdict


@pytest.mark.P7
@pytest.mark.chunk_size(CHUNK)
@pytest.mark.parametrize("index", [0, 2])
def test_a_lost_mount_record(filled, make_mount, index):
    """Made again where all of the array fits together, which it would not with an old member."""
    member = filled.members[index]
    (member / "mount").unlink()
    for option in ("-n", "-p"):
        status, found = filled.fsck_report(option)
        assert status == 4 and [error["kind"] for error in found["errors"]] == ["mount-record"]
    with pytest.raises(MountFailed, match="mount record is missing"):
        make_mount(filled)
    object_path = objects_of(filled)[0]
    away = object_path.parents[2] / "away"
    object_path.rename(away)
    status, found = filled.fsck_report("-y")
    assert status == 4 and found["repaired"] == 0
    assert {"mount-record", "missing-object"} == {error["kind"] for error in found["errors"]}
    away.rename(object_path)
    status, found = filled.fsck_report("-y")
    assert status == 1 and found["repaired"] == 1
    make_mount(filled).unmount()
    filled.assert_clean()


@pytest.mark.P7
def test_the_member_with_the_names_is_missing(filled, binaries, buffered, tmp_path):
    others = ":".join(map(str, filled.members[1:]))
    for command in ([binaries.fsck, *buffered, others], [binaries.mount, "-o", "ro,degraded", others, tmp_path]):
        result = run(*command, check=False)
        assert result.returncode != 0 and "names of all its files" in result.stdout + result.stderr


@pytest.mark.P7
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
        text = run(binaries.fsck, *buffered, option, others, check=False).stdout
        assert "/model.pt" not in text and "INCOMPLETE: 1 member is missing" in text and "DAMAGED" not in text
        assert len([line for line in text.splitlines() if "missing-member" in line and "A:B:C" in line]) == 1
        assert ("not looked at" in text) == (option != "-n")


@pytest.mark.P7
def test_no_such_directory(binaries, fresh):
    assert_one_line_error(run(binaries.fsck, "-n", fresh[0], check=False), 8, fresh[0])


@pytest.mark.P7
def test_a_directory_that_is_no_member(binaries, fresh):
    fresh[0].mkdir()
    assert_one_line_error(run(binaries.fsck, "-n", fresh[0], check=False), 8, fresh[0])


@pytest.mark.parametrize("options", [["-n", "-p"], ["-n", "-y"], ["-p", "-y"], ["--bogus"], ["-x"],
                                     ["--progress", "--no-progress"]])
def test_usage_errors(fsck, options):
    assert_one_line_error(fsck(*options), 16, "fsck.fastpersistfs: ")


@pytest.mark.P7
@pytest.mark.parametrize("directories", [[], [""], ["/a:"], ["/a", "/b"]])
def test_directories_that_make_no_sense(binaries, directories):
    assert_one_line_error(run(binaries.fsck, *directories, check=False), 16, "fsck.fastpersistfs: ")
