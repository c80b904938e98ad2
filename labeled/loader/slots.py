"""Memory that windows are read into, handed out as views and used again.

A slot is free when nobody but the pool refers to its arrays: NumPy makes every view
refer to the array that owns the memory, so a batch that somebody still holds keeps
its slot. Nobody ever waits for memory that a consumer may hold for ever: when no slot
is free and nothing is on its way, one more is made.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.permute.addresses import address_of
from labeled.samplers.windows import WindowRows

Array = npt.NDArray[Any]
Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Name of each array to its row shape and dtype."""


Memory = Callable[[str, tuple[int, ...], np.dtype[Any]], Array]

ALIGNED = 64
"""Bytes: a cache line, and where other libraries want arrays to start that they share."""


ASIDE = 16
"""Bytes behind a cache line where memory for pictures starts.

A JPEG decoder that finds its lines of pixels at multiples of 32 writes them past the caches,
which takes a tenth longer, and whoever looks at them has to fetch them again.
"""


def owned(shape: tuple[int, ...], dtype: np.dtype[Any], aside: int = 0) -> Array:
    """Return new memory that starts `aside` a cache line, to which all its views refer.

    NumPy makes the view of a view refer to the array that owns the memory, unless that is
    of another type: here it is, so that views refer to what is returned.
    """
    if dtype.hasobject:
        return np.empty(shape, dtype)
    raw = _Owner((math.prod(shape) * dtype.itemsize + ALIGNED + aside,), np.uint8)
    return np.ndarray(shape, dtype, raw, -address_of(raw) % ALIGNED + aside)


class _Owner(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """Memory that arrays refer to."""


class Slot:
    """Arrays of `capacity` rows, one a source; see :class:`SlotPool`."""

    __slots__ = ("arrays", "taken")

    def __init__(
        self,
        layout: Layout,
        capacity: int,
        memory: Memory | None = None,
        pictures: Collection[str] = (),
    ) -> None:
        self.arrays: dict[str, Array] = {}
        for name, (shape, dtype) in layout.items():
            if memory is None:
                aside = ASIDE if name in pictures else 0
                self.arrays[name] = owned((capacity, *shape), dtype, aside)
            else:
                self.arrays[name] = memory(name, (capacity, *shape), dtype)
        self.taken = False

    def unreferenced(self) -> bool:
        """Whether no view of the arrays is held by anybody."""
        for array in self.arrays.values():
            if sys.getrefcount(array) != _ALONE:
                break
        else:
            return True
        return False

    def forget(self) -> None:
        """Let go of objects that were held before, so that their memory is free at once."""
        for array in self.arrays.values():
            if array.dtype.hasobject:
                array[:] = None

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def _measure() -> int:
    """Count the references of an array that only a slot holds, by the same expression."""
    arrays = {"": owned((1,), np.dtype(float))}
    for array in arrays.values():
        count = sys.getrefcount(array)
    return count


_ALONE = _measure()


class SlotPool:
    """Slots of one shape, used again and again, also across epochs.

    Parameters
    ----------
    layout : mapping of str to (row shape, dtype)
    capacity : int
        Rows of each slot.
    count : int
        Slots that are used again and again.
    memory : callable, optional
        Makes the memory of an array of some name, shape and dtype.
    pictures : collection of str
        Arrays that pictures are decoded into, one by one.
    fills : bool
        Make all slots before one is used again, so that what is promised is taken at once
        and not when some consumer is slow for the first time.

    Attributes
    ----------
    extra : int
        How often one more had to be made because a consumer holds on to batches.
    enough : int
        Free slots for which it is worth while to wake a thread.
    """

    def __init__(
        self,
        layout: Layout,
        capacity: int,
        count: int,
        memory: Memory | None = None,
        pictures: Collection[str] = (),
        *,
        fills: bool = False,
    ) -> None:
        self.memory = memory
        self.pictures = pictures
        self.fills = fills
        self.layout = layout
        self.capacity = capacity
        self.count = count
        self.slots: list[Slot] = []
        self.extra = 0
        self.enough = -(-count // 2)

    def take(self, *, force: bool = False) -> Slot | None:
        """Return a free slot, or None; `force` makes one more, used once, rather than none."""
        more = len(self.slots) < self.count
        if not (more and self.fills):
            for slot in self.slots:
                if not slot.taken and slot.unreferenced():
                    slot.taken = True
                    slot.forget()
                    return slot
        if more:
            slot = self.make()
            slot.taken = True
            self.slots.append(slot)
            return slot
        if not force:
            return None
        self.extra += 1
        return self.make()

    def make(self) -> Slot:
        """Return one more slot."""
        return Slot(self.layout, self.capacity, self.memory, self.pictures)

    @property
    def n_free(self) -> int:
        """Slots that could be taken now, counting those not made yet."""
        unmade = max(0, self.count - len(self.slots))
        return unmade + sum(not s.taken and s.unreferenced() for s in self.slots)


@dataclass(eq=False, slots=True)
class Filled:
    """A window on its way, then filled: places ``start .. stop`` of the epoch."""

    start: int
    stop: int
    content: WindowRows
    slot: Slot
    arrays: dict[str, Any]
    """Rows of each source: an array, or :class:`~.dealt.DealtExamples`."""
    pending: int = 0
    ready: bool = False
    error: BaseException | None = None
    unread: bool = False
    """Something of it could not be read, and the loader is to leave that out."""
    lost: npt.NDArray[np.bool_] | None = None
    """Which places hold no row, once that was found out."""
