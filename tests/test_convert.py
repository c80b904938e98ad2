"""Converting: from nearly anything to a labelled file, equal to what it was, or a clear refusal."""

from __future__ import annotations

import json
import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner
from written_files import run

import labeled
from labeled.cli.main import main
from labeled.errors import (
    ArrayError,
    DimsError,
    FileFormatError,
    LabeledError,
    OptionError,
    SplitError,
    UnknownNameError,
    UnsafeFileError,
    WriteError,
)


def check(path: Any, expected: Any) -> labeled.Dataset:
    ds = labeled.open_dataset(path)
    assert set(ds.sources) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(ds[name].values, values)
    assert labeled.verify(path).sound
    return ds


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": 7}])
def test_archives_of_numpy(tmp_path: Path, save: Any, options: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (500, 3, 8), np.uint8),
        "labels": rng.integers(0, 4, 500),
        "names": np.array([f"row {i}" for i in range(500)]),
        "columns": np.asfortranarray(rng.random((500, 3))),
        "nothing": np.empty((500, 0), "f4"),
    }
    save(tmp_path / "a.npz", one=np.array(3), **arrays)
    with pytest.warns(labeled.LabeledWarning, match=r"\['one'\] .* are single values"):
        path = labeled.convert(
            tmp_path / "a.npz",
            tmp_path / "b.hdf5",
            split={"train": 0.8, "test": 0.2},
            stratify="labels",
            dims={"images": ("batch", "channel", "x")},
            seed=3,
            **options,
        )
    ds = check(path, arrays)
    assert ds.dims["images"] == ("batch", "channel", "x")
    assert json.loads(ds.attrs["labeled_provenance"]) == {
        "from": "a.npz",
        "kind": "npz",
        "split": {"train": 0.8, "test": 0.2},
        "seed": 3,
        "stratify": "labels",
    }
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "b.hdf5"]


def test_one_array(tmp_path: Path) -> None:
    values = np.arange(24, dtype=">f4").reshape(6, 4)
    for order in (np.ascontiguousarray, np.asfortranarray):
        np.save(tmp_path / "x.npy", order(values))
        path = labeled.convert(
            tmp_path / "x.npy", tmp_path / "a.hdf5", split={"a": "0:4"}, overwrite=True, memory=1
        )
        check(path, {"x": values})
    check(labeled.convert(path, tmp_path / "few.hdf5", only="a"), {"x": values[:4]})


SPLIT_NAMES = {
    "before": "{split}_{source}.npy",
    "after": "{source}_{split}.npy",
    "folders": "{split}/{source}.npy",
    "counted": "{split}/{source}_{number}.npy",
}


@pytest.mark.parametrize("case", SPLIT_NAMES)
def test_numpy_files_named_after_splits_become_these(tmp_path: Path, case: str) -> None:
    arrays = {
        split: {"x": np.full((n, 2), n), "y": np.arange(n)}
        for split, n in (("train", 7), ("test", 3))
    }
    folder, target = tmp_path / "arrays", tmp_path / "made.hdf5"
    for split, sources in arrays.items():
        for source, array in sources.items():
            for number, part in enumerate(np.array_split(array, 2 if case == "counted" else 1)):
                name = SPLIT_NAMES[case].format(split=split, source=source, number=number)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                np.save(folder / name, part)
    paths = sorted(map(str, folder.rglob("*.npy")))
    for origin in (folder, f"{folder}/**/*.npy", paths, "command"):
        if origin == "command":
            done = CliRunner().invoke(main, ["convert", *paths, str(target), "--overwrite"])
            assert done.exit_code == 0, done.output
        else:
            labeled.convert(origin, target, overwrite=True)
        ds = labeled.open_dataset(target)
        assert set(ds.splits) == set(arrays)
        for split, sources in arrays.items():
            for source, array in sources.items():
                np.testing.assert_array_equal(ds.split(split)[source].values, array)


def test_a_folder_of_numpy_files(tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    parts = {k: np.full((5, 2), k) for k in (2, 10, 1)}  # in the order of the numbers
    for k, part in parts.items():
        np.save(folder / f"x_{k}.npy", part)
    np.save(folder / "labels.npy", np.arange(15))
    (folder / "_SUCCESS").touch()
    path = labeled.convert(folder, tmp_path / "a.hdf5")
    check(path, {"x": np.concatenate([parts[k] for k in (1, 2, 10)]), "labels": np.arange(15)})
    np.save(folder / "x_3.npy", np.zeros((5, 3)))
    with pytest.raises(ArrayError, match=r"'x': .*x_3.npy' has rows of float64 \(3,\), and .*x_1"):
        labeled.convert(folder, tmp_path / "b.hdf5")


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_a_list_keeps_its_order_and_a_glob_that_of_the_numbers(tmp_path: Path, ending: str) -> None:
    names = [f"o_{k}.{ending}" for k in (10, 9, 0)]
    paths = [str(tmp_path / name) for name in names]
    for path, values in zip(paths, ([1, 2], [5], [3, 4]), strict=True):
        if ending == "npy":
            np.save(path, np.array(values))
        else:
            pytest.importorskip("pyarrow")
            pd.DataFrame({"o": values}).to_parquet(path)
    target, rules = str(tmp_path / "a.hdf5"), {"train": "0:2", "test": "2:5"}
    ds = check(labeled.convert(paths, target, split=rules), {"o": [1, 2, 5, 3, 4]})
    assert ds.split("train")["o"].values.tolist() == [1, 2]
    labeled.convert(str(tmp_path / f"o_*.{ending}"), target, overwrite=True)
    check(target, {"o": [3, 4, 5, 1, 2]})
    for given, rows in ((paths, [1, 2, 5, 3, 4]), (sorted(paths), [3, 4, 5, 1, 2])):
        done = CliRunner().invoke(main, ["convert", *given, target, "--overwrite"])
        assert done.exit_code == 0, done.output
        check(target, {"o": rows})


def test_data_of_another_kind_in_a_folder_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    labeled.write(folder / "a.hdf5", {"x": np.arange(3)})
    for name in ("README", "README.md", "notes.txt", "about.json", ".hidden.npy", "_old.parquet"):
        (folder / name).write_text("words")
    labeled.open_dataset(folder)  # none of these is worth a warning
    np.save(folder / "x.npy", np.zeros(2))
    (folder / "a.csv").write_text("u,v\n1,2\n3,4\n")
    said = r"'a.csv', 'x.npy' beside the HDF5 of '.*mixed' are left out"
    for read in (labeled.open_dataset, lambda where: labeled.convert(where, tmp_path / "b.hdf5")):
        with pytest.warns(labeled.LabeledWarning, match=said) as warned:
            read(folder)
        assert len(warned) == 1
    check(tmp_path / "b.hdf5", {"x": np.arange(3)})
    labeled.open_dataset(folder / "*.hdf5")
    labeled.open_dataset(folder, format="hdf5")


def test_val_is_the_split_valid_and_parquet_has_splits_only_where_given(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name, n in (("train", 3), ("val", 2)):
        for kind in ("arrays", "tables"):
            (tmp_path / kind / name).mkdir(parents=True)
        np.save(tmp_path / "arrays" / name / "x.npy", np.full(n, n))
        pd.DataFrame({"x": [n] * n}).to_parquet(tmp_path / "tables" / name / "x.parquet")
    ds = labeled.open_dataset(labeled.convert(tmp_path / "arrays", tmp_path / "a.hdf5"))
    assert {name: by["x"] for name, by in ds.splits.items()} == {"train": 3, "valid": 2}
    ds = labeled.open_dataset(labeled.convert(tmp_path / "tables", tmp_path / "t.hdf5"))
    assert set(ds.splits) <= {"all"}
    paths = [tmp_path / "tables" / name / "x.parquet" for name in ("val", "train")]
    rules = {"valid": "0:2", "train": "rest"}
    ds = labeled.open_dataset(labeled.convert(paths, tmp_path / "s.hdf5", split=rules))
    assert ds.split("valid")["x"].values.tolist() == [2, 2]


FRAME = pd.DataFrame(
    {
        "a": [1, 2, 3],
        "b": [0.5, 1.5, 2.5],
        "kind": pd.Categorical(["x", "y", "x"]),
        "when": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]),
    }
)


DAYS = pd.date_range("2020-01-01", periods=3)
INDEXES = {
    "'time'": DAYS.rename("time"),
    "of datetime64": DAYS,
    "'a', 'b'": pd.MultiIndex.from_arrays([list("xyz"), [1, 2, 3]], names=["a", "b"]),
    "'id'": pd.RangeIndex(3, name="id"),
    "of object": pd.Index(list("xyz"), dtype=object),
    "": pd.Index([4, 7, 1]),
}


@pytest.mark.parametrize("said", INDEXES)
@pytest.mark.parametrize("way", ["write", "batches", "convert"])
def test_an_index_that_is_left_out_is_reported(tmp_path: Path, way: str, said: str) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3]}, INDEXES[said])
    given = [frame[:2], frame[2:]] if way == "batches" else frame
    target = tmp_path / "a.hdf5"
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = labeled.convert(given, target) if way == "convert" else labeled.write(target, given)
    check(made, {"x": [1, 2, 3]})
    assert len(found) == bool(said)
    for one in found:
        assert (one.category, one.filename) == (labeled.LabeledWarning, __file__)
        words = rf"the index {said}\S* of the table is left out; .*reset_index"
        assert re.match(words, str(one.message))


@pytest.mark.parametrize("way", ["frame", "parquet", "folder"])
def test_tables(tmp_path: Path, way: str) -> None:
    pytest.importorskip("pyarrow")
    origin: Any = FRAME
    if way != "frame":
        origin = tmp_path / "t.parquet"
        FRAME.to_parquet(origin)
    if way == "folder":
        (tmp_path / "table").mkdir()
        for k, part in enumerate((FRAME[:2], FRAME[2:])):
            part.to_parquet(tmp_path / "table" / f"part-{k}.parquet")
        origin = tmp_path / "table"
    path = labeled.convert(origin, tmp_path / "t.hdf5", columns={"features": ["a", "b"]})
    check(path, {"features": FRAME[["a", "b"]], "kind": FRAME["kind"], "when": FRAME["when"]})
    some = labeled.convert(origin, tmp_path / "s.hdf5", sources=["b"], split={"last": "1:"})
    assert labeled.open_dataset(some).split("last")["b"].values.tolist() == [1.5, 2.5]
    with pytest.raises(UnknownNameError, match="'c', which is not a column"):
        labeled.convert(origin, tmp_path / "no", columns={"f": ["c"]})


@pytest.mark.parametrize("way", ["frame", "parquet"])
def test_integers_beside_a_gap_are_not_rounded(tmp_path: Path, way: str) -> None:
    """A gap makes floats of integers, which hold ids up to 2**53."""

    def written(ids: list[int | None]) -> str:
        frame = pd.DataFrame({"id": pd.array(ids, dtype="Int64")})
        if way == "frame":
            return labeled.write(tmp_path / "x.hdf5", frame, overwrite=True)
        pytest.importorskip("pyarrow")
        frame.to_parquet(tmp_path / "t.parquet")
        return labeled.convert(tmp_path / "t.parquet", tmp_path / "x.hdf5", overwrite=True)

    exact: list[int | None] = [1 << 60, -(1 << 53), None]
    check(written(exact), {"id": np.array([1 << 60, -(1 << 53), np.nan])})
    check(written([(1 << 60) + 1, 3]), {"id": np.array([(1 << 60) + 1, 3])})
    for ids in ([3, (1 << 60) + 1, None], [3, -(1 << 53) - 1, None]):
        with pytest.raises(ArrayError, match=rf"'id'.*row 1 holds {ids[1]}, which float64 would"):
            written(ids)


def test_lists_and_gaps_of_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    pairs = arrow.FixedSizeListArray.from_arrays(arrow.array(range(8)), 2)
    table = arrow.table(
        {"n": [1, None, 3, 4], "r": [[1], [], [2, 3], [4]], "p": pairs, "b": [True, None] * 2}
    )
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(table, tmp_path / "n.parquet", row_group_size=2)
    ds = labeled.open_dataset(labeled.convert(tmp_path / "n.parquet", tmp_path / "n.hdf5"))
    np.testing.assert_array_equal(ds["n"], [1, np.nan, 3, 4])
    np.testing.assert_array_equal(ds["b"], [1, np.nan] * 2)
    assert ds["p"].values.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [one.values.tolist() for one in ds["r"]] == [[1], [], [2, 3], [4]]
    pd.DataFrame({"t": ["a", None]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ArrayError, match=r"column 't' of .*, row 1 .* its text is missing"):
        labeled.convert(tmp_path / "t.parquet", tmp_path / "t.hdf5")
    pq.write_table(table.rename_columns(list("nupb")), tmp_path / "u.parquet")
    with pytest.raises(ArrayError, match=r"u.parquet' has the columns \['n', 'u', 'p', 'b'\]"):
        labeled.convert([tmp_path / "n.parquet", tmp_path / "u.parquet"], tmp_path / "t.hdf5")
    twice = arrow.Table.from_arrays([arrow.array([1]), arrow.array([3])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(ArrayError, match=r"a.parquet' has columns of the same name"):
        labeled.convert(tmp_path / "a.parquet", tmp_path / "t.hdf5")
    assert not (tmp_path / "t.hdf5").exists()
    odd = arrow.table({"d": arrow.array([1, 2], arrow.decimal128(5, 2)), "n": [3, 4], "m": [5, 6]})
    pq.write_table(odd, tmp_path / "d.parquet")
    with pytest.raises(ArrayError, match=r"type decimal128\(5, 2\).* with sources="):
        labeled.convert(tmp_path / "d.parquet", tmp_path / "d.hdf5")
    columns = {"x": ["n", "m"]}
    labeled.convert(tmp_path / "d.parquet", tmp_path / "d.hdf5", sources=["x"], columns=columns)
    assert labeled.open_dataset(tmp_path / "d.hdf5")["x"].values.tolist() == [[3, 5], [4, 6]]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_with_a_zone_are_those_of_utc(tmp_path: Path, unit: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    times = pd.date_range("2024-03-31", periods=50, freq="h", tz="Europe/Paris", unit=unit)
    times = times.insert(3, pd.NaT)
    table = arrow.table({"when": arrow.array(times, arrow.timestamp(unit, "Europe/Paris"))})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "t.parquet")
    expected = times.tz_convert(None).values.astype("M8[ns]")
    check(labeled.convert(tmp_path / "t.parquet", tmp_path / "t.hdf5"), {"when": expected})
    check(labeled.write(tmp_path / "u.hdf5", pd.DataFrame({"when": times})), {"when": expected})


@pytest.mark.parametrize("zones", [("Europe/Paris", None), (None, "UTC"), ("UTC", "Asia/Tokyo")])
def test_times_with_and_without_a_zone_are_not_joined(tmp_path: Path, zones: Any) -> None:
    pytest.importorskip("pyarrow")
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, zone in zip(paths, zones, strict=True):
        times = pd.date_range("2024-03-31", periods=2, tz=zone)
        pd.DataFrame({"when": times}).to_parquet(path)
    if None not in zones:  # both say what they are in UTC
        assert labeled.open_dataset(labeled.convert(paths, tmp_path / "o.hdf5")).n_rows == 4
        return
    with pytest.raises(ArrayError, match=r"'when' of '.*a.parquet' has .* zone, and '.*b.parquet'"):
        labeled.convert(paths, tmp_path / "o.hdf5")
    assert not (tmp_path / "o.hdf5").exists()


@pytest.mark.slow
def test_parquet_is_read_some_row_groups_at_a_time(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    values = np.random.default_rng(0).integers(0, 255, (40_000, 1_000), dtype=np.uint8)
    lists = arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), 1_000)
    pytest.importorskip("pyarrow.parquet").write_table(
        arrow.table({"x": lists}), tmp_path / "x.parquet", row_group_size=1_000
    )
    script = """
        import labeled, pyarrow
        labeled.convert("x.parquet", "y.hdf5", memory="8 MiB")
        print(pyarrow.default_memory_pool().max_memory())
    """
    said, _ = run(script, tmp_path).communicate()
    assert int(said) < values.nbytes // 2
    check(tmp_path / "y.hdf5", {"x": values})


@pytest.mark.filterwarnings("ignore::UserWarning:zarr")
@pytest.mark.parametrize("kind", ["zarr", "netcdf4", "memory"])
def test_files_of_xarray(tmp_path: Path, kind: str) -> None:
    data = xr.Dataset(
        {
            "heat": (("lat", "time"), np.arange(12.0).reshape(3, 4), {"units": "K"}),
            "mean": (("lat",), [1.0, 2.0, 3.0]),
        },
        coords={"lat": [10.0, 20.0, 30.0], "time": [0, 1, 2, 3]},
    )
    origin: Any = tmp_path / "data.nc"
    if kind == "zarr":
        pytest.importorskip("zarr")
        data.to_zarr(origin, consolidated=False, zarr_format=2)
    elif kind == "memory":
        origin = data
    else:
        data.to_netcdf(origin, engine="h5netcdf")
    if kind != "memory":
        out = labeled.convert(origin, tmp_path / "o.hdf5", example_dim="lat")
        np.testing.assert_array_equal(labeled.open_dataset(out)["mean"], data["mean"])
        return
    origin = data.assign_coords(station=("place", ["a", "b"]))
    with (
        pytest.warns(labeled.LabeledWarning, match=r"\['mean'\] do not have the dim 'time'"),
        pytest.warns(labeled.LabeledWarning, match=r"coordinates \['station'\] .* not written"),
    ):
        out = labeled.convert(origin, tmp_path / "o.hdf5", example_dim="time")
    found = labeled.open_dataset(out).to_xarray()
    xr.testing.assert_equal(found["heat"].drop_vars("time"), data["heat"].T.drop_vars("time"))
    np.testing.assert_array_equal(found["time"], data["time"])
    assert found["heat"].attrs["units"] == "K"
    with pytest.raises(DimsError, match="example_dim= names 'x'"):
        labeled.convert(origin, tmp_path / "no", example_dim="x")


@pytest.mark.parametrize("kind", ["csv", "hdf5", "zarr"])
def test_the_kind_of_an_origin_that_opens_is_its_format(tmp_path: Path, kind: str) -> None:
    origin = tmp_path / f"in.{kind}"
    if kind == "csv":
        origin.write_text("u,v\n1,2\n3,4\n")
    elif kind == "hdf5":
        labeled.write(origin, {"u": np.arange(3)})
    else:
        pytest.importorskip("zarr")
        xr.Dataset({"u": ("t", [1, 2])}).to_zarr(origin, consolidated=False, zarr_format=2)
    made = labeled.open_dataset(labeled.convert(origin, tmp_path / "o.hdf5"))
    assert json.loads(made.attrs["labeled_provenance"]) == {"from": origin.name, "kind": kind}


def test_another_labelled_file_gets_other_splits(tmp_path: Path) -> None:
    rows = {"x": np.arange(10), "g": np.arange(10) // 2}
    first = labeled.write(tmp_path / "a", rows, {"old": (0, 5)})
    assert list(check(labeled.convert(first, tmp_path / "b"), rows).splits) == ["old"]
    part = labeled.convert(first, tmp_path / "d", only="old", sources=["x"])
    check(part, {"x": range(5)})
    other = labeled.convert(first, tmp_path / "c", split={"a": 0.6, "b": "rest"}, groups="g")
    ds = labeled.open_dataset(other)
    assert {s: by["x"] for s, by in ds.splits.items()} == {"a": 6, "b": 4}


def test_the_command(tmp_path: Path) -> None:
    def invoke(*words: Any) -> Any:
        return CliRunner().invoke(main, ["convert", *map(str, words)])

    x, first, second = np.arange(60, dtype="u1").reshape(20, 3), *map(tmp_path.joinpath, "ab")
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 2)
    done = invoke(
        tmp_path / "a.npz", first, "--split", "train=0:15", "test=15:", "--progress",
        "--dims", "x=batch,colour", "--compression", "x=gzip", "--chunks", "x=4",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "splits train 15, test 5" in done.output
    assert "B/s" in done.stderr
    assert check(first, {"x": x, "y": np.arange(20) % 2}).dims["x"] == ("batch", "colour")
    with h5py.File(first) as file:
        assert (file["x"].chunks, file["x"].compression) == ((4, 3), "gzip")
        assert file["y"].chunks is None
    assert invoke(tmp_path / "a.npz", first).exit_code == 1
    facts = json.loads(invoke(first, second, "--only", "test", "--json", "--source", "x").stdout)
    assert (facts["path"], facts["file_bytes"]) == (str(second), os.path.getsize(second))
    check(second, {"x": x[15:]})
    assert invoke(tmp_path / "a.npz", tmp_path / "c", "--chunks", "x=a").exit_code == 2


# what is refused


def test_damaged_files_leave_nothing(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20_000, 8), np.uint8)
    np.savez_compressed(tmp_path / "a.npz", x=noise)
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    (tmp_path / "cut.npz").write_bytes(raw[:300])
    raw[len(raw) // 2] ^= 255
    (tmp_path / "a.npz").write_bytes(raw)
    np.savez(tmp_path / "bad.npz", x=np.arange(4), bad=np.array([{}], object))
    np.save(tmp_path / "b.npy", np.arange(1000))
    (tmp_path / "b.npy").write_bytes((tmp_path / "b.npy").read_bytes()[:500])
    np.save(tmp_path / "one.npy", 3)
    (tmp_path / "archive.npy").write_bytes((tmp_path / "bad.npz").read_bytes())
    header = (tmp_path / "b.npy").read_bytes()[:128]
    (tmp_path / "open.npy").write_bytes(header.replace(b"}", b" "))
    (tmp_path / "z.parquet").write_bytes(b"nonsense")
    with zipfile.ZipFile(tmp_path / "two.npz", "w") as archive:
        archive.write(tmp_path / "one.npy", "x.npy")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.write(tmp_path / "one.npy", "x.npy")
    (tmp_path / "c.npy").symlink_to("gone.npy")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.npy.bak").touch()
    before = sorted(os.listdir(tmp_path))
    for name, words in {
        "a.npz": r"not a sound \.npz archive: Bad CRC-32 for file 'x.npy'",
        "cut.npz": r"not a sound \.npz",
        "bad.npz": r"member bad\.npy holds Python objects",
        "two.npz": "members of the same name",
        "b.npy": "cut short",
        "archive.npy": r"not a sound \.npy file",
        "open.npy": r"not a sound \.npy file",
        "one.npy": "holds a single value",
        "c*.npy": r"c\.npy' cannot be read: No such file",
        "z.parquet": "not a sound parquet",
        "nothing.npz": "does not exist",
        "notes": "notes' holds nothing to convert",
    }.items():
        with pytest.raises(LabeledError, match=words) as caught:
            labeled.convert(tmp_path / name, tmp_path / "o")
        assert isinstance(caught.value, UnsafeFileError) == (name == "bad.npz")
    with pytest.raises(FileFormatError, match="'' is not a path"):
        labeled.convert("", tmp_path / "o")
    with pytest.raises(WriteError, match=r"no' does not exist"):
        labeled.convert({"x": np.arange(3)}, tmp_path / "no" / "o")
    assert sorted(os.listdir(tmp_path)) == before
    check(labeled.convert(tmp_path / "bad.npz", tmp_path / "o", sources=["x"]), {"x": range(4)})


@pytest.mark.parametrize("kind", ["npy", "h5", "csv", "parquet", "arrays", "frame", "xarray"])
def test_options_that_mean_nothing_are_refused(tmp_path: Path, kind: str) -> None:
    x, table = np.arange(6.0), pd.DataFrame({"x": np.arange(6.0)})
    np.save(tmp_path / "x.npy", x)
    labeled.write(tmp_path / "x.h5", {"x": x})
    table.to_csv(tmp_path / "x.csv")
    table.to_parquet(tmp_path / "x.parquet")
    origin = {"arrays": {"x": x}, "frame": table, "xarray": xr.Dataset({"x": ("batch", x)})}.get(
        kind, tmp_path / f"x.{kind}"
    )
    cases: list[tuple[dict[str, Any], str]] = [
        ({"splits": {"train": 0.5}}, "did you mean 'split'"),
        ({"nonsense": 1}, "nonsense"),
    ]
    if kind not in ("csv", "parquet", "frame"):
        cases.append(({"columns": {"y": ["x"]}}, "columns"))
    for option, words in cases:
        with pytest.raises(OptionError, match=words):
            labeled.convert(origin, tmp_path / "new.h5", **option)
    assert not (tmp_path / "new.h5").exists()


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    uneven = {"x": np.arange(4), "y": np.arange(5)}
    with pytest.raises(SplitError, match=r"differ in length.* sources=\[...\] or example_dim="):
        labeled.convert(uneven, tmp_path / "o", split={"a": "0:4"})
    with pytest.raises(ArrayError, match="column 'a', row 1 holds"):
        labeled.convert(pd.DataFrame({"a": ["x", None]}), tmp_path / "no")
    assert not list(tmp_path.iterdir())
    target = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)})
    with pytest.raises(WriteError, match=r"exists already; pass overwrite=True to replace it"):
        labeled.convert(tmp_path / "missing.npy", target)  # before the origin is looked at


def test_options_of_opening_are_known_to_converting(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text("a;b\n1;2\n3;4\n")
    path = labeled.convert(tmp_path / "numbers", tmp_path / "n.h5", format="csv", delimiter=";")
    check(path, {"features": [[1, 2], [3, 4]]})


@pytest.mark.filterwarnings("ignore:.*are no sources of examples:labeled.LabeledWarning")
def test_a_source_in_another_file_is_left_out_or_allowed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "part.hdf5", "w") as f:
        f["x"] = np.arange(6)
    layout = h5py.VirtualLayout((6,), "i8")
    layout[:] = h5py.VirtualSource("part.hdf5", "x", shape=(6,))
    origin, target = tmp_path / "a.hdf5", tmp_path / "b.hdf5"
    with h5py.File(origin, "w") as f:
        f.create_virtual_dataset("x", layout)
        f["y"] = np.arange(6) + 10
        for each in f.values():
            each.dims[0].label = "batch"
    with pytest.warns(labeled.LabeledWarning, match=r"opens without 'x': .*allow_external=True"):
        labeled.convert(origin, target)
    for how in (["--source", "y"], ["--allow-external"]):
        done = CliRunner().invoke(main, ["convert", str(origin), str(target), "--overwrite", *how])
        assert done.exit_code == 0, done.stderr
        expected = {"y": range(10, 16)}
        check(target, expected if "--source" in how else expected | {"x": range(6)})
    with pytest.raises(UnknownNameError, match="'z'"):
        labeled.convert(origin, target, sources=["z"], overwrite=True)


def test_sources_of_different_lengths_are_reported(tmp_path: Path) -> None:
    """The warning named splits= as if convert had it."""
    arrays = {"x": np.arange(3), "y": np.arange(2)}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.warns(labeled.LabeledWarning, match=r"'y' has 2: .* splits= of labeled\.write"):
        labeled.convert(tmp_path / "a.npz", tmp_path / "a.hdf5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = labeled.write(tmp_path / "b", arrays, {"one": {"x": (0, 3)}, "two": {"y": (0, 2)}})
    assert labeled.open_dataset(path).splits == {"one": {"x": 3}, "two": {"y": 2}}


@pytest.mark.filterwarnings("ignore::UserWarning:zarr")
def test_variables_that_are_no_sources_are_reported(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    variables = {"t": (("time", "y", "x"), np.zeros((4, 2, 3))), "w": ("x", np.arange(3))}
    coords = {"height": 2.0, "lat": (("y", "x"), np.ones((2, 3))), "x": [1, 2, 3]}
    data = xr.Dataset(variables, coords)
    data.to_netcdf(tmp_path / "n.nc", engine="h5netcdf", unlimited_dims=["time"])
    data.to_zarr(tmp_path / "n.zarr")
    for name, way in (("n.nc", "labeled.repack"), ("n.zarr", r"what .* in ds.to_xarray\(\)")):
        words = rf"'height', 'lat', 'w' of .* left out; {way}"
        with pytest.warns(labeled.LabeledWarning, match=words):
            labeled.convert(tmp_path / name, tmp_path / f"{name}.hdf5")


def test_files_at_an_address_are_converted(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    path = labeled.write(tmp_path / "x.h5", {"x": np.arange(3)})
    files = fsspec.filesystem("memory")
    files.pipe_file("/converted/x.h5", Path(path).read_bytes())
    try:
        check(labeled.convert("memory://converted/x.h5", tmp_path / "y.h5"), {"x": range(3)})
    finally:
        files.rm("/converted", recursive=True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["rows.csv", "rows.npy", "rows.parquet", "rows"])
def test_pipes_are_refused_instead_of_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for use in (lambda p: labeled.convert(p, tmp_path / "new.h5"), labeled.open_dataset):
        with pytest.raises(FileFormatError, match=rf"{name}' is a pipe .*: cat .*{name} > FILE"):
            use(tmp_path / name)


@pytest.mark.slow
def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """Four times the budget, in a fresh process: in compressed, and across."""
    some = np.random.default_rng(0).integers(0, 4, (1000, 1024), np.uint8)
    rows = np.tile(np.repeat(some, 16, axis=1)[:, :1024], (82, 1))
    np.savez_compressed(tmp_path / "x.npz", x=rows)
    np.savez(tmp_path / "small.npz", x=rows[:2000])
    script = """
        import labeled
        from peak_memory import PeakMemory
        labeled.convert("small.npz", "s.hdf5", split={"a": 0.5}, compression="gzip")
        labeled.convert("s.hdf5", "again.hdf5")
        with PeakMemory() as memory:
            labeled.convert("x.npz", "x.hdf5", memory="20 MiB", split={"a": 0.5})
            labeled.convert("x.hdf5", "y.hdf5", memory="20 MiB", split={"a": 0.5})
            labeled.convert("y.hdf5", "z.hdf5", memory="20 MiB", only="a")
        print(memory.peak_bytes)
    """
    done = run(script, tmp_path)
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert int(out) <= 20 << 20


def test_integers_of_mixed_columns_are_not_rounded(tmp_path: Path) -> None:
    large = 2**53 + 1
    for column in (pd.Categorical([large, None]), pd.Series([large, 0.5], dtype=object)):
        with pytest.raises(ArrayError, match=f"'id', row 0 holds {large}, which float64 would"):
            labeled.write(tmp_path / "x.hdf5", pd.DataFrame({"id": column}))
