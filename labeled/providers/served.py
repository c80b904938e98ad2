"""Providers over the loader: whatever it can read, handed out as data and labels.

One plan is made when the provider is made, and each loop runs a loader of its own over it:
loops share readers, and nothing that moves, so they may be nested or run side by side (each
within the `memory` given). Loop number k, counted from the first one begun, is epoch k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any, Literal

import numpy as np

from labeled._validation import check_keywords
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource
from labeled.device import Array, Device, reshape
from labeled.errors import LoaderError
from labeled.loader.batches.batch import Batch
from labeled.loader.build import make_loader
from labeled.loader.loader import Loader
from labeled.loader.request.arguments import flag, integer
from labeled.loader.request.casts import can_hold
from labeled.loader.request.options import Shuffle
from labeled.providers.batch import (
    BatchAxis,
    DataBatch,
    batch_axis_of,
    filled,
    moved_axis,
    moved_order,
)
from labeled.providers.protocol import Provided
from labeled.samplers.order import stretch
from labeled.samplers.sampled import moved
from labeled.selection import Selection
from labeled.spaces import Space, space_of


@dataclass(frozen=True)
class Feed:
    """One array of a batch, and the source that it comes from.

    Parameters
    ----------
    name : str
        What consumers call it.
    source : str
        What the loader calls it.
    is_label : bool
    shape : tuple of int, optional
        Lengths of one sample as handed out, where they differ from the source's.
    dims : tuple of str, optional
        Names of all axes as handed out, the batch axis first.
    made : dtype, optional
        The pipeline makes it, of this dtype, so that the source has another shape.
    """

    name: str
    source: str
    is_label: bool = False
    shape: tuple[int, ...] | None = None
    dims: tuple[str, ...] | None = None
    made: np.dtype[Any] | None = None


@dataclass(frozen=True, eq=False)
class Serving:
    """How a provider serves its sources; the keywords that all of them share.

    `pipeline` changes batches on their way, as for :meth:`labeled.Dataset.batches`.

    Parameters
    ----------
    batch_size : int
        0 takes all samples at once.
    shuffle, seed, part, window_rows, memory, threads, prefetch, errors, max_lost, device
        As for :meth:`labeled.Dataset.batches`.
    data_padding, label_padding : scalar
        Fill what a last batch lacks.
    roll_over : bool
        Fill it with samples of the same epoch instead, beginning at its first one.
    axes : {"first", "last"}
        Where the batch axis of what is handed out stands.
    dtype, scale, shift
        As for :meth:`labeled.Dataset.batches`, by source.
    """

    batch_size: int = 0
    shuffle: Shuffle = False
    seed: int | None = None
    part: tuple[int, int] = (0, 1)
    window_rows: int | None = None
    data_padding: Any = 0
    label_padding: Any = 0
    roll_over: bool = False
    axes: BatchAxis = "first"
    memory: float | str | None = None
    threads: int | None = None
    prefetch: int | None = None
    dtype: Any = None
    scale: Any = None
    shift: Any = None
    pipeline: Any = None
    errors: Literal["raise", "skip"] = "raise"
    max_lost: int | float | None = None
    device: str | Device = "cpu"

    def __post_init__(self) -> None:
        if flag("roll_over", self.roll_over) and self.errors == "skip":
            raise LoaderError(
                "errors='skip' leaves rows out, so that a last batch is not filled up with others: "
                "pad it instead (roll_over=False, round_batch=False)"
            )


def serving_of(whose: str, options: Mapping[str, Any]) -> Serving:
    """Return options as a :class:`Serving`; the message names the nearest of an unknown one."""
    known = [one.name for one in fields(Serving) if one.name != "pipeline"]  # it changes shapes
    check_keywords(whose, options, known)
    return Serving(**options)


class LoaderProvider:
    """Sources served by a loader, as a :class:`~labeled.providers.DataProvider`.

    Attributes
    ----------
    seed : int
        What every epoch's order is drawn from; chosen once when not given.
    """

    def __init__(
        self,
        sources: Mapping[str, AnySource],
        selections: Mapping[str, Selection],
        feeds: Sequence[Feed],
        serving: Serving,
    ) -> None:
        self._serving = serving
        self._axes = batch_axis_of(serving.axes)
        self._feeds = _checked_feeds(feeds)
        used = {feed.source: sources[feed.source] for feed in feeds}
        self._n_rows = _n_rows(used, selections)
        self.batch_size = _batch_size(serving.batch_size, self._n_rows)
        self._shapes = {f.name: _shape_of(f, used[f.source]) for f in feeds}
        self._dims = {
            f.name: moved_order(_dims_of(f, used[f.source], self._shapes[f.name]), self._axes)
            for f in feeds
        }
        self._plan = self._loader(used, selections).plan
        self._check_padding(used)
        self._epoch = 0
        self._idle: Loader | None = None
        self._turn = Lock()

    def _loader(
        self, sources: Mapping[str, AnySource], selections: Mapping[str, Selection]
    ) -> Loader:
        s = self._serving
        return make_loader(
            sources,
            {name: selections[name] for name in sources},
            _spaces(sources, self._n_rows),
            self._n_rows,
            self.batch_size,
            shuffle=s.shuffle,
            seed=s.seed,
            last="wrap" if s.roll_over else "keep",
            memory=s.memory,
            part=s.part,
            window_rows=s.window_rows,
            dtype=s.dtype,
            scale=s.scale,
            shift=s.shift,
            threads=s.threads,
            prefetch=s.prefetch,
            pipeline=s.pipeline,
            errors=s.errors,
            max_lost=s.max_lost,
            device=s.device,
        )

    def _check_padding(self, sources: Mapping[str, AnySource]) -> None:
        """Refuse a padding that the dtype handed out cannot hold, where one will be needed."""
        whole = self._serving.roll_over or not self.n_samples % self.batch_size
        for feed in () if whole else self._feeds:
            source, dtype = sources[feed.source], self._dtype_of(feed, sources[feed.source])
            if not can_hold(dtype, self._padding(feed)):
                raise LoaderError(
                    f"{source.where}: {self._padding(feed)!r} is no value of dtype {dtype}, and a "
                    "last batch would be padded with it; give data_padding or label_padding"
                )

    def _dtype_of(self, feed: Feed, source: AnySource) -> np.dtype[Any]:
        """Return the dtype of what is handed out."""
        if feed.made is not None:
            return feed.made
        change = self._plan.finish.changes.get(feed.source)
        made = None if change is None else np.float64 if change.scaled else change.dtype
        return source.dtype if made is None else np.dtype(made)

    def _padding(self, feed: Feed) -> Any:
        return self._serving.label_padding if feed.is_label else self._serving.data_padding

    # what is provided

    @property
    def seed(self) -> int:
        return self._plan.epoch_plan.order.seed

    @property
    def provide_data(self) -> list[Provided]:
        """Names and shapes of the data, batch axis included."""
        return self._provided(is_label=False)

    @property
    def provide_label(self) -> list[Provided]:
        """Names and shapes of the labels, batch axis included."""
        return self._provided(is_label=True)

    def _provided(self, *, is_label: bool) -> list[Provided]:
        return [
            (feed.name, moved_order((self.batch_size, *self._shapes[feed.name]), self._axes))
            for feed in self._feeds
            if feed.is_label == is_label
        ]

    @property
    def n_samples(self) -> int:
        """Samples of an epoch of this part."""
        index, parts = self._plan.epoch_plan.part
        start, stop = stretch(self._n_rows, index, parts)
        return stop - start

    def __len__(self) -> int:
        """Batches of an epoch of this part; those that ``errors="skip"`` empties are left out."""
        if self._serving.roll_over:
            return self._plan.epoch_plan.n_batches
        return -(-self.n_samples // self.batch_size)

    # loops

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin the next epoch; loops that are still running go on."""
        with self._turn:
            epoch, self._epoch = self._epoch, self._epoch + 1
            loader, self._idle = self._idle, None
        if loader is None or loader.epoch != epoch:
            plan = moved(self._plan.epoch_plan, epoch)
            loader = Loader(replace(self._plan, epoch_plan=plan))
        return self._batches(loader)

    def __iter__(self) -> Iterator[DataBatch]:
        return self.eachbatch()

    def _batches(self, loader: Loader) -> Iterator[DataBatch]:
        skips = self._serving.errors == "skip"
        try:
            with iter(loader) as batches:
                # fewer where a pipeline left out all rows of a batch
                for number, batch in zip(range(len(self)), batches, strict=False):
                    left = self.n_samples - number * self.batch_size
                    if batch.count or not skips:
                        yield self._handed_out(batch, min(max(left, 0), batch.count))
        finally:
            self._idle = loader  # whose memory the next loop takes over

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_idle": None, "_turn": None}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved, _turn=Lock())

    def _handed_out(self, batch: Batch, n_real: int) -> DataBatch:
        rows = np.full(self.batch_size, -1, np.int64)
        rows[: len(batch.rows)] = batch.rows
        arrays = {
            feed.name: self._laid_out(feed, batch.arrays[feed.source]) for feed in self._feeds
        }
        labels = {feed.name for feed in self._feeds if feed.is_label}
        return DataBatch(
            {name: array for name, array in arrays.items() if name not in labels},
            {name: array for name, array in arrays.items() if name in labels},
            n_real,
            rows,
            self._axes,
            self._dims,
        )

    def _laid_out(self, feed: Feed, array: Array) -> Array:
        shape = self._shapes[feed.name]
        if tuple(array.shape[1:]) != shape:
            array = reshape(array, (len(array), *shape))
        return moved_axis(filled(array, self.batch_size, self._padding(feed)), self._axes)

    def __repr__(self) -> str:
        named = ", ".join(f"{name} {shape}" for name, shape in self.provide_data)
        labels = ", ".join(f"{name} {shape}" for name, shape in self.provide_label) or "none"
        return (
            f"<labeled.providers.{type(self).__name__}: {len(self)} batches of "
            f"{self.batch_size} samples; data {named}; labels {labels}>"
        )


def _checked_feeds(feeds: Sequence[Feed]) -> tuple[Feed, ...]:
    names = [feed.name for feed in feeds]
    for name in names:
        if not isinstance(name, str):
            raise LoaderError(f"the name {name!r} of an array is no str")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LoaderError(f"the name {twice[0]!r} is given twice among data and labels {names}")
    if all(feed.is_label for feed in feeds):
        raise LoaderError("a provider needs at least one array of data")
    return tuple(feeds)


def _n_rows(sources: Mapping[str, AnySource], selections: Mapping[str, Selection]) -> int:
    """Return how many samples there are, the same in every source."""
    counts = {name: len(selections[name]) for name in sources}
    if len(set(counts.values())) > 1:
        raise LoaderError(f"data and labels hold different numbers of samples: {counts}")
    return next(iter(counts.values()))


def _batch_size(asked: Any, n_rows: int) -> int:
    size = integer("batch_size", asked, least=0) or n_rows
    if not size:
        raise LoaderError("there are no samples to take at once; give a batch_size")
    return size


def _shape_of(feed: Feed, source: AnySource) -> tuple[int, ...]:
    """Return the lengths of one sample as handed out."""
    if feed.made is not None and feed.shape is not None:
        return feed.shape
    if isinstance(source, RaggedSource):
        raise LoaderError(f"{source.where}: {source.ragged}, and a provider has one shape for all")
    if feed.shape is None:
        return source.row_shape
    if math.prod(feed.shape) != math.prod(source.row_shape):
        raise LoaderError(
            f"{source.where}: a sample of shape {source.row_shape} does not fit {feed.shape}, "
            f"which was asked for {feed.name!r}"
        )
    return feed.shape


def _dims_of(feed: Feed, source: AnySource, shape: tuple[int, ...]) -> tuple[str, ...]:
    if feed.dims is not None:
        return feed.dims
    if shape == source.row_shape:
        return source.dims
    return ("batch", *(f"{feed.name}_{axis}" for axis in range(1, len(shape) + 1)))


def _spaces(sources: Mapping[str, AnySource], n_rows: int) -> dict[str, Space]:
    return {
        name: space_of(source.dims, (n_rows, *source.row_shape), source.dtype, name=name)
        for name, source in sources.items()
        if source.dtype.kind not in "OSU" and not isinstance(source, RaggedSource)
    }
