"""From what a user asks of ``batches`` to a plan: every argument checked before any read."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import Parameter, getdoc, signature
from typing import Any, Literal, ParamSpec, TypeVar

import numpy.typing as npt

from labeled._validation import check_arguments
from labeled.device import Device, Library
from labeled.display.text import count_words
from labeled.errors import LoaderError, MissingExtraError, warn
from labeled.loader.arguments import Asked, integer_or_none, max_lost_of
from labeled.loader.device_plan import check_device, check_dtypes, device_of, device_plan
from labeled.loader.handoff import handed_over
from labeled.loader.laying import check_uneven, finish_of, forms_of, line_in_form
from labeled.loader.loader import Loader
from labeled.loader.memory import (
    DEFAULT_MEMORY,
    Demand,
    Sizes,
    Wanted,
    job_offset_of,
    memory_of,
    picked_sizes,
    plan_memory,
    warn_of_room,
)
from labeled.loader.options import Shuffle
from labeled.loader.ordering import (
    Grouping,
    OrderedRows,
    bucket_source,
    epoch_plan_of,
    governing_source,
    layout_words,
    ordered_rows,
    selected_sizes,
)
from labeled.loader.plan import LoaderPlan
from labeled.loader.ragged_finish import RaggedLayout
from labeled.samplers.buckets import Buckets
from labeled.samplers.parts import Last
from labeled.samplers.permutation import key_of
from labeled.samplers.requests import Sampler
from labeled.samplers.state import plan_hash
from labeled.selection import Selection
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource
from labeled.spaces import Space
from labeled.transforms.running import line_of, made_of

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


@check_arguments(LoaderError)
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
    memory: float | str | None = None,
    window_rows: int | None = None,
    shard: tuple[int, int] = (0, 1),
    sticky_shards: bool = False,
    balance: str | None = None,
    weights: npt.ArrayLike | str | None = None,
    sampler: Sampler | Iterable[Any] | None = None,
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
    pad_value: Any = 0,
    ragged: RaggedLayout = "list",
    bucket: bool | str = False,
    threads: int | None = None,
    prefetch: int | None = None,
    errors: Literal["raise", "skip"] = "raise",
    max_lost: int | float | None = None,
    pipeline: Any = None,
    device: str | Device = "cpu",
    output: Library | None = None,
    pinned: bool = False,
    as_tuple: bool = False,
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
        "window": random stretches of the file fill a window, whose rows are shuffled;
        where rows lie in the file as they are, they are picked from there one by one.
        True: full where the layout makes random rows cheap, else window; where stored chunks
        are so large that a window holds too few to mix well, `explain` names the `memory`
        that is enough.
    seed : int, optional
        The order is a function of it and the epoch; drawn once, and kept in the
        state, when not given. Parts of a shuffled epoch need the same one.
    epoch : int
        The first epoch.
    last : {"keep", "drop", "pad", "wrap"}
        A short last batch is kept; left out; padded with `pad_value` (rows -1); or
        filled with rows that another batch has too. In file order "drop" leaves out
        the same rows in every epoch: the last ones of each shard.
    memory : size, optional
        The most that iterating adds to the memory of this process: 256 MiB when not given, or
        twice, four times, ... as much where batches need it, up to half of what the process
        may still take. Not counted: the compiled kernels of the extra ``fast``, about 50 MiB
        once a process, loaded by the first large copy or once a gibibyte of rows was read.
    window_rows : int, optional
        Rows shuffled together; from `memory` when not given.
    shard : (index, count)
        Which of `count` shares of every epoch this loader serves.
    sticky_shards : bool
        Keep each shard to one stretch of the file in every epoch.
    balance : str, optional
        Name of a source of class labels: draw every class equally often, with
        replacement. All its labels are read while the loader is made.
    weights : array, lengths ``(n_rows,)``, or str, optional
        Draw rows in proportion, with replacement: a number a row, or the source that holds
        them. Draws, balanced or weighted, come in
        random order and in whole batches, ``n_rows // batch_size`` of them: they take
        neither `shuffle` nor `sticky_shards`, and of `last` no padding or wrapping.
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
        Fills padded rows, and what ragged examples lack that are padded. A value that a
        source's dtype cannot hold is refused. It counts as a value of the file, so that `scale`
        and `shift` change it as others; with ``ragged="pad"`` it is filled in after them.
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
        Background threads; from the cores when not given, none where up to 32 MiB are kept in
        memory, and none in any case where memory holds one decoded chunk at a time. 0 reads in
        the caller.
    prefetch : int, optional
        Jobs read ahead of the one in use; from `memory` when not given.
    errors : {"raise", "skip"}
        What becomes of rows that cannot be read: an error in their turn, or batches that
        lack them, with a warning; rows of later batches stay where they are. A batch of which
        a pipeline has none left is left out.
    max_lost : int or fraction, optional
        How many rows of an epoch, or which part of them, ``errors="skip"`` may leave out; one
        more is an error. ``loader.stats().n_lost`` counts them.
    pipeline : pipeline, callable, mapping from source to callable, or list, optional
        What happens to batches on their way out; see :mod:`labeled.transforms`. Its `sample` and
        `collate` run in threads of their own (`threads` of them, as many as cores when not
        given, none with 0; several batches at a time), its `batch` where batches are handed
        out; with a `device` there can be only `batch`, and it gets the arrays of that. A
        callable, or callables by source, are transforms of samples: of labelled examples, one
        by one, or of whole batches where they have a parameter ``rows`` or are marked by
        :func:`labeled.transforms.whole`. Samples that raise ReadError, and pictures that do not fit
        (UnfitPictureError: smaller than a crop, undecodable), are left out with
        ``errors="skip"``, whatever `last` says of lengths. Rows that pad a batch go through it
        too, as row -1.
        `memory` counts the rows that go into a pipeline, and what those transforms make that
        say how much it is: all of :mod:`labeled.transforms`, and functions marked by
        :func:`labeled.transforms.takes`.
    device : "cpu", "cuda", "cuda:<n>" or Device
        Where batches are made. Windows go to a device as the file has them, by one copy
        each from pinned memory, while earlier ones are used; batches are cut, cast, scaled
        and laid out there, in memory of their own, on the consumer's current stream. Order
        and values are those of "cpu". Examples of different shapes and values to decode
        are laid out here first; texts stay here. **Not yet run on a GPU.**
    output : {"numpy", "torch", "jax", "tensorflow", "cupy"}, optional
        Whose arrays batches hold, by DLPack: those of the specs, or without specs a plain
        dict from source to array. Nothing is copied, but JAX copies what does not start at
        64 bytes and makes 32 bits of 64 unless its own settings differ. Examples of
        different shapes come as lists of arrays.
    as_tuple : bool
        Give each batch as a tuple of arrays, in the order of ``ds.select(...)``, so that
        ``for x, y in ds.select("images", "targets").batches(64, as_tuple=True)`` works. NumPy
        arrays, or those that `output` asks for. Without it, looping over a batch gives names.
    pinned : bool
        With ``output="torch"``: copy tensors of the host into pinned memory, where torch finds
        a CUDA device; without one that is told, and they stay where they are.

    Returns
    -------
    Loader

    Raises
    ------
    LoaderError
        If a size, shard, cast or option is impossible, or `memory` too small; no row is
        read but for the labels of `balance`.
    SpecsError
        If the specs do not fit the sources.
    """
    asked = Asked(
        batch_size, shuffle, seed, epoch, last, shard, sticky_shards, window_rows,
        balance, weights, sampler,
    )  # fmt: skip
    if not sources:
        raise LoaderError("there is no source to make batches of")
    wanted = _wanted(memory, window_rows, threads, prefetch)
    draws = pipeline is not None and line_of(pipeline).draws
    rows = ordered_rows(asked, sources, selections, n_rows, draws=draws)
    measured = None
    if bucket is not False:
        measured = bucket_source(bucket, sources, shuffle, repeats=rows.repeats)
        rows = replace(rows, mode="window")
    # All sources count for the order, also those that specs leave out.
    lead = governing_source(sources)
    sources, finish = finish_of(
        sources, spaces, specs, dtype, scale, shift, pad_value, ragged, pads=rows.last == "pad"
    )
    check_uneven(sources, selections, finish)
    line = line_in_form(pipeline, finish)
    where = _device_for(device, output)
    hand = handed_over(output, pinned, finish if line is None else None, as_tuple=as_tuple)
    skips = errors == "skip"
    piped = line is not None and line.works
    made = made_of(line, forms_of(sources, selections, finish)) if line and piped else None
    if where is not None and line is None:
        check_dtypes(finish)
    if where is not None:
        check_device(where, device, skips=skips, piped=piped, output=output)
    demand = Demand(wanted, rows, finish, made, skips, sorts=measured is not None)
    lanes, grouping, sizes = plan_memory(demand, sources, selections, lead)
    wanted = replace(wanted, memory_bytes=sizes.memory_bytes)
    layout = layout_words(selections, grouping)
    buckets = None if measured is None else _buckets(measured, selections, grouping, rows)
    epoch_plan = epoch_plan_of(rows, grouping, sizes.window_rows, buckets)
    on_device = None
    if where is not None and not piped:
        on_device = device_plan(where, lanes, sizes, finish, rows.held_rows, library=output)
    else:
        sizes = picked_sizes(sizes, lanes, rows, wanted)
    if rows.last == "drop" and not epoch_plan.n_batches and n_rows:
        _warn_of_no_batch(n_rows, rows)
    _log_plan(rows, sizes)
    warn_of_room(sizes.promised_bytes)
    return Loader(
        LoaderPlan(
            lanes=lanes,
            epoch_plan=epoch_plan,
            group=grouping.group,
            sizes=sizes,
            job_offset=job_offset_of(rows.mode, lanes, grouping, sizes),
            finish=finish,
            plan_hash=plan_hash(epoch_plan, f"{key_of(repr(layout)):032x}"),
            skips=skips,
            max_lost=max_lost_of(max_lost, skips),
            line=line,
            uncounted=() if made is None else made.uncounted,
            on_device=on_device,
            goes_to=where if piped else None,
            hand=hand,
            seed_given=seed is not None and (rows.mode != "file" or draws),
        )
    )


def shows_options(call: Callable[P, R]) -> Callable[P, R]:
    """Let the signature and the documentation of a call with ``**options`` show each option.

    In the documentation they stand in the place of the line ``**options``.
    """
    own, options = (signature(one).parameters.values() for one in (call, make_loader))
    shown = [one for one in own if one.kind is not Parameter.VAR_KEYWORD]
    shown += [one for one in options if one.kind is Parameter.KEYWORD_ONLY]
    vars(call)["__signature__"] = signature(call).replace(parameters=shown)
    text = (getdoc(make_loader) or "").partition("\nspecs : ")[2].partition("\n\nReturns\n")[0]
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)  # help() shows no roles of Sphinx
    call.__doc__ = (getdoc(call) or "").replace("**options\n", f"specs : {text}\n")
    return call


def _device_for(device: str | Device, output: Library | None) -> Device | None:
    """Return where batches are made; torch has a way to a GPU without CuPy."""
    try:
        return device_of(device)
    except MissingExtraError as error:
        if output != "torch":
            raise
        raise MissingExtraError(
            f"{error}. Without CuPy, leave device= out, pass pinned=True and call "
            "tensor.to('cuda', non_blocking=True) on each tensor"
        ) from None


def _warn_of_no_batch(n_rows: int, rows: OrderedRows) -> None:
    why = "balance= and weights= make whole batches" if rows.draws else "last='drop'"
    warn(
        f"every epoch is empty, for {why} and {count_words(n_rows, 'row')} do not fill one batch "
        f"of batch_size={rows.batch_rows}"
        + (f" for each of {rows.shard[1]} shards" if rows.shard[1] > 1 else "")
        + "; pass a smaller batch_size"
        + ("" if rows.draws else ", or last='keep'")
    )


def _wanted(memory: Any, window_rows: Any, threads: Any, prefetch: Any) -> Wanted:
    return Wanted(
        memory_of(DEFAULT_MEMORY if memory is None else memory),
        integer_or_none("window_rows", window_rows, least=1),
        integer_or_none("threads", threads, least=0),
        integer_or_none("prefetch", prefetch, least=0),
        grows=memory is None,
    )


def _buckets(
    measured: RaggedSource,
    selections: Mapping[str, Selection],
    grouping: Grouping,
    rows: OrderedRows,
) -> Buckets:
    """Measure the examples that are to share batches with others of their size."""
    lengths = selected_sizes(measured, selections[measured.name], grouping.group)
    return Buckets(measured.name, lengths, rows.batch_rows)


def _log_plan(rows: OrderedRows, sizes: Sizes) -> None:
    log.info(
        "%d rows, shuffle=%r, in windows of %d; %d threads, %d slots of %d rows, at most %d bytes",
        rows.n_rows,
        rows.mode,
        sizes.window_rows,
        sizes.threads,
        sizes.slots,
        sizes.job_rows,
        sizes.promised_bytes,
    )
