"""Compiled loops for filters, by numba (extra ``fast``), without the GIL.

Importing this module costs half a second and each loop a little more at its first call
ever, so it is imported only where numba is loaded already, or where nothing else can
decode a chunk. Every index is checked: chunks may be damaged on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.permute.jit import Loop, loop


@loop
def _join2(planes: Any, out: Any) -> None:
    a, b = planes[0], planes[1]
    for i in range(len(out)):
        out[i] = np.uint16(a[i]) | np.uint16(b[i]) << np.uint16(8)


@loop
def _join4(planes: Any, out: Any) -> None:
    a, b, c, d = planes[0], planes[1], planes[2], planes[3]
    for i in range(len(out)):
        out[i] = (
            np.uint32(a[i])
            | np.uint32(b[i]) << np.uint32(8)
            | np.uint32(c[i]) << np.uint32(16)
            | np.uint32(d[i]) << np.uint32(24)
        )


@loop
def _join8(planes: Any, out: Any) -> None:
    a, b, c, d = planes[0], planes[1], planes[2], planes[3]
    e, f, g, h = planes[4], planes[5], planes[6], planes[7]
    for i in range(len(out)):
        low = (
            np.uint64(a[i])
            | np.uint64(b[i]) << np.uint64(8)
            | np.uint64(c[i]) << np.uint64(16)
            | np.uint64(d[i]) << np.uint64(24)
        )
        high = (
            np.uint64(e[i])
            | np.uint64(f[i]) << np.uint64(8)
            | np.uint64(g[i]) << np.uint64(16)
            | np.uint64(h[i]) << np.uint64(24)
        )
        out[i] = low | high << np.uint64(32)


_JOINS: dict[int, tuple[Loop, str]] = {2: (_join2, "<u2"), 4: (_join4, "<u4"), 8: (_join8, "<u8")}


def unshuffle(planes: Any, elements: Any) -> None:
    """Interleave 2, 4 or 8 planes of bytes into elements, ``(n, item)`` bytes."""
    join, word = _JOINS[len(planes)]
    join(planes, elements.reshape(-1).view(word))


@loop
def sums(words: Any) -> Any:
    """Return the sum of 16-bit words, and the sum of its partial sums, modulo 65535."""
    first, second = np.uint64(0), np.uint64(0)
    for start in range(0, len(words), 4096):
        block = words[start : start + 4096]
        n = np.uint64(len(block))
        plain, weighted = np.uint64(0), np.uint64(0)
        for i in range(len(block)):
            word = np.uint64(block[i])
            plain += word
            weighted += (n - np.uint64(i)) * word
        second = (second + n * first + weighted) % np.uint64(65535)
        first = (first + plain) % np.uint64(65535)
    return first, second


@loop
def lzf(data: Any, out: Any) -> int:
    """Unpack LZF `data` into `out`; return how many bytes that gave, or -1 for damage."""
    at, to, end, room = 0, 0, len(data), len(out)
    while at < end:
        control = np.int64(data[at])
        at += 1
        if control < 32:  # that many bytes and one more, as they are
            n = control + 1
            if at + n > end or to + n > room:
                return -1
            for _ in range(n):
                out[to] = data[at]
                to += 1
                at += 1
            continue
        n = control >> 5  # a copy of bytes that were unpacked already
        if n == 7:
            if at >= end:
                return -1
            n += np.int64(data[at])
            at += 1
        if at >= end:
            return -1
        back = ((control & 31) << 8) + np.int64(data[at]) + 1
        at += 1
        n += 2
        if back > to or to + n > room:
            return -1
        for _ in range(n):
            out[to] = out[to - back]
            to += 1
    return to


@loop
def lz4_blocks(data: Any, start: int, out: Any, block: int) -> Any:
    """Unpack LZ4 blocks, each with its size in front, into `out`.

    Returns
    -------
    int
        Where the last block ends in `data`; -1 for damage.
    """
    at: Any = start
    begin, n_data, n_out = 0, len(data), len(out)
    while begin < n_out:
        stop = min(begin + block, n_out)
        if at + 4 > n_data:
            return -1
        packed = (
            np.int64(data[at]) << 24
            | np.int64(data[at + 1]) << 16
            | np.int64(data[at + 2]) << 8
            | np.int64(data[at + 3])
        )
        at += 4
        end = at + packed
        to: Any = begin
        if end > n_data:
            return -1
        while at < end:
            token = np.int64(data[at])
            at += 1
            n = token >> 4  # literals: bytes as they are
            if n == 15:
                more = np.int64(255)
                while more == 255:
                    if at >= end:
                        return -1
                    more = np.int64(data[at])
                    n += more
                    at += 1
            if at + n > end or to + n > stop:
                return -1
            into, plain = out[to : to + n], data[at : at + n]
            for i in range(n):
                into[i] = plain[i]
            at += n
            to += n
            if at == end:  # the last sequence has no copy
                break
            if at + 2 > end:
                return -1
            back = np.int64(data[at]) | np.int64(data[at + 1]) << 8
            at += 2
            n = (token & 15) + 4  # a copy of bytes that were unpacked already
            if n == 19:
                more = np.int64(255)
                while more == 255:
                    if at >= end:
                        return -1
                    more = np.int64(data[at])
                    n += more
                    at += 1
            if back == 0 or back > to - begin or to + n > stop:
                return -1
            into, known = out[to : to + n], out[to - back : to - back + n]
            for i in range(n):  # forwards: the two may overlap
                into[i] = known[i]
            to += n
        if to != stop or at != end:
            return -1
        begin = stop
    return at


@loop
def _join_bits(planes: Any, groups: Any, item: int) -> None:
    """Turn the bit planes of a block into planes of bytes, 8 elements at a time."""
    n = len(groups) // item
    for j in range(item):
        lines, found = planes[j * 8 * n : (j + 1) * 8 * n], groups[j * n : (j + 1) * n]
        a, b, c, d = lines[:n], lines[n : 2 * n], lines[2 * n : 3 * n], lines[3 * n : 4 * n]
        rest = lines[4 * n :]
        e, f, g, h = rest[:n], rest[n : 2 * n], rest[2 * n : 3 * n], rest[3 * n :]
        for i in range(n):
            low = (
                np.uint64(a[i])
                | np.uint64(b[i]) << np.uint64(8)
                | np.uint64(c[i]) << np.uint64(16)
                | np.uint64(d[i]) << np.uint64(24)
            )
            high = (
                np.uint64(e[i])
                | np.uint64(f[i]) << np.uint64(8)
                | np.uint64(g[i]) << np.uint64(16)
                | np.uint64(h[i]) << np.uint64(24)
            )
            x = low | high << np.uint64(32)  # 8 x 8 bits, to be turned over
            t = (x ^ (x >> np.uint64(7))) & np.uint64(0x00AA00AA00AA00AA)
            x = x ^ t ^ (t << np.uint64(7))
            t = (x ^ (x >> np.uint64(14))) & np.uint64(0x0000CCCC0000CCCC)
            x = x ^ t ^ (t << np.uint64(14))
            t = (x ^ (x >> np.uint64(28))) & np.uint64(0x00000000F0F0F0F0)
            found[i] = x ^ t ^ (t << np.uint64(28))


@loop
def _elements(planes: Any, out: Any, item: int, block: int, groups: Any) -> None:
    n = len(out) // item // 8 * 8
    for begin in range(0, n, block):
        m = min(begin + block, n) - begin
        _join_bits(planes[begin * item : (begin + m) * item], groups[: m // 8 * item], item)
        held = groups.view(np.uint8)[: m * item].reshape(item, m)
        into = out[begin * item : (begin + m) * item]
        if item == 1:
            for i in range(m):
                into[i] = held[0, i]
        elif item == 2:
            _join2(held, into.view(np.uint16))
        elif item == 4:
            _join4(held, into.view(np.uint32))
        elif item == 8:
            _join8(held, into.view(np.uint64))
        else:
            for j in range(item):
                for i in range(m):
                    into[i * item + j] = held[j, i]


def unbitshuffle(planes: Any, out: Any, item: int, block: int) -> None:
    """Bring the bits of each element together again, block by block of `block` elements.

    The bytes behind the last 8 elements are as they are.
    """
    n = len(out) // item // 8 * 8
    if n:
        _elements(planes, out, item, block, np.empty(min(block, n) // 8 * item, np.uint64))
    out[n * item :] = planes[n * item :]
