"""Whether loops can be compiled here: numba is installed, and not told to leave them alone.

Nothing here imports numba. With ``NUMBA_DISABLE_JIT`` set, as who debugs or measures coverage
sets it, loops would run as plain Python, a hundred times slower, and those that are made of
instructions not at all: then all is done as without numba.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache

OFF = "NUMBA_DISABLE_JIT"
"""numba's own environment variable; anything but 0 turns compiling off."""


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
    """Whether numba is imported already, so that compiled loops cost nothing extra."""
    return "numba" in sys.modules and not turned_off()
