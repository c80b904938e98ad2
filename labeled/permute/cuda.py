"""Permuting copies of CuPy arrays, by one kernel, which is in `permute.cu`.

The source is compiled for this processor by the tests, and every result compared with NumPy's; on
a GPU the same is done by those marked `gpu`. On an H200, of 128 MiB each and as parts of what its
own copies reach (4.1 TB/s), the median of the 24 orders of four axes is 0.79 for bytes (worst
0.51), 0.80 for `float32` (0.67) and 0.68 for bytes cast to `float32` and scaled (0.54); CuPy's own
take 9, 3 and 18 times as long.

It is imported only where an array is CuPy's. The kernel gathers rows, permutes, casts, scales and
shifts in one pass; what a copy does not ask for is not compiled in. A block of threads copies one
tile: it reads along the fast axis of the source, converts, keeps the tile in shared memory as lines
of the result, and writes these, so both sides are touched in whole segments. Rows are all axes
behind the fast one, taken as one; where each row of a tile lies is computed once a block. Where the
fast axis is the last one, too, rows are all axes before it, and a block copies many short runs.

A `Matrix` is such a copy in numbers, a `Tile` is what a block takes of it, a `Program` is what is
compiled, and a `Launch` is what is sent.

The shape travels with the launch, as a small table. What is compiled in besides the types is how
threads are spread over lines of the source, so that the loop that reads has few instructions: a
program serves many shapes.

How it became fast, in medians of the 24 orders for bytes: 0.21 before; 0.60 with tiles that lie as
the result does; 0.64 with loops that need neither divisions nor bounds, as what they depend on is
compiled in; 0.78 with four rows turned in registers where lines begin with a word, larger tiles,
and eight words under way. Where a step of the outer axes is small (channels last), a tile takes
several: with all of this such an order went from 0.10 to 0.57. Copies from global to shared memory
that pass no register (`cp.async`) were faster for short rows of `float32`, and slower for long
ones. What is left is waiting for memory: in most orders about half of all cycles issue an
instruction.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.device import is_cupy
from labeled.permute.plan import CopyPlan, Rows, packed, plan_of


class Way(NamedTuple):
    """How a kind of copy is cut into tiles, and how many words a thread has under way."""

    tile_bytes: int
    line_bytes: int  # of a line of the result in a tile, where it is longer
    under_way: int


WAY_OF_WORDS = Way(1 << 14, 256, 8)  # of items of a word or more
WAY_OF_WIDENED = Way(1 << 15, 512, 8)  # of smaller ones, cast to such
WAY_OF_SQUARES = Way(1 << 15, 128, 8)  # of smaller ones, several rows at a time, see `permute.cu`
WAY_OF_SMALL = Way(1 << 14, 128, 4)  # of smaller ones otherwise

MAX_ROWS = 512  # rows of a tile at most: what short fast axes (channels) are made up for with
IN_ONE_BYTES = 32  # of shorter lines many are read as one, where they lie in one piece

THREADS = 256  # of a block
BLOCKS = 4  # how many blocks a multiprocessor has registers for, at least
WARP = 32  # threads that touch memory together
FEWER_COST = 1.2  # what it costs where fewer of them share a line
MAX_BLOCKS = (1 << 31) - 1  # what one launch takes along the first axis of its grid

NARROW_BYTES = (1 << 32) - (1 << 16)  # arrays of fewer bytes are walked with 32-bit numbers

ITEM_BYTES = (2, 4, 8, 16)  # of items that devices read as one, so these have to be aligned

MAX_AXES = 12
TABLE_NUMBERS = 24 + 4 * MAX_AXES
WORD_BYTES, SECTOR_BYTES = 4, 32
FEW_FACTORS = 64  # so many factors travel with a launch, whose arguments may take 4 KiB

OPTIONS = ("--fmad=false",)  # scale and shift are two rounded steps here as everywhere

SOURCE = Path(__file__).with_name("permute.cu")  # the kernel


TYPES = {
    "u1": "unsigned char", "i1": "signed char", "u2": "unsigned short", "i2": "short",
    "u4": "unsigned int", "i4": "int", "u8": "unsigned long long", "i8": "long long",
    "f4": "float", "f8": "double",
}  # fmt: skip


class Program(NamedTuple):
    """What a kernel is compiled for."""

    item: np.dtype[Any]
    final: np.dtype[Any]
    picked: bool  # whether rows are gathered
    scaled: bool
    place: np.dtype[Any]  # of places in arrays: 32 bits take half as many registers as 64
    few: bool  # whether factors travel with the launch, rather than lie on the device
    varies: int  # whether factors change: 1 from row to row, 2 along the fast axis, too
    period: int  # after how many items along it they begin again; 1 where they do not
    load: int  # how many items are read at a time, as one word of four bytes
    turned: int  # how many rows a thread turns at a time, a word of each
    under_way: int  # words that a thread has asked for and not yet got
    readers: int  # how many threads share a line of the source
    words: int  # how many of the words under way are of one line
    tile_items: int  # of shared memory


class Launch(NamedTuple):
    """How the kernel makes a copy; the same for every array of a shape."""

    program: Program
    blocks: int
    table: npt.NDArray[Any]


def aligned(src: Any) -> Any:
    """Return a CuPy array whose items lie at multiples of their size; a copy where they do not.

    Others, such as views of bytes from the second on, are a fatal error of CUDA's to kernels,
    CuPy's own, too. They are copied in parts that do lie so.
    """
    n_bytes = src.dtype.itemsize
    steps = [step for n, step in zip(src.shape, src.strides, strict=True) if n > 1]
    width = math.gcd(n_bytes, int(src.data.ptr), *steps)
    if width == n_bytes or n_bytes not in ITEM_BYTES or not src.size:
        return src
    cupy = sys.modules["cupy"]
    shape, strides = (*src.shape, n_bytes // width), (*src.strides, width)
    parts = cupy.ndarray(shape, np.dtype(f"u{width}"), src.data, strides)
    return parts.copy().view(src.dtype).reshape(src.shape)


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
    if not found.size:
        return cupy.empty(found.shape, found.final)
    pairs = zip(src.shape, src.strides, strict=True)
    start = sum((n - 1) * -step for n, step in pairs if step < 0)
    launch = launch_of(found, int(src.data.ptr) % WORD_BYTES, start)
    if launch is None or launch.blocks > MAX_BLOCKS:
        return None
    program, result = launch.program, cupy.empty(found.shape, found.final)
    # of what the kernel does not ask for, any address will do
    picked: Any = src
    sent: tuple[Any, ...] = (src, src)
    if rows is not None:
        picked = cupy.asarray((rows * src.strides[0]).astype(program.place))
    if found.scaled:
        given = [1.0 if scale is None else scale, -0.0 if shift is None else shift]
        arrays = [np.asarray(one, found.compute) for one in given]
        repeated = program.period == 1  # else the kernel does it
        laid = [found.over_axes(one, src.ndim, repeated=repeated) for one in arrays]
        both = np.broadcast_arrays(*laid)
        if program.few:
            few = np.zeros((2, FEW_FACTORS), found.compute)
            few[:, : both[0].size] = [one.reshape(-1) for one in both]
            sent = (by_value(few),)
        else:
            sent = tuple(cupy.asarray(np.ascontiguousarray(one)) for one in both)
    run = kernel(cupy, program, int(src.device.id))
    if start:  # the kernel counts from the lowest address
        src = src[tuple(slice(None, None, -1 if step < 0 else 1) for step in src.strides)]
    run((launch.blocks,), (THREADS,), (src, result, picked, launch.table, *sent))
    return result


def _run_item(src: Any, axes: Sequence[int]) -> np.dtype[Any] | None:
    """Return wider items to move, where the last axis stays as it lies; None where none fit."""
    last = src.ndim - 1
    if last < 1 or axes[-1] not in (last, -1) or src.strides[-1] != src.dtype.itemsize:
        return None
    n_bytes = src.shape[-1] * src.dtype.itemsize
    width = math.gcd(8, n_bytes, int(src.data.ptr), *src.strides[:-1])
    return np.dtype(f"u{width}") if width > src.dtype.itemsize else None


class Matrix(NamedTuple):
    """A copy as the kernel sees it: outer steps, and in each a fast axis and rows of the source.

    Rows are all axes behind the fast one, and a line of the result has an item of each. Where none
    is behind it, rows are all axes before it, and each is a line as it is: a run.
    """

    n_outer: int
    n_fast: int
    period: int  # see `Program`
    n_rows: int
    runs: bool  # whether the fast axis is the last one of the result, too
    in_one: bool  # whether rows are short, lie in one piece, and are read as such
    load: int  # items of a word of the source, and of the result
    store: int
    final_bytes: int
    pure: bool
    most_rows: int  # of a tile

    @property
    def apart(self) -> int:
        """Items from one line of the result to the next."""
        return self.n_fast if self.runs else self.n_rows


class Tile(NamedTuple):
    """What a block copies, and how its lines lie in shared memory."""

    way: Way
    outers: int
    fasts: int
    rows: int
    pitch: int  # items from one line to the next
    skew: int  # items left free after as many lines as a word of the source has items
    joined: bool  # whether all lines are one
    turned: int  # how many rows a thread turns at a time

    def lines(self, runs: bool) -> tuple[int, int]:
        """Return how many lines of the result there are, and how long they are."""
        number, length = (self.rows, self.fasts) if runs else (self.outers * self.fasts, self.rows)
        return (1, number * length) if self.joined else (number, length)


@lru_cache(maxsize=512)
def launch_of(found: CopyPlan, address: int, start: int) -> Launch | None:
    """Describe a copy to the kernel, see `permute.cu`; None where it does not fit.

    `address` is that of the source, in bytes behind a word, and `start` where its first item lies,
    in bytes behind its lowest address.
    """
    item_bytes, final_bytes, lengths = found.item.itemsize, found.final.itemsize, found.lengths
    axes = [axis for axis in range(len(lengths)) if axis != found.axis]
    wide = max(found.reach, found.size * final_bytes) >= NARROW_BYTES
    types, place = found.kernel_items(), np.dtype(np.uint64 if wide else np.uint32)
    if types is None or not axes or len(lengths) > MAX_AXES:
        return None
    # what is outside, and what are rows: the innermost axis of each first
    fast = axes[-1] if found.fast is None else found.fast
    outer, rows = range(fast - 1, -1, -1), range(len(lengths) - 1, fast, -1)
    if runs := not rows:
        outer, rows = rows, outer
    # of each axis of the result: items of a step in the factors, bytes of one in the source
    factor_shape, period = [n if v else 1 for n, v in zip(lengths, found.varies, strict=True)], 1
    if runs and found.repeat > 1:
        period = factor_shape[fast] = lengths[fast] // found.repeat
    factor = [s if v else 0 for s, v in zip(packed(factor_shape, 1), found.varies, strict=True)]
    src = [0 if a == found.axis else step for a, step in enumerate(found.at)]
    n_outer, n_rows = (math.prod(lengths[axis] for axis in part) for part in (outer, rows))
    vary = any(factor[axis] for axis in rows)
    together = src[fast] == item_bytes
    in_one = together and not runs and lengths[fast] * item_bytes < IN_ONE_BYTES
    one_piece = packed([*(lengths[a] for a in reversed(rows)), lengths[fast]], item_bytes)[-2::-1]
    in_one = in_one and one_piece == tuple(src[axis] for axis in rows)
    # rows that begin with a word are read by words; what is read in one piece finds where one is
    others = [step for axis, step in enumerate(found.at) if axis != fast]
    by_words = in_one or (together and math.gcd(WORD_BYTES, address, *others) == WORD_BYTES)
    matrix = Matrix(
        n_outer, lengths[fast], period, n_rows, runs, in_one,
        max(1, WORD_BYTES // item_bytes) if by_words else 1, max(1, WORD_BYTES // final_bytes),
        final_bytes, found.pure, found.size if in_one and not vary else MAX_ROWS,
    )  # fmt: skip
    tile = tile_of(matrix)
    n_described = 1 if in_one and not vary else tile.outers * tile.rows
    fast_tiles, row_tiles = -(-matrix.n_fast // tile.fasts), -(-n_rows // tile.rows)
    word_step = matrix.load * (1 if runs else tile.pitch) + tile.skew
    numbers = [
        start, n_outer, matrix.n_fast, n_rows, src[fast], factor[fast], matrix.apart,
        tile.outers, tile.fasts, tile.rows, fast_tiles, row_tiles,
        tile.pitch, tile.skew, 1 if runs else tile.pitch, word_step, len(outer), len(rows),
        runs, in_one, tile.joined, n_described, matrix.apart % matrix.store == 0,
        writers_of(matrix, tile).bit_length() - 1,
    ]  # fmt: skip
    for axis in (*outer, *rows):
        numbers += [lengths[axis], src[axis], factor[axis], axis == found.axis]
    numbers += [0] * (TABLE_NUMBERS - len(numbers))
    n_factors = math.prod(factor_shape)
    readers, words = readers_of(matrix, tile, item_bytes)
    program = Program(
        *types, found.axis is not None, found.scaled, place,
        few=found.scaled and n_factors <= FEW_FACTORS,
        varies=0 if n_factors == 1 else 2 if factor[fast] else 1,
        period=period, load=matrix.load, turned=tile.turned, under_way=tile.way.under_way,
        readers=readers, words=words, tile_items=tile.way.tile_bytes // final_bytes,
    )  # fmt: skip
    table = by_value(np.array(numbers, np.int64).astype(place))  # backwards modulo its length
    return Launch(program, -(-n_outer // tile.outers) * fast_tiles * row_tiles, table)


def tile_of(matrix: Matrix) -> Tile:
    """Return how a copy is cut into tiles: about as long as a line may be, and as many as fit.

    Lines of a tile begin where those of the result do in a word, so there is room for one more.
    """
    load, store, n_rows = matrix.load, matrix.store, matrix.n_rows
    small = matrix.pure and load > 1 and store > 1
    turned = small and not matrix.runs and not matrix.in_one and n_rows % store == 0
    other = WAY_OF_SMALL if store > 1 else WAY_OF_WIDENED if load > 1 else WAY_OF_WORDS
    way = WAY_OF_SQUARES if turned else other
    room = way.tile_bytes // matrix.final_bytes - store
    step = max(store, SECTOR_BYTES // matrix.final_bytes)
    if matrix.runs:
        step = math.lcm(step, matrix.period)  # tiles begin where factors do
        fasts = evenly(matrix.n_fast, room - step, step)
        pitch, _, joined = pitch_of(fasts, matrix.n_fast, load, store)
        return Tile(way, 1, fasts, min(n_rows, MAX_ROWS, room // pitch), pitch, 0, joined, 1)
    line = way.line_bytes // matrix.final_bytes
    if n_rows % store:  # lines begin anywhere in a word: one more of them is touched
        line, step = line - store, store
    rows = evenly(n_rows, min(matrix.most_rows, max(line, room // matrix.n_fast - 2 * step)), step)
    pitch, skew, joined = (rows, store, False) if turned else pitch_of(rows, n_rows, load, store)
    if matrix.in_one:  # items are spread one by one, wherever they are
        skew = 0
    each = pitch + skew // load
    fasts, outers = evenly(matrix.n_fast, room // each, load), 1
    # more outer steps, where one is copied as a whole and lines are still skewed evenly
    whole = rows == n_rows and fasts == matrix.n_fast and not matrix.in_one
    if whole and (not skew or fasts % load == 0):
        outers = max(1, min(matrix.n_outer, MAX_ROWS // rows, room // (fasts * each)))
    return Tile(way, outers, fasts, rows, pitch, skew, joined, load if turned else 1)


def evenly(n: int, most: int, step: int) -> int:
    """Return the length of pieces of at most so many, in steps, that are all about as long.

    Examples
    --------
    >>> evenly(224, 100, 8), evenly(60, 100, 8)
    (80, 60)
    """
    if n <= most:
        return n
    pieces = -(-n // (most // step * step))
    return -(-n // pieces // step) * step


def pitch_of(length: int, apart: int, load: int, store: int) -> tuple[int, int, bool]:
    """Return `pitch`, `skew` and `joined` of a tile, see `Tile`.

    Threads that store next to one another are to meet different banks of shared memory, of which
    there is one a word: an odd pitch sees to it, and where it is even a skew. Words of the tile are
    to be those of the result, whose lines begin `apart` items from one another.
    """
    if length == apart and length % max(2, store):  # lines follow one another, as in the result
        return length, 0, True
    if store == 1:
        return length | 1, 0, False
    pitch = length + (apart - length) % store
    return pitch, 0 if (pitch if load > 1 else pitch // store) % 2 else store, False


def readers_of(matrix: Matrix, tile: Tile, item_bytes: int) -> tuple[int, int]:
    """Return how many threads share a line of the source, and how many words of it each has.

    Each choice is another program, as a loop that does not know them takes up to a fifth more
    instructions. Batches of 1 to 512 pictures meet one to four of them, and five to 12 where
    examples are the last axis of the result, or the one before channels.
    """
    # a word that is cast to wider items becomes several: fewer threads meet different banks
    best = max(2, min(WARP, WARP * item_bytes // matrix.final_bytes))
    return spread(
        tile.fasts // matrix.load, -(-tile.outers * tile.rows // tile.turned), best,
        tile.way.under_way // tile.turned, THREADS, MAX_ROWS // tile.turned,
    )  # fmt: skip


def writers_of(matrix: Matrix, tile: Tile) -> int:
    """Return how many threads of a block share a line of the result: a power of two.

    The loop that writes is as short where this is not compiled in, so it travels with the launch.
    """
    load, store = matrix.load, matrix.store
    n_lines, length = tile.lines(matrix.runs)
    most = THREADS if n_lines == 1 else THREADS // max(load, store)
    writers, _ = spread(length // store, n_lines, WARP, 1, most, THREADS)
    return writers


def spread(
    n_words: int, n_lines: int, best: int, under_way: int, most_threads: int, most_lines: int
) -> tuple[int, int]:
    """Return how many threads share a line, and how many words of it a thread has under way.

    Both are powers of two, so that dividing by them is free. The fewest turns of a block are best,
    then few words of a line, then as many threads as touch memory together.
    """

    def cost(one: tuple[int, int]) -> tuple[float, int, int]:
        threads, words = one
        # of a block, until it is through with all words of all lines
        turns = -(-max(1, n_words) // (threads * words)) * -(-n_lines // lines_of(threads, words))
        return turns * (FEWER_COST if threads < best else 1.0), words, abs(threads - best)

    def lines_of(threads: int, words: int) -> int:
        return THREADS // threads * (under_way // words)

    threads = [1 << power for power in range(most_threads.bit_length())]
    words = [1 << power for power in range(under_way.bit_length())]
    fit = [one for one in itertools.product(threads, words) if lines_of(*one) <= most_lines]
    return min(fit, key=cost)


@lru_cache(maxsize=256)
def kernel(cupy: Any, program: Program, number: int) -> Any:
    """Return a kernel, which each device, by its number, has one of."""
    named = {
        "ITEM": TYPES[program.item.str[1:]],
        "FINAL": TYPES[program.final.str[1:]],
        "PURE": int(program.final.kind != "f"),
        "PICKED": int(program.picked),
        "SCALED": int(program.scaled),
        "FEW": int(program.few),
        "VARIES": program.varies,
        "PERIOD": program.period,
        "LOAD": program.load,
        "STORE": max(1, WORD_BYTES // program.final.itemsize),
        "READERS": program.readers,
        "WORDS": program.words,
        "TURNED": program.turned,
        "UNDER_WAY": program.under_way,
        "FEW_FACTORS": FEW_FACTORS,
        "INDEX": TYPES[program.place.str[1:]],
        "MAX_AXES": MAX_AXES,
        "THREADS": THREADS,
        "BLOCKS": BLOCKS,
        "TILE_ITEMS": program.tile_items,
        "MAX_ROWS": MAX_ROWS,
    }
    code = "".join(f"#define {name} {value}\n" for name, value in named.items())
    code += SOURCE.read_text("utf-8")
    return cupy.RawModule(code=code, options=OPTIONS).get_function("permute")


def by_value(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as the one item that CuPy sends along with a launch."""
    return numbers.reshape(-1).view(f"V{numbers.nbytes}")
