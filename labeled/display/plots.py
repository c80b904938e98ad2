"""Pictures drawn with matplotlib: the one door to it, and what is drawn of plain values.

What a batch is drawn as depends on dims and dtype alone. Images are dims that mean height and
width (and perhaps channel and depth), or axes without a name that are as long as those of
pictures, which the title says; sequences have one or two other axes; labels are one integer a
row, drawn as counts of classes; what is left is a histogram.

matplotlib is imported when a picture is asked for, and its settings are left alone. Every
function draws into the axes it is given, or into new ones, and returns them. Names from
files are drawn as they are, never as formulas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from labeled._optional import extra_module
from labeled.device import to_host
from labeled.dims import image_dims, likely_image
from labeled.display.text import ClassNames, ExampleInfo, count_words, shown
from labeled.errors import ArrayError, UnknownNameError, did_you_mean

Array = npt.NDArray[Any]
Stretches = Sequence[Sequence[float]]
# what a source is drawn as; a batch shows the first of these that it has
Kind = Literal["images", "sequences", "labels", "values"]
# a `matplotlib.axes.Axes` to draw into; None for new ones
Axes = Any

# what labels are called, where several sources hold one integer a row
LABELS = ("targets", "target", "labels", "label", "classes", "class", "y")

MAX_IMAGES, MAX_LINES, MAX_TICKS = 16, 8, 30
PALE = 0.25
GAP = 0.12  # between images, as a share of the largest

_NAMELESS = re.compile(r"_axis_\d+$")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A batch, as far as a picture needs it: the example dim comes first."""

    arrays: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]]
    count: int
    info: Mapping[str, ExampleInfo]

    def guessed(self, name: str) -> tuple[str, ...] | None:
        """What the axes of a source are most likely, where none has a name."""
        array, dims = self.arrays[name], self.dims[name][1:]
        nameless = array.dtype.kind != "O" and all(map(_NAMELESS.search, dims))
        return likely_image(array.shape[1:]) if nameless else None

    def example_dims(self, name: str) -> tuple[str, ...]:
        """Dims of one example; without those of examples whose dims nobody knows."""
        if self.arrays[name].dtype.kind == "O":
            return self.about(name).example_dims
        return self.guessed(name) or self.dims[name][1:]

    def about(self, name: str) -> ExampleInfo:
        return self.info.get(name, ExampleInfo())

    def kind(self, name: str) -> Kind | None:
        """What a source is drawn as; None for text and the like."""
        array, dims = self.arrays[name], self.example_dims(name)
        dense = array.dtype.kind != "O"
        each = [array] if dense else [np.asarray(one) for one in array[: self.count]]
        axes = {one.ndim - dense if one.dtype.kind in "biuf" else -1 for one in each}
        if axes == {len(dims)} and image_dims(dims) is not None:
            return "images"
        if dense and axes != {-1} and math.prod(array.shape[1:]) == 1:
            return "values" if array.dtype.kind == "f" else "labels"
        if axes in ({1}, {2}):
            return "sequences"
        return "values" if dense and axes != {-1} else None

    @property
    def leading(self) -> str | None:
        """The source that says most, if any can be drawn."""
        kinds = {self.kind(name): name for name in [*self.arrays][::-1]}
        return next((kinds[kind] for kind in get_args(Kind) if kind in kinds), None)

    @property
    def labels(self) -> str | None:
        """The source that says what rows are: the one of labels, or the one that is named so."""
        found = [name for name in self.arrays if self.kind(name) == "labels"]
        known = [name for name in found if self.about(name).class_names]
        named = [name for name in found if name.lower() in LABELS]
        return next((some[0] for some in (known, named, found) if len(some) == 1), None)

    def captions(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Name rows by their labels, else by where they come from."""
        if self.labels is None:
            return [f"row {row}" for row in rows]
        names = self.about(self.labels).class_names
        values = to_host(self.arrays[self.labels])[: len(rows)].reshape(-1)
        return [names.get(int(value), str(value)) for value in values]

    def examples(self, name: str, n: int) -> list[Array]:
        """Return the first examples of a source without their padding."""
        rows = [np.asarray(one) for one in to_host(self.arrays[name][:n])]
        mask = self.arrays.get(f"{name}_mask")
        if mask is None or mask.shape != self.arrays[name].shape:
            return rows
        inside = [np.nonzero(one) for one in to_host(mask[:n])]
        ends = [tuple(slice(len(np.unique(axis))) for axis in places) for places in inside]
        return [row[end] for row, end in zip(rows, ends, strict=True)]


def draw_batch(
    batch: Drawn,
    source: str | None,
    rows: Callable[[], npt.NDArray[np.int64]],
    n: int | None,
    class_names: ClassNames | None,
    ax: Axes | None,
) -> Axes:
    """Draw one source of a batch; see :meth:`labeled.Batch.plot`."""
    name = batch.leading if source is None else source
    if name is not None and name not in batch.arrays:
        raise UnknownNameError(f"no source {name!r} to plot; {did_you_mean(name, batch.arrays)}")
    kind = None if name is None else batch.kind(name)
    if name is None or kind is None:
        asked = batch.arrays if name is None else (name,)
        held = (f"{one!r} holds {_what(batch.arrays[one])}" for one in sorted(asked))
        raise ArrayError(f"nothing that was asked for can be drawn: {'; '.join(held)}")
    labels = name if kind == "labels" else batch.labels
    if class_names is not None and labels is not None:
        given = class_names.items() if isinstance(class_names, Mapping) else enumerate(class_names)
        names = {int(number): str(word) for number, word in given}
        batch = replace(batch, info={**batch.info, labels: ExampleInfo(names)})
    array, dims = batch.arrays[name], batch.example_dims(name)
    rows_words = count_words(batch.count, "row")
    if kind in ("labels", "values"):
        title, values = f"{name} of {rows_words}", to_host(array)[: batch.count]
        if kind == "values":
            return draw_values(values, title, ax)
        return draw_counts(values, batch.about(name).class_names, title, ax)
    n = min(batch.count, n or (MAX_IMAGES if kind == "images" else MAX_LINES))
    captions, examples = batch.captions(rows()[:n]), batch.examples(name, n)
    title = f"{name}: {n:,} of {rows_words}"
    if kind == "images":
        images, note = as_images(examples, dims)
        guess = batch.guessed(name)
        note += f"\naxes taken for {', '.join(guess)}" if guess else ""
        return draw_images(images, captions, title + note, ax)
    shape = array.shape[1:]
    axis = dims.index("time") if "time" in dims else int(np.argmax(shape)) if shape else 0
    lines = [np.moveaxis(one, axis, 0) for one in examples]
    return draw_lines(lines, captions, title, dims[axis] if dims else "place", ax)


def _what(array: Any) -> str:
    """Say what a source holds that cannot be drawn."""
    if array.dtype.kind != "O":
        return "text" if array.dtype.kind in "SUT" else str(array.dtype)
    text = all(isinstance(one, str | bytes) for one in array.reshape(-1))
    return "text" if text else "examples of no or many axes"


def as_images(examples: Sequence[Array], dims: tuple[str, ...]) -> tuple[list[Array], str]:
    """Return examples as images, and what of each is not shown.

    Of several channels that are no colours the first is shown, of a volume the middle.

    Examples
    --------
    >>> images, note = as_images([np.zeros((5, 4, 3))], ("channel", "height", "width"))
    >>> len(images), images[0].shape, note
    (1, (4, 3), ', channel 0 of 5')
    """
    order = image_dims(dims)
    assert order is not None
    images, note = [], ""
    for example in examples:
        image, note = example.transpose([dims.index(dim) for dim in order.values()]), ""
        for role in list(order)[: list(order).index("height")]:
            middle = len(image) // 2
            note += f", {order[role]} {middle} of {len(image)}"
            image = image[middle]
        if "channel" in order and image.shape[-1] != 3:
            n = image.shape[-1]
            note += f", {order['channel']} 0 of {n}" if n > 1 else ""
            image = image[..., 0]
        images.append(image.astype(np.uint8) if image.dtype == np.bool_ else image)
    return images, note


def new_axes(ax: Axes, width: float = 6.4, height: float = 4.0) -> Axes:
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


def name_ticks(axis: Any, names: Sequence[str]) -> None:
    """Put names at 0, 1, ... of an axis: every so many where there are very many."""
    step = -(-len(names) // MAX_TICKS) or 1
    axis.set_ticks(range(0, len(names), step), list(map(shown, names))[::step], parse_math=False)


def draw_images(images: Sequence[Array], captions: Sequence[str], title: str, ax: Axes) -> Axes:
    """Draw images in a grid, each in its own values, all on one scale.

    Parameters
    ----------
    images : sequence of array (height, width) or (height, width, 3)
        Colours are uint8, or numbers that are stretched together to fill the scale.
    captions : sequence of str
        Above each image.
    """
    n = max(1, len(images))  # at most twice as wide as high, few places empty
    widths = range(math.ceil(math.sqrt(n)), math.ceil(math.sqrt(2 * n)) + 1)
    columns = min(widths, key=lambda width: (-n % width, width))
    height = max((len(image) for image in images), default=1)
    width = max((image.shape[1] for image in images), default=1)
    above = 2.5 * GAP * height
    step_x, step_y = width * (1 + GAP), height + above
    wide, tall = columns * step_x + width * GAP, -(-n // columns) * step_y + height * GAP
    ax = new_axes(ax, 1.2 * columns, min(20.0, 1.2 * columns * tall / wide + 0.4))
    values = np.concatenate([np.zeros(0), *(np.ravel(image).astype(float) for image in images)])
    low, high = finite_range(values)
    high = high if high > low else low + 1
    for number, (image, caption) in enumerate(zip(images, captions, strict=True)):
        line, column = divmod(number, columns)
        left, top = column * step_x, line * step_y
        if image.ndim == 3 and image.dtype != np.uint8:
            image = np.nan_to_num(np.clip((image.astype(float) - low) / (high - low), 0, 1))
        extent = (left, left + image.shape[1], top + len(image), top)
        ax.imshow(image, "gray", extent=extent, vmin=low, vmax=high, interpolation="nearest")
        place, small = (left, top - height * GAP / 3), {"va": "bottom", "fontsize": "small"}
        ax.text(*place, shown(caption), parse_math=False, **small)
    ax.set_xlim(-width * GAP, columns * step_x)
    ax.set_ylim(tall - above, -above)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return titled(ax, title)


def finite_range(values: Array) -> tuple[float, float]:
    """Return the least and the largest of some numbers, but for those that are not finite.

    Examples
    --------
    >>> finite_range(np.array([3.0, np.inf, -1.0, np.nan])), finite_range(np.array([np.nan]))
    ((-1.0, 3.0), (0.0, 0.0))
    """
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def draw_lines(rows: Sequence[Array], names: Sequence[str], title: str, x: str, ax: Axes) -> Axes:
    """Draw rows of numbers as lines; of several features a line each, in one colour a row."""
    ax = new_axes(ax)
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        lines = ax.plot(row, color=f"C{number % 10}", alpha=0.8, linewidth=1)
        for first in lines[:1]:
            first.set_label(shown(name))
    if 1 < len(rows) <= 10:
        for text in ax.legend(loc="upper right", fontsize="small").get_texts():
            text.set_parse_math(False)
    return titled(ax, title, x)


def draw_counts(labels: Array, names: Mapping[int, str], title: str, ax: Axes) -> Axes:
    """Draw how many rows each class has, by name where it has one; classes without rows too."""
    values, found = np.unique(labels, return_counts=True)
    counts = dict.fromkeys(names, 0) | dict(zip(values.astype(int).tolist(), found, strict=True))
    classes = sorted(counts)
    words = [names.get(one, str(one)) for one in classes]
    ax = new_axes(ax, min(12.0, 2.5 + 0.4 * len(classes)))
    ax.bar(range(len(classes)), [counts[one] for one in classes])
    name_ticks(ax.xaxis, words)
    if max(map(len, words), default=0) > 3:
        ax.tick_params("x", rotation=45)
    return titled(ax, title, "class", "rows")


def draw_values(values: Array, title: str, ax: Axes) -> Axes:
    """Draw a histogram of numbers; those that are not finite are counted in the title."""
    ax = new_axes(ax)
    flat = np.asarray(values, np.float64).reshape(-1)
    finite = flat[np.isfinite(flat)]
    lost = len(flat) - len(finite)
    ax.hist(finite, bins=min(60, max(5, int(np.sqrt(len(finite))))))
    return titled(ax, title + (f" ({lost:,} not finite)" if lost else ""), "value", "count")


@dataclass(frozen=True)
class RowLines:
    """Where rows lie, line by line: those of splits, or what windows read.

    Parameters
    ----------
    lines : mapping of str to sequence of stretches
        Half-open, ascending; those in front are pale, the last are the rows meant.
    n_rows : int
        Rows there are.
    x : str
        What a row is called.
    chunk_rows : int
        Rows stored together; 1 where any row can be read alone.
    notes : sequence of str
        What stands at the end of each line.
    """

    lines: Mapping[str, Sequence[Stretches]]
    n_rows: int
    x: str
    chunk_rows: int = 1
    notes: Sequence[str] = ()


def draw_rows(rows: RowLines, title: str, ax: Axes) -> Axes:
    """Draw where rows lie, a line for each name."""
    ax = new_axes(ax, 8.0, 1.0 + 0.4 * max(1, len(rows.lines)))
    for number, layers in enumerate(rows.lines.values()):
        style: dict[str, Any] = {"facecolors": f"C{number % 10}", "linewidth": 0}
        for stretches in layers:
            bars = [(start, stop - start) for start, stop in stretches]
            alpha = 1.0 if stretches is layers[-1] else PALE
            ax.broken_barh(bars, (number - 0.35, 0.7), alpha=alpha, **style)
    for number, note in enumerate(rows.notes):
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center"}
        ax.annotate(shown(note), (1.01, number), parse_math=False, **place)
    step = rows.chunk_rows
    if step > 1 and rows.n_rows <= step * 240:  # more borders would be a grey surface
        for edge in range(step, rows.n_rows, step):
            ax.axvline(edge, color="0.5", alpha=PALE, linewidth=0.5)
    name_ticks(ax.yaxis, list(rows.lines))
    ax.set_ylim(len(rows.lines) - 0.4, -0.6)
    ax.set_xlim(0, rows.n_rows or 1)
    return titled(ax, title, rows.x)
