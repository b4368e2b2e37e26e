"""Threads that answer requests ask for short turns (fs/transport/short_turns.h), where the kernel has such (Linux 6.12), and
leave a scheduling policy alone that an administrator has chosen."""
import contextlib
import ctypes
import os
import pathlib
import platform
import struct

import pytest

from lab.system import libc, wait_until

SYS_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
TURN = 100_000  # nanoseconds


def scheduling(thread):
    """(policy, nanoseconds of a turn) of a thread."""
    attributes = ctypes.create_string_buffer(48)
    number = SYS_SCHED_GETATTR[platform.machine()]
    assert libc.syscall(number, thread, attributes, len(attributes), 0) == 0, os.strerror(ctypes.get_errno())
    _, policy, _, _, _, runtime, _, _ = struct.unpack("=IIQiIQQQ", attributes.raw)
    return policy, runtime


def of_threads(mount, name):
    tasks = pathlib.Path(f"/proc/{mount.pid}/task").iterdir()
    return {scheduling(int(task.name)) for task in tasks if (task / "comm").read_text().startswith(name)}


@contextlib.contextmanager
def policy(number):
    os.sched_setscheduler(0, number, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def test_who_answers_requests_has_short_turns(array, make_mount):
    _, usual = scheduling(0)
    if usual == 0:
        pytest.skip("this kernel has turns of one length only")
    mount = make_mount(array)
    (mount.path / "file").write_bytes(b"x")
    # A thread asks when it first runs, which may be behind the first answer of another.
    wait_until(lambda: of_threads(mount, "fpfs-serve") == {(os.SCHED_OTHER, TURN)})
    assert of_threads(mount, "fpfs-work") == {(os.SCHED_OTHER, usual)}


def test_a_policy_that_was_chosen_stays(array, make_mount):
    with policy(os.SCHED_BATCH):
        mount = make_mount(array)
    assert {chosen for chosen, _ in of_threads(mount, "fpfs-serve")} == {os.SCHED_BATCH}
    assert TURN not in {turn for _, turn in of_threads(mount, "fpfs-serve")}
