"""Asks a directory for attributes, unknown names and listings all the time, and a control directory for the same, until a
line comes on stdin. Prints one JSON object: {"fastpersistfs stat": [[when, seconds], ...], ...}.

    python -m suite.prober DIRECTORY CONTROL
"""
import ctypes
import json
import os
import select
import sys
import time

AT_FDCWD, AT_STATX_FORCE_SYNC, STATX_BASIC = -100, 0x2000, 0x7FF
libc = ctypes.CDLL(None, use_errno=True)
PAUSE = 0.001


def stat(path):
    """statx that the kernel may not answer from its own memory."""
    buffer = ctypes.create_string_buffer(256)
    if libc.statx(AT_FDCWD, os.fsencode(path), AT_STATX_FORCE_SYNC, STATX_BASIC, buffer) != 0:
        raise OSError(ctypes.get_errno(), f"statx {path}")


def main(directory, control):
    samples = {}

    def timed(name, call, *arguments):
        started = time.monotonic()
        call(*arguments)
        samples.setdefault(name, []).append((started, time.monotonic() - started))

    print("started", flush=True)
    turn = 0
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        turn += 1
        for who, where in (("fastpersistfs", directory), ("control", control)):
            timed(f"{who} stat", stat, f"{where}/entry{turn % 200}")
            timed(f"{who} lookup", os.path.exists, f"{where}/unknown{turn}")
            timed(f"{who} readdir", os.listdir, where)
    print(json.dumps(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
