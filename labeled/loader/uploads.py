"""Windows on their way to a device: who may write where, and when.

A window goes from its host slot to one of a few device windows by one asynchronous copy a
source, in the dtype of the file, on a stream for copies alone. Batches are made of device
windows by kernels on the consumer's stream, in memory of their own. Three rules keep
everybody out of everybody's way, whatever takes how long:

- a host slot is not written again before the event behind its copies is done: until then
  the filled window is held here, and a slot that is held is not free;
- a device window is not written again before the kernels that read it are done: copies
  wait for the events behind those, on the device;
- kernels wait for the event behind the copies of their window, on the device.

No thread waits for a device but where every host slot is still being copied from.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from dask.utils import format_bytes

from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource
from labeled.device import Array, cuda_device
from labeled.device.streams import Device, Event, HostArray
from labeled.errors import DeviceMemoryError, LoaderError
from labeled.loader.engine import Filled, WindowSource
from labeled.loader.finish import Finish
from labeled.loader.placing import NUMBERS
from labeled.loader.sizes import Sizes
from labeled.loader.slots import Layout, SlotPool, owned

T = TypeVar("T")

SPARE_BATCHES = 2
"""Batches a consumer has at a time: the one in use, and the one that is made."""


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """What a loader needs on a device, decided once.

    Parameters
    ----------
    device : Device
    layout : mapping of str to (row shape, dtype)
        Of the sources that go to the device as they are stored.
    window_rows : int
        Rows of a device window.
    n_windows : int
    batch_bytes : int
        Of one batch while it is made and handed out.
    """

    device: Device
    layout: Layout
    window_rows: int
    n_windows: int
    batch_bytes: int
    library: str | None = None

    def memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Return host memory for an array of a slot: such that copies may start from it."""
        if dtype.kind in NUMBERS:
            with self._pinning(math.prod(shape) * dtype.itemsize):
                made = self.device.pinned(shape, dtype)
            assert made[:0].base is made, "views must refer to it, for slots to know who is held"
            return made
        return owned(shape, dtype)

    @property
    def window_bytes(self) -> int:
        """Bytes of one device window."""
        return self.window_rows * row_bytes(self.layout)

    @property
    def device_bytes(self) -> int:
        """The most that iterating takes of the device, batches that are kept not counted."""
        return self.n_windows * self.window_bytes + SPARE_BATCHES * self.batch_bytes

    @contextmanager
    def _pinning(self, nbytes: int) -> Iterator[None]:
        """Say how much was asked for where the system pins no more."""
        try:
            yield
        except self.device.memory_errors as error:
            raise DeviceMemoryError(
                f"device {self.device.name!r}: the system has no {format_bytes(nbytes)} more of "
                f"host memory that can be pinned for copies ({error}); give a smaller memory=, "
                f"fewer loaders at a time, or a higher limit of locked memory"
            ) from error

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say how much was needed where the device's memory ends."""
        try:
            yield
        except self.device.memory_errors as error:
            free = self.device.free_bytes()
            has = "" if free is None else f" has {format_bytes(free)} free and"
            raise DeviceMemoryError(
                f"device {self.device.name!r}{has} is out of memory: this loader needs "
                f"{format_bytes(self.device_bytes)} there ({self.n_windows} windows of "
                f"{format_bytes(self.window_bytes)}, and batches of "
                f"{format_bytes(self.batch_bytes)}), besides batches that are kept; give a "
                f"smaller memory= or window_rows=, or smaller batches"
            ) from error


def device_of(device: Any) -> Device | None:
    """Return a device; None for the host. A device of torch's counts by its name.

    Raises
    ------
    LoaderError
        If there is no such device.
    MissingExtraError
        If it needs CuPy, which is not installed.
    """
    if type(device).__module__ == "torch":
        device = str(device)
    if isinstance(device, str):
        return None if device == "cpu" else cuda_device(device)
    if isinstance(device, Device):
        return device
    raise LoaderError(f"device={device!r} is not 'cpu', 'cuda' or 'cuda:<number>'")


def check_device(
    device: Device, asked: Any, *, reader: str, skips: bool, piped: bool, as_: str | None
) -> None:
    """Raise :class:`LoaderError` where an option does not go with a device."""
    clashes = {
        "reader='process', whose memory is not pinned": reader == "process",
        "errors='skip', which leaves rows out on the host": skips and not piped,
        "as_='numpy', whose arrays are the host's": as_ == "numpy" and device.name != "host",
    }
    for words, clash in clashes.items():
        if clash:
            raise LoaderError(f"device={asked!r} does not go with {words}; leave one of them out")


def row_bytes(layout: Layout) -> int:
    """Bytes of one row of all arrays."""
    return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in layout.values())


def device_plan(
    device: Device,
    sources: Mapping[str, AnySource],
    finish: Finish,
    sizes: Sizes,
    held_rows: int,
    library: str | None,
) -> DevicePlan:
    """Work out which sources go to a device as stored, and what that takes there.

    Examples of different shapes, and values that are decoded, are laid out on the host and
    go there batch by batch; texts stay.
    """
    layout = {
        name: (source.row_shape, source.stored_dtype)
        for name, source in sources.items()
        if not isinstance(source, RaggedSource)
        and not source.decodes
        and source.stored_dtype.kind in NUMBERS
        and source.stored_dtype.isnative
    }
    rows = max(sizes.job_rows, 1)
    spanned = (max(held_rows, 1) - 1) // rows + 2  # windows that one batch may lie in
    joined = row_bytes(layout) + finish.out_row_bytes
    return DevicePlan(device, layout, rows, spanned, held_rows * joined, library)


@dataclass(eq=False)
class Home:
    """Memory of a device window, and what still reads it."""

    arrays: dict[str, Array]
    used: list[Event] = field(default_factory=list)
    _holder: weakref.ref[Uploaded] | None = None

    @property
    def free(self) -> bool:
        """Whether no window in it will be asked for any more; kernels may still read it."""
        return self._holder is None or self._holder() is None

    def note(self, event: Event) -> None:
        """Note that what was asked for before `event` reads this memory."""
        self.used = [*(one for one in self.used if not one.done()), event]

    def give(self, window: Uploaded) -> None:
        """Let a window live here."""
        self._holder = weakref.ref(window)


@dataclass(eq=False)
class Uploaded(Filled):
    """A window whose arrays are, or will be, on the device."""

    home: Home = field(kw_only=True)
    copied: Event = field(kw_only=True)
    """Behind the copies to it."""


class DeviceWindows:
    """Filled windows in order, on a device; follows :class:`~labeled.loader.engine.WindowSource`.

    Parameters
    ----------
    source : WindowSource
        Windows on the host.
    pool : SlotPool
        Their memory.
    plan : DevicePlan
    homes : list of Home
        Device windows made so far, used again in every epoch.
    """

    def __init__(
        self, source: WindowSource, pool: SlotPool, plan: DevicePlan, homes: list[Home]
    ) -> None:
        self._source = source
        self._pool = pool
        self._plan = plan
        self._homes = homes
        self._stream = plan.device.copy_stream()
        self._flying: deque[tuple[Event, Filled]] = deque()
        self._finalizer = weakref.finalize(self, wait_for_all, self._flying, homes)
        self._finalizer.atexit = False
        self._ready: deque[Uploaded] = deque()

    def next(self) -> Uploaded | None:
        """Return the next window; what its arrays hold is there once its event is done."""
        if not self._ready:
            window = self._next_on_host()
            if window is None:
                return None
            self._ready.append(self._upload(window, self._home()))
        window = self._ready.popleft()
        self._go_on()
        return window

    def _next_on_host(self) -> Filled | None:
        """Wait for the next window; first for a copy, if only that keeps it from being read."""
        self._land()
        while self._flying and not self._pool.n_free:
            self._flying[0][0].wait()  # and only then let go of the slot
            self._flying.popleft()
        return self._source.next()

    def _land(self) -> None:
        """Let go of host slots that have been copied."""
        while self._flying and self._flying[0][0].done():
            self._flying.popleft()

    def _go_on(self) -> None:
        """Begin the copies of windows that are filled, while there is a place for them."""
        self._land()
        while home := self._free_home():
            window = self._source.ready()
            if window is None:
                return
            self._ready.append(self._upload(window, home))

    def _free_home(self) -> Home | None:
        free = next((home for home in self._homes if home.free), None)
        if free is None and len(self._homes) < self._plan.n_windows:
            free = self._made()
        return free

    def _home(self) -> Home:
        """Return a place for a window that is needed now."""
        return self._free_home() or self._made()

    def _made(self) -> Home:
        plan = self._plan
        stream = plan.device.consumer_stream(plan.library)

        def memory() -> dict[str, Array]:
            return {
                name: plan.device.empty((plan.window_rows, *shape), dtype)
                for name, (shape, dtype) in plan.layout.items()
            }

        with plan.told():
            home = Home(stream.run(memory, ()))
        home.note(stream.record())  # what had this memory before may still be read on that stream
        self._homes.append(home)
        return home

    def _upload(self, window: Filled, home: Home) -> Uploaded:
        n = window.stop - window.start
        for event in home.used:
            self._stream.wait_for(event)
        home.used.clear()
        arrays = dict(window.arrays)
        for name, target in home.arrays.items():
            self._stream.upload(window.arrays[name], target[:n])
            arrays[name] = target[:n]
        copied = self._stream.record()
        self._flying.append((copied, window))
        uploaded = Uploaded(
            window.start, window.stop, window.content, window.slot, arrays, ready=True,
            home=home, copied=copied,
        )  # fmt: skip
        home.give(uploaded)
        return uploaded

    def poke(self) -> None:
        """Let threads and copies go on; cheap, for every batch."""
        self._source.poke()
        self._go_on()

    def check_process(self) -> None:
        """Raise :class:`LoaderError` if a fork left the threads behind."""
        self._source.check_process()

    def stop(self) -> None:
        """Let :meth:`next` return None soon, whoever is in it; :meth:`close` must follow."""
        self._source.stop()

    def close(self) -> None:
        """Stop; returns when no slot is written or copied from, and no window read, any more."""
        self._source.close()
        wait_for_all(self._flying, self._homes)
        self._ready.clear()


def wait_for_all(flying: deque[tuple[Event, Filled]], homes: Sequence[Home]) -> None:
    """Wait for copies under way and kernels that read windows; also where nobody iterates more.

    Memory that is given back could otherwise be somebody else's while they still use it.
    """
    while flying:
        flying[0][0].wait()  # and only then let go of the slot
        flying.popleft()
    for home in homes:
        for event in home.used:
            event.wait()
