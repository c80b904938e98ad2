"""Keyed bijections of ``range(n)``: any index by itself, nothing stored that grows with n.

Decides how a key turns into a permutation, and so fixes the order of every epoch: a
change of any figure below is a change of ``ORDER_VERSION``. It knows nothing of rows,
windows or parts.

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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from labeled.errors import SelectionError

IntArray = npt.NDArray[np.int64]

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
    words = [f"order {ORDER_VERSION}"]
    words += [f"s{part}" if isinstance(part, str) else f"i{int(part)}" for part in parts]
    digest = hashlib.blake2b("\x1f".join(words).encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


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


class Bijection(Protocol):
    """A one-to-one map of ``range(n)`` onto itself, and back."""

    @property
    def n(self) -> int: ...

    def __call__(self, positions: IntArray) -> IntArray: ...

    def inverse(self, values: IntArray) -> IntArray: ...


@dataclass(frozen=True)
class Identity:
    """The bijection that moves nothing: file order."""

    n: int

    def __call__(self, positions: IntArray) -> IntArray:
        return _checked(positions, self.n)

    def inverse(self, values: IntArray) -> IntArray:
        return _checked(values, self.n)


@dataclass(frozen=True)
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
    >>> shuffled.inverse(rows)
    array([0, 1, 2, 3, 4])
    """

    n: int
    key: int

    def __post_init__(self) -> None:
        if not 0 <= self.n < 1 << 62:
            raise SelectionError(f"a permutation needs 0 <= n < 2**62, not n = {self.n}")

    def __call__(self, positions: IntArray) -> IntArray:
        """Return the values at `positions` (any shape), as a new array.

        Raises
        ------
        SelectionError
            If a position is not in ``range(n)``.
        """
        positions = _checked(positions, self.n)
        if self.n <= TABLE_ROWS:
            return self._table[positions]
        return self._walk(positions, forward=True)

    def inverse(self, values: IntArray) -> IntArray:
        """Return the positions at which `values` stand, as a new array.

        Raises
        ------
        SelectionError
            If a value is not in ``range(n)``.
        """
        values = _checked(values, self.n)
        if self.n <= TABLE_ROWS:
            return self._inverse_table[values]
        return self._walk(values, forward=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"n": self.n, "key": self.key}  # tables are quicker made than moved

    @cached_property
    def _table(self) -> IntArray:
        return explicit_permutation(self.n, self.key)

    @cached_property
    def _inverse_table(self) -> IntArray:
        table = np.empty(self.n, np.int64)
        table[self._table] = np.arange(self.n)
        return table

    @cached_property
    def _radices(self) -> tuple[int, int]:
        """``a, b`` with ``n <= a * b < n + b`` and both near the square root of n."""
        b = int(np.sqrt(float(self.n))) + 1
        return -(-self.n // b), b

    @cached_property
    def _round_keys(self) -> tuple[int, ...]:
        key = self.key.to_bytes(16, "little")
        digest = hashlib.blake2b(b"rounds", key=key, digest_size=4 * ROUNDS).digest()
        return struct.unpack(f"<{ROUNDS}I", digest)

    def _walk(self, values: IntArray, *, forward: bool) -> IntArray:
        """Evaluate block by block; what falls beyond n goes round again."""
        out = np.empty(values.size, np.int64)
        flat = values.reshape(-1)
        for lo in range(0, flat.size, BLOCK):
            block = self._once(flat[lo : lo + BLOCK], forward=forward)
            beyond = np.flatnonzero(block >= self.n)
            while beyond.size:
                block[beyond] = self._once(block[beyond], forward=forward)
                beyond = beyond[block[beyond] >= self.n]
            out[lo : lo + BLOCK] = block
        return out.reshape(values.shape)

    def _once(self, values: IntArray, *, forward: bool) -> IntArray:
        """One evaluation over ``range(a * b)``, at most ``BLOCK`` values."""
        a, b = self._radices
        high = values // b
        left = high.astype(np.uint32)
        right = (values - high * b).astype(np.uint32)
        rounds = list(enumerate(self._round_keys))
        for number, key in rounds if forward else rounds[::-1]:
            if number % 2 == 0:
                _add(left, right, key, a, forward=forward)
            else:
                _add(right, left, key, b, forward=forward)
        np.multiply(left, b, out=high, dtype=np.int64, casting="safe")
        high += right
        return high


def _add(
    digit: npt.NDArray[np.uint32],
    other: npt.NDArray[np.uint32],
    key: int,
    radix: int,
    *,
    forward: bool,
) -> None:
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
    if not forward:
        np.subtract(np.uint32(radix), mixed, out=mixed)
    digit += mixed
    np.subtract(digit, np.uint32(radix), out=shifted)
    np.minimum(digit, shifted, out=digit)  # below radix the difference wraps to a huge number


def _checked(values: npt.ArrayLike, n: int) -> IntArray:
    array = np.asarray(values, np.int64)
    if array.size and not (array.min() >= 0 and array.max() < n):
        raise SelectionError(
            f"positions {array.min()} to {array.max()} asked for, but there are {n}: "
            f"give values from 0 to {n - 1}"
        )
    return array
