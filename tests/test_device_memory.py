"""What a loader holds while it serves a device: never more than it said, on neither side.

Arrays of the host are counted by tracemalloc, to which NumPy tells all of them; those of the fake
device, and what is pinned for it, by itself.
"""

from __future__ import annotations

import gc
import tracemalloc

import h5py
import numpy as np
import pytest
from fake_device import FakeDevice, FakeStream
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import labeled
from labeled import permute
from labeled.device import Device
from labeled.errors import LoaderError
from labeled.spaces import CompositeSpace, Conv2DSpace, VectorSpace
from labeled.transforms import Stages
from make_files import ragged_file

N = 700
NAMES = ("batch", "channel", "height", "width")
DENSE = ("chunks", "gzip", "meters", "number", "plain")


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "d.hdf5"
    rng = np.random.default_rng(0)
    data = rng.integers(0, 16, (N, 3, 32, 48)).astype("u1")  # 4.6 kB a row
    with h5py.File(path, "w", libver=("v110", "v114")) as f:
        f["plain"] = data
        f.create_dataset("chunks", data=data, chunks=(16, 3, 32, 48))
        f.create_dataset("gzip", data=data, chunks=(32, 3, 32, 48), compression=1, shuffle=True)
        f["meters"] = rng.integers(0, 1 << 12, (N, 800)).astype("i2")
        f["meters"].attrs["scale_factor"] = 0.5
        f["number"] = np.arange(N)
        for dataset in f.values():
            for axis, name in enumerate(NAMES[: dataset.ndim]):
                dataset.dims[axis].label = name
    return labeled.open_dataset(path)


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    """Examples of up to 60 x 45 values, many of one size together."""
    path = tmp_path_factory.mktemp("data") / "r.hdf5"
    shapes = [(1, 5 * (n // 60 % 12 + 1), 5 * (n % 9 + 1)) for n in range(N)]
    images = [np.full(shape, n % 256, np.uint8) for n, shape in enumerate(shapes)]
    return labeled.open_dataset(ragged_file(path, images, np.arange(N)[:, None]))


@pytest.fixture(scope="module", autouse=True)
def nothing_is_compiled():
    """Compiling takes memory that is nobody's promise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABELED_FAST", "0")
        permute.forget()
        yield
    permute.forget()


@st.composite
def asked(draw):
    """Return options of a loader, whatever its sources."""
    options = {
        "batch_size": draw(st.integers(8, 250)),
        "memory": draw(st.sampled_from([4 << 20, 6 << 20, 24 << 20])),
        "shuffle": draw(st.sampled_from([False, "full", "window"])),
        "last": draw(st.sampled_from(["keep", "drop", "pad", "wrap"])),
        "threads": draw(st.integers(0, 2)),
        "prefetch": draw(st.sampled_from([None, 0, 1, 3])),
        "seed": 3,
    }
    if draw(st.booleans()):
        options["window_rows"] = draw(st.integers(1, 300))
    if draw(st.booleans()):
        options["shard"] = (1, 3)
    return options


@st.composite
def asked_of_dense(draw):
    options = draw(asked())
    options["sources"] = draw(st.lists(st.sampled_from(DENSE), min_size=1, unique=True))
    made = draw(st.sampled_from(["stored", "cast", "specs", "piped"]))
    if made == "cast":
        options |= {"dtype": "float64"}
    elif made == "specs":
        options["sources"] = ["plain", "meters"]
        space = Conv2DSpace(shape=(32, 48), num_channels=3, axes=("c", 0, 1, "b"))
        spaces = CompositeSpace((space, VectorSpace(800)))
        options |= {"specs": (spaces, ("plain", "meters"))}
        options |= {"dtype": "float32", "scale": {"plain": 1 / 255}}
    elif made == "piped":
        options["pipeline"] = Stages(batch=lambda batch: batch)
    return options


@st.composite
def asked_of_ragged(draw):
    options = draw(asked())
    options["ragged"] = draw(st.sampled_from(["list", "pad", "flat"]))
    options["bucket"] = options["shuffle"] == "window" and draw(st.booleans())
    made = draw(st.sampled_from(["stored", "cast"]))
    if made == "cast":
        options["dtype"] = {"image_features": "float64"}
    return options


seeds = st.integers(0, 2**32)
hastes = st.sampled_from([0.0, 0.3, 0.9])


def served(ds, device, options):
    """Serve two epochs and keep one batch at a time; return what was told, and the most held."""
    options = dict(options)
    ds = ds.select(*options.pop("sources", ds.sources))
    try:
        loader = ds.batches(device=device, **options)
    except LoaderError:  # too little memory for such batches
        assume(False)
    told = loader.explain()
    held = 0
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(2):
            for batch in loader:
                held = max(held, tracemalloc.get_traced_memory()[1])
                del batch
    finally:
        tracemalloc.stop()
    assert loader._pools[0].extra == 0
    return told, held


def check_promise(ds, options, seed, haste):
    device = FakeDevice(seed, haste)
    told, held = served(ds, device, options)
    assert device.pinned_bytes <= told.pinned_bytes <= told.promised_bytes
    assert device.most_bytes <= told.device_bytes
    assert held <= told.promised_bytes + device.most_made_bytes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:every epoch is empty")
@settings(max_examples=12, deadline=None)
@given(asked_of_dense(), seeds, hastes)
def test_rows_of_one_shape_stay_within_the_promise(dense, options, seed, haste):
    check_promise(dense, options, seed, haste)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:every epoch is empty")
@settings(max_examples=8, deadline=None)
@given(asked_of_ragged(), seeds, hastes)
def test_ragged_rows_stay_within_the_promise(ragged, options, seed, haste):
    check_promise(ragged, options, seed, haste)


@pytest.mark.filterwarnings("ignore:every epoch is empty")
@settings(max_examples=4, deadline=None)
@given(asked_of_dense())
def test_the_host_as_a_device_stays_within_the_promise(dense, options):
    told, held = served(dense, Device(), options)
    assert held <= told.promised_bytes + told.device_bytes


def test_only_what_copies_start_from_is_pinned(dense):
    device = FakeDevice(1)
    loader = dense.select("meters", "number").batches(50, device=device, memory="4 MiB", prefetch=1)
    for batch in loader:
        del batch
    told = loader.explain()
    assert device.pinned_bytes == told.pinned_bytes
    assert 0 < told.pinned_bytes == told.n_buffers * told.job_rows * 8


def test_what_is_laid_out_here_is_counted_there(ragged, dense):
    for ds, options in [
        (ragged.select("image_features"), {"ragged": "pad"}),
        (ragged.select("image_features"), {"ragged": "flat", "dtype": "float32"}),
        (dense.select("meters"), {"dtype": "float32"}),
        (dense.select("meters"), {"specs": (VectorSpace(800), "meters")}),
    ]:
        device = FakeDevice(1, haste=0.0)
        loader = ds.batches(200, device=device, shuffle="full", seed=3, **options)
        for batch in loader:
            held = batch  # while the next one is made
        assert held is not None
        assert 0 < device.most_bytes <= loader.explain().device_bytes


class Behind(FakeStream):
    """A consumer's stream that gets to nothing of what it is asked for."""

    def run(self, kernels, reads):
        self.device.current = self
        return kernels()


class SlowDevice(FakeDevice):
    def consumer_stream(self, library):
        if self.consumers is None:
            self.consumers = [Behind(self)]
        return self.consumers[0]


@pytest.mark.parametrize("threads", [0, 1])
def test_a_slow_device_is_waited_for_before_more_is_pinned(dense, threads):
    """And its copies are done before anybody writes where they start from, which it looks at."""
    device = SlowDevice(1, haste=0.0)
    loader = dense.select("plain").batches(60, device=device, memory="4 MiB", threads=threads)
    for batch in loader:
        del batch
    told = loader.explain()
    assert device.n_uploads > told.n_buffers
    assert loader._pools[0].extra == 0
    assert device.pinned_bytes <= told.pinned_bytes
