"""The picture of a batch: what it is drawn as depends on dims and dtype alone.

Images are dims that mean height and width (and perhaps channel and depth); sequences have one
or two other axes; labels are one integer a row, drawn as counts of classes; what is left is a
histogram.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled.device import to_host
from labeled.dims import image_dims
from labeled.errors import ArrayError, UnknownNameError, did_you_mean
from labeled.views.figures import Axes, draw_counts, draw_images, draw_lines, draw_values
from labeled.views.text import count_words

Array = npt.NDArray[Any]
Kind = Literal["images", "sequences", "labels", "values"]
ClassNames = Mapping[int, str] | Sequence[str]

_SHOWN = 16
_LINES = 8


@dataclass(frozen=True, eq=False)
class Drawn:
    """A batch, as far as a picture needs it: arrays and dims by source, names of classes."""

    arrays: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]]
    count: int
    class_names: Mapping[str, Mapping[int, str]]

    def kind(self, name: str) -> Kind | None:
        """What a source is drawn as; None for text and the like."""
        array, dims = self.arrays[name], self.dims[name]
        if array.dtype.kind == "O":
            return _object_kind(array[: self.count])
        if array.dtype.kind not in "biuf":
            return None
        if image_dims(dims[1:]) is not None:
            return "images"
        if int(np.prod(array.shape[1:])) == 1:
            return "values" if array.dtype.kind == "f" else "labels"
        return "sequences" if len(dims) in (2, 3) else "values"

    @property
    def leading(self) -> str:
        """The source that says most."""
        kinds = {name: self.kind(name) for name in self.arrays}
        for wanted in ("images", "sequences", "labels", "values"):
            for name, kind in kinds.items():
                if kind == wanted:
                    return name
        raise ArrayError(f"nothing in this batch can be drawn: {sorted(self.arrays)} hold text")

    def captions(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Name rows by the one source of labels there is, else by where they come from."""
        labels = [name for name in self.arrays if self.kind(name) == "labels"]
        if len(labels) != 1:
            return [f"row {row}" for row in rows]
        values = to_host(self.arrays[labels[0]])[: len(rows)].reshape(-1)
        names = self.class_names.get(labels[0], {})
        return [names.get(int(value), str(value)) for value in values]


def _object_kind(examples: Array) -> Kind | None:
    axes = {getattr(one, "ndim", 0) for one in examples}
    numeric = all(getattr(one, "dtype", np.dtype("O")).kind in "biuf" for one in examples)
    if not numeric or not axes <= {1, 2}:
        return None
    return "images" if axes == {2} else "sequences"


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
            f"source {name!r} ({batch.arrays[name].dtype}) has no picture: it holds text, or "
            "examples of many axes; ask for such examples with ragged='pad'"
        )
    names = None if class_names is None else as_names(class_names)
    if kind == "labels":
        own = batch.class_names.get(name, {}) if names is None else names
        values, counts = np.unique(_real(batch, name), return_counts=True)
        found = dict(zip(values.astype(int).tolist(), counts.tolist(), strict=True))
        return draw_counts(found, own, f"{name} of {count_words(batch.count, 'row')}", ax)
    if kind == "values":
        title = f"{name} of {count_words(batch.count, 'row')}"
        return draw_values(_real(batch, name), title, ax)
    n = min(batch.count, n or (_SHOWN if kind == "images" else _LINES))
    if names is not None:
        labelled = {one: names for one in batch.arrays if batch.kind(one) == "labels"}
        batch = Drawn(batch.arrays, batch.dims, batch.count, {**batch.class_names, **labelled})
    captions = batch.captions(rows()[:n])
    title = f"{name}: {n:,} of {count_words(batch.count, 'row')}"
    array = to_host(batch.arrays[name][:n])
    if kind == "images":
        images, note = as_images(array, batch.dims[name])
        return draw_images(images, captions, title + note, ax)
    dims = batch.dims[name]
    return draw_lines(list(array), captions, title, dims[1] if len(dims) > 1 else "place", ax)


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

    Examples
    --------
    >>> images, note = as_images(np.zeros((2, 5, 4, 3)), ("batch", "channel", "height", "width"))
    >>> len(images), images[0].shape, note
    (2, (4, 3), ', channel 0 of 5')
    """
    if array.dtype.kind == "O":
        return [np.asarray(one) for one in array], ""
    order = image_dims(dims[1:])
    assert order is not None
    note = ""
    moved = array.transpose(0, *(dims.index(dim) for dim in order.values()))
    if "depth" in order:
        middle = moved.shape[1] // 2
        note += f", {order['depth']} {middle} of {moved.shape[1]}"
        moved = moved[:, middle]
    if "channel" in order:
        n = moved.shape[-1]
        note += f", {order['channel']} 0 of {n}" if n not in (1, 3) else ""
        moved = moved if n == 3 else moved[..., 0]
    if moved.dtype == np.bool_:
        moved = moved.astype(np.uint8)
    return list(moved), note
