"""fpfs tune, and the profile that a mount reads."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import xml.etree.ElementTree

import pytest

from command_lines import assert_one_line_error
from lab.array import MountFailed
from lab.data import is_pattern, write_pattern
from lab.programs import run
from lab.system import wait_until
from lab.terminal import Terminal, screen

CHUNK = 64 * 1024
# A run takes a moment; what is found is noise.
SMALL = ["--size", "512K", "--buffer-memory", "32M", "--jobs", "2"]
NAMES = ["queue_depth", "transfer_size", "submit_batch", "workers", "read_ahead"]


@pytest.fixture
def fpfs(binaries, buffered):
    return lambda verb, *arguments: run(binaries.fpfs, verb, *buffered, *arguments, check=False)


@pytest.fixture
def start_tune(binaries, buffered):
    """start_tune(directories): one that is in the middle of measuring; what an earlier one left is not taken for it."""
    def start(directories, *options):
        inside = pathlib.Path(directories.split(":")[-1]) / ".fpfs-tune/array"
        left = os.open(inside, os.O_PATH) if inside.exists() else None  # open, so that its inode is not used again

        def is_measuring():
            with contextlib.suppress(FileNotFoundError):
                is_new = left is None or not os.path.samestat(os.fstat(left), inside.stat())
                return is_new and any(inside.glob("objects/*/*"))
            return False

        process = subprocess.Popen([binaries.fpfs, "tune", *buffered, *SMALL, *options, directories],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: process.poll() is not None or is_measuring())
        if left is not None:
            os.close(left)
        assert process.poll() is None, process.communicate()
        return process
    return start


def options_of(mount, fpfs):
    return json.loads(fpfs("status", "--json", mount.path).stdout)["options"]


def names_in(paths):
    return sorted(entry.name for path in paths for entry in path.iterdir())


def workers_of(mount):
    threads = pathlib.Path(f"/proc/{mount.pid}/task").glob("*/comm")
    return sum(path.read_text().startswith("fpfs-work") for path in threads)


def test_of_an_array_that_has_lost_a_member(fpfs, make_array, make_mount, drives):
    """Removed members keep their numbers, and have no directory."""
    array = make_array(paths=drives.paths[:3])
    array.damaged = True  # with its list of before
    mount = make_mount(array)
    assert fpfs("member", "remove", mount.path, array.members[2]).returncode == 0
    mount.unmount()
    tuned = fpfs("tune", *SMALL, ":".join(map(str, array.members[:2])))
    assert tuned.returncode == 0, tuned.stderr


def test_of_directories_before_they_are_formatted(fpfs, make_array, make_mount, drives, fresh, tmp_path):
    fresh[0].mkdir()  # one: the kernel takes 40 ms to end the queue of each, run by run
    (fresh[0] / "precious").write_text("data")
    profile, chart = tmp_path / "profile", tmp_path / "chart.svg"
    result = fpfs("tune", "--json", *SMALL, "--out", profile, "--svg", chart, fresh[0])
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert names_in(fresh[:1]) == ["precious"]
    found = json.loads(result.stdout)
    assert (found["size"], found["jobs"], found["members"], found["chunk_size"]) == (512 << 10, 2, 1, 1 << 20)
    assert found["profile"] == str(profile) and found["seconds"] > 0
    assert found["default"] == found["finalists"][0]
    assert found["default"]["settings"] == dict(zip(NAMES, [16, 0, 4, 0, 0]))
    assert found["chosen"] in found["finalists"] and found["is_default"] == (found["chosen"] == found["default"])
    for what in ("write", "read"):
        best = found[f"best_{what}"][what]["bytes_per_second"]
        assert best == max(final[what]["bytes_per_second"] for final in found["finalists"])
        assert found["chosen"][what]["bytes_per_second"] >= 0.98 * found["default"][what]["bytes_per_second"] > 0
        assert {final[what]["runs"] for final in found["finalists"]} == {found["default"][what]["runs"]}
    counted = [entry[what]["runs"] for entry in found["finalists"] + found["searched"] for what in ("write", "read")
               if entry[what]]
    assert sum(counted) == found["runs"] - 1
    tried = {name: {entry["settings"][name] for entry in found["searched"]} for name in NAMES}
    assert all(len(values) > 1 for values in tried.values()), tried

    lines = [line for line in profile.read_text().splitlines() if not line.startswith("#")]
    assert [line.split("=")[0] for line in lines] == NAMES
    assert xml.etree.ElementTree.parse(chart).getroot().tag.endswith("svg")
    assert names_in([tmp_path]) == ["chart.svg", "profile"]

    mount = make_mount(make_array(paths=drives.paths[:1]), f"profile={profile}")
    options = options_of(mount, fpfs)
    chosen = found["chosen"]["settings"]
    assert options["profile"] == str(profile)
    assert [options[name] for name in NAMES[:3]] == [chosen[name] for name in NAMES[:3]]
    assert options["workers"] == (chosen["workers"] or max(8, os.cpu_count()))
    assert f"profile={profile}" in fpfs("status", mount.path).stdout


@pytest.mark.chunk_size(4 * CHUNK)
def test_a_mount_takes_what_a_profile_says(fpfs, array, make_mount, tmp_path):
    profile = tmp_path / "profile"
    profile.write_bytes(b"# by hand\r\nqueue_depth = 5\r\n\ntransfer_size=64K\nsubmit_batch=1\nworkers=3\nread_ahead=7")
    mount = make_mount(array, f"profile={profile}")
    options = options_of(mount, fpfs)
    assert [options[name] for name in NAMES] == [5, CHUNK, 1, 3, 7]
    assert workers_of(mount) == 3
    write_pattern(mount.path / "file", 1, 21 * CHUNK + 1000)
    mount.unmount()
    mount = make_mount(array, "workers=2,submit_batch=9", f"profile={profile}", "queue_depth=6")
    options = options_of(mount, fpfs)
    assert [options[name] for name in NAMES] == [6, CHUNK, 9, 2, 7]
    assert workers_of(mount) == 2
    assert is_pattern(mount.path / "file", 1, 21 * CHUNK + 1000)
    mount.unmount()
    mount = make_mount(array)
    assert options_of(mount, fpfs)["profile"] == "" and "profile" not in fpfs("status", mount.path).stdout
    assert is_pattern(mount.path / "file", 1, 21 * CHUNK + 1000)


def test_a_profile_that_is_wrong_is_named(array, make_mount, tmp_path):
    profile = tmp_path / "profile"
    for content, words in ((b"workers=1\nqueue_depth=4096\n", "line 2: option queue_depth is '4096'; it must be"),
                           (b"\x7fELF\0\0\n", "line 1: it is no text"), (None, "there is no such file; fpfs tune")):
        profile.unlink(missing_ok=True)
        if content is not None:
            profile.write_bytes(content)
        with pytest.raises(MountFailed) as failed:
            make_mount(array, f"profile={profile}")
        assert f"profile {profile}: " in str(failed.value) and words in str(failed.value)


@pytest.mark.chunk_size(CHUNK)
def test_what_a_killed_run_leaves_harms_nobody(fpfs, array, make_mount, start_tune):
    mount = make_mount(array)
    write_pattern(mount.path / "file", 1, 9 * CHUNK)
    assert_one_line_error(fpfs("tune", *SMALL, array.argument), 1, mount.pid)
    mount.unmount()
    before = names_in(array.members)

    process = start_tune(array.argument)
    assert_one_line_error(fpfs("tune", *SMALL, array.argument), 1, f"held by process {process.pid} (", "fpfs tune",
                          "; wait for its end")
    process.kill()
    process.communicate()
    assert names_in(array.members) == sorted(before + [".fpfs-tune"] * len(array.members))
    array.assert_clean()
    mount = make_mount(array)
    assert os.listdir(mount.path) == ["file"] and is_pattern(mount.path / "file", 1, 9 * CHUNK)
    mount.unmount()

    # The next one clears it away; and so does one that is interrupted.
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start_tune(array.argument)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output, errors) == (1, "", "fpfs tune: interrupted\n")
        assert names_in(array.members) == before


def test_the_run_it_is_at_is_shown_at_a_terminal(binaries, buffered, fresh):
    fresh[0].mkdir()
    tune = Terminal(binaries.fpfs, "tune", *buffered, *SMALL, fresh[0], columns=50)
    wait_until(lambda: len(tune.drawn()) > 1)
    tune.process.send_signal(signal.SIGINT)
    assert tune.wait() == 1
    assert all(re.match(r"run \d+, (write|read): [a-z]", line) and len(line) < 50 for line in tune.drawn()), tune.text
    assert screen(tune.text) == ["fpfs tune: interrupted", ""]
    assert names_in(fresh[:1]) == []


def test_refusals(fpfs, fresh, members, tmp_path):
    assert_one_line_error(fpfs("tune", *SMALL, members), 1, fresh[0], "no such directory")
    for path in fresh:
        path.mkdir()
    for verb in ("tune", "bench"):
        assert_one_line_error(fpfs(verb, *fresh[:2]), 16, f"which are one argument: {fresh[0]}:{fresh[1]}")
    here = fresh[0] / ".fpfs-tune"
    assert_one_line_error(fpfs("tune", *SMALL, f"{fresh[0]}:{fresh[0]}/../{fresh[0].name}"), 16, "the same directory")
    assert_one_line_error(fpfs("tune", "--size", "500T", members), 1, "smaller --size")
    for verb in ("tune", "bench"):
        assert_one_line_error(fpfs(verb, "--buffer-memory", "900T", members), 16, "more than this machine has")
    assert_one_line_error(fpfs("tune", *SMALL, "/proc/self"), 1, "/proc/self")
    assert_one_line_error(fpfs("tune", "--size", "1M", "--buffer-memory", "1M", members), 16, "buffer_memory")
    for out in (tmp_path, tmp_path / "no" / "file", "/dev/null"):
        assert_one_line_error(fpfs("tune", *SMALL, "--out", out, members), 1, out)
    assert f"mkdir -p {tmp_path / 'no'}" in fpfs("tune", *SMALL, "--svg", tmp_path / "no" / "file", members).stderr
    for options in (["--size", "1"], ["--size", "1X"], ["--jobs", "0"]):
        assert_one_line_error(fpfs("tune", *options, members), 16)
    assert names_in(fresh) == [] and names_in([tmp_path]) == []

    here.mkdir()
    (here / "notes").write_text("mine")
    assert_one_line_error(fpfs("tune", *SMALL, members), 1, here, "notes")
    assert (here / "notes").read_text() == "mine"
    (here / "notes").unlink()
    held = os.open(here, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert_one_line_error(fpfs("tune", *SMALL, members), 1, fresh[0], "another fpfs tune")
    os.close(held)
    here.rmdir()
    here.symlink_to(tmp_path)
    assert_one_line_error(fpfs("tune", *SMALL, members), 1, here)
    here.unlink()
