"""What the old datasets had in common: iterators made of defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labeled.compat.errors import OldNotImplementedError, OldValueError
from labeled.compat.pylearn2.space import CompositeSpace
from labeled.compat.pylearn2.utils.iteration import (
    Convert,
    FiniteDatasetIterator,
    resolve_iterator_class,
)


class Dataset:
    """A dataset that makes iterators; the base of the others.

    Attributes
    ----------
    _iter_subset_class, _iter_batch_size, _iter_num_batches, _iter_data_specs
        What :meth:`iterator` takes where it is given nothing; may be missing.
    """

    def get_data_specs(self) -> Any:
        """Return the flat ``(space, source)`` of everything there is."""
        raise OldNotImplementedError(f"{type(self).__name__} has no get_data_specs")

    def get_data(self) -> Any:
        """Return all data, an array or a tuple of arrays."""
        raise OldNotImplementedError(f"{type(self).__name__} has no get_data")

    def get_num_examples(self) -> int:
        """Return how many examples there are."""
        raise OldNotImplementedError(f"{type(self).__name__} has no get_num_examples")

    def has_targets(self) -> bool:
        """Whether there are targets."""
        return "targets" in _names(self.get_data_specs()[1])

    def __iter__(self) -> FiniteDatasetIterator:
        return self.iterator()

    def iterator(
        self,
        mode: Any = None,
        batch_size: int | None = None,
        num_batches: int | None = None,
        rng: Any = None,
        data_specs: Any = None,
        return_tuple: bool = False,
    ) -> FiniteDatasetIterator:
        """Return an iterator over the batches of one epoch.

        Parameters
        ----------
        mode : str or SubsetIterator class
        batch_size, num_batches : int, optional
        rng : seed or RandomState, optional
            The dataset's own generator where nothing is given and one is needed, so
            that epochs differ.
        data_specs : (Space, source)
            Flat.
        return_tuple : bool

        Raises
        ------
        OldValueError
            If there is no mode or there are no specs, given or by default.
        """
        chosen = mode if mode is not None else getattr(self, "_iter_subset_class", None)
        if chosen is None:
            raise OldValueError("iterator: no mode was given, and the dataset has none of its own")
        specs = data_specs if data_specs is not None else getattr(self, "_iter_data_specs", None)
        if specs is None:
            raise OldValueError("iterator: no data_specs were given, and the dataset has none")
        walk = resolve_iterator_class(chosen)
        if rng is None and walk.stochastic:
            rng = self.rng
        subset = walk(
            self.get_num_examples(),
            batch_size if batch_size is not None else getattr(self, "_iter_batch_size", None),
            num_batches if num_batches is not None else getattr(self, "_iter_num_batches", None),
            rng,
        )
        return FiniteDatasetIterator(
            self, subset, specs, return_tuple=return_tuple, convert=self._conversions(specs)
        )

    rng: Any

    def _conversions(self, data_specs: Any) -> Sequence[Convert | None] | None:
        """Return what formats each source, None where the spaces do."""
        return None


def _names(source: Any) -> tuple[str, ...]:
    return tuple(source) if isinstance(source, tuple | list) else (source,)


def pairs_of(data_specs: Any) -> list[tuple[Any, str]]:
    """Return the ``(space, source)`` pairs of flat specs."""
    space, source = data_specs
    spaces = space.components if isinstance(space, CompositeSpace) else [space]
    return list(zip(spaces, _names(source), strict=False))
