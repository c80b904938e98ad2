"""A dataset at a glance: sources x splits as text and as HTML.

Takes plain values, so that a repr never reads data and never depends on a file that
may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from dask.utils import format_bytes

_UNITS_SHOWN = 8


class Markup(str):
    """Text that is HTML already. Any other text is escaped, whatever it begins with."""

    __slots__ = ()


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

    @property
    def sizes(self) -> str:
        lengths = [f"{n:,}" for n in self.shape] + ["*"] * (len(self.dims) - len(self.shape))
        return ", ".join(f"{d}: {n}" for d, n in zip(self.dims, lengths, strict=True))

    @property
    def size(self) -> str:
        return "ragged" if self.nbytes is None else format_bytes(self.nbytes)


@dataclass(frozen=True, slots=True)
class Summary:
    """All that the repr of a dataset tells."""

    where: str
    title: str
    lines: tuple[SourceLine, ...]
    splits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    not_opened: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Align columns with two spaces between them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def summary_text(summary: Summary) -> str:
    """Draw a summary as text, one line a source."""
    lines = [f"<labeled.Dataset {summary.title} of {summary.where}>"]
    head = ("source", "dims", "dtype", "size", "stored")
    body = [
        (line.name, f"({line.sizes})", line.dtype, line.size, line.stored) for line in summary.lines
    ]
    lines += table([head, *body])
    rows = sorted({line.rows for line in summary.lines})
    lines.append("holds " + ("; ".join(rows[:3]) + ("; ..." if len(rows) > 3 else "")))
    if summary.splits:
        lines.append("splits:")
        lines += table(
            [(name, split_words(by, summary.lines)) for name, by in summary.splits.items()]
        )
    if summary.not_opened:
        lines.append("not opened:")
        lines += table(sorted(summary.not_opened.items())[:_UNITS_SHOWN])
    return "\n".join(lines)


def split_words(by_source: Mapping[str, int], lines: Sequence[SourceLine]) -> str:
    """Say how many rows a split has, and which sources it lacks."""
    counts = sorted(set(by_source.values()))
    words = (
        f"{counts[0]:,} rows"
        if len(counts) == 1
        else (", ".join(f"{name}: {n:,}" for name, n in sorted(by_source.items())))
    )
    missing = [line.name for line in lines if line.name not in by_source]
    return words + (f" (without {', '.join(missing)})" if missing else "")


_STYLE = """<style>
.labeled-view{font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:13px;
 color:var(--jp-content-font-color1,inherit);max-width:64em}
.labeled-view table{border-collapse:collapse;margin:.3em 0;font-size:inherit}
.labeled-view th,.labeled-view td{padding:.15em .7em .15em 0;text-align:left;vertical-align:top;
 background:none;border:none}
.labeled-view th{font-weight:600;opacity:.7;border-bottom:1px solid rgba(128,128,128,.4)}
.labeled-view code{background:none;color:inherit;padding:0}
.labeled-view summary{cursor:pointer;opacity:.85}
.labeled-view .labeled-faint{opacity:.65}
.labeled-view .labeled-bar{display:inline-block;height:.7em;background:rgba(66,133,244,.65);
 min-width:1px;border-radius:1px}
</style>"""


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Draw a table; cells are escaped unless they are :class:`Markup`.

    Examples
    --------
    >>> html_table(["<a>"], [["<b>", Markup("<b>c</b>")]]).partition("<tbody>")[2]
    '<tr><td>&lt;b&gt;</td><td><b>c</b></td></tr></tbody></table>'
    """
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{c if isinstance(c, Markup) else escape(c)}</td>" for c in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def html_page(title: str, *parts: str) -> str:
    """Wrap parts of a view; works in light and dark pages, without scripts or network."""
    return f"{_STYLE}<div class='labeled-view'><b>{escape(title)}</b>{''.join(parts)}</div>"


def html_details(title: str, body: str, *, opened: bool = False) -> str:
    """Draw a part that opens on a click, without scripts."""
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{body}</details>"


def summary_html(summary: Summary) -> str:
    """Draw a summary as HTML: sources, then splits, attributes and what was not opened."""
    rows = [
        (
            Markup(f"<b>{escape(line.name)}</b>"),
            f"({line.sizes})",
            Markup(f"<code>{escape(line.dtype)}</code>"),
            line.size,
            line.stored,
            Markup(f"<code>{escape(line.space)}</code>"),
        )
        for line in summary.lines
    ]
    head = ("source", "dims", "dtype", "size", "stored", "space")
    parts = [
        f"<div class='labeled-faint'>{escape(summary.title)} of {escape(summary.where)}</div>",
        html_table(head, rows),
    ]
    if summary.splits:
        parts.append(
            html_details(f"splits ({len(summary.splits)})", _splits_table(summary), opened=True)
        )
    if summary.attrs:
        listed = [(str(k), str(v)[:200]) for k, v in summary.attrs.items()]
        parts.append(
            html_details(f"attributes ({len(listed)})", html_table(("name", "value"), listed))
        )
    if summary.not_opened:
        listed = sorted(summary.not_opened.items())
        parts.append(
            html_details(f"not opened ({len(listed)})", html_table(("dataset", "why"), listed))
        )
    return html_page("labeled.Dataset", *parts)


def _splits_table(summary: Summary) -> str:
    most = max((n for by in summary.splits.values() for n in by.values()), default=1) or 1
    names = [line.name for line in summary.lines]
    rows = []
    for split, by_source in summary.splits.items():
        width = 8 * max(by_source.values(), default=0) / most
        bar = Markup(f"<span class='labeled-bar' style='width:{width:.2f}em'></span>")
        rows.append(
            (
                Markup(f"<b>{escape(split)}</b>"),
                *(f"{by_source[n]:,}" if n in by_source else "–" for n in names),
                bar,
            )
        )
    return html_table(("split", *names, ""), rows)
