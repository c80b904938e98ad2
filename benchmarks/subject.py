"""What is measured: a dataset, where its rows lie in the file, and their labels.

Bare loops and other loaders read the file itself. A :class:`Stored` source tells them where:
its dataset in an HDF5 file, or the place of its rows in a file that can be mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from labeled.api.dataset import Dataset
from labeled.catalog.source import Source
from labeled.formats.bytesource import is_remote
from labeled.formats.header import SourceHeader
from labeled.loader.sizing.memory import memory_of
from labeled.selection import Selection

Array = npt.NDArray[Any]
Batch = tuple[Array, ...]
"""The arrays of a batch, source by source."""


@dataclass(frozen=True, eq=False)
class Stored:
    """One source as it lies in its file, and which of its rows are read."""

    header: SourceHeader
    selection: Selection

    @property
    def name(self) -> str:
        return self.header.name

    @property
    def n_rows(self) -> int:
        return len(self.selection)

    @property
    def chunk_rows(self) -> int | None:
        """Rows of a stored chunk; None where rows lie one after another."""
        return None if self.header.chunks is None else self.header.chunks[0]

    @property
    def is_hdf5(self) -> bool:
        """Whether the source is a dataset, all of it, of a local HDF5 file."""
        header = self.header
        plain = header.format == "hdf5" and header.detail is None and header.storage != "sparse"
        return plain and not is_remote(header.file.path)

    @property
    def is_mappable(self) -> bool:
        """Whether the bytes of the rows follow one another in a local file, as they are."""
        header = self.header
        plain = header.storage == "contiguous" and header.offset is not None
        return plain and header.file.packed is None and not is_remote(header.file.path)

    @property
    def span(self) -> range | None:
        """The rows as one ascending stretch of the file; None where they are none."""
        return self.selection.stretch

    def by_h5py(self) -> Any:
        """Return the rows by position, read with h5py."""
        return self._chosen(h5py.File(self.header.file.path, "r")[self.header.key])

    def mapped(self) -> Any:
        """Return the rows by position, over the mapped file."""
        header = self.header
        n_bytes = header.n_rows * header.row_bytes
        whole = np.memmap(header.file.path, np.uint8, "r", header.offset or 0, (n_bytes,))
        return self._chosen(np.frombuffer(whole, header.dtype).reshape(header.shape))

    def quick(self) -> Any:
        """Return the rows by position: over the mapped file where that can be."""
        return self.mapped() if self.is_mappable else self.by_h5py()

    def _chosen(self, rows: Any) -> Any:
        if self.span == range(self.header.n_rows):
            return rows
        if self.span is not None and isinstance(rows, np.ndarray):
            return rows[self.span.start : self.span.stop]
        return Chosen(rows, self.selection)


class Chosen:
    """Some rows of an array-like by their positions, as users of h5py write it.

    Examples
    --------
    >>> some = Chosen(np.arange(10) * 10, Selection.of([7, 2, 2, 3]))
    >>> some[1:4], some[[3, 0]], some[0].item()
    (array([20, 20, 30]), array([30, 70]), 70)
    """

    def __init__(self, rows: Any, selection: Selection) -> None:
        self._rows, self._selection = rows, selection
        self.shape: tuple[int, ...] = (len(selection), *rows.shape[1:])
        self.dtype, self.ndim = rows.dtype, rows.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, wanted: Any) -> Any:
        if isinstance(wanted, tuple):
            return self[wanted[0]][(slice(None), *wanted[1:])]
        if isinstance(wanted, int | np.integer):
            return self._rows[int(self._selection.take(np.array([wanted]))[0])]
        if isinstance(wanted, slice):
            wanted = np.arange(len(self))[wanted]
        rows = self._selection.take(np.asarray(wanted, np.int64))
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            return self._rows[int(rows[0]) : int(rows[-1]) + 1]
        ascending, places = np.unique(rows, return_inverse=True)
        found = self._rows[ascending]
        return found if len(ascending) == len(rows) and _ascends(rows) else found[places]


def _ascends(rows: npt.NDArray[np.int64]) -> bool:
    return bool((rows[1:] > rows[:-1]).all())


@dataclass(frozen=True, eq=False)
class Subject:
    """What all ways read.

    Parameters
    ----------
    dataset : Dataset
        The sources that make a batch, and their rows.
    batch_rows : int
    memory : int or str
        What this library is given; half of it is what others fill at a time.
    labels : array, optional
        A class for each row, by position.
    numbers : callable, optional
        Reads off a batch which rows it holds, where the rows themselves tell.
    """

    dataset: Dataset
    batch_rows: int
    memory: int | str
    labels: Array | None = None
    numbers: Callable[[Batch], npt.NDArray[np.int64]] | None = None

    @property
    def n_rows(self) -> int:
        return self.dataset.n_rows

    @property
    def row_bytes(self) -> int:
        """Bytes of one row over all sources."""
        data = self.dataset
        return sum(
            int(np.prod(data.shapes[n][1:], dtype=int)) * data.dtypes[n].itemsize
            for n in data.sources
        )

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        """Every source as it lies in its file; empty where one lies in several files."""
        catalog = self.dataset.files.catalog.sources
        found = []
        for name in self.dataset.sources:
            source = catalog[name]
            if not isinstance(source, Source) or len(source.headers) != 1:
                return ()
            found.append(Stored(source.headers[0], self.dataset.selection(name)))
        return tuple(found)

    @cached_property
    def main(self) -> Stored | None:
        """The source with the largest rows."""
        return max(self.stored, key=lambda one: one.header.row_bytes, default=None)

    @property
    def by_h5py(self) -> bool:
        """Whether h5py can read every source."""
        return bool(self.stored) and all(one.is_hdf5 for one in self.stored)

    @property
    def by_others(self) -> bool:
        """Whether others can read every source, by h5py or from the mapped file."""
        return bool(self.stored) and all(one.is_hdf5 or one.is_mappable for one in self.stored)

    @property
    def is_mappable(self) -> bool:
        return bool(self.stored) and all(one.is_mappable for one in self.stored)

    @property
    def half_memory(self) -> int:
        return memory_of(self.memory) // 2

    def labels_of(self, batch: Batch) -> Array | None:
        """Return the class of each row of a batch, where it can be told."""
        if self.numbers is not None and self.labels is not None:
            return np.asarray(self.labels[self.numbers(batch)])
        return None


def as_objects(items: list[Any]) -> Array:
    """Return examples as one array of objects, which is what a source of a batch is."""
    out = np.empty(len(items), object)
    out[:] = items
    return out
