"""The picture of a space: its axes in the order of memory, nested as composites are."""

from __future__ import annotations

from dataclasses import dataclass

from labeled.views import html

_KINDS = {"b": "b", "batch": "b", "time": "b", "c": "c", "channel": "c"}


@dataclass(frozen=True)
class SpaceBox:
    """What is drawn of a space.

    Parameters
    ----------
    title : str
        The kind of space.
    axes : tuple of (name, length)
        From the slowest to the fastest; None for a length that is the batch's own.
    about : str
        What is said of it besides: dtype, numbers a row.
    parts : tuple of SpaceBox
        Of a composite.
    """

    title: str
    axes: tuple[tuple[str | int, int | None], ...] = ()
    about: str = ""
    parts: tuple[SpaceBox, ...] = ()


def space_html(box: SpaceBox) -> str:
    """Draw a space as a view of its own."""
    return html.page(box.title, _inside(box), about=box.about)


def _inside(box: SpaceBox) -> str:
    axes = "".join(_axis(name, length) for name, length in box.axes)
    body = ""
    if axes:
        body = (
            f"<div class='lb-axes'><span class='lb-faint'>slowest</span>{axes}"
            " <span class='lb-faint'>fastest</span></div>"
        )
    return body + "".join(
        f"<div class='lb-nest'><div>{html.cell(f'[{i}]')} {html.bold(part.title)} "
        f"<span class='lb-faint'>{html.cell(part.about)}</span></div>{_inside(part)}</div>"
        for i, part in enumerate(box.parts)
    )


def _axis(name: str | int, length: int | None) -> str:
    kind = "s" if isinstance(name, int) else _KINDS.get(name, "")
    shown = "n" if length is None else f"{length:,}"
    return (
        f" <span class='lb-axis lb-{kind}'><code>{html.cell(repr(name))}</code> "
        f"<span class='lb-length'>{shown}</span></span>"
    )
