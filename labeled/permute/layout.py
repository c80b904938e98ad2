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

CACHE_SETS = 64
CACHE_WAYS = 8
"""Of the nearest cache, at least, on the processors of the last ten years."""

TILE_BYTES = 1 << 18
"""A tile and its scratch fit the second-level cache of one core."""

NEAR_BYTES = 1 << 17
"""What NumPy's own copy may touch before it comes back to a line, to find it still near."""

FAST_RUN = 1024
"""Items of a tile along the fast axis: long enough for NumPy's inner loops."""

CAST_ITEMS = 1 << 17
"""Items of a tile that is converted, cast and scaled in several passes."""

WHOLE_RUN = 128
"""Up to so many items of a destination's row are converted together."""

PLANES = 4
"""Longest last axis that is copied plane by plane."""

TILE_RUN = 128
"""Bytes written in one go along a row of the destination: two lines suit the prefetchers."""

HEADER = 8
"""Numbers at the start of a kernel's table, before its offsets."""


def merged_axes(
    shape: Sequence[int],
    *strides: Sequence[int],
    barrier: int | None = None,
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


def lines_kept(stride: int) -> int:
    """Return how many lines, `stride` bytes apart, the nearest cache holds at once.

    Strides of many whole lines meet in few of its sets: images of a round number of bytes push
    one another out long before the cache is full.

    Examples
    --------
    >>> lines_kept(784), lines_kept(3072), lines_kept(4096)
    (512, 32, 8)
    """
    whole, part = divmod(abs(stride), CACHE_LINE)
    shared = math.gcd(whole, CACHE_SETS) if whole and not part else 1
    return CACHE_WAYS * CACHE_SETS // shared


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


def move_tile(
    shape: Sequence[int], dst: Sequence[int], src: Sequence[int], itemsize: int
) -> tuple[int, ...] | None:
    """Return the tile in which NumPy best makes a pure move, or None for all at once.

    NumPy walks the destination and comes back to a line of the source after everything behind
    the fast axis. Tiles pay where that no longer fits the caches, or where the lines of one pass
    meet in too few of their sets.

    Examples
    --------
    >>> move_tile((3072, 256), (256, 1), (1, 3072), 1)
    (1024, 32)
    >>> move_tile((768, 32, 32), (1024, 32, 1), (1024, 1, 32), 1) is None
    True
    """
    last, fast = len(shape) - 1, fast_axis(src, itemsize)
    if fast is None or fast == last or dst[last] != itemsize or itemsize > 8:
        return None
    if shape[last] <= PLANES:
        items = TILE_BYTES // itemsize
        tile = tile_shape(shape, fast, last_run=PLANES, fast_run=FAST_RUN, items=items)
        return filled(tile, shape, fast, items)
    step = abs(src[last])
    kept, dense = lines_kept(step), step < CACHE_LINE
    # close rows are read in one stream, which stays cheap per item until the caches overflow
    near = (1 << 20 if itemsize > 2 else 1 << 24) if dense else NEAR_BYTES
    behind = math.prod(shape[fast + 1 :]) * min(step, CACHE_LINE)
    if behind <= near and (dense or shape[last] <= kept):
        return None
    fast_run = min(shape[fast], FAST_RUN)
    run = max(16, min(kept, 256, TILE_BYTES // (fast_run * itemsize)))
    items = max(fast_run * run, (1 << 16) // itemsize)
    return tile_shape(shape, fast, last_run=run, fast_run=fast_run, items=items)


def cast_tile(shape: Sequence[int], src: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the tile in which NumPy best converts, in several passes over the same memory.

    Large, since each costs some ten calls: what is left after a run along either axis is filled.

    Examples
    --------
    >>> cast_tile((3072, 256), (1, 3072), 1)
    (1024, 128)
    >>> cast_tile((32, 24576), (1, 32), 1)
    (32, 4096)
    """
    last, fast = len(shape) - 1, fast_axis(src, itemsize)
    if fast is None or fast == last:
        return tile_shape(shape, last, last_run=CAST_ITEMS, fast_run=CAST_ITEMS, items=CAST_ITEMS)
    run = shape[last] if shape[last] <= WHOLE_RUN else WHOLE_RUN // 2
    tile = tile_shape(shape, fast, last_run=run, fast_run=FAST_RUN, items=CAST_ITEMS)
    return filled(filled(tile, shape, last, CAST_ITEMS), shape, fast, CAST_ITEMS)


def filled(tile: tuple[int, ...], shape: Sequence[int], axis: int, items: int) -> tuple[int, ...]:
    """Return a tile that is longer along an axis where it has room for more items.

    Examples
    --------
    >>> filled((1, 1024, 3), (1, 50176, 3), 1, 65536)
    (1, 21845, 3)
    """
    length = min(shape[axis], max(tile[axis], items * tile[axis] // math.prod(tile)))
    return (*tile[:axis], length, *tile[axis + 1 :])


def gather_tile(shape: Sequence[int], axis: int, itemsize: int) -> tuple[int, ...]:
    """Return the tile in which NumPy takes rows along `axis` and moves them: what caches hold.

    Examples
    --------
    >>> gather_tile((256, 150528), 0, 4)
    (1, 150528)
    """
    items = max(1, 4 * TILE_BYTES // itemsize)
    n_rows = max(1, min(shape[axis], items * shape[axis] // math.prod(shape)))
    return (*shape[:axis], n_rows, *shape[axis + 1 :])


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
