"""Ragged arrays in memory: padding, masks, buckets and hand-over, against loops by hand."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragged_files import examples, same

from labeled import Ragged
from labeled.errors import ArrayError, DimsError
from labeled.permute import compiler
from labeled.ragged import FlatRows, flat
from labeled.ragged.flat import MANY_ELEMENTS, block_cuts, copy_segments, flat_of, offsets_of
from labeled.selection import Selection

DIMS = ("batch", "channel", "height", "width")


def padded_by_hand(arrays: Any, lengths: Any, value: Any, dtype: Any) -> tuple[Any, Any]:
    dense = np.full((len(arrays), *lengths), value, dtype)
    inside = np.zeros((len(arrays), *lengths), bool)
    for i, array in enumerate(arrays):
        place = (i, *map(slice, array.shape))
        dense[place], inside[place] = array, True
    return dense, inside


@given(examples(), st.integers(0, 3), st.sampled_from([1, 30, 600]), st.sampled_from([0, 1]))
def test_padding_is_what_a_loop_gives(arrays: Any, more: int, times: int, value: int) -> None:
    arrays = [np.repeat(a, times, axis=0) for a in arrays]  # small examples, and large ones
    k = arrays[0].ndim if arrays else 1
    ragged = Ragged.of(arrays, DIMS[: k + 1], "x")
    longest = [max((a.shape[axis] for a in arrays), default=0) for axis in range(k)]

    for lengths, to in ((longest, None), ([n + more for n in longest], "given")):
        if to is not None:
            to = dict(zip(DIMS[1:], lengths, strict=False))
        dense, inside = ragged.pad(to, value=value, mask=True)
        wanted, where = padded_by_hand(arrays, lengths, value, ragged.dtype)
        np.testing.assert_array_equal(dense, wanted)
        np.testing.assert_array_equal(inside, where)
        assert dense.dims == inside.dims == DIMS[: k + 1]
        assert (dense.name, inside.name) == ("x", "x_mask")
        np.testing.assert_array_equal(ragged.pad(to, value=value), wanted)


@given(st.integers(0, 4), st.integers(0, 3), st.integers(0, 4))
def test_examples_of_one_shape_are_an_array_and_others_say_what_to_do(n: int, k: int, odd: int):
    arrays = [np.arange(i, i + k, dtype="i2") for i in range(n)]
    ragged = Ragged.of([*arrays, np.zeros(0, "i2")])[:n]
    dense = np.asarray(ragged)
    assert dense.dtype == "i2"
    np.testing.assert_array_equal(dense, np.reshape(arrays, (n, k if n else 0)))
    assert np.asarray(ragged, "f4").dtype == "f4"

    if odd < n:
        arrays[odd] = np.arange(7, dtype="i2")
        objects = np.asarray(Ragged.of(arrays), object)
        assert all(np.array_equal(a, b) for a, b in zip(objects, arrays, strict=True))
    if odd < n and n > 1:
        with pytest.raises(ArrayError, match=rf"example {odd or 1} is .*ragged\.pad\(\)"):
            np.asarray(Ragged.of(arrays))


def test_an_array_of_examples_is_always_a_copy() -> None:
    with pytest.raises(ArrayError, match="leave out copy=False"):
        Ragged.of([np.arange(2)]).__array__(copy=False)


def test_padding_refuses_what_does_not_fit() -> None:
    words = Ragged.of([np.arange(3), np.arange(5)], ("batch", "time"), "words")
    assert words.pad(6).shape == (2, 6)
    assert words.pad(to={"time": 5}).shape == (2, 5)
    with pytest.raises(
        ArrayError, match=r"row 1: its 'time' has length 5, more than to=4; pad to 5"
    ):
        words.pad(4)
    with pytest.raises(ArrayError, match="row 1: its 'time'"):
        words[[1, 1]].pad(4)
    with pytest.raises(DimsError, match=r"to= names 'height'; an example has the dims \('time',\)"):
        words.pad({"height": 3})
    with pytest.raises(ArrayError, match="whole number"):
        words.pad(-1)
    with pytest.raises(ArrayError, match=r"value=0\.5 cannot fill an array of int64"):
        words.pad(value=0.5)
    with pytest.raises(ArrayError, match="cannot fill"):
        Ragged.of([np.zeros(2, "u1")]).pad(value=-1)
    assert np.isnan(Ragged.of([np.zeros(1), np.zeros(2)]).pad(value=np.nan).values[0, 1])
    with pytest.raises(DimsError, match="none of the 2 axes of an example; give a mapping"):
        Ragged.of([np.zeros((1, 2))]).pad(3)
    with pytest.raises(DimsError, match=r"give a mapping, as to=\{.*: 3, .*: 4\}"):
        Ragged.of([np.zeros((1, 2))]).pad((3, 4))


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 8), st.integers(1, 40))
def test_buckets_hold_every_row_once_and_tell_their_waste(
    lengths: list[int], batch_rows: int, window_rows: int
) -> None:
    arrays = [np.full(n, i) for i, n in enumerate(lengths)]
    ragged = Ragged.of(arrays, ("batch", "time")) if arrays else Ragged.of([])
    for seed in (None, 4):
        buckets = ragged.bucket(batch_rows, window_rows=window_rows, seed=seed)
        rows = np.concatenate([*buckets.rows, []]).astype(int)
        assert sorted(rows) == list(range(len(arrays)))
        assert all(len(set(batch // window_rows)) == 1 for batch in buckets.rows)
        held = used = 0
        for batch, positions in zip(buckets, buckets.rows, strict=True):
            same(batch.to_objects(), [arrays[i] for i in positions])
            held += batch.pad().size
            used += int(batch.sizes.sum())
        assert buckets.waste == pytest.approx(1 - used / held if held else 0)
    whole = ragged.bucket(batch_rows, window_rows=max(1, len(arrays)))
    if len(arrays) % batch_rows == 0:  # one axis, no short batch: sorting all can only save
        assert whole.waste <= whole.plain_waste + 1e-12
    assert "padding" in repr(whole)


def test_buckets_of_very_different_lengths_save_most_of_the_padding() -> None:
    lengths = np.random.default_rng(0).permutation(np.repeat([10, 1000], 500))
    buckets = Ragged.of([np.zeros(n, "u1") for n in lengths]).bucket(20)
    assert buckets.plain_waste > 0.4
    assert buckets.waste < 0.05


def test_selecting_is_lazy_and_pickles_small() -> None:
    class Counting(FlatRows):
        reads = 0

        def read_flat(self, rows: Any) -> Any:
            type(self).reads += 1
            return super().read_flat(rows)

    reader = Counting(flat_of([np.arange(i) for i in range(100)]))
    ragged = Ragged(reader, Selection.all(100), ("batch", "time"))
    some = ragged[10:90][::2][[3, -1]].take([True, False])
    assert (len(some), Counting.reads) == (1, 0)
    assert some.shapes.tolist() == [[16]]
    assert Counting.reads == 0
    assert some[0].values.tolist() == list(range(16))
    assert Counting.reads == 1
    assert len(list(ragged)) == 100
    assert Counting.reads == 2
    assert bool(ragged[[]])
    same(pickle.loads(pickle.dumps(Ragged.of([np.arange(2)]))).to_objects(), [np.arange(2)])


def test_what_is_handed_out_is_ones_own() -> None:
    ragged = Ragged.of([np.arange(3), np.arange(4)])
    for array in (
        ragged.flat().values,
        ragged[0].values,
        ragged.to_objects()[0],
        ragged[:1].flat().values,
    ):
        array[...] = 9
    ragged.flat().shapes[...] = 9
    ragged.flat().offsets[...] = 9
    same(ragged.to_objects(), [np.arange(3), np.arange(4)])


@given(st.lists(st.integers(0, 3 * MANY_ELEMENTS), max_size=20), st.data())
def test_segments_are_copied_as_a_loop_would(sizes: list[int], data: Any) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    lengths = np.array(sizes, np.int64)
    edges = offsets_of(lengths)
    source = np.arange(int(edges[-1]))
    taken = np.array(order, np.int64)
    places = offsets_of(lengths[taken])
    out = np.full(len(source), -1)

    copy_segments(out, places[:-1], source, edges[taken], lengths[taken])

    expected = [source[edges[i] : edges[i + 1]] for i in order]
    np.testing.assert_array_equal(out, np.concatenate([*expected, np.empty(0)]))


@given(st.lists(st.integers(0, 20)), st.integers(1, 30))
def test_blocks_hold_as_much_as_fits(sizes: list[int], limit: int) -> None:
    cuts = block_cuts(np.array(sizes, np.int64), limit)
    assert cuts[0] == 0
    assert cuts[-1] == len(sizes)
    for a, b in pairwise(cuts):
        assert sum(sizes[a:b]) <= limit or b - a == 1
        assert b == len(sizes) or sum(sizes[a : b + 1]) > limit


@given(examples())
def test_awkward_holds_the_same_examples(arrays: Any) -> None:
    ragged = Ragged.of(arrays)
    handed = ragged.to_awkward()

    assert handed.to_list() == [array.tolist() for array in arrays]
    assert ak.flatten(handed, axis=None).to_numpy().dtype == (ragged.dtype if arrays else float)


def test_dims_must_fit() -> None:
    with pytest.raises(DimsError, match="do not fit examples of 1 axes"):
        Ragged.of([np.arange(2)], ("batch", "a", "b"))
    with pytest.raises(DimsError, match="all different"):
        Ragged.of([np.arange(2)], ("a", "a"))
    with pytest.raises(ArrayError, match="must be arrays of numbers"):
        Ragged.of([np.array([None])])
    assert Ragged.of([np.zeros((1, 1))], name="x").dims == ("batch", "x_axis_1", "x_axis_2")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ((np.ones((2, 2)), [0, 2], None), "one axis each"),
        ((np.ones(3), [1, 2], None), "ascend from 0"),
        ((np.ones(3), [0, 2, 1], None), "ascend from 0"),
        ((np.ones(3), [0, 4], None), "at most 3"),
        ((np.ones(3), [0, 2], [[3]]), "row 0: shape .3,. does not fit the 2 values"),
        ((np.ones(3), [0, 2], [[2], [1]]), "a row for each of 1"),
    ],
)
def test_flat_values_that_do_not_belong_together_are_refused(arrays, words):
    with pytest.raises(ArrayError, match=words):
        Ragged.from_flat(*arrays)


ON_A_DEVICE = """
import cupy, labeled, numpy as np

pictures = [np.full((2, n, 3), n, np.uint8) for n in (4, 0, 1, 7)]
ragged = labeled.Ragged.of(pictures, dims=("batch", "channel", "height", "width"))
flat = ragged[[3, 0, 1]].to_device("cuda")
assert type(flat.values) is type(flat.offsets) is cupy.ndarray
assert type(flat.shapes) is np.ndarray
assert flat.offsets.get().tolist() == [0, 42, 66, 66]
assert flat.values.dtype == np.uint8 and flat.values.shape == (66,)
before = cupy.copied_to_host
for one, row in zip(flat.examples(), (3, 0, 1), strict=True):
    assert type(one) is cupy.ndarray
    np.testing.assert_array_equal(one.get(), pictures[row])
assert flat.values.astype("f4").sum().get() == sum(int(pictures[row].sum()) for row in (3, 0, 1))
back = labeled.Ragged.from_flat(*(part.get() for part in flat[:2]), flat.shapes)
assert [one.shape for one in back.to_objects()] == [pictures[row].shape for row in (3, 0, 1)]
assert ragged.to_device("cpu").values.dtype == np.uint8
"""


def test_examples_go_to_a_device_as_flat_values_and_offsets() -> None:
    """In a process of its own, where a stand-in takes CuPy's place."""
    paths = [str(Path(__file__).parent / "stand_in"), *map(os.path.abspath, sys.path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ON_A_DEVICE],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=30), st.booleans())
def test_segments_are_copied_to_their_places(pieces: list[tuple[int, int]], packed: bool) -> None:
    source = np.arange(1, 41)
    starts, sizes = (np.array([p[i] for p in pieces], np.int64) for i in (0, 1))
    places = np.concatenate([[0], np.cumsum(sizes + (not packed))])[: len(sizes)]
    found, wanted = (np.zeros(int(sizes.sum()) + len(sizes), int) for _ in range(2))

    copy_segments(found, places, source, starts, sizes)

    for place, start, size in zip(places, starts, sizes, strict=True):
        wanted[place : place + size] = source[start : start + size]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["u1", "f4", ">i8", "M8[s]", [("a", "i2"), ("b", "u1")]])
@given(
    st.lists(st.tuples(st.integers(0, 9000), st.sampled_from([0, 1, 7, 64, 300, 5000]))),
    st.booleans(),
)
def test_segments_are_copied_by_compiled_loops_as_by_slices(
    dtype: Any, pieces: list[tuple[int, int]], packed: bool
) -> None:
    pytest.importorskip("numba")
    source = np.arange(15_000).astype(np.dtype(dtype) if isinstance(dtype, str) else "i4")
    source = source if isinstance(dtype, str) else source.view("u1").repeat(3).view(dtype)
    starts, sizes = (np.array([p[i] for p in pieces], np.int64) for i in (0, 1))
    places = np.concatenate([[0], np.cumsum(sizes + (not packed))])[: len(sizes)].astype(np.int64)
    found, wanted = (np.zeros(int(sizes.sum()) + len(sizes), source.dtype) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "earned", lambda n_bytes: True)
        patch.setattr(flat, "COMPILED_BYTES", 0)
        patch.setattr(flat, "_copy_each", None)  # not asked

        copy_segments(found, places, source, starts, sizes)

    for place, start, size in zip(places, starts, sizes, strict=True):
        wanted[place : place + size] = source[start : start + size]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("place", "start", "size"),
    [(-1, 0, 1), (0, -1, 1), (0, 0, -1), (5, 0, 6), (0, 15, 6), (2**62, 0, 1), (0, 2**62, 2**62)],
)
def test_no_segment_leaves_its_memory(place: int, start: int, size: int) -> None:
    picking = pytest.importorskip("labeled.permute.kernels")
    out, source = np.zeros(10, np.uint8), np.ones(20, np.uint8)
    columns = ([0, place], [0, start], [1, size])
    places, starts, sizes = (np.array(column) for column in columns)
    assert not picking.copy_segments(out, places, source, starts, sizes)
    assert not out.any()
