"""Pylearn2 by aliases: what a table of expressions cannot say (`test_compat_recorded.py`)."""

from __future__ import annotations

import pickle
import subprocess
import sys

import h5py
import numpy as np
import pylearn2_aliases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylearn2.datasets.dense_design_matrix import DefaultViewConverter, DenseDesignMatrix
from pylearn2.datasets.hdf5 import HDF5Dataset
from pylearn2.datasets.vector_spaces_dataset import VectorSpacesDataset
from pylearn2.space import CompositeSpace, Conv2DSpace, IndexSpace, NullSpace, VectorSpace
from pylearn2.utils import as_floatX
from pylearn2.utils.data_specs import DataSpecsMapping
from pylearn2.utils.iteration import (
    BatchwiseShuffledSequentialIterator,
    FiniteDatasetIterator,
    SequentialSubsetIterator,
    ShuffledSequentialSubsetIterator,
)

from labeled.compat.pylearn2 import config, install_aliases
from labeled.errors import LabeledError


def test_aliases_are_the_modules_themselves():
    import pylearn2.space
    import pylearn2.utils.iteration

    assert pylearn2.space.VectorSpace is VectorSpace
    assert pylearn2.utils.iteration.FiniteDatasetIterator is FiniteDatasetIterator
    assert "pylearn2.datasets.dense_design_matrix" in pylearn2_aliases.ALIASES
    with pytest.raises(ImportError, match="'numpy' is imported already"):
        install_aliases("numpy")


# each as the first module of this library: a fork of a process that has only its libraries
IMPORTS = """
import os
import h5py, numpy, xarray

for path in (
    "abstract_dataloader.ext.graph",
    "abstract_dataloader.generic.sync",
    "fuel.iterator",
    "fuel.transformers.sequences",
    "fuel.utils.parallel",
    "mxnet.io",
    "pylearn2.datasets.dense_design_matrix",
    "pylearn2.utils.iteration",
):
    child = os.fork()
    if not child:
        exec(f"import labeled.compat.{path} as module; assert module.__name__")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, path
"""


def test_a_change_of_import_is_enough():
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


def test_the_library_itself_does_not_import_old_faces():
    code = "import labeled, sys; print([m for m in sys.modules if m.startswith('labeled.compat')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_errors_are_of_one_built_in_kind_and_of_this_library():
    for target, kind in ((NullSpace(), NotImplementedError), (VectorSpace(3), ValueError)):
        with pytest.raises(LabeledError) as caught:
            VectorSpace(2).np_format_as(np.zeros((1, 2)), target)
        assert isinstance(caught.value, kind)
    with pytest.raises(LabeledError) as caught:
        Conv2DSpace((1, 2), 1).np_format_as(np.zeros((1, 1, 2, 1)), IndexSpace(3, 2))
    assert isinstance(caught.value, NotImplementedError)
    assert not isinstance(caught.value, ValueError)


def test_undoing_finds_the_lazy_batches_of_several_spaces_themselves():
    rows, images = VectorSpace(12), Conv2DSpace((2, 2), num_channels=3)
    nested = CompositeSpace((CompositeSpace((rows, rows)), images))
    turned = CompositeSpace((CompositeSpace((images, rows)), rows))
    for here, there in ((nested, VectorSpace(36)), (VectorSpace(36), nested), (nested, turned)):
        batch = here.make_theano_batch()
        back = here.undo_format_as(here.format_as(batch, there), there)
        assert (back,) == (batch,)  # of tuples, which look for the same objects first
        del batch, back
        gone = here.format_as(here.make_theano_batch(), there)
        here.validate(here.undo_format_as(gone, there))


def test_floatx_is_a_setting():
    config.floatX = "float32"
    try:
        assert VectorSpace(2).dtype == "float32"
        assert as_floatX(np.zeros(3)).dtype == as_floatX(1).dtype == np.float32
        assert VectorSpace(2, dtype=None).dtype is None
    finally:
        config.floatX = "float64"


KINDS = [
    SequentialSubsetIterator,
    ShuffledSequentialSubsetIterator,
    BatchwiseShuffledSequentialIterator,
]


@given(st.integers(1, 60), st.integers(1, 20), st.sampled_from(KINDS))
def test_examples_are_counted_and_visited_once(n, batch_size, kind):
    iterator = kind(n, batch_size, **({"rng": 1} if kind.stochastic else {}))
    visited = [row for rows in iterator for row in np.arange(n)[rows].tolist()]
    assert sorted(visited) == list(range(n))
    assert (iterator.num_examples, iterator.uneven) == (n, bool(n % batch_size))


def test_default_epochs_are_those_of_a_random_state():
    made = DenseDesignMatrix(X=np.arange(30.0)[:, None])
    state, rows = np.random.RandomState((17, 2, 946)), list(range(30))
    for _ in range(2):
        (batch,) = made.iterator("shuffled_sequential", 30)
        state.shuffle(rows := list(range(30)))
        assert batch[:, 0].tolist() == rows


def test_the_larger_part_of_a_holdout_comes_first():
    rows = np.arange(10.0)[:, None]
    few, many = DenseDesignMatrix(X=rows).split_dataset_holdout(train_size=3)
    assert few.ravel().tolist() == [7, 8, 9]
    assert many.ravel().tolist() == list(range(7))
    many, few = DenseDesignMatrix(X=rows).split_dataset_holdout(train_size=7)
    assert many.ravel().tolist() == list(range(7))


class Halved:
    """A preprocessor as they were written: it asks for the matrix, and sets another."""

    def apply(self, dataset, can_fit=False):
        dataset.set_design_matrix(dataset.get_design_matrix() / 2)


def test_preprocessors_set_the_matrix():
    made = DenseDesignMatrix(X=np.ones((4, 6)), preprocessor=Halved())
    made.apply_preprocessor(preprocessor=Halved(), can_fit=True)
    np.testing.assert_array_equal(made.X, np.full((4, 6), 0.25))
    with pytest.raises(AssertionError, match="no NaN"):
        made.set_design_matrix(np.full((4, 6), np.nan))
    images = DenseDesignMatrix(topo_view=np.zeros((5, 2, 3, 1)))
    assert list(images.view_shape()) == list(images.weights_view_shape()) == [2, 3, 1]
    with pytest.raises(ValueError, match="found 3 axes"):
        images.set_topological_view(np.zeros((5, 2, 3)))


def test_streams_of_random_blocks_go_back_to_where_they_stood():
    dataset = DenseDesignMatrix(X=np.arange(100.0)[:, None])
    first, position = dataset.get_batch_design(2), dataset.get_stream_position()
    second = dataset.get_batch_design(2)
    dataset.set_stream_position(position)
    np.testing.assert_array_equal(dataset.get_batch_design(2), second)
    dataset.restart_stream()
    np.testing.assert_array_equal(dataset.get_batch_design(2), first)


@pytest.mark.parametrize(
    ("y", "min_class", "words"),
    [
        (np.array([0, 1]), 1, "classes below 1"),
        (np.array([[0, 1], [1, 2]]), 0, "one integer each"),
        (np.array([0.0, 1.0]), 0, "one integer each"),
        (None, 0, "no targets"),
    ],
)
def test_targets_that_are_no_classes_are_refused(y, min_class, words):
    with pytest.raises(ValueError, match=words):
        DenseDesignMatrix(X=np.zeros((2, 3)), y=y).convert_to_one_hot(min_class)
    dataset = DenseDesignMatrix(X=np.zeros((2, 3)), y=np.array([3, 1]), y_labels=9)
    dataset.convert_to_one_hot(min_class=1)
    assert dataset.y.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_arrays_are_iterated_in_their_own_spaces_unless_others_are_given():
    both = CompositeSpace((VectorSpace(2), VectorSpace(1))), ("x", "y")
    dataset = VectorSpacesDataset((np.ones((4, 2)), np.zeros((4, 1))), both)
    assert [part.shape for part in next(dataset.iterator("sequential", 3))] == [(3, 2), (3, 1)]


def test_an_unknown_source_is_named():
    dataset = DenseDesignMatrix(X=np.zeros((6, 2)), y=np.zeros((6, 1)))
    own = CompositeSpace((VectorSpace(2), VectorSpace(1)))
    with pytest.raises(ValueError, match="featuresX"):
        FiniteDatasetIterator(
            dataset, SequentialSubsetIterator(6, 2), data_specs=(own, ("featuresX", "targets"))
        )


def test_specs_are_flattened_iterated_once_and_nested_back():
    images = np.arange(120.0).reshape(5, 2, 3, 4)
    dataset = DenseDesignMatrix(topo_view=images, y=np.arange(5)[:, None], y_labels=5)
    rows, stacked = VectorSpace(24), Conv2DSpace((2, 3), num_channels=4, axes=("c", 0, 1, "b"))
    space = CompositeSpace((rows, CompositeSpace((stacked, VectorSpace(5))), rows))
    source = ("features", ("features", "targets"), "features")
    mapping = DataSpecsMapping((space, source))
    flat = (CompositeSpace(mapping.flatten(space, return_tuple=True)), mapping.flatten(source))
    assert flat[1] == ("features", "features", "targets")
    for batch in dataset.iterator("sequential", 2, data_specs=flat, return_tuple=True):
        nested = mapping.nest(batch)
        space.np_validate(nested)
        first, (image, target), again = nested
        assert first is again
        np.testing.assert_array_equal(target.argmax(axis=1)[:, None] * 24, first[:, :1])
        np.testing.assert_array_equal(image[:, 0, 0, :].T, first.reshape(-1, 4, 6)[:, :, 0])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    name = tmp_path_factory.mktemp("pylearn2") / "examples.h5"
    with h5py.File(name, "w") as f:
        f["X"] = np.arange(40.0).reshape(20, 2)
        f["y"] = np.arange(20)[:, None]
    return str(name)


@given(st.integers(1, 20), st.integers(0, 5))
def test_files_are_shuffled_by_a_random_state_and_batches_are_sorted(path, n, seed):
    np.random.RandomState(seed).shuffle(rows := list(range(20)))
    specs = (CompositeSpace((VectorSpace(2), VectorSpace(1))), ("features", "targets"))
    dataset = HDF5Dataset(path, X="X", y="y")
    batches = dataset.iterator("shuffled_sequential", n, rng=seed, data_specs=specs)
    for k, (x, y) in enumerate(batches):
        assert y[:, 0].tolist() == sorted(rows[k * n : (k + 1) * n])
        np.testing.assert_array_equal(x[:, 0], 2 * y[:, 0])


@pytest.mark.parametrize("batch_size", [1, 15])
def test_a_mask_that_does_not_fit_is_named_whatever_is_drawn(path, batch_size):
    specs = (VectorSpace(2), "features")
    batches = HDF5Dataset(path, X="X").iterator("random_uniform", batch_size, 2, data_specs=specs)
    with pytest.raises(IndexError, match=f"a mask of {2 * batch_size} rows does not fit 20"):
        next(batches)


def test_pickles(path):
    converter = DefaultViewConverter((2, 3, 4), ("c", 0, 1, "b"))
    assert pickle.loads(pickle.dumps(converter)).axes == converter.axes
    rows = pickle.loads(pickle.dumps(DenseDesignMatrix(X=np.eye(3))))
    np.testing.assert_array_equal(rows.X, np.eye(3))
    stored = pickle.loads(pickle.dumps(HDF5Dataset(path, X="X")))
    assert next(stored.iterator("sequential", 3)).shape == (3, 2)
