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
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.formats.memory import take_rows
from labeled.formats.reader import PIECE_BYTES, Cost, Reader, advise, as_runs, cost, is_cold
from labeled.loader.buffers import RaggedRows
from labeled.ragged import FlatRows, RaggedReader
from labeled.ragged.flat import block_cuts, comes_one_by_one, own_examples, read_at
from labeled.samplers.windows import WindowRows, rows_of
from labeled.selection import Selection
from labeled.sources.loading import Read, Task, load_rows, read_of, sorted_read, tasks_of
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource, RowLayout

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

log = logging.getLogger(__name__)

TASK_BYTES = 1 << 21
"""What is gathered row by row with one call: more than most jobs hold, for threads wait for one
another at Python's lock between two of them, which made jobs that were cut in two take twice as
long. Epochs of jobs of 3 MiB took 1.3 to 1.5 times as long where these were not cut.
"""
RUN_BYTES = 1 << 22
"""The same for rows that follow one another."""
TRUSTED_JOBS = 31
"""Small jobs that are taken for warm after one that was."""
SMALL_BYTES = 8 << 20
"""Jobs up to this are small; those of listed rows are in any case."""


@dataclass(eq=False)
class SourceReader:
    """A source, its rows and its reader.

    Parameters
    ----------
    source : Source
        What is read.
    selection : Selection
        File rows by position in the dataset.
    reader : Reader
        Of stored values.
    keep : bool
        Read once, and kept in memory for this and all later epochs.
    """

    source: AnySource
    selection: Selection
    reader: Reader
    keep: bool = False
    kept: Array | None = field(default=None, repr=False)
    _warm_jobs: int = field(default=0, repr=False)
    name: str = field(init=False)
    layout: RowLayout = field(init=False, repr=False)
    row_bytes: int = field(init=False, repr=False)
    """Bytes of a row; where rows differ, what no window exceeds on average."""
    nbytes: int = field(init=False, repr=False)
    """Bytes of all rows."""

    def __post_init__(self) -> None:
        self.name, self.layout = self.source.name, self.source.layout
        self.row_bytes = self.source.row_bytes
        self.nbytes = len(self.selection) * self.row_bytes

    def __getstate__(self) -> dict[str, Any]:
        """Leave kept rows behind: whoever unpickles this reads them again."""
        return {**self.__dict__, "kept": None}

    @cached_property
    def _run_bytes(self) -> int:
        """How much of rows that follow one another is read with one call.

        Of what is decoded, a piece stays in a core's cache.
        """
        plain = self.reader.kind == "chunked" and not self.layout.expensive
        return RUN_BYTES if plain or self.reader.kind == "contiguous" else PIECE_BYTES

    @cached_property
    def _by_row(self) -> bool:
        """Whether each of some listed rows is copied by itself."""
        return self.reader.kind in ("contiguous", "memory") or self.layout.picked

    @property
    def is_loaded(self) -> bool:
        """Whether its rows are kept, and here already."""
        return self.kept is not None

    def load(self, threads: int) -> None:
        """Read the whole selection now, if it is to be kept and not yet here."""
        if self.keep and self.kept is None:
            self.kept = load_rows(self.source, self.selection, threads)
            log.info(
                "%s: %d rows are read and kept in memory", self.source.where, len(self.selection)
            )

    def memory_layout(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the shape and dtype of a row in the memory of a slot."""
        return self.source.row_shape, self.source.stored_dtype

    def room(self, content: WindowRows, group: Rows | None, memory: Array, n_rows: int) -> Any:
        """Return what :meth:`tasks` fill for so many rows, in the memory of a slot."""
        return memory[:n_rows]

    def tasks(self, content: WindowRows, group: Rows | None, out: Any) -> Sequence[Task]:
        """Return what must be done so that `out` holds the rows of `content` in batch order.

        Parameters
        ----------
        content : WindowRows
            Positions in the order they are grouped, with their places.
        group : int64 array, optional
            Dataset position of each grouped position, where they differ.
        out : array, lengths ``(n, *row_shape)``
            Receives stored values; every row is written once.
        """
        if self.kept is not None:
            return (partial(copy_kept, self.kept, content, group, out),)
        read = self.file_rows(content, group)
        rows = read.rows
        listed = not isinstance(rows, range) and rows.ndim == 1
        one_run = isinstance(rows, range)
        task_bytes = TASK_BYTES if listed else self._run_bytes if one_run else PIECE_BYTES
        alone = (listed or one_run) and self.reader.kind != "records"
        if alone and len(rows) * self.row_bytes <= task_bytes:
            tasks: Sequence[Task] = (partial(self.reader.read, rows, out, read.places),)
        else:
            tasks = tasks_of(self.reader, read, out, task_bytes)
        if content.soon is not None:  # rows of a window: the disk is advised of all at once
            return [*self._advices(content.soon, group), *tasks]
        small = listed or len(out) * self.row_bytes <= SMALL_BYTES
        if self._cold(rows, small=small):
            return [partial(advise, self.reader, rows), *tasks]
        return tasks

    def read_again(self, rows: Rows, places: Rows, out: Array) -> None:
        """Read some file rows by themselves, in the caller, to their places in `out`."""
        self.reader.read(rows, out, places)

    def _cold(self, rows: range | Rows, *, small: bool) -> bool:
        """Whether a disk should be advised of scattered rows before threads wait for them.

        The system is asked for a row or two. It looks ahead by itself in one stretch, and
        better undisturbed. Of a stretch it may have the ends, with what was read around others.
        """
        if isinstance(rows, range) or not len(rows) or self._warm_jobs:
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

    def _advices(self, windows: Sequence[Rows], group: Rows | None) -> Sequence[Task]:
        """Return tasks that advise the system of the next windows, if it does not hold them yet."""
        several = (self.file_rows(WindowRows(several=runs), group).rows for runs in windows)
        return [
            partial(advise, self.reader, rows) for rows in several if self._cold(rows, small=False)
        ]

    def cost(self, content: WindowRows, group: Rows | None) -> Cost:
        """Count what reading a window takes, without reading."""
        return cost(self.reader, self.file_rows(content, group).rows)

    def whole_cost(self) -> Cost:
        """Count what reading the whole selection once, in file order, takes."""
        return cost(self.reader, read_of(self.selection).rows)

    def file_rows(self, content: WindowRows, group: Rows | None) -> Read:
        """Map the positions of a window to file rows, in file order where that is cheaper."""
        stretch = self.selection.stretch
        if stretch is not None and group is None:
            first = stretch.start
            if content.run is not None:
                return Read(range(content.run[0] + first, content.run[1] + first))
            if content.several is not None:
                return Read(content.several + first, content.dest)
        runs = content.runs
        positions = content.rows if runs is None else rows_of(runs)
        if group is not None:
            positions = group[positions]
        rows = self.selection.take(positions)
        if runs is None and self._by_row:
            return Read(rows)
        return sorted_read(rows, None if runs is None else content.dest)


OBJECT_BYTES = 208
"""What an array object takes besides its values, and its place in a slot."""

RAGGED_TASK_BYTES = 4 << 20
"""What one task reads, unless one example is larger.

Of two tasks in file order both decode the chunk between. Others wait for Python's lock in between:
jobs in full shuffle that were cut in three took twice as long.
"""

EXPENSIVE_TASK_BYTES = 3 << 20
"""The same where examples are made one by one, so that none of it is a temporary copy."""


@dataclass(eq=False)
class RaggedSourceReader(SourceReader):
    """A ragged source on its way into batches: every row becomes one array of its own.

    Parameters
    ----------
    examples : RaggedReader, optional
        The rows themselves, by position, where they are kept.
    """

    source: RaggedSource
    reader: Any  # a RaggedReader
    examples: RaggedReader | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.name, self.layout = self.source.name, self.source.layout
        self.row_bytes = self.source.row_bytes + OBJECT_BYTES
        self.nbytes = int(self.position_bytes(None).sum())
        self._one_by_one = comes_one_by_one(self.reader)
        self._task_bytes = EXPENSIVE_TASK_BYTES if self._one_by_one else RAGGED_TASK_BYTES
        self._fill = fill_apart if self._one_by_one else fill_together

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "examples": None}

    @property
    def is_loaded(self) -> bool:
        return self.examples is not None

    def load(self, threads: int) -> None:
        """Read the whole selection now, if it is to be kept and not yet here."""
        if self.keep and self.examples is None:
            self.examples = FlatRows(self.source.select(self.selection).flat(threads=1))

    def memory_layout(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return bytes for as much as a window takes; objects where examples come one by one."""
        if self._one_by_one:
            return (), np.dtype(object)
        return (self.row_bytes,), np.dtype(np.uint8)

    def room(self, content: WindowRows, group: Rows | None, memory: Array, n_rows: int) -> Any:
        """Return examples in batch order, whose lengths are known already."""
        if self._one_by_one:
            return memory[:n_rows]
        positions = content.rows if group is None else group[content.rows]
        rows = self.selection.take(positions)
        return RaggedRows.within(
            memory, self.source.sizes[rows], len(self.source.dims) - 1, self.source.dtype
        )

    def tasks(self, content: WindowRows, group: Rows | None, out: Any) -> Sequence[Task]:
        """Return what must be done so that `out` holds the rows in batch order."""
        reader, rows, places = self._wanted(content, group)
        cuts = block_cuts(self._bytes(rows), self._task_bytes)
        return [partial(self._fill, reader, rows[a:b], places[a:b], out) for a, b in pairwise(cuts)]

    def read_again(self, rows: Rows, places: Rows, out: Any) -> None:
        """Read some examples by themselves, in the caller, to their places in `out`."""
        self._fill(self.reader, rows, places, out)

    def _wanted(self, content: WindowRows, group: Rows | None) -> tuple[RaggedReader, Rows, Rows]:
        """Return who reads, which of its rows in file order, and their places."""
        if self.examples is not None:
            positions = content.rows if group is None else group[content.rows]
            return self.examples, positions, np.arange(len(positions))
        read = self.file_rows(content, group)
        if isinstance(read.rows, range) or read.rows.ndim == 2:
            rows = rows_of(as_runs(read.rows))
            return self.reader, rows, np.arange(len(rows)) if read.places is None else read.places
        order = np.argsort(read.rows, kind="stable")
        return self.reader, read.rows[order], order

    def _bytes(self, rows: Rows) -> Rows:
        """Bytes of examples, kept or not: those of file rows, or of positions."""
        kept = self.examples
        sizes = self.source.sizes[rows] if kept is None else kept.sizes(rows)
        return sizes * self.source.dtype.itemsize + OBJECT_BYTES

    def position_bytes(self, group: Rows | None) -> Rows:
        """Bytes of the example at each grouped position."""
        rows = self.selection.rows if group is None else self.selection.take(group)
        return self.source.sizes[rows] * self.source.dtype.itemsize + OBJECT_BYTES

    def cost(self, content: WindowRows, group: Rows | None) -> Cost:
        """Count what reading a window takes, task by task: two that meet in a chunk decode it."""
        _, rows, _ = self._wanted(content, group)
        return self._cost(rows, block_cuts(self._bytes(rows), self._task_bytes))

    def whole_cost(self) -> Cost:
        """Count what reading the whole selection at once takes."""
        rows = self.selection.rows
        return self._cost(rows, [0, len(rows)])

    def _cost(self, rows: Rows, cuts: Sequence[int]) -> Cost:
        """Count what reading pieces of some rows takes; where no reader counts, a call each."""
        nbytes = int(self._bytes(rows).sum()) - OBJECT_BYTES * len(rows)
        count = getattr(self.reader, "cost", None)
        if count is not None:
            costs = (count(rows[a:b]) for a, b in pairwise(cuts))
            return replace(sum(costs, Cost()), bytes_used=nbytes)
        stored_sizes = getattr(self.reader, "stored_sizes", None)
        stored = nbytes if stored_sizes is None else int(stored_sizes(rows).sum())
        return Cost(stored, nbytes, len(cuts) - 1)


def copy_kept(kept: Array, content: WindowRows, group: Rows | None, out: Array) -> None:
    """Copy rows that are kept to their places in a window."""
    if group is None and content.run is not None:
        np.copyto(out, kept[content.run[0] : content.run[1]])
    else:
        take_rows(kept, content.rows if group is None else group[content.rows], out)


def fill_together(reader: RaggedReader, rows: Rows, places: Rows, out: RaggedRows) -> None:
    """Read examples, each to its place in the window."""
    starts = out.offsets[places]
    shapes = read_at(reader, rows, out.values, starts, out.offsets[places + 1] - starts)
    if shapes.shape[1] != 1:
        out.shapes[places] = shapes


def fill_apart(reader: RaggedReader, rows: Rows, places: Rows, out: Array) -> None:
    """Read examples and put each, as an array of its own memory, at its place."""
    for place, example in zip(places.tolist(), own_examples(reader, rows), strict=True):
        out[place] = example
