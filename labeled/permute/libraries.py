"""Permuting copies of arrays that are not NumPy's: they stay in their library.

Any library of the array-API standard serves by its own functions. CuPy arrays go to one kernel
of ours, which does everything in one pass, where it knows their dtypes.

**This has not run on a GPU yet.** The source is compiled for this processor by the tests, and
every result compared with NumPy's; speed and behaviour on a device are unknown.

The kernel gathers rows, permutes, casts, scales and shifts; what a copy does not ask for is not
compiled in. A block of threads copies one tile: it reads along the fast axis of the source,
converts, keeps the tile in shared memory, and writes along the destination, so both sides are
touched in whole segments. Rows are all axes behind the fast one, taken as one; the offset of each
row of a tile is computed once a block. Where the fast axis is the last one, too, rows are all axes
before it, and a block copies many short runs as they are. One compiled kernel for each pair of
item types serves every shape: the shape travels as a small table.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from labeled import device
from labeled.errors import ArrayError, DimsError
from labeled.permute import arguments, layout
from labeled.permute.arguments import Rows
from labeled.permute.blocked import merged_factor
from labeled.permute.plan import CAST_FROM, CAST_TO, MOVED, Plan, Request, plan

TILE_BYTES = 1 << 14
TILE_ITEMS = 1 << 12
TILE_ROWS = 64
MAX_ROWS = 512
"""Rows of a tile at most: what short fast axes (channels) are made up for with."""

THREADS = 256
MAX_BLOCKS = (1 << 31) - 1
"""What one launch takes along the first axis of its grid."""

SOURCE = r"""
typedef long long Big;
struct Offsets { Big src, along, scale, shift; };

#if HALF_ITEM || HALF_FINAL
#ifdef __CUDACC__
__device__ inline float widened(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ inline unsigned short halved(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif
#endif

// table: 0 outer steps, 1 n_fast, 2 n_rows, 3 tile_fast, 4 tile_rows, 5 tiles_fast, 6 tiles_rows,
// 7 pitch, 8..10 steps along the fast axis of source, scale, shift, 11 outer axes, 12 row axes,
// 13 whether the fast axis is the last one of the result, then (length, source, scale, shift,
// whether rows are gathered along it) of each outer axis and each row axis, the innermost first.
__device__ inline Big picked_row(const Big* axes, int count, Big index, Big found) {
    for (int k = 0; k < count; ++k, axes += 5) {
        Big next = index / axes[0];
        if (axes[4]) found = index - next * axes[0];
        index = next;
    }
    return found;
}

__device__ inline void walk(const Big* axes, int count, Big index, Offsets& at) {
    for (int k = 0; k < count; ++k, axes += 5) {
        Big next = index / axes[0], step = index - next * axes[0];
        at.src += step * axes[1];
        at.scale += step * axes[2];
        at.shift += step * axes[3];
        index = next;
    }
}

__device__ inline FINAL converted(ITEM value, FACTOR scale, FACTOR shift) {
#if PURE
    return value;
#else
#if HALF_ITEM
    const FACTOR wide = (FACTOR)widened(value);
#else
    const FACTOR wide = (FACTOR)value;
#endif
#if HALF_FINAL
    return halved(wide * scale + shift);
#else
    return wide * scale + shift;
#endif
#endif
}

// picked: the first item of each gathered row
extern "C" __global__ void permute(const ITEM* __restrict__ src, FINAL* __restrict__ dst,
                                   const Big* __restrict__ table,
                                   const Big* __restrict__ picked,
                                   const FACTOR* __restrict__ scale,
                                   const FACTOR* __restrict__ shift) {
    __shared__ FINAL tile[TILE_ITEMS + 16 * MAX_ROWS / sizeof(FINAL)];
    __shared__ Offsets rows[MAX_ROWS];
    const Big n_fast = table[1], n_rows = table[2];
    const int tile_fast = (int)table[3], tile_rows = (int)table[4], pitch = (int)table[7];
    const Big tiles = table[5] * table[6];
    const Big outer = blockIdx.x / tiles, rest = blockIdx.x - outer * tiles;
    const Big first = rest % table[5] * tile_fast, row = rest / table[5] * tile_rows;
    const int fasts = (int)(n_fast - first < tile_fast ? n_fast - first : tile_fast);
    const int count = (int)(n_rows - row < tile_rows ? n_rows - row : tile_rows);
    const int n_outer_axes = (int)table[11], n_row_axes = (int)table[12];
    const Big* outer_axes = table + 14;
    const Big* row_axes = outer_axes + 5 * n_outer_axes;
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        Offsets at = {0, table[8], 0, 0};
#if PICKED
        at.src = picked[picked_row(row_axes, n_row_axes, row + j,
                                   picked_row(outer_axes, n_outer_axes, outer, 0))];
#endif
        walk(outer_axes, n_outer_axes, outer, at);
        walk(row_axes, n_row_axes, row + j, at);
        rows[j] = at;
    }
    __syncthreads();
    // places go on by a block's threads: no division for each item
    const int threads = blockDim.x, items = fasts * count;
    const int next_row = threads / fasts, next_fast = threads % fasts;
    int j = threadIdx.x / fasts, i = threadIdx.x % fasts;
    if (table[13]) {
        for (int t = threadIdx.x; t < items; t += threads) {
            const Offsets at = rows[j];
            const Big along = first + i;
            dst[(row + j) * n_fast + along] = converted(src[at.src + along * at.along],
                                                        scale[at.scale + along * table[9]],
                                                        shift[at.shift + along * table[10]]);
            i += next_fast, j += next_row;
            if (i >= fasts) i -= fasts, ++j;
        }
        return;
    }
    for (int t = threadIdx.x; t < items; t += threads) {
        const Offsets at = rows[j];
        const Big along = first + i;
        tile[j * pitch + i] = converted(src[at.src + along * at.along],
                                        scale[at.scale + along * table[9]],
                                        shift[at.shift + along * table[10]]);
        i += next_fast, j += next_row;
        if (i >= fasts) i -= fasts, ++j;
    }
    __syncthreads();
    const int next_column = threads / count, next_along = threads % count;
    FINAL* const to = dst + (outer * n_fast + first) * n_rows + row;
    i = threadIdx.x / count, j = threadIdx.x % count;
    for (int t = threadIdx.x; t < items; t += threads) {
        to[i * n_rows + j] = tile[j * pitch + i];
        i += next_column, j += next_along;
        if (j >= count) j -= count, ++i;
    }
}
"""

TYPES = {
    "B": "unsigned char", "b": "signed char", "H": "unsigned short", "h": "short",
    "I": "unsigned int", "i": "int", "L": "unsigned long long", "l": "long long",
    "Q": "unsigned long long", "q": "long long", "?": "unsigned char", "f": "float", "d": "double",
    "e": "unsigned short",
}  # fmt: skip


class Items(NamedTuple):
    """What a kernel is compiled for."""

    item: np.dtype[Any]
    final: np.dtype[Any]
    factor: np.dtype[Any]
    picked: bool
    """Whether rows are gathered."""


def launch(
    src: Any, axes: Sequence[int], *, dtype: Any, scale: Any, shift: Any, rows: Rows | None = None
) -> Any | None:
    """Copy a CuPy array into another order of its axes; None where the kernel does not fit.

    Items of `src` lie at multiples of their size (:func:`aligned`).
    """
    cupy = sys.modules["cupy"]
    factors = [None if f is None else cupy.asarray(f) for f in (scale, shift)]
    shapes = [None if f is None else tuple(f.shape) for f in factors]
    shape, strides = tuple(src.shape), tuple(src.strides)
    n_rows = None if rows is None else len(rows)
    found = plan(
        Request(shape, strides, src.dtype, tuple(axes), dtype, shapes[0], shapes[1], n_rows)
    )
    items = item_types(found, src.dtype)
    if items is None:
        return None
    fast = fast_axis(found, src.dtype.itemsize)
    if fast is None:
        return None
    if found.size == 0:
        return cupy.empty(found.shape, found.final)
    item_bytes = items.item.itemsize
    laid, steps = [], []
    for factor, neutral in zip(factors, (1.0, -0.0), strict=True):
        if factor is None:  # adding -0.0 keeps every number, -0.0 included
            made = cupy.full(1, neutral if items.factor.kind == "f" else 0, items.factor)
        else:
            made = merged_factor(found, factor.astype(found.compute), src.ndim)
        laid.append(cupy.ascontiguousarray(made))
        steps.append(factor_steps(made.shape, len(found.lengths)))
    numbers = table(found, item_bytes, fast, steps)
    blocks = numbers[0] * numbers[5] * numbers[6]
    if blocks > MAX_BLOCKS:
        return None
    tables = [np.array(numbers, np.int64)]
    if rows is not None:
        tables.append(rows * (strides[0] // item_bytes))
    sent = cupy.asarray(np.concatenate(tables))  # one trip to the device
    module = cupy.RawModule(code=source(items), options=OPTIONS)
    result = cupy.empty(found.shape, found.final)
    args = (src, result, sent, sent[len(numbers) :], *laid)
    module.get_function("permute")((blocks,), (THREADS,), args)
    return result


def aligned(src: Any) -> Any:
    """Return a CuPy array, copied byte by byte if its items are not at multiples of their size.

    A view of bytes may begin anywhere; a device cannot load items from there.
    """
    size = src.dtype.itemsize
    if not any(place % size for place in (address(src), *src.strides)):
        return src
    cupy = sys.modules["cupy"]
    memory = cupy.ndarray((*src.shape, size), np.uint8, src.data, (*src.strides, 1))
    return cupy.ascontiguousarray(memory).view(src.dtype)[..., 0]


def address(src: Any) -> int:
    """Return where the first item of a CuPy array lies on its device."""
    return int(src.data.ptr)


OPTIONS = ("--fmad=false",)
"""Scale and shift are two rounded steps here as everywhere."""


def item_types(found: Plan, src: np.dtype[Any]) -> Items | None:
    """Return the item types of the kernel; pure moves see items as unsigned integers."""
    picked = found.axis is not None
    if found.pure:
        moved = MOVED.get(src.itemsize)
        if moved is None:
            return None
        item: np.dtype[Any] = np.dtype(moved)
        return Items(item, item, item, picked)
    final = found.final
    factor = np.dtype(np.float64 if final.char == "d" else np.float32)
    known = src.char in CAST_FROM | {"e"} and final.char in CAST_TO | {"e"}
    known = known and src.isnative and found.compute in (final, factor)
    twice = final.char == "e" and src.char == "d"  # would be rounded twice
    return Items(src, final, factor, picked) if known and not twice else None


@lru_cache(maxsize=64)
def source(items: Items) -> str:
    """Return the kernel's source for some item types."""
    named = {
        "ITEM": TYPES[items.item.char],
        "FINAL": TYPES[items.final.char],
        "FACTOR": TYPES[items.factor.char],
        "PURE": int(items.factor.kind != "f"),
        "HALF_ITEM": int(items.item.char == "e"),
        "HALF_FINAL": int(items.final.char == "e"),
        "PICKED": int(items.picked),
        "TILE_ITEMS": tile_items(items.final),
        "MAX_ROWS": MAX_ROWS,
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


def fast_axis(found: Plan, item_bytes: int) -> int | None:
    """Return the axis along which tiles are read; None where gathered rows are single items."""
    axes = [axis for axis in range(len(found.lengths)) if axis != found.axis]
    near = layout.fast_axis([found.src_strides[axis] for axis in axes], item_bytes)
    if near is not None:
        return axes[near]
    return axes[-1] if axes else None


def table(
    found: Plan, item_bytes: int, fast: int, factors: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Describe a copy to the kernel; see `SOURCE` for the meaning of each number."""
    lengths, (scale, shift) = found.lengths, factors
    src = [step // item_bytes for step in found.src_strides]
    if found.axis is not None:
        src[found.axis] = 0
    outer, rows = range(fast - 1, -1, -1), range(len(lengths) - 1, fast, -1)
    runs = not rows
    if runs:
        outer, rows = rows, outer
    n_rows = math.prod(lengths[axis] for axis in rows)
    items = tile_items(found.final)
    tile_rows = 1 if runs else min(n_rows, TILE_ROWS)
    tile_fast = min(lengths[fast], items // tile_rows)
    tile_rows = min(n_rows, MAX_ROWS, items // tile_fast)
    # an odd number of words between rows keeps the columns of a tile in different banks
    words = -(-tile_fast * found.final.itemsize // 4) | 1
    pitch = words * 4 // found.final.itemsize if found.final.itemsize <= 4 else tile_fast | 1
    described = [
        math.prod(lengths[axis] for axis in outer), lengths[fast], n_rows, tile_fast, tile_rows,
        -(-lengths[fast] // tile_fast), -(-n_rows // tile_rows), pitch,
        src[fast], scale[fast], shift[fast], len(outer), len(rows), int(runs),
    ]  # fmt: skip
    for axis in (*outer, *rows):
        described += [lengths[axis], src[axis], scale[axis], shift[axis], int(axis == found.axis)]
    return tuple(described)


# ---------------------------------------------------------------- any other library
def namespace(array: Any) -> Any:
    """Return the array-API namespace of `array`; CuPy itself for its arrays, which name none."""
    try:
        return device.namespace(array)
    except TypeError:
        raise ArrayError(
            f"{type(array).__name__} is neither a NumPy array nor one of an array-API library; "
            f"pass numpy.asarray(...) of it"
        ) from None


def copy(src: Any, axes: Sequence[int], *, out: Any, dtype: Any, scale: Any, shift: Any) -> Any:
    """Return `src` permuted, cast and scaled; the same rules as for NumPy arrays."""
    if device.is_cupy(src) and out is None:
        src = aligned(src)
        made = launch(src, axes, dtype=dtype, scale=scale, shift=shift)
        if made is not None:
            return made
    xp = namespace(src)
    order = arguments.checked_order(axes, src.ndim)
    if out is not None:
        raise ArrayError(f"out is for NumPy arrays; leave it out for {type(src).__name__}")
    final = dtype
    result = xp.permute_dims(src, order)
    if scale is not None or shift is not None:
        compute, final = _dtypes(xp, src.dtype, dtype)
        result = xp.astype(result, compute)
        if scale is not None:
            result = result * _factor(xp, src, scale, compute, order)
        if shift is not None:
            result = result + _factor(xp, src, shift, compute, order)
    result = result if final is None else xp.astype(result, final)
    return device.owned_copy(result)


def gather(
    src: Any, rows: Any, axes: Sequence[int], *, out: Any, dtype: Any, scale: Any, shift: Any
) -> Any:
    """Return ``src[rows]`` permuted, cast and scaled; the same rules as for NumPy arrays."""
    xp = namespace(src)
    if src.ndim == 0:
        raise DimsError("an array of rank 0 has no rows to gather; pass rank 1 or more")
    changes = {"dtype": dtype, "scale": scale, "shift": shift}
    chosen = arguments.checked_rows(rows, src.shape[0])
    if device.is_cupy(src) and out is None:
        src = aligned(src)
        made = launch(src, axes, rows=chosen, **changes)
        if made is not None:
            return made
    return copy(xp.take(src, xp.asarray(chosen), axis=0), axes, out=out, **changes)


def _dtypes(xp: Any, src: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the dtypes of the arithmetic and of the result."""
    if isinstance(src, np.dtype):  # CuPy's dtypes are NumPy's
        result = arguments.result_dtype(src, dtype, True)
        return arguments.compute_dtype(src, result), result
    small = (xp.bool, xp.int8, xp.uint8, xp.int16, xp.uint16, xp.int32, xp.uint32)
    default = xp.float32 if src in small else src if xp.isdtype(src, "real floating") else None
    final = dtype if dtype is not None else default if default is not None else xp.float64
    narrow = (src in small or src == xp.float32) and final == xp.float32
    return (xp.float32 if narrow else xp.float64), final


def _factor(xp: Any, src: Any, value: Any, compute: Any, order: tuple[int, ...]) -> Any:
    """Return a scale or shift on the device of `src`, in the order of the result."""
    there = {} if device.is_cupy(src) else {"device": src.device}  # CuPy's is the current one
    factor = xp.asarray(value, dtype=compute, **there)
    factor = xp.reshape(factor, (1,) * (src.ndim - factor.ndim) + tuple(factor.shape))
    return xp.permute_dims(factor, order)
