"""Statistics gathered in one pass, while rows go by: counts, means, deviations, extremes.

A :class:`Measure` turns rows into :class:`Moments`, and moments are merged (Chan, Golub and
LeVeque), which loses nothing to cancellation however large the mean is. Integers of 8 bytes are
measured from the least of them, as float64 would round them.

What is measured are decoded values: packed numbers are scaled, fill values are missing. Rows
are measured for the whole source and for every split, per channel where a dim means channels,
and per class where a source looks like labels: integers, one a row. Examples of different
shapes are measured as flat values; where they differ in their channels, these are pooled.
Values that are not finite are counted and left out of everything else.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from labeled.dims import role_of
from labeled.formats.cf import decode
from labeled.formats.header import CF, Rows
from labeled.formats.memory import scratch
from labeled.formats.region import Array, Ints
from labeled.ragged.flat import block_cuts, elements_of, offsets_of

# splits (`""` is every row), and which rows of a block they share
Part = tuple[tuple[str, ...], slice | Array]

EVERY_ROW = ""
PIECE_VALUES = 1 << 16  # measured at a time: in float64 they stay in a core's cache
SCRATCH_BYTES = 8 * PIECE_VALUES  # what a thread keeps to measure in
DECODED_VALUES = PIECE_VALUES >> 2  # decoding needs memory of its own
MAX_CHANNELS = MAX_CLASSES = 4096
EXACT_VALUE = 1 << 10  # up to this, integers and their squares are added up without loss
MANY = 16  # pieces whose moments are merged at once

COLUMNS = ("n_values", "not_finite", "mean", "std", "min", "max")
# lines of a table of moments, which has a column for each channel
COUNT, NOT_FINITE, MEAN, SQUARES, LOW, HIGH = range(6)


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Counts, means, sums of squared deviations and extremes.

    Parameters
    ----------
    by : str, optional
        The dim of the channels; None where all values are measured together.
    origin : int
        What means are counted from.
    classes : Counter, optional
        Rows of each class; None where classes are not counted, or too many.
    exact : bool
        Whether sums stand in place of means, and sums of squares of squared deviations: of bytes
        and labels, so that the statistics do not depend on where blocks end.
    """

    n_rows: int = 0
    by: str | None = None
    table: Array = field(default_factory=lambda: np.zeros((6, 1)))
    origin: int = 0
    classes: Counter[int] | None = None
    exact: bool = False

    def centred(self) -> Moments:
        """Return the same with means and squared deviations."""
        if not self.exact:
            return self
        table, count = self.table.copy(), np.maximum(self.table[COUNT], 1)
        table[MEAN] /= count
        table[SQUARES] = (count * self.table[SQUARES] - self.table[MEAN] ** 2) / count
        return replace(self, table=table, exact=False)


def merged(parts: Sequence[Moments]) -> Moments:
    """Return the moments of the rows of all; channels are pooled where they differ."""
    n_rows = sum(each.n_rows for each in parts)
    some = [each for each in parts if each.table[:MEAN].any()]
    if len(some) < 2:
        return replace((some or parts)[0], n_rows=n_rows)
    exact = all(each.exact for each in some)
    some = some if exact else [each.centred() for each in some]
    first, tables = some[0], [each.table for each in some]
    if any(each.by != first.by or each.table.shape != first.table.shape for each in some):
        first = replace(first, by=None)
        tables = [_together(each[..., None], exact) for each in tables]
    table = np.stack(tables, axis=1)
    table[MEAN] += np.array([[float(each.origin - first.origin)] for each in some])
    counted = [each.classes for each in some if each.classes is not None]
    classes = sum(counted, Counter()) if len(counted) == len(some) else None
    if classes is not None and len(classes) > MAX_CLASSES:
        classes = None
    return replace(first, n_rows=n_rows, table=_together(table, exact), classes=classes)


def _together(table: Array, exact: bool) -> Array:
    """Return the moments of several groups, on axis 1, as those of one."""
    count = table[COUNT]
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float64 there is no number
        out: Array = table.sum(axis=1)
        out[LOW], out[HIGH] = table[LOW].min(axis=0), table[HIGH].max(axis=0)
        if exact:
            return out
        near = np.take_along_axis(table[MEAN], count.argmax(axis=0)[None], axis=0)[0]
        apart = table[MEAN] - near
        mean = (apart * count).sum(axis=0) / np.maximum(out[COUNT], 1)
        out[MEAN] = near + mean
        out[SQUARES] = (table[SQUARES] + count * (apart - mean) ** 2).sum(axis=0)
    return out


def can_measure(dtype: np.dtype[Any]) -> bool:
    """Whether values have a mean: booleans, integers and floats."""
    return dtype.kind in "biuf"


# splits, and the moments of rows that they share
Measured = Sequence[tuple[tuple[str, ...], Moments]]


@dataclass(frozen=True)
class Measure:
    """How the values of a source are measured; pickles small.

    Parameters
    ----------
    channel_axis : int, optional
        The axis along which values are kept apart; `by` is its dim.
    cf : CF, optional
        How stored values are decoded before they are measured.
    """

    channel_axis: int | None = None
    by: str | None = None
    count_classes: bool = False
    cf: CF | None = None

    @classmethod
    def of(
        cls,
        dims: Sequence[str],
        row_shape: Sequence[int] | None,
        dtype: np.dtype[Any],
        cf: CF | None = None,
    ) -> Measure:
        """Return the measure of rows.

        Parameters
        ----------
        dims : names of all axes
        row_shape : lengths of all but the first; None where examples have shapes of their own
        dtype : as measured
        cf : as stored values are decoded, optional

        Examples
        --------
        >>> Measure.of(("batch", "channel", "height"), (3, 8), np.dtype("u1")).by
        'channel'
        """
        labels = row_shape is not None and dtype.kind in "biu" and set(row_shape) <= {1}
        axes = [i for i, dim in enumerate(dims) if i and role_of(dim) == "channel"]
        too_many = row_shape is not None and any(row_shape[i - 1] > MAX_CHANNELS for i in axes)
        if len(axes) != 1 or too_many:
            return cls(count_classes=labels, cf=cf)
        return cls(axes[0], dims[axes[0]], labels, cf)

    def block(
        self, rows: Array, shapes: Array | None = None, which: slice | Array = slice(None)
    ) -> Moments:
        """Measure a block, or some of its rows.

        With `shapes`, `rows` are the values of examples that have these, one after another.
        """
        if shapes is None:
            return self.rows(rows[which])
        return self.examples(rows, shapes, np.arange(len(shapes))[which])

    def rows(self, rows: Array) -> Moments:
        """Measure rows of one shape, as they are stored."""
        most = PIECE_VALUES if self.cf is None else DECODED_VALUES
        step = max(most // max(math.prod(rows.shape[1:]), 1), 1)
        found = [Moments()]
        for begin in range(0, len(rows), step):
            piece, axis = rows[begin : begin + step], self.channel_axis
            piece = piece if self.cf is None else decode(np.ascontiguousarray(piece), self.cf)
            turned = piece[np.newaxis] if axis is None else np.moveaxis(piece, axis, 0)
            shape = len(turned), piece.size // max(len(turned), 1)
            table, origin, exact = _measured(np.ascontiguousarray(turned).reshape(shape))
            classes = _classes(piece) if self.count_classes else None
            found.append(Moments(len(piece), self.by, table, origin, classes, exact))
            if len(found) > MANY:
                found = [merged(found)]
        return merged(found)

    def examples(self, values: Array, shapes: Ints, which: Ints) -> Moments:
        """Measure some examples; `values` are those of all, `shapes` (n, axes of an example)."""
        sizes = elements_of(shapes)
        edges, found, axis = offsets_of(sizes).tolist(), [Moments()], self.channel_axis
        if axis is None:
            for a, b in pairwise(block_cuts(sizes[which], PIECE_VALUES)):
                pieces = [values[edges[i] : edges[i + 1]] for i in which[a:b].tolist()]
                found.append(self.rows(np.concatenate(pieces)))
        for i in which.tolist() if axis is not None else ():
            one = values[edges[i] : edges[i + 1]].reshape(shapes[i])
            turned = np.moveaxis(one, (axis or 1) - 1, -1)
            channels = turned.shape[-1]
            if channels > MAX_CHANNELS:
                found.append(replace(self, channel_axis=None, by=None).rows(one.reshape(-1)))
            elif one.size:
                found.append(replace(self, channel_axis=1).rows(turned.reshape(-1, channels)))
        return replace(merged(found), n_rows=len(which))


def _measured(raw: Array) -> tuple[Array, int, bool]:
    """Measure values by channel; return a table, its origin and whether it is exact."""
    table, origin = np.zeros((6, len(raw))), 0
    if not raw.size:
        return table, origin, False
    # memory that stays in the cache: fresh pages cost more than adding up
    values = scratch("measured", raw.size * 8).view(np.float64).reshape(raw.shape)
    low, high = raw.min(axis=1), raw.max(axis=1)
    exact = raw.dtype.kind in "biu" and max(-int(low.min()), int(high.max())) <= EXACT_VALUE
    if raw.dtype.kind in "iu" and raw.dtype.itemsize == 8 and not exact:
        origin = int(low.min())
        whole = raw.astype(raw.dtype.newbyteorder("="), copy=False).view(np.uint64)
        np.subtract(whole, np.uint64(origin % (1 << 64)), out=values, casting="unsafe")
    else:
        values[...] = raw
    count: Any = raw.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        total, odd = values.sum(axis=1), None
        if not np.isfinite(total).all():
            odd = ~np.isfinite(values)
            low = np.where(odd, np.inf, values).min(axis=1)
            high = np.where(odd, -np.inf, values).max(axis=1)
            table[NOT_FINITE] = odd.sum(axis=1)
            count = count - table[NOT_FINITE]
            values[odd] = 0
            total = values.sum(axis=1)
        if not exact:
            total = total / np.maximum(count, 1)
            values -= total[:, None]
        if odd is not None:
            values[odd] = 0
        # not by BLAS, whose threads get in one another's way
        table[SQUARES] = np.einsum("ij,ij->i", values, values)
    table[COUNT], table[MEAN], table[LOW], table[HIGH] = count, total, low, high
    return table, origin, exact


def _classes(rows: Array) -> Counter[int] | None:
    values, counts = np.unique(rows.reshape(-1), return_counts=True)
    if len(values) > MAX_CLASSES:
        return None
    return Counter(dict(zip(map(int, values.tolist()), counts.tolist(), strict=True)))


class Tally:
    """The statistics of one source, gathered block by block in any order.

    Parameters
    ----------
    splits : mapping of split to rows
        Of this source.
    decoded : bool
        Whether stored values are decoded to be measured.
    """

    def __init__(self, splits: Mapping[str, Rows], *, decoded: bool = False) -> None:
        self._ranges = [(s, rows) for s, rows in splits.items() if isinstance(rows, range)]
        lists = [(s, rows) for s, rows in splits.items() if not isinstance(rows, range)]
        self._lists, self._decoded = {s: np.sort(rows) for s, rows in lists}, decoded
        self.found = dict.fromkeys((EVERY_ROW, *splits), Moments())

    def go_on(self, split: str, start: int) -> None:
        """Count all rows from `start` on among those of a split, besides those it has."""
        self._ranges.append((split, range(start, sys.maxsize)))
        self.found.setdefault(split, Moments())

    def parts(self, start: int, stop: int) -> list[Part]:
        """Return what to measure in a block: stretches between ends of splits, and lists."""
        ends = {end for _, rows in self._ranges for end in (rows.start, rows.stop)}
        inside = sorted(end for end in ends if start < end < stop)
        out: list[Part] = []
        for a, b in pairwise([start, *inside, stop]):
            names = [s for s, r in self._ranges if r.start <= a and b <= r.stop]
            out.append(((EVERY_ROW, *names), slice(a - start, b - start)))
        for name, rows in self._lists.items():
            first, last = np.searchsorted(rows, (start, stop))
            if last > first:
                out.append(((name,), rows[first:last] - start))
        return out

    def add(self, found: Measured) -> None:
        """Take the measures of a block."""
        for names, moments in found:
            for name in names:
                self.found[name] = merged([self.found[name], moments])

    def result(self, n_rows: Mapping[str, int]) -> dict[str, Any]:
        """Return the statistics as values that JSON has, of splits with so many rows.

        See :func:`plain`.
        """
        out: dict[str, Any] = {"rows": plain(self.found[EVERY_ROW])}
        splits = {s: plain(one) for s, one in self.found.items() if one.n_rows == n_rows.get(s)}
        if splits:
            out["splits"] = splits
        if self._decoded:
            out["decoded"] = True
        return out


def plain(moments: Moments) -> dict[str, Any]:
    """Return moments as numbers, or lists of them by channel; None where nothing is finite.

    Examples
    --------
    >>> found = plain(Measure().rows(np.array([1, 2, 3, 6])))
    >>> found["n_values"], found["mean"], found["min"], found["max"], round(found["std"], 3)
    (4, 3.0, 1.0, 6.0, 1.871)
    """
    count, not_finite, mean, squares, low, high = moments.centred().table
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = [mean + moments.origin, np.sqrt(squares / count), low, high]
    known = np.where(count > 0, rows, np.nan)
    numbers = known.astype(object)
    numbers[~np.isfinite(known)] = None
    columns = [*np.array([count, not_finite], np.int64), *numbers]
    out: dict[str, Any] = {"n_rows": moments.n_rows}
    for name, column in zip(COLUMNS, columns, strict=True):
        out[name] = column.tolist()[0] if moments.by is None else column.tolist()
    if moments.by is not None:
        out["by"] = moments.by
    if moments.classes:
        out["classes"] = {str(value): n for value, n in sorted(moments.classes.items())}
    return out
