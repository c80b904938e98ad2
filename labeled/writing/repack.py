"""``labeled.repack``: the same rows in other chunks, another codec, another order.

Values go from file to file as they are stored, with their names, coordinates, attributes,
splits and provenance, and so does whatever else the file holds. What is not asked for stays
as it is. Before the new file takes its name its rows are read back and compared with those of
the original.

Rows that keep their order are read in blocks of whole stored chunks. Chunks that lie across very
many rows are laid out as rows first, chunk by chunk, so that none is decoded twice.

Another order takes two passes. In the first, rows are read as they lie and put into *buckets*,
each a stretch of the new order; a bucket is a region of one temporary file. In the second, a
bucket at a time is brought into memory and put in order there. Every row is read once, written
once and read once more, always in long stretches, however large the source is. The temporary
file has no name, so that nothing of it stays behind whatever happens.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import IO, Any, Unpack

import numpy as np
import numpy.typing as npt

from labeled._validation import check_arguments
from labeled.display.progress import progress_bar
from labeled.errors import ArrayError, SplitError, WriteError, warn
from labeled.formats.bytesource import check_same
from labeled.formats.hdf5.encoding import Layout, checksum
from labeled.formats.hdf5.extras import extras_of
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.metadata import ATTRIBUTES, datasets_of
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.writing import Coordinate, Names, storable
from labeled.formats.header import FileHeader, SourceHeader
from labeled.formats.reader import native, read_rows
from labeled.formats.region import Array
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import check_target, explained
from labeled.ragged.flat import Flat, block_cuts, copy_segments, offsets_of
from labeled.writing.inputs import Inputs, coordinate
from labeled.writing.layouts import (
    AS_IT_IS,
    AS_STORED,
    RaggedAs,
    StorageKeywords,
    Wish,
    expanded,
    kept_layout,
    wishes,
)
from labeled.writing.packing import Plan, fitting
from labeled.writing.ragged import Examples, RaggedToWrite, ragged_to_write
from labeled.writing.source import Block, SourceToWrite, mean_of_texts, slices, text_blocks
from labeled.writing.splits import ORDERS, Order, Splits, moved, order_of
from labeled.writing.verify import reader_of
from labeled.writing.write import Planned, check_ending, checked_effort

IntArray = npt.NDArray[np.int64]
Read = Callable[[int, int], Array]
"""Returns rows start to stop."""

Lot = tuple[int, Array, IntArray]
"""Consecutive rows as bytes: the number of the first, values one row after another, offsets."""

PROVENANCE = "labeled_provenance"

BLOCK_BYTES = 4 << 20
"""Rows read at a time, at most."""

BUCKETS_HELD = 2
"""Buckets in memory at a time: blocks may reach over the border of two."""


@check_arguments(but=("path",), options=AS_STORED)
def repack(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ragged: RaggedAs | None = None,
    order: str = "keep",
    seed: int = 0,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    allow_external: bool = False,
    verify: bool = True,
    **options: Unpack[StorageKeywords],
) -> str:
    """Write a file of examples again, stored differently.

    Parameters
    ----------
    path, target : path
        An HDF5 file, and where the new one goes; the same path replaces the file, with
        `overwrite`.
    layout, compression, level, chunks
        As for :func:`labeled.write`, for all sources or by source, also by patterns such as
        ``data/demo_*/x``. What is not given stays as it is, but for codecs that cannot be
        written here: gzip takes their place.
    ragged : {"flat", "fuel"}, optional
        How examples of different shapes are stored.
    order : {"keep", "splits", "shuffle"}
        "splits" puts the rows of each split together, in its own order, so that lists of rows
        become stretches. "shuffle" also shuffles rows, but only among those that are in the
        same splits. Both need two passes over the rows and, beside the target, disk space
        for the largest source.
    seed : int
        Of a shuffle; the same seed gives the same file.
    dims : mapping of source to names, optional
        Names of all axes, in place of those in the file; also by patterns.
    allow_external : bool
        Read what the file has in other files, and put it into the new one; only for files that
        you trust.
    overwrite : bool
        Replace a file that is at `target`.
    verify : bool
        Read both files once more, and compare them, before the new one takes its name.
    progress, memory, threads
        As for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the new file.

    Raises
    ------
    ArrayError, SplitError, UnknownNameError
        If the options do not fit the file; before anything is written.
    WriteError
        If the file cannot be written, or differs from the original; nothing is left behind.
    NotYetError
        If the file holds what cannot be carried over (references, data in other files, sources
        of its split table that cannot be opened); the message names it.

    Warns
    -----
    LabeledWarning
        If rows change places, and datasets that belong to no source are as long, or programs
        that read the old file will not read the new one: those of pandas, PyTables and netCDF.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> path = labeled.write(path, {"x": np.arange(6)}, {"a": [5, 0], "b": [1, 2, 3]}, chunks=1)
    >>> path = labeled.repack(path, path, layout="contiguous", order="splits", overwrite=True)
    >>> labeled.open_dataset(path)["x"].values
    array([5, 0, 1, 2, 3, 4])
    """
    if order not in ORDERS:
        raise ArrayError(f"order={order!r} must be one of {ORDERS}")
    check_hdf5(path, "repacking")
    check_ending(target)
    storage = replace(AS_STORED, **options)
    dims = _dims_by_name(path, dims or {}, allow_external)
    header = scan(path, dims=dims, decode_cf=False, allow_external=allow_external)
    effort = checked_effort(storage.memory, storage.threads)
    budget = effort[0]
    extras = extras_of(header)
    table = None if header.kind != "fuel" else header.splits
    moves = order_of(order, table or {}, _n_rows(header, order), seed)
    wished = wishes(list(header.sources), storage, AS_IT_IS)
    found = check_target(target, overwrite=storage.overwrite)
    _warn_of_readers(header, found)
    stored = StoredSources(header, found, budget // 6, moves)
    inputs = stored.inputs(ragged)
    layouts = _layouts(header, inputs, wished)
    splits = None if table is None else moved(table, moves)
    plan = fitting(Plan.of(inputs, layouts, splits, effort), storage.memory)
    plan = replace(plan, budget=plan.reserved + max(plan.budget - plan.reserved, 0) // 3)
    n_bytes = (1 + verify) * (1 + (moves is not None)) * (inputs.n_bytes or 0)
    with progress_bar(storage.progress, n_bytes, f"repack {os.path.basename(found)}") as advance:
        stored.advance = advance
        attrs = storable("the file", _attrs(header, order, seed))
        order_now = None if moves is None else moves.old
        extras = replace(extras, order=order_now, budget=budget // 4)
        new = Planned(plan, splits, attrs, header.kind != "plain", extras=extras)
        check = partial(_check, stored, ragged, splits, verify)
        new.create(found, advance, overwrite=storage.overwrite, check=check)
    return found


def _layouts(header: FileHeader, inputs: Inputs, wished: Mapping[str, Wish]) -> dict[str, Layout]:
    """Return how every dataset will be stored."""
    stored = {
        name: dataset
        for source in header.sources.values()
        if source.ragged is None or "values" in source.parts
        for name, dataset in datasets_of(source).items()
    }
    return {
        name: kept_layout(
            name, given.shape, given.dtype, wished.get(name, AS_IT_IS), stored.get(name)
        )
        for name, given in inputs.sources.items()
    }


def _dims_by_name(
    path: str | os.PathLike[str],
    dims: Mapping[str, Sequence[str | None]],
    allow_external: bool,
) -> dict[str, Sequence[str | None]] | None:
    """Return names of axes by source, where they are given by patterns; None without any."""
    if not any("*" in name for name in dims):
        return dict(dims) or None
    header = scan(path, decode_cf=False, allow_external=allow_external, quiet=True)
    return expanded("dims", dims, header.sources)


def _warn_of_readers(header: FileHeader, target: str) -> None:
    """Tell which programs will not read the new file, though they read the old one."""
    ragged = [name for name, source in header.sources.items() if source.ragged is not None]
    if "PYTABLES_FORMAT_VERSION" in header.attrs:
        warn(
            f"{header.stamp.path!r} is a file of PyTables or pandas, which will not read all of "
            f"{target!r}: columns of tables are datasets of their own there, axes have names; keep "
            f"the original for them"
        )
    elif ragged and header.stamp.path.endswith((".nc", ".nc4")):
        warn(
            f"the netCDF library will not open {target!r}: it does not know how {ragged} with "
            f"examples of different shapes are kept there; h5py and labeled do"
        )


def _n_rows(header: FileHeader, order: str) -> int:
    counts = {name: source.n_rows for name, source in header.sources.items()}
    if order != "keep" and len(set(counts.values())) > 1:
        raise SplitError(
            f"the sources of {header.stamp.path!r} have different numbers of rows: {counts}; "
            f"another order needs them to agree"
        )
    return next(iter(counts.values()), 0)


def _attrs(header: FileHeader, order: str, seed: int) -> dict[str, Any]:
    """Return the attributes of the file; a new order is added to where the data comes from."""
    attrs = dict(header.attrs)
    if order == "keep":
        return attrs
    try:
        known = json.loads(str(attrs.get(PROVENANCE, "{}")))
    except ValueError:
        known = {"before": str(attrs[PROVENANCE])}
    done = {"order": order} | ({"seed": seed} if order == "shuffle" else {})
    known["repacked"] = [*known.get("repacked", []), done]
    return {**attrs, PROVENANCE: json.dumps(known, sort_keys=True)}


# the new file against the old one


def _check(
    stored: StoredSources, ragged: RaggedAs | None, splits: Splits | None, compare: bool, part: str
) -> None:
    """Compare the new file with the original, before it takes its name.

    Raises
    ------
    WriteError
        If they differ; names source and rows.
    FileChangedError
        If somebody changed the original meanwhile.
    """
    old = stored.header
    check_same(old.stamp, "repack it again")
    new = scan(part, decode_cf=False)
    for name, source in old.sources.items():
        there = new.sources.get(name)
        if there is None or _looks(there) != _looks(source):
            raise WriteError(
                f"source {name!r} of {stored.target!r} would be {there and _looks(there)} in place "
                f"of {_looks(source)}; the original is untouched"
            )
        if compare:
            _check_rows(stored, replace(old, sources={name: source}), ragged, datasets_of(there))
    for split, by_source in (splits or {}).items():
        for name, rows in by_source.items():
            found = new.splits.get(split, {}).get(name, range(0))
            if not np.array_equal(np.asarray(found), np.asarray(rows)):
                raise WriteError(
                    f"split {split!r} of source {name!r} did not arrive in {stored.target!r}; the "
                    f"original is untouched"
                )


def _check_rows(
    stored: StoredSources,
    header: FileHeader,
    ragged: RaggedAs | None,
    written: Mapping[str, SourceHeader],
) -> None:
    """Read a source once more, in the new order, and compare it with what was written."""
    for name, given in replace(stored, header=header).inputs(ragged).sources.items():
        read = reader_of(written[name])
        for block in given.blocks(max(stored.block_bytes // max(given.row_bytes, 1), 1)):
            assert block.read is not None
            rows, found = block.read(), read(range(block.start, block.stop))
            if rows.dtype.kind != "O":
                rows = rows.astype(found.dtype, copy=False)
            if checksum(rows) != checksum(found):
                raise WriteError(
                    f"source {name!r} of {stored.target!r} differs from the original within rows "
                    f"{block.start} to {block.stop - 1}; the disk or memory may be damaged, and "
                    f"the original is untouched"
                )
            stored.advance(rows.nbytes)


def _looks(source: SourceHeader) -> tuple[Any, ...]:
    dtype = open_ragged(source).dtype if source.ragged is not None else source.dtype
    return source.dims, source.shape, dtype.str


# the sources of a file on their way into another one


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
    advance : callable of int
        Hears how many bytes were put into buckets.
    """

    header: FileHeader
    target: str
    budget: int
    order: Order | None = None
    advance: Callable[[int], None] = lambda _: None

    @property
    def block_bytes(self) -> int:
        """What is read at a time."""
        return max(min(BLOCK_BYTES, self.budget // 4), 1)

    def inputs(self, ragged: RaggedAs | None = None) -> Inputs:
        """Return everything to write, in the new order; `ragged` is how examples are stored."""
        given: dict[str, SourceToWrite] = {}
        raggeds: dict[str, RaggedToWrite] = {}
        for name, source in self.header.sources.items():
            if source.ragged is None:
                given[name] = self.dense(source)
                continue
            kind: RaggedAs = "flat" if "values" in source.parts else "fuel"
            raggeds[name], datasets = ragged_to_write(
                name, self.examples(source), None, ragged or kind
            )
            given |= datasets
        return Inputs(given, ragged=raggeds)

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
        buckets.fill(lots, self.advance)
        return buckets.read

    def _reader(self, source: SourceHeader) -> tuple[Read, int]:
        """Return what reads a source within the budget, and how many rows are best read together.

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
    """The rows of one source in a new order, in a temporary file; safe in threads.

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

    def fill(self, lots: Iterator[Lot], advance: Callable[[int], None]) -> None:
        """Take all rows in file order: the first pass."""
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
            advance(len(values))

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
