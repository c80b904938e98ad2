"""What a loader does, decided once: which rows when, within what memory, and what batches are.

:class:`LoaderPlan` goes from what a user asked to the plan; no row is read but for labels.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
from dask.utils import format_bytes

from labeled.device import Device, HostArray, Resident, cuda_device, on_gpus
from labeled.errors import DeviceMemoryError, LoaderError, MissingExtraError, warn
from labeled.formats.memory import available_bytes
from labeled.loader.handover import HandedOver
from labeled.loader.layout import BatchLayout, Spaces, pipeline_in_form
from labeled.loader.memory import plan_memory, room_words
from labeled.loader.options import BatchOptions, OrderedRows, Selections, Sources
from labeled.loader.reading import RaggedSourceReader, SourceReader, owned
from labeled.permute.plan import CAST_TO
from labeled.samplers.permutation import key_of
from labeled.samplers.plan import EpochPlan, plan_hash
from labeled.samplers.units import UniformUnits
from labeled.samplers.windows import Window, WindowRows

log = logging.getLogger(__name__)

# What is read ahead at once: the first place, the one after the last, and the rows. A shuffled
# window is one job, unless its rows are picked one by one or all sources are kept: then it is cut.
# File order and full shuffle come in long blocks that may be cut anywhere; they are cut where
# batches end and, over stored chunks, where chunks do.
Job = tuple[int, int, WindowRows]


# batches a consumer has at a time on a device: the one in use, and the one that is made
DEVICE_BATCHES = 2


class DevicePlan:
    """What a loader needs on a device, decided once.

    Examples of different shapes, and values that are decoded, are laid out on the host and
    go there batch by batch; texts stay.

    Attributes
    ----------
    layout : mapping of str to (row shape, dtype)
        Of the sources that go to the device as they are stored.
    library : str, optional
        Whose arrays the consumer asked for.
    resident : Resident, optional
        Where rows in memory are kept, too: batches are gathered there, and there are no windows.
    window_rows, window_bytes : int
        Of a device window.
    batch_bytes : int
        Of one batch while it is made and handed out.
    device_bytes : int
        The most that iterating takes of the device, batches that are kept not counted.
    """

    def __init__(self, device: Device, plan: LoaderPlan, held_rows: int) -> None:
        asked, sizes = plan.options.device, plan.sizes
        self.device, self.library = device, plan.options.output
        self.resident = asked if isinstance(asked, Resident) else None
        self.layout = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]()
        row_bytes = kept_bytes = scratch_bytes = 0
        for one in plan.source_readers:
            source, dtype = one.source, one.source.stored_dtype
            plain = source.ragged is None and not source.decodes
            if plain and on_gpus(dtype) and dtype.isnative:
                self.layout[one.name] = source.row_shape, dtype
                row_bytes += math.prod(source.row_shape) * dtype.itemsize
                kept_bytes += 0 if self.resident is None else one.nbytes
                made_of = plan.lay_out.out_dtypes.get(one.name, dtype)
                if made_of != dtype and made_of.char not in CAST_TO:  # in steps, not by one kernel
                    wide = max(4, dtype.itemsize, made_of.itemsize)
                    scratch_bytes += 2 * wide * math.prod(source.row_shape)
        self.window_rows = sizes.job_rows
        self.window_bytes, self.n_windows = self.window_rows * row_bytes, 0
        if self.resident is None:  # as many as one batch may lie in
            self.n_windows = (held_rows - 1) // self.window_rows + 2
        made = row_bytes + plan.lay_out.out_row_bytes + plan.lay_out.placed_row_bytes
        self.batch_bytes = held_rows * made + sizes.layout_bytes
        self.device_bytes = self.n_windows * self.window_bytes + kept_bytes
        self.device_bytes += DEVICE_BATCHES * self.batch_bytes + held_rows * scratch_bytes

    def memory(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Return host memory for an array of a buffer: pinned, where copies will start from it."""
        if name not in self.layout or self.resident is not None:
            return owned(name, shape, dtype)
        with self.memory_errors("host memory that can be pinned for copies to it"):
            made = self.device.pinned(shape, dtype)
        assert made[:0].base is made, "views must refer to it, for buffers to know who is held"
        return made

    def batch_memory(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return memory for rows of a batch: on the device, or where they are laid out."""
        empty = self.device.empty if name in self.layout else np.empty
        return empty(shape, dtype)

    @contextmanager
    def memory_errors(self, what: str = "memory") -> Iterator[None]:
        """Raise an error that says how much memory was needed if the device runs out."""
        try:
            yield
        except self.device.memory_errors as error:
            free = self.device.free_bytes()
            has = "" if free is None else f" has {format_bytes(free)} free and"
            raise DeviceMemoryError(
                f"device {self.device.name!r}{has} is out of {what}: this loader needs "
                f"{format_bytes(self.device_bytes)} there, besides batches that are kept; give a "
                f"smaller memory= or window_rows=, or smaller batches"
            ) from error


def device_of(device: Any) -> Device | None:
    """Return a device; None for the host. A device of torch's counts by its name.

    Raises
    ------
    LoaderError
        If there is no such device.
    MissingExtraError
        If it needs CuPy, which is not installed.
    """
    if type(device).__module__ == "torch":
        device = str(device)
    if isinstance(device, str):
        return None if device == "cpu" else cuda_device(device)
    if isinstance(device, Resident):
        return device.device
    if isinstance(device, Device):
        return device
    raise LoaderError(f"device={device!r} must be 'cpu', 'cuda' or 'cuda:<number>'")


def announced(windows: Iterator[Window]) -> Iterator[tuple[Window, tuple[WindowRows, ...]]]:
    """Yield windows, and those that are announced to the system when each begins.

    These are the next window and, at first, the window itself.
    """
    first = True
    for window, following in pairwise(chain(windows, [None])):
        assert window is not None
        ahead = (window, following) if first else (following,)
        yield window, tuple([one.content for one in ahead if one is not None])
        first = False


class LoaderPlan:
    """Everything that is fixed when a loader is made: how selected rows of sources are served.

    Raises
    ------
    LoaderError
        If an option does not fit the sources, or `memory` is too small; no row is read but for
        the labels of `balance`.
    SpecsError
        If the specs do not fit the sources.

    Attributes
    ----------
    source_readers : sequence of SourceReader
        The sources that are read.
    epoch_plan : EpochPlan
        Of the first epoch; later ones differ in the epoch number alone.
    position_of : int64 array, optional
        Dataset position of each position of the order, where they differ; see `OrderedRows`.
    held_rows : int
        Rows of the largest batch there can be.
    lay_out : BatchLayout
        Called with stored arrays; returns what is handed out.
    pipeline : CompiledPipeline, optional
        What happens to batches on their way to the consumer.
    uncounted : tuple of str
        Its steps that do not say how much memory they take.
    device_plan : DevicePlan, optional
        What is needed on the device where batches are made; on the host when None.
    goes_to : Device, optional
        Where batches go that a pipeline makes on the host, before its batch stage.
    hand_over : HandedOver, optional
        Makes another library's arrays of what is handed out.
    job_offset : int, optional
        Jobs of file order are cut at ``offset + k * job_rows``, so that no stored chunk is
        decoded twice; places are cut (at multiples of `job_rows`) when None.
    row_bytes : int
        Stored bytes of one row over all sources.
    plan_hash : str
        Over everything the order depends on, for saved states.
    """

    def __init__(
        self,
        sources: Sources,
        selections: Selections,
        spaces: Spaces,
        n_rows: int,
        options: BatchOptions,
    ) -> None:
        self.options, compiled = options, options.compiled_pipeline
        rows = OrderedRows(options, sources, selections, n_rows)
        self.position_of, self.held_rows = rows.position_of, rows.held_rows
        self.lay_out = layout = BatchLayout(options, sources, spaces, pads=rows.last == "pad")
        self.pipeline, makes, where = None, None, None
        if compiled is not None:
            self.pipeline = pipeline_in_form(compiled, layout)
            if compiled.whole or compiled.takes_apart:
                makes = self.pipeline.made_of(layout.forms(selections))
        makes_on_host = makes is not None
        if not isinstance(options.device, str) or options.device != "cpu":
            where = _device_for(options, makes_on_host=makes_on_host)
        self.hand_over: HandedOver | None = None
        if options.output is not None or options.pinned or options.as_tuple:
            self.hand_over = HandedOver(options, layout if self.pipeline is None else None)
        self.uncounted = () if makes is None else makes.uncounted
        self.sizes = sizes = plan_memory(rows, layout, makes)
        self.source_readers, self.row_bytes = list[SourceReader](), 0
        self.job_offset: int | None = None
        for name, source in layout.sources.items():
            chosen, keep = (source, selections[name], rows.position_of), name in sizes.kept
            if source.ragged is None:
                one = SourceReader(*chosen, keep=keep)
            else:
                one = RaggedSourceReader(sizes.example_bytes[name], *chosen, keep=keep)
            self.source_readers.append(one)
            self.row_bytes += one.row_bytes
            if rows.mode == "file" and one.layout.expensive and not one.keep:
                units = rows.units
                if isinstance(units, UniformUnits) and not sizes.job_rows % units.unit_rows:
                    # no stored chunk is decoded by two jobs
                    self.job_offset = units.first_rows % units.unit_rows
        self.epoch_plan = rows.epoch_plan(sizes.window_rows)
        self.device_plan, self.goes_to = None, where if makes_on_host else None
        if where is not None and not makes_on_host:
            self.device_plan = DevicePlan(where, self, rows.held_rows)
        tokens = list[tuple[str, str]]()
        for name in sorted(selections):
            tokens.append((name, selections[name].token))
        layout_hash = f"{key_of(repr([tokens, rows.units.digest])):032x}"
        self.plan_hash = plan_hash(self.epoch_plan, layout_hash)
        log.info(
            "%d rows, shuffle=%r, windows of %d; %d threads, %d buffers of %d rows, at most "
            "%d bytes", n_rows, rows.mode, sizes.window_rows, sizes.threads, sizes.n_buffers,
            sizes.job_rows, sizes.promised_bytes,
        )  # fmt: skip
        room = available_bytes()
        if sizes.promised_bytes > room:
            warn(f"batches may take {format_bytes(sizes.promised_bytes)}, but {room_words(room)}")

    def jobs(self, epoch_plan: EpochPlan, first_batch: int) -> Iterator[Job]:
        """Cut an epoch of this plan into jobs, from a batch on."""
        job_rows, offset = self.sizes.job_rows, self.job_offset
        windows = epoch_plan.windows(first_batch)
        ahead_of: Iterator[tuple[Window, tuple[WindowRows, ...] | None]]
        # Where rows are picked one by one, runs of windows are to be fetched as a whole.
        ahead_of = announced(windows) if self.sizes.picks else zip(windows, repeat(None))
        for window, ahead in ahead_of:
            start, stop, content = window
            if stop - start <= job_rows and offset is None and not self.sizes.picks:
                yield window
                continue
            run = content.run
            shift = 0 if run is None else run[0] - start
            rows = None if run is not None else content.rows
            cut = 0 if run is None or offset is None else offset - shift
            a = start
            while a < stop:
                b = min(stop, a + job_rows - (a - cut) % job_rows)
                if rows is None:
                    yield a, b, WindowRows(run=(a + shift, b + shift))
                else:
                    yield a, b, WindowRows(listed=rows[a - start : b - start], ahead=ahead)
                    ahead = None if ahead is None else ()
                a = b

    @property
    def all_kept(self) -> bool:
        """Whether every source is held in memory, so that windows may be cut anywhere."""
        return all(source_reader.keep for source_reader in self.source_readers)

    @property
    def device(self) -> Device | None:
        """Where batches are handed out; None for the host."""
        return self.goes_to if self.device_plan is None else self.device_plan.device


def _device_for(options: BatchOptions, *, makes_on_host: bool) -> Device | None:
    """Return where batches are made; None for the host.

    Raises
    ------
    LoaderError
        If there is no such device, or an option does not go with it.
    MissingExtraError
        If it needs CuPy, which is not installed; torch has a way to a GPU without.
    """
    try:
        device = device_of(options.device)
    except MissingExtraError as error:
        if options.output != "torch":
            raise
        raise MissingExtraError(
            f"{error}. torch needs no CuPy for it: pass output='torch', pinned=True without "
            f"device=, and in the loop write tensor.to({str(options.device)!r}, non_blocking=True)"
        ) from None
    if device is None:
        return None
    if options.skips and not makes_on_host:
        clash = "errors='skip', which leaves rows out on the host"
    elif options.output == "numpy" and device.name != "host":
        clash = "output='numpy', whose arrays are the host's"
    else:
        return device
    asked = f"device={device.name!r}"
    asked = f"load({asked})" if isinstance(options.device, Resident) else asked
    raise LoaderError(f"{asked} does not go with {clash}; leave one of them out")
