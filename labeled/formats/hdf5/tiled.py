"""Rows that span several chunks without filters: fetched band by band, copied by the grid.

A *band* is all chunks that hold the same rows. They mostly lie beside one another, so what
is wanted of them comes with few reads, tile after tile, into memory that stays in cache;
from there all tiles of which the same elements are wanted go to their places with one copy.
Rows far apart are picked from a memory map, where one may be used.

The trade-off: tiles are fetched by whole rows. Regions that leave out most of a long row of
a chunk are better read by :mod:`.stored`, tile by tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from labeled.errors import LabeledError
from labeled.formats.bytesource import FileRef, OpenFile
from labeled.formats.extent_engine import FEWEST_PICKED, SHORT_BYTES
from labeled.formats.extents import cut_long, merged
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.stored import Stretches, stretches
from labeled.formats.hdf5.tiles import Move, Tiles, move_of, moves_of
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    PIECE_BYTES,
    UNSTORED,
    Io,
    Piece,
    bands_of,
    failed,
    gather,
    n_rows_of,
    packed,
    row_nbytes,
    scratch,
    spread,
)
from labeled.formats.region import GAP_BYTES, Array, Ints, Region, region_shape

TILE_BYTES = 8 * 1024
"""Chunks from this size on are worth a call each; smaller ones are copied all tiles at once."""

ROWS_ALONE = 2
"""Rows in a stretch, on average, up to which they are picked one by one."""

LARGE_ROW_BYTES = 16 * 1024
"""Rows from this size on are picked one by one; smaller ones together, with a copy on the way."""


def spans_chunks(region: Region, tiles: Tiles, source: SourceHeader) -> bool:
    """Whether rows are read here: in several chunks, and with little of them left out."""
    assert source.chunks is not None
    if len(tiles) == 1 or any(isinstance(index, np.ndarray) for index in region):
        return False
    tile_row = row_nbytes(source.chunks[1:], source.dtype)
    used = row_nbytes(region_shape(region, source.row_shape), source.dtype)
    return tile_row <= GAP_BYTES or len(tiles) * tile_row * 4 <= used * 5


JOINED, PLACES = 3, 4
"""Columns of parts: whether one is read with that before, and the first of its places."""


class _Fetch(NamedTuple):
    """What is fetched for a piece."""

    firsts: Ints
    """Number of the first part of each stretch of rows; those of one are read with their gaps."""
    n_rows: Ints
    """Rows of each stretch."""
    reads: Ints
    """Extents (byte offset, place in the buffer, bytes)."""


class TiledChunks:
    """Reads chunks without filters that are shorter than rows."""

    def __init__(self, source: SourceHeader, region: Region, tiles: Tiles, io: Io) -> None:
        assert source.chunks is not None
        self.kind: str = "chunked"
        self.why = "chunks without filters: read by file offset, several a row"
        self._source, self._file, self._io = source, FileRef(source.file), io
        self._tiles, self._numbers = tiles, tiles.numbers
        self._chunk_rows, self._chunk = source.chunks[0], source.chunks[1:]
        self._tile_row = row_nbytes(self._chunk, source.dtype)
        self._row_shape = region_shape(region, source.row_shape)
        self._used = row_nbytes(self._row_shape, source.dtype)
        self._fetched_row = len(tiles) * self._tile_row
        shapes = self._chunk, self._row_shape, source.dtype
        self._moves = moves_of(tiles, *shapes, wanted=True)
        self._moves_in_file = moves_of(tiles, *shapes, wanted=False)
        self._alone = lru_cache(1024)(lambda t: move_of(tiles[t], *shapes))
        self._rows_each = min(self._chunk_rows, max(1, PIECE_BYTES // self._tile_row))
        self._tiles_each = len(tiles)
        if self._rows_each * self._tile_row < TILE_BYTES:
            self._rows_each = max(1, min(self._rows_each, PIECE_BYTES // self._fetched_row))
        else:
            block_bytes = self._rows_each * self._tile_row
            self._tiles_each = max(1, min(len(tiles), PIECE_BYTES // block_bytes))
        most = 2 * self._rows_each * self._tiles_each * self._tile_row
        self.scratch_bytes = 3 * max(PIECE_BYTES, most)
        self._band_bytes = tiles.per_band * self._chunk_rows * self._tile_row

    # planning

    def pieces(self, runs: Ints) -> list[Piece]:
        """Split checked runs into pieces of some bands, or of some tiles of one."""
        if not len(runs) or not self._used:
            return []
        self._file().check()
        parts, weights = self._planned(runs)
        large = np.flatnonzero(weights > PIECE_BYTES)
        cuts = np.union1d(packed(weights), np.append(large, large + 1))
        parts[cuts[:-1], JOINED] = 0
        return [
            piece
            for a, b in itertools.pairwise(cuts.tolist())
            for piece in self._split(parts[a:b], heavy=weights[a] > 2 * PIECE_BYTES)
        ]

    def _split(self, parts: Ints, *, heavy: bool) -> Iterator[Piece]:
        """Yield the pieces of some parts: one, or several of some tiles each."""
        start, first = parts[0, :2].tolist()
        last, last_first, n = parts[-1, :3].tolist()
        n_rows, n_tiles = last_first + n - first, len(self._tiles)
        each = self._tiles_each if heavy else n_tiles
        for a in range(0, n_tiles, each):
            b = min(a + each, n_tiles)
            some = parts
            if b - a < n_tiles:
                some = np.concatenate((parts[:, :PLACES], parts[:, PLACES + a : PLACES + b]), 1)
            nbytes = n_rows * self._used * (b - a) // n_tiles
            yield Piece(first, n_rows, nbytes, start, last + n, some, (a, b))

    def _planned(self, runs: Ints) -> tuple[Ints, Ints]:
        """Return parts of bands, and what they weigh.

        Columns are the first row, its number, rows, whether they are read with those before (of
        the same band, with a small gap between), and where they begin in each tile.
        """
        bands = bands_of(runs, self._chunk_rows)
        stretches = np.stack((bands[:, 0], bands[:, 2], bands[:, 1] - bands[:, 0]), axis=1)
        stretches = cut_long(stretches, self._rows_each, 1)
        parts = np.zeros((len(stretches), PLACES + len(self._tiles)), np.int64)
        parts[:, :3] = stretches
        parts[:, PLACES:] = self._places(stretches[:, 0], self._numbers)
        start, _, n = stretches.T
        weights = n * self._fetched_row
        gaps = start[1:] - start[:-1] - n[:-1]
        same = start[1:] // self._chunk_rows == start[:-1] // self._chunk_rows
        short = np.maximum(n[1:], n[:-1]) * self._tile_row <= SHORT_BYTES
        parts[1:, JOINED] = same & short & (gaps * self._tile_row <= GAP_BYTES)
        weights[1:] += (gaps + n[1:]) * parts[1:, JOINED] * self._fetched_row
        return parts, weights

    def _places(self, rows: Ints, numbers: Ints) -> Ints:
        """Return where rows begin in the file: one line a row, one column a tile."""
        band = rows // self._chunk_rows
        chunks = band[:, None] * self._tiles.per_band + numbers
        offsets = chunk_index(self._source).find(chunks.reshape(-1))[0].reshape(chunks.shape)
        inside = offsets + ((rows - band * self._chunk_rows) * self._tile_row)[:, None]
        return np.where(offsets == UNSTORED, UNSTORED, inside)

    def _fetch(self, piece: Piece) -> _Fetch:
        parts = piece.parts
        firsts = np.flatnonzero(parts[:, JOINED] == 0)
        n_rows = parts[:, 2]
        if len(firsts) < len(parts):
            last = np.append(firsts[1:], len(parts)) - 1
            n_rows = parts[last, 0] + parts[last, 2] - parts[firsts, 0]
        at = parts[firsts, PLACES:]
        reads = np.empty((at.size, 3), np.int64)
        reads[:, 0] = at.reshape(-1)
        reads[:, 2] = np.repeat(n_rows * self._tile_row, at.shape[1])
        reads[:, 1] = np.cumsum(reads[:, 2]) - reads[:, 2]
        return _Fetch(firsts, n_rows, merged(reads, 1))

    # reading

    @cached_property
    def _stretches(self) -> Stretches | None:
        if len(self._tiles) < self._tiles.per_band or self._io == "mmap":
            return None
        small = 0 < self._band_bytes <= 2 * PIECE_BYTES
        return stretches(self._source, self._tiles.per_band) if small else None

    def straight_into(self, out: Array, start: int, stop: int) -> bool:
        """Read one run, some bands that follow one another in the file with each call."""
        found = self._stretches
        if found is None:
            return False
        file, rows, each = self._file(), self._chunk_rows, PIECE_BYTES // self._band_bytes or 1
        file.check()
        try:
            a = start
            while a < stop:
                k = int(found.starts.searchsorted(a, side="right")) - 1
                n_bands = min((min(int(found.stops[k]), stop) - a) // rows, each)
                if n_bands > 0 and a % rows == 0:
                    self._read_bands(file, out, a - start, int(found.bases[k]), a // rows, n_bands)
                    a += n_bands * rows
                    continue
                end = min(a - a % rows + rows, stop)
                for piece in self.pieces(np.array([[a, end]])):
                    self.read_piece(piece, out[a - start : end - start], None)
                a = end
        except LabeledError:
            raise
        except (OSError, EOFError) as fault:
            raise failed(self._source, start, stop, fault) from fault
        return True

    def _read_bands(
        self, file: OpenFile, out: Array, first: int, base: int, band: int, n_bands: int
    ) -> None:
        at = base + band * self._band_bytes
        buffer = scratch("tiles", n_bands * self._band_bytes, at)
        file.read_into(buffer, at)
        step, rows = self._chunk_rows * self._tile_row, _bytes(out)
        strides = self._band_bytes, self._tile_row
        for move in self._moves:
            values = move.taken(buffer, 0, step, (n_bands, self._chunk_rows), strides)
            self._put(move, rows, values, first, None)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`~labeled.formats.rows.RowReader`."""
        file, fetch = self._file(), self._fetch(piece)
        try:
            if (
                self._scattered(fetch, piece)
                and (mapped := file.mapped(scattered=True)) is not None
            ):
                self._pick_piece(mapped, piece, out, dest)
                file.copied(piece.nbytes, scattered=True)
            else:
                self._read_piece(file, fetch, piece, out, dest)
        except LabeledError:
            raise
        except (OSError, EOFError) as fault:
            raise failed(self._source, piece.start, piece.stop, fault) from fault

    def _read_piece(
        self, file: OpenFile, fetch: _Fetch, piece: Piece, out: Array, dest: Ints | None
    ) -> None:
        at, place, n = fetch.reads[-1].tolist()
        buffer = scratch("tiles", place + n, int(fetch.reads[0, 0]))
        mapped = file.mapped() if self._io == "mmap" else None
        for at, place, n in fetch.reads.tolist():
            target = buffer[place : place + n]
            if at == UNSTORED:
                target.view(self._source.dtype)[:] = self._source.fill_value
            elif mapped is None:
                file.read_into(target, at)
            else:
                target[:] = mapped[at : at + n]
                file.copied(n)
        self._place(buffer, fetch, piece, out, dest)

    def _place(
        self, buffer: Array, fetch: _Fetch, piece: Piece, out: Array, dest: Ints | None
    ) -> None:
        """Copy what was fetched to its places, stretches of as many rows together."""
        parts, rows, tile_row = piece.parts, _bytes(out), self._tile_row
        ends = np.append(fetch.firsts, len(parts))
        base = 0
        for begin, stop, n in _alike(fetch, ends):
            stretch = (piece.tiles[1] - piece.tiles[0]) * n * tile_row
            first, within = int(parts[ends[begin], 1]), None
            if ends[stop] - ends[begin] > stop - begin:
                joined = parts[ends[begin] : ends[stop]]
                within = spread(joined[:, 0] - joined[0, 0], joined[:, 2])
            for move, skipped in self._moves_of(piece):
                at, shape = base + skipped * n * tile_row, (stop - begin, n)
                values = move.taken(buffer, at, n * tile_row, shape, (stretch, tile_row))
                if within is not None:
                    values = values[:, within]
                self._put(move, rows, values, first, dest)
            base += (stop - begin) * stretch

    def _put(self, move: Move, rows: Array, values: Array, first: int, dest: Ints | None) -> None:
        """Store values of shape (stretches, rows of each, ...) in their places."""
        shape = values.shape[:2]
        if dest is None:
            move.target(rows, first, shape)[...] = values
        else:
            place = dest[first : first + shape[0] * shape[1]].reshape(shape)
            move.target(rows, 0, (len(rows),))[place] = values

    def _moves_of(self, piece: Piece) -> Iterable[tuple[Move, int]]:
        """Return moves that together are the tiles of a piece, and the tiles before each."""
        a, b = piece.tiles
        if self._tiles_each == len(self._tiles):
            return ((move, 0) for move in self._moves)
        return ((self._alone(t), t - a) for t in range(a, b))

    # picking

    def _scattered(self, fetch: _Fetch, piece: Piece) -> bool:
        """Whether all rows of a piece are better picked from a memory map at once."""
        if self._io == "pread" or len(fetch.reads) < FEWEST_PICKED:
            return False
        short = int(fetch.reads[:, 2].sum()) <= len(fetch.reads) * SHORT_BYTES
        alone = piece.n_rows <= ROWS_ALONE * len(piece.parts)
        return short and alone and bool((fetch.reads[:, 0] != UNSTORED).all())

    def _pick_piece(self, mapped: Array, piece: Piece, out: Array, dest: Ints | None) -> None:
        n = piece.parts[:, 2]
        inside = spread(np.zeros_like(n), n)
        at = np.repeat(piece.parts[:, PLACES:], n, axis=0) + inside[:, None] * self._tile_row
        place = np.arange(len(at)) + piece.first if dest is None else dest[piece.first :][: len(at)]
        self._pick(mapped, at, piece.tiles, _bytes(out), place)

    def _pick(
        self, mapped: Array, at: Ints, tiles: tuple[int, int], rows: Array, place: Ints
    ) -> None:
        """Copy rows from a map: one line of `at` a row, one column a tile.

        Bands whose chunks lie beside one another are copied with a call a patch, others with
        a call a tile.
        """
        step = self._chunk_rows * self._tile_row
        apart = (self._numbers[slice(*tiles)] - self._numbers[tiles[0]]) * step
        even = (at - at[:, :1] == apart).all(axis=1)
        if tiles[1] - tiles[0] < len(self._tiles):
            even[:] = False
        if even.any():
            for move in self._moves_in_file:
                self._pick_move(mapped, move, at[even, 0], step, rows, place[even])
        if not even.all():
            for t in range(*tiles):
                some = at[~even, t - tiles[0]]
                self._pick_move(mapped, self._alone(t), some, step, rows, place[~even])

    def _pick_move(
        self, mapped: Array, move: Move, at: Ints, step: int, rows: Array, place: Ints
    ) -> None:
        stored = move.taken(mapped, 0, step, (len(mapped) + 1 - move.reach(step),), (1,))
        target = move.target(rows, 0, (len(rows),))
        if self._used < LARGE_ROW_BYTES:
            target[place] = stored[at]
            return
        for row, begin in zip(place.tolist(), at.tolist(), strict=True):
            target[row] = stored[begin]

    def gather_into(self, out: Array, rows: Ints) -> None:
        """Store ``source[rows]`` in `out`: from a memory map where there is one."""
        file = self._file()
        mapped = None if self._io == "pread" or not self._used else file.mapped(scattered=True)
        if mapped is None:
            gather(rows, out, self.pieces, self.read_piece)
            return
        file.check()
        tiles, target = (0, len(self._tiles)), _bytes(out)
        step = max(1, PIECE_BYTES // self._used)
        for a in range(0, len(rows), step):
            some = rows[a : a + step]
            at = self._places(some, self._numbers)
            if (at == UNSTORED).any():
                gather(some, out[a : a + step], self.pieces, self.read_piece)
            else:
                self._pick(mapped, at, tiles, target, np.arange(a, a + len(some)))
        file.copied(out.nbytes, scattered=True)

    # telling

    def cost(self, runs: Ints) -> Cost:
        """Count what :meth:`pieces` and :meth:`read_piece` would do."""
        reads = [self._stored(piece) for piece in self.pieces(runs)]
        n_bytes = sum(int(read[:, 2].sum()) for read in reads)
        return Cost(n_bytes, n_rows_of(runs) * self._used, sum(map(len, reads)), 0)

    def advise(self, runs: Ints) -> None:
        """Tell the system which bytes come next."""
        file = self._file()
        for piece in self.pieces(runs):
            for at, _, n in self._stored(piece).tolist():
                file.advise(at, n)

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch the first part of a row from storage."""
        at = int(self._places(np.array([row]), self._numbers[:1])[0, 0]) if self._used else UNSTORED
        return at != UNSTORED and not self._file().holds(at)

    def _stored(self, piece: Piece) -> Ints:
        reads = self._fetch(piece).reads
        stored: Ints = reads[reads[:, 0] != UNSTORED]
        return stored


def _alike(fetch: _Fetch, ends: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield stretches that are copied together: the first, one past the last, rows of each."""
    n = fetch.n_rows
    if len(n) == 1:
        yield 0, 1, int(n[0])
        return
    joined = np.diff(ends) > 1
    cut = np.flatnonzero((n[1:] != n[:-1]) | joined[1:] | joined[:-1]) + 1
    for begin, stop in itertools.pairwise([0, *cut.tolist(), len(n)]):
        yield begin, stop, int(n[begin])


def _bytes(out: Array) -> Array:
    """View rows as bytes, one line a row."""
    return out.reshape(-1).view(np.uint8).reshape(len(out), -1)
