"""Files with one group an episode, or an example: joined by a pattern, and told what to do."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import labeled
from labeled.cli.main import main
from labeled.errors import FileFormatError, LabeledWarning, LoaderError, UnknownNameError


@pytest.fixture
def demos(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Return a file of twelve demonstrations of different lengths, and its sources joined."""
    rng = np.random.default_rng(0)
    joined: dict[str, list[np.ndarray]] = {"actions": [], "obs/image": []}
    with h5py.File(tmp_path / "demos.hdf5", "w") as f:
        for number in range(12):
            group = f.create_group(f"data/demo_{number}")
            group.attrs["num_samples"] = 3 + number
            for name, shape in (("actions", (3 + number, 7)), ("obs/image", (3 + number, 4, 4, 3))):
                values = rng.integers(0, 255, shape, dtype=np.uint8)
                group.create_dataset(
                    name,
                    data=values,
                    chunks=(2, *shape[1:]),
                    compression=("gzip", None)[number % 2],
                )
                joined[name].append(values)
        f["mask/train"] = np.array([b"demo_0"])
    return tmp_path / "demos.hdf5", {n: np.concatenate(v) for n, v in joined.items()}


@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")
def test_a_pattern_joins_groups_in_the_order_of_their_numbers(demos):
    path, wanted = demos

    ds = labeled.open_dataset(path, group="data/demo_*")

    assert ds.sources == ("actions", "obs/image")
    for name, values in wanted.items():
        np.testing.assert_array_equal(ds[name].values, values)
        np.testing.assert_array_equal(ds.subset([70, 3, 70])[name], values[[70, 3, 70]])
    again = pickle.loads(pickle.dumps(ds))
    for batch in again.batches(16, shuffle=True, seed=1):
        np.testing.assert_array_equal(batch["obs/image"], wanted["obs/image"][batch.rows])
    one = labeled.open_dataset(path, group="data/demo_1[01]", sources=["actions"])
    np.testing.assert_array_equal(one["actions"].values, wanted["actions"][-(13 + 14) :])


def test_the_warning_tells_the_pattern_that_joins(demos):
    path, _ = demos
    with pytest.warns(LabeledWarning) as told:
        labeled.open_dataset(path)
    (message,) = [str(one.message) for one in told]
    assert "('actions', 'obs/image') in 12 groups; group='data/demo_*' joins them" in message
    with pytest.warns(LabeledWarning, match=r"demos.hdf5/data/demo_0' \(like 11 of the others\)"):
        labeled.open_dataset(path, group="data/demo_*")


@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")
def test_groups_that_do_not_fit_are_named(demos):
    path, _ = demos
    with h5py.File(path, "a") as f:
        del f["data/demo_3/actions"]
        f["data/demo_3/actions"] = np.zeros((6, 5), "u1")

    with pytest.raises(FileFormatError, match=r"row shape \(5,\) in '.*hdf5/data/demo_3', but"):
        labeled.open_dataset(path, group="data/*")
    with pytest.raises(UnknownNameError, match=r"no group that 'nope\*' matches.*'data', 'mask'"):
        labeled.open_dataset(path, group="nope*")


def advice(path: Path) -> str:
    """Return what opening a file warns of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        labeled.open_dataset(path)
    return " ".join(str(one.message) for one in told)


def pattern_in(told: str) -> str:
    """Return the pattern that a warning proposes."""
    return told.split("examples='")[1].split("'")[0]


@pytest.mark.filterwarnings("ignore:.* have no names:labeled.LabeledWarning")
def test_the_remedies_for_examples_in_groups_work(tmp_path):
    shapes = [(4 + i % 3, 5, 2) for i in range(8)]
    with h5py.File(tmp_path / "groups.h5", "w") as f:
        for i, shape in enumerate(shapes):
            f[f"mol_{i}/positions"] = np.full(shape, i)
            f[f"mol_{i}/energy"] = np.arange(3) + i
    with h5py.File(tmp_path / "sets.h5", "w") as f:
        for i in range(60):
            f[f"img_{i:03d}"] = np.full((2, 3), i)

    told = advice(tmp_path / "groups.h5")
    assert "group='mol_*' joins them" in told
    ds = labeled.open_dataset(tmp_path / "groups.h5", examples=pattern_in(told))
    assert [e.shape for e in ds["positions"][range(8)]] == shapes
    np.testing.assert_array_equal(ds["energy"], np.arange(3) + np.arange(8)[:, None])

    told = advice(tmp_path / "sets.h5")
    assert "60 datasets alike, 'img_000' to 'img_059'" in told
    ds = labeled.open_dataset(tmp_path / "sets.h5", examples=pattern_in(told))
    np.testing.assert_array_equal(ds["x"][:, 0, 0], np.arange(60))


def test_arrays_by_id_are_reported_whatever_they_are_called_and_columns_are_not(tmp_path):
    """Waves called after stations had one warning of axes that named twelve of them."""
    names = [f"{station}.{network}_{i}" for i in range(8) for station in "ABC" for network in "XYZ"]
    with h5py.File(tmp_path / "waves.h5", "w") as f, h5py.File(tmp_path / "table.h5", "w") as g:
        for name in names:
            f[f"data/{name}"], g[f"data/{name}"] = np.zeros((6, 3)), np.zeros(6)
    told = advice(tmp_path / "waves.h5")
    assert "holds 72 datasets alike" in told
    assert "does not name every axis" not in told
    assert advice(tmp_path / "table.h5") == ""


def test_values_of_opaque_bytes_are_left_out_with_a_remedy_that_works(tmp_path):
    """Pictures kept as np.void: nothing opened, and nothing said what to do."""
    encoded = [bytes([255, 216, i, 0, 0])[: 3 + i % 3] for i in range(60)]
    with h5py.File(tmp_path / "void.h5", "w") as f:
        for i, one in enumerate(encoded):
            f[f"pictures/{i}"] = np.void(one)
        f["version"] = np.void(b"1")
    ds = labeled.open_dataset(tmp_path / "void.h5")
    with pytest.raises(FileFormatError, match=r"opaque.*examples='PATTERN' opens many such values"):
        labeled.open_dataset(tmp_path / "void.h5", sources=["pictures/7"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabeledWarning)
        made = labeled.open_dataset(tmp_path / "void.h5", examples="pictures/*")
    rows = made["pictures"][range(60)].to_objects()
    assert [np.asarray(one).tobytes() for one in rows] == encoded
    with pytest.raises(LoaderError, match=r"void\.h5' has no source to make batches of; print"):
        ds.batches(4)


@pytest.mark.parametrize("parent", ["", "data/"])
def test_the_group_that_a_warning_names_opens_alone(tmp_path, parent):
    with h5py.File(tmp_path / "g.h5", "w") as f:
        for split, n in {"test": 3, "train": 9, "val": 2}.items():
            f[f"{parent}{split}/x"], f[f"{parent}{split}/y"] = np.zeros((n, 4)), np.arange(n)

    told = advice(tmp_path / "g.h5")
    assert f"group='{parent}*' joins them" in told
    assert f"group='{parent}test' opens one of them" in told
    one = labeled.open_dataset(tmp_path / "g.h5", group=f"{parent}test", sources=["y"])
    assert one.n_rows == 3


def test_commands_take_a_group(demos, tmp_path):
    path, wanted = demos
    run = CliRunner()

    told = run.invoke(main, ["info", str(path), "--group", "data/demo_*", "--json"])
    (facts,) = json.loads(told.stdout)
    assert facts["sources"]["actions"]["shape"] == list(wanted["actions"].shape)
    assert facts["sources"]["actions"]["n_bytes"] == wanted["actions"].nbytes
    shown = run.invoke(main, ["head", str(path), "actions", "--group", "data/demo_*", "--json"])
    assert json.loads(shown.stdout)["actions"] == wanted["actions"][:5].tolist()
    made = [str(tmp_path / "new.hdf5"), "--group", "data/demo_*", "--keep-together", "nothing"]
    done = run.invoke(main, ["convert", str(path), *made, "--split", "a=0.5"])
    assert "--keep-together nothing is not a source" in done.stderr
    assert not run.invoke(main, ["convert", str(path), *made[:3]]).exit_code
    np.testing.assert_array_equal(labeled.open_dataset(made[0])["actions"], wanted["actions"])
    assert "--group 'data/demo_*' joins" in run.invoke(main, ["info", str(path)]).stderr


def test_sources_in_groups_are_written_as_netcdf_once_they_are_renamed(tmp_path):
    arrays = {"a/x": np.zeros((4, 2)), "b/x": np.arange(12.0).reshape(4, 3)}
    with h5py.File(tmp_path / "x.h5", "w") as f:
        for name, values in arrays.items():
            f[name] = values
    ds = labeled.open_dataset(tmp_path / "x.h5", dims=dict.fromkeys(arrays, ("batch", "k")))
    with pytest.warns(LabeledWarning, match=r"'k'.* different lengths .*'b/x'"):
        found = ds.to_xarray()
    found = found.rename({name: name.replace("/", "_") for name in found.variables})
    found.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    written = xr.open_dataset(tmp_path / "x.nc", engine="h5netcdf")
    for name, values in arrays.items():
        np.testing.assert_array_equal(written[name.replace("/", "_")], values)
