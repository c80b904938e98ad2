"""Dask arrays are written block by block, wherever dask runs, within a bound of memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import ArrayError

LAYOUTS: list[dict[str, Any]] = [{}, {"layout": "chunked"}, {"compression": "gzip", "chunks": 6}]


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    columns=st.sampled_from([(5,), (2, 3), (1, 1, 3)]),
    options=st.sampled_from(LAYOUTS),
    scheduler=st.sampled_from(["threads", "synchronous"]),
)
def test_blocks_of_any_size(
    tmp_path_factory: Any, sizes: list[int], columns: Any, options: Any, scheduler: str
) -> None:
    array = np.random.default_rng(0).integers(0, 99, (sum(sizes), 5))
    lazy = da.from_array(array, chunks=(tuple(sizes), columns))
    path = tmp_path_factory.mktemp("w") / "x"
    with dask.config.set(scheduler=scheduler):
        labeled.write(path, {"x": lazy}, memory=2000, **options)
    np.testing.assert_array_equal(labeled.open_dataset(path)["x"], array)
    assert labeled.verify(path).sound


def test_dask_and_numpy_give_equal_bytes(tmp_path: Path) -> None:
    array = np.arange(30_000, dtype=np.float32).reshape(3000, 10)
    options = {"compression": "gzip", "chunks": 64, "statistics": False}
    one = labeled.write(tmp_path / "one", {"x": array}, **options)
    two = labeled.write(tmp_path / "two", {"x": da.from_array(array, chunks=(701, 4))}, **options)
    assert Path(one).read_bytes() == Path(two).read_bytes()


def test_each_block_is_computed_once_and_packed_where_it_was(tmp_path: Path) -> None:
    computed: list[tuple[int, str]] = []

    def block(block_info: Any = None) -> np.ndarray:
        start, stop = block_info[None]["array-location"][0]
        computed.append((start, threading.current_thread().name))
        return np.arange(start, stop)

    lazy = da.map_blocks(block, chunks=((13,) * 20,), dtype=np.int64)
    path = labeled.write(tmp_path / "x", {"x": lazy}, compression="gzip", memory=1000)
    assert sorted(start for start, _ in computed) == list(range(0, 260, 13))
    np.testing.assert_array_equal(labeled.open_dataset(path)["x"], np.arange(260))


def test_lengths_that_dask_does_not_know_are_refused(tmp_path: Path) -> None:
    lazy = da.from_array(np.arange(9), chunks=3)
    with pytest.raises(ArrayError, match="compute_chunk_sizes"):
        labeled.write(tmp_path / "x", {"x": lazy[lazy > 3]})


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def block(x: np.ndarray, block_id: Any = None) -> np.ndarray:
        if block_id == (7,):
            raise ZeroDivisionError("block 7")
        return x

    lazy = da.zeros(100, chunks=10).map_blocks(block, dtype=float, meta=np.zeros(0))
    with pytest.raises(ZeroDivisionError, match="block 7"):
        labeled.write(tmp_path / "x", {"x": lazy}, memory=200)
    assert list(tmp_path.iterdir()) == []


def test_blocks_of_another_shape_than_announced_are_refused(tmp_path: Path) -> None:
    lazy = da.zeros(100, chunks=10).map_blocks(lambda x: x[1:], dtype=float, meta=np.zeros(0))
    with pytest.raises(ArrayError, match=r"'x'.* shape \(90,\) where \(100,\)"):
        labeled.write(tmp_path / "x", {"x": lazy})
    assert list(tmp_path.iterdir()) == []
