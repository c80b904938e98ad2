"""What a user asks of `batches`: the options as one value, and the order of rows that they mean.

What each option means is in the docstring of :meth:`labeled.Dataset.batches`. Types, ranges and
combinations are checked here, and whatever touches neither memory nor the form of a batch: modes
of shuffling, draws, samplers, shards and the short last batch, put together as the plan of an
epoch; and from the stored layout, what must be read together. Whether an option fits the sources
in other ways is for the module that uses it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import wraps
from inspect import signature
from operator import attrgetter
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from labeled._validation import check_classes, check_fields, check_keywords, integer, memory_of
from labeled.device import AnyDevice, Library, Resident, module
from labeled.display.text import count_words
from labeled.errors import LoaderError, did_you_mean, warn
from labeled.samplers.listed import ListedBatches, Sampler
from labeled.samplers.permutation import key_of
from labeled.samplers.plan import EpochPlan, Last, SampledPlan
from labeled.samplers.units import (
    UniformUnits,
    Units,
    units_of_boundaries,
    units_of_groups,
    units_of_ranges,
)
from labeled.samplers.windows import Buckets, Mode, Order, Weights, balanced_weights, valid_weights
from labeled.selection import Selection
from labeled.sources.source import Rows, Source, load_rows
from labeled.transforms.running import CompiledPipeline, line_of

P = ParamSpec("P")
R = TypeVar("R")
Owner = TypeVar("Owner")
Options = TypeVar("Options")

Shuffle = bool | Literal["full", "window"]
RaggedLayout = Literal["list", "pad", "flat"]
Shard = tuple[int, int] | Literal["torch"]
Sources = Mapping[str, Source]
Selections = Mapping[str, Selection]
# by source, the names of its axes in a batch: `"channel height width batch"`, or a tuple
Axes = Mapping[str, str | Sequence[str]]

# taken where the caller gives none; twice, four times as much where batches need it
DEFAULT_MEMORY = "256 MiB"


# what an option decides, so that others say it a second time
_CLASH = {
    "sampler": (
        "batch_size", "shuffle", "last", "drop_last", "sticky_shards", "window_rows", "balance",
        "weights", "seed",
    ),
    "balance": ("weights", "shuffle", "last", "sticky_shards"),
    "weights": ("shuffle", "last", "sticky_shards"),
    "specs": ("layout", "one_hot"),
    "normalize": ("scale", "shift"),
    "drop_last": ("last",),
}  # fmt: skip

_LAYING_OUT = ("specs", "dtype", "scale", "shift", "normalize", "layout", "one_hot")

_LEAST = {"batch_size": 1, "epoch": 0, "window_rows": 1, "threads": 0, "prefetch": 0}


@dataclass(frozen=True, eq=False)
class BatchOptions:
    """What a caller asked of ``batches``; None where it is chosen for the caller."""

    batch_size: int | None = None
    _: KW_ONLY
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
    shard: Shard = (0, 1)
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
    device: AnyDevice = "cpu"
    output: Library | None = None
    pinned: bool = False
    as_tuple: bool = False
    progress: bool = False

    skips: bool = field(init=False, repr=False)  # whether rows that cannot be read are left out
    draws_rows: bool = field(init=False, repr=False)  # whether rows are drawn with replacement
    # whether batches are cast, scaled or laid out, so that spaces of sources matter
    lays_out: bool = field(init=False, repr=False)
    # the steps of the pipeline
    compiled_pipeline: CompiledPipeline | None = field(init=False, repr=False)
    memory_bytes: int = field(init=False, repr=False)
    share: tuple[int, int] = field(init=False, repr=False)  # `shard` as (index, count)

    def __post_init__(self) -> None:
        if self.layout is not None and not isinstance(self.layout, Mapping):
            raise LoaderError(
                f"layout={self.layout!r} names no source; say whose axes these are, as in "
                "layout={'images': 'batch channel height width'}"
            )
        check_fields(self, LoaderError, but=("sampler",))
        own = self.__dict__
        for name in ("seed", *_LEAST):
            if own[name] is not None:
                own[name] = integer(name, own[name], least=_LEAST.get(name))
        own.update(
            share=shard_of(self.shard),
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
        given = set[str]()
        for one in fields(self):
            value = own.get(one.name)
            plain = isinstance(value, str | bool | np.bool_)
            if one.init and (value != one.default if plain else value is not one.default):
                given.add(one.name)
        for option, others in _CLASH.items():
            if option not in given:
                continue
            clashing = given.intersection(others)
            if self.last == "drop" and option != "sampler":
                clashing.discard("last")
            if self.pipeline_draws:
                clashing.discard("seed")
            if clashing:
                words = ", ".join(sorted(clashing, key=others.index))
                raise LoaderError(f"{option}= decides what {words} would: leave {words} out")
        if self.sampler is not None and not isinstance(self.sampler, Sampler):
            if isinstance(self.sampler, str | bytes) or not np.iterable(self.sampler):
                raise LoaderError(
                    f"sampler={self.sampler!r} lists no batches; give one of labeled.samplers, or "
                    "slices and lists of rows"
                )
            own["sampler"] = ListedBatches.of(self.sampler)
        if self.drop_last:
            own["last"] = "drop"
        if self.normalize is not None:
            own["scale"], own["shift"] = normalizing(self.normalize)
        own["lays_out"] = not given.isdisjoint(_LAYING_OUT)

    def on(self, device: Resident) -> BatchOptions:
        """Return the same options, for rows that are kept on a device."""
        made = copy(self)
        made.__dict__["device"] = device
        return made

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
        count = self.share[1]
        if ordered and count > 1:
            raise LoaderError(
                f"seed is missing: each of the {count} shards would draw its own order, and rows "
                "would be lost and repeated; give the same seed= to every shard"
            )
        return secrets.randbits(63) if ordered or self.pipeline_draws else 0


def takes_fields_of(
    options: Callable[P, Options],
) -> Callable[[Callable[[Owner, Options], R]], Callable[Concatenate[Owner, P], R]]:
    """Make a decorator: a method is called with the fields of a dataclass, and gets one of these.

    Raises
    ------
    OptionError
        If there is no field of that name; the method raises it.

    Examples
    --------
    >>> @dataclass
    ... class Size:
    ...     width: int = 1
    >>> class Box:
    ...     @takes_fields_of(Size)
    ...     def grow(self, size: Size) -> int:
    ...         return size.width + 1
    >>> Box().grow(width=3)
    4
    """

    def decorate(call: Callable[[Owner, Options], R]) -> Callable[Concatenate[Owner, P], R]:
        shown, own = signature(options), signature(call)
        parameters = [next(iter(own.parameters.values())), *shown.parameters.values()]

        @wraps(call)
        def made(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if not kwargs.keys() <= shown.parameters.keys():
                check_keywords(call.__name__, kwargs, shown.parameters)
            return call(self, options(*args, **kwargs))

        made.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return made

    return decorate


def shard_of(shard: Any) -> tuple[int, int]:
    """Check which share of an epoch is served: (index, count), which ``"torch"`` asks torch for."""
    if isinstance(shard, str) and shard == "torch":
        distributed = module("torch.distributed")
        if not (distributed.is_available() and distributed.is_initialized()):
            raise LoaderError(
                "shard='torch' needs torch.distributed.init_process_group() before; or pass "
                "shard=(rank, world_size)"
            )
        shard = distributed.get_rank(), distributed.get_world_size()
    try:
        index, count = shard
    except (TypeError, ValueError):
        raise LoaderError(f"shard={shard!r} must be a pair (index, count)") from None
    if not 0 <= integer("shard index", index) < integer("shard count", count, least=1):
        raise LoaderError(
            f"shard={shard!r}: the index must be 0 to {shard[1] - 1}; pass shard=(rank, world_size)"
        )
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
        scales, shifts = {}, {}
        for name, pair in normalize.items():
            scales[name], shifts[name] = normalizing(pair)
        return scales, shifts
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


# the order of rows

# the least that is read together in a shuffled window, where stored chunks are smaller
UNIT_BYTES = 1 << 17

# Texts of a dataset in one piece, from this size on, are not shuffled in full unless that is asked
# for: HDF5 takes a call for every row that is not beside another, and fewer are kept in memory.
# 400,000 texts of 80 characters, within 16 MiB, took 5.0 s fully shuffled, and 0.6 s in windows.
MANY_TEXTS_BYTES = 1 << 22


def _cheap_in_any_order(source: Source) -> bool:
    """Whether rows in any order cost about what runs of them cost."""
    plain = source.ragged is None and source.loaded is None
    texts = plain and source.stored_dtype.hasobject
    if texts and {header.storage for header in source.headers} == {"contiguous"}:
        return source.n_rows * source.held_row_bytes < MANY_TEXTS_BYTES
    return source.layout.random


class OrderedRows:
    """What decides which rows a batch holds, and which rows are read together.

    All sources of the dataset count, also those that specs leave out, so that what is asked of
    a batch never changes which rows it holds. Reads labels where classes are balanced.

    Attributes
    ----------
    batch_rows, held_rows : int
        Rows of a batch, and of the largest there can be: fewer where there are no more.
    weights : float64 array, optional
        How often each row is drawn, where rows are drawn with replacement.
    repeats : bool
        Whether a row may come more than once in an epoch.
    units : Units
        What is read together, over positions of the order.
    position_of : int64 array, optional
        Dataset position of each position of the order; None where they are the same. They
        differ for listed rows that are shuffled: these are sorted by stored chunk first, so
        that each chunk is read once.
    measured : Source, optional
        The source whose examples share batches with others of their size.
    """

    def __init__(
        self, options: BatchOptions, sources: Sources, selections: Selections, n_rows: int
    ) -> None:
        self.options, self.selections, self.n_rows = options, selections, n_rows
        sampler: Any = options.sampler
        self.mode: Mode = "file"
        if sampler is not None or options.shuffle == "full":
            self.mode = "full"
        elif options.draws_rows or options.shuffle == "window" or options.bucket is not False:
            self.mode = "window"
        elif options.shuffle:  # full where random rows are cheap
            self.mode = "full" if all(map(_cheap_in_any_order, sources.values())) else "window"
        self.last: Last = "drop" if options.draws_rows else options.last
        self.batch_rows = (options.batch_size if sampler is None else sampler.batch_rows) or 1
        self.held_rows = self.batch_rows
        if sampler is None and self.last not in ("pad", "wrap"):  # nothing fills it up
            self.held_rows = min(self.batch_rows, max(n_rows, 1))
        self.seed = options.seed_for(ordered=sampler is None and self.mode != "file")
        given, where, self.weights = options.weights, "weights", None
        if options.balance is not None:
            classes = read_values("balance", options.balance, sources, selections)
            self.weights = balanced_weights(classes)
        elif given is not None:
            if isinstance(given, str):
                where = f"weights={given!r}"
                given = read_values("weights", given, sources, selections, classes=False)
            self.weights = valid_weights(given, n_rows, where)
        self.repeats = self.weights is not None or sampler is not None
        self.measured = None if options.bucket is False else self._bucket_source(sources)
        # Stored chunks of the source that is dearest to read again decide what is read together.
        lead = max(sources.values(), key=attrgetter("layout.expensive", "held_row_bytes", "name"))
        self.units, self.position_of = group_rows(lead, selections[lead.name], self.mode)

    def _bucket_source(self, sources: Sources) -> Source:
        bucket: Any = self.options.bucket
        if self.options.shuffle not in (True, "window") or self.repeats:
            raise LoaderError(
                f"bucket={bucket!r} arranges rows within their windows: give shuffle='window' with "
                "it, and neither balance, weights nor sampler"
            )
        ragged = [name for name, source in sources.items() if source.ragged is not None]
        name = ragged[0] if bucket is True and len(ragged) == 1 else bucket
        if name not in ragged:
            raise LoaderError(
                f"bucket={bucket!r} must name the ragged source whose examples are measured; there "
                f"are {ragged or 'none'}"
            )
        return sources[name]

    def epoch_plan(self, window_rows: int) -> EpochPlan:
        """Arrange the first epoch."""
        options, epoch, buckets = self.options, self.options.epoch, None
        if options.sampler is not None:
            sampler: Any = options.sampler
            order = Order("sampler", self.units, window_rows, self.seed, epoch, sampler=sampler)
            sampled = SampledPlan(order, options.share, self.batch_rows)
            _ = sampled.n_rows  # complain about rows that are not there now
            return sampled
        mode, weights = str(self.mode), None
        by_position: slice | Rows = slice(None) if self.position_of is None else self.position_of
        if self.measured is not None:
            lengths = self.measured.sizes[self.selections[self.measured.name].rows]
            buckets = Buckets(self.measured.name, lengths[by_position], self.batch_rows)
        if self.weights is not None:
            mode = "weights" if options.balance is None else "balance"
            weights = Weights(self.weights[by_position], self.units)
        sticky = options.sticky_shards  # which is not given with weights
        order = Order(mode, self.units, window_rows, self.seed, epoch, sticky, buckets, weights)
        plan = EpochPlan(order, options.share, self.batch_rows, self.last)
        if self.last == "drop" and not plan.n_batches and self.n_rows:
            shards = f" for each of {options.share[1]} shards" if options.share[1] > 1 else ""
            remedy = "" if options.draws_rows else ", or last='keep'"
            warn(
                f"every epoch is empty: {count_words(self.n_rows, 'row')} do not fill one whole "
                f"batch of batch_size={self.batch_rows}{shards}; pass a smaller batch_size{remedy}"
            )
        return plan


def group_rows(source: Source, selection: Selection, mode: Mode) -> tuple[Units, Rows | None]:
    """Find the units of a selection; index lists are grouped by stored chunk when shuffled."""
    n, least = len(selection), -(-UNIT_BYTES // max(1, source.held_row_bytes))
    if mode == "full":
        return UniformUnits(n, 1), None
    layout, span = source.layout, selection.span
    chunk_rows = layout.chunk_rows or 1
    unit_rows = chunk_rows * -(-least // chunk_rows)
    if span is not None and span.step == 1:
        start, stop = span.start, max(span.start, span.stop)
        if layout.edges is not None:
            return units_of_boundaries(start, stop, layout.edges, least), None
        return UniformUnits(stop - start, unit_rows, start), None
    ranges = [p for p in selection.pieces if isinstance(p, range) and p.step > 0]
    if len(ranges) == len(selection.pieces):
        return units_of_ranges(ranges, unit_rows), None
    if mode == "file":
        return UniformUnits(n, least), None
    # A list is sorted by stored chunk, once: each chunk is then decoded once an epoch.
    chunk = layout.chunks_of(selection.rows, least)
    position_of = np.argsort(chunk, kind="stable")
    return units_of_groups(chunk[position_of], least), position_of


def read_values(
    option: str, name: Any, sources: Sources, selections: Selections, *, classes: bool = True
) -> npt.NDArray[Any]:
    """Read and decode a source of one value a row, in the order of the selected rows.

    Errors begin with `option`, the argument that names the source. NaN is none of `classes`.
    """
    dense = {one: source for one, source in sources.items() if source.ragged is None}
    able = [one for one, source in dense.items() if math.prod(source.row_shape) == 1]
    if name not in able:
        hint = did_you_mean(str(name), able)
        raise LoaderError(f"{option}={name!r} is not a source of one value a row; {hint}")
    source = sources[name]
    values = source.decode(load_rows(source, selections[name])).reshape(len(selections[name]))
    if classes:
        shown = f"ds[{name!r}].values" + ".ravel()" * bool(source.row_shape)
        check_classes(source.where, values, shown, LoaderError)
    return values
