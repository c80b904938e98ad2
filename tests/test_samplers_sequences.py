"""Sequences of consecutive rows: each once an epoch, none across groups, whoever reads them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeled.errors import LoaderError
from labeled.samplers import row_sequences

lengths = st.integers(1, 5)


def sequences(sampler, length):
    """All sequences of an epoch, one a line."""
    rows = [np.asarray(batch).reshape(-1, length) for batch in sampler]
    return np.concatenate(rows) if rows else np.empty((0, length), int)


@given(
    groups=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    length=lengths,
    step=lengths,
    batch=lengths,
    seed=st.none() | st.integers(0, 9),
)
def test_every_sequence_comes_once(groups, length, step, batch, seed):
    n = len(groups)
    begins = [0, *(i for i in range(1, n) if groups[i] != groups[i - 1]), n]
    wanted = [
        list(range(start, start + length))
        for begin, end in itertools.pairwise(begins)
        for start in range(begin, end - length + 1, step)
    ]
    if not wanted:
        with pytest.raises(LoaderError, match="no sequence of"):
            row_sequences(n, length, batch, step=step, groups=groups, seed=seed)
        return
    sampler = row_sequences(n, length, batch, step=step, groups=groups, seed=seed)
    found = sequences(sampler, length).tolist()
    assert (found if seed is None else sorted(found)) == wanted
    sizes = [len(rows) for rows in sampler]
    assert len(sizes) == len(sampler)
    assert sum(sizes) == len(wanted) * length
    assert max(sizes) == sampler.batch_rows
    whole = row_sequences(n, length, batch, step=step, groups=groups, seed=seed, last="drop")
    assert {len(rows) for rows in whole} <= {batch * length}
    assert len(whole) == len(wanted) // batch


def test_epochs_and_seeds_differ_and_repeat():
    one, other = row_sequences(200, 4, 8, seed=7), row_sequences(200, 4, 8, seed=8)
    again = sequences(row_sequences(200, 4, 8, seed=7), 4)
    np.testing.assert_array_equal(sequences(one, 4), again)
    for changed in (other, one.at_epoch(1)):
        assert sequences(changed, 4).tolist() != again.tolist()
    assert one.digest == one.at_epoch(1).digest != other.digest
    assert one.digest != row_sequences(200, 4, 8, seed=7, last="drop").digest
    assert repr(one) == "<25 batches of 8 sequences of 4 rows, 197 in all, seed=7, epoch=0>"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"length": 0}, "length=0 must be at least 1"),
        ({"step": 0}, "step=0 must be at least 1"),
        ({"batch_sequences": 2.5}, "batch_sequences=2.5 must be a whole number"),
        ({"length": 11}, "no sequence of 11 rows fits: .* has 10"),
        ({"groups": [1, 2]}, r"groups must be one value a row, \(10,\); found .* \(2,\)"),
        ({"last": "pad"}, "last='pad' must be 'keep' or 'drop'"),
        ({"seed": "x"}, "seed='x'"),
    ],
)
def test_what_is_impossible_is_said_at_once(options, words):
    with pytest.raises(LoaderError, match=words):
        row_sequences(10, **{"length": 3, "batch_sequences": 2, **options})
