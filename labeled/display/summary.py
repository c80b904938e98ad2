"""What a view shows, as one value with two renderers: text for consoles, HTML for notebooks.

A :class:`Summary` holds words and numbers that are known already, so that a repr never reads
data. HTML has no scripts and no network, and takes its colours from the page. Everything is
escaped. Both leave out what would fill a screen, and say how much that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from labeled.display.text import shown, table

Interval = tuple[float, float]
"""Half-open: where something begins, and where it ends."""

MAX_HTML_ROWS = 200

_STYLE = """<style>
.labeled-view{font-size:13px;line-height:1.5;overflow-x:auto}
.labeled-view table{border-collapse:collapse;margin:.2em 0 .4em;border:none;font-size:inherit}
.labeled-view :is(tr,th,td){background:none!important;border:none;color:inherit}
.labeled-view :is(th,td){padding:.12em 1.1em .12em 0;text-align:left!important;vertical-align:top;
 max-width:48em;overflow-wrap:break-word}
.labeled-view th{border-bottom:1px solid rgba(128,128,128,.38)}
.labeled-view td:first-child{white-space:nowrap}
.labeled-view summary{cursor:pointer}
.labeled-view svg{display:block;width:100%;min-width:12em;height:1em;
 background:rgba(128,128,128,.13)}
</style>"""

_FILLS = {
    "wanted": "fill='#2f74d0'",
    "decoded": "fill='#2f74d0' fill-opacity='.3'",
    "edge": "fill='#808080' fill-opacity='.5'",
}


@dataclass(frozen=True)
class Strip:
    """A picture of stretches of rows, as wide as there is room; text leaves it out.

    Parameters
    ----------
    marks : mapping of kind to (start, stop)
        Kinds are colours: "wanted", "decoded", "edge"; later ones lie on top.
    span : float
        Where the line of rows ends; it begins at 0.
    title : str
        Read aloud, and shown when pointed at.
    """

    marks: Mapping[str, Iterable[Interval]]
    span: float
    title: str


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell is a name.

    Parameters
    ----------
    title : str
        Above the rows; in HTML they open under it. Without one the head is shown.
    most : int
        Rows shown in text.
    headed : bool
        Show the head, not the title, in text.
    """

    head: tuple[str, ...]
    rows: Sequence[Sequence[str | Strip]]
    title: str = ""
    most: int = 40
    headed: bool = False

    def text(self) -> list[str]:
        rows = [[c for c in row if not isinstance(c, Strip)] for row in self.rows[: self.most]]
        above = [] if self.headed or not self.title else [f"{self.title}:"]
        head = [] if above or not rows else [self.head[: len(rows[0])]]
        more = len(self.rows) - self.most
        return [
            *above,
            *(table([*head, *rows]) if rows else []),
            *([f"  ... and {more:,} more"] if more > 0 else []),
        ]

    def html(self, *, opened: bool) -> str:
        head = "".join(f"<th>{_cell(name)}</th>" for name in self.head)
        rows = ""
        for name, *cells in self.rows[:MAX_HTML_ROWS]:
            others = "".join(f"<td>{_cell(cell)}</td>" for cell in cells)
            rows += f"<tr><td><b>{_name(name)}</b></td>{others}</tr>"
        more = len(self.rows) - MAX_HTML_ROWS
        rest = f"<div>... and {more:,} more</div>" if more > 0 else ""
        body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"
        if not self.title:
            return body
        state = " open='open'" if opened and len(self.rows) <= self.most else ""
        title = f"{_cell(self.title)} ({len(self.rows)})"
        return f"<details{state}><summary>{title}</summary>{body}</details>"


@dataclass(frozen=True)
class Summary:
    """What a view shows.

    Parameters
    ----------
    title, about : str
        What it is, and of what.
    parts : sequence of str or Table
        Lines of text, and tables, from the top.
    more : sequence of str or Table
        What HTML and `labeled info` show besides.
    """

    title: str
    about: str = ""
    parts: Sequence[str | Table] = ()
    more: Sequence[str | Table] = ()

    def text(self, *, more: bool = False) -> str:
        """Draw it as text, without what is only shown besides unless that is asked for."""
        lines = [f"<{self.title} {self.about}>" if self.about else self.title]
        for part in [*self.parts, *(self.more if more else ())]:
            lines += [shown(part)] if isinstance(part, str) else part.text()
        return "\n".join(lines)

    def html(self) -> str:
        """Draw it as HTML."""
        listed = [*((one, True) for one in self.parts), *((one, False) for one in self.more)]
        body = "".join(
            f"<div>{_cell(part)}</div>" if isinstance(part, str) else part.html(opened=opened)
            for part, opened in listed
        )
        title = f"<div><b>{_cell(self.title)}</b> {_cell(self.about)}</div>"
        return f"{_STYLE}<div class='labeled-view'>{title}{body}</div>"


def _cell(value: str | Strip) -> str:
    if not isinstance(value, Strip):
        return escape(shown(str(value)))
    scale = 1000 / (value.span or 1)
    drawn = "".join(
        f"<rect class='{kind}' {_FILLS[kind]} x='{start * scale:.2f}' y='0' height='10' "
        f"width='{max(1.0, (stop - start) * scale):.2f}'/>"
        for kind, intervals in value.marks.items()
        for start, stop in intervals
    )
    return (
        "<svg viewBox='0 0 1000 10' preserveAspectRatio='none' role='img' width='100%' "
        f"height='14'><title>{_cell(value.title)}</title>{drawn}</svg>"
    )


def _name(name: str | Strip) -> str:
    """Return a name that may go on in the next line behind a slash."""
    return "/<wbr/>".join(map(_cell, name.split("/"))) if isinstance(name, str) else _cell(name)
