"""Host memory that windows are read into, handed out as views and used again.

A buffer is free when nobody but the pool refers to its arrays: NumPy makes every view refer to the
array that owns the memory, so a batch that somebody still holds keeps its buffer. Nobody ever waits
for memory that a consumer may hold for ever: when no buffer is free and nothing is on its way, one
more is made.

Examples of different shapes lie in a buffer end to end, in the order they are handed out: how long
each is, is known before it is read, so a batch is a stretch of that memory, as it is of dense rows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.permute.arguments import address_of
from labeled.ragged import Flat
from labeled.ragged.flat import copy_segments, elements_of, offsets_of
from labeled.samplers.windows import WindowRows

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

RowTypes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Name of each array to its row shape and dtype."""

Allocate = Callable[[str, tuple[int, ...], np.dtype[Any]], Array]
"""Makes the memory of an array of some name, shape and dtype."""

ALIGNED = 64
"""Bytes: a cache line, and where other libraries want arrays to start that they share."""

PICTURES_START = 16
"""Bytes behind a cache line where memory for pictures starts.

A JPEG decoder that finds its lines of pixels at multiples of 32 writes them past the caches,
which takes a tenth longer, and whoever looks at them has to fetch them again.
"""


class _Owner(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """Memory that arrays refer to."""


def owned(shape: tuple[int, ...], dtype: np.dtype[Any], start_at: int = 0) -> Array:
    """Return new memory, `start_at` bytes behind the start of a cache line.

    All its views refer to it: NumPy makes the view of a view refer to the array that owns the
    memory, unless that is of another type, as here.
    """
    if dtype.hasobject:
        return np.empty(shape, dtype)
    raw = _Owner((math.prod(shape) * dtype.itemsize + ALIGNED + start_at,), np.uint8)
    return np.ndarray(shape, dtype, raw, -address_of(raw) % ALIGNED + start_at)


class Buffer:
    """Arrays of `capacity` rows, one a source; see :class:`BufferPool`."""

    __slots__ = ("arrays", "taken")

    def __init__(self, layout: RowTypes, capacity: int, allocate: Allocate | None = None) -> None:
        self.arrays: dict[str, Array] = {}
        for name, (shape, dtype) in layout.items():
            whole = (capacity, *shape)
            self.arrays[name] = allocate(name, whole, dtype) if allocate else owned(whole, dtype)
        self.taken = False

    def unreferenced(self) -> bool:
        """Whether no view of the arrays is held by anybody."""
        for array in self.arrays.values():
            if sys.getrefcount(array) != _ALONE:
                break
        else:
            return True
        return False


def _measure() -> int:
    """Count the references of an array that only a buffer holds, by the same expression."""
    arrays = {"": owned((1,), np.dtype(float))}
    for array in arrays.values():
        count = sys.getrefcount(array)
    return count


_ALONE = _measure()


class BufferPool:
    """Buffers of one shape, used again and again, also across epochs.

    Parameters
    ----------
    layout : mapping of str to (row shape, dtype)
    capacity : int
        Rows of each buffer.
    count : int
        Buffers that are used again and again.
    allocate : callable, optional
        Makes the memory of each array.
    fills : bool
        Make all buffers before one is used again, so that what is promised is taken at once
        and not when some consumer is slow for the first time.

    Attributes
    ----------
    extra : int
        How often one more had to be made because a consumer holds on to batches.
    enough : int
        Free buffers for which it is worth while to wake a thread.
    """

    def __init__(
        self,
        layout: RowTypes,
        capacity: int,
        count: int,
        allocate: Allocate | None = None,
        *,
        fills: bool = False,
    ) -> None:
        self.layout, self.capacity, self.count, self.fills = layout, capacity, count, fills
        self.allocate = allocate
        self.buffers: list[Buffer] = []
        self.extra = 0
        self.enough = -(-count // 2)

    def take(self, *, force: bool = False) -> Buffer | None:
        """Return a free buffer, or None; `force` makes one more, used once, rather than none."""
        more = len(self.buffers) < self.count
        if not (more and self.fills):
            for buffer in self.buffers:
                if not buffer.taken and buffer.unreferenced():
                    buffer.taken = True
                    for array in buffer.arrays.values():
                        if array.dtype.hasobject:
                            array[:] = None  # so that their memory is free at once
                    return buffer
        if not more and not force:
            return None
        buffer = Buffer(self.layout, self.capacity, self.allocate)
        if more:
            buffer.taken = True
            self.buffers.append(buffer)
        else:
            self.extra += 1
        return buffer

    @property
    def n_free(self) -> int:
        """Buffers that could be taken now, counting those not made yet."""
        free = max(0, self.count - len(self.buffers))
        for buffer in self.buffers:
            free += not buffer.taken and buffer.unreferenced()
        return free


@dataclass(eq=False, slots=True)
class LoadedJob:
    """A job on its way, then read: places ``start .. stop`` of the epoch.

    It is a window, or a piece of a window that was cut.
    """

    start: int
    stop: int
    content: WindowRows
    arrays: dict[str, Any]
    """Rows of each source: an array, or :class:`RaggedRows`."""
    pending: int = 0
    ready: bool = False
    error: BaseException | None = None
    unread: bool = False
    """Something of it could not be read, and the loader is to leave that out."""
    lost: npt.NDArray[np.bool_] | None = None
    """Which places hold no row, once that was found out."""


# examples of different shapes

COPY_RATIO = 2
"""What is kept is copied out of memory that is more than so many times as large."""


@dataclass(frozen=True, eq=False, slots=True)
class RaggedRows:
    """Examples one after another: i is ``values[offsets[i]:offsets[i + 1]]`` of ``shapes[i]``.

    Unlike :class:`~labeled.ragged.Flat` it may be part of a window, whose offsets begin anywhere.
    """

    values: Array
    offsets: Rows
    shapes: Rows

    @classmethod
    def within(cls, memory: Array, sizes: Rows, n_axes: int, dtype: np.dtype[Any]) -> RaggedRows:
        """Lay examples of so many elements each out in the memory of a buffer; nothing is read."""
        offsets = offsets_of(sizes)
        nbytes = int(offsets[-1]) * dtype.itemsize
        assert nbytes <= memory.nbytes, "no window holds more than its rows times the bound"
        shapes = sizes.reshape(-1, 1) if n_axes == 1 else np.zeros((len(sizes), n_axes), np.int64)
        return cls(memory.reshape(-1)[:nbytes].view(dtype), offsets, shapes)

    @classmethod
    def joined(cls, parts: Sequence[RaggedRows], length: int) -> RaggedRows:
        """Copy parts of windows to memory of their own, with empty examples up to `length`."""
        flats = [part.flat() for part in parts]
        shapes = np.zeros((length, flats[0].shapes.shape[1]), np.int64)
        shapes[: sum(map(len, parts))] = np.concatenate([flat.shapes for flat in flats])
        values = np.concatenate([flat.values for flat in flats])
        return cls(values, offsets_of(elements_of(shapes)), shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, part: slice) -> RaggedRows:
        return RaggedRows(self.values, self.offsets[part.start : part.stop + 1], self.shapes[part])

    def kept(self, which: Array, length: int) -> RaggedRows:
        """Copy those examples that a mask says, with empty ones up to `length`."""
        starts = self.offsets[:-1][which]
        n = len(starts)
        shapes = np.zeros((length, self.shapes.shape[1]), np.int64)
        shapes[:n] = self.shapes[which]
        offsets = offsets_of(elements_of(shapes))
        values = np.empty(int(offsets[-1]), self.values.dtype)
        copy_segments(values, offsets[:n], self.values, starts, np.diff(offsets)[:n])
        return RaggedRows(values, offsets, shapes)

    def flat(self) -> Flat:
        """Return the examples as they lie: a view of their values."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        return Flat(self.values[first:last], self.offsets - first, self.shapes.copy())

    def own_flat(self) -> Flat:
        """Return the examples for someone who may keep one of them: copied, if a window held them.

        Not where they take most of its memory.
        """
        flat, memory = self.flat(), self.values.base
        if memory is None or COPY_RATIO * flat.values.nbytes >= memory.nbytes:
            return flat
        return flat._replace(values=flat.values.copy())
