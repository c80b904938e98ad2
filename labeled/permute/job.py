"""One permuting copy, ready to run: checked arrays in the destination's order, axes merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.permute import layout
from labeled.permute.arguments import Array, Rows


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Write ``src * scale + shift`` into `dst`; with `rows`, of those rows along `axis`.

    `dst`, `scale` and `shift` have one shape; so has `src`, but for its length along `axis`.
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

    @classmethod
    def merged(
        cls,
        dst: Array,
        src: Array,
        factors: Sequence[Array | None],
        compute: np.dtype[Any],
        rows: Rows | None,
        axis: int | None,
    ) -> Job:
        """Merge the axes that move together in every array; all arrays stay views."""
        arrays = [array for array in (dst, src, *factors) if array is not None]
        groups = layout.merged_axes(dst.shape, *(a.strides for a in arrays), barrier=axis)
        scale, shift = (None if a is None else _regrouped(a, groups) for a in factors)
        at = -1 if axis is None else groups.index((axis,))
        return cls(
            _regrouped(dst, groups), _regrouped(src, groups), scale, shift, compute, rows, at
        )


def _regrouped(array: Array, groups: tuple[tuple[int, ...], ...]) -> Array:
    shape = [math.prod(array.shape[axis] for axis in group) for group in groups]
    return array.reshape(shape or [1])
