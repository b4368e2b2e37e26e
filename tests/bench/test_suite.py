"""Every row of the benchmark suite, tiny: that it measures something and reports it, not how fast anything is."""
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from lab import mount_table
from lab.programs import REPOSITORY

# mkfs.btrfs looks at what is behind every loop device of the machine, and fails where a test has made that vanish.
pytestmark = pytest.mark.alone

RUN = REPOSITORY / "tools" / "bench" / "run"
ROWS = range(1, 25)


def start(scratch, *arguments):
    """The suite, with everything it makes below `scratch`."""
    scratch.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, FPFS_BENCH_SCRATCH=str(scratch))
    return subprocess.Popen([RUN, "--disk", str(scratch), *map(str, arguments)], env=environment, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def assert_nothing_left(scratch):
    left = [entry.path for entry in mount_table.entries() if entry.path.startswith(f"{scratch}/")]
    backing = pathlib.Path("/sys/block").glob("loop*/loop/backing_file")
    left += [path.read_text() for path in backing if str(scratch) in path.read_text()]
    left += list(scratch.iterdir())
    assert not left
    rules = pathlib.Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
    devices = {path.read_text().strip() for path in pathlib.Path("/sys/block").glob("*/dev")}
    if rules.exists():
        assert not [rule for rule in rules.read_text().splitlines() if rule.split()[0] not in devices]


@pytest.fixture(scope="module")
def tiny(lab):
    """All rows of a run over a few MiB; {number: row}, and the lab's description under "lab"."""
    scratch, output = lab / "bench", lab / "bench-output"
    process = start(scratch, "--size", "4M", "--runs", "1", "--files", "60", "--silent", "--no-deepspeed",
                    "--output", output)
    said, _ = process.communicate(timeout=700)
    assert process.returncode == 0, said
    assert_nothing_left(scratch)
    results = json.loads((output / "results.json").read_text())
    return {"lab": results["lab"], "output": output, **{row["row"]: row for row in results["rows"]}}


@pytest.mark.time_limit(720)
@pytest.mark.parametrize("number", ROWS)
def test_row(tiny, number):
    row = tiny[number]
    if "skipped" in row:
        pytest.skip(row["skipped"])
    assert row["measures"] and row["commands"]
    for measure in row["measures"]:
        assert measure["figures"]
        for name, figure in measure["figures"].items():
            # A daemon may spend less than one tick on so little; processors may have no tick of idleness; nothing may be as
            # it was in the checkpoint before; copies may be there when they are asked for.
            least = 0 if figure["unit"] in ("s/GB", "%", "share") or "behind at" in name else 1e-9
            assert least <= figure["min"] <= figure["median"] <= figure["max"] < 1e13, (measure["name"], name)
        for ratio in measure["ratios"]:
            assert ratio["low"] <= ratio["value"] <= ratio["high"]
            assert ratio["target"] > 0 and isinstance(ratio["met"], bool)
    assert sum(len(measure["ratios"]) for measure in row["measures"]) > 0


@pytest.mark.parametrize("number", [3, 6, 12])
def test_the_kernels_part_is_measured(tiny, number):
    row = tiny[number]
    if "skipped" in row:
        pytest.skip(row["skipped"])
    for measure in row["measures"]:
        assert min(measure["figures"]["kernel's part"]["samples"]) > 0, measure["name"]


def test_saves_while_copying_say_how_far_behind_the_copies_are(tiny):
    measures = [measure for measure in tiny[21]["measures"] if measure["name"].startswith("saves while copying")]
    assert measures
    for measure in measures:
        units = {name: figure["unit"] for name, figure in measure["figures"].items()}
        assert units == {"while copying": "B/s", "without": "B/s", "bytes behind at its end": "B",
                         "seconds behind at its end": "s", "current after": "s"}
        assert 0 <= measure["figures"]["bytes behind at its end"]["max"] <= 2 * 8e6  # both saves


@pytest.mark.time_limit(180)
def test_results_of_another_size_are_refused_before_a_row_is_taken(tiny, lab):
    scratch = lab / "bench-other-size"
    process = start(scratch, "--size", "8M", "--row", "11", "--silent", "--output", tiny["output"])
    said, _ = process.communicate(timeout=380)
    assert process.returncode != 0 and "row 11" not in said
    assert said.splitlines()[-1].endswith("write them to another --output")
    assert_nothing_left(scratch)


def test_report(tiny):
    text = (tiny["output"] / "results.md").read_text()
    for number in ROWS:
        assert f"## Row {number}:" in text
    assert re.search(r"; fastpersistfs at [0-9a-f]{12}( with changes)?, (Release|RelWithDebInfo|Debug) build\.",
                     " ".join(text.split()))
    assert (tiny["output"] / "row01.svg").read_text().startswith("<svg")


@pytest.mark.root
def test_drives_of_the_lab_obey_their_limits(tiny):
    lab = tiny["lab"]
    if lab["limits"] is None:
        pytest.skip(lab["note"])
    assert 0 < lab["verified"]["direct"] <= 1.1 * lab["limits"]["write"]
    assert 0 < lab["verified"]["buffered"] <= 1.1 * lab["limits"]["write"]


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeed_takes_part_when_it_is_installed(lab):
    scratch, output = lab / "bench-deepspeed", lab / "bench-deepspeed-output"
    process = start(scratch, "--row", "2", "--only", "DeepSpeed", "--size", "8M", "--runs", "1", "--output", output)
    said, _ = process.communicate(timeout=110)
    assert process.returncode == 0, said
    row, = json.loads((output / "results.json").read_text())["rows"]
    figures = row["measures"][0]["figures"] if row["measures"] else row["notes"]
    for name in ("DeepSpeed FastFileWriter", "DeepSpeed FastFileWriter, legacy", "DeepSpeed aio_handle"):
        assert name in figures
    assert_nothing_left(scratch)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_nothing(lab, number):
    scratch = lab / f"bench-{number}"
    process = start(scratch, "--row", "10", "--size", "8M", "--output", lab / f"bench-output-{number}")
    for line in process.stdout:
        if "MB/s" in line:
            break
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert_nothing_left(scratch)


def test_plain_directories_say_that_they_share_a_drive(lab):
    directories = [lab / f"bench-dir{index}" for index in range(2)]
    for directory in directories:
        directory.mkdir()
    process = start(lab / "bench-dirs", "--row", "1", "--size", "2M", "--runs", "1", "--only", "zip", "--dirs",
                    ":".join(map(str, directories)), "--output", lab / "bench-dirs-output")
    said, _ = process.communicate(timeout=60)
    results = json.loads((lab / "bench-dirs-output" / "results.json").read_text())
    assert process.returncode == 0, said
    assert "SHARE" in results["lab"]["kind"] and results["lab"]["limits"] is None
    assert not any(list(directory.iterdir()) for directory in directories)


def test_help_needs_no_build(tmp_path):
    result = subprocess.run([RUN, "--help"], env=dict(os.environ, FPFS_BUILD=str(tmp_path)), capture_output=True, text=True)
    assert result.returncode == 0 and "--rewrite-docs" in result.stdout


def test_missing_build_is_named(tmp_path):
    result = subprocess.run([RUN, "--list"], env=dict(os.environ, FPFS_BUILD=str(tmp_path)), capture_output=True, text=True)
    assert result.returncode == 1
    assert "mount-scripts/build --tests" in result.stderr and len(result.stderr.splitlines()) == 1
