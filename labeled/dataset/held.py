"""Sources as a dataset holds them: parts of their axes taken, rows in the files or in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.errors import (
    DimsError,
    NoLengthError,
    SelectionError,
    SelectionTypeError,
    SpaceTypeError,
    listed,
)
from labeled.formats.header import ALL
from labeled.ragged import Ragged
from labeled.selection import Selection
from labeled.sources.loading import enough_memory, load_rows
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import Source
from labeled.spaces import SourceInfo, Space, row_space, space_of

Array = npt.NDArray[Any]
Held = Source | RaggedSource
Rows = Array | Ragged
"""Rows in memory, decoded."""

TEXT_KINDS = "OSU"
"""Kinds of dtypes that no space holds."""


def narrowed(source: Held, dim: str, request: Any) -> Held:
    """Take part of one dim of a source; a source without the dim stays as it is."""
    if dim not in source.dims[1:]:
        return source
    if isinstance(source, RaggedSource):
        raise DimsError(
            f"dim {dim!r} of {source.where} has another length in every example ({source.ragged}), "
            f"so isel() cannot cut it; pad() the source, or leave it out with select()"
        )
    request = list(request) if isinstance(request, tuple) else request
    try:
        return source.narrow({source.dims[1:].index(dim): request})
    except (SelectionError, SelectionTypeError) as error:
        raise type(error)(f"{error} ({source.where})") from None


def in_memory(source: Held, rows: Rows) -> Held:
    """Put rows in memory in the place of those in the files."""
    if isinstance(source, RaggedSource):
        assert isinstance(rows, Ragged)
        return replace(source, loaded=rows)
    assert isinstance(rows, np.ndarray)
    return source.in_memory(rows)


def taken(rows: Rows, positions: npt.NDArray[np.int64]) -> Rows:
    """Copy some rows out of those in memory."""
    return rows.take(positions).load() if isinstance(rows, Ragged) else rows[positions]


def loaded_of(sources: Mapping[str, Held]) -> dict[str, Rows]:
    """Return the rows of sources that are in memory."""
    return {name: source.loaded for name, source in sources.items() if source.loaded is not None}


def first_of(rows: Rows) -> Array:
    """Return the first of rows in memory as a plain array."""
    first = rows[0]
    values: Array = first.values if isinstance(first, xr.DataArray) else np.asarray(first)
    return values


def read_rows_of(
    sources: Mapping[str, Held],
    selections: Mapping[str, Selection],
    progress: bool | None = False,
) -> dict[str, Rows]:
    """Read the selected rows of each source into memory, decoded; ragged ones lie flat.

    `progress` is that of :func:`~labeled.writing.progress.progress_bar`.

    Raises
    ------
    UnsafeFileError
        If a file claims far more than it stores; nothing is read then.
    RowsMemoryError
        If memory does not suffice for the rows of a source.
    """
    from labeled.writing.progress import progress_bar

    for name, source in sources.items():
        if isinstance(source, Source):
            source.check_claim(len(selections[name]))
    n_bytes = sum(len(selections[name]) * source.row_bytes for name, source in sources.items())
    with progress_bar(progress, n_bytes, "load") as told:
        return {name: _read(source, selections[name], told) for name, source in sources.items()}


def _read(source: Held, selection: Selection, told: Callable[[int], None]) -> Rows:
    with enough_memory(source, selection):
        if isinstance(source, RaggedSource):
            rows = source.select(selection).load()
            told(len(selection) * source.row_bytes)
            return rows
        return source.decode(load_rows(source, selection, os.cpu_count() or 1, told))


def by_length(n_rows: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the sources that have each number of rows."""
    sources_of: dict[int, list[str]] = {}
    for name, n in n_rows.items():
        sources_of.setdefault(n, []).append(name)
    return sources_of


def weightiest(n_rows: Mapping[str, int], row_bytes: Callable[[str], int]) -> list[str]:
    """Return the sources of one length that hold most of the bytes together."""
    sources_of = by_length(n_rows)
    most = max(sources_of, key=lambda n: n * sum(map(row_bytes, sources_of[n])), default=0)
    return sources_of.get(most, [])


MOST_LENGTHS = 5
"""Numbers of rows that a message tells."""


def common_length(
    n_rows: Mapping[str, int], row_bytes: Callable[[str], int], splits: Collection[str], where: str
) -> int:
    """Return the number of rows that all sources have.

    `splits` are those that may be taken still, for the message; it proposes the sources that
    hold most of the bytes, by the bytes of their rows.

    Raises
    ------
    NoLengthError
        If they have different ones.
    """
    sources_of = by_length(n_rows)
    if len(sources_of) > 1:
        told = [f"{n:,} in {listed(names, 2)}" for n, names in sources_of.items()]
        more = f"; {len(told) - MOST_LENGTHS} more lengths" if len(told) > MOST_LENGTHS else ""
        agree = ", ".join(map(repr, weightiest(n_rows, row_bytes)[:8]))
        raise NoLengthError(
            f"the sources of {where} hold different numbers of rows "
            f"({'; '.join(told[:MOST_LENGTHS])}{more}); "
            f"{'split(), or ' if {*splits} - {ALL} else ''}select() sources that agree, such as "
            f"select({agree})"
        )
    return next(iter(sources_of), 0)


def sizes_of(
    dims: Mapping[str, Iterable[str]], shapes: Mapping[str, Iterable[int]]
) -> dict[str, int]:
    """Return the length of each dim name.

    Raises
    ------
    DimsError
        If sources give one name several lengths.
    """
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        for dim, length in zip(dims[name], shape, strict=False):
            if sizes.setdefault(dim, length) != length:
                raise DimsError(
                    f"dim {dim!r} has length {length} in source {name!r} but {sizes[dim]} in "
                    "another; use .shapes, or select() sources that agree"
                )
    return sizes


def spaces_of(
    sources: Mapping[str, Held], n_rows: Mapping[str, int], given: Mapping[str, Space]
) -> dict[str, Space]:
    """Return the space of each dense numeric source: the one given, or what dims and dtype say."""
    out = {}
    for name, source in sources.items():
        if source.ragged is not None:
            continue
        if name in given:
            out[name] = given[name]
        elif source.dtype.kind not in TEXT_KINDS:
            shape = (n_rows[name], *source.row_shape)
            out[name] = space_of(source.dims, shape, source.dtype, name=name)
    return out


def check_space(name: str, source: Held, space: Any) -> None:
    """Raise unless `space` can be what the rows of a source are.

    Raises
    ------
    SpaceTypeError
        If it is no space, or the source holds text or examples of different shapes.
    SpecsError
        If rows of the source are no rows of it.
    """
    if not isinstance(space, Space):
        raise SpaceTypeError(
            f"with_spaces({name}=...) takes a space, such as VectorSpace(3), not {space!r}"
        )
    if source.ragged is not None or source.dtype.kind in TEXT_KINDS:
        held = "text" if source.ragged is None else "examples of different shapes"
        raise SpaceTypeError(
            f"{source.where} holds {held}, which has no space of its own; dense numbers have"
        )
    row_space(SourceInfo(name, source.dims, source.row_shape, source.dtype, space))
