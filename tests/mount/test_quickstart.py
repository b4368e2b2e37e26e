"""mount-scripts/quickstart: does its job, and leaves nothing behind however it ends."""
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from lab import mount_table
from lab.programs import REPOSITORY, run

SCRIPT = REPOSITORY / "mount-scripts/quickstart"


@pytest.fixture
def start(lab, numbers, binaries):
    """start(*arguments): quickstart in a directory of its own, small."""
    place = lab / f"quickstart{next(numbers)}"
    place.mkdir()
    environment = {**os.environ, "FPFS_QUICKSTART_DIR": str(place), "FPFS_BUILD": str(binaries.build)}
    if "FPFS_VENV" not in environment:
        environment["FPFS_VENV"] = os.path.dirname(os.path.dirname(sys.executable))
    started = []

    def call(*arguments, **changes):
        started.append(subprocess.Popen([SCRIPT, *arguments], env={**environment, **changes}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                        # The tests themselves may run where SIGINT is ignored.
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)))
        return started[-1]

    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        process.stdout.close()
    assert not [entry.path for entry in mount_table.entries() if entry.path.startswith(str(place))]
    assert os.listdir(place) == []


@pytest.mark.time_limit(400)
def test_does_its_job(start):
    process = start("--size", "64")
    said, _ = process.communicate(timeout=390)
    assert process.returncode == 0, said
    for words in ("loaded back bit for bit", "fastpersistfs", "plain directory", "clean", "each by a new process"):
        assert words in said, said
    assert "\r" not in said  # no lines for terminals


def with_progress(lab, command, stdout):
    """A command under with_progress of mount-scripts/lib.sh, as the scripts use it."""
    script = f'program=test; . {REPOSITORY}/mount-scripts/lib.sh; with_progress {lab}/progress "waiting" {command}'
    return subprocess.run(["bash", "-c", f"set -euo pipefail; {script}"], stdout=stdout, timeout=60).returncode


def test_progress_on_a_terminal(lab):
    reader, writer = pty.openpty()
    assert with_progress(lab, "bash -c 'echo first; echo the last line; sleep 2.5'", writer) == 0
    os.close(writer)
    said = b""
    while True:
        try:
            said += os.read(reader, 4096)
        except OSError:  # nobody has the terminal any more
            break
    os.close(reader)
    lines = said.decode().replace("\r\n", "\n").split("\r")
    assert lines[0] == "test: waiting\n" and re.search(r"0m\d\ds  the last line", lines[1]) and "first" not in said.decode()
    assert lines[-1] == "\033[K"


def test_progress_elsewhere(lab):
    with open(lab / "said", "w+") as file:
        assert with_progress(lab, "bash -c 'echo a line; exit 3'", file) == 3
        file.seek(0)
        assert file.read() == "test: waiting\n"
    assert (lab / "progress").read_text() == "a line\n"


@pytest.mark.time_limit(300)
@pytest.mark.parametrize("moment", ["mounting", "trained"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted(start, name, moment):
    process = start("--size", "64")
    for line in process.stdout:
        if moment in line:
            break
    else:
        raise AssertionError("it ended too early")
    time.sleep(0.3)
    os.killpg(process.pid, getattr(signal, name))  # what a terminal does with Ctrl-C: the whole group
    process.stdout.read()
    assert process.wait(timeout=60) in (128 + getattr(signal, name), -getattr(signal, name))


def test_clears_away_what_is_still_written(lab):
    """A daemon ends behind its mount."""
    place = lab / "cleared"
    script = '''
        program=test
        . mount-scripts/lib.sh
        mkdir -p "$1/member/objects"
        (cd "$1/member/objects" && { : >../../begun; for number in $(seq 20000); do : >"$number" || exit 0; done; }) 2>/dev/null &
        until [ -e "$1/begun" ]; do :; done
        clear_away "$1"
        '''
    result = subprocess.run(["bash", "-c", script, "test", place], cwd=REPOSITORY, timeout=60, text=True, stderr=subprocess.PIPE)
    assert result.returncode == 0, result.stderr
    assert not place.exists()


def test_says_what_is_missing(start):
    process = start("--size", "100000000")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and len(said.splitlines()) == 1 and "free" in said, said
    result = run(SCRIPT, "--nonsense", check=False)
    assert result.returncode == 16 and "quickstart [--size" in result.stderr
