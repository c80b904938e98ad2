"""The old spaces of one array: vectors, labels, sequences, images.

What a batch must look like, and what zeros of the space look like. Label values are not
compared with ``max_labels`` here; conversions do that, each in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.compat.pylearn2.errors import OldTypeError, OldValueError, require
from labeled.compat.pylearn2.space.base import SimplyTypedSpace, Space
from labeled.compat.pylearn2.sparse import csr_matrix
from labeled.spaces import ConvNDSpace as NativeImages
from labeled.spaces import VectorSpace as NativeVectors
from labeled.spaces.arrays import lazy_zeros
from labeled.spaces.checks import is_dask
from labeled.spaces.layout import move_axes
from labeled.spaces.sparse import is_sparse

Axes = tuple[str | int, ...]


class _Rows(SimplyTypedSpace):
    """Batches with two axes, the second of length `dim`."""

    dim: int
    sparse = False

    def _check_array(self, batch: Any) -> None:
        sparse = is_sparse(batch._meta if is_dask(batch) else batch)
        if sparse != self.sparse:
            wanted, found = ("sparse", "dense") if self.sparse else ("dense", "sparse")
            raise OldTypeError(f"{self}: expected a {wanted} batch, found a {found} one")
        if batch.ndim != 2:
            raise OldValueError(f"{self}: expected 2 axes, found {batch.ndim}: {batch.shape}")
        if batch.shape[1] != self.dim and batch.shape[1] == batch.shape[1]:
            raise OldValueError(f"{self}: expected rows of {self.dim}, found {batch.shape[1]}")

    def make_theano_batch(
        self, name: str | None = None, dtype: Any = None, batch_size: int | None = None
    ) -> Any:
        zeros = lazy_zeros(NativeVectors(self.dim).sizes, batch_size, 0, self._zeros_dtype(dtype))
        return zeros.map_blocks(csr_matrix, dtype=zeros.dtype) if self.sparse else zeros


class VectorSpace(_Rows):
    """Batches of rows of numbers, (batch, dim).

    Parameters
    ----------
    dim : int
    sparse : bool
        Whether batches are scipy sparse matrices.
    dtype : None, 'floatX', dtype instance or str
    """

    def __init__(self, dim: int, sparse: bool = False, dtype: Any = "floatX", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.dim = dim
        self.sparse = sparse

    def __str__(self) -> str:
        sparse = ", sparse" if self.sparse else ""
        return f"{type(self).__name__}(dim={self.dim}{sparse}, dtype={self.dtype})"

    def _key(self) -> tuple[Any, ...]:
        return (self.dim, self.sparse, self.dtype)

    def get_total_dimension(self) -> int:
        return self.dim

    def get_origin(self) -> Any:
        return np.zeros((self.dim,))

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        zeros = np.zeros((batch_size, self.dim), self._zeros_dtype(dtype))
        return csr_matrix(zeros) if self.sparse else zeros


class _Labels(_Rows):
    """Rows of `dim` integers below `max_labels`."""

    def __init__(self, max_labels: int, dim: int, dtype: Any = "int64", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.max_labels = max_labels
        self.dim = dim

    def _clean_dtype_arg(self, dtype: Any) -> str | None:
        if not isinstance(dtype, str):
            raise OldTypeError(f"{type(self).__name__}: dtype must be a str, found {dtype!r}")
        if "int" not in dtype:
            raise OldValueError(f"{type(self).__name__}: dtype must be integer, found {dtype!r}")
        return super()._clean_dtype_arg(dtype)

    def _check_sizes(self, space: Space) -> None:
        """Conversions compare dims and labels themselves."""

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}(max_labels={self.max_labels}, dim={self.dim}, dtype={self.dtype})"

    def _key(self) -> tuple[Any, ...]:
        return (self.max_labels, self.dim, self.dtype)


class IndexSpace(_Labels):
    """Batches of rows of labels, (batch, dim). Its total dimension counts indices."""

    def get_total_dimension(self) -> int:
        return self.dim

    def get_origin(self) -> Any:
        return np.zeros((1, self.dim))

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        return np.zeros((batch_size, self.dim), self._zeros_dtype(dtype))


class VectorSequenceSpace(_Rows):
    """One sequence of rows of numbers, (time, dim). Not hashable."""

    def __init__(self, dim: int, dtype: Any = "floatX", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.dim = dim

    def _check_sizes(self, space: Space) -> None:
        """Conversions compare dims and labels themselves."""

    def __str__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, dtype={self.dtype})"

    def _key(self) -> tuple[Any, ...]:
        return (self.dim, self.dtype)

    def _batch_size(self, batch: Any) -> int:
        return 1

    __hash__ = None  # type: ignore[assignment]  # defining == alone took it away


class IndexSequenceSpace(_Labels):
    """One sequence of rows of labels, (time, dim). Not hashable."""

    def _batch_size(self, batch: Any) -> int:
        return 1

    __hash__ = None  # type: ignore[assignment]  # defining == alone took it away


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
        if not hasattr(shape, "__len__") or len(shape) != 2:
            raise OldValueError(f"Conv2DSpace: shape must be (rows, columns), found {shape!r}")
        for length in (*shape, count):
            whole = isinstance(length, int | np.integer) and length > 0
            require(whole, f"Conv2DSpace: lengths must be integers above 0, found {length!r}")
        self.shape = tuple(map(int, shape))  # lengths of few bits would overflow when multiplied
        self.num_channels = None if count is None else int(count)
        self.axes: Axes = self.default_axes if axes is None else tuple(axes)
        require(len(self.axes) == 4, f"Conv2DSpace: axes must be four, found {self.axes}")

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self.shape}, num_channels={self.num_channels}, "
            f"axes={self.axes}, dtype={self.dtype})"
        )

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, self.num_channels, self.axes, self.dtype)

    def sizes(self, batch_size: int) -> tuple[int, ...]:
        """Return the shape of a batch."""
        length = {"b": batch_size, "c": self.num_channels, 0: self.shape[0], 1: self.shape[1]}
        return tuple(length[axis] for axis in self.axes)  # type: ignore[misc]  # count is not None

    def get_total_dimension(self) -> int:
        return int(self.shape[0] * self.shape[1] * self.num_channels)  # type: ignore[operator]

    def get_batch_axis(self) -> int:
        return self.axes.index("b")

    def get_origin(self) -> Any:
        axis, sizes = self.get_batch_axis(), self.sizes(1)
        return np.zeros(sizes[:axis] + sizes[axis + 1 :], self._zeros_dtype(None))

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        if not isinstance(batch_size, int | np.integer):
            raise OldTypeError(f"{self}: a batch size is an integer, found {batch_size!r}")
        require(batch_size > 0, f"{self}: a batch size is above 0, found {batch_size}")
        return np.zeros(self.sizes(int(batch_size)), self._zeros_dtype(dtype))

    def make_theano_batch(
        self, name: str | None = None, dtype: Any = None, batch_size: int | None = None
    ) -> Any:
        made = self._zeros_dtype(dtype)
        return lazy_zeros(self.sizes, batch_size, self.get_batch_axis(), made)

    def _check_array(self, batch: Any) -> None:
        if is_sparse(batch):
            raise OldTypeError(f"{self}: expected a dense batch, found a sparse one")
        if batch.ndim != 4:
            raise OldValueError(f"{self}: expected 4 axes, found {batch.ndim}: {batch.shape}")
        expected, free = self.sizes(0), self.get_batch_axis()
        for axis, (found, wanted) in enumerate(zip(batch.shape, expected, strict=True)):
            if axis != free and found != wanted and found == found:
                raise OldValueError(
                    f"{self}: axis {axis} ({self.axes[axis]!r}) has length {found}, expected "
                    f"{wanted}; the batch has shape {batch.shape}"
                )

    def native(self) -> NativeImages:
        """The native space of the same images, which keeps any dtype."""
        return NativeImages(self.shape, int(self.num_channels), self.axes)  # type: ignore[arg-type]

    @staticmethod
    def convert(tensor: Any, src_axes: Sequence[str | int], dst_axes: Sequence[str | int]) -> Any:
        """Return `tensor` with its axes in another order; itself where that is the same."""
        src, dst = tuple(src_axes), tuple(dst_axes)
        require(len(src) == tensor.ndim, f"{len(src)} axes {src} for {tensor.ndim} of the array")
        require(set(src) == set(dst), f"axes {dst} are not an order of {src}")
        return move_axes(tensor, src, dst)

    @staticmethod
    def convert_numpy(
        tensor: Any, src_axes: Sequence[str | int], dst_axes: Sequence[str | int]
    ) -> Any:
        """The same as :meth:`convert`, for ndarrays."""
        return Conv2DSpace.convert(tensor, src_axes, dst_axes)
