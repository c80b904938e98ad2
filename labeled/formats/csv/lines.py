"""Where rows begin in text: line ends, but for those within quotes and of blank lines.

Line ends are found by whole arrays. Quotes come in pairs, so a line end counts where an
even number of them stands before it; where some quote opens no field (``5" pipe``), the
text is walked through from quote to quote instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labeled.formats.region import Array, Ints

LF, CR = 10, 13


class Lines(NamedTuple):
    """Rows of a piece of text."""

    starts: Ints
    """Where each row begins, and ..."""
    ends: Ints
    """... one past its line end (or past the text, where that lacks one)."""
    rest: int
    """Where a last row begins whose end is not there; the length of the text without one."""


def lines_of(text: Array, quote: int | None, delimiter: int, newline: int, last: bool) -> Lines:
    """Find the rows of a piece of text that begins with a row.

    Parameters
    ----------
    text : uint8 array
    quote, delimiter, newline : int
        As bytes; no quote where nothing is enclosed.
    last : bool
        Whether the end of the text ends a row, too.

    Examples
    --------
    >>> text = np.frombuffer(b'a,"b\\n"\\n\\nc,d\\ne', np.uint8)
    >>> found = lines_of(text, ord('"'), ord(","), LF, last=False)
    >>> found.starts.tolist(), found.ends.tolist(), found.rest
    ([0, 8], [7, 12], 12)
    """
    at = np.flatnonzero(text == newline)
    open_from = len(text)
    if quote is not None:
        at, open_from = _outside_quotes(text, at, quote, delimiter)
    ends = at + 1
    if last and open_from == len(text) > (int(ends[-1]) if len(ends) else 0):
        ends = np.append(ends, len(text))
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    rest = int(ends[-1]) if len(ends) else 0
    full = ~_blank(text, starts, ends, newline)
    return Lines(starts[full].astype(np.int64), ends[full].astype(np.int64), rest)


def _blank(text: Array, starts: Ints, ends: Ints, newline: int) -> Array:
    """Whether lines hold nothing but their end."""
    if not len(starts):
        return np.zeros(0, bool)
    length = ends - starts
    only_end = (length == 1) & ((text[starts] == newline) | (text[starts] == CR))
    both = (length == 2) & (text[starts] == CR) & (text[ends - 1] == LF)
    blank: Array = only_end | both
    return blank


def _outside_quotes(text: Array, at: Ints, quote: int, delimiter: int) -> tuple[Ints, int]:
    """Keep line ends that no quotes enclose; tell where a quote stays open."""
    quotes = np.flatnonzero(text == quote)
    if not len(quotes):
        return at, len(text)
    if not _pairs_open_fields(text, quotes, delimiter):
        quotes = _true_pairs(text, quotes, quote, delimiter)
    kept: Ints = at[np.searchsorted(quotes, at) % 2 == 0]
    return kept, int(quotes[-1]) if len(quotes) % 2 else len(text)


def _pairs_open_fields(text: Array, quotes: Ints, delimiter: int) -> bool:
    """Whether every first quote of a pair begins a field, or goes on with a doubled one."""
    opens = quotes[0::2]
    before = text[np.maximum(opens - 1, 0)]
    begins = (opens == 0) | (before == delimiter) | (before == LF) | (before == CR)
    doubled = np.zeros(len(opens), bool)
    closes = quotes[1::2]
    doubled[1:] = opens[1:] == closes[: len(opens) - 1] + 1
    return bool((begins | doubled).all())


def _true_pairs(text: Array, quotes: Ints, quote: int, delimiter: int) -> Ints:
    """Return quotes that open fields and those that close them, by walking through."""
    pairs: list[int] = []
    field_ends = (delimiter, LF, CR)
    doubled = -1
    for at in quotes.tolist():
        if at == doubled:
            continue
        if len(pairs) % 2 == 0:
            if at == 0 or int(text[at - 1]) in field_ends:
                pairs.append(at)
        elif at + 1 < len(text) and int(text[at + 1]) == quote:
            doubled = at + 1
        else:
            pairs.append(at)
    return np.array(pairs, np.int64)
