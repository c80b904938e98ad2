"""Undoing the bitshuffle filter: blocks of bit planes, each packed by LZ4, zstd or not at all.

A chunk is cut into blocks of elements. In a block, bit k of byte j of every element lies
together; each block is packed by itself, with its packed size in front. The elements behind
the last multiple of 8 stay as they are. Sizes are big-endian; options of the filter are
(major, minor, bytes of an element, elements of a block or 0, codec).

LZ4 and the planes are undone by one compiled loop each for all blocks of a chunk: a call of a
library for every 8 KiB would spend its time on taking and giving back the GIL.
"""

from __future__ import annotations

from labeled.formats.hdf5.undoing import Bytes, Decode, DecodeError, as_array, compiled
from labeled.formats.reading import scratch
from labeled.formats.region import Array
from labeled.permute import compiler

NO_CODEC, LZ4, ZSTD = 0, 2, 3
ELEMENTS_TOGETHER = 8

_BLOCK_BYTES, _LEAST_BLOCK = 8192, 128
_HEAD_BYTES = 12


def bitshuffled(options: tuple[int, ...], zstd: Decode | None) -> Decode | None:
    """Return what undoes the filter with these options; None without the libraries it needs.

    Parameters
    ----------
    options : tuple of int
        As HDF5 keeps them.
    zstd : callable, optional
        Undoes zstd.
    """
    item, block, codec = _parts(options)
    if not compiler.installed() or (codec == ZSTD and zstd is None):
        return None

    def undo(data: Bytes, size: int) -> Bytes:
        stored = as_array(data)
        if codec == NO_CODEC:
            if len(stored) != size:
                raise DecodeError(f"bit planes of {len(stored)} bytes where {size} belong")
            planes, block_bytes = stored, (block or default_block(item)) * item
        else:
            block_bytes = _block_bytes(stored, size, item)
            planes = scratch("planes", size)  # not "unpacked", where zstd unpacks
            if codec == LZ4:
                _unpack_lz4(stored, planes, block_bytes, item)
            else:
                assert zstd is not None
                _unpack_zstd(stored, planes, block_bytes, item, zstd)
        out = scratch("elements", size)  # not "unshuffled": bytes may be shuffled besides
        compiled().unbitshuffle(planes, out, item, block_bytes // item)
        return out

    return undo


def is_known(options: tuple[int, ...]) -> bool:
    """Whether these options are of a kind that is undone here.

    Examples
    --------
    >>> is_known((0, 4, 4, 0, 2)), is_known((0, 4, 4, 0, 1)), is_known((0, 4, 4, 100, 0))
    (True, False, False)
    """
    item, block, codec = _parts(options)
    return item > 0 and block % ELEMENTS_TOGETHER == 0 and codec in (NO_CODEC, LZ4, ZSTD)


def _parts(options: tuple[int, ...]) -> tuple[int, int, int]:
    """Return bytes of an element, elements of a block, and the codec."""
    item, block, codec = (*options, 0, 0, 0, 0, 0)[2:5]
    return item, block, codec


def default_block(item: int) -> int:
    """Return how many elements a block has where nothing else is said.

    Examples
    --------
    >>> default_block(1), default_block(4), default_block(1000)
    (8192, 2048, 128)
    """
    return max(_BLOCK_BYTES // item // ELEMENTS_TOGETHER * ELEMENTS_TOGETHER, _LEAST_BLOCK)


def packed_bytes(size: int, item: int) -> int:
    """Return how many of the bytes are in blocks; the others are stored as they are."""
    return size // item // ELEMENTS_TOGETHER * ELEMENTS_TOGETHER * item


def _block_bytes(stored: Array, size: int, item: int) -> int:
    """Check the head of a packed chunk; return the bytes of a block."""
    if len(stored) < _HEAD_BYTES:
        raise DecodeError("bitshuffle data are shorter than their header")
    claimed = int.from_bytes(stored[:8].tobytes(), "big")
    block = int.from_bytes(stored[8:_HEAD_BYTES].tobytes(), "big")
    if claimed != size:
        raise DecodeError(f"bitshuffle data of {claimed} bytes where {size} belong")
    if block == 0 or block % (ELEMENTS_TOGETHER * item):
        raise DecodeError(f"bitshuffle blocks of {block} bytes for elements of {item}")
    return block


def _unpack_lz4(stored: Array, planes: Array, block: int, item: int) -> None:
    n = packed_bytes(len(planes), item)
    at = compiled().lz4_blocks(stored, _HEAD_BYTES, planes[:n], block)
    if at < 0:
        raise DecodeError("bitshuffle data are damaged in an LZ4 block")
    _copy_rest(stored[at:], planes[n:])


def _unpack_zstd(stored: Array, planes: Array, block: int, item: int, zstd: Decode) -> None:
    n, at = packed_bytes(len(planes), item), _HEAD_BYTES
    for start in range(0, n, block):
        into = planes[start : min(start + block, n)]
        packed = int.from_bytes(stored[at : at + 4].tobytes(), "big")
        piece = stored[at + 4 : at + 4 + packed]
        if len(piece) != packed or not packed:
            raise DecodeError("bitshuffle data end early")
        unpacked = as_array(zstd(piece, len(into)))
        if len(unpacked) != len(into):
            raise DecodeError(f"a zstd block of {len(unpacked)} bytes where {len(into)} belong")
        into[:] = unpacked
        at += 4 + packed
    _copy_rest(stored[at:], planes[n:])


def _copy_rest(stored: Array, rest: Array) -> None:
    if len(stored) < len(rest):
        raise DecodeError("bitshuffle data end early")
    rest[:] = stored[: len(rest)]
