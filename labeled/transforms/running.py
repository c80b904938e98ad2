"""How a loader runs a pipeline, and what that takes of the host's memory.

A loader takes a batch through up to four stages. Transforms of whole batches come first; then the
rows are taken apart, each goes through the transforms of samples, and the collate makes a batch of
them; all of that in the loader's threads. The last stage, `batch`, is the consumer's own: it runs
where batches are handed out. Rows are not taken apart where nothing needs them to be.

What a pipeline makes is known in bytes before it runs, of the steps that state it: every transform
of pictures does (``memory_after``), a function where :func:`takes` states it. Steps that state
nothing are listed by name, so that whoever promises a bound can report what it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.errors import LabeledError, PipelineError, ReadError, UnfitPictureError, warn
from labeled.transforms.pipeline import (
    Rows,
    SampleContext,
    Stages,
    Step,
    is_pipeline,
    name_of,
    run,
)
from labeled.transforms.sample import RowSpec, Stack, labelled_samples, some_of, stack

Mask = npt.NDArray[np.bool_]
RANDOM = frozenset({"rng", "seed", "context"})

NOTHING: Any = object()  # stands for a batch of which no sample is left, which is not handed out

# of one array, or of each source of a batch; None where nothing is known
Forms = RowSpec | Mapping[str, RowSpec | None] | None


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


@dataclass(frozen=True)
class CompiledPipeline:
    """The steps of a pipeline, sorted by what they work on, and what batches are like.

    Parameters
    ----------
    whole, sample, batch : tuple of Step
        Of whole batches and of samples, in threads; and of what is handed out.
    collate : callable, optional
        None where samples, if there are any, are put together as they were, by `stacked`.
    stacked : Stack
        Knows the dims, or the axes of what specs have laid out, that count examples.
    inner : mapping of str to tuple of str
        Dims of the examples of ragged sources, which a batch holds as objects.
    flat : bool
        Ragged examples lie end to end, so that no row can be left out.
    """

    whole: tuple[Step, ...]
    sample: tuple[Step, ...]
    collate: Callable[..., Any] | None
    batch: tuple[Step, ...]
    stacked: Stack = field(default_factory=Stack)
    inner: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flat: bool = False

    def made_of(self, rows: Forms) -> MadeOf:
        """Count what the threads' part of this pipeline makes of rows."""
        row_bytes = work_bytes = 0
        uncounted = list[str]()
        for step in (*self.whole, *self.sample):
            parts = rows if isinstance(rows, Mapping) else {}
            before = rows if step.part is None else parts.get(step.part)
            after, beside = _stated(step, before if isinstance(before, RowSpec) else None)
            if after is None:
                uncounted.append(name_of(step.call))
            else:
                row_bytes += after.row_bytes
                work_bytes = max(work_bytes, beside)
            rows = after if step.part is None else {**parts, step.part: after}
        if self.collate is not None:
            uncounted.append(name_of(self.collate))
        elif self.takes_apart:
            specs = rows.values() if isinstance(rows, Mapping) else [rows]
            row_bytes += sum(spec.row_bytes for spec in specs if spec is not None)
        return MadeOf(row_bytes, work_bytes, tuple(dict.fromkeys(uncounted)))

    @property
    def takes_apart(self) -> bool:
        """Whether rows are looked at one by one."""
        return bool(self.sample) or self.collate is not None

    @property
    def draws(self) -> bool:
        """Whether any step asks for something random."""
        return any(step.asks & RANDOM for step in (*self.whole, *self.sample, *self.batch))

    def work(
        self, data: Any, context: SampleContext, *, skips: bool, check: Callable[[], None]
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
        check : callable
            Called before each sample; raises what ends the work.

        Returns
        -------
        data, lost
            What was made, `NOTHING` where no sample is left to make it of, and which rows were
            left out, if any.
        """
        rows = context.rows
        assert rows is not None

        def each(act: Callable[[int], Any], numbers: Rows) -> tuple[list[Any], Rows]:
            """Do something for each of some rows; return what it made, and which were kept."""
            made, kept = list[Any](), list[int]()
            for at, row in enumerate(numbers.tolist()):
                check()
                try:
                    made.append(act(at))
                    kept.append(at)
                except (ReadError, UnfitPictureError) as error:
                    if not skips:
                        raise
                    warn(f"row {row} is left out of this epoch: {error}")
            return made, np.array(kept, np.int64)

        def whole(some: Any, numbers: Rows) -> Any:
            here, stage = replace(context, rows=numbers), "whole-batch transform"
            made = run(self.whole, some, here, stage=stage, must_return="a batch")
            if self.whole:
                self._check_rows(made, len(numbers), "whole-batch transforms")
            return made

        def of_copy(places: Rows) -> Any:
            return whole(some_of(data, self.stacked.axes, places), rows[places])

        kept = np.arange(len(rows))
        again = skips and not self.flat  # of copies: functions may change what they are given
        try:
            own = any(not hasattr(step.call, "memory_after") for step in self.whole)
            data = of_copy(kept) if again and own else whole(data, rows)
        except UnfitPictureError:
            if not again:
                raise
            ones = kept[:, np.newaxis]
            _, kept = each(lambda at: of_copy(ones[at]), rows)
            data = of_copy(kept) if len(kept) else NOTHING
        if data is not NOTHING and self.takes_apart:
            data, fit = self._row_by_row(data, replace(context, rows=rows[kept]), each)
            kept = kept[fit]
        return data, None if len(kept) == len(rows) else ~np.isin(np.arange(len(rows)), kept)

    def _check_rows(self, data: Any, n_rows: int, maker: str) -> None:
        """Refuse more or fewer examples than rows: nobody could tell which rows they are of."""
        for name, one in data.items() if isinstance(data, Mapping) else ():
            sizes = one.sizes if isinstance(one, xr.DataArray) else {}
            found = sizes.get(self.stacked.dim_of(name), sizes.get(Stack.dim, n_rows))
            if found != n_rows:
                raise PipelineError(
                    f"{maker} made {found} examples of {name!r}, of {n_rows} rows, "
                    "so that nobody could tell which rows they are of; leave rows out before, "
                    "with subset(), or do it in batch=, the last stage of a pipeline"
                )

    def _row_by_row(
        self, data: Any, context: SampleContext, each: Callable[..., Any]
    ) -> tuple[Any, Rows]:
        """Take rows apart, each through the transforms of samples, and collate them."""
        rows, axes, aside = context.rows, self.stacked.axes, dict[str, Any]()
        assert rows is not None
        named = {step.part for step in self.sample}
        if self.collate is None and None not in named and isinstance(data, Mapping):
            # ragged sources that no transform looks at stay as they came
            aside = {n: data[n] for n in self.inner if n in data and n not in named}
        taken = data if not aside else {n: one for n, one in data.items() if n not in aside}
        if axes is None:
            listed = rows.tolist()
            samples: list[Any] = labelled_samples(taken, listed, self.inner, self.stacked)
        else:
            samples = [some_of(taken, axes, at) for at in range(len(rows))]
        must_return = "a sample" if self.collate is None else None

        def sampled(at: int) -> Any:
            here = SampleContext(context.seed, context.epoch, int(rows[at]))
            stage = "sample transform"
            return run(self.sample, samples[at], here, stage=stage, must_return=must_return)

        kept = np.arange(len(rows))
        if self.sample:
            samples, kept = each(sampled, rows)
            if not samples:
                return NOTHING, kept
        collate = self.stacked if self.collate is None else self.collate
        if isinstance(collate, Stack) and collate.own is not None:
            plain = collate == Stack(own=collate.own)  # names no dims itself
            collate = replace(self.stacked, own=collate.own) if plain else collate
        made = run([Step(collate)], samples, context, stage="collate")
        if self.collate is not None:
            self._check_rows(made, len(samples), "the collate")
        if aside:
            both = {**made, **{name: one[kept] for name, one in aside.items()}}
            made = {name: both[name] for name in dict.fromkeys([*data, *made]) if name in both}
        return made, kept


def _stated(step: Step, row: RowSpec | None) -> tuple[RowSpec | None, int]:
    """Return what a step makes of a row, None where it does not say, and what it takes besides."""
    with suppress(LabeledError):  # rows that it cannot take: reported when they come
        if step.memory is not None or hasattr(step.call, "memory_after"):
            found: tuple[RowSpec | None, int] = step.memory or step.call.memory_after(row)
            return found
    return None, 0


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
    given = [pipeline]
    if is_pipeline(pipeline):
        given = [pipeline.sample, pipeline.collate, pipeline.batch]
    stages = Stages(*given)
    wholes, samples = list[Step](), list[Step]()
    for step in stages.sample.steps:
        if not step.whole:
            samples.append(step)
            continue
        for before in samples:
            if before.part == step.part or None in (before.part, step.part):
                wrong = f"follows {before}, which takes samples one by one"
                remedy = "put it before that, or into batch="
                raise PipelineError(f"{step} takes whole batches, but {wrong}: {remedy}")
        wholes.append(step)
    collate = None if stages.collate is stack else stages.collate
    return CompiledPipeline(tuple(wholes), tuple(samples), collate, stages.batch.steps)
