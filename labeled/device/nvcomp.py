"""The one door to nvCOMP, NVIDIA's library that decodes compressed bytes on a GPU.

**This has not run on a GPU yet.** Its calls follow the headers that come with nvCOMP 6, and were
made without a GPU as far as they can be.

The batched functions of its C interface are called, by ctypes: they are asked for on a stream and
do not wait, their memory is given to them, and they tell of each frame how it went. (The Python
classes that nvCOMP has, too, wait for the device to learn sizes that are known here.)

nvCOMP promises nothing where bytes are damaged: it may read or write anywhere on the device. So
this is for files that are trusted.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labeled.device.arrays import Array, cupy_module
from labeled.device.decoding import REFUSED, Frames
from labeled.errors import LoaderError
from labeled.later import extra_module

NEEDED = "decoding on a GPU needs nvCOMP (for CUDA 13, or 12 to match the driver)"

NAMES = {"deflate": "Deflate", "zstd": "Zstd", "lz4": "LZ4"}
MOST_BYTES = {"deflate": (1 << 32) - 1, "zstd": (1 << 31) - 1, "lz4": (1 << 32) - 1}
"""Decoded bytes of a frame at most."""

_SUCCESS = 0


class _Options(ctypes.Structure):
    """Options of decompression, of any codec: 64 bytes, handed over by value.

    Zeros are what the headers call the default: nvCOMP chooses how, LZ4 without bit shuffle.
    """

    _fields_ = (("bytes", ctypes.c_uint64 * 8),)


class _Properties(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("cudart_version", ctypes.c_uint32))


@dataclass(frozen=True, eq=False)
class NvcompDecoder:
    """Decodes frames on a GPU.

    Parameters
    ----------
    library : ctypes.CDLL
        nvCOMP's.
    """

    library: Any

    @cached_property
    def name(self) -> str:
        told = _Properties()
        self._asked(self._function("nvcompGetProperties", None), ctypes.byref(told))
        version = told.version  # a thousand a major version, a hundred a minor one
        return f"nvCOMP {version // 1000}.{version // 100 % 10}"

    def why_not(self, codec: str, frame_bytes: int) -> str | None:
        if codec not in NAMES:
            return f"{codec} is not decoded on a device"
        if frame_bytes > MOST_BYTES[codec]:
            return f"chunks of {frame_bytes:,} bytes are larger than what nvCOMP decodes"
        return None

    def temp_bytes(self, codec: str, n_frames: int, frame_bytes: int) -> int:
        size = ctypes.c_size_t
        ask = self._function(
            f"nvcompBatched{NAMES[codec]}DecompressGetTempSize",
            (size, size, _Options, ctypes.POINTER(size), size, ctypes.c_void_p),
        )
        found = size()
        self._asked(
            ask,
            n_frames,
            frame_bytes,
            _Options(),
            ctypes.byref(found),
            n_frames * frame_bytes,
            None,
        )
        return int(found.value)

    def decode(self, codec: str, packed: Array, frames: Frames, out: Array) -> Array:
        cupy = cupy_module()
        n = len(frames.starts)
        if n == 0:  # a window of chunks that were never stored, or not compressed: nvCOMP refuses
            return cupy.empty(0, np.int64)
        inputs, outputs = packed.data.ptr + frames.starts, out.data.ptr + frames.places
        sent = cupy.asarray(np.stack([inputs, frames.sizes, outputs, frames.lengths]))
        found = cupy.empty(n, np.int64)
        status = cupy.empty(n, np.int32)
        temp_bytes = self.temp_bytes(codec, n, int(frames.lengths.max(initial=0)))
        temp = cupy.empty(max(temp_bytes, 1), np.uint8)
        address, size = ctypes.c_void_p, ctypes.c_size_t
        ask = self._function(
            f"nvcompBatched{NAMES[codec]}DecompressAsync",
            (address, address, address, address, size, address, size, address, _Options, address,
             address),
        )  # fmt: skip
        self._asked(
            ask,
            sent[0].data.ptr,  # addresses of compressed frames, and their sizes
            sent[1].data.ptr,
            sent[3].data.ptr,  # bytes there is room for
            found.data.ptr,
            n,
            temp.data.ptr,
            temp_bytes,
            sent[2].data.ptr,  # addresses of decoded frames
            _Options(),
            status.data.ptr,
            cupy.cuda.get_current_stream().ptr,
        )
        return cupy.where(status == _SUCCESS, found, REFUSED)

    def _function(self, name: str, kinds: tuple[Any, ...] | None) -> Any:
        function = getattr(self.library, name)
        function.restype = ctypes.c_int
        if kinds is not None:
            function.argtypes = kinds
        return function

    def _asked(self, function: Any, *arguments: Any) -> None:
        """Call a function of nvCOMP.

        Raises
        ------
        LoaderError
            If it refuses; says which, and the number that nvCOMP gives the reason.
        """
        status = function(*arguments)
        if status != _SUCCESS:
            raise LoaderError(
                f"nvCOMP: {function.__name__} refused with status {status}; decode chunks on the "
                "host, with decode='host'"
            )


def nvcomp_decoder() -> NvcompDecoder:
    """Return what decodes on the GPUs of this process.

    Raises
    ------
    MissingExtraError
        If nvCOMP is not installed, or does not load; names the extras.
    """
    package = extra_module("nvidia.libnvcomp", NEEDED, "nvidia-libnvcomp-cu13", "nvcomp-cu13")
    library = package.load_library()
    if library is None:
        raise LoaderError(f"{NEEDED}: the package is there, but its library does not load")
    return NvcompDecoder(library)
