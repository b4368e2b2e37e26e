"""Asks directories for attributes, unknown names and listings all the time, and another process of the daemon's priority for a
byte back (what any answer by a process costs at this moment), until a line comes on stdin. Prints one JSON object:
{"WHO stat": [[when, seconds], ...], ..., "echo": [...]}.

    python -m suite.prober WHO=DIRECTORY ...
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
DAEMON_PRIORITY = -10


def stat(path):
    """statx that the kernel may not answer from its own memory."""
    buffer = ctypes.create_string_buffer(256)
    if libc.statx(AT_FDCWD, os.fsencode(path), AT_STATX_FORCE_SYNC, STATX_BASIC, buffer) != 0:
        raise OSError(ctypes.get_errno(), f"statx {path}")


class Echo:
    """A process that sends back each byte, as a filesystem's daemon answers: two changes of the running process."""

    def __init__(self):
        (theirs, self._out), (self._in, back) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(self._out)  # so that the end of this process is the end of its own
            try:
                os.nice(DAEMON_PRIORITY)
            except PermissionError:
                pass  # neither could the daemon
            while byte := os.read(theirs, 1):
                os.write(back, byte)
            os._exit(0)

    def ask(self):
        os.write(self._out, b".")
        os.read(self._in, 1)


def main(*places):
    samples = {}
    echo = Echo()

    def timed(name, call, *arguments):
        started = time.monotonic()
        call(*arguments)
        samples.setdefault(name, []).append((started, time.monotonic() - started))

    print("started", flush=True)
    turn = 0
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        turn += 1
        for who, where in (place.split("=", 1) for place in places):
            timed(f"{who} stat", stat, f"{where}/entry{turn % 200}")
            timed(f"{who} lookup", os.path.exists, f"{where}/unknown{turn}")
            timed(f"{who} readdir", os.listdir, where)
        timed("echo", echo.ask)
    print(json.dumps(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
