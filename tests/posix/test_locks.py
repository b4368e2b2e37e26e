"""flock and fcntl locks between processes, as on a local filesystem."""
import fcntl
import os
import struct
import time

import pytest

from lab.system import attempt, in_child

pytestmark = pytest.mark.P6


def test_flock(same):
    def behaviour(directory):
        path = directory / "file"
        path.touch()
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)

            def other(kind):
                def body():
                    with open(path, "r+b") as mine:
                        return repr(attempt(fcntl.flock, mine, kind | fcntl.LOCK_NB)).encode()
                return in_child(body)

            seen = [other(fcntl.LOCK_EX), other(fcntl.LOCK_SH)]
            fcntl.flock(file, fcntl.LOCK_SH)
            seen += [other(fcntl.LOCK_EX), other(fcntl.LOCK_SH)]
            fcntl.flock(file, fcntl.LOCK_UN)
            seen.append(other(fcntl.LOCK_EX))
        return seen

    same(behaviour)


def test_record_locks(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"0" * 100)
        with open(path, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX, 10, 20)  # bytes 20..29

            def other(start, length, kind=fcntl.LOCK_EX):
                def body():
                    with open(path, "r+b") as mine:
                        return repr(attempt(fcntl.lockf, mine, kind | fcntl.LOCK_NB, length, start)).encode()
                return in_child(body)

            def holder():
                with open(path, "r+b") as mine:
                    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
                    kind, _, start, length, owner = struct.unpack("hhqqi4x", fcntl.fcntl(mine, fcntl.F_GETLK, asked))
                    return repr((kind, start, length, owner == os.getppid())).encode()

            seen = [other(0, 20), other(25, 1), other(30, 0), other(0, 0), in_child(holder)]
            fcntl.lockf(file, fcntl.LOCK_SH, 10, 20)
            seen += [other(25, 1, fcntl.LOCK_SH), other(25, 1)]
            fcntl.lockf(file, fcntl.LOCK_UN)
            seen.append(other(0, 0))
        return seen

    same(behaviour)


def test_waiting_for_a_lock(same):
    def behaviour(directory):
        path = directory / "file"
        path.touch()
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            child = os.fork()
            if child == 0:
                try:
                    with open(path, "r+b") as mine:
                        fcntl.flock(mine, fcntl.LOCK_EX)  # waits for the parent
                        mine.write(b"after")
                    os._exit(0)
                finally:
                    os._exit(1)
            time.sleep(0.2)
            file.write(b"before")
            file.flush()
            waiting = os.waitpid(child, os.WNOHANG)[0] == 0
            fcntl.flock(file, fcntl.LOCK_UN)
        _, status = os.waitpid(child, 0)
        return waiting, status, path.read_bytes()

    same(behaviour)


def test_lock_goes_with_its_process(same):
    def behaviour(directory):
        path = directory / "file"
        path.touch()

        def lock_and_die():
            file = open(path, "r+b")
            fcntl.lockf(file, fcntl.LOCK_EX)
            os._exit(0)

        child = os.fork()
        if child == 0:
            lock_and_die()
        os.waitpid(child, 0)
        with open(path, "r+b") as file:
            return attempt(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    same(behaviour)


F_OFD_GETLK, F_OFD_SETLK = 36, 37


def test_open_file_description_locks(same):
    """OFD locks belong to the open file, not to the process, and go with its last descriptor."""
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"0" * 100)

        def lock(file, kind, start, length, command=F_OFD_SETLK):
            asked = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
            answer = attempt(fcntl.fcntl, file, command, asked)
            return answer if isinstance(answer, str) else struct.unpack("hhqqi4x", answer)[:4]

        with open(path, "r+b") as one, open(path, "r+b") as two:
            seen = [lock(one, fcntl.F_WRLCK, 10, 20), lock(two, fcntl.F_WRLCK, 15, 1), lock(two, fcntl.F_RDLCK, 30, 5),
                    lock(two, fcntl.F_WRLCK, 0, 0, F_OFD_GETLK), lock(one, fcntl.F_RDLCK, 0, 50),
                    attempt(fcntl.lockf, two, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)]
            copy = os.dup(one.fileno())
            one.close()
            seen.append(lock(two, fcntl.F_WRLCK, 0, 5))  # the copy still holds it
            os.close(copy)
            seen.append(lock(two, fcntl.F_WRLCK, 0, 5))
        return seen

    same(behaviour)


def test_leases_and_locks_do_not_keep_a_file_from_being_removed(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"x")
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.lockf(file, fcntl.LOCK_EX)
            os.unlink(path)
            path.write_bytes(b"another")
            with open(path, "r+b") as other:
                return attempt(fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    same(behaviour)
