"""Casts and paddings of a source, checked before anything is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.errors import ArrayError, LoaderError
from labeled.permute.arguments import checked_factor, compute_dtype, result_dtype
from labeled.sources.source import AnySource
from labeled.spaces.arrays import why_not_cast

BFLOAT16 = (
    "NumPy has none of that name; take float32, and cast where the model is: x.to(torch.bfloat16) "
    "or torch.autocast, x.astype(jax.numpy.bfloat16)"
)


def checked_dtype(value: Any, source: AnySource) -> np.dtype[Any] | None:
    """Return what was asked for as a dtype, None as None; torch's have names of NumPy's."""
    if value is None:
        return None
    wanted = getattr(value, "as_numpy_dtype", value)  # of TensorFlow's
    if type(value).__module__ == "torch":
        wanted = str(value).removeprefix("torch.")
    try:
        if isinstance(wanted, str) and wanted == "bfloat16":  # known once JAX is imported
            raise TypeError(BFLOAT16)
        found: np.dtype[Any] = np.dtype(wanted)
        if found.subdtype is not None or found.fields is not None:
            raise TypeError("it is of several values")
    except (TypeError, ValueError) as error:
        raise LoaderError(f"{source.where}: dtype={value!r} is not a dtype: {error}") from None
    return found


def check_change(source: AnySource, dtype: np.dtype[Any] | None, *, scaled: bool) -> None:
    """Raise :class:`LoaderError` where a cast would lose what a source holds."""
    if dtype is None:
        return
    reason = why_not_cast(source.dtype, dtype, scaled=scaled)
    if reason is not None:
        raise LoaderError(f"{source.where}: {reason}")


def check_factor(source: AnySource, dtype: np.dtype[Any] | None, option: str, value: Any) -> None:
    """Raise :class:`LoaderError` where a scale or shift is not made of finite numbers."""
    if value is None:
        return
    try:
        made = result_dtype(source.dtype, dtype, True)
        computed = compute_dtype(source.dtype, made)
        with np.errstate(over="ignore"):  # told below
            factor = checked_factor(option, value, computed)
        if factor is not None and not np.isfinite(factor).all():
            raise ArrayError(f"values are computed in {computed}, where it is not finite")
    except ArrayError as error:
        raise LoaderError(f"{source.where}: {option}={value!r} cannot be: {error}") from None


def can_hold(dtype: np.dtype[Any], value: Any) -> bool:
    """Whether an array of a dtype can be filled with a value; 0 stands for what is empty.

    Examples
    --------
    >>> [can_hold(np.dtype("u1"), value) for value in (255, 256, -1, float("nan"), {})]
    [True, False, False, False, False]
    >>> can_hold(np.dtype("f4"), float("nan")), can_hold(np.dtype("S3"), b"no")
    (True, True)
    >>> can_hold(np.dtype("f4"), 1e300), can_hold(np.dtype("f8"), 1e300)
    (False, True)
    """
    if np.ndim(value) or isinstance(value, dict | list | tuple):
        return False
    if dtype.kind == "O" or (isinstance(value, int) and value == 0):
        return True
    found = np.asarray(value)
    if dtype.kind in "biu":
        return found.dtype.kind in "biuf" and _is_whole(found, dtype)
    if dtype.kind in "fc":
        of_kind = found.dtype.kind in ("biuf" if dtype.kind == "f" else "biufc")
        return of_kind and _stays_finite(found, dtype)
    return found.dtype.kind == dtype.kind and np.can_cast(found.dtype, dtype, "safe")


def _stays_finite(found: Any, dtype: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(found.astype(dtype)) or not np.isfinite(found))


def _is_whole(found: Any, dtype: np.dtype[Any]) -> bool:
    if found.dtype.kind == "f" and not float(found).is_integer():
        return False
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(least <= int(found) <= most)
