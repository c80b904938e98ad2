"""Staggered orders: many blocks open at a time, each read once, batches as the plan says."""

from __future__ import annotations

from itertools import pairwise

import h5py
import numpy as np
import pytest
from fake_device import FakeDevice
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.device import HostDevice
from labeled.errors import LabeledWarning, LoaderError, ReadError, StateError
from labeled.loader.order import units
from labeled.loader.sizing import fitting
from labeled.samplers.order import Order
from labeled.samplers.plan import EpochPlan
from labeled.samplers.staggered import StaggeredDeal, blocks_of
from labeled.samplers.units import units_of_groups, units_of_range
from make_files import ragged_file

N, CHUNK = 700, 10
VALUES = np.random.default_rng(0).integers(0, 99, (N, 24), dtype=np.uint8)
LISTED = np.random.default_rng(1).permutation(N)[:500]

few = settings(max_examples=12, deadline=None)
window_sizes = st.integers(1, 900)


def write(path, values, chunk_rows):
    with h5py.File(path, "w") as f:
        chunks = (chunk_rows, *values.shape[1:])
        f.create_dataset("x", data=values, chunks=chunks, compression="gzip")
        f.create_dataset("y", data=np.arange(len(values)), chunks=(7,), compression="gzip")
        f["z"] = np.arange(len(values))
        for name in ("x", "y", "z"):
            f[name].dims[0].label = "batch"
        f["x"].dims[1].label = "feature"
    return str(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("staggered") / "d.h5", VALUES, CHUNK)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_kept():
    """Read small files from storage in every epoch, chunk by chunk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "choose_kept", lambda *_: set())
        patch.setattr(units, "RUN_BYTES", 1)
        yield


def loader_of(path, batch=16, *, subset=None, **options):
    ds = labeled.open_dataset(path)
    ds = ds if subset is None else ds.subset(subset)
    given = {"shuffle": "staggered", "seed": 3, "memory": "8 MiB", **options}
    return ds.batches(batch, **given)


def assert_as_planned(batches, plan, first=0, rows_of=lambda rows: rows):
    """Compare with the plan, which is integers alone, and with the values written."""
    assert len(batches) == plan.n_batches - first
    for number, batch in enumerate(batches, first):
        rows, count = plan.batch(number)
        assert batch.count == count
        np.testing.assert_array_equal(batch.rows, rows)
        held = rows_of(rows[:count])
        np.testing.assert_array_equal(np.asarray(batch.arrays["x"])[:count], VALUES[held])
        np.testing.assert_array_equal(np.asarray(batch.arrays["y"])[:count], held)
        np.testing.assert_array_equal(np.asarray(batch.arrays["z"])[:count], held)


@few
@given(
    window_sizes,
    st.integers(1, 90),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([(0, 1), (1, 3)]),
    st.sampled_from(["keep", "pad", "drop", "wrap"]),
    st.booleans(),
)
def test_batches_are_those_of_the_plan(path, window_rows, batch, threads, part, last, sticky):
    loader = loader_of(
        path, batch, window_rows=window_rows, threads=threads, part=part, last=last,
        sticky_parts=sticky,
    )  # fmt: skip
    for _ in range(2):
        plan = loader._next
        assert_as_planned([copied(one) for one in loader], plan)


def copied(batch):
    """Batches may lie in memory that is used again once they are let go of."""
    batch.arrays.update({name: array.copy() for name, array in batch.arrays.items()})
    return batch


def test_batches_that_are_held_stay_what_they_are(path):
    loader = loader_of(path, window_rows=60)
    assert_as_planned(list(loader), loader.plan.epoch_plan)


@few
@given(window_sizes, st.integers(0, 30))
def test_index_lists_and_stretches_are_read_chunk_by_chunk(path, window_rows, start):
    for subset in (LISTED, slice(start, N - 13)):
        loader = loader_of(path, 16, subset=subset, window_rows=window_rows)
        group, plan = loader.plan.group, loader.plan.epoch_plan
        positions = np.arange(N)[subset]

        seen = []
        for data, rows, count in loader.with_rows():
            held = positions[rows]
            np.testing.assert_array_equal(data["x"].data, VALUES[held])
            np.testing.assert_array_equal(data["z"].data, held)
            seen.append(rows[:count])
        assert sorted(np.concatenate(seen)) == list(range(len(positions)))
        planned = [plan.batch(number)[0] for number in range(plan.n_batches)]
        told = planned if group is None else [group[rows] for rows in planned]
        np.testing.assert_array_equal(np.concatenate(seen), np.concatenate(told))


@few
@given(window_sizes, st.integers(1, 60), st.data())
def test_a_restored_place_gives_the_same_batches(path, window_rows, batch, data):
    loader = loader_of(path, batch, window_rows=window_rows)
    step = data.draw(st.integers(0, len(loader)))
    iterator = iter(loader)
    for _ in range(step):
        next(iterator)
    state = loader.state_dict()
    plan = loader.plan.epoch_plan

    other = loader_of(path, batch, window_rows=window_rows, threads=0, seed=99)
    other.load_state_dict(state)
    if step < plan.n_batches:
        assert_as_planned([copied(one) for one in other], plan, first=step)
    assert_as_planned([copied(one) for one in other], loader._next)


@few
@given(window_sizes, st.integers(1, 60), st.integers(0, 8))
def test_a_restored_place_reads_no_more_than_a_window_again(path, window_rows, batch, step):
    loader = loader_of(path, batch, window_rows=window_rows)
    plan, step = loader.plan.epoch_plan, min(step, len(loader))
    blocks = loader.plan.sizes.blocks

    read = sum(stop - start for start, stop, _ in loader.plan.jobs(plan, step))
    left = plan.n_rows - plan.span(step)[0] if step else plan.n_rows
    assert left <= read <= left + blocks.open * blocks.rows
    assert step or read == plan.n_rows


def test_a_state_does_not_fit_another_order(path):
    state = loader_of(path, window_rows=60).state_dict()
    with pytest.raises(StateError, match=r"mode='staggered'.*mode='window'"):
        loader_of(path, shuffle="window", window_rows=60).load_state_dict(state)


@few
@given(st.integers(1, 400), st.integers(1, 30), window_sizes, st.booleans(), st.integers(1, 3))
def test_few_blocks_are_open_and_each_row_is_in_one(n_rows, unit_rows, window_rows, listed, count):
    found = units_of_range(5, 5 + n_rows, unit_rows)
    if listed:
        found = units_of_groups(np.sort(np.arange(n_rows) ** 2 % (n_rows // unit_rows + 1)))
    order = Order("staggered", found, window_rows, seed=4)
    block_rows, n_open = blocks_of(window_rows, found.max_rows, n_rows)
    for index in range(count):
        deal = order.deal((index, count))
        assert isinstance(deal, StaggeredDeal)
        place, before, seen = 0, (0, 0), []
        while place < deal.n_rows:
            _, lo, hi = deal.window_at(place)
            first, last = deal.open_at(place)
            numbers, rows = deal.origins(lo, hi)
            assert lo == place < hi
            assert before[0] <= first
            assert before[1] <= last
            assert first <= numbers.min() <= numbers.max() < last
            assert last - first <= n_open
            for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
                begin, end, runs = deal.block(number)
                assert end - begin <= block_rows
                positions = np.concatenate([np.arange(*run) for run in runs])
                seen.append(int(positions[row]))
            np.testing.assert_array_equal(deal.content(lo, hi).rows, seen[lo:hi])
            place, before = hi, (first, last)
        assert len(set(seen)) == len(seen) == deal.n_rows


def test_places_are_found_while_another_thread_forgets_them():
    class Forgotten(dict):
        def __contains__(self, step):
            known = super().__contains__(step)
            self.clear()  # as if another thread had had its turn just now
            return known

    order = Order("staggered", units_of_range(0, 5_000, 10), window_rows=400, seed=3)
    deal, places = order.deal(), range(0, 5_000, 7)
    expected = [deal.window_at(place) for place in places]
    deal.__dict__["_known"] = Forgotten(deal._known)
    assert [deal.window_at(place) for place in reversed(places)] == expected[::-1]


def test_blocks_take_turns():
    """Away from the ends, each step deals the same share of every open block, and ends one."""
    deal = Order("staggered", units_of_range(0, 3000, 20), 240, seed=4).deal()
    dealt = np.zeros(deal.n_blocks, int)
    for step in range(deal.n_windows):
        lo, hi = deal._first_of(step), deal._first_of(step + 1)
        numbers = deal.origins(lo, hi)[0]
        shares = np.bincount(numbers, minlength=deal.n_blocks)
        dealt += shares
        if 0 < step < deal.n_windows - 1:
            assert (shares > 0).sum() == deal.most_open == 12
            assert set(shares[shares > 0]) <= {1, 2}
            assert (dealt == 20).sum() == step
    assert (dealt == 20).all()


def test_more_is_mixed_than_in_windows_of_the_same_memory(tmp_path):
    values = np.zeros((8000, 600), np.uint8)
    path = write(tmp_path / "large.h5", values, 100)
    made = {
        shuffle: labeled.open_dataset(path)
        .select("x")
        .batches(50, shuffle=shuffle, seed=3, memory="6 MiB")
        for shuffle in ("window", "staggered", True)
    }
    told = {shuffle: loader.explain() for shuffle, loader in made.items()}
    assert told["window"].quality + 0.02 < told["staggered"].quality
    assert told[True].mode == "staggered"
    assert told[True].window_rows == told["staggered"].window_rows
    assert "open at a time" in repr(told[True])
    assert told["staggered"].lanes[0].amplification == 1.0
    needed = told["staggered"].memory_for_quality
    better = (
        labeled.open_dataset(path)
        .select("x")
        .batches(50, shuffle="staggered", seed=3, memory=needed)
    )
    assert needed > 6 << 20
    assert better.explain().quality > 0.94


def test_windows_that_mix_well_are_left_alone(path):
    loader = loader_of(path, shuffle=True, memory="4 MiB")
    assert loader.plan.epoch_plan.order.mode == "window"
    chosen = loader_of(path, shuffle=True, window_rows=20)
    assert chosen.plan.epoch_plan.order.mode == "window"


@few
@given(st.integers(1, 64), st.sampled_from([None, 1, 2]), st.integers(2, 40))
def test_memory_is_that_which_was_promised(path, batch, threads, eighths):
    memory = eighths << 17
    try:
        loader = loader_of(path, batch, memory=memory, threads=threads)
    except LoaderError:
        return  # too little for two batches and three blocks
    sizes = loader.plan.sizes
    assert sizes.promised_bytes <= memory
    for batch in loader:
        assert len(batch.rows)
    held = loader._blocks.whole.values()
    taken = sum(array.nbytes for array in held)
    taken += sum(slot.nbytes for pool in loader.pools() for slot in pool.slots)
    assert not any(pool.extra for pool in loader.pools())
    assert taken <= sizes.promised_bytes - (sizes.threads + 1) * sizes.thread_bytes


def test_blocks_are_used_again(path):
    """As many slots as were planned hold all blocks, epoch after epoch."""
    loader = loader_of(path, window_rows=50)
    for _ in range(3):
        for _ in loader:
            pass
        assert loader.stats().n_windows == N // CHUNK
        assert len(loader._blocks.slots) == loader.plan.sizes.blocks.count
        assert loader._blocks.n_free == loader.plan.sizes.blocks.count


def test_a_pipeline_gets_the_same(path):
    loader = loader_of(path, window_rows=75, pipeline=lambda batch: batch)
    for _ in range(2):
        plan = loader._next
        assert_as_planned([copied(one) for one in loader], plan)


@pytest.mark.parametrize("device", [HostDevice, FakeDevice])
def test_a_device_gets_the_same(path, device):
    loader = loader_of(path, window_rows=75, device=device())
    plan = loader.plan.epoch_plan
    got = list(loader)
    for number, batch in enumerate(got):
        rows, count = plan.batch(number)
        np.testing.assert_array_equal(np.asarray(batch.arrays["x"])[:count], VALUES[rows])


def damage(path, numbers):
    with h5py.File(path) as f:
        places = [f["x"].id.get_chunk_info(number).byte_offset for number in numbers]
    with open(path, "r+b") as raw:
        for place in places:
            raw.seek(place + 6)
            raw.write(b"\xff" * 40)


def test_a_damaged_chunk_is_told_when_its_block_is_opened(tmp_path):
    path = write(tmp_path / "bad.h5", VALUES, CHUNK)
    plan, got = loader_of(path, window_rows=60).plan.epoch_plan, []
    deal = plan.deal_of(0)
    first = int(deal.block(deal.n_blocks - 1)[2][0, 0])
    damage(path, [first // CHUNK])
    loader = loader_of(path, window_rows=60)
    iterator = map(copied, loader)
    with pytest.raises(ReadError, match=f"'x'.*rows {first}"):
        got.extend(iterator)
    assert len(got) > plan.n_batches // 2
    for number, batch in enumerate(got):
        np.testing.assert_array_equal(batch.rows, plan.batch(number)[0])


def test_rows_that_cannot_be_read_are_left_out(tmp_path):
    path = write(tmp_path / "bad.h5", VALUES, CHUNK)
    damage(path, [7, 30])
    lost = np.r_[70:80, 300:310]
    loader = loader_of(path, window_rows=60, errors="skip", threads=0)
    for _ in range(6):
        plan = loader._next
        with pytest.warns(LabeledWarning, match="10 rows are left out"):
            got = [copied(batch) for batch in loader]
        for number, batch in enumerate(got):
            rows = plan.batch(number)[0]
            left = rows[~np.isin(rows, lost)]
            np.testing.assert_array_equal(batch.rows, left)
            np.testing.assert_array_equal(batch.arrays["x"], VALUES[left])
        assert loader.stats().n_lost == 20


def test_an_epoch_broken_off_gives_its_blocks_back(path):
    loader = loader_of(path, window_rows=60)
    for _ in range(5):
        next(iter(loader))
    plan = loader._next
    assert_as_planned([copied(one) for one in loader], plan)


def test_rows_of_different_sizes_are_refused(tmp_path):
    images = [np.zeros((1, size, size), np.uint8) for size in range(1, 9)]
    ragged = ragged_file(tmp_path / "r.hdf5", images, np.zeros((8, 1), np.uint8))
    with pytest.raises(LoaderError, match="rows of one size"):
        labeled.open_dataset(ragged).batches(4, shuffle="staggered", seed=1)


@pytest.mark.parametrize("window_rows", [200, 1500, 5000])
def test_a_seek_asks_for_few_blocks(window_rows):
    """The arithmetic of a place is that of its open blocks, wherever it is."""
    order = Order("staggered", units_of_range(0, 10**8, 100), window_rows, seed=4)
    plan = EpochPlan(order, batch_rows=64)
    whole = np.concatenate([plan.batch(number)[0] for number in range(10**6, 10**6 + 3)])
    fresh = EpochPlan(order, batch_rows=64)
    windows = fresh.windows(10**6)
    got = np.concatenate([next(windows).rows for _ in range(4)])[: whole.size]
    np.testing.assert_array_equal(got, whole[: got.size])
    deal = plan.deal_of(0)
    asked = [deal.open_at(64 * 10**6 + 64 * i) for i in range(3)]
    assert all(a <= c and b <= d for (a, b), (c, d) in pairwise(asked))
