"""The sources of a file on their way into another one: what is read, and in which order.

Rows come as they are stored. Where they keep their order they are read in blocks of whole
stored chunks. Chunks that lie across very many rows are laid out as rows first, chunk by
chunk, so that none is decoded twice.

Another order takes two passes. In the first, rows are read as they lie and put into *buckets*,
each a stretch of the new order; a bucket is a region of one temporary file. In the second, a
bucket at a time is brought into memory and put in order there. Every row is read once, written
once and read once more, always in long stretches, however large the source is. The temporary
file has no name, so that nothing of it stays behind whatever happens.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import IO, Any

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
from labeled.formats.replacing import explained
from labeled.ragged.flat import Flat, Rows, block_cuts, copy_segments, offsets_of
from labeled.writing.given import Block, Given, mean_of_texts, text_blocks
from labeled.writing.inputs import Inputs, coordinate
from labeled.writing.layouts import AS_IT_IS, Wish, kept_layout
from labeled.writing.ordering import Kept, Order
from labeled.writing.ragged import Examples, RaggedAs, RaggedGiven, ragged_given

Told = Callable[[int], None]

BLOCK_BYTES = 4 << 20
"""Rows read at a time, at most."""


BUCKETS_HELD = 2
"""Buckets in memory at a time: blocks may reach over the border of two."""


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
            uneven[name], datasets = ragged_given(
                name, self._examples(source), None, self.ragged or kind
            )
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

    def _examples(self, source: SourceHeader) -> Examples:
        reader, all_rows = open_ragged(source), range(source.n_rows)
        dtype, shapes = reader.dtype, reader.shapes(all_rows)
        attrs = {k: v for k, v in source.attrs.items() if k not in ATTRIBUTES}

        def flat(start: int, stop: int) -> Flat:
            return reader.read_flat(range(start, stop))

        if isinstance(self.order, Kept):
            return Examples(
                dtype, shapes, source.dims, attrs, lambda start, stop: flat(start, stop).values
            )
        lock, filled = threading.Lock(), list[Buckets]()

        def moved(start: int, stop: int) -> Array:
            with lock:
                if not filled:
                    sizes = reader.sizes(all_rows) * dtype.itemsize
                    lots = lots_of_examples(flat, sizes, self.block_bytes)
                    filled.append(self.filled(sizes, lots))
            return filled[0].read(start, stop).view(dtype)

        shapes = shapes[self.order.old(np.arange(source.n_rows))]
        return Examples(dtype, shapes, source.dims, attrs, moved)

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


# rows in another order than they can be read in: into buckets of a file, and from there


@contextmanager
def room(target: str, n_bytes: int) -> Iterator[IO[bytes]]:
    """Open a file without a name beside a target, with so many bytes set aside.

    Raises
    ------
    WriteError
        If the disk does not have them.
    """
    with explained(target), tempfile.TemporaryFile(dir=os.path.dirname(target)) as file:
        if n_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            os.truncate(file.fileno(), n_bytes)
        yield file


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """Some consecutive rows as bytes: values one row after another, and where each begins."""

    start: int
    values: Array
    """uint8."""
    offsets: Rows


class Buckets:
    """Rows of one source in a new order; safe in threads.

    Parameters
    ----------
    order : Order
    sizes : int or int64 array (n_rows,)
        Bytes of every row, or of each.
    budget : int
        Bytes of memory for lots and buckets.
    target : str
        Beside which the temporary file lies.
    stack : ExitStack
        Gives the disk back when it is closed.
    """

    def __init__(
        self, order: Order, sizes: int | Rows, budget: int, target: str, stack: ExitStack
    ) -> None:
        self._order = order
        self._sizes = sizes
        self._edges = self._cut(max(budget // (2 * BUCKETS_HELD + 2), 1))
        self._begin = self._byte_edges()
        self._file = stack.enter_context(room(target, int(self._begin[-1])))
        self._target = target
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[Array, Rows]] = OrderedDict()

    def _cut(self, most: int) -> Rows:
        """Return the positions at which buckets begin, and the end."""
        n_rows = self._order.n_rows
        if isinstance(self._sizes, int):
            step = max(most // max(self._sizes, 1), 1)
            return np.array([*range(0, n_rows, step), n_rows], np.int64)
        sizes = self._sizes[self._order.old(np.arange(n_rows))]
        return np.array(block_cuts(sizes, most), np.int64)

    def _byte_edges(self) -> Rows:
        if isinstance(self._sizes, int):
            return self._edges * self._sizes
        sizes = self._sizes[self._order.old(np.arange(self._order.n_rows))]
        return offsets_of(sizes)[self._edges]

    def fill(self, lots: Iterator[Lot], told: Told) -> None:
        """Take all rows as they come; the first pass."""
        free = self._begin[:-1].copy()
        for lot in lots:
            n_rows = len(lot.offsets) - 1
            positions = self._order.new(np.arange(lot.start, lot.start + n_rows))
            bucket = np.searchsorted(self._edges, positions, side="right") - 1
            grouped = np.argsort(bucket, kind="stable")
            values, offsets = self._picked(lot.values, lot.offsets, grouped)
            cuts = np.flatnonzero(np.diff(bucket[grouped], prepend=-1, append=-1))
            for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                number = int(bucket[grouped[a]])
                part = values[offsets[a] : offsets[b]]
                with explained(self._target):
                    self._file.seek(int(free[number]))
                    self._file.write(part.data)
                free[number] += len(part)
            told(len(values))

    def _picked(self, values: Array, offsets: Rows, which: Rows) -> tuple[Array, Rows]:
        """Put rows in another order."""
        if isinstance(self._sizes, int):
            rows = values.reshape(len(which), self._sizes)[which]
            return rows.reshape(-1), offsets
        sizes = np.diff(offsets)[which]
        out, places = np.empty(len(values), np.uint8), offsets_of(sizes)
        copy_segments(out, places[:-1], values, offsets[:-1][which], sizes)
        return out, places

    def read(self, start: int, stop: int) -> Array:
        """Return the bytes of the rows at positions `start` to `stop`; the second pass."""
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        parts, at = [], start
        while at < stop:
            values, offsets = self._bucket(first)
            low, high = int(self._edges[first]), int(self._edges[first + 1])
            end = min(stop, high)
            parts.append(values[offsets[at - low] : offsets[end - low]])
            at, first = end, first + 1
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])

    def _bucket(self, number: int) -> tuple[Array, Rows]:
        with self._lock:
            if number in self._held:
                self._held.move_to_end(number)
                return self._held[number]
            while len(self._held) >= BUCKETS_HELD:
                self._held.popitem(last=False)
            self._held[number] = found = self._in_order(number)
            return found

    def _in_order(self, number: int) -> tuple[Array, Rows]:
        low, high = int(self._edges[number]), int(self._edges[number + 1])
        begin, end = int(self._begin[number]), int(self._begin[number + 1])
        with explained(self._target):
            self._file.seek(begin)
            values = np.frombuffer(self._file.read(end - begin), np.uint8)
        rows = self._order.old(np.arange(low, high))
        came = np.argsort(rows, kind="stable")  # rows came in the order of the file
        back = np.empty_like(came)
        back[came] = np.arange(len(came))
        if isinstance(self._sizes, int):
            return self._picked(values, np.arange(len(rows) + 1) * self._sizes, back)
        return self._picked(values, offsets_of(self._sizes[rows[came]]), back)


# rows and bytes


def lots_of_rows(read: Callable[[int, int], Array], n_rows: int, step: int) -> Iterator[Lot]:
    """Read rows of one shape, so many at a time, as bytes."""
    for start in range(0, n_rows, step):
        rows = np.ascontiguousarray(read(start, min(start + step, n_rows)))
        raw = rows.reshape(-1).view(np.uint8)
        size = len(raw) // max(len(rows), 1)
        yield Lot(start, raw, np.arange(len(rows) + 1) * size)


def lots_of_texts(
    read: Callable[[int, int], Array], n_rows: int, most: int, step: int
) -> Iterator[Lot]:
    """Read texts, about `most` bytes at a time: each row's one by one, each after its length."""
    for block in text_blocks(read, n_rows, 1, most, step=step):
        assert block.read is not None
        packed = [packed_texts(row) for row in block.read()]
        sizes = np.array(list(map(len, packed)), np.int64)
        yield Lot(block.start, np.frombuffer(b"".join(packed), np.uint8), offsets_of(sizes))


def packed_texts(row: Any) -> bytes:
    """Return the texts of a row as bytes.

    Examples
    --------
    >>> unpacked_texts(packed_texts("é") + packed_texts("ab")).tolist()
    [b'\\xc3\\xa9', b'ab']
    """
    out = []
    for text in np.asarray(row, object).reshape(-1).tolist():
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
        out += [len(raw).to_bytes(8, "little"), raw]
    return b"".join(out)


def unpacked_texts(raw: bytes) -> Array:
    """Return the texts that were packed, as bytes."""
    out, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 8], "little")
        out.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    texts = np.empty(len(out), object)
    texts[:] = out
    return texts


def lots_of_examples(read: Callable[[int, int], Flat], sizes: Rows, most: int) -> Iterator[Lot]:
    """Read examples of different shapes, at most `most` bytes at a time, as bytes."""
    cuts = block_cuts(sizes, most)
    for start, stop in pairwise(cuts):
        flat = read(start, stop)
        raw = np.ascontiguousarray(flat.values).view(np.uint8)
        yield Lot(start, raw, offsets_of(sizes[start:stop]))
