"""Transformers between examples and batches: gather, cut, unpack, pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.compat.fuel.config_parser import config
from labeled.compat.fuel.exceptions import OldValueError
from labeled.compat.fuel.schemes import BatchSizeScheme, IterationScheme
from labeled.compat.fuel.transformers.base import Transformer, stacked


class Cache(Transformer):
    """Cuts large batches into smaller ones.

    For each request at most one batch is fetched, so that a request larger than that comes
    back short: the old rule. What is left at the end of an epoch is the last batch.

    Parameters
    ----------
    data_stream : AbstractDataStream
    iteration_scheme : BatchSizeScheme
        The sizes to hand out.

    Raises
    ------
    OldValueError
        If the scheme is of another kind.
    """

    def __init__(self, data_stream: Any, iteration_scheme: IterationScheme, **kwargs: Any) -> None:
        if not isinstance(iteration_scheme, BatchSizeScheme):
            raise OldValueError(f"sizes of batches are needed, found {iteration_scheme!r}")
        kwargs.setdefault("axis_labels", data_stream.axis_labels)
        super().__init__(data_stream, iteration_scheme=iteration_scheme, **kwargs)
        self.cache: list[list[Any]] = [[] for _ in self.sources]

    def get_data(self, request: Any = None) -> tuple[Any, ...]:
        if request is None:
            raise OldValueError("a size is asked for")
        if request > len(self.cache[0]):
            self._cache()
        data = tuple(stacked(held[:request]) for held in self.cache)
        self.cache = [held[request:] for held in self.cache]
        return data

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        self.cache = [[] for _ in self.sources]
        return super().get_epoch_iterator(as_dict=as_dict)

    def _cache(self) -> None:
        batch = next(self.child_epoch_iterator, None)
        if batch is None and not self.cache[0]:
            raise StopIteration
        for held, values in zip(self.cache, batch or (), strict=False):
            held.extend(values)


class Batch(Transformer):
    """Gathers examples into batches.

    Parameters
    ----------
    data_stream : AbstractDataStream
        Of examples.
    iteration_scheme : BatchSizeScheme
    strictness : {0, 1, 2}
        Keep a short last batch, drop it, or refuse it.

    Raises
    ------
    OldValueError
        If the stream is one of batches, the scheme one of examples; at the end of an
        epoch, if the last batch is short and `strictness` is 2.
    """

    def __init__(
        self,
        data_stream: Any,
        iteration_scheme: IterationScheme,
        strictness: int = 0,
        **kwargs: Any,
    ) -> None:
        if not data_stream.produces_examples:
            raise OldValueError("the stream gives batches already; Batch gathers examples")
        if iteration_scheme.requests_examples:
            raise OldValueError("the scheme asks for examples; Batch needs one that asks for sizes")
        if data_stream.axis_labels:
            labels = {
                name: ("batch", *own) if own else None
                for name, own in data_stream.axis_labels.items()
            }
            kwargs.setdefault("axis_labels", labels)
        super().__init__(data_stream, iteration_scheme=iteration_scheme, **kwargs)
        self.strictness = strictness

    def get_data(self, request: Any = None) -> tuple[Any, ...]:
        if request is None:
            raise OldValueError("a size is asked for")
        examples = []
        for _ in range(request):
            try:
                examples.append(next(self.child_epoch_iterator))
            except StopIteration:
                if not examples or self.strictness == 1:
                    raise
                if self.strictness > 1:
                    raise OldValueError(
                        f"the last batch has {len(examples)} examples in the place of {request}"
                    ) from None
                break
        return tuple(stacked(values) for values in zip(*examples, strict=True))


class Unpack(Transformer):
    """Takes batches apart into examples.

    Raises
    ------
    OldValueError
        If the stream gives examples already.
    """

    def __init__(self, data_stream: Any, **kwargs: Any) -> None:
        if data_stream.produces_examples:
            raise OldValueError("the stream gives examples already; Unpack takes batches apart")
        if data_stream.axis_labels:
            labels = {
                name: own[1:] if own else None for name, own in data_stream.axis_labels.items()
            }
            kwargs.setdefault("axis_labels", labels)
        super().__init__(data_stream, True, **kwargs)
        self.data: Any = None

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        self.data = None
        return super().get_epoch_iterator(as_dict=as_dict)

    def get_data(self, request: Any = None) -> Any:
        if request is not None:
            raise OldValueError(f"Unpack takes no requests, found {request!r}")
        while True:
            if self.data is None:
                self.data = zip(*next(self.child_epoch_iterator), strict=False)
            for example in self.data:
                return example
            self.data = None


class Padding(Transformer):
    """Fills sequences with zeros to the longest of the batch, and adds masks.

    Parameters
    ----------
    data_stream : AbstractDataStream
        Of batches.
    mask_sources : sequence of str, optional
        Which sources are filled; all if not given. After each comes ``<source>_mask``,
        (rows, steps): 1 where there was data.
    mask_dtype : dtype, optional
        floatX if not given.

    Raises
    ------
    OldValueError
        If the stream gives examples, or sequences differ in other axes than the first.
    """

    def __init__(
        self, data_stream: Any, mask_sources: Any = None, mask_dtype: Any = None, **kwargs: Any
    ) -> None:
        if data_stream.produces_examples:
            raise OldValueError("the stream gives examples; Padding needs batches")
        super().__init__(data_stream, False, **kwargs)
        self.mask_sources = data_stream.sources if mask_sources is None else mask_sources
        self.mask_dtype = config.floatX if mask_dtype is None else mask_dtype

    def _default_sources(self) -> tuple[str, ...]:
        return tuple(
            name
            for source in self.data_stream.sources
            for name in ((source, source + "_mask") if source in self.mask_sources else (source,))
        )

    def transform_batch(self, batch: Any) -> tuple[Any, ...]:
        filled: list[Any] = []
        for source, values in zip(self.data_stream.sources, batch, strict=False):
            if source in self.mask_sources:
                filled += _padded(source, values, self.mask_dtype)
            else:
                filled.append(values)
        return tuple(filled)


def _padded(source: str, values: Any, mask_dtype: Any) -> tuple[Any, Any]:
    """Return sequences filled to one length, and their mask."""
    sequences = [np.asarray(one) for one in values]
    if not all(one.ndim for one in sequences):
        raise OldValueError(
            f"source {source!r} holds single values, and no sequences that could be padded; name "
            "those that do in mask_sources"
        )
    inner = {one.shape[1:] for one in sequences}
    if len(inner) > 1:
        raise OldValueError(
            f"sequences of source {source!r} may differ in length only; found the shapes "
            f"{sorted(inner)} besides"
        )
    lengths = np.array([len(one) for one in sequences])
    filled = np.zeros((len(sequences), max(lengths), *inner.pop()), sequences[0].dtype)
    for row, one in zip(filled, sequences, strict=True):
        row[: len(one)] = one
    mask = np.arange(filled.shape[1]) < lengths[:, None]
    return filled, mask.astype(mask_dtype)
