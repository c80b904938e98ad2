"""What a caller of ``batches`` asked for, one option at a time: checked, or refused in words.

Casts and paddings are checked against the dtypes of sources; class labels and weights are read
from the source that a caller names.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import _validation
from labeled._validation import whole
from labeled.errors import ArrayError, LoaderError, did_you_mean
from labeled.permute.arguments import checked_factor, compute_dtype, result_dtype
from labeled.samplers.parts import Last
from labeled.samplers.permutation import key_of
from labeled.samplers.requests import ListedBatches, Sampler
from labeled.selection import Selection
from labeled.sources.loading import load_rows
from labeled.sources.source import AnySource
from labeled.spaces.arrays import why_not_cast

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
    shard: tuple[int, int]
    sticky_shards: bool
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
        "sticky_shards": asked.sticky_shards,
        "window_rows": asked.window_rows is not None,
        "balance": asked.balance is not None,
        "weights": asked.weights is not None,
    }
    given = [name for name, one in there.items() if one]
    if given:
        raise LoaderError(
            f"a sampler lists whole batches, seed and all: leave {', '.join(given)} out"
        )
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
        "sticky_shards": asked.sticky_shards,
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


def shard_of(shard: Any) -> tuple[int, int]:
    try:
        index, count = shard
    except (TypeError, ValueError):
        raise LoaderError(f"shard={shard!r} must be a pair (index, count)") from None
    if not 0 <= integer("shard index", index) < integer("shard count", count):
        raise LoaderError(f"shard={shard!r}: the index must be in 0 .. count-1")
    if count > MOST_PARTS:
        raise LoaderError(f"shard={shard!r}: epochs are cut into {MOST_PARTS:,} shards at most")
    return int(index), int(count)


def seed_of(seed: Any, count: int, *, needed: bool) -> int:
    """Return the seed: one drawn where the order needs it and none is given, else 0."""
    if seed is not None:
        return integer("seed", seed)
    if needed and count > 1:
        raise LoaderError(
            f"seed is missing: each of the {count} shards would draw its own order, and rows would "
            "be lost and repeated; give the same seed= to every shard"
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


BFLOAT16 = (
    "NumPy has none of that name; take float32, and cast where the model is: x.to(torch.bfloat16) "
    "or torch.autocast, x.astype(jax.numpy.bfloat16)"
)


def checked_dtype(value: Any, source: AnySource) -> np.dtype[Any] | None:
    """Return what was asked for as a dtype, None as None; torch's have names of NumPy's."""
    if value is None:
        return None
    wanted = getattr(value, "as_numpy_dtype", value)  # of TensorFlow's
    if type(value).__module__ == "torch":
        wanted = str(value).removeprefix("torch.")
    try:
        if isinstance(wanted, str) and wanted == "bfloat16":  # known once JAX is imported
            raise TypeError(BFLOAT16)
        found: np.dtype[Any] = np.dtype(wanted)
        if found.subdtype is not None or found.fields is not None:
            raise TypeError("it is of several values")
    except (TypeError, ValueError) as error:
        raise LoaderError(f"{source.where}: dtype={value!r} is not a dtype: {error}") from None
    return found


def check_change(source: AnySource, dtype: np.dtype[Any] | None, *, scaled: bool) -> None:
    """Raise :class:`LoaderError` where a cast would lose what a source holds."""
    if dtype is None:
        return
    reason = why_not_cast(source.dtype, dtype, scaled=scaled)
    if reason is not None:
        raise LoaderError(f"{source.where}: {reason}")


def check_factor(source: AnySource, dtype: np.dtype[Any] | None, option: str, value: Any) -> None:
    """Raise :class:`LoaderError` where a scale or shift is not made of finite numbers."""
    if value is None:
        return
    try:
        made = result_dtype(source.dtype, dtype, True)
        computed = compute_dtype(source.dtype, made)
        with np.errstate(over="ignore"):  # told below
            factor = checked_factor(option, value, computed)
        if factor is not None and not np.isfinite(factor).all():
            raise ArrayError(f"values are computed in {computed}, where it is not finite")
    except ArrayError as error:
        raise LoaderError(f"{source.where}: {option}={value!r} cannot be: {error}") from None


def can_hold(dtype: np.dtype[Any], value: Any) -> bool:
    """Whether an array of a dtype can be filled with a value; 0 stands for what is empty.

    Examples
    --------
    >>> [can_hold(np.dtype("u1"), value) for value in (255, 256, -1, float("nan"), {})]
    [True, False, False, False, False]
    >>> can_hold(np.dtype("f4"), float("nan")), can_hold(np.dtype("S3"), b"no")
    (True, True)
    >>> can_hold(np.dtype("f4"), 1e300), can_hold(np.dtype("f8"), 1e300)
    (False, True)
    """
    if np.ndim(value) or isinstance(value, dict | list | tuple):
        return False
    if dtype.kind == "O" or (isinstance(value, int) and value == 0):
        return True
    found = np.asarray(value)
    if dtype.kind in "biu":
        return found.dtype.kind in "biuf" and _is_whole(found, dtype)
    if dtype.kind in "fc":
        of_kind = found.dtype.kind in ("biuf" if dtype.kind == "f" else "biufc")
        return of_kind and _stays_finite(found, dtype)
    return found.dtype.kind == dtype.kind and np.can_cast(found.dtype, dtype, "safe")


def _stays_finite(found: Any, dtype: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(found.astype(dtype)) or not np.isfinite(found))


def _is_whole(found: Any, dtype: np.dtype[Any]) -> bool:
    if found.dtype.kind == "f" and not float(found).is_integer():
        return False
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(least <= int(found) <= most)


def read_classes(
    asked: str,
    name: Any,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
) -> npt.NDArray[Any]:
    """Read one class label, or one weight, a row.

    Parameters
    ----------
    asked : str
        The argument that names the source; errors begin with it.
    name : str

    Returns
    -------
    array, lengths ``(n_rows,)``
        Stored values, in the order of the rows that were selected.

    Raises
    ------
    LoaderError
        If there is no such source, or its rows are not one label each.
    """
    if not isinstance(name, str) or name not in sources:
        raise LoaderError(f"{asked}={name!r} is no source; {did_you_mean(str(name), sources)}")
    source, n_rows = sources[name], len(selections[name])
    if int(np.prod(source.row_shape)) != 1:
        raise LoaderError(
            f"{asked}={name!r}: its rows have shape {source.row_shape}; it takes one value a row"
        )
    return load_rows(source, selections[name]).reshape(n_rows)
