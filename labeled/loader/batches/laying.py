"""From what a user asks of batches to how they are laid out, and which sources that takes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource
from labeled.errors import LoaderError, SpecsError
from labeled.forms import RowForm, extremes
from labeled.loader.batches.finish import Finish, changes_of, check_padding, padding_by_source
from labeled.loader.batches.padded import check_lengths, padded_infos
from labeled.loader.batches.ragged_finish import dense_only, ragged_finishes
from labeled.loader.sizing.ragged_bounds import SHAPE_ROWS
from labeled.selection import Selection
from labeled.spaces import Space
from labeled.specs import SourceInfo, as_specs, compile_specs, leaves
from labeled.transforms.running import Forms, Line, line_of


def finish_of(
    sources: Mapping[str, AnySource],
    spaces: Mapping[str, Space],
    specs: Any,
    dtype: Any,
    scale: Any,
    shift: Any,
    pad_value: Any,
    ragged: Any,
    *,
    pads: bool,
) -> tuple[Mapping[str, AnySource], Finish]:
    """Decide how batches are laid out, and which sources that needs."""
    padding = padding_by_source(sources, pad_value)
    if specs is None:
        finishes = ragged_finishes(sources, ragged, padding, dtype, scale, shift)
        dense = {name: source for name, source in sources.items() if name not in finishes}
        options = (dense_only(option, finishes) for option in (dtype, scale, shift))
        changes = changes_of(dense, spaces, *options)
        if pads:
            check_padding(dense, padding, changes)
        return sources, Finish(sources, padding, None, changes, finishes)
    infos = {
        name: SourceInfo(name, s.dims, s.row_shape, s.dtype, spaces[name])
        for name, s in sources.items()
        if name in spaces
    }
    uneven, finishes = padded_infos(specs, sources, padding)
    _refuse_texts(specs, sources, infos | uneven)
    compiled = compile_specs(specs, infos | uneven, dtype=dtype, scale=scale, shift=shift)
    needed = {
        name: sources[name]
        for name in dict.fromkeys([*finishes, *compiled.sources])
        if name in sources
    }
    if pads:
        check_padding(needed, padding, {})
    return needed, Finish(needed, padding, compiled, {}, finishes)


def _refuse_texts(
    specs: Any, sources: Mapping[str, AnySource], infos: Mapping[str, SourceInfo]
) -> None:
    """Raise where specs ask for a source that is there but holds no numbers."""
    for space, name in leaves(*as_specs(specs)):
        if name in sources and name not in infos:
            raise SpecsError(
                f"{sources[name].where} holds no numbers, so that it has no space and is not laid "
                f"out for {space}; leave it out of the specs, or read it without specs"
            )


def line_in_form(pipeline: Any, finish: Finish) -> Line | None:
    """Sort the steps of a pipeline, and tell them how batches are laid out."""
    if pipeline is None:
        return None
    line = line_of(pipeline)
    if finish.form.axes is None:
        line.check_named(finish.sources)
    flat = [name for name, ragged in finish.ragged.items() if ragged.layout == "flat"]
    if flat and line.takes_apart:
        raise LoaderError(
            f"ragged='flat' lays the examples of {flat[0]!r} end to end, so that a pipeline cannot "
            "take them one by one; ask for ragged='list' or 'pad', or mark the transforms as "
            "labeled.transforms.whole"
        )
    return line.with_form(finish.form)


def check_uneven(
    sources: Mapping[str, AnySource], selections: Mapping[str, Selection], finish: Finish
) -> None:
    """Refuse ragged examples that the spaces of specs have no room for; reads their shapes."""
    for name, uneven in finish.ragged.items():
        source = sources[name]
        if uneven.lengths is not None and isinstance(source, RaggedSource):
            check_lengths(source, selections[name], uneven.lengths)


def forms_of(
    sources: Mapping[str, AnySource], selections: Mapping[str, Selection], finish: Finish
) -> Forms:
    """Return what rows look like when they go into a pipeline; reads shapes of ragged examples."""
    if finish.specs is not None:
        axes, steps = finish.specs.batch_axes, finish.specs.steps
        if len(steps) != 1 or not isinstance(axes, int):
            return None
        shape, dtype = steps[0].spec(1)
        return RowForm((), ((*shape[:axes], *shape[axes + 1 :]),), dtype)
    return {name: _form_of(source, selections[name], finish) for name, source in sources.items()}


def _form_of(source: AnySource, selection: Selection, finish: Finish) -> RowForm:
    uneven = finish.ragged.get(source.name)
    if uneven is None or not isinstance(source, RaggedSource):
        change = finish.changes.get(source.name)
        asked = source.dtype if change is None else change.dtype
        dtype = np.dtype(np.float64 if asked is None else asked)
        return RowForm(source.dims[1:], (source.row_shape,), dtype)
    reader, blocks = source.examples(), range(0, len(selection), SHAPE_ROWS)
    found = [extremes(reader.shapes(selection[n : n + SHAPE_ROWS].rows)) for n in blocks]
    shapes = np.array(list(chain.from_iterable(found)), np.int64).reshape(-1, len(source.dims) - 1)
    if uneven.layout == "pad":
        shapes = shapes.max(axis=0, initial=0)[np.newaxis]
    return RowForm(source.dims[1:], extremes(shapes), uneven.out_dtype)
