"""Tables and the like, as PyTables, pandas and NumPy write them: every column is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import NotYetError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")

ROW = np.dtype(
    [
        ("energy", ">f8"),
        ("hit", "f4", (3,)),
        ("name", "S5"),
        ("inner", [("u", "i2"), ("v", "f8", (2, 2))]),
        ("kind", h5py.enum_dtype({"a": 0, "b": 1}, "i4")),
        ("good", "?"),
    ]
)
COLUMNS = {
    "energy": ("energy",),
    "hit": ("hit",),
    "name": ("name",),
    "inner/u": ("inner", "u"),
    "inner/v": ("inner", "v"),
    "kind": ("kind",),
    "good": ("good",),
}


def rows_of(n: int, seed: int = 0) -> np.ndarray:
    """Return a table whose every value tells its row."""
    rng = np.random.default_rng(seed)
    out = np.zeros(n, ROW)
    out["energy"], out["hit"] = rng.random(n), rng.random((n, 3))
    out["name"] = [f"n{i}".encode() for i in range(n)]
    out["inner"]["u"], out["inner"]["v"] = np.arange(n), rng.random((n, 2, 2))
    out["kind"], out["good"] = np.arange(n) % 2, np.arange(n) % 3 == 0
    return out


def column(rows: np.ndarray, name: str) -> np.ndarray:
    for field in COLUMNS[name]:
        rows = rows[field]
    return rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "t.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("run/events", data=rows_of(90), chunks=(7,), compression="gzip")
        f["flat"] = rows_of(90, 1)
        f["y"] = np.arange(90)
    return path


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(("where", "seed"), [("run/events", 0), ("flat", 1)])
def test_every_column_is_a_source_with_the_values_of_h5py(
    table: Path, where: str, seed: int, name: str
) -> None:
    source = f"{where}/{name}"
    wanted = column(rows_of(90, seed), name)

    ds = labeled.open_dataset(table)
    found = ds[source]

    assert found.shape == wanted.shape
    assert found.dtype.isnative
    np.testing.assert_array_equal(found.values, wanted)
    for batch in ds.select(source).batches(32, shuffle=True, seed=3):
        np.testing.assert_array_equal(batch[source].values, wanted[batch.rows])


@given(
    rows=st.lists(st.integers(0, 89), min_size=1, max_size=20),
    at=st.slices(2),
    place=st.integers(0, 1),
)
def test_parts_of_columns_are_those_of_numpy(
    table: Path, rows: list[int], at: slice, place: int
) -> None:
    dims = {"run/events/inner/v": ("batch", "i", "j")}
    ds = labeled.open_dataset(table, dims=dims, sources=["run/events/inner/v"])

    if at.step is not None and at.step < 0:
        at = slice(None)
    found = ds.subset(rows).isel(i=at, j=place)["run/events/inner/v"].values

    wanted = rows_of(90)["inner"]["v"][rows][:, at, place]
    np.testing.assert_array_equal(found, wanted)


def test_a_table_asked_for_whole_names_its_columns(table: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'flat'.* is a table.*'flat/energy'"):
        labeled.open_dataset(table, sources=["flat"])


def test_a_column_may_be_called_like_the_scale_of_its_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "x.h5")
    with h5py.File(path, "w") as f:
        f["time"] = np.arange(3.0)
        f["tab"] = np.array([(1.0, 2), (3.0, 4), (5.0, 6)], [("time", "f8"), ("a", "i4")])
        f["time"].make_scale("time")
        f["tab"].dims[0].attach_scale(f["time"])
    ds = labeled.open_dataset(path)
    assert ds["tab/time"].values.tolist() == [1, 3, 5]
    assert ds["tab/a"].sel(time=2.0).values == 6


def test_repack_refuses_to_lose_a_column(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as f:
        f.create_dataset("t", (4,), [("a", "f4"), ("raw", "V3")])

    with pytest.raises(NotYetError, match=r"'t': not all columns of this table are sources"):
        labeled.repack(tmp_path / "t.h5", tmp_path / "new.h5")


def test_columns_that_cannot_be_sources_say_why(tmp_path: Path) -> None:
    kinds = {"raw": "V3", "ref": h5py.ref_dtype, "x": "f4"}
    with h5py.File(tmp_path / "t.h5", "w") as f:
        f.create_dataset("t", (4,), list(kinds.items()))
        f.create_dataset("deep", (4,), [("a", [("x", "f4")], (2,))])
        f.create_dataset("text", (4,), [("x", "f4"), ("deep", [("name", h5py.string_dtype())])])
        f["single"] = np.zeros((), [("a", "f4")])

    ds = labeled.open_dataset(tmp_path / "t.h5")

    assert ds.sources == ("t/x",)
    why = ds.files.known.headers[0].not_opened
    assert {name: why[f"t/{name}"] for name in ("raw", "ref")} == {
        "raw": "opaque dtype |V3",
        "ref": "reference dtype",
    }
    assert "'deep', of which 'deep' of varying length; write each" in why["text"]
    assert "compound dtype" in why["deep/a"]
    assert "compound dtype" in why["single"]


@pytest.mark.filterwarnings("error::labeled.LabeledWarning")
def test_a_table_that_a_text_keeps_from_opening_is_named_with_its_columns(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as f:
        f.create_dataset("t", (4,), [("x", "f4"), ("name", h5py.string_dtype()), ("n", "i4")])
        f["y"] = np.arange(4)

    why = "'t'.*fields 'x', 'name', 'n', of which 'name' of varying length; write each"
    with pytest.warns(labeled.LabeledWarning, match=f"it opens without {why}"):
        assert labeled.open_dataset(tmp_path / "t.h5").sources == ("y",)
    assert labeled.open_dataset(tmp_path / "t.h5", sources=["y"]).sources == ("y",)
    with pytest.raises(NotYetError, match=why):
        labeled.open_dataset(tmp_path / "t.h5", sources=["t/x"])


def test_a_type_that_is_an_array_adds_its_axes(tmp_path: Path) -> None:
    wanted = np.arange(60, dtype="f4").reshape(10, 2, 3)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", (10,), np.dtype(("f4", (2, 3))))[...] = wanted
        f.create_dataset("empty", (0,), np.dtype(("f4", (2, 3))), maxshape=(None,), chunks=(4,))

    ds = labeled.open_dataset(tmp_path / "a.h5", dims={"x": ("batch", "i", "j")})

    assert ds["empty"].shape == (0, 2, 3)
    np.testing.assert_array_equal(ds["x"].values, wanted)
    some = ds.select("x").isel(j=1).subset([7, 2])["x"]
    np.testing.assert_array_equal(some, wanted[[7, 2], :, 1])


def table_with_times(path: Path) -> np.ndarray:
    """Write a table one of whose columns is of HDF5's type for times, as PyTables writes it."""
    rows = np.zeros(50, [("energy", "f8"), ("hit", "i2", (3,))])
    rows["energy"], rows["hit"] = np.arange(50) / 4, np.arange(150).reshape(50, 3)
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, 22)
    kind.insert(b"t", 0, h5py.h5t.UNIX_D64LE)
    kind.insert(b"energy", 8, h5py.h5t.IEEE_F64LE)
    kind.insert(b"hit", 16, h5py.h5t.array_create(h5py.h5t.STD_I16LE, (3,)))
    with h5py.File(path, "w") as f:
        space = h5py.h5s.create_simple((50,))
        table = h5py.h5d.create(f.id, b"readout", kind, space)
        table.write(space, space, rows)
        h5py.h5d.create(f.id, b"clock", h5py.h5t.UNIX_D64LE, space)
        f["plain"] = np.arange(50)
    return rows


def test_a_column_of_a_type_that_numpy_lacks_leaves_the_others_to_be_read(tmp_path):
    rows = table_with_times(tmp_path / "t.h5")

    ds = labeled.open_dataset(tmp_path / "t.h5")

    assert ds.sources == ("plain", "readout/energy", "readout/hit")
    np.testing.assert_array_equal(ds["readout/energy"].values, rows["energy"])
    np.testing.assert_array_equal(ds["readout/hit"][7:21, 1].values, rows["hit"][7:21, 1])
    (batch,) = ds.batches(50)
    np.testing.assert_array_equal(batch["readout/hit"], rows["hit"])
    for name in ("readout/t", "clock"):
        with pytest.raises(UnknownNameError, match="is not a source: NumPy has no dtype for its"):
            ds[name]


@pytest.mark.parametrize(
    "values", [{"cat": 0, "dog": 1, "eel": 2}, {"eel": 7, "cat": -1, "dog": 3}]
)
def test_an_enumeration_names_its_classes(tmp_path, values):
    numbers = np.array([*values.values()] * 7, "i2")
    kind = h5py.enum_dtype(values, "i2")
    with h5py.File(tmp_path / "e.h5", "w") as f:
        f.create_dataset("animal", data=numbers, dtype=kind)
        f.create_dataset("told", data=numbers, dtype=kind).attrs["class_names"] = ["x", "y"]
        f.create_dataset("rows", data=np.zeros(21, [("kind", kind), ("good", "?")]))
        f["good"] = numbers > 0

    ds = labeled.open_dataset(tmp_path / "e.h5")

    wanted = {number: name for name, number in values.items()}
    assert ds["good"].attrs == ds["rows/good"].attrs == {}
    (batch,) = ds.select(["animal", "rows/kind", "told"]).batches(21)
    told = {name: batch.info[name].class_names for name in ("animal", "rows/kind", "told")}
    assert told == {"animal": wanted, "rows/kind": wanted, "told": {0: "x", 1: "y"}}
    new = labeled.open_dataset(labeled.repack(tmp_path / "e.h5", tmp_path / "new.h5"))
    (batch,) = new.select("animal").batches(21)
    assert batch.info["animal"].class_names == wanted


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
