"""The old conversion matrix: which space leads to which, and with which quirks.

One table of functions by the two classes; classes without an entry do not convert. What
moves numbers is native (axes, flattening, one-hot). What is old is what is *not* done:
results are not checked, integers are cut without a word, labels may wrap around.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from labeled.compat.errors import (
    OldNotImplementedError,
    OldTypeError,
    OldValueError,
)
from labeled.compat.pylearn2.format.target_format import one_hot
from labeled.compat.pylearn2.space import (
    CompositeSpace,
    Conv2DSpace,
    IndexSequenceSpace,
    IndexSpace,
    Space,
    VectorSequenceSpace,
    VectorSpace,
    cast,
    csr_matrix,
)
from labeled.device import concat
from labeled.spaces import VectorSpace as NativeVectors
from labeled.spaces.arrays import flatten_rows, hstack, is_dask, is_sparse, unflatten_rows
from labeled.spaces.routes import lazy_concat, one_hot_layout

Labels = IndexSpace | IndexSequenceSpace


def convert(batch: Any, source: Space, target: Space) -> Any:
    """Lay out a batch that was checked already, sizes too."""
    for kind in type(source).__mro__:
        for other in type(target).__mro__:
            route = ROUTES.get((kind, other))
            if route is not None:
                return route(batch, source, target)
    raise OldNotImplementedError(f"{source}: no conversion leads to {target}")


# ---------------------------------------------------------------- vectors and images
def _vector_to_vector(batch: Any, source: VectorSpace, target: VectorSpace) -> Any:
    if source.sparse and not target.sparse:
        batch = _matrix(batch)
    elif target.sparse and not source.sparse:
        batch = as_csr(batch)
    return cast(batch, target.dtype)


def _matrix(batch: Any) -> Any:
    """Return a sparse batch as a ``numpy.matrix``, which a cast makes an array again."""
    if is_dask(batch):
        return batch.map_blocks(lambda block: block.toarray(), dtype=batch.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(batch.toarray())


def as_csr(x: Any) -> Any:
    """Return a batch as csr, as a lazy one where it is lazy."""
    return x.map_blocks(csr_matrix, dtype=x.dtype) if is_dask(x) else csr_matrix(x)


def _vector_to_images(batch: Any, source: VectorSpace, target: Conv2DSpace) -> Any:
    if source.sparse:
        raise OldTypeError(f"{source}: sparse rows do not become images of {target}")
    if is_dask(batch):
        made = NativeVectors(source.dim).format_as(batch, target.native())
    else:
        channels = int(target.num_channels)
        made = unflatten_rows(batch, target.shape, channels, target.axes)
    return cast(made, target.dtype)


def _images_to_vector(batch: Any, source: Conv2DSpace, target: VectorSpace) -> Any:
    if is_dask(batch):
        rows = source.native().format_as(batch, NativeVectors(target.dim))
    else:
        rows = flatten_rows(batch, source.axes)
    return cast(as_csr(rows) if target.sparse else rows, target.dtype)


def _images_to_images(batch: Any, source: Conv2DSpace, target: Conv2DSpace) -> Any:
    return cast(Conv2DSpace.convert(batch, source.axes, target.axes), target.dtype)


# ---------------------------------------------------------------- labels and sequences
def _labels_to_vector(batch: Any, source: Labels, target: Any) -> Any:
    layout = one_hot_layout(source.max_labels, source.dim, target.dim)
    if isinstance(layout, str):
        raise OldValueError(f"{source}: {layout} ({target})")
    made = one_hot(batch, source.max_labels, layout[0], sparse=bool(target.sparse))
    return cast(made, target.dtype)


def _to_the_same(batch: Any, source: Any, target: Any) -> Any:
    """Cast labels or sequences, of as many labels and as long rows."""
    if source._key()[:-1] != target._key()[:-1]:
        raise OldValueError(f"{source} does not fit {target}: all but the dtype must be equal")
    return cast(batch, target.dtype)


def _sizes_differ(batch: Any, source: Space, target: Space) -> Any:
    raise OldValueError(f"{source}: no conversion leads to {target}")


# ---------------------------------------------------------------- composites
def _vector_to_composite(batch: Any, source: VectorSpace, target: CompositeSpace) -> Any:
    rows = batch.tocsr() if is_sparse(batch) else batch
    parts, start = [], 0
    for component in target.components:
        width = component.get_total_dimension()
        piece = VectorSpace(width, sparse=source.sparse, dtype=source.dtype)
        parts.append(piece._formatted(rows[:, start : start + width], component))
        start += width
    return tuple(parts)


def _composite_to_composite(batch: Any, source: CompositeSpace, target: CompositeSpace) -> Any:
    if len(source.components) != len(target.components):
        raise OldValueError(f"{source} and {target} have different numbers of components")
    parts = []
    for part, one, other in zip(batch, source.components, target.components, strict=True):
        if isinstance(one, CompositeSpace) != isinstance(other, CompositeSpace):
            raise OldTypeError(f"{source} and {target} are nested differently")
        parts.append(one._formatted(part, other))
    return tuple(parts)


def _composite_to_vector(batch: Any, source: CompositeSpace, target: VectorSpace) -> Any:
    pieces = []
    for part, component in zip(batch, source.components, strict=True):
        width = component.get_total_dimension()
        piece = VectorSpace(width, sparse=target.sparse, dtype=target.dtype)
        pieces.append(component._formatted(part, piece))
    if target.dtype is None and len({str(piece.dtype) for piece in pieces}) > 1:
        found = ", ".join(str(piece.dtype) for piece in pieces)
        raise OldTypeError(f"{source}: pieces of dtypes {found} are not joined; give {target} one")
    return cast(_joined(pieces, sparse=target.sparse), target.dtype)


def _joined(pieces: list[Any], *, sparse: bool) -> Any:
    if any(map(is_dask, pieces)):
        return lazy_concat(pieces)
    return csr_matrix(hstack(pieces)).tocoo() if sparse else concat(pieces, axis=1)


Route = Callable[[Any, Any, Any], Any]
ROUTES: dict[tuple[type[Space], type[Space]], Route] = {
    (VectorSpace, VectorSpace): _vector_to_vector,
    (VectorSpace, Conv2DSpace): _vector_to_images,
    (VectorSpace, CompositeSpace): _vector_to_composite,
    (Conv2DSpace, VectorSpace): _images_to_vector,
    (Conv2DSpace, Conv2DSpace): _images_to_images,
    (IndexSpace, VectorSpace): _labels_to_vector,
    (IndexSpace, IndexSpace): _to_the_same,
    (IndexSpace, Space): _sizes_differ,
    (VectorSequenceSpace, VectorSequenceSpace): _to_the_same,
    (VectorSequenceSpace, Space): _sizes_differ,
    (IndexSequenceSpace, VectorSequenceSpace): _labels_to_vector,
    (IndexSequenceSpace, IndexSequenceSpace): _to_the_same,
    (IndexSequenceSpace, Space): _sizes_differ,
    (CompositeSpace, CompositeSpace): _composite_to_composite,
    (CompositeSpace, VectorSpace): _composite_to_vector,
}
