"""The page cache: every way should find the same file in the same place.

A file is only ever read here. Dropping its pages asks the system to forget clean copies of
what is stored; whatever has not been written back yet is written first, and stays otherwise.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

PIECE_BYTES = 8 << 20
LOOK_BYTES = 1 << 30
"""Of a file that is looked through at a time."""


def warm(path: str | os.PathLike[str]) -> None:
    """Bring a file into the page cache by reading it."""
    piece = bytearray(PIECE_BYTES)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(piece):
            pass


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


@contextmanager
def held(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Bring a file into the page cache anew, and keep it there until the end of the block.

    Some systems, those of virtual machines above all, drop pages while gigabytes are free: a
    file of 800 MB in use was seen without a fourth of them. Ways that take turns would find
    different states.

    Yields
    ------
    bool
        Whether its pages are locked; without the right to do that they are only read.
    """
    renew(path)
    lock, size = getattr(ctypes.CDLL(None), "mlock", None), os.path.getsize(path)
    if lock is None or not size:
        yield False
        return
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        address = np.frombuffer(view, np.uint8).ctypes.data  # keeps no view of the map
        yield lock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0


def resident(path: str | os.PathLike[str]) -> float:
    """Return the share of a file that is in the page cache; NaN where the system does not say.

    It says 1 of files that the caller neither owns nor may write.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mincore"):
        return float("nan")
    there, size = 0, os.path.getsize(path)
    with open(path, "rb") as file:
        for start in range(0, size, LOOK_BYTES):
            length = min(LOOK_BYTES, size - start)
            found = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
            # a private view may be written to, which ctypes asks for: nobody does
            with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY, offset=start) as view:
                anchor = ctypes.c_char.from_buffer(view)
                address, out = ctypes.c_void_p(ctypes.addressof(anchor)), found.ctypes.data_as
                failed = library.mincore(address, ctypes.c_size_t(length), out(ctypes.c_void_p))
                del anchor
            if failed:
                return float("nan")
            there += int((found & 1).sum())
    return there / max(1, -(-size // mmap.PAGESIZE))
