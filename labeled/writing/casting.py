"""Values on their way into the dtype of a file: one fixed by earlier rows, texts, times.

Numbers of one kind may be cast (float64 becomes float32, and is rounded), but no value may
become another: an integer that wraps around, a text that is cut, a number that overflows to
infinity, a time before or after what nanoseconds can count is an error that names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import ArrayError
from labeled.formats.cf import FILLS
from labeled.formats.hdf5.writing import storable_text
from labeled.formats.region import Array


def without_mask(where: str, array: np.ma.MaskedArray[Any, Any]) -> Array:
    """Return the values of an array none of which is masked.

    Raises
    ------
    ArrayError
        If one is: there is no place for a mask.
    """
    if np.ma.is_masked(array):
        raise ArrayError(
            f"{where} is a masked array, and a file has no place for its mask; fill it in with "
            f".filled(value), or write the mask as a source of its own"
        )
    return np.asarray(array.data)


def with_fills(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return attributes whose fill values have the dtype of the values, where they fit it.

    Examples
    --------
    >>> with_fills({"_FillValue": -1, "missing_value": 0.5}, np.dtype("i2"))
    {'_FillValue': np.int16(-1), 'missing_value': 0.5}
    """
    out = dict(attrs)
    for name in FILLS:
        given = np.asarray(attrs.get(name))
        if given.dtype.kind in "iuf" and dtype.kind in "iuf" and not given.shape:
            with np.errstate(invalid="ignore", over="ignore"):
                fill = given.astype(dtype.newbyteorder("="))
            if np.array_equal(fill, given, equal_nan=True):
                out[name] = fill[()]
    return out


def check_integers(where: str, dtypes: Collection[np.dtype[Any]]) -> None:
    """Refuse arrays of integers which only float64 holds together, rounded.

    Raises
    ------
    ArrayError
    """
    integers = all(dtype.kind in "iu" for dtype in dtypes)
    if dtypes and integers and np.result_type(*dtypes).kind == "f":
        raise ArrayError(
            f"{where} has arrays of {', '.join(sorted(map(str, dtypes)))}, which only float64 "
            "holds together, rounded; give all of them one dtype, such as int64, with .astype"
        )


def cast(values: Array, dtype: np.dtype[Any], where: str, first: int | None = None) -> Array:
    """Return values as another dtype of their kind.

    Parameters
    ----------
    values : array (n, ...)
    dtype : dtype
    where : str
        How messages name the source.
    first : int, optional
        The number of row 0, for messages; None where rows are no examples.

    Returns
    -------
    array
        `values` themselves where they have the dtype.

    Raises
    ------
    ArrayError
        If the kinds differ, or a value does not fit.

    Examples
    --------
    >>> cast(np.array([1, 300]), np.dtype("i2"), "source 'x'")
    array([  1, 300], dtype=int16)
    >>> cast(np.array([1, 300]), np.dtype("i1"), "source 'x'", 10)
    Traceback (most recent call last):
    labeled.errors.ArrayError: source 'x', row 11: 300 does not fit int8, the dtype that earlier \
rows have; give those a wider one
    """
    if values.dtype == dtype:
        return values
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        raise ArrayError(
            f"{where} gave a block of {values.dtype} where {dtype} was announced; give every "
            f"block one dtype, cast with .astype({str(dtype)!r}) if that loses nothing"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        out = values.astype(dtype)
        wrong = _changed(values, out)
    if wrong.any():
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        row = "" if first is None else f", row {first + int(at[0])}"
        raise ArrayError(
            f"{where}{row}: {values[at]!s:.60} does not fit {dtype}, the dtype that earlier rows "
            f"have; give those a wider one"
        )
    return out


def _changed(values: Array, out: Array) -> npt.NDArray[np.bool_]:
    """Tell which values became others; rounding floats is none of that."""
    old, new = values.dtype.kind, out.dtype.kind
    if old in "iu" and new in "iu":
        bounds = np.iinfo(out.dtype)
        held = np.iinfo(values.dtype)
        if bounds.min <= held.min and held.max <= bounds.max:
            return np.zeros(values.shape, bool)
        return np.asarray(
            (values < max(bounds.min, held.min)) | (values > min(bounds.max, held.max))
        )
    if old in "fc":
        return np.asarray(np.isfinite(values) & ~np.isfinite(out))
    back = out.real if new == "c" else out
    wrong = back.astype(values.dtype) != values
    if old in "iu":  # of the next power of two nothing can be told by casting it back
        wrong |= back.astype(np.float64) >= float(np.iinfo(values.dtype).max + 1)
    return np.asarray(wrong)


def texts(rows: Array, where: str, first: int = 0) -> Array:
    """Return texts as they are stored; messages count rows from `first`.

    Raises
    ------
    ArrayError
        If something is no text, or one that a file cannot hold.
    """
    out = rows.astype(object, order="C")
    flat = out.reshape(-1)
    for place, value in enumerate(flat.tolist()):
        if isinstance(value, str) and value.isascii() and "\0" not in value:
            continue
        try:
            flat[place] = _storable_text(value)
        except ValueError as error:
            row = first + place // (len(flat) // len(out))
            raise ArrayError(f"{where}, row {row} holds {error}") from None
    return out


def _storable_text(value: Any) -> str | bytes:
    """Return a text as it is stored.

    Raises
    ------
    ValueError
        If a file cannot hold it; says why, and what to do.
    """
    if isinstance(value, np.ndarray | list | tuple):
        raise ValueError(
            "an array among its texts; give texts only, or arrays only (a list of them, or an "
            "object array)"
        )
    if not isinstance(value, str | bytes):
        raise ValueError(
            f"{type(value).__name__} {value!r:.60} among its texts; give texts only, or numbers "
            f"with a dtype of their own"
        )
    return storable_text(value)


def times(values: Array, kind: str, where: str) -> Array:
    """Return times (kind "M") or durations ("m") as the nanoseconds that are stored.

    Raises
    ------
    ArrayError
        If values are of another kind, or one does not fit: years 1677 to 2262 do.
    """
    if values.dtype.kind != kind:
        announced = "times" if kind == "M" else "durations"
        raise ArrayError(
            f"{where} gave a block of {values.dtype} where {announced} were announced; give every "
            f"block one dtype"
        )
    out = _nanoseconds(values, f"{kind}8[ns]")
    wrong = (out.astype(values.dtype) != values) & ~np.isnat(values)
    if wrong.any():
        raise ArrayError(
            f"{where} holds {values[wrong][0]!s}, which int64 nanoseconds cannot hold; store "
            f"numbers in another unit, with .astype('int64') and an attribute"
        )
    return out.view(np.int64)


def _nanoseconds(values: Array, dtype: str) -> Array:
    """Cast times; those that do not fit become others, or none: NaT."""
    try:
        return values.astype(dtype)
    except OverflowError:  # NumPy 2.5 and newer say so, and not which one it was
        out = np.full(values.shape, "NaT", dtype)
        for place, value in np.ndenumerate(values):
            with suppress(OverflowError):
                out[place] = value
        return out
