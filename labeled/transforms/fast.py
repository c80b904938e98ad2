"""When compiled loops resample: where numba is there, and pictures are large enough to earn it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from labeled import permute

LOOPS = "labeled.transforms.loops"

LOAD_ITEMS = 1 << 16
"""The first picture of so many values imports the loops."""


def loops_for(x: Any, n_items: int | None = None) -> Any:
    """Return the compiled loops, None where whole arrays are to be computed with.

    Both ways give the same values, to the bit.

    Parameters
    ----------
    x : array
    n_items : int, optional
        Values to be computed; as many as there are when not given.
    """
    if not isinstance(x, np.ndarray) or not permute.available():
        return None
    if LOOPS not in sys.modules and (x.size if n_items is None else n_items) < LOAD_ITEMS:
        return None
    return importlib.import_module(LOOPS)
