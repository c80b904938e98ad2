"""The page cache: every way should find the same file in the same place."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter

PIECE_BYTES = 8 << 20


def warm(path: str | os.PathLike[str], limit_s: float = float("inf")) -> float:
    """Bring a file into the page cache by reading it, for at most about `limit_s`.

    Returns
    -------
    float
        The share of its bytes that were read.
    """
    size, done, began = os.path.getsize(path), 0, perf_counter()
    piece = bytearray(PIECE_BYTES)
    with open(path, "rb", buffering=0) as file:
        while perf_counter() - began < limit_s and (n := file.readinto(piece)):
            done += n
    return min(1.0, done / size) if size else 1.0


def evict(path: str | os.PathLike[str]) -> None:
    """Drop a file from the page cache, where the system can be asked to."""
    advise: Callable[..., None] | None = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        advise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def renew(path: str | os.PathLike[str]) -> None:
    """Bring a file into the page cache anew, whatever was there before.

    Pages that were written lie about singly and read at half the speed of those that
    reading ahead brought in, so they are dropped first: every run finds the same state.
    """
    evict(path)
    warm(path)
