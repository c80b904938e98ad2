"""Rows on their way into a file: blocks, the work done on each, and how many at a time.

A *block* is some consecutive rows of a source as somebody hands them out. Everything that
costs time is done block by block by :func:`pack`, wherever blocks are computed: cutting
into units of whole chunks, compressing, checksums, statistics. What comes back is stored
by one writer, in order, so equal input gives equal bytes whatever ran where.

Units do not care where blocks end: rows before the first and after the last whole unit of
a block come back as they are, and :class:`Joiner` puts neighbours together.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dask.base import compute

from labeled.errors import ArrayError
from labeled.formats.hdf5.encoding import Chunk, Layout, checksum, chunks_of
from labeled.formats.header import vlen_base
from labeled.formats.region import Array
from labeled.writing.source import cast, texts
from labeled.writing.statistics import Measure, Moments, Part

TWICE = 2
"""A block is in memory as it was read and, for a while, as it is stored."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done to every block of a source; pickles small."""

    where: str
    """How messages name the source."""
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    layout: Layout
    unit_rows: int
    checksums: bool = True
    measure: Measure = field(default_factory=Measure)
    encode: Callable[[Array], Array] | None = None
    """Turns values that HDF5 has no type for (times) into those that are stored."""
    row_bytes: int = 0
    """Of a row in memory, an average one where they differ in length."""


@dataclass(slots=True, eq=False)
class Units:
    """Whole units of rows, or the short last one: encoded chunks, or rows where contiguous."""

    start: int
    stop: int
    chunks: Sequence[Chunk] | None
    rows: Array | None
    checksums: list[int]


@dataclass(slots=True, eq=False)
class Packed:
    """A block after its work: rows before its first unit, units, rows after the last."""

    start: int
    stop: int
    head: Array
    units: Units | None
    tail: Array
    moments: list[tuple[tuple[str, ...], Moments]] = field(default_factory=list)


def pack(
    values: Any,
    start: int,
    stop: int,
    recipe: Recipe,
    parts: Sequence[Part],
    shapes: Array | None = None,
) -> Packed:
    """Do all work on a block of rows `start` to `stop`.

    With `shapes` the rows are the values of examples that have these, or one such example
    each, and `parts` tell of examples.
    """
    are_values = shapes is not None and vlen_base(recipe.dtype) is None
    rows = checked_rows(values, stop - start, recipe, None if are_values else start)
    values = rows if shapes is None else _values_of(rows)
    moments = recipe.measure.parts(values, parts, shapes)
    return Packed(start, stop, *_cut(rows, start, recipe), moments)


def _cut(rows: Array, start: int, recipe: Recipe) -> tuple[Array, Units | None, Array]:
    """Return rows before the first whole unit, the units, and the rows after them."""
    stop = start + len(rows)
    first = min(-(-start // recipe.unit_rows) * recipe.unit_rows, stop)
    last = max(stop // recipe.unit_rows * recipe.unit_rows, first)
    body = None
    if last > first:
        body = units_of(rows[first - start : last - start], first, recipe)
    return rows[: first - start].copy(), body, rows[last - start :].copy()


def joined(packs: Sequence[Packed], recipe: Recipe) -> Packed:
    """Return packed blocks, each beginning where the last ended, as one.

    Blocks that are smaller than a unit have rows only; together they have units.
    """
    head: Array | None = None
    bodies: list[Units] = []
    held, begin = [packs[0].head], packs[0].start
    for packed, following in zip(packs, (*packs[1:], None), strict=True):
        if packed.units is not None:
            lead, body, _ = _cut(_joined(held), begin, recipe)
            head = lead if head is None else head
            bodies += [each for each in (body, packed.units) if each is not None]
            held, begin = [], packed.units.stop
        held += [packed.tail] if following is None else [packed.tail, following.head]
    lead, body, tail = _cut(_joined(held), begin, recipe)
    bodies += [] if body is None else [body]
    return Packed(
        packs[0].start,
        packs[-1].stop,
        lead if head is None else head,
        _merged(bodies),
        tail,
        [one for packed in packs for one in packed.moments],
    )


def _values_of(rows: Array) -> Array:
    """Return the values of examples one after another."""
    if rows.dtype.kind != "O":
        return rows
    return np.concatenate(rows.tolist()) if len(rows) else np.empty(0)


def _joined(parts: Sequence[Array]) -> Array:
    """Return rows of one dtype as one array, in their byte order: NumPy's own would be native."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, dtype=parts[0].dtype)


def _merged(bodies: Sequence[Units]) -> Units | None:
    """Return units, each beginning where the last ended, as one."""
    if len(bodies) < 2:
        return bodies[0] if bodies else None
    sums = [each for one in bodies for each in one.checksums]
    chunks = rows = None
    if bodies[0].chunks is None:
        rows = _joined([one.rows for one in bodies if one.rows is not None])
    else:
        chunks = [each for one in bodies for each in one.chunks or ()]
    return Units(bodies[0].start, bodies[-1].stop, chunks, rows, sums)


def checked_rows(values: Any, n_rows: int, recipe: Recipe, first: int | None) -> Array:
    """Return a block as the dtype that is stored; messages count rows from `first`.

    Raises
    ------
    ArrayError
        If a block has another shape or kind than its source, or a value that it cannot hold.
    """
    array = values.get() if hasattr(values, "get") and hasattr(values, "device") else values
    if np.ma.is_masked(array):
        raise ArrayError(
            f"{recipe.where} gave a block with masked values, and a file has no place for a mask; "
            f"fill it in with .filled(value)"
        )
    rows = np.asarray(array)
    if recipe.encode is not None:
        rows = recipe.encode(rows)
    expected = (n_rows, *recipe.row_shape)
    if rows.shape != expected:
        raise ArrayError(
            f"{recipe.where} gave a block of shape {rows.shape} where {expected} was announced; "
            f"correct what computes it"
        )
    base = vlen_base(recipe.dtype)
    if base is not None:
        return _variable_rows(rows, base, recipe.where, first or 0)
    if recipe.dtype.kind == "O":
        return texts(rows, recipe.where, first or 0)
    return cast(rows, recipe.dtype, recipe.where, first)


def _variable_rows(rows: Array, base: np.dtype[Any], where: str, first: int) -> Array:
    out = np.empty(len(rows), object)
    for i, row in enumerate(rows.tolist()):
        out[i] = row if row.dtype == base else cast(row, base, f"{where}, row {first + i}")
    return out


def units_of(rows: Array, start: int, recipe: Recipe) -> Units:
    """Encode rows that begin with a unit."""
    sums = []
    if recipe.checksums:
        step = recipe.unit_rows
        sums = [checksum(rows[i : i + step]) for i in range(0, len(rows), step)]
    if recipe.layout.chunks is None or recipe.dtype.kind == "O":
        return Units(start, start + len(rows), None, rows, sums)
    chunks = list(chunks_of(rows, start, recipe.layout))
    return Units(start, start + len(rows), chunks, None, sums)


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """Rows that are in a file already: whole units, and the rows after the last of them."""

    n_rows: int
    """Of whole units."""
    checksums: Sequence[int]
    rows: Array


class Joiner:
    """Puts the packed blocks of one source together again, in order.

    Parameters
    ----------
    recipe : Recipe
    store : callable of Units
        Called with stretch after stretch, each beginning where the last ended.
    before : Before, optional
        What is in the file already.
    """

    def __init__(
        self, recipe: Recipe, store: Callable[[Units], None], before: Before | None = None
    ) -> None:
        self._recipe = recipe
        self._store = store
        self._held: list[Array] = []
        self._n_held = 0
        self.n_rows = 0
        self.checksums: list[int] = []
        if before is not None:
            self.n_rows, self.checksums = before.n_rows, list(before.checksums)
            self._hold(before.rows)

    def take(self, packed: Packed) -> None:
        """Store what is complete; hold the rest for the next block."""
        self._hold(packed.head)
        if packed.units is not None:
            self._put(packed.units)
        self._hold(packed.tail)

    def _hold(self, rows: Array) -> None:
        if not len(rows):
            return
        self._held.append(rows)
        self._n_held += len(rows)
        if (self.n_rows + self._n_held) % self._recipe.unit_rows == 0:
            self.finish()

    def _put(self, units: Units) -> None:
        assert self._n_held == 0
        assert units.start == self.n_rows
        self._store(units)
        self.checksums += units.checksums
        self.n_rows = units.stop

    def finish(self) -> None:
        """Store what is held, even if it is no whole unit."""
        if self._n_held:
            rows = _joined(self._held)
            self._held, self._n_held = [], 0
            self._put(units_of(rows, self.n_rows, self._recipe))


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One block still to be made: which rows of which source, and how."""

    source: str
    n_bytes: int
    """Of the rows in memory."""
    run: Callable[[], Packed] | None
    """Makes it here, in any thread; ..."""
    delayed: Any = None
    """... or the dask task that makes it wherever dask runs."""
    recipe: Recipe | None = None
    """That of the source."""


Begin = Callable[[Sequence[Work]], Iterator[tuple[str, Packed]]]
"""Begins work of dask's at once; what is returned yields what comes of it, in order."""


def packed_in_order(
    works: Iterable[Work], *, threads: int, budget: int, begin: Begin | None = None
) -> Iterator[tuple[str, Packed]]:
    """Do the work, a bounded part of it at a time; yield results in the order of `works`.

    Parameters
    ----------
    threads : int
        How many blocks are packed at a time in this process.
    budget : int
        Bytes of rows that may be on their way; a single block may exceed it.
    begin : callable, optional
        Has dask's work done; wherever dask runs, by default.
    """
    with ThreadPoolExecutor(threads, "labeled-write") as pool:
        waiting: deque[tuple[int, Iterator[tuple[str, Packed]]]] = deque()
        on_the_way = 0
        try:
            for group in _grouped(works, budget // (2 * TWICE)):
                size = _size(group)
                while waiting and (on_the_way + size > budget or len(waiting) > 2 * threads):
                    done, results = waiting.popleft()
                    yield from results
                    on_the_way -= done  # only now: they were in memory until they were stored
                if group[0].delayed is None or begin is None:
                    waiting.append((size, _results(group, _submitted(pool, group))))
                else:
                    waiting.append((size, begin(group)))
                on_the_way += size
            while waiting:
                yield from waiting.popleft()[1]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _size(group: Sequence[Work]) -> int:
    """Bytes that a group takes: its rows as they are read, and as they are packed."""
    return TWICE * sum(work.n_bytes for work in group)


def _results(group: Sequence[Work], future: Future[Any]) -> Iterator[tuple[str, Packed]]:
    """Yield what a group has come to, keeping nothing that was handed out."""
    results = deque(future.result())
    del future
    for work in group:
        yield work.source, results.popleft()


def _grouped(works: Iterable[Work], most: int) -> Iterator[list[Work]]:
    """Put dask's blocks together up to a size; others go one by one."""
    group: list[Work] = []
    size = 0
    for work in works:
        if group and (work.delayed is None or size + work.n_bytes > most):
            yield group
            group, size = [], 0
        if work.delayed is None:
            yield [work]
        else:
            group.append(work)
            size += work.n_bytes
    if group:
        yield group


def _submitted(pool: ThreadPoolExecutor, group: Sequence[Work]) -> Future[Any]:
    run = group[0].run
    if run is not None:
        return pool.submit(lambda: [run()])
    context = contextvars.copy_context()  # dask finds its client there
    return pool.submit(context.run, compute, *(work.delayed for work in group))
