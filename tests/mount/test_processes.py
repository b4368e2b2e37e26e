"""Processes that read, write, map, truncate and punch one file at the same time: none sees content that is older than what it
may see, and what a completed write wrote is there at the end (tests/lab/coherence.cpp checks every byte against a model)."""
import contextlib
import json
import random
import subprocess

import pytest

from lab import LONG
from lab.machine_setting import RINGS_OFFERED, changed, rings_can_be_offered

pytestmark = pytest.mark.P6

SECONDS = 60 if LONG else 2

ROLES = {
    "through": "write-rdwr open open read",
    "beside": "write-wronly map-write open open read",
    "past": "write-wronly write-direct read open open",
    "submitted": "submit-rdwr submit-wronly read read open open read-direct map-read",
    "all": "write-rdwr write-wronly write-direct read read-direct open open map-write map-read truncate open-trunc punch",
}

MOUNTS = {"default": (), "threads": ("threads=16",), "rings": ("io_uring",)}


@pytest.fixture
def play(binaries, lab, numbers):
    """play(file, roles): what the processes did and found. Once more with again(): what is there now."""
    model = lab / f"model{next(numbers)}"
    program = binaries.build / "tests/coherence"

    def run(file, roles):
        seed = random.SystemRandom().randrange(1 << 32)
        result = subprocess.run([program, file, model, str(SECONDS), str(seed), *roles.split()], capture_output=True, text=True)
        print(f"seed {seed}: {result.stdout}{result.stderr}")
        return result.returncode, json.loads(result.stdout)

    run.again = lambda file: subprocess.run([program, "--check", file, model]).returncode
    yield run
    model.unlink(missing_ok=True)


def assert_right(outcome):
    status, found = outcome
    assert (status, found["wrong"], found["wrong_at_rest"], found["failed"], found["died"]) == (0, 0, 0, 0, 0), found
    assert found["reads"] > 100 and found["writes"] + found["stores"] > 0


@pytest.mark.parametrize("roles", ROLES)
def test_the_drives_own_filesystem_passes(play, native, roles):
    """So the model asks for no more than any local filesystem gives. (A read beside a truncation may fail there: XFS, EIO.)"""
    _, found = play(native / "file", ROLES[roles])
    assert (found["wrong"], found["wrong_at_rest"], found["died"]) == (0, 0, 0), found
    assert found["reads"] > 100 and found["writes"] + found["stores"] > 0


# With rings, so has every mount that begins meanwhile.
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.alone if kind == "rings" else ()) for kind in MOUNTS])
@pytest.mark.parametrize("roles", ROLES)
def test_no_read_sees_what_was_there_before(play, array, make_mount, kind, roles):
    if kind == "rings" and not rings_can_be_offered():
        pytest.skip("FUSE over io_uring cannot be had on this machine")
    with changed(RINGS_OFFERED, "Y") if kind == "rings" else contextlib.nullcontext():
        mount = make_mount(array, *MOUNTS[kind])
        assert_right(play(mount.path / "file", ROLES[roles]))
        mount.remount()
        assert play.again(mount.path / "file") == 0
