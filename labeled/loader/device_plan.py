"""What a loader needs on a device, decided once: which device, which sources, how much memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes

from labeled.device import cuda_device, on_gpus
from labeled.device.streams import Device, HostArray
from labeled.errors import DeviceMemoryError, LoaderError
from labeled.loader.buffers import Layout, owned
from labeled.loader.lanes import Lane
from labeled.loader.layout import BatchLayout
from labeled.loader.memory import Sizes
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource

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

    def memory(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Return host memory for an array of a slot: pinned, where copies will start from it."""
        return self._pinned(shape, dtype) if name in self.layout else owned(shape, dtype)

    def _pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        with self._pinning(math.prod(shape) * dtype.itemsize):
            made = self.device.pinned(shape, dtype)
        assert made[:0].base is made, "views must refer to it, for slots to know who is held"
        return made

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


def row_bytes(layout: Layout) -> int:
    """Bytes of one row of all arrays."""
    return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in layout.values())


def device_plan(
    device: Device,
    lanes: Sequence[Lane],
    sizes: Sizes,
    finish: BatchLayout,
    held_rows: int,
    *,
    library: str | None,
) -> DevicePlan:
    """Work out which sources go to a device as stored, and what that takes there.

    Examples of different shapes, and values that are decoded, are laid out on the host and
    go there batch by batch; texts stay.

    Parameters
    ----------
    held_rows : int
        Rows of the largest batch.
    library : str, optional
        Whose arrays the consumer asked for.
    """
    layout = {
        lane.name: (lane.source.row_shape, lane.source.stored_dtype)
        for lane in lanes
        if _goes_as_stored(lane.source)
    }
    rows = max(sizes.job_rows, 1)
    spanned = (max(held_rows, 1) - 1) // rows + 2  # windows that one batch may lie in
    made = row_bytes(layout) + finish.out_row_bytes + finish.placed_row_bytes
    return DevicePlan(
        device,
        layout,
        rows,
        spanned,
        held_rows * made + sizes.laid_bytes,
        library,
    )


def _goes_as_stored(source: AnySource) -> bool:
    dtype = source.stored_dtype
    plain = not isinstance(source, RaggedSource) and not source.decodes
    return plain and on_gpus(dtype) and dtype.isnative


def check_dtypes(finish: BatchLayout) -> None:
    """Refuse sources whose numbers no GPU has arrays of.

    Raises
    ------
    LoaderError
        If one is handed out as long doubles.
    """
    for name, dtype in finish.out_dtypes.items():
        if dtype.kind in "fc" and not on_gpus(dtype):
            wanted = "float64" if dtype.kind == "f" else "complex128"
            raise LoaderError(
                f"source {name!r} is {dtype}, which a GPU has no arrays of; give "
                f"dtype={{{name!r}: {wanted!r}}}, or leave it out with select()"
            )


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
    device: Device, asked: Any, *, skips: bool, piped: bool, output: str | None
) -> None:
    """Raise :class:`LoaderError` where an option does not go with a device."""
    clashes = {
        "errors='skip', which leaves rows out on the host": skips and not piped,
        "output='numpy', whose arrays are the host's": output == "numpy" and device.name != "host",
    }
    for words, clash in clashes.items():
        if clash:
            raise LoaderError(f"device={asked!r} does not go with {words}; leave one of them out")
