"""DataArrays are laid out by the names of their dims, and come back with them."""

from __future__ import annotations

import itertools

import dask
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.dims import find_axes, name_of
from labeled.errors import DimsError, SpaceError, SpaceTypeError
from labeled.spaces import (
    CompositeSpace,
    Conv2DSpace,
    ConvNDSpace,
    IndexSpace,
    NullSpace,
    VectorSpace,
    format_dataarray,
    undo_format,
)

DIM_OF_AXIS = {"b": "batch", "c": "channel", 0: "height", 1: "width"}
ORDERS = list(itertools.permutations(("b", 0, 1, "c")))
B01C, C01B = ("b", 0, 1, "c"), ("c", 0, 1, "b")
IMAGES = Conv2DSpace((4, 5), channels=3, axes=("b", "c", 0, 1))
laws = settings(max_examples=20, deadline=None)
orders = st.sampled_from(ORDERS)


def counted(shape, dtype=np.int64):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def an_array(axes=("b", "c", 0, 1), size=(4, 5, 3), n=2, chunks=None):
    """A DataArray with coordinates of every sort: labels, dates, 2-D, along the batch, scalar."""
    length = {"b": n, "c": size[2], 0: size[0], 1: size[1]}
    data = counted([length[axis] for axis in axes])
    dims = [DIM_OF_AXIS[axis] for axis in axes]
    coords = {
        "channel": [f"ch{i}" for i in range(size[2])],
        "height": np.arange(size[0]) * 0.5,
        "when": ("batch", np.arange(n).astype("datetime64[D]")),
        "lat": (("width", "height"), counted((size[1], size[0])) * 1.5),
        "weight": (("batch", "channel"), counted((n, size[2]))),
        "run": 7,
    }
    x = xr.DataArray(data, dims=dims, coords=coords, name="x", attrs={"units": "count"})
    return x if chunks is None else x.chunk(chunks)


sizes = st.tuples(*[st.integers(1, 4)] * 3)


@laws
@given(src=orders, dst=orders, size=sizes, n=st.integers(0, 3))
def test_a_dataarray_is_transposed_by_name(src, dst, size, n):
    x = an_array(src, size, n)
    space = Conv2DSpace(size[:2], size[2], axes=dst)
    moved = format_dataarray(x, space)
    oracle = x.transpose(*[DIM_OF_AXIS[a] for a in dst], transpose_coords=False)
    xr.testing.assert_identical(moved, oracle)
    xr.testing.assert_identical(undo_format(moved), x)
    assert n == 0 or np.shares_memory(moved.data, x.data)
    compacted = format_dataarray(x, space, contiguous=True)
    assert compacted.data.flags.c_contiguous
    xr.testing.assert_identical(compacted, moved)


@laws
@given(src=orders, size=sizes, n=st.integers(0, 3), lazy=st.booleans())
def test_a_dataarray_is_flattened_as_by_stack_and_comes_back(src, size, n, lazy):
    x = an_array(src, size, n, chunks=2 if lazy and n else None)
    flat = format_dataarray(x, VectorSpace(int(np.prod(size))))
    assert flat.dims == ("batch", "feature")
    if n:
        stacked = x.stack(feature=["height", "width", "channel"], create_index=False)
        np.testing.assert_array_equal(flat, stacked.transpose("batch", "feature"))
        for name in ("channel", "height", "lat", "when", "run"):
            np.testing.assert_array_equal(flat[name], stacked[name])
    assert dask.is_dask_collection(flat) == dask.is_dask_collection(x)
    back = undo_format(flat)
    xr.testing.assert_identical(back, x)
    assert set(back.indexes) == set(x.indexes)
    xr.testing.assert_identical(undo_format(flat + 1), x + 1)


def test_the_record_of_flattening_survives_a_file(tmp_path):
    x = an_array().drop_vars("channel")
    path = tmp_path / "flat.nc"
    format_dataarray(x, VectorSpace(60)).to_netcdf(path, engine="h5netcdf")
    with xr.open_dataarray(path, engine="h5netcdf") as flat:
        xr.testing.assert_equal(undo_format(flat.load()), x)
    format_dataarray(x, IMAGES.with_axes(C01B)).to_netcdf(path, engine="h5netcdf")


def test_a_vector_becomes_images_with_the_names_it_had():
    x = an_array().rename(height="y", width="x")
    flat = format_dataarray(x, VectorSpace(60))
    images = format_dataarray(flat, IMAGES.with_axes(C01B))
    oracle = x.transpose("channel", "y", "x", "batch", transpose_coords=False)
    xr.testing.assert_identical(images, oracle)
    flat.attrs.clear()  # without the record: names of the table
    images = format_dataarray(flat, IMAGES, dims={0: "row"})
    assert images.dims == ("batch", "channel", "row", "width")
    np.testing.assert_array_equal(images, x.transpose("batch", "channel", "y", "x"))


def test_dims_given_per_call():
    x = an_array().rename(batch="time", channel="wavelength")
    names = {"b": "time", "c": "wavelength"}
    assert format_dataarray(x, IMAGES.with_axes(C01B), dims=names).dims == (
        "wavelength", "height", "width", "time",
    )  # fmt: skip
    assert format_dataarray(x, IMAGES, dims={"batch": "time", "channel": "wavelength"}).shape == (
        2, 3, 4, 5,
    )  # fmt: skip
    flat = format_dataarray(x, VectorSpace(60), dims={**names, "feature": "pixel"})
    assert flat.dims == ("time", "pixel")
    xr.testing.assert_identical(undo_format(flat), x)


def test_images_without_channels_are_flattened():
    x = an_array().isel(channel=0)
    flat = format_dataarray(x, VectorSpace(20))
    np.testing.assert_array_equal(flat, x.data.reshape(2, 20))
    xr.testing.assert_identical(undo_format(flat), x)


def test_volumes_have_a_depth():
    data = counted((2, 3, 2, 4, 5))
    x = xr.DataArray(data, dims=("batch", "channel", "z", "y", "x"))
    space = ConvNDSpace((2, 4, 5), 3, axes=("b", 0, 1, 2, "c"))
    assert format_dataarray(x, space).dims == ("batch", "z", "y", "x", "channel")
    flat = format_dataarray(x, VectorSpace(120))
    np.testing.assert_array_equal(flat, np.moveaxis(data, 1, -1).reshape(2, 120))
    xr.testing.assert_identical(undo_format(flat), x)


def test_vectors_keep_their_coordinates():
    x = xr.DataArray(counted((3, 2)), dims=("anything", "batch"), coords={"anything": [5, 6, 7]})
    out = format_dataarray(x, VectorSpace(3, dtype="float32"))
    assert out.dims == ("batch", "anything")
    assert out.dtype == np.float32
    assert out.anything.values.tolist() == [5, 6, 7]


@pytest.mark.parametrize("lazy", [False, True])
def test_labels_become_indicators(lazy):
    x = xr.DataArray([2, 0], dims="batch", coords={"when": ("batch", [10, 20])})
    x = x.chunk(batch=1) if lazy else x
    hot = format_dataarray(x, VectorSpace(3))
    assert hot.dims == ("batch", "feature")
    np.testing.assert_array_equal(hot, [[0, 0, 1], [1, 0, 0]])
    assert hot.when.values.tolist() == [10, 20]
    column = xr.DataArray([[2], [0]], dims=("batch", "index"), coords={"index": ["digit"]})
    hot = format_dataarray(column, VectorSpace(3))
    np.testing.assert_array_equal(hot, [[0, 0, 1], [1, 0, 0]])
    assert "index" not in hot.coords
    labels = format_dataarray(x, IndexSpace(3, 1))
    assert labels.dims == ("batch", "index")
    with pytest.raises(SpaceError, match="label 2 in row 0"):
        format_dataarray(x, VectorSpace(2)).compute()
    two = xr.DataArray([[2, 1]], dims=("batch", "index"))
    assert format_dataarray(two, VectorSpace(6), own=IndexSpace(3, 2)).shape == (1, 6)


def test_a_dataarray_is_cut_for_a_composite():
    x = an_array()
    tree = CompositeSpace((VectorSpace(20), NullSpace(), Conv2DSpace((4, 5), 2)))
    vector, nothing, images = format_dataarray(x, tree)
    flat = x.transpose("batch", "height", "width", "channel").data.reshape(2, 60)
    assert nothing is None
    np.testing.assert_array_equal(vector, flat[:, :20])
    np.testing.assert_array_equal(images, flat[:, 20:].reshape(2, 4, 5, 2))
    assert images.dims == ("batch", "height", "width", "channel")


@pytest.mark.parametrize("chunks", [None, 2])
def test_spaces_take_dataarrays_and_tuples_of_them(chunks):
    x = an_array(("b", 0, 1, "c"), chunks=chunks)
    labels = xr.DataArray([2, 0], dims="batch")
    pair = CompositeSpace((IMAGES, IndexSpace(3, 1)))
    pair.validate((x, labels))
    wanted = CompositeSpace((IMAGES.with_axes(C01B), VectorSpace(3)))
    images, hot = pair.format_as((x, labels), wanted)
    assert images.dims == ("channel", "height", "width", "batch")
    assert hot.dims == ("batch", "feature")
    flat = IMAGES.format_as(x, VectorSpace(60))
    back = IMAGES.undo_format_as(flat, VectorSpace(60))
    oracle = x.transpose("batch", "channel", "height", "width", transpose_coords=False)
    xr.testing.assert_identical(back, oracle)
    with pytest.raises(SpaceError, match=r"\[0\] has 2, \[1\] has 1"):
        pair.validate((x, labels[:1]))
    with pytest.raises(DimsError, match=r"component \[0\].*'when'"):
        pair.validate((x.drop_vars("when").rename(height="when"), labels))
    with pytest.raises(SpaceError, match=r"axis 2 \(0\) has length 4, expected 9"):
        Conv2DSpace((9, 5), 3, axes=("b", "c", 0, 1)).validate(x)


@pytest.mark.parametrize(
    ("dims", "space", "words"),
    [
        (
            ("batch", "spectrum", "height", "width"), IMAGES,
            ["'spectrum'", "play no axis: ('spectrum',)", "axes without a dim: 'c' (channel)",
             "('b', 'c', 0, 1)", "dims={'c': 'spectrum'}"],
        ),
        (("batch", "height", "width"), IMAGES, ["without a dim: 'c'", "expand_dims('channel')"]),
        (("batch", "channel", "height", "width", "time"), IMAGES, ["play no axis: ('time',)"]),
        (("channel", "height", "width"), VectorSpace(60), ["without a dim: 'b' (batch)"]),
        (("time", "feature"), VectorSpace(60), ["'b' (batch)", "'time'"]),
        (("batch", "time", "frequency"), VectorSpace(60), ["('time', 'frequency')"]),
        (
            ("batch", "channel"), VectorSpace(60),
            ["play no axis: ('channel',)", "'feature' (feature)", "dims={'feature': 'channel'}"],
        ),
        (("batch",), VectorSpace(60), ["('batch',)", "without a dim: 'feature'"]),
        (("batch", "height", "y", "channel"), IMAGES, ["both 'height' and 'y' mean axis 0"]),
    ],
)  # fmt: skip
def test_dims_that_do_not_fit_are_refused_naming_both_sides(dims, space, words):
    with pytest.raises(DimsError) as caught:
        format_dataarray(xr.DataArray(np.zeros((2,) * len(dims)), dims=dims), space)
    text = str(caught.value)
    assert all(word in text for word in words), text


def test_dims_given_that_are_not_there_are_refused():
    x = an_array()
    with pytest.raises(DimsError, match="names a batch dim that is not there"):
        format_dataarray(x, IMAGES, dims={"b": "time"})
    with pytest.raises(DimsError, match="is not an axis"):
        format_dataarray(x, IMAGES, dims={7: "batch"})
    with pytest.raises(DimsError, match="one dim to two axes"):
        format_dataarray(x, IMAGES, dims={"b": "batch", "c": "batch"})
    slips = [(IMAGES, "c", "chanel"), (VectorSpace(60), "c", "chanel"), (IMAGES, 0, "heigth")]
    for space, axis, name in slips:
        with pytest.raises(DimsError, match=f"'{name}'.* neither there nor made.*'channel'.*'b'"):
            format_dataarray(x, space, dims={axis: name})
    with pytest.raises(DimsError, match="already has a 'feature'"):
        format_dataarray(x.assign_coords(feature=3), VectorSpace(60))


def test_dims_that_are_made_are_named_by_axis_or_role():
    flat = xr.DataArray(np.arange(120.0).reshape(2, 60), dims=("time", "feature"))
    names = {"b": "time", "height": "rows", 1: "columns", "channel": "colour"}
    made = format_dataarray(flat, Conv2DSpace((4, 5), channels=3), dims=names)
    assert made.dims == ("time", "rows", "columns", "colour")
    np.testing.assert_array_equal(made.values, flat.values.reshape(2, 4, 5, 3))


def test_what_cannot_come_back_says_so():
    x = an_array()
    flat = format_dataarray(x, VectorSpace(60))
    with pytest.raises(DimsError, match="undo the flattening before selecting"):
        undo_format(flat.isel(feature=slice(10)))
    with pytest.raises(DimsError, match="carry no record"):
        undo_format(x)
    with pytest.raises(SpaceTypeError, match="not laid out for such a space"):
        format_dataarray(x, NullSpace())
    with pytest.raises(SpaceError, match="hold 60 values"):
        format_dataarray(x, VectorSpace(61))


# ---------------------------------------------------------------- the table of names
def test_the_table_of_names():
    found = find_axes(("sample", "y", "x", "band"), 2)
    assert found.dim_of_axis == {"b": "sample", 0: "y", 1: "x", "c": "band"}
    assert find_axes(("a", "batch"), 2, {"b": "a"}).others == ("batch",)
    assert [name_of(axis, 4) for axis in (0, 3, "feature")] == ["axis_0", "axis_3", "feature"]
