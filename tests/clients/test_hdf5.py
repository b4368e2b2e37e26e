"""h5py with HDF5's file locks on."""
import os

import numpy
import pytest

from lab.killing import Child, Client, Refused

h5py = pytest.importorskip("h5py")

pytestmark = [pytest.mark.P6,
              pytest.mark.skipif(os.environ.get("HDF5_USE_FILE_LOCKING", "TRUE").upper() != "TRUE",
                                 reason="HDF5_USE_FILE_LOCKING turns the locks off")]


def arrays(number):
    rolls = numpy.random.default_rng(number)
    return {"weights": rolls.standard_normal((1024, 6000), dtype=numpy.float32),
            "table": rolls.integers(0, 1 << 40, 100_000)}


def save(path, made):
    with h5py.File(path, "w", locking=True) as file:
        file.create_dataset("weights", data=made["weights"], chunks=(64, 1000))
        file.create_dataset("table", data=made["table"], compression="gzip", compression_opts=1, shuffle=True)
        file.attrs["finished"] = True


def load(path):
    try:
        with h5py.File(path, "r", locking=True) as file:
            assert file.attrs["finished"]
            return {name: file[name][:] for name in ("weights", "table")}
    except (OSError, KeyError) as error:
        # HDF5 refuses with an OSError that has no errno; one that has comes from the filesystem.
        if getattr(error, "errno", None):
            raise
        raise Refused(str(error))


def same(loaded, made):
    return all(numpy.array_equal(loaded[name], made[name]) for name in made)


def test_save_load_and_change(mount):
    made, path = arrays(1), mount.path / "data.h5"
    save(path, made)
    mount.remount()
    assert same(load(path), made)
    with h5py.File(path, "r") as file:
        assert numpy.array_equal(file["weights"][100:900:7, 5::1000], made["weights"][100:900:7, 5::1000])
    with h5py.File(path, "r+", locking=True) as file:
        file["weights"][500] = 7
        file.create_dataset("more/deep", data=numpy.arange(10))
        del file["table"]
    mount.remount()
    made["weights"][500] = 7
    with h5py.File(path, "r") as file:
        assert numpy.array_equal(file["weights"][:], made["weights"]) and "table" not in file
        assert numpy.array_equal(file["more/deep"][:], numpy.arange(10))


def test_locks(mount):
    """A second process is refused while one writes, and let in when that one is gone, also by kill -9."""
    path = mount.path / "data.h5"
    save(path, arrays(1))

    def hold_for_writing():
        holder.append(h5py.File(path, "r+", locking=True))

    def wait():
        while True:
            os.read(silent, 1)

    holder, (silent, _) = [], os.pipe()
    child = Child(wait, prepare=hold_for_writing)
    try:
        for mode in ("r", "r+", "a"):
            with pytest.raises(OSError, match="lock"):
                h5py.File(path, mode, locking=True)
    finally:
        child.kill()
    with h5py.File(path, "r", locking=True), h5py.File(path, "r", locking=True):
        pass
    with h5py.File(path, "r+", locking=True):
        pass


def test_single_writer_many_readers(mount):
    """SWMR: a reader follows a writer that goes on writing."""
    path = mount.path / "swmr.h5"
    with h5py.File(path, "w", libver="latest") as file:
        growing = file.create_dataset("growing", (0,), maxshape=(None,), chunks=(1000,), dtype="i8")
        file.swmr_mode = True
        with h5py.File(path, "r", libver="latest", swmr=True) as reader:
            for turn in range(5):
                growing.resize((1000 * (turn + 1),))
                growing[1000 * turn:] = numpy.arange(1000 * turn, 1000 * (turn + 1))
                growing.flush()
                reader["growing"].refresh()
                assert numpy.array_equal(reader["growing"][:], numpy.arange(1000 * (turn + 1)))


@pytest.mark.P2
def test_killed_while_saving(trial):
    trial(Client(arrays, save, load, same, (Refused,)), "data.h5").kill_client()


@pytest.mark.P1
@pytest.mark.P2
def test_killed_while_replacing(trial):
    def replace(path, made):
        save(path.with_suffix(".new"), made)
        os.replace(path.with_suffix(".new"), path)

    one = trial(Client(arrays, replace, load, same), "data.h5")
    one.kill_client()
    one.kill_daemon(1)
