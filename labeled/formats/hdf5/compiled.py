"""Compiled loops for filters, by numba (extra ``fast``), without the GIL.

Importing this module costs half a second and each loop a little more at its first call
ever, so it is imported only where numba is loaded already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.permute.compiled import Loop, loop


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
