"""All rows of a dataset in order, loaded some at a time: as many as a budget of bytes holds.

Rows are counted by what they take: examples of different lengths by their own, and texts,
of which nobody knows how long they are before they are read, by those read before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from labeled.ragged import Ragged
from labeled.ragged.flat import Rows, block_cuts
from labeled.writing.given import sizes_of_texts

STRETCHES = 8
"""What reading, loading and handing out a stretch of rows takes, in stretches."""

TEXTS = 4
"""How much more of texts is held than they take themselves: their bytes, before they are texts."""


class Opened(Protocol):
    """What a :class:`labeled.Dataset` offers to whoever takes its rows elsewhere."""

    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def attrs(self) -> dict[str, Any]: ...
    @property
    def n_rows(self) -> int: ...
    def selection(self, name: str) -> Any: ...
    def select(self, *sources: Any) -> Opened: ...
    def subset(self, rows: Any) -> Opened: ...
    def load(self) -> Opened: ...
    @property
    def loaded(self) -> Mapping[str, Any] | None: ...
    def __getitem__(self, name: str) -> Any: ...


def stretches(
    dataset: Opened, budget: int, *, value_bytes: int = 1, made_bytes: int = 0
) -> Iterator[Opened]:
    """Yield all rows in order, loaded, in stretches of at most about `budget` bytes.

    Parameters
    ----------
    budget : int
        For whoever uses the rows as well; a single row that takes more comes alone.
    value_bytes : int
        What is made of every value, where that is more than it takes itself.
    made_bytes : int
        What is made of every row, where that is more than it takes itself.
    """
    most = max(budget // STRETCHES, 1)
    values = {name: dataset[name] for name in dataset.sources}
    texts = [n for n, v in values.items() if v.dtype.kind == "O" and not isinstance(v, Ragged)]
    row_bytes, ends = _known(values, value_bytes)
    start, count = 0, 1 if texts else dataset.n_rows
    while start < dataset.n_rows:
        fitting = max(min(count, most // max(row_bytes, 1)), 1)
        if ends is not None:
            room = (ends[start - 1] if start else 0) + most
            fitting = max(min(fitting, int(np.searchsorted(ends, room, "right")) - start), 1)
        stop = min(start + fitting, dataset.n_rows)
        some = dataset.subset(slice(start, stop)).load()
        if texts or made_bytes:
            sizes = np.zeros(stop - start, np.int64) + row_bytes
            for name in texts:
                sizes += TEXTS * sizes_of_texts(rows_of(some, name))
            yield from _parts(some, np.maximum(sizes, made_bytes), most)
            count = min(2 * count, max(most * len(sizes) // max(int(sizes.sum()), 1), 1))
        else:
            yield some
        start = stop


def largest_row(dataset: Opened) -> tuple[int, str]:
    """Return what the largest row takes, and its source; of texts nobody knows that before."""
    values = {name: dataset[name] for name in dataset.sources}
    sizes = {name: _largest(value) for name, value in values.items()}
    name = max(sizes, key=lambda name: sizes[name])
    return sizes[name], name


def _largest(value: Any) -> int:
    n_values = value.sizes.max(initial=0) if isinstance(value, Ragged) else _row_values(value)
    return int(n_values) * int(value.dtype.itemsize)


def _row_values(value: Any) -> int:
    return int(np.prod(value.shape[1:], dtype=np.int64))


def _known(values: Mapping[str, Any], value_bytes: int) -> tuple[int, Rows | None]:
    """Return what a row takes without its texts and examples, and where examples end in bytes."""
    row_bytes, sizes = 0, None
    for value in values.values():
        each = max(int(value.dtype.itemsize), value_bytes)
        if isinstance(value, Ragged):
            own = value.sizes * each
            sizes = own if sizes is None else sizes + own
        else:
            row_bytes += _row_values(value) * each
    return row_bytes, None if sizes is None else np.cumsum(sizes + row_bytes)


def _parts(some: Opened, sizes: Rows, most: int) -> Iterator[Opened]:
    """Cut loaded rows that take more than they were thought to."""
    cuts = block_cuts(sizes, most)
    if len(cuts) == 2:
        yield some
        return
    for a, b in pairwise(cuts):
        yield some.subset(slice(a, b))


def rows_of(some: Opened, name: str) -> Any:
    """Return loaded rows as they are: an array, or Ragged; dask would hash them first."""
    assert some.loaded is not None
    return some.loaded[name]
