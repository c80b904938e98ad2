"""Devices, streams and events, as little of them as a loader needs; and the host as one.

A stream is a line of work that is done in order, some time after it was asked for. An
event marks a place in a stream: it is done once everything before it is. What one stream
needs of another is said by events alone, so that nothing here depends on how long work
takes. On the host work is done when it is asked for, and every event is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from labeled.device.arrays import Array

HostArray = npt.NDArray[Any]
T = TypeVar("T")


class Event(Protocol):
    """A place in a stream."""

    def done(self) -> bool:
        """Whether everything before it is done; asks, and does not wait."""

    def wait(self) -> None:
        """Let this thread wait until it is done."""


class Stream(Protocol):
    """Work that is done in order."""

    def record(self) -> Event:
        """Mark this place."""

    def wait_for(self, event: Event) -> None:
        """Let what is asked for from here on begin once `event` is done; returns at once."""

    def upload(self, host: HostArray, target: Array) -> None:
        """Copy host memory to a device array of its shape and dtype; may return before it is done.

        Until it is, `host` must stay as it is.
        """

    def run(self, kernels: Callable[[], T], reads: Sequence[Array]) -> T:
        """Ask for kernels, which read certain arrays.

        Memory they make belongs to this stream.
        """


@runtime_checkable
class Device(Protocol):
    """Where batches are made."""

    @property
    def name(self) -> str:
        """As it is asked for: ``"cuda:1"``."""

    @property
    def memory_errors(self) -> tuple[type[BaseException], ...]:
        """What is raised where memory ends."""

    def free_bytes(self) -> int | None:
        """Memory that is free, if the device knows."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return new memory of the device."""

    def asarray(self, host: HostArray) -> Array:
        """Return host values on the device, once they are there."""

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Return new host memory that copies to the device may start from at any time.

        Raises one of `memory_errors` where the system gives no more of it.
        """

    def copy_stream(self) -> Stream:
        """Return a stream of its own, for copies."""

    def consumer_stream(self, library: str | None) -> Stream:
        """Return the stream to which this thread's next work would go.

        Parameters
        ----------
        library : str, optional
            Whose arrays the consumer asked for.
        """


class DoneEvent:
    """An event of the host: done."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        pass


class HostStream:
    """Work that is done when it is asked for."""

    def record(self) -> Event:
        return DoneEvent()

    def wait_for(self, event: Event) -> None:
        event.wait()

    def upload(self, host: HostArray, target: Array) -> None:
        np.copyto(target, host)

    def run(self, kernels: Callable[[], T], reads: Sequence[Array]) -> T:
        return kernels()


class HostDevice:
    """The host, used as a device is: for machines without one, and for tests.

    Examples
    --------
    >>> HostDevice().copy_stream().record().done()
    True
    """

    name = "host"
    memory_errors: tuple[type[BaseException], ...] = (MemoryError,)

    def free_bytes(self) -> int | None:
        return None

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def asarray(self, host: HostArray) -> Array:
        return host

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        return np.empty(shape, dtype)

    def copy_stream(self) -> Stream:
        return HostStream()

    def consumer_stream(self, library: str | None) -> Stream:
        return HostStream()
