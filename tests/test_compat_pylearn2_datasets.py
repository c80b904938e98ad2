"""The old datasets, through import aliases alone: design matrices, images, HDF5 files."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys

import h5py
import numpy as np
import pylearn2_aliases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylearn2.datasets.dense_design_matrix import (
    DefaultViewConverter,
    DenseDesignMatrix,
    dataset_range,
    from_dataset,
    set_axes,
)
from pylearn2.datasets.hdf5 import HDF5Dataset, HDF5DatasetDeprecated
from pylearn2.datasets.vector_spaces_dataset import VectorSpacesDataset
from pylearn2.space import CompositeSpace, Conv2DSpace, IndexSpace, VectorSpace
from pylearn2.utils.data_specs import DataSpecsMapping

assert pylearn2_aliases.ALIASES
AXES = list(itertools.permutations(("b", 0, 1, "c")))
LENGTHS = {"b": 5, 0: 2, 1: 3, "c": 4}
N, WIDTH = LENGTHS["b"], 24


def images(axes, dtype=np.float64):
    shape = [LENGTHS[axis] for axis in axes]
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def batches(iterator):
    return [np.asarray(batch).tolist() for batch in iterator]


# ---------------------------------------------------------------- view converters
@pytest.mark.parametrize("axes", AXES)
def test_rows_hold_channel_after_channel(axes):
    topo = images(axes)
    dataset = DenseDesignMatrix(topo_view=topo, axes=axes)
    expected = topo.transpose([axes.index(axis) for axis in ("b", "c", 0, 1)]).reshape(N, WIDTH)
    np.testing.assert_array_equal(dataset.X, expected)
    np.testing.assert_array_equal(dataset.get_topological_view(), topo)
    np.testing.assert_array_equal(dataset.get_design_matrix(topo), expected)
    weights = dataset.get_weights_view(dataset.X)
    assert weights.shape == (5, 2, 3, 4)
    assert dataset.get_topo_batch_axis() == axes.index("b")


@pytest.mark.parametrize("axes", AXES)
def test_images_leave_iterators_as_their_space_says(axes):
    dataset = DenseDesignMatrix(topo_view=images(("b", 0, 1, "c")))
    space = Conv2DSpace((2, 3), num_channels=4, axes=axes)
    (batch,) = dataset.iterator("sequential", batch_size=5, data_specs=(space, "features"))
    order = [("b", 0, 1, "c").index(axis) for axis in axes]
    np.testing.assert_array_equal(batch, images(("b", 0, 1, "c")).transpose(order))


def test_converters_tell_what_does_not_fit():
    converter = DefaultViewConverter((2, 3, 4))
    rows = np.arange(48.0).reshape(2, 24)
    topo = converter.design_mat_to_topo_view(rows)
    assert np.shares_memory(topo, rows)
    with pytest.raises(ValueError, match="rows of 24"):
        converter.design_mat_to_topo_view(np.zeros((2, 23)))
    with pytest.raises(ValueError, match="are expected"):
        converter.topo_view_to_design_mat(np.zeros((2, 3, 2, 4)))
    with pytest.raises(ValueError, match="VectorSpace or a Conv2DSpace"):
        converter.get_formatted_batch(rows, IndexSpace(3, 24))
    converter.set_axes(("c", 0, 1, "b"))
    assert converter.design_mat_to_topo_view(rows).shape == (4, 2, 3, 2)
    assert converter.design_mat_to_weights_view(rows).shape == (2, 2, 3, 4)
    assert converter.get_formatted_batch(rows, VectorSpace(24, dtype="float32")).dtype == "float32"
    with pytest.raises(AssertionError, match="axes must be four"):
        converter.set_axes(("b", 0, 1))
    assert converter.axes == ("c", 0, 1, "b")  # as it was, and good for a pickle
    assert pickle.loads(pickle.dumps(converter)).axes == converter.axes
    with pytest.raises(ValueError, match=r"shape is \(rows, columns, channels\), found \[2, 3\]"):
        DefaultViewConverter((2, 3))


# ---------------------------------------------------------------- design matrices
@pytest.fixture
def dataset():
    rows = np.arange(24.0).reshape(12, 2)
    return DenseDesignMatrix(X=rows, y=np.arange(12)[:, None], y_labels=12)


def test_specs_describe_the_data(dataset):
    space, source = dataset.get_data_specs()
    assert space == CompositeSpace((VectorSpace(2), IndexSpace(12, 1)))
    assert source == ("features", "targets")
    assert dataset.get_num_examples() == dataset.num_examples == 12
    assert dataset.has_targets()
    assert dataset.get_targets() is dataset.get_data()[1]
    assert not DenseDesignMatrix(X=np.zeros((2, 2))).has_targets()


def test_iterators_follow_their_specs(dataset):
    both = dataset.get_data_specs()
    for rows, labels in dataset.iterator("sequential", batch_size=5, data_specs=both):
        np.testing.assert_array_equal(rows[:, 0], 2 * labels[:, 0])
    one_hot = CompositeSpace((VectorSpace(12), VectorSpace(12, sparse=True), VectorSpace(2)))
    source = ("targets", "targets", "features")
    batch = next(dataset.iterator("sequential", batch_size=5, data_specs=(one_hot, source)))
    assert batch[0].argmax(axis=1).tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(batch[1].toarray(), batch[0])

    alone = dataset.iterator("sequential", batch_size=5, data_specs=(VectorSpace(2), "features"))
    assert isinstance(next(alone), np.ndarray)
    options = {"batch_size": 5, "data_specs": (VectorSpace(2), "features"), "return_tuple": True}
    assert isinstance(next(dataset.iterator("sequential", **options)), tuple)
    assert alone.batch_size == 5
    assert (alone.num_batches, alone.num_examples, alone.uneven) == (3.0, 12, True)
    assert not alone.stochastic


def test_iterators_need_a_mode(dataset):
    with pytest.raises(ValueError, match="no mode"):
        dataset.iterator()
    with pytest.raises(ValueError, match="no mode"):
        iter(dataset)
    dataset._iter_subset_class, dataset._iter_batch_size = "sequential", 4
    assert [len(batch) for batch in dataset] == [4, 4, 4]


def test_a_wrong_width_is_found_with_the_first_batch(dataset):
    iterator = dataset.iterator("sequential", 5, data_specs=(VectorSpace(3), "features"))
    with pytest.raises(ValueError, match="total dimension"):
        next(iterator)


def test_default_epochs_differ_but_repeat_from_run_to_run():
    def epochs():
        made = DenseDesignMatrix(X=np.arange(30.0)[:, None])
        return [batches(made.iterator("shuffled_sequential", 30)) for _ in range(2)]

    state, expected = np.random.RandomState((17, 2, 946)), []
    for _ in range(2):
        rows = list(range(30))
        state.shuffle(rows)
        expected.append([[[float(row)] for row in rows]])
    assert epochs() == epochs() == expected
    assert expected[0] != expected[1]


def test_blocks_and_parts(dataset):
    rows, labels = dataset.get_batch_design(4, include_labels=True)
    assert (np.diff(labels[:, 0]) == 1).all()
    np.testing.assert_array_equal(rows[:, 0], 2 * labels[:, 0])
    assert DenseDesignMatrix(X=np.zeros((5, 2), "u1")).get_batch_design(3).dtype == np.float64
    with pytest.raises(ValueError, match="is not cut from 12"):
        dataset.get_batch_design(13)

    assert [len(fold) for fold in dataset.split_dataset_nfolds(5)] == [3, 3, 3, 3]
    train, valid = dataset.split_dataset_holdout(train_prop=0.75)
    assert (len(train), len(valid)) == (9, 3)
    assert [len(part) for part in dataset.bootstrap_holdout(train_size=8)] == [8, 4]
    assert [len(fold) for fold in dataset.bootstrap_nfolds(3)] == [4, 4, 4]
    with pytest.raises(ValueError, match="train_size or train_prop"):
        dataset.split_dataset_holdout()

    part = dataset_range(dataset, 2, 5)
    assert part.y.tolist() == [[2], [3], [4]]
    assert part.y_labels == 12
    assert from_dataset(dataset, 5).get_num_examples() == 5
    dataset.restrict(3, 6)
    assert dataset.y.tolist() == [[3], [4], [5]]
    with pytest.raises(AttributeError, match="no targets to restrict"):
        DenseDesignMatrix(X=np.zeros((4, 2))).restrict(0, 2)


def test_images_in_blocks():
    dataset = DenseDesignMatrix(topo_view=images(("b", 0, 1, "c")))
    assert dataset.get_batch_topo(2).shape == (2, 2, 3, 4)
    assert set_axes(dataset, ("c", 0, 1, "b")) is dataset
    assert dataset.get_batch_topo(2, include_labels=True)[0].shape == (4, 2, 3, 2)
    space = Conv2DSpace((2, 3), num_channels=4, axes=("b", "c", 0, 1))
    assert dataset.get_formatted_view(dataset.X[:2], space).shape == (2, 4, 2, 3)
    with pytest.raises(Exception, match="no view converter"):
        DenseDesignMatrix(X=np.zeros((2, 2))).get_weights_view(np.zeros((2, 2)))


def test_wrong_data_is_refused():
    with pytest.raises(AssertionError, match="label 3, which is not below 3"):
        DenseDesignMatrix(X=np.zeros((4, 1)), y=np.arange(4)[:, None], y_labels=3)
    with pytest.raises(AssertionError, match="X holds the label"):
        DenseDesignMatrix(X=np.arange(4)[:, None], X_labels=2)
    spoilt = images(("b", 0, 1, "c"))
    spoilt[0, 0, 0, 0] = np.nan
    with pytest.raises(AssertionError, match="holds NaN"):
        DenseDesignMatrix(topo_view=spoilt)


def test_targets_become_indicators(dataset):
    dataset.convert_to_one_hot()
    np.testing.assert_array_equal(dataset.y, np.eye(12))
    assert dataset.get_data_specs()[0].components[1] == VectorSpace(12)


def test_pickles(dataset):
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(again.X, dataset.X)


# ---------------------------------------------------------------- several arrays
def test_arrays_in_spaces_of_their_own():
    pair = CompositeSpace((VectorSpace(2), IndexSpace(9, 1)))
    data = (np.arange(16.0).reshape(8, 2), np.arange(8)[:, None])
    dataset = VectorSpacesDataset(data, (pair, ("x", "y")))
    assert dataset.get_num_examples() == 8
    found = list(dataset.iterator("shuffled_sequential", 3, data_specs=(pair, ("x", "y"))))
    for rows, labels in found:
        np.testing.assert_array_equal(rows[:, 0], 2 * labels[:, 0])
    with pytest.raises(AssertionError, match="named twice"):
        VectorSpacesDataset(data, (pair, ("x", "x")))
    with pytest.raises(AssertionError, match=r"\[5, 8\] examples"):
        VectorSpacesDataset((data[0], data[1][:5]), (pair, ("x", "y")))
    alone = VectorSpacesDataset(data[0], (VectorSpace(2), "x"))
    assert alone.get_num_examples() == 2  # the length of the first row


# ---------------------------------------------------------------- files
@pytest.fixture(scope="module")
def path(tmp_path_factory):
    name = tmp_path_factory.mktemp("pylearn2") / "examples.h5"
    with h5py.File(name, "w") as f:
        f["X"] = np.arange(40.0).reshape(20, 2)
        f["more/y"] = np.arange(20)[:, None]
        f["images"] = np.arange(20 * 24).reshape(20, 2, 3, 4)
    return str(name)


def opened(path, **options):
    spaces = [VectorSpace(2), IndexSpace(20, 1)]
    return HDF5Dataset(path, sources=["X", "more/y"], spaces=spaces, **options)


MODES = ["sequential", "shuffled_sequential", "batchwise_shuffled_sequential"]


@pytest.mark.parametrize("load_all", [False, True])
@pytest.mark.parametrize("mode", [*MODES, "random_slice", "random_uniform", "even_sequential"])
def test_files_iterate_in_every_mode(path, mode, load_all):
    dataset = opened(path, load_all=load_all)
    count = 4 if mode.startswith("random") else None
    found = list(dataset.iterator(mode, batch_size=6, num_batches=count))
    assert isinstance(found[0], tuple)
    for rows, labels in found:
        np.testing.assert_array_equal(rows[:, 0], 2 * labels[:, 0])
    if mode in MODES:
        assert sorted(itertools.chain(*(y[:, 0] for _, y in found))) == list(range(20))


def test_shuffled_files_keep_their_order(path):
    specs = (VectorSpace(2), "X")
    found = list(opened(path).iterator("shuffled_sequential", 7, rng=3, data_specs=specs))
    rows = list(range(20))
    np.random.RandomState(3).shuffle(rows)
    np.testing.assert_array_equal(np.concatenate(found)[:, 0], 2.0 * np.array(rows))


def test_rows_of_files(path):
    dataset = opened(path)
    assert dataset.get_num_examples() == 20
    assert dataset.get(("X",), 3)[0].tolist() == [6, 7]
    assert dataset.get(("X", "more/y"), slice(2, 4))[1].tolist() == [[2], [3]]
    assert dataset.get(("X",), [5])[0].shape == (1, 2)
    (rows,) = dataset.get(("X",), [5, 1, 5])
    assert isinstance(rows, list)
    assert [row.tolist() for row in rows] == [[10, 11], [2, 3], [10, 11]]
    for wrong in (np.array([1, 2]), []):
        with pytest.raises(AssertionError):
            dataset.get(("X",), wrong)
    with pytest.raises(KeyError, match="no source 'Z'"):
        dataset.get(("Z",), 1)
    with pytest.raises(KeyError, match="no source 'Z'"):
        HDF5Dataset(path, sources=["Z"], spaces=[VectorSpace(2)])
    for sources, spaces in ((("X",), [VectorSpace(2)]), (["X"], []), (["X"], (VectorSpace(2),))):
        with pytest.raises(AssertionError):
            HDF5Dataset(path, sources=sources, spaces=spaces)


@pytest.mark.parametrize("aliases", [["features", None], {"X": "features"}])
def test_aliases_replace_names_of_sources(path, aliases):
    dataset = opened(path, aliases=aliases)
    assert dataset.get_data_specs()[1] == ("features", "more/y")
    assert dataset.get(("features",), 1)[0].tolist() == dataset.get(("X",), 1)[0].tolist()
    specs = (VectorSpace(2), "features")
    assert next(dataset.iterator("sequential", 3, data_specs=specs)).shape == (3, 2)
    with pytest.raises(ValueError, match="no source 'X'"):
        dataset.iterator("sequential", 3, data_specs=(VectorSpace(2), "X"))


def test_datasets_of_files_are_pickled(path):
    dataset = pickle.loads(pickle.dumps(opened(path)))
    assert dataset.get(("X",), 3)[0].tolist() == [6, 7]
    older = pickle.loads(pickle.dumps(HDF5DatasetDeprecated(path, X="X")))
    assert next(older.iterator("sequential", 3)).shape == (3, 2)


@given(st.integers(1, 20), st.integers(0, 5))
def test_the_older_class_sorts_its_batches(path_of_session, batch_size, seed):
    dataset = HDF5Dataset(path_of_session, X="X", y="more/y")
    assert isinstance(dataset, HDF5DatasetDeprecated)
    specs = (CompositeSpace((VectorSpace(2), VectorSpace(1))), ("features", "targets"))
    found = list(dataset.iterator("shuffled_sequential", batch_size, rng=seed, data_specs=specs))
    rows = list(range(20))
    np.random.RandomState(seed).shuffle(rows)
    for k, (features, targets) in enumerate(found):
        assert targets[:, 0].tolist() == sorted(rows[k * batch_size : (k + 1) * batch_size])
        np.testing.assert_array_equal(features[:, 0], 2 * targets[:, 0])


@pytest.fixture(scope="module")
def path_of_session(path):
    return path


def test_the_older_class_fails_where_it_failed(path):
    dataset = HDF5DatasetDeprecated(path, X="X")
    with pytest.raises(IndexError, match="a mask of 18 rows"):
        next(dataset.iterator("random_slice", batch_size=6, num_batches=3))
    with pytest.raises(AssertionError, match="X or topo_view"):
        HDF5DatasetDeprecated(path, X="X", topo_view="images")


def test_the_older_class_flattens_stored_images(path):
    dataset = HDF5DatasetDeprecated(path, topo_view="images")
    assert dataset.get_data_specs()[0] == VectorSpace(20)  # the number of examples, wrongly
    stored = np.arange(20 * 24).reshape(20, 2, 3, 4)
    specs = (VectorSpace(24), "features")
    (first, *_) = dataset.iterator("sequential", 6, data_specs=specs)
    np.testing.assert_array_equal(first, stored.transpose(0, 3, 1, 2).reshape(20, 24)[:6])
    space = Conv2DSpace((2, 3), num_channels=4, axes=("c", 0, 1, "b"))
    (first, *_) = dataset.iterator("sequential", 6, data_specs=(space, "features"))
    np.testing.assert_array_equal(first, stored[:6].transpose(3, 1, 2, 0))
    np.testing.assert_array_equal(dataset.get_topological_view(), stored)


# ---------------------------------------------------------------- all together
def test_specs_are_flattened_iterated_once_and_nested_back():
    dataset = DenseDesignMatrix(
        topo_view=images(("b", 0, 1, "c")), y=np.arange(5)[:, None], y_labels=5
    )
    rows, stacked = VectorSpace(24), Conv2DSpace((2, 3), num_channels=4, axes=("c", 0, 1, "b"))
    labels = VectorSpace(5)
    space = CompositeSpace((rows, CompositeSpace((stacked, labels)), rows))
    source = ("features", ("features", "targets"), "features")
    mapping = DataSpecsMapping((space, source))
    flat = (CompositeSpace(mapping.flatten(space, return_tuple=True)), mapping.flatten(source))
    assert flat[1] == ("features", "features", "targets")
    assert (mapping.nest(flat[1]), mapping.nest(flat[0])) == (source, space)

    for batch in dataset.iterator("sequential", 2, data_specs=flat, return_tuple=True):
        nested = mapping.nest(batch)
        space.np_validate(nested)
        first, (image, target), again = nested
        assert first is again
        np.testing.assert_array_equal(target.argmax(axis=1)[:, None] * 24, first[:, :1])
        np.testing.assert_array_equal(image[:, 0, 0, :].T, first.reshape(-1, 4, 6)[:, :, 0])


def test_the_library_itself_does_not_import_old_faces():
    code = "import labeled, sys; print([m for m in sys.modules if m.startswith('labeled.compat')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
