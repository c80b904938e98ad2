"""`fuel.schemes`, `fuel.streams`, `fuel.datasets` and sequences by aliases."""

from __future__ import annotations

import pickle
from itertools import islice

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import numpy as np
import pytest
from fuel.datasets import IndexableDataset, TextFile
from fuel.datasets.toy import Spiral, SwissRoll
from fuel.schemes import (
    ConcatenatedScheme,
    ConstantScheme,
    SequentialScheme,
    ShuffledExampleScheme,
    ShuffledScheme,
)
from fuel.streams import DataStream
from numpy.testing import assert_array_equal


def requests(scheme):
    return list(scheme.get_request_iterator())


# ---------------------------------------------------------------- schemes


@pytest.mark.parametrize("rows", [7, range(3, 20), [4, 8, 15, 16, 23, 42]], ids=str)
def test_shuffled_as_a_random_state_shuffles_a_list(rows):
    expected = list(range(rows)) if isinstance(rows, int) else list(rows)
    state = np.random.RandomState(3)
    scheme = ShuffledScheme(rows, 3, rng=np.random.RandomState(3))
    sorted_ = ShuffledScheme(rows, 3, rng=np.random.RandomState(3), sorted_indices=True)
    single = ShuffledExampleScheme(rows, rng=np.random.RandomState(3))
    for _ in range(3):  # one stream, epoch after epoch
        order = list(expected)
        state.shuffle(order)
        cut = [order[a : a + 3] for a in range(0, len(order), 3)]
        assert requests(scheme) == cut
        assert requests(sorted_) == [sorted(batch) for batch in cut]
        assert requests(single) == order


def test_shuffles_begin_with_seed_1():
    rows = list(range(10))
    np.random.RandomState(1).shuffle(rows)
    assert requests(ShuffledScheme(10, 10)) == [rows]
    assert requests(ShuffledExampleScheme(10)) == rows


def test_requests_can_be_pickled_halfway():
    for scheme in (
        SequentialScheme(9, 2),
        ShuffledScheme(9, 2),
        ShuffledExampleScheme(9),
        ConstantScheme(2, num_examples=9),
        ConcatenatedScheme([SequentialScheme(5, 2), SequentialScheme(3, 2)]),
    ):
        running = scheme.get_request_iterator()
        next(running)
        assert list(pickle.loads(pickle.dumps(running))) == list(running)


def test_an_epoch_that_is_left_draws_as_much_as_a_whole_one():
    for n in (0, 1, 4, 6):  # batches taken of the first epoch
        scheme = ConcatenatedScheme([SequentialScheme(5, 2), ShuffledScheme(9, 3)])
        first = scheme.get_request_iterator()
        assert len(list(islice(first, n))) == n
        rng = np.random.RandomState(1)
        _, second = rng.permutation(9), rng.permutation(9).tolist()
        assert requests(scheme)[3:] == [second[:3], second[3:6], second[6:]]


# ---------------------------------------------------------------- datasets


def test_points_are_those_of_a_random_state():
    rng = np.random.RandomState(1)
    place, arm = rng.uniform(0, 2, 50), rng.randint(0, 3, 50)
    features, position, label = Spiral(50, classes=3, cycles=2).get_data(None, slice(0, 50))
    assert (position.tolist(), label.tolist()) == (place.tolist(), arm.tolist())
    turn, radius = 2 * np.pi * (place + arm / 3), (2 * place + 1) / 3
    expected = np.array([radius * np.sin(turn), radius * np.cos(turn)]).T
    np.testing.assert_allclose(features, expected, atol=1e-6)
    rng = np.random.RandomState(7)
    along, across = rng.uniform(0, 1, 50), rng.uniform(-1, 1, 50)
    features, position = SwissRoll(50, seed=7).get_data(None, slice(0, 50))
    assert_array_equal(position, np.array([along, across], np.float32).T)
    turn, radius = 1.5 * np.pi * (1 + 2 * along), (1 + 2 * along) / 3
    expected = np.array([radius * np.cos(turn), radius * np.sin(turn), across]).T
    np.testing.assert_allclose(features, expected, atol=1e-6)


# ---------------------------------------------------------------- sequences
WORDS = {"<UNK>": 0, "</S>": 1, "<S>": 2, "this": 3, "is": 4, "a": 5, "test": 6}


def test_lines_and_arrays_go_on_after_pickling(tmp_path):
    (tmp_path / "one.txt").write_text("a b\nb\na\n")
    stream = DataStream(TextFile([str(tmp_path / "one.txt")], {"a": 0, "b": 1}, None, None, None))
    epoch = stream.get_epoch_iterator()
    assert next(epoch) == ([0, 1],)
    assert list(pickle.loads(pickle.dumps(stream.data_state))) == ["b\n", "a\n"]
    again = pickle.loads(pickle.dumps(IndexableDataset(np.arange(10))))
    assert_array_equal(again.get_data(request=[2])[0], again.data[[2]])
