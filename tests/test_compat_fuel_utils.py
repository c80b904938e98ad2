"""`fuel.utils` by aliases: subsets, lazy attributes, paths of data, settings."""

from __future__ import annotations

import os
import pickle
import shutil

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import h5py
import numpy as np
import pytest
from fuel import config
from fuel.config_parser import Configuration, extra_downloader_converter, multiple_paths_parser
from fuel.datasets.hdf5 import H5PYDataset
from fuel.exceptions import ConfigurationError
from fuel.utils import Subset, do_not_pickle_attributes, find_in_data_path
from fuel.utils.cache import cache_file
from hypothesis import given, settings
from hypothesis import strategies as st

kinds = st.one_of(
    st.lists(st.integers(0, 19)),
    st.tuples(st.integers(0, 19), st.integers(0, 20)).map(lambda p: slice(min(p), max(p))),
)


@settings(deadline=None, max_examples=80)
@given(kinds, kinds)
def test_sums_are_unions_and_both_sides_read_alike(one, two):
    values = np.arange(20)

    def rows(kind):
        return set(values[kind].tolist()) if not isinstance(kind, list) or kind else set()

    a, b = Subset(one, 20), Subset(two, 20)
    try:
        joined = a + b
    except ValueError:  # an empty slice beside something it does not touch
        assert not rows(two)
        return
    expected = sorted(rows(one) | rows(two))
    assert joined.num_examples == len(expected)
    if not expected:
        return
    for indexable in (values, values.tolist()):
        assert list(joined.index_within_subset(indexable, slice(None))) == expected
        for place in (0, len(expected) - 1):
            assert joined.index_within_subset(indexable, place) == expected[place]
            assert list(joined.index_within_subset(indexable, [place, 0])) == [
                expected[place],
                expected[0],
            ]


@pytest.mark.parametrize("row", [0, 1])
def test_an_array_of_one_row_is_a_list(row):
    assert Subset([3, 7], 20)[np.array([row])] == [(3, 7)[row]]
    assert Subset(slice(2, 5), 20)[np.array([row])] == [2 + row]
    for wrong in ([row - 2], [row + 5], []):
        with pytest.raises(ValueError):
            Subset(slice(2, 5), 20)[np.array(wrong)]


@pytest.mark.parametrize("rows", [[1.5], [1.5, 2.0], [0, np.float32(1.5)]])
def test_rows_that_are_not_integers_are_refused(rows):
    with pytest.raises(TypeError, match=r"takes integers, found 1\.5"):
        Subset(rows, 20)
    for subset in (Subset(slice(2, 5), 20), Subset([3, 7, 9], 20)):
        with pytest.raises(TypeError, match=r"takes integers, found 1\.5"):
            subset[rows]


# ---------------------------------------------------------------- lazy attributes
@do_not_pickle_attributes("bulky", "unpicklable")
class Lazy:
    def __init__(self):
        self.load()

    def load(self):
        self.bulky = list(range(100))
        self.unpicklable = lambda x: x


@do_not_pickle_attributes("rows")
class HoldsAnIterator:
    def load(self):
        self.rows = iter(range(3))


@do_not_pickle_attributes("rows")
class LoadsNothing:
    def load(self):
        pass


def test_lazy_attributes_are_loaded_again():
    again = pickle.loads(pickle.dumps(Lazy()))
    assert "_bulky" not in again.__dict__
    assert again.bulky == list(range(100))
    assert again.unpicklable(3) == 3


def test_what_lazy_attributes_need():
    with pytest.raises(ValueError, match="load"):
        do_not_pickle_attributes("x")(type("Faulty", (), {}))
    holder = HoldsAnIterator()
    holder.load()
    with pytest.raises(ValueError, match="iterator"):
        pickle.dumps(holder)
    with pytest.raises(ValueError, match="rows"):
        _ = LoadsNothing().rows


# ---------------------------------------------------------------- paths and settings
@pytest.fixture
def folders(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "a.txt").write_text("")
    (tmp_path / "two" / "a.txt").write_text("")
    (tmp_path / "two" / "b.txt").write_text("")
    held = dict(config.config["data_path"])
    config.data_path = os.pathsep.join([str(tmp_path / "one"), str(tmp_path / "two")])
    yield tmp_path
    config.config["data_path"] = held


def test_the_first_folder_that_has_it(folders):
    assert find_in_data_path("a.txt") == str(folders / "one" / "a.txt")
    assert find_in_data_path("b.txt") == str(folders / "two" / "b.txt")
    with pytest.raises(OSError, match=r"c\.txt"):
        find_in_data_path("c.txt")


def test_a_data_path_that_is_not_set_is_missed_when_a_file_is_looked_for(monkeypatch):
    monkeypatch.setitem(config.config, "data_path", {**config.config["data_path"]})
    config.config["data_path"].pop("value", None)
    monkeypatch.delenv("FUEL_DATA_PATH", raising=False)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"data_path is not set.*FUEL_DATA_PATH"):
            find_in_data_path("a.txt")
        config.data_path = config.data_path  # as suites put it back


@pytest.fixture
def made(tmp_path, monkeypatch):
    (tmp_path / "rc").write_text("data_path: from_yaml\n")
    monkeypatch.setenv("FUEL_CONFIG", str(tmp_path / "rc"))
    monkeypatch.delenv("FUEL_DATA_PATH", raising=False)
    settings_ = Configuration()
    settings_.add_config("data_path", str, env_var="FUEL_DATA_PATH")
    settings_.add_config("with_default", int, default="1", env_var="FUEL_OTHER")
    settings_.add_config("without_default", str)
    return settings_


def test_settings_assigned_before_environment_before_file_before_default(made, monkeypatch):
    made.load_yaml()
    assert made.data_path == "from_yaml"
    monkeypatch.setenv("FUEL_DATA_PATH", "from_environment")
    assert made.data_path == "from_environment"
    made.data_path = "assigned"
    assert made.data_path == "assigned"
    assert made.with_default == 1
    made.with_default = "7"
    assert made.with_default == 7


@pytest.mark.parametrize(
    ("parse", "between"), [(multiple_paths_parser, os.pathsep), (extra_downloader_converter, " ")]
)
def test_settings_that_are_lists_may_be_one_text(parse, between):
    assert parse(between.join(["pkg.one", "pkg.two"])) == ["pkg.one", "pkg.two"]
    assert parse("pkg.one") == ["pkg.one"]
    assert parse(["as", "they are"]) == ["as", "they are"]


@pytest.fixture
def local(tmp_path, monkeypatch):
    monkeypatch.setitem(config.config["local_data_path"], "value", str(tmp_path / "local"))
    with h5py.File(tmp_path / "far.hdf5", "w") as f:
        f["x"] = np.arange(5)
        f.attrs["split"] = H5PYDataset.create_split_array({"train": {"x": (0, 5)}})
    return tmp_path


def test_datasets_read_a_local_copy(local):
    path = str(local / "far.hdf5")
    copy = str(local / "local") + path
    for _ in range(2):
        dataset = H5PYDataset(path, ("train",), load_in_memory=True)
        assert dataset.path == copy
        np.testing.assert_array_equal(dataset.data_sources[0], np.arange(5))
    assert cache_file(copy) == copy
    assert sorted(os.listdir(os.path.dirname(copy))) == ["far.hdf5"]


def test_on_any_doubt_files_are_read_where_they_are(local, monkeypatch):
    path = str(local / "far.hdf5")
    disk = shutil.disk_usage(local)._replace(total=100, used=90, free=10)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda folder: disk)
        assert cache_file(path) == path
    copy = cache_file(path)
    assert copy != path
    os.utime(path, (2e9, 2e9))
    assert cache_file(path) == path
    monkeypatch.setitem(config.config["local_data_path"], "value", path)
    assert cache_file(path) == path
    assert cache_file("none.hdf5") == "none.hdf5"


def test_settings_that_are_not_there(made, tmp_path):
    with pytest.raises(ConfigurationError):
        _ = made.without_default
    with pytest.raises(AttributeError):
        _ = made.nonsense
    (tmp_path / "rc").write_text("nonsense: 1\n")
    with pytest.raises(ValueError, match="nonsense"):
        made.load_yaml()
