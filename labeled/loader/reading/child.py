"""What a reader process runs: the ordinary reading threads, over memory it shares.

Two threads beside those that read: one forwards filled windows in order, one listens. The
listener never waits for anything but the consumer, so that a message is taken in at any
time, and it ends the process at once when the consumer's process is gone.

This module is imported by the process that it runs in, and by nothing else.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any, Never

import cloudpickle

from labeled.errors import ReadError
from labeled.loader.reading.engine import WindowSource
from labeled.loader.reading.filled import Filled
from labeled.loader.reading.jobs import jobs_of
from labeled.loader.reading.shared import (
    Begin,
    Cancel,
    Ended,
    Failed,
    ReadPlan,
    Release,
    Sent,
    SharedSlots,
    UseSpare,
    Work,
)
from labeled.loader.reading.slots import Patience, Slot, SlotPool
from labeled.loader.reading.staggering import BlockPool, StaggeredSource
from labeled.loader.telling.stats import Stats
from labeled.samplers.sampled import moved

ORPHAN_CHECK_S = 1.0


def main(connection: Connection) -> Never:
    """Serve the process at the other end of `connection` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the consumer's to act on
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        parent, fd = connection.recv()
        plan = _taken_over(connection)
        slots = SharedSlots(fd, plan.layout, max(plan.sizes.job_rows, 1), plan.sizes.slots)
        os.close(fd)
        service = _Service(connection, plan, slots)
        threading.Thread(target=service.listen, args=(parent,), daemon=True).start()
        service.serve()
    except (EOFError, ConnectionError):
        os._exit(0)


def _taken_over(connection: Connection) -> ReadPlan:
    """Receive the plan; say what is wrong, and wait for the end, where it cannot be used."""
    sent = connection.recv_bytes()
    try:
        plan: ReadPlan = pickle.loads(sent)
    except Exception as error:
        connection.send(_failed(0, error))
        connection.recv_bytes()  # ends in EOFError
        raise
    return plan


def _failed(number: int, error: BaseException) -> Failed:
    """Make a message of an exception, of the same type wherever it can be pickled."""
    trace = "".join(traceback.format_exception(error))
    try:
        sent = cloudpickle.dumps(error)
        pickle.loads(sent)
    except Exception:
        sent = pickle.dumps(ReadError(f"{type(error).__name__}: {error}"))
    return Failed(number, sent, trace)


class _SharedPool(SlotPool):
    """The shared slots as a pool, which makes no others."""

    def __init__(self, shared: SharedSlots, plan: ReadPlan) -> None:
        super().__init__(plan.layout, plan.sizes.job_rows, shared.count, fills=True)
        *self._shared, self._spare = shared.slots
        self.spare_allowed = False
        self._patience = Patience(wait_s=1e-4, waits=1000)

    def take(self, *, force: bool = False) -> Slot | None:
        slot = super().take()
        if slot is not None or not force:
            return slot
        spare = self._spare
        if self.spare_allowed and not spare.taken and spare.unreferenced():
            spare.taken = True
            return spare
        self._patience.wait()
        return None

    def make(self) -> Slot:
        return self._shared[len(self.slots)]


class _Service:
    """Windows of one epoch after another; what the two threads share."""

    def __init__(self, connection: Connection, plan: ReadPlan, shared: SharedSlots) -> None:
        self._connection = connection
        self._plan = plan
        self._slots = shared.slots
        self._count = shared.count
        self._pool = _SharedPool(shared, plan)
        self._changed = threading.Condition()
        self._held: dict[int, Filled] = {}
        """Windows in the hands of the consumer, by slot; keeps their slots from being used."""
        self._asked: list[Begin] = []
        self._cancelled = 0
        self._source: WindowSource | StaggeredSource | None = None
        blocks = plan.sizes.blocks
        self._blocks = None if blocks is None else BlockPool(plan.layout, blocks)

    # the listener

    def listen(self, parent: int) -> Never:
        """Take messages in for ever; end the process when nobody is left to send any."""
        try:
            while True:
                while not self._connection.poll(ORPHAN_CHECK_S):
                    if os.getppid() != parent:  # a fork of it may keep the connection open
                        os._exit(0)
                self._take(self._connection.recv())
        except BaseException:
            os._exit(0)

    def _take(self, message: Any) -> None:
        with self._changed:
            match message:
                case Begin():
                    self._asked.append(message)
                case Cancel(number):
                    self._cancelled = number
                    if self._source is not None:
                        self._source.stop()
                case Release(slots):
                    for slot in slots:
                        self._held.pop(slot, None)
                case UseSpare():
                    self._pool.spare_allowed = True
            source = self._source
            self._changed.notify_all()
        if source is not None:
            source.poke()

    # the main thread

    def serve(self) -> Never:
        """Read the epochs that are asked for, one after another."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked)
                begin = self._asked.pop(0)
            stats = Stats()
            try:
                self._read(begin, stats)
                message: Failed | Ended = Ended(begin.number, _work(stats))
            except BaseException as error:
                message = _failed(begin.number, error)
            self._send(message)

    def _read(self, begin: Begin, stats: Stats) -> None:
        if begin.number <= self._cancelled:
            return
        source = self._open(begin, stats)
        try:
            with self._changed:
                self._source = source
            while self._may_go_on(begin.number) and self._forward(source, begin.number, stats):
                pass
        finally:
            with self._changed:
                self._source = None
            source.close()

    def _open(self, begin: Begin, stats: Stats) -> WindowSource | StaggeredSource:
        plan = self._plan
        for lane in plan.lanes:
            lane.load(plan.sizes.loaders)
        epoch_plan = moved(plan.epoch_plan, begin.epoch, begin.seed, begin.history)
        others = max(0, plan.sizes.threads - 1)  # this thread reads too: a core is left free
        if self._blocks is not None:
            return StaggeredSource(
                epoch_plan, begin.first_batch, plan.lanes, plan.group, self._blocks, self._pool,
                others, stats,
            )  # fmt: skip
        jobs = jobs_of(epoch_plan, begin.first_batch, plan)
        return WindowSource(jobs, plan.lanes, plan.group, self._pool, others, stats)

    def _may_go_on(self, number: int) -> bool:
        """Wait until a slot can be filled; False if the epoch is not wanted any more."""
        with self._changed:
            self._changed.wait_for(lambda: number <= self._cancelled or self._fillable())
            return number > self._cancelled

    def _fillable(self) -> bool:
        if self._count in self._held:
            return len(self._held) <= self._count
        return len(self._held) < self._count or self._pool.spare_allowed

    def _forward(self, source: WindowSource | StaggeredSource, number: int, stats: Stats) -> bool:
        """Hand the next window over; False after the last."""
        filled = source.next()
        if filled is None:
            return False
        slot = self._slots.index(filled.slot)
        with self._changed:
            self._held[slot] = filled
            if slot == self._count:
                self._pool.spare_allowed = False
        self._send(Sent(number, slot, filled.start, filled.stop, filled.content, _work(stats)))
        return True

    def _send(self, message: Sent | Ended | Failed) -> None:
        try:
            self._connection.send(message)
        except OSError:  # nobody is left to read it
            os._exit(0)


def _work(stats: Stats) -> Work:
    return Work(stats.read_s, stats.decode_s, stats.plan_s, stats.n_windows, stats.n_tasks)
