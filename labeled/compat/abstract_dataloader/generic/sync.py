"""The old synchronizations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.abstract_dataloader import abstract, spec
from labeled.compat.abstract_dataloader.abstract import NO_MARGIN, Indices, Margin
from labeled.compat.abstract_dataloader.spec import Times


class Empty:
    """Nothing at all, for sensors that are only used one by one."""

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, npt.NDArray[np.uint32]]:
        return {name: np.array([], dtype=np.uint32) for name in timestamps}


class Next(abstract.Synchronization):
    """Of each sensor the first sample at or after each of the reference's."""

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, Indices]:
        queries = self.get_reference(timestamps)
        return {
            name: np.searchsorted(times, queries, side="left").astype(np.uint32)
            for name, times in timestamps.items()
        }


class Nearest(abstract.Synchronization):
    """Of each sensor the sample nearest to each of the reference's, all nearer than `tol`."""

    def __init__(
        self,
        reference: str,
        margin: Mapping[str, Margin] | Margin = NO_MARGIN,
        tol: float = 0.1,
    ) -> None:
        if tol < 0:
            raise ValueError(f"tol={tol} must not be negative")
        super().__init__(reference, margin)
        self.tol = tol

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, Indices]:
        queries = self.get_reference(timestamps)
        found = {
            name: np.searchsorted((times[1:] + times[:-1]) / 2, queries, side="left")
            for name, times in timestamps.items()
        }
        near = np.ones(len(queries), bool)
        for name, times in timestamps.items():
            near &= np.abs(times[found[name]] - queries) < self.tol
        return {name: one[near].astype(np.uint32) for name, one in found.items()}


class Decimate(spec.Synchronization):
    """Every so manieth index of another synchronization, or of its reference's timestamps.

    With a reference, its indices count in the thinned series (as they always did).
    """

    def __init__(
        self, sync: spec.Synchronization, factor: int, reference: str | None = None
    ) -> None:
        self.sync, self.factor, self.reference = sync, factor, reference

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, Any]:
        if self.reference is None:
            return {name: one[:: self.factor] for name, one in self.sync(timestamps).items()}
        thinned = timestamps[self.reference][:: self.factor]
        return self.sync({**timestamps, self.reference: thinned})
