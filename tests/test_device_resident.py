"""A split that is kept on a device: the same batches, made of row numbers alone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from fake_device import FakeDevice, There, memory_of, numbers_of

import labeled
from labeled.errors import DeviceMemoryError, LoaderError
from labeled.spaces import CompositeSpace, Conv2DSpace, VectorSpace
from make_files import DIGIT_LABELS, digits, fuel_file, ragged_file

N = 203


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    data = {**digits(N), "names": np.array([f"row {n}" for n in range(N)])}
    path = tmp_path_factory.mktemp("data") / "d.hdf5"
    labels = {**DIGIT_LABELS, "names": ("batch",)}
    return labeled.open_dataset(fuel_file(path, data, {"train": (0, N)}, labels))


SPACE = Conv2DSpace(shape=(5, 7), num_channels=3, axes=("c", 0, 1, "b"))
OPTIONS = [
    {},
    {"shuffle": True, "seed": 3},
    {"shuffle": "window", "last": "pad", "seed": 3},
    {"shuffle": True, "dtype": "float32", "scale": 1 / 255, "shift": -0.5, "seed": 1},
    {"layout": {"features": "batch height width channel"}, "dtype": {"features": "float32"}},
    {"one_hot": {"targets": 10}, "shuffle": True, "seed": 5, "shard": (1, 2)},
    {
        "specs": (CompositeSpace((SPACE, VectorSpace(10))), ("features", "targets")),
        "dtype": "float32",
        "shuffle": True,
        "seed": 2,
    },
    {"sampler": [[3, 1, 3], [0], list(range(60))]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_are_those_of_the_host(ds, options):
    size = {} if "sampler" in options else {"batch_size": 32}
    device = FakeDevice(1)
    plain, kept = ds.batches(**size, **options), ds.load(device=device).batches(**size, **options)
    for _ in range(2):
        for (one, rows, count), (other, *expected) in zip(
            kept.with_rows(), plain.with_rows(), strict=True
        ):
            np.testing.assert_array_equal(rows, expected[0])
            assert count == expected[1]
            for there, here in zip(numbers_of(one), numbers_of(other), strict=True):
                np.testing.assert_array_equal(there, here)
                assert there.dtype == here.dtype
    assert device.n_uploads == device.pinned_bytes == 0
    assert device.n_placed == 2  # features and targets, once


def test_a_place_in_the_epoch_is_found_again_here_and_there(ds):
    options = {"batch_size": 32, "shuffle": True, "seed": 7}
    kept = ds.load(device=FakeDevice(2)).batches(**options)
    batches = iter(kept)
    next(batches)
    host = ds.batches(**options)
    host.load_state_dict(kept.state_dict())
    for one, other in zip(batches, host, strict=True):
        np.testing.assert_array_equal(one.arrays["features"], other.arrays["features"])


def test_loaders_of_the_same_rows_share_what_is_kept(ds):
    device = FakeDevice(3)
    loaded = ds.select("features").load(device=device)
    first, second = loaded.batches(32), loaded.batches(64, shuffle=True, seed=1)
    assert all(len(list(loader)) for loader in (first, second, first))
    assert device.n_placed == 1
    part = loaded.subset(slice(10, 40))
    found = np.concatenate([batch.arrays["features"] for batch in part.batches(7)])
    np.testing.assert_array_equal(found, ds["features"][10:40])
    assert device.n_placed == 2


def test_it_is_shown_and_counted(ds):
    loaded = ds.select("features").load(device=FakeDevice(4))
    assert "in memory and on fake" in repr(loaded)
    loader = loaded.batches(32)
    assert loader.explain().device_bytes >= N * 3 * 5 * 7
    assert loader.explain().device_windows == 0
    batch = next(iter(loader))
    assert batch.event is not None
    assert not isinstance(memory_of(batch.arrays["features"]), There)


def test_what_cannot_be_kept_is_refused(ds, tmp_path):
    images = [np.full((1, n % 3 + 1, 2), n, np.uint8) for n in range(6)]
    ragged = labeled.open_dataset(ragged_file(tmp_path / "r.hdf5", images, np.zeros((6, 1), int)))
    with pytest.raises(LoaderError, match=r"'image_features'.* differ in shape"):
        ragged.load(device=FakeDevice(0))
    with pytest.raises(LoaderError, match="'mps' must be 'cpu', 'cuda'"):
        ds.load(device="mps")
    kept = ds.load(device=FakeDevice(0))
    for clash in ({"errors": "skip"}, {"output": "numpy"}):
        with pytest.raises(LoaderError, match=r"^load\(device='fake'\) does not go with"):
            kept.batches(8, **clash)
    small = ds.select("features").load(device=FakeDevice(5, room=1000)).batches(32)
    with pytest.raises(DeviceMemoryError, match="out of memory"):
        next(iter(small))


def test_rows_that_are_loaded_travel_without_the_device(ds):
    loaded = ds.select("targets").load(device="cpu")
    again = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(again["targets"], ds["targets"])
