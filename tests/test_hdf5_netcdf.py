"""netCDF-4 style files: dims, coordinates, attributes and CF values are those of xarray."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import labeled
from labeled.errors import FileFormatError, LabeledWarning, UnknownNameError
from make_files import scan


def weather(n: int = 6) -> xr.Dataset:
    """Return stations x time with an index coordinate, an auxiliary one, and variables."""
    rng = np.random.default_rng(1)
    times = np.datetime64("2001-02-03", "ns") + np.arange(n) * np.timedelta64(3600, "s")
    return xr.Dataset(
        {
            "t2m": (("time", "y", "x"), rng.normal(280, 9, (n, 3, 4)), {"units": "K"}),
            "rain": (("time", "y", "x"), rng.random((n, 3, 4)).astype("f4")),
            "area": (("y", "x"), rng.random((3, 4))),
            "crs": ((), 4326, {"name": "wgs84"}),
        },
        coords={
            "time": times,
            "y": np.array([10.0, 20.0, 30.0]),
            "lat": (("y", "x"), rng.random((3, 4))),
            "height": ("time", rng.random(n)),
        },
        attrs={"title": "weather", "version": 3},
    )


def write(path: Path, ds: xr.Dataset, **options: Any) -> str:
    ds.to_netcdf(path, engine="h5netcdf", **options)
    return str(path)


def compare(path: str, given: Any = None, **options: Any) -> None:
    """Every variable of xarray is here, with its dims, attributes, values and dtype."""
    header = scan(path, **(given or {}))
    made = labeled.open_dataset(path, **(given or {})).to_xarray()
    with xr.open_dataset(path, engine="h5netcdf", **options) as ds:
        ours = {**header.variables, **header.sources}
        assert set(ours) == set(ds.variables)
        assert set(header.attrs) == set(ds.attrs)
        for name, each in ours.items():
            theirs = ds.variables[name]
            assert each.dims == theirs.dims, name
            assert set(each.attrs) == set(theirs.attrs), name
            if name in made.variables:
                assert made[name].dtype == theirs.dtype or made[name].dtype.kind in "SO", name
                np.testing.assert_array_equal(made[name], theirs.values, err_msg=name)
        for name, each in header.sources.items():
            assert set(each.coords) == set(ds[name].coords), name


def test_a_file_with_one_unlimited_dim(tmp_path: Path) -> None:
    path = write(tmp_path / "w.nc", weather(), unlimited_dims=["time"])

    header = scan(path)

    assert header.kind == "netcdf"
    assert header.example_dim == "time"
    assert list(header.sources) == ["rain", "t2m"]
    assert set(header.variables) == {"time", "y", "lat", "height", "area", "crs"}
    assert header.splits == {"all": {"rain": range(6), "t2m": range(6)}}
    compare(path)
    assert pickle.loads(pickle.dumps(header)).fingerprint == header.fingerprint


def test_the_example_dim_and_sources_are_chosen_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "w.nc", weather())

    header = scan(path)
    assert header.example_dim is None
    assert list(header.sources) == ["area", "rain", "t2m"]
    compare(path)

    header = scan(path, example_dim="y")
    assert list(header.sources) == ["area"]
    assert "axis 1, not axis 0" in header.not_opened["t2m"]
    assert "crs" in header.variables
    with pytest.raises(UnknownNameError, match="did you mean 'time'"):
        scan(path, example_dim="tim")

    assert list(scan(path, sources=["t2m"], example_dim="time").sources) == ["t2m"]
    only = r"did you mean 't2m'\? There are: 'rain', 't2m'$"  # what sources= takes
    with pytest.raises(UnknownNameError, match=only):
        scan(path, sources=["t2n"], example_dim="time")
    with pytest.raises(UnknownNameError, match="is not a source but a coordinate"):
        scan(path, sources=["time"])
    with pytest.raises(UnknownNameError, match="did you mean 't2m'"):
        scan(path, sources=["t2"])


@pytest.mark.parametrize(
    "opened", [labeled.open_dataset, partial(xr.open_dataset, engine="labeled")]
)
def test_variables_along_the_unlimited_dim_on_another_axis_are_reported(
    tmp_path: Path, opened: Any
) -> None:
    data = weather().assign(turned=(("y", "time"), np.ones((3, 6))))
    path = write(tmp_path / "w.nc", data, unlimited_dims=["time"])
    with pytest.warns(LabeledWarning, match="opens without 'turned': its example dim 'time'"):
        found = opened(path)
    assert "turned" not in found
    assert list(labeled.open_dataset(path, sources=["t2m"])) == ["t2m"]
    assert "turned" in labeled.open_dataset(path, example_dim="y")


def test_dims_without_coordinates_and_odd_variables(tmp_path: Path) -> None:
    path = str(tmp_path / "o.nc")
    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"obs": None, "band": 4, "empty": 3}
        f.resize_dimension("obs", 5)
        f.create_variable("spectrum", ("obs", "band"), "f4")[:] = np.arange(20).reshape(5, 4)
        f.create_variable("band", ("obs", "band"), "i4")[:] = np.arange(20).reshape(5, 4)
        f.create_variable("names", ("obs",), h5py.string_dtype())[:] = list("abcde")

    header = scan(path)

    assert header.example_dim == "obs"
    assert list(header.sources) == ["names", "spectrum"]
    assert header.sources["spectrum"].dims == ("obs", "band")
    assert header.variables["band"].dims == ("obs", "band")
    assert "obs" not in header.variables


def test_a_variable_named_like_a_dim_that_is_not_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "n.nc")
    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"x": 4, "y": 3}
        f.create_variable("y", ("x",), "f8")[:] = np.arange(4.0)
        f.create_variable("data", ("y", "x"), "f8")[:] = np.ones((3, 4))

    header = scan(path)

    assert header.variables["y"].dims == ("x",)
    with h5py.File(path) as f:
        assert header.variables["y"].key in f
    compare(path)


def test_bounds_borrow_the_units_of_their_time(tmp_path: Path) -> None:
    path = str(tmp_path / "b.nc")
    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"time": None, "nv": 2}
        f.resize_dimension("time", 3)
        time = f.create_variable("time", ("time",), "f8")
        time[:] = [0, 1, 2]
        time.attrs["units"], time.attrs["bounds"] = "days since 2000-01-01", "time_bnds"
        f.create_variable("time_bnds", ("time", "nv"), "f8")[:] = np.arange(6.0).reshape(3, 2)

    header = scan(path)

    assert header.sources["time_bnds"].cf.dtype == np.dtype("datetime64[ns]")
    compare(path)


def test_groups_become_paths_and_group_opens_one(tmp_path: Path) -> None:
    path = str(tmp_path / "g.nc")
    weather().to_netcdf(path, engine="h5netcdf", group="north", unlimited_dims=["time"])
    weather(3).to_netcdf(path, engine="h5netcdf", group="south", mode="a", unlimited_dims=["time"])

    everything = scan(path)

    assert {"north/t2m", "south/t2m"} <= set(everything.sources)
    assert everything.sources["south/t2m"].dims == ("time", "y", "x")
    assert everything.sources["south/t2m"].n_rows == 3
    compare(path, {"group": "north"}, group="north")


def test_a_group_has_the_dims_of_the_groups_above_and_values_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "g.nc", weather(), unlimited_dims=["time"])
    south = weather().assign_coords(y=[-1.0, -2.0, -3.0])
    south.to_netcdf(path, engine="h5netcdf", group="south", mode="a")

    header = scan(path, group="south")

    assert header.example_dim == "time"
    assert header.sources.keys() == {"t2m", "rain"}
    compare(path, {"group": "south"}, group="south")
    words = r"'south/rain' has values of its own along dim 'y', .*'south/y', .*group='south'"
    with pytest.warns(LabeledWarning, match=words):
        labeled.open_dataset(path)


def test_a_plain_file_with_scales_is_netcdf_style(tmp_path: Path) -> None:
    path = str(tmp_path / "s.h5")
    with h5py.File(path, "w") as f:
        f["x"], f["px"] = np.zeros((4, 3)), np.arange(3.0)
        f["px"].make_scale("wavelength")
        f["x"].dims[1].attach_scale(f["px"])
        f["x"].dims[0].label = "sample"

    header = scan(path)

    assert header.sources["x"].dims == ("sample", "wavelength")
    assert header.sources["x"].coords == ("wavelength",)
    assert header.variables["wavelength"].key == "/px"


@pytest.mark.parametrize("most", [4, None])
def test_a_scale_of_two_axes_names_both(tmp_path: Path, most: int | None) -> None:
    values = np.arange(16.0).reshape(4, 4)
    with h5py.File(tmp_path / "covariances.h5", "w") as f:
        f.create_dataset("height", data=np.arange(4) * 10, maxshape=(most,), chunks=(4,))
        f["height"].make_scale("height")
        for name in ("first", "second"):
            f[name] = values
            f[name].dims[0].attach_scale(f["height"])
            f[name].dims[1].attach_scale(f["height"])
        f["alone"] = np.arange(3.0)

    ds = labeled.open_dataset(tmp_path / "covariances.h5")
    found = ds.to_xarray()

    coords = {"height": np.arange(4) * 10, "height_2": np.arange(4) * 10}
    wanted = xr.DataArray(values, coords, ("height", "height_2"))
    for name in ("first", "second"):
        xr.testing.assert_equal(found[name].drop_attrs(), wanted)
    # one unlimited dim alone counts examples, so that `alone` is carried whole
    assert ds.sources == ("alone", "first", "second")[most is None :]


def test_decode_cf_false_leaves_everything_as_stored(tmp_path: Path) -> None:
    ds = weather()
    ds["t2m"].encoding = {
        "dtype": "i2",
        "scale_factor": 0.01,
        "add_offset": 280.0,
        "_FillValue": -9999,
    }
    path = write(tmp_path / "w.nc", ds, unlimited_dims=["time"])

    header = scan(path, decode_cf=False)

    assert all(h.cf is None for h in [*header.sources.values(), *header.variables.values()])
    assert {"scale_factor", "add_offset", "_FillValue"} <= set(header.sources["t2m"].attrs)
    compare(path, {"decode_cf": False}, mask_and_scale=False, decode_times=False)
    compare(path)


# CF decoding, one variable at a time ---------------------------------------------------------

numbers = st.sampled_from(
    ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "f2", "f4", "f8", ">i2", ">f4"]
)
factors = st.sampled_from([np.float32(0.1), np.float64(0.01), np.float64(3), np.int32(2)])


@st.composite
def cf_variables(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    dtype = np.dtype(draw(numbers))
    raw = draw(hnp.arrays(dtype, (4, 3), elements={"min_value": 0, "max_value": 100}))
    attrs: dict[str, Any] = {}
    if draw(st.booleans()):
        attrs["scale_factor"] = draw(factors)
    if draw(st.booleans()):
        attrs["add_offset"] = draw(factors)
    # xarray cannot put NaN into values that an integer scale factor leaves integers
    fills = not isinstance(attrs.get("scale_factor"), np.int32)
    if fills and draw(st.booleans()):
        attrs["_FillValue"] = raw[0, 0]
    if fills and draw(st.booleans()):
        attrs["missing_value"] = raw[-1, -1]
    elif fills and draw(st.booleans()) and dtype.kind == "f":
        attrs["_FillValue"] = dtype.type(np.nan)
    # xarray swaps the bytes of a big-endian _FillValue when it reads it as unsigned
    if dtype.kind in "iu" and dtype.isnative and draw(st.booleans()):
        attrs["_Unsigned"] = draw(st.sampled_from(["true", "false"]))
    if draw(st.integers(0, 3)) == 0:
        attrs["units"] = draw(st.sampled_from(["days since 2000-01-01", "days", "K"]))
    return raw, attrs


NARROWED = {"scale_factor": np.float32(0.1), "_FillValue": np.float64(1.1)}
"""Values of eight bytes become floats of four, in which fill values are other numbers."""

SIGNED = np.array([[-1, 3, 5]] * 4, "i1")  # its fill values are given as they are once read


@settings(max_examples=60, deadline=None)
@example((np.array([[1.1] * 3] * 4), {**NARROWED, "missing_value": np.float64(2.5)}))
@example((np.array([[2.5, 2, 1.1]] * 4), {**NARROWED, "missing_value": np.float64(2.5)}))
@example((np.array([[5e-324] * 3] * 4), {**NARROWED, "missing_value": np.float64(5e-324)}))
@example((np.array([[3, 1, 2]] * 4), {"_FillValue": np.float64(1.1), "missing_value": np.int64(3)}))
@example((SIGNED, {"_FillValue": np.int16(255), "_Unsigned": "true"}))
@example((SIGNED, {"missing_value": np.uint8(255), "_Unsigned": "true"}))
@example((SIGNED.view("u1"), {"missing_value": np.int8(-1), "_Unsigned": "false"}))
@given(cf_variables())
def test_decoding_agrees_with_xarray_bit_for_bit(
    tmp_path_factory: Any, variable: tuple[np.ndarray, Any]
) -> None:
    raw, attrs = variable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = xr.decode_cf(xr.Dataset({"v": (("a", "b"), raw, attrs)}))["v"]
        oracle = theirs.values
    assume(oracle.dtype.kind != "m")  # what older xarray makes of "days" alone; newer does not
    path = str(tmp_path_factory.mktemp("cf") / "v.nc")
    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"a": 4, "b": 3}
        v = f.create_variable("v", ("a", "b"), raw.dtype)
        v[:] = raw
        v.attrs.update(attrs)

    dataset = labeled.open_dataset(path)

    for ours in (dataset["v"].values, *(batch["v"].values for batch in dataset.batches(4))):
        assert ours.dtype == oracle.dtype
        np.testing.assert_array_equal(ours, oracle)
    assert set(dataset["v"].attrs) == set(theirs.attrs)


def test_calendars_and_units_that_are_no_times_stay_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "c.nc")
    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"n": 3}
        for name, units in (("a", "days since 2000-01-01"), ("b", "counts since reset")):
            f.create_variable(name, ("n",), "i4")[:] = [1, 2, 3]
            f[name].attrs["units"] = units
        f["a"].attrs["calendar"] = "noleap"

    with pytest.warns(LabeledWarning, match="calendar 'noleap'.*'counts since reset'.*cftime"):
        header = scan(path)

    assert header.sources["a"].cf is None
    assert header.sources["a"].attrs["calendar"] == "noleap"


def test_cf_attributes_of_plain_hdf5_are_decoded(tmp_path: Path) -> None:
    path = str(tmp_path / "p.h5")
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(6, dtype="i2").reshape(3, 2)
        f["x"].attrs["scale_factor"] = np.array([0.5])
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "index"
        f["big"] = np.arange(3, dtype=">f4")
        f["big"].dims[0].label = "batch"

    header = scan(path)

    assert header.kind == "plain"
    np.testing.assert_array_equal(labeled.open_dataset(path)["x"], np.arange(6).reshape(3, 2) / 2)
    assert header.sources["x"].attrs == {}
    assert header.sources["big"].cf is None


ODD: dict[str, Any] = {
    "text": "two",
    "texts": ["true", "false"],
    "bytes": b"\xff",
    "nan": np.nan,
    "infinities": [np.inf, -np.inf],
    "floats": [1.5, np.nan],
    "numbers": [[0, 0]],
    "one number": 0,
    "complex": 1j,
    "none": np.array([], int),
    "no shape": h5py.Empty("f4"),
    "fields": np.zeros((), [("a", "i4")]),
    "rows of fields": np.zeros(2, [("a", "i4"), ("b", "S3")]),
    "opaque": np.void(b"abc"),
}


@pytest.mark.parametrize(
    "mark", ["_Netcdf4Dimid", "_Netcdf4Coordinates", "_Unsigned", "MATLAB_empty"]
)
@pytest.mark.parametrize("kind", [*ODD, "uneven", "reference", "time of HDF5"])
def test_no_value_of_an_attribute_keeps_a_file_from_being_opened(
    kind: str, mark: str, tmp_path: Path
) -> None:
    path, values = tmp_path / "x.nc", np.arange(12, dtype="i2").reshape(4, 3)
    with h5py.File(path, "w") as f:
        for name, length in (("time", 4), ("lat", 3)):
            f[name] = np.arange(length)
            f[name].make_scale(name)
        f["times"] = values * 1.5
        f["times"].make_scale("times")  # a coordinate of two axes
        f["x"] = values
        for axis, name in enumerate(("time", "lat")):
            f["x"].dims[axis].attach_scale(f[name])
        for name in ("time", "times", "x"):
            if kind == "uneven":
                rows = np.array([np.array([1, 2], "i4"), np.array([3], "i4")], object)
                f[name].attrs.create(mark, rows, dtype=h5py.vlen_dtype("i4"))
            elif kind == "time of HDF5":  # which h5py cannot read
                space = h5py.h5s.create(h5py.h5s.SCALAR)
                h5py.h5a.create(f[name].id, mark.encode(), h5py.h5t.UNIX_D32LE, space)
            else:
                f[name].attrs[mark] = f["x"].ref if kind == "reference" else ODD[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabeledWarning)  # names what cannot be read
        ds = labeled.open_dataset(path)
    assert ds.sources == ("x",)
    np.testing.assert_array_equal(ds["x"].values, values)
    np.testing.assert_array_equal(ds["times"].values, values * 1.5)


def test_positions_of_a_source_are_not_those_of_another_scale(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as f:
        for name, first in (("time", 0), ("g/time", 100)):  # the first labels nothing
            f[name] = first + np.arange(4)
            f[name].make_scale("time")
        f["g/x"] = np.zeros(4)
        f["g/x"].dims[0].attach_scale(f["g/time"])
    found = labeled.open_dataset(tmp_path / "x.h5").to_xarray()
    assert found["g/x"]["time"].values.tolist() == [100, 101, 102, 103]


def test_a_scale_of_a_linked_file_is_not_one_of_the_same_path_here(tmp_path: Path) -> None:
    for name, first in (("other", 100), ("x", 0)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as f:
            f["time"] = first + np.arange(4)
            f["time"].make_scale("time")
            f["g/y"] = np.full(4, first)
            f["g/y"].dims[0].attach_scale(f["time"])
    with h5py.File(tmp_path / "x.h5", "a") as f:
        del f["g"]
        f["far"] = h5py.ExternalLink("other.h5", "/")
    opened = labeled.open_dataset(tmp_path / "x.h5", allow_external=True)
    assert opened["far/g/y"]["time"].values.tolist() == [100, 101, 102, 103]
    with pytest.raises(FileFormatError, match=r"group 'far/g' .*other\.h5' with group='/g'"):
        labeled.open_dataset(tmp_path / "x.h5", group="far/g", allow_external=True)
    with h5py.File(tmp_path / "x.h5", "a") as f:
        del f["far"], f["time"]
        f["y"] = h5py.ExternalLink("other.h5", "/g/y")
    with pytest.warns(LabeledWarning, match="scale 'time' of source 'y' .* no name in the file"):
        opened = labeled.open_dataset(tmp_path / "x.h5", allow_external=True)
    assert opened.to_xarray()["y"].values.tolist() == [100] * 4  # the scale is of no name here


def test_a_scale_in_another_file_is_read_from_there(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["g/y"], f["g/k"] = np.arange(8.0).reshape(4, 2), [3, 4]
        f["g/k"].make_scale("k")
        f["g/y"].dims[1].attach_scale(f["g/k"])
        f["g/y"].dims[0].label = "batch"
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"], f["g"] = np.arange(4000.0), h5py.ExternalLink("other.h5", "/g")
    opened = labeled.open_dataset(tmp_path / "x.h5", sources=["g/y"], allow_external=True)
    assert opened["g/y"]["k"].values.tolist() == [3, 4]  # and not what lies there in this file
    with h5py.File(tmp_path / "x.h5", "a") as f:
        del f["g"]
        f["g/k"], f["link"] = np.arange(4000) + 7, h5py.ExternalLink("other.h5", "/g/k")
    opened = labeled.open_dataset(tmp_path / "x.h5", sources=["x"], allow_external=True)
    assert opened.to_xarray()["k"].values.tolist() == [3, 4]
