"""Converting: from nearly anything to a labelled file, and back to something equal."""

from __future__ import annotations

import json
import os
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
    SplitError,
    UnknownNameError,
    UnsafeFileError,
)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": 7}])
def test_archives_of_numpy_are_read_plain_and_compressed(
    tmp_path: Path, compressed: bool, options: Any
) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (500, 3, 8), np.uint8),
        "labels": rng.integers(0, 4, 500),
        "names": np.array([f"row {i}" for i in range(500)]),
        "columns": np.asfortranarray(rng.random((500, 1))),
        "nothing": np.empty((500, 0), "f4"),
    }
    (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", **arrays)
    path = labeled.convert(
        tmp_path / "a.npz",
        tmp_path / "b.hdf5",
        split={"train": 0.8, "test": 0.2},
        stratify="labels",
        dims={"images": ("batch", "channel", "x")},
        seed=3,
        **options,
    )
    ds = labeled.open_dataset(path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(ds[name].values, array)
    assert ds.dims["images"] == ("batch", "channel", "x")
    assert labeled.verify(path).sound
    train, test = (ds.split(s)["labels"].values for s in ("train", "test"))
    for label in range(4):
        share = (test == label).sum() / (arrays["labels"] == label).sum()
        assert share == pytest.approx(0.2, abs=1 / 50)
    assert len(train) + len(test) == 500
    told = json.loads(ds.attrs["labeled_provenance"])
    assert told == {
        "from": "a.npz",
        "kind": "npz",
        "split": {"train": 0.8, "test": 0.2},
        "seed": 3,
        "stratify": "labels",
    }


@pytest.mark.parametrize("option", ["stratify", "group"])
def test_a_column_of_a_table_says_how_rows_are_split(tmp_path: Path, option: str) -> None:
    rng = np.random.default_rng(1)
    height, kind = rng.random(90), rng.permutation(np.repeat([3, 5, 8], 30))
    lines = [f"{a!r},{b},{'xyz'[b % 3]}" for a, b in zip(height.tolist(), kind, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["height,kind,name", *lines]) + "\n")
    halves = {"a": 0.5, "b": 0.5}
    path = labeled.convert(
        tmp_path / "t.csv", tmp_path / "t.hdf5", split=halves, **{option: "kind"}
    )
    ds = labeled.open_dataset(path)
    parts = [ds.split(name)["features"].values[:, 1].tolist() for name in halves]
    counts = [[part.count(one) for one in (3, 5, 8)] for part in parts]
    if option == "stratify":
        assert counts == [[15] * 3] * 2
    else:
        assert all(sorted(both) == [0, 30] for both in zip(*counts, strict=True))
    with pytest.raises(SplitError, match="dtype float64; it must be 90 integers or texts"):
        labeled.convert(tmp_path / "t.csv", tmp_path / "u.hdf5", split=halves, **{option: "height"})
    with pytest.raises(UnknownNameError, match="did you mean 'kind'"):
        labeled.convert(tmp_path / "t.csv", tmp_path / "u.hdf5", split=halves, **{option: "kid"})


def test_one_array(tmp_path: Path) -> None:
    values = np.arange(24, dtype=">f4").reshape(6, 4)
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    for name in ("x", "f"):
        path = labeled.convert(
            tmp_path / f"{name}.npy", tmp_path / "a.hdf5", split={"a": "0:4"}, overwrite=True
        )
        np.testing.assert_array_equal(labeled.open_dataset(path)[name], values)
    few = labeled.convert(path, tmp_path / "few.hdf5", only="a")
    np.testing.assert_array_equal(labeled.open_dataset(few)["f"], values[:4])


def test_what_is_in_memory(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "a": [1, 2, 3],
            "b": [0.5, 1.5, 2.5],
            "kind": pd.Categorical(["x", "y", "x"]),
            "when": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]),
        }
    )
    path = labeled.convert(frame, tmp_path / "t.hdf5", columns={"features": ["a", "b"]})
    ds = labeled.open_dataset(path)
    np.testing.assert_array_equal(ds["features"], frame[["a", "b"]].to_numpy())
    assert ds["kind"].values.tolist() == ["x", "y", "x"]
    np.testing.assert_array_equal(ds["when"], frame["when"].to_numpy())
    frame.to_parquet(tmp_path / "t.parquet")
    path = labeled.convert(
        tmp_path / "t.parquet",
        tmp_path / "p.hdf5",
        columns={"features": ["a", "b"]},
        split={"a": "1:"},
        sources=["features", "kind"],
    )
    np.testing.assert_array_equal(
        labeled.open_dataset(path).split("a")["features"], frame[["a", "b"]].to_numpy()[1:]
    )
    with pytest.raises(ArrayError, match="column 'a', row 1 holds"):
        labeled.convert(pd.DataFrame({"a": ["x", None]}), tmp_path / "no")
    with pytest.raises(UnknownNameError, match="'c', which is not a column"):
        labeled.convert(frame, tmp_path / "no", columns={"f": ["c"]})
    path = labeled.convert({"x": np.arange(5)}, tmp_path / "m.hdf5", split={"a": "0:2"})
    assert labeled.open_dataset(path).split("a").n_rows == 2


def test_missing_values_of_a_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"n": pd.array([1, None, 3], "Int64")}).to_parquet(tmp_path / "n.parquet")
    path = labeled.convert(tmp_path / "n.parquet", tmp_path / "n.hdf5")
    np.testing.assert_array_equal(labeled.open_dataset(path)["n"], [1, np.nan, 3])
    pd.DataFrame({"t": ["a", None]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ArrayError, match=r"column 't' of .*, row 1: its text is missing"):
        labeled.convert(tmp_path / "t.parquet", tmp_path / "t.hdf5")
    assert not (tmp_path / "t.hdf5").exists()


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_with_a_zone_are_those_of_utc(tmp_path: Path, unit: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    times = pd.date_range("2024-03-31", periods=50, freq="h", tz="Europe/Paris", unit=unit)
    times = times.insert(3, pd.NaT)
    kind = arrow.timestamp(unit, "Europe/Paris")
    table = arrow.table({"when": arrow.array(times, kind), "x": np.arange(51)})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "t.parquet")
    found = labeled.open_dataset(labeled.convert(tmp_path / "t.parquet", tmp_path / "t.hdf5"))
    got = found["when"].values
    np.testing.assert_array_equal(got, times.tz_convert(None).values.astype("M8[ns]"))
    held = labeled.write(tmp_path / "u.hdf5", pd.DataFrame({"when": times}))
    np.testing.assert_array_equal(labeled.open_dataset(held)["when"].values, got)


@pytest.mark.filterwarnings("ignore::UserWarning:zarr")
@pytest.mark.parametrize("kind", ["zarr", "netcdf3", "netcdf4"])
def test_files_of_xarray(tmp_path: Path, kind: str) -> None:
    data = xr.Dataset(
        {
            "heat": (("lat", "time"), np.arange(12.0).reshape(3, 4), {"units": "K"}),
            "mean": (("lat",), [1.0, 2.0, 3.0]),
        },
        coords={"lat": [10.0, 20.0, 30.0], "time": [0, 1, 2, 3]},
    )
    path = tmp_path / "data"
    if kind == "zarr":
        pytest.importorskip("zarr")
        data.to_zarr(path, consolidated=False, zarr_format=2)
    else:
        engine = {"netcdf3": "scipy", "netcdf4": "h5netcdf"}[kind]
        path = path.with_suffix(".nc")
        data.to_netcdf(path, engine=engine)
    if kind == "netcdf4":
        out = labeled.convert(path, tmp_path / "o.hdf5", example_dim="lat")
        np.testing.assert_array_equal(labeled.open_dataset(out)["mean"], data["mean"])
        return
    with pytest.warns(labeled.LabeledWarning, match=r"\['mean'\] do not have the dim 'time'"):
        out = labeled.convert(path, tmp_path / "o.hdf5", example_dim="time")
    found = labeled.open_dataset(out).to_xarray()
    xr.testing.assert_equal(found["heat"].drop_vars("time"), data["heat"].T.drop_vars("time"))
    np.testing.assert_array_equal(found["time"], data["time"])
    assert found["heat"].attrs["units"] == "K"
    with pytest.raises(DimsError, match="no variable has a dim 'x'"):
        labeled.convert(path, tmp_path / "no", example_dim="x")


def test_another_labelled_file_gets_other_splits(tmp_path: Path) -> None:
    first = labeled.write(
        tmp_path / "a", {"x": np.arange(10), "g": np.arange(10) // 2}, {"old": (0, 5)}
    )
    kept = labeled.open_dataset(labeled.convert(first, tmp_path / "b"))
    assert list(kept.splits) == ["old"]
    ds = labeled.open_dataset(
        labeled.convert(first, tmp_path / "c", split={"a": 0.6, "b": "rest"}, group="g")
    )
    assert {s: by["x"] for s, by in ds.splits.items()} == {"a": 6, "b": 4}
    groups = [set(ds.split(s)["g"].values.tolist()) for s in ("a", "b")]
    assert not groups[0] & groups[1]
    part = labeled.open_dataset(labeled.convert(first, tmp_path / "d", only="old", sources=["x"]))
    assert part["x"].values.tolist() == [0, 1, 2, 3, 4]


def test_a_member_of_python_objects_is_left_out(tmp_path: Path) -> None:
    origin, target = tmp_path / "a.npz", tmp_path / "o.hdf5"
    np.savez(origin, x=np.arange(4), bad=np.array([{}] * 4, object))
    with pytest.warns(labeled.LabeledWarning, match=r"bad\.npy holds Python .*; until then it is"):
        labeled.convert(origin, target)
    with h5py.File(target) as f:
        assert "bad" not in f
        assert f["x"][:].tolist() == [0, 1, 2, 3]
    labeled.convert(origin, target, sources=["x"], overwrite=True)  # says nothing
    with pytest.raises(UnsafeFileError, match=r"member bad\.npy holds Python objects"):
        labeled.convert(origin, target, sources=["x", "bad"], overwrite=True)


# the command


def invoke(*words: Any) -> Any:
    return CliRunner().invoke(main, ["convert", *map(str, words)])


def test_the_command(tmp_path: Path) -> None:
    x = np.arange(60, dtype="u1").reshape(20, 3)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 2)
    done = invoke(
        tmp_path / "a.npz", tmp_path / "a.hdf5", "--split", "train=0:15", "test=15:",
        "--dims", "x=batch,colour", "--compression", "x=gzip", "--chunks", "x=4",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "splits train 15, test 5" in done.output
    ds = labeled.open_dataset(tmp_path / "a.hdf5")
    assert ds.dims["x"] == ("batch", "colour")
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert (file["x"].chunks, file["x"].compression) == ((4, 3), "gzip")
        assert file["y"].chunks is None
    assert invoke(tmp_path / "a.npz", tmp_path / "a.hdf5").exit_code == 1
    done = invoke(
        tmp_path / "a.hdf5", tmp_path / "t.hdf5", "--only", "test", "--json", "--source", "x"
    )
    facts = json.loads(done.stdout)
    assert facts["path"] == str(tmp_path / "t.hdf5")
    assert facts["file_bytes"] == os.path.getsize(tmp_path / "t.hdf5")
    np.testing.assert_array_equal(labeled.open_dataset(tmp_path / "t.hdf5")["x"], x[15:])
    done = invoke(
        tmp_path / "a.npz", tmp_path / "b.hdf5", "--split", "a=0.5 b=rest", "--stratify", "y",
        "--seed", "4", "--progress",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "B/s" in done.stderr
    wrong = invoke(tmp_path / "a.npz", tmp_path / "c.hdf5", "--split", "a=7x")
    assert wrong.exit_code == 1
    assert wrong.stderr.count("\n") == 1
    assert "has the rule '7x'" in wrong.stderr
    assert invoke(tmp_path / "a.npz", tmp_path / "c.hdf5", "--chunks", "x=a").exit_code == 2


def test_variables_that_are_no_sources_are_reported(tmp_path: Path) -> None:
    variables = {"t": (("time", "x"), np.zeros((4, 3))), "w": ("x", np.arange(3))}
    xr.Dataset(variables).to_netcdf(tmp_path / "n.nc", engine="h5netcdf", unlimited_dims=["time"])
    with pytest.warns(labeled.LabeledWarning, match=r"'w' of .* left out; labeled.repack"):
        labeled.convert(tmp_path / "n.nc", tmp_path / "x.hdf5")


def test_a_folder_of_numpy_files(tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    rng = np.random.default_rng(0)
    parts = {k: rng.random((5, 2)) for k in (2, 10, 1)}  # in the order of the numbers
    for k, part in parts.items():
        np.save(folder / f"x_{k}.npy", part)
    np.save(folder / "labels.npy", np.arange(15))
    (folder / "_SUCCESS").touch()
    for origin in (folder, f"{folder}/*.npy"):
        made = labeled.convert(origin, tmp_path / "a.hdf5", overwrite=True, split={"a": 0.6})
        ds = labeled.open_dataset(made)
        assert ds.sources == ("labels", "x")
        expected = np.concatenate([parts[k] for k in (1, 2, 10)])
        np.testing.assert_array_equal(ds["x"].values, expected)
    np.save(folder / "x_3.npy", np.zeros((5, 3)))
    with pytest.raises(ArrayError, match=r"'x': .*x_3.npy' has rows of float64 \(3,\), and .*x_1"):
        labeled.convert(folder, tmp_path / "b.hdf5")


SPLIT_NAMES = {
    "before": "{split}_{source}.npy",
    "after": "{source}_{split}.npy",
    "folders": "{split}/{source}.npy",
    "counted": "{split}/{source}_{number}.npy",
}


@pytest.mark.parametrize("case", SPLIT_NAMES)
@pytest.mark.parametrize("given", ["folder", "glob", "paths", "command"])
def test_numpy_files_named_after_splits_become_these(tmp_path: Path, case: str, given: str) -> None:
    arrays = {
        split: {"x": np.full((n, 2), n), "y": np.arange(n)}
        for split, n in (("train", 7), ("test", 3))
    }
    folder = tmp_path / "arrays"
    for split, sources in arrays.items():
        for source, array in sources.items():
            for number, part in enumerate(np.array_split(array, 2 if case == "counted" else 1)):
                name = SPLIT_NAMES[case].format(split=split, source=source, number=number)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                np.save(folder / name, part)
    target = tmp_path / "made.hdf5"
    paths = sorted(map(str, folder.rglob("*.npy")))
    if given == "command":
        done = CliRunner().invoke(main, ["convert", *paths, str(target)])
        assert done.exit_code == 0, done.output
    else:
        labeled.convert(
            {"folder": folder, "glob": f"{folder}/**/*.npy", "paths": paths}[given], target
        )
    ds = labeled.open_dataset(target)
    assert set(ds.splits) == set(arrays)
    for split, sources in arrays.items():
        assert ds.split(split).sources == ("x", "y")
        for source, array in sources.items():
            np.testing.assert_array_equal(ds.split(split)[source].values, array)


def test_a_folder_of_nothing_to_convert_is_not_proposed_for_it(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.npy.bak").touch()
    with pytest.raises(FileFormatError, match="notes' holds nothing to convert") as caught:
        labeled.convert(tmp_path / "notes", tmp_path / "made.hdf5")
    assert "labeled convert" not in str(caught.value)


@pytest.mark.slow
def test_parquet_is_read_some_row_groups_at_a_time(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    values = np.random.default_rng(0).integers(0, 255, (40_000, 1_000), dtype=np.uint8)
    lists = arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), 1_000)
    table = arrow.table({"x": lists})
    pytest.importorskip("pyarrow.parquet").write_table(
        table, tmp_path / "x.parquet", row_group_size=1_000
    )
    script = """
        import labeled, pyarrow
        labeled.convert("x.parquet", "y.hdf5", memory="8 MiB")
        print(pyarrow.default_memory_pool().max_memory())
    """
    said, _ = run(script, tmp_path).communicate()
    assert int(said) < values.nbytes // 2
    np.testing.assert_array_equal(labeled.open_dataset(tmp_path / "y.hdf5")["x"], values)


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    folder = tmp_path / "table"
    folder.mkdir()
    frames = [
        pd.DataFrame({"n": [k, None if k else 7], "t": [f"a{k}", "b"], "f": [k + 0.5] * 2})
        for k in range(3)
    ]
    for k, frame in enumerate(frames):
        frame.to_parquet(folder / f"part-{k}.parquet")
    whole = pd.concat(frames)
    ds = labeled.open_dataset(labeled.convert(folder, tmp_path / "a.hdf5"))
    for name in whole:
        np.testing.assert_array_equal(ds[name].values, whole[name])
    both = labeled.convert(folder, tmp_path / "b.hdf5", columns={"x": ["n", "f"]})
    np.testing.assert_array_equal(labeled.open_dataset(both)["x"].values, whole[["n", "f"]])
    frames[0].rename(columns={"t": "u"}).to_parquet(folder / "part-9.parquet")
    with pytest.raises(ArrayError, match=r"part-9.parquet' has the columns \['n', 'u', 'f'\]"):
        labeled.convert(folder, tmp_path / "c.hdf5")
