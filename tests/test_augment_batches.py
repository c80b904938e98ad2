"""Augmentation in a loader: the same pictures whoever makes them, wherever it goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_array_equal
from ragged_files import ragged_path
from record_files import png

import labeled
from labeled import transforms as tf
from labeled.errors import DimsError
from labeled.spaces import Conv2DSpace
from make_files import fuel_file

N = 97
RNG = np.random.default_rng(4)
IMAGES = RNG.integers(0, 256, (N, 3, 14, 16), dtype=np.uint8)
TARGETS = RNG.integers(0, 10, (N, 1), dtype=np.uint8)
DIMS = ("batch", "channel", "height", "width")
DIMS_OF_ONE = ("height", "width", "channel")
STEPS = tf.Augment(
    [
        tf.RandomResizedCrop(12, area=(0.5, 1.0)),
        tf.Mirror(),
        tf.Jitter(0.3, 0.3, 0.3),
        tf.Affine(rotate=(-10, 10)),
        tf.Normalize(128, 64),
        tf.Contrast(0.2),
        tf.RandomCrop(10),
    ],
    axes=("b", 0, 1, "c"),
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = fuel_file(
        tmp_path_factory.mktemp("augment") / "d.hdf5",
        {"images": IMAGES, "targets": TARGETS},
        {"all": (0, N)},
        {"images": DIMS, "targets": ("batch", "index")},
    )
    return labeled.open_dataset(path)


def by_row(loader):
    """Return what an epoch makes of every row."""
    found = {}
    for batch in loader:
        images = batch["images"]
        assert images.dims == ("batch", "height", "width", "channel")
        found |= {int(r): image for r, image in zip(batch.rows, images.values, strict=True)}
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for row, image in found.items():
        assert_array_equal(image, expected[row])


def batches(dataset, size=16, **options):
    return dataset.batches(size, pipeline={"images": STEPS}, seed=7, **options)


def test_pictures_depend_on_seed_epoch_and_row_alone(dataset):
    loader = batches(dataset, shuffle=True, threads=1)
    first, second = by_row(loader), by_row(loader)
    expected = STEPS(IMAGES, seed=7, epoch=0, dims=DIMS)
    assert_same(first, dict(enumerate(expected)))
    assert not any(np.array_equal(first[row], second[row]) for row in first)
    for other in [
        batches(dataset),
        batches(dataset, 5, shuffle="full", threads=3),
        batches(dataset, 31, shuffle="window", threads=0),
    ]:
        assert_same(by_row(other), first)


def test_batches_laid_out_by_specs(dataset):
    space = Conv2DSpace((14, 16), num_channels=3, axes=("c", 0, 1, "b"))
    crops = tf.Augment(
        [tf.RandomCrop(9), tf.Mirror()], dims=("channel", "height", "width", "batch")
    )
    loader = dataset.batches(20, specs=(space, "images"), pipeline=crops, shuffle=True, seed=3)
    expected = crops(IMAGES, seed=3, dims=DIMS)
    for batch, rows, _ in loader.with_rows():
        assert_array_equal(batch.transpose(3, 0, 1, 2), expected[rows])


@pytest.mark.parametrize("layout", ["flat", "fuel"])
def test_pictures_of_different_sizes_become_one_array(tmp_path, layout):
    images = [np.resize(IMAGES[k], (3, 12 + k % 5, 10 + k % 7)) for k in range(31)]
    dataset = labeled.open_dataset(ragged_path(tmp_path / "r.hdf5", layout, images))
    steps = tf.Augment([tf.Resize(shorter=12), tf.RandomCrop(10), tf.Mirror()], dims=DIMS[1:])
    loader = dataset.batches(8, pipeline={"x": steps}, shuffle=True, seed=7, threads=2)
    told = replace(steps, dims=None)  # the file tells them, too
    for batch, own in zip(loader, dataset.batches(8, shuffle=True, seed=7), strict=True):
        assert_array_equal(told(own["x"], rows=own.rows, seed=7).values, batch["x"].values)
    seen = 0
    for batch in dataset.batches(8, pipeline={"x": told}, shuffle=True, seed=7, threads=2):
        assert batch["x"].dims == DIMS
        for row, found in zip(batch.rows, batch["x"].values, strict=True):
            assert_array_equal(found, steps(images[row], rows=row, seed=7, dims=DIMS[1:]))
            seen += 1
    assert seen == len(images)


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("last", [tf.Resize(9), tf.Mirror()])
def test_rows_that_pad_batches_of_pictures_pass_through(tmp_path, encoded, last):
    pictures = [RNG.integers(0, 256, (14 + i % 3, 12, 3), dtype=np.uint8) for i in range(10)]
    stored = [np.frombuffer(png(one), np.uint8) for one in pictures] if encoded else pictures
    names = ("batch", "byte") if encoded else ("batch", *DIMS_OF_ONE)
    path = ragged_path(tmp_path / "r.hdf5", "flat", stored)
    dataset = labeled.open_dataset(path, dims={"x": names})
    augment = tf.Augment([tf.Normalize(128, 64), last])
    steps = {"x": [tf.Decode(), augment] if encoded else augment}
    *_, batch = dataset.batches(4, last="pad", pipeline=steps, seed=7)
    assert batch.rows.tolist() == [8, 9, -1, -1]
    for row, image in zip(batch.rows, batch["x"].values, strict=True):
        if row >= 0:
            assert_array_equal(image, augment(pictures[row], rows=row, seed=7, dims=DIMS_OF_ONE))
        else:
            assert image.dtype == np.float32
            assert not image.any()
            assert image.size == (9 * 9 * 3 if isinstance(last, tf.Resize) else 0)


@pytest.mark.parametrize("name", ["time", "embryo", "batch"])
def test_a_dim_of_any_name_counts_pictures(name):
    stack = xr.DataArray(IMAGES[:, 0], dims=(name, "y", "x"), name="stack")
    wanted = xr.DataArray(IMAGES[:, 0], dims=("batch", "height", "width"))
    loader = labeled.batches(stack, 10, dim=name, pipeline={"stack": tf.RandomCrop(9)}, seed=7)
    for batch in loader:
        assert batch["stack"].dims == (name, "y", "x")
        same = tf.RandomCrop(9)(wanted[batch.rows], rows=batch.rows, seed=loader.seed, epoch=0)
        assert_array_equal(batch["stack"], same)
    empty = tf.RandomCrop(9)(stack[:0], rows=np.zeros(0, int))
    assert (empty.dims, empty.shape) == ((name, "y", "x"), (0, 9, 9))
    with pytest.raises(DimsError, match="not those of pictures"):
        tf.RandomCrop(9)(stack.expand_dims("z"), rows=np.arange(N))
