"""Row 22: an array that is lost comes back from its copies: how fast, against rclone and aws from the same SeaweedFS,
and against rclone and cp from the same directory.

Everybody writes to drives of the lab without their limits: other programs to one with XFS, so that nobody wins by
having more drives."""
import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
import time

from .. import stores
from ..bench import Skipped
from ..measure import Measure, Samples, ratio
from ..stores import PARTS, fpfs

FILES = 8
SMALL = 8192
OWN = ".fastpersistfs"  # how the names begin of what an array has in its place besides content


@dataclasses.dataclass
class Tree:
    """What is lost, and comes back. `save(bench, root)` makes it; its amount is of bytes or of files."""
    name: str
    save: object
    amount: int
    unit: str


def _save_one(bench, root):
    bench.save_rate(root / "saved", "zip")


def _save_several(bench, root):
    bench.torch.run([{"call": "save", "path": str(root / f"rank{rank}"), "format": "zip", "size": bench.size // FILES}
                     for rank in range(FILES)])


def _save_small(count, bench, root):
    folder = stores.made(root / "small")
    for index in range(count):
        (folder / f"file{index}").write_bytes(os.urandom(SMALL))


class Place:
    """Where an array's copies are in a store, of a directory or of S3."""

    def __init__(self, store, name):
        self.store, self.name = store, name
        self.bytes = 0
        self.is_directory = store.url.startswith("file://")
        if self.is_directory:
            self.directory = store.url.removeprefix("file://") + f"/{name}"
            os.mkdir(self.directory)
            self.url = f"file://{self.directory}"
        else:
            self.url = f"s3://{store.BUCKET}/{name}?endpoint={store.endpoint}"


def _bytes_in(root):
    """Of files that have content on the drives."""
    found = [(pathlib.Path(folder) / name).stat() for folder, _, names in os.walk(root) for name in names]
    return sum(status.st_size for status in found if status.st_blocks > 0)


def _check(place, root):
    if (there := _bytes_in(root)) != place.bytes:
        raise RuntimeError(f"{root} has {there} bytes, and not {place.bytes}")


@contextlib.contextmanager
def _place(bench, store, tree):
    """With the copies of an array that is gone."""
    place = Place(store, tree.name.replace(" ", "-"))
    with bench.mounted() as mount:
        fpfs(bench, "tier", "set", mount.path, place.url)
        tree.save(bench, mount.path)
        fpfs(bench, "sync", "--tier", mount.path)
        place.bytes = _bytes_in(mount.path)
    yield place
    if place.is_directory:
        shutil.rmtree(place.directory)


# --- whoever brings it back ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _restored_tree(bench, place):
    """A mount of a new array that has the names, and how long that took."""
    bench.commands.note(["fpfs", "tier", "set", "--restore", "MOUNT", "URL"])
    with bench.mounted() as mount:
        bench.settle()
        began = time.monotonic()
        fpfs(bench, "tier", "set", "--restore", mount.path, place.url)
        yield mount, time.monotonic() - began
        fpfs(bench, "sync", "--tier", mount.path)  # the copies are this array's for the next one to restore


def _restore(bench, place, trees):
    """Until all content is durable on the members. `trees`: gets how long it took until all names were there."""
    bench.commands.note(["fpfs", "tier", "restore", "MOUNT"])
    bench.commands.note(["fpfs", "sync", "MOUNT"])
    with _restored_tree(bench, place) as (mount, tree_seconds):
        began = time.monotonic()
        fpfs(bench, "tier", "restore", mount.path)
        fpfs(bench, "sync", mount.path)
        seconds = tree_seconds + time.monotonic() - began
        trees.append(tree_seconds)
        _check(place, mount.path)
        return seconds


def _fetch(bench, words, place):
    """Until all content is durable in a directory of one drive. `words(bench, place)`: the command but its target."""
    target = stores.made(bench.lab.paths[0] / "fetched")
    try:
        bench.settle()
        began = time.monotonic()
        bench.commands.run(*words(bench, place), target)
        bench.commands.run("sync", "-f", target)
        seconds = time.monotonic() - began
        _check(place, target)
        return seconds
    finally:
        shutil.rmtree(target)
        bench.lab.trim()


def _rclone(bench, place):
    words = ["copy", f"--transfers={PARTS}", f"--multi-thread-streams={PARTS}", f"--multi-thread-cutoff={PARTS}M",
             f"--exclude=/{OWN}*/**"]
    bench.commands.note(["rclone", *words, "DIRECTORY" if place.is_directory else ":s3:BUCKET/KEY", "TARGET"])
    if place.is_directory:
        return [stores.program("rclone"), *words, place.directory]
    return [*stores.rclone(place.store), *words, f":s3:{place.store.BUCKET}/{place.name}"]


def _aws(bench, place):
    words = ["--recursive", f"--exclude={OWN}*"]
    bench.commands.note(["aws s3 cp", "--quiet", "--endpoint-url", "ENDPOINT", *words, "s3://BUCKET/KEY", "TARGET"])
    return [*stores.aws(place.store), *words, f"s3://{place.store.BUCKET}/{place.name}"]


def _cp(bench, place):
    bench.commands.note(["cp", "-r", "DIRECTORY/*", "TARGET"])
    return ["cp", "-r", *(entry.path for entry in os.scandir(place.directory) if not entry.name.startswith(OWN))]


def _others(bench, place):
    """{name: its command} of those that take part."""
    others = {"rclone": _rclone}
    if not place.is_directory:
        others["aws"] = _aws
    found = {name: words for name, words in others.items() if stores.installed(bench, name)}
    return dict(found, cp=_cp) if place.is_directory else found


def _content(bench, place, name, tree):
    trees = []

    def rate(seconds, *arguments):
        return lambda: tree.amount / seconds(bench, *arguments)

    contestants = {"fastpersistfs": rate(_restore, place, trees)}
    contestants.update({who: rate(_fetch, words, place) for who, words in _others(bench, place).items()})
    figures = bench.rotate(contestants, tree.unit)
    ratios = [ratio(figures, "fastpersistfs", [who], 1.0) for who in figures if who != "fastpersistfs"]
    figures["fastpersistfs, names"] = Samples("s", trees)
    return Measure(name, figures, ratios)


# --- whoever reads it at once ----------------------------------------------------------------------------------------


def _first_read(bench, place):
    """By dd, of the file whose content is away; what was read is on the members soon after."""
    with _restored_tree(bench, place) as (mount, _):
        return _read_seconds(bench, "dd", f"if={mount.path}/saved", "of=/dev/null", "bs=1M")


def _read_seconds(bench, *words):
    began = time.monotonic()
    bench.commands.run("sh", "-c", 'exec "$@" > /dev/null', "sh", *words)
    return time.monotonic() - began


def _read_in_rclone_mount(bench, place):
    """By dd, too; what is read is kept in a directory of a drive."""
    cache = stores.made(bench.lab.paths[0] / "cache")
    words = ["mount", "--quiet", "--read-only", "--vfs-cache-mode=full", f"--vfs-read-ahead={PARTS}M"]
    try:
        with bench.other_mount([*stores.rclone(place.store), *words, f"--cache-dir={cache}",
                                f":s3:{place.store.BUCKET}/{place.name}"],
                               ["rclone", *words, "--cache-dir=DRIVE0/cache", ":s3:BUCKET/KEY"]) as (path, _):
            bench.settle()
            return _read_seconds(bench, "dd", f"if={path}/saved", "of=/dev/null", "bs=1M")
    finally:
        shutil.rmtree(cache)
        bench.lab.trim()


def _first_reads(bench, place):
    key = f"{place.store.BUCKET}/{place.name}/saved"
    readers = {"rclone": [*stores.rclone(place.store), "cat", f":s3:{key}"],
               "aws": [*stores.aws(place.store), f"s3://{key}", "-"]}
    readers = {name: words for name, words in readers.items() if stores.installed(bench, name)}
    bench.commands.note(["dd", "if=MOUNT/saved", "of=/dev/null", "bs=1M"])
    bench.commands.note(["rclone", "cat", ":s3:BUCKET/KEY"])
    bench.commands.note(["aws s3 cp", "--quiet", "--endpoint-url", "ENDPOINT", "s3://BUCKET/KEY", "-"])
    contestants = {"fastpersistfs": lambda: bench.size / _first_read(bench, place)}
    if "rclone" in readers:
        contestants["rclone mount"] = lambda: bench.size / _read_in_rclone_mount(bench, place)
    contestants |= {name: lambda words=words: bench.size / _read_seconds(bench, *words)
                    for name, words in readers.items()}
    figures = bench.rotate(contestants)
    return Measure("first read, S3", figures,
                   [ratio(figures, "fastpersistfs", [name], 1.0) for name in figures if name != "fastpersistfs"])


def _measures(bench, store, kind, trees):
    for tree in trees:
        name = f"{tree.name}, {kind}"
        wants = [functools.partial(_content, name=name, tree=tree)] if bench.wants(name) else []
        if kind == "S3" and tree.save is _save_one and bench.wants("first read, S3"):
            wants.append(_first_reads)
        if wants:
            with _place(bench, store, tree) as place:
                yield from [measure(bench, place) for measure in wants]


def restored(bench):
    count = max(10, min(1000, bench.options.files // 20))
    several = Tree(f"{FILES} files", _save_several, bench.size, "B/s")
    trees = {"directory": [several],
             # With so little it would be the same again.
             "S3": [Tree("one file", _save_one, bench.size, "B/s"), *([several] if bench.size >= stores.LEAST else []),
                    Tree(f"{count} files of 8 KiB", functools.partial(_save_small, count), count, "files/s")]}
    measures = []
    with bench.lab.limited(0, 0) if bench.lab.limits else contextlib.nullcontext():
        for kind, of in stores.kinds(bench).items():
            with stores.opened(bench, of) as store:
                measures += _measures(bench, store, kind, trees[kind])
    if not measures:
        raise Skipped("nothing of it was asked for")
    return measures
