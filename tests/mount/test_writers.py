"""Who wrote decides what a close commits: children that close what they inherited, savers that are killed, logs that stay open,
mappings, and the end of the daemon. What is there after kill -9 of the daemon is what was committed."""
import json
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from lab import mount_table
from lab.data import is_pattern, pattern, write_pattern
from lab.programs import run
from lab.system import attempt, in_child, wait_until

MIB = 1 << 20
OLD, NEW = 5 * MIB + 77, 4 * MIB
TESTS = __file__.rsplit("/", 2)[0]
MODES = {"wronly": os.O_WRONLY, "rdwr": os.O_RDWR}

# Replaces argv[2] (flags argv[3]) up to half, says so, and waits for what comes.
SAVER = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from lab.data import pattern
descriptor = os.open(sys.argv[2], int(sys.argv[3]))
for offset in range(0, 3 << 20, 1 << 19):
    os.pwrite(descriptor, pattern(2, offset, 1 << 19), offset)
print("half", flush=True)
"""


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


def replace_half(path, mode):
    """A descriptor by which half of a replacement was written."""
    descriptor = os.open(path, mode | os.O_TRUNC)
    for offset in range(0, NEW // 2, MIB):
        os.pwrite(descriptor, pattern(2, offset, MIB), offset)
    return descriptor


def replace_rest(descriptor):
    for offset in range(NEW // 2, NEW, MIB):
        os.pwrite(descriptor, pattern(2, offset, MIB), offset)


def restart(mount, *descriptors):
    """The daemon is killed; descriptors of the dead mount are closed."""
    mount.process.kill()
    for descriptor in descriptors:
        attempt(os.close, descriptor)
    mount.kill()
    mount.start()


def spawn(*arguments, **options):
    subprocess.run([*arguments] or ["true"], check=True, stdin=subprocess.DEVNULL, **options)


def fork_and_exit(_):
    in_child(lambda: None)


def fork_and_close(descriptor):
    in_child(lambda: os.close(descriptor))


def exec_with_it(descriptor):
    spawn("true", pass_fds=[descriptor])


CHILDREN = {"subprocess": lambda _: spawn(), "shell": lambda _: spawn("sh", "-c", "true", close_fds=False),
            "exec-closes": lambda _: spawn("true", close_fds=False), "inherits": exec_with_it,
            "fork": fork_and_exit, "fork-close": fork_and_close}


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.parametrize("child", CHILDREN)
def test_a_child_does_not_finish_the_save(mount, mode, child):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    descriptor = replace_half(path, mode)
    CHILDREN[child](descriptor)
    restart(mount, descriptor)
    assert is_pattern(path, 1, OLD)
    # And with a child in the middle the saver's own close ends the save.
    descriptor = replace_half(path, mode)
    CHILDREN[child](descriptor)
    replace_rest(descriptor)
    os.close(descriptor)
    restart(mount)
    assert is_pattern(path, 2, NEW)


@pytest.mark.P1
@pytest.mark.P2
def test_who_has_only_emptied_the_file_and_has_another_descriptor(mount, mode):
    """As dd and shells begin."""
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)

    def begin(end):
        first = os.open(path, mode | os.O_TRUNC)
        second = os.dup(first)
        os.close(first)
        for offset in range(0, end, MIB):
            os.pwrite(second, pattern(2, offset, MIB), offset)
        return second

    restart(mount, begin(NEW // 2))
    assert is_pattern(path, 1, OLD)
    os.close(begin(NEW))
    restart(mount)
    assert is_pattern(path, 2, NEW)


@pytest.mark.P1
@pytest.mark.P2
def test_an_exec_closes_what_was_emptied(mount):
    """execve(2) waits for the answer to that close, and whoever looks into the process below /proc for execve(2)."""
    path = mount.path / "checkpoint"
    begin = f"import os; fd = os.open({str(path)!r}, os.O_WRONLY | os.O_TRUNC); "
    for rest, size in (("os.execv('/bin/true', ['true'])", 0), ("os.dup2(fd, 1); os.execv('/bin/echo', ['echo'])", 1)):
        write_pattern(path, 1, OLD)
        spawn(sys.executable, "-c", begin + rest, timeout=60)
        restart(mount)
        assert path.stat().st_size == size


def redirected(path):
    return subprocess.Popen(["sh", "-c", 'cat >"$0"', path], stdin=subprocess.PIPE)


def given_to_a_child(path):
    with open(path, "wb") as file:
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)


def given_to_a_grandchild(path):
    with open(path, "wb") as file:
        return subprocess.Popen(["sh", "-c", "cat; true"], stdin=subprocess.PIPE, stdout=file)


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.parametrize("begin", (redirected, given_to_a_child, given_to_a_grandchild))
def test_a_program_whose_output_replaces_a_file(mount, begin):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    program = begin(path)
    program.stdin.write(pattern(2, 0, NEW // 2))
    program.stdin.flush()
    wait_until(lambda: NEW // 4 <= path.stat().st_size < OLD)
    mount.process.kill()
    attempt(program.communicate)
    restart(mount)
    assert is_pattern(path, 1, OLD)
    program = begin(path)
    program.communicate(pattern(2, 0, NEW))
    assert program.returncode == 0
    restart(mount)
    assert is_pattern(path, 2, NEW)


@pytest.mark.P2
@pytest.mark.parametrize("command", ('exec cat >"$0"', 'cat >"$0"', 'exec dd bs=64k of="$0" 2>/dev/null'))
def test_a_program_that_is_killed_while_its_output_replaces_a_file(mount, command):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    program = subprocess.Popen(["sh", "-c", command, path], stdin=subprocess.PIPE, start_new_session=True)
    program.stdin.write(pattern(2, 0, NEW // 2))
    program.stdin.flush()
    wait_until(lambda: NEW // 4 <= path.stat().st_size < OLD)
    os.killpg(program.pid, signal.SIGKILL)
    attempt(program.communicate)
    wait_until(lambda: is_pattern(path, 1, OLD))


@pytest.mark.P1
def test_what_is_no_other_descriptor_of_the_save(mount, mode):
    """The same file opened once more, for reading, by its path only, by somebody else: the close still commits."""
    path = mount.path / "checkpoint"
    elsewhere = mount.path / "elsewhere"
    for flags in (os.O_RDONLY, os.O_PATH, os.O_WRONLY, os.O_RDWR):
        write_pattern(path, 1, OLD)
        write_pattern(elsewhere, 1, OLD)
        others = [os.open(path, flags), os.open(elsewhere, os.O_WRONLY)]
        descriptor = replace_half(path, mode)
        replace_rest(descriptor)
        os.close(descriptor)
        restart(mount, *others)
        assert is_pattern(path, 2, NEW), flags
        # Emptied, with nothing written, is a content too.
        write_pattern(path, 1, OLD)
        others = [os.open(path, flags), os.open(elsewhere, os.O_WRONLY)]
        os.close(os.open(path, mode | os.O_TRUNC))
        restart(mount, *others)
        assert path.stat().st_size == 0, flags
    write_pattern(path, 1, OLD)
    spawn("sh", "-c", ': >"$0"', path)
    restart(mount)
    assert path.stat().st_size == 0


@pytest.mark.P2
def test_a_child_with_the_save_mapped(mount):
    """Pages of a mapping have no writer's name: those of the opener's are not the child's."""
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    descriptor = os.open(path, os.O_RDWR | os.O_TRUNC)
    os.ftruncate(descriptor, NEW)
    with mmap.mmap(descriptor, NEW) as view:
        view[:MIB] = bytes(pattern(2, 0, MIB))
        exec_with_it(descriptor)
        restart(mount)
        assert is_pattern(path, 1, OLD)
        attempt(view.flush)
    attempt(os.close, descriptor)


@pytest.mark.P1
def test_a_child_that_writes_ends_its_part(mount, mode):
    """Opened by one process, written and closed by another."""
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    descriptor = os.open(path, mode | os.O_TRUNC)

    def write():
        os.pwrite(descriptor, pattern(2, 0, NEW), 0)
        os.close(descriptor)

    in_child(write)
    restart(mount, descriptor)
    assert is_pattern(path, 2, NEW)


@pytest.mark.P1
def test_a_descriptor_passed_over_a_socket(mount, mode):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    here, there = socket.socketpair()
    descriptor = replace_half(path, mode)
    child = os.fork()
    if child == 0:  # has a copy of everything; closes all but what it is sent
        os.close(descriptor)
        _, received, _, _ = socket.recv_fds(there, 1, 1)
        there.recv(1)
        replace_rest(received[0])
        os.close(received[0])
        os._exit(0)
    socket.send_fds(here, [b"x"], [descriptor])
    time.sleep(0.2)
    half_time = mount.path / "copy"
    os.link(path, half_time)
    here.send(b"x")
    assert os.waitpid(child, 0)[1] == 0
    restart(mount, descriptor)
    assert is_pattern(path, 2, NEW)


@pytest.mark.P1
def test_a_file_without_a_name(mount):
    descriptor = os.open(mount.path, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(descriptor, pattern(2, 0, NEW))
    exec_with_it(descriptor)
    run("ln", "-L", f"/proc/{os.getpid()}/fd/{descriptor}", mount.path / "named")  # linkat(2) with AT_SYMLINK_FOLLOW
    os.close(descriptor)
    restart(mount)
    assert is_pattern(mount.path / "named", 2, NEW)


@pytest.mark.P1
@pytest.mark.parametrize("threads", [0, 3])
def test_an_exit_without_a_close_is_a_close(mount, mode, threads):
    """Also one with other threads, whose end the kernel marks as that by a signal."""
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)

    def save():
        for _ in range(threads):
            threading.Thread(target=time.sleep, args=[60], daemon=True).start()
        descriptor = os.open(path, mode | os.O_TRUNC)
        os.pwrite(descriptor, pattern(2, 0, NEW), 0)
        os._exit(0)

    for _ in range(5 if threads else 1):  # which thread is the last one to go is a matter of luck
        child = os.fork()
        if child == 0:
            save()
        assert os.waitpid(child, 0)[1] == 0
        assert is_pattern(path, 2, NEW)
        assert "was killed" not in mount.log()
    restart(mount)
    assert is_pattern(path, 2, NEW)


# --- savers that are killed ---------------------------------------------------------------------------------------------


def start_saver(path, flags, end=""):
    saver = subprocess.Popen([sys.executable, "-c", SAVER + end, TESTS, str(path), str(flags)], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    assert saver.stdout.readline() == b"half\n"
    return saver


# By somebody else; by itself; in another thread than the one that writes.
DEATHS = {"kill": (signal.SIGKILL, "time.sleep(60)"), "term": (signal.SIGTERM, "time.sleep(60)"),
          "abort": (signal.SIGABRT, "os.abort()"), "segv": (signal.SIGSEGV, "os.kill(os.getpid(), 11)"),
          "thread": (signal.SIGABRT, "threading.Thread(target=os.abort).start()\ntime.sleep(60)")}


@pytest.mark.P2
@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_saver_leaves_the_old_content(mount, mode, death):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    number, end = DEATHS[death]
    saver = start_saver(path, mode | os.O_TRUNC, end)
    with open(path, "rb") as reader:
        if number in (signal.SIGKILL, signal.SIGTERM):
            assert reader.read(MIB) == pattern(2, 0, MIB)  # in the kernel's cache, too
            saver.send_signal(number)
        assert saver.wait() == -number
        assert "was killed; it keeps its content of before" in mount.log()
        # For who had it open, and for who opens it now. (The kernel lets go of the saver's handle behind its end.)
        wait_until(lambda: os.pread(reader.fileno(), MIB, 0) == pattern(1, 0, MIB))
        assert path.stat().st_size == OLD
        assert is_pattern(path, 1, OLD)
        assert os.fstat(reader.fileno()).st_size == OLD
    # The next save is one like any other.
    write_pattern(path, 3, NEW)
    assert is_pattern(path, 3, NEW)
    restart(mount)
    assert is_pattern(path, 3, NEW)


@pytest.mark.P2
def test_killed_and_then_the_daemon_too(mount, mode):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    saver = start_saver(path, mode | os.O_TRUNC, "time.sleep(60)")
    saver.kill()
    saver.wait()
    restart(mount)
    assert is_pattern(path, 1, OLD)


@pytest.mark.P2
def test_a_killed_saver_of_a_small_file(mount, mode):
    """Content that lives in the index."""
    path = mount.path / "small"
    path.write_bytes(b"old" * 100)
    saver = start_saver(path, mode | os.O_TRUNC, "time.sleep(60)")
    saver.kill()
    saver.wait()
    assert path.read_bytes() == b"old" * 100


@pytest.mark.P1
@pytest.mark.P6
def test_a_killed_writer_of_a_new_file(mount, mode):
    """As on any filesystem: what was written is there."""
    path = mount.path / "new"
    saver = start_saver(path, mode | os.O_CREAT, "time.sleep(60)")
    saver.kill()
    saver.wait()
    assert is_pattern(path, 2, 3 * MIB)
    restart(mount)
    assert is_pattern(path, 2, 3 * MIB)


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.mount_options("killed_saver=commit")
def test_killed_saver_commit(mount):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    saver = start_saver(path, os.O_WRONLY | os.O_TRUNC, "time.sleep(60)")
    saver.kill()
    saver.wait()
    restart(mount)
    assert is_pattern(path, 2, 3 * MIB)


@pytest.mark.P2
@pytest.mark.P4
def test_one_of_two_savers_is_killed(mount):
    """A half is not committed by the other's close, which is told."""
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    descriptor = replace_half(path, os.O_WRONLY)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.pwrite(descriptor, pattern(2, NEW // 2, MIB), NEW // 2)
        os.write(write_end, b"x")
        time.sleep(60)
    os.read(read_end, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert attempt(os.pwrite, descriptor, b"x", 0) == "EIO"
    assert attempt(os.close, descriptor) == "EIO"
    for end in (read_end, write_end):
        os.close(end)
    assert is_pattern(path, 1, OLD)
    mount.kill()
    mount.start()
    assert is_pattern(path, 1, OLD)


# --- mappings -----------------------------------------------------------------------------------------------------------


@pytest.mark.P1
def test_a_close_covers_what_came_through_other_handles(mount):
    """The kernel writes back the pages of one process through the handle of another."""
    path = mount.path / "mapped"
    write_pattern(path, 1, OLD)
    others = [os.open(path, os.O_RDWR) for _ in range(3)]
    views = [mmap.mmap(other, OLD) for other in others]

    def store():
        descriptor = os.open(path, os.O_RDWR)
        with mmap.mmap(descriptor, OLD) as view:
            view[MIB:MIB + 4096] = b"s" * 4096
            view[4 * MIB:4 * MIB + 10] = b"t" * 10
        os.close(descriptor)

    in_child(store)
    restart(mount)
    with open(path, "rb") as file:
        content = file.read()
    assert content[MIB:MIB + 4096] == b"s" * 4096 and content[4 * MIB:4 * MIB + 10] == b"t" * 10
    for view, other in zip(views, others):
        attempt(view.close)
        attempt(os.close, other)


# --- logs that stay open ------------------------------------------------------------------------------------------------

TRICKLE = "commit_interval=2,commit_idle=1"


@pytest.mark.P1
@pytest.mark.mount_options(TRICKLE)
@pytest.mark.parametrize("how", ["new", "replaced", "append"])
def test_a_log_that_stays_open_is_committed(mount, how):
    path = mount.path / "log"
    if how != "new":
        path.write_text("of the run before\n" * 3000)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if how == "append" else os.O_TRUNC))
    begin = time.monotonic()
    times = []
    while time.monotonic() < begin + 5:
        times.append(time.monotonic())
        os.write(log, b"step %d\n" % len(times))
        time.sleep(0.1)
    killed = time.monotonic()
    restart(mount, log)
    lines = [line for line in path.read_text().splitlines() if line.startswith("step")]
    assert lines == [f"step {number}" for number in range(1, len(lines) + 1)]
    # Every two seconds, and a moment for the commit itself; machines that run tests are slow.
    assert len(lines) >= sum(1 for at in times if at < killed - 4) > 0


@pytest.mark.P1
@pytest.mark.mount_options("commit_interval=0,commit_idle=1")
def test_an_idle_log_is_committed(mount):
    log = os.open(mount.path / "log", os.O_WRONLY | os.O_CREAT)
    os.write(log, b"the only line\n")
    wait_until(lambda: mount.status()["files"]["dirty"] == 0)
    restart(mount, log)
    assert (mount.path / "log").read_text() == "the only line\n"


@pytest.mark.P2
@pytest.mark.mount_options(TRICKLE)
def test_a_stream_that_pauses_is_not(mount, mode):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    descriptor = replace_half(path, mode)
    time.sleep(4)
    restart(mount, descriptor)
    assert is_pattern(path, 1, OLD)


@pytest.mark.P2
@pytest.mark.mount_options("commit_interval=0,commit_idle=0")
def test_both_turned_off(mount):
    log = os.open(mount.path / "log", os.O_WRONLY | os.O_CREAT)
    os.write(log, b"line\n")
    time.sleep(2)
    restart(mount, log)
    assert attempt(lambda: (mount.path / "log").stat().st_size) in (0, "ENOENT")


# --- the end of the daemon, fpfs sync, background commits ---------------------------------------------------------------


def ends_by_signal(mount):
    mount.process.send_signal(signal.SIGTERM)


def ends_lazily(mount):
    assert mount_table.unmount(mount.path, lazy=True).returncode == 0
    mount.process.send_signal(signal.SIGTERM)


def ends_by_abort(mount):
    mount_table.abort(mount_table.entry_of(mount.path))
    mount_table.unmount(mount.path, lazy=True)


ENDS = {"signal": ends_by_signal, "lazy": ends_lazily, "abort": ends_by_abort}


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.root
@pytest.mark.parametrize("durable", ["close", "fsync"])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_the_daemon_commits_no_half(array, make_mount, end, durable):
    mount = make_mount(array, f"durable={durable}")
    path, closed = mount.path / "checkpoint", mount.path / "closed"
    write_pattern(path, 1, OLD)
    run(array.programs.fpfs, "sync", mount.path)
    descriptor = replace_half(path, os.O_WRONLY)
    write_pattern(closed, 3, NEW)
    ENDS[end](mount)
    status = mount.process.wait(timeout=60)
    attempt(os.close, descriptor)
    mount.process = None
    mount_table.unmount(mount.path, lazy=True)
    log_text = mount.log()
    assert status == 1, log_text
    assert re.search(r"/checkpoint was being written", log_text) and "everything is committed" not in log_text
    mount.start()
    assert is_pattern(path, 1, OLD) and is_pattern(closed, 3, NEW)
    assert mount.status()["recovery"]["was_dirty"]


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.root
@pytest.mark.mount_options("durable=fsync", "allow_other")
def test_fpfs_sync_leaves_alone_what_is_written(mount):
    fpfs = mount.array.programs.fpfs
    path, closed = mount.path / "checkpoint", mount.path / "closed"
    write_pattern(path, 1, OLD)
    run(fpfs, "sync", path)
    descriptor = replace_half(path, os.O_WRONLY)
    write_pattern(closed, 3, NEW)
    for what in (mount.path, path):
        result = run(fpfs, "sync", "--json", what, check=False)
        assert result.returncode == 1 and f"{path}: somebody is writing it" in result.stderr, result
        assert json.loads(result.stdout) == {"synced": False, "being_written": [str(path)], "errors": []}
    run(fpfs, "sync", closed)
    restart(mount, descriptor)
    assert is_pattern(path, 1, OLD) and is_pattern(closed, 3, NEW)


@pytest.mark.root
@pytest.mark.mount_options("durable=fsync", "allow_other")
def test_fpfs_sync_wants_the_right_to_write(mount):
    fpfs = str(mount.array.programs.fpfs)
    os.chmod(mount.path, 0o755)
    theirs, mine = mount.path / "theirs", mount.path / "mine"
    for path, owner in ((theirs, 0), (mine, 65534)):
        path.write_bytes(b"x" * 100)
        path.chmod(0o644)
        os.chown(path, owner, owner)

    def sync_as_other():
        outcomes = [subprocess.run([fpfs, "sync", path], capture_output=True, text=True) for path in (mount.path, theirs, mine)]
        assert [each.returncode for each in outcomes] == [1, 1, 0], outcomes
        assert all("only root, who mounted it" in each.stderr for each in outcomes[:2]), outcomes

    in_child(sync_as_other, uid=65534)


@pytest.mark.P2
@pytest.mark.mount_options("durable=fsync")
def test_the_background_commit_of_one_save_in_the_middle_of_the_next(mount, mode):
    path = mount.path / "checkpoint"
    write_pattern(path, 1, OLD)
    run(mount.array.programs.fpfs, "sync", path)
    write_pattern(path, 3, NEW)
    descriptor = replace_half(path, mode)
    time.sleep(2.5)  # the commit follows a close after a second
    restart(mount, descriptor)
    assert is_pattern(path, 1, OLD) or is_pattern(path, 3, NEW)
