"""Rows of variable length, as h5py wrote them, over files of every age and damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragged_files import DTYPES, same

import labeled
from labeled.errors import LabeledError


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
    assert ragged.sizes.tolist() == sizes


def test_rows_along_several_axes_and_shapes_of_dense_rows_are_said(tmp_path: Path) -> None:
    path = str(tmp_path / "x.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("boxes", (3, 2), h5py.vlen_dtype(np.dtype("f4")))
        f["y"] = np.arange(3)
    ds = labeled.open_dataset(path)
    assert ds["y"].values.tolist() == [0, 1, 2]
    assert "  rows of variable length along 2 axes; only one is read" in repr(ds)
    with h5py.File(path, "a") as f:
        f["x"], f["s"] = np.zeros((3, 2)), np.zeros((3, 1), "i4")
        f["s"].make_scale("shapes")
        f["x"].dims[0].attach_scale(f["s"])
    with pytest.raises(LabeledError, match=r"source 'x' in .* detach that scale"):
        labeled.open_dataset(path, dims={"x": ("batch", "n", "m")})["x"]


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
