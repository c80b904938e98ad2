"""The spaces, and what each of them can do.

A `VectorSpace` batch is (batch, feature), dense or sparse. An `IndexSpace` batch is
(batch, index): integers that another space may want expanded to indicators. A sequence,
(time, feature) or (time, index), is one example however long it is, so its batch size is
always 1 and it has no total dimension. Sequences convert among themselves only.

A `ConvNDSpace` is known by its shape, channels, axis order and dtype; `Conv2DSpace` is its
two-dimensional case with the constructor people know, and equals the `ConvNDSpace` of the same
four.

A `CompositeSpace` batch is a tuple with one batch per component, nested likewise; all
its parts have the same number of rows. A `NullSpace` batch is None: what a consumer
asks for that needs no data. A null component counts no columns and no rows.

:func:`space_of` says what a source's numbers mean when nobody does, from its dims and dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from labeled._validation import check_fields, integer
from labeled.device import is_array
from labeled.dims import SPATIAL, axes_of_roles, role_of
from labeled.errors import DimsError, SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.arrays import canonical_axes, check_labels
from labeled.spaces.base import ArraySpace, Axes, Batch, Space, call_at, call_for, length_of

SEQUENCES = (Sequence, np.ndarray)


# ---------------------------------------------------------------- rows of numbers and labels
@dataclass(frozen=True, repr=False, eq=False)
class VectorSpace(ArraySpace):
    """Batches of rows of `dim` numbers: (batch, feature).

    Parameters
    ----------
    dim : int
        Numbers in a row, zero or more.
    sparse : bool
        Whether batches are scipy sparse arrays (the extra ``sparse``).
    dtype : dtype, optional
        None keeps the dtype of the data.

    Examples
    --------
    >>> VectorSpace(3, dtype="float32")
    VectorSpace(dim=3, dtype='float32')
    >>> VectorSpace(3) == VectorSpace(3), VectorSpace(3) == VectorSpace(3, sparse=True)
    (True, False)
    """

    dim: int
    sparse: bool = False
    dtype: Any = None

    def __post_init__(self) -> None:
        check_fields(self, SpaceTypeError)
        self._settle(dim=length_of("VectorSpace: dim", self.dim, least=0), sparse=bool(self.sparse))


@dataclass(frozen=True, repr=False, eq=False)
class LabelSpace(ArraySpace):
    """Rows of integer labels: what `IndexSpace` and `IndexSequenceSpace` share."""

    max_labels: int | None = None
    dim: int = 1
    dtype: Any = None
    kinds: ClassVar[str] = "iu"
    _names: ClassVar[Axes] = ("b", "index")

    def __post_init__(self) -> None:
        check_fields(self, SpaceTypeError)
        name, known = type(self).__name__, self.max_labels
        known = None if known is None else length_of(f"{name}: max_labels", known)
        self._settle(max_labels=known, dim=length_of(f"{name}: dim", self.dim))

    def check(self, batch: Batch) -> None:
        super().check(batch)
        if is_array(batch):
            check_labels(batch, self.max_labels)


@dataclass(frozen=True, repr=False, eq=False)
class IndexSpace(LabelSpace):
    """Batches of rows of labels: (batch, index), integers in ``[0, max_labels)``.

    Parameters
    ----------
    max_labels : int or None
        How many labels there are. None: not known yet; taken from the target of a
        conversion if that gives it.
    dim : int
        Labels in a row.
    dtype : integer dtype, optional
        None keeps the dtype of the data.

    Examples
    --------
    >>> IndexSpace(max_labels=10, dim=1).np_format_as(np.array([[3], [1]]), VectorSpace(10)).shape
    (2, 10)
    """


class SequenceSpace(ArraySpace):
    """What is not defined for one sequence of any length."""

    def get_total_dimension(self) -> int:
        raise UnsupportedSpaceError(f"{self}: a sequence has no length of its own")

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        raise UnsupportedSpaceError(f"{self}: a sequence has no length of its own")

    def batch_rows(self, batch: Batch) -> float:
        return 1


@dataclass(frozen=True, repr=False, eq=False)
class VectorSequenceSpace(SequenceSpace):
    """One sequence of rows of `dim` numbers: (time, feature).

    Parameters
    ----------
    dim : int
        Numbers at each time.
    dtype : dtype, optional
        None keeps the dtype of the data.

    Examples
    --------
    >>> import numpy as np
    >>> VectorSequenceSpace(3).np_batch_size(np.zeros((100, 3)))
    1
    """

    dim: int
    dtype: Any = None
    _names: ClassVar[Axes] = ("time", "feature")

    def __post_init__(self) -> None:
        check_fields(self, SpaceTypeError)
        self._settle(dim=length_of("VectorSequenceSpace: dim", self.dim))


@dataclass(frozen=True, repr=False, eq=False)
class IndexSequenceSpace(SequenceSpace, LabelSpace):
    """One sequence of rows of `dim` labels: (time, index).

    Parameters
    ----------
    max_labels : int or None
        How many labels there are; None: not known yet.
    dim : int
        Labels at each time.
    dtype : integer dtype, optional
        None keeps the dtype of the data.
    """

    _names: ClassVar[Axes] = ("time", "index")


# ---------------------------------------------------------------- images
@dataclass(frozen=True, repr=False, eq=False)
class ConvNDSpace(ArraySpace):
    """Batches of images, volumes or signals in a given axis order.

    Parameters
    ----------
    shape : sequence of int
        Length of each spatial axis: axis ``0``, axis ``1``, ...
    channels, num_channels : int
        Length of the channel axis ``'c'``; give one of the two.
    axes : sequence, optional
        The order of ``'b'``, ``'c'`` and ``0`` to ``len(shape) - 1``; the canonical
        order ``('b', 0, ..., 'c')`` if not given.
    dtype : dtype, optional
        None keeps the dtype of the data.

    Raises
    ------
    SpaceError
        If a length is below one, or `axes` is not an order of the axes.
    SpaceTypeError
        If `shape` or `axes` has no order, such as a set.

    Examples
    --------
    >>> ConvNDSpace((4, 8, 8), channels=1, axes=("b", "c", 0, 1, 2)).sizes(2)
    (2, 1, 4, 8, 8)
    """

    shape: Any
    channels: Any = None
    num_channels: Any = field(default=None, repr=False)
    axes: Any = None
    dtype: Any = None
    family: ClassVar[str] = "images"
    n_spatial: ClassVar[int | None] = None  # how many spatial axes there must be

    def __post_init__(self) -> None:
        name, given = type(self).__name__, (self.channels, self.num_channels)
        if not isinstance(self.shape, SEQUENCES):
            raise SpaceTypeError(f"{name}: shape must be a sequence, found {self.shape!r}")
        if self.n_spatial not in (None, len(self.shape)):
            raise SpaceError(f"{name}: shape must be (rows, columns), found {tuple(self.shape)}")
        counts = {length_of(f"{name}: channels", n) for n in given if n is not None}
        if len(counts) != 1:
            wrong = f"found channels={given[0]}, num_channels={given[1]}"
            raise SpaceError(f"{name} takes exactly one of channels= and num_channels=, {wrong}")
        shape = tuple(length_of(f"{name}: shape[{i}]", n) for i, n in enumerate(self.shape))
        expected, channels = canonical_axes(len(shape)), counts.pop()
        axes = expected if self.axes is None else _ordered(self.axes, expected, name)
        self._settle(shape=shape, channels=channels, num_channels=channels, axes=axes)

    def axis_names(self) -> Any:
        return self.axes

    def sizes(self, n: int) -> tuple[int, ...]:
        length: dict[Any, int] = {"b": n, "c": self.channels, **dict(enumerate(self.shape))}
        return tuple(map(length.__getitem__, self.axes))

    def get_batch_axis(self) -> int:
        return tuple(self.axes).index("b")

    def with_axes(self, axes: Sequence[str | int]) -> Self:
        """Return this space in another axis order."""
        return replace(self, axes=axes)


@dataclass(frozen=True, repr=False, eq=False)
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
        None keeps the dtype of the data.

    Examples
    --------
    >>> Conv2DSpace(shape=(32, 32), num_channels=3, axes=("c", 0, 1, "b")).sizes(128)
    (3, 32, 32, 128)
    """

    n_spatial: ClassVar[int | None] = 2
    default_axes: ClassVar[Axes] = canonical_axes(2)


def _ordered(axes: Any, expected: Axes, name: str) -> Axes:
    """Return `axes` as plain names and numbers, after checking that they are an order."""
    if not isinstance(axes, SEQUENCES):
        raise SpaceTypeError(f"{name}: axes must be an order of {expected}, found {axes!r}")
    order: list[str | int] = []
    for axis in axes:
        number = isinstance(axis, int | np.integer) and not isinstance(axis, bool)
        order.append(int(axis) if number else str(axis))
    if len(order) == len(expected) and set(order) == set(expected):
        return tuple(order)
    spelled = tuple(int(axis) if str(axis).isdecimal() else axis for axis in order)
    hint = f"; spatial axes are numbers: {spelled}" if set(spelled) == set(expected) else ""
    raise SpaceError(f"{name}: axes {tuple(order)} must be an order of {expected}{hint}")


# ---------------------------------------------------------------- none, and several at once
@dataclass(frozen=True)
class NullSpace(Space):
    """The space of no data: its only batch is None.

    Examples
    --------
    >>> NullSpace().np_validate(None)
    >>> NullSpace() == NullSpace(), NullSpace().get_total_dimension()
    (True, 0)
    """

    dtype = None
    """Always None, as there is no data."""

    def sizes(self, n: int) -> None:
        return None

    def get_total_dimension(self) -> int:
        return 0

    def with_dtype(self, dtype: Any) -> Self:
        return self

    def get_origin_batch(self, n: int, dtype: Any = None) -> None:
        return None

    def check(self, batch: Batch) -> None:
        if batch is not None:
            raise SpaceTypeError(f"expected None, found {type(batch).__qualname__}")

    def batch_rows(self, batch: Batch) -> float:
        return math.nan


@dataclass(frozen=True, repr=False)
class CompositeSpace(Space):
    """Tuples of batches, one per component, all of the same number of rows.

    Parameters
    ----------
    components : sequence of Space
        May be composites themselves.

    Examples
    --------
    >>> from labeled.spaces import IndexSpace, VectorSpace
    >>> pair = CompositeSpace((VectorSpace(3), IndexSpace(10, 1)))
    >>> pair.sizes(8), pair.get_total_dimension()
    (((8, 3), (8, 1)), 4)
    >>> pair.restrict([1])
    IndexSpace(max_labels=10, dim=1)
    """

    components: Sequence[Space]

    def __post_init__(self) -> None:
        listed = isinstance(self.components, list | tuple)
        if not listed or not all(isinstance(part, Space) for part in self.components):
            wrong = f"components are a list or tuple of spaces, found {self.components!r}"
            raise SpaceTypeError(f"CompositeSpace: {wrong}")
        object.__setattr__(self, "components", tuple(self.components))

    def __repr__(self) -> str:
        return f"CompositeSpace({', '.join(map(str, self.components))})"

    @property
    def dtype(self) -> tuple[Any, ...]:
        """The dtypes of the components, nested as they are."""
        return tuple(component.dtype for component in self.components)

    def sizes(self, n: int) -> tuple[Any, ...]:
        return tuple(component.sizes(n) for component in self.components)

    def get_total_dimension(self) -> int:
        return sum(component.get_total_dimension() for component in self.components)

    def with_dtype(self, dtype: Any) -> Self:
        return replace(self, components=[part.with_dtype(dtype) for part in self.components])

    def get_origin_batch(self, n: int, dtype: Any = None) -> tuple[Any, ...]:
        return tuple(part.get_origin_batch(n, dtype) for part in self.components)

    def restrict(self, indices: Iterable[int]) -> Space:
        """Return the space of some components, in order; for one index, the component itself."""
        n, chosen = len(self.components), list(indices)
        for i in chosen:
            integer(f"{self}: a component", i, least=0, most=n - 1, error=SpaceError)
        parts = tuple(self.components[i] for i in chosen)
        return parts[0] if len(parts) == 1 else CompositeSpace(parts)

    def check(self, batch: Batch) -> None:
        n = len(self.components)
        if not isinstance(batch, tuple):
            hint = "; a list is not a batch, make it a tuple" if isinstance(batch, list) else ""
            found = f"{type(batch).__qualname__}{hint}"
            raise SpaceTypeError(f"expected a tuple of {n} batches, found {found}")
        if len(batch) != n:
            raise SpaceError(f"expected {n} batches, found {len(batch)}")
        found_rows: dict[str, float] = {}
        for i, (component, part) in enumerate(zip(self.components, batch, strict=True)):
            call_at(i, call_for, component, component.check, part)
            rows = component.batch_rows(part)
            if rows == rows:  # known, and not of a null component
                found_rows[f"[{i}]"] = rows
        if len({*found_rows.values()}) > 1:
            shown = ", ".join(f"{where} has {rows}" for where, rows in found_rows.items())
            raise SpaceError(f"the components differ in rows: {shown}")

    def batch_rows(self, batch: Batch) -> float:
        counts = (part.batch_rows(x) for part, x in zip(self.components, batch, strict=True))
        return next((n for n in counts if n == n), math.nan)


# ---------------------------------------------------------------- what a source's numbers mean
def space_of(
    dims: Sequence[str], shape: Sequence[int], dtype: Any, *, name: str | None = None
) -> ArraySpace:
    """Return a source's own space.

    The first dim is the example dim whatever its name. The others are looked up in the table
    of :mod:`labeled.dims`; names it lacks make a plain vector, flattened in file order, so that
    every fixed-size source has a space.

    ======================================  ==========================================
    dims after the example dim              space
    ======================================  ==========================================
    none, integer dtype                     ``IndexSpace(None, 1)``
    ``index``, integer dtype                ``IndexSpace(None, length)``
    ``channel, height, width`` in any order ``Conv2DSpace``, axes in file order
    ``height, width``                       the same with one channel
    ``channel, depth, height, width``       ``ConvNDSpace``, axes in file order
    anything else                           ``VectorSpace`` of the product of lengths
    ======================================  ==========================================

    Parameters
    ----------
    dims : sequence of str
        The example dim first, whatever its name.
    shape : sequence of int
        Their lengths; the example dim's may be left out.
    dtype : dtype
        Of the source. Spaces keep it: their own dtype is None.
    name : str, optional
        Of the source, for messages.

    Raises
    ------
    DimsError
        If `dims` and `shape` do not belong together.
    SpaceTypeError
        If rows are objects (of different lengths), which no space holds.

    Examples
    --------
    >>> space_of(("batch", "channel", "height", "width"), (100, 3, 32, 32), "u1")
    Conv2DSpace(shape=(32, 32), channels=3, axes=('b', 'c', 0, 1))
    >>> space_of(("batch", "index"), (100, 1), "u1"), space_of(("time", "x_axis_1"), (9, 4), "f4")
    (IndexSpace(max_labels=None, dim=1), VectorSpace(dim=4))
    """
    who = "a source" if name is None else f"source {name!r}"
    lengths = tuple(shape[1:] if len(shape) == len(dims) else shape)
    if not dims or len(lengths) != len(dims) - 1:
        wrong = f"{who} has {len(dims)} dims {tuple(dims)}"
        raise DimsError(f"{wrong}, which do not fit the shape {tuple(shape)}")
    found = np.dtype(dtype)
    if found.kind == "O":
        raise SpaceTypeError(f"{who} has rows of different lengths, which have no space of a batch")
    roles = list(map(role_of, dims[1:]))
    total = math.prod(lengths)
    if found.kind in "iu" and roles in ([], ["index"]) and total:
        return IndexSpace(None, total)
    n_spatial = sum(map(SPATIAL.__contains__, roles))
    axes = [*map(axes_of_roles(n_spatial).get, map(str, roles))]
    length = dict(zip(axes, lengths, strict=True))
    spatial = range(n_spatial)
    if n_spatial < 2 or 0 in lengths or len(length) != len(axes) or {*axes} - {"c"} != {*spatial}:
        return VectorSpace(total)
    order = ("b", *axes, *(() if "c" in axes else ("c",)))
    image = Conv2DSpace if n_spatial == 2 else ConvNDSpace
    return image([*map(length.__getitem__, spatial)], length.get("c", 1), axes=order)
