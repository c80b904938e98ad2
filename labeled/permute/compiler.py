"""Whether loops can be compiled here: numba is installed, and not told to leave them alone.

Importing numba takes about half a second, so nothing here does but :func:`earned`. With
``NUMBA_DISABLE_JIT`` set, as who debugs or measures coverage sets it, loops would run as plain
Python, a hundred times slower, and those that are made of instructions not at all: then all is
done as without numba.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from contextlib import suppress
from functools import cache

OFF = "NUMBA_DISABLE_JIT"
"""numba's own environment variable; anything but 0 turns compiling off."""


SWITCH = "LABELED_FAST"
"""The environment variable that leaves compiled loops alone when it is ``0``."""

PAID_BYTES = 1 << 30
"""Bytes moved without compiled loops, which took about as long as importing numba takes."""

_moved_bytes = 0


def turned_off() -> bool:
    """Whether numba is told not to compile.

    Examples
    --------
    >>> turned_off()
    False
    """
    return os.environ.get(OFF, "") not in ("", "0")


def installed() -> bool:
    """Whether loops can be compiled, once numba is imported for them."""
    return not turned_off() and _is_there()


@cache
def _is_there() -> bool:
    """Whether numba can be found; looked for once, which takes longer than a small copy."""
    return importlib.util.find_spec("numba") is not None


def forget() -> None:
    """Look for numba again."""
    _is_there.cache_clear()


def loaded() -> bool:
    """Whether numba is imported already, as a whole, so that compiled loops cost nothing extra."""
    return hasattr(sys.modules.get("numba"), "njit") and not turned_off()


def earned(n_bytes: int) -> bool:
    """Whether to move so many bytes by compiled loops: numba is imported, or that pays by now.

    It is imported here, once this process has moved :data:`PAID_BYTES` bytes without it.
    """
    global _moved_bytes
    if os.environ.get(SWITCH) == "0":
        return False
    if loaded():
        return True
    if _moved_bytes > PAID_BYTES:  # it is not there, does not load, or another thread is at it
        return False
    _moved_bytes += n_bytes
    if _moved_bytes <= PAID_BYTES or not installed():
        return False
    with suppress(ImportError):
        importlib.import_module("numba")
    return loaded()
