"""One source as it was given to be written: dtype, shape, names, and rows block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from labeled.formats.hdf5.scales import Names
from labeled.formats.region import Array


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some consecutive rows: read by a call, or computed by dask."""

    start: int
    stop: int
    read: Callable[[], Any] | None = None
    delayed: Any = None
    shapes: Array | None = None
    """Of the examples in it, where these have different shapes."""
    first: int | None = None
    """The number of its first example, where rows are no examples but their values."""


Blocks = Callable[[int], Iterator[Block]]
"""Cuts a source into blocks; takes how many rows a block should have where that is free."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """One source as it was given."""

    name: str
    dtype: np.dtype[Any]
    """As stored; object for texts."""
    shape: tuple[int | None, ...]
    """The first is None where rows come in batches whose number is not known."""
    names: Names
    attrs: Mapping[str, Any]
    blocks: Blocks
    encode: Callable[[Array], Array] | None = None
    """Turns times into the numbers that are stored."""
    mean_bytes: int | None = None
    """What a row takes, where rows differ in length."""
    example_dims: tuple[str, ...] = ()
    """The dims of a source of examples of different shapes, whose values these are."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(int(n or 0) for n in self.shape[1:])

    @property
    def row_bytes(self) -> int:
        if self.mean_bytes is not None:
            return self.mean_bytes
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize


def slices(read: Callable[[int, int], Any], n_rows: int, rows: int) -> Iterator[Block]:
    """Yield blocks of `rows` rows, each read by ``read(start, stop)``."""
    for start in range(0, n_rows, rows):
        stop = min(start + rows, n_rows)
        yield Block(start, stop, partial(read, start, stop))
