"""Bytes of files read by a device itself: what it offers, and the host in its place.

A read is begun and goes on by itself, on no stream: nobody may read what it writes before it has
arrived, and its target must be nobody else's from the moment it is asked for. What the bytes
mean is nobody's business here.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from labeled.device.arrays import Array
from labeled.errors import ends_early


class Arrival(Protocol):
    """Bytes on their way from a file; also an event, which is done once they are there."""

    def done(self) -> bool:
        """Whether nothing is written any more; asks, and does not wait."""

    def wait(self) -> None:
        """Let this thread wait until nothing is written any more, whatever came."""

    def check(self) -> None:
        """Wait for all bytes to be there, for any stream.

        Raises
        ------
        OSError, EOFError
            If they do not come: the device says why, or the file ends early.
        """


class DirectFile(Protocol):
    """A file that a device reads; stays open as long as something of it is on its way."""

    def fileno(self) -> int:
        """Return its descriptor, which tells which file was opened."""

    def begin(self, target: Array, offset: int) -> Arrival:
        """Begin to read bytes into memory of the device.

        Parameters
        ----------
        target : contiguous uint8 array, 1-D
            Of the device; what it holds is nobody's until they have arrived.
        offset : int
            Of the first byte in the file.

        Raises
        ------
        OSError
            If they cannot be asked for.
        """


class DirectReader(Protocol):
    """What reads files for a device."""

    @property
    def name(self) -> str:
        """What people know it by: ``"kvikio 26.10"``."""

    def open(self, path: str) -> DirectFile:
        """Open a local file.

        Raises
        ------
        OSError
            If it cannot be.
        """


class Arrived:
    """Bytes that were asked for on the host: they are there, or it is known why not."""

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def check(self) -> None:
        if self._fault is not None:
            raise self._fault


class HostFile:
    """A file that the host reads in the place of a device."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._fd).atexit = False

    def fileno(self) -> int:
        return self._fd

    def begin(self, target: Array, offset: int) -> Arrival:
        got = 0
        while got < len(target):
            try:
                more = os.preadv(self._fd, [target[got:]], offset + got)
            except OSError as fault:
                return Arrived(fault)
            if not more:
                return Arrived(ends_early(offset, len(target), got))
            got += more
        return Arrived()


class HostReader:
    """The host in the place of a device that reads: for machines without one, and for tests.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> target = np.zeros(4, np.uint8)
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"some bytes")
    ...     file.flush()
    ...     HostReader().open(file.name).begin(target, 5).check()
    >>> target.tobytes()
    b'byte'
    """

    name = "the host in its place"

    def open(self, path: str) -> DirectFile:
        return HostFile(path)
