"""Draws with replacement: rows in proportion to weights, or every class equally often.

Stands where an `Order` stands: positions 0 to n_rows - 1 of an epoch, each of which draws a
row. The draw at a position is a function of (seed, epoch, position) and of the weights
alone, so shards, seeks and resumed runs see the draws of the undivided epoch.

Rows are drawn window by window, so that reading stays bounded: a window of w positions
first draws as many units as w rows fill, in proportion to the weight of their rows (one
from each of equal shares of the total weight, so that rare classes come up in every window),
then spreads its positions evenly over these units, and each position draws a row of its
unit in proportion to weight. A row's chance at any position is exactly its share of the
total weight. The price: the rows of one window come from few units. Where one window holds
all rows there is nothing to save: each position draws from its own share of the total weight.

The running sum of the weights is kept, eight bytes a row.
"""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from labeled.errors import LoaderError
from labeled.samplers.permutation import IntArray, explicit_permutation, key_of
from labeled.samplers.units import Units
from labeled.samplers.windows import WindowRows, even_share, shard_bounds

FloatArray = npt.NDArray[np.float64]


@dataclass(eq=False)
class Draws:
    """Draws with replacement for one epoch.

    Parameters
    ----------
    units : UniformUnits or ListedUnits
        What is read together at the least.
    weights : array of float, (n_rows,)
        One for each position of `units`, in the same order; not negative, not all zero.
    window_rows : int
        Positions drawn together, from about as many rows.
    seed, epoch : int
        Hashed together: neighbours share nothing.
    mode : str
        What asked for the draws, ``'weights'`` or ``'balance'``.

    Raises
    ------
    LoaderError
        If there is not one weight a row, or a weight is negative or not finite, or none is
        above zero.

    Examples
    --------
    >>> from labeled.samplers.units import UniformUnits
    >>> draws = Draws(UniformUnits(4, 2, 2), np.array([0, 1, 0, 1]), window_rows=4, seed=7)
    >>> sorted(set(draws.arrange().rows(0, 4).rows.tolist()))
    [1, 3]
    """

    units: Units
    weights: npt.ArrayLike
    window_rows: int
    seed: int
    epoch: int = 0
    mode: str = "weights"

    sticky_shards = False

    def __post_init__(self) -> None:
        self.weights = checked_weights(self.weights, self.units.n_rows)

    @property
    def n_rows(self) -> int:
        """Draws of an epoch: as many as there are rows."""
        return self.units.n_rows

    @property
    def _n_windows(self) -> int:
        return -(-self.n_rows // self.window_rows)

    @cached_property
    def digest(self) -> str:
        """Hash of everything the draws depend on but seed and epoch."""
        content = np.ascontiguousarray(self.weights, "<f8").tobytes()
        weights = hashlib.blake2b(content, digest_size=16).hexdigest()
        return f"{key_of('draws', self.window_rows, self.units.digest, weights):032x}"

    def at_epoch(self, epoch: int, seed: int | None = None) -> Draws:
        """Return the same draws for another epoch (and another seed, if given)."""
        other = copy(self)  # with the sums, which are the same in every epoch
        other.epoch, other.seed = epoch, self.seed if seed is None else seed
        return other

    def arrange(self, shard: tuple[int, int] = (0, 1)) -> DrawnOrder:
        """Arrange the positions of one shard, (index, count)."""
        return DrawnOrder(self, *shard_bounds(self.n_rows, *shard))

    @cached_property
    def _sums(self) -> FloatArray:
        """Weight before each row, and of all rows."""
        sums = np.zeros(self.n_rows + 1)
        np.cumsum(self.weights, out=sums[1:])
        return sums

    @cached_property
    def _unit_edges(self) -> IntArray:
        """The first row of every unit, and the number of rows."""
        starts, _ = self.units.bounds(np.arange(self.units.count))
        return np.append(starts - self.units.start, self.n_rows)

    @cached_property
    def _unit_sums(self) -> FloatArray:
        """Weight before each unit, and of all units."""
        return self._sums[self._unit_edges]

    def drawn(self, start: int, stop: int) -> IntArray:
        """Return the rows drawn by the positions ``[start, stop)`` of one whole window."""
        salt, n_draws = (self.seed, self.epoch, start), stop - start
        ranks = explicit_permutation(n_draws, key_of(*salt, "draw shares"))
        chances = _uniform(n_draws, key_of(*salt, "draw rows"))
        if self._n_windows == 1:
            above = self._sums[-1]
            targets = (ranks + chances) / n_draws * above
        else:
            units, turn = self._drawn_units(start, stop)
            chosen = units[(ranks * units.size // n_draws + turn) % units.size]
            below, above = self._unit_sums[chosen], self._unit_sums[chosen + 1]
            targets = below + chances * (above - below)
        targets = np.minimum(targets, np.nextafter(above, 0.0))
        ascending = np.argsort(targets)  # searching in ascending order stays in the cache
        rows = np.empty(n_draws, np.int64)
        rows[ascending] = self._sums.searchsorted(targets[ascending], side="right") - 1
        return rows + self.units.start

    def _drawn_units(self, start: int, stop: int) -> tuple[IntArray, int]:
        """Units of a window, one from each of equal shares of the weight, and a turn.

        Where the positions do not divide evenly, some units serve one more; the random turn
        lets each share have that one equally often.
        """
        before = self._unit_sums
        unit_rows = -(-self.n_rows // self.units.count)
        count = max(1, (stop - start) // unit_rows)
        chances = _uniform(count + 1, key_of(self.seed, self.epoch, start, "draw units"))
        targets = (np.arange(count) + chances[:count]) / count * before[-1]
        targets = np.minimum(targets, np.nextafter(before[-1], 0.0))
        units: IntArray = before.searchsorted(targets, side="right") - 1
        return units, int(chances[count] * count)


@dataclass(frozen=True, eq=False)
class DrawnOrder:
    """The windows of one shard, a stretch of the positions of an epoch of draws."""

    draws: Draws
    start: int
    stop: int

    def window_at(self, place: int) -> tuple[int, int, int]:
        """Return (number, first place, place behind the last) of the window at `place`."""
        draws, at = self.draws, self.start + place
        number, start, stop = even_share(at, draws.n_rows, draws._n_windows)
        return number, max(start, self.start) - self.start, min(stop, self.stop) - self.start

    def rows(self, lo: int, hi: int) -> WindowRows:
        """Return the rows of the places ``[lo, hi)``, which lie in one window."""
        draws, at = self.draws, self.start + lo
        _, start, stop = even_share(at, draws.n_rows, draws._n_windows)
        return WindowRows(listed=draws.drawn(start, stop)[at - start : self.start + hi - start])


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
    numbered = found.size > 0 and found.dtype.kind in "iu"
    if numbered and found.min() >= 0 and found.max() <= found.size:
        classes = found.astype(np.intp, copy=False)  # class numbers: no sorting needed
    else:
        classes = np.unique(found, return_inverse=True)[1]
    counts = np.bincount(classes)
    weights: FloatArray = (1.0 / np.maximum(counts, 1))[classes]
    return weights


def checked_weights(weights: npt.ArrayLike, n_rows: int) -> FloatArray:
    """Return weights as float64, or say what is wrong with them."""
    try:
        found: FloatArray = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise LoaderError(
            f"weights={weights!r} are not numbers; pass one weight per row, ({n_rows},)"
        ) from error
    if found.shape != (n_rows,):
        raise LoaderError(
            f"weights has shape {found.shape}, but there are {n_rows} rows; pass one weight per row"
        )
    if n_rows and not (found.min() >= 0 and np.isfinite(found.sum()) and found.max() > 0):
        wrong = np.flatnonzero(~((found >= 0) & np.isfinite(found)))
        where = f"; row {wrong[0]} has {found[wrong[0]]}" if wrong.size else ""
        raise LoaderError(
            "weights must be finite and not negative, at least one above zero, with a finite sum"
            + where
        )
    return found


def _uniform(n: int, key: int) -> FloatArray:
    """Return `n` numbers from [0, 1), 53 random bits each."""
    words = np.random.Philox(key=key).random_raw(n) >> np.uint64(11)
    return np.asarray(words, np.float64) * 2.0**-53
