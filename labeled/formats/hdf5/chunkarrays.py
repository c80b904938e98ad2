"""Tables of chunks kept as arrays, read block by block without HDF5.

Datasets of fixed lengths have a *fixed array*: an element for every chunk that there can be, in
pages. Those that grow along one axis have an *extensible array*: blocks of elements that become
larger and more numerous, found from an index block and from super blocks. What was never stored
has no address. Every block that is read ends in a checksum, which is compared.

Format: *HDF5 File Format Specification Version 3.0*, VII.C and VII.D.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labeled.formats.bytesource import OpenFile
from labeled.formats.hdf5.objectheader import (
    UNDEFINED,
    ChunkTable,
    UnknownLayoutError,
    check_rows,
    checked_bytes,
    read_bytes,
)
from labeled.formats.region import Array, Ints

PREFIX_BYTES = 14
"""Signature, version, client and address of the header, with which blocks begin."""

AT_ONCE_BYTES = 1 << 20

Found = tuple[Ints, Array]
"""The numbers of some elements, and their bytes ``(n, element bytes)``."""


class Element(NamedTuple):
    """How an element lies in the file: an address and, with filters, size and mask."""

    n_bytes: int
    filtered: bool


def array_entries(
    file: OpenFile, table: ChunkTable, most: int
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield the chunks of an array.

    Parameters
    ----------
    most : int
        Chunks that there can be.

    Yields
    ------
    places : int64 array (n,)
        Of the array; chunks that were never stored are left out.
    offsets, sizes : uint64 array (n,)
    masks : uint32 array (n,)

    Raises
    ------
    UnknownLayoutError
        If a block is not what it should be, or its checksum is wrong.
    """
    if table.address == UNDEFINED:
        return
    fixed = table.kind == "fixed array"
    elements = fixed_elements if fixed else extensible_elements
    n_bytes = int(np.prod(table.lengths, dtype=np.uint64))
    head = _checked(file, table.address, 28 if fixed else 72, b"FAHD" if fixed else b"EAHD")
    element = Element(head[6], head[5] == 1)
    if not (13 <= element.n_bytes <= 20 if element.filtered else element.n_bytes == 8):
        raise UnknownLayoutError(f"elements of {element.n_bytes} bytes")
    for numbers, found in elements(file, table.address, head, element, most):
        offsets = np.ascontiguousarray(found[:, :8]).view("<u8")[:, 0]
        stored = np.flatnonzero(offsets != UNDEFINED)
        kept = found[stored]
        if element.filtered:
            wide = np.zeros((len(kept), 8), np.uint8)
            wide[:, : element.n_bytes - 12] = kept[:, 8:-4]
            sizes = wide.view("<u8")[:, 0]
            masks = np.ascontiguousarray(kept[:, -4:]).view("<u4")[:, 0]
        else:
            sizes = np.full(len(kept), n_bytes, np.uint64)
            masks = np.zeros(len(kept), np.uint32)
        yield numbers[stored], offsets[stored], sizes, masks


def fixed_elements(
    file: OpenFile, header: int, head: bytes, element: Element, most: int
) -> Iterator[Found]:
    """Yield the elements of a fixed array, some pages at a time."""
    page_bits = head[7]
    n, block = struct.unpack_from("<QQ", head, 8)
    if n > most or page_bits > 20:
        raise UnknownLayoutError(f"{n} elements where there can be {most}")
    if block == UNDEFINED:
        return
    page = 1 << page_bits
    n_pages = -(-n // page)
    if n <= page:
        body = _checked(file, block, PREFIX_BYTES + n * element.n_bytes + 4, b"FADB", header)
        yield np.arange(n), _rows(body[PREFIX_BYTES:-4], element)
        return
    n_map = -(-n_pages // 8)
    body = _checked(file, block, PREFIX_BYTES + n_map + 4, b"FADB", header)
    begun = np.unpackbits(np.frombuffer(body, np.uint8, n_map, PREFIX_BYTES))[:n_pages]
    starts = np.arange(n_pages) * page
    places = block + len(body) + np.arange(n_pages) * (page * element.n_bytes + 4)
    full = begun.astype(bool) & (starts + page <= n)
    yield from _parts(file, starts[full], places[full], 0, page, element)
    if begun[-1] and n % page:
        yield from _parts(file, starts[-1:], places[-1:], 0, n % page, element)


def _parts(
    file: OpenFile, firsts: Ints, places: Ints, before: int, length: int, element: Element
) -> Iterator[Found]:
    """Yield `length` elements from each place, behind so many other bytes; some MiB at a time."""
    width = before + length * element.n_bytes
    together = max(AT_ONCE_BYTES // width, 1)
    for a in range(0, len(places), together):
        some = places[a : a + together].tolist()
        blocks = np.stack([read_bytes(file, place, width + 4) for place in some])
        check_rows(blocks)
        elements = blocks[:, before:-4].reshape(-1, element.n_bytes)
        yield (firsts[a : a + together, None] + np.arange(length)).reshape(-1), elements


class Growth(NamedTuple):
    """How the blocks of an extensible array grow; :meth:`steps` walks through them."""

    index_elements: int
    least_elements: int
    least_pointers: int
    most_bits: int
    page: int

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """Yield (first element, blocks, elements of each) of every super block."""
        first = self.index_elements
        for u in range(1 + self.most_bits - (self.least_elements.bit_length() - 1)):
            blocks, length = 1 << (u // 2), self.least_elements << ((u + 1) // 2)
            yield first, blocks, length
            first += blocks * length

    @property
    def direct(self) -> int:
        """Super blocks whose data blocks the index block points to itself."""
        return 2 * (self.least_pointers.bit_length() - 1)

    @property
    def offset_bytes(self) -> int:
        return -(-self.most_bits // 8)


def extensible_elements(
    file: OpenFile, header: int, head: bytes, element: Element, most: int
) -> Iterator[Found]:
    """Yield the elements of an extensible array, some blocks or pages at a time."""
    most_bits, index_elements, least, pointers, page_bits = head[7:12]
    n, _, index = struct.unpack_from("<3Q", head, 44)
    growth = Growth(index_elements, least, pointers, most_bits, 1 << page_bits)
    if n > most or min(least, pointers) < 1 or most_bits > 64 or page_bits > 20:
        raise UnknownLayoutError(f"{n} elements where there can be {most}")
    if index == UNDEFINED:
        return
    steps = list(growth.steps())
    n_direct = 2 * (pointers - 1)
    n_super = len(steps) - growth.direct
    n_bytes = index_elements * element.n_bytes
    size = PREFIX_BYTES + n_bytes + 8 * (n_direct + n_super) + 4
    body = _checked(file, index, size, b"EAIB", header)
    yield np.arange(index_elements), _rows(body[PREFIX_BYTES : PREFIX_BYTES + n_bytes], element)
    places = struct.unpack_from(f"<{n_direct + n_super}Q", body, PREFIX_BYTES + n_bytes)
    reader = _Blocks(file, header, growth, element)
    block = 0
    for number, (first, blocks, length) in enumerate(steps):
        if first >= n:
            return
        if number < growth.direct:
            yield from reader.unpaged(places[block : block + blocks], first, length)
            block += blocks
        else:
            at = places[n_direct + number - growth.direct]
            yield from reader.behind(at, first, blocks, length)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Reads data blocks, and the super blocks that point to them."""

    file: OpenFile
    header: int
    growth: Growth
    element: Element

    def unpaged(self, places: tuple[int, ...], first: int, length: int) -> Iterator[Found]:
        """Yield the elements of blocks that have no pages."""
        firsts, there = self._stored(places, first, length)
        before = PREFIX_BYTES + self.growth.offset_bytes
        yield from _parts(self.file, firsts, there, before, length, self.element)

    def behind(self, place: int, first: int, blocks: int, length: int) -> Iterator[Found]:
        """Yield the elements of the blocks that a super block points to."""
        if place == UNDEFINED:
            return
        page = self.growth.page
        n_pages = length // page if length > page else 0
        n_map = -(-n_pages // 8)
        before = PREFIX_BYTES + self.growth.offset_bytes
        size = before + blocks * (n_map + 8) + 4
        body = _checked(self.file, place, size, b"EASB", self.header)
        places = struct.unpack_from(f"<{blocks}Q", body, before + blocks * n_map)
        if not n_pages:
            yield from self.unpaged(places, first, length)
            return
        bits = np.unpackbits(np.frombuffer(body, np.uint8, blocks * n_map, before))
        begun = bits[: blocks * n_pages].reshape(blocks, n_pages).astype(bool)
        begun &= np.array(places, np.uint64)[:, None] != UNDEFINED
        numbers, pages = np.nonzero(begun)
        at = np.array(places, np.uint64)[numbers].astype(np.int64) + before + 4
        at += pages * (page * self.element.n_bytes + 4)
        starts = first + numbers * length + pages * page
        yield from _parts(self.file, starts, at, 0, page, self.element)

    def _stored(self, places: tuple[int, ...], first: int, length: int) -> tuple[Ints, Ints]:
        """Return the first elements of the blocks that are there, and where these are."""
        found = np.array(places, np.uint64)
        there = np.flatnonzero(found != UNDEFINED)
        return first + there * length, found[there].astype(np.int64)


def _checked(file: OpenFile, at: int, n: int, signature: bytes, header: int | None = None) -> bytes:
    """Read a block; what begins otherwise, or has another checksum, is not understood."""
    body = checked_bytes(file, at, n)
    (owner,) = struct.unpack_from("<Q", body, 6)
    if body[:4] != signature or body[4] != 0 or (header is not None and owner != header):
        raise UnknownLayoutError(f"no {signature.decode()} at {at}")
    return body


def _rows(body: bytes, element: Element) -> Array:
    return np.frombuffer(body, np.uint8).reshape(-1, element.n_bytes)
