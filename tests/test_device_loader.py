"""Batches made on a device: those of the host, in memory of their own, whatever comes when."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Mapping

import numpy as np
import pytest
from fake_device import FakeDevice, FakeMemoryError, FakeStream
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled import Batch
from labeled.device import Device
from labeled.errors import DeviceMemoryError, LoaderError, MissingExtraError
from labeled.spaces import CompositeSpace, Conv2DSpace, VectorSpace
from labeled.transforms import Stages
from make_files import DIGIT_LABELS, digits, fuel_file, ragged_file

N = 600
DATA = {
    "features": np.random.default_rng(0).integers(0, 256, (N, 3, 40, 56)).astype("u1"),
    "targets": digits(N)["targets"],
}
"""Rows of 7 kB: many windows of them are on their way at a time."""
SPACE = Conv2DSpace(shape=(40, 56), num_channels=3, axes=("c", 0, 1, "b"))
SPECS = (CompositeSpace((SPACE, VectorSpace(10))), ("features", "targets"))

orders = st.sampled_from(
    [{"shuffle": False}, {"shuffle": "full"}, {"shuffle": "window", "window_rows": 20}]
)
seeds = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = fuel_file(
        tmp_path_factory.mktemp("data") / "d.hdf5",
        {**DATA, "names": np.array([f"n{row % 7}" for row in range(N)])},
        {"train": (0, N)},
        {**DIGIT_LABELS, "names": ("batch",)},
        chunks={"features": (8, 3, 40, 56)},
        compression={"features": "gzip"},
    )
    return labeled.open_dataset(path)


def small(**options):
    return {"seed": 3, "memory": "8 MiB", "threads": 1, **options}


def arrays_of(batch):
    return dict(batch.arrays) if hasattr(batch, "arrays") else dict(enumerate(batch))


def check_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        one, two = arrays_of(a), arrays_of(b)
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
            assert one[name].dtype == two[name].dtype


def options_of(order, size, specs, last):
    more = {"specs": SPECS, "dtype": "float32", "scale": {"features": 1 / 255}} if specs else {}
    return {"batch_size": size, "last": last, **order, **more}


@pytest.mark.parametrize("device", ["host", "fake"])
@settings(max_examples=10)
@given(orders, st.integers(5, 30), st.booleans(), st.sampled_from(["keep", "pad"]), seeds)
def test_a_device_makes_the_batches_of_the_host(ds, device, order, size, specs, last, seed):
    where = Device() if device == "host" else FakeDevice(seed)
    options = small(**options_of(order, size, specs, last))
    ours, theirs = ds.batches(device=where, **options), ds.batches(**options)
    for _ in range(2):  # device windows are used again in the next epoch
        check_same(ours, theirs)


@pytest.mark.parametrize("kept", [True, False])
@settings(max_examples=20)
@given(orders, st.integers(8, 30), st.booleans(), seeds, st.sampled_from([0.0, 0.05, 0.9]))
def test_slots_and_windows_are_nobodys_before_their_events(
    ds, kept, order, size, specs, seed, haste
):
    """The fake device itself complains of a slot or window that is written too early."""
    device, ds = FakeDevice(seed, haste), ds.select("features", "targets")
    options = small(**options_of(order, size, specs, "keep"), prefetch=2)
    options["memory"] = "64 MiB" if kept else "8 MiB"
    loader, plain = ds.batches(device=device, **options), ds.batches(**options)
    assert all(source.kept for source in loader.explain().sources) == kept
    held = list(loader)
    for _ in loader:  # memory of windows is used again; batches that are held are not
        pass
    check_same(held, plain)
    assert device.n_uploads >= 4  # two epochs, two sources
    assert loader._pools[0].extra == 0, "more pinned memory than was promised"


@pytest.mark.parametrize("options", [{}, {"dtype": {"features": "float32"}}])
def test_a_stream_waits_once_for_a_window_and_copies_once_for_each_stream(ds, options, monkeypatch):
    waits, wait_for = [], FakeStream.wait_for

    def noted(stream, event):
        waits.append((stream, event))
        wait_for(stream, event)

    monkeypatch.setattr(FakeStream, "wait_for", noted)
    device = FakeDevice(7)
    loader = ds.select("features").batches(5, device=device, **small(**options))
    for _ in range(2):
        for batch in loader:
            del batch
    told = loader.stats()
    assert told.n_windows * 5 < told.n_batches
    assert len(set(waits)) == len(waits), "a stream waits twice for the same"
    n_copies_wait = sum(stream not in device.consumers for stream, _ in waits)
    assert n_copies_wait <= 2 * 2 * told.n_windows, "more than one wait for each stream that reads"
    assert n_copies_wait >= told.n_windows


def test_batches_come_with_their_event(ds):
    device = FakeDevice(0, haste=0.0)
    batch = next(iter(ds.batches(32, device=device, **small())))
    stream = batch.event.stream
    assert stream in device.consumers
    assert batch.event.place == len(stream.work), "it is behind all kernels"
    batch.event.wait()
    assert batch.event.done()
    assert batch["features"].dims == DIGIT_LABELS["features"]
    assert next(iter(ds.batches(32))).event is None


def test_memory_of_both_sides_is_reported_before_and_kept(ds):
    ds = ds.select("features", "targets")
    device = FakeDevice(5)
    loader = ds.batches(64, device=device, **small(shuffle="window", window_rows=96))
    told = loader.explain()
    for _ in range(2):
        for batch in loader:
            del batch
    row = DATA["features"][0].nbytes + 8
    windows = told.device_windows * told.job_rows * row
    assert device.pinned_bytes <= told.pinned_bytes <= told.promised_bytes
    assert windows < told.device_bytes == windows + 2 * 64 * row
    assert windows < device.most_bytes <= told.device_bytes
    assert "'fake'" in repr(told)
    assert "pinned" in repr(told)
    plain = ds.batches(64, **small()).explain()
    assert (plain.device, plain.pinned_bytes, plain.device_bytes) == ("cpu", 0, 0)


def test_what_is_laid_out_on_the_host_goes_there_too(tmp_path):
    images = [np.full((1, n % 3 + 1, 2), n, np.uint8) for n in range(40)]
    ds = labeled.open_dataset(ragged_file(tmp_path / "r.hdf5", images, np.arange(40)[:, None]))
    for layout in ("list", "pad", "flat"):
        options = {"batch_size": 9, "ragged": layout}
        ours, theirs = ds.batches(device=FakeDevice(2), **options), ds.batches(**options)
        for a, b in zip(ours, theirs, strict=True):
            for name in b:
                for one, two in zip(a.arrays[name], b.arrays[name], strict=True):
                    np.testing.assert_array_equal(one, two)


def test_errors_come_in_their_turn_and_leave_nothing_flying(ds):
    device = FakeDevice(1, haste=0.0)
    loader = ds.batches(8, device=device, **small(dtype={"features": "int8"}))
    for _ in range(3):  # windows are used again, and kernels before the error read some
        with pytest.raises(labeled.LabeledError, match="does not fit int8"):
            list(loader)
        assert all(stream.n_done == len(stream.work) for stream in device.consumers)
    assert len(list(ds.batches(8, device=FakeDevice(1), **small()))) == 75


def test_the_batch_stage_of_a_pipeline_runs_on_the_device(ds):
    seen = []

    def brighter(batch, rows, seed, epoch):
        features = batch.arrays["features"]
        seen.append((type(features), rows, seed, epoch))
        return features + 1

    options = small(shuffle="full")
    loader = ds.batches(50, device=FakeDevice(1), pipeline=Stages(batch=brighter), **options)
    plain = list(ds.batches(50, device=FakeDevice(1), **options))
    for number, made in enumerate(loader):
        np.testing.assert_array_equal(made, plain[number].arrays["features"] + 1)
        kind, rows, *place = seen[number]
        assert kind is type(plain[number].arrays["features"])
        np.testing.assert_array_equal(rows, plain[number].rows)
        assert place == [3, 0]
    assert len(seen) == len(plain)


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("haste", [0.0, 0.5])
def test_the_batch_stage_follows_on_the_stream_that_made_the_batch(ds, piped, haste):
    """Or it would read what is not there yet, and hand out what is not made yet."""
    device, streams = FakeDevice(5, haste), []

    def stage(batch):
        streams.append(device.current)
        return batch

    pipeline = Stages(batch=stage, **({"sample": {"features": brighter}} if piped else {}))
    for batch in ds.batches(50, device=device, pipeline=pipeline, **small(shuffle="full")):
        assert streams[-1] in device.consumers
        assert batch.event.stream is streams[-1]
        assert batch.event.place == len(streams[-1].work)
    assert len(streams) == 12


class There(np.ndarray):
    """Values on a device that knows them again."""


class KnowingDevice(FakeDevice):
    def asarray(self, host):
        if self.room is not None and host.nbytes > self.room:
            raise FakeMemoryError
        return host.copy().view(There)


def brighter(image):
    return image + 1


def brighter_features(sample):
    return {"features": brighter(sample["features"])}


def named(samples):
    return {"x": np.stack([one["features"] for one in samples]), "n": (len(samples),)}


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"sample": {"features": brighter}},
        {"sample": {"features": brighter}, "errors": "skip"},
        {"sample": brighter_features, "collate": named},
        {"sample": brighter, "specs": (VectorSpace(6720), "features")},
    ],
)
def test_what_a_pipeline_makes_on_the_host_goes_to_the_device(ds, options, threads):
    seen = []

    def batch_stage(batch):
        seen.append(batch)
        return batch

    own = {name: one for name, one in options.items() if name in ("sample", "collate")}
    others = {name: one for name, one in options.items() if name not in own}
    pipeline = Stages(**own, batch=batch_stage)
    options = small(shuffle="full", threads=threads, pipeline=pipeline, **others)
    plain = list(ds.batches(50, **options))
    seen.clear()
    loader = ds.batches(50, device=KnowingDevice(1), **options)
    made = list(loader)
    assert "device 'fake': batches go there out of the pipeline" in repr(loader.explain())
    for one, other, found in zip(made, plain, seen, strict=True):
        assert one is found
        for there, here in zip(numbers_of(one), numbers_of(other), strict=True):
            assert (type(there) is There) == (there.dtype.kind not in "OU")  # texts stay
            np.testing.assert_array_equal(there, here)


def numbers_of(data):
    """Return all arrays of a batch, in order."""
    data = data.arrays if isinstance(data, Batch) else data
    if isinstance(data, Mapping):
        data = data.values()
    elif not isinstance(data, tuple):
        return [data] if isinstance(data, np.ndarray) else []
    return [array for one in data for array in numbers_of(one)]


def test_an_iterator_that_is_dropped_waits_for_what_it_began(ds):
    device = FakeDevice(0, haste=0.0)
    loader = ds.batches(20, device=device, **small(prefetch=3))
    batches = iter(loader)
    next(batches)
    assert any(stream.n_done < len(stream.work) for stream in device.streams)
    del batches
    gc.collect()
    assert all(stream.n_done == len(stream.work) for stream in device.streams)


def test_a_loader_that_served_batches_pickles(ds):
    loader = ds.batches(100, device=Device(), **small(shuffle="window", window_rows=200))
    served = iter(loader)
    next(served)
    again = pickle.loads(pickle.dumps(loader))
    again.load_state_dict(loader.state_dict())
    check_same(again, served)


def test_long_doubles_stay_on_the_host_or_are_cast(tmp_path):
    """No GPU has them: an epoch began, and failed inside CuPy."""
    x = np.arange(12, dtype=np.longdouble).reshape(6, 2) / 3
    ds = labeled.open_dataset(labeled.write(tmp_path / "x.h5", {"x": x, "y": np.arange(6)}))
    for batch in ds.batches(4, device=FakeDevice(1)):
        np.testing.assert_array_equal(batch["x"], x[batch.rows])
    loader = ds.batches(4, device=FakeDevice(1), dtype={"x": "float64"}, shuffle=True, seed=0)
    for batch in loader:
        np.testing.assert_array_equal(batch["x"], x[batch.rows].astype("f8"))
    with pytest.raises(LoaderError, match="a GPU cannot hold"):
        ds["x"].labeled.to_device("cuda")


@pytest.mark.parametrize(
    ("device", "pipeline", "words"),
    [
        (FakeDevice(5, room=20_000), None, r"has [\d.]+ kiB free .* needs [\d.]+ MiB there"),
        (FakeDevice(5, pinned_room=1), None, "out of host memory that can be pinned"),
        (KnowingDevice(room=90), {"features": brighter}, "of memory: a batch that a pipeline"),
    ],
)
def test_too_little_memory_is_reported(ds, device, pipeline, words):
    loader = ds.batches(64, device=device, pipeline=pipeline, **small())
    with pytest.raises(DeviceMemoryError, match=words):
        next(iter(loader))
    assert issubclass(DeviceMemoryError, MemoryError)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": FakeDevice(), "errors": "skip"}, "errors='skip'"),
        (
            {"device": FakeDevice(), "output": "numpy"},
            "output='numpy', whose arrays are the host's",
        ),
        ({"device": 7}, "must be 'cpu', 'cuda' or 'cuda:<number>'"),
        ({"device": "gpu"}, "device='gpu' must be 'cpu'"),
        ({"device": "cuda:99"}, r"gpu-cu13|no GPU|are \d"),
    ],
)
def test_what_does_not_go_with_a_device_is_refused(ds, options, words):
    with pytest.raises((MissingExtraError, LoaderError), match=words):
        ds.batches(8, **options)
