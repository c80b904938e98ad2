"""Loops that numba compiles (extra ``fast``): whether it is there, when it pays, how they are kept.

Importing numba takes about half a second, and compiling a loop about as long, so nothing touches it
until something large is to be done, or enough was done without it (:func:`pays_off`). With
``NUMBA_DISABLE_JIT`` set, as for debugging or measuring coverage, loops would run as plain Python,
a hundred times slower: then all is done as without numba.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, cast

from labeled.errors import how_to_install

Loop = Callable[..., Any]

# numba's own variable, which turns compiling off; ours, which leaves compiled loops alone
OFF, SWITCH = "NUMBA_DISABLE_JIT", "LABELED_FAST"

# bytes moved without compiled loops, which took about as long as importing numba takes
PAID_BYTES = 1 << 30

_failed = ""
_moved_bytes = 0


@cache
def _found_obstacle() -> str:
    """Look for what keeps loops from being compiled, empty if nothing does.

    Once: to ask the environment takes longer than to scatter a chunk's rows, and to look for numba
    longer than a small copy.
    """
    if os.environ.get(SWITCH) == "0":
        return f"compiled kernels are turned off by {SWITCH}=0"
    if os.environ.get(OFF, "") not in ("", "0"):
        return f"compiled kernels are turned off by {OFF}"
    if importlib.util.find_spec("numba") is None:
        return f"numba is not installed: {how_to_install('numba', 'fast')}"
    return ""


def obstacle() -> str:
    """Return why no loop may be compiled, empty if it may."""
    return _failed or _found_obstacle()


def available() -> bool:
    """Say whether numba is installed and not turned off."""
    return not obstacle()


def look_again() -> None:
    """Forget what was found out about the switch and about numba."""
    global _failed
    _failed = ""
    _found_obstacle.cache_clear()


def at_hand() -> bool:
    """Whether loops can be compiled; numba is imported now."""
    global _failed
    if available():
        try:
            importlib.import_module("numba")
        except ImportError as error:
            _failed = f"numba does not load: {error}"
    return available()


def pays_off(n_bytes: int) -> bool:
    """Whether to move so many bytes by compiled loops: numba is imported, or that pays by now.

    It is imported here, once this process has moved :data:`PAID_BYTES` bytes without it.
    """
    global _moved_bytes
    if _found_obstacle():
        return False
    if hasattr(sys.modules.get("numba"), "njit"):
        return True
    if _moved_bytes > PAID_BYTES:  # it is not there, does not load, or another thread is at it
        return False
    _moved_bytes += n_bytes
    return _moved_bytes > PAID_BYTES and at_hand()


def loop(function: Loop, **options: Any) -> Loop:
    """Compile at the first call, without the GIL; keep the code where numba may write."""
    njit: Any = importlib.import_module("numba").njit
    made: Any
    try:
        made = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no folder to write to: neither beside the file nor the user's own
        made = njit(nogil=True, **options)(function)
    for name in ("save_overload", "load_overload"):
        method = getattr(made._cache, name, None)
        if method is None:
            continue

        def unless_full(*args: Any, method: Loop = method) -> Any:
            with suppress(OSError):  # the disk is full, with the code compiled and ready
                return method(*args)

        setattr(made._cache, name, unless_full)
    return cast(Loop, made)
