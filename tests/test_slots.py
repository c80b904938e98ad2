"""Memory that windows are read into: which slot is free, and what is left in it."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from labeled.loader.slots import SlotPool

NUMBERS = {"x": ((2,), np.dtype(np.float32))}


class Value:
    """What an array of objects may hold."""


@pytest.mark.parametrize("fills", [False, True])
def test_all_slots_are_made_before_one_is_used_again_where_that_is_promised(fills):
    pool = SlotPool(NUMBERS, 4, 3, fills=fills)
    taken = []
    for _ in range(7):
        slot = pool.take()
        slot.taken = False  # let go of at once
        taken.append(slot)
    assert len({id(slot) for slot in taken}) == len(pool.slots) == (3 if fills else 1)


def test_a_slot_is_nobody_elses_while_a_view_of_it_is_held():
    pool = SlotPool(NUMBERS, 4, 1)
    slot = pool.take()
    view = slot.arrays["x"][1:2]
    slot.taken = False
    assert (pool.take(), pool.n_free) == (None, 0)
    more = pool.take(force=True)
    assert (more is not slot, pool.extra, len(pool.slots)) == (True, 1, 1)
    del view
    assert pool.n_free == 1
    assert pool.take() is slot


def test_objects_of_the_window_before_are_let_go_of_before_the_next():
    pool = SlotPool({"x": ((), np.dtype(object))}, 2, 1)
    slot = pool.take()
    slot.arrays["x"][0] = value = Value()
    slot.taken = False
    seen = weakref.ref(value)
    del value
    assert seen() is not None
    assert pool.take() is slot
    assert seen() is None
