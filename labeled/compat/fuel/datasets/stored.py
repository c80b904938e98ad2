"""Rows of one dataset of a file, read by this library where that is possible.

What lies on a disk and is open for reading only is read by byte range, outside HDF5;
files in memory, or open for writing, are read through their handle. Either way a list of
rows is read in file order, each row once, and put into the order asked for.

A file is judged when it is opened; after it is closed and opened again it is judged anew.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.catalog.loading import load_rows
from labeled.catalog.source import Source
from labeled.formats.bytesource import FileRef, stamp_of
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.layout import dtype_of, layout_of
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.header import FileStamp, SourceHeader
from labeled.formats.objects import vlen_base
from labeled.formats.reading import UNSTORED, failed
from labeled.formats.region import Ints
from labeled.selection import Selection

AHEAD_BYTES = 1 << 22
"""What is read at once where requests follow one another."""

SHARED_BYTES = 1 << 25
"""From this size on, reading is shared among threads; what must be decoded, always."""


STRAIGHT_BYTES = 1 << 16
"""From this size on, a run is read by itself where that takes one call."""

LISTED_CHUNKS = 1 << 16
"""Chunks whose places are listed at most, eight bytes each."""


class Straight:
    """Runs of rows in chunks that lie one behind another: one call each, no planning.

    Files that were written in order are like that, but for a gap now and then.
    """

    def __init__(self, header: SourceHeader) -> None:
        self._header, self._file = header, FileRef(header.file)
        self._row_bytes, self._row_shape = header.row_bytes, header.row_shape
        self._dtype = header.dtype
        self._chunk_rows = header.shape[0] if header.chunks is None else header.chunks[0]

    @cached_property
    def _starts(self) -> list[int] | None:
        return _chunk_starts(self._header)

    def read(self, start: int, stop: int) -> Any:
        """Return rows, or None where they do not lie together."""
        if self._starts is None:
            return None
        a, b = start // self._chunk_rows, (stop - 1) // self._chunk_rows
        first, last = self._starts[a], self._starts[b]
        if first == UNSTORED or last - first != (b - a) * self._chunk_rows * self._row_bytes:
            return None
        out = np.empty((stop - start, *self._row_shape), self._dtype)
        file = self._file()
        file.check()
        try:
            file.read_into(out, first + (start - a * self._chunk_rows) * self._row_bytes)
        except (OSError, EOFError) as fault:
            raise failed(self._header, start, stop, fault) from fault
        return out


def _chunk_starts(header: SourceHeader) -> list[int] | None:
    """Return where the chunks (or all rows) begin, if their bytes are those of rows."""
    n = header.n_rows
    if not n or header.filters or not header.dtype.isnative or not header.row_bytes:
        return None
    if header.storage == "contiguous" and header.offset is not None:
        return [header.offset]
    if header.storage != "chunked" or header.chunks is None:
        return None
    n_chunks = -(-n // header.chunks[0])
    if header.chunks[1:] != header.row_shape or n_chunks > LISTED_CHUNKS:
        return None
    starts: list[int] = chunk_index(header).find(np.arange(n_chunks))[0].tolist()
    return starts


class Stretch(NamedTuple):
    """Rows that were read ahead, those before `given` handed out already."""

    start: int
    given: int
    values: Any


class StoredRows:
    """Rows of an array in a file; indexed as old code indexed datasets.

    Parameters
    ----------
    dataset : h5py.Dataset
    header : SourceHeader, optional
        How to reach its bytes; without it they are read through `dataset`.
    """

    def __init__(self, dataset: h5py.Dataset, header: SourceHeader | None) -> None:
        self.dataset = dataset
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype
        self._source = None if header is None else Source.of((header,))
        self._reader: Any = None if self._source is None else self._source.reader()
        self._row_bytes = 1 if header is None else max(header.row_bytes, 1)
        self._ahead_rows = AHEAD_BYTES // self._row_bytes
        self._ahead = Stretch(0, -1, None)
        self._straight = None if header is None else Straight(header)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, request: Any) -> Any:
        """Return the rows of a slice, or one row without its axis.

        Where a request begins at the row behind the last one, more is read at once; what is
        returned is then a view of that, and no row of it is handed out twice.
        """
        if self._reader is None:
            return self.dataset[request]
        if not isinstance(request, slice):
            if request != self._ahead.given:
                self._ahead = Stretch(0, request + 1, None)
                found = (
                    None if self._straight is None else self._straight.read(request, request + 1)
                )
                return self.dataset[request] if found is None else found[0]
            return self._stretch(request, request + 1)[0]
        start, stop, step = request.indices(len(self))
        return self._stretch(start, stop) if step == 1 else self._read(range(start, stop, step))

    def _stretch(self, start: int, stop: int) -> Any:
        straight, n_bytes = self._straight, (stop - start) * self._row_bytes
        if straight is not None and STRAIGHT_BYTES <= n_bytes < SHARED_BYTES:
            values = straight.read(start, stop)
            if values is not None:
                self._ahead = Stretch(0, stop, None)
                return values
        ahead = self._ahead  # taken once: another thread may put another in its place
        if ahead.given != start or stop - start >= self._ahead_rows:
            self._ahead = Stretch(0, stop, None)
            return self._read(range(start, stop))
        if ahead.values is None or stop > ahead.start + len(ahead.values):
            some = self._read(range(start, min(start + self._ahead_rows, len(self))))
            ahead = Stretch(start, start, some)
        self._ahead = Stretch(ahead.start, stop, ahead.values)
        return ahead.values[start - ahead.start : stop - ahead.start]

    def take_rows(self, rows: Ints) -> Any:
        """Return listed rows, in any order and as often as they are listed."""
        n = len(rows)
        if n and rows[-1] - rows[0] == n - 1 and (n == 1 or bool((np.diff(rows) == 1).all())):
            return self[int(rows[0]) : int(rows[-1]) + 1]
        if self._reader is None:
            return _from_handle(self.dataset, rows)
        return self._read(rows)

    def _read(self, rows: range | Ints) -> Any:
        source = self._source
        assert source is not None, "asked for only where there is a reader"
        n_bytes = len(rows) * source.row_bytes
        if n_bytes >= SHARED_BYTES or (source.layout.dear and n_bytes >= AHEAD_BYTES // 2):
            values = load_rows(source, Selection.of(rows), min(4, os.cpu_count() or 1))
        else:
            values = self._reader.read(rows)
        return values.astype(self.dtype, copy=False)


class RaggedRows:
    """Examples of different lengths; `shapes` tells what they are, where the file does.

    Parameters
    ----------
    dataset : h5py.Dataset
        Rows of variable length.
    shapes : h5py.Dataset, optional
    header : SourceHeader, optional
        As of :class:`StoredRows`.
    """

    def __init__(
        self, dataset: h5py.Dataset, shapes: h5py.Dataset | None, header: SourceHeader | None
    ) -> None:
        self.dataset, self.shapes = dataset, shapes
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype
        self._reader = None if header is None else open_ragged(header)

    def __getitem__(self, request: Any) -> Any:
        """Return an object array of examples, or one example, each in its own shape."""
        if isinstance(request, slice):
            return self.take_rows(np.arange(*request.indices(self.shape[0])))
        return self.take_rows(np.array([request]))[0]

    def take_rows(self, rows: Ints) -> Any:
        """Return an object array of listed examples, in any order."""
        if self._reader is not None:
            return self._reader.read_flat(rows).examples()
        examples = _from_handle(self.dataset, rows)
        if self.shapes is not None:
            shapes = _from_handle(self.shapes, rows)
            for place, shape in enumerate(shapes.tolist()):
                examples[place] = examples[place].reshape(shape)
        return examples


def stored_rows(file: h5py.File, name: str, ragged: bool) -> StoredRows | RaggedRows:
    """Return the rows of a dataset of an open file.

    Parameters
    ----------
    ragged : bool
        The dataset has a scale called ``shapes``.
    """
    dataset = file[name]
    stamp = _stamp(file)
    shapes = dataset.dims[0]["shapes"] if ragged else None
    if ragged or vlen_base(dataset.dtype) is not None:
        header = None if stamp is None else _header(dataset, name, stamp, shapes)
        return RaggedRows(dataset, shapes, header)
    header = None if stamp is None else _header(dataset, name, stamp)
    if header is not None and (
        header.storage not in ("contiguous", "chunked", "empty") or header.dtype.hasobject
    ):
        header = None
    return StoredRows(dataset, header)


def shapes_within(file: h5py.File, name: str, rows: Any) -> Any:
    """Return the shapes of some examples of a source with the scale ``shapes``."""
    return StoredRows(file[name].dims[0]["shapes"], None).take_rows(np.asarray(rows, np.int64))


def _stamp(file: h5py.File) -> FileStamp | None:
    """Return which file this is, if its bytes are those on a disk; None otherwise."""
    if file.mode != "r" or file.driver not in ("sec2", "stdio"):
        return None
    return stamp_of(file.filename) if os.path.isfile(file.filename) else None


def _header(
    dataset: h5py.Dataset, name: str, stamp: FileStamp, shapes: h5py.Dataset | None = None
) -> SourceHeader:
    n_axes = dataset.ndim if shapes is None else 1 + shapes.shape[1]
    parts = {}
    if shapes is not None:
        parts["shapes"] = _header(shapes, "shapes", stamp)
    return SourceHeader(
        file=stamp,
        name=name,
        key=dataset.name,
        shape=dataset.shape,
        dtype=dtype_of(dataset),
        dims=tuple(f"axis {axis}" for axis in range(n_axes)),
        ragged=None if vlen_base(dataset.dtype) is None else "rows of variable length",
        parts=parts,
        **layout_of(dataset, dataset.name),
    )


def _from_handle(dataset: h5py.Dataset, rows: Ints) -> Any:
    """Read listed rows through HDF5: ascending, each once."""
    wanted, places = np.unique(rows, return_inverse=True)
    return dataset[wanted][places]
