"""How many batches of how many rows: the three rules of sizes that samplers know.

Given the rows there are and what was asked for (rows of a batch, a number of batches, or
both), a rule says what that makes, or why it is impossible. No rows are named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from labeled import _validation
from labeled.errors import LoaderError

MOST = 1 << 62
"""More rows than any file has; larger numbers do not fit where they are counted."""

Rule = Literal["short last", "even", "drawn rows", "drawn slices"]


@dataclass(frozen=True)
class Cut:
    """Batches of one size; the last of them may hold fewer rows.

    Attributes
    ----------
    n_rows : int
        Rows there are to choose from.
    batch_rows : int
        Rows of a whole batch.
    n_batches : int
        Batches of an epoch.
    """

    n_rows: int
    batch_rows: int
    n_batches: int

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the half-open stretch that is batch `number` of the rows in order."""
        start = number * self.batch_rows
        return start, min(start + self.batch_rows, self.n_rows)


def cut(rule: Rule, n_rows: int, batch_rows: int | None, n_batches: int | None) -> Cut:
    """Work out the batches of an epoch.

    ================ ====================== ===========================================
    rule             one size given         both given
    ================ ====================== ===========================================
    ``short last``   ``ceil(rows / size)``  the first `n_batches` of them
    ``even``         ``floor(rows / size)`` the first `n_batches` of the full ones
    ``drawn rows``   an error               that many of exactly that many rows
    ``drawn slices`` an error               the same; a batch holds at most all rows
    ================ ====================== ===========================================

    Raises
    ------
    LoaderError
        If a size is missing, not a whole number above zero, or cannot be reached.

    Examples
    --------
    >>> cut("short last", 10, 3, None), cut("even", 10, None, 3).batch_rows
    (Cut(n_rows=10, batch_rows=3, n_batches=4), 3)
    >>> cut("short last", 10, 3, 5)
    Traceback (most recent call last):
    labeled.errors.LoaderError: 5 batches of 3 rows cannot be made of 10 rows, only 4; ask for fewer
    """
    for name, value in (("batch_rows", batch_rows), ("n_batches", n_batches)):
        if value is not None:
            whole(name, value, least=1)
    if rule in ("drawn rows", "drawn slices"):
        return _drawn(rule, n_rows, batch_rows, n_batches)
    if batch_rows is None:
        batch_rows = _rows_of_each(rule, n_rows, n_batches)
    there_are = n_rows // batch_rows if rule == "even" else -(-n_rows // batch_rows)
    if n_batches is not None and n_batches > there_are:
        full = "full " if rule == "even" else ""
        raise LoaderError(
            f"{n_batches} {full}batches of {batch_rows} rows cannot be made of {n_rows} rows, "
            f"only {there_are}; ask for fewer"
        )
    return Cut(n_rows, batch_rows, there_are if n_batches is None else n_batches)


def _rows_of_each(rule: Rule, n_rows: int, n_batches: int | None) -> int:
    if n_batches is None:
        raise LoaderError("give batch_rows, n_batches or both: neither was given")
    rows = n_rows // n_batches if rule == "even" else -(-n_rows // n_batches)
    if rows == 0:
        raise LoaderError(f"{n_rows} rows are too few for {n_batches} batches")
    return rows


def _drawn(rule: Rule, n_rows: int, batch_rows: int | None, n_batches: int | None) -> Cut:
    if batch_rows is None or n_batches is None:
        raise LoaderError(
            f"batches drawn at random need both batch_rows and n_batches, found "
            f"batch_rows={batch_rows}, n_batches={n_batches}"
        )
    if n_rows < (batch_rows if rule == "drawn slices" else 1):
        raise LoaderError(f"batches of {batch_rows} rows cannot be drawn from {n_rows} rows")
    return Cut(n_rows, batch_rows, n_batches)


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return a number of rows, batches or epochs; LoaderError naming it otherwise."""
    return _validation.whole(name, value, least=least, most=MOST, error=LoaderError)
