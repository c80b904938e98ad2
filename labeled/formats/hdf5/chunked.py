"""Rows of chunks: found by an index, taken back through filters, copied to where they go.

Where chunks are stands in one compact table (:class:`ChunkIndex`), built in one pass: HDF5 visits
a million chunks in two seconds when asked once (`chunk_iter`), and in days when asked chunk by
chunk. Tables are shared by all readers of a file through a process-wide cache of bounded size.
Every offset is checked against the size of the file there, before anything is read.

Chunks without filters that are as wide as rows lie in the file as they are, so that their rows are
read like contiguous ones (:class:`PlainChunks`). All others are put together here, a block of
chunks at a time. Chunks that are wanted whole are decoded directly to their place. Others are
decoded side by side into memory that stays in cache, and the wanted rows of all are copied out at
once.

A *band* is all chunks that hold the same rows, a *tile* one column of chunks: the elements wanted
of each, and where they go in a row of the result. A *block* is some bands of some tiles, which are
read together; its lists hold one entry a chunk, in this order::

                     tile 0    tile 1    tile 2       (along the axes after the first)
    band 0            [0]       [1]       [2]         rows 0 .. chunk_rows - 1
    band 1            [3]       [4]       [5]         rows chunk_rows .. 2 * chunk_rows - 1

The trade-off: a chunk is read and decoded whole even for one element of it.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from array import array
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.errors import FileFormatError, ReadError
from labeled.formats.bytesource import OpenFile, open_bytes
from labeled.formats.contiguous import ContiguousReader, stretch_bases
from labeled.formats.hdf5.filters import DecodeError, Pipeline
from labeled.formats.hdf5.safety import h5_of
from labeled.formats.header import FileStamp, SourceHeader
from labeled.formats.memory import put_rows, scratch
from labeled.formats.reader import (
    FEW,
    PIECE_BYTES,
    UNSTORED,
    ByteRanges,
    FileReader,
    Io,
    decoding,
    describe,
    naming_rows,
    row_nbytes,
)
from labeled.formats.region import (
    GAP_BYTES,
    Array,
    BoxPlan,
    Indexer,
    Ints,
    Region,
    box_plan,
    is_whole,
    outer_put,
    outer_take,
)
from labeled.selection import rows_of

CACHE_BYTES = 128 * 1024 * 1024
"""Tables kept in memory, all together; the one in use always is."""

SLACK_BYTES = 64 * 1024
"""How much larger than twice its decoded size a stored chunk may be before it is refused."""


# where chunks are


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Offsets and stored sizes of the chunks of one dataset: 12 bytes a chunk.

    Chunks are numbered in C order over their grid.

    Attributes
    ----------
    offsets : uint64 array
    sizes : uint32 array (uint64 where a chunk needs it)
    masks : uint32 array or None
        Bit i set: filter i was not applied to that chunk. None where all were.
    numbers : int64 array or None
        The chunk number of each entry, ascending; None where entry i is chunk i. They are kept
        where so many chunks were never written that a full table would be larger.
    """

    offsets: Array
    sizes: Array
    masks: Array | None
    numbers: Ints | None

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        parts = self.offsets, self.sizes, self.masks, self.numbers
        return sum(part.nbytes for part in parts if part is not None)

    def entry(self, number: int) -> tuple[int, int, int]:
        """Return the offset (-1 if it was never written), size and filter mask of one chunk."""
        if self.numbers is not None:
            entry = int(self.numbers.searchsorted(number))
            if entry == len(self.numbers) or self.numbers[entry] != number:
                return UNSTORED, 0, 0
            number = entry
        mask = 0 if self.masks is None else int(self.masks[number])
        return self.offsets.item(number), self.sizes.item(number), mask


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
    grid = _grid(source.shape, chunks)
    offsets, sizes, coords, flagged = array("Q"), array("Q"), array("Q"), array("Q")

    def visitor() -> Generator[None, Any]:
        """Take one step a chunk: to resume a generator costs less than to call a function."""
        while True:
            at, mask, offset, size = yield
            offsets.append(offset)
            sizes.append(size)
            coords.extend(at)
            if mask:
                flagged.extend((len(offsets) - 1, mask))

    with h5_of(source.file) as file:
        dataset = file[source.key]
        visit = visitor()
        next(visit)
        try:
            dataset.id.chunk_iter(visit.send)
            base = _base(source, dataset) if dataset.file.userblock_size else 0
        except (RuntimeError, OSError) as error:
            raise FileFormatError(
                f"{describe(source)}: HDF5 cannot read its chunk table ({error}). The file is "
                "damaged; copy it again."
            ) from error
    starts = np.frombuffer(offsets, np.uint64) + np.uint64(base)
    lengths = np.frombuffer(sizes, np.uint64)
    begins = np.frombuffer(coords, np.uint64).reshape(-1, len(chunks))
    steps, within = np.divmod(begins, np.array(chunks, np.uint64))

    def refuse(bad: Array, what: str, entries: Ints | None = None) -> None:
        if bad.any():
            entry = int(np.argmax(bad))
            entry = entry if entries is None else int(entries[entry])
            coord, start = tuple(begins[entry].tolist()), int(starts[entry])
            where = f"bytes {start} to {start + int(lengths[entry])}"
            raise FileFormatError(
                f"{describe(source)}: the chunk at position {coord} {what.format(where)}. The "
                "chunk table is truncated or damaged; copy the file again."
            )

    off_grid = (within != 0).any(axis=1) | (steps >= np.array(grid, np.uint64)).any(axis=1)
    refuse(off_grid, "is off the grid")
    numbers = np.zeros(len(steps), np.int64)
    for axis in range(len(grid)):
        numbers += steps[:, axis].astype(np.int64) * math.prod(grid[axis + 1 :])
    size = np.uint64(source.file.size)
    beyond = (starts > size) | (lengths > size - np.minimum(starts, size))
    refuse(beyond, f"should lie at {{}}, but the file has {size}")
    # HDF5 searches a table by its order, and takes a chunk that it misses for one never written.
    after = np.arange(1, len(numbers))
    refuse(numbers[1:] == numbers[:-1], "is there twice", after)
    refuse(numbers[1:] < numbers[:-1], "is out of order", after)
    order = np.argsort(starts, kind="stable")
    shared = starts[order][1:] < (starts + lengths)[order][:-1]
    refuse(shared, "shares bytes with another chunk", order[1:])
    if not source.filters and not source.dtype.hasobject:  # whose references HDF5 sizes
        whole = math.prod(chunks) * source.dtype.itemsize
        refuse(lengths != whole, f"does not have the {whole} bytes of a whole chunk")
    masks = None
    if flagged:
        masked = np.frombuffer(flagged, np.uint64).reshape(-1, 2).astype(np.int64)
        masks = np.zeros(len(numbers), np.uint32)
        masks[masked[:, 0]] = masked[:, 1]
    if not len(lengths) or int(lengths.max()) < 2**32:
        lengths = lengths.astype(np.uint32)
    kept = None if len(numbers) == math.prod(grid) else numbers
    return ChunkIndex(starts, lengths, masks, kept)


def _base(source: SourceHeader, dataset: h5py.Dataset) -> int:
    """Return what must be added to offsets: some HDF5 versions count from the user block's end."""
    if not dataset.id.get_num_chunks():
        return 0
    info = dataset.id.get_chunk_info(0)
    _, wanted = dataset.id.read_direct_chunk(info.chunk_offset)
    file = open_bytes(source.file)
    found = np.empty(len(wanted), np.uint8)
    for base in (0, dataset.file.userblock_size):
        if info.byte_offset + base + len(wanted) <= source.file.size:
            file.read_into(found, info.byte_offset + base)
            if found.tobytes() == wanted:
                return int(base)
    raise RuntimeError("its chunks are not where HDF5 says they are")


_TABLES: dict[tuple[FileStamp, str], ChunkIndex] = {}
"""By file and dataset, most recently used last; one is made at a time."""

_lock = threading.Lock()


def chunk_index(source: SourceHeader) -> ChunkIndex:
    """Return the chunk table of a source, from the cache where it is known already."""
    key = source.file, source.key
    with _lock:
        index = _TABLES.pop(key, None)
        if index is None:
            index, n_bytes = build_index(source), 0
            for other, table in reversed([*_TABLES.items()]):
                n_bytes += table.nbytes
                if n_bytes + index.nbytes > CACHE_BYTES:
                    del _TABLES[other]
        _TABLES[key] = index
        return index


def _forget() -> None:
    global _lock
    _lock = threading.Lock()  # a fork may have left the old one taken
    _TABLES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# chunks across a row


class Tile(NamedTuple):
    """One chunk of the grid over the axes after the first."""

    number: int
    """In C order over that grid."""
    local: Region
    """The elements wanted, counted within the chunk."""
    trail: Region
    """Their places in a row of the result; integers have dropped their axis."""


def tiles_of(region: Region, shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[Tile]:
    """Return the tiles of a region, which is full and normal.

    Parameters
    ----------
    region : Region
    shape, chunks : tuple of int
        Of the axes after the first.

    Examples
    --------
    >>> [tuple(tile) for tile in tiles_of((slice(3, 7, 1), 2), (8, 6), (4, 6))]
    [(0, (slice(3, 4, 1), 2), (slice(0, 1, 1),)), (1, (slice(0, 3, 1), 2), (slice(1, 4, 1),))]
    """
    tiles = []
    grid = _grid(shape, chunks)
    for cut in itertools.product(*map(_cut, region, chunks)):
        number, local, trail = 0, [], []
        for (coord, inside, place), n in zip(cut, grid, strict=True):
            number = number * n + coord
            local.append(inside)
            if place is not None:
                trail.append(place)
        tiles.append(Tile(number, tuple(local), tuple(trail)))
    return tiles


def count_tiles(region: Region, chunks: tuple[int, ...]) -> int:
    """Return how many chunks of a band a region touches."""
    return math.prod(len(_cut(index, chunk)) for index, chunk in zip(region, chunks, strict=True))


def _grid(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    grid = -(-np.array(shape, np.int64) // np.array(chunks, np.int64))
    return tuple(grid.tolist())


def _cut(index: Indexer, chunk: int) -> list[tuple[int, Indexer, Indexer | None]]:
    """Return the chunks that an indexer touches, what it takes of each, and where that goes."""
    if isinstance(index, int):
        return [(index // chunk, index % chunk, None)]
    wanted = np.arange(index.start, index.stop, index.step) if isinstance(index, slice) else index
    coords, which = np.unique(wanted // chunk, return_inverse=True)
    found: list[tuple[int, Indexer, Indexer | None]] = []
    for i, coord in enumerate(coords.tolist()):
        place: Any = np.flatnonzero(which == i)
        inside: Any = wanted[place] - coord * chunk
        if place[-1] - place[0] == len(place) - 1:
            place = slice(int(place[0]), int(place[-1]) + 1, 1)
        if isinstance(index, slice):
            inside = slice(int(inside[0]), int(inside[-1]) + 1, index.step)
        found.append((coord, inside, place))
    return found


# readers


class PlainChunks(ContiguousReader):
    """Rows of chunks without filters, each row in one chunk: at other places, and nothing more."""

    kind = "chunked"
    why = "chunks without filters: read by file offset"

    def _box_plan(self) -> BoxPlan:
        assert self.source.chunks is not None
        chunks = self.source.chunks[1:]
        (tile,) = tiles_of(self.region, self.source.row_shape, chunks)
        self._number, self._per_band = tile.number, math.prod(_grid(self.source.row_shape, chunks))
        return box_plan(tile.local, chunks, self.source.dtype)

    @cached_property
    def _stretches(self) -> tuple[Ints, Ints]:
        index = chunk_index(self.source)
        numbers = np.arange(len(index.offsets)) if index.numbers is None else index.numbers
        mine = numbers % self._per_band == self._number
        firsts = numbers[mine] // self._per_band * self.chunk_rows
        ends = np.append(0, firsts + self.chunk_rows)
        gone = np.setdiff1d(ends[ends < self.n_rows], firsts)  # chunks that are not there begin
        offsets = np.append(index.offsets[mine].astype(np.int64), np.full(len(gone), UNSTORED))
        firsts = np.append(firsts, gone)
        order = np.argsort(firsts, kind="stable")
        firsts = firsts[order]
        bases = stretch_bases(offsets[order], firsts, self._plan.row_bytes)
        begins = np.append(True, bases[1:] != bases[:-1])
        return firsts[begins], bases[begins]


class _Band(NamedTuple):
    """What is wanted of the chunks that hold the same rows."""

    number: int
    start: int
    stop: int
    """The first row that is wanted and one past the last, counted within the band."""
    rows: slice | Ints
    """Those that are wanted; they ascend."""
    n: int


class _Block(NamedTuple):
    """Chunks that are read together, band by band, tile by tile."""

    first_row: int
    """The number of its first row, counted through all rows that are read."""
    n_rows: int
    bands: list[_Band]
    tiles: list[Tile]
    offsets: list[int]
    """Where each chunk begins in the file; -1 if it was never stored."""
    sizes: list[int]
    masks: list[int]
    """Bit i set: filter i was not applied to that chunk."""


class ChunkedReader(FileReader):
    """Rows put together from chunks, with filters or without; a :class:`~.reader.Reader`."""

    kind = "chunked"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        assert source.chunks is not None
        self._chunks, inner = source.chunks, source.chunks[1:]
        self._chunk_bytes = row_nbytes(source.chunks, source.dtype)
        self._pipeline = Pipeline(source.filters, self._chunk_bytes, source.dtype.itemsize)
        self._tiles = tiles_of(self.region, source.row_shape, inner)
        self._per_band = math.prod(_grid(source.row_shape, inner))
        n_tiles = len(self._tiles)
        self._whole_rows = n_tiles == 1 and is_whole(self._tiles[0].local, inner)
        """Whether chunks are as wide as rows, and rows wanted whole."""
        self._direct = self._whole_rows and source.dtype.isnative
        self._gap_bytes = GAP_BYTES if source.filters else 0
        band_bytes = max(n_tiles * self._chunk_bytes, 1)
        self._bands_each = -(-PIECE_BYTES // band_bytes)
        each = n_tiles if band_bytes <= 2 * PIECE_BYTES else -(-PIECE_BYTES // self._chunk_bytes)
        self._tiles_each = max(each, 1)

    @property
    def why(self) -> str:  # type: ignore[override]
        """What is done with chunks, for people."""
        if not self.source.filters:
            return "chunks without filters: read by file offset, several a row"
        names = ", ".join(step.words for step in self.source.filters)
        return f"chunks decoded outside HDF5's lock ({names})"

    # which chunks

    def _blocks(self, runs: Ints) -> Iterator[_Block]:
        """Yield the chunks of runs, about `PIECE_BYTES` at a time."""
        index, bands, first = chunk_index(self.source), self._bands(runs), 0
        while some := list(itertools.islice(bands, self._bands_each)):
            n_rows = 0
            for band in some:
                n_rows += band.n
            for t in range(0, len(self._tiles), self._tiles_each):
                tiles = self._tiles[t : t + self._tiles_each]
                block = _Block(first, n_rows, some, tiles, [], [], [])
                for band in some:
                    for tile in tiles:
                        at, size, mask = index.entry(band.number * self._per_band + tile.number)
                        block.offsets.append(at)
                        block.sizes.append(size)
                        block.masks.append(mask)
                yield block
            first += n_rows

    def _bands(self, runs: Ints) -> Iterator[_Band]:
        """Yield what is wanted of each band: few runs are looked at one by one."""
        each = self.chunk_rows
        together = len(runs) > 1 and bool((runs[1:, 0] // each == (runs[:-1, 1] - 1) // each).any())
        if len(runs) > FEW or together:
            rows = rows_of(runs)
            numbers = rows // each
            cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
            for a, b in itertools.pairwise(cuts):
                number, n = int(numbers[a]), b - a
                start, stop = int(rows[a]) - number * each, int(rows[b - 1]) + 1 - number * each
                wanted = slice(start, stop) if n == stop - start else rows[a:b] - number * each
                yield _Band(number, start, stop, wanted, n)
            return
        for start, stop in runs.tolist():
            while start < stop:
                number, begin = divmod(start, each)
                n = min(stop - start, each - begin)
                yield _Band(number, begin, begin + n, slice(begin, begin + n), n)
                start += n

    def _reads(self, block: _Block) -> Iterator[tuple[int, int, int, int]]:
        """Yield what each call fetches: the first chunk, one past the last, offset and length.

        Chunks that lie together come together, but for those that were never stored. Without
        filters nothing may lie between, because they are fetched to where they are held.
        """
        offsets, sizes, k = block.offsets, block.sizes, 0
        while k < len(offsets):
            first, at, end = k, offsets[k], offsets[k] + sizes[k]
            k += 1
            if at < 0:
                continue
            while k < len(offsets) and 0 <= offsets[k] - end <= self._gap_bytes:
                end = offsets[k] + sizes[k]
                k += 1
            yield first, k, at, end - at

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        reads: list[tuple[int, int, int, int]] = []
        for block in self._blocks(runs):
            reads += self._reads(block)
        found = np.array(reads, np.int64).reshape(-1, 4)
        n_chunks = int((found[:, 1] - found[:, 0]).sum()) if self.source.filters else 0
        return (ByteRanges(self.file, found[:, 2], found[:, 3], n_chunks),)

    # reading

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        file = self.file()
        file.check()
        for block in self._blocks(runs):
            first, last, each = block.bands[0], block.bands[-1], self.chunk_rows
            start, stop = first.number * each + first.start, last.number * each + last.stop
            with naming_rows(self.source, start, stop):
                self._read_block(file, block, out, places)

    def _read_block(self, file: OpenFile, block: _Block, out: Array, places: Ints | None) -> None:
        """Decode chunks side by side, and copy what is wanted of them at once.

        Those that are wanted whole and in order are decoded to `out` directly.
        """
        size, c, m, n_tiles = self._chunk_bytes, self.chunk_rows, len(block.bands), len(block.tiles)
        held = scratch("joined", m * n_tiles * size)
        targets, direct = [], self._direct and places is None
        flat, row = out.reshape(-1).view(np.uint8) if direct else held, block.first_row
        for b, band in enumerate(block.bands):
            in_place = direct and band.n == c
            for t in range(n_tiles):
                at = row * self.row_bytes if in_place else (b * n_tiles + t) * size
                targets.append((flat if in_place else held)[at : at + size])
            row += band.n
        self._load(file, block, held, targets)
        boxes = np.ndarray((m, n_tiles, *self._chunks), self.source.dtype, held)
        row = block.first_row
        if direct:
            for b, band in enumerate(block.bands):
                if band.n < c:
                    out[row : row + band.n] = boxes[b, 0][band.rows]
                row += band.n
            return
        wanted = None
        if block.n_rows < m * c:
            every = np.arange(c)
            rows = [every[band.rows] + b * c for b, band in enumerate(block.bands)]
            wanted = np.concatenate(rows)
        place = slice(row, row + block.n_rows)
        where = place if places is None else places[place]
        lists = np.ndarray in map(type, self.region)
        for t, tile in enumerate(block.tiles):
            if wanted is None and places is None and not lists:
                target, whole = out[place].reshape(m, c, *self.row_shape), slice(None)
                target[(whole, whole, *tile.trail)] = boxes[(whole, t, whole, *tile.local)]
                continue
            box = boxes[:, t].reshape(m * c, *self._chunks[1:])
            if self._whole_rows:
                put_rows(out, where, box, wanted)
            else:
                outer_put(out, where, tile.trail, outer_take(box, tile.local, wanted))

    def _load(self, file: OpenFile, block: _Block, held: Array, targets: list[Array]) -> None:
        """Bring each chunk to its target, which is its place in `held` if it has no filters."""
        offsets, sizes = block.offsets, block.sizes
        if min(offsets) < 0:
            for at, target in zip(offsets, targets, strict=True):
                if at < 0:
                    target.view(self.source.dtype)[:] = self.source.fill_value
        if max(sizes) > 2 * self._chunk_bytes + SLACK_BYTES:
            k = int(np.argmax(sizes))
            raise self._damaged(block, k, "more bytes stored than it can need")
        for first, stop, start, n in self._reads(block):
            if not self.source.filters:
                file.read_into(held[first * self._chunk_bytes :][:n], start)
                continue
            stored = scratch("stored", n, start)
            file.read_into(stored, start)
            for k in range(first, stop):
                begin = offsets[k] - start
                try:
                    with decoding():
                        packed = stored[begin : begin + sizes[k]]
                        self._pipeline.undo(packed, block.masks[k], targets[k])
                except DecodeError as fault:
                    raise self._damaged(block, k, str(fault)) from fault

    def _damaged(self, block: _Block, k: int, what: str) -> ReadError:
        start = block.bands[k // len(block.tiles)].number * self.chunk_rows
        stop = min(start + self.chunk_rows, self.n_rows)
        return ReadError(
            f"{self.where}, rows {start} to {stop - 1}: the chunk at byte {block.offsets[k]} is "
            f"damaged: {what}. Copy or download the file again."
        )
