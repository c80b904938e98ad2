"""The checksum of HDF5's newer metadata, of many blocks of one length at once.

Bob Jenkins' lookup3 (``hashlittle`` of http://burtleburtle.net/bob/c/lookup3.c, public domain)
with 0 to begin with, as *HDF5 File Format Specification Version 3.0* says of all checksums.
"""

from __future__ import annotations

import numpy as np

from labeled.formats.region import Array

_MIX = ((0, 2, 1, 4), (1, 0, 2, 6), (2, 1, 0, 8), (0, 2, 1, 16), (1, 0, 2, 19), (2, 1, 0, 4))
"""(changed, with, moved on, bits): the state is (a, b, c)."""

_FINAL = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))


def checksums(blocks: Array) -> Array:
    """Return the checksum of each row.

    Parameters
    ----------
    blocks : uint8 array (n, length)
        Not empty along its length.

    Returns
    -------
    uint32 array (n,)
    """
    n, length = blocks.shape
    whole = -(-length // 12)
    padded = np.zeros((n, whole * 12), np.uint8)
    padded[:, :length] = blocks
    words = np.ascontiguousarray(padded.view("<u4").T)
    state = [np.full(n, (0xDEADBEEF + length) & 0xFFFFFFFF, np.uint32) for _ in range(3)]
    turned, low = np.empty(n, np.uint32), np.empty(n, np.uint32)

    def turn(number: int, bits: int) -> Array:
        np.left_shift(state[number], np.uint32(bits), out=turned)
        np.right_shift(state[number], np.uint32(32 - bits), out=low)
        return np.bitwise_or(turned, low, out=turned)

    for step in range(whole):
        for part in range(3):
            state[part] += words[3 * step + part]
        for changed, other, moved, bits in _MIX if step < whole - 1 else ():
            state[changed] -= state[other]
            state[changed] ^= turn(other, bits)
            state[other] += state[moved]
    for changed, other, bits in _FINAL:
        state[changed] ^= state[other]
        state[changed] -= turn(other, bits)
    return state[2]
