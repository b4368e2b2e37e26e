"""The runner's end of workload.py."""
import json
import pathlib
import subprocess
import sys

from .commands import CommandFailed

BENCH = pathlib.Path(__file__).resolve().parents[1]


class TorchClient:
    """Saves and loads in fresh processes. `python`: an interpreter with torch."""

    def __init__(self, python=sys.executable):
        self._process = subprocess.Popen([python, "-m", "suite.workload"], cwd=BENCH, text=True, bufsize=1,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _ask(self, **request):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            line = self._process.stdout.readline()
        except OSError as error:
            raise CommandFailed(f"the torch process is gone: {error}") from error
        if not line:
            raise CommandFailed(f"the torch process ended with {self._process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise CommandFailed(answer["error"])
        return answer

    def run(self, jobs):
        """Jobs of workload.py, at the same time; their results."""
        results = self._ask(do="run", jobs=jobs)
        for result in results:
            if "error" in result:
                raise CommandFailed(result["error"])
        return results

    def save(self, path, format, size, **options):
        """One save of a state of `size` bytes; the result of workload.py."""
        return self.run([dict(call="save", path=str(path), format=format, size=size, **options)])[0]

    def load(self, path, how="torch", **options):
        return self.run([dict(call="load", path=str(path), how=how, **options)])[0]

    def versions(self):
        """{name: version or None} of torch, safetensors and deepspeed."""
        return self._ask(do="versions")

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
