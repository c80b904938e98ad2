"""Resuming at any batch, also with another number of parts, through the public API alone."""

from __future__ import annotations

import json
from itertools import chain

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled

pytestmark = pytest.mark.filterwarnings("ignore:every epoch is empty")

RULES = ("keep", "pad", "drop", "wrap")
ORDERS = (False, "window", "full")


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """500 rows, each holding its own number."""
    path = tmp_path_factory.mktemp("resume") / "rows.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("number", data=np.arange(500), chunks=(7,))
        file["number"].dims[0].label = "batch"
    return labeled.open_dataset(path)


def loaders(dataset, count, **options):
    return [dataset.batches(shard=(index, count), **options) for index in range(count)]


def loop(loader, stop=None):
    """Run one ``for`` loop, at most `stop` batches of it, and return the rows of each batch."""
    found = []
    if stop == 0:
        return found
    for data, rows, count in loader.with_rows():
        np.testing.assert_array_equal(np.asarray(data["number"])[:count], rows[:count])
        found.append(rows[:count].tolist())
        if len(found) == stop:  # before the loader can know that this loop ends
            break
    return found


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


def rows_of(batches):
    return sorted(row for batch in batches for row in batch)


@pytest.mark.parametrize("step", [30, 31])
def test_a_part_with_nothing_left_yields_nothing_before_the_next_epoch(numbered, step):
    options = {"batch_size": 16, "shuffle": "window", "seed": 7}
    alone = numbered.batches(**options)
    before = loop(alone, step)
    resumed = loaders(numbered, 5, **options)
    for loader in resumed:
        loader.load_state_dict(saved(alone))
    rest = [loop(loader) for loader in resumed]
    assert rows_of(before + list(chain.from_iterable(rest))) == list(range(500))
    assert rest[0] == [] or step == 30
    for loader, fresh in zip(resumed, loaders(numbered, 5, epoch=1, **options), strict=True):
        assert loader.epoch == 1
        assert loop(loader) == loop(fresh)


@settings(max_examples=80)
@given(st.data())
def test_every_row_is_handed_out_once_whatever_number_of_parts_goes_on(numbered, data):
    """Save merged at any step up to the last, restore with any count of parts."""
    n_rows = data.draw(st.integers(0, 60))
    old, new = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    last = data.draw(st.sampled_from(RULES))
    options = {
        "batch_size": data.draw(st.integers(1, 16)),
        "shuffle": data.draw(st.sampled_from(ORDERS)),
        "seed": 3,
        "last": last,
        "threads": 0,
    }
    rows = numbered.subset(slice(0, n_rows))
    first = loaders(rows, old, **options)
    most = max(map(len, first))
    step = data.draw(st.integers(0, most))
    before = [batch for loader in first for batch in loop(loader, step)]
    merged = labeled.merge_states([saved(loader) for loader in first])

    after = loaders(rows, new, **options)
    for loader in after:
        loader.load_state_dict(merged)
    fresh = [loop(loader) for loader in loaders(rows, new, epoch=1, **options)]
    if step < most or step == 0:  # else the state ends the epoch
        rest = [loop(loader) for loader in after]
        delivered = rows_of(before + list(chain.from_iterable(rest)))
        if last in ("keep", "pad"):
            assert delivered == list(range(n_rows))
        elif last == "drop":
            assert len(set(delivered)) == len(delivered)
        else:
            assert set(delivered) == set(range(n_rows))
        if new == old:
            whole = [loop(loader) for loader in loaders(rows, old, **options)]
            assert rest == [batches[step:] for batches in whole]
    assert [loop(loader) for loader in after] == fresh
    assert {loader.epoch for loader in after} == {2}
