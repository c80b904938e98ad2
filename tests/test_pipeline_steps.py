"""Pipelines by hand: steps in order and by part, stages, stacking, and what does not fit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from labeled.errors import PipelineError, PipelineTypeError
from labeled.transforms import SampleContext, Stack, Stages, stack, whole

functions = st.sampled_from([abs, float, lambda x: x + 1, lambda x: 2 * x, lambda x: -x])
values = st.integers(-9, 9)


def through(pipeline, samples):
    """What becomes of a batch of samples."""
    return pipeline.batch(pipeline.collate([pipeline.sample(one) for one in samples]))


@given(st.lists(functions), st.lists(functions), values)
def test_lists_are_functions_one_after_another(first, second, x):
    wanted = x
    for function in first + second:
        wanted = function(wanted)
    assert Stages([first, second]).sample(x) == wanted
    inner = Stages(second, list)
    assert through(Stages([*first, inner.sample], inner.collate, inner.batch), [x]) == [wanted]
    assert through(Stages(None, list, [inner.batch, lambda made: made[0]]), [x]) == x


@given(st.dictionaries(st.sampled_from("abc"), functions))
def test_mappings_change_their_parts_and_keep_the_others(by_name):
    data = {"a": -1, "b": 2, "c": -3}
    wanted = {name: by_name[name](x) if name in by_name else x for name, x in data.items()}
    assert Stages(by_name).sample(data) == wanted
    assert data == {"a": -1, "b": 2, "c": -3}
    inner = Stages({"a": [{"x": abs}, {"x": whole(lambda x: 2 * x)}]})
    assert inner.sample({"a": {"x": -2, "y": 1}}) == {"a": {"x": 4, "y": 1}}
    parts = {name: Stages(one, list) for name, one in by_name.items()}
    side_by_side = Stages(*({n: getattr(p, s) for n, p in parts.items()}
                            for s in ("sample", "collate", "batch")))  # fmt: skip
    made = through(side_by_side, [data, data])
    assert {name: list(column) for name, column in made.items()} == {
        name: [x, x] for name, x in wanted.items()
    }


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Stages(3), PipelineTypeError, "3 is not a transform"),
        (lambda: Stages(collate=3), PipelineTypeError, "3 is not a collate"),
        (lambda: Stages({"a": abs}).sample(3), PipelineTypeError, r"needs a mapping, found 3"),
        (
            lambda: Stages([abs, stack]),
            PipelineError,
            "makes a batch of samples, which happens once",
        ),
        (lambda: Stages(Stages()), PipelineError, "makes a batch of samples, which happens once"),
        (lambda: Stages(collate=[list, list]), PipelineTypeError, "samples become a batch once"),
        (
            lambda: Stages({"aa": abs}).sample({"a": 1}),
            PipelineError,
            "for 'aa', which is not a source; did you mean 'a'",
        ),
        (
            lambda: Stages(collate={"b": list}).collate([{"b": 1}, {}]),
            PipelineError,
            r"sample 1 of the batch is dict of \[\], the first one dict of \['b'\]",
        ),
    ],
)
def test_steps_that_do_not_fit(make, error, message):
    with pytest.raises(error, match=message):
        make()


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
    named = Stack("row", {"x": "item"})(samples)
    assert named["x"].dims == ("item", "f")


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
        ([{"a": 1}, {"b": 1}], r"dict of \['b'\], the first one dict of \['a'\]"),
        ([{"a": {"b": 1}}, {"a": {"b": "x"}}], r"at \['a'\]\['b'\].*str of 1, the first one int"),
        ([(1, 2), (1,)], "tuple of 1, the first one tuple of 2"),
        ([xr.DataArray([1], dims="a"), xr.DataArray([1], dims="b")], r"of \('b',\)"),
        ([xr.DataArray([1], [("f", [i])]) for i in (1, 2)], "coordinates of samples do not agree"),
        ([xr.DataArray([1], dims="batch")] * 2, "have a dim 'batch' already"),
    ],
)
def test_what_does_not_stack_is_reported(samples, message):
    with pytest.raises(PipelineError, match=message):
        stack(samples)


# randomness


@given(st.integers(0, 3), st.integers(0, 3), st.integers(-1, 3), st.lists(values, max_size=2))
def test_random_numbers_belong_to_a_row_and_a_step(seed, epoch, row, path):
    def first(seed, epoch, row, path):
        return SampleContext(seed, epoch, row).into(*path).rng().random()

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

    steps = Stages([asks, partial(asks, row=77), has_options, first_is_data, abs])
    context = SampleContext(1, 2, 3)
    assert steps.sample(-4, context=context) == 4
    assert seen["all"][:4] == (-4, 77, 1, 2)
    assert seen["all"][4] == context.into(1).rng().random()
    assert seen["option"] == 5
