"""Compiled kernels: matrix transposes in registers, by numba, without the GIL.

The only door to numba (the extra ``fast``); importing it costs about half a second. The kernels
see addresses, byte offsets and item types, and trust them: :mod:`~labeled.permute.compiled` makes
them, from arrays that stay alive during the call.

All of them follow one scheme. Whole cache lines of the source are loaded as vectors, turned by
shuffles (LLVM maps these to whatever the processor has), and written as whole cache lines.
Transposes first copy a few lines of each of their rows side by side: rows a round number of bytes
apart push one another out of the nearest cache, and a tile comes back to each of them. A
table of byte offsets says where the rows of the source lie, so an axis of any stride, several
axes at once, or gathered rows cost the same. Large results are *streamed*: stored past the
caches, so that memory is not first read where it is going to be overwritten.

What the compiler must know travels as types, in one tuple ``kinds``: an item of the source, one
of the result, a number of as many bits as a vector has bytes, and a tuple as long as the number
of rows that are woven. Intrinsics and kernels share one file on purpose: numba's cache of
compiled code notices changes of the file of a kernel only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import typeof, types
from numba.extending import intrinsic

from labeled.permute.compiler import Loop, loop
from labeled.permute.layout import CACHE_LINE as LINE
from labeled.permute.layout import HEADER, TILE_RUN

WIDE = 4
"""Lines of a row staged in one go, at most: each row is another page, or another set of a cache."""

STAGED_LINES = 256
"""Lines of all rows staged in one go: half of the nearest cache."""

BUFFER_BYTES = 1 << 13
"""Of the first of three areas of scratch memory: one tile, then two lines, then staged rows."""

SCRATCH_BYTES = BUFFER_BYTES + (2 + STAGED_LINES) * LINE

ADDRESS = types.intp
Generate = Callable[..., Any]
_type_of: Callable[..., Any] = typeof
_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))


def _intrinsic(function: Callable[..., Any]) -> Any:
    """Give a function of compiler internals to kernels, which call it with other arguments."""
    return intrinsic(function)


def entry(name: str, args: tuple[Any, ...]) -> Any:
    """Return the code of a kernel for arguments of these types, which nobody looks at again."""
    kernel = globals()[name]
    kernel(*args)
    return kernel.get_overload(tuple(_type_of(arg) for arg in args))


def _compiled(function: Loop) -> Loop:
    """Compile without asking, at each division, whether it is by nothing."""
    return loop(function, error_model="numpy")


def _size(item: Any) -> int:
    return int(item.bitwidth) // 8


def _source_readers(kinds: Any, item: Any) -> int:
    """Return how many items fill a vector."""
    return int(kinds[2].bitwidth) // _size(item)


def _scalar(item: Any) -> Any:
    """Return the LLVM type of a numba number type."""
    if isinstance(item, types.Float):
        return ir.FloatType() if item.bitwidth == 32 else ir.DoubleType()
    return ir.IntType(item.bitwidth)


def _vector(item: Any, source_readers: int) -> Any:
    return ir.VectorType(_scalar(item), source_readers)


def _at(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, ir.Constant(_I64, offset)) if offset else address


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def _stream(builder: Any, value: Any, address: Any, n_bytes: int = LINE) -> None:
    """Store a vector past the caches, at a multiple of its size."""
    pointer = builder.inttoptr(address, value.type.as_pointer())
    stored = builder.store(value, pointer, align=n_bytes)
    mark = builder.module.add_metadata([ir.Constant(_I32, 1)])
    stored.set_metadata("nontemporal", mark)


def _store_past(builder: Any, value: Any, address: Any, n_bytes: int, streamed: Any) -> None:
    """Store a vector; where `streamed`, at a multiple of its size and past the caches."""
    with builder.if_else(builder.trunc(streamed, _I1)) as (then, otherwise):
        with then:
            _stream(builder, value, address, n_bytes)
        with otherwise:
            _store(builder, value, address)


def _shuffle(builder: Any, a: Any, b: Any, picks: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_I32, len(picks)), picks)
    return builder.shuffle_vector(a, b, mask)


def _splat(builder: Any, value: Any, source_readers: int) -> Any:
    empty = ir.Constant(ir.VectorType(value.type, source_readers), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(_I32, 0))
    return _shuffle(builder, first, empty, [0] * source_readers)


def _prefetch(builder: Any, address: Any, near: int = 3) -> None:
    """Ask for a line that is needed soon, in the nearest cache (3) or in the next one (2)."""
    byte = _I8.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    call = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
    marks = [ir.Constant(_I32, n) for n in (0, near, 1)]
    builder.call(call, [builder.inttoptr(address, byte), *marks])


def _converted(builder: Any, value: Any, kinds: Any, scale: Any, shift: Any) -> Any:
    """Cast a vector and apply scale and shift, two rounded steps; integers only move."""
    item, final = kinds[0], kinds[1]
    if item == final and not isinstance(item, types.Float):
        return value
    wanted = _vector(final, value.type.count)
    if not isinstance(item, types.Float):
        value = (builder.sitofp if item.signed else builder.uitofp)(value, wanted)
    elif _size(item) < _size(final):
        value = builder.fpext(value, wanted)
    elif _size(item) > _size(final):
        value = builder.fptrunc(value, wanted)
    return builder.fadd(builder.fmul(value, scale), shift)


def _factor(builder: Any, address: Any, final: Any, source_readers: int) -> Any:
    """Load one scale or shift for all source_readers."""
    return _splat(builder, _load(builder, address, _scalar(final)), source_readers)


def _constant(measure: Callable[[Any], int]) -> Any:
    """Make an intrinsic that turns what `kinds` say into a number."""

    @_intrinsic
    def constant(_: Any, kinds: Any) -> tuple[Any, Generate]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return ir.Constant(_I64, int(measure(kinds)))

        return types.intp(kinds), generate

    return constant


_item_bytes = _constant(lambda kinds: _size(kinds[0]))
_final_bytes = _constant(lambda kinds: _size(kinds[1]))
_vector_bytes = _constant(lambda kinds: int(kinds[2].bitwidth))
_moves = _constant(lambda kinds: kinds[0] == kinds[1] and not isinstance(kinds[0], types.Float))


@_intrinsic
def _turn(
    _: Any, kinds: Any, stage: Any, dst: Any, step: Any, streamed: Any
) -> tuple[Any, Generate]:
    """Turn 16 bytes of as many rows as fill a line into as many lines, `step` bytes apart.

    The rows lie in `stage`, a line each. Four of them, a quarter of the rows apart, fill one
    vector; its quarters are turned side by side.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, stage, dst, step, streamed = args
        item = kinds[0]
        source_readers, group = LINE // _size(item), 16 // _size(item)
        lines = []
        for k in range(group):
            four = [
                _load(builder, _at(builder, stage, LINE * (k + q * group)), _vector(item, group))
                for q in range(4)
            ]
            a, b = _joined(builder, four, group)
            lines.append(_shuffle(builder, a, b, list(range(source_readers))))
        lows = [q * group + e for q in range(4) for e in range(group // 2)]
        low = [n + other for n in lows for other in (0, source_readers)]
        high = [n + group // 2 for n in low]
        for _stage in range(int(math.log2(group))):
            pairs = list(zip(lines[: group // 2], lines[group // 2 :], strict=True))
            lines = [_shuffle(builder, a, b, half) for a, b in pairs for half in (low, high)]
        places = [builder.add(dst, builder.mul(step, ir.Constant(_I64, k))) for k in range(group)]
        with builder.if_else(builder.trunc(streamed, _I1)) as (then, otherwise):
            with then:
                for line, place in zip(lines, places, strict=True):
                    _stream(builder, line, place)
            with otherwise:
                for line, place in zip(lines, places, strict=True):
                    _store(builder, line, place)
        return context.get_dummy_value()

    return types.void(kinds, *[ADDRESS] * 4), generate


def _line(*, each: bool) -> Any:
    """Make the intrinsic that converts as many items as fill one line of the destination."""

    @_intrinsic
    def line(
        _: Any, kinds: Any, dst: Any, src: Any, scale: Any, shift: Any, streamed: Any
    ) -> tuple[Any, Generate]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, dst, src, *ends, streamed = args
            item, final = kinds[0], kinds[1]
            source_readers = LINE // _size(final)
            value = _load(builder, src, _vector(item, source_readers))
            if each:
                factors = [_load(builder, end, _vector(final, source_readers)) for end in ends]
            else:
                factors = [_factor(builder, end, final, source_readers) for end in ends]
            value = _converted(builder, value, kinds, *factors)
            _store_past(builder, value, dst, LINE, streamed)
            return context.get_dummy_value()

        return types.void(kinds, *[ADDRESS] * 5), generate

    return line


_line_one, _line_each = _line(each=False), _line(each=True)


def _joined(builder: Any, parts: list[Any], source_readers: int) -> list[Any]:
    """Join up to four vectors to two of twice the length."""
    four = parts + [parts[-1]] * (4 - len(parts))
    return [
        _shuffle(builder, four[n], four[n + 1], list(range(2 * source_readers))) for n in (0, 2)
    ]


@_intrinsic
def _weave(
    _: Any, kinds: Any, dst: Any, base: Any, offsets: Any, scale: Any, shift: Any, streamed: Any
) -> tuple[Any, Generate]:
    """Turn one vector of each row into as many vectors of woven items."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, dst, base, offsets, *ends, streamed = args
        item, final, n_rows = kinds[0], kinds[1], len(kinds[3])
        source_readers = _source_readers(kinds, final)
        rows = []
        for k in range(n_rows):
            row = builder.add(base, _load(builder, _at(builder, offsets, 8 * k), _I64))
            _prefetch(builder, _at(builder, row, 4 * LINE))
            value = _load(builder, row, _vector(item, source_readers))
            here = [_at(builder, end, k * _size(final)) for end in ends]
            factors = [_factor(builder, end, final, source_readers) for end in here]
            rows.append(_converted(builder, value, kinds, *factors))
        a, b = _joined(builder, rows, source_readers)
        n_bytes = source_readers * _size(final)
        for k in range(n_rows):
            flat = range(k * source_readers, (k + 1) * source_readers)
            woven = _shuffle(
                builder, a, b, [(n % n_rows) * source_readers + n // n_rows for n in flat]
            )
            _store_past(builder, woven, _at(builder, dst, k * n_bytes), n_bytes, streamed)
        return context.get_dummy_value()

    return types.void(kinds, *[ADDRESS] * 6), generate


@_intrinsic
def _unweave(
    _: Any, kinds: Any, dst: Any, step: Any, src: Any, scale: Any, shift: Any, streamed: Any
) -> tuple[Any, Generate]:
    """Turn as many vectors of woven items into one vector of each plane, `step` bytes apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, dst, step, src, *ends, streamed = args
        item, final, n_planes = kinds[0], kinds[1], len(kinds[3])
        source_readers = _source_readers(kinds, final)
        size = source_readers * _size(item)
        starts = [_at(builder, src, k * size) for k in range(n_planes)]
        parts = [_load(builder, start, _vector(item, source_readers)) for start in starts]
        _prefetch(builder, _at(builder, src, n_planes * size + 4 * LINE))
        a, b = _joined(builder, parts, source_readers)
        for k in range(n_planes):
            value = _shuffle(builder, a, b, [n * n_planes + k for n in range(source_readers)])
            here = [_at(builder, end, k * _size(final)) for end in ends]
            factors = [_factor(builder, end, final, source_readers) for end in here]
            value = _converted(builder, value, kinds, *factors)
            to = builder.add(dst, builder.mul(step, ir.Constant(_I64, k)))
            _store_past(builder, value, to, source_readers * _size(final), streamed)
        return context.get_dummy_value()

    return types.void(kinds, *[ADDRESS] * 6), generate


def _copy(n_bytes: int) -> Any:
    """Make the intrinsic that copies a fixed number of bytes through one register."""

    @_intrinsic
    def copy(_: Any, dst: Any, src: Any, streamed: Any) -> tuple[Any, Generate]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = _load(builder, args[1], ir.VectorType(_I8, n_bytes))
            _store_past(builder, value, args[0], n_bytes, args[2])
            return context.get_dummy_value()

        return types.void(ADDRESS, ADDRESS, ADDRESS), generate

    return copy


_copy1, _copy2, _copy4, _copy8, _copy16, _copy32, _copy64 = (
    _copy(n) for n in (1, 2, 4, 8, 16, 32, 64)
)


@_intrinsic
def _fetch(_: Any, dst: Any, src: Any, ahead: Any) -> tuple[Any, Generate]:
    """Copy one line of a source row, and ask for one further on: no hardware follows so many."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, builder.add(args[1], args[2]), 2)
        _store(builder, _load(builder, args[1], ir.VectorType(_I8, LINE)), args[0])
        return context.get_dummy_value()

    return types.void(ADDRESS, ADDRESS, ADDRESS), generate


@_compiled
def _copy_short(dst: int, src: int, n: int) -> None:
    """Copy 1 to 64 bytes: two moves that overlap instead of a loop."""
    if n >= 32:
        _copy32(dst, src, 0)
        _copy32(dst + n - 32, src + n - 32, 0)
    elif n >= 16:
        _copy16(dst, src, 0)
        _copy16(dst + n - 16, src + n - 16, 0)
    elif n >= 8:
        _copy8(dst, src, 0)
        _copy8(dst + n - 8, src + n - 8, 0)
    elif n >= 4:
        _copy4(dst, src, 0)
        _copy4(dst + n - 4, src + n - 4, 0)
    elif n >= 2:
        _copy2(dst, src, 0)
        _copy2(dst + n - 2, src + n - 2, 0)
    else:
        _copy1(dst, src, 0)


@_compiled
def _copy_lines(dst: int, step: int, src: int, pitch: int, count: int, n: int) -> None:
    """Copy runs of the same 16 to 64 bytes, `pitch` apart: the choice of moves is made once."""
    if n > 32:
        for k in range(count):
            to, at = dst + k * step, src + k * pitch
            _copy32(to, at, 0)
            _copy32(to + n - 32, at + n - 32, 0)
    elif n == 32:
        for k in range(count):
            _copy32(dst + k * step, src + k * pitch, 0)
    elif n > 16:
        for k in range(count):
            to, at = dst + k * step, src + k * pitch
            _copy16(to, at, 0)
            _copy16(to + n - 16, at + n - 16, 0)
    else:
        for k in range(count):
            _copy16(dst + k * step, src + k * pitch, 0)


@_compiled
def _put(
    kinds: Any,
    dst: int,
    src: int,
    n: int,
    scale: int,
    shift: int,
    each: int,
    streamed: int,
    spare: int,
) -> None:
    """Convert `n` items that lie together; of less than a line, a whole line is read."""
    item_bytes, final_bytes = _item_bytes(kinds), _final_bytes(kinds)
    per = LINE // final_bytes
    for k in range(0, n - per + 1, per):
        f = k * final_bytes
        to, at = dst + f, src + k * item_bytes
        if each:
            _line_each(kinds, to, at, scale + f, shift + f, streamed)
        else:
            _line_one(kinds, to, at, scale, shift, streamed)
    if n % per == 0:
        return
    # the rest is the end of a line that overlaps the one before; that one is not touched again
    # where it is on its way past the caches, which would cost a trip to memory
    rest, k = n % per, max(n - per, 0)
    apart = streamed != 0 or n < per
    f = k * final_bytes
    to, at = spare if apart else dst + f, src + k * item_bytes
    if each:
        _line_each(kinds, to, at, scale + f, shift + f, 0)
    else:
        _line_one(kinds, to, at, scale, shift, 0)
    if apart:
        known = n - rest - k
        _copy_short(dst + f + known * final_bytes, spare + known * final_bytes, rest * final_bytes)


@_compiled
def _put_few(
    kinds: Any, dst: int, src: int, n: int, scale: int, shift: int, each: int, spare: int
) -> None:
    """Convert less than a line of items; a whole line is read.

    Not done by `_put` without stores past the caches: compiled for bytes that become
    doubles, the call for these items was dropped, and what follows was stored off its line.
    """
    if n == 0:
        return
    if each:
        _line_each(kinds, spare, src, scale, shift, 0)
    else:
        _line_one(kinds, spare, src, scale, shift, 0)
    _copy_short(dst, spare, n * _final_bytes(kinds))


@_compiled
def tiles(
    kinds: Any,
    src: int,
    dst: int,
    table: Any,
    scale: int,
    shift: int,
    streamed: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Transpose: the source is contiguous along the fast axis, the destination along the rows."""
    n_outer, n_rows, n_fast, step, block = table[0], table[1], table[2], table[3], table[4]
    by_outer, by_fast, by_row = table[5], table[6], table[7]
    item_bytes, final_bytes = _item_bytes(kinds), _final_bytes(kinds)
    outer, rows = table[HEADER:], table[HEADER + 2 * n_outer :]
    source_readers, group = LINE // item_bytes, 16 // item_bytes
    run = max(TILE_RUN // final_bytes, source_readers)
    buffer, spare = scratch, scratch + BUFFER_BYTES
    stage = spare + 2 * LINE
    pitch = run * item_bytes
    n_blocks = (n_fast + block - 1) // block
    n_runs = (n_rows + run - 1) // run
    columns = min(source_readers, n_fast)
    most = min(WIDE, STAGED_LINES // run)
    ahead = 2 * most * LINE
    for unit in range(first, last):
        o = unit // (n_runs * n_blocks)
        t = unit // n_blocks - o * n_runs
        start = unit % n_blocks * block
        r = t * run
        span = min(run, n_rows - r)
        if span < source_readers <= n_rows and not streamed:
            r, span = n_rows - source_readers, source_readers
        # where a run is not made of whole lines, the last overlaps the one before: not past the
        # caches, where it would cost a trip to memory
        direct = _moves(kinds) and (
            span % source_readers == 0 or (span > source_readers and not streamed)
        )
        direct = direct and (columns % group == 0 or (columns > group and not streamed))
        stop = min(start + block, n_fast)
        for wide in range(start, stop, source_readers * most):
            lines = min(most, (stop - wide + source_readers - 1) // source_readers)
            base = src + outer[o]
            if columns < source_readers:
                for k in range(span):
                    _copy_short(stage + k * LINE, base + rows[r + k], columns * item_bytes)
            else:
                for k in range(span):
                    at = base + rows[r + k]
                    for w in range(lines):
                        i = min(wide + w * source_readers, n_fast - source_readers)
                        _fetch(stage + (w * run + k) * LINE, at + i * item_bytes, ahead)
            for w in range(lines):
                i = min(wide + w * source_readers, n_fast - columns)
                staged = stage + w * run * LINE
                to = dst + outer[n_outer + o] + i * step + r * final_bytes
                if direct:
                    for left in range(0, columns, group):
                        j = min(left, columns - group)
                        for top in range(0, span, source_readers):
                            g = min(top, span - source_readers)
                            at, there = staged + g * LINE + j * item_bytes, to + g * item_bytes
                            _turn(kinds, at, there + j * step, step, streamed)
                    continue
                for j in range(0, columns, group):
                    for g in range(0, span, source_readers):
                        at = staged + g * LINE + j * item_bytes
                        _turn(kinds, at, buffer + j * pitch + g * item_bytes, pitch, 0)
                if _moves(kinds) and 16 <= span * item_bytes <= LINE:
                    _copy_lines(to, step, buffer, pitch, columns, span * item_bytes)
                    continue
                f = (by_outer * o + by_fast * i + by_row * r) * final_bytes
                for j in range(columns):
                    there, at = to + j * step, buffer + j * pitch
                    s, h = scale + f, shift + f
                    _put(kinds, there, at, span, s, h, by_row, streamed, spare)
                    f += by_fast * final_bytes


@_compiled
def runs(
    kinds: Any,
    src: int,
    dst: int,
    table: Any,
    scale: int,
    shift: int,
    streamed: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Cast runs that are contiguous on both sides, `step` bytes apart in the destination."""
    n_outer, n_rows, n_fast, step, block = table[0], table[1], table[2], table[3], table[4]
    by_outer, by_fast, by_row = table[5], table[6], table[7]
    item_bytes, final_bytes = _item_bytes(kinds), _final_bytes(kinds)
    outer, rows = table[HEADER:], table[HEADER + 2 * n_outer :]
    stage, spare = scratch, scratch + BUFFER_BYTES
    per = LINE // final_bytes
    n_blocks = (n_rows + block - 1) // block
    short = n_fast * item_bytes
    for unit in range(first, last):
        o = unit // n_blocks
        start = unit % n_blocks * block
        base, out = src + outer[o], dst + outer[n_outer + o]
        for r in range(start, min(start + block, n_rows)):
            at, to = base + rows[r], out + r * step
            f = (by_outer * o + by_row * r) * final_bytes
            begin = 0
            if n_fast < per:  # less than a line of the result is converted, and a line is read
                _copy_short(stage, at, min(short, LINE))
                if short > LINE:
                    _copy64(stage + short - LINE, at + short - LINE, 0)
                at = stage
            elif streamed:
                begin = (-to) % LINE // final_bytes
                _put_few(kinds, to, at, begin, scale + f, shift + f, by_fast, spare)
            d, a = to + begin * final_bytes, at + begin * item_bytes
            h = f + begin * by_fast * final_bytes
            _put(kinds, d, a, n_fast - begin, scale + h, shift + h, by_fast, streamed, spare)


@_compiled
def weaves(
    kinds: Any,
    src: int,
    dst: int,
    table: Any,
    scale: int,
    shift: int,
    streamed: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Interleave 2 to 4 rows that are contiguous in the source: planes become pixels."""
    n_outer, n_rows, n_fast, block = table[0], table[1], table[2], table[4]
    item_bytes, pixel = _item_bytes(kinds), n_rows * _final_bytes(kinds)
    per = _vector_bytes(kinds) // _final_bytes(kinds)
    outer = table[HEADER:]
    offsets = outer[2 * n_outer :].ctypes.data
    n_blocks = (n_fast + block - 1) // block
    for unit in range(first, last):
        o = unit // n_blocks
        start = (unit - o * n_blocks) * block
        stop = min(start + block, n_fast)
        at, to = src + outer[o], dst + outer[n_outer + o]
        f = table[5] * o * _final_bytes(kinds)
        s, h = scale + f, shift + f
        for i in range(start, stop - per + 1, per):
            _weave(kinds, to + i * pixel, at + i * item_bytes, offsets, s, h, streamed)
        if (stop - start) % per:
            i = stop - per
            _weave(kinds, to + i * pixel, at + i * item_bytes, offsets, s, h, 0)


@_compiled
def unweaves(
    kinds: Any,
    src: int,
    dst: int,
    table: Any,
    scale: int,
    shift: int,
    streamed: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Take 2 to 4 interleaved planes apart: pixels become planes."""
    n_outer, n_rows, n_fast, step, block = table[0], table[1], table[2], table[3], table[4]
    final_bytes, pixel = _final_bytes(kinds), n_fast * _item_bytes(kinds)
    per = _vector_bytes(kinds) // final_bytes
    outer = table[HEADER:]
    n_blocks = (n_rows + block - 1) // block
    for unit in range(first, last):
        o = unit // n_blocks
        start = (unit - o * n_blocks) * block
        stop = min(start + block, n_rows)
        at, to = src + outer[o], dst + outer[n_outer + o]
        f = table[5] * o * final_bytes
        s, h = scale + f, shift + f
        for r in range(start, stop - per + 1, per):
            _unweave(kinds, to + r * final_bytes, step, at + r * pixel, s, h, streamed)
        if (stop - start) % per:
            r = stop - per
            _unweave(kinds, to + r * final_bytes, step, at + r * pixel, s, h, 0)
