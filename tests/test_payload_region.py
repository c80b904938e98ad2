"""Regions mean what NumPy means, and their plans fetch what they need and hardly more."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from payload_files import indexers, outer

from labeled.formats import region as regions
from labeled.formats.hdf5.tiles import Tiles
from labeled.formats.region import (
    box_plan,
    is_whole,
    length,
    normal_region,
    outer_put,
    outer_take,
    region_shape,
)

shapes = st.lists(st.integers(1, 6), min_size=0, max_size=3).map(tuple)


@st.composite
def shaped_regions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[object, ...]]:
    shape = draw(shapes)
    return shape, tuple(draw(indexers(size)) for size in shape)


@given(shaped_regions())
def test_a_normal_region_takes_what_numpy_takes(case: tuple) -> None:
    shape, region = case
    rows = np.arange(2 * math.prod(shape)).reshape(2, *shape)

    normal = normal_region(region, shape)
    expected = outer(rows, region)
    np.testing.assert_array_equal(outer_take(rows, normal), expected)
    assert region_shape(normal) == expected.shape[1:]
    assert is_whole(normal, shape) == (
        expected.shape == rows.shape and np.array_equal(expected, rows)
    )
    for index in normal:
        assert not isinstance(index, slice) or index.step == 1 or length(index) > 1


@given(shaped_regions(), st.booleans())
def test_putting_undoes_taking(case: tuple, listed: bool) -> None:
    shape, region = case
    normal = tuple(
        index[np.sort(np.unique(index, return_index=True)[1])]
        if isinstance(index, np.ndarray)
        else index
        for index in normal_region(region, shape)
        if not isinstance(index, int)
    )
    shape = tuple(n for n, index in zip(shape, region, strict=True) if not isinstance(index, int))
    values = np.arange(1, 1 + 3 * math.prod(length(i) for i in normal)).reshape(
        3, *(length(i) for i in normal)
    )
    out = np.zeros((5, *shape), int)
    rows = np.array([4, 0, 2]) if listed else slice(1, 4)
    outer_put(out, rows, normal, values)

    np.testing.assert_array_equal(outer_take(out[rows], normal), values)
    assert np.count_nonzero(out) == values.size


@given(shaped_regions(), st.sampled_from([0, 3, 20, 1 << 14]), st.sampled_from(["u1", "f8"]))
def test_a_box_holds_what_is_wanted(case: tuple, gap: int, dtype: str) -> None:
    shape, region = case
    row = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    normal = normal_region(region, shape)
    with mock.patch.object(regions, "GAP_BYTES", gap):
        plan = box_plan(normal, shape, row.dtype)

    stored = row.tobytes()
    stretches = [stored[start : start + plan.stretch_bytes] for start in plan.starts]
    assert sum(map(len, stretches)) == plan.box_bytes
    assert list(plan.starts) == sorted(plan.starts) or any(
        isinstance(index, np.ndarray) for index in normal
    )
    box = np.frombuffer(b"".join(stretches), dtype).reshape(1, *plan.box_shape)
    np.testing.assert_array_equal(outer_take(box, plan.inner)[0], outer(row[None], region)[0])
    assert plan.row_shape == outer(row[None], region).shape[1:]


def test_far_elements_are_fetched_alone_and_near_ones_together() -> None:
    rows = normal_region((slice(None), 5), (3, 100_000))
    far = box_plan(rows, (3, 100_000), np.dtype("f4"))
    assert (far.starts, far.stretch_bytes) == ((20, 400_020, 800_020), 4)

    near = box_plan(normal_region((slice(None), 5), (3, 10)), (3, 10), np.dtype("f4"))
    assert len(near.starts) == 1
    assert near.read_through
    assert near.bytes_of(7) <= 7 * near.row_bytes


@given(shaped_regions(), st.data())
def test_tiles_cover_a_region_once(case: tuple, data: st.DataObject) -> None:
    shape, region = case
    normal = normal_region(region, shape)
    chunks = tuple(data.draw(st.integers(1, n + 1)) for n in shape)
    padded = tuple(-(-n // c) * c for n, c in zip(shape, chunks, strict=True))
    whole = np.full(padded, -1)
    whole[tuple(map(slice, shape))] = np.arange(math.prod(shape)).reshape(shape)

    tiles = Tiles(normal, shape, chunks)
    grid = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
    out = np.full((1, *region_shape(normal)), -2)
    seen = []
    for tile in tiles:
        at = np.unravel_index(tile.number, grid) if grid else ()
        corner = tuple(slice(i * c, i * c + c) for i, c in zip(at, chunks, strict=True))
        outer_put(out, slice(0, 1), tile.trail, outer_take(whole[corner][None], tile.local))
        seen.append(tile.number)
    np.testing.assert_array_equal(out, outer(whole[None][(0, *map(slice, shape))][None], region))
    assert len(set(seen)) == len(seen) == len(tiles)
    assert tiles.per_band == math.prod(grid)
