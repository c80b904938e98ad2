"""Rows of about equal size in each batch, so that little of it is padding.

A shuffled window is arranged once more: its rows are sorted by size and cut where batches
end, and the batches take the places of the window in random order, each with its rows in
the order they were dealt. The window holds the same rows as before, and what a batch holds
is still a function of seed, epoch and place alone; sizes are part of the order, though, and so
of its digest. A batch that draws from two windows has rows of two sizes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labeled.samplers.permutation import IntArray, explicit_permutation, key_of


@dataclass(frozen=True, eq=False)
class Buckets:
    """Sizes of rows, and where batches end.

    Parameters
    ----------
    name : str
        Of the source whose examples are measured.
    sizes : int64 (n_rows,)
        Elements of each example, by position.
    batch_rows : int
    """

    name: str
    sizes: IntArray
    batch_rows: int

    @cached_property
    def digest(self) -> str:
        """Hash of the sizes and of how they are used."""
        sizes = hashlib.blake2b(self.sizes.tobytes(), digest_size=16).hexdigest()
        return f"{key_of('buckets', self.name, self.batch_rows, sizes):032x}"

    def arranged(self, rows: IntArray, dest: IntArray, first: int, key: int) -> IntArray:
        """Return where rows of a window go, in place of `dest`.

        Parameters
        ----------
        rows : int64 (n,)
            Positions in the window.
        dest : int64 (n,)
            A permutation: where they would go.
        first : int
            Place of the window in what is dealt; batches end at multiples of `batch_rows`.
        key : int
            Of the order of the batches.

        Examples
        --------
        >>> sizes = np.array([9, 1, 8, 2])
        >>> where = Buckets("x", sizes, 2).arranged(np.arange(4), np.array([0, 1, 2, 3]), 0, 7)
        >>> sorted(sizes[np.argsort(where)].reshape(2, 2).tolist())
        [[1, 2], [9, 8]]
        """
        n = len(rows)
        ends = np.arange(first - first % self.batch_rows, first + n, self.batch_rows)[1:]
        edges = np.concatenate([[0], ends - first, [n]])
        turn = explicit_permutation(len(edges) - 1, key)
        lengths = np.diff(edges)[turn]
        dealt = np.argsort(dest)
        ranked = dealt[np.argsort(self.sizes[rows[dealt]], kind="stable")]
        batch = np.empty(n, np.int64)
        batch[ranked] = np.repeat(np.arange(len(turn)), lengths)
        places = np.arange(n) + np.repeat(edges[turn] - (np.cumsum(lengths) - lengths), lengths)
        out = np.empty(n, np.int64)
        out[dealt[np.argsort(batch[dealt], kind="stable")]] = places
        return out
