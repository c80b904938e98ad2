"""DataArrays are laid out by the names of their dims, and come back with them."""

from __future__ import annotations

import ast
import re

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.errors import DimsError, SpaceError, SpaceTypeError
from labeled.spaces import (
    CompositeSpace,
    Conv2DSpace,
    ConvNDSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
    format_dataarray,
    undo_format,
)

DIMS = ("batch", "channel", "height", "width")
LENGTHS = {"batch": 2, "channel": 3, "height": 4, "width": 5}
DIM_OF_AXIS = {"b": "batch", "c": "channel", 0: "height", 1: "width"}
IMAGES = Conv2DSpace((4, 5), channels=3, axes=("b", "c", 0, 1))
C01B = IMAGES.with_axes(("c", 0, 1, "b"))
laws = settings(max_examples=25, deadline=None)
axes_of_images = st.permutations(("b", "c", 0, 1))


def images(lazy=False):
    """Images without a name, which lazy arrays have to be told."""
    data = np.arange(120.0).reshape(2, 3, 4, 5)
    x = xr.DataArray(da.from_array(data, chunks=(1, 3, 4, 5)) if lazy else data, dims=DIMS)
    return x.rename(None)


def comes_back(x, space, **options):
    """Lay out and undo; the oracle is the array itself, its indexes included."""
    made = format_dataarray(x, space, **options)
    back = undo_format(made)
    xr.testing.assert_identical(back, x)
    assert {*back.xindexes} == {*x.xindexes}
    for name, index in x.indexes.items():
        assert back.indexes[name].equals(index)
    return made


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
@given(coords=coordinates(), order=st.permutations(DIMS), lazy=st.booleans(), axes=axes_of_images)
def test_images_are_xarrays_transpose_and_stack_and_come_back(coords, order, lazy, axes):
    x = images(lazy).assign_coords(coords).transpose(*order, transpose_coords=False)
    with dask.config.set(scheduler="sync"):
        moved = comes_back(x, Conv2DSpace((4, 5), 3, axes=axes))
        wanted = x.transpose(*[DIM_OF_AXIS[a] for a in axes], transpose_coords=False)
        xr.testing.assert_identical(moved, wanted)
        assert lazy or np.shares_memory(moved.data, x.data)
        flat = comes_back(x, VectorSpace(60))
        stacked = x.stack(feature=["height", "width", "channel"], create_index=False)
        np.testing.assert_array_equal(flat, stacked.transpose("batch", "feature"))
        for name in stacked.coords:
            np.testing.assert_array_equal(flat[name], stacked[name].transpose(*flat[name].dims))
        assert dask.is_dask_collection(flat) == lazy
        xr.testing.assert_identical(undo_format(flat + 1), x + 1)  # computed with, in between


@laws
@given(coords=coordinates(), lazy=st.booleans(), axes=axes_of_images)
def test_rows_become_images_and_rows_again(coords, lazy, axes):
    x = format_dataarray(images(lazy).assign_coords(coords), VectorSpace(60))
    x = x.assign_coords(w=("feature", np.arange(60.0)))
    with dask.config.set(scheduler="sync"):
        rows = format_dataarray(
            format_dataarray(x, Conv2DSpace((4, 5), 3, axes=axes)), VectorSpace(60)
        )
        np.testing.assert_array_equal(rows, x)
        for name in x.coords:
            np.testing.assert_array_equal(rows[name], x[name])


INDEXES = {
    "dates": pd.date_range("2000", periods=4),
    "categories": pd.CategoricalIndex(list("abca")),
    "intervals": pd.interval_range(0, 4),
    "numbers": pd.Index([0.5, 1.5, 2.5, 3.5]),
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("space", [C01B, VectorSpace(60)], ids=str)
def test_indexes_of_every_kind_come_back(index, space):
    x = images().assign_coords(height=INDEXES[index])
    assert undo_format(comes_back(x, space)).indexes["height"].dtype == x.indexes["height"].dtype


def test_the_record_of_flattening_survives_a_file(tmp_path):
    x, path = images().rename("x"), tmp_path / "flat.nc"
    format_dataarray(x, VectorSpace(60)).to_netcdf(path, engine="h5netcdf")
    with xr.open_dataarray(path, engine="h5netcdf") as flat:
        xr.testing.assert_equal(undo_format(flat.load()), x)
    format_dataarray(x, C01B).to_netcdf(path, engine="h5netcdf")


def test_a_vector_becomes_images_with_the_names_it_had():
    x = images().rename(height="y", width="x").assign_coords(channel=list("rgb"))
    flat = format_dataarray(x, VectorSpace(60))
    moved = format_dataarray(flat, C01B)
    xr.testing.assert_identical(moved, x.transpose("channel", "y", "x", "batch"))
    flat.attrs.clear()  # without the record: names of the table
    made = format_dataarray(flat, IMAGES, dims={0: "row"})
    assert made.dims == ("batch", "channel", "row", "width")
    np.testing.assert_array_equal(made, x)


def test_what_xarray_stacked_becomes_images_again():
    x = images().assign_coords(channel=list("rgb"), height=np.arange(4.0))
    for order in (("height", "width", "channel"), ("channel", "height", "width")):
        rows = x.stack(feature=order).transpose("batch", "feature")
        made = format_dataarray(rows, C01B)
        wanted = x.transpose("channel", "height", "width", "batch")
        xr.testing.assert_identical(made.drop_vars("width"), wanted)


def test_dims_given_per_call():
    x = images().rename(batch="time", channel="wavelength")
    names = {"b": "time", "c": "wavelength"}
    moved = format_dataarray(x, C01B, dims=names)
    assert moved.dims == ("wavelength", "height", "width", "time")
    comes_back(x, IMAGES, dims={"batch": "time", "channel": "wavelength"})
    flat = comes_back(x, VectorSpace(60), dims={**names, "feature": "pixel"})
    assert flat.dims == ("time", "pixel")
    names = {"b": "time", "height": "rows", 1: "columns", "channel": "colour"}
    flat = xr.DataArray(np.arange(120.0).reshape(2, 60), dims=("time", "feature"))
    made = format_dataarray(flat, Conv2DSpace((4, 5), channels=3), dims=names)
    assert made.dims == ("time", "rows", "columns", "colour")


def test_images_without_channels_and_volumes():
    grey = images().isel(channel=0)
    np.testing.assert_array_equal(comes_back(grey, VectorSpace(20)), grey.data.reshape(2, 20))
    data = np.arange(240).reshape(2, 3, 2, 4, 5)
    x = xr.DataArray(data, dims=("batch", "channel", "z", "y", "x"))
    moved = comes_back(x, ConvNDSpace((2, 4, 5), 3, axes=("b", 0, 1, 2, "c")))
    assert moved.dims == ("batch", "z", "y", "x", "channel")
    flat = comes_back(x, VectorSpace(120))
    np.testing.assert_array_equal(flat, np.moveaxis(data, 1, -1).reshape(2, 120))


@pytest.mark.parametrize("lazy", [False, True])
def test_labels_become_indicators(lazy):
    x = xr.DataArray([2, 0], dims="batch", coords={"when": ("batch", [10, 20])})
    x = x.chunk(batch=1) if lazy else x
    hot = format_dataarray(x, VectorSpace(3))
    assert hot.dims == ("batch", "feature")
    np.testing.assert_array_equal(hot, [[0, 0, 1], [1, 0, 0]])
    assert hot.when.values.tolist() == [10, 20]
    with pytest.raises(DimsError, match="became indicators do not come back"):
        undo_format(hot)
    column = xr.DataArray([[2], [0]], dims=("batch", "index"), coords={"index": ["digit"]})
    hot = format_dataarray(column, VectorSpace(3))
    np.testing.assert_array_equal(hot, [[0, 0, 1], [1, 0, 0]])
    assert "index" not in hot.coords
    assert comes_back(x, IndexSpace(3, 1)).dims == ("batch", "index")
    with pytest.raises(SpaceError, match="label 2 in row 0"):
        format_dataarray(x, VectorSpace(2)).compute()


def test_what_was_selected_from_or_renamed_since_comes_back_where_it_can():
    x = images().assign_coords(batch=[7, 8], channel=list("rgb"))
    moved, rows = format_dataarray(x, C01B), format_dataarray(x, VectorSpace(60))
    xr.testing.assert_identical(undo_format(moved[:2, :, :, 1:]), x[1:, :2])
    xr.testing.assert_identical(undo_format(rows.rename(batch="time")), x.rename(batch="time"))
    with pytest.raises(DimsError, match="before selecting"):
        undo_format(rows.isel(feature=slice(10)))
    with pytest.raises(DimsError, match="are no longer those"):
        undo_format(moved.isel(channel=0))
    with pytest.raises(DimsError, match="carry no record"):
        undo_format(x)


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("dims", "space", "words"),
    [
        (
            ("batch", "spectrum", "height", "width"), IMAGES,
            ["'spectrum'", "play no axis: ('spectrum',)", "axes without a dim: 'c' (channel)",
             "('b', 'c', 0, 1)", "dims={'c': 'spectrum'}"],
        ),
        (("batch", "height", "width"), IMAGES, ["without a dim: 'c'", "expand_dims('channel')"]),
        (
            ("batch", "time", "frequency"), VectorSpace(60),
            ["dims={0: 'time', 1: 'frequency'} to flatten"],
        ),
        (
            ("batch", "channel"), VectorSpace(60),
            ["play no axis: ('channel',)", "'feature' (feature)", "dims={'feature': 'channel'}"],
        ),
        (("batch", "height", "y", "channel"), IMAGES, ["both 'height' and 'y' mean axis 0"]),
    ],
)  # fmt: skip
def test_dims_that_do_not_fit_are_refused_naming_both_sides(dims, space, words):
    with pytest.raises(DimsError) as caught:
        format_dataarray(xr.DataArray(np.zeros((2,) * len(dims)), dims=dims), space)
    text = str(caught.value)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("dims", "n", "advice"),
    [
        (("batch", "time", "feature"), 4, "dims"),
        (("time", "batch", "my place", "channel"), 8, "dims"),
        (("batch", "my place", "feature"), 2, "isel"),
    ],
)
def test_advice_on_rows_of_several_dims_can_be_followed(dims, n, advice):
    x = xr.DataArray(np.arange(2.0 ** len(dims)).reshape((2,) * len(dims)), dims=dims)
    with pytest.raises(DimsError) as caught:
        format_dataarray(x, VectorSpace(n))
    said = ast.literal_eval(re.search(rf"{advice}[=(](\{{.*?\}})", str(caught.value))[1])
    chosen, given = (x, said) if advice == "dims" else (x.isel(said), None)
    assert format_dataarray(chosen, VectorSpace(n), dims=given).shape == (2, n)


@pytest.mark.parametrize(
    ("dims", "space", "words"),
    [
        ({"b": "time"}, IMAGES, "names a dim that is not there"),
        ({7: "batch"}, IMAGES, "is not an axis"),
        ({"heigth": "height"}, IMAGES, "'heigth', which is not an axis"),
        ({"b": "batch", "c": "batch"}, IMAGES, "one dim to two axes"),
        (("b", "time"), VectorSpace(60), "maps axes to dims"),
    ],
)
def test_dims_given_that_are_not_there_are_refused(dims, space, words):
    with pytest.raises(DimsError, match=words):
        format_dataarray(images(), space, dims=dims)


def test_what_no_dataarray_becomes():
    with pytest.raises(DimsError, match="already has a 'feature'"):
        format_dataarray(images().assign_coords(feature=3), VectorSpace(60))
    for target in ("features", VectorSpace, None):
        with pytest.raises(SpaceTypeError, match="the target must be a space, found"):
            format_dataarray(images(), target)
    sparse = VectorSpace(60, sparse=True)
    for target in (NullSpace(), VectorSequenceSpace(60), CompositeSpace((IMAGES,)), sparse):
        with pytest.raises(SpaceTypeError, match="cannot be formatted for this space"):
            format_dataarray(images(), target)
    with pytest.raises(SpaceError, match="hold 60 values"):
        format_dataarray(images(), VectorSpace(61))
