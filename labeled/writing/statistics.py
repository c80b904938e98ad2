"""Statistics gathered while rows pass by: exact counts, sound means and deviations.

Each block is measured once in float64, piece by piece in a core's cache, and partial
results are merged pairwise (Chan, Golub and LeVeque), which loses nothing to cancellation
however large the mean is. Large integers, stamps in nanoseconds say, are measured from one of
them, as float64 would round their mean, or themselves, so that their deviation is as sound; their
mean and extremes are told as float64 holds them.

Rows are measured for the whole source and for every split, per channel where a source has
a dim that means channels, and per class where it looks like labels: integers, one a row.
Values that are not finite are counted and left out of everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from labeled.dims import role_of
from labeled.formats.hdf5.fuel import Rows
from labeled.formats.reading import scratch
from labeled.formats.region import Array

Part = tuple[tuple[str, ...], slice | Array]
"""Splits (``""`` is every row), and which rows of a block they share."""

EVERY_ROW = ""

PIECE_VALUES = 1 << 16
"""Values measured at a time: half a mebibyte in float64."""

SCRATCH_BYTES = 8 * PIECE_VALUES
"""What a thread keeps to measure in."""

_LONG = 32

MOST_NEAR = 1 << 32
"""Integers up to here have means that float64 tells to a millionth."""

MOST_CHANNELS = 4096
MOST_CLASSES = 4096


@dataclass(slots=True, eq=False)
class Moments:
    """Counts, means, sums of squared deviations and extremes, one of each a channel."""

    n_rows: int
    count: Array
    not_finite: Array
    mean: Array
    squares: Array
    low: Array
    high: Array
    classes: dict[int, int] | None = None
    """Rows of each class; None where classes are not counted, or too many."""
    mixed: bool = False
    """Whether channels are one, because rows differ in how many they have."""
    origin: int = 0
    """What means are counted from."""

    @classmethod
    def none(cls, channels: int, *, classes: bool = False) -> Moments:
        """Return the moments of no rows."""
        zeros = np.zeros(channels)
        return cls(
            0,
            np.zeros(channels, np.int64),
            np.zeros(channels, np.int64),
            zeros,
            zeros.copy(),
            np.full(channels, np.inf),
            np.full(channels, -np.inf),
            {} if classes else None,
        )

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the rows of both; channels are one where they differ in number."""
        n_rows = self.n_rows + other.n_rows
        if not len(self.count) or not len(other.count):  # one of them has no value yet
            known = other if not len(self.count) else self
            return replace(known, n_rows=n_rows)
        if self.mixed != other.mixed or len(self.count) != len(other.count):
            return self.together().merge(other.together())
        count = self.count + other.count
        origin = self.origin if self.count.any() else other.origin
        theirs = other.mean + float(other.origin - origin)
        share = np.divide(other.count, count, out=np.zeros(len(count)), where=count > 0)
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float64: infinite, and said so
            apart = np.where(self.count > 0, theirs - self.mean, theirs)
            apart = np.where(other.count > 0, apart, 0.0)
            mean = np.where(self.count > 0, self.mean, 0.0) + apart * share
            between = np.where(self.count > 0, apart**2 * self.count * share, 0.0)
            squares = self.squares + other.squares + between
        return Moments(
            n_rows,
            count,
            self.not_finite + other.not_finite,
            mean,
            squares,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            _added(self.classes, other.classes),
            self.mixed,
            origin,
        )

    def together(self) -> Moments:
        """Return the moments of all channels as those of one."""
        if self.mixed:
            return self
        count = int(self.count.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float((self.mean * self.count).sum()) / max(count, 1)
            squares = self.squares + self.count * (self.mean - mean) ** 2
        return Moments(
            self.n_rows,
            np.array([count]),
            np.array([self.not_finite.sum()]),
            np.array([mean]),
            np.array([squares.sum()]),
            np.array([self.low.min()]),
            np.array([self.high.max()]),
            self.classes,
            mixed=True,
            origin=self.origin,
        )


def _added(one: dict[int, int] | None, two: dict[int, int] | None) -> dict[int, int] | None:
    if one is None or two is None:
        return None
    out = dict(one)
    for value, count in two.items():
        out[value] = out.get(value, 0) + count
    return out if len(out) <= MOST_CLASSES else None


def can_measure(dtype: np.dtype[Any]) -> bool:
    """Whether values have a mean: booleans, integers and floats."""
    return dtype.kind in "biuf"


def channel_axis(dims: Sequence[str], row_shape: Sequence[int]) -> int | None:
    """Return the one axis that means channels, if its length is reasonable.

    Examples
    --------
    >>> channel_axis(("batch", "channel", "height", "width"), (3, 8, 8))
    1
    """
    axes = [i for i, dim in enumerate(dims) if i and role_of(dim) == "channel"]
    if len(axes) != 1 or row_shape[axes[0] - 1] > MOST_CHANNELS:
        return None
    return axes[0]


def are_labels(dtype: np.dtype[Any], row_shape: Sequence[int]) -> bool:
    """Whether a source has one integer a row."""
    return dtype.kind in "biu" and set(row_shape) <= {1}


@dataclass(frozen=True)
class Measure:
    """How the rows of a source are measured: by channel where a dim means channels."""

    channel_axis: int | None = None
    channel_dim: str | None = None
    channels: int = 1
    count_classes: bool = False

    @classmethod
    def of(cls, dims: Sequence[str], row_shape: Sequence[int], dtype: np.dtype[Any]) -> Measure:
        """Return the measure of rows of one shape."""
        axis, labels = channel_axis(dims, row_shape), are_labels(dtype, row_shape)
        if axis is None:
            return cls(count_classes=labels)
        return cls(axis, dims[axis], row_shape[axis - 1], labels)

    @property
    def nothing(self) -> Moments:
        """What no rows give."""
        return Moments.none(self.channels, classes=self.count_classes)

    def __call__(self, rows: Array) -> Moments:
        return moments_of(rows, self.channel_axis, count_classes=self.count_classes)


def measured(
    rows: Array, parts: Sequence[Part], channel_axis: int | None, *, count_classes: bool
) -> list[tuple[tuple[str, ...], Moments]]:
    """Measure the parts of a block, each once."""
    return [
        (names, moments_of(rows[which], channel_axis, count_classes=count_classes))
        for names, which in parts
    ]


def moments_of(
    rows: Array, channel_axis: int | None = None, *, count_classes: bool = False
) -> Moments:
    """Measure some rows.

    Parameters
    ----------
    rows : array (k, *row_shape)
        Booleans, integers or floats.
    channel_axis : int, optional
        The axis along which values are kept apart.
    count_classes : bool
        Count rows by value, too.
    """
    channels = 1 if channel_axis is None else rows.shape[channel_axis]
    total = Moments.none(channels, classes=count_classes)
    step = max(PIECE_VALUES // max(math.prod(rows.shape[1:]), 1), 1)
    for begin in range(0, len(rows), step):
        piece = np.ascontiguousarray(rows[begin : begin + step])
        found = _measured_piece(_folded(piece, channel_axis))
        found.n_rows = len(piece)
        found.classes = _classes(piece) if count_classes else None
        total = total.merge(found)
    return total


def _folded(rows: Array, axis: int | None) -> Array:
    """Return values as (axes before, channels, axes after), the last long enough to add along."""
    if axis is None:
        return rows.reshape(1, 1, -1)
    shape = rows.shape
    after = math.prod(shape[axis + 1 :])
    if after >= _LONG:
        return rows.reshape(math.prod(shape[:axis]), shape[axis], after)
    return np.ascontiguousarray(np.moveaxis(rows, axis, 0)).reshape(1, shape[axis], -1)


def _measured_piece(raw: Array) -> Moments:
    """Measure values (before, channels, after): means first, then squares around them."""
    channels, n = raw.shape[1], raw.shape[0] * raw.shape[2]
    if n == 0 or channels == 0:
        return Moments.none(channels)
    values = scratch("measured", raw.size * 8).view(np.float64).reshape(raw.shape)
    low, high = raw.min(axis=2).min(axis=0), raw.max(axis=2).max(axis=0)
    origin = _origin(int(raw.flat[0]), int(low.min()), int(high.max())) if _is_wide(raw) else 0
    # memory that stays in the cache: fresh pages cost more than adding up
    if origin:
        _subtract(raw, origin, out=values)
    else:
        values[...] = raw
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(axis=2).sum(axis=0)
        if not np.isfinite(total).all():
            return _measured_some(values)
        mean = total / n
        if raw.dtype.itemsize == 1:  # small integers: both sums are exact
            squares = np.maximum(_squares(values) - total * mean, 0.0)
        else:
            values -= mean[:, None]
            squares = _squares(values)
    count = np.full(channels, n, np.int64)
    nothing = np.zeros(channels, np.int64)
    extremes = low.astype(float), high.astype(float)
    return Moments(0, count, nothing, mean, squares, *extremes, origin=origin)


def _is_wide(raw: Array) -> bool:
    return raw.dtype.kind in "iu" and raw.dtype.itemsize == 8


def _origin(first: int, low: int, high: int) -> int:
    """Return what to measure wide integers from: one of them, if they are large but close."""
    near = low - first >= -(1 << 63) and high - first < 1 << 63
    return first if near and max(-low, high) > MOST_NEAR else 0


def _subtract(raw: Array, origin: int, out: Array) -> None:
    """Subtract before floats are made; differences that fit come out right, whatever wraps."""
    signed = np.dtype(np.int64).newbyteorder(raw.dtype.byteorder)
    least = np.array([origin], raw.dtype).view(signed)
    np.subtract(raw.view(signed), least, out=out, dtype=np.int64, casting="unsafe")


def _squares(values: Array) -> Array:
    """Add up the squares of each channel; not by BLAS, whose threads get in one another's way."""
    sums: Array = np.einsum("ijk,ijk->ij", values, values).sum(axis=0)
    return sums


def _measured_some(values: Array) -> Moments:
    """Measure the finite values of each channel, where some are not (or add up to infinity)."""
    flat = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)
    out = Moments.none(len(flat))
    for channel, each in enumerate(flat):
        finite = each[np.isfinite(each)]
        out.count[channel] = len(finite)
        out.not_finite[channel] = len(each) - len(finite)
        if len(finite):
            mean = float(np.mean(finite))
            out.mean[channel] = mean
            out.squares[channel] = float(np.sum((finite - mean) ** 2))
            out.low[channel], out.high[channel] = finite.min(), finite.max()
    return out


def _classes(rows: Array) -> dict[int, int] | None:
    values, counts = np.unique(rows.reshape(-1), return_counts=True)
    if len(values) > MOST_CLASSES:
        return None
    return dict(zip(map(int, values.tolist()), map(int, counts.tolist()), strict=True))


class Tally:
    """The statistics of one source, gathered in order.

    Parameters
    ----------
    splits : mapping of split to rows
        Of this source.
    channels : int
        How many are kept apart; 0 where the first values tell.
    channel_dim : str, optional
        Their dim.
    """

    def __init__(
        self,
        splits: Mapping[str, Rows],
        channels: int = 1,
        channel_dim: str | None = None,
        *,
        count_classes: bool = False,
    ) -> None:
        self._ranges = {s: rows for s, rows in splits.items() if isinstance(rows, range)}
        self._lists = {
            s: np.sort(rows) for s, rows in splits.items() if not isinstance(rows, range)
        }
        edges = {edge for rows in self._ranges.values() for edge in (rows.start, rows.stop)}
        self._edges = np.array(sorted(edges), np.int64)
        self._dim = channel_dim
        self.found = {
            name: Moments.none(channels, classes=count_classes) for name in (EVERY_ROW, *splits)
        }

    def parts(self, start: int, stop: int) -> list[Part]:
        """Return what to measure in a block: stretches between ends of splits, and lists."""
        inside = self._edges[(self._edges > start) & (self._edges < stop)].tolist()
        bounds = [start, *inside, stop]
        out: list[Part] = []
        for a, b in pairwise(bounds):
            names = [s for s, r in self._ranges.items() if r.start <= a and b <= r.stop]
            out.append(((EVERY_ROW, *names), slice(a - start, b - start)))
        for name, rows in self._lists.items():
            first, last = np.searchsorted(rows, (start, stop))
            if last > first:
                out.append(((name,), rows[first:last] - start))
        return out

    def go_on(self, before: Mapping[str, Moments]) -> None:
        """Begin with the moments of rows measured earlier."""
        for name, moments in before.items():
            known = self.found.get(name)
            self.found[name] = moments if known is None else moments.merge(known)

    def add(self, found: Iterable[tuple[tuple[str, ...], Moments]]) -> None:
        """Take the measures of a block."""
        for names, moments in found:
            for name in names:
                self.found[name] = self.found[name].merge(moments)

    def result(self) -> dict[str, Any]:
        """Return the statistics as values that JSON has; see :func:`plain`."""
        out: dict[str, Any] = {"rows": plain(self.found[EVERY_ROW], self._dim)}
        splits = {s: plain(m, self._dim) for s, m in self.found.items() if s != EVERY_ROW}
        return {**out, "splits": splits} if splits else out


def plain(moments: Moments, channel_dim: str | None) -> dict[str, Any]:
    """Return moments as numbers, or lists of them by channel; None where nothing is finite.

    Examples
    --------
    >>> found = plain(moments_of(np.array([1, 2, 3, 6])), None)
    >>> found["n_values"], found["mean"], found["min"], found["max"], round(found["std"], 3)
    (4, 3.0, 1.0, 6.0, 1.871)
    """
    if not len(moments.count):
        moments = replace(Moments.none(1), n_rows=moments.n_rows, mixed=True)
    channel_dim = None if moments.mixed else channel_dim
    count = moments.count
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        std = np.sqrt(moments.squares / count)
    columns = {
        "n_values": count,
        "not_finite": moments.not_finite,
        "mean": np.where(count > 0, moments.mean + moments.origin, np.nan),
        "std": std,
        "min": np.where(count > 0, moments.low, np.nan),
        "max": np.where(count > 0, moments.high, np.nan),
    }
    out: dict[str, Any] = {"n_rows": moments.n_rows}
    for name, column in columns.items():
        values = [_number(value) for value in column.tolist()]
        out[name] = values[0] if channel_dim is None else values
    if channel_dim is not None:
        out["by"] = channel_dim
    if moments.classes is not None and moments.n_rows:
        out["classes"] = {str(value): n for value, n in sorted(moments.classes.items())}
    return out


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def moments_from(stored: Mapping[str, Any]) -> Moments:
    """Return the moments that :func:`plain` made numbers of, to merge more rows into."""

    def column(name: str, default: float) -> Array:
        values = stored[name] if isinstance(stored[name], list) else [stored[name]]
        return np.array([default if value is None else value for value in values], np.float64)

    count = column("n_values", 0).astype(np.int64)
    classes = stored.get("classes")
    return Moments(
        int(stored["n_rows"]),
        count,
        column("not_finite", 0).astype(np.int64),
        column("mean", 0.0),
        column("std", 0.0) ** 2 * count,
        column("min", np.inf),
        column("max", -np.inf),
        None if classes is None else {int(value): n for value, n in classes.items()},
    )
