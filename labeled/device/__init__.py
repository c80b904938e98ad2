"""Where arrays live: the one door to CuPy, to streams and events, and to other libraries."""

from labeled.device.adopting import adopted, brought_back, has_dlpack, is_foreign, library_of
from labeled.device.arrays import (
    Array,
    astype,
    check_copy,
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
from labeled.device.decoding import Decoder, Frames, HostDecoder, adler32
from labeled.device.direct import Arrival, Arrived, DirectFile, DirectReader, HostReader
from labeled.device.handoff import LIBRARIES, HandOff, Library
from labeled.device.streams import Device, Event, HostDevice, Stream

__all__ = [
    "LIBRARIES",
    "Array",
    "Arrival",
    "Arrived",
    "Decoder",
    "Device",
    "DirectFile",
    "DirectReader",
    "Event",
    "Frames",
    "HandOff",
    "HostDecoder",
    "HostDevice",
    "HostReader",
    "Library",
    "Stream",
    "adler32",
    "adopted",
    "astype",
    "brought_back",
    "check_copy",
    "concat",
    "copy_into",
    "cuda_device",
    "cupy_module",
    "device_number",
    "dtype_of",
    "has_dlpack",
    "is_array",
    "is_cupy",
    "is_foreign",
    "library_of",
    "namespace",
    "own_dtype",
    "owned_copy",
    "permute_dims",
    "reshape",
    "to_device",
    "to_host",
]
