"""The loader: epochs of batches, a place that can be saved, one live iterator.

Each ``iter(loader)`` starts the next epoch, whether or not the last was finished. What
a batch holds is decided by integers (`samplers`), read by threads (`prefetch`), cut from its
window or windows and laid out (`collate`), and handed over here.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from threading import RLock
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from labeled._validation import check_arguments, integer
from labeled.display.progress import epoch_bar
from labeled.display.text import Summary, Viewed
from labeled.errors import LoaderError, ReadError, StateError, explain_memory_errors, warn
from labeled.loader.collate import Collator, piped
from labeled.loader.device import (
    DeviceCollator,
    DeviceMemory,
    DeviceWindows,
    ResidentCollator,
    handed_out,
)
from labeled.loader.explain import Explanation, LoaderPlots, Stats, loader_summary
from labeled.loader.plan import LoaderPlan
from labeled.loader.prefetch import Interrupted, Prefetcher
from labeled.loader.reading import BufferPool, owned
from labeled.samplers.plan import EpochPlan
from labeled.samplers.state import State, restore, state_of
from labeled.sources.source import Rows
from labeled.transforms.running import NOTHING

log = logging.getLogger(__name__)

T = TypeVar("T")


class Loader(Viewed):
    """Batches of a dataset, epoch after epoch. Made by :meth:`labeled.Dataset.batches`.

    Each ``for`` over a loader is the next epoch, also after ``break``. It yields a
    :class:`labeled.Batch`, or what `output`, `as_tuple` and `specs` ask for. A loader has one live
    iterator: a second one ends the first. ``len(loader)`` is the number of batches in the next
    epoch of this shard.

    Attributes
    ----------
    seed : int
        The seed of the order; drawn once if none was given.
    epoch : int
        The epoch that the next ``for`` starts, or continues after :meth:`load_state_dict`.

    Examples
    --------
    >>> import numpy as np
    >>> import labeled
    >>> loader = labeled.batches({"x": np.arange(6)}, 2, shuffle=True, seed=7)
    >>> first = [batch.rows.tolist() for batch in loader]
    >>> second = [batch.rows.tolist() for batch in loader]  # another order
    >>> sorted(sum(first, [])), loader.epoch
    ([0, 1, 2, 3, 4, 5], 2)
    """

    def __init__(self, plan: LoaderPlan) -> None:
        self.plan = plan
        self._next: EpochPlan = plan.epoch_plan
        self._first_batch = 0
        self._live: weakref.ref[EpochIterator[Any]] | None = None
        # the live epoch, its batches handed out, and whether its loop has ended
        self._place: tuple[EpochPlan, int, bool] | None = None
        self._stats = Stats()
        sizes, there, read, joined, pictures = plan.sizes, plan.device_plan, {}, {}, set()
        for one in plan.source_readers:
            read[one.name] = one.buffer_row
            if one.source.headers and one.source.headers[0].storage == "records":
                pictures.add(one.name)
            if one.source.ragged is None:
                joined[one.name] = one.buffer_row
        into = partial(owned, pictures=pictures)
        jobs = BufferPool(read, sizes.job_rows, sizes.n_buffers, into, fills=True)
        batches = BufferPool(joined, plan.held_rows, sizes.in_flight + 2, owned)
        if there is not None:  # where memory is not seen in use: each batch gets its own
            jobs.allocate, batches.allocate, batches.count = there.memory, there.batch_memory, 0
        self._pools = jobs, batches
        self._device_memory: DeviceMemory | None = None
        self._pid = os.getpid()

    # what is there

    @property
    def seed(self) -> int:
        return self._next.order.seed

    @property
    def epoch(self) -> int:
        return self._next.order.epoch

    @property
    def batch_size(self) -> int:
        return self.plan.epoch_plan.batch_rows

    def __len__(self) -> int:
        return self._next.n_batches

    def stats(self) -> Stats:
        """Return counts and times of the current or last epoch."""
        return self._stats

    @check_arguments()
    def explain(self, labels: npt.ArrayLike | str | None = None) -> Explanation:
        """Predict what the next epoch, or the rest of it, will read and take. Reads nothing.

        Parameters
        ----------
        labels : array, lengths ``(n_rows,)``, or str, optional
            The class of each row, or the source to read classes from, for the expected shuffle
            quality. By default ten equal classes in sorted order, a common worst case.

        Returns
        -------
        Explanation
            Bytes read and used, windows, chunks decoded more than once, the reader of each source
            and why, the peak memory, the shuffle quality. Print it, or read its fields.
        """
        return Explanation(self.plan, self._next, labels, self._first_batch)

    @property
    def plot(self) -> LoaderPlots:
        """Plots: ``plot.plan()`` draws where the coming epoch reads."""
        return LoaderPlots(self.explain)

    # iterating

    def with_rows(self) -> WithRows:
        """Iterate over ``(data, rows, count)``: a batch, its row numbers, how many are real."""
        return WithRows(self)

    def __iter__(self) -> EpochIterator[Any]:
        if os.getpid() != self._pid:
            # Memory of its own: threads that did not come along seem to use the old one.
            self._pid = os.getpid()
            for pool in self._pools:
                pool.buffers = []
        live = self._live() if self._live is not None else None
        if live is not None:
            live.supersede()
        plan, first = self._next, self._first_batch
        self._stats = Stats()
        log.debug("epoch %d begins at batch %d of %d", plan.order.epoch, first, plan.n_batches)
        with explain_memory_errors(self.plan.sizes.without_memory):
            iterator = EpochIterator[Any](self, plan, first)
        following, self._live = plan.at_epoch(plan.order.epoch + 1), weakref.ref(iterator)
        # Only now: whoever interrupts the reading of what is kept finds the same place again.
        self._next, self._first_batch, self._place = following, 0, (plan, first, False)
        return iterator

    # a place that can be saved

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch as a few plain values, ready for JSON.

        It counts batches that were handed out, not those read ahead. A loader made with the same
        options continues from it with exactly the batches that would have followed.
        """
        plan, n_batches, finished = self._place or (self._next, self._first_batch, False)
        return state_of(plan, n_batches, self.plan.plan_hash, finished=finished).to_dict()

    @check_arguments(StateError)
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state was saved: the next ``for`` yields the rest of that epoch.

        The seed of the state replaces that of this loader, with a warning if it was given.

        Raises
        ------
        StateError
            If the state was saved for other rows, another order, layout or batch size.
        """
        live = self._live() if self._live is not None else None
        if live is not None:
            live.supersede()
        found = State.from_dict(state)
        plan = self.plan.epoch_plan
        self._next, self._first_batch = restore(found, plan, self.plan.plan_hash)
        self._place = None
        asked, order = self.plan.options, plan.order
        drawn = order.mode != "file" or asked.pipeline_draws
        if drawn and asked.seed is not None and order.seed != self.seed:
            warn(
                f"the state was saved with seed={self.seed}, which replaces seed={order.seed} of "
                "this loader; pass the same seed= to both, or none to this one"
            )
        log.info("resumed: batch %d of epoch %d comes next", self._first_batch, self.epoch)

    @check_arguments(LoaderError)
    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the next ``for`` starts, for loops that count epochs themselves.

        Epochs follow one another without it. Setting the epoch that comes next anyway changes
        nothing, so one restored by :meth:`load_state_dict` still continues in its middle.

        Raises
        ------
        LoaderError
            If it is not a whole number, 0 or more.
        """
        epoch = integer("epoch", epoch, least=0)
        if epoch != self.epoch:
            self._next, self._first_batch, self._place = self._next.at_epoch(epoch), 0, None

    def __getstate__(self) -> tuple[Any, ...]:
        return self.plan, self._next, self._first_batch, self._place

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        plan, *place = saved
        self.__init__(plan)  # type: ignore[misc]  # the same fields as a new one
        self._next, self._first_batch, self._place = place

    def _summary(self) -> Summary:
        return loader_summary(self.plan, self._next, self._first_batch)


@dataclass(frozen=True)
class WithRows:
    """A loader that yields ``(data, rows, count)``; shares epochs and state with it."""

    loader: Loader

    def __iter__(self) -> EpochIterator[tuple[Any, Rows, int]]:
        iterator = iter(self.loader)
        iterator.with_rows = True
        return iterator

    def __len__(self) -> int:
        return len(self.loader)


class EpochIterator(Generic[T]):
    """One epoch, or the rest of one. Made by iterating a :class:`Loader`."""

    def __init__(self, loader: Loader, plan: EpochPlan, first_batch: int) -> None:
        self._loader, self._loader_plan, self._epoch_plan = loader, loader.plan, plan
        self.with_rows, self._batch, self._stats = False, first_batch, loader._stats
        self._lock, self._pid = RLock(), os.getpid()
        self._superseded = False
        # why the iteration has ended: raised whenever one more batch is asked for
        self._why: Any = None
        loader_plan, sizes, stats = loader.plan, loader.plan.sizes, self._stats
        began, pools = perf_counter(), loader._pools
        # A source that is kept is read whole, here and once. Jobs copy rows out of `kept` then
        # (`SourceReader.tasks`): they go through the same buffers, but no file is read.
        for source_reader in loader_plan.source_readers:
            source_reader.load(sizes.load_threads)
        stats.load_s += perf_counter() - began
        device_plan = loader_plan.device_plan
        resident = None if device_plan is None else device_plan.resident
        jobs = loader_plan.jobs(plan, first_batch) if resident is None else iter(())
        windows = Prefetcher(loader_plan, jobs, pools[0], stats)
        self._finalizer = weakref.finalize(self, windows.abandon)
        if resident is None:  # else nothing is read
            windows.start()
        self._windows: Prefetcher | DeviceWindows = windows
        collates: type[Collator] = Collator if device_plan is None else ResidentCollator
        if device_plan is not None and resident is None:
            if loader._device_memory is None:
                loader._device_memory = device_plan.device.copy_stream(), []
            collates, memory = DeviceCollator, loader._device_memory
            self._windows = DeviceWindows(windows, device_plan, memory)
        self._collator = collates(loader_plan, plan, self._windows, pools[1])
        self._prefetcher, self._pipe = windows, None
        if sizes.in_flight:
            self._pipe = piped(windows, self._collator, range(first_batch, plan.n_batches))
        self._bar: Any = None
        if loader_plan.options.progress:
            self._bar = epoch_bar(plan.order.epoch, first_batch, plan.n_batches)
        self._asked = perf_counter()

    def __iter__(self) -> EpochIterator[T]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise LoaderError("an epoch is neither pickled nor copied; pickle its loader, or its state")

    def __len__(self) -> int:
        return self._epoch_plan.n_batches - self._batch

    def __next__(self) -> T:
        if os.getpid() != self._pid:
            raise LoaderError("this iterator is another process's; make one with iter(loader)")
        number = None
        try:
            with self._lock:  # threads that share an iterator get different batches
                out: T | Any = NOTHING
                while out is NOTHING:
                    number = self._batch
                    out = self._next_batch(number)
                return out
        except BaseException as error:
            if number is not None and self._batch == number + 1:  # Ctrl-C on the way out
                self._broke_off(number, error)
            raise

    def _next_batch(self, number: int) -> T | Any:
        """Make a batch, here or by threads, and count it as handed out; or end as broken off."""
        if self._why:
            raise self._why.with_traceback(None)
        stats, plan = self._stats, self._loader_plan
        began = perf_counter()
        stats.consumer_s += began - self._asked
        if number >= self._epoch_plan.n_batches:
            self._count(number, finished=True)
            self._end(StopIteration())
            raise StopIteration
        try:
            try:
                if self._pipe is None:
                    made = self._collator.batch(number)
                else:
                    made = self._prefetcher.wait_for(next(self._pipe))
            except Interrupted:  # by another thread, a moment ago; or in a daemon thread
                ending = LoaderError("Python is ending, and with it the threads that read")
                raise self._why or ending from None
            data, rows, count, n_lost = made
            if plan.pipeline is not None:
                before = perf_counter()
                data = handed_out(plan, self._epoch_plan, made)
                stats.pipeline_s += perf_counter() - before
            stats.n_batches += 1
            stats.n_rows += count
            stats.n_bytes += count * plan.row_bytes
            if n_lost:
                stats.n_lost += n_lost
                self._check_lost(stats.n_lost)
            if data is not NOTHING:
                data = data if plan.hand_over is None else plan.hand_over(data)
                data = (data, rows(), count) if self.with_rows else data
            self._windows.poke()
            self._asked = perf_counter()
            stats.wall_s += self._asked - began
            self._count(number + 1)
            return data
        except StopIteration as error:
            if self._why is not None:  # by another thread
                raise
            self._broke_off(number, error)
            raise LoaderError(
                f"what makes batch {number:,} raised StopIteration, which would have ended the "
                "epoch like its last batch; catch it there, or give next() a default"
            ) from error
        except BaseException as error:
            self._broke_off(number, error)
            with explain_memory_errors(plan.sizes.without_memory):
                raise

    def _count(self, n_batches: int, *, finished: bool = False) -> None:
        """Note how many batches are handed out; nobody asks once another iteration has begun."""
        if self._bar is not None:
            self._bar.update(n_batches - self._batch)
        self._batch = n_batches
        if not self._superseded:
            self._loader._place = self._epoch_plan, n_batches, finished

    def _broke_off(self, number: int, error: BaseException) -> None:
        """End before batch `number`: what follows is not read, and cannot be passed over."""
        if self._batch != number:
            self._count(number)
        self._end(
            LoaderError(
                f"this iteration was broken off by {type(error).__name__} after {number:,} of "
                f"{self._epoch_plan.n_batches:,} batches; to go on with the next of them, "
                "loader.load_state_dict(loader.state_dict()), then iter(loader)"
            )
        )

    def _end(self, why: Exception) -> None:
        """Stop reading ahead and give memory back; `why` answers whoever asks for more."""
        self._why = self._why or why
        if self._bar is not None:
            self._bar.close()
        self._collator.job = None
        self._windows.close()
        self._finalizer.detach()  # not before: Ctrl-C may keep threads from being stopped

    def _check_lost(self, n_lost: int) -> None:
        """Raise once more rows were left out than the caller allowed."""
        allowed = self._loader_plan.options.max_lost
        if allowed is None:
            return
        n_rows = self._epoch_plan.n_rows
        most = int(allowed * n_rows) if isinstance(allowed, float) else allowed
        if n_lost > most:
            raise ReadError(
                f"{n_lost:,} of the {n_rows:,} rows of this epoch could not be read, more than the "
                f"{most:,} that max_lost={allowed} allows; earlier warnings name them"
            )

    def supersede(self) -> None:
        """End this iteration because another begins; using it further is an error."""
        if self._why is None:
            self._superseded = True
            self._end(
                LoaderError(
                    "this iteration ended when another one of the same loader began; a loader has "
                    "one live iterator, so make a second loader to iterate twice at once"
                )
            )

    def close(self) -> None:
        """Stop reading ahead and give memory back; iterating further ends at once."""
        self._end(StopIteration())

    def __enter__(self) -> EpochIterator[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
