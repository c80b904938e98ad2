"""The conversion matrix: which spaces lead to which, and how.

One table by the two kinds of space, at the end: the function that lays a batch out, and the
checks that a pair must pass, which raise what is wrong with it. Casting happens last, to the
target's dtype.

Dask batches take the same routes. Moves of axes stay dask transposes; all else works chunk by
chunk: a chunk holds whole rows (other axes are rechunked together) and is converted by the
very function that converts a numeric batch, so chunks stay NumPy or CuPy and the two sides
cannot disagree. The type and dtype of the result are found by converting zero rows of the
input's meta; dask never has to guess. Chunks of unknown length work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from dask.base import tokenize

from labeled.device import concat, dtype_of
from labeled.errors import SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.arrays import (
    Mode,
    cast,
    check_labels,
    csr,
    da,
    flatten_rows,
    has_names,
    hstack,
    is_dask,
    is_sparse,
    move_axes,
    narrows,
    one_hot,
    unflatten_rows,
    why_not_cast,
)
from labeled.spaces.base import (
    ROUTES,
    ArraySpace,
    Batch,
    Route,
    Space,
    call_for,
    convert,
    fault,
    named,
    route_between,
    title,
)
from labeled.spaces.kinds import (
    CompositeSpace,
    ConvNDSpace,
    IndexSequenceSpace,
    IndexSpace,
    LabelSpace,
    NullSpace,
    SequenceSpace,
    VectorSequenceSpace,
    VectorSpace,
)


def _finish(x: Any, source: Space, target: ArraySpace, branch: str) -> Any:
    """Cast to the target's dtype: the last step of every route."""
    if target.dtype is None or dtype_of(x) == target.dtype:
        return x
    axis = target.get_batch_axis()
    return call_for(source, branch, cast, x, target.dtype, axis)


def _sizes_fit(source: Space, target: Space, branch: str) -> None:
    found, wanted = source.get_total_dimension(), target.get_total_dimension()
    if found != wanted:
        fault(SpaceError, source, branch, f"rows hold {found} values, {target} expects {wanted}")


def _dtypes_fit(source: ArraySpace, target: ArraySpace, branch: str) -> None:
    reason = None if source.dtype is None else why_not_cast(source.dtype, target.dtype)
    if reason is not None:
        fault(SpaceTypeError, source, branch, f"{reason} of {target}")


# ---------------------------------------------------------------- vectors and images
def _recontained(x: Any, source: VectorSpace, target: VectorSpace, branch: str) -> Any:
    if target.sparse and not source.sparse:
        x = csr(x)
    elif source.sparse and not target.sparse:
        x = x.toarray()
    return _finish(x, source, target, branch)


def _is_dense(source: VectorSpace, target: ConvNDSpace, branch: str) -> None:
    if source.sparse:
        text = f"sparse rows are not made into images of {target}; format them as a dense "
        fault(SpaceTypeError, source, branch, f"{text}VectorSpace first")


def _unflattened(x: Any, source: VectorSpace, target: ConvNDSpace, branch: str) -> Any:
    images = unflatten_rows(x, target.shape, target.channels, target.axes)
    return _finish(images, source, target, branch)


def _flattened(x: Any, source: ConvNDSpace, target: VectorSpace, branch: str) -> Any:
    rows = flatten_rows(x, source.axes)
    return _finish(csr(rows) if target.sparse else rows, source, target, branch)


def _shapes_fit(source: ConvNDSpace, target: ConvNDSpace, branch: str) -> None:
    if (source.shape, source.channels) != (target.shape, target.channels):
        found = f"shape {source.shape} with {source.channels} channels"
        wanted = f"shape {target.shape} with {target.channels}"
        text = f"images of {found} are not images of {wanted}, though both hold as many values"
        fault(SpaceError, source, branch, f"{text} ({target})")


def _moved(x: Any, source: ConvNDSpace, target: ConvNDSpace, branch: str) -> Any:
    moved = move_axes(x, source.axes, target.axes)
    if target.dtype is None or dtype_of(moved) == target.dtype:
        return moved
    if is_dask(moved):
        return _by_chunk(_finish, moved, target.with_dtype(None), target, branch)
    return _finish(moved, source, target, branch)


# ---------------------------------------------------------------- labels and sequences
Vectors = VectorSpace | VectorSequenceSpace


def _labels_fit(source: LabelSpace, target: Vectors, branch: str) -> None:
    layout = one_hot_layout(source.max_labels, source.dim, target.dim)
    if isinstance(layout, str):
        fault(SpaceError, source, branch, f"{layout} ({target})")


def _expanded(
    x: Any,
    source: LabelSpace,
    target: Vectors,
    branch: str,
) -> Any:
    layout = one_hot_layout(source.max_labels, source.dim, target.dim)
    assert not isinstance(layout, str)
    mode, max_labels = layout
    dtype = np.dtype(np.float64) if target.dtype is None else target.dtype
    expand = partial(one_hot, sparse=target.sparse)
    return call_for(source, branch, expand, x, max_labels, mode, dtype)


def one_hot_layout(max_labels: int | None, k: int, dim: int) -> tuple[Mode, int] | str:
    """Return how `k` labels a row become `dim` columns, and how many labels there are.

    Returns
    -------
    (mode, max_labels) or str
        The reason, where they cannot.

    Examples
    --------
    >>> one_hot_layout(10, 2, 20), one_hot_layout(10, 2, 10), one_hot_layout(None, 1, 7)
    (('concatenate', 10), ('merge', 10), ('merge', 7))
    >>> one_hot_layout(10, 2, 30)
    '2 labels of 10 become 10 columns (merged) or 20 (side by side), not 30'
    """
    if max_labels is None:
        if k == 1 and dim > 1:
            return "merge", dim
        if k == 1:
            return "one column cannot distinguish labels; use an IndexSpace for the labels"
        ways = f"{dim} labels merged" + (f" or {dim // k} side by side" if dim % k == 0 else "")
        return f"max_labels is not known and {dim} columns fit several: {ways}; pass max_labels"
    if dim == max_labels:
        return "merge", max_labels
    if dim == k * max_labels:
        return "concatenate", max_labels
    merged = f"{max_labels} columns (merged) or {k * max_labels} (side by side)"
    return f"{k} labels of {max_labels} become {merged}, not {dim}"


def _labels_are_the_same(source: LabelSpace, target: LabelSpace, branch: str) -> None:
    same = source.max_labels == target.max_labels or None in (source.max_labels, target.max_labels)
    if source.dim != target.dim or not same:
        found = f"{source.dim} labels of {source.max_labels}"
        text = f"{found} are not {target.dim} labels of {target.max_labels} ({target})"
        fault(SpaceError, source, branch, text)


def _relabelled(x: Any, source: LabelSpace, target: LabelSpace, branch: str) -> Any:
    limit = source.max_labels if target.max_labels is None else target.max_labels
    call_for(source, branch, check_labels, x, limit)
    return _finish(x, source, target, branch)


def _widths_fit(source: VectorSequenceSpace, target: VectorSequenceSpace, branch: str) -> None:
    if source.dim != target.dim:
        text = f"rows hold {source.dim} values, {target} expects {target.dim}"
        fault(SpaceError, source, branch, text)


# ---------------------------------------------------------------- composites
def _components_fit(source: CompositeSpace, target: CompositeSpace, branch: str) -> None:
    found, wanted = len(source.components), len(target.components)
    if found != wanted:
        text = f"{found} components are not {wanted} components ({target})"
        fault(SpaceError, source, branch, text)
    for i, (part, other) in enumerate(zip(source.components, target.components, strict=True)):
        where = f"{branch}[{i}]"
        if isinstance(part, CompositeSpace) != isinstance(other, CompositeSpace):
            text = f"the trees differ, the target has {other} there"
            fault(SpaceTypeError, part, where, text)
        route_between(part, other, where)


def _by_component(
    batch: Batch, source: CompositeSpace, target: CompositeSpace, branch: str
) -> Batch:
    parts = zip(batch, source.components, target.components, strict=True)
    return tuple(convert(x, s, t, f"{branch}[{i}]") for i, (x, s, t) in enumerate(parts))


def _can_be_cut(source: VectorSpace, target: CompositeSpace, branch: str) -> None:
    try:
        _sizes_fit(source, target, branch)
    except UnsupportedSpaceError:
        text = f"no columns become a sequence, and {target} has one"
        fault(UnsupportedSpaceError, source, branch, text)
    for i, part in enumerate(target.components):
        if not isinstance(part, NullSpace):
            try:
                route_between(_columns_of(source, part), part, branch)
            except SpaceError as error:
                text = f"component [{i}] of the target cannot be cut from it: {error}"
                fault(type(error), source, branch, text)


def _columns_of(source: VectorSpace, part: Space) -> VectorSpace:
    return VectorSpace(part.get_total_dimension(), source.sparse, source.dtype)


def _cut(batch: Batch, source: VectorSpace, target: CompositeSpace, branch: str) -> Batch:
    rows = batch.tocsr() if source.sparse and not is_dask(batch) else batch
    parts: list[Batch] = []
    start = 0
    for part in target.components:
        if isinstance(part, NullSpace):
            parts.append(None)
            continue
        piece = _columns_of(source, part)
        columns = rows[:, start : start + piece.dim]
        parts.append(convert(columns, piece, part, branch))
        start += piece.dim
    return tuple(parts)


class _Leaf(NamedTuple):
    """An elementary part of a composite, and the columns that it becomes."""

    path: tuple[int, ...]
    where: str
    space: Space
    columns: VectorSpace


@lru_cache(maxsize=512)
def _columns(source: CompositeSpace, target: VectorSpace, branch: str) -> tuple[_Leaf, ...]:
    """Return what becomes the columns of the target, left to right."""
    leaves = list(_leaves(source))
    if not leaves:
        text = f"there is no component to take rows from, so nothing becomes {target}"
        fault(SpaceError, source, branch, text)
    widths: list[int | None] = []  # labels count side by side; one unknown is derived
    for path, leaf in leaves:
        if isinstance(leaf, SequenceSpace):
            where = branch + "".join(f"[{i}]" for i in path)
            fault(UnsupportedSpaceError, leaf, where, f"a sequence is not a column of {target}")
        if not isinstance(leaf, IndexSpace):
            widths.append(leaf.get_total_dimension())
        else:
            widths.append(None if leaf.max_labels is None else leaf.max_labels * leaf.dim)
    total = sum(width for width in widths if width is not None)
    unknown = widths.count(None)
    if unknown > 1 or (unknown == 0 and total != target.dim) or (unknown and target.dim <= total):
        besides = f" besides {unknown} of unknown max_labels" if unknown else ""
        text = f"the components make {total} columns{besides}, {target} expects {target.dim}"
        fault(SpaceError, source, branch, text)
    made = []
    for (path, leaf), width in zip(leaves, widths, strict=True):
        known = target.dim - total if width is None else width
        where = branch + "".join(f"[{i}]" for i in path)
        made.append(_Leaf(path, where, leaf, VectorSpace(known, target.sparse, target.dtype)))
    return tuple(made)


def _leaves(space: Space, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Space]]:
    if isinstance(space, CompositeSpace):
        for i, part in enumerate(space.components):
            yield from _leaves(part, (*path, i))
    elif not isinstance(space, NullSpace):
        yield path, space


def _can_be_joined(source: CompositeSpace, target: VectorSpace, branch: str) -> None:
    for leaf in _columns(source, target, branch):
        route_between(leaf.space, leaf.columns, leaf.where)


def _joined(batch: Batch, source: CompositeSpace, target: VectorSpace, branch: str) -> Batch:
    pieces = []
    for leaf in _columns(source, target, branch):
        part = batch
        for i in leaf.path:
            part = part[i]
        pieces.append(convert(part, leaf.space, leaf.columns, leaf.where))
    dtypes = [str(dtype_of(piece)) for piece in pieces]
    if len(set(dtypes)) > 1:
        text = f"the components have dtypes {tuple(dtypes)}; give the target one: {target}"
        fault(SpaceTypeError, source, branch, text)
    if any(map(has_names, pieces)):
        return named.joined(pieces, title(source, branch))
    if any(map(is_dask, pieces)):
        return lazy_concat(pieces)
    return side_by_side(pieces)


def side_by_side(pieces: list[Any]) -> Any:
    """Return rows, dense or sparse, joined along the features."""
    return hstack(pieces) if any(map(is_sparse, pieces)) else concat(pieces, axis=1)


# ---------------------------------------------------------------- dask batches
def _by_chunk(run: Callable[..., Any], x: Any, source: Any, target: Any, branch: str) -> Any:
    """Return the dask array of `run` applied to every chunk of rows of `x`."""
    axis, batch_axis = source.get_batch_axis(), target.get_batch_axis()
    whole = x.rechunk({i: -1 for i in range(x.ndim) if i != axis})
    empty = x._meta if is_sparse(x._meta) else x._meta.reshape(source.sizes(0))
    if is_sparse(empty):
        empty = type(empty)(source.sizes(0), dtype=x.dtype)
    made = run(empty, source, target, branch)
    meta = made if is_sparse(made) else made.reshape((0,) * made.ndim)
    # where values may be refused, each chunk gets its first row, for the message
    refuses = isinstance(source, LabelSpace) or narrows(dtype_of(x), target.dtype)
    lengths, starts = whole.chunks[axis], None
    if refuses and not any(n != n for n in lengths):
        first = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
        starts = da.from_array(first, chunks=1, name=f"first-row-{tokenize(lengths)}")
    sizes = target.sizes(0)
    inner = tuple(axis if i == axis else x.ndim + i for i in range(x.ndim))
    outer = tuple(axis if i == batch_axis else 3 * x.ndim + i for i in range(len(sizes)))
    return da.blockwise(
        partial(_run_chunk, run, source, target, branch, refuses),
        outer,
        whole,
        inner,
        starts,
        None if starts is None else (axis,),
        token="format_as",
        new_axes={label: sizes[i] for i, label in enumerate(outer) if label != axis},
        concatenate=None,  # other axes are one chunk each: nested lists of one, not a copy
        align_arrays=False,
        dtype=meta.dtype,
        meta=meta,
    )


def _run_chunk(
    run: Any, source: Any, target: Any, branch: str, refuses: bool, chunk: Any, start: Any
) -> Any:
    while isinstance(chunk, list):
        (chunk,) = chunk
    try:
        return run(chunk, source, target, branch)
    except SpaceError as error:
        text, row = str(error), error.row
        if not refuses:
            raise
        if start is None:
            text += "; the row is counted within its chunk, as lengths of chunks are unknown"
        elif row is not None:
            row, before = row + int(start[0]), row
            text = text.replace(f" in row {before} ", f" in row {row} ", 1)
        raise type(error)(text).at_row(row) from error


def lazy_concat(pieces: list[Any]) -> Any:
    """Return batches of (batch, feature), some of them dask's, joined along the features.

    Where lengths are not known, chunk meets chunk; what they hold is compared when computed.

    Raises
    ------
    SpaceError
        If lengths are not known and the pieces have different numbers of chunks.
    """
    if not any(n != n for piece in pieces for n in piece.shape):
        return da.concatenate(pieces, axis=1)
    whole = [da.asarray(piece).rechunk({1: -1}) for piece in pieces]
    counts = [piece.numblocks[0] for piece in whole]
    if len(set(counts)) > 1:
        raise SpaceError(
            f"the components have {counts} chunks of rows, of lengths not known; call "
            "compute_chunk_sizes() on them first"
        )
    return da.blockwise(
        _join_chunks,
        (0, 1),
        *(part for i, piece in enumerate(whole) for part in (piece, (0, 2 + i))),
        token="format_as",
        new_axes={1: sum(piece.shape[1] for piece in whole)},
        concatenate=True,
        align_arrays=False,
        meta=side_by_side([piece._meta for piece in whole]),
    )


def _join_chunks(*pieces: Any) -> Any:
    lengths = [piece.shape[0] for piece in pieces]
    if len(set(lengths)) > 1:
        raise SpaceError(f"the components differ in rows: {lengths} in one chunk")
    return side_by_side(list(pieces))


# ---------------------------------------------------------------- the matrix
def _same(batch: Batch, source: Any, target: Any, branch: str) -> Batch:
    return batch


def _refused(source: Space, target: Space, branch: str) -> None:
    kind = SpaceError
    if not isinstance(source, LabelSpace | SequenceSpace):
        kind = UnsupportedSpaceError
        if not isinstance(source, NullSpace) and not isinstance(target, NullSpace):
            with suppress(UnsupportedSpaceError):  # a sequence has no size
                _sizes_fit(source, target, branch)
    fault(kind, source, branch, f"no conversion leads to {target}")


def _chunked(run: Callable[..., Batch], *checks: Callable[[Any, Any, str], None]) -> Route:
    return Route(run, checks, partial(_by_chunk, run))


ROUTES |= {
    (VectorSpace, VectorSpace): _chunked(_recontained, _sizes_fit, _dtypes_fit),
    (VectorSpace, ConvNDSpace): _chunked(_unflattened, _sizes_fit, _is_dense, _dtypes_fit),
    (VectorSpace, CompositeSpace): Route(_cut, (_can_be_cut,)),
    (ConvNDSpace, VectorSpace): _chunked(_flattened, _sizes_fit, _dtypes_fit),
    (ConvNDSpace, ConvNDSpace): Route(_moved, (_sizes_fit, _shapes_fit, _dtypes_fit)),
    (IndexSpace, VectorSpace): _chunked(_expanded, _labels_fit),
    (IndexSpace, IndexSpace): _chunked(_relabelled, _labels_are_the_same),
    (IndexSequenceSpace, VectorSequenceSpace): _chunked(_expanded, _labels_fit),
    (IndexSequenceSpace, IndexSequenceSpace): _chunked(_relabelled, _labels_are_the_same),
    (VectorSequenceSpace, VectorSequenceSpace): _chunked(_finish, _widths_fit, _dtypes_fit),
    (CompositeSpace, CompositeSpace): Route(_by_component, (_components_fit,)),
    (CompositeSpace, VectorSpace): Route(_joined, (_can_be_joined,)),
    (NullSpace, NullSpace): Route(_same),
    (Space, Space): Route(_same, (_refused,)),
}
