"""What an epoch will take, before the first row is read: figures, text and pictures.

Costs come from the readers, which count without reading rows: of every job where there are few,
else of some of them spread over the epoch, so that the figures are estimates then. How well an
order mixes the labels of a batch is found from integers.

A loader at a glance takes a plan and a place in it, and asks readers nothing, so that a file may
be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
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
from labeled.loader.plan import Job, LoaderPlan
from labeled.loader.source_readers import SourceReader
from labeled.samplers.listed import AnyPlan
from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import expected_quality, rows_for_quality
from labeled.samplers.windows import shuffle_argument

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
    n_buffers: int
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
    mapped_bytes: int
    device: str
    pinned_bytes: int
    device_windows: int
    device_bytes: int
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
        head = ("source", "path", "reads", "read", "used", "chunks decoded", "why")
        about, sources = "" if self.exact else "about ", self.sources
        read, used = sum(one.bytes_read for one in sources), sum(one.bytes_used for one in sources)
        kept = f", {format_bytes(self.kept_bytes)} kept for later epochs" if self.kept_bytes else ""
        title = (
            f"Plan of an epoch: {count_words(self.n_rows, 'row')} in "
            f"{count_words(self.n_batches, 'batch')} of {self.batch_rows:,}, "
            f"{shuffle_argument(self.mode)}"
        )
        words = [
            f"reads {about}{format_bytes(read)} of the file for {format_bytes(used)} of rows; "
            f"{about}{count_words(self.n_jobs, 'job')} of up to {self.job_rows:,} rows, "
            f"{count_words(self.threads, 'background thread')}",
            f"memory: at most {format_bytes(self.promised_bytes)} of "
            f"{format_bytes(self.memory_bytes)} ({self.n_buffers} buffers{kept})",
            *self._where(),
        ]
        if self.mode == "window":
            windows = count_words(self.n_windows, "window")
            words.append(f"{windows} of about {self.window_rows:,} rows")
        if self.quality is not None:
            words.append(f"shuffle quality: {self.quality:.3f} of a full shuffle")
        if self.window_rows_for_quality is not None and self.memory_for_quality is not None:
            words[-1] += (
                f" (for {GOOD_QUALITY}: window_rows={self.window_rows_for_quality:,}, "
                f"memory={size_words(self.memory_for_quality)!r})"
            )
        return Summary(title, "", [*words, Table(head, [one.cells for one in sources])])

    def _where(self) -> list[str]:
        """Say where batches are made, and what memory is not counted."""
        words = []
        if self.promised_bytes > (room := available_bytes()):
            words.append(f"more than there is: {room_words(room)}")
        if self.device != "cpu" and self.in_flight:
            words.append(f"device {self.device!r}: batches go there out of the pipeline")
        elif self.device != "cpu":
            words.append(
                f"device {self.device!r}: at most {format_bytes(self.device_bytes)} there "
                f"({count_words(self.device_windows, 'window')}, and batches on their way), copied "
                f"from {format_bytes(self.pinned_bytes)} of pinned memory"
                if self.device_windows
                else f"device {self.device!r}: {format_bytes(self.device_bytes)} there, rows that "
                f"are kept and batches that are gathered from them"
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
            rest = f"; not counted: what {', '.join(self.uncounted)} makes" * bool(self.uncounted)
            words.append(f"a pipeline: up to {self.in_flight} batches at a time in {who}{rest}")
        return words


def loader_summary(plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int) -> Summary:
    """Summarize a loader: its order, then a line a source."""
    sizes, order, shard = plan.sizes, epoch_plan.order, plan.epoch_plan.shard
    title = (
        f"{epoch_plan.n_batches:,} batches of {plan.batch_rows:,} rows, "
        f"{shuffle_argument(plan.epoch_plan.order.mode)}, seed={order.seed}, epoch={order.epoch}"
    )
    title += f", shard={shard}" if shard[1] > 1 else ""
    title += f", going on at batch {first_batch:,}" if first_batch else ""
    rows = []
    for one in plan.source_readers:
        kept = one.keep or one.source.loaded is not None
        row = sizes_words(one.source.dims[1:], one.source.row_shape)
        where = "kept in memory" if kept else "read ahead"
        rows.append((one.name, row, str(one.source.dtype), where))
    promised, given = format_bytes(sizes.promised_bytes), format_bytes(sizes.memory_bytes)
    more = (
        f"batches: {_batch_words(plan)}",
        f"memory: at most {promised} of {given}, {count_words(sizes.threads, 'background thread')}",
        "explain() shows what an epoch reads, before it reads; stats() where the time went",
    )
    head = ("source", "a row", "dtype in the file", "rows are")
    return Summary("labeled.Loader", title, (Table(head, rows),), more)


def _batch_words(plan: LoaderPlan) -> str:
    """Say what is handed out, and what became of it on the way."""
    lay_out = plan.lay_out
    words = ["a mapping of source to DataArray"]
    if lay_out.specs is not None:
        words = [f"arrays as {lay_out.specs.specs} says"]
    for name, change in lay_out.casts.items():
        cast = "" if change.dtype is None else f" as {change.dtype}"
        cast += " scaled" if change.scaled else ""
        cast += "" if change.n_classes is None else f" of {change.n_classes:,} classes"
        if change.axes is not None:
            cast += f" in the order {', '.join(change.sizes(lay_out.sources[name], 0))}"
        words.append(name + cast)
    words += ["through a pipeline"] if plan.pipeline is not None else []
    words += [f"on {plan.device.name}"] if plan.device is not None else []
    words += [f"handed over to {plan.hand_over.to.library}"] if plan.hand_over is not None else []
    return ", ".join(words)


# how it is found

COUNTED_JOBS, COUNTED_ROWS = 256, 1 << 25
"""Jobs that are counted one by one, and the rows that these shuffle, which takes time as well."""

DRAWN_JOBS, DRAWN_RUNS = 8, 120
"""Windows of the picture, and runs of each: more could not be distinguished."""


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
    sizes, order, readers = plan.sizes, epoch_plan.order, plan.source_readers
    place = epoch_plan.span(first_batch)[0] if first_batch else 0
    n_rows, n_windows = epoch_plan.n_rows - place, epoch_plan.n_windows
    if first_batch and isinstance(epoch_plan, EpochPlan):
        n_windows = sum(1 for _ in epoch_plan.spans(place, epoch_plan.n_rows))
    jobs, share = sampled_jobs(plan, epoch_plan, first_batch, n_rows)
    quality, wanted = shuffle_quality(plan, epoch_plan, labels)
    memory, device_plan = None, plan.device_plan
    if wanted is not None:
        memory = sizes.memory_bytes
        if not plan.all_kept:
            unkept = [one.nbytes for one in readers if not one.keep]
            memory = sizes.memory_for(min(wanted, max(1, order.n_rows)), unkept)
    picked = order.mode == "full" or sizes.picks
    return Explanation(
        mode=order.mode,
        n_rows=n_rows,
        n_batches=epoch_plan.n_batches - first_batch,
        batch_rows=epoch_plan.batch_rows,
        n_windows=n_windows,
        window_rows=min(order.window_rows, max(order.n_rows, 1)),
        n_jobs=round(len(jobs) / share),
        job_rows=sizes.job_rows,
        n_buffers=sizes.n_buffers,
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
        mapped_bytes=sum(map(mapped_bytes, readers)) if picked else 0,
        device="cpu" if plan.device is None else plan.device.name,
        pinned_bytes=0
        if device_plan is None or device_plan.resident is not None
        else sizes.n_buffers * device_plan.window_bytes,
        device_windows=0 if device_plan is None else device_plan.n_windows,
        device_bytes=0 if device_plan is None else device_plan.device_bytes,
        exact=share == 1.0,
        kernels=permute.describe(),
        sources=tuple([explain_source(one, plan, jobs, share) for one in readers]),
        reads=first_reads(plan, jobs, order.mode),
    )


def sampled_jobs(
    plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int, n_rows: int
) -> tuple[list[Job], float]:
    """Return the jobs that are left, or some of them where they are many, and which share."""
    most = COUNTED_JOBS
    if epoch_plan.order.mode == "window":
        most = max(8, min(most, COUNTED_ROWS // max(1, plan.sizes.job_rows)))
    if plan.all_kept:  # no job costs anything, but to shuffle a window for a far one does
        jobs = list(islice(plan.jobs(epoch_plan, first_batch), COUNTED_JOBS))
    elif n_rows <= most * plan.sizes.job_rows:
        jobs = list(plan.jobs(epoch_plan, first_batch))
    else:
        found = {}
        for batch in (
            np.linspace(first_batch, epoch_plan.n_batches - 1, most // 4).astype(int).tolist()
        ):
            for job in islice(plan.jobs(epoch_plan, batch), 1, 2):  # the first may be part of one
                found[job[0]] = job
        jobs = list(found.values())
    return jobs, sum([stop - start for start, stop, _ in jobs]) / n_rows if n_rows else 1.0


def explain_source(
    source_reader: SourceReader, plan: LoaderPlan, jobs: list[Job], share: float
) -> SourceExplained:
    """Count what a source costs in jobs that are a share of the epoch, and scale it up."""
    cost = Cost()
    if source_reader.keep:  # read once, whole
        cost, share = cost if source_reader.kept is not None else source_reader.whole_cost(), 1.0
    else:
        for _, _, content in jobs:
            cost += source_reader.cost(content, plan.position_of)
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
        chunks_needed=source_reader.whole_cost().chunks_decoded if chunks_decoded else 0,
    )


def mapped_bytes(source_reader: SourceReader) -> int:
    """Return the bytes that rows in random order are picked from by a memory map."""
    source, layout, kind = source_reader.source, source_reader.layout, source_reader.reader.kind
    if source_reader.keep or source.ragged is not None or source.io == "pread":
        return 0
    if kind == "records" and layout.expensive:  # pictures
        return sum([header.file.size for header in source.headers])
    large = source.io == "auto" and layout.direct and source.row_bytes >= LARGE_ROW_BYTES
    by_row = kind == "contiguous" or (kind == "chunked" and not layout.expensive)
    return source.n_rows * source.row_bytes if by_row and not large else 0


def first_reads(plan: LoaderPlan, jobs: list[Job], mode: str) -> Reads | None:
    """What the largest source reads for some of the windows: some of the runs of each."""
    if not plan.source_readers or not jobs:
        return None
    largest = max(plan.source_readers, key=lambda one: one.row_bytes)
    layout, windows = largest.layout, []
    for start, stop, content in jobs[:DRAWN_JOBS]:
        runs = as_runs(largest.file_rows(content, plan.position_of).rows)
        runs = runs[:: -(-len(runs) // DRAWN_RUNS) or 1]
        chunks: list[tuple[int, int]] = []
        if layout.chunk_rows is not None and not largest.keep:
            edges = layout.edges
            if edges is None:
                edges = np.arange(0, largest.reader.n_rows + layout.chunk_rows, layout.chunk_rows)
            first = edges[np.searchsorted(edges, runs[:, 0], side="right") - 1]
            last = edges[np.searchsorted(edges, runs[:, 1], side="left")]
            apart = np.flatnonzero(first[1:] > last[:-1])
            first, last = first[np.r_[0, apart + 1]], last[np.r_[apart, len(last) - 1]]
            last = np.minimum(last, largest.reader.n_rows)
            chunks = list(zip(first.tolist(), last.tolist(), strict=True))
        windows.append(WindowRead(start, stop, tuple(map(tuple, runs.tolist())), tuple(chunks)))
    return Reads(
        largest.name,
        largest.reader.n_rows,
        layout.chunk_rows or 1,
        tuple(windows),
        "window" if mode == "window" else "job",
        largest.keep,
    )


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
    order, known = epoch_plan.order, None
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches or order.mode == "file":
        return None, None
    if isinstance(labels, str):
        sources = {one.name: one.source for one in plan.source_readers}
        selections = {one.name: one.selection for one in plan.source_readers}
        labels = read_classes("labels", labels, sources, selections)
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
