"""Rows of a selection turned into reads: runs in file order, and where each row goes.

Whatever a selection is composed of, a read is ascending runs of file rows plus the
place of every row; only lists with repeats are left as lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.errors import told_of_memory
from labeled.formats.reader import Reader
from labeled.formats.reading import runs_of
from labeled.selection import Selection
from labeled.sources.source import AnySource

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Task = Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One read: runs with their places, or rows listed one by one (repeats allowed).

    Parameters
    ----------
    runs : int64 array (k, 2), optional
        Ascending file rows, half-open, never overlapping.
    dest : int64 array (n,), optional
        Place of each row of the runs; None says that row i goes to place i.
    listed : int64 array (n,), optional
        File rows in the order of their places, in the place of `runs`.
    run : (int, int), optional
        One stretch of file rows in order, in the place of `runs`.
    """

    runs: Rows | None = None
    dest: Rows | None = None
    listed: Rows | None = None
    run: tuple[int, int] | None = None


def as_runs(read: Read) -> Rows:
    """Return the runs of a read; of listed rows, each row once."""
    if read.run is not None:
        return np.array([read.run], np.int64)
    if read.runs is not None:
        return read.runs
    assert read.listed is not None
    return runs_of(np.unique(read.listed))


def sorted_read(rows: Rows, places: Rows | None = None) -> Read:
    """Turn file rows (any order) and their places into a read in file order."""
    if (rows[1:] > rows[:-1]).all():
        return Read(runs_of(rows), places)
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    if not (ascending[1:] > ascending[:-1]).all():
        if places is None:
            return Read(listed=rows)
        listed = np.empty_like(rows)
        listed[places] = rows
        return Read(listed=listed)
    return Read(runs_of(ascending), order if places is None else places[order])


def read_of(selection: Selection) -> Read:
    """Turn a whole selection into one read, places being positions in it."""
    stretch = selection.stretch
    if stretch is not None:
        return Read(run=(stretch.start, max(stretch.start, stretch.stop)))
    return sorted_read(selection.rows)


def tasks_of(reader: Reader, read: Read, out: Array, rows_a_task: int = 1 << 12) -> Sequence[Task]:
    """Cut a read into tasks that any threads may do in any order."""
    runs, dest = read.runs, read.dest
    if read.run is not None:
        runs = np.array([read.run], np.int64)
    if runs is not None:
        return [_piece_task(reader, piece, out, dest) for piece in reader.pieces(runs)]
    assert read.listed is not None
    n = len(read.listed)
    if reader.chunk_rows > 1:  # every chunk is decoded once only if all rows are asked together
        rows_a_task = max(n, 1)
    return [
        _gather_task(reader, out[a : a + rows_a_task], read.listed[a : a + rows_a_task])
        for a in range(0, n, rows_a_task)
    ]


def _piece_task(reader: Reader, piece: Any, out: Array, dest: Rows | None) -> Task:
    return lambda: reader.read_piece(piece, out, dest)


def _gather_task(reader: Reader, out: Array, rows: Rows) -> Task:
    return lambda: reader.gather_known(out, rows)


def enough_memory(source: AnySource, selection: Selection) -> AbstractContextManager[None]:
    """Name what was read where memory does not suffice for it.

    Raises
    ------
    RowsMemoryError
        In the place of a MemoryError.
    """
    return told_of_memory(
        lambda why: (
            f"{source.where}: {selection.describe()} take "
            f"{format_bytes(len(selection) * source.row_bytes)} in memory, and more while they are "
            f"read: {why}. Read fewer at a time (a subset, or batches)"
        )
    )


def load_rows(
    source: AnySource,
    selection: Selection,
    threads: int = 1,
    told: Callable[[int], object] | None = None,
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
    told : callable, optional
        Takes how many bytes were read since it was last called.

    Returns
    -------
    array, lengths ``(len(selection), *source.row_shape)``
        Stored values, before CF decoding.
    """
    out = np.empty((len(selection), *source.row_shape), source.stored_dtype)
    if not len(selection):
        return out
    tasks = tasks_of(source.reader(), read_of(selection), out)
    if threads == 1 or len(tasks) <= 1:
        for number, task in enumerate(tasks):
            task()
            _tell(told, out.nbytes, number, len(tasks))
        return out
    with ThreadPoolExecutor(min(threads, len(tasks)), "labeled-load") as pool:
        for number, _ in enumerate(pool.map(lambda task: task(), tasks)):
            _tell(told, out.nbytes, number, len(tasks))
    return out


def _tell(told: Callable[[int], object] | None, n_bytes: int, number: int, n_tasks: int) -> None:
    """Tell of a task that is done: tasks are about equally large."""
    if told is not None:
        told(n_bytes * (number + 1) // n_tasks - n_bytes * number // n_tasks)
