"""The sources of a file on their way into another one: what is read, and in which order.

Rows come as they are stored. Where they keep their order they are read in blocks of whole
stored chunks; in another order they pass through :mod:`.spilling`. Chunks that lie across
very many rows are laid out as rows first, chunk by chunk, so that none is decoded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from labeled.formats.hdf5.encoding import Layout
from labeled.formats.hdf5.flatlayout import ATTRIBUTES, datasets_of
from labeled.formats.hdf5.payload import open_reader
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.scales import Coordinate, Names
from labeled.formats.hdf5.writing import storable
from labeled.formats.header import FileHeader, SourceHeader
from labeled.formats.reading import native
from labeled.formats.region import Array
from labeled.ragged import RaggedReader
from labeled.writing.given import Block, Given, mean_of_texts, text_blocks
from labeled.writing.inputs import Inputs, coordinate
from labeled.writing.layouts import AS_IT_IS, Wish, kept_layout
from labeled.writing.ordering import Kept, Order
from labeled.writing.ragged import RaggedAs, RaggedGiven, ragged_given
from labeled.writing.spilling import (
    Buckets,
    lots_of_examples,
    lots_of_rows,
    lots_of_texts,
    room,
    unpacked_texts,
)

Told = Callable[[int], None]

BLOCK_BYTES = 4 << 20
"""Rows read at a time, at most."""


@dataclass(eq=False)
class Rewriting:
    """The sources of a file on their way into another one."""

    header: FileHeader
    order: Order
    wished: Mapping[str, Wish]
    ragged: RaggedAs | None
    budget: int
    target: str
    stack: ExitStack
    told: Told = lambda _: None

    @property
    def block_bytes(self) -> int:
        """What is read at a time."""
        return max(min(BLOCK_BYTES, self.budget // 4), 1)

    @cached_property
    def inputs(self) -> Inputs:
        """Everything to write, in the new order."""
        given: dict[str, Given] = {}
        uneven: dict[str, RaggedGiven] = {}
        for name, source in self.header.sources.items():
            if source.ragged is None:
                given[name] = self._dense(source)
                continue
            kind: RaggedAs = "flat" if "values" in source.parts else "fuel"
            examples = _Examples(self, source)
            uneven[name], datasets = ragged_given(name, examples, None, self.ragged or kind)
            given |= datasets
        return Inputs(given, ragged=uneven)

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """How every dataset will be stored."""
        stored = {k: v for s in self.header.sources.values() for k, v in datasets_of(s).items()}
        out = {}
        for name, given in self.inputs.sources.items():
            wish = self.wished.get(name, AS_IT_IS)
            source = self.header.sources.get(name)
            alike = source is None or source.ragged is None or "values" in source.parts
            before = stored.get(name) if alike else None
            out[name] = kept_layout(name, given.shape, given.dtype, wish, before)
        return out

    def _dense(self, source: SourceHeader) -> Given:
        texts = source.dtype.kind == "O"
        return Given(
            source.name,
            np.dtype(object) if texts else source.dtype,
            source.shape,
            Names(source.dims, tuple(coordinates_of(self.header, source, self.order))),
            storable(f"source {source.name!r}", source.attrs),
            partial(self._blocks, source),
            mean_bytes=self._mean_of_texts(source) if texts else None,
        )

    def _mean_of_texts(self, source: SourceHeader) -> int:
        return mean_of_texts(self.reader_of(source).read, source.n_rows)

    def _blocks(self, source: SourceHeader, rows: int) -> Iterator[Block]:
        """Cut a source into blocks, of whole stored chunks where these are read as they lie."""
        stretch = self.reader_of(source)
        step = rows
        if isinstance(self.order, Kept):
            step = -(-rows // stretch.step) * stretch.step if stretch.step > 1 else rows
            read = stretch.read
        else:
            read = self._shuffled(source, stretch)
        if source.dtype.kind == "O":
            mean = self._mean_of_texts(source)
            yield from text_blocks(read, source.n_rows, mean, rows, step=stretch.step)
            return
        for start in range(0, source.n_rows, step):
            stop = min(start + step, source.n_rows)
            yield Block(start, stop, partial(read, start, stop))

    def _shuffled(self, source: SourceHeader, stretch: Stretch) -> Callable[[int, int], Array]:
        most = self.block_bytes
        if source.dtype.kind == "O":
            begin = partial(lots_of_texts, stretch.read, source.n_rows, most, stretch.step)
            sizes = np.concatenate([np.empty(0, np.int64)] + [np.diff(x.offsets) for x in begin()])
            buckets = self.filled(sizes, begin())
            return partial(_texts, buckets, source.row_shape)
        step = max(most // max(source.row_bytes, 1), 1)
        step = -(-step // stretch.step) * stretch.step
        lots = lots_of_rows(stretch.read, source.n_rows, step)
        buckets = self.filled(source.row_bytes, lots)
        return partial(_rows, buckets, native(source.dtype), source.row_shape)

    def filled(self, sizes: Any, lots: Any) -> Buckets:
        """Return all rows in buckets of the new order."""
        buckets = Buckets(self.order, sizes, self.budget, self.target, self.stack)
        buckets.fill(lots, self.told)
        return buckets

    def reader_of(self, source: SourceHeader) -> Stretch:
        """Return what reads a source in stretches, within the memory there is."""
        reader = open_reader(source)
        chunks = None if source.dtype.kind == "O" else source.chunks
        if chunks is not None and chunks[0] * source.row_bytes > self.block_bytes:
            return Stretch(self._turned(source, chunks), 1)
        return Stretch(lambda a, b: reader.read(range(a, b)), 1 if chunks is None else chunks[0])

    def _turned(self, source: SourceHeader, chunks: tuple[int, ...]) -> Callable[[int, int], Array]:
        """Lay rows out that are stored in chunks across very many of them: chunk by chunk."""
        n_rows, dtype = source.n_rows, native(source.dtype)
        file = self.stack.enter_context(room(self.target, n_rows * source.row_bytes))
        rows: Array = np.memmap(file, dtype, "r+", 0, source.shape)
        steps = [range(0, n, c) for n, c in zip(source.row_shape, chunks[1:], strict=True)]
        for corner in np.ndindex(*map(len, steps)):
            tile = tuple(
                slice(step[i], min(step[i] + step.step, n))
                for step, i, n in zip(steps, corner, source.row_shape, strict=True)
            )
            region = tuple(slice(part.start, part.stop, 1) for part in tile)
            reader = open_reader(source, region=region)
            for start in range(0, n_rows, chunks[0]):
                stop = min(start + chunks[0], n_rows)
                rows[(slice(start, stop), *tile)] = reader.read(range(start, stop))
        return lambda a, b: rows[a:b]


def coordinates_of(header: FileHeader, source: SourceHeader, order: Order) -> Iterator[Coordinate]:
    """Yield the coordinates along one dim of a source; others are carried over as they are."""
    for name in source.coords:
        variable = header.variables[name]
        if len(variable.dims) != 1:
            continue
        values = open_reader(variable).read(range(variable.n_rows))
        (dim,) = variable.dims
        if dim == source.dims[0]:
            values = values[order.old(np.arange(len(values)))]
        kept = values if values.dtype.kind == "O" else values.astype(variable.dtype)
        yield coordinate(name, dim, kept, variable.attrs)


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Reads consecutive rows; best by multiples of `step`."""

    read: Callable[[int, int], Array]
    step: int


def _rows(
    buckets: Buckets, dtype: np.dtype[Any], row_shape: tuple[int, ...], start: int, stop: int
) -> Array:
    return buckets.read(start, stop).view(dtype).reshape(stop - start, *row_shape)


def _texts(buckets: Buckets, row_shape: tuple[int, ...], start: int, stop: int) -> Array:
    texts = unpacked_texts(buckets.read(start, stop).tobytes())
    return texts.reshape(stop - start, *row_shape)


class _Examples:
    """The examples of a source in the new order; follows ``Examples``."""

    def __init__(self, rewriting: Rewriting, source: SourceHeader) -> None:
        self._rewriting = rewriting
        self._source = source
        self._reader = open_ragged(source)
        self.dims = source.dims
        self.dtype = self._reader.dtype
        self.attrs = {k: v for k, v in source.attrs.items() if k not in ATTRIBUTES}

    @cached_property
    def shapes(self) -> Any:
        rows = self._rewriting.order.old(np.arange(self._source.n_rows))
        return self._reader.shapes(range(self._source.n_rows))[rows]

    @cached_property
    def _buckets(self) -> Buckets:
        sizes = self._reader.sizes(range(self._source.n_rows)) * self.dtype.itemsize
        read = partial(_flat, self._reader)
        lots = lots_of_examples(read, sizes, self._rewriting.block_bytes)
        return self._rewriting.filled(sizes, lots)

    def values(self, start: int, stop: int) -> Array:
        if isinstance(self._rewriting.order, Kept):
            return self._reader.read_flat(range(start, stop)).values
        return self._buckets.read(start, stop).view(self.dtype)


def _flat(reader: RaggedReader, start: int, stop: int) -> Any:
    return reader.read_flat(range(start, stop))
