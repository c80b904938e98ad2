"""Batches that somebody else lists: samplers.

A *request* is the rows of one batch: a slice of consecutive rows, or an int64 array of rows in any
order, with repeats if so wished. A sampler lists requests, epoch after epoch; they are served in
that order and of those lengths, and shards take them in turn. All rows of an epoch are listed, so
this costs eight bytes a row, and as many again where a sampler yields arrays.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from labeled._validation import as_array, check_arguments, integer
from labeled.errors import LoaderError, SelectionError, SelectionTypeError, explain_memory_errors
from labeled.samplers.permutation import IntArray, digest_of, explicit_permutation, key_of
from labeled.selection import spread

Request: TypeAlias = slice | IntArray
Seed: TypeAlias = int | tuple[int, ...]


# ---------------------------------------------------------------- requests
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
    >>> list(batches), batches.batch_rows
    ([slice(0, 3, None), array([7, 7]), slice(3, 5, None)], 3)
    """

    requests: tuple[Request, ...]

    @classmethod
    def of(cls, requests: Iterable[Any]) -> ListedBatches:
        """List what an iterable yields; each item is checked by :func:`as_request`."""
        return cls(tuple(as_request(item) for item in requests))

    def __repr__(self) -> str:
        n, shown = len(self), ", ".join(map(reprlib.repr, self.requests[:3]))
        n_rows = sum(map(_length, self.requests))
        return f"<{n:,} listed batches, {n_rows:,} rows: {shown}{', ...' * (n > 3)}>"

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def at_epoch(self, _epoch: int) -> ListedBatches:
        return self

    @cached_property
    def batch_rows(self) -> int:
        return max(map(_length, self.requests), default=0)

    @cached_property
    def digest(self) -> str:
        return digest_of(*rows_of_requests(self.requests))


def _length(request: Request) -> int:
    return request.stop - request.start if isinstance(request, slice) else len(request)


def last_row(request: Request) -> int:
    """Return the highest row of a batch, -1 if it has none; a slice is not spelled out for it."""
    if isinstance(request, slice):
        return int(request.stop - 1) if _length(request) else -1
    return int(np.max(request, initial=-1))


def rows_of_requests(requests: Iterable[Request]) -> tuple[IntArray, IntArray]:
    """Return the places at which batches begin and the last ends, and the rows of all of them.

    Examples
    --------
    >>> rows_of_requests([slice(0, 3), np.array([7, 7])])
    (array([0, 3, 5]), array([0, 1, 2, 7, 7]))
    """
    each = [np.zeros(0, np.int64), *(np.r_[one].astype(np.int64) for one in requests)]
    return np.cumsum(list(map(len, each)), dtype=np.int64), np.concatenate(each)


def as_request(item: Any) -> Request:
    """Return the rows of one batch as a slice with both ends, or as an int64 array.

    Parameters
    ----------
    item : slice, range, int or sequence of int
        A slice needs a stop; a step other than 1 makes an array. A single number is a batch of
        one row.

    Raises
    ------
    SelectionTypeError
        If it is none of these.
    SelectionError
        If a row is negative (a sampler does not know how many rows there are), or 2**63 or more.

    Examples
    --------
    >>> as_request(slice(4)), as_request(range(0, 6, 2)), as_request(5)
    (slice(0, 4, None), array([0, 2, 4]), array([5]))
    """
    if isinstance(item, slice):
        try:
            item = range(item.start or 0, item.stop, 1 if item.step is None else item.step)
        except (TypeError, ValueError):
            said = f"{item} does not say which rows; give it a whole start and stop, and no step 0"
            raise SelectionTypeError(said) from None
    if isinstance(item, range) and item.step == 1 and item.start >= 0:
        return slice(item.start, max(item.start, item.stop))
    rows = as_array("a batch", item, SelectionTypeError)
    if rows.size == 0 and not isinstance(item, np.ndarray):
        rows = rows.astype(np.int64)
    if rows.ndim > 1 or rows.dtype.kind not in "iu":
        raise SelectionTypeError(f"a batch is a slice or a list of rows, not {reprlib.repr(item)}")
    rows = np.atleast_1d(rows)
    if rows.size and rows.min() < 0:
        raise SelectionError(f"row {rows.min()} of a batch is negative; samplers count from 0")
    if rows.size and rows.max() > np.iinfo(np.int64).max:
        raise SelectionError(f"row {rows.max()} of a batch is more than 63 bits hold")
    rows = rows.astype(np.int64)
    rows.flags.writeable = False
    return rows


# ---------------------------------------------------------------- samplers of our own
@dataclass(frozen=True, eq=False, repr=False)
class RowSequences:
    """Batches of sequences of consecutive rows, which may overlap; see :func:`row_sequences`.

    Parameters
    ----------
    starts : int64 array, (n_sequences,)
        The first row of each sequence, in file order.
    length : int
        Rows of a sequence.
    batch_sequences : int
        Sequences of a batch, the last of which may have fewer.
    last : {'keep', 'drop'}
        Whether a last batch with fewer sequences is handed out.
    seed : int or tuple of int, optional
        Sequences come in another order in each epoch; None means file order.
    """

    starts: IntArray
    length: int
    batch_sequences: int
    last: Literal["keep", "drop"]
    seed: Seed | None
    epoch: int

    def __len__(self) -> int:
        n, each = self.starts.size, self.batch_sequences
        return n // each if self.last == "drop" else -(-n // each)

    @property
    def batch_rows(self) -> int:
        return self.length * min(self.batch_sequences, self.starts.size)

    def __repr__(self) -> str:
        drawn = "" if self.seed is None else f", seed={self.seed!r}, epoch={self.epoch}"
        return (
            f"<{len(self):,} batches of {self.batch_sequences:,} sequences of {self.length:,} "
            f"rows, {self.starts.size:,} in all{drawn}>"
        )

    def __iter__(self) -> Iterator[Request]:
        starts = self.starts
        if self.seed is not None:
            seeds = self.seed if isinstance(self.seed, tuple) else (self.seed,)
            key = key_of(*seeds, self.epoch, "sampler order", 1)
            starts = starts[explicit_permutation(starts.size, key)]
        steps = np.arange(self.length)
        for number in range(len(self)):
            first = number * self.batch_sequences
            yield (starts[first : first + self.batch_sequences, None] + steps).ravel()

    def at_epoch(self, epoch: int) -> RowSequences:
        return replace(self, epoch=_whole("epoch", epoch))

    @cached_property
    def digest(self) -> str:
        numbers = (self.length, self.batch_sequences, self.last, repr(self.seed))
        return f"{key_of('row sequences', *numbers, digest_of(self.starts)):032x}"


# Batches of rows, epoch after epoch: re-iterable, and the same each time. Iterating gives the
# batches of one epoch, and that of `at_epoch` those of another; `batch_rows` are the rows of the
# longest batch of any epoch; `digest` differs where the batches differ, the epoch aside.
Sampler: TypeAlias = ListedBatches | RowSequences


@check_arguments(LoaderError)
def row_sequences(
    n_rows: int,
    length: int,
    batch_sequences: int,
    *,
    step: int = 1,
    groups: npt.ArrayLike | None = None,
    last: Literal["keep", "drop"] = "keep",
    seed: Seed | None = None,
    epoch: int = 0,
) -> RowSequences:
    """Make a sampler whose batches hold sequences of consecutive rows.

    Sequences are clips of a film, windows over time or steps of an episode. A batch holds several,
    one after another; ``reshape(-1, length, ...)`` gives them an axis of their own.

    Parameters
    ----------
    n_rows : int
        Rows of the dataset.
    length : int
        Rows of a sequence.
    batch_sequences : int
        Sequences of a batch: ``batch_sequences * length`` rows, sequence after sequence.
    step : int
        Rows from the start of one sequence to the start of the next. 1 gives every possible
        sequence, `length` gives sequences that share no row.
    groups : array, lengths ``(n_rows,)``, optional
        A value per row, such as its film, episode or patient. No sequence crosses from one value to
        another.
    last : {"keep", "drop"}
        Whether a last batch with fewer sequences is handed out.
    seed : int or tuple of int, optional
        Shuffles the sequences, differently in each epoch; without it they come in file order.
    epoch : int
        Whose batches come when the sampler itself is iterated. A loader counts its own epochs, from
        ``batches(epoch=...)``, and asks for those.

    Raises
    ------
    LoaderError
        If no sequence fits, or a number is impossible.

    Examples
    --------
    >>> for rows in row_sequences(8, 3, 2, groups=[0, 0, 0, 0, 1, 1, 1, 2]):
    ...     print(rows.reshape(-1, 3).tolist())
    [[0, 1, 2], [1, 2, 3]]
    [[4, 5, 6]]
    >>> len(row_sequences(1000, 16, 4, step=8, seed=7))
    31
    """
    n, length, step = _whole("n_rows", n_rows), _whole("length", length, 1), _whole("step", step, 1)
    size = _whole("batch_sequences", batch_sequences, 1)
    borders = np.array([0, n], np.int64)  # of stretches of one group
    if groups is not None:
        values = as_array("groups", groups, LoaderError)
        if values.shape != (n,):
            raise LoaderError(f"groups must be one value a row, ({n},); found shape {values.shape}")
        borders = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1, [n]])
    counts = np.maximum(0, (np.diff(borders) - length) // step + 1)
    if not counts.any():
        raise LoaderError(
            f"no sequence of {length:,} rows fits: the longest stretch of rows that belong "
            f"together has {int(np.diff(borders).max()):,}; give a smaller length"
        )
    with _room_for(int(counts.sum())):
        numbers = spread(np.zeros_like(counts), counts)
        starts = np.repeat(borders[:-1], counts) + numbers * step
    return RowSequences(starts, length, size, last, _checked(seed), _whole("epoch", epoch))


@check_arguments(LoaderError)
def shuffled(n_rows: int, batch_rows: int, *, seed: Seed, epoch: int = 0) -> RowSequences:
    """Make a sampler of batches of shuffled rows; the last may be shorter.

    Shards take its batches in turn, so that the batches of a step are the same whatever the
    number of processes.

    Parameters
    ----------
    n_rows, batch_rows : int
        Rows of the dataset, and rows per batch.
    seed : int or tuple of int
        The order depends only on it and the epoch.
    epoch : int
        Whose batches come when the sampler itself is iterated. A loader counts its own epochs, from
        ``batches(epoch=...)``, and asks for those.

    Examples
    --------
    >>> sorted(np.concatenate(list(shuffled(5, 3, seed=7))).tolist())
    [0, 1, 2, 3, 4]
    """
    n, size = _whole("n_rows", n_rows), _whole("batch_rows", batch_rows, 1)
    with _room_for(n):
        starts = np.arange(n)
    return RowSequences(starts, 1, size, "keep", _checked(seed), _whole("epoch", epoch))


def _room_for(n: int) -> AbstractContextManager[None]:
    return explain_memory_errors(lambda why: f"{n:,} row numbers do not fit in memory: {why}")


def _checked(seed: Seed | None) -> Seed | None:
    for one in seed if isinstance(seed, tuple) else () if seed is None else (seed,):
        integer("seed", one)  # not a list, say
    return seed


def _whole(name: str, value: Any, least: int = 0) -> int:
    """Return a number of rows, batches or epochs; more than 2**62 cannot be counted."""
    return integer(name, value, least=least, most=1 << 62)
