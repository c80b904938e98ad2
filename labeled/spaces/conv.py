"""Images and their like: spaces with a batch axis, a channel axis and spatial axes.

`ConvNDSpace` has any number of spatial axes; `Conv2DSpace` is its two-dimensional
case with the constructor people know. A space of this kind is known by its shape,
channels, axis order and dtype, so a `Conv2DSpace` equals the `ConvNDSpace` of the
same four.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from labeled._validation import check_arguments
from labeled.errors import SpaceError, SpaceTypeError
from labeled.spaces.base import ArraySpace
from labeled.spaces.checks import Batch, positive
from labeled.spaces.layout import canonical_axes

Axes = tuple[str | int, ...]


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ConvNDSpace(ArraySpace):
    """Batches of images, volumes or signals in a given axis order.

    Parameters
    ----------
    shape : sequence of int
        Length of each spatial axis: axis ``0``, axis ``1``, ...
    channels : int
        Length of the channel axis ``'c'``.
    axes : sequence, optional
        The order of ``'b'``, ``'c'`` and ``0`` to ``len(shape) - 1``; the canonical
        order ``('b', 0, ..., 'c')`` if not given.
    dtype : dtype, optional
        None keeps the dtype that comes.

    Raises
    ------
    SpaceError
        If a length is below one, or `axes` is not an order of the axes.
    SpaceTypeError
        If `shape` or `axes` is a set, or nothing that has an order.

    Examples
    --------
    >>> ConvNDSpace((4, 8, 8), 1, axes=("b", "c", 0, 1, 2)).sizes(2)
    (2, 1, 4, 8, 8)
    """

    shape: tuple[int, ...] = ()
    channels: int = 1
    axes: Axes = ("b", "c")
    # worked out once, because they are looked at for every batch
    _batch_axis: int = field(default=0, compare=False)
    _before: tuple[int, ...] = field(default=(), compare=False)
    _after: tuple[int, ...] = field(default=(), compare=False)

    @check_arguments(SpaceTypeError, but=("shape", "axes", "components", "sparse"))
    def __init__(
        self,
        shape: Sequence[int],
        channels: int,
        axes: Sequence[str | int] | None = None,
        dtype: DTypeLike | None = None,
        *,
        validate_callbacks: Iterable[Any] = (),
        np_validate_callbacks: Iterable[Any] = (),
    ) -> None:
        self._set_callbacks(validate_callbacks, np_validate_callbacks)
        name = type(self).__name__
        lengths = _lengths(shape, name)
        expected = canonical_axes(len(lengths))
        order = expected if axes is None else _ordered(axes, expected, name)
        self._set(shape=lengths, channels=positive(channels, f"{name}: channels"), axes=order)
        self._set_dtype(dtype)
        batch_axis = order.index("b")
        fixed = tuple(self._length(axis) for axis in order if axis != "b")
        self._set(_batch_axis=batch_axis, _before=fixed[:batch_axis], _after=fixed[batch_axis:])

    @property
    def num_channels(self) -> int:
        """The same as `channels`."""
        return self.channels

    def _length(self, axis: str | int) -> int:
        return self.channels if axis == "c" else self.shape[int(axis)]

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, self.channels, self.axes, self._dtype_name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConvNDSpace):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.shape, self.channels, self.axes, self._dtype_name))

    def __repr__(self) -> str:
        dtype = "" if self.dtype is None else f", dtype={self.dtype.name!r}"
        return (
            f"{type(self).__name__}(shape={self.shape}, channels={self.channels}, "
            f"axes={self.axes}{dtype})"
        )

    def axis_names(self) -> Axes:
        return self.axes

    def sizes(self, n: int) -> tuple[int, ...]:
        return (*self._before, n, *self._after)

    def get_batch_axis(self) -> int:
        return self._batch_axis

    def get_total_dimension(self) -> int:
        total = self.channels
        for length in self.shape:
            total *= length
        return total

    def with_axes(self, axes: Sequence[str | int]) -> ConvNDSpace:
        """Return this space in another axis order."""
        return type(self)(
            self.shape,
            self.channels,
            axes=axes,
            dtype=self.dtype,
            validate_callbacks=self.validate_callbacks,
            np_validate_callbacks=self.np_validate_callbacks,
        )

    def check(self, batch: Batch, branch: str = "") -> None:
        if type(batch) is np.ndarray:  # every batch of a training loop comes by here
            shape, axis = batch.shape, self._batch_axis
            n = shape[axis] if len(shape) > axis else 0
            if shape == (*self._before, n, *self._after):
                found = batch.dtype
                if found is not self.dtype and (self.dtype is not None or found.kind == "O"):
                    self._check_dtype(found, batch, branch)
                return
        super().check(batch, branch)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Conv2DSpace(ConvNDSpace):
    """Batches of images in a given axis order.

    Parameters
    ----------
    shape : (rows, columns)
        Lengths of axes ``0`` and ``1``.
    channels, num_channels : int
        Length of axis ``'c'``; give exactly one of the two.
    axes : sequence, optional
        The order of ``'b'``, ``'c'``, ``0`` and ``1``; ``('b', 0, 1, 'c')`` if not given.
    dtype : dtype, optional
        None keeps the dtype that comes.

    Examples
    --------
    >>> Conv2DSpace(shape=(32, 32), num_channels=3, axes=("c", 0, 1, "b")).sizes(128)
    (3, 32, 32, 128)
    """

    default_axes: ClassVar[Axes] = canonical_axes(2)

    @check_arguments(SpaceTypeError, but=("shape", "axes", "components", "sparse"))
    def __init__(
        self,
        shape: Sequence[int],
        channels: int | None = None,
        num_channels: int | None = None,
        axes: Sequence[str | int] | None = None,
        dtype: DTypeLike | None = None,
        *,
        validate_callbacks: Iterable[Any] = (),
        np_validate_callbacks: Iterable[Any] = (),
    ) -> None:
        if (channels is None) == (num_channels is None):
            raise SpaceError(
                f"Conv2DSpace takes exactly one of channels= and num_channels=, "
                f"found channels={channels}, num_channels={num_channels}"
            )
        count = num_channels if channels is None else channels
        assert count is not None
        lengths = _lengths(shape, "Conv2DSpace")
        if len(lengths) != 2:
            raise SpaceError(f"Conv2DSpace: shape must be (rows, columns), found {lengths}")
        super().__init__(
            lengths,
            count,
            axes,
            dtype,
            validate_callbacks=validate_callbacks,
            np_validate_callbacks=np_validate_callbacks,
        )


def _lengths(shape: Any, name: str) -> tuple[int, ...]:
    listed = None if isinstance(shape, str) else _listed(shape)
    if listed is None:
        raise SpaceTypeError(f"{name}: shape must be a sequence of lengths, found {shape!r}")
    return tuple(positive(length, f"{name}: shape[{i}]") for i, length in enumerate(listed))


def _listed(x: Any) -> tuple[Any, ...] | None:
    """Return the items of what has an order of its own, None for sets and single things."""
    if isinstance(x, Set | Mapping):
        return None
    try:
        return tuple(x)
    except TypeError:
        return None


def _ordered(axes: Any, expected: Axes, name: str) -> Axes:
    """Return `axes` as plain names and numbers, after checking that they are an order."""
    listed = _listed(axes)
    if listed is None:
        raise SpaceTypeError(f"{name}: axes must be an order of {expected}, found {axes!r}")
    order = tuple(_plain(axis) for axis in listed)
    if len(order) == len(expected) and set(order) == set(expected):
        return order
    spelled = tuple(int(axis) if str(axis).isdecimal() else axis for axis in order)
    hint = f"; spatial axes are numbers: {spelled}" if set(spelled) == set(expected) else ""
    raise SpaceError(f"{name}: axes {order} must be an order of {expected}{hint}")


def _plain(axis: Any) -> str | int:
    """Return an axis as the plain str or int it is; what is neither fits nowhere."""
    if isinstance(axis, int | np.integer) and not isinstance(axis, bool):
        return int(axis)
    return str(axis)
