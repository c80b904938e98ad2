"""What a pipeline takes of the host's memory.

What a pipeline makes is known in bytes before it runs, of the steps that state it: every transform
of pictures does (``memory_after``), a function where :func:`takes` states it. Steps that state
nothing are listed by name, so that whoever promises a bound can report what it does not cover.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from labeled.errors import LabeledError
from labeled.transforms.pipeline import CompiledPipeline, Step, name_of
from labeled.transforms.sample import RowSpec

Forms = RowSpec | Mapping[str, RowSpec | None] | None
"""Of one array, or of each source of a batch; None where nothing is known."""


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


def made_of(line: CompiledPipeline, rows: Forms) -> MadeOf:
    """Count what the threads' part of a pipeline makes of rows."""
    row_bytes = work_bytes = 0
    uncounted = list[str]()
    for step in (*line.whole, *line.sample):
        parts = rows if isinstance(rows, Mapping) else {}
        before = rows if step.part is None else parts.get(step.part)
        after, beside = _stated(step, before if isinstance(before, RowSpec) else None)
        if after is None:
            uncounted.append(name_of(step.call))
        else:
            row_bytes += after.row_bytes
            work_bytes = max(work_bytes, beside)
        rows = after if step.part is None else {**parts, step.part: after}
    if line.takes_apart and line.collate is not None:
        uncounted.append(name_of(line.collate))
    elif line.takes_apart:
        specs = rows.values() if isinstance(rows, Mapping) else [rows]
        row_bytes += sum(spec.row_bytes for spec in specs if spec is not None)
    return MadeOf(row_bytes, work_bytes, tuple(dict.fromkeys(uncounted)))


def _stated(step: Step, row: RowSpec | None) -> tuple[RowSpec | None, int]:
    """Return what a step makes of a row, None where it does not say, and what it takes besides."""
    with suppress(LabeledError):  # rows that it cannot take: reported when they come
        if step.memory is not None or hasattr(step.call, "memory_after"):
            found: tuple[RowSpec | None, int] = step.memory or step.call.memory_after(row)
            return found
    return None, 0
