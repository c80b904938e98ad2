"""Arrays handed to another library, or taken from one, by DLPack: the same memory.

The array that is handed over keeps the batch's memory as any view does, so it stays what
it was as long as anybody holds it. A copy is made where a library asks for one: memory that is
read-only has no place in any of them; JAX and TensorFlow take only memory that starts at a
multiple of 64 bytes (TensorFlow ends the process over any other), JAX makes 32 bits of 64 unless
asked otherwise; pinning copies into memory of its own.

Only libraries that the array-API standard does not cover (torch, TensorFlow) have to be taken
from: others work as they are wherever arrays of any kind do.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from labeled.device.arrays import (
    Array,
    cupy_module,
    cupy_that_finds,
    is_array,
    is_cupy,
    kernels_at,
    to_device,
    to_host,
)
from labeled.errors import ArrayError, LabeledError, LoaderError, MissingExtraError, did_you_mean

Library = Literal["numpy", "cupy", "torch", "jax", "tensorflow"]
LIBRARIES: tuple[str, ...] = get_args(Library)

INSTALL = {name: f"pip install {name}" for name in ("torch", "jax", "tensorflow")}

ALIGNED = 64
"""Where memory must start that TensorFlow takes."""

HOST, CUDA, PINNED, MANAGED = 1, 2, 3, 13
"""Kinds of memory, as DLPack numbers them."""

NOT_NUMERIC = ("string", "resource", "variant")
"""TensorFlow dtypes that are not numbers; it ends the process if DLPack asks for them."""


# ---------------------------------------------------------------- handed over
@dataclass(frozen=True)
class HandOff:
    """Hands arrays to a library.

    Parameters
    ----------
    library : {"numpy", "cupy", "torch", "jax", "tensorflow"}
    pinned : bool
        Put torch tensors of the host into pinned memory, where torch finds a CUDA device.

    Raises
    ------
    LoaderError
        If the library is none of these, or cannot pin.
    MissingExtraError
        If it is not installed.

    Examples
    --------
    >>> HandOff("numpy")(np.zeros(2))
    array([0., 0.])
    """

    library: str
    pinned: bool = False

    def __post_init__(self) -> None:
        if str(self.library) not in LIBRARIES:
            raise LoaderError(
                f"output={self.library!r} is not a library that batches can be handed to; "
                f"{did_you_mean(str(self.library), LIBRARIES)}"
            )
        if self.pinned and self.library != "torch":
            raise LoaderError(f"pinned=True goes with output='torch', not output={self.library!r}")
        if self.library in INSTALL:
            module(self.library)
        elif self.library == "cupy":
            cupy_module()

    @property
    def pins(self) -> bool:
        """Whether tensors of the host are pinned: for a CUDA device, which torch has to find."""
        return self.pinned and bool(module("torch").cuda.is_available())

    def __call__(self, x: Array) -> Any:
        """Return `x` as an array of the library."""
        if self.library == "numpy":
            return to_host(x)
        if self.library == "cupy":
            return to_device(x, "cuda") if isinstance(x, np.ndarray) else x
        if isinstance(x, np.ndarray):
            x = np.ascontiguousarray(x, x.dtype.newbyteorder("="))
            if not x.flags.writeable:  # torch would write to it, and JAX refuses it
                x = x.copy()
        with kernels_at(x):  # the library waits for its current stream
            return self._taken(x)

    def _taken(self, x: Array) -> Any:
        if self.library == "jax":
            return module("jax.dlpack").from_dlpack(x)
        if self.library == "tensorflow":
            return _tensorflow(x)
        made = module("torch").from_dlpack(x)
        if made.device.type == "cpu" and self.pins:
            return made if made.is_pinned() else made.pin_memory()
        return made

    def dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
        """Return what dtype an array of `dtype` has in the library; None if it takes none such."""
        if self.library == "numpy":
            return dtype
        if dtype.kind not in "biufc":
            return None
        if self.library == "cupy":
            return dtype
        try:
            made = self(np.empty(0, dtype))
        except (TypeError, BufferError, RuntimeError):
            return None
        return np.dtype(getattr(made.dtype, "name", str(made.dtype).rpartition(".")[2]))


def _tensorflow(x: Array) -> Any:
    tensorflow = module("tensorflow")
    if not isinstance(x, np.ndarray):
        cupy_module().cuda.get_current_stream().synchronize()  # it waits for no stream but its own
    elif not x.size or x.ctypes.data % ALIGNED or not x.flags.writeable:
        return tensorflow.constant(x)
    return tensorflow.experimental.dlpack.from_dlpack(x.__dlpack__())


def module(name: str) -> Any:
    """Import a library, or a module of it, that arrays are handed to.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise MissingExtraError(
            f"handing arrays to {library} needs {library}, which does not load here ({error}): "
            f"{INSTALL[library]}"
        ) from error


# ---------------------------------------------------------------- taken
def has_dlpack(x: object) -> bool:
    """Whether `x` is an array of another library that its memory can be asked of.

    Examples
    --------
    >>> has_dlpack(np.zeros(3)), has_dlpack([0.0])
    (False, False)
    """
    if isinstance(x, np.ndarray | np.generic) or is_cupy(x) or hasattr(x, "__dask_graph__"):
        return False
    return hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__")


def is_foreign(x: object) -> bool:
    """Whether only DLPack knows what `x` holds: it does not follow the array-API standard."""
    return has_dlpack(x) and not is_array(x)


def adopted(x: Any) -> Array:
    """Return an array of another library as one of NumPy, or of CuPy if it lives on a GPU.

    Parameters
    ----------
    x : array with ``__dlpack__``

    Returns
    -------
    array
        The same memory, which is kept; not to be written to where its library says so.

    Raises
    ------
    ArrayError
        If its library does not let go of it (torch where gradients are followed; texts of
        TensorFlow's), or NumPy has no such numbers or memory (bfloat16; devices that are no
        GPU of NVIDIA's).
    MissingExtraError
        If it lives on a GPU and CuPy is not installed.
    """
    what = f"{library_of(x)}'s {type(x).__name__}"
    if library_of(x) == "tensorflow" and x.dtype.name in NOT_NUMERIC:
        raise ArrayError(f"{what} of {x.dtype.name} is not an array of numbers; pass x.numpy()")
    try:
        kind, number = x.__dlpack_device__()
        if kind in (HOST, PINNED):
            return np.from_dlpack(x)
        if kind in (CUDA, MANAGED):
            cupy = cupy_that_finds(number)
            with cupy.cuda.Device(number):
                return cupy.from_dlpack(x)
    except LabeledError:
        raise
    except Exception as error:  # libraries have errors of their own
        raise ArrayError(
            f"{what} does not come over ({error}); detach() it from gradients, or cast it to "
            f"numbers that NumPy has"
        ) from error
    raise ArrayError(
        f"{what} lives on a device of DLPack's kind {int(kind)}, which is not supported; "
        f"bring it to the host"
    )


def library_of(x: Any) -> str:
    """Return the library that an array belongs to."""
    return type(x).__module__.partition(".")[0]
