"""Streams behind streams: what transformers have in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from labeled.compat.errors import OldNotImplementedError, OldValueError
from labeled.compat.fuel.exceptions import AxisLabelsMismatchError
from labeled.compat.fuel.streams import AbstractDataStream

log = logging.getLogger("fuel.transformers")  # the name that old code listens to


def check_no_request(stream: Any, request: Any) -> None:
    """Raise OldValueError if there is a request."""
    if request is not None:
        raise OldValueError(f"{type(stream).__name__} takes no requests, found {request!r}")


def as_behind(stream: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a transformer that gives what the stream behind it gives."""
    labels = {"axis_labels": stream.axis_labels} if stream.axis_labels else {}
    return {"produces_examples": stream.produces_examples, **labels, **kwargs}


def relabelled(
    stream: Any, kwargs: dict[str, Any], change: Callable[[Any], Any], sources: Any = None
) -> dict[str, Any]:
    """Return the options of a transformer that changes the axes of some sources, or of all."""
    labels = {
        name: own if sources is not None and name not in sources else change(own) if own else None
        for name, own in (stream.axis_labels or {}).items()
    }
    return {"axis_labels": labels, **kwargs} if labels else kwargs


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

    def get_data(self, request: Any = None) -> Any:
        """Return the next item, transformed; takes no request.

        Raises
        ------
        OldValueError
            If there is a request.
        OldNotImplementedError
            If this makes examples of batches or the other way round, or a subclass does
            not say what to do.
        """
        check_no_request(self, request)
        data = next(self.child_epoch_iterator)
        if self.produces_examples != self.data_stream.produces_examples:
            kinds = {True: "examples", False: "batches"}
            raise OldNotImplementedError(
                f"{type(self).__name__} makes {kinds[self.produces_examples]} of "
                f"{kinds[self.data_stream.produces_examples]}; it must say how in get_data()"
            )
        return (
            self.transform_example(data) if self.produces_examples else self.transform_batch(data)
        )

    def transform_example(self, example: Any) -> Any:
        raise OldNotImplementedError(f"{type(self).__name__} does not transform examples")

    def transform_batch(self, batch: Any) -> Any:
        raise OldNotImplementedError(f"{type(self).__name__} does not transform batches")


class AgnosticTransformer(Transformer, ABC):
    """Treats examples and batches alike."""

    @abstractmethod
    def transform_any(self, data: Any) -> Any:
        """Return the item, transformed."""

    def transform_example(self, example: Any) -> Any:
        return self.transform_any(example)

    def transform_batch(self, batch: Any) -> Any:
        return self.transform_any(batch)


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

    def transform_source_example(self, source_example: Any, source_name: str) -> Any:
        raise OldNotImplementedError(f"{type(self).__name__} does not transform examples")

    def transform_source_batch(self, source_batch: Any, source_name: str) -> Any:
        raise OldNotImplementedError(f"{type(self).__name__} does not transform batches")


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
        if actual is None:
            log.warning(
                "%s cannot verify the axes of source %r, which has no labels; it expects %s",
                type(self).__name__,
                source_name,
                expected,
            )
        elif expected != actual:
            raise AxisLabelsMismatchError(
                f"{type(self).__name__} expects source {source_name!r} to have the axes "
                f"{expected}, found {actual}"
            )
        checked.add(source_name)


def stacked(examples: Any) -> Any:
    """Return examples as one array, or as an array of objects where their shapes differ."""
    examples = list(examples)
    if len({np.shape(example) for example in examples}) <= 1:
        return np.asarray(examples)
    made = np.empty(len(examples), object)
    for place, example in enumerate(examples):
        made[place] = example
    return made
