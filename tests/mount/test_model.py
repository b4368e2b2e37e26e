"""Random operations through the mount against a model in memory.

A failure prints its seed; FPFS_TEST_SEED=<seed> replays exactly that sequence.
"""
import mmap
import os
import random

import pytest

from lab import LONG
from lab.data import first_difference, pattern
from lab.system import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, fallocate

pytestmark = [pytest.mark.P1, pytest.mark.P6]

SIZE_MAX = 6 << 20
GIVEN = os.environ.get("FPFS_TEST_SEED")
# Workers side by side must find the same tests: they draw from what names their run (pytest-xdist).
DRAWN = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
SEEDS = [int(GIVEN)] if GIVEN else [DRAWN.randrange(2**32) for _ in range(20 if LONG else 2)]


class Model:
    """One file as bytes, the same file on the mount, and what may happen to both."""

    def __init__(self, path, rolls):
        self.path = path
        self.rolls = rolls
        self.content = bytearray()
        self.stamp = 0
        self.file = open(path, "w+b", buffering=0)

    def range(self):
        """An offset and a length: mostly around block and chunk borders, sometimes large."""
        offset = self.rolls.choice([self.rolls.randrange(SIZE_MAX), self.rolls.randrange(0, SIZE_MAX, 65536),
                                    max(0, len(self.content) - self.rolls.randrange(5000)), self.rolls.randrange(40000)])
        length = self.rolls.choice([1, self.rolls.randrange(1, 5000), 4096, 65536, self.rolls.randrange(1, 200000),
                                    self.rolls.randrange(1, 2 << 20)])
        return offset, length

    def put(self, offset, data):
        if len(self.content) < offset:
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset:offset + len(data)] = data

    def write(self):
        offset, length = self.range()
        self.stamp += 1
        data = pattern(self.stamp, offset, length)
        written = os.pwrite(self.file.fileno(), data, offset)
        self.put(offset, data[:written])

    def append(self):
        self.stamp += 1
        data = pattern(self.stamp, 0, self.rolls.randrange(1, 100000))
        if len(self.content) + len(data) > SIZE_MAX * 2:
            return self.truncate()
        with open(self.path, "ab", buffering=0) as file:
            written = file.write(data)
        self.put(len(self.content), data[:written])

    def truncate(self):
        size = self.rolls.choice([0, self.rolls.randrange(SIZE_MAX), self.rolls.randrange(40000), len(self.content) // 2])
        os.ftruncate(self.file.fileno(), size)
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def punch(self):
        offset, length = self.range()
        fallocate(self.file.fileno(), FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
        self.clear(offset, length)

    def zero_range(self):
        offset, length = self.range()
        fallocate(self.file.fileno(), FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, offset, length)
        self.clear(offset, length)

    def clear(self, offset, length):
        end = min(offset + length, len(self.content))
        if offset < end:
            self.content[offset:end] = bytes(end - offset)

    def map_and_write(self):
        if not self.content:
            return
        self.stamp += 1
        offset = self.rolls.randrange(len(self.content))
        data = pattern(self.stamp, offset, min(self.rolls.randrange(1, 20000), len(self.content) - offset))
        with mmap.mmap(self.file.fileno(), len(self.content)) as view:
            view[offset:offset + len(data)] = data
            view.flush()
        self.put(offset, data)

    def read(self):
        offset, length = self.range()
        self.check(os.pread(self.file.fileno(), length, offset), bytes(self.content[offset:offset + length]), offset)

    def read_all(self):
        with open(self.path, "rb") as file:
            self.check(file.read(), bytes(self.content), 0)
        assert os.stat(self.path).st_size == len(self.content)

    def check(self, found, expected, offset):
        where = first_difference(found, expected)
        assert where is None, f"differs at byte {offset + where} ({len(found)} read, {len(expected)} expected)"

    def sync(self):
        os.fsync(self.file.fileno())

    def reopen(self):
        self.file.close()
        self.file = open(self.path, "r+b", buffering=0)

    def rewrite(self):
        """What torch.save does to a file that is there."""
        self.file.close()
        self.file = open(self.path, "w+b", buffering=0)
        self.content.clear()
        for _ in range(3):
            self.write()

    def replace(self):
        """Write under another name, rename over."""
        self.stamp += 1
        data = pattern(self.stamp, 0, self.rolls.randrange(3 << 20))
        other = self.path.with_suffix(".new")
        other.write_bytes(data)
        os.replace(other, self.path)
        self.content[:] = data
        self.reopen()


OPERATIONS = (["write"] * 10 + ["read"] * 8 + ["append", "truncate", "punch", "zero_range", "map_and_write", "sync",
              "reopen"] * 2 + ["rewrite", "replace", "read_all"])


@pytest.mark.time_limit(240)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_operations(anywhere, seed):
    print(f"replay with FPFS_TEST_SEED={seed}")
    rolls = random.Random(seed)
    models = [Model(anywhere.path / f"file{number}", rolls) for number in range(3)]
    for step in range(4000 if LONG else 400):
        model = rolls.choice(models)
        operation = rolls.choice(OPERATIONS)
        try:
            getattr(model, operation)()
        except (AssertionError, OSError) as error:
            raise AssertionError(f"seed {seed}, step {step}, {operation} on {model.path.name}: {error}") from error
        if step % 150 == 149:
            for each in models:
                each.file.close()
            if rolls.random() < 0.5:
                anywhere.remount()
            else:  # everything is closed, so everything is durable
                anywhere.kill()
                anywhere.start()
            for each in models:
                each.file = open(each.path, "r+b", buffering=0)
                each.read_all()
    for model in models:
        model.read_all()
        model.file.close()
