"""One source on its way into batches: what is read of it for a window of rows.

Examples of different shapes are read to buffers like any others, one after another as they are
handed out: so order, shards, resume and reading ahead are those of dense sources, and know
nothing of shapes. What differs: tasks are cut by bytes, and the bytes of a row are taken to be so
many that no window of the order can hold more than its rows times that (see `memory.WorstCase`).
Where examples are made one by one (decoded pictures), each has memory of its own, and travels as
an object.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.formats.memory import take_rows
from labeled.formats.reader import PIECE_BYTES, Cost, advise, as_runs, cost, is_cold
from labeled.loader.buffers import RaggedRows
from labeled.ragged import FlatRows, RaggedReader
from labeled.ragged.flat import block_cuts, comes_one_by_one, own_examples, read_at
from labeled.samplers.windows import WindowRows
from labeled.selection import Selection, rows_of
from labeled.sources.loading import Read, Task, load_rows, read_of, sorted_read, tasks_of
from labeled.sources.readers import cost_of
from labeled.sources.source import Source

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

log = logging.getLogger(__name__)

TASK_BYTES = 1 << 21
"""What is gathered row by row with one call: more than most jobs hold, for threads wait for one
another at Python's lock between two of them, which made jobs that were cut in two take twice as
long. Epochs of jobs of 3 MiB took 1.3 to 1.5 times as long where these were not cut.
"""
RUN_BYTES = 1 << 22
"""The same for rows that follow one another, unless they are decoded: a piece stays in a cache."""
TRUSTED_JOBS = 31
"""Small jobs that are taken for warm after one that was."""
SMALL_BYTES = 8 << 20
"""Jobs up to this are small; those of listed rows are in any case."""

OBJECT_BYTES = 208
"""What an array object takes besides its values, with the pointer to it in a buffer."""

RAGGED_TASK_BYTES = 4 << 20
"""What one task reads, unless one example is larger.

Of two tasks in file order both decode the chunk between. Others wait for Python's lock in between:
jobs in full shuffle that were cut in three took twice as long.
"""
EXPENSIVE_TASK_BYTES = 3 << 20
"""The same where examples are made one by one, so that none of it is a temporary copy."""


class SourceReader:
    """A source, its rows and its reader.

    Parameters
    ----------
    source : Source
        What is read.
    selection : Selection
        File rows by position in the dataset.
    keep : bool
        Read once, and kept in memory for this and all later epochs.
    """

    def __init__(self, source: Source, selection: Selection, *, keep: bool = False) -> None:
        self.source, self.selection, self.keep = source, selection, keep
        self.name, self.layout, self.row_bytes = source.name, source.layout, source.row_bytes
        self.reader: Any = source.reader()
        self.kept: Any = None
        self.buffer_row = source.row_shape, source.stored_dtype
        """Shape and dtype of a row in the memory of a buffer."""
        self._warm_jobs = 0
        plain = self.reader.kind == "chunked" and not self.layout.expensive
        self._run_bytes = RUN_BYTES if plain or self.reader.kind == "contiguous" else PIECE_BYTES
        self._by_row = self.reader.kind in ("contiguous", "memory") or self.layout.picked

    def __getstate__(self) -> dict[str, Any]:
        """Leave kept rows behind: whoever unpickles this reads them again."""
        return {**self.__dict__, "kept": None}

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return len(self.selection) * self.row_bytes

    def load(self, threads: int) -> None:
        """Read the whole selection now, if it is to be kept and not yet here."""
        if self.keep and self.kept is None:
            self.kept = load_rows(self.source, self.selection, threads)
            log.info("%r: %d rows are read and kept in memory", self.name, len(self.selection))

    def tasks(
        self, content: WindowRows, position_of: Rows | None, memory: Array, n_rows: int
    ) -> tuple[Any, Sequence[Task]]:
        """Return where the rows of a window will be, and what must be done so that they are.

        Parameters
        ----------
        content : WindowRows
            Positions of the order, and the place of each among the rows of the window.
        position_of : int64 array, optional
            Dataset position of each position of the order, where they differ (see `Grouping`).
        memory : array, lengths ``(m, *row_shape)``
            Part of a buffer; its first `n_rows` rows receive stored values, by place.
        """
        out = memory[:n_rows]
        if self.kept is not None:
            if position_of is None and content.run is not None:
                return out, [partial(np.copyto, out, self.kept[slice(*content.run)])]
            return out, [partial(self._take_kept, content, position_of, out)]
        read = self.file_rows(content, position_of)
        rows = read.rows
        one_run, listed = isinstance(rows, range), not isinstance(rows, range) and rows.ndim == 1
        task_bytes = TASK_BYTES if listed else self._run_bytes if one_run else PIECE_BYTES
        alone = (listed or one_run) and self.reader.kind != "records"
        if alone and len(rows) * self.row_bytes <= task_bytes:
            tasks: list[Task] = [partial(self.reader.read, rows, out, read.places)]
        else:
            tasks = tasks_of(self.reader, read, out, task_bytes)
        if not one_run and self._cold(rows, small=listed or n_rows * self.row_bytes <= SMALL_BYTES):
            tasks.insert(0, partial(advise, self.reader, rows))
        return out, tasks

    def _take_kept(self, content: WindowRows, position_of: Rows | None, out: Array) -> None:
        """Copy kept rows to their places; positions are worked out by the thread that copies."""
        take_rows(
            self.kept, content.rows if position_of is None else position_of[content.rows], out
        )

    def read_again(self, rows: Rows, places: Rows, out: Any) -> None:
        """Read some file rows by themselves, in the caller, to their places in `out`."""
        self.reader.read(rows, out, places)

    def _cold(self, rows: Any, *, small: bool) -> bool:
        """Whether a disk should be advised of scattered rows before threads wait for them.

        The system is asked for a row or two. It looks ahead by itself in one stretch, and
        better undisturbed. Of a run the row in the middle is asked for: the first and the last may
        be in memory only because rows near them were read.
        """
        if not len(rows) or self._warm_jobs:
            self._warm_jobs = max(0, self._warm_jobs - 1)
            return False
        some = rows[[0, len(rows) // 2]]
        if some.ndim == 2:
            some = some.sum(axis=1) // 2
        cold = False
        for row in some.tolist():
            cold = cold or is_cold(self.reader, row)
        if small and not cold:
            self._warm_jobs = TRUSTED_JOBS
        return cold

    def cost(self, content: WindowRows, position_of: Rows | None) -> Cost:
        """Count what reading a window takes, without reading."""
        return cost(self.reader, self.file_rows(content, position_of).rows)

    def whole_cost(self) -> Cost:
        """Count what reading the whole selection once, in file order, takes."""
        return cost(self.reader, read_of(self.selection).rows)

    def file_rows(self, content: WindowRows, position_of: Rows | None) -> Read:
        """Map the positions of a window to file rows, in file order where that is cheaper."""
        span = self.selection.span
        if span is not None and span.step == 1 and position_of is None:
            first = span.start
            if content.run is not None:
                return Read(range(content.run[0] + first, content.run[1] + first))
            if content.run_list is not None:
                return Read(content.run_list + first, content.places)
        runs = content.runs
        positions = content.rows if runs is None else rows_of(runs)
        if position_of is not None:
            positions = position_of[positions]
        rows = self.selection.take(positions)
        if runs is None and self._by_row:
            return Read(rows)
        return sorted_read(rows, None if runs is None else content.places)


class RaggedSourceReader(SourceReader):
    """A ragged source on its way into batches: every row becomes one array of its own.

    Parameters
    ----------
    buffer_row_bytes : int
        What a row takes in a buffer: as much as no job exceeds on average.
    """

    source: Source
    kept: RaggedReader | None
    """The rows themselves, by position."""

    def __init__(
        self, source: Source, selection: Selection, buffer_row_bytes: int, *, keep: bool
    ) -> None:
        self.source, self.selection, self.keep, self.kept = source, selection, keep, None
        self.name, self.layout, self.row_bytes = source.name, source.layout, buffer_row_bytes
        self.reader: RaggedReader = source.examples()
        self._by_row, self._one_by_one = False, comes_one_by_one(self.reader)
        self.buffer_row = (), np.dtype(object)  # or bytes, as many as a job takes
        if not self._one_by_one:
            self.buffer_row = (buffer_row_bytes,), np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        return int(bytes_by_position(self.source, self.selection, None).sum())

    def load(self, threads: int) -> None:
        if self.keep and self.kept is None:
            self.kept = FlatRows(self.source.select(self.selection).flat(threads=1))

    def tasks(
        self, content: WindowRows, position_of: Rows | None, memory: Array, n_rows: int
    ) -> tuple[Any, Sequence[Task]]:
        """Return examples in batch order, whose lengths are known already, and how to read them."""
        out: Any = memory[:n_rows]
        if not self._one_by_one:
            positions = content.rows if position_of is None else position_of[content.rows]
            sizes, n_axes = self.source.sizes[self.selection.take(positions)], self.reader.n_axes
            out = RaggedRows.within(memory, sizes, n_axes, self.source.dtype)
        rows, places, cuts = self._cut(content, position_of)
        reader = self.reader if self.kept is None else self.kept
        return out, [
            partial(self._fill, reader, rows[a:b], places[a:b], out) for a, b in pairwise(cuts)
        ]

    def read_again(self, rows: Rows, places: Rows, out: Any) -> None:
        self._fill(self.reader, rows, places, out)

    def _fill(self, reader: RaggedReader, rows: Rows, places: Rows, out: Any) -> None:
        """Read examples, each to its place; as an array of its own memory if they come so."""
        if self._one_by_one:
            for place, example in zip(places.tolist(), own_examples(reader, rows), strict=True):
                out[place] = example
            return
        starts = out.offsets[places]
        shapes = read_at(reader, rows, out.values, starts, out.offsets[places + 1] - starts)
        if shapes.shape[1] != 1:
            out.shapes[places] = shapes

    def _cut(self, content: WindowRows, position_of: Rows | None) -> tuple[Rows, Rows, list[int]]:
        """Return which rows are read in file order, their places, and where tasks are cut."""
        if self.kept is not None:
            rows = content.rows if position_of is None else position_of[content.rows]
            places, sizes = np.arange(len(rows)), self.kept.sizes(rows)
        else:
            read = self.file_rows(content, position_of)
            if isinstance(read.rows, range) or read.rows.ndim == 2:
                rows = rows_of(as_runs(read.rows))
                places = np.arange(len(rows)) if read.places is None else read.places
            else:
                places = np.argsort(read.rows, kind="stable")
                rows = read.rows[places]
            sizes = self.source.sizes[rows]
        task_bytes = EXPENSIVE_TASK_BYTES if self._one_by_one else RAGGED_TASK_BYTES
        cuts = block_cuts(sizes * self.source.dtype.itemsize + OBJECT_BYTES, task_bytes)
        return rows, places, cuts

    def cost(self, content: WindowRows, position_of: Rows | None) -> Cost:
        """Count what reading a window takes, task by task: two that meet in a chunk decode it."""
        rows, _, cuts = self._cut(content, position_of)
        return sum([cost_of(self.reader, rows[a:b]) for a, b in pairwise(cuts)], Cost())

    def whole_cost(self) -> Cost:
        """Count what reading the whole selection at once takes."""
        return cost_of(self.reader, self.selection.rows)


def bytes_by_position(source: Source, selection: Selection, position_of: Rows | None) -> Rows:
    """Bytes of the example at each position of the order."""
    rows = selection.rows if position_of is None else selection.take(position_of)
    return source.sizes[rows] * source.dtype.itemsize + OBJECT_BYTES
