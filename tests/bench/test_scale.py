"""The modelled machine (tools/bench/scale): nothing is faster than it is said to be, and what is read is verified."""
import contextlib
import json
import os
import subprocess

import pytest
from lab.array import Array, Mount

SLOW = 200
MIB = 1 << 20


class Machine:
    def __init__(self, binaries, lab, **values):
        self.build = binaries.build
        self.shared = lab / "machine-cores"
        self.values = {"slow": SLOW, "shared": self.shared, **values}

    def prefix(self, **others):
        text = ",".join(f"{name}={value}" for name, value in {**self.values, **others}.items())
        return ["env", f"FPFS_MACHINE={text}", f"LD_PRELOAD={self.build}/tools/libfpfs-bench-machine.so"]

    @contextlib.contextmanager
    def mount(self, array, path, *options, **others):
        self.shared.write_bytes(b"")
        mount = Mount(array, path, ("io_uring=off", *options))
        mount.prefix = self.prefix(**others)
        try:
            yield mount.start()
            mount.unmount()
        finally:
            mount.destroy()

    def streams(self, mode, amount, paths, **others):
        words = [*self.prefix(client=1, **others), self.build / "tools" / "fpfs-bench-streams", mode, amount, MIB, "cached",
                 *paths]
        result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture
def array(binaries, lab, tmp_path):
    members = [lab / f"{tmp_path.name}-member{index}" for index in range(2)]
    array = Array(binaries, members)
    yield array
    array.remove()


@pytest.mark.parametrize("streams", [1, 3])
def test_one_core_copies_as_fast_as_it_is_said_to(binaries, lab, array, tmp_path, streams):
    machine = Machine(binaries, lab, cores=1, copy=12e9)
    with machine.mount(array, tmp_path / "mount", "null_write") as mount:
        said = machine.streams("write", 0.5, [mount.path / f"file{index}" for index in range(streams)])
    # The ends of blocks are not quite even.
    assert 0 < said["rate"] * SLOW < 1.05 * 12e9


def test_what_was_written_without_being_stored_is_read_and_verified(binaries, lab, array, tmp_path):
    machine = Machine(binaries, lab, cores=4, copy=12e9, hash=20e9, read=14e9, write=12e9)
    paths = [tmp_path / "mount" / f"file{index}" for index in range(2)]
    with machine.mount(array, tmp_path / "mount", slow=0):
        assert machine.streams("make", 16 * MIB, paths, slow=0)["bytes"] == 32 * MIB
    with machine.mount(array, tmp_path / "mount") as mount:
        assert all(os.path.getsize(path) == 16 * MIB for path in paths)
        assert machine.streams("read", 5, paths)["bytes"] == 32 * MIB
        assert sum(member["bytes_read"] for member in mount.status()["members"]) >= 32 * MIB
