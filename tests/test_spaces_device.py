"""The one door to arrays of other libraries, on a machine without a GPU."""

from __future__ import annotations

import sys

import array_api_strict
import numpy as np
import pytest

from labeled import device
from labeled.errors import MissingExtraError
from labeled.spaces import Conv2DSpace, SourceInfo, VectorSpace, compile_specs


def test_numpy_arrays_pass_through():
    x = np.zeros((2, 3), np.float32)
    assert device.to_host(x) is x
    assert device.to_device(x, None) is x
    assert device.to_device(x, "cpu") is x
    assert device.astype(x, "float32") is x
    assert not device.is_cupy(x)


def test_arrays_of_the_standard():
    x = array_api_strict.asarray([[1, 2], [3, 4]], dtype=array_api_strict.uint8)
    assert device.is_array(x)
    assert device.namespace(x).__name__ == "array_api_strict"
    assert device.dtype_of(x) == np.uint8
    assert device.dtype_of(device.astype(x, np.float64)) == np.float64
    for made, expected in (
        (device.permute_dims(x, (1, 0)), [[1, 3], [2, 4]]),
        (device.reshape(x, (1, 4)), [[1, 2, 3, 4]]),
        (device.concat([x, x], 1), [[1, 2, 1, 2], [3, 4, 3, 4]]),
    ):
        np.testing.assert_array_equal(device.to_host(made), expected)


def test_what_is_no_array_is_refused():
    assert not device.is_array([1, 2])
    with pytest.raises(TypeError, match=r"expected an array, found builtins\.list"):
        device.namespace([1, 2])


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cpu:0"])
def test_unknown_devices_are_refused(name, monkeypatch):
    monkeypatch.setattr(device, "cupy_module", lambda: pytest.fail("looked for CuPy first"))
    with pytest.raises(ValueError, match=r"must be 'cpu', 'cuda' or 'cuda:<number>'$"):
        device.to_device(np.zeros(3), name)


def test_a_missing_cupy_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtraError, match="the extra 'gpu-cu13'"):
        device.to_device(np.zeros(3), "cuda:1")


def test_a_missing_scipy_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(MissingExtraError, match=r"pip install scipy \(the extra 'sparse'"):
        VectorSpace(3).np_format_as(np.zeros((2, 3)), VectorSpace(3, sparse=True))


def test_compiled_requests_serve_arrays_of_the_standard():
    own = Conv2DSpace((2, 2), 3, axes=("b", "c", 0, 1))
    sources = {"x": SourceInfo("x", (3, 2, 2), np.dtype("u1"), own)}
    wanted = own.with_axes(("c", 0, 1, "b"))
    compiled = compile_specs((wanted, "x"), sources, dtype="float32", scale=0.5)
    rows = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    got = compiled({"x": array_api_strict.asarray(rows)})
    assert type(got).__module__.startswith("array_api_strict")
    np.testing.assert_array_equal(device.to_host(got), compiled({"x": rows}))
