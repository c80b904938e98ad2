"""A dataset at a glance: sources and splits, as text and as HTML.

Takes plain values, so that a repr never reads data and never depends on a file that
may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask.utils import format_bytes

from labeled.views import html
from labeled.views.html import Interval, Markup
from labeled.views.text import count_words, sizes_words, table

NO_SOURCES = "no sources: it holds no array whose first axis could count examples"

_LISTED = 8
_LINES = 40
_ROWS = 200
_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One source, in words."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    nbytes: int | None
    """None where only reading would tell."""
    stored: str
    rows: str
    space: str
    more: Mapping[str, str] = field(default_factory=dict)
    """What is told of it only when asked: chunks, codec, file dtype, attributes."""

    @property
    def sizes(self) -> str:
        return sizes_words(self.dims, self.shape)

    @property
    def size(self) -> str:
        if self.nbytes is None:
            return "ragged" if len(self.shape) < len(self.dims) else "?"
        return format_bytes(self.nbytes)


@dataclass(frozen=True, slots=True)
class SplitLine:
    """One split: how many rows it has of each source, and where they lie in the file."""

    name: str
    rows: Mapping[str, int]
    lies: tuple[Interval, ...] = ()
    span: int = 0
    """Rows of the file, for the picture."""


VariableLine = tuple[str, str, str]
"""Name, dims and dtype of what comes along with sources."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All that the repr of a dataset tells."""

    where: str
    title: str
    lines: tuple[SourceLine, ...]
    splits: tuple[SplitLine, ...] = ()
    variables: tuple[VariableLine, ...] = ()
    not_opened: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> str:
        """Rows, sources and bytes in one line."""
        if not self.lines:
            return NO_SOURCES
        rows = sorted({line.shape[0] for line in self.lines if line.shape})
        n_rows = count_words(rows[0], "row") if len(rows) == 1 else "rows differ by source"
        sized = [line.nbytes for line in self.lines if line.nbytes is not None]
        more = ", others not counted" if sized and len(sized) < len(self.lines) else ""
        size = f", {format_bytes(sum(sized))}" if sized else ""
        return f"{n_rows}, {count_words(len(self.lines), 'source')}{size}{more}"


def summary_text(summary: Summary) -> str:
    """Draw a summary as text, one line a source."""
    lines = [f"<labeled.Dataset {summary.title} of {summary.where}>"]
    head = ("source", "dims", "dtype", "size", "stored")
    body = [(line.name, line.sizes, line.dtype, line.size, line.stored) for line in summary.lines]
    if not summary.lines:
        lines.append(NO_SOURCES)
    else:
        lines += [*table([head, *body[:_LINES]]), *_left_out(body, _LINES)]
        lines.append(f"holds {_alike({line.name: line.rows for line in summary.lines})}")
    if summary.splits and summary.lines:
        lines.append("splits:")
        told = [(one.name, split_words(one.rows, summary.lines)) for one in summary.splits[:_LINES]]
        lines += [*table(told), *_left_out(summary.splits, _LINES)]
    if summary.variables:
        lines.append("coordinates and variables:")
        lines += [*table(summary.variables[:_LISTED]), *_left_out(summary.variables, _LISTED)]
    if summary.not_opened:
        lines.append("not opened:")
        listed = sorted(summary.not_opened.items())
        lines += [*table(listed[:_LISTED]), *_left_out(listed, _LISTED)]
    return "\n".join(lines)


def _left_out(things: Sequence[Any], shown: int) -> list[str]:
    return [f"  ... and {len(things) - shown:,} more"] if len(things) > shown else []


def _alike(told: Mapping[str, str]) -> str:
    """Say something of sources: once where it holds for all, else by those it holds for.

    Examples
    --------
    >>> _alike({"x": "60 rows", "y": "60 rows", "z": "7 rows"})
    '60 rows (2 sources), 7 rows (z)'
    """
    names: dict[str, list[str]] = {}
    for name, words in told.items():
        names.setdefault(words, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    few = [
        f"{words} ({alike[0] if len(alike) == 1 else count_words(len(alike), 'source')})"
        for words, alike in list(names.items())[:_LISTED]
    ]
    return ", ".join([*few, *(["..."] if len(names) > _LISTED else [])])


def split_words(by_source: Mapping[str, int], lines: Sequence[SourceLine]) -> str:
    """Say how many rows a split has, and which sources it lacks."""
    words = _alike({name: count_words(n, "row") for name, n in sorted(by_source.items())})
    missing = [line.name for line in lines if line.name not in by_source]
    if not missing:
        return words
    more = f" and {len(missing) - _LISTED:,} more" if len(missing) > _LISTED else ""
    return f"{words} (without {', '.join(missing[:_LISTED])}{more})"


def summary_html(summary: Summary) -> str:
    """Draw a summary as HTML: sources that open, splits, attributes, what was not opened."""
    parts = [html.line(Markup(f"<span class='lb-faint'>{html.cell(summary.counts)}</span>"))]
    if summary.lines:
        rows = "".join([*map(_source_row, summary.lines[:_ROWS]), _rest(summary.lines)])
        few = len(summary.lines) <= _LINES
        parts.append(html.details(f"sources ({len(summary.lines)})", rows, opened=few))
    if summary.splits and summary.lines:
        title = f"splits ({len(summary.splits)})"
        few = len(summary.splits) <= _LINES
        parts.append(html.details(title, _splits_table(summary), opened=few))
    if summary.variables:
        listed = summary.variables
        told = [(html.path(name), dims, html.code(kind)) for name, dims, kind in listed[:_ROWS]]
        body = html.table(("name", "dims", "dtype"), told) + _rest(listed)
        parts.append(html.details(f"coordinates and variables ({len(listed)})", body))
    if summary.attrs:
        attrs = attribute_words(summary.attrs)
        parts.append(html.details(f"attributes ({len(attrs)})", html.facts(attrs)))
    if summary.not_opened:
        unread = sorted(summary.not_opened.items())
        body = html.table(("dataset", "why"), unread[:_ROWS]) + _rest(unread)
        parts.append(html.details(f"not opened ({len(unread)})", body))
    return html.page("labeled.Dataset", *parts, about=f"{summary.title} of {summary.where}")


def _rest(things: Sequence[Any]) -> str:
    """Say how many things a page leaves out: all of them would take megabytes in a notebook."""
    more = len(things) - _ROWS
    return html.line(f"... and {more:,} more") if more > 0 else ""


def attribute_words(attrs: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes as text, long ones cut."""
    words = {}
    for name, value in attrs.items():
        text = str(value)
        words[str(name)] = text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 3] + "..."
    return words


def _source_row(line: SourceLine) -> str:
    cells = (html.path(line.name), line.sizes, html.code(line.dtype), line.size, line.stored)
    told = {"space": html.code(line.space), "rows": line.rows, **line.more}
    return html.row(cells, html.facts(told))


def _splits_table(summary: Summary) -> str:
    rows = [
        (
            html.bold(split.name),
            split_words(split.rows, summary.lines),
            html.strip(
                {"one": split.lies}, split.span, f"where the rows of {split.name!r} lie in the file"
            ),
        )
        for split in summary.splits
    ]
    return html.table(("split", "rows", "where they lie in the file"), rows)
