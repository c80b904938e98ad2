"""The random numbers of the old iterators: a 32-bit Mersenne Twister and what they drew from it.

What a library makes of raw words depends on the compiler that built it. These are the
distributions as the published builds have them, in the arithmetic they have: floats are
float32 and can come out as their upper bound, whole numbers throw raw words away rather than
favour some, a coin costs two words, and normal numbers come in pairs.

Every draw takes as many words as it took there: which draws are made, and in what order, is for
the callers to get right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

WORD = 2**32
READ_AHEAD = 64  # words fetched in one call

F32 = np.float32


class Twister:
    """A stream of draws, seeded as the old programs seeded theirs.

    Parameters
    ----------
    seed : int
        Taken modulo 2**32.

    Examples
    --------
    >>> Twister(0).shuffled(10).tolist()
    [0, 2, 3, 5, 9, 1, 6, 8, 4, 7]
    >>> draws = Twister(111)
    >>> [draws.coin() for _ in range(8)]
    [True, True, False, True, True, True, False, False]
    """

    def __init__(self, seed: int) -> None:
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Start again from another seed; `word` returns the next raw word."""
        self.word: Callable[[], int] = _raw_words(seed % WORD).__next__

    def unit(self) -> np.float32:
        """Return a float from [0, 1]; the upper bound comes up by rounding."""
        return F32(F32(self.word()) / F32(WORD))

    def uniform(self, low: float, high: float) -> np.float32:
        """Return a float from [low, high], all steps in float32.

        Examples
        --------
        >>> float(Twister(111).uniform(-1, 1))
        0.2243403...
        """
        return F32(self.unit() * F32(F32(high) - F32(low)) + F32(low))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``, both included.

        Takes a word where there is nothing to choose, too.

        Examples
        --------
        >>> draws = Twister(111)
        >>> [draws.whole(-20, 20) for _ in range(8)]
        [5, -16, -14, -8, -3, 15, 11, -8]
        """
        share = (WORD - 1) // (high - low + 1)
        while (word := self.word()) >= share * (high - low + 1):
            pass
        return low + word // share

    def coin(self) -> bool:
        """Return True half of the time, from two words."""
        low, high = self.word(), self.word()
        return (low + high * WORD) / WORD**2 < 0.5

    def normals(self, count: int, deviation: float) -> list[np.float32]:
        """Return the first `count` numbers of a fresh normal distribution about 0.

        By the polar method, two at a time; the second one drawn is handed out first.
        """
        out: list[np.float32] = []
        while len(out) < count:
            x, y = (F32(F32(2) * self.unit() - F32(1)) for _ in range(2))
            square = F32(x * x + y * y)
            if 0 < square <= 1:
                logarithm = F32(math.log(float(square)))
                factor = np.sqrt(F32(F32(F32(-2) * logarithm) / square))
                out += (F32(F32(one * factor) * F32(deviation)) for one in (y, x))
        return out[:count]

    def shuffled(self, n: int) -> npt.NDArray[np.int64]:
        """Return ``range(n)`` in random order."""
        order = list(range(n))
        for last in range(1, n):
            other = self.whole(0, last)
            order[last], order[other] = order[other], order[last]
        return np.array(order, np.int64)


def _raw_words(seed: int) -> Iterator[int]:
    raw: Any = np.random.RandomState(seed).randint  # RandomState keeps the classic seeding
    while True:
        yield from raw(0, WORD, size=READ_AHEAD, dtype=np.uint32).tolist()
