"""How many bytes ragged examples can take at worst, in a window and in a batch.

Sizes are read once a plan. From them follows a number of bytes a row that no window exceeds,
whichever examples meet in it, and windows are planned with that: so they stay within memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.loader.budget import Sizes
from labeled.loader.lanes import Lane, RaggedLane
from labeled.loader.ordering import Grouping
from labeled.loader.ragged_finish import RaggedFinish
from labeled.samplers.order import Mode
from labeled.samplers.units import Units
from labeled.selection import Selection
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource

Rows = npt.NDArray[np.int64]

SHAPE_ROWS = 1 << 16
"""Shapes that are read together to find the longest."""

OUTSIZED = 16
"""A row so many times as large as half of the others is named where it needs too much memory."""

SLACK, ROUNDS = 1.05, 100
"""What is added to a bound that was too low, so that few of so many rounds are needed."""


@dataclass(frozen=True, eq=False)
class Worst:
    """The most bytes that a window of at most `n` rows can have, whichever rows it gets.

    Parameters
    ----------
    sizes : int64 (n_rows,)
        Bytes by grouped position.
    mode : {"file", "window", "full"}
    units : Units
        What stays together in window mode.
    repeats : bool
        Rows may be drawn more than once.
    """

    sizes: Rows
    mode: Mode
    units: Units
    repeats: bool = False

    def of(self, n: int) -> int:
        """Return the bound for windows that hold up to `n` rows; it never falls."""
        sizes = self.sizes
        n = min(n, len(sizes)) if not self.repeats else n
        if not len(sizes) or not n:
            return 0
        if self.repeats:
            return n * int(sizes.max())
        if self.mode == "file":
            ends = np.concatenate([[0], np.cumsum(sizes)])
            return int((ends[n:] - ends[:-n]).max())
        if self.mode == "full":
            return int(np.partition(sizes, len(sizes) - n)[len(sizes) - n :].sum())
        return self._of_units(n)

    def _of_units(self, n: int) -> int:
        """Bytes of the densest units that hold `n` rows; windows are made of whole ones."""
        nbytes, rows = self._units
        order = np.argsort(-(nbytes / rows), kind="stable")
        taken = int(np.searchsorted(np.cumsum(rows[order]), n)) + 1
        return int(nbytes[order[:taken]].sum())

    @cached_property
    def _units(self) -> tuple[Rows, Rows]:
        """Bytes and rows of each unit."""
        starts = self.units.starts(np.arange(self.units.count)) - self.units.start
        rows = np.diff(np.append(starts, len(self.sizes)))
        return np.add.reduceat(self.sizes, starts), rows

    @property
    def largest(self) -> int:
        """No `n` rows have more than `n` times this."""
        if not len(self.sizes):
            return 0
        return int((self._units[0] if self.mode == "window" else self.sizes).max())


Bounds = Sequence[tuple["RaggedLane", Worst]]


def worst_of(lanes: Sequence[Lane], mode: Mode, grouping: Grouping, *, repeats: bool) -> Bounds:
    """Return what the ragged lanes can hold at worst, in the order that is planned."""
    return [
        (lane, Worst(lane.position_bytes(grouping.group), mode, grouping.units, repeats))
        for lane in lanes
        if isinstance(lane, RaggedLane)
    ]


def settled(bounds: Bounds, plan: Callable[[], Sizes]) -> Sizes:
    """Plan sizes again until no job can hold more bytes than were planned for it.

    Parameters
    ----------
    bounds : from :func:`worst_of`
    plan : callable
        Shares memory out by what the lanes say a row takes.
    """
    for lane, worst in bounds:
        lane.bound = max(1, -(-int(worst.sizes.sum()) // max(1, len(worst.sizes))))
    sizes = plan()
    for _ in range(ROUNDS if bounds else 0):
        rows, over = max(1, sizes.job_rows), False
        for lane, worst in bounds:
            most = worst.of(rows)
            if most > rows * lane.bound:
                lane.bound, over = int(SLACK * most / rows) + 1, True
        if not over:
            return sizes
        sizes = plan()
    for lane, worst in bounds:
        lane.bound = max(1, worst.largest)
    return plan()


def batch_bytes(
    bounds: Bounds, finishes: Mapping[str, RaggedFinish], batch_rows: int
) -> list[tuple[RaggedLane, int]]:
    """Return the bytes a row of each ragged source as handed out, in the largest batch."""
    return [
        (lane, _out_bytes(lane, worst, finishes[lane.name], batch_rows))
        for lane, worst in bounds
        if lane.name in finishes
    ]


def _out_bytes(lane: RaggedLane, worst: Worst, finish: RaggedFinish, batch_rows: int) -> int:
    rows = max(1, min(batch_rows, len(worst.sizes)))
    wider = max(1.0, finish.out_dtype.itemsize / max(1, finish.dtype.itemsize))
    held = int(wider * worst.of(rows) / rows) + 1
    if finish.layout != "pad":
        return held
    longest = math.prod(finish.lengths or longest_of(lane))
    return held + longest * (finish.out_dtype.itemsize + 1)


def beyond_rows(
    handed_out: Sequence[tuple[RaggedLane, int]], finishes: Mapping[str, RaggedFinish]
) -> int:
    """Bytes a row that batches take beyond what the lanes say of a row, where they are made."""
    made = [(lane, nbytes) for lane, nbytes in handed_out if not finishes[lane.name].as_read]
    return sum(max(0, nbytes - lane.row_bytes) for lane, nbytes in made)


def longest_of(lane: RaggedLane) -> list[int]:
    """Return the longest length along each axis of the examples that are read."""
    longest = np.zeros(len(lane.source.dims) - 1, np.int64)
    reader = lane.source.examples()
    for first in range(0, len(lane.selection), SHAPE_ROWS):
        rows = lane.selection[first : first + SHAPE_ROWS].rows
        longest = np.maximum(longest, reader.shapes(rows).max(axis=0, initial=0))
    lengths: list[int] = longest.tolist()
    return lengths


def outsized(
    sources: Mapping[str, AnySource], selections: Mapping[str, Selection]
) -> Iterator[str]:
    """Name the rows that are by far the largest of their sources, as what can be left out."""
    for name, source in sources.items():
        sizes = source.sizes[selections[name].rows] if isinstance(source, RaggedSource) else ()
        largest = int(np.argmax(sizes)) if len(sizes) else 0
        if len(sizes) and sizes[largest] > OUTSIZED * max(1, np.median(sizes)):
            taken = format_bytes(int(sizes[largest]) * source.dtype.itemsize)
            yield f"a subset without row {largest} of {source.where}, which is to take {taken}"
