"""Slices of lazy arrays: what NumPy would give, and no more is read than they hold."""

from __future__ import annotations

import os
import warnings

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import labeled

SHAPE = (23, 4, 6)
VALUES = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)
ROWS = np.random.default_rng(5).permutation(SHAPE[0])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    name = tmp_path_factory.mktemp("data") / "slices.h5"
    with h5py.File(name, "w") as f:
        for source, how in (("plain", {}), ("packed", {"chunks": (3, 2, 6), "compression": 1})):
            f.create_dataset(source, data=VALUES, **how)
            for axis, dim in enumerate(("batch", "y", "x")):
                f[source].dims[axis].label = dim
    return name


@pytest.fixture
def read_bytes(monkeypatch):
    counts, pread, preadv = [], os.pread, os.preadv

    def counted(call):
        def read(*args):
            found = call(*args)
            counts.append(len(found) if isinstance(found, bytes) else found)
            return found

        return read

    monkeypatch.setattr(os, "pread", counted(pread))
    monkeypatch.setattr(os, "preadv", counted(preadv))
    return counts


def one_request(n):
    """Leave out what dask itself gets wrong: ends beyond an axis that is walked backwards."""
    ends = st.none() | st.integers(-n, n)
    forth = st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, 5]))
    return st.integers(-n, n - 1) | forth | st.just(slice(None, None, -1))


@given(st.data())
def test_slices_of_slices_are_numpys(path, data):
    source = data.draw(st.sampled_from(["plain", "packed"]))
    chunks = data.draw(st.sampled_from([{"batch": 5}, {"batch": 7, "y": 2}, -1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = labeled.open_dataset(path, chunks=chunks)
        expected = VALUES
        if data.draw(st.booleans(), label="permuted"):
            dataset, expected = dataset.subset(ROWS), expected[ROWS]
        if data.draw(st.booleans(), label="region"):
            dataset, expected = dataset.isel(x=slice(1, None, 2)), expected[:, :, 1::2]
        found = dataset[source].data
    for _ in range(data.draw(st.integers(1, 3))):
        if not found.ndim or 0 in found.shape:
            break
        index = tuple(data.draw(one_request(n)) for n in found.shape)
        index = index[: data.draw(st.integers(1, len(index)))]
        found, expected = found[index], expected[index]
    computed = found.compute()
    assert computed.dtype == expected.dtype
    np.testing.assert_array_equal(computed, expected)


@pytest.mark.parametrize("index", [np.s_[5], np.s_[3:17], np.s_[2:9, 1:3, ::5]])
def test_no_more_is_read_than_the_rows_of_a_slice(path, read_bytes, index):
    array = labeled.open_dataset(path, chunks={"batch": 10}, io="pread")["plain"]
    opened = xr.open_dataset(path, engine="labeled", cache=False, io="pread")["plain"]
    for one in (array, opened):
        read_bytes.clear()
        np.testing.assert_array_equal(one[index].values, VALUES[index])
        assert (
            0 < sum(read_bytes) <= VALUES[index[:1] if isinstance(index, tuple) else index].nbytes
        )
