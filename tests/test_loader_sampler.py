"""Batches that a sampler lists are served as they are: rows, lengths, order, repeats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import LoaderError, SelectionError, SelectionTypeError, StateError
from labeled.samplers import row_sequences, shuffled
from labeled.samplers.listed import ListedBatches
from labeled.samplers.plan import SampledPlan
from labeled.samplers.units import UniformUnits
from labeled.samplers.windows import Order
from make_files import fuel_file

N = 120
VALUES = np.random.default_rng(1).integers(0, 99, (N, 7), dtype=np.int32)


@pytest.fixture(scope="module", params=["contiguous", "gzip"])
def dataset(request, tmp_path_factory):
    layout = {"chunks": (10, 7), "compression": "gzip"} if request.param == "gzip" else {}
    path = fuel_file(
        tmp_path_factory.mktemp("sampler") / "d.hdf5",
        {"x": VALUES},
        {"all": (0, N)},
        {"x": ("batch", "feature")},
        **layout,
    )
    return labeled.open_dataset(path)


requests = st.lists(
    st.lists(st.integers(0, N - 1), max_size=20)
    | st.tuples(st.integers(0, N), st.integers(0, N)).map(lambda ab: slice(min(ab), max(ab))),
    max_size=12,
)


@given(requests, st.integers(1, 3), st.integers(0, 2))
def test_listed_batches_come_as_they_are(dataset, asked, count, threads):
    for index in range(count):
        loader = dataset.batches(
            sampler=asked, shard=(index, count), threads=threads, memory="8 MiB"
        )
        mine = asked[index::count]
        assert len(loader) == len(mine)
        for _ in range(2):
            for batch, request in zip(loader, mine, strict=True):
                rows = np.arange(N)[
                    request if isinstance(request, slice) else np.array(request, int)
                ]
                np.testing.assert_array_equal(batch.rows, rows)
                np.testing.assert_array_equal(batch.arrays["x"], VALUES[rows])


@pytest.mark.parametrize(
    "sampler",
    [
        shuffled(N, 32, seed=5),
        shuffled(N, 50, seed=(5, 6), epoch=3),
        row_sequences(N, 4, 8, step=2),
        row_sequences(N, 7, 3, seed=5, last="drop"),
    ],
    ids=repr,
)
def test_samplers_are_served_epoch_after_epoch(dataset, sampler):
    loader = dataset.batches(sampler=sampler, epoch=2)  # counts the epochs, whatever the sampler's
    for epoch in (2, 3):
        expected = list(sampler.at_epoch(epoch))
        for batch, rows in zip(loader, expected, strict=True):
            np.testing.assert_array_equal(batch.rows, rows)
            np.testing.assert_array_equal(batch.arrays["x"], VALUES[rows])


def test_a_place_is_saved_and_found(dataset):
    sampler = shuffled(N, 16, seed=3)
    loader = dataset.batches(sampler=sampler)
    epoch = iter(loader)
    for _ in range(3):
        next(epoch)
    state = loader.state_dict()
    rest = [batch.rows for batch in epoch] + [batch.rows for batch in loader]
    other = dataset.batches(sampler=sampler)
    other.load_state_dict(state)
    again = [batch.rows for batch in other] + [batch.rows for batch in other]
    for mine, rows in zip(rest, again, strict=True):
        np.testing.assert_array_equal(mine, rows)
    with pytest.raises(StateError, match="plan"):
        dataset.batches(sampler=shuffled(N, 16, seed=4)).load_state_dict(state)
    with pytest.raises(
        StateError, match=r"with sampler=\.\.\., but this loader has shuffle=False;"
    ):
        dataset.batches(16).load_state_dict(state)
    assert loader.explain().n_batches == 8


def test_batches_without_rows_are_batches(dataset):
    loader = dataset.batches(sampler=[[], []])
    first = next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    assert [first.count, *(batch.count for batch in loader)] == [0, 0]


def test_parts_of_different_lengths_merge_at_their_end(dataset):
    asked = [[1], [2, 3], [4], [5], [6, 7]]
    loaders = [dataset.batches(sampler=asked, shard=(index, 2)) for index in range(2)]
    states = []
    for loader in loaders:
        list(loader)
        states.append(loader.state_dict())
    assert [state["step"] for state in states] == [3, 2]
    merged = labeled.merge_states(states)
    for loader in loaders:
        loader.load_state_dict(merged)
        assert loader.epoch == 1
    with pytest.raises(StateError, match="no such place in an epoch"):
        loaders[0].load_state_dict({**states[0], "step": 4})


@given(
    st.integers(0, 30), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3))), st.integers(1, 4)
)
def test_however_often_parts_change_each_batch_is_served_once(n_batches, changes, last):
    batches = ListedBatches.of([[k] for k in range(n_batches)])
    order = Order("sampler", UniformUnits(N, 1), 8, seed=0, sampler=batches)
    served, history = [], ()
    for count, step in [*changes, (last, n_batches)]:
        for index in range(count):
            plan = SampledPlan(order, (index, count), history=history)
            served += [int(plan.batch(k)[0][0]) for k in range(min(step, plan.n_batches))]
        history = (*history, (count, step))
    assert sorted(served) == list(range(n_batches))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"sampler": [[0, N]]}, SelectionError, f"row {N} in epoch 0, but there are {N} rows"),
        ({"sampler": [[0]], "batch_size": 4}, LoaderError, "leave batch_size out"),
        ({"sampler": [[0]], "shuffle": True}, LoaderError, "leave shuffle out"),
        ({"sampler": [[-1]]}, SelectionError, "negative"),
        ({"sampler": 5}, LoaderError, "sampler=5 lists no batches"),
        ({}, LoaderError, "batch_size is missing"),
    ],
)
def test_what_does_not_go_together_is_refused(dataset, options, kind, words):
    with pytest.raises(kind, match=words):
        dataset.batches(**options)


@pytest.mark.parametrize(
    ("item", "rows"),
    [
        (slice(2, 5), [2, 3, 4]),
        (slice(8, 2, -3), [8, 5]),
        (range(4, 0, -2), [4, 2]),
        (np.array([3, 3, 1], np.uint8), [3, 3, 1]),
        (4, [4]),
    ],
)
def test_requests_name_rows(dataset, item, rows):
    (batch,) = dataset.batches(sampler=[item])
    assert batch.rows.tolist() == rows


@pytest.mark.parametrize(
    ("item", "error", "words"),
    [
        (slice(2, None), SelectionTypeError, "does not say which rows"),
        (slice(-3, 5), SelectionError, "row -3 of a batch is negative"),
        ([1, -2], SelectionError, "row -2 of a batch is negative"),
        (range(-1, 3), SelectionError, "row -1"),
        ([True, False], SelectionTypeError, "a list of rows"),
        ([[1], [2]], SelectionTypeError, "a list of rows"),
        ([[1], [2, 3]], SelectionTypeError, "several lengths form no array"),
        ("rows", SelectionTypeError, "a list of rows"),
        (slice(0, 4, 0), SelectionTypeError, "does not say which rows.*no step 0"),
        ([2**63], SelectionError, "row 9223372036854775808 of a batch is more than 63 bits hold"),
        (slice(2**70, 2**70 + 2), SelectionError, "asks for row 1180591620717411303425"),
        (np.ma.array([1, 2], mask=[0, 1]), SelectionTypeError, "masked values"),
    ],
)
def test_what_names_no_rows_is_refused(dataset, item, error, words):
    with pytest.raises(error, match=words):
        dataset.batches(sampler=[item])


def test_listed_batches_show_the_first():
    listed = ListedBatches([[0, 1], [2, 3], [4, 5], [1]])
    assert repr(listed) == "<4 listed batches, 7 rows: [0, 1], [2, 3], [4, 5], ...>"
