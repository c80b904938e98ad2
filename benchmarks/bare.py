"""The shortest hand-written loops that do the same reads into owned memory.

Memory is three batches used in turn,
allocated once. Offsets, orders and chunk lists are at hand before timing starts. Codecs are
called directly, not through this library's readers.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import h5py
import numpy as np

from benchmarks.subject import Array, Batch, Subject
from benchmarks.timing import Epoch, Way, touch

THREADS = 2
RING = 3
GROUP_BYTES = 3 << 20
DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


def ways(subject: Subject, order: str) -> list[Way]:
    """Return the loops that fit how rows lie, for order "file" or "shuffled"."""
    if subject.is_mappable:
        if order == "file":
            return [pread_in_order(subject), copy_in_order(subject)]
        return [take(subject)]
    return [decode(subject) if subject.layout.filters else read_chunks(subject)]


def stored_chunks(subject: Subject) -> list[tuple[int, int]]:
    """Return (offset, size) of every chunk, in row order."""
    found: list[tuple[int, int, int]] = []
    with h5py.File(subject.path, "r") as opened:
        opened[subject.source].id.chunk_iter(
            lambda info: found.append((info.chunk_offset[0], info.byte_offset, info.size))
        )
    if len(found) != -(-subject.n_rows // (subject.layout.chunk_rows or 1)):
        raise ValueError("some chunks were never written")
    return [(at, size) for _, at, size in sorted(found)]


def _ring(subject: Subject, rows: int) -> Array:
    layout = subject.layout
    return np.empty((RING, rows, *layout.shape[1:]), layout.dtype)


def _cuts(n: int, step: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, n, step), n]))


def pread_in_order(subject: Subject) -> Way:
    """``preadv`` batch by batch."""

    def make() -> Epoch:
        descriptor, row = os.open(subject.path, os.O_RDONLY), subject.row_bytes
        begin = subject.layout.offset or 0
        ring, cuts = _ring(subject, subject.batch_rows), _cuts(subject.n_rows, subject.batch_rows)

        def epoch() -> Iterator[Batch]:
            for i, (a, b) in enumerate(cuts):
                batch: Any = ring[i % RING][: b - a]
                os.preadv(descriptor, [batch], begin + a * row)
                yield (batch,)

        return epoch

    return Way("bare pread", "bare", "file", "one preadv a batch into owned memory", make)


class Owned:
    """Memory for batches that is used again once nobody refers to it."""

    def __init__(self, subject: Subject) -> None:
        self._shape = (subject.batch_rows, *subject.layout.shape[1:])
        self._dtype, self._all = subject.layout.dtype, list[Array]()

    def take(self) -> Array:
        for array in self._all:
            if sys.getrefcount(array) == 3:  # the list, `array` and the argument
                return array
        self._all.append(np.empty(self._shape, self._dtype))
        return self._all[-1]


def few_lines(subject: Subject) -> Way:
    """``preadv`` batch by batch into memory that stays the consumer's while it holds a batch."""

    def make() -> Epoch:
        descriptor, row = os.open(subject.path, os.O_RDONLY), subject.row_bytes
        begin, owned = subject.layout.offset or 0, Owned(subject)
        cuts = _cuts(subject.n_rows, subject.batch_rows)

        def epoch() -> Iterator[Batch]:
            for a, b in cuts:
                batch: Any = owned.take()[: b - a]
                os.preadv(descriptor, [batch], begin + a * row)
                yield (batch,)

        return epoch

    how = "one preadv a batch into memory that is used again once nobody refers to it"
    return Way("few lines", "bare", "file", how, make)


def copy_in_order(subject: Subject) -> Way:
    """A copy out of the mapped file, batch by batch."""

    def make() -> Epoch:
        rows, ring = subject.mapped(), _ring(subject, subject.batch_rows)
        cuts = _cuts(subject.n_rows, subject.batch_rows)

        def epoch() -> Iterator[Batch]:
            for i, (a, b) in enumerate(cuts):
                batch = ring[i % RING][: b - a]
                batch[...] = rows[a:b]
                yield (batch,)

        return epoch

    return Way("bare copy", "bare", "file", "one copy a batch out of the mapped file", make)


def take(subject: Subject) -> Way:
    """``np.take`` from the mapped file in an order that is at hand."""

    def make() -> Epoch:
        rows, ring = subject.mapped(), _ring(subject, subject.batch_rows)
        order = np.random.default_rng(3).permutation(subject.n_rows)
        cuts = _cuts(subject.n_rows, subject.batch_rows)

        def epoch() -> Iterator[Batch]:
            for i, (a, b) in enumerate(cuts):
                batch = ring[i % RING][: b - a]
                np.take(rows, order[a:b], axis=0, out=batch, mode="clip")
                yield (batch,)

        return epoch

    how = 'np.take(mapped, order[a:b], out=batch, mode="clip"), order at hand'
    return Way("bare take", "bare", "full", how, make)


def read_chunks(subject: Subject) -> Way:
    """``preadv`` of unfiltered chunks, a batch of whole chunks at a time."""

    def make() -> Epoch:
        chunk_rows = subject.layout.chunk_rows or 1
        chunks, step = stored_chunks(subject), max(1, subject.batch_rows // chunk_rows)
        descriptor = os.open(subject.path, os.O_RDONLY)
        ring = _ring(subject, step * chunk_rows)

        def epoch() -> Iterator[Batch]:
            for i, (a, b) in enumerate(_cuts(len(chunks), step)):
                parts: Any = ring[i % RING].reshape(step, -1)
                for part, (offset, _) in zip(parts, chunks[a:b], strict=False):
                    os.preadv(descriptor, [part], offset)
                yield (ring[i % RING][: _rows_of_chunks(subject, a, b)],)

        return epoch

    return Way("bare pread", "bare", "file", "one preadv a chunk into owned memory", make)


def decode(subject: Subject) -> Way:
    """Decode chunks in two threads: pread, codec, un-shuffle, one copy into owned memory."""
    layout = subject.layout
    shuffled = SHUFFLE in layout.filters

    def make() -> Epoch:
        chunks, item = stored_chunks(subject), layout.dtype.itemsize
        descriptor, inflate = os.open(subject.path, os.O_RDONLY), _inflate(layout.filters)
        chunk_bytes = (layout.chunk_rows or 1) * layout.row_bytes
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
                if shuffled and item > 1:
                    planes, elements = data.reshape(item, -1), hot.reshape(-1, item)
                    for j in range(item):
                        elements[:, j] = planes[j]
                    data = hot
                place[:] = data
            touch(own[: group[1] - group[0]])
            return _rows_of_chunks(subject, *group)

        def epoch() -> Iterator[int]:
            yield from pool.map(read, _cuts(len(chunks), together))

        return epoch

    codec = "gzip" if DEFLATE in layout.filters else "zstd"
    how = f"pread, {codec}, un-shuffle, one copy out; {THREADS} threads"
    return Way("bare decode", "bare", "file", how, make)


def _rows_of_chunks(subject: Subject, first: int, stop: int) -> int:
    """Return how many rows some chunks hold."""
    chunk_rows = subject.layout.chunk_rows or 1
    return min(stop * chunk_rows, subject.n_rows) - first * chunk_rows


def _inflate(filters: tuple[int, ...]) -> Any:
    if DEFLATE in filters:
        return importlib.import_module("deflate").zlib_decompress
    decompress = importlib.import_module("imagecodecs").zstd_decode
    return lambda data, size: decompress(data)
