"""What the drives give by themselves: fio with libaio and O_DIRECT."""
import contextlib
import json
import pathlib
import subprocess
import time

DEPTH = 16
BLOCK = 1 << 20


def _words(kind, size):
    return ["--ioengine=libaio", "--direct=1", f"--iodepth={DEPTH}", f"--bs={BLOCK}", f"--rw={kind}", "--end_fsync=1",
            "--thread", f"--size={size}"]


def _jobs(files):
    return [word for index, file in enumerate(files) for word in (f"--name=job{index}", f"--filename={file}")]


def _run(commands, kind, files, size):
    """One job per file; bytes per second over all, by the slowest job."""
    words = ["fio", "--output-format=json", *_words(kind, size), *_jobs(files)]
    commands.note(["fio", *words[2:-2 * len(files)], f"(one job per file, {len(files)} files)"])
    output = commands.run(*words)
    report = json.loads(output[output.index("{"):])
    jobs = [job[kind] for job in report["jobs"]]
    return sum(job["io_bytes"] for job in jobs) * 1000 / max(job["runtime"] for job in jobs)


class Raw:
    """Files of fio in the given directories, `jobs` of them in all, which add up to `size`."""

    def __init__(self, commands, directories, size, jobs=None):
        count = jobs or len(directories)
        self._commands = commands
        self._files = [pathlib.Path(directories[index % len(directories)]) / f"raw{index}" for index in range(count)]
        self._size = max(size // count // BLOCK, 1) * BLOCK

    def write(self):
        """Fresh files, until fsync returned."""
        self.remove()
        return _run(self._commands, "write", self._files, self._size)

    @contextlib.contextmanager
    def writing(self):
        """The same over and over again, as long as the scope lasts."""
        self.remove()
        words = ["fio", "--output-format=json", *_words("write", self._size), "--time_based", "--runtime=3600",
                 *_jobs(self._files)]
        self._commands.note([*words[:1], *words[2:-2 * len(self._files)], f"(one job per file, {len(self._files)} files)"])
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not all(file.exists() for file in self._files):
                assert process.poll() is None, "fio did not begin"
                time.sleep(0.005)
            yield
            assert process.poll() is None, "fio ended too early"
        finally:
            process.terminate()
            process.wait()
            self.remove()

    def read(self):
        """What write() left."""
        return _run(self._commands, "read", self._files, self._size)

    def remove(self):
        for file in self._files:
            file.unlink(missing_ok=True)
