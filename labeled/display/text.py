"""What a view shows, in text for consoles and HTML for notebooks; words for sizes and sources.

A :class:`Summary` holds words and numbers that are known already, so that a repr never reads
data. HTML has no scripts and no network, and takes its colours from the page. Everything is
escaped. Both leave out what would fill a screen, and say how much that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from labeled.errors import unknown_attribute

ClassNames = Mapping[int, str] | Sequence[str]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns with two spaces before each of them."""
    rows = [list(map(shown, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("".join(f"  {cell:{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


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
        names = np.atleast_1d(np.asarray(attrs["class_names"], object))
        return dict(enumerate(map(as_text, names)))
    if "flag_values" in attrs and "flag_meanings" in attrs:
        try:
            values = [int(value) for value in np.ravel(attrs["flag_values"]).tolist()]
        except (TypeError, ValueError, OverflowError):  # some files have texts such as "0, 1, 2"
            return {}
        return dict(zip(values, as_text(attrs["flag_meanings"]).split(), strict=False))
    return {}


def as_text(value: Any) -> str:
    """Return a text that a file holds as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


# ---------------------------------------------------------------- views
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
    """Shows its summary, as text and in notebooks, and suggests what an unknown name means."""

    __slots__ = ()

    if not TYPE_CHECKING:  # so that type checkers still refuse what is not there

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute(self, name, self._names)

    def _names(self) -> Iterable[str]:
        """Return what may stand in brackets."""
        return ()

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._names())

    def _summary(self) -> Summary:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()
