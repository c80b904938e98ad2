"""The loader: epochs of batches, a place that can be saved, one live iterator.

Each ``iter(loader)`` starts the next epoch, whether or not the last was finished. What
a batch holds is decided by integers (`samplers`), read by threads (`engine`), and laid
out here: cut from its window, or joined from two, then handed over.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import RLock
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.errors import LoaderError
from labeled.loader.engine import Filled, Stats, WindowSource
from labeled.loader.explain import Explanation, explain
from labeled.loader.plan import LoaderPlan, next_epoch
from labeled.loader.process import ProcessWindows, ReaderProcess
from labeled.loader.rescue import rescue
from labeled.loader.slots import SlotPool
from labeled.samplers.order import Content
from labeled.samplers.sampled import AnyPlan, SampledPlan, restore_sampled
from labeled.samplers.state import State, restore, state_of
from labeled.views import html
from labeled.views.text import sizes_words, table

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
T = TypeVar("T")

Span = tuple[Filled, int, int]
"""Places ``a .. b`` within a window."""


class Loader:
    """Batches of a dataset, epoch after epoch. Made by :meth:`labeled.Dataset.batches`.

    ``len(loader)`` is the number of batches of the coming epoch for this part. Iterating
    yields a :class:`~labeled.loader.batch.Batch`, or arrays nested as the specs are.

    Attributes
    ----------
    seed : int
        What the order is drawn from; chosen once when not given.
    epoch : int
        The epoch that the next ``iter`` starts (or continues, after
        :meth:`load_state_dict`).
    """

    def __init__(self, plan: LoaderPlan) -> None:
        self.plan = plan
        self._next: AnyPlan = plan.epoch_plan
        self._first_batch = 0
        self._live: weakref.ref[EpochIterator[Any]] | None = None
        self._place: tuple[AnyPlan, int] | None = None
        self._stats = Stats()
        self._pools: tuple[SlotPool, SlotPool] | None = None
        self._process: ReaderProcess | None = None

    # what is there

    @property
    def seed(self) -> int:
        return self._next.order.seed

    @property
    def epoch(self) -> int:
        return self._next.order.epoch

    @property
    def batch_size(self) -> int:
        return self.plan.batch_rows

    def __len__(self) -> int:
        return self._next.n_batches

    def stats(self) -> Stats:
        """Return where the time of the current or last epoch went."""
        return self._stats

    def explain(self, labels: npt.ArrayLike | None = None) -> Explanation:
        """Tell what the coming epoch, or the rest of it, will take before it reads anything.

        Parameters
        ----------
        labels : array, lengths ``(n_rows,)``, optional
            The class of each row, for the expected shuffle quality; without it ten equal
            classes, sorted, stand for the worst that is common.

        Returns
        -------
        Explanation
            Windows, reads, bytes read and used, chunks decoded more than once, the path
            of each source and why, the peak memory promised, the shuffle quality.
        """
        return explain(self.plan, self._next, labels, self._first_batch)

    # iterating

    def __iter__(self) -> EpochIterator[Any]:
        return self._start(lambda data, rows, count: data)

    def with_rows(self) -> WithRows:
        """Iterate ``(data, rows, count)``: the batch, which rows it holds, how many are real."""
        return WithRows(self)

    def _start(self, shape: Callable[[Any, Callable[[], Rows], int], T]) -> EpochIterator[T]:
        live = self._live() if self._live is not None else None
        if live is not None:
            live.supersede()
        plan, first = self._next, self._first_batch
        self._next = next_epoch(plan)
        self._first_batch = 0
        self._stats = Stats()
        self._place = plan, first
        iterator = EpochIterator(self, plan, first, shape)
        self._live = weakref.ref(iterator)
        return iterator

    def pools(self) -> tuple[SlotPool, SlotPool]:
        """Return the memory for windows and for single batches, kept across epochs."""
        if self._pools is None:
            sizes, layout = self.plan.sizes, self.plan.layout
            rows = max(sizes.job_rows, 1)
            self._pools = (
                SlotPool(layout, rows, sizes.slots),
                SlotPool(layout, self.plan.held_rows, 2),
            )
        return self._pools

    def windows(self, plan: AnyPlan, first_batch: int) -> WindowSource | ProcessWindows:
        """Start reading the windows of an epoch, in threads or in the reader process."""
        recipe, pool = self.plan, self.pools()[0]
        if recipe.reader == "process":
            if self._process is None or not self._process.usable:
                self._process = ReaderProcess(recipe)
            return ProcessWindows(self._process, plan, first_batch, pool, self._stats)
        began = perf_counter()
        recipe.load_kept()
        self._stats.load_s += perf_counter() - began
        jobs = recipe.jobs(plan, first_batch)
        threads = recipe.sizes.threads
        return WindowSource(
            jobs,
            recipe.lanes,
            recipe.group,
            pool,
            threads,
            self._stats,
            skips=recipe.skips,
        )

    # a place that can be saved

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch as a few plain values, fit for JSON.

        It counts batches that were handed out, not those read ahead. Restoring it gives
        the batches that would have followed, bit for bit, and the epochs after.
        """
        plan, n_batches = self._place or (self._next, self._first_batch)
        return state_of(plan, n_batches, self.plan.plan_hash).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved; the next ``iter`` continues in mid-epoch.

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
        if isinstance(plan, SampledPlan):
            self._next, self._first_batch = restore_sampled(found, plan, self.plan.plan_hash)
        else:
            self._next, self._first_batch = restore(found, plan, self.plan.plan_hash)
        self._place = None

    def handed_out(self, plan: AnyPlan, n_batches: int) -> None:
        """Note how far the live iterator has come."""
        self._place = plan, n_batches

    def __getstate__(self) -> dict[str, Any]:
        return {
            "plan": self.plan,
            "next": self._next,
            "first": self._first_batch,
            "place": self._place,
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["plan"])  # type: ignore[misc]  # the same fields as a new one
        self._next, self._first_batch = saved["next"], saved["first"]
        self._place = saved["place"]

    def __repr__(self) -> str:
        lines = [(name, *cells) for name, *cells in self._sources()]
        return "\n".join([f"<labeled.Loader {self._words()}>", *table(lines)])

    def _repr_html_(self) -> str:
        head = ("source", "a row", "dtype in the file", "rows are")
        named = [(html.bold(n), dims, html.code(dt), how) for n, dims, dt, how in self._sources()]
        sizes = self.plan.sizes
        told = {
            "order": self._words(),
            "memory": f"at most {format_bytes(sizes.promised_bytes)} of "
            f"{format_bytes(sizes.memory_bytes)}",
            "threads": f"{sizes.threads} in the background"
            + (" of a reader process" if self.plan.reader == "process" else ""),
            "batches": self.plan.finish.words,
            "more": "explain() tells what an epoch reads, before it reads anything; stats() "
            "afterwards where the time went",
        }
        return html.page("labeled.Loader", html.facts(told), html.table(head, named))

    def _words(self) -> str:
        order = self.plan.epoch_plan.order
        part = self.plan.epoch_plan.part
        words = [
            f"{len(self):,} batches of {self.batch_size:,} rows",
            f"shuffle={order.mode!r}",
            f"seed={self.seed}",
            f"epoch={self.epoch}",
        ]
        if part[1] > 1:
            words.append(f"part={part}")
        if self._first_batch:
            words.append(f"going on at batch {self._first_batch:,}")
        return ", ".join(words)

    def _sources(self) -> list[tuple[str, str, str, str]]:
        """Each source in words; what is asked of readers here needs no file."""
        return [
            (
                lane.name,
                sizes_words(lane.source.dims[1:], lane.source.row_shape),
                str(lane.source.dtype),
                "kept in memory" if lane.keep or lane.source.loaded is not None else "read ahead",
            )
            for lane in self.plan.lanes
        ]


@dataclass(frozen=True)
class WithRows:
    """A loader that yields ``(data, rows, count)``; shares epochs and state with it."""

    loader: Loader

    def __iter__(self) -> EpochIterator[tuple[Any, Rows, int]]:
        return self.loader._start(lambda data, rows, count: (data, rows(), count))

    def __len__(self) -> int:
        return len(self.loader)


class EpochIterator(Generic[T]):
    """One epoch, or the rest of one. Made by iterating a :class:`Loader`."""

    def __init__(
        self,
        loader: Loader,
        plan: AnyPlan,
        first_batch: int,
        shape: Callable[[Any, Callable[[], Rows], int], T],
    ) -> None:
        self._loader = loader
        self._recipe = loader.plan
        self._plan = plan
        self._shape = shape
        self._batch = first_batch
        self._stats = loader._stats
        self._windows_pool, self._batch_pool = loader.pools()
        self._window: Filled | None = None
        self._superseded = False
        self._ended = False
        self._turn = RLock()
        sizes = self._recipe.sizes
        self._many_a_window = sizes.job_rows >= 2 * plan.batch_rows
        self._source = loader.windows(plan, first_batch)
        self._asked = perf_counter()

    def __iter__(self) -> EpochIterator[T]:
        return self

    def __len__(self) -> int:
        return self._plan.n_batches - self._batch

    def __next__(self) -> T:
        self._source.check_process()
        with self._turn:  # threads that share an iterator get different batches
            return self._next_batch()

    def _next_batch(self) -> T:
        if self._ended:
            raise self._why_ended()
        began = perf_counter()
        stats = self._stats
        stats.consumer_s += began - self._asked
        if self._batch >= self._plan.n_batches:
            self.close()
            raise StopIteration
        try:
            out = self._make(self._batch)
        except BaseException:
            self.close()
            raise
        self._batch += 1
        self._loader.handed_out(self._plan, self._batch)
        self._source.poke()
        self._asked = perf_counter()
        stats.wall_s += self._asked - began
        return out

    def _why_ended(self) -> Exception:
        if self._superseded:
            return LoaderError(
                "this iteration ended when another one of the same loader began; a loader has "
                "one live iterator (make a second loader to iterate twice at the same time)"
            )
        return StopIteration()

    def _make(self, number: int) -> T:
        """Build one batch: its rows from the window or windows that hold them, laid out."""
        start, stop = self._plan.span(number)
        count = stop - start
        length = self._plan.batch_rows if self._plan.last == "pad" else count
        window = self._window
        if start < stop and (window is None or start >= window.stop):
            window = self._advance()
        if window is not None and stop <= window.stop and count == length and not self._copies:
            a, b = start - window.start, stop - window.start
            arrays = {name: array[a:b] for name, array in window.arrays.items()}
            spans: list[Span] = [(window, a, b)]
        else:
            arrays, spans = self._joined(start, stop, length)
        began = perf_counter()
        group = self._recipe.group

        lost = None
        if self._recipe.skips:
            arrays, lost, count, length = self._kept_rows(arrays, spans, count, length)
        contents = [(window.content, a, b) for window, a, b in spans]

        def rows() -> Rows:
            return rows_of_spans(contents, group, length, lost)

        data = self._recipe.finish(arrays, rows, count, length)
        stats = self._stats
        stats.format_s += perf_counter() - began
        stats.n_batches += 1
        stats.n_rows += count
        stats.n_bytes += count * self._recipe.row_bytes
        return self._shape(data, rows, count)

    def _kept_rows(
        self, arrays: dict[str, Array], spans: list[Span], count: int, length: int
    ) -> tuple[dict[str, Array], Mask | None, int, int]:
        """Leave out rows that could not be read: the batch shrinks, later ones do not move."""
        if all(window.lost is None for window, _, _ in spans):
            return arrays, None, count, length
        lost = np.concatenate(
            [np.zeros(b - a, bool) if w.lost is None else w.lost[a:b] for w, a, b in spans]
        )
        left = int(count - lost.sum())
        length = length if self._plan.last == "pad" else left
        kept = {}
        for name, array in arrays.items():
            kept[name] = np.empty((length, *array.shape[1:]), array.dtype)
            kept[name][:left] = array[:count][~lost]
        self._stats.n_lost += count - left
        return kept, lost, left, length

    def _joined(self, start: int, stop: int, length: int) -> tuple[dict[str, Array], list[Span]]:
        """Copy a batch out of the window or windows that hold it."""
        window = self._window
        slot = self._batch_pool.take(force=True)
        assert slot is not None
        slot.taken = False  # held from here on by its views alone
        arrays = {name: array[:length] for name, array in slot.arrays.items()}
        spans, place = [], 0
        while start < stop:
            assert window is not None
            if start >= window.stop:
                window = self._advance()
            end = min(stop, window.stop)
            a, b = start - window.start, end - window.start
            for name, array in window.arrays.items():
                arrays[name][place : place + b - a] = array[a:b]
            spans.append((window, a, b))
            place, start = place + b - a, end
        return arrays, spans

    @property
    def _copies(self) -> bool:
        """Whether batches are copied out of windows.

        A batch that is a view keeps its whole window in memory. That costs nothing to a
        consumer who uses batches one by one; once one is seen to hold on to them, large
        windows are let go of by copying.
        """
        return bool(self._windows_pool.extra) and self._many_a_window

    def _advance(self) -> Filled:
        """Let go of the window that is used up and take the next one."""
        self._window = None
        window = self._source.next()
        if window is None and self._ended:  # by another thread, a moment ago
            raise self._why_ended()
        assert window is not None, "the windows of a plan hold every row of its batches"
        if window.unread:
            window.lost = rescue(
                self._recipe.lanes, window.content, self._recipe.group, window.arrays
            )
        self._window = window
        return window

    def supersede(self) -> None:
        """End this iteration because another begins; using it further is an error."""
        if not self._ended:
            self._superseded = True
            self.close()

    def close(self) -> None:
        """Stop reading ahead and give memory back; iterating further ends at once."""
        self._ended = True
        self._window = None
        self._source.close()

    def __enter__(self) -> EpochIterator[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def rows_of_spans(
    spans: list[tuple[Content, int, int]],
    group: Rows | None,
    length: int,
    lost: Mask | None = None,
) -> Rows:
    """Return the dataset positions of places in windows; -1 up to `length` where padded."""
    found = [np.empty(0, np.int64), *(content.rows[a:b] for content, a, b in spans)]
    rows = np.concatenate(found)
    if lost is not None:
        rows = rows[~lost]
    out = np.full(length, -1, np.int64)
    out[: len(rows)] = rows if group is None else group[rows]
    return out
