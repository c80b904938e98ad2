"""The register of routes: how batches get from one space to another, planned once a pair.

Planners say, for two kinds of space, how to get from one to the other or why not;
:mod:`labeled.spaces.routes` writes them beside each other and puts them in here, so
that no class of space has to know its neighbours. Routes are remembered per pair of
spaces, which are hashable values, so that a batch of a training loop finds its route
in a fraction of a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from labeled.errors import SpaceError, UnsupportedSpaceError
from labeled.spaces.checks import Batch, has_names, named_batches, title


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no route, and the error to raise for it."""

    kind: type[SpaceError]
    reason: str


@dataclass(frozen=True, slots=True)
class Route:
    """How batches get from one space to another: ``run(batch, source, target, branch)``."""

    run: Callable[[Any, Any, Any, str], Any]


Planner = Callable[[Any, Any, str], Route | Refusal]
_PLANNERS: dict[tuple[type, type], Planner] = {}
P = TypeVar("P", bound=Planner)


def planner(source: type, target: type) -> Callable[[P], P]:
    """Register the decorated function as what plans routes between two kinds of space."""

    def register(function: P) -> P:
        _PLANNERS[source, target] = function
        return function

    return register


def plan_between(source: Any, target: Any, branch: str) -> Route | Refusal:
    """Return the route from one space to another, or why there is none."""
    for kind in type(source).__mro__:
        for other in type(target).__mro__:
            plan = _PLANNERS.get((kind, other))
            if plan is not None:
                return plan(source, target, branch)
    return _no_planner(source, target, branch)


def _no_planner(source: Any, target: Any, branch: str) -> Refusal:
    try:
        mismatch = size_mismatch(source, target, branch)
    except UnsupportedSpaceError:
        mismatch = None
    if mismatch is not None:
        return mismatch
    text = f"{title(source, branch)}no conversion leads to {target}"
    return Refusal(UnsupportedSpaceError, text)


def size_mismatch(source: Any, target: Any, branch: str) -> Refusal | None:
    """Return a refusal if the total dimensions of two spaces differ."""
    found, wanted = source.get_total_dimension(), target.get_total_dimension()
    if found == wanted:
        return None
    return Refusal(
        SpaceError,
        f"{title(source, branch)}rows hold {found} values, {target} expects {wanted}",
    )


@lru_cache(maxsize=4096)
def route_between(source: Any, target: Any, branch: str = "") -> Route:
    """Return the route from one space to another; planned once per pair.

    Raises
    ------
    SpaceError
        If there is none; the message says why.
    """
    plan = plan_between(source, target, branch)
    if isinstance(plan, Refusal):
        raise plan.kind(plan.reason)
    return plan


def convert(batch: Batch, source: Any, target: Any, branch: str = "") -> Batch:
    """Lay out a batch that is known to be valid; for routes that call other routes."""
    route = route_between(source, target, branch)
    if not isinstance(batch, tuple) and has_names(batch):
        return named_batches().convert(batch, source, target, branch)
    return route.run(batch, source, target, branch)


def refusal_of(source: Any, target: Any, branch: str) -> Refusal | None:
    """Return why there is no route, or None; for planners that look into components."""
    plan = plan_between(source, target, branch)
    return plan if isinstance(plan, Refusal) else None
