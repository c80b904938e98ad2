"""Rows of chunks: found by an index, taken back through filters, copied to where they go.

Chunks without filters that are as wide as rows lie in the file as they are, so that their rows are
read like contiguous ones (:class:`PlainChunks`). All others are put together here: chunks are
fetched several with one call where they lie together, decoded outside HDF5's lock into memory that
stays in cache, and copied out once. The filters of a chunk may be none; then no more of it is
fetched than is wanted.

A *band* is all chunks that hold the same rows. A *tile* is one chunk of a band: the elements wanted
of it, and where they go in a row of the result; chunks as wide as rows make one tile.

The trade-off: a chunk is decoded whole even for one element of it.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
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
    PIECE_BYTES,
    UNSTORED,
    ByteRanges,
    ChunkCache,
    FileReader,
    Io,
    Rows,
    bands_of,
    decoding,
    groups_of,
    naming_rows,
    row_nbytes,
    spread,
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

SLACK_BYTES = 64 * 1024
"""How much larger than twice its decoded size a stored chunk may be before it is refused."""


class Tile(NamedTuple):
    """One chunk of the grid over the axes after the first."""

    number: int
    """In C order over that grid."""
    local: Region
    """The elements wanted, counted within the chunk."""
    trail: Region
    """Their places in a row of the result; integers have dropped their axis."""


class Tiles(Sequence[Tile]):
    """The tiles of a region, made when asked for.

    Parameters
    ----------
    region : Region
        Full and normal.
    shape, chunks : tuple of int
        Of the axes after the first.

    Examples
    --------
    >>> tiles = Tiles((slice(3, 7, 1), 2), (8, 6), (4, 6))
    >>> [tuple(tile) for tile in tiles]
    [(0, (slice(3, 4, 1), 2), (slice(0, 1, 1),)), (1, (slice(0, 3, 1), 2), (slice(1, 4, 1),))]
    """

    def __init__(self, region: Region, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
        self._grid = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
        self._cuts = [_cut(index, chunk) for index, chunk in zip(region, chunks, strict=True)]
        self._shape = tuple(map(len, self._cuts))
        self.per_band = math.prod(self._grid)
        """Chunks of the whole grid beside one another, wanted or not."""

    def __len__(self) -> int:
        return math.prod(self._shape)

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k < len(self):
            raise IndexError(k)
        number, local, trail = 0, [], []
        at = np.unravel_index(k, self._shape) if self._shape else ()
        for cut, i, n in zip(self._cuts, at, self._grid, strict=True):
            coord, wanted, place = cut[int(i)]
            number = number * n + coord
            local.append(wanted)
            if place is not None:
                trail.append(place)
        return Tile(number, tuple(local), tuple(trail))


def _cut(index: Indexer, chunk: int) -> list[tuple[int, Indexer, Indexer | None]]:
    """Return the chunks that an indexer touches, what it takes of each, and where that goes."""
    if isinstance(index, int):
        return [(index // chunk, index % chunk, None)]
    wanted = np.arange(index.start, index.stop, index.step) if isinstance(index, slice) else index
    coords, which = np.unique(wanted // chunk, return_inverse=True)
    if isinstance(index, slice) or (which[1:] >= which[:-1]).all():
        ends = np.searchsorted(which, np.arange(len(coords) + 1)).tolist()
        places: list[Any] = [slice(a, b, 1) for a, b in itertools.pairwise(ends)]
    else:
        places = [np.flatnonzero(which == i) for i in range(len(coords))]
    found: list[tuple[int, Indexer, Indexer | None]] = []
    for coord, place in zip(coords.tolist(), places, strict=True):
        inside: Any = wanted[place] - coord * chunk
        if isinstance(index, slice):
            inside = slice(int(inside[0]), int(inside[-1]) + 1, index.step)
        found.append((coord, inside, place))
    return found


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


@dataclass(frozen=True, slots=True)
class _Group:
    """Chunks that are read together: a line a band, a column a tile, flattened."""

    parts: Ints
    """(start, stop, number of the first row), one or more a band."""
    bands: list[int]
    ends: list[int]
    """Which parts make up a band: the first of each, and one past the last of all."""
    tiles: list[Tile]
    plans: list[BoxPlan]
    """What is fetched of the rows of each tile; none where whole chunks are decoded."""
    numbers: list[int]
    starts: list[int]
    """Where the bytes that are fetched of each chunk begin; negative if it was never stored."""
    lengths: list[int]
    masks: list[int]

    def rows(self, b: int) -> tuple[int, int]:
        """Return the first row that is wanted of band `b`, and one past the last."""
        return int(self.parts[self.ends[b], 0]), int(self.parts[self.ends[b + 1] - 1, 1])


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
        for parts in groups_of(bands_of(runs, self.chunk_rows), self.chunk_rows, self._bands_each):
            for tiles in self._spans:
                yield self._group(parts, tiles)

    def _group(self, parts: Ints, tiles: range) -> _Group:
        bands: list[int] = []
        ends: list[int] = []
        for i, start in enumerate(parts[:, 0].tolist()):  # most often very few
            band = start // self.chunk_rows
            if not bands or band != bands[-1]:
                bands.append(band)
                ends.append(i)
        ends.append(len(parts))
        found = [self._tile(t) for t in tiles]
        numbers = [b * self._tiles.per_band + tile.number for b in bands for tile in found]
        starts, lengths, masks = (
            column.tolist() for column in chunk_index(self.source).find(np.array(numbers))
        )
        plans = [] if self.source.filters else [self._plan(t) for t in tiles]
        group = _Group(parts, bands, ends, found, plans, numbers, starts, lengths, masks)
        for k in range(len(numbers)) if plans else ():
            b, t = divmod(k, len(plans))
            start, stop = group.rows(b)
            if starts[k] >= 0:
                within = start - bands[b] * self.chunk_rows
                starts[k] += within * plans[t].row_bytes + plans[t].starts[0]
            lengths[k] = plans[t].bytes_of(stop - start)
        return group

    def _reads(self, group: _Group) -> Iterator[tuple[range, list[tuple[int, int]]]]:
        """Yield chunks that come together, and (offset, length) of each call; none if unstored."""
        starts, lengths, k = group.starts, group.lengths, 0
        apart = not all(plan.read_through for plan in group.plans)
        while k < len(starts):
            first, at, end = k, starts[k], starts[k] + lengths[k]
            k += 1
            if at < 0:
                yield range(first, k), []
            elif apart:  # parts of long rows
                b, t = divmod(first, len(group.tiles))
                start, stop = group.rows(b)
                plan = group.plans[t]
                calls = plan.ranges(np.array([at - plan.starts[0]]), np.array([stop - start]))
                yield range(first, k), list(zip(*(c.tolist() for c in calls), strict=True))
            else:
                gap = GAP_BYTES if self.source.filters else 0
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
            start, stop = int(group.parts[0, 0]), int(group.parts[-1, 1])
            with naming_rows(self.source, start, stop):
                if self.cache is not None and self.source.filters:
                    self._store_cached(file, group, out, places, self.cache)
                elif self._direct and (places is not None or len(group.parts) > len(group.bands)):
                    self._store_together(file, group, out, places)
                else:
                    self._store_each(file, group, out, places)

    def _fetched(self, file: OpenFile, group: _Group) -> Iterator[tuple[int, Array | None]]:
        """Yield each chunk's place in a group and its bytes; None where it was never stored."""
        for chunks, calls in self._reads(group):
            if not calls:
                yield chunks[0], None
                continue
            for k in chunks if self.source.filters else ():
                self._check_stored(group, k)
            buffer, to = scratch("stored", sum(n for _, n in calls), calls[0][0]), 0
            for at, n in calls:
                file.read_into(buffer[to : to + n], at)
                to += n
            for k in chunks:
                begin = group.starts[k] - calls[0][0]
                yield k, buffer[begin : begin + group.lengths[k]]

    def _check_stored(self, group: _Group, k: int) -> None:
        if group.lengths[k] > 2 * self._chunk_bytes + SLACK_BYTES:
            raise self._damaged(group, k, "more bytes stored than it can need")

    def _decode(
        self, group: _Group, k: int, stored: Array | list[Array], out: Array | None
    ) -> Array:
        """Undo the filters of a chunk, into `out` if that is given; return its elements."""
        try:
            with decoding():
                data = self._pipeline.undo(stored, group.masks[k], out)
        except DecodeError as fault:
            raise self._damaged(group, k, str(fault)) from fault
        return np.ndarray(self._chunks, self.source.dtype, data)

    def _damaged(self, group: _Group, k: int, what: str) -> ReadError:
        start = group.bands[k // len(group.tiles)] * self.chunk_rows
        stop = min(start + self.chunk_rows, self.n_rows)
        return damage(self.source, start, stop, group.starts[k], what)

    def _store_each(self, file: OpenFile, group: _Group, out: Array, places: Ints | None) -> None:
        """Decode whole chunks to their places; copy what is wanted of others there."""
        flat = out.reshape(-1).view(np.uint8) if self._direct else out
        for k, stored in self._fetched(file, group):
            b, t = divmod(k, len(group.tiles))
            if self._direct and stored is not None:
                start, stop, first = group.parts[b].tolist()
                if stop - start == self.chunk_rows:
                    begin = first * self.row_bytes
                    self._decode(group, k, stored, flat[begin : begin + self._chunk_bytes])
                    continue
            if stored is None or not group.plans:
                chunk = None if stored is None else self._decode(group, k, stored, None)
                base, local = group.bands[b] * self.chunk_rows, group.tiles[t].local
            else:
                base, stop = group.rows(b)
                chunk, local = group.plans[t].view(stored, stop - base), group.plans[t].inner
            self._put(chunk, base, local, group, b, t, out, places)
            del chunk  # so that the next one is decoded into the same, hot memory

    def _put(
        self,
        chunk: Array | None,
        base: int,
        local: Region,
        group: _Group,
        b: int,
        t: int,
        out: Array,
        places: Ints | None,
    ) -> None:
        """Copy what is wanted of the rows of a chunk, or fill values, to their places.

        Row `base` is the first of `chunk`, of which `local` is wanted.
        """
        parts = group.parts[group.ends[b] : group.ends[b + 1]]
        first, n = int(parts[0, 2]), int((parts[:, 1] - parts[:, 0]).sum())
        rows = None if len(parts) == 1 else spread(parts[:, 0] - base, parts[:, 1] - parts[:, 0])
        step = max(1, PIECE_BYTES // self.row_bytes)  # no large copy on the way
        for a in range(0, n, step):
            z = min(n, a + step)
            place = slice(first + a, first + z) if places is None else places[first + a : first + z]
            values = np.asarray(self.source.fill_value, self.source.dtype)
            if chunk is not None and rows is None:
                start = int(parts[0, 0]) - base
                values = outer_take(chunk[start + a : start + z], local)
            elif chunk is not None and rows is not None:
                values = outer_take(chunk, local, rows[a:z])
            if len(self._tiles) == 1:
                put_rows(out, place, values)
            else:
                outer_put(out, place, group.tiles[t].trail, values)

    def _store_together(
        self, file: OpenFile, group: _Group, out: Array, places: Ints | None
    ) -> None:
        """Decode chunks side by side, then copy the wanted rows of all with one call."""
        each, n_bands, parts = self._chunk_bytes, len(group.bands), group.parts
        joined = scratch("joined", n_bands * each)
        rows = joined.view(self.source.dtype).reshape(-1, *self._chunks[1:])
        for k, stored in self._fetched(file, group):
            if stored is None:
                rows[k * self.chunk_rows : (k + 1) * self.chunk_rows] = self.source.fill_value
            else:
                self._decode(group, k, stored, joined[k * each : (k + 1) * each])
        counts = parts[:, 1] - parts[:, 0]
        first, n = int(parts[0, 2]), int(counts.sum())
        wanted = None
        if n < len(rows):
            number = np.repeat(np.arange(n_bands), np.diff(group.ends))
            wanted = spread(parts[:, 0] % self.chunk_rows + number * self.chunk_rows, counts)
        if places is not None:
            put_rows(out, places[first : first + n], rows, wanted)
        elif wanted is None:
            out[first : first + n] = rows
        else:
            np.take(rows, wanted, axis=0, out=out[first : first + n], mode="clip")

    def _store_cached(
        self, file: OpenFile, group: _Group, out: Array, places: Ints | None, cache: ChunkCache
    ) -> None:
        """Copy the wanted elements of chunks that are decoded once, though rows come bit by bit."""
        n_tiles = len(group.tiles)
        for b, band in enumerate(group.bands):
            with cache.band(self.source.file.path, self.source.key, band) as kept:
                for t in range(n_tiles):
                    k = b * n_tiles + t
                    number = group.numbers[k]
                    if number not in kept and group.starts[k] >= 0:
                        kept[number] = self._decode_own(file, group, k)
                    base, local = band * self.chunk_rows, group.tiles[t].local
                    self._put(kept.get(number), base, local, group, b, t, out, places)

    def _decode_own(self, file: OpenFile, group: _Group, k: int) -> Array:
        """Read and decode one chunk into memory of its own."""
        self._check_stored(group, k)
        # A map of its own: what an allocator is given back it may keep.
        length = group.lengths[k]
        stored = [np.frombuffer(mmap.mmap(-1, max(1, length)), np.uint8)[:length]]
        file.read_into(stored[0], group.starts[k])
        return self._decode(group, k, stored, np.empty(self._chunk_bytes, np.uint8))

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
