"""The old random numbers, against the values that the old programs gave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from labeled.compat.mxnet.twister import Twister

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("seed", "order"),
    [
        (0, [0, 2, 3, 5, 9, 1, 6, 8, 4, 7]),
        (10, [3, 1, 4, 6, 9, 7, 5, 8, 2, 0]),
        (111, [3, 4, 9, 2, 1, 6, 7, 0, 5, 8]),
    ],
)
def test_orders_that_were_recorded(seed, order):
    assert_array_equal(Twister(seed).shuffled(10), order)


def test_floats_coins_and_whole_numbers_that_were_recorded():
    draws = Twister(111)
    floats = [draws.unit() for _ in range(4)]
    assert_allclose(floats, [0.61217016, 0.12075778, 0.16906975, 0.30178946], rtol=1e-7)
    draws.reseed(111)
    assert [draws.coin() for _ in range(8)] == [True, True, False, True, True, True, False, False]
    draws.reseed(111)
    found = [draws.whole(-20, 20) for _ in range(8)]
    assert found == [5, -16, -14, -8, -3, 15, 11, -8]


@given(seeds)
def test_words_are_those_of_the_classic_generator(seed):
    draws = Twister(seed)
    classic = np.random.MT19937()
    classic._legacy_seeding(seed)
    assert_array_equal([draws.word() for _ in range(70)], classic.random_raw(70))


@given(seeds, st.integers(-5, 5), st.integers(0, 40))
def test_draws_stay_within_their_bounds(seed, low, more):
    draws = Twister(seed)
    assert all(low <= draws.whole(low, low + more) <= low + more for _ in range(20))
    assert all(low <= draws.uniform(low, low + more) <= low + more for _ in range(20))
    assert_array_equal(np.sort(draws.shuffled(more)), range(more))


def test_a_draw_without_choice_takes_a_word_too():
    one, other = Twister(5), Twister(5)
    assert one.whole(3, 3) == 3
    other.word()
    assert one.word() == other.word()


def test_normal_numbers_are_normal():
    draws = Twister(3)
    found = np.array([draws.normals(3, 2.0) for _ in range(3000)])
    assert found.dtype == np.float32
    assert_allclose(found.mean(axis=0), 0, atol=0.12)
    assert_allclose(found.std(axis=0), 2, rtol=0.05)
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.06
