"""Permuting copies of CuPy arrays: one kernel moves, casts, scales and shifts in one pass.

**This has not run on a GPU yet.** The source is checked by NVIDIA's compiler and its index
arithmetic against NumPy; speed and behaviour on a device are unknown. Gathers, crops and mirrors
are not part of it.

A block of threads copies one tile: it reads along the fast axis of the source, converts, keeps
the tile in shared memory, and writes along the destination, so both sides are touched in whole
segments. Rows are all axes behind the fast one, taken as one; the offset of each row of a tile is
computed once a block. One compiled kernel for each pair of item types serves every shape: the
shape travels as a small table.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from labeled.permute import layout
from labeled.permute.job import merged_factor
from labeled.permute.plan import CAST_FROM, CAST_TO, MOVED, Plan, Request, plan

TILE_BYTES = 1 << 14
TILE_ITEMS = 1 << 12
TILE_ROWS = 64
MOST_ROWS = 512
"""Rows of a tile at most: what short fast axes (channels) are made up for with."""

THREADS = 256
FIXED = 13
"""Numbers of a table before its axes; see `SOURCE` for their meaning."""

SOURCE = r"""
typedef long long Big;
struct Offsets { Big src, scale, shift; };

// table: 0 outer steps, 1 n_fast, 2 n_rows, 3 tile_fast, 4 tile_rows, 5 tiles_fast, 6 tiles_rows,
// 7 pitch, 8..10 steps along the fast axis of source, scale, shift, 11 outer axes, 12 row axes,
// then (length, source, scale, shift) of each outer axis and each row axis, the innermost first
__device__ inline Offsets offsets(const Big* axes, int count, Big index) {
    Offsets at = {0, 0, 0};
    for (int k = 0; k < count; ++k, axes += 4) {
        Big next = index / axes[0], step = index - next * axes[0];
        at.src += step * axes[1];
        at.scale += step * axes[2];
        at.shift += step * axes[3];
        index = next;
    }
    return at;
}

__device__ inline FINAL converted(ITEM value, FACTOR scale, FACTOR shift) {
#if PURE
    return value;
#else
    return (FINAL)value * scale + shift;
#endif
}

extern "C" __global__ void permute(const ITEM* __restrict__ src, FINAL* __restrict__ dst,
                                   const Big* __restrict__ table,
                                   const FACTOR* __restrict__ scale,
                                   const FACTOR* __restrict__ shift) {
    __shared__ FINAL tile[TILE_ITEMS + 16 * MOST_ROWS / sizeof(FINAL)];
    __shared__ Offsets rows[MOST_ROWS];
    const Big n_fast = table[1], n_rows = table[2];
    const int tile_fast = (int)table[3], tile_rows = (int)table[4], pitch = (int)table[7];
    const Big tiles = table[5] * table[6];
    const Big outer = blockIdx.x / tiles, rest = blockIdx.x - outer * tiles;
    const Big first = rest % table[5] * tile_fast, row = rest / table[5] * tile_rows;
    const int fasts = (int)(n_fast - first < tile_fast ? n_fast - first : tile_fast);
    const int count = (int)(n_rows - row < tile_rows ? n_rows - row : tile_rows);
    const Big* axes = table + 13;
    const Offsets base = offsets(axes, (int)table[11], outer);
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        rows[j] = offsets(axes + 4 * table[11], (int)table[12], row + j);
    }
    __syncthreads();
    for (int t = threadIdx.x; t < tile_fast * count; t += blockDim.x) {
        const int j = t / tile_fast, i = t - j * tile_fast;
        if (i < fasts) {
            const Offsets at = rows[j];
            const Big along = first + i;
            tile[j * pitch + i] = converted(src[base.src + at.src + along * table[8]],
                                            scale[base.scale + at.scale + along * table[9]],
                                            shift[base.shift + at.shift + along * table[10]]);
        }
    }
    __syncthreads();
    for (int t = threadIdx.x; t < fasts * count; t += blockDim.x) {
        const int i = t / count, j = t - i * count;
        dst[(outer * n_fast + first + i) * n_rows + row + j] = tile[j * pitch + i];
    }
}
"""

TYPES = {
    "B": "unsigned char", "b": "signed char", "H": "unsigned short", "h": "short",
    "I": "unsigned int", "i": "int", "L": "unsigned long long", "l": "long long",
    "Q": "unsigned long long", "q": "long long", "?": "unsigned char", "f": "float", "d": "double",
}  # fmt: skip


def copy(src: Any, axes: Sequence[int], *, dtype: Any, scale: Any, shift: Any) -> Any | None:
    """Copy a CuPy array into another order of its axes; None where the kernel does not fit."""
    cupy = sys.modules["cupy"]
    factors = [None if f is None else cupy.asarray(f) for f in (scale, shift)]
    shapes = [None if f is None else tuple(f.shape) for f in factors]
    shape, strides = tuple(src.shape), tuple(src.strides)
    found = plan(Request(shape, strides, src.dtype, tuple(axes), dtype, shapes[0], shapes[1], None))
    items = item_types(found, src.dtype)
    if items is None or any(step % src.dtype.itemsize for step in strides):
        return None
    result = cupy.empty(found.shape, found.final)
    if found.size == 0:
        return result
    laid, steps = [], []
    for factor, neutral in zip(factors, (1.0, -0.0), strict=True):
        if factor is None:  # adding -0.0 keeps every number, -0.0 included
            made = cupy.full(1, neutral if found.final.kind == "f" else 0, items[1])
        else:
            made = merged_factor(found, factor.astype(found.compute), src.ndim)
        laid.append(cupy.ascontiguousarray(made))
        steps.append(factor_steps(made.shape, len(found.lengths)))
    numbers = table(found, src.dtype.itemsize, steps[0], steps[1])
    blocks = numbers[0] * numbers[5] * numbers[6]
    module = cupy.RawModule(code=source(*items), options=OPTIONS)
    args = (src, result, cupy.asarray(np.array(numbers, np.int64)), *laid)
    module.get_function("permute")((blocks,), (THREADS,), args)
    return result


OPTIONS = ("--fmad=false",)
"""Scale and shift are two rounded steps here as everywhere."""


def item_types(found: Plan, src: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the item types of the kernel; pure moves see items as unsigned integers."""
    if found.pure:
        moved = MOVED.get(src.itemsize)
        return None if moved is None else (np.dtype(moved), np.dtype(moved))
    known = src.char in CAST_FROM and found.final.char in CAST_TO and found.compute == found.final
    return (src, found.final) if known else None


@lru_cache(maxsize=64)
def source(item: np.dtype[Any], final: np.dtype[Any]) -> str:
    """Return the kernel's source for a pair of item types."""
    pure = item == final and final.kind not in "fd"
    named = {
        "ITEM": TYPES[item.char],
        "FINAL": TYPES[final.char],
        "FACTOR": TYPES[final.char],
        "PURE": int(pure),
        "TILE_ITEMS": tile_items(final),
        "MOST_ROWS": MOST_ROWS,
    }
    return "".join(f"#define {name} {value}\n" for name, value in named.items()) + SOURCE


def tile_items(final: np.dtype[Any]) -> int:
    """Return how many items of the result a tile in shared memory holds."""
    return min(TILE_ITEMS, TILE_BYTES // final.itemsize)


def factor_steps(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the items of a step along each merged axis of a C-contiguous factor."""
    whole = (1,) * (rank - len(shape)) + tuple(shape)
    steps = [math.prod(whole[axis + 1 :]) for axis in range(rank)]
    return tuple(0 if n == 1 else step for n, step in zip(whole, steps, strict=True))


def table(
    found: Plan, item_bytes: int, scale: Sequence[int], shift: Sequence[int]
) -> tuple[int, ...]:
    """Describe a copy to the kernel; see `SOURCE` for the meaning of each number."""
    lengths = found.lengths
    src = tuple(step // item_bytes for step in found.src_strides)
    fast = layout.fast_axis(found.src_strides, item_bytes)
    fast = len(lengths) - 1 if fast is None else fast
    outer, rows = range(fast - 1, -1, -1), range(len(lengths) - 1, fast, -1)
    n_rows = math.prod(lengths[axis] for axis in rows)
    tile_rows = min(n_rows, TILE_ROWS)
    items = tile_items(found.final)
    tile_fast = min(lengths[fast], items // tile_rows)
    tile_rows = min(n_rows, MOST_ROWS, items // tile_fast)
    # an odd number of words between rows keeps the columns of a tile in different banks
    words = -(-tile_fast * found.final.itemsize // 4) | 1
    pitch = words * 4 // found.final.itemsize if found.final.itemsize <= 4 else tile_fast | 1
    described = [
        math.prod(lengths[axis] for axis in outer), lengths[fast], n_rows, tile_fast, tile_rows,
        -(-lengths[fast] // tile_fast), -(-n_rows // tile_rows), pitch,
        src[fast], scale[fast], shift[fast], len(outer), len(rows),
    ]  # fmt: skip
    for axis in (*outer, *rows):
        described += [lengths[axis], src[axis], scale[axis], shift[axis]]
    return tuple(described)
