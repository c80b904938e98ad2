"""``labeled.repack``: the same rows in other chunks, another codec, another order.

Values go from file to file as they are stored, with their names, coordinates, attributes,
splits and provenance, and so does whatever else the file holds. What is not asked for stays
as it is. Before the new file takes its name its rows are read back and compared with the checksums
of those of the original.

Rows that keep their order are read in blocks of whole stored chunks. Chunks that lie across very
many rows are laid out as rows first, chunk by chunk, so that none is decoded twice.

Another order takes two passes. In the first, rows are read as they lie and put where they go in a
mapped temporary file; in the second they are read from there. The file has no name, so that nothing
of it stays behind whatever happens.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from labeled._validation import check_arguments
from labeled.display.progress import progress_bar
from labeled.errors import ArrayError, SplitError, WriteError
from labeled.formats.bytesource import check_same
from labeled.formats.hdf5.extras import extras_of
from labeled.formats.hdf5.filters import Layout
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.metadata import ATTRIBUTES, datasets_of, read_checksums
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
    Storage,
    StorageKeywords,
    Wish,
    expanded,
    kept_layout,
    wishes,
)
from labeled.writing.packing import PackingPlan, fitting
from labeled.writing.ragged import Examples, RaggedToWrite, ragged_to_write
from labeled.writing.source import Block, SourceToWrite, mean_of_texts, slices, text_blocks
from labeled.writing.splits import ORDERS, RowOrder, Splits, order_of
from labeled.writing.verify import differences_of
from labeled.writing.write import Planned, check_ending, checked_effort

IntArray = npt.NDArray[np.int64]
Read = Callable[[int, int], Array]
"""Returns rows start to stop."""

BLOCK_BYTES = 4 << 20
"""Rows read at a time, at most."""


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
        Read the new file back, and compare its rows with what was read, before it takes its name.
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
        If rows change places, and datasets that belong to no source are as long.

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
    table: Splits | None = None
    if header.kind == "fuel":
        table = {split: dict(by) for split, by in header.splits.items()}
    moves = order_of(order, table or {}, _n_rows(header, order), seed)
    budget, n_threads = checked_effort(storage.memory, storage.threads)
    found = check_target(target, overwrite=storage.overwrite)
    stored = StoredSources(header, found, budget // 6, moves)
    if table is not None and moves is not None:
        table = {
            split: {name: moves.moved(rows) for name, rows in by.items()}
            for split, by in table.items()
        }
    check = partial(_check, stored, verify, n_threads)
    passes = 1 + verify + (moves is not None)
    return rewrite(stored, stored.inputs(ragged), table, storage, check, "repack", passes)


def rewrite(
    stored: StoredSources,
    inputs: Inputs,
    table: Splits | None,
    storage: Storage,
    check: Callable[[str], None],
    title: str,
    passes: int = 1,
    counted: Callable[[Mapping[str, int]], Splits | None] | None = None,
) -> str:
    """Write the rows of a file, or more, into a new file with whatever else the file holds.

    Parameters
    ----------
    inputs : Inputs
        Rows of `stored`, alone or followed by others.
    table : mapping, optional
        The split table.
    check : callable of a path
        Has the last word on the new file before it takes its name.
    title : str
        What the progress bar says of the file.
    passes : int
        How often the bytes of all rows are reported.
    counted : callable of numbers of rows, optional
        Returns the split table, where these are not known before.
    """
    header, order = stored.header, stored.order
    effort = checked_effort(storage.memory, storage.threads)
    wished = wishes(list(header.sources), storage, AS_IT_IS)
    plan = PackingPlan.of(inputs, _layouts(header, inputs, wished), table, effort)
    plan = fitting(plan, storage.memory)
    plan = replace(plan, budget=plan.reserved + max(plan.budget - plan.reserved, 0) // 3)
    extras = replace(
        extras_of(header),
        order=None if order is None else order.rows.__getitem__,
        budget=effort[0] // 4,
    )
    attrs = storable("the file", header.attrs)
    new = Planned(plan, table, attrs, header.kind != "plain", extras=extras, counted=counted)
    n_bytes = None if inputs.n_bytes is None else passes * inputs.n_bytes
    name = os.path.basename(stored.target)
    with progress_bar(storage.progress, n_bytes, f"{title} {name}") as advance:
        stored.advance = advance
        new.create(stored.target, advance, overwrite=storage.overwrite, check=check)
    return stored.target


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


def _n_rows(header: FileHeader, order: str) -> int:
    counts = {name: source.n_rows for name, source in header.sources.items()}
    if order != "keep" and len(set(counts.values())) > 1:
        raise SplitError(
            f"the sources of {header.stamp.path!r} have different numbers of rows: {counts}; "
            f"another order needs them to agree"
        )
    return next(iter(counts.values()), 0)


def _check(stored: StoredSources, compare: bool, threads: int, part: str) -> None:
    """Compare the new file with the original, before it takes its name.

    Raises
    ------
    WriteError
        If they differ; names source and rows.
    FileChangedError
        If somebody changed the original meanwhile.
    """
    check_same(stored.header.stamp, "repack it again")
    new = scan(part, decode_cf=False).sources
    for name, source in stored.header.sources.items():
        there = new.get(name)
        if there is None or _looks(there) != _looks(source):
            raise WriteError(
                f"source {name!r} of {stored.target!r} would be {there and _looks(there)} in place "
                f"of {_looks(source)}; the original is untouched"
            )
    if compare:
        datasets = {k: v for name in new for k, v in datasets_of(new[name]).items()}
        most = stored.block_bytes // threads
        for first in differences_of(datasets, read_checksums(part), threads, stored.advance, most):
            raise WriteError(
                f"{stored.target!r} differs from the original ({first}); the disk or memory may be "
                f"damaged, and the original is untouched"
            )


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
    order : RowOrder, optional
        Where rows change places.
    advance : callable of int
        Hears how many bytes were put into buckets.
    """

    header: FileHeader
    target: str
    budget: int
    order: RowOrder | None = None
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
        """Return what reads rows in the new order."""
        n_rows, row_shape = source.n_rows, source.row_shape
        if source.dtype.kind == "O":
            packed = partial(_packed_texts, read, n_rows, self.block_bytes)
            sizes = np.fromiter((len(row) for rows in packed() for row in rows), np.int64, n_rows)
            lots = ((len(rows), np.frombuffer(b"".join(rows), np.uint8)) for rows in packed())
            values, edges = self._placed(sizes, lots)

            def texts(start: int, stop: int) -> Array:
                out = np.empty((stop - start, *row_shape), object)
                for row, (a, b) in enumerate(pairwise(edges[start : stop + 1])):
                    out[row] = pickle.loads(values[a:b].data)  # of no file that others can write
                return out

            return texts
        rows = -(-max(self.block_bytes // max(source.row_bytes, 1), 1) // step) * step
        cuts = pairwise([*range(0, n_rows, rows), n_rows])
        lots = ((b - a, np.ascontiguousarray(read(a, b))) for a, b in cuts)
        values, edges = self._placed(np.full(n_rows, source.row_bytes), lots)
        dtype = native(source.dtype)
        return lambda a, b: values[edges[a] : edges[b]].view(dtype).reshape(b - a, *row_shape)

    def _placed(self, sizes: IntArray, lots: Iterator[tuple[int, Array]]) -> tuple[Array, IntArray]:
        """Put the bytes of rows, which come in file order, where they go in a temporary file.

        Returns the mapped file, and where the rows in the new order begin in it.
        """
        assert self.order is not None
        edges, row = offsets_of(sizes[self.order.rows]), 0
        values = _room(self.target, int(edges[-1]))
        for n_rows, rows in lots:
            raw, some = rows.reshape(-1).view(np.uint8), slice(row, row + n_rows)
            starts = offsets_of(sizes[some])[:-1]
            copy_segments(values, edges[self.order.positions[some]], raw, starts, sizes[some])
            row += n_rows
            self.advance(len(raw))
        return values, edges

    def examples(self, source: SourceHeader) -> Examples:
        """Return a source of examples of different shapes."""
        reader, every = open_ragged(source), range(source.n_rows)
        dtype, shapes = reader.dtype, reader.shapes(every)
        attrs = {k: v for k, v in source.attrs.items() if k not in ATTRIBUTES}

        def flat(start: int, stop: int) -> Flat:
            return reader.read_flat(range(start, stop))

        if self.order is None:
            return Examples(dtype, shapes, source.dims, attrs, lambda a, b: flat(a, b).values)
        lock, filled = threading.Lock(), list[tuple[Array, IntArray]]()

        def moved(start: int, stop: int) -> Array:
            with lock:
                if not filled:
                    sizes = reader.sizes(every) * dtype.itemsize
                    cuts = pairwise(block_cuts(sizes, self.block_bytes))
                    filled.append(
                        self._placed(sizes, ((b - a, flat(a, b).values) for a, b in cuts))
                    )
            values, edges = filled[0]
            return values[edges[start] : edges[stop]].view(dtype)

        return Examples(dtype, shapes[self.order.rows], source.dims, attrs, moved)

    def _reader(self, source: SourceHeader) -> tuple[Read, int]:
        """Return what reads a source within the budget, and how many rows are best read together.

        Rows in chunks across very many of them are laid out in a temporary file, chunk by chunk.
        """
        reader = open_reader(source)
        chunks = None if source.dtype.kind == "O" else source.chunks
        if chunks is None or chunks[0] * source.row_bytes <= self.block_bytes:
            return lambda a, b: read_rows(reader, range(a, b)), 1 if chunks is None else chunks[0]
        n_rows, dtype = source.n_rows, native(source.dtype)
        room = _room(self.target, n_rows * source.row_bytes)
        rows: Array = room.view(dtype).reshape(source.shape)
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
                each = replace(each, values=each.values[self.order.rows])
            yield each


def coordinates_of(header: FileHeader, source: SourceHeader) -> Iterator[Coordinate]:
    """Yield the coordinates along one dim of a source; others are carried over as they are."""
    for name in source.coords:
        variable = header.variables[name]
        if len(variable.dims) == 1:
            values = read_rows(open_reader(variable), range(variable.n_rows))
            kept = values if values.dtype.kind == "O" else values.astype(variable.dtype)
            yield coordinate(name, variable.dims[0], kept, variable.attrs)


def _room(target: str, n_bytes: int) -> Array:
    """Map a file without a name beside a target, with so many bytes set aside.

    Raises
    ------
    WriteError
        If the disk does not have them.
    """
    if not n_bytes:
        return np.empty(0, np.uint8)
    with explained(target), tempfile.TemporaryFile(dir=os.path.dirname(target)) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        return np.asarray(np.memmap(file, np.uint8, "r+", shape=(n_bytes,)))


def _packed_texts(read: Read, n_rows: int, most: int) -> Iterator[list[bytes]]:
    """Read texts, about `most` bytes at a time; yield rows as bytes."""
    for block in text_blocks(read, n_rows, 1, most):
        assert block.read is not None
        yield [pickle.dumps(row) for row in block.read()]
