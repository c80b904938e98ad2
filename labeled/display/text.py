"""Aligned lines of text, and words for sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Align columns with two spaces between them."""
    rows = [list(map(shown, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def shown(text: str) -> str:
    r"""Write what is not printable as escapes: a name of a file may be anything.

    Examples
    --------
    >>> print(shown(b"caf\xc3\xa9 \xff\x1b[1m".decode("utf-8", "surrogateescape")))
    café \udcff\x1b[1m
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text
    )


def shortened(value: object, most: int = 100) -> str:
    """Write a value on one line of bounded length.

    Examples
    --------
    >>> shortened("abc def", most=6)
    'abc...'
    """
    text = " ".join(str(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def sizes_words(dims: Sequence[str], shape: Sequence[int]) -> str:
    """Write dims with their lengths; ``*`` where examples differ in length.

    Examples
    --------
    >>> sizes_words(("batch", "height"), (1797, 8)), sizes_words(("batch", "time"), (1797,))
    ('(batch: 1,797, height: 8)', '(batch: 1,797, time: *)')
    """
    pairs = zip_longest(dims, (f"{n:,}" for n in shape), fillvalue="*")
    return "(" + ", ".join(f"{dim}: {length}" for dim, length in pairs) + ")"


def count_words(n: int, what: str) -> str:
    """Return a count of things.

    Examples
    --------
    >>> count_words(1, "row"), count_words(1200, "row"), count_words(2, "batch")
    ('1 row', '1,200 rows', '2 batches')
    """
    return f"{n:,} {what}" + ("" if n == 1 else "es" if what.endswith("ch") else "s")
