"""The old specs mapping, subset iterators and one-hot helpers, through import aliases alone."""

from __future__ import annotations

import itertools

import dask.array as da
import numpy as np
import pylearn2_aliases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylearn2.datasets.dense_design_matrix import DenseDesignMatrix
from pylearn2.format.target_format import (
    OneHotFormatter,
    compressed_one_hot,
    convert_to_one_hot,
)
from pylearn2.space import CompositeSpace, Conv2DSpace, NullSpace, VectorSpace
from pylearn2.utils.data_specs import (
    DataSpecsMapping,
    is_flat_source,
    is_flat_space,
    is_flat_specs,
)
from pylearn2.utils.iteration import (
    BatchwiseShuffledSequentialIterator,
    EvenSequencesSubsetIterator,
    FiniteDatasetIterator,
    RandomSliceSubsetIterator,
    RandomUniformSubsetIterator,
    SequentialSubsetIterator,
    ShuffledSequentialSubsetIterator,
    SubsetIterator,
    as_even,
    has_uniform_batch_size,
    is_stochastic,
    resolve_iterator_class,
)

assert pylearn2_aliases.ALIASES
X, Y, IMAGES = VectorSpace(3), VectorSpace(2), Conv2DSpace((1, 1), num_channels=3)


# ---------------------------------------------------------------- specs
FLATTENED = [
    (X, "features", X, "features"),
    (CompositeSpace([X, Y]), ("features", "targets"), CompositeSpace([X, Y]), None),
    (CompositeSpace([X, X]), ("features", "features"), X, "features"),
    (
        CompositeSpace([CompositeSpace([X, Y]), CompositeSpace([Y, X])]),
        (("features", "targets"), ("targets", "features")),
        CompositeSpace([X, Y]),
        ("features", "targets"),
    ),
    (
        CompositeSpace([X, CompositeSpace([IMAGES, Y])]),
        ("features", ("features", "targets")),
        CompositeSpace([X, IMAGES, Y]),
        ("features", "features", "targets"),
    ),
    (
        CompositeSpace([NullSpace(), CompositeSpace([X, NullSpace()])]),
        ("", ("features", "")),
        X,
        "features",
    ),
]


@pytest.mark.parametrize(("space", "source", "flat_space", "flat_source"), FLATTENED)
def test_specs_are_flattened(space, source, flat_space, flat_source):
    mapping = DataSpecsMapping((space, source))
    assert mapping.flatten(space) == flat_space
    assert mapping.flatten(source) == (source if flat_source is None else flat_source)


@pytest.mark.parametrize(("space", "source"), [case[:2] for case in FLATTENED[:5]])
def test_specs_come_back_nested(space, source):
    mapping = DataSpecsMapping((space, source))
    assert mapping.nest(mapping.flatten(space, return_tuple=False)) == space
    assert mapping.nest(mapping.flatten(source, return_tuple=True)) == source
    data = tuple(object() for _ in range(mapping.n_unique_specs))
    assert mapping.flatten(mapping.nest(data), return_tuple=True) == data


def test_wrong_specs_are_refused_in_the_old_ways():
    with pytest.raises(ValueError, match="is elementary"):
        DataSpecsMapping((X, ("features", "targets")))
    with pytest.raises(AssertionError, match="for a space"):
        DataSpecsMapping(("features", X))
    with pytest.raises(AssertionError, match="source of a NullSpace"):
        DataSpecsMapping((NullSpace(), "features"))
    with pytest.raises(ValueError, match="has 2 components"):
        DataSpecsMapping((CompositeSpace([X, Y]), ("features",)))
    assert DataSpecsMapping((X, ("features",))).spec_mapping == 0


def test_a_mapping_shows_its_numbers():
    space = CompositeSpace([X, CompositeSpace([NullSpace(), Y, X])])
    mapping = DataSpecsMapping((space, ("a", ("", "b", "a"))))
    assert mapping.spec_mapping == (0, (None, 1, 0))
    assert mapping.n_unique_specs == 2
    assert mapping.specs_to_index == {(X, "a"): 0, (Y, "b"): 1}
    assert mapping.nest((1, 2)) == (1, (None, 2, 1))
    with pytest.raises(AssertionError, match="expected 2 elements, found 3"):
        mapping.nest((1, 2, 3))
    with pytest.raises(AssertionError, match="null position holds nothing"):
        mapping.flatten((1, (5, 2, 1)))
    with pytest.raises(AssertionError, match="one pair holds two things"):
        mapping.flatten((1, (None, 2, 7)))


@pytest.mark.parametrize("nested", [(None, (None, 3)), (7, (7, None)), [None, (None, None)]])
def test_nothing_is_no_value_of_a_position_that_holds_data(nested):
    two = CompositeSpace([VectorSpace(2), CompositeSpace([VectorSpace(2), VectorSpace(3)])])
    mapping = DataSpecsMapping((two, ("a", ("a", "b"))))
    with pytest.raises(AssertionError, match="None among what is flattened"):
        mapping.flatten(nested)
    with pytest.raises(AssertionError, match="None among what is flattened"):
        DataSpecsMapping((VectorSpace(2), "a")).flatten(None, return_tuple=True)
    array = np.zeros(2)  # which is compared with nothing, not even with None
    assert DataSpecsMapping((VectorSpace(2), "a")).flatten(array) is array


def test_specs_of_nothing():
    mapping = DataSpecsMapping((NullSpace(), ""))
    assert mapping.flatten("") is mapping.flatten(None) is mapping.nest(()) is None
    assert mapping.flatten("", return_tuple=True) == ()
    assert mapping.flatten(NullSpace()) == CompositeSpace([])


def test_flatness():
    nested = CompositeSpace([CompositeSpace([X])])
    assert [is_flat_space(s) for s in (X, CompositeSpace([X]), nested)] == [True, True, False]
    assert [is_flat_source(s) for s in ("a", ["a"], ("a", ["b"]))] == [True, True, False]
    assert is_flat_specs((CompositeSpace([X, Y]), ("a", "b")))
    with pytest.raises(TypeError, match="expected a space"):
        is_flat_space("a")
    with pytest.raises(TypeError, match="a source is a str"):
        is_flat_source(5)


# ---------------------------------------------------------------- subsets
ALL = [
    SequentialSubsetIterator,
    ShuffledSequentialSubsetIterator,
    BatchwiseShuffledSequentialIterator,
    RandomSliceSubsetIterator,
    RandomUniformSubsetIterator,
]


def lists(iterator, n):
    return [np.arange(n)[subset].tolist() for subset in iterator]


def test_the_base_class_does_nothing():
    with pytest.raises(NotImplementedError):
        SubsetIterator(1, 2, 3)
    base = SubsetIterator.__new__(SubsetIterator)
    with pytest.raises(NotImplementedError):
        base.next()

    class OnlyNext(SubsetIterator):
        def __init__(self):
            pass

        def next(self):
            return slice(0, 1)

    assert next(OnlyNext()) is None


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (SequentialSubsetIterator, (10, 3, 4, 0), "draws nothing"),
        (SequentialSubsetIterator, (10,), "batch_size or num_batches"),
        (SequentialSubsetIterator, (10, 3, 5), "not 5"),
        (ShuffledSequentialSubsetIterator, (10, 3, 5), "not 5"),
        (RandomSliceSubsetIterator, (10, 3), "batch_size and num_batches"),
        (RandomUniformSubsetIterator, (10, None, 3), "batch_size and num_batches"),
        (RandomSliceSubsetIterator, (10, 11, 1), "not cut from 10"),
        (as_even(SequentialSubsetIterator), (10, 3, 4), "3 full batches"),
        (as_even(SequentialSubsetIterator), (10,), "batch_size or num_batches"),
        (EvenSequencesSubsetIterator, (10, 3), "list or ndarray"),
        (EvenSequencesSubsetIterator, ([[1]],), "needs batch_size"),
        (EvenSequencesSubsetIterator, ([[1]], 3, 1), "no num_batches"),
    ],
)
def test_impossible_subsets_are_value_errors(kind, arguments, words):
    with pytest.raises(ValueError, match=words):
        kind(*arguments)


def test_sequential_slices():
    iterator = SequentialSubsetIterator(10, 3, 4)
    slices = [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]
    assert [next(iterator) for _ in range(4)] == slices
    assert all(s.step is None for s in slices)
    with pytest.raises(StopIteration):
        iterator.next()
    assert list(SequentialSubsetIterator(10, 3, 2)) == slices[:2]
    assert list(SequentialSubsetIterator(10, num_batches=3)) == [
        slice(0, 4),
        slice(4, 8),
        slice(8, 10),
    ]


def test_shuffled_sequential_visits_each_row_once():
    iterator = ShuffledSequentialSubsetIterator(10, 3, 4, rng=2)
    batches = list(iterator)
    assert len(batches) == iterator.num_batches == np.ceil(10 / 3)
    assert sorted(itertools.chain(*batches)) == list(range(10))
    assert iterator.fancy
    assert iterator.stochastic


def test_random_slices_are_of_one_length():
    iterator = RandomSliceSubsetIterator(50, num_batches=10, batch_size=5)
    slices = list(iterator)
    assert [s.stop - s.start for s in slices] == [5] * 10
    assert all(0 <= s.start <= s.stop <= 50 for s in slices)
    assert (iterator.num_examples, iterator.batch_size, iterator.num_batches) == (50, 5, 10)


def test_random_uniform_draws_rows():
    iterator = RandomUniformSubsetIterator(50, num_batches=10, batch_size=5)
    batches = np.array(list(iterator))
    assert batches.shape == (10, 5)
    assert 0 <= batches.min() <= batches.max() < 50
    assert RandomUniformSubsetIterator(5, 10, 10).num_examples == 100  # more than there are


def test_batchwise_shuffled_blocks():
    iterator = BatchwiseShuffledSequentialIterator(30, batch_size=7)
    slices = list(iterator)
    assert sorted(itertools.chain(*lists(slices, 30))) == list(range(30))
    assert slices != sorted(slices, key=lambda s: s.start)
    assert isinstance(iterator.num_batches, int)


@pytest.mark.parametrize(("n", "num_batches"), [(7, 10), (3, 5), (2, 3)])
def test_blocks_that_cannot_be_reached_are_shuffled_too(n, num_batches):
    order = list(range(num_batches))
    np.random.RandomState(42).shuffle(order)
    size = -(-n // num_batches)
    found = lists(BatchwiseShuffledSequentialIterator(n, None, num_batches), n)
    assert found == [list(range(n))[block * size : (block + 1) * size] for block in order]


@pytest.mark.parametrize("kind", ALL[:3])
def test_even_iterators_leave_out_short_batches(kind):
    options = {"rng": 3} if kind.stochastic else {}
    plain = kind(50, 20, **options)
    even = as_even(kind)(50, 20, **options)
    assert plain.uneven
    assert not even.uneven
    assert len(list(plain)) == 3
    batches = lists(even, 50)
    assert [len(rows) for rows in batches] == [20, 20]
    assert even.num_examples == 40
    assert even.uniform_batch_size
    assert not kind.uniform_batch_size
    assert as_even(kind).__name__ == "ForcedEven" + kind.__name__
    assert list(as_even(kind)(5, 20)) == []


SEQUENCES = [[0] * length for length in (1, 1, 2, 2, 2, 1, 3, 4, 4)]


def test_even_sequences_visit_all():
    data = np.empty(len(SEQUENCES), object)
    data[:] = SEQUENCES
    for given_as in (SEQUENCES, data):
        iterator = EvenSequencesSubsetIterator(given_as, 2)
        batches = list(iterator)
        assert sorted(itertools.chain(*batches)) == list(range(9))
        assert all(len({len(SEQUENCES[i]) for i in rows}) == 1 for rows in batches)
        assert sorted(itertools.chain(*iterator)) == list(range(9))  # again, reshuffled


def test_even_sequences_are_determined_by_their_seed():
    one, two = (EvenSequencesSubsetIterator(SEQUENCES, 2, rng=[2017, 5]) for _ in range(2))
    for _ in range(3):
        assert [rows.tolist() for rows in one] == [rows.tolist() for rows in two]


@given(st.integers(1, 60), st.integers(1, 20), st.sampled_from(ALL[:3]))
def test_examples_are_counted(n, batch_size, kind):
    iterator = kind(n, batch_size, **({"rng": 1} if kind.stochastic else {}))
    assert iterator.num_examples == n == sum(map(len, lists(iterator, n)))
    assert iterator.uneven == bool(n % batch_size)


def test_generators_are_shared_and_advance():
    shared = np.random.RandomState(5)
    first = lists(ShuffledSequentialSubsetIterator(20, 20, rng=shared), 20)
    second = lists(ShuffledSequentialSubsetIterator(20, 20, rng=shared), 20)
    expected, state = [], np.random.RandomState(5)
    for _ in range(2):
        rows = list(range(20))
        state.shuffle(rows)
        expected.append([rows])
    assert [first, second] == expected
    # a shuffle is drawn when the iterator is made, a slice when it is asked for
    shared, state = np.random.RandomState(5), np.random.RandomState(5)
    slices = RandomSliceSubsetIterator(50, 5, 2, rng=shared)
    rows = ShuffledSequentialSubsetIterator(20, 20, rng=shared)
    wanted = list(range(20))
    state.shuffle(wanted)
    assert next(rows).tolist() == wanted
    assert next(slices).start == state.randint(0, 46)


def test_modes_are_resolved_by_name():
    assert resolve_iterator_class("sequential") is SequentialSubsetIterator
    assert resolve_iterator_class(RandomSliceSubsetIterator) is RandomSliceSubsetIterator
    with pytest.raises(ValueError, match="unknown iteration mode 'sequentially'"):
        resolve_iterator_class("sequentially")
    uniform = {"random_slice", "random_uniform", "even_sequential", "even_shuffled_sequential"}
    for mode in ("sequential", "shuffled_sequential", "even_sequences", *uniform):
        assert has_uniform_batch_size(mode) == (mode in uniform)
        assert is_stochastic(mode) == (mode not in ("sequential", "even_sequential"))


# ---------------------------------------------------------------- over a dataset
def test_an_unknown_source_is_named():
    dataset = DenseDesignMatrix(X=np.zeros((6, 2)), y=np.zeros((6, 1)))
    subset = SequentialSubsetIterator(6, 2)
    own = CompositeSpace((VectorSpace(2), VectorSpace(1)))
    FiniteDatasetIterator(dataset, subset, data_specs=(own, ("features", "targets")))
    with pytest.raises(ValueError, match="featuresX"):
        FiniteDatasetIterator(dataset, subset, data_specs=(own, ("featuresX", "targets")))
    with pytest.raises(ValueError, match="''"):
        FiniteDatasetIterator(dataset, subset, data_specs=(NullSpace(), ""))
    with pytest.raises(TypeError, match="needs data_specs"):
        FiniteDatasetIterator(dataset, subset)
    nested = CompositeSpace((own,))
    with pytest.raises(AssertionError, match="must be flat"):
        FiniteDatasetIterator(dataset, subset, data_specs=(nested, (("features", "targets"),)))
    with pytest.raises(AssertionError, match="2 spaces for the sources"):
        FiniteDatasetIterator(dataset, subset, data_specs=(own, ["features", "targets"]))


# ---------------------------------------------------------------- one-hot
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
@pytest.mark.parametrize("ndim", [1, 2])
def test_layouts_of_indicators(dtype, ndim):
    labels = np.array([[0, 2], [1, 1], [3, 0]], dtype)[:, : ndim if ndim == 2 else None]
    labels = labels if ndim == 2 else labels[:, 0]
    formatter = OneHotFormatter(max_labels=5, dtype="float32")
    eye = np.eye(5, dtype="float32")

    stacked = formatter.format(labels, mode="stack")
    np.testing.assert_array_equal(stacked, eye[labels])
    assert stacked.dtype == np.float32
    side_by_side = formatter.format(labels, mode="concatenate")
    np.testing.assert_array_equal(side_by_side, eye[labels].reshape(*labels.shape[:-1], -1))
    merged = formatter.format(labels, mode="merge")
    np.testing.assert_array_equal(merged, eye[labels].max(axis=-2))

    if ndim == 2:
        sparse = formatter.format(labels, mode="concatenate", sparse=True)
        np.testing.assert_array_equal(sparse.toarray(), side_by_side)
        added = formatter.format(labels, mode="merge", sparse=True).toarray()
        np.testing.assert_array_equal(added, eye[labels].sum(axis=-2))

    lazy = da.from_array(labels, chunks=2)
    modes = ("stack", "concatenate", "merge") if ndim == 2 else ("stack",)
    for mode in modes:
        made = formatter.theano_expr(lazy, mode=mode)
        np.testing.assert_array_equal(made.compute(), formatter.format(labels, mode=mode))
        assert made.shape == made.compute().shape


@pytest.mark.parametrize(
    ("labels", "options", "error"),
    [
        (np.array([5]), {}, IndexError),
        (np.array([[5]]), {"mode": "merge"}, IndexError),
        (np.array([[5]]), {"mode": "merge", "sparse": True}, ValueError),
        (np.array([-6]), {}, IndexError),
        (np.array([1.0]), {}, TypeError),
        (np.zeros((1, 1, 1), int), {}, ValueError),
        (np.array([1]), {"mode": "sideways"}, ValueError),
        (np.array([[1]]), {"mode": "stack", "sparse": True}, ValueError),
    ],
)
def test_labels_that_make_no_indicators(labels, options, error):
    with pytest.raises(error):
        OneHotFormatter(5).format(labels, **options)


def test_one_hot_helpers():
    np.testing.assert_array_equal(convert_to_one_hot([2, 0]), np.eye(3)[[2, 0]])
    assert convert_to_one_hot(np.array([1]), max_labels=4).shape == (1, 4)
    with pytest.raises(AssertionError, match="labels are 0 or more"):
        convert_to_one_hot([-1])
    with pytest.raises(ValueError, match="max_labels must be an integer"):
        OneHotFormatter(-1)
    labels = np.array([7, 3, 7, 9])
    np.testing.assert_array_equal(compressed_one_hot(labels).argmax(axis=1), [1, 0, 1, 2])
    assert compressed_one_hot(np.array([4, 8])).tolist() == [[0], [1]]
    assert compressed_one_hot(np.array([4, 8]), simplify_binary=False).shape == (2, 2)
    with pytest.raises(TypeError, match="labels are integers"):
        compressed_one_hot(np.array([0.5]))
    with pytest.raises(ValueError, match="one axis"):
        compressed_one_hot(np.zeros((2, 2), int))


def test_the_source_of_a_composite_of_one_is_a_tuple():
    dataset = DenseDesignMatrix(X=np.arange(12.0).reshape(4, 3))
    space = CompositeSpace((VectorSpace(3),))
    with pytest.raises(ValueError, match=r"tuple of 1 sources.*write \('features',\)"):
        dataset.iterator("sequential", 2, data_specs=(space, "features"))
    specs = (space, ("features",))
    batches = list(dataset.iterator("sequential", 2, data_specs=specs, return_tuple=True))
    for (found,), expected in zip(batches, (dataset.X[:2], dataset.X[2:]), strict=True):
        np.testing.assert_array_equal(found, expected)
