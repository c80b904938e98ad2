"""Rows of HDF5 files for the old datasets, read through :func:`labeled.open_dataset`.

Files need no labels, splits or attributes: every dataset is a source, named by its path,
and axis 0 counts examples.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from labeled.api.dataset import Dataset
from labeled.api.opening import open_dataset
from labeled.compat.pylearn2.errors import OldKeyError
from labeled.errors import LabeledWarning


@dataclass(eq=False)
class StoredRows:
    """One source of a file, its rows read when they are asked for.

    Parameters
    ----------
    filename : path
    name : str
        Path of the dataset in the file.
    in_memory : bool
        Read everything at once, when the first rows are asked for.
    """

    filename: str | os.PathLike[str]
    name: str
    in_memory: bool = False
    _source: str = field(init=False)

    def __post_init__(self) -> None:
        self._source = self.name.strip("/")
        _ = self._dataset  # complain now, not at the first batch

    @cached_property
    def _dataset(self) -> Dataset:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LabeledWarning)  # old files name no axes
            opened = open_dataset(self.filename)
        if self._source not in opened.sources:
            raise OldKeyError(
                f"no source {self.name!r} in {os.fspath(self.filename)!r}; there are "
                f"{list(opened.sources)}"
            )
        chosen = opened.select(self._source)
        return chosen.load() if self.in_memory else chosen

    @property
    def shape(self) -> tuple[int, ...]:
        return self._dataset.shapes[self._source]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dataset.dtypes[self._source]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Return rows in the order asked for: an int gives one row without its axis."""
        single = isinstance(rows, int | np.integer)
        loaded = self._dataset.subset([rows] if single else rows).load().loaded
        assert loaded is not None
        array = loaded[self._source]
        return array[0] if single else array

    def max(self, initial: Any) -> Any:
        """Return the highest value of all rows."""
        return self[:].max(initial=initial)
