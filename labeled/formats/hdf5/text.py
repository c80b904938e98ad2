"""Text of variable length: HDF5 hands out bytes, people expect strings."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a stored dtype is text of variable length (fixed-length text stays bytes)."""
    found = h5py.check_string_dtype(dtype)
    return found is not None and found.length is None


def decode_text(raw: Array, dtype: np.dtype[Any]) -> Array:
    """Turn an object array of UTF-8 bytes into one of str; undecodable bytes are kept visible.

    Examples
    --------
    >>> decode_text(np.array([b"caf\\xc3\\xa9"], object), h5py.string_dtype())
    array(['café'], dtype=object)
    """
    out = np.empty(raw.shape, object)
    for place, item in enumerate(raw.reshape(-1)):
        text = item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item
        out.reshape(-1)[place] = text
    return out
