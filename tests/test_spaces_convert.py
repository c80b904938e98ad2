"""From one space to another: the matrix, the laws, one-hot, and every kind of array."""

from __future__ import annotations

import itertools
import sys
import timeit
from pathlib import Path

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labeled.device import to_host
from labeled.errors import SpaceError, SpaceTypeError
from labeled.spaces import (
    CompositeSpace,
    Conv2DSpace,
    ConvNDSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
    canonical_axes,
)

DIM_OF_AXIS = {"b": "batch", "c": "channel", 0: "height", 1: "width"}
ORDERS = list(itertools.permutations(("b", 0, 1, "c")))
IMAGES = Conv2DSpace((4, 5), channels=3, axes=("b", "c", 0, 1))
laws = settings(max_examples=40, deadline=None)

orders = st.sampled_from(ORDERS)
lengths = st.tuples(*[st.integers(1, 4)] * 3)
rows = st.integers(0, 4)


def counted(shape, dtype=np.int64):
    """Values that all differ, so that no two places can be mistaken for each other."""
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


# ---------------------------------------------------------------- the matrix
SIX = {
    "Vector dense": VectorSpace(12),
    "Vector sparse": VectorSpace(12, sparse=True),
    "Conv2D": Conv2DSpace((2, 2), channels=3),
    "Index": IndexSpace(6, 2),
    "Composite": CompositeSpace((VectorSpace(4), VectorSpace(8))),
    "Null": NullSpace(),
    "VecSeq": VectorSequenceSpace(12),
    "IdxSeq": IndexSequenceSpace(6, 2),
}
MATRIX = """
from \\ to      Vector dense  Vector sparse  Conv2D  Index  Composite  Null   VecSeq  IdxSeq
Vector dense   ok            ok             ok      VE     ok         NI     NI      NI
Vector sparse  ok            ok             TE      VE     ok         NI     NI      NI
Conv2D         ok            ok             ok      VE     NI         NI     NI      NI
Index          ok            ok             VE      ok     VE         VE     VE      VE
Composite      ok            ok             NI      VE     ok         NI     NI      NI
Null           NI            NI             NI      NI     NI         ok     NI      NI
VecSeq         VE            VE             VE      VE     VE         VE     ok      VE
IdxSeq         VE            VE             VE      VE     VE         VE     ok      ok
"""


def a_batch(space, n=3):
    if isinstance(space, VectorSequenceSpace | IndexSequenceSpace):
        return np.ones((n, space.dim), np.int64)
    if isinstance(space, CompositeSpace):
        return tuple(a_batch(part, 1) for part in space.components)
    return space.get_origin_batch(n)


def outcome(source, target):
    """What np_format_as does, in the two letters of the table."""
    if source.can_format_as(target):
        target.np_validate(source.np_format_as(a_batch(source), target))
        return "ok"
    with pytest.raises(SpaceError) as caught:
        source.np_format_as(a_batch(source), target)
    assert source.why_not_format_as(target) == str(caught.value)
    kinds = {NotImplementedError: "NI", TypeError: "TE", ValueError: "VE"}
    return next(letters for kind, letters in kinds.items() if issubclass(caught.type, kind))


def conversion_table():
    """Return the matrix as it is, in the layout of `MATRIX`; the docs print it."""
    cells = [["from \\ to", *SIX]]
    for name, source in SIX.items():
        cells.append([name, *(outcome(source, target) for target in SIX.values())])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def test_the_conversion_matrix(record_property):
    table = conversion_table()
    record_property("conversion_matrix", table)
    print(table)
    assert [line.split() for line in table.splitlines()] == [
        line.split() for line in MATRIX.strip().splitlines()
    ]


def test_the_page_shows_the_conversion_matrix():
    page = Path(__file__).parent.parent / "docs" / "how_to" / "spaces.md"
    assert f"```text\n{conversion_table()}\n```" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("source", "target", "kind", "words"),
    [
        (
            Conv2DSpace((2, 6), 1), Conv2DSpace((3, 4), 1), ValueError,
            ["(2, 6)", "(3, 4)", "though both hold as many values"],
        ),
        (IndexSpace(10, 2), VectorSpace(30), ValueError, ["2 labels of 10", "not 30"]),
        (IndexSpace(None, 2), VectorSpace(30), ValueError, ["max_labels is not known"]),
        (IndexSpace(10, 1), IndexSpace(11, 1), ValueError, ["labels of 10", "labels of 11"]),
        (IMAGES, NullSpace(), NotImplementedError, ["no conversion leads to NullSpace()"]),
        (
            VectorSpace(12, sparse=True), Conv2DSpace((2, 2), 3), TypeError,
            ["sparse rows do not", "dense VectorSpace first"],
        ),
        (
            CompositeSpace((VectorSpace(3), CompositeSpace((IMAGES,)))),
            CompositeSpace((VectorSpace(3), CompositeSpace((VectorSpace(61),)))),
            ValueError, ["component [1][0]", "hold 60", "expects 61"],
        ),
        (
            CompositeSpace((VectorSpace(3), CompositeSpace((VectorSpace(3),)))),
            CompositeSpace((VectorSpace(3), VectorSpace(3))),
            TypeError, ["component [1]", "trees differ"],
        ),
        (
            VectorSpace(12), CompositeSpace((VectorSpace(10), IndexSpace(5, 2))),
            NotImplementedError, ["component [1]", "IndexSpace"],
        ),
        (
            CompositeSpace((VectorSpace(3), IndexSpace(5, 1))), VectorSpace(9),
            ValueError, ["make 8 columns", "expects 9"],
        ),
        (
            CompositeSpace((VectorSpace(3), VectorSequenceSpace(2))), VectorSpace(5),
            NotImplementedError, ["component [1]", "VectorSequenceSpace", "no length of its own"],
        ),
        (
            CompositeSpace((NullSpace(), CompositeSpace(()))), VectorSpace(0),
            ValueError, ["no component to take rows from"],
        ),
    ],
)  # fmt: skip
def test_a_refused_conversion_names_both_sides(source, target, kind, words):
    assert not source.can_format_as(target)
    with pytest.raises(kind) as caught:
        source.np_format_as(a_batch(source), target)
    text = str(caught.value)
    assert all(word in text for word in words), text


# ---------------------------------------------------------------- laws


@laws
@given(data=st.data(), n_spatial=st.integers(1, 4), n=rows)
def test_any_number_of_spatial_axes(data, n_spatial, n):
    shape = data.draw(st.tuples(*[st.integers(1, 3)] * n_spatial))
    order = st.permutations(canonical_axes(n_spatial))
    src, dst = data.draw(order), data.draw(order)
    here, there = ConvNDSpace(shape, 2, axes=src), ConvNDSpace(shape, 2, axes=dst)
    batch = counted(here.sizes(n))
    oracle = xr.DataArray(batch, dims=[str(a) for a in src])

    moved = here.np_format_as(batch, there)
    flat = here.np_format_as(batch, VectorSpace(here.get_total_dimension()))

    np.testing.assert_array_equal(moved, oracle.transpose(*[str(a) for a in dst]))
    canonical = oracle.transpose(*[str(a) for a in canonical_axes(n_spatial)])
    np.testing.assert_array_equal(flat, canonical.values.reshape(flat.shape))
    np.testing.assert_array_equal(there.np_format_as(moved, here), batch)


@laws
@given(
    dtype=st.sampled_from(["u1", "i2", "i8", "u8", "f2", "f4", "f8", "c8", "?"]),
    wanted=st.sampled_from(["u1", "i2", "i8", "u8", "f2", "f4", "f8", "c8", "?", None]),
    data=st.data(),
)
def test_a_cast_keeps_the_values_or_is_refused(dtype, wanted, data):
    elements = st.integers(0, 1 if dtype == "?" else 255)
    batch = data.draw(hnp.arrays(np.int64, (2, 3), elements=elements)).astype(dtype)
    target = VectorSpace(3, dtype=wanted)
    rank = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    loses = wanted is not None and rank[batch.dtype.kind] > rank[np.dtype(wanted).kind]
    if loses:
        with pytest.raises(SpaceTypeError, match="is not cast to"):
            VectorSpace(3).np_format_as(batch, target)
        return
    result = VectorSpace(3).np_format_as(batch, target)
    assert result.dtype == (batch.dtype if wanted is None else np.dtype(wanted))
    np.testing.assert_array_equal(result.astype("c16"), batch.astype("c16"))
    assert wanted is not None or result is batch


def test_an_integer_that_does_not_fit_is_named_with_its_row():
    batch = np.array([[1, 2], [3, 300]])
    with pytest.raises(SpaceError, match="value 300 in row 1 does not fit uint8"):
        VectorSpace(2).np_format_as(batch, VectorSpace(2, dtype="uint8"))
    images = counted((2, 1, 1, 200)).transpose(3, 1, 2, 0)
    c01b = Conv2DSpace((1, 1), 2, axes=("b", 0, 1, "c"))
    with pytest.raises(SpaceError, match="value 256 in row 56 does not fit uint8"):
        c01b.np_format_as(images, c01b.with_axes(("c", 0, 1, "b")).with_dtype("uint8"))
    with pytest.raises(SpaceError, match=r"value 18446744073709551615 in row 0 does not fit int64"):
        VectorSpace(1).np_format_as(np.array([[2**64 - 1]], "u8"), VectorSpace(1, dtype="i8"))


# ---------------------------------------------------------------- one-hot
labels_in = st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(2, 6))


@laws
@given(shape=labels_in, seed=st.integers(0, 99), dtype=st.sampled_from(["u1", "i4", "u8"]))
def test_one_hot_against_the_identity_matrix(shape, seed, dtype):
    n, k, m = shape
    labels = np.random.default_rng(seed).integers(0, m, (n, k)).astype(dtype)
    side_by_side = np.eye(m)[labels.astype(int)].reshape(n, k * m)
    merged = np.eye(m)[labels.astype(int)].max(axis=1) if k else np.zeros((n, m))
    space = IndexSpace(m, k)

    for sparse in (False, True):
        wide = space.np_format_as(labels, VectorSpace(k * m, sparse=sparse, dtype="f4"))
        narrow = space.np_format_as(labels, VectorSpace(m, sparse=sparse))
        assert scipy.sparse.issparse(wide) == sparse
        assert narrow.dtype == np.float64
        for got, expected in ((wide, side_by_side), (narrow, merged)):
            np.testing.assert_array_equal(got.toarray() if sparse else got, expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("width", [10, 20])
@pytest.mark.parametrize("bad", [10, -1, 99])
def test_labels_out_of_range_never_wrap(sparse, width, bad):
    labels = np.array([[1, 2], [3, 4], [5, bad]])
    with pytest.raises(SpaceError, match=f"label {bad} in row 2 is out of range, expected 0 to 9"):
        IndexSpace(10, 2).np_format_as(labels, VectorSpace(width, sparse=sparse))


def test_labels_not_known_yet_are_derived_from_the_target_and_checked():
    labels = np.array([[0], [6]])
    assert IndexSpace(None, 1).np_format_as(labels, VectorSpace(7)).argmax(1).tolist() == [0, 6]
    with pytest.raises(SpaceError, match="label 6 in row 1"):
        IndexSpace(None, 1).np_format_as(labels, VectorSpace(6))
    with pytest.raises(SpaceError, match="label 6 in row 1"):
        IndexSpace(None, 1).np_format_as(labels, IndexSpace(6, 1))
    assert IndexSpace(7, 1).np_format_as(labels, IndexSpace(None, 1)) is labels
    small = IndexSpace(7, 1).np_format_as(labels, IndexSpace(7, 1, dtype="uint8"))
    assert small.dtype == np.uint8


def test_one_hot_inside_composites():
    tree = CompositeSpace((VectorSpace(2), CompositeSpace((IndexSpace(3, 1), NullSpace()))))
    wide = CompositeSpace((VectorSpace(2), CompositeSpace((VectorSpace(3), NullSpace()))))
    batch = (np.array([[7.0, 8.0], [9.0, 1.0]]), (np.array([[2], [0]]), None))
    x, (hot, nothing) = tree.np_format_as(batch, wide)
    assert nothing is None
    assert x is batch[0]
    np.testing.assert_array_equal(hot, [[0, 0, 1], [1, 0, 0]])
    joined = [[7, 8, 0, 0, 1], [9, 1, 1, 0, 0]]
    np.testing.assert_array_equal(tree.np_format_as(batch, VectorSpace(5)), joined)
    bad = (batch[0], (np.array([[2], [3]]), None))
    with pytest.raises(SpaceError, match=r"component \[1\]\[0\].*label 3 in row 1"):
        tree.np_format_as(bad, wide)


def test_joined_pieces_must_share_a_dtype_or_the_target_give_one():
    pair = CompositeSpace((VectorSpace(1), VectorSpace(1)))
    batch = (np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float64))
    with pytest.raises(SpaceTypeError, match=r"dtypes \('float32', 'float64'\)"):
        pair.np_format_as(batch, VectorSpace(2))
    assert pair.np_format_as(batch, VectorSpace(2, dtype="f4")).dtype == np.float32


# ---------------------------------------------------------------- sparse
@pytest.mark.parametrize("kind", ["csr_matrix", "coo_array"])
def test_sparse_batches_of_any_format(kind):
    dense = np.array([[0, 2, 0, 1.0], [3, 0, 0, 0]])
    batch = getattr(scipy.sparse, kind)(dense)
    sparse = VectorSpace(4, sparse=True)
    out = sparse.np_format_as(batch, VectorSpace(4))
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, dense)
    cut = sparse.np_format_as(batch, CompositeSpace((VectorSpace(1), VectorSpace(3, sparse=True))))
    np.testing.assert_array_equal(cut[0], dense[:, :1])
    np.testing.assert_array_equal(cut[1].toarray(), dense[:, 1:])
    assert sparse.np_format_as(batch, sparse.with_dtype("f4")).dtype == np.float32
    assert sparse.np_batch_size(batch) == 2
    large, small = (batch * 100).astype(int), VectorSpace(4, sparse=True, dtype="uint8")
    with pytest.raises(SpaceError, match="value 300 in row 1 does not fit uint8"):
        sparse.np_format_as(large, small)
    with pytest.raises(SpaceTypeError, match="sparse"):
        sparse.np_format_as(batch, Conv2DSpace((2, 2), 1))


def test_a_dtype_that_scipy_does_not_know_is_cast_before_or_refused():
    half = np.array([[0, 2], [3, 0]], "f2")
    images = half.reshape(2, 1, 1, 2)
    wide = VectorSpace(2, sparse=True, dtype="f4")
    for space, batch in ((VectorSpace(2), half), (Conv2DSpace((1, 1), 2), images)):
        made = space.np_format_as(batch, wide)
        assert made.dtype == np.float32
        np.testing.assert_array_equal(made.toarray(), half)
        with pytest.raises(SpaceTypeError, match=r"float16.*ask for another dtype"):
            space.np_format_as(batch, VectorSpace(2, sparse=True))
    narrow = wide.np_format_as(made, VectorSpace(2, dtype="f2"))
    assert narrow.dtype == np.float16
    with pytest.raises(SpaceTypeError, match="float16"):
        VectorSpace(2, sparse=True, dtype="f2").get_origin_batch(3)


# ---------------------------------------------------------------- every kind of array
CASES = [
    (IMAGES, Conv2DSpace((4, 5), 3, axes=("c", 0, 1, "b"), dtype="float32")),
    (IMAGES, VectorSpace(60, dtype="float64")),
    (VectorSpace(60), Conv2DSpace((4, 5), 3, axes=("c", 0, 1, "b"))),
    (IndexSpace(7, 2), VectorSpace(14, dtype="float32")),
    (IndexSpace(7, 2), VectorSpace(7, dtype="float32")),
    (IndexSpace(7, 2), IndexSpace(7, 2, dtype="uint8")),
    (VectorSpace(63), CompositeSpace((VectorSpace(3), IMAGES))),
    (CompositeSpace((VectorSpace(3), IMAGES)), VectorSpace(63)),
    (CompositeSpace((IMAGES, IndexSpace(7, 1))), CompositeSpace((VectorSpace(60), VectorSpace(7)))),
]


def numpy_batch(space, n=5):
    if isinstance(space, CompositeSpace):
        return tuple(numpy_batch(part, n) for part in space.components)
    if isinstance(space, NullSpace):
        return None
    batch = counted(space.sizes(n))
    return batch % 7 if isinstance(space, IndexSpace) else batch


def mapped(function, batch):
    return (
        tuple(mapped(function, x) for x in batch) if isinstance(batch, tuple) else function(batch)
    )


@pytest.mark.parametrize(("source", "target"), CASES, ids=str)
def test_array_api_strict_agrees_with_numpy(source, target):
    batch = numpy_batch(source)
    expected = source.np_format_as(batch, target)
    got = source.format_as(mapped(array_api_strict.asarray, batch), target)
    for x, y in zip(_flat(got), _flat(expected), strict=True):
        assert type(x).__module__.startswith("array_api_strict")
        assert str(x.dtype).endswith(y.dtype.name)
        np.testing.assert_array_equal(to_host(x), y)


def _flat(batch):
    return [leaf for part in batch for leaf in _flat(part)] if isinstance(batch, tuple) else [batch]


@pytest.mark.gpu
@pytest.mark.parametrize(("source", "target"), CASES, ids=str)
def test_cupy_agrees_with_numpy(source, target):
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    if not cupy.cuda.is_available():
        pytest.skip("needs a CUDA device")
    batch = numpy_batch(source)
    got = source.format_as(mapped(cupy.asarray, batch), target)
    for x, y in zip(_flat(got), _flat(source.np_format_as(batch, target)), strict=True):
        assert isinstance(x, cupy.ndarray)
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(to_host(x), y)


# ---------------------------------------------------------------- speed
MAX_CALLS = 24
"""Python functions called for one small batch; 19 are, and 34 when the route is worked out."""


def test_a_small_batch_costs_a_handful_of_calls(record_property):
    """What is known of two spaces is worked out once; microseconds follow, but are not counted."""
    source = Conv2DSpace((6, 5), channels=3, axes=("b", "c", 0, 1))  # nobody's before: no equals
    target = source.with_axes(("b", 0, 1, "c"))
    batch = np.zeros((2, 3, 6, 5), np.float32)
    source.np_format_as(batch, target)
    best = min(timeit.repeat(lambda: source.np_format_as(batch, target), number=2000, repeat=7))
    record_property("np_format_as_us", best / 2000 * 1e6)
    calls = []
    sys.setprofile(lambda frame, event, function: calls.append(event))
    try:
        source.np_format_as(batch, target)
    finally:
        sys.setprofile(None)
    assert calls.count("call") <= MAX_CALLS
