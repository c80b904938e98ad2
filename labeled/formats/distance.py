"""How far memory lies from the bytes of a file that are read to it, within a page.

The system copies from its cache of the file to memory front to back, and a processor tells
what it has just stored from what it loads next by the last twelve bits of their addresses.
Where memory lies a few bytes further within its page than the bytes lie in theirs, each load
seems to need what was stored a moment ago, and waits for it: 768 KiB took 238 microseconds at a
distance of 1 to 15 bytes, 88 at 16 to 31, and 31 to 42 at all others (Zen 4). To read them
elsewhere and copy them from there takes 92. Large memory of the allocator begins 16 bytes into a
page, and values of a file often 12 bytes into the first, so that it is not left to chance.
"""

from __future__ import annotations

from labeled.formats.region import Array
from labeled.permute.addresses import address_of

PAGE_BYTES = 4096
CLOSE_BYTES = 16
"""Memory less than this behind the bytes of the file, within a page, is too close."""

APART_BYTES, ALIGNED = 256, 64
"""Where memory is laid: at least so far behind them, at the beginning of a cache line."""

LEAST_BYTES = 1 << 14
"""Less than this is read as fast as one can look where it goes to."""


def too_close(target: Array, offset: int) -> bool:
    """Whether bytes from `offset` of a file are better not read straight to an array.

    Examples
    --------
    >>> import numpy as np
    >>> page = np.empty(2 * PAGE_BYTES, np.uint8)
    >>> page = page[-page.ctypes.data % PAGE_BYTES :]
    >>> too_close(page[16:], 12), too_close(page[16:], 16), too_close(page[16:], 4096 * 5 + 15)
    (True, False, True)
    """
    return 0 < (address_of(target) - offset) % PAGE_BYTES < CLOSE_BYTES


def apart(held: Array, nbytes: int, offset: int) -> Array:
    """Return `nbytes` of some bytes, a page more than these, that lie well for `offset`."""
    line = -(-(offset + APART_BYTES) // ALIGNED) * ALIGNED
    begin = (line - address_of(held)) % PAGE_BYTES
    return held[begin : begin + nbytes]
