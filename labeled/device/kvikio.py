"""The one door to kvikio, NVIDIA's library that reads files straight to a GPU (by cuFile).

**This has not run on a GPU yet.** Its reads were made without one, into memory of the host.

Reads are done by threads of kvikio's own (``KVIKIO_NTHREADS``, of which there is 1 unless set),
on no stream of anybody's: with GPUDirect Storage the disk writes to the device, without it
(``KVIKIO_COMPAT_MODE``, by itself where the system has none) bytes go through pinned memory of
kvikio's. A read that is done is there for every stream.
"""

from __future__ import annotations

from typing import Any

from labeled.device.arrays import Array, cupy_module
from labeled.device.direct import Arrival, DirectFile
from labeled.errors import MissingExtraError, ends_early, how_to_install
from labeled.later import extra_module

NEEDED = "files read by a GPU itself need kvikio (for CUDA 13, or 12 to match the driver)"


class KvikioArrival:
    """Bytes on their way; keeps their file open, which kvikio reads by its descriptor."""

    def __init__(self, future: Any, file: Any, offset: int, want: int) -> None:
        self._future: Any = future
        self._file = file
        self._offset, self._want = offset, want
        self._got = 0
        self._fault: Exception | None = None

    def done(self) -> bool:
        future = self._future
        return future is None or bool(future.done())

    def wait(self) -> None:
        if self._future is None:  # a future tells once
            return
        try:
            self._got = self._future.get()
        except Exception as fault:  # kvikio raises RuntimeError, and ends in the end of a file so
            self._fault = fault
        self._future = self._file = None

    def check(self) -> None:
        self.wait()
        if self._fault is not None:
            raise OSError(f"kvikio: {self._fault}") from self._fault
        if self._got != self._want:
            raise ends_early(self._offset, self._want, self._got)


class KvikioFile:
    """A file that kvikio reads; closed when nobody refers to it."""

    def __init__(self, file: Any, number: int) -> None:
        self._file = file
        self._number = number

    def fileno(self) -> int:
        return int(self._file.fileno())

    def begin(self, target: Array, offset: int) -> Arrival:
        with cupy_module().cuda.Device(self._number):
            try:
                future = self._file.pread(target, target.nbytes, offset)
            except (RuntimeError, ValueError) as fault:
                raise OSError(f"kvikio: {fault}") from fault
        return KvikioArrival(future, self._file, offset, target.nbytes)


class KvikioReader:
    """Reads files for a GPU.

    Parameters
    ----------
    library : module
        kvikio.
    number : int
        Of the GPU.
    """

    def __init__(self, library: Any, number: int) -> None:
        self._library = library
        self._number = number

    @property
    def name(self) -> str:
        return "kvikio " + ".".join(self._library.__version__.split(".")[:2])

    def open(self, path: str) -> DirectFile:
        try:
            return KvikioFile(self._library.CuFile(path, "r"), self._number)
        except RuntimeError as fault:
            raise OSError(f"kvikio: {fault}") from fault


def kvikio_reader(number: int) -> KvikioReader:
    """Return what reads files for a GPU of this process.

    Raises
    ------
    MissingExtraError
        If kvikio is not installed, or does not load; names the extras.
    """
    try:
        library = extra_module("kvikio", NEEDED, "kvikio-cu13", "gds-cu13")
    except RuntimeError as fault:  # what it says where cuFile, which it loads, is missing
        raise MissingExtraError(
            f"{NEEDED}, which does not load here ({fault}): "
            + how_to_install("kvikio-cu13", "gds-cu13")
        ) from fault
    return KvikioReader(library, number)
