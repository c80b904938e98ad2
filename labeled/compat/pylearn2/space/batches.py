"""Kinds of batch and old rules of dtype, as plain functions.

A *numeric* batch is an ndarray, a scipy sparse matrix, None, or a tuple of those; a
*symbolic* one is a dask array, None, or a tuple of those. A list is an error anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.compat.pylearn2 import config
from labeled.compat.pylearn2.errors import OldAssertionError, OldTypeError
from labeled.spaces.arrays import is_dask, is_sparse

DTYPES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


def is_numeric_batch(batch: Any) -> bool:
    """Whether `batch` holds values: arrays, sparse matrices, None, or tuples of those.

    Raises
    ------
    OldAssertionError
        If it is a list, or holds one.

    Examples
    --------
    >>> is_numeric_batch((np.zeros((2, 3)), None)), is_numeric_batch("rows")
    (True, False)
    """
    return _all_are(_is_numeric, batch)


def is_symbolic_batch(batch: Any) -> bool:
    """Whether `batch` is lazy: dask arrays, None, or tuples of those."""
    return _all_are(is_dask, batch)


def _is_numeric(batch: Any) -> bool:
    return isinstance(batch, np.ndarray) or (is_sparse(batch) and not is_dask(batch))


def _all_are(kind: Any, batch: Any) -> bool:
    if isinstance(batch, list):
        raise OldAssertionError("a batch is an array or a tuple of batches, found a list")
    if isinstance(batch, tuple):
        return all(_all_are(kind, part) for part in batch)
    return batch is None or bool(kind(batch))


def as_dtype_name(dtype: Any) -> str | None:
    """Return `dtype` as the old spaces kept it: a name, or None for any.

    Raises
    ------
    OldTypeError
        If it is none of None, 'floatX', a dtype instance or a known name. Types such as
        ``numpy.float32``, and ``'bool'``, are refused.

    Examples
    --------
    >>> as_dtype_name("floatX"), as_dtype_name(np.dtype("u1")), as_dtype_name(None)
    ('float64', 'uint8', None)
    """
    name = str(dtype) if isinstance(dtype, np.dtype) else dtype
    if name is None:
        return None
    if name == "floatX":
        return config.floatX
    if isinstance(name, str) and name in DTYPES:
        return name
    raise OldTypeError(
        f"dtype must be None, 'floatX', a numpy dtype instance, or one of {', '.join(DTYPES)}; "
        f"found {dtype!r}"
    )


def why_not_dtype(found: Any, wanted: str | None) -> str | None:
    """Say why a space of dtype `wanted` does not hold a batch of dtype `found`, or None.

    Only complex values in a real space, and anything but integers in a space of integers,
    are refused. bool is not an integer.
    """
    if wanted is None:
        return None
    kind = np.dtype(found).kind
    if kind == "c" and not wanted.startswith("complex"):
        return f"a batch of dtype {found} does not fit the space's {wanted}"
    if "int" in wanted and kind not in "iu":
        return f"a batch of dtype {found} is not of integers, as the space's {wanted} asks"
    return None


def cast(x: Any, dtype: str | None) -> Any:
    """Return `x` in `dtype`, cut and wrapped around as C does; `x` itself where it is so.

    Examples
    --------
    >>> cast(np.array([300, 1]), "uint8"), cast(np.array([1.7]), "int32")
    (array([44,  1], dtype=uint8), array([1], dtype=int32))
    """
    if dtype is None or (x.dtype == dtype and not isinstance(x, np.matrix)):
        return x
    with np.errstate(invalid="ignore", over="ignore"):
        if is_dask(x) or is_sparse(x):
            return x.astype(dtype)
        return np.asarray(x).astype(dtype, copy=False)
