"""Order version 1, pinned: an accidental change of any order must fail here.

A saved state promises the same batches for ever. If one of these values has to change, raise
``ORDER_VERSION`` and pin the new ones beside it.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from labeled import permute
from labeled.samplers.permutation import ORDER_VERSION, Permutation, explicit_permutation, key_of
from labeled.samplers.plan import EpochPlan, plan_hash
from labeled.samplers.units import UniformUnits, units_of_groups
from labeled.samplers.windows import Buckets, Order, Weights

LISTED = units_of_groups(np.repeat(np.arange(40), np.arange(40) % 7 + 1))
WEIGHTS = Weights(np.arange(LISTED.n_rows) % 5, LISTED)


def digest(plan):
    """Hash of all batches of a plan."""
    rows = [plan.batch(number)[0] for number in range(plan.n_batches)]
    content = np.concatenate(rows).astype("<i8").tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def test_version():
    assert ORDER_VERSION == 1


def test_keys():
    assert f"{key_of(7, 0, 'units'):032x}" == "4516c3eddcdf1a5e71da8ebefc6639db"


def test_tables():
    assert explicit_permutation(10, key_of(1)).tolist() == [2, 1, 9, 8, 7, 0, 5, 4, 6, 3]


def test_bijections():
    positions = np.array([0, 1, 2, 50_000_000, 99_999_999])
    assert Permutation(10**8, key_of(1))(positions).tolist() == [
        53440741,
        60684590,
        50789013,
        44509721,
        91064257,
    ]
    assert Permutation(2**16 + 1, key_of(1))(positions[:3]).tolist() == [22703, 31554, 35724]
    assert Permutation(10**17, key_of(1))(positions).tolist() == [
        37466343876625247,
        76510413960857400,
        74993084874006312,
        75533740415665304,
        55192661116435291,
    ]


@pytest.fixture(params=["0", "1"])
def fast(request, monkeypatch):
    """Run a test without and with compiled loops; those after it choose anew, if it fails, too."""
    if request.param == "1":
        pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    monkeypatch.setenv("LABELED_FAST", request.param)
    permute.forget()
    yield
    permute.forget()


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    ("n", "found"),
    [(2**16 + 1, "2db01c30c866c528"), (10**8, "194444e6096853f2"), (2**61 - 1, "3c6021d50640f5e1")],
)
def test_long_bijections_with_and_without_compiled_loops(n, found):
    positions = np.arange(40_000) * (n // 40_000)
    permutation = Permutation(n, key_of(1))
    values = permutation(positions)
    assert hashlib.blake2b(values.astype("<i8").tobytes(), digest_size=8).hexdigest() == found
    np.testing.assert_array_equal(permutation(values, inverse=True), positions)


def test_window_order():
    order = Order("window", UniformUnits(1000, 30, 5), 100, seed=7, epoch=2)
    assert EpochPlan(order, batch_rows=8).batch(3)[0].tolist() == [
        788,
        775,
        130,
        135,
        781,
        777,
        144,
        797,
    ]
    assert digest(EpochPlan(order, batch_rows=8)) == "c079360b252ee352"
    assert digest(EpochPlan(order, (1, 3), 8, "pad")) == "8d82920ed4f743ff"
    assert digest(EpochPlan(order, (1, 2), 8, "wrap", history=((3, 9),))) == "52def4d4a07ea901"


def test_window_order_of_listed_units():
    assert (
        digest(EpochPlan(Order("window", LISTED, 20, seed=7), batch_rows=8)) == "a54ed99dc7e0e435"
    )


def test_bucket_order():
    buckets = Buckets("x", np.arange(LISTED.n_rows) * 7 % 31, 8)
    order = Order("window", LISTED, 50, seed=7, buckets=buckets)
    assert digest(EpochPlan(order, batch_rows=8)) == "e52dddf57aab7f1b"


def test_sticky_order():
    order = Order("window", UniformUnits(1000, 30, 5), 100, seed=7, sticky_shards=True)
    assert digest(EpochPlan(order, (1, 3), 8)) == "11c104ef27c18951"


def test_full_order():
    small = Order("full", UniformUnits(1000, 30), 100, seed=7)
    assert digest(EpochPlan(small, batch_rows=8)) == "17630e3c60334117"
    large = Order("full", UniformUnits(10**8, 30), 100, seed=7)
    assert EpochPlan(large, batch_rows=4).batch(10**6)[0].tolist() == [
        55491710,
        53261785,
        13108685,
        82189655,
    ]


def test_draws():
    draws = Order("weights", LISTED, 20, seed=7, weights=WEIGHTS)
    assert digest(EpochPlan(draws, batch_rows=8, last="drop")) == "17b1588ad1754fbb"


def test_plan_hashes():
    order = Order("window", UniformUnits(1000, 30, 5), 100, seed=7, epoch=2)
    assert plan_hash(EpochPlan(order, batch_rows=8), "layout") == "5cadbe8a3f3d3055b13d0f834d76b493"
    draws = Order("weights", LISTED, 20, seed=7, weights=WEIGHTS)
    assert plan_hash(EpochPlan(draws, batch_rows=8), "layout") == "fa3f6a6d0724fef1ef3c0bac1284ea3e"
