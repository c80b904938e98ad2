"""Rows of variable length, as h5py wrote them, over files of every age and damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragged_files import DTYPES, ragged_path, same

import labeled
from labeled.errors import LabeledError
from labeled.formats.hdf5 import ragged as reading
from labeled.ragged.flat import read_at


def write(
    path: Path, rows: Any, dtype: Any = "u1", *, labelled: bool = True, **options: Any
) -> str:
    with h5py.File(path, "w", **options) as f:
        dataset = f.create_dataset("x", (len(rows),), h5py.vlen_dtype(np.dtype(dtype)))
        for i, row in enumerate(rows):
            dataset[i] = row
        if labelled:
            dataset.dims[0].label = "batch"
    return str(path)


def in_file_order(ragged: labeled.Ragged, rows: Any) -> list[np.ndarray[Any, Any]]:
    """Read rows, each once, in file order, as windows do."""
    rows = np.array(sorted(set(rows)), np.int64)
    sizes = ragged.reader.sizes(rows)
    stops = np.cumsum(sizes)
    out = np.zeros(int(sizes.sum()), ragged.dtype)
    read_at(ragged.reader, rows, out, stops - sizes, sizes)
    return [out[stop - size : stop] for stop, size in zip(stops, sizes, strict=True)]


SIZES = st.lists(st.integers(0, 60) | st.sampled_from([500, 4096, 9000, 70_000]), max_size=40)


@given(SIZES, st.sampled_from(DTYPES), st.data())
def test_rows_are_what_h5py_wrote(
    tmp_path_factory: Any, sizes: list[int], dtype: str, data: Any
) -> None:
    rows = [(np.arange(n) % 120 + 1).astype(np.dtype(dtype)) for n in sizes]
    path = write(tmp_path_factory.mktemp("h") / "x.h5", rows, dtype)
    order = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
    ragged = labeled.open_dataset(path)["x"]
    same(ragged.to_objects(), rows)
    same(ragged[order].to_objects(), [rows[i] for i in order])
    same(in_file_order(ragged, order), [rows[i] for i in sorted(set(order))])
    assert ragged.sizes.tolist() == sizes


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3000)), max_size=25))
def test_rows_that_were_written_again_and_again(
    tmp_path_factory: Any, changes: list[tuple[int, int]]
) -> None:
    rows = [np.full(20 * i, i, "u2") for i in range(10)]
    path = write(tmp_path_factory.mktemp("h") / "x.h5", rows, "u2")
    with h5py.File(path, "a") as f:
        for row, size in changes:
            rows[row] = np.full(size, size % 251, "u2")
            f["x"][row] = rows[row]
    same(labeled.open_dataset(path)["x"].to_objects(), rows)
    same(labeled.open_dataset(path)["x"][::-2].to_objects(), rows[::-2])
    same(in_file_order(labeled.open_dataset(path)["x"], range(0, 10, 2)), rows[::2])


@pytest.mark.parametrize(
    "options", [{"libver": "v110"}, {"libver": "latest"}, {"userblock_size": 512}]
)
def test_files_of_every_age(tmp_path: Path, options: Any, recwarn: Any) -> None:
    rows = [np.arange(i % 7, dtype="f4") for i in range(300)]
    path = write(tmp_path / "x.h5", rows, "f4", **options)
    ragged = labeled.open_dataset(path)["x"]
    same(ragged.to_objects(), rows)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_are_read_where_storage_is_out_of_reach(
    tmp_path: Path, monkeypatch: Any, dtype: str
) -> None:
    rows = [(np.arange(i % 9) + 1).astype(np.dtype(dtype)) for i in range(200)]
    path = write(tmp_path / "x.h5", rows, dtype)
    order = np.random.default_rng(0).integers(0, 200, 150)
    monkeypatch.setattr(reading.VlenReader, "_references", None)
    ragged = labeled.open_dataset(path)["x"]
    same(ragged.to_objects(), rows)
    same(ragged[order].to_objects(), [rows[i] for i in order])
    assert ragged.shapes[:, 0].tolist() == [len(row) for row in rows]
    assert "unknown before reading" in ragged.reader.why


def test_chunked_and_compressed_references(tmp_path: Path) -> None:
    rows = [np.arange(i % 5) for i in range(100)]
    options = {"chunks": (7,), "compression": "gzip", "shuffle": True}
    path = ragged_path(tmp_path / "x.h5", "vlen", rows, options=options)
    same(labeled.open_dataset(path)["x"].to_objects(), rows)
    with h5py.File(path, "a") as f:
        f.create_dataset("never", (5,), h5py.vlen_dtype("u1"), chunks=(2,))
        f["never"].dims[0].label = "batch"
        del f.attrs["split"]
    assert labeled.open_dataset(path)["never"].shapes.tolist() == [[0]] * 5


def test_objects_of_two_datasets_in_one_heap(tmp_path: Path) -> None:
    """Of one size: where one should lie is another of the same size, with another number."""
    one, two = ([np.full(40, i + k, "u2") for i in range(400)] for k in (0, 500))
    with h5py.File(tmp_path / "x.h5", "w") as f:
        made = [f.create_dataset(name, 400, h5py.vlen_dtype("u2")) for name in "xy"]
        for dataset in made:
            dataset.dims[0].label = "batch"
        for i in range(400):
            made[0][i] = one[i]
            made[1][i] = two[i]
    ds = labeled.open_dataset(tmp_path / "x.h5")
    for name, rows in (("x", one), ("y", two)):
        same(in_file_order(ds[name], range(0, 400, 7)), rows[::7])


def opened(path: str) -> labeled.Dataset:
    return labeled.open_dataset(path, dims={"x": ("batch", "n")})


@pytest.mark.parametrize("shuffle", [False, "full", "window"])
def test_any_damage_to_a_heap_gives_an_error_or_what_h5py_reads(
    tmp_path: Path, shuffle: Any
) -> None:
    rows = [np.arange(i % 5 + 1, dtype="u1") for i in range(40)]
    path = write(tmp_path / "x.h5", rows, labelled=False)
    whole = Path(path).read_bytes()
    heap = whole.index(b"GCOL")
    n_errors = 0
    # Further on lie sizes of objects, over some of which HDF5 itself never comes back.
    for at in [*range(heap, heap + 48, 3), heap + 700]:
        Path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            with h5py.File(path) as file:
                expected = [one.tolist() for one in file["x"][:]]
        except (OSError, RuntimeError):
            expected = []
        found = {}
        try:
            for batch in opened(path).batches(8, shuffle=shuffle, seed=1):
                some = [one.values.item().tolist() for one in batch["x"]]
                found |= dict(zip(batch.rows.tolist(), some, strict=True))
        except LabeledError as error:
            n_errors += str(path) in str(error)
            continue
        assert [found[i] for i in range(40)] == expected
    assert n_errors > 3
