"""pandas and pyarrow: parquet files and data sets."""
import os

import numpy
import pytest

from lab.killing import Client

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
import pyarrow.dataset  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

pytestmark = pytest.mark.P6


def table(number, rows):
    rolls = numpy.random.default_rng(number)
    return pandas.DataFrame({
        "step": numpy.arange(rows), "loss": rolls.standard_normal(rows), "text": [f"row {i % 997}" for i in range(rows)],
        "when": pandas.Timestamp("2026-01-01") + pandas.to_timedelta(rolls.integers(0, 10**9, rows), unit="s"),
        "group": pandas.Categorical(rolls.choice(["a", "b", "c"], rows))})


@pytest.mark.parametrize("compression", [None, "snappy", "zstd"])
def test_parquet(mount, compression):
    made, path = table(1, 50_000), mount.path / "table.parquet"
    made.to_parquet(path, compression=compression, row_group_size=7000)
    mount.remount()
    assert pandas.read_parquet(path).equals(made)
    assert pandas.read_parquet(path, columns=["loss"])["loss"].equals(made["loss"])
    mapped = pyarrow.parquet.read_table(path, memory_map=True)
    assert mapped.to_pandas().equals(made)
    del mapped
    with pyarrow.memory_map(str(path)) as file:
        assert pyarrow.parquet.ParquetFile(file).read_row_group(3).num_rows == 7000


def test_data_set(mount):
    made, path = table(2, 50_000), mount.path / "set"
    pyarrow.dataset.write_dataset(pyarrow.Table.from_pandas(made), path, format="parquet", partitioning=["group"],
                                  partitioning_flavor="hive")
    mount.remount()
    found = pyarrow.dataset.dataset(path, partitioning="hive")
    assert found.count_rows() == len(made)
    part = found.to_table(filter=pyarrow.dataset.field("group") == "b").to_pandas()
    assert sorted(part["step"]) == sorted(made[made["group"] == "b"]["step"])


def test_csv_and_feather(mount):
    made = table(3, 20_000)
    made.to_csv(mount.path / "table.csv", index=False)
    made.to_feather(mount.path / "table.feather")
    mount.remount()
    assert pandas.read_feather(mount.path / "table.feather").equals(made)
    mapped = pyarrow.feather.read_table(mount.path / "table.feather", memory_map=True)
    assert mapped.to_pandas().equals(made)
    del mapped
    assert numpy.array_equal(pandas.read_csv(mount.path / "table.csv")["loss"], made["loss"])
    # Appended to, as metrics are.
    made.to_csv(mount.path / "table.csv", index=False, header=False, mode="a")
    assert len(pandas.read_csv(mount.path / "table.csv")) == 40_000


# --- killed in the middle ----------------------------------------------------------------------------------------

def numbers(number):
    rolls = numpy.random.default_rng(number)
    return pandas.DataFrame({f"column{index}": rolls.standard_normal(1 << 20) for index in range(4)})


def same(left, right):
    return left.equals(right)


@pytest.mark.P2
def test_killed_while_saving(trial):
    trial(Client(numbers, lambda path, made: made.to_parquet(path, compression=None), pandas.read_parquet, same,
                 (pyarrow.ArrowInvalid,), sequential=True), "table.parquet").kill_client()


@pytest.mark.P2
def test_killed_while_replacing(trial):
    def replace(path, made):
        made.to_parquet(path.with_suffix(".new"), compression=None)
        os.replace(path.with_suffix(".new"), path)

    trial(Client(numbers, replace, pandas.read_parquet, same), "table.parquet").kill_client()
