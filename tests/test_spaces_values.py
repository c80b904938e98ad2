"""What a space is: its parameters, equality, origins, and which batches it takes."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import xarray as xr

from labeled.errors import LabeledError, SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces import (
    CompositeSpace,
    Conv2DSpace,
    ConvNDSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
    space_of,
)

IMAGES = Conv2DSpace((4, 5), channels=3, axes=("b", "c", 0, 1))
PAIR = CompositeSpace((VectorSpace(3), CompositeSpace((IndexSpace(10, 1), NullSpace(), IMAGES))))
EVERY = [
    VectorSpace(3),
    VectorSpace(3, dtype="float64"),  # NumPy holds float64 and None for equal
    VectorSpace(3, dtype="float32"),
    VectorSequenceSpace(3),
    VectorSpace(3, sparse=True, dtype="float32"),
    IndexSpace(10, 2),
    IndexSpace(None, 1, dtype="uint8"),
    VectorSequenceSpace(3, dtype=np.float32),
    IndexSequenceSpace(10, 2),
    IMAGES,
    IMAGES.with_axes(("b", 0, 1, "c")),
    ConvNDSpace((2, 4, 5), 3, axes=("c", 2, 1, 0, "b"), dtype="u1"),
    PAIR,
    NullSpace(),
]


@pytest.mark.parametrize("space", EVERY, ids=str)
def test_a_space_equals_its_pickle_and_its_repr(space):
    names = {type(s).__name__: type(s) for s in EVERY}
    if not isinstance(space, CompositeSpace):
        again = eval(repr(space), names)
        assert (again, hash(again)) == (space, hash(space))
    copy = pickle.loads(pickle.dumps(space))
    assert (copy, hash(copy)) == (space, hash(space))
    assert [space == other for other in EVERY].count(True) == 1
    with pytest.raises(AttributeError):
        space.dim = 7


@pytest.mark.parametrize(
    ("make", "kind", "match"),
    [
        (lambda: VectorSpace(2.0), TypeError, "dim=2.0 must be a whole number"),
        (lambda: VectorSpace(-1), ValueError, "dim=-1 must be at least 0"),
        (lambda: VectorSpace(3, dtype="str"), TypeError, "bool, integer, float or complex"),
        (lambda: IndexSpace(0, 1), ValueError, "max_labels=0 must be at least 1"),
        (lambda: Conv2DSpace((4, 5)), ValueError, "exactly one of channels= and num_channels="),
        (lambda: Conv2DSpace((4, 5, 6), 3), ValueError, r"shape must be \(rows, columns\)"),
        (lambda: Conv2DSpace((4, 0), 3), ValueError, r"shape\[1\]=0 must be at least 1"),
        (lambda: Conv2DSpace((4, 5), 3, axes=("b", 0, 0, "c")), ValueError, "must be an order of"),
        (lambda: Conv2DSpace((4, 5), 3, axes="bc01"), ValueError, r"numbers: \('b', 'c', 0, 1\)"),
        (lambda: Conv2DSpace((4, 5), 3, axes={"b", "c", 0, 1}), TypeError, "must be an order of"),
        (lambda: Conv2DSpace({4, 5}, 3), TypeError, "shape must be a sequence"),
        (lambda: VectorSpace(10, "float32"), TypeError, "sparse='float32' must be True or False"),
        (lambda: CompositeSpace(VectorSpace(3)), TypeError, "list or tuple of spaces"),
    ],
)
def test_bad_parameters_are_refused(make, kind, match):
    with pytest.raises(kind, match=match) as caught:
        make()
    assert isinstance(caught.value, LabeledError)


@pytest.mark.parametrize(
    ("space", "batch", "kind", "words"),
    [
        (VectorSpace(4), np.zeros((5, 3)), ValueError, ["axis 1 ('feature')", "3", "expected 4"]),
        (VectorSpace(4), [[0, 0, 0, 0]], TypeError, ["list", "make it an array"]),
        (VectorSpace(4), scipy.sparse.eye(4, format="csr"), TypeError, ["sparse=True"]),
        (VectorSpace(4, sparse=True), np.zeros((5, 4)), TypeError, ["scipy sparse"]),
        (VectorSpace(4, dtype="f4"), np.zeros((5, 4), "c8"), TypeError, ["complex64", "float32"]),
        (IMAGES, np.zeros((2, 4, 4, 5)), ValueError, ["axis 1 ('c')", "4", "expected 3"]),
        (IMAGES.with_dtype("u1"), np.zeros((2, 3, 4, 5)), TypeError, ["float64", "uint8"]),
        (IndexSpace(10, 1), np.array([[3], [10]]), ValueError, ["label 10", "row 1", "0 to 9"]),
        (
            IndexSpace(10, 1),
            np.array([[3.0], [np.nan]]),
            TypeError,
            ["float64", "cast the batch first"],
        ),
        (PAIR, [1, 2], TypeError, ["list is not a batch"]),
        (
            PAIR,
            (np.zeros((2, 3)), (np.zeros((2, 1), int), None, np.zeros((2, 3, 4, 6)))),
            ValueError,
            ["component [1][2]", "Conv2DSpace", "axis 3 (1)", "6", "expected 5"],
        ),
        (
            CompositeSpace(
                (VectorSpace(2), CompositeSpace((CompositeSpace(()), NullSpace(), VectorSpace(3))))
            ),
            (np.zeros((3, 2)), ((), None, np.zeros((4, 3)))),
            ValueError,
            ["differ in rows", "[0] has 3", "[1] has 4"],
        ),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_with_reason(space, batch, kind, words):
    with pytest.raises(kind) as caught:
        space.np_validate(batch)
    assert isinstance(caught.value, SpaceError)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert type(space).__name__ in text or "component" in text


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_values_at_one_place_of_a_sparse_batch_are_summed_before_they_are_cast(kind):
    places = ([0, 0, 1], [1, 1, 0])
    space, narrow = (VectorSpace(3, sparse=True, dtype=d) for d in ("int64", "uint8"))
    batch = scipy.sparse.coo_matrix(([200, 55, 3], places), (2, 3)).asformat(kind)
    np.testing.assert_array_equal(space.format_as(batch, narrow).toarray(), batch.toarray())
    batch = scipy.sparse.csr_matrix(([200, 56, 3], [1, 1, 0], [0, 2, 3]), (2, 3)).asformat(kind)
    with pytest.raises(SpaceError, match="value 256 in row 0"):
        space.format_as(batch, narrow)
    assert batch.nnz == 3  # as it was


def test_axes_and_lengths_are_plain_however_they_were_given():
    numbers = np.array([200, 200], np.uint8)
    space = Conv2DSpace(numbers, np.uint8(200), axes=["b", np.str_("c"), np.int64(0), np.int8(1)])
    assert space == Conv2DSpace((200, 200), 200, axes=("b", "c", 0, 1))
    assert repr(space.axes) == "('b', 'c', 0, 1)"
    assert space.get_total_dimension() == 200**3


def test_rows_of_a_batch():
    assert VectorSpace(3).np_batch_size(np.zeros((4, 3))) == 4
    assert Conv2DSpace((4, 5), 3, axes=("c", 0, 1, "b")).np_batch_size(np.zeros((3, 4, 5, 7))) == 7
    assert NullSpace().np_batch_size(None) == 0
    batch = (np.zeros((2, 3)), (np.zeros((2, 1), int), None, np.zeros((2, 3, 4, 5))))
    assert PAIR.np_batch_size(batch) == 2
    assert CompositeSpace((NullSpace(), NullSpace())).np_batch_size((None, None)) == 0
    assert CompositeSpace(()).np_batch_size(()) == 0


@pytest.mark.parametrize(
    ("dims", "shape", "dtype", "expected"),
    [
        (("batch",), (9,), "i8", IndexSpace(None, 1)),
        (("batch", "index"), (9, 3), "u1", IndexSpace(None, 3)),
        (("batch", "feature"), (9, 3), "u1", VectorSpace(3)),
        (("t", "width", "channel", "height"), (9, 5, 3, 4), "u1",
         Conv2DSpace((4, 5), 3, axes=("b", 1, "c", 0))),
        (("batch", "y", "x"), (9, 4, 5), "u1", Conv2DSpace((4, 5), 1)),
        (("batch", "channel", "depth", "height", "width"), (9, 3, 2, 4, 5), "f4",
         ConvNDSpace((2, 4, 5), 3, axes=("b", "c", 0, 1, 2))),
        (("batch", "x_axis_1", "x_axis_2"), (9, 4, 5), "u1", VectorSpace(20)),
        (("batch", "channel", "height", "when"), (9, 3, 4, 5), "u1", VectorSpace(60)),
        (("batch", "height", "width"), (9, 0, 5), "u1", VectorSpace(0)),
    ],
)  # fmt: skip
def test_the_space_of_a_source_comes_from_its_dims(dims, shape, dtype, expected):
    assert space_of(dims, shape, dtype) == expected
    assert space_of(dims, shape[1:], dtype) == expected


def test_the_space_of_a_source_is_refused_with_its_name():
    with pytest.raises(SpaceTypeError, match="source 'text' has rows of different lengths"):
        space_of(("batch",), (9,), object, name="text")
    with pytest.raises(ValueError, match="do not fit the shape"):
        space_of(("batch", "a"), (9, 4, 5), "f4")


def test_a_sequence_has_no_length_of_its_own():
    for space in (VectorSequenceSpace(3), IndexSequenceSpace(10, 1)):
        for ask in (space.get_total_dimension, lambda one=space: one.get_origin_batch(1)):
            with pytest.raises(UnsupportedSpaceError, match="sequence has no length"):
                ask()
        assert space.np_batch_size(np.zeros((100, space.dim), np.int64)) == 1


def test_batches_of_zeros():
    assert IndexSpace(10, 2).get_origin_batch(3).dtype == np.int64
    assert VectorSpace(3, sparse=True).get_origin_batch(3).format == "csr"
    rows, (labels, nothing, images) = PAIR.get_origin_batch(2, "int8")
    assert (rows.dtype, labels.shape, nothing, images.shape) == ("i1", (2, 1), None, (2, 3, 4, 5))
    for wrong in (-1, 2.0, True):
        with pytest.raises(SpaceError, match="batch size"):
            VectorSpace(3).get_origin_batch(wrong)


def test_restrict_takes_components_in_the_order_asked():
    three = CompositeSpace((VectorSpace(1), VectorSpace(2), NullSpace()))
    assert three.restrict([2, 0]) == CompositeSpace((NullSpace(), VectorSpace(1)))
    assert three.restrict([1]) == VectorSpace(2)
    for wrong in (3, -1):
        with pytest.raises(SpaceError, match="component"):
            three.restrict([wrong])


def test_dtypes_of_a_composite():
    assert PAIR.dtype == (None, (None, None, None))
    assert CompositeSpace((VectorSpace(1), NullSpace())).with_dtype("f4").dtype[0] == np.float32
    with pytest.raises(SpaceTypeError, match="dtype must be integer"):
        PAIR.with_dtype("float32")  # labels are among its components


def test_np_names_refuse_lazy_batches_and_all_dataarrays():
    with pytest.raises(SpaceTypeError, match="without np_"):
        VectorSpace(3).np_format_as(da.zeros((2, 3)), VectorSpace(3))
    named = xr.DataArray(np.zeros((2, 3)), dims=("batch", "feature"))
    for batch in (named, named.chunk()):
        with pytest.raises(SpaceTypeError, match=r"found DataArray; lay it out with x\.labeled"):
            VectorSpace(3).format_as(batch, VectorSpace(3))
