"""Collating: batches cut from jobs, laid out, taken through a pipeline and handed over.

A batch is a view of its job where one job holds all of it and nobody else is in the
way, else it is joined into memory of its own.

With ``errors="skip"`` every stored chunk of a job that could not be read is read again by
itself, so that no row is given up that is not lost.

What other libraries cannot hold is refused before anything is read. Batches of a pipeline are
copied to a device when the consumer asks for them: nothing of the next one is on its way
meanwhile, as it is where windows go to the device as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.device import Device, on_gpus
from labeled.dims import EXAMPLE_DIMS
from labeled.display.classes import ExampleInfo
from labeled.errors import DeviceMemoryError, ReadError, warn
from labeled.loader.batch import Batch
from labeled.loader.buffers import BufferPool, LoadedJob, RaggedRows
from labeled.loader.plan import LoaderPlan
from labeled.loader.prefetch import Interrupted, Made, Prefetcher
from labeled.loader.source_readers import RaggedSourceReader, SourceReader
from labeled.loader.stats import Stats
from labeled.samplers.listed import AnyPlan
from labeled.samplers.windows import WindowRows
from labeled.selection import rows_of
from labeled.transforms.running import NOTHING, Stopped
from labeled.transforms.steps import SampleContext

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Span = tuple[LoadedJob, int, int]
"""Places ``a .. b`` within a job."""


class Collator:
    """Makes the batches of an epoch, one after another; for one thread at a time.

    Parameters
    ----------
    plan : LoaderPlan
    epoch_plan : EpochPlan or SampledPlan
    jobs : Prefetcher
    pools : pair of BufferPool
        Memory for jobs and for batches joined.
    """

    def __init__(
        self,
        plan: LoaderPlan,
        epoch_plan: AnyPlan,
        jobs: Prefetcher,
        pools: tuple[BufferPool, BufferPool],
        stats: Stats,
    ) -> None:
        self._loader_plan, self._epoch_plan, self._jobs, self._stats = (
            plan,
            epoch_plan,
            jobs,
            stats,
        )
        self._job_pool, self._batch_pool = pools
        self.job: LoadedJob | None = None
        """What batches are cut from; let go of by whoever ends the iteration."""
        self._position_of, self._skips, self._lay_out = (
            plan.position_of,
            plan.options.skips,
            plan.lay_out,
        )
        self._span, self._padded_rows = (
            epoch_plan.span,
            epoch_plan.batch_rows if epoch_plan.last == "pad" else 0,
        )
        self._many_a_job = plan.sizes.job_rows >= 2 * epoch_plan.batch_rows
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
        count = stop - start
        length = self._padded_rows or count
        job = self.job
        if start < stop and (job is None or start >= job.stop):
            job = self._advance()
        copies = self._joins or (self._many_a_job and self._job_pool.extra)
        if job is not None and stop <= job.stop and count == length and not copies:
            a, b = start - job.start, stop - job.start
            arrays, spans = {}, [(job, a, b)]
            for name, array in job.arrays.items():
                arrays[name] = array[a:b]
        else:
            arrays, spans = self._joined(job, start, stop, length)
        began = perf_counter()
        lost, before = None, count
        if self._skips:
            arrays, lost, count, length = self._kept_rows(arrays, spans, count, length)
        contents = []
        for one, a, b in spans:
            contents.append((one.content, a, b))  # not the job: it has a buffer
        rows = partial(rows_of_spans, contents, self._position_of, length, lost)
        data = self._lay_out(arrays, rows, count, length)
        self._stats.format_s += perf_counter() - began
        return data, rows, count, before - count

    def _kept_rows(
        self, arrays: dict[str, Any], spans: list[Span], count: int, length: int
    ) -> tuple[dict[str, Any], Mask | None, int, int]:
        """Leave out rows that could not be read: the batch shrinks, later ones do not move."""
        if all(job.lost is None for job, _, _ in spans):
            return arrays, None, count, length
        lost = np.concatenate(
            [np.zeros(b - a, bool) if w.lost is None else w.lost[a:b] for w, a, b in spans]
        )
        left = int(count - lost.sum())
        length = length if self._epoch_plan.last == "pad" else left
        kept: dict[str, Any] = {}
        for name, array in arrays.items():
            if isinstance(array, RaggedRows):
                kept[name] = array[0:count].kept(~lost, length)
                continue
            kept[name] = np.empty((length, *array.shape[1:]), array.dtype)
            kept[name][:left] = array[:count][~lost]
        return kept, lost, left, length

    def _joined(
        self, job: LoadedJob | None, start: int, stop: int, length: int
    ) -> tuple[dict[str, Any], list[Span]]:
        """Copy a batch out of the job or jobs that hold it, the first of them given.

        Another thread may end the iteration meanwhile, and clear `job`, so that is not asked.
        """
        buffer = self._batch_pool.take(force=True)
        assert buffer is not None
        buffer.taken = False  # held from here on by its views alone
        arrays: dict[str, Any] = {}
        for name, array in buffer.arrays.items():
            arrays[name] = array[:length]
        ragged: dict[str, list[RaggedRows]] = {}
        spans: list[Span] = []
        place = 0
        while start < stop:
            assert job is not None
            if start >= job.stop:
                job = self._advance()
            end = min(stop, job.stop)
            a, b = start - job.start, end - job.start
            for name, array in job.arrays.items():
                if isinstance(array, RaggedRows):
                    ragged.setdefault(name, []).append(array[a:b])
                    continue
                arrays[name][place : place + b - a] = array[a:b]
                if array.dtype.hasobject:
                    array[a:b] = None  # moved: what they refer to is the batch's alone
            spans.append((job, a, b))
            place, start = place + b - a, end
        for name, parts in ragged.items():
            arrays[name] = RaggedRows.joined(parts, length)
        return arrays, spans

    def _advance(self) -> LoadedJob:
        """Let go of the job that is used up and take the next one."""
        self.job = None
        job = self._jobs.next()
        if job is None:
            raise Interrupted
        if job.unread:
            job.lost = read_rows_individually(
                self._loader_plan.source_readers, job.content, self._position_of, job.arrays
            )
        self.job = job
        return job

    def transformed(self, made: Made, stopped: Callable[[], bool]) -> Made | None:
        """Take a batch through what a pipeline does in threads; None if the epoch was stopped."""
        pipeline, order = self._loader_plan.pipeline, self._epoch_plan.order
        assert pipeline is not None
        data, find_rows, count, n_lost = made
        rows, info = find_rows(), data.info if isinstance(data, Batch) else {}
        context = SampleContext(order.seed, order.epoch, rows=rows)
        try:
            data, lost = pipeline.work(data, context, skips=self._skips, stopped=stopped)
        except Stopped:
            return None
        if lost is not None:
            n_more = int(lost[:count].sum())
            rows, count, n_lost = rows[~lost], count - n_more, n_lost + n_more
        return labelled(data, rows, count, info), lambda: rows, count, n_lost


def rows_of_spans(
    spans: Sequence[tuple[WindowRows, int, int]],
    position_of: Rows | None,
    length: int,
    lost: Mask | None = None,
) -> Rows:
    """Return the dataset positions of places in jobs; -1 up to `length` where padded."""
    found = [np.empty(0, np.int64), *(content.rows[a:b] for content, a, b in spans)]
    rows = np.concatenate(found)
    if lost is not None:
        rows = rows[~lost]
    out = np.full(length, -1, np.int64)
    out[: len(rows)] = rows if position_of is None else position_of[rows]
    return out


def handed_out(plan: LoaderPlan, epoch_plan: AnyPlan, made: Made) -> Any:
    """Apply the batch stage of a pipeline, on the device where one was asked for."""
    data, rows = made[0], made[1]
    if data is NOTHING or plan.pipeline is None or plan.device_plan is not None:
        return data
    if plan.goes_to is None:
        return batch_stage(plan, epoch_plan, data, rows)
    library = None if plan.hand_over is None else plan.hand_over.to.library
    return to_device(
        data, plan.goes_to, library, lambda one: batch_stage(plan, epoch_plan, one, rows)
    )


def batch_stage(plan: LoaderPlan, epoch_plan: AnyPlan, data: Any, rows: Callable[[], Rows]) -> Any:
    """Apply the last stage of a pipeline, where the batch is."""
    if plan.pipeline is None or not plan.pipeline.batch:
        return data
    return plan.pipeline.finish(
        data, SampleContext(epoch_plan.order.seed, epoch_plan.order.epoch, rows=rows())
    )


def read_rows_individually(
    source_readers: Sequence[SourceReader],
    content: WindowRows,
    position_of: Rows | None,
    arrays: dict[str, Array],
) -> Mask:
    """Read a job again, chunk by chunk, and warn of what is lost.

    Parameters
    ----------
    source_readers : sequence of SourceReader
    content, position_of
        Of the job, as for :meth:`SourceReader.tasks`.
    arrays : mapping of str to array, lengths ``(n, *row_shape)``
        Receive what can be read.

    Returns
    -------
    bool array, lengths ``(n,)``
        Places of rows of which at least one source could not be read.
    """
    lost = np.zeros(len(content.rows), bool)
    for one in source_readers:
        if one.kept is not None:
            continue
        read = one.file_rows(content, position_of)
        rows = np.asarray(read.rows, np.int64)
        rows = rows_of(rows) if rows.ndim == 2 else rows
        places = np.arange(len(rows)) if read.places is None else read.places
        ragged = isinstance(one, RaggedSourceReader)
        chunk = rows if ragged else rows // (one.layout.chunk_rows or 1)
        order = np.argsort(chunk, kind="stable")
        for some in np.split(order, np.flatnonzero(np.diff(chunk[order])) + 1):
            while len(some):
                try:
                    one.read_again(rows[some], places[some], arrays[one.name])
                    break
                except ReadError as error:
                    bad = rows[some] == error.row
                    bad = bad if bad.any() else np.ones(len(some), bool)
                    warn(f"{np.count_nonzero(bad)} rows are left out of this epoch: {error}")
                    lost[places[some[bad]]] = True
                    some = some[~bad]
    return lost


def labelled(data: Any, rows: Rows, count: int, info: Mapping[str, ExampleInfo]) -> Any:
    """Return labelled arrays as a :class:`Batch`; anything else as it is."""
    if not isinstance(data, dict) or not data:
        return data
    arrays, dims, known = dict[str, Array](), dict[str, tuple[str, ...]](), dict(info)
    for name, one in data.items():
        if not isinstance(one, xr.DataArray) or one.coords or one.attrs:
            return data
        arrays[name], dims[name] = one.data, tuple(map(str, one.dims))
        anew = one.encoding.get(EXAMPLE_DIMS)  # whose axes a step put in another order
        if anew is not None:
            known[name] = replace(known.get(name, ExampleInfo()), example_dims=anew)
    return Batch(arrays, dims, lambda: rows, count, known)


def to_device(
    data: Any,
    device: Device,
    library: str | None = None,
    then: Callable[[Any], Any] = lambda made: made,
) -> Any:
    """Return a batch whose arrays of numbers are on a device.

    Parameters
    ----------
    data : Batch, array, or mapping, tuple or list of arrays
        What is none of them, such as texts and examples of different shapes, stays.
    library : str, optional
        Whose arrays the consumer asked for.
    then : callable
        What becomes of it there, on the same stream.

    Raises
    ------
    DeviceMemoryError
        If there is no room.

    Examples
    --------
    >>> from labeled.device.streams import HostDevice
    >>> to_device((np.arange(3), {"names": np.array(["a", "b"])}), HostDevice())
    (array([0, 1, 2]), {'names': array(['a', 'b'], dtype='<U1')})
    """
    stream = device.consumer_stream(library)
    try:
        made = stream.run(lambda: then(_to_device(data, device)), [])
    except device.memory_errors as error:
        raise DeviceMemoryError(
            f"device {device.name!r} is out of memory: a batch that a pipeline made on the host "
            "does not fit; use smaller batches, or release those you keep"
        ) from error
    if isinstance(made, Batch):
        made.event = stream.record()
    return made


def _to_device(data: Any, device: Device) -> Any:
    if isinstance(data, Batch):
        return data.with_arrays({name: _to_device(a, device) for name, a in data.arrays.items()})
    if isinstance(data, xr.DataArray):
        return data.copy(data=_to_device(data.data, device))
    if isinstance(data, dict):
        return {name: _to_device(one, device) for name, one in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_to_device(one, device) for one in data))
    if isinstance(data, tuple | list):
        return type(data)(_to_device(one, device) for one in data)
    if isinstance(data, np.ndarray) and on_gpus(data.dtype):
        return device.asarray(data)
    return data
