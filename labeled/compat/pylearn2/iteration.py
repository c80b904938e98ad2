"""The old iterators, over subsets of rows and over the batches of a dataset, and what they serve.

Rows are drawn from the old `RandomState` streams. An iterator is used up by one epoch,
``num_batches`` may be a float, and numbers of examples may promise more than there are. Natively,
``batches(sampler=list(iterator))`` serves the same rows.

`DataSpecsMapping` is the old one, oddities included: a str source is a sequence of characters;
`flatten` of anything but tuples, lists and spaces gives None; `nest` gives None at null
positions, and cannot do so for spaces. The native mapping is
:class:`labeled.spaces.DataSpecsMapping`.

It is a module of its own because it was one: old code imports it as ``pylearn2.utils.iteration``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from labeled.compat.errors import check, old, require
from labeled.compat.pylearn2.base import Space
from labeled.compat.pylearn2.space import CompositeSpace, NullSpace
from labeled.compat.pylearn2.utils import make_np_rng, permutation

Convert = Callable[[Any], Any]


class SubsetIterator(Iterator[Any]):
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

    def __init__(self, *sizes: Any, **options: Any) -> None:
        raise old(NotImplementedError, f"{type(self).__name__} is made through its subclasses")

    def next(self) -> Any:
        raise old(NotImplementedError, f"{type(self).__name__} has no next()")

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


class _OneEpoch(SubsetIterator):
    """A subset iterator that walks once through an epoch."""

    # returns the subsets of the epoch; draws at once what does not depend on the batch
    _subsets: Callable[..., Iterator[Any]]

    def __init__(
        self, dataset_size: Any, batch_size: Any = None, num_batches: Any = None, rng: Any = None
    ) -> None:
        check(rng is None or self.stochastic, f"{type(self).__name__} takes no rng, found {rng!r}")
        self._dataset_size = dataset_size
        self._batch_size, self._num_batches = self._sizes(batch_size, num_batches)
        self._rng = make_np_rng(rng, which_method=["shuffle"])
        self._requests = self._subsets()

    def _sizes(self, batch_size: Any, num_batches: Any) -> tuple[int, float]:
        """Return the rows of a batch and the number of batches; one of the two may be None."""
        n, one = self._dataset_size, batch_size is not None or num_batches is not None
        check(one, f"{type(self).__name__}: give batch_size or num_batches")
        if self.uniform_batch_size:
            size = n // num_batches if batch_size is None else batch_size
            most = n // size if size else 0
        elif batch_size is None:
            return math.ceil(n / num_batches), num_batches
        else:
            size, most = batch_size, float(math.ceil(n / batch_size))  # a float, as it was
        chosen = most if num_batches is None else num_batches
        check(chosen <= most, f"{n} rows make {most:.0f} batches of {size}, not {chosen}")
        return size, chosen

    def next(self) -> Any:
        return next(self._requests)

    __next__ = next


def _not_said(iterator: SubsetIterator) -> bool:
    raise old(NotImplementedError, f"{type(iterator).__name__} does not say whether it is uneven")


# ---------------------------------------------------------------- each row once
class SequentialSubsetIterator(_OneEpoch):
    """Slices in order; the last may be shorter.

    Examples
    --------
    >>> list(SequentialSubsetIterator(10, 3, 2))
    [slice(0, 3, None), slice(3, 6, None)]
    """

    def _subsets(self) -> Iterator[Any]:
        starts = range(0, self._dataset_size, max(self._batch_size, 1))
        return map(self._slice, starts[: int(self._num_batches)])

    def _slice(self, start: int) -> slice:
        return slice(start, min(start + self._batch_size, self._dataset_size))


class ShuffledSequentialSubsetIterator(SequentialSubsetIterator):
    """Index arrays cut from one shuffle of all rows, made when the iterator is."""

    fancy = True
    stochastic = True

    def _subsets(self) -> Iterator[Any]:
        rows = permutation(self._rng, self._dataset_size)
        return map(rows.__getitem__, super()._subsets())


class BatchwiseShuffledSequentialIterator(SequentialSubsetIterator):
    """Slices in shuffled order; the short one may come anywhere.

    A number of batches that cannot be reached is kept: slices beyond the rows are empty.
    """

    stochastic = True

    def _subsets(self) -> Iterator[Any]:
        starts = permutation(self._rng, int(self._num_batches)) * self._batch_size
        return map(self._slice, starts.tolist())

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
            yield self._rng.randint(0, self._dataset_size, size=self._batch_size)

    def _sizes(self, batch_size: Any, num_batches: Any) -> tuple[int, float]:
        check(None not in (batch_size, num_batches), "give batch_size and num_batches")
        return batch_size, num_batches

    @property
    def num_examples(self) -> float:
        return self.batch_size * self.num_batches

    uneven = property(_not_said)


class RandomSliceSubsetIterator(RandomUniformSubsetIterator):
    """Slices that start anywhere, drawn with replacement."""

    fancy = False

    def _subsets(self) -> Iterator[Any]:
        n, size = self._dataset_size, self._batch_size
        check(size <= n, f"slices of {size} rows are not cut from {n}")
        drawn = partial(self._rng.randint, 0, n - size + 1)
        starts = (int(drawn()) for _ in range(int(self._num_batches)))
        return (slice(start, start + size) for start in starts)


# ---------------------------------------------------------------- batches of one length
class ForcedEvenIterator(_OneEpoch):
    """A subset iterator without the batches that are not full. Made by :func:`as_even`."""

    uniform_batch_size = True
    _base: type[SubsetIterator]

    def _subsets(self) -> Iterator[Any]:
        size, everything = self._batch_size, np.arange(self._dataset_size)
        if not self._num_batches:
            return iter(())
        rng = self._rng if self.stochastic else None
        subsets = self._base(everything.size, size, int(self._num_batches), rng)
        return (rows for rows in subsets if everything[rows].size == size)


def as_even(subset_iterator_cls: type[SubsetIterator]) -> type[ForcedEvenIterator]:
    """Return the class of iterators that leaves out batches that are not full.

    Examples
    --------
    >>> Even = as_even(SequentialSubsetIterator)
    >>> Even.__name__, list(Even(10, 4))
    ('ForcedEvenSequentialSubsetIterator', [slice(0, 4, None), slice(4, 8, None)])
    """
    base = subset_iterator_cls
    members = {"_base": base, "fancy": base.fancy, "stochastic": base.stochastic}
    return type(f"ForcedEven{base.__name__}", (ForcedEvenIterator,), members)


class EvenSequencesSubsetIterator(_OneEpoch):
    """Index arrays of sequences of one length, the lengths taking turns.

    Takes the sequences themselves, a list or ndarray, in the place of their number, and no
    `num_batches`. Shuffles anew at the end of an epoch, and begins again.
    """

    fancy = True
    stochastic = True

    def _sizes(self, batch_size: Any, num_batches: Any) -> tuple[int, float]:
        data: Any = self._dataset_size
        check(isinstance(data, list | np.ndarray), "even_sequences iterates a list or ndarray")
        check(batch_size is not None and num_batches is None, "give batch_size, not num_batches")
        lengths = np.array([len(sequence) for sequence in data], np.int64)
        self._groups = [np.flatnonzero(lengths == length) for length in np.unique(lengths)]
        self._dataset_size = lengths.size
        return batch_size, sum(-(-group.size // batch_size) for group in self._groups)

    def _subsets(self) -> Iterator[Any]:
        groups = [self._groups[turn] for turn in permutation(self._rng, len(self._groups))]
        left = [group[permutation(self._rng, group.size)] for group in groups]
        starts = range(0, max((rows.size for rows in left), default=0), self._batch_size)
        turns = ((rows, start) for start in starts for rows in left if start < rows.size)
        return (rows[start : start + self._batch_size] for rows, start in turns)

    def next(self) -> Any:
        for subset in self._requests:
            return subset
        self._requests = self._subsets()
        raise StopIteration

    __next__ = next

    uneven = property(_not_said)


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


def resolve_iterator_class(mode: str | type[SubsetIterator]) -> type[SubsetIterator]:
    """Return the class of a mode; a class stays as it is.

    Raises
    ------
    ValueError
        If there is no such mode.
    """
    if not isinstance(mode, str):
        return mode
    check(mode in _SCHEMES, f"unknown iteration mode {mode!r}; there are {sorted(_SCHEMES)}")
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


class FiniteDatasetIterator(Iterator[Any]):
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
        check(data_specs is not None, "FiniteDatasetIterator needs data_specs", TypeError)
        self._dataset, self._subset_iterator = dataset, subset_iterator
        self._return_tuple = return_tuple
        wanted, (space, source) = flat_pairs(data_specs), data_specs
        swapped = isinstance(space, CompositeSpace) and isinstance(source, str)
        check(not swapped, f"{space} takes a tuple of sources, found {source!r}")
        self._source = source if isinstance(source, tuple) else (source,)  # a list counts as one
        n = len(getattr(space, "components", [space]))
        functions = [None] * n if convert is None else list(convert)
        alike = len(self._source) == len(functions) == n
        require(alike, f"{n} spaces, the sources {source!r}, and {len(functions)} functions")
        own = flat_pairs(dataset.get_data_specs())
        names = [name for _, name in own]
        self._positions, self._convert = list[int](), list[Convert]()
        for (to, name), function in zip(wanted, functions, strict=True):
            check(name in names, f"the dataset has no source {name!r}; it has {names}")
            at = names.index(name)
            self._positions.append(at)
            self._convert.append(function or partial(own[at][0].np_format_as, space=to))

    def next(self) -> Any:
        """Return the next batch: a tuple, or the bare batch of a single source."""
        pairs = zip(self._convert, self._read(next(self._subset_iterator)), strict=True)
        found = tuple(function(batch) for function, batch in pairs)
        return found if self._return_tuple or len(found) > 1 else found[0]

    __next__ = next

    def _read(self, rows: Any) -> Any:
        """Return the rows of each source asked for."""
        if hasattr(self._dataset, "get"):
            return self._dataset.get(self._source, rows)
        data = self._dataset.get_data()
        arrays = data if isinstance(data, tuple) else (data,)
        return [arrays[position][rows] for position in self._positions]

    batch_size, num_batches = _of_subsets("batch_size"), _of_subsets("num_batches")
    num_examples, uneven = _of_subsets("num_examples"), _of_subsets("uneven")
    stochastic = _of_subsets("stochastic")


def flat_pairs(data_specs: Any) -> list[tuple[Any, str]]:
    """Return the ``(space, source)`` pairs of specs, which must be flat."""
    require(is_flat_specs(data_specs), f"data_specs must be flat, found {data_specs}")
    space, source = data_specs
    names = source if isinstance(source, tuple | list) else (source,)
    return list(zip(getattr(space, "components", [space]), names, strict=False))


# ---------------------------------------------------------------- specs
Tree = Any  # an index, None for a null position, or a tuple of trees


class DataSpecsMapping:
    """The way between specs of any nesting and their distinct pairs.

    Parameters
    ----------
    data_specs : (Space, source)

    Attributes
    ----------
    specs_to_index : dict
        Each distinct ``(space, source)`` and its number.
    n_unique_specs : int
    spec_mapping : nested tuple, int or None

    Examples
    --------
    >>> from labeled.compat.pylearn2.space import VectorSpace
    >>> x = VectorSpace(3)
    >>> mapping = DataSpecsMapping((CompositeSpace((x, x)), ("features", "features")))
    >>> mapping.flatten(("features", "features")), mapping.nest(5)
    ('features', (5, 5))
    """

    def __init__(self, data_specs: tuple[Space, Any]) -> None:
        self.specs_to_index: dict[tuple[Space, Any], int] = {}
        space, source = data_specs
        require(isinstance(space, Space), f"specs are (space, source), found {space!r} for a space")
        self.spec_mapping = self._numbered(space, source)
        self.n_unique_specs = len(self.specs_to_index)

    def _numbered(self, space: Space, source: Any) -> Tree:
        if isinstance(space, NullSpace):
            require(source == "", f"the source of a NullSpace is '', found {source!r}")
            return None
        if isinstance(space, CompositeSpace):
            check(len(source) == len(space.components), f"{source!r} does not fit {space}")
            return tuple(map(self._numbered, space.components, source))
        return self.specs_to_index.setdefault((space, _unwrapped(source)), len(self.specs_to_index))

    def flatten(self, nested: Any, return_tuple: bool = False) -> Any:
        """Return what `nested` holds for each distinct pair.

        Returns
        -------
        tuple, CompositeSpace, bare element or None
            A tuple where `return_tuple`; the bare element where there is one pair; else
            of the kind of `nested`, which is None for kinds that are neither tuple,
            list nor space.
        """
        found: list[Any] = [None] * self.n_unique_specs
        self._gather(nested, self.spec_mapping, found)
        require(not any(one is None for one in found), f"None among what is flattened: {nested!r}")
        if not return_tuple and len(found) == 1:
            return found[0]
        if return_tuple or isinstance(nested, tuple | list):
            return tuple(found)
        return CompositeSpace(found) if isinstance(nested, Space) else None

    def _gather(self, nested: Any, tree: Tree, found: list[Any]) -> None:
        if isinstance(tree, tuple):
            parts = nested.components if isinstance(nested, CompositeSpace) else nested
            check(len(parts) == len(tree), f"expected {len(tree)} parts, found {len(parts)}")
            for part, branch in zip(parts, tree, strict=True):
                self._gather(part, branch, found)
        elif tree is None:
            require(isinstance(nested, NullSpace) or not nested, f"{nested!r} at a null position")
        else:
            item, before = _unwrapped(nested), found[tree]
            same = before is None or bool(before == item)  # fails for arrays, as it did
            require(same, f"one pair holds two things: {before!r} and {item!r}")
            found[tree] = item if before is None else before

    def nest(self, flat: Any) -> Any:
        """Return `flat`, one element a distinct pair, nested as the specs are.

        Parameters
        ----------
        flat : Space, tuple, list, or a bare element
            A bare element only where there is one pair.
        """
        parts = flat.components if isinstance(flat, CompositeSpace) else flat
        parts = list(parts) if isinstance(parts, tuple | list) else [parts]
        require(len(parts) == self.n_unique_specs, f"{len(parts)} elements are not one a pair")
        return self._nested(parts, self.spec_mapping, isinstance(flat, Space))

    def _nested(self, parts: list[Any], tree: Tree, of_spaces: bool) -> Any:
        if isinstance(tree, tuple):
            branches = [self._nested(parts, branch, of_spaces) for branch in tree]
            return CompositeSpace(branches) if of_spaces else tuple(branches)
        if tree is not None:
            return parts[tree]
        check(not of_spaces, "spaces are not nested around a NullSpace", TypeError)
        return None


def _unwrapped(item: Any) -> Any:
    """Return the element of a tuple or list of one."""
    if not isinstance(item, tuple | list):
        return item
    check(len(item) == 1, f"expected one element, found {item!r}")
    return item[0]


def is_flat_space(space: Any) -> bool:
    """Whether `space` is elementary, or a composite of elementary spaces."""
    check(isinstance(space, Space), f"expected a space, found {space!r}", TypeError)
    return not any(isinstance(part, CompositeSpace) for part in getattr(space, "components", []))


def is_flat_source(source: Any) -> bool:
    """Whether `source` is a str, or a tuple or list that holds no tuple or list."""
    check(isinstance(source, str | tuple | list), f"{source!r} is not a source", TypeError)
    return isinstance(source, str) or not any(isinstance(part, tuple | list) for part in source)


def is_flat_specs(data_specs: tuple[Any, Any]) -> bool:
    """Whether space and source are flat; their lengths are not compared."""
    return is_flat_space(data_specs[0]) and is_flat_source(data_specs[1])
