"""What an epoch will take, told before the first row is read."""

from __future__ import annotations

import numpy.typing as npt

from labeled import permute
from labeled.loader.plan import LoaderPlan
from labeled.loader.telling.costs import explain_lane, mapped_bytes, sampled_jobs
from labeled.loader.telling.explanation import Explanation
from labeled.loader.telling.first_reads import first_reads
from labeled.loader.telling.mixing import memory_for_windows, padding_shares, shuffle_quality
from labeled.samplers.draws import Draws
from labeled.samplers.plan import EpochPlan
from labeled.samplers.sampled import AnyPlan


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
        caller_first=sizes.caller_first and plan.on_device is None,
        workers=sizes.workers,
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
