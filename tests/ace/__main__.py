"""python -m ace: runs sequences by their numbers, and says which of them lost something.

  PYTHONPATH=tests python -m ace --number 1234 --verbose       one, with its calls and what was left (may be repeated)
  PYTHONPATH=tests python -m ace --sequence "write A/foo; fsync A/foo" [--size 44444]
  PYTHONPATH=tests python -m ace --from 0 --to 20000            these; --part 0/2: the first half, every second one
  PYTHONPATH=tests python -m ace --chosen 400                   so many, from everywhere
  PYTHONPATH=tests python -m ace --list --from 0 --to 200       only says what they are

--variant xfs-close takes one of the mounts only. --json: one object a line. FPFS_BUILD names the build under test, FPFS_LAB
a directory for drives (about 2 GiB at most); root is needed. Exit 0 when nothing failed, 1 otherwise.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile

from lab.programs import Programs
from lab.system import die_with_parent

from . import runner
from .model import from_text, to_text
from .sequences import SIZES, chosen, sequence


def arguments():
    parser = argparse.ArgumentParser(prog="python -m ace", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--number", type=int, action="append", default=[])
    parser.add_argument("--sequence")
    parser.add_argument("--size", type=int, default=SIZES[1])
    parser.add_argument("--from", type=int, dest="begin", default=0)
    parser.add_argument("--to", type=int, dest="end")
    parser.add_argument("--chosen", type=int)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--variant", action="append")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", "-v", action="store_true")
    return parser.parse_args()


def numbers_of(options):
    part, parts = map(int, options.part.split("/"))
    if options.number:
        return options.number
    if options.chosen:
        return chosen(options.chosen)[part::parts]
    return range(options.begin, options.end if options.end is not None else options.begin + 1)[part::parts]


def say_calls(operations, size, number):
    for step, *words in runner.model_of(operations, size, number).calls:
        shown = [f"{len(word)} bytes" if isinstance(word, bytes) and len(word) > 20 else word for word in words]
        print(f"  step {step}:", *shown)


def main():
    options = arguments()
    if options.list:
        for number in numbers_of(options):
            operations, size = sequence(number)
            print(number, size, to_text(operations))
        return 0
    variants = [each for each in runner.VARIANTS if not options.variant or "-".join(each) in options.variant]
    parent = os.environ.get("FPFS_LAB", "/dev/shm")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="ace-", dir=parent))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(2))
    die_with_parent(signal.SIGTERM)
    os.umask(0o022)
    say = print if options.verbose else lambda text: None
    failed = 0
    try:
        if options.sequence:
            chosen_sequence = from_text(options.sequence), options.size
            runner.sequence = lambda number: chosen_sequence
        if options.verbose:
            for number in numbers_of(options):
                say_calls(*runner.sequence(number), number)
        for failure in runner.run_numbers(Programs(), directory, numbers_of(options), variants, say):
            failed += 1
            print(json.dumps(dataclasses.asdict(failure)) if options.json else failure, flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not options.json:
        print(f"{len(numbers_of(options))} sequences, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
