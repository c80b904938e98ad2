"""What the peers share: cuts, and seeded orders."""

from __future__ import annotations

from itertools import count

import numpy as np
import numpy.typing as npt


def cuts(n_rows: int, batch_rows: int) -> list[tuple[int, int]]:
    """Return the first row and the one behind the last of every batch."""
    return [(a, min(a + batch_rows, n_rows)) for a in range(0, n_rows, batch_rows)]


class Orders:
    """A new permutation for every epoch, as a shuffling loader draws one."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._epochs = count()

    def next(self) -> npt.NDArray[np.int64]:
        return np.random.default_rng(next(self._epochs)).permutation(self._n_rows)
