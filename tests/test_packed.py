"""Packed variables (scale, offset, fill values): what is written of them, against xarray."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.cli.main import main
from labeled.errors import ArrayError

ENGINES = {"h5netcdf": "x.nc", "scipy": "x.nc", "zarr": "x.zarr"}


def save(folder: Path, engine: str, variables: dict[str, Any]) -> Path:
    """Write raw numbers and attributes as another program would."""
    path = folder / ENGINES[engine]
    dataset = xr.Dataset(variables)
    if engine == "zarr":
        dataset.to_zarr(path, mode="w", consolidated=False)
    else:
        dataset.to_netcdf(path, engine=engine)
    return path


def stored_statistics(path: Any) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["info", "--json", str(path)])
    return json.loads(done.output)[0]["statistics"]


def check(told: dict[str, Any], values: Any) -> None:
    """Compare statistics with those of NumPy."""
    finite = values[np.isfinite(values)].astype(np.float64)
    assert told["n_rows"] == len(values)
    assert (told["n_values"], told["not_finite"]) == (finite.size, values.size - finite.size)
    for name in ("mean", "std", "min", "max"):
        wanted = getattr(np, name)(finite) if finite.size else None
        assert told[name] == (None if wanted is None else pytest.approx(wanted, abs=1e-9)), name


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=12, deadline=None)
@given(
    dtype=st.sampled_from(["i1", "u1", "i2", "i4"]),
    packing=st.fixed_dictionaries(
        {},
        optional={
            "scale_factor": st.sampled_from([0.25, np.float32(0.01), 3.0]),
            "add_offset": st.sampled_from([5.0, np.float32(-2.5)]),
        },
    ),
    fill=st.sampled_from([None, 0, 7]),
    splits=st.booleans(),
    seed=st.integers(0, 5),
)
def test_stored_statistics_are_those_of_decoded_values(
    tmp_path_factory: Any, engine: str, dtype: str, packing: Any, fill: Any, splits: bool, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    dtype = "i1" if engine == "scipy" and dtype == "u1" else dtype  # netCDF-3 has no u1
    raw = np.random.default_rng(seed).integers(0, 100, (30, 4)).astype(dtype)
    attrs = packing if fill is None else {**packing, "_FillValue": np.dtype(dtype).type(fill)}
    path = save(folder, engine, {"u": (("batch", "x"), raw, attrs)})
    values = xr.open_dataset(path, engine=engine, **opening(engine)).u.values

    rules = {"train": (0, 20), "test": (20, 30)} if splits else None
    made = labeled.convert(origin(path, engine), folder / "made.hdf5", split=rules)

    ds = labeled.open_dataset(made)
    np.testing.assert_array_equal(ds["u"].values, values)
    assert ds["u"].dtype == values.dtype
    check(stored_statistics(made)["u"]["rows"], values)
    check(ds.statistics("u"), values)
    if splits:
        check(stored_statistics(made)["u"]["splits"]["train"], values[:20])
        check(ds.split("test").statistics("u"), values[20:])
    check(labeled.open_dataset(made, decode_cf=False).statistics("u"), raw)


def origin(path: Path, engine: str) -> Any:
    """What is converted: netCDF-3 is opened by xarray."""
    return xr.open_dataset(path, engine=engine, decode_cf=False) if engine == "scipy" else path


def opening(engine: str) -> dict[str, Any]:
    return {"consolidated": False} if engine == "zarr" else {}


def test_rows_appended_to_a_packed_file_are_measured_decoded(tmp_path: Path) -> None:
    raw = np.arange(12, dtype="i2").reshape(6, 2)
    attrs = {"scale_factor": 0.5, "_FillValue": np.int16(3)}
    path = save(tmp_path, "h5netcdf", {"u": (("batch", "x"), raw, attrs)})
    made = labeled.convert(path, tmp_path / "made.hdf5", chunks=4, compression="gzip")
    labeled.append(made, {"u": raw + np.int16(1)})
    labeled.append(made, {"u": raw})
    whole = np.concatenate([raw, raw + 1, raw])
    labeled.repack(made, tmp_path / "repacked.hdf5", layout="contiguous")
    for path in (made, tmp_path / "repacked.hdf5"):
        check(stored_statistics(path)["u"]["rows"], np.where(whole == 3, np.nan, whole * 0.5))


@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_decoded_rows_are_not_taken_for_packed_ones(tmp_path: Path, dtype: str) -> None:
    """What append took as it came would be decoded once more when it is read."""
    raw, packing = np.arange(6, dtype=dtype), {"scale_factor": 0.5, "add_offset": 10.0}
    packed = save(tmp_path, "h5netcdf", {"u": (("batch",), raw, packing)})
    plain = labeled.write(tmp_path / "plain.hdf5", {"u": raw.astype("f8")})
    decoded, stored = (labeled.open_dataset(packed, decode_cf=cf) for cf in (True, False))
    values = decoded["u"].values
    differ = r"with no packing, but .* with scale_factor=0.5, add_offset=10.0; .*decode_cf=False"
    for rows in (decoded, {"u": values}, decoded.to_xarray().load()):
        with pytest.raises(ArrayError, match=differ):
            labeled.append(packed, rows)
    with pytest.raises(
        ArrayError, match=r"with scale_factor=0.5, add_offset=10.0, but .* with none"
    ):
        labeled.append(plain, stored)

    labeled.append(plain, decoded)
    np.testing.assert_array_equal(labeled.open_dataset(plain)["u"], np.r_[raw, values])
    labeled.append(packed, stored)
    np.testing.assert_array_equal(labeled.open_dataset(packed)["u"], np.r_[values, values])


@pytest.mark.parametrize("engine", ENGINES)
def test_fill_values_are_those_of_the_original_in_the_dtype_of_the_variable(
    tmp_path: Path, engine: str
) -> None:
    values = np.random.default_rng(0).normal(size=(8, 3))
    dataset = xr.Dataset(
        {
            "packed": (("batch", "x"), values),
            "without": (("batch", "x"), np.arange(24, dtype="i2").reshape(8, 3)),
            "single": ("batch", np.arange(8, dtype="f4")),
        },
        coords={"x": np.arange(3, dtype="i2")},
    )
    packing = {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -999}
    encoding: Any = {"packed": packing, "single": {"_FillValue": np.float32(-1)}}
    path = tmp_path / ENGINES[engine]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr calls its own format unfinished
        if engine == "zarr":
            dataset.to_zarr(path, encoding=encoding, consolidated=False)
        else:
            dataset.to_netcdf(path, engine=engine, encoding=encoding)
        original = xr.open_dataset(path, engine=engine, decode_cf=False, **opening(engine))
    made = labeled.convert(origin(path, engine), tmp_path / "made.hdf5")
    with h5py.File(made) as f:
        for name, variable in original.variables.items():
            found = f[str(name)].attrs.get("_FillValue")
            assert (found is not None) == ("_FillValue" in variable.attrs), name
            if found is not None:
                assert found.dtype == f[str(name)].dtype.newbyteorder("="), name
                assert found == variable.attrs["_FillValue"], name


@pytest.mark.parametrize("alike", [True, False])
def test_files_that_are_packed_differently_are_converted_decoded(
    tmp_path: Path, alike: bool
) -> None:
    """As files of a year each are, whose packing fits the values of that year."""
    values = np.random.default_rng(0).normal(size=(9, 2))
    for year in (0, 1, 2):
        day = np.datetime64("2000-01-01", "ns") + (year * 366 + np.arange(3)).astype("m8[D]")
        part = xr.Dataset({"u": (("time", "x"), values[3 * year :][:3])}, {"time": day})
        factor = 1 if alike else year + 1
        packing = {"dtype": "i2", "scale_factor": 0.001 * factor, "_FillValue": -999}
        times = {"units": f"days since {1999 + factor}-01-01", "dtype": "i4"}
        encoding: Any = {"u": packing, "time": times}
        part.to_netcdf(tmp_path / f"{year}.nc", engine="h5netcdf", encoding=encoding)
    files = str(tmp_path / "?.nc")
    joined = labeled.open_dataset(files).to_xarray()

    made = labeled.open_dataset(labeled.convert(files, tmp_path / "made.hdf5"))

    xr.testing.assert_equal(made.to_xarray(), joined)
    np.testing.assert_allclose(made["u"], values, atol=0.002)
    stored = labeled.open_dataset(tmp_path / "made.hdf5", decode_cf=False)["u"]
    assert stored.dtype == (np.int16 if alike else np.float64)
