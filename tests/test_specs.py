"""Specs: the examples of the text, the mapping's laws, several consumers, and compiling."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.errors import LabeledError, SpaceError, SpecsError
from labeled.spaces import (
    CompositeSpace,
    Conv2DSpace,
    ConvNDSpace,
    DataSpecsMapping,
    IndexSpace,
    NullSpace,
    SourceInfo,
    VectorSequenceSpace,
    VectorSpace,
    combine,
    compile_specs,
    space_of,
)

VECTOR = VectorSpace(dim=32 * 32 * 3)
IMAGES = Conv2DSpace(shape=(32, 32), num_channels=3, axes=("b", "c", 0, 1))
TARGETS = VectorSpace(dim=10)
F, T = "features", "targets"
laws = settings(max_examples=60, deadline=None)


def composite(*parts):
    return CompositeSpace(parts)


def info(name, dims, shape, dtype, space=None):
    dtype = np.dtype(dtype)
    own = space_of(dims, shape, dtype, name=name) if space is None else space
    return SourceInfo(name, tuple(shape), dtype, own)


CIFAR = {
    F: info(F, ("batch", "channel", "height", "width"), (3, 32, 32), "u1"),
    T: info(T, ("batch",), (), "i8", IndexSpace(10, 1)),
}


# ---------------------------------------------------------------- the examples of the text
CORRECT = [
    ((VECTOR, F), (8, 3072)),
    ((TARGETS, T), (8, 10)),
    ((composite(TARGETS, IMAGES), (T, F)), ((8, 10), (8, 3, 32, 32))),
    (
        (composite(composite(VECTOR, VECTOR, VECTOR), TARGETS), ((F, F, F), T)),
        (((8, 3072), (8, 3072), (8, 3072)), (8, 10)),
    ),
]
INCORRECT = [
    (
        (composite(VECTOR, IMAGES), F),
        ["at the top", "2 components", "single name 'features'", "expected a tuple of 2"],
    ),
    (
        (composite(VECTOR, VECTOR, VECTOR, TARGETS), ((F, F, F), T)),
        ["at the top", "4 components", "the source has 2", "nested as the space is"],
    ),
    (
        (composite(composite(VECTOR, VECTOR, VECTOR), TARGETS), (F, F, F, T)),
        ["at the top", "2 components", "the source has 4"],
    ),
]


def shapes(batch):
    return tuple(map(shapes, batch)) if isinstance(batch, tuple) else batch.shape


@pytest.mark.parametrize(("specs", "expected"), CORRECT)
def test_the_correct_examples(specs, expected):
    compiled = compile_specs(specs, CIFAR)
    rng = np.random.default_rng(0)
    arrays = {F: rng.integers(0, 256, (8, 3, 32, 32), "u1"), T: rng.integers(0, 10, 8)}
    assert shapes(compiled(arrays)) == expected


@pytest.mark.parametrize(("specs", "words"), INCORRECT)
def test_the_incorrect_structures(specs, words):
    for check in (DataSpecsMapping, lambda specs: compile_specs(specs, CIFAR)):
        with pytest.raises(SpecsError) as caught:
            check(specs)
        assert all(word in str(caught.value) for word in words), caught.value
        assert isinstance(caught.value, ValueError)


def test_the_incorrect_width_is_found_before_any_data():
    DataSpecsMapping((TARGETS, F))  # its structure is fine
    with pytest.raises(SpecsError) as caught:
        compile_specs((TARGETS, F), CIFAR)
    text = str(caught.value)
    assert all(word in text for word in ("'features'", "(3, 32, 32)", "3072", "expects 10")), text


def test_the_costs_of_the_text():
    """A penalty without data, an unsupervised cost, a supervised one, its monitor."""
    combined = combine(
        {
            "model": (IMAGES, F),
            "penalty": (NullSpace(), ""),
            "unsupervised": (IMAGES, F),
            "supervised": (composite(IMAGES, TARGETS), (F, T)),
            "reversed": (composite(TARGETS, IMAGES), (T, F)),
            "monitor": (VECTOR, F),
        }
    )
    space, source = combined.specs
    assert (space, source) == (composite(IMAGES, TARGETS, VECTOR), (F, T, F))
    compiled = compile_specs(combined.specs, CIFAR)
    assert compiled.sources == (F, T)
    data = combined.nest(compiled({F: np.ones((8, 3, 32, 32), "u1"), T: np.arange(8)}))
    assert list(data) == list(combined.names)
    assert data["penalty"] is None
    assert data["unsupervised"] is data["model"] is data["supervised"][0] is data["reversed"][1]
    assert data["supervised"][1] is data["reversed"][0]
    assert data["monitor"].shape == (8, 3072)


# ---------------------------------------------------------------- malformed specs
@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ((F, VECTOR), ["'features' is not a space", "swapped"]),
        (VECTOR, ["a pair (space, source)"]),
        ((VECTOR, (F, F)), ["elementary", "has 2", "expected a name"]),
        ((VECTOR, ""), ["the source is ''", "expected a name"]),
        ((NullSpace(), F), ["a NullSpace has the source ''", "'features'"]),
        ((composite(VECTOR, TARGETS), "ab"), ["single name 'ab'"]),  # not two characters
        ((composite(TARGETS, composite(VECTOR, TARGETS)), (T, (F, (T,)))), ["component [1][1]"]),
        ((composite(TARGETS, composite(NullSpace(), TARGETS)), (T, (F, T))), ["[1][0]", "Null"]),
    ],
)
def test_malformed_specs_are_refused_at_the_branch(specs, words):
    with pytest.raises(SpecsError) as caught:
        DataSpecsMapping(specs)
    assert isinstance(caught.value, LabeledError)
    assert all(word in str(caught.value) for word in words), caught.value


# ---------------------------------------------------------------- laws of the mapping
LEAVES = [(VECTOR, F), (TARGETS, T), (IMAGES, F), (VECTOR.with_dtype("f4"), F), (NullSpace(), "")]


@st.composite
def any_specs(draw, depth=3):
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(LEAVES))
    parts = draw(st.lists(any_specs(depth - 1), max_size=4))
    return CompositeSpace(tuple(space for space, _ in parts)), tuple(name for _, name in parts)


def tree_of(specs, value_of):
    """Data of the structure of the specs: one object per distinct pair, None for nulls."""
    space, source = specs
    if isinstance(space, CompositeSpace):
        pairs = zip(space.components, source, strict=True)
        return tuple(tree_of(pair, value_of) for pair in pairs)
    return None if isinstance(space, NullSpace) else value_of.setdefault(specs, object())


@laws
@given(any_specs())
def test_nest_undoes_flatten(specs):
    space, source = specs
    mapping = DataSpecsMapping(specs)
    values = {}
    data = tree_of(specs, values)
    assert mapping.nest(mapping.flatten(data)) == data
    assert mapping.nest(mapping.flatten(data, return_tuple=True)) == data
    assert mapping.flatten(data, return_tuple=True) == tuple(values.values())
    assert mapping.nest(mapping.flatten(space)) == space
    names = mapping.flatten(source, return_tuple=True)
    assert list(zip(mapping.flatten(space, return_tuple=True), names, strict=True)) == list(
        mapping.specs_to_index
    )
    assert mapping.n_unique_specs == len(values)


@laws
@given(st.lists(any_specs(), max_size=4))
def test_combined_consumers_get_what_they_would_alone(requests):
    named = {f"consumer{i}": specs for i, specs in enumerate(requests)}
    combined = combine(named)
    values = {}
    expected = {name: tree_of(specs, values) for name, specs in named.items()}
    flat = tuple(
        values[pair] for pair in zip(combined.specs[0].components, combined.specs[1], strict=True)
    )
    assert combined.nest(flat) == expected


def test_a_combined_request_names_the_consumer_at_fault():
    with pytest.raises(SpecsError, match="the specs of 'cost': at the top"):
        combine({"model": (VECTOR, F), "cost": (VECTOR, (F, F))})


def test_null_positions():
    alone = DataSpecsMapping((NullSpace(), ""))
    assert alone.flatten("") is None
    assert alone.flatten(None, return_tuple=True) == ()
    assert alone.nest(()) is None
    assert alone.nest(None) is None
    assert alone.flatten(NullSpace()) == CompositeSpace(())
    assert alone.nest(CompositeSpace(())) == NullSpace()
    beside = DataSpecsMapping((composite(NullSpace(), VECTOR), ("", F)))
    assert beside.flatten((None, 5)) == 5
    assert beside.nest(5) == (None, 5)
    assert beside.nest(VECTOR) == composite(NullSpace(), VECTOR)
    with pytest.raises(SpecsError, match=r"component \[0\].*a null position holds None, found 4"):
        beside.flatten((4, 5))


@pytest.mark.parametrize(
    ("nested", "words"),
    [
        ((1, 2, 3), ["at the top", "expected 2 parts, found 3 parts"]),
        ((1, (2, (3, 4))), ["component [1][1]", "expected one entry", "tuple of 2"]),
        ((1, (3, 2)), ["component [1][1]", "the same (space, source) pair", "2"]),
        ((np.zeros(2), (3, np.ones(2))), ["component [1][1]", "different"]),
    ],
)
def test_flatten_refuses_another_structure(nested, words):
    mapping = DataSpecsMapping((composite(VECTOR, composite(TARGETS, VECTOR)), (F, (T, F))))
    with pytest.raises(SpecsError) as caught:
        mapping.flatten(nested)
    assert all(word in str(caught.value) for word in words), caught.value


# ---------------------------------------------------------------- compiling
ORDERS = list(itertools.permutations(("b", "c", 0, 1)))
DIM = {"b": "batch", "c": "channel", 0: "height", 1: "width"}


def axes_info(axes, dtype="u1", size=(4, 5, 3)):
    length = {"c": size[2], 0: size[0], 1: size[1]}
    return info("x", ["batch", *(DIM[a] for a in axes)], [length[a] for a in axes], dtype)


@laws
@given(
    file_axes=st.permutations(("c", 0, 1)),
    target=st.sampled_from([*ORDERS, None]),
    dtype=st.sampled_from(["u1", ">i2", "f4", "?"]),
    wanted=st.sampled_from([None, "f4", "f8"]),
    n=st.integers(0, 3),
    factors=st.sampled_from([(None, None), (0.5, None), (0.5, -1.0), ([1.0, 2, 3], [0.0, 1, 2])]),
)  # fmt: skip
def test_a_compiled_request_is_transpose_cast_and_scale(
    file_axes, target, dtype, wanted, n, factors
):
    source = axes_info(file_axes, dtype)
    space = VectorSpace(60) if target is None else Conv2DSpace((4, 5), 3, axes=target)
    scale, shift = factors
    compiled = compile_specs((space, "x"), {"x": source}, dtype=wanted, scale=scale, shift=shift)
    rows = (np.random.default_rng(n).random((n, *source.shape)) * 100).astype(dtype)

    got = compiled({"x": rows})

    x = xr.DataArray(rows.astype("f8"), dims=["batch", *(DIM[a] for a in file_axes)])
    for value, act in ((scale, np.multiply), (shift, np.add)):
        factor = 0.0 if value is None else xr.DataArray(value, dims=["channel"][: np.ndim(value)])
        x = x if value is None else act(x, factor)
    order = ["batch", "height", "width", "channel"] if target is None else [DIM[a] for a in target]
    expected = x.transpose(*order).values.reshape(space.sizes(n))
    np.testing.assert_allclose(got.astype("f8"), expected, rtol=1e-6)
    assert got.flags.c_contiguous
    assert n == 0 or not np.shares_memory(got, rows)
    assert compiled.out_bytes(n) == got.nbytes
    assert got.dtype.isnative


def test_labels():
    arrays = {F: np.zeros((3, 3, 32, 32), "u1"), T: np.array([9, 0, 3])}

    def run(space, own=None, **options):
        sources = CIFAR if own is None else {**CIFAR, T: info(T, ("batch",), (), "i8", own)}
        return compile_specs((space, T), sources, **options)(arrays)

    hot = run(TARGETS, dtype="float32", scale=1 / 255, shift=3.0)  # single factors: not for labels
    assert hot.dtype == np.float32
    np.testing.assert_array_equal(hot, np.eye(10)[[9, 0, 3]])
    assert run(TARGETS).dtype == np.float64
    assert run(VectorSpace(10, dtype="uint8")).dtype == np.uint8
    np.testing.assert_array_equal(run(VectorSpace(12), IndexSpace(None, 1)).argmax(1), [9, 0, 3])
    labels = run(IndexSpace(10, 1), dtype="float32")  # a single dtype: not for labels as labels
    assert (labels.tolist(), labels.dtype) == ([[9], [0], [3]], np.int64)
    assert not np.shares_memory(labels, arrays[T])
    assert run(IndexSpace(10, 1), dtype={T: "int16"}).dtype == np.int16
    assert run(IndexSpace(10, 1, dtype="int8")).dtype == np.int8
    sparse = run(VectorSpace(10, sparse=True))
    assert scipy.sparse.issparse(sparse)
    np.testing.assert_array_equal(sparse.toarray(), hot)
    with pytest.raises(SpaceError, match=r"source 'targets': IndexSpace.*label 9 in row 0"):
        run(VectorSpace(9), IndexSpace(None, 1))


def test_own_spaces_reinterpret_rows():
    """A flat source that its owner says holds images, and images said to be a vector."""
    flat = {
        "x": info(
            "x", ("batch", "x_axis_1"), (60,), "f4", Conv2DSpace((4, 5), 3, axes=("c", 0, 1, "b"))
        )
    }
    data = np.arange(120, dtype="f4").reshape(2, 60)
    out = compile_specs((Conv2DSpace((4, 5), 3), "x"), flat)({"x": data})
    np.testing.assert_array_equal(out, data.reshape(2, 3, 4, 5).transpose(0, 2, 3, 1))
    volume = {"x": info("x", ("batch", "channel", "z", "y", "x"), (3, 2, 4, 5), "f4")}
    wanted = ConvNDSpace((2, 4, 5), 3, axes=(0, 1, 2, "c", "b"))
    out = compile_specs((wanted, "x"), volume)({"x": np.zeros((7, 3, 2, 4, 5), "f4")})
    assert out.shape == (2, 4, 5, 3, 7)


@pytest.mark.parametrize(
    ("specs", "options", "words"),
    [
        ((VECTOR, "feature"), {}, ["'feature' is not a source", "did you mean 'features'"]),
        ((VectorSpace(3071), F), {}, ["'features'", "hold 3072", "expects 3071"]),
        ((VectorSpace(11), T), {}, ["'targets'", "labels of 10", "not 11"]),
        ((VectorSequenceSpace(3072), F), {}, ["batches are not made as VectorSequenceSpace"]),
        ((IMAGES.with_dtype("f4"), F), {"dtype": {F: "f8"}}, ["float64 contradicts"]),
        ((VECTOR, F), {"dtype": "str"}, ["'features'", "a space's dtype is bool"]),
        ((VECTOR, F), {"dtype": "u1", "scale": 2.0}, ["scaled result is not cast to uint8"]),
        ((VECTOR, F), {"scale": [1.0, 2.0]}, ["scale has 2 numbers, expected 3", "channel"]),
        ((VECTOR, F), {"scale": float("nan")}, ["'features': scale=nan cannot be", "not finite"]),
        ((VECTOR, F), {"shift": [1e300] * 3}, ["shift=[1e+300, ", "computed in float32, where"]),
        ((VECTOR, F), {"scale": [[1.0], [2.0, 3.0]]}, ["'features': scale", "several lengths"]),
        ((VECTOR, F), {"scale": {"feature": 2}}, ["scale= names 'feature'", "did you mean"]),
        ((TARGETS, T), {"scale": {T: 2.0}}, ["holds labels, which take no scale"]),
        ((IndexSpace(10, 1), T), {"dtype": {T: "f4"}}, ["dtype must be integer"]),
        (
            (composite(VECTOR, composite(NullSpace(), VectorSpace(11))), (F, ("", T))), {},
            ["at component [1][1] of the specs", "'targets'", "labels of 10", "not 11"],
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_compiling(specs, options, words):
    with pytest.raises(SpecsError) as caught:
        compile_specs(specs, CIFAR, **options)
    assert all(word in str(caught.value) for word in words), caught.value


def test_sources_that_no_space_can_serve_are_refused():
    ragged = {"x": SourceInfo("x", (), np.dtype(object), VectorSpace(1))}
    with pytest.raises(SpecsError, match="rows of different lengths"):
        compile_specs((VectorSpace(1), "x"), ragged)
    floats = {"x": info("x", ("batch", "feature"), (3,), "f8")}
    with pytest.raises(SpecsError, match="float64 is not cast to int32"):
        compile_specs((VectorSpace(3, dtype="i4"), "x"), floats)
    wrong = {"x": info("x", ("batch", "feature"), (3,), "f8", VectorSpace(4))}
    with pytest.raises(SpecsError, match=r"shape \(3,\) holds 3 values.*says 4"):
        compile_specs((VectorSpace(4), "x"), wrong)
    labels = {"x": info("x", ("batch",), (), "f8", IndexSpace(10, 1))}
    with pytest.raises(SpecsError, match="labels must be integers, found float64"):
        compile_specs((VectorSpace(10), "x"), labels)
    column = {"x": info("x", ("batch", "x_axis_1"), (1,), "i8")}
    with pytest.raises(SpecsError, match=r"are labels, say so: with_spaces\(x=IndexSpace"):
        compile_specs((VectorSpace(10), "x"), column)


def test_batches_that_are_not_what_was_promised_are_refused():
    compiled = compile_specs((composite(VECTOR, TARGETS), (F, T)), CIFAR)
    images, labels = np.zeros((2, 3, 32, 32), "u1"), np.array([1, 2])
    with pytest.raises(SpecsError, match=r"rows have shape \(32, 32, 3\), expected \(3, 32, 32\)"):
        compiled({F: images.transpose(0, 2, 3, 1), T: labels})
    with pytest.raises(SpecsError, match="differ in rows"):
        compiled({F: images, T: labels[:1]})
    with pytest.raises(SpaceError, match=r"source 'targets'.*label 10 in row 1"):
        compiled({F: images, T: np.array([1, 10])})


def test_integers_are_narrowed_only_where_they_fit():
    wide = {"x": info("x", ("batch", "feature"), (2,), "i8")}
    compiled = compile_specs((VectorSpace(2, dtype="u1"), "x"), wide)
    assert compiled({"x": np.array([[0, 255]])}).dtype == np.uint8
    with pytest.raises(SpaceError, match="source 'x': value 256 in row 1 does not fit uint8"):
        compiled({"x": np.array([[0, 255], [256, 0]])})


def test_a_compiled_request_pickles():
    specs = (composite(IMAGES, TARGETS, NullSpace()), (F, T, ""))
    compiled = compile_specs(specs, CIFAR, dtype="float32", scale=[1, 2, 3])
    arrays = {F: np.ones((2, 3, 32, 32), "u1"), T: np.array([1, 2])}
    for x, y in zip(pickle.loads(pickle.dumps(compiled))(arrays), compiled(arrays), strict=True):
        np.testing.assert_array_equal(x, y)
