"""Blocks of lazy arrays: whole stored chunks, few tasks, within memory."""

from __future__ import annotations

import dask
import dask.array
import h5py
import numpy as np
import pytest
from labelled_file import IMAGES, N, labelled_file

import labeled
from labeled.errors import DimsError, RowsMemoryError, UnsafeFileError


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return labelled_file(tmp_path_factory.mktemp("data"))


def test_permuted_rows_are_one_task_a_block(path):
    rows = np.random.default_rng(0).permutation(N)
    dataset = labeled.open_dataset(path, chunks={"batch": 10}).subset(rows)
    lazy = dataset["images"]
    assert lazy.data.numblocks == (5, 1, 1, 1)
    assert len(dict(lazy.__dask_graph__())) == 5
    np.testing.assert_array_equal(lazy.values, IMAGES[rows])


def test_blocks_are_whole_stored_chunks(path):
    dataset = labeled.open_dataset(path, chunks="auto").subset(slice(2, None))
    with dask.config.set({"array.chunk-size": "500 B"}):
        (first, *rest, _last) = dataset["images"].data.chunks[0]
    assert (first + 2) % 4 == 0
    assert all(rows % 4 == 0 for rows in rest)


@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "processes"])
def test_any_scheduler_computes_the_same(path, scheduler):
    lazy = labeled.open_dataset(path).split("train").subset(slice(None, None, 3))["images"]
    np.testing.assert_array_equal(lazy.compute(scheduler=scheduler), IMAGES[:30:3])


def test_a_shape_bomb_is_refused_before_memory_is_taken(tmp_path):
    path = str(tmp_path / "bomb.h5")
    with h5py.File(path, "w") as f:
        bomb = f.create_dataset("x", (1 << 30, 1024), "u1", chunks=(1024, 1024))
        bomb.dims[0].label, bomb.dims[1].label = "batch", "feature"
    dataset = labeled.open_dataset(path)
    assert not dataset.subset(slice(0, 10))["x"].values.any()
    for lazy in (dataset["x"], dataset.to_xarray()["x"]):
        assert not lazy[:10].values.any()
    whole = labeled.open_dataset(path, chunks=-1)["x"]
    for claim in (dataset.load, whole.compute):
        with pytest.raises(UnsafeFileError, match=r"'x'.*bomb\.h5"):
            claim()


def test_rows_that_no_memory_holds_are_named(tmp_path):
    path = tmp_path / "wide.h5"
    with h5py.File(path, "w") as f:
        f.create_virtual_dataset("x", h5py.VirtualLayout((1 << 31, 1 << 20), "f8"))
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "value"
    ds = labeled.open_dataset(path).subset(slice(5, None))
    words = r"'x' in .*wide\.h5': rows 5:2147483648 take 16.00 PiB in memory.*Read fewer at a time"
    with pytest.raises(RowsMemoryError, match=words):
        ds.load()


def test_default_blocks_fit_anywhere(tmp_path):
    path = str(tmp_path / "big.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("x", (200_000, 1000), "f4", chunks=(500, 1000))
        f.create_dataset("wide", (4, 64, 1 << 20), "f4", chunks=(1, 16, 1 << 20))
        for axis, name in enumerate("abc"):
            f["wide"].dims[axis].label = name
        f["x"].dims[0].label, f["x"].dims[1].label = "rows", "k"
    dataset = labeled.open_dataset(path)
    x = dataset["x"].data
    assert x.chunksize[0] % 500 == 0
    assert x.chunksize[1] == 1000
    assert (1 << 23) < x.chunksize[0] * 4000 <= (1 << 24)
    assert dataset["wide"].data.chunksize == (1, 16, 1 << 20)  # never less than a stored chunk


def test_chunks_name_dims_that_are_there(path):
    with pytest.raises(DimsError, match=r"'bacth'.*did you mean 'batch'"):
        labeled.open_dataset(path, chunks={"bacth": 3})


def test_chunks_that_do_not_fit_a_source_name_it(path):
    dataset = labeled.open_dataset(path, chunks=(3, 3))
    assert dataset["vectors"].chunks[0][0] == 3
    with pytest.raises(DimsError, match=r"'images' in .*chunks=\{dim"):
        dataset["images"]
