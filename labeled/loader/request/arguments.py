"""What a caller of ``batches`` asked for, one option at a time: checked, or refused in words."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import _validation
from labeled._validation import whole
from labeled.errors import LoaderError
from labeled.samplers.parts import Last
from labeled.samplers.permutation import key_of
from labeled.samplers.requests import ListedBatches, Sampler
from labeled.samplers.schemes import ConstantSizes

MOST_PARTS = 1 << 20
"""More than there are consumers anywhere; the list of parts is held in memory."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What was said of the rows of batches and their order, as it was given."""

    batch_size: int | None
    shuffle: Any
    seed: int | None
    epoch: int
    last: Last
    part: tuple[int, int]
    sticky_parts: bool
    window_rows: int | None
    balance: str | None
    weights: npt.ArrayLike | str | None
    sampler: Sampler | Iterable[Any] | None


def listed_of(asked: Asked, *, draws: bool) -> Sampler | None:
    """Take a sampler as it is, or list what an iterable of requests yields.

    A seed has a meaning beside it only where transforms draw from one.
    """
    if asked.sampler is None:
        return None
    there = {
        "batch_size": asked.batch_size is not None,
        "shuffle": bool(asked.shuffle),
        "seed": asked.seed is not None and not draws,
        "last": asked.last != "keep",
        "sticky_parts": asked.sticky_parts,
        "window_rows": asked.window_rows is not None,
        "balance": asked.balance is not None,
        "weights": asked.weights is not None,
    }
    given = [name for name, one in there.items() if one]
    if given:
        raise LoaderError(
            f"a sampler lists whole batches, seed and all: leave {', '.join(given)} out"
        )
    if isinstance(asked.sampler, ConstantSizes):
        return asked.sampler.sampler
    if isinstance(asked.sampler, Sampler):
        return asked.sampler
    if isinstance(asked.sampler, str | bytes) or not np.iterable(asked.sampler):
        raise LoaderError(
            f"sampler={asked.sampler!r} lists no batches; give one of labeled.samplers, or slices "
            "and lists of rows"
        )
    return ListedBatches.of(asked.sampler)


def drawn_of(asked: Asked) -> bool:
    """Whether rows are drawn; refuse what has no meaning then."""
    if asked.balance is not None and asked.weights is not None:
        raise LoaderError("give balance= or weights=, not both")
    if asked.balance is None and asked.weights is None:
        return False
    there = {
        "shuffle": bool(asked.shuffle),
        "last": asked.last not in ("keep", "drop"),
        "sticky_parts": asked.sticky_parts,
    }
    given = [name for name, one in there.items() if one]
    if given:
        raise LoaderError(
            "rows drawn with replacement, by balance= or weights=, come in random order and in "
            f"whole batches: leave {', '.join(given)} out"
        )
    return True


def batch_rows_of(batch_size: Any) -> int:
    if batch_size is None:
        raise LoaderError("batch_size is missing; say how many rows a batch has")
    return integer("batch_size", batch_size, least=1)


def max_lost_of(max_lost: Any, skips: bool) -> int | float | None:
    """Check how many rows may be left out: a count, or a fraction below 1."""
    if max_lost is None:
        return None
    if not skips:
        raise LoaderError(f"max_lost={max_lost!r} means something with errors='skip' only")
    if isinstance(max_lost, float | np.floating) and 0 <= max_lost < 1:
        return float(max_lost)
    return integer("max_lost", max_lost, least=0)


def part_of(part: Any) -> tuple[int, int]:
    try:
        index, count = part
    except (TypeError, ValueError):
        raise LoaderError(f"part={part!r} must be a pair (index, count)") from None
    if not 0 <= integer("part index", index) < integer("part count", count):
        raise LoaderError(f"part={part!r}: the index must be in 0 .. count-1")
    if count > MOST_PARTS:
        raise LoaderError(f"part={part!r}: epochs are cut into {MOST_PARTS:,} parts at most")
    return int(index), int(count)


def seed_of(seed: Any, count: int, *, needed: bool) -> int:
    """Return the seed: one drawn where the order needs it and none is given, else 0."""
    if seed is not None:
        return integer("seed", seed)
    if needed and count > 1:
        raise LoaderError(
            f"seed is missing: each of the {count} parts would draw its own order, and rows would "
            "be lost and repeated; give the same seed= to every part"
        )
    return secrets.randbits(63) if needed else 0


def seed_beside(sampler: Sampler, given: int | None) -> int:
    """Return what random transforms draw from: what is given, the sampler's seed, or one drawn."""
    own = getattr(sampler, "seed", None) if given is None else given
    if isinstance(own, tuple):
        own = key_of(*own) >> 65
    return seed_of(own, 1, needed=True)


integer = partial(whole, error=LoaderError)
flag = partial(_validation.flag, error=LoaderError)


def integer_or_none(what: str, value: Any, least: int) -> int | None:
    return None if value is None else integer(what, value, least=least)
