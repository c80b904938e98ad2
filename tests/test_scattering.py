"""Rows scattered past the caches lie where NumPy would put them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.formats import reading
from labeled.loader.reading.slots import owned

pytest.importorskip("numba")
scattering = pytest.importorskip("labeled.permute.scattering")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.sampled_from([(8, "f8"), (16, "u4"), (3, 64, "u1"), (100, "u1"), (24, "f8"), (1, "u1")]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_rows_go_where_numpy_puts_them(n_rows, row, seed, aside):
    random = np.random.default_rng(seed)
    *shape, dtype = row
    rows = random.integers(0, 100, (n_rows, *shape)).astype(dtype)
    places = random.permutation(2 * n_rows)[:n_rows]
    out = owned((2 * n_rows, *shape), np.dtype(dtype), 16 if aside else 0)
    out[...] = 7
    wanted = out.copy()

    done = scattering.scatter(out, places, rows)

    lines = rows[0].nbytes % 64 == 0 and not aside
    assert done == lines
    if done:
        wanted[places] = rows
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("place", [-1, 10, 2**40])
def test_no_row_goes_beside_the_array(place):
    out, rows = owned((10, 64), np.dtype("u1")), np.ones((2, 64), np.uint8)
    out[...] = 7
    assert not scattering.scatter(out, np.array([3, place]), rows)
    assert (out == 7).all()


def test_large_arrays_are_stored_to_past_the_caches(monkeypatch):
    used = []
    inner = scattering.scatter
    monkeypatch.setattr(scattering, "scatter", lambda *a: used.append(inner(*a)) or used[-1])
    large = owned((reading.STREAMED_BYTES // 3072 + 1, 3, 32, 32), np.dtype("u1"))
    small = owned((64, 3, 32, 32), np.dtype("u1"))
    for out, streamed in ((large, True), (small, False), (large[:, :1], False)):
        random = np.random.default_rng(0)
        rows = random.integers(0, 99, (50, *out.shape[1:]), dtype=np.uint8)
        places = random.permutation(len(out))[:50]
        used.clear()
        reading.put_rows(out, places, rows)
        np.testing.assert_array_equal(out[places], rows)
        assert used == [True] * streamed
