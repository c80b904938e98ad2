"""What everything that undoes a filter shares: bytes in any coat, and the one error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from labeled.formats.region import Array

Bytes = bytes | memoryview | Array
"""Bytes in any coat: arrays of them are ``uint8``, 1-D."""

Decode = Callable[[Bytes, int], Bytes]
"""Stored bytes and decoded size to decoded bytes; raises DecodeError where they disagree."""


class DecodeError(ValueError):
    """Stored bytes are not what their filter would have written."""


def as_array(data: Bytes) -> Array:
    """Return bytes as an array, without a copy."""
    return data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
