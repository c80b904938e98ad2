"""Names that promise another kind of file than HDF5 are refused, before any work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import labeled
from labeled.cli.main import main
from labeled.errors import WriteError


@pytest.mark.parametrize("name", ["x.json", "x.ZARR", "x.mat", "x.tsv"])
def test_hdf5_is_not_written_under_names_of_other_kinds(tmp_path: Path, name: str) -> None:
    array = tmp_path / "a.npy"
    np.save(array, np.arange(5))
    good = labeled.write(tmp_path / "good.hdf5", {"x": np.arange(5)})
    for write in (
        lambda: labeled.write(tmp_path / name, {"x": np.arange(5)}),
        lambda: labeled.convert(array, tmp_path / name),
        lambda: labeled.repack(good, tmp_path / name),
    ):
        with pytest.raises(WriteError, match=r"HDF5.*use '.*x\.hdf5'"):
            write()
    refused = CliRunner().invoke(main, ["convert", str(array), str(tmp_path / name)])
    assert refused.exit_code == 1
    assert "HDF5" in refused.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "good.hdf5"]


def test_what_convert_writes_is_named_with_it(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"labeled\.convert makes record files"):
        labeled.write(tmp_path / "x.rec", {"x": np.arange(5)})


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv", ".zarr"])
def test_what_xarray_writes_is_left_to_it(tmp_path: Path, ending: str) -> None:
    good = labeled.write(tmp_path / "good.hdf5", {"x": np.arange(5)})
    with pytest.raises(WriteError, match=r"HDF5.*to_xarray\(\)"):
        labeled.convert(good, tmp_path / f"x{ending}")


@pytest.mark.parametrize("name", ["x", "x.h5", "x.nc", "x.of_my_own", "x.2024"])
def test_names_of_ones_own_are_fine(tmp_path: Path, name: str) -> None:
    path = labeled.write(tmp_path / name, {"x": np.arange(5)})
    assert len(labeled.open_dataset(path)) == 5
