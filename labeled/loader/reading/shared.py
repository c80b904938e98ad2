"""What a consumer's process and its reader process agree on: memory, a plan, messages.

Slots lie in one anonymous file that both sides map. It has no name, so nothing is left
behind however either side ends, and no mount that limits shared memory (containers often
give 64 MiB) stands in the way. A page costs memory once it is written, so the spare slot
that few consumers need is free until one does.

The trade-off of shared pages: a process forked off the consumer sees them change. Batches
that a forked child is to keep must be copied first.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.loader.reading.lanes import Lane
from labeled.loader.reading.slots import Layout, Slot
from labeled.loader.sizing.sizes import Sizes
from labeled.samplers.content import Content
from labeled.samplers.parts import History
from labeled.samplers.sampled import AnyPlan

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReadPlan:
    """The part of a :class:`~labeled.loader.plan.LoaderPlan` that reading needs."""

    lanes: Sequence[Lane]
    epoch_plan: AnyPlan
    group: Rows | None
    sizes: Sizes
    job_offset: int | None
    layout: Layout


class SharedSlots:
    """Slots in memory that two processes map.

    Parameters
    ----------
    fd : int
        From :func:`shared_file`; may be closed afterwards.
    layout : mapping of str to (row shape, dtype)
    capacity : int
        Rows of a slot.
    count : int
        Slots in ordinary use.

    Attributes
    ----------
    slots : list of Slot
        `count` of them, and last the spare one. A view of their arrays keeps the memory
        alive, also when this object is gone.
    """

    def __init__(self, fd: int, layout: Layout, capacity: int, count: int) -> None:
        self.count = count
        n_bytes = file_bytes(layout, capacity, count)
        try:
            memory = mmap.mmap(fd, n_bytes)
        except OSError as error:
            raise MemoryError(f"no room to map {n_bytes} bytes: {error.strerror}") from error
        place = 0
        self.slots: list[Slot] = []
        for _ in range(count + 1):
            slot = Slot({}, capacity)
            for name, (shape, dtype) in layout.items():
                slot.arrays[name] = np.ndarray((capacity, *shape), dtype, memory, place)
                place += _array_bytes(shape, dtype, capacity)
            self.slots.append(slot)


def file_bytes(layout: Layout, capacity: int, count: int) -> int:
    """Bytes of the file behind `count` slots and a spare one."""
    slot = sum(_array_bytes(shape, dtype, capacity) for shape, dtype in layout.values())
    return max((count + 1) * slot, mmap.PAGESIZE)


def _array_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], capacity: int) -> int:
    """Bytes of one array, up to whole pages."""
    nbytes = capacity * math.prod(shape) * dtype.itemsize
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def shared_file(nbytes: int) -> int:
    """Return the descriptor of a new file without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("labeled-slots")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.truncate(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


# from the consumer's process


class Begin(NamedTuple):
    """Read an epoch; `number` counts epochs begun, so that stale messages are known."""

    number: int
    seed: int
    epoch: int
    history: History
    first_batch: int


class Cancel(NamedTuple):
    """The windows of epoch `number`, and of those before, are not wanted any more."""

    number: int


class Release(NamedTuple):
    """Nobody holds these slots any more."""

    slots: tuple[int, ...]


class UseSpare(NamedTuple):
    """The consumer holds every slot: the spare one may be filled, once."""


# from the reader process


class Work(NamedTuple):
    """What was done in this epoch so far; see :class:`~labeled.loader.telling.stats.Stats`."""

    read_s: float
    decode_s: float
    plan_s: float
    n_windows: int
    n_tasks: int


class Sent(NamedTuple):
    """A window is filled: places ``start .. stop`` of the epoch, in slot number `slot`."""

    number: int
    slot: int
    start: int
    stop: int
    content: Content
    work: Work


class Ended(NamedTuple):
    """No window follows."""

    number: int
    work: Work


class Failed(NamedTuple):
    """Reading failed where the next window would have come; number 0: it could not start."""

    number: int
    error: bytes
    """The exception, pickled."""
    trace: str
    """What it looked like in the reader process."""
