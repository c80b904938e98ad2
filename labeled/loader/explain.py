"""What an epoch will take, told before the first row is read.

Costs come from the readers, which count without reading rows: of every job where there are few,
else of some of them spread over the epoch, so that the figures are estimates then. How well an
order mixes the labels of a batch, and how much padding its buckets leave, is found from integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import permute
from labeled.display.figures import Reads, WindowRead
from labeled.errors import LoaderError
from labeled.formats.contiguous import LARGE_ROW_BYTES
from labeled.formats.reader import Cost, as_runs
from labeled.loader.explanation import GOOD_QUALITY, Explanation, LaneExplained
from labeled.loader.jobs import Job, n_cuts
from labeled.loader.lanes import Lane, RaggedLane
from labeled.loader.ordering import read_classes
from labeled.loader.plan import LoaderPlan
from labeled.ragged.padding import padding_waste
from labeled.samplers.draws import Draws
from labeled.samplers.listed import AnyPlan
from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import expected_quality, rows_for_quality
from labeled.samplers.windows import Order
from labeled.sources.source import Source

COUNTED_JOBS, COUNTED_ROWS = 256, 1 << 25
"""Jobs that are counted one by one, and the rows that these shuffle, which takes time as well."""


def sampled_jobs(
    plan: LoaderPlan, epoch_plan: AnyPlan, first_batch: int, n_rows: int
) -> tuple[list[Job], int, float]:
    """Return some jobs of what is left, how many there are, and the share that these are.

    Windows whose rows are picked one by one stand for their jobs: they are what a disk reads.
    """
    if not n_rows:
        return [], 0, 1.0
    if plan.sizes.whole is not None:
        whole = replace(plan, sizes=plan.sizes.whole)
        windows, _, share = sampled_jobs(whole, epoch_plan, first_batch, n_rows)
        n_jobs = sum(n_cuts(start, stop, plan.sizes.job_rows) for start, stop, _ in windows)
        return windows, round(n_jobs / share), share
    job_rows, most = plan.sizes.job_rows, COUNTED_JOBS
    if epoch_plan.order.mode == "window":
        most = max(8, min(most, COUNTED_ROWS // max(1, job_rows)))
    if plan.all_kept:  # no job costs anything, but to shuffle a window for a far one does
        jobs = _by_start(islice(plan.jobs(epoch_plan, first_batch), COUNTED_JOBS))
        share = sum(stop - start for start, stop, _ in jobs) / n_rows
        return jobs, round(len(jobs) / share), share
    if n_rows <= most * job_rows:
        jobs = _by_start(plan.jobs(epoch_plan, first_batch))
        return jobs, len(jobs), 1.0
    spread = np.linspace(first_batch, epoch_plan.n_batches - 1, most // 4).astype(int)
    starts = (max(first_batch, _job_start(epoch_plan, n, job_rows)) for n in spread.tolist())
    jobs = _by_start(job for first in starts for job in islice(plan.jobs(epoch_plan, first), 1))
    share = sum(stop - start for start, stop, _ in jobs) / n_rows
    return jobs, round(len(jobs) / share), share


def _by_start(jobs: Iterable[Job]) -> list[Job]:
    """List jobs without those that are named again: far batches may begin in the same one."""
    found: dict[int, Job] = {}
    for job in jobs:
        found.setdefault(job[0], job)
    return list(found.values())


def _job_start(epoch_plan: AnyPlan, batch: int, job_rows: int) -> int:
    """Return the first batch that begins in the job that a batch begins in."""
    place = epoch_plan.span(batch)[0]
    first = 0  # of its window
    if isinstance(epoch_plan, EpochPlan):
        order, low, _ = next(epoch_plan.spans(place, place + 1))
        first = place - low + order.window_at(low)[1]
    if epoch_plan.order.mode != "window":
        first = max(first, place - place % job_rows)
    return max(0, -(-first // epoch_plan.batch_rows))


def explain_lane(lane: Lane, plan: LoaderPlan, jobs: list[Job], share: float) -> LaneExplained:
    """Count what a source costs in jobs that are a share of the epoch, and scale it up."""
    reader, cost_share = lane.reader, share
    cost = _job_costs(lane, plan, jobs)
    if lane.source.layout.held_bytes and plan.epoch_plan.order.mode == "file":
        cost = _decoded_once(lane, cost)
    if lane.keep:  # read once, whole
        cost, cost_share = Cost() if lane.is_loaded else lane.whole_cost(), 1.0
    chunks_decoded = round(cost.chunks_decoded / cost_share)
    return LaneExplained(
        name=lane.name,
        path=reader.kind,
        why=reader.why,
        kept=lane.keep,
        chunk_rows=lane.source.layout.chunk_rows or 1,
        bytes_read=round(cost.bytes_read / cost_share),
        bytes_used=round(cost.bytes_used / cost_share),
        n_reads=round(cost.n_reads / cost_share),
        chunks_decoded=chunks_decoded,
        chunks_needed=lane.whole_cost().chunks_decoded if chunks_decoded else 0,
    )


def _decoded_once(lane: Lane, cost: Cost) -> Cost:
    """Count chunks that are kept from job to job once, as far as the rows of some jobs go."""
    whole = lane.whole_cost()
    share = cost.bytes_used / max(1, whole.bytes_used)
    return Cost(
        round(whole.bytes_read * share),
        cost.bytes_used,
        round(whole.n_reads * share),
        round(whole.chunks_decoded * share),
    )


def _job_costs(lane: Lane, plan: LoaderPlan, jobs: list[Job]) -> Cost:
    """Return what reading the jobs costs; nothing where rows are kept."""
    cost = Cost()
    for _, _, content in jobs:
        cost += Cost() if lane.keep else lane.cost(content, plan.group)
    return cost


def mapped_bytes(lane: Lane) -> int:
    """Return the bytes that rows in random order are picked from by a memory map."""
    source = lane.source
    plain = lane.reader.kind == "chunked" and not source.layout.dear
    if lane.keep:
        return 0
    pictures = lane.reader.kind == "records" and source.layout.dear
    if not (plain or pictures or lane.reader.kind == "contiguous"):
        return 0
    if not isinstance(source, Source) or source.io == "pread":
        return 0
    if pictures:
        return sum(header.file.size for header in source.headers)
    if source.io == "auto" and source.layout.direct and lane.row_bytes >= LARGE_ROW_BYTES:
        return 0
    return source.n_rows * lane.row_bytes


Rows = npt.NDArray[np.int64]

DRAWN_JOBS, DRAWN_RUNS = 8, 120
"""Windows of the picture, and runs of each: more could not be told apart."""


def first_reads(plan: LoaderPlan, jobs: list[Job], mode: str) -> Reads | None:
    """What the largest source reads for some of the windows: some of the runs of each."""
    if not plan.lanes or not jobs:
        return None
    lane = max(plan.lanes, key=lambda one: one.row_bytes)
    windows = []
    for start, stop, content in jobs[:DRAWN_JOBS]:
        runs = as_runs(lane.read(content, plan.group).rows)
        some = runs[:: -(-len(runs) // DRAWN_RUNS) or 1]
        chunks = () if lane.keep else _pairs(_whole_chunks(lane, some))
        windows.append(WindowRead(start, stop, _pairs(some), chunks))
    return Reads(
        lane.name,
        lane.reader.n_rows,
        lane.source.layout.chunk_rows or 1,
        tuple(windows),
        "window" if mode == "window" else "job",
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
        sources = {lane.name: lane.source for lane in plan.lanes}
        selections = {lane.name: lane.selection for lane in plan.lanes}
        labels = read_classes("labels", labels, sources, selections)
    values = np.asarray(labels).reshape(-1)
    if len(values) != n_rows:
        raise LoaderError(f"{len(values)} labels for {n_rows} rows; give one a row")
    return values if plan.group is None else values[plan.group]


def memory_for_windows(plan: LoaderPlan, window_rows: int) -> int:
    """Return the memory that windows of so many rows need."""
    if plan.all_kept:
        return plan.sizes.memory_bytes
    wanted = min(window_rows, max(1, plan.epoch_plan.order.n_rows))
    return plan.sizes.memory_for(wanted, [lane.nbytes for lane in plan.lanes if not lane.keep])


def padding_shares(plan: LoaderPlan, epoch_plan: AnyPlan) -> tuple[float, float] | None:
    """Return the share of padding with and without buckets, in batches spread over the epoch."""
    order = epoch_plan.order
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches:
        return None
    if not isinstance(order, Order) or order.buckets is None:
        return None
    name = order.buckets.name
    lane = next((lane for lane in plan.lanes if lane.name == name), None)
    if not isinstance(lane, RaggedLane):
        return None
    without = replace(epoch_plan, order=replace(order, buckets=None))
    return _padding(lane, plan.group, epoch_plan), _padding(lane, plan.group, without)


def _padding(lane: RaggedLane, group: Rows | None, epoch_plan: EpochPlan) -> float:
    """Return the share of padding in some batches, from the shapes of their examples alone."""
    n = epoch_plan.n_batches
    numbers = np.unique(np.linspace(0, n - 1, min(n, PADDED_BATCHES)).astype(int)).tolist()
    batches = [epoch_plan.batch(number) for number in numbers]
    rows = [rows[:count] for rows, count in batches]
    ends = np.cumsum([0, *map(len, rows)])
    positions = np.concatenate(rows)
    file_rows = lane.selection.take(positions if group is None else group[positions])
    shapes = lane.source.examples().shapes(file_rows)
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
    jobs, n_jobs, share = sampled_jobs(plan, epoch_plan, first_batch, n_rows)
    lanes = tuple(explain_lane(lane, plan, jobs, share) for lane in plan.lanes)
    quality, wanted = shuffle_quality(plan, epoch_plan, labels)
    memory = None if wanted is None else memory_for_windows(plan, wanted)
    return Explanation(
        mode=order.mode,
        n_rows=n_rows,
        n_batches=epoch_plan.n_batches - first_batch,
        batch_rows=epoch_plan.batch_rows,
        n_windows=_windows_left(epoch_plan, first_batch),
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
        mapped_bytes=sum(map(mapped_bytes, plan.lanes)) if _picks(plan, epoch_plan) else 0,
        device="cpu" if plan.device is None else plan.device.name,
        pinned_bytes=_pinned_bytes(plan),
        device_windows=0 if plan.on_device is None else plan.on_device.n_windows,
        device_bytes=0 if plan.on_device is None else plan.on_device.device_bytes,
        amplification=order.amplification() if isinstance(order, Draws) else 1.0,
        exact=share == 1.0,
        kernels=permute.describe(),
        lanes=lanes,
        reads=first_reads(plan, jobs, order.mode),
    )


def _picks(plan: LoaderPlan, epoch_plan: AnyPlan) -> bool:
    """Whether rows are picked one by one, from maps of files where they can be."""
    return epoch_plan.order.mode == "full" or plan.sizes.whole is not None


def _pinned_bytes(plan: LoaderPlan) -> int:
    there = plan.on_device
    return 0 if there is None else plan.sizes.slots * there.window_bytes


def _rows_left(plan: AnyPlan, first_batch: int) -> int:
    return plan.n_rows - (plan.span(first_batch)[0] if first_batch else 0)


def _windows_left(plan: AnyPlan, first_batch: int) -> int:
    """How many windows serve the batches from `first_batch` on."""
    if not first_batch or not isinstance(plan, EpochPlan):
        return plan.n_windows
    return sum(1 for _ in plan.spans(plan.span(first_batch)[0], plan.n_rows))
