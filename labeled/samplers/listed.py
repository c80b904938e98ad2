"""Batches that somebody else lists: samplers, and the plan that serves their rows.

A *request* is the rows of one batch: a slice of consecutive rows, or an int64 array of rows in any
order, with repeats if so wished. A sampler lists requests, epoch after epoch; they are served in
that order and of those lengths, and shards take them in turn. All rows of an epoch are listed, so
this costs eight bytes a row, and as many again where a sampler yields arrays.
"""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from labeled._validation import as_array, check_arguments, whole
from labeled.errors import LoaderError, SelectionError, SelectionTypeError, explain_memory_errors
from labeled.samplers.permutation import IntArray, explicit_permutation, key_of
from labeled.samplers.plan import EpochPlan, History, Last
from labeled.samplers.windows import Window, WindowRows

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
    >>> batches.content(0, 3).rows, batches.edges
    (array([0, 1, 2, 7, 7, 3, 4]), array([0, 3, 5, 7]))
    """

    requests: tuple[Request, ...]
    epoch: int = 0
    rows: IntArray = field(init=False)
    """The rows of all batches, one batch after another."""
    edges: IntArray = field(init=False)
    """Places at which batches begin, and the number of all places, (batches + 1,)."""

    def __post_init__(self) -> None:
        each = [np.zeros(0, np.int64), *(np.r_[one].astype(np.int64) for one in self.requests)]
        edges = np.cumsum(list(map(len, each)), dtype=np.int64)
        self.__dict__.update(rows=np.concatenate(each), edges=edges)

    @classmethod
    def of(cls, requests: Iterable[Any]) -> ListedBatches:
        """List what an iterable yields; each item is checked by :func:`as_request`."""
        return cls(tuple(as_request(item) for item in requests))

    def __repr__(self) -> str:
        n, shown = len(self), ", ".join(map(reprlib.repr, self.requests[:3]))
        return f"<{n:,} listed batches, {self.edges[-1]:,} rows: {shown}{', ...' * (n > 3)}>"

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def at_epoch(self, epoch: int) -> ListedBatches:
        return ListedBatches(self.requests, epoch)

    @property
    def batch_rows(self) -> int:
        return int(np.diff(self.edges).max(initial=0))

    @cached_property
    def digest(self) -> str:
        return _digest_of(self.edges, self.rows)

    def content(self, first: int, last: int) -> WindowRows:
        """Return the rows of batches ``[first, last)``: one run where they are consecutive."""
        rows = self.rows[self.edges[first] : self.edges[last]]
        if len(rows) and (np.diff(rows) == 1).all():
            return WindowRows(run=(int(rows[0]), int(rows[-1]) + 1))
        return WindowRows(listed=rows)


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
        If a row is negative: a sampler does not know how many rows there are.

    Examples
    --------
    >>> as_request(slice(4)), as_request(range(0, 6, 2)), as_request(5)
    (slice(0, 4, None), array([0, 2, 4]), array([5]))
    """
    if isinstance(item, slice):
        try:
            item = range(item.start or 0, item.stop, 1 if item.step is None else item.step)
        except TypeError:
            said = f"{item} does not say which rows; give it a whole start and stop"
            raise SelectionTypeError(said) from None
    if isinstance(item, range) and item.step == 1 and item.start >= 0:
        return slice(item.start, max(item.start, item.stop))
    rows = np.asarray(item)
    if rows.size == 0 and not isinstance(item, np.ndarray):
        rows = rows.astype(np.int64)
    if rows.ndim > 1 or rows.dtype.kind not in "iu":
        raise SelectionTypeError(
            f"a batch is a slice, or a list of row numbers; found {reprlib.repr(item)}"
        )
    rows = np.atleast_1d(rows).astype(np.int64)
    if rows.size and rows.min() < 0:
        raise SelectionError(
            f"row {rows.min()} of a batch is negative; a sampler counts rows from 0, for it does "
            "not know where the end is"
        )
    rows.flags.writeable = False
    return rows


def _digest_of(*arrays: IntArray) -> str:
    """Return a text that differs where integers differ."""
    content = b"".join(np.ascontiguousarray(one, "<i8").tobytes() for one in arrays)
    return hashlib.blake2b(content, digest_size=16).hexdigest()


# ---------------------------------------------------------------- a plan of listed batches
@dataclass(frozen=True, eq=False)
class SampledOrder:
    """The order a sampler gives to one epoch; stands where an `Order` stands.

    Its `seed` decides nothing about rows: random transforms draw from it.
    """

    sampler: Sampler
    n_rows: int
    window_rows: int
    seed: int = 0

    mode = "sampler"
    sticky_shards = False

    @property
    def epoch(self) -> int:
        return self.sampler.epoch

    @property
    def digest(self) -> str:
        return self.sampler.digest


@dataclass(frozen=True, eq=False)
class SampledPlan:
    """The batches of one shard of one epoch of a sampler.

    Parameters
    ----------
    order : SampledOrder
    shard : (int, int)
        This shard serves batches ``index, index + count, ...`` of those that are left.
    history : tuple of (count, step)
        Changes of the number of shards within this epoch.

    Raises
    ------
    SelectionError
        If the sampler asks for a row that is not there.

    Examples
    --------
    >>> order = SampledOrder(ListedBatches.of([[3, 1], slice(0, 4), [2]]), 4, window_rows=8)
    >>> plan = SampledPlan(order)
    >>> plan.n_batches, [plan.span(k) for k in range(3)]
    (3, [(0, 2), (2, 6), (6, 7)])
    """

    order: SampledOrder
    shard: tuple[int, int] = (0, 1)
    history: History = ()

    last: Last = "keep"

    def at_epoch(self, epoch: int, seed: int | None = None, history: History = ()) -> SampledPlan:
        """Return the same plan for another epoch and history; a sampler keeps its own seed."""
        order = self.order
        sampler, seed = order.sampler.at_epoch(epoch), order.seed if seed is None else seed
        return replace(self, order=replace(order, sampler=sampler, seed=seed), history=history)

    @property
    def _own(self) -> slice:
        """Which batches of the sampler are this shard's."""
        index, count = self.shard
        served = sum(shards * step for shards, step in self.history)
        return slice(served + index, None, count)

    @cached_property
    def _batches(self) -> ListedBatches:
        listed = ListedBatches(tuple(self.order.sampler)[self._own], self.order.epoch)
        highest = listed.rows.max(initial=-1)
        if highest >= self.order.n_rows:
            raise SelectionError(
                f"the sampler asks for row {highest} in epoch {self.order.epoch}, but there are "
                f"{self.order.n_rows} rows"
            )
        return listed

    @property
    def batch_rows(self) -> int:
        """Rows of the longest batch of any epoch."""
        return max(1, self.order.sampler.batch_rows)

    @property
    def n_batches(self) -> int:
        return len(range(len(self.order.sampler))[self._own])

    @property
    def n_rows(self) -> int:
        """Rows of all batches of this shard, repeats counted."""
        return int(self._batches.edges[-1])

    def span(self, number: int) -> tuple[int, int]:
        """Return the places of batch `number`: ``[start, stop)``."""
        edges = self._batches.edges
        return int(edges[number]), int(edges[number + 1])

    def batch(self, number: int) -> tuple[IntArray, int]:
        """Return the rows of one batch, and how many they are."""
        rows = self._batches.content(number, number + 1).rows
        return rows, len(rows)

    @property
    def n_windows(self) -> int:
        return sum(1 for _ in self.windows())

    def windows(self, first_batch: int = 0) -> Iterator[Window]:
        """Walk through windows of whole batches, from batch `first_batch` on."""
        edges, first = self._batches.edges, first_batch
        while first < self.n_batches:
            fitting = edges.searchsorted(edges[first] + self.order.window_rows, "right")
            end = max(int(fitting) - 1, first + 1)
            if edges[first] < edges[end]:  # else there are no rows
                content = self._batches.content(first, end)
                yield Window(int(edges[first]), int(edges[end]), content)
            first = end


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
        return f"{key_of('row sequences', *numbers, _digest_of(self.starts)):032x}"


Sampler: TypeAlias = ListedBatches | RowSequences
"""Batches of rows, epoch after epoch: re-iterable, and the same each time.

`epoch` says which epoch iterating gives, and ``at_epoch`` gives another; `batch_rows` are the rows
of the longest batch of any epoch; `digest` differs where the batches differ, the epoch aside.
"""

AnyPlan: TypeAlias = EpochPlan | SampledPlan
"""The plan of one shard of one epoch, whoever orders its rows."""


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
            raise LoaderError(
                f"groups must be one value a row, ({n},); found an array of shape {values.shape}"
            )
        borders = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1, [n]])
    counts = np.maximum(0, (np.diff(borders) - length) // step + 1)
    if not counts.any():
        raise LoaderError(
            f"no sequence of {length:,} rows fits: the longest stretch of rows that belong "
            f"together has {int(np.diff(borders).max()):,}; give a smaller length"
        )
    with _room_for(int(counts.sum())):
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
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
        whole("seed", one, error=LoaderError)
    return seed


def _whole(name: str, value: Any, least: int = 0) -> int:
    """Return a number of rows, batches or epochs; more than 2**62 cannot be counted."""
    return whole(name, value, least=least, most=1 << 62, error=LoaderError)
