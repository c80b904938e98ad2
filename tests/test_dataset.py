"""A dataset gives the rows NumPy would, whatever it was composed of and however it is read."""

from __future__ import annotations

import os
import pickle
import warnings
from fractions import Fraction

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from labelled_file import ARRAYS, IMAGES, LABELS, ODD, TARGETS, VECTORS, N, labelled_file

import labeled
from labeled.errors import (
    ArgumentError,
    FileChangedError,
    LabeledError,
    LabeledWarning,
    SelectionError,
    SelectionTypeError,
    SplitError,
    UnknownNameError,
)
from make_files import fuel_file

XY = {"x": ("batch", "feature"), "y": ("batch", "feature")}
SPLITS = {"train": np.arange(30), "test": np.arange(30, N), "odd": ODD}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return labelled_file(tmp_path_factory.mktemp("data"))


def requests(n):
    ends = st.none() | st.integers(-n - 3, n + 3)
    some = slices = st.builds(slice, ends, ends, st.none() | st.sampled_from([1, 2, 5, -1, -3]))
    if n:
        some = some | st.lists(st.integers(-n, n - 1), max_size=9)
        some = some | st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
    return some | slices | st.just([])


def as_numpy(request):
    return np.asarray(request, int) if isinstance(request, list) else request


@st.composite
def compositions(draw):
    """A chain of splits, subsets and regions, with the rows and parts NumPy gives for it."""
    names = draw(st.lists(st.sampled_from(sorted(SPLITS)), max_size=3))
    rows = np.concatenate([SPLITS[name] for name in names]) if names else np.arange(N)
    subsets = []
    for _ in range(draw(st.integers(0, 2))):
        request = draw(requests(len(rows)))
        subsets.append(request)
        rows = rows[as_numpy(request)]
    axes = {}
    if draw(st.booleans()):
        axes["height"] = draw(st.integers(-4, 3) | requests(4))
    if draw(st.booleans()):
        axes["channel"] = draw(st.integers(-3, 2) | requests(3))
    return names, subsets, rows, axes


def composed(dataset, names, subsets, axes):
    if names:
        dataset = dataset.split(*names)
    for request in subsets:
        dataset = dataset.subset(request)
    return dataset.isel(**axes)


def expected(rows, axes):
    images = xr.DataArray(IMAGES, dims=LABELS["images"]).isel(batch=rows)
    for dim, request in axes.items():
        images = images.isel({dim: as_numpy(request)})
    return {"images": images, "vectors": VECTORS[rows], "targets": TARGETS[rows]}


@given(compositions())
def test_every_path_gives_the_same_rows(path, composition):
    names, subsets, rows, axes = composition
    dataset = composed(labeled.open_dataset(path), names, subsets, axes)
    want = expected(rows, axes)

    assert len(dataset) == len(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabeledWarning)
        lazy = {name: dataset[name] for name in dataset.sources}
        whole = dataset.to_xarray().compute()
        loaded = dataset.load().to_xarray().compute()
        pickled = pickle.loads(pickle.dumps(dataset)).load().to_xarray().compute()
    assert lazy["images"].dims == want["images"].dims
    for name, values in want.items():
        np.testing.assert_array_equal(lazy[name].values, values, err_msg="dask")
        np.testing.assert_array_equal(whole[name].values, values, err_msg="xarray")
        np.testing.assert_array_equal(loaded[name].values, values, err_msg="loaded")
        np.testing.assert_array_equal(pickled[name].values, values, err_msg="pickled")
        assert lazy[name].dtype == np.asarray(values).dtype
    batches = list(dataset.batches(5))
    for name, values in want.items():
        direct = [batch.arrays[name] for batch in batches] or [np.asarray(values)[:0]]
        np.testing.assert_array_equal(np.concatenate(direct), values, err_msg="batches")


@given(st.lists(st.sampled_from(sorted(SPLITS)), min_size=1, max_size=2), st.data())
def test_the_xarray_engine_gives_the_same_rows(path, names, data):
    rows = np.concatenate([SPLITS[name] for name in names])
    request, which = data.draw(requests(len(rows))), data.draw(st.sampled_from([list, np.array]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabeledWarning)
        opened = xr.open_dataset(path, engine="labeled", which_sets=which(names), subset=request)
        np.testing.assert_array_equal(opened["images"].values, IMAGES[rows[as_numpy(request)]])
    assert opened.attrs["title"] == "a test"
    opened.close()


def test_sources_and_their_order(path):
    dataset = labeled.open_dataset(path)
    assert dataset.sources == ("images", "targets", "vectors")
    assert dataset.select("vectors", "images").sources == ("vectors", "images")
    assert labeled.open_dataset(path, sources=["targets", "images"]).sources == (
        "targets",
        "images",
    )
    assert dataset.select("vectors", "images").split("train").sources == ("vectors", "images")
    assert dataset.splits["odd"] == {"images": 23, "targets": 23, "vectors": 23}
    assert dataset.dims["vectors"] == ("batch", "feature")


def test_a_changed_file_is_noticed(tmp_path):
    name = fuel_file(tmp_path / "a.hdf5", {"x": np.arange(8)}, {"all": (0, 8)}, {"x": ("batch",)})
    dataset = labeled.open_dataset(name)
    frozen = pickle.dumps(dataset)
    with h5py.File(name, "a") as f:
        f["more"] = np.arange(10_000)
    with pytest.raises(FileChangedError, match="open it again"):
        pickle.loads(frozen).load()
    with pytest.raises(FileChangedError, match=r"a\.hdf5"):
        dataset["x"]


def test_files_join_along_the_examples(tmp_path):
    halves = []
    for i, rows in enumerate([slice(0, 20), slice(20, N)]):
        n = len(IMAGES[rows])
        halves.append(
            fuel_file(
                tmp_path / f"part{i}.hdf5",
                {name: array[rows] for name, array in ARRAYS.items()},
                {"train": (0, n - 2), "test": (n - 2, n)},
                LABELS,
                chunks={"images": (3, 3, 4, 5)},
                compression={"images": "gzip"},
            )
        )
    for joined in (
        labeled.open_dataset(halves),
        labeled.open_dataset(str(tmp_path / "part*.hdf5")),
        labeled.open_dataset(tmp_path),
        labeled.concat(halves),
    ):
        np.testing.assert_array_equal(joined["images"].values, IMAGES)
    both = labeled.concat([labeled.open_dataset(p).split("test") for p in halves])
    np.testing.assert_array_equal(both["targets"].values, TARGETS[[18, 19, N - 2, N - 1]])


def test_files_that_do_not_fit_are_named(tmp_path):
    one = fuel_file(tmp_path / "one.hdf5", {"x": np.zeros((4, 2))}, {"all": (0, 4)}, XY)
    two = fuel_file(tmp_path / "two.hdf5", {"x": np.zeros((4, 3))}, {"all": (0, 4)}, XY)
    three = fuel_file(tmp_path / "three.hdf5", {"y": np.zeros((4, 2))}, {"all": (0, 4)}, XY)
    with pytest.raises(LabeledError, match=r"row shape \(3,\) in .*two\.hdf5.*one\.hdf5"):
        labeled.open_dataset([one, two])
    with pytest.raises(UnknownNameError, match=r"three\.hdf5.*lacks sources \['x'\]"):
        labeled.open_dataset([one, three])


def test_one_label_with_two_lengths(tmp_path):
    name = fuel_file(
        tmp_path / "a.hdf5",
        {"big": np.zeros((4, 6)), "small": np.ones((4, 3))},
        {"all": (0, 4)},
        {"big": ("batch", "width"), "small": ("batch", "width")},
    )
    dataset = labeled.open_dataset(name)
    with pytest.warns(LabeledWarning, match="'width'"):
        together = dataset.to_xarray()
    assert together["big"].dims == ("batch", "width")
    assert together["small"].dims == ("batch", "small_width")
    assert dataset["big"].dims == ("batch", "width")


def test_splits_are_shown_where_they_can_be_chosen(path):
    dataset = labeled.open_dataset(path)
    assert "splits:" in repr(dataset)
    for chosen in (dataset.split("train"), dataset.subset(slice(9)), dataset.load()):
        assert "splits:" not in repr(chosen)
        with pytest.raises(SplitError):
            chosen.split("train")


def test_splits_are_counted_in_the_sources_that_are_selected(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["long"], f["short"] = np.zeros(30), np.zeros(4)
        f["names"] = np.array(["a"] * 30, h5py.string_dtype())
    dataset = labeled.open_dataset(tmp_path / "a.h5")
    assert "all  30 rows (2 sources), 4 rows (short)" in repr(dataset)
    chosen = dataset.select("long", "names")
    assert repr(chosen).endswith("all  30 rows")
    assert [line.split()[-4] for line in repr(chosen.batches(5)).splitlines()[2:4]] == [
        "float64",
        "text",
    ]


def test_a_file_without_sources_has_no_row(tmp_path):
    with h5py.File(tmp_path / "e.h5", "w") as f:
        f["scalar"] = 1
    dataset = labeled.open_dataset(tmp_path / "e.h5")
    for shown in (repr(dataset), dataset._repr_html_()):
        assert "no sources: it holds no array" in shown
        assert "splits" not in shown
        assert "rows differ" not in shown
    assert len(dataset.subset([])) == len(dataset.subset(slice(3))) == 0
    with pytest.raises(SelectionError, match=r"row 0 is out of range: there are 0 rows .*e\.h5"):
        dataset[0]


@pytest.fixture(scope="module")
def by_time(tmp_path_factory):
    """Return a dataset with coordinates, and what xarray makes of the same file."""
    path = tmp_path_factory.mktemp("time") / "grid.nc"
    xr.Dataset(
        {"t": (("time", "lat", "lon"), np.arange(120.0).reshape(10, 4, 3))},
        {
            "time": np.arange("2024-01-01", "2024-01-11", dtype="M8[D]").astype("M8[ns]"),
            "lat": [10.0, 20.0, 30.0, 40.0],
        },
    ).to_netcdf(path, engine="h5netcdf", unlimited_dims="time")
    return labeled.open_dataset(path), xr.load_dataset(path, engine="h5netcdf")


@pytest.mark.parametrize(
    ("labels", "how"),
    [
        ({"time": slice("2024-01-03", "2024-01-05")}, {}),
        ({"time": ["2024-01-07", "2024-01-02"]}, {}),
        ({"lat": 20.0, "time": slice("2024-01-09", None)}, {}),
        ({"lat": slice(15, 35)}, {}),
        ({"lat": [39, 12]}, {"method": "nearest", "tolerance": 5}),
        ({"lat": slice(90, 99)}, {}),
    ],
)
def test_sel_takes_what_xarray_takes(by_time, labels, how):
    dataset, loaded = by_time
    taken = dataset.subset(slice(1, None)).sel(labels, **how)
    wanted = loaded.isel(time=slice(1, None)).sel(labels, **how)
    np.testing.assert_array_equal(taken["t"].values, wanted["t"].values)
    assert taken["t"].dims == wanted["t"].dims
    np.testing.assert_array_equal(taken["t"].time.values, wanted["t"].time.values)


def test_sel_keeps_the_example_dim_and_says_what_is_not_there(by_time):
    dataset, _ = by_time
    assert dataset.sel(time="2024-01-03")["t"].shape == (1, 4, 3)
    with pytest.raises(SelectionError, match=r"lat=25 .*among 4 values from 10\.0 to 40\.0"):
        dataset.sel(lat=25)
    with pytest.raises(UnknownNameError, match=r"dim 'lon' has no coordinate .*isel"):
        dataset.sel(lon=1)
    with pytest.raises(UnknownNameError, match="no source has a dim 'lan'; did you mean 'l"):
        dataset.sel(lan=1)


@pytest.mark.parametrize(
    "position", [np.int64(2), np.uint8(2), np.array(2), xr.DataArray(2), xr.DataArray([2, 0]), [2]]
)
def test_isel_takes_the_numbers_of_numpy_and_xarray(by_time, position):
    dataset, loaded = by_time
    taken, wanted = dataset.isel(lat=position), loaded["t"].isel(lat=np.asarray(position))
    for found in (taken["t"], taken.to_xarray()["t"], taken.load()["t"]):
        xr.testing.assert_equal(found.compute(), wanted)


@pytest.mark.parametrize("how", [{}, {"method": "nearest"}])
def test_sel_of_values_that_repeat_takes_one_value_or_a_range(by_time, how):
    dataset, loaded = by_time
    rows = [4, 2, 2, 0]
    found = dataset.subset(rows).sel(time="2024-01-03")["t"]
    np.testing.assert_array_equal(found, loaded["t"].isel(time=rows).sel(time="2024-01-03"))
    with pytest.raises(SelectionError, match=r"values repeat: give one, a range"):
        dataset.subset(rows).sel(time=["2024-01-03", "2024-01-01"], **how)


def test_choosing_rows_does_not_look_at_the_files_again(tmp_path, monkeypatch):
    """A thousand files on a server take a second to be looked at."""
    paths = [
        fuel_file(
            tmp_path / f"{k}.hdf5", {"x": np.arange(4.0)}, {"train": (0, 3)}, {"x": ("batch",)}
        )
        for k in range(3)
    ]
    dataset = labeled.open_dataset(paths)
    looked, stat = [], os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, **more: (looked.append(path), stat(path, **more))[1]
    )
    few = dataset.split("train").subset(slice(1, None)).subset([0, 5, 7])
    assert (len(few), few.n_rows, len(few.select("x").sources)) == (3, 3, 1)
    assert looked == []
    assert few["x"].values.tolist() == [1.0, 0.0, 2.0]
    assert len(looked) >= 3
    assert pickle.loads(pickle.dumps(few)).n_rows == 3


@pytest.mark.parametrize("chosen", [lambda ds: ds, lambda ds: ds.subset([0, 2])])
def test_a_file_replaced_by_one_alike_is_found_out_by_its_time(tmp_path, chosen):
    path = labeled.write(tmp_path / "x.hdf5", {"x": np.zeros(4)})
    dataset = labeled.open_dataset(path)
    labeled.write(path, {"x": np.ones(4)}, overwrite=True)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileChangedError, match="has changed since it was opened"):
        next(iter(chosen(dataset).batches(2)))


def test_a_dataset_holds_its_sources(path):
    dataset = labeled.open_dataset(path)
    assert list(dataset) == list(dataset.keys()) == list(dataset.sources)
    assert ("images" in dataset, "nope" in dataset) == (True, False)
    assert set(dict(dataset)) == set(ARRAYS)
    assert dataset.select(["vectors"]).sources == ("vectors",)
    assert len(dataset.split(["train", "test"])) == len(dataset.split("train", "test")) == N


@given(
    st.integers(2, 60),
    st.sampled_from([None, 0.2, 0.5, 1, "many"]),
    st.booleans(),
    st.integers(0, 3),
)
def test_a_train_test_split_has_every_row_once(tmp_path_factory, n, size, shuffle, seed):
    path = labeled.write(tmp_path_factory.mktemp("tts") / "x.h5", {"x": np.arange(n)})
    dataset = labeled.open_dataset(path)
    size = n - 1 if size == "many" else size
    train, test = dataset.train_test_split(size, shuffle=shuffle, seed=seed)
    parts = [part.read_rows("x", 0, len(part)) for part in (train, test)]
    assert sorted(np.concatenate(parts)) == list(range(n))
    share = 0.25 if size is None else size
    assert abs(len(parts[1]) - (share if isinstance(share, int) else share * n)) < 1
    assert all((np.diff(part) > 0).all() for part in parts)
    if not shuffle:
        assert parts[0].tolist() == list(range(len(parts[0])))
    again, _ = dataset.train_test_split(size, shuffle=shuffle, seed=seed)
    assert again.read_rows("x", 0, len(again)).tolist() == parts[0].tolist()


def test_classes_are_shared_and_groups_kept_together(tmp_path):
    y = np.repeat([0, 1], [80, 20])
    who = np.arange(100) // 7
    path = labeled.write(tmp_path / "x.h5", {"y": y, "who": who})
    dataset = labeled.open_dataset(path)
    train, test = dataset.train_test_split(0.25, stratify="y")
    assert np.bincount(test["y"].values).tolist() == [20, 5]
    train, test = dataset.subset(slice(10, None)).train_test_split(train_size=0.5, groups="who")
    assert not set(train["who"].values) & set(test["who"].values)
    assert train.n_rows + test.n_rows == 90
    first, after = dataset.train_test_split(Fraction(1, 5), 0.3, shuffle=False)
    assert [*first["y"].values, *after["y"].values] == y[:50].tolist()
    assert (first.n_rows, after.n_rows) == (30, 20)
    both = dataset.train_test_split(0.1, 0.2)
    assert [part.n_rows for part in both] == [20, 10]
    with pytest.warns(LabeledWarning, match=r"'test' has no rows: .* too large for 25\.00%"):
        _, test = dataset.train_test_split(groups=np.arange(100) < 50)
    assert test.n_rows == 0
    for wrong, words in [
        ({"stratify": y[:5]}, "one value for each"),
        ({"test_size": 0.9, "train_size": 0.9}, "'train', 'test'. ask for 1.8 of the 100 rows"),
        ({"test_size": 101}, "101"),
        ({"stratify": "y", "groups": "who"}, "group"),
        ({"stratify": np.linspace(0, 1, 100)}, "another number in each row.*bins"),
        ({"stratify": np.array(["NaT", "2000"] * 50, "M8[s]")}, "NaN in 50 rows"),
        ({"groups": np.array(["a", None] * 50)}, "groups holds values that cannot be compared"),
        ({"groups": np.ma.masked_less(who, 3)}, "groups has masked values"),
    ]:
        with pytest.raises(SplitError, match=words):
            dataset.train_test_split(**wrong)


def test_brackets_take_rows_and_names(path):
    dataset = labeled.open_dataset(path)
    mask = dataset["targets"].values.ravel() == TARGETS[3].item()
    for rows in (slice(2, 5), [4, 1, 1], mask, mask.tolist(), np.array([7, 0]), range(3)):
        np.testing.assert_array_equal(dataset[rows]["vectors"].values, VECTORS[rows])
    assert dataset[["vectors", "images"]].sources == ("vectors", "images")
    for none in ([], range(0), np.array([], int)):  # a filter that matches nothing
        assert dataset[none].n_rows == 0
        assert dataset[none].sources == dataset.sources
    with pytest.raises(UnknownNameError, match="name a source"):
        dataset.select([])
    with pytest.raises(SelectionTypeError, match="array of float64 with shape"):
        dataset[np.array([1.0, 2.0])]
    for by_dims in (dataset.isel, dataset.sel):
        with pytest.raises(ArgumentError, match=r"indexers=\[1, 2\] must be a mapping"):
            by_dims([1, 2])
    with dataset as same:
        first = same["vectors"].values
    np.testing.assert_array_equal(dataset["vectors"].values, first)  # after it was closed
