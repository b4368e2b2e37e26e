"""What is shown at a terminal while something takes long, and what is left there: nothing."""
import json
import re
import signal

import pytest

from lab.data import is_pattern, write_pattern
from lab.programs import run
from lab.system import wait_until
from lab.terminal import Terminal, screen

CHUNK = 64 * 1024
COLUMNS = 50


@pytest.fixture
def at_terminal(binaries):
    """at_terminal(program, words...): it, in a window."""
    return lambda program, *words, **options: Terminal(getattr(binaries, program), *words, columns=COLUMNS, **options)


def assert_shown(terminal, pattern):
    """Lines that fit the window, over each other."""
    lines = terminal.drawn()
    assert any(re.search(pattern, line) for line in lines), terminal.text
    assert all(len(line) < COLUMNS for line in lines), lines


def write_files(mount):
    for number in range(3):
        write_pattern(mount.path / f"file{number}", number, 24 * CHUNK)


@pytest.mark.chunk_size(CHUNK)
def test_of_a_mount(mount, binaries, at_terminal):
    write_files(mount)
    paths = [mount.path / f"file{number}" for number in range(3)]
    verify = at_terminal("fpfs", "verify", *paths, stdout_too=True)
    assert verify.wait() == 0
    assert_shown(verify, r"^[\d.]+ ([KM]i)?B")
    assert screen(verify.text) == [f"{path}: 24 chunks, as written" for path in paths] + [""]
    quiet = at_terminal("fpfs", "verify", "--quiet", mount.path)
    assert quiet.wait() == 0 and quiet.text == ""
    assert run(binaries.fpfs, "verify", "--json", mount.path).stderr == ""

    scrub = at_terminal("fpfs", "scrub", "start", "--wait", "--limit", "256K", mount.path)
    wait_until(lambda: any("/s" in line for line in scrub.drawn()))  # not yet in the first line
    scrub.process.send_signal(signal.SIGINT)
    assert scrub.wait() == 1
    assert_shown(scrub, r"^[\d.]+ [KM]?i?B( of 4.5 MiB \(\d+.\d %\))?, .+/s")
    assert screen(scrub.text) == ["fpfs scrub: interrupted; the scrub goes on (fpfs scrub pause)", ""]
    assert json.loads(run(binaries.fpfs, "scrub", "status", "--json", mount.path).stdout)["state"] == "running"
    run(binaries.fpfs, "scrub", "cancel", mount.path)
    assert run(binaries.fpfs, "scrub", "start", "--wait", mount.path).stderr == ""


@pytest.mark.chunk_size(CHUNK)
def test_of_an_array_that_is_not_mounted(array, make_mount, binaries, buffered, at_terminal, tmp_path):
    mount = make_mount(array)
    write_files(mount)
    mount.unmount()
    check = [*buffered, "--verify-data", "--json", array.argument]
    fsck = at_terminal("fsck", *check)
    assert fsck.wait() == 0 and json.loads(fsck.stdout)["clean"]
    assert_shown(fsck, r"^4.5 MiB of 4.5 MiB \(100.0 %\)")
    assert screen(fsck.text) == [""]
    silent = at_terminal("fsck", "--no-progress", *check)
    assert silent.wait() == 0 and silent.text == ""

    words = ["export", *buffered, array.argument, "file1", "-o", tmp_path / "copy"]
    export = at_terminal("fpfs", *words)
    assert export.wait() == 0 and export.stdout == "" and is_pattern(tmp_path / "copy", 1, 24 * CHUNK)
    assert_shown(export, r"^1.5 MiB of 1.5 MiB \(100.0 %\)(, .+/s)?$")
    assert screen(export.text) == [""]
    result = run(binaries.fpfs, *words, "--json")
    assert result.stderr == "" and json.loads(result.stdout) == {
        "path": "file1", "output": str(tmp_path / "copy"), "size": 24 * CHUNK, "bytes_lost": 0, "chunks_lost": 0,
        "lost": []}


def test_top_fits_its_window(mount, binaries, at_terminal):
    """Also when it goes on until Ctrl-C, which is what --count 0 means."""
    (mount.path / ("long" * 30)).write_bytes(b"x")
    with open(mount.path / ("long" * 30), "rb"):
        top = at_terminal("fpfs", "top", mount.path, "--interval", "0.1", "--count", "0", rows=8, stdout_too=True)
        wait_until(lambda: top.text.count("\033[2J") >= 3)
        top.process.send_signal(signal.SIGINT)
        assert top.wait() == 0 and top.text.endswith("...\n"), "the shell's prompt begins a line"
        high = at_terminal("fpfs", "top", mount.path, "--interval", "0.1", "--count", "1", rows=60, stdout_too=True)
        assert high.wait() == 0
        wide = Terminal(binaries.fpfs, "top", mount.path, "--interval", "0.1", "--count", "1", stdout_too=True)
        assert wide.wait() == 0
    looks = top.text[:-1].split("\033[H\033[2J")[1:]
    assert all(len(look.split("\n")) == 8 and look.endswith("...") for look in looks), looks
    assert re.search(r"^ *SIZE .* FILE$", high.text, re.MULTILINE) and not high.text.endswith("...\n")
    for look in [*looks, high.text.removeprefix("\033[H\033[2J")]:
        assert max(map(len, look.split("\n"))) <= COLUMNS, look
    assert re.search(r"^MEMBER.* READ/S +WRITTEN/S +ERRORS$", wide.text, re.MULTILINE), wide.text
    assert wide.text.split("\n")[-3].endswith("longlong"), "the end of a path is there"
    lines = run(binaries.fpfs, "top", "--json", mount.path, "--interval", "0.1", "--count", "2").stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert len(json.loads(line)["members"]) == len(mount.array.members)


@pytest.mark.parametrize("verb", ["top", "stats"])
def test_a_count_of_0_ends_at_ctrl_c(mount, at_terminal, verb):
    terminal = at_terminal("fpfs", verb, mount.path, "--interval", "0.1", "--count", "0", rows=60, stdout_too=True)
    wait_until(lambda: terminal.text.count("\n") > 4)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 0 and screen(terminal.text)[-1] == ""
