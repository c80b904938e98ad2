"""Ragged arrays in memory: padding, masks, buckets and hand-over, against loops by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragged_files import examples, same

from labeled import Ragged
from labeled.errors import ArrayError, DimsError

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


@pytest.mark.parametrize("dtype", ["S2", "U2"])
def test_texts_are_padded_with_empty_ones(dtype: str) -> None:
    texts = Ragged.of([np.array(["ab", "c"], dtype), np.array(["d"], dtype)])
    assert texts.pad().values.tolist() == np.array([["ab", "c"], ["d", ""]], dtype).tolist()


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


def test_dims_must_fit() -> None:
    with pytest.raises(DimsError, match="do not fit examples of 1 axes"):
        Ragged.of([np.arange(2)], ("batch", "a", "b"))
    with pytest.raises(DimsError, match="all different"):
        Ragged.of([np.arange(2)], ("a", "a"))
    with pytest.raises(ArrayError, match="must be arrays of numbers"):
        Ragged.of([np.array([None])])
    with pytest.raises(ArrayError, match="must be arrays of numbers"):
        Ragged.of([np.zeros(2, [("a", "i4")]), np.zeros(2)])  # NumPy knows no dtype for both
    assert Ragged.of([np.zeros((1, 1))], name="x").dims == ("batch", "x_axis_1", "x_axis_2")


def test_flat_values_become_examples():
    values, shapes = np.arange(7), [[2, 1], [0, 3], [1, 5]]
    made = Ragged.from_flat(values, [0, 2, 2, 7], shapes, dims=("batch", "y", "x"))
    assert [each.shape for each in made] == [(2, 1), (0, 3), (1, 5)]
    np.testing.assert_array_equal(made[2].values, [[2, 3, 4, 5, 6]])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ((np.ones((2, 2)), [0, 2], None), "must have one axis each"),
        ((np.ones(3), [1, 2], None), "ascend from 0"),
        ((np.ones(3), [0, 2, 1], None), "ascend from 0"),
        ((np.ones(3), [0, 4], None), "at most 3"),
        ((np.ones(3), [0, 2], [[3]]), "whose product is its number of values"),
        ((np.ones(3), [0, 2], [[2], [1]]), "one row for each of 1 examples"),
    ],
)
def test_flat_values_that_do_not_belong_together_are_refused(arrays, words):
    with pytest.raises(ArrayError, match=words):
        Ragged.from_flat(*arrays)


@pytest.mark.parametrize("size", [1, 5, 300])
def test_examples_change_places_between_the_first_and_the_last(size: int) -> None:
    """Then they end where all of them would, in the order of the file."""
    arrays = [np.arange(size * (i + 1), dtype="i2") + 1000 * i for i in range(5)]
    order = [0, 3, 1, 2, 4]
    found = Ragged.of(arrays)[order].to_objects()
    assert [one.tolist() for one in found] == [arrays[i].tolist() for i in order]
