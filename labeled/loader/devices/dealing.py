"""Batches of device windows: what :mod:`.dealing` does, on a device and in memory of their own.

Kernels are asked for on the consumer's stream. They wait there for the copies of the windows
that they read, and whoever writes these windows next waits for the event behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from labeled.device import Array, on_gpus
from labeled.device.streams import Event, Stream
from labeled.loader.batches.batch import Batch
from labeled.loader.batches.dealing import Interrupted, Made, rows_of_spans
from labeled.loader.batches.workers import finished
from labeled.loader.devices.uploads import DeviceWindows, Uploaded
from labeled.loader.plan import LoaderPlan
from labeled.loader.telling.stats import Stats
from labeled.samplers.content import Content
from labeled.samplers.sampled import AnyPlan

Rows = npt.NDArray[np.int64]

Piece = tuple[Content, int, int]
"""Places ``a .. b`` within a window of some content."""

T = TypeVar("T")


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
        stream = self._there.device.consumer_stream(self._there.library)
        contents: list[Piece] = []
        group = self.recipe.group

        def rows() -> Rows:
            return rows_of_spans(contents, group, length)

        def laid(arrays: dict[str, Array]) -> object:
            return self.recipe.finish(arrays, rows, count, length, self._placed)

        window = self._window_at(start) if count else None
        if window is not None and stop <= window.stop and count == length:
            a, b = start - window.start, stop - window.start
            contents.append((window.content, a, b))
            data, event = self._run(stream, lambda: laid(self._cut(window, a, b)), window)
        else:
            arrays = self._joined(stream, start, stop, length, contents)
            data, event = self._run(stream, lambda: laid(arrays))
        line = self.recipe.line
        if line is not None:
            stage = partial(finished, data, rows, line, self.plan)
            data, event = stream.run(stage, []), stream.record()
        if isinstance(data, Batch):
            data.event = event
        return data, rows, count, 0

    def _window_at(self, start: int) -> Uploaded:
        """Return the window that holds a place."""
        if self._window is None or start >= self._window.stop:
            self._window = None  # its place is free once its batches are made
            self._window = self.source.next()
            if self._window is None:
                raise Interrupted
        return self._window

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
        self, stream: Stream, make: Callable[[], T], window: Uploaded | None = None
    ) -> tuple[T, Event]:
        """Have a stream make something, of a window or of none; return it, and the event behind."""
        began = perf_counter()
        if window is not None:
            stream.wait_for(window.copied)
        try:
            with self._there.told():
                made = stream.run(make, [] if window is None else [*window.home.arrays.values()])
        finally:  # also behind an error, for kernels asked for before it
            event = stream.record()
            if window is not None:
                window.home.note(event)
        self.stats.format_s += perf_counter() - began
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

    def _room(self, length: int) -> dict[str, Array]:
        """Make memory for a batch."""
        device = self._there.device
        return {
            name: device.empty((length, *shape), dtype)
            if name in self._there.layout
            else np.empty((length, *shape), dtype)
            for name, (shape, dtype) in self.recipe.layout.items()
        }

    def _placed(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Bring arrays of numbers that were made on the host to the device."""
        asarray = self._there.device.asarray
        return {
            name: asarray(array)
            if isinstance(array, np.ndarray) and on_gpus(array.dtype)
            else array
            for name, array in arrays.items()
        }

    def let_go(self) -> None:
        """Hold no window any more."""
        self._window = None


def _copy(window: Uploaded, a: int, b: int, arrays: dict[str, Array], place: int) -> None:
    """Copy places of a window to those of a batch, from `place` on."""
    for name, array in window.arrays.items():
        arrays[name][place : place + b - a] = array[a:b]
