"""DataArrays that come back from a space: dims, coordinates and indexes, whatever was done."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.errors import DimsError, SpaceTypeError
from labeled.spaces import (
    CompositeSpace,
    Conv2DSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
    format_dataarray,
    undo_format,
)

DIMS = ("batch", "channel", "height", "width")
LENGTHS = {"batch": 2, "channel": 3, "height": 4, "width": 5}
C01B = Conv2DSpace((4, 5), 3, axes=("c", 0, 1, "b"))
laws = settings(max_examples=25, deadline=None)

levels = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["one", "two"])
INDEXES = {
    "dates": pd.date_range("2000", periods=4),
    "categories": pd.CategoricalIndex(list("abca")),
    "intervals": pd.interval_range(0, 4),
    "numbers": pd.Index([0.5, 1.5, 2.5, 3.5]),
}


def images(lazy=False):
    """Images without a name, which lazy arrays have to be told."""
    data = np.arange(120.0).reshape(2, 3, 4, 5)
    x = xr.DataArray(da.from_array(data, chunks=(1, 3, 4, 5)) if lazy else data, dims=DIMS)
    return x.rename(None)


def comes_back(x, space, **options):
    """Lay out and undo; the oracle is the array itself, its indexes included."""
    back = undo_format(format_dataarray(x, space, **options))
    xr.testing.assert_identical(back, x)
    assert {*back.xindexes} == {*x.xindexes}
    for name, index in x.indexes.items():
        assert type(back.indexes[name]) is type(index)
        assert back.indexes[name].equals(index)
    return back


@st.composite
def coordinates(draw):
    """Coordinates of any dims, named at random, some of them indexes of their dim."""
    found = {}
    for number in range(draw(st.integers(0, 4))):
        dims = draw(st.lists(st.sampled_from(DIMS), unique=True, max_size=3))
        name = dims[0] if len(dims) == 1 and draw(st.booleans()) else f"c{number}"
        shape = tuple(LENGTHS[dim] for dim in dims)
        values = np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3
        kind = draw(st.sampled_from(["i8", "f4", "U3", "M8[s]"]))
        found[name] = (dims, values.astype(kind), {"number": number})
    return found


@laws
@given(coords=coordinates(), order=st.permutations(DIMS), lazy=st.booleans(), data=st.data())
def test_images_come_back_from_any_space(coords, order, lazy, data):
    x = images(lazy).assign_coords(coords).transpose(*order, transpose_coords=False)
    axes = data.draw(st.permutations(("b", "c", 0, 1)))
    with dask.config.set(scheduler="sync"):
        comes_back(x, Conv2DSpace((4, 5), 3, axes=axes))
        comes_back(x, VectorSpace(60))


@laws
@given(coords=coordinates(), turned=st.booleans(), lazy=st.booleans(), data=st.data())
def test_rows_come_back_from_images(coords, turned, lazy, data):
    flat = images(lazy).assign_coords(coords).stack(feature=DIMS[1:], create_index=False)
    flat = flat.assign_coords(feature=np.arange(60) * 2, w=("feature", np.arange(60.0)))
    x = flat.transpose("feature", "batch") if turned else flat.transpose("batch", "feature")
    space = Conv2DSpace((4, 5), 3, axes=data.draw(st.permutations(("b", "c", 0, 1))))
    with dask.config.set(scheduler="sync"):
        comes_back(x, space)
        comes_back(x, VectorSpace(60))
        made = format_dataarray(x, space)
        np.testing.assert_array_equal(
            format_dataarray(made, VectorSpace(60)), x.transpose("batch", "feature")
        )


@pytest.mark.parametrize("index", [*INDEXES, "levels"])
@pytest.mark.parametrize("space", [C01B, VectorSpace(60)], ids=str)
def test_indexes_of_every_kind_come_back(index, space):
    if index == "levels":
        x = images().assign_coords(xr.Coordinates.from_pandas_multiindex(levels, "height"))
    else:
        x = images().assign_coords(height=INDEXES[index])
    back = comes_back(x, space)
    assert back.indexes["height"].dtype == x.indexes["height"].dtype
    if index == "levels":
        flat = format_dataarray(x, VectorSpace(60))
        assert "height" not in flat.coords  # its levels tell as much, and can be written
        assert flat.one.values.tolist() == ["a"] * 30 + ["b"] * 30


def test_a_multiindex_of_the_batch_stays():
    x = images().assign_coords(xr.Coordinates.from_pandas_multiindex(levels[:2], "batch"))
    comes_back(x, VectorSpace(60))
    comes_back(x, C01B)


def test_stacked_dims_become_images_again():
    x = images().assign_coords(channel=list("rgb"), height=np.arange(4.0))
    rows = x.stack(feature=("height", "width", "channel")).transpose("batch", "feature")
    made = format_dataarray(rows, C01B)
    xr.testing.assert_identical(
        made.drop_vars("width"), x.transpose("channel", "height", "width", "batch")
    )
    comes_back(rows, C01B)
    other = x.stack(feature=("channel", "height", "width")).transpose("batch", "feature")
    with pytest.raises(DimsError, match=r"stacked of \['channel', 'height', 'width'\], and not in"):
        format_dataarray(other, C01B)


def test_labels_lose_the_axis_they_were_given():
    x = xr.DataArray([1, 2], dims="batch", coords={"batch": [3, 4]})
    comes_back(x, IndexSpace(3, 1))
    with pytest.raises(DimsError, match="became indicators do not come back"):
        undo_format(format_dataarray(x, VectorSpace(3)))


def test_an_array_comes_back_one_step_at_a_time():
    x = images().assign_coords(channel=list("rgb"))
    flat = format_dataarray(x, VectorSpace(60))
    moved = format_dataarray(flat, C01B)
    xr.testing.assert_identical(undo_format(moved), flat)
    xr.testing.assert_identical(undo_format(undo_format(moved)), x)
    turned = format_dataarray(moved, Conv2DSpace((4, 5), 3))
    xr.testing.assert_identical(undo_format(turned), moved)


def test_what_remembers_its_origin_holds_no_second_copy():
    x = xr.DataArray(np.zeros((64, 3, 128, 128)), dims=DIMS, coords={"channel": list("rgb")})
    moved = format_dataarray(x, Conv2DSpace((128, 128), 3, axes=("c", 0, 1, "b")))
    assert len(pickle.dumps(moved)) < 1.01 * x.nbytes
    xr.testing.assert_identical(undo_format(pickle.loads(pickle.dumps(moved))), x)
    xr.testing.assert_identical(undo_format(moved.copy(deep=True)), x)


def test_what_was_selected_from_since_comes_back_where_it_can():
    x = images().assign_coords(batch=[7, 8], channel=list("rgb"))
    moved = format_dataarray(x, C01B)
    xr.testing.assert_identical(undo_format(moved[:2, :, :, 1:]), x[1:, :2])
    rows = format_dataarray(x, VectorSpace(60))
    made = format_dataarray(rows, C01B)
    xr.testing.assert_identical(undo_format(made.isel(batch=[1])), rows.isel(batch=[1]))
    with pytest.raises(DimsError, match="undo the formatting before selecting"):
        undo_format(made.isel(channel=[0, 1]))
    with pytest.raises(DimsError, match="no longer those of a batch"):
        undo_format(moved.isel(channel=0))


def test_renamed_dims_stay_renamed():
    x = images().assign_coords(both=(("channel", "batch"), np.arange(6).reshape(3, 2)))
    flat = format_dataarray(x, VectorSpace(60))
    xr.testing.assert_identical(undo_format(flat.rename(batch="time")), x.rename(batch="time"))
    xr.testing.assert_identical(undo_format(flat.rename(feature="pixel")), x)


def test_an_attribute_of_somebody_else_is_no_record():
    x = images().assign_attrs(flattened="by hand")
    comes_back(x, VectorSpace(60))
    for value in ("by hand", '{"dim": "feature"}', "3", 3):
        rows = xr.DataArray(np.zeros((2, 60)), dims=("batch", "feature"))
        assert format_dataarray(rows.assign_attrs(flattened=value), C01B).shape == (3, 4, 5, 2)


def test_names_that_are_no_str_move_and_are_refused_where_they_must_be_written():
    x = xr.DataArray(np.zeros((2, 3, 4, 5)), dims=(0, "c", ("h", 1), "w"))
    names = {"b": 0, 0: ("h", 1), 1: "w"}
    comes_back(x, C01B, dims=names)
    with pytest.raises(DimsError, match=r"dims \[0, \('h', 1\)\] are not str"):
        format_dataarray(x, VectorSpace(60), dims=names)


def test_a_part_of_a_composite_does_not_come_back_alone():
    tree = CompositeSpace((VectorSpace(20), CompositeSpace((NullSpace(), Conv2DSpace((4, 5), 2)))))
    rows, (nothing, pictures) = format_dataarray(images(), tree)
    assert nothing is None
    for part in (rows, pictures):
        with pytest.raises(DimsError, match="carry no record"):
            undo_format(part)


# ---------------------------------------------------------------- joined, and sequences
@pytest.mark.parametrize("lazy", [False, True])
def test_dataarrays_are_joined_under_their_names(lazy):
    whole = images(lazy).assign_coords(batch=[7, 8], channel=list("rgb"))
    expected = format_dataarray(whole, VectorSpace(60))
    pair = CompositeSpace((VectorSpace(20), Conv2DSpace((2, 5), 4)))
    first, second = format_dataarray(whole, pair)
    rows = pair.format_as((first, second), VectorSpace(60))
    assert (rows.dims, rows["batch"].values.tolist()) == (("batch", "feature"), [7, 8])
    np.testing.assert_array_equal(rows, expected)
    assert dask.is_dask_collection(rows) == lazy
    mixed = pair.format_as((first, second.values), VectorSpace(60))
    np.testing.assert_array_equal(mixed, expected)
    with pytest.raises(DimsError, match="label their rows differently along 'batch'"):
        pair.format_as((first, second.assign_coords(batch=[8, 9])), VectorSpace(60))
    vectors = CompositeSpace((VectorSpace(20), VectorSpace(40)))
    rows = vectors.format_as(format_dataarray(whole, vectors), VectorSpace(60))
    xr.testing.assert_equal(rows, expected)


def test_a_dataarray_holds_no_sparse_rows():
    for x in (images(), images(lazy=True)):
        with pytest.raises(SpaceTypeError, match="holds no scipy sparse array"):
            format_dataarray(x, VectorSpace(60, sparse=True))


def test_sequences_have_a_time():
    rows = xr.DataArray(np.zeros((2, 3)), dims=("feature", "time"), coords={"time": [1, 2, 3]})
    made = comes_back(rows, VectorSequenceSpace(2))
    made = format_dataarray(rows, VectorSequenceSpace(2, dtype="float32"))
    assert (made.dims, made.dtype) == (("time", "feature"), np.float32)
    VectorSequenceSpace(2).validate(rows)
    labels = xr.DataArray([2, 0, 1], dims="frame")
    hot = format_dataarray(labels, VectorSequenceSpace(3), dims={"time": "frame"})
    np.testing.assert_array_equal(hot, np.eye(3)[[2, 0, 1]])
    assert hot.dims == ("frame", "feature")
    comes_back(labels, IndexSequenceSpace(3, 1), dims={"time": "frame"})
    with pytest.raises(DimsError, match=r"\('frame',\).*no dim is the time.*{'time': 'frame'}"):
        format_dataarray(labels, VectorSequenceSpace(3))


@pytest.mark.parametrize("space", [VectorSequenceSpace(2), IndexSequenceSpace(4, 2)], ids=str)
@pytest.mark.parametrize("n", [None, 3])
def test_a_lazy_sequence_of_zeros_has_names(space, n):
    made = space.make_batch(n, dims=True)
    assert made.dims == ("time", space.axis_names()[1])
    space.validate(made)
    assert space.format_as(made, space).dims == made.dims


# ---------------------------------------------------------------- what is said of dims
def test_remedies_are_ones_that_work():
    x = xr.DataArray(np.arange(40.0).reshape(2, 4, 5), dims=("batch", "time", "frequency"))
    with pytest.raises(DimsError, match=r"dims={0: 'time', 1: 'frequency'} to flatten"):
        format_dataarray(x, VectorSpace(20))
    flat = format_dataarray(x, VectorSpace(20), dims={0: "time", 1: "frequency"})
    np.testing.assert_array_equal(flat, x.values.reshape(2, 20))
    half = x.rename(frequency="height")
    with pytest.raises(DimsError, match=r"dims={0: 'time', 1: 'height'} to flatten"):
        format_dataarray(half, VectorSpace(20))
    flat = format_dataarray(half, VectorSpace(20), dims={0: "time", 1: "height"})
    np.testing.assert_array_equal(flat, x.values.reshape(2, 20))


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        (("b", "time"), "maps axes to dims"),
        ({"heigth": "height"}, r"'heigth', which is not an axis; use 0, 1, .*'height'"),
    ],
)
def test_dims_that_say_nothing_are_refused(dims, words):
    with pytest.raises(DimsError, match=words):
        format_dataarray(images(), VectorSpace(60), dims=dims)


@pytest.mark.parametrize("target", ["features", VectorSpace, None, 60])
def test_a_target_that_is_no_space_is_refused(target):
    with pytest.raises(SpaceTypeError, match="the target must be a space, found"):
        format_dataarray(images(), target)


@pytest.mark.parametrize("values", [[True, False], [1.0, 2.0]])
def test_labels_that_are_not_integers_are_refused_by_name(values):
    x = xr.DataArray(values, dims="batch")
    with pytest.raises(DimsError, match="Labels must be integers to become indicators; cast them"):
        format_dataarray(x, VectorSpace(2))
    assert format_dataarray(x.astype(int), VectorSpace(3)).shape == (2, 3)
