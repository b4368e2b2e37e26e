"""numpy: save, savez, memory-mapped arrays that are read and changed in place."""
import zipfile

import numpy
import pytest

from lab.killing import Client

pytestmark = pytest.mark.P6

MIB = 1 << 20


def array_of(number, count=12 * MIB):
    return numpy.random.default_rng(number).standard_normal(count, dtype=numpy.float32)


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "u1", "?", "c16", "f2", "S7", "datetime64[ns]"])
def test_save_and_load(mount, kind):
    path = mount.path / "array.npy"
    array = numpy.frombuffer(numpy.random.default_rng(1).bytes(400_000), "u1").reshape(500, 800)
    array = (array % 2 == 0) if kind == "?" else array.copy().view(kind) if 800 % numpy.dtype(kind).itemsize == 0 else (
        array[:, :700].copy().view(kind))
    numpy.save(path, array)
    numpy.save(mount.path / "turned.npy", array.T)
    for remounted in (False, True):
        if remounted:
            mount.remount()
        for mode in (None, "r", "c"):
            assert numpy.load(path, mmap_mode=mode).tobytes() == array.tobytes()
            assert numpy.load(mount.path / "turned.npy", mmap_mode=mode).tobytes() == array.T.tobytes()


def test_several_arrays_in_one_file(mount):
    first, second = array_of(1, 300_000).reshape(300, 1000), numpy.eye(100)
    numpy.savez(mount.path / "plain.npz", a=first, b=second)
    numpy.savez_compressed(mount.path / "compressed.npz", a=first, b=second)
    mount.remount()
    for name in ("plain.npz", "compressed.npz"):
        with numpy.load(mount.path / name) as several:
            assert numpy.array_equal(several["a"], first) and numpy.array_equal(several["b"], second)


def test_memory_mapped_array(mount):
    path = mount.path / "array.npy"
    made = numpy.lib.format.open_memmap(path, mode="w+", dtype=numpy.float32, shape=(1000, 1000))
    made[:] = numpy.arange(10**6, dtype=numpy.float32).reshape(1000, 1000)
    made.flush()
    del made
    mount.remount()
    view = numpy.load(path, mmap_mode="r+")
    assert view[999, 999] == 999999
    view[500] *= 2
    view.flush()
    del view
    mount.remount()
    expected = numpy.arange(10**6, dtype=numpy.float32).reshape(1000, 1000)
    expected[500] *= 2
    assert numpy.array_equal(numpy.load(path), expected)


# --- killed in the middle ----------------------------------------------------------------------------------------

@pytest.mark.P2
def test_killed_while_saving(trial):
    trial(Client(array_of, lambda path, array: numpy.save(path, array), numpy.load, numpy.array_equal,
                 (ValueError, EOFError), sequential=True), "array.npy").kill_client()


@pytest.mark.P2
def test_killed_while_saving_several(trial):
    def load(path):
        with numpy.load(path) as several:
            return several["a"]

    trial(Client(lambda number: array_of(number, 4 * MIB), lambda path, array: numpy.savez(path, a=array), load,
                 numpy.array_equal, (ValueError, EOFError, zipfile.BadZipFile)), "arrays.npz").kill_client()


def test_killed_while_changing_a_mapped_array(trial):
    """What a killed process had stored through a shared mapping is there, and nothing else has changed."""
    def save(path, array):
        if path.exists():
            view = numpy.load(path, mmap_mode="r+")
        else:
            view = numpy.lib.format.open_memmap(path, mode="w+", dtype=array.dtype, shape=array.shape)
        for start in range(0, len(array), MIB):
            view[start:start + MIB] = array[start:start + MIB]
            view.flush()

    def is_part(loaded, old, new):
        # By bytes: memcpy(3) may copy by `rep movsb`, which a kill ends within a number (on any filesystem).
        found, before, after = (each.view(numpy.uint8) for each in (loaded, old, new))
        # New up to the step it was killed in, within which memcpy(3) has an order of its own, old from there on.
        step = MIB * loaded.itemsize
        end = (numpy.flatnonzero(found != after)[0] // step + 1) * step
        return ((found == before) | (found == after)).all() and (found[end:] == before[end:]).all()

    trial(Client(array_of, save, numpy.load, numpy.array_equal, is_part=is_part), "array.npy").kill_client()
