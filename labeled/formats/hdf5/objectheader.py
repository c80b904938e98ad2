"""Where HDF5 keeps the table of a dataset's chunks: read from the dataset's object header.

Only what large tables need is understood: files with addresses of eight bytes that count from
the first byte, and layout messages of versions 3 and 4. Everything else raises
:class:`UnknownLayoutError`, and HDF5 is asked instead.

Formats: *HDF5 File Format Specification Version 3.0*, II.A (superblock), IV.A.1 (object
headers), IV.A.2.i (layout), IV.A.2.t (B-tree K values).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labeled.formats.bytesource import OpenFile
from labeled.formats.hdf5.jenkins import checksums
from labeled.formats.region import Array

UNDEFINED = 2**64 - 1
"""The address of what was never stored."""

MOST_BYTES = 4 << 20
"""Headers that claim more are left to HDF5."""

_LAYOUT, _CONTINUATION, _TREE_RANKS, _CACHE_IMAGE = 0x08, 0x10, 0x13, 0x18
_CHUNKED = 2
_KINDS = {3: ("fixed array", 1), 4: ("extensible array", 5)}
"""Of layouts of version 4, and how many bytes of settings come before the address."""


class UnknownLayoutError(ValueError):
    """Something in a file is not what this code understands; HDF5 may."""


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Where the table of chunks is, and what it is.

    Attributes
    ----------
    kind : str
        "tree" (a B-tree of version 1), "fixed array" or "extensible array".
    address : int
    lengths : tuple of int
        Of a chunk along each axis, and of an element in bytes.
    rank : int
        Nodes of a tree have room for twice as many children.
    """

    kind: str
    address: int
    lengths: tuple[int, ...]
    rank: int = 0


def chunk_table(file: OpenFile, header: int) -> ChunkTable:
    """Find the table of chunks of the dataset whose object header lies at an address.

    Raises
    ------
    UnknownLayoutError
        If the file, the header or the layout is none that this code knows.
    """
    rank = _tree_rank(file)
    for kind, body in messages(file, header):
        if kind == _LAYOUT:
            return _layout(body, rank)
    raise UnknownLayoutError("no layout")


def read_bytes(file: OpenFile, offset: int, n: int) -> Array:
    """Read some bytes; what lies outside the file is not understood."""
    if not (0 <= offset <= file.size - n and n <= MOST_BYTES):
        raise UnknownLayoutError(f"bytes {offset} to {offset + n} of {file.size}")
    found = np.empty(n, np.uint8)
    file.read_into(found, offset)
    return found


def checked_bytes(file: OpenFile, offset: int, n: int) -> bytes:
    """Read some bytes whose last four are the checksum of the others."""
    block = read_bytes(file, offset, n)
    check_rows(block[None])
    return block.tobytes()


def check_rows(blocks: Array) -> None:
    """Compare the last four bytes of each row with the checksum of those before."""
    told = np.ascontiguousarray(blocks[:, -4:]).view("<u4")[:, 0]
    if not np.array_equal(checksums(blocks[:, :-4]), told):
        raise UnknownLayoutError("a checksum is wrong")


def _tree_rank(file: OpenFile) -> int:
    """Return half of the children that a node of a chunk tree has room for."""
    head = read_bytes(file, 0, 48).tobytes()
    version = head[8]
    if head[:8] != b"\x89HDF\r\n\x1a\n":
        raise UnknownLayoutError("the superblock is not at the beginning")
    if version in (0, 1) and head[13:15] == b"\x08\x08":
        return int(struct.unpack_from("<H", head, 24)[0]) if version else 32
    if version not in (2, 3) or head[9:11] != b"\x08\x08":
        raise UnknownLayoutError(f"superblock of version {version}")
    (extension,) = struct.unpack_from("<Q", head, 20)
    rank = 32
    for kind, body in messages(file, extension) if extension != UNDEFINED else ():
        if kind == _CACHE_IMAGE:
            raise UnknownLayoutError("metadata may lie in an image of HDF5's cache")
        if kind == _TREE_RANKS:
            rank = int(struct.unpack_from("<H", body, 1)[0])
    return rank


def messages(file: OpenFile, header: int) -> Iterator[tuple[int, bytes]]:
    """Yield (type, body) of the messages of an object header, continuations included."""
    head = read_bytes(file, header, 16).tobytes()
    if head[:4] == b"OHDR" and head[4] == 2:
        yield from _messages_2(file, header, head[5])
    elif head[0] == 1:
        (n,) = struct.unpack_from("<I", head, 8)
        yield from _messages_in(file, [(header + 16, n)], struct.Struct("<HHB3x"), b"")
    else:
        raise UnknownLayoutError(f"no object header at {header}")


def _messages_2(file: OpenFile, header: int, flags: int) -> Iterator[tuple[int, bytes]]:
    at = header + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    n = int.from_bytes(read_bytes(file, at, width).tobytes(), "little")
    checked_bytes(file, header, at + width + n + 4 - header)
    head = struct.Struct("<BHB2x" if flags & 4 else "<BHB")
    yield from _messages_in(file, [(at + width, n)], head, b"OCHK")


def _messages_in(
    file: OpenFile, blocks: list[tuple[int, int]], head: struct.Struct, signature: bytes
) -> Iterator[tuple[int, bytes]]:
    """Walk through blocks of messages; those found on the way begin with a signature."""
    left = MOST_BYTES
    for at, n in blocks:  # grows meanwhile
        left -= n + 1
        if left < 0:
            raise UnknownLayoutError("a header without an end")
        block, place = read_bytes(file, at, n).tobytes(), 0
        while place + head.size <= n:
            kind, size, flags = head.unpack_from(block, place)
            body = block[place + head.size : place + head.size + size]
            place += head.size + size
            if place > n:
                raise UnknownLayoutError("a message longer than its block")
            if kind == _CONTINUATION:
                offset, length = struct.unpack_from("<QQ", body)
                if signature:  # and a checksum behind
                    if checked_bytes(file, offset, max(length, 8))[:4] != signature:
                        raise UnknownLayoutError(f"no continuation at {offset}")
                    offset, length = offset + 4, max(length - 8, 0)
                blocks.append((offset, length))
            elif not flags & 2:  # else it is elsewhere, as named datatypes are
                yield kind, body


def _layout(body: bytes, rank: int) -> ChunkTable:
    version, storage = body[0], body[1]
    if storage != _CHUNKED or version not in (3, 4):
        raise UnknownLayoutError(f"layout {storage} of version {version}")
    if version == 3:
        n = body[2]
        address, *lengths = struct.unpack_from(f"<Q{n}I", body, 3)
        return ChunkTable("tree", address, tuple(lengths), rank)
    flags, n, width = body[2:5]
    at = 5 + n * width
    if flags & 1 or body[at] not in _KINDS:
        raise UnknownLayoutError(f"chunks of kind {body[at]}, flags {flags}")
    lengths = [int.from_bytes(body[5 + i * width :][:width], "little") for i in range(n)]
    kind, settings = _KINDS[body[at]]
    (address,) = struct.unpack_from("<Q", body, at + 1 + settings)
    return ChunkTable(kind, address, tuple(lengths))
