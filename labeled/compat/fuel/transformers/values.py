"""Transformers of values: any function, shapes, scales and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labeled.compat.fuel.config_parser import config
from labeled.compat.fuel.exceptions import OldValueError
from labeled.compat.fuel.transformers.base import (
    AgnosticSourcewiseTransformer,
    SourcewiseTransformer,
    Transformer,
    stacked,
)


class Mapping(Transformer):
    """Applies a function to each item.

    Parameters
    ----------
    data_stream : AbstractDataStream
    mapping : callable
        Tuple to tuple; with ``mapping_accepts=dict`` dict to dict, by source.
    add_sources : tuple of str, optional
        What the function returns is added behind the sources, under these names.
    mapping_accepts : {list, dict}

    Raises
    ------
    OldValueError
        If `mapping_accepts` is something else.
    """

    def __init__(
        self,
        data_stream: Any,
        mapping: Callable[[Any], Any],
        add_sources: tuple[str, ...] | None = None,
        mapping_accepts: type = list,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)
        if mapping_accepts not in (list, dict):
            raise OldValueError(f"mapping_accepts is list or dict, found {mapping_accepts!r}")
        self.mapping, self.mapping_accepts = mapping, mapping_accepts
        self.add_sources = add_sources

    def _default_sources(self) -> Any:
        return self.data_stream.sources + (self.add_sources or ())

    def get_data(self, request: Any = None) -> Any:
        data = self._next(request)
        if self.mapping_accepts is list:
            image = self.mapping(data)
        else:
            names = self.data_stream.sources
            found = self.mapping(dict(zip(names, data, strict=False)))
            image = tuple(found[name] for name in self.add_sources or names)
        return data + image if self.add_sources else image


class SortMapping:
    """A function for `Mapping` that sorts the examples of a batch.

    Parameters
    ----------
    key : callable
        Of an example, a tuple by source.
    reverse : bool

    Examples
    --------
    >>> SortMapping(lambda example: example[0])(([3, 1, 2], ["c", "a", "b"]))
    ([1, 2, 3], ['a', 'b', 'c'])
    """

    def __init__(self, key: Callable[[Any], Any], reverse: bool = False) -> None:
        self.key, self.reverse = key, reverse

    def __call__(self, batch: Any) -> tuple[Any, ...]:
        ordered = sorted(zip(*batch, strict=False), key=self.key, reverse=self.reverse)
        columns = zip(*ordered, strict=False)
        return tuple(
            stacked(column) if isinstance(values, np.ndarray) else list(column)
            for column, values in zip(columns, batch, strict=False)
        )


class Flatten(SourcewiseTransformer):
    """Makes one axis of all axes of an example; batches keep their first."""

    def __init__(self, data_stream: Any, **kwargs: Any) -> None:
        if data_stream.axis_labels:
            chosen = kwargs.get("which_sources", data_stream.sources)
            first = 0 if data_stream.produces_examples else 1
            labels = {
                name: _flat_labels(own, first) if name in chosen else own
                for name, own in data_stream.axis_labels.items()
            }
            kwargs.setdefault("axis_labels", labels)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)

    def transform_source_example(self, source_example: Any, source_name: str) -> Any:
        return np.asarray(source_example).flatten()

    def transform_source_batch(self, source_batch: Any, source_name: str) -> Any:
        values = np.asarray(source_batch)
        return values.reshape((values.shape[0], -1))


def _flat_labels(own: Any, first: int) -> Any:
    return (*own[:first], "feature") if own else None


class ScaleAndShift(AgnosticSourcewiseTransformer):
    """Multiplies by `scale`, then adds `shift`."""

    def __init__(self, data_stream: Any, scale: Any, shift: Any, **kwargs: Any) -> None:
        _keep_labels(data_stream, kwargs)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)
        self.scale, self.shift = scale, shift

    def transform_any_source(self, source_data: Any, source_name: str) -> Any:
        return np.asarray(source_data) * self.scale + self.shift


class Cast(AgnosticSourcewiseTransformer):
    """Casts to a dtype; ``'floatX'`` is that of the settings."""

    def __init__(self, data_stream: Any, dtype: Any, **kwargs: Any) -> None:
        _keep_labels(data_stream, kwargs)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)
        self.dtype = config.floatX if isinstance(dtype, str) and dtype == "floatX" else dtype

    def transform_any_source(self, source_data: Any, source_name: str) -> Any:
        return np.asarray(source_data, dtype=self.dtype)


class ForceFloatX(AgnosticSourcewiseTransformer):
    """Casts arrays of floating numbers to floatX, and leaves all else as it is."""

    def __init__(self, data_stream: Any, **kwargs: Any) -> None:
        _keep_labels(data_stream, kwargs)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)

    def transform_any_source(self, source_data: Any, source_name: str) -> Any:
        floating = isinstance(source_data, np.ndarray) and source_data.dtype.kind == "f"
        return np.asarray(source_data, dtype=config.floatX) if floating else source_data


def _keep_labels(data_stream: Any, kwargs: dict[str, Any]) -> None:
    if data_stream.axis_labels:
        kwargs.setdefault("axis_labels", data_stream.axis_labels)
