"""Where arrays live: the one door to CuPy, to streams and events, and to other libraries."""

from labeled.device.arrays import (
    Array,
    astype,
    concat,
    copy_into,
    cupy_module,
    device_number,
    dtype_of,
    is_array,
    is_cupy,
    namespace,
    own_dtype,
    owned_copy,
    permute_dims,
    reshape,
    to_device,
    to_host,
)
from labeled.device.cuda import cuda_device
from labeled.device.handoff import LIBRARIES, HandOff, Library
from labeled.device.streams import Device, Event, HostDevice, Stream

__all__ = [
    "LIBRARIES",
    "Array",
    "Device",
    "Event",
    "HandOff",
    "HostDevice",
    "Library",
    "Stream",
    "astype",
    "concat",
    "copy_into",
    "cuda_device",
    "cupy_module",
    "device_number",
    "dtype_of",
    "is_array",
    "is_cupy",
    "namespace",
    "own_dtype",
    "owned_copy",
    "permute_dims",
    "reshape",
    "to_device",
    "to_host",
]
