"""Libraries that ``import labeled`` does without: each is imported at its first use.

For what every installation has but not every program uses, and which takes long to
import. Optional libraries have doors of their own, where a missing one is told.
"""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """Stands for a module until something in it is asked for.

    Examples
    --------
    >>> fractions = Later("fractions")
    >>> fractions
    <fractions, imported when used>
    >>> fractions.Fraction(1, 2)
    Fraction(1, 2)
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, found)  # the next time it is found without coming here
        return found

    def __repr__(self) -> str:
        return f"<{self._name}, imported when used>"
