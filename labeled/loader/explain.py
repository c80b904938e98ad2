"""What an epoch will take, told before the first row is read.

Windows and reads are counted by walking through the plan: every window where there are
few, else some of them spread over the epoch, and the figures then say that they are
estimates. Costs come from the readers, which count without reading rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled import permute
from labeled.catalog.loading import as_runs
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import Source
from labeled.errors import LoaderError
from labeled.formats.bytesource import machine_bytes
from labeled.formats.extents import LARGE_ROW_BYTES
from labeled.formats.reader import Cost
from labeled.loader.classes import read_classes
from labeled.loader.jobs import Job
from labeled.loader.lanes import Lane
from labeled.loader.plan import LoaderPlan
from labeled.loader.memory import size_words
from labeled.ragged.padding import padding_waste
from labeled.samplers.draws import Draws
from labeled.samplers.order import Order
from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import ListedLabels, expected_quality, rows_for_quality
from labeled.samplers.sampled import AnyPlan
from labeled.views import html
from labeled.views.reads import Reads, WindowRead, reads_html
from labeled.views.text import count_words, table

Rows = npt.NDArray[np.int64]

COUNTED_JOBS, COUNTED_ROWS = 256, 1 << 25
"""Jobs that are counted one by one, and the rows that these shuffle, which takes time as well."""

PADDED_BATCHES = 64
DRAWN_JOBS, DRAWN_RUNS = 8, 120
GOOD_QUALITY = 0.95


@dataclass(frozen=True)
class LaneExplained:
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
    bus_bytes: int = 0
    """What of it is copied to the device: as stored, where chunks are decoded there."""
    decoded_there: float = 0.0
    """Which part of the windows the device decodes."""

    @property
    def amplification(self) -> float:
        """How often a chunk is decoded in an epoch, on average."""
        return self.chunks_decoded / self.chunks_needed if self.chunks_needed else 1.0


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
    open_blocks : int
        Blocks of rows that a staggered order mixes at a time; 0 for other orders.
    workers, in_flight : int
        Threads of a pipeline, and the batches in it at a time; 0 where there is none.
    device : str
        Where batches are made.
    pinned_bytes : int
        Of host memory from which windows are copied to a device; counted in `promised_bytes`.
    device_windows, device_bytes : int
        Windows on the device, and the most that these and batches on their way take there, with
        the memory that chunks are decoded in. Batches that the consumer keeps are not counted.
    decoder : str
        What decodes chunks on the device; empty where that is done on the host.
    bus_bytes : int
        Bytes of windows copied to the device in an epoch.
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
    open_blocks: int
    threads: int
    workers: int
    in_flight: int
    reader: str
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
    decoder: str
    bus_bytes: int
    amplification: float
    exact: bool
    kernels: str
    lanes: tuple[LaneExplained, ...]
    reads: Reads | None
    """What the largest source reads for the first windows, for a picture."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        return "\n".join([*self._words(), *table(self._rows())])

    def _repr_html_(self) -> str:
        title, *words = self._words()
        head, *rows = self._rows()
        named = [(html.bold(name), *cells) for name, *cells in rows]
        parts = [*map(html.line, words), html.table(head, named)]
        if self.reads is not None:
            parts.append(html.details(self.reads.title, reads_html(self.reads), opened=True))
        return html.page(title, *parts)

    def _words(self) -> list[str]:
        about = "" if self.exact else "about "
        used = sum(lane.bytes_used for lane in self.lanes)
        read = sum(lane.bytes_read for lane in self.lanes)
        lines = [
            f"Plan of an epoch: {count_words(self.n_rows, 'row')} in "
            f"{count_words(self.n_batches, 'batch')} of "
            f"{self.batch_rows:,}, shuffle={self.mode!r}",
            f"reads {about}{format_bytes(read)} for {format_bytes(used)} of rows; "
            f"{about}{count_words(self.n_jobs, 'job')} of up to {self.job_rows:,} rows, "
            f"{count_words(self.threads, 'background thread')}"
            + (" in a reader process" * (self.reader == "process")),
            f"memory: at most {format_bytes(self.promised_bytes)} of "
            f"{format_bytes(self.memory_bytes)} ({self.slots} slots"
            + (
                f", {format_bytes(self.kept_bytes)} kept for later epochs)"
                if self.kept_bytes
                else ")"
            ),
        ]
        if self.device != "cpu" and self.in_flight:
            lines.append(f"device {self.device!r}: batches go there out of the pipeline")
        elif self.device != "cpu":
            lines.append(
                f"device {self.device!r}: at most {format_bytes(self.device_bytes)} there "
                f"({count_words(self.device_windows, 'window')}, and batches on their way), copied "
                f"from {format_bytes(self.pinned_bytes)} of pinned memory"
            )
            if self.decoder:
                lines.append(
                    f"chunks are decoded there by {self.decoder}: {about}"
                    f"{format_bytes(self.bus_bytes)} an epoch cross the bus, for "
                    f"{format_bytes(used)} of rows"
                )
        if self.mapped_bytes:
            lines.append(
                f"not counted: pages of files in the system's cache, mapped while rows are picked "
                f"from them, of {format_bytes(self.mapped_bytes)}"
            )
        if self.mapped_bytes > (memory := machine_bytes()):
            lines.append(
                f"more than this machine's memory of {format_bytes(int(memory))}: most rows are a "
                "read of their own from storage; shuffle='window' reads many together"
            )
        if self.kernels.startswith("compiled"):
            lines.append("not counted: compiled kernels, about 32 MiB once a process, if needed")
        if self.in_flight:
            who = f"{self.workers} threads" if self.workers else "the caller"
            lines.append(
                f"a pipeline: up to {self.in_flight} batches at a time in {who}; what it makes is "
                "not counted"
            )
        if self.mode == "staggered" and self.open_blocks:
            lines.append(
                f"staggered: {count_words(self.open_blocks, 'block')} of up to {self.job_rows:,} "
                f"rows open at a time, {self.window_rows:,} rows, read before the first batch"
            )
        if self.mode == "window":
            windows = count_words(self.n_windows, "window")
            lines.append(f"{windows} of about {self.window_rows:,} rows")
        if self.quality is not None:
            lines.append(f"shuffle quality: {self.quality:.3f} of a full shuffle" + self._remedy())
        if self.padding is not None:
            lines.append("buckets: {:.1%} padding (without them {:.1%})".format(*self.padding))
        if self.amplification > 1.005:
            lines.append(f"draws read {self.amplification:.2f} rows for each one handed out")
        return lines

    def _remedy(self) -> str:
        if self.window_rows_for_quality is None or self.memory_for_quality is None:
            return ""
        return (
            f" (for {GOOD_QUALITY}: window_rows={self.window_rows_for_quality:,}, "
            f"memory={size_words(self.memory_for_quality)!r})"
        )

    def _rows(self) -> list[tuple[str, ...]]:
        head = ("source", "path", "reads", "read", "used", "chunks decoded", "why")
        return [
            head,
            *(
                (
                    lane.name,
                    lane.path + (" (kept)" if lane.kept else ""),
                    f"{lane.n_reads:,}",
                    format_bytes(lane.bytes_read),
                    format_bytes(lane.bytes_used),
                    f"{lane.chunks_decoded:,} ({lane.amplification:.2f} x)"
                    if lane.chunks_decoded
                    else "-",
                    lane.why,
                )
                for lane in self.lanes
            ),
        ]


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
        The epoch that is told about.
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
    n_rows = _rows_left(epoch_plan, first_batch)
    jobs, n_jobs, share = _sampled_jobs(plan, epoch_plan, first_batch, n_rows)
    lanes = tuple(_explain_lane(lane, plan, jobs, share) for lane in plan.lanes)
    quality, wanted = _quality(plan, epoch_plan, labels)
    memory = None if wanted is None else _memory_for(plan, wanted)
    return Explanation(
        mode=order.mode,
        n_rows=n_rows,
        n_batches=epoch_plan.n_batches - first_batch,
        batch_rows=epoch_plan.batch_rows,
        n_windows=_windows_left(epoch_plan, first_batch),
        window_rows=min(order.window_rows, max(order.n_rows, 1)),
        n_jobs=n_jobs,
        job_rows=sizes.read_rows,
        slots=sizes.slots if sizes.blocks is None else sizes.blocks.count,
        open_blocks=0 if sizes.blocks is None else sizes.blocks.open,
        threads=sizes.threads,
        workers=sizes.workers,
        in_flight=sizes.in_flight,
        reader=plan.reader,
        memory_bytes=sizes.memory_bytes,
        promised_bytes=sizes.promised_bytes,
        kept_bytes=sizes.kept_bytes,
        quality=quality,
        window_rows_for_quality=wanted,
        memory_for_quality=memory,
        padding=_padding(plan, epoch_plan),
        mapped_bytes=sum(map(_mapped_bytes, plan.lanes)) if order.mode == "full" else 0,
        device="cpu" if plan.device is None else plan.device.name,
        pinned_bytes=_pinned_bytes(plan),
        device_windows=0 if plan.on_device is None else plan.on_device.n_windows,
        device_bytes=0 if plan.on_device is None else plan.on_device.device_bytes,
        decoder=_decoder(plan),
        bus_bytes=sum(lane.bus_bytes for lane in lanes),
        amplification=order.amplification() if isinstance(order, Draws) else 1.0,
        exact=share == 1.0,
        kernels=permute.describe(),
        lanes=lanes,
        reads=_first_reads(plan, jobs, order.mode),
    )


def _pinned_bytes(plan: LoaderPlan) -> int:
    there = plan.on_device
    return 0 if there is None else plan.sizes.slots * there.window_bytes + there.verdict_bytes


def _decoder(plan: LoaderPlan) -> str:
    """Return what decodes on the device, if it has anything to decode."""
    there = plan.on_device
    if there is None or there.decoding is None or not there.decoded_there:
        return ""
    return there.decoding.name


def _padding(plan: LoaderPlan, epoch_plan: AnyPlan) -> tuple[float, float] | None:
    """Return the share of padding with and without buckets, in batches spread over the epoch."""
    order = epoch_plan.order
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches:
        return None
    if not isinstance(order, Order) or order.buckets is None:
        return None
    name = order.buckets.name
    lane = next((lane for lane in plan.lanes if lane.name == name), None)
    if lane is None or not isinstance(lane.source, RaggedSource):
        return None
    n = epoch_plan.n_batches
    numbers = np.unique(np.linspace(0, n - 1, min(n, PADDED_BATCHES)).astype(int)).tolist()
    found = []
    for each in (epoch_plan, replace(epoch_plan, order=replace(order, buckets=None))):
        batches = [each.batch(number) for number in numbers]
        rows = [rows[:count] for rows, count in batches]
        ends = np.cumsum([0, *map(len, rows)])
        positions = np.concatenate(rows)
        file_rows = lane.selection.take(positions if plan.group is None else plan.group[positions])
        shapes = lane.source.examples().shapes(file_rows)
        found.append(padding_waste(shapes, [np.arange(a, b) for a, b in pairwise(ends.tolist())]))
    return found[0], found[1]


def _mapped_bytes(lane: Lane) -> int:
    """Return the bytes that rows in random order are picked from by a memory map."""
    source = lane.source
    plain = lane.reader.kind == "chunked" and not source.layout.dear
    if lane.keep or not (plain or lane.reader.kind == "contiguous"):
        return 0
    if not isinstance(source, Source) or source.io == "pread":
        return 0
    if source.io == "auto" and source.layout.direct and lane.row_bytes >= LARGE_ROW_BYTES:
        return 0
    return source.n_rows * lane.row_bytes


def _rows_left(plan: AnyPlan, first_batch: int) -> int:
    return plan.n_rows - (plan.span(first_batch)[0] if first_batch else 0)


def _windows_left(plan: AnyPlan, first_batch: int) -> int:
    """How many windows serve the batches from `first_batch` on."""
    if not first_batch or not isinstance(plan, EpochPlan):
        return plan.n_windows
    return sum(1 for _ in plan.spans(plan.span(first_batch)[0], plan.n_rows))


def _memory_for(plan: LoaderPlan, window_rows: int) -> int:
    """Return the memory that windows of so many rows need."""
    if plan.all_kept:
        return plan.sizes.memory_bytes
    wanted = min(window_rows, max(1, plan.epoch_plan.order.n_rows))
    return plan.sizes.memory_for(wanted, [lane.nbytes for lane in plan.lanes if not lane.keep])


def _sampled_jobs(
    plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int, n_rows: int
) -> tuple[list[Job], int, float]:
    """Return some jobs of what is left, how many there are, and the share that these are."""
    if not n_rows:
        return [], 0, 1.0
    starts: list[int] = [first_batch]
    job_rows, most = plan.sizes.read_rows, COUNTED_JOBS
    if epoch_plan.order.mode == "window":
        most = max(8, min(most, COUNTED_ROWS // max(1, job_rows)))
    if n_rows > most * job_rows:
        spread = np.linspace(first_batch, epoch_plan.n_batches - 1, most // 4).astype(int)
        starts = [max(first_batch, _job_start(epoch_plan, n, job_rows)) for n in spread.tolist()]
    jobs: list[Job] = []
    seen: set[int] = set()
    for first in starts:
        for job in plan.jobs(epoch_plan, first):
            if job[0] not in seen:
                seen.add(job[0])
                jobs.append(job)
            if len(starts) > 1:
                break
    rows = sum(stop - start for start, stop, _ in jobs)
    if len(starts) == 1:
        return jobs, len(jobs), 1.0
    share = rows / n_rows
    return jobs, round(len(jobs) / share), share


def _job_start(epoch_plan: AnyPlan, batch: int, job_rows: int) -> int:
    """Return the first batch that begins in the job that a batch begins in."""
    place = epoch_plan.span(batch)[0]
    first = 0  # of its window
    if isinstance(epoch_plan, EpochPlan):
        part, low, _ = next(epoch_plan.spans(place, place + 1))
        first = place - low + epoch_plan.deal_of(part).window_at(low)[1]
    if epoch_plan.order.mode != "window":
        first = max(first, place - place % job_rows)
    return max(0, -(-first // epoch_plan.batch_rows))


def _explain_lane(lane: Lane, plan: LoaderPlan, jobs: list[Job], share: float) -> LaneExplained:
    reader, job_share = lane.reader, share
    cost, sent, n_there = _job_costs(lane, plan, jobs)
    if lane.keep:
        cost, share = Cost() if lane.is_loaded else lane.whole_cost(), 1.0
    scaled = replace(
        cost,
        bytes_read=round(cost.bytes_read / share),
        bytes_used=round(cost.bytes_used / share),
        n_reads=round(cost.n_reads / share),
        chunks_decoded=round(cost.chunks_decoded / share),
    )
    decoded_there = n_there / len(jobs) if jobs else 0.0
    return LaneExplained(
        name=lane.name,
        path=reader.kind,
        why="; ".join([reader.why, *_where_decoded(lane, plan, decoded_there)]),
        kept=lane.keep,
        chunk_rows=reader.chunk_rows,
        bytes_read=scaled.bytes_read,
        bytes_used=scaled.bytes_used,
        n_reads=scaled.n_reads,
        chunks_decoded=scaled.chunks_decoded,
        chunks_needed=lane.whole_cost().chunks_decoded if scaled.chunks_decoded else 0,
        bus_bytes=round(sent / job_share),
        decoded_there=decoded_there,
    )


def _job_costs(lane: Lane, plan: LoaderPlan, jobs: list[Job]) -> tuple[Cost, int, int]:
    """Return what jobs cost, how many bytes go to a device, and how many jobs it decodes."""
    goes = plan.on_device is not None and lane.name in plan.on_device.layout
    cost, sent, n_there = Cost(), 0, 0
    for start, stop, content in jobs:
        nbytes = (stop - start) * lane.row_bytes
        window = lane.coded_window(content, plan.group, nbytes)
        if window is None:
            cost += Cost() if lane.keep else lane.cost(content, plan.group)
        else:
            cost += window.cost(lane.row_bytes)
        if goes:
            sent += nbytes if window is None else window.packed_bytes
            n_there += window is not None
    return cost, sent, n_there


def _where_decoded(lane: Lane, plan: LoaderPlan, there: float) -> list[str]:
    """Say who decodes a source, where the device was asked to."""
    decoding = None if plan.on_device is None else plan.on_device.decoding
    if decoding is None:
        return []
    if lane.name in decoding.stays:
        return [f"decoded on the host: {decoding.stays[lane.name]}"]
    if lane.coded is None:
        return []
    others = "touch too many chunks for their rows, or do not shrink"
    if not there:
        return [f"decoded on the host: all windows {others}"]
    words = f"decoded on the device ({lane.coded.coding.words})"
    return [words if there == 1 else f"{words} in {there:.0%} of the windows; others {others}"]


def _quality(
    plan: LoaderPlan, epoch_plan: AnyPlan, labels: npt.ArrayLike | str | None
) -> tuple[float | None, int | None]:
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches:
        return None, None
    order = epoch_plan.order
    if order.mode == "file":
        return None, None
    known = None
    if labels is not None:
        if isinstance(labels, str):
            sources = {lane.name: lane.source for lane in plan.lanes}
            selections = {lane.name: lane.selection for lane in plan.lanes}
            labels = read_classes("labels", labels, sources, selections)
        values = np.asarray(labels).reshape(-1)
        if len(values) != order.n_rows:
            raise LoaderError(f"{len(values)} labels for {order.n_rows} rows; give one a row")
        known = ListedLabels(values if plan.group is None else values[plan.group])
    quality = expected_quality(epoch_plan, known)
    if quality >= GOOD_QUALITY or order.mode not in ("window", "staggered"):
        return quality, None
    return quality, rows_for_quality(GOOD_QUALITY, epoch_plan, known)


def _first_reads(plan: LoaderPlan, jobs: list[Job], mode: str) -> Reads | None:
    """What the largest source reads for some of the windows: some of the runs of each."""
    if not plan.lanes or not jobs:
        return None
    lane = max(plan.lanes, key=lambda one: one.row_bytes)
    windows = []
    for start, stop, content in jobs[:DRAWN_JOBS]:
        runs = as_runs(lane.read(content, plan.group))
        some = runs[:: -(-len(runs) // DRAWN_RUNS) or 1]
        chunks = () if lane.keep else _pairs(_whole_chunks(lane, some))
        windows.append(WindowRead(start, stop, _pairs(some), chunks))
    return Reads(
        lane.name,
        lane.reader.n_rows,
        lane.reader.chunk_rows,
        tuple(windows),
        {"window": "window", "staggered": "block"}.get(mode, "job"),
        lane.keep,
    )


def _whole_chunks(lane: Lane, runs: Rows) -> Rows:
    """Stretches of the stored chunks that hold a row of the runs; nothing without chunks."""
    layout, n_rows = lane.source.layout, lane.reader.n_rows
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
