"""System calls that Python does not offer, and what a call did as a value that can be compared."""
import ctypes
import errno
import os
import signal
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE_RANGE, FALLOC_ZERO_RANGE, FALLOC_INSERT_RANGE = 1, 2, 8, 16, 32
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def _checked(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def renameat2(source, target, flags):
    _checked(libc.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags))


def fallocate(descriptor, mode, offset, length):
    _checked(libc.fallocate(descriptor, mode, offset, length))


def die_with_parent(by=signal.SIGKILL):
    """In a process that a test made: this signal when the process that made it ends. Nothing that a test starts outlives it."""
    PR_SET_PDEATHSIG = 1
    _checked(libc.prctl(PR_SET_PDEATHSIG, by, 0, 0, 0))


def attempt(call, *arguments, **options):
    """What a call returned, or the name of the error it failed with."""
    try:
        return call(*arguments, **options)
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


def in_child(body, uid=None, groups=()):
    """Runs `body` in a forked process (as another user); raises when it failed there. Its result must be None or bytes."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read_end)
            if uid is not None:
                os.setgroups(list(groups))
                os.setgid(uid)
                os.setuid(uid)
            die_with_parent()
            result = body()
            os.write(write_end, result if isinstance(result, bytes) else b"")
            status = 0
        except BaseException as error:  # the parent shows it
            os.write(write_end, repr(error).encode())
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise AssertionError(f"child process: status {status}, {said.decode(errors='replace')}")
    return said


def wait_until(condition, seconds=30):
    """Asks again and again; fails when it has not come true by then."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so within {seconds} seconds"
        time.sleep(0.02)


def wait_until_gone(pid):
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def within(seconds, call, *arguments):
    """What a call returned, or the name of its error; fails the test when it takes longer. The call runs in a thread, so
    that one that hangs in the kernel does not hang the test."""
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(attempt(call, *arguments)), daemon=True)
    begin = time.monotonic()
    thread.start()
    thread.join(seconds)
    assert outcome, f"no answer for {seconds} seconds"
    print(f"answered after {time.monotonic() - begin:.1f} s: {outcome[0]!r:.80}")
    return outcome[0]
