"""libdeflate by its C interface: deflate data decoded straight into memory that is there.

The binding that this library depends on (``deflate``) returns new bytes for every chunk, which
then have to be copied to their place. Its extension module holds libdeflate itself, whose
functions are found by name; where a build hides them, the binding is called as it is.

The trade-off: a few lines of C interface, for a pass over the memory less.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

from labeled.formats.region import Array
from labeled.permute.addresses import address_of

InflateInto = Callable[[Array, Array], bool]
"""Zlib data and where they go, both ``uint8`` and 1-D; says whether they filled it exactly."""

_DONE = 0


@functools.cache
def inflate_into() -> InflateInto | None:
    """Return what inflates into given memory, outside the GIL; None where that is not there."""
    try:
        extension = importlib.import_module("deflate._deflate").__file__
        library = ctypes.CDLL(extension)
        found = library.libdeflate_zlib_decompress
        make, free = library.libdeflate_alloc_decompressor, library.libdeflate_free_decompressor
    except (ImportError, OSError, AttributeError, TypeError):
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    make.restype, make.argtypes = pointer, []
    free.restype, free.argtypes = None, [pointer]
    found.restype, found.argtypes = ctypes.c_int, [pointer, pointer, size, pointer, size, pointer]
    mine = _Mine(make, free)

    def inflate(data: Array, out: Array) -> bool:
        source, target = address_of(data), address_of(out)
        result: int = found(mine.held.address, source, len(data), target, len(out), None)
        return result == _DONE

    return inflate


class _Held:
    """A decompressor, which serves one call at a time; freed with the thread it belongs to."""

    def __init__(self, make: Any, free: Any) -> None:
        self._free = free
        self.address = make()
        if not self.address:
            raise MemoryError("libdeflate could not allocate a decompressor")

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self._free(self.address)


class _Mine(threading.local):
    """The decompressor of each thread."""

    def __init__(self, make: Any, free: Any) -> None:
        self.held = _Held(make, free)
