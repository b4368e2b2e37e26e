"""A time limit that also ends tests stuck inside a mount.

A system call that waits for a FUSE daemon cannot be interrupted by an exception. So when time is up, the FUSE connections
of this session are aborted first (the waiting calls then fail), and only then is the test itself interrupted.
"""
import contextlib
import faulthandler
import signal
import sys
import threading

from . import mount_table


class TimeLimit(Exception):
    """The test took too long."""


class Watchdog:
    def __init__(self, directory):
        self._directory = str(directory)  # mounts below it are this session's

    @contextlib.contextmanager
    def limit(self, seconds):
        finished = threading.Event()
        main = threading.main_thread()

        def interrupt(signum, frame):
            raise TimeLimit(f"not finished after {seconds} seconds")

        def watch():
            if finished.wait(seconds):
                return
            faulthandler.dump_traceback(sys.__stderr__)
            for entry in mount_table.entries():
                if entry.path.startswith(self._directory + "/"):
                    mount_table.abort(entry)
            while not finished.wait(3):
                signal.pthread_kill(main.ident, signal.SIGALRM)

        previous = signal.signal(signal.SIGALRM, interrupt)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()
            signal.signal(signal.SIGALRM, previous)
