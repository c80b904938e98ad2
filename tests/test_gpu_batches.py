"""Batches made on a GPU are those of the host, whoever is slow, leaves early or comes twice."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest
from on_gpu import (
    ROUNDED,
    cupy_or_skip,
    delay,
    most_used,
    pinned_meanwhile,
    torch_or_skip,
    used_bytes,
)

import labeled
from labeled.errors import DeviceMemoryError
from labeled.spaces import CompositeSpace, Conv2DSpace, VectorSpace
from labeled.transforms import Stages
from make_files import DIGIT_LABELS, fuel_file, ragged_file

pytestmark = pytest.mark.gpu

N = 4000
RNG = np.random.default_rng(0)
DATA = {
    "features": RNG.integers(0, 256, (N, 3, 24, 40)).astype("u1"),
    "targets": RNG.integers(0, 10, (N, 1)),
}
"""Rows of 3 kB: many windows of them go through 6 MiB."""
SPACE = Conv2DSpace(shape=(24, 40), num_channels=3, axes=("c", 0, 1, "b"))
SPECS = (CompositeSpace((SPACE, VectorSpace(10))), ("features", "targets"))
LAID_OUT = {"specs": SPECS, "dtype": "float32", "scale": {"features": 1 / 255}}
SHUFFLES = [False, "window", "full"]


@pytest.fixture(scope="module")
def cupy():
    return cupy_or_skip()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    split = {"train": (0, N)}
    gzip = {"chunks": {"features": (64, 3, 24, 40)}, "compression": {"features": 1}}
    return {
        "contiguous": fuel_file(folder / "plain.hdf5", DATA, split, DIGIT_LABELS),
        "gzip": fuel_file(folder / "gzip.hdf5", DATA, split, DIGIT_LABELS, **gzip),
    }


@pytest.fixture(scope="module", params=["contiguous", "gzip"])
def ds(request, files):
    return labeled.open_dataset(files[request.param])


def options_of(shuffle=False, memory="6 MiB", **more):
    return {"shuffle": shuffle, "seed": 3, "memory": memory, "last": "pad", **more}


def arrays_of(batch):
    """Return arrays by name, or by place."""
    return dict(batch.arrays) if hasattr(batch, "arrays") else dict(enumerate(batch))


def consumed(cupy, batches, way):
    """Consume batches, and return what was in them, on the host, when all were made."""
    found = []
    for batch in batches:
        if way == "slow":  # what follows is done long after the next batch is asked for
            delay(cupy, 3)
        arrays = arrays_of(batch)
        if way != "keeps":
            arrays = {name: array.copy() for name, array in arrays.items()}
        assert all(isinstance(array, cupy.ndarray) for array in arrays.values())
        found.append(arrays)
        del batch, arrays
    return [{name: cupy.asnumpy(x) for name, x in arrays.items()} for arrays in found]


def check_same(found, plain):
    for ours, batch in zip(found, plain, strict=True):
        theirs = arrays_of(batch)
        assert ours.keys() == theirs.keys()
        for name, array in theirs.items():
            assert ours[name].dtype == array.dtype
            np.testing.assert_array_equal(ours[name], array)


# ---------------------------------------------------------------- consumers
@pytest.mark.parametrize("way", ["fast", "slow", "keeps"])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_every_consumer_gets_the_batches_of_the_host(cupy, ds, shuffle, way):
    ours = ds.batches(60, device="cuda", **options_of(shuffle))
    theirs = ds.batches(60, **options_of(shuffle))
    assert not ours.explain().sources[0].kept
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            found = consumed(cupy, ours, way)
        check_same(found, theirs)


@pytest.mark.parametrize("memory", ["24 MiB", "256 MiB"])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_more_memory_makes_the_same_batches(cupy, ds, shuffle, memory):
    options = options_of(shuffle, memory, **LAID_OUT)
    ours, theirs = ds.batches(130, device="cuda", **options), ds.batches(130, **options)
    for way in ("slow", "keeps"):
        check_same(consumed(cupy, ours, way), theirs)


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_one_batch_after_another_on_streams_that_change(cupy, ds, shuffle):
    """Windows are read on one stream, and used again while another is current."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    ours = iter(ds.batches(60, device="cuda", **options_of(shuffle)))
    plain, held = list(ds.batches(60, **options_of(shuffle))), []
    for number in range(len(plain)):
        with streams[number % 3]:
            if number % 5 == 0:
                delay(cupy, 4)
            held.append(dict(next(ours).arrays))
    for stream in streams:
        stream.synchronize()
    check_same([{name: cupy.asnumpy(x) for name, x in one.items()} for one in held], plain)


def windows_bytes(loader):
    told = loader.explain()
    return told.device_windows * told.job_rows * sum(x[0].nbytes for x in DATA.values()) + ROUNDED


def test_who_leaves_early_and_starts_again_takes_no_more(cupy, ds):
    before = used_bytes(cupy)
    ours, theirs = (
        ds.batches(60, **where, **options_of("window")) for where in ({"device": "cuda"}, {})
    )
    total = cupy.zeros((), np.int64)
    for turn in range(8):
        batches = iter(ours)
        for batch in (next(batches) for _ in range(turn + 2)):
            delay(cupy, 2)
            total += batch.arrays["features"].sum(dtype=np.int64)
        del batch, batches
        assert used_bytes(cupy) - before <= windows_bytes(ours)
    theirs.set_epoch(ours.epoch)
    check_same(consumed(cupy, ours, "slow"), theirs)
    del ours, total
    assert used_bytes(cupy) == before


def test_epochs_take_no_more_than_the_first(cupy, ds):
    before, options = used_bytes(cupy), options_of("full", "24 MiB", **LAID_OUT)
    loader = ds.batches(60, device="cuda", **options)
    for _ in range(4):
        for batch in loader:
            del batch
        assert used_bytes(cupy) - before <= windows_bytes(loader)
    del loader
    assert used_bytes(cupy) == before


def test_two_loaders_on_two_threads(cupy, files):
    def work(name, seed):
        opened = labeled.open_dataset(files[name])
        options = {**options_of("window"), "seed": seed}
        with cupy.cuda.Stream(non_blocking=True):
            found = consumed(cupy, opened.batches(60, device="cuda", **options), "slow")
        check_same(found, opened.batches(60, **options))

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(work, *one) for one in zip([*files] * 2, range(4), strict=True)]
        for one in asked:
            one.result()


def test_two_iterations_of_one_dataset_alternate(cupy, ds):
    ours = [ds.batches(60, device="cuda", **options_of(shuffle)) for shuffle in SHUFFLES]
    plain = [list(ds.batches(60, **options_of(shuffle))) for shuffle in SHUFFLES]
    for made, wanted in zip(zip(*ours, strict=True), zip(*plain, strict=True), strict=True):
        check_same(consumed(cupy, made, "slow"), wanted)


# ---------------------------------------------------------------- handed over
def handed(shuffle=False):
    """Return options whose order does not depend on what else is asked for."""
    return options_of(shuffle, **({"window_rows": 200} if shuffle == "window" else {}))


def sums_of(ds, **options):
    plain = ds.batches(60, **options)
    return [int(batch.arrays["features"].sum(dtype=np.int64)) for batch in plain]


@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_torch_reads_what_is_let_go_of_at_once(cupy, ds, shuffle, own_stream):
    torch = torch_or_skip()
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    found = []
    with torch.cuda.stream(stream):
        for batch in ds.batches(60, device="cuda", output="torch", **handed(shuffle)):
            features = batch["features"]
            torch.cuda._sleep(4 * 1_700_000)
            found.append(features.sum(dtype=torch.int64))
            del batch, features
    stream.synchronize()
    assert list(map(int, found)) == sums_of(ds, **handed(shuffle))


def test_torch_and_cupy_share_memory_and_keep_it(cupy, ds):
    torch, wanted = torch_or_skip(), sums_of(ds, **handed())
    held = [b["features"] for b in ds.batches(60, device="cuda", output="torch", **handed())]
    assert [int(one.sum(dtype=torch.int64)) for one in held] == wanted
    shared = cupy.from_dlpack(held[0])
    assert shared.data.ptr == held[0].data_ptr()
    shared[...] = 7
    assert int(held[0].sum(dtype=torch.int64)) == 7 * shared.size


def test_kept_rows_are_there_before_any_stream_reads_them(cupy, ds):
    """Also where work before their copy takes long, and another stream is the first to read."""
    torch = torch_or_skip()
    loaded = ds.load(device="cuda")
    delay(cupy, 200)
    with torch.cuda.stream(torch.cuda.Stream()):
        batches = loaded.batches(60, output="torch", **handed("full"))
        found = [int(batch["features"].sum(dtype=torch.int64)) for batch in batches]
    assert found == sums_of(ds, **handed("full"))


def test_kept_rows_stay_until_every_stream_has_read_them(cupy, ds):
    """Whoever lets go of them and makes others must not change what is still to be gathered."""
    loaded, wanted = ds.load(device="cuda"), next(iter(ds.batches(60))).arrays["features"]
    next(iter(loaded.batches(60)))  # there, by the stream that makes the next array, too
    with cupy.cuda.Stream(non_blocking=True) as stream:
        batches = iter(loaded.batches(60))
        delay(cupy, 100)
        features = next(batches).arrays["features"]
    del loaded, batches
    gc.collect()
    others = cupy.full(DATA["features"].nbytes, 0xA5, np.uint8)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(features), wanted)
    assert int(others.max()) == 0xA5


JAX = """
import sys
import jax, labeled
import jax.numpy as jnp

if jax.default_backend() != "gpu":
    print("none")
    sys.exit()


@jax.jit
def slow(x):
    y = jnp.ones((2048, 2048), jnp.float32)
    for _ in range(12):
        y = y @ y * 1e-4
    late = (jnp.nan_to_num(y[0, 0]) * 0).astype(jnp.int32)  # so that x is read last
    return (x.astype(jnp.int32) + late).sum()


def begun(x):
    assert x.device.platform == "gpu"
    return slow(x)


ds = labeled.open_dataset(sys.argv[1])
options = {"shuffle": "window", "seed": 3, "memory": "6 MiB", "last": "drop", "window_rows": 200}
loader = ds.batches(60, device="cuda", output="jax", dtype={"targets": "int32"}, **options)
for _ in range(2):
    found = [begun(batch["features"]) for batch in loader]  # no batch is held
    print(*map(int, found))
"""


def test_jax_reads_what_is_let_go_of_at_once(cupy, files):
    if find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    done = subprocess.run(
        [sys.executable, "-c", JAX, files["gzip"]],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "none":
        pytest.skip("this JAX has no CUDA")
    plain = labeled.open_dataset(files["gzip"]).batches(60, **{**handed("window"), "last": "drop"})
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        wanted = [int(batch.arrays["features"].sum(dtype=np.int64)) for batch in plain]
        assert list(map(int, line.split())) == wanted


# ---------------------------------------------------------------- rows kept there
KEPT = {
    "as stored": {},
    "scaled": {"dtype": {"features": "float32"}, "scale": {"features": 1 / 255}},
    "half": {"dtype": {"features": "float16"}},
    "moved": {"layout": {"features": "batch height width channel"}},
    "specs": LAID_OUT,
    "one-hot": {"one_hot": {"targets": 10}},
    "share": {"shard": (1, 3)},
}


@pytest.mark.parametrize("options", KEPT)
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_batches_of_kept_rows_are_those_of_the_host(cupy, ds, shuffle, options):
    asked = options_of(shuffle, "24 MiB", **KEPT[options])
    ours, theirs = (ds.load(device=where).batches(130, **asked) for where in ("cuda", "cpu"))
    for way in ("slow", "keeps"):
        check_same(consumed(cupy, ours, way), theirs)


def test_kept_rows_take_what_was_promised_and_give_it_back(cupy, ds):
    before = used_bytes(cupy)
    loader = ds.load(device="cuda").batches(60, **options_of("full", **LAID_OUT))
    told = loader.explain()
    with pinned_meanwhile(cupy) as pinned, most_used(cupy) as found:
        for _ in range(2):
            for _batch in loader:
                del _batch
    n_bytes = sum(array.nbytes for array in DATA.values())
    assert n_bytes <= found[0] <= told.device_bytes + ROUNDED
    assert n_bytes <= used_bytes(cupy) - before <= n_bytes + ROUNDED
    assert pinned.most == told.pinned_bytes == 0
    del loader
    assert used_bytes(cupy) == before


def test_rows_are_not_pinned_whole_on_their_way(cupy, files):
    """CuPy would keep that memory, and the next power of two of it."""
    kept = labeled.open_dataset(files["contiguous"]).load(device="cuda")
    with pinned_meanwhile(cupy) as pinned:
        next(iter(kept.batches(60)))
    assert pinned.staged <= ROUNDED


# ---------------------------------------------------------------- memory
MADE = {
    "stored": {},
    "laid out": LAID_OUT,
    "half": {"dtype": {"features": "float16"}, "scale": {"features": 1 / 255}},
}


@pytest.mark.parametrize("memory", ["8 MiB", "24 MiB", "256 MiB"])
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("shuffle", [False, "window"])
def test_memory_is_what_was_promised_on_both_sides(cupy, ds, shuffle, made, memory):
    before = used_bytes(cupy)
    loader = ds.batches(60, device="cuda", **options_of(shuffle, memory, **MADE[made]))
    told = loader.explain()
    with pinned_meanwhile(cupy) as pinned, most_used(cupy) as found:
        for _ in range(2):
            for batch in loader:
                delay(cupy, 0.2)
                del batch
    assert 0 < pinned.most <= told.pinned_bytes <= told.promised_bytes
    assert pinned.staged <= ROUNDED, "CuPy pinned memory that nobody counts"
    assert 0 < found[0] <= told.device_bytes + ROUNDED
    del loader
    assert used_bytes(cupy) == before


def test_an_epoch_that_runs_out_of_memory_can_be_begun_again(cupy, ds):
    pool, limit = cupy.get_default_memory_pool(), cupy.get_default_memory_pool().get_limit()
    loader = ds.batches(60, device="cuda", **options_of())
    used = used_bytes(cupy)  # what the tests before let go of must not make room meanwhile
    pool.free_all_blocks()
    pool.set_limit(size=used + (1 << 16))
    try:
        with pytest.raises(DeviceMemoryError, match="out of memory: this loader needs"):
            next(iter(loader))
    finally:
        pool.set_limit(size=limit)
    check_same(consumed(cupy, loader, "slow"), ds.batches(60, **options_of()))


# ---------------------------------------------------------------- pipelines
def brighter(image):
    return image // 2 + 1


def brighter_batch(batch):
    return batch.with_arrays({**batch.arrays, "features": brighter(batch.arrays["features"])})


PIPELINES = {
    "batches": Stages(batch=brighter_batch),
    "samples": Stages(sample={"features": brighter}),
    "both": Stages(sample={"features": brighter}, batch=brighter_batch),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("kept", [False, True])
def test_pipelines_make_the_batches_of_the_host(cupy, ds, pipeline, kept):
    options = options_of("window", pipeline=PIPELINES[pipeline])
    there, here = (ds.load(device=where) if kept else ds for where in ("cuda", "cpu"))
    ours, theirs = there.batches(60, device="cuda", **options), here.batches(60, **options)
    for way in ("slow", "keeps"):
        check_same(consumed(cupy, ours, way), theirs)


def test_batch_stages_run_on_the_stream_of_the_batch(cupy, ds):
    def centred(batch):
        features = batch.arrays["features"].astype("f4")
        return features - features.mean(axis=0)

    options = options_of("window", last="drop", pipeline=Stages(batch=centred))
    found = []
    with cupy.cuda.Stream(non_blocking=True):
        for made in ds.batches(60, device="cuda", **options):
            delay(cupy, 2)
            found.append(abs(made.mean(axis=0)).max())
            del made
        assert max(map(float, found)) < 1e-2
    assert len(found) == N // 60


@pytest.mark.parametrize("layout", ["list", "pad", "flat"])
def test_rows_of_different_shapes_go_there_too(cupy, tmp_path, layout):
    images = [np.full((1, n % 7 + 1, 5), n, np.uint8) for n in range(200)]
    opened = labeled.open_dataset(ragged_file(tmp_path / "r.hdf5", images, np.arange(200)[:, None]))
    ours, theirs = (opened.batches(9, ragged=layout, device=where) for where in ("cuda", "cpu"))
    for there, here in zip(ours, theirs, strict=True):
        delay(cupy, 1)
        for name in here:
            for one, two in zip(there.arrays[name], here.arrays[name], strict=True):
                one = one.get() if isinstance(one, cupy.ndarray) else one
                np.testing.assert_array_equal(one, two)
