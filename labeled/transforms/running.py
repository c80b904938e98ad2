"""A pipeline as a loader runs it: what happens to whole batches, to samples, and once.

A batch goes through up to four steps. Transforms of whole batches come first; then the rows
are taken apart, each goes through the transforms of samples, and the collate makes a batch of
them; all of that in the loader's workers. The last step, `batch`, is the consumer's own: it
runs where batches are handed out. Rows are not taken apart where nothing needs them to be.

What a pipeline makes is known in bytes before it runs, of the steps that state it
(:class:`StatesMemory`); every transform of pictures does. Of a function nothing is known, unless
:func:`takes` states it. Steps that state nothing are listed by name, so that whoever promises a
bound can report what it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from labeled.errors import LabeledError, PipelineError, ReadError, UnfitPictureError, warn
from labeled.forms import RowSpec
from labeled.transforms.compose import (
    Marked,
    ParallelCollate,
    ParallelTransforms,
    SequentialTransforms,
    all_named,
    as_transform,
    check_parts,
    first_named,
    identity,
    name_of,
    stages_of,
)
from labeled.transforms.context import Bound, Place, Rows, context_of, context_of_all
from labeled.transforms.sample import Dims, Stack, labelled_samples, some_of, stack

Mask = npt.NDArray[np.bool_]
RANDOM = frozenset({"rng", "seed", "place"})


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
    whole, sample, batch : Bound, optional
        None where nothing is to be done.
    collate : callable, optional
        None where samples, if there are any, are stacked.
    """

    whole: Bound | None
    sample: Bound | None
    collate: Callable[..., Any] | None
    batch: Bound | None
    form: Form = field(default_factory=Form)

    def with_form(self, form: Form) -> CompiledPipeline:
        """Return the same steps for batches of a form."""
        return replace(self, form=form)

    def check_named(self, sources: Collection[str]) -> None:
        """Raise :class:`PipelineError` where a first step is named for a source that is not there.

        What later ones are named for may have been made by those before.
        """
        whole, sample = (step and step.transform for step in (self.whole, self.sample))
        check_parts(first_named(whole), sources)
        if whole is None or isinstance(whole, ParallelTransforms):
            check_parts(first_named(sample), sources)

    @property
    def takes_apart(self) -> bool:
        """Whether rows are looked at one by one."""
        return self.sample is not None or self.collate is not None

    @property
    def works(self) -> bool:
        """Whether there is anything for workers to do."""
        return self.whole is not None or self.takes_apart

    @property
    def draws(self) -> bool:
        """Whether any step asks for something random."""
        steps = [step.transform for step in (self.whole, self.sample, self.batch) if step]
        return bool(context_of_all(steps) & RANDOM)

    def work(
        self, data: Any, place: Place, *, skips: bool, stopped: Callable[[], bool]
    ) -> tuple[Any, Mask | None]:
        """Take a batch to where it is handed out.

        Parameters
        ----------
        data : mapping or nested tuple
        place : Place
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
        assert place.rows is not None
        rows, kept = place.rows, np.arange(len(place.rows))
        care = _Care(skips, stopped)
        if self.whole is not None:
            data, kept = self._whole(self.whole, data, place, care)
        if data is not NOTHING and self.takes_apart:
            data, fit = self._taken_apart(data, place, rows[kept].tolist(), care)
            kept = kept[fit]
        if len(kept) == len(rows):
            return data, None
        lost = np.ones(len(rows), bool)
        lost[kept] = False
        return data, lost

    def _whole(
        self, step: Bound, data: Any, place: Place, care: _Care
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Apply transforms of whole batches, where asked without the rows that do not fit."""
        rows, axes = place.rows, self.form.axes
        assert rows is not None

        def applied(some: Any, numbers: Rows) -> Any:
            with noted("whole-batch transform", step.transform, numbers):
                made = step(some, replace(place, rows=numbers))
                if made is None:
                    raise PipelineError(
                        "it returned None in the place of a batch; let it return the batch"
                    )
                return made

        try:
            return applied(data, rows), np.arange(len(rows))
        except UnfitPictureError:
            if not care.skips or self.form.flat:
                raise
        ones = [np.array([at]) for at in range(len(rows))]
        _, kept = care.each(
            rows.tolist(), lambda at: applied(some_of(data, axes, ones[at]), rows[ones[at]])
        )
        return (applied(some_of(data, axes, kept), rows[kept]) if len(kept) else NOTHING), kept

    def _taken_apart(
        self, data: Any, place: Place, rows: list[int], care: _Care
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Take rows apart, each through the transforms of samples, and collate them."""
        aside = self._aside(data)
        taken = data if not aside else {n: one for n, one in data.items() if n not in aside}
        samples, kept = self.form.samples(taken, rows), np.arange(len(rows))
        if self.sample is not None:
            transform, given = self.sample, samples

            def sampled(at: int) -> Any:
                one, given[at] = given[at], None
                made = transform(one, Place(place.seed, place.epoch, rows[at]))
                return self._returned(made)

            samples, kept = care.each(rows, sampled, transform.transform)
        if care.skips and not samples:
            return NOTHING, kept
        collate = self.form.stack if self.collate is None else self.collate
        with noted("collate", collate, rows):
            made = collate(samples)
        if aside:
            whole = {**made, **{name: one[kept] for name, one in aside.items()}}
            names = dict.fromkeys([*data, *made])
            made = {name: whole[name] for name in names if name in whole}
        return made, kept

    def _aside(self, data: Any) -> dict[str, Any]:
        """Return the ragged sources that no transform looks at; they stay as they came."""
        step = None if self.sample is None else self.sample.transform
        named = None if self.collate is not None else all_named(step)
        if named is None or not isinstance(data, Mapping):
            return {}
        return {name: data[name] for name in self.form.inner if name in data and name not in named}

    def _returned(self, made: Any) -> Any:
        """Return what a transform of samples did; the usual collate makes nothing of None."""
        if self.collate is not None:
            return made
        parts = made if type(made) is dict else {"": made}
        lacking = next((name for name, part in parts.items() if part is None), None)
        if lacking is not None:
            what = "a sample" if made is None else f"{lacking!r} of a sample"
            raise PipelineError(
                f"it returned None in the place of {what}; let it return what it was given (return "
                "x), also where it changes that in place"
            )
        return made

    def finish(self, data: Any, place: Place) -> Any:
        """Apply the batch stage, where the consumer is."""
        if self.batch is None or data is NOTHING:
            return data
        with noted("batch stage", self.batch.transform, place.rows):
            return self.batch(data, place)


@dataclass(frozen=True)
class _Care:
    """What becomes of rows that cannot be used, and how work on them ends early."""

    skips: bool
    stopped: Callable[[], bool]

    def each(
        self, rows: Sequence[int], work: Callable[[int], Any], step: Any = None
    ) -> tuple[list[Any], npt.NDArray[np.int64]]:
        """Do something for each row; return what it made, and the positions that were kept."""
        made, kept = list[Any](), list[int]()
        for at, row in enumerate(rows):
            if self.stopped():
                raise Stopped
            try:
                made.append(work(at))
                kept.append(at)
            except (ReadError, UnfitPictureError) as error:
                if not self.skips:
                    raise
                warn(f"row {row} is left out of this epoch: {error}")
            except Exception as error:
                if step is not None:
                    error.add_note(_note("sample transform", step, [row]))
                raise
        return made, np.array(kept, np.int64)


NOTHING: Any = object()
"""Stands for a batch of which no sample is left, which is not handed out."""


@contextmanager
def noted(stage: str, step: Any, rows: Sequence[int] | Rows | None) -> Iterator[None]:
    """Note down on an error which stage raised it, and at which rows."""
    try:
        yield
    except Exception as error:
        error.add_note(_note(stage, step, [] if rows is None else list(rows)))
        raise


def _note(stage: str, step: Any, rows: Sequence[int]) -> str:
    where = "" if not rows else f", at row {rows[0]}"
    more = "" if len(rows) < 2 else f" and {len(rows) - 1} after it in the batch"
    return f"in the {stage} of a pipeline, {name_of(step)}{where}{more}"


class Stopped(Exception):
    """Nobody wants the batch any more."""


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
    whole, sample = parted(stages.sample)
    return CompiledPipeline(
        None if whole is None else Bound(whole),
        None if sample is None else Bound(sample),
        None if _only_stacks(stages.collate) else stages.collate,
        None if stages.batch is identity else Bound(stages.batch),
    )


def parted(step: Any) -> tuple[Any, Any]:
    """Return what of a transform takes whole batches, and what takes samples; None for nothing.

    Examples
    --------
    >>> def scaled(images, rows, seed, epoch): ...
    >>> parted([scaled, abs])
    (SequentialTransforms(scaled()), SequentialTransforms(abs()))
    """
    if step is identity:
        return None, None
    if isinstance(step, list):
        step = SequentialTransforms(*step)
    if isinstance(step, SequentialTransforms):
        return _parted_sequence(step)
    if isinstance(step, ParallelTransforms):
        return _parted_parts(step)
    return (step, None) if "rows" in context_of(step) else (None, step)


def _parted_sequence(sequence: SequentialTransforms) -> tuple[Any, Any]:
    wholes: list[Any] = []
    samples: list[Any] = []
    for step in sequence.steps:
        whole, sample = parted(step)
        if whole is not None and samples:
            raise PipelineError(
                f"{name_of(step)} takes whole batches, but follows {name_of(samples[-1])}, which "
                "takes samples one by one: put it before that, or into batch="
            )
        wholes += [] if whole is None else [whole]
        samples += [] if sample is None else [sample]
    return (
        SequentialTransforms(*wholes) if wholes else None,
        SequentialTransforms(*samples) if samples else None,
    )


def _parted_parts(parallel: ParallelTransforms) -> tuple[Any, Any]:
    found = {name: parted(step) for name, step in parallel.steps.items()}
    wholes = {name: whole for name, (whole, _) in found.items() if whole is not None}
    samples = {name: sample for name, (_, sample) in found.items() if sample is not None}
    by_name = dict.fromkeys(found, identity)
    if not samples and parallel.others != "keep":
        return ParallelTransforms(by_name | wholes, others=parallel.others), None
    whole = ParallelTransforms(wholes) if wholes else None
    if not samples:
        return whole, None
    return whole, ParallelTransforms(by_name | samples, others=parallel.others)


def _only_stacks(collate: Any) -> bool:
    if isinstance(collate, ParallelCollate):
        return collate.others == "keep" and all(map(_only_stacks, collate.parts.values()))
    return collate is stack


Forms = RowSpec | Mapping[str, RowSpec | None] | None
"""Of one array, or of each source of a batch; None where nothing is known."""


@runtime_checkable
class StatesMemory(Protocol):
    """A transform that says how much memory it takes."""

    def memory_after(self, row: RowSpec | None) -> tuple[RowSpec | None, int]:
        """Return what it makes of a row, None where that is unknown, and the bytes that it takes.

        The bytes are for a batch, besides what it is given and what it returns.
        """


@dataclass
class MadeOf:
    """What a pipeline takes of the host's memory; counted step by step.

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

    def _leave_out(self, step: Any) -> None:
        self.uncounted = tuple(dict.fromkeys([*self.uncounted, name_of(step)]))

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
        if isinstance(step, Marked):
            if step.row_bytes is None:
                return self.after(as_transform(step.transform), rows)
            self.row_bytes += step.row_bytes
            self.work_bytes = max(self.work_bytes, step.beside_bytes)
            return RowSpec((), ((step.row_bytes,),), np.dtype(np.uint8))
        if isinstance(step, StatesMemory):
            return self._stated(step, rows if isinstance(rows, RowSpec) else None)
        if step is not identity:
            self._leave_out(step)
            return None
        return rows

    def _parts(self, step: ParallelTransforms, rows: Mapping[str, RowSpec | None]) -> Forms:
        made = {name: self.after(one, rows.get(name)) for name, one in step.steps.items()}
        whole = made if step.others == "drop" else {**rows, **made}
        return {name: one if isinstance(one, RowSpec) else None for name, one in whole.items()}

    def _stated(self, step: StatesMemory, row: RowSpec | None) -> RowSpec | None:
        try:
            after, work_bytes = step.memory_after(row)
        except LabeledError:  # rows that it cannot take: reported when they come
            return None
        if after is None:
            self._leave_out(step)
            return None
        self.row_bytes += after.row_bytes
        self.work_bytes = max(self.work_bytes, work_bytes)
        return after


def made_of(line: CompiledPipeline, rows: Forms) -> MadeOf:
    """Count what the workers' part of a pipeline makes of rows."""
    made = MadeOf()
    rows = made.after(None if line.whole is None else line.whole.transform, rows)
    if not line.takes_apart:
        return made
    rows = made.after(None if line.sample is None else line.sample.transform, rows)
    if line.collate is None or isinstance(line.collate, Stack):
        forms = rows.values() if isinstance(rows, Mapping) else [rows]
        made.row_bytes += sum(form.row_bytes for form in forms if form is not None)
    else:
        made._leave_out(line.collate)
    return made
