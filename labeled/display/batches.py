"""The picture of a batch: what it is drawn as depends on dims and dtype alone.

Images are dims that mean height and width (and perhaps channel and depth), or axes without a
name that are as long as those of pictures, which the title says; sequences have one or two
other axes; labels are one integer a row, drawn as counts of classes; what is left is a
histogram.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled.device import to_host
from labeled.dims import image_dims, likely_image
from labeled.display.classes import ClassNames, ExampleInfo, as_text
from labeled.display.figures import Axes, draw_counts, draw_images, draw_lines, draw_values
from labeled.display.text import count_words
from labeled.errors import ArrayError, UnknownNameError, did_you_mean

Array = npt.NDArray[Any]
Kind = Literal["images", "sequences", "labels", "values"]

LABELS = ("targets", "target", "labels", "label", "classes", "class", "y")
"""What labels are called, where several sources hold one integer a row."""

_NAMELESS = re.compile(r"_axis_\d+$")
_SHOWN = 16
_LETTERS = 16
_LINES = 8


@dataclass(frozen=True, eq=False)
class Drawn:
    """A batch, as far as a picture needs it."""

    arrays: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]]
    count: int
    info: Mapping[str, ExampleInfo]

    def example_dims(self, name: str) -> tuple[str, ...]:
        """Dims of one example; without those of examples whose dims nobody knows."""
        if self.arrays[name].dtype.kind == "O":
            return self.info.get(name, ExampleInfo()).example_dims
        return self.guessed(name) or self.dims[name][1:]

    def guessed(self, name: str) -> tuple[str, ...] | None:
        """What the axes of a source are most likely, where none has a name."""
        array, dims = self.arrays[name], self.dims[name][1:]
        nameless = array.dtype.kind != "O" and all(map(_NAMELESS.search, dims))
        return likely_image(array.shape[1:]) if nameless else None

    def kind(self, name: str) -> Kind | None:
        """What a source is drawn as; None for text and the like."""
        array, dims = self.arrays[name], self.example_dims(name)
        if array.dtype.kind == "O":
            return _object_kind(array[: self.count], dims)
        if array.dtype.kind not in "biuf":
            return None
        if image_dims(dims) is not None:
            return "images"
        if int(np.prod(array.shape[1:])) == 1:
            return "values" if array.dtype.kind == "f" else "labels"
        return "sequences" if len(dims) in (1, 2) else "values"

    @property
    def leading(self) -> str:
        """The source that says most."""
        kinds = {name: self.kind(name) for name in self.arrays}
        for wanted in ("images", "sequences", "labels", "values"):
            for name, kind in kinds.items():
                if kind == wanted:
                    return name
        held = (f"{name!r} holds {_what(array)}" for name, array in sorted(self.arrays.items()))
        raise ArrayError(f"nothing in this batch can be drawn: {'; '.join(held)}")

    @property
    def labels(self) -> str | None:
        """The source that says what rows are: the one of labels, or the one that is named so."""
        found = [name for name in self.arrays if self.kind(name) == "labels"]
        known = [name for name in found if self.info.get(name, ExampleInfo()).class_names]
        named = [name for name in found if name.lower() in LABELS]
        return next((some[0] for some in (known, named, found) if len(some) == 1), None)

    def captions(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Name rows by their labels, else by their one text, else by where they come from."""
        labels = self.labels
        if labels is None:
            texts = [array for array in self.arrays.values() if _is_text(array)]
            if len(texts) == 1:
                return [as_text(value)[:_LETTERS] for value in texts[0][: len(rows)].reshape(-1)]
            return [f"row {row}" for row in rows]
        values = to_host(self.arrays[labels])[: len(rows)].reshape(-1)
        names = self.info.get(labels, ExampleInfo()).class_names
        return [names.get(int(value), str(value)) for value in values]

    def shown(self, name: str, n: int) -> tuple[list[Array], str]:
        """Return the first images of a source, without padding, and what is not shown of them."""
        dims, array = self.example_dims(name), to_host(self.arrays[name][:n])
        if array.dtype.kind == "O":
            images = [as_images(np.asarray(one)[None], dims) for one in array]
            return [image for some, _ in images for image in some], images[0][1] if images else ""
        found, note = as_images(array, dims)
        mask = self.arrays.get(f"{name}_mask")
        if mask is None or mask.shape != self.arrays[name].shape:
            return found, note
        inside, _ = as_images(to_host(mask[:n]), dims)
        return [_cropped(*pair) for pair in zip(found, inside, strict=True)], note

    def lines(self, name: str, n: int) -> tuple[list[Array], str]:
        """Return the first sequences, their steps first and without padding; and what steps are."""
        dims = self.example_dims(name)
        shape = self.arrays[name].shape[1:]
        axis = dims.index("time") if "time" in dims else int(np.argmax(shape)) if shape else 0
        rows = [np.moveaxis(one, axis, 0) for one in to_host(self.arrays[name][:n])]
        mask = self.arrays.get(f"{name}_mask")
        if mask is not None and mask.shape == self.arrays[name].shape:
            inside = [np.moveaxis(one, axis, 0) for one in to_host(mask[:n])]
            ends = [len(np.unique(np.nonzero(one)[0])) for one in inside]
            rows = [row[:end] for row, end in zip(rows, ends, strict=True)]
        return rows, dims[axis] if dims else "place"


def _what(array: Any) -> str:
    """Say what a source holds that cannot be drawn."""
    if array.dtype.kind == "c":
        return "complex numbers; draw their absolute values with pipeline={'x': abs}"
    if array.dtype.kind in "mM":
        return "times"
    if array.dtype.kind == "O" and not _is_text(array):
        return "examples of many axes; ask for them with ragged='pad'"
    return "text"


def _is_text(array: Any) -> bool:
    """Say whether rows are a text each."""
    if array.shape[1:] not in ((), (1,)):
        return False
    if array.dtype.kind == "O":
        return all(isinstance(one, (str, bytes)) for one in array.reshape(-1))
    return array.dtype.kind in "SUT"


def _object_kind(examples: Array, dims: tuple[str, ...]) -> Kind | None:
    axes = {getattr(one, "ndim", 0) for one in examples}
    numeric = all(getattr(one, "dtype", np.dtype("O")).kind in "biuf" for one in examples)
    if not numeric or len(axes) != 1:
        return None
    if axes == {len(dims)} and image_dims(dims) is not None:
        return "images"
    return "sequences" if axes <= {1, 2} else None


def _cropped(image: Array, inside: Array) -> Array:
    """Cut off what only pads an example; it lies in the first corner."""
    height, width = (len(np.unique(places)) for places in np.nonzero(inside)[:2])
    return image[:height, :width]


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
    if name not in batch.arrays:
        raise UnknownNameError(f"no source {name!r} to plot; {did_you_mean(name, batch.arrays)}")
    kind = batch.kind(name)
    if kind is None:
        raise ArrayError(
            f"source {name!r} ({batch.arrays[name].dtype}) has no picture, for it holds "
            f"{_what(batch.arrays[name])}"
        )
    names = None if class_names is None else as_names(class_names)
    if kind == "labels":
        own = batch.info.get(name, ExampleInfo()).class_names if names is None else names
        values, counts = np.unique(_real(batch, name), return_counts=True)
        found = dict(zip(values.astype(int).tolist(), counts.tolist(), strict=True))
        return draw_counts(found, own, f"{name} of {count_words(batch.count, 'row')}", ax)
    if kind == "values":
        title = f"{name} of {count_words(batch.count, 'row')}"
        return draw_values(_real(batch, name), title, ax)
    n = min(batch.count, n or (_SHOWN if kind == "images" else _LINES))
    if names is not None and batch.labels is not None:
        batch = replace(batch, info={**batch.info, batch.labels: ExampleInfo(names)})
    captions = batch.captions(rows()[:n])
    title = f"{name}: {n:,} of {count_words(batch.count, 'row')}"
    if kind == "images":
        images, note = batch.shown(name, n)
        guess = batch.guessed(name)
        note += f"\naxes taken for {', '.join(guess)}" if guess else ""
        return draw_images(images, captions, title + note, ax)
    lines, along = batch.lines(name, n)
    return draw_lines(lines, captions, title, along, ax)


def _real(batch: Drawn, name: str) -> Array:
    real: Array = to_host(batch.arrays[name])[: batch.count]
    return real


def as_names(names: ClassNames) -> dict[int, str]:
    """Return class names by class, given as a list in order or as a mapping.

    Examples
    --------
    >>> as_names(["cat", "dog"])
    {0: 'cat', 1: 'dog'}
    """
    pairs = names.items() if isinstance(names, Mapping) else enumerate(names)
    return {int(number): str(name) for number, name in pairs}


def as_images(array: Array, dims: tuple[str, ...]) -> tuple[list[Array], str]:
    """Return the images of an array, and what of each is not shown.

    Of several channels that are no colours the first is shown, of a volume the middle.

    Parameters
    ----------
    array : array, lengths ``(n, *dims)``
    dims : tuple of str
        Of one image.

    Examples
    --------
    >>> images, note = as_images(np.zeros((2, 5, 4, 3)), ("channel", "height", "width"))
    >>> len(images), images[0].shape, note
    (2, (4, 3), ', channel 0 of 5')
    """
    order = image_dims(dims)
    assert order is not None
    note = ""
    moved = array.transpose(0, *(1 + dims.index(dim) for dim in order.values()))
    for role in list(order)[: list(order).index("height")]:
        middle = moved.shape[1] // 2
        note += f", {order[role]} {middle} of {moved.shape[1]}"
        moved = moved[:, middle]
    if "channel" in order:
        n = moved.shape[-1]
        note += f", {order['channel']} 0 of {n}" if n not in (1, 3) else ""
        moved = moved if n == 3 else moved[..., 0]
    if moved.dtype == np.bool_:
        moved = moved.astype(np.uint8)
    return list(moved), note
