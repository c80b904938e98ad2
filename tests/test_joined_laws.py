"""Several files opened as one are what NumPy concatenates of what h5py reads of each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from make_files import split_table

DTYPES = ["u1", ">i4", "<i8", "<f4", ">f8", "?", "S3"]
STORED: list[dict[str, Any]] = [
    {},
    {"chunks": 1},
    {"chunks": 3},
    {"chunks": 4, "compression": "gzip"},
    {"chunks": 5, "compression": "gzip", "shuffle": True},
]


@st.composite
def splits(draw: st.DrawFn, n: int) -> dict[str, Any]:
    """Draw a stretch and a list of rows."""
    start, stop = sorted((draw(st.integers(0, n)), draw(st.integers(0, n))))
    listed = draw(st.lists(st.integers(0, n - 1), max_size=9)) if n else []
    return {"stretch": (start, stop), "list": listed}


@st.composite
def requests(draw: st.DrawFn, n: int) -> Any:
    kind = draw(st.sampled_from(["slice", "list", "mask"]))
    if kind == "list":
        return draw(st.lists(st.integers(-n, n - 1), max_size=9)) if n else []
    if kind == "mask":
        return np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    ends = st.none() | st.integers(-n - 1, n + 1)
    return slice(draw(ends), draw(ends), draw(st.sampled_from([None, 1, 2, -1])))


def write(path: Path, sources: dict[str, Any], stored: dict[str, Any], table: Any) -> None:
    """Write a file as others do: by h5py, with a split table and labels."""
    n = len(sources["x"])
    with h5py.File(path, "w") as file:
        for name, rows in sources.items():
            own = dict(stored)
            if "chunks" in own and n:
                own["chunks"] = (min(own["chunks"], n), *rows.shape[1:])
            plain = not n or 0 in rows.shape
            dtype = h5py.string_dtype() if rows.dtype == object else rows.dtype
            file.create_dataset(name, data=rows, dtype=dtype, **({} if plain else own))
            for axis in range(rows.ndim):
                file[name].dims[axis].label = ("batch", "height", "width")[axis]
        splits = {"stretch": table["stretch"], "list": np.array(table["list"], np.int64)}
        file.attrs["split"] = split_table(file, sources, splits)


def read(path: Path, name: str) -> np.ndarray[Any, Any]:
    with h5py.File(path) as file:
        dataset = file[name]
        if h5py.check_string_dtype(dataset.dtype) is not None and dataset.dtype == object:
            return np.array(dataset.asstr()[...], object)
        return np.asarray(dataset[...])


@st.composite
def files(draw: st.DrawFn) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Draw what one to four files hold, the same sources in each."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    made = []
    for number in range(draw(st.integers(1, 4))):
        n = draw(st.integers(0, 12))
        texts = [f"{number}: {'é' * int(rng.integers(0, 4))}{row}" for row in range(n)]
        values = rng.integers(0, 256, (n, *shape)).astype(dtype)
        sources = {"x": values, "t": np.array(texts, object)}
        made.append((sources, draw(st.sampled_from(STORED)), draw(splits(n))))
    return made


def rows_of_split(name: str, drawn: Any) -> np.ndarray[Any, Any]:
    """Return the rows of a split in all files, counted through them."""
    parts, begin = [], 0
    for sources, _, table in drawn:
        own = np.arange(*table["stretch"]) if name == "stretch" else np.array(table["list"], int)
        parts.append(own + begin)
        begin += len(sources["x"])
    return np.concatenate(parts)


@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")
@given(
    drawn=files(), names=st.lists(st.sampled_from(["stretch", "list"]), max_size=2), data=st.data()
)
def test_files_opened_as_one_are_their_rows_joined(drawn: Any, names: list[str], data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.hdf5" for number in range(len(drawn))]
        for path, one in zip(paths, drawn, strict=True):
            write(path, *one)
        joined = labeled.open_dataset(paths)
        rows = np.arange(sum(len(one[0]["x"]) for one in drawn))
        if names:
            joined = joined.split(*names)
            rows = np.concatenate([rows_of_split(name, drawn) for name in names])
        request = data.draw(requests(len(rows)))
        joined = joined.subset(request)
        rows = rows[np.array(request, int) if isinstance(request, list) else request]

        for name in ("x", "t"):
            want = np.concatenate([read(path, name) for path in paths])[rows]
            np.testing.assert_array_equal(joined[name].values, want, strict=True)
            np.testing.assert_array_equal(joined.load()[name].values, want, strict=True)
        want = np.concatenate([read(path, "x") for path in paths])[rows]
        if len(rows):
            shuffle = data.draw(st.sampled_from([False, "full", "window"]))
            seen = []
            for batch in joined.select("x").batches(5, shuffle=shuffle, seed=1):
                np.testing.assert_array_equal(batch["x"].values, want[batch.rows])
                seen += batch.rows.tolist()
            assert sorted(seen) == list(range(len(rows)))
