"""The laws of `labeled.testing.WriterTests`, for every way in which files are written here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - registers zstd and lz4 with HDF5
import numpy as np
import xarray as xr

import labeled
from labeled.testing import WriterTests


class PlainTests(WriterTests):
    """These files are read by plain h5py and by h5netcdf, too, and carry checksums."""

    def check(self, path: Path, sources: Mapping[str, Any]) -> Any:
        dense = {name: array for name, array in sources.items() if not isinstance(array, list)}
        with h5py.File(path) as file:
            for name, array in dense.items():
                found = file[name].asstr()[...] if array.dtype == object else file[name][...]
                np.testing.assert_array_equal(found, array)
        if not any("/" in name for name in sources):
            with xr.open_dataset(path, engine="h5netcdf") as netcdf:
                for name, array in dense.items():
                    np.testing.assert_array_equal(netcdf[name].values, array)
        assert labeled.verify(path).sound
        return super().check(path, sources)


class TestWrite(PlainTests):
    options: Mapping[str, Any] = {}

    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.write(path, sources, splits, overwrite=True, **self.options)


class TestWriteInChunks(TestWrite):
    options: Mapping[str, Any] = {"compression": "gzip", "chunks": 7}


class TestWriteZstd(TestWrite):
    options: Mapping[str, Any] = {"compression": "zstd"}


class TestWriteLz4(TestWrite):
    options: Mapping[str, Any] = {"compression": "lz4", "chunks": 17}


class TestWriteForFuel(TestWrite):
    """Rows of variable length, which h5netcdf does not know."""

    options: Mapping[str, Any] = {"ragged": "fuel", "netcdf": False, "layout": "chunked"}

    def check(self, path: Path, sources: Mapping[str, Any]) -> Any:
        return WriterTests.check(self, path, sources)


class TestBatches(PlainTests):
    """Rows that come batch by batch."""

    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        n_rows = len(next(iter(sources.values())))
        if splits is not None:
            splits = {name: np.arange(n_rows)[rows] for name, rows in splits.items()}
        labeled.write(path, batches(sources, n_rows), splits, overwrite=True)


def batches(sources: Mapping[str, Any], n_rows: int) -> Iterator[dict[str, Any]]:
    given = {
        name: labeled.Ragged.of(values) if isinstance(values, list) else values
        for name, values in sources.items()
    }
    start = 0
    for size in itertools.cycle([7, 1, 0, 700]):
        rows = slice(start, min(start + size, n_rows))
        yield {name: values[rows] for name, values in given.items()}
        start = rows.stop
        if start == n_rows:
            return


class TestAppend(PlainTests):
    """Half of the rows are there, the others are added."""

    options: Mapping[str, Any] = {"layout": "chunked"}
    splits = False

    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        n_rows = len(next(iter(sources.values())))
        some, others = (
            {name: values[rows] for name, values in sources.items()}
            for rows in (slice(n_rows // 2), slice(n_rows // 2, n_rows))
        )
        labeled.write(path, ragged(some), overwrite=True, **self.options)
        labeled.append(path, ragged(others))

    def change(self, path: Path, sources: Any) -> None:
        labeled.append(path, sources)


def ragged(sources: Mapping[str, Any]) -> dict[str, Any]:
    """Take lists for examples of different shapes, whether a few of them are alike or not."""
    out = dict(sources)
    for name, values in sources.items():
        if isinstance(values, list):
            out[name] = np.empty(len(values), object)
            for row, one in enumerate(values):
                out[name][row] = one
    return out


class TestAppendToContiguous(TestAppend):
    options: Mapping[str, Any] = {}


class TestRepack(PlainTests):
    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.write(path.with_suffix(".first"), sources, splits)
        try:
            labeled.repack(path.with_suffix(".first"), path, compression="gzip", overwrite=True)
        finally:
            path.with_suffix(".first").unlink()


class TestConvert(PlainTests):
    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.convert(sources, path, split=splits, overwrite=True)


class TestConvertAFile(PlainTests):
    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.write(path.with_suffix(".first"), sources, splits)
        try:
            labeled.convert(path.with_suffix(".first"), path, chunks=5, overwrite=True)
        finally:
            path.with_suffix(".first").unlink()
