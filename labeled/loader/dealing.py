"""Cutting batches from filled windows: where a batch's rows lie, and nothing of what follows.

A batch is a view of its window where one window holds all of it and nobody else is in the
way, else it is joined into memory of its own.

With ``errors="skip"`` every stored chunk of a window that could not be read is read again by
itself, so that no row is given up that is not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import ReadError, warn
from labeled.loader.dealt import DealtExamples
from labeled.loader.engine import WindowSource
from labeled.loader.lanes import Lane
from labeled.loader.plan import LoaderPlan
from labeled.loader.slots import Filled, SlotPool
from labeled.loader.stats import Stats
from labeled.samplers.listed import AnyPlan
from labeled.samplers.windows import WindowRows, rows_of

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Span = tuple[Filled, int, int]
"""Places ``a .. b`` within a window."""


class Interrupted(Exception):
    """The windows ended before the batches did: somebody has stopped the epoch."""


Made = tuple[Any, Callable[[], Rows], int, int]
"""A batch as it is handed out: data, what works out its rows, how many are real, how many lost.

A plain tuple, which costs nothing where batches are many and small.
"""


class Dealer:
    """Deals the batches of an epoch, one after another; for one thread at a time.

    Parameters
    ----------
    recipe : LoaderPlan
    plan : EpochPlan or SampledPlan
        The epoch.
    source : WindowSource
    pools : pair of SlotPool
        Memory for windows and for batches joined.
    """

    def __init__(
        self,
        recipe: LoaderPlan,
        plan: AnyPlan,
        source: WindowSource,
        pools: tuple[SlotPool, SlotPool],
        stats: Stats,
    ) -> None:
        self.recipe = recipe
        self.plan = plan
        self.source = source
        self._windows_pool, self._batch_pool = pools
        self.stats = stats
        self._window: Filled | None = None
        self._group, self._skips, self._finish = recipe.group, recipe.skips, recipe.finish
        self._span, self._padded_rows = plan.span, plan.batch_rows if plan.last == "pad" else 0
        self._many_a_window = recipe.sizes.job_rows >= 2 * plan.batch_rows
        self._joins = recipe.sizes.in_flight > 0 and not self._many_a_window

    def deal(self, number: int) -> Made:
        """Build one batch: its rows from the window or windows that hold them, laid out.

        Raises
        ------
        Interrupted
            If the epoch was stopped.
        """
        start, stop = self._span(number)
        count = stop - start
        length = self._padded_rows or count
        window = self._window
        if start < stop and (window is None or start >= window.stop):
            window = self._advance()
        if window is not None and stop <= window.stop and count == length and not self._copies:
            a, b = start - window.start, stop - window.start
            arrays = {name: array[a:b] for name, array in window.arrays.items()}
            spans: list[Span] = [(window, a, b)]
        else:
            arrays, spans = self._joined(window, start, stop, length)
        began = perf_counter()
        lost, before = None, count
        if self._skips:
            arrays, lost, count, length = self._kept_rows(arrays, spans, count, length)
        contents = [(window.content, a, b) for window, a, b in spans]
        rows = partial(rows_of_spans, contents, self._group, length, lost)
        data = self._finish(arrays, rows, count, length)
        self.stats.format_s += perf_counter() - began
        return data, rows, count, before - count

    def _kept_rows(
        self, arrays: dict[str, Any], spans: list[Span], count: int, length: int
    ) -> tuple[dict[str, Any], Mask | None, int, int]:
        """Leave out rows that could not be read: the batch shrinks, later ones do not move."""
        if all(window.lost is None for window, _, _ in spans):
            return arrays, None, count, length
        lost = np.concatenate(
            [np.zeros(b - a, bool) if w.lost is None else w.lost[a:b] for w, a, b in spans]
        )
        left = int(count - lost.sum())
        length = length if self.plan.last == "pad" else left
        kept: dict[str, Any] = {}
        for name, array in arrays.items():
            if isinstance(array, DealtExamples):
                kept[name] = array[0:count].kept(~lost, length)
                continue
            kept[name] = np.empty((length, *array.shape[1:]), array.dtype)
            kept[name][:left] = array[:count][~lost]
        return kept, lost, left, length

    def _joined(
        self, window: Filled | None, start: int, stop: int, length: int
    ) -> tuple[dict[str, Any], list[Span]]:
        """Copy a batch out of the window or windows that hold it, the first of them given.

        Another thread may end the iteration meanwhile, so what `let_go` clears is not asked.
        """
        slot = self._batch_pool.take(force=True)
        assert slot is not None
        slot.taken = False  # held from here on by its views alone
        arrays: dict[str, Any] = {name: array[:length] for name, array in slot.arrays.items()}
        uneven: dict[str, list[DealtExamples]] = {}
        spans, place = [], 0
        while start < stop:
            assert window is not None
            if start >= window.stop:
                window = self._advance()
            end = min(stop, window.stop)
            a, b = start - window.start, end - window.start
            for name, array in window.arrays.items():
                if isinstance(array, DealtExamples):
                    uneven.setdefault(name, []).append(array[a:b])
                    continue
                arrays[name][place : place + b - a] = array[a:b]
                if array.dtype.hasobject:
                    array[a:b] = None  # moved: what they refer to is the batch's alone
            spans.append((window, a, b))
            place, start = place + b - a, end
        arrays |= {name: DealtExamples.joined(parts, length) for name, parts in uneven.items()}
        return arrays, spans

    @property
    def _copies(self) -> bool:
        """Whether batches are copied out of windows.

        A batch that is a view keeps its whole window in memory. That costs nothing to a
        consumer who uses batches one by one; once one is seen to hold on to them, large
        windows are let go of by copying. A pipeline has several in hand at any time.
        """
        return self._joins or (bool(self._windows_pool.extra) and self._many_a_window)

    def _advance(self) -> Filled:
        """Let go of the window that is used up and take the next one."""
        self._window = None
        window = self.source.next()
        if window is None:
            raise Interrupted
        if window.unread:
            window.lost = rescue(
                self.recipe.lanes, window.content, self.recipe.group, window.arrays
            )
        self._window = window
        return window

    def let_go(self) -> None:
        """Hold no window any more."""
        self._window = None


def rows_of_spans(
    spans: list[tuple[WindowRows, int, int]],
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


Array = npt.NDArray[Any]


def rescue(
    lanes: Sequence[Lane], content: WindowRows, group: Rows | None, arrays: dict[str, Array]
) -> Mask:
    """Read a window again, chunk by chunk, and warn of what is lost.

    Parameters
    ----------
    lanes : sequence of Lane
    content, group
        Of the window, as for :meth:`Lane.tasks`.
    arrays : mapping of str to array, lengths ``(n, *row_shape)``
        Receive what can be read.

    Returns
    -------
    bool array, lengths ``(n,)``
        Places of rows of which at least one source could not be read.
    """
    lost = np.zeros(len(content.rows), bool)
    for lane in lanes:
        if lane.is_loaded:
            continue
        for rows, places in _by_chunk(lane, content, group):
            lost[_unreadable(lane, rows, places, arrays[lane.name])] = True
    return lost


def _unreadable(lane: Lane, rows: Rows, places: Rows, out: Array) -> Rows:
    """Read the rows of a chunk again, without those at fault; return the places of these."""
    lost = [places[:0]]
    while len(rows):
        try:
            lane.read_again(rows, places, out)
            break
        except ReadError as error:
            bad = rows == error.row if error.row in rows else np.ones(len(rows), bool)
            warn(f"{np.count_nonzero(bad)} rows are left out of this epoch: {error}")
            lost.append(places[bad])
            rows, places = rows[~bad], places[~bad]
    return np.concatenate(lost)


def _by_chunk(lane: Lane, content: WindowRows, group: Rows | None) -> Iterator[tuple[Rows, Rows]]:
    """Yield the file rows of each stored chunk of a window, and their places."""
    read = lane.read(content, group)
    if read.listed is not None:
        rows = read.listed
    elif read.run is not None:
        rows = np.arange(*read.run, dtype=np.int64)
    else:
        assert read.runs is not None
        rows = rows_of(read.runs)
    places = np.arange(len(rows)) if read.dest is None else read.dest
    chunk = rows // max(1, lane.reader.chunk_rows)
    order = np.argsort(chunk, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(chunk[order])) + 1):
        yield rows[mine], places[mine]
