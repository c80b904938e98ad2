"""The laws of the device path on a GPU: ``pytest -m gpu``."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from on_gpu import cupy_or_skip, used_bytes

import labeled
from labeled import permute
from labeled.errors import DeviceMemoryError
from labeled.spaces import Conv2DSpace
from make_files import DIGIT_LABELS, digits, fuel_file

pytestmark = pytest.mark.gpu

N = 4000
DATA = digits(N)
SPACE = Conv2DSpace(shape=(5, 7), num_channels=3, axes=("c", 0, 1, "b"))


@pytest.fixture(scope="module")
def cupy():
    return cupy_or_skip()


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = fuel_file(
        tmp_path_factory.mktemp("data") / "d.hdf5",
        DATA,
        {"train": (0, N)},
        DIGIT_LABELS,
        chunks={"features": (64, 3, 5, 7)},
        compression={"features": "gzip"},
    )
    return labeled.open_dataset(path, chunks={"batch": 512})


def test_any_stream_may_consume(cupy, ds):
    wanted = int(DATA["features"].sum(dtype=np.int64))
    for stream in (cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.ptds):
        with stream:
            total = cupy.zeros((), np.int64)
            for batch in ds.batches(64, device="cuda", memory="6 MiB", shuffle="window", seed=1):
                total += batch.arrays["features"].sum(dtype=np.int64)
        stream.synchronize()
        assert int(total) == wanted


def test_another_stream_waits_for_the_event(cupy, ds):
    other, found, held = cupy.cuda.Stream(non_blocking=True), [], []
    for batch in ds.batches(64, device="cuda", memory="6 MiB"):
        other.wait_event(batch.event.event)
        with other:
            found.append(batch.arrays["features"].sum(dtype=np.int64))
        held.append(batch)
    other.synchronize()
    assert sum(map(int, found)) == int(DATA["features"].sum(dtype=np.int64))


def test_too_little_memory_is_reported_with_both_sizes(cupy, ds):
    pool = cupy.get_default_memory_pool()
    limit = pool.get_limit()
    used = used_bytes(cupy)  # what the tests before let go of must not make room meanwhile
    pool.free_all_blocks()
    pool.set_limit(size=used + (1 << 16))
    try:
        with pytest.raises(DeviceMemoryError, match="free and is out of memory: this loader needs"):
            next(iter(ds.batches(2000, device="cuda")))
    finally:
        pool.set_limit(size=limit)


def test_lazy_blocks_go_there_and_stay(cupy, ds):
    here = ds["features"].compute()
    x = ds["features"].labeled.to_device("cuda")
    assert x.labeled.device == "cuda:0"
    for there, wanted in [
        (x, here),
        (x[::3].isel(channel=1), here[::3].isel(channel=1)),
        (x.astype("f4").mean("batch"), here.astype("f4").mean("batch")),
        (x.labeled.format_as(SPACE), here.labeled.format_as(SPACE)),
    ]:
        found = there.compute()
        assert isinstance(found.data, cupy.ndarray)
        np.testing.assert_allclose(found.labeled.to_device("cpu"), wanted, rtol=1e-5)


def test_a_worker_a_gpu(cupy, ds):
    pytest.importorskip("dask_cuda", reason="dask-cuda is not installed")
    cl = pytest.importorskip("labeled.cluster", reason="distributed is not installed")
    with cl.cuda_cluster() as cluster, cluster.get_client() as client:
        found = cl.run_parts(
            client,
            ds,
            add_pixels,
            0,
            int.__add__,
            batch_size=100,
            device="cuda",
            resources={"GPU": 1},
        )
        assert found == int(DATA["features"].sum(dtype=np.int64))
        with client.as_current():
            mean = ds["features"].labeled.to_device("cuda").astype("f4").mean("batch").persist()
            found = mean.labeled.to_device("cpu").compute()
            np.testing.assert_allclose(found, DATA["features"].mean(0), rtol=1e-4)


def add_pixels(acc, batch):
    return acc + int(batch.arrays["features"].sum(dtype=np.int64))


# copies

SHAPES = [(70, 3, 16, 20), (5, 4, 65, 66), (9, 1, 28, 28), (600, 700)]
POISON = 0xA5


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
