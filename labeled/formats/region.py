"""Regions: which part of every row is wanted, one indexer an axis, and what it costs to fetch.

A region is plain data (integers, slices with positive steps, integer arrays), each axis
indexed by itself as in ``numpy.ix_``. Regions compose, so that ``isel`` after ``isel`` still reads
only what is left. This module turns a region into a *box plan*: which
bytes of a stored row are fetched and how the wanted elements lie in them; or, where rows are
stored in a grid of chunks, into what is wanted of each (:func:`tiles_of`). It knows no
file; the same plan serves a row of a contiguous dataset and a row of a chunk.

The trade-off: fetching is cheap per byte and expensive per call, so bytes that are
not wanted are read through where skipping them would cost more than `GAP_BYTES`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from labeled.errors import SelectionError, SelectionTypeError
from labeled.permute.plan import packed
from labeled.selection import as_positions, spread

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
# what is taken of an axis; `np.r_[indexer]` lists the elements
Indexer: TypeAlias = int | slice | Ints
Region: TypeAlias = tuple[Indexer, ...]

# bytes read through rather than skipped: what one more call would have copied
GAP_BYTES = 16 * 1024


def normal_region(region: Region, shape: tuple[int, ...], where: str = "region") -> Region:
    """Return `region` with one indexer for each axis of `shape`, all in plain positive numbers.

    Parameters
    ----------
    region : tuple
        At most one integer, slice or list of integers an axis; missing axes are taken whole.
    shape : tuple of int
        Lengths of the axes after the example axis.
    where : str
        What the errors call the array, such as ``"source 'a' in 'x.hdf5'"``.

    Raises
    ------
    SelectionError, SelectionTypeError
        If there are more indexers than axes, or as :func:`narrow` raises them.

    Examples
    --------
    >>> normal_region((-1, slice(2, 99)), (3, 8, 8))
    (2, slice(2, 8, 1), slice(0, 8, 1))
    """
    if not region:
        return whole(shape)
    if len(region) > len(shape):
        raise SelectionError(
            f"{where}: {len(region)} indexers for {len(shape)} axes after the example axis"
        )
    names = [f"{where}, axis {axis}" for axis in range(1, 1 + len(region))]
    return narrow(whole(shape), dict(enumerate(region)), names)


def region_shape(region: Region) -> tuple[int, ...]:
    """Return the lengths of the axes that a normal region keeps: integers drop theirs."""
    shape = []
    for index in region:
        if isinstance(index, slice):
            shape.append(len(range(index.start, index.stop, index.step)))
        elif not isinstance(index, int):
            shape.append(len(index))
    return tuple(shape)


def is_whole(region: Region, shape: tuple[int, ...]) -> bool:
    """Return whether a normal region takes every element, in order."""
    for index, size in zip(region, shape, strict=True):
        if not isinstance(index, slice) or (index.start, index.stop, index.step) != (0, size, 1):
            return False
    return True


def outer_take(array: Array, region: Region, rows: slice | Ints | None = None) -> Array:
    """Return ``array[rows, region]``, each axis by itself; a view if nothing is a list.

    Examples
    --------
    >>> rows = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    >>> outer_take(rows, (np.array([2, 0]), slice(1, 3, 1)))[1].tolist()
    [[21, 22], [13, 14]]
    """
    basic = tuple(slice(None) if isinstance(i, np.ndarray) else i for i in region)
    out = array[(slice(None), *basic)]
    if rows is not None:
        out = out[rows]
    axis = 1
    for index in region:
        if isinstance(index, np.ndarray):
            out = out[(slice(None),) * axis + (index,)]
        axis += not isinstance(index, int)
    return out


def outer_put(out: Array, rows: slice | Ints, trail: Region, values: Array) -> None:
    """Store ``out[rows, trail] = values``, each axis indexed by itself."""
    if any(isinstance(index, np.ndarray) for index in trail):
        out[np.ix_(*(np.r_[index] for index in (rows, *trail)))] = values
    else:
        out[(rows, *trail)] = values


@dataclass(frozen=True, slots=True, eq=False)
class BoxPlan:
    """Which bytes of a stored row are fetched, and where the wanted elements lie in them."""

    dtype: np.dtype[Any]  # as stored
    row_bytes: int  # from one stored row to the next
    starts: tuple[int, ...]  # byte offsets, within a row, of the stretches that are fetched
    stretch_bytes: int
    box_shape: tuple[int, ...]  # shape of what the stretches of one row hold together
    inner: Region  # the wanted elements of that box
    whole: bool  # stored rows are wanted as they are
    # neighbouring rows come with one call, the bytes between them included
    read_through: bool = False

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next, as they are fetched."""
        return self.row_bytes if self.read_through else self.stretch_bytes * len(self.starts)

    @property
    def box_strides(self) -> tuple[int, ...]:
        return packed(self.box_shape, self.dtype.itemsize)

    def bytes_of(self, n: int) -> int:
        """Bytes fetched for `n` >= 1 consecutive rows."""
        return (n - 1) * self.pitch + self.stretch_bytes * len(self.starts)

    def ranges(self, at: Ints, n: Ints) -> tuple[Ints, Ints]:
        """Return the starts and lengths of what is fetched for `n` rows from byte `at` on, each."""
        if self.read_through:
            return at + self.starts[0], (n - 1) * self.row_bytes + self.stretch_bytes
        rows = np.repeat(at, n) + spread(np.zeros_like(n), n) * self.row_bytes
        starts: Ints = (rows[:, None] + np.array(self.starts)).reshape(-1)
        return starts, np.full(len(starts), self.stretch_bytes)

    def view(self, fetched: Array, n: int) -> Array:
        """View the boxes of `n` consecutive rows in bytes that were fetched one after another."""
        shape, strides = (n, *self.box_shape), (self.pitch, *self.box_strides)
        return np.ndarray(shape, self.dtype, fetched, 0, strides)


def box_plan(region: Region, shape: tuple[int, ...], dtype: np.dtype[Any]) -> BoxPlan:
    """Choose the cheapest stretches of a C-ordered row of `shape` that hold a normal `region`.

    The axes before the chosen one are walked index by index, that axis is fetched from
    its first wanted index to its last, and the axes after it whole.

    Examples
    --------
    >>> plan = box_plan((slice(0, 3, 1), slice(4, 5, 1)), (3, 100_000), np.dtype("u1"))
    >>> plan.starts, plan.stretch_bytes          # three far-away stretches of one byte
    ((4, 100004, 200004), 1)
    """
    row_bytes, taken = math.prod(shape) * dtype.itemsize, region_shape(region)
    is_all = is_whole(region, shape)
    if is_all or not row_bytes or 0 in taken:
        n_bytes = math.prod(taken) * dtype.itemsize
        near = row_bytes - n_bytes <= GAP_BYTES
        return BoxPlan(dtype, row_bytes, (0,), n_bytes, taken, whole(taken), is_all, near)
    strides, best, at = packed(shape, dtype.itemsize), math.inf, 0
    starts = walked = np.zeros(1, np.int64)  # of an axis, if all before it go index by index
    for axis, index in enumerate(region):
        if len(walked) * GAP_BYTES >= best:
            break
        low, high = bounds(index)
        n_bytes = (high - low) * strides[axis]
        near = len(walked) == 1 and row_bytes - n_bytes <= GAP_BYTES
        cost = row_bytes if near else len(walked) * (n_bytes + GAP_BYTES)
        if cost < best:
            best, at, starts = cost, axis, walked + low * strides[axis]
        walked = (walked[:, None] + np.r_[index] * strides[axis]).reshape(-1)
    low, high = bounds(region[at])
    n_bytes = (high - low) * strides[at]
    lengths = [len(np.r_[index]) for index in region[:at]]
    walks = zip(region, lengths, strict=False)
    before = [0 if isinstance(index, int) else slice(0, n, 1) for index, n in walks]
    return BoxPlan(
        dtype,
        row_bytes,
        tuple(starts.tolist()),
        n_bytes,
        (*lengths, high - low, *shape[at + 1 :]),
        (*before, shifted(region[at], low), *region[at + 1 :]),
        whole=False,
        read_through=len(starts) == 1 and row_bytes - n_bytes <= GAP_BYTES,
    )


def bounds(index: Indexer) -> tuple[int, int]:
    """Return the first element an indexer takes and one past the last."""
    if isinstance(index, slice):
        return index.start, index.stop
    if isinstance(index, int):
        return index, index + 1
    return (int(index.min()), int(index.max()) + 1) if len(index) else (0, 0)


def shifted(index: Indexer, low: int) -> Indexer:
    """Return an indexer of the same elements once the first `low` are cut off."""
    if isinstance(index, slice):
        return slice(index.start - low, index.stop - low, index.step)
    return index - low


def box_of(region: Region) -> tuple[tuple[slice, ...], Region]:
    """Return what holds a region, axis by axis from the first element to the last, and the rest.

    Examples
    --------
    >>> box_of((slice(3, 8, 2), 5))
    ((slice(3, 8, None), slice(5, 6, None)), (slice(0, 5, 2), 0))
    """
    ends = [bounds(index) for index in region]
    inner = tuple(shifted(index, low) for index, (low, _) in zip(region, ends, strict=True))
    return tuple(slice(*end) for end in ends), inner


def whole(row_shape: tuple[int, ...]) -> Region:
    """Take all of every trailing axis."""
    return tuple(map(slice, (0,) * len(row_shape), row_shape, (1,) * len(row_shape)))


def narrow(region: Region, axes: Mapping[int, Any], names: Sequence[str]) -> Region:
    """Select further along the axes that a region keeps; lists that count evenly become slices.

    Parameters
    ----------
    region : Region
        What is taken so far.
    axes : mapping of int to request
        Kept axis number (counting only axes that are left) to an integer, slice,
        list of integers or full-length boolean mask, as in NumPy.
    names : sequence of str
        What messages call the kept axes.

    Raises
    ------
    SelectionError
        If an integer is out of range.
    SelectionTypeError
        If a request is not one of these kinds.
    """
    out: list[Indexer] = []
    kept = 0
    for part in region:
        if isinstance(part, int):
            out.append(part)
        else:
            out.append(_narrowed(part, axes[kept], names[kept]) if kept in axes else part)
            kept += 1
    return tuple(out)


def _narrowed(part: slice | Ints, request: Any, name: str) -> Indexer:
    positions = range(part.start, part.stop, part.step) if isinstance(part, slice) else part
    single = isinstance(request, int | np.integer) and not isinstance(request, bool)
    try:
        wanted = as_positions([request] if single else request, len(positions), "position")
    except SelectionTypeError as error:
        raise SelectionTypeError(f"{name}: {error}") from None
    except SelectionError as error:
        raise SelectionError(f"{name} (length {len(positions)}): {error}") from None
    taken: range | Ints
    if isinstance(positions, range) and isinstance(wanted, range):  # however long
        begin, step = positions.start, positions.step
        taken = range(begin + wanted.start * step, begin + wanted.stop * step, wanted.step * step)
    else:
        taken = np.r_[part][np.asarray(wanted, np.int64)]
    if single:
        return int(taken[0])
    if not len(taken):
        return slice(0, 0, 1)
    step = int(taken[1] - taken[0]) if len(taken) > 1 else 1
    is_even = isinstance(taken, range) or bool((taken[1:] - taken[:-1] == step).all())
    if step < 1 or not is_even:
        return np.asarray(taken, np.int64)
    return slice(int(taken[0]), int(taken[-1]) + 1, step)


# regions across a grid of chunks


# the number of a chunk along an axis, what is wanted of it, and the places of that in the result
_Cut = tuple[int, Indexer, Indexer | None]


class ChunkTile(NamedTuple):
    """One chunk of the grid over the axes after the first."""

    number: int  # in C order over that grid
    local: Region  # the elements wanted, counted within the chunk
    trail: Region  # their places in a row of the result; integers have dropped their axis
    of: int  # all chunks of that grid


def _cuts_of(index: Indexer, chunk: int) -> list[_Cut]:
    """Cut what is wanted along an axis where its chunks end."""
    if isinstance(index, int):
        return [(index // chunk, index % chunk, None)]
    cuts: list[_Cut] = []
    if isinstance(index, slice):
        wanted, begin = range(index.start, index.stop, index.step), 0
        while begin < len(wanted):
            coord, inside = divmod(wanted[begin], chunk)
            end = min(len(wanted), begin - (inside - chunk) // index.step)
            last = wanted[end - 1] - coord * chunk
            cuts.append((coord, slice(inside, last + 1, index.step), slice(begin, end, 1)))
            begin = end
        return cuts
    coords, which, counts = np.unique(index // chunk, return_inverse=True, return_counts=True)
    places = np.split(np.argsort(which, kind="stable"), np.cumsum(counts)[:-1])
    for coord, place in zip(coords.tolist(), places, strict=True):
        first, last = int(place[0]), int(place[-1])
        together = last - first == len(place) - 1
        cuts.append(
            (coord, index[place] - coord * chunk, slice(first, last + 1, 1) if together else place)
        )
    return cuts


def tiles_of(region: Region, shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[ChunkTile]:
    """Return the tiles of a region, which is full and normal.

    Parameters
    ----------
    region : Region
    shape, chunks : tuple of int
        Of the axes after the first.

    Examples
    --------
    >>> [tuple(tile) for tile in tiles_of((slice(3, 7, 1), 2), (8, 6), (4, 6))]
    [(0, (slice(3, 4, 1), 2), (slice(0, 1, 1),), 2), (1, (slice(0, 3, 1), 2), (slice(1, 4, 1),), 2)]
    """
    cuts = list(map(_cuts_of, region, chunks))
    tiles, grid = [], (-(-np.array(shape, np.int64) // np.array(chunks, np.int64))).tolist()
    for parts in itertools.product(*cuts):
        number, local, trail = 0, [], []
        for (coord, inside, place), n in zip(parts, grid, strict=True):
            number = number * n + coord
            local.append(inside)
            if place is not None:
                trail.append(place)
        tiles.append(ChunkTile(number, tuple(local), tuple(trail), math.prod(grid)))
    return tiles
