"""Pages of traps: old rules beside native ones, each an expression with what it gives."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import labeled

DOCS = Path(__file__).parent.parent / "docs"

CELL = r"`(.*?)` <br>→ (?:`(.*?)`|\*\*(.*?)\*\*)"
LINE = re.compile(rf"\| (\d+) \| (.*?) \| {CELL} \| {CELL} \|")


class Case(NamedTuple):
    """One line of a page: what it is about, and two expressions with what they give.

    What an expression gives is the repr of its value, or ``raises`` and the kind of error.
    """

    number: int
    text: str
    old: str
    old_gives: str
    native: str
    native_gives: str


class Traps(NamedTuple):
    """A page whose lines are evaluated, and the names that their expressions use."""

    page: Path
    numbers: range
    names: Callable[[str | Path], dict[str, Any]]
    old_kinds: tuple[type, ...] = ()
    between: Callable[[], object] = int
    """Called before and after each expression."""

    @property
    def cases(self) -> list[Case]:
        """The lines of the page; every line of its table must be one."""
        lines = self.page.read_text("utf-8").splitlines()
        return [_case(line) for line in lines if re.match(r"\| \d", line)]

    def found(self, case: Case, known: dict[str, Any]) -> tuple[str, str]:
        """Return what the old and the native expression give."""
        found = []
        for expression, kinds in ((case.old, self.old_kinds), (case.native, ())):
            self.between()
            found.append(outcome(expression, known, kinds))
            self.between()
        return found[0], found[1]


def outcome(expression: str, known: dict[str, Any], kinds: tuple[type, ...]) -> str:
    """Return what an expression gives; of an error, the first of `kinds` that it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        try:
            return repr(eval(expression, dict(known)))
        except labeled.LabeledError as error:
            kind = next((k for k in kinds if isinstance(error, k)), type(error))
            return f"raises {kind.__name__}"
        except (TypeError, ValueError, KeyError, IndexError, OSError) as error:  # of NumPy, h5py
            return f"raises {type(error).__name__}"


def _case(line: str) -> Case:
    match = LINE.fullmatch(line)
    assert match, f"not a line of traps: {line}"
    number, text, old, value, error, native, other, other_error = match.groups()
    return Case(int(number), text, old, value or error, native, other or other_error)
