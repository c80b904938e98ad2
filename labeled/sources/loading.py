"""Rows of a selection turned into reads: runs in file order, and where each row goes.

Whatever a selection is composed of, a read is ascending runs of file rows plus the place of every
row. Lists stay lists where rows repeat, and where rows are read one by one in any case
(`SourceReader.file_rows` of the loader).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from operator import call
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.errors import explain_memory_errors
from labeled.formats.reader import PIECE_BYTES, Reader, count, pieces, row_nbytes
from labeled.permute.workers import processors
from labeled.selection import Selection, runs_of
from labeled.sources.source import Source

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Task = Callable[[], None]

RECORD_BYTES = 1 << 20
"""What is read of records at a time, at least."""


class Read(NamedTuple):
    """One read: rows of the file as readers take them, and where each goes.

    Rows that are listed one by one may repeat.
    """

    rows: range | Rows
    places: Rows | None = None


def sorted_read(rows: Rows, places: Rows | None = None) -> Read:
    """Turn file rows (any order) and their places into a read in file order."""
    if (rows[1:] > rows[:-1]).all():
        return Read(runs_of(rows), places)
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    if not (ascending[1:] > ascending[:-1]).all():
        return Read(rows, places)
    return Read(runs_of(ascending), order if places is None else places[order])


def read_of(selection: Selection) -> Read:
    """Turn a whole selection into one read, places being positions in it."""
    span = selection.span
    if span is not None and span.step == 1:
        return Read(range(span.start, max(span.start, span.stop)))
    return sorted_read(selection.rows)


def tasks_of(reader: Reader, read: Read, out: Array, n_bytes: int) -> list[Task]:
    """Cut a read into tasks of about so many bytes, which any threads may do in any order."""
    rows, places = read
    if reader.kind == "records":  # between two tasks pictures drive all else out of the caches
        share = count(rows) * row_nbytes(reader.row_shape, reader.dtype)
        n_bytes = max(RECORD_BYTES, min(share // processors(), 8 * RECORD_BYTES))
    tasks: list[Task] = []
    for part, which in pieces(reader, rows, n_bytes):
        target = (out[which], None) if places is None else (out, places[which])
        tasks.append(partial(reader.read, part, *target))
    return tasks


def enough_memory(source: Source, selection: Selection) -> AbstractContextManager[None]:
    """Name what was read where memory does not suffice for it.

    Raises
    ------
    RowsMemoryError
        In the place of a MemoryError.
    """
    return explain_memory_errors(
        lambda why: (
            f"{source.where}: {selection.describe()} take "
            f"{format_bytes(len(selection) * source.row_bytes)} in memory, and more while they are "
            f"read: {why}. Read fewer at a time (a subset, or batches)"
        )
    )


def load_rows(
    source: Source,
    selection: Selection,
    threads: int = 1,
    advance: Callable[[int], object] | None = None,
) -> Array:
    """Read the stored values of a selection into a fresh array.

    Parameters
    ----------
    source : Source
        Dims ``source.dims``.
    selection : Selection
        Rows of `source`, order and repeats kept.
    threads : int
        How many threads decode at the same time.
    advance : callable, optional
        Takes how many bytes were read since it was last called.

    Returns
    -------
    array, lengths ``(len(selection), *source.row_shape)``
        Stored values, before CF decoding.
    """
    out = np.empty((len(selection), *source.row_shape), source.stored_dtype)
    if not len(selection):
        return out
    tasks = tasks_of(source.reader(), read_of(selection), out, PIECE_BYTES)
    with ThreadPoolExecutor(max(1, min(threads, len(tasks))), "labeled-load") as pool:
        alone = threads == 1 or len(tasks) <= 1  # no thread is started then
        done = map(call, tasks) if alone else pool.map(call, tasks)
        for number, _ in enumerate(done, 1):
            if advance is not None:  # tasks are about equally large
                before = out.nbytes * (number - 1) // len(tasks)
                advance(out.nbytes * number // len(tasks) - before)
    return out
