"""The HTML that all views share: one style sheet, tables, parts that open, strips of rows.

No scripts, no network, no fixed background: text has the colour of the page, lines and
fills are half transparent, and accents follow the theme of Jupyter, VS Code or the page, or
else what the reader's system prefers. Where a page strips styles, words and numbers are left
in reading order.

Everything is escaped but :class:`Markup`, which only this package makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from labeled.views.text import shown

Interval = tuple[float, float]
"""Half-open: where something begins, and where it ends."""


class Markup(str):
    """Text that is HTML already. Any other text is escaped, whatever it begins with."""

    __slots__ = ()


_LIGHT = "--lb-one:#2f74d0;--lb-two:#c2660c;--lb-three:#23804c;--lb-bad:#c62f2b"
_DARK = "--lb-one:#6ea8fe;--lb-two:#f0a35e;--lb-three:#5fc48d;--lb-bad:#ff8a80"
_STYLE = f"""<style>
.labeled-view{{{_LIGHT};
 --lb-line:rgba(128,128,128,.38);--lb-soft:rgba(128,128,128,.13);
 color:var(--jp-content-font-color1,var(--vscode-editor-foreground,
 var(--pst-color-text-base,currentColor)));font-family:var(--jp-ui-font-family,
 var(--vscode-font-family,system-ui,sans-serif));font-size:13px;line-height:1.5;max-width:74em;overflow-x:auto}}
@media (prefers-color-scheme:dark){{body:not([data-jp-theme-light]):not(.vscode-light)
 .labeled-view{{{_DARK}}}html[data-theme=light] body .labeled-view{{{_LIGHT}}}}}
[data-jp-theme-light=false] .labeled-view,.vscode-dark .labeled-view,
html[data-theme=dark] body .labeled-view{{{_DARK}}}
.labeled-view *{{box-sizing:border-box}}
.labeled-view table{{border-collapse:collapse;margin:.2em 0 .4em;font-size:inherit;border:none}}
.labeled-view :is(tr,th,td){{background:none!important;border:none;color:inherit}}
.labeled-view :is(th,td){{padding:.12em 1.1em .12em 0;text-align:left!important;
 vertical-align:top;white-space:nowrap}}
.labeled-view td:nth-child(2),.labeled-view td:last-child{{white-space:normal;max-width:48em;
 overflow-wrap:break-word}}
.labeled-view td:last-child{{min-width:9em}}
.labeled-view thead th{{font-weight:600;opacity:.7;border-bottom:1px solid var(--lb-line)}}
.labeled-view tbody th{{font-weight:400;opacity:.7;white-space:nowrap}}
.labeled-view :is(code,pre){{background:none!important;color:inherit;padding:0!important;margin:0;
 font-family:var(--jp-code-font-family,var(--vscode-editor-font-family,ui-monospace,monospace));
 font-size:.95em}}
.labeled-view pre{{white-space:pre-wrap}}
.labeled-view summary{{cursor:pointer;padding:.1em 0}}
.labeled-view summary:hover{{background:var(--lb-soft)}}
.labeled-view details>:not(summary){{margin-left:1.15em}}
.labeled-view .lb-head{{border-bottom:1px solid var(--lb-line);padding-bottom:.25em;
 margin-bottom:.25em}}
.labeled-view .lb-faint{{opacity:.7}}
.labeled-view .lb-bad{{color:var(--lb-bad)}}
.labeled-view .lb-row>summary{{display:grid;gap:0 .8em;list-style:none;
 grid-template-columns:.8em minmax(9.5em,1.9fr) minmax(13em,2.2fr) 9em 5.5em
 minmax(8em,1.6fr);overflow-wrap:break-word}}
.labeled-view .lb-row>summary>span{{min-width:0}}
.labeled-view .lb-row>summary::-webkit-details-marker{{display:none}}
.labeled-view .lb-row>summary::before{{content:"\\25b8";opacity:.6}}
.labeled-view .lb-row[open]>summary::before{{content:"\\25be"}}
.labeled-view .lb-strip{{display:block;width:100%;min-width:12em;height:1em;margin:.25em 0;
 background:var(--lb-soft);border-radius:2px}}
.labeled-view .lb-lines{{display:grid;grid-template-columns:max-content minmax(12em,1fr);
 gap:0 1em;align-items:center}}
.labeled-view .lb-one{{fill:var(--lb-one)}}.labeled-view .lb-two{{fill:var(--lb-two)}}
.labeled-view .lb-three{{fill:var(--lb-three)}}
.labeled-view .lb-half{{fill:var(--lb-one);fill-opacity:.3}}
.labeled-view .lb-edge{{fill:var(--lb-line)}}
.labeled-view .lb-key{{display:inline-block;width:.8em;height:.8em;border-radius:2px;
 margin:0 .35em 0 0;vertical-align:-.05em}}
.labeled-view .lb-axes{{display:flex;flex-wrap:wrap;align-items:center;gap:.3em;margin:.3em 0}}
.labeled-view .lb-axis{{border:1px solid var(--lb-line);border-radius:4px;padding:.1em .7em;
 text-align:center;border-top:3px solid var(--lb-line);min-width:3.6em}}
.labeled-view .lb-length{{display:block;opacity:.7}}
.labeled-view .lb-axis.lb-b{{border-top-color:var(--lb-one)}}
.labeled-view .lb-axis.lb-c{{border-top-color:var(--lb-two)}}
.labeled-view .lb-axis.lb-s{{border-top-color:var(--lb-three)}}
.labeled-view .lb-nest{{border-left:2px solid var(--lb-line);padding-left:.8em;margin:.2em 0}}
</style>"""


_FILLS = {
    "one": "fill='#2f74d0'",
    "two": "fill='#c2660c'",
    "three": "fill='#23804c'",
    "half": "fill='#2f74d0' fill-opacity='.3'",
    "edge": "fill='#808080' fill-opacity='.38'",
}
"""The same colours for pages that strip styles, as of notebooks that are not trusted."""


def page(title: str, *parts: str, about: str = "") -> str:
    """Wrap the parts of a view under its title; `about` is said beside it, escaped."""
    faint = f" <span class='lb-faint'>{cell(about)}</span>" if about else ""
    return (
        f"{_STYLE}<div class='labeled-view'><div class='lb-head'><b>{cell(title)}</b>{faint}"
        f"</div>{''.join(parts)}</div>"
    )


def fault(title: str, reason: str) -> str:
    """Draw what stands in the place of a view that cannot be made, and why."""
    return page(title, f"<pre class='lb-bad'>{cell(reason)}</pre>")


def cell(text: str) -> str:
    """Return text escaped, unless it is :class:`Markup`."""
    return text if isinstance(text, Markup) else escape(shown(str(text)))


def bold(text: str) -> Markup:
    """Return text in bold, escaped."""
    return Markup(f"<b>{cell(text)}</b>")


def path(name: str) -> Markup:
    """Return a name in bold, escaped, which may go on in the next line behind a slash.

    Examples
    --------
    >>> path("run/<images>")
    '<b>run/<wbr/>&lt;images&gt;</b>'
    """
    return Markup(f"<b>{'/<wbr/>'.join(map(cell, name.split('/')))}</b>")


def code(text: str) -> Markup:
    """Return text as code, escaped."""
    return Markup(f"<code>{cell(text)}</code>")


def line(text: str) -> str:
    """Draw a line of text."""
    return f"<div>{cell(text)}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Draw a table; cells are escaped unless they are :class:`Markup`.

    Examples
    --------
    >>> table(["<a>"], [["<b>", Markup("<b>c</b>")]]).partition("<tbody>")[2]
    '<tr><td>&lt;b&gt;</td><td><b>c</b></td></tr></tbody></table>'
    """
    top = "".join(f"<th>{cell(one)}</th>" for one in head)
    body = "".join("<tr>" + "".join(f"<td>{cell(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def facts(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Draw names with what they are, one to a line.

    Examples
    --------
    >>> facts({"rows": "<3"})
    '<table><tbody><tr><th>rows</th><td>&lt;3</td></tr></tbody></table>'
    """
    listed = pairs.items() if isinstance(pairs, Mapping) else pairs
    rows = "".join(f"<tr><th>{cell(k)}</th><td>{cell(v)}</td></tr>" for k, v in listed)
    return f"<table><tbody>{rows}</tbody></table>"


def details(title: str, body: str, *, opened: bool = False) -> str:
    """Draw a part that opens on a click, without scripts."""
    state = " open='open'" if opened else ""
    return f"<details{state}><summary>{cell(title)}</summary>{body}</details>"


def row(cells: Sequence[str], body: str) -> str:
    """Draw a line of a list, in columns, that opens to `body`."""
    spans = " ".join(f"<span>{cell(one)}</span>" for one in cells)
    return f"<details class='lb-row'><summary>{spans}</summary>{body}</details>"


def strip(marks: Mapping[str, Iterable[Interval]], span: float, title: str) -> Markup:
    """Draw stretches of a line of rows as a strip as wide as there is room.

    Parameters
    ----------
    marks : mapping of kind to (start, stop)
        Kinds ("one", "two", "three", "half", "edge") are colours; later ones lie on top.
    span : float
        Where the strip ends; it begins at 0.
    title : str
        Shown when pointed at, and read aloud.
    """
    scale = 1000 / (span or 1)
    drawn = "".join(
        f"<rect class='lb-{kind}' {_FILLS[kind]} x='{start * scale:.2f}' y='0' height='10' "
        f"width='{max(1.0, (stop - start) * scale):.2f}'/>"
        for kind, intervals in marks.items()
        for start, stop in intervals
    )
    return Markup(
        "<svg class='lb-strip' viewBox='0 0 1000 10' preserveAspectRatio='none' role='img' "
        f"width='100%' height='14'><title>{cell(title)}</title>{drawn}</svg>"
    )


def strips(lines: Iterable[tuple[str, Markup]]) -> str:
    """Draw strips under one another, each with its name on the left."""
    body = "".join(f"<span>{cell(name)}</span> <span>{one}</span>" for name, one in lines)
    return f"<div class='lb-lines'>{body}</div>"


def legend(kinds: Mapping[str, str]) -> str:
    """Say what the colours of strips mean: kind -> words."""
    shown = {"half": "background:var(--lb-one);opacity:.3", "edge": "background:var(--lb-line)"}
    keys = "".join(
        f"<span class='lb-key' style='{shown.get(kind, f'background:var(--lb-{kind})')}'></span>"
        f"{cell(words)} &#160; "
        for kind, words in kinds.items()
    )
    return f"<div class='lb-faint'>{keys}</div>"
