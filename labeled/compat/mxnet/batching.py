"""How the old iterators put rows into batches, and where an epoch began and ended.

The source restarts for ever. With ``round_batch`` a short last batch is filled up with the first
rows of the pass that follows, and the next epoch goes on behind them: epochs are shifted against
the data, and may even be empty. Without it the surplus rows keep what the batch before had there.

Batches were made by a thread that ran ahead. A ``reset()`` in mid-epoch therefore acts on the
place that the thread had reached: if that was the end of the epoch, the next one begins behind
the rows that filled it up. The model here is a thread that always is as far ahead as it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.iterators import DataBatch
from labeled.errors import FileFormatError, LoaderError

Array = npt.NDArray[Any]

AHEAD = 16
"""Batches that the thread could be ahead."""


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """One example: its number, its data and its label."""

    index: int
    data: Array
    label: Array


@dataclass(eq=False)
class RoundBatches:
    """Batches of a source that restarts for ever.

    Parameters
    ----------
    begin_pass : callable
        Begins a pass over the rows; called at once, and at every restart.
    batch_size : int
    round_batch : bool
    ahead : int
        Batches that were made before they were asked for.

    Examples
    --------
    >>> def rows():
    ...     return iter([Row(i, np.array([i]), np.array(0.0)) for i in range(3)])
    >>> batches = RoundBatches(rows, batch_size=2)
    >>> for epoch in range(2):
    ...     while (batch := batches.next()) is not None:
    ...         print(epoch, batch.data[0].ravel(), batch.pad)
    ...     batches.reset()
    0 [0 1] 0
    0 [2 0] 1
    1 [1 2] 0
    """

    begin_pass: Callable[[], Iterator[Row]]
    batch_size: int
    round_batch: bool = True
    ahead: int = AHEAD
    _rows: Iterator[Row] = field(init=False, repr=False)
    _overflow: int = field(default=0, init=False)
    _last: DataBatch | None = field(default=None, init=False, repr=False)
    _ended: bool = field(default=False, init=False)
    _taken: list[Row] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = self.begin_pass()

    @property
    def n_filled(self) -> int:
        """Rows that the batch under construction has."""
        return len(self._taken)

    def next(self) -> DataBatch | None:
        """Return the next batch of the epoch; None at its end, and until it is reset.

        Raises
        ------
        LoaderError
            If a batch would take rows from more than two passes.
        """
        self._taken = []
        if not (self._overflow or self._ended):
            self._take()
        if not self._taken:
            self._ended = True
            return None
        missing = self.batch_size - len(self._taken)
        if missing and self.round_batch:
            self._fill_up(missing)
        self._last = _stacked(self._taken, missing, self.batch_size, self._last)
        return self._last

    def reset(self) -> None:
        """Begin the next epoch."""
        for _ in range(self.ahead):
            if self.next() is None:
                break
        if not self._overflow:
            self._rows = self.begin_pass()
        self._overflow = 0
        self._ended = False

    def _take(self) -> None:
        """Take rows of this pass until the batch is full."""
        try:
            while len(self._taken) < self.batch_size:
                self._taken.append(next(self._rows))
        except StopIteration:
            pass
        except Exception as error:
            self._rows = _failing(error)  # an epoch that broke off has no end
            raise

    def _fill_up(self, missing: int) -> None:
        """Take the rows that are missing from the next pass."""
        self._rows = self.begin_pass()
        self._take()
        still = self.batch_size - len(self._taken)
        if still:
            raise LoaderError(
                f"a batch of {self.batch_size} rows takes {missing} rows of the next pass, which "
                f"has {missing - still}; the number of inputs must be bigger than the batch size"
            )
        self._overflow = missing


def _failing(error: Exception) -> Iterator[Row]:
    """Raise the same error whenever a row is asked for."""
    return iter(partial(_raise, error), None)


def _raise(error: Exception) -> Row:
    raise error


def _stacked(rows: list[Row], pad: int, batch_size: int, last: DataBatch | None) -> DataBatch:
    """Put rows together; what they lack is what the batch before had in its place.

    Raises
    ------
    FileFormatError
        If they differ in shape, as pictures of unlike channels did in the oldest version.
    """
    data, labels, index = (None, None, None) if last is None else (
        last.data[0], last.label[0], last.index
    )  # fmt: skip
    shape = rows[0].data.shape if data is None else data[0].shape
    for row in rows:
        if row.data.shape != shape:
            raise FileFormatError(
                f"the row with index {row.index} has shape {row.data.shape}, those before it have "
                f"{shape}: they make no batch; give files whose rows are alike"
            )
    numbers = np.zeros(batch_size, np.uint64) if index is None else index.copy()
    numbers[: len(rows)] = [row.index for row in rows]
    return DataBatch(
        [_column([row.data for row in rows], batch_size, data)],
        [_column([row.label for row in rows], batch_size, labels)],
        pad,
        numbers,
    )


def _column(arrays: list[Array], batch_size: int, last: Array | None) -> Array:
    if len(arrays) == batch_size:
        return np.stack(arrays)
    first = arrays[0]
    out = np.zeros((batch_size, *first.shape), first.dtype) if last is None else last.copy()
    out[: len(arrays)] = arrays
    return out
