"""The sequences of this folder in every run of the tests: some hundred with a cut each, or 22,000 with tests/run --long.

One that failed again, and with its calls: python -m ace --number N --verbose (see __main__.py).
"""
import json
import os
import signal
import subprocess
import sys

import pytest

from lab import LONG
from lab.programs import REPOSITORY

from .model import from_text
from .oracle import judge
from .places import Descriptors, look, perform, set_up
from .runner import model_of
from .sequences import SIZES, chosen, count_of_ones, sequence, short_ones

NUMBERS = ["--from", "0", "--to", "22000"] if LONG else ["--chosen", "150"]


def state_after(model, step=-1):
    """What `look` finds in that state."""
    contents = {inode.group: inode.content for inode in model.inodes if inode.kind == "file"}
    return {name: {**there, "content": contents.get(there["group"])} for name, there in model.snapshots[step].items()}


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.root
@pytest.mark.time_limit(900)
def test_what_both_keep_the_mount_keeps(lab):
    """A process for each processor, with drives and mounts of its own. Every other one compresses."""
    parts = min(os.cpu_count(), 4)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests"), "FPFS_LAB": str(lab)}
    compressing = {"FPFS_TEST_OPTIONS": ",".join(filter(None, [os.environ.get("FPFS_TEST_OPTIONS"), "compress=zstd"]))}
    workers = [subprocess.Popen([sys.executable, "-m", "ace", "--json", "--part", f"{part}/{parts}", *NUMBERS],
                                env={**environment, **(compressing if part % 2 else {})},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
               for part in range(parts)]
    try:
        said = [worker.communicate()[0] for worker in workers]
    except BaseException:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)  # it takes its drives and mounts down
        for worker in workers:
            worker.wait()
        raise
    failures = [json.loads(line) for text in said for line in text.splitlines()]
    for failure in failures:
        print(f"number {failure['number']}: {failure['text']}; {failure['place']}:",
              *(violation["text"] for violation in failure["violations"]), sep="\n  ")
    failed = sorted({str(failure["number"]) for failure in failures})
    assert not failed and all(worker.returncode == 0 for worker in workers), f"numbers {', '.join(failed)}"


@pytest.mark.P6
@pytest.mark.root
@pytest.mark.chunk_size(65536)
@pytest.mark.parametrize("place", ["native", "mount"])
def test_the_model_does_what_filesystems_do(request, place):
    """Without a cut: else what is wrong in the model would be asked of nobody."""
    place = request.getfixturevalue(place)
    top = getattr(place, "path", place)
    for number in chosen(4000 if LONG else 300):
        operations, size = sequence(number)
        model, root = model_of(operations, size, number), top / f"run{number}"
        set_up(root, model)
        descriptors = Descriptors(root)
        try:
            perform(root, model, descriptors)
            assert look(root) == state_after(model), f"number {number}"
        finally:
            descriptors.abandon()


def violations(text, left, plain=None, durable="close"):
    """Of a sequence after which this was found; by default the plain filesystems kept everything."""
    model = model_of(from_text(text), SIZES[1], 1)
    kept = state_after(model) if plain is None else state_after(model, plain)
    return [str(each) for each in judge(model, [kept, kept], left(model), durable)]


@pytest.mark.parametrize("text", ["chmod A/foo; fsync A/foo", "setxattr A/foo; fsync A/foo", "unlink A/foo; fsync A",
                                  "rename A/foo A/bar; fsync A/bar", "link A/foo B/foo; fsync A/foo", "mkdir A/sub; fsync A"])
def test_what_was_lost_is_seen(text):
    assert violations(text, lambda model: state_after(model, 0))
    assert not violations(text, state_after)


def test_what_the_others_lose_too_is_not_asked_for():
    assert not violations("chmod A/foo; fsync B", lambda model: state_after(model, 0), plain=0)


def with_content(content):
    def left(model):
        state = state_after(model)
        state["A/foo"]["content"] = content(model)
        return state
    return left


def initial(model):
    return model.inodes[2].commits[0].content


@pytest.mark.parametrize("durable", ["close", "fsync"])
def test_content_is_old_or_new(durable):
    half_way = "rewrite A/foo; fsync A"
    assert not violations(half_way, with_content(initial), durable=durable)
    assert violations(half_way, with_content(lambda model: b""), durable=durable)
    assert violations(half_way, with_content(lambda model: model.inodes[2].content), durable=durable)
    synced = "rewrite A/foo; fsync A/foo"
    assert not violations(synced, state_after, durable=durable)
    assert violations(synced, with_content(initial), durable=durable)
    closed = "rewrite A/foo; close A/foo"
    assert bool(violations(closed, with_content(initial), durable=durable)) == (durable == "close")
    assert violations(closed, with_content(lambda model: "EIO"), durable=durable)


def test_numbers_are_all_different_and_stay():
    every = [operations for operations, _ in short_ones()]
    of_two = every[count_of_ones():]
    assert len(set(every)) == count_of_ones() // len(SIZES) + len(of_two)
    assert sequence(20000) == sequence(20000)
    assert len(set(chosen(150))) == 150
