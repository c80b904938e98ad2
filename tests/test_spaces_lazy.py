"""The lazy side: dask arrays chunk by chunk, and DataArrays whose axes are found by name."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from test_spaces_convert import IMAGES, counted, numpy_batch

from labeled.errors import SpaceError
from labeled.spaces import (
    CompositeSpace,
    ConvNDSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
)

B01C, C01B = ("b", 0, 1, "c"), ("c", 0, 1, "b")


def leaves(batch):
    return [x for part in batch for x in leaves(part)] if isinstance(batch, tuple) else [batch]


def unknown_length(x, axis):
    """`x` as dask knows it after a selection by mask: its rows are not counted."""
    chunks = tuple((np.nan,) * len(c) if i == axis else c for i, c in enumerate(x.chunks))
    return da.Array(x.dask, x.name, chunks, meta=x._meta)


@pytest.fixture
def no_compute():
    """Anything computed is an error."""

    def refuse(*args, **kwargs):
        raise AssertionError("something was computed")

    with dask.config.set(scheduler=refuse):
        yield


# ---------------------------------------------------------------- dask
CASES = [
    (IMAGES, IMAGES.with_axes(C01B).with_dtype("float32")),
    (IMAGES, VectorSpace(60)),
    (VectorSpace(60), IMAGES.with_axes(C01B)),
    (VectorSpace(60), VectorSpace(60, dtype="float32")),
    (IMAGES.with_axes(C01B), VectorSpace(60, dtype="float64")),
    (IndexSpace(7, 2), VectorSpace(14, dtype="float32")),
    (IndexSpace(None, 1), VectorSpace(7)),
    (IndexSpace(7, 2), IndexSpace(7, 2, dtype="uint8")),
    (VectorSequenceSpace(3), VectorSequenceSpace(3, dtype="float32")),
    (ConvNDSpace((2, 3, 4), 2), VectorSpace(48)),
    (VectorSpace(63), CompositeSpace((VectorSpace(3), NullSpace(), CompositeSpace((IMAGES,))))),
    (CompositeSpace((VectorSpace(3), IMAGES)), VectorSpace(63)),
    (
        CompositeSpace((IMAGES, NullSpace(), IndexSpace(7, 1))),
        CompositeSpace((VectorSpace(60), NullSpace(), VectorSpace(7))),
    ),
]


def lazily(batch, space, known, split):
    if isinstance(batch, tuple):
        parts = zip(batch, space.components, strict=True)
        return tuple(lazily(x, part, known, split) for x, part in parts)
    if batch is None:
        return None
    axis = space.get_batch_axis()
    chunks = [2 if i == axis or split else -1 for i in range(batch.ndim)]
    x = da.from_array(batch, chunks=tuple(chunks))
    return x if known else unknown_length(x, axis)


@pytest.mark.parametrize("split", [False, True], ids=["rows", "chunks everywhere"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(("source", "target"), CASES, ids=str)
def test_dask_agrees_with_numpy(source, target, known, split, request):
    batch = numpy_batch(source, 5)
    expected = source.np_format_as(batch, target)
    lazy = lazily(batch, source, known, split)
    with dask.config.set(scheduler=lambda *a, **k: pytest.fail("something was computed")):
        got = source.format_as(lazy, target)
        target.validate(got)
        back = None if isinstance(source, IndexSpace) else source.format_as(lazy, source)
    for x, y in zip(leaves(got), leaves(expected), strict=True):
        if y is None:
            assert x is None
            continue
        assert dask.is_dask_collection(x)
        assert (x.dtype, x.ndim) == (y.dtype, y.ndim)
        assert type(x._meta) is np.ndarray
        np.testing.assert_array_equal(x.compute(scheduler="sync"), y)
        if known:
            assert x.shape == y.shape
    assert back is None or len(leaves(back)) == len(leaves(batch))


def test_moved_axes_are_views_of_the_chunks():
    block = counted((2, 3, 4, 5))
    x = da.from_delayed(dask.delayed(lambda: block)(), block.shape, block.dtype)
    for target in (IMAGES.with_axes(C01B), IMAGES.with_axes(B01C)):
        (moved,) = IMAGES.format_as(x, target).to_delayed().ravel()
        assert np.shares_memory(moved.compute(scheduler="sync"), block)
    flat = IMAGES.with_axes(B01C).format_as(x.reshape(2, 4, 5, 3), VectorSpace(60))
    (flat_block,) = flat.to_delayed().ravel()
    assert np.shares_memory(flat_block.compute(scheduler="sync"), block)


@pytest.mark.parametrize(
    ("space", "lazy", "kind", "words"),
    [
        (VectorSpace(4), da.zeros((5, 3)), ValueError, ["'feature'", "3", "expected 4"]),
        (VectorSpace(4), unknown_length(da.zeros((5, 4)), 1), ValueError, ["unknown length"]),
        (IMAGES.with_dtype("u1"), da.zeros((2, 3, 4, 5)), TypeError, ["float64", "uint8"]),
        (IndexSpace(10, 1), da.zeros((5, 1)), TypeError, ["labels must be integers", "float64"]),
        (
            CompositeSpace((VectorSpace(1), CompositeSpace((VectorSpace(2),)))),
            (da.zeros((5, 1)), (da.zeros((6, 2)),)),
            ValueError,
            ["differ in rows", "[0] has 5", "[1] has 6"],
        ),
    ],
)
@pytest.mark.usefixtures("no_compute")
def test_what_shape_and_dtype_tell_is_refused_without_computing(space, lazy, kind, words):
    with pytest.raises(kind) as caught:
        space.validate(lazy)
    assert all(word in str(caught.value) for word in words), caught.value
    with pytest.raises(kind):
        space.format_as(lazy, space)


def test_labels_are_checked_when_computed_and_named_by_their_row():
    lazy = da.from_array(np.array([[1], [2], [3], [9]]), chunks=(2, 1))
    for target in (VectorSpace(5), VectorSpace(5, sparse=True), IndexSpace(5, 1)):
        with pytest.raises(SpaceError, match=r"label 9 in row 1 is .*counted within its chunk"):
            IndexSpace(None, 1).format_as(lazy, target).compute(scheduler="sync")


@pytest.mark.parametrize("axes", [C01B, B01C])
def test_an_integer_that_does_not_fit_is_named_by_its_row(axes):
    values = np.zeros((4, 3, 4, 5), int)
    values[3, 1, 2, 4] = 300
    lazy = da.from_array(values, chunks=(2, 3, 4, 5))
    flat = IMAGES.format_as(lazy, VectorSpace(60))
    images = IMAGES.with_axes(axes).with_dtype("uint8")
    for got in (
        IMAGES.format_as(lazy, images),
        IMAGES.format_as(lazy, VectorSpace(60, dtype="uint8")),
        VectorSpace(60).format_as(flat, images),
        VectorSpace(60).format_as(flat, VectorSpace(60, dtype="uint8")),
    ):
        with pytest.raises(SpaceError, match=r"value 300 in row 1 .*counted within its chunk"):
            got.compute(scheduler="sync")


def test_sparse_chunks():
    lazy = da.from_array(counted((5, 3, 4, 5)), chunks=(2, 3, 4, 5))
    sparse = IMAGES.format_as(lazy, VectorSpace(60, sparse=True))
    assert isinstance(sparse._meta, scipy.sparse.csr_array)
    dense = VectorSpace(60, sparse=True).format_as(sparse, VectorSpace(60))
    np.testing.assert_array_equal(
        dense.compute(scheduler="sync"),
        IMAGES.np_format_as(counted((5, 3, 4, 5)), VectorSpace(60)),
    )
    hot = IndexSpace(3, 1).format_as(
        da.from_array(np.array([[0], [2]])), VectorSpace(3, sparse=True)
    )
    np.testing.assert_array_equal(hot.compute(scheduler="sync").toarray(), [[1, 0, 0], [0, 0, 1]])


class Wrapped(np.ndarray):
    """Stands for a device's array: chunks of it must stay of it."""


@pytest.mark.parametrize(
    "target", [IMAGES.with_axes(C01B), VectorSpace(60), VectorSpace(60, dtype="float32")], ids=str
)
def test_chunks_stay_of_their_kind(target):
    plain = da.from_array(counted((4, 3, 4, 5)), chunks=(2, 3, 4, 5))
    meta = np.empty((0,) * 4, np.int64).view(Wrapped)
    lazy = plain.map_blocks(lambda block: block.view(Wrapped), meta=meta)
    got = IMAGES.format_as(lazy, target)
    assert isinstance(got._meta, Wrapped)
    blocks = dask.compute(*got.to_delayed().ravel(), scheduler="sync")
    assert {type(block) for block in blocks} == {Wrapped}
