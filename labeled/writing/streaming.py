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

from labeled.errors import ArrayError
from labeled.formats.hdf5.encoding import Layout, rows_a_unit
from labeled.formats.hdf5.own import Checksums
from labeled.formats.hdf5.writing import SourceWriter
from labeled.formats.objects import vlen_base
from labeled.writing.blocks import (
    Before,
    Begin,
    Joiner,
    Packed,
    Recipe,
    Units,
    Work,
    pack,
    packed_in_order,
)
from labeled.writing.given import Block, Given
from labeled.writing.inputs import Inputs, given_of
from labeled.writing.splits import Splits
from labeled.writing.statistics import Tally, are_labels, can_measure, channel_axis

UNIT_BYTES = 1 << 20
"""Rows between two checksums of a contiguous source; chunked ones have one a chunk or so."""

CHUNKED_UNIT_BYTES = 1 << 18
BLOCK_BYTES = 4 << 20
"""What is read of an array at a time, where nobody else says."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How the rows of every source are packed and measured."""

    recipes: Mapping[str, Recipe]
    tallies: Mapping[str, Tally | None]
    budget: int
    threads: int
    begin: Begin | None = None
    """Has dask's work done; wherever dask runs, by default."""

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


def recipe_for(given: Given, layout: Layout, checksums: bool) -> Recipe:
    """Return what is done to every block of a source."""
    chunked = layout.chunks is not None
    unit_bytes = CHUNKED_UNIT_BYTES if chunked else UNIT_BYTES
    return Recipe(
        f"source {given.name!r}",
        given.dtype,
        given.row_shape,
        layout,
        rows_a_unit(given.row_bytes, layout, unit_bytes),
        checksums,
        _channel_axis(given),
        _are_labels(given),
        given.encode,
        given.row_bytes,
    )


def _channel_axis(given: Given) -> int | None:
    """Return the axis along which statistics are kept apart."""
    if given.example_dims:
        return channel_axis(given.example_dims, (0,) * len(given.example_dims[1:]))
    return channel_axis(given.names.dims, given.row_shape)


def _are_labels(given: Given) -> bool:
    """Whether a source has one integer a row, and no time."""
    dense = given.encode is None and not given.example_dims
    return dense and are_labels(given.dtype, given.row_shape)


def tally_for(given: Given, table: Splits | None, statistics: bool) -> Tally | None:
    """Return what gathers the statistics of a source; None where there is nothing to gather."""
    dtype = vlen_base(given.dtype) or given.dtype
    if not statistics or not can_measure(dtype) or given.encode is not None:
        return None
    axis, dims = _channel_axis(given), given.example_dims or given.names.dims
    channels = 1
    if axis is not None:
        channels = 0 if given.example_dims else given.row_shape[axis - 1]
    rows = {s: by[given.name] for s, by in (table or {}).items() if given.name in by}
    dim = None if axis is None else dims[axis]
    return Tally(rows, channels, dim, count_classes=_are_labels(given))


def works_of(plan: Plan, inputs: Inputs, first: int = 0) -> Iterator[Work]:
    """Yield the blocks of all sources: one after another, or batch by batch.

    Row 0 of the inputs is row `first` of the file.
    """
    if inputs.batches is not None:
        yield from _works_of_batches(plan, inputs, inputs.batches, first)
        return
    for name, given in inputs.sources.items():
        recipe = plan.recipes[name]
        most = min(BLOCK_BYTES, plan.budget // 4)
        wanted = max(most // max(given.row_bytes * recipe.unit_rows, 1), 1)
        for block in given.blocks(wanted * recipe.unit_rows):
            yield work_of(plan, given, block, first)


def work_of(plan: Plan, given: Given, block: Block, first: int = 0) -> Work:
    """Return the work on a block of a source whose row 0 is row `first` of the file."""
    recipe, tally = plan.recipes[given.name], plan.tallies[given.name]
    start, stop = block.start + first, block.stop + first
    begin = start if block.first is None else block.first
    end = stop if block.shapes is None else begin + len(block.shapes)
    parts = [] if tally is None else tally.parts(begin, end)
    packing = partial(pack, start=start, stop=stop, recipe=recipe, parts=parts, shapes=block.shapes)
    n_bytes = given.row_bytes * (stop - start)
    if block.delayed is not None:
        task = delayed(packing, pure=False, traverse=False)(block.delayed)
        return Work(given.name, n_bytes, partial(_never, given.name), task, recipe)
    assert block.read is not None
    return Work(given.name, n_bytes, partial(_read_and_pack, block.read, packing))


def _read_and_pack(read: Callable[[], Any], packing: Callable[[Any], Packed]) -> Packed:
    return packing(read())


def _never(name: str) -> Packed:
    raise AssertionError(f"a block of source {name!r} is computed by dask")


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
                datasets = {name: given_of(name, value, None)}
                _check_alike(number, datasets[name], inputs.sources[name])
            else:
                datasets = ragged.batch(value, done)
            for each, given in datasets.items():
                known = replace(inputs.sources[each], blocks=given.blocks)
                for block in given.blocks(max(int(given.shape[0] or 0), 1)):
                    yield work_of(plan, known, block, done[each])
                done[each] += int(given.shape[0] or 0)


def _check_alike(number: int, given: Given, first: Given) -> None:
    """Refuse rows of another shape than those of the first batch."""
    if given.row_shape != first.row_shape:
        raise ArrayError(
            f"batch {number} has rows of shape {given.row_shape} of source {given.name!r}, but the "
            f"first had {first.row_shape}; give examples of different shapes as object arrays in "
            f"every batch"
        )


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
        works, threads=plan.threads, budget=plan.budget, begin=plan.begin
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
