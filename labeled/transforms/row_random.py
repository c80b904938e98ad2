"""Random numbers that belong to rows: functions of (seed, epoch, step, row) and nothing else.

A transform draws for all rows of a batch at once, yet a row gets the same numbers in any batch,
any order, any shard, and after a resume. Numbers are hashed, not streamed: a keyed mixer of 64
bits is applied to every row, once per name of what is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.samplers.permutation import key_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

LOW = (1 << 64) - 1
STRIDE = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The multipliers of splitmix64."""


@dataclass(frozen=True, eq=False)
class RowRandom:
    """Random numbers of one step of an augmentation for the rows of one batch.

    Parameters
    ----------
    rows : int64 array
        One for each picture.
    seed, epoch : int
        Hashed together.
    path : tuple of int
        Place of the transform in its augmentation.

    Examples
    --------
    >>> whole = RowRandom(np.arange(8), seed=7).uniform("scale", 0, 1)
    >>> part = RowRandom(np.array([5, 2]), seed=7).uniform("scale", 0, 1)
    >>> bool((part == whole[[5, 2]]).all())
    True
    """

    rows: IntArray
    seed: int = 0
    epoch: int = 0
    path: tuple[int, ...] = ()

    def within(self, step: int) -> RowRandom:
        """Return the numbers of a transform within this one."""
        return replace(self, path=(*self.path, step))

    def uniform(self, name: str, low: Any, high: Any) -> FloatArray:
        """Return a number from [low, high) for every row; bounds may differ by row."""
        unit = (self._words(name) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        drawn: FloatArray = low + unit * (np.asarray(high, np.float64) - low)
        return drawn

    def integers(self, name: str, high: Any) -> IntArray:
        """Return an integer from ``0 .. high - 1`` for every row."""
        below = np.asarray(high, np.int64)
        drawn: IntArray = np.floor(self.uniform(name, 0.0, below)).astype(np.int64)
        return np.minimum(drawn, below - 1)

    def coin(self, name: str, chance: float) -> npt.NDArray[np.bool_]:
        """Return True for a share of the rows."""
        return self.uniform(name, 0.0, 1.0) < chance

    def normal(self, name: str) -> FloatArray:
        """Return a number from the standard normal distribution for every row."""
        radius = np.sqrt(-2 * np.log1p(-self.uniform(f"{name} radius", 0.0, 1.0)))
        drawn: FloatArray = radius * np.cos(self.uniform(f"{name} angle", 0.0, 2 * np.pi))
        return drawn

    def _words(self, name: str) -> Words:
        key = key_of("augment", self.seed, self.epoch, *self.path, name)
        low, high = np.uint64(key & LOW), np.uint64(key >> 64)
        words = _mixed(self.rows.astype(np.uint64) * STRIDE + low)
        return _mixed(words ^ high)


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
