"""What a result depends on: the machine and the versions of what took part."""
import os
import pathlib
import platform
import subprocess


def _first_match(path, key):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(key):
            return line.removeprefix(key).strip().lstrip(":=").strip(' "')
    return "unknown"


def _version(*command):
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except OSError:
        return None
    lines = (said.stdout or said.stderr).strip().splitlines()
    return lines[0] if lines else None


def _commit(repository):
    commit = _version("git", "-C", str(repository), "rev-parse", "--short=12", "HEAD")
    changed = subprocess.run(["git", "-C", str(repository), "diff", "--quiet", "HEAD"], capture_output=True).returncode
    return f"{commit}{' with changes' if changed == 1 else ''}" if commit else None


def describe(programs, repository, versions):
    cache = programs.build / "CMakeCache.txt"
    return {
        "cpu": _first_match("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_bytes": int(_first_match("/proc/meminfo", "MemTotal").split()[0]) * 1024,
        "kernel": platform.release(),
        "system": _first_match("/etc/os-release", "PRETTY_NAME"),
        "fastpersistfs": _version(programs.mount, "--version"),
        "commit": _commit(repository),
        "build": _first_match(cache, "CMAKE_BUILD_TYPE:STRING") if cache.exists() else "unknown",
        "libfuse": (_version("fusermount3", "--version") or "unknown").rsplit(" ", 1)[-1],
        "fio": _version("fio", "--version"),
        "python": platform.python_version(),
        **versions,
        "huge_pages": pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
        if os.path.exists("/sys/kernel/mm/transparent_hugepage/enabled") else "none",
    }
