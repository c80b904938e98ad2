"""Compiled loops over memory, by numba (extra ``fast``), without the GIL.

Importing this module imports numba, which takes about a second. The loops see addresses, byte
offsets and item types, and trust them: :mod:`~labeled.permute.compiled` makes them from arrays
that stay alive during the call. A table of byte offsets says where the rows of the source lie, so
an axis of any stride, several axes at once, or gathered rows cost the same.

A transpose takes a tile of whole cache lines. A few lines of each row are first copied side by
side, as rows a round number of bytes apart push one another out of the nearest cache; then 16
bytes of as many rows as fill a line are turned by vector shuffles, which are the only
instructions written by hand here (`_turn`). Everything else is plain loops. Plain loops alone
(words of 64 bits turned by shifts and masks, eight squares as one vector) took 1.5 to 3.3 times
as long: 256 x 3 x 32 x 32 bytes in the order of c01b 73 us and not 43, floats 200 and not 136,
64 x 64 floats 1,440 and not 690, 224 x 224 bytes 8.2 ms and not 2.5 (one core of a Zen 4).
Loops that interleave rows, which the compiler turns into shuffles by itself, took 1.1 to 1.6 times
as long, and three times for bytes where vectors have 32 bytes. With the best mixture of both,
epochs of batches in the order of c01b took 1.05 to 1.28 times as long.

Six more things that a loop cannot say are asked of the compiler by name: the size of an item as a
constant, to fetch a line that is needed soon, to copy a line, to store one past the caches, to wait
for such stores, and that arrays share no memory.
They share a file with the loops on purpose: numba notices changes of the file of a loop only,
when it looks for code that it kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.extending import intrinsic

from labeled._numba import Loop, loop
from labeled.permute.compiled import HEADER, RUN_ITEMS, TILE_RUN
from labeled.permute.plan import CACHE_LINE as LINE
from labeled.permute.plan import address_of

# lines of a row staged in one go, at most: each row is another page, or another set of a cache
WIDE = 4

# pixels of three bytes from which on words pay: 32 take 29 ns, and 9 byte by byte
ENOUGH_WOVEN = 64

STAGED_LINES = 256  # lines of all rows staged in one go: half of the nearest cache

# how far ahead picked rows are fetched, along their new order; rows of 256 to 3,072 bytes are
# copied up to 1.9 times as fast as without, 1.02 to 1.23 times on a newer machine
PICK_AHEAD_BYTES = 4096

# items of each plane that are woven, or taken apart, before they are stored past the caches: so few
# that what is read next is on its way meanwhile (floats take 1.04 to 1.24 times as long with 256)
STREAMED_ITEMS = 64

BUFFER_BYTES = 1 << 13
CAST_BYTES = 1 << 11  # what is cast in one go before it is streamed: 7.8 ms and not 9.4 with 8 KiB
# scratch memory: one turned tile, staged rows, and what is cast
SCRATCH_BYTES = BUFFER_BYTES + STAGED_LINES * LINE + CAST_BYTES

_BYTE = ir.IntType(8)
_BYTES = _BYTE.as_pointer()
_I1, _I64 = ir.IntType(1), ir.IntType(64)
_I32 = ir.IntType(32)
_WORDS = np.empty(0, np.uint32)

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
    """Compile into each caller: a call takes as long as to copy a line, or convert 32 items."""
    return loop(function, error_model="numpy", forceinline=True)


@_made
def _pointer(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _BYTES)

    return types.voidptr(types.intp), generate


@_made
def _size_of(_: Any, items: Any) -> Any:
    """Return the bytes of an item, which the compiler knows then."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_I64, items.dtype.bitwidth // 8)

    return types.intp(items), generate


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


def _store(builder: Any, value: Any, address: Any, *, past: bool) -> None:
    """Store a vector; `past` the caches a line at a multiple of its size, not read there first."""
    pointer = builder.inttoptr(address, value.type.as_pointer())
    stored = builder.store(value, pointer, align=LINE if past else 1)
    if past:
        mark = builder.module.add_metadata([ir.Constant(_I32, 1)])
        stored.set_metadata("nontemporal", mark)


def _copies(n_bytes: int, *, past: bool = False) -> Any:
    """Return what copies so many bytes through one register."""

    @_made
    def copy(_: Any, to: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            here = builder.inttoptr(args[1], ir.VectorType(_BYTE, n_bytes).as_pointer())
            _store(builder, builder.load(here, align=1), args[0], past=past)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), generate

    return copy


_copy_line, _stream = _copies(LINE), _copies(LINE, past=True)
_copy_32, _copy_16, _copy_8, _copy_4, _copy_2, _copy_1 = map(_copies, (32, 16, 8, 4, 2, 1))


@_made
def _turn(_: Any, items: Any, stage: Any, dst: Any, step: Any, past: Any) -> Any:
    """Turn 16 bytes of as many rows as fill a line into as many lines, `step` bytes apart.

    The rows lie in `stage`, as far apart as :func:`tiles` lays them, which is a constant: else
    small matrices take twice as long. Four of them, a quarter of the rows apart, fill one vector;
    its quarters are turned side by side.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, stage, dst, step, past = args
        size = items.dtype.bitwidth // 8
        pitch = LINE * min(WIDE, STAGED_LINES * size // TILE_RUN)
        n, group = LINE // size, 16 // size
        quarter = ir.VectorType(ir.IntType(8 * size), group).as_pointer()

        def shuffled(a: Any, b: Any, picks: list[int]) -> Any:
            mask = ir.Constant(ir.VectorType(_I32, len(picks)), picks)
            return builder.shuffle_vector(a, b, mask)

        lines = []
        for k in range(group):
            places = [
                builder.add(stage, ir.Constant(_I64, pitch * (k + q * group))) for q in range(4)
            ]
            four = [builder.load(builder.inttoptr(at, quarter), align=1) for at in places]
            halves = [shuffled(four[q], four[q + 1], list(range(2 * group))) for q in (0, 2)]
            lines.append(shuffled(halves[0], halves[1], list(range(n))))
        lows = [q * group + e for q in range(4) for e in range(group // 2)]
        low = [place + other for place in lows for other in (0, n)]
        high = [place + group // 2 for place in low]
        for _stage in range(int(math.log2(group))):
            pairs = list(zip(lines[: group // 2], lines[group // 2 :], strict=True))
            lines = [shuffled(a, b, half) for a, b in pairs for half in (low, high)]
        places = [builder.add(dst, builder.mul(step, ir.Constant(_I64, k))) for k in range(group)]
        with builder.if_else(builder.trunc(past, _I1)) as branches:
            for branch, streams in zip(branches, (True, False), strict=True):
                with branch:
                    for line, place in zip(lines, places, strict=True):
                        _store(builder, line, place, past=streams)
        return context.get_dummy_value()

    return types.void(items, *[types.intp] * 4), generate


@_made
def _finish_streams(_: Any) -> Any:
    """Wait until other threads would see what was streamed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@_made
def _apart(_: Any) -> Any:
    """Promise that no array which the caller is given shares memory with another that it writes.

    Without it, 32 pixels are too few to ask, and are moved one by one: twice the time for floats.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for arg in builder.function.args:
            if isinstance(arg.type, ir.PointerType):
                arg.add_attribute("noalias")
        return context.get_dummy_value()

    return types.void(), generate


@_compiled
def _at(address: int, n: int, like: Any) -> Any:
    """Show memory as an array of `n` items of the dtype of `like`."""
    return _carray(_pointer(address), (n,), like.dtype)


@_compiled
def _item(finals: Any, value: Any, scale: Any, shift: Any, f: int) -> Any:
    if scale is None:
        return value
    return finals.dtype.type(value) * scale[f] + shift[f]


@_compiled
def _four(address: int, steps: Any, n: int, like: Any) -> Any:
    """Show memory at four places as arrays, see :func:`_at`."""
    one, two = _at(address + steps[0], n, like), _at(address + steps[1], n, like)
    return one, two, _at(address + steps[2], n, like), _at(address + steps[3], n, like)


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
def _copy_run(to: int, at: int, n: int) -> None:
    """Copy whole lines, or two words of the size that fits; the last may overlap one before.

    Of 32 bytes, runs are copied 1.6 times as fast as by words of 8 bytes.
    """
    if n >= LINE:
        for k in range(0, n - LINE, LINE):
            _copy_line(to + k, at + k)
        _copy_line(to + n - LINE, at + n - LINE)
    elif n >= 32:
        _copy_32(to, at)
        if n > 32:
            _copy_32(to + n - 32, at + n - 32)
    elif n >= 16:
        _copy_16(to, at)
        _copy_16(to + n - 16, at + n - 16)
    elif n >= 8:
        _copy_8(to, at)
        _copy_8(to + n - 8, at + n - 8)
    elif n >= 4:
        _copy_4(to, at)
        _copy_4(to + n - 4, at + n - 4)
    elif n >= 2:
        _copy_2(to, at)
        _copy_2(to + n - 2, at + n - 2)
    elif n == 1:
        _copy_1(to, at)


@_compiled
def tiles(
    items: Any, finals: Any, woven: Any, src: int, dst: int, table: Any, scale: Any, shift: Any,
    streamed: int, first: int, last: int, scratch: int,
) -> None:  # fmt: skip
    """Transpose: the source is contiguous along the fast axis, the destination along the rows.

    Items are converted while they are staged; but last, along the rows, if `woven` has two numbers
    in its first tuple: then those that are stored are turned, which are smaller.
    """
    n_outer, n_rows, n_fast, step, block = table[0], table[1], table[2], table[3], table[4]
    by_outer, by_fast, by_row = table[5], table[6], table[7]
    outer, rows = table[HEADER:], table[HEADER + 2 * n_outer :]
    item_size, size = _size_of(items), _size_of(finals)
    casts_last = len(woven[0]) == 2
    turned = item_size if casts_last else size
    per, group, run = LINE // turned, 16 // turned, TILE_RUN // turned
    n_blocks, n_runs = (n_fast + block - 1) // block, table[8]
    # stored past the caches, all runs but the first begin at a line
    head = dst % LINE // size if streamed else 0
    columns = min(per, n_fast)
    most = min(WIDE, STAGED_LINES // run)
    n_items, stage = per * most, scratch + BUFFER_BYTES
    pitch = most * LINE
    # so short that neighbours of a row lie in its cache lines: these come next
    share_lines = n_blocks == 1 and n_fast * item_size < 2 * LINE
    at_once = CAST_BYTES // (TILE_RUN // item_size * size)
    for unit in range(first, last):
        o, at_run = unit // (n_runs * n_blocks), unit // n_blocks % n_runs
        if share_lines:
            o, at_run = unit % n_outer, unit // n_outer
        place = at_run * run - head
        r, start = max(0, place), unit % n_blocks * block
        span = min(place + run, n_rows) - r
        if span <= 0:  # a loop that may be empty is compiled to take a third longer
            continue
        past = streamed != 0 and place == r
        if span < per <= n_rows and not past:
            r, span = n_rows - per, per
        # where a run is not made of whole lines, the last overlaps the one before: not past the
        # caches, where it would cost a trip to memory
        direct = not casts_last and (span % per == 0 or (span > per and not past))
        direct = direct and (columns % group == 0 or (columns > group and not past))
        stop = min(start + block, n_fast)
        base, out = src + outer[o], dst + outer[n_outer + o] + r * size
        for wide in range(start, stop, n_items):
            n_lines = min(most, (stop - wide + per - 1) // per)
            n_staged = min(n_fast, n_lines * per)
            begin = min(wide, n_fast - n_staged)
            to, f = stage, by_outer * o + by_row * r + by_fast * begin
            for row in rows[r : r + span]:
                here = base + row + begin * item_size
                if wide + 2 * n_items < n_fast:
                    for line in range(0, n_items * item_size, LINE):
                        _fetch(here + line + 2 * n_items * item_size)
                if scale is not None and not casts_last:
                    target, source = _at(to, n_staged, finals), _at(here, n_staged, items)
                    _convert(target, source, scale, shift, f, by_fast)
                elif columns < per:
                    _copy_run(to, here, columns * turned)
                else:  # nothing behind the row is read: memory may end there
                    for line in range(n_lines):
                        i = min(line * per, n_staged - per) * turned
                        _copy_line(to + i, here + i)
                to, f = to + pitch, f + by_row
            for w in range(n_lines):
                i = min(w * per, n_staged - columns)  # the last line may overlap the one before
                to, staged = out + (begin + i) * step, stage + i * turned
                for left in range(0, columns, group):
                    j = min(left, columns - group) if direct else left
                    for top in range(0, span, per):
                        g = min(top, span - per) if direct else top
                        at, there = staged + g * pitch + j * turned, to + j * step + g * size
                        if direct:
                            _turn(finals, at, there, step, past)
                        elif casts_last:
                            _turn(items, at, scratch + j * TILE_RUN + g * turned, TILE_RUN, 0)
                        else:
                            _turn(finals, at, scratch + j * TILE_RUN + g * size, TILE_RUN, 0)
                if direct:
                    continue
                if scale is not None and casts_last:
                    f = by_outer * o + by_row * r + by_fast * (begin + i)
                    cast = stage + STAGED_LINES * LINE
                    for some in range(0, columns, at_once):
                        n_some, at = min(at_once, columns - some), scratch + some * TILE_RUN
                        for column in range(n_some):
                            out_at = cast + column * span * size if past else to + column * step
                            target, source = _at(out_at, span, finals), _at(at, span, items)
                            _convert(target, source, scale, shift, f, by_row)
                            at, f = at + TILE_RUN, f + by_fast
                        if past:
                            _stream_runs(to, step, cast, span * size, n_some, span * size)
                        to += n_some * step
                    continue
                if past:
                    _stream_runs(to, step, scratch, TILE_RUN, columns, span * size)
                    continue
                at = scratch
                for _column in range(columns):
                    _copy_run(to, at, span * size)
                    to, at = to + step, at + TILE_RUN
    if streamed:
        _finish_streams()


@_compiled
def runs(
    items: Any, finals: Any, woven: Any, src: int, dst: int, table: Any, scale: Any, shift: Any,
    streamed: int, first: int, last: int, scratch: int,
) -> None:  # fmt: skip
    """Move or cast runs that are contiguous on both sides, `step` bytes apart there."""
    n_outer, n_rows, n_fast, step, block = table[0], table[1], table[2], table[3], table[4]
    outer, rows, size = table[HEADER:], table[HEADER + 2 * n_outer :], _size_of(finals)
    n_blocks, n_near, each = (n_rows + block - 1) // block, table[8], table[6]
    n_parts = (n_fast + RUN_ITEMS - 1) // RUN_ITEMS
    for unit in range(first, last):
        whole, skipped = unit // n_parts, unit % n_parts * RUN_ITEMS
        n = min(RUN_ITEMS, n_fast - skipped)
        start, begin = whole % n_blocks * block, whole // n_blocks * n_near
        for o in range(begin, begin + n_near):
            base = src + outer[o] + skipped * items.itemsize
            to = dst + outer[n_outer + o] + start * step + skipped * size
            f = table[5] * o + each * skipped + table[7] * start
            if scale is not None and streamed:
                some = rows[start : start + block]
                _stream_cast(
                    to, step, base, some, n, items, finals, scale[f:], shift[f:], each, table[7],
                    scratch,
                )  # fmt: skip
                continue
            for row in rows[start : start + block]:
                if scale is not None:
                    run, at = _at(to, n, finals), _at(base + row, n, items)
                    _convert(run, at, scale, shift, f, each)
                elif streamed:
                    _stream_runs(to, step, base + row, 0, 1, n * size)
                else:
                    _copy_run(to, base + row, n * size)
                to, f = to + step, f + table[7]
    if streamed:
        _finish_streams()


@_inlined
def _stream_cast(
    to: int, step: int, base: int, rows: Any, n: int, items: Any, finals: Any, scale: Any,
    shift: Any, each: int, by_row: int, scratch: int,
) -> None:  # fmt: skip
    """Cast runs past the caches by way of scratch memory, as many in one go as fit there.

    What was stored just before is slow to load: 12,288 x 32 x 32 bytes turned to (1, 0, 2) take
    1.9 ms on two cores, and 2.6 run by run.
    """
    size = _size_of(finals)
    most = CAST_BYTES // size
    at_once = max(1, most // n)
    for some in range(0, len(rows), at_once):
        together = rows[some : some + at_once]
        for k in range(0, n, most):
            piece, cast, f = min(most, n - k), scratch, by_row * some + each * k
            for row in together:
                at = _at(base + row + k * items.itemsize, piece, items)
                _convert(_at(cast, piece, finals), at, scale, shift, f, each)
                cast, f = cast + piece * size, f + by_row
            _stream_runs(to + k * size, step, scratch, piece * size, len(together), piece * size)
        to += step * len(together)


@_inlined
def _stream_runs(to: int, step: int, at: int, pitch: int, count: int, n_bytes: int) -> None:
    """Move runs past the caches, each from the start of a line on."""
    past = n_bytes // LINE * LINE
    for _run in range(count):
        for line in range(0, past, LINE):
            _stream(to + line, at + line)
        if past < n_bytes:
            _copy_run(to + past, at + past, n_bytes - past)
        to, at = to + step, at + pitch


@_inlined
def _weave_items(
    n: int, woven: Any, planes: Any, sources: Any, scale: Any, shift: Any, f: int
) -> None:
    """Move or cast `n` items of each plane, which on one side lie between those of the others."""
    _apart()
    to, at = len(woven[0]), len(woven[1])
    k, apart = max(to, at), to == 1
    places, alone = (0, 1, min(2, k - 1), k - 1), (0, 0, 0, 0)
    # where planes lie between one another they are one array, or nothing becomes of shuffles
    p, t = (planes, alone) if apart else ((planes[0], planes[0], planes[0], planes[0]), places)
    q, s = ((sources[0], sources[0], sources[0], sources[0]), places) if apart else (sources, alone)
    for i in range(n):
        p[0][to * i] = _item(p[0], q[0][at * i], scale, shift, f)
        p[1][to * i + t[1]] = _item(p[0], q[1][at * i + s[1]], scale, shift, f + 1)
        if k > 2:
            p[2][to * i + t[2]] = _item(p[0], q[2][at * i + s[2]], scale, shift, f + 2)
        if k > 3:
            p[3][to * i + t[3]] = _item(p[0], q[3][at * i + s[3]], scale, shift, f + 3)


@_inlined
def _word(first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """Take the first byte of one word, the second of another, and so on."""
    low = np.uint32(first & np.uint32(0xFF)) | np.uint32(second & np.uint32(0xFF00))
    return np.uint32(
        low | np.uint32(third & np.uint32(0xFF0000)) | (fourth & np.uint32(0xFF000000))
    )


@_inlined
def _weave_bytes(n: int, to: Any, red: Any, green: Any, blue: Any) -> None:
    """Interleave three planes of bytes, four of each in a word.

    256 x 3 x 32 x 32 take 35 us, and 48 byte by byte; where vectors have 32 bytes 41, not 37.
    """
    _apart()
    for i in range(n):
        r, g, b = red[i], green[i], blue[i]
        to[3 * i] = _word(r, np.uint32(g << 8), np.uint32(b << 16), np.uint32(r << 16))
        to[3 * i + 1] = _word(np.uint32(g >> 8), b, r, np.uint32(g << 8))
        to[3 * i + 2] = _word(np.uint32(b >> 16), np.uint32(r >> 16), np.uint32(g >> 8), b)


@_inlined
def _weave(
    n: int, woven: Any, out: int, step: int, base: int, places: Any, items: Any, finals: Any,
    scale: Any, shift: Any, f: int,
) -> None:  # fmt: skip
    """Move or cast `n` items of each plane; `step` bytes lie between planes of the destination."""
    to, at = len(woven[0]), len(woven[1])
    k = max(to, at)
    if scale is None and _size_of(finals) == 1 and to == 3 and n % 4 == 0 and n >= ENOUGH_WOVEN:
        words = _four(base, places, n // 4, _WORDS)
        _weave_bytes(n // 4, _at(out, 3 * n // 4, _WORDS), words[0], words[1], words[2])
    else:
        planes = _four(out, (0, step, min(2, k - 1) * step, (k - 1) * step), n * to, finals)
        _weave_items(n, woven, planes, _four(base, places, n * at, items), scale, shift, f)


@_compiled
def weaves(
    items: Any, finals: Any, woven: Any, src: int, dst: int, table: Any, scale: Any, shift: Any,
    streamed: int, first: int, last: int, scratch: int,
) -> None:  # fmt: skip
    """Interleave 2 to 4 planes, or take them apart: planes become pixels, or pixels planes.

    `woven` holds two tuples, as long as items of one plane are apart in the destination and in
    the source.
    """
    to, at, size = len(woven[0]), len(woven[1]), _size_of(finals)
    k, apart = max(to, at), to == 1
    n_outer, block = table[0], table[4]
    n_all = table[1] if apart else table[2]
    outer, rows = table[HEADER:], table[HEADER + 2 * n_outer :]
    n_blocks = (n_all + block - 1) // block
    places = rows[0], rows[0], rows[0], rows[0]
    if not apart:
        places = rows[0], rows[1], rows[min(2, k - 1)], rows[k - 1]
    o = first // n_blocks
    start = first % n_blocks * block
    for _unit in range(first, last):  # without a division: it would take a third of a short unit
        n = min(block, n_all - start)
        base = src + outer[o] + start * at * items.itemsize
        there, f = dst + outer[n_outer + o] + start * to * size, table[5] * o
        if streamed:
            for begin in range(0, n, STREAMED_ITEMS):
                some = min(STREAMED_ITEMS, n - begin)
                here, n_bytes = base + begin * at * items.itemsize, some * to * size
                _weave(some, woven, scratch, n_bytes, here, places, items, finals, scale, shift, f)
                out = there + begin * to * size
                _stream_runs(out, table[3], scratch, n_bytes, k if apart else 1, n_bytes)
        else:
            _weave(n, woven, there, table[3], base, places, items, finals, scale, shift, f)
        start += block
        if start >= n_all:
            start, o = 0, o + 1
    if streamed:
        _finish_streams()


# ---------------------------------------------------------------- rows and segments of bytes
@_inlined
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


@_compiled
def _pick(to: int, source: int, n_bytes: int, places: Any, row_bytes: int) -> bool:
    n = len(places)
    for i in range(n):
        if places[i] < 0 or places[i] > n_bytes - row_bytes:
            return False
    ahead = max(1, PICK_AHEAD_BYTES // max(1, row_bytes))
    for i in range(n):
        later = source + places[min(i + ahead, n - 1)]
        _copy_bytes(to + i * row_bytes, source + places[i], later, row_bytes)
    return True


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
    assert places.dtype == np.int64
    assert len(places) == len(out)
    to, source = address_of(out), address_of(stored)
    return bool(_pick(to, source, len(stored), places, out.shape[1]))


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
