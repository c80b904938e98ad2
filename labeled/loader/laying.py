"""From what a user asks of batches to how they are laid out, and which sources that takes.

A space says how large an example is, so a ragged source that specs name is padded to that
size, and ``<source>_mask`` (booleans: True where an example is) may be named beside it, in
a space of the same size. From there on both are like any dense source.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from labeled.dims import SPATIAL, axis_of, role_of
from labeled.errors import LoaderError, SpecsError
from labeled.forms import RowForm, extremes
from labeled.loader.arguments import can_hold
from labeled.loader.finish import Finish, changes_of, check_padding, padding_by_source
from labeled.loader.memory import SHAPE_ROWS
from labeled.loader.ragged_finish import RaggedFinish, dense_only, ragged_finishes
from labeled.ragged.padding import first_longer
from labeled.selection import Selection
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource
from labeled.spaces import (
    ConvNDSpace,
    DataSpecsMapping,
    IndexSpace,
    SourceInfo,
    Space,
    VectorSpace,
    as_specs,
    compile_specs,
    leaves,
    space_of,
)
from labeled.transforms.running import Forms, Line


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


def line_in_form(line: Line | None, finish: Finish) -> Line | None:
    """Tell the steps of a pipeline how batches are laid out."""
    if line is None:
        return None
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


MASK = "_mask"


def padded_infos(
    specs: Any, sources: Mapping[str, AnySource], padding: Mapping[str, Any]
) -> tuple[dict[str, SourceInfo], dict[str, RaggedFinish]]:
    """Return what specs find of the ragged sources they name, and how these are laid out.

    Raises
    ------
    SpecsError
        If a space has no size for the dims of a source, two have different ones, or the
        padding is no value of its dtype.
    """
    infos: dict[str, SourceInfo] = {}
    finishes: dict[str, RaggedFinish] = {}
    if not isinstance(specs, tuple) or len(specs) != 2:
        return infos, finishes  # refused where specs are compiled
    for space, asked in DataSpecsMapping(specs).specs_to_index:
        name = asked if asked in sources else asked.removesuffix(MASK)
        source = sources.get(name)
        if not isinstance(source, RaggedSource):
            continue
        lengths = _lengths(space, source)
        known = finishes.setdefault(
            name,
            RaggedFinish(name, source.dims, source.dtype, "pad", padding[name], lengths=lengths),
        )
        if known.lengths != lengths:
            raise SpecsError(
                f"{source.where} is asked for padded to {known.lengths} and to {lengths} "
                f"({source.dims[1:]}); ask for one size"
            )
        if not can_hold(source.dtype, padding[name]):
            raise SpecsError(
                f"{source.where}: pad_value={padding[name]!r} is no value of dtype {source.dtype}"
            )
        dtype = source.dtype if asked == name else np.dtype(bool)
        own = space_of(source.dims, lengths, dtype)
        if isinstance(space, IndexSpace) and asked == name:
            own = IndexSpace(space.max_labels, space.dim)
        infos[asked] = SourceInfo(asked, source.dims, lengths, dtype, own, mask=asked != name)
    return infos, finishes


def _lengths(space: Space, source: RaggedSource) -> tuple[int, ...]:
    """Return what a space says of the length of each axis of an example."""
    inner = source.dims[1:]
    if isinstance(space, VectorSpace | IndexSpace) and len(inner) == 1:
        return (int(space.dim),)
    if isinstance(space, ConvNDSpace):
        roles = [role_of(dim) for dim in inner]
        n_spatial = sum(role in SPATIAL for role in roles)
        axes = [None if role is None else axis_of(role, n_spatial) for role in roles]
        length: dict[Any, int] = {"c": space.channels}
        length.update(enumerate(space.shape))
        if {*axes, "c"} == set(length) and len(set(axes)) == len(axes):
            return tuple(int(length[axis]) for axis in axes if axis is not None)
    raise SpecsError(
        f"{source.where} has examples of dims {inner}, which {space} has no sizes for; ask for a "
        f"ConvNDSpace over height and width, or a VectorSpace where examples have one axis, or "
        f"leave the specs out and give ragged='pad'"
    )


def check_lengths(source: RaggedSource, selection: Selection, lengths: tuple[int, ...]) -> None:
    """Refuse examples that a space has no room for; reads all shapes.

    Raises
    ------
    SpecsError
        Naming the row.
    """
    reader = source.examples()
    for first in range(0, len(selection), SHAPE_ROWS):
        rows = selection[first : first + SHAPE_ROWS].rows
        shapes = reader.shapes(rows)
        longer = first_longer(shapes, lengths)
        if longer is not None:
            at, axis = longer
            raise SpecsError(
                f"{source.where}, row {int(rows[at])}: its {source.dims[axis + 1]!r} has length "
                f"{int(shapes[at, axis])}, more than the {lengths[axis]} that its space has; ask "
                f"for a larger space, or leave longer rows out"
            )
