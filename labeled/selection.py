"""Which rows: pieces of ranges and index arrays, composed without touching data.

A :class:`Selection` maps positions ``0 .. n-1`` of what a user iterates to rows of
one source. It knows integers only: no file, no array of data. Ranges compose in
constant time; index arrays by one gather. Order and repeats are kept; an empty
list selects nothing; negative indices, open slices and full-length boolean masks
mean what they mean in NumPy; an integer out of range is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from labeled._validation import as_array
from labeled.errors import SelectionError, SelectionTypeError

Rows: TypeAlias = npt.NDArray[np.int64]
Piece: TypeAlias = range | Rows
Request: TypeAlias = slice | range | Sequence[SupportsIndex] | npt.NDArray[Any]

_LISTED = 6
_LOOKED_AT = 1 << 18
_DRAWN = 400


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows of a source, in the order in which they are asked for.

    Parameters
    ----------
    pieces : tuple of range or int64 array
        Rows, piece after piece. Build one with :meth:`all`, :meth:`of` or
        :meth:`concat`, which check and simplify.

    Examples
    --------
    >>> train = Selection.all(100)[10:90]
    >>> valid = train[-20:]
    >>> valid
    Selection(rows 70:90)
    >>> valid[[3, 3, 0]].rows
    array([73, 73, 70])
    """

    pieces: tuple[Piece, ...]

    @classmethod
    def all(cls, n_rows: int) -> Selection:
        """Select every row of `n_rows`, in order."""
        return cls((range(n_rows),))

    @classmethod
    def of(cls, rows: range | npt.ArrayLike) -> Selection:
        """Select the given row numbers (not negative, not checked against a length)."""
        if isinstance(rows, range):
            return cls((rows,))
        array = np.asarray(rows)
        if array.dtype.kind not in "iu" and array.size:
            raise SelectionTypeError(f"rows must be integers, not {array.dtype}")
        array = array.astype(np.int64)
        array.flags.writeable = False
        return cls((array,))

    @classmethod
    def concat(cls, selections: Iterable[Selection]) -> Selection:
        """Join selections one after another; ranges that continue each other become one."""
        pieces: list[Piece] = []
        for piece in filter(len, chain.from_iterable(one.pieces for one in selections)):
            last = pieces[-1] if pieces else None
            if isinstance(last, range) and isinstance(piece, range):
                step = piece.step
                if last.step == step and last[-1] + step == piece[0]:
                    pieces[-1] = range(last[0], piece[-1] + step, step)
                    continue
            pieces.append(piece)
        return cls(tuple(pieces) or (range(0),))

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def span(self) -> range | None:
        """The rows as one range, or None where they are not one."""
        only = self.pieces[0]
        return only if len(self.pieces) == 1 and isinstance(only, range) else None

    @property
    def compact(self) -> range | Rows:
        """The rows as a range where they follow one another, else as an array."""
        span = self.span
        if span is None or span.step != 1:
            return self.rows
        return range(span.start, max(span.start, span.stop))

    @cached_property
    def rows(self) -> Rows:
        """All row numbers as one int64 array (8 bytes a row; ranges are spelled out here)."""
        return self.take(np.arange(len(self), dtype=np.int64))

    def take(self, positions: Rows) -> Rows:
        """Map positions (int64, each in ``0 .. n-1``, not checked) to rows."""
        if (span := self.span) is not None:
            return positions * span.step + span.start
        if len(self.pieces) == 1:
            return np.asarray(self.pieces[0])[positions]
        ends = np.cumsum(list(map(len, self.pieces)))
        which = np.searchsorted(ends, positions, side="right")
        out = np.empty(len(positions), np.int64)
        for number, piece in enumerate(self.pieces):
            mine = np.flatnonzero(which == number)
            own = positions[mine] - (ends[number] - len(piece))
            out[mine] = piece.start + own * piece.step if isinstance(piece, range) else piece[own]
        return out

    def shift(self, by: int) -> Selection:
        """Add `by` to every row (rows of one file among many)."""
        moved = (
            range(one.start + by, one.stop + by, one.step) if isinstance(one, range) else one + by
            for one in self.pieces
        )
        return Selection(tuple(moved))

    def __getitem__(self, request: Request) -> Selection:
        """Select among the selected rows; see :func:`as_positions` for what may be asked."""
        wanted = as_positions(request, len(self))
        if not isinstance(wanted, range) or (len(self.pieces) > 1 and wanted.step < 0):
            return Selection.of(self.take(np.asarray(wanted, np.int64)))
        parts, begin = [], 0
        for piece in self.pieces if wanted else ():
            first = wanted.start - begin
            first = first if first >= 0 else first % wanted.step
            stop = None if wanted.stop < 0 else max(wanted.stop - begin, 0)
            parts.append(Selection((piece[first : stop : wanted.step],)))
            begin += len(piece)
        return parts[0] if len(parts) == 1 else Selection.concat(parts)

    @cached_property
    def token(self) -> str:
        """A digest of the rows: equal for equal pieces, whatever process made them."""
        digest = hashlib.blake2b(digest_size=16)
        for piece in self.pieces:
            if isinstance(piece, range):
                digest.update(repr((piece.start, piece.stop, piece.step)).encode())
            else:
                digest.update(b"list%d" % len(piece))
                digest.update(np.ascontiguousarray(piece).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        if len(self) != len(other):
            return False
        mine, theirs = self.span, other.span
        if mine is not None and theirs is not None:
            return mine == theirs
        return bool(np.array_equal(self.rows, other.rows))

    def __repr__(self) -> str:
        return f"Selection({self.describe()})"

    def describe(self) -> str:
        """Say in a few words which rows these are."""
        if not len(self):
            return "no rows"
        words = []
        for piece in self.pieces[:_LISTED]:
            if isinstance(piece, range):
                stop = piece[-1] + (1 if piece.step > 0 else -1)
                words.append(f"{piece[0]}:{stop}" + f":{piece.step}" * (piece.step != 1))
            else:
                words.append(f"[{len(piece)} listed]")
        if len(self.pieces) > _LISTED:
            words.append(f"... {len(self.pieces)} pieces")
        return "rows " + " + ".join(words)

    def stretches_among(self, n_rows: int) -> tuple[tuple[int, int], ...]:
        """Return the stretches of `n_rows` in which the rows lie, ascending, for a picture.

        Exact to one part in 400; of very many rows some are looked at.

        Examples
        --------
        >>> Selection.of([0, 1, 2, 9]).stretches_among(10)
        ((0, 3), (9, 10))
        """
        places, n = min(_DRAWN, n_rows), len(self)
        some = self.take(np.linspace(0, n - 1, min(n, _LOOKED_AT)).astype(np.int64))
        stretches = runs_of(np.unique(some * places // max(n_rows, 1)))
        edges = -(-stretches * n_rows // max(places, 1))
        return tuple((start, stop) for start, stop in edges.tolist())

    def __reduce__(self) -> tuple[Any, ...]:
        return Selection, (self.pieces,)


def as_positions(request: Request, n: int, what: str = "row") -> range | Rows:
    """Turn what a user asks for into positions among `n`.

    Parameters
    ----------
    request : slice, range, integers or full-length boolean mask
        Negative integers count from the end, as in NumPy.
    n : int
        How many positions there are.
    what : str
        What an error calls one of them.

    Returns
    -------
    range or int64 array
        Positions in ``0 .. n-1``, in the order asked, repeats kept.

    Raises
    ------
    SelectionError
        If an integer is out of range, or a mask has another length.
    SelectionTypeError
        If `request` is not rows at all (a float, a string, a single integer).
    """
    if isinstance(request, slice):
        try:
            return range(n)[request]
        except TypeError as error:
            raise SelectionTypeError(f"cannot select rows by {request!r}: {error}") from None
    if isinstance(request, range):
        ends = (request[0], request[-1]) if request else ()
        _check_positions(ends, n, what)
        if min(ends, default=0) >= 0:
            return request
    if isinstance(request, str | bytes) or not hasattr(request, "__len__"):
        raise SelectionTypeError(
            f"cannot select rows by {request!r}; pass a slice, a list of integers or a boolean "
            "mask; [r] selects the single row r"
        )
    array = as_array("rows", request, SelectionTypeError)
    if array.dtype == np.bool_:
        if array.shape != (n,):
            raise SelectionError(
                f"a boolean mask of shape {array.shape} cannot select from {n} rows; "
                f"pass one entry per row, shape ({n},)"
            )
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise SelectionTypeError(
            f"cannot select rows by an array of {array.dtype} with shape {array.shape}; "
            "pass 1-D integers or booleans"
        )
    _check_positions((int(array.min()), int(array.max())) if array.size else (), n, what)
    positions = array.astype(np.int64)
    positions[positions < 0] += n
    return positions


def _check_positions(ends: tuple[int, ...], n: int, what: str) -> None:
    for bad in sorted(ends, reverse=True):
        if not -n <= bad < n:
            raise SelectionError(f"{what} {bad} is out of range: there are {n} {what}s")


# runs: int64 arrays (k, 2), each the first row and one past the last


def rows_of(runs: Rows) -> Rows:
    """Return every row of the runs, one run after another.

    Examples
    --------
    >>> rows_of(np.array([[2, 4], [7, 8]])).tolist()
    [2, 3, 7]
    """
    return spread(runs[:, 0], runs[:, 1] - runs[:, 0])


def spread(starts: Rows, counts: Rows) -> Rows:
    """Return the rows of runs given by their starts and lengths, one run after another.

    Examples
    --------
    >>> spread(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    rows: Rows = (starts + counts - counts.cumsum()).repeat(counts)
    rows += np.arange(len(rows))
    return rows


def merged_runs(starts: Rows, stops: Rows) -> Rows:
    """Return stretches as runs, joined where they touch or overlap; starts and stops ascend.

    Examples
    --------
    >>> merged_runs(np.array([2, 3, 7]), np.array([3, 4, 8])).tolist()
    [[2, 4], [7, 8]]
    """
    gap = np.flatnonzero(starts[1:] > stops[:-1])
    first = np.concatenate([starts[:1], starts[gap + 1]])
    stop = np.concatenate([stops[gap], stops[-1:]])
    return np.stack([first, stop], axis=1)


def runs_of(rows: Rows) -> Rows:
    """Return the runs of strictly ascending rows.

    Examples
    --------
    >>> runs_of(np.array([2, 3, 4, 9])).tolist()
    [[2, 5], [9, 10]]
    """
    return merged_runs(rows, rows + 1)
