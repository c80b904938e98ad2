"""What a pipeline makes, in bytes: known before it runs, of the steps that say so.

A step says so by two methods, :class:`StatesMemory`; every transform of :mod:`labeled.transforms`
has them. Of a function nothing is known, unless :func:`takes` states it. Names of the steps that
say nothing are kept, so that whoever promises a bound can tell what it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from labeled.errors import LabeledError, PipelineError
from labeled.forms import RowForm
from labeled.transforms.compose import (
    Needs,
    ParallelTransforms,
    SequentialTransforms,
    Whole,
    Wrapped,
    identity,
    name_of,
)
from labeled.transforms.running import Line
from labeled.transforms.sample import Stack

Forms = RowForm | Mapping[str, RowForm | None] | None
"""Of one array, or of each source of a batch; None where nothing is known."""


@runtime_checkable
class StatesMemory(Protocol):
    """A transform that says how much memory it takes."""

    def form_after(self, row: RowForm | None) -> RowForm | None:
        """Return what it makes of a row, None where that cannot be told."""

    def work_bytes(self, row: RowForm | None) -> int:
        """Return what it takes for a batch besides what it is given and what it returns."""


@dataclass(frozen=True)
class MadeOf:
    """What a pipeline takes of the host's memory.

    Parameters
    ----------
    row_bytes : int
        All that is made of a row, for as long as its batch is in hand.
    work_bytes : int
        What working on a batch takes besides.
    uncounted : tuple of str
        Names of the steps that do not say.
    """

    row_bytes: int = 0
    work_bytes: int = 0
    uncounted: tuple[str, ...] = ()


def made_of(line: Line, rows: Forms) -> MadeOf:
    """Count what the workers' part of a pipeline makes of rows."""
    tally = _Tally()
    rows = tally.after(None if line.whole is None else line.whole.transform, rows)
    if not line.takes_apart:
        return tally.made
    rows = tally.after(None if line.sample is None else line.sample.transform, rows)
    if line.collate is None or isinstance(line.collate, Stack):
        forms = rows.values() if isinstance(rows, Mapping) else [rows]
        tally.row_bytes += sum(form.row_bytes for form in forms if form is not None)
    else:
        tally.uncounted.append(name_of(line.collate))
    return tally.made


@dataclass
class _Tally:
    row_bytes: int = 0
    work_bytes: int = 0
    uncounted: list[str] = field(default_factory=list)

    @property
    def made(self) -> MadeOf:
        return MadeOf(self.row_bytes, self.work_bytes, tuple(dict.fromkeys(self.uncounted)))

    def after(self, step: Any, rows: Forms) -> Forms:
        """Count a step, and return the forms of what it makes."""
        if step is None:
            return rows
        if isinstance(step, SequentialTransforms):
            for one in step.steps:
                rows = self.after(one, rows)
            return rows
        if isinstance(step, ParallelTransforms):
            return self._parts(step, rows if isinstance(rows, Mapping) else {})
        if isinstance(step, Whole | Needs):
            return self.after(step.children[0], rows)
        if isinstance(step, StatesMemory):
            return self._stated(step, rows if isinstance(rows, RowForm) else None)
        if step is not identity:
            self.uncounted.append(name_of(step))
            return None
        return rows

    def _parts(self, step: ParallelTransforms, rows: Mapping[str, RowForm | None]) -> Forms:
        made = {name: self.after(one, rows.get(name)) for name, one in step.steps.items()}
        whole = made if step.others == "drop" else {**rows, **made}
        return {name: one if isinstance(one, RowForm) else None for name, one in whole.items()}

    def _stated(self, step: StatesMemory, row: RowForm | None) -> RowForm | None:
        try:
            after, work_bytes = step.form_after(row), step.work_bytes(row)
        except LabeledError:  # rows that it cannot take: said in their turn
            return None
        if after is None:
            self.uncounted.append(name_of(step))
            return None
        self.row_bytes += after.row_bytes
        self.work_bytes = max(self.work_bytes, work_bytes)
        return after


@dataclass(frozen=True)
class Takes(Wrapped):
    """A transform with its memory stated. Made by :func:`takes`."""

    made_bytes: int
    beside_bytes: int = 0

    def form_after(self, row: RowForm | None) -> RowForm:
        return RowForm((), ((self.made_bytes,),), np.dtype(np.uint8))

    def work_bytes(self, row: RowForm | None) -> int:
        return self.beside_bytes


def takes(row_bytes: int, work_bytes: int = 0) -> Callable[[Callable[..., Any]], Takes]:
    """State how much memory a transform takes, so that ``memory=`` of a loader counts it.

    Parameters
    ----------
    row_bytes : int
        Of what it makes of one row.
    work_bytes : int
        What it takes besides, while it works on a batch.

    Examples
    --------
    >>> @takes(row_bytes=8 * 100)
    ... def spectrum(wave): ...
    """
    for name, value in (("row_bytes", row_bytes), ("work_bytes", work_bytes)):
        if value < 0:
            raise PipelineError(f"{name}={value!r} must be a number of bytes, 0 or more")
    return lambda transform: Takes(transform, int(row_bytes), int(work_bytes))
