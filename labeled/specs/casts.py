"""Which casts a batch may take: never from float to integer, never out of an integer's range.

The same rules with specs and without. Kinds are judged before anything is read, values batch
by batch, and only where integers are narrowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from labeled.device import Array, dtype_of
from labeled.spaces.dtypes import check_fits, narrows, why_not_cast

NUMBERS = "biufc"


def why_not_made(found: np.dtype[Any], wanted: np.dtype[Any] | None, scaled: bool) -> str | None:
    """Say why values of one dtype, scaled or not, are not handed out in another; None if they are.

    Examples
    --------
    >>> why_not_made(np.dtype("u1"), np.dtype("u1"), scaled=True)
    'a scaled result is not cast to uint8; ask for a float dtype'
    >>> why_not_made(np.dtype("f4"), np.dtype("f2"), scaled=False) is None
    True
    """
    if wanted is None:
        return None if scaled else why_not_cast(found, None)
    if scaled and wanted.kind in "biu":
        return f"a scaled result is not cast to {wanted}; ask for a float dtype"
    if wanted.kind in NUMBERS:
        return None if scaled else why_not_cast(found, wanted)
    return None if np.can_cast(found, wanted, "same_kind") else f"{found} is not cast to {wanted}"


def check_values(x: Array, wanted: np.dtype[Any] | None, scaled: bool, source: str) -> None:
    """Raise :class:`SpaceError` where an integer does not fit; names source, value and row."""
    if wanted is not None and not scaled and narrows(dtype_of(x), wanted):
        check_fits(x, wanted, who=f"source {source!r}: ")


def value_for(source: str, option: Any) -> Any:
    """Return what an option says of a source: the same for all, or a mapping by their names."""
    return option.get(source) if isinstance(option, Mapping) else option
