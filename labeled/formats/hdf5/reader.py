"""The path to the bytes of an HDF5 dataset: by byte range, or through h5py.

Contiguous and chunked data are read by byte range (outside HDF5's lock), the rest through
h5py, with the reason in `why`. Names of dims, order and threads belong to others.

Where chunks are stands in one compact table (:class:`ChunkIndex`), built in one pass: HDF5 visits
a million chunks in two seconds when asked once (`chunk_iter`), and in days when asked chunk by
chunk. Tables are shared by all readers of a file through a process-wide cache of bounded size.
Every offset is checked against the size of the file there, before anything is read.

Chunks without filters that are as wide as rows lie in the file as they are, so that their rows are
read like contiguous ones (:class:`PlainChunks`). All others are fetched, those that lie together
with one call, and decoded side by side: directly to their place where all of them is wanted as it
is, else into memory that stays in cache, from which the wanted elements of all are copied at once.

A *band* is all chunks that hold the same rows, a *tile* one column of chunks: the elements wanted
of each, and where they go in a row of the result::

                     tile 0    tile 1    tile 2       (along the axes after the first)
    band 0                                            rows 0 .. chunk_rows - 1
    band 1                                            rows chunk_rows .. 2 * chunk_rows - 1

The trade-off: a header is trusted for what it says of types and places, and checked only against
the size of the file; damage inside uncompressed data without a checksum comes back as numbers, as
it does from HDF5 itself. A chunk is read and decoded whole even for one element of it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.errors import FileFormatError, ReadError
from labeled.formats.bytesource import OpenFile, is_remote, naming_rows, stored_bytes
from labeled.formats.contiguous import FAR, MANY_ROWS, ContiguousReader
from labeled.formats.hdf5.dtypes import ItemPart
from labeled.formats.hdf5.filters import DecodeError, applied, require_filters, undo, why_not
from labeled.formats.hdf5.per_object import Each, EachRowsReader, values_of
from labeled.formats.hdf5.safety import h5_of, resolve
from labeled.formats.header import FileStamp, SourceHeader
from labeled.formats.memory import FIRST_TEXTS, put_rows, scratch, text_row_bytes
from labeled.formats.reader import (
    PIECE_BYTES,
    UNSTORED,
    ByteRanges,
    FileReader,
    Io,
    Reader,
    ValuesReader,
    calls_of,
    count,
    decoding,
    groups_of,
    put_parts,
    read_rows,
    row_nbytes,
)
from labeled.formats.region import (
    GAP_BYTES,
    Array,
    ChunkTile,
    Ints,
    Region,
    box_of,
    box_plan,
    is_whole,
    normal_region,
    outer_put,
    outer_take,
    region_shape,
    tiles_of,
)
from labeled.selection import rows_of, spread

log = logging.getLogger(__name__)

# what HDF5 reads at a time: it works behind one lock, and each call opens the file
H5PY_BYTES = 8 * 1024 * 1024

# rows read through between others: a call costs as much as copying them
H5PY_GAP_BYTES = 256 * 1024

# texts are listed where more lie between two: HDF5 goes to the place of each, which takes longer
TEXTS_BETWEEN = 16

PIECE_VALUES = 1 << 16  # values that are read at a time, at least

_OBJECT_BYTES = 64  # a guess at what a variable-length item takes

_ONLY_HDF5 = {
    "compact": "compact storage: the data are part of the header",
    "external": "external storage: the data are in other files",
    "foreign": "a stored type that HDF5 must convert",
    "misplaced": "HDF5 tells wrong places of chunks whose one unlimited axis is not the first",
    "virtual": "virtual storage: the data are in other datasets",
}


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> Reader:
    """Return a reader of the rows of one source. Opens nothing yet.

    Parameters
    ----------
    source : SourceHeader
    region : tuple, one indexer an axis after the example axis
        Integers (which drop their axis), slices with positive steps, or 1-D integer
        arrays, each axis for itself; missing ones are whole.
    io : {"auto", "pread", "mmap"}
        How local bytes are fetched: "auto" reads runs by ``preadv`` and picks scattered rows
        (listed ones, and many short runs close together) from a memory map where no filter has
        to be undone; "pread" never maps; "mmap" maps for long runs too. A file that is truncated
        while it is mapped ends the process (SIGBUS); under "pread" it is an error like any other.

    Raises
    ------
    SelectionError, SelectionTypeError
        If the region does not fit the source.
    LoaderError
        If `io` is something else.
    """
    if isinstance(source.detail, Each):
        if source.detail.part is not None:
            return EachRowsReader(source, region, io)
        why = "names or attributes of examples, kept in memory"
        return ValuesReader(source, region, values_of, why)
    if source.storage == "sparse":
        return SparseReader(source, region, io)
    reason = why_not_by_range(source)
    if reason is not None:
        log.info("%s is read through h5py: %s", source.where, reason)
        return H5pyReader(source, region, io)
    wanted = normal_region(region, source.row_shape, source.where)
    is_empty = 0 in (source.n_rows, *region_shape(wanted)) or not source.row_bytes
    if source.storage == "contiguous" and source.offset is not None:
        return ContiguousReader(source, region, io)
    if source.storage == "chunked" and not is_empty:
        assert source.chunks is not None
        tiles = tiles_of(wanted, source.row_shape, source.chunks[1:])
        plain = not source.filters and len(tiles) == 1
        return (PlainChunks if plain else ChunkedReader)(source, region, io)
    return ContiguousReader(replace(source, offset=None, storage="empty"), region, io)


def why_not_by_range(source: SourceHeader) -> str | None:
    """Say why a source has to be read through h5py, if it has to."""
    if source.detail is not None:
        return "a column of a table: HDF5 takes it out of the rows"
    if source.storage in _ONLY_HDF5:
        return _ONLY_HDF5[source.storage]
    if source.dtype.hasobject:
        return "items of variable length"
    if not hasattr(os, "preadv") and not is_remote(source.file.path):
        return "this system cannot read by position"
    return why_not(source.filters) if source.storage == "chunked" else None


class H5pyReader(FileReader):
    """Reads everything whose bytes this package does not take apart itself, with ``h5py``.

    HDF5 does the work behind its one lock, so a second thread gains nothing; pieces are large and
    follow stored chunks, since each one opens the file and closes it again: no handle outlives a
    call, and none crosses a fork.

    The trade-off: lists within a region are read from their first index to their last and picked
    in memory, because HDF5 is slowest at selecting single elements.
    """

    kind = "h5py"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self.why = why_not_by_range(source) or ""
        self._box, self._inner = box_of(self.region)
        item = _OBJECT_BYTES if source.dtype.hasobject else source.dtype.itemsize
        self._box_bytes = max(math.prod(b.stop - b.start for b in self._box) * item, 1)
        self._stored_rows = self.chunk_rows
        self.chunk_rows *= max(1, H5PY_BYTES // (self._box_bytes * self.chunk_rows))

    def _calls(self, runs: Ints) -> Iterator[Ints]:
        """Yield the parts of runs that one call reads: a call costs as much as rows between."""
        few = self.source.dtype.hasobject and len(runs) * count(runs) <= FIRST_TEXTS
        # to find out how large rows are would read as many others
        most, near = (FIRST_TEXTS, 0) if few else self._limits
        return calls_of(runs, most, 1, near)

    @cached_property
    def _limits(self) -> tuple[int, int]:
        """How many rows a call may take, and how many may lie between those that are wanted."""
        if not self.source.dtype.hasobject:
            return self.chunk_rows, max(H5PY_GAP_BYTES // self._box_bytes, self._stored_rows)

        with h5_of(self.source.file) as file:

            def read(start: int, stop: int) -> Array:
                with naming_rows(self.source, start, stop, Exception):
                    return np.asarray(file[self.source.key][(slice(start, stop), *self._box)])

            each = text_row_bytes(read, self.n_rows)  # `memory=` counts two pieces for a thread
        return max(1, PIECE_BYTES // each), H5PY_GAP_BYTES // each

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        require_filters(self.source)
        part: ItemPart = self.source.detail or ItemPart()
        listed = self.source.dtype.hasobject and not part.fields
        with h5_of(self.source.file) as file:
            for parts in self._calls(runs):
                start, stop = int(parts[0, 0]), int(parts[-1, 1])
                with naming_rows(self.source, start, stop, Exception):  # damage is nearly any
                    rows: Ints | slice = slice(start, stop)
                    if listed and TEXTS_BETWEEN * count(parts) < stop - start:
                        rows = rows_of(parts)
                    items = part.read(file[self.source.key], (rows, *self._box))
                    put_parts(out, places, parts, outer_take(items, self._inner))

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        """Estimate: decoded bytes of the rows, since only HDF5 knows what it fetches."""
        rows = np.array([int(p[-1, 1] - p[0, 0]) for p in self._calls(runs)], np.int64)
        return (ByteRanges.elsewhere(rows * self._box_bytes),)


class SparseReader(FileReader):
    """Reads rows of a sparse matrix into dense ones.

    Zeros are filled in where a row is read; see :mod:`.arrays` for what such a group holds.
    Where rows begin is read once, 8 bytes a row, and kept.

    The trade-off: a network wants dense rows anyway; a matrix that is wanted sparse is opened as
    the three arrays it is, with ``group=``.
    """

    kind = "sparse"
    why = "a sparse matrix: zeros are filled in where rows are read"

    def __init__(self, source: SourceHeader, region: Region, io: Io) -> None:
        super().__init__(source, region, io)
        # so many rows are read at a time: four chunks of values, or as many as pay a call
        data = source.parts["data"]
        n_values = PIECE_VALUES if data.chunks is None else max(4 * data.chunks[0], PIECE_VALUES)
        mean = max(data.n_rows // max(source.n_rows, 1), 1)
        most = H5PY_BYTES // max(source.row_bytes, 1)
        self.chunk_rows = max(min(n_values // mean, most), 1)

    @cached_property
    def _parts(self) -> Mapping[str, Reader]:
        return {n: open_reader(part, io=self.io) for n, part in self.source.parts.items()}

    @cached_property
    def _begins(self) -> Ints:
        begins = read_rows(self._parts["indptr"], range(self.n_rows + 1))
        n_values = self.source.parts["data"].n_rows
        if begins[0] != 0 or begins[-1] > n_values or bool((begins[1:] < begins[:-1]).any()):
            what = f": its rows end at value {begins.max()} of {n_values}, or before they begin"
            raise self._damaged(what, "indptr")
        return begins.astype(np.int64, copy=False)

    def _damaged(self, what: str, part: str) -> ReadError:
        return ReadError(f"{self.where}{what} ({part!r}); copy the file again")

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        n_columns = self.source.shape[1]
        for bands in groups_of(runs, self.chunk_rows):
            held, rows = self._begins[bands[:, :2]], rows_of(bands)
            values, columns = (read_rows(self._parts[role], held) for role in ("data", "indices"))
            low, high = (int(columns.min()), int(columns.max())) if len(columns) else (0, -1)
            if low < 0 or high >= n_columns:
                what = f"a value lies in column {low if low < 0 else high} of {n_columns}"
                raise self._damaged(f", rows {rows[0]} to {rows[-1]}: {what}", "indices")
            n_values = self._begins[rows + 1] - self._begins[rows]
            made = np.zeros((len(rows), n_columns), out.dtype)
            at = np.repeat(np.arange(len(rows)), n_values) * n_columns + columns.astype(np.int64)
            np.add.at(made.reshape(-1), at, values)  # those that come twice add up
            put_parts(out, places, bands, outer_take(made, self.region))

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        held = self._begins[runs]
        parts = self._parts
        return (*parts["data"].byte_ranges(held), *parts["indices"].byte_ranges(held))


def read_scalar(source: SourceHeader) -> Array:
    """Return the value of a dataset without axes, as an array without axes.

    It has no rows (a projection, the one height of a whole grid), and nothing to be lazy about.
    """
    with h5_of(source.file) as file:
        external = source.storage == "external"
        value = resolve(file, source.key, allow_external=external).thing[()]
    return np.asarray(value, source.dtype)


# where chunks are

# where tables together take more than this, all are let go of before another one is made
CACHE_BYTES = 128 * 1024 * 1024

# how much larger than twice its decoded size a stored chunk may be before it is refused
SLACK_BYTES = 64 * 1024


# where a chunk begins, its stored bytes, and (bit i) whether filter i was not applied to it
ENTRY = np.dtype([("offset", "<i8"), ("size", "<u4"), ("mask", "<u4")])


class ChunkIndex(NamedTuple):
    """Where the chunks of a dataset are, which are numbered in C order over their grid."""

    table: Array  # of ENTRY
    # The chunk number of each entry, ascending; None where entry i is chunk i. They are kept where
    # so many chunks were never written that a full table would be larger.
    numbers: Ints | None

    def entry(self, number: int) -> tuple[int, int, int]:
        """Return the offset (-1 if it was never written), size and filter mask of one chunk."""
        if self.numbers is not None:
            entry = int(self.numbers.searchsorted(number))
            if entry == len(self.numbers) or self.numbers[entry] != number:
                return UNSTORED, 0, 0
            number = entry
        found: tuple[int, int, int] = self.table.item(number)
        return found


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
    grid, found = -(-np.array(source.shape, np.int64) // chunks), array("Q")

    def visit(info: Any) -> None:
        at, mask, offset, size = info
        found.extend((*at, mask, offset, size))

    with h5_of(source.file) as file:
        dataset = file[source.key]
        try:
            dataset.id.chunk_iter(visit)
            base = _base(source, dataset) if dataset.file.userblock_size else 0
        except (RuntimeError, OSError) as error:
            raise FileFormatError(
                f"{source.where}: HDF5 cannot read its chunk table ({error}). The file is "
                "damaged; copy it again."
            ) from error
    table = np.frombuffer(found, np.uint64).reshape(-1, len(chunks) + 3)
    begins, lengths = table[:, :-3], table[:, -1]
    starts, size = table[:, -2] + np.uint64(base), np.uint64(source.file.size)

    steps, within = np.divmod(begins, np.array(chunks, np.uint64))
    # HDF5 searches a table by its order, and takes a chunk that it misses for one never written.
    numbers = steps.astype(np.int64) @ np.append(np.cumprod(grid[:0:-1])[::-1], 1)
    order, shared = np.argsort(starts, kind="stable"), np.zeros(len(starts), bool)
    shared[order[1:]] = starts[order][1:] < (starts + lengths)[order][:-1]
    whole = math.prod(chunks) * source.dtype.itemsize
    is_plain = not source.filters and not source.dtype.hasobject  # HDF5 sizes references
    off_grid = (within != 0).any(axis=1) | (steps >= grid.astype(np.uint64)).any(axis=1)
    beyond = (starts > size) | (lengths > size - np.minimum(starts, size))
    for bad, what in (
        (off_grid, "is off the grid"),
        (beyond, f"should lie at {{}}, but the file has {size}"),
        (np.append(False, numbers[1:] == numbers[:-1]), "is there twice"),
        (np.append(False, numbers[1:] < numbers[:-1]), "is out of order"),
        (shared, "shares bytes with another chunk"),
        (is_plain & (lengths != whole), f"does not have the {whole} bytes of a whole chunk"),
    ):
        if bad.any():
            entry = int(np.argmax(bad))
            coord, start = tuple(begins[entry].tolist()), int(starts[entry])
            where = f"bytes {start} to {start + int(lengths[entry])}"
            raise FileFormatError(
                f"{source.where}: the chunk at position {coord} {what.format(where)}. The "
                "chunk table is truncated or damaged; copy the file again."
            )
    index = np.empty(len(numbers), ENTRY)
    index["offset"], index["mask"] = starts, table[:, -3]
    index["size"] = np.minimum(lengths, 2**32 - 1)  # which no chunk can need
    return ChunkIndex(index, None if len(numbers) == grid.prod() else numbers)


def _base(source: SourceHeader, dataset: h5py.Dataset) -> int:
    """Return what must be added to offsets: some HDF5 versions count from the user block's end."""
    if not dataset.id.get_num_chunks():
        return 0
    info = dataset.id.get_chunk_info(0)
    _, wanted = dataset.id.read_direct_chunk(info.chunk_offset)
    for base in (0, dataset.file.userblock_size):
        if stored_bytes(source.file, info.byte_offset + base, len(wanted)) == wanted:
            return int(base)
    raise RuntimeError("its chunks are not where HDF5 says they are")


_TABLES: dict[tuple[FileStamp, str], ChunkIndex] = {}  # by file and dataset; one is made at a time
_table_bytes = 0  # what they take together, besides the numbers of chunks

_lock = threading.Lock()


def chunk_index(source: SourceHeader) -> ChunkIndex:
    """Return the chunk table of a source, from the cache where it is known already."""
    global _table_bytes
    key = source.file, source.key
    with _lock:
        found = _TABLES.get(key)
        if found is None:
            if _table_bytes > CACHE_BYTES:
                _TABLES.clear()
                _table_bytes = 0
            found = _TABLES[key] = build_index(source)
            _table_bytes += found.table.nbytes
        return found


def _forget() -> None:
    global _lock, _table_bytes
    _lock = threading.Lock()  # a fork may have left the old one taken
    _TABLES.clear()
    _table_bytes = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# readers of chunks


class PlainChunks(ContiguousReader):
    """Rows of chunks without filters, each row in one chunk: at other places, and nothing more."""

    kind = "chunked"
    why = "chunks without filters: read by file offset"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        assert source.chunks is not None
        chunks, shape = source.chunks[1:], source.row_shape
        (self._tile,) = tiles_of(normal_region(region, shape), shape, chunks)
        super().__init__(source, region, io, box_plan(self._tile.local, chunks, source.dtype))

    @cached_property
    def _stretches(self) -> tuple[Ints, Ints]:
        index = chunk_index(self.source)
        numbers = np.arange(len(index.table)) if index.numbers is None else index.numbers
        mine = numbers % self._tile.of == self._tile.number
        bands = numbers[mine] // self._tile.of
        # a stretch may begin where a chunk does, and where one that is not there would
        begins = np.unique(np.concatenate((bands, bands + 1, [0])))
        firsts = begins[begins * self.chunk_rows < self.n_rows] * self.chunk_rows
        there, bases = np.isin(firsts, bands * self.chunk_rows), np.full(len(firsts), FAR)
        bases[there] = index.table["offset"][mine] - firsts[there] * self._plan.row_bytes
        differs = np.append(True, bases[1:] != bases[:-1])
        return firsts[differs], bases[differs]


# chunks that are decoded side by side, tile after tile, each of its bands below the other: the rows
# that are wanted, cut at bands (see bands_of), the numbers of these, and the tiles
_Stack = tuple[Ints, list[int], Sequence[ChunkTile]]

# one of them: where it begins in the file (-1 if it was never stored), its size, filter mask and
# band, and its number among them
_Chunk = tuple[int, int, int, int, int]


class ChunkedReader(FileReader):
    """Rows put together from chunks, with filters or without; a :class:`~.reader.Reader`."""

    kind = "chunked"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        assert source.chunks is not None
        self._inner = inner = source.chunks[1:]
        self._chunk_bytes = row_nbytes(source.chunks, source.dtype)
        tiles = tiles_of(self.region, source.row_shape, inner)
        # whether chunks are as wide as rows, and rows wanted whole
        self._whole_rows = len(tiles) == 1 and is_whole(tiles[0].local, inner)
        self._direct = self._whole_rows and source.dtype.isnative
        each = -(-PIECE_BYTES // max(self._chunk_bytes, 1))
        self._bands_each = max(1, each // len(tiles))
        self._tiles, self._tiles_each = tiles, each
        self._filters = applied(source.filters)
        self.why = "chunks without filters: read by file offset, several a row"
        if source.filters:
            names = ", ".join(map(attrgetter("words"), source.filters))
            self.why = f"chunks decoded outside HDF5's lock ({names})"

    def _stacks(self, runs: Ints) -> Iterator[_Stack]:
        """Yield what is read at a time: some bands, or some tiles of one."""
        for bands in groups_of(runs, self.chunk_rows, self._bands_each):
            numbers = list(dict.fromkeys((bands[:, 0] // self.chunk_rows).tolist()))
            for first in range(0, len(self._tiles), self._tiles_each):
                yield bands, numbers, self._tiles[first : first + self._tiles_each]

    def _calls(self, stack: _Stack) -> Iterator[tuple[list[_Chunk], int, int]]:
        """Yield the chunks that each call fetches, and the offset and length of what it fetches.

        Chunks that lie together come together, band by band and tile by tile; those that were
        never stored come alone.
        """
        _, numbers, tiles = stack
        index, n_bands = chunk_index(self.source), len(numbers)
        some: list[_Chunk] = []
        begin = end = UNSTORED
        for i, band in enumerate(numbers):
            for t, tile in enumerate(tiles):
                at, size, mask = index.entry(band * tile.of + tile.number)
                if some and not (begin >= 0 and 0 <= at - end <= GAP_BYTES):
                    yield some, begin, end - begin
                    some = []
                begin, end = begin if some else at, at + size
                some.append((at, size, mask, band, t * n_bands + i))
        yield some, begin, end - begin

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        starts, lengths, n_chunks = [], [], 0
        for stack in self._stacks(runs):
            for some, at, n in self._calls(stack):
                if at >= 0:
                    starts.append(at)
                    lengths.append(n)
                    n_chunks += len(some)
        decoded = n_chunks if self.source.filters else 0
        return (ByteRanges(self.file, np.array(starts, np.int64), np.array(lengths), decoded),)

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        file, each = self.file(), self.chunk_rows
        file.check()
        for stack in self._stacks(runs):
            bands, numbers, tiles = stack
            (start, _, first), (last, stop, number) = bands[0].tolist(), bands[-1].tolist()
            end, n_rows = number + stop - last, len(numbers) * each
            if self._direct and places is None and end - first == n_rows:
                self._decode(file, stack, out[first:end].reshape(-1).view(np.uint8))
                continue
            decoded = scratch("chunks", len(numbers) * len(tiles) * self._chunk_bytes)
            self._decode(file, stack, decoded)
            shape = len(tiles), n_rows, *self._inner
            boxes: Array = np.ndarray(shape, self.source.dtype, decoded)
            begin = start % each
            boxes = boxes[:, begin : n_rows - each + (stop - 1) % each + 1]
            parts: list[tuple[int, int, slice | Ints]] = [(first, end, slice(None))]
            if end - first < boxes.shape[1]:
                starts, stops, firsts = bands.T
                above = np.array(numbers).searchsorted(starts // each) * each
                at, n = above + starts % each - begin, stops - starts
                if end - first < MANY_ROWS * len(bands):  # else numbers are as large as rows
                    parts = [(first, end, spread(at, n))]
                else:
                    each_run = np.stack((firsts, n, at), axis=1).tolist()
                    parts = [(a, a + k, slice(b, b + k)) for a, k, b in each_run]
            for tile, box in zip(tiles, boxes, strict=True):
                for a, z, rows in parts:
                    place = slice(a, z) if places is None else places[a:z]
                    if not self._whole_rows:
                        outer_put(out, place, tile.trail, outer_take(box, tile.local, rows))
                    elif isinstance(rows, slice):
                        put_rows(out, place, box[rows])
                    else:
                        put_rows(out, place, box, rows)

    def _decode(self, file: OpenFile, stack: _Stack, target: Array) -> None:
        """Fetch the chunks of a stack, and decode them side by side."""
        n_bytes, rows = self._chunk_bytes, self.chunk_rows
        most = 2 * n_bytes + SLACK_BYTES
        for some, start, n in self._calls(stack):
            for at, size, _, band, _ in some:
                if size > most:
                    raise self._damaged(band, at, "more bytes stored than it can need")
            stored = scratch("stored", n, start)
            if start >= 0:
                with naming_rows(self.source, some[0][3] * rows, (some[-1][3] + 1) * rows):
                    file.read_into(stored, start)
            with decoding():
                for at, size, mask, band, place in some:
                    out = target[place * n_bytes : (place + 1) * n_bytes]
                    if at < 0:
                        out.view(self.source.dtype)[:] = self.source.fill_value
                        continue
                    steps = applied(self.source.filters, mask) if mask else self._filters
                    try:
                        undo(steps, stored[at - start : at - start + size], out)
                    except DecodeError as fault:
                        raise self._damaged(band, at, str(fault)) from fault

    def _damaged(self, band: int, at: int, what: str) -> ReadError:
        self.file().check()
        start = band * self.chunk_rows
        stop = min(start + self.chunk_rows, self.n_rows)
        return ReadError(
            f"{self.where}, rows {start} to {stop - 1}: the chunk at byte {at} is damaged: {what}. "
            "Copy or download the file again."
        )
