"""Rows scattered past the caches lie where NumPy would put them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.formats import memory
from labeled.loader.buffers import owned

pytest.importorskip("numba")
scattering = pytest.importorskip("labeled.permute.scattering")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.sampled_from([(8, "f8"), (16, "u4"), (3, 64, "u1"), (100, "u1"), (24, "f8"), (1, "u1")]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.booleans(),
)
def test_rows_go_where_numpy_puts_them(n_rows, row, seed, aside, some):
    random = np.random.default_rng(seed)
    *shape, dtype = row
    rows = random.integers(0, 100, (n_rows, *shape)).astype(dtype)
    places = random.permutation(2 * n_rows)[:n_rows]
    picked = random.integers(0, n_rows, n_rows) if some else None
    out = owned((2 * n_rows, *shape), np.dtype(dtype), 16 if aside else 0)
    out[...] = 7
    expected = out.copy()

    done = scattering.scatter(out, places, rows, picked)

    lines = rows[0].nbytes % 64 == 0 and not aside
    assert done == lines
    if done:
        expected[places] = rows if picked is None else rows[picked]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("place", [-1, 10, 2**40])
def test_no_row_goes_beside_the_array(place):
    out, rows = owned((10, 64), np.dtype("u1")), np.ones((2, 64), np.uint8)
    out[...] = 7
    assert not scattering.scatter(out, np.array([3, place]), rows)
    assert (out == 7).all()


@pytest.mark.parametrize("row", [-1, 2, 2**40])
def test_no_row_comes_from_beside_the_array(row):
    out, rows = owned((10, 64), np.dtype("u1")), np.ones((2, 64), np.uint8)
    out[...] = 7
    assert not scattering.scatter(out, np.array([3, 4]), rows, np.array([0, row]))
    assert not scattering.scatter(out, np.array([3, 4]), rows, np.array([0, 1, 0]))
    assert (out == 7).all()


def test_large_arrays_are_stored_to_past_the_caches(monkeypatch):
    used = []
    inner = scattering.scatter
    monkeypatch.setattr(scattering, "scatter", lambda *a: used.append(inner(*a)) or used[-1])
    large = owned((memory.STREAMED_BYTES // 3072 + 1, 3, 32, 32), np.dtype("u1"))
    small = owned((64, 3, 32, 32), np.dtype("u1"))
    for out, streamed in ((large, True), (small, False), (large[:, :1], False)):
        random = np.random.default_rng(0)
        rows = random.integers(0, 99, (50, *out.shape[1:]), dtype=np.uint8)
        places = random.permutation(len(out))[:50]
        used.clear()
        memory.put_rows(out, places, rows)
        np.testing.assert_array_equal(out[places], rows)
        picked = random.permutation(50)[:20]
        memory.put_rows(out, places[:20], rows, picked)
        np.testing.assert_array_equal(out[places[:20]], rows[picked])
        assert used == [True] * 2 * streamed
