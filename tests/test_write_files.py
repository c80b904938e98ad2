"""What is written is read back equal: by this library, plain h5py, and xarray's h5netcdf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import hdf5plugin  # noqa: F401 - registers zstd and lz4 with HDF5
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import (
    ArrayError,
    DimsError,
    LabeledWarning,
    SplitError,
    SplitTypeError,
    UnknownNameError,
    WriteError,
)

DIGITS = {"images": ("batch", "channel", "height", "width"), "targets": ("batch", "index")}


def digits(n: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {
        "images": rng.integers(0, 256, (n, 3, 4, 5), np.uint8),
        "targets": rng.integers(0, 10, (n, 1)),
    }


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        made.append(tmp_path / name)
        labeled.write(
            made[-1], digits(500), {"train": (0, 400)}, dims=DIGITS, compression="gzip", chunks=7
        )
    assert made[0].read_bytes() == made[1].read_bytes()


def test_a_dataarray_gives_dims_coordinates_and_attributes(tmp_path: Path) -> None:
    array = xr.DataArray(
        np.arange(24.0).reshape(4, 3, 2),
        dims=("time", "channel", "x"),
        coords={
            "time": np.array(["2020-01-01", "2020-01-02", "NaT", "2021-05-05"], "M8[ns]"),
            "channel": ["red", "green", "blue"],
            "day": ("time", [1, 2, 3, 4], {"units": "1"}),
        },
        attrs={"units": "K", "levels": [1, 2]},
    )
    path = tmp_path / "x.hdf5"

    labeled.write(path, {"t2m": array}, attrs={"title": "heat"})

    found = labeled.open_dataset(path)
    xr.testing.assert_equal(found["t2m"], array)
    assert found["t2m"].coords["day"].attrs == {"units": "1"}
    assert found["t2m"].attrs["units"] == "K"
    assert found.attrs["title"] == "heat"
    with xr.open_dataset(path, engine="h5netcdf", decode_timedelta=False) as other:
        xr.testing.assert_equal(other["t2m"], array)


@pytest.mark.parametrize("splits", [None, {"train": [5, 0, 2]}])
def test_coordinates_survive_whatever_their_names(tmp_path: Path, splits: Any) -> None:
    """Also those whose names have a space, which the attribute `coordinates` cannot hold."""
    path, number = tmp_path / "x.hdf5", np.arange(6) * 7
    labeled.write(
        path,
        {"x": np.zeros((6, 3))},
        splits,
        dims={"x": ("batch", "channel")},
        coords={
            "channel": np.array([10, 20, 30]),
            "id": ("batch", number),
            "plate id": ("batch", number + 1),
        },
    )
    ds = labeled.open_dataset(path)
    assert ds.sources == ("x",)
    part = ds.subset([5, 0, 2])["x"] if splits is None else ds.split("train")["x"]
    assert part.coords["channel"].values.tolist() == [10, 20, 30]
    assert part.coords["id"].values.tolist() == [35, 0, 14]
    assert part.coords["plate id"].values.tolist() == [36, 1, 15]


def test_coordinates_of_batches_shorten_no_dim(tmp_path: Path) -> None:
    """Those of the first batch went into the file, and xarray read no more rows than they have."""
    path, whole = tmp_path / "x.hdf5", np.arange(18.0).reshape(9, 2)
    rows = xr.DataArray(whole, dims=("t", "lat"), coords={"t": np.arange(9), "lat": [1.0, 2.0]})
    batches = [xr.Dataset({"x": rows[i : i + 3]}) for i in (0, 3, 6)]
    with pytest.warns(LabeledWarning, match=r"\['t'\] along the examples of batches.*coords="):
        labeled.write(path, iter(batches))
    for given in (None, rows.coords["t"]):
        if given is not None:
            with pytest.warns(LabeledWarning, match="along the examples"):
                labeled.write(path, iter(batches), coords={"t": given}, overwrite=True)
        with xr.open_dataset(path, engine="h5netcdf") as found:
            xr.testing.assert_equal(found["x"], rows if given is not None else rows.drop_vars("t"))
    kept = path.read_bytes()
    with pytest.raises(
        DimsError, match=r"'t' has shape \(3,\).* 'x' has length 9.*nothing was wri"
    ):
        labeled.write(
            path, [{"x": whole}], dims={"x": ("t", "lat")}, coords={"t": [0, 1, 2]}, overwrite=True
        )
    assert path.read_bytes() == kept
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_batches_may_be_made_in_the_memory_of_the_last_one(
    tmp_path: Path, compression: str | None
) -> None:
    """Rows waited to be packed while the next batch was made over them."""
    numbers, texts, examples = np.zeros((3, 2)), np.empty(3, object), [np.zeros(2), np.zeros(1)]

    def batches(start: int, stop: int) -> Any:
        for n in range(start, stop):
            numbers[:], texts[:] = n, str(n)
            for one in examples:
                one[:] = n
            yield {"x": numbers, "t": texts, "r": [*examples, examples[0]]}

    path = labeled.write(tmp_path / "x", batches(0, 40), compression=compression, chunks=8)
    labeled.append(path, batches(40, 60))
    ds, expected = labeled.open_dataset(path), np.repeat(np.arange(60), 3)
    np.testing.assert_array_equal(ds["x"].values[:, 0], expected)
    assert ds["t"].values.tolist() == list(map(str, expected))
    assert [one[0] for one in ds["r"].to_objects()] == expected.tolist()
    assert labeled.verify(path).sound


@pytest.mark.parametrize("ragged", ["list", "flat"])
@pytest.mark.parametrize("layout", [None, {"images": "channel height width batch"}])
def test_batches_of_a_loader_are_written_without_their_padding(
    tmp_path: Path, layout: Any, ragged: Any
) -> None:
    """Padded rows were written as examples, and a batch by itself as its arrays lie in memory."""
    given = {**digits(10), "r": [np.arange(n % 4) for n in range(10)]}
    ds = labeled.open_dataset(labeled.write(tmp_path / "x", given, dims=DIGITS))
    loader = ds.batches(4, last="pad", pad_value=7, layout=layout, ragged=ragged)
    path = labeled.write(tmp_path / "y", loader)
    *_, last = loader
    labeled.append(path, last)

    found, rows = labeled.open_dataset(path), [*range(10), 8, 9]
    assert found.dims == ds.dims
    for name in DIGITS:
        np.testing.assert_array_equal(found[name], given[name][rows])
    assert [one.tolist() for one in found["r"].to_objects()] == [
        given["r"][row].tolist() for row in rows
    ]
    assert labeled.open_dataset(labeled.write(tmp_path / "z", last)).n_rows == 2


@pytest.mark.parametrize("ragged", ["list", "pad", "flat"])
@pytest.mark.parametrize("batch_rows", [2, 4])
def test_a_padded_batch_is_written_like_a_short_one(
    tmp_path: Path, batch_rows: int, ragged: Any
) -> None:
    """Flat values are of all examples: there may be as many as rows of the batch, or fewer."""
    given = {"n": np.arange(5), "r": [np.arange(n) for n in (3, 0, 1, 2, 4)]}
    ds = labeled.open_dataset(labeled.write(tmp_path / "x", given))
    files = []
    for last in ("pad", "keep"):
        *_, batch = ds.batches(batch_rows, last=last, ragged=ragged)
        files.append(Path(labeled.write(tmp_path / last, batch)).read_bytes())
    assert files[0] == files[1]


def test_sources_of_batches_that_differ_in_length_are_named(tmp_path: Path) -> None:
    batches = [{"x": np.zeros((3, 2)), "y": np.zeros(n)} for n in (3, 2)]
    with pytest.warns(LabeledWarning, match="source 'x' has 6 rows, and 'y' has 5"):
        labeled.write(tmp_path / "x.hdf5", iter(batches))


def test_batches_that_would_pair_rows_wrongly_are_refused(tmp_path: Path) -> None:
    """Their totals agree, so the file would look sound. One that ends early pairs none wrongly."""
    odd = [{"x": np.zeros(3), "y": np.zeros(4)}, {"x": np.zeros(4), "y": np.zeros(3)}]
    old = labeled.write(tmp_path / "old", {"x": np.zeros(5), "y": np.zeros(5)}, chunks=2)
    with pytest.raises(ArrayError, match=r"batch 1 .* 3 rows of source 'x' and 4 of 'y'.*; give"):
        labeled.write(tmp_path / "new", iter(odd))
    with pytest.raises(ArrayError, match=r"batch 1 .* 3 rows of source 'x' and 4 of 'y'"):
        labeled.append(old, odd)
    even = [{"x": np.zeros(n), "y": np.zeros(m)} for n, m in ((3, 3), (3, 2), (4, 0))]
    splits = {"train": (0, 5), "test": {"x": (5, 10)}}
    path = labeled.write(tmp_path / "new", iter(even), splits)
    with h5py.File(path) as file:
        assert (len(file["x"]), len(file["y"])) == (10, 5)


@pytest.mark.parametrize("rows", [(0, 4), (0, 6), [5, 0]], ids=str)
def test_a_split_called_all_is_a_split_like_others(tmp_path: Path, rows: Any) -> None:
    whole, again = tmp_path / "x.hdf5", tmp_path / "again.hdf5"
    labeled.write(whole, {"x": np.arange(6)}, {"all": rows})
    labeled.write(again, labeled.open_dataset(whole))
    back = labeled.convert(again, tmp_path / "back.hdf5")
    wanted = labeled.open_dataset(whole).split("all")["x"].values
    for path in (again, back):
        assert labeled.open_dataset(path).split("all")["x"].values.tolist() == wanted.tolist()
        with h5py.File(path) as file:
            assert "split" in file.attrs


def test_an_xarray_dataset_and_a_labeled_one(tmp_path: Path) -> None:
    data = digits()
    given_ = xr.Dataset(
        {name: (DIGITS[name], a) for name, a in data.items()}, attrs={"title": "digits"}
    )
    first, second, third = (tmp_path / f"{i}.hdf5" for i in range(3))
    labeled.write(first, given_, {"train": (0, 40), "test": [50, 41, 41]})

    ds = labeled.open_dataset(first)
    labeled.write(second, ds, compression="gzip")  # every row: the splits come along
    labeled.write(third, ds.split("test"))

    again, rows = labeled.open_dataset(second), labeled.open_dataset(third)
    assert again.attrs["title"] == "digits"
    assert again.splits == ds.splits
    np.testing.assert_array_equal(again.split("test")["images"], data["images"][[50, 41, 41]])
    np.testing.assert_array_equal(rows["targets"], data["targets"][[50, 41, 41]])


def test_layouts_are_chosen_for_shuffled_reading(tmp_path: Path) -> None:
    rows = np.zeros((500, 3, 32, 32), np.uint8)
    plain = labeled.write(tmp_path / "a", {"x": rows})
    packed = labeled.write(tmp_path / "b", {"x": rows.view("<u4")}, compression="gzip")
    with h5py.File(plain) as f, h5py.File(packed) as g:
        assert f["x"].chunks is None
        assert g["x"].chunks == (64, 3, 32, 8)
        assert (g["x"].compression, g["x"].shuffle) == ("gzip", True)
        assert g["x"].maxshape[0] is None


def test_the_table_is_that_of_the_fuel_layout(tmp_path: Path) -> None:
    even = np.arange(0, 60, 2)
    path = _warned(tmp_path / "x", even)
    with h5py.File(path) as f:
        table = f.attrs["split"]
        names = ["split", "source", "start", "stop", "indices", "available", "comment"]
        assert list(table.dtype.names) == names
        assert (table.dtype["split"], table.dtype["source"]) == (np.dtype("S5"), np.dtype("S7"))
        assert (table.dtype["start"], table.dtype["available"]) == (np.int64, np.bool_)
        assert table["split"].tolist() == [b"train"] * 2 + [b"again"] * 2 + [b"test"] * 2
        assert table["source"].tolist() == [b"images", b"targets"] * 3
        assert table["available"].tolist() == [True] * 5 + [False]
        assert set(table["comment"].tolist()) == {b"."}
        lists = {f[reference].name for reference in table["indices"] if reference}
        assert lists == {"/train_indices"}  # equal lists are written once
        np.testing.assert_array_equal(f["train_indices"][...], even)
        assert (table["start"][4], table["stop"][4], bool(table["indices"][4])) == (1, 2, False)


def _warned(path: Path, even: np.ndarray) -> str:
    splits = {"train": even, "again": even.copy(), "test": {"images": (1, 2)}}
    with pytest.warns(LabeledWarning, match="30 rows of source 'images'"):
        return labeled.write(path, digits(), splits, dims=DIGITS, netcdf=False)


def test_a_table_beyond_64_kib(tmp_path: Path) -> None:
    splits = {f"split-number-{i:05}": (i, i + 1) for i in range(1600)}
    path = labeled.write(tmp_path / "x", {"x": np.arange(1600)}, splits)
    assert labeled.open_dataset(path).split("split-number-01234")["x"].values.tolist() == [1234]


@pytest.mark.parametrize(
    ("sources", "splits", "options", "error", "words"),
    [
        ({"x": np.zeros(5)}, {"a": (0, 6)}, {}, SplitError, "rows 0 to 6.*has 5 rows"),
        ({"x": np.zeros(5)}, {"a": [1, 5]}, {}, SplitError, r"row 5 \(at position 1\)"),
        ({"x": np.zeros(5)}, {"a": (3, 2)}, {}, SplitError, "rows 3 to 2"),
        ({"x": np.zeros(5)}, {"a": {"y": (0, 1)}}, {}, UnknownNameError, "'y'"),
        ({"x": np.zeros(5)}, {"a": "all"}, {}, SplitTypeError, "give .start, stop."),
        ({"x": np.zeros(5)}, {"a": [True, False]}, {}, SplitError, "mask of 2 values"),
        ({"x": np.zeros(5)}, {}, {}, SplitError, "(not a|no) split"),
        (
            {"x": np.zeros(5), "y": np.zeros(3)},
            {"a": {"x": (0, 3), "y": (0, 2)}},
            {},
            SplitError,
            "different numbers of rows",
        ),
        ({"x": np.float64(1)}, None, {}, ArrayError, "single value"),
        ({"x": np.zeros(3, "V4")}, None, {}, ArrayError, "dtype"),
        ({}, None, {}, ArrayError, "no source"),
        ({"x": np.zeros(3), "x/y": np.zeros(3)}, None, {}, ArrayError, "inside source 'x'"),
        ({"a//b": np.zeros(3)}, None, {}, ArrayError, "cannot name a source"),
        ({"x": np.zeros(3)}, None, {"dims": {"x": ("x",)}}, DimsError, "both a source and"),
        ({"g/x": np.zeros(3)}, None, {"dims": {"g/x": ("g",)}}, DimsError, "'g' is both a group"),
        ({"x": np.zeros(3)}, None, {"dims": {"x": ("a", "b")}}, DimsError, "'x'"),
        ({"x": np.zeros(3)}, None, {"compression": "zip"}, ArrayError, "must be None or one of"),
        ({"x": np.zeros(3)}, None, {"chunks": (2, 2)}, ArrayError, "does not fit"),
        ({"x": np.zeros(3)}, None, {"layout": "contiguous", "chunks": 2}, ArrayError, "contiguous"),
        ({"x": np.zeros(3)}, None, {"attrs": {"a": {1: 2}}}, ArrayError, "attribute 'a'"),
        ({"x": np.zeros(3)}, None, {"memory": "much"}, ValueError, "not a size"),
        ({"x": np.zeros(3)}, None, {"coords": {"batch": [1, 2]}}, DimsError, "length 3"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, sources: Any, splits: Any, options: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        labeled.write(tmp_path / "x.hdf5", sources, splits, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.arange(3)})
    with pytest.raises(WriteError, match="overwrite=True"):
        labeled.write(path, {"x": np.arange(9)})
    link = tmp_path / "link"
    link.symlink_to(path)
    labeled.write(link, {"x": np.arange(9)}, overwrite=True)
    assert link.is_symlink()
    assert labeled.open_dataset(path).n_rows == 9


def test_a_source_called_like_a_coordinate_is_renamed(tmp_path: Path) -> None:
    given = {"x": xr.DataArray(np.arange(3), dims="batch", coords={"y": ("batch", [4, 5, 6])})}
    with pytest.raises(DimsError, match="give the source or the coordinate another name"):
        labeled.write(tmp_path / "x.hdf5", {**given, "y": np.arange(3)})
    path = labeled.write(tmp_path / "x.hdf5", {**given, "z": np.arange(3)})
    assert labeled.open_dataset(path)["x"].coords["y"].values.tolist() == [4, 5, 6]


def test_single_values_of_an_xarray_dataset_are_left_out_and_reported(tmp_path: Path) -> None:
    given = xr.Dataset({"x": ("batch", np.arange(3)), "crs": 4326})
    with pytest.warns(labeled.LabeledWarning, match=r"variables \['crs'\] are single values"):
        path = labeled.write(tmp_path / "x.hdf5", given)
    assert labeled.open_dataset(path).sources == ("x",)


def test_what_a_dataset_holds_besides_its_sources_is_reported(tmp_path: Path) -> None:
    given = xr.Dataset({"x": (("batch", "h"), np.ones((3, 2)))}, {"crs": 7, "h": [1.0, 2.0]})
    given.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    dataset = labeled.open_dataset(tmp_path / "x.nc", example_dim="batch")
    with pytest.warns(labeled.LabeledWarning, match=r"'crs' of .* are left out; labeled\.repack"):
        labeled.write(tmp_path / "new.hdf5", dataset)
    given = given.assign_coords(z=[1, 2, 3])  # along a dim of no source
    with pytest.warns(labeled.LabeledWarning, match=r"coordinates \['crs', 'z'\] are along no"):
        labeled.write(tmp_path / "new.hdf5", given, overwrite=True)


def test_arrays_that_would_lose_their_mask_or_meaning_are_refused(tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    for value, words in (
        (np.ma.masked_array([1, 2, 3], [0, 1, 0]), r"'x' is a masked array.*\.filled\(value\)"),
        (sparse.eye(3).tocsr(), r"'x' is a sparse csr_.*\.toarray\(\)"),
    ):
        with pytest.raises(ArrayError, match=words):
            labeled.write(tmp_path / "x.h5", {"x": value})
    assert list(tmp_path.iterdir()) == []


def test_masked_values_of_lazy_blocks_are_refused(tmp_path: Path) -> None:
    array = da.ma.masked_equal(da.arange(8, chunks=4), 5)
    with pytest.raises(ArrayError, match="'x' gave a block with masked values"):
        labeled.write(tmp_path / "x.h5", {"x": array})
    path = labeled.write(tmp_path / "x.h5", {"x": da.ma.masked_equal(array.compute().data, 99)})
    assert labeled.open_dataset(path)["x"].values.tolist() == list(range(8))
