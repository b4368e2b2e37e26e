"""An array in subdirectories of the drives, and its mount."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from . import mount_table
from .programs import run
from .system import attempt, wait_until


class MountFailed(Exception):
    """The daemon ended instead of mounting; the text is what it said."""


class Array:
    """Formatted member directories. `members` is in the order of their formatting."""

    def __init__(self, programs, members, direct_io=True, chunk_size=None, format_options=()):
        self.programs = programs
        self.members = [pathlib.Path(member) for member in members]
        self.direct_io = direct_io
        # A test that damages the array sets this, and checks itself what fsck says.
        self.damaged = False
        options = ["--chunk-size", str(chunk_size)] if chunk_size else []
        run(programs.mkfs, *options, *format_options, self.argument)

    @property
    def argument(self):
        return ":".join(str(member) for member in self.members)

    def fsck(self, *options, check=False):
        if not self.direct_io:
            options = ("--buffered-members", *options)
        return run(self.programs.fsck, *options, self.argument, check=check, timeout=600)

    def fsck_report(self, *options):
        """The exit status and the JSON object."""
        result = self.fsck("--json", *options)
        try:
            return result.returncode, json.loads(result.stdout)
        except ValueError:
            raise AssertionError(f"fsck printed no JSON: exit {result.returncode}\n{result.stdout}{result.stderr}")

    def assert_clean(self):
        status, report = self.fsck_report("--verify-data")
        assert status == 0 and report["clean"], f"fsck: exit {status}, {json.dumps(report, indent=1)}"
        return report

    def remove(self):
        for member in self.members:
            shutil.rmtree(member, ignore_errors=True)


class Mount:
    """A mounted array; the daemon is a child of the tests, in the foreground."""

    seconds_to_start = 60

    def __init__(self, array, path, options=()):
        self.array = array
        self.path = pathlib.Path(path)
        self.options = list(options)
        self.log_path = self.path.with_name(self.path.name + ".log")
        self.process = None
        self.prefix = []  # a command that runs the daemon, with limits for example
        self.path.mkdir(parents=True, exist_ok=True)

    def start(self):
        options = [*filter(None, os.environ.get("FPFS_TEST_OPTIONS", "").split(",")), *self.options]
        if not self.array.direct_io:
            options.append("buffered_members")
        flags = ["-o", ",".join(options)] if options else []
        said_before = self._said_that_it_is_mounted()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, self.array.programs.mount, "-f", *flags, self.array.argument, str(self.path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + self.seconds_to_start
        while not (self._is_mounted() and self._said_that_it_is_mounted() > said_before):
            # Not poll(): when an interrupt comes between its lock and the block that lets go of it, wait() hangs.
            if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                ended = self.process.wait()
                self.process = None
                raise MountFailed(f"exit {ended}: {self.log()}")
            if time.monotonic() > deadline:
                self.kill()
                raise MountFailed(f"not mounted after {self.seconds_to_start} seconds: {self.log()}")
            time.sleep(0.005)
        os.stat(self.path)  # the first answer of the daemon
        return self

    def _said_that_it_is_mounted(self):
        """How often: that line is the last of a start, and a stat is answered before it."""
        files = [option.removeprefix("log_file=") for option in self.options if option.startswith("log_file=")]
        log = pathlib.Path(files[-1] if files else self.log_path)
        return log.read_bytes().count(b" mounted at ") if log.exists() else 0

    def _is_mounted(self):
        return mount_table.entry_of(self.path) is not None

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def status(self):
        return json.loads(run(self.array.programs.fpfs, "status", "--json", self.path).stdout)

    def memory(self, field="VmRSS"):
        """A field of the daemon's memory, in bytes."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
        raise KeyError(field)

    def wait_for_pool(self):
        """Until its buffers have their memory, which the daemon takes in the background when it is mounted. Their bytes."""
        buffers = self.status()["buffers"]
        pool = buffers["total"] * buffers["size"]
        wait_until(lambda: self.memory("RssAnon") >= pool, seconds=60)
        return pool

    def unmount(self):
        """In good order; the daemon must end with 0 after it committed everything."""
        deadline = time.monotonic() + 20
        while True:
            result = mount_table.unmount(self.path)
            if result.returncode == 0:
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.path} cannot be unmounted: {result.stderr}")
            time.sleep(0.05)
        status = self.process.wait(timeout=120)
        assert status == 0, f"the daemon ended with {status} after umount:\n{self.log()}"
        self.process = None

    def kill(self):
        """kill -9 of the daemon, and the dead mount detached."""
        self.process.kill()
        self.process.wait()
        self.process = None
        mount_table.unmount(self.path, lazy=True)

    def freeze(self):
        """Stops the daemon between two instructions: it says nothing more to anybody. Calls that are in the kernel go on."""
        self.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while any(state in "RS" for state in self._thread_states()):
            assert time.monotonic() < deadline, "the daemon does not stop"

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def at_once(self, *calls):
        """What calls return (see attempt()) that are made each on a thread of its own. The daemon stands still until the
        kernel has a request of each for it."""
        self.wait_until_answered()
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as callers:
            self.freeze()
            try:
                results = [callers.submit(attempt, call) for call in calls]
                wait_until(lambda: self._unanswered() >= len(calls))
            finally:
                self.thaw()
            return [result.result() for result in results]

    def wait_until_answered(self):
        """Also what nobody waits for, as closed files and directories."""
        wait_until(lambda: self._unanswered() == 0)

    def _unanswered(self):
        return int((mount_table.control(mount_table.entry_of(self.path)) / "waiting").read_text())

    def _thread_states(self):
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            yield (task / "stat").read_text().rsplit(")", 1)[1].split()[0]

    def remount(self):
        self.unmount()
        return self.start()

    def destroy(self):
        """Whatever state it is in; never hangs."""
        entry = mount_table.entry_of(self.path)
        if entry:
            mount_table.abort(entry)
            mount_table.unmount(self.path, lazy=True)
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
