"""What the tests of a GPU share: CuPy where there is one, kernels that take long, what is held."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

from labeled.device import CudaDevice

ROUNDED = 1 << 16
"""Bytes that sizes are rounded up by, and row numbers take."""

SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
    const long long began = clock64();
    while (clock64() - began < cycles) {}
}
"""
CYCLES_PER_MS = 1_700_000


def cupy_or_skip():
    """Return CuPy; skips where it is not installed, or finds no GPU."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("there is no GPU")
    return cupy


def torch_or_skip():
    """Return torch; skips where it is not installed, or has no CUDA."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


@cache
def spinner(cupy):
    return cupy.RawKernel(SPIN, "spin")


def delay(cupy, ms):
    """Keep the stream that is current busy; returns at once."""
    spinner(cupy)((1,), (1,), (int(ms * CYCLES_PER_MS),))


def used_bytes(cupy):
    """Return what arrays take of the device, those that nobody refers to left out."""
    gc.collect()
    return cupy.get_default_memory_pool().used_bytes()


class Pinned:
    """Counts what is pinned for copies to a device, and what CuPy pins on the way of its own."""

    def __init__(self):
        self.live = self.most = self.staged = 0

    def takes(self, array):
        self.live += array.nbytes
        self.most = max(self.most, self.live)
        weakref.finalize(array, self.freed, array.nbytes)

    def freed(self, nbytes):
        self.live -= nbytes


@contextmanager
def pinned_meanwhile(cupy):
    """Yield counts of pinned memory."""
    counts, pool, does = Pinned(), cupy.get_default_pinned_memory_pool(), CudaDevice.pinned

    def noted(device, shape, dtype):
        made = does(device, shape, dtype)
        counts.takes(made)
        return made

    def staging(nbytes):
        counts.staged = max(counts.staged, nbytes)
        return pool.malloc(nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaDevice, "pinned", noted)
        cupy.cuda.set_pinned_memory_allocator(staging)
        try:
            yield counts
        finally:
            cupy.cuda.set_pinned_memory_allocator(pool.malloc)


@contextmanager
def most_used(cupy):
    """Yield a list that gets the most bytes of the device that were in use at a time."""

    class Count(cupy.cuda.MemoryHook):
        name = "Count"
        live = most = 0

        def malloc_postprocess(self, **told):
            self.live += told["mem_size"]
            self.most = max(self.most, self.live)

        def free_postprocess(self, **told):
            self.live -= told["mem_size"]

    gc.collect()
    found, count = [], Count()
    with count:
        yield found
        gc.collect()
    found.append(count.most)


def values(shape, item, seed=0):
    """Return small numbers, which every dtype holds."""
    found = np.random.default_rng(seed).integers(0, 120, shape)
    if np.dtype(item).kind == "b":
        found = found % 2
    if np.dtype(item).kind == "c":
        found = found + 1j * found[..., ::-1]
    return found.astype(item)
