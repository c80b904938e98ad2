"""Where the chunks of a dataset are: one compact table, built in one pass, kept a while.

HDF5 visits a million chunks in two seconds when asked once (`chunk_iter`), and in days when
asked chunk by chunk. The table keeps 12 bytes a chunk: offset and stored size, by chunk number
(C order over the grid of chunks). Chunk numbers are kept too where so many chunks were never
written that a full table would be larger.

Tables are shared by all readers of a file through a process-wide cache of bounded size.
Every offset is checked against the size of the file here, before anything is read.
"""

from __future__ import annotations

import math
import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.bytesource import open_bytes
from labeled.formats.hdf5.safety import h5_of
from labeled.formats.header import FileStamp, SourceHeader
from labeled.formats.reader import UNSTORED, describe
from labeled.formats.region import Array, Ints

CACHE_BYTES = 128 * 1024 * 1024
"""Tables kept in memory, all together; the one in use always is."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Offsets and stored sizes of the chunks of one dataset.

    Attributes
    ----------
    grid : tuple of int
        Chunks along each axis.
    offsets : uint64 array
    sizes : uint32 array (uint64 where a chunk needs it)
    masks : uint32 array or None
        Bit i set: filter i was not applied to that chunk. None where all were.
    numbers : int64 array or None
        The chunk number of each entry, ascending; None where entry i is chunk i.
    """

    grid: tuple[int, ...]
    offsets: Array
    sizes: Array
    masks: Array | None
    numbers: Ints | None

    @property
    def nbytes(self) -> int:
        held = (self.offsets, self.sizes, self.masks, self.numbers)
        return sum(column.nbytes for column in held if column is not None)

    def entry(self, number: int) -> tuple[int, int, int]:
        """Return the offset (-1 if it was never written), size and filter mask of one chunk."""
        if self.numbers is not None:
            entry = int(self.numbers.searchsorted(number))
            if entry == len(self.numbers) or self.numbers[entry] != number:
                return UNSTORED, 0, 0
            number = entry
        mask = 0 if self.masks is None else int(self.masks[number])
        return self.offsets.item(number), self.sizes.item(number), mask

    def find(self, numbers: Ints) -> tuple[Ints, Ints, Ints]:
        """Return offsets (-1 where a chunk was never written), sizes and filter masks."""
        if self.numbers is None:
            entries, stored = numbers, None
        else:
            entries = np.searchsorted(self.numbers, numbers)
            entries = np.minimum(entries, max(len(self.numbers) - 1, 0))
            stored = self.numbers[entries] == numbers if len(self.numbers) else None
            if stored is None:
                gone = np.full(len(numbers), UNSTORED, np.int64)
                return gone, np.zeros_like(gone), np.zeros_like(gone)
        offsets = self.offsets[entries].astype(np.int64)
        sizes = self.sizes[entries].astype(np.int64)
        masks = np.zeros(len(entries), np.int64) if self.masks is None else self.masks[entries]
        if stored is not None:
            offsets[~stored] = UNSTORED
        return offsets, sizes, masks


class Columns(NamedTuple):
    """Chunks as HDF5 lists them: numbers in C order over the grid of chunks, int64 and uint64.

    `masks` are uint32, with a bit for each filter that was left out.
    """

    numbers: Ints
    offsets: Array
    sizes: Array
    masks: Array


def build_index(source: SourceHeader) -> ChunkIndex:
    """Read the chunk table of a source, which must be consistent in itself.

    Raises
    ------
    FileFormatError
        If a chunk lies outside the file, off the grid or where another one lies, is there twice
        or out of order, or if the table cannot be read.
    """
    chunks = source.chunks
    assert chunks is not None
    grid = tuple(-(-n // c) for n, c in zip(source.shape, chunks, strict=True))
    with h5_of(source.file) as file:
        dataset = file[source.key]
        try:
            found = _visited(source, dataset, grid)
            _check_bounds(source, grid, found)
            _check_consistent(source, grid, found)
        except (RuntimeError, OSError) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError(
                f"{describe(source)}: HDF5 cannot read its chunk table ({error}). The file is "
                "damaged; copy it again."
            ) from error
    return _compact(grid, found)


def _visited(source: SourceHeader, dataset: h5py.Dataset, grid: tuple[int, ...]) -> Columns:
    """Return what HDF5 lists about all chunks.

    Only positions along axes with more than one chunk are kept. A step is taken once a chunk,
    so it does as little as it can: to resume a generator costs less than to call a function, to
    unpack and append less than to look anything up.
    """
    walked = tuple(axis for axis, n in enumerate(grid) if n > 1) or (0,)
    offsets, sizes, rows, flagged = array("Q"), array("Q"), array("Q"), array("Q")

    def rows_of_chunks() -> Generator[None, Any]:
        add_offset, add_size, add_row = offsets.append, sizes.append, rows.append
        while True:
            at, mask, offset, size = yield
            add_offset(offset)
            add_size(size)
            add_row(at[0])
            if mask:
                flagged.extend((len(offsets) - 1, mask))

    def places_of_chunks() -> Generator[None, Any]:
        while True:
            at, mask, offset, size = yield
            offsets.append(offset)
            sizes.append(size)
            rows.extend([at[axis] for axis in walked])
            if mask:
                flagged.extend((len(offsets) - 1, mask))

    visitor = rows_of_chunks() if walked == (0,) else places_of_chunks()
    next(visitor)
    dataset.id.chunk_iter(visitor.send)
    places = np.frombuffer(rows, np.uint64).reshape(-1, len(walked))
    numbers = _numbers_of(source, list(places.T), walked, grid)
    masked = np.frombuffer(flagged, np.uint64).reshape(-1, 2).astype(np.int64)
    masks = np.zeros(len(offsets), np.uint32)
    masks[masked[:, 0]] = masked[:, 1]
    base = np.uint64(_base(source, dataset))
    return Columns(
        numbers, np.frombuffer(offsets, np.uint64) + base, np.frombuffer(sizes, np.uint64), masks
    )


def _base(source: SourceHeader, dataset: h5py.Dataset) -> int:
    """Return what must be added to offsets: some HDF5 versions count from the user block's end."""
    userblock = dataset.file.userblock_size
    if not userblock or not dataset.id.get_num_chunks():
        return 0
    info = dataset.id.get_chunk_info(0)
    _, wanted = dataset.id.read_direct_chunk(info.chunk_offset)
    file = open_bytes(source.file)
    found = np.empty(len(wanted), np.uint8)
    for base in (0, userblock):
        if info.byte_offset + base + len(wanted) <= source.file.size:
            file.read_into(found, info.byte_offset + base)
            if found.tobytes() == wanted:
                return base
    raise FileFormatError(f"{describe(source)}: its chunks are not where HDF5 says they are")


def _check_bounds(source: SourceHeader, grid: tuple[int, ...], found: Columns) -> None:
    size, offsets, sizes = np.uint64(source.file.size), found.offsets, found.sizes
    bad = (offsets > size) | (sizes > size - np.minimum(offsets, size))
    if bad.any():
        entry = int(np.flatnonzero(bad)[0])
        steps = np.unravel_index(int(found.numbers[entry]), grid)
        assert source.chunks is not None
        place = tuple(int(n) * c for n, c in zip(steps, source.chunks, strict=True))
        raise FileFormatError(
            f"{describe(source)}: the chunk at position {place} should "
            f"lie at bytes {offsets[entry]} to {offsets[entry] + sizes[entry]}, but the file has "
            f"{size}. It is truncated or damaged; copy it again."
        )


def _check_consistent(source: SourceHeader, grid: tuple[int, ...], found: Columns) -> None:
    """Refuse chunks out of order, twice, that share bytes, or have not the size they must have.

    HDF5 searches a table by its order, and would take a chunk that it misses for one that was
    never written.
    """
    assert source.chunks is not None
    entries, numbers = np.arange(len(found.numbers)), found.numbers
    _refuse_any(source, grid, entries[1:], numbers[1:] == numbers[:-1], found, "is there twice")
    _refuse_any(source, grid, entries[1:], numbers[1:] < numbers[:-1], found, "is out of order")
    order = np.argsort(found.offsets, kind="stable")
    starts, ends = found.offsets[order], (found.offsets + found.sizes)[order]
    words = "shares bytes with another chunk"
    _refuse_any(source, grid, order[1:], starts[1:] < ends[:-1], found, words)
    if not source.filters and not source.dtype.hasobject:  # whose references HDF5 sizes
        whole = math.prod(source.chunks) * source.dtype.itemsize
        words = f"does not have the {whole} bytes of a whole chunk"
        _refuse_any(source, grid, entries, found.sizes != whole, found, words)


def _refuse_any(
    source: SourceHeader, grid: tuple[int, ...], entries: Ints, bad: Array, found: Columns, why: str
) -> None:
    if bad.any():
        raise _damaged(source, grid, int(found.numbers[entries[int(np.argmax(bad))]]), why)


def _damaged(source: SourceHeader, grid: tuple[int, ...], number: int, why: str) -> FileFormatError:
    assert source.chunks is not None
    steps = np.unravel_index(number, grid)
    place = tuple(int(n) * c for n, c in zip(steps, source.chunks, strict=True))
    return FileFormatError(
        f"{describe(source)}: the chunk at position {place} {why}. The chunk table is damaged; "
        "copy the file again."
    )


def _numbers_of(
    source: SourceHeader, places: Sequence[Array], axes: Sequence[int], grid: tuple[int, ...]
) -> Ints:
    """Return the chunk numbers of places along some axes, at the first chunk of the others."""
    assert source.chunks is not None
    numbers = np.zeros(len(places[0]), np.int64)
    for along, axis in zip(places, axes, strict=False):
        steps, within = np.divmod(along, along.dtype.type(source.chunks[axis]))
        if within.any() or (len(steps) and int(steps.max()) >= max(grid[axis], 1)):
            raise FileFormatError(
                f"{describe(source)}: its chunk table has a chunk off the grid on axis {axis}. "
                "It is damaged; copy the file again."
            )
        numbers += steps.astype(np.int64) * math.prod(grid[axis + 1 :])
    return numbers


def _compact(grid: tuple[int, ...], found: Columns) -> ChunkIndex:
    """Keep a table in as few bytes as it needs."""
    numbers, offsets, sizes, masks = found
    small = not len(sizes) or int(sizes.max()) < 2**32
    sizes = sizes.astype(np.uint32 if small else np.uint64)
    kept = masks if masks.any() else None
    if len(numbers) == math.prod(grid):
        return ChunkIndex(grid, offsets, sizes, kept, None)
    return ChunkIndex(grid, offsets, sizes, kept, numbers)


class _Slot:
    """One table, or the lock behind which it is made."""

    def __init__(self, index: ChunkIndex | None = None) -> None:
        self.lock = threading.Lock()
        self.index = index


class _Cache:
    """Tables by file and dataset, most recently used last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: OrderedDict[tuple[FileStamp, str], _Slot] = OrderedDict()
        self.n_bytes = 0

    def get(self, source: SourceHeader) -> ChunkIndex:
        key = source.file, source.key
        with self.lock:
            slot = self.held.setdefault(key, _Slot())
            self.held.move_to_end(key)
        index = slot.index
        if index is None:
            with slot.lock:
                index = slot.index
                if index is None:
                    index = slot.index = build_index(source)
                    self._count(index.nbytes)
        return index

    def _count(self, more: int) -> None:
        """Forget the tables that were used least recently, but for one, where all are too much.

        What all take is counted along: there may be a table for each of very many files.
        """
        with self.lock:
            self.n_bytes += more
            while self.n_bytes > CACHE_BYTES:
                made = ((k, s.index) for k, s in self.held.items() if s.index is not None)
                oldest, another = next(made, None), next(made, None)
                if oldest is None or another is None:
                    return
                del self.held[oldest[0]]
                self.n_bytes -= oldest[1].nbytes

    def after_fork(self) -> _Cache:
        fresh = _Cache()
        for key, slot in self.held.items():
            fresh.held[key] = _Slot(slot.index)
            fresh.n_bytes += 0 if slot.index is None else slot.index.nbytes
        return fresh


_CACHE = _Cache()


def chunk_index(source: SourceHeader) -> ChunkIndex:
    """Return the chunk table of a source, from the cache where it is known already."""
    return _CACHE.get(source)


def _renew() -> None:
    global _CACHE
    _CACHE = _CACHE.after_fork()  # the tables are plain memory; the locks may have been taken


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
