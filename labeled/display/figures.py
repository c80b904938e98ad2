"""Pictures drawn with matplotlib: the one door to it, and what is drawn of plain values.

matplotlib is imported when a picture is asked for, and its settings are left alone. Every
function draws into the axes it is given, or into new ones, and returns them. Names from
files are drawn as they are, never as formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled._optional import extra_module
from labeled.display.text import count_words, shown

Array = npt.NDArray[Any]
Axes = Any
"""A ``matplotlib.axes.Axes``."""

PALE = 0.25
GAP = 0.12
"""Between images, as a share of the largest."""

MAX_TICKS = 30
MAX_STEPS = 60
MAX_EDGES = 240
"""More chunk borders than this would be a grey surface."""


@dataclass(frozen=True)
class WindowRead:
    """One window: places ``start .. stop`` of the epoch, and rows of the file read for it."""

    start: int
    stop: int
    runs: tuple[tuple[int, int], ...]
    """Rows wanted, half-open and ascending; some of them where there are very many."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Rows of the stored chunks that are decoded for them."""


@dataclass(frozen=True)
class Reads:
    """What the largest source reads for some windows.

    Parameters
    ----------
    source : str
    n_rows : int
        Rows of its file or files.
    chunk_rows : int
        Rows stored together; 1 where any row can be read alone.
    windows : tuple of WindowRead
    called : str
        What a window is called: "window", or "job" where rows are only read ahead.
    kept : bool
        Whether all rows are read once and kept, so that windows read nothing.
    """

    source: str
    n_rows: int
    chunk_rows: int
    windows: tuple[WindowRead, ...]
    called: str = "window"
    kept: bool = False

    @property
    def edges(self) -> range:
        """Rows at which stored chunks begin, if few enough to be seen."""
        step = self.chunk_rows
        few = step > 1 and self.n_rows <= step * MAX_EDGES
        return range(step, self.n_rows, step) if few else range(0)


def new_axes(ax: Axes | None, width: float = 6.4, height: float = 4.0) -> Axes:
    """Return `ax`, or the axes of a new figure.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    pyplot = extra_module("matplotlib.pyplot", "pictures need matplotlib", "matplotlib", "plot")
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def titled(ax: Axes, title: str, x: str = "", y: str = "") -> Axes:
    """Name the axes; returns them."""
    said = "\n".join(map(shown, title.split("\n")))
    ax.set_title(said, parse_math=False, loc="left", fontsize="medium", wrap=True)
    ax.set_xlabel(shown(x), parse_math=False)
    ax.set_ylabel(shown(y), parse_math=False)
    return ax


def name_ticks(axis: Any, places: Sequence[float], names: Sequence[str]) -> None:
    """Put names at places of an axis: every so many where there are very many."""
    step = -(-len(names) // MAX_TICKS) or 1
    axis.set_ticks(list(places)[::step], [shown(name) for name in names][::step], parse_math=False)


def draw_images(
    images: Sequence[Array], captions: Sequence[str], title: str, ax: Axes | None = None
) -> Axes:
    """Draw images in a grid, each in its own values, all on one scale of grey.

    Parameters
    ----------
    images : sequence of array (height, width) or (height, width, 3)
        Colours are uint8, or floats that are stretched together to fill the scale.
    captions : sequence of str
        Above each image; empty for none.
    """
    columns, lines = grid(len(images))
    height = max((image.shape[0] for image in images), default=1)
    width = max((image.shape[1] for image in images), default=1)
    above = height * GAP * (2.5 if any(captions) else 1)
    step_x, step_y = width * (1 + GAP), height + above
    wide, tall = columns * step_x + width * GAP, lines * step_y + height * GAP
    ax = new_axes(ax, 1.2 * columns, min(20.0, 1.2 * columns * tall / wide + 0.4))
    low, high = _extremes(images)
    for number, image in enumerate(images):
        line, column = divmod(number, columns)
        left, top = column * step_x, line * step_y
        colours = image if image.ndim == 2 else _colours(image, low, high)
        ax.imshow(
            colours,
            extent=(left, left + image.shape[1], top + image.shape[0], top),
            cmap="gray",
            vmin=low,
            vmax=high,
            interpolation="nearest",
        )
        if captions[number]:
            ax.text(
                left,
                top - height * GAP / 3,
                shown(captions[number]),
                va="bottom",
                fontsize="small",
                parse_math=False,
            )
    ax.set_xlim(-width * GAP, columns * step_x)
    ax.set_ylim(lines * step_y - above + height * GAP, -above)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return titled(ax, title)


def grid(n: int) -> tuple[int, int]:
    """Return columns and lines for `n` images: at most twice as wide as high, few places empty.

    Examples
    --------
    >>> grid(16), grid(10), grid(1), grid(0)
    ((4, 4), (5, 2), (1, 1), (1, 1))
    """
    n = max(1, n)
    widths = range(math.ceil(math.sqrt(n)), math.ceil(math.sqrt(2 * n)) + 1)
    columns = min(widths, key=lambda width: (-n % width, width))
    return columns, -(-n // columns)


def _extremes(images: Sequence[Array]) -> tuple[float, float]:
    """The least and the greatest finite value of all images; bytes have a scale of their own."""
    if images and all(image.dtype == np.uint8 and image.ndim == 3 for image in images):
        return 0.0, 255.0
    low, high = np.inf, -np.inf
    for image in images:
        values = np.asarray(image, np.float64)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low < high else (0.0, 1.0) if low > high else (low, low + 1)


def _colours(image: Array, low: float, high: float) -> Array:
    if image.dtype == np.uint8:
        return image
    return np.nan_to_num(np.clip((np.asarray(image, np.float64) - low) / (high - low), 0, 1))


def draw_lines(
    rows: Sequence[Array], names: Sequence[str], title: str, x: str, ax: Axes | None = None
) -> Axes:
    """Draw rows of numbers as lines; of several features a line each, in one colour a row."""
    ax = new_axes(ax)
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        lines = ax.plot(np.asarray(row), color=f"C{number % 10}", alpha=0.8, linewidth=1)
        if lines:
            lines[0].set_label(shown(name))
    if 1 < len(rows) <= 10:
        for text in ax.legend(loc="upper right", fontsize="small").get_texts():
            text.set_parse_math(False)
    return titled(ax, title, x)


def draw_counts(
    counts: Mapping[int, int], names: Mapping[int, str], title: str, ax: Axes | None = None
) -> Axes:
    """Draw how many rows each class has, by name where it has one; classes without rows too."""
    classes = sorted(set(counts) | set(names))
    ax = new_axes(ax, min(12.0, 2.5 + 0.4 * len(classes)))
    words = [names.get(one, str(one)) for one in classes]
    ax.bar(range(len(classes)), [counts.get(one, 0) for one in classes])
    name_ticks(ax.xaxis, range(len(classes)), words)
    if max(map(len, words), default=0) > 3:
        ax.tick_params("x", rotation=45)
    return titled(ax, title, "class", "rows")


def draw_values(values: Array, title: str, ax: Axes | None = None) -> Axes:
    """Draw a histogram of numbers; those that are not finite are counted in the title."""
    ax = new_axes(ax)
    flat = np.asarray(values, np.float64).reshape(-1)
    finite = flat[np.isfinite(flat)]
    lost = len(flat) - len(finite)
    ax.hist(finite, bins=min(60, max(5, int(np.sqrt(len(finite))))))
    return titled(ax, title + (f" ({lost:,} not finite)" if lost else ""), "value", "count")


def draw_stretches(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    notes: Mapping[str, str],
    n_rows: int,
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw stretches of rows, a line for each name with a note at its end."""
    ax = new_axes(ax, 8.0, 0.9 + 0.4 * max(1, len(lines)))
    for number, (name, stretches) in enumerate(lines.items()):
        _draw_bars(ax, number, stretches, facecolors=f"C{number % 10}")
        note = shown(notes.get(name, ""))
        ax.annotate(
            note, (1.01, number), xycoords=("axes fraction", "data"), va="center", parse_math=False
        )
    return _rows_along(ax, list(lines), n_rows, title, "row of the file")


def draw_reads(reads: Reads, title: str, ax: Axes | None = None) -> Axes:
    """Draw what windows read: rows that are wanted, over the chunks decoded for them."""
    ax = new_axes(ax, 8.0, 1.1 + 0.35 * max(1, len(reads.windows)))
    for number, window in enumerate(reads.windows):
        for stretches, alpha in ((window.chunks, PALE), (window.runs, 1.0)):
            _draw_bars(ax, number, stretches, facecolors="C0", alpha=alpha, linewidth=0)
    for edge in reads.edges:
        ax.axvline(edge, color="0.5", alpha=PALE, linewidth=0.5)
    names = [f"{reads.called} at row {window.start:,} of the epoch" for window in reads.windows]
    where = "kept in memory" if reads.kept else "in the file"
    return _rows_along(ax, names, reads.n_rows, title, f"row of {reads.source!r} {where}")


def _draw_bars(ax: Axes, line: int, stretches: Sequence[tuple[float, float]], **style: Any) -> None:
    ax.broken_barh(
        [(start, stop - start) for start, stop in stretches], (line - 0.35, 0.7), **style
    )


def _rows_along(ax: Axes, names: Sequence[str], n_rows: int, title: str, x: str) -> Axes:
    """Name the lines of a picture of rows, from the top."""
    name_ticks(ax.yaxis, range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(0, n_rows or 1)
    return titled(ax, title, x)


def draw_rate(points: Sequence[tuple[float, int, int]], title: str, ax: Axes | None = None) -> Axes:
    """Draw rows a second over time; `points` are (seconds, rows, bytes) so far, ascending.

    Single batches come in fits, so their rows are counted in equal stretches of time.
    """
    ax = new_axes(ax)
    seconds, rows, nbytes = (np.array(column, np.float64) for column in zip(*points, strict=True))
    total = max(float(seconds[-1] - seconds[0]), 1e-9)
    edges = np.linspace(seconds[0], seconds[0] + total, min(MAX_STEPS, len(points) // 4 + 1) + 1)
    ax.stairs(
        np.diff(np.interp(edges, seconds, rows)) / np.diff(edges), edges, fill=True, alpha=0.6
    )
    mean = (rows[-1] - rows[0]) / total
    speed = format_bytes(round((nbytes[-1] - nbytes[0]) / total))
    ax.axhline(mean, color="C1", linewidth=1, linestyle="--")
    ax.set_ylim(bottom=0)
    title += f": {mean:,.0f} rows/s, {speed}/s on average"
    return titled(ax, title, "seconds", "rows a second")


def draw_statistics(found: Mapping[str, Any], title: str, ax: Axes | None = None) -> Axes:
    """Draw extremes, mean and deviation, of each channel where they are kept apart."""
    columns = {
        key: np.array(
            [np.nan if value is None else value for value in _listed(found[key])], np.float64
        )
        for key in ("mean", "std", "min", "max")
    }
    n = len(columns["mean"])
    ax = new_axes(ax, min(12.0, 3.0 + 0.5 * n))
    places = np.arange(n)
    ax.vlines(places, columns["min"], columns["max"], color="0.6", linewidth=1, label="min to max")
    ax.errorbar(
        places,
        columns["mean"],
        yerr=columns["std"],
        fmt="o",
        capsize=4,
        label="mean and standard deviation",
    )
    name_ticks(ax.xaxis, places.tolist(), [str(i) for i in places] if found.get("by") else [""])
    ax.margins(x=0.2)
    ax.legend(loc="upper right", fontsize="small")
    note = f", {count_words(found['n_rows'], 'row')}"
    return titled(ax, title + note, str(found.get("by", "")), "value")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
