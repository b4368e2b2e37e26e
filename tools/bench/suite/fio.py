"""What the drives give by themselves: fio with libaio and O_DIRECT."""
import json
import pathlib

DEPTH = 16
BLOCK = 1 << 20


def _run(commands, kind, files, size):
    """One job per file; bytes per second over all, by the slowest job."""
    words = ["fio", "--output-format=json", "--ioengine=libaio", "--direct=1", f"--iodepth={DEPTH}", f"--bs={BLOCK}",
             f"--rw={kind}", "--end_fsync=1", "--thread", f"--size={size}"]
    for index, file in enumerate(files):
        words += [f"--name=job{index}", f"--filename={file}"]
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

    def read(self):
        """What write() left."""
        return _run(self._commands, "read", self._files, self._size)

    def remove(self):
        for file in self._files:
            file.unlink(missing_ok=True)
