"""Examples of different shapes in the memory of a window: end to end, in the order they are dealt.

How long each example is, is known before it is read, so that it is read to where it is dealt
from; a batch is then a stretch of that memory, as it is of dense rows. No object is made of an
example before a consumer asks for lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.ragged import Flat
from labeled.ragged.flat import copy_segments, elements_of, offsets_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

MOSTLY = 2
"""Of memory so many times as large as what is kept of it, a copy is made."""


@dataclass(frozen=True, eq=False, slots=True)
class DealtExamples:
    """Examples one after another: i is ``values[offsets[i]:offsets[i + 1]]`` of ``shapes[i]``.

    Unlike :class:`~labeled.ragged.Flat` it may be part of a window, whose offsets begin anywhere.
    """

    values: Array
    offsets: Rows
    shapes: Rows

    @classmethod
    def within(cls, memory: Array, sizes: Rows, n_axes: int, dtype: np.dtype[Any]) -> DealtExamples:
        """Lay examples of so many elements each out in the memory of a slot; nothing is read."""
        offsets = offsets_of(sizes)
        nbytes = int(offsets[-1]) * dtype.itemsize
        assert nbytes <= memory.nbytes, "no window holds more than its rows times the bound"
        shapes = sizes.reshape(-1, 1) if n_axes == 1 else np.zeros((len(sizes), n_axes), np.int64)
        return cls(memory.reshape(-1)[:nbytes].view(dtype), offsets, shapes)

    @classmethod
    def joined(cls, parts: Sequence[DealtExamples], length: int) -> DealtExamples:
        """Copy parts of windows to memory of their own, with empty examples up to `length`."""
        flats = [part.flat() for part in parts]
        shapes = np.zeros((length, flats[0].shapes.shape[1]), np.int64)
        shapes[: sum(map(len, parts))] = np.concatenate([flat.shapes for flat in flats])
        values = np.concatenate([flat.values for flat in flats])
        return cls(values, offsets_of(elements_of(shapes)), shapes)

    @property
    def nbytes(self) -> int:
        return int(self.offsets[-1] - self.offsets[0]) * self.values.itemsize

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, part: slice) -> DealtExamples:
        return DealtExamples(
            self.values, self.offsets[part.start : part.stop + 1], self.shapes[part]
        )

    def kept(self, which: Array, length: int) -> DealtExamples:
        """Copy those examples that a mask says, with empty ones up to `length`."""
        starts = self.offsets[:-1][which]
        n = len(starts)
        shapes = np.zeros((length, self.shapes.shape[1]), np.int64)
        shapes[:n] = self.shapes[which]
        offsets = offsets_of(elements_of(shapes))
        values = np.empty(int(offsets[-1]), self.values.dtype)
        copy_segments(values, offsets[:n], self.values, starts, np.diff(offsets)[:n])
        return DealtExamples(values, offsets, shapes)

    def own_flat(self) -> Flat:
        """Return the examples for someone who may keep one of them: copied, if a window held them.

        Not where they take most of its memory.
        """
        flat, memory = self.flat(), self.values.base
        if memory is None or MOSTLY * flat.values.nbytes >= memory.nbytes:
            return flat
        return flat._replace(values=flat.values.copy())

    def flat(self) -> Flat:
        """Return the examples as they lie: a view of their values."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        return Flat(self.values[first:last], self.offsets - first, self.shapes.copy())


def examples_of(array: Any) -> Any:
    """Return dealt examples as objects, one array each, in memory of their own; others as given."""
    if not isinstance(array, DealtExamples):
        return array
    flat = array.flat()
    return flat._replace(values=flat.values.copy()).examples()
