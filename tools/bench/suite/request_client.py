"""Clients that ask for small things, side by side: each a process with a directory of its own, and one that all have.

    request_client.py WORK DIRECTORY CLIENTS FILES SECONDS

FILES: of each. Prints JSON: how often all together did it, a second."""
import itertools
import json
import multiprocessing
import os
import sys
import time

CONTENT = b"c" * 4096


def create(path):
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
    os.write(descriptor, CONTENT)
    os.close(descriptor)


def create_and_remove(path):
    create(path + ".new")
    os.unlink(path + ".new")


def read(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.read(descriptor, len(CONTENT))
    os.close(descriptor)


def rename(path):
    os.rename(path, path + ".moved")
    os.rename(path + ".moved", path)


def ask(path):
    """What no kernel remembers, and nobody has to look for on a drive."""
    try:
        os.getxattr(path, "user.none")
    except OSError:
        pass


names = itertools.count()


def look_up(path):
    """A name that is not there, each time another one, in the directory that all clients have."""
    try:
        os.lstat(f"{os.path.dirname(os.path.dirname(path))}/none-{os.getpid()}-{next(names)}")
    except FileNotFoundError:
        pass


# What is done, and how many of it one call counts for.
WORK = {"open, read, close": (read, 1), "create, write, close, unlink": (create_and_remove, 1), "rename": (rename, 2),
        "getxattr": (ask, 1), "lookup, one directory": (look_up, 1)}


def client(work, folder, files, seconds, gate, rates):
    do, counts = WORK[work]
    os.makedirs(folder)
    paths = [f"{folder}/file{index}" for index in range(files)]
    for path in paths:
        create(path)
    gate.wait()
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for path in paths:
            do(path)
        done += files * counts
    rates.put(done / (time.monotonic() - began))


def main():
    work, directory, clients, files, seconds = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    gate, rates = multiprocessing.Barrier(clients), multiprocessing.Queue()
    processes = [multiprocessing.Process(target=client, args=(work, f"{directory}/client{index}", files, seconds, gate,
                                                              rates)) for index in range(clients)]
    for process in processes:
        process.start()
    rate = sum(rates.get(timeout=seconds * 10 + 120) for _ in processes)
    for process in processes:
        process.join()
    print(json.dumps(rate))


if __name__ == "__main__":
    main()
