"""Filters of chunks, undone and applied outside HDF5's lock and outside the GIL.

:func:`undo` takes the stored bytes of one chunk back through its filters;
:func:`chunks_of` makes chunks of rows that :mod:`.writing` stores as they are. Both know bytes and
sizes only; where chunks lie and what their numbers mean is known elsewhere. One table
(:data:`_CODECS`) says for each filter how it is undone and applied: deflate by
libdeflate (a core dependency), the others by imagecodecs (extra ``codecs``). NumPy sums up
fletcher32 and undoes byte shuffle, or a loop of numba's does, where that is loaded.

Nothing is trusted: the decoded size of a chunk is known before decoding, no other size is ever
allocated, and a decoder that does not fill it exactly is an error. Sizes that a stream claims
are compared with it first where the library would believe them.

A chunk that compression would not make smaller is stored as it is, with its filters marked
as not applied: HDF5 itself does so, and such a chunk is read without decoding.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled._numba import loop, pays_off
from labeled._optional import import_optional
from labeled.errors import MissingExtraError, how_to_install, listed
from labeled.formats.header import (
    BITSHUFFLE,
    BLOSC,
    DEFLATE,
    FLETCHER32,
    LZ4,
    LZF,
    SHUFFLE,
    ZSTD,
    FilterInfo,
    SourceHeader,
)
from labeled.formats.memory import scratch
from labeled.formats.region import Array
from labeled.permute.plan import address_of

CHECKSUM_BYTES = 4

Options = tuple[int, ...]
# decodes stored bytes into given memory, by the options of a filter, and returns how many bytes it
# stored there
Decode = Callable[[Options, Array, Array], int]


class DecodeError(ValueError):
    """Stored bytes are not what their filter would have written."""


# ---------------------------------------------------------------- compression


@functools.cache
def _libdeflate() -> Any:
    """Return libdeflate, or None where its functions are hidden.

    The binding that this library depends on (``deflate``) returns new bytes for every chunk,
    which then have to be copied to their place. Its extension module holds libdeflate itself,
    whose functions are found by name, unless a build hides them.
    """
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    try:
        library = ctypes.CDLL(importlib.import_module("deflate._deflate").__file__)
        library.libdeflate_alloc_decompressor.restype = pointer
        library.libdeflate_free_decompressor.argtypes = [pointer]
        library.libdeflate_zlib_decompress.argtypes = [pointer, *(pointer, size) * 2, pointer]
    except (ImportError, OSError, AttributeError, TypeError):
        return None
    return library


# the decompressor of each thread: libdeflate decodes one stream at a time with it
_OWN = threading.local()


def _inflate(_: Options, data: Array, out: Array) -> int:
    """Decode deflate data outside the GIL."""
    library = _libdeflate()
    if library is None:
        binding = importlib.import_module("deflate")
        try:
            found = np.frombuffer(binding.zlib_decompress(data, len(out)), np.uint8)
        except binding.DeflateError as fault:
            raise DecodeError(f"deflate data are damaged ({fault})") from fault
        out[: len(found)] = found  # it is never longer
        return len(found)
    if not hasattr(_OWN, "held"):
        held = library.libdeflate_alloc_decompressor()
        if not held:
            raise MemoryError("libdeflate could not allocate a decompressor")
        free = library.libdeflate_free_decompressor
        weakref.finalize(threading.current_thread(), free, held).atexit = False
        _OWN.held = held
    given = address_of(data), len(data), address_of(out), len(out)
    if library.libdeflate_zlib_decompress(_OWN.held, *given, None):
        raise DecodeError(f"deflate data are damaged, or do not end after {len(out)} bytes")
    return len(out)


def _imagecodecs(name: str, **options: Any) -> Decode:
    """Return the decoder of imagecodecs of that name."""

    def decode(_: Options, data: Any, out: Any) -> int:
        function = getattr(importlib.import_module("imagecodecs"), f"{name}_decode")
        try:
            return len(function(data, out=out, **options))
        except (RuntimeError, ValueError) as fault:
            raise DecodeError(f"{name} data are damaged ({fault})") from fault

    return decode


def _blosc(options: Options, data: Array, out: Array) -> int:
    # The library believes the sizes in the header, so they are checked before it sees them.
    claimed, _, stored = struct.unpack("<III", data[4:16].tobytes().ljust(12, b"\0"))
    if len(data) < 16 or claimed != len(out) or stored != len(data):
        raise DecodeError(
            f"blosc data claim {claimed} bytes in {stored}, where {len(out)} in {len(data)} belong"
        )
    return _imagecodecs("blosc", numthreads=1)(options, data, out)


# what packs the blocks of bitshuffle, by number: as imagecodecs calls it
_PACKERS = {0: "", 2: "lz4", 3: "zstd"}


def _bits_of(options: Options) -> tuple[int, int, int]:
    """Return bytes of an element, elements of a block (0: the usual number), and the packer."""
    item, block, packer = (*options, 0, 0, 0, 0, 0)[2:5]
    return item, block, packer


def _bitshuffle(options: Options, data: Array, out: Array) -> int:
    """Undo bitshuffle: bit k of byte j of all elements of a block lies together.

    The elements behind the last multiple of 8 stay as they are. Where blocks are packed too, each
    has its packed size in front, and all of them their whole size and that of a block; these are
    big-endian.
    """
    item, block, packer = _bits_of(options)
    size = len(out)
    n = size // item // 8 * 8 * item
    if packer:
        claimed, block = struct.unpack(">QI", data[:12].tobytes().ljust(12, b"\0"))
        if claimed != size or block == 0 or block % (8 * item):
            raise DecodeError(
                f"bitshuffle data claim {claimed} bytes in blocks of {block}, where {size} bytes "
                f"in blocks of 8 elements of {item} bytes belong"
            )
        planes, at, unpack = scratch("planes", size), 12, _imagecodecs(_PACKERS[packer])
        for start in range(0, n, block):
            into = planes[start : min(start + block, n)]
            end = at + 4 + int.from_bytes(data[at : at + 4].tobytes(), "big")
            found = unpack((), data[at + 4 : end], into) if at + 4 < end <= len(data) else 0
            if found != len(into):
                raise DecodeError(f"a bitshuffle block of {found} bytes where {len(into)} belong")
            at = end
        if len(data) - at < size - n:
            raise DecodeError("bitshuffle data end early")
        planes[n:] = data[at : at + size - n]
        data, block = planes, block // item
    elif len(data) != size:
        return len(data)
    if n:
        mixed: Any = data[:n].data  # an array would set the item size
        _imagecodecs("bitshuffle", itemsize=item, blocksize=block)((), mixed, out[:n])
    out[n:] = data[n:]
    return size


@functools.cache
def _join() -> Callable[..., None]:
    """Return a compiled loop that joins bytes to words, and leaves the GIL.

    This imports numba, which takes half a second, so it is asked for only where that is loaded.
    """

    @loop
    def join(planes: Any, out: Any) -> None:
        for i in range(len(out)):
            word = out.dtype.type(0)
            for k in range(len(planes)):  # unrolled, for planes come as a tuple
                word |= out.dtype.type(planes[k][i]) << out.dtype.type(8 * k)
            out[i] = word

    return join


def _unshuffle(options: Options, data: Array, out: Array) -> int:
    """Bring the bytes of each element together again.

    Examples
    --------
    >>> out = np.empty(7, np.uint8)
    >>> _unshuffle((2,), np.frombuffer(b"abcABC?", np.uint8), out), out.tobytes()
    (7, b'aAbBcC?')
    """
    if len(data) != len(out):
        return len(data)
    item = options[0]
    n = len(data) // item
    planes, elements = data[: n * item].reshape(item, n), out[: n * item].reshape(n, item)
    if item in (2, 4, 8) and pays_off(len(data)):
        _join()(tuple(planes), elements.reshape(-1).view(f"<u{item}"))
    else:
        for byte, plane in enumerate(planes):
            elements[:, byte] = plane
    out[n * item :] = data[n * item :]
    return len(out)


class Codec(NamedTuple):
    """How the data of a filter are decoded, and rows written with it."""

    number: int
    library: str
    decode: Decode
    # a function of the library and its option; None where rows are not written with it
    encode: tuple[str, str] | None = None
    levels: tuple[int, int, int] = (0, 0, 0)  # lowest, highest and usual
    option: int | None = None  # the option of the filter, where that is not the level


_CODECS = {
    "gzip": Codec(DEFLATE, "deflate", _inflate, ("zlib_compress", "compresslevel"), (1, 9, 4)),
    "zstd": Codec(ZSTD, "imagecodecs", _imagecodecs("zstd"), ("zstd_encode", "level"), (1, 22, 3)),
    "lz4": Codec(
        LZ4, "imagecodecs", _imagecodecs("lz4h5"), ("lz4h5_encode", "blocksize"), option=1 << 30
    ),
    "lzf": Codec(LZF, "imagecodecs", _imagecodecs("lzf", header=False)),
    "blosc": Codec(BLOSC, "imagecodecs", _blosc),
    "bitshuffle": Codec(BITSHUFFLE, "imagecodecs", _bitshuffle),
    "shuffle": Codec(SHUFFLE, "numpy", _unshuffle),
}

_BY_NUMBER = {codec.number: codec for codec in _CODECS.values()}

# those that rows can be written with, by what users call them
CODECS = {name: codec for name, codec in _CODECS.items() if codec.encode is not None}

# what users call them, by the number of the filter
NAMES = {codec.number: name for name, codec in CODECS.items()}


# ---------------------------------------------------------------- undoing all filters of a chunk


def applied(filters: tuple[FilterInfo, ...], mask: int = 0) -> tuple[FilterInfo, ...]:
    """Return the filters that changed a chunk, in the order they were applied.

    Parameters
    ----------
    filters : tuple of FilterInfo
        :func:`why_not` returns None for them.
    mask : int
        Bit i set: filter i was not applied to the chunk.

    Examples
    --------
    >>> shuffle, gzip = FilterInfo(2, "shuffle", (4,)), FilterInfo(1, "deflate", (4,))
    >>> applied((shuffle, gzip), 0b10) == (shuffle,)
    True
    >>> applied((FilterInfo(2, "shuffle", (1,)), gzip)) == (gzip,)
    True
    """
    left = []
    for number, step in enumerate(filters):
        shuffles_nothing = step.id == SHUFFLE and step.options[0] < 2  # items of one byte
        if not (mask >> number & 1 or shuffles_nothing):
            left.append(step)
    return tuple(left)


def undo(steps: Sequence[FilterInfo], stored: Array, out: Array) -> None:
    """Decode a chunk.

    Parameters
    ----------
    steps : sequence of FilterInfo
        Those that changed it; see :func:`applied`.
    stored : uint8 array
    out : uint8 array, as many as the chunk has bytes
        Receives them.

    Raises
    ------
    DecodeError
        If the bytes are damaged; `out` may hold anything then.
    """
    left = list(steps)
    while left:
        step = left.pop()
        if step.id == FLETCHER32:
            stored = _checked(stored)
            continue
        size, target = len(out), out
        if left:
            size += CHECKSUM_BYTES * sum(one.id == FLETCHER32 for one in left)
            # Shuffled after it was packed, it is as long as what is packed.
            size = len(stored) if step.id == SHUFFLE else size
            target = scratch(f"decoded {len(left)}", size)
        found = _BY_NUMBER[step.id].decode(step.options, stored, target)
        if found != size:
            raise DecodeError(f"a chunk decodes to {found} bytes where {size} belong")
        stored = target
    if stored is not out:  # a checksum was the first filter, or there is none
        if len(stored) != len(out):
            raise DecodeError(f"a chunk of {len(stored)} bytes where {len(out)} belong")
        out[:] = stored


def why_not(filters: tuple[FilterInfo, ...]) -> str | None:
    """Return why a pipeline cannot be undone here; None if it can.

    Examples
    --------
    >>> why_not((FilterInfo(2, "shuffle", (4,)), FilterInfo(1, "deflate", (4,))))
    >>> why_not((FilterInfo(4, "szip"),))
    "filter 'szip' (4) is undone by HDF5 only"
    """
    n_packers = 0
    for step in filters:
        if step.id == FLETCHER32 or (step.id == SHUFFLE and step.options):
            continue
        n_packers += 1
        codec = _BY_NUMBER.get(step.id)
        if step.id == BITSHUFFLE:
            item, block, packer = _bits_of(step.options)
            codec = codec if item > 0 and block % 8 == 0 and packer in _PACKERS else None
        if codec is None or step.id == SHUFFLE:
            return f"filter {step.words!r} ({step.id}) is undone by HDF5 only"
        if import_optional(codec.library) is None:
            return (
                f"filter {step.words!r} ({step.id}) is undone by HDF5, because {codec.library} is "
                f"not installed; the extra 'codecs' has it"
            )
    if n_packers > 1:
        return "two compressing filters, one after the other: undone by HDF5 only"
    return None


def require_filters(source: SourceHeader) -> None:
    """Make sure that HDF5 can undo the filters of a source.

    Raises
    ------
    MissingExtraError
        If it cannot, and the library that could teach it is not installed.
    """
    why = why_not_by_hdf5(source.filters)
    if why is not None:
        raise MissingExtraError(f"{source.where}: {why}")


def describe_missing(sources: Iterable[SourceHeader]) -> Iterator[str]:
    """Yield what to say of sources whose filters nothing installed undoes."""
    found: dict[tuple[FilterInfo, ...], list[str]] = {}
    for source in sources:
        found.setdefault(source.filters, []).append(source.name)
    for filters, names in found.items():
        why = why_not(filters) and why_not_by_hdf5(filters)
        if why is not None:
            yield f"no row of {listed(names, 4)} can be read: {why}"


def why_not_by_hdf5(filters: tuple[FilterInfo, ...]) -> str | None:
    """Return which filters HDF5 has not, and what to install; None if it has all of them."""
    for last in (False, True):
        missing = [step for step in filters if not h5py.h5z.filter_avail(step.id)]
        if not missing:
            return None
        if not last:
            import_optional("hdf5plugin")  # registers its filters with HDF5
    names = ", ".join(f"{step.words} ({step.id})" for step in missing)
    how = how_to_install("imagecodecs hdf5plugin", "codecs")
    return f"nothing installed undoes its {names}: {how}"


# ---------------------------------------------------------------- shuffle, checksum


def _checked(data: Array) -> Array:
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
    first = second = 0
    for start in range(0, len(words), len(_WEIGHTS)):
        block = words[start : start + len(_WEIGHTS)].astype(float)  # exact: sums stay below 2**53
        second += first * len(block) + int(block @ _WEIGHTS[-len(block) :])
        first += int(block.sum())
    if len(data) % 2:
        first += int(data[-1])
        second += first
    if not data.any():  # sums that fold to 65535 are not those of zeros
        return 0
    return (second * 256 % 65535 or 65535) << 16 | (first * 256 % 65535 or 65535)


_WEIGHTS = np.arange(4096, 0, -1.0)


# ---------------------------------------------------------------- making chunks


@dataclass(frozen=True, slots=True)
class Layout:
    """How a source is stored: contiguous without `chunks`, else in chunks with filters.

    `fill` is what rows read as that are never written.
    """

    chunks: tuple[int, ...] | None = None
    filters: tuple[FilterInfo, ...] = ()
    fill: Any = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk as it goes into the file: where it begins, filters left out, bytes."""

    offset: tuple[int, ...]
    mask: int
    data: Any


def filters_for(codec: str | None, level: int | None, itemsize: int) -> tuple[FilterInfo, ...]:
    """Return the filter pipeline of a codec; bytes are shuffled where elements have several.

    Raises
    ------
    MissingExtraError
        If no library for the codec is installed.

    Examples
    --------
    >>> [(f.name, f.options) for f in filters_for("gzip", None, 4)]
    [('shuffle', (4,)), ('deflate', (4,))]
    >>> filters_for(None, None, 4)
    ()
    """
    if codec is None:
        return ()
    chosen = CODECS[codec]
    if import_optional(chosen.library) is None:
        raise MissingExtraError(
            f"writing {codec} needs {chosen.library}; use compression='gzip', or "
            + how_to_install(chosen.library, "codecs")
        )
    level = chosen.levels[2] if level is None else level
    name = "deflate" if codec == "gzip" else codec
    option = level if chosen.option is None else chosen.option
    packed = FilterInfo(chosen.number, name, (option,))
    return (packed,) if itemsize == 1 else (FilterInfo(SHUFFLE, "shuffle", (itemsize,)), packed)


def can_encode(filters: tuple[FilterInfo, ...]) -> bool:
    """Whether chunks for a pipeline can be made here: shuffle, then one known codec, or less.

    Examples
    --------
    >>> can_encode((FilterInfo(2, "shuffle", (4,)), FilterInfo(1, "deflate", (4,))))
    True
    >>> can_encode((FilterInfo(3, "fletcher32"),))
    False
    """
    kinds = [step.id for step in filters]
    packers = kinds[1:] if kinds[:1] == [SHUFFLE] else kinds
    known = len(packers) == 0 or (len(packers) == 1 and packers[0] in NAMES)
    return known and all(step.options for step in filters)


def chunks_of(rows: Array, start: int, layout: Layout) -> Iterator[Chunk]:
    """Yield the encoded chunks of some rows of a source.

    Parameters
    ----------
    rows : array (k, *row_shape)
        In the dtype of the file.
    start : int
        Row number of the first; a multiple of the rows of a chunk.
    layout : Layout
        With chunks. Where `rows` end within a chunk it is filled up with `fill`.
    """
    assert layout.chunks is not None
    assert start % layout.chunks[0] == 0
    steps = [range(0, n, c) for n, c in zip(rows.shape, layout.chunks, strict=True)]
    for corner in itertools.product(*steps):
        tile = rows[tuple(slice(a, a + c) for a, c in zip(corner, layout.chunks, strict=True))]
        if tile.shape != layout.chunks:
            whole = np.zeros(layout.chunks, tile.dtype)
            if layout.fill:
                whole[...] = layout.fill
            whole[tuple(map(slice, tile.shape))] = tile
            tile = whole
        raw = np.ascontiguousarray(tile).reshape(-1).view(np.uint8)
        data, mask = _encoded(raw, layout.filters)
        yield Chunk((start + corner[0], *corner[1:]), mask, data)


def _encoded(raw: Array, filters: tuple[FilterInfo, ...]) -> tuple[Any, int]:
    """Return the bytes of a chunk after its filters, and the mask of filters left out."""
    data = raw
    for step in filters:
        if step.id == SHUFFLE:
            data = scratch("shuffled", len(raw))
            elements = raw.reshape(-1, step.options[0])
            for byte, plane in enumerate(data.reshape(step.options[0], -1)):
                plane[:] = elements[:, byte]
            continue
        codec = _BY_NUMBER[step.id]
        assert codec.encode is not None
        name, option = codec.encode
        encode = getattr(importlib.import_module(codec.library), name)
        how = step.options[0] or codec.option or 0  # blocks of 0 bytes are those of the usual size
        packed = bytes(encode(data, **{option: how}))
        return (packed, 0) if len(packed) < len(raw) else (raw, (1 << len(filters)) - 1)
    return (raw if data is raw else np.array(data)), 0


def rows_a_unit(row_bytes: int, layout: Layout, unit_bytes: int) -> int:
    """Return how many rows are encoded and checked together: about `unit_bytes`, whole chunks.

    Examples
    --------
    >>> rows_a_unit(3072, Layout(), 1 << 20), rows_a_unit(3072, Layout((64, 3072)), 1 << 18)
    (341, 64)
    """
    step = 1 if layout.chunks is None else layout.chunks[0]
    return max(unit_bytes // max(row_bytes * step, 1), 1) * step
