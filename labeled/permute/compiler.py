"""Loops compiled by numba (extra ``fast``): whether they can be here, and compiling them.

Importing numba takes about half a second, so nothing here does but :func:`pays_off` and
:func:`loop`. With ``NUMBA_DISABLE_JIT`` set, as who debugs or measures coverage sets it, loops
would run as plain Python, a hundred times slower: then all is done as without numba.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

Loop = Callable[..., Any]

OFF = "NUMBA_DISABLE_JIT"
"""numba's own environment variable; anything but 0 turns compiling off."""


SWITCH = "LABELED_FAST"
"""The environment variable that leaves compiled loops alone when it is ``0``."""

PAID_BYTES = 1 << 30
"""Bytes moved without compiled loops, which took about as long as importing numba takes."""

_moved_bytes = 0


def wanted() -> bool:
    """Whether compiled loops may be used: neither numba's compiler nor our use of it is off.

    Examples
    --------
    >>> wanted()
    True
    """
    off = os.environ.get(OFF, "") not in ("", "0")
    return not off and os.environ.get(SWITCH) != "0"


@cache
def installed() -> bool:
    """Whether numba can be found; looked for once, which takes longer than a small copy."""
    return importlib.util.find_spec("numba") is not None


def forget() -> None:
    """Look for numba again."""
    installed.cache_clear()


def pays_off(n_bytes: int) -> bool:
    """Whether to move so many bytes by compiled loops: numba is imported, or that pays by now.

    It is imported here, once this process has moved :data:`PAID_BYTES` bytes without it.
    """
    global _moved_bytes
    if not wanted():
        return False
    if hasattr(sys.modules.get("numba"), "njit"):
        return True
    if _moved_bytes > PAID_BYTES:  # it is not there, does not load, or another thread is at it
        return False
    _moved_bytes += n_bytes
    if _moved_bytes <= PAID_BYTES or not installed():
        return False
    with suppress(ImportError):
        importlib.import_module("numba")
    return hasattr(sys.modules.get("numba"), "njit")


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
        if method is None:
            continue

        def tried(*args: Any, method: Loop = method) -> Any:
            with suppress(OSError):
                return method(*args)
            return None

        setattr(kept, name, tried)
