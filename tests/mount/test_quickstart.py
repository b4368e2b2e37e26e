"""mount-scripts/quickstart: does its job, and leaves nothing behind however it ends."""
import os
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
    for words in ("loaded back bit for bit", "fastpersistfs", "plain directory", "clean"):
        assert words in said, said


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


def test_says_what_is_missing(start):
    process = start("--size", "100000000")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and len(said.splitlines()) == 1 and "free" in said, said
    result = run(SCRIPT, "--nonsense", check=False)
    assert result.returncode == 16 and "quickstart [--size" in result.stderr
