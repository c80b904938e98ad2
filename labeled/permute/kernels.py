"""Compiled loops over memory, by numba (extra ``fast``), without the GIL.

Importing this module imports numba, which takes about a second. The loops see addresses, byte
offsets and item types, and trust them: :mod:`~labeled.permute.compiled` makes them from arrays
that stay alive during the call. A table of byte offsets says where the rows of the source lie, so
an axis of any stride, several axes at once, or gathered rows cost the same.

A transpose takes a tile of whole cache lines. A word of 64 bits of as many rows as it has items
makes a square, which is turned by shifts and masks (`_turn`): half of a square of eight bytes
changes places with the other half, then quarters, then eighths. The words of a row lie together
on both sides of that, so the compiler makes vectors of them; then the words of each line are
collected from where they lie apart, with no more than a load and a store for eight bytes. In the
order of c01b (256 x 3 x 32 x 32, one core of a Zen 4) this takes 71 us for bytes and 207 us for
floats, a ninth and a tenth of what NumPy's copy takes.

Three things that a loop cannot say are asked of the compiler by name: to fetch a line that is
needed soon, to store one past the caches, and to wait for such stores. For images of 224 x 224
either halves the time of that transpose, or better.
They share a file with the loops on purpose: numba notices changes of the file of a loop only,
when it looks for code that it kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.extending import intrinsic

from labeled.permute.compiled import HEADER, TILE_RUN, Loop, loop
from labeled.permute.plan import CACHE_LINE as LINE
from labeled.permute.plan import address_of

TILE_ITEMS = 128
"""Items of a row turned in one go: a tile takes half of the nearest cache."""

PICK_AHEAD_BYTES = 4096
"""How far ahead picked rows are fetched, along their new order; rows of 256 to 3,072 bytes are
copied 1.3 to 1.9 times as fast as without."""

SCRATCH_BYTES = TILE_ITEMS * (TILE_RUN + 8) + LINE
"""Scratch memory: a turned tile, parts of the rows of a square, and the addresses of these."""

_u1, _u8, _i8 = np.empty(0, np.uint8), np.empty(0, np.uint64), np.empty(0, np.int64)
_WORDS = ir.VectorType(ir.IntType(64), LINE // 8)
_BYTES, _I32 = ir.IntType(8).as_pointer(), ir.IntType(32)

_made: Callable[..., Any] = intrinsic
_carray: Any = getattr(numba, "carray")  # noqa: B009  (which numba does not list as its own)
_type_of: Callable[..., Any] = typeof


def entry(name: str, args: tuple[Any, ...]) -> Any:
    """Return the code of a kernel for arguments of these types, which nobody looks at again."""
    kernel = globals()[name]
    kernel(*args)
    return kernel.get_overload(tuple(map(_type_of, args)))


def _compiled(function: Loop) -> Loop:
    """Compile without asking, at each division, whether it is by nothing."""
    return loop(function, error_model="numpy")


def _inlined(function: Loop) -> Loop:
    """Compile into each caller: handing arrays over takes longer than converting 32 items."""
    return loop(function, error_model="numpy", forceinline=True)


@_made
def _pointer(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _BYTES)

    return types.voidptr(types.intp), generate


@_made
def _fetch(_: Any, soon: Any) -> Any:
    """Ask for a cache line that is needed soon."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, _I32, _I32, _I32])
        ask = builder.module.declare_intrinsic("llvm.prefetch", (_BYTES,), kind)
        for_reading_near = [ir.Constant(_I32, n) for n in (0, 2, 1)]
        builder.call(ask, [builder.inttoptr(args[0], _BYTES), *for_reading_near])
        return context.get_dummy_value()

    return types.void(types.intp), generate


@_made
def _stream(_: Any, to: Any, at: Any) -> Any:
    """Copy a line to a multiple of its size, past the caches."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, at = (builder.inttoptr(arg, _WORDS.as_pointer()) for arg in args)
        stored = builder.store(builder.load(at, align=1), to, align=LINE)
        mark = builder.module.add_metadata([ir.Constant(_I32, 1)])
        stored.set_metadata("nontemporal", mark)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@_made
def _finish_streams(_: Any) -> Any:
    """Wait until other threads would see what was streamed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@_compiled
def _at(address: int, shape: Any, like: Any) -> Any:
    """Show memory as an array of the dtype of `like`; `shape` may be a number of items."""
    return _carray(_pointer(address), shape, like.dtype)


@_compiled
def _item(finals: Any, value: Any, scale: Any, shift: Any) -> Any:
    if scale is None:
        return value
    return finals.dtype.type(value) * scale + shift


@_inlined
def _convert(to: Any, at: Any, scale: Any, shift: Any, f: int, each: int) -> None:
    """Convert items that lie together; `each`: every one has a factor of its own, from `f` on."""
    if each:
        begin = f * to.itemsize
        by = _at(scale.ctypes.data + begin, len(to), scale)
        plus = _at(shift.ctypes.data + begin, len(to), shift)
        for i in range(len(to)):
            to[i] = to.dtype.type(at[i]) * by[i] + plus[i]
    else:
        s, h = scale[f], shift[f]
        for i in range(len(to)):
            to[i] = to.dtype.type(at[i]) * s + h


@_inlined
def _copy_line(to: int, at: int) -> None:
    """Copy a cache line: loaded whole before any of it is stored, it goes as one vector."""
    line, source = _at(to, 8, _u8), _at(at, 8, _u8)
    a, b, c, d = source[0], source[1], source[2], source[3]
    e, f, g, h = source[4], source[5], source[6], source[7]
    line[0], line[1], line[2], line[3] = a, b, c, d
    line[4], line[5], line[6], line[7] = e, f, g, h


@_inlined
def _copy_run(to: int, at: int, n: int) -> None:
    """Copy whole lines or words, the last of which may overlap the one before."""
    if n >= LINE:
        for k in range(0, n - LINE, LINE):
            _copy_line(to + k, at + k)
        _copy_line(to + n - LINE, at + n - LINE)
    elif n >= 8:
        for k in range(0, n - 8, 8):
            _at(to + k, 1, _u8)[0] = _at(at + k, 1, _u8)[0]
        _at(to + n - 8, 1, _u8)[0] = _at(at + n - 8, 1, _u8)[0]
    else:
        for k in range(n):
            _at(to + k, 1, _u1)[0] = _at(at + k, 1, _u1)[0]


@_inlined
def _swapped(a: Any, b: Any, bits: int) -> Any:
    """Exchange the upper halves of parts of `bits` * 2 in `a` with the lower halves in `b`."""
    by, one = np.uint64(bits), np.uint64(1)
    changed = ((a >> by) ^ b) & (~np.uint64(0) // ((one << by) + one))
    return a ^ (changed << by), b ^ changed


@_inlined
def _turn(rows: Any, begin: int, to: int, size: int, n: int) -> None:
    """Turn squares of items: `n` words of each of as many rows as a word has items.

    The words that become item `j` of each square lie together, and so do those of a row: the
    compiler makes vectors of them.
    """
    r0, r1 = _at(rows[0] + begin, n, _u8), _at(rows[1] + begin, n, _u8)
    r2, r3 = _at(rows[2] + begin, n, _u8), _at(rows[3] + begin, n, _u8)
    if size == 1:
        r4, r5 = _at(rows[4] + begin, n, _u8), _at(rows[5] + begin, n, _u8)
        r6, r7 = _at(rows[6] + begin, n, _u8), _at(rows[7] + begin, n, _u8)
        out = _at(to, (8, TILE_ITEMS // 8), _u8)
        for i in range(n):
            a, e = _swapped(r0[i], r4[i], 32)
            b, f = _swapped(r1[i], r5[i], 32)
            c, g = _swapped(r2[i], r6[i], 32)
            d, h = _swapped(r3[i], r7[i], 32)
            a, c = _swapped(a, c, 16)
            b, d = _swapped(b, d, 16)
            e, g = _swapped(e, g, 16)
            f, h = _swapped(f, h, 16)
            out[0, i], out[1, i] = _swapped(a, b, 8)
            out[2, i], out[3, i] = _swapped(c, d, 8)
            out[4, i], out[5, i] = _swapped(e, f, 8)
            out[6, i], out[7, i] = _swapped(g, h, 8)
    elif size == 2:
        out = _at(to, (4, TILE_ITEMS // 4), _u8)
        for i in range(n):
            a, c = _swapped(r0[i], r2[i], 32)
            b, d = _swapped(r1[i], r3[i], 32)
            out[0, i], out[1, i] = _swapped(a, b, 16)
            out[2, i], out[3, i] = _swapped(c, d, 16)
    elif size == 4:
        out = _at(to, (2, TILE_ITEMS // 2), _u8)
        for i in range(n):
            out[0, i], out[1, i] = _swapped(r0[i], r1[i], 32)
    else:
        single = _at(to, n, _u8)
        for i in range(n):
            single[i] = r0[i]


@_inlined
def _collect(to: int, at: int, n: int) -> None:
    """Store words that lie apart side by side, four at a time."""
    apart, fours = TILE_ITEMS * 8, n // 4 * 4
    for q in range(0, fours, 4):
        words, line = _at(at + q * apart, (4, TILE_ITEMS), _u8), _at(to + q * 8, 4, _u8)
        for e in range(4):
            line[e] = words[e, 0]
    for q in range(fours, n):
        _at(to + q * 8, 1, _u8)[0] = _at(at + q * apart, 1, _u8)[0]


@_compiled
def tiles(
    items: Any, finals: Any, woven: Any, src: int, dst: int, table: Any, scale: Any, shift: Any,
    streamed: int, first: int, last: int, scratch: int,
) -> None:  # fmt: skip
    """Transpose: the source is contiguous along the fast axis, the destination along the rows."""
    n_outer, n_rows, n_fast, step, block = table[0], table[1], table[2], table[3], table[4]
    by_outer, by_fast, by_row = table[5], table[6], table[7]
    outer, rows = table[HEADER:], table[HEADER + 2 * n_outer :]
    item_size, size = _at(src, 1, items).itemsize, _at(dst, 1, finals).itemsize
    k, run, most = 8 // size, TILE_RUN // size, TILE_ITEMS
    spare, square = scratch + most * TILE_RUN, _at(scratch + SCRATCH_BYTES - LINE, 8, _i8)
    n_blocks, n_runs = (n_fast + block - 1) // block, (n_rows + run - 1) // run
    for unit in range(first, last):
        o = unit // (n_runs * n_blocks)
        r = (unit // n_blocks - o * n_runs) * run
        start = unit % n_blocks * block
        span = min(run, n_rows - r)
        base, out = src + outer[o], dst + outer[n_outer + o] + r * size
        for wide in range(start, min(start + block, n_fast), most):
            begin = max(0, min(wide, n_fast - k))
            n = min(wide + most, n_fast) - begin
            ahead = min(most, n_fast - begin - n) * item_size
            # the last word may overlap the one before, and the last rows those before
            for q in range((span + k - 1) // k):
                for j in range(k):
                    row = r + min(max(0, min(q * k, span - k)) + j, span - 1)
                    at, copy = base + rows[row] + begin * item_size, spare + j * most * size
                    for line in range(0, ahead, LINE):
                        _fetch(at + n * item_size + line)
                    if scale is not None:
                        f = by_outer * o + by_row * row + by_fast * begin
                        _convert(_at(copy, n, finals), _at(at, n, items), scale, shift, f, by_fast)
                    elif n < k:
                        _copy_run(copy, at, n * size)
                    square[j] = at if scale is None and n >= k else copy
                to = scratch + q * most * 8
                _turn(square, 0, to, size, max(1, n // k))
                if n > k and n % k:
                    _turn(square, (n - k) * size, to + n // k * 8, size, 1)
            for i in range(n):
                word = i // k
                j = i - max(0, min(word * k, n - k))
                words, to = scratch + (j * (most // k) + word) * 8, out + (begin + i) * step
                at = spare if streamed or span < k else to
                if span == run:
                    _collect(at, words, TILE_RUN // 8)
                else:
                    _collect(at, words, span // k)
                    if span % k:
                        _collect(at + max(0, span - k) * size, words + span // k * most * 8, 1)
                if streamed:
                    for past in range(0, span * size, LINE):
                        _stream(to + past, at + past)
                elif span < k:
                    _copy_run(to, at, span * size)
    if streamed:
        _finish_streams()


@_compiled
def runs(
    items: Any, finals: Any, woven: Any, src: int, dst: int, table: Any, scale: Any, shift: Any,
    streamed: int, first: int, last: int, scratch: int,
) -> None:  # fmt: skip
    """Move or cast runs that are contiguous on both sides, `step` bytes apart there."""
    n_outer, n_rows, n_fast, step, block = table[0], table[1], table[2], table[3], table[4]
    outer, rows = table[HEADER:], table[HEADER + 2 * n_outer :]
    n_blocks = (n_rows + block - 1) // block
    for unit in range(first, last):
        o = unit // n_blocks
        start = unit % n_blocks * block
        base, out = src + outer[o], dst + outer[n_outer + o]
        for r in range(start, min(start + block, n_rows)):
            if scale is None:
                _copy_run(out + r * step, base + rows[r], n_fast * items.itemsize)
                continue
            to, at = _at(out + r * step, n_fast, finals), _at(base + rows[r], n_fast, items)
            _convert(to, at, scale, shift, table[5] * o + table[7] * r, table[6])


@_compiled
def weaves(
    items: Any, finals: Any, woven: Any, src: int, dst: int, table: Any, scale: Any, shift: Any,
    streamed: int, first: int, last: int, scratch: int,
) -> None:  # fmt: skip
    """Interleave 2 to 4 planes, or take them apart: planes become pixels, or pixels planes.

    `woven` holds two tuples, as long as items of one plane are apart in the destination and in
    the source.
    """
    to, at = len(woven[0]), len(woven[1])
    k, apart = max(to, at), to == 1
    n_outer, block = table[0], table[4]
    n_all = table[1] if apart else table[2]
    outer, rows = table[HEADER:], table[HEADER + 2 * n_outer :]
    n_blocks = (n_all + block - 1) // block
    two, three = min(2, k - 1), k - 1
    # from where on a plane has its items, on the side where planes lie between one another
    t1, t2, t3 = (0, 0, 0) if apart else (1, two, three)
    s1, s2, s3 = (1, two, three) if apart else (0, 0, 0)
    for unit in range(first, last):
        o = unit // n_blocks
        start = (unit - o * n_blocks) * block
        n = min(block, n_all - start)
        base = src + outer[o] + start * at * items.itemsize
        out = dst + outer[n_outer + o] + start * to * finals.itemsize
        step = table[3] if apart else 0
        r0, r1, r2, r3 = (0, 0, 0, 0) if apart else (rows[0], rows[1], rows[two], rows[three])
        p0, p1 = _at(out, n * to, finals), _at(out + step, n * to, finals)
        p2, p3 = _at(out + two * step, n * to, finals), _at(out + three * step, n * to, finals)
        q0, q1 = _at(base + r0, n * at, items), _at(base + r1, n * at, items)
        q2, q3 = _at(base + r2, n * at, items), _at(base + r3, n * at, items)
        c0 = c1 = c2 = c3 = h0 = h1 = h2 = h3 = None
        if scale is not None:
            f = table[5] * o
            c0, c1, c2, c3 = scale[f], scale[f + 1], scale[f + 2], scale[f + 3]
            h0, h1, h2, h3 = shift[f], shift[f + 1], shift[f + 2], shift[f + 3]
        for i in range(n):
            p0[to * i] = _item(finals, q0[at * i], c0, h0)
            p1[to * i + t1] = _item(finals, q1[at * i + s1], c1, h1)
            if k > 2:
                p2[to * i + t2] = _item(finals, q2[at * i + s2], c2, h2)
            if k > 3:
                p3[to * i + t3] = _item(finals, q3[at * i + s3], c3, h3)


# ---------------------------------------------------------------- rows and segments of bytes
@_compiled
def _copy_bytes(to: int, at: int, later: int, n_bytes: int) -> None:
    """Copy bytes, and ask for those that are copied some time later, here or from `later` on."""
    back = max(0, n_bytes - PICK_AHEAD_BYTES)
    lines = n_bytes // LINE
    for line in range(0, lines * LINE, LINE):
        _fetch(at + line + PICK_AHEAD_BYTES if line < back else later + line - back)
        _copy_line(to + line, at + line)
    if lines == 0:
        _copy_run(to, at, n_bytes)
    elif n_bytes % LINE:  # a last line that overlaps the one before
        _copy_line(to + n_bytes - LINE, at + n_bytes - LINE)


@_compiled
def _copy_segments(
    to: int, room: int, places: Any, source: int, n_bytes: int, starts: Any, sizes: Any
) -> bool:
    n, total = len(sizes), 0
    for i in range(n):
        size = sizes[i]
        if size < 0 or places[i] < 0 or starts[i] < 0:
            return False
        if places[i] > room - size or starts[i] > n_bytes - size:
            return False
        total += size
    ahead = max(1, PICK_AHEAD_BYTES * n // max(1, total))
    for i in range(n):
        later = source + starts[min(i + ahead, n - 1)]
        _copy_bytes(to + places[i], source + starts[i], later, sizes[i])
    return True


def copy_segments(out: Any, places: Any, source: Any, starts: Any, sizes: Any) -> bool:
    """Store ``out[p:p + n] = source[s:s + n]``; False, with nothing stored, if one lies outside.

    Parameters
    ----------
    out, source : uint8 array
        C-contiguous.
    places, starts, sizes : int64 array
        One of each a segment.
    """
    if {places.dtype, starts.dtype, sizes.dtype} != {np.dtype(np.int64)}:
        return False
    assert len(places) == len(starts) == len(sizes)
    to, there = address_of(out), address_of(source)
    return bool(_copy_segments(to, len(out), places, there, len(source), starts, sizes))


def pick(stored: Any, places: Any, out: Any) -> bool:
    """Copy the rows that begin at some bytes; False, with nothing copied, if one lies outside.

    Parameters
    ----------
    stored : uint8 array
        C-contiguous.
    places : int64 array
    out : uint8 array, lengths ``(len(places), row_bytes)``
        C-contiguous.
    """
    n, row_bytes = out.shape
    at = np.arange(n) * row_bytes
    return copy_segments(out.reshape(-1), at, stored, places, np.full(n, row_bytes))


@_compiled
def _scatter(
    to: int, n_rows: int, places: Any, source: int, n_there: int, wanted: Any, row_bytes: int
) -> bool:
    for i in range(len(places)):
        if places[i] < 0 or places[i] >= n_rows or wanted[i] < 0 or wanted[i] >= n_there:
            return False
    for i in range(len(places)):
        begin, row = to + places[i] * row_bytes, source + wanted[i] * row_bytes
        for at in range(0, row_bytes, LINE):
            _stream(begin + at, row + at)
    _finish_streams()
    return True


def scatter(out: Any, places: Any, rows: Any, wanted: Any = None) -> bool:
    """Store ``out[places] = rows[wanted]``; False, with nothing stored, if that is not for this.

    A row that goes to a random place of a large array is stored in whole cache lines that are not
    read first, which takes less than half the time.

    Parameters
    ----------
    out, rows : array
        C-contiguous, of one dtype and row shape.
    places : int64 array
    wanted : int64 array, as long as `places`
        All rows, in order, where it is None.
    """
    row_bytes = rows.nbytes // max(1, len(rows))
    to = address_of(out)
    if to % LINE or row_bytes % LINE:
        return False
    if wanted is None:
        wanted = np.arange(len(rows))
    if places.dtype != np.int64 or wanted.dtype != np.int64 or len(places) != len(wanted):
        return False
    there = address_of(rows), len(rows)
    return bool(_scatter(to, len(out), places, *there, wanted, row_bytes))
