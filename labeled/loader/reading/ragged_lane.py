"""Ragged sources on their way into batches: how their examples are read.

Examples are read to slots like any others, one after another as they are dealt (see `dealt`): so
order, parts, resume and reading ahead are those of dense sources, and know nothing of
shapes. What differs: tasks are cut by bytes, and the bytes of a row are taken to be so many
that no window of the order can hold more than its rows times that (see `ragged_bounds`).

Where examples are made one by one (decoded pictures), each has memory of its own, and travels
as an object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.loading import Task, as_runs
from labeled.catalog.ragged import RaggedSource
from labeled.formats.reader import Cost
from labeled.loader.reading.dealt import DealtExamples
from labeled.loader.reading.lanes import Lane
from labeled.ragged import FlatRows, RaggedReader
from labeled.ragged.flat import block_cuts, comes_one_by_one, own_examples, read_at
from labeled.samplers.content import Content, rows_of
from labeled.selection import Selection

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

OBJECT_BYTES = 208
"""What an array object takes besides its values, and its place in a slot."""

TASK_BYTES = 4 << 20
"""What one task reads, unless one example is larger.

Of two tasks in file order both decode the chunk between. Others wait for Python's lock in between:
jobs in full shuffle that were cut in three took twice as long.
"""

DEAR_TASK_BYTES = 3 << 20
"""The same where examples are made one by one, so that none of it is a temporary copy."""


@dataclass(eq=False)
class RaggedLane(Lane):
    """A ragged source on its way into batches: every row becomes one array of its own.

    Parameters
    ----------
    bound : int
        No window of the order holds more than this many bytes a row.
    """

    source: RaggedSource
    reader: Any  # a RaggedReader
    bound: int = 0
    examples: RaggedReader | None = field(default=None, repr=False)
    """The rows themselves, by position, where they are kept."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "examples": None}

    @property
    def is_plain(self) -> bool:
        return False

    @property
    def row_bytes(self) -> int:
        return self.bound or self.source.row_bytes + OBJECT_BYTES

    @property
    def nbytes(self) -> int:
        return int(self.position_bytes(None).sum())

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

    def room(self, content: Content, group: Rows | None, memory: Array, n_rows: int) -> Any:
        """Return examples as they are dealt, whose lengths are known already."""
        if self._one_by_one:
            return memory[:n_rows]
        positions = content.rows if group is None else group[content.rows]
        rows = self.selection.take(positions)
        return DealtExamples.within(
            memory, self.source.sizes[rows], len(self.source.dims) - 1, self.source.dtype
        )

    def tasks(self, content: Content, group: Rows | None, out: Any) -> Sequence[Task]:
        """Return what must be done so that `out` holds the rows as dealt."""
        reader, rows, places = self._wanted(content, group)
        cuts = block_cuts(self._bytes(rows), self._task_bytes)
        fill = fill_apart if self._one_by_one else fill_together
        return [partial(fill, reader, rows[a:b], places[a:b], out) for a, b in pairwise(cuts)]

    @property
    def _task_bytes(self) -> int:
        return DEAR_TASK_BYTES if self._one_by_one else TASK_BYTES

    @property
    def _one_by_one(self) -> bool:
        return comes_one_by_one(self.reader)

    def read_again(self, rows: Rows, places: Rows, out: Any) -> None:
        """Read some examples by themselves, in the caller, to their places in `out`."""
        fill = fill_apart if self._one_by_one else fill_together
        fill(self.reader, rows, places, out)

    def _wanted(self, content: Content, group: Rows | None) -> tuple[RaggedReader, Rows, Rows]:
        """Return who reads, which of its rows in file order, and their places."""
        if self.examples is not None:
            positions = content.rows if group is None else group[content.rows]
            return self.examples, positions, np.arange(len(positions))
        read = self.read(content, group)
        if read.listed is None:
            rows = rows_of(as_runs(read))
            return self.reader, rows, np.arange(len(rows)) if read.dest is None else read.dest
        order = np.argsort(read.listed, kind="stable")
        return self.reader, read.listed[order], order

    def _bytes(self, rows: Rows) -> Rows:
        """Bytes of examples, kept or not: those of file rows, or of positions."""
        kept = self.examples
        sizes = self.source.sizes[rows] if kept is None else kept.sizes(rows)
        return sizes * self.source.dtype.itemsize + OBJECT_BYTES

    def position_bytes(self, group: Rows | None) -> Rows:
        """Bytes of the example at each grouped position."""
        rows = self.selection.rows if group is None else self.selection.take(group)
        return self.source.sizes[rows] * self.source.dtype.itemsize + OBJECT_BYTES

    def cost(self, content: Content, group: Rows | None) -> Cost:
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


def fill_together(reader: RaggedReader, rows: Rows, places: Rows, out: DealtExamples) -> None:
    """Read examples, each to where it is dealt from."""
    starts = out.offsets[places]
    shapes = read_at(reader, rows, out.values, starts, out.offsets[places + 1] - starts)
    if shapes.shape[1] != 1:
        out.shapes[places] = shapes


def fill_apart(reader: RaggedReader, rows: Rows, places: Rows, out: Array) -> None:
    """Read examples and put each, as an array of its own memory, at its place."""
    for place, example in zip(places.tolist(), own_examples(reader, rows), strict=True):
        out[place] = example


def lane_of(source: Any, selection: Selection) -> Lane:
    """Make the lane of a source, ragged or dense."""
    if isinstance(source, RaggedSource):
        return RaggedLane(source, selection, source.examples())
    return Lane(source, selection, source.reader())
