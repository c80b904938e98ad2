"""The laws of readers, over every format that opens, joined files, and rows in memory."""

from __future__ import annotations

import doctest
import gzip
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.formats.recordio.writing import write_records
from labeled.testing import ReaderTests

VALUES = np.random.default_rng(0).integers(0, 99, (211, 5, 6)).astype("f4")


def source_of(path, name="x", **options):
    """Return the reader of one source of a file."""
    return labeled.open_dataset(path, **options)._sources[name].reader()


def hdf5(folder, values=VALUES, name="x.h5", **stored):
    with h5py.File(folder / name, "w") as file:
        file.create_dataset("x", data=values, **stored)
        for axis, label in enumerate(("batch", "row", "column")):
            file["x"].dims[axis].label = label
    return folder / name


def idx(folder, *, packed):
    data = bytes([0, 0, 0x0D, 3]) + np.array(VALUES.shape, ">u4").tobytes()
    data += VALUES.astype(">f4").tobytes()
    path = folder / ("x-idx3-float.gz" if packed else "x-idx3-float")
    path.write_bytes(gzip.compress(data) if packed else data)
    return source_of(path, "data")


def text(folder):
    pytest.importorskip("pyarrow")
    rows = VALUES.reshape(len(VALUES), -1).astype("f8")
    lines = [",".join(f"c{i}" for i in range(rows.shape[1]))]
    lines += [",".join(map(repr, row)) for row in rows.tolist()]
    (folder / "x.csv").write_text("\n".join(lines))
    return source_of(folder / "x.csv", "features"), rows


def in_blocks(array):
    """Return what reads the blocks of a dask array."""
    labelled = xr.DataArray(array, dims=("n", "a", "b"), name="x")
    (source_reader,) = labeled.batches(labelled, 8, dim="n").plan.source_readers
    return source_reader.reader


CASES = {
    "contiguous": lambda f: source_of(hdf5(f)),
    "big-endian": lambda f: source_of(hdf5(f, VALUES.astype(">f4"))),
    "chunks": lambda f: source_of(hdf5(f, chunks=(8, 5, 6))),
    "chunks, no maps": lambda f: source_of(hdf5(f, chunks=(8, 5, 6)), io="pread"),
    "tiles": lambda f: source_of(hdf5(f, chunks=(8, 2, 4))),
    "gzip": lambda f: source_of(hdf5(f, chunks=(8, 5, 6), compression="gzip", shuffle=True)),
    "gzip, tiles": lambda f: source_of(hdf5(f, chunks=(8, 2, 4), compression="gzip")),
    "h5py": lambda f: source_of(hdf5(f, chunks=(8, 5, 6), compression="szip")),
    "files": lambda f: source_of(
        [hdf5(f, VALUES[:50], "a.h5"), hdf5(f, VALUES[50:], "b.h5", chunks=(7, 5, 6))]
    ),
    "idx": lambda f: idx(f, packed=False),
    "idx, gzip": lambda f: idx(f, packed=True),
    "memory": lambda f: labeled.open_dataset(hdf5(f)).load()._sources["x"].reader(),
    "dask": lambda f: in_blocks(da.from_array(VALUES, chunks=(40, 5, 3))),
}


class TestReaders(ReaderTests):
    @pytest.fixture(params=sorted(CASES))
    def reader(self, request, tmp_path):
        if request.param == "h5py" and not h5py.h5z.filter_avail(4):
            pytest.skip("this HDF5 has no szip")
        return CASES[request.param](tmp_path)

    @pytest.fixture
    def values(self):
        return VALUES


class TestText(ReaderTests):
    @pytest.fixture
    def case(self, tmp_path):
        return text(tmp_path)

    @pytest.fixture
    def reader(self, case):
        return case[0]

    @pytest.fixture
    def values(self, case):
        return case[1]


class TestPictures(ReaderTests):
    images = np.random.default_rng(1).integers(0, 256, (40, 6, 9, 3), np.uint8)

    @pytest.fixture
    def values(self):
        return self.images

    @pytest.fixture
    def reader(self, tmp_path):
        write_records(tmp_path / "x.rec", self.images, labels=range(40), format=".png")
        return source_of(tmp_path / "x.rec", "images")


DOCUMENTED: dict[str, Any] = {"__name__": __name__}
exec(
    "\n".join(part.source for part in doctest.DocTestParser().get_examples(ReaderTests.__doc__)),
    DOCUMENTED,
)
NpyReader, TestNpyReader = DOCUMENTED["NpyReader"], DOCUMENTED["TestNpyReader"]
