"""The kernel's table of mounts, read without touching any mount (a dead or stuck one would hang the reader)."""
import dataclasses
import os
import pathlib
import re
import subprocess

CONTROL = pathlib.Path("/sys/fs/fuse/connections")


@dataclasses.dataclass
class Entry:
    path: str
    device: str  # "major:minor"
    kind: str
    source: str
    options: str


def entries():
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        fields, tail = left.split(), right.split(" ")
        found.append(Entry(_decode(fields[4]), fields[2], tail[0], _decode(tail[1]), fields[5] + "," + tail[2]))
    return found


def entry_of(path):
    """The topmost mount at exactly this path, or None."""
    matches = [entry for entry in entries() if entry.path == str(path)]
    return matches[-1] if matches else None


def unmount(path, lazy=False):
    """One attempt; the finished command."""
    if os.geteuid() == 0:
        command = ["umount", *(["-l"] if lazy else []), str(path)]
    else:
        command = ["fusermount3", "-u", *(["-z"] if lazy else []), str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def control(entry):
    """The kernel's files about a FUSE mount: `waiting`, requests that it has no answer to, and more."""
    if not os.path.ismount(CONTROL) and os.geteuid() == 0:
        subprocess.run(["mount", "-t", "fusectl", "fusectl", str(CONTROL)], capture_output=True)
    return CONTROL / entry.device.split(":")[1]


def abort(entry):
    """Ends every request on a FUSE mount with an error, so that nothing hangs on it. True when it could."""
    if not entry.kind.startswith("fuse"):
        return False
    try:
        (control(entry) / "abort").write_text("1")
        return True
    except OSError:
        return False


def _decode(text):
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
