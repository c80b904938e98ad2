"""An epoch shared out: every row once, the same rows by any way of asking."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.samplers.permutation import explicit_permutation, key_of
from labeled.samplers.plan import EpochPlan, Last
from labeled.samplers.units import ListedUnits, UniformUnits, units_of_groups
from labeled.samplers.windows import Mode, Order, WindowOrder, shard_bounds

many = settings(max_examples=100, deadline=None)


@st.composite
def units(draw):
    n_rows = draw(st.integers(0, 200))
    if draw(st.booleans()):
        start = draw(st.integers(0, 40))
        return UniformUnits(n_rows, draw(st.integers(1, 40)), start)
    ids = draw(st.lists(st.integers(0, 25), min_size=n_rows, max_size=n_rows))
    return units_of_groups(sorted(ids), draw(st.integers(1, 9)))


@st.composite
def orders(draw):
    return Order(
        draw(st.sampled_from(get_args(Mode))),
        draw(units()),
        window_rows=draw(st.integers(1, 90)),
        seed=draw(st.integers(0, 5)),
        epoch=draw(st.integers(0, 5)),
        sticky_shards=draw(st.booleans()),
    )


batch_sizes = st.integers(1, 30)
counts = st.integers(1, 6)
rules = st.sampled_from(get_args(Last))
histories = st.lists(st.tuples(counts, st.integers(0, 3)), max_size=3).map(tuple)


def batches_of(plan, first=0):
    """Rows of every batch, without padding."""
    found = [plan.batch(number) for number in range(first, plan.n_batches)]
    return [rows[:count] for rows, count in found]


def joined(arrays):
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def plans(order, count, **options):
    return [EpochPlan(order, (index, count), **options) for index in range(count)]


@many
@given(orders(), counts, batch_sizes, st.sampled_from(["keep", "pad"]))
def test_the_shards_hold_each_row_once(order, count, batch_rows, last):
    dealt = plans(order, count, batch_rows=batch_rows, last=last)
    rows = joined(batch for plan in dealt for batch in batches_of(plan))
    np.testing.assert_array_equal(np.sort(rows), np.arange(order.n_rows))


@many
@given(orders(), counts, batch_sizes, rules, histories)
def test_shards_have_as_many_batches_as_the_rule_says(order, count, batch_rows, last, history):
    dealt = plans(order, count, batch_rows=batch_rows, last=last, history=history)
    kept = plans(order, count, batch_rows=batch_rows, history=history)
    left = sum(plan.n_rows for plan in kept)
    lengths = [hi - lo for lo, hi in (shard_bounds(left, i, count) for i in range(count))]
    numbers = [plan.n_batches for plan in dealt]
    if last == "keep":
        assert numbers == [-(-length // batch_rows) for length in lengths]
        assert max(numbers) - min(numbers) <= 1
    elif last == "drop":
        assert numbers == [min(lengths) // batch_rows] * count
        left_out = [
            length - number * batch_rows for length, number in zip(lengths, numbers, strict=True)
        ]
        assert max(left_out) <= batch_rows
        assert min(left_out) < batch_rows
    else:
        assert numbers == [-(-max(lengths) // batch_rows)] * count


@many
@given(orders(), counts, batch_sizes, rules, histories)
def test_batches_are_full_padded_or_short_as_the_rule_says(order, count, batch_rows, last, history):
    for plan in plans(order, count, batch_rows=batch_rows, last=last, history=history):
        for number in range(plan.n_batches):
            rows, true_rows = plan.batch(number)
            assert (rows[:true_rows] >= 0).all()
            assert (rows[true_rows:] == -1).all()
            assert rows.size == (true_rows if last == "keep" else batch_rows)
            assert true_rows == batch_rows or last == "pad" or number == plan.n_batches - 1
            assert true_rows == batch_rows or last in ("keep", "pad")
            assert true_rows > 0 or last == "pad"


@many
@given(orders(), counts, batch_sizes, rules, histories, st.integers(0, 5))
def test_batches_in_a_row_are_those_asked_for_one_by_one(
    order, count, batch_rows, last, history, first
):
    for plan in plans(order, count, batch_rows=batch_rows, last=last, history=history):
        found, numbers = list(plan.batches(first)), range(first, plan.n_batches)
        for number, (rows, true_rows) in zip(numbers, found, strict=True):
            alone, true_alone = plan.batch(number)
            assert (rows.tolist(), true_rows) == (alone.tolist(), true_alone)
            assert rows.base is None, "a batch that is kept should not keep the rows of its window"


@pytest.mark.parametrize("mode", ["file", "window", "full"])
def test_batches_in_a_row_work_each_window_out_once(mode, monkeypatch):
    asked, rows = [], WindowOrder.rows

    def noted(self, *places):
        asked.append(places)
        return rows(self, *places)

    monkeypatch.setattr(WindowOrder, "rows", noted)
    plan = EpochPlan(Order(mode, UniformUnits(1000, 8), 400, seed=7), batch_rows=7)
    assert len(list(plan.batches())) == 143
    assert len(asked) == plan.n_windows <= 4


@many
@given(orders(), counts, batch_sizes)
def test_wrap_repeats_the_rows_that_follow(order, count, batch_rows):
    sequence = joined(
        batch for plan in plans(order, count, batch_rows=batch_rows) for batch in batches_of(plan)
    )
    for index, plan in enumerate(plans(order, count, batch_rows=batch_rows, last="wrap")):
        start, _ = shard_bounds(order.n_rows, index, count)
        places = start + np.arange(plan.n_batches * batch_rows)
        expected = sequence[places % max(1, sequence.size)] if sequence.size else sequence
        np.testing.assert_array_equal(joined(batches_of(plan)), expected)


def most_rows(order):
    """Return the rows of the largest window: one unit, if it is larger than windows are to be."""
    if order.mode == "full":
        return order.window_rows
    return max(order.window_rows, order.units.max_rows)


@many
@given(orders(), counts, batch_sizes, rules, histories, st.data())
def test_windows_deal_the_rows_of_the_batches(order, count, batch_rows, last, history, data):
    index = data.draw(st.integers(0, count - 1))
    plan = EpochPlan(order, (index, count), batch_rows, last, history)
    first = data.draw(st.integers(0, plan.n_batches))

    windows = list(plan.windows(first))

    dealt = joined(window.content.rows for window in windows)
    np.testing.assert_array_equal(dealt, joined(batches_of(plan, first)))
    place = min(first * batch_rows, plan.n_rows)
    for window in windows:
        assert window.start == place
        assert 0 < (window.stop - window.start) <= most_rows(order)
        place = window.stop
        check_content(window, shuffled=order.mode == "window")
    assert place == plan.n_rows
    assert first > 0 or plan.n_windows == len(windows)


def check_content(window, *, shuffled):
    runs, places, n_rows = window.content.runs, window.content.places, window.stop - window.start
    if runs is None:
        assert window.content.rows.size == n_rows
        return
    assert (runs[:, 0] < runs[:, 1]).all()
    assert (runs[1:, 0] > runs[:-1, 1]).all()  # ascending, apart: merged
    assert (runs[:, 1] - runs[:, 0]).sum() == n_rows
    assert (places is not None) == shuffled
    if places is not None:
        np.testing.assert_array_equal(np.sort(places), np.arange(n_rows))


@many
@given(orders(), histories, counts, batch_sizes, st.sampled_from(["keep", "pad"]))
def test_any_changes_of_the_count_leave_each_row_once(order, history, count, batch_rows, last):
    seen = []
    for level, (now, step) in enumerate(history):
        for plan in plans(order, now, batch_rows=batch_rows, last=last, history=history[:level]):
            seen += batches_of(plan)[:step]
    for plan in plans(order, count, batch_rows=batch_rows, last=last, history=history):
        seen += batches_of(plan)
    np.testing.assert_array_equal(np.sort(joined(seen)), np.arange(order.n_rows))


@settings(max_examples=30, deadline=None)
@given(orders(), counts)
def test_sticky_shards_keep_their_stretch_of_the_file(order, count):
    order = replace(order, sticky_shards=True)
    for index in range(count):
        expected = np.arange(*shard_bounds(order.n_rows, index, count))
        for epoch in (0, 1):
            plan = EpochPlan(replace(order, epoch=epoch), (index, count))
            np.testing.assert_array_equal(np.sort(joined(batches_of(plan))), expected)


@pytest.mark.parametrize("mode", ["window", "full"])
def test_neighbouring_seeds_and_epochs_share_nothing(mode):
    order = Order(mode, UniformUnits(10_000, 10), window_rows=1000, seed=7)
    found = {
        EpochPlan(replace(order, seed=seed, epoch=epoch), batch_rows=100).batch(0)[0].tobytes()
        for seed in range(6)
        for epoch in range(6)
    }
    assert len(found) == 36


def test_file_order_is_file_order():
    order = Order("file", UniformUnits(100, 8, 5), window_rows=20, seed=7)
    np.testing.assert_array_equal(
        joined(batches_of(EpochPlan(order, batch_rows=7))), np.arange(100)
    )
    inner = [window.start for window in EpochPlan(order).windows()][1:]
    assert inner  # windows begin where stored chunks do, so none is decoded twice
    assert all((5 + start) % 8 == 0 for start in inner)


def test_window_order_agrees_with_a_plain_rendering():
    """The rule of the window mode, written out with lists."""
    n_rows, unit_rows, window_rows, seed, epoch = 1000, 30, 100, 3, 5
    order = Order("window", UniformUnits(n_rows, unit_rows), window_rows, seed, epoch)
    stored = [list(range(at, min(at + unit_rows, n_rows))) for at in range(0, n_rows, unit_rows)]
    permuted = explicit_permutation(len(stored), key_of(seed, epoch, "units"))
    n_windows = -(-len(stored) // (window_rows // unit_rows))
    expected = []
    for number in range(n_windows):
        lo, hi = len(stored) * number // n_windows, len(stored) * (number + 1) // n_windows
        rows = sorted(row for unit in permuted[lo:hi] for row in stored[unit])
        places = explicit_permutation(len(rows), key_of(seed, epoch, "window", len(expected)))
        expected += [row for _, row in sorted(zip(places.tolist(), rows, strict=True))]
    assert joined(batches_of(EpochPlan(order, batch_rows=64))).tolist() == expected


def test_nothing_grows_with_the_rows():
    plan = EpochPlan(
        Order("window", UniformUnits(10**15 - 17, 64, 17), 20_000, seed=7), (5, 8), 256, "pad"
    )
    assert plan.n_batches == -(-((10**15 - 17 + 7) // 8) // 256)
    last, number = plan.batch(plan.n_batches - 1)
    assert 0 < number <= 256
    assert last[:number].max() < 10**15


@many
@given(
    st.integers(1, 200),
    st.integers(0, 40),
    st.integers(1, 40),
    st.integers(0, 30),
    st.booleans(),
)
def test_a_window_that_holds_every_row_is_one(n_rows, start, chunk_rows, more, listed):
    units = UniformUnits(n_rows, chunk_rows, start)
    if listed:
        units = ListedUnits(np.append(units.bounds(np.arange(units.count))[0], n_rows))
    order = Order("window", units, n_rows + more, seed=3)
    (window,) = EpochPlan(order).windows()
    assert sorted(window.content.rows) == list(range(n_rows))
