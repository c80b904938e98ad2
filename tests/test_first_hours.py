"""What a newcomer meets in the first hours: nothing is silent, and errors name the remedy."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import re
import warnings
from functools import partial
from importlib.util import find_spec

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import (
    ArgumentError,
    FileChangedError,
    FileFormatError,
    LabeledWarning,
    LoaderError,
    MissingExtraError,
    OptionError,
    UnknownAttributeError,
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


def test_both_doors_take_the_same_options_with_the_same_defaults(ds):
    """`ds.batches` takes the fields of its options; `labeled.batches` hands on what it is given."""
    options = inspect.signature(ds.batches).parameters
    shared = inspect.signature(labeled.batches).parameters
    assert {name: shared[name] for name in options} == {**options}
    assert shared.keys() - options.keys() == {"obj", "dim"}
    asked = labeled.batches({"x": IMAGES}, 2).plan.options
    assert {one.name for one in dataclasses.fields(asked) if one.init} == options.keys()
    for name in options.keys() - {"batch_size"}:
        assert getattr(asked, name) == options[name].default, name
    for call in (ds.batches, partial(labeled.batches, {"x": IMAGES})):
        with pytest.raises(OptionError, match=r"shuffel.*shuffle"):
            call(2, shuffel=True)


def test_dropping_every_row_warns(ds):
    with pytest.warns(LabeledWarning, match=r"30 rows.*batch_size=64.*last='keep'"):
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
        with pytest.raises(
            FileChangedError, match=r"w\.hdf5'.*Close it where it is open for writing"
        ):
            labeled.open_dataset(tmp_path / "w.hdf5")
    np.testing.assert_array_equal(labeled.open_dataset(tmp_path / "w.hdf5")["x"], np.arange(1000))


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
