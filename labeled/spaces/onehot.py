"""Labels into indicator rows: checked, in two layouts, dense or sparse.

``concatenate`` gives every index a block of its own, ``merge`` marks all indices of a
row in one block (repeats count once). A label that is negative or beyond the last one is
an error that names the value and its row; it never wraps into another column.

Functions of plain arrays: spaces and their rules are not known here.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from labeled.device import (
    Array,
    astype,
    dtype_of,
    is_array,
    is_cupy,
    namespace,
    reshape,
    to_host,
)
from labeled.errors import SpaceError, SpaceTypeError
from labeled.spaces.dtypes import first_outside
from labeled.spaces.sparse import csr

Mode = Literal["merge", "concatenate"]


def check_labels(labels: Array, max_labels: int | None, who: str = "", first_row: int = 0) -> None:
    """Check that labels are integers in ``[0, max_labels)``.

    Parameters
    ----------
    labels : array (batch, index) or (batch,)
        Any integer dtype.
    max_labels : int or None
        None: only the sign is checked.
    who : str
        Begins the message.
    first_row : int
        The number of the first row, where `labels` are part of something longer.

    Raises
    ------
    SpaceTypeError
        If the dtype is not integer; names the first value that is not whole, if any.
    SpaceError
        If a label is out of range; names the label and its row.

    Examples
    --------
    >>> check_labels(np.array([[3], [10]]), 10)
    Traceback (most recent call last):
    labeled.errors.SpaceError: label 10 in row 1 is out of range, expected 0 to 9
    """
    found = dtype_of(labels)
    if found.kind not in "iu":
        raise not_labels(labels, found, who, first_row)
    top = np.iinfo(found).max if max_labels is None else max_labels - 1
    offender = first_outside(labels, 0, int(top))
    if offender is not None:
        value, position = offender
        limit = "0 or more" if max_labels is None else f"0 to {max_labels - 1}"
        row = position[0] + first_row
        raise SpaceError(
            f"{who}label {value} in row {row} is out of range, expected {limit}"
        ).at_row(row)


def not_labels(labels: Array, found: np.dtype[Any], who: str, first_row: int = 0) -> SpaceTypeError:
    """Return why a batch of this dtype holds no labels: the first bad value, if it is at hand."""
    text = f"{who}labels must be integers, found {found}"
    if found.kind == "f" and is_array(labels):
        values = to_host(labels)
        bad = np.argwhere(~np.isfinite(values) | (values != np.floor(values)))
        if len(bad):
            value, row = values[tuple(bad[0])], int(bad[0][0]) + first_row
            return SpaceTypeError(f"{text}: value {value} in row {row} is not a label").at_row(row)
    return SpaceTypeError(f"{text}; cast them first, e.g. with astype('int64')")


def one_hot(
    labels: Array,
    max_labels: int,
    mode: Mode = "concatenate",
    dtype: DTypeLike = np.float64,
    who: str = "",
    first_row: int = 0,
) -> Array:
    """Return indicator rows of `labels`, after checking every label.

    Parameters
    ----------
    labels : array (batch, index)
        Integers in ``[0, max_labels)``.
    max_labels : int
        How many labels there are.
    mode : "merge" or "concatenate"
        The layout.
    dtype : dtype
        Of the result.
    who, first_row
        As in :func:`check_labels`.

    Returns
    -------
    array
        ``merge``: (batch, max_labels); ``concatenate``: (batch, index * max_labels). New
        memory, of the kind `labels` are.

    Examples
    --------
    >>> one_hot(np.array([[0, 2], [1, 1]]), 3, "merge", np.uint8)
    array([[1, 0, 1],
           [0, 1, 0]], dtype=uint8)
    >>> one_hot(np.array([[0, 2]]), 3, "concatenate", np.uint8)
    array([[1, 0, 0, 0, 0, 1]], dtype=uint8)
    """
    check_labels(labels, max_labels, who, first_row)
    n, k = labels.shape
    if isinstance(labels, np.ndarray) or is_cupy(labels):
        return _scattered(labels, max_labels, mode, np.dtype(dtype))
    xp = namespace(labels)
    wide = astype(reshape(labels, (n, k, 1)), np.int64)
    marks = wide == reshape(xp.arange(max_labels, dtype=xp.int64), (1, 1, max_labels))
    made = xp.any(marks, axis=1) if mode == "merge" else reshape(marks, (n, k * max_labels))
    return astype(made, dtype)


def _scattered(labels: Array, max_labels: int, mode: Mode, dtype: np.dtype[Any]) -> Array:
    """Write the ones into zeros: linear in the result, also with many indices a row."""
    xp = namespace(labels)
    n, k = labels.shape
    rows = xp.arange(n)[:, None]
    if mode == "merge":
        merged = xp.zeros((n, max_labels), dtype)
        merged[rows, labels] = 1
        return merged
    stacked = xp.zeros((n, k, max_labels), dtype)
    stacked[rows, xp.arange(k)[None, :], labels] = 1
    return stacked.reshape(n, k * max_labels)


def one_hot_sparse(
    labels: Any,
    max_labels: int,
    mode: Mode = "concatenate",
    dtype: DTypeLike = np.float64,
    who: str = "",
    first_row: int = 0,
) -> Any:
    """Return indicator rows of `labels` as a ``scipy.sparse.csr_array``.

    As :func:`one_hot`; repeats count once in ``merge`` here too.

    Examples
    --------
    >>> one_hot_sparse(np.array([[0, 2], [1, 1]]), 3, "merge", np.uint8).toarray()
    array([[1, 0, 1],
           [0, 1, 0]], dtype=uint8)
    """
    check_labels(labels, max_labels, who, first_row)
    n, k = labels.shape
    width = max_labels if mode == "merge" else k * max_labels
    offsets = 0 if mode == "merge" else np.arange(k) * max_labels
    columns = np.sort(labels.astype(np.int64) + offsets, axis=1)
    first = np.ones(columns.shape, bool)
    first[:, 1:] = columns[:, 1:] != columns[:, :-1]
    starts = np.concatenate([[0], np.cumsum(first.sum(axis=1))])
    ones = np.ones(int(starts[-1]), dtype)
    return csr((ones, columns[first], starts), (n, width))
