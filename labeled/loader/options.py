"""The options of ``batches`` as one value, checked where it is made.

What each option means is in the docstring of :meth:`labeled.Dataset.batches`. Types, ranges and
combinations are checked here; whether an option fits the sources is for the module that uses it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from dask.utils import parse_bytes

from labeled._validation import check_fields, whole
from labeled.device import Device, Library, Resident
from labeled.device.handoff import module
from labeled.errors import LoaderError
from labeled.samplers.listed import ListedBatches, Sampler
from labeled.samplers.permutation import key_of
from labeled.samplers.plan import Last
from labeled.transforms.running import CompiledPipeline, line_of

Shuffle = bool | Literal["full", "window"]
RaggedLayout = Literal["list", "pad", "flat"]
Shard = tuple[int, int] | Literal["torch"]
Axes = Mapping[str, str | Sequence[str]]
"""By source, the names of its axes in a batch: ``"channel height width batch"``, or a tuple."""

DEFAULT_MEMORY = "256 MiB"
"""Taken where the caller gives none; twice, four times as much where batches need it."""

MAX_SHARDS = 1 << 20
"""More than there are consumers anywhere; the list of shards is held in memory."""

integer = partial(whole, error=LoaderError)

_LEAST = {"batch_size": 1, "epoch": 0, "window_rows": 1, "threads": 0, "prefetch": 0}


@dataclass(frozen=True, eq=False)
class BatchOptions:
    """What a caller asked of ``batches``; None where it is chosen for the caller."""

    batch_size: int | None = None
    shuffle: Shuffle = False
    seed: int | None = None
    epoch: int = 0
    last: Last = "keep"
    drop_last: bool = False
    layout: Axes | None = None
    one_hot: Mapping[str, int] | None = None
    normalize: Any = None
    specs: Any = None
    memory: float | str | None = None
    window_rows: int | None = None
    shard: tuple[int, int] = (0, 1)
    sticky_shards: bool = False
    balance: str | None = None
    weights: npt.ArrayLike | str | None = None
    sampler: Sampler | Iterable[Any] | None = None
    dtype: Any = None
    scale: Any = None
    shift: Any = None
    pad_value: Any = 0
    ragged: RaggedLayout = "list"
    bucket: bool | str = False
    threads: int | None = None
    prefetch: int | None = None
    errors: Literal["raise", "skip"] = "raise"
    max_lost: int | float | None = None
    pipeline: Any = None
    device: str | Device | Resident = "cpu"
    output: Library | None = None
    pinned: bool = False
    as_tuple: bool = False
    progress: bool = False

    skips: bool = field(init=False, repr=False)
    """Whether rows that cannot be read are left out."""
    draws_rows: bool = field(init=False, repr=False)
    """Whether rows are drawn with replacement."""
    lays_out: bool = field(init=False, repr=False)
    """Whether batches are cast, scaled or laid out, so that spaces of sources matter."""
    compiled_pipeline: CompiledPipeline | None = field(init=False, repr=False)
    """The steps of the pipeline."""
    memory_bytes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.layout is not None and not isinstance(self.layout, Mapping):
            raise LoaderError(
                f"layout={self.layout!r} names no source; say whose axes these are, as in "
                "layout={'images': 'batch channel height width'}"
            )
        check_fields(self, LoaderError, but=("shard",))
        own = self.__dict__
        for name in ("seed", *_LEAST):
            if own[name] is not None:
                own[name] = integer(name, own[name], least=_LEAST.get(name))
        own.update(
            shard=shard_of(self.shard),
            skips=self.errors == "skip",
            draws_rows=self.balance is not None or self.weights is not None,
            compiled_pipeline=None if self.pipeline is None else line_of(self.pipeline),
            memory_bytes=memory_of(DEFAULT_MEMORY if self.memory is None else self.memory),
        )
        if self.batch_size is None and self.sampler is None:
            raise LoaderError("batch_size is missing; pass rows per batch, as in ds.batches(64)")
        if self.max_lost is not None:
            if not self.skips:
                raise LoaderError(f"max_lost={self.max_lost!r} goes with errors='skip' only")
            if not isinstance(self.max_lost, float | np.floating) or not 0 <= self.max_lost < 1:
                own["max_lost"] = integer("max_lost", self.max_lost, least=0)
        if self.sampler is not None:
            own["sampler"] = self._listed()
        elif self.draws_rows:
            given = self._given("shuffle", "last", "sticky_shards")
            given = [name for name in given if (name, self.last) != ("last", "drop")]
            if self.balance is not None and self.weights is not None:
                raise LoaderError("give balance= or weights=, not both")
            if given:
                raise LoaderError(
                    "rows drawn with replacement, by balance= or weights=, come in random order "
                    f"and in whole batches: leave {', '.join(given)} out"
                )
        if self.drop_last:
            if self.last not in ("keep", "drop"):
                raise LoaderError(f"drop_last=True contradicts last={self.last!r}; leave one out")
            own["last"] = "drop"
        if self.specs is not None:
            for name in self._given("layout", "one_hot"):
                raise LoaderError(
                    f"{name}= and specs= both say what batches look like; leave one out"
                )
        if self.normalize is not None:
            if self._given("scale", "shift"):
                raise LoaderError("normalize= sets scale= and shift=; leave these out")
            own["scale"], own["shift"] = normalizing(self.normalize)
        own["lays_out"] = bool(self._given("specs", "dtype", "scale", "shift", "layout", "one_hot"))

    def _listed(self) -> Sampler:
        """Take a sampler as it is, or list what an iterable of requests yields."""
        named = ("batch_size", "shuffle", "last", "drop_last", "sticky_shards", "window_rows")
        seed = () if self.pipeline_draws else ("seed",)  # else a pipeline draws from it
        given = self._given(*named, "balance", "weights", *seed)
        if given:
            names = ", ".join(given)
            raise LoaderError(f"a sampler lists whole batches, seed and all: leave {names} out")
        if isinstance(self.sampler, Sampler):
            return self.sampler
        if isinstance(self.sampler, str | bytes) or not np.iterable(self.sampler):
            raise LoaderError(
                f"sampler={self.sampler!r} lists no batches; give one of labeled.samplers, or "
                "slices and lists of rows"
            )
        return ListedBatches.of(self.sampler)

    def _given(self, *names: str) -> list[str]:
        """Return those options that are not at their defaults."""
        given = []
        for name in names:
            value, default = getattr(self, name), getattr(BatchOptions, name)
            alike = isinstance(value, str | bool | np.bool_) and value == default
            if value is not default and not alike:
                given.append(name)
        return given

    @property
    def pipeline_draws(self) -> bool:
        """Whether the pipeline draws random numbers."""
        return self.compiled_pipeline is not None and self.compiled_pipeline.draws

    def seed_for(self, *, ordered: bool) -> int:
        """Return the seed: one drawn where the order or a pipeline needs it and none is given.

        Beside a sampler, a pipeline draws from the seed of that.
        """
        seed: Any = self.seed
        if seed is None and self.pipeline_draws and self.sampler is not None:
            seed = getattr(self.sampler, "seed", None)
            if isinstance(seed, tuple):
                seed = key_of(*seed) >> 65
        if seed is not None:
            return integer("seed", seed)
        count = self.shard[1]
        if ordered and count > 1:
            raise LoaderError(
                f"seed is missing: each of the {count} shards would draw its own order, and rows "
                "would be lost and repeated; give the same seed= to every shard"
            )
        return secrets.randbits(63) if ordered or self.pipeline_draws else 0


def shard_of(shard: Any) -> tuple[int, int]:
    """Check which share of an epoch is served: (index, count), which ``"torch"`` asks torch for."""
    if isinstance(shard, str) and shard == "torch":
        distributed = module("torch.distributed")
        if not (distributed.is_available() and distributed.is_initialized()):
            raise LoaderError(
                "shard='torch' takes rank and world size from torch.distributed, which is not "
                "initialized; call torch.distributed.init_process_group() before, or pass "
                "shard=(rank, world_size)"
            )
        shard = distributed.get_rank(), distributed.get_world_size()
    try:
        index, count = shard
    except (TypeError, ValueError):
        raise LoaderError(f"shard={shard!r} must be a pair (index, count)") from None
    if not 0 <= integer("shard index", index) < integer("shard count", count):
        raise LoaderError(
            f"shard={shard!r}: the index must be 0 to {shard[1] - 1}; pass shard=(rank, world_size)"
        )
    if count > MAX_SHARDS:
        raise LoaderError(f"shard={shard!r}: epochs are cut into {MAX_SHARDS:,} shards at most")
    return int(index), int(count)


def normalizing(normalize: Any) -> tuple[Any, Any]:
    """Return the scale and shift that subtract a mean and divide by a deviation.

    Examples
    --------
    >>> normalizing((2.0, 4.0))
    (0.25, -0.5)
    >>> normalizing({"images": ([1.0, 3.0], 2.0)})
    ({'images': [0.5, 0.5]}, {'images': [-0.5, -1.5]})
    """
    if isinstance(normalize, Mapping):
        found = {name: normalizing(pair) for name, pair in normalize.items()}
        return {name: one[0] for name, one in found.items()}, {
            n: one[1] for n, one in found.items()
        }
    try:
        mean, std = np.broadcast_arrays(*(np.asarray(one, np.float64) for one in normalize))
        with np.errstate(all="ignore"):
            scale, shift = 1 / std, -mean / std
        fits = scale.ndim < 2 and (np.isfinite(scale) & np.isfinite(shift) & (std > 0)).all()
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise LoaderError(
            f"normalize={normalize!r} must be a pair (mean, std) of finite numbers, one or one a "
            "channel, deviations above 0; or a mapping from source to such a pair"
        )
    return scale.tolist(), shift.tolist()


def memory_of(memory: Any) -> int:
    """Read a size such as ``"512 MiB"`` or a number of bytes.

    Raises
    ------
    LoaderError
        If it is not a size, or not positive.
    """
    try:
        n = int(memory if isinstance(memory, np.number) else parse_bytes(memory))
    except (ValueError, TypeError, AttributeError, OverflowError):
        n = 0
    if n <= 0 or isinstance(memory, bool | np.bool_):
        raise LoaderError(f"memory={memory!r} is not a size; pass bytes or text such as '512 MiB'")
    return n
