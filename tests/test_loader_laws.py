"""The laws of batches, over every format that opens."""

from __future__ import annotations

import gzip
import struct
from functools import cache
from typing import ClassVar

import h5py
import numpy as np
import pytest
from ragged_files import ragged_path

import labeled
from labeled.device import Device
from labeled.formats.recordio.writing import write_records
from labeled.testing import LoaderTests, RaggedTests

N = 203
RNG = np.random.default_rng(5)
IMAGES = RNG.integers(
    0, 256, (N, 3, 80, 100), "u1"
)  # within 12 MiB they are read anew in every epoch
TARGETS = RNG.integers(0, 10, (N, 1), "u1")
DIMS = {"images": ("batch", "channel", "height", "width"), "targets": ("batch", "index")}


class Images(LoaderTests):
    """Images and labels in HDF5, stored in one way or another."""

    stored: ClassVar[dict[str, object]] = {}

    def make(self, folder):
        with h5py.File(folder / "d.hdf5", "w") as file:
            file.create_dataset("images", data=IMAGES, **self.stored)
            file["targets"] = TARGETS
            for name, labels in DIMS.items():
                for axis, label in enumerate(labels):
                    file[name].dims[axis].label = label
        return labeled.open_dataset(folder / "d.hdf5")

    def expected(self):
        return {"images": IMAGES, "targets": TARGETS}


class TestContiguous(Images):
    pass


class TestChunked(Images):
    stored: ClassVar = {"chunks": (8, 3, 80, 100)}


class TestTiled(Images):
    stored: ClassVar = {"chunks": (8, 1, 40, 100), "compression": "gzip"}


class TestGzip(Images):
    stored: ClassVar = {"chunks": (8, 3, 80, 100), "compression": "gzip", "shuffle": True}


class TestChosen(Images):
    """Rows listed in another order, some of them twice."""

    listed = RNG.integers(0, N, 180)
    images, targets = IMAGES[listed], TARGETS[listed]

    def make(self, folder):
        return super().make(folder).subset(self.listed)

    def expected(self):
        return {"images": self.images, "targets": self.targets}


class TestSeveralFiles(Images):
    def make(self, folder):
        for k, part in enumerate(np.split(np.arange(N), [60, 61, 150])):
            with h5py.File(folder / f"{k}.hdf5", "w") as file:
                file["images"], file["targets"] = IMAGES[part], TARGETS[part]
        return labeled.open_dataset(folder / "*.hdf5", dims=DIMS)


class TestLoaded(Images):
    def make(self, folder):
        return super().make(folder).load()


def idx(values):
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return head + values.tobytes()


class TestOnADevice(Images):
    """Rows that are kept on a device, where batches are gathered; here the host stands in."""

    def make(self, folder):
        return super().make(folder).load(device=Device())


class TestRecords(LoaderTests):
    """Pictures in a file of records, as PNG: what is decoded is what was there."""

    pictures = RNG.integers(0, 256, (150, 12, 9, 3), "u1")
    labels = np.arange(150, dtype="f4") % 10

    def make(self, folder):
        write_records(folder / "d.rec", self.pictures, labels=self.labels, format=".png")
        return labeled.open_dataset(folder / "d.rec").select("images", "labels")

    def expected(self):
        return {"images": self.pictures, "labels": self.labels}


class TestIdx(LoaderTests):
    pictures = IMAGES[:, 0]
    ending = ""

    def make(self, folder):
        for name, values in (("images-idx3", self.pictures), ("labels-idx1", TARGETS[:, 0])):
            packed = gzip.compress(idx(values), 1) if self.ending else idx(values)
            (folder / f"train-{name}-ubyte{self.ending}").write_bytes(packed)
        return labeled.open_dataset(folder)

    def expected(self):
        return {"images": self.pictures, "labels": TARGETS[:, 0]}


class TestPackedIdx(TestIdx):
    memories = ("64 MiB", "16 MiB")
    ending = ".gz"


class TestText(LoaderTests):
    values = np.round(RNG.standard_normal((N, 4)), 3)
    ending = ""

    def make(self, folder):
        lines = ["a,b,c,d,label"]
        for row, label in zip(self.values.tolist(), TARGETS[:, 0].tolist(), strict=True):
            lines.append(",".join(map(repr, row)) + f",{label}")
        text = "\n".join(lines).encode() + b"\n"
        path = folder / f"t.csv{self.ending}"
        path.write_bytes(gzip.compress(text) if self.ending else text)
        return labeled.open_dataset(path, labels="label")

    def expected(self):
        return {"features": self.values, "labels": TARGETS[:, 0]}


class TestPackedText(TestText):
    memories = ("64 MiB", "40 MiB")
    ending = ".gz"


@cache
def examples(n=N):
    """Arrays of 0 to 40 rows whose values are their row number, made once for all laws."""
    sizes = np.minimum(np.random.default_rng(5).geometric(0.15, (n, 2)) - 1, 40)
    return [np.full((2, h, w), i, np.int16) for i, (h, w) in enumerate(sizes)]


class TestRaggedFlat(RaggedTests):
    memories = ("64 MiB", "16 MiB")
    layout = "flat"
    options: ClassVar[dict[str, object]] = {}

    def make(self, folder):
        return labeled.open_dataset(
            ragged_path(folder / "r.h5", self.layout, self.expected()["x"], options=self.options)
        )

    def expected(self):
        return {"x": examples()}


class TestRaggedGzip(TestRaggedFlat):
    options: ClassVar = {"chunks": (500,), "compression": "gzip", "shuffle": True}


class TestRaggedFuel(TestRaggedFlat):
    layout = "fuel"


class TestRaggedVariableLength(TestRaggedFlat):
    layout = "vlen"

    def expected(self):
        return {"x": [example.reshape(-1) for example in examples()]}


class TestSparse(LoaderTests):
    """A matrix of AnnData, stored by rows; its rows become dense."""

    dense = np.where(RNG.random((N, 30)) < 0.2, RNG.integers(1, 9, (N, 30)), 0).astype("f4")

    def make(self, folder):
        scipy = pytest.importorskip("scipy.sparse")
        matrix = scipy.csr_matrix(self.dense)
        with h5py.File(folder / "cells.h5ad", "w") as file:
            group = file.create_group("X")
            group.attrs["encoding-type"], group.attrs["encoding-version"] = "csr_matrix", "0.1.0"
            group.attrs["shape"] = self.dense.shape
            for part in ("data", "indices", "indptr"):
                group[part] = getattr(matrix, part)
        return labeled.open_dataset(folder / "cells.h5ad", dims={"X": ("cell", "gene")})

    def expected(self):
        return {"X": self.dense}


class TestOneDatasetAnExample(LoaderTests):
    values = RNG.standard_normal((N, 3, 2))

    def make(self, folder):
        with h5py.File(folder / "each.h5", "w") as file:
            for i, value in enumerate(self.values):
                file[f"data/{i}"] = value
        dims = {"data": ("batch", "time", "feature")}
        return labeled.open_dataset(folder / "each.h5", examples="data/*", dims=dims)

    def expected(self):
        return {"data": self.values}
