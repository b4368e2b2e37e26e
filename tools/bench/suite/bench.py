"""What every row works with: the lab, arrays and mounts on it, the torch process, the command lines that were used."""
import contextlib
import functools
import itertools
import os
import pathlib
import subprocess
import time

from lab.array import Array, Mount

from .commands import CommandFailed
from .drives import LoopLab, bytes_moved
from .fio import Raw
from .measure import rotate


class Skipped(Exception):
    """A row, or a part of it, that this machine cannot run; the text says why."""


class Bench:
    def __init__(self, options, commands, programs, lab, torch, scratch):
        self.options = options
        self.commands = commands
        self.programs = programs
        self.lab = lab
        self.torch = torch
        self.scratch = pathlib.Path(scratch)  # for mount points and logs
        self.notes = []
        self._numbers = itertools.count(1)

    # --- the run ---------------------------------------------------------------------------------------------------------

    @property
    def size(self):
        return self.options.size

    @property
    def pool_size(self):
        """Bytes of memory, whole MiB, that hold a file of the usual size with some to spare."""
        return (self.size + (self.size >> 2) + (64 << 20)) >> 20 << 20

    def wants(self, name):
        """Whether this measure of a row is asked for (--only); names it on the screen."""
        if self.options.only and self.options.only not in name:
            return False
        if name == "DeepSpeed" and self.options.no_deepspeed:
            return False
        self.say(f"- {name}")
        return True

    def deepspeed(self, path, contestants):
        """Adds DeepSpeed's writers over a plain directory, when they work here. `path`: the file to write."""
        formats = {"DeepSpeed FastFileWriter": "deepspeed-zip", "DeepSpeed FastFileWriter, legacy": "deepspeed-legacy",
                   "DeepSpeed aio_handle": "aio_handle"}
        if not self.torch.versions()["deepspeed"]:
            self.note("DeepSpeed takes no part: it is not installed")
            return
        try:
            for format in formats.values():
                self.torch.save(path, format, 8 << 20)
        except CommandFailed as error:
            self.note(f"DeepSpeed takes no part: {str(error).splitlines()[0]}")
            return
        finally:
            path.unlink(missing_ok=True)

        def save(format):
            try:
                return self.save_rate(path, format)
            finally:
                path.unlink(missing_ok=True)
                self.lab.trim()
        contestants.update({name: functools.partial(save, format) for name, format in formats.items()})

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def take_notes(self):
        notes, self.notes = self.notes, []
        return notes

    def say(self, text):
        if not self.options.silent:
            print(f"    {text}", flush=True)

    def rotate(self, contestants, unit="B/s", runs=None):
        def progress(name, value):
            self.say(f"{name}: {value / 1e6:.0f} MB/s" if unit == "B/s" else f"{name}: {value:.4g} {unit}")
        return rotate(runs or self.options.runs, contestants, unit, progress)

    # --- arrays and mounts -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def array(self, paths=None, programs=None):
        """A fresh array over the lab's drives (or over the given directories), removed afterwards. `programs`: of another
        build."""
        number = next(self._numbers)
        members = [pathlib.Path(path) / f"array{number}" for path in paths or self.lab.paths]
        array = Array(programs or self.programs, members)
        try:
            yield array
        finally:
            array.remove()
            self.lab.trim()

    @contextlib.contextmanager
    def mount(self, array, *options, prefix=(), shown=()):
        """`prefix`: the words before the daemon's own; `shown`: what the results say of them, if not the words themselves."""
        mounted = Mounted(self, array, self.scratch / f"mount{next(self._numbers)}", options, prefix, shown)
        try:
            yield mounted.start()
            mounted.unmount()
        finally:
            mounted.destroy()

    @contextlib.contextmanager
    def mounted(self, *options, paths=None, programs=None):
        """A mount of a fresh array."""
        with self.array(paths, programs) as array, self.mount(array, *options) as mount:
            yield mount

    @contextlib.contextmanager
    def raw(self, size, paths=None, jobs=None):
        raw = Raw(self.commands, paths or self.lab.paths, size, jobs)
        try:
            yield raw
        finally:
            raw.remove()
            self.lab.trim()

    @contextlib.contextmanager
    def program_mount(self, program, *arguments, prefix=()):
        """Where a filesystem program of tools/bench is mounted."""
        with self.program_process(program, *arguments, prefix=prefix) as (path, _):
            yield path

    @contextlib.contextmanager
    def program_process(self, program, *arguments, prefix=()):
        """A filesystem program of tools/bench, in the foreground: `program ARGUMENTS MOUNTPOINT`, started by the command line
        `prefix`. Its mount point and its process number."""
        words = [*prefix, self.programs.build / "tools" / program, *arguments]
        with self.other_mount(words, [*prefix, f"build/tools/{program}", *arguments]) as mounted:
            yield mounted

    @contextlib.contextmanager
    def other_mount(self, words, noted):
        """Where the command line `words`, which the report has as `noted`, mounts what it serves in the foreground: its
        mount point is put behind it. The mount point and the process number."""
        path = self.scratch / f"mount{next(self._numbers)}"
        path.mkdir()
        self.commands.note([*map(str, noted), "MOUNT"])
        process = subprocess.Popen([*map(str, words), str(path)], stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while not os.path.ismount(path):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{words[0]} did not mount")
                time.sleep(0.005)
            yield path, process.pid
        finally:
            for attempt in range(50):
                if not os.path.ismount(path) or subprocess.run(
                        ["fusermount3", "-u", str(path)] if os.geteuid() else ["umount", str(path)],
                        capture_output=True).returncode == 0:
                    break
                time.sleep(0.1)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            path.rmdir()

    # --- one measurement -------------------------------------------------------------------------------------------------

    def drop_caches(self):
        """Page cache, dentries, inodes: so that what follows is cold. Without root, only this is not done."""
        os.sync()
        try:
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        except OSError:
            self.note("the page cache could not be dropped (needs root): loads from plain filesystems may be warm")

    def settle(self):
        """Lets the writes of whoever came before end before the clock of the next one runs."""
        os.sync()

    def save_rate(self, path, format, size=None, idle=None, **options):
        """A save under a name that is not there yet; bytes of the state per second (a sink does not know its files' sizes).
        `idle` collects the share of the machine's processors that had nothing to do meanwhile."""
        pathlib.Path(path).unlink(missing_ok=True)
        self.settle()
        size = size or self.size
        result = self.torch.save(path, format, size, **options)
        if idle is not None:
            idle.append(result["processors_idle"])
        return size / result["seconds"]

    def load_rate(self, path, how="torch", idle=None, **options):
        """A load of a state of the usual size; its bytes per second."""
        result = self.torch.load(path, how, **options)
        if idle is not None:
            idle.append(result["processors_idle"])
        return self.size / result["seconds"]

    def bytes_read(self, mount):
        """From the drives so far: by the block devices' own count in the lab, else by the daemon's."""
        if isinstance(self.lab, LoopLab):
            return bytes_moved(self.lab.devices)[0]
        return sum(member["bytes_read"] for member in mount.status()["members"])


def cpu_seconds(process):
    """User and system time of a process so far: of its threads, by the scheduler, as ticks are too long for small work.
    Threads that have ended are not counted; a daemon's stay."""
    tasks = pathlib.Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Mounted(Mount):
    """A mount of the programs under test, with the daemon's accounts."""

    seconds_to_start = 600  # row 19: recovery looks at each of a million files

    def __init__(self, bench, array, path, options, prefix=(), shown=()):
        super().__init__(array, path, options)
        self._bench = bench
        self.prefix = list(prefix)
        named = [f"DRIVE{index}/array" for index in range(len(array.members))]
        members = ":".join(named if len(named) <= 4 else [*named[:2], "...", named[-1]])
        shown = [word.replace(str(bench.programs.build), "build") for word in shown or prefix]
        bench.commands.note([*shown, "fastpersistfs", "-f", *(["-o", ",".join(options)] if options else []), members, "MOUNT"])

    def remount_cold(self):
        """So that neither the daemon nor the kernel remembers anything."""
        self.unmount()
        self._bench.drop_caches()
        return self.start()

    def cpu_seconds(self):
        return cpu_seconds(self.pid)

    def destroy(self):
        super().destroy()
        self.log_path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()
