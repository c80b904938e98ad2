"""What all transformers have in common: a stream behind, sources and their labels, examples."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from labeled.compat.errors import check, old
from labeled.compat.fuel.config_parser import AxisLabelsMismatchError
from labeled.compat.fuel.streams import AbstractDataStream

log = logging.getLogger("fuel.transformers")  # the name that old code listens to


def as_behind(stream: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a transformer: those given, else what the stream behind it has."""
    labels = stream.axis_labels or None
    return {"produces_examples": stream.produces_examples, "axis_labels": labels, **kwargs}


def relabelled(stream: Any, change: Callable[[Any], Any], sources: Any = None) -> Any:
    """Return the axis labels of a stream, those of some sources (of all if not given) changed."""
    labels = dict(stream.axis_labels or {})
    for name, own in labels.items():
        if sources is None or name in sources:
            labels[name] = change(own) if own else None
    return labels or None


class Transformer(AbstractDataStream):
    """A stream made of another one.

    Parameters
    ----------
    data_stream : AbstractDataStream
    produces_examples : bool, optional
        Where no iteration scheme says it.
    **kwargs
        `iteration_scheme`, `axis_labels`.
    """

    def __init__(
        self, data_stream: Any, produces_examples: bool | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if produces_examples is not None:
            self.produces_examples = produces_examples
        self.data_stream = data_stream

    def _default_sources(self) -> Any:
        return self.data_stream.sources

    def close(self) -> None:
        self.data_stream.close()

    def reset(self) -> None:
        self.data_stream.reset()

    def next_epoch(self) -> None:
        self.data_stream.next_epoch()

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        """Return the items of an epoch; begins an epoch of the stream behind."""
        self.child_epoch_iterator = self.data_stream.get_epoch_iterator()
        return super().get_epoch_iterator(as_dict=as_dict)

    def _next(self, request: Any) -> Any:
        self._take_no_request(request)
        return next(self.child_epoch_iterator)

    def get_data(self, request: Any = None) -> Any:
        """Return the next item, transformed; takes no request.

        Raises
        ------
        ValueError
            If there is a request.
        NotImplementedError
            If this makes examples of batches or the other way round, or a subclass does
            not say what to do.
        """
        data, examples = self._next(request), self.produces_examples
        alike = examples == self.data_stream.produces_examples
        check(alike, f"{type(self).__name__} needs a get_data() of its own", NotImplementedError)
        return self.transform_example(data) if examples else self.transform_batch(data)

    def _not_transformed(self, *_: Any) -> Any:
        raise old(NotImplementedError, f"{type(self).__name__} does not transform what it is given")

    transform_example: Callable[..., Any] = _not_transformed
    transform_batch: Callable[..., Any] = _not_transformed


class AgnosticTransformer(Transformer, ABC):
    """Treats examples and batches alike."""

    @abstractmethod
    def transform_any(self, data: Any) -> Any:
        """Return the item, transformed."""

    def transform_example(self, example: Any) -> Any:
        return self.transform_any(example)

    transform_batch = transform_example


class SourcewiseTransformer(Transformer):
    """Treats some sources, each for itself.

    Parameters
    ----------
    data_stream : AbstractDataStream
    produces_examples : bool
    which_sources : container of str, optional
        All if not given.
    """

    def __init__(
        self,
        data_stream: Any,
        produces_examples: bool | None = None,
        which_sources: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_stream, produces_examples, **kwargs)
        self.which_sources = data_stream.sources if which_sources is None else which_sources

    def _each(self, data: Any, transform: Callable[[Any, str], Any]) -> tuple[Any, ...]:
        parts = list(data)  # there may be more than sources
        for place, name in enumerate(self.data_stream.sources):
            if name in self.which_sources:
                parts[place] = transform(parts[place], name)
        return tuple(parts)

    def transform_example(self, example: Any) -> Any:
        return self._each(example, self.transform_source_example)

    def transform_batch(self, batch: Any) -> Any:
        return self._each(batch, self.transform_source_batch)

    transform_source_example: Callable[..., Any] = Transformer._not_transformed
    transform_source_batch: Callable[..., Any] = Transformer._not_transformed


class AgnosticSourcewiseTransformer(AgnosticTransformer, SourcewiseTransformer):
    """Treats some sources, each for itself, examples and batches alike."""

    def transform_any(self, data: Any) -> Any:
        return self._each(data, self.transform_any_source)

    @abstractmethod
    def transform_any_source(self, source_data: Any, source_name: str) -> Any:
        """Return the values of one source, transformed."""


class ExpectsAxisLabels:
    """For transformers that need certain axes: compares labels once a source."""

    def verify_axis_labels(self, expected: Any, actual: Any, source_name: str) -> None:
        """Compare axis labels, the first time a source is seen.

        Raises
        ------
        AxisLabelsMismatchError
            If they differ. Labels that are missing are logged as a warning.
        """
        checked: set[str] = self.__dict__.setdefault("_checked_axis_labels", set())
        if source_name in checked:
            return
        wrong = f"{type(self).__name__}: {source_name!r} needs the axes {expected}, found {actual}"
        check(actual is None or expected == actual, wrong, AxisLabelsMismatchError)
        if actual is None:
            log.warning(wrong)
        checked.add(source_name)


def stacked(examples: Any) -> Any:
    """Return examples as one array, or as an array of objects where their shapes differ."""
    examples = list(examples)
    alike = len({np.shape(example) for example in examples}) <= 1
    return np.asarray(examples) if alike else np.fromiter(examples, object, len(examples))
