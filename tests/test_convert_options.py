"""Options of `convert`: what means nothing for an origin is refused, never passed over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import labeled
from labeled.errors import LabeledError, OptionError, WriteError

X = np.arange(6.0)


@pytest.fixture
def origins(tmp_path: Path) -> dict[str, Any]:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", x=X)
    labeled.write(tmp_path / "x.h5", {"x": X})
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    pd.DataFrame({"x": X}).to_parquet(tmp_path / "x.parquet")
    paths = {name: tmp_path / f"x.{name}" for name in ("npy", "npz", "h5", "csv", "parquet")}
    return paths | {
        "arrays": {"x": X},
        "frame": pd.DataFrame({"x": X}),
        "xarray": xr.Dataset({"x": ("batch", X)}),
        "labeled": labeled.open_dataset(paths["h5"]),
    }


KINDS = ("npy", "npz", "h5", "csv", "parquet", "arrays", "frame", "xarray", "labeled")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "option", [{"splits": {"train": 0.5}}, {"nonsense": 1}, {"columns": {"y": ["x"]}}]
)
def test_what_means_nothing_is_refused(
    tmp_path: Path, origins: dict[str, Any], kind: str, option: dict[str, Any]
) -> None:
    if "columns" in option and kind in ("frame", "csv", "parquet"):
        return  # tables have columns: the next test
    words = "did you mean 'split'" if "splits" in option else f"{next(iter(option))}(=|')"
    with pytest.raises(OptionError, match=words):
        labeled.convert(origins[kind], tmp_path / "new.h5", **option)
    assert not (tmp_path / "new.h5").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_columns_of_tables_are_put_side_by_side(
    tmp_path: Path, origins: dict[str, Any], kind: str
) -> None:
    column = "a" if kind == "csv" else "x"
    path = labeled.convert(origins[kind], tmp_path / "new.h5", columns={"y": [column]})
    dataset = labeled.open_dataset(path)
    assert "y" in dataset.sources
    np.testing.assert_array_equal(np.ravel(dataset["y"].values), [1, 3] if kind == "csv" else X)


@pytest.mark.parametrize(
    ("sources", "options"),
    [
        ({"e": np.zeros(3, [("x", "f4")]), "e/x": np.zeros(3)}, {}),
        ({"x": np.zeros(3), "x/y": np.zeros(3)}, {}),
        ({"x": np.zeros(3)}, {"splits": {"train": (0, 4)}}),
        ({"x": np.zeros(3)}, {"dims": {"z": ("batch",)}}),
        ({"x": np.zeros((3, 3))}, {"dims": {"x": ("batch", "batch")}}),
        ({"x": np.zeros(3)}, {"chunks": -1}),
        ({"x": np.array(["a", 1], object)}, {}),
        ([{"x": np.zeros(3)}, {"x": np.zeros((3, 2))}], {}),
    ],
    ids=["fields", "inside", "split", "unknown", "dims", "chunks", "texts", "batches"],
)
def test_what_cannot_be_written_names_the_file(
    tmp_path: Path, sources: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(LabeledError, match=r"nothing was written to '.*new\.h5'"):
        labeled.write(tmp_path / "new.h5", sources, **options)
    assert not list(tmp_path.iterdir())


def test_names_of_targets(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"cannot write 'a\\x00b': a null byte"):
        labeled.write("a\0b", {"x": X})
    name = os.fsencode(tmp_path / "größe.hdf5")
    path = labeled.convert({"x": X}, name)
    np.testing.assert_array_equal(labeled.open_dataset(path)["x"], X)
    path = labeled.write(os.fsencode(tmp_path / "größe.h5"), {"x": X})
    assert path == str(tmp_path / "größe.h5")


def test_options_of_opening_are_known_to_converting(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text("a;b\n1;2\n3;4\n")
    path = labeled.convert(tmp_path / "numbers", tmp_path / "n.h5", format="csv", delimiter=";")
    assert labeled.open_dataset(path)["features"].values.tolist() == [[1, 2], [3, 4]]
