"""Pages of traps: old rules beside native ones, each an expression with what it gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
    outcome: Callable[[str, dict[str, Any], tuple[type, ...]], str]
    old_kinds: tuple[type, ...]

    @property
    def cases(self) -> list[Case]:
        """The lines of the page; every line of its table must be one."""
        lines = self.page.read_text("utf-8").splitlines()
        return [_case(line) for line in lines if re.match(r"\| \d", line)]

    def found(self, case: Case, known: dict[str, Any]) -> tuple[str, str]:
        """Return what the old and the native expression give."""
        return (
            self.outcome(case.old, known, self.old_kinds),
            self.outcome(case.native, known, ()),
        )


def _case(line: str) -> Case:
    match = LINE.fullmatch(line)
    assert match, f"not a line of traps: {line}"
    number, text, old, value, error, native, other, other_error = match.groups()
    return Case(int(number), text, old, value or error, native, other or other_error)
