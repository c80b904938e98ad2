"""Saved places: the same batches go on, or everything undelivered is shared out anew."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.errors import StateError
from labeled.samplers.plan import EpochPlan, Last, plan_hash
from labeled.samplers.state import State, merge_states, restore, state_of
from labeled.samplers.units import UniformUnits, units_of_groups
from labeled.samplers.windows import Mode, Order, Weights

many = settings(max_examples=80, deadline=None)


class Run:
    """A loader in small: hands out batches epoch after epoch, saves and restores."""

    def __init__(self, order, shard, batch_rows, last):
        self.plan = EpochPlan(order, shard, batch_rows, last)
        self.hash = plan_hash(self.plan, "layout")
        self.step = 0

    def save(self):
        return json.loads(json.dumps(state_of(self.plan, self.step, self.hash).to_dict()))

    def load(self, saved):
        self.plan, self.step = restore(State.from_dict(saved), self.plan, self.hash)

    def next_epoch(self):
        order = self.plan.order
        self.plan = replace(self.plan, order=replace(order, epoch=order.epoch + 1), history=())
        self.step = 0

    def take(self, number):
        """Hand out at most `number` batches of this epoch."""
        stop = min(self.step + number, self.plan.n_batches)
        found = [self.plan.batch(at) for at in range(self.step, stop)]
        self.step = stop
        return [(rows.tolist(), count) for rows, count in found]


@st.composite
def orders(draw):
    n_rows = draw(st.integers(1, 150))
    if draw(st.booleans()):
        some = UniformUnits(n_rows, draw(st.integers(1, 30)), 3)
    else:
        some = units_of_groups(sorted(draw(st.lists(st.integers(0, 9), min_size=1, max_size=99))))
    window_rows, seed = draw(st.integers(1, 80)), draw(st.integers(0, 9))
    if draw(st.integers(0, 4)) == 0:
        weights = Weights(np.arange(some.n_rows) + 1.0, some)
        return Order("weights", some, window_rows, seed, weights=weights)
    mode = draw(st.sampled_from(get_args(Mode)))
    return Order(mode, some, window_rows, seed, sticky_shards=draw(st.booleans()))


counts = st.integers(1, 5)
batch_sizes = st.integers(1, 20)
rules = st.sampled_from(get_args(Last))


@settings(max_examples=40, deadline=None)
@given(orders(), counts, batch_sizes, rules)
def test_restored_at_any_batch_the_same_batches_follow(order, count, batch_rows, last):
    shard = (count - 1, count)
    run = Run(order, shard, batch_rows, last)
    epoch = run.take(10**6)
    run.next_epoch()
    following = run.take(10**6)
    before = Run(order, shard, batch_rows, last)
    for step in range(len(epoch) + 1):
        after = Run(replace(order, epoch=9, seed=99), shard, batch_rows, last)
        after.load(before.save())
        before.take(1)
        if step < len(epoch):
            assert after.take(10**6) == epoch[step:]
            after.next_epoch()
        assert after.take(10**6) == following


@many
@given(orders(), st.lists(st.tuples(counts, st.integers(0, 3)), max_size=3), counts, batch_sizes)
def test_other_shard_counts_hand_out_the_rest_once(order, stages, count, batch_rows):
    """Several changes; each stage restores what the shards of the stage before saved."""
    if order.weights is not None:
        order = Order("window", order.units, order.window_rows, order.seed)
    seen, saved = [], None
    for now, step in [*stages, (count, 10**6)]:
        runs = [Run(order, (index, now), batch_rows, "pad") for index in range(now)]
        for run in runs:
            if saved is not None:
                run.load(saved)
            seen += [row for rows, number in run.take(step) for row in rows[:number]]
        saved = merge_states([run.save() for run in runs])
        if all(run.step == run.plan.n_batches for run in runs):
            break
    assert {run.plan.order.epoch for run in runs} == {order.epoch}
    assert sorted(seen) == list(range(order.n_rows))


@many
@given(orders(), counts, counts, batch_sizes, rules, st.integers(1, 4))
def test_the_epoch_after_a_change_is_that_of_a_fresh_run(order, old, new, batch_rows, last, step):
    run = Run(order, (0, old), batch_rows, last)
    run.take(step)
    changed = Run(order, (new - 1, new), batch_rows, last)
    changed.load(run.save())
    fresh = Run(
        replace(order, epoch=changed.plan.order.epoch + 1), (new - 1, new), batch_rows, last
    )
    changed.next_epoch()
    assert changed.save() == fresh.save()
    assert changed.take(10**6) == fresh.take(10**6)


@pytest.mark.parametrize("last", get_args(Last))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_finished_epoch_restores_to_the_next_with_any_shard_count(last, count):
    order = Order("window", UniformUnits(119, 10), 30, seed=7)  # drop leaves out 9 and 10
    run = Run(order, (1, 2), 10, last)
    run.take(10**6)
    other = Run(order, (0, count), 10, last)
    other.load(run.save())
    assert (other.plan.order.epoch, other.plan.history, other.step) == (1, (), 0)


def test_the_state_stays_small():
    order = Order("window", UniformUnits(10**8, 64), 20_000, seed=7)
    run = Run(order, (0, 64), 256, "drop")
    run.take(1)
    assert len(json.dumps(run.save())) < 500


def test_merging_lets_a_finished_shard_be_one_batch_behind():
    order = Order("file", UniformUnits(61, 10), 30, seed=7)
    runs = [Run(order, (index, 3), 10, "keep") for index in range(3)]  # 20, 20 and 21 rows
    for run in runs:
        run.take(10**6)
    assert [run.step for run in runs] == [2, 2, 3]
    merged = merge_states([run.save() for run in runs])
    assert merged["step"] == 3
    for run in runs:
        run.load(merged)
        assert (run.plan.order.epoch, run.step) == (1, 0)


def test_merging_refuses_missing_shards_and_strangers():
    order = Order("file", UniformUnits(100, 10), 30, seed=7)
    saved = [Run(order, (index, 3), 10, "keep").save() for index in range(3)]
    with pytest.raises(StateError, match=r"\[0, 2\] of 3"):
        merge_states([saved[0], saved[2]])
    with pytest.raises(StateError, match=r"\[0, 0, 1\] of 3"):
        merge_states([saved[0], saved[0], saved[1]])
    with pytest.raises(StateError, match="seed is"):
        merge_states([saved[0], {**saved[1], "seed": 8}, saved[2]])
    with pytest.raises(StateError, match="no states"):
        merge_states([])


def base():
    return Order("window", UniformUnits(100, 10), 30, seed=7)


@pytest.mark.parametrize(
    ("order", "batch_rows", "last", "words"),
    [
        (replace(base(), mode="full"), 10, "keep", ("shuffle", "'window'", "'full'")),
        (replace(base(), window_rows=50), 10, "keep", ("window_rows", "30", "50")),
        (replace(base(), sticky_shards=True), 10, "keep", ("sticky_shards", "False", "True")),
        (replace(base(), units=UniformUnits(99, 10)), 10, "keep", ("n_rows", "100", "99")),
        (replace(base(), units=UniformUnits(100, 5)), 10, "keep", ("plan", "stored chunks")),
        (base(), 20, "keep", ("batch_size", "10", "20")),
        (base(), 10, "drop", ("last", "'keep'", "'drop'")),
    ],
)
def test_a_state_of_another_plan_is_refused_with_both_values(order, batch_rows, last, words):
    saved = Run(base(), (0, 1), 10, "keep").save()
    with pytest.raises(StateError) as raised:
        Run(order, (0, 1), batch_rows, last).load(saved)
    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state_version": 1}, "version 1"),
        ({"more": 1}, r"unknown \['more'\]"),
        ({"history": [3]}, r"history=\[3\] must be"),
        *(
            ({name: value}, f"{name}={value!r} must be")
            for name, value in [("step", "3"), ("step", True), ("shard", "x"), ("seed", 0.5)]
        ),
        *(
            (change, "no such place in an epoch")
            for change in [
                {"step": -1},
                {"count": 10**12},
                {"count": 0},
                {"history": [[0, 1]]},
                {"history": [[1, -1]]},
                {"batch_rows": 0},
                {"n_rows": -1},
                {"epoch": -5},
                {"step": 11},
                {"finished": True},
                {"n_batches": 11},
                {"history": [[2, 5]]},
                {"shard": 1},
                {"shard": -1},
            ]
        ),
    ],
)
def test_damaged_states_are_refused(change, message):
    saved = Run(base(), (0, 1), 10, "keep").save()
    with pytest.raises(StateError, match=message):
        State.from_dict({**saved, **change})
