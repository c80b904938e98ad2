"""Small HDF5 files of many layouts, and what h5py reads of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec
import h5py
import hdf5plugin
import numpy as np
from hypothesis import strategies as st

import labeled

DTYPES = ["u1", "?", "S3", "f2", ">i2", "<u4", ">f4", "<f8", "<c8", ">c16"]
COMPRESSIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "lzf": {"compression": "lzf"},
    "zstd": {**hdf5plugin.Zstd()},
    "lz4": {**hdf5plugin.LZ4(nbytes=32)},
    "blosc": {**hdf5plugin.Blosc(cname="lz4")},
    "bitshuffle": {**hdf5plugin.Bitshuffle()},
    "bitshuffle, zstd": {**hdf5plugin.Bitshuffle(cname="zstd")},
    "bitshuffle, no codec": {**hdf5plugin.Bitshuffle(cname="none", nelems=64)},
    "blosc2": {**hdf5plugin.Blosc2()},
    "blosc2, bits": {**hdf5plugin.Blosc2(cname="zstd", filters=hdf5plugin.Blosc2.BITSHUFFLE)},
    "bzip2": {**hdf5plugin.BZip2()},
}
BY_RANGE = {name for name in COMPRESSIONS if not name.startswith(("bzip2", "blosc2"))}

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Layout:
    """How one dataset is stored."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None = None
    compression: str = "none"
    shuffle: bool = False
    fletcher32: bool = False
    written: tuple[tuple[int, int], ...] = ((0, 1 << 40),)
    """Rows that are written; the others keep the fill value, or are never allocated."""
    fill: int = 0
    seed: int = 0
    userblock: int = 0


def values(layout: Layout) -> np.ndarray:
    """Return compressible values of any dtype, most of them different."""
    rng = np.random.default_rng(layout.seed)
    numbers = rng.integers(0, 100, layout.shape)
    if layout.dtype == "?":
        return numbers > 50
    if layout.dtype[0] == "S":
        return numbers.astype("S2").astype(layout.dtype)
    return numbers.astype(layout.dtype)


def write(folder: Path, layout: Layout) -> Path:
    """Write a file with one dataset, ``x``, among others."""
    path = folder / f"{next(_NUMBERS)}.h5"
    with h5py.File(path, "w", userblock_size=layout.userblock) as file:
        file["before"] = np.arange(7, dtype="u1")  # odd, so that nothing is aligned
        options = dict(COMPRESSIONS[layout.compression]) if layout.chunks else {}
        if layout.chunks:
            options["shuffle"] = layout.shuffle
            options["fletcher32"] = layout.fletcher32
            options["maxshape"] = (None,) * len(layout.shape)
        fill = np.array(layout.fill).astype(layout.dtype)[()] if layout.fill else None
        data = values(layout)
        dataset = file.create_dataset(
            "x", layout.shape, layout.dtype, chunks=layout.chunks, fillvalue=fill, **options
        )
        for start, stop in layout.written:
            if start < layout.shape[0]:
                dataset[start:stop] = data[start:stop]
    return path


def opened(path: Any, region: tuple[Any, ...] = (), **options: Any) -> labeled.Dataset:
    """Open ``x`` with its axes named by number, and take a region of its rows."""
    with h5py.File(COPIED.get(path, path), "r") as file:
        dims = tuple(f"axis_{i}" for i in range(file["x"].ndim))
    dataset = labeled.open_dataset(path, sources=["x"], dims={"x": dims}, **options)
    return dataset.isel(dict(zip(dims[1:], region, strict=False)))


COPIED: dict[str, Path] = {}
"""The local file behind an address."""


def elsewhere(path: Path) -> str:
    """Copy a file to where only fsspec reaches it."""
    name = f"memory://{path.name}"
    fsspec.filesystem("memory").pipe_file(f"/{path.name}", path.read_bytes())
    COPIED[name] = path
    return name


def reader_of(path: Any, region: tuple[Any, ...] = (), **options: Any) -> Any:
    """Return what reads ``x``."""
    return opened(path, region, **options)._sources["x"].reader()


def read_with_h5py(path: Path, name: str = "x") -> np.ndarray:
    """Return a whole dataset in native byte order."""
    with h5py.File(path, "r") as file:
        data = file[name][...]
    return data.astype(data.dtype.newbyteorder("="))


def outer(array: np.ndarray, indexers: tuple[Any, ...]) -> np.ndarray:
    """Index every axis after the first for itself: one ``take`` an axis, from the last."""
    for axis, index in reversed(list(enumerate(indexers, start=1))):
        if isinstance(index, slice):
            index = np.arange(array.shape[axis])[index]
        array = np.take(array, index, axis=axis)
    return array


def rows_of(runs: np.ndarray) -> np.ndarray:
    """Return the rows of runs, one by one."""
    return np.concatenate([np.arange(a, b) for a, b in runs.tolist()] or [np.empty(0, int)])


@st.composite
def layouts(draw: st.DrawFn, **fixed: Any) -> Layout:
    """Any layout: all filters, odd chunks, missing chunks, partial edges, fill values."""
    rank = draw(st.integers(1, 4))
    shape = (draw(st.integers(0, 40)), *(draw(st.integers(1, 7)) for _ in range(rank - 1)))
    chunks = None
    if draw(st.booleans()) or "compression" in fixed:
        chunks = tuple(draw(st.integers(1, max(n, 1) + 2)) for n in shape)
        if draw(st.booleans()):
            chunks = (chunks[0], *shape[1:])
    cuts = sorted(draw(st.lists(st.integers(0, 40), max_size=6)))
    gaps = tuple(zip(cuts[::2], cuts[1::2], strict=False))
    layout = Layout(
        dtype=draw(st.sampled_from(DTYPES)),
        shape=shape,
        chunks=chunks,
        compression=draw(st.sampled_from(sorted(COMPRESSIONS))) if chunks else "none",
        shuffle=draw(st.booleans()),
        fletcher32=draw(st.booleans()),
        written=gaps if gaps and draw(st.booleans()) else ((0, 1 << 40),),
        fill=draw(st.sampled_from([0, 7])),
        seed=draw(st.integers(0, 9)),
        userblock=draw(st.sampled_from([0, 0, 512])) if chunks else 0,
    )
    return replace(layout, **fixed)


def indexers(size: int) -> st.SearchStrategy[Any]:
    """Any indexer of an axis: an integer, a slice, a list in any order with repeats."""
    place = st.integers(0, size - 1)
    return st.one_of(
        place,
        st.just(slice(None)),
        st.builds(slice, place, st.integers(0, size), st.integers(1, 3)),
        st.lists(place, max_size=6).map(lambda rows: np.array(rows, np.int64)),
        st.lists(place, max_size=6).map(lambda rows: np.sort(np.array(rows, np.int64))),
    )


@st.composite
def regions(draw: st.DrawFn, row_shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Any region of rows of that shape, as long as the rows or shorter."""
    if draw(st.booleans()):
        return ()
    n = draw(st.integers(0, len(row_shape)))
    return tuple(draw(indexers(size)) for size in row_shape[:n])


@st.composite
def runs(draw: st.DrawFn, n_rows: int) -> np.ndarray:
    """Ascending runs that may touch, and may be empty."""
    if draw(st.booleans()):
        return np.array([[0, n_rows]])
    cuts = sorted(draw(st.lists(st.integers(0, n_rows), max_size=16)))
    pairs = (
        list(itertools.pairwise(cuts))
        if draw(st.booleans())
        else list(zip(cuts[::2], cuts[1::2], strict=False))
    )
    return np.array(pairs, np.int64).reshape(-1, 2)
