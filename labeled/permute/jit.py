"""Compiling plain loops by numba (extra ``fast``), without the GIL.

Importing this module imports numba, which costs half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from numba import njit

Loop = Callable[..., Any]


def loop(function: Loop, **options: Any) -> Loop:
    """Compile at the first call; keep the code where numba may write."""
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
