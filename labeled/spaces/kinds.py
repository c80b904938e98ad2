"""The spaces, and what each of them can do.

A space is a frozen value that says what one batch looks like to a consumer: its axes, lengths and
dtype. It holds no data and opens nothing. Two spaces meet in a *route*, found once per pair and
remembered: a function that lays a batch of one space out for the other; where there is none, an
error gives the reason. The table of routes is filled by :mod:`labeled.spaces.routes`, so that no
class of space has to know its neighbours.

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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from labeled._validation import check_fields, whole
from labeled.device import dtype_of, is_array
from labeled.dims import SPATIAL, axes_of_roles, role_of
from labeled.errors import DimsError, SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.arrays import (
    as_dtype,
    canonical_axes,
    check_labels,
    csr,
    is_dask,
    is_lazy,
    is_sparse,
    why_not_cast,
)

Axes = tuple[str | int, ...]
SEQUENCES = (Sequence, np.ndarray)
Batch = Any
"""An array, a scipy sparse matrix, a dask array, None, or a tuple of batches."""


# ---------------------------------------------------------------- the table of routes
class Route(NamedTuple):
    """How batches of one kind of space become batches of another, and for which spaces."""

    run: Callable[[Batch, Any, Any], Batch]
    """(batch, source, target) -> batch"""
    checks: tuple[Callable[[Any, Any], object], ...] = ()
    """(source, target); raise a `SpaceError` where there is no way between the two."""
    by_chunk: Callable[[Batch, Any, Any], Batch] | None = None
    """Does the same to a dask batch; not given where `run` does."""


ROUTES: dict[tuple[type, type], Route] = {}
"""By the two kinds of space; an entry for a base class counts where there is no nearer one."""


@lru_cache(maxsize=4096)
def route_between(source: Any, target: Any) -> Route:
    """Return how batches of one space are laid out for another; checked once per pair.

    Raises
    ------
    SpaceError
        If there is no conversion; the message gives the reason.
    """
    if not isinstance(target, Space):
        raise SpaceTypeError(f"{source}: the target must be a space, found {target!r}")
    for pair in product(type(source).__mro__, type(target).__mro__):
        if pair in ROUTES:
            break
    route = ROUTES[pair]
    for check in route.checks:
        call_for(source, check, source, target)
    return route


def convert(batch: Batch, source: Any, target: Any) -> Batch:
    """Lay out a batch that is known to be valid; for routes that call other routes."""
    route = route_between(source, target)
    lazily = route.by_chunk if is_dask(batch) else None
    return call_for(source, lazily or route.run, batch, source, target)


# ---------------------------------------------------------------- messages
AT = "component ["
"""How a message begins that names a component already."""


def call_for(who: object, work: Callable[..., Any], *args: Any) -> Any:
    """Call `work`; an error it raises begins with the space (or source) it is about."""
    try:
        return work(*args)
    except SpaceError as error:
        if str(error).startswith((AT, f"{who}: ")):
            raise
        raise type(error)(f"{who}: {error}").at_row(error.row) from None


def call_at(number: int, work: Callable[..., Any], *args: Any) -> Any:
    """Call `work` for a component; an error it raises begins with its place."""
    try:
        return work(*args)
    except SpaceError as error:
        text = str(error)
        rest = text[len(AT) - 1 :] if text.startswith(AT) else f", {text}"
        raise type(error)(f"{AT}{number}]{rest}").at_row(error.row) from None


# ---------------------------------------------------------------- what spaces share
@dataclass(frozen=True, repr=False)
class Space:
    """What a batch looks like to its consumer; a frozen, hashable value."""

    # ------------------------------------------------------------ what a space is
    @property
    def dtype(self) -> Any:
        """The dtype of a batch; None keeps that of the data; nested for composites."""
        raise NotImplementedError

    def sizes(self, n: int) -> Any:
        """Return the shape of a batch of `n` rows (nested for composites, None for null)."""
        raise NotImplementedError

    def get_total_dimension(self) -> int:
        """Return how many numbers one row holds; for an `IndexSpace`, how many indices."""
        raise NotImplementedError

    def with_dtype(self, dtype: Any) -> Self:
        """Return this space with another dtype; for a composite, that of all components."""
        raise NotImplementedError

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        """Return a batch of `n` rows of zeros.

        Parameters
        ----------
        n : int
            Rows, zero or more.
        dtype : dtype, optional
            Instead of the space's own; float64 if there is neither.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ does a batch fit
    def check(self, batch: Batch) -> None:
        """Check one batch, numeric or lazy; lazy values are not looked at."""
        raise NotImplementedError

    def np_validate(self, batch: Batch) -> None:
        """Check that a numeric batch is one of this space: container, shape, dtype, labels.

        Raises
        ------
        SpaceTypeError
            If the batch is lazy, of another container or of a dtype that does not fit.
        SpaceError
            If its shape or its labels do not fit; names the axis, found and expected.

        Examples
        --------
        >>> from labeled.spaces import VectorSpace
        >>> VectorSpace(3).np_validate(np.zeros((4, 3)))
        >>> VectorSpace(4).np_validate(np.zeros((4, 3)))
        Traceback (most recent call last):
        labeled.errors.SpaceError: VectorSpace(dim=4): axis 1 ('feature') has length 3, expected 4;
        the batch has shape (4, 3)
        """
        if type(batch) is not np.ndarray and is_lazy(batch):
            found = f"found a lazy {type(batch).__qualname__}"
            hint = "use the name without np_, or pass its values"
            raise SpaceTypeError(f"{self}: expected a numeric batch, {found}; {hint}")
        call_for(self, self.check, batch)

    def validate(self, batch: Batch) -> None:
        """Check what shape and dtype show about a lazy batch; nothing is computed.

        A numeric batch is checked as :meth:`np_validate` does. A batch whose length is
        not known yet (NaN) is fine.
        """
        call_for(self, self.check, batch)

    def np_batch_size(self, batch: Batch) -> int:
        """Return how many rows a numeric batch has, after checking it."""
        self.np_validate(batch)
        n = self.batch_rows(batch)
        return int(n) if n == n else 0

    def batch_rows(self, batch: Batch) -> float:
        """Return how many rows a valid batch has; NaN where there is no data, or nobody knows."""
        raise NotImplementedError

    # ------------------------------------------------------------ to another space
    def can_format_as(self, space: Space) -> bool:
        """Whether batches of this space can be laid out for `space`.

        Examples
        --------
        >>> from labeled.spaces import Conv2DSpace, VectorSpace
        >>> VectorSpace(12).can_format_as(Conv2DSpace((2, 2), channels=3))
        True
        >>> VectorSpace(13).can_format_as(Conv2DSpace((2, 2), channels=3))
        False
        """
        return self.why_not_format_as(space) is None

    def why_not_format_as(self, space: Space) -> str | None:
        """Say why batches of this space cannot be laid out for `space`, or return None."""
        try:
            route_between(self, space)
        except SpaceError as error:
            return str(error)
        return None

    def np_format_as(self, batch: Batch, space: Space) -> Batch:
        """Lay a numeric batch of this space out for another space.

        The batch is checked before, the result after. Data stays where it is: NumPy
        in, NumPy out; CuPy in, CuPy out.

        Parameters
        ----------
        batch : batch, lengths ``self.sizes(n)``
            Numeric: an array, a scipy sparse matrix, None, or a tuple of those.
        space : Space
            What the consumer wants.

        Returns
        -------
        batch, lengths ``space.sizes(n)``
            A view or `batch` itself wherever nothing has to be copied, else a copy.

        Raises
        ------
        SpaceError
            If the batch does not fit this space, or this space not the other.

        Examples
        --------
        >>> from labeled.spaces import Conv2DSpace
        >>> chw = Conv2DSpace((32, 32), channels=3, axes=("b", "c", 0, 1))
        >>> hwc = Conv2DSpace((32, 32), channels=3, axes=("b", 0, 1, "c"))
        >>> chw.np_format_as(np.zeros((8, 3, 32, 32), np.uint8), hwc).shape
        (8, 32, 32, 3)
        """
        run = route_between(self, space).run
        self.np_validate(batch)
        result = call_for(self, run, batch, self, space)
        space.np_validate(result)
        return result

    def undo_np_format_as(self, batch: Batch, space: Space) -> Batch:
        """Bring a batch that :meth:`np_format_as` made for `space` back to this space."""
        return space.np_format_as(batch, self)

    def format_as(self, batch: Batch, space: Space) -> Batch:
        """Lay a batch of this space out for another: numeric at once, dask lazily.

        As :meth:`np_format_as`, and also for dask arrays and tuples of them. What shape and dtype
        show is checked now; values (labels) when they are computed. Chunks stay NumPy or CuPy.
        DataArrays are laid out by :func:`~labeled.spaces.format_dataarray`.
        """
        if not is_lazy(batch):
            return self.np_format_as(batch, space)
        route_between(self, space)
        self.validate(batch)
        result = convert(batch, self, space)
        space.validate(result)
        return result

    def undo_format_as(self, batch: Batch, space: Space) -> Batch:
        """Bring a batch that :meth:`format_as` made for `space` back to this space."""
        return space.format_as(batch, self)


@dataclass(frozen=True, repr=False, eq=False)
class ArraySpace(Space):
    """A space whose batch is one array; the base of all but composites and null."""

    kinds: ClassVar[str] = "biufc"
    """Kinds of dtype that a batch may have."""
    family: ClassVar[str] = ""
    """Spaces of one family are equal by value; of its own class if not given."""
    _names: ClassVar[Axes] = ("b", "feature")
    """What the axes of a batch are called in messages."""
    sparse = False
    """Whether batches are scipy sparse arrays."""
    dim = 0
    _batch_axis = 0

    def _settle(self, **checked: Any) -> None:
        """Put checked values in the place of those given."""
        found = as_dtype(self.dtype)
        if found is not None and found.kind not in self.kinds:
            raise SpaceTypeError(f"{type(self).__name__}: dtype must be integer, found {found}")
        name = None if found is None else found.str  # NumPy holds float64 and None for equal
        checked["_key"] = (self.family or type(self).__name__, *checked.values(), name)
        for one, value in {"dtype": found, **checked}.items():
            object.__setattr__(self, one, value)

    _key: tuple[Any, ...] = field(default=(), init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, ArraySpace) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        values = [(one.name, getattr(self, one.name)) for one in fields(self) if one.repr]
        shown = [f"{k}={v!r}" for k, v in values if v is not False and k != "dtype"]
        if self.dtype is not None:
            shown.append(f"dtype={self.dtype.name!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def axis_names(self) -> Axes:
        """Return what the axes of a batch are called in messages."""
        return self._names

    def sizes(self, n: int) -> tuple[int, ...]:
        return (n, self.dim)

    def get_batch_axis(self) -> int:
        """Return the position of the batch axis."""
        return self._batch_axis

    def get_total_dimension(self) -> int:
        return math.prod(self.sizes(1))

    def with_dtype(self, dtype: Any) -> Self:
        change: Any = {"dtype": dtype}
        return replace(self, **change)

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        rows = _whole(f"{self}: the batch size", n, least=0)
        wanted = as_dtype(self.dtype if dtype is None else dtype)
        if wanted is None:
            wanted = np.dtype(np.float64 if "f" in self.kinds else np.int64)
        if wanted.kind not in self.kinds:
            raise SpaceTypeError(f"{self}: labels are integers, found dtype {wanted}")
        zeros = np.zeros(self.sizes(rows), wanted)
        return csr(zeros) if self.sparse else zeros

    def batch_rows(self, batch: Batch) -> Any:
        return batch.shape[self.get_batch_axis()]

    def check(self, batch: Batch) -> None:
        if type(batch) is np.ndarray and not self.sparse:  # the batches of a training loop
            shape, axis, dtype = batch.shape, self.get_batch_axis(), batch.dtype
            known = dtype is self.dtype or (self.dtype is None and dtype.kind in self.kinds)
            if known and len(shape) > axis and shape == self.sizes(shape[axis]):
                return
        sparse = is_sparse(batch._meta if is_dask(batch) else batch)
        if sparse != self.sparse or not (sparse or is_array(batch) or is_dask(batch)):
            found = "None" if batch is None else type(batch).__qualname__
            wanted = "a scipy sparse array" if self.sparse else "an array"
            hints = {
                "list": "; a list is not a batch, make it an array",
                "DataArray": "; lay it out with x.labeled.format_as(space)",
            }
            hint = "; ask for VectorSpace(sparse=True)" if sparse else hints.get(found, "")
            raise SpaceTypeError(f"expected {wanted}, found {found}{hint}")
        self._check_shape(batch.shape)
        dtype = dtype_of(batch)
        reason = why_not_cast(dtype, self.dtype)
        if reason is None and dtype.kind not in self.kinds:
            reason = f"labels must be integers, found {dtype}"
        if reason is not None:
            raise SpaceTypeError(f"{reason}; cast the batch first")

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        expected, names = self.sizes(0), self.axis_names()
        if len(shape) != len(expected):
            found = f"the batch has {len(shape)} axes, shape {shape}"
            raise SpaceError(f"{found}; expected {len(expected)} axes {names}")
        for axis, (length, wanted) in enumerate(zip(shape, expected, strict=True)):
            if axis != self.get_batch_axis() and length != wanted:
                shown = "an unknown length" if length != length else f"length {length}"
                found = f"axis {axis} ({names[axis]!r}) has {shown}, expected {wanted}"
                raise SpaceError(f"{found}; the batch has shape {shape}")


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
        self._settle(dim=_whole("VectorSpace: dim", self.dim, least=0), sparse=bool(self.sparse))


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
        known = None if known is None else _whole(f"{name}: max_labels", known)
        self._settle(max_labels=known, dim=_whole(f"{name}: dim", self.dim))

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
        self._settle(dim=_whole("VectorSequenceSpace: dim", self.dim))


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
    n_spatial: ClassVar[int | None] = None
    """How many spatial axes there must be."""
    # worked out once, because they are looked at for every batch
    _before: tuple[int, ...] = field(default=(), init=False, repr=False)
    _after: tuple[int, ...] = field(default=(), init=False, repr=False)
    _batch_axis: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        name, given = type(self).__name__, (self.channels, self.num_channels)
        if not isinstance(self.shape, SEQUENCES):
            found = f"found {self.shape!r}"
            raise SpaceTypeError(f"{name}: shape must be a sequence of lengths, {found}")
        if self.n_spatial not in (None, len(self.shape)):
            raise SpaceError(f"{name}: shape must be (rows, columns), found {tuple(self.shape)}")
        counts = {_whole(f"{name}: channels", n) for n in given if n is not None}
        if len(counts) != 1:
            wrong = f"found channels={given[0]}, num_channels={given[1]}"
            raise SpaceError(f"{name} takes exactly one of channels= and num_channels=, {wrong}")
        length: dict[str | int, int] = {"c": counts.pop()}
        for i, n in enumerate(self.shape):
            length[i] = _whole(f"{name}: shape[{i}]", n)
        channels, *shape = length.values()
        expected = canonical_axes(len(shape))
        axes = expected if self.axes is None else _ordered(self.axes, expected, name)
        at = axes.index("b")
        object.__setattr__(self, "num_channels", channels)
        object.__setattr__(self, "_batch_axis", at)
        object.__setattr__(self, "_before", tuple(map(length.__getitem__, axes[:at])))
        object.__setattr__(self, "_after", tuple(map(length.__getitem__, axes[at + 1 :])))
        self._settle(shape=tuple(shape), channels=channels, axes=axes)

    def axis_names(self) -> Any:
        return self.axes

    def sizes(self, n: int) -> tuple[int, ...]:
        return (*self._before, n, *self._after)

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


_whole: Callable[..., int] = partial(whole, least=1, error=SpaceError)


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
            whole(f"{self}: a component", i, least=0, most=n - 1, error=SpaceError)
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
        pairs = zip(self.components, batch, strict=True)
        counts = (part.batch_rows(x) for part, x in pairs)
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
        raise DimsError(
            f"{who} has {len(dims)} dims {tuple(dims)}, which do not fit the shape {tuple(shape)}"
        )
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
