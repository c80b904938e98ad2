"""Random number generators, as old code handed them around."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

DEFAULT_SEED = 42


def permutation(state: np.random.RandomState, n: int) -> npt.NDArray[np.int64]:
    """Return a random order of ``range(n)``, drawn as the old code drew it.

    Shuffling a list, shuffling an array and permuting ``range(n)`` are one and the same order.
    """
    rows = np.arange(n, dtype=np.int64)
    state.shuffle(rows)
    return rows


def make_np_rng(
    rng_or_seed: Any = None, default_seed: Any = None, which_method: Any = None
) -> np.random.RandomState:
    """Return a ``RandomState``: the one given, or one made of a seed.

    Parameters
    ----------
    rng_or_seed : RandomState, int, sequence of int or None
        Anything with the methods of `which_method` is handed back as it is.
    default_seed : int or sequence of int, optional
        Where nothing is given; 42 without it.
    which_method : str or list of str, optional
        What tells a generator.

    Examples
    --------
    >>> int(make_np_rng(3).randint(100)) == int(np.random.RandomState(3).randint(100))
    True
    """
    names = [which_method] if isinstance(which_method, str) else (which_method or ["shuffle"])
    if rng_or_seed is not None and all(hasattr(rng_or_seed, name) for name in names):
        made: np.random.RandomState = rng_or_seed
        return made
    seed = default_seed if rng_or_seed is None else rng_or_seed
    return np.random.RandomState(DEFAULT_SEED if seed is None else seed)
