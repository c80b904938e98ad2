"""Packing: rows are cut, compressed, checked and measured block by block, a few at a time.

A *block* is some consecutive rows of a source, as its input yields them. Everything that
costs time is done block by block by :func:`pack`, wherever blocks are computed: cutting
into units of whole chunks, compressing, checksums, statistics. What comes back is stored
by one writer, in order, so equal input gives equal bytes whatever ran where.

Units do not depend on where blocks end: rows before the first and after the last whole unit of
a block come back as they are, and :class:`Joiner` puts neighbours together.

A :class:`PackingPlan` says what is done to every source, and how much memory that may take;
:func:`store` has it done, source by source or batch by batch, and stores what comes of it. Whoever
writes a file stands on this.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from dask.base import compute
from dask.delayed import delayed

from labeled._threads import Waiting, taken, workers
from labeled.display.progress import Advance
from labeled.errors import ArrayError
from labeled.formats.cf import cf_of
from labeled.formats.hdf5.filters import Chunk, Layout, chunks_of, rows_a_unit
from labeled.formats.hdf5.metadata import Checksums, checksum
from labeled.formats.hdf5.writing import SourceWriter
from labeled.formats.header import SourceHeader, vlen_base
from labeled.formats.region import Array
from labeled.writing.inputs import Inputs
from labeled.writing.layouts import Storage, fits, layouts_of
from labeled.writing.source import BLOCK_BYTES, Block, Encode, SourceToWrite, cast, texts
from labeled.writing.splits import Splits
from labeled.writing.statistics import SCRATCH_BYTES, Measure, Measured, Part, Tally, can_measure

UNIT_BYTES = 1 << 18  # of rows per checksum; a chunked source has at least a chunk of them
MIN_BLOCK_BYTES = 1 << 16  # smaller blocks would cost more to hand out than to write
BLOCKS = 8  # that fit into the budget at a time

# what is in memory: blocks as they were read and, for a while, as they are stored; batches, one
# that is packed and the next one; incomplete units, as they came and joined; texts and rows of any
# length once more while they are joined
TWICE, BATCHES, HELD_UNITS, OBJECTS = 2, 2, 2, 3
SPARE = 3  # rows in progress get one part in so many: see PackingPlan.rows_budget
SCRATCH_SHARE = 16  # times its own bytes that a small source takes (it is measured in float64)

# what threads and HDF5's free lists take, however few rows are written
BASE_BYTES, EXAMPLES_BASE_BYTES, VLEN_BASE_BYTES = 1 << 20, 3 << 20, 7 << 20


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done to every block of a source; pickles small.

    Parameters
    ----------
    row_bytes : int
        Of a row in memory, an average one where they differ in length.
    """

    name: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    row_bytes: int
    layout: Layout
    unit_rows: int
    checksums: bool
    measure: Measure | None


@dataclass(slots=True, eq=False)
class Units:
    """Whole units of rows, or the short last one: encoded chunks, or rows where contiguous."""

    start: int
    stop: int
    stored: Sequence[Chunk] | Array
    checksums: list[int]


@dataclass(slots=True, eq=False)
class Packed:
    """A packed block: rows before its first unit, units, rows after the last."""

    n_rows: int
    pieces: Sequence[Array | Units]
    moments: Measured


def pack(
    block: Block, recipe: Recipe, parts: Sequence[Part], encode: Encode | None, values: Any
) -> Packed:
    """Do all work on the values of a block.

    With shapes the rows are the values of examples that have these, or one such example
    each, and `parts` describe examples. `encode` turns values that HDF5 has no type for (times)
    into those that are stored.
    """
    start, stop, shapes = block.start, block.stop, block.shapes
    are_values = shapes is not None and vlen_base(recipe.dtype) is None
    rows = checked_rows(values, stop - start, recipe, None if are_values else start, encode)
    values = rows
    if shapes is not None and rows.dtype.kind == "O":
        values = np.concatenate(rows.tolist()) if len(rows) else np.empty(0)
    first = min(-(-start // recipe.unit_rows) * recipe.unit_rows, stop)
    last = max(stop // recipe.unit_rows * recipe.unit_rows, first)
    pieces: list[Array | Units] = [rows[: first - start].copy(), rows[last - start :].copy()]
    if last > first:
        pieces.insert(1, units_of(rows[first - start : last - start], first, recipe))
    measure = recipe.measure
    moments = [(names, measure.block(values, shapes, which)) for names, which in parts if measure]
    return Packed(stop - start, pieces, moments)


def checked_rows(
    values: Any, n_rows: int, recipe: Recipe, first: int | None, encode: Encode | None
) -> Array:
    """Return a block as the dtype that is stored; messages count rows from `first`.

    Raises
    ------
    ArrayError
        If a block has another shape or kind than its source, or a value that it cannot hold.
    """
    where, dtype, at = f"source {recipe.name!r}", recipe.dtype, first or 0
    array = values.get() if hasattr(values, "get") and hasattr(values, "device") else values
    rows, expected = np.asarray(array), (n_rows, *recipe.row_shape)
    if np.ma.is_masked(array):
        how = "fill it in with .filled(value)"
        raise ArrayError(f"{where} gave a block with masked values, and a file stores none; {how}")
    if rows.shape != expected:
        found = f"of shape {rows.shape} where {expected} was announced"
        raise ArrayError(f"{where} gave a block {found}; correct what computes it")
    if encode is not None:
        rows = encode(rows)
    base = vlen_base(dtype)
    if base is not None:
        made = [cast(row, base, f"{where}, row {i}") for i, row in enumerate(rows.tolist(), at)]
        return np.fromiter(made, object, len(made))
    return texts(rows, where, at) if dtype.kind == "O" else cast(rows, dtype, where, first)


def units_of(rows: Array, start: int, recipe: Recipe) -> Units:
    """Encode rows that begin with a unit."""
    steps = range(0, len(rows), recipe.unit_rows) if recipe.checksums else ()
    sums = [checksum(rows[i : i + recipe.unit_rows]) for i in steps]
    plain = recipe.layout.chunks is None or recipe.dtype.kind == "O"
    stored = rows if plain else list(chunks_of(rows, start, recipe.layout))
    return Units(start, start + len(rows), stored, sums)


@dataclass(eq=False)
class Joiner:
    """Joins the packed blocks of one source, in order.

    Parameters
    ----------
    writer : SourceWriter
        Stores stretch after stretch, each beginning where the last ended.
    n_rows : int
        So many are stored; `sums` are their checksums, and the rows in `held` come after them.
    """

    recipe: Recipe
    writer: SourceWriter
    n_rows: int = 0
    sums: list[int] = field(default_factory=list)
    held: list[Array] = field(default_factory=list)
    n_held: int = 0

    @property
    def checksums(self) -> Checksums:
        """Those of all rows that are stored."""
        return Checksums(self.recipe.unit_rows, self.n_rows, np.array(self.sums, "<u4"))

    def take(self, packed: Packed) -> None:
        """Store what is complete; hold the rest for the next block."""
        for piece in packed.pieces:
            if isinstance(piece, Units):
                self._put(piece)
            elif len(piece):
                self.held.append(piece)
                self.n_held += len(piece)
                if (self.n_rows + self.n_held) % self.recipe.unit_rows == 0:
                    self.finish()

    def _put(self, units: Units) -> None:
        rows = units.stored
        assert (self.n_held, self.n_rows) == (0, units.start)
        if not isinstance(rows, np.ndarray):
            self.writer.put_chunks(rows, units.stop)
        else:  # objects unit by unit, so that equal rows are equal bytes
            step = self.recipe.unit_rows if rows.dtype.kind == "O" else len(rows)
            for at in range(0, len(rows), step):
                self.writer.put_rows(self.n_rows + at, rows[at : at + step])
        self.sums += units.checksums
        self.n_rows = units.stop

    def finish(self) -> None:
        """Store what is held, even if it is not a whole unit."""
        if self.held:
            # in their byte order: NumPy's own would be native
            rows = np.concatenate(self.held, dtype=self.held[0].dtype)
            self.held, self.n_held = [], 0
            self._put(units_of(rows, self.n_rows, self.recipe))


# starts a dask task at once, and returns a call that waits for its result
Begin = Callable[[Any], Callable[[], Packed]]


@dataclass(frozen=True, eq=False)
class PackingPlan:
    """What is written: every source, how its rows are packed and measured, in how much memory.

    Parameters
    ----------
    tallies : mapping of Tally
        Of the sources that are measured.
    budget : int
        Bytes of memory.
    threads : int
        How many blocks are packed at a time in this process.
    begin : callable, optional
        Starts dask's tasks; by default they run wherever dask runs.
    held : int
        Bytes taken however many rows are in progress.
    """

    inputs: Inputs
    recipes: Mapping[str, Recipe]
    tallies: Mapping[str, Tally]
    budget: int
    threads: int
    begin: Begin | None = None
    held: int = 0

    @classmethod
    def of(
        cls,
        inputs: Inputs,
        storage: Storage,
        table: Splits | None,
        *,
        stored: Mapping[str, SourceHeader] | None = None,
        statistics: bool = True,
        checksums: bool = True,
    ) -> PackingPlan:
        """Plan how rows are stored; `stored` is as in :func:`layouts_of`."""
        layouts = layouts_of(inputs.sources, list(inputs.n_rows), storage, stored)
        recipes: dict[str, Recipe] = {}
        tallies: dict[str, Tally] = {}
        for name, given in inputs.sources.items():
            shape, row_bytes, layout = given.row_shape, given.row_bytes, layouts[name]
            cut = Layout() if given.dtype.kind == "O" else layout  # HDF5 cuts objects by itself
            units = rows_a_unit(row_bytes, cut, UNIT_BYTES), checksums
            measure = measure_for(given) if statistics else None
            recipes[name] = Recipe(name, given.dtype, shape, row_bytes, layout, *units, measure)
            if measure is not None:
                rows = {s: by[name] for s, by in (table or {}).items() if name in by}
                tallies[name] = Tally(rows, decoded=measure.cf is not None)
        return cls(inputs, recipes, tallies, *storage.effort())

    @property
    def rows_budget(self) -> int:
        """Bytes of rows in progress at a time, as they are read and as they are packed.

        Of what is given, they take one part: the system's allocator holds on to about as much
        as was given back to it, twice. Rows that others pack are all that is counted.
        """
        if self.begin is not None:
            return self.budget
        return max((self.budget - self.reserved) // SPARE, 1)

    @cached_property
    def reserved(self) -> int:
        """Bytes taken besides: by each thread, by incomplete units, and in any case."""
        units = [each.unit_rows * each.row_bytes for each in self.recipes.values()]
        return self.held + self.threads * SCRATCH_BYTES + HELD_UNITS * max(units, default=0)

    def rows_a_block(self, name: str) -> int:
        """Return how many rows to read at a time: whole units, or chunks, or less if need be."""
        recipe = self.recipes[name]
        most = max(self.rows_budget // BLOCKS, min(MIN_BLOCK_BYTES, self.budget // 8))
        rows = max(min(BLOCK_BYTES, most) // max(recipe.row_bytes * _weight(recipe.dtype), 1), 1)
        step, chunks = recipe.unit_rows, recipe.layout.chunks
        if rows < step:  # chunks are encoded whole; HDF5 puts objects into some by itself
            step = 1 if chunks is None or recipe.dtype.kind == "O" else min(chunks[0], step)
        return max(rows // step, 1) * step

    def statistics(self, table: Splits | None) -> dict[str, Any]:
        """Return what was measured, by source; of splits whose rows were not known, nothing."""
        return {
            name: tally.result({s: len(by.get(name, ())) for s, by in (table or {}).items()})
            for name, tally in self.tallies.items()
        }


def _weight(dtype: np.dtype[Any]) -> int:
    """Return how many times rows are held while they are joined."""
    return OBJECTS if dtype.kind == "O" else 1


def fitting(plan: PackingPlan, memory: float | str | None) -> PackingPlan:
    """Return a plan with memory enough for the largest piece that cannot be cut.

    Parameters
    ----------
    memory : int, str or None
        What was asked for; None leaves it to the plan, which then takes what it needs.

    Raises
    ------
    LoaderError
        If `memory` is too small; says what is needed, and of which source.
    """
    sources = plan.inputs.sources
    batches = sum(BATCHES * source.batch_bytes for source in sources.values())
    base = {name: _base_bytes(source) for name, source in sources.items()}
    plan = replace(plan, held=batches + max(base.values()))
    needs = {}
    for name, source in sources.items():
        least, unit = source.least_bytes, plan.recipes[name].unit_rows * source.row_bytes
        pieces = (TWICE + 1) * max(least, unit) + HELD_UNITS * min(least, unit)
        needs[name] = pieces + plan.threads * SCRATCH_BYTES + base[name]
        if source.shape[0] is not None:
            needs[name] = min(needs[name], SCRATCH_SHARE * source.shape[0] * source.row_bytes)
    name = max(needs, key=lambda name: needs[name])
    needed = batches + needs[name]
    what = "write its largest piece that cannot be cut (a chunk, a dask block, an example, a batch)"
    if fits(memory, plan.budget, needed, name, what, ", or smaller pieces"):
        return plan
    return replace(plan, budget=SPARE * needed)


def _base_bytes(given: SourceToWrite) -> int:
    if vlen_base(given.dtype) is not None:
        return VLEN_BASE_BYTES
    return EXAMPLES_BASE_BYTES if given.examples or given.dtype.kind == "O" else BASE_BYTES


def measure_for(given: SourceToWrite) -> Measure | None:
    """Return how the values of a source are measured; None for those that have no mean."""
    if given.is_part:
        return None
    dtype = vlen_base(given.dtype) or given.dtype
    cf, _ = cf_of(given.name, given.dtype, given.attrs, [])
    cf = None if cf is None or not cf.changes_values else cf
    dtype = dtype if cf is None else cf.dtype
    if given.encode is not None or not can_measure(dtype):
        return None
    return Measure.of(given.dims, None if given.examples else given.row_shape, dtype, cf)


def store(
    plan: PackingPlan, writers: Mapping[str, SourceWriter], advance: Advance
) -> dict[str, Joiner]:
    """Pack all rows, a bounded number at a time, and store them in order.

    Returns the joiners, which know counts and checksums.
    """
    joiners = {name: Joiner(recipe, writers[name]) for name, recipe in plan.recipes.items()}
    waiting = Waiting[int]()
    most = 2 * plan.threads if plan.begin is None else math.inf

    def stored(name: str, result: Callable[[], Packed]) -> int:
        packed = result()
        joiners[name].take(packed)
        if name in plan.tallies:
            plan.tallies[name].add(packed.moments)
        return packed.n_rows * plan.recipes[name].row_bytes

    with workers(plan.threads) as pool:
        try:
            for given, first in plan.inputs.parts():
                for block in given.blocks(plan.rows_a_block(given.name)):
                    n_bytes = block.n_bytes or given.row_bytes * (block.stop - block.start)
                    n_bytes *= TWICE * _weight(given.dtype)
                    for n_stored in taken(waiting, most, plan.rows_budget - n_bytes):
                        advance(n_stored)
                    packed = _begun(plan, pool, given, block, first)
                    waiting.append((n_bytes, partial(stored, given.name, packed)))
                    del packed  # it holds what it returned
            for n_stored in taken(waiting):
                advance(n_stored)
        finally:
            pool.shutdown(cancel_futures=True)
    for joiner in joiners.values():
        joiner.finish()
    return joiners


def _begun(
    plan: PackingPlan, pool: ThreadPoolExecutor, given: SourceToWrite, block: Block, first: int
) -> Callable[[], Packed]:
    """Begin to pack a block of a source whose row 0 is row `first` of the file."""
    start, stop = block.start + first, block.stop + first
    begin = start if block.first is None else block.first
    end = stop if block.shapes is None else begin + len(block.shapes)
    tally, recipe = plan.tallies.get(given.name), plan.recipes[given.name]
    parts = [] if tally is None else tally.parts(begin, end)
    here = replace(block, start=start, stop=stop, read=None, delayed=None)
    packing, read, task = partial(pack, here, recipe, parts, given.encode), block.read, None
    if read is not None and block.passing:
        read = partial(np.asanyarray, np.array(read(), subok=True))
    if block.delayed is not None:
        task = delayed(packing, pure=False, traverse=False)(block.delayed)
        if plan.begin is not None:
            return plan.begin(task)

    def run() -> Packed:
        packed: Packed = packing(read()) if read is not None else compute(task)[0]
        return packed

    return pool.submit(contextvars.copy_context().run, run).result  # dask finds its client there
