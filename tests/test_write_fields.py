"""Structured arrays: every field becomes a source, which holds what the field held."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import ArrayError, UnknownNameError

LEAVES = ["i1", ">u2", "f4", "f8", "c8", "?", "S3", "M8[s]", "m8[ns]"]
NAMES = st.sampled_from("abcd")


@st.composite
def table_dtypes(draw: Any, depth: int = 1) -> np.dtype[Any]:
    """Compound dtypes with fields that are arrays, and fields with fields."""
    leaves = st.sampled_from(LEAVES).map(np.dtype)
    inner = st.one_of(leaves, table_dtypes(depth=depth - 1)) if depth else leaves
    fields = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        dtype = draw(inner)
        lengths = draw(st.lists(st.integers(1, 3), max_size=2)) if dtype.names is None else []
        fields.append((name, dtype, tuple(lengths)))
    return np.dtype(fields, align=draw(st.booleans()))


def leaves_of(table: Any, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return what each source should hold, one field after another."""
    if table.dtype.names is None:
        return {name: table}
    return {
        path: values
        for field in table.dtype.names
        for path, values in leaves_of(table[field], f"{name}/{field}").items()
    }


def random_table(dtype: np.dtype[Any], n: int, seed: int) -> np.ndarray[Any, Any]:
    rng, table = np.random.default_rng(seed), np.zeros(n, dtype)
    for values in leaves_of(table, "t").values():
        values[...] = rng.integers(0, 99, values.shape).astype(values.dtype)
    return table


def in_batches(table: Any, other: Any) -> list[dict[str, Any]]:
    return [{"t": table[:2], "y": other[:2]}, {"t": table[2:], "y": other[2:]}]


KINDS = {
    "array": lambda table, other: {"t": table, "y": other},
    "rows": lambda table, other: {"t": table.view(np.recarray), "y": other},
    "dask": lambda table, other: {"t": da.from_array(table, chunks=2), "y": other},
    "labelled": lambda table, other: {"t": xr.DataArray(table, dims=("batch",)), "y": other},
    "batches": in_batches,
}


@given(
    table_dtypes(), st.integers(3, 7), st.sampled_from(sorted(KINDS)), st.booleans(), st.booleans()
)
def test_what_is_written_is_what_is_opened(
    dtype: np.dtype[Any], n: int, kind: str, chunked: bool, grown: bool
) -> None:
    table, other = random_table(dtype, n, 1), np.arange(n)
    options: dict[str, Any] = {"chunks": 2} if chunked else {}
    splits = {"some": [2, 0], "second": (1, 2)}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.hdf5")
        labeled.write(path, KINDS[kind](table, other), splits, **options)
        if grown:
            more = random_table(dtype, 2, 2)
            labeled.append(path, {"t": more, "y": [7, 8]}, split="some")
            table = np.concatenate([table, more])
        rows = [2, 0, n, n + 1] if grown else [2, 0]
        found, expected = labeled.open_dataset(path), leaves_of(table, "t")
        assert set(found.sources) == {*expected, "y"}
        for name, values in expected.items():
            values = (
                values.astype(f"{values.dtype.kind}8[ns]") if values.dtype.kind in "mM" else values
            )
            np.testing.assert_array_equal(found[name].values, values)
            assert found[name].dtype == values.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found.split("some")[name].values, values[rows])
        assert labeled.verify(path).sound


def test_axes_are_named_for_all_fields_or_for_one(tmp_path: Path) -> None:
    table = np.zeros((3, 4), [("a", "i4"), ("b", "f4", (2,))])
    dims = {"t": ("batch", "time"), "t/b": ("batch", "time", "xy")}
    path = labeled.write(tmp_path / "x.h5", {"t": table}, dims=dims)
    found = labeled.open_dataset(path)
    assert found["t/a"].dims == ("batch", "time")
    assert found["t/b"].dims == ("batch", "time", "xy")
    with xr.open_dataset(path, engine="h5netcdf", group="t") as group:
        assert set(group.data_vars) == {"a", "b"}


def test_what_is_read_by_slices_is_read_by_fields(tmp_path: Path) -> None:
    table = random_table(np.dtype([("a", "i4"), ("b", "f4", (2,))]), 50, 0)
    with h5py.File(tmp_path / "in.h5", "w") as f:
        f["t"] = table
        path = labeled.write(tmp_path / "x.h5", {"t": f["t"]}, {"all": (0, 50)})
    for name, values in leaves_of(table, "t").items():
        np.testing.assert_array_equal(labeled.open_dataset(path)[name].values, values)


def test_fields_that_cannot_be_sources_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with pytest.raises(ArrayError, match=r"'t/raw' has dtype \|V4.*cast it"):
        labeled.write(path, {"t": np.zeros(3, [("raw", "V4")])})
    with pytest.raises(ArrayError, match=r"'t/a/b'"):
        labeled.write(path, {"t": np.zeros(3, [("a", "i4")]), "t/a/b": np.zeros(3)})
    with pytest.raises(ArrayError, match="'t/a' twice"):
        labeled.write(path, {"t": np.zeros(3, [("a", "i4")]), "t/a": np.zeros(3)})
    with pytest.raises(ArrayError, match="it has no fields"):
        labeled.write(path, {"t": np.zeros(3, np.dtype([]))})
    with pytest.raises(UnknownNameError, match="not a source"):
        labeled.write(path, {"t": np.zeros(3, [("a", "i4")])}, dims={"t/c": ("batch",)})
    assert not list(tmp_path.iterdir())
