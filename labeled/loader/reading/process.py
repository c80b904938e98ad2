"""Reading in a process of its own, for consumers whose Python must not be disturbed.

Threads that read take the interpreter's lock for moments, which costs a consumer that runs
much Python itself. Here another process reads, decodes and shuffles into memory that both
map; the consumer's process takes a short message a window and no bytes.

The reader process belongs to a loader, starts with its first epoch (about a second: it
imports the library) and stays, with what it keeps in memory, until the loader is gone. It
is started afresh, by command line: scripts need no ``__main__`` guard, and nothing of the
consumer's process (threads, locks, a CUDA context) is forked along.

A window stays with the consumer as long as anyone refers to its rows. When all slots are
held, the spare one is filled and copied out, so that nobody waits for memory which a
consumer may hold for ever.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import cloudpickle

from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource
from labeled.errors import LoaderError, ReadError
from labeled.loader.plan import LoaderPlan
from labeled.loader.reading.filled import Filled
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
    file_bytes,
    shared_file,
)
from labeled.loader.reading.slots import SlotPool
from labeled.loader.telling.stats import Stats
from labeled.samplers.sampled import AnyPlan

log = logging.getLogger(__name__)

ALIVE_CHECK_S = 1.0
GRACE_S = 2.0
"""How long a reader process may take to end by itself."""

_HINTS = {
    "SIGKILL": " (the system may have been out of memory: lower memory=)",
    "SIGBUS": " (a file may have become shorter while it was mapped; io='pread' never maps)",
}
"""What a signal may have meant."""

_BOOT = """
import sys
from multiprocessing.connection import Connection
c = Connection(int(sys.argv[1]))
try:
    sys.path[:] = c.recv()
except (EOFError, OSError):
    sys.exit()  # interrupted before it had begun: whom it was to serve is gone
from labeled.loader.reading.child import main
main(c)
"""


def check_reader(reader: object, sources: Iterable[AnySource]) -> None:
    """Refuse a reader that is unknown or cannot serve these sources.

    Raises
    ------
    LoaderError
        If `reader` is none of those there are; if the rows are in memory, so that a process
        would only copy them; on Windows, and where no Python can be started.
    """
    if reader != "process":
        return
    remedy = "leave reader='threads'"
    if os.name != "posix":
        raise LoaderError(f"reader='process' works on Linux and macOS only; {remedy}")
    if not sys.executable or getattr(sys, "frozen", False):
        raise LoaderError(
            "reader='process' starts another Python by sys.executable, and there is none here, as "
            f"where Python is part of another program ({sys.executable!r}); {remedy}"
        )
    for source in sources:
        if source.loaded is not None:
            raise LoaderError(
                f"{source.where}: its rows are in memory already, a reader process would only "
                f"copy them; {remedy}"
            )


def refuse_process(reader: object, sources: Mapping[str, AnySource]) -> None:
    """Refuse to read ragged sources in another process: examples are objects of this one."""
    for source in sources.values():
        if reader == "process" and isinstance(source, RaggedSource):
            raise LoaderError(
                f"{source.where}: examples of different shapes cannot be read by "
                "reader='process'; leave reader='threads', or select() other sources"
            )


class ReaderProcess:
    """A process that reads for one loader, epoch after epoch.

    Parameters
    ----------
    plan : LoaderPlan
        Sent once, pickled.

    Raises
    ------
    LoaderError
        If the plan does not pickle.
    """

    def __init__(self, plan: LoaderPlan) -> None:
        sent = _pickled(plan)
        sizes, layout = plan.sizes, plan.layout
        capacity = max(sizes.job_rows, 1)
        self._pid = os.getpid()
        self._where = ", ".join(lane.source.where for lane in plan.lanes)
        fd = shared_file(file_bytes(layout, capacity, sizes.slots))
        try:
            self._shared = SharedSlots(fd, layout, capacity, sizes.slots)
            self._process, self._connection = _start(fd)
            self._held: set[int] = set()
            self._spare_asked = False
            self._number = 0
            self._end = weakref.finalize(self, _end, self._process, self._connection, self._pid)
            with self._talking("before the first row"):
                self._connection.send(sys.path)
                self._connection.send((self._pid, fd))
                self._connection.send_bytes(sent)
        finally:
            os.close(fd)
        log.info("reader process %d started for %s", self.pid, self._where)

    @property
    def pid(self) -> int:
        """Number of the reader process."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it can read another epoch for this process."""
        return self._end.alive and self.mine and self._process.poll() is None

    @property
    def mine(self) -> bool:
        """Whether this process started it, and was not forked off the one that did."""
        return os.getpid() == self._pid

    def close(self) -> None:
        """End the process and wait for it. Batches that are held stay what they are."""
        self._end()

    # messages

    def begin(self, plan: AnyPlan, first_batch: int) -> int:
        """Have an epoch read, from a batch on; returns the number its messages carry."""
        self._number += 1
        order = plan.order
        self._send(Begin(self._number, order.seed, order.epoch, plan.history, first_batch))
        return self._number

    def cancel(self, number: int) -> None:
        """Say that no window of epoch `number` is wanted any more."""
        if self.usable and number == self._number:
            with suppress(ReadError):  # it has died, and reads no more
                self._send(Cancel(number))

    def let_go(self) -> None:
        """Give back the slots that nobody refers to any more; cheap, for every batch."""
        slots = self._shared.slots
        free = tuple(slot for slot in self._held if slots[slot].unreferenced())
        if free:
            with self._talking("between two windows"):
                self._held.difference_update(free)
                self._connection.send(Release(free))

    def next(self, number: int, pool: SlotPool, stats: Stats, progress: str) -> Filled | None:
        """Return the next window of epoch `number`, or None after the last."""
        self.let_go()
        while True:
            if len(self._held) == self._shared.count and not self._spare_asked:
                self._spare_asked = True
                self._send(UseSpare())
            self._wait(stats, progress)
            with self._talking(progress):
                message: Sent | Ended | Failed = pickle.loads(self._connection.recv_bytes())
                wanted, filled = message.number == number, None
                if isinstance(message, Sent):
                    filled = self._taken(message, pool, wanted=wanted)
            match message:
                case Sent() if filled is not None:
                    _count(stats, message.work)
                    return filled
                case Ended() if wanted:
                    _count(stats, message.work)
                    return None
                case Failed() if wanted or message.number == 0:
                    raise self._error_of(message)

    def _taken(self, message: Sent, pool: SlotPool, *, wanted: bool) -> Filled | None:
        """Take over a slot; give it straight back where its window is not wanted."""
        slot, spare = self._shared.slots[message.slot], message.slot == self._shared.count
        n = message.stop - message.start
        filled = None
        if wanted:
            arrays = {
                name: array[:n].copy() if spare else array[:n]
                for name, array in slot.arrays.items()
            }
            filled = Filled(message.start, message.stop, message.content, slot, arrays, ready=True)
        if spare:
            self._spare_asked = False
            pool.extra += wanted
        if wanted and not spare:
            self._held.add(message.slot)
        else:
            self._send(Release((message.slot,)))
        return filled

    def _error_of(self, message: Failed) -> BaseException:
        error: BaseException = pickle.loads(message.error)
        if message.number == 0:
            self.close()
            error = LoaderError(
                f"the reader process could not take over what to read from {self._where}: "
                f"{type(error).__name__}: {error}; leave reader='threads', or define what it "
                "needs in a module that can be imported"
            )
        error.add_note(f"In reader process {self.pid}:\n{message.trace}")
        return error

    def _wait(self, stats: Stats, progress: str) -> None:
        """Wait for a message; Ctrl-C meanwhile leaves the process as it is."""
        began = perf_counter()
        while not self._connection.poll(ALIVE_CHECK_S):
            if self._process.poll() is not None and not self._connection.poll():
                raise self._death(progress)  # a fork of ours may keep the connection open
        stats.wait_s += perf_counter() - began

    def _send(self, message: Any) -> None:
        with self._talking("between two windows"):
            self._connection.send(message)

    @contextmanager
    def _talking(self, progress: str) -> Iterator[None]:
        """End the process if a message was cut short: what follows would make no sense.

        The same if it was not acted on: nobody would know any more whose a slot is.
        """
        try:
            yield
        except (EOFError, OSError) as error:
            raise self._death(progress) from error
        except BaseException:
            self.close()
            raise

    def _death(self, progress: str) -> ReadError:
        """Say how the process ended; it is waited for, and ended if only the talk broke off."""
        self.close()
        code = self._process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"
        hint = next((hint for name, hint in _HINTS.items() if name in how), "")
        return ReadError(
            f"the reader process {self.pid}, reading {self._where}, ended with {how} {progress}"
            f"{hint}; iterate again to start a new one, or leave reader='threads'"
        )


class ProcessWindows:
    """Filled windows of one epoch, read by a process; stands in for a `WindowSource`.

    Parameters
    ----------
    reader : ReaderProcess
    plan : EpochPlan or SampledPlan
        A plan of the loader that `reader` reads for.
    first_batch : int
    pool : SlotPool
        Its count of extra windows grows where the consumer holds on to all slots.
    """

    def __init__(
        self,
        reader: ReaderProcess,
        plan: AnyPlan,
        first_batch: int,
        pool: SlotPool,
        stats: Stats,
    ) -> None:
        self._reader = reader
        self._pool = pool
        self._stats = stats
        self._stop = first_batch * plan.batch_rows
        self._ended = False
        self._number = reader.begin(plan, first_batch)
        self._finalizer = weakref.finalize(self, reader.cancel, self._number)

    def next(self) -> Filled | None:
        """Return the next filled window, or None after the last.

        Raises
        ------
        ReadError
            If the reader process has died.
        Exception
            Whatever reading this window raised; a note holds the traceback there.
        """
        if self._ended:
            return None
        progress = f"after {self._stop:,} rows of the epoch"
        filled = self._reader.next(self._number, self._pool, self._stats, progress)
        if filled is None:
            self._ended = True
        else:
            self._stop = filled.stop
        return filled

    def check_process(self) -> None:
        """Raise :class:`LoaderError` in a process forked off the one that iterates."""
        if not self._reader.mine:
            raise LoaderError(
                "this iterator was made in another process, whose reader process serves that one; "
                "make a new one here with iter(loader)"
            )

    def poke(self) -> None:
        """Give slots back that the consumer has let go of; cheap, for every batch.

        That the process has died is told by :meth:`next`: not all that it sent is used up yet.
        """
        if not self._ended:
            with suppress(ReadError):
                self._reader.let_go()

    def close(self) -> None:
        """Have no more windows read; the process stays for the next epoch."""
        self._ended = True
        self._finalizer()


def _pickled(plan: LoaderPlan) -> bytes:
    """Pickle what reading needs; functions that cannot be imported go along by value."""
    reading = ReadPlan(
        plan.lanes, plan.epoch_plan, plan.group, plan.sizes, plan.job_offset, plan.layout
    )
    try:
        sent: bytes = cloudpickle.dumps(reading)
    except Exception as error:
        names = ", ".join(lane.source.where for lane in plan.lanes)
        raise LoaderError(
            f"{names}: what to read cannot be sent to a reader process ({type(error).__name__}: "
            f"{error}); leave reader='threads', or take what does not pickle (an open file, a "
            "lock, a connection) out of the dask graph"
        ) from error
    return sent


def _start(fd: int) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that maps `fd`; Ctrl-C is kept from it from its first moment."""
    ours, theirs = socket.socketpair()
    with ours, theirs, _interrupts_blocked():
        command = [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno())]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), fd)
        )
        return process, Connection(ours.detach())


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread: a process that it starts inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes], connection: Connection, pid: int) -> None:
    """Let the process end, and wait until it has; in a fork, only forget it."""
    connection.close()
    if os.getpid() != pid:
        process.returncode = 0  # not a child of this process: there is nothing to wait for
        return
    try:
        process.wait(GRACE_S)  # it sees that the connection is closed
    except BaseException as error:
        process.kill()
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return str(number)


def _count(stats: Stats, work: Work) -> None:
    stats.read_s, stats.decode_s, stats.plan_s = work.read_s, work.decode_s, work.plan_s
    stats.n_windows, stats.n_tasks = work.n_windows, work.n_tasks
