"""What a loader does, decided once: order, memory, lanes, and how batches are laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.device import Device
from labeled.loader.device_plan import DevicePlan
from labeled.loader.finish import Finish
from labeled.loader.handoff import HandedOver
from labeled.loader.jobs import Job, jobs_of
from labeled.loader.lanes import Lane
from labeled.loader.memory import Sizes
from labeled.loader.ordering import rows_held
from labeled.loader.slots import Layout
from labeled.samplers.sampled import AnyPlan, SampledPlan, moved
from labeled.transforms.running import Line

Rows = npt.NDArray[np.int64]


def next_epoch(plan: AnyPlan) -> AnyPlan:
    """Return the plan of the epoch that follows, whole."""
    return moved(plan, plan.order.epoch + 1)


@dataclass(frozen=True, eq=False)
class LoaderPlan:
    """Everything that is fixed when a loader is made.

    Parameters
    ----------
    lanes : sequence of Lane
        The sources that are read.
    epoch_plan : EpochPlan
        Of the first epoch; later ones differ in the epoch number alone.
    group : int64 array, optional
        Dataset position of each grouped position (index lists, shuffled).
    sizes : Sizes
    job_offset : int, optional
        See :func:`labeled.loader.jobs.cut_jobs`.
    finish : Finish
    plan_hash : str
        Over everything the order depends on, for saved states.
    skips : bool
        Leave out rows that cannot be read, rather than raise.
    max_lost : int or float, optional
        How many of them an epoch may have, or which part of its rows.
    line : Line, optional
        What happens to batches on their way to the consumer.
    uncounted : tuple of str
        Its steps that do not say how much memory they take.
    on_device : DevicePlan, optional
        What is needed on the device where batches are made; on the host when None.
    goes_to : Device, optional
        Where batches go that a pipeline makes on the host, before its batch stage.
    hand : HandedOver, optional
        Makes another library's arrays of what is handed out.
    seed_given : bool
        Whether the caller chose the seed of what is drawn.
    """

    lanes: Sequence[Lane]
    epoch_plan: AnyPlan
    group: Rows | None
    sizes: Sizes
    job_offset: int | None
    finish: Finish
    plan_hash: str
    skips: bool = False
    max_lost: int | float | None = None
    line: Line | None = None
    uncounted: tuple[str, ...] = ()
    on_device: DevicePlan | None = None
    goes_to: Device | None = None
    hand: HandedOver | None = None
    seed_given: bool = False

    @property
    def batch_rows(self) -> int:
        return self.epoch_plan.batch_rows

    @property
    def held_rows(self) -> int:
        """Rows of the largest batch there can be."""
        plan = self.epoch_plan
        listed = isinstance(plan, SampledPlan)
        return rows_held(plan.batch_rows, plan.order.n_rows, plan.last, listed=listed)

    @cached_property
    def row_bytes(self) -> int:
        """Stored bytes of one row over all sources."""
        return sum(lane.row_bytes for lane in self.lanes)

    @property
    def layout(self) -> Layout:
        """Row shape and dtype of what is read of each source."""
        return {lane.name: (lane.source.row_shape, lane.source.stored_dtype) for lane in self.lanes}

    @property
    def slot_layout(self) -> Layout:
        """The same of what lies in slots."""
        return {lane.name: lane.memory_layout() for lane in self.lanes}

    @property
    def pictures(self) -> frozenset[str]:
        """Sources whose rows are decoded one by one, unless another library shares their memory."""
        if self.hand is not None:
            return frozenset()
        layouts = {lane.name: lane.source.layout for lane in self.lanes}
        return frozenset(n for n, one in layouts.items() if one.dear and one.chunk_rows is None)

    def jobs(self, epoch_plan: AnyPlan, first_batch: int) -> Iterator[Job]:
        """Cut an epoch of this plan into jobs, from a batch on."""
        return jobs_of(epoch_plan, first_batch, self)

    def load_kept(self) -> None:
        """Read the sources that are kept in memory, if they are not there yet."""
        for lane in self.lanes:
            lane.load(self.sizes.loaders)

    @cached_property
    def all_kept(self) -> bool:
        """Whether every source is held in memory, so that windows may be cut anywhere."""
        return all(lane.keep for lane in self.lanes)

    @property
    def device(self) -> Device | None:
        """Where batches are handed out; None for the host."""
        return self.goes_to if self.on_device is None else self.on_device.device

    @property
    def sources(self) -> Mapping[str, Any]:
        return {lane.name: lane.source for lane in self.lanes}
