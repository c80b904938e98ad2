"""Rows of all sources on their way into one open file: what is done to them, and by whom.

A :class:`Plan` says what is done to the blocks of every source; :func:`works_of` makes the
work, in the order in which it will lie in the file; :func:`store` has it done and stores
what comes of it. Who writes a new file and who appends to one both stand on this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from dask.delayed import delayed

from labeled.errors import ArrayError, LoaderError
from labeled.formats.cf import cf_of
from labeled.formats.hdf5.encoding import Layout, rows_a_unit
from labeled.formats.hdf5.own import Checksums
from labeled.formats.hdf5.writing import SourceWriter
from labeled.formats.header import vlen_base
from labeled.writing.blocks import (
    TWICE,
    Before,
    Begin,
    Joiner,
    Recipe,
    Units,
    Work,
    pack,
    packed_in_order,
)
from labeled.writing.inputs import Inputs, given_of
from labeled.writing.ragged import is_ragged
from labeled.writing.source import Block, SourceToWrite
from labeled.writing.splits import Splits
from labeled.writing.statistics import SCRATCH_BYTES, Measure, Tally, can_measure

UNIT_BYTES = 1 << 18
"""Rows between two checksums, of a chunked source at least a chunk: they wait for neighbours."""

BLOCK_BYTES = 4 << 20
"""What is read of an array at a time, where nobody else says."""

BLOCKS = 8
"""Blocks on their way that there is room for, read and packed counted apart."""

COUNTED_BYTES = 1 << 20
"""Less memory than that is not refused: an interpreter takes and gives back as much at a time."""

LEAST_BLOCK_BYTES = 1 << 16
"""Smaller blocks would cost more to hand out than to write."""

SCRATCH_SHARE = 16
"""Of a source that is small: measured in float64, it takes no more than so much of itself."""

OBJECTS = 3
"""How much more than their bytes is held of texts and of rows of any length."""

BASE_BYTES = 1 << 20
"""What threads and HDF5's lists of free memory take, however little is on its way; ..."""

EXAMPLES_BASE_BYTES = 3 << 20
"""... where examples, or texts, are stored, too; ..."""

VLEN_BASE_BYTES = 7 << 20
"""... and where rows of any length are."""

BATCHES = 2
"""Batches that are there at a time: one whose rows are on their way, and one being made."""

SPARE = 3
"""Rows on their way take one part in so many of the memory: see :attr:`Plan.room`."""

HELD_UNITS = 2
"""Units of rows that wait for more: as they came, and put together."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How the rows of every source are packed and measured."""

    recipes: Mapping[str, Recipe]
    tallies: Mapping[str, Tally | None]
    budget: int
    threads: int
    begin: Begin | None = None
    """Has dask's work done; wherever dask runs, by default."""
    held: int = 0
    """Bytes that are taken whatever is on its way."""

    @property
    def room(self) -> int:
        """Bytes of rows on their way at a time, as they are read and as they are packed.

        Of what is given, they take one part: the system's allocator holds on to about as much
        as was given back to it, twice. Rows that others pack are all that is counted.
        """
        if self.begin is not None:
            return self.budget
        return max((self.budget - self.aside) // SPARE, 1)

    @property
    def aside(self) -> int:
        """Bytes that are taken besides: by every thread, by rows that wait for more, and always."""
        units = [each.unit_rows * each.row_bytes for each in self.recipes.values()]
        return self.held + self.threads * SCRATCH_BYTES + HELD_UNITS * max(units, default=0)

    def statistics(self) -> dict[str, Any]:
        """Return what was measured, by source."""
        return {name: tally.result() for name, tally in self.tallies.items() if tally is not None}

    def checksums(self, joiners: Mapping[str, Joiner]) -> dict[str, Checksums]:
        """Return the checksums of every source that has some."""
        return {
            name: Checksums(
                self.recipes[name].unit_rows, joiner.n_rows, np.array(joiner.checksums, "<u4")
            )
            for name, joiner in joiners.items()
            if self.recipes[name].checksums
        }


def fitting(plan: Plan, inputs: Inputs, memory: float | str | None) -> Plan:
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
    batches = sum(BATCHES * given.batch_bytes for given in inputs.sources.values())
    base = max(map(_base_bytes, inputs.sources.values()))
    plan = replace(plan, held=base + batches)
    needs = {name: batches + _needed(plan, given) for name, given in inputs.sources.items()}
    name = max(needs, key=lambda name: needs[name])
    needed = needs[name]
    if needed <= max(plan.budget, COUNTED_BYTES):
        return plan
    if memory is None:
        return replace(plan, budget=SPARE * needed)
    raise LoaderError(
        f"memory={memory!r} is too small for source {name!r}: of its pieces that cannot be cut (a "
        f"chunk, a block of dask's, an example, a batch) the largest needs {needed:,} bytes, as it "
        f"is read, as it is packed, and while it waits for its neighbours, with what threads and "
        f"HDF5 take; give memory='{-(-needed >> 20)} MiB', or smaller pieces"
    )


def _needed(plan: Plan, given: SourceToWrite) -> int:
    """Return the least memory that a source can be written in."""
    unit_bytes = plan.recipes[given.name].unit_rows * given.row_bytes
    if given.least_bytes:
        needed = (TWICE + 1) * given.least_bytes + HELD_UNITS * unit_bytes
    else:
        needed = (TWICE + 1) * unit_bytes
    needed += plan.threads * SCRATCH_BYTES + _base_bytes(given)
    if given.shape[0] is None:
        return needed
    return min(needed, SCRATCH_SHARE * given.shape[0] * given.row_bytes)


def _base_bytes(given: SourceToWrite) -> int:
    if vlen_base(given.dtype) is not None:
        return VLEN_BASE_BYTES
    return EXAMPLES_BASE_BYTES if given.example_dims or given.dtype.kind == "O" else BASE_BYTES


def recipe_for(given: SourceToWrite, layout: Layout, checksums: bool) -> Recipe:
    """Return what is done to every block of a source."""
    cut = Layout() if given.dtype.kind == "O" else layout  # HDF5 puts objects into chunks itself
    return Recipe(
        f"source {given.name!r}",
        given.dtype,
        given.row_shape,
        layout,
        rows_a_unit(given.row_bytes, cut, UNIT_BYTES),
        checksums,
        measure_for(given) or Measure(),
        given.encode,
        given.row_bytes,
    )


def measure_for(given: SourceToWrite) -> Measure | None:
    """Return how the values of a source are measured; None for those that have no mean."""
    dtype = vlen_base(given.dtype) or given.dtype
    cf, _ = cf_of(given.name, given.dtype, given.attrs, [])
    if cf is None or not cf.changes_values:
        cf = None
    else:
        dtype = cf.dtype
    if given.encode is not None or not can_measure(dtype):
        return None
    if given.example_dims:
        return Measure.of(given.example_dims, None, dtype, cf)
    return Measure.of(given.names.dims, given.row_shape, dtype, cf)


def tally_for(given: SourceToWrite, table: Splits | None, statistics: bool) -> Tally | None:
    """Return what gathers the statistics of a source; None where there is nothing to gather."""
    measure = measure_for(given) if statistics else None
    if measure is None:
        return None
    rows = {s: by[given.name] for s, by in (table or {}).items() if given.name in by}
    return Tally(rows, decoded=measure.cf is not None)


def works_of(plan: Plan, inputs: Inputs, first: int = 0) -> Iterator[Work]:
    """Yield the blocks of all sources: one after another, or batch by batch.

    Row 0 of the inputs is row `first` of the file.
    """
    if inputs.batches is not None:
        yield from _works_of_batches(plan, inputs, inputs.batches, first)
        return
    for given in inputs.sources.values():
        for block in given.blocks(_rows_a_block(plan, given)):
            yield work_of(plan, given, block, first)


def _weight(given: SourceToWrite) -> int:
    """Return how much more of it is held: texts and rows of any length are put together once."""
    return OBJECTS if given.dtype.kind == "O" else 1


def _rows_a_block(plan: Plan, given: SourceToWrite) -> int:
    """Return how many rows to read at a time: whole units, or chunks, or less if need be."""
    recipe = plan.recipes[given.name]
    most = min(BLOCK_BYTES, max(plan.room // BLOCKS, min(LEAST_BLOCK_BYTES, plan.budget // 8)))
    rows = max(most // max(given.row_bytes * _weight(given), 1), 1)
    step = (
        recipe.unit_rows if rows >= recipe.unit_rows else min(_chunk_rows(recipe), recipe.unit_rows)
    )
    return max(rows // step, 1) * step


def _chunk_rows(recipe: Recipe) -> int:
    """Return the least rows that are encoded together; HDF5 puts objects into chunks by itself."""
    chunks = recipe.layout.chunks
    return 1 if chunks is None or recipe.dtype.kind == "O" else chunks[0]


def work_of(plan: Plan, given: SourceToWrite, block: Block, first: int = 0) -> Work:
    """Return the work on a block of a source whose row 0 is row `first` of the file."""
    recipe, tally = plan.recipes[given.name], plan.tallies[given.name]
    start, stop = block.start + first, block.stop + first
    begin = start if block.first is None else block.first
    end = stop if block.shapes is None else begin + len(block.shapes)
    parts = [] if tally is None else tally.parts(begin, end)
    packing = partial(pack, start=start, stop=stop, recipe=recipe, parts=parts, shapes=block.shapes)
    n_bytes = given.row_bytes * (stop - start) if block.n_bytes is None else block.n_bytes
    n_bytes *= _weight(given)
    if block.delayed is not None:
        task = delayed(packing, pure=False, traverse=False)(block.delayed)
        return Work(given.name, n_bytes, None, task, recipe)
    assert block.read is not None
    read = block.read
    return Work(given.name, n_bytes, lambda: packing(read()))


def _works_of_batches(
    plan: Plan, inputs: Inputs, batches: Iterable[Mapping[str, Any]], first: int
) -> Iterator[Work]:
    done = dict.fromkeys(inputs.sources, first)
    names = set(inputs.n_rows)
    for number, batch in enumerate(batches):
        if set(batch) != names:
            raise ArrayError(
                f"batch {number} has sources {sorted(batch)}, but the first had "
                f"{sorted(names)}; give every batch the same"
            )
        for name, value in batch.items():
            ragged = inputs.ragged.get(name)
            if ragged is None:
                rest = f"the first had {inputs.sources[name].row_shape}"
                if is_ragged(value):
                    raise ArrayError(
                        f"batch {number} has examples of different shapes of source {name!r}, but "
                        f"all of {rest}; give labeled.Ragged.of(examples) in every batch"
                    )
                given = given_of(name, value, None)
                if given.row_shape != inputs.sources[name].row_shape:
                    raise ArrayError(
                        f"batch {number} has rows of shape {given.row_shape} of source {name!r}, "
                        f"but {rest}; where shapes differ, give labeled.Ragged.of(examples) in "
                        f"every batch"
                    )
                datasets = {name: given}
            else:
                datasets = ragged.batch(value, done)
            for each, given in datasets.items():
                known = replace(inputs.sources[each], blocks=given.blocks)
                for block in given.blocks(_rows_a_block(plan, given)):
                    yield work_of(plan, known, block, done[each])
                done[each] += int(given.shape[0] or 0)


def store(
    plan: Plan,
    works: Iterable[Work],
    writers: Mapping[str, SourceWriter],
    told: Callable[[int], None],
    before: Mapping[str, Before] | None = None,
) -> dict[str, Joiner]:
    """Do the work, and store what comes of it; return what put the blocks together."""
    joiners = {
        name: Joiner(recipe, partial(_put, writers[name]), (before or {}).get(name))
        for name, recipe in plan.recipes.items()
    }
    for name, packed in packed_in_order(
        works, threads=plan.threads, budget=plan.room, begin=plan.begin
    ):
        joiners[name].take(packed)
        tally = plan.tallies[name]
        if tally is not None:
            tally.add(packed.moments)
        told((packed.stop - packed.start) * plan.recipes[name].row_bytes)
    for joiner in joiners.values():
        joiner.finish()
    return joiners


def _put(writer: SourceWriter, units: Units) -> None:
    if units.chunks is not None:
        writer.put_chunks(units.chunks, units.stop)
    elif units.rows is not None:
        writer.put_rows(units.start, units.rows)
