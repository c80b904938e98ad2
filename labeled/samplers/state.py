"""A place in the epoch, saved as a few integers and found again.

A state says how many batches were handed out, in which epoch of which order, and among how
many parts; one more (count, step) pair for each time the number of parts changed within the
epoch. It holds no rows and no position of any buffer: what a reader had fetched ahead is
fetched again.

Restored with the same number of parts, the same batches follow, to the bit. With another
number, everything that no part had handed out is shared out anew, each row once, and from
the next epoch on nothing tells the run from a fresh one. A state of a finished epoch starts
the next one. Seed and epoch come from the state; everything else must agree with the plan it
is given to, else `StateError` names both values.

Parts differ by one batch at most, so one may be at its end while another has a batch left. All
parts that restore a state stand in the same epoch: the part that has nothing left yields no
batch for that loop, and begins the next epoch with the one after.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol

from labeled._validation import check_arguments
from labeled.errors import StateError
from labeled.samplers.parts import History, Last, batches_in, shares_of
from labeled.samplers.permutation import ORDER_VERSION
from labeled.samplers.plan import EpochPlan

STATE_VERSION = 3
WHOLE_NUMBERS = (
    "n_rows",
    "window_rows",
    "batch_rows",
    "seed",
    "epoch",
    "step",
    "n_batches",
    "count",
    "part",
)
MOST_PARTS = 1 << 20  # a damaged state shall not make us count to 10**12
AGREEING = ("order_version", "mode", "n_rows", "window_rows", "sticky_shards", "batch_rows", "last")


@dataclass(frozen=True)
class State:
    """Where a loader stands.

    Attributes
    ----------
    step : int
        Batches each part handed out since the last change of the number of parts.
    n_batches : int
        Batches there are for the part that wrote it since then; once merged, for the part
        that has most.
    count : int
        Parts there are.
    history : tuple of (count, step)
        Earlier changes within this epoch.
    part : int or None
        Which part wrote it; None once merged.
    finished : bool
        Whether the loop of the part that wrote it has ended; once merged, whether all have. A
        part with fewer batches than others, or none, is at its end before the epoch is.
    plan_hash : str
        Over everything the order depends on but seed, epoch and parts.
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
    part: int | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        pairs = (*self.history, (self.count, self.step))
        if not all(0 < count <= MOST_PARTS and step >= 0 for count, step in pairs):
            raise StateError(f"(parts, step) {pairs} in the state: no such place in an epoch")
        if self.n_rows < 0 or self.batch_rows < 1:
            raise StateError(f"{self.n_rows} rows in batches of {self.batch_rows} in the state")
        if self.epoch < 0:
            raise StateError(f"epoch {self.epoch} in the state: epochs are counted from 0")
        if self.part is not None and not 0 <= self.part < self.count:
            raise StateError(f"part {self.part} of {self.count} in the state: there is none")
        self._check_place()

    def _check_place(self) -> None:
        """Refuse a place behind the end of the epoch, or changes that cannot have been."""
        if self.step > self.n_batches:
            raise StateError(f"batch {self.step} of {self.n_batches} in the state: there is none")
        if self.finished and self.step < self.n_batches:
            raise StateError(f"finished at batch {self.step} of {self.n_batches} in the state")
        if self.mode == "sampler":  # how many batches it lists is its own affair
            return
        for at, (count, step) in enumerate(self.history):
            shares = shares_of(self.n_rows, self.history[:at], count, self.batch_rows)
            most = batches_in(self.last, shares, count - 1, self.batch_rows)
            if step >= most:
                raise StateError(
                    f"history {self.history} in the state: {count} parts had {most} batches, and "
                    f"change their number before batch {step}"
                )
        if self.n_batches > self.most_batches:
            raise StateError(
                f"{self.n_batches} batches in the state, where {self.count} parts of "
                f"{self.n_rows} rows have {self.most_batches}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain numbers, strings and lists, fit for JSON."""
        return {"state_version": STATE_VERSION, **asdict(self), "history": _lists(self.history)}

    @classmethod
    def from_dict(cls, saved: Any) -> State:
        """Read what `to_dict` wrote.

        Raises
        ------
        StateError
            If it is no state or of another version, or an entry is missing, unknown or of
            another kind.
        """
        if not isinstance(saved, Mapping) or "state_version" not in saved:
            raise StateError(f"{saved!r} is no state; give what state_dict() returned")
        found = dict(saved)
        version = found.pop("state_version")
        if version != STATE_VERSION:
            raise StateError(f"a state of version {version!r}; this library reads {STATE_VERSION}")
        names = {field.name for field in fields(cls)}
        if set(found) != names:
            missing, unknown = sorted(names - set(found)), sorted(set(found) - names)
            raise StateError(f"not a whole state: missing {missing}, unknown {unknown}")
        for name in WHOLE_NUMBERS:
            if name == "part" and found[name] is None:
                continue
            if type(found[name]) is not int:
                raise StateError(f"state entry {name!r} is {found[name]!r}, not a whole number")
        if type(found["finished"]) is not bool:
            raise StateError(f"state entry 'finished' is {found['finished']!r}, not true or false")
        try:
            found["history"] = tuple((int(count), int(step)) for count, step in found["history"])
        except (TypeError, ValueError) as error:
            raise StateError(f"state entry 'history' is {found['history']!r}") from error
        return cls(**found)

    def batches(self, part: int) -> int:
        """Return how many batches a part of this state has in all since the last change."""
        shares = shares_of(self.n_rows, self.history, self.count, self.batch_rows)
        return batches_in(self.last, shares, part, self.batch_rows)

    @property
    def most_batches(self) -> int:
        """Batches of the part that has most."""
        return self.batches(self.count - 1)  # no stretch is longer than the last

    def ends_epoch(self, part: tuple[int, int], most_batches: int) -> bool:
        """Return whether part (index, count), restored from this, begins with the next epoch.

        It does where every part has handed out its last batch, or where its own loop has ended.
        """
        if 0 < self.step == most_batches:
            return True
        own = self.part in (None, part[0]) and self.count == part[1]
        return own and self.finished


class Resumable(Protocol):
    """What a state tells of a plan."""

    @property
    def order(self) -> Any: ...
    @property
    def n_batches(self) -> int: ...
    @property
    def part(self) -> tuple[int, int]: ...
    @property
    def batch_rows(self) -> int: ...
    @property
    def last(self) -> Last: ...
    @property
    def history(self) -> History: ...


def plan_hash(plan: Resumable, layout_hash: str) -> str:
    """Hash what the batches of a plan depend on, besides seed, epoch and parts.

    Parameters
    ----------
    layout_hash : str
        The caller's hash over the selection and the stored chunks of its sources.
    """
    entries = [ORDER_VERSION, plan.order.digest, plan.batch_rows, plan.last, layout_hash]
    return hashlib.blake2b(json.dumps(entries).encode(), digest_size=16).hexdigest()


def state_of(plan: Resumable, step: int, plan_hash: str, *, finished: bool = False) -> State:
    """Return the state of a loader that has handed out `step` batches of `plan`.

    `finished` says that the loop has ended, not only that no batch is left for it.
    """
    order = plan.order
    return State(
        order_version=ORDER_VERSION,
        plan_hash=plan_hash,
        mode=order.mode,
        n_rows=order.n_rows,
        window_rows=order.window_rows,
        sticky_shards=order.sticky_shards,
        batch_rows=plan.batch_rows,
        last=plan.last,
        seed=order.seed,
        epoch=order.epoch,
        step=step,
        n_batches=plan.n_batches,
        count=plan.part[1],
        history=plan.history,
        part=plan.part[0],
        finished=finished,
    )


def restore(state: State, plan: EpochPlan, plan_hash: str) -> tuple[EpochPlan, int]:
    """Find the place again: the plan to go on with, and its first batch.

    Parameters
    ----------
    state : State
        As saved, perhaps with another number of parts.
    plan : EpochPlan
        A plan of the loader that goes on, of any epoch: its part, its order parameters.
    plan_hash : str
        That plan's hash.

    Raises
    ------
    StateError
        If the state was written for another order, selection or layout.
    """
    check_state(state, plan, plan_hash)
    if state.ends_epoch(plan.part, state.most_batches):
        return replace(plan, order=plan.order.at_epoch(state.epoch + 1, state.seed), history=()), 0
    history, first = place_in_epoch(state, plan.part[1])
    order = plan.order.at_epoch(state.epoch, state.seed)
    return replace(plan, order=order, history=history), first


def place_in_epoch(state: State, count: int) -> tuple[History, int]:
    """Return the changes of the number of parts, and the first batch, for `count` parts."""
    if count == state.count or state.step == 0:
        return state.history, state.step
    return (*state.history, (state.count, state.step)), 0


@check_arguments(StateError)
def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the states of all parts into the one that each of them can be restored from.

    Under ``last="keep"``, and with a sampler, a part that is at its end may be one batch behind.

    Raises
    ------
    StateError
        If the parts stand at different steps, differ in anything else, or one is missing.
    """
    if not len(states):
        raise StateError("no states to merge: give the state of every part")
    found = [State.from_dict(state) for state in states]
    furthest = max(found, key=lambda state: (state.step, state.n_batches))
    for state in found:
        own = replace(
            furthest,
            part=state.part,
            step=state.step,
            n_batches=state.n_batches,
            finished=state.finished,
        )
        _same(state, own)
        ended = state.part is not None and state.step == state.n_batches == furthest.step - 1
        if state.step != furthest.step and not ended:
            raise StateError(
                f"part {state.part} stands at batch {state.step}, part {furthest.part} at batch "
                f"{furthest.step}: save the states of all parts at the same batch"
            )
    parts = sorted(-1 if state.part is None else state.part for state in found)
    if parts not in ([-1], list(range(furthest.count))):
        raise StateError(
            f"states of the parts {parts} of {furthest.count}: give each part's state once"
        )
    finished = all(state.finished for state in found)
    return replace(furthest, part=None, finished=finished).to_dict()


def check_state(state: State, plan: Resumable, plan_hash: str) -> None:
    """Raise :class:`StateError` where a state was saved for another plan."""
    own = state_of(plan, 0, plan_hash)
    for name in AGREEING:
        if getattr(state, name) != getattr(own, name):
            raise StateError(
                f"the state was saved with {name}={getattr(state, name)!r}, this loader has "
                f"{name}={getattr(own, name)!r}: make the loader with the saved value"
            )
    if state.plan_hash != plan_hash:
        raise StateError(
            f"the state belongs to plan {state.plan_hash}, this loader has plan {plan_hash}: the "
            "selection, the weights or the stored chunks differ from those it was saved with"
        )


def _same(state: State, expected: State) -> None:
    for field in fields(State):
        found, other = getattr(state, field.name), getattr(expected, field.name)
        if found != other:
            raise StateError(
                f"the states to merge differ: {field.name} is {found!r} in part {state.part} and "
                f"{other!r} in another; they must come from one run"
            )


def _lists(history: History) -> list[list[int]]:
    return [list(pair) for pair in history]
