"""flock and fcntl locks between processes, as on a local filesystem."""
import fcntl
import os
import struct
import time

from lab.system import attempt, in_child


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
