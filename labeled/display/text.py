"""Aligned lines of text, words for sizes, and what a file says about a source in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

ClassNames = Mapping[int, str] | Sequence[str]


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


@dataclass(frozen=True)
class ExampleInfo:
    """What a file says about a source that is lost in a plain array of a batch.

    Parameters
    ----------
    class_names : mapping
        From label to name; empty if the file has none.
    example_dims : tuple of str
        Dims of one example, if examples differ in shape.
    batch_axis : int
        The axis of its arrays that counts examples.
    """

    class_names: Mapping[int, str] = field(default_factory=dict)
    example_dims: tuple[str, ...] = ()
    batch_axis: int = 0


def class_names_of(attrs: Mapping[str, Any]) -> dict[int, str]:
    """Return the name of each class; empty if the attributes name none.

    Either a list ``class_names`` (class 0, 1, ...), or the CF pair ``flag_values`` and
    ``flag_meanings``.

    Examples
    --------
    >>> class_names_of({"class_names": ["cat", b"dog"]})
    {0: 'cat', 1: 'dog'}
    >>> class_names_of({"flag_values": np.array([2, 5]), "flag_meanings": "clear cloudy"})
    {2: 'clear', 5: 'cloudy'}
    >>> class_names_of({"units": "m"})
    {}
    """
    if "class_names" in attrs:
        return dict(
            enumerate(map(as_text, np.atleast_1d(np.asarray(attrs["class_names"], object))))
        )
    if "flag_values" in attrs and "flag_meanings" in attrs:
        values = np.atleast_1d(attrs["flag_values"]).tolist()
        return dict(zip(map(int, values), as_text(attrs["flag_meanings"]).split(), strict=False))
    return {}


def as_text(value: Any) -> str:
    """Return a text that a file holds as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
