"""What is measured: one source of an HDF5 file, where its rows lie, and their labels.

Bare loops and other loaders read the file itself, by h5py or from the mapped file where rows
lie one after another. What they are told comes from h5py, not from this library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from labeled._validation import memory_of
from labeled.dataset.dataset import Dataset

Array = npt.NDArray[Any]
Batch = tuple[Array, ...]
"""The array of a batch, alone in a tuple."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What all ways read.

    Parameters
    ----------
    dataset : Dataset
        With this source alone.
    path, source : str
    batch_rows : int
    memory : int or str
        What this library is given; half of it is what others fill at a time.
    labels : array
        A class for each row, by position.
    numbers : callable
        Reads off a batch which rows it holds.
    """

    dataset: Dataset
    path: str
    source: str
    batch_rows: int
    memory: int | str
    labels: Array
    numbers: Callable[[Batch], npt.NDArray[np.int64]]

    @cached_property
    def layout(self) -> Layout:
        with h5py.File(self.path, "r") as file:
            return Layout.of(file[self.source])

    @property
    def n_rows(self) -> int:
        return self.layout.shape[0]

    @property
    def row_bytes(self) -> int:
        return self.layout.row_bytes

    @property
    def is_mappable(self) -> bool:
        """Whether rows follow one another in the file, as they are."""
        return self.layout.offset is not None

    @property
    def half_memory(self) -> int:
        return memory_of(self.memory) // 2

    def by_h5py(self) -> Any:
        """Return the rows, read with h5py."""
        return h5py.File(self.path, "r")[self.source]

    def mapped(self) -> Array:
        """Return the rows, over the mapped file."""
        layout = self.layout
        n_bytes = layout.shape[0] * layout.row_bytes
        whole = np.memmap(self.path, np.uint8, "r", layout.offset or 0, (n_bytes,))
        return np.frombuffer(whole, layout.dtype).reshape(layout.shape)

    def quick(self) -> Any:
        """Return the rows: over the mapped file where that can be."""
        return self.mapped() if self.is_mappable else self.by_h5py()

    def labels_of(self, batch: Batch) -> Array:
        """Return the class of each row of a batch."""
        return np.asarray(self.labels[self.numbers(batch)])


@dataclass(frozen=True)
class Layout:
    """How a dataset of HDF5 is stored."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None
    """Where contiguous rows begin."""
    chunk_rows: int | None
    filters: tuple[int, ...]

    @classmethod
    def of(cls, rows: h5py.Dataset) -> Layout:
        created = rows.id.get_create_plist()
        filters = tuple(created.get_filter(i)[0] for i in range(created.get_nfilters()))
        chunk_rows = None if rows.chunks is None else rows.chunks[0]
        return cls(rows.shape, rows.dtype, rows.id.get_offset(), chunk_rows, filters)

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=int)) * self.dtype.itemsize


def as_objects(items: list[Any]) -> Array:
    """Return examples as one array of objects, which is what a source of a batch is."""
    out = np.empty(len(items), object)
    for place, item in enumerate(items):
        out[place] = item
    return out
