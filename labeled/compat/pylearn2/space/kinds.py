"""The old spaces: vectors, labels, sequences, images; several at once, and none.

Label values are not compared with ``max_labels`` here; conversions do that, each in its
own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.compat.pylearn2.errors import OldTypeError, OldValueError, require
from labeled.compat.pylearn2.space.base import SimplyTypedSpace, Space
from labeled.spaces import ConvNDSpace as NativeImages
from labeled.spaces.arrays import move_axes

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

    def sizes(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size, self.dim)


class _Labels(SimplyTypedSpace):
    """Rows of `dim` labels below `max_labels`."""

    _fields = ("max_labels", "dim", "dtype")

    def __init__(self, max_labels: int, dim: int, dtype: Any = "int64", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.max_labels, self.dim = max_labels, dim

    def _clean_dtype_arg(self, dtype: Any) -> str | None:
        if not isinstance(dtype, str):
            raise OldTypeError(f"{type(self).__name__}: dtype must be a str, found {dtype!r}")
        if "int" not in dtype:
            raise OldValueError(f"{type(self).__name__}: dtype must be integer, found {dtype!r}")
        return super()._clean_dtype_arg(dtype)

    def _check_sizes(self, space: Space) -> None:
        """Conversions compare dims and labels themselves."""

    def sizes(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size, self.dim)


class IndexSpace(_Labels):
    """Batches of rows of labels, (batch, dim). Its total dimension counts indices."""

    def get_origin(self) -> Any:
        return np.zeros((1, self.dim))


class _Sequence(SimplyTypedSpace):
    """One sequence, of any length. Not hashable."""

    def _check_sizes(self, space: Space) -> None:
        """Conversions compare dims and labels themselves."""

    def get_total_dimension(self) -> int:
        self._missing("total dimension")

    def get_origin(self) -> Any:
        self._missing("origin")

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        self._missing("origin batch")

    def _batch_size(self, batch: Any) -> int:
        return 1

    __hash__ = None  # type: ignore[assignment]  # defining == alone took it away


class VectorSequenceSpace(_Sequence):
    """One sequence of rows of numbers, (time, dim)."""

    _fields = ("dim", "dtype")

    def __init__(self, dim: int, dtype: Any = "floatX", **kw: Any) -> None:
        super().__init__(dtype, **kw)
        self.dim = dim

    def sizes(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size, self.dim)


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
        if not hasattr(shape, "__len__") or len(shape) != 2:
            raise OldValueError(f"Conv2DSpace: shape must be (rows, columns), found {shape!r}")
        for length in (*shape, count):
            whole = isinstance(length, int | np.integer) and length > 0
            require(whole, f"Conv2DSpace: lengths must be integers above 0, found {length!r}")
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
        if not isinstance(batch_size, int | np.integer):
            raise OldTypeError(f"{self}: a batch size is an integer, found {batch_size!r}")
        require(batch_size > 0, f"{self}: a batch size is above 0, found {batch_size}")
        return super().get_origin_batch(int(batch_size), dtype)

    def native(self) -> NativeImages:
        """The native space of the same images, which keeps any dtype."""
        return NativeImages(self.shape, self.num_channels, self.axes)

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


class NullSpace(Space):
    """The space of no data: its only batch is None. It has no total dimension."""

    def __str__(self) -> str:
        return "NullSpace"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def dtype(self) -> Any:
        return None

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if value is not None:
            raise OldTypeError(f"a NullSpace has no dtype, so it cannot be {value!r}")

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        return None

    def _check(self, batch: Any, numeric: bool) -> None:
        if batch is not None:
            raise OldTypeError(f"NullSpace: expected None, found {type(batch).__name__}")

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
        require(
            isinstance(components, list | tuple),
            f"CompositeSpace: components must be a list or tuple, found {components!r}",
        )
        for i, component in enumerate(components):
            if not isinstance(component, Space):
                raise OldTypeError(f"CompositeSpace: component {i} is not a space: {component!r}")
        self.components = list(components)

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.components))})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        return self.components == other.components

    def __hash__(self) -> int:
        return hash((type(self), *self.components))

    @property
    def dtype(self) -> Any:
        return tuple(component.dtype for component in self.components)

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if isinstance(value, tuple):
            if len(value) != len(self.components):
                raise OldValueError(f"{self}: {len(value)} dtypes for {len(self.components)} parts")
            for component, one in zip(self.components, value, strict=True):
                component.dtype = one
        elif value is None or isinstance(value, str):
            for component in self.components:
                if not isinstance(component, NullSpace):
                    component.dtype = value
        # anything else was ignored without a word

    def get_total_dimension(self) -> int:
        return sum(component.get_total_dimension() for component in self.components)

    def get_origin_batch(self, batch_size: int, dtype: Any = None) -> Any:
        dtypes = self._dtypes(dtype)
        pairs = zip(self.components, dtypes, strict=True)
        return tuple(component.get_origin_batch(batch_size, one) for component, one in pairs)

    def _lazy_batch(self, dtype: Any, batch_size: int | None) -> Any:
        pairs = zip(self.components, self._dtypes(dtype), strict=True)
        return tuple(component._lazy_batch(one, batch_size) for component, one in pairs)

    def _dtypes(self, dtype: Any) -> tuple[Any, ...]:
        """Return one dtype a component."""
        if dtype is None or isinstance(dtype, str):
            return (dtype,) * len(self.components)
        if not isinstance(dtype, tuple) or len(dtype) != len(self.components):
            raise OldTypeError(
                f"{self}: dtype must be None, a str or a tuple of {len(self.components)}, "
                f"found {dtype!r}"
            )
        return dtype

    # ------------------------------------------------------------ parts
    def restrict(self, subset: Sequence[int]) -> Space:
        """Return the space of some components, in that order; the bare one for one."""
        chosen = [self.components[i] for i in subset]
        return chosen[0] if len(chosen) == 1 else CompositeSpace(chosen)

    def restrict_batch(self, batch: Any, subset: Sequence[int]) -> Any:
        """Return the parts of a lazy `batch` that belong to :meth:`restrict`."""
        self._require_symbolic(batch)
        self.validate(batch)
        chosen = tuple(batch[i] for i in subset)
        return chosen[0] if len(chosen) == 1 else chosen

    def _check(self, batch: Any, numeric: bool) -> None:
        if not isinstance(batch, tuple):
            raise OldTypeError(f"{self}: expected a tuple, found {type(batch).__name__}")
        if len(batch) != len(self.components):
            raise OldValueError(
                f"{self}: expected {len(self.components)} batches, found {len(batch)}"
            )
        for component, part in zip(self.components, batch, strict=True):
            component._checked(part, numeric=numeric)

    def _batch_size(self, batch: Any) -> int:
        pairs = zip(self.components, batch, strict=True)
        counts = [(component, component._batch_size(part)) for component, part in pairs]
        sizes = {n for component, n in counts if not _without_data(component)}
        empty = any(_without_data(component) for component, _ in counts)
        require(not (empty and sizes), f"{self}: a mixture of data and of none has no batch size")
        if len(sizes) > 1:
            raise OldValueError(f"{self}: the components hold {sorted(sizes)} examples")
        return sizes.pop() if sizes else 0


def _without_data(space: Space) -> bool:
    if isinstance(space, CompositeSpace):
        return all(map(_without_data, space.components))
    return isinstance(space, NullSpace)
