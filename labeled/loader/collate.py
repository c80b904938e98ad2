"""Collating: batches cut from jobs, laid out, taken through a pipeline and handed over.

A batch is a view of its job where one job holds all of it and nobody else is in the
way, else it is joined into memory of its own.

With ``errors="skip"`` every stored chunk of a job that could not be read is read again by
itself, so that no row is given up that is not lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.dims import EXAMPLE_DIMS
from labeled.display.text import ExampleInfo, count_words
from labeled.errors import ReadError, warn
from labeled.formats.reader import listed_rows
from labeled.loader.batch import Batch
from labeled.loader.plan import LoaderPlan
from labeled.loader.prefetch import Interrupted, Made, PipedBatch, Prefetcher
from labeled.loader.reading import BufferPool, RaggedRows
from labeled.samplers.plan import EpochPlan
from labeled.samplers.windows import WindowRows
from labeled.sources.source import Array, Rows
from labeled.transforms.pipeline import SampleContext, run
from labeled.transforms.sample import Stack

Mask = npt.NDArray[np.bool_]
T = TypeVar("T")

# places `a .. b` within a job of some content, and which rows of the job are lost
Span = tuple[WindowRows, int, int, Mask | None]


class Collator:
    """Makes the batches of an epoch, one after another; for one thread at a time.

    Parameters
    ----------
    plan : LoaderPlan
    epoch_plan : EpochPlan
    jobs : Prefetcher or DeviceWindows
    pools : pair of BufferPool
        Memory for jobs and for batches joined.
    """

    def __init__(
        self, plan: LoaderPlan, epoch_plan: EpochPlan, jobs: Any, batch_pool: BufferPool
    ) -> None:
        self.plan, self.epoch_plan, self.jobs, self.stats = plan, epoch_plan, jobs, jobs.stats
        self.job: Any = None  # what batches are cut from; let go of by whoever ends the iteration
        self._job_pool, self._batch_pool = jobs.pool, batch_pool
        self._span, self._lay_out, self._skips = epoch_plan.span, plan.lay_out, plan.options.skips
        self._there: Any = plan.device_plan
        self._place: Any = None  # brings arrays that were made on the host to the device
        # sources of which batches hold copies, never views of a job
        self._fresh: Collection[str] = ()
        self._padded_rows = epoch_plan.batch_rows if epoch_plan.last == "pad" else 0
        self._many_a_job = not self._there and plan.sizes.job_rows >= 2 * epoch_plan.batch_rows
        self._joins = plan.sizes.in_flight > 0 and not self._many_a_job

    def batch(self, number: int) -> Made:
        """Build one batch: its rows from the job or jobs that hold them, laid out.

        A batch that is a view keeps its whole job in memory. That costs nothing to a
        consumer who uses batches one by one; once one is seen to hold on to them, large
        jobs are let go of by copying. A pipeline has several in hand at any time.

        Raises
        ------
        Interrupted
            If the epoch was stopped.
        """
        start, stop = self._span(number)
        count = n_rows = stop - start
        length, job, lost = self._padded_rows or count, self.job, None
        if start < stop and (job is None or start >= job.stop):
            job = self._advance()
        copies = self._joins or (self._many_a_job and self._job_pool.extra)
        arrays: dict[str, Any] = {}
        if job is not None and stop <= job.stop and count == length and not copies:
            a, b = start - job.start, stop - job.start
            for name, array in job.arrays.items():
                arrays[name] = array[a:b]
            spans = [(job.content, a, b, job.lost)]
        else:
            arrays, spans = self._joined(job, start, stop, length)
            job = None
        if self._skips:
            arrays, lost, count, length = self._kept_rows(arrays, spans, count, length)
        rows = partial(rows_of_spans, spans, self.plan.position_of, length, lost)
        laid_out = partial(self._lay_out, arrays, rows, count, length, self._place)
        if job is not None and self._fresh:
            laid_out = partial(copy_each, arrays, self._fresh, laid_out)
        return self._run(laid_out, job), rows, count, n_rows - count

    def _run(self, make: Callable[[], T], job: Any = None) -> T:
        """Make something, of a job or of none; on a device this is where its stream comes in."""
        began = perf_counter()
        made = make()
        self.stats.format_s += perf_counter() - began
        return made

    def _joined(
        self, job: Any, start: int, stop: int, length: int
    ) -> tuple[dict[str, Any], list[Span]]:
        """Copy a batch out of the job or jobs that hold it, the first of them given.

        Another thread may end the iteration meanwhile, and clear `job`, so that is not asked.
        """
        buffer: Any = self._run(partial(self._batch_pool.take, force=True))
        arrays, ragged = dict[str, Any](), dict[str, list[RaggedRows]]()
        for name, array in buffer.items():
            arrays[name] = array[:length]
        spans, place = list[Span](), 0
        for name, form in self._lay_out.ragged.items():
            ragged[name] = [form.empty]
        while start < stop:
            if start >= job.stop:
                job = None  # its memory is free once it is copied from
                job = self._advance()
            a, b = start - job.start, min(stop, job.stop) - job.start
            for name, parts in ragged.items():
                parts.append(job.arrays[name][a:b])
            self._run(partial(copy_rows, job.arrays, a, b, arrays, place), job)
            spans.append((job.content, a, b, job.lost))  # not the job: it has a buffer
            place, start = place + b - a, start + b - a
        for name, parts in ragged.items():
            arrays[name] = RaggedRows.joined(parts, length)
        if ragged:  # the sources in their own order again
            arrays = {name: arrays[name] for name in self._lay_out.sources}
        return arrays, spans

    def _kept_rows(
        self, arrays: dict[str, Any], spans: list[Span], count: int, length: int
    ) -> tuple[dict[str, Any], Mask | None, int, int]:
        """Leave out rows that could not be read: the batch shrinks, later ones do not move."""
        masks = [np.zeros(b - a, bool) if lost is None else lost[a:b] for _, a, b, lost in spans]
        lost = np.concatenate([np.empty(0, bool), *masks])
        if not lost.any():
            return arrays, None, count, length
        left = int(count - lost.sum())
        length = length if self.epoch_plan.last == "pad" else left
        places = np.resize(np.flatnonzero(~lost), length)  # any rows where padding comes
        for name, array in arrays.items():
            if isinstance(array, RaggedRows):
                arrays[name] = array[0:count].kept(~lost, length)
            else:
                arrays[name] = array[places]
        return arrays, lost, left, length

    def _advance(self) -> Any:
        """Let go of the job that is used up and take the next one."""
        self.job = None
        job = self.jobs.next()
        if job is None:
            raise Interrupted
        if job.unread:
            job.lost = read_rows_individually(self.plan, job.content, job.arrays)
        self.job = job
        return job

    def _check(self) -> None:
        """End the work on a batch that nobody wants any more."""
        if self.jobs.stopped:
            raise Interrupted

    def transformed(self, made: Made) -> Made:
        """Take a batch through what a pipeline does in threads."""
        pipeline, order = self.plan.pipeline, self.epoch_plan.order
        assert pipeline is not None
        data, find_rows, count, n_lost = made
        rows, info = find_rows(), data.info if isinstance(data, Batch) else {}
        context = SampleContext(order.seed, order.epoch, rows=rows)
        data, lost = pipeline.work(data, context, skips=self._skips, check=self._check)
        if lost is not None:
            n_more = int(lost[:count].sum())
            rows, count, n_lost = rows[~lost], count - n_more, n_lost + n_more
        return labelled(data, rows, count, info, pipeline.stacked), lambda: rows, count, n_lost


def copy_each(arrays: dict[str, Any], names: Collection[str], then: Callable[[], T]) -> T:
    """Put copies in the place of some arrays, and go on."""
    for name in names:
        arrays[name] = arrays[name].copy()
    return then()


def copy_rows(source: dict[str, Any], a: int, b: int, target: dict[str, Any], place: int) -> None:
    """Copy rows ``a .. b`` of some arrays to a place in others of the same names."""
    for name, array in target.items():
        array[place : place + b - a] = source[name][a:b]


def piped(windows: Prefetcher, collator: Collator, numbers: range) -> Iterator[PipedBatch]:
    """Yield batches of a pipeline in order; some more are cut and on their way meanwhile."""
    flying, sizes = deque[PipedBatch](), collator.plan.sizes
    for number in numbers:
        try:
            work = partial(collator.transformed, collator.batch(number))
            flying.append(windows.transform(work))
            del work  # only the batch is to keep its memory
            windows.poke()
        except Exception as error:  # met behind the batches that are on their way
            flying.append(PipedBatch(ready=True, error=error))
            break
        if not sizes.threads or len(flying) == sizes.in_flight or flying[0].ready:
            yield flying.popleft()
    yield from flying


def rows_of_spans(
    spans: Sequence[Span], position_of: Rows | None, length: int, lost: Mask | None = None
) -> Rows:
    """Return the dataset positions of places in jobs; -1 up to `length` where padded."""
    found = [np.empty(0, np.int64), *(content.rows[a:b] for content, a, b, _ in spans)]
    rows = np.concatenate(found)
    if lost is not None:
        rows = rows[~lost]
    out = np.full(length, -1, np.int64)
    out[: len(rows)] = rows if position_of is None else position_of[rows]
    return out


def batch_stage(
    plan: LoaderPlan, epoch_plan: EpochPlan, rows: Callable[[], Rows], data: Any
) -> Any:
    """Apply the last stage of a pipeline, where the batch is."""
    if plan.pipeline is None or not plan.pipeline.batch:
        return data
    context = SampleContext(epoch_plan.order.seed, epoch_plan.order.epoch, rows=rows())
    return run(plan.pipeline.batch, data, context, stage="batch stage")


def read_rows_individually(plan: LoaderPlan, content: WindowRows, arrays: dict[str, Array]) -> Mask:
    """Read a job again, chunk by chunk, and warn of what is lost.

    Parameters
    ----------
    plan : LoaderPlan
    content : WindowRows
        Of the job, as for :meth:`SourceReader.tasks`.
    arrays : mapping of str to array, lengths ``(n, *row_shape)``
        Receive what can be read.

    Returns
    -------
    bool array, lengths ``(n,)``
        Places of rows of which at least one source could not be read.
    """
    lost = np.zeros(len(content.rows), bool)
    for one in plan.source_readers:  # none is kept where rows may be left out
        read, places = one.file_rows(content)
        rows = listed_rows(read, one.reader.n_rows)
        places = np.arange(len(rows)) if places is None else places
        ragged = one.source.ragged is not None
        chunk = rows if ragged else one.layout.chunks_of(rows, 1)
        order = np.argsort(chunk, kind="stable")
        for some in np.split(order, np.flatnonzero(np.diff(chunk[order])) + 1):
            while len(some):
                try:
                    one.read(rows[some], places[some], arrays[one.name])
                    break
                except ReadError as error:
                    bad = rows[some] == error.row
                    bad = bad if bad.any() else np.ones(len(some), bool)
                    n = int(np.count_nonzero(bad))
                    gone = f"{count_words(n, 'row')} {'is' if n == 1 else 'are'} left out"
                    warn(f"{gone} of this epoch: {error}")
                    lost[places[some[bad]]] = True
                    some = some[~bad]
    return lost


def labelled(
    data: Any, rows: Rows, count: int, info: Mapping[str, ExampleInfo], stacked: Stack
) -> Any:
    """Return labelled arrays as a :class:`Batch`; anything else as it is."""
    if not isinstance(data, dict) or not data:
        return data
    arrays, dims, known = dict[str, Array](), dict[str, tuple[str, ...]](), dict(info)
    for name, one in data.items():
        if not isinstance(one, xr.DataArray) or one.coords or one.attrs:
            return data
        arrays[name], dims[name] = one.data, tuple(map(str, one.dims))
        if stacked.dim_of(name) in dims[name][1:]:
            axis = dims[name].index(stacked.dim_of(name))
            known[name] = replace(known.get(name, ExampleInfo()), batch_axis=axis)
        anew = one.encoding.get(EXAMPLE_DIMS)  # whose axes a step put in another order
        if anew is not None:
            known[name] = replace(known.get(name, ExampleInfo()), example_dims=anew)
    return Batch(arrays, dims, lambda: rows, count, known)
