"""Undoing the filters of a chunk, outside HDF5's lock and outside the GIL.

A :class:`Pipeline` takes the stored bytes of one chunk back through its filters. It knows
bytes and sizes only; where chunks lie and what their numbers mean is known elsewhere.
One table (:data:`_CODECS`) maps the number of a compressing filter to its decoder: deflate is
decoded by libdeflate (a core dependency), the others by imagecodecs (extra ``codecs``). Byte
shuffle and fletcher32 are undone by NumPy, or by numba's loops where these are loaded.

Nothing is trusted: the decoded size of a chunk is known before decoding, no other size is ever
allocated, and a decoder that does not fill it exactly is an error. Sizes that a stream claims
are compared with it first where the library would believe them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled._optional import import_optional
from labeled.errors import MissingExtraError, ReadError, how_to_install, listed
from labeled.formats.header import (
    BITSHUFFLE,
    BLOSC,
    DEFLATE,
    FLETCHER32,
    LZ4,
    LZF,
    SHUFFLE,
    ZSTD,
    Filter,
    SourceHeader,
)
from labeled.formats.memory import scratch
from labeled.formats.reader import describe
from labeled.formats.region import Array
from labeled.permute import compiler
from labeled.permute.arguments import address_of

CHECKSUM_BYTES = 4

Decode = Callable[[Array, Array], int]
"""Decodes stored bytes into given memory, and returns how many bytes it stored there."""


class DecodeError(ValueError):
    """Stored bytes are not what their filter would have written."""


class _Step(NamedTuple):
    """One filter to undo."""

    decode: Decode | None
    """None for fletcher32, whose bytes are checked where they are."""
    size: int
    """Bytes that it decodes to."""


class Pipeline:
    """The filters of one dataset, ready to be undone.

    Parameters
    ----------
    filters : sequence of Filter
        In the order they were applied; :func:`why_not` returns None for them.
    chunk_bytes : int
        Decoded size of a chunk.
    itemsize : int
        Bytes of an element, for a shuffle filter without options.
    """

    def __init__(self, filters: tuple[Filter, ...], chunk_bytes: int, itemsize: int) -> None:
        self._decoders: list[tuple[Filter, Decode | None]] = []
        self._idle = 0
        for i, step in enumerate(filters):
            self._decoders.append((step, _decoder(step, itemsize)))
            if step.id == SHUFFLE and _item_of(step, itemsize) < 2:
                self._idle |= 1 << i
        self._chunk_bytes = chunk_bytes
        self._usual = self._steps(0)

    def _steps(self, mask: int) -> list[_Step]:
        """Return the steps back, last filter first."""
        steps: list[_Step] = []
        size = self._chunk_bytes
        for i, (step, decode) in enumerate(self._decoders):
            if not (mask | self._idle) >> i & 1:
                steps.append(_Step(decode, size))
                size += CHECKSUM_BYTES if step.id == FLETCHER32 else 0
        return steps[::-1]

    def undo(self, stored: Array, mask: int, out: Array | None = None) -> Array:
        """Return the decoded bytes of a chunk.

        Parameters
        ----------
        stored : uint8 array
        mask : int
            Bit i set: filter i was not applied to this chunk.
        out : uint8 array, as many as the chunk has bytes, optional
            Receives them; by default memory that the next call may reuse.

        Raises
        ------
        DecodeError
            If the bytes are damaged; `out` may hold anything then.
        """
        data = stored
        steps = self._usual if mask == 0 else self._steps(mask)
        if not steps or steps[-1].decode is None:  # nothing would bring the bytes to their place
            steps = [*steps, _Step(_copied, self._chunk_bytes)]
        for n_left, (decode, size) in zip(reversed(range(len(steps))), steps, strict=True):
            if decode is None:
                data = _checked(data)
                continue
            target = scratch(f"decoded {n_left}", size) if n_left or out is None else out
            found = decode(data, target)
            if found != size:
                raise DecodeError(f"a chunk decodes to {found} bytes where {size} belong")
            data = target
        return data


def why_not(filters: tuple[Filter, ...]) -> str | None:
    """Return why a pipeline cannot be undone here; None if it can.

    Examples
    --------
    >>> why_not((Filter(2, "shuffle", (4,)), Filter(1, "deflate", (4,))))
    >>> why_not((Filter(4, "szip"),))
    "filter 'szip' (4) is undone by HDF5 only"
    """
    n_packers = 0
    for step in filters:
        if step.id in (SHUFFLE, FLETCHER32):
            continue
        n_packers += 1
        known = _CODECS.get(step.id)
        if known is None or (step.id == BITSHUFFLE and not _is_known(step.options)):
            return f"filter {step.words!r} ({step.id}) is undone by HDF5 only"
        if known.library() is None:
            return (
                f"filter {step.words!r} ({step.id}) is undone by HDF5, because {known.name} is not "
                f"installed; the extra 'codecs' has it"
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
    why = _why_not_by_hdf5(source.filters)
    if why is not None:
        raise MissingExtraError(f"{describe(source)}: {why}")


def describe_missing(sources: Iterable[SourceHeader]) -> Iterator[str]:
    """Yield what to say of sources whose filters nothing installed undoes."""
    found: dict[tuple[Filter, ...], list[str]] = {}
    for source in sources:
        if source.filters:
            found.setdefault(source.filters, []).append(source.name)
    for filters, names in found.items():
        why = why_not_undone(filters)
        if why is not None:
            yield f"no row of {listed(names, 4)} can be read: {why}"


def why_not_undone(filters: tuple[Filter, ...]) -> str | None:
    """Return what is missing to undo filters; None if nothing is."""
    if why_not(filters) is None:
        return None
    return _why_not_by_hdf5(filters)


def _why_not_by_hdf5(filters: tuple[Filter, ...]) -> str | None:
    """Return what HDF5 lacks to undo filters, whatever is installed; None if nothing."""
    missing = [step for step in filters if not h5py.h5z.filter_avail(step.id)]
    if missing:
        with contextlib.suppress(ImportError):
            importlib.import_module("hdf5plugin")  # registers its filters with HDF5
    missing = [step for step in missing if not h5py.h5z.filter_avail(step.id)]
    if not missing:
        return None
    names = ", ".join(f"{step.words} ({step.id})" for step in missing)
    how = how_to_install("imagecodecs hdf5plugin", "codecs")
    return f"nothing installed undoes its {names}: {how}"


def damage(source: SourceHeader, start: int, stop: int, offset: int, what: str) -> ReadError:
    """Return the error of the chunk at byte `offset`, which holds rows from `start` to `stop`."""
    return ReadError(
        f"{describe(source)}, rows {start} to {stop - 1}: the chunk at byte {offset} is damaged: "
        f"{what}. Copy or download the file again."
    )


def _decoder(step: Filter, itemsize: int) -> Decode | None:
    if step.id == FLETCHER32:
        return None
    if step.id == SHUFFLE:
        return functools.partial(_unshuffle, _item_of(step, itemsize))
    codec = _CODECS[step.id]
    if codec.decode is None:
        return codec.library()
    options = (step.options,) if step.id == BITSHUFFLE else ()
    return functools.partial(codec.decode, codec.library(), *options)


def _copied(data: Array, out: Array) -> int:
    if len(data) == len(out):
        out[:] = data
    return len(data)


# ---------------------------------------------------------------- compression


class _Decompressor:
    """What libdeflate decodes one stream at a time with; freed with the thread it belongs to."""

    def __init__(self, make: Any, free: Any) -> None:
        self._free = free
        self.address = make()
        if not self.address:
            raise MemoryError("libdeflate could not allocate a decompressor")

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self._free(self.address)


@functools.cache
def _libdeflate() -> Decode | None:
    """Return libdeflate's decoder, called outside the GIL; None where it is not installed.

    The binding that this library depends on (``deflate``) returns new bytes for every chunk,
    which then have to be copied to their place. Its extension module holds libdeflate itself,
    whose functions are found by name, unless a build hides them.
    """
    library = import_optional("deflate")
    if library is None:
        return None
    try:
        functions = ctypes.CDLL(importlib.import_module("deflate._deflate").__file__)
        found = functions.libdeflate_zlib_decompress
        make, free = functions.libdeflate_alloc_decompressor, functions.libdeflate_free_decompressor
    except (ImportError, OSError, AttributeError, TypeError):

        def inflated(data: Array, out: Array) -> int:
            try:
                found = library.zlib_decompress(data, len(out))
                return _copied(np.frombuffer(found, np.uint8), out)
            except library.DeflateError as fault:
                raise DecodeError(f"deflate data are damaged ({fault})") from fault

        return inflated
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    make.restype, make.argtypes = pointer, []
    free.restype, free.argtypes = None, [pointer]
    found.restype, found.argtypes = ctypes.c_int, [pointer, pointer, size, pointer, size, pointer]
    own = threading.local()

    def inflate(data: Array, out: Array) -> int:
        if not hasattr(own, "held"):
            own.held = _Decompressor(make, free)
        source, target = address_of(data), address_of(out)
        if found(own.held.address, source, len(data), target, len(out), None):
            raise DecodeError(f"deflate data are damaged, or do not end after {len(out)} bytes")
        return len(out)

    return inflate


@functools.cache
def _imagecodecs() -> Any | None:
    return import_optional("imagecodecs")


def _by_imagecodecs(name: str, call: Callable[[], Any]) -> int:
    """Run a decoder of imagecodecs; return how many bytes it stored."""
    try:
        return len(call())
    except (RuntimeError, ValueError) as fault:
        raise DecodeError(f"{name} data are damaged ({fault})") from fault


def _lzf(codecs: Any, data: Array, out: Array) -> int:
    return _by_imagecodecs("LZF", lambda: codecs.lzf_decode(data, header=False, out=out))


def _zstd(codecs: Any, data: Array, out: Array) -> int:
    return _by_imagecodecs("zstd", lambda: codecs.zstd_decode(data, out=out))


def _lz4(codecs: Any, data: Array, out: Array) -> int:
    return _by_imagecodecs("lz4", lambda: codecs.lz4h5_decode(data, out=out))


def _blosc(codecs: Any, data: Array, out: Array) -> int:
    # The library believes the sizes in the header, so they are checked before it sees them.
    claimed, _, stored = struct.unpack("<III", data[4:16].tobytes().ljust(12, b"\0"))
    if len(data) < 16 or claimed != len(out) or stored != len(data):
        raise DecodeError(
            f"blosc data claim {claimed} bytes in {stored}, where {len(out)} in {len(data)} belong"
        )
    return _by_imagecodecs("blosc", lambda: codecs.blosc_decode(data, numthreads=1, out=out))


_PACKERS = {0: "", 2: "lz4_decode", 3: "zstd_decode"}
"""What packs the blocks of bitshuffle, by number: the functions of imagecodecs."""


def _is_known(options: tuple[int, ...]) -> bool:
    """Whether bitshuffle's options are of a kind that is undone here.

    Examples
    --------
    >>> _is_known((0, 4, 4, 0, 2)), _is_known((0, 4, 4, 0, 1)), _is_known((0, 4, 4, 100, 0))
    (True, False, False)
    """
    item, block, packer = _bits_of(options)
    return item > 0 and block % 8 == 0 and packer in _PACKERS


def _bits_of(options: tuple[int, ...]) -> tuple[int, int, int]:
    """Return bytes of an element, elements of a block (0: the usual number), and the packer."""
    item, block, packer = (*options, 0, 0, 0, 0, 0)[2:5]
    return item, block, packer


def _bitshuffle(codecs: Any, options: tuple[int, ...], data: Array, out: Array) -> int:
    """Undo bitshuffle: bit k of byte j of all elements of a block lies together.

    The elements behind the last multiple of 8 stay as they are.
    """
    item, block, packer = _bits_of(options)
    if packer:
        data, block = _unpacked_blocks(getattr(codecs, _PACKERS[packer]), data, len(out), item)
    elif len(data) != len(out):
        return len(data)
    n = len(out) // item // 8 * 8 * item
    if n:
        planes, elements = data[:n].data, out[:n]  # an array would set the item size
        _by_imagecodecs(
            "bitshuffle",
            lambda: codecs.bitshuffle_decode(planes, itemsize=item, blocksize=block, out=elements),
        )
    out[n:] = data[n:]
    return len(out)


def _unpacked_blocks(unpack: Any, data: Array, size: int, item: int) -> tuple[Array, int]:
    """Unpack the blocks of bitshuffle, each with its packed size in front.

    All sizes are big-endian; the rest after the last block is not packed.

    Returns
    -------
    planes : array
    block : int
        Elements of a block.
    """
    claimed, block = struct.unpack(">QI", data[:12].tobytes().ljust(12, b"\0"))
    if claimed != size or block == 0 or block % (8 * item):
        raise DecodeError(
            f"bitshuffle data claim {claimed} bytes in blocks of {block}, where {size} bytes in "
            f"blocks of 8 elements of {item} bytes belong"
        )
    planes, packed, at = scratch("planes", size), data.data, 12
    n = size // item // 8 * 8 * item
    for start in range(0, n, block):
        into = planes[start : min(start + block, n)]
        n_packed = int.from_bytes(packed[at : at + 4], "big")
        piece = packed[at + 4 : at + 4 + n_packed]
        if not 0 < len(piece) == n_packed:
            raise DecodeError("bitshuffle data end early")
        found = _by_imagecodecs("bitshuffle", functools.partial(unpack, piece, out=into))
        if found != len(into):
            raise DecodeError(f"a bitshuffle block of {found} bytes where {len(into)} belong")
        at += 4 + n_packed
    if len(data) - at < size - n:
        raise DecodeError("bitshuffle data end early")
    planes[n:] = data[at : at + size - n]
    return planes, block // item


class _Codec(NamedTuple):
    """How the data of a compressing filter are decoded."""

    name: str
    """The library's name."""
    library: Callable[[], Any | None]
    decode: Callable[..., int] | None
    """``decode(library, stored, out)``; bitshuffle takes its options after the library. None
    where the library is the decoder."""


_CODECS: dict[int, _Codec] = {
    DEFLATE: _Codec("deflate", _libdeflate, None),
    LZF: _Codec("imagecodecs", _imagecodecs, _lzf),
    BLOSC: _Codec("imagecodecs", _imagecodecs, _blosc),
    LZ4: _Codec("imagecodecs", _imagecodecs, _lz4),
    BITSHUFFLE: _Codec("imagecodecs", _imagecodecs, _bitshuffle),
    ZSTD: _Codec("imagecodecs", _imagecodecs, _zstd),
}


# ---------------------------------------------------------------- shuffle, checksum


def _loops() -> Any:
    """Return the module of compiled loops, which imports numba."""
    return importlib.import_module("labeled.formats.hdf5.compiled")


def _item_of(step: Filter, itemsize: int) -> int:
    """Return the bytes of an element to which a shuffle filter was applied."""
    return step.options[0] if step.options else itemsize


def _unshuffle(item: int, data: Array, out: Array) -> int:
    """Bring the bytes of each element together again.

    Examples
    --------
    >>> out = np.empty(7, np.uint8)
    >>> _unshuffle(2, np.frombuffer(b"abcABC?", np.uint8), out), out.tobytes()
    (7, b'aAbBcC?')
    """
    if len(data) != len(out):
        return len(data)
    n = len(data) // item
    planes, elements = data[: n * item].reshape(item, n), out[: n * item].reshape(n, item)
    if item in (2, 4, 8) and compiler.pays_off(len(data)):
        _loops().unshuffle(planes, elements)
    else:
        for byte, plane in enumerate(planes):
            elements[:, byte] = plane
    out[n * item :] = data[n * item :]
    return len(out)


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
    if compiler.pays_off(len(data)):
        first, second = (int(total) for total in _loops().sums(words))
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
