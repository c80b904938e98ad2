"""The examples of Fuel's text on getting data in, run one after another as one session.

Only the import differs, the dtype ``'a'`` is written ``'S'`` (and its numbers without a
repeat count), and scales are made by `make_scale`; the numbers that the text shows come out.
"""

from __future__ import annotations

import h5py
import numpy
import pytest

from labeled.compat.fuel.datasets.hdf5 import H5PYDataset

PARTS = (
    ("vector_features", (10,), "float32"),
    ("image_features", (3, 5, 5), "uint8"),
    ("targets", (1,), "uint8"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("seed"))
        rng = numpy.random.RandomState(5)
        for split, n in (("train", 90), ("test", 10)):
            values = {
                "vector_features": rng.normal(size=(n, 10)).astype("float32"),
                "image_features": rng.randint(2, size=(n, 3, 5, 5)).astype("uint8"),
                "targets": rng.randint(10, size=(n, 1)).astype("uint8"),
            }
            for name, array in values.items():
                numpy.save(f"{split}_{name}.npy", array)
        yield


def both(name):
    return numpy.vstack([numpy.load(f"train_{name}.npy"), numpy.load(f"test_{name}.npy")])


CONTIGUOUS = {
    "train": {"vector_features": (0, 90), "image_features": (0, 90), "targets": (0, 90)},
    "test": {"vector_features": (90, 100), "image_features": (90, 100), "targets": (90, 100)},
}


@pytest.fixture
def dense(folder):
    """Write the file of the first half, with a table built by hand and one built by the class."""
    f = h5py.File("dataset.hdf5", mode="w")
    labels = {
        "vector_features": ("batch", "feature"),
        "image_features": ("batch", "channel", "height", "width"),
        "targets": ("batch", "index"),
    }
    for name, row_shape, dtype in PARTS:
        source = f.create_dataset(name, (100, *row_shape), dtype=dtype)
        source[...] = both(name)
        for axis, label in enumerate(labels[name]):
            source.dims[axis].label = label
    by_hand = table_by_hand()
    f.attrs["split"] = by_hand
    assert sorted(H5PYDataset.get_all_splits(f)) == ["test", "train"]
    assert H5PYDataset(f, which_sets=("train",)).num_examples == 90
    by_class = H5PYDataset.create_split_array(CONTIGUOUS)
    order = [(row["split"], row["source"]) for row in by_hand]
    for row in by_class:  # the text lists sources in another order
        twin = by_hand[order.index((row["split"], row["source"]))]
        assert twin["start"] == row["start"]
        assert twin["stop"] == row["stop"]
    f.attrs["split"] = by_class
    f.flush()
    f.close()
    return "dataset.hdf5"


def table_by_hand():
    split_array = numpy.empty(
        6,
        dtype=numpy.dtype(
            [
                ("split", "S", 5),
                ("source", "S", 15),
                ("start", numpy.int64),
                ("stop", numpy.int64),
                ("indices", h5py.special_dtype(ref=h5py.Reference)),
                ("available", numpy.bool_),
                ("comment", "S", 1),
            ]
        ),
    )
    split_array[0:3]["split"] = b"train"
    split_array[3:6]["split"] = b"test"
    split_array[0:6:3]["source"] = b"vector_features"
    split_array[1:6:3]["source"] = b"image_features"
    split_array[2:6:3]["source"] = b"targets"
    split_array[0:3]["start"] = 0
    split_array[0:3]["stop"] = 90
    split_array[3:6]["start"] = 90
    split_array[3:6]["stop"] = 100
    split_array[:]["indices"] = h5py.Reference()
    split_array[:]["available"] = True
    split_array[:]["comment"] = b"."
    return split_array


def test_playing_with_datasets(dense):
    train_set = H5PYDataset("dataset.hdf5", which_sets=("train",))
    assert train_set.num_examples == 90
    assert H5PYDataset("dataset.hdf5", which_sets=("test",)).num_examples == 10
    train_set = H5PYDataset("dataset.hdf5", which_sets=("train",), subset=slice(0, 80))
    assert train_set.num_examples == 80
    valid_set = H5PYDataset("dataset.hdf5", which_sets=("train",), subset=slice(80, 90))
    assert valid_set.num_examples == 10
    assert train_set.provides_sources == ("image_features", "targets", "vector_features")
    assert train_set.axis_labels["image_features"] == ("batch", "channel", "height", "width")
    assert train_set.axis_labels["vector_features"] == ("batch", "feature")
    assert train_set.axis_labels["targets"] == ("batch", "index")
    handle = train_set.open()
    data = train_set.get_data(handle, slice(0, 10))
    assert (data[0].shape, data[1].shape, data[2].shape) == ((10, 3, 5, 5), (10, 1), (10, 10))
    numpy.testing.assert_array_equal(data[2], both("vector_features")[:10])
    train_set.close(handle)


def test_one_source_and_loading_in_memory(dense):
    train = H5PYDataset(
        "dataset.hdf5", which_sets=("train",), subset=slice(0, 80), sources=["vector_features"]
    )
    handle = train.open()
    (data,) = train.get_data(handle, slice(0, 10))
    assert data.shape == (10, 10)
    train.close(handle)
    in_memory = H5PYDataset(
        "dataset.hdf5",
        which_sets=("train",),
        subset=slice(0, 80),
        sources=["vector_features"],
        load_in_memory=True,
    )
    (data,) = in_memory.data_sources
    assert type(data) is numpy.ndarray
    assert data.shape == (80, 10)


def test_splits_that_are_not_contiguous(dense):
    f = h5py.File("dataset.hdf5", mode="a")
    f["train_indices"] = numpy.arange(0, 100, 2)
    train_ref = f["train_indices"].ref
    f["test_indices"] = numpy.arange(1, 100, 2)
    test_ref = f["test_indices"].ref
    split_dict = {
        split: dict.fromkeys(CONTIGUOUS["train"], (-1, -1, ref))
        for split, ref in (("train", train_ref), ("test", test_ref))
    }
    f.attrs["split"] = H5PYDataset.create_split_array(split_dict)
    f.flush()
    f.close()
    for split, first in (("train", 0), ("test", 1)):
        chosen = H5PYDataset("dataset.hdf5", which_sets=(split,), sources=("vector_features",))
        handle = chosen.open()
        found = chosen.get_data(handle, slice(0, 50))[0]
        assert numpy.array_equal(found, both("vector_features")[first::2])
        chosen.close(handle)


def write_ragged_images():
    numpy.random.seed(1234)  # noqa: NPY002 (the text's own)
    sizes = numpy.random.randint(3, 9, size=(100,))  # noqa: NPY002
    images = [
        numpy.random.randint(256, size=(3, size, size)).astype("uint8")  # noqa: NPY002
        for size in sizes
    ]
    f = h5py.File("dataset.hdf5", mode="w")
    for name, label in (("vector_features", "feature"), ("targets", "index")):
        f[name] = both(name)
        f[name].dims[0].label = "batch"
        f[name].dims[1].label = label
    dtype = h5py.special_dtype(vlen=numpy.dtype("uint8"))
    image_features = f.create_dataset("image_features", (100,), dtype=dtype)
    image_features[...] = [image.flatten() for image in images]
    image_features.dims[0].label = "batch"
    shapes = f.create_dataset("image_features_shapes", (100, 3), dtype="int32")
    shapes[...] = numpy.array([image.shape for image in images])
    shapes.make_scale("shapes")
    image_features.dims[0].attach_scale(shapes)
    labels = f.create_dataset("image_features_shape_labels", (3,), dtype="S7")
    labels[...] = [b"channel", b"height", b"width"]
    labels.make_scale("shape_labels")
    image_features.dims[0].attach_scale(labels)
    f.attrs["split"] = H5PYDataset.create_split_array(CONTIGUOUS)
    f.flush()
    f.close()
    return images


def test_data_of_variable_length(folder):
    expected = write_ragged_images()
    train_set = H5PYDataset("dataset.hdf5", which_sets=("train",), sources=("image_features",))
    assert train_set.axis_labels["image_features"] == ("batch", "channel", "height", "width")
    handle = train_set.open()
    (images,) = train_set.get_data(handle, slice(0, 10))
    train_set.close(handle)
    assert (images[0].shape, images[1].shape) == ((3, 6, 6), (3, 8, 8))
    assert type(images) is numpy.ndarray
    assert (images.dtype, images.shape) == (object, (10,))
    for image, one in zip(images, expected, strict=False):
        numpy.testing.assert_array_equal(image, one)
