"""The order of one epoch: which rows are read together, and in what order they are handed out.

Integers only: no file and no array of data. Everything is a pure function of (mode, units,
window_rows, seed, epoch, shard), and any place of an epoch can be worked out without those
before it. Another run order is a `Mode`; another way to arrange the rows of a window is a
parameter of `Order`, as `Buckets` and `Weights` are.

The *run order* is the sequence of rows before anything is shuffled inside a window: file order,
the units in permuted order, or (full shuffle) the rows in permuted order. A shard is a stretch
``[start, stop)`` of it, which `WindowOrder` cuts into *windows*; every row of a window has a
*place* in the sequence that is handed out. A window takes as many whole units as fit into
`window_rows` (at least one), and the units of a shard are spread evenly over its windows, so that
an epoch does not end in a window too small to mix.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled._validation import as_array
from labeled.errors import LoaderError
from labeled.samplers.listed import Sampler
from labeled.samplers.permutation import Permutation, digest_of, explicit_permutation, key_of
from labeled.samplers.units import UniformUnits, Units
from labeled.selection import merged_runs, rows_of, runs_of, spread

Mode = Literal["file", "window", "full"]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def shuffle_argument(mode: str) -> str:
    """Return the argument that asks for a mode.

    Examples
    --------
    >>> shuffle_argument("window"), shuffle_argument("file"), shuffle_argument("weights")
    ("shuffle='window'", 'shuffle=False', 'weights=...')
    """
    if mode in ("weights", "balance", "sampler"):
        return f"{mode}=..."
    return f"shuffle={False if mode == 'file' else mode!r}"


def shard_bounds(n_rows: int, index: int, count: int) -> tuple[int, int]:
    """Cut `n_rows` into `count` stretches that differ by at most one row; return one.

    Examples
    --------
    >>> [shard_bounds(10, index, 4) for index in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
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
    ahead : tuple of WindowRows, optional
        The window of which these rows are the first part, and the next: their runs are announced
        to the system as a whole. Empty for later parts.
    """

    run_list: IntArray | None = None
    places: IntArray | None = None
    listed: IntArray | None = None
    run: tuple[int, int] | None = None
    ahead: tuple[WindowRows, ...] | None = None

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
        return f"{key_of('buckets', self.name, self.batch_rows, digest_of(self.sizes)):032x}"

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
        out = np.empty(n, np.int64)
        ordered = shuffled[np.argsort(batch[shuffled], kind="stable")]
        out[ordered] = spread(edges[turn], lengths)
        return out


@dataclass(frozen=True, eq=False)
class Weights:
    """Rows are drawn with replacement, in proportion to their weight.

    The draw at a position is a function of (seed, epoch, position) and of the weights alone, so
    shards, seeks and resumed runs see the draws of the undivided epoch. A window of w positions
    first draws as many units as w rows fill, one from each of equal shares of the total weight, so
    that rare classes come up in every window; then its positions are spread evenly over these
    units, and each draws a row of its unit. A row's chance at any position is exactly its share of
    the total weight. The price: the rows of one window come from few units. Where one window holds
    all rows, each position draws from its own share of the total weight.

    Parameters
    ----------
    values : float64 array, (n_rows,)
        One for each position of `units`; not negative, not all zero.
    units : UniformUnits or ListedUnits
        What is read together at the least.
    """

    values: FloatArray
    units: Units

    @cached_property
    def digest(self) -> str:
        """Hash of the weights."""
        return digest_of(np.asarray(self.values, np.float64))

    @cached_property
    def sums(self) -> FloatArray:
        """Weight before each row, and of all rows."""
        return np.concatenate([np.zeros(1), np.cumsum(self.values)])

    @cached_property
    def unit_sums(self) -> FloatArray:
        """Weight before each unit, and of all units."""
        starts, _ = self.units.bounds(np.arange(self.units.count))
        sums: FloatArray = self.sums[np.append(starts, self.units.n_rows)]
        return sums

    def drawn(self, start: int, stop: int, salt: tuple[int, int]) -> IntArray:
        """Return the rows drawn by the positions ``[start, stop)`` of one window."""
        n_draws, n_rows, total = stop - start, self.units.n_rows, self.sums[-1]
        ranks = explicit_permutation(n_draws, key_of(*salt, start, "draw shares"))
        chances = _uniform(n_draws, key_of(*salt, start, "draw rows"))
        if n_draws == n_rows:
            above, targets = total, (ranks + chances) / n_draws * total
        else:
            n_units = max(1, n_draws // -(-n_rows // self.units.count))
            of_units = _uniform(n_units + 1, key_of(*salt, start, "draw units"))
            shares = (np.arange(n_units) + of_units[:n_units]) / n_units * total
            units = self.unit_sums.searchsorted(_below(shares, total), side="right") - 1
            turn = int(of_units[n_units] * n_units)  # where positions do not divide evenly, each
            chosen = units[(ranks * n_units // n_draws + turn) % n_units]  # share has one more
            below, above = self.unit_sums[chosen], self.unit_sums[chosen + 1]
            targets = below + chances * (above - below)
        targets = _below(targets, above)
        ascending = np.argsort(targets)  # searching in ascending order stays in the cache
        rows = np.empty(n_draws, np.int64)
        rows[ascending] = self.sums.searchsorted(targets[ascending], side="right") - 1
        return rows


def _below(targets: FloatArray, above: FloatArray) -> FloatArray:
    """Keep sums below their end, which rounding may reach."""
    return np.minimum(targets, np.nextafter(above, 0.0))


def _uniform(n: int, key: int) -> FloatArray:
    """Return `n` numbers from [0, 1), 53 random bits each."""
    words = np.random.Philox(key=key).random_raw(n) >> np.uint64(11)
    return np.asarray(words, np.float64) * 2.0**-53


def balanced_weights(labels: npt.ArrayLike) -> FloatArray:
    """Return weights under which every class that occurs is drawn equally often.

    Parameters
    ----------
    labels : array, (n_rows,)
        The class of each row.

    Examples
    --------
    >>> balanced_weights(["cat", "dog", "cat", "cat"])
    array([0.33333333, 1.        , 0.33333333, 0.33333333])
    """
    found = np.asarray(labels)
    if found.ndim != 1:
        raise LoaderError(
            f"labels of shape {found.shape}: balancing needs one class a row, (n_rows,); "
            "turn one-hot labels into class numbers with argmax"
        )
    _, classes, counts = np.unique(found, return_inverse=True, return_counts=True)
    return 1.0 / counts[classes]


def valid_weights(weights: npt.ArrayLike, n_rows: int, where: str = "weights") -> FloatArray:
    """Return weights as float64, or say what is wrong with them; `where` begins the message."""
    given = as_array("weights", weights, LoaderError)
    try:
        if given.dtype.kind not in "biufO":  # NumPy makes numbers of times and texts, too
            raise TypeError
        found: FloatArray = given.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise LoaderError(f"{where} of {given.dtype} are not numbers; pass one per row") from None
    if found.shape != (n_rows,):
        raise LoaderError(
            f"{where} has shape {found.shape}, but there are {n_rows} rows; pass one weight per row"
        )
    if n_rows and not (found.min() >= 0 and np.isfinite(found.sum()) and found.max() > 0):
        wrong = np.flatnonzero(~((found >= 0) & np.isfinite(found)))
        row = f"; row {wrong[0]} has {found[wrong[0]]}" if wrong.size else ""
        raise LoaderError(
            f"{where} must be finite and not negative, at least one above zero, with a finite "
            f"sum{row}"
        )
    return found


# ---------------------------------------------------------------- the order of an epoch
@dataclass(frozen=True)
class Order:
    """The order parameters of one epoch.

    Parameters
    ----------
    mode : {'file', 'window', 'full', 'weights', 'balance', 'sampler'}
        File order; random units fill a window and are shuffled in it; any row may follow any
        row; rows are drawn by `weights`, given as such or made of classes; a sampler lists them.
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
    weights : Weights, optional
        Rows are drawn with replacement, as many as there are.
    sampler : ListedBatches or RowSequences, optional
        Lists the rows of each batch; `seed` then decides about random transforms alone.
    """

    mode: str
    units: Units
    window_rows: int
    seed: int
    epoch: int = 0
    sticky_shards: bool = False
    buckets: Buckets | None = None
    weights: Weights | None = None
    sampler: Sampler | None = None

    @property
    def n_rows(self) -> int:
        """How many rows an epoch has."""
        return self.units.n_rows

    @cached_property
    def digest(self) -> str:
        """Hash of everything the order depends on but seed and epoch."""
        if self.sampler is not None:
            return self.sampler.digest
        if self.weights is not None:
            drawn = ("draws", self.window_rows, self.units.digest, self.weights.digest)
            return f"{key_of(*drawn):032x}"
        entries = (self.mode, self.window_rows, int(self.sticky_shards), self.units.digest)
        more = () if self.buckets is None else (self.buckets.digest,)
        return f"{key_of(*entries, *more):032x}"


class WindowOrder:
    """The windows of one shard, a stretch of the run order, and the places of its rows.

    The n-th unit of the run order is unit ``permuted(n)``. The rows before it follow from a few
    integers where units have one size; else their sums are kept, eight bytes a unit.

    Parameters
    ----------
    listed : int64 array, optional
        The row at each place, where a sampler lists them.

    Examples
    --------
    >>> order = Order("window", UniformUnits(10**8, 64), window_rows=20_000, seed=7)
    >>> WindowOrder(order, (1, 4)).n_rows
    25000000
    """

    def __init__(
        self, order: Order, shard: tuple[int, int], listed: IntArray | None = None
    ) -> None:
        units, salt, window_rows = order.units, [order.seed, order.epoch], order.window_rows
        start, stop = shard_bounds(units.n_rows, *shard)
        if order.sticky_shards:
            units, salt = units.clip(units.start + start, units.start + stop), [*salt, *shard]
            start, stop = 0, stop - start
        if order.mode == "full" or order.weights is not None:
            units = UniformUnits(units.n_rows, 1, start=units.start)
        self.order, self.units, self.salt, self.listed = order, units, salt, listed
        self.start, self.stop, self.n_rows = start, stop, stop - start
        self.permuted: Permutation | None = None
        if order.mode in ("window", "full"):
            key = key_of(*salt, "rows" if order.mode == "full" else "units")
            self.permuted = Permutation(units.count, key)
        self.sums: IntArray | None = None
        # units that are cut: the place of each in the run order, and how many rows it lacks
        self.cut_units: list[tuple[int, int]] = []
        # units of several sizes: the first unit of each window, and one past the last
        self.edges: list[int] = []
        # units of one size: the first, how many they are, and over how many windows spread
        self.even_windows: tuple[int, int, int]
        if not self.n_rows:
            return
        if isinstance(units, UniformUnits):
            self.unit_rows = units.unit_rows
            ends = np.array([0, units.count - 1])
            starts, stops = units.bounds(ends)
            lacks = self.unit_rows - (stops - starts)
            if self.permuted is not None and lacks.any():
                ends = self.permuted(ends, inverse=True)
            self.cut_units = list(zip(ends.tolist(), lacks.tolist(), strict=True))[: units.count]
            first, last = self.unit_at(start), self.unit_at(stop - 1) + 1
            if order.weights is not None:  # windows are those of the undivided epoch
                first, last = 0, units.count
            each = max(1, window_rows // self.unit_rows)
            if window_rows >= units.n_rows:  # short units fit too, or units do not divide it
                each = last - first
            self.even_windows = first, last - first, -(-(last - first) // each)
        else:
            ids = np.arange(units.count)
            starts, stops = units.bounds(ids if self.permuted is None else self.permuted(ids))
            sums = self.sums = np.append(0, np.cumsum(stops - starts))
            first, last = self.unit_at(start), self.unit_at(stop - 1) + 1
            edges = self.edges = [first]
            while edges[-1] < last:
                fitting = int(sums.searchsorted(sums[edges[-1]] + window_rows, side="right")) - 1
                edges.append(min(max(fitting, edges[-1] + 1), last))
            if len(edges) > 2:  # share the last two windows evenly: no small one at the end
                middle = int(sums[edges[-3]] + sums[last] + 1) // 2
                edges[-2] = min(edges[-2], int(sums.searchsorted(middle)))

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

    def window_at(self, place: int) -> tuple[int, int]:
        """Return the first place of the window at `place`, and the one behind its last."""
        nth = self.unit_at(self.start + place)
        if self.sums is not None:
            number = bisect_right(self.edges, nth)
            lo, hi = self.edges[number - 1 : number + 1]
        else:
            first, n_units, n_windows = self.even_windows
            _, lo, hi = even_share(nth - first, n_units, n_windows)
            lo, hi = first + lo, first + hi
        begin = max(self.rows_before(lo), self.start)
        return begin - self.start, min(self.rows_before(hi), self.stop) - self.start

    def rows(self, lo: int, hi: int) -> WindowRows:
        """Return the rows of the places ``[lo, hi)``, which lie in one window."""
        order, start = self.order, self.start
        if order.weights is not None:
            _, a, b = even_share(start + lo, *self.even_windows[1:])
            drawn = order.weights.drawn(a, b, (order.seed, order.epoch))
            return WindowRows(listed=drawn[start + lo - a : start + hi - a])
        if self.listed is not None:
            rows = self.listed[lo:hi]
            if (np.diff(rows) == 1).all():
                return WindowRows(run=(int(rows[0]), int(rows[-1]) + 1))
            return WindowRows(listed=rows)
        if self.permuted is None:  # rows follow one another whatever the windows
            row = self.units.start + start
            return WindowRows(run=(row + lo, row + hi))
        if order.mode == "full":
            rows = self.permuted(np.arange(start + lo, start + hi))
            rows += self.units.start
            return WindowRows(listed=rows)
        first, last = self.window_at(lo)
        run_list = self.whole_runs(first, last)
        places = explicit_permutation(last - first, key_of(*self.salt, "window", start + first))
        if order.buckets is not None:
            key = key_of(*self.salt, "buckets", start + first)
            places = order.buckets.arranged(rows_of(run_list), places, first, key)
        if (lo, hi) == (first, last):
            return WindowRows(run_list, places)
        places -= lo - first
        wanted = np.flatnonzero((places >= 0) & (places < hi - lo))
        return WindowRows(runs_of(rows_of(run_list)[wanted]), places[wanted])

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
