"""The old spaces: vectors, labels, sequences, images; several at once, and none.

Who converts into whom says the table at the end. Label values are not compared with ``max_labels``
here; conversions do that, each in its own way.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from labeled.compat.errors import check, old, require
from labeled.compat.pylearn2.base import DTYPES as DTYPES
from labeled.compat.pylearn2.base import ROUTES, SimplyTypedSpace, Space, cast
from labeled.compat.pylearn2.base import is_numeric_batch as is_numeric_batch
from labeled.compat.pylearn2.base import is_symbolic_batch as is_symbolic_batch
from labeled.compat.pylearn2.utils import OneHotFormatter, csr_matrix
from labeled.spaces import ConvNDSpace as NativeImages
from labeled.spaces import VectorSpace as NativeVectors
from labeled.spaces.arrays import is_dask, is_sparse, move_axes
from labeled.spaces.base import convert as native_convert
from labeled.spaces.routes import one_hot_layout, side_by_side

Axes = tuple[str | int, ...]


class VectorSpace(SimplyTypedSpace):
    """Batches of rows of numbers, (batch, dim).

    Parameters
    ----------
    dim : int
    sparse : bool
        Whether batches are scipy sparse matrices.
    dtype : None, 'floatX', dtype instance or str
    """

    _fields = ("dim", "sparse", "dtype")

    def __init__(self, dim: int, sparse: bool = False, dtype: Any = "floatX", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.dim, self.sparse = dim, sparse


class _Labels(SimplyTypedSpace):
    """Rows of `dim` labels below `max_labels`."""

    _fields = ("max_labels", "dim", "dtype")
    _compares_sizes = False

    def __init__(self, max_labels: int, dim: int, dtype: Any = "int64", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.max_labels, self.dim = max_labels, dim

    def _clean_dtype_arg(self, dtype: Any) -> str | None:
        wrong = f"{type(self).__name__}: dtype must be a str, of integers; found {dtype!r}"
        check(isinstance(dtype, str), wrong, TypeError)
        check("int" in dtype, wrong)
        return super()._clean_dtype_arg(dtype)


class IndexSpace(_Labels):
    """Batches of rows of labels, (batch, dim). Its total dimension counts indices."""

    def get_origin(self) -> Any:
        return np.zeros((1, self.dim))


class _Sequence(SimplyTypedSpace):
    """One sequence, of any length. Not hashable."""

    _compares_sizes = False

    get_total_dimension = get_origin = get_origin_batch = Space._missing

    def _batch_size(self, batch: Any) -> int:
        return 1

    __hash__ = None  # type: ignore[assignment]  # defining == alone took it away


class VectorSequenceSpace(_Sequence):
    """One sequence of rows of numbers, (time, dim)."""

    _fields = ("dim", "dtype")

    def __init__(self, dim: int, dtype: Any = "floatX", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.dim = dim


class IndexSequenceSpace(_Sequence, _Labels):
    """One sequence of rows of labels, (time, dim)."""


class Conv2DSpace(SimplyTypedSpace):
    """Batches of images, axes in any order; what `axes` holds is not checked.

    Parameters
    ----------
    shape : (rows, columns)
    channels, num_channels : int
        Exactly one of the two.
    axes : sequence of four, optional
        ``('b', 0, 1, 'c')`` if not given.
    dtype : None, 'floatX', dtype instance or str
    """

    default_axes: Axes = ("b", 0, 1, "c")
    _fields = ("shape", "num_channels", "axes", "dtype")

    def __init__(
        self,
        shape: Sequence[int],
        channels: int | None = None,
        num_channels: int | None = None,
        axes: Sequence[str | int] | None = None,
        dtype: Any = "floatX",
        **kw: Any,
    ) -> None:
        super().__init__(dtype, **kw)
        require((channels is None) != (num_channels is None), "give channels or num_channels")
        count = num_channels if channels is None else channels
        check(hasattr(shape, "__len__") and len(shape) == 2, f"{shape!r} is not (rows, columns)")
        for n in (*shape, count):
            require(isinstance(n, int | np.integer) and n > 0, f"lengths are above 0, not {n!r}")
        self.shape = tuple(map(int, shape))  # lengths of few bits would overflow when multiplied
        self.num_channels = int(count)  # type: ignore[arg-type]  # one of the two is given
        self.axes: Axes = self.default_axes if axes is None else tuple(axes)
        require(len(self.axes) == 4, f"Conv2DSpace: axes must be four, found {self.axes}")

    def sizes(self, batch_size: int) -> tuple[int, ...]:
        """Return the shape of a batch."""
        length = {"b": batch_size, "c": self.num_channels, 0: self.shape[0], 1: self.shape[1]}
        return tuple(length[axis] for axis in self.axes)

    def get_batch_axis(self) -> int:
        return self.axes.index("b")

    def get_origin(self) -> Any:
        return super().get_origin().astype(self._zeros_dtype(None))

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        whole = isinstance(batch_size, int | np.integer)
        check(whole, f"{self}: a batch size is an integer, found {batch_size!r}", TypeError)
        require(batch_size > 0, f"{self}: a batch size is above 0, found {batch_size}")
        return super().get_origin_batch(int(batch_size), dtype)

    def native(self) -> NativeImages:
        """The native space of the same images, which keeps any dtype."""
        return NativeImages(self.shape, self.num_channels, axes=self.axes)

    @staticmethod
    def convert(tensor: Any, src_axes: Sequence[str | int], dst_axes: Sequence[str | int]) -> Any:
        """Return `tensor` with its axes in another order; itself where that is the same."""
        src, dst = tuple(src_axes), tuple(dst_axes)
        require(len(src) == tensor.ndim, f"{len(src)} axes {src} for {tensor.ndim} of the array")
        require(set(src) == set(dst), f"axes {dst} are not an order of {src}")
        return move_axes(tensor, src, dst)

    convert_numpy = convert


class NullSpace(Space):
    """The space of no data: its only batch is None. It has no total dimension."""

    def _clean_dtype_arg(self, dtype: Any) -> None:
        check(dtype is None, f"a NullSpace has no dtype such as {dtype!r}", TypeError)

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        return None

    def _check(self, batch: Any, numeric: bool) -> None:
        check(batch is None, f"NullSpace: expected None, found {type(batch).__name__}", TypeError)

    def _batch_size(self, batch: Any) -> int:
        return 0


class CompositeSpace(Space):
    """Tuples of batches, one per component.

    Parameters
    ----------
    components : list or tuple of Space
    """

    def __init__(self, components: Sequence[Space], **callbacks: Any) -> None:
        super().__init__(**callbacks)
        require(isinstance(components, list | tuple), f"components are a list, not {components!r}")
        for component in components:
            check(isinstance(component, Space), f"{component!r} is not a space", TypeError)
        self.components = list(components)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.components))})"

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.components)

    @property
    def dtype(self) -> Any:
        return tuple(component.dtype for component in self.components)

    @dtype.setter
    def dtype(self, value: Any) -> None:
        parts, values = self.components, value
        if value is None or isinstance(value, str):
            parts = [part for part in parts if not isinstance(part, NullSpace)]
            values = (value,) * len(parts)
        if isinstance(values, tuple):  # anything else was ignored without a word
            check(len(values) == len(parts), f"{self}: {len(values)} dtypes for {len(parts)} parts")
            for part, one in zip(parts, values, strict=True):
                part.dtype = one

    def get_total_dimension(self) -> int:
        return sum(component.get_total_dimension() for component in self.components)

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        return tuple(part.get_origin_batch(batch_size, one) for part, one in self._each(dtype))

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        return tuple(part._lazy_batch(one, batch_size) for part, one in self._each(dtype))

    def _each(self, dtype: Any) -> list[tuple[Space, Any]]:
        """Return each component with its dtype."""
        n = len(self.components)
        if dtype is None or isinstance(dtype, str):
            dtype = (dtype,) * n
        fits = isinstance(dtype, tuple) and len(dtype) == n
        check(fits, f"dtype must be None, a str or a tuple of {n}; found {dtype!r}", TypeError)
        return list(zip(self.components, dtype, strict=True))

    # ------------------------------------------------------------ parts
    def restrict(self, subset: Sequence[int]) -> Space:
        """Return the space of some components, in that order; the bare one for one."""
        chosen = [self.components[i] for i in subset]
        return chosen[0] if len(chosen) == 1 else CompositeSpace(chosen)

    def restrict_batch(self, batch: Any, subset: Sequence[int]) -> Any:
        """Return the parts of a lazy `batch` that belong to :meth:`restrict`."""
        self._checked(batch, numeric=False)
        chosen = tuple(batch[i] for i in subset)
        return chosen[0] if len(chosen) == 1 else chosen

    def _check(self, batch: Any, numeric: bool) -> None:
        n = len(self.components)
        if not isinstance(batch, tuple):
            raise old(TypeError, f"{self}: expected a tuple, found {type(batch).__name__}")
        if len(batch) != n:
            raise old(ValueError, f"{self}: expected {n} batches, found {len(batch)}")
        for component, part in zip(self.components, batch, strict=True):
            component._checked(part, numeric=numeric)

    def _nested(self, leaves: Iterator[Any]) -> Any:
        return tuple(component._nested(leaves) for component in self.components)

    def _batch_size(self, batch: Any) -> int:
        pairs = zip(self.components, batch, strict=True)
        counts = [(component, component._batch_size(part)) for component, part in pairs]
        sizes = {n for component, n in counts if not _without_data(component)}
        empty = any(_without_data(component) for component, _ in counts)
        require(not (empty and sizes), f"{self}: a mixture of data and of none has no batch size")
        check(len(sizes) < 2, f"{self}: the components hold {sizes} examples")
        return sizes.pop() if sizes else 0


def _without_data(space: Space) -> bool:
    if isinstance(space, CompositeSpace):
        return all(map(_without_data, space.components))
    return isinstance(space, NullSpace)


# ---------------------------------------------------------------- the old conversion matrix
# What moves numbers is native. What is old is what is not done: results are not checked, integers
# are cut without a word, labels may wrap around.
def _vector_to_vector(batch: Any, source: VectorSpace, target: VectorSpace) -> Any:
    if source.sparse and not target.sparse:
        batch = _matrix(batch)
    elif target.sparse and not source.sparse:
        batch = _as_csr(batch)
    return cast(batch, target.dtype)


def _matrix(batch: Any) -> Any:
    """Return a sparse batch as a ``numpy.matrix``, which a cast makes an array again."""
    if is_dask(batch):
        return batch.map_blocks(lambda block: block.toarray(), dtype=batch.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(batch.toarray())


def _as_csr(x: Any) -> Any:
    """Return a batch as csr, as a lazy one where it is lazy."""
    return x.map_blocks(csr_matrix, dtype=x.dtype) if is_dask(x) else csr_matrix(x)


def _vector_to_images(batch: Any, source: VectorSpace, target: Conv2DSpace) -> Any:
    check(not source.sparse, f"{source}: sparse rows do not become images of {target}", TypeError)
    made = native_convert(batch, NativeVectors(int(source.dim)), target.native())
    return cast(made, target.dtype)


def _images_to_vector(batch: Any, source: Conv2DSpace, target: VectorSpace) -> Any:
    rows = native_convert(batch, source.native(), NativeVectors(int(target.dim)))
    return cast(_as_csr(rows) if target.sparse else rows, target.dtype)


def _images_to_images(batch: Any, source: Conv2DSpace, target: Conv2DSpace) -> Any:
    return cast(Conv2DSpace.convert(batch, source.axes, target.axes), target.dtype)


# ---------------------------------------------------------------- labels and sequences
def _labels_to_vector(batch: Any, source: _Labels, target: Any) -> Any:
    mode, _ = one_hot_layout(source, target)
    made = OneHotFormatter(source.max_labels).format(batch, mode, bool(target.sparse))
    return cast(made, target.dtype)


def _to_the_same(batch: Any, source: Any, target: Any) -> Any:
    """Cast labels or sequences, of as many labels and as long rows."""
    check(source._key()[:-1] == target._key()[:-1], f"{source} differs from {target} beyond dtype")
    return cast(batch, target.dtype)


# ---------------------------------------------------------------- composites
def _vector_to_composite(batch: Any, source: VectorSpace, target: CompositeSpace) -> Any:
    rows = batch.tocsr() if is_sparse(batch) else batch
    parts, start = [], 0
    for component in target.components:
        width = component.get_total_dimension()
        piece = VectorSpace(width, source.sparse, source.dtype)
        parts.append(piece._formatted(rows[:, start : start + width], component))
        start += width
    return tuple(parts)


def _composite_to_composite(batch: Any, source: CompositeSpace, target: CompositeSpace) -> Any:
    wrong, parts = f"{source} and {target} are nested differently", []
    check(len(source.components) == len(target.components), wrong)
    for part, one, other in zip(batch, source.components, target.components, strict=True):
        alike = isinstance(one, CompositeSpace) == isinstance(other, CompositeSpace)
        check(alike, wrong, TypeError)
        parts.append(one._formatted(part, other))
    return tuple(parts)


def _composite_to_vector(batch: Any, source: CompositeSpace, target: VectorSpace) -> Any:
    pieces = []
    for part, component in zip(batch, source.components, strict=True):
        piece = VectorSpace(component.get_total_dimension(), target.sparse, target.dtype)
        pieces.append(component._formatted(part, piece))
    dtypes = {str(piece.dtype) for piece in pieces}
    alike = target.dtype is not None or len(dtypes) < 2
    check(alike, f"pieces of dtypes {dtypes} are not joined; give {target} one", TypeError)
    rows = side_by_side(pieces)
    if target.sparse and not is_dask(rows):
        rows = csr_matrix(rows).tocoo()
    return cast(rows, target.dtype)


ROUTES |= {
    (VectorSpace, VectorSpace): _vector_to_vector,
    (VectorSpace, Conv2DSpace): _vector_to_images,
    (VectorSpace, CompositeSpace): _vector_to_composite,
    (Conv2DSpace, VectorSpace): _images_to_vector,
    (Conv2DSpace, Conv2DSpace): _images_to_images,
    (IndexSpace, VectorSpace): _labels_to_vector,
    (IndexSpace, IndexSpace): _to_the_same,
    (VectorSequenceSpace, VectorSequenceSpace): _to_the_same,
    (IndexSequenceSpace, VectorSequenceSpace): _labels_to_vector,
    (IndexSequenceSpace, IndexSequenceSpace): _to_the_same,
    (CompositeSpace, CompositeSpace): _composite_to_composite,
    (CompositeSpace, VectorSpace): _composite_to_vector,
}
