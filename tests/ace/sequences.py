"""Which sequences there are, and their numbers.

From 0 on: all with one operation, once for each class of size; then all with two; then, without end, a choice of those with
three, in which every triple of kinds of operations comes equally often. After each operation there may be a sync of what
it touched, after the last one there is one, of anything that the sequence touched. `foo` and `bar`, `A` and `B` are alike,
so the first operation is on A or in it. A file's size comes from the number.

A number stands for its sequence as long as this file and the model stay as they are; the text of a sequence stands for ever.
"""
import functools
import itertools
import random

from .model import DIRECTORIES, Impossible, Model

# In the sidecar; one chunk, the last of it part of a sector; several chunks of 64 KiB.
SIZES = (5000, 44444, 200000)

ON_FILES = ("create", "hold", "rewrite", "write", "append", "extend", "shrink", "grow", "map", "unlink", "chmod", "setxattr")
TO_OTHER_NAMES = ("rename", "replace", "link")
ON_DIRECTORIES = ("mkdir", "chmod-directory", "setxattr-directory", "rename-directory")
KINDS = ON_FILES + TO_OTHER_NAMES + ON_DIRECTORIES
TARGETS = {"A/foo": ("A/bar", "B/bar"), "B/bar": ("B/foo", "A/foo"), "A/bar": ("A/foo", "B/foo"), "B/foo": ("B/bar", "A/bar")}


def operations_of(kind, model=None):
    """Every operation of a kind: on A/foo and B/bar, and on the other names once a sequence has brought them about. The
    first of a sequence (no model): on A and in A only."""
    made = [name for name in ("A/bar", "B/foo") if model and name in model.names]
    files = ["A/foo", *(["B/bar", *made] if model else [])]
    directories = DIRECTORIES if model else DIRECTORIES[:1]
    if kind in ON_FILES:
        return [(kind, name) for name in files]
    if kind in TO_OTHER_NAMES:
        return [(kind, name, target) for name in files for target in TARGETS[name]]
    if kind == "mkdir":
        return [(kind, f"{name}/sub") for name in directories]
    if kind == "rename-directory":
        return [("rename", "A/sub", "B/sub")]
    return [(kind.removesuffix("-directory"), name) for name in directories]


def touched_by(operation):
    """The names in an operation, and the directories that they are in."""
    paths = operation[1:]
    return sorted({*paths, *(path.rsplit("/", 1)[0] for path in paths)})


def syncs_of(model, names):
    """Every sync, once for each object, of what has these names."""
    seen = set()
    for name in names:
        inode = model.names.get(name)
        if inode is None or inode.group in seen:
            continue
        seen.add(inode.group)
        yield ("fsync", name)
        if inode.kind == "directory":
            continue
        if inode.changed or len(inode.commits) > 1:
            yield ("fdatasync", name)
        if inode.reader or inode.writer or inode.mapping:
            yield ("readsync", name)
        if inode.mapping:
            yield ("msync", name)
        if inode.writer or inode.mapping:
            yield ("close", name)


def _after(operations):
    """The model behind them, or None."""
    model = Model(64, lambda seed, offset, size: bytes(size))
    try:
        for operation in operations:
            model.apply(operation)
    except Impossible:
        return None
    return model


def _with_last_sync(prefix, names):
    model = _after(prefix)
    if model is None:
        return
    for sync in syncs_of(model, names):
        yield (*prefix, sync)


def _seconds(first):
    """What may come between the first operation and the second: nothing, or a sync of what it touched."""
    yield (first,)
    yield from _with_last_sync((first,), touched_by(first))


def _of_two():
    for kind in KINDS:
        for first in operations_of(kind):
            for begun in _seconds(first):
                model = _after(begun)
                if model is None:
                    continue
                for second in itertools.chain.from_iterable(operations_of(other, model) for other in KINDS):
                    yield from _with_last_sync((*begun, second), sorted({*touched_by(first), *touched_by(second)}))


@functools.cache
def short_ones():
    """All with one operation, and all with two: [(operations, size)]."""
    ones = [(operations, size) for kind in KINDS for first in operations_of(kind)
            for operations in _with_last_sync((first,), touched_by(first)) for size in SIZES]
    return ones + [(operations, SIZES[index % len(SIZES)]) for index, operations in enumerate(_of_two())]


@functools.cache
def count_of_ones():
    return sum(1 for operations, _ in short_ones() if len(operations) == 2)


def _of_three(index):
    """The triple of kinds comes from the index, what is chosen within it from a generator that the index seeds. A triple
    that cannot be done gives way to the next."""
    kinds = list(itertools.product(KINDS, repeat=3))
    random.Random(1).shuffle(kinds)
    rolls = random.Random(index)
    for triple in itertools.islice(itertools.cycle(kinds), index % len(kinds), None):
        for _ in range(8):
            operations = _roll(triple, rolls)
            if operations:
                return operations


def _roll(triple, rolls):
    operations, names, model = (), set(), None
    for position, kind in enumerate(triple):
        operation = rolls.choice(operations_of(kind, model))
        operations += (operation,)
        names.update(touched_by(operation))
        model = _after(operations)
        if model is None:
            return None
        last = position == len(triple) - 1
        syncs = list(syncs_of(model, sorted(names) if last else touched_by(operation)))
        if last and not syncs:
            return None
        if syncs and (last or rolls.random() < 0.5):
            operations += (rolls.choice(syncs),)
            model = _after(operations)
    return operations


def sequence(number):
    """The operations of a number, and the size of the files."""
    if number < len(short_ones()):
        return short_ones()[number]
    index = number - len(short_ones())
    return _of_three(index), SIZES[index % len(SIZES)]


def chosen(count, among=None):
    """So many numbers, evenly from all with one operation and from the others up to `among`."""
    ones = count_of_ones()
    among = among or len(short_ones()) + 8000
    from_ones = min(ones, count // 4)
    spread = [ones * index // from_ones for index in range(from_ones)]
    rest = count - from_ones
    return spread + [ones + (among - ones) * index // rest for index in range(rest)]
