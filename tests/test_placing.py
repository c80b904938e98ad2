"""Labelled arrays on a device: lazily, names kept, nothing copied that was not asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import LabeledError, LoaderError, MissingExtraError
from make_files import DIGIT_LABELS, digits, fuel_file

DATA = digits(40)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return fuel_file(
        tmp_path_factory.mktemp("data") / "d.hdf5",
        {**DATA, "names": np.array(["a"] * 40)},
        {"train": (0, 30)},
        {**DIGIT_LABELS, "names": ("batch",)},
        chunks={"features": (8, 3, 5, 7)},
    )


def test_the_host_is_a_device(path):
    x = labeled.open_dataset(path, chunks={"batch": 8})["features"]
    same = x.labeled.to_device("cpu")
    assert same.labeled.device == x.labeled.device == "cpu"
    assert same.chunks == x.chunks
    assert same.identical(x)


def test_what_cannot_go_there_is_refused_before(path):
    ds = labeled.open_dataset(path)
    with pytest.raises(LoaderError, match="device='gpu' must be 'cpu', 'cuda'"):
        ds["features"].labeled.to_device("gpu")
    with pytest.raises(LoaderError, match="'names' holds object, which a GPU cannot hold"):
        ds["names"].labeled.to_device("cuda")


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_the_extra_is_named_where_it_is_needed(path):
    x = labeled.open_dataset(path)["features"]
    lazy = x.labeled.to_device("cuda")  # may be computed where CuPy is
    with pytest.raises(MissingExtraError, match="the extra 'gpu-cu13'"):
        lazy.compute(scheduler="synchronous")
    with pytest.raises(LabeledError, match="the extra 'gpu-cu13'"):
        x.compute().labeled.to_device("cuda")


def test_lazy_arrays_of_another_byte_order_say_what_a_gpu_will_hold():
    x = xr.DataArray(da.arange(6, dtype=">f4"), dims="x")
    assert x.labeled.to_device("cpu").dtype == x.dtype
    assert x.labeled.to_device("cuda").dtype.isnative


SCRIPT = """
import sys
import cupy, labeled, numpy as np
from labeled.spaces import Conv2DSpace, VectorSpace

ds = labeled.open_dataset(sys.argv[1], chunks={"batch": 8})
on_host = ds["features"].compute()
x = ds["features"].labeled.to_device("cuda")
assert x.labeled.device == "cuda:0" and isinstance(x.data._meta, cupy.ndarray)
assert x.dims == on_host.dims and "features" in repr(x) and x._repr_html_()

def same(there, here):
    there = there.compute()
    assert isinstance(there.data, cupy.ndarray), type(there.data)
    assert there.labeled.device == "cuda:0"
    back = there.labeled.to_device("cpu")
    assert type(back.data) is np.ndarray
    np.testing.assert_allclose(back, here)
    assert back.dims == here.dims

same(x, on_host)
same(x[::3].isel(channel=1), on_host[::3].isel(channel=1))
same(x.sel(batch=slice(None)).transpose("width", ...), on_host.transpose("width", ...))
same(x.astype("f4") * 2 + 1, on_host.astype("f4") * 2 + 1)
same(x.astype("f4").sum("batch"), on_host.astype("f4").sum("batch"))
same(x.max(("height", "width")), on_host.max(("height", "width")))
space = Conv2DSpace((5, 7), channels=3, axes=("c", 0, 1, "b"))
same(x.labeled.format_as(space), on_host.labeled.format_as(space))
flat = VectorSpace(105)
same(x.labeled.format_as(flat), on_host.labeled.format_as(flat))

x = x.assign_coords(channel=["r", "g", "b"])  # indexes stay on the host
same(x.sel(channel="g"), on_host.isel(channel=1))

before = cupy.copied_to_host
repr(x), x._repr_html_(), repr(x.labeled.space), x.nbytes, x.labeled.device
assert cupy.copied_to_host == before

options = {"shuffle": True, "seed": 3, "memory": "4 MiB"}
ds = ds.select("features", "targets")
for there, here in zip(ds.batches(9, device="cuda", **options), ds.batches(9, **options)):
    for name in here:
        assert isinstance(there[name].data, cupy.ndarray)
        assert there[name].dims == here[name].dims
        np.testing.assert_array_equal(there.arrays[name].get(), here.arrays[name])
    assert there.event.done()
    assert "labeled.Batch" in repr(there)
try:
    ds.batches(9, device="cuda:1")
except labeled.LabeledError as error:
    assert "there are 1 GPUs" in str(error)
print("done")
"""


def test_blocks_go_to_a_device_and_stay_there(path):
    """With a stand-in that refuses what CuPy refuses, in a process of its own."""
    stand_in = Path(__file__).parent / "stand_in"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(stand_in), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, path],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "done\n", done.stderr
