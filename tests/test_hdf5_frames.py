"""What PyTables and pandas keep beside numbers: times, booleans, names of rows and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import UnknownNameError

NAT = np.iinfo(np.int64).min
TIMES = np.array([0, 1_700_000_000, NAT, -5])
UNITS = ("s", "ms", "us", "ns")


def words(**attrs: Any) -> dict[str, Any]:
    """Return attributes as PyTables writes them: bytes of a fixed length."""
    return {
        key: np.bytes_(value) if isinstance(value, str) else value for key, value in attrs.items()
    }


def bits(group: h5py.Group, name: str, values: list[bool]) -> None:
    """Write booleans as PyTables does: fields of eight bits, which NumPy lacks."""
    raw, kind = np.array(values, np.uint8), h5py.h5t.STD_B8LE
    space = h5py.h5s.create_simple(raw.shape)
    made = h5py.h5d.create(group.id, name.encode(), kind, space)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=kind)
    group[name].attrs.update(words(CLASS="ARRAY"))


def frame(file: h5py.File, name: str, n_rows: int = 4) -> h5py.Group:
    """Write what ``DataFrame.to_hdf(format="fixed")`` makes of three columns, and one of text."""
    group = file.create_group(name)
    group.attrs.update(words(pandas_type="frame", CLASS="GROUP", nblocks=3))
    group["axis0"] = np.array([b"x", b"y", b"when", b"text"])
    group["axis1"] = TIMES[[0, 1, 3, 1]][:n_rows]
    group["axis1"].attrs.update(words(kind="datetime64[s]", name="N."))
    group["block0_items"] = np.array([b"x", b"y"])
    group["block0_values"] = np.arange(2.0 * n_rows).reshape(n_rows, 2)
    group["block1_items"] = np.array([b"when"])
    group["block1_values"] = TIMES[:n_rows, None]
    group["block1_values"].attrs.update(words(value_type="datetime64[ns, UTC]"))
    group["block2_items"] = np.array([b"text"])
    group.create_dataset("block2_values", 1, h5py.vlen_dtype(np.uint8))
    group["block2_values"][0] = np.frombuffer(b"\x80\x05]N.", np.uint8)
    group["block2_values"].attrs.update(words(PSEUDOATOM="object", CLASS="VLARRAY"))
    return group


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", ["", ", Europe/Berlin"])
def test_times_of_pandas_are_times(tmp_path: Path, unit: str, zone: str) -> None:
    path = tmp_path / "times.h5"
    item = np.dtype([("t", "i8"), ("values_block_0", "i8", (1,)), ("index", "i8"), ("n", "i8")])
    table = np.zeros(4, item)
    for field in item.names or ():
        table[field] = TIMES.reshape(table[field].shape)
    with h5py.File(path, "w") as file:
        file["array"] = TIMES
        file["array"].attrs.update(words(value_type=f"datetime64[{unit}{zone}]"))
        file["table"] = table
        told = {"t_dtype": f"datetime64[{unit}]", "values_block_0_dtype": f"timedelta64[{unit}]"}
        told |= {"index_kind": f"datetime64[{unit}{zone}]", "n_dtype": "int64"}
        file["table"].attrs.update(words(CLASS="TABLE", **told, n_kind="(lp0\nVn\np1\na."))

    dims = {"table/values_block_0": ("batch", "column")}
    dataset = labeled.open_dataset(path, dims=dims)

    expected = TIMES.view(f"M8[{unit}]").astype("M8[ns]")
    for name in ("array", "table/t", "table/index"):
        assert dataset.dtypes[name] == np.dtype("M8[ns]")
        np.testing.assert_array_equal(dataset[name].values, expected)
    lengths = dataset["table/values_block_0"].values[:, 0]
    np.testing.assert_array_equal(lengths, TIMES.view(f"m8[{unit}]"))
    np.testing.assert_array_equal(dataset["table/n"].values, TIMES)
    plain = labeled.open_dataset(path, dims=dims, decode_cf=False)
    assert {plain.dtypes[name] for name in plain.sources} == {np.dtype(np.int64)}


def test_booleans_of_pytables_are_booleans(tmp_path: Path) -> None:
    path, values = tmp_path / "bits.h5", [True, False, True]
    with h5py.File(path, "w") as file:
        bits(file, "mask", values)
        file["bytes"] = np.array(values, np.uint8)
        file["bytes"].attrs.update(words(CLASS="CARRAY"))
        kind = h5py.h5t.create(h5py.h5t.COMPOUND, 3)
        kind.insert(b"one", 0, h5py.h5t.STD_B8LE)
        kind.insert(b"two", 1, h5py.h5t.array_create(h5py.h5t.STD_B8LE, (1,)))
        kind.insert(b"number", 2, h5py.h5t.STD_U8LE)
        raw = np.repeat(np.array(values, np.uint8), 3)
        made = h5py.h5d.create(file.id, b"table", kind, h5py.h5s.create_simple((3,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=kind)
        file["table"].attrs.update(words(CLASS="TABLE"))

    dataset = labeled.open_dataset(path, dims={"table/two": ("batch", "column")})

    for name in ("mask", "table/one", "table/two"):
        assert dataset.dtypes[name] == np.dtype(bool)
        assert dataset[name].values.ravel().tolist() == values
    for name in ("bytes", "table/number"):
        assert dataset.dtypes[name] == np.dtype(np.uint8)


def test_a_frame_of_pandas_has_the_names_of_its_rows_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "frame.h5"
    with h5py.File(path, "w") as file:
        frame(file, "df")
        file["other/axis0"] = np.zeros(4)  # is no frame's

    dataset = labeled.open_dataset(path)

    assert dataset.sources == ("df/block0_values", "df/block1_values", "other/axis0")
    numbers = dataset["df/block0_values"]
    assert numbers.dims == ("axis1", "block0_items")
    np.testing.assert_array_equal(
        numbers["axis1"], TIMES[[0, 1, 3, 1]].view("M8[s]").astype("M8[ns]")
    )
    assert numbers.sel(block0_items=b"y").values.tolist() == [1, 3, 5, 7]
    when = dataset["df/block1_values"].values[:, 0]
    np.testing.assert_array_equal(when, TIMES.view("M8[ns]"))
    with pytest.raises(UnknownNameError, match=r"df/block2_values.*pickled objects"):
        dataset["df/block2_values"]
    with pytest.raises(UnknownNameError, match=r"df/axis0.*names columns"):
        dataset["df/axis0"]
    with pytest.raises(UnknownNameError, match=r"df/block2_items.*names columns"):
        dataset["df/block2_items"]


def test_rows_of_two_frames_are_not_taken_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "frames.h5"
    with h5py.File(path, "w") as file:
        frame(file, "one")
        frame(file, "two", n_rows=3)
        file.create_group("s").attrs.update(words(pandas_type="series"))
        file["s/index"], file["s/values"] = np.arange(10, 12), np.zeros(2)

    dataset = labeled.open_dataset(path)

    assert dataset.dims["one/block0_values"] == ("one/axis1", "one/block0_items")
    assert dataset.dims["two/block0_values"] == ("two/axis1", "two/block0_items")
    assert dataset["s/values"]["index"].values.tolist() == [10, 11]


def test_categories_of_a_table_of_pandas_are_no_examples(tmp_path: Path) -> None:
    path = tmp_path / "table.h5"
    codes = np.array([(0, 1), (1, 0), (2, 1)], [("index", "i8"), ("kind", "i1")])
    names = np.array([(0, b"cat"), (1, b"dog")], [("index", "i8"), ("values", "S3")])
    with h5py.File(path, "w") as file:
        file["df/table"], file["df/meta/kind/meta/table"] = codes, names
        file["df"].attrs.update(words(pandas_type="frame_table"))
        file["df/meta/kind/meta"].attrs.update(words(pandas_type="series_table"))
        file["own/meta/kind/meta/table"] = codes

    dataset = labeled.open_dataset(path)
    asked = labeled.open_dataset(path, group="df/meta/kind/meta")

    assert {name.rpartition("/")[0] for name in dataset} == {"df/table", "own/meta/kind/meta/table"}
    (batch,) = dataset.batches(3, output="numpy")
    assert batch["df/table/kind"].tolist() == [1, 0, 1]
    assert asked["table/values"].values.tolist() == [b"cat", b"dog"]
