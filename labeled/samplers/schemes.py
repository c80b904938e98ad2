"""Ways to walk through examples, as functions: sequential, shuffled, folds, and joined.

The same samplers as in :mod:`labeled.samplers.modes`, by the names that older loaders
used for them, and what those had besides: several samplers one after another, and the
folds of a cross-validation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from labeled._validation import check_arguments
from labeled.errors import LoaderError
from labeled.samplers.cuts import whole
from labeled.samplers.modes import BatchSampler, batch_sampler
from labeled.samplers.requests import Request, Sampler
from labeled.samplers.streams import Seed

T = TypeVar("T")
Rows = int | Iterable[int]


@check_arguments(LoaderError)
def sequential(rows: Rows, batch_rows: int) -> BatchSampler:
    """Make batches of rows in order, the last one shorter.

    Parameters
    ----------
    rows : int, or sequence of int
        How many rows there are, or which.

    Examples
    --------
    >>> list(sequential(5, 3)), list(sequential([4, 8, 6], 2))
    ([slice(0, 3, None), slice(3, 5, None)], [array([4, 8]), array([6])])
    """
    return batch_sampler("sequential", rows, batch_rows)


@check_arguments(LoaderError)
def shuffled(
    rows: Rows,
    batch_rows: int,
    *,
    seed: Seed | None = None,
    epoch: int = 0,
    sorted_within: bool = False,
) -> BatchSampler:
    """Make batches of shuffled rows, the last one shorter.

    Parameters
    ----------
    seed : int or tuple of int
        The order is a function of it and the epoch.
    sorted_within : bool
        Sort the rows of each batch: they are read faster, and batches mix as well.

    Examples
    --------
    >>> sorted(np.concatenate(list(shuffled(5, 3, seed=7))).tolist())
    [0, 1, 2, 3, 4]
    """
    mode = "shuffled_sequential"
    return batch_sampler(
        mode, rows, batch_rows, seed=seed, epoch=epoch, sorted_within=sorted_within
    )


@dataclass(frozen=True, eq=False, repr=False)
class Concatenated:
    """Samplers one after another. Made by :func:`concatenated`."""

    samplers: tuple[Sampler, ...]
    epoch: int = 0

    def __repr__(self) -> str:
        return f"<{len(self):,} batches: {', then '.join(map(repr, self.samplers))}>"

    def __len__(self) -> int:
        return sum(map(len, self.samplers))

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self.samplers)

    @property
    def batch_rows(self) -> int:
        return max((sampler.batch_rows for sampler in self.samplers), default=0)

    @property
    def digest(self) -> str:
        words = " ".join(sampler.digest for sampler in self.samplers)
        return hashlib.blake2b(words.encode(), digest_size=16).hexdigest()

    def at_epoch(self, epoch: int) -> Concatenated:
        return Concatenated(tuple(s.at_epoch(epoch) for s in self.samplers), epoch)


def concatenated(samplers: Iterable[Sampler]) -> Concatenated:
    """Join samplers: an epoch is an epoch of the first, then of the second, and so on.

    Examples
    --------
    >>> list(concatenated([sequential(2, 2), sequential([7, 9], 1)]))
    [slice(0, 2, None), array([7]), array([9])]
    """
    joined = tuple(samplers)
    for number, sampler in enumerate(joined):
        if not (hasattr(sampler, "at_epoch") and hasattr(sampler, "__len__")):
            raise LoaderError(f"item {number} to concatenate is no sampler but {sampler!r}")
    epochs = {sampler.epoch for sampler in joined}
    if len(epochs) > 1:
        raise LoaderError(f"the samplers stand at different epochs {sorted(epochs)}")
    return Concatenated(joined, next(iter(epochs), 0))


@dataclass(frozen=True)
class Fold(Generic[T]):
    """One fold of a cross-validation.

    Attributes
    ----------
    train, valid
        What the scheme makes of the other rows, and of this fold's rows.
    n_valid : int
        Rows of this fold.
    """

    train: T
    valid: T
    n_valid: int


def cross_validation(
    scheme: Callable[..., T], n_rows: int, n_folds: int, *, strict: bool = True, **options: Any
) -> list[Fold[T]]:
    """Cut rows into folds; each is left out of training once and validated on.

    Parameters
    ----------
    scheme : function of (rows, options) that returns a sampler
        Such as :func:`shuffled`.
    n_rows, n_folds : int
        Fold i holds the rows ``[n_rows * i // n_folds, n_rows * (i + 1) // n_folds)``.
    strict : bool
        Refuse folds of unequal size.
    **options
        For `scheme`, such as ``batch_rows``.

    Raises
    ------
    LoaderError
        If there are more folds than rows, or, when strict, folds of unequal size.

    Examples
    --------
    >>> first, second = cross_validation(sequential, 4, 2, batch_rows=2)
    >>> list(first.train), list(first.valid)
    ([slice(2, 4, None)], [slice(0, 2, None)])
    """
    if not callable(scheme):
        raise LoaderError(f"a scheme is a function, such as shuffled; found {scheme!r}")
    n, folds = whole("n_rows", n_rows), whole("n_folds", n_folds, least=1)
    if folds > n:
        raise LoaderError(f"{n} rows cannot be cut into {folds} folds")
    if strict and n % folds:
        raise LoaderError(
            f"{n} rows are not cut into {folds} equal folds; give another number of folds, or "
            "strict=False for folds that differ by one row"
        )
    edges = [n * number // folds for number in range(folds + 1)]
    made: list[Fold[T]] = []
    for start, stop in pairwise(edges):
        valid = scheme(range(start, stop), **options)
        made.append(Fold(scheme(_without(n, start, stop), **options), valid, stop - start))
    return made


def _without(n: int, start: int, stop: int) -> range | np.ndarray[Any, np.dtype[np.int64]]:
    """Return the rows of ``range(n)`` outside ``[start, stop)``."""
    if start == 0 or stop == n:
        return range(stop, n) if start == 0 else range(start)
    return np.concatenate([np.arange(start), np.arange(stop, n)]).astype(np.int64)
