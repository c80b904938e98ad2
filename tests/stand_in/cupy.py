"""A stand-in for CuPy on machines without it: NumPy behind the manners of a device array.

Converting to NumPy without being asked, or mixing with NumPy's arrays, is refused as CuPy
refuses it. Only tests that run in a process of their own import this.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np

copied_to_host = 0
entered: list[int] = []
"""Devices that were made the current one, in turn."""


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    def __init__(self, values, dtype=None, memptr=None, strides=None):
        if memptr is not None:  # a shape, and memory
            view = {"data": (memptr.ptr, False), "shape": values, "strides": strides}
            view |= {"typestr": np.dtype(dtype).str, "version": 3}
            values = SimpleNamespace(__array_interface__=view, memory=memptr)
        self._values = np.asarray(values)

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)
    ndim = property(lambda self: self._values.ndim)
    size = property(lambda self: self._values.size)
    nbytes = property(lambda self: self._values.nbytes)
    strides = property(lambda self: self._values.strides)
    flags = property(lambda self: self._values.flags)
    real = property(lambda self: ndarray(self._values.real))
    imag = property(lambda self: ndarray(self._values.imag))
    T = property(lambda self: ndarray(self._values.T))
    data = property(lambda self: MemoryPointer(self._values))
    device = property(lambda self: cuda.Device(0))

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return wrapped(getattr(ufunc, method)(*map(own, inputs), **own(kwargs)))

    def __array_function__(self, function, types, args, kwargs):
        return wrapped(function(*own(args), **own(kwargs)))

    def __getitem__(self, key):
        return wrapped(self._values[own(key)])

    def __setitem__(self, key, value):
        self._values[own(key)] = own(value)

    def __len__(self):
        return len(self._values)

    def __repr__(self):
        return repr(asnumpy(self))

    def __dask_tokenize__(self):
        return "stand-in", self._values.tobytes(), self.shape, str(self.dtype)

    def __getattr__(self, name):
        if name.startswith("_") or not callable(getattr(np.ndarray, name, None)):
            raise AttributeError(name)
        method = getattr(self._values, name)
        return lambda *args, **kwargs: wrapped(method(*own(args), **own(kwargs)))

    def get(self):
        return asnumpy(self)


def own(value):
    """Return what NumPy works with; arrays of the host are refused."""
    if isinstance(value, ndarray):
        return value._values
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, tuple | list):
        return type(value)(map(own, value))
    if isinstance(value, dict):
        return {name: own(one) for name, one in value.items()}
    return value


def wrapped(value):
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(value)
    return tuple(map(wrapped, value)) if isinstance(value, tuple) else value


def asnumpy(array):
    global copied_to_host
    copied_to_host += 1
    return np.array(array._values if isinstance(array, ndarray) else array)


def asarray(values, dtype=None, order=None, *, copy=None, blocking=False):
    if copy and isinstance(values, ndarray):
        return values.copy()
    return values if isinstance(values, ndarray) else ndarray(np.array(values, dtype))


def broadcast_arrays(*arrays):
    return [wrapped(one) for one in np.broadcast_arrays(*own(arrays))]


class cuda:
    class Device:
        def __init__(self, number=0):
            self.id = number

        def __enter__(self):
            entered.append(self.id)
            return self

        def __exit__(self, *exc):
            pass

    class Stream:
        ptr = 0

        def __init__(self, non_blocking=False):
            pass

        def wait_event(self, event):
            assert isinstance(event, cuda.Event)

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

    class Event:
        done = True

        def __init__(self, disable_timing=False):
            pass

        def record(self, stream):
            assert isinstance(stream, cuda.Stream)

        def synchronize(self):
            pass

    class nvrtc:
        @staticmethod
        def getVersion():
            return 13, 0

    class memory:
        class OutOfMemoryError(MemoryError):
            pass

    class runtime:
        hostAllocPortable = 1

        class CUDARuntimeError(RuntimeError):
            pass

        @staticmethod
        def memGetInfo():
            return 1 << 20, 1 << 30

        @staticmethod
        def getDeviceCount():
            return 4

    get_current_stream = Stream

    @staticmethod
    def PinnedMemory(nbytes, flags):
        return bytearray(nbytes)

    @staticmethod
    def PinnedMemoryPointer(memory, offset):
        return memory

    @staticmethod
    def is_available():
        return True


class MemoryPointer:
    def __init__(self, values):
        self._values = values

    ptr = property(lambda self: self._values.ctypes.data)

    def copy_from_host_async(self, address, nbytes, stream):
        assert isinstance(stream, cuda.Stream)
        assert nbytes == self._values.nbytes
        ctypes.memmove(self._values.ctypes.data, address, nbytes)


class get_default_memory_pool:
    def free_bytes(self):
        return 0

    def used_bytes(self):
        return 0

    def get_limit(self):
        return 0


def __getattr__(name):
    function = getattr(np, name)
    if isinstance(function, type) or not callable(function):
        return function
    return lambda *args, **kwargs: wrapped(function(*own(args), **own(kwargs)))
