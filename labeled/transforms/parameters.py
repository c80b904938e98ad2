"""Parameters of transforms, checked when a transform is made: long before the first row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from labeled.errors import AugmentError, PipelineError, SelectionError, did_you_mean

MAX_SIZE, MAX_WHOLE = (1 << 31) - 1, (1 << 63) - 1
"""Pixels along an axis, as image libraries count them; and what 64 bits hold."""

Size = int | tuple[int, int]
Range = float | tuple[float, float]
"""A fixed value, or what it is drawn from: (least, most)."""


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_whole(what: str, value: Any, least: int | None = None) -> None:
    """Raise :class:`PipelineError` for what is not a whole number, or a count beyond 64 bits."""
    if not is_whole(value) or (least is not None and not least <= value <= MAX_WHOLE):
        wanted = "" if least is None else f", at least {least}"
        raise PipelineError(f"{what}={value!r} must be a whole number{wanted}")


def item_number(index: Any, n: int, item: str, whole: str) -> int:
    """Return the number of an item, counted from the end where it is negative.

    Parameters
    ----------
    index : int
    n : int
        How many items there are.
    item, whole : str
        What one of them is called, and all of them.

    Raises
    ------
    SelectionError
        If there is no such item, or several are asked for.

    Examples
    --------
    >>> item_number(-1, 5, "window", "the series")
    4
    """
    if not is_whole(index):
        raise SelectionError(f"{item} {index!r}: ask for one by a whole number")
    if not -n <= index < n:
        raise SelectionError(f"there is no {item} {index}: {whole} has {n} of them")
    return int(index) % n


def whole_of(name: str, value: Any, *, least: int) -> int:
    """Return a whole number of at least so much."""
    if not is_whole(value) or value < least:
        raise AugmentError(f"{name}={value!r} must be a whole number of {least} or more")
    if value > MAX_SIZE:
        raise AugmentError(f"{name}={value!r} must be at most {MAX_SIZE:,}")
    return int(value)


def size_of(name: str, value: Any, *, least: int = 1) -> tuple[int, int]:
    """Return (height, width); one number is both.

    Examples
    --------
    >>> size_of("size", 24), size_of("size", (24, 32))
    ((24, 24), (24, 32))
    """
    both = (value, value) if isinstance(value, str) or not np.iterable(value) else tuple(value)
    if len(both) != 2:
        raise AugmentError(f"{name}={value!r} must be one whole number or (height, width)")
    height, width = (whole_of(name, one, least=least) for one in both)
    return height, width


def number_of(name: str, value: Any, *, least: float = -math.inf) -> float:
    """Return a finite number of at least so much."""
    known = type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
    if not known or abs(value) > MAX_WHOLE or value < least:
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
    if not isinstance(value, str) or value not in known:
        raise AugmentError(f"{name}={value!r} is not known; {did_you_mean(str(value), known)}")
    return str(value)
