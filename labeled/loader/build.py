"""From what a user asks of ``batches`` to a plan: every argument checked before any read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from labeled.catalog.loading import load_rows
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource
from labeled.device import Device, Library
from labeled.errors import LoaderError, LoaderTypeError, did_you_mean
from labeled.loader.arguments import (
    Asked,
    batch_rows_of,
    drawn_of,
    integer,
    integer_or_none,
    last_of,
    listed_of,
    max_lost_of,
    part_of,
    seed_beside,
    seed_of,
    skips_of,
)
from labeled.loader.finish import Finish, changes_of, check_padding, padding_by_source
from labeled.loader.handoff import handed_over
from labeled.loader.lanes import Lane
from labeled.loader.loader import Loader
from labeled.loader.padded import check_lengths, padded_infos
from labeled.loader.plan import LoaderPlan, ReaderKind, rows_held
from labeled.loader.process import check_reader
from labeled.loader.ragged import (
    RaggedLayout,
    batch_bytes,
    beyond_rows,
    bucket_source,
    dense_only,
    lane_of,
    ragged_finishes,
    refuse_process,
    selected_sizes,
    settled,
    worst_of,
)
from labeled.loader.sizes import (
    DEFAULT_MEMORY,
    Sizes,
    Wanted,
    choose_kept,
    memory_of,
    piped_bytes,
    plan_sizes,
)
from labeled.loader.units import Grouping, governing_source, group_rows, layout_words
from labeled.loader.uploads import check_device, device_of, device_plan
from labeled.pipeline.running import Line, line_of
from labeled.samplers.buckets import Buckets
from labeled.samplers.draws import Draws, balanced_weights
from labeled.samplers.order import Mode, Order
from labeled.samplers.parts import Last
from labeled.samplers.permutation import key_of
from labeled.samplers.plan import EpochPlan
from labeled.samplers.requests import Sampler
from labeled.samplers.sampled import AnyPlan, SampledOrder, SampledPlan
from labeled.samplers.state import plan_hash
from labeled.samplers.units import UniformUnits
from labeled.selection import Selection
from labeled.spaces import Space
from labeled.specs import SourceInfo, compile_specs

log = logging.getLogger(__name__)

Shuffle = bool | Literal["full", "window"]


class BatchOptions(TypedDict, total=False):
    """Options of ``batches``, for type checkers and editors; told in :func:`make_loader`."""

    specs: Any
    shuffle: Shuffle
    seed: int | None
    epoch: int
    last: Last
    memory: int | str
    window_rows: int | None
    part: tuple[int, int]
    sticky_parts: bool
    balance: str | None
    weights: npt.ArrayLike | None
    sampler: Sampler | Iterable[Any] | None
    dtype: Any
    scale: Any
    shift: Any
    pad_value: Any
    ragged: RaggedLayout
    bucket: bool | str
    threads: int | None
    prefetch: int | None
    reader: ReaderKind
    errors: Literal["raise", "skip"]
    max_lost: int | float | None
    pipeline: Any
    device: str | Device
    as_: Library | None
    pinned: bool


def make_loader(
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    spaces: Mapping[str, Space],
    n_rows: int,
    batch_size: int | None = None,
    *,
    specs: Any = None,
    shuffle: Shuffle = False,
    seed: int | None = None,
    epoch: int = 0,
    last: Last = "keep",
    memory: int | str = DEFAULT_MEMORY,
    window_rows: int | None = None,
    part: tuple[int, int] = (0, 1),
    sticky_parts: bool = False,
    balance: str | None = None,
    weights: npt.ArrayLike | None = None,
    sampler: Sampler | Iterable[Any] | None = None,
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
    pad_value: Any = 0,
    ragged: RaggedLayout = "list",
    bucket: bool | str = False,
    threads: int | None = None,
    prefetch: int | None = None,
    reader: ReaderKind = "threads",
    errors: Literal["raise", "skip"] = "raise",
    max_lost: int | float | None = None,
    pipeline: Any = None,
    device: str | Device = "cpu",
    as_: Library | None = None,
    pinned: bool = False,
) -> Loader:
    """Make a loader over the selected rows of some sources.

    Parameters
    ----------
    batch_size : int
        Rows of every batch but, with ``last="keep"``, the last. Not given with `sampler`.
    specs : (space, source) pair, optional
        What batches look like; arrays come nested as the specs are, C-contiguous in
        the axes of each space. Without specs a batch maps source -> DataArray.
    shuffle : bool, "full" or "window"
        False: file order, or the order of a list. "full": any row may follow any row.
        "window": random stretches of the file fill a window, whose rows are shuffled.
        True: full where the layout makes random rows cheap, else window.
    seed : int, optional
        The order is a function of it and the epoch; drawn once, and kept in the
        state, when not given. Parts of a shuffled epoch need the same one.
    epoch : int
        The first epoch.
    last : {"keep", "drop", "pad", "wrap"}
        A short last batch is kept; left out; padded with `pad_value` (rows -1); or
        filled with rows that another batch has too. In file order "drop" leaves out
        the same rows in every epoch: the last ones of each part.
    memory : size
        The most that iterating adds to the memory of this process. Not counted: the
        compiled kernels of the extra ``fast``, about 32 MiB once a process, loaded by
        the first large copy.
    window_rows : int, optional
        Rows shuffled together; from `memory` when not given.
    part : (index, count)
        Which of `count` shares of every epoch this loader serves.
    sticky_parts : bool
        Keep each part to one stretch of the file in every epoch.
    balance : str, optional
        Name of a source of class labels: draw every class equally often, with
        replacement. All its labels are read while the loader is made.
    weights : array, lengths ``(n_rows,)``, optional
        Draw rows in proportion, with replacement. Draws, balanced or weighted, come in
        random order and in whole batches, ``n_rows // batch_size`` of them: they take
        neither `shuffle` nor `sticky_parts`, and of `last` no padding or wrapping.
    sampler : Sampler or iterable of requests, optional
        Batches listed by somebody else, in the place of `shuffle`: one of
        :mod:`labeled.samplers`, or slices and lists of rows, served as they are every
        epoch. Parts take its batches in turn. What a pipeline draws beside it comes from
        `seed`; when not given, from the sampler's own, if it has one.
    dtype, scale, shift : value or mapping by source, optional
        Cast, factor and summand, fused into the copy that lays a batch out. A single
        value leaves sources of labels alone. Floats and scaled values are not cast to
        integers; integers that do not fit a narrower dtype are an error of their batch.
    pad_value : scalar or mapping by source
        Fills padded rows, and with ``ragged="pad"`` what examples lack. A value that a
        source's dtype cannot hold is refused.
    ragged : {"list", "pad", "flat"}
        What examples of different shapes become: an object array of arrays; one array,
        filled up to the longest of the batch with `pad_value`, with ``<source>_mask``
        beside it; or flat values with ``<source>_offsets`` and ``<source>_shapes``.
    bucket : bool or str
        Let examples of about equal size share a batch, so that little is padded: those of
        this ragged source, or of the only one. Rows are arranged within their windows, so
        windows are shuffled (``shuffle=True`` is "window" then), and the lengths of all rows
        are read while the loader is made. `explain` tells what share of padding is left.
    threads : int, optional
        Background threads; from the cores when not given. 0 reads in the caller.
    prefetch : int, optional
        Jobs read ahead of the one in use; from `memory` when not given.
    reader : {"threads", "process"}
        Where rows are read: in threads of this process, or in those of a process of its
        own with memory shared, for consumers whose own Python must not be disturbed. That
        process takes about a second to start, and some 100 MiB for Python and libraries
        that `memory` does not count.
    errors : {"raise", "skip"}
        What becomes of rows that cannot be read: an error in their turn, or batches that
        lack them, with a warning; rows of later batches stay where they are.
    max_lost : int or fraction, optional
        How many rows of an epoch, or which part of them, ``errors="skip"`` may leave out; one
        more is an error. ``loader.stats().n_lost`` counts them.
    pipeline : pipeline, callable, mapping from source to callable, or list, optional
        What happens to batches on their way out; see :mod:`labeled.pipeline`. Its `sample` and
        `collate` run in threads of their own (`threads` of them, as many as cores when not
        given, none with 0; several batches at a time), its `batch` where batches are handed
        out; with a `device` there can be only `batch`, and it gets the arrays of that. A
        callable, or callables by source, are transforms of samples: of labelled examples, one
        by one, or of whole batches where they have a parameter ``rows`` or are marked by
        :func:`labeled.pipeline.whole`. Samples that raise ReadError are left out with
        ``errors="skip"``, whatever `last` says of lengths. Rows that pad a batch go through it
        too, as row -1.
        `memory` counts the rows that go into a pipeline; what it makes is its own.
    device : "cpu", "cuda", "cuda:<n>" or Device
        Where batches are made. Windows go to a device as the file has them, by one copy
        each from pinned memory, while earlier ones are used; batches are cut, cast, scaled
        and laid out there, in memory of their own, on the consumer's current stream. Order
        and values are those of "cpu". Examples of different shapes and values to decode
        are laid out here first; texts stay here. **Not yet run on a GPU.**
    as_ : {"numpy", "torch", "jax", "cupy"}, optional
        Whose arrays batches hold, by DLPack: those of the specs, or without specs a plain
        dict from source to array. Nothing is copied, but JAX copies what does not start at
        64 bytes and makes 32 bits of 64 unless its own settings differ. Examples of
        different shapes come as lists of arrays.
    pinned : bool
        With ``as_="torch"``: copy tensors of the host into pinned memory, where torch finds
        a CUDA device.

    Returns
    -------
    Loader

    Raises
    ------
    LoaderError
        If a size, part, cast or option is impossible, or `memory` too small; no row is
        read but for the labels of `balance`.
    SpecsError
        If the specs do not fit the sources.
    """
    asked = Asked(
        batch_size,
        shuffle,
        seed,
        epoch,
        last,
        part,
        sticky_parts,
        window_rows,
        balance,
        weights,
        sampler,
    )
    _check_sources(sources, reader)
    wanted = Wanted(
        memory_of(memory),
        integer_or_none("window_rows", window_rows, least=1),
        integer_or_none("threads", threads, least=0),
        integer_or_none("prefetch", prefetch, least=0),
    )
    draws = pipeline is not None and line_of(pipeline).draws
    rows = _rows_of(asked, sources, selections, n_rows, draws=draws)
    if bucket is not False:
        measured = bucket_source(bucket, sources, shuffle, repeats=rows.repeats)
        rows = replace(rows, mode="window")
    # All sources count for the order, also those that specs leave out.
    lead = governing_source(sources)
    grouping = group_rows(lead, selections[lead.name], rows.mode)
    layout = layout_words(selections, grouping)
    sources, finish = _finish(
        sources, spaces, specs, dtype, scale, shift, pad_value, ragged, pads=rows.last == "pad"
    )
    for name, uneven in finish.ragged.items():
        source = sources[name]
        if uneven.lengths is not None and isinstance(source, RaggedSource):
            check_lengths(source, selections[name], uneven.lengths)
    line = _line(pipeline, finish)
    refuse_process(reader, sources)
    hand = handed_over(as_, pinned, finish if line is None else None)
    skips = skips_of(errors, reader)
    piped = line is not None and line.works
    where = device_of(device)
    if where is not None:
        check_device(where, device, reader=reader, skips=skips, piped=piped, as_=as_)
    lanes = _lanes(
        sources, selections, rows, wanted.memory_bytes, finish.out_row_bytes, piped=piped
    )
    for lane in lanes:
        lane.keep = lane.keep and not skips  # what is kept is read at once, or not at all
    sizes = _sizes(lanes, grouping, rows, finish, wanted, piped=piped, sorts=bucket is not False)
    buckets = None
    if bucket is not False:
        lengths = selected_sizes(measured, selections[measured.name], grouping.group)
        buckets = Buckets(measured.name, lengths, rows.batch_rows)
    epoch_plan = _epoch_plan(rows, grouping, sizes, buckets)
    log.info(
        "%d rows, shuffle=%r, in windows of %d; %d threads, %d slots of %d rows, at most %d bytes",
        n_rows,
        rows.mode,
        sizes.window_rows,
        sizes.threads,
        sizes.slots,
        sizes.job_rows,
        sizes.promised_bytes,
    )
    on_device = None
    if where is not None:
        on_device = device_plan(where, sources, finish, sizes, rows.held_rows, as_)
    return Loader(
        LoaderPlan(
            lanes=lanes,
            epoch_plan=epoch_plan,
            group=grouping.group,
            sizes=sizes,
            job_offset=_job_offset(rows.mode, lanes, grouping, sizes),
            finish=finish,
            plan_hash=plan_hash(epoch_plan, f"{key_of(repr(layout)):032x}"),
            reader=reader,
            skips=skips,
            max_lost=max_lost_of(max_lost, skips),
            line=line,
            on_device=on_device,
            hand=hand,
        )
    )


def check_options(options: Iterable[str]) -> None:
    """Raise :class:`LoaderTypeError` where an option is none that :func:`make_loader` takes."""
    for name in options:
        if name not in OPTIONS:
            raise LoaderTypeError(
                f"batches() has no option {name!r}; {did_you_mean(name, OPTIONS, limit=99)}"
            )


OPTIONS = (
    "batch_size",
    *(n for n, one in signature(make_loader).parameters.items() if one.kind is one.KEYWORD_ONLY),
)
"""What a caller of ``batches`` may name."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """What decides which rows a batch holds, checked."""

    n_rows: int
    batch_rows: int
    mode: Mode
    last: Last
    part: tuple[int, int]
    seed: int
    epoch: int
    sticky_parts: bool
    draws: tuple[str, npt.NDArray[np.float64]] | None
    listed: Sampler | None

    @property
    def repeats(self) -> bool:
        """Whether a row may come more than once in an epoch."""
        return self.draws is not None or self.listed is not None

    @property
    def held_rows(self) -> int:
        """Rows of the largest batch there can be: `batch_rows`, if there are so many."""
        return rows_held(self.batch_rows, self.n_rows, self.last, listed=self.listed is not None)


def _rows_of(
    asked: Asked,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    n_rows: int,
    *,
    draws: bool,
) -> _Rows:
    """Check what was asked of rows and their order; reads labels where they are balanced."""
    part, listed, drawn = part_of(asked.part), listed_of(asked, draws=draws), drawn_of(asked)
    mode = "full" if listed is not None else _mode(asked.shuffle, sources)
    ordered = drawn or (listed is None and mode != "file")
    if listed is not None and draws:
        seed = seed_beside(listed, asked.seed)
    else:
        seed = seed_of(asked.seed, part[1] if ordered else 1, needed=ordered or draws)
    return _Rows(
        n_rows=n_rows,
        batch_rows=batch_rows_of(asked.batch_size) if listed is None else listed.batch_rows or 1,
        mode="window" if drawn else mode,
        last="drop" if drawn else last_of(asked.last),
        part=part,
        seed=seed,
        epoch=integer("epoch", asked.epoch, least=0),
        sticky_parts=asked.sticky_parts,
        draws=_draw_weights(asked.balance, asked.weights, sources, selections, n_rows),
        listed=listed,
    )


def _check_sources(sources: Mapping[str, AnySource], reader: ReaderKind) -> None:
    if not sources:
        raise LoaderError("there is no source to make batches of")
    check_reader(reader, sources.values())


def _finish(
    sources: Mapping[str, AnySource],
    spaces: Mapping[str, Space],
    specs: Any,
    dtype: Any,
    scale: Any,
    shift: Any,
    pad_value: Any,
    ragged: Any,
    *,
    pads: bool,
) -> tuple[Mapping[str, AnySource], Finish]:
    """Decide how batches are laid out, and which sources that needs."""
    padding = padding_by_source(sources, pad_value)
    if specs is None:
        finishes = ragged_finishes(sources, ragged, padding, dtype, scale, shift)
        dense = {name: source for name, source in sources.items() if name not in finishes}
        options = (dense_only(option, finishes) for option in (dtype, scale, shift))
        changes = changes_of(dense, spaces, *options)
        if pads:
            check_padding(dense, padding, changes)
        return sources, Finish(sources, padding, None, changes, finishes)
    infos = {
        name: SourceInfo(name, s.dims, s.row_shape, s.dtype, spaces[name])
        for name, s in sources.items()
        if name in spaces
    }
    uneven, finishes = padded_infos(specs, sources, padding)
    compiled = compile_specs(specs, infos | uneven, dtype=dtype, scale=scale, shift=shift)
    needed = {
        name: sources[name]
        for name in dict.fromkeys([*finishes, *compiled.sources])
        if name in sources
    }
    if pads:
        check_padding(needed, padding, {})
    return needed, Finish(needed, padding, compiled, {}, finishes)


def _line(pipeline: Any, finish: Finish) -> Line | None:
    """Sort the steps of a pipeline, and tell them how batches are laid out."""
    if pipeline is None:
        return None
    line = line_of(pipeline)
    flat = [name for name, ragged in finish.ragged.items() if ragged.layout == "flat"]
    if flat and line.takes_apart:
        raise LoaderError(
            f"ragged='flat' lays the examples of {flat[0]!r} end to end, so that a pipeline cannot "
            "take them one by one; ask for ragged='list' or 'pad', or mark the transforms as "
            "labeled.pipeline.whole"
        )
    return line.with_form(finish.form)


def _lanes(
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    rows: _Rows,
    memory_bytes: int,
    out_row_bytes: int,
    *,
    piped: bool,
) -> list[Lane]:
    """Make readers, and decide which sources are kept in memory."""
    lanes = [lane_of(source, selections[name]) for name, source in sources.items()]
    row_bytes = sum(lane.row_bytes for lane in lanes) + out_row_bytes
    batch_bytes = rows.held_rows * row_bytes
    room = memory_bytes - (piped_bytes(memory_bytes, batch_bytes) if piped else 0)
    kept = choose_kept(lanes, room, batch_bytes)
    for lane in lanes:
        lane.keep = lane.name in kept and lane.source.loaded is None
    return lanes


def _sizes(
    lanes: list[Lane],
    grouping: Grouping,
    rows: _Rows,
    finish: Finish,
    wanted: Wanted,
    *,
    piped: bool,
    sorts: bool,
) -> Sizes:
    """Share memory out, so that it also holds the largest ragged examples that can meet.

    With buckets (`sorts`) the largest of a window do meet in a batch.
    """
    worst = worst_of(lanes, rows.mode, grouping, repeats=rows.repeats)
    together = worst_of(lanes, "full", grouping, repeats=rows.repeats) if sorts else worst
    beyond = beyond_rows(batch_bytes(together, finish.ragged, rows.held_rows))
    return settled(
        worst,
        lambda: plan_sizes(
            lanes,
            rows.mode,
            wanted,
            n_rows=rows.n_rows,
            batch_rows=rows.held_rows,
            unit_rows=max(1, grouping.units.max_rows),
            out_row_bytes=finish.out_row_bytes + beyond,
            piped=piped,
        ),
    )


def _epoch_plan(rows: _Rows, grouping: Grouping, sizes: Sizes, buckets: Buckets | None) -> AnyPlan:
    """Arrange the first epoch."""
    if rows.listed is None:
        order = _order(rows, grouping, sizes, buckets)
        return EpochPlan(order, rows.part, rows.batch_rows, rows.last)
    sampler = rows.listed.at_epoch(rows.epoch)
    listed = SampledOrder(sampler, rows.n_rows, sizes.window_rows, rows.seed)
    plan = SampledPlan(listed, rows.part)
    _ = plan.n_rows  # complain about rows that are not there now
    return plan


def _mode(shuffle: Any, sources: Mapping[str, AnySource]) -> Mode:
    """Turn what was asked into a mode; True is full where random rows are cheap."""
    if shuffle is False:
        return "file"
    if shuffle in ("full", "window"):
        return "full" if shuffle == "full" else "window"
    if shuffle is True:
        cheap = all(_cheap_at_random(source) for source in sources.values())
        return "full" if cheap else "window"
    raise LoaderError(f"shuffle={shuffle!r} must be False, True, 'full' or 'window'")


def _cheap_at_random(source: AnySource) -> bool:
    """Whether reading rows one by one costs about what reading them in stretches does."""
    return source.layout.random


def _draw_weights(
    balance: str | None,
    weights: npt.ArrayLike | None,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    n_rows: int,
) -> tuple[str, npt.NDArray[np.float64]] | None:
    """Return (what asked for draws, one weight a row), or None."""
    if weights is not None:
        return "weights", np.asarray(weights, np.float64)
    if balance is None:
        return None
    if balance not in sources:
        raise LoaderError(f"balance={balance!r} is not a source that is read: {list(sources)}")
    labels = load_rows(sources[balance], selections[balance])
    if labels.size != n_rows:
        raise LoaderError(
            f"balance={balance!r}: its rows have shape {labels.shape[1:]}; balancing needs one "
            "class label a row"
        )
    return "balance", balanced_weights(labels.reshape(n_rows))


def _order(rows: _Rows, grouping: Grouping, sizes: Sizes, buckets: Buckets | None) -> Order | Draws:
    units, window_rows = grouping.units, sizes.window_rows
    if rows.draws is None:
        return Order(
            rows.mode, units, window_rows, rows.seed, rows.epoch, rows.sticky_parts, buckets
        )
    name, weights = rows.draws
    grouped = weights if grouping.group is None else weights[grouping.group]
    return Draws(units, grouped, window_rows, rows.seed, rows.epoch, name)


def _job_offset(mode: Mode, lanes: list[Lane], grouping: Grouping, sizes: Sizes) -> int | None:
    """Where jobs may be cut so that no stored chunk is read by two of them."""
    units = grouping.units
    chunked = any(lane.reader.chunk_rows > 1 and not lane.keep for lane in lanes)
    if mode != "file" or not chunked or not isinstance(units, UniformUnits):
        return None
    return units.first_rows if sizes.job_rows % units.unit_rows == 0 else None
