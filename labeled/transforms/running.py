"""A pipeline as a loader runs it: what happens to whole batches, to samples, and once.

A batch goes through up to four stages. Transforms of whole batches come first; then the rows
are taken apart, each goes through the transforms of samples, and the collate makes a batch of
them; all of that in the loader's threads. The last stage, `batch`, is the consumer's own: it
runs where batches are handed out. Rows are not taken apart where nothing needs them to be.

What a pipeline makes is known in bytes before it runs, of the steps that state it: every transform
of pictures does (``memory_after``), a function where :func:`takes` states it. Steps that state
nothing are listed by name, so that whoever promises a bound can report what it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import LabeledError, PipelineError, ReadError, UnfitPictureError, warn
from labeled.transforms.sample import Dims, RowSpec, Stack, labelled_samples, some_of, stack
from labeled.transforms.steps import (
    SampleContext,
    Step,
    check_parts,
    name_of,
    note,
    run,
    stages_of,
)

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
RANDOM = frozenset({"rng", "seed", "context"})

NOTHING: Any = object()
"""Stands for a batch of which no sample is left, which is not handed out."""


class Stopped(Exception):
    """Nobody wants the batch any more."""


@dataclass(frozen=True)
class Form:
    """How rows are taken from a batch, and put together again.

    Parameters
    ----------
    example : str
        The dim that counts examples.
    examples : mapping of str to str
        The same by source.
    inner : mapping of str to tuple of str
        Dims of the examples of ragged sources, which a batch holds as objects.
    axes : nested tuple of int, optional
        Of arrays that specs have laid out: the axis that counts examples.
    flat : bool
        Ragged examples lie end to end, so that no row can be left out.
    """

    example: str = "batch"
    examples: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, Dims] = field(default_factory=dict)
    axes: Any = None
    flat: bool = False

    def samples(self, data: Any, rows: list[int]) -> list[Any]:
        """Take a batch apart."""
        if self.axes is not None:
            return [some_of(data, self.axes, at) for at in range(len(rows))]
        if not isinstance(data, Mapping):
            raise PipelineError(
                f"a whole-batch transform made {type(data).__name__}, which cannot be taken apart "
                "into samples; let it return a mapping of labelled arrays, or put what it does "
                "into batch="
            )
        return labelled_samples(data, rows, self.inner)

    @property
    def stack(self) -> Stack:
        """The collate that puts rows together as they were."""
        return Stack(self.example, self.examples, self.axes)


@dataclass(frozen=True)
class CompiledPipeline:
    """The steps of a pipeline, sorted by what they work on.

    Parameters
    ----------
    whole, sample, batch : tuple of Step
        Of whole batches and of samples, in threads; and of what is handed out.
    collate : callable, optional
        None where samples, if there are any, are stacked.
    """

    whole: tuple[Step, ...]
    sample: tuple[Step, ...]
    collate: Callable[..., Any] | None
    batch: tuple[Step, ...]
    form: Form = field(default_factory=Form)

    def with_form(self, form: Form) -> CompiledPipeline:
        """Return the same steps for batches of a form."""
        return replace(self, form=form)

    def check_named(self, sources: Collection[str]) -> None:
        """Raise :class:`PipelineError` where a step is named for a source that is not there.

        Behind a step that takes everything there may be other parts.
        """
        for step in (*self.whole, *self.sample):
            if step.part is None:
                return
            check_parts([step.part], sources)

    @property
    def takes_apart(self) -> bool:
        """Whether rows are looked at one by one."""
        return bool(self.sample) or self.collate is not None

    @property
    def works(self) -> bool:
        """Whether there is anything for threads to do."""
        return bool(self.whole) or self.takes_apart

    @property
    def draws(self) -> bool:
        """Whether any step asks for something random."""
        return any(step.asks & RANDOM for step in (*self.whole, *self.sample, *self.batch))

    def work(
        self, data: Any, context: SampleContext, *, skips: bool, stopped: Callable[[], bool]
    ) -> tuple[Any, Mask | None]:
        """Take a batch to where it is handed out.

        Parameters
        ----------
        data : mapping or nested tuple
        context : SampleContext
            With the rows of the batch.
        skips : bool
            Leave out rows that raise :class:`ReadError` or :class:`UnfitPictureError`, with a
            warning.
        stopped : callable
            Asked before each sample; the work ends when it says so.

        Returns
        -------
        data, lost
            What was made, `NOTHING` where no sample is left to make it of, and which rows were
            left out, if any.
        """
        rows = context.rows
        assert rows is not None

        def each(act: Callable[[int], Any], numbers: IntArray) -> tuple[list[Any], IntArray]:
            """Do something for each of some rows; return what it made, and which were kept."""
            made, kept = list[Any](), list[int]()
            for at, row in enumerate(numbers.tolist()):
                if stopped():
                    raise Stopped
                try:
                    made.append(act(at))
                    kept.append(at)
                except (ReadError, UnfitPictureError) as error:
                    if not skips:
                        raise
                    warn(f"row {row} is left out of this epoch: {error}")
            return made, np.array(kept, np.int64)

        def whole(some: Any, numbers: IntArray) -> Any:
            here = replace(context, rows=numbers)
            return run(self.whole, some, here, stage="whole-batch transform", must_return="a batch")

        kept = np.arange(len(rows))
        try:
            data = whole(data, rows) if self.whole else data
        except UnfitPictureError:
            if not skips or self.form.flat:
                raise
            ones, axes = kept[:, np.newaxis], self.form.axes
            _, kept = each(lambda at: whole(some_of(data, axes, ones[at]), rows[ones[at]]), rows)
            data = whole(some_of(data, axes, kept), rows[kept]) if len(kept) else NOTHING
        if data is not NOTHING and self.takes_apart:
            data, fit = self._row_by_row(data, context, rows[kept], each)
            kept = kept[fit]
        if len(kept) == len(rows):
            return data, None
        lost = np.ones(len(rows), bool)
        lost[kept] = False
        return data, lost

    def _row_by_row(
        self, data: Any, context: SampleContext, rows: IntArray, each: Callable[..., Any]
    ) -> tuple[Any, IntArray]:
        """Take rows apart, each through the transforms of samples, and collate them."""
        aside, named = {}, {step.part for step in self.sample}
        if self.collate is None and None not in named and isinstance(data, Mapping):
            # ragged sources that no transform looks at stay as they came
            aside = {n: data[n] for n in self.form.inner if n in data and n not in named}
        taken = data if not aside else {n: one for n, one in data.items() if n not in aside}
        samples, kept = self.form.samples(taken, rows.tolist()), np.arange(len(rows))
        if self.sample:
            given, must_return = samples, "a sample" if self.collate is None else None

            def sampled(at: int) -> Any:
                one, given[at] = given[at], None
                here = SampleContext(context.seed, context.epoch, int(rows[at]))
                return run(
                    self.sample, one, here, stage="sample transform", must_return=must_return
                )

            samples, kept = each(sampled, rows)
            if not samples:
                return NOTHING, kept
        collate = self.form.stack if self.collate is None else self.collate
        try:
            made = collate(samples)
        except Exception as error:
            error.add_note(note("collate", name_of(collate), rows))
            raise
        if aside:
            both = {**made, **{name: one[kept] for name, one in aside.items()}}
            made = {name: both[name] for name in dict.fromkeys([*data, *made]) if name in both}
        return made, kept

    def finish(self, data: Any, context: SampleContext) -> Any:
        """Apply the batch stage, where the consumer is."""
        return data if data is NOTHING else run(self.batch, data, context, stage="batch stage")


def line_of(pipeline: Any) -> CompiledPipeline:
    """Sort the steps of a pipeline.

    Parameters
    ----------
    pipeline : pipeline, callable, mapping or sequence of callables
        Anything but a pipeline is a transform of samples, or of whole batches.

    Raises
    ------
    PipelineError
        If steps cannot follow one another.
    """
    stages = stages_of(pipeline)
    wholes, samples = list[Step](), list[Step]()
    for step in stages.sample.steps:
        if not step.whole:
            samples.append(step)
            continue
        for before in samples:
            if before.part == step.part or None in (before.part, step.part):
                raise PipelineError(
                    f"{step} takes whole batches, but follows {before}, which takes samples one "
                    "by one: put it before that, or into batch="
                )
        wholes.append(step)
    collate = None if stages.collate is stack else stages.collate
    return CompiledPipeline(tuple(wholes), tuple(samples), collate, stages.batch.steps)


# memory

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
    if step.memory is not None:
        row_bytes, work_bytes = step.memory
        return RowSpec((), ((row_bytes,),), np.dtype(np.uint8)), work_bytes
    memory_after = getattr(step.call, "memory_after", None)
    if memory_after is None:
        return None, 0
    try:
        found: tuple[RowSpec | None, int] = memory_after(row)
    except LabeledError:  # rows that it cannot take: reported when they come
        return None, 0
    return found
