"""Units: where stored chunks begin and end, compared with counting row by row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.samplers.units import (
    ListedUnits,
    UniformUnits,
    units_of_boundaries,
    units_of_groups,
    units_of_range,
    units_of_ranges,
)

small = settings(max_examples=100, deadline=None)


def offsets_of(units):
    """The offsets of any units, from their starts and sizes; they must touch."""
    ids = np.arange(units.count)
    starts, stops = units.bounds(ids)
    assert (stops > starts).all()
    assert units.max_rows >= (stops - starts).max(initial=0)
    np.testing.assert_array_equal(starts[1:], stops[:-1])
    assert units.n_rows == (stops - starts).sum()
    return [*starts.tolist(), int(stops[-1])] if units.count else [units.start]


def borders_by_counting(chunk_of_row):
    """Offsets found by looking at each row."""
    ids = list(chunk_of_row)
    inside = [i for i in range(1, len(ids)) if ids[i] != ids[i - 1]]
    return [0, *inside, len(ids)] if ids else [0]


@small
@given(st.integers(0, 50), st.integers(0, 120), st.integers(1, 30), st.integers(1, 40))
def test_units_of_a_range_are_whole_chunks(start, n_rows, chunk_rows, min_unit_rows):
    units = units_of_range(start, start + n_rows, chunk_rows, min_unit_rows)
    assert units.unit_rows % chunk_rows == 0
    assert min_unit_rows <= units.unit_rows < min_unit_rows + chunk_rows
    expected = borders_by_counting(row // units.unit_rows for row in range(start, start + n_rows))
    assert offsets_of(units) == expected


ranges = st.builds(
    lambda start, n, step: (
        range(start, start + n * step, step) if start + n * step >= 0 else range(0)
    ),
    st.integers(0, 60),
    st.integers(0, 30),
    st.integers(1, 7),
)


@small
@given(st.lists(ranges, max_size=4), st.integers(1, 20))
def test_units_of_ranges_agree_with_counting(rows, chunk_rows):
    chunk_of_row = [row // chunk_rows for these in rows for row in these]
    units = units_of_ranges(rows, chunk_rows)
    assert offsets_of(units) == borders_by_counting(chunk_of_row)


@small
@given(st.lists(st.integers(0, 20), max_size=80), st.integers(1, 12))
def test_units_of_groups_join_small_ones(chunk_ids, min_unit_rows):
    ids = sorted(chunk_ids)
    groups = borders_by_counting(ids)
    assert offsets_of(units_of_groups(ids)) == groups

    joined = offsets_of(units_of_groups(ids, min_unit_rows))

    assert set(joined) <= set(groups)
    assert (np.diff(joined)[:-1] >= min_unit_rows).all()
    assert joined[0] == 0
    assert joined[-1] == len(ids)


@small
@given(st.sets(st.integers(0, 90)), st.integers(0, 40), st.integers(0, 60))
def test_units_of_boundaries_agree_with_counting(boundaries, start, n_rows):
    chunk_of_row = [sum(b <= row for b in boundaries) for row in range(start, start + n_rows)]
    units = units_of_boundaries(start, start + n_rows, sorted(boundaries))
    assert offsets_of(units) == borders_by_counting(chunk_of_row)


@small
@given(st.integers(1, 80), st.integers(1, 20), st.integers(1, 20), st.data())
def test_clipping_keeps_positions(n_rows, unit_rows, first_rows, data):
    lo = data.draw(st.integers(0, n_rows))
    hi = data.draw(st.integers(lo, n_rows))
    whole = UniformUnits(n_rows, unit_rows, min(first_rows, unit_rows))
    listed = ListedUnits(np.array(offsets_of(whole)))
    inside = [offset for offset in offsets_of(whole) if lo < offset < hi]
    expected = [lo, *inside, hi] if hi > lo else [lo]
    assert offsets_of(whole.clip(lo, hi)) == expected
    assert offsets_of(listed.clip(lo, hi)) == expected
