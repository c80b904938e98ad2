"""Batches of device windows: what :mod:`.dealing` does, on a device and in memory of their own.

Kernels are asked for on the consumer's stream. They wait there for the copies of the windows
that they read, and whoever writes these windows next waits for the event behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
import numpy.typing as npt

from labeled.device import Array
from labeled.device.streams import Event
from labeled.loader.batches.batch import Batch
from labeled.loader.batches.dealing import Interrupted, Made, rows_of_spans
from labeled.loader.devices.placing import NUMBERS
from labeled.loader.devices.uploads import DeviceWindows, Uploaded
from labeled.loader.plan import LoaderPlan
from labeled.loader.telling.stats import Stats
from labeled.samplers.sampled import AnyPlan

Rows = npt.NDArray[np.int64]

Span = tuple[Uploaded, int, int]
"""Places ``a .. b`` within a window."""


class DeviceDealer:
    """Deals the batches of an epoch on a device, one after another; for one thread at a time.

    Parameters
    ----------
    recipe : LoaderPlan
    plan : EpochPlan or SampledPlan
        The epoch.
    source : DeviceWindows
    """

    def __init__(
        self, recipe: LoaderPlan, plan: AnyPlan, source: DeviceWindows, stats: Stats
    ) -> None:
        assert recipe.on_device is not None
        self.recipe = recipe
        self.plan = plan
        self.source = source
        self.stats = stats
        self._there = recipe.on_device
        self._window: Uploaded | None = None

    def deal(self, number: int) -> Made:
        """Build one batch; its arrays hold what they should once its event is done.

        Raises
        ------
        Interrupted
            If the epoch was stopped.
        DeviceMemoryError
            If the device has too little memory.
        """
        start, stop = self.plan.span(number)
        count = stop - start
        length = self.plan.batch_rows if self.plan.last == "pad" else count
        spans = self._spans(start, stop)
        began = perf_counter()
        group = self.recipe.group
        contents = [(window.content, a, b) for window, a, b in spans]

        def rows() -> Rows:
            return rows_of_spans(contents, group, length)

        def make() -> object:
            straight = len(spans) == 1 and count == length
            arrays = self._cut(*spans[0]) if straight else self._joined(spans, length)
            return self.recipe.finish(arrays, rows, count, length, self._placed)

        data, event = self._run([window for window, _, _ in spans], make)
        if isinstance(data, Batch):
            data.event = event
        self.stats.format_s += perf_counter() - began
        return data, rows, count, 0

    def _spans(self, start: int, stop: int) -> list[Span]:
        """Return the stretches of windows that hold a batch."""
        spans: list[Span] = []
        while start < stop:
            window = self._window
            if window is None or start >= window.stop:
                window = self._window = None  # its place is free once its batches are made
                window = self.source.next()
                if window is None:
                    raise Interrupted
                self._window = window
            end = min(stop, window.stop)
            spans.append((window, start - window.start, end - window.start))
            start = end
        return spans

    def _run(self, windows: list[Uploaded], make: Callable[[], object]) -> tuple[object, Event]:
        """Make a batch on the consumer's stream; return it, and the event behind it."""
        stream = self._there.device.consumer_stream(self._there.library)
        for window in windows:
            stream.wait_for(window.copied)
        reads = [array for window in windows for array in window.home.arrays.values()]
        try:
            with self._there.told():
                made = stream.run(make, reads)
        finally:  # also behind an error, for kernels asked for before it
            event = stream.record()
            for window in windows:
                window.home.note(event)
        return made, event

    def _cut(self, window: Uploaded, a: int, b: int) -> dict[str, Array]:
        """Return stored values at places of a window; copies where laying out makes none."""
        arrays = {name: array[a:b] for name, array in window.arrays.items()}
        for name in self._there.layout.keys() - self.recipe.finish.copied:
            shape, dtype = self._there.layout[name]
            fresh = self._there.device.empty((b - a, *shape), dtype)
            fresh[...] = arrays[name]
            arrays[name] = fresh
        return arrays

    def _joined(self, spans: list[Span], length: int) -> dict[str, Array]:
        """Copy a batch out of the windows that hold it."""
        device = self._there.device
        arrays = {
            name: device.empty((length, *shape), dtype)
            if name in self._there.layout
            else np.empty((length, *shape), dtype)
            for name, (shape, dtype) in self.recipe.layout.items()
        }
        place = 0
        for window, a, b in spans:
            for name, array in window.arrays.items():
                arrays[name][place : place + b - a] = array[a:b]
            place += b - a
        return arrays

    def _placed(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Bring arrays of numbers that were made on the host to the device."""
        asarray = self._there.device.asarray
        return {
            name: asarray(array)
            if isinstance(array, np.ndarray) and array.dtype.kind in NUMBERS
            else array
            for name, array in arrays.items()
        }

    def let_go(self) -> None:
        """Hold no window any more."""
        self._window = None
