"""The old iterator over the batches of a dataset, and those over subsets of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labeled.compat.pylearn2.errors import OldTypeError, OldValueError, require
from labeled.compat.pylearn2.space import CompositeSpace
from labeled.compat.pylearn2.utils.data_specs import is_flat_specs
from labeled.compat.pylearn2.utils.subsets import (
    BatchwiseShuffledSequentialIterator,
    EvenSequencesSubsetIterator,
    ForcedEvenIterator,
    RandomSliceSubsetIterator,
    RandomUniformSubsetIterator,
    SequentialSubsetIterator,
    ShuffledSequentialSubsetIterator,
    SubsetIterator,
    as_even,
    has_uniform_batch_size,
    is_stochastic,
    resolve_iterator_class,
)

__all__ = [
    "BatchwiseShuffledSequentialIterator",
    "EvenSequencesSubsetIterator",
    "FiniteDatasetIterator",
    "ForcedEvenIterator",
    "RandomSliceSubsetIterator",
    "RandomUniformSubsetIterator",
    "SequentialSubsetIterator",
    "ShuffledSequentialSubsetIterator",
    "SubsetIterator",
    "as_even",
    "has_uniform_batch_size",
    "is_stochastic",
    "resolve_iterator_class",
]

Convert = Callable[[Any], Any]


class FiniteDatasetIterator:
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
        require(is_flat_specs(data_specs), f"data_specs must be flat, found {data_specs}")
        self._dataset = dataset
        self._subset_iterator = subset_iterator
        self._return_tuple = return_tuple
        space, source = data_specs
        spaces = space.components if isinstance(space, CompositeSpace) else [space]
        if isinstance(space, CompositeSpace) and isinstance(source, str):
            raise OldValueError(
                f"{space} takes a tuple of {len(spaces)} sources, found the name {source!r}; write "
                f"{(source,) * len(spaces)}"
            )
        names = source if isinstance(source, tuple) else (source,)
        require(len(names) == len(spaces), f"{len(spaces)} spaces for the sources {source!r}")
        self._source, self._space = names, spaces
        given = [None] * len(names) if convert is None else list(convert)
        require(len(given) == len(names), f"{len(given)} functions for {len(names)} sources")
        self._positions, self._convert = self._met(dataset.get_data_specs(), given)

    def _met(
        self, own_specs: Any, convert: Sequence[Convert | None]
    ) -> tuple[list[int], list[Convert]]:
        """Find each source in the dataset, and how its batches become the space asked for."""
        require(is_flat_specs(own_specs), f"the dataset's own specs must be flat: {own_specs}")
        own_space, own_source = own_specs
        spaces = own_space.components if isinstance(own_space, CompositeSpace) else [own_space]
        names = list(own_source) if isinstance(own_source, tuple | list) else [own_source]
        positions, functions = [], []
        for name, space, function in zip(self._source, self._space, convert, strict=True):
            if name not in names:
                raise OldValueError(f"the dataset has no source {name!r}; it has {names}")
            positions.append(names.index(name))
            functions.append(function or _formatting(spaces[positions[-1]], space))
        return positions, functions

    def __iter__(self) -> FiniteDatasetIterator:
        return self

    def next(self) -> Any:
        """Return the next batch: a tuple, or the bare batch of a single source."""
        rows = next(self._subset_iterator)
        found = tuple(
            function(batch) for function, batch in zip(self._convert, self._read(rows), strict=True)
        )
        return found if self._return_tuple or len(found) > 1 else found[0]

    def __next__(self) -> Any:
        return self.next()

    def _read(self, rows: Any) -> Sequence[Any]:
        """Return the rows of each source asked for."""
        for name in ("_get_rows", "get"):
            if hasattr(self._dataset, name):
                found: Sequence[Any] = getattr(self._dataset, name)(self._source, rows)
                return found
        data = self._dataset.get_data()
        arrays = data if isinstance(data, tuple) else (data,)
        return [arrays[position][rows] for position in self._positions]

    @property
    def batch_size(self) -> int:
        return self._subset_iterator.batch_size

    @property
    def num_batches(self) -> float:
        return self._subset_iterator.num_batches

    @property
    def num_examples(self) -> float:
        return self._subset_iterator.num_examples

    @property
    def uneven(self) -> bool:
        return self._subset_iterator.uneven

    @property
    def stochastic(self) -> bool:
        return self._subset_iterator.stochastic


def _formatting(own: Any, space: Any) -> Convert:
    return lambda batch: own.np_format_as(batch, space)
