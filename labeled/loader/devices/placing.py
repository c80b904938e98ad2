"""What a pipeline makes on the host, brought to a device before its batch stage.

Such batches are copied when the consumer asks for them, from memory that the pipeline made:
nothing of the next one is on its way meanwhile, as it is where windows go to the device as
they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from labeled.device import Device, on_gpus
from labeled.errors import DeviceMemoryError
from labeled.loader.batches.batch import Batch


def placed(
    data: Any,
    device: Device,
    library: str | None = None,
    then: Callable[[Any], Any] = lambda made: made,
) -> Any:
    """Return a batch whose arrays of numbers are on a device.

    Parameters
    ----------
    data : Batch, array, or mapping, tuple or list of arrays
        What is none of them, such as texts and examples of different shapes, stays.
    library : str, optional
        Whose arrays the consumer asked for.
    then : callable
        What becomes of it there, on the same stream.

    Raises
    ------
    DeviceMemoryError
        If there is no room.

    Examples
    --------
    >>> from labeled.device.streams import HostDevice
    >>> placed((np.arange(3), {"names": np.array(["a", "b"])}), HostDevice())
    (array([0, 1, 2]), {'names': array(['a', 'b'], dtype='<U1')})
    """
    stream = device.consumer_stream(library)
    try:
        made = stream.run(lambda: then(_placed(data, device)), [])
    except device.memory_errors as error:
        raise DeviceMemoryError(
            f"device {device.name!r} is out of memory: a batch that a pipeline made on the host "
            "finds no room there; give smaller batches, or let go of those that are kept"
        ) from error
    if isinstance(made, Batch):
        made.event = stream.record()
    return made


def _placed(data: Any, device: Device) -> Any:
    if isinstance(data, Batch):
        return data.with_arrays({name: _placed(a, device) for name, a in data.arrays.items()})
    if isinstance(data, xr.DataArray):
        return data.copy(data=_placed(data.data, device))
    if isinstance(data, dict):
        return {name: _placed(one, device) for name, one in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_placed(one, device) for one in data))
    if isinstance(data, tuple | list):
        return type(data)(_placed(one, device) for one in data)
    if isinstance(data, np.ndarray) and on_gpus(data.dtype):
        return device.asarray(data)
    return data
