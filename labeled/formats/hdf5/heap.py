"""Rows of variable length, read out of HDF5's global heaps without HDF5.

HDF5 keeps such rows in *collections*: stretches of the file that begin with ``GCOL`` and
hold objects one after another, each under a header with its number and size. A dataset
of variable length holds, for every row, its length, the address of a collection and the
number of an object in it. All is read outside HDF5's lock: collections that follow one another
together, where they are wanted from their beginning on (:mod:`.heapspans`), others whole and
once for all rows of them; an object that fills one is read straight to its place.

The headers of some objects of a collection are searched for at once; where values look like
headers too, the headers are walked. Nothing is trusted: whatever does not agree with the row's
length raises.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.bytesource import OpenFile, open_bytes
from labeled.formats.hdf5.handles import h5_of
from labeled.formats.hdf5.heapspans import Wanted, copy_objects, read_together
from labeled.formats.header import FileStamp
from labeled.formats.region import Array, Ints

REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
"""How a row of variable length is stored, in a file with addresses of eight bytes."""

GUESS_BYTES = 64 << 10
"""What is read of a collection before its size is known: as large as most grow."""

LARGE_BYTES = 4 << 10
"""An object of so many bytes, alone in being wanted, is read straight to its place."""

_HEAD, _OBJECT = struct.Struct("<4sB3xQ"), struct.Struct("<HH4xQ")


class HeapError(ValueError):
    """A heap is not what a row says; the caller knows which source and rows it read."""


def plain_heap(stamp: FileStamp, key: str) -> bool:
    """Whether rows of a dataset are stored as this module expects: opens the file once.

    Addresses must take eight bytes and count from the first byte of the file, and values
    must lie in the file as NumPy has them in memory.
    """
    with h5_of(stamp) as file:
        properties = file.id.get_create_plist()
        dataset = file[key]
        base = h5py.check_vlen_dtype(dataset.dtype)
        stored = dataset.id.get_type().get_super()
        plain = stored.equal(h5py.h5t.py_create(np.dtype(base), logical=True))
        return bool(properties.get_sizes() == (8, 8) and not properties.get_userblock() and plain)


def read_heap(stamp: FileStamp, references: Array, out: Array, places: Ints) -> None:
    """Read rows of variable length to their places.

    Parameters
    ----------
    stamp : FileStamp
    references : array of REFERENCE (n,)
        Rows wanted, in any order.
    out : array
        Flat values in the dtype of the file.
    places : int64 (n,)
        Where in `out` each row begins; it takes as many elements as its length.

    Raises
    ------
    HeapError
        If a collection is not there, or has no object of that number and size.
    """
    file = open_bytes(stamp)
    file.check()
    held = references["length"] > 0
    references, places = references[held], places[held]
    order = np.lexsort((references["index"], references["address"]))
    references, places = references[order], places[order]
    if not len(references):
        return
    wanted = Wanted(references, out.itemsize)
    for k in read_together(file, wanted, out, places).tolist():
        a, b = wanted.cuts[k : k + 2].tolist()
        _read_collection(file, int(references["address"][a]), references[a:b], out, places[a:b])


def _read_collection(
    file: OpenFile, address: int, references: Array, out: Array, places: Ints
) -> None:
    lengths = references["length"].astype(np.int64)
    if not 0 < address <= file.size - _HEAD.size:
        raise HeapError(f"its heap is said to lie at byte {address} of {file.size}")
    if len(references) == 1 and int(lengths[0]) * out.itemsize >= LARGE_BYTES:
        place = int(places[0])
        target = out[place : place + int(lengths[0])]
        if _read_alone(file, address, int(references["index"][0]), target):
            return
    sizes = lengths * out.itemsize
    memory = _collection(file, address, int(sizes.sum()))
    starts = _positions(memory, references["index"].astype(np.int64), sizes)
    copy_objects(out, places, memory, starts, lengths)


def _read_alone(file: OpenFile, address: int, index: int, target: Array) -> bool:
    """Read an object that is the first of its collection; False if another one is."""
    head = np.empty(_HEAD.size + _OBJECT.size, np.uint8)
    end = address + len(head) + target.nbytes
    if end > file.size:
        return False
    file.read_into(head, address)
    _check_head(head, address, file.size)
    found, _, size = _OBJECT.unpack_from(head.data, _HEAD.size)
    if (found, size) != (index, target.nbytes):
        return False
    file.read_into(target, address + len(head))
    return True


def _collection(file: OpenFile, address: int, wanted: int) -> Array:
    """Read a collection whole, to whole words of eight bytes."""
    n = min(max(GUESS_BYTES, wanted), file.size - address) // 8 * 8
    memory = np.empty(n, np.uint8)
    file.read_into(memory, address)
    size = _check_head(memory, address, file.size) // 8 * 8
    if size <= n:
        return memory[:size]
    whole = np.empty(size, np.uint8)
    whole[:n] = memory
    file.read_into(whole[n:], address + n)
    return whole


def _check_head(memory: Array, address: int, file_bytes: int) -> int:
    """Return the size of the collection that begins with these bytes."""
    signature, version, size = _HEAD.unpack_from(memory.data)
    if signature != b"GCOL" or version != 1 or not _HEAD.size <= size <= file_bytes - address:
        raise HeapError(f"there is no heap at byte {address}")
    return int(size)


def _positions(memory: Array, indices: Ints, sizes: Ints) -> Ints:
    """Return where the wanted objects (ascending by number) begin in a collection."""
    searched = _searched(memory, indices, sizes)
    return _walked(memory, indices, sizes) if searched is None else searched


def _searched(memory: Array, indices: Ints, sizes: Ints) -> Ints | None:
    """Look for words that say what the headers of the wanted objects must.

    The header of an object that is there says so, and values may by chance; where every number
    is found once, it is found rightly. None where it is not.
    """
    words, last = memory.view("<i8"), int(indices[-1])
    if not 0 < int(indices[0]) <= last <= 0xFFFF:
        return None
    expected = np.full(last + 2, -1)
    expected[indices] = sizes
    numbers = np.minimum(words[_HEAD.size // 8 : -1] & 0xFFFF, last + 1)
    heads = np.flatnonzero(expected[numbers] == words[_HEAD.size // 8 + 1 :])
    places = np.full(last + 2, -1)
    places[numbers[heads]] = _HEAD.size + 8 * heads + _OBJECT.size
    starts = places[indices]
    once = len(heads) == np.count_nonzero(places >= 0) and bool((starts >= 0).all())
    if not once or (expected[indices] != sizes).any() or (starts + sizes > len(memory)).any():
        return None
    return starts


def _walked(memory: Array, indices: Ints, sizes: Ints) -> Ints:
    """Look every wanted object up by walking through the headers, no further than needed."""
    distinct, which = np.unique(indices, return_inverse=True)
    wanted = dict(zip(distinct.tolist(), range(len(distinct)), strict=True))
    out, found = np.zeros(len(distinct), np.int64), np.full(len(distinct), -1)
    for number, start, size in _objects(memory):
        place = wanted.pop(number, None)
        if place is not None:
            out[place], found[place] = start, size
            if not wanted:
                break
    out, found = out[which], found[which]
    wrong = np.flatnonzero(found != sizes)
    if len(wrong):
        at = int(wrong[0])
        what = "no object" if found[at] < 0 else f"{found[at]} bytes"
        raise HeapError(
            f"its heap has {what} under number {indices[at]}, where {sizes[at]} bytes were expected"
        )
    return out


def _objects(memory: Array) -> Iterator[tuple[int, int, int]]:
    """Yield (number, where its bytes begin, how many) for the objects of a collection."""
    raw, at = memory.data, _HEAD.size
    while at + _OBJECT.size <= len(raw):
        number, _, size = _OBJECT.unpack_from(raw, at)
        at += _OBJECT.size
        if number == 0 or size > len(raw) - at:  # what is left is free
            return
        yield number, at, size
        at += size + -size % 8


def heap_fault(where: str, first: int, last: int, fault: Any) -> FileFormatError:
    """Return the error that names the rows."""
    return FileFormatError(
        f"{where}, rows {first} to {last}: {fault}; the file is damaged, or being written"
    )
