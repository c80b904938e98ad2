"""Loops compiled by numba (extra ``fast``): whether they can be here, and compiling them.

Importing numba takes about half a second, so nothing here does but :func:`earned` and
:func:`loop`. With
``NUMBA_DISABLE_JIT`` set, as who debugs or measures coverage sets it, loops would run as plain
Python, a hundred times slower, and those that are made of instructions not at all: then all is
done as without numba.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from typing import Any

Loop = Callable[..., Any]

OFF = "NUMBA_DISABLE_JIT"
"""numba's own environment variable; anything but 0 turns compiling off."""


SWITCH = "LABELED_FAST"
"""The environment variable that leaves compiled loops alone when it is ``0``."""

PAID_BYTES = 1 << 30
"""Bytes moved without compiled loops, which took about as long as importing numba takes."""

_moved_bytes = 0


def turned_off() -> bool:
    """Whether numba's compiler is disabled.

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


def loop(function: Loop, **options: Any) -> Loop:
    """Compile at the first call, without the GIL; keep the code where numba may write."""
    njit: Any = importlib.import_module("numba").njit
    try:
        made: Loop = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no folder to write to: neither beside the file nor the user's own
        made = njit(nogil=True, **options)(function)
    else:
        _keep_if_possible(made)
    return made


def _keep_if_possible(made: Any) -> None:
    """Go on where a disk is full: numba raises then, with the code compiled and ready."""
    kept = getattr(made, "_cache", None)
    for name in ("save_overload", "load_overload"):
        method = getattr(kept, name, None)
        if method is not None:
            setattr(kept, name, _forgiving(method))


def _forgiving(method: Loop) -> Loop:
    @wraps(method)
    def tried(*args: Any) -> Any:
        with suppress(OSError):
            return method(*args)
        return None

    return tried
