"""The spaces: rows of numbers, of labels, sequences of either, images, several at once, none.

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
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import DTypeLike

from labeled._validation import check_arguments, check_fields
from labeled.device import is_array
from labeled.dims import SPATIAL, axis_of, role_of
from labeled.display.text import count_words
from labeled.errors import DimsError, SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.arrays import canonical_axes, check_labels, csr, has_names, is_lazy
from labeled.spaces.base import ArraySpace, Batch, Space, call_for, fault, named, whole

Axes = tuple[str | int, ...]


# ---------------------------------------------------------------- rows of numbers and labels
@dataclass(frozen=True, repr=False)
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
    dtype: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.sparse, bool | np.bool_):
            raise SpaceTypeError(
                f"VectorSpace: sparse must be True or False, found {self.sparse!r}; "
                f"a dtype is given by name: dtype={self.sparse!r}"
            )
        check_fields(self, SpaceTypeError)
        super().__post_init__()
        self._set(dim=whole(self.dim, "VectorSpace: dim", 0), sparse=bool(self.sparse))

    def axis_names(self) -> tuple[str, str]:
        return ("b", "feature")

    def about(self) -> list[str]:
        return [*(["sparse"] if self.sparse else []), *super().about()]

    def sizes(self, n: int) -> tuple[int, int]:
        return (n, self.dim)

    def get_total_dimension(self) -> int:
        return self.dim

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        if not self.sparse:
            return super().get_origin_batch(n, dtype)
        rows = whole(n, f"{self}: the batch size", 0)
        nothing = np.zeros(0, self._origin_dtype(dtype))
        starts = np.zeros(rows + 1, np.int64)
        return csr((nothing, np.zeros(0, np.int64), starts), (rows, self.dim))

    def make_batch(
        self, n: int | None = None, *, dtype: Any = None, chunks: Any = "auto", dims: Any = None
    ) -> Any:
        if self.sparse and dims is not None:
            text = "a DataArray holds no scipy sparse array; leave dims out"
            fault(UnsupportedSpaceError, self, "", text)
        zeros = super().make_batch(n, dtype=dtype, chunks=chunks, dims=dims)
        if not self.sparse:
            return zeros
        return zeros.map_blocks(csr, dtype=zeros.dtype, meta=self.get_origin_batch(0, dtype))


@dataclass(frozen=True, repr=False)
class LabelSpace(ArraySpace):
    """Rows of integer labels: what `IndexSpace` and `IndexSequenceSpace` share."""

    max_labels: int | None = None
    dim: int = 1
    dtype: Any = field(default=None, compare=False)
    kinds: ClassVar[str] = "iu"

    def __post_init__(self) -> None:
        check_fields(self, SpaceTypeError)
        super().__post_init__()
        name, known = type(self).__name__, self.max_labels
        self._set(dim=whole(self.dim, f"{name}: dim", 1))
        self._set(max_labels=None if known is None else whole(known, f"{name}: max_labels", 1))

    def axis_names(self) -> tuple[str, str]:
        return ("b", "index")

    def about(self) -> list[str]:
        known = "labels not counted" if self.max_labels is None else f"{self.max_labels:,} labels"
        return [known, *super().about()]

    def sizes(self, n: int) -> tuple[int, int]:
        return (n, self.dim)

    def get_total_dimension(self) -> int:
        return self.dim

    def check(self, batch: Batch, branch: str = "") -> None:
        super().check(batch, branch)
        if is_array(batch):
            call_for(self, branch, check_labels, batch, self.max_labels)

    def _check_shape(self, shape: tuple[int, ...], branch: str) -> None:
        if len(shape) == 1:
            text = f"the batch has 1 axis, shape {shape}; labels are (batch, index): add an axis"
            fault(SpaceError, self, branch, text)
        super()._check_shape(shape, branch)

    def _check_dtype(self, found: np.dtype[Any], batch: Batch, branch: str) -> None:
        if found.kind not in "iu":
            call_for(self, branch, check_labels, batch, self.max_labels)
        super()._check_dtype(found, batch, branch)


@dataclass(frozen=True, repr=False)
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

    def _no_length(self, what: str) -> NoReturn:
        text = f"a sequence has no length of its own, so no {what}"
        fault(UnsupportedSpaceError, self, "", text)

    def get_total_dimension(self) -> int:
        self._no_length("total dimension")

    def get_origin(self) -> Any:
        self._no_length("origin")

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        self._no_length("origin batch")

    def batch_rows(self, batch: Batch) -> int:
        return 1


@dataclass(frozen=True, repr=False)
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
    dtype: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, SpaceTypeError)
        super().__post_init__()
        self._set(dim=whole(self.dim, "VectorSequenceSpace: dim", 1))

    def axis_names(self) -> tuple[str, str]:
        return ("time", "feature")

    def sizes(self, n: int) -> tuple[int, int]:
        return (n, self.dim)


@dataclass(frozen=True, repr=False)
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

    def axis_names(self) -> tuple[str, str]:
        return ("time", "index")


# ---------------------------------------------------------------- images
@dataclass(frozen=True, repr=False, eq=False)
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
        None keeps the dtype of the data.

    Raises
    ------
    SpaceError
        If a length is below one, or `axes` is not an order of the axes.
    SpaceTypeError
        If `shape` or `axes` has no order, such as a set.

    Examples
    --------
    >>> ConvNDSpace((4, 8, 8), 1, axes=("b", "c", 0, 1, 2)).sizes(2)
    (2, 1, 4, 8, 8)
    """

    shape: Any
    channels: int
    axes: Any = None
    dtype: Any = field(default=None, compare=False)
    # worked out once, because they are looked at for every batch
    _before: tuple[int, ...] = field(default=(), init=False, compare=False)
    _after: tuple[int, ...] = field(default=(), init=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, SpaceTypeError)
        super().__post_init__()
        name = type(self).__name__
        found = _listed(self.shape)
        if found is None:
            raise SpaceTypeError(
                f"{name}: shape must be a sequence of lengths, found {self.shape!r}"
            )
        shape = tuple(whole(n, f"{name}: shape[{i}]", 1) for i, n in enumerate(found))
        channels = whole(self.channels, f"{name}: channels", 1)
        expected = canonical_axes(len(shape))
        axes = expected if self.axes is None else _ordered(self.axes, expected, name)
        lengths = [channels if axis == "c" else shape[int(axis)] for axis in axes if axis != "b"]
        at = axes.index("b")
        self._set(shape=shape, channels=channels, axes=axes)
        self._set(_before=tuple(lengths[:at]), _after=tuple(lengths[at:]))

    @property
    def num_channels(self) -> int:
        """The same as `channels`."""
        return self.channels

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConvNDSpace):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, self.channels, self.axes, self._dtype_name)

    def axis_names(self) -> Axes:
        axes: Axes = self.axes
        return axes

    def sizes(self, n: int) -> tuple[int, ...]:
        return (*self._before, n, *self._after)

    def get_batch_axis(self) -> int:
        return len(self._before)

    def get_total_dimension(self) -> int:
        return self.channels * int(math.prod(self.shape))

    def with_axes(self, axes: Sequence[str | int]) -> Self:
        """Return this space in another axis order."""
        return replace(self, axes=axes)


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
        None keeps the dtype of the data.

    Examples
    --------
    >>> Conv2DSpace(shape=(32, 32), num_channels=3, axes=("c", 0, 1, "b")).sizes(128)
    (3, 32, 32, 128)
    """

    default_axes: ClassVar[Axes] = canonical_axes(2)

    @check_arguments(SpaceTypeError, but=("shape", "axes"))
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
        found = _listed(shape)
        if found is not None and len(found) != 2:
            raise SpaceError(f"Conv2DSpace: shape must be (rows, columns), found {found}")
        super().__init__(
            shape if found is None else found,
            count,
            axes,
            dtype,
            validate_callbacks=validate_callbacks,
            np_validate_callbacks=np_validate_callbacks,
        )


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
    order: list[str | int] = []
    for axis in listed:
        number = isinstance(axis, int | np.integer) and not isinstance(axis, bool)
        order.append(int(axis) if number else str(axis))
    if len(order) == len(expected) and set(order) == set(expected):
        return tuple(order)
    spelled = tuple(int(axis) if str(axis).isdecimal() else axis for axis in order)
    hint = f"; spatial axes are numbers: {spelled}" if set(spelled) == set(expected) else ""
    raise SpaceError(f"{name}: axes {tuple(order)} must be an order of {expected}{hint}")


# ---------------------------------------------------------------- none, and several at once
@dataclass(frozen=True, repr=False)
class NullSpace(Space):
    """The space of no data: its only batch is None.

    Examples
    --------
    >>> NullSpace().np_validate(None)
    >>> NullSpace() == NullSpace(), NullSpace().get_total_dimension()
    (True, 0)
    """

    def __repr__(self) -> str:
        return "NullSpace()"

    @property
    def dtype(self) -> None:
        """Always None, as there is no data."""
        return None

    def sizes(self, n: int) -> None:
        return None

    def get_total_dimension(self) -> int:
        return 0

    def with_dtype(self, dtype: Any) -> Self:
        return self

    def get_origin(self) -> None:
        return None

    def get_origin_batch(self, n: int, dtype: Any = None) -> None:
        whole(n, f"{self}: the batch size", 0)

    def make_batch(
        self, n: int | None = None, *, dtype: Any = None, chunks: Any = "auto", dims: Any = None
    ) -> None:
        return None

    def check(self, batch: Batch, branch: str = "") -> None:
        if batch is not None:
            text = f"expected None, found {type(batch).__qualname__}"
            fault(SpaceTypeError, self, branch, text)

    def batch_rows(self, batch: Batch) -> int:
        return 0


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
        super().__post_init__()
        if not isinstance(self.components, list | tuple):
            raise SpaceTypeError(
                f"CompositeSpace: components must be a list or tuple of spaces, "
                f"found {self.components!r}"
            )
        for i, component in enumerate(self.components):
            if not isinstance(component, Space):
                raise SpaceTypeError(
                    f"CompositeSpace: component [{i}] must be a space, found {component!r}"
                )
        self._set(components=tuple(self.components))

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

    def get_batch_axis(self) -> int:
        data = [part for part in self.components if not isinstance(part, NullSpace)]
        axes = [part.get_batch_axis() for part in data]
        if len(set(axes)) > 1:
            fault(SpaceError, self, "", f"the components have the batch axis at {tuple(axes)}")
        return axes[0] if axes else 0

    def axis_rows(self) -> list[tuple[str, ...]]:
        rows = []
        for i, component in enumerate(self.components):
            inner = component.axis_rows() or [(type(component).__name__, "", "")]
            rows += [(f"[{i}] {where}", *axis) for where, *axis in inner]
        return rows

    def about(self) -> list[str]:
        return [count_words(len(self.components), "component")]

    def _with_dtypes(self, dtype: Any) -> list[tuple[Space, Any]]:
        """Return each component with its dtype: of a nested tuple, or the same for all."""
        dtypes = dtype if isinstance(dtype, tuple) else (dtype,) * len(self.components)
        if len(dtypes) != len(self.components):
            text = f"{len(dtypes)} dtypes for {len(self.components)} components: {dtypes}"
            fault(SpaceError, self, "", text)
        return list(zip(self.components, dtypes, strict=True))

    def with_dtype(self, dtype: Any) -> Self:
        parts = tuple(part.with_dtype(one) for part, one in self._with_dtypes(dtype))
        return replace(self, components=parts)

    def get_origin(self) -> tuple[Any, ...]:
        return tuple(component.get_origin() for component in self.components)

    def get_origin_batch(self, n: int, dtype: Any = None) -> tuple[Any, ...]:
        return tuple(part.get_origin_batch(n, one) for part, one in self._with_dtypes(dtype))

    def make_batch(
        self, n: int | None = None, *, dtype: Any = None, chunks: Any = "auto", dims: Any = None
    ) -> tuple[Any, ...]:
        return tuple(
            part.make_batch(n, dtype=one, chunks=chunks, dims=dims)
            for part, one in self._with_dtypes(dtype)
        )

    def restrict(self, indices: Sequence[int]) -> Space:
        """Return the space of some components, in order; for one index, the component itself."""
        chosen = tuple(self.components[i] for i in self._numbers(indices))
        return chosen[0] if len(chosen) == 1 else CompositeSpace(chosen)

    def restrict_batch(self, batch: Batch, indices: Sequence[int]) -> Batch:
        """Return the parts of `batch` for :meth:`restrict` of the same `indices`."""
        self.validate(batch)
        chosen = tuple(batch[i] for i in self._numbers(indices))
        return chosen[0] if len(chosen) == 1 else chosen

    def _numbers(self, indices: Any) -> list[int]:
        if not isinstance(indices, Iterable) or isinstance(indices, str):
            text = f"components are chosen by a list of numbers, found {indices!r}"
            fault(SpaceTypeError, self, "", text)
        numbers = []
        for i in indices:
            if (isinstance(i, int) and i < 0) or whole(i, f"{self}: a component", 0) >= len(
                self.components
            ):
                fault(SpaceError, self, "", f"no component {i}, there are {len(self.components)}")
            numbers.append(int(i))
        return numbers

    def check(self, batch: Batch, branch: str = "") -> None:
        n = len(self.components)
        if not isinstance(batch, tuple):
            hint = "; a list is not a batch, make it a tuple" if isinstance(batch, list) else ""
            text = f"expected a tuple of {n} batches, found {type(batch).__qualname__}{hint}"
            fault(SpaceTypeError, self, branch, text)
        if len(batch) != n:
            fault(SpaceError, self, branch, f"expected {n} batches, found {len(batch)}")
        found: dict[str, float] = {}
        for i, (component, part) in enumerate(zip(self.components, batch, strict=True)):
            where = f"{branch}[{i}]"
            lazy, numeric = component.validate_callbacks, component.np_validate_callbacks
            for callback in lazy if is_lazy(part) else numeric:
                callback(part)
            component.check(part, where)
            rows = _rows(component, part)
            if rows == rows:  # known, and not of a null component
                found[where] = rows
        if len({*found.values()}) > 1:
            shown = ", ".join(f"{where} has {rows}" for where, rows in found.items())
            fault(SpaceError, self, branch, f"the components differ in rows: {shown}")

    def batch_rows(self, batch: Batch) -> int:
        pairs = zip(self.components, batch, strict=True)
        return next((n for part, x in pairs if (n := part.batch_rows(x))), 0)


def _rows(space: Space, batch: Batch) -> float:
    """Rows of one valid part; NaN where not known yet, or where there is no data."""
    if isinstance(space, CompositeSpace):
        counts = (_rows(*pair) for pair in zip(space.components, batch, strict=True))
        return next((n for n in counts if n == n), math.nan)
    if batch is None:
        return math.nan
    if has_names(batch):
        batch = named.data_of(batch, space, "")
    n = batch.shape[space.get_batch_axis()]
    return math.nan if n != n else space.batch_rows(batch)


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
        raise DimsError(
            f"{who} has {len(dims)} dims {tuple(dims)}, which do not fit the shape {tuple(shape)}"
        )
    found = np.dtype(dtype)
    if found.kind == "O":
        raise SpaceTypeError(f"{who} has rows of different lengths, which have no space of a batch")
    roles = [role_of(dim) for dim in dims[1:]]
    total = math.prod(lengths)
    if found.kind in "iu" and roles in ([], ["index"]) and total:
        return IndexSpace(None, total)
    n_spatial = sum(role in SPATIAL for role in roles)
    axes = [None if role is None else axis_of(role, n_spatial) for role in roles]
    length = dict(zip(axes, lengths, strict=True))
    spatial = range(n_spatial)
    if n_spatial < 2 or 0 in lengths or len(length) != len(axes) or {*axes} - {"c"} != {*spatial}:
        return VectorSpace(total)
    order = ("b", *axes, *(() if "c" in axes else ("c",)))
    image = Conv2DSpace if n_spatial == 2 else ConvNDSpace
    return image([length[i] for i in spatial], length.get("c", 1), axes=order)
