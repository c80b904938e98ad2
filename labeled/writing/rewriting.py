"""The sources of a file on their way into another one: what is read, and in which order.

Rows come as they are stored. Where they keep their order they are read in blocks of whole
stored chunks. Chunks that lie across very many rows are laid out as rows first, chunk by
chunk, so that none is decoded twice.

An order maps new positions to old rows and back. Shuffling keeps every split together:
rows change places only with rows that are in the same splits. Where splits are stretches
they stay where they are, and the order is a keyed bijection that takes no memory; where
they are lists, rows are put together by the splits they are in, and most lists become
stretches. ``"splits"`` does only that, in the order that the splits themselves have.

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
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from labeled.errors import SplitError
from labeled.formats.hdf5.own import ATTRIBUTES
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.writing import Coordinate, Names, storable
from labeled.formats.header import FileHeader, Rows, SourceHeader
from labeled.formats.reader import native, read_rows
from labeled.formats.region import Array
from labeled.formats.replacing import explained
from labeled.ragged.flat import Flat, block_cuts, copy_segments, offsets_of
from labeled.samplers.permutation import Permutation, explicit_permutation, key_of
from labeled.writing.inputs import Inputs, coordinate
from labeled.writing.layouts import RaggedAs
from labeled.writing.ragged import Examples, RaggedToWrite, ragged_given
from labeled.writing.source import Block, SourceToWrite, mean_of_texts, slices, text_blocks
from labeled.writing.splits import Splits

IntArray = npt.NDArray[np.int64]
Read = Callable[[int, int], Array]
"""Returns the rows from one to another."""

Lot = tuple[int, Array, IntArray]
"""Consecutive rows as bytes: the number of the first, values one row after another, offsets."""

ORDERS = ("keep", "splits", "shuffle")

BLOCK_BYTES = 4 << 20
"""Rows read at a time, at most."""

BUCKETS_HELD = 2
"""Buckets in memory at a time: blocks may reach over the border of two."""


@dataclass(eq=False)
class StoredSources:
    """The sources of a file, as they are written into another one.

    Parameters
    ----------
    header : FileHeader
    target : str
        Beside which temporary files lie.
    budget : int
        Bytes of memory for what is read and put in order.
    order : Order, optional
        Where rows change places.
    told : callable of int
        Hears how many bytes were put into buckets.
    """

    header: FileHeader
    target: str
    budget: int
    order: Order | None = None
    told: Callable[[int], None] = lambda _: None

    @property
    def block_bytes(self) -> int:
        """What is read at a time."""
        return max(min(BLOCK_BYTES, self.budget // 4), 1)

    def inputs(self, ragged: RaggedAs | None = None) -> Inputs:
        """Return everything to write, in the new order; `ragged` is how examples are stored."""
        given: dict[str, SourceToWrite] = {}
        uneven: dict[str, RaggedToWrite] = {}
        for name, source in self.header.sources.items():
            if source.ragged is None:
                given[name] = self.dense(source)
                continue
            kind: RaggedAs = "flat" if "values" in source.parts else "fuel"
            uneven[name], datasets = ragged_given(name, self.examples(source), None, ragged or kind)
            given |= datasets
        return Inputs(given, ragged=uneven)

    def dense(self, source: SourceHeader) -> SourceToWrite:
        """Return a source of one shape."""
        texts, mean = source.dtype.kind == "O", None
        if texts:
            mean = mean_of_texts(self._reader(source)[0], source.n_rows)
        return SourceToWrite(
            source.name,
            np.dtype(object) if texts else source.dtype,
            source.shape,
            Names(source.dims, tuple(self._coordinates(source))),
            storable(f"source {source.name!r}", source.attrs),
            partial(self._blocks, source, mean),
            mean_bytes=mean,
        )

    def _blocks(self, source: SourceHeader, mean: int | None, rows: int) -> Iterator[Block]:
        """Cut a source into blocks, of whole stored chunks where these are read as they lie."""
        read, step = self._reader(source)
        if self.order is not None:
            read, step = self._moved(source, read, step), 1
        if mean is not None:
            return text_blocks(read, source.n_rows, mean, rows)
        return slices(read, source.n_rows, -(-rows // step) * step)

    def _moved(self, source: SourceHeader, read: Read, step: int) -> Read:
        """Put rows into buckets; return what reads them in the new order."""
        n_rows, row_shape = source.n_rows, source.row_shape
        if source.dtype.kind == "O":
            lots = partial(_lots_of_texts, read, n_rows, self.block_bytes)
            sizes = [np.diff(offsets) for _, _, offsets in lots()]
            texts = self._buckets(np.concatenate([np.empty(0, np.int64), *sizes]), lots())
            return lambda a, b: unpacked_texts(texts(a, b).tobytes()).reshape(b - a, *row_shape)
        rows = max(self.block_bytes // max(source.row_bytes, 1), 1)
        rows = -(-rows // step) * step
        values = self._buckets(source.row_bytes, _lots_of_rows(read, n_rows, rows))
        dtype = native(source.dtype)
        return lambda a, b: values(a, b).view(dtype).reshape(b - a, *row_shape)

    def examples(self, source: SourceHeader) -> Examples:
        """Return a source of examples of different shapes."""
        reader, every = open_ragged(source), range(source.n_rows)
        dtype, shapes = reader.dtype, reader.shapes(every)
        attrs = {k: v for k, v in source.attrs.items() if k not in ATTRIBUTES}

        def flat(start: int, stop: int) -> Flat:
            return reader.read_flat(range(start, stop))

        if self.order is None:
            return Examples(dtype, shapes, source.dims, attrs, lambda a, b: flat(a, b).values)
        lock, filled = threading.Lock(), list[Read]()

        def moved(start: int, stop: int) -> Array:
            with lock:
                if not filled:
                    sizes = reader.sizes(every) * dtype.itemsize
                    lots = _lots_of_examples(flat, sizes, self.block_bytes)
                    filled.append(self._buckets(sizes, lots))
            return filled[0](start, stop).view(dtype)

        shapes = shapes[self.order.old(np.arange(source.n_rows))]
        return Examples(dtype, shapes, source.dims, attrs, moved)

    def _buckets(self, sizes: int | IntArray, lots: Iterator[Lot]) -> Read:
        assert self.order is not None
        buckets = Buckets(self.order, sizes, self.budget, self.target)
        buckets.fill(lots, self.told)
        return buckets.read

    def _reader(self, source: SourceHeader) -> tuple[Read, int]:
        """Return what reads a source within the memory there is, best by multiples of so many rows.

        Rows in chunks across very many of them are laid out in a temporary file, chunk by chunk.
        """
        reader = open_reader(source)
        chunks = None if source.dtype.kind == "O" else source.chunks
        if chunks is None or chunks[0] * source.row_bytes <= self.block_bytes:
            return lambda a, b: read_rows(reader, range(a, b)), 1 if chunks is None else chunks[0]
        n_rows, dtype = source.n_rows, native(source.dtype)
        with _room(self.target, n_rows * source.row_bytes) as file:
            rows: Array = np.memmap(file, dtype, "r+", 0, source.shape)
        steps = [range(0, n, c) for n, c in zip(source.row_shape, chunks[1:], strict=True)]
        for corner in np.ndindex(*map(len, steps)):
            tile = tuple(
                slice(step[i], min(step[i] + step.step, n), 1)
                for step, i, n in zip(steps, corner, source.row_shape, strict=True)
            )
            reader = open_reader(source, region=tile)
            for start in range(0, n_rows, chunks[0]):
                stop = min(start + chunks[0], n_rows)
                rows[(slice(start, stop), *tile)] = read_rows(reader, range(start, stop))
        return lambda a, b: rows[a:b], 1

    def _coordinates(self, source: SourceHeader) -> Iterator[Coordinate]:
        for each in coordinates_of(self.header, source):
            if self.order is not None and each.dim == source.dims[0]:
                moved = each.values[self.order.old(np.arange(len(each.values)))]
                each = replace(each, values=moved)
            yield each


def coordinates_of(header: FileHeader, source: SourceHeader) -> Iterator[Coordinate]:
    """Yield the coordinates along one dim of a source; others are carried over as they are."""
    for name in source.coords:
        variable = header.variables[name]
        if len(variable.dims) == 1:
            values = read_rows(open_reader(variable), range(variable.n_rows))
            kept = values if values.dtype.kind == "O" else values.astype(variable.dtype)
            yield coordinate(name, variable.dims[0], kept, variable.attrs)


class Order(Protocol):
    """Which row goes where."""

    @property
    def n_rows(self) -> int: ...

    def old(self, positions: IntArray) -> IntArray:
        """Return the rows that go to `positions`."""

    def new(self, rows: IntArray) -> IntArray:
        """Return the positions that `rows` go to."""


@dataclass(frozen=True)
class Within:
    """Rows shuffled within stretches; nothing is stored that grows with their number.

    Parameters
    ----------
    edges : tuple of int
        Where stretches begin, and the end of the last.
    seed : int
    """

    edges: tuple[int, ...]
    seed: int

    @property
    def n_rows(self) -> int:
        return self.edges[-1]

    @cached_property
    def _bijections(self) -> list[Permutation]:
        return [
            Permutation(stop - start, key_of(self.seed, "repack", start))
            for start, stop in pairwise(self.edges)
        ]

    def old(self, positions: IntArray) -> IntArray:
        return self._mapped(positions, forward=True)

    def new(self, rows: IntArray) -> IntArray:
        return self._mapped(rows, forward=False)

    def _mapped(self, numbers: IntArray, *, forward: bool) -> IntArray:
        out = np.empty_like(numbers)
        which = np.searchsorted(self.edges, numbers, side="right") - 1
        for stretch in np.unique(which).tolist():
            here = which == stretch
            bijection, start = self._bijections[stretch], self.edges[stretch]
            local = numbers[here] - start
            out[here] = start + bijection(local, inverse=not forward)
        return out


@dataclass(frozen=True, eq=False)
class Listed:
    """Any order, as a list: ``rows[i]`` goes to position i. Sixteen bytes a row."""

    rows: IntArray = field(repr=False)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @cached_property
    def _positions(self) -> IntArray:
        out = np.empty(len(self.rows), np.int64)
        out[self.rows] = np.arange(len(self.rows))
        return out

    def old(self, positions: IntArray) -> IntArray:
        return self.rows[positions]

    def new(self, rows: IntArray) -> IntArray:
        return self._positions[rows]


def order_of(
    kind: str, splits: Mapping[str, Mapping[str, Rows]], n_rows: int, seed: int
) -> Order | None:
    """Return the order to write rows in; None where they keep their own.

    Parameters
    ----------
    kind : {"keep", "splits", "shuffle"}
    splits : mapping of split to mapping of source to rows
    n_rows : int
        Of every source.
    seed : int
        Of a shuffle.

    Raises
    ------
    SplitError
        If the sources of a split do not have the same rows of it.

    Examples
    --------
    >>> order_of("splits", {"a": {"x": np.array([4, 0])}, "b": {"x": np.array([1, 3])}}, 5, 0)
    Listed()
    >>> _.rows.tolist()
    [4, 0, 1, 3, 2]
    """
    if kind == "keep":
        return None
    by_split = {name: _common(name, by_source) for name, by_source in splits.items() if by_source}
    if kind == "shuffle" and all(isinstance(rows, range) for rows in by_split.values()):
        edges = {0, n_rows}
        for rows in by_split.values():
            assert isinstance(rows, range)
            edges |= {rows.start, rows.stop} if len(rows) else set()
        return Within(tuple(sorted(edges)), seed)
    group, place = _groups(by_split, n_rows)
    if kind == "shuffle":
        place = explicit_permutation(n_rows, key_of(seed, "repack"))
    return Listed(np.lexsort((place, group)).astype(np.int64))


def _common(split: str, by_source: Mapping[str, Rows]) -> Rows:
    """Return the rows of a split, which must be the same ones of every source."""
    first, *others = by_source.values()
    for other in others:
        if other is not first and not (
            first == other
            if isinstance(first, range) and isinstance(other, range)
            else np.array_equal(np.asarray(first), np.asarray(other))
        ):
            raise SplitError(
                f"split {split!r} has different rows of its sources {tuple(by_source)}, so no "
                f"order suits all of them; repack with order='keep'"
            )
    return first


def _groups(by_split: Mapping[str, Rows], n_rows: int) -> tuple[IntArray, IntArray]:
    """Return for every row a number for the splits it is in, and its place in the first."""
    group = np.zeros(n_rows, np.int64)
    place = np.arange(n_rows)
    claimed = np.zeros(n_rows, bool)
    for rows in by_split.values():
        inside = np.zeros(n_rows, bool)
        listed = np.asarray(rows, np.int64)
        inside[listed] = True
        group = np.unique(2 * group + ~inside, return_inverse=True)[1].astype(np.int64)
        first = listed[::-1]  # of repeats, the first place counts: it is written last
        fresh = ~claimed[first]
        place[first[fresh]] = np.arange(len(listed) - 1, -1, -1)[fresh]
        claimed |= inside
    return group, place


def moved(splits: Mapping[str, Mapping[str, Rows]], order: Order | None) -> Splits:
    """Return the splits as they are after rows have changed places.

    Stretches and ascending lists mean sets of rows, and ascend again; other lists keep their
    sequence of examples.
    """
    if order is None or isinstance(order, Within):
        return {name: dict(by_source) for name, by_source in splits.items()}
    done: dict[int, Rows] = {}
    out: Splits = {}
    for name, by_source in splits.items():
        out[name] = {}
        for source, rows in by_source.items():
            if id(rows) not in done:  # sources that share a list go on sharing it
                done[id(rows)] = _moved(rows, order)
            out[name][source] = done[id(rows)]
    return out


def _moved(rows: Rows, order: Order) -> Rows:
    listed = np.asarray(rows, np.int64)
    found = order.new(listed)
    if isinstance(rows, range) or bool((np.diff(listed) > 0).all()):
        found = np.sort(found)
    if len(found) and bool((np.diff(found) == 1).all()):
        return range(int(found[0]), int(found[-1]) + 1)
    return found if len(found) else range(0)


# rows in another order than they can be read in: into buckets of a file, and from there


def _room(target: str, n_bytes: int) -> IO[bytes]:
    """Open a file without a name beside a target, with so many bytes set aside.

    Raises
    ------
    WriteError
        If the disk does not have them.
    """
    with explained(target), ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile(dir=os.path.dirname(target)))
        if n_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            os.truncate(file.fileno(), n_bytes)
        stack.pop_all()
        return file


class Buckets:
    """IntArray of one source in a new order; safe in threads.

    Parameters
    ----------
    order : Order
    sizes : int or int64 array (n_rows,)
        Bytes of every row, or of each.
    budget : int
        Bytes of memory for lots and buckets.
    target : str
        Beside which the temporary file lies.
    """

    def __init__(self, order: Order, sizes: int | IntArray, budget: int, target: str) -> None:
        self._order = order
        self._sizes = sizes
        most, n_rows = max(budget // (2 * BUCKETS_HELD + 2), 1), order.n_rows
        if isinstance(sizes, int):
            step = max(most // max(sizes, 1), 1)
            self._edges = np.array([*range(0, n_rows, step), n_rows], np.int64)
            self._begin = self._edges * sizes
        else:
            ordered = sizes[order.old(np.arange(n_rows))]
            self._edges = np.array(block_cuts(ordered, most), np.int64)
            self._begin = offsets_of(ordered)[self._edges]
        self._file = _room(target, int(self._begin[-1]))
        weakref.finalize(self, self._file.close)
        self._target = target
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[Array, IntArray]] = OrderedDict()

    def fill(self, lots: Iterator[Lot], told: Callable[[int], None]) -> None:
        """Take all rows as they come; the first pass."""
        free = self._begin[:-1].copy()
        for start, raw, begins in lots:
            positions = self._order.new(np.arange(start, start + len(begins) - 1))
            bucket = np.searchsorted(self._edges, positions, side="right") - 1
            grouped = np.argsort(bucket, kind="stable")
            values, offsets = self._picked(raw, begins, grouped)
            cuts = np.flatnonzero(np.diff(bucket[grouped], prepend=-1, append=-1))
            for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                number = int(bucket[grouped[a]])
                part = values[offsets[a] : offsets[b]]
                with explained(self._target):
                    self._file.seek(int(free[number]))
                    self._file.write(part.data)
                free[number] += len(part)
            told(len(values))

    def _picked(self, values: Array, offsets: IntArray, which: IntArray) -> tuple[Array, IntArray]:
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

    def _bucket(self, number: int) -> tuple[Array, IntArray]:
        with self._lock:
            if number in self._held:
                self._held.move_to_end(number)
                return self._held[number]
            while len(self._held) >= BUCKETS_HELD:
                self._held.popitem(last=False)
            self._held[number] = found = self._in_order(number)
            return found

    def _in_order(self, number: int) -> tuple[Array, IntArray]:
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


def _lots_of_rows(read: Read, n_rows: int, step: int) -> Iterator[Lot]:
    """Read rows of one shape, so many at a time, as bytes."""
    for start in range(0, n_rows, step):
        rows = np.ascontiguousarray(read(start, min(start + step, n_rows)))
        raw = rows.reshape(-1).view(np.uint8)
        size = len(raw) // max(len(rows), 1)
        yield start, raw, np.arange(len(rows) + 1) * size


def _lots_of_texts(read: Read, n_rows: int, most: int) -> Iterator[Lot]:
    """Read texts, about `most` bytes at a time: each row's one by one, each after its length."""
    for block in text_blocks(read, n_rows, 1, most):
        assert block.read is not None
        packed = [packed_texts(row) for row in block.read()]
        sizes = np.array(list(map(len, packed)), np.int64)
        yield block.start, np.frombuffer(b"".join(packed), np.uint8), offsets_of(sizes)


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


def _lots_of_examples(
    read: Callable[[int, int], Flat], sizes: IntArray, most: int
) -> Iterator[Lot]:
    """Read examples of different shapes, at most `most` bytes at a time, as bytes."""
    cuts = block_cuts(sizes, most)
    for start, stop in pairwise(cuts):
        flat = read(start, stop)
        raw = np.ascontiguousarray(flat.values).view(np.uint8)
        yield start, raw, offsets_of(sizes[start:stop])
