"""Parameters of transforms, checked when a transform is made: long before the first picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from labeled.errors import AugmentError, did_you_mean

Size = int | tuple[int, int]
Range = float | tuple[float, float]
"""A fixed value, or what it is drawn from: (least, most)."""


def whole_of(name: str, value: Any, *, least: int) -> int:
    """Return a whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise AugmentError(f"{name}={value!r} must be a whole number of {least} or more")
    return int(value)


def size_of(name: str, value: Any, *, least: int = 1) -> tuple[int, int]:
    """Return (height, width); one number is both.

    Examples
    --------
    >>> size_of("size", 24), size_of("size", (24, 32))
    ((24, 24), (24, 32))
    """
    both = value if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    if len(both) != 2:
        raise AugmentError(f"{name}={value!r} must be one whole number or (height, width)")
    height, width = (whole_of(name, one, least=least) for one in both)
    return height, width


def number_of(name: str, value: Any, *, least: float = -math.inf) -> float:
    """Return a finite number of at least so much."""
    known = type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
    if not known or value < least:
        more = "" if least == -math.inf else f" of {least:g} or more"
        raise AugmentError(f"{name}={value!r} must be a finite number{more}")
    return float(value)


def chance_of(name: str, value: Any) -> float:
    """Return a number from 0 to 1."""
    if not 0 <= number_of(name, value) <= 1:
        raise AugmentError(f"{name}={value!r} must be from 0 to 1")
    return float(value)


def range_of(name: str, value: Any) -> tuple[float, float]:
    """Return (least, most); one number is both.

    Examples
    --------
    >>> range_of("rotate", 30), range_of("rotate", (-30, 30))
    ((30.0, 30.0), (-30.0, 30.0))
    """
    both = value if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    if len(both) != 2:
        raise AugmentError(f"{name}={value!r} must be one number or (least, most)")
    low, high = (number_of(name, one) for one in both)
    if low > high:
        raise AugmentError(f"{name}={value!r}: the least comes first")
    return low, high


def above_zero(name: str, value: Any) -> tuple[float, float]:
    """Return (least, most), both above 0."""
    low, high = range_of(name, value)
    if low <= 0:
        raise AugmentError(f"{name}={value!r} must be above 0")
    return low, high


def choice_of(name: str, value: Any, known: Sequence[str]) -> str:
    """Return one of some words."""
    if value not in known:
        raise AugmentError(f"{name}={value!r} is not known; {did_you_mean(str(value), known)}")
    return str(value)
