"""From what a user asks of ``batches`` to a plan: every argument checked before any read."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled.catalog.loading import load_rows
from labeled.catalog.source import AnySource
from labeled.errors import LoaderError
from labeled.loader.finish import Finish, changes_of
from labeled.loader.lanes import Lane
from labeled.loader.loader import Loader
from labeled.loader.plan import LoaderPlan, ReaderKind
from labeled.loader.process import check_reader
from labeled.loader.ragged import (
    RaggedLayout,
    batch_bytes,
    beyond_rows,
    dense_only,
    lane_of,
    ragged_finishes,
    refuse_in_specs,
    refuse_process,
    settled,
    worst_of,
)
from labeled.loader.sizes import DEFAULT_MEMORY, Sizes, choose_kept, memory_of, plan_sizes
from labeled.loader.units import Grouping, governing_source, group_rows, layout_words
from labeled.samplers.draws import Draws, balanced_weights
from labeled.samplers.order import Mode, Order
from labeled.samplers.parts import LAST_RULES, Last
from labeled.samplers.permutation import key_of
from labeled.samplers.plan import EpochPlan
from labeled.samplers.requests import ListedBatches, Sampler
from labeled.samplers.sampled import AnyPlan, SampledOrder, SampledPlan
from labeled.samplers.state import plan_hash
from labeled.samplers.units import UniformUnits
from labeled.selection import Selection
from labeled.spaces import Space
from labeled.specs import SourceInfo, compile_specs

Shuffle = bool | Literal["full", "window"]


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
    threads: int | None = None,
    prefetch: int | None = None,
    reader: ReaderKind = "threads",
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
        state, when not given.
    epoch : int
        The first epoch.
    last : {"keep", "drop", "pad", "wrap"}
        A short last batch is kept; left out; padded with `pad_value` (rows -1); or
        filled with rows that another batch has too.
    memory : size
        The most that iterating adds to the memory of this process.
    window_rows : int, optional
        Rows shuffled together; from `memory` when not given.
    part : (index, count)
        Which of `count` shares of every epoch this loader serves.
    sticky_parts : bool
        Keep each part to one stretch of the file in every epoch.
    balance : str, optional
        Name of a source of class labels: draw every class equally often.
    weights : array, lengths ``(n_rows,)``, optional
        Draw rows in proportion, with replacement.
    sampler : Sampler or iterable of requests, optional
        Batches listed by somebody else, in the place of `shuffle`: one of
        :mod:`labeled.samplers`, or slices and lists of rows, served as they are every
        epoch. Parts take its batches in turn.
    dtype, scale, shift : value or mapping by source, optional
        Cast, factor and summand, fused into the copy that lays a batch out. A single
        value leaves sources of labels alone.
    ragged : {"list", "pad", "flat"}
        What examples of different shapes become: an object array of arrays; one array,
        filled up to the longest of the batch with `pad_value`, with ``<source>_mask``
        beside it; or flat values with ``<source>_offsets`` and ``<source>_shapes``.
    threads : int, optional
        Background threads; from the cores when not given. 0 reads in the caller.
    prefetch : int, optional
        Jobs read ahead of the one in use; from `memory` when not given.
    reader : {"threads", "process"}
        Where rows are read: in threads of this process, or in those of a process of its
        own with memory shared, for consumers whose own Python must not be disturbed. That
        process takes about a second to start, and some 100 MiB for Python and libraries
        that `memory` does not count.

    Returns
    -------
    Loader

    Raises
    ------
    LoaderError
        If a size, part or option is impossible, or `memory` too small; nothing is read.
    SpecsError
        If the specs do not fit the sources.
    """
    listed = None
    if sampler is not None:
        not_taken = {
            "batch_size": batch_size,
            "shuffle": shuffle or None,
            "seed": seed,
            "last": None if last == "keep" else last,
            "sticky_parts": sticky_parts or None,
            "window_rows": window_rows,
            "balance": balance,
            "weights": weights,
        }
        listed = _sampler(sampler, [n for n, value in not_taken.items() if value is not None])
    batch_rows = max(1, listed.batch_rows) if listed is not None else _batch_rows(batch_size)
    _check(last, part)
    if not sources:
        raise LoaderError("there is no source to make batches of")
    mode = "full" if listed is not None else _mode(shuffle, sources)
    draws = _draw_weights(balance, weights, sources, selections, n_rows)
    if draws is not None:
        mode, last = "window", "drop"
    lead = governing_source(sources)
    grouping = group_rows(lead, selections[lead.name], mode)
    layout = layout_words(selections, grouping)
    sources, finish = _finish(sources, spaces, specs, dtype, scale, shift, pad_value, ragged)
    check_reader(reader, sources.values())
    refuse_process(reader, sources)
    memory_bytes, out_row_bytes = memory_of(memory), finish.out_row_bytes
    lanes = _lanes(sources, selections, n_rows, batch_rows, memory_bytes, out_row_bytes)
    worst = worst_of(lanes, mode, grouping, repeats=draws is not None or listed is not None)
    handed_out = batch_bytes(worst, finish.ragged, batch_rows)
    sizes = settled(
        worst,
        lambda: plan_sizes(
            lanes,
            mode,
            n_rows=n_rows,
            batch_rows=batch_rows,
            unit_rows=max(1, grouping.units.max_rows),
            memory_bytes=memory_bytes,
            out_row_bytes=out_row_bytes + beyond_rows(handed_out),
            window_rows=window_rows,
            threads=threads,
            prefetch=prefetch,
        ),
    )
    where = (int(part[0]), int(part[1]))
    epoch = _integer("epoch", epoch)
    epoch_plan: AnyPlan
    if listed is not None:
        order = SampledOrder(listed.at_epoch(epoch), n_rows, sizes.window_rows)
        epoch_plan = SampledPlan(order, where)
        _ = epoch_plan.n_rows  # complain about rows that are not there now
    else:
        seed = secrets.randbits(63) if seed is None else _integer("seed", seed)
        own = _order(draws, mode, grouping, sizes, seed, epoch, sticky_parts)
        epoch_plan = EpochPlan(own, where, batch_rows, last)
    plan = LoaderPlan(
        lanes=lanes,
        epoch_plan=epoch_plan,
        group=grouping.group,
        sizes=sizes,
        job_offset=_job_offset(mode, lanes, grouping, sizes),
        finish=finish,
        plan_hash=plan_hash(epoch_plan, f"{key_of(repr(layout)):032x}"),
        reader=reader,
    )
    return Loader(plan)


def _sampler(sampler: Sampler | Iterable[Any], not_taken: list[str]) -> Sampler:
    """Take a sampler as it is, or list what an iterable of requests yields."""
    if not_taken:
        raise LoaderError(
            f"a sampler lists whole batches, seed and all: leave {', '.join(not_taken)} out"
        )
    if isinstance(sampler, Sampler):
        return sampler
    return ListedBatches.of(sampler)


def _batch_rows(batch_size: Any) -> int:
    if batch_size is None:
        raise LoaderError("batch_size is missing; say how many rows a batch has")
    if _integer("batch_size", batch_size) < 1:
        raise LoaderError(f"batch_size={batch_size} must be at least 1")
    return int(batch_size)


def _finish(
    sources: Mapping[str, AnySource],
    spaces: Mapping[str, Space],
    specs: Any,
    dtype: Any,
    scale: Any,
    shift: Any,
    pad_value: Any,
    ragged: Any,
) -> tuple[Mapping[str, AnySource], Finish]:
    """Decide how batches are laid out, and which sources that needs."""
    if specs is None:
        finishes = ragged_finishes(sources, ragged, pad_value, dtype, scale, shift)
        dense = {name: source for name, source in sources.items() if name not in finishes}
        options = (dense_only(option, finishes) for option in (dtype, scale, shift))
        changes = changes_of(dense, spaces, *options)
        return sources, Finish(sources, pad_value, None, changes, finishes)
    refuse_in_specs(specs, sources)
    infos = {
        name: SourceInfo(name, s.dims, s.row_shape, s.dtype, spaces[name])
        for name, s in sources.items()
        if name in spaces
    }
    compiled = compile_specs(specs, infos, dtype=dtype, scale=scale, shift=shift)
    needed = {name: sources[name] for name in compiled.sources}
    return needed, Finish(needed, pad_value, compiled, {})


def _lanes(
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    n_rows: int,
    batch_rows: int,
    memory_bytes: int,
    out_row_bytes: int,
) -> list[Lane]:
    """Make readers, and decide which sources are kept in memory."""
    lanes = [lane_of(source, selections[name]) for name, source in sources.items()]
    row_bytes = sum(lane.row_bytes for lane in lanes) + out_row_bytes
    kept = choose_kept(lanes, n_rows, memory_bytes, batch_rows * row_bytes)
    for lane in lanes:
        lane.keep = lane.name in kept and lane.source.loaded is None
    return lanes


def _check(last: Any, part: Any) -> None:
    if last not in LAST_RULES:
        raise LoaderError(f"last={last!r} must be one of {', '.join(map(repr, LAST_RULES))}")
    try:
        index, count = part
    except (TypeError, ValueError):
        raise LoaderError(f"part={part!r} must be a pair (index, count)") from None
    if not 0 <= _integer("part index", index) < _integer("part count", count):
        raise LoaderError(f"part={part!r}: the index must be in 0 .. count-1")


def _integer(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise LoaderError(f"{what}={value!r} must be a whole number")
    return int(value)


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
    if balance is not None and weights is not None:
        raise LoaderError("give balance= or weights=, not both")
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


def _order(
    draws: tuple[str, npt.NDArray[np.float64]] | None,
    mode: Mode,
    grouping: Grouping,
    sizes: Sizes,
    seed: int,
    epoch: int,
    sticky_parts: bool,
) -> Order | Draws:
    if draws is None:
        return Order(mode, grouping.units, sizes.window_rows, seed, epoch, sticky_parts)
    if sticky_parts:
        raise LoaderError("sticky_parts has no meaning for draws with replacement")
    name, weights = draws
    grouped = weights if grouping.group is None else weights[grouping.group]
    return Draws(grouping.units, grouped, sizes.window_rows, seed, epoch, name)


def _job_offset(mode: Mode, lanes: list[Lane], grouping: Grouping, sizes: Sizes) -> int | None:
    """Where jobs may be cut so that no stored chunk is read by two of them."""
    units = grouping.units
    chunked = any(lane.reader.chunk_rows > 1 and not lane.keep for lane in lanes)
    if mode != "file" or not chunked or not isinstance(units, UniformUnits):
        return None
    return units.first_rows if sizes.job_rows % units.unit_rows == 0 else None
