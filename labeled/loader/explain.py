"""What an epoch will take, before the first row is read: figures, text and pictures.

Costs come from the readers, which count without reading rows: of every job where there are few,
else of some of them spread over the epoch, so that the figures are estimates then. How well an
order mixes the labels of a batch, and how much padding its buckets leave, is found from integers.

A loader at a glance takes a plan and a place in it, and asks readers nothing, so that a file may
be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled import permute
from labeled._validation import check_classes
from labeled.display.plots import Axes, Reads, WindowRead, draw_reads
from labeled.display.summary import Summary, Table
from labeled.display.text import count_words, sizes_words
from labeled.errors import LoaderError
from labeled.formats.contiguous import LARGE_ROW_BYTES
from labeled.formats.memory import available_bytes, machine_bytes
from labeled.formats.reader import Cost, as_runs
from labeled.loader.memory import room_words, size_words
from labeled.loader.ordering import read_classes
from labeled.loader.plan import Job, LoaderPlan, n_cuts
from labeled.loader.source_readers import RaggedSourceReader, SourceReader
from labeled.loader.stats import Stats
from labeled.ragged.padding import padding_waste
from labeled.samplers.draws import Draws
from labeled.samplers.listed import AnyPlan
from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import expected_quality, rows_for_quality
from labeled.samplers.windows import Order, shuffle_argument
from labeled.sources.source import Source

Rows = npt.NDArray[np.int64]

GOOD_QUALITY = 0.95
"""Below this share of the entropy of a full shuffle, more memory is recommended."""


# the figures


@dataclass(frozen=True)
class SourceExplained:
    """One source: the path its bytes take and what an epoch costs."""

    name: str
    path: str
    why: str
    kept: bool
    chunk_rows: int
    bytes_read: int
    bytes_used: int
    n_reads: int
    chunks_decoded: int
    chunks_needed: int
    """Stored chunks that hold a wanted row: each decoded once is the least there can be."""

    @property
    def amplification(self) -> float:
        """How often a chunk is decoded in an epoch, on average."""
        return self.chunks_decoded / self.chunks_needed if self.chunks_needed else 1.0

    @property
    def cells(self) -> tuple[str, ...]:
        """Return its line of the table."""
        decoded = f"{self.chunks_decoded:,} ({self.amplification:.2f} x)"
        return (
            self.name,
            self.path + (" (kept)" if self.kept else ""),
            f"{self.n_reads:,}",
            format_bytes(self.bytes_read),
            format_bytes(self.bytes_used),
            decoded if self.chunks_decoded else "-",
            self.why,
        )


@dataclass(frozen=True)
class Explanation:
    """A plan in figures; see :meth:`labeled.Loader.explain`.

    Attributes
    ----------
    quality : float or None
        Expected entropy of the labels of a batch, relative to a full shuffle.
    window_rows_for_quality : int or None
        Rows a window must have to reach 0.95, where this plan does not.
    padding : (float, float), optional
        With `bucket`: the share of padding in batches padded to their longest example, and
        what it would be without.
    mapped_bytes : int
        Bytes of files whose pages may be mapped while rows are gathered from them: the
        system's own cache, not counted in `promised_bytes`, let go of again and again.
    workers, in_flight : int
        Threads of a pipeline, and the batches in it at a time; 0 where there is none.
    uncounted : tuple of str
        Steps of it that do not say how much memory they take.
    device : str
        Where batches are made.
    pinned_bytes : int
        Of host memory from which windows are copied to a device; counted in `promised_bytes`.
    device_windows, device_bytes : int
        Windows on the device, and the most that these and batches on their way take there.
        Batches that the consumer keeps are not counted.
    amplification : float
        With draws: how many rows are read for each that is handed out.
    exact : bool
        False where costs were scaled up from some of the windows.
    """

    mode: str
    n_rows: int
    n_batches: int
    batch_rows: int
    n_windows: int
    window_rows: int
    n_jobs: int
    job_rows: int
    slots: int
    threads: int
    workers: int
    in_flight: int
    uncounted: tuple[str, ...]
    memory_bytes: int
    promised_bytes: int
    kept_bytes: int
    quality: float | None
    window_rows_for_quality: int | None
    memory_for_quality: int | None
    padding: tuple[float, float] | None
    mapped_bytes: int
    device: str
    pinned_bytes: int
    device_windows: int
    device_bytes: int
    amplification: float
    exact: bool
    kernels: str
    sources: tuple[SourceExplained, ...]
    reads: Reads | None
    """What the largest source reads for the first windows, for a picture."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()

    def _summary(self) -> Summary:
        title, *words = self._words()
        head = ("source", "path", "reads", "read", "used", "chunks decoded", "why")
        table = Table(head, [source_reader.cells for source_reader in self.sources])
        return Summary(title, "", [*words, table])

    def _words(self) -> list[str]:
        about = "" if self.exact else "about "
        read = used = 0
        for source_reader in self.sources:
            read, used = read + source_reader.bytes_read, used + source_reader.bytes_used
        kept = f", {format_bytes(self.kept_bytes)} kept for later epochs" if self.kept_bytes else ""
        words = [
            f"Plan of an epoch: {count_words(self.n_rows, 'row')} in "
            f"{count_words(self.n_batches, 'batch')} of {self.batch_rows:,}, "
            f"{shuffle_argument(self.mode)}",
            f"reads {about}{format_bytes(read)} of the file for {format_bytes(used)} of rows; "
            f"{about}{count_words(self.n_jobs, 'job')} of up to {self.job_rows:,} rows, "
            f"{count_words(self.threads, 'background thread')}",
            f"memory: at most {format_bytes(self.promised_bytes)} of "
            f"{format_bytes(self.memory_bytes)} ({self.slots} slots{kept})",
        ]
        if self.promised_bytes > (room := available_bytes()):
            words.append(f"more than there is: {room_words(room)}")
        if self.device != "cpu" and self.in_flight:
            words.append(f"device {self.device!r}: batches go there out of the pipeline")
        elif self.device != "cpu":
            words.append(
                f"device {self.device!r}: at most {format_bytes(self.device_bytes)} there "
                f"({count_words(self.device_windows, 'window')}, and batches on their way), copied "
                f"from {format_bytes(self.pinned_bytes)} of pinned memory"
            )
        if self.mapped_bytes:
            words.append(
                f"not counted: pages of files in the system's cache, mapped while rows are picked "
                f"from them, of {format_bytes(self.mapped_bytes)}"
            )
        if self.mode == "full" and self.mapped_bytes > (memory := machine_bytes()):
            words.append(
                f"more than the {format_bytes(int(memory))} of memory there may be: most rows are "
                "a read of their own from storage; shuffle='window' reads many together"
            )
        if self.kernels.startswith("compiled"):
            words.append("not counted: compiled kernels, about 50 MiB once a process, if needed")
        if self.in_flight:
            who = f"{self.workers} threads" if self.workers else "the caller"
            rest = (
                f"; not counted: what {', '.join(self.uncounted)} makes" if self.uncounted else ""
            )
            words.append(f"a pipeline: up to {self.in_flight} batches at a time in {who}{rest}")
        if self.mode == "window":
            windows = count_words(self.n_windows, "window")
            words.append(f"{windows} of about {self.window_rows:,} rows")
        if self.quality is not None:
            words.append(f"shuffle quality: {self.quality:.3f} of a full shuffle{self._remedy()}")
        if self.padding is not None:
            words.append("buckets: {:.1%} padding (without them {:.1%})".format(*self.padding))
        if self.amplification > 1.005:
            words.append(f"draws read {self.amplification:.2f} rows for each one handed out")
        return words

    def _remedy(self) -> str:
        if self.window_rows_for_quality is None or self.memory_for_quality is None:
            return ""
        return (
            f" (for {GOOD_QUALITY}: window_rows={self.window_rows_for_quality:,}, "
            f"memory={size_words(self.memory_for_quality)!r})"
        )


def loader_summary(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> Summary:
    """Summarize a loader: its order, then a line a source."""
    sizes = plan.sizes
    promised, given = format_bytes(sizes.promised_bytes), format_bytes(sizes.memory_bytes)
    head = ("source", "a row", "dtype in the file", "rows are")
    more = (
        f"batches: {_batch_words(plan)}",
        f"memory: at most {promised} of {given}, {count_words(sizes.threads, 'background thread')}",
        "explain() shows what an epoch reads, before it reads; stats() where the time went",
    )
    words = _order_words(plan, epoch_plan, first_batch)
    return Summary("labeled.Loader", words, (Table(head, _sources(plan)),), more)


def _order_words(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> str:
    order, shard = epoch_plan.order, plan.epoch_plan.shard
    words = [
        f"{epoch_plan.n_batches:,} batches of {plan.batch_rows:,} rows",
        shuffle_argument(plan.epoch_plan.order.mode),
        f"seed={order.seed}",
        f"epoch={order.epoch}",
    ]
    if shard[1] > 1:
        words.append(f"shard={shard}")
    if first_batch:
        words.append(f"going on at batch {first_batch:,}")
    return ", ".join(words)


def _batch_words(plan: LoaderPlan) -> str:
    """Say what is handed out, and what became of it on the way."""
    finish = plan.finish
    if finish.specs is not None:
        words = [f"arrays as {finish.specs.specs} says"]
    else:
        words = ["a mapping of source to DataArray"]
    for name, change in finish.casts.items():
        cast = "" if change.dtype is None else f" as {change.dtype}"
        cast += " scaled" if change.scaled else ""
        cast += "" if change.n_classes is None else f" of {change.n_classes:,} classes"
        if change.axes is not None:
            cast += f" in the order {', '.join(change.sizes(finish.sources[name], 0))}"
        words.append(name + cast)
    if plan.line is not None:
        words.append("through a pipeline")
    if plan.device is not None:
        words.append(f"on {plan.device.name}")
    if plan.hand is not None:
        words.append(f"handed over to {plan.hand.to.library}")
    return ", ".join(words)


def _sources(plan: LoaderPlan) -> list[tuple[str, str, str, str]]:
    """Each source in words."""
    return [
        (
            source_reader.name,
            sizes_words(source_reader.source.dims[1:], source_reader.source.row_shape),
            str(source_reader.source.dtype),
            "kept in memory"
            if source_reader.keep or source_reader.source.loaded is not None
            else "read ahead",
        )
        for source_reader in plan.source_readers
    ]


# how it is found

COUNTED_JOBS, COUNTED_ROWS = 256, 1 << 25
"""Jobs that are counted one by one, and the rows that these shuffle, which takes time as well."""


def sampled_jobs(
    plan: LoaderPlan, epoch: AnyPlan, first_batch: int, n_rows: int
) -> tuple[list[Job], int, float]:
    """Return some jobs of what is left, how many there are, and the share that these are.

    Windows whose rows are picked one by one stand for their jobs: they are what a disk reads.
    """
    if not n_rows:
        return [], 0, 1.0
    if plan.sizes.whole is not None:
        whole = replace(plan, sizes=plan.sizes.whole)
        windows, _, share = sampled_jobs(whole, epoch, first_batch, n_rows)
        n_jobs = sum(n_cuts(start, stop, plan.sizes.job_rows) for start, stop, _ in windows)
        return windows, round(n_jobs / share), share
    job_rows, most = plan.sizes.job_rows, COUNTED_JOBS
    if epoch.order.mode == "window":
        most = max(8, min(most, COUNTED_ROWS // max(1, job_rows)))
    firsts, each = [first_batch], None
    if plan.all_kept:  # no job costs anything, but to shuffle a window for a far one does
        each = COUNTED_JOBS
    elif n_rows > most * job_rows:
        spread = np.linspace(first_batch, epoch.n_batches - 1, most // 4).astype(int)
        firsts = [max(first_batch, _job_start(epoch, n, job_rows)) for n in spread.tolist()]
        each = 1
    found: dict[int, Job] = {}
    for first in firsts:  # far batches may begin in the same job
        for job in islice(plan.jobs(epoch, first), each):
            found.setdefault(job[0], job)
    jobs = list(found.values())
    share = 1.0 if each is None else sum(stop - start for start, stop, _ in jobs) / n_rows
    return jobs, round(len(jobs) / share), share


def _job_start(epoch: AnyPlan, batch: int, job_rows: int) -> int:
    """Return the first batch that begins in the job that a batch begins in."""
    place = epoch.span(batch)[0]
    first = 0  # of its window
    if isinstance(epoch, EpochPlan):
        order, low, _ = next(epoch.spans(place, place + 1))
        first = place - low + order.window_at(low)[1]
    if epoch.order.mode != "window":
        first = max(first, place - place % job_rows)
    return max(0, -(-first // epoch.batch_rows))


def explain_source(
    source_reader: SourceReader, plan: LoaderPlan, jobs: list[Job], share: float
) -> SourceExplained:
    """Count what a source costs in jobs that are a share of the epoch, and scale it up."""
    cost, whole = Cost(), source_reader.whole_cost
    if source_reader.keep:  # read once, whole
        cost, share = Cost() if source_reader.is_loaded else whole(), 1.0
    else:
        for _, _, content in jobs:
            cost += source_reader.cost(content, plan.group)
        if source_reader.layout.held_bytes and plan.epoch_plan.order.mode == "file":
            # Chunks are kept from job to job: each counts once, as far as the rows of jobs go.
            once = whole()
            part = cost.bytes_used / max(1, once.bytes_used)
            cost = replace(
                cost,
                bytes_read=round(once.bytes_read * part),
                n_reads=round(once.n_reads * part),
                chunks_decoded=round(once.chunks_decoded * part),
            )
    chunks_decoded = round(cost.chunks_decoded / share)
    return SourceExplained(
        name=source_reader.name,
        path=source_reader.reader.kind,
        why=source_reader.reader.why,
        kept=source_reader.keep,
        chunk_rows=source_reader.layout.chunk_rows or 1,
        bytes_read=round(cost.bytes_read / share),
        bytes_used=round(cost.bytes_used / share),
        n_reads=round(cost.n_reads / share),
        chunks_decoded=chunks_decoded,
        chunks_needed=whole().chunks_decoded if chunks_decoded else 0,
    )


def mapped_bytes(source_reader: SourceReader) -> int:
    """Return the bytes that rows in random order are picked from by a memory map."""
    source = source_reader.source
    plain = source_reader.reader.kind == "chunked" and not source.layout.expensive
    if source_reader.keep:
        return 0
    pictures = source_reader.reader.kind == "records" and source.layout.expensive
    if not (plain or pictures or source_reader.reader.kind == "contiguous"):
        return 0
    if not isinstance(source, Source) or source.io == "pread":
        return 0
    if pictures:
        return sum(header.file.size for header in source.headers)
    if source.io == "auto" and source.layout.direct and source_reader.row_bytes >= LARGE_ROW_BYTES:
        return 0
    return source.n_rows * source_reader.row_bytes


DRAWN_JOBS, DRAWN_RUNS = 8, 120
"""Windows of the picture, and runs of each: more could not be distinguished."""


def first_reads(plan: LoaderPlan, jobs: list[Job], mode: str) -> Reads | None:
    """What the largest source reads for some of the windows: some of the runs of each."""
    if not plan.source_readers or not jobs:
        return None
    source_reader = max(plan.source_readers, key=lambda one: one.row_bytes)
    windows = []
    for start, stop, content in jobs[:DRAWN_JOBS]:
        runs = as_runs(source_reader.file_rows(content, plan.group).rows)
        some = runs[:: -(-len(runs) // DRAWN_RUNS) or 1]
        chunks = () if source_reader.keep else _pairs(_whole_chunks(source_reader, some))
        windows.append(WindowRead(start, stop, _pairs(some), chunks))
    return Reads(
        source_reader.name,
        source_reader.reader.n_rows,
        source_reader.layout.chunk_rows or 1,
        tuple(windows),
        "window" if mode == "window" else "job",
        source_reader.keep,
    )


def _whole_chunks(source_reader: SourceReader, runs: Rows) -> Rows:
    """Stretches of the stored chunks that hold a row of the runs; nothing without chunks."""
    layout, n_rows = source_reader.layout, source_reader.reader.n_rows
    if layout.chunk_rows is None or not len(runs):
        return np.empty((0, 2), np.int64)
    if layout.edges is None:
        first = runs[:, 0] // layout.chunk_rows * layout.chunk_rows
        last = -(-runs[:, 1] // layout.chunk_rows) * layout.chunk_rows
    else:
        edges = layout.edges
        first = edges[np.searchsorted(edges, runs[:, 0], side="right") - 1]
        last = edges[np.searchsorted(edges, runs[:, 1], side="left")]
    last = np.minimum(last, n_rows)
    apart = np.flatnonzero(first[1:] > last[:-1])
    return np.stack([first[np.r_[0, apart + 1]], last[np.r_[apart, len(last) - 1]]], axis=1)


def _pairs(runs: Rows) -> tuple[tuple[int, int], ...]:
    return tuple((start, stop) for start, stop in runs.tolist())


PADDED_BATCHES = 64
"""Batches, spread over the epoch, whose padding is counted."""


def shuffle_quality(
    plan: LoaderPlan, epoch_plan: AnyPlan, labels: npt.ArrayLike | str | None
) -> tuple[float | None, int | None]:
    """Return the expected entropy of batches, and the rows a window must have where it is low.

    None for what is not shuffled, or is mixed well.

    Raises
    ------
    LoaderError
        If there is not one label a row, or no such source.
    """
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches:
        return None, None
    order = epoch_plan.order
    if order.mode == "file":
        return None, None
    known = None if labels is None else _labels(plan, order.n_rows, labels)
    quality = expected_quality(epoch_plan, known)
    if quality >= GOOD_QUALITY or order.mode != "window":
        return quality, None
    return quality, rows_for_quality(GOOD_QUALITY, epoch_plan, known)


def _labels(plan: LoaderPlan, n_rows: int, labels: npt.ArrayLike | str) -> npt.NDArray[Any]:
    """Return labels by grouped position, read where a source is named."""
    if isinstance(labels, str):
        sources = {
            source_reader.name: source_reader.source for source_reader in plan.source_readers
        }
        selections = {
            source_reader.name: source_reader.selection for source_reader in plan.source_readers
        }
        labels = read_classes("labels", labels, sources, selections)
    values = np.asarray(labels).reshape(-1)
    check_classes("labels=", values, "labels", LoaderError)
    if len(values) != n_rows:
        raise LoaderError(f"{len(values)} labels for {n_rows} rows; give one a row")
    return values if plan.group is None else values[plan.group]


def padding_shares(plan: LoaderPlan, epoch_plan: AnyPlan) -> tuple[float, float] | None:
    """Return the share of padding with and without buckets, in batches spread over the epoch."""
    order = epoch_plan.order
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches:
        return None
    if not isinstance(order, Order) or order.buckets is None:
        return None
    name = order.buckets.name
    source_reader = next(
        (source_reader for source_reader in plan.source_readers if source_reader.name == name), None
    )
    if not isinstance(source_reader, RaggedSourceReader):
        return None
    without = replace(epoch_plan, order=replace(order, buckets=None))
    return _padding(source_reader, plan.group, epoch_plan), _padding(
        source_reader, plan.group, without
    )


def _padding(source_reader: RaggedSourceReader, group: Rows | None, epoch_plan: EpochPlan) -> float:
    """Return the share of padding in some batches, from the shapes of their examples alone."""
    n = epoch_plan.n_batches
    numbers = np.unique(np.linspace(0, n - 1, min(n, PADDED_BATCHES)).astype(int)).tolist()
    batches = [epoch_plan.batch(number) for number in numbers]
    rows = [rows[:count] for rows, count in batches]
    ends = np.cumsum([0, *map(len, rows)])
    positions = np.concatenate(rows)
    file_rows = source_reader.selection.take(positions if group is None else group[positions])
    shapes = source_reader.source.examples().shapes(file_rows)
    return padding_waste(shapes, [np.arange(a, b) for a, b in pairwise(ends.tolist())])


def explain(
    plan: LoaderPlan,
    epoch_plan: AnyPlan,
    labels: npt.ArrayLike | str | None = None,
    first_batch: int = 0,
) -> Explanation:
    """Work out what an epoch will take, or the rest of one.

    Reads chunk indexes, and no rows but those of a source that `labels` names.

    Parameters
    ----------
    plan : LoaderPlan
    epoch_plan : EpochPlan
        The epoch to describe.
    labels : array, lengths ``(n_rows,)``, or str, optional
        Classes, or the source that holds them, for the shuffle quality; ten equal sorted
        classes when not given.
    first_batch : int
        Where the epoch goes on; costs and counts are those of the batches from there.

    Raises
    ------
    LoaderError
        If there is not one label a row, or no such source.
    """
    sizes, order = plan.sizes, epoch_plan.order
    place = epoch_plan.span(first_batch)[0] if first_batch else 0
    n_rows, n_windows = epoch_plan.n_rows - place, epoch_plan.n_windows
    if first_batch and isinstance(epoch_plan, EpochPlan):
        n_windows = sum(1 for _ in epoch_plan.spans(place, epoch_plan.n_rows))
    jobs, n_jobs, share = sampled_jobs(plan, epoch_plan, first_batch, n_rows)
    sources = tuple(
        explain_source(source_reader, plan, jobs, share) for source_reader in plan.source_readers
    )
    quality, wanted = shuffle_quality(plan, epoch_plan, labels)
    memory, mapped, there = None, 0, plan.on_device
    if order.mode == "full" or sizes.whole is not None:  # rows are picked one by one
        mapped = sum(map(mapped_bytes, plan.source_readers))
    if wanted is not None:
        unkept = [
            source_reader.nbytes for source_reader in plan.source_readers if not source_reader.keep
        ]
        memory = sizes.memory_for(min(wanted, max(1, order.n_rows)), unkept)
        memory = sizes.memory_bytes if plan.all_kept else memory
    return Explanation(
        mode=order.mode,
        n_rows=n_rows,
        n_batches=epoch_plan.n_batches - first_batch,
        batch_rows=epoch_plan.batch_rows,
        n_windows=n_windows,
        window_rows=min(order.window_rows, max(order.n_rows, 1)),
        n_jobs=n_jobs,
        job_rows=sizes.job_rows,
        slots=sizes.slots,
        threads=sizes.threads,
        workers=sizes.threads if sizes.in_flight else 0,
        in_flight=sizes.in_flight,
        uncounted=plan.uncounted,
        memory_bytes=sizes.memory_bytes,
        promised_bytes=sizes.promised_bytes,
        kept_bytes=sizes.kept_bytes,
        quality=quality,
        window_rows_for_quality=wanted,
        memory_for_quality=memory,
        padding=padding_shares(plan, epoch_plan),
        mapped_bytes=mapped,
        device="cpu" if plan.device is None else plan.device.name,
        pinned_bytes=0 if there is None else sizes.slots * there.window_bytes,
        device_windows=0 if there is None else there.n_windows,
        device_bytes=0 if there is None else there.device_bytes,
        amplification=order.amplification() if isinstance(order, Draws) else 1.0,
        exact=share == 1.0,
        kernels=permute.describe(),
        sources=sources,
        reads=first_reads(plan, jobs, order.mode),
    )


# pictures


@dataclass(frozen=True, repr=False)
class LoaderPlots:
    """What ``loader.plot`` offers. Each picture returns its axes and takes ``ax=``."""

    explain: Callable[..., Explanation]
    stats: Callable[[], Stats]

    def __call__(self, **options: Any) -> Axes:
        """Draw the plan; the same as :meth:`plan`."""
        return self.plan(**options)

    def __repr__(self) -> str:
        return "<plots of a loader: plot(), plot.plan()>"

    def plan(self, labels: npt.ArrayLike | str | None = None, *, ax: Axes | None = None) -> Axes:
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
        return draw_reads(plan.reads, title, ax)
