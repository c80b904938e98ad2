"""Options that are one of a few words, or yes or no: all else is refused, whatever its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.errors import LoaderError


def check_choice(option: str, value: Any, known: Sequence[str]) -> None:
    """Raise :class:`LoaderError` where an option is none of the words there are for it."""
    if not isinstance(value, str) or value not in known:
        *others, last = map(repr, known)
        raise LoaderError(f"{option}={value!r} must be {', '.join(others)} or {last}")


def flag(option: str, value: Any) -> bool:
    """Return a yes or no as Python's own; text such as ``"no"`` is true to Python, and refused."""
    if not isinstance(value, bool | np.bool_):
        raise LoaderError(f"{option}={value!r} must be True or False")
    return bool(value)
