"""Permuting copies of CuPy arrays, by one kernel: the only module that holds CUDA.

The source is compiled for this processor by the tests, and every result compared with NumPy's; on
a GPU the same is done by those marked `gpu`. On an H200, of 256 MiB each and as parts of what its
own copies reach (4.2 TB/s), the median of the 24 orders of four axes is 0.70 for `float32` (worst
0.37), 0.21 for bytes (0.10) and 0.40 for bytes cast to `float32` and scaled (0.22); CuPy's own
takes 2.5, 5 and 10 times as long. With one word under way a thread, the first came at 0.55.

The kernel gathers rows, permutes, casts, scales and shifts in one pass; what a copy does not ask
for is not compiled in. A block of threads copies one tile: it reads along the fast axis of the
source, converts, keeps the tile in shared memory, and writes along the destination, so both sides
are touched in whole segments. Rows are all axes behind the fast one, taken as one; the offset of
each row of a tile is computed once a block. Where the fast axis is the last one, too, rows are all
axes before it, and a block copies many short runs. One compiled kernel for each pair
of item types serves every shape: the shape travels with the launch, as a small table.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.device import is_cupy
from labeled.permute.plan import CopyPlan, Rows, packed, plan_of

TILE_BYTES = 1 << 14
TILE_ITEMS = 1 << 13
# Of items of a word or more, and of smaller ones. Medians of a kernel before this one: bytes came
# at 0.35 in tiles of 8192 items and 128 rows by 128 threads, and at 0.26 in 4096, 64 and 256; cast
# to float32 and scaled at 0.49 in 4096, 128 and 128, and at 0.41 in 4096, 64 and 256.
TILE_ROWS, SMALL_TILE_ROWS = 64, 128
MAX_ROWS = 512  # rows of a tile at most: what short fast axes (channels) are made up for with

THREADS, WORD_THREADS = 256, 128  # of a block: of such that load an item, or several, at a time
MAX_BLOCKS = (1 << 31) - 1  # what one launch takes along the first axis of its grid

NARROW_ITEMS = (1 << 31) - (1 << 16)  # arrays of fewer items are walked with 32-bit numbers

MAX_AXES = 12
TABLE_NUMBERS = 13 + 4 * MAX_AXES
WORD_BYTES = 4
FEW_FACTORS = 64  # so many factors travel with a launch, whose arguments may take 4 KiB

UNDER_WAY = 4  # words that a thread has asked for and not yet got

OPTIONS = ("--fmad=false",)  # scale and shift are two rounded steps here as everywhere

SOURCE = r"""
#ifndef PRAGMA_UNROLL
#define PRAGMA_UNROLL _Pragma("unroll")
#endif
typedef INDEX Big;
typedef unsigned int Word;
struct Table { Big number[TABLE_NUMBERS]; };
struct Factors { FINAL scale[FEW_FACTORS], shift[FEW_FACTORS]; };
struct Place { Big src, factor; };

// The table: 0 outer steps, 1 n_fast, 2 n_rows, 3 tile_fast, 4 tile_rows, 5 tiles_fast,
// 6 tiles_rows, 7 whether a tile lies in one piece, 8 and 9 steps along the fast axis of source
// and factors, 10 outer axes, 11 row axes, 12 whether the fast axis is the last one of the result,
// then (length, source, factors, whether rows are gathered along it) of each outer axis and each
// row axis, the innermost first.
__device__ inline Big walk(const Table& table, int from, int count, Big index, Place& at,
                           Big picked) {
    for (int k = 0; k < count; ++k, from += 4) {
        Big next = index / table.number[from], step = index - next * table.number[from];
        at.src += step * table.number[from + 1];
        at.factor += step * table.number[from + 2];
        if (table.number[from + 3]) picked = step;
        index = next;
    }
    return picked;
}

__device__ inline FINAL converted(const Table& table, ITEM value, const FINAL* scale,
                                  const FINAL* shift, const Place& at, Big along) {
#if PURE
    return value;
#else
    FINAL wide = (FINAL)value;
#if SCALED
    const Big factor = at.factor + along * table.number[9];
    wide = wide * scale[factor];
    wide = wide + shift[factor];
#endif
    return wide;
#endif
}

// Small items are loaded and stored a word of four bytes at a time. A word that holds items of
// others, too, at an end of a line, is taken apart: `behind` tells where in a word a line begins.
#if LOAD > 1
union Loaded { Word word; ITEM item[LOAD]; };
#else
union Loaded { ITEM word, item[1]; };
#endif
#if STORE > 1
union Stored { Word word; FINAL item[STORE]; };
#else
union Stored { FINAL word, item[1]; };
#endif
__device__ inline int behind(const void* line, int item_bytes, int items) {
    return (int)((unsigned long long)line / item_bytes % items);
}
// How often a length, of which the inverse is given, fits before a place of a tile: a tile is
// small enough for this to be exact.
__device__ inline int times(int at, float inverse) { return (int)floorf((at + 0.5f) * inverse); }

// picked: the first item of each gathered row
extern "C" __global__ void permute(const ITEM* __restrict__ src, FINAL* __restrict__ dst,
                                   const Big* __restrict__ picked,
                                   const __grid_constant__ Table table,
#if FEW
                                   const __grid_constant__ Factors factors) {
    const FINAL* scale = factors.scale;
    const FINAL* shift = factors.shift;
#else
                                   const FINAL* __restrict__ scale,
                                   const FINAL* __restrict__ shift) {
#endif
    __shared__ __align__(8) FINAL tile[TILE_ITEMS + MAX_ROWS];
    __shared__ Place rows[MAX_ROWS];
    const Big n_fast = table.number[1], n_rows = table.number[2];
    const int tile_fast = (int)table.number[3], tile_rows = (int)table.number[4];
    const int pitch = tile_fast | 1;  // odd: columns of a tile lie in different banks
    const Big tiles_rows = table.number[6], tiles = table.number[5] * tiles_rows;
    const Big outer = blockIdx.x / tiles, rest = blockIdx.x - outer * tiles;
    // neighbours write next to one another: what they share of a line is joined in the cache
    const Big fast_tile = rest / tiles_rows;
    const Big first = fast_tile * tile_fast, row = (rest - fast_tile * tiles_rows) * tile_rows;
    const int fasts = (int)(n_fast - first < tile_fast ? n_fast - first : tile_fast);
    const int count = (int)(n_rows - row < tile_rows ? n_rows - row : tile_rows);
    const int n_outer_axes = (int)table.number[10], n_row_axes = (int)table.number[11];
    const int outer_axes = 13, row_axes = outer_axes + 4 * n_outer_axes;
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        Place at = {};
        Big from = walk(table, outer_axes, n_outer_axes, outer, at, 0);
        from = walk(table, row_axes, n_row_axes, row + j, at, from);
#if PICKED
        at.src += picked[from];
#endif
        rows[j] = at;
    }
    __syncthreads();
    const Big step = table.number[8];
    const int threads = blockDim.x;
    if (LOAD > 1 && table.number[7]) {  // a tile in one piece is read as one line, by all threads
        const int length = count * fasts;
        const ITEM* const from = src + rows[0].src + first * step;
        const float of_fasts = 1.0f / fasts;
        for (int at = threadIdx.x * LOAD - behind(from, sizeof(ITEM), LOAD); at < length;
             at += blockDim.x * LOAD) {
            const bool whole = at >= 0 && at + LOAD <= length;
            Loaded loaded = {};
            if (whole) loaded.word = *(decltype(loaded.word)*)(from + at);
            int j = times(at, of_fasts), i = at - j * fasts;
            for (int k = 0; k < LOAD; ++k) {
                if (at + k >= 0 && at + k < length)
                    tile[j * pitch + i] = converted(
                        table, whole ? loaded.item[k] : from[at + k], scale, shift, rows[j],
                        first + i);
                if (++i == fasts) i = 0, ++j;
            }
        }
    } else {
        // Each thread reads several words before it stores them: how many are under way at a time
        // decides how fast this is.
        const int words = (fasts + 2 * LOAD - 2) / LOAD;  // wherever a line begins
        const int next_line = threads / words, next_word = threads % words;
        int line = threadIdx.x / words, word = threadIdx.x % words;
        while (line < count) {
            Loaded loaded[UNDER_WAY];
            int j[UNDER_WAY], at[UNDER_WAY];
            PRAGMA_UNROLL
            for (int n = 0; n < UNDER_WAY; ++n) {
                j[n] = line, at[n] = fasts;
                if (line < count) {
                    const ITEM* const from = src + rows[line].src + first * step;
                    at[n] = word * LOAD - behind(from, sizeof(ITEM), LOAD);
                    if (at[n] >= 0 && at[n] + LOAD <= fasts) {
                        if (LOAD > 1) loaded[n].word = *(decltype(loaded[n].word)*)(from + at[n]);
                        else loaded[n].item[0] = from[at[n] * step];
                    }
                }
                word += next_word, line += next_line;
                if (word >= words) word -= words, ++line;
            }
            PRAGMA_UNROLL
            for (int n = 0; n < UNDER_WAY; ++n) {
                FINAL* const to = tile + j[n] * pitch + at[n];
                if (at[n] >= 0 && at[n] + LOAD <= fasts) {
                    for (int k = 0; k < LOAD; ++k)
                        to[k] = converted(table, loaded[n].item[k], scale, shift, rows[j[n]],
                                          first + at[n] + k);
                } else {  // an end of a line; or nothing, behind the last
                    for (int k = 0; k < LOAD; ++k)
                        if (at[n] + k >= 0 && at[n] + k < fasts)
                            to[k] = converted(
                                table, src[rows[j[n]].src + (first + at[n] + k) * step], scale,
                                shift, rows[j[n]], first + at[n] + k);
                }
            }
        }
    }
    __syncthreads();
    const bool last = table.number[12];
    const Big apart = last ? n_fast : n_rows;  // from one line of the result to the next
    const int each = last ? fasts : count, all = last ? count : fasts;
    const bool together = STORE > 1 && each == apart;
    const int to_lines = together ? 1 : all, to_length = together ? each * all : each;
    const int to_words = (to_length + 2 * STORE - 2) / STORE;
    const int next_line = threads / to_words, next_word = threads % to_words;
    const int down = last ? pitch : 1, along = last ? 1 : pitch;
    const float of_each = 1.0f / each;
    FINAL* const begin = dst + (last ? row * n_fast + first
                                     : (outer * n_fast + first) * n_rows + row);
    int line = threadIdx.x / to_words, word = threadIdx.x % to_words;
    while (line < to_lines) {
        FINAL* const to = begin + line * apart;
        const int at = word * STORE - behind(to, sizeof(FINAL), STORE);
        const bool whole = at >= 0 && at + STORE <= to_length;
        Stored stored = {};
        if (whole && !together) {
            for (int k = 0; k < STORE; ++k)
                stored.item[k] = tile[line * down + (at + k) * along];
        } else {
            int j = line, i = at;
            if (together) j = times(at, of_each), i = at - j * each;
            for (int k = 0; k < STORE; ++k) {
                if (at + k >= 0 && at + k < to_length)
                    stored.item[k] = tile[j * down + i * along];
                if (++i == each && together) i = 0, ++j;
            }
        }
        if (STORE == 1 && whole) to[at] = stored.item[0];
        else if (whole) *(decltype(stored.word)*)(to + at) = stored.word;
        else for (int k = 0; k < STORE; ++k)
            if (at + k >= 0 && at + k < to_length) to[at + k] = stored.item[k];
        word += next_word, line += next_line;
        if (word >= to_words) word -= to_words, ++line;
    }
}
"""

TYPES = {
    "B": "unsigned char", "b": "signed char", "H": "unsigned short", "h": "short",
    "I": "unsigned int", "i": "int", "L": "unsigned long long", "l": "long long",
    "Q": "unsigned long long", "q": "long long", "?": "unsigned char", "f": "float", "d": "double",
}  # fmt: skip


class Items(NamedTuple):
    """What a kernel is compiled for."""

    item: np.dtype[Any]
    final: np.dtype[Any]
    picked: bool  # whether rows are gathered
    scaled: bool
    # of places: with 32 bits a thread takes less than half as many registers as with 64
    place: np.dtype[Any]
    few: bool = False  # whether factors travel with the launch, rather than lie on the device
    load: int = 1  # how many items are read at a time, as one word of four bytes


class Launch(NamedTuple):
    """How the kernel makes a copy; the same for every array of a shape."""

    items: Items
    blocks: int
    table: npt.NDArray[Any]


def copied(
    src: Any, rows: Rows | None, axes: Sequence[int], dtype: Any, scale: Any, shift: Any
) -> Any | None:
    """Copy a CuPy array into another order of its axes; None where the kernel does not fit.

    What describes the copy travels with the launch, and so do factors that are few: nothing but
    the numbers of gathered rows is sent to the device first. Factors are the host's.
    """
    cupy = sys.modules["cupy"]
    if dtype is None and scale is None and shift is None:
        item = _run_item(src, axes)
        if item is not None:
            shape = (*src.shape[:-1], src.shape[-1] * src.dtype.itemsize // item.itemsize)
            steps = (*src.strides[:-1], item.itemsize)
            runs = cupy.ndarray(shape, item, src.data, steps)
            made = copied(runs, rows, axes, None, None, None)
            if made is not None:
                return made.view(src.dtype)
    if is_cupy(scale) or is_cupy(shift):
        return None
    shapes = [None if one is None else np.shape(one) for one in (scale, shift, rows)]
    found = plan_of(src.shape, src.strides, src.dtype, tuple(axes), dtype, *shapes)
    launch = launch_of(found)
    if launch is None or launch.blocks > MAX_BLOCKS:
        return None
    items, result = launch.items, cupy.empty(found.shape, found.final)
    if not found.size:
        return result
    picked = src
    if rows is not None:
        first = rows * (src.strides[0] // src.dtype.itemsize)
        picked = cupy.asarray(first.astype(items.place))
    sent: tuple[Any, ...] = (src, src)
    if found.scaled:
        given = [1.0 if scale is None else scale, -0.0 if shift is None else shift]
        both = np.broadcast_arrays(
            *(found.over_axes(np.asarray(one, found.compute), src.ndim) for one in given)
        )
        if items.few:
            few = np.zeros((2, FEW_FACTORS), found.compute)
            few[:, : both[0].size] = [one.reshape(-1) for one in both]
            sent = (by_value(few),)
        else:
            sent = tuple(cupy.asarray(np.ascontiguousarray(one)) for one in both)
    run = kernel(cupy, items, int(src.device.id))
    threads = THREADS if items.load == 1 else WORD_THREADS
    run((launch.blocks,), (threads,), (src, result, picked, launch.table, *sent))
    return result


def _run_item(src: Any, axes: Sequence[int]) -> np.dtype[Any] | None:
    """Return wider items to move, where the last axis stays as it lies; None where none fit."""
    last = src.ndim - 1
    if last < 1 or axes[-1] not in (last, -1) or src.strides[-1] != src.dtype.itemsize:
        return None
    n_bytes = src.shape[-1] * src.dtype.itemsize
    width = math.gcd(8, n_bytes, int(src.data.ptr), *src.strides[:-1])
    return np.dtype(f"u{width}") if width > src.dtype.itemsize else None


@lru_cache(maxsize=512)
def launch_of(found: CopyPlan) -> Launch | None:
    """Describe a copy to the kernel, see `SOURCE`; None where it does not fit."""
    item_bytes = found.item.itemsize
    axes = [axis for axis in range(len(found.lengths)) if axis != found.axis]
    wide = max(found.reach // item_bytes, found.size) >= NARROW_ITEMS
    types, place = found.kernel_items(), np.dtype(np.int64 if wide else np.int32)
    if types is None or not axes or len(found.lengths) > MAX_AXES:
        return None
    items = Items(*types, found.axis is not None, found.scaled, place)
    whole = np.zeros(TABLE_NUMBERS, items.place)
    if not found.size:
        return Launch(items, 0, by_value(whole))
    lengths = found.lengths
    fast = axes[-1] if found.fast is None else found.fast
    factor_shape = [n if v else 1 for n, v in zip(lengths, found.varies, strict=True)]
    factor = [s if v else 0 for s, v in zip(packed(factor_shape, 1), found.varies, strict=True)]
    src = [0 if a == found.axis else step // item_bytes for a, step in enumerate(found.at)]
    outer, rows = range(fast - 1, -1, -1), range(len(lengths) - 1, fast, -1)
    runs = not rows
    if runs:
        outer, rows = rows, outer
    n_outer, n_rows = (math.prod(lengths[axis] for axis in part) for part in (outer, rows))
    n_fast, most = lengths[fast], tile_items(found.final)
    tile_fast = min(
        n_fast,
        most
        // (1 if runs else min(n_rows, TILE_ROWS if item_bytes >= WORD_BYTES else SMALL_TILE_ROWS)),
    )
    tile_rows = min(n_rows, MAX_ROWS, most // tile_fast)
    tiles_fast, tiles_rows = -(-n_fast // tile_fast), -(-n_rows // tile_rows)
    # where all of a tile lies in one piece, it is read as one
    behind = packed([*(lengths[axis] for axis in reversed(rows)), n_fast], 1)[:-1][::-1]
    in_one = tile_fast == n_fast and behind == tuple(src[axis] for axis in rows)
    numbers = [
        n_outer, n_fast, n_rows, tile_fast, tile_rows, tiles_fast, tiles_rows, int(in_one),
        src[fast], factor[fast], len(outer), len(rows), int(runs),
    ]  # fmt: skip
    for axis in (*outer, *rows):
        numbers += [lengths[axis], src[axis], factor[axis], int(axis == found.axis)]
    whole[: len(numbers)] = numbers
    few = found.scaled and math.prod(factor_shape) <= FEW_FACTORS
    load = max(1, WORD_BYTES // item_bytes) if src[fast] == 1 else 1
    items = items._replace(few=few, load=load)
    return Launch(items, n_outer * tiles_fast * tiles_rows, by_value(whole))


@lru_cache(maxsize=256)
def kernel(cupy: Any, items: Items, number: int) -> Any:
    """Return the kernel for some item types on a device."""
    named = {
        "ITEM": TYPES[items.item.char],
        "FINAL": TYPES[items.final.char],
        "PURE": int(items.final.kind != "f"),
        "PICKED": int(items.picked),
        "SCALED": int(items.scaled),
        "FEW": int(items.few),
        "LOAD": items.load,
        "STORE": max(1, WORD_BYTES // items.final.itemsize),
        "UNDER_WAY": UNDER_WAY,
        "FEW_FACTORS": FEW_FACTORS,
        "INDEX": TYPES[items.place.char],
        "TABLE_NUMBERS": TABLE_NUMBERS,
        "TILE_ITEMS": tile_items(items.final),
        "MAX_ROWS": MAX_ROWS,
    }
    code = "".join(f"#define {name} {value}\n" for name, value in named.items()) + SOURCE
    return cupy.RawModule(code=code, options=OPTIONS).get_function("permute")


def tile_items(final: np.dtype[Any]) -> int:
    """Return how many items of the result a tile in shared memory holds."""
    return min(TILE_ITEMS, TILE_BYTES // final.itemsize)


def by_value(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as the one item that CuPy sends along with a launch."""
    return numbers.reshape(-1).view(f"V{numbers.nbytes}")
