"""Streams behind streams: values, sources, examples and batches, windows; fetching ahead."""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from labeled._threads import LOOK_UP_S, background
from labeled.compat.errors import check
from labeled.compat.fuel.config_parser import config
from labeled.compat.fuel.schemes import BatchSizeScheme, IterationScheme
from labeled.compat.fuel.streams import AbstractDataStream
from labeled.compat.fuel.transformers.base import (
    AgnosticSourcewiseTransformer,
    AgnosticTransformer,
    SourcewiseTransformer,
    Transformer,
    as_behind,
    log,
    relabelled,
    stacked,
)
from labeled.compat.fuel.transformers.base import ExpectsAxisLabels as ExpectsAxisLabels
from labeled.ragged.flat import Flat
from labeled.ragged.value import padded


# ---------------------------------------------------------------- values
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
    ValueError
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
        check(mapping_accepts in (list, dict), f"list or dict is accepted, not {mapping_accepts!r}")
        self.mapping, self.mapping_accepts = mapping, mapping_accepts
        self.add_sources = add_sources

    def _default_sources(self) -> Any:
        return self.data_stream.sources + (self.add_sources or ())

    def get_data(self, request: Any = None) -> Any:
        data, names = self._next(request), self.data_stream.sources
        by_name = self.mapping_accepts is dict
        image = self.mapping(dict(zip(names, data, strict=False)) if by_name else data)
        if by_name:
            image = tuple(image[name] for name in self.add_sources or names)
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
    >>> SortMapping(key=lambda example: example[0])(([3, 1], ["c", "a"]))
    ([1, 3], ['a', 'c'])
    """

    def __init__(self, key: Callable[[Any], Any], reverse: bool = False) -> None:
        self.key, self.reverse = key, reverse

    def __call__(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        ordered = sorted(zip(*batch, strict=False), key=self.key, reverse=self.reverse)
        return tuple(
            stacked(column) if isinstance(values, np.ndarray) else list(column)
            for column, values in zip(zip(*ordered, strict=False), batch, strict=False)
        )


class Flatten(SourcewiseTransformer):
    """Makes matrices of batches, and vectors of examples."""

    def __init__(self, data_stream: Any, **kwargs: Any) -> None:
        chosen = kwargs.get("which_sources", data_stream.sources)
        first = 0 if data_stream.produces_examples else 1
        labels = relabelled(data_stream, lambda own: (*own[:first], "feature"), chosen)
        super().__init__(data_stream, **as_behind(data_stream, {"axis_labels": labels, **kwargs}))

    def transform_source_example(self, source_example: Any, source_name: str) -> Any:
        return np.asarray(source_example).flatten()

    def transform_source_batch(self, source_batch: Any, source_name: str) -> Any:
        values = np.asarray(source_batch)
        return values.reshape((values.shape[0], -1))


class ScaleAndShift(AgnosticSourcewiseTransformer):
    """Multiplies by `scale`, then adds `shift`."""

    def __init__(self, data_stream: Any, scale: Any, shift: Any, **kwargs: Any) -> None:
        super().__init__(data_stream, **as_behind(data_stream, kwargs))
        self.scale, self.shift = scale, shift

    def transform_any_source(self, source_data: Any, source_name: str) -> Any:
        return np.asarray(source_data) * self.scale + self.shift


class Cast(AgnosticSourcewiseTransformer):
    """Casts to a dtype; ``'floatX'`` is that of the settings."""

    def __init__(self, data_stream: Any, dtype: Any, **kwargs: Any) -> None:
        super().__init__(data_stream, **as_behind(data_stream, kwargs))
        self.dtype = config.floatX if isinstance(dtype, str) and dtype == "floatX" else dtype

    def transform_any_source(self, source_data: Any, source_name: str) -> Any:
        return np.asarray(source_data, dtype=self.dtype)


class ForceFloatX(AgnosticSourcewiseTransformer):
    """Casts arrays of floating numbers to floatX, and leaves all else as it is."""

    def __init__(self, data_stream: Any, **kwargs: Any) -> None:
        super().__init__(data_stream, **as_behind(data_stream, kwargs))

    def transform_any_source(self, source_data: Any, source_name: str) -> Any:
        floating = isinstance(source_data, np.ndarray) and source_data.dtype.kind == "f"
        return np.asarray(source_data, dtype=config.floatX) if floating else source_data


# ---------------------------------------------------------------- sources
class Filter(Transformer):
    """Keeps the items (examples or whole batches) for which a function is true.

    Items are tuples, also where dicts are asked for: the old rule.
    """

    def __init__(self, data_stream: Any, predicate: Callable[[Any], Any], **kwargs: Any) -> None:
        super().__init__(data_stream, **as_behind(data_stream, kwargs))
        self.predicate = predicate

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        super().get_epoch_iterator(as_dict=as_dict)
        return filter(self.predicate, self.child_epoch_iterator)


class FilterSources(AgnosticTransformer):
    """Keeps some sources, in the order of the stream. Items become lists: the old rule.

    Raises
    ------
    ValueError
        If the stream lacks one.
    """

    def __init__(self, data_stream: Any, sources: Any, **kwargs: Any) -> None:
        there = data_stream.sources
        unknown = [name for name in sources if name not in there]
        check(not unknown, f"the stream has the sources {there}, not {unknown}")
        labels = {k: v for k, v in (data_stream.axis_labels or {}).items() if k in sources} or None
        super().__init__(data_stream, **as_behind(data_stream, {"axis_labels": labels, **kwargs}))
        self.sources = tuple(name for name in there if name in sources)

    def transform_any(self, data: Any) -> list[Any]:
        pairs = zip(data, self.data_stream.sources, strict=False)
        return [values for values, name in pairs if name in self.sources]


class Rename(AgnosticTransformer):
    """Gives sources other names.

    Parameters
    ----------
    data_stream : AbstractDataStream
    names : dict of str
        Old name to new; several may have one new name where the stream has one of them.
    on_non_existent : {"raise", "ignore", "warn"}
        What to do about old names that there are not.

    Raises
    ------
    KeyError
        If an old name is not there, or two sources would have one name.
    ValueError
        If `on_non_existent` is something else.
    """

    def __init__(
        self, data_stream: Any, names: dict[str, str], on_non_existent: str = "raise", **kwargs: Any
    ) -> None:
        choices, there = ("raise", "ignore", "warn"), data_stream.sources
        check(on_non_existent in choices, f"{on_non_existent!r} is none of {choices}")
        missing = [name for name in names if name not in there]
        wrong = f"the stream has the sources {there}, not {missing}"
        check(not missing or on_non_existent != "raise", wrong, KeyError)
        if missing and on_non_existent == "warn":
            log.warning(wrong)
        renamed = tuple(names.get(name, name) for name in there)
        check(len({*renamed}) == len(there), f"two sources have one name in {renamed}", KeyError)
        labels = {names.get(k, k): v for k, v in (data_stream.axis_labels or {}).items()} or None
        super().__init__(data_stream, **as_behind(data_stream, {"axis_labels": labels, **kwargs}))
        self.sources = renamed

    def transform_any(self, data: Any) -> Any:
        return data


class Merge(AbstractDataStream):
    """Walks through several streams at once; ends with the shortest.

    Parameters
    ----------
    data_streams : sequence of AbstractDataStream
        All of examples, or all of batches.
    sources : sequence of str
        One name for every source of every stream.

    Raises
    ------
    ValueError
        If names are missing, or streams are of both kinds.
    """

    def __init__(
        self, data_streams: Sequence[Any], sources: Sequence[str], axis_labels: Any = None
    ) -> None:
        super().__init__(axis_labels=axis_labels)
        alike = len({stream.produces_examples for stream in data_streams}) == 1
        check(alike, "streams of examples and of batches cannot be merged")
        n, names = sum(len(stream.sources) for stream in data_streams), len(sources)
        check(n == names, f"{names} names are given for {n} sources")
        self.data_streams, self.sources = data_streams, sources
        self.produces_examples = data_streams[0].produces_examples

    def close(self) -> None:
        for stream in self.data_streams:
            stream.close()

    def reset(self) -> None:
        for stream in self.data_streams:
            stream.reset()

    def next_epoch(self) -> None:
        for stream in self.data_streams:
            stream.next_epoch()

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        self.child_epoch_iterators = [s.get_epoch_iterator() for s in self.data_streams]
        return super().get_epoch_iterator(as_dict=as_dict)

    def get_data(self, request: Any = None) -> tuple[Any, ...]:
        self._take_no_request(request)
        found = [next(iterator) for iterator in self.child_epoch_iterators]
        return tuple(values for item in found for values in item)


class MultiProcessing(Transformer):
    """Fetches items ahead of time, without end, in the background.

    The background is a thread. The old one forked a process and pickled every batch back:
    five times slower than reading directly, and unsafe with files that are open. Reading
    and decoding leave Python's lock here, so that a thread is enough.

    Parameters
    ----------
    data_stream : AbstractDataStream
    max_store : int
        Items held at most.
    """

    def __init__(self, data_stream: Any, max_store: int = 100, **kwargs: Any) -> None:
        super().__init__(data_stream, **as_behind(data_stream, kwargs))
        self._items: queue.Queue[Any] = queue.Queue(max_store)
        left, put = threading.Event(), partial(self._items.put, timeout=LOOK_UP_S)
        weakref.finalize(self, left.set).atexit = False
        fetch = partial(_fetch, data_stream, put, left)
        self.background = background(fetch, "labeled-fetch", left.set)

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        return AbstractDataStream.get_epoch_iterator(self, as_dict=as_dict)

    def get_data(self, request: Any = None) -> Any:
        self._take_no_request(request)
        item = self._items.get()
        if not isinstance(item, Exception):
            return item
        if not isinstance(item, StopIteration):
            self._items.put(item)  # nothing comes after it
        raise item


def _fetch(stream: Any, put: Callable[[Any], None], left: threading.Event) -> None:
    """Put item after item, an epoch's end and an error among them, until nobody is left."""

    def items() -> Iterator[Any]:
        try:
            for epoch in stream.iterate_epochs():
                yield from epoch
                yield StopIteration()
        except Exception as error:  # of the stream, whatever it is
            yield error

    for item in items():
        while not left.is_set():
            with suppress(queue.Full):
                put(item)
                break
        else:
            return


# ---------------------------------------------------------------- examples and batches
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
    ValueError
        If the scheme is of another kind.
    """

    def __init__(self, data_stream: Any, iteration_scheme: IterationScheme, **kwargs: Any) -> None:
        check(isinstance(iteration_scheme, BatchSizeScheme), "a scheme of sizes is needed")
        kwargs.setdefault("axis_labels", data_stream.axis_labels)
        super().__init__(data_stream, iteration_scheme=iteration_scheme, **kwargs)
        self.cache: list[list[Any]] = [[] for _ in self.sources]

    def get_data(self, request: Any = None) -> tuple[Any, ...]:
        check(request is not None, "a size is asked for")
        if request > len(self.cache[0]):
            batch = next(self.child_epoch_iterator, None)
            if batch is None and not self.cache[0]:
                raise StopIteration
            for held, values in zip(self.cache, batch or (), strict=False):
                held.extend(values)
        data = tuple(stacked(held[:request]) for held in self.cache)
        self.cache = [held[request:] for held in self.cache]
        return data

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        self.cache = [[] for _ in self.sources]
        return super().get_epoch_iterator(as_dict=as_dict)


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
    ValueError
        If the stream is one of batches, the scheme one of examples; at the end of an
        epoch, if the last batch is short and `strictness` is 2.
    """

    def __init__(
        self, data_stream: Any, iteration_scheme: Any, strictness: int = 0, **kwargs: Any
    ) -> None:
        check(data_stream.produces_examples, "the stream gives batches already")
        check(not iteration_scheme.requests_examples, "the scheme asks for examples, not for sizes")
        labels = relabelled(data_stream, lambda own: ("batch", *own))
        options = {"axis_labels": labels, "iteration_scheme": iteration_scheme, **kwargs}
        super().__init__(data_stream, **options)
        self.strictness = strictness

    def get_data(self, request: Any = None) -> tuple[Any, ...]:
        check(request is not None, "a size is asked for")
        examples = list(islice(self.child_epoch_iterator, request))
        short = len(examples) < request
        if not examples or (short and self.strictness == 1):
            raise StopIteration
        check(not short or self.strictness < 2, f"the last batch has {len(examples)} examples")
        return tuple(stacked(values) for values in zip(*examples, strict=True))


class Unpack(Transformer):
    """Takes batches apart into examples.

    Raises
    ------
    ValueError
        If the stream gives examples already.
    """

    def __init__(self, data_stream: Any, **kwargs: Any) -> None:
        check(not data_stream.produces_examples, "the stream gives examples already")
        labels = relabelled(data_stream, lambda own: own[1:])
        super().__init__(data_stream, True, **{"axis_labels": labels, **kwargs})

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        self.examples: deque[Any] = deque()
        return super().get_epoch_iterator(as_dict=as_dict)

    def get_data(self, request: Any = None) -> Any:
        self._take_no_request(request)
        while not self.examples:
            self.examples.extend(zip(*next(self.child_epoch_iterator), strict=False))
        return self.examples.popleft()


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
    ValueError
        If the stream gives examples, or sequences differ in other axes than the first.
    """

    def __init__(
        self, data_stream: Any, mask_sources: Any = None, mask_dtype: Any = None, **kwargs: Any
    ) -> None:
        check(not data_stream.produces_examples, "the stream gives examples; Padding needs batches")
        super().__init__(data_stream, False, **kwargs)
        self.mask_sources = data_stream.sources if mask_sources is None else mask_sources
        self.mask_dtype = config.floatX if mask_dtype is None else mask_dtype

    def _default_sources(self) -> tuple[str, ...]:
        names: list[str] = []
        for source in self.data_stream.sources:
            names += [source, source + "_mask"] if source in self.mask_sources else [source]
        return tuple(names)

    def transform_batch(self, batch: Any) -> tuple[Any, ...]:
        filled: list[Any] = []
        for source, values in zip(self.data_stream.sources, batch, strict=False):
            filled += self._padded(source, values) if source in self.mask_sources else [values]
        return tuple(filled)

    def _padded(self, source: str, values: Any) -> list[Any]:
        """Return sequences filled to one length, and their mask."""
        flat, dtype = Flat.of(values), np.asarray(values[0]).dtype
        longest = flat.shapes.max(axis=0)
        wrong = f"source {source!r} holds the shapes {flat.shapes.tolist()}; padded are sequences "
        wrong += "that differ in length only. Name those to pad in mask_sources"
        check(longest.size and (flat.shapes[:, 1:] == longest[1:]).all(), wrong)
        filled, _ = padded(flat, longest.tolist())
        mask = np.arange(longest[0]) < flat.shapes[:, :1]
        return [filled.astype(dtype, copy=False), mask.astype(self.mask_dtype)]


# ---------------------------------------------------------------- windows
class Window(Transformer):
    """Pairs of windows, source and target, that slide over each sequence by one step.

    Parameters
    ----------
    offset : int
        Where the target begins: counted from the beginning of the source if they overlap,
        else from its end.
    source_window, target_window : int
        Their lengths.
    overlapping : bool
    data_stream : AbstractDataStream
        Of examples, with one source.
    target_source : str
        The name of the second source.

    Raises
    ------
    ValueError
        If the stream gives batches, or several sources.
    """

    def __init__(
        self,
        offset: int,
        source_window: int,
        target_window: int,
        overlapping: bool,
        data_stream: Any,
        target_source: str = "targets",
        **kwargs: Any,
    ) -> None:
        one = data_stream.produces_examples and len(data_stream.sources) == 1
        check(one, "windows slide over examples of one source")
        super().__init__(data_stream, True, **kwargs)
        self.sources = (*data_stream.sources, target_source)
        self.source_window, self.target_window = source_window, target_window
        self._shift = offset if overlapping else source_window + offset
        self.sentence: Any = []
        self.index = 0

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        self.sentence = []
        return super().get_epoch_iterator(as_dict=as_dict)

    def get_data(self, request: Any = None) -> tuple[Any, Any]:
        self._take_no_request(request)
        reach = max(self.source_window, self._shift + self.target_window)
        while self.index + reach > len(self.sentence) or not len(self.sentence):
            (self.sentence,) = next(self.child_epoch_iterator)
            self.index = max(0, -self._shift)
        first, second = self.index, self.index + self._shift
        self.index += 1
        return (
            self.sentence[first : first + self.source_window],
            self.sentence[second : second + self.target_window],
        )


class NGrams(Window):
    """Stretches of `ngram_order` symbols, each with the symbol that follows."""

    def __init__(self, ngram_order: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(0, ngram_order, 1, False, *args, **kwargs)

    def get_data(self, request: Any = None) -> tuple[Any, Any]:
        source, target = super().get_data(request)
        return source, target[0]
