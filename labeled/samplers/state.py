"""A place in the epoch, saved as a few integers and found again.

A state says how many batches were handed out, in which epoch of which order, and among how
many shards; one more (count, step) pair for each time the number of shards changed within the
epoch. It holds no rows and no position of any buffer: what a reader had fetched ahead is
fetched again.

Restored with the same number of shards, the same batches follow, to the bit. With another
number, everything that no shard had handed out is shared out anew, each row once, and from
the next epoch on the run equals a fresh one. A state of a finished epoch starts
the next one. Seed and epoch come from the state; everything else must agree with the plan it
is given to, else `StateError` names both values.

Shards differ by one batch at most, so one may be at its end while another has a batch left. All
shards that restore a state stand in the same epoch: the shard that has nothing left yields no
batch for that loop, and begins the next epoch with the one after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from labeled._validation import check_arguments, check_fields
from labeled.errors import StateError
from labeled.samplers.permutation import ORDER_VERSION
from labeled.samplers.plan import EpochPlan, History, Last, share_of
from labeled.samplers.windows import shuffle_argument

STATE_VERSION = 4
MAX_SHARDS = 1 << 20  # keeps a damaged state from making us count to 10**12
AGREEING = ("order_version", "mode", "n_rows", "window_rows", "sticky_shards", "batch_rows", "last")


@dataclass(frozen=True)
class State:
    """Where a loader stands.

    Attributes
    ----------
    step : int
        Batches each shard handed out since the last change of the number of shards.
    n_batches : int
        Batches there are for the shard that wrote it since then; once merged, for the shard
        that has most.
    count : int
        Shards there are.
    history : tuple of (count, step)
        Earlier changes within this epoch.
    shard : int or None
        Which shard wrote it; None once merged.
    finished : bool
        Whether the loop of the shard that wrote it has ended; once merged, whether all have. A
        shard with fewer batches than others, or none, is at its end before the epoch is.
    plan_hash : str
        Over everything the order depends on but seed, epoch and shards.
    """

    order_version: int
    plan_hash: str
    mode: str
    n_rows: int
    window_rows: int
    sticky_shards: bool
    batch_rows: int
    last: Last
    seed: int
    epoch: int
    step: int
    n_batches: int
    count: int
    history: History = ()
    shard: int | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be: a place behind the end of an epoch, or impossible changes."""
        check_fields(self, StateError)
        shard = 0 if self.shard is None else self.shard
        places = (*self.history, (self.count, self.step))
        possible = (
            self.n_rows >= 0
            and self.batch_rows >= 1
            and self.epoch >= 0
            and all(0 < count <= MAX_SHARDS and step >= 0 for count, step in places)
            and 0 <= shard < self.count
            and self.step <= self.n_batches
            and (self.step == self.n_batches or not self.finished)
        )
        for number, (count, step) in enumerate(places if self.mode != "sampler" else ()):
            last, before = (count - 1, count), self.history[:number]  # no shard has more rows
            if possible:  # the number of shards changes before the last batch is handed out
                most, _ = share_of(self.last, self.n_rows, before, last, self.batch_rows)
                is_now = number == len(self.history)
                possible = (self.n_batches if is_now else step + 1) <= most
        if not possible:
            raise StateError(f"there is no such place in an epoch: {self}")

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain numbers, strings and lists, fit for JSON."""
        history = [list(pair) for pair in self.history]
        return {"state_version": STATE_VERSION, **asdict(self), "history": history}

    @classmethod
    def from_dict(cls, saved: Any) -> State:
        """Read what `to_dict` wrote.

        Raises
        ------
        StateError
            If it is not a state, is of another version, or an entry is missing, unknown or of
            another kind.
        """
        if not isinstance(saved, Mapping) or "state_version" not in saved:
            raise StateError(f"{saved!r} is not a state; pass what state_dict() returned")
        found = dict(saved)
        version = found.pop("state_version")
        if version != STATE_VERSION:
            raise StateError(f"a state of version {version!r}; this library reads {STATE_VERSION}")
        names = {field.name for field in fields(cls)}
        if set(found) != names:
            missing, unknown = sorted(names - found.keys()), sorted(found.keys() - names)
            raise StateError(f"not a whole state: missing {missing}, unknown {unknown}")
        state = cls(**found)  # checked as it is; JSON made lists of pairs
        return replace(state, history=tuple((count, step) for count, step in state.history))


def state_of(plan: EpochPlan, step: int, plan_hash: str, *, finished: bool = False) -> State:
    """Return the state of a loader that has handed out `step` batches of `plan`.

    `finished` says that the loop has ended, not only that no batch is left for it.
    """
    of_order = ("mode", "n_rows", "window_rows", "sticky_shards", "seed", "epoch")
    of_plan = ("batch_rows", "last", "n_batches", "history")
    known: dict[str, Any] = {name: getattr(plan.order, name) for name in of_order}
    known |= {name: getattr(plan, name) for name in of_plan}
    known |= {"order_version": ORDER_VERSION, "plan_hash": plan_hash, "step": step}
    index, count = plan.shard
    return State(**known, count=count, shard=index, finished=finished)


def restore(state: State, plan: EpochPlan, plan_hash: str) -> tuple[EpochPlan, int]:
    """Find the place again: the plan to go on with, and its first batch.

    With another number of shards, what none had handed out is shared out anew: rows, or the
    batches that a sampler lists.

    Parameters
    ----------
    state : State
        As saved, perhaps with another number of shards.
    plan : EpochPlan
        A plan of the loader that goes on, of any epoch: its shard, its order parameters.
    plan_hash : str
        That plan's hash.

    Raises
    ------
    StateError
        If the state was saved for another order, selection or layout.
    """
    own = state_of(plan, 0, plan_hash)
    for name in AGREEING:
        found, wanted = getattr(own, name), getattr(state, name)
        if found != wanted:
            option = "batch_size" if name == "batch_rows" else name
            here, saved = (
                shuffle_argument(one) if name == "mode" else f"{option}={one!r}"
                for one in (found, wanted)
            )
            raise StateError(
                f"the state was saved with {saved}, but this loader has {here}; make the loader "
                "with the saved value"
            )
    if state.plan_hash != plan_hash:
        raise StateError(
            f"the state belongs to plan {state.plan_hash}, this loader has plan {plan_hash}: the "
            "selection, the weights or the stored chunks differ from those it was saved with"
        )
    index, count = plan.shard
    there = plan.at_epoch(state.epoch, state.seed, state.history)
    longest = state.count - 1 if plan.order.sampler is None else 0
    most = replace(there, shard=(longest, state.count)).n_batches
    ended = state.finished and count == state.count and state.shard in (None, index)
    if ended or 0 < state.step == most:
        return plan.at_epoch(state.epoch + 1, state.seed), 0
    if count == state.count or state.step == 0:
        return there, state.step
    return replace(there, history=(*state.history, (state.count, state.step))), 0


@check_arguments(StateError)
def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the states of all shards into one state, which any number of shards continues from.

    All shards must stand at the same batch; with ``last="keep"`` or a sampler, a shard that has
    ended may be one batch behind.

    Parameters
    ----------
    states : sequence of mapping
        What ``loader.state_dict()`` returned for each shard.

    Returns
    -------
    dict
        For ``loader.load_state_dict`` of every shard.

    Raises
    ------
    StateError
        If the shards stand at different batches, come from different runs, or one is missing.

    Examples
    --------
    >>> import numpy as np, labeled
    >>> shards = [
    ...     labeled.batches({"x": np.arange(8)}, 2, shuffle=True, seed=7, shard=(k, 2))
    ...     for k in range(2)
    ... ]
    >>> _ = [next(iter(shard)) for shard in shards]
    >>> state = merge_states([shard.state_dict() for shard in shards])
    >>> alone = labeled.batches({"x": np.arange(8)}, 2, shuffle=True, seed=7)
    >>> alone.load_state_dict(state)
    >>> sum(batch.count for batch in alone)
    4
    """
    if not len(states):
        raise StateError("no states to merge: give the state of every shard")
    found = [State.from_dict(state) for state in states]
    furthest = max(found, key=lambda state: (state.step, state.n_batches))
    for state in found:
        for field in fields(State):
            mine, other = getattr(state, field.name), getattr(furthest, field.name)
            if mine != other and field.name not in ("shard", "step", "n_batches", "finished"):
                raise StateError(
                    f"the states to merge differ: {field.name} is {mine!r} in shard {state.shard} "
                    f"and {other!r} in another; they must come from one run"
                )
        ended = state.shard is not None and state.step == state.n_batches == furthest.step - 1
        if state.step != furthest.step and not ended:
            raise StateError(
                f"shard {state.shard} stands at batch {state.step}, shard {furthest.shard} at "
                f"batch {furthest.step}: save the states of all shards at the same batch"
            )
    shards = sorted(-1 if state.shard is None else state.shard for state in found)
    if shards not in ([-1], list(range(furthest.count))):
        raise StateError(f"states of shards {shards} of {furthest.count}: give each shard's once")
    finished = all(state.finished for state in found)
    return replace(furthest, shard=None, finished=finished).to_dict()
