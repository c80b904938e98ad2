"""Rows of chunks: found by an index, taken back through filters, copied to where they go.

Chunks without filters that are as wide as rows lie in the file as they are, so that their rows are
read like contiguous ones (:class:`PlainChunks`). All others are put together here: chunks are
fetched several with one call where they lie together, decoded outside HDF5's lock into memory that
stays in cache, and copied out once. The filters of a chunk may be none; then no more of it is
fetched than is wanted.

A *band* is all chunks that hold the same rows, a *tile* one chunk of a band (:mod:`.tiles`).

The trade-off: a chunk is decoded whole even for one element of it.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import LabeledError, ReadError
from labeled.formats.bytesource import OpenFile
from labeled.formats.contiguous import ContiguousReader, stretch_bases
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.filters import DecodeError, Pipeline, damage
from labeled.formats.hdf5.tiles import Move, Tile, Tiles, moves_of
from labeled.formats.header import SourceHeader
from labeled.formats.memory import put_rows, scratch
from labeled.formats.reader import (
    FEW,
    PIECE_BYTES,
    UNSTORED,
    ByteRanges,
    ChunkCache,
    FileReader,
    Io,
    Rows,
    count,
    decoding,
    failed,
    row_nbytes,
    spread,
)
from labeled.formats.region import (
    GAP_BYTES,
    Array,
    BoxPlan,
    Ints,
    Region,
    box_plan,
    is_whole,
    outer_put,
    outer_take,
)

LISTED_ROWS = 1 << 18
"""So many rows of many runs are listed one by one at a time."""

SLACK_BYTES = 64 * 1024
"""How much larger than twice its decoded size a stored chunk may be before it is refused."""


class PlainChunks(ContiguousReader):
    """Rows of chunks without filters, each row in one chunk: at other places, and nothing more."""

    kind = "chunked"
    why = "chunks without filters: read by file offset"

    def _box_plan(self) -> BoxPlan:
        chunks = self.source.chunks
        assert chunks is not None
        tiles = Tiles(self.region, self.source.row_shape, chunks[1:])
        (tile,) = tiles
        self._number, self._per_band = tile.number, tiles.per_band
        return box_plan(tile.local, chunks[1:], self.source.dtype)

    @cached_property
    def _stretches(self) -> tuple[Ints, Ints]:
        index = chunk_index(self.source)
        numbers = np.arange(len(index.offsets)) if index.numbers is None else index.numbers
        mine = numbers % self._per_band == self._number
        firsts = numbers[mine] // self._per_band * self.chunk_rows
        bases = stretch_bases(index.offsets[mine].astype(np.int64), firsts, self._plan.row_bytes)
        ends = np.minimum(np.append(0, firsts + self.chunk_rows), self.n_rows)
        gone = ends[ends != np.append(firsts, self.n_rows)]  # chunks that are not there begin
        firsts = np.append(firsts, gone)
        bases = np.append(bases, stretch_bases(np.full(len(gone), UNSTORED), gone, 0))
        order = np.argsort(firsts, kind="stable")
        firsts, bases = firsts[order], bases[order]
        begins = np.append(True, bases[1:] != bases[:-1])
        return firsts[begins], bases[begins]

    def _places(self, rows: Ints) -> Ints:
        index = chunk_index(self.source)
        band, within = np.divmod(rows, self.chunk_rows)
        offsets, _, _ = index.find(band * self._per_band + self._number)
        return np.where(offsets < 0, offsets, offsets + within * self._plan.row_bytes)


class _Band(NamedTuple):
    """What is wanted of the chunks that hold the same rows."""

    number: int
    rows: slice | Ints
    """Counted within the band; they ascend."""
    n: int


class _Group(NamedTuple):
    """Chunks that are read together: a line a band, a column a tile, flattened."""

    first: int
    """The number of the first row, and of how many."""
    n: int
    bands: list[_Band]
    tiles: range
    starts: list[int]
    """Where the bytes that are fetched of each chunk begin; negative if it was never stored."""
    lengths: list[int]
    masks: list[int]


class ChunkedReader(FileReader):
    """Rows put together from chunks, with filters or without; a :class:`~.reader.Reader`.

    Parameters
    ----------
    cache : ChunkCache, optional
        Keeps decoded chunks, so that each is decoded once though its rows come bit by bit.
    """

    kind = "chunked"

    def __init__(
        self,
        source: SourceHeader,
        region: Region = (),
        io: Io = "auto",
        cache: ChunkCache | None = None,
    ) -> None:
        super().__init__(source, region, io)
        assert source.chunks is not None
        self.cache = cache
        self._chunks = source.chunks
        self._chunk_bytes = row_nbytes(source.chunks, source.dtype)
        self._most_stored = 2 * self._chunk_bytes + SLACK_BYTES
        self._pipeline = Pipeline(source.filters, self._chunk_bytes, source.dtype.itemsize)
        self._tiles = Tiles(self.region, source.row_shape, source.chunks[1:])
        self._plan = lru_cache(1024)(self._box_plan)
        self._tile = lru_cache(1024)(self._tiles.__getitem__)
        n_tiles = len(self._tiles)
        whole = n_tiles == 1 and is_whole(self._tile(0).local, source.chunks[1:])
        self._direct = whole and source.dtype.isnative
        band_bytes = max(n_tiles * self._chunk_bytes, 1)
        self._bands_each = -(-PIECE_BYTES // band_bytes)
        each = n_tiles if band_bytes <= 2 * PIECE_BYTES else -(-PIECE_BYTES // self._chunk_bytes)
        self._spans = [range(a, min(a + each, n_tiles)) for a in range(0, n_tiles, each)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.region, self.io, self.cache)

    @property
    def why(self) -> str:  # type: ignore[override]
        """What is done with chunks, for people."""
        if not self.source.filters:
            return "chunks without filters: read by file offset, several a row"
        names = ", ".join(step.words for step in self.source.filters)
        kept = ", one at a time, and kept while rows of it are wanted" if self.cache else ""
        return f"chunks decoded outside HDF5's lock ({names}){kept}"

    def _box_plan(self, t: int) -> BoxPlan:
        """Return what is fetched of the rows of a tile, where nothing has to be decoded."""
        return box_plan(self._tile(t).local, self._chunks[1:], self.source.dtype)

    # which chunks

    def _groups(self, runs: Ints) -> Iterator[_Group]:
        """Yield the chunks of runs, about `PIECE_BYTES` at a time."""
        bands, first = iter(self._bands(runs)), 0
        while some := list(itertools.islice(bands, self._bands_each)):
            n = sum([band.n for band in some])
            for tiles in self._spans:
                yield self._group(first, n, some, tiles)
            first += n

    def _bands(self, runs: Ints) -> Iterable[_Band]:
        """Return what is wanted of each band: few runs are looked at one by one."""
        each = self.chunk_rows
        if len(runs) > FEW:
            return self._bands_of_many(runs)
        bands: list[_Band] = []
        for start, stop in runs.tolist():
            while start < stop:
                number, begin = divmod(start, each)
                n = stop - start if stop - start < each - begin else each - begin
                if bands and bands[-1].number == number:
                    return self._bands_of_many(runs)
                bands.append(_Band(number, slice(begin, begin + n), n))
                start += n
        return bands

    def _bands_of_many(self, runs: Ints) -> Iterator[_Band]:
        each = self.chunk_rows
        low, high = int(runs[0, 0]) // each, (int(runs[-1, 1]) - 1) // each
        if low < high and count(runs) > LISTED_ROWS:
            middle = (low + high + 1) // 2 * each
            for half in (np.minimum(runs, middle), np.maximum(runs, middle)):
                yield from self._bands(half[half[:, 0] < half[:, 1]])
            return
        rows = spread(runs[:, 0], runs[:, 1] - runs[:, 0])
        numbers = rows // each
        cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
        for a, b in itertools.pairwise(cuts):
            number, n = int(numbers[a]), b - a
            yield _Band(number, slice(0, n) if n == each else rows[a:b] - number * each, n)

    def _group(self, first: int, n: int, bands: list[_Band], tiles: range) -> _Group:
        index, per_band = chunk_index(self.source), self._tiles.per_band
        starts: list[int] = []
        lengths: list[int] = []
        masks: list[int] = []
        for band in bands:
            for t in tiles:
                start, length, mask = index.entry(band.number * per_band + self._tile(t).number)
                if not self.source.filters:
                    plan, rows = self._plan(t), _stretch(band)
                    start += rows.start * plan.row_bytes + plan.starts[0] if start >= 0 else 0
                    length = plan.bytes_of(len(rows))
                starts.append(start)
                lengths.append(length)
                masks.append(mask)
        return _Group(first, n, bands, tiles, starts, lengths, masks)

    def _reads(self, group: _Group) -> Iterator[tuple[range, list[tuple[int, int]]]]:
        """Yield chunks that come together, and (offset, length) of each call; none if unstored."""
        starts, lengths, k = group.starts, group.lengths, 0
        packed = bool(self.source.filters)
        apart = not packed and not all(self._plan(t).read_through for t in group.tiles)
        while k < len(starts):
            first, at, end = k, starts[k], starts[k] + lengths[k]
            k += 1
            if at < 0:
                yield range(first, k), []
            elif apart:  # parts of long rows
                b, t = divmod(first, len(group.tiles))
                plan, n = self._plan(group.tiles[t]), len(_stretch(group.bands[b]))
                calls = plan.ranges(np.array([at - plan.starts[0]]), np.array([n]))
                yield range(first, k), list(zip(*(c.tolist() for c in calls), strict=True))
            else:
                gap = GAP_BYTES if packed else 0
                while k < len(starts) and 0 <= starts[k] - end <= gap:
                    end = starts[k] + lengths[k]
                    k += 1
                yield range(first, k), [(at, end - at)]

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        reads: list[tuple[int, int]] = []
        n_chunks = 0
        for group in self._groups(runs):
            for chunks, calls in self._reads(group):
                reads += calls
                n_chunks += len(chunks) if calls and self.source.filters else 0
        starts, lengths = np.array(reads, np.int64).reshape(-1, 2).T
        return (ByteRanges(self.file, starts, lengths, n_chunks),)

    # reading

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        file = self.file()
        file.check()
        for group in self._groups(runs):
            try:
                if self.cache is not None and self.source.filters:
                    self._store_cached(file, group, out, places, self.cache)
                elif self._moves:
                    self._store_moved(file, group, out, places, self._moves)
                elif self._direct and (places is not None or _has_lists(group.bands)):
                    self._store_together(file, group, out, places)
                else:
                    self._store_each(file, group, out, places)
            except LabeledError:
                raise
            except (OSError, EOFError) as fault:
                first, last = group.bands[0], group.bands[-1]
                start = first.number * self.chunk_rows + _stretch(first).start
                stop = last.number * self.chunk_rows + _stretch(last).stop
                raise failed(self.source, start, stop, fault) from fault

    def _fetched(self, file: OpenFile, group: _Group) -> Iterator[tuple[int, Array | None]]:
        """Yield each chunk's place in a group and its bytes; None where it was never stored."""
        starts, lengths = group.starts, group.lengths
        if self.source.filters and max(lengths) > self._most_stored:
            self._check_stored(group)
        for chunks, calls in self._reads(group):
            if not calls:
                yield chunks[0], None
                continue
            base = calls[0][0]
            n_bytes = calls[0][1] if len(calls) == 1 else sum(n for _, n in calls)
            buffer, to = scratch("stored", n_bytes, base), 0
            for at, n in calls:
                file.read_into(buffer[to : to + n], at)
                to += n
            for k in chunks:
                begin = starts[k] - base
                yield k, buffer[begin : begin + lengths[k]]

    def _check_stored(self, group: _Group) -> None:
        for k, length in enumerate(group.lengths):
            if length > self._most_stored:
                raise self._damaged(group, k, "more bytes stored than it can need")

    def _decode(
        self, group: _Group, k: int, stored: Array | list[Array], out: Array | None
    ) -> Array:
        """Undo the filters of a chunk, into `out` if that is given; return its bytes."""
        try:
            with decoding():
                return self._pipeline.undo(stored, group.masks[k], out)
        except DecodeError as fault:
            raise self._damaged(group, k, str(fault)) from fault

    def _elements(self, data: Array) -> Array:
        return np.ndarray(self._chunks, self.source.dtype, data)

    def _damaged(self, group: _Group, k: int, what: str) -> ReadError:
        start = group.bands[k // len(group.tiles)].number * self.chunk_rows
        stop = min(start + self.chunk_rows, self.n_rows)
        return damage(self.source, start, stop, group.starts[k], what)

    def _store_each(self, file: OpenFile, group: _Group, out: Array, places: Ints | None) -> None:
        """Decode whole chunks to their places; copy what is wanted of others there."""
        flat = out.reshape(-1).view(np.uint8) if self._direct else out
        n_tiles, b, first = len(group.tiles), 0, group.first
        for k, stored in self._fetched(file, group):
            if k == (b + 1) * n_tiles:
                first, b = first + group.bands[b].n, b + 1
            band, t = group.bands[b], k - b * n_tiles
            if self._direct and stored is not None and band.n == self.chunk_rows:
                begin = first * self.row_bytes
                self._decode(group, k, stored, flat[begin : begin + self._chunk_bytes])
                continue
            tile = self._tile(group.tiles[t])
            chunk, rows, local = None, band.rows, tile.local
            if stored is not None and self.source.filters:
                chunk = self._elements(self._decode(group, k, stored, None))
            elif stored is not None:
                plan, wanted = self._plan(group.tiles[t]), _stretch(band)
                chunk, local = plan.view(stored, len(wanted)), plan.inner
                rows = slice(0, band.n) if isinstance(rows, slice) else rows - wanted.start
            self._put(chunk, rows, local, tile, first, band.n, out, places)
            del chunk  # so that the next one is decoded into the same, hot memory

    def _put(
        self,
        chunk: Array | None,
        rows: slice | Ints,
        local: Region,
        tile: Tile,
        first: int,
        n: int,
        out: Array,
        places: Ints | None,
    ) -> None:
        """Copy `local` of `n` rows of a chunk, or fill values, to the places from `first` on."""
        step = max(1, PIECE_BYTES // self.row_bytes)  # no large copy on the way
        for a in range(0, n, step):
            z = min(n, a + step)
            place = slice(first + a, first + z) if places is None else places[first + a : first + z]
            values = np.asarray(self.source.fill_value, self.source.dtype)
            if chunk is not None and isinstance(rows, slice):
                values = outer_take(chunk[rows.start + a : rows.start + z], local)
            elif chunk is not None and not isinstance(rows, slice):
                values = outer_take(chunk, local, rows[a:z])
            if len(self._tiles) == 1:
                put_rows(out, place, values)
            else:
                outer_put(out, place, tile.trail, values)

    def _store_together(
        self, file: OpenFile, group: _Group, out: Array, places: Ints | None
    ) -> None:
        """Decode chunks side by side, then copy the wanted rows of all with one call."""
        each, c, bands = self._chunk_bytes, self.chunk_rows, group.bands
        joined = scratch("joined", len(bands) * each)
        rows = np.ndarray((len(bands) * c, *self._chunks[1:]), self.source.dtype, joined)
        for k, stored in self._fetched(file, group):
            if stored is None:
                rows[k * c : (k + 1) * c] = self.source.fill_value
            else:
                self._decode(group, k, stored, joined[k * each : (k + 1) * each])
        first, n, wanted = group.first, group.n, None
        if n < len(rows):
            every = np.arange(c)
            parts = (every[x.rows] if isinstance(x.rows, slice) else x.rows for x in bands)
            wanted = np.concatenate([part + k * c for k, part in enumerate(parts)])
        if places is not None:
            put_rows(out, places[first : first + n], rows, wanted)
        elif wanted is None:
            out[first : first + n] = rows
        else:
            np.take(rows, wanted, axis=0, out=out[first : first + n], mode="clip")

    @cached_property
    def _moves(self) -> list[Move]:
        """How small chunks without filters that lie across rows are copied; none for others."""
        dtype, small = self.source.dtype, len(self._spans) == 1
        lists = any(isinstance(index, np.ndarray) for index in self.region)
        if self.source.filters or lists or not small or not dtype.isnative or dtype.hasobject:
            return []
        if not all(self._plan(t).read_through for t in self._spans[0]):
            return []
        chunk = self._chunks[1:], self._chunk_bytes
        return moves_of(self._tiles, *chunk, self.row_shape, dtype.itemsize)

    def _store_moved(
        self,
        file: OpenFile,
        group: _Group,
        out: Array,
        places: Ints | None,
        moves: list[Move],
    ) -> None:
        """Read chunks side by side, and copy each tile of as many bands as one call can."""
        each, c, n_tiles = self._chunk_bytes, self.chunk_rows, len(group.tiles)
        joined = scratch("joined", len(group.starts) * each, max(group.starts[0], 0))
        for chunks, calls in self._reads(group):
            k = chunks[0]
            if not calls:
                fill = np.asarray(self.source.fill_value, self.source.dtype)
                joined[k * each : (k + 1) * each].view(fill.dtype)[:] = fill
                continue
            plan, begin = self._plan(group.tiles[k % n_tiles]), k * each
            begin += _stretch(group.bands[k // n_tiles]).start * plan.row_bytes + plan.starts[0]
            for at, n in calls:
                file.read_into(joined[begin : begin + n], at)
        first, k, row, band_bytes = group.first, 0, self.row_bytes, n_tiles * each
        for _, same in itertools.groupby(group.bands, key=_alike):
            bands = list(same)
            rows, n = bands[0].rows, bands[0].n
            for item, shape, begin, steps, to, to_steps in moves:
                shape, steps = (len(bands), c, *shape), (band_bytes, each // c, *steps)
                begin += k * band_bytes
                values = np.ndarray(shape, item, joined, begin, steps)[:, rows]
                if places is None:
                    to, to_steps = to + first * row, (n * row, row, *to_steps)
                    np.ndarray(values.shape, item, out, to, to_steps)[...] = values
                else:
                    there = places[first : first + len(bands) * n].reshape(len(bands), n)
                    shape, to_steps = (len(out), *shape[2:]), (row, *to_steps)
                    np.ndarray(shape, item, out, to, to_steps)[there] = values
            k, first = k + len(bands), first + len(bands) * n

    def _store_cached(
        self, file: OpenFile, group: _Group, out: Array, places: Ints | None, cache: ChunkCache
    ) -> None:
        """Copy the wanted elements of chunks that are decoded once, though rows come bit by bit."""
        first, k = group.first, 0
        for band in group.bands:
            with cache.band(self.source.file.path, self.source.key, band.number) as kept:
                for t in group.tiles:
                    if t not in kept and group.starts[k] >= 0:
                        kept[t] = self._decode_own(file, group, k)
                    tile = self._tile(t)
                    self._put(kept.get(t), band.rows, tile.local, tile, first, band.n, out, places)
                    k += 1
            first += band.n

    def _decode_own(self, file: OpenFile, group: _Group, k: int) -> Array:
        """Read and decode one chunk into memory of its own."""
        if group.lengths[k] > self._most_stored:
            self._check_stored(group)
        # A map of its own: what an allocator is given back it may keep.
        length = group.lengths[k]
        stored = [np.frombuffer(mmap.mmap(-1, max(1, length)), np.uint8)[:length]]
        file.read_into(stored[0], group.starts[k])
        own = self._decode(group, k, stored, np.empty(self._chunk_bytes, np.uint8))
        return self._elements(own)

    # scattered rows without filters, from a memory map

    def _read_list(self, rows: Ints, out: Array, places: Ints | None) -> None:
        """Read listed rows one by one from a memory map, where nothing has to be decoded."""
        file = self.file()
        mapped = file.mapped(scattered=True) if self._picks_rows and places is None else None
        if mapped is None:
            super()._read_list(rows, out, places)
            return
        file.check()
        step = max(1, PIECE_BYTES // self.row_bytes)
        for a in range(0, len(rows), step):
            self._pick(mapped, rows[a : a + step], out[a : a + step])
        file.copied(len(rows) * self.row_bytes, scattered=True)

    @cached_property
    def _picks_rows(self) -> bool:
        """Whether rows may be copied from a map one by one: in one piece each, without filters."""
        if self.source.filters or self.io == "pread":
            return False
        return all(len(self._plan(t).starts) == 1 for t in range(len(self._tiles)))

    def _pick(self, mapped: Array, rows: Ints, out: Array) -> None:
        for t, tile in enumerate(self._tiles):
            plan, at = self._plan(t), self._places(rows, t)
            if (at < 0).any():
                super()._read_list(rows, out, None)
                return
            n = len(mapped) - plan.stretch_bytes + 1
            strides = (1, *plan.box_strides)
            boxes = np.ndarray((n, *plan.box_shape), plan.dtype, mapped, 0, strides)[at]
            outer_put(out, slice(0, len(rows)), tile.trail, outer_take(boxes, plan.inner))

    def _places(self, rows: Ints, t: int) -> Ints:
        """Return where what is fetched of rows of a tile begins; negative if it was not stored."""
        band, within = np.divmod(rows, self.chunk_rows)
        numbers = band * self._tiles.per_band + self._tile(t).number
        at, plan = chunk_index(self.source).find(numbers)[0], self._plan(t)
        return np.where(at < 0, at, at + within * plan.row_bytes + plan.starts[0])

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that are fetched; of listed rows without filters, those of each."""
        rows = self._checked(rows)
        if rows.ndim == 2 or not self.row_bytes or not self._picks_rows:
            return super().byte_ranges(rows)
        n_tiles = len(self._tiles)
        starts = np.stack([self._places(rows, t) for t in range(n_tiles)], axis=1).reshape(-1)
        lengths = np.tile([self._plan(t).stretch_bytes for t in range(n_tiles)], len(rows))
        return (ByteRanges(self.file, starts[starts >= 0], lengths[starts >= 0]),)


def _stretch(band: _Band) -> range:
    """Return the rows of a band from the first that is wanted to the last."""
    if isinstance(band.rows, slice):
        return range(band.rows.start, band.rows.stop)
    return range(int(band.rows[0]), int(band.rows[-1]) + 1)


def _has_lists(bands: Sequence[_Band]) -> bool:
    return any(isinstance(band.rows, np.ndarray) for band in bands)


def _alike(band: _Band) -> tuple[int, int]:
    """Return what is the same of bands that are copied together."""
    if isinstance(band.rows, slice):
        return band.rows.start, band.rows.stop
    return -1 - band.number, 0
