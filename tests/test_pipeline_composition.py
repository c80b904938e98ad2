"""Transforms and pipelines put together: what they do to samples, and what does not fit."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from labeled.errors import PipelineError, PipelineTypeError
from labeled.transforms import (
    Collate,
    ComposedPipeline,
    ParallelCollate,
    ParallelPipelines,
    ParallelTransforms,
    Pipeline,
    Place,
    SequencePipeline,
    SequentialTransforms,
    Stack,
    StackedSequencePipeline,
    Stages,
    Transform,
    identity,
    stack,
)
from labeled.transforms.running import line_of

functions = st.sampled_from([abs, float, lambda x: x + 1, lambda x: 2 * x, lambda x: -x])


def through(pipeline, samples):
    """What becomes of a batch of samples."""
    return pipeline.batch(pipeline.collate([pipeline.sample(one) for one in samples]))


@given(st.lists(functions), st.lists(functions), st.integers())
def test_sequences_are_functions_one_after_another(first, second, x):
    wanted = x
    for function in first + second:
        wanted = function(wanted)
    assert SequentialTransforms(*first, *second)(x) == wanted
    assert SequentialTransforms(SequentialTransforms(*first), second)(x) == wanted
    composed = ComposedPipeline(first, Stages(second, list), None)
    assert through(composed, [x]) == [wanted]
    around = ComposedPipeline(None, Stages(None, list), lambda made: made[0])
    assert through(around, [x]) == x


@given(st.dictionaries(st.sampled_from("abc"), functions), st.sampled_from(["keep", "drop"]))
def test_parts_are_transformed_by_themselves(by_name, others):
    data = {"a": -1, "b": 2, "c": -3}
    wanted = {name: by_name.get(name, identity)(x) for name, x in data.items()}
    if others == "drop":
        wanted = {name: x for name, x in wanted.items() if name in by_name}
    assert ParallelTransforms(by_name, others=others)(data) == wanted
    parts = {name: Stages(one, list) for name, one in by_name.items()}
    made = through(ParallelPipelines(parts, others=others), [data, data])
    assert set(made) == set(wanted)
    for name, x in wanted.items():
        assert list(made[name]) == [x, x]


def test_parts_that_are_not_named_or_not_there():
    with pytest.raises(PipelineError, match="no transform is named for 'b'"):
        ParallelTransforms(a=abs, others="refuse")({"a": 1, "b": 2})
    with pytest.raises(PipelineError, match="for 'aa', which is not a source; did you mean 'a'"):
        ParallelTransforms(aa=abs)({"a": 1})
    with pytest.raises(PipelineTypeError, match=r"need a mapping.*found int"):
        ParallelTransforms(a=abs)(3)
    with pytest.raises(PipelineError, match="sample 1 of the batch has no 'b'"):
        ParallelCollate(b=list)([{"b": 1}, {}])
    with pytest.raises(PipelineError, match="others='all' must be 'keep'"):
        ParallelTransforms(others="all")


def test_collates_keep_drop_or_refuse_parts_that_are_not_named():
    samples = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    kept = ParallelCollate(a=max)(samples)
    assert (kept["a"], kept["b"].tolist()) == (3, [2, 4])
    assert ParallelCollate({"a": max}, others="drop")(samples) == {"a": 3}
    assert ParallelCollate({"a": max}, b=min, others="refuse")(samples) == {"a": 3, "b": 2}
    with pytest.raises(PipelineError, match="no transform is named for 'b'"):
        ParallelCollate(a=max, others="refuse")(samples)


def test_dims_of_batches_are_named_as_wanted():
    samples = [{n: xr.DataArray([i, 2 * i], dims="f") for n in "ab"} for i in range(3)]
    made = Stack("row", {"b": "item"})(samples)
    assert (made["a"].dims, made["b"].dims) == (("row", "f"), ("item", "f"))
    np.testing.assert_array_equal(made["b"], [[0, 0], [1, 2], [2, 4]])
    steps = StackedSequencePipeline(Stages(batch=identity), dim="step")
    batch = steps.batch(steps.collate([samples, samples]))
    assert batch["a"].dims == ("batch", "step", "f")
    np.testing.assert_array_equal(batch["a"], [[[0, 0], [1, 2], [2, 4]]] * 2)


values = st.integers(-9, 9)


@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_stacked_sequences_are_sequences_on_their_side(n, length, data):
    samples = data.draw(
        st.lists(st.lists(values, min_size=length, max_size=length), min_size=n, max_size=n)
    )
    inner = Stages(lambda x: {"v": x, "t": (x, np.full(3, x))}, batch=identity)
    over_time = through(SequencePipeline(inner), samples)
    stacked = through(StackedSequencePipeline(inner), samples)
    assert stacked["v"].shape == (n, length)
    assert stacked["t"][1].shape == (n, length, 3)
    for step in range(length):
        np.testing.assert_array_equal(over_time[step]["v"], stacked["v"][:, step])
        np.testing.assert_array_equal(over_time[step]["t"][1], stacked["t"][1][:, step])


def test_stacked_sequences_keep_their_names_and_fold_for_the_batch_stage():
    seen = []

    def batch(array):
        seen.append((array.dims, array.shape))
        return array * 2

    inner = Stages(lambda x: xr.DataArray([x, x, x], dims="f"), batch=batch)
    made = through(StackedSequencePipeline(inner), [[1, 2], [3, 4], [5, 6], [7, 8]])
    assert seen == [(("batch", "f"), (8, 3))]
    assert (made.dims, made.shape) == (("batch", "time", "f"), (4, 2, 3))
    np.testing.assert_array_equal(made[:, :, 0], 2 * np.arange(1, 9).reshape(4, 2))


class Pair(NamedTuple):
    images: Any
    labels: Any


@pytest.mark.parametrize("features", [0, 3])
def test_stacked_sequences_of_named_tuples_and_of_no_features(features):
    inner = Stages(collate=lambda steps: Pair(np.stack(steps), np.zeros(len(steps))))
    made = through(StackedSequencePipeline(inner), [[np.zeros(features)] * 2] * 4)
    assert type(made) is Pair
    assert (made.images.shape, made.labels.shape) == ((4, 2, features), (4, 2))


@pytest.mark.parametrize("kind", [SequencePipeline, StackedSequencePipeline])
def test_sequences_of_different_lengths(kind):
    with pytest.raises(PipelineError, match="between 1 and 2 steps"):
        through(kind(Stages()), [[1, 2], [3]])
    cut = through(SequencePipeline(Stages(), short="cut"), [[1, 2], [3]])
    assert [step.tolist() for step in cut] == [[1, 3]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SequentialTransforms(3), "3 is not a transform"),
        (lambda: Stages(collate=3), "3 is not a collate"),
    ],
)
def test_steps_that_cannot_be_called(make, message):
    with pytest.raises(PipelineTypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SequentialTransforms(abs, stack), "a batch of samples, which happens once"),
        (lambda: Stages(ParallelCollate()), "give it as collate="),
        (lambda: SequentialTransforms(Stages(), abs), "is a pipeline, which holds a collate"),
        (lambda: Stages(Stages()), "ComposedPipeline"),
        (lambda: Stages(collate=[list, list]), "samples become a batch once"),
        (lambda: ComposedPipeline(pre=abs), "pipeline= is missing"),
        (lambda: SequencePipeline(Stages(), short="long"), "short='long' must be"),
    ],
)
def test_samples_become_a_batch_once(make, message):
    with pytest.raises(PipelineError, match=message):
        make()


def test_protocols_ask_for_members_alone():
    assert isinstance(abs, Transform)
    assert isinstance(stack, Collate)
    assert not isinstance(3, Transform)
    for one in (
        Stages(),
        SequencePipeline(Stages()),
        ParallelPipelines(),
        ComposedPipeline(None, Stages()),
    ):
        assert isinstance(one, Pipeline)
        assert not callable(one)


# stacking


@given(st.lists(st.tuples(values, values), min_size=1, max_size=5))
def test_samples_are_stacked_part_by_part(pairs):
    samples = [
        {"x": xr.DataArray([a, b], dims="f", name="x"), "y": (a, np.array([[b]])), "z": str(a)}
        for a, b in pairs
    ]
    batch = stack(samples)
    np.testing.assert_array_equal(batch["x"], pairs)
    assert (batch["x"].dims, batch["x"].name) == (("batch", "f"), "x")
    np.testing.assert_array_equal(batch["y"][0], [a for a, _ in pairs])
    assert batch["y"][1].shape == (len(pairs), 1, 1)
    assert batch["z"] == [str(a) for a, _ in pairs]


def test_coordinates_are_stacked_too():
    samples = [xr.DataArray([i, i], dims="f", coords={"f": [5, 6], "n": i}) for i in range(3)]
    batch = stack(samples)
    np.testing.assert_array_equal(batch["f"], [5, 6])
    np.testing.assert_array_equal(batch["n"], [0, 1, 2])
    assert batch.dims == ("batch", "f")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples"),
        ([np.zeros(2), np.zeros(3)], r"different shapes, \(2,\) and \(3,\)"),
        ([{"a": 1}, {"b": 1}], r"\['b'\], the first one \['a'\]"),
        ([{"a": {"b": 1}}, {"a": {"b": "x"}}], r"at \['a'\]\['b'\].*str, the first one int"),
        ([(1, 2), (1,)], "1 parts, the first one 2"),
        ([xr.DataArray([1], dims="a"), xr.DataArray([1], dims="b")], r"dims \('b',\)"),
        ([xr.DataArray([1], [("f", [i])]) for i in (1, 2)], "coordinates of samples do not agree"),
        ([xr.DataArray([1], dims="batch")] * 2, "have a dim 'batch' already"),
    ],
)
def test_what_does_not_stack_is_reported(samples, message):
    with pytest.raises(PipelineError, match=message):
        stack(samples)


# randomness


@given(
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(-1, 3),
    st.lists(st.integers(0, 2), max_size=2),
)
def test_random_numbers_belong_to_a_row_and_a_step(seed, epoch, row, path):
    def first(*given):
        place = Place(*given[:3])
        for step in given[3]:
            place = place.into(step)
        return place.rng().random()

    here = (seed, epoch, row, path)
    assert first(*here) == first(*here)
    others = [
        (seed + 1, epoch, row, path),
        (seed, epoch + 1, row, path),
        (seed, epoch, row + 1, path),
        (seed, epoch, row, [*path, 0]),
    ]
    assert len({first(*one) for one in [here, *others]}) == 5


def test_steps_get_what_they_ask_for_and_nothing_else():
    seen = {}

    def asks(x, rng, row, seed, epoch):
        seen["all"] = (x, row, seed, epoch, rng.random())
        return x

    def has_options(x, seed=5):
        seen["option"] = seed
        return x

    def first_is_data(row):
        return row

    steps = SequentialTransforms(asks, partial(asks, row=77), has_options, first_is_data, abs)
    place = Place(1, 2, 3)
    assert steps(-4, place=place) == 4
    assert seen["all"][:4] == (-4, 77, 1, 2)
    assert seen["all"][4] == place.into(1).rng().random()
    assert seen["option"] == 5


def test_only_what_needs_rows_takes_batches_apart():
    def of_batches(x, rows):
        return x

    assert not line_of(of_batches).takes_apart
    assert not line_of({"a": of_batches, "b": identity}).takes_apart
    assert not line_of(ParallelPipelines(a=Stages({"x": of_batches}))).takes_apart
    assert not line_of(Stages(batch=abs)).works
    assert line_of(Stages(collate=list)).takes_apart
    assert line_of({"a": abs}).takes_apart
    mixed = line_of({"a": [of_batches, abs]})
    assert mixed.whole is not None
    assert mixed.sample is not None
    assert line_of(lambda x, rng: x).draws
    assert line_of(SequencePipeline(Stages([abs, lambda x, seed, epoch: x]))).draws
    assert not line_of(SequencePipeline(Stages([abs]))).draws
