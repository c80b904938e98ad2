"""The conversion matrix: which spaces lead to which, and how.

One table by the two kinds of space, at the end: the function that lays a batch out, and the
checks that a pair must pass, which raise what is wrong with it. Casting happens last, to the
target's dtype. Dask batches take the same routes: moves of axes stay dask transposes, all
else works chunk by chunk (:mod:`labeled.spaces.lazy`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from labeled.device import concat, dtype_of, permute_dims
from labeled.errors import SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.checks import Batch, fault, has_names, is_dask, named_batches, title
from labeled.spaces.composite import CompositeSpace, NullSpace
from labeled.spaces.conv import ConvNDSpace
from labeled.spaces.dtypes import cast, narrows, why_not_cast
from labeled.spaces.layout import flatten_rows, order_of, unflatten_rows
from labeled.spaces.lazy import by_chunk, lazy_concat
from labeled.spaces.onehot import Mode, check_labels, one_hot, one_hot_sparse
from labeled.spaces.register import ROUTES, Check, Route, Run, convert, route_between
from labeled.spaces.sparse import csr, hstack
from labeled.spaces.vector import (
    IndexSequenceSpace,
    IndexSpace,
    LabelRows,
    VectorSequenceSpace,
    VectorSpace,
)


def _chunkwise(run: Run) -> Run:
    def either(batch: Batch, source: Any, target: Any, branch: str) -> Any:
        if is_dask(batch):
            refusing = _may_refuse(batch, source, target)
            return by_chunk(run, batch, source, target, branch, counted=refusing)
        return run(batch, source, target, branch)

    return either


def _may_refuse(batch: Batch, source: Any, target: Any) -> bool:
    """Whether values of a lazy batch may not fit: labels, and integers that are narrowed."""
    if isinstance(source, LabelRows):
        return True
    return target.dtype is not None and narrows(dtype_of(batch), target.dtype)


def _finish(x: Any, source: Space, target: ArraySpace, branch: str, first_row: int = 0) -> Any:
    """Cast to the target's dtype: the last step of every route."""
    if target.dtype is None or dtype_of(x) == target.dtype:
        return x
    who = title(source, branch) + "for the target, "
    return cast(x, target.dtype, target.get_batch_axis(), who, first_row)


def _sizes_fit(source: Space, target: Space, branch: str) -> None:
    found, wanted = source.get_total_dimension(), target.get_total_dimension()
    if found != wanted:
        fault(SpaceError, source, branch, f"rows hold {found} values, {target} expects {wanted}")


def _dtypes_fit(source: ArraySpace, target: ArraySpace, branch: str) -> None:
    reason = None if source.dtype is None else why_not_cast(source.dtype, target.dtype)
    if reason is not None:
        fault(SpaceTypeError, source, branch, f"{reason} of {target}")


# ---------------------------------------------------------------- vectors and images
def _recontained(
    x: Any, source: VectorSpace, target: VectorSpace, branch: str, first_row: int = 0
) -> Any:
    if target.sparse and not source.sparse:
        x = csr(x)
    elif source.sparse and not target.sparse:
        x = x.toarray()
    return _finish(x, source, target, branch, first_row)


def _is_dense(source: VectorSpace, target: ConvNDSpace, branch: str) -> None:
    if source.sparse:
        text = f"sparse rows are not made into images of {target}; format them as a dense "
        fault(SpaceTypeError, source, branch, f"{text}VectorSpace first")


def _unflattened(
    x: Any, source: VectorSpace, target: ConvNDSpace, branch: str, first_row: int = 0
) -> Any:
    images = unflatten_rows(x, target.shape, target.channels, target.axes)
    return _finish(images, source, target, branch, first_row)


def _flattened(
    x: Any, source: ConvNDSpace, target: VectorSpace, branch: str, first_row: int = 0
) -> Any:
    rows = flatten_rows(x, source.axes)
    return _finish(csr(rows) if target.sparse else rows, source, target, branch, first_row)


def _shapes_fit(source: ConvNDSpace, target: ConvNDSpace, branch: str) -> None:
    if (source.shape, source.channels) != (target.shape, target.channels):
        found = f"shape {source.shape} with {source.channels} channels"
        wanted = f"shape {target.shape} with {target.channels}"
        text = f"images of {found} are not images of {wanted}, though both hold as many values"
        fault(SpaceError, source, branch, f"{text} ({target})")


def _moved(x: Any, source: ConvNDSpace, target: ConvNDSpace, branch: str) -> Any:
    y = x if source.axes == target.axes else permute_dims(x, order_of(source.axes, target.axes))
    if target.dtype is None or dtype_of(y) == target.dtype:
        return y
    if is_dask(y):
        return _chunkwise(_finish)(y, target.with_dtype(None), target, branch)
    return _finish(y, source, target, branch)


# ---------------------------------------------------------------- labels and sequences
Labels = IndexSpace | IndexSequenceSpace
Vectors = VectorSpace | VectorSequenceSpace


def _labels_fit(source: Labels, target: Vectors, branch: str) -> None:
    layout = one_hot_layout(source.max_labels, source.dim, target.dim)
    if isinstance(layout, str):
        fault(SpaceError, source, branch, f"{layout} ({target})")


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


def _labels_are_the_same(source: Labels, target: Labels, branch: str) -> None:
    same = source.max_labels == target.max_labels or None in (source.max_labels, target.max_labels)
    if source.dim != target.dim or not same:
        found = f"{source.dim} labels of {source.max_labels}"
        text = f"{found} are not {target.dim} labels of {target.max_labels} ({target})"
        fault(SpaceError, source, branch, text)


def _relabelled(x: Any, source: Labels, target: Labels, branch: str, first_row: int = 0) -> Any:
    limit = source.max_labels if target.max_labels is None else target.max_labels
    check_labels(x, limit, title(source, branch), first_row)
    return _finish(x, source, target, branch, first_row)


def _widths_fit(source: VectorSequenceSpace, target: VectorSequenceSpace, branch: str) -> None:
    if source.dim != target.dim:
        text = f"rows hold {source.dim} values, {target} expects {target.dim}"
        fault(SpaceError, source, branch, text)


# ---------------------------------------------------------------- composites and null
def _same(batch: Batch, source: Any, target: Any, branch: str) -> Batch:
    return batch


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

    where: str
    space: Space
    columns: VectorSpace


@lru_cache(maxsize=512)
def _columns(source: CompositeSpace, target: VectorSpace, branch: str) -> tuple[_Leaf, ...]:
    """Return what becomes the columns of the target, left to right."""
    leaves = list(_leaves(source, branch))
    if not leaves:
        text = f"there is no component to take rows from, so nothing becomes {target}"
        fault(SpaceError, source, branch, text)
    for where, leaf in leaves:
        if isinstance(leaf, VectorSequenceSpace | IndexSequenceSpace):
            fault(UnsupportedSpaceError, leaf, where, f"a sequence is not a column of {target}")
    widths = _widths(leaves, target)
    if isinstance(widths, str):
        fault(SpaceError, source, branch, widths)
    return tuple(
        _Leaf(where, leaf, VectorSpace(width, target.sparse, target.dtype))
        for (where, leaf), width in zip(leaves, widths, strict=True)
    )


def _can_be_joined(source: CompositeSpace, target: VectorSpace, branch: str) -> None:
    for leaf in _columns(source, target, branch):
        route_between(leaf.space, leaf.columns, leaf.where)


def _joined(batch: Batch, source: CompositeSpace, target: VectorSpace, branch: str) -> Batch:
    pieces = [
        convert(x, leaf.space, leaf.columns, leaf.where)
        for x, leaf in zip(_parts(batch, source), _columns(source, target, branch), strict=True)
    ]
    dtypes = [str(dtype_of(piece)) for piece in pieces]
    if len(set(dtypes)) > 1:
        text = f"the components have dtypes {tuple(dtypes)}; give the target one: {target}"
        fault(SpaceTypeError, source, branch, text)
    if any(has_names(piece) for piece in pieces):
        return named_batches().joined(pieces, title(source, branch))
    if any(is_dask(piece) for piece in pieces):
        return lazy_concat(pieces)
    return hstack(pieces) if target.sparse else concat(pieces, axis=1)


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


# ---------------------------------------------------------------- the matrix
def _refused(kind: type[SpaceError]) -> Check:
    def check(source: Space, target: Space, branch: str) -> None:
        fault(kind, source, branch, f"no conversion leads to {target}")

    return check


def _sizes_fit_if_known(source: Space, target: Space, branch: str) -> None:
    with suppress(UnsupportedSpaceError):  # sequences have no size
        _sizes_fit(source, target, branch)


def _by_chunk(run: Run, *checks: Check) -> Route:
    return Route(_chunkwise(run), checks)


def _whole(run: Run, *checks: Check) -> Route:
    return Route(run, checks)


ROUTES |= {
    (VectorSpace, VectorSpace): _by_chunk(_recontained, _sizes_fit, _dtypes_fit),
    (VectorSpace, ConvNDSpace): _by_chunk(_unflattened, _sizes_fit, _is_dense, _dtypes_fit),
    (VectorSpace, CompositeSpace): _whole(_cut, _can_be_cut),
    (ConvNDSpace, VectorSpace): _by_chunk(_flattened, _sizes_fit, _dtypes_fit),
    (ConvNDSpace, ConvNDSpace): _whole(_moved, _sizes_fit, _shapes_fit, _dtypes_fit),
    (IndexSpace, VectorSpace): _by_chunk(_expanded, _labels_fit),
    (IndexSpace, IndexSpace): _by_chunk(_relabelled, _labels_are_the_same),
    (IndexSpace, Space): _whole(_same, _refused(SpaceError)),
    (IndexSequenceSpace, VectorSequenceSpace): _by_chunk(_expanded, _labels_fit),
    (IndexSequenceSpace, IndexSequenceSpace): _by_chunk(_relabelled, _labels_are_the_same),
    (IndexSequenceSpace, Space): _whole(_same, _refused(SpaceError)),
    (VectorSequenceSpace, VectorSequenceSpace): _by_chunk(_finish, _widths_fit, _dtypes_fit),
    (VectorSequenceSpace, Space): _whole(_same, _refused(SpaceError)),
    (CompositeSpace, CompositeSpace): _whole(_by_component, _components_fit),
    (CompositeSpace, VectorSpace): _whole(_joined, _can_be_joined),
    (NullSpace, NullSpace): _whole(_same),
    (NullSpace, Space): _whole(_same, _refused(UnsupportedSpaceError)),
    (Space, NullSpace): _whole(_same, _refused(UnsupportedSpaceError)),
    (Space, Space): _whole(_same, _sizes_fit_if_known, _refused(UnsupportedSpaceError)),
}
