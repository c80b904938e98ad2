"""Batches through a pipeline, in order, ahead of the consumer.

Workers take turns to cut a batch from the windows; what follows (laying it out is part of the
turn, the pipeline is not) they do side by side. A batch is handed out once it is done and all
before it are. So many batches are in hand at a time, dealt and not yet handed out, as memory
was set aside for. What is raised on the way is kept with its batch, and raised in its turn.

Without threads the caller does all of it by itself.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.dims import EXAMPLE_DIMS
from labeled.display.batches import Told
from labeled.loader.batch import Batch
from labeled.loader.crew import LOOK_UP_S, join_threads, start_threads, wake_without_waiting
from labeled.loader.dealing import Dealer, Interrupted, Made
from labeled.loader.handoff import placed
from labeled.loader.stats import Stats
from labeled.samplers.listed import AnyPlan
from labeled.transforms.place import Place
from labeled.transforms.running import NOTHING, Line, Stopped

Rows = npt.NDArray[np.int64]


def done(made: Made, dealer: Dealer, stopped: Callable[[], bool]) -> Made:
    """Take a batch through the workers' part of the pipeline."""
    recipe, order = dealer.recipe, dealer.plan.order
    line = recipe.line
    assert line is not None
    if not line.works:
        return made
    data, find_rows, count, n_lost = made
    rows, told = find_rows(), data.told if isinstance(data, Batch) else {}
    place = Place(order.seed, order.epoch, rows=rows)
    data, lost = line.work(data, place, skips=recipe.skips, stopped=stopped)
    if lost is not None:
        n_more = int(lost[:count].sum())
        rows, count, n_lost = rows[~lost], count - n_more, n_lost + n_more
    return labelled(data, rows, count, told), lambda: rows, count, n_lost


def finished(data: Any, rows: Callable[[], Rows], line: Line, plan: AnyPlan) -> Any:
    """Apply the batch stage, in the consumer's thread; on a device, where the batch is made."""
    if line.batch is None:
        return data
    return line.finish(data, Place(plan.order.seed, plan.order.epoch, rows=rows()))


def labelled(
    data: Any, rows: np.ndarray[Any, np.dtype[np.int64]], count: int, told: Mapping[str, Told]
) -> Any:
    """Return labelled arrays as a :class:`Batch`; anything else as it is."""
    if isinstance(data, Batch) or not isinstance(data, dict) or not data:
        return data
    if all(
        isinstance(one, xr.DataArray) and not (one.coords or one.attrs) for one in data.values()
    ):
        arrays = {name: one.data for name, one in data.items()}
        dims = {name: tuple(map(str, one.dims)) for name, one in data.items()}
        return Batch(arrays, dims, lambda: rows, count, {**told, **_told_anew(data, told)})
    return data


def _told_anew(data: Mapping[str, xr.DataArray], told: Mapping[str, Told]) -> dict[str, Told]:
    """Return what is told of sources whose examples have their axes in another order now."""
    found = {name: one.encoding.get(EXAMPLE_DIMS) for name, one in data.items()}
    return {
        name: replace(told.get(name, Told()), example_dims=dims)
        for name, dims in found.items()
        if dims is not None
    }


class Workers:
    """Threads that take the batches of an epoch through a pipeline.

    Parameters
    ----------
    dealer : Dealer
        The threads' own from here on.
    line : Line
    first_batch : int
    threads, in_flight : int
        How many there are, and how many batches are in hand at a time; no threads: the caller
        does the work when it asks.
    """

    def __init__(
        self, dealer: Dealer, line: Line, first_batch: int, threads: int, in_flight: int
    ) -> None:
        self._core = _Core(dealer, first_batch, max(in_flight, 1))
        self._line = line
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _Core.let_go, self._core)
        self._threads = start_threads(self._core, threads, "labeled-pipeline")

    def next(self, stats: Stats) -> Made:
        """Return the next batch.

        Raises
        ------
        Interrupted
            If the epoch was stopped.
        Exception
            Whatever reading or transforming this batch raised.
        """
        core = self._core
        if not self._threads:
            core.work()
        began = perf_counter()
        made = core.take()
        core.count(stats)
        stats.wait_s += perf_counter() - began
        began = perf_counter()
        recipe, rest = core.dealer.recipe, made[1:]
        finish = partial(finished, rows=made[1], line=self._line, plan=core.dealer.plan)
        if recipe.goes_to is None or made[0] is NOTHING:
            made = finish(made[0]), *rest
        else:
            library = None if recipe.hand is None else recipe.hand.to.library
            made = placed(made[0], recipe.goes_to, library, finish), *rest
        stats.pipeline_s += perf_counter() - began
        return made

    def close(self) -> None:
        """Stop the threads; returns when each has ended what it was doing."""
        self._finalizer.detach()
        if os.getpid() != self._pid:  # a fork, where threads left behind may hold locks for ever
            return
        self._core.stop()
        self._core.dealer.source.stop()
        join_threads(self._threads)


class _Core:
    """What workers and consumer share; refers to no iterator, so that one can be collected."""

    def __init__(self, dealer: Dealer, first_batch: int, in_flight: int) -> None:
        self.dealer = dealer
        self._in_flight = in_flight
        self._dealt = self._taken = first_batch
        self._made: dict[int, Made | BaseException] = {}
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._stopped = False
        self._work_s = 0.0

    # workers

    def work(self) -> bool:
        """Deal one batch and take it through the pipeline; False when there is nothing to do.

        A call of its own, so that a thread that waits refers to no batch.
        """
        with self._turn:
            if not self._may_deal():
                return False
            number = self._dealt
            made = self._deal(number)
        if made is None:
            return False
        began = perf_counter()
        try:
            self._put(number, done(made, self.dealer, self.stopped), began)
        except Stopped:
            return False
        except BaseException as error:
            self._put(number, error, began)
            return False
        return True

    def _may_deal(self) -> bool:
        """Wait until one more batch may be in hand; False after the last."""
        with self._changed:
            while not self._stopped and self._dealt < self.dealer.plan.n_batches:
                if self._dealt - self._taken < self._in_flight:
                    return True
                self._changed.wait(LOOK_UP_S)
            return False

    def _deal(self, number: int) -> Made | None:
        try:
            made = self.dealer.deal(number)
            self.dealer.source.poke()
        except Interrupted:
            self.stop()
            return None
        except BaseException as error:
            self._dealt = self.dealer.plan.n_batches  # nothing can be dealt after it
            self._put(number, error, perf_counter())
            return None
        self._dealt = number + 1
        return made

    def _put(self, number: int, made: Made | BaseException, began: float) -> None:
        with self._changed:
            self._work_s += perf_counter() - began
            self._made[number] = made
            self._changed.notify_all()

    def stopped(self) -> bool:
        return self._stopped

    # the consumer

    def take(self) -> Made:
        """Wait for the next batch."""
        with self._changed:
            while self._taken not in self._made:
                if self._stopped:
                    raise Interrupted
                self._changed.wait()
            made = self._made.pop(self._taken)
            self._taken += 1
            self._changed.notify_all()
        if isinstance(made, BaseException):
            raise made
        return made

    def count(self, stats: Stats) -> None:
        """Note what the workers have done so far; their waiting is not the consumer's."""
        mine = self.dealer.stats
        with self._changed:
            stats.pipeline_s, self._work_s = stats.pipeline_s + self._work_s, 0.0
        stats.read_s, stats.decode_s, stats.plan_s = mine.read_s, mine.decode_s, mine.plan_s
        stats.format_s = mine.format_s
        stats.n_windows, stats.n_tasks = mine.n_windows, mine.n_tasks

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._made.clear()
            self._changed.notify_all()

    def let_go(self) -> None:
        """Stop without waiting for the lock, because nobody iterates any more."""
        self._stopped = True
        wake_without_waiting(self._changed)
