"""Many sequences, one after the other, in one process: each on the two plain filesystems and on the mounts."""
import dataclasses

from lab.array import MountFailed
from lab.data import pattern

from . import oracle
from .model import simulate, to_text
from .places import Mounted, Plain
from .sequences import sequence

# Then new filesystems: they would grow, and so would what a mount after a crash has to look through.
SEQUENCES_PER_LAB = 150
VARIANTS = (("xfs", "close"), ("ext4", "close"), ("xfs", "fsync"), ("ext4", "fsync"))
# How often the plain filesystems must have kept something that no sync claims, before the mount is blamed for its loss.
LOOKS = 3


@dataclasses.dataclass
class Failure:
    number: int | str
    text: str  # the sequence
    place: str
    violations: list

    def __str__(self):
        return f"number {self.number}: {self.text}\n  {self.place}: " + "\n    ".join(map(str, self.violations))


def model_of(operations, size, number):
    return simulate(operations, size, lambda seed, offset, length: pattern(number * 100_003 + seed, offset, length))


class Lab:
    """The plain filesystems and the mounts."""

    def __init__(self, programs, directory, variants=VARIANTS):
        self.places = []
        self.runs = 0
        try:
            self.plain = [self._add(Plain(directory, kind)) for kind in ("xfs", "ext4")]
            self.mounts = [self._add(Mounted(programs, directory, *variant)) for variant in variants]
        except BaseException:
            self.destroy()
            raise

    def _add(self, place):
        self.places.append(place)
        return place

    def _run_plain(self, model):
        self.runs += 1
        return [place.run(model, f"run{self.runs}") for place in self.plain]

    def run(self, number, operations, size, say=lambda text: None):
        """Yields the failures of one sequence."""
        model = model_of(operations, size, number)
        plain = self._run_plain(model)
        name = f"run{self.runs}"
        for step, path, attribute in oracle.broken_claims(model, plain):
            say(f"no claim: {attribute} of {path} at step {step}, which XFS or ext4 did not keep")
        for place in self.mounts:
            left = place.run(model, name, pauses=number % 2 == 0)
            for _ in range(LOOKS):
                violations = oracle.judge(model, plain, left, place.durable)
                if not any(violation.journal_only for violation in violations):
                    break
                plain += self._run_plain(model)
            say(f"{place.name}: {describe(left)}")
            if violations:
                yield Failure(number, to_text(operations), place.name, violations)

    def finish(self):
        for place in self.mounts:
            place.finish()

    def destroy(self):
        for place in self.places:
            place.destroy()


def describe(left):
    return ", ".join(f"{path} {there['group']} {there['mode']:o} {there['links'] or ''} {there['xattr']} "
                     f"{there['content'] if isinstance(there['content'], str) else len(there['content'] or b'')}"
                     for path, there in sorted(left.items()))


def run_numbers(programs, directory, numbers, variants=VARIANTS, say=lambda text: None):
    """Yields the failures of all of them. When a place cannot be used any more that is a failure too, and a new lab is made."""
    numbers = list(numbers)
    position = 0
    while position < len(numbers):
        begin = position
        lab = Lab(programs, directory, variants)
        try:
            while position < len(numbers) and lab.runs < SEQUENCES_PER_LAB:
                number = numbers[position]
                position += 1
                operations, size = sequence(number)
                say(f"number {number}, files of {size} bytes: {to_text(operations)}")
                yield from lab.run(number, operations, size, say)
            number = f"{numbers[begin]} to {numbers[position - 1]}"
            lab.finish()
        except (AssertionError, OSError, MountFailed) as error:
            yield Failure(number, to_text(operations), "lab", [oracle.Violation("unusable", str(error))])
        finally:
            lab.destroy()
