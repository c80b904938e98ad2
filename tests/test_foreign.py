"""Any xarray object goes through the same loader, whole blocks at a time."""

from __future__ import annotations

import collections
import threading

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import DimsError, LoaderError, ReadError

N = 900
IMAGES = np.random.default_rng(0).normal(size=(4, N, 50))
TARGETS = np.arange(N) % 7


def dataset(blocks=(200, 200, 200, 200, 100), across=30, computed=None):
    def note(block, block_info=None):
        if computed is not None:
            computed[block_info[0]["chunk-location"]] += 1
        return block

    images = da.from_array(IMAGES, chunks=(2, blocks, across))
    images = images.map_blocks(note, dtype=images.dtype, meta=np.empty((0, 0, 0)))
    return xr.Dataset(
        {
            "images": (("channel", "time", "x"), images),
            "targets": ("time", TARGETS),
            "grid": ("x", np.arange(50)),
        }
    )


@given(
    st.sampled_from([False, True, "full", "window"]),
    st.integers(10, 170),
    st.integers(200, 600),
    st.integers(0, 2),
)
def test_batches_hold_the_rows_they_say(shuffle, size, window_rows, threads):
    loader = labeled.batches(
        dataset(),
        size,
        dim="time",
        shuffle=shuffle,
        seed=1,
        memory="6.5 MiB",
        window_rows=window_rows,
        threads=threads,
    )
    seen = []
    for batch in loader:
        assert batch["images"].dims == ("time", "channel", "x")
        np.testing.assert_array_equal(batch["images"].values, IMAGES[:, batch.rows].swapaxes(0, 1))
        np.testing.assert_array_equal(batch["targets"].values, TARGETS[batch.rows])
        seen.append(batch.rows)
    assert sorted(np.concatenate(seen)) == list(range(N))
    assert set(loader.plan.lay_out.sources) == {"images", "targets"}


@pytest.mark.parametrize("shuffle", [False, "window"])
def test_every_block_is_computed_once_an_epoch(shuffle):
    computed = collections.Counter()
    loader = dataset(computed=computed).labeled.batches(
        80, dim="time", shuffle=shuffle, seed=1, memory="5 MiB", window_rows=400, threads=0
    )
    assert not loader.plan.all_kept
    rows = np.concatenate([batch.rows for batch in loader])
    assert sorted(rows) == list(range(N))
    assert len(computed) == 5 * 2 * 2
    assert set(computed.values()) == {1}


def test_places_are_saved_and_found(tmp_path):
    array = dataset()["images"]
    loader = array.labeled.batches(160, dim="time", shuffle="window", window_rows=400, seed=2)
    epoch = iter(loader)
    next(epoch), next(epoch)
    state = loader.state_dict()
    rest = [batch.rows for batch in epoch]
    other = array.labeled.batches(160, dim="time", shuffle="window", window_rows=400)
    other.load_state_dict(state)
    for mine, batch in zip(rest, other, strict=True):
        np.testing.assert_array_equal(mine, batch.rows)


def test_what_fails_in_the_graph_names_the_rows():
    def fail(block):
        raise ZeroDivisionError("no such luck")

    array = xr.DataArray(
        da.ones((30, 2), chunks=(10, 2)).map_blocks(fail, dtype=float, meta=np.empty((0, 0))),
        dims=("time", "x"),
    )
    with pytest.raises(ReadError, match="rows 0 to 9 failed: no such luck"):
        list(labeled.batches(array, 4, dim="time", memory="3 MiB"))
    assert not [t for t in threading.enumerate() if t.name.startswith("labeled-work")]


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (lambda x: x + 0.5, "rows 0 to 9 failed: float64 is not cast to uint8"),
        (lambda x: x.astype(int) + 245, "value 256 in row 1 does not fit uint8.*within these rows"),
        (lambda x: x[:, :1], r"shape \(10, 2\) where \(10, 4\) was announced"),
        (lambda x: np.concatenate([x, x]), r"shape \(20, 4\) where \(10, 4\) was announced"),
        (lambda x: x[1:], r"shape \(9, 4\) where \(10, 4\) was announced"),
        (lambda x: np.ma.masked_equal(x, 12), "some values are masked; fill them in"),
    ],
)
@pytest.mark.parametrize("columns", [2, 4])
def test_blocks_that_are_not_what_their_array_announced_are_refused(compute, words, columns):
    rows = np.repeat(np.arange(10, 40, dtype="u1"), 4).reshape(30, 4)
    blocks = da.from_array(rows, chunks=(10, columns))
    if columns == 4:
        words = words.replace("(10, 2", "(10, 1")
    announced = blocks.map_blocks(compute, dtype="u1", chunks=blocks.chunks, meta=rows[:0])
    with pytest.raises(ReadError, match=words):
        list(labeled.batches(announced, 4))


def test_blocks_of_another_dtype_become_what_was_announced_where_nothing_is_lost():
    rows = np.arange(30.0)
    blocks = da.from_array(rows, chunks=10)
    for made, announced in [("i8", "u1"), ("f8", "f4"), ("u1", "f8"), (">i4", "i4")]:
        other = blocks.map_blocks(
            np.ndarray.astype, made, dtype=announced, meta=np.empty(0, announced)
        )
        found = [batch["data"].values for batch in labeled.batches(other, 7)]
        np.testing.assert_array_equal(np.concatenate(found), rows.astype(announced))
        assert {one.dtype for one in found} == {np.dtype(announced)}


def test_what_cannot_be_served_is_refused():
    with pytest.raises(DimsError, match="did you mean 'time'"):
        labeled.batches(dataset(), 4, dim="tim")
    unknown = da.from_array(np.arange(9))
    unknown = unknown[unknown > 3]
    with pytest.raises(LoaderError, match="compute_chunk_sizes"):
        labeled.batches(xr.DataArray(unknown, dims="batch"), 2)
