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

Batches for the host need nothing of this module, so it stands apart from `loader`.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from labeled import permute
from labeled.device import Array, Device, Event, Stream, on_gpus
from labeled.errors import DeviceMemoryError
from labeled.loader.batch import Batch
from labeled.loader.collate import Collator, batch_stage
from labeled.loader.handover import map_nest
from labeled.loader.plan import DevicePlan, LoaderPlan
from labeled.loader.prefetch import Made, Prefetcher
from labeled.loader.reading import LoadedJob, RaggedRows
from labeled.samplers.plan import EpochPlan
from labeled.sources.source import Rows
from labeled.transforms.running import NOTHING

T = TypeVar("T")


# A stream, and the thread that asks: CUDA has a stream that is another one for every thread.
StreamUser = tuple[Stream, int]


def user_of(stream: Stream) -> StreamUser:
    """Return who uses a stream; what one asks for is done in order."""
    return stream, get_ident()


@dataclass(eq=False)
class DeviceBuffer:
    """Memory of a device window, and what still reads it."""

    arrays: dict[str, Array]
    # the last event of each stream that has used it: those before are done by then
    used: dict[StreamUser, Event] = field(default_factory=dict)
    # gives the window that lives here, None once nobody asks for it any more
    holder: Callable[[], DeviceWindow | None] = lambda: None

    def wait(self, stream: Stream) -> None:
        """Let a stream begin nothing more before everything is done that uses this memory."""
        for event in self.used.values():
            stream.wait_for(event)
        self.used.clear()


# The stream of copies, and the device windows made so far: kept for every epoch of a loader.
# They stay together: what a device keeps in store for one stream is of no use to another.
DeviceMemory = tuple[Stream, list[DeviceBuffer]]


@dataclass(eq=False)
class DeviceWindow(LoadedJob):
    """A window whose arrays are, or will be, on the device."""

    buffer: DeviceBuffer = field(kw_only=True)
    copied: Event = field(kw_only=True)  # behind the copies to it


class DeviceWindows:
    """Windows in order, on a device.

    It follows :class:`~labeled.loader.prefetch.Prefetcher`.

    Parameters
    ----------
    windows : Prefetcher
        Windows on the host.
    pool : BufferPool
        Their memory.
    """

    def __init__(self, windows: Prefetcher, plan: DevicePlan, memory: DeviceMemory) -> None:
        self._host_windows, self._plan = windows, plan
        self.pool, self.stats = windows.pool, windows.stats
        self._stream, self._buffers = memory
        # host buffers that are being copied from
        self._flying: deque[tuple[Event, object]] = deque()
        self._ready: deque[DeviceWindow] = deque()
        self._finalizer = weakref.finalize(self, wait_for_all, self._flying, self._buffers)
        self._finalizer.atexit = False

    def next(self) -> DeviceWindow | None:
        """Return the next window; what its arrays hold is there once its event is done."""
        if not self._ready:
            self._land()
            while self._flying and not self.pool.n_free:  # only a copy keeps it from being read
                self._flying[0][0].wait()  # and only then let go of the buffer
                self._flying.popleft()
            window = self._host_windows.next()
            if window is None:
                return None
            self._ready.append(self._upload(window, self._free_buffer() or self._new_buffer()))
        ready = self._ready.popleft()
        self._go_on()
        return ready

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
        """Return a place that no window will be asked for; kernels may still read it."""
        for buffer in self._buffers:
            if buffer.holder() is None:
                return buffer
        return self._new_buffer() if len(self._buffers) < self._plan.n_windows else None

    def _new_buffer(self) -> DeviceBuffer:
        plan = self._plan
        stream = plan.device.consumer_stream(plan.library)

        def memory() -> dict[str, Array]:
            return {
                name: plan.device.empty((plan.window_rows, *shape), dtype)
                for name, (shape, dtype) in plan.layout.items()
            }

        with plan.memory_errors():
            buffer = DeviceBuffer(stream.run(memory, ()))
        # what had this memory before may still be read on that stream
        buffer.used[user_of(stream)] = stream.record()
        self._buffers.append(buffer)
        return buffer

    def _upload(self, window: LoadedJob, buffer: DeviceBuffer) -> DeviceWindow:
        buffer.wait(self._stream)
        arrays: dict[str, Any] = {}
        for name, array in window.arrays.items():
            arrays[name] = array
            if name in buffer.arrays:
                arrays[name] = buffer.arrays[name][: window.stop - window.start]
                self._stream.upload(array, arrays[name])
                self.stats.bus_bytes += array.nbytes
            elif isinstance(array, RaggedRows):  # laid out on the host
                arrays[name] = RaggedRows.joined([array], len(array))
        copied = self._stream.record()
        self._flying.append((copied, window))
        uploaded = DeviceWindow(
            window.start, window.stop, window.content, arrays, ready=True,
            buffer=buffer, copied=copied,
        )  # fmt: skip
        buffer.holder = weakref.ref(uploaded)
        return uploaded

    def poke(self) -> None:
        """Let threads and copies go on; cheap, for every batch."""
        self._go_on()
        self._host_windows.poke()  # for buffers that have just been let go of

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
        for event in list(buffer.used.values()):
            event.wait()


class DeviceCollator(Collator):
    """Makes the batches of an epoch out of :class:`DeviceWindows`, in memory of their own.

    What its arrays hold is there once the event of a batch is done.
    """

    def __init__(self, plan: LoaderPlan, *args: Any) -> None:
        super().__init__(plan, *args)
        self._place, self._fresh = self._placed, self._there.layout.keys() - plan.lay_out.copied

    def batch(self, number: int) -> Made:
        self._stream = self._there.device.consumer_stream(self._there.library)
        data, rows, count, n_lost = self._made(number)
        if self.plan.pipeline is not None:
            data = self._run(partial(batch_stage, self.plan, self.epoch_plan, rows, data))
        if isinstance(data, Batch):
            data.event = self._event
        return data, rows, count, n_lost

    def _made(self, number: int) -> Made:
        return super().batch(number)

    def _placed(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: _put(self._there.device, array) for name, array in arrays.items()}

    def _run(self, make: Callable[[], T], job: Any = None, arrays: Sequence[Array] = ()) -> T:
        """Have a stream make something, of a window or of none, and note the event behind it."""
        began, reads, user = perf_counter(), list(arrays), user_of(self._stream)
        if job is not None:
            if user not in job.buffer.used:  # else it has waited, for a batch before
                self._stream.wait_for(job.copied)
            reads.extend(job.buffer.arrays.values())
        try:
            with self._there.memory_errors():
                made: T = self._stream.run(make, reads)
        finally:  # also behind an error, for kernels asked for before it
            self._event = self._stream.record()
            if job is not None:
                job.buffer.used[user] = self._event
        self.stats.format_s += perf_counter() - began
        return made


class ResidentCollator(DeviceCollator):
    """Makes the batches of an epoch of rows that are kept on a device.

    Row numbers go there, and nothing else: where a source is cast or laid out, the same kernel
    gathers its rows. Rows of padding hold the last row until they are written over.
    """

    def __init__(self, plan: LoaderPlan, *args: Any) -> None:
        super().__init__(plan, *args)
        self._kept = dict[str, Array]()
        self._places: Iterator[tuple[Rows, int]] | None = None

    def _made(self, number: int) -> Made:
        lay_out, kept = self.plan.lay_out, self._kept
        if self._places is None:  # the first batch of this epoch
            self._places = self.epoch_plan.batches(number)
            with self._there.memory_errors():
                for one in self.plan.source_readers:
                    if one.name in self._there.layout:  # whoever comes first brings it there
                        kept[one.name] = self._there.resident.array(one.source.loaded)
        places, count = next(self._places)
        position_of = self.plan.position_of
        rows = places if position_of is None else np.where(places < 0, -1, position_of[places])

        def laid_out() -> Any:
            arrays = dict[str, Any]()
            for one in self.plan.source_readers:
                if one.name not in kept:  # texts
                    arrays[one.name] = one.source.loaded[rows]
                    continue
                taken = permute.Taken(kept[one.name], rows)
                on_the_way = one.name in lay_out.copied and count == len(rows)
                arrays[one.name] = taken if on_the_way else taken.gathered()
            return lay_out(arrays, lambda: rows, count, len(rows))

        return self._run(laid_out, arrays=[*kept.values()]), lambda: rows, count, 0


# batches that a pipeline makes on the host


def handed_out(plan: LoaderPlan, epoch_plan: EpochPlan, made: Made) -> Any:
    """Apply the batch stage of a pipeline, on the device where one was asked for.

    The batch goes there now that the consumer asks for it: nothing of the next one is on its way
    meanwhile, as it is where windows go to the device as they are stored. What is not an array of
    numbers, such as texts and examples of different shapes, stays.

    Raises
    ------
    DeviceMemoryError
        If there is no room.
    """
    data, rows, device = made[0], made[1], plan.goes_to
    if data is NOTHING or plan.device_plan is not None:
        return data
    if device is None:
        return batch_stage(plan, epoch_plan, rows, data)
    stream, put = device.consumer_stream(plan.options.output), partial(_put, device)

    def there() -> Any:
        moved = map_nest(data.arrays if isinstance(data, Batch) else data, put)
        moved = data.with_arrays(moved) if isinstance(data, Batch) else moved
        return batch_stage(plan, epoch_plan, rows, moved)

    try:
        out = stream.run(there, [])
    except device.memory_errors as error:
        raise DeviceMemoryError(
            f"device {device.name!r} is out of memory: a batch that a pipeline made on the host "
            "does not fit; use smaller batches, or release those you keep"
        ) from error
    if isinstance(out, Batch):
        out.event = stream.record()
    return out


def _put(device: Device, data: Any) -> Any:
    """Return an array of numbers on the device; anything else as it is."""
    if isinstance(data, xr.DataArray):
        return data.copy(data=_put(device, data.data))
    numbers = isinstance(data, np.ndarray) and on_gpus(data.dtype)
    return device.asarray(data) if numbers else data
