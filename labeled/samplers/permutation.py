"""Keyed bijections of ``range(n)``: any index by itself, nothing stored that grows with n.

Decides how a key turns into a permutation, and so fixes the order of every epoch: a
change of any figure below is a change of ``ORDER_VERSION``. It knows nothing of rows,
windows or shards.

Up to ``TABLE_ROWS`` the permutation is explicit (sorted random keys): every order is
equally likely. Above, a position is split in two digits, ``left * b + right``
with ``a * b >= n`` and ``a ~ b ~ sqrt(n)``, and eight rounds add a hash of one digit to
the other, modulo its radix. The few results beyond n (one in sqrt(n)) walk on until they
fall inside. That costs about 30 ns an index, 7 by a compiled loop, and no memory; the price is that
not every one of the n! orders can occur.

Only the raw words of NumPy's Philox generator are used, which NumPy keeps stable from
version to version; its own ``permutation`` may change.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled._numba import loop, pays_off

IntArray = npt.NDArray[np.int64]
Digits = npt.NDArray[np.uint32]

ORDER_VERSION = 1
TABLE_ROWS = 1 << 16  # up to here the permutation is a table
ROUNDS = 8  # six show a bias at n = 100, eight none from n = 10 up
BLOCK = 1 << 15  # positions evaluated together: all temporaries stay in the L2 cache
NEAR = 1 << 10  # the same by the compiled loop, in the nearest cache


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
        radices = np.array([-(-self.n // b), b], np.uint32)  # n <= a * b < n + b, both near sqrt(n)
        key = self.key.to_bytes(16, "little")
        digest = hashlib.blake2b(b"rounds", key=key, digest_size=4 * ROUNDS).digest()
        keys = np.frombuffer(digest, "<u4").astype(np.uint32)
        large = values.size >= NEAR
        once = _compiled_once() if large and pays_off(values.nbytes) else _once
        out = np.empty(values.size, np.int64)
        for lo in range(0, values.size, BLOCK):
            block = once(values[lo : lo + BLOCK], radices, keys, inverse)
            beyond = np.flatnonzero(block >= self.n)
            while beyond.size:
                block[beyond] = once(block[beyond], radices, keys, inverse)
                beyond = beyond[block[beyond] >= self.n]
            out[lo : lo + BLOCK] = block
        return out


def _once(values: IntArray, radices: Digits, keys: Digits, inverse: bool) -> IntArray:
    """Evaluate once over ``range(a * b)``: eight rounds, each of which changes one digit.

    It adds a keyed hash of the other digit (or takes it away), modulo the radix of its own.
    """
    b = np.int64(radices[1])
    high = values // b
    digits = high.astype(np.uint32), (values - high * b).astype(np.uint32)
    for number in reversed(range(ROUNDS)) if inverse else range(ROUNDS):
        digit, radix = digits[number % 2], radices[number % 2]
        mixed = digits[1 - number % 2] ^ keys[number]
        mixed ^= mixed >> np.uint32(16)
        mixed *= np.uint32(0x85EBCA6B)
        mixed ^= mixed >> np.uint32(13)
        mixed *= np.uint32(0xC2B2AE35)
        mixed ^= mixed >> np.uint32(16)
        # the high word of a product: a fair share of each residue
        share = (mixed * np.uint64(radix) >> np.uint64(32)).astype(np.uint32)
        digit += radix - share if inverse else share
        np.minimum(digit, digit - radix, out=digit)  # the difference wraps if digit < radix
    return digits[0] * b + digits[1]


@functools.cache
def _compiled_once() -> Callable[[IntArray, Digits, Digits, bool], IntArray]:
    """Return :func:`_once` as a compiled loop, which keeps no other thread waiting for the GIL.

    Shuffled epochs of 120,000 rows of 3 KiB took 65 ms and not 72.
    """

    @loop
    def once(values: Any, radices: Any, keys: Any, inverse: Any) -> Any:
        out = np.empty(len(values), np.int64)
        digits = np.empty((2, NEAR), np.uint32)
        b = np.uint64(radices[1])
        for lo in range(0, len(values), NEAR):
            n = min(NEAR, len(values) - lo)
            for i in range(n):
                value = np.uint64(values[lo + i])
                digits[0, i] = value // b
                digits[1, i] = value % b
            for step in range(ROUNDS):
                number = ROUNDS - 1 - step if inverse else step
                digit, other = digits[number % 2], digits[1 - number % 2]
                key, radix = keys[number], radices[number % 2]
                for i in range(n):  # numbers grow to 64 bits, of which 32 are kept
                    mixed = other[i] ^ key
                    mixed = np.uint32((mixed ^ mixed >> 16) * 0x85EBCA6B)
                    mixed = np.uint32((mixed ^ mixed >> 13) * 0xC2B2AE35)
                    share = (mixed ^ mixed >> 16) * np.uint64(radix) >> np.uint64(32)
                    new = np.uint32(digit[i] + (radix - share if inverse else share))
                    digit[i] = min(new, np.uint32(new - radix))
            for i in range(n):
                out[lo + i] = digits[0, i] * b + digits[1, i]
        return out

    return once
