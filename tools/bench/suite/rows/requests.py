"""Row 23: small requests of many clients at once, against a FUSE passthrough."""
import contextlib
import json
import os
import shutil
import sys

from .. import request_client
from ..measure import Measure, ratio

SECONDS = 1.0
FILES = 300  # of each client, and no more than these of all: a daemon that may have 20,000 descriptors keeps 8,000 names open
FILES_OF_ALL = 4800


def clients_side_by_side():
    cores = len(os.sched_getaffinity(0))
    return sorted({1, 4, cores, 2 * cores})


def _rate(bench, work, place, clients):
    folder = place / "requests"
    folder.mkdir()
    try:
        files = min(FILES, FILES_OF_ALL // clients, bench.options.files)
        seconds = SECONDS * min(FILES, bench.options.files) / FILES
        return json.loads(bench.commands.run(sys.executable, request_client.__file__, work, folder, clients, files, seconds))
    finally:
        shutil.rmtree(folder)


def many_clients(bench):
    bench.commands.note(["request_client.py", "WORK", "DIRECTORY", "CLIENTS", FILES, f"{SECONDS:g}"])
    measures = []
    with contextlib.ExitStack() as stack:
        mount = stack.enter_context(bench.mounted())
        below = bench.lab.paths[0] / "below"
        below.mkdir()
        stack.callback(shutil.rmtree, below, ignore_errors=True)
        passed = stack.enter_context(bench.program_mount("fpfs-bench-passthrough", "--sync", below))
        places = {"fastpersistfs": mount.path, "passthrough": passed}
        for work in request_client.WORK:
            for clients in clients_side_by_side():
                name = f"{work}, {clients} at once"
                if not bench.wants(name):
                    continue
                figures = bench.rotate({who: lambda place=place: _rate(bench, work, place, clients)
                                        for who, place in places.items()}, unit="1/s")
                measures.append(Measure(name, figures, [ratio(figures, "fastpersistfs", ["passthrough"], 1.0)]))
    return measures
