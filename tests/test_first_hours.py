"""What a newcomer meets in the first hours: nothing is silent, and errors name the remedy."""

from __future__ import annotations

import inspect
import pydoc
import re
import warnings
from importlib.util import find_spec

import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import (
    ArgumentError,
    ArrayError,
    FileChangedError,
    FileFormatError,
    LabeledWarning,
    LoaderError,
    MissingExtraError,
    OptionError,
    SelectionError,
    UnknownAttributeError,
    UnknownNameError,
)

IMAGES = np.arange(30 * 4 * 5, dtype="u2").reshape(30, 4, 5)
TARGETS = np.arange(30) % 3


@pytest.fixture
def path(tmp_path):
    return labeled.write(
        tmp_path / "a.hdf5",
        {"images": IMAGES, "targets": TARGETS},
        splits={"train": (0, 20), "test": (20, 30)},
        dims={"images": ("batch", "height", "width")},
    )


@pytest.fixture
def ds(path):
    return labeled.open_dataset(path)


# batches as other libraries give them


def test_pairs_come_as_tuples_in_the_order_of_select(ds):
    pairs = ds.select("targets", "images").batches(16, as_tuple=True)
    for number, (y, x) in enumerate(pairs):
        assert type(x) is type(y) is np.ndarray
        np.testing.assert_array_equal(x, IMAGES[16 * number :][:16])
        np.testing.assert_array_equal(y, TARGETS[16 * number :][:16])
    assert len(list(pairs)) == 2


def test_one_source_is_a_tuple_of_one_and_a_pipeline_comes_before(ds):
    ((x,), _) = ds.select("images").batches(16, as_tuple=True, pipeline={"images": lambda x: x + 1})
    np.testing.assert_array_equal(x, IMAGES[:16] + 1)


def test_tuples_hold_tensors_where_tensors_are_asked_for(ds):
    torch = pytest.importorskip("torch")
    x, y = next(iter(ds.batches(16, output="torch", as_tuple=True, dtype={"images": "float32"})))
    assert isinstance(x, torch.Tensor)
    np.testing.assert_array_equal(y.numpy(), TARGETS[:16])


def test_specs_nest_batches_themselves(ds):
    with pytest.raises(LoaderError, match=r"as_tuple=True.*specs"):
        ds.batches(16, specs=(ds.spaces["images"], "images"), as_tuple=True)


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_a_gpu_for_torch_needs_cupy_or_nothing_but_torch(ds):
    with pytest.raises(MissingExtraError, match=r"pinned=True.*\.to\('cuda'"):
        ds.batches(16, device="cuda", output="torch")


def test_help_shows_every_option_with_its_default(ds):
    for call in (ds.batches, labeled.batches):
        options = inspect.signature(call).parameters
        assert options["shuffle"].default is False
        assert options["last"].default == "keep"
        assert options["as_tuple"].default is False
        assert not any(one.kind is one.VAR_KEYWORD for one in options.values())
        text = pydoc.plain(pydoc.render_doc(call))
        assert "shuffle: 'Shuffle' = False" in text
        for name in options.keys() - {"obj", "dim", "batch_size"}:
            assert re.search(rf"^ +[\w, ]*\b{name}\b[\w, ]* : ", text, re.MULTILINE), name
        assert ":func:" not in text


def test_the_length_of_a_batch_is_not_its_number_of_rows(ds):
    batch = next(iter(ds.batches(16)))
    assert "count=16" in repr(batch)
    for kind in (labeled.Dataset, labeled.Batch):
        assert "``len(" in (kind.__doc__ or "")


# nothing is silent


def test_dropping_every_row_warns(ds):
    with pytest.warns(LabeledWarning, match=r"last='drop'.*30 rows.*batch_size=64"):
        loader = ds.batches(64, last="drop")
    assert len(list(loader)) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.batches(30, last="drop")


def test_a_state_with_another_seed_warns(ds):
    saved = ds.batches(4, shuffle=True, seed=1).state_dict()
    loader = ds.batches(4, shuffle=True, seed=2)
    with pytest.warns(LabeledWarning, match=r"seed=1.*seed=2"):
        loader.load_state_dict(saved)
    assert loader.seed == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.batches(4, shuffle=True, seed=1).load_state_dict(saved)
        ds.batches(4, shuffle=True).load_state_dict(saved)  # drawn, so that nobody counts on it


def test_sources_of_unequal_lengths_are_written_with_a_warning(tmp_path):
    arrays = {"x": np.arange(3), "y": np.arange(4)}
    with pytest.warns(LabeledWarning, match=r"'x' has 3 rows.*'y' has 4.*splits="):
        labeled.write(tmp_path / "a.hdf5", arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labeled.write(
            tmp_path / "b.hdf5", arrays, splits={"train": {"x": (0, 3)}, "test": {"y": (0, 4)}}
        )
        labeled.write(tmp_path / "c.hdf5", {"x": np.arange(3), "y": np.arange(3)})


# errors name the remedy


def test_random_state_of_batches_is_seed(ds):
    with pytest.raises(OptionError, match="seed="):
        ds.batches(16, random_state=0)


def test_a_file_that_is_written_elsewhere_is_called_so(tmp_path):
    with h5py.File(tmp_path / "w.hdf5", "w") as file:
        file["x"] = np.arange(1000)
        with pytest.raises(FileChangedError, match=r"w\.hdf5'.*open for writing.*close it"):
            labeled.open_dataset(tmp_path / "w.hdf5")
    np.testing.assert_array_equal(labeled.open_dataset(tmp_path / "w.hdf5")["x"], np.arange(1000))


def test_an_open_or_closed_h5py_file_is_answered_by_its_path(path):
    words = r"close it and pass its path, '.*a\.hdf5'"
    with h5py.File(path) as file, pytest.raises(FileFormatError, match=words):
        labeled.open_dataset(file)
    with pytest.raises(FileFormatError, match=r"closed h5py\.File; pass its path"):
        labeled.open_dataset(file)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"train": 0.8, "test": 0.2}, r"ds\.train_test_split\(train_size=0\.8, seed=7\)"),
        ([1, 2, 3], r"ds\.subset\(\[1, 2, 3\]\)"),
        (1, r"ds\.subset\(\[1\]\)"),
        (0.8, r"ds\.train_test_split\(train_size=0\.8, seed=7\)"),
    ],
)
def test_rows_and_shares_are_not_names_of_splits(ds, asked, words):
    with pytest.raises(UnknownNameError, match=words):
        ds.split(asked)


def test_rows_are_not_names_of_sources(ds):
    with pytest.raises(UnknownNameError, match=r"ds\.subset\(rows\)"):
        ds.select(range(10))


def test_plain_text_is_not_a_dataset(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("hello\nworld\n")
    with pytest.raises(FileFormatError, match=r"notes\.txt'.*plain text.*format='csv'"):
        labeled.open_dataset(notes)
    assert labeled.open_dataset(notes, format="csv").n_rows > 0
    (tmp_path / "labels.txt").write_text("3\n1\n2\n")
    assert len(labeled.open_dataset(tmp_path / "labels.txt")) == 3


def test_positions_along_an_axis_are_not_called_rows(ds):
    with pytest.raises(SelectionError, match=r"'height' \(length 4\): position 7 ") as caught:
        ds.isel(height=7)
    assert "row" not in str(caught.value)


def test_a_misspelt_source_in_dims_is_named(path, tmp_path):
    with pytest.raises(
        UnknownNameError, match=r"dims= names 'image', which is not a source of file.*'images'"
    ) as caught:
        labeled.open_dataset(path, dims={"image": ("batch", "y", "x")})
    assert "split table" not in str(caught.value)


def test_errors_are_of_the_right_kind(ds, path):
    for call in (
        lambda: labeled.open_dataset(path, batch_size=3),
        lambda: labeled.open_dataset(path, io="fast"),
        lambda: labeled.open_dataset(path, format="hdf6"),
        lambda: ds.train_test_split(test=0.2),
    ):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert not isinstance(caught.value, LoaderError)


def test_files_that_xarray_reads_are_answered_by_xarray(tmp_path):
    (tmp_path / "era5.grib").write_bytes(b"GRIB" + bytes(200))
    (tmp_path / "scene.tif").write_bytes(b"II*\0" + bytes(200))
    (tmp_path / "odd.xyz").write_bytes(b"\0\1\2\3" * 50)
    for name, words in [
        ("era5.grib", r"GRIB.*labeled\.batches\(xr\.open_dataset\('.*', engine='cfgrib'\), 64"),
        ("scene.tif", r"TIFF.*labeled\.batches\(xr\.open_dataset\('.*', engine='rasterio'\), 64"),
        ("odd.xyz", r"labeled\.batches\(xr\.open_dataset\('.*'\), 64, dim=\.\.\.\)"),
    ]:
        with pytest.raises(FileFormatError, match=words):
            labeled.open_dataset(tmp_path / name)


# what is listed


def test_the_package_lists_its_public_names_only():
    names = [name for name in dir(labeled) if not name.startswith("_")]
    parts = {"cluster", "compat", "providers", "samplers", "spaces", "torch", "transforms"}
    assert set(names) == {*labeled.__all__, *parts}
    assert "self" not in inspect.signature(labeled.Dataset(None).train_test_split).parameters


def test_hints_do_not_list_internals(ds):
    with pytest.raises(UnknownAttributeError) as caught:
        _ = ds.batches(4).prefetch_to_device
    assert "device='cuda'" in str(caught.value)
    assert not re.search("handed_out|pools|windows", str(caught.value))


def test_the_repr_of_pictures_is_one_line(ds):
    for plots in (ds.plot, ds.batches(4).plot):
        assert re.fullmatch(r"<plots of .*: plot\(\), .*\(\)>", repr(plots))


# pictures


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize(
    "dims",
    [
        ("Y", "X"),
        ("lat", "lon"),
        ("Latitude", "LONGITUDE"),
        ("HEIGHT", "Width"),
        ("level", "latitude", "longitude"),
        ("time", "y", "x"),
        ("Channel", "Y", "X"),
    ],
)
def test_maps_and_pictures_are_drawn_as_images(tmp_path, pyplot, dims):
    values = np.random.default_rng(3).normal(size=(6, *(2, 4, 5)[-len(dims) :])).astype("f4")
    path = labeled.write(tmp_path / "m.hdf5", {"t": values}, dims={"t": ("batch", *dims)})
    batch = next(iter(labeled.open_dataset(path).batches(6)))
    drawn = [np.asarray(image.get_array()) for image in batch.plot().images]
    assert len(drawn) == 6
    first = values[0] if values.ndim == 3 else values[0, 0]
    assert any(np.array_equal(drawn[0], one) for one in (first, *values[0]))


def test_complex_values_are_not_called_text(tmp_path, pyplot):
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["z"] = np.ones((10, 3), "c16")
    ds = labeled.open_dataset(tmp_path / "c.h5", dims={"z": ("batch", "time")})
    with pytest.raises(ArrayError, match="complex") as caught:
        ds.plot()
    assert "text" not in str(caught.value)
    with pytest.raises(ArrayError, match="complex"):
        ds.plot("z")


def test_batches_of_what_xarray_opened(tmp_path):
    array = xr.DataArray(np.arange(12).reshape(6, 2), dims=("time", "x"), name="t")
    array.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as opened:
        ((t,), _) = labeled.batches(opened, 3, dim="time", as_tuple=True)
    np.testing.assert_array_equal(t, array[:3])
