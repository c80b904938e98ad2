"""Memory that windows are read into: which buffer is free, and what is left in it."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from labeled.loader.buffers import BufferPool

NUMBERS = {"x": ((2,), np.dtype(np.float32))}


class Value:
    """What an array of objects may hold."""


@pytest.mark.parametrize("fills", [False, True])
def test_all_buffers_are_made_before_one_is_used_again_where_that_is_promised(fills):
    pool = BufferPool(NUMBERS, 4, 3, fills=fills)
    taken = []
    for _ in range(7):
        buffer = pool.take()
        buffer.taken = False  # let go of at once
        taken.append(buffer)
    assert len({id(buffer) for buffer in taken}) == len(pool.buffers) == (3 if fills else 1)


def test_a_buffer_is_nobody_elses_while_a_view_of_it_is_held():
    pool = BufferPool(NUMBERS, 4, 1)
    buffer = pool.take()
    view = buffer.arrays["x"][1:2]
    buffer.taken = False
    assert (pool.take(), pool.n_free) == (None, 0)
    more = pool.take(force=True)
    assert (more is not buffer, pool.extra, len(pool.buffers)) == (True, 1, 1)
    del view
    assert pool.n_free == 1
    assert pool.take() is buffer


def test_objects_of_the_window_before_are_let_go_of_before_the_next():
    pool = BufferPool({"x": ((), np.dtype(object))}, 2, 1)
    buffer = pool.take()
    buffer.arrays["x"][0] = value = Value()
    buffer.taken = False
    seen = weakref.ref(value)
    del value
    assert seen() is not None
    assert pool.take() is buffer
    assert seen() is None
