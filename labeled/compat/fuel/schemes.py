"""Iteration schemes: what is asked of a dataset, batch by batch or example by example.

Requests are lists of row numbers (or single ones, or sizes), as Fuel made them. Shuffled ones
come from NumPy's `RandomState`: one stream that goes on from epoch to epoch. Iterators of
requests can be pickled halfway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from labeled.compat.errors import check
from labeled.compat.fuel.config_parser import config

Examples = int | Iterable[int]  # how many rows there are, or which


class IterationScheme(ABC):
    """What makes requests; `requests_examples` tells single examples from batches."""

    requests_examples: bool

    @abstractmethod
    def get_request_iterator(self) -> Iterator[Any]:
        """Return the requests of an epoch."""


class BatchSizeScheme(IterationScheme):
    """Requests are how many examples a batch is to have."""

    requests_examples = False


class IndexScheme(IterationScheme):
    """Requests are one row number each.

    Parameters
    ----------
    examples : int, or iterable of int
        How many rows there are, or which. A generator lasts for one epoch.
    """

    requests_examples = True

    def __init__(self, examples: Examples) -> None:
        self.indices = _rows_of(examples)


class BatchScheme(IterationScheme):
    """Requests are lists of row numbers.

    Parameters
    ----------
    examples : int, or iterable of int
    batch_size : int
        Rows of a batch; the last one may be shorter.
    """

    requests_examples = False

    def __init__(self, examples: Examples, batch_size: int) -> None:
        self.indices = _rows_of(examples)
        self.batch_size = batch_size

    def _batches(self, rows: Iterable[int], sort: bool = False) -> Iterator[list[int]]:
        """Cut rows into lists; what comes back can be pickled halfway where `rows` can."""
        return iter(partial(_next_batch, iter(rows), self.batch_size, sort), [])


def _next_batch(rows: Iterator[int], size: int, sort: bool) -> list[int]:
    batch = list(islice(rows, size))
    return sorted(batch) if sort else batch


class ChainedRequests(Iterator[Any]):
    """Iterators of requests one after another.

    All are made at once: what they draw does not depend on whether the epoch is finished.
    """

    def __init__(self, schemes: Iterable[IterationScheme]) -> None:
        self.iterators = [scheme.get_request_iterator() for scheme in schemes]

    def __next__(self) -> Any:
        while self.iterators:
            for request in self.iterators[0]:
                return request
            del self.iterators[0]
        raise StopIteration


class ConstantScheme(BatchSizeScheme):
    """Sizes that are all equal; without end, `times` of them, or for so many examples.

    Parameters
    ----------
    batch_size : int
    num_examples : int, optional
        The last size is what remains. 0 counts as not given.
    times : int, optional
        How many sizes. 0 counts as not given.

    Raises
    ------
    ValueError
        If both are given.
    """

    def __init__(
        self, batch_size: int, num_examples: int | None = None, times: int | None = None
    ) -> None:
        check(not (num_examples and times), "give num_examples or times, not both")
        self.batch_size, self.num_examples, self.times = batch_size, num_examples, times

    def get_request_iterator(self) -> Iterator[int]:
        size, n = self.batch_size, self.num_examples
        if n:
            return iter([min(size, n - start) for start in range(0, n, size)])
        return iter([size] * self.times) if self.times else iter(partial(int, size), None)


class SequentialScheme(BatchScheme):
    """Lists of rows in order.

    Examples
    --------
    >>> list(SequentialScheme([4, 8, 6], 2).get_request_iterator())
    [[4, 8], [6]]
    """

    def get_request_iterator(self) -> Iterator[list[int]]:
        return self._batches(self.indices)


class ShuffledScheme(BatchScheme):
    """Lists of rows in a random order.

    Parameters
    ----------
    examples, batch_size
        As of :class:`BatchScheme`.
    rng : numpy.random.RandomState, optional
        Goes on from epoch to epoch; one of seed ``config.default_seed`` if not given.
    sorted_indices : bool
        Sort the rows within each batch.
    """

    def __init__(
        self, examples: Examples, batch_size: int, rng: Any = None, sorted_indices: bool = False
    ) -> None:
        super().__init__(examples, batch_size)
        self.rng, self.sorted_indices = random_state(rng), sorted_indices

    def get_request_iterator(self) -> Iterator[list[int]]:
        return self._batches(_shuffled(self.indices, self.rng), self.sorted_indices)


class SequentialExampleScheme(IndexScheme):
    """Single rows in order."""

    def get_request_iterator(self) -> Iterator[int]:
        return iter(self.indices)


class ShuffledExampleScheme(IndexScheme):
    """Single rows in a random order; `rng` as of :class:`ShuffledScheme`."""

    def __init__(self, examples: Examples, rng: Any = None) -> None:
        super().__init__(examples)
        self.rng = random_state(rng)

    def get_request_iterator(self) -> Iterator[int]:
        return iter(_shuffled(self.indices, self.rng))


class ConcatenatedScheme(IterationScheme):
    """Schemes one after another.

    Raises
    ------
    ValueError
        If some ask for examples and some for batches.
    """

    def __init__(self, schemes: Iterable[IterationScheme]) -> None:
        self.schemes = list(schemes)
        kinds = {scheme.requests_examples for scheme in self.schemes}
        check(len(kinds) == 1, "schemes must all ask for examples, or all for batches")
        self.requests_examples = kinds.pop()

    def get_request_iterator(self) -> Iterator[Any]:
        return ChainedRequests(self.schemes)


def cross_validation(
    scheme_class: type[Any], num_examples: int, num_folds: int, strict: bool = True, **kwargs: Any
) -> Iterator[tuple[Any, ...]]:
    """Yield a pair of schemes a fold: of the rows to train on, and of those left out.

    Parameters
    ----------
    scheme_class : callable (examples, **kwargs) -> scheme
    num_examples, num_folds : int
        Fold i leaves out ``[n * i // folds, n * (i + 1) // folds)``.
    strict : bool
        Refuse folds of unequal size; otherwise each pair is followed by its fold's size.

    Raises
    ------
    ValueError
        When the first pair is asked for: if the folds are not equal, and strict.

    Examples
    --------
    >>> train, valid = next(cross_validation(SequentialScheme, 4, 2, batch_size=2))
    >>> list(train.get_request_iterator()), list(valid.get_request_iterator())
    ([[2, 3]], [[0, 1]])
    """
    equal = not strict or num_examples % num_folds == 0
    check(equal, f"{num_examples} examples do not make {num_folds} equal folds")
    for fold in range(num_folds):
        start = num_examples * fold // num_folds
        stop = num_examples * (fold + 1) // num_folds
        rest = [*range(start), *range(stop, num_examples)]
        pair = scheme_class(rest, **kwargs), scheme_class(range(start, stop), **kwargs)
        yield pair if strict else (*pair, stop - start)


def _rows_of(examples: Examples) -> Iterable[int]:
    return examples if isinstance(examples, Iterable) else range(examples)


def _shuffled(indices: Iterable[int], rng: np.random.RandomState) -> list[int]:
    rows = list(indices)
    rng.shuffle(rows)
    return rows


def random_state(rng_or_seed: Any = None) -> Any:
    """Return a generator as it is given, or one made of a seed: of ``config.default_seed``."""
    if rng_or_seed is None or isinstance(rng_or_seed, int):
        return np.random.RandomState(config.default_seed if rng_or_seed is None else rng_or_seed)
    return rng_or_seed
