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
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

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
    offsets : uint64 array
    sizes : uint32 array (uint64 where a chunk needs it)
    masks : uint32 array or None
        Bit i set: filter i was not applied to that chunk. None where all were.
    numbers : int64 array or None
        The chunk number of each entry, ascending; None where entry i is chunk i.
    """

    offsets: Array
    sizes: Array
    masks: Array | None
    numbers: Ints | None

    nbytes: int

    def entry(self, number: int) -> tuple[int, int, int]:
        """Return the offset (-1 if it was never written), size and filter mask of one chunk."""
        if self.numbers is not None:
            entry = int(self.numbers.searchsorted(number))
            if entry == len(self.numbers) or self.numbers[entry] != number:
                return UNSTORED, 0, 0
            number = entry
        mask = 0 if self.masks is None else int(self.masks[number])
        return self.offsets.item(number), self.sizes.item(number), mask

    def offsets_of(self, numbers: Ints) -> Ints:
        """Return the offsets of chunks, -1 where one was never written."""
        if self.numbers is None:
            return self.offsets[numbers].astype(np.int64)
        if not len(self.numbers):
            return np.full(len(numbers), UNSTORED, np.int64)
        entries = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        offsets = self.offsets[entries].astype(np.int64)
        return np.where(self.numbers[entries] == numbers, offsets, UNSTORED)


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
    grid = (-(-np.array(source.shape) // np.array(chunks))).tolist()
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
            base = _base(source, dataset)
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

    refuse((within != 0).any(axis=1) | (steps >= np.array(grid, np.uint64)).any(axis=1),
           "is off the grid")  # fmt: skip
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
    small = not len(lengths) or int(lengths.max()) < 2**32
    complete = len(numbers) == math.prod(grid)
    lengths = lengths.astype(np.uint32) if small else lengths
    n_bytes = starts.nbytes + lengths.nbytes + (0 if complete else numbers.nbytes)
    n_bytes += 0 if masks is None else masks.nbytes
    return ChunkIndex(starts, lengths, masks, None if complete else numbers, n_bytes)


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
                return int(base)
    raise RuntimeError("its chunks are not where HDF5 says they are")


class _Tables:
    """Tables by file and dataset, most recently used last; one is made at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: dict[tuple[FileStamp, str], ChunkIndex] = {}
        self.n_bytes = 0

    def get(self, source: SourceHeader) -> ChunkIndex:
        key = source.file, source.key
        with self.lock:
            index = self.held.pop(key, None)
            if index is None:
                index = build_index(source)
                self.n_bytes += index.nbytes
                while self.held and self.n_bytes > CACHE_BYTES:
                    self.n_bytes -= self.held.pop(next(iter(self.held))).nbytes
            self.held[key] = index
            return index


_TABLES = _Tables()


def chunk_index(source: SourceHeader) -> ChunkIndex:
    """Return the chunk table of a source, from the cache where it is known already."""
    return _TABLES.get(source)


def _forget() -> None:
    global _TABLES
    _TABLES = _Tables()  # with a new lock: a fork may have left the old one taken


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
