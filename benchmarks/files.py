"""The files that are measured: made once with h5py alone, kept in a folder between runs.

Every row begins with its own number, as an unsigned 32-bit integer (as a float in files of
floats), so that whatever a loader delivers tells which rows it is: order, repeats and the
labels in a batch are read off the batches themselves. Rows are sorted by label in every file:
the worst case for a shuffle that reads neighbours together.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import numpy.typing as npt

import labeled
from benchmarks.subject import Batch, Subject

Array = npt.NDArray[Any]

VERSION = 3
"""Raise it when files of the same name get other contents."""

CLASSES = 10
POOL_ROWS = 4096
GOOD_NAME = "features"
MEMORY = "64 MiB"
"""What this library is given, and others where they can be told."""


@dataclass(frozen=True)
class FileSpec:
    """What a file holds; its name says all of it.

    Parameters
    ----------
    values : str
        "random", "noisy" (as photographs are), "digits" (mostly empty), "floats" or "none".
    chunk_rows : int, optional
        Rows of a stored chunk; contiguous when None.
    codec : str, optional
        "gzip" or "zstd".
    byte_shuffle : bool
        Put HDF5's shuffle filter in front of the codec.
    """

    name: str
    n_rows: int
    row_shape: tuple[int, ...]
    dtype: str = "u1"
    values: str = "random"
    chunk_rows: int | None = None
    codec: str | None = None
    byte_shuffle: bool = False

    @property
    def row_bytes(self) -> int:
        return math.prod(self.row_shape) * np.dtype(self.dtype).itemsize

    @property
    def n_bytes(self) -> int:
        return self.n_rows * self.row_bytes

    @property
    def labels(self) -> Array:
        """The class of every row: sorted, equally many of each."""
        return np.arange(self.n_rows) * CLASSES // self.n_rows


@dataclass(frozen=True)
class BenchFile:
    """A file that is there, and what it holds."""

    path: Path
    spec: FileSpec

    @property
    def ratio(self) -> float:
        """Bytes of rows for each byte stored."""
        return self.spec.n_bytes / self.path.stat().st_size

    def subject(self, batch_rows: int, memory: str = MEMORY) -> Subject:
        """Return the rows as what all ways read."""
        data = labeled.open_dataset(str(self.path)).select(GOOD_NAME)
        return Subject(
            data, str(self.path), GOOD_NAME, batch_rows, memory, self.spec.labels, numbers_of
        )


IMAGE = (3, 32, 32)


def image_specs(scale: int) -> list[FileSpec]:
    """Return the files of images; `scale` divides their numbers of rows."""
    many, some = 262_144 // scale, 131_072 // scale
    packed: dict[str, Any] = {"chunk_rows": 64, "codec": "gzip", "byte_shuffle": True}
    return [
        FileSpec("contiguous", many, IMAGE),
        FileSpec("chunked", some, IMAGE, chunk_rows=64),
        FileSpec("gzip-noisy", some, IMAGE, values="noisy", **packed),
        FileSpec("gzip-digits", some, IMAGE, values="digits", **packed),
        FileSpec("gzip-floats", some // 4, IMAGE, "f4", "floats", **packed),
        FileSpec("zstd-digits", some, IMAGE, values="digits", chunk_rows=64, codec="zstd"),
    ]


def other_specs(scale: int) -> list[FileSpec]:
    """Return files of very large and very small rows, and those that only planning opens."""
    return [
        FileSpec("large-rows", 512 // scale, (3, 592, 592)),
        FileSpec("small-rows", 8_388_608 // scale, (64,)),
        FileSpec("tiny-rows", 8_388_608 // scale, (16,)),
    ]


def make(spec: FileSpec, folder: Path) -> BenchFile:
    """Return the file of a spec, made now if it is not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{spec.name}-{spec.n_rows}-v{VERSION}.hdf5"
    if not path.exists():
        making(path, lambda part: _write(spec, part))
    return BenchFile(path, spec)


def making(path: Path, write: Callable[[Path], None]) -> None:
    """Write to another name first, so that an interrupted run leaves no half file."""
    part = path.with_suffix(".part")
    write(part)
    os.replace(part, path)


def _write(spec: FileSpec, path: Path) -> None:
    options: dict[str, Any] = {}
    if spec.chunk_rows is not None:
        options["chunks"] = (spec.chunk_rows, *spec.row_shape)
    if spec.byte_shuffle:
        options["shuffle"] = True
    if spec.codec == "gzip":
        options["compression"] = "gzip"
    elif spec.codec == "zstd":
        options |= hdf5plugin.Zstd(clevel=3)
    with h5py.File(path, "w") as file:
        shape = (spec.n_rows, *spec.row_shape)
        features = file.create_dataset(GOOD_NAME, shape, spec.dtype, **options)
        for start, block in _blocks(spec):
            features[start : start + len(block)] = block
        file["targets"] = spec.labels.astype(np.uint8)
        for name in (GOOD_NAME, "targets"):
            file[name].dims[0].label = "batch"
        for axis, label in enumerate(("channel", "height", "width"), start=1):
            if len(spec.row_shape) == 3:
                features.dims[axis].label = label


def _blocks(spec: FileSpec) -> Iterator[tuple[int, Array]]:
    """Yield (first row, values) until every row is given; values repeat after some thousands."""
    pool_rows = max(1, min(spec.n_rows, POOL_ROWS, (64 << 20) // spec.row_bytes))
    if spec.row_bytes < 256:
        pool_rows = min(spec.n_rows, 1 << 20)
    pool = _values(spec, pool_rows)
    for start in range(0, spec.n_rows, pool_rows):
        block = pool[: min(pool_rows, spec.n_rows - start)].copy()
        _number(block, start)
        yield start, block


def _values(spec: FileSpec, n: int) -> Array:
    random = np.random.default_rng(11)
    shape = (n, *spec.row_shape)
    if spec.values == "random":
        return random.integers(0, 256, shape, np.uint8)
    if spec.values == "floats":
        return random.standard_normal(shape, np.float32).astype(np.float16).astype(np.float32)
    noisy = np.clip(random.normal(128, 28, shape), 0, 255).astype(np.uint8)
    if spec.values == "noisy":
        return noisy
    strokes = np.repeat(random.random((*shape[:-1], shape[-1] // 8)) < 0.3, 8, axis=-1)
    return (noisy // 16 * 16 * strokes).astype(np.uint8)


def _number(block: Array, start: int) -> None:
    """Write the number of each row over the first bytes of it."""
    flat = block.reshape(len(block), -1)
    numbers = np.arange(start, start + len(block))
    if block.dtype == np.float32:
        flat[:, 0] = numbers
    else:
        flat[:, :4] = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)


def row_numbers(batch: Array) -> npt.NDArray[np.int64]:
    """Read off a batch which rows of the file it holds."""
    flat = np.ascontiguousarray(batch).reshape(len(batch), -1)
    if batch.dtype == np.float32:
        return flat[:, 0].astype(np.int64)
    return np.ascontiguousarray(flat[:, :4]).view("<u4").reshape(-1).astype(np.int64)


def numbers_of(batch: Batch) -> npt.NDArray[np.int64]:
    return row_numbers(batch[0])


def million_chunks(folder: Path, n: int) -> Path:
    """Make a file of `n` chunks of one small row each."""
    path = folder / f"chunks-{n}-v{VERSION}.hdf5"

    def write(part: Path) -> None:
        with h5py.File(part, "w", libver=("v110", "v114")) as file:
            x = file.create_dataset(GOOD_NAME, (n, 8), "u1", chunks=(1, 8))
            row = bytes(8)
            for i in range(n):
                x.id.write_direct_chunk((i, 0), row)

    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        making(path, write)
    return path


def many_rows(folder: Path, n: int) -> Path:
    """Make a file of `n` rows that takes no room on disk, with a split in the Fuel table."""
    path = folder / f"rows-{n}-v{VERSION}.hdf5"

    def write(part: Path) -> None:
        with h5py.File(part, "w") as file:
            kept = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            kept.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            kept.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            space = h5py.h5s.create_simple((n, 16))
            h5py.h5d.create(file.id, GOOD_NAME.encode(), h5py.h5t.NATIVE_UINT8, space, kept)
            file.attrs["split"] = _split_table(n)

    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        making(path, write)
    return path


def _split_table(n: int) -> Array:
    table = np.zeros(
        2,
        [
            ("split", "S5"),
            ("source", f"S{len(GOOD_NAME)}"),
            ("start", np.int64),
            ("stop", np.int64),
            ("indices", h5py.ref_dtype),
            ("available", bool),
            ("comment", "S1"),
        ],
    )
    cut = n * 4 // 5
    for row, (name, start, stop) in zip(
        table, ((b"train", 0, cut), (b"test", cut, n)), strict=True
    ):
        row["split"], row["source"], row["start"], row["stop"] = name, GOOD_NAME, start, stop
        row["indices"], row["available"] = h5py.Reference(), True
    return table
