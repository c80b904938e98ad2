"""Keyed bijections of ``range(n)``: any index by itself, nothing stored that grows with n.

Decides how a key turns into a permutation, and so fixes the order of every epoch: a
change of any figure below is a change of ``ORDER_VERSION``. It knows nothing of rows,
windows or shards.

Up to ``TABLE_ROWS`` the permutation is explicit (sorted random keys): every order is
equally likely. Above, a position is split in two digits, ``left * b + right``
with ``a * b >= n`` and ``a ~ b ~ sqrt(n)``, and eight rounds add a hash of one digit to
the other, modulo its radix. The few results beyond n (one in sqrt(n)) walk on until they
fall inside. That costs about 30 ns an index and no memory; the price is that not every
one of the n! orders can occur.

Only the raw words of NumPy's Philox generator are used, which NumPy keeps stable from
version to version; its own ``permutation`` may change.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Digits = npt.NDArray[np.uint32]

ORDER_VERSION = 1
TABLE_ROWS = 1 << 16  # up to here the permutation is a table
ROUNDS = 8  # six show a bias at n = 100, eight none from n = 10 up
BLOCK = 1 << 14  # positions evaluated together: all temporaries stay in the L2 cache


def key_of(*parts: int | str) -> int:
    """Hash numbers and names into a 128-bit key.

    Neighbouring seeds or epochs give keys that have nothing to do with each other.

    Examples
    --------
    >>> key_of(7, 0, "units") == key_of(7, 0, "units")
    True
    >>> len({key_of(seed, epoch) for seed in range(9) for epoch in range(9)})
    81
    """
    text = f"order {ORDER_VERSION}"
    for part in parts:
        text += f"\x1fs{part}" if isinstance(part, str) else f"\x1fi{int(part)}"
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def digest_of(*arrays: npt.NDArray[Any]) -> str:
    """Return a text that differs where the values of arrays differ."""
    digest = hashlib.blake2b(digest_size=16)
    for one in arrays:
        digest.update(np.ascontiguousarray(one, one.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def explicit_permutation(n: int, key: int) -> IntArray:
    """Return a permutation of ``range(n)`` as an array, any order equally likely.

    Positions are sorted by random 32-bit keys (equal keys, one pair in 2**32, stay as they
    are), 16 bits at a time: NumPy sorts 16-bit numbers by counting, some 20 ns a row.

    Examples
    --------
    >>> sorted(explicit_permutation(5, key_of(7)).tolist())
    [0, 1, 2, 3, 4]
    """
    words = np.random.Philox(key=key).random_raw((n + 1) // 2)
    halves = words.astype("<u8", copy=False).view("<u2")
    order = halves[0 : 2 * n : 2].argsort(kind="stable")
    return order[halves[1 : 2 * n : 2][order].argsort(kind="stable")]


class Permutation:
    """A keyed bijection of ``range(n)``, evaluated where it is asked for.

    Parameters
    ----------
    n : int
        How many positions there are; below 2**62.
    key : int
        128 bits, from :func:`key_of`.

    Examples
    --------
    >>> shuffled = Permutation(10**8, key_of(7, 0))
    >>> rows = shuffled(np.arange(5))
    >>> shuffled(rows, inverse=True)
    array([0, 1, 2, 3, 4])
    """

    def __init__(self, n: int, key: int) -> None:
        self.n, self.key = n, key
        self._table = explicit_permutation(n, key) if n <= TABLE_ROWS else None

    def __reduce__(self) -> tuple[type[Permutation], tuple[int, int]]:
        return Permutation, (self.n, self.key)  # tables are quicker made than moved

    def __call__(self, positions: IntArray, *, inverse: bool = False) -> IntArray:
        """Return the values at `positions` (each in ``range(n)``), as a new array.

        With `inverse`, return the positions at which these values stand.
        """
        if self._table is None:
            return self._walk(positions, inverse=inverse)
        table = self._table
        if inverse:
            table = np.empty_like(self._table)
            table[self._table] = np.arange(self.n)
        return table[positions]

    def _walk(self, values: IntArray, *, inverse: bool) -> IntArray:
        """Evaluate block by block; what falls beyond n goes round again."""
        b = int(np.sqrt(float(self.n))) + 1
        radices = -(-self.n // b), b  # n <= a * b < n + b, both near the square root of n
        key = self.key.to_bytes(16, "little")
        digest = hashlib.blake2b(b"rounds", key=key, digest_size=4 * ROUNDS).digest()
        rounds = list(enumerate(struct.unpack(f"<{ROUNDS}I", digest)))
        if inverse:
            rounds.reverse()
        out = np.empty(values.size, np.int64)
        for lo in range(0, values.size, BLOCK):
            block = _once(values[lo : lo + BLOCK], radices, rounds, inverse=inverse)
            beyond = np.flatnonzero(block >= self.n)
            while beyond.size:
                block[beyond] = _once(block[beyond], radices, rounds, inverse=inverse)
                beyond = beyond[block[beyond] >= self.n]
            out[lo : lo + BLOCK] = block
        return out


def _once(
    values: IntArray, radices: tuple[int, int], rounds: list[tuple[int, int]], *, inverse: bool
) -> IntArray:
    """One evaluation over ``range(a * b)``, at most ``BLOCK`` values."""
    a, b = radices
    high = values // b
    left = high.astype(np.uint32)
    right = (values - high * b).astype(np.uint32)
    for number, key in rounds:
        if number % 2 == 0:
            _add(left, right, key, a, inverse=inverse)
        else:
            _add(right, left, key, b, inverse=inverse)
    np.multiply(left, b, out=high, dtype=np.int64, casting="safe")
    high += right
    return high


def _add(digit: Digits, other: Digits, key: int, radix: int, *, inverse: bool) -> None:
    """Add (or take away) a keyed hash of `other` to `digit` modulo `radix`, in place."""
    mixed = other ^ np.uint32(key)
    shifted = mixed >> np.uint32(16)
    for multiplier, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        mixed ^= shifted
        mixed *= np.uint32(multiplier)
        np.right_shift(mixed, np.uint32(shift), out=shifted)
    mixed ^= shifted
    wide = mixed * np.uint64(radix)  # the high word of a product: a fair share of each residue
    wide >>= np.uint64(32)
    np.copyto(mixed, wide, casting="same_kind")
    if inverse:
        np.subtract(np.uint32(radix), mixed, out=mixed)
    digit += mixed
    np.subtract(digit, np.uint32(radix), out=shifted)
    np.minimum(digit, shifted, out=digit)  # below radix the difference wraps to a huge number
