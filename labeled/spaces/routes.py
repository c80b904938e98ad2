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

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np

from labeled.device import concat, dtype_of, reshape
from labeled.errors import SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces import arrays, base
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


def _finish(x: Any, source: base.Space, target: base.ArraySpace) -> Any:
    """Cast to the target's dtype: the last step of every route."""
    return arrays.cast(x, target.dtype, target.get_batch_axis())


def _fits(source: Any, target: Any) -> None:
    """Refuse rows of another size, and casts that would lose values."""
    if isinstance(source, SequenceSpace):
        found, wanted = source.dim, target.dim
    else:
        found, wanted = source.get_total_dimension(), target.get_total_dimension()
    if found != wanted:
        raise SpaceError(f"rows hold {found} values, {target} expects {wanted}")
    if isinstance(target, base.ArraySpace) and isinstance(source.dtype, np.dtype):
        reason = arrays.why_not_cast(source.dtype, target.dtype)
        if reason is not None:
            raise SpaceTypeError(f"{reason} of {target}")


# ---------------------------------------------------------------- vectors and images
def _recontained(x: Any, source: VectorSpace, target: VectorSpace) -> Any:
    dense = x.toarray() if source.sparse and not target.sparse else x
    rows = _finish(dense, source, target)
    return arrays.csr(rows) if target.sparse and not source.sparse else rows


def _is_dense(source: VectorSpace, target: ConvNDSpace) -> None:
    if source.sparse:
        raise SpaceTypeError(f"sparse rows do not become {target}; make a dense VectorSpace first")


def _unflattened(x: Any, source: VectorSpace, target: ConvNDSpace) -> Any:
    images = reshape(x, (x.shape[0], *target.shape, target.channels))
    moved = arrays.move_axes(images, arrays.canonical_axes(len(target.shape)), target.axes)
    return _finish(moved, source, target)


def _flattened(x: Any, source: ConvNDSpace, target: VectorSpace) -> Any:
    moved = arrays.move_axes(x, source.axes, arrays.canonical_axes(len(source.shape)))
    rows = _finish(reshape(moved, (moved.shape[0], source.get_total_dimension())), source, target)
    return arrays.csr(rows) if target.sparse else rows


def _shapes_fit(source: ConvNDSpace, target: ConvNDSpace) -> None:
    if (source.shape, source.channels) != (target.shape, target.channels):
        found = f"images of {source.shape} with {source.channels} channels are not images of "
        raise SpaceError(f"{found}{target}, though both hold as many values")


def _moved(x: Any, source: ConvNDSpace, target: ConvNDSpace) -> Any:
    moved = arrays.move_axes(x, source.axes, target.axes)
    if arrays.is_dask(moved) and target.dtype is not None and moved.dtype != target.dtype:
        return _by_chunk(_finish, moved, target.with_dtype(None), target)
    return _finish(moved, source, target)


# ---------------------------------------------------------------- labels and sequences
Vectors = VectorSpace | VectorSequenceSpace


def _expanded(x: Any, source: LabelSpace, target: Vectors) -> Any:
    mode, max_labels = one_hot_layout(source, target)
    dtype = np.dtype(np.float64 if target.dtype is None else target.dtype)
    return arrays.one_hot(x, max_labels, mode, dtype, sparse=target.sparse)


def one_hot_layout(source: Any, target: Any) -> tuple[arrays.Mode, int]:
    """Return how labels become the columns of `target`, and how many labels there are.

    Raises
    ------
    SpaceError
        If they cannot; gives the reason.

    Examples
    --------
    >>> one_hot_layout(IndexSpace(10, 2), VectorSpace(20))
    ('concatenate', 10)
    >>> one_hot_layout(IndexSpace(10, 2), VectorSpace(10))
    ('merge', 10)
    >>> one_hot_layout(IndexSpace(10, 2), VectorSpace(30))
    Traceback (most recent call last):
    labeled.errors.SpaceError: 2 labels of 10 become 10 columns (merged) or 20 (side by side), not
    30 (VectorSpace(dim=30))
    """
    known, k, dim = source.max_labels, source.dim, target.dim
    if known is None and k > 1:
        wrong = f"max_labels is not known, and {k} labels become {dim} columns; pass max_labels"
    elif known is None and dim < 2:
        wrong = "one column cannot distinguish labels; use an IndexSpace for the labels"
    elif known in (None, dim):
        return "merge", dim
    elif dim == k * known:
        return "concatenate", known
    else:
        both = f"{known} columns (merged) or {k * known} (side by side)"
        wrong = f"{k} labels of {known} become {both}, not {dim}"
    raise SpaceError(f"{wrong} ({target})")


def _labels_are_the_same(source: LabelSpace, target: LabelSpace) -> None:
    same = source.max_labels == target.max_labels or None in (source.max_labels, target.max_labels)
    if source.dim != target.dim or not same:
        wanted = f"{target.dim} labels of {target.max_labels} ({target})"
        raise SpaceError(f"{source.dim} labels of {source.max_labels} are not {wanted}")


def _relabelled(x: Any, source: LabelSpace, target: LabelSpace) -> Any:
    arrays.check_labels(x, source.max_labels if target.max_labels is None else target.max_labels)
    return _finish(x, source, target)


# ---------------------------------------------------------------- composites
def _components_fit(source: CompositeSpace, target: CompositeSpace) -> None:
    found, wanted = len(source.components), len(target.components)
    if found != wanted:
        raise SpaceError(f"{found} components are not {wanted} components ({target})")
    for i, (part, other) in enumerate(zip(source.components, target.components, strict=True)):
        if isinstance(part, CompositeSpace) != isinstance(other, CompositeSpace):
            raise SpaceTypeError(f"component [{i}], {part}: the trees differ, {other} is wanted")
        base.call_at(i, base.route_between, part, other)


def _by_component(batch: base.Batch, source: CompositeSpace, target: CompositeSpace) -> base.Batch:
    parts = zip(batch, source.components, target.components, strict=True)
    return tuple(base.call_at(i, base.convert, *part) for i, part in enumerate(parts))


def _can_be_cut(source: VectorSpace, target: CompositeSpace) -> None:
    _fits(source, target)
    for i, part in enumerate(target.components):
        if not isinstance(part, NullSpace):
            base.call_at(i, base.route_between, _piece_of(source, part), part)


def _piece_of(source: VectorSpace, part: base.Space) -> VectorSpace:
    return VectorSpace(part.get_total_dimension(), source.sparse, source.dtype)


def _cut(batch: base.Batch, source: VectorSpace, target: CompositeSpace) -> base.Batch:
    rows = batch.tocsr() if source.sparse and not arrays.is_dask(batch) else batch
    parts: list[base.Batch] = []
    start = 0
    for part in target.components:
        piece = _piece_of(source, part)
        cut = rows[:, start : start + piece.dim]
        parts.append(None if isinstance(part, NullSpace) else base.convert(cut, piece, part))
        start += piece.dim
    return tuple(parts)


def _width(space: base.Space) -> int:
    """Return how many columns a space becomes; labels count side by side."""
    if isinstance(space, CompositeSpace):
        return sum(base.call_at(i, _width, part) for i, part in enumerate(space.components))
    width = space.get_total_dimension()
    if not isinstance(space, IndexSpace):
        return width
    if space.max_labels is None:
        raise SpaceError(f"{space}: max_labels is not known; pass it")
    return width * space.max_labels


@lru_cache(maxsize=512)
def _columns(source: CompositeSpace, target: VectorSpace) -> dict[int, VectorSpace]:
    """Return the columns that each component with data becomes, once they fill the target."""
    widths = {i: base.call_at(i, _width, part) for i, part in enumerate(source.components)}
    columns = {i: VectorSpace(n, target.sparse, target.dtype) for i, n in widths.items() if n}
    if not columns:
        raise SpaceError(f"there is no component to take rows from, so nothing becomes {target}")
    width = sum(widths.values())
    if width != target.dim:
        raise SpaceError(f"the components make {width} columns, {target} expects {target.dim}")
    for i, one in columns.items():
        base.call_at(i, base.route_between, source.components[i], one)
    return columns


def _joined(batch: base.Batch, source: CompositeSpace, target: VectorSpace) -> base.Batch:
    columns = _columns(source, target)
    pieces = [base.convert(batch[i], source.components[i], one) for i, one in columns.items()]
    dtypes = tuple(str(dtype_of(piece)) for piece in pieces)
    if len(set(dtypes)) > 1:
        raise SpaceTypeError(f"the components have dtypes {dtypes}; give the target one: {target}")
    return side_by_side(pieces)


def side_by_side(pieces: list[Any]) -> Any:
    """Return rows, dense, sparse or lazy, joined along the features."""
    if any(map(arrays.is_dask, pieces)):
        from dask.array import concatenate  # is imported by now

        return concatenate(pieces, axis=1, allow_unknown_chunksizes=True)
    return arrays.hstack(pieces) if any(map(arrays.is_sparse, pieces)) else concat(pieces, axis=1)


# ---------------------------------------------------------------- dask batches
def _by_chunk(run: Callable[..., Any], x: Any, source: Any, target: Any) -> Any:
    """Return the dask array of `run` applied to every chunk of rows of `x`."""
    from dask.array import blockwise

    axis, batch_axis = source.get_batch_axis(), target.get_batch_axis()
    whole = x.rechunk({i: -1 for i in range(x.ndim) if i != axis})
    empty, none = x._meta, source.sizes(0)
    empty = type(empty)(none, dtype=x.dtype) if arrays.is_sparse(empty) else empty.reshape(none)
    made = run(empty, source, target)
    meta = made if arrays.is_sparse(made) else made.reshape((0,) * made.ndim)
    sizes = target.sizes(0)
    inner = tuple(axis if i == axis else x.ndim + i for i in range(x.ndim))
    outer = tuple(axis if i == batch_axis else 3 * x.ndim + i for i in range(len(sizes)))
    return blockwise(
        partial(_run_chunk, run, source, target),
        outer,
        whole,
        inner,
        token="format_as",
        new_axes={label: sizes[i] for i, label in enumerate(outer) if label != axis},
        concatenate=None,  # other axes are one chunk each: nested lists of one, not a copy
        align_arrays=False,
        dtype=meta.dtype,
        meta=meta,
    )


def _run_chunk(run: Callable[..., Any], source: Any, target: Any, chunk: Any) -> Any:
    while isinstance(chunk, list):
        (chunk,) = chunk
    try:
        return base.call_for(source, run, chunk, source, target)
    except SpaceError as error:
        text = f"{error}; the row is counted within its chunk of {chunk.shape}"
        raise type(error)(text).at_row(error.row) from error


# ---------------------------------------------------------------- the matrix
def _same(batch: base.Batch, source: Any, target: Any) -> base.Batch:
    return batch


def _refused(source: base.Space, target: base.Space) -> None:
    kind = SpaceError
    if not isinstance(source, LabelSpace | SequenceSpace):
        kind = UnsupportedSpaceError
        if not isinstance(source, NullSpace) and not isinstance(target, NullSpace):
            with suppress(UnsupportedSpaceError):  # a sequence has no size
                _fits(source, target)
    raise kind(f"no conversion leads to {target}")


def _chunked(run: Callable[..., base.Batch], *checks: Callable[[Any, Any], object]) -> base.Route:
    return base.Route(run, checks, partial(_by_chunk, run))


base.ROUTES |= {
    (VectorSpace, VectorSpace): _chunked(_recontained, _fits),
    (VectorSpace, ConvNDSpace): _chunked(_unflattened, _fits, _is_dense),
    (VectorSpace, CompositeSpace): base.Route(_cut, (_can_be_cut,)),
    (ConvNDSpace, VectorSpace): _chunked(_flattened, _fits),
    (ConvNDSpace, ConvNDSpace): base.Route(_moved, (_fits, _shapes_fit)),
    (IndexSpace, VectorSpace): _chunked(_expanded, one_hot_layout),
    (IndexSpace, IndexSpace): _chunked(_relabelled, _labels_are_the_same),
    (IndexSequenceSpace, VectorSequenceSpace): _chunked(_expanded, one_hot_layout),
    (IndexSequenceSpace, IndexSequenceSpace): _chunked(_relabelled, _labels_are_the_same),
    (VectorSequenceSpace, VectorSequenceSpace): _chunked(_finish, _fits),
    (CompositeSpace, CompositeSpace): base.Route(_by_component, (_components_fit,)),
    (CompositeSpace, VectorSpace): base.Route(_joined, (_columns,)),
    (NullSpace, NullSpace): base.Route(_same),
    (base.Space, base.Space): base.Route(_same, (_refused,)),
}
