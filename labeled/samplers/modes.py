"""Ways to walk through an epoch, by name: which rows make up each batch.

A `BatchSampler` is a frozen recipe: iterating it gives the requests of its epoch, the
same each time; ``at_epoch(k)`` gives another epoch. The modes differ in three things
only, which `MODES` tabulates: how rows are ordered, which rule of sizes holds
(:mod:`labeled.samplers.cuts`), and what random numbers they ask for.

Random orders are keyed by (seed, epoch). Those that older libraries drew from NumPy's
`RandomState` are in :mod:`labeled.compat`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled._validation import check_arguments
from labeled.errors import LoaderError, did_you_mean
from labeled.samplers.cuts import Cut, Rule, cut, whole
from labeled.samplers.permutation import IntArray, key_of
from labeled.samplers.requests import (
    Request,
    as_rows,
    length_of,
    take_rows,
    token_of,
)
from labeled.samplers.streams import KeyedStream, Seed, Stream, checked_seed

Draw = Callable[[Cut, Stream], Iterator[Request]]


class Walk(NamedTuple):
    """What distinguishes a mode from the others."""

    draw: Draw
    rule: Rule
    random: bool


def _in_order(sizes: Cut, stream: Stream) -> Iterator[Request]:
    for number in range(sizes.n_batches):
        yield slice(*sizes.bounds(number))


def _shuffled_rows(sizes: Cut, stream: Stream) -> Iterator[Request]:
    rows = stream.permutation(sizes.n_rows)  # drawn now, not with the first batch
    return (rows[slice(*sizes.bounds(number))] for number in range(sizes.n_batches))


def _shuffled_blocks(sizes: Cut, stream: Stream) -> Iterator[Request]:
    order = stream.permutation(sizes.n_batches).tolist()
    return (slice(*sizes.bounds(number)) for number in order)


def _random_slices(sizes: Cut, stream: Stream) -> Iterator[Request]:
    for _ in range(sizes.n_batches):
        start = int(stream.below(sizes.n_rows - sizes.batch_rows + 1, 1)[0])
        yield slice(start, start + sizes.batch_rows)


def _random_rows(sizes: Cut, stream: Stream) -> Iterator[Request]:
    for _ in range(sizes.n_batches):
        yield stream.below(sizes.n_rows, sizes.batch_rows)


MODES: dict[str, Walk] = {
    "sequential": Walk(_in_order, "short last", False),
    "shuffled_sequential": Walk(_shuffled_rows, "short last", True),
    "batchwise_shuffled_sequential": Walk(_shuffled_blocks, "short last", True),
    "random_slice": Walk(_random_slices, "drawn slices", True),
    "random_uniform": Walk(_random_rows, "drawn rows", True),
    "even_sequential": Walk(_in_order, "even", False),
    "even_shuffled_sequential": Walk(_shuffled_rows, "even", True),
    "even_batchwise_shuffled_sequential": Walk(_shuffled_blocks, "even", True),
}


def told(sampler: Any, mode: str, n_rows: int, batch_rows: int, what: str) -> str:
    """Return how a sampler shows itself: how many batches of what, and where from."""
    seed = "" if sampler.seed is None else f", seed={sampler.seed}, epoch={sampler.epoch}"
    return (
        f"<sampler {mode!r}: {len(sampler):,} batches of {batch_rows:,}, of {n_rows:,} "
        f"{what}{seed}>"
    )


@dataclass(frozen=True, eq=False, repr=False)
class BatchSampler:
    """Batches of rows in one of the `MODES`. Made by :func:`batch_sampler`.

    Parameters
    ----------
    mode : str
        A key of `MODES`.
    source_rows : range or int64 array
        The rows to choose from, in order.
    sizes : Cut
    seed : int or tuple of int, optional
        None where nothing is drawn.
    epoch : int
    sorted_within : bool
        Sort the rows of each batch.
    """

    mode: str
    source_rows: range | IntArray
    sizes: Cut
    seed: Seed | None = None
    epoch: int = 0
    sorted_within: bool = False

    @property
    def drawn(self) -> bool:
        """Whether rows are drawn with replacement."""
        return MODES[self.mode].rule in ("drawn rows", "drawn slices")

    @property
    def batch_rows(self) -> int:
        rows = self.sizes.batch_rows
        return rows if self.drawn else min(rows, self.sizes.n_rows)

    @property
    def n_rows(self) -> int:
        """Rows handed out in an epoch, repeats counted."""
        full = self.sizes.n_batches * self.sizes.batch_rows
        return full if self.drawn else min(full, self.sizes.n_rows)

    def __len__(self) -> int:
        return self.sizes.n_batches

    def __repr__(self) -> str:
        rows = self.sizes.n_rows
        return told(self, self.mode, rows, self.sizes.batch_rows, "rows")

    def __iter__(self) -> Iterator[Request]:
        stream = KeyedStream(0 if self.seed is None else self.seed, self.epoch)
        for request in MODES[self.mode].draw(self.sizes, stream):
            rows = take_rows(self.source_rows, request)
            yield np.sort(rows) if self.sorted_within and not isinstance(rows, slice) else rows

    def at_epoch(self, epoch: int) -> BatchSampler:
        return replace(self, epoch=whole("epoch", epoch))

    @cached_property
    def digest(self) -> str:
        sizes = self.sizes
        numbers = (sizes.n_rows, sizes.batch_rows, sizes.n_batches, int(self.sorted_within))
        rows = token_of(self.source_rows).hex()
        return f"{key_of('sampler', self.mode, *numbers, repr(self.seed), rows):032x}"


@check_arguments(LoaderError)
def batch_sampler(
    mode: str,
    rows: int | Iterable[int],
    batch_rows: int | None = None,
    n_batches: int | None = None,
    *,
    seed: Seed | None = None,
    epoch: int = 0,
    sorted_within: bool = False,
) -> BatchSampler:
    """Make a sampler of batches of rows.

    ==================================  =====================  ============================
    mode                                requests               sizes
    ==================================  =====================  ============================
    ``sequential``                      slices, in order       the last batch may be short
    ``shuffled_sequential``             arrays, rows shuffled  the last batch may be short
    ``batchwise_shuffled_sequential``   slices, shuffled       one may be short, anywhere
    ``random_slice``                    slices, any start      all equal; give both sizes
    ``random_uniform``                  arrays, any rows       all equal; give both sizes
    ``even_`` + one of the first three  as that one            all equal; the rest left out
    ==================================  =====================  ============================

    Parameters
    ----------
    mode : str
    rows : int, or sequence of int
        How many rows there are, or which, in order (then requests are arrays).
    batch_rows, n_batches : int, optional
        See :func:`labeled.samplers.cuts.cut`.
    seed : int or tuple of int, optional
        Needed where something is drawn.
    epoch : int
        Which epoch iterating gives.
    sorted_within : bool
        Sort the rows of each batch: which rows share a batch stays as it is.

    Raises
    ------
    LoaderError
        If the mode is unknown, sizes are missing or cannot be reached, a seed is missing,
        or one is given where nothing is drawn.

    Examples
    --------
    >>> [list(range(10)[s]) for s in batch_sampler("sequential", 10, 4)]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """
    if mode == "even_sequences":
        raise LoaderError("even_sequences asks for lengths; make it with even_sequences(lengths)")
    if mode not in [*MODES]:
        known = [*MODES, "even_sequences"]
        raise LoaderError(f"no iteration mode {mode!r}; {did_you_mean(str(mode), known)}")
    source = as_rows(rows)
    sizes = cut(MODES[mode].rule, len(source), batch_rows, n_batches)
    drawn = seed_for(mode, MODES[mode].random, seed)
    return BatchSampler(mode, source, sizes, drawn, whole("epoch", epoch), sorted_within)


def seed_for(what: str, random: bool, seed: Seed | None) -> Seed | None:
    """Return the seed to draw from, None where nothing is drawn; LoaderError if it is missing."""
    if not random:
        if seed is not None:
            raise LoaderError(f"{what} draws nothing at random, so it takes no seed={seed!r}")
        return None
    if seed is None:
        raise LoaderError(f"{what} is random: give it a seed")
    return checked_seed(seed)


# ---------------------------------------------------------------- sequences of equal length
@dataclass(frozen=True, eq=False, repr=False)
class EvenSequences:
    """Batches of sequences of one length each. Made by :func:`even_sequences`.

    The lengths take turns, in a random order, until each sequence was handed out once.

    Parameters
    ----------
    lengths : int64 array, (n_rows,)
        The length of each sequence.
    batch_rows : int
        Sequences of a batch, fewer where a length runs out.
    """

    lengths: IntArray
    batch_rows: int
    seed: Seed
    epoch: int = 0

    mode = "even_sequences"

    def __len__(self) -> int:
        counts = np.unique(self.lengths, return_counts=True)[1]
        return int((-(-counts // self.batch_rows)).sum())

    @property
    def n_rows(self) -> int:
        """Sequences handed out in an epoch: all of them."""
        return self.lengths.size

    def __repr__(self) -> str:
        what = f"sequences of {len(self._groups):,} lengths"
        return told(self, self.mode, self.n_rows, self.batch_rows, what)

    def __iter__(self) -> Iterator[Request]:
        return deal_sequences(self._groups, self.batch_rows, KeyedStream(self.seed, self.epoch))

    def at_epoch(self, epoch: int) -> EvenSequences:
        return replace(self, epoch=whole("epoch", epoch))

    @cached_property
    def digest(self) -> str:
        numbers = (self.batch_rows, repr(self.seed))
        return f"{key_of('sequences', *numbers, token_of(self.lengths).hex()):032x}"

    @cached_property
    def _groups(self) -> list[IntArray]:
        return groups_of(self.lengths)


@check_arguments(LoaderError)
def even_sequences(
    lengths: npt.ArrayLike,
    batch_rows: int,
    *,
    seed: Seed | None = None,
    epoch: int = 0,
) -> EvenSequences:
    """Make a sampler whose batches hold sequences of one length each.

    Parameters
    ----------
    lengths : array of int, (n_rows,)
        The length of each sequence.
    batch_rows, seed, epoch
        As in :func:`batch_sampler`.

    Examples
    --------
    >>> batches = even_sequences([3, 5, 3, 3, 5], 2, seed=7)
    >>> len(batches), sorted(np.concatenate(list(batches)).tolist())
    (3, [0, 1, 2, 3, 4])
    """
    found = _lengths(lengths)
    rows = whole("batch_rows", batch_rows, least=1)
    drawn = seed_for("even_sequences", True, seed)
    assert drawn is not None
    return EvenSequences(found, rows, drawn, whole("epoch", epoch))


def _lengths(lengths: Any) -> IntArray:
    try:
        found = np.asarray(lengths)
    except ValueError:  # sequences of different lengths make no array
        found = np.empty(len(lengths), object)
    if found.size == 0 and found.ndim == 1:
        found = found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise LoaderError(
            f"lengths must be one whole number a sequence, (n_rows,); found {found.dtype} of "
            f"shape {found.shape}. Of sequences themselves, give [len(one) for one in sequences]"
        )
    if found.size and int(found.min()) < 0:
        raise LoaderError(f"lengths must be 0 or more, found {found.min()}")
    return found.astype(np.int64)


def groups_of(lengths: IntArray) -> list[IntArray]:
    """Return the rows of each length, shortest first.

    Examples
    --------
    >>> groups_of(np.array([5, 3, 5]))
    [array([1]), array([0, 2])]
    """
    order = np.argsort(lengths, kind="stable")
    borders = np.flatnonzero(np.diff(lengths[order])) + 1
    return [group for group in np.split(order, borders) if group.size]


def deal_sequences(groups: list[IntArray], batch_rows: int, stream: Stream) -> Iterator[Request]:
    """Yield batches of one group at a time, the groups taking turns in a random order."""
    turns = [groups[number] for number in stream.permutation(len(groups)).tolist()]
    left = [group[stream.permutation(group.size)] for group in turns]
    while left:
        for rows in left:
            yield rows[:batch_rows]
        left = [rows[batch_rows:] for rows in left if length_of(rows) > batch_rows]
