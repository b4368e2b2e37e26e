"""Compiles DeepSpeed's aio extension (its aio_handle) into the Python environment that runs this, once.

DeepSpeed compiles it itself at its first use: 15 files that each include all of torch, over five minutes on two cores.
Here they share a precompiled header: a bit more than one minute. Nothing is done when the result is there.

    python tests/clients/deepspeed_aio.py       exit 0: it is there; 1: it cannot be compiled, and why
"""
import concurrent.futures
import contextlib
import hashlib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile

DIRECTORY = pathlib.Path(sys.prefix) / "torch-extensions" / "deepspeed-aio"


def place():
    """It fits one version of DeepSpeed, of torch and of the processor only."""
    from importlib.metadata import version
    processor = next((line for line in open("/proc/cpuinfo") if line.startswith(("flags", "Features"))), "")
    digest = hashlib.sha256(processor.encode()).hexdigest()[:8]
    return DIRECTORY / f"{version('deepspeed')}-torch-{version('torch')}-{digest}"


def load():
    """The extension as a module; None when it was not compiled."""
    path = place() / "async_io.so"
    if not path.exists():
        return None
    import torch  # noqa: F401  its libraries must be there first
    specification = importlib.util.spec_from_file_location("async_io", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def compile_it():
    import deepspeed
    import torch.utils.cpp_extension
    from deepspeed.ops.op_builder.cpu.async_io import AsyncIOBuilder

    builder = AsyncIOBuilder()
    if not builder.is_compatible():
        raise RuntimeError("libaio is missing: apt-get install libaio-dev")
    root = pathlib.Path(deepspeed.__file__).parent / "ops"
    # With its manager of pinned memory itself, rather than a client of the one in another extension.
    sources = [source for source in builder.sources() if not source.endswith("_pin_tensor_client.cpp")]
    sources += ["csrc/pin_memory/page_alloc.cpp", "csrc/pin_memory/deepspeed_pin_tensor.cpp"]
    includes = [*(str(root / path) for path in builder.include_paths()), *torch.utils.cpp_extension.include_paths(),
                sysconfig.get_path("include")]
    flags = [*(flag for flag in builder.cxx_args() if flag not in ("-g", "-shared")), "-DTORCH_EXTENSION_NAME=async_io",
             "-DTORCH_API_INCLUDE_EXTENSION_H", "-std=c++20", "-w", *(f"-I{path}" for path in includes)]
    target = place()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as directory:
        header = pathlib.Path(directory) / "torch.h"
        header.write_text("#include <torch/extension.h>\n")
        call("c++", *flags, "-x", "c++-header", header, "-o", f"{header}.gch")

        def compile_one(source):
            result = pathlib.Path(directory) / (pathlib.Path(source).stem + ".o")
            call("c++", *flags, "-include", header, "-c", root / source, "-o", result)
            return result

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sources))
        torch_libraries = torch.utils.cpp_extension.library_paths()[0]
        call("c++", "-shared", *objects, "-o", f"{directory}/async_io.so", *builder.extra_ldflags(),
             f"-L{torch_libraries}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python")
        os.rename(f"{directory}/async_io.so", target / "async_io.so")


def call(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        raise RuntimeError(next((line for line in lines if "error" in line or "cannot" in line or "undefined" in line),
                                f"exit {result.returncode} of {words[0]}"))


def main():
    os.environ["DS_ACCELERATOR"] = "cpu"
    try:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            if load() is None:
                compile_it()
            load().aio_handle()
    except Exception as error:  # whatever it is, the caller goes on without
        print(f"DeepSpeed's aio extension: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
