"""The table of routes between spaces, and finding one in it, once for each pair.

:mod:`labeled.spaces.routes` fills the table, so that no class of space has to know its
neighbours. Spaces are hashable values: a batch of a training loop finds its route in a
fraction of a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from labeled.spaces.checks import Batch, has_names, named_batches

Run = Callable[..., Batch]
"""(batch, source, target, branch) -> batch"""

Check = Callable[[Any, Any, str], None]
"""(source, target, branch); raises a `SpaceError` where there is no way between the two."""


class Route(NamedTuple):
    """How batches of one kind of space become batches of another, and for which spaces."""

    run: Run
    checks: tuple[Check, ...]


ROUTES: dict[tuple[type, type], Route] = {}
"""By the two kinds of space; an entry for a base class counts where there is no nearer one."""


@lru_cache(maxsize=4096)
def route_between(source: Any, target: Any, branch: str = "") -> Run:
    """Return what lays batches of one space out for another; checked once per pair.

    Raises
    ------
    SpaceError
        If there is no conversion; the message gives the reason.
    """
    kinds = product(type(source).__mro__, type(target).__mro__)
    route = next(ROUTES[pair] for pair in kinds if pair in ROUTES)
    for check in route.checks:
        check(source, target, branch)
    return route.run


def convert(batch: Batch, source: Any, target: Any, branch: str = "") -> Batch:
    """Lay out a batch that is known to be valid; for routes that call other routes."""
    run = route_between(source, target, branch)
    if not isinstance(batch, tuple) and has_names(batch):
        return named_batches().convert(batch, source, target, branch)
    return run(batch, source, target, branch)
