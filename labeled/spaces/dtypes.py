"""Which dtypes a space holds, and how a batch is cast: never from float to integer.

A dtype of None means "keep what comes". A batch may be wider or narrower than the
space's dtype, but not of a kind that loses meaning: complex to real, float to
integer, a number to bool are refused. Integers are narrowed only where every value
fits, which costs one pass over the values and is done only when narrowing.

The functions take plain arrays and say what is wrong in plain words; who is to blame
(which space, which branch) is added by the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from labeled.device import Array, astype, dtype_of, namespace, to_host
from labeled.errors import SpaceError, SpaceTypeError

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def as_dtype(dtype: DTypeLike | None) -> np.dtype[Any] | None:
    """Return `dtype` as NumPy's own, None as None.

    Raises
    ------
    SpaceTypeError
        If it is not bool, integer, float or complex.

    Examples
    --------
    >>> as_dtype("f4"), as_dtype(np.uint8), as_dtype(None)
    (dtype('float32'), dtype('uint8'), None)
    """
    if dtype is None:
        return None
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise SpaceTypeError(f"dtype {dtype!r} is not a dtype: {error}") from error
    if found.kind not in _RANK:
        raise SpaceTypeError(f"a space's dtype is bool, integer, float or complex, not {found}")
    return found.newbyteorder("=")


def why_not_cast(found: np.dtype[Any], wanted: np.dtype[Any] | None) -> str | None:
    """Say why values of one dtype cannot become another's, or return None.

    Examples
    --------
    >>> why_not_cast(np.dtype("f8"), np.dtype("i4"))
    'float64 is not cast to int32, which would drop fractions and NaN'
    >>> why_not_cast(np.dtype("i8"), np.dtype("u1")) is None
    True
    """
    if found.kind == "O":
        return "dtype object holds no numbers (rows of different lengths are not a batch)"
    if wanted is None or found == wanted:
        return None
    if found.kind not in _RANK:
        way = " (a pipeline makes some: times.astype('int64'))" if found.kind in "Mm" else ""
        return f"{found} holds no numbers, expected {wanted}{way}"
    if _RANK[found.kind] <= _RANK[wanted.kind]:
        return None
    lost = {"b": "every value but 0 and 1", "u": "fractions and NaN", "i": "fractions and NaN"}
    return f"{found} is not cast to {wanted}, which would drop " + lost.get(
        wanted.kind, "imaginary parts"
    )


def cast(
    x: Array,
    wanted: np.dtype[Any] | None,
    batch_axis: int = 0,
    who: str = "",
    first_row: int = 0,
) -> Array:
    """Return `x` in dtype `wanted`; `x` itself if that is None or already so.

    Parameters
    ----------
    x : array
        Any shape, also a scipy sparse matrix.
    wanted : dtype or None
        None keeps the dtype.
    batch_axis : int
        The axis along which rows are counted in messages.
    who : str
        Begins the message.
    first_row : int
        The number of the first row, where `x` is part of something longer.

    Raises
    ------
    SpaceTypeError
        If the cast would lose meaning (:func:`why_not_cast`).
    SpaceError
        If an integer does not fit the narrower dtype; names the value and its row.

    Examples
    --------
    >>> cast(np.array([1, 2]), np.dtype("uint8"))
    array([1, 2], dtype=uint8)
    """
    if wanted is None:
        return x
    found = dtype_of(x)
    if found == wanted:
        return x
    reason = why_not_cast(found, wanted)
    if reason is not None:
        raise SpaceTypeError(f"{who}{reason}")
    if narrows(found, wanted):
        check_fits(x, wanted, batch_axis, who, first_row)
    return astype(x, wanted)


def narrows(found: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether both are integers and `wanted` cannot hold all that `found` can."""
    both = found.kind in "iu" and wanted.kind in "iu"
    return both and not np.can_cast(found, wanted, "safe")


def check_fits(
    x: Array, wanted: np.dtype[Any], batch_axis: int = 0, who: str = "", first_row: int = 0
) -> None:
    """Raise a `SpaceError` that names the first integer `wanted` cannot hold, and its row."""
    limits = np.iinfo(wanted)
    stored = x.tocoo() if hasattr(x, "tocsr") else None  # sparse: its stored values
    offender = first_outside(x if stored is None else stored.data, int(limits.min), int(limits.max))
    if offender is None:
        return
    value, position = offender
    row = position[batch_axis] if stored is None else int(stored.row[position[0]])
    raise SpaceError(
        f"{who}value {value} in row {row + first_row} does not fit {wanted} "
        f"({limits.min} to {limits.max}); ask for a wider dtype"
    ).at_row(row + first_row)


def first_outside(x: Array, low: int, high: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the first value of `x` outside ``[low, high]`` and where it is, or None.

    Examples
    --------
    >>> first_outside(np.array([[3], [-1]]), 0, 9)
    (-1, (1, 0))
    """
    if x.size == 0:
        return None
    xp = namespace(x)
    if low <= int(xp.min(x)) and int(xp.max(x)) <= high:
        return None
    host = to_host(x)
    limits = np.iinfo(host.dtype)  # comparing beyond them would overflow
    bad = (host < max(low, limits.min)) | (host > min(high, limits.max))
    where = np.argwhere(bad)[0]
    position = tuple(int(i) for i in where)
    return int(host[position]), position
