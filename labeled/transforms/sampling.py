"""Some of many rows: spread evenly, at random, or by a sequence that is even at any length.

Only numbers are dealt in; ``dataset.subset(subsample(len(dataset), 0.1))`` is the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled._validation import check_arguments
from labeled.errors import PipelineError
from labeled.samplers.permutation import explicit_permutation, key_of
from labeled.transforms.parameters import check_whole, is_whole

Rows = npt.NDArray[np.int64]
How = Literal["low-discrepancy", "uniform", "random"]


@check_arguments(PipelineError, but=("size",))
def subsample(n_rows: int, size: float, how: How = "low-discrepancy", *, seed: int = 0) -> Rows:
    """Choose some rows, each at most once.

    Parameters
    ----------
    n_rows : int
        How many there are.
    size : int or float
        How many to choose: a whole number, or a float for a share of them (``1`` is one row,
        ``1.0`` all).
    how : {"low-discrepancy", "uniform", "random"}
        In steps of the golden ratio, so that any first few are spread evenly too; at equal
        distances from first to last row, in order; or any with equal chance.
    seed : int
        Where "low-discrepancy" begins, and what "random" draws from.

    Returns
    -------
    int64 array, lengths ``(size,)``

    Raises
    ------
    PipelineError
        If there are not so many rows, or `how` is unknown.

    Examples
    --------
    >>> subsample(20, 5), subsample(20, 0.25, "uniform")
    (array([ 0, 13,  5, 18, 10]), array([ 0,  5, 10, 14, 19]))
    """
    check_whole("n_rows", n_rows, least=0)
    check_whole("seed", seed)
    k = _count(n_rows, size)
    if how not in tuple(_WAYS):
        raise PipelineError(f"how={how!r} must be one of {', '.join(map(repr, _WAYS))}")
    return _WAYS[how](n_rows, k, seed)


def _count(n_rows: int, size: Any) -> int:
    share = isinstance(size, float | np.floating)
    # as written: 0.29 of 100 rows are 29, though 0.29 * 100 is a little less
    k = int(Fraction(str(size)) * n_rows) if share and 0 <= size <= 1 else size
    if not is_whole(k) or not 0 <= k <= n_rows:
        raise PipelineError(
            f"size={size!r} of {n_rows} rows: give a whole number up to {n_rows}, or a share of "
            "them between 0.0 and 1.0"
        )
    return int(k)


def _low_discrepancy(n_rows: int, k: int, seed: int) -> Rows:
    """Step by one Fibonacci number modulo the next, which is not below `n_rows`; leave out others.

    No other step of whole numbers is as even at any length, and none comes back early.
    """
    step, modulus = 1, 1
    while modulus < n_rows:
        step, modulus = modulus, step + modulus
    start = seed % modulus
    found = np.empty(0, np.int64)
    tried = 0
    while len(found) < k:
        more = 2 * (k - len(found)) + 8
        wide = (tried + more) * step + start > np.iinfo(np.int64).max
        numbers = np.arange(tried, tried + more, dtype=object if wide else np.int64)
        rows = ((numbers * step + start) % modulus).astype(np.int64)
        found = np.append(found, rows[rows < n_rows])
        tried += more
    return found[:k]


def _uniform(n_rows: int, k: int, seed: int) -> Rows:
    return np.rint(np.linspace(0, max(n_rows - 1, 0), k)).astype(np.int64)


def _random(n_rows: int, k: int, seed: int) -> Rows:
    return explicit_permutation(n_rows, key_of("subsample", seed))[:k].astype(np.int64)


_WAYS: dict[str, Callable[[int, int, int], Rows]] = {
    "low-discrepancy": _low_discrepancy,
    "uniform": _uniform,
    "random": _random,
}
