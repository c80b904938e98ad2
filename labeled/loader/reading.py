"""One source on its way into batches: what is read of it for a window of rows, and into what.

Windows are read into host memory that is handed out as views and used again. A buffer is free when
nobody but the pool refers to its arrays: NumPy makes every view refer to the array that owns the
memory, so a batch that somebody still holds keeps its buffer. Nobody ever waits for memory that a
consumer may hold for ever: when no buffer is free and nothing is on its way, one more is made.

Examples of different shapes are read to buffers like any others, end to end in the order they are
handed out: how long each is, is known before it is read, so a batch is a stretch of that memory,
as it is of dense rows. So order, shards, resume and reading ahead are those of dense sources, and
know nothing of shapes. What differs: tasks are cut by bytes, and the bytes of a row are taken to
be so many that no window of the order can hold more than its rows times that (see
`memory.worst_case`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from sys import getrefcount
from typing import Any

import numpy as np

from labeled.formats.reader import PIECE_BYTES, Cost, advise, cost, is_cold
from labeled.permute.plan import address_of
from labeled.ragged import Flat, FlatRows
from labeled.ragged.flat import Array, Rows, block_cuts, elements_of, offsets_of
from labeled.samplers.windows import WindowRows
from labeled.selection import Selection, rows_of, runs_of
from labeled.sources.readers import cost_of
from labeled.sources.source import (
    Read,
    Source,
    Task,
    load_rows,
    record_task_bytes,
    sorted_read,
    tasks_of,
)

log = logging.getLogger(__name__)

# name of each array to its row shape and dtype
RowTypes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]

# makes the memory of an array of some name, shape and dtype
Allocate = Callable[[str, tuple[int, ...], np.dtype[Any]], Array]

ALIGNED = 64  # bytes: a cache line, and where other libraries want arrays to start that they share

# bytes behind a cache line where decoded pictures start: a JPEG decoder that finds its lines of
# pixels at multiples of 32 writes them past the caches, which takes a twentieth longer
ASIDE = 16


class _Owner(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """Memory that arrays refer to."""


def owned(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], pictures: Collection[str] = ()
) -> Array:
    """Return new memory, from the start of a cache line, or `ASIDE` it; follows `Allocate`.

    All its views refer to it: NumPy makes the view of a view refer to the array that owns the
    memory, unless that is of another type, as here.
    """
    if dtype.hasobject:
        return np.empty(shape, dtype)
    begin = ASIDE if name in pictures else 0
    raw = _Owner((math.prod(shape) * dtype.itemsize + ALIGNED + begin,), np.uint8)
    return np.ndarray(shape, dtype, raw, -address_of(raw) % ALIGNED + begin)


# Jobs up to this size are read with one call, unless they are decoded, and larger ones in pieces of
# `TASK_BYTES`: between two of them threads wait for one another at Python's lock.
UNCUT_BYTES = 7 << 20
TASK_BYTES = 1 << 22
# The same of small chunks that are decoded; a large one is a task. Lists of rows took 3 to 4 % less
# processor time than with half of it, other orders 1 %; with more, a thread waits longer for the
# last task of a window.
DECODED_TASK_BYTES = 1 << 20
# Bytes of jobs that are taken for warm after one that was: asking the system costs about 100 us,
# a seventh of what two threads take to read 8 MiB.
TRUSTED_BYTES = 1 << 26

OBJECT_BYTES = 208  # what an array object takes besides its values, with the pointer to it

# What one task reads, unless one example is larger; of records see `record_task_bytes`. Of two
# tasks in file order both decode the chunk between. Others wait for Python's lock in between: jobs
# in full shuffle that were cut in three took twice as long.
RAGGED_TASK_BYTES = 4 << 20


# memory


def _most_held(arrays: Mapping[str, Array]) -> int:
    """Count the references of that array which has most of them."""
    return max(map(getrefcount, arrays.values()), default=0)


# references of an array that nobody but its buffer holds
ALONE = _most_held({"": owned("", (1,), np.dtype(float))})


@dataclass(eq=False)
class BufferPool:
    """Buffers of one shape, used again and again, also across epochs; for one thread at a time.

    A buffer is a mapping from source to array. It is free while nobody holds a view of these.
    """

    layout: RowTypes
    capacity: int  # rows of each buffer
    count: int  # buffers that are used again and again
    allocate: Allocate
    # make all buffers before one is used again, so that what is promised is taken at once and not
    # when some consumer is slow for the first time
    fills: bool = False
    buffers: list[dict[str, Array]] = field(default_factory=list)
    extra: int = 0  # how often one more had to be made because a consumer holds on to batches

    def take(self, *, force: bool = False) -> dict[str, Array] | None:
        """Return a free buffer, or None; `force` makes one more, used once, rather than none."""
        more = len(self.buffers) < self.count
        if not (more and self.fills):
            for arrays in self.buffers:
                if _most_held(arrays) <= ALONE:
                    return arrays
        if not more and not force:
            return None
        made = {}
        for name, (shape, dtype) in self.layout.items():
            made[name] = self.allocate(name, (self.capacity, *shape), dtype)
        if more:
            self.buffers.append(made)
        self.extra += not more
        return made

    @property
    def n_free(self) -> int:
        """Buffers that could be taken now, counting those not made yet."""
        free = self.count - len(self.buffers)
        for arrays in self.buffers:
            free += _most_held(arrays) <= ALONE
        return free


@dataclass(eq=False, slots=True)
class LoadedJob:
    """A job on its way, then read: places ``start .. stop`` of the epoch.

    It is a window, or a piece of a window that was cut.
    """

    start: int
    stop: int
    content: WindowRows
    arrays: dict[str, Any]  # rows of each source: an array, or RaggedRows
    pending: int = 0
    ready: bool = False
    error: BaseException | None = None
    unread: bool = False  # something of it could not be read, and the loader is to leave that out
    lost: Array | None = None  # which places hold no row, once that was found out


# examples of different shapes


@dataclass(frozen=True, eq=False, slots=True)
class RaggedRows:
    """Examples one after another: i is ``values[offsets[i]:offsets[i + 1]]`` of ``shapes[i]``.

    Unlike :class:`~labeled.ragged.Flat` it may be part of a window, whose offsets begin anywhere.
    """

    values: Array
    offsets: Rows
    shapes: Rows

    @classmethod
    def within(cls, memory: Array, sizes: Rows, n_axes: int, dtype: np.dtype[Any]) -> RaggedRows:
        """Lay examples of so many elements each out in the memory of a buffer; nothing is read."""
        offsets = offsets_of(sizes)
        nbytes = int(offsets[-1]) * dtype.itemsize
        assert nbytes <= memory.nbytes, "no window holds more than its rows times the bound"
        shapes = sizes.reshape(-1, 1) if n_axes == 1 else np.zeros((len(sizes), n_axes), np.int64)
        return cls(memory.reshape(-1)[:nbytes].view(dtype), offsets, shapes)

    @classmethod
    def joined(cls, parts: Sequence[RaggedRows], length: int) -> RaggedRows:
        """Copy parts of windows to memory of their own, with empty examples up to `length`."""
        flats = [part.flat() for part in parts]
        shapes = np.zeros((length, flats[0].shapes.shape[1]), np.int64)
        shapes[: sum(map(len, parts))] = np.concatenate([flat.shapes for flat in flats])
        values = np.concatenate([flat.values for flat in flats])
        return cls(values, offsets_of(elements_of(shapes)), shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, part: slice) -> RaggedRows:
        return RaggedRows(self.values, self.offsets[part.start : part.stop + 1], self.shapes[part])

    def kept(self, which: Array, length: int) -> RaggedRows:
        """Copy those examples that a mask says, with empty ones up to `length`."""
        runs = runs_of(np.flatnonzero(which)).tolist()
        return RaggedRows.joined([self[0:0], *(self[a:b] for a, b in runs)], length)

    def flat(self) -> Flat:
        """Return the examples as they lie: a view of their values."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        return Flat(self.values[first:last], self.offsets - first, self.shapes.copy())


# readers


class SourceReader:
    """A source, its rows and its reader.

    Parameters
    ----------
    source : Source
        What is read.
    selection : Selection
        File rows by position in the dataset.
    position_of : int64 array, optional
        Dataset position of each position of the order, where they differ (see `OrderedRows`).
    keep : bool
        Read once, and kept in memory for this and all later epochs.
    """

    def __init__(
        self, source: Source, selection: Selection, position_of: Rows | None, *, keep: bool = False
    ) -> None:
        self.source, self.selection, self.keep = source, selection, keep
        self.position_of = position_of
        self.name, self.layout, self.row_bytes = source.name, source.layout, source.held_row_bytes
        self.reader: Any = source.reader() if source.ragged is None else source.examples()
        self.kept: SourceReader | None = None  # reads the same rows out of memory, by position
        # shape and dtype of a row in the memory of a buffer
        self.buffer_row = source.row_shape, source.stored_dtype
        self._trusted_bytes = 0.0
        # how far rows of the file lie behind positions of the order; None where they differ in that
        span = selection.span
        self._shift = span.start if span and span.step == 1 and position_of is None else None
        kind, plain = self.reader.kind, not self.layout.expensive
        runs = kind in ("contiguous", "memory") or (kind == "chunked" and plain)
        chunk_bytes = (self.layout.chunk_rows or 1) * self.row_bytes
        several = not plain and chunk_bytes < PIECE_BYTES
        self._piece_bytes = DECODED_TASK_BYTES if several else PIECE_BYTES
        self._run_bytes = TASK_BYTES if runs else self._piece_bytes
        self._by_row = kind in ("contiguous", "memory") or self.layout.picked

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
            rows = load_rows(self.source, self.selection, threads)
            every = Selection.all(len(rows))
            self.kept = SourceReader(self.source.in_memory(rows), every, self.position_of)
            log.info("%r: %d rows are read and kept in memory", self.name, len(rows))

    def tasks(self, content: WindowRows, memory: Array, n_rows: int) -> tuple[Any, Sequence[Task]]:
        """Return where the rows of a window will be, and what must be done so that they are.

        Parameters
        ----------
        content : WindowRows
            Positions of the order, and the place of each among the rows of the window.
        memory : array, lengths ``(m, *row_shape)``
            Part of a buffer; its first `n_rows` rows receive stored values, by place.
        """
        if self.kept is not None:
            return self.kept.tasks(content, memory, n_rows)
        out, n_bytes = memory[:n_rows], n_rows * self.row_bytes
        if memory.dtype.hasobject:
            memory[...] = None  # the texts of the window before go first
        rows, places = read = self.file_rows(content)
        one_run, listed = isinstance(rows, range), not isinstance(rows, range) and rows.ndim == 1
        task_bytes = TASK_BYTES if listed else self._run_bytes if one_run else self._piece_bytes
        uncut_bytes = UNCUT_BYTES if task_bytes == TASK_BYTES else task_bytes
        if (listed or one_run) and self.reader.kind != "records" and n_bytes <= uncut_bytes:
            tasks: list[Task] = [partial(self.reader.read, rows, out, places)]
        else:
            tasks = tasks_of(self.reader, read, out, task_bytes)
        if content.ahead is not None:
            for window in reversed(content.ahead):
                tasks = [*self._advice(self.file_rows(window)[0]), *tasks]
        elif not one_run:
            tasks = [*self._advice(rows, n_bytes), *tasks]
        return out, tasks

    def _advice(self, rows: range | Rows, n_bytes: float = math.inf) -> list[Task]:
        """Return what announces scattered rows to the system, where it would have to fetch them.

        It is asked for two of them, one in the middle, where no reading of others has brought it
        in; once they are there, it is trusted for as many bytes. In one stretch it looks ahead by
        itself, and better undisturbed.
        """
        if self.reader.kind == "memory":
            return []
        if n_bytes <= self._trusted_bytes:
            self._trusted_bytes -= n_bytes
            return []
        asked = [rows[0], rows[len(rows) // 2]] if len(rows) else []
        for some in asked:
            if is_cold(self.reader, int(np.mean(some))):
                return [partial(advise, self.reader, rows)]
        self._trusted_bytes = TRUSTED_BYTES
        return []

    def read(self, rows: Rows, places: Rows, out: Any) -> None:
        """Read some file rows to their places in `out`."""
        self.reader.read(rows, out, places)

    def cost(self, content: WindowRows) -> Cost:
        """Count what reading a window takes, without reading."""
        return cost(self.reader, self.file_rows(content)[0])

    def whole_cost(self) -> Cost:
        """Count what reading the whole selection once, in file order, takes."""
        return cost(self.reader, sorted_read(self.selection.compact)[0])

    def file_rows(self, content: WindowRows) -> Read:
        """Map the positions of a window to file rows, in file order where that is cheaper."""
        first = self._shift
        if first is not None:
            if content.run is not None:
                return range(content.run[0] + first, content.run[1] + first), None
            if content.run_list is not None:
                return content.run_list + first, content.places
            if self._by_row and content.listed is not None:
                return content.listed + first, None
        runs = content.runs
        positions = content.rows if runs is None else rows_of(runs)
        if self.position_of is not None:
            positions = self.position_of[positions]
        rows = self.selection.take(positions)
        if runs is None and self._by_row:
            return rows, None
        return sorted_read(rows, None if runs is None else content.places)


class RaggedSourceReader(SourceReader):
    """A ragged source on its way into batches: every row becomes one array of its own.

    Parameters
    ----------
    buffer_row_bytes : int
        What a row takes in a buffer: as much as no job exceeds on average.
    chosen, keep
        As for :class:`SourceReader`.
    """

    def __init__(self, buffer_row_bytes: int, *chosen: Any, keep: bool = False) -> None:
        super().__init__(*chosen, keep=keep)
        self.row_bytes, self.buffer_row = buffer_row_bytes, ((buffer_row_bytes,), np.dtype("u1"))

    def load(self, threads: int) -> None:
        if self.keep and self.kept is None:
            rows, every = self.source.select(self.selection), Selection.all(len(self.selection))
            rows = replace(rows, reader=FlatRows(rows.flat(threads)), selection=every)
            held = self.source.in_memory(rows)
            self.kept = RaggedSourceReader(self.row_bytes, held, every, self.position_of)

    def tasks(self, content: WindowRows, memory: Array, n_rows: int) -> tuple[Any, Sequence[Task]]:
        """Return examples in batch order, whose lengths are known already, and how to read them."""
        if self.kept is not None:
            return self.kept.tasks(content, memory, n_rows)
        rows, cuts, places = self._cut(content)
        sizes = np.empty(n_rows, np.int64)
        sizes[places] = self.source.sizes[rows]
        out = RaggedRows.within(memory, sizes, self.reader.n_axes, self.source.dtype)
        return out, [partial(self.read, rows[a:b], places[a:b], out) for a, b in pairwise(cuts)]

    def read(self, rows: Rows, places: Rows, out: Any) -> None:
        starts = out.offsets[places]
        sizes = out.offsets[places + 1] - starts
        shapes = self.reader.read_at(rows, out.values, starts, sizes)
        if shapes.shape[1] != 1:
            out.shapes[places] = shapes

    def _cut(self, content: WindowRows) -> tuple[Rows, list[int], Rows]:
        """Return which rows are read in file order, where tasks are cut, the place of each row."""
        positions = content.rows
        if self.position_of is not None:
            positions = self.position_of[positions]
        rows = self.selection.take(positions)
        places = np.argsort(rows, kind="stable")
        rows = rows[places]
        nbytes = self.source.sizes[rows] * self.source.dtype.itemsize + OBJECT_BYTES
        task_bytes = RAGGED_TASK_BYTES
        if self.reader.kind == "records":
            task_bytes = record_task_bytes(int(nbytes.sum()))
        return rows, block_cuts(nbytes, task_bytes), places

    def cost(self, content: WindowRows) -> Cost:
        """Count what reading a window takes, task by task: two that meet in a chunk decode it."""
        rows, cuts, _ = self._cut(content)
        return sum([cost_of(self.reader, rows[a:b]) for a, b in pairwise(cuts)], Cost())

    def whole_cost(self) -> Cost:
        """Count what reading the whole selection at once takes."""
        return cost_of(self.reader, self.selection.rows)
