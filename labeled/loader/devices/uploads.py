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

import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from labeled.device import Array
from labeled.device.streams import Event, Stream
from labeled.loader.devices.plan import DevicePlan
from labeled.loader.reading.dealt import examples_of
from labeled.loader.reading.engine import WindowSource
from labeled.loader.reading.filled import Filled
from labeled.loader.reading.slots import SlotPool
from labeled.loader.telling.stats import Stats


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
class Ground:
    """What of a device a loader uses again in every epoch.

    Its memory and its stream stay together: what a device keeps in store for one stream is of
    no use to another.
    """

    stream: Stream
    homes: list[Home] = field(default_factory=list)
    """Device windows made so far."""


@dataclass(eq=False)
class Uploaded(Filled):
    """A window whose arrays are, or will be, on the device."""

    home: Home = field(kw_only=True)
    copied: Event = field(kw_only=True)
    """Behind the copies to it."""


class DeviceWindows:
    """Filled windows in order, on a device.

    It follows :class:`~labeled.loader.reading.engine.WindowSource`.

    Parameters
    ----------
    source : WindowSource
        Windows on the host.
    pool : SlotPool
        Their memory.
    plan : DevicePlan
    ground : Ground
    stats : Stats
    """

    def __init__(
        self,
        source: WindowSource,
        pool: SlotPool,
        plan: DevicePlan,
        ground: Ground,
        stats: Stats,
    ) -> None:
        self._source = source
        self._pool = pool
        self._plan = plan
        self._homes = homes = ground.homes
        self._stats = stats
        self._stream = ground.stream
        self._flying: deque[tuple[Event, object]] = deque()
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
            arrays = stream.run(memory, ())
        home = Home(arrays)
        home.note(stream.record())  # what had this memory before may still be read on that stream
        self._homes.append(home)
        return home

    def _upload(self, window: Filled, home: Home) -> Uploaded:
        n = window.stop - window.start
        for event in home.used:
            self._stream.wait_for(event)
        home.used.clear()
        arrays = {name: examples_of(array) for name, array in window.arrays.items()}
        for name, target in home.arrays.items():
            arrays[name] = target[:n]
            self._stream.upload(window.arrays[name], target[:n])
            self._stats.bus_bytes += window.arrays[name].nbytes
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


def wait_for_all(flying: deque[tuple[Event, object]], homes: Sequence[Home]) -> None:
    """Wait for copies under way and kernels that read windows; also where nobody iterates more.

    Memory that is given back could otherwise be somebody else's while they still use it.
    """
    while flying:
        flying[0][0].wait()  # and only then let go of the slot
        flying.popleft()
    for home in homes:
        for event in home.used:
            event.wait()
