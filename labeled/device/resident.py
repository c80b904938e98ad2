"""Arrays of the host that are kept on a device, so that only row numbers go there for a batch."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from labeled.device.arrays import Array
from labeled.device.streams import Device, HostArray


class Resident:
    """A device, and the arrays that were brought there: each once, as long as the host has it.

    **This has not run on a GPU yet.**

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._there: dict[int, Array] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.device.name

    def array(self, host: HostArray) -> Array:
        """Return an array on the device; copied there when it is first asked for."""
        with self._lock:
            key = id(host)
            if key not in self._there:
                self._there[key] = self.device.asarray(host)
                weakref.finalize(host, self._there.pop, key, None)
            return self._there[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return Resident, (self.device,)
