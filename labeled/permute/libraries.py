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
item types serves every shape: the shape travels with the launch, as a small table.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled import device
from labeled.errors import ArrayError, DimsError
from labeled.permute import arguments
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

NARROW_ITEMS = (1 << 31) - (1 << 16)
"""Arrays of fewer items are walked with 32-bit numbers."""

MAX_AXES = 12
TABLE_NUMBERS = 14 + 5 * MAX_AXES
WORD_BYTES = 4
FEW_FACTORS = 64
"""So many factors travel with a launch, whose arguments may take 4 KiB."""

SOURCE = r"""
typedef INDEX Big;
typedef unsigned int Word;
struct Table { Big number[TABLE_NUMBERS]; };
struct Factors { FACTOR scale[FEW_FACTORS], shift[FEW_FACTORS]; };
struct Place {
    Big src;
#if SCALED
    Big scale;
#endif
#if SHIFTED
    Big shift;
#endif
};

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

// The table: 0 outer steps, 1 n_fast, 2 n_rows, 3 tile_fast, 4 tile_rows, 5 tiles_fast,
// 6 tiles_rows, 7 pitch, 8..10 steps along the fast axis of source, scale, shift, 11 outer axes,
// 12 row axes, 13 whether the fast axis is the last one of the result, then (length, source,
// scale, shift, whether rows are gathered along it) of each outer axis and each row axis, the
// innermost first.
__device__ inline Big picked_row(const Table& table, int from, int count, Big index, Big found) {
    for (int k = 0; k < count; ++k, from += 5) {
        Big next = index / table.number[from];
        if (table.number[from + 4]) found = index - next * table.number[from];
        index = next;
    }
    return found;
}

__device__ inline void walk(const Table& table, int from, int count, Big index, Place& at) {
    for (int k = 0; k < count; ++k, from += 5) {
        Big next = index / table.number[from], step = index - next * table.number[from];
        at.src += step * table.number[from + 1];
#if SCALED
        at.scale += step * table.number[from + 2];
#endif
#if SHIFTED
        at.shift += step * table.number[from + 3];
#endif
        index = next;
    }
}

__device__ inline FINAL converted(const Table& table, const ITEM* __restrict__ src,
                                  const FACTOR* scale, const FACTOR* shift, const Place& at,
                                  Big along) {
    const ITEM value = src[at.src + along * table.number[8]];
#if PURE
    return value;
#else
#if HALF_ITEM
    FACTOR wide = (FACTOR)widened(value);
#else
    FACTOR wide = (FACTOR)value;
#endif
#if SCALED
    wide = wide * scale[at.scale + along * table.number[9]];
#endif
#if SHIFTED
    wide = wide + shift[at.shift + along * table.number[10]];
#endif
#if HALF_FINAL
    return halved(wide);
#else
    return wide;
#endif
#endif
}

// picked: the first item of each gathered row
extern "C" __global__ void permute(const ITEM* __restrict__ src, FINAL* __restrict__ dst,
                                   const Big* __restrict__ picked,
                                   const __grid_constant__ Table table,
#if FEW
                                   const __grid_constant__ Factors factors) {
    const FACTOR* scale = factors.scale;
    const FACTOR* shift = factors.shift;
#else
                                   const FACTOR* __restrict__ scale,
                                   const FACTOR* __restrict__ shift) {
#endif
    __shared__ __align__(8) FINAL tile[TILE_ITEMS + 16 * MAX_ROWS / sizeof(FINAL)];
    __shared__ Place rows[MAX_ROWS];
    const Big n_fast = table.number[1], n_rows = table.number[2];
    const int tile_fast = (int)table.number[3], tile_rows = (int)table.number[4];
    const int pitch = (int)table.number[7];
    const Big tiles_rows = table.number[6], tiles = table.number[5] * tiles_rows;
    const Big outer = blockIdx.x / tiles, rest = blockIdx.x - outer * tiles;
    // neighbours write next to one another: what they share of a line is joined in the cache
    const Big fast_tile = rest / tiles_rows;
    const Big first = fast_tile * tile_fast, row = (rest - fast_tile * tiles_rows) * tile_rows;
    const int fasts = (int)(n_fast - first < tile_fast ? n_fast - first : tile_fast);
    const int count = (int)(n_rows - row < tile_rows ? n_rows - row : tile_rows);
    const int n_outer_axes = (int)table.number[11], n_row_axes = (int)table.number[12];
    const int outer_axes = 14, row_axes = outer_axes + 5 * n_outer_axes;
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        Place at = {};
#if PICKED
        at.src = picked[picked_row(table, row_axes, n_row_axes, row + j,
                                   picked_row(table, outer_axes, n_outer_axes, outer, 0))];
#endif
        walk(table, outer_axes, n_outer_axes, outer, at);
        walk(table, row_axes, n_row_axes, row + j, at);
        rows[j] = at;
    }
    __syncthreads();
    // places go on by a block's threads: no division for each item
    const int threads = blockDim.x;
#if PACK > 1
    // a word of PACK items at a time, on both sides
    const int words = fasts / PACK, word_rows = count / PACK;
    const int next_line = threads / words, next_word = threads % words;
    int line = threadIdx.x / words, word = threadIdx.x % words;
    for (int t = threadIdx.x; t < words * count; t += threads) {
        *(Word*)&tile[line * pitch + word * PACK] =
            *(const Word*)&src[rows[line].src + first + word * PACK];
        word += next_word, line += next_line;
        if (word >= words) word -= words, ++line;
    }
    __syncthreads();
    FINAL* const packed = dst + (outer * n_fast + first) * n_rows + row;
    const int next_item = threads / word_rows, next_four = threads % word_rows;
    int item = threadIdx.x / word_rows, four = threadIdx.x % word_rows;
    for (int t = threadIdx.x; t < fasts * word_rows; t += threads) {
        Word made = 0;
        for (int k = 0; k < PACK; ++k)
            made |= (Word)tile[(four * PACK + k) * pitch + item] << (8 * sizeof(FINAL) * k);
        *(Word*)&packed[item * n_rows + four * PACK] = made;
        four += next_four, item += next_item;
        if (four >= word_rows) four -= word_rows, ++item;
    }
    return;
#endif
    const int items = fasts * count;
    const int next_row = threads / fasts, next_fast = threads % fasts;
    int j = threadIdx.x / fasts, i = threadIdx.x % fasts;
    const int last = (int)table.number[13];
    for (int t = threadIdx.x; t < items; t += threads) {
        const Big along = first + i;
        const FINAL value = converted(table, src, scale, shift, rows[j], along);
        if (last) dst[(row + j) * n_fast + along] = value;
        else tile[j * pitch + i] = value;
        i += next_fast, j += next_row;
        if (i >= fasts) i -= fasts, ++j;
    }
    if (last) return;
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
    scaled: bool = False
    shifted: bool = False
    few: bool = False
    """Whether factors travel with the launch, rather than lie on the device."""
    pack: int = 1
    """How many items are moved at a time, as one word of four bytes."""
    wide: bool = False
    """Whether places need 64 bits; with 32 a thread takes less than half as many registers."""

    @property
    def place(self) -> np.dtype[Any]:
        return np.dtype(np.int64 if self.wide else np.int32)


class Launch(NamedTuple):
    """How the kernel makes a copy; the same for every array of a shape."""

    found: Plan
    items: Items
    blocks: int
    table: npt.NDArray[Any]


def launch(
    src: Any, axes: Sequence[int], *, dtype: Any, scale: Any, shift: Any, rows: Rows | None = None
) -> Any | None:
    """Copy a CuPy array into another order of its axes; None where the kernel does not fit.

    Items of `src` lie at multiples of their size (:func:`aligned`). What describes the copy
    travels with the launch, and so do factors that are few and on the host: nothing but the
    numbers of gathered rows is sent to the device first.
    """
    cupy = sys.modules["cupy"]
    if dtype is None and scale is None and shift is None:
        item = run_item(src, axes)
        if item is not None:
            shape = (*src.shape[:-1], src.shape[-1] * src.dtype.itemsize // item.itemsize)
            steps = (*src.strides[:-1], item.itemsize)
            runs = cupy.ndarray(shape, item, src.data, steps)
            made = launch(runs, axes, dtype=None, scale=None, shift=None, rows=rows)
            if made is not None:
                return made.view(src.dtype)
    factors = [f if f is None or device.is_cupy(f) else np.asarray(f) for f in (scale, shift)]
    shapes = [None if f is None else tuple(f.shape) for f in factors]
    n_rows = None if rows is None else len(rows)
    how = planned(
        Request(
            tuple(src.shape), tuple(src.strides), src.dtype, tuple(axes), dtype, shapes[0],
            shapes[1], n_rows,
        )
    )  # fmt: skip
    if how is None or how.blocks > MAX_BLOCKS:
        return None
    found, items = how.found, how.items
    result = cupy.empty(found.shape, found.final)
    if not found.size:
        return result
    if address(src) % WORD_BYTES:
        items = items._replace(pack=1)
    picked = src
    if rows is not None:
        first = rows * (src.strides[0] // src.dtype.itemsize)
        picked = cupy.asarray(first.astype(items.place))
    merged = [
        None if f is None else merged_factor(found, f.astype(found.compute), src.ndim)
        for f in factors
    ]
    if items.few and not any(device.is_cupy(f) for f in factors):
        sent: tuple[Any, ...] = (packed_factors(merged, items.factor),)
    else:
        items = items._replace(few=False)
        sent = tuple(src if f is None else cupy.ascontiguousarray(cupy.asarray(f)) for f in merged)
    run = kernel(cupy, items, device_id(src))
    run((how.blocks,), (THREADS,), (src, result, picked, how.table, *sent))
    return result


@lru_cache(maxsize=512)
def planned(request: Request) -> Launch | None:
    """Describe a copy to the kernel; None where it does not fit."""
    found = plan(request)
    items = item_types(found, request.dtype)
    axes = [axis for axis in range(len(found.lengths)) if axis != found.axis]
    if items is None or not axes or len(found.lengths) > MAX_AXES:
        return None
    fast = axes[-1] if found.fast is None else found.fast
    if not found.size:
        return Launch(found, items, 0, np.empty(0, items.place))
    item_bytes = request.dtype.itemsize
    lines = zip(request.shape, request.strides, strict=True)
    reach = sum([(n - 1) * abs(step) for n, step in lines])
    wide = max(reach // item_bytes, found.size) >= NARROW_ITEMS
    steps, sizes = [], []
    for shape in (request.scale_shape, request.shift_shape):
        made = np.zeros(() if shape is None else shape, np.bool_)
        made = merged_factor(found, made, len(request.shape))
        sizes.append(made.size)
        steps.append(factor_steps(made.shape, len(found.lengths)))
    numbers = table(found, item_bytes, fast, steps)
    items = items._replace(
        pack=word_items(found, fast, numbers),
        scaled=request.scale_shape is not None,
        shifted=request.shift_shape is not None,
        few=not found.pure and max(sizes) <= FEW_FACTORS,
        wide=wide,
    )
    whole = np.zeros(TABLE_NUMBERS, items.place)
    whole[: len(numbers)] = numbers
    return Launch(found, items, numbers[0] * numbers[5] * numbers[6], whole)


def word_items(found: Plan, fast: int, numbers: Sequence[int]) -> int:
    """Return how many items of a tile fill a word; 1 where words would not lie together.

    Small items that only move are loaded and stored four bytes at a time.
    """
    pack = WORD_BYTES // found.final.itemsize
    _, n_fast, n_rows, tile_fast, tile_rows = numbers[:5]
    steps = [step for axis, step in enumerate(found.src_strides) if axis != fast]
    fits = not any(n % pack for n in (n_fast, n_rows, tile_fast, tile_rows) if pack)
    fits = fits and not any(step % WORD_BYTES for step in steps)
    in_tiles = not numbers[13] and numbers[8] == 1
    return pack if found.pure and pack > 1 and fits and in_tiles else 1


def packed_factors(merged: Sequence[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return scale and shift as the kernel's `Factors`."""
    whole = np.zeros((2, FEW_FACTORS), dtype)
    for line, factor in zip(whole, merged, strict=True):
        if factor is not None:
            line[: factor.size] = factor.reshape(-1)
    return whole


@lru_cache(maxsize=256)
def kernel(cupy: Any, items: Items, number: int) -> Any:
    """Return the kernel for some item types on a device."""
    return cupy.RawModule(code=source(items), options=OPTIONS).get_function("permute")


def run_item(src: Any, axes: Sequence[int]) -> np.dtype[Any] | None:
    """Return wider items to move, where the last axis stays as it lies; None where none fit."""
    last = src.ndim - 1
    if last < 1 or axes[-1] not in (last, -1) or src.strides[-1] != src.dtype.itemsize:
        return None
    n_bytes = src.shape[-1] * src.dtype.itemsize
    width = math.gcd(8, n_bytes, address(src), *src.strides[:-1])
    return np.dtype(MOVED[width]) if width > src.dtype.itemsize else None


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


def device_id(src: Any) -> int:
    """Return the number of the device that a CuPy array lives on."""
    return int(src.device.id)


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
        "SCALED": int(items.scaled),
        "SHIFTED": int(items.shifted),
        "FEW": int(items.few),
        "PACK": items.pack,
        "FEW_FACTORS": FEW_FACTORS,
        "INDEX": TYPES[items.place.char],
        "TABLE_NUMBERS": TABLE_NUMBERS,
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
