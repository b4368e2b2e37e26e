"""Prints the clients of these tests with the versions that are installed: the table in docs/conformance.md.

    python tests/clients/versions.py
"""
import importlib.metadata
import platform
import re
import sqlite3
import subprocess

PACKAGES = ["torch", "safetensors", "transformers", "accelerate", "lightning", "deepspeed", "numpy", "h5py", "pandas",
            "pyarrow"]
PROGRAMS = [["tar", "--version"], ["rsync", "--version"], ["cp", "--version"], ["dd", "--version"], ["git", "--version"]]


def version_of_package(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def version_of_program(words):
    try:
        said = subprocess.run(words, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return "not installed"
    return re.search(r"\d+(\.\d+)+", said.splitlines()[0])[0]


def versions():
    found = {name: version_of_package(name) for name in PACKAGES}
    try:
        import h5py
        found["h5py"] += f" (HDF5 {h5py.version.hdf5_version})"
    except ImportError:
        pass
    found["sqlite"] = sqlite3.sqlite_version
    found.update({words[0]: version_of_program(words) for words in PROGRAMS})
    found["Python"] = platform.python_version()
    found["Linux"] = re.match(r"\d+\.\d+", platform.release())[0]
    return found


if __name__ == "__main__":
    for name, version in versions().items():
        print(f"{name:14}{version}")
