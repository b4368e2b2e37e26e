"""The programs under test, from the build directory (FPFS_BUILD, else build/ in the repository)."""
import os
import pathlib
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


class Programs:
    def __init__(self, build=None):
        self.build = pathlib.Path(build or os.environ.get("FPFS_BUILD", REPOSITORY / "build")).resolve()
        self.mount = self._find("fs/fastpersistfs")
        self.mkfs = self._find("tools/mkfs.fastpersistfs")
        self.fsck = self._find("tools/fsck.fastpersistfs")
        self.fpfs = self._find("tools/fpfs")

    def _find(self, name):
        program = self.build / name
        if not os.access(program, os.X_OK) or program.is_dir():
            raise FileNotFoundError(f"{program} is not built; run mount-scripts/build first, or set FPFS_BUILD")
        return str(program)


def run(*command, check=True, timeout=120, **options):
    """Runs a command and returns it with its output; a failure shows what it printed."""
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=timeout, **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{' '.join(str(word) for word in command)}: exit {result.returncode}\n"
                             f"{result.stdout}{result.stderr}")
    return result
