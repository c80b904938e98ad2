"""Undoing the filters of a chunk, outside HDF5's lock and outside the GIL.

A :class:`Pipeline` takes the stored bytes of one chunk back through its filters. It knows
bytes and sizes only; where chunks lie and what their numbers mean is known elsewhere.
Each optional library is imported here, once, when a pipeline first needs it:

- deflate: libdeflate (a core dependency), else zlib; byte shuffle and fletcher32: NumPy;
- LZF and bitshuffle: numba (extra ``fast``); zstd: numcodecs or zstandard; lz4: lz4 or
  numcodecs; blosc: numcodecs, blosc2: imagecodecs (extra ``codecs``), whose own threads are
  switched off, because pieces are decoded side by side already.

Nothing is trusted: a chunk's decoded size is known before decoding and is the only size
ever allocated; sizes that a stream claims for itself are compared with it first.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from labeled.formats.hdf5.bitshuffle import bitshuffled, is_known
from labeled.formats.hdf5.blosc2 import open_blosc2
from labeled.formats.hdf5.inflate import inflate_into
from labeled.formats.hdf5.plainfilters import (
    CHECKSUM_BYTES,
    checked,
    item_of,
    unshuffle,
    unshuffle_into,
)
from labeled.formats.hdf5.undoing import Bytes, Decode, DecodeError, as_array, compiled
from labeled.formats.header import Filter
from labeled.formats.reading import scratch
from labeled.formats.region import Array
from labeled.later import module_if_there
from labeled.permute import compiler

DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
BLOSC, LZ4, BITSHUFFLE, ZSTD, BLOSC2 = 32001, 32004, 32008, 32015, 32026


class Pipeline:
    """The filters of one dataset, ready to be undone.

    Parameters
    ----------
    filters : sequence of Filter
        In the order they were applied.
    chunk_bytes : int
        Decoded size of a chunk.
    itemsize : int
        Bytes of an element, for a shuffle filter that does not tell.
    """

    def __init__(self, filters: tuple[Filter, ...], chunk_bytes: int, itemsize: int) -> None:
        self._codes = [step.id for step in filters]
        self._idle = [_is_idle(step, itemsize) for step in filters]
        self._decoders = [_decoder(step, itemsize) for step in filters]
        self._chunk_bytes = chunk_bytes
        self._usual = self._applied(0)
        changing = [step for step in filters if not _is_idle(step, itemsize)]
        self._put = _decoder_into(changing[0], itemsize) if changing else None

    def _applied(self, mask: int) -> list[tuple[Decode, int]]:
        """Return the steps back, last filter first, each with the size it must give."""
        steps: list[tuple[Decode, int]] = []
        size = self._chunk_bytes
        for i, (code, decode) in enumerate(zip(self._codes, self._decoders, strict=True)):
            if not (mask >> i & 1 or self._idle[i]):
                steps.append((decode, size))
                size += CHECKSUM_BYTES if code == FLETCHER32 else 0
        return steps[::-1]

    def undo(self, stored: Bytes, mask: int) -> Bytes:
        """Return the decoded bytes of a chunk: memory that the next call may reuse.

        Parameters
        ----------
        stored : bytes-like
        mask : int
            Bit i set: filter i was not applied to this chunk.

        Raises
        ------
        DecodeError
            If the bytes are damaged.
        """
        data = stored
        for decode, size in self._usual if mask == 0 else self._applied(mask):
            data = decode(data, size)
        if len(data) != self._chunk_bytes:
            raise DecodeError(f"a chunk of {len(data)} bytes where {self._chunk_bytes} belong")
        return data

    def undo_into(self, stored: Bytes, mask: int, out: Array) -> None:
        """Do the same, but store the decoded bytes of a chunk in `out`, as many ``uint8``.

        Raises
        ------
        DecodeError
            If the bytes are damaged; `out` may hold anything then.
        """
        if self._put is None or mask:
            out[:] = as_array(self.undo(stored, mask))
            return
        data = stored
        for decode, size in self._usual[:-1]:
            data = decode(data, size)
        self._put(as_array(data), out)

    def undo_own(self, stored: list[Array], mask: int) -> Array:
        """Return the decoded bytes of a chunk in memory of their own.

        Parameters
        ----------
        stored : list of one array
            Is emptied, so that no more than two of stored, half decoded and decoded bytes are
            in memory together, whatever the chunk's size.

        Raises
        ------
        DecodeError
            If the bytes are damaged.
        """
        data: Bytes = stored.pop()
        if self._put is None or mask:
            whole = as_array(self.undo(data, mask))
            del data
            return whole.copy()
        for decode, size in self._usual[:-1]:
            data = decode(data, size)
        out = np.empty(self._chunk_bytes, np.uint8)
        self._put(as_array(data), out)
        return out


def why_not(filters: tuple[Filter, ...]) -> str | None:
    """Say why a pipeline cannot be undone here, if it cannot.

    Examples
    --------
    >>> why_not((Filter(2, "shuffle", (4,)), Filter(1, "deflate", (4,))))
    >>> why_not((Filter(4, "szip"),))
    "filter 'szip' (4) is undone by HDF5 only"
    """
    packers = 0
    for step in filters:
        if step.id in (SHUFFLE, FLETCHER32):
            continue
        packers += 1
        if step.id not in _NEEDS or (step.id == BITSHUFFLE and not is_known(step.options)):
            return f"filter {step.words!r} ({step.id}) is undone by HDF5 only"
        if _opened(step) is None:
            libraries, extra = _NEEDS[step.id]
            if extra == "fast" and compiler.turned_off():
                return f"filter {step.words!r} ({step.id}) is undone by HDF5: {compiler.OFF} is set"
            return (
                f"filter {step.words!r} ({step.id}) is undone by HDF5, because {libraries} is not "
                f"installed; the extra {extra!r} has it"
            )
    if packers > 1:
        return "two compressing filters, one after the other: undone by HDF5 only"
    return None


def _decoder(step: Filter, itemsize: int) -> Decode:
    if step.id == SHUFFLE:
        return unshuffle(item_of(step, itemsize))
    if step.id == FLETCHER32:
        return lambda data, _: checked(as_array(data))
    decode = _opened(step)
    assert decode is not None, "asked why_not() first"
    return decode


def _decoder_into(step: Filter, itemsize: int) -> Callable[[Array, Array], None] | None:
    """Return what undoes the last step straight into its place, if anything can."""
    if step.id == SHUFFLE:
        return functools.partial(unshuffle_into, item_of(step, itemsize))
    return _inflate_into if step.id == DEFLATE and inflate_into() is not None else None


def _inflate_into(data: Array, out: Array) -> None:
    inflate = inflate_into()
    assert inflate is not None
    if not inflate(data, out):
        raise DecodeError(f"deflate data are damaged, or do not end after {len(out)} bytes")


def _is_idle(step: Filter, itemsize: int) -> bool:
    """Whether a filter changed nothing: elements of one byte, taken apart."""
    return step.id == SHUFFLE and item_of(step, itemsize) < 2


# ---------------------------------------------------------------- compression


def _open_deflate() -> Decode:
    library = module_if_there("deflate")
    if library is None:
        return _inflate
    failure: type[Exception] = library.DeflateError

    inflate: Callable[[Bytes, int], bytes] = library.zlib_decompress

    def undo(data: Bytes, size: int) -> Bytes:
        try:
            return inflate(data, size)
        except failure as fault:
            raise DecodeError(f"deflate data are damaged ({fault})") from fault

    return undo


def _inflate(data: Bytes, size: int) -> Bytes:
    """Undo deflate with the standard library, for systems without libdeflate."""
    stream = zlib.decompressobj()
    try:
        out = stream.decompress(bytes(data), max(size, 1))
    except zlib.error as fault:
        raise DecodeError(f"deflate data are damaged ({fault})") from fault
    if stream.unconsumed_tail or not stream.eof:
        raise DecodeError(f"deflate data do not end after {size} bytes")
    return out


def _open_lzf() -> Decode | None:
    if not compiler.installed():
        return None

    def undo(data: Bytes, size: int) -> Bytes:
        out = scratch("unpacked", size)
        if compiled().lzf(as_array(data), out) != size:
            raise DecodeError("LZF data are damaged")
        return out

    return undo


def _open_zstd() -> Decode | None:
    numcodecs, zstandard = module_if_there("numcodecs.zstd"), module_if_there("zstandard")
    if numcodecs is None and zstandard is None:
        return None

    failures: tuple[type[Exception], ...] = (RuntimeError, ValueError)
    if zstandard is not None:
        failures = (*failures, zstandard.ZstdError)

    def undo(data: Bytes, size: int) -> Bytes:
        claimed = zstd_size(data)
        if claimed is not None and claimed != size:
            raise DecodeError(f"a zstd frame of {claimed} bytes where {size} belong")
        try:
            if numcodecs is not None:
                return np.asarray(numcodecs.decompress(data, scratch("unpacked", size)))
            assert zstandard is not None
            unpacker = zstandard.ZstdDecompressor()
            return cast(bytes, unpacker.decompress(data, max_output_size=size))
        except failures as fault:
            raise DecodeError(f"zstd data are damaged ({fault})") from fault

    return undo


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


def _open_lz4() -> Decode | None:
    library = module_if_there("lz4.block")
    if library is not None:

        def unpack(block: Array, into: Array) -> None:
            into[:] = as_array(library.decompress(block, uncompressed_size=len(into)))

        return lambda data, size: _lz4(
            as_array(data), size, unpack, (library.LZ4BlockError, ValueError)
        )
    codecs = module_if_there("numcodecs.lz4")
    if codecs is None:
        return None

    def unpack_sized(block: Array, into: Array) -> None:
        sized = struct.pack("<I", len(into)) + block.tobytes()
        if codecs.decompress(sized, into) is None:
            raise ValueError("nothing decoded")

    return lambda data, size: _lz4(as_array(data), size, unpack_sized, (RuntimeError, ValueError))


def _lz4(
    data: Array,
    size: int,
    unpack: Callable[[Array, Array], None],
    failures: tuple[type[Exception], ...],
) -> Array:
    """Undo the LZ4 filter, block by block."""
    out = scratch("unpacked", size)
    for at, n, place, length in lz4_blocks(data, size):
        packed, into = data[at : at + n], out[place : place + length]
        try:
            if n == length:
                into[:] = packed
            else:
                unpack(packed, into)
        except failures as fault:
            raise DecodeError(f"lz4 data are damaged ({fault})") from fault
    return out


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


def _open_blosc() -> Decode | None:
    library = module_if_there("numcodecs.blosc")
    if library is None:
        return None
    if library.use_threads is None:
        library.use_threads = False  # pieces are decoded side by side; its pool would compete

    def undo(data: Bytes, size: int) -> Bytes:
        # The library believes the sizes in the header, so they are checked before it sees them.
        claimed, _, stored = struct.unpack("<III", bytes(data[4:16]).ljust(12, b"\0"))
        if len(data) < 16 or claimed != size or stored != len(data):
            raise DecodeError(
                f"blosc data claim {claimed} bytes in {stored}, where {size} in {len(data)} belong"
            )
        try:
            return np.asarray(library.decompress(data, scratch("unpacked", size)))
        except (RuntimeError, ValueError) as fault:
            raise DecodeError(f"blosc data are damaged ({fault})") from fault

    return undo


_OPENERS: dict[int, Callable[[], Decode | None]] = {
    DEFLATE: _open_deflate,
    LZF: _open_lzf,
    ZSTD: _open_zstd,
    LZ4: _open_lz4,
    BLOSC: _open_blosc,
    BLOSC2: open_blosc2,
}

_NEEDS = {
    DEFLATE: ("deflate", ""),
    LZF: ("numba", "fast"),
    ZSTD: ("numcodecs", "codecs"),
    LZ4: ("numcodecs", "codecs"),
    BLOSC: ("numcodecs", "codecs"),
    BITSHUFFLE: ("numba (and numcodecs, where it packs by zstd)", "fast"),
    BLOSC2: ("imagecodecs", "codecs"),
}


@functools.cache
def _opened(step: Filter) -> Decode | None:
    if step.id == BITSHUFFLE:
        return bitshuffled(step.options, _open_zstd())
    return _OPENERS[step.id]()
