"""The order of one epoch: which units share a window, and where each row is dealt to.

Everything here is a pure function of (mode, units, window_rows, seed, epoch): any place
of the epoch can be computed without the ones before it. It opens no file and holds no
array that grows with the number of rows. Batches and parts are laid over it elsewhere.

The *run order* is the sequence of rows before anything is shuffled inside a window: file
order, or the units in permuted order. A part is a stretch ``[start, stop)`` of it. A
`Deal` arranges one such stretch: it cuts it into *windows*, and gives every row of a
window its *place* in the sequence that is handed out.

A window takes as many whole units as fit into `window_rows` (at least one; all of them
where it holds every row), and the units of a stretch are spread evenly over its windows, so
that an epoch does not end in a window too small to mix.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from labeled.errors import LoaderError
from labeled.samplers.buckets import Buckets
from labeled.samplers.content import Content, even_share, merged, rows_of, runs_of
from labeled.samplers.permutation import (
    Bijection,
    Identity,
    IntArray,
    Permutation,
    explicit_permutation,
    key_of,
)
from labeled.samplers.units import ListedUnits, UniformUnits, Units

Mode = Literal["file", "window", "full"]
MODES = ("file", "window", "full")


class Deal(Protocol):
    """One stretch of an epoch, arranged: its windows and the places of its rows."""

    @property
    def n_rows(self) -> int:
        """Rows of the stretch."""

    @property
    def n_windows(self) -> int:
        """Windows of the stretch."""

    def window_at(self, place: int) -> tuple[int, int, int]:
        """Return (number, first place, place behind the last) of the window at `place`."""

    def content(self, lo: int, hi: int) -> Content:
        """Return the rows of the places ``[lo, hi)``, which lie in one window."""


def asked_as(mode: str) -> str:
    """Return the argument that asks for a mode.

    Examples
    --------
    >>> asked_as("window"), asked_as("file")
    ("shuffle='window'", 'shuffle=False')
    """
    return f"shuffle={False if mode == 'file' else mode!r}"


@dataclass(frozen=True)
class Order:
    """The order parameters of one epoch.

    Parameters
    ----------
    mode : {'file', 'window', 'full'}
        File order; random units fill a window and are shuffled in it; any row may follow any
        row.
    units : UniformUnits or ListedUnits
        What is read together at the least; their positions are the rows to order.
    window_rows : int
        Rows read and shuffled together. A single unit may be larger: then it is the window.
    seed, epoch : int
        Hashed together: neighbours share nothing.
    sticky_shards : bool
        Keep each part to its own stretch of the file, every epoch.
    buckets : Buckets, optional
        Rows of about equal size share a batch; for windows.

    Examples
    --------
    >>> order = Order("window", UniformUnits(10**8, 64, 64), window_rows=20_000, seed=7)
    >>> order.deal((1, 4)).n_rows
    25000000
    """

    mode: Mode
    units: Units
    window_rows: int
    seed: int
    epoch: int = 0
    sticky_shards: bool = False
    buckets: Buckets | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise LoaderError(f"mode {self.mode!r} is not one of {', '.join(map(repr, MODES))}")
        if self.window_rows < 1:
            raise LoaderError(f"window_rows is {self.window_rows}; a window needs at least 1 row")

    @property
    def n_rows(self) -> int:
        """How many rows an epoch has."""
        return self.units.n_rows

    @cached_property
    def digest(self) -> str:
        """Hash of everything the order depends on but seed and epoch."""
        entries = (self.mode, self.window_rows, int(self.sticky_shards), self.units.digest)
        more = () if self.buckets is None else (self.buckets.digest,)
        return f"{key_of(*entries, *more):032x}"

    def at_epoch(self, epoch: int, seed: int | None = None) -> Order:
        """Return the same order parameters for another epoch (and another seed, if given)."""
        return replace(self, epoch=epoch, seed=self.seed if seed is None else seed)

    def deal(self, part: tuple[int, int] = (0, 1)) -> Deal:
        """Arrange the rows of one part: ``(index, count)``."""
        start, stop = stretch(self.n_rows, *part)
        if not self.sticky_shards:
            return self._arranged.deal(start, stop)
        own = self.units.clip(self.units.start + start, self.units.start + stop)
        salt = (self.seed, self.epoch, *part)
        return self._arrange(own, salt).deal(0, stop - start)

    @cached_property
    def _arranged(self) -> _Arranged:
        return self._arrange(self.units, (self.seed, self.epoch))

    def _arrange(self, units: Units, salt: tuple[int, ...]) -> _Arranged:
        return _Arranged(self.mode, units, self.window_rows, salt, self.buckets)


@dataclass(frozen=True, eq=False)
class _Arranged:
    """Rows with their permutation, made once for all the stretches that are cut from them."""

    mode: Mode
    units: Units
    window_rows: int
    salt: tuple[int, ...]
    buckets: Buckets | None = None

    def deal(self, start: int, stop: int) -> Deal:
        if self.mode == "full":
            return FullDeal(self._rows, self.units.start, start, stop, self.window_rows)
        shuffled = self.mode == "window"
        return WindowDeal(
            self._runs, start, stop, self.window_rows, self.salt, shuffled, self.buckets
        )

    @cached_property
    def _rows(self) -> Bijection:
        return Permutation(self.units.n_rows, key_of(*self.salt, "rows"))

    @cached_property
    def _runs(self) -> RunOrder:
        count = self.units.count
        shuffled = self.mode != "file"
        slots = Permutation(count, key_of(*self.salt, "units")) if shuffled else Identity(count)
        if isinstance(self.units, UniformUnits):
            return UniformRunOrder(self.units, slots)
        return ListedRunOrder(self.units, slots)


def stretch(n_rows: int, index: int, count: int) -> tuple[int, int]:
    """Cut `n_rows` into `count` stretches that differ by at most one row; return one.

    Examples
    --------
    >>> [stretch(10, index, 4) for index in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    if count < 1 or not 0 <= index < count:
        raise LoaderError(f"part ({index}, {count}): need count >= 1 and 0 <= index < count")
    return n_rows * index // count, n_rows * (index + 1) // count


@dataclass(frozen=True)
class FullDeal:
    """A stretch of one permutation of all rows; its windows are blocks of places."""

    permutation: Bijection
    first_row: int
    start: int
    stop: int
    window_rows: int

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    @property
    def n_windows(self) -> int:
        return -(-self.n_rows // self.window_rows)

    def window_at(self, place: int) -> tuple[int, int, int]:
        return even_share(place, self.n_rows, self.n_windows)

    def content(self, lo: int, hi: int) -> Content:
        positions = np.arange(self.start + lo, self.start + hi)
        rows = self.permutation(positions)
        rows += self.first_row
        return Content(listed=rows)


@dataclass(frozen=True, eq=False)
class WindowDeal:
    """A stretch of units in run order, shuffled window by window (or not at all)."""

    runs: RunOrder
    start: int
    stop: int
    window_rows: int
    salt: tuple[int, ...]
    shuffled: bool
    buckets: Buckets | None = None

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    @property
    def n_windows(self) -> int:
        return self._edges.count if self.n_rows else 0

    @cached_property
    def _edges(self) -> Edges:
        first = self.runs.slot_at(self.start)
        return self.runs.edges(first, self.runs.slot_at(self.stop - 1) + 1, self.window_rows)

    def window_at(self, place: int) -> tuple[int, int, int]:
        number, lo, hi = self._edges.around(self.runs.slot_at(self.start + place))
        first = max(self.runs.start_of(lo), self.start)
        return number, first - self.start, min(self.runs.start_of(hi), self.stop) - self.start

    def content(self, lo: int, hi: int) -> Content:
        if not self.shuffled:  # file order: rows follow one another whatever the windows
            row = self.runs.units.start + self.start
            return Content(run=(row + lo, row + hi))
        _, first, last = self.window_at(lo)
        runs = self.whole_runs(first, last)
        key = key_of(*self.salt, "window", self.start + first)
        dest = explicit_permutation(last - first, key)
        if self.buckets is not None:
            key = key_of(*self.salt, "buckets", self.start + first)
            dest = self.buckets.arranged(rows_of(runs), dest, first, key)
        if (lo, hi) == (first, last):
            return Content(several=runs, dest=dest)
        dest -= lo - first
        wanted = np.flatnonzero((dest >= 0) & (dest < hi - lo))
        return Content(several=runs_of(rows_of(runs)[wanted]), dest=dest[wanted])

    def whole_runs(self, first: int, last: int) -> IntArray:
        """Return the runs of the window with the places ``[first, last)``, before any shuffle."""
        lo, hi = self.start + first, self.start + last
        a, b = self.runs.slot_at(lo), self.runs.slot_at(hi - 1) + 1
        starts, stops = self._stretches(a, b)
        starts[0] += lo - self.runs.start_of(a)
        stops[-1] -= self.runs.start_of(b) - hi
        return _ascending(starts, stops)

    def _stretches(self, first: int, last: int) -> tuple[IntArray, IntArray]:
        """Return where the units of the slots ``[first, last)`` begin and end."""
        ids = self.runs.slots(np.arange(first, last))
        starts = self.runs.units.starts(ids)
        return starts, starts + self.runs.units.sizes(ids)


def _ascending(starts: IntArray, stops: IntArray) -> IntArray:
    """Return stretches in the order of their rows, joined where they touch."""
    order = np.argsort(starts)  # distinct: any sorting algorithm gives the same
    return merged(starts[order], stops[order])


class RunOrder(Protocol):
    """Units in the order they are read: slot s holds unit ``slots(s)``."""

    @property
    def units(self) -> Units: ...

    @property
    def slots(self) -> Bijection: ...

    def start_of(self, slot: int) -> int:
        """Return how many rows the slots before `slot` hold."""

    def slot_at(self, position: int) -> int:
        """Return the slot that holds a position of the run order."""

    def edges(self, first: int, last: int, window_rows: int) -> Edges:
        """Share the slots ``[first, last)`` out to windows."""


class Edges(Protocol):
    """Which slots make up a window."""

    @property
    def count(self) -> int: ...

    def around(self, slot: int) -> tuple[int, int, int]:
        """Return (number, first slot, slot behind the last) of the window of `slot`."""


@dataclass(frozen=True)
class UniformRunOrder:
    """Units of one size: every question is answered from a few integers."""

    units: UniformUnits
    slots: Bijection

    @cached_property
    def _short(self) -> list[tuple[int, int]]:
        """The slots of the short units, and how many rows each is short of."""
        ends = np.array(sorted({0, self.units.count - 1}))
        lacks = self.units.unit_rows - self.units.sizes(ends)
        return list(zip(self.slots.inverse(ends).tolist(), lacks.tolist(), strict=True))

    def start_of(self, slot: int) -> int:
        return slot * self.units.unit_rows - sum(lack for at, lack in self._short if at < slot)

    def slot_at(self, position: int) -> int:
        slot = position // self.units.unit_rows  # at most two too low: two units are short
        while self.start_of(slot + 1) <= position:
            slot += 1
        return slot

    def edges(self, first: int, last: int, window_rows: int) -> Edges:
        units_a_window = max(1, window_rows // self.units.unit_rows)
        if window_rows >= self.units.n_rows:  # short units fit too, or units do not divide it
            units_a_window = last - first
        return EvenEdges(first, last - first, -(-(last - first) // units_a_window))


@dataclass(frozen=True)
class EvenEdges:
    """The same number of units in every window, give or take one."""

    first: int
    n_slots: int
    count: int

    def around(self, slot: int) -> tuple[int, int, int]:
        number, lo, hi = even_share(slot - self.first, self.n_slots, self.count)
        return number, self.first + lo, self.first + hi


@dataclass(frozen=True, eq=False)
class ListedRunOrder:
    """Units of any sizes: their sums in run order are kept, eight bytes a unit."""

    units: ListedUnits
    slots: Bijection

    @cached_property
    def _sums(self) -> IntArray:
        sizes = self.units.sizes(self.slots(np.arange(self.units.count)))
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])

    def start_of(self, slot: int) -> int:
        return int(self._sums[slot])

    def slot_at(self, position: int) -> int:
        return int(np.searchsorted(self._sums, position, side="right")) - 1

    def edges(self, first: int, last: int, window_rows: int) -> Edges:
        sums, edges = self._sums, [first]
        while edges[-1] < last:
            fitting = int(sums.searchsorted(sums[edges[-1]] + window_rows, side="right")) - 1
            edges.append(min(max(fitting, edges[-1] + 1), last))
        if len(edges) > 2:  # share the last two windows evenly: no small one at the end
            middle = int(sums[edges[-3]] + sums[last] + 1) // 2
            edges[-2] = min(edges[-2], int(sums.searchsorted(middle)))
        return ListedEdges(edges)


@dataclass(frozen=True, eq=False)
class ListedEdges:
    """The first slot of every window, and the slot behind the last."""

    slots: list[int]

    @property
    def count(self) -> int:
        return len(self.slots) - 1

    def around(self, slot: int) -> tuple[int, int, int]:
        number = bisect_right(self.slots, slot) - 1
        return number, self.slots[number], self.slots[number + 1]
