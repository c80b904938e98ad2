"""Compiled kernels: matrix transposes in registers, by numba, without the GIL.

The only door to numba (the extra ``fast``); importing it costs about half a second. The kernels
see addresses, byte offsets and item types, and trust them: :mod:`~labeled.permute.plan` makes
them, from arrays that stay alive during the call.

All of them follow one scheme. Whole cache lines of the source are loaded as vectors, turned by
shuffles (LLVM maps these to whatever the processor has), and written as whole cache lines. A
table of byte offsets says where the rows of the source lie, so an axis of any stride, several
axes at once, or gathered rows cost the same. Large results are *streamed*: stored past the
caches, so that memory is not first read where it is going to be overwritten.

Intrinsics and kernels share one file on purpose: numba's cache of compiled code notices changes
of the file of a kernel only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64
"""Bytes of a cache line, and of every vector."""

TILE_RUN = 128
"""Bytes written in one go along a row of the destination: two lines suit the prefetchers."""

AHEAD = 128
"""How many bytes ahead source rows are prefetched; hardware follows too few rows by itself."""

BUFFER_BYTES = 1 << 13
"""Of the first of three areas of scratch memory: one tile, then two lines, then staged rows."""

SCRATCH_BYTES = 2 * BUFFER_BYTES + 2 * LINE

PADDING = 16
"""Entries after the last row in a table of rows: the last offset again, never used."""

ADDRESS = types.intp
Function = TypeVar("Function", bound=Callable[..., Any])
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _scalar(item: Any) -> Any:
    """Return the LLVM type of a numba number type."""
    if isinstance(item, types.Float):
        return ir.FloatType() if item.bitwidth == 32 else ir.DoubleType()
    return ir.IntType(item.bitwidth)


def _size(item: Any) -> int:
    return int(item.bitwidth) // 8


def _at(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, ir.Constant(_I64, offset)) if offset else address


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _store(builder: Any, value: Any, address: Any, *, streamed: bool = False) -> None:
    """Store a value anywhere; a streamed one at a multiple of its size, past the caches."""
    pointer = builder.inttoptr(address, value.type.as_pointer())
    stored = builder.store(value, pointer, align=LINE if streamed else 1)
    if streamed:
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_I32, 1)]))


def _shuffle(builder: Any, a: Any, b: Any, picks: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_I32, len(picks)), picks)
    return builder.shuffle_vector(a, b, mask)


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    empty = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(_I32, 0))
    return _shuffle(builder, first, empty, [0] * lanes)


def _prefetch(builder: Any, address: Any) -> None:
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    call = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
    read, near, data = (ir.Constant(_I32, n) for n in (0, 3, 1))
    builder.call(call, [builder.inttoptr(address, byte), read, near, data])


def _converted(builder: Any, value: Any, item: Any, final: Any, scale: Any, shift: Any) -> Any:
    """Cast a vector and apply scale and shift, two rounded steps; integers only move."""
    if item == final and not isinstance(item, types.Float):
        return value
    wanted = ir.VectorType(_scalar(final), value.type.count)
    if not isinstance(item, types.Float):
        signed = item.signed
        value = builder.sitofp(value, wanted) if signed else builder.uitofp(value, wanted)
    elif _size(item) < _size(final):
        value = builder.fpext(value, wanted)
    elif _size(item) > _size(final):
        value = builder.fptrunc(value, wanted)
    return builder.fadd(builder.fmul(value, scale), shift)


def _factor(builder: Any, address: Any, final: Any, lanes: int, vector: bool) -> Any:
    """Load scale or shift: one for all lanes, or one for each."""
    if vector:
        return _load(builder, address, ir.VectorType(_scalar(final), lanes))
    return _splat(builder, _load(builder, address, _scalar(final)), lanes)


def _intrinsic(function: Callable[..., Any]) -> Any:
    """Give a function of compiler internals to kernels, which call it with other arguments."""
    return intrinsic(function)


def _compiled(function: Function) -> Function:
    """Compile at the first call, without the GIL; keep the code where numba may write."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    compiler: Any = njit
    try:
        made: Function = compiler(cache=True, **options)(function)
    except RuntimeError:  # no folder to write to: neither beside this file nor the user's own
        made = compiler(**options)(function)
    return made


@_intrinsic
def _turn(
    _: Any, item: Any, base: Any, table: Any, buffer: Any, pitch: Any
) -> tuple[Any, Callable[..., Any]]:
    """Turn a few rows of one vector each into columns of 16 bytes, `pitch` apart in `buffer`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, base, table, buffer, pitch = args
        lanes, group = LINE // _size(item), 16 // _size(item)
        kind = ir.VectorType(_scalar(item), lanes)
        rows = []
        for k in range(group):
            row = builder.add(base, _load(builder, _at(builder, table, 8 * k), _I64))
            rows.append(_load(builder, row, kind))
            _prefetch(builder, _at(builder, row, AHEAD))
        low = [n for q in range(4) for e in range(group // 2) for n in (q * group + e,) * 2]
        low = [n + (k % 2) * lanes for k, n in enumerate(low)]
        high = [n + group // 2 for n in low]
        for _stage in range(int(math.log2(group))):
            pairs = list(zip(rows[: group // 2], rows[group // 2 :], strict=True))
            rows = [_shuffle(builder, a, b, half) for a, b in pairs for half in (low, high)]
        for column in range(lanes):
            q, k = divmod(column, group)
            piece = _shuffle(builder, rows[k], rows[k], list(range(q * group, (q + 1) * group)))
            to = builder.add(buffer, builder.mul(pitch, ir.Constant(_I64, column)))
            _store(builder, piece, to)
        return context.get_dummy_value()

    return types.void(item, *[ADDRESS] * 4), generate


def _line(*, vector: bool, streamed: bool) -> Any:
    """Make the intrinsic that converts as many items as fill one line of the destination."""

    @_intrinsic
    def line(
        _: Any, item: Any, final: Any, dst: Any, src: Any, scale: Any, shift: Any
    ) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, _, dst, src, scale, shift = args
            lanes = LINE // _size(final)
            value = _load(builder, src, ir.VectorType(_scalar(item), lanes))
            factors = [_factor(builder, f, final, lanes, vector) for f in (scale, shift)]
            value = _converted(builder, value, item, final, *factors)
            _store(builder, value, dst, streamed=streamed)
            return context.get_dummy_value()

        return types.void(item, final, *[ADDRESS] * 4), generate

    return line


_line_one = _line(vector=False, streamed=False)
_line_one_streamed = _line(vector=False, streamed=True)
_line_each = _line(vector=True, streamed=False)
_line_each_streamed = _line(vector=True, streamed=True)


def _weave(n_rows: int, *, streamed: bool) -> Any:
    """Make the intrinsic that turns one vector of each of `n_rows` rows into woven lines."""

    @_intrinsic
    def weave(
        _: Any, item: Any, final: Any, dst: Any, base: Any, table: Any, scale: Any, shift: Any
    ) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, _, dst, base, table, *ends = args
            lanes = LINE // _size(final)
            rows = []
            for k in range(n_rows):
                row = builder.add(base, _load(builder, _at(builder, table, 8 * k), _I64))
                _prefetch(builder, _at(builder, row, 4 * LINE))
                value = _load(builder, row, ir.VectorType(_scalar(item), lanes))
                here = k * _size(final)
                pair = [_factor(builder, _at(builder, f, here), final, lanes, False) for f in ends]
                rows.append(_converted(builder, value, item, final, *pair))
            rows += [rows[-1]] * (4 - n_rows)
            whole = list(range(2 * lanes))
            a, b = (_shuffle(builder, rows[n], rows[n + 1], whole) for n in (0, 2))
            for line in range(n_rows):
                flat = range(line * lanes, (line + 1) * lanes)
                picks = [(n % n_rows) * lanes + n // n_rows for n in flat]
                woven = _shuffle(builder, a, b, picks)
                _store(builder, woven, _at(builder, dst, line * LINE), streamed=streamed)
            return context.get_dummy_value()

        return types.void(item, final, *[ADDRESS] * 5), generate

    return weave


_weave2, _weave3, _weave4 = (_weave(n, streamed=False) for n in (2, 3, 4))
_weave2_streamed, _weave3_streamed, _weave4_streamed = (_weave(n, streamed=True) for n in (2, 3, 4))


def _unweave(n_fast: int, *, streamed: bool) -> Any:
    """Make the intrinsic that takes every `n_fast`-th item, for each start, into a line."""

    @_intrinsic
    def unweave(
        _: Any, item: Any, final: Any, dst: Any, step: Any, src: Any, scale: Any, shift: Any
    ) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, _, dst, step, src, *ends = args
            lanes = LINE // _size(final)
            kind = ir.VectorType(_scalar(item), lanes)
            size = lanes * _size(item)
            parts = [_load(builder, _at(builder, src, k * size), kind) for k in range(n_fast)]
            _prefetch(builder, _at(builder, src, n_fast * size + 4 * LINE))
            parts += [parts[-1]] * (4 - n_fast)
            whole = list(range(2 * lanes))
            a, b = (_shuffle(builder, parts[n], parts[n + 1], whole) for n in (0, 2))
            for k in range(n_fast):
                value = _shuffle(builder, a, b, [n * n_fast + k for n in range(lanes)])
                here = k * _size(final)
                pair = [_factor(builder, _at(builder, f, here), final, lanes, False) for f in ends]
                value = _converted(builder, value, item, final, *pair)
                to = builder.add(dst, builder.mul(step, ir.Constant(_I64, k)))
                _store(builder, value, to, streamed=streamed)
            return context.get_dummy_value()

        return types.void(item, final, *[ADDRESS] * 5), generate

    return unweave


_unweave2, _unweave3, _unweave4 = (_unweave(n, streamed=False) for n in (2, 3, 4))
_unweave2_streamed, _unweave3_streamed, _unweave4_streamed = (
    _unweave(n, streamed=True) for n in (2, 3, 4)
)


def _copy(n_bytes: int) -> Any:
    """Make the intrinsic that copies a fixed number of bytes through one register."""

    @_intrinsic
    def copy(_: Any, dst: Any, src: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = _load(builder, args[1], ir.VectorType(ir.IntType(8), n_bytes))
            _store(builder, value, args[0])
            return context.get_dummy_value()

        return types.void(ADDRESS, ADDRESS), generate

    return copy


_copy1, _copy2, _copy4, _copy8, _copy16, _copy32, _copy64 = (
    _copy(n) for n in (1, 2, 4, 8, 16, 32, 64)
)


@_intrinsic
def _copy_long(_: Any, dst: Any, src: Any, n_bytes: Any) -> tuple[Any, Callable[..., Any]]:
    """Copy a long run by the C library."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, start = (builder.inttoptr(address, byte) for address in args[:2])
        copy: Any = cgutils.raw_memcpy
        copy(builder, to, start, args[2], 1)
        return context.get_dummy_value()

    return types.void(ADDRESS, ADDRESS, ADDRESS), generate


@_compiled
def _copy_short(dst: int, src: int, n: int) -> None:
    """Copy 1 to 64 bytes: two moves that overlap instead of a loop."""
    if n >= 32:
        _copy32(dst, src)
        _copy32(dst + n - 32, src + n - 32)
    elif n >= 16:
        _copy16(dst, src)
        _copy16(dst + n - 16, src + n - 16)
    elif n >= 8:
        _copy8(dst, src)
        _copy8(dst + n - 8, src + n - 8)
    elif n >= 4:
        _copy4(dst, src)
        _copy4(dst + n - 4, src + n - 4)
    elif n >= 2:
        _copy2(dst, src)
        _copy2(dst + n - 2, src + n - 2)
    else:
        _copy1(dst, src)


@_compiled
def _copy_run(dst: int, src: int, n: int, streamed: int) -> None:
    """Copy any number of bytes; a streamed run is a whole number of aligned lines."""
    if n <= LINE:
        _copy_short(dst, src, n)
    elif streamed:
        for k in range(0, n, LINE):
            _line_one_streamed(np.uint8(0), np.uint8(0), dst + k, src + k, src, src)
    elif n <= 1024:
        for k in range(0, n - LINE, LINE):
            _copy64(dst + k, src + k)
        _copy64(dst + n - LINE, src + n - LINE)
    else:
        _copy_long(dst, src, n)


@_compiled
def _put(
    item: Any,
    final: Any,
    dst: int,
    src: int,
    n: int,
    factors: Any,
    each: int,
    streamed: int,
    spare: int,
    item_bytes: int,
    final_bytes: int,
) -> None:
    """Convert `n` items that lie together, reading beyond them up to one line."""
    scale, shift = factors
    per = LINE // final_bytes
    whole = n // per
    for k in range(whole):
        at, to, f = src + k * per * item_bytes, dst + k * LINE, k * LINE
        if each:
            if streamed:
                _line_each_streamed(item, final, to, at, scale + f, shift + f)
            else:
                _line_each(item, final, to, at, scale + f, shift + f)
        elif streamed:
            _line_one_streamed(item, final, to, at, scale, shift)
        else:
            _line_one(item, final, to, at, scale, shift)
    rest = n - whole * per
    if rest > 0:
        at, f = src + whole * per * item_bytes, whole * LINE
        if each:
            _line_each(item, final, spare, at, scale + f, shift + f)
        else:
            _line_one(item, final, spare, at, scale, shift)
        _copy_short(dst + whole * LINE, spare, rest * final_bytes)


@_compiled
def tiles(
    item: Any,
    final: Any,
    src: int,
    dst: int,
    outer_src: Any,
    outer_dst: Any,
    rows: Any,
    sizes: Any,
    scale: int,
    shift: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Transpose: the source is contiguous along the fast axis, the destination along the rows."""
    n_rows, n_fast, step, block, streamed = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    by_outer, by_fast, by_row, head = sizes[5], sizes[6], sizes[7], sizes[8]
    item_bytes, final_bytes = sizes[9], sizes[10]
    lanes, group = LINE // item_bytes, 16 // item_bytes
    run = max(TILE_RUN // final_bytes, group)
    pitch = run * item_bytes
    buffer, spare = scratch, scratch + BUFFER_BYTES
    stage = spare + 2 * LINE
    table, stage_table = rows.ctypes.data, rows.ctypes.data + 8 * (n_rows + PADDING)
    n_blocks = (n_fast + block - 1) // block
    n_runs = (n_rows - head + run - 1) // run + (1 if head else 0)
    for unit in range(first, last):
        o = unit // (n_runs * n_blocks)
        rest = unit - o * n_runs * n_blocks
        t = rest // n_blocks
        start = (rest - t * n_blocks) * block
        past = streamed
        if head and t == 0:
            r, span, past = 0, head, 0
        elif streamed or n_rows < run:
            r = t * run if head == 0 else head + (t - 1) * run
            span = min(run, n_rows - r)
        else:
            r, span = min(t * run, n_rows - run), run
        groups = (span + group - 1) // group
        for i in range(start, min(start + block, n_fast), lanes):
            i = min(i, max(n_fast - lanes, 0))
            columns = min(lanes, n_fast)
            base = src + outer_src[o] + i * item_bytes
            if columns < lanes:
                for k in range(groups * group):
                    _copy_short(stage + k * LINE, base + rows[r + k], columns * item_bytes)
                for g in range(groups):
                    at = stage_table + 8 * g * group
                    _turn(item, stage, at, buffer + 16 * g, pitch)
            else:
                for g in range(groups):
                    at = table + 8 * (r + g * group)
                    _turn(item, base, at, buffer + 16 * g, pitch)
            to = dst + outer_dst[o] + i * step + r * final_bytes
            f = (by_outer * o + by_fast * i + by_row * r) * final_bytes
            for j in range(columns):
                here = f + j * by_fast * final_bytes
                _put(
                    item,
                    final,
                    to + j * step,
                    buffer + j * pitch,
                    span,
                    (scale + here, shift + here),
                    by_row,
                    past,
                    spare,
                    item_bytes,
                    final_bytes,
                )


@_compiled
def runs(
    item: Any,
    final: Any,
    src: int,
    dst: int,
    outer_src: Any,
    outer_dst: Any,
    rows: Any,
    sizes: Any,
    scale: int,
    shift: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Copy runs that are contiguous on both sides, `step` bytes apart in the destination."""
    n_rows, n_fast, step, block, streamed = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    by_outer, by_fast, by_row = sizes[5], sizes[6], sizes[7]
    item_bytes, final_bytes, pure = sizes[9], sizes[10], sizes[11]
    stage, spare = scratch, scratch + BUFFER_BYTES
    per = LINE // final_bytes
    n_blocks = (n_rows + block - 1) // block
    for unit in range(first, last):
        o = unit // n_blocks
        start = (unit - o * n_blocks) * block
        for r in range(start, min(start + block, n_rows)):
            at = src + outer_src[o] + rows[r]
            to = dst + outer_dst[o] + r * step
            if pure:
                _copy_run(to, at, n_fast * item_bytes, streamed)
                continue
            f = (by_outer * o + by_row * r) * final_bytes
            n = n_fast
            if n_fast < per:
                _copy_short(stage, at, n_fast * item_bytes)
                at = stage
            elif n_fast % per:
                n = n_fast - n_fast % per
                k = n_fast - per
                h = f + k * by_fast * final_bytes
                _put(
                    item,
                    final,
                    to + k * final_bytes,
                    at + k * item_bytes,
                    per,
                    (scale + h, shift + h),
                    by_fast,
                    0,
                    spare,
                    item_bytes,
                    final_bytes,
                )
            _put(
                item,
                final,
                to,
                at,
                n,
                (scale + f, shift + f),
                by_fast,
                streamed,
                spare,
                item_bytes,
                final_bytes,
            )


@_compiled
def weaves(
    item: Any,
    final: Any,
    src: int,
    dst: int,
    outer_src: Any,
    outer_dst: Any,
    rows: Any,
    sizes: Any,
    scale: int,
    shift: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Interleave 2 to 4 rows that are contiguous in the source: planes become pixels."""
    n_rows, n_fast, block, streamed = sizes[0], sizes[1], sizes[3], sizes[4]
    item_bytes, final_bytes, per = sizes[9], sizes[10], LINE // sizes[10]
    table = rows.ctypes.data
    n_blocks = (n_fast + block - 1) // block
    for unit in range(first, last):
        o = unit // n_blocks
        start = (unit - o * n_blocks) * block
        f = sizes[5] * o * final_bytes
        s, h = scale + f, shift + f
        for i in range(start, min(start + block, n_fast), per):
            k = min(i, n_fast - per)
            at = src + outer_src[o] + k * item_bytes
            to = dst + outer_dst[o] + k * n_rows * final_bytes
            if streamed and k == i:
                if n_rows == 2:
                    _weave2_streamed(item, final, to, at, table, s, h)
                elif n_rows == 3:
                    _weave3_streamed(item, final, to, at, table, s, h)
                else:
                    _weave4_streamed(item, final, to, at, table, s, h)
            elif n_rows == 2:
                _weave2(item, final, to, at, table, s, h)
            elif n_rows == 3:
                _weave3(item, final, to, at, table, s, h)
            else:
                _weave4(item, final, to, at, table, s, h)


@_compiled
def unweaves(
    item: Any,
    final: Any,
    src: int,
    dst: int,
    outer_src: Any,
    outer_dst: Any,
    rows: Any,
    sizes: Any,
    scale: int,
    shift: int,
    first: int,
    last: int,
    scratch: int,
) -> None:
    """Take 2 to 4 interleaved planes apart: pixels become planes."""
    n_rows, n_fast, step, block, streamed = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    item_bytes, final_bytes, per = sizes[9], sizes[10], LINE // sizes[10]
    n_blocks = (n_rows + block - 1) // block
    for unit in range(first, last):
        o = unit // n_blocks
        start = (unit - o * n_blocks) * block
        f = sizes[5] * o * final_bytes
        s, h = scale + f, shift + f
        for r in range(start, min(start + block, n_rows), per):
            k = min(r, n_rows - per)
            at = src + outer_src[o] + k * n_fast * item_bytes
            to = dst + outer_dst[o] + k * final_bytes
            if streamed and k == r:
                if n_fast == 2:
                    _unweave2_streamed(item, final, to, step, at, s, h)
                elif n_fast == 3:
                    _unweave3_streamed(item, final, to, step, at, s, h)
                else:
                    _unweave4_streamed(item, final, to, step, at, s, h)
            elif n_fast == 2:
                _unweave2(item, final, to, step, at, s, h)
            elif n_fast == 3:
                _unweave3(item, final, to, step, at, s, h)
            else:
                _unweave4(item, final, to, step, at, s, h)
