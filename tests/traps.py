"""A table of traps: old rules beside native ones, each an expression with what it gives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent.parent / "docs"


class Case(NamedTuple):
    """One trap: what it is about, and two expressions with what they give.

    What an expression gives is the repr of its value, or ``raises`` and the kind of error.
    """

    number: int
    text: str
    old: str
    old_gives: str
    native: str
    native_gives: str


class Traps(NamedTuple):
    """A table of cases, the names that their expressions use, and the page that shows it."""

    page: Path
    head: str
    cases: list[Case]
    numbers: range
    names: Callable[[str | Path], dict[str, Any]]
    outcome: Callable[[str, dict[str, Any], tuple[type, ...]], str]
    old_kinds: tuple[type, ...]

    def found(self, case: Case, known: dict[str, Any]) -> tuple[str, str]:
        """Return what the old and the native expression give."""
        return (
            self.outcome(case.old, known, self.old_kinds),
            self.outcome(case.native, known, ()),
        )

    def text(self) -> str:
        """Return the table as a page."""
        return self.head + "".join(_line(case) for case in self.cases)

    def write(self) -> None:
        """Check every case, then write the page."""
        with tempfile.TemporaryDirectory() as folder:
            known = self.names(folder)
            for case in self.cases:
                found = self.found(case, known)
                if found != (case.old_gives, case.native_gives):
                    raise SystemExit(f"trap {case.number} gives {found}: {case}")
        self.page.parent.mkdir(exist_ok=True)
        self.page.write_text(self.text())


def _line(case: Case) -> str:
    old, native = _cell(case.old, case.old_gives), _cell(case.native, case.native_gives)
    return f"| {case.number} | {case.text} | {old} | {native} |\n"


def _cell(expression: str, gives: str) -> str:
    result = f"**{gives}**" if gives.startswith("raises") else f"`{gives}`"
    return f"`{expression}` <br>→ {result}"
