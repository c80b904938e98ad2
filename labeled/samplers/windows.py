"""The order of one epoch: which rows are read together, and in what order they are handed out.

Integers only: no file and no array of data. Everything is a pure function of (mode, units,
window_rows, seed, epoch, shard), and any place of an epoch can be worked out without those
before it.

The *run order* is the sequence of rows before anything is shuffled inside a window: file order,
the units in permuted order, or (full shuffle) the rows in permuted order. A shard is a stretch
``[start, stop)`` of it, which `WindowOrder` cuts into *windows*; every row of a window has a
*place* in the sequence that is handed out. A window takes as many whole units as fit into
`window_rows` (at least one), and the units of a shard are spread evenly over its windows, so that
an epoch does not end in a window too small to mix.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from labeled.errors import LoaderError
from labeled.samplers.permutation import IntArray, Permutation, explicit_permutation, key_of
from labeled.samplers.units import ListedUnits, UniformUnits, Units
from labeled.selection import merged_runs, rows_of

Mode = Literal["file", "window", "full"]


def shuffle_argument(mode: str) -> str:
    """Return the argument that asks for a mode.

    Examples
    --------
    >>> shuffle_argument("window"), shuffle_argument("file")
    ("shuffle='window'", 'shuffle=False')
    """
    return f"shuffle={False if mode == 'file' else mode!r}"


def shard_bounds(n_rows: int, index: int, count: int) -> tuple[int, int]:
    """Cut `n_rows` into `count` stretches that differ by at most one row; return one.

    Examples
    --------
    >>> [shard_bounds(10, index, 4) for index in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    if count < 1 or not 0 <= index < count:
        raise LoaderError(f"shard ({index}, {count}): need count >= 1 and 0 <= index < count")
    return n_rows * index // count, n_rows * (index + 1) // count


def even_share(place: int, n_rows: int, count: int) -> tuple[int, int, int]:
    """Return (number, start, stop) of the stretch of `place`, `n_rows` being cut into `count`.

    Examples
    --------
    >>> even_share(4, 10, 4)
    (1, 2, 5)
    """
    number = ((place + 1) * count - 1) // n_rows
    return number, n_rows * number // count, n_rows * (number + 1) // count


# ---------------------------------------------------------------- the rows of a window
@dataclass(eq=False)
class WindowRows:
    """Rows that are read together, and their places.

    Attributes
    ----------
    run_list : int64 array, (k, 2), optional
        Ascending half-open runs of rows, merged where they touch.
    places : int64 array, (n_rows,), optional
        Row number i of the runs, one after another, goes to place ``places[i]``; None: to place i.
    listed : int64 array, (n_rows,), optional
        In place of runs: the rows in the order of their places (full shuffle, draws).
    run : (int, int), optional
        In place of both: one run, in order.
    """

    run_list: IntArray | None = None
    places: IntArray | None = None
    listed: IntArray | None = None
    run: tuple[int, int] | None = None

    @property
    def runs(self) -> IntArray | None:
        """The runs, ascending; None where rows are listed."""
        return self.run_list if self.run is None else np.array([self.run], np.int64)

    @cached_property
    def rows(self) -> IntArray:
        """The rows in the order of their places."""
        if self.run is not None:
            return np.arange(*self.run, dtype=np.int64)
        if self.run_list is None:
            assert self.listed is not None
            return self.listed
        rows = rows_of(self.run_list)
        if self.places is None:
            return rows
        placed = np.empty_like(rows)
        placed[self.places] = rows
        return placed


class Window(NamedTuple):
    """Rows read together, for the places ``[start, stop)`` of a shard's sequence.

    Place 0 is the first row of batch 0; windows follow one another without a gap.
    """

    start: int
    stop: int
    content: WindowRows


@dataclass(frozen=True, eq=False)
class Buckets:
    """Sizes of rows and the length of a batch: rows of about equal size share a batch.

    A shuffled window is arranged once more, so that little of a batch is padding: its rows are
    sorted by size and cut where batches end, and the batches take the places of the window in
    random order, each with its rows as they were shuffled. Sizes are part of the order, and so
    of its digest. A batch that draws from two windows has rows of two sizes.

    Parameters
    ----------
    name : str
        The source whose examples are measured.
    sizes : int64 array, (n_rows,)
        Elements of each example, by position.
    batch_rows : int
    """

    name: str
    sizes: IntArray
    batch_rows: int

    @cached_property
    def digest(self) -> str:
        """Hash of the sizes and of how they are used."""
        sizes = hashlib.blake2b(self.sizes.tobytes(), digest_size=16).hexdigest()
        return f"{key_of('buckets', self.name, self.batch_rows, sizes):032x}"

    def arranged(self, rows: IntArray, places: IntArray, first: int, key: int) -> IntArray:
        """Return where rows of a window go, instead of to `places`.

        Parameters
        ----------
        rows, places : int64 arrays, (n,)
            Positions in the window, and the places where a plain shuffle puts them.
        first : int
            First place of the window; batches end at multiples of `batch_rows`.
        key : int
            Decides the order of the batches.

        Examples
        --------
        >>> sizes = np.array([9, 1, 8, 2])
        >>> where = Buckets("x", sizes, 2).arranged(np.arange(4), np.array([0, 1, 2, 3]), 0, 7)
        >>> sorted(sizes[np.argsort(where)].reshape(2, 2).tolist())
        [[1, 2], [9, 8]]
        """
        n = len(rows)
        ends = np.arange(first - first % self.batch_rows, first + n, self.batch_rows)[1:]
        edges = np.concatenate([[0], ends - first, [n]])
        turn = explicit_permutation(len(edges) - 1, key)
        lengths = np.diff(edges)[turn]
        shuffled = np.argsort(places)
        ranked = shuffled[np.argsort(self.sizes[rows[shuffled]], kind="stable")]
        batch = np.empty(n, np.int64)
        batch[ranked] = np.repeat(np.arange(len(turn)), lengths)
        batch_places = np.arange(n) + np.repeat(
            edges[turn] - (np.cumsum(lengths) - lengths), lengths
        )
        out = np.empty(n, np.int64)
        out[shuffled[np.argsort(batch[shuffled], kind="stable")]] = batch_places
        return out


# ---------------------------------------------------------------- the order of an epoch
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
        Keep each shard to its own stretch of the file, every epoch.
    buckets : Buckets, optional
        Rows of about equal size share a batch; for windows.

    Examples
    --------
    >>> order = Order("window", UniformUnits(10**8, 64, 64), window_rows=20_000, seed=7)
    >>> order.arrange((1, 4)).n_rows
    25000000
    """

    mode: Mode
    units: Units
    window_rows: int
    seed: int
    epoch: int = 0
    sticky_shards: bool = False
    buckets: Buckets | None = None
    n_rows: int = field(init=False, repr=False)
    """How many rows an epoch has."""

    def __post_init__(self) -> None:
        self.__dict__["n_rows"] = self.units.n_rows

    @cached_property
    def digest(self) -> str:
        """Hash of everything the order depends on but seed and epoch."""
        entries = (self.mode, self.window_rows, int(self.sticky_shards), self.units.digest)
        more = () if self.buckets is None else (self.buckets.digest,)
        return f"{key_of(*entries, *more):032x}"

    def at_epoch(self, epoch: int, seed: int | None = None) -> Order:
        """Return the same order parameters for another epoch (and another seed, if given)."""
        return replace(self, epoch=epoch, seed=self.seed if seed is None else seed)

    def arrange(self, shard: tuple[int, int] = (0, 1)) -> WindowOrder:
        """Arrange the rows of one shard, (index, count)."""
        return WindowOrder(self, shard)


class WindowOrder:
    """The windows of one shard, a stretch of the run order, and the places of its rows.

    The n-th unit of the run order is unit ``permuted(n)``. The rows before it follow from a few
    integers where units have one size; else their sums are kept, eight bytes a unit.
    """

    def __init__(self, order: Order, shard: tuple[int, int]) -> None:
        units, salt = order.units, [order.seed, order.epoch]
        start, stop = shard_bounds(units.n_rows, *shard)
        if order.sticky_shards:
            units, salt = units.clip(units.start + start, units.start + stop), [*salt, *shard]
            start, stop = 0, stop - start
        if order.mode == "full":  # units of one row
            units = UniformUnits(units.n_rows, 1, 1, units.start)
        self.order, self.units, self.salt = order, units, salt
        self.start, self.stop, self.n_rows = start, stop, stop - start
        key = key_of(*salt, "rows" if order.mode == "full" else "units")
        self.permuted = None if order.mode == "file" else Permutation(units.count, key)
        self.sums: IntArray | None = None
        self.unit_rows = 0
        self.cut_units: list[tuple[int, int]] = []
        """Units that are cut: the place of each in the run order, and how many rows it lacks."""
        if isinstance(units, ListedUnits):
            ids = np.arange(units.count)
            starts, stops = units.bounds(ids if self.permuted is None else self.permuted(ids))
            self.sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(stops - starts)])
        elif units.n_rows:
            self.unit_rows = units.unit_rows
            ends = np.array([0, units.count - 1])[: units.count]
            starts, stops = units.bounds(ends)
            lacks = self.unit_rows - (stops - starts)
            if self.permuted is not None and lacks.any():
                ends = self.permuted(ends, inverse=True)
            self.cut_units = list(zip(ends.tolist(), lacks.tolist(), strict=True))
        self.edges: list[int] = []
        """Units of several sizes: the first unit of each window, and one past the last."""
        self.even_windows = 0, 0, 0
        """Units of one size: the first, how many they are, and over how many windows spread."""
        if not self.n_rows:
            return
        first, last = self.unit_at(self.start), self.unit_at(self.stop - 1) + 1
        window_rows, sums = order.window_rows, self.sums
        if sums is None:
            each = max(1, window_rows // self.unit_rows)
            if window_rows >= units.n_rows:  # short units fit too, or units do not divide it
                each = last - first
            self.even_windows = first, last - first, -(-(last - first) // each)
            return
        edges = [first]
        while edges[-1] < last:
            fitting = int(sums.searchsorted(sums[edges[-1]] + window_rows, side="right")) - 1
            edges.append(min(max(fitting, edges[-1] + 1), last))
        if len(edges) > 2:  # share the last two windows evenly: no small one at the end
            middle = int(sums[edges[-3]] + sums[last] + 1) // 2
            edges[-2] = min(edges[-2], int(sums.searchsorted(middle)))
        self.edges = edges

    def rows_before(self, nth: int) -> int:
        """Return how many rows the units before the n-th of the run order hold."""
        if self.sums is not None:
            return int(self.sums[nth])
        rows = nth * self.unit_rows
        for at, lack in self.cut_units:
            if at < nth:
                rows -= lack
        return rows

    def unit_at(self, position: int) -> int:
        """Return which unit of the run order holds a position of it."""
        if self.sums is not None:
            return int(self.sums.searchsorted(position, side="right")) - 1
        nth = position // self.unit_rows  # at most two too low: two units are short
        while self.rows_before(nth + 1) <= position:
            nth += 1
        return nth

    def window_at(self, place: int) -> tuple[int, int, int]:
        """Return (number, first place, place behind the last) of the window at `place`."""
        nth = self.unit_at(self.start + place)
        if self.sums is not None:
            number = bisect_right(self.edges, nth) - 1
            lo, hi = self.edges[number], self.edges[number + 1]
        else:
            first, n_units, n_windows = self.even_windows
            number, lo, hi = even_share(nth - first, n_units, n_windows)
            lo, hi = first + lo, first + hi
        begin = max(self.rows_before(lo), self.start)
        return number, begin - self.start, min(self.rows_before(hi), self.stop) - self.start

    def rows(self, lo: int, hi: int) -> WindowRows:
        """Return the rows of the places ``[lo, hi)``, which lie in one window."""
        order = self.order
        if self.permuted is None:  # rows follow one another whatever the windows
            row = self.units.start + self.start
            return WindowRows(run=(row + lo, row + hi))
        if order.mode == "full":
            rows = self.permuted(np.arange(self.start + lo, self.start + hi))
            rows += self.units.start
            return WindowRows(listed=rows)
        _, first, last = self.window_at(lo)
        run_list, place = self.whole_runs(first, last), self.start + first
        places = explicit_permutation(last - first, key_of(*self.salt, "window", place))
        if order.buckets is not None:
            key = key_of(*self.salt, "buckets", place)
            places = order.buckets.arranged(rows_of(run_list), places, first, key)
        if (lo, hi) == (first, last):
            return WindowRows(run_list, places)
        places -= lo - first
        wanted = np.flatnonzero((places >= 0) & (places < hi - lo))
        rows = rows_of(run_list)[wanted]
        return WindowRows(merged_runs(rows, rows + 1), places[wanted])

    def whole_runs(self, first: int, last: int) -> IntArray:
        """Return the runs of the window with the places ``[first, last)``, before any shuffle."""
        assert self.permuted is not None
        lo, hi = self.start + first, self.start + last
        a, b = self.unit_at(lo), self.unit_at(hi - 1) + 1
        starts, stops = self.units.bounds(self.permuted(np.arange(a, b)))
        starts[0] += lo - self.rows_before(a)
        stops[-1] -= self.rows_before(b) - hi
        ascending = np.argsort(starts)  # distinct: any sorting algorithm gives the same
        return merged_runs(starts[ascending], stops[ascending])
