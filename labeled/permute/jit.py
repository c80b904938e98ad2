"""Compiling plain loops by numba (extra ``fast``), without the GIL.

Importing this module imports numba, which costs half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

Loop = Callable[..., Any]


def loop(function: Loop) -> Loop:
    """Compile at the first call; keep the code where numba may write."""
    try:
        made: Loop = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder to keep the compiled code in
        made = njit(nogil=True)(function)
    return made
