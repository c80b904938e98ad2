"""What a view shows, as one value with two renderers: text for consoles, HTML for notebooks.

A :class:`Summary` holds words and numbers that are known already, so that a repr never reads
data. HTML has no scripts and no network, and takes its colours from the page. Everything is
escaped. Both leave out what would fill a screen, and say how much that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from labeled.display.text import shown, table

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
</style>"""


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
    rows: Sequence[Sequence[str]]
    title: str = ""
    most: int = 40
    headed: bool = False

    def text(self) -> list[str]:
        titled, more = bool(self.title) and not self.headed, len(self.rows) - self.most
        lines = [f"{self.title}:"] if titled else []
        if self.rows:
            lines += table([*([] if titled else [self.head]), *self.rows[: self.most]])
        return [*lines, f"  ... and {more:,} more"] if more > 0 else lines

    def html(self, *, opened: bool) -> str:
        head = "".join(f"<th>{_escaped(name)}</th>" for name in self.head)
        rows = ""
        for name, *cells in self.rows[:MAX_HTML_ROWS]:
            first = "/<wbr/>".join(map(_escaped, name.split("/")))  # may go on in the next line
            others = "".join(f"<td>{_escaped(cell)}</td>" for cell in cells)
            rows += f"<tr><td><b>{first}</b></td>{others}</tr>"
        more = len(self.rows) - MAX_HTML_ROWS
        rest = f"<div>... and {more:,} more</div>" if more > 0 else ""
        body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"
        if not self.title:
            return body
        state = " open='open'" if opened and len(self.rows) <= self.most else ""
        title = f"{_escaped(self.title)} ({len(self.rows)})"
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
        body = ""
        for number, part in enumerate((*self.parts, *self.more)):
            if isinstance(part, str):
                body += f"<div>{_escaped(part)}</div>"
            else:
                body += part.html(opened=number < len(self.parts))
        title = f"<div><b>{_escaped(self.title)}</b> {_escaped(self.about)}</div>"
        return f"{_STYLE}<div class='labeled-view'>{title}{body}</div>"


def _escaped(text: str) -> str:
    return escape(shown(text))


class Viewed:
    """Shows its summary, as text and in notebooks."""

    __slots__ = ()

    def _summary(self) -> Summary:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()
