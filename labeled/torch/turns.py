"""Whose turn it is: batches of several workers, taken one from each in turn.

A torch DataLoader takes a batch of each worker in turn and passes over workers that have
none left. A place in that sequence is a pair of integers, and a new DataLoader, which
always begins with its first worker, goes on there if its workers are other parts: worker
``w`` serves part ``first + w``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Turn(NamedTuple):
    """A place: parts from `first` on stand at batch `step`, those before it one further."""

    step: int
    first: int

    def part(self, worker: int, n_workers: int) -> tuple[int, int]:
        """Return which part a worker serves from here on, and from which of its batches.

        Examples
        --------
        >>> [Turn(4, 2).part(worker, 3) for worker in range(3)]
        [(2, 4), (0, 5), (1, 5)]
        """
        part = (self.first + worker) % n_workers
        return part, self.step if part >= self.first else self.step + 1


def turn_after(lengths: Sequence[int], delivered: int) -> Turn | None:
    """Return the place after some batches; None at the end.

    Parameters
    ----------
    lengths : sequence of int
        Batches of each part.
    delivered : int
        Batches taken so far, over all parts.

    Examples
    --------
    >>> turn_after([3, 2, 3], 4), turn_after([3, 2, 3], 7), turn_after([3, 2, 3], 8)
    (Turn(step=1, first=1), Turn(step=2, first=2), None)
    """
    step = 0
    while True:
        left = [part for part, n in enumerate(lengths) if n > step]
        if not left:
            return None
        whole = min(lengths[part] for part in left) - step
        if delivered < whole * len(left):
            rounds, place = divmod(delivered, len(left))
            return Turn(step + rounds, left[place] if place else 0)
        step, delivered = step + whole, delivered - whole * len(left)
