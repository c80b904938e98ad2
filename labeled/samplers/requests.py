"""Requests: the rows of one batch as a slice or an array, and lists of them.

A *request* is a slice of consecutive rows or an int64 array of rows in any order, with
repeats if so wished. `ListedBatches` is a finite list of requests: batches of any
lengths, one after another, each with its boundaries. It knows integers only, and is what
a loader needs to serve exactly these rows in this order.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np

from labeled.errors import SelectionError, SelectionTypeError
from labeled.samplers.content import Content
from labeled.samplers.permutation import IntArray

Request = slice | IntArray


@runtime_checkable
class Sampler(Protocol):
    """Batches of rows, epoch after epoch: re-iterable, and the same each time.

    Attributes
    ----------
    epoch : int
        Which epoch iterating gives; :meth:`at_epoch` gives another.
    batch_rows : int
        Rows of the longest batch of any epoch.
    """

    @property
    def epoch(self) -> int: ...

    @property
    def batch_rows(self) -> int: ...

    @property
    def digest(self) -> str:
        """A text that differs where the batches differ, the epoch aside."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def at_epoch(self, epoch: int) -> Sampler:
        """Return the same sampler for another epoch."""


@dataclass(frozen=True, eq=False, repr=False)
class ListedBatches:
    """A finite list of batches: the same ones every epoch.

    Parameters
    ----------
    requests : tuple of slice or int64 array
        Rows of each batch, as :func:`as_request` makes them.

    Examples
    --------
    >>> batches = ListedBatches.of([slice(0, 3), [7, 7], range(3, 5)])
    >>> batches.rows, batches.edges
    (array([0, 1, 2, 7, 7, 3, 4]), array([0, 3, 5, 7]))
    """

    requests: tuple[Request, ...]
    epoch: int = 0

    @classmethod
    def of(cls, requests: Iterable[Any]) -> ListedBatches:
        """List what an iterable yields; each item is checked by :func:`as_request`."""
        return cls(tuple(as_request(item) for item in requests))

    def __repr__(self) -> str:
        n, shown = len(self), ", ".join(_shown(request) for request in self.requests[:3])
        return f"<{n:,} listed batches, {self.sizes.sum():,} rows: {shown}{', ...' * (n > 3)}>"

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def at_epoch(self, epoch: int) -> ListedBatches:
        return ListedBatches(self.requests, epoch)

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each batch, (batches,)."""
        return np.array([length_of(request) for request in self.requests], np.int64)

    @cached_property
    def edges(self) -> IntArray:
        """Places at which batches begin, and the number of all places, (batches + 1,)."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])

    @property
    def batch_rows(self) -> int:
        return int(self.sizes.max(initial=0))

    @property
    def rows(self) -> IntArray:
        """The rows of all batches, one after another."""
        return self.content(0, len(self)).rows

    @cached_property
    def row_limit(self) -> int:
        """One more than the highest row that is asked for; 0 if none is."""
        return max((_limit(request) for request in self.requests), default=0)

    @cached_property
    def digest(self) -> str:
        found = hashlib.blake2b(digest_size=16)
        for request in self.requests:
            found.update(token_of(request))
        return found.hexdigest()

    def content(self, first: int, last: int) -> Content:
        """Return the rows of batches ``[first, last)``: one run where they are consecutive."""
        asked = [r for r in self.requests[first:last] if length_of(r)]
        follows = all(
            isinstance(a, slice) and isinstance(b, slice) and a.stop == b.start
            for a, b in pairwise(asked)
        )
        if asked and follows and isinstance(asked[0], slice) and isinstance(asked[-1], slice):
            return Content(run=(asked[0].start, asked[-1].stop))
        return Content(listed=np.concatenate([np.zeros(0, np.int64), *map(rows_of_request, asked)]))


def as_request(item: Any) -> Request:
    """Return the rows of one batch as a slice with both ends, or as an int64 array.

    Parameters
    ----------
    item : slice, range, int or sequence of int
        A slice needs a stop and no negative ends; a step other than 1 makes an array. A
        single number is a batch of one row.

    Raises
    ------
    SelectionTypeError
        If it does not name rows.
    SelectionError
        If a row is negative: a sampler does not know how many rows there are.

    Examples
    --------
    >>> as_request(slice(4)), as_request(range(0, 6, 2)), as_request(5)
    (slice(0, 4, None), array([0, 2, 4]), array([5]))
    """
    if isinstance(item, slice):
        return _checked_slice(item)
    if isinstance(item, range):
        return _request_of_range(item)
    rows = np.asarray(item)
    if rows.size == 0 and not isinstance(item, np.ndarray):
        rows = rows.astype(np.int64)
    if rows.ndim > 1 or rows.dtype.kind not in "iu":
        raise SelectionTypeError(
            f"a batch is a slice, or a list of row numbers; found {_shown(item)}"
        )
    rows = np.atleast_1d(rows).astype(np.int64)
    if rows.size and int(rows.min()) < 0:
        raise SelectionError(f"row {rows.min()} of a batch is negative; count rows from 0")
    rows.flags.writeable = False
    return rows


def _checked_slice(item: slice) -> Request:
    ends = (0 if item.start is None else item.start, item.stop)
    if not all(isinstance(end, int | np.integer) for end in ends):
        raise SelectionTypeError(f"{item} does not say which rows; give it a whole start and stop")
    start, stop = int(ends[0]), int(ends[1])
    if start < 0 or stop < 0:
        raise SelectionError(f"{item} counts from the end; a sampler does not know where that is")
    return _request_of_range(range(start, stop, 1 if item.step is None else item.step))


def _request_of_range(rows: range) -> Request:
    if rows and (rows[0] < 0 or rows[-1] < 0):
        raise SelectionError(f"{rows} has negative rows; count rows from 0")
    if rows.step == 1:
        return slice(rows.start, max(rows.start, rows.stop))
    return np.arange(rows.start, rows.stop, rows.step, dtype=np.int64)


def length_of(request: Request) -> int:
    """Return how many rows a request names."""
    return request.stop - request.start if isinstance(request, slice) else request.size


def rows_of_request(request: Request) -> IntArray:
    """Return the rows of a request as an array."""
    if isinstance(request, slice):
        return np.arange(request.start, request.stop, dtype=np.int64)
    return request


def take_rows(rows: range | IntArray, request: Request) -> Request:
    """Return the rows that stand at the places a request names.

    Examples
    --------
    >>> take_rows(range(100, 200), slice(0, 3)), take_rows(np.array([7, 5, 9]), slice(1, 3))
    (slice(100, 103, None), array([5, 9]))
    """
    if not isinstance(rows, range):
        return rows[request]
    if isinstance(request, slice):
        return _request_of_range(rows[request])
    return request * rows.step + rows.start if rows != range(len(rows)) else request


def as_rows(rows: Any) -> range | IntArray:
    """Return what a sampler chooses from: a count, a range, or listed row numbers."""
    if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
        if not 0 <= rows <= sys.maxsize:
            raise SelectionError(f"rows={rows} must be from 0 to {sys.maxsize}")
        return range(int(rows))
    if isinstance(rows, range):
        _request_of_range(rows)
        return rows
    if not isinstance(rows, Iterable):
        raise SelectionTypeError(f"rows are a count, or a list of them; found {rows!r}")
    found = as_request(rows if isinstance(rows, Sequence | np.ndarray) else list(rows))
    return range(found.start, found.stop) if isinstance(found, slice) else found


def token_of(rows: Request | range) -> bytes:
    """Return bytes that differ where rows differ."""
    if isinstance(rows, slice | range):
        return repr(rows).encode()
    return b"rows%d" % rows.size + np.ascontiguousarray(rows, "<i8").tobytes()


def _limit(request: Request) -> int:
    if isinstance(request, slice):
        return request.stop if request.stop > request.start else 0
    return int(request.max(initial=-1)) + 1


def _shown(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 80 else text[:77] + "..."
