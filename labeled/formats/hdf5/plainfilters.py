"""Filters that pack nothing: byte shuffle, and the checksum fletcher32."""

from __future__ import annotations

import numpy as np

from labeled.formats.hdf5.undoing import Bytes, Decode, DecodeError, as_array, compiled
from labeled.formats.header import Filter
from labeled.formats.reading import scratch
from labeled.formats.region import Array
from labeled.permute import compiler

CHECKSUM_BYTES = 4


def item_of(step: Filter, itemsize: int) -> int:
    """Return how many bytes an element has whose bytes were taken apart."""
    return step.options[0] if step.options else itemsize


def unshuffle(item: int) -> Decode:
    def undo(data: Bytes, _: int) -> Bytes:
        return unshuffled(as_array(data), item, scratch("unshuffled", len(data)))

    return undo


def unshuffle_into(item: int, data: Array, out: Array) -> None:
    if len(data) != len(out):
        raise DecodeError(f"a chunk of {len(data)} bytes where {len(out)} belong")
    unshuffled(data, item, out)


def unshuffled(data: Array, item: int, out: Array) -> Array:
    """Bring the bytes of each element together again, in `out`.

    Examples
    --------
    >>> unshuffled(np.frombuffer(b"abcABC?", np.uint8), 2, np.empty(7, np.uint8)).tobytes()
    b'aAbBcC?'
    """
    n = len(data) // item
    planes, elements = data[: n * item].reshape(item, n), out[: n * item].reshape(n, item)
    if item in (2, 4, 8) and compiler.earned(len(data)):
        compiled().unshuffle(planes, elements)
    else:
        for byte, plane in enumerate(planes):
            elements[:, byte] = plane
    out[n * item :] = data[n * item :]
    return out


def checked(data: Array) -> Array:
    """Return the bytes before a fletcher32 checksum.

    Raises
    ------
    DecodeError
        If they do not add up to it.
    """
    if len(data) < CHECKSUM_BYTES:
        raise DecodeError(f"{len(data)} bytes leave no room for a fletcher32 checksum")
    body = data[:-CHECKSUM_BYTES]
    stored = int.from_bytes(data[-CHECKSUM_BYTES:].tobytes(), "little")
    found = fletcher32(body)
    # HDF5 1.6.2 and older swapped the bytes of each half; HDF5 accepts both, and so do we.
    swapped = (found & 0x00FF00FF) << 8 | (found & 0xFF00FF00) >> 8
    if stored not in (found, swapped):
        raise DecodeError(
            f"its fletcher32 checksum is {stored:#010x}, its bytes give {found:#010x}"
        )
    return body


def fletcher32(data: Array) -> int:
    """Return HDF5's checksum of bytes: sums of big-endian 16-bit words, modulo 65535.

    Modulo 65535 swapping the bytes of every word swaps those of the sums, so words are
    added up as little-endian ones, and only the two results are turned.

    Examples
    --------
    >>> hex(fletcher32(np.frombuffer(b"abcde", np.uint8)))
    '0x4ff029c7'
    """
    words = data[: len(data) & ~1].view("<u2")
    if compiler.earned(len(data)):
        first, second = (int(total) for total in compiled().sums(words))
    else:
        first, second = _sums(words)
    if len(data) % 2:
        first += int(data[-1])
        second += first
    if not data.any():  # sums that fold to 65535 are not those of zeros
        return 0
    return (second * 256 % 65535 or 65535) << 16 | (first * 256 % 65535 or 65535)


def _sums(words: Array) -> tuple[int, int]:
    """Return the sum of words, and the sum of its partial sums, modulo 65535."""
    width = max(1 << (len(words).bit_length() // 2), 4)
    body = words[: len(words) // width * width].reshape(-1, width)
    by_row = body.sum(axis=1, dtype=np.uint64) % 65535
    by_column = body.sum(axis=0, dtype=np.uint64) % 65535
    rows = np.arange(len(body), dtype=np.uint64) * np.uint64(width) % 65535
    columns = np.arange(width, dtype=np.uint64)
    first = int(by_row.sum())
    # The second sum counts word i, at row * width + column, as often as words follow it.
    second = body.size * first - int((rows * by_row).sum()) - int((columns * by_column).sum())
    for word in words[body.size :].tolist():
        first += word
        second += first
    return first % 65535, second % 65535
