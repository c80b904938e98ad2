"""The door to CUDA by CuPy, without a GPU: what it asks of CuPy, as far as that can be seen."""

from __future__ import annotations

import types
from contextlib import nullcontext

import pytest

from labeled.device import cuda
from labeled.errors import LoaderError

STREAM = 0x1230


@pytest.fixture
def cupy(monkeypatch):
    """Return what the door asks of CuPy, where a GPU and driver would be."""
    found = types.SimpleNamespace(
        Device=nullcontext,
        is_available=lambda: True,
        runtime=types.SimpleNamespace(getDeviceCount=lambda: 2),
        nvrtc=types.SimpleNamespace(getVersion=lambda: (13, 0)),
        Stream=types.SimpleNamespace(from_external=lambda theirs: theirs.__cuda_stream__()),
    )
    monkeypatch.setattr(cuda, "cupy_module", lambda: types.SimpleNamespace(cuda=found))
    return found


@pytest.fixture
def torch(monkeypatch):
    """Return a torch whose current stream is a known one, and knows nothing of protocols."""
    streams = {1: types.SimpleNamespace(cuda_stream=STREAM)}
    found = types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=streams.__getitem__))
    monkeypatch.setattr(cuda, "module", lambda name: found)
    return found


def test_kernels_for_torch_go_to_its_current_stream(cupy, torch):
    stream = cuda.CudaDevice(1).consumer_stream("torch")
    assert stream == cuda.CudaStream((0, STREAM), 1)


def test_cupy_itself_takes_that_stream(torch):
    """No warning either: they are errors here."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not hasattr(cupy.cuda.Stream, "from_external"):
        pytest.skip("the tests' stand-in for CuPy")
    found = cupy.cuda.Stream.from_external(cuda.TheirStream(torch.cuda.current_stream(1)))
    assert found.ptr == STREAM


def test_a_cupy_that_cannot_compile_is_told_before_work(cupy):
    assert cuda.cuda_device("cuda:1").number == 1

    def missing():
        raise RuntimeError('Failure finding "libnvrtc.so.13"')

    cupy.nvrtc.getVersion = missing
    with pytest.raises(LoaderError, match=r"finds no NVRTC .*libnvrtc.*cupy-cuda13x\[ctk\]"):
        cuda.cuda_device("cuda:1")
    with pytest.raises(LoaderError, match="there are 2 GPUs"):
        cuda.cuda_device("cuda:2")
