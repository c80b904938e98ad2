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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_files import run

import labeled
from labeled.cli.main import main
from labeled.errors import ArrayError, DimsError, SplitError, UnknownNameError, UnsafeFileError

DTYPES = ["u1", "i2", "<i4", ">i4", "i8", "?", "f2", "f4", ">f8", "c8", "S3", "text"]
TABLE_DTYPES = ["u1", "i2", "i4", "u8", "?", "f4", "f8", "S3", "text"]


@st.composite
def some_sources(draw: st.DrawFn, dtypes: list[str], most_axes: int) -> dict[str, Any]:
    """Sources of one number of rows: dense ones of any dtype, and ragged ones."""
    n_rows = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    out: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)):
        kind = draw(st.sampled_from(["ragged", *dtypes]))
        shape = tuple(draw(st.lists(st.integers(1, 3), max_size=most_axes - 1)))
        dims = ("batch", *(f"{name}{i}" for i in range(len(shape))))
        if kind == "ragged":
            k = max(len(shape), 1)
            examples = [
                rng.integers(0, 9, tuple(rng.integers(0, 4, k))).astype("f4") for _ in range(n_rows)
            ]
            out[name] = labeled.Ragged.of(examples, ("batch", *(f"{name}{i}" for i in range(k))))
        elif kind == "text":
            texts = [f'{"é" * int(i)},"{i}' for i in rng.integers(0, 5, (n_rows, *shape)).ravel()]
            out[name] = xr.DataArray(
                np.array(texts, object).reshape(n_rows, *shape)[..., :], dims=dims
            )
        else:
            values = rng.integers(0, 200, (n_rows, *shape)).astype(kind)
            out[name] = xr.DataArray(values, dims=dims, attrs={"unit": "cm", "n": 3})
    return out


def splits_of(n_rows: int, seed: int) -> dict[str, Any] | None:
    rng = np.random.default_rng(seed)
    listed = np.sort(rng.permutation(n_rows)[: n_rows // 3 + 1])
    return [
        None,
        {"train": (0, n_rows)},
        {"few": listed, "rest": np.setdiff1d(np.arange(n_rows), listed)},
    ][seed % 3]


def check_equal(one: labeled.Dataset, two: labeled.Dataset) -> None:
    assert one.sources == two.sources
    assert one.dims == two.dims
    assert {s: dict(by) for s, by in one.splits.items()} == {
        s: dict(by) for s, by in two.splits.items()
    }
    for split in [None, *one.splits]:
        here = one if split is None else one.split(split)
        there = two if split is None else two.split(split)
        for name in one.sources:
            a, b = here[name], there[name]
            assert a.dtype == b.dtype
            assert dict(a.attrs) == dict(b.attrs)
            if isinstance(a, labeled.Ragged):
                np.testing.assert_array_equal(a.shapes, b.shapes)
                np.testing.assert_array_equal(a.flat().values, b.flat().values)
            else:
                np.testing.assert_array_equal(a.values, b.values)


def there_and_back(folder: Path, sources: Any, suffix: str, seed: int) -> None:
    n_rows = len(next(iter(sources.values())))
    first = labeled.write(
        folder / "a.hdf5",
        sources,
        splits_of(n_rows, seed),
        attrs={"title": "é", "sizes": [1, 2]},
        overwrite=True,
    )
    out = labeled.convert(first, folder / f"b{suffix}", overwrite=True)
    back = labeled.convert(out, folder / "c.hdf5", overwrite=True)
    one, two = labeled.open_dataset(first), labeled.open_dataset(back)
    check_equal(one, two)
    assert two.attrs["title"] == "é"
    np.testing.assert_array_equal(two.attrs["sizes"], [1, 2])


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sources=some_sources(DTYPES, 4), seed=st.integers(0, 99))
def test_to_npz_and_back_is_equal(tmp_path: Path, sources: Any, seed: int) -> None:
    there_and_back(tmp_path, sources, ".npz", seed)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), seed=st.integers(0, 99))
def test_to_parquet_and_back_is_equal(tmp_path: Path, data: Any, seed: int) -> None:
    pytest.importorskip("pyarrow")
    sources = data.draw(some_sources(TABLE_DTYPES, 2))
    flat = {
        name: array
        for name, array in sources.items()
        if isinstance(array, labeled.Ragged) or array.ndim == 1 or array.dtype != object
    }
    if flat:
        there_and_back(tmp_path, flat, ".parquet", seed)


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
    with pytest.warns(labeled.LabeledWarning, match="no place for splits"):
        back = labeled.convert(path, tmp_path / "back.npy", sources=["f"])
    np.testing.assert_array_equal(np.load(back), values)
    few = labeled.convert(path, tmp_path / "few.npz", only="a")
    np.testing.assert_array_equal(np.load(few)["f"], values[:4])


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
    with pytest.raises(UnknownNameError, match="'c', which is no column"):
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


def test_csv_is_read_back_by_others(tmp_path: Path) -> None:
    sources = {
        "y": np.array([1, 2]),
        "f": np.array([[0.1, 1e-30], [2.0, np.nan]], "f4"),
        "t": np.array(["a,b", 'c"é']),
    }
    first = labeled.write(tmp_path / "a", sources, {"s": (0, 2)})
    with pytest.warns(labeled.LabeledWarning, match="no place for splits"):
        out = labeled.convert(first, tmp_path / "a.csv")
    frame = pd.read_csv(out)
    assert list(frame.columns) == ["f_0", "f_1", "t", "y"]
    np.testing.assert_array_equal(frame[["f_0", "f_1"]].to_numpy("f4"), sources["f"])
    assert frame["t"].tolist() == ["a,b", 'c"é']
    ragged = labeled.write(tmp_path / "r", {"r": [[1], [2, 3]]})
    for suffix, words in ((".csv", "different shapes"), (".npy", "different shapes")):
        with pytest.raises(ArrayError, match=words):
            labeled.convert(ragged, tmp_path / f"no{suffix}")


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
        tmp_path / "a.hdf5", tmp_path / "t.npz", "--only", "test", "--json", "--source", "x"
    )
    facts = json.loads(done.stdout)
    assert facts["path"] == str(tmp_path / "t.npz")
    assert facts["file_bytes"] == os.path.getsize(tmp_path / "t.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "t.npz")["x"], x[15:])
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


def test_variables_that_are_no_sources_are_told(tmp_path: Path) -> None:
    variables = {"t": (("time", "x"), np.zeros((4, 3))), "w": ("x", np.arange(3))}
    xr.Dataset(variables).to_netcdf(tmp_path / "n.nc", engine="h5netcdf", unlimited_dims=["time"])
    with pytest.warns(labeled.LabeledWarning, match=r"'w' of .* left out; labeled.repack"):
        labeled.convert(tmp_path / "n.nc", tmp_path / "x.hdf5")


def test_packed_values_leave_as_what_they_mean(tmp_path: Path) -> None:
    when = pd.date_range("2020-01-01", periods=4, freq="h")
    table = xr.Dataset({"t": ("time", [280.5, 281.0, np.nan, 282.5])}, {"time": when})
    packed = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 273.0, "_FillValue": -9}
    table.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"t": packed})
    for target in ("t.npy", "t.npz", "t.csv", "t.parquet"):
        labeled.convert(tmp_path / "a.nc", tmp_path / target)
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), table["t"])
    np.testing.assert_array_equal(np.load(tmp_path / "t.npz")["t"], table["t"])
    assert (tmp_path / "t.csv").read_text().split() == ["t", "280.5", "281.0", "nan", "282.5"]
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "t.parquet")["t"], table["t"])
    back = labeled.convert(tmp_path / "t.npz", tmp_path / "back.hdf5")  # and are not unpacked twice
    np.testing.assert_array_equal(labeled.open_dataset(back)["t"].values, table["t"])

    times = labeled.write(tmp_path / "times.hdf5", {"when": when.to_numpy("M8[ns]")})
    labeled.convert(times, tmp_path / "w.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), when.to_numpy("M8[ns]"))


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


def test_parquet_is_read_some_row_groups_at_a_time(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 255, (40_000, 1_000), dtype=np.uint8)
    labeled.write(tmp_path / "x.hdf5", {"x": values})
    labeled.convert(tmp_path / "x.hdf5", tmp_path / "x.parquet")
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
