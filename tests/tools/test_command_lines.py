"""--help, --version and usage errors of all programs."""
import re

import pytest

from command_lines import assert_one_line_error
from lab.programs import run

VERBS = ["status", "top", "stats", "stat", "map", "sync", "verify", "tier", "umount", "export", "bench", "tune"]


@pytest.mark.parametrize("name", ["mkfs", "fsck", "fpfs"])
def test_version(binaries, name):
    program = getattr(binaries, name)
    result = run(program, "--version")
    assert re.fullmatch(rf"{re.escape(program.rsplit('/', 1)[1])} \(fastpersistfs\) \d+\.\d+\.\d+\n", result.stdout)
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["mkfs", "fsck", "fpfs"])
def test_help(binaries, name):
    result = run(getattr(binaries, name), "--help")
    assert "--help" in result.stdout and "--version" in result.stdout
    assert result.stderr == ""


def test_help_names_every_verb(binaries):
    text = run(binaries.fpfs, "--help").stdout
    for verb in VERBS:
        assert re.search(rf"^\s+{verb} ", text, re.MULTILINE), verb


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_have_help_and_version(binaries, verb):
    assert "--help" in run(binaries.fpfs, verb, "--help").stdout
    assert "(fastpersistfs)" in run(binaries.fpfs, verb, "--version").stdout


@pytest.mark.parametrize("verb", ["frobnicate", "scrubb", ""])
def test_unknown_verbs(binaries, verb):
    assert_one_line_error(run(binaries.fpfs, verb, "/tmp", check=False), 16, f"'{verb}'", *VERBS)


def test_no_verb(binaries):
    assert_one_line_error(run(binaries.fpfs, check=False), 16, *VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_refuse_missing_arguments_and_unknown_options(binaries, verb):
    assert_one_line_error(run(binaries.fpfs, verb, check=False), 16, "fpfs: ")
    assert_one_line_error(run(binaries.fpfs, verb, "--bogus", "/tmp", "/tmp", check=False), 16, "fpfs: ")


def test_output_that_cannot_be_written_is_a_failure(binaries):
    for name in ("mkfs", "fsck", "fpfs"):
        with open("/dev/full", "w") as full:
            import subprocess
            result = subprocess.run([getattr(binaries, name), "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode in (1, 8)
        assert len(result.stderr.splitlines()) == 1
