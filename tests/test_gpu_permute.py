"""Copies and gathers on a GPU are those of the host: ``pytest -m gpu``."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from labeled import permute

pytestmark = pytest.mark.gpu

SHAPES = [(70, 3, 16, 20), (5, 4, 65, 66), (9, 1, 28, 28), (600, 700)]
POISON = 0xA5


@pytest.fixture(scope="module")
def cupy():
    """Return CuPy on a working device."""
    found = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        found.zeros(1)
    except Exception as error:
        pytest.skip(f"no CUDA device: {error}")
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("item", ["u1", "f2", "f4", "f8", "c16"])
def test_a_device_array_moves_as_numpy_does(cupy, shape, item):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(item)
    for axes in itertools.permutations(range(len(shape))):
        result = permute.copy(cupy.asarray(src), axes)
        assert isinstance(result, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(result), src.transpose(axes))


@pytest.mark.parametrize("final", ["f4", "f2", "f8"])
def test_a_device_array_scales_as_numpy_does(cupy, final):
    src = np.random.default_rng(0).integers(0, 256, (70, 3, 16, 20)).astype("u1")
    scale, shift = np.random.default_rng(1).uniform(0.1, 2, (2, 3, 1, 1))
    given = {"dtype": final, "scale": scale, "shift": shift}
    for axes in itertools.permutations(range(4)):
        result = permute.copy(cupy.asarray(src), axes, **given)
        np.testing.assert_array_equal(cupy.asnumpy(result), permute.copy(src, axes, **given))


@pytest.mark.parametrize("item", ["u1", "f2", "f4"])
def test_gathered_device_rows_are_those_of_the_host(cupy, item):
    rng = np.random.default_rng(5)
    src = rng.integers(0, 256, (300, 3, 40, 44)).astype(item)
    rows = rng.integers(0, 300, 257)
    scale = rng.uniform(0.1, 2, (3, 1, 1)).astype("f4")
    for axes in itertools.permutations(range(4)):
        for changes in ({}, {"dtype": "f4", "scale": scale, "shift": -1.0}):
            # whatever lies in the pool must not be seen in the result
            cupy.full(257 * 3 * 40 * 44 * 4, POISON, np.uint8)
            gathered = permute.gather(cupy.asarray(src), rows, axes, **changes)
            expected = permute.gather(src, rows, axes, **changes)
            np.testing.assert_array_equal(cupy.asnumpy(gathered), expected)
