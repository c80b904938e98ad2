"""Items of no fixed size, which NumPy holds as objects: text, and rows of numbers.

A dtype of objects carries a note of what they are, in the way h5py writes it: `vlen` in
its metadata is ``str`` or ``bytes`` for text, or the dtype of the numbers in a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TEXT: np.dtype[Any] = np.dtype(object, metadata={"vlen": str})
"""Objects that are text."""


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a stored dtype is text of variable length (fixed-length text stays bytes).

    Examples
    --------
    >>> is_text(TEXT), is_text(np.dtype(object)), is_text(np.dtype("S4"))
    (True, False, False)
    """
    return _noted(dtype) in (str, bytes)


def vlen_base(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype of the numbers in a variable-length row; None for other dtypes."""
    base = _noted(dtype)
    if base is None or base in (str, bytes):
        return None
    numbers: np.dtype[Any] = np.dtype(base)
    return numbers if numbers.kind in "biufc" else None


def _noted(dtype: np.dtype[Any]) -> Any:
    return None if dtype.metadata is None else dtype.metadata.get("vlen")


def decode_text(raw: Array) -> Array:
    """Turn an object array of UTF-8 bytes into one of str; undecodable bytes are kept visible.

    Examples
    --------
    >>> decode_text(np.array([b"caf\\xc3\\xa9"], object))
    array(['café'], dtype=object)
    """
    out = np.empty(raw.shape, object)
    for place, item in enumerate(raw.reshape(-1)):
        text = item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item
        out.reshape(-1)[place] = text
    return out
