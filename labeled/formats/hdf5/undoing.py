"""What everything that undoes a filter shares: bytes in any coat, compiled loops, one error."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from labeled.errors import ReadError
from labeled.formats.header import SourceHeader
from labeled.formats.reading import describe
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


def compiled() -> Any:
    """Return the module of compiled loops, which imports numba."""
    return importlib.import_module("labeled.formats.hdf5.compiled")


def damage(source: SourceHeader, start: int, stop: int, offset: int, what: str) -> ReadError:
    """Return the error of a chunk, at some byte, that holds certain rows."""
    return ReadError(
        f"{describe(source)}, rows {start} to {stop - 1}: the chunk at byte {offset} is damaged: "
        f"{what}. Copy or download the file again."
    )
