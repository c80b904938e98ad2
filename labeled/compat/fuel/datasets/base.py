"""Datasets in memory, or of anything that can be iterated, and what all datasets share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from labeled.compat.errors import OldAttributeError, OldValueError
from labeled.compat.fuel.schemes import IterationScheme, SequentialExampleScheme
from labeled.compat.fuel.streams import DataStream
from labeled.compat.fuel.utils.subset import Subset


class Dataset(ABC):
    """Named sources that give data for a request.

    Parameters
    ----------
    sources : container of str, optional
        Some of `provides_sources`, in the order wanted; all if not given.
    axis_labels : dict, optional
        Source to tuple of axis names.

    Raises
    ------
    OldValueError
        If nothing is provided, or a source that is not.
    """

    provides_sources: Any = None
    default_transformers: Any = ()

    def __init__(self, sources: Any = None, axis_labels: Any = None) -> None:
        if not self.provides_sources:
            raise OldValueError(f"{type(self).__name__} provides no sources")
        if sources is not None:
            if not sources or not all(name in self.provides_sources for name in sources):
                raise OldValueError(
                    f"sources {sources!r} are asked for; there are {self.provides_sources!r}"
                )
            self.sources = sources
        self.axis_labels = axis_labels

    @property
    def sources(self) -> Any:
        return self._sources if hasattr(self, "_sources") else self.provides_sources

    @sources.setter
    def sources(self, value: Any) -> None:
        self._sources = value

    @property
    def example_iteration_scheme(self) -> Any:
        if not hasattr(self, "_example_iteration_scheme"):
            raise OldAttributeError(f"{type(self).__name__} has no example_iteration_scheme")
        return self._example_iteration_scheme

    @example_iteration_scheme.setter
    def example_iteration_scheme(self, value: IterationScheme | None) -> None:
        self._example_iteration_scheme = value

    def apply_default_transformers(self, stream: Any) -> Any:
        """Put `default_transformers`, each (class, arguments, options), behind a stream."""
        for cls, arguments, options in self.default_transformers:
            stream = cls(stream, *arguments, **options)
        return stream

    def get_example_stream(self) -> DataStream:
        """Return a stream of single examples."""
        return DataStream(self, iteration_scheme=self.example_iteration_scheme)

    def open(self) -> Any:
        """Return the state that `get_data` needs; None here."""
        return None

    def close(self, state: Any) -> Any:
        """Release a state."""
        return None

    def reset(self, state: Any) -> Any:
        """Close a state and return a new one."""
        self.close(state)
        return self.open()

    def next_epoch(self, state: Any) -> Any:
        """Return the state for the next epoch."""
        return self.reset(state)

    @abstractmethod
    def get_data(self, state: Any = None, request: Any = None) -> Any:
        """Return the data of a request, a tuple by source."""

    def filter_sources(self, data: Iterable[Any]) -> tuple[Any, ...]:
        """Return what of all provided sources belongs to the chosen ones."""
        pairs = zip(data, self.provides_sources, strict=False)
        return tuple(values for values, name in pairs if name in self.sources)


class IterableDataset(Dataset):
    """Examples of iterables, read one after another.

    Parameters
    ----------
    iterables : dict of iterables, or one of them
        By source; one alone is called ``data``.

    Raises
    ------
    OldValueError
        If one cannot be iterated, or their lengths are known and differ.
    """

    example_iteration_scheme: Any = None

    def __init__(self, iterables: Any, **kwargs: Any) -> None:
        named = iterables if isinstance(iterables, dict) else {"data": iterables}
        self.provides_sources = tuple(named)
        super().__init__(**kwargs)
        if not all(isinstance(one, Iterable) for one in named.values()):
            raise OldValueError("every source must be something that can be iterated")
        self.iterables: list[Any] = [named[source] for source in self.sources]
        if len(self._lengths()) > 1:
            raise OldValueError(f"sources have different lengths, {sorted(self._lengths())}")

    def _lengths(self) -> set[int]:
        """Return the lengths there are; none where one is not known."""
        try:
            return {len(one) for one in self.iterables}
        except TypeError:
            return set()

    @property
    def num_examples(self) -> Any:
        """How many examples there are; NaN where that is not known."""
        return next(iter(self._lengths()), float("nan"))

    def open(self) -> Any:
        return zip(*map(iter, self.iterables), strict=False)

    def get_data(self, state: Any = None, request: Any = None) -> Any:
        """Return the next example."""
        if state is None or request is not None:
            raise OldValueError("examples come in order: give the state of open(), and no request")
        return next(state)


class IndexableDataset(Dataset):
    """Examples of arrays, or of anything that is read by index.

    Parameters
    ----------
    indexables : dict of indexables, or one of them
        By source; one alone is called ``data``. Sources are attributes, too.
    start, stop : int, optional
        Cut every source, and then once more apply to requests: the old rule, by which a
        `start` with a `stop` nearly always is an error.

    Raises
    ------
    OldValueError
        If lengths differ.
    """

    def __init__(
        self, indexables: Any, start: int | None = None, stop: int | None = None, **kwargs: Any
    ) -> None:
        named = indexables if isinstance(indexables, dict) else {"data": indexables}
        self.provides_sources = tuple(named)
        super().__init__(**kwargs)
        self.indexables: list[Any] = [named[source][start:stop] for source in self.sources]
        lengths = {len(one) for one in self.indexables}
        if len(lengths) > 1:
            raise OldValueError(f"sources have different lengths, {sorted(lengths)}")
        self.example_iteration_scheme = SequentialExampleScheme(self.num_examples)
        self.start, self.stop = start, stop
        self.subset = Subset(slice(start, stop), self.num_examples)

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        known = state.get("_sources", state.get("provides_sources")) or ()
        if name in known and name != "indexables":
            return self.indexables[list(known).index(name)]
        raise OldAttributeError(f"{type(self).__name__} has no attribute or source {name!r}")

    @property
    def num_examples(self) -> int:
        return len(self.indexables[0])

    def get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        """Return the data of a request: an int, a slice or a list of int."""
        if state is not None or request is None:
            raise OldValueError("rows are asked for by a request, and without a state")
        return tuple(self.subset.index_within_subset(one, request) for one in self.indexables)
