"""Chunks with filters as HDF5 stores them, to be decoded on a device.

What HDF5 puts around compressed bytes is taken off here: the two bytes before and the four after
zlib's deflate, the sizes in front of LZ4 blocks, the checksum that fletcher32 appends (it is
checked before). What remains are deflate streams, zstd frames and LZ4 blocks, each at a place
in memory where a decoder of a device finds it. The few chunks of a dataset that skipped a filter
are decoded here, and travel decoded.

The trade-off: chunks that lie side by side in the file are read one by one, to begin where
they must; only small ones are read together and copied.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from labeled.device import Frames
from labeled.device.decoding import ALIGNED, BLOCK_ALIGNED
from labeled.errors import LabeledError, ReadError
from labeled.formats.bytesource import FileRef, OpenFile
from labeled.formats.clock import decoding
from labeled.formats.coded import NO_SUM, CodedPart, Coding, Found, Task
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.filters import (
    Bytes,
    DecodeError,
    Pipeline,
    checked,
    damage,
    item_of,
)
from labeled.formats.header import (
    DEFLATE,
    FLETCHER32,
    LZ4,
    SHUFFLE,
    ZSTD,
    Filter,
    SourceHeader,
)
from labeled.formats.reader import Cost
from labeled.formats.reading import UNSTORED, bands_of, failed, packed, scratch, spread
from labeled.formats.region import Array, Ints

CODECS = {DEFLATE: "deflate", ZSTD: "zstd", LZ4: "lz4"}

HEAD_BYTES = {"deflate": 2, "zstd": 0, "lz4": 16}
"""What stands before the first compressed byte."""

DIRECT_BYTES = 64 * 1024
"""Chunks smaller than this are read several at a time, and copied to their places."""

Stretch = tuple[int, int, int, int]
"""First byte and size, place and decoded length."""


class CodedChunks:
    """The chunks of a source; follows :class:`~labeled.formats.coded.CodedSource`."""

    def __init__(self, source: SourceHeader, coding: Coding) -> None:
        self.coding = coding
        self._source = source

    def parts(self, runs: Ints) -> list[CodedPart]:
        return [ChunkPart(self._source, self.coding, runs)]


def coded_chunks(source: SourceHeader) -> CodedChunks | str:
    """Return the chunks of a source, whose filters are known, or say why they stay here."""
    assert source.chunks is not None
    if not source.dtype.isnative:
        return "its numbers are stored in another byte order"
    if source.dtype.kind not in "biufc":
        return "its values are no numbers"
    coding = _coding(source, source.chunks)
    return coding if isinstance(coding, str) else CodedChunks(source, coding)


def _coding(source: SourceHeader, chunks: tuple[int, ...]) -> Coding | str:
    filters = list(source.filters)
    item = 1
    if filters and filters[0].id == SHUFFLE:
        item = item_of(filters.pop(0), source.dtype.itemsize)
    if filters and filters[-1].id == FLETCHER32:
        filters.pop()
    if len(filters) != 1 or filters[0].id not in CODECS:
        return f"{_words(source.filters)}: undone on the host only"
    grid = tuple(-(-n // c) for n, c in zip(source.row_shape, chunks[1:], strict=True))
    codec = CODECS[filters[0].id]
    made = Coding(codec, item, chunks, grid, source.row_shape, source.dtype, source.fill_value)
    if made.chunk_bytes % item:
        return f"elements of {item} bytes do not fill a chunk of {made.chunk_bytes}"
    return made


def _words(filters: Sequence[Filter]) -> str:
    return ", ".join(step.words for step in filters)


class ChunkPart:
    """The chunks that hold some rows; follows :class:`~labeled.formats.coded.CodedPart`."""

    def __init__(self, source: SourceHeader, coding: Coding, runs: Ints) -> None:
        self._source = source
        self._coding = coding
        self._file = FileRef(source.file)
        parts = bands_of(runs, coding.chunk_rows) if len(runs) else np.empty((0, 3), np.int64)
        band = parts[:, 0] // coding.chunk_rows
        fresh = np.append(True, band[1:] != band[:-1])[: len(band)]
        self._bands = band[fresh]
        line = np.cumsum(fresh) - 1
        shift = (line - band) * coding.chunk_rows
        counts = parts[:, 1] - parts[:, 0]
        self.rows = spread(parts[:, 0] + shift, counts)
        self.n_bands = len(self._bands)
        across = np.arange(coding.per_band)
        numbers = (self._bands[:, None] * coding.per_band + across).reshape(-1)
        self._offsets, self._sizes, self._masks = chunk_index(source).find(numbers)
        self._stored = np.flatnonzero(self._offsets != UNSTORED)
        self.n_stored = len(self._stored)
        self._starts, self.packed_bytes = self._laid_out()
        self._pipeline = Pipeline(source.filters, coding.chunk_bytes, source.dtype.itemsize)
        self._sealed = source.filters[-1].id == FLETCHER32
        self._stretches: list[list[Stretch]] = [[] for _ in numbers]
        self._plain: list[list[tuple[int, int, int]]] = [[] for _ in numbers]
        self._sums = np.full(len(numbers), NO_SUM, np.int64)

    def _laid_out(self) -> tuple[Ints, int]:
        """Return where the stored bytes of each chunk go, so that frames begin aligned."""
        wanted = np.where(self._masks != 0, self._coding.chunk_bytes, self._sizes)
        skew = -HEAD_BYTES[self._coding.codec] % ALIGNED
        room = np.where(self._offsets == UNSTORED, 0, -(-(skew + wanted) // ALIGNED) * ALIGNED)
        ends = np.cumsum(room)
        return ends - room + skew, int(ends[-1]) if len(ends) else 0

    @property
    def cost(self) -> Cost:
        n_reads = sum(len(self._groups(chunks)) for chunks in self._pieces())
        return Cost(int(self._sizes[self._stored].sum()), 0, n_reads, self.n_stored)

    def _pieces(self) -> list[list[int]]:
        """Cut the chunks into those that one thread reads at a time."""
        cuts = packed(self._sizes[self._stored]).tolist()
        return [self._stored[a:b].tolist() for a, b in itertools.pairwise(cuts)]

    def tasks(self, memory: Array) -> list[Task]:
        return [partial(self._read, chunks, memory) for chunks in self._pieces()]

    def _read(self, chunks: list[int], memory: Array) -> None:
        """Read some chunks to their places, and find out what they hold."""
        file = self._file()
        try:
            for group in self._groups(chunks):
                stored = self._fetch(file, group, memory)
                with decoding():
                    for k in group:
                        self._look(k, memory, stored)
        except LabeledError:
            raise
        except (OSError, EOFError) as fault:
            start, stop = self._rows_of(chunks[0])[0], self._rows_of(chunks[-1])[1]
            raise failed(self._source, start, stop, fault) from fault

    def _groups(self, chunks: list[int]) -> list[list[int]]:
        """Put small chunks together that lie side by side in the file."""
        groups: list[list[int]] = []
        end = -1
        for k in chunks:
            offset, size = int(self._offsets[k]), int(self._sizes[k])
            alone = size >= DIRECT_BYTES or bool(self._masks[k])
            if offset == end and not alone:
                groups[-1].append(k)
            else:
                groups.append([k])
            end = -1 if alone else offset + size
        return groups

    def _fetch(self, file: OpenFile, group: list[int], memory: Array) -> Array:
        """Read chunks that lie side by side to their places; one to decode here, to another.

        Returns what was read, where it was read to.
        """
        first, last = group[0], group[-1]
        at = int(self._offsets[first])
        if len(group) == 1:
            apart = bool(self._masks[first])
            size = int(self._sizes[first])
            alone = scratch("stored", size, at) if apart else self._place(first, memory)
            file.read_into(alone, at)
            return alone
        together = scratch("stored", int(self._offsets[last] + self._sizes[last]) - at, at)
        file.read_into(together, at)
        for k in group:
            start = int(self._offsets[k]) - at
            self._place(k, memory)[:] = together[start : start + int(self._sizes[k])]
        return together

    def _place(self, k: int, memory: Array) -> Array:
        start = int(self._starts[k])
        return memory[start : start + int(self._sizes[k])]

    def _look(self, k: int, memory: Array, stored: Array) -> None:
        """Find the compressed stretches of a chunk that was read; decode one that is `stored`."""
        start, mask = int(self._starts[k]), int(self._masks[k])
        try:
            if mask:
                whole = memory[start : start + self._coding.chunk_bytes]
                self._pipeline.undo_into(stored, mask, whole)
                return
            data = self._place(k, memory)
            _LOOK[self._coding.codec](self, k, checked(data) if self._sealed else data)
        except DecodeError as fault:
            raise self.damaged(k, str(fault)) from fault

    def _look_deflate(self, k: int, data: Array) -> None:
        if len(data) < 6:
            raise DecodeError(f"{len(data)} bytes leave no room for what is around deflate data")
        method, flags = int(data[0]), int(data[1])
        if method & 15 != 8 or (method << 8 | flags) % 31 or flags & 32:
            raise DecodeError("deflate data do not begin as zlib writes them")
        place, length = k * self._coding.chunk_bytes, self._coding.chunk_bytes
        self._stretches[k].append((int(self._starts[k]) + 2, len(data) - 6, place, length))
        self._sums[k] = int.from_bytes(data[-4:].tobytes(), "big")

    def _look_zstd(self, k: int, data: Array) -> None:
        length = self._coding.chunk_bytes
        claimed = zstd_size(data)
        if claimed is not None and claimed != length:
            raise DecodeError(f"a zstd frame of {claimed} bytes where {length} belong")
        self._stretches[k].append((int(self._starts[k]), len(data), k * length, length))

    def _look_lz4(self, k: int, data: Array) -> None:
        first, place = int(self._starts[k]), k * self._coding.chunk_bytes
        for at, size, done, length in lz4_blocks(data, self._coding.chunk_bytes):
            if size == length:
                self._plain[k].append((first + at, size, place + done))
                continue
            shift = at % BLOCK_ALIGNED  # over the size in front of it, which has been read
            if shift:
                data[at - shift : at - shift + size] = data[at : at + size].copy()
            self._stretches[k].append((first + at - shift, size, place + done, length))

    def found(self) -> Found:
        flat = [stretch for each in self._stretches for stretch in each]
        table = np.array(flat, np.int64).reshape(-1, 4)
        counts = [len(each) for each in self._stretches]
        return Found(
            Frames(*np.ascontiguousarray(table.T)),
            np.repeat(np.arange(len(counts)), counts),
            [plain for each in self._plain for plain in each],
            [(int(k), int(self._starts[k])) for k in np.flatnonzero(self._masks)],
            np.flatnonzero(self._offsets == UNSTORED).tolist(),
            self._sums,
        )

    def _rows_of(self, k: int) -> tuple[int, int]:
        start = int(self._bands[k // self._coding.per_band]) * self._coding.chunk_rows
        return start, min(start + self._coding.chunk_rows, self._source.n_rows)

    def damaged(self, chunk: int, what: str) -> ReadError:
        start, stop = self._rows_of(chunk)
        return damage(self._source, start, stop, int(self._offsets[chunk]), what)


_LOOK = {
    "deflate": ChunkPart._look_deflate,
    "zstd": ChunkPart._look_zstd,
    "lz4": ChunkPart._look_lz4,
}


def zstd_size(data: Bytes) -> int | None:
    """Return the size that a zstd frame claims to hold; None where it does not tell.

    Raises
    ------
    DecodeError
        If it is no zstd frame.
    """
    head = bytes(data[:18])
    if head[:4] != b"\x28\xb5\x2f\xfd" or len(head) < 6:
        raise DecodeError("zstd data do not begin like a zstd frame")
    flags = head[4]
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3]
    if width == 0:
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


def lz4_blocks(data: Array, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the blocks of a chunk under the LZ4 filter, whose sizes are big-endian.

    Of each: first byte and size, and what it becomes: first byte and size. A block that did
    not shrink is stored as it was.

    Raises
    ------
    DecodeError
        If they end early, or are not for `size` bytes.
    """
    if len(data) < 12:
        raise DecodeError("lz4 data are shorter than their header")
    claimed, block = struct.unpack(">QI", data[:12].tobytes())
    if claimed != size or block == 0:
        raise DecodeError(f"lz4 data of {claimed} bytes where {size} belong")
    at = 12
    for place in range(0, size, block):
        n = int.from_bytes(data[at : at + 4].tobytes(), "big")
        at += 4
        if at + n > len(data):
            raise DecodeError("lz4 data end early")
        yield at, n, place, min(block, size - place)
        at += n
