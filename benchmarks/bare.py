"""The shortest hand-written loops that do the same reads into owned memory.

Memory is three batches used in turn, allocated once. Offsets, orders and chunk lists are at
hand before timing starts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import deflate
import h5py
import numpy as np
import numpy.typing as npt

from benchmarks.files import GOOD_NAME, BenchFile
from benchmarks.measure import Epoch, Way, touch

Array = npt.NDArray[Any]

THREADS = 2
RING = 3
GROUP_BYTES = 3 << 20


def offset_of(file: BenchFile) -> int:
    """Return where contiguous rows begin in the file."""
    with h5py.File(file.path, "r") as opened:
        return int(opened[GOOD_NAME].id.get_offset())


def mapped(file: BenchFile) -> Array:
    """Return the rows of a contiguous file as an array over the mapped file."""
    spec = file.spec
    whole = np.memmap(file.path, np.uint8, "r", offset_of(file), (spec.n_bytes,))
    plain = np.frombuffer(whole, spec.dtype)
    return plain.reshape(spec.n_rows, *spec.row_shape)


def stored_chunks(file: BenchFile) -> list[tuple[int, int]]:
    """Return (offset, size) of every chunk, in row order."""
    found: list[tuple[int, int, int]] = []
    with h5py.File(file.path, "r") as opened:
        opened[GOOD_NAME].id.chunk_iter(
            lambda info: found.append((info.chunk_offset[0], info.byte_offset, info.size))
        )
    return [(offset, size) for _, offset, size in sorted(found)]


def _ring(file: BenchFile, rows: int, slots: int = RING) -> Array:
    return np.empty((slots, rows, *file.spec.row_shape), file.spec.dtype)


def _cuts(n: int, step: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, n, step), n]))


def pread_in_order(file: BenchFile, batch_rows: int) -> Way:
    """``preadv`` batch by batch."""

    def make() -> Epoch:
        descriptor, begin = os.open(file.path, os.O_RDONLY), offset_of(file)
        ring, cuts, row = _ring(file, batch_rows), _cuts(file.spec.n_rows, batch_rows), 0
        row = file.spec.row_bytes

        def epoch() -> Iterator[Array]:
            for i, (a, b) in enumerate(cuts):
                batch = ring[i % RING][: b - a]
                os.preadv(descriptor, [batch], begin + a * row)
                yield batch

        return epoch

    return Way("bare pread", "bare", "file", "one preadv a batch into owned memory", make)


def copy_in_order(file: BenchFile, batch_rows: int) -> Way:
    """A copy out of the mapped file, batch by batch."""

    def make() -> Epoch:
        rows, ring, cuts = (
            mapped(file),
            _ring(file, batch_rows),
            _cuts(file.spec.n_rows, batch_rows),
        )

        def epoch() -> Iterator[Array]:
            for i, (a, b) in enumerate(cuts):
                batch = ring[i % RING][: b - a]
                batch[...] = rows[a:b]
                yield batch

        return epoch

    return Way("bare copy", "bare", "file", "one copy a batch out of the mapped file", make)


def take(file: BenchFile, batch_rows: int) -> Way:
    """``np.take`` from the mapped file in an order that is at hand."""

    def make() -> Epoch:
        rows, ring = mapped(file), _ring(file, batch_rows)
        order = np.random.default_rng(3).permutation(file.spec.n_rows)
        cuts = _cuts(file.spec.n_rows, batch_rows)

        def epoch() -> Iterator[Array]:
            for i, (a, b) in enumerate(cuts):
                batch = ring[i % RING][: b - a]
                np.take(rows, order[a:b], axis=0, out=batch, mode="clip")
                yield batch

        return epoch

    how = 'np.take(mapped, order[a:b], out=batch, mode="clip"), order at hand'
    return Way("bare take", "bare", "full", how, make)


def read_chunks(file: BenchFile, batch_rows: int) -> Way:
    """``preadv`` of unfiltered chunks, a batch of whole chunks at a time."""

    def make() -> Epoch:
        assert file.spec.chunk_rows is not None
        chunks, step = stored_chunks(file), batch_rows // file.spec.chunk_rows
        descriptor, ring = os.open(file.path, os.O_RDONLY), _ring(file, batch_rows)

        def epoch() -> Iterator[Array]:
            for i, (a, b) in enumerate(_cuts(len(chunks), step)):
                parts = ring[i % RING].reshape(step, -1)
                for part, (offset, _) in zip(parts, chunks[a:b], strict=True):
                    os.preadv(descriptor, [part], offset)
                yield ring[i % RING]

        return epoch

    return Way("bare pread", "bare", "file", "one preadv a chunk into owned memory", make)


def decode(file: BenchFile) -> Way:
    """Decode chunks in two threads: pread, codec, un-shuffle, one copy into owned memory."""

    def make() -> Epoch:
        spec, chunks = file.spec, stored_chunks(file)
        assert spec.chunk_rows is not None
        descriptor, inflate = os.open(file.path, os.O_RDONLY), _inflate(spec.codec)
        chunk_bytes, item = spec.chunk_rows * spec.row_bytes, np.dtype(spec.dtype).itemsize
        together = max(1, GROUP_BYTES // chunk_bytes)
        local, pool = threading.local(), ThreadPoolExecutor(THREADS)

        def buffers() -> tuple[Array, Array]:
            if not hasattr(local, "hot"):
                local.hot = np.empty(chunk_bytes, np.uint8)
                local.own = np.empty((together, chunk_bytes), np.uint8)
            return local.hot, local.own

        def read(group: tuple[int, int]) -> int:
            hot, own = buffers()
            for place, (offset, size) in zip(own, chunks[slice(*group)], strict=False):
                data = np.frombuffer(
                    inflate(os.pread(descriptor, size, offset), chunk_bytes), np.uint8
                )
                if spec.byte_shuffle and item > 1:
                    planes, elements = data.reshape(item, -1), hot.reshape(-1, item)
                    for j in range(item):
                        elements[:, j] = planes[j]
                    data = hot
                place[:] = data
            n_chunks = group[1] - group[0]
            touch(own[:n_chunks])
            return n_chunks * (spec.chunk_rows or 1)

        def epoch() -> Iterator[int]:
            yield from pool.map(read, _cuts(len(chunks), together))

        return epoch

    how = f"pread, {file.spec.codec}, un-shuffle, one copy out; {THREADS} threads"
    return Way("bare decode", "bare", "file", how, make)


def _inflate(codec: str | None) -> Any:
    if codec == "gzip":
        return deflate.zlib_decompress
    from numcodecs.zstd import decompress

    return lambda data, size: decompress(data)
