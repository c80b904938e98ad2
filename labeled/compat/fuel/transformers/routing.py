"""Transformers that leave values alone: choose, name and join sources; filter; fetch ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labeled.compat.fuel.exceptions import OldKeyError, OldValueError
from labeled.compat.fuel.streams import AbstractDataStream
from labeled.compat.fuel.transformers.base import AgnosticTransformer, Transformer, log


class Filter(Transformer):
    """Keeps the items (examples or whole batches) for which a function is true.

    Items are tuples, also where dicts are asked for: the old rule.
    """

    def __init__(self, data_stream: Any, predicate: Callable[[Any], Any], **kwargs: Any) -> None:
        if data_stream.axis_labels:
            kwargs.setdefault("axis_labels", data_stream.axis_labels)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)
        self.predicate = predicate

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        super().get_epoch_iterator(as_dict=as_dict)
        return filter(self.predicate, self.child_epoch_iterator)


class FilterSources(AgnosticTransformer):
    """Keeps some sources, in the order of the stream. Items become lists: the old rule.

    Raises
    ------
    OldValueError
        If the stream lacks one.
    """

    def __init__(self, data_stream: Any, sources: Any, **kwargs: Any) -> None:
        unknown = [name for name in sources if name not in data_stream.sources]
        if unknown:
            raise OldValueError(f"there are no sources {unknown}, but {data_stream.sources}")
        if data_stream.axis_labels:
            labels = {k: v for k, v in data_stream.axis_labels.items() if k in sources}
            kwargs.setdefault("axis_labels", labels)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)
        self.sources = tuple(name for name in data_stream.sources if name in sources)

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
    OldKeyError
        If an old name is not there, or two sources would have one name.
    OldValueError
        If `on_non_existent` is something else.
    """

    def __init__(
        self,
        data_stream: Any,
        names: Mapping[str, str],
        on_non_existent: str = "raise",
        **kwargs: Any,
    ) -> None:
        if on_non_existent not in ("raise", "ignore", "warn"):
            raise OldValueError(
                f"on_non_existent is 'raise', 'ignore' or 'warn', found {on_non_existent!r}"
            )
        missing = [name for name in names if name not in data_stream.sources]
        if missing and on_non_existent == "raise":
            raise OldKeyError(f"there are no sources {missing}, but {data_stream.sources}")
        if missing and on_non_existent == "warn":
            log.warning("there are no sources %s to rename, but %s", missing, data_stream.sources)
        renamed = tuple(names.get(name, name) for name in data_stream.sources)
        if len(set(renamed)) < len(renamed):
            raise OldKeyError(f"by {dict(names)} two sources would have one name: {renamed}")
        if data_stream.axis_labels:
            labels = {names.get(k, k): v for k, v in data_stream.axis_labels.items()}
            kwargs.setdefault("axis_labels", labels)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)
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
    OldValueError
        If names are missing, or streams are of both kinds.
    """

    def __init__(
        self, data_streams: Sequence[Any], sources: Sequence[str], axis_labels: Any = None
    ) -> None:
        super().__init__(axis_labels=axis_labels)
        kinds = {stream.produces_examples for stream in data_streams}
        if len(kinds) > 1:
            raise OldValueError("streams of examples and streams of batches cannot be merged")
        self.data_streams = data_streams
        self.produces_examples = data_streams[0].produces_examples
        n_sources = sum(len(stream.sources) for stream in data_streams)
        if n_sources != len(sources):
            raise OldValueError(f"{len(sources)} names are given for {n_sources} sources")
        self.sources = sources

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
        if request is not None:
            raise OldValueError(f"Merge takes no requests, found {request!r}")
        found = [next(iterator) for iterator in self.child_epoch_iterators]
        return tuple(values for item in found for values in item)


class _EpochEnd:
    """Stands in the queue where an epoch ends."""


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
        if data_stream.axis_labels:
            kwargs.setdefault("axis_labels", data_stream.axis_labels)
        super().__init__(data_stream, data_stream.produces_examples, **kwargs)
        self._items: queue.Queue[Any] = queue.Queue(max_store)
        self._failure: _Failure | None = None
        self.background = threading.Thread(
            target=_fetch, args=(data_stream, self._items), daemon=True, name="labeled-fuel"
        )
        self.background.start()

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        return AbstractDataStream.get_epoch_iterator(self, as_dict=as_dict)

    def get_data(self, request: Any = None) -> Any:
        if request is not None:
            raise OldValueError(f"MultiProcessing takes no requests, found {request!r}")
        item = self._items.get() if self._failure is None else self._failure
        if item is _EpochEnd:
            raise StopIteration
        if isinstance(item, _Failure):
            self._failure = item  # nothing comes after it
            raise item.error
        return item


class _Failure:
    """An error of the stream behind, to be raised where data is asked for."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _fetch(stream: Any, items: queue.Queue[Any]) -> None:
    try:
        for epoch in stream.iterate_epochs():
            for item in epoch:
                items.put(item)
            items.put(_EpochEnd)
    except Exception as error:  # of the stream, whatever it is
        items.put(_Failure(error))
