"""Pipelines: callables in order, each on a part of a sample or on all of it.

A pipeline is written down as plain data. A callable is a step; a list is steps in order; a mapping
says which part (which source) a step takes and returns, and leaves the other parts as they are.
:class:`Stages` holds three of them: what happens to samples, how samples become a batch, which
happens once, and what happens to batches.

Results are the same for any number of threads, any order, shard or resumed run. A transform
therefore never keeps a generator of its own; it asks, by the names of its parameters, for what is
random about a row:

``rng``
    A fresh generator for this row, of this epoch, at this step of the pipeline.
``seed``, ``epoch``, ``row``
    The plain numbers, for transforms that draw in their own way.
``rows``
    The numbers of all rows: the transform then works on whole batches.
``context``
    All of these, as a :class:`SampleContext`.

A parameter that a caller has bound already (``functools.partial``) is left alone, and so is the
first one, which takes the data.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled._validation import check_arguments, integer
from labeled.errors import PipelineError, PipelineTypeError
from labeled.samplers.permutation import key_of
from labeled.transforms.sample import RowSpec, Stack, part_of, stack

Rows = npt.NDArray[np.int64]
CONTEXT_NAMES = frozenset({"rng", "seed", "epoch", "row", "rows", "context"})


@dataclass(frozen=True, slots=True)
class SampleContext:
    """Which row of which epoch, and which step of the pipeline.

    Parameters
    ----------
    seed, epoch : int
        Of the loader.
    row : int, optional
        Position in the dataset that ``batches`` was called on; -1 for rows that pad.
    rows : int64 array, optional
        The same for every row of a batch.
    path : tuple
        The steps that lead to the transform, numbers and names.

    Examples
    --------
    >>> context = SampleContext(seed=7, epoch=0, row=3)
    >>> bool(context.rng().random() == SampleContext(seed=7, epoch=0, row=3).rng().random())
    True
    >>> bool(context.rng().random() == context.into(1).rng().random())
    False
    """

    seed: int
    epoch: int
    row: int | None = None
    rows: Rows | None = None
    path: tuple[int | str, ...] = ()

    def into(self, *steps: int | str) -> SampleContext:
        """Return the context of a step within this one."""
        return SampleContext(self.seed, self.epoch, self.row, self.rows, (*self.path, *steps))

    def rng(self) -> np.random.Generator:
        """Return a new generator, which draws the same wherever and whenever it is made."""
        key = key_of("pipeline", self.seed, self.epoch, -1 if self.row is None else self.row)
        if self.path:
            key = key_of(str(key), *self.path)
        return np.random.Generator(np.random.Philox(key=key))


# steps


@dataclass(frozen=True)
class Step:
    """One transform, in its place where it has one, and what is stated about it.

    Parameters
    ----------
    call : callable
    part : str, optional
        The part of a sample or batch that it takes and returns; None for all of it.
    path : tuple
        Numbers and names that lead to it; part of what it draws.
    asks : frozenset of str
        What it is given besides the data.
    whole : bool
        It takes whole batches.
    memory : (RowSpec, int), optional
        What it makes of a row, and the bytes that it takes besides, where that is stated.
    """

    call: Any
    part: str | None = None
    path: tuple[int | str, ...] = ()
    asks: frozenset[str] = frozenset()
    whole: bool = False
    memory: tuple[RowSpec, int] | None = None

    def __call__(self, data: Any, context: SampleContext | None = None) -> Any:
        """Apply the transform; without a context it is called with the data alone."""
        if context is None or not self.asks:
            return self.call(data)
        here = context.into(*self.path)
        return self.call(data, **{name: _given(name, here, self.call) for name in self.asks})

    def __str__(self) -> str:
        return name_of(self.call) if self.part is None else f"{self.part}={name_of(self.call)}"


def _step(transform: Any) -> Step:
    return transform if isinstance(transform, Step) else Step(transform)


def whole(transform: Any) -> Step:
    """Mark a transform as one that takes whole batches rather than samples.

    It runs in the loader's threads like one of samples, but once a batch, before rows are
    taken apart. Transforms with a parameter ``rows`` need no mark.
    """
    return replace(_step(transform), whole=True)


@check_arguments(PipelineError)
def takes(row_bytes: int, work_bytes: int = 0) -> Callable[[Callable[..., Any]], Step]:
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
    made = integer("row_bytes", row_bytes, least=0, error=PipelineError)
    beside = integer("work_bytes", work_bytes, least=0, error=PipelineError)
    row = RowSpec((), ((made,),), np.dtype(np.uint8))
    return lambda transform: replace(_step(transform), memory=(row, beside))


def steps_of(
    given: Any, part: str | None = None, path: tuple[int | str, ...] = (), *, whole: bool = False
) -> tuple[Step, ...]:
    """Return the steps of a callable, a list of them in order, or a mapping from part to them.

    Raises
    ------
    PipelineError
        If one is a collate or a pipeline.
    PipelineTypeError
        If one is nothing that can be called.
    """
    stated = _step(given)
    call, whole = stated.call, whole or stated.whole
    if isinstance(call, Steps):
        return steps_of(call.given, part, path, whole=whole)
    if call is None:
        return ()
    by_name = isinstance(call, Mapping) and part is None
    if by_name or isinstance(call, list | tuple):
        inner: Any = call.items() if by_name else enumerate(call)
        found = list[Step]()
        for step, one in inner:
            found += steps_of(one, step if by_name else part, (*path, step), whole=whole)
        return tuple(found)
    call = Steps(call) if isinstance(call, Mapping) else call
    if isinstance(call, Stack) or is_pipeline(call):
        around = "Stages([before, p.sample], p.collate, [p.batch, after])"
        remedy = f"give a collate as collate=, and put transforms around a pipeline p: {around}"
        wrong = f"{name_of(call)} makes a batch of samples, which happens once in a pipeline"
        raise PipelineError(f"{wrong}; {remedy}")
    if not callable(call):
        remedy = "give a callable, a mapping from source to one, or a list"
        raise PipelineTypeError(f"{call!r} is not a transform: {remedy}")
    asks = asked_by(call)
    return (Step(call, part, path, asks, whole or "rows" in asks, stated.memory),)


def is_pipeline(step: Any) -> bool:
    """Whether something has the three stages of a pipeline."""
    return all(callable(getattr(step, name, None)) for name in ("sample", "collate", "batch"))


def name_of(step: Any) -> str:
    """Return how messages name a transform."""
    name = getattr(step, "__qualname__", None)
    if name is None or isinstance(step, partial):
        return repr(step)
    return f"{name.rpartition('.<locals>.')[2]}()" if not isinstance(step, type) else name


def asked_by(transform: Any) -> frozenset[str]:
    """Return what a transform asks for by the names of its parameters.

    ``seed`` by itself, with a default, is taken for an option of the transform's own.

    Examples
    --------
    >>> sorted(asked_by(lambda image, rows, seed, epoch: image))
    ['epoch', 'rows', 'seed']
    >>> asked_by(lambda row: row), asked_by(partial(lambda x, rng: x, rng=None))
    (frozenset(), frozenset())
    """
    bound = transform.keywords if isinstance(transform, partial) else {}
    try:
        parameters = list(inspect.signature(transform).parameters.values())[1:]
    except (TypeError, ValueError):  # written in C, and says nothing
        return frozenset()
    by_name = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    found = CONTEXT_NAMES & by_name.keys() - bound
    if found.isdisjoint(("epoch", "row", "rows")) and "seed" in found:
        found = found if by_name["seed"].default is inspect.Parameter.empty else found - {"seed"}
    return frozenset(found)


def _given(name: str, context: SampleContext, transform: Any) -> Any:
    if name == "context":
        return context
    if name in ("rng", "row") and context.row is None:
        wrong = f"{transform!r} asks for {name!r} of one row, but is given whole batches"
        remedy = (
            "rows, seed and epoch and draw for each row, so that no result depends on its batch"
        )
        raise PipelineError(f"{wrong}: let it take {remedy}")
    if name == "rows" and context.rows is None:
        wrong = "asks for the rows of a whole batch, but stands where samples come one by one"
        remedy = "put it before transforms of samples, or let it take row"
        raise PipelineError(f"{transform!r} {wrong}: {remedy}")
    return context.rng() if name == "rng" else getattr(context, name)


# running steps


def run(
    steps: Iterable[Step],
    data: Any,
    context: SampleContext | None = None,
    *,
    stage: str = "transform",
    must_return: str | None = None,
) -> Any:
    """Take data through steps; an error is noted with its stage, step and rows.

    Parameters
    ----------
    stage : str
        What notes call the steps.
    must_return : str, optional
        What data are called where steps must return something, "a sample"; None where they may
        return None.
    """
    for step in steps:
        try:
            given = data if step.part is None else part_of(data, step.part)
            made = step(given, context)
            if made is None and must_return is not None:
                what = must_return if step.part is None else f"{step.part!r} of {must_return}"
                remedy = "let it return what it was given (return x), also if changed in place"
                raise PipelineError(f"it returned None in the place of {what}; {remedy}")
        except Exception as error:
            if context is not None:
                rows: Any = [context.row] if context.rows is None else context.rows
                where = f", at row {rows[0]}" if len(rows) else ""
                if len(rows) > 1:
                    where += f" and {len(rows) - 1} after it in the batch"
                error.add_note(f"in the {stage} of a pipeline, {step}{where}")
            raise
        if step.part is not None:  # what is replaced is not asked for: samples make arrays anew
            made = {name: made if name == step.part else data[name] for name in data}
        data = made
    return data


class Steps:
    """Transforms in order, as one callable.

    Parameters
    ----------
    given : callable, list or mapping
        None changes nothing.

    Examples
    --------
    >>> Steps([{"x": abs}, {"x": str}])({"x": -3, "y": 2})
    {'x': '3', 'y': 2}
    """

    def __init__(self, given: Any = None) -> None:
        self.given = given
        self.steps = steps_of(given)

    def __call__(self, data: Any, *, context: SampleContext | None = None) -> Any:
        return run(self.steps, data, context)

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self.steps))}]"


class Stages:
    """A pipeline of three stages.

    Parameters
    ----------
    sample : transform, optional
        Applied to each sample; a mapping routes by source, a list runs in order. A transform
        marked with :func:`whole`, or with a parameter ``rows``, takes a whole batch of
        samples at once.
    collate : callable, optional
        Makes a batch of samples; :func:`labeled.transforms.stack` when not given. A mapping
        routes by source, and the others are stacked.
    batch : transform, optional
        Applied to each batch.

    Raises
    ------
    PipelineError
        If a collate or a pipeline is given where a transform belongs.
    PipelineTypeError
        If a stage cannot be called.

    Examples
    --------
    >>> mean = Stages(sample=lambda x: x / 10, collate=sum, batch=lambda total: total / 3)
    >>> mean.batch(mean.collate([mean.sample(x) for x in (10, 20, 30)]))
    2.0

    Pipelines go around one another, and side by side:

    >>> outer = Stages([lambda x: x + 1, mean.sample], mean.collate, [mean.batch, round])
    >>> both = Stages({"x": mean.sample}, {"x": mean.collate}, {"x": mean.batch})
    """

    def __init__(self, sample: Any = None, collate: Any = None, batch: Any = None) -> None:
        self.sample = Steps(sample)
        self.collate = stack if collate is None else _collate_of(collate)
        self.batch = Steps(batch)

    def __repr__(self) -> str:
        collate = "" if self.collate is stack else f", collate={name_of(self.collate)}"
        return f"Stages(sample={self.sample}{collate}, batch={self.batch})"


def _collate_of(collate: Any) -> Any:
    if isinstance(collate, Mapping):
        return Stack(own={name: _collate_of(one) for name, one in collate.items()})
    if is_pipeline(collate) or not callable(collate):
        remedy = "give one callable that takes samples, and what comes after it as batch="
        raise PipelineTypeError(
            f"{collate!r} is not a collate: samples become a batch once, so {remedy}"
        )
    return collate
