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


def test_a_misspelt_verb_is_named(binaries):
    assert_one_line_error(run(binaries.fpfs, "scrubb", "/tmp", check=False), 16, "'scrubb'", "did you mean scrub?")


def test_no_verb(binaries):
    assert_one_line_error(run(binaries.fpfs, check=False), 16, *VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_refuse_missing_arguments_and_unknown_options(binaries, verb):
    assert_one_line_error(run(binaries.fpfs, verb, check=False), 16, "fpfs: ")
    assert_one_line_error(run(binaries.fpfs, verb, "--bogus", "/tmp", "/tmp", check=False), 16, "fpfs: ")


@pytest.mark.parametrize("name, words, parts", [
    ("mkfs", "--chunk_size 1M DIR", ["'--chunk_size'", "did you mean --chunk-size?", "(see mkfs.fastpersistfs --help)"]),
    ("mkfs", "--chunk_size=1M DIR", ["'--chunk_size'", "did you mean --chunk-size?"]),
    ("mkfs", "--label -x --froce DIR", ["'--froce'", "did you mean --force?"]),  # -x is a value
    ("fsck", "-q DIR", ["unknown option '-q' (see fsck.fastpersistfs --help)"]),
    ("fsck", "--verify DIR", ["did you mean --verify-data?"]),
    ("fpfs", "scrub start --limt 4M DIR", ["'--limt'", "did you mean --limit?", "(see fpfs scrub --help)"]),
    ("fpfs", "member remove DIR x --cancl", ["'--cancl'", "did you mean --cancel?", "(see fpfs member --help)"]),
    ("fpfs", "status --verson DIR", ["did you mean --version?"]),  # of the program, which verbs take, too
    ("fpfs", "status --bogus 3 DIR", ["unknown option '--bogus' (see fpfs status --help)"]),
    ("fpfs", "status --- DIR", ["unknown option '---' (see fpfs status --help)"]),
    ("mkfs", "--=1M DIR", ["unknown option '--' (see mkfs.fastpersistfs --help)"]),
    ("fpfs", "--bogus", ["unknown option '--bogus' (see fpfs --help)"]),
    ("fpfs", "status", ["MOUNTPOINT is required (see fpfs status --help)"]),
    ("fpfs", "bench --size 1X DIR", ["'1X' is no size", "(see fpfs bench --help)"]),
    ("fpfs", "status DIR -- --jsn", ["--jsn", "(see fpfs status --help)"]),  # an argument too many
])
def test_a_misspelt_option_is_named(binaries, tmp_path, name, words, parts):
    words = [str(tmp_path) if word == "DIR" else word for word in words.split()]
    assert_one_line_error(run(getattr(binaries, name), *words, check=False), 16, *parts)
    assert not any(tmp_path.iterdir())


def test_every_refusal_of_a_value_says_what_may_be(binaries, tmp_path):
    """Of each option that takes no name of a file or text: its range, its words, or an example."""
    shown = re.compile(r"^  (?:-\w, )?--([a-z-]+) ([A-Z]+|[A-Z]*\S*\|\S+)  ", re.M)
    told = {}
    calls = {verb: [binaries.fpfs, verb] for verb in re.findall(r"^  ([a-z]+) ", run(binaries.fpfs, "--help").stdout, re.M)}
    calls.update(mkfs=[binaries.mkfs], fsck=[binaries.fsck])
    for name, words in calls.items():
        for option, kind in shown.findall(run(*words, "--help").stdout):
            if kind in ("FILE", "DIR", "TEXT", "ID"):
                continue
            action = {"scrub": ["start"], "member": ["list"], "tier": ["status"]}.get(name, [])
            result = run(*words, *action, f"--{option}=nonsense", tmp_path, check=False)
            told[f"{name} --{option}"] = result.stderr
            assert_one_line_error(result, 16, "nonsense")
    assert len(told) >= 14, told
    bad = [line for line in told.values() if not re.search(r" range [\d.]+ to \d+|, like 200M| not in \{", line)]
    assert not bad, bad
    for verb in ("scrub", "member", "tier"):
        assert_one_line_error(run(binaries.fpfs, verb, "nonsense", tmp_path, check=False), 16, "not in {", "(see fpfs")


def test_output_that_cannot_be_written_is_a_failure(binaries):
    for name in ("mkfs", "fsck", "fpfs"):
        with open("/dev/full", "w") as full:
            import subprocess
            result = subprocess.run([getattr(binaries, name), "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode in (1, 8)
        assert len(result.stderr.splitlines()) == 1
