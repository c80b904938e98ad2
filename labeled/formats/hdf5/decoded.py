"""Rows of chunks with filters: fetched by byte range, decoded outside HDF5's lock.

Chunks are fetched whole, several with one read where they lie together, decoded into
memory that stays in cache, and copied out once: to the rows of the result in order, or
scattered over it.

The trade-off: a chunk is decoded whole even for one element of it. Hence pieces are made
of whole bands of chunks, so that no chunk of a window is decoded twice.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from labeled.errors import LabeledError, ReadError
from labeled.formats.bytesource import FileRef, OpenFile
from labeled.formats.clock import decoding, fetching
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.filters import DecodeError, Pipeline, damage
from labeled.formats.hdf5.tiles import Tile, Tiles
from labeled.formats.header import SourceHeader
from labeled.formats.keeping import ChunkKeeper
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    PIECE_BYTES,
    UNSTORED,
    Engine,
    Piece,
    bands_of,
    failed,
    n_rows_of,
    put_rows,
    row_nbytes,
    scratch,
    spread,
)
from labeled.formats.region import (
    GAP_BYTES,
    Array,
    Ints,
    Region,
    is_whole,
    outer_put,
    outer_take,
    region_shape,
)

SLACK_BYTES = 64 * 1024
"""How much larger than twice its decoded size a stored chunk may be before it is refused."""


class _Work(NamedTuple):
    """The chunks of a piece: one line a band, one column a tile, flattened."""

    parts: Ints
    """(start, stop, number of the first row), one or more a band."""
    bands: list[int]
    ends: list[int]
    """Which parts make up a band: the first of each, and one past the last of all."""
    tiles: list[Tile]
    offsets: list[int]
    sizes: list[int]
    masks: list[int]


class DecodeEngine(Engine):
    """Reads chunks with filters that :mod:`.filters` can undo."""

    def __init__(self, source: SourceHeader, region: Region) -> None:
        assert source.chunks is not None
        self.kind: str = "chunked"
        names = ", ".join(step.words for step in source.filters)
        self.why = f"chunks decoded outside HDF5's lock ({names})"
        self._source = source
        self._file = FileRef(source.file)
        self._chunks = source.chunks
        self._chunk_bytes = math.prod(source.chunks) * source.dtype.itemsize
        self._pipeline = Pipeline(source.filters, self._chunk_bytes, source.dtype.itemsize)
        self._whole_rows = is_whole(region, source.row_shape)
        self._tiles = Tiles(region, source.row_shape, source.chunks[1:])
        self._most_stored = 2 * self._chunk_bytes + SLACK_BYTES
        self._as_chunk: Callable[[Any], Array] = partial(
            cast(Any, np.ndarray), source.chunks, source.dtype
        )
        self._alone = len(self._tiles) == 1
        self._first_tile = self._tiles[0]
        self._plain = self._alone and is_whole(self._first_tile.local, source.chunks[1:])
        self._direct = self._plain and source.dtype.isnative
        self._used = row_nbytes(region_shape(region, source.row_shape), source.dtype)
        band_bytes = max(len(self._tiles) * self._chunk_bytes, 1)
        self._bands_each = -(-PIECE_BYTES // band_bytes)
        whole_bands = band_bytes <= 2 * PIECE_BYTES
        each = len(self._tiles) if whole_bands else -(-PIECE_BYTES // self._chunk_bytes)
        cuts = [*range(0, len(self._tiles), each), len(self._tiles)]
        self._spans = list(itertools.pairwise(cuts))
        self.scratch_bytes = 2 * PIECE_BYTES + 4 * self._chunk_bytes
        self._keeper: ChunkKeeper | None = None

    def keep_in(self, keeper: ChunkKeeper) -> None:
        """Keep decoded chunks there, so that those are decoded once whose rows come bit by bit."""
        self._keeper = keeper
        self.why += ", one at a time, and kept while rows of it are wanted"

    def pieces(self, runs: Ints) -> list[Piece]:
        """Split checked runs into pieces of whole chunks."""
        if not len(runs) or not self._used:
            return []
        self._file().check()
        parts, each = bands_of(runs, self._chunks[0]), self._bands_each
        band = parts[:, 0] // self._chunks[0]
        begins = np.append(0, np.flatnonzero(band[1:] != band[:-1]) + 1)
        cuts = [*begins[::each].tolist(), len(parts)]
        n_bands = [each] * (len(cuts) - 2) + [len(begins) - each * (len(cuts) - 2)]
        return [
            self._piece(parts[a:b], n, tiles)
            for (a, b), n in zip(itertools.pairwise(cuts), n_bands, strict=True)
            for tiles in self._spans
        ]

    def _piece(self, parts: Ints, n_bands: int, tiles: tuple[int, int]) -> Piece:
        start, _, first = parts[0].tolist()
        last, stop, last_first = parts[-1].tolist()
        nbytes = n_bands * (tiles[1] - tiles[0]) * self._chunk_bytes
        return Piece(first, last_first + stop - last - first, nbytes, start, stop, parts, tiles)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`~labeled.formats.rows.RowReader`."""
        file = self._file()
        work = self._work(piece)
        try:
            with decoding():
                if self._keeper is not None:
                    self._store_kept(file, work, out, dest, self._keeper)
                elif self._direct and (dest is not None or len(work.parts) > len(work.bands)):
                    self._store_picked(file, work, out, dest)
                else:
                    self._store_each(file, work, out, dest)
        except LabeledError:
            raise
        except (OSError, EOFError) as fault:
            raise failed(self._source, piece.start, piece.stop, fault) from fault

    def _work(self, piece: Piece) -> _Work:
        bands: list[int] = []
        ends: list[int] = []
        for i, start in enumerate(piece.parts[:, 0].tolist()):  # most often very few
            band = start // self._chunks[0]
            if not bands or band != bands[-1]:
                bands.append(band)
                ends.append(i)
        ends.append(len(piece.parts))
        numbers = np.array(bands)
        tiles = [self._tile(t) for t in range(*piece.tiles)]
        if not self._alone:
            across = np.array([tile.number for tile in tiles])
            numbers = (numbers[:, None] * self._tiles.per_band + across).reshape(-1)
        elif self._tiles.per_band > 1:
            numbers = numbers * self._tiles.per_band + tiles[0].number
        offsets, sizes, masks = (a.tolist() for a in chunk_index(self._source).find(numbers))
        return _Work(piece.parts, bands, ends, tiles, offsets, sizes, masks)

    def _tile(self, t: int) -> Tile:
        return self._first_tile if t == 0 else self._tiles[t]

    def _stored(self, file: OpenFile, work: _Work) -> Iterator[tuple[int, Array | None]]:
        """Yield each chunk's place in `work` and its bytes; None where it was never stored."""
        for group in _groups(work.offsets, work.sizes):
            at = work.offsets[group[0]]
            if at == UNSTORED:
                yield group[0], None
                continue
            self._check_stored(work, max(work.sizes[group.start : group.stop]), group.start)
            end = work.offsets[group[-1]] + work.sizes[group[-1]]
            buffer = scratch("stored", end - at, at)
            with fetching():
                file.read_into(buffer, at)
            for k in group:
                start = work.offsets[k] - at
                yield k, buffer[start : start + work.sizes[k]]

    def _check_stored(self, work: _Work, size: int, k: int) -> None:
        if size > self._most_stored:
            raise self._damaged(work, k, "more bytes stored than it can need")

    def _decode(self, work: _Work, k: int, stored: Array) -> Array:
        try:
            return self._as_chunk(self._pipeline.undo(stored, work.masks[k]))
        except DecodeError as fault:
            raise self._damaged(work, k, str(fault)) from fault

    def _decode_into(self, work: _Work, k: int, stored: Array, out: Array) -> None:
        try:
            self._pipeline.undo_into(stored, work.masks[k], out)
        except DecodeError as fault:
            raise self._damaged(work, k, str(fault)) from fault

    def _damaged(self, work: _Work, k: int, what: str) -> ReadError:
        start = work.bands[k // len(work.tiles)] * self._chunks[0]
        stop = min(start + self._chunks[0], self._source.n_rows)
        return damage(self._source, start, stop, work.offsets[k], what)

    def _store_each(self, file: OpenFile, work: _Work, out: Array, dest: Ints | None) -> None:
        """Decode chunk by chunk to their places, or copy the wanted elements of each there."""
        plain = self._plain and len(work.parts) == len(work.bands)
        lines = work.parts.tolist() if plain else []
        straight = plain and self._direct and dest is None
        chunk_rows, chunk_bytes = self._chunks[0], self._chunk_bytes
        flat = out.reshape(-1).view(np.uint8) if straight else out
        for k, stored in self._stored(file, work):
            if straight and stored is not None:
                start, stop, first = lines[k]
                if stop - start == chunk_rows:
                    place = first * self._used
                    self._decode_into(work, k, stored, flat[place : place + chunk_bytes])
                    continue
            chunk = None if stored is None else self._decode(work, k, stored)
            if not plain or chunk is None:
                self._store(chunk, work, k, out, dest)
                continue
            start, stop, first = lines[k]
            end = first + stop - start
            if stop - start < chunk_rows:
                base = work.bands[k] * chunk_rows
                chunk = chunk[start - base : stop - base]
            if dest is None:
                out[first:end] = chunk
            else:
                put_rows(out, dest[first:end], chunk)
            del chunk  # so that the next one is decoded into the same, hot memory

    def _store_kept(
        self, file: OpenFile, work: _Work, out: Array, dest: Ints | None, keeper: ChunkKeeper
    ) -> None:
        """Copy wanted elements of chunks that are decoded once, though rows come bit by bit."""
        n_tiles = len(work.tiles)
        step = max(1, PIECE_BYTES // max(1, self._used))
        for b, band in enumerate(work.bands):
            rows, place = self._rows(work, b, dest)
            with keeper.band(self._source.file.path, self._source.key, band) as kept:
                for k in range(b * n_tiles, (b + 1) * n_tiles):
                    tile = work.tiles[k % n_tiles]
                    if tile.number not in kept and work.offsets[k] != UNSTORED:
                        kept[tile.number] = self._decode_own(file, work, k)
                    for a in range(0, _length(rows), step):  # no large copy on the way
                        some = _part(rows, a, step), _part(place, a, step)
                        self._put(kept.get(tile.number), tile, *some, out)

    def _decode_own(self, file: OpenFile, work: _Work, k: int) -> Array:
        """Read and decode one chunk into memory of its own."""
        self._check_stored(work, work.sizes[k], k)
        # Memory of its own: what an allocator is given back it may keep.
        stored = np.frombuffer(mmap.mmap(-1, max(1, work.sizes[k])), np.uint8)[: work.sizes[k]]
        with fetching():
            file.read_into(stored, work.offsets[k])
        data = [stored]
        del stored  # let go of as soon as it is decoded
        try:
            return self._as_chunk(self._pipeline.undo_own(data, work.masks[k]))
        except DecodeError as fault:
            raise self._damaged(work, k, str(fault)) from fault

    def _store(
        self, chunk: Array | None, work: _Work, k: int, out: Array, dest: Ints | None
    ) -> None:
        b, t = divmod(k, len(work.tiles))
        self._put(chunk, work.tiles[t], *self._rows(work, b, dest), out)

    def _put(
        self,
        chunk: Array | None,
        tile: Tile,
        rows: slice | Ints,
        place: slice | Ints,
        out: Array,
    ) -> None:
        """Store what is wanted of some rows of a chunk, or fill values, in their places."""
        if chunk is None:
            values = np.asarray(self._source.fill_value, self._source.dtype)
        elif isinstance(rows, slice):
            values = outer_take(chunk[rows], tile.local)
        elif self._direct and isinstance(place, slice):
            np.take(chunk, rows, axis=0, out=out[place], mode="clip")
            return
        else:
            values = outer_take(chunk, tile.local, rows)
        if self._alone:
            put_rows(out, place, values)
        else:
            outer_put(out, place, tile.trail, values)

    def _rows(self, work: _Work, b: int, dest: Ints | None) -> tuple[slice | Ints, slice | Ints]:
        """Return which rows of band `b` are wanted, and their places in the result."""
        a, z = work.ends[b], work.ends[b + 1]
        (start, _, first), (last, stop, last_first) = work.parts[[a, z - 1]].tolist()
        base, end = work.bands[b] * self._chunks[0], last_first + stop - last
        rows: slice | Ints = slice(start - base, stop - base)
        if z - a > 1:
            parts = work.parts[a:z]
            rows = spread(parts[:, 0] - base, parts[:, 1] - parts[:, 0])
        return rows, slice(first, end) if dest is None else dest[first:end]

    def _store_picked(self, file: OpenFile, work: _Work, out: Array, dest: Ints | None) -> None:
        """Decode chunks side by side, then copy the wanted rows of all with one call."""
        rows = self._side_by_side(file, work)
        parts, bands = work.parts, work.bands
        (_, _, first), (last, stop, end) = parts[[0, -1]].tolist()
        end += stop - last
        wanted = None
        if end - first < len(rows):
            begins = parts[:, 0] - bands[0] * self._chunks[0]
            if bands[-1] - bands[0] >= len(bands):  # some are left out
                gaps = np.array(bands) - bands[0] - np.arange(len(bands))
                begins -= np.repeat(gaps * self._chunks[0], np.diff(work.ends))
            wanted = spread(begins, parts[:, 1] - parts[:, 0])
        if dest is not None:
            put_rows(out, dest[first:end], rows, wanted)
        elif wanted is not None:
            np.take(rows, wanted, axis=0, out=out[first:end], mode="clip")
        else:
            out[first:end] = rows

    def _side_by_side(self, file: OpenFile, work: _Work) -> Array:
        """Return all rows of the chunks of a piece, decoded into memory that stays hot."""
        each, n_bands = self._chunk_bytes, len(work.bands)
        joined = scratch("joined", n_bands * each)
        rows = joined.view(self._source.dtype).reshape(-1, *self._chunks[1:])
        for k, stored in self._stored(file, work):
            if stored is None:
                rows[k * self._chunks[0] : (k + 1) * self._chunks[0]] = self._source.fill_value
            elif n_bands == 1:
                return self._decode(work, k, stored)
            else:
                self._decode_into(work, k, stored, joined[k * each : (k + 1) * each])
        return rows

    def cost(self, runs: Ints) -> Cost:
        """Count what :meth:`pieces` and :meth:`read_piece` would do."""
        n_bytes = n_reads = n_chunks = 0
        for at, end, chunks in self._fetched(runs):
            n_bytes, n_reads, n_chunks = n_bytes + end - at, n_reads + 1, n_chunks + chunks
        return Cost(n_bytes, n_rows_of(runs) * self._used, n_reads, n_chunks)

    def advise(self, runs: Ints) -> None:
        """Tell the system which bytes come next."""
        file = self._file()
        for at, end, _ in self._fetched(runs):
            file.advise(at, end - at)

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch the chunk of a row from storage."""
        if not self._used:
            return False
        spans = self._fetched(np.array([[row, row + 1]]))
        return any(not self._file().holds(int(at)) for at, _, _ in spans)

    def _fetched(self, runs: Ints) -> Iterator[tuple[int, int, int]]:
        """Yield the bytes of every read that `runs` take, and the chunks in them."""
        for piece in self.pieces(runs):
            work = self._work(piece)
            for group in _groups(work.offsets, work.sizes):
                if work.offsets[group[0]] != UNSTORED:
                    end = work.offsets[group[-1]] + work.sizes[group[-1]]
                    yield work.offsets[group[0]], end, len(group)


def _groups(offsets: list[int], sizes: list[int]) -> Iterator[range]:
    """Yield stretches of chunks that one read brings: in file order, with small gaps."""
    start = 0
    for k in range(1, len(offsets)):
        gap = offsets[k] - offsets[k - 1] - sizes[k - 1]
        if not 0 <= gap <= GAP_BYTES or offsets[k - 1] == UNSTORED:
            yield range(start, k)
            start = k
    if offsets:
        yield range(start, len(offsets))


def _length(rows: slice | Ints) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _part(rows: slice | Ints, first: int, n: int) -> slice | Ints:
    """Return at most `n` of the rows, from number `first` on."""
    if isinstance(rows, slice):
        return slice(rows.start + first, min(rows.start + first + n, rows.stop))
    return rows[first : first + n]
