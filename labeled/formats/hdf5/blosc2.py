"""Undoing the blosc2 filter: a contiguous frame around one blosc2 chunk.

The frame is a head in MessagePack whose fields lie at fixed places, the chunk, and a table
with the place of the chunk. A chunk that is all zeros is in the table only. Where a chunk of
more than one axis was cut into blocks (metadata "b2nd"), its elements lie block by block, the
blocks at the edges padded to full ones.

The chunk itself is undone by imagecodecs (extra ``codecs``), which leaves the GIL meanwhile;
the library's own Python package holds it.
"""

from __future__ import annotations

import importlib
import math
import struct
from typing import Any, NamedTuple

import numpy as np

from labeled.formats.hdf5.undoing import Bytes, Decode, DecodeError, as_array
from labeled.formats.reading import scratch
from labeled.formats.region import Array

MAGIC = b"b2frame\0"
ZEROS = 0x81
"""The first byte of a place in the table: no place, but a chunk of zeros."""

_HEAD = struct.Struct(">xx8sxixQx4sxqxqxixixi")
"""Magic, bytes of the head, of the frame, flags, bytes decoded, stored, of an element, a block,
the chunk."""

_META_AT = 87
_CHUNK_HEAD = 32
_MOST_AXES = 16


def open_blosc2() -> Decode | None:
    """Return what undoes a frame; None without imagecodecs."""
    try:
        library = importlib.import_module("imagecodecs")
        decode = library.blosc2_decode
        failure: type[Exception] = library.Blosc2Error
    except (ImportError, AttributeError):
        return None

    def unpacked(chunk: Array, size: int, name: str) -> Array:
        claimed, _, stored = struct.unpack("<III", chunk[4:16].tobytes().ljust(12, b"\0"))
        if len(chunk) < _CHUNK_HEAD or claimed != size or stored > len(chunk):
            raise DecodeError(
                f"a blosc2 chunk that claims {claimed} bytes in {stored}, where {size} in at most "
                f"{len(chunk)} belong"
            )
        out = scratch(name, size)
        try:
            decode(chunk[:stored], numthreads=1, out=out)
        except (failure, ValueError, RuntimeError) as fault:
            raise DecodeError(f"blosc2 data are damaged ({fault})") from fault
        return out

    def undo(data: Bytes, size: int) -> Bytes:
        frame = as_array(data)
        head, n_decoded, n_stored, item = _head(frame, size)
        if not n_stored:
            if n_decoded < size:
                raise DecodeError(f"a blosc2 frame of {n_decoded} bytes where {size} belong")
            place = unpacked(frame[head:], 8, "place")
            if place[7] != ZEROS:
                raise DecodeError("a blosc2 frame without a chunk, which is not all zeros")
            out = scratch("unpacked", size)
            out[:] = 0
            return out
        blocks = _blocks(frame[:head].tobytes())
        if n_decoded != (size if blocks is None else blocks.n_bytes(item, size)):
            raise DecodeError(f"a blosc2 frame of {n_decoded} bytes where {size} belong")
        chunk = unpacked(frame[head : head + n_stored], n_decoded, "unpacked")
        return chunk if blocks is None else blocks.in_order(chunk, item, size)

    return undo


class Blocks(NamedTuple):
    """How the elements of a chunk are cut into blocks."""

    chunk: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def counts(self) -> list[int]:
        """How many blocks there are along each axis."""
        return [-(-c // b) for c, b in zip(self.chunk, self.block, strict=True)]

    @property
    def whole(self) -> list[int]:
        """The lengths of the chunk, padded to whole blocks."""
        return [n * b for n, b in zip(self.counts, self.block, strict=True)]

    def n_bytes(self, item: int, size: int) -> int:
        """Return the bytes of all blocks; DecodeError unless they make a chunk of `size`."""
        if math.prod(self.chunk) * item != size:
            raise DecodeError(
                f"a blosc2 chunk of {self.chunk} elements of {item} bytes where {size} bytes belong"
            )
        return math.prod(self.whole) * item

    def in_order(self, data: Array, item: int, size: int) -> Array:
        """Put elements that lie block by block into the order of the chunk."""
        if self.block[1:] == self.chunk[1:]:
            return data[:size]
        n = len(self.chunk)
        blocks: Any = data.view(np.dtype((np.void, item))).reshape(*self.counts, *self.block)
        ordered = blocks.transpose([axis + part for axis in range(n) for part in (0, n)])
        inside = tuple(slice(length) for length in self.chunk)
        out = scratch("elements", size)
        out.view(blocks.dtype).reshape(self.chunk)[...] = ordered.reshape(self.whole)[inside]
        return out


def _head(frame: Array, size: int) -> tuple[int, int, int, int]:
    """Check the head; return its bytes, those decoded and stored, and those of an element."""
    raw = frame[: _HEAD.size].tobytes()
    if len(raw) < _HEAD.size or raw[2:10] != MAGIC:
        raise DecodeError("blosc2 data do not begin like a frame")
    _, head, n_frame, _, n_decoded, n_stored, item, _, n_chunk = _HEAD.unpack(raw)
    ends = n_frame <= len(frame) and _META_AT <= head <= len(frame)
    if not ends or not 0 <= n_stored <= len(frame) - head:
        raise DecodeError("a blosc2 frame that ends before its chunk does")
    if item < 1 or n_decoded > n_chunk:
        raise DecodeError("a blosc2 frame of several chunks, where HDF5 writes one")
    return head, n_decoded, n_stored, item


def _blocks(head: bytes) -> Blocks | None:
    """Read how elements are cut into blocks; None where they lie in order."""
    try:
        if head[_META_AT] & 0xF0 != 0x90:
            return None
        at, (n_metas,) = _META_AT + 7, struct.unpack_from(">H", head, _META_AT + 5)
        for _ in range(n_metas):
            n_name = head[at] & 0x1F
            name = head[at + 1 : at + 1 + n_name]
            (place,) = struct.unpack_from(">i", head, at + n_name + 2)
            at += n_name + 6
            if name == b"b2nd" and place > 0:
                return _shapes(head, place + 5)
    except (IndexError, struct.error) as fault:
        raise DecodeError("a blosc2 frame whose metadata end early") from fault
    return None


def _shapes(head: bytes, at: int) -> Blocks:
    """Read the shapes of the array, of its chunk and of a block: the last two count here."""
    n_axes = head[at + 2]
    if not 0 < n_axes <= _MOST_AXES:
        raise DecodeError(f"a blosc2 chunk of {n_axes} axes")
    at += 4 + 9 * n_axes
    shapes = []
    for _ in range(2):
        shapes.append(
            tuple(x for (x,) in struct.iter_unpack(">xi", head[at + 1 : at + 1 + 5 * n_axes]))
        )
        at += 1 + 5 * n_axes
    if len(shapes[1]) != n_axes or not all(0 < b <= c for c, b in zip(*shapes, strict=True)):
        raise DecodeError(f"blosc2 blocks of {shapes[1]} in a chunk of {shapes[0]}")
    return Blocks(*shapes)
