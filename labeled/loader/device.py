"""Windows on their way to a device, and the batches that are made of them there.

A window goes from its host buffer to one of a few device windows by one asynchronous copy a
source, in the dtype of the file, on a stream for copies alone. Batches are made of device
windows by kernels on the consumer's stream, in memory of their own. Three rules keep
everybody out of everybody's way, whatever takes how long:

- a host buffer is not written again before the event behind its copies is done: until then
  the filled window is held here, and a buffer that is held is not free;
- a device window is not written again before the kernels that read it are done: copies
  wait for the events behind those, on the device;
- kernels wait for the event behind the copies of their window, on the device.

No thread waits for a device but where every host buffer is still being copied from.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from labeled import permute
from labeled.device import Array, on_gpus
from labeled.device.streams import Event, Stream
from labeled.loader.batch import Batch
from labeled.loader.buffers import BufferPool, LoadedJob, RaggedRows
from labeled.loader.collate import batch_stage, rows_of_spans
from labeled.loader.plan import DevicePlan, LoaderPlan
from labeled.loader.prefetch import Interrupted, Made, Prefetcher
from labeled.loader.stats import Stats
from labeled.samplers.listed import AnyPlan
from labeled.samplers.windows import WindowRows

Rows = npt.NDArray[np.int64]


@dataclass(eq=False)
class DeviceBuffer:
    """Memory of a device window, and what still reads it."""

    arrays: dict[str, Array]
    used: list[Event] = field(default_factory=list)
    _holder: weakref.ref[DeviceWindow] | None = None

    @property
    def free(self) -> bool:
        """Whether no window in it will be asked for any more; kernels may still read it."""
        return self._holder is None or self._holder() is None

    def note(self, event: Event) -> None:
        """Note that what was asked for before `event` reads this memory."""
        self.used = [*(one for one in self.used if not one.done()), event]

    def give(self, window: DeviceWindow) -> None:
        """Let a window live here."""
        self._holder = weakref.ref(window)


@dataclass(eq=False)
class DeviceBufferPool:
    """Device memory that a loader uses again in every epoch.

    Its memory and its stream stay together: what a device keeps in store for one stream is of
    no use to another.
    """

    stream: Stream
    buffers: list[DeviceBuffer] = field(default_factory=list)
    """Device windows made so far."""


@dataclass(eq=False)
class DeviceWindow(LoadedJob):
    """A window whose arrays are, or will be, on the device."""

    buffer: DeviceBuffer = field(kw_only=True)
    copied: Event = field(kw_only=True)
    """Behind the copies to it."""


class DeviceWindows:
    """Windows in order, on a device.

    It follows :class:`~labeled.loader.prefetch.Prefetcher`.

    Parameters
    ----------
    windows : Prefetcher
        Windows on the host.
    pool : BufferPool
        Their memory.
    plan : DevicePlan
    device_pool : DeviceBufferPool
    stats : Stats
    """

    def __init__(
        self,
        windows: Prefetcher,
        pool: BufferPool,
        plan: DevicePlan,
        device_pool: DeviceBufferPool,
        stats: Stats,
    ) -> None:
        self._host_windows = windows
        self._pool = pool
        self._plan = plan
        self._buffers = buffers = device_pool.buffers
        self._stats = stats
        self._stream = device_pool.stream
        self._flying: deque[tuple[Event, object]] = deque()
        self._finalizer = weakref.finalize(self, wait_for_all, self._flying, buffers)
        self._finalizer.atexit = False
        self._ready: deque[DeviceWindow] = deque()

    def next(self) -> DeviceWindow | None:
        """Return the next window; what its arrays hold is there once its event is done."""
        if not self._ready:
            window = self._next_on_host()
            if window is None:
                return None
            self._ready.append(self._upload(window, self._buffer()))
        window = self._ready.popleft()
        self._go_on()
        return window

    def _next_on_host(self) -> LoadedJob | None:
        """Wait for the next window; first for a copy, if only that keeps it from being read."""
        self._land()
        while self._flying and not self._pool.n_free:
            self._flying[0][0].wait()  # and only then let go of the buffer
            self._flying.popleft()
        return self._host_windows.next()

    def _land(self) -> None:
        """Let go of host buffers that have been copied."""
        while self._flying and self._flying[0][0].done():
            self._flying.popleft()

    def _go_on(self) -> None:
        """Begin the copies of windows that are filled, while there is a place for them."""
        self._land()
        while buffer := self._free_buffer():
            window = self._host_windows.ready()
            if window is None:
                return
            self._ready.append(self._upload(window, buffer))

    def _free_buffer(self) -> DeviceBuffer | None:
        free = next((buffer for buffer in self._buffers if buffer.free), None)
        if free is None and len(self._buffers) < self._plan.n_windows:
            free = self._made()
        return free

    def _buffer(self) -> DeviceBuffer:
        """Return a place for a window that is needed now."""
        return self._free_buffer() or self._made()

    def _made(self) -> DeviceBuffer:
        plan = self._plan
        stream = plan.device.consumer_stream(plan.library)

        def memory() -> dict[str, Array]:
            return {
                name: plan.device.empty((plan.window_rows, *shape), dtype)
                for name, (shape, dtype) in plan.layout.items()
            }

        with plan.memory_errors():
            arrays = stream.run(memory, ())
        buffer = DeviceBuffer(arrays)
        buffer.note(stream.record())  # what had this memory before may still be read on that stream
        self._buffers.append(buffer)
        return buffer

    def _upload(self, window: LoadedJob, buffer: DeviceBuffer) -> DeviceWindow:
        n = window.stop - window.start
        for event in buffer.used:
            self._stream.wait_for(event)
        buffer.used.clear()
        arrays: dict[str, Any] = dict(window.arrays)
        for name, array in window.arrays.items():
            if isinstance(array, RaggedRows):  # laid out on the host, one array each
                flat = array.flat()
                arrays[name] = flat._replace(values=flat.values.copy()).examples()
        for name, target in buffer.arrays.items():
            arrays[name] = target[:n]
            self._stream.upload(window.arrays[name], target[:n])
            self._stats.bus_bytes += window.arrays[name].nbytes
        copied = self._stream.record()
        self._flying.append((copied, window))
        uploaded = DeviceWindow(
            window.start, window.stop, window.content, arrays, ready=True,
            buffer=buffer, copied=copied,
        )  # fmt: skip
        buffer.give(uploaded)
        return uploaded

    def poke(self) -> None:
        """Let threads and copies go on; cheap, for every batch."""
        self._host_windows.poke()
        self._go_on()

    def close(self) -> None:
        """Stop; returns when no buffer is written or copied from, and no window read, any more."""
        self._host_windows.close()
        wait_for_all(self._flying, self._buffers)
        self._ready.clear()


def wait_for_all(flying: deque[tuple[Event, object]], buffers: Sequence[DeviceBuffer]) -> None:
    """Wait for copies under way and kernels that read windows; also where nobody iterates more.

    Memory that is given back could otherwise be somebody else's while they still use it.
    """
    while flying:
        flying[0][0].wait()  # and only then let go of the buffer
        flying.popleft()
    for buffer in buffers:
        for event in buffer.used:
            event.wait()


class ResidentCollator:
    """Makes the batches of an epoch of rows that are kept on a device; for one thread at a time.

    Row numbers go there, and nothing else: where a source is cast or laid out, the same kernel
    gathers its rows.

    Parameters
    ----------
    plan : LoaderPlan
    epoch_plan : EpochPlan or SampledPlan
    """

    def __init__(self, plan: LoaderPlan, epoch_plan: AnyPlan, stats: Stats) -> None:
        assert plan.device_plan is not None
        self.plan, self.epoch_plan, self.stats, self._device_plan = (
            plan,
            epoch_plan,
            stats,
            plan.device_plan,
        )
        self.job: None = None

    def batch(self, number: int) -> Made:
        """Build one batch; its arrays hold what they should once its event is done.

        Raises
        ------
        DeviceMemoryError
            If the device has too little memory.
        """
        places, count = self.epoch_plan.batch(number)
        position_of = self.plan.position_of
        rows = places if position_of is None else np.where(places < 0, -1, position_of[places])
        began, device_plan = perf_counter(), self._device_plan
        stream = device_plan.device.consumer_stream(device_plan.library)
        with device_plan.memory_errors():
            kept = self._kept()
            data = stream.run(lambda: self._laid_out(kept, rows, count), [*kept.values()])
            if self.plan.pipeline is not None:
                stage = partial(batch_stage, self.plan, self.epoch_plan, data, lambda: rows)
                data = stream.run(stage, [])
        if isinstance(data, Batch):
            data.event = stream.record()
        self.stats.format_s += perf_counter() - began
        return data, lambda: rows, count, 0

    def _kept(self) -> dict[str, Array]:
        """Return the sources that are on the device, brought there by whoever comes first."""
        assert self._device_plan.resident is not None
        kept = {}
        for one in self.plan.source_readers:
            if one.name in self._device_plan.layout:
                kept[one.name] = self._device_plan.resident.array(one.source.loaded)
        return kept

    def _laid_out(self, kept: dict[str, Array], rows: Rows, count: int) -> object:
        picked, arrays = np.maximum(rows, 0), {}
        for one in self.plan.source_readers:
            if one.name not in kept:  # texts
                arrays[one.name] = one.source.loaded[picked]
                continue
            taken = permute.Taken(kept[one.name], picked)
            on_the_way = one.name in self.plan.lay_out.copied and count == len(rows)
            arrays[one.name] = taken if on_the_way else taken.gathered()
        return self.plan.lay_out(arrays, lambda: rows, count, len(rows))


Piece = tuple[WindowRows, int, int]
"""Places ``a .. b`` within a window of some content."""

T = TypeVar("T")


class DeviceCollator:
    """Makes the batches of an epoch on a device, one after another; for one thread at a time.

    Parameters
    ----------
    plan : LoaderPlan
    epoch_plan : EpochPlan or SampledPlan
    windows : DeviceWindows
    """

    def __init__(
        self, plan: LoaderPlan, epoch_plan: AnyPlan, windows: DeviceWindows, stats: Stats
    ) -> None:
        assert plan.device_plan is not None
        self.plan = plan
        self.epoch_plan = epoch_plan
        self.windows = windows
        self.stats = stats
        self._device_plan = plan.device_plan
        self.job: DeviceWindow | None = None

    def batch(self, number: int) -> Made:
        """Build one batch; its arrays hold what they should once its event is done.

        Raises
        ------
        Interrupted
            If the epoch was stopped.
        DeviceMemoryError
            If the device has too little memory.
        """
        start, stop = self.epoch_plan.span(number)
        count = stop - start
        length = self.epoch_plan.batch_rows if self.epoch_plan.last == "pad" else count
        stream = self._device_plan.device.consumer_stream(self._device_plan.library)
        contents: list[Piece] = []
        position_of = self.plan.position_of

        def rows() -> Rows:
            return rows_of_spans(contents, position_of, length)

        def laid_out(arrays: dict[str, Array]) -> object:
            return self.plan.lay_out(arrays, rows, count, length, self._placed)

        window = self._window_at(start) if count else None
        if window is not None and stop <= window.stop and count == length:
            a, b = start - window.start, stop - window.start
            contents.append((window.content, a, b))
            data, event = self._run(stream, lambda: laid_out(self._cut(window, a, b)), window)
        else:
            arrays = self._joined(stream, start, stop, length, contents)
            data, event = self._run(stream, lambda: laid_out(arrays))
        pipeline = self.plan.pipeline
        if pipeline is not None:
            stage = partial(batch_stage, self.plan, self.epoch_plan, data, rows)
            data, event = stream.run(stage, []), stream.record()
        if isinstance(data, Batch):
            data.event = event
        return data, rows, count, 0

    def _window_at(self, start: int) -> DeviceWindow:
        """Return the window that holds a place."""
        if self.job is None or start >= self.job.stop:
            self.job = None  # its place is free once its batches are made
            self.job = self.windows.next()
            if self.job is None:
                raise Interrupted
        return self.job

    def _joined(
        self, stream: Stream, start: int, stop: int, length: int, contents: list[Piece]
    ) -> dict[str, Array]:
        """Copy a batch out of the windows that hold it, one after another; note what they hold.

        However small they are, none is kept beside the one that is copied from.
        """
        arrays, _ = self._run(stream, lambda: self._room(length))
        place = 0
        while start < stop:
            window = self._window_at(start)
            a, b = start - window.start, min(stop, window.stop) - window.start
            self._run(stream, partial(_copy, window, a, b, arrays, place), window)
            contents.append((window.content, a, b))
            start, place = start + b - a, place + b - a
            del window
        return arrays

    def _run(
        self, stream: Stream, make: Callable[[], T], window: DeviceWindow | None = None
    ) -> tuple[T, Event]:
        """Have a stream make something, of a window or of none; return it, and the event behind."""
        began = perf_counter()
        if window is not None:
            stream.wait_for(window.copied)
        try:
            with self._device_plan.memory_errors():
                made = stream.run(make, [] if window is None else [*window.buffer.arrays.values()])
        finally:  # also behind an error, for kernels asked for before it
            event = stream.record()
            if window is not None:
                window.buffer.note(event)
        self.stats.format_s += perf_counter() - began
        return made, event

    def _cut(self, window: DeviceWindow, a: int, b: int) -> dict[str, Array]:
        """Return stored values at places of a window; copies where laying out makes none."""
        arrays = {name: array[a:b] for name, array in window.arrays.items()}
        for name in self._device_plan.layout.keys() - self.plan.lay_out.copied:
            shape, dtype = self._device_plan.layout[name]
            fresh = self._device_plan.device.empty((b - a, *shape), dtype)
            fresh[...] = arrays[name]
            arrays[name] = fresh
        return arrays

    def _room(self, length: int) -> dict[str, Array]:
        """Make memory for a batch."""
        arrays = {}
        for source_reader in self.plan.source_readers:
            on_device = source_reader.name in self._device_plan.layout
            empty = self._device_plan.device.empty if on_device else np.empty
            shape = (length, *source_reader.source.row_shape)
            arrays[source_reader.name] = empty(shape, source_reader.source.stored_dtype)
        return arrays

    def _placed(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Bring arrays of numbers that were made on the host to the device."""
        asarray = self._device_plan.device.asarray
        return {
            name: asarray(array)
            if isinstance(array, np.ndarray) and on_gpus(array.dtype)
            else array
            for name, array in arrays.items()
        }


def _copy(window: DeviceWindow, a: int, b: int, arrays: dict[str, Array], place: int) -> None:
    """Copy places of a window to those of a batch, from `place` on."""
    for name, array in window.arrays.items():
        arrays[name][place : place + b - a] = array[a:b]
