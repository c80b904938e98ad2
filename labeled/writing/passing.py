"""Rows that can be had only from the first to the last: what no file lets one jump into.

A compressed member of an archive, or a column of a table, is read once from its beginning.
:class:`Passing` is what such a source offers to whoever writes it; the rest of the package
sees blocks of rows, as it does of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.formats.region import Array


@dataclass(frozen=True, slots=True, eq=False)
class Passing:
    """A source whose rows come in order, as often as somebody begins anew.

    Parameters
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    begin : callable of int
        Begins at row 0 and yields arrays of at most so many rows, one after another.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: Callable[[int], Iterator[Array]]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        """Return consecutive rows; everything before them is read too."""
        start, stop, _ = rows.indices(len(self))
        found, at = [np.empty((0, *self.shape[1:]), self.dtype)], 0
        for block in self.begin(max(stop, 1)):
            found.append(block[max(start - at, 0) : max(stop - at, 0)])
            at += len(block)
            if at >= stop:
                break
        return np.concatenate(found)
