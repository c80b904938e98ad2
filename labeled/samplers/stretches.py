"""Sequences of consecutive rows: clips of a film, windows over time, steps of an episode.

A batch is some sequences one after another, so that whoever gets it makes an axis of them by
``reshape(-1, length, ...)``. Sequences may overlap, and never cross from one group of rows
into the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from labeled._validation import as_array, check_arguments
from labeled.errors import LoaderError, told_of_memory
from labeled.samplers.cuts import whole
from labeled.samplers.permutation import IntArray, key_of
from labeled.samplers.requests import Request, token_of
from labeled.samplers.streams import KeyedStream, Seed, checked_seed

Ending = Literal["keep", "drop"]


@dataclass(frozen=True, eq=False, repr=False)
class RowSequences:
    """Batches of sequences of consecutive rows. Made by :func:`row_sequences`.

    Parameters
    ----------
    starts : int64 array, (n_sequences,)
        The first row of each sequence, in file order.
    length : int
        Rows of a sequence.
    batch_sequences : int
        Sequences of a batch, the last of which may have fewer.
    seed : int or tuple of int, optional
        Sequences come in another order each epoch; in file order where None.
    """

    starts: IntArray
    length: int
    batch_sequences: int
    last: Ending = "keep"
    seed: Seed | None = None
    epoch: int = 0

    def __len__(self) -> int:
        n, each = self.starts.size, self.batch_sequences
        return n // each if self.last == "drop" else -(-n // each)

    @property
    def batch_rows(self) -> int:
        return self.length * min(self.batch_sequences, self.starts.size)

    @property
    def n_rows(self) -> int:
        """Rows handed out in an epoch, repeats counted."""
        n = len(self) * self.batch_sequences
        return self.length * min(n, self.starts.size)

    def __repr__(self) -> str:
        drawn = "" if self.seed is None else f", seed={self.seed!r}, epoch={self.epoch}"
        return (
            f"<{len(self):,} batches of {self.batch_sequences:,} sequences of {self.length:,} "
            f"rows, {self.starts.size:,} in all{drawn}>"
        )

    def __iter__(self) -> Iterator[Request]:
        starts = self.starts
        if self.seed is not None:
            starts = starts[KeyedStream(self.seed, self.epoch).permutation(starts.size)]
        steps = np.arange(self.length)
        for number in range(len(self)):
            first = number * self.batch_sequences
            yield (starts[first : first + self.batch_sequences, None] + steps).ravel()

    def at_epoch(self, epoch: int) -> RowSequences:
        return replace(self, epoch=whole("epoch", epoch))

    @cached_property
    def digest(self) -> str:
        numbers = (self.length, self.batch_sequences, self.last, repr(self.seed))
        return f"{key_of('row sequences', *numbers, token_of(self.starts).hex()):032x}"


@check_arguments(LoaderError)
def row_sequences(
    n_rows: int,
    length: int,
    batch_sequences: int,
    *,
    step: int = 1,
    groups: npt.ArrayLike | None = None,
    last: Ending = "keep",
    seed: Seed | None = None,
    epoch: int = 0,
) -> RowSequences:
    """Make a sampler whose batches hold sequences of consecutive rows.

    Parameters
    ----------
    n_rows : int
        Rows of the dataset.
    length : int
        Rows of a sequence.
    batch_sequences : int
        Sequences of a batch: ``batch_sequences * length`` rows, sequence after sequence.
    step : int
        Rows from the start of a sequence to that of the next. 1 gives every sequence there
        is, `length` those that share no row.
    groups : array, lengths ``(n_rows,)``, optional
        No sequence crosses from one value to another: films, episodes, patients.
    last : {"keep", "drop"}
        Whether a last batch of fewer sequences is handed out.
    seed : int or tuple of int, optional
        Shuffle the sequences, anew each epoch; file order when not given.

    Raises
    ------
    LoaderError
        If no sequence fits, or a number is impossible.

    Examples
    --------
    >>> for rows in row_sequences(8, 3, 2, groups=[0, 0, 0, 0, 1, 1, 1, 2]):
    ...     print(rows.reshape(-1, 3).tolist())
    [[0, 1, 2], [1, 2, 3]]
    [[4, 5, 6]]
    >>> len(row_sequences(1000, 16, 4, step=8, seed=7))
    31
    """
    n = whole("n_rows", n_rows)
    numbers = {"length": length, "batch_sequences": batch_sequences, "step": step}
    for name, value in numbers.items():
        whole(name, value, least=1)
    if last not in ("keep", "drop"):
        raise LoaderError(f"last={last!r} must be 'keep' or 'drop'; sequences are not padded")
    starts = _starts(_borders(groups, n), length, step)
    if seed is not None:
        seed = checked_seed(seed)
    return RowSequences(starts, length, batch_sequences, last, seed, whole("epoch", epoch))


def _borders(groups: npt.ArrayLike | None, n_rows: int) -> IntArray:
    """Return where stretches of one group begin, and the number of rows."""
    if groups is None:
        return np.array([0, n_rows], np.int64)
    values = as_array("groups", groups, LoaderError)
    if values.shape != (n_rows,):
        raise LoaderError(
            f"groups must be one value a row, ({n_rows},); found an array of shape {values.shape}"
        )
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate([[0], changes, [n_rows]]).astype(np.int64)


def _starts(borders: IntArray, length: int, step: int) -> IntArray:
    """Return the first row of every sequence.

    Examples
    --------
    >>> _starts(np.array([0, 5, 6, 10]), 3, 2)
    array([0, 2, 6])
    """
    counts = np.maximum(0, (np.diff(borders) - length) // step + 1)
    if not counts.any():
        raise LoaderError(
            f"no sequence of {length:,} rows fits: the longest stretch of rows that belong "
            f"together has {int(np.diff(borders).max()):,}; give a smaller length"
        )
    n = int(counts.sum())
    with told_of_memory(lambda why: f"the starts of {n:,} sequences do not fit in memory: {why}"):
        numbers = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        starts: IntArray = np.repeat(borders[:-1], counts) + numbers * step
        return starts
