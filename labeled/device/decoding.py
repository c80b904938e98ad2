"""Compressed bytes decoded where they are needed: what a device offers, and the host in its place.

A *frame* is a stretch of compressed bytes that becomes a stretch of decoded ones, of a length
that is known before. All frames of a window are decoded by one call. What filters had done to
the bytes before they were compressed, and where the bytes come from, is nobody's business here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from labeled.device.arrays import Array, namespace
from labeled.later import module_if_there

Ints = npt.NDArray[np.int64]

ALIGNED = 16
"""Where frames begin in memory, at multiples of this: what any decoder of a device asks for."""

BLOCK_ALIGNED = 4
"""The same for LZ4 blocks behind the first of a chunk."""

REFUSED = -1
"""The length of a frame that could not be decoded."""

_BLOCK = 256
"""Bytes added up with weights in 16 bits: 255 * 256 is the most that one is."""

_SLICE_BYTES = 16 << 20
SUM_BYTES = 4 * _SLICE_BYTES
"""What checksums take besides at most: bytes, times two for weighted ones, and their sums."""


class Frames(NamedTuple):
    """Compressed stretches, and where each goes: int64 arrays of one length."""

    starts: Ints
    """First byte among the compressed ones: aligned as :data:`ALIGNED` says."""
    sizes: Ints
    places: Ints
    """First byte among the decoded ones."""
    lengths: Ints
    """Decoded bytes."""


class Decoder(Protocol):
    """What decodes frames."""

    @property
    def name(self) -> str:
        """What people know it by: ``"nvCOMP 6.0"``."""

    def why_not(self, codec: str, frame_bytes: int) -> str | None:
        """Say why frames of a codec, of at most so many decoded bytes, are not decoded."""

    def temp_bytes(self, codec: str, n_frames: int, frame_bytes: int) -> int:
        """Return the memory that decoding so many frames takes besides."""

    def decode(self, codec: str, packed: Array, frames: Frames, out: Array) -> Array:
        """Ask for frames to be decoded; runs as a kernel does, on the stream that is current.

        Parameters
        ----------
        codec : {"deflate", "zstd", "lz4"}
            Deflate without any header, whole zstd frames, LZ4 blocks.
        packed, out : uint8 array, 1-D
            Of the device: compressed bytes, and where decoded ones go.
        frames : Frames

        Returns
        -------
        int64 array
            Of the device: how many bytes each frame gave; :data:`REFUSED` where it did not.
        """


class HostDecoder:
    """The host in the place of a device that decodes: for machines without one, and for tests.

    Examples
    --------
    >>> packed = zlib.compress(b"some bytes")[2:-4]
    >>> frames = Frames(*(np.array([n]) for n in (0, len(packed), 2, 10)))
    >>> out = np.zeros(12, np.uint8)
    >>> HostDecoder().decode("deflate", np.frombuffer(packed, np.uint8), frames, out)
    array([10])
    >>> out.tobytes()
    b'\\x00\\x00some bytes'
    """

    name = "the host in its place"

    def why_not(self, codec: str, frame_bytes: int) -> str | None:
        if codec not in _OPENERS:
            return f"{codec} is not decoded on a device"
        if _OPENERS[codec]() is None:
            return f"{codec} needs numcodecs for the host to decode it in the place of a device"
        return None

    def temp_bytes(self, codec: str, n_frames: int, frame_bytes: int) -> int:
        return 0

    def decode(self, codec: str, packed: Array, frames: Frames, out: Array) -> Array:
        decode = _OPENERS[codec]()
        assert decode is not None, "asked why_not() first"
        found = np.full(len(frames.starts), REFUSED, np.int64)
        for k, (start, size, place, length) in enumerate(np.stack(frames, axis=1).tolist()):
            try:
                made = decode(packed[start : start + size].tobytes(), length)
            except (zlib.error, RuntimeError, ValueError):
                continue
            out[place : place + len(made)] = np.frombuffer(made, np.uint8)
            found[k] = len(made)
        return found


Decode = Callable[[bytes, int], bytes]


def _inflate(data: bytes, length: int) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    made = stream.decompress(data, max(length, 1))
    if not stream.eof or stream.unused_data:
        raise ValueError("deflate data end elsewhere")
    return made


def _open_zstd() -> Decode | None:
    library = module_if_there("numcodecs.zstd")
    if library is None:
        return None

    def decode(data: bytes, length: int) -> bytes:
        made = np.empty(length, np.uint8)
        library.decompress(data, made)
        return made.tobytes()

    return decode


def _open_lz4() -> Decode | None:
    library = module_if_there("numcodecs.lz4")
    if library is None:
        return None

    def decode(data: bytes, length: int) -> bytes:
        made = np.empty(length, np.uint8)
        library.decompress(length.to_bytes(4, "little") + data, made)
        return made.tobytes()

    return decode


_OPENERS: dict[str, Callable[[], Decode | None]] = {
    "deflate": lambda: _inflate,
    "zstd": _open_zstd,
    "lz4": _open_lz4,
}


def adler32(chunks: Array) -> Array:
    """Return zlib's checksum of each of some chunks, wherever they are.

    Parameters
    ----------
    chunks : uint8 array, lengths ``(n, bytes)``
        NumPy's or CuPy's.

    Returns
    -------
    int64 array, lengths ``(n,)``

    Examples
    --------
    >>> adler32(np.frombuffer(b"some bytesmore bytes", np.uint8).reshape(2, 10)).tolist()
    [364971004, 363660283]
    >>> zlib.adler32(b"some bytes")
    364971004
    """
    xp = namespace(chunks)
    each = max(1, _SLICE_BYTES // max(1, chunks.shape[1]))
    found = xp.empty(len(chunks), np.int64)
    for start in range(0, len(chunks), each):
        found[start : start + each] = _adler32(xp, chunks[start : start + each])
    return found


def _adler32(xp: Any, chunks: Array) -> Array:
    """Do the same with few chunks; one longer than a slice is added up slice by slice.

    The second sum counts each byte as often as bytes follow it, itself included.
    """
    n, length = chunks.shape
    first, second = xp.zeros(n, np.int64), xp.zeros(n, np.int64)
    for begin in range(0, length, _SLICE_BYTES):
        end = min(length, begin + _SLICE_BYTES)
        whole = end - (end - begin) % _BLOCK
        for a, z, width in ((begin, whole, _BLOCK), (whole, end, end - whole)):
            if a == z:
                continue
            piece = chunks[:, a:z]
            blocks = piece.reshape(n, -1, width)
            sums = blocks.sum(axis=2, dtype=np.int64)
            weights = xp.arange(width, 0, -1, dtype=np.uint16)
            inside = (blocks * weights).sum(axis=2, dtype=np.int64)
            ends = a + width * xp.arange(1, blocks.shape[1] + 1, dtype=np.int64)
            behind = (length - ends) % 65521
            first += sums.sum(axis=1)
            second += inside.sum(axis=1) + (sums * behind).sum(axis=1)
    return (second + length) % 65521 * 65536 + (first + 1) % 65521
