"""Rows of chunks: found by an index, taken back through filters, copied to where they go.

Chunks without filters that are as wide as rows lie in the file as they are, so that their rows are
read like contiguous ones (:class:`PlainChunks`). All others are put together here, a block of
chunks at a time. Chunks that are wanted whole are decoded directly to their place. Others are
decoded side by side into memory that stays in cache, and the wanted rows of all are copied out at
once. Chunks without filters go the same way, but of these no more is fetched than is wanted.

A *band* is all chunks that hold the same rows, a *tile* one column of chunks: the elements wanted
of each, and where they go in a row of the result. A *block* is some bands of some tiles, which are
read together; its lists hold one entry a chunk, in this order::

                     tile 0    tile 1    tile 2       (along the axes after the first)
    band 0            [0]       [1]       [2]         rows 0 .. chunk_rows - 1
    band 1            [3]       [4]       [5]         rows chunk_rows .. 2 * chunk_rows - 1

What is read of a chunk is *fetched*; the memory it is put together in is *held*. The two differ
where there are no filters: only the wanted bytes of the held ones are fetched.

The trade-off: a chunk is decoded whole even for one element of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import ReadError
from labeled.formats.bytesource import OpenFile
from labeled.formats.contiguous import ContiguousReader, stretch_bases
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.filters import DecodeError, Pipeline, damage
from labeled.formats.header import SourceHeader
from labeled.formats.memory import put_rows, scratch
from labeled.formats.reader import (
    FEW,
    PIECE_BYTES,
    UNSTORED,
    ByteRanges,
    FileReader,
    Io,
    Rows,
    count,
    decoding,
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

LISTED_ROWS = 1 << 18
"""So many rows of many runs are listed one by one at a time."""

SLACK_BYTES = 64 * 1024
"""How much larger than twice its decoded size a stored chunk may be before it is refused."""


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


_ROWS_OF = attrgetter("n")


class _Block(NamedTuple):
    """Chunks that are read together, band by band, tile by tile."""

    first_row: int
    """The number of its first row, counted through all rows that are read."""
    bands: list[_Band]
    tiles: list[Tile]
    first_tile: int
    """The number of the first of its tiles."""
    held_from: int
    """The first row that is held, counted within the band."""
    held_bytes: int
    """The memory that is held of each chunk."""
    held_at: list[int]
    """The byte of the file at which what is held of each chunk begins; -1 if never stored."""
    fetch_at: list[int]
    """The byte of the file at which what is fetched of it begins; -1 if never stored."""
    fetch_bytes: list[int]
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
        self._most_stored = 2 * self._chunk_bytes + SLACK_BYTES
        self._pipeline = Pipeline(source.filters, self._chunk_bytes, source.dtype.itemsize)
        self._tiles = tiles_of(self.region, source.row_shape, inner)
        self._per_band = math.prod(_grid(source.row_shape, inner))
        n_tiles, plain = len(self._tiles), [] if source.filters else self._tiles
        self._plans = [box_plan(tile.local, inner, source.dtype) for tile in plain]
        """What is fetched of the rows of each tile; none where chunks have to be decoded."""
        self._in_one_piece = all(len(plan.starts) == 1 for plan in self._plans)
        """Whether what is wanted of a row is one stretch of bytes a tile."""
        self._in_parts = not all(plan.read_through for plan in self._plans)
        """Whether bytes between those that are wanted are skipped: several calls a chunk."""
        self._has_lists = any(isinstance(index, np.ndarray) for index in self.region)
        """Whether the region picks listed elements of an axis."""
        self._whole_chunks = n_tiles == 1 and is_whole(self._tiles[0].local, inner)
        """Whether chunks are as wide as rows, and rows wanted whole."""
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
        bands, first, n_tiles = self._bands(runs), 0, len(self._tiles)
        while some := list(itertools.islice(bands, self._bands_each)):
            for tile in range(0, n_tiles, self._tiles_each):
                yield self._block(first, some, slice(tile, tile + self._tiles_each))
            first += sum(map(_ROWS_OF, some))

    def _bands(self, runs: Ints) -> Iterator[_Band]:
        """Yield what is wanted of each band: few runs are looked at one by one."""
        each = self.chunk_rows
        together = len(runs) > 1 and bool((runs[1:, 0] // each == (runs[:-1, 1] - 1) // each).any())
        if len(runs) > FEW or together:
            low, high = int(runs[0, 0]) // each, (int(runs[-1, 1]) - 1) // each
            if low < high and count(runs) > LISTED_ROWS:
                middle = (low + high + 1) // 2 * each
                for half in (np.minimum(runs, middle), np.maximum(runs, middle)):
                    yield from self._bands(half[half[:, 0] < half[:, 1]])
                return
            rows = rows_of(runs)
            numbers = rows // each
            cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
            for a, b in itertools.pairwise(cuts):
                number, n = int(numbers[a]), b - a
                start, stop = int(rows[a]) - number * each, int(rows[b - 1]) + 1 - number * each
                whole = slice(start, stop) if n == stop - start else rows[a:b] - number * each
                yield _Band(number, start, stop, whole, n)
            return
        for start, stop in runs.tolist():
            while start < stop:
                number, begin = divmod(start, each)
                n = stop - start if stop - start < each - begin else each - begin
                yield _Band(number, begin, begin + n, slice(begin, begin + n), n)
                start += n

    def _block(self, first: int, bands: list[_Band], span: slice) -> _Block:
        index, tiles, plans = chunk_index(self.source), self._tiles[span], self._plans[span]
        row_bytes, low, n_rows = self._chunk_bytes // self.chunk_rows, 0, self.chunk_rows
        if plans:  # no more rows than are wanted
            low = min([band.start for band in bands])
            n_rows = max([band.stop for band in bands]) - low
        held_at: list[int] = []
        fetch_at: list[int] = []
        fetch_bytes: list[int] = []
        masks: list[int] = []
        for band in bands:
            number = band.number * self._per_band
            for t, tile in enumerate(tiles):
                at, n_bytes, mask = index.entry(number + tile.number)
                held_at.append(at + low * row_bytes if at >= 0 else at)
                if plans and at >= 0:
                    at += band.start * row_bytes + plans[t].starts[0]
                    n_bytes = plans[t].bytes_of(band.stop - band.start)
                fetch_at.append(at)
                fetch_bytes.append(n_bytes)
                masks.append(mask)
        held = low, n_rows * row_bytes, held_at
        return _Block(first, bands, tiles, span.start, *held, fetch_at, fetch_bytes, masks)

    def _reads(self, block: _Block) -> Iterator[tuple[int, int, int, int]]:
        """Yield what each call fetches: the first chunk, one past the last, offset and length.

        Chunks that lie together come together, but for those that were never stored.
        """
        fetch_at, held_at, k = block.fetch_at, block.held_at, 0
        while k < len(fetch_at):
            first, at, end = k, fetch_at[k], fetch_at[k] + block.fetch_bytes[k]
            k += 1
            if at >= 0 and self._in_parts:
                b, t = divmod(first, len(block.tiles))
                plan, band = self._plans[block.first_tile + t], block.bands[b]
                rows = np.array([at - plan.starts[0]]), np.array([band.stop - band.start])
                for start, n in zip(*(part.tolist() for part in plan.ranges(*rows)), strict=True):
                    yield first, k, start, n
            elif at >= 0:
                while k < len(fetch_at) and 0 <= fetch_at[k] - end <= GAP_BYTES:
                    if self._plans and held_at[k] - held_at[k - 1] != block.held_bytes:
                        break  # together in the file, but not in memory
                    end = fetch_at[k] + block.fetch_bytes[k]
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
            first, last = block.bands[0], block.bands[-1]
            start = first.number * self.chunk_rows + first.start
            with naming_rows(self.source, start, last.number * self.chunk_rows + last.stop):
                if self._whole_chunks and self.source.filters:
                    self._read_whole(file, block, out, places)
                else:
                    n_bytes = len(block.fetch_at) * block.held_bytes
                    memory = scratch("joined", n_bytes, max(block.held_at[0], 0))
                    self._load(file, block, memory)
                    self._copy(memory, block, out, places)

    def _load(
        self, file: OpenFile, block: _Block, memory: Array, targets: list[Array] | None = None
    ) -> None:
        """Bring each chunk to its part of `memory`, or to its one of `targets`.

        Decoded, or as it is stored, or fill values.
        """
        if targets is None:
            targets = list(memory.reshape(len(block.fetch_at), -1))
        if min(block.fetch_at) < 0:
            for at, target in zip(block.fetch_at, targets, strict=True):
                if at < 0:
                    target.view(self.source.dtype)[:] = self.source.fill_value
        if self.source.filters and max(block.fetch_bytes) > self._most_stored:
            k = int(np.argmax(block.fetch_bytes))
            raise self._damaged(block, k, "more bytes stored than it can need")
        for first, stop, at, n in self._reads(block):
            if self._plans:
                begin = first * block.held_bytes + at - block.held_at[first]
                file.read_into(memory[begin : begin + n], at)
                continue
            stored = scratch("stored", n, at)
            file.read_into(stored, at)
            for k in range(first, stop):
                begin = block.fetch_at[k] - at
                self._decode(block, k, stored[begin : begin + block.fetch_bytes[k]], targets[k])

    def _decode(self, block: _Block, k: int, stored: Array, out: Array) -> None:
        """Undo the filters of a chunk."""
        try:
            with decoding():
                self._pipeline.undo(stored, block.masks[k], out)
        except DecodeError as fault:
            raise self._damaged(block, k, str(fault)) from fault

    def _damaged(self, block: _Block, k: int, what: str) -> ReadError:
        start = block.bands[k // len(block.tiles)].number * self.chunk_rows
        stop = min(start + self.chunk_rows, self.n_rows)
        return damage(self.source, start, stop, block.fetch_at[k], what)

    def _read_whole(self, file: OpenFile, block: _Block, out: Array, places: Ints | None) -> None:
        """Decode chunks as wide as rows directly to `out`, or side by side to be copied at once."""
        each, c, bands = self._chunk_bytes, self.chunk_rows, block.bands
        direct = places is None and self.source.dtype.isnative
        memory, targets, first = scratch("joined", len(bands) * each), [], block.first_row
        flat = out.reshape(-1).view(np.uint8) if direct else memory
        for k, band in enumerate(bands):
            if direct and band.n == c:
                begin = first * self.row_bytes
                targets.append(flat[begin : begin + each])
            else:
                targets.append(memory[k * each : (k + 1) * each])
            first += band.n
        self._load(file, block, memory, targets)
        rows = np.ndarray((len(bands) * c, *self._chunks[1:]), self.source.dtype, memory)
        if direct:
            first = block.first_row
            for k, band in enumerate(bands):
                if band.n < c:
                    out[first : first + band.n] = rows[k * c : (k + 1) * c][band.rows]
                first += band.n
            return
        n, wanted = sum(map(_ROWS_OF, bands)), None
        if n < len(rows):
            every = np.arange(c)
            wanted = np.concatenate([every[x.rows] + k * c for k, x in enumerate(bands)])
        first = block.first_row
        place = slice(first, first + n) if places is None else places[first : first + n]
        put_rows(out, place, rows, wanted)

    def _copy(self, memory: Array, block: _Block, out: Array, places: Ints | None) -> None:
        """Copy what is wanted of chunks side by side, tile by tile, of all bands that are alike."""
        n_rows = block.held_bytes * self.chunk_rows // self._chunk_bytes
        shape = (len(block.bands), len(block.tiles), n_rows, *self._chunks[1:])
        boxes, first, b = np.ndarray(shape, self.source.dtype, memory), block.first_row, 0
        for _, some in itertools.groupby(block.bands, key=_alike):
            same = list(some)
            m, k, rows = len(same), same[0].n, same[0].rows
            if isinstance(rows, slice):
                rows = slice(rows.start - block.held_from, rows.stop - block.held_from)
            else:
                rows = rows - block.held_from
            n, span = m * k, slice(b, b + m)
            place = slice(first, first + n) if places is None else places[first : first + n]
            first, b = first + n, b + m
            if len(self._tiles) == 1 or self._has_lists:
                for t, tile in enumerate(block.tiles):
                    values = boxes[span, t][:, rows].reshape(n, *self._chunks[1:])
                    values = outer_take(values, tile.local)
                    if len(self._tiles) == 1:
                        put_rows(out, place, values)
                    else:
                        outer_put(out, place, tile.trail, values)
                continue
            lead: Any = (slice(None), slice(None))
            target = out
            if isinstance(place, slice):
                target = out[place].reshape(m, k, *self.row_shape)
            else:
                lead = (place.reshape(m, k),)
            for t, tile in enumerate(block.tiles):
                if isinstance(rows, slice):
                    values = boxes[(span, t, rows, *tile.local)]
                else:
                    values = boxes[span, t][:, rows][(slice(None), slice(None), *tile.local)]
                target[(*lead, *tile.trail)] = values

    # scattered rows without filters, from a memory map

    @property
    def _picks_rows(self) -> bool:
        """Whether rows may be copied from a map one by one: in one piece each, without filters."""
        return bool(self._plans) and self.io != "pread" and self._in_one_piece

    def _offsets(self, rows: Ints) -> list[Ints]:
        """Return where what is fetched of rows begins, tile by tile; -1 if it was not stored."""
        band, within = np.divmod(rows, self.chunk_rows)
        found = []
        for tile, plan in zip(self._tiles, self._plans, strict=True):
            at = chunk_index(self.source).offsets_of(band * self._per_band + tile.number)
            found.append(np.where(at < 0, at, at + within * plan.row_bytes + plan.starts[0]))
        return found

    def _read_list(self, rows: Ints, out: Array, places: Ints | None) -> None:
        """Read listed rows one by one from a memory map, where nothing has to be decoded."""
        file = self.file()
        mapped = file.mapped(scattered=True) if self._picks_rows and places is None else None
        found = [] if mapped is None else self._offsets(rows)
        if mapped is None or any((at < 0).any() for at in found):
            super()._read_list(rows, out, places)
            return
        file.check()
        step = max(1, PIECE_BYTES // self.row_bytes)
        for a in range(0, len(rows), step):
            for tile, plan, at in zip(self._tiles, self._plans, found, strict=True):
                some, n = at[a : a + step], len(mapped) - plan.stretch_bytes + 1
                strides = (1, *plan.box_strides)
                boxes = np.ndarray((n, *plan.box_shape), plan.dtype, mapped, 0, strides)[some]
                place = slice(a, a + len(some))
                outer_put(out, place, tile.trail, outer_take(boxes, plan.inner))
        file.copied(len(rows) * self.row_bytes, scattered=True)

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that are fetched; of listed rows without filters, those of each."""
        rows = self._checked(rows)
        if rows.ndim == 2 or not self.row_bytes or not self._picks_rows:
            return super().byte_ranges(rows)
        starts = np.stack(self._offsets(rows), axis=1).reshape(-1)
        lengths = np.tile([plan.stretch_bytes for plan in self._plans], len(rows))
        return (ByteRanges(self.file, starts[starts >= 0], lengths[starts >= 0]),)


def _alike(band: _Band) -> tuple[int, int]:
    """Return a key that neighbours share if the same slice of each is wanted."""
    if isinstance(band.rows, slice):
        return band.rows.start, band.rows.stop
    return -1 - band.number, 0  # listed rows: like no other band, and below the start of any slice
