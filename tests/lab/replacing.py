"""A daemon that is killed again and again while one file is replaced."""
import random
import subprocess
import sys
import time

from .data import is_pattern, write_pattern

MIB = 1 << 20
TESTS = __file__.rsplit("/", 2)[0]

# Writes version after version of one file and says on stdout which one close returned for.
REPLACER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from lab.data import write_pattern
path, size, way = sys.argv[2], int(sys.argv[3]), sys.argv[4]
for version in range(int(sys.argv[5]), 1000000):
    if way == "rename":
        write_pattern(path + ".new", version, size)
        os.replace(path + ".new", path)
    else:
        write_pattern(path, version, size)
    os.write(1, b"%d\\n" % version)
"""


def kills_while_replacing(mount, way, rounds, size=6 * MIB + 123):
    """Yields after each kill, when everything is mounted again and the file is the version that close returned for, or the one
    after it. `way`: "truncate" or "rename"."""
    path = mount.path / "checkpoint"
    rolls = random.Random(17)
    version = 0
    write_pattern(path, version, size)
    for _ in range(rounds):
        writer = subprocess.Popen([sys.executable, "-c", REPLACER, TESTS, str(path), str(size), way, str(version + 1)],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        said = [writer.stdout.readline()]  # Python and numpy take their time to start
        time.sleep(rolls.random() * 0.5)
        # The dead mount stays until the writer has seen it: without it, it would go on in the directory below.
        mount.process.kill()
        said += writer.stdout.readlines()
        writer.wait()
        closed = int(said[-1])
        mount.kill()
        mount.start()
        # What close returned for is there; at most one later version may have made it.
        candidates = [each for each in (closed, closed + 1) if is_pattern(path, each, size)]
        assert candidates, f"{path} ({path.stat().st_size} bytes) is neither version {closed} nor {closed + 1}"
        version = candidates[0]
        yield
