"""What a permuting copy comes down to: lengths and byte steps, fewest axes, one tile shape.

Pure planning on integers: nothing here sees an array or moves a byte. A copy is described in
the order of its *destination*: the lengths of its axes and, for the source and the destination
alike, how many bytes one step along each axis is worth.

Two axes matter, whatever the rank. The *fast* axis is the one along which the source is
contiguous; the last axis is the one along which the destination is. When they are the same axis
the copy is a series of runs, and NumPy does that well. When they differ every copy is a batch of
plain matrix transposes, and the trick is to visit it in tiles small enough to stay in the
nearest cache, in whole cache lines on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

CACHE_LINE = 64
"""Bytes moved between memory and cache at a time, and of the vectors of the kernels."""

TILE_RUN = 128
"""Bytes written in one go along a row of the destination: two lines suit the prefetchers."""

HEADER = 8
"""Numbers at the start of a kernel's table, before its offsets."""

ROW_PADDING = 16
"""Offsets after those of the rows, read by the last group of a tile and never used."""


def merged_axes(
    shape: Sequence[int], *strides: Sequence[int], barrier: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the axes in groups that move together, without those of length 1.

    Parameters
    ----------
    shape : sequence of int
        Lengths, in the order of the destination; none is zero.
    strides : sequences of int
        Byte steps along those axes, one sequence for each array that takes part.
    barrier : int, optional
        An axis that stays alone and is never dropped: the one that rows are gathered along.

    Examples
    --------
    >>> merged_axes((3, 32, 32, 256), (1024, 32, 1, 3072), (262144, 8192, 256, 1))
    ((0, 1, 2), (3,))
    >>> merged_axes((256, 1, 28, 28), (784, 784, 28, 1), (784, 784, 28, 1), barrier=0)
    ((0,), (2, 3))
    """
    groups: list[list[int]] = []
    for axis, length in enumerate(shape):
        if length == 1 and axis != barrier:
            continue
        before = groups[-1][-1] if groups else -1
        joins = before >= 0 and barrier not in (axis, before)
        if joins and all(s[before] == length * s[axis] for s in strides):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(tuple(group) for group in groups)


def fast_axis(strides: Sequence[int], itemsize: int) -> int | None:
    """Return the axis along which neighbours touch in the source, the last of several.

    Examples
    --------
    >>> fast_axis((1024, 1, 3072), 1)
    1
    >>> fast_axis((2048, 2), 1) is None
    True
    """
    for axis in range(len(strides) - 1, -1, -1):
        if strides[axis] == itemsize:
            return axis
    return None


def tile_shape(
    shape: Sequence[int], fast: int, *, last_run: int, fast_run: int, items: int
) -> tuple[int, ...]:
    """Return how many steps along each axis one tile takes.

    A tile is `last_run` long where the destination is contiguous and `fast_run` where the source
    is; other axes join, the last first, until it holds about `items` items.

    Examples
    --------
    >>> tile_shape((3, 1024, 256), 1, last_run=64, fast_run=256, items=65536)
    (3, 256, 64)
    """
    last = len(shape) - 1
    tile = [1] * len(shape)
    tile[last] = min(shape[last], last_run)
    tile[fast] = min(shape[fast], fast_run)
    for axis in range(last, -1, -1):
        if axis not in (last, fast):
            tile[axis] = max(1, min(shape[axis], items // math.prod(tile)))
    return tuple(tile)


def tiles(shape: Sequence[int], tile: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Cut an index space into tiles, the last axis running fastest.

    Examples
    --------
    >>> [(a.start, b.start, b.stop) for a, b in tiles((2, 5), (1, 3))]
    [(0, 0, 3), (0, 3, 5), (1, 0, 3), (1, 3, 5)]
    """
    if not shape:
        yield ()
        return
    for start in range(0, shape[0], tile[0]):
        head = slice(start, min(start + tile[0], shape[0]))
        for rest in tiles(shape[1:], tile[1:]):
            yield (head, *rest)
