"""A dataset gives the rows NumPy would, whatever it was composed of and however it is read."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import dask
import dask.array
import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.catalog.lazy import read_block
from labeled.errors import (
    ArrayError,
    DimsError,
    FileChangedError,
    FileFormatError,
    LabeledError,
    LabeledWarning,
    LoaderError,
    RowsMemoryError,
    SelectionError,
    SelectionTypeError,
    SpaceTypeError,
    SplitError,
    UnknownNameError,
    UnsafeFileError,
)
from labeled.formats.header import FileHeader
from labeled.selection import Selection
from make_files import fuel_file

N = 47
RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 255, (N, 3, 4, 5), dtype=np.uint8)
VECTORS = RNG.normal(size=(N, 6)).astype("f4")
TARGETS = RNG.integers(0, 10, (N, 1), dtype=np.int64)
XY = {"x": ("batch", "feature"), "y": ("batch", "feature")}
ODD = np.arange(N)[1::2][::-1].copy()
LABELS = {
    "images": ("batch", "channel", "height", "width"),
    "vectors": ("batch", "feature"),
    "targets": ("batch", "index"),
}
ARRAYS = {"images": IMAGES, "vectors": VECTORS, "targets": TARGETS}
SPLITS = {"train": np.arange(30), "test": np.arange(30, N), "odd": ODD}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return fuel_file(
        tmp_path_factory.mktemp("data") / "d.hdf5",
        ARRAYS,
        {"train": (0, 30), "test": (30, N), "odd": ODD},
        LABELS,
        chunks={"images": (4, 3, 3, 5), "vectors": (7, 6)},
        compression={"images": "gzip"},
        attrs={"title": "a test"},
    )


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
    assert lazy["images"].dims == want["images"].dims
    loaded = dataset.load()
    again = pickle.loads(pickle.dumps(dataset))
    for name, values in want.items():
        np.testing.assert_array_equal(lazy[name].values, values, err_msg="dask")
        np.testing.assert_array_equal(whole[name].values, values, err_msg="xarray")
        np.testing.assert_array_equal(loaded[name].values, values, err_msg="loaded")
        np.testing.assert_array_equal(again.load()[name].values, values, err_msg="pickled")
        assert lazy[name].dtype == np.asarray(values).dtype
    batches = list(dataset.batches(5))
    for name, values in want.items():
        direct = [batch.arrays[name] for batch in batches] or [np.asarray(values)[:0]]
        np.testing.assert_array_equal(np.concatenate(direct), values, err_msg="batches")


@given(st.lists(st.sampled_from(sorted(SPLITS)), min_size=1, max_size=2), st.data())
def test_the_xarray_engine_gives_the_same_rows(path, names, data):
    rows = np.concatenate([SPLITS[name] for name in names])
    request = data.draw(requests(len(rows)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabeledWarning)
        opened = xr.open_dataset(path, engine="labeled", which_sets=names, subset=request)
        np.testing.assert_array_equal(opened["images"].values, IMAGES[rows[as_numpy(request)]])
    assert opened.attrs["title"] == "a test"
    opened.close()


def test_loaded_data_can_be_taken_apart_further(path):
    train = labeled.open_dataset(path).split("train").load()
    part = train.subset([5, 5, 2]).isel(channel=1, width=slice(1, 3))
    np.testing.assert_array_equal(part["images"].values, IMAGES[[5, 5, 2], 1][:, :, 1:3])
    (batch,) = part.batches(3)
    np.testing.assert_array_equal(batch["images"].values, IMAGES[[5, 5, 2], 1][:, :, 1:3])


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
    assert dataset.sizes["height"] == 4
    assert dataset.dims["vectors"] == ("batch", "feature")


def test_a_dataset_pickles_as_a_recipe(path):
    dataset = labeled.open_dataset(path).split("train", "test").subset(slice(3, -2)).isel(channel=1)
    assert len(pickle.dumps(dataset)) < 2000


def test_names_of_lazy_arrays_are_the_same_in_every_process(path):
    one, two = (labeled.open_dataset(path).split("odd")["images"].data.name for _ in range(2))
    assert one == two
    assert one != labeled.open_dataset(path).split("train")["images"].data.name


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


def test_no_handle_blocks_a_writer(path, tmp_path):
    name = fuel_file(tmp_path / "a.hdf5", {"x": np.arange(8.0)}, {"all": (0, 8)}, {"x": ("batch",)})
    dataset = labeled.open_dataset(name)
    loader = iter(dataset.batches(2))
    next(loader)
    with h5py.File(name, "r+"):
        pass
    loader.close()


def test_permuted_rows_are_one_task_a_block(path):
    rows = np.random.default_rng(0).permutation(N)
    dataset = labeled.open_dataset(path, chunks={"batch": 10}).subset(rows)
    with pytest.warns(LabeledWarning, match=r"decodes each stored chunk .* times.*batches"):
        lazy = dataset["images"]
    assert lazy.data.numblocks == (5, 1, 1, 1)
    assert len(dict(lazy.__dask_graph__())) == 5
    np.testing.assert_array_equal(lazy.values, IMAGES[rows])


def test_blocks_of_a_part_decode_no_more_than_blocks_of_all(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        for name, chunks in {
            "rows": (8, 64, 64, 3),
            "plain": None,
            "tiles": (8, 32, 64, 3),
        }.items():
            packed = {} if chunks is None else {"chunks": chunks, "compression": "gzip"}
            x = f.create_dataset(name, (8000, 64, 64, 3), "u1", **packed)
            for axis, label in enumerate(("batch", "height", "width", "channel")):
                x.dims[axis].label = label
    dataset = labeled.open_dataset(tmp_path / "x.hdf5")
    whole, part = dataset, dataset.isel(channel=0, height=slice(0, 4))
    rows = {
        name: (part[name].data.chunks[0][0], whole[name].data.chunks[0][0]) for name in part.sources
    }
    assert abs(rows["rows"][0] - rows["rows"][1]) <= 8  # a chunk
    assert abs(rows["tiles"][0] - 2 * rows["tiles"][1]) <= 16  # half of the tiles
    assert rows["plain"][0] == 8000  # only these bytes are read


def test_blocks_are_whole_stored_chunks(path):
    dataset = labeled.open_dataset(path, chunks="auto").subset(slice(2, None))
    with dask.config.set({"array.chunk-size": "500 B"}):
        (first, *rest, _last) = dataset["images"].data.chunks[0]
    assert (first + 2) % 4 == 0
    assert all(rows % 4 == 0 for rows in rest)


@pytest.mark.parametrize("chunks", [None, (1,), (64,)])
def test_the_chunks_of_many_rows_are_not_listed_one_by_one(tmp_path, monkeypatch, chunks):
    n = 40_000_000
    with h5py.File(tmp_path / "long.hdf5", "w") as f:
        f.create_dataset("x", (n,), "u1", chunks=chunks).dims[0].label = "batch"
    told, normalize = [], dask.array.core.normalize_chunks

    def watched(*args, previous_chunks=None, **options):
        told.extend(-(-n // rows) for rows in previous_chunks or ())
        return normalize(*args, previous_chunks=previous_chunks, **options)

    monkeypatch.setattr("dask.array.core.normalize_chunks", watched)
    (blocks,) = labeled.open_dataset(tmp_path / "long.hdf5")["x"].data.chunks
    assert sum(blocks) == n
    assert max(blocks) <= 16 << 20
    assert all(rows % (chunks or (1,))[0] == 0 for rows in blocks[:-1])
    assert 0 < max(told) <= 10_000


@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "processes"])
def test_any_scheduler_computes_the_same(path, scheduler):
    lazy = labeled.open_dataset(path).split("train").subset(slice(None, None, 3))["images"]
    np.testing.assert_array_equal(lazy.compute(scheduler=scheduler), IMAGES[:30:3])


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
    train = np.r_[0:18, 20 : N - 2]
    joined = labeled.open_dataset(halves).split("train")
    np.testing.assert_array_equal(joined["vectors"].values, VECTORS[train])
    both = labeled.concat([labeled.open_dataset(p).split("test") for p in halves])
    np.testing.assert_array_equal(both["targets"].values, TARGETS[[18, 19, N - 2, N - 1]])
    seen = []
    for batch in joined.batches(7, shuffle="window", window_rows=9, seed=1, memory="8 MiB"):
        np.testing.assert_array_equal(batch.arrays["images"], IMAGES[train][batch.rows])
        seen.append(batch.rows)
    assert sorted(np.concatenate(seen)) == list(range(len(train)))


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
    assert together["big"].dims == ("batch", "big_width")
    assert together["small"].dims == ("batch", "small_width")
    assert dataset["big"].dims == ("batch", "width")
    with pytest.raises(DimsError, match="'width' has length"):
        _ = dataset.sizes


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


def test_the_most_common_length_keeps_its_name(tmp_path):
    name = fuel_file(
        tmp_path / "a.hdf5",
        {"a": np.zeros((4, 6)), "b": np.ones((4, 3)), "c": np.ones((4, 6))},
        {"all": (0, 4)},
        dict.fromkeys("abc", ("batch", "width")),
    )
    with pytest.warns(LabeledWarning, match="'width'"):
        together = labeled.open_dataset(name).to_xarray()
    assert {n: v.dims[1] for n, v in together.items()} == {
        "a": "width", "b": "b_width", "c": "width"
    }  # fmt: skip


@pytest.fixture
def by_time(tmp_path):
    """Return a dataset with coordinates, and what xarray makes of the same file."""
    path = tmp_path / "grid.nc"
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


def test_what_comes_along_with_sources_is_shown_and_taken_by_name(tmp_path):
    """A scientist looks for the time of a climate file, and for its mask of land."""
    path = tmp_path / "climate.nc"
    xr.Dataset(
        {"t": (("time", "lat"), np.arange(40.0).reshape(10, 4)), "land": ("lat", [0, 1, 1, 0])},
        {"time": np.arange("2024-01-01", "2024-01-11", dtype="M8[D]").astype("M8[ns]"),
         "lat": [10.0, 20.0, 30.0, 40.0]},
    ).to_netcdf(path, engine="h5netcdf", unlimited_dims="time")  # fmt: skip
    dataset = labeled.open_dataset(path)
    some, loaded = dataset.subset([7, 2]).isel(lat=slice(1, 3)), xr.load_dataset(path)
    wanted = loaded.isel(time=[7, 2], lat=slice(1, 3))

    for shown in (repr(dataset), dataset._repr_html_()):
        assert all(name in shown for name in ("coordinates and variables", "land", "datetime64"))
    assert dataset.sources == ("t",)
    for name in ("time", "lat", "land"):
        assert (some[name].name, some[name].dims) == (name, wanted[name].dims)
        np.testing.assert_array_equal(some[name].values, wanted[name].values)
    assert some["land"].lat.values.tolist() == [20.0, 30.0]
    with pytest.raises(
        UnknownNameError, match=r"'land' in .* is no source.*; ds\['land'\] gives it"
    ):
        dataset.select("land")


def test_choosing_rows_does_not_look_at_the_files_again(tmp_path, monkeypatch):
    """A thousand files on a server take a second to be looked at."""
    paths = [
        fuel_file(
            tmp_path / f"{k}.hdf5", {"x": np.arange(4.0)}, {"train": (0, 3)}, {"x": ("batch",)}
        )
        for k in range(3)
    ]
    dataset = labeled.open_dataset(paths)
    looked, stamp = [], labeled.catalog.files._stamp
    monkeypatch.setattr(
        "labeled.catalog.files._stamp", lambda path: (looked.append(path), stamp(path))[1]
    )
    few = dataset.split("train").subset(slice(1, None)).subset([0, 5, 7])
    assert (len(few), few.n_rows, len(few.select("x").sources)) == (3, 3, 1)
    assert looked == []
    assert few["x"].values.tolist() == [1.0, 0.0, 2.0]
    assert len(looked) >= 3
    assert pickle.loads(pickle.dumps(few)).n_rows == 3


def test_what_a_file_was_is_worked_out_once_however_often_it_is_asked(tmp_path, monkeypatch):
    """Ten thousand sources took minutes to print: each asked, and each time all were gone over."""
    name = fuel_file(
        tmp_path / "a.hdf5",
        {f"x{n:03}": np.zeros(4) for n in range(100)},
        {"all": (0, 4)},
        {f"x{n:03}": ("batch",) for n in range(100)},
    )
    asked, n_bytes = [], FileHeader.n_bytes.fget
    monkeypatch.setattr(
        FileHeader, "n_bytes", property(lambda header: (asked.append(1), n_bytes(header))[1])
    )
    dataset = labeled.open_dataset(name)
    assert "and 60 more" in repr(dataset)
    assert len(dataset.subset([0, 2]).batches(2)) == 1
    assert len(asked) == 1


def test_sources_of_different_length_open_but_do_not_mix(tmp_path):
    name = str(tmp_path / "plain.h5")
    with h5py.File(name, "w") as f:
        f["a"], f["b"] = np.arange(5), np.arange(8)
    dataset = labeled.open_dataset(name)
    assert len(dataset.select("b")) == 8
    with pytest.raises(SplitError, match=r"different numbers of rows \(5 in 'a'; 8 in 'b'\)"):
        len(dataset)
    assert list(dataset) == ["a", "b"]
    assert {name: array.size for name, array in dict(dataset).items()} == {"a": 5, "b": 8}
    with pytest.raises(LoaderError, match="different numbers of rows"):
        dataset.batches(2)


def test_a_message_of_many_lengths_stays_readable(tmp_path):
    with h5py.File(tmp_path / "plain.h5", "w") as f:
        for n in range(1, 40):
            f[f"group_{n}/a"], f[f"group_{n}/b"] = np.zeros(n), np.zeros(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        dataset = labeled.open_dataset(tmp_path / "plain.h5")
    with pytest.raises(LoaderError, match=r"34 more lengths\).*select\('group_39/a'") as caught:
        dataset.batches(2)
    assert len(str(caught.value)) < 500 + len(str(tmp_path))


def test_sources_that_agree_are_proposed_and_splits_only_where_there_are_any(tmp_path):
    """Of X_test, y_test, X_train and y_train it proposed the first pair, and to split()."""
    arrays = {f"{part}_{n}": np.zeros(n) for n in (4, 9) for part in "xy"}
    with h5py.File(tmp_path / "plain.h5", "w") as f:
        f.update(arrays)
    name = fuel_file(
        tmp_path / "fuel.hdf5",
        {"a": np.zeros(4), "b": np.zeros(9)},
        {"train": (0, 4)},
        {"a": ("batch",), "b": ("batch",)},
    )
    with pytest.raises(SplitError, match=r"; select\(\) sources .* as select\('x_9', 'y_9'\)"):
        len(labeled.open_dataset(tmp_path / "plain.h5"))
    with pytest.raises(SplitError, match=r"; split\(\), or select\(\) sources that agree"):
        len(labeled.open_dataset(name))


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (lambda d: d.split("trian"), UnknownNameError, "did you mean 'train'"),
        (lambda d: d["image"], UnknownNameError, "did you mean 'images'"),
        (lambda d: d.select("images", "images"), UnknownNameError, "twice"),
        (lambda d: d.split("train").split("test"), SplitError, "holds split 'train'"),
        (lambda d: d.subset([99]), SelectionError, "row 99 is out of range"),
        (lambda d: d.subset(3), SelectionTypeError, r"\[r\]"),
        (lambda d: d.isel(batch=3), SelectionTypeError, "example dim"),
        (lambda d: d.isel(heigth=0), UnknownNameError, "did you mean 'height'"),
        (lambda d: d.isel(height=9), SelectionError, r"'height' \(length 4\)"),
        (lambda d: d.isel(height=1.5), SelectionTypeError, "'height'"),
        (lambda d: d.isel(height=9), SelectionError, r"'images' in .*d\.hdf5"),
        (lambda d: d.subset([99]), SelectionError, r"d\.hdf5"),
        (lambda d: d[3.5], UnknownNameError, r"3\.5 names no source"),
        (lambda d: d.load().split("train"), SplitError, r"split\(\) first, then load\(\)"),
        (lambda d: d.with_spaces(images=5), SpaceTypeError, "images=.*not 5"),
        (labeled.concat, LoaderError, "concat takes a list"),
        (lambda d: labeled.concat(d.files.paths[0]), LoaderError, r"d\.hdf5' alone"),
    ],
)
def test_mistakes_are_explained(path, act, kind, words):
    with pytest.raises(kind, match=words) as caught:
        act(labeled.open_dataset(path))
    assert isinstance(caught.value, LabeledError)


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (lambda p: labeled.open_dataset(None), FileFormatError, "open a path.*not NoneType"),
        (lambda p: labeled.open_dataset(5), FileFormatError, "not int"),
        (lambda p: labeled.open_dataset(p.encode()), FileFormatError, "not bytes"),
        (lambda p: labeled.open_dataset(h5py.File(p)), FileFormatError, r"its path, .*d\.hdf5"),
        (
            lambda p: labeled.open_dataset("no://b.h5"),
            FileFormatError,
            "cannot open 'no://b.h5': .*no",
        ),
        (
            lambda p: labeled.open_dataset("memory://b.csv", format="csv"),
            FileFormatError,
            "is an address, and .* from local files only",
        ),
        (lambda p: labeled.open_dataset("~/none.h5"), FileFormatError, "'[^~]*none.h5' does not"),
        (lambda p: labeled.open_dataset(p, dims=("a", "b")), DimsError, "no mapping"),
        (lambda p: labeled.open_dataset(p, dims={"images": "b"}), DimsError, "one name an axis"),
        (lambda p: labeled.open_dataset(p, dims={"images": 3}), DimsError, "one name an axis"),
        (lambda p: labeled.open_dataset(p, group="images"), UnknownNameError, "is a dataset"),
        (lambda p: labeled.open_dataset(p, sources=[]), UnknownNameError, "leave it out"),
    ],
)
def test_mistakes_in_opening_are_explained(path, act, kind, words):
    with pytest.raises(kind, match=words):
        act(path)


def test_a_dataset_holds_its_sources(path):
    dataset = labeled.open_dataset(path)
    assert list(dataset) == list(dataset.keys()) == list(dataset.sources)
    assert "images" in dataset
    assert "nope" not in dataset
    assert set(dict(dataset)) == set(ARRAYS)
    for same in (dataset[["vectors"]], dataset.select(["vectors"]), dataset.select("vectors")):
        assert same.sources == ("vectors",)
    assert len(dataset.split(["train", "test"])) == len(dataset.split("train", "test")) == N
    part = dataset.isel({"height": 1}, channel=[2, 0])["images"]
    np.testing.assert_array_equal(part.values, IMAGES[:, [2, 0], 1])


def test_text_has_no_space(tmp_path):
    path = str(tmp_path / "text.h5")
    with h5py.File(path, "w") as f:
        f["code"], f["word"], f["x"] = np.array([b"ab", b"c"]), ["a", "b"], np.arange(2)
        for name in f:
            f[name].dims[0].label = "batch"
    assert set(labeled.open_dataset(path).spaces) == {"x"}


def test_a_join_of_different_splits_bears_no_name_of_one(path):
    dataset = labeled.open_dataset(path)
    joined = labeled.concat([dataset.split("train"), dataset.split("test")])
    assert joined.chosen == ()
    assert len(joined) == N
    same = labeled.concat([dataset.split("train")] * 2)
    assert same.chosen == ("train",)


def test_reprs_tell_and_never_fail(path, tmp_path):
    dataset = labeled.open_dataset(path)
    text = repr(dataset)
    for word in ("images", "channel: 3", "uint8", "(4, 3, 3, 5)", "train", "30 rows"):
        assert word in text
    html = dataset._repr_html_()
    for word in ("images", "channel: 3", "train", "a test"):
        assert word in html
    assert "<script" not in html
    gone = fuel_file(
        tmp_path / "gone.hdf5", {"x": np.arange(4)}, {"all": (0, 4)}, {"x": ("batch",)}
    )
    left = labeled.open_dataset(gone)
    (tmp_path / "gone.hdf5").unlink()
    assert "gone.hdf5" in repr(left)
    assert "gone.hdf5" in left._repr_html_()


def test_what_a_file_says_never_becomes_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    path = str(tmp_path / "evil.h5")
    with h5py.File(path, "w") as f:
        f[evil.replace("/", "")] = np.arange(3)
        f.create_dataset("<b>not opened", (3,), h5py.ref_dtype)
        f.attrs[evil] = evil
        f[evil.replace("/", "")].dims[0].label = "<i>"
    html = labeled.open_dataset(path)._repr_html_()
    for tag in ("<script", "<b>not", "<i>"):
        assert tag not in html
    assert "&lt;script&gt;alert" in html


def test_a_shape_bomb_is_refused_before_memory_is_taken(tmp_path):
    path = str(tmp_path / "bomb.h5")
    with h5py.File(path, "w") as f:
        bomb = f.create_dataset("x", (1 << 30, 1024), "u1", chunks=(1024, 1024))
        bomb.dims[0].label, bomb.dims[1].label = "batch", "feature"
    dataset = labeled.open_dataset(path)
    assert not dataset.subset(slice(0, 10))["x"].values.any()
    for lazy in (dataset["x"], dataset.to_xarray()["x"]):
        assert not lazy[:10].values.any()
    whole = labeled.open_dataset(path, chunks=-1)["x"]
    for claim in (dataset.load, whole.compute):
        with pytest.raises(UnsafeFileError, match=r"'x'.*bomb\.h5"):
            claim()


def test_rows_that_no_memory_holds_are_named(tmp_path):
    path = tmp_path / "wide.h5"
    with h5py.File(path, "w") as f:
        f.create_virtual_dataset("x", h5py.VirtualLayout((1 << 31, 1 << 20), "f8"))
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "value"
    ds = labeled.open_dataset(path).subset(slice(5, None))
    words = r"'x' in .*wide\.h5': rows 5:2147483648 take 16.00 PiB in memory.*Read fewer at a time"
    with pytest.raises(RowsMemoryError, match=words):
        ds.load()
    with pytest.raises(MemoryError, match=words):
        read_block(ds.files.catalog.sources["x"], Selection.all(1 << 31)[5:])


def test_default_blocks_fit_anywhere(tmp_path):
    path = str(tmp_path / "big.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("x", (200_000, 1000), "f4", chunks=(500, 1000))
        f.create_dataset("wide", (4, 64, 1 << 20), "f4", chunks=(1, 16, 1 << 20))
        for axis, name in enumerate("abc"):
            f["wide"].dims[axis].label = name
        f["x"].dims[0].label, f["x"].dims[1].label = "rows", "k"
    dataset = labeled.open_dataset(path)
    x = dataset["x"].data
    assert x.chunksize[0] % 500 == 0
    assert x.chunksize[1] == 1000
    assert (1 << 23) < x.chunksize[0] * 4000 <= (1 << 24)
    assert dataset["wide"].data.chunksize == (1, 16, 1 << 20)  # never less than a stored chunk


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ({"bacth": 3}, "'bacth'.*did you mean 'batch'"),
        ("lots", "'lots' is no length"),
        (0, "0 is no length"),
        ({"batch": -2}, "-2 is no length"),
        ((3, 3.5), "3.5 is no length"),
    ],
)
def test_chunks_are_checked_when_opening(path, chunks, words):
    with pytest.raises(DimsError, match=words):
        labeled.open_dataset(path, chunks=chunks)


def test_chunks_that_do_not_fit_a_source_name_it(path):
    dataset = labeled.open_dataset(path, chunks=(3, 3))
    assert dataset["vectors"].chunks[0][0] == 3
    with pytest.raises(DimsError, match=r"'images' in .*chunks=\{dim"):
        dataset["images"]


@pytest.mark.parametrize(
    ("rows", "chunks", "factor"),
    [
        (slice(None), {"batch": 1}, "3.9"),  # 47 blocks of 12 chunks
        (slice(None), {"batch": 3, "height": 1}, "4.0"),  # twice along either axis
        (slice(None), {"height": 1}, None),
        (slice(None, None, 3), {"batch": 1}, None),
        (slice(None, None, 2), {"batch": 8}, None),
        (slice(None, None, -1), {"batch": 1}, "3.9"),
        (slice(None), {"batch": 8}, None),
    ],
)
def test_repeated_decoding_of_ranges_is_told(path, rows, chunks, factor):
    dataset = labeled.open_dataset(path, chunks=chunks).subset(rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blocks = dataset["images"].data.blocks
    told = [str(w.message) for w in caught if "decodes each" in str(w.message)]
    assert len(blocks.shape) == 4
    if factor is None:
        assert not told
    else:
        assert f"{factor} times" in told[0]


def test_warnings_point_at_the_line_that_opened_the_file(tmp_path):
    path = str(tmp_path / "plain.h5")
    with h5py.File(path, "w") as f:
        f["x"] = np.zeros((5, 3))
    with pytest.warns(LabeledWarning) as caught:
        labeled.open_dataset(path)
    assert caught[0].filename == __file__


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
    parts = [train["x"].values, test["x"].values]
    assert sorted(np.concatenate(parts)) == list(range(n))
    share = 0.25 if size is None else size
    assert abs(len(parts[1]) - (share if isinstance(share, int) else share * n)) < 1
    assert all((np.diff(part) > 0).all() for part in parts)
    if not shuffle:
        assert parts[0].tolist() == list(range(len(parts[0])))
    again, _ = dataset.train_test_split(size, shuffle=shuffle, seed=seed)
    assert again["x"].values.tolist() == parts[0].tolist()


def test_a_path_is_opened_before_batches_are_made_of_it(tmp_path):
    path = labeled.write(tmp_path / "x.h5", {"y": np.arange(3)})
    with pytest.raises(ArrayError, match=r"x\.h5' is a path; open it first: labeled\.open_d"):
        labeled.batches(path, 2)


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
    both = dataset.train_test_split(0.1, 0.2)
    assert [part.n_rows for part in both] == [20, 10]
    for wrong, words in [
        ({"stratify": y[:5]}, "one value for each"),
        ({"test_size": 0.9, "train_size": 0.9}, "more than all"),
        ({"test_size": 101}, "101"),
        ({"stratify": "y", "groups": "who"}, "group"),
        ({"stratify": np.linspace(0, 1, 100)}, "another number in each row.*bins"),
    ]:
        with pytest.raises(SplitError, match=words):
            dataset.train_test_split(**wrong)


def test_sources_of_different_lengths_are_told_with_a_choice(tmp_path):
    arrays = {"x": np.zeros((6, 2)), "y": np.arange(6), "calibration": np.eye(3)}
    with h5py.File(tmp_path / "a.h5", "w") as f:
        for name, array in arrays.items():
            f[name] = array
    dims = {"x": ("b", "i"), "y": ("b",), "calibration": ("c", "d")}
    ds = labeled.open_dataset(tmp_path / "a.h5", dims=dims)
    with pytest.raises(LoaderError, match=r"select\('x', 'y'\)"):
        ds.batches(2)
    assert ds.select("x", "y").n_rows == 6


def test_a_group_is_named_as_one(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        f["raw/a"] = np.arange(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        dataset = labeled.open_dataset(tmp_path / "x.hdf5")
    with pytest.raises(
        UnknownNameError, match=r"is a group, not a source; take 'raw/a', or .*'raw'"
    ):
        dataset["raw"]


def test_loading_shows_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = labeled.write(
        tmp_path / "x.hdf5",
        {"x": np.arange(20_000).reshape(-1, 2), "words": ["a", "b"] * 5000},
        chunks={"x": 500},
        compression="gzip",
    )
    ds = labeled.open_dataset(path)

    loaded = ds.load(progress=True)

    assert re.search(r"load: (\S+) of \1, ", capsys.readouterr().err)
    np.testing.assert_array_equal(loaded["x"], ds["x"])
    ds.load()
    assert capsys.readouterr().err == ""  # no terminal
