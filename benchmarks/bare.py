"""The shortest hand-written loops that do the same reads into owned memory.

They read the source with the largest rows alone. Memory is three batches used in turn,
allocated once. Offsets, orders and chunk lists are at hand before timing starts. Codecs are
called directly, not through this library's readers.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import h5py
import numpy as np

from benchmarks.subject import Array, Batch, Stored, Subject
from benchmarks.timing import Epoch, Way, touch
from labeled.formats.header import DEFLATE, SHUFFLE

THREADS = 2
RING = 3
GROUP_BYTES = 3 << 20
ZSTD = 32015
DECODED = {(), (DEFLATE,), (SHUFFLE, DEFLATE), (ZSTD,), (SHUFFLE, ZSTD)}


def ways(subject: Subject, order: str) -> list[Way]:
    """Return the loops that fit how the main source lies, for order "file" or "shuffled"."""
    main = subject.main
    if main is None or main.span is None or not main.n_rows or main.header.storage == "empty":
        return []
    if main.is_mappable:
        if order == "file":
            return [pread_in_order(subject), copy_in_order(subject)]
        return [take(subject)]
    if not main.is_hdf5 or main.header.storage != "chunked" or not _is_decodable(main):
        return []
    return [decode(subject) if main.header.filters else read_chunks(subject)]


def _main(subject: Subject) -> Stored:
    assert subject.main is not None
    return subject.main


def _span(main: Stored) -> range:
    assert main.span is not None
    return main.span


def stored_chunks(main: Stored) -> list[tuple[int, int]]:
    """Return (offset, size) of every chunk that holds a wanted row, in row order."""
    found: list[tuple[int, int, int]] = []
    with h5py.File(main.header.file.path, "r") as opened:
        opened[main.header.key].id.chunk_iter(
            lambda info: found.append((info.chunk_offset[0], info.byte_offset, info.size))
        )
    span, chunk_rows = _span(main), main.chunk_rows or 1
    wanted = range(span.start // chunk_rows, -(-span.stop // chunk_rows))
    chunks = [(at, size) for row, at, size in sorted(found) if row // chunk_rows in wanted]
    if len(chunks) != len(wanted):
        raise ValueError("some chunks were never written")
    return chunks


def _ring(main: Stored, rows: int) -> Array:
    return np.empty((RING, rows, *main.header.row_shape), main.header.dtype)


def _cuts(n: int, step: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, n, step), n]))


def pread_in_order(subject: Subject) -> Way:
    """``preadv`` batch by batch."""

    def make() -> Epoch:
        main = _main(subject)
        descriptor, row = os.open(main.header.file.path, os.O_RDONLY), main.header.row_bytes
        begin = (main.header.offset or 0) + _span(main).start * row
        ring, cuts = _ring(main, subject.batch_rows), _cuts(main.n_rows, subject.batch_rows)

        def epoch() -> Iterator[Batch]:
            for i, (a, b) in enumerate(cuts):
                batch: Any = ring[i % RING][: b - a]
                os.preadv(descriptor, [batch], begin + a * row)
                yield (batch,)

        return epoch

    return Way("bare pread", "bare", "file", "one preadv a batch into owned memory", make)


def copy_in_order(subject: Subject) -> Way:
    """A copy out of the mapped file, batch by batch."""

    def make() -> Epoch:
        main = _main(subject)
        rows, ring = main.mapped(), _ring(main, subject.batch_rows)
        cuts = _cuts(main.n_rows, subject.batch_rows)

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
        main = _main(subject)
        rows, ring = main.mapped(), _ring(main, subject.batch_rows)
        order = np.random.default_rng(3).permutation(main.n_rows)
        cuts = _cuts(main.n_rows, subject.batch_rows)

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
        main = _main(subject)
        chunk_rows = main.chunk_rows or 1
        chunks, step = stored_chunks(main), max(1, subject.batch_rows // chunk_rows)
        descriptor = os.open(main.header.file.path, os.O_RDONLY)
        ring, wanted = _ring(main, step * chunk_rows), _rows_of_chunks(main)

        def epoch() -> Iterator[Batch]:
            for i, (a, b) in enumerate(_cuts(len(chunks), step)):
                parts: Any = ring[i % RING].reshape(step, -1)
                for part, (offset, _) in zip(parts, chunks[a:b], strict=False):
                    os.preadv(descriptor, [part], offset)
                skipped = 0 if a else _span(main).start % chunk_rows
                yield (ring[i % RING][skipped : skipped + wanted(a, b)],)

        return epoch

    return Way("bare pread", "bare", "file", "one preadv a chunk into owned memory", make)


def decode(subject: Subject) -> Way:
    """Decode chunks in two threads: pread, codec, un-shuffle, one copy into owned memory."""
    main = _main(subject)
    shuffled = any(step.id == SHUFFLE for step in main.header.filters)

    def make() -> Epoch:
        chunks, item = stored_chunks(main), main.header.dtype.itemsize
        descriptor, inflate = os.open(main.header.file.path, os.O_RDONLY), _inflate(main)
        chunk_bytes = (main.chunk_rows or 1) * main.header.row_bytes
        together = max(1, GROUP_BYTES // chunk_bytes)
        local, pool = threading.local(), ThreadPoolExecutor(THREADS)
        wanted = _rows_of_chunks(main)

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
            return wanted(*group)

        def epoch() -> Iterator[int]:
            yield from pool.map(read, _cuts(len(chunks), together))

        return epoch

    codec = "gzip" if any(step.id == DEFLATE for step in main.header.filters) else "zstd"
    how = f"pread, {codec}, un-shuffle, one copy out; {THREADS} threads"
    return Way("bare decode", "bare", "file", how, make)


def _rows_of_chunks(main: Stored) -> Callable[[int, int], int]:
    """Return what counts the wanted rows of some chunks, numbered from the first wanted one."""
    span, chunk_rows = _span(main), main.chunk_rows or 1
    base = span.start // chunk_rows * chunk_rows

    def count(first: int, stop: int) -> int:
        begin = max(base + first * chunk_rows, span.start)
        return min(base + stop * chunk_rows, span.stop) - begin

    return count


def _is_decodable(main: Stored) -> bool:
    """Whether chunks are whole rows, and as they are or packed by what is at hand here."""
    header = main.header
    codes = tuple(step.id for step in header.filters)
    if ZSTD in codes and importlib.util.find_spec("numcodecs") is None:
        return False
    return codes in DECODED and header.chunks is not None and header.chunks[1:] == header.row_shape


def _inflate(main: Stored) -> Any:
    if any(step.id == DEFLATE for step in main.header.filters):
        return importlib.import_module("deflate").zlib_decompress
    decompress = importlib.import_module("numcodecs.zstd").decompress
    return lambda data, size: decompress(data)
