"""Zarr stores open like any other files of examples."""

from __future__ import annotations

import json
import sys
import warnings
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import labeled
from labeled.cli.main import main
from labeled.errors import (
    FileChangedError,
    FileFormatError,
    LabeledWarning,
    MissingExtraError,
    ReadError,
    UnknownNameError,
)
from labeled.testing import LoaderTests, ReaderTests

zarr = pytest.importorskip("zarr")

N = 203
RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 256, (N, 3, 60, 90), "u1")  # more than the smaller memory keeps
TARGETS = RNG.integers(0, 10, (N, 1)).astype("i8")
DIMS = {"images": ("batch", "channel", "height", "width"), "targets": ("batch", "index")}


def store(path, *, zarr_format=3, chunks=(16, 3, 60, 90), shards=None, dtype="u1"):
    """Write a store by zarr itself."""
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    named = zarr_format == 3
    for name, values, cut in (("images", IMAGES.astype(dtype), chunks), ("targets", TARGETS, None)):
        array = group.create_array(
            name,
            data=values,
            chunks=cut or (50, 1),
            shards=shards if cut else None,
            dimension_names=DIMS[name] if named else None,
        )
        if not named:
            array.attrs["_ARRAY_DIMENSIONS"] = list(DIMS[name])
    return path


@pytest.mark.filterwarnings("ignore::UserWarning:zarr")
class TestBatches(LoaderTests):
    options: ClassVar[dict] = {}
    memories = ("64 MiB", "32 MiB")

    def make(self, folder):
        return labeled.open_dataset(store(folder / "x.zarr", **self.options))

    def expected(self):
        return {"images": IMAGES, "targets": TARGETS}


class TestBatchesOfVersion2(TestBatches):
    options: ClassVar = {"zarr_format": 2}


READERS = {
    "whole": ({}, ()),
    "version 2": ({"zarr_format": 2, "dtype": ">f4"}, ()),
    "tiles": ({"chunks": (7, 1, 32, 32)}, (slice(1, 3), slice(5, 50, 3), 4)),
    "shards": ({"chunks": (4, 3, 60, 90), "shards": (40, 3, 60, 90)}, (np.array([2, 0, 2]),)),
}


@pytest.mark.filterwarnings("ignore::UserWarning:zarr")
class TestZarrReader(ReaderTests):
    @pytest.fixture(scope="class", params=READERS)
    @classmethod
    def case(cls, request, tmp_path_factory):
        options, region = READERS[request.param]
        path = store(tmp_path_factory.mktemp("zarr") / "x.zarr", **options)
        return path, region, options.get("dtype", "u1")

    @pytest.fixture
    def reader(self, case):
        path, region, _ = case
        taken = dict(zip(DIMS["images"][1:], region, strict=False))
        return labeled.open_dataset(path).isel(**taken)._sources["images"].reader()

    @pytest.fixture
    def values(self, case):
        _, region, dtype = case
        rows = IMAGES.astype(np.dtype(dtype).newbyteorder("="))
        return xr.DataArray(rows).isel({f"dim_{i}": r for i, r in enumerate(region, 1)}).values


def test_a_store_is_lazy_and_named(tmp_path):
    ds = labeled.open_dataset(store(tmp_path / "x.zarr"))
    assert ds.sources == ("images", "targets")
    assert ds["images"].dims == DIMS["images"]
    assert ds["images"].chunks is not None
    np.testing.assert_array_equal(ds.isel(channel=1)["images"][50:60].values, IMAGES[50:60, 1])
    some = ds.subset(np.array([7, 3, 7]))
    np.testing.assert_array_equal(some["images"].values, IMAGES[[7, 3, 7]])
    told = ds.batches(16, shuffle=True, seed=0).explain()
    (images,) = (one for one in told.sources if one.name == "images")
    assert images.path == "zarr"
    assert images.chunks_decoded >= images.chunks_needed == -(-N // 16)


def test_what_xarray_wrote_is_opened_as_xarray_opens_it(tmp_path):
    values = RNG.random((40, 5)).astype("f4")
    values[3, 2] = np.nan
    data = xr.Dataset(
        {"rain": (("time", "site"), values), "area": ("site", np.arange(5.0)), "one": ((), 4)},
        {"time": np.arange(40), "site": np.array([3, 1, 4, 1, 5])},
        {"title": "test"},
    )
    packed = {"rain": {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -1}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_zarr(tmp_path / "x.zarr", encoding=packed)
    ds, expected = labeled.open_dataset(tmp_path / "x.zarr"), xr.open_zarr(tmp_path / "x.zarr")
    assert ds.sources == ("rain",)
    found = ds.to_xarray()
    xr.testing.assert_equal(found["rain"], expected["rain"])
    np.testing.assert_array_equal(found["area"], data["area"])
    assert int(found["one"]) == 4


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_coordinates_that_are_no_dims_are_those_of_xarray(tmp_path, zarr_format):
    coords = {
        "time": np.arange(4) * 10.0,
        "when": ("time", np.arange(4)),
        "lat": ("site", [1.0, 2.0, 3.0]),
        "distance": (("time", "site"), RNG.random((4, 3))),
        "level": 2.0,
        "of_none": ("other", [7]),  # named by the group, as no variable has its dim
    }
    data = xr.Dataset({"rain": (("time", "site"), RNG.random((4, 3)))}, coords, {"title": "test"})
    data.to_zarr(tmp_path / "x.zarr", zarr_format=zarr_format, consolidated=False)

    ds = labeled.open_dataset(tmp_path / "x.zarr")
    expected = xr.open_zarr(tmp_path / "x.zarr", consolidated=False)

    assert ds.sources == ("rain",)
    xr.testing.assert_identical(ds.to_xarray().load(), expected.load())
    xr.testing.assert_identical(
        ds.subset([2, 0])["rain"].load(), expected["rain"].isel(time=[2, 0]).load()
    )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_coordinates_that_groups_name_are_those_of_their_sources(tmp_path, zarr_format):
    expected = {}
    for group in ("north", "far/south"):
        coords = {"when": ("time", RNG.random(4)), "lat": ("site", RNG.random(3))}
        coords["of_none"] = "other", [7]  # named by the group, as no variable has its dim
        data = xr.Dataset({"rain": (("time", "site"), RNG.random((4, 3)))}, coords)
        data.to_zarr(tmp_path / "x.zarr", group=group, zarr_format=zarr_format, consolidated=False)
        expected |= {f"{group}/{name}": data[name].variable for name in (*coords, "rain")}

    ds = labeled.open_dataset(tmp_path / "x.zarr")

    assert ds.sources == ("far/south/rain", "north/rain")
    assert {*ds["north/rain"].coords} == {"north/lat", "north/when"}
    found = ds.to_xarray()
    assert {*found.data_vars} == {*ds.sources}
    for name, variable in expected.items():
        np.testing.assert_array_equal(found[name], variable)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_texts_are_texts(tmp_path, zarr_format):
    texts, own = ["ä", "bcde", "", "f"], np.array(["yü", "", "zzz", "0"], object)
    data = xr.Dataset(
        {"fixed": (("batch", "k"), [texts[:2], texts[2:]] * 2), "own": ("batch", own)},
        {"batch": [*"pqrs"], "k": ["left", "right"]},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_zarr(tmp_path / "x.zarr", zarr_format=zarr_format)
    ds = labeled.open_dataset(tmp_path / "x.zarr")
    xr.testing.assert_equal(ds.to_xarray().load(), data.astype(object))
    assert ds["fixed"].attrs == {}
    assert ds.subset([3, 0])["own"].values.tolist() == ["0", "yü"]
    again = labeled.open_dataset(labeled.convert(tmp_path / "x.zarr", tmp_path / "x.h5"))
    assert again["fixed"].values.tolist() == data["fixed"].values.tolist()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_values_that_xarray_calls_missing_are_missing(tmp_path, zarr_format):
    values = np.arange(12.0).reshape(4, 3)
    dims = ("time", "site")
    data = xr.Dataset(dict.fromkeys(("packed", "floats"), (dims, values)))
    data["counts"] = dims, values.astype("i4")
    encoding = {
        "packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": 0},
        "floats": {"_FillValue": 7.0},
        "counts": {},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_zarr(tmp_path / "x.zarr", encoding=encoding, zarr_format=zarr_format)
    expected = xr.open_zarr(tmp_path / "x.zarr")
    assert int(expected.isnull().sum().to_array().sum()) == 2
    xr.testing.assert_equal(labeled.open_dataset(tmp_path / "x.zarr").to_xarray(), expected)
    xr.testing.assert_equal(xr.open_dataset(tmp_path / "x.zarr", engine="labeled"), expected)
    as_they_are = labeled.open_dataset(tmp_path / "x.zarr", decode_cf=False)
    np.testing.assert_array_equal(as_they_are["floats"], values)


def test_a_coordinate_of_another_length_is_left_to_those_it_fits(tmp_path):
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    for name, dims, shape in (("a", "tx", (4, 3)), ("b", "tx", (4, 5)), ("x", "x", (3,))):
        values = np.arange(np.prod(shape)).reshape(shape)
        group.create_array(name, data=values, dimension_names=tuple(dims))
    ds = labeled.open_dataset(tmp_path / "x.zarr")
    assert list(ds["a"].coords) == ["x"]
    assert not ds["b"].coords
    with pytest.warns(LabeledWarning, match=r"'x'.* different lengths"):
        found = ds.to_xarray()
    assert found["b"].dims == ("t", "b_x")
    np.testing.assert_array_equal(found["b"], group["b"][...])


def test_stores_are_joined(tmp_path):
    for k in range(2):
        store(tmp_path / f"{k}.zarr")
    ds, rows = labeled.open_dataset(str(tmp_path / "?.zarr")), np.array([N + 5, 5, N - 1])
    np.testing.assert_array_equal(ds.subset(rows)["images"].values, IMAGES[rows % N])


def test_chunks_between_those_of_a_window_are_not_read(tmp_path, monkeypatch):
    """Chunks of a few kibibytes, of which one call to zarr may read several."""
    path, rows = tmp_path / "x.zarr", np.arange(8000 * 500, dtype="i4").reshape(8000, 500)
    zarr.open_group(path, mode="w").create_array("x", data=rows, chunks=(20, 500))
    asked, read = [], zarr.Array.__getitem__

    def see(self, index):
        asked.append(range(8000)[index[0]])
        return read(self, index)

    monkeypatch.setattr(zarr.Array, "__getitem__", see)
    ds = labeled.open_dataset(path, dims={"x": ("batch", "column")})
    batches = ds.batches(60, shuffle="window", seed=2, memory="9 MiB", output="numpy")
    seen = np.concatenate([batch["x"] for batch in batches])
    np.testing.assert_array_equal(seen[np.argsort(seen[:, 0])], rows)
    assert (seen[1:, 0] < seen[:-1, 0]).sum() > 1000  # shuffled, several windows
    assert sum(map(len, asked)) == 8000


def test_an_array_and_a_group_of_a_store_are_opened(tmp_path):
    zarr.create_array(tmp_path / "y.zarr", data=TARGETS, dimension_names=("batch", "y_axis_1"))
    ds = labeled.open_dataset(tmp_path / "y.zarr")
    assert ds["y"].dims == ("batch", "y_axis_1")
    group = zarr.open_group(tmp_path / "z.zarr", mode="w")
    group.create_array("deep/a", data=TARGETS, dimension_names=("batch", "index"))
    assert labeled.open_dataset(tmp_path / "z.zarr").sources == ("deep/a",)
    inner = labeled.open_dataset(tmp_path / "z.zarr", group="deep")
    np.testing.assert_array_equal(inner["a"].values, TARGETS)


def test_info_shows_what_arrays_take_in_the_store(tmp_path):
    path = store(tmp_path / "x.zarr")
    done = CliRunner().invoke(main, ["info", str(path), "--json"])
    for name, source in json.loads(done.stdout)[0]["sources"].items():
        files = [one.stat().st_size for one in (path / name).rglob("*") if one.is_file()]
        assert source["stored_bytes"] == sum(files) != source["n_bytes"]


def test_what_cannot_be_opened_is_said(tmp_path, monkeypatch):
    path = store(tmp_path / "x.zarr")
    with pytest.raises(UnknownNameError, match=r"'image', which is not in .*did you mean 'images'"):
        labeled.open_dataset(path, sources=["image"])
    with pytest.raises(UnknownNameError, match=r"example_dim= names 'bacth'.* 'batch'\?"):
        labeled.open_dataset(path, example_dim="bacth")
    with pytest.raises(FileFormatError, match=r"zarr cannot open group 'no' of .*x\.zarr"):
        labeled.open_dataset(path, group="no")
    broken = store(tmp_path / "b.zarr")
    (broken / "zarr.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"zarr cannot open .*b\.zarr"):
        labeled.open_dataset(broken)

    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingExtraError, match=r"x\.zarr' needs zarr.*pip install zarr"):
        labeled.open_dataset(path)


def test_a_store_that_changed_or_is_damaged_is_not_read(tmp_path):
    path = store(tmp_path / "x.zarr")
    ds = labeled.open_dataset(path)
    ds["targets"].values  # noqa: B018
    (path / "images" / "c" / "0" / "0" / "0" / "0").write_bytes(b"damaged")
    with pytest.raises(ReadError, match=r"'images' in .*x\.zarr', rows 0 to"):
        ds["images"][:5].values  # noqa: B018
    meta = path / "targets" / "zarr.json"
    told = json.loads(meta.read_text())
    told["attributes"]["more"] = 1
    meta.write_text(json.dumps(told))
    with pytest.raises(FileChangedError, match=r"x\.zarr' .*changed"):
        ds["targets"].values  # noqa: B018


def test_a_store_that_grew_opens_with_all_its_rows(tmp_path):
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    array = group.create_array("x", shape=(10,), chunks=(5,), dtype="i4")
    array[:] = np.arange(10)
    assert labeled.open_dataset(tmp_path / "x.zarr")["x"].values.tolist() == list(range(10))

    array.append(np.arange(10, 15, dtype="i4"))  # which leaves the folder itself as it was
    assert labeled.open_dataset(tmp_path / "x.zarr").n_rows == 15
    array.attrs["units"] = "m"
    assert labeled.open_dataset(tmp_path / "x.zarr")["x"].attrs == {"units": "m"}
    assert labeled.open_dataset(tmp_path / "x.zarr")["x"].values.tolist() == list(range(15))


def test_a_store_that_names_no_axes_warns_and_shows_the_remedy(tmp_path):
    zarr.save_array(tmp_path / "x.zarr", np.zeros((4, 3)))
    with pytest.warns(LabeledWarning, match=r"does not name the axes of 'x'.*x_axis_1.*dims="):
        labeled.open_dataset(tmp_path / "x.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = labeled.open_dataset(tmp_path / "x.zarr", dims={"x": ("batch", "feature")})
    assert ds.dims == {"x": ("batch", "feature")}


def test_attributes_that_hdf5_cannot_hold_do_not_keep_a_store_from_being_converted(tmp_path):
    """They are any JSON in zarr, and nested in the stores of microscopes (OME)."""
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    values = np.arange(6.0).reshape(2, 3)
    arrays = [
        group.create_array("x", data=values, dimension_names=("batch", "c")),
        group.create_array("c", data=np.arange(3), dimension_names=("c",)),
    ]
    for held in (group, *arrays):
        held.attrs.update({"scales": [{"level": 0}], "mixed": ["a", 1], "units": "m"})
    with pytest.warns(LabeledWarning, match="cannot hold.*'scales' of the file.*'mixed' of source"):
        path = labeled.convert(tmp_path / "x.zarr", tmp_path / "x.h5")
    ds = labeled.open_dataset(path)
    np.testing.assert_array_equal(ds["x"].values, values)
    for attrs in (ds.attrs, ds["x"].attrs, ds["x"]["c"].attrs):
        assert attrs["units"] == "m"
        assert not {"scales", "mixed"} & attrs.keys()
