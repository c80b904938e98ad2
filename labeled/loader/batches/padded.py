"""Ragged sources in specs: examples padded to the one shape of a space, and their masks.

A space says how large an example is, so a ragged source that specs name is padded to that
size, and ``<source>_mask`` (booleans: True where an example is) may be named beside it, in
a space of the same size. From there on both are like any dense source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import AnySource
from labeled.dims import SPATIAL, axis_of, role_of
from labeled.errors import SpecsError
from labeled.loader.batches.ragged_finish import RaggedFinish
from labeled.loader.request.casts import can_hold
from labeled.loader.sizing.ragged_bounds import SHAPE_ROWS
from labeled.ragged.padding import first_longer
from labeled.selection import Selection
from labeled.spaces import ConvNDSpace, IndexSpace, Space, VectorSpace
from labeled.spaces.sources import space_of
from labeled.specs import DataSpecsMapping, SourceInfo

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
