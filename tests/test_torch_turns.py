"""Whose turn it is, without torch: compared with taking batches one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from labeled.torch import Turn, turn_after


def taken_in_turn(workers):
    """Yield (part, batch) as a DataLoader takes them: from each in turn that has some left."""
    left = dict(workers)
    while left:
        for worker in list(left):
            part, steps = left[worker]
            if steps:
                yield part, steps.pop(0)
            else:
                del left[worker]


@given(st.integers(0, 5), st.lists(st.booleans(), min_size=1, max_size=5), st.data())
def test_new_workers_go_on_where_the_old_ones_stopped(least, longer, data):
    lengths = [least + more for more in longer]
    count = len(lengths)
    whole = list(taken_in_turn({p: (p, list(range(n))) for p, n in enumerate(lengths)}))
    delivered = data.draw(st.integers(0, len(whole)))
    turn = turn_after(lengths, delivered)
    if turn is None:
        assert delivered == len(whole)
        return
    begun = {}
    for worker in range(count):
        part, step = turn.part(worker, count)
        begun[worker] = part, list(range(step, lengths[part]))
    assert list(taken_in_turn(begun)) == whole[delivered:]


def test_even_steps_are_told_as_such():
    assert turn_after([2, 3, 3], 6) == Turn(2, 0)  # the first part is at its end
    assert turn_after([0, 0], 0) is None
