"""The benchmark suite of fastpersistfs: see docs/benchmarks.md, and tools/bench/run."""
import pathlib
import sys

# Arrays, mounts and the kernel's mount table are handled by the same code as in the tests.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests"))
