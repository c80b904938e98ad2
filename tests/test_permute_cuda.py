"""The CUDA kernel: its arithmetic on any machine with a C++ compiler, the whole of it on a GPU."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess

import numpy as np
import pytest

from labeled import permute
from labeled.permute import cuda
from labeled.permute.job import merged_factor
from labeled.permute.plan import Request, plan

COMPILER = shutil.which("c++")
ONE_THREAD = """
struct { unsigned x; } threadIdx = {0}, blockDim = {1}, blockIdx = {0};
#define __device__
#define __global__
#define __shared__ static
#define __restrict__
#define __syncthreads()
"""
MANY_BLOCKS = """
extern "C" void run(int blocks, void* src, void* dst, void* table, void* scale, void* shift) {
    for (blockIdx.x = 0; blockIdx.x < (unsigned)blocks; ++blockIdx.x)
        permute((ITEM*)src, (FINAL*)dst, (Big*)table, (FACTOR*)scale, (FACTOR*)shift);
}
"""
SHAPES = [(70, 3, 16, 20), (5, 4, 65, 66), (9, 1, 28, 28), (600, 700)]


@pytest.fixture(scope="module")
def host_kernel(tmp_path_factory):
    """Compile the kernel's source for this processor, one thread a block."""
    if COMPILER is None:
        pytest.skip("no C++ compiler to run the kernel's source on this processor")
    folder = tmp_path_factory.mktemp("kernel")

    def build(item, final):
        name = folder / f"permute_{np.dtype(item).char}_{np.dtype(final).char}"
        text = ONE_THREAD + cuda.source(np.dtype(item), np.dtype(final)) + MANY_BLOCKS
        name.with_suffix(".cpp").write_text(text)
        command = [COMPILER, "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
        files = ["-o", str(name.with_suffix(".so")), str(name.with_suffix(".cpp"))]
        subprocess.run([*command, *files], check=True)
        return ctypes.CDLL(str(name.with_suffix(".so"))).run

    built: dict[tuple[str, str], object] = {}

    def run(src, axes, final, scale):
        strides = src.strides
        found = plan(
            Request(
                src.shape, strides, src.dtype, axes, final,
                None if scale is None else scale.shape, None, None,
            )
        )  # fmt: skip
        item, made = cuda.item_types(found, src.dtype)
        key = (item.char, made.char)
        built.setdefault(key, build(item, made)) if key not in built else None
        laid = np.ones(1, made) if scale is None else merged_factor(found, scale, src.ndim)
        laid = np.ascontiguousarray(laid)
        steps = cuda.factor_steps(laid.shape, len(found.lengths))
        numbers = np.array(
            cuda.table(found, src.itemsize, steps, (0,) * len(found.lengths)), np.int64
        )
        shift = np.full(1, -0.0 if made.kind == "f" else 0, made)
        out = np.full(found.shape, 77, found.final)
        arrays = (src, out, numbers, laid, shift)
        blocks = int(numbers[0] * numbers[5] * numbers[6])
        built[key](blocks, *(ctypes.c_void_p(a.__array_interface__["data"][0]) for a in arrays))
        return out

    return run


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("item", ["u1", "f4", "f8"])
def test_the_source_moves_items_as_numpy_does(host_kernel, shape, item):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(item)
    for axes in itertools.permutations(range(len(shape))):
        np.testing.assert_array_equal(host_kernel(src, axes, None, None), src.transpose(axes))
    broken = src[::-2, ..., ::3]
    back = tuple(reversed(range(len(shape))))
    np.testing.assert_array_equal(host_kernel(broken, back, None, None), broken.transpose(back))


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_the_source_scales_as_numpy_does(host_kernel, shape):
    src = np.random.default_rng(0).integers(0, 256, shape).astype("u1")
    scale = np.random.default_rng(1).uniform(0.1, 2, (shape[1], 1, 1)).astype("f4")
    for axes in itertools.permutations(range(4)):
        expected = (src.astype("f4") * scale).transpose(axes)
        np.testing.assert_array_equal(host_kernel(src, axes, np.float32, scale), expected)


@pytest.fixture(scope="module")
def cupy():
    """Return CuPy on a working device."""
    found = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        found.zeros(1)
    except Exception as error:
        pytest.skip(f"no CUDA device: {error}")
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("item", ["u1", "f2", "f4", "f8", "c16"])
def test_a_device_array_moves_as_numpy_does(cupy, shape, item):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(item)
    for axes in itertools.permutations(range(len(shape))):
        result = permute.copy(cupy.asarray(src), axes)
        assert isinstance(result, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(result), src.transpose(axes))


@pytest.mark.gpu
@pytest.mark.parametrize("final", ["f4", "f2", "f8"])
def test_a_device_array_scales_as_numpy_does(cupy, final):
    src = np.random.default_rng(0).integers(0, 256, (70, 3, 16, 20)).astype("u1")
    scale, shift = np.random.default_rng(1).uniform(0.1, 2, (2, 3, 1, 1))
    given = {"dtype": final, "scale": scale, "shift": shift}
    for axes in itertools.permutations(range(4)):
        result = permute.copy(cupy.asarray(src), axes, **given)
        np.testing.assert_array_equal(cupy.asnumpy(result), permute.copy(src, axes, **given))
