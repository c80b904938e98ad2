"""The conversion matrix: which spaces lead to which, and how.

Each planner below looks at a pair of spaces once and returns a route or the reason
for refusing; pairs without a planner are refused by size or kind in
:func:`labeled.spaces.base.plan_between`. Casting happens last, to the target's dtype.
Dask batches take the same routes: moves of axes stay dask transposes, all else works
chunk by chunk (:mod:`labeled.spaces.lazy`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from labeled.device import concat, dtype_of, permute_dims
from labeled.errors import SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.checks import Batch, has_names, is_dask, named_batches, title
from labeled.spaces.composite import CompositeSpace, NullSpace
from labeled.spaces.conv import ConvNDSpace
from labeled.spaces.dtypes import cast, narrows, why_not_cast
from labeled.spaces.layout import flatten_rows, order_of, unflatten_rows
from labeled.spaces.lazy import by_chunk, lazy_concat
from labeled.spaces.onehot import Mode, check_labels, one_hot, one_hot_sparse
from labeled.spaces.register import (
    Refusal,
    Route,
    convert,
    planner,
    refusal_of,
    size_mismatch,
)
from labeled.spaces.sequence import IndexSequenceSpace, VectorSequenceSpace
from labeled.spaces.sparse import csr, hstack
from labeled.spaces.vector import IndexSpace, LabelRows, VectorSpace


def _finish(x: Any, source: Space, target: ArraySpace, branch: str, first_row: int = 0) -> Any:
    """Cast to the target's dtype: the last step of every route."""
    if target.dtype is None or dtype_of(x) == target.dtype:
        return x
    who = title(source, branch) + "for the target, "
    return cast(x, target.dtype, target.get_batch_axis(), who, first_row)


def _dtype_refusal(source: ArraySpace, target: ArraySpace, branch: str) -> Refusal | None:
    if source.dtype is None:
        return None
    reason = why_not_cast(source.dtype, target.dtype)
    if reason is None:
        return None
    return Refusal(SpaceTypeError, f"{title(source, branch)}{reason} of {target}")


def _chunkwise(run: Any) -> Route:
    """Return a route that also takes dask batches, one chunk at a time."""

    def either(batch: Batch, source: Any, target: Any, branch: str) -> Any:
        if is_dask(batch):
            refusing = _may_refuse(batch, source, target)
            return by_chunk(run, batch, source, target, branch, counted=refusing)
        return run(batch, source, target, branch)

    return Route(either)


def _may_refuse(batch: Batch, source: Any, target: Any) -> bool:
    """Whether values of a lazy batch may not fit: labels, and integers that are narrowed."""
    if isinstance(source, LabelRows):
        return True
    return target.dtype is not None and narrows(dtype_of(batch), target.dtype)


# ---------------------------------------------------------------- vectors and images
@planner(VectorSpace, VectorSpace)
def _vector_to_vector(source: VectorSpace, target: VectorSpace, branch: str) -> Route | Refusal:
    refusal = size_mismatch(source, target, branch) or _dtype_refusal(source, target, branch)
    return refusal or _chunkwise(_recontained)


def _recontained(
    x: Any, source: VectorSpace, target: VectorSpace, branch: str, first_row: int = 0
) -> Any:
    if target.sparse and not source.sparse:
        x = csr(x)
    elif source.sparse and not target.sparse:
        x = x.toarray()
    return _finish(x, source, target, branch, first_row)


@planner(VectorSpace, ConvNDSpace)
def _vector_to_conv(source: VectorSpace, target: ConvNDSpace, branch: str) -> Route | Refusal:
    refusal = size_mismatch(source, target, branch)
    if refusal is None and source.sparse:
        text = f"sparse rows are not made into images of {target}; format them as a dense "
        refusal = Refusal(SpaceTypeError, f"{title(source, branch)}{text}VectorSpace first")
    return refusal or _dtype_refusal(source, target, branch) or _chunkwise(_unflattened)


def _unflattened(
    x: Any, source: VectorSpace, target: ConvNDSpace, branch: str, first_row: int = 0
) -> Any:
    images = unflatten_rows(x, target.shape, target.channels, target.axes)
    return _finish(images, source, target, branch, first_row)


@planner(ConvNDSpace, VectorSpace)
def _conv_to_vector(source: ConvNDSpace, target: VectorSpace, branch: str) -> Route | Refusal:
    refusal = size_mismatch(source, target, branch) or _dtype_refusal(source, target, branch)
    return refusal or _chunkwise(_flattened)


def _flattened(
    x: Any, source: ConvNDSpace, target: VectorSpace, branch: str, first_row: int = 0
) -> Any:
    rows = flatten_rows(x, source.axes)
    return _finish(csr(rows) if target.sparse else rows, source, target, branch, first_row)


@planner(ConvNDSpace, ConvNDSpace)
def _conv_to_conv(source: ConvNDSpace, target: ConvNDSpace, branch: str) -> Route | Refusal:
    refusal = size_mismatch(source, target, branch)
    if refusal is None and (source.shape, source.channels) != (target.shape, target.channels):
        found = f"shape {source.shape} with {source.channels} channels"
        wanted = f"shape {target.shape} with {target.channels}"
        text = f"images of {found} are not images of {wanted}, though both hold as many values"
        refusal = Refusal(SpaceError, f"{title(source, branch)}{text} ({target})")
    refusal = refusal or _dtype_refusal(source, target, branch)
    return refusal or _moving(order_of(source.axes, target.axes))


def _moving(order: tuple[int, ...]) -> Route:
    stays = order == tuple(range(len(order)))

    def moved(x: Any, source: ConvNDSpace, target: ConvNDSpace, branch: str) -> Any:
        y = x if stays else permute_dims(x, order)
        if target.dtype is None or dtype_of(y) == target.dtype:
            return y
        if is_dask(y):
            own = target.with_dtype(None)
            refusing = _may_refuse(y, own, target)
            return by_chunk(_finish, y, own, target, branch, counted=refusing)
        return _finish(y, source, target, branch)

    return Route(moved)


# ---------------------------------------------------------------- labels
Labels = IndexSpace | IndexSequenceSpace
Vectors = VectorSpace | VectorSequenceSpace


@planner(IndexSpace, VectorSpace)
@planner(IndexSequenceSpace, VectorSequenceSpace)
def _index_to_vector(source: Labels, target: Vectors, branch: str) -> Route | Refusal:
    layout = one_hot_layout(source.max_labels, source.dim, target.dim)
    if isinstance(layout, str):
        return Refusal(SpaceError, f"{title(source, branch)}{layout} ({target})")
    return _chunkwise(_expanded)


def _expanded(x: Any, source: Labels, target: Vectors, branch: str, first_row: int = 0) -> Any:
    layout = one_hot_layout(source.max_labels, source.dim, target.dim)
    assert not isinstance(layout, str)
    mode, max_labels = layout
    dtype = np.dtype(np.float64) if target.dtype is None else target.dtype
    sparse = isinstance(target, VectorSpace) and target.sparse
    expand = one_hot_sparse if sparse else one_hot
    return expand(x, max_labels, mode, dtype, title(source, branch), first_row)


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
            return "one column cannot tell labels apart; ask for the labels as an IndexSpace"
        ways = f"{dim} labels merged" + (f" or {dim // k} side by side" if dim % k == 0 else "")
        return f"max_labels is not known and {dim} columns do not tell: {ways}; give max_labels"
    if dim == max_labels:
        return "merge", max_labels
    if dim == k * max_labels:
        return "concatenate", max_labels
    merged = f"{max_labels} columns (merged) or {k * max_labels} (side by side)"
    return f"{k} labels of {max_labels} become {merged}, not {dim}"


@planner(IndexSpace, IndexSpace)
@planner(IndexSequenceSpace, IndexSequenceSpace)
def _index_to_index(source: Labels, target: Labels, branch: str) -> Route | Refusal:
    same = source.max_labels == target.max_labels or None in (source.max_labels, target.max_labels)
    if source.dim != target.dim or not same:
        found = f"{source.dim} labels of {source.max_labels}"
        text = f"{found} are not {target.dim} labels of {target.max_labels} ({target})"
        return Refusal(SpaceError, f"{title(source, branch)}{text}")
    return _chunkwise(_relabelled)


def _relabelled(x: Any, source: Labels, target: Labels, branch: str, first_row: int = 0) -> Any:
    limit = source.max_labels if target.max_labels is None else target.max_labels
    check_labels(x, limit, title(source, branch), first_row)
    return _finish(x, source, target, branch, first_row)


@planner(VectorSequenceSpace, VectorSequenceSpace)
def _sequence_to_sequence(
    source: VectorSequenceSpace, target: VectorSequenceSpace, branch: str
) -> Route | Refusal:
    if source.dim != target.dim:
        text = f"rows hold {source.dim} values, {target} expects {target.dim}"
        return Refusal(SpaceError, f"{title(source, branch)}{text}")
    return _dtype_refusal(source, target, branch) or _chunkwise(_finish)


def _labels_elsewhere(source: Any, target: Space, branch: str) -> Refusal:
    """Labels and sequences lead to their own kinds only."""
    return Refusal(SpaceError, f"{title(source, branch)}no conversion leads to {target}")


for _kind in (IndexSpace, IndexSequenceSpace, VectorSequenceSpace):
    planner(_kind, Space)(_labels_elsewhere)


# ---------------------------------------------------------------- composites and null
@planner(NullSpace, NullSpace)
def _null_to_null(source: NullSpace, target: NullSpace, branch: str) -> Route:
    return Route(_same)


def _same(batch: Batch, source: Any, target: Any, branch: str) -> Batch:
    return batch


@planner(Space, NullSpace)
@planner(NullSpace, Space)
def _null_elsewhere(source: Space, target: Space, branch: str) -> Refusal:
    text = f"{title(source, branch)}no conversion leads to {target}"
    return Refusal(UnsupportedSpaceError, text)


@planner(CompositeSpace, CompositeSpace)
def _composite_to_composite(
    source: CompositeSpace, target: CompositeSpace, branch: str
) -> Route | Refusal:
    found, wanted = len(source.components), len(target.components)
    if found != wanted:
        text = f"{found} components are not {wanted} components ({target})"
        return Refusal(SpaceError, f"{title(source, branch)}{text}")
    for i, (part, other) in enumerate(zip(source.components, target.components, strict=True)):
        where = f"{branch}[{i}]"
        if isinstance(part, CompositeSpace) != isinstance(other, CompositeSpace):
            text = f"{title(part, where)}the trees differ, the target has {other} there"
            return Refusal(SpaceTypeError, text)
        refusal = refusal_of(part, other, where)
        if refusal is not None:
            return refusal
    return Route(_by_component)


def _by_component(
    batch: Batch, source: CompositeSpace, target: CompositeSpace, branch: str
) -> Batch:
    parts = zip(batch, source.components, target.components, strict=True)
    return tuple(convert(x, s, t, f"{branch}[{i}]") for i, (x, s, t) in enumerate(parts))


@planner(VectorSpace, CompositeSpace)
def _vector_to_composite(
    source: VectorSpace, target: CompositeSpace, branch: str
) -> Route | Refusal:
    try:
        refusal = size_mismatch(source, target, branch)
    except UnsupportedSpaceError:  # a sequence among the components
        text = f"no columns become a sequence, and {target} has one"
        return Refusal(UnsupportedSpaceError, f"{title(source, branch)}{text}")
    if refusal is not None:
        return refusal
    for i, part in enumerate(target.components):
        if isinstance(part, NullSpace):
            continue
        refusal = refusal_of(_columns_of(source, part), part, branch)
        if refusal is not None:
            text = f"{title(source, branch)}component [{i}] of the target cannot be cut from it: "
            return Refusal(refusal.kind, text + refusal.reason)
    return Route(_cut)


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


@planner(CompositeSpace, VectorSpace)
def _composite_to_vector(
    source: CompositeSpace, target: VectorSpace, branch: str
) -> Route | Refusal:
    leaves = list(_leaves(source, branch))
    if not leaves:
        text = f"there is no component to take rows from, so nothing becomes {target}"
        return Refusal(SpaceError, f"{title(source, branch)}{text}")
    for where, leaf in leaves:
        if isinstance(leaf, VectorSequenceSpace | IndexSequenceSpace):
            text = f"{title(leaf, where)}a sequence is no column of {target}"
            return Refusal(UnsupportedSpaceError, text)
    widths = _widths(leaves, target)
    if isinstance(widths, str):
        return Refusal(SpaceError, f"{title(source, branch)}{widths}")
    for (where, leaf), width in zip(leaves, widths, strict=True):
        refusal = refusal_of(leaf, VectorSpace(width, target.sparse, target.dtype), where)
        if refusal is not None:
            return refusal

    def joined(batch: Batch, source: CompositeSpace, target: VectorSpace, branch: str) -> Batch:
        pieces = [
            convert(x, leaf, VectorSpace(width, target.sparse, target.dtype), where)
            for x, (where, leaf), width in zip(_parts(batch, source), leaves, widths, strict=True)
        ]
        return _join(pieces, source, target, branch)

    return Route(joined)


def _leaves(space: CompositeSpace, branch: str) -> Iterator[tuple[str, Space]]:
    for i, part in enumerate(space.components):
        where = f"{branch}[{i}]"
        if isinstance(part, CompositeSpace):
            yield from _leaves(part, where)
        elif not isinstance(part, NullSpace):
            yield where, part


def _parts(batch: Batch, space: CompositeSpace) -> Iterator[Batch]:
    for x, part in zip(batch, space.components, strict=True):
        if isinstance(part, CompositeSpace):
            yield from _parts(x, part)
        elif not isinstance(part, NullSpace):
            yield x


def _widths(leaves: list[tuple[str, Space]], target: VectorSpace) -> list[int] | str:
    """Return the columns each leaf becomes; labels count side by side, one unknown is derived."""
    widths: list[int | None] = []
    for _, leaf in leaves:
        if isinstance(leaf, IndexSpace):
            known = leaf.max_labels
            widths.append(None if known is None else known * leaf.dim)
        else:
            widths.append(leaf.get_total_dimension())
    total = sum(width for width in widths if width is not None)
    if widths.count(None) == 1 and target.dim > total:
        return [target.dim - total if width is None else width for width in widths]
    if None in widths or total != target.dim:
        unknown = f" besides {widths.count(None)} of unknown max_labels" if None in widths else ""
        return f"the components make {total} columns{unknown}, {target} expects {target.dim}"
    return [width for width in widths if width is not None]


def _join(pieces: list[Any], source: CompositeSpace, target: VectorSpace, branch: str) -> Any:
    dtypes = [str(dtype_of(piece)) for piece in pieces]
    if len(set(dtypes)) > 1:
        text = f"the components have dtypes {tuple(dtypes)}; give the target one: {target}"
        raise SpaceTypeError(f"{title(source, branch)}{text}")
    if any(has_names(piece) for piece in pieces):
        return named_batches().joined(pieces, title(source, branch))
    if any(is_dask(piece) for piece in pieces):
        return lazy_concat(pieces)
    return hstack(pieces) if target.sparse else concat(pieces, axis=1)
