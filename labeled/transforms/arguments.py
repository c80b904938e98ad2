"""Numbers that are said, checked where they are said."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.errors import PipelineError, SelectionError


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, and no truth."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_whole(what: str, value: Any, least: int | None = None) -> None:
    """Raise :class:`PipelineError` for what is no whole number, or too small a one."""
    if not is_whole(value) or (least is not None and value < least):
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
