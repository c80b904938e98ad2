"""Batches of libraries that only DLPack knows: taken over for a conversion, and given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labeled.device import adopted, brought_back, is_array, is_foreign, library_of


def foreign_library(batch: Any) -> str | None:
    """Return the library of a batch's arrays, if it is one that only DLPack knows."""
    if isinstance(batch, tuple):
        found = (foreign_library(part) for part in batch)
        return next((library for library in found if library is not None), None)
    return library_of(batch) if is_foreign(batch) else None


def by_dlpack(convert: Callable[[Any], Any], batch: Any, library: str) -> Any:
    """Convert a batch of another library as NumPy's or CuPy's; return that library's arrays."""
    made = convert(_each(is_foreign, adopted, batch))
    return _each(is_array, lambda x: brought_back(x, library), made)


def _each(which: Callable[[Any], bool], change: Callable[[Any], Any], batch: Any) -> Any:
    if isinstance(batch, tuple):
        return tuple(_each(which, change, part) for part in batch)
    return change(batch) if which(batch) else batch
