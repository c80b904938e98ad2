"""What each source costs in an epoch, counted by walking through its jobs.

Every job where there are few, else some of them spread over the epoch: the figures are
estimates then. Costs come from the readers, which count without reading rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

import numpy as np

from labeled.catalog.source import Source
from labeled.formats.extent_engine import LARGE_ROW_BYTES
from labeled.formats.reader import Cost
from labeled.loader.plan import LoaderPlan
from labeled.loader.reading.jobs import Job, n_cuts
from labeled.loader.reading.lanes import Lane
from labeled.loader.telling.explanation import LaneExplained
from labeled.samplers.plan import EpochPlan
from labeled.samplers.sampled import AnyPlan

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
        part, low, _ = next(epoch_plan.spans(place, place + 1))
        first = place - low + epoch_plan.deal_of(part).window_at(low)[1]
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
        chunk_rows=reader.chunk_rows,
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
