"""Where a sampler's random numbers come from: what an epoch draws is a function of seed and epoch.

A sampler asks a stream for permutations and for whole numbers, one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from labeled.errors import LoaderError, told_of_memory
from labeled.samplers.permutation import IntArray, explicit_permutation, key_of

Seed = int | tuple[int, ...]


class Stream(Protocol):
    """Random numbers, one request after another."""

    def permutation(self, n: int) -> IntArray:
        """Return a random order of ``range(n)``."""

    def below(self, high: int, size: int) -> IntArray:
        """Return `size` whole numbers from ``[0, high)``, with replacement."""


@dataclass(eq=False)
class KeyedStream:
    """The numbers of one epoch: request number i is a function of (seed, epoch, i).

    Examples
    --------
    >>> KeyedStream(7, 0).permutation(5).tolist() == KeyedStream(7, 0).permutation(5).tolist()
    True
    """

    seed: Seed
    epoch: int
    asked: int = 0

    def _key(self, purpose: str) -> int:
        self.asked += 1
        seeds = self.seed if isinstance(self.seed, tuple) else (self.seed,)
        return key_of(*seeds, self.epoch, purpose, self.asked)

    def permutation(self, n: int) -> IntArray:
        key = self._key("sampler order")
        with told_of_memory(lambda why: f"an order of {n:,} rows does not fit in memory: {why}"):
            return explicit_permutation(n, key)

    def below(self, high: int, size: int) -> IntArray:
        words = np.random.Philox(key=self._key("sampler draws")).random_raw(size)
        chances = np.asarray(words >> np.uint64(11), np.float64) * 2.0**-53
        return np.minimum((chances * high).astype(np.int64), high - 1)


def checked_seed(seed: Any) -> Seed:
    """Return `seed` as a whole number or a tuple of them.

    Raises
    ------
    LoaderError
        If it is anything else.
    """
    several = isinstance(seed, tuple | list) and len(seed) > 0
    numbers = tuple(seed) if several else (seed,)
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in numbers):
        raise LoaderError(f"seed={seed!r} must be a whole number or a tuple of them")
    whole = tuple(int(n) for n in numbers)
    return whole if several else whole[0]
