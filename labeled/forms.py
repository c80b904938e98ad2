"""What rows look like on their way through a pipeline, as far as memory goes.

A transform that can say how large its results are says so by the method ``memory_after`` (see
:class:`labeled.transforms.StatesMemory`): given the form of a row, it returns that of what it
makes. Nothing is computed here but sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]


@dataclass(frozen=True)
class RowSpec:
    """Dims, dtype and shape of the rows of a source.

    Parameters
    ----------
    dims : tuple of str
        Without the one that counts examples.
    shapes : tuple of shapes
        The one shape that all rows have; of rows that differ, those that whatever is made of
        them is largest for: see :func:`extreme_shapes`.
    dtype : dtype
    """

    dims: tuple[str, ...]
    shapes: tuple[Shape, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Bytes of the largest row."""
        return max(map(math.prod, self.shapes), default=0) * self.dtype.itemsize


def extreme_shapes(shapes: npt.NDArray[np.int64]) -> tuple[Shape, ...]:
    """Choose the shapes that results are largest for, however lengths are changed.

    Those are the longest and the shortest along each axis, the most and the least stretched, and
    the one with most values.

    Parameters
    ----------
    shapes : int64 array (n, axis)

    Examples
    --------
    >>> extreme_shapes(np.array([[4, 4], [2, 9], [3, 3], [9, 2]]))
    ((2, 9), (9, 2))
    """
    found = {tuple(map(int, shapes[n])) for n in _extreme_places(shapes)}
    return tuple(sorted(found))


def _extreme_places(shapes: npt.NDArray[np.int64]) -> Iterator[int]:
    if not len(shapes):
        return
    yield int(shapes.prod(axis=1).argmax())
    for lengths in shapes.T:
        yield from (int(lengths.argmax()), int(lengths.argmin()))
    for one, other in combinations(shapes.T, 2):
        ratio = one / np.maximum(other, 1)
        yield from (int(ratio.argmax()), int(ratio.argmin()))
