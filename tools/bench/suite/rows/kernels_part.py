"""The kernel's part of a save and of a load: the same by the same client, while the drives transfer as much, with
fpfs-bench-discard in fastpersistfs's place, which has the file in its memory. All of it is the kernel's: requests, the copy,
and the drives' transfers."""
import contextlib
import os
import pathlib

from .. import fio


@contextlib.contextmanager
def of_saves(bench):
    """save(format): the rate of a save that nobody keeps, while fio writes to the drives."""
    with _mounted(bench, bench.pool_size) as discard, bench.raw(bench.size) as raw:
        def save(format):
            with raw.busy():
                return bench.save_rate(discard / "saved", format)
        yield save


@contextlib.contextmanager
def of_durable_saves(bench, raw):
    """save(format, crc, rate): the rate of a save into as much memory as fio has under way, while that writes to the files of
    `raw` with so many bytes per second, as a filesystem does with what it is given."""
    with _mounted(bench, fio.DEPTH * fio.BLOCK) as discard:
        def save(format, crc, rate):
            with raw.busy(rate):
                return bench.save_rate(discard / "saved", format, crc=crc)
        yield save


@contextlib.contextmanager
def of_loads(bench, raw, mount):
    """load(how): the rate of a load of what `mount` has saved, of which the page cache has nothing, by a filesystem that
    gives as much as it has read of what raw.write() left, and reads that from all drives at the same time. The kernel reads
    ahead as it does in `mount`: its requests are as long. The file is a copy, as safetensors renames what it saves, which
    the program cannot."""
    with _mounted(bench, bench.pool_size, "--drives", ":".join(map(str, raw.files))) as discard:
        read_ahead_as(discard, mount.path)
        bench.commands.run("dd", f"if={mount.path / 'saved'}", f"of={discard / 'saved'}", "bs=1M", "status=none")

        def load(how):
            bench.drop_caches()
            return bench.load_rate(discard / "saved", how)
        yield load


def _mounted(bench, pool, *arguments):
    return bench.program_mount("fpfs-bench-discard", "--pool", pool, *arguments)


def read_ahead_as(path, other):
    """The kernel reads ahead in the filesystem at `path` as in the other. Without root both are its default."""
    mine, others = (pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
                    for device in (os.stat(mounted).st_dev for mounted in (path, other)))
    if mine.read_text() != others.read_text():
        mine.write_text(others.read_text())
