"""The old spaces, through nothing but import aliases: conversions, dtypes, checks, lazily too."""

from __future__ import annotations

import copy
import itertools

import dask.array as da
import numpy as np
import pylearn2_aliases
import pytest
import scipy.sparse
from pylearn2.space import (
    CompositeSpace,
    Conv2DSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    SimplyTypedSpace,
    Space,
    VectorSequenceSpace,
    VectorSpace,
    is_symbolic_batch,
)
from pylearn2.utils import as_floatX, function, safe_izip, safe_zip

from labeled.compat.pylearn2 import config, install_aliases
from labeled.errors import LabeledError

rng = np.random.default_rng(7)


def close(found, expected):
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_aliases_are_the_modules_themselves():
    import pylearn2.space
    import pylearn2.utils.iteration

    assert pylearn2.space.VectorSpace is VectorSpace
    assert "pylearn2.datasets.dense_design_matrix" in pylearn2_aliases.ALIASES
    with pytest.raises(ImportError, match="'numpy' is imported already"):
        install_aliases("numpy")


# ---------------------------------------------------------------- what the old suite asserted


def test_sequences_convert_among_themselves():
    rows = rng.random((10, 16)).astype("float32")
    here, there = VectorSequenceSpace(16, dtype="float32"), VectorSequenceSpace(16, dtype="float64")
    close(here.np_format_as(rows, there), rows)
    labels = rng.integers(0, 6, (10, 10)).astype("int16")
    small = IndexSequenceSpace(max_labels=6, dim=10, dtype="int16")
    wide = IndexSequenceSpace(max_labels=6, dim=10, dtype="int32")
    made = small.np_format_as(labels, wide)
    close(made, labels)
    assert made.dtype == np.int32


def test_a_sequence_of_labels_becomes_indicators():
    labels = np.array([[1], [0], [4], [2]])
    expected = np.eye(5)[labels[:, 0]]
    made = IndexSequenceSpace(5, 1).np_format_as(labels, VectorSequenceSpace(5))
    close(made, expected)
    pairs = IndexSequenceSpace(5, 2).np_format_as(np.array([[1, 3]]), VectorSequenceSpace(10))
    close(pairs, [[0, 1, 0, 0, 0, 0, 0, 0, 1, 0]])


@pytest.mark.parametrize("other", [VectorSpace(7), VectorSpace(7, sparse=True), IndexSpace(8, 7)])
def test_sequences_lead_nowhere_else(other):
    for sequence in (VectorSequenceSpace(7), IndexSequenceSpace(8, 7)):
        batch = np.ones((10, 7), dtype=sequence.dtype)
        with pytest.raises(ValueError, match="no conversion leads to"):
            sequence.np_format_as(batch, other)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_labels_become_side_by_side_or_merged_indicators(k):
    labels = rng.permuted(np.tile(np.arange(10), (6, 1)), axis=1)[:, :k]
    index = IndexSpace(max_labels=10, dim=k)
    side_by_side = index.np_format_as(labels, VectorSpace(10 * k))
    merged = index.np_format_as(labels, VectorSpace(10))
    assert side_by_side.shape == (6, 10 * k)
    assert (np.count_nonzero(side_by_side, axis=1) == k).all()
    assert (np.count_nonzero(merged, axis=1) == k).all()  # labels of a row all differ
    sparse = index.np_format_as(labels, VectorSpace(10 * k, sparse=True))
    close(sparse.toarray(), side_by_side)
    with pytest.raises(ValueError, match=r"labels? of 10 become .* not"):
        index.np_format_as(labels, VectorSpace(10 * k + 1))


NUMERIC = {
    "vector": VectorSpace(12, dtype="float32"),
    "wide vector": VectorSpace(12, dtype="float64"),
    "sparse": VectorSpace(12, sparse=True, dtype="float32"),
    "images": Conv2DSpace((2, 2), channels=3, axes=("c", 0, 1, "b"), dtype="float64"),
    "parts": CompositeSpace((VectorSpace(5, dtype="float32"), VectorSpace(7, dtype="float32"))),
    "nested": CompositeSpace(
        (
            Conv2DSpace((1, 1), channels=3, dtype="float32"),
            CompositeSpace((VectorSpace(4, dtype="float32"), VectorSpace(5, dtype="float32"))),
        )
    ),
}


@pytest.mark.parametrize("name", [name for name in NUMERIC if name != "vector"])
def test_numbers_come_back_from_every_space(name):
    vector, other = NUMERIC["vector"], NUMERIC[name]
    batch = rng.random((3, 12)).astype("float32")
    made = vector.np_format_as(batch, other)
    other.np_validate(made)
    back = vector.undo_np_format_as(made, other)
    assert back.dtype == np.float32
    close(back, batch)


def test_equality_is_of_a_class():
    assert VectorSpace(2) != IndexSpace(max_labels=8, dim=2) != IndexSpace(9, 2)
    assert Conv2DSpace((8, 2), num_channels=3) == Conv2DSpace(shape=(8, 2), channels=3)
    assert CompositeSpace((VectorSpace(2),)) == CompositeSpace([VectorSpace(2)]) != VectorSpace(2)
    assert NullSpace() == NullSpace() != VectorSpace(2)
    same = {VectorSpace(3), VectorSpace(3), VectorSpace(3, sparse=True), VectorSpace(3, dtype=None)}
    assert len(same) == 3


# ---------------------------------------------------------------- the matrix
MATRIX_FROM = {
    "vector": VectorSpace(12),
    "sparse": VectorSpace(12, sparse=True),
    "images": Conv2DSpace((2, 2), channels=3),
    "index": IndexSpace(6, 2),
    "composite": CompositeSpace((VectorSpace(5), VectorSpace(7))),
    "null": NullSpace(),
    "vectors in time": VectorSequenceSpace(12),
    "labels in time": IndexSequenceSpace(6, 2),
}
# targets that fit by size: rows of 12 numbers, or 12 indices for what comes from numbers
VE, TE, NI, OK = ValueError, TypeError, NotImplementedError, None
MATRIX = {
    "vector": (OK, OK, OK, NI, OK, NI, NI, NI),
    "sparse": (OK, OK, TE, NI, OK, NI, NI, NI),
    "images": (OK, OK, OK, NI, NI, NI, NI, NI),
    "index": (OK, OK, VE, OK, VE, VE, VE, VE),
    "composite": (OK, OK, NI, NI, OK, NI, NI, NI),
    "null": (NI, NI, NI, NI, NI, NI, NI, NI),
    "vectors in time": (VE, VE, VE, VE, VE, VE, OK, VE),
    "labels in time": (VE, VE, VE, VE, VE, VE, OK, OK),
}


def kind_of(error):
    return next(k for k in (NotImplementedError, TypeError, ValueError) if isinstance(error, k))


def sample(space):
    if isinstance(space, NullSpace):
        return None
    if isinstance(space, VectorSequenceSpace):
        return np.ones((3, 12))
    if isinstance(space, IndexSequenceSpace):
        return np.ones((3, 2), int)
    return space.get_origin_batch(3)


@pytest.mark.parametrize("name", MATRIX)
def test_the_conversion_matrix(name):
    source = MATRIX_FROM[name]
    numbers = name in ("vector", "sparse", "images", "composite")
    targets = dict(MATRIX_FROM, index=IndexSpace(6, 12) if numbers else IndexSpace(6, 2))
    for (label, target), expected in zip(targets.items(), MATRIX[name], strict=True):
        if expected is OK:
            target.np_validate(source.np_format_as(sample(source), target))
            continue
        with pytest.raises(LabeledError) as caught:
            source.np_format_as(sample(source), target)
        assert kind_of(caught.value) is expected, label


def test_sizes_are_compared_before_kinds():
    with pytest.raises(ValueError, match="total dimension 12"):
        VectorSpace(12).np_format_as(np.zeros((1, 12)), IndexSpace(6, 2))
    with pytest.raises(ValueError, match="total dimension"):
        CompositeSpace((VectorSpace(5),)).np_format_as((np.zeros((1, 5)),), VectorSpace(6))


def test_composites_of_other_trees():
    leaf = VectorSpace(2)
    nested = CompositeSpace((CompositeSpace((leaf,)), leaf))
    batch = (np.zeros((1, 2)), np.zeros((1, 2)))
    with pytest.raises(TypeError, match="nested differently"):
        CompositeSpace((leaf, leaf)).np_format_as(batch, nested)
    with pytest.raises(ValueError, match="different numbers of components"):
        CompositeSpace((leaf, leaf)).np_format_as(batch, CompositeSpace((VectorSpace(4),)))


def test_pieces_of_several_dtypes_are_joined_only_with_one_given():
    pair = CompositeSpace((VectorSpace(1, dtype="float32"), VectorSpace(1, dtype="float64")))
    batch = (np.ones((2, 1), "float32"), np.ones((2, 1)))
    with pytest.raises(TypeError, match="pieces of dtypes float32, float64"):
        pair.np_format_as(batch, VectorSpace(2, dtype=None))
    assert pair.np_format_as(batch, VectorSpace(2, dtype="float16")).dtype == np.float16


# ---------------------------------------------------------------- dtypes
NAMES = [*(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))]
NAMES += ["float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_are_checked_one_way_and_cast_like_c(name):
    space = VectorSpace(2, dtype=name)
    assert VectorSpace(2, dtype=np.dtype(name)) == space
    assert space.get_origin_batch(3).dtype == name
    assert space.make_theano_batch().dtype == name
    for other in NAMES:
        batch = np.zeros((1, 2), other)
        refused = (other.startswith("complex") and not name.startswith("complex")) or (
            "int" in name and "int" not in other
        )
        if refused:
            with pytest.raises(TypeError):
                space.np_validate(batch)
        else:
            space.np_validate(batch)
            wanted = VectorSpace(2, dtype=other)
            if not (name.startswith("complex") and not other.startswith("complex")):
                assert space.np_format_as(batch, wanted).dtype == other


@pytest.mark.parametrize("dtype", [np.float32, "bool", "f4", "str", int, "float"])
def test_unknown_dtypes_are_refused(dtype):
    with pytest.raises(TypeError):
        VectorSpace(2, dtype=dtype)
    space = VectorSpace(2)
    with pytest.raises(TypeError):
        space.dtype = dtype
    assert space.dtype == config.floatX


def test_floatx_is_a_setting(monkeypatch):
    monkeypatch.setattr(config, "floatX", "float32")
    assert VectorSpace(2).dtype == "float32"
    assert as_floatX(np.zeros(3)).dtype == as_floatX(1).dtype == np.float32
    assert VectorSpace(2, dtype=None).dtype is None


def test_index_dtypes_are_names_of_integers():
    with pytest.raises(ValueError, match="must be integer"):
        IndexSpace(3, 1, dtype="float32")
    with pytest.raises(TypeError, match="must be a str"):
        IndexSpace(3, 1, dtype=np.dtype("int32"))


def test_composite_dtypes_are_set_by_structure():
    pair = CompositeSpace((VectorSpace(1), CompositeSpace((VectorSpace(2), NullSpace()))))
    pair.dtype = "float32"
    assert pair.dtype == ("float32", ("float32", None))
    pair.dtype = ("int8", ("int16", None))
    assert pair.dtype == ("int8", ("int16", None))
    pair.dtype = np.dtype("float64")  # ignored without a word
    assert pair.dtype == ("int8", ("int16", None))
    with pytest.raises(ValueError, match="3 dtypes for 2"):
        pair.dtype = ("int8", "int8", "int8")
    with pytest.raises(TypeError, match="dtype must be None, a str or a tuple"):
        CompositeSpace((VectorSpace(1),)).get_origin_batch(2, dtype=np.dtype("int8"))


def test_the_dtype_cannot_be_deleted_and_comes_back_from_old_pickles():
    space = VectorSpace(3, dtype="int8")
    with pytest.raises(AttributeError, match="can be set, not deleted"):
        del space.dtype
    old = copy.copy(space)
    state = {key: value for key, value in old.__dict__.items() if key != "_dtype"}
    old.__dict__.clear()
    old.__setstate__(state)
    assert (old.dtype, old.dim) == (config.floatX, 3)


# ---------------------------------------------------------------- checks
@pytest.mark.parametrize(
    ("space", "batch", "error"),
    [
        (VectorSpace(3), np.zeros((2, 4)), ValueError),
        (VectorSpace(3), np.zeros(3), ValueError),
        (VectorSpace(3), scipy.sparse.csr_matrix((2, 3)), TypeError),
        (VectorSpace(3, sparse=True), np.zeros((2, 3)), TypeError),
        (VectorSpace(3), (np.zeros((2, 3)),), TypeError),
        (VectorSpace(3), None, AttributeError),
        (VectorSpace(3), [np.zeros((2, 3))], AssertionError),
        (VectorSpace(3), "rows", TypeError),
        (VectorSpace(3), da.zeros((2, 3)), TypeError),
        (IndexSpace(4, 2), np.zeros((2, 2)), TypeError),
        (IndexSpace(4, 2), np.zeros((2, 3), int), ValueError),
        (Conv2DSpace((2, 3), 1), np.zeros((5, 3, 2, 1)), ValueError),
        (Conv2DSpace((2, 3), 1), np.zeros((5, 2, 3)), ValueError),
        (Conv2DSpace((2, 3), 1), scipy.sparse.csr_matrix((2, 3)), TypeError),
        (NullSpace(), (), TypeError),
        (NullSpace(), np.zeros(3), TypeError),
        (CompositeSpace((VectorSpace(3),)), np.zeros((2, 3)), TypeError),
        (CompositeSpace((VectorSpace(3),)), (np.zeros((2, 3)),) * 2, ValueError),
        (CompositeSpace((VectorSpace(3),)), [np.zeros((2, 3))], AssertionError),
    ],
)
def test_batches_that_do_not_fit(space, batch, error):
    with pytest.raises(error) as caught:
        space.np_validate(batch)
    assert isinstance(caught.value, LabeledError)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Conv2DSpace((2, 3)), AssertionError),
        (lambda: Conv2DSpace((2, 3), 1, num_channels=1), AssertionError),
        (lambda: Conv2DSpace((2, 0), 1), AssertionError),
        (lambda: Conv2DSpace(5, 1), ValueError),
        (lambda: Conv2DSpace((2, 3, 4), 1), ValueError),
        (lambda: Conv2DSpace((2, 3), 1, axes=("b", 0, 1)), AssertionError),
        (lambda: Conv2DSpace((2, 3), 1).get_origin_batch(2.0), TypeError),
        (lambda: Conv2DSpace((2, 3), 1).get_origin_batch(0), AssertionError),
        (lambda: CompositeSpace(VectorSpace(3)), AssertionError),
        (lambda: CompositeSpace((VectorSpace(3), "x")), TypeError),
        (lambda: VectorSequenceSpace(3).get_origin(), NotImplementedError),
        (lambda: CompositeSpace((VectorSpace(3),)).get_origin(), NotImplementedError),
        (lambda: VectorSpace(3).get_batch(None, 0, 1), NotImplementedError),
    ],
)
def test_what_cannot_be_made(make, error):
    with pytest.raises(error):
        make()


def test_origins_and_sizes():
    assert VectorSpace(3, dtype="int8").get_origin().dtype == np.float64
    assert IndexSpace(4, 2).get_origin().shape == (1, 2)
    images = Conv2DSpace((2, 3), 4, axes=("c", 0, 1, "b"))
    assert images.get_origin().shape == (4, 2, 3)
    assert images.get_origin_batch(5).shape == (4, 2, 3, 5)
    assert (images.get_batch_axis(), images.np_batch_size(images.get_origin_batch(5))) == (3, 5)
    assert VectorSpace(3).get_origin_batch(0).shape == (0, 3)
    assert VectorSpace(3, sparse=True).get_origin_batch(2).format == "csr"
    assert VectorSequenceSpace(3).np_batch_size(np.zeros((9, 3))) == 1
    pair = CompositeSpace((VectorSpace(3), images))
    assert pair.get_total_dimension() == 27
    assert pair.np_batch_size((np.zeros((5, 3)), images.get_origin_batch(5))) == 5
    with pytest.raises(ValueError, match="components hold"):
        pair.np_batch_size((np.zeros((4, 3)), images.get_origin_batch(5)))
    assert CompositeSpace((NullSpace(),)).np_batch_size((None,)) == 0


def test_parts_of_composites():
    a, b, c = VectorSpace(1), VectorSpace(2), VectorSpace(3)
    triple = CompositeSpace((a, b, c))
    assert triple.restrict([2, 0]) == CompositeSpace((c, a))
    assert triple.restrict([1]) == b
    batch = triple.make_theano_batch(batch_size=4)
    assert triple.restrict_batch(batch, [1]) is batch[1]
    with pytest.raises(TypeError, match="expected a lazy batch"):
        triple.restrict_batch(triple.get_origin_batch(4), [1])


def test_callbacks_come_first_and_take_no_part_in_equality():
    seen = []
    space = VectorSpace(2, np_validate_callbacks=[seen.append])
    batch = np.zeros((1, 3))
    with pytest.raises(ValueError, match="expected 2;"):
        space.np_validate(batch)
    assert seen == [batch] or seen[0] is batch
    assert space == VectorSpace(2)

    class Forgetful(VectorSpace):
        def __init__(self):
            self.dim = 2

    with pytest.raises(TypeError, match="did not call"):
        Forgetful().np_validate(np.zeros((1, 2)))
    assert issubclass(VectorSpace, SimplyTypedSpace)
    assert issubclass(SimplyTypedSpace, Space)


def test_texts():
    assert str(VectorSpace(3)) == repr(VectorSpace(3)) == "VectorSpace(dim=3, dtype=float64)"
    assert str(IndexSpace(4, 2)) == "IndexSpace(max_labels=4, dim=2, dtype=int64)"
    assert str(CompositeSpace((NullSpace(),))) == "CompositeSpace(NullSpace)"
    assert "num_channels=1" in str(Conv2DSpace((2, 3), 1))
    assert str(VectorSequenceSpace(3, dtype=None)) == "VectorSequenceSpace(dim=3, dtype=None)"


# ---------------------------------------------------------------- the lazy side
LAZY = {
    "vector": VectorSpace(12),
    "float32": VectorSpace(12, dtype="float32"),
    "images": Conv2DSpace((2, 2), channels=3, axes=("c", 0, 1, "b")),
    "other images": Conv2DSpace((2, 2), channels=3, axes=("b", "c", 0, 1), dtype="float16"),
    "parts": CompositeSpace((VectorSpace(5), CompositeSpace((VectorSpace(3), VectorSpace(4))))),
}


def lazily(batch):
    if isinstance(batch, tuple):
        return tuple(map(lazily, batch))
    return da.from_array(batch, chunks=2)


def computed(batch):
    return tuple(map(computed, batch)) if isinstance(batch, tuple) else batch.compute()


def leaves(batch):
    return itertools.chain(*map(leaves, batch)) if isinstance(batch, tuple) else [batch]


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("other", LAZY)
def test_lazy_batches_convert_like_numeric_ones(name, other):
    source, target = LAZY[name], LAZY[other]
    if (name == "parts" and "images" in other) or ("images" in name and other == "parts"):
        with pytest.raises(NotImplementedError):
            source.format_as(source.make_theano_batch(), target)
        return
    batch = VectorSpace(12).np_format_as(np.arange(60.0).reshape(5, 12), source)
    lazy = lazily(batch)
    made = source.format_as(lazy, target)
    assert is_symbolic_batch(made)
    target.validate(made)
    expected = source.np_format_as(batch, target)
    for found, wanted in zip(leaves(computed(made)), leaves(expected), strict=True):
        close(found, wanted)
        assert found.dtype == wanted.dtype
    back = source.undo_format_as(made, target)
    if not isinstance(made, tuple) and not isinstance(lazy, tuple):
        assert back is lazy  # the very object
    for found, wanted in zip(leaves(computed(back)), leaves(batch), strict=True):
        close(found, wanted)


def test_lazy_labels_become_indicators():
    labels = np.array([[1, 0], [2, 2]])
    lazy = da.from_array(labels, chunks=1)
    index = IndexSpace(3, 2)
    made = index.format_as(lazy, VectorSpace(6))
    close(made.compute(), index.np_format_as(labels, VectorSpace(6)))
    sparse = index.format_as(lazy, VectorSpace(6, sparse=True)).compute()
    close(sparse.toarray(), made.compute())


def test_functions_of_lazy_batches():
    images = Conv2DSpace((2, 2), channels=3, axes=("c", 0, 1, "b"))
    pair = CompositeSpace((VectorSpace(12), images))
    x, y = pair.make_theano_batch(name="batch")
    rows = np.arange(36.0).reshape(3, 12)
    stacked = VectorSpace(12).np_format_as(rows, images)
    as_images = function([x], VectorSpace(12).format_as(x, images), on_unused_input="ignore")
    close(as_images(rows), stacked)
    both = function([x, y], [x, images.format_as(y, VectorSpace(12))])
    for found in both(rows, stacked):
        close(found, rows)
    with pytest.raises(TypeError, match="takes 2 batches"):
        both(rows)


def test_lazy_checks_see_what_shapes_tell():
    with pytest.raises(ValueError, match="expected 3;"):
        VectorSpace(3).validate(da.zeros((2, 4)))
    with pytest.raises(TypeError, match="expected a lazy batch"):
        VectorSpace(3).validate("rows")
    assert np.isnan(VectorSpace(3).batch_size(VectorSpace(3).make_theano_batch()))
    assert VectorSpace(3).batch_size(VectorSpace(3).make_shared_batch(4)) == 4


def test_plain_arrays_are_validated_as_the_text_has_it():
    VectorSpace(dim=3).validate(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="expected 4;"):
        VectorSpace(dim=4).validate(np.zeros((4, 3)))
    both = CompositeSpace((VectorSpace(3), VectorSpace(2)))
    both.validate((np.zeros((4, 3)), np.zeros((4, 2))))
    seen = []
    VectorSpace(3, np_validate_callbacks=[seen.append]).validate(np.zeros((1, 3)))
    assert len(seen) == 1


def test_safe_zip_wants_equal_lengths():
    assert safe_zip((1, 2), "ab") == list(safe_izip((1, 2), "ab")) == [(1, "a"), (2, "b")]
    with pytest.raises(ValueError, match=r"lengths \[1, 2\]"):
        safe_zip((1,), (1, 2))


def test_lengths_of_few_bits_do_not_overflow():
    space = Conv2DSpace(np.array([200, 200], np.uint8), num_channels=np.uint8(200))
    assert space.get_total_dimension() == 200**3
    assert space == Conv2DSpace((200, 200), num_channels=200)
