"""How many pictures go through an augmentation together, and what memory that takes.

What a transform makes of a row depends on nothing else in its batch, so a batch may be taken a
few pictures at a time. Then what is made on the way stays as small as caches are, however large
the batch, and of the whole batch only the result is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled import permute
from labeled.transforms.pictures import GROUP_ITEMS, Pictures

Array = Any

GROUP_BYTES = 1 << 20
"""Of the pictures that go through an augmentation together, where they are largest.

With an eighth of it, batches of pictures of 96 x 96 took 1.2 to 2 times as long.
"""

STAGES = 4
"""So many times a group's pictures are in memory: before a step, after it, and once more."""

VALUE_BYTES = 40
"""What a step computes with for a value, at most; twice that in float64."""


@dataclass(frozen=True)
class Stage:
    """Where pictures on their way are largest.

    Parameters
    ----------
    n_values : int
        Of one picture.
    dtype : dtype
    """

    n_values: int
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return self.n_values * self.dtype.itemsize


def groups_of(pictures: Pictures, stage: Stage | None) -> Iterator[slice]:
    """Cut a batch into groups of about `GROUP_BYTES`; all in one where no stage is told.

    Arrays of other libraries than NumPy stay whole: each of their steps has a price of its own.
    """
    n = len(pictures)
    step = n
    if stage is not None and isinstance(pictures.first, np.ndarray):
        step = max(1, GROUP_BYTES // max(1, stage.nbytes))
    for start in range(0, n, max(1, step)):
        yield slice(start, min(start + step, n))


def work_bytes(stage: Stage | None) -> int:
    """Return what a batch takes in groups, besides what it was and what it becomes."""
    if stage is None:
        return 0
    wide = stage.dtype.itemsize > (4 if stage.dtype.kind == "f" else 2)
    computed = max(stage.n_values, GROUP_ITEMS) * VALUE_BYTES * (2 if wide else 1)
    return STAGES * max(stage.nbytes, GROUP_BYTES) + computed


def in_one_array(
    pieces: Iterable[tuple[slice, Pictures]], n: int, order: tuple[int, ...], dtype: Any
) -> Array:
    """Carry out what was done to the groups of `n` pictures, all of one size by now.

    Parameters
    ----------
    pieces : iterable of (slice, Pictures)
        Which of the pictures, and they.
    order : tuple of int
        Of the axes (picture, channel, height, width).
    """
    by_picture = (0, *(axis for axis in order if axis != 0))
    out = None
    for group, piece in pieces:
        if group == slice(0, n):
            return piece.array(order, dtype)
        if out is None:
            lengths = n, piece.n_channels, *(piece.size or ())
            final = np.dtype(piece.dtype if dtype is None else dtype)
            out = permute.empty([lengths[axis] for axis in by_picture], final)
        piece.array(by_picture, out.dtype, out[group])
    if by_picture == order:
        return out
    return permute.copy(out, [by_picture.index(axis) for axis in order], threads=1)
