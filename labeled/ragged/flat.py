"""Flat values with offsets and shapes: the one layout that everything ragged runs over.

Knows arrays in memory and the protocol of whoever reads them; no dims, no files. Small
examples are copied by index, large ones one by one: each is several times faster than
the other on its side of :data:`MANY_ELEMENTS`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled._numba import pays_off
from labeled.errors import ArrayError, FileFormatError
from labeled.permute import compiled
from labeled.selection import spread

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
AnyRows = range | Rows

# examples of at least so many elements are copied one by one, smaller ones by index
MANY_ELEMENTS = 96


class Flat(NamedTuple):
    """Examples one after another.

    Example i is ``values[offsets[i]:offsets[i + 1]].reshape(shapes[i])``.
    """

    values: Array
    offsets: Rows  # int64 (n + 1,), ascending from 0
    shapes: Rows  # int64 (n, axes of an example)

    @classmethod
    def of(cls, examples: Sequence[npt.ArrayLike]) -> Flat:
        """Join examples into flat values; the common dtype, one copy."""
        for number, example in enumerate(examples):
            if np.ma.is_masked(example):
                raise ArrayError(f"example {number} has masked values; fill them: .filled(value)")
        arrays = [np.asarray(example) for example in examples]
        dtypes = dtypes_of(examples, arrays)
        if not {dtype.kind for dtype in dtypes} <= set("biufcSUmM"):
            raise ArrayError("ragged examples must be arrays of numbers, or all of times")
        dtype, shapes = dtype_and_shapes(arrays, dtypes, "example")
        values = np.empty(0)
        if arrays:
            values = np.concatenate(arrays, axis=None, dtype=dtype, casting="unsafe")
        return cls(values, offsets_of(elements_of(shapes)), shapes)

    def examples(self) -> Array:
        """Return the examples as an object array (n,) of views of `values`."""
        values, edges = self.values, self.offsets.tolist()
        made = [values[a:b] for a, b in pairwise(edges)]
        if self.shapes.shape[1] != 1:
            shapes = self.shapes.tolist()
            made = [one.reshape(shape) for one, shape in zip(made, shapes, strict=True)]
        return np.fromiter(made, object, len(made))


def dtypes_of(examples: Sequence[Any], arrays: Sequence[Array]) -> set[np.dtype[Any]]:
    """Return the dtypes of examples as arrays; a list of nothing has none, and takes any.

    Examples
    --------
    >>> dtypes_of([[1, 2], []], [np.array([1, 2]), np.array([])])
    {dtype('int64')}
    """
    pairs = zip(examples, arrays, strict=True)
    return {array.dtype for one, array in pairs if array.size or hasattr(one, "dtype")}


def dtype_and_shapes(
    arrays: Sequence[Array], dtypes: Collection[np.dtype[Any]], where: str
) -> tuple[np.dtype[Any], Rows]:
    """Return the dtype that holds all examples, and the shape of each: (n, axes of an example).

    Raises
    ------
    ArrayError
        If they differ in their number of axes, or times lie among others; `where` goes before rows.
    """
    n_axes = arrays[0].ndim if arrays else 1
    for row, array in enumerate(arrays):
        if array.ndim != n_axes:
            words = f"an example of {array.ndim} axes among others of {n_axes}"
            raise ArrayError(f"{where} {row}: {words}; examples may differ in lengths only")
    kinds = {dtype.kind for dtype in dtypes}
    if kinds & {"m", "M"} and len(kinds) > 1:
        mixed = sorted(map(str, dtypes))
        raise ArrayError(f"{where}s mix {mixed}; give all times of one kind")
    lengths = chain.from_iterable(map(attrgetter("shape"), arrays))
    shapes = np.fromiter(lengths, np.int64, len(arrays) * n_axes).reshape(len(arrays), n_axes)
    return np.result_type(*dtypes) if dtypes else np.dtype(np.float64), shapes


class RaggedReader:
    """Stored examples, read flat. Safe in threads, small in a pickle, holds no file open.

    Rows are a range, or int64 in any order with repeats, each within ``0 .. n_rows - 1``.

    A reader implements ``_found`` and ``_read``, from which all else follows.

    Attributes
    ----------
    kind, why : str
        The path bytes take ("flat", "memory", ...) and why, for `explain`.
    where : str
        Source and file, as messages begin.
    n_axes : int
        How many axes an example has.
    """

    kind: str = ""
    why: str = ""
    where: str
    n_rows: int
    n_axes: int
    dtype: np.dtype[Any]

    def shapes(self, rows: AnyRows) -> Rows:
        """Return the shapes of examples, checked: (len(rows), n_axes)."""
        return self._found(rows)[0]

    def sizes(self, rows: AnyRows) -> Rows:
        """Return how many elements each example has; never more than a shape says."""
        return elements_of(self.shapes(rows))

    def read_flat(self, rows: AnyRows, threads: int = 1) -> Flat:
        """Return the examples one after another; offsets and shapes are checked.

        Several threads decode where a reader can make use of them.
        """
        shapes, wanted = self._found(rows)
        sizes = elements_of(shapes)
        offsets = offsets_of(sizes)
        self._check_claim(wanted, sizes)
        out = np.empty(int(offsets[-1]), self.dtype)
        self._read(wanted, out, offsets[:-1], sizes, threads)
        return Flat(out, offsets, shapes)

    def read_at(self, rows: AnyRows, out: Array, places: Rows, sizes: Rows) -> Rows:
        """Read examples of known sizes, each to its place in `out`; return their shapes.

        Raises
        ------
        FileFormatError
            If an example has another size; none of its file is written then.
        """
        shapes, wanted = self._found(rows)
        check_sizes(self.where, rows, elements_of(shapes), sizes)
        self._read(wanted, out, places, sizes, 1)
        return shapes

    def _found(self, rows: AnyRows) -> tuple[Rows, Any]:
        """Return the shapes of examples, checked, and what tells ``_read`` which they are."""
        raise NotImplementedError

    def _check_claim(self, wanted: Any, sizes: Rows) -> None:
        """Refuse to take memory for examples that a file claims and does not store."""

    def _read(self, wanted: Any, out: Array, places: Rows, sizes: Rows, threads: int) -> None:
        """Store examples of those sizes at places of `out`."""
        raise NotImplementedError


def check_sizes(where: str, rows: AnyRows, found: Rows, sizes: Rows) -> None:
    """Raise FileFormatError where an example has another size than was expected."""
    if not np.array_equal(found, sizes):
        at = int(np.argmax(found != sizes))
        raise FileFormatError(
            f"{where}, row {rows[at]}: it has {found[at]} values, but {sizes[at]} were "
            "expected; the file is damaged, or being written"
        )


class FlatRows(RaggedReader):
    """Examples in memory."""

    kind, why = "memory", "loaded"

    def __init__(self, flat: Flat, where: str = "a ragged array in memory") -> None:
        self.flat, self.where, self.dtype = flat, where, flat.values.dtype
        self.n_rows, self.n_axes = map(int, flat.shapes.shape)

    def _found(self, rows: AnyRows) -> tuple[Rows, Rows]:
        which: Any = rows
        if isinstance(rows, range) and rows.step > 0:  # NumPy would list it number by number
            which = slice(rows.start, rows.stop, rows.step)
        return self.flat.shapes[which].copy(), self.flat.offsets[:-1][which]

    def _read(self, wanted: Rows, out: Array, places: Rows, sizes: Rows, threads: int) -> None:
        copy_segments(out, places, self.flat.values, wanted, sizes)


def offsets_of(sizes: Rows) -> Rows:
    """Return where each of `sizes` begins, and the end of the last: int64 (n + 1,).

    Examples
    --------
    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    out = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def copy_segments(out: Array, places: Rows, source: Array, starts: Rows, sizes: Rows) -> None:
    """Copy segments of a flat array to places of another: ``out[p:p + n] = source[s:s + n]``.

    Segments that lie end to end, here and there, are copied at once. Compiled loops copy others
    without the GIL where these are at hand. Else short segments are copied by index, others one by
    one; as bytes unless they are very long, which takes two thirds of the time and lets no other
    thread run Python meanwhile: to get the lock back for each of many segments would take longer
    than to copy them.
    """
    total, item = int(sizes.sum()), out.itemsize
    if not total:
        return
    packed = _follow(places, sizes, total)
    if packed and _follow(starts, sizes, total):
        out[places[0] : places[0] + total] = source[starts[0] : starts[0] + total]
        return
    to: Any = out
    there: Any = source
    plain = out.dtype == source.dtype and not out.dtype.hasobject
    if plain and out.flags.c_contiguous and source.flags.c_contiguous:
        to, there = out.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
        if total * item >= 1 << 14 and pays_off(total * item):
            copy = compiled.kernels().copy_segments
            if copy(to, places * item, there, starts * item, sizes * item):
                return
    if total >= MANY_ELEMENTS * len(sizes):
        if to is out or total * item > len(sizes) << 16:  # long: other threads may run
            to, there, item = out, source, 1
        else:
            to, there = memoryview(to), memoryview(there)
        places, starts, sizes = places * item, starts * item, sizes * item
        ends, stops = (starts + sizes).tolist(), (places + sizes).tolist()
        for a, b, c, d in zip(places.tolist(), stops, starts.tolist(), ends, strict=True):
            to[a:b] = there[c:d]
        return
    for a, b in pairwise(block_cuts(sizes, 1 << 15)):  # which bounds the memory of the index
        taken = source.take(spread(starts[a:b], sizes[a:b]))
        if packed:
            out[places[a] : places[a] + len(taken)] = taken
        else:
            out[spread(places[a:b], sizes[a:b])] = taken


def _follow(starts: Rows, sizes: Rows, total: int) -> bool:
    """Whether segments lie end to end; a look at the ends says so of most that do not."""
    if int(starts[-1] - starts[0]) != total - int(sizes[-1]):
        return False
    return bool((starts[1:] - starts[:-1] == sizes[:-1]).all())


def block_cuts(sizes: Rows, limit: int) -> list[int]:
    """Cut consecutive items into blocks of at most `limit`, or of one item.

    Examples
    --------
    >>> block_cuts(np.array([3, 3, 9, 1, 1]), 6)
    [0, 2, 3, 5]
    """
    edges, cuts = offsets_of(sizes), [0]
    while cuts[-1] < len(sizes):
        fitting = int(edges.searchsorted(edges[cuts[-1]] + limit, side="right")) - 1
        cuts.append(max(fitting, cuts[-1] + 1))
    return cuts


def elements_of(shapes: Rows) -> Rows:
    """Multiply shapes out; they are known to be possible."""
    sizes: Rows = np.prod(shapes, axis=1, dtype=np.int64)
    return sizes


def sizes_of(shapes: Rows, rows: AnyRows, where: str, itemsize: int = 1) -> Rows:
    """Multiply shapes out, refusing what no array can have.

    Raises
    ------
    FileFormatError
        If a length is negative, or the bytes of an example do not fit int64; names the row.
    """
    bad = (shapes < 0).any(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.prod(shapes, axis=1, dtype=np.float64) * max(1, itemsize)
    empty = (shapes == 0).any(axis=1)
    bad |= ~empty & ~(size < 2.0**62)
    if bad.any():
        at = int(np.argmax(bad))
        wrong = "a negative length" if (shapes[at] < 0).any() else "more elements than memory has"
        raise FileFormatError(
            f"{where}, row {rows[at]}: its shape {tuple(shapes[at].tolist())} has {wrong}; "
            "correct the shapes in the file, or leave the source out"
        )
    return elements_of(shapes)
