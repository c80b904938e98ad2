"""One permuting copy, ready to run: checked arrays in the destination's order, axes merged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.permute.arguments import Array, Rows
from labeled.permute.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Write ``src * scale + shift`` into `dst`; with `rows`, of those rows along `axis`.

    `dst` and `src` have one shape but for the length along `axis`; `scale` and `shift` have
    length 1 where they are the same.
    """

    dst: Array
    src: Array
    scale: Array | None
    shift: Array | None
    compute: np.dtype[Any]
    rows: Rows | None
    axis: int

    @property
    def pure(self) -> bool:
        """Whether bytes are moved as they are."""
        return self.scale is None and self.shift is None and self.src.dtype == self.dst.dtype


def job(
    plan: Plan,
    dst: Array,
    src: Array,
    rows: Rows | None,
    scale: Array | None,
    shift: Array | None,
) -> Job:
    """Show arrays as a plan sees them; `dst` and `src` stay views of the same memory."""
    lengths = list(plan.lengths)
    axis = -1
    if rows is not None and plan.axis is not None:
        axis = plan.axis
        lengths[axis] = src.shape[0]
    factors = [None if f is None else merged_factor(plan, f, src.ndim) for f in (scale, shift)]
    return Job(
        dst.reshape(plan.lengths),
        src.transpose(plan.order).reshape(lengths),
        factors[0],
        factors[1],
        plan.compute,
        rows,
        axis,
    )


def merged_factor(plan: Plan, factor: Array, ndim: int) -> Array:
    """Return a factor over the merged axes, with length 1 where it is the same."""
    whole = factor.reshape((1,) * (ndim - factor.ndim) + factor.shape).transpose(plan.order)
    found = whole.reshape([math.prod(whole.shape[a] for a in group) for group in plan.groups] or 1)
    if plan.repeat == 1 or found.shape[-1] == 1:
        return found
    return np.tile(found, (1,) * (found.ndim - 1) + (plan.repeat,))
