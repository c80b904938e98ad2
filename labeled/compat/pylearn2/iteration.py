"""The old iterators: over subsets of rows, and over the batches of a dataset.

Rows are drawn from the old `RandomState` streams. An iterator is used up by one epoch,
``num_batches`` may be a float, and numbers of examples may promise more than there are. Natively,
``batches(sampler=list(iterator))`` serves the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from labeled.compat.errors import (
    OldNotImplementedError,
    OldTypeError,
    OldValueError,
    require,
)
from labeled.compat.pylearn2.space import CompositeSpace
from labeled.compat.pylearn2.utils import is_flat_specs, make_np_rng, permutation

Convert = Callable[[Any], Any]


class SubsetIterator:
    """Subsets of the rows of a dataset, one a batch; the base of all others.

    Attributes
    ----------
    fancy : bool
        Whether batches are index arrays, not slices.
    stochastic : bool
        Whether a generator is drawn from.
    uniform_batch_size : bool
        Whether every batch has `batch_size` rows.
    """

    fancy = False
    stochastic = False
    uniform_batch_size = False
    _dataset_size: int
    _batch_size: int
    _num_batches: float

    def __init__(
        self,
        dataset_size: Any,
        batch_size: int | None = None,
        num_batches: int | None = None,
        rng: Any = None,
    ) -> None:
        self._begin(dataset_size, batch_size, num_batches, rng)

    def _begin(self, data: Any, size: int | None, count: int | None, rng: Any) -> None:
        raise OldNotImplementedError(f"{type(self).__name__} is made through its subclasses")

    def __iter__(self) -> SubsetIterator:
        return self

    def next(self) -> Any:
        """Return the next subset: a slice or an index array."""
        raise OldNotImplementedError(f"{type(self).__name__} has no next()")

    def __next__(self) -> Any:
        self.next()  # a subclass that has next() alone gets None, as it did

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return self._batch_size

    @property
    def num_batches(self) -> float:
        """Batches of the epoch."""
        return self._num_batches

    @property
    def num_examples(self) -> float:
        """Rows visited in an epoch."""
        return min(self.batch_size * self.num_batches, self._dataset_size)

    @property
    def uneven(self) -> bool:
        """Whether the batches of an epoch may differ in length."""
        return self.batch_size * self.num_batches > self._dataset_size


class _Iterator:
    """What is iterated by calling its ``next()``."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self) -> Any:
        raise NotImplementedError


class _OneEpoch(_Iterator, SubsetIterator):
    """A subset iterator that walks once through an epoch."""

    def _begin(self, data: int, size: int | None, count: int | None, rng: Any) -> None:
        if rng is not None and not self.stochastic:
            raise OldValueError(f"{type(self).__name__} draws nothing, but rng={rng!r}")
        self._dataset_size = data
        self._batch_size, self._num_batches = self._sizes(size, count)
        self._rng = make_np_rng(rng, which_method=["randint", "shuffle"])
        self._requests = self._subsets()

    def _sizes(self, batch_size: int | None, num_batches: int | None) -> tuple[int, float]:
        raise NotImplementedError

    def _subsets(self) -> Iterator[Any]:
        """Return the subsets of the epoch."""
        raise NotImplementedError

    def _slice(self, number: int) -> slice:
        """Return the rows of batch `number` in order."""
        start = number * self._batch_size
        return slice(start, min(start + self._batch_size, self._dataset_size))

    def next(self) -> Any:
        return next(self._requests)


# ---------------------------------------------------------------- each row once
class SequentialSubsetIterator(_OneEpoch):
    """Slices in order; the last may be shorter.

    Examples
    --------
    >>> list(SequentialSubsetIterator(10, 3, 2))
    [slice(0, 3, None), slice(3, 6, None)]
    """

    count_of = staticmethod(np.ceil)  # a float, as the old count was

    def _sizes(self, batch_size: int | None, num_batches: int | None) -> tuple[int, float]:
        n = self._dataset_size
        if batch_size is None:
            if num_batches is None:
                raise OldValueError(f"{type(self).__name__}: give batch_size or num_batches")
            return math.ceil(n / num_batches), num_batches
        most = float(self.count_of(n / batch_size))
        if num_batches is not None and num_batches > most:
            raise OldValueError(f"{n} rows make {most} batches of {batch_size}, not {num_batches}")
        return batch_size, most if num_batches is None else num_batches

    def _subsets(self) -> Iterator[Any]:
        return map(self._slice, self._numbers())

    def _numbers(self) -> range:
        """Return the batches that there are."""
        there_are = -(-self._dataset_size // max(self._batch_size, 1))
        return range(min(int(self._num_batches), there_are))


class ShuffledSequentialSubsetIterator(SequentialSubsetIterator):
    """Index arrays cut from one shuffle of all rows, made when the iterator is."""

    fancy = True
    stochastic = True

    def _subsets(self) -> Iterator[Any]:
        rows = permutation(self._rng, self._dataset_size)  # drawn now, not with the first batch
        return (rows[self._slice(number)] for number in self._numbers())


class BatchwiseShuffledSequentialIterator(SequentialSubsetIterator):
    """Slices in shuffled order; the short one may come anywhere.

    A number of batches that cannot be reached is kept: slices beyond the rows are empty.
    """

    stochastic = True

    def _subsets(self) -> Iterator[Any]:
        return map(self._slice, permutation(self._rng, int(self._num_batches)).tolist())

    @property
    def num_batches(self) -> int:
        return int(self._num_batches)


# ---------------------------------------------------------------- rows drawn with replacement
class RandomUniformSubsetIterator(_OneEpoch):
    """Index arrays of rows drawn with replacement."""

    fancy = True
    stochastic = True
    uniform_batch_size = True

    def _subsets(self) -> Iterator[Any]:
        for _ in range(int(self._num_batches)):
            rows = self._rng.randint(0, self._dataset_size, size=self._batch_size)
            yield np.asarray(rows, np.int64)

    def _sizes(self, batch_size: int | None, num_batches: int | None) -> tuple[int, float]:
        if batch_size is None or num_batches is None:
            raise OldValueError(f"{type(self).__name__}: give batch_size and num_batches")
        return batch_size, num_batches

    @property
    def num_examples(self) -> float:
        return self.batch_size * self.num_batches

    @property
    def uneven(self) -> bool:
        raise OldNotImplementedError(f"{type(self).__name__} does not say whether it is uneven")


class RandomSliceSubsetIterator(RandomUniformSubsetIterator):
    """Slices that start anywhere, drawn with replacement."""

    fancy = False

    def _subsets(self) -> Iterator[Any]:
        for _ in range(int(self._num_batches)):
            start = int(self._rng.randint(0, self._dataset_size - self._batch_size + 1, size=1)[0])
            yield slice(start, start + self._batch_size)

    def _sizes(self, batch_size: int | None, num_batches: int | None) -> tuple[int, float]:
        size, count = super()._sizes(batch_size, num_batches)
        if size > self._dataset_size:
            raise OldValueError(f"slices of {size} rows are not cut from {self._dataset_size}")
        return size, count


# ---------------------------------------------------------------- batches of one length
class ForcedEvenIterator(_Iterator, SubsetIterator):
    """A subset iterator without the batches that are not full. Made by :func:`as_even`."""

    uniform_batch_size = True
    _base: type[SubsetIterator]

    def _begin(self, data: int, size: int | None, count: int | None, rng: Any) -> None:
        if size is None:
            if count is None:
                raise OldValueError(f"{type(self).__name__}: give batch_size or num_batches")
            size = data // count
        most = data // size if size else 0
        if count is not None and count > most:
            raise OldValueError(f"{data} rows make {most} full batches of {size}, not {count}")
        self._dataset_size, self._batch_size = data, size
        self._num_batches = most if count is None else count
        self._base_iterator = self._base(data, size, self._num_batches or None, rng)

    def next(self) -> Any:
        if not self._num_batches:
            raise StopIteration
        while True:
            subset = next(self._base_iterator)
            n = subset.stop - subset.start if isinstance(subset, slice) else len(subset)
            if n == self._batch_size:
                return subset

    @property
    def num_examples(self) -> float:
        return self._batch_size * self._num_batches

    @property
    def uneven(self) -> bool:
        return False


def as_even(subset_iterator_cls: type[SubsetIterator]) -> type[ForcedEvenIterator]:
    """Return the class of iterators that leaves out batches that are not full.

    Examples
    --------
    >>> Even = as_even(SequentialSubsetIterator)
    >>> Even.__name__, list(Even(10, 4))
    ('ForcedEvenSequentialSubsetIterator', [slice(0, 4, None), slice(4, 8, None)])
    """
    members = {
        "__doc__": f"{subset_iterator_cls.__name__} without the batches that are not full.",
        "_base": subset_iterator_cls,
        "fancy": subset_iterator_cls.fancy,
        "stochastic": subset_iterator_cls.stochastic,
    }
    return type(f"ForcedEven{subset_iterator_cls.__name__}", (ForcedEvenIterator,), members)


class EvenSequencesSubsetIterator(_Iterator, SubsetIterator):
    """Index arrays of sequences of one length, the lengths taking turns.

    Parameters
    ----------
    sequence_data : list or ndarray of sequences
        The data itself, not its size.
    batch_size : int
    num_batches : None
    rng : seed or RandomState, optional
    """

    fancy = True
    stochastic = True

    def _begin(self, data: Any, size: int | None, count: int | None, rng: Any) -> None:
        if not isinstance(data, list | np.ndarray):
            raise OldValueError("even_sequences iterates a list or ndarray of sequences")
        if size is None or count is not None:
            raise OldValueError("even_sequences needs batch_size, and takes no num_batches")
        lengths = np.array([len(sequence) for sequence in data], np.int64)
        self._groups = [np.flatnonzero(lengths == length) for length in np.unique(lengths)]
        self._dataset_size, self._batch_size = lengths.size, size
        self._num_batches = sum(-(-group.size // size) for group in self._groups)
        self._rng = make_np_rng(rng, which_method=["permutation"])
        self.reset()

    def reset(self) -> None:
        """Shuffle anew, and begin at the beginning."""
        groups = [self._groups[turn] for turn in permutation(self._rng, len(self._groups))]
        left = [group[permutation(self._rng, group.size)] for group in groups]
        self._requests = self._in_turn(left)

    def _in_turn(self, left: list[Any]) -> Iterator[Any]:
        """Yield batches of one length at a time, the lengths taking turns."""
        while left:
            for rows in left:
                yield rows[: self._batch_size]
            left = [rows[self._batch_size :] for rows in left if rows.size > self._batch_size]

    def next(self) -> Any:
        subset = next(self._requests, None)
        if subset is None:
            self.reset()
            raise StopIteration
        return subset

    @property
    def num_examples(self) -> float:
        return self._dataset_size

    @property
    def uneven(self) -> bool:
        raise OldNotImplementedError("even_sequences does not say whether it is uneven")


# ---------------------------------------------------------------- by name
_SCHEMES: dict[str, type[SubsetIterator]] = {
    "sequential": SequentialSubsetIterator,
    "shuffled_sequential": ShuffledSequentialSubsetIterator,
    "random_slice": RandomSliceSubsetIterator,
    "random_uniform": RandomUniformSubsetIterator,
    "batchwise_shuffled_sequential": BatchwiseShuffledSequentialIterator,
    "even_sequential": as_even(SequentialSubsetIterator),
    "even_shuffled_sequential": as_even(ShuffledSequentialSubsetIterator),
    "even_batchwise_shuffled_sequential": as_even(BatchwiseShuffledSequentialIterator),
    "even_sequences": EvenSequencesSubsetIterator,
}


def resolve_iterator_class(mode: Any) -> type[SubsetIterator]:
    """Return the class of a mode; a class stays as it is.

    Raises
    ------
    OldValueError
        If there is no such mode.
    """
    if not isinstance(mode, str):
        found: type[SubsetIterator] = mode
        return found
    if mode not in _SCHEMES:
        raise OldValueError(f"unknown iteration mode {mode!r}; there are {sorted(_SCHEMES)}")
    return _SCHEMES[mode]


def has_uniform_batch_size(mode: Any) -> bool:
    """Whether every batch of a mode has the same length."""
    return resolve_iterator_class(mode).uniform_batch_size


def is_stochastic(mode: Any) -> bool:
    """Whether a mode draws from a random number generator."""
    return resolve_iterator_class(mode).stochastic


# ---------------------------------------------------------------- batches of a dataset
def _of_subsets(name: str) -> Any:
    return property(lambda batches: getattr(batches._subset_iterator, name))


class FiniteDatasetIterator(_Iterator):
    """Batches of a dataset, laid out for the spaces asked for.

    Parameters
    ----------
    dataset : object
        With ``get_data_specs()``, and ``get(sources, rows)`` or ``get_data()``.
    subset_iterator : SubsetIterator
    data_specs : (Space, source)
        Flat; `source` a str or a tuple.
    return_tuple : bool
        Return a tuple also where there is one source.
    convert : list of functions or None, optional
        One a source; a function alone is answerable for what the batch looks like.
    """

    def __init__(
        self,
        dataset: Any,
        subset_iterator: SubsetIterator,
        data_specs: Any = None,
        return_tuple: bool = False,
        convert: Sequence[Convert | None] | None = None,
    ) -> None:
        if data_specs is None:
            raise OldTypeError("FiniteDatasetIterator needs data_specs")
        self._dataset = dataset
        self._subset_iterator = subset_iterator
        self._return_tuple = return_tuple
        _, spaces = _flat(data_specs)
        composite, given = isinstance(data_specs[0], CompositeSpace), data_specs[1]
        if composite and isinstance(given, str):
            raise OldValueError(
                f"{data_specs[0]} takes a tuple of {len(spaces)} sources, found the name {given!r}"
                f"; write {(given,) * len(spaces)}"
            )
        self._source = (
            given if isinstance(given, tuple) else (given,)
        )  # a list counts as one source
        require(len(self._source) == len(spaces), f"{len(spaces)} spaces for the sources {given!r}")
        functions = [None] * len(spaces) if convert is None else list(convert)
        require(len(functions) == len(spaces), f"{len(functions)} functions for {len(spaces)}")
        names, own_spaces = _flat(dataset.get_data_specs())
        self._positions: list[int] = []
        self._convert: list[Convert] = []
        for name, space, function in zip(self._source, spaces, functions, strict=True):
            if name not in names:
                raise OldValueError(f"the dataset has no source {name!r}; it has {list(names)}")
            at = names.index(name)
            self._positions.append(at)
            self._convert.append(function or partial(own_spaces[at].np_format_as, space=space))

    def next(self) -> Any:
        """Return the next batch: a tuple, or the bare batch of a single source."""
        rows = next(self._subset_iterator)
        found = tuple(
            function(batch) for function, batch in zip(self._convert, self._read(rows), strict=True)
        )
        return found if self._return_tuple or len(found) > 1 else found[0]

    def _read(self, rows: Any) -> Sequence[Any]:
        """Return the rows of each source asked for."""
        for name in ("_get_rows", "get"):
            if hasattr(self._dataset, name):
                found: Sequence[Any] = getattr(self._dataset, name)(self._source, rows)
                return found
        data = self._dataset.get_data()
        arrays = data if isinstance(data, tuple) else (data,)
        return [arrays[position][rows] for position in self._positions]

    batch_size, num_batches = _of_subsets("batch_size"), _of_subsets("num_batches")
    num_examples, uneven = _of_subsets("num_examples"), _of_subsets("uneven")
    stochastic = _of_subsets("stochastic")


def _flat(specs: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Return the names and the spaces of specs that must be flat."""
    require(is_flat_specs(specs), f"data_specs must be flat, found {specs}")
    space, source = specs
    spaces = space.components if isinstance(space, CompositeSpace) else [space]
    return tuple(source) if isinstance(source, tuple | list) else (source,), spaces
