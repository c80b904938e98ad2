"""What an epoch will take, before the first row is read, and what it took.

Costs come from the readers, which count without reading rows: of every job where there are few,
else of some of them spread over the epoch, so that the figures are estimates then. How well an
order mixes the labels of a batch is found from integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled._validation import check_classes
from labeled.display.plots import Axes, RowLines, draw_rows
from labeled.display.text import Summary, Table, Viewed, count_words, sizes_words
from labeled.errors import LoaderError
from labeled.formats.contiguous import LARGE_ROW_BYTES
from labeled.formats.memory import available_bytes
from labeled.formats.reader import Cost, as_runs
from labeled.loader.memory import room_words, size_words
from labeled.loader.options import read_values
from labeled.loader.plan import Job, LoaderPlan
from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import expected_quality, rows_for_quality
from labeled.samplers.windows import shuffle_argument

# the class of each row, or the source to read classes from; ten equal classes when None
Labels = npt.ArrayLike | str | None

GOOD_QUALITY = 0.95  # below this share of the entropy of a full shuffle, more memory is recommended


# what an epoch took


@dataclass(repr=False)
class Stats(Viewed):
    """Times of an epoch in seconds, and counts of what was done."""

    load_s: float = 0.0
    """Reading the sources that are kept in memory, before the first batch of the first epoch."""
    read_s: float = 0.0
    """Reading, summed over threads; also decoding where HDF5 itself does it."""
    decode_s: float = 0.0
    """Undoing filters, parsing text and decoding pictures, summed over threads."""
    plan_s: float = 0.0
    """Computing which rows come next."""
    wait_s: float = 0.0
    """The caller waiting for a thread."""
    help_s: float = 0.0
    """The caller reading in its own thread."""
    format_s: float = 0.0
    """Laying batches out: cutting, casting, permuting."""
    pipeline_s: float = 0.0
    """In a pipeline's transforms and collate, summed over threads."""
    consumer_s: float = 0.0
    """Between handing out a batch and being asked for the next."""
    n_windows: int = 0
    """Jobs that were read: windows, or pieces of them."""
    n_tasks: int = 0
    n_batches: int = 0
    n_rows: int = 0
    n_lost: int = 0
    """Rows left out because they could not be read."""
    n_bytes: int = 0
    bus_bytes: int = 0
    """Bytes of windows copied to a device."""
    wall_s: float = 0.0
    """In the loader, from being asked for a batch to handing it out."""

    @property
    def rows_per_s(self) -> float:
        """Rows per second, the consumer's own time included."""
        return self.n_rows / (self.wall_s + self.consumer_s or math.inf)

    @property
    def bytes_per_s(self) -> float:
        """Stored bytes of the rows handed out a second, the consumer's own time included."""
        return self.n_bytes / (self.wall_s + self.consumer_s or math.inf)

    def _summary(self) -> Summary:
        words = [
            f"loader {self.wall_s:.3f} s: waiting {self.wait_s:.3f}, reading by itself "
            f"{self.help_s:.3f}, laying out {self.format_s:.3f}",
            f"consumer {self.consumer_s:.3f} s; loading what is kept {self.load_s:.3f} s",
            f"all threads: reading {self.read_s:.3f} s and decoding {self.decode_s:.3f} s in "
            f"{count_words(self.n_tasks, 'task')} of {count_words(self.n_windows, 'window')}, "
            f"planning {self.plan_s:.3f} s, pipeline {self.pipeline_s:.3f} s",
        ]
        if self.n_lost:
            words.append(f"{count_words(self.n_lost, 'row')} lost")
        if self.bus_bytes:
            words.append(f"to the device: {format_bytes(self.bus_bytes)}")
        title = (
            f"{count_words(self.n_rows, 'row')} in {count_words(self.n_batches, 'batch')}: "
            f"{self.rows_per_s:,.0f} rows/s, {format_bytes(round(self.bytes_per_s))}/s"
        )
        return Summary(title, parts=words)


# what one will take


@dataclass(frozen=True)
class SourceExplained:
    """One source: the path its bytes take and what an epoch costs."""

    name: str
    path: str
    why: str
    kept: bool
    bytes_read: int
    bytes_used: int
    n_reads: int
    chunks_decoded: int
    # stored chunks that hold a wanted row: each decoded once is the least there can be
    chunks_needed: int


class Explanation(Viewed):
    """What an epoch will take from some batch on; see :meth:`labeled.Loader.explain`.

    Attributes
    ----------
    quality : float or None
        Expected entropy of the labels of a batch, relative to a full shuffle.
    window_rows_for_quality : int or None
        Rows a window must have to reach 0.95, where this plan does not.
    memory_for_quality : int
        With which `memory` they are made.
    mapped_bytes : int
        Bytes of files whose pages may be mapped while rows are gathered from them: the
        system's own cache, not counted in `promised_bytes`, let go of again and again.
    in_flight : int
        Batches in a pipeline at a time; 0 where there is none.
    uncounted : tuple of str
        Steps of it that do not say how much memory they take.
    device : str
        Where batches are made.
    pinned_bytes : int
        Of host memory from which windows are copied to a device; counted in `promised_bytes`.
    device_windows, device_bytes : int
        Windows on the device, and the most that these and batches on their way take there.
        Batches that the consumer keeps are not counted.
    exact : bool
        False where costs were scaled up from some of the windows.
    """

    def __init__(self, plan: LoaderPlan, epoch: EpochPlan, labels: Labels, first: int) -> None:
        sizes, order, there = plan.sizes, epoch.order, plan.device_plan
        self.mode, self.n_rows = order.mode, epoch.n_rows - epoch.span(first)[0]
        self.n_batches, self.batch_rows = epoch.n_batches - first, epoch.batch_rows
        self.n_windows = -(-epoch.n_windows * self.n_rows // max(1, epoch.n_rows))
        self.window_rows = min(order.window_rows, order.n_rows or 1)
        jobs, share = sampled_jobs(plan, epoch, first, self.n_rows)
        self.n_jobs, self.exact = round(len(jobs) / share), share == 1.0
        self.job_rows, self.n_buffers, self.threads = sizes.job_rows, sizes.n_buffers, sizes.threads
        self.in_flight, self.uncounted = sizes.in_flight, plan.uncounted
        self.memory_bytes, self.promised_bytes = sizes.memory_bytes, sizes.promised_bytes
        self.kept_bytes, self.mapped_bytes = sizes.kept_bytes, 0
        self.device = "cpu" if plan.device is None else plan.device.name
        self.pinned_bytes = self.device_windows = self.device_bytes = 0
        if there is not None:
            self.device_windows, self.device_bytes = there.n_windows, there.device_bytes
            self.pinned_bytes = sizes.n_buffers * there.window_bytes * (there.resident is None)
        self.sources, unkept = list[SourceExplained](), list[int]()
        for one in plan.source_readers:
            source, reader, cost, part = one.source, one.reader, Cost(), share
            if one.keep:  # read once, whole
                cost, part = cost if one.kept is not None else one.whole_cost(), 1.0
            else:
                unkept.append(one.nbytes)
                for _, _, content in jobs:
                    cost += one.cost(content)
                small = source.row_bytes < LARGE_ROW_BYTES or source.io == "mmap"
                mapped = source.layout.mapped and source.loaded is None and small
                if mapped and (order.mode == "full" or sizes.picks):
                    self.mapped_bytes += source.n_rows * source.row_bytes
            figures = [round(figure / part) for figure in astuple(cost)]
            figures.append(one.whole_cost().chunks_decoded if cost.chunks_decoded else 0)
            how = one.name, reader.kind, reader.why, one.keep
            self.sources.append(SourceExplained(*how, *figures))
        self.quality, wanted = shuffle_quality(plan, epoch, labels)
        self.window_rows_for_quality, self.memory_for_quality = wanted, sizes.memory_bytes
        if wanted is not None and unkept:
            self.memory_for_quality = sizes.memory_for(wanted, unkept)
        self.reads = first_reads(plan, jobs, order.mode)
        """What the largest source reads for the first windows, for a picture."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        sources, reads = [asdict(one) for one in self.sources], self.reads and asdict(self.reads)
        return {**vars(self), "sources": sources, "reads": reads}

    def _summary(self) -> Summary:
        about, read, used, lines = "" if self.exact else "about ", 0, 0, list[tuple[str, ...]]()
        for one in self.sources:
            read, used = read + one.bytes_read, used + one.bytes_used
            times = one.chunks_decoded / (one.chunks_needed or 1)
            decoded = f"{one.chunks_decoded:,} ({times:.2f} x)" if one.chunks_decoded else "-"
            path = one.path + (" (kept)" if one.kept else "")
            sizes = format_bytes(one.bytes_read), format_bytes(one.bytes_used)
            lines.append((one.name, path, f"{one.n_reads:,}", *sizes, decoded, one.why))
        title = (
            f"Plan of an epoch: {count_words(self.n_rows, 'row')} in "
            f"{count_words(self.n_batches, 'batch')} of {self.batch_rows:,}, "
            f"{shuffle_argument(self.mode)}"
        )
        kept = f", {format_bytes(self.kept_bytes)} kept for later epochs" if self.kept_bytes else ""
        words = [
            f"reads {about}{format_bytes(read)} of the file for {format_bytes(used)} of rows; "
            f"{about}{count_words(self.n_jobs, 'job')} of up to {self.job_rows:,} rows, "
            f"{count_words(self.threads, 'background thread')}",
            f"memory: at most {format_bytes(self.promised_bytes)} of "
            f"{format_bytes(self.memory_bytes)} ({self.n_buffers} buffers{kept})",
        ]
        room, there = available_bytes(), format_bytes(self.device_bytes)
        if self.promised_bytes > room:
            words.append(f"more than there is: {room_words(room)}")
        if self.mapped_bytes:
            words.append(
                "not counted: pages of files in the system's cache, mapped while rows are picked "
                f"from them, of {format_bytes(self.mapped_bytes)}"
            )
        if self.in_flight:
            who = f"{self.threads} threads" if self.threads else "the caller"
            rest = f"; not counted: what {', '.join(self.uncounted)} makes" * bool(self.uncounted)
            words.append(f"a pipeline: up to {self.in_flight} batches at a time in {who}{rest}")
        if self.device_windows:
            words.append(
                f"device {self.device!r}: at most {there} there "
                f"({count_words(self.device_windows, 'window')}, and batches on their way), copied "
                f"from {format_bytes(self.pinned_bytes)} of pinned memory"
            )
        elif self.device != "cpu":
            what = "batches go there out of the pipeline"
            what = what if self.in_flight else f"{there} there, batches gathered from kept rows"
            words.append(f"device {self.device!r}: {what}")
        if self.mode == "window":
            windows = count_words(self.n_windows, "window")
            words.append(f"{windows} of about {self.window_rows:,} rows")
        if self.quality is not None:
            words.append(f"shuffle quality: {self.quality:.3f} of a full shuffle")
        if self.window_rows_for_quality is not None:
            words[-1] += (
                f" (for {GOOD_QUALITY}: window_rows={self.window_rows_for_quality:,}, "
                f"memory={size_words(self.memory_for_quality)!r})"
            )
        head = ("source", "path", "reads", "read", "used", "chunks decoded", "why")
        return Summary(title, "", [*words, Table(head, lines)])


def loader_summary(plan: LoaderPlan, epoch_plan: EpochPlan, first_batch: int) -> Summary:
    """Summarize a loader: its order, then a line a source; asks no file, for it may be gone."""
    sizes, order, shard, lay_out = plan.sizes, epoch_plan.order, epoch_plan.shard, plan.lay_out
    title = (
        f"{epoch_plan.n_batches:,} batches of {epoch_plan.batch_rows:,} rows, "
        f"{shuffle_argument(order.mode)}, seed={order.seed}, epoch={order.epoch}"
    )
    title += f", shard={shard}" if shard[1] > 1 else ""
    title += f", going on at batch {first_batch:,}" if first_batch else ""
    rows = []
    for one in plan.source_readers:
        kept = one.keep or one.source.loaded is not None
        row = sizes_words(one.source.dims[1:], one.source.row_shape)
        where = "kept in memory" if kept else "read ahead"
        text = one.source.ragged is None and one.source.dtype.hasobject
        rows.append((one.name, row, "text" if text else str(one.source.dtype), where))
    made = "a mapping of source to DataArray" if lay_out.specs is None else lay_out.specs.specs
    more = (
        f"batches: {made}",
        f"memory: at most {format_bytes(sizes.promised_bytes)} of "
        f"{format_bytes(sizes.memory_bytes)}, {count_words(sizes.threads, 'background thread')}",
        "explain() shows what an epoch reads, before it reads; stats() where the time went",
    )
    head = ("source", "a row", "dtype in the file", "rows are")
    return Summary("labeled.Loader", title, (Table(head, rows),), more)


# how it is found

# jobs that are counted one by one, and the rows that these shuffle, which takes time as well
COUNTED_JOBS, COUNTED_ROWS = 256, 1 << 25

# windows of the picture, and runs of each: more could not be distinguished
DRAWN_JOBS, DRAWN_RUNS = 8, 120


def sampled_jobs(
    plan: LoaderPlan, epoch_plan: EpochPlan, first_batch: int, n_rows: int
) -> tuple[list[Job], float]:
    """Return the jobs that are left, or some of them where they are many, and which share."""
    most = COUNTED_JOBS
    if epoch_plan.order.mode == "window":
        most = max(8, min(most, COUNTED_ROWS // plan.sizes.job_rows))
    if plan.all_kept:  # no job costs anything, but to shuffle a window for a far one does
        jobs = list(islice(plan.jobs(epoch_plan, first_batch), COUNTED_JOBS))
    elif n_rows <= most * plan.sizes.job_rows:
        jobs = list(plan.jobs(epoch_plan, first_batch))
    else:
        found = {}
        for batch in np.linspace(first_batch, epoch_plan.n_batches - 1, most // 4).astype(int):
            for job in islice(plan.jobs(epoch_plan, int(batch)), 1, 2):  # the first may be a part
                found[job[0]] = job
        jobs = list(found.values())
    return jobs, sum([stop - start for start, stop, _ in jobs]) / n_rows if n_rows else 1.0


def first_reads(plan: LoaderPlan, jobs: list[Job], mode: str) -> RowLines | None:
    """What the largest source reads for some of the windows: some of the runs of each."""
    if not jobs:
        return None
    largest = max(plan.source_readers, key=attrgetter("row_bytes"))
    layout, n_rows, lines = largest.layout, largest.reader.n_rows, {}
    called = "window" if mode == "window" else "job"
    for start, _, content in jobs[:DRAWN_JOBS]:
        runs = as_runs(largest.file_rows(content)[0])
        runs, chunks = runs[:: -(-len(runs) // DRAWN_RUNS) or 1], np.empty((0, 2), np.int64)
        if layout.chunk_rows is not None and not largest.keep:
            edges = layout.edges
            if edges is None:
                edges = np.arange(0, n_rows + layout.chunk_rows, layout.chunk_rows)
            first = np.searchsorted(edges, runs[:, 0], side="right") - 1
            last = np.searchsorted(edges, runs[:, 1], side="left")
            first[1:] = np.maximum(first[1:], last[:-1])  # a chunk of two runs is drawn once
            chunks = np.minimum(edges[np.stack([first, last], axis=1)], n_rows)
        lines[f"{called} at row {start:,} of the epoch"] = (chunks.tolist(), runs.tolist())
    where = "kept in memory" if largest.keep else "in the file"
    return RowLines(lines, n_rows, f"row of {largest.name!r} {where}", layout.chunk_rows or 1)


def shuffle_quality(
    plan: LoaderPlan, epoch_plan: EpochPlan, labels: Labels
) -> tuple[float | None, int | None]:
    """Return the expected entropy of batches, and the rows a window must have where it is low.

    None for what is not shuffled, or is mixed well.

    Raises
    ------
    LoaderError
        If there is not one label a row, or no such source.
    """
    order, known = epoch_plan.order, None
    if order.sampler is not None or not epoch_plan.n_batches or order.mode == "file":
        return None, None
    if isinstance(labels, str):
        sources = {one.name: one.source for one in plan.source_readers}
        selections = {one.name: one.selection for one in plan.source_readers}
        labels = read_values("labels", labels, sources, selections)
    if labels is not None:
        known = np.asarray(labels).reshape(-1)
        check_classes("labels=", known, "labels", LoaderError)
        if len(known) != order.n_rows:
            raise LoaderError(f"{len(known)} labels for {order.n_rows} rows; give one a row")
        known = known if plan.position_of is None else known[plan.position_of]
    quality = expected_quality(epoch_plan, known)
    if quality >= GOOD_QUALITY or order.mode != "window":
        return quality, None
    return quality, rows_for_quality(GOOD_QUALITY, epoch_plan, known)


# pictures


@dataclass(frozen=True, repr=False)
class LoaderPlots:
    """What ``loader.plot`` offers."""

    explain: Callable[..., Explanation]

    def plan(self, labels: Labels = None, *, ax: Axes | None = None) -> Axes:
        """Draw where the first windows of the coming epoch read in the file; reads no rows.

        Parameters
        ----------
        labels : array, lengths ``(n_rows,)``, or str, optional
            Classes, for the shuffle quality in the title; see :meth:`labeled.Loader.explain`.
        ax : matplotlib axes, optional

        Returns
        -------
        matplotlib axes
            Rows that are wanted, dark; with them the rest of the chunks that must be decoded.

        Raises
        ------
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        LoaderError
            If the epoch has no rows.
        """
        plan = self.explain(labels)
        if plan.reads is None:
            raise LoaderError("there is no plan to draw: the epoch has no rows")
        title = f"{count_words(plan.n_rows, 'row')}, {shuffle_argument(plan.mode)}"
        if plan.quality is not None:
            title += f", {plan.quality:.2f} of a full shuffle"
        return draw_rows(plan.reads, title, ax)
