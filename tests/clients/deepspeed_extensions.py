"""Compiles the extensions of DeepSpeed that the tests use into the Python environment that runs this, once.

DeepSpeed compiles an extension at its first use, its aio_handle for five minutes and more on two cores: longer than a
test may take. This calls the same builders beforehand, with a place of their own; nothing is done when all are there.

    python tests/clients/deepspeed_extensions.py       exit 0: they are there; 1: they cannot be compiled, and why
"""
import contextlib
import hashlib
import importlib.metadata
import io
import os
import pathlib
import sys

# What each builder makes. aio_handle keeps its pinned memory by pin_memory; its engine starts with the last two.
EXTENSIONS = {"PinMemoryBuilder": "pin_memory", "AsyncIOBuilder": "async_io", "UtilsBuilder": "utils",
              "ShareMemCommBuilder": "deepspeed_shm_comm"}


def place():
    """They fit one version of DeepSpeed, of torch and of the processor only."""
    version = importlib.metadata.version
    processor = next((line for line in open("/proc/cpuinfo") if line.startswith(("flags", "Features"))), "")
    digest = hashlib.sha256(processor.encode()).hexdigest()[:8]
    name = f"deepspeed-{version('deepspeed')}-torch-{version('torch')}-{digest}"
    return pathlib.Path(sys.prefix) / "torch-extensions" / name


def are_compiled():
    try:
        return all((place() / name / f"{name}.so").exists() for name in EXTENSIONS.values())
    except importlib.metadata.PackageNotFoundError:
        return False


def environment():
    """What DeepSpeed goes by, the same here and in the tests: with other settings it would compile once more."""
    return {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(place()), "CXX": "c++",
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}  # ninja is there


def load(builder):
    """The extension as a module, by DeepSpeed's own builder."""
    from deepspeed.ops.op_builder.cpu import AsyncIOBuilder, PinMemoryBuilder, ShareMemCommBuilder
    from deepspeed.ops.op_builder.utils import UtilsBuilder
    known = (AsyncIOBuilder, PinMemoryBuilder, ShareMemCommBuilder, UtilsBuilder)
    return next(one for one in known if one.__name__ == builder)().load(verbose=False)


def main():
    try:
        os.environ.update(environment(), MAX_JOBS=str(os.cpu_count()))
        with contextlib.redirect_stdout(io.StringIO()):
            if not are_compiled():
                for builder in EXTENSIONS:
                    load(builder)
            load("AsyncIOBuilder").aio_handle()
    except Exception as error:  # whatever it is, the caller goes on without
        print(f"DeepSpeed's extensions: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
