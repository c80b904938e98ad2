"""Collections of HDF5's global heaps that follow one another: read together, checked in one pass.

A collection is 16 bytes of header and objects one after another, each behind 16 bytes of its
own. Where the first few objects of it are wanted, or all, and are numbered as they lie, their
places follow from their sizes: nothing of the collection need be known before it is read. That
is nearly always so where rows are wanted in file order, and then a mebibyte of neighbours costs
one read and a few operations on arrays, where a collection by itself costs about 60 microseconds.

Rows that are wanted here and there, again and again, are looked for where they should lie by the
sizes of all rows, and copied from there once their headers say so.

What does not look as expected is left to :mod:`.heap`, which searches, or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labeled.formats.bytesource import OpenFile
from labeled.formats.reading import scratch
from labeled.formats.region import Array, Ints
from labeled.ragged.flat import copy_segments, offsets_of

HEAD_BYTES = OBJECT_HEAD_BYTES = 16

SPAN_BYTES, GAP_BYTES = 1 << 20, 16 << 10
"""What is read together at most, and what may lie between two collections."""

MOST_BYTES = 1 << 18
"""Collections of which more is wanted are read by themselves, their objects straight to their
places where that can be."""

_SIGNATURE, _SIGNATURE_MASK = int.from_bytes(b"GCOL\1", "little"), (1 << 40) - 1


@dataclass(frozen=True, eq=False)
class Wanted:
    """The objects that are wanted, ascending by collection and number.

    Parameters
    ----------
    references : array (n,)
        With fields `length`, `address` and `index`; no length is 0.
    itemsize : int
    """

    references: Array
    itemsize: int

    @cached_property
    def cuts(self) -> Ints:
        """Where the objects of each collection begin, and the end of the last."""
        addresses = self.references["address"]
        fresh = np.concatenate(([True], addresses[1:] != addresses[:-1], [True]))
        return np.flatnonzero(fresh)

    @cached_property
    def lengths(self) -> Ints:
        return self.references["length"].astype(np.int64)

    @cached_property
    def numbers(self) -> Ints:
        """The number of each object, if those of its collection are the first ones."""
        counts = np.diff(self.cuts)
        return np.arange(1, len(self.references) + 1) - np.repeat(self.cuts[:-1], counts)

    @cached_property
    def ends(self) -> Ints:
        """Bytes of all objects before each one, with their headers and what fills them up."""
        sizes = self.lengths * self.itemsize
        return offsets_of(OBJECT_HEAD_BYTES + sizes + -sizes % 8)

    @cached_property
    def needed(self) -> Ints:
        """Bytes of each collection up to the end of what is wanted."""
        return HEAD_BYTES + self.ends[self.cuts[1:]] - self.ends[self.cuts[:-1]]


def read_together(file: OpenFile, wanted: Wanted, out: Array, places: Ints) -> Ints:
    """Read what can be read with its neighbours; return the numbers of collections that are left.

    Parameters
    ----------
    file : OpenFile
    wanted : Wanted
    out : array
        Flat values in the dtype of the file.
    places : int64 (n,)
        Where in `out` each object goes.
    """
    firsts = wanted.cuts[:-1]
    addresses = wanted.references["address"][firsts]
    there = (addresses > 0) & (addresses < file.size)
    starts = np.where(there, addresses, 0).astype(np.int64)
    numbered = np.logical_and.reduceat(wanted.references["index"] == wanted.numbers, firsts)
    left = ~(numbered & there & (wanted.needed <= MOST_BYTES))
    left |= starts + wanted.needed > file.size
    for a, b in _spans(starts, starts + wanted.needed, left):
        if not _read_span(file, wanted, (a, b), starts[a:b], out, places):
            left[a:b] = True
    return np.flatnonzero(left)


def _spans(starts: Ints, stops: Ints, left: Array) -> Iterator[tuple[int, int]]:
    """Yield collections, ``[a, b)``, that one read brings, and no others."""
    gaps = starts[1:] - stops[:-1]
    apart = (gaps < 0) | (gaps > GAP_BYTES) | ((starts[1:] - starts[:-1]) % 8 != 0)
    apart |= left[1:] | left[:-1]
    a, n = 0, len(starts)
    edges = [*(np.flatnonzero(apart) + 1).tolist(), n]
    for edge in edges:
        while a < edge:
            b = int(np.searchsorted(stops[a:edge], starts[a] + SPAN_BYTES, side="right")) + a
            if not left[a]:
                yield a, max(b, a + 1)
            a = max(b, a + 1)


def _read_span(
    file: OpenFile,
    wanted: Wanted,
    span: tuple[int, int],
    starts: Ints,
    out: Array,
    places: Ints,
) -> bool:
    """Read some collections that follow one another; False if they are not as expected."""
    a, b = span
    cuts, needed, begin = wanted.cuts[a : b + 1], wanted.needed[a:b], int(starts[0])
    nbytes = int(starts[-1] + needed[-1]) - begin
    memory = scratch("heap", nbytes, begin)
    file.read_into(memory, begin)
    words, heads = memory.view("<u8"), (starts - begin) // 8
    sizes = words[heads + 1]
    fits = (sizes >= needed.astype(np.uint64)) & (sizes <= (file.size - starts).astype(np.uint64))
    if not (fits & ((words[heads] & _SIGNATURE_MASK) == _SIGNATURE)).all():
        return False
    rows = slice(int(cuts[0]), int(cuts[-1]))
    shifts = starts - begin + HEAD_BYTES - wanted.ends[cuts[:-1]]
    at = wanted.ends[rows] + np.repeat(shifts, np.diff(cuts))
    lengths = wanted.lengths[rows]
    same = (words[at // 8] & 0xFFFF) == wanted.numbers[rows].astype(np.uint64)
    if not (same & (words[at // 8 + 1] == (lengths * wanted.itemsize).astype(np.uint64))).all():
        return False
    copy_objects(out, places[rows], memory, at + OBJECT_HEAD_BYTES, lengths)
    return True


def places_of(references: Array, itemsize: int) -> Ints:
    """Work out where in the file objects should lie, from the sizes of all that a dataset has.

    It is the first byte of their values, or 0 of rows without any. They do not lie there where
    objects of other datasets lie between them.
    """
    out = np.zeros(len(references), np.int64)
    held = np.flatnonzero(references["length"])
    order = held[np.lexsort((references["index"][held], references["address"][held]))]
    if len(order):
        wanted = Wanted(references[order], itemsize)
        firsts = np.repeat(wanted.cuts[:-1], np.diff(wanted.cuts))
        within = wanted.ends[:-1] - wanted.ends[firsts] + HEAD_BYTES + OBJECT_HEAD_BYTES
        out[order] = wanted.references["address"].astype(np.int64) + within
    return out


def read_placed(file: OpenFile, references: Array, at: Ints, out: Array, places: Ints) -> Array:
    """Copy objects out of a memory map from where they should lie, after a look at their headers.

    Returns
    -------
    bool array (n,)
        Which were there. None is looked for where there is no map, or the system would have to
        fetch it.
    """
    mapped = file.mapped(scattered=True)
    n, sizes = len(at), references["length"].astype(np.int64) * out.itemsize
    addresses = references["address"].astype(np.int64)
    if mapped is None or not n or not all(file.holds(int(at[k])) for k in {0, n // 2}):
        return np.zeros(n, bool)
    file.check()
    there = (at > 0) & (at <= len(mapped) - sizes)
    heads = _heads_at(mapped, np.where(there, at - OBJECT_HEAD_BYTES, 0))
    there &= heads[:, 0] & 0xFFFF == references["index"]
    there &= heads[:, 1] == sizes.astype(np.uint64)
    heads = _heads_at(mapped, np.where(there, addresses, 0))
    there &= heads[:, 0] & _SIGNATURE_MASK == _SIGNATURE
    there &= (at - addresses + sizes).astype(np.uint64) <= heads[:, 1]
    copy_segments(out.view(np.uint8), places[there] * out.itemsize, mapped, at[there], sizes[there])
    file.copied(int(sizes[there].sum()), scattered=True)
    return there


def _heads_at(mapped: Array, starts: Ints) -> Array:
    """Return the two words of headers that begin at some bytes: uint64 (n, 2)."""
    every = np.ndarray((max(0, len(mapped) - 15), 16), np.uint8, mapped, strides=(1, 1))
    return every[starts].view("<u8")


def copy_objects(out: Array, places: Ints, memory: Array, starts: Ints, lengths: Ints) -> None:
    """Copy objects of a heap, from bytes `starts` of `memory`, to their places in `out`."""
    if out.itemsize in (1, 2, 4, 8):  # objects lie at multiples of eight
        copy_segments(out, places, memory.view(out.dtype), starts // out.itemsize, lengths)
        return
    sizes, raw = lengths * out.itemsize, out.view(np.uint8)
    copy_segments(raw, places * out.itemsize, memory, starts, sizes)
