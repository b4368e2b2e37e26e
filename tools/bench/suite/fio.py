"""What the drives give by themselves: fio with libaio and O_DIRECT."""
import contextlib
import json
import os
import pathlib
import subprocess
import time

DEPTH = 16
BLOCK = 1 << 20


def _command(commands, kind, files, size, *more):
    """One job per file; the report shows it without the jobs."""
    words = ["--ioengine=libaio", "--direct=1", f"--iodepth={DEPTH}", f"--bs={BLOCK}", f"--rw={kind}", "--end_fsync=1",
             "--thread", f"--size={size}", *more]
    commands.note(["fio", *words, f"(one job per file, {len(files)} files)"])
    jobs = [word for index, file in enumerate(files) for word in (f"--name=job{index}", f"--filename={file}")]
    return ["fio", "--output-format=json", *words, *jobs]


def _run(commands, kind, files, size):
    """Bytes per second over all, by the slowest job."""
    output = commands.run(*_command(commands, kind, files, size))
    report = json.loads(output[output.index("{"):])
    jobs = [job[kind] for job in report["jobs"]]
    return sum(job["io_bytes"] for job in jobs) * 1000 / max(job["runtime"] for job in jobs)


def _open_files(process):
    """Their paths. fio opens a file when its first transfer begins."""
    found = set()
    with contextlib.suppress(OSError):  # it may have ended
        for descriptor in pathlib.Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(descriptor))
    return found


class Raw:
    """Files of fio in the given directories, `jobs` of them in all, which add up to `size`."""

    def __init__(self, commands, directories, size, jobs=None):
        count = jobs or len(directories)
        self._commands = commands
        self.files = [pathlib.Path(directories[index % len(directories)]) / f"raw{index}" for index in range(count)]
        self._size = max(size // count // BLOCK, 1) * BLOCK

    def write(self):
        """Fresh files, until fsync returned."""
        self.remove()
        return _run(self._commands, "write", self.files, self._size)

    @contextlib.contextmanager
    def busy(self, rate=None):
        """write() over and over again, as long as the scope lasts; at `rate` bytes per second in all, else as fast as the
        drives are."""
        self.remove()
        limit = [f"--rate={int(rate / len(self.files))}"] if rate else []
        words = _command(self._commands, "write", self.files, self._size, "--time_based", "--runtime=3600", *limit)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while not _open_files(process.pid).issuperset(map(os.path.realpath, self.files)):
                assert process.poll() is None and time.monotonic() < deadline, "fio did not begin"
                time.sleep(0.005)
            yield
            assert process.poll() is None, "fio ended too early"
        finally:
            process.terminate()
            process.wait()
            self.remove()

    def read(self):
        """What write() left."""
        return _run(self._commands, "read", self.files, self._size)

    def remove(self):
        for file in self.files:
            file.unlink(missing_ok=True)
