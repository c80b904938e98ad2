"""What all spaces share: batches are checked, and laid out for another space by a table of routes.

A space is a frozen value that says what one batch looks like to a consumer: its axes, lengths and
dtype. It holds no data and opens nothing. Two spaces meet in a *route*, found once per pair and
remembered: a function that lays a batch of one space out for the other; where there is none, an
error gives the reason. The table of routes is filled by :mod:`labeled.spaces.routes`, so that no
class of space has to know its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from labeled._validation import integer
from labeled.device import dtype_of, is_array
from labeled.errors import SpaceError, SpaceTypeError
from labeled.spaces.arrays import as_dtype, csr, is_dask, is_lazy, is_sparse, why_not_cast

Axes = tuple[str | int, ...]
Batch = Any  # an array, a scipy sparse matrix, a dask array, None, or a tuple of batches

# checks a length: `length_of(what, n)` is a whole number, one or more
length_of: Callable[..., int] = partial(integer, least=1, error=SpaceError)


# ---------------------------------------------------------------- the table of routes
class Route(NamedTuple):
    """How batches of one kind of space become batches of another, and for which spaces."""

    run: Callable[[Batch, Any, Any], Batch]  # (batch, source, target) -> batch
    # (source, target); raise a `SpaceError` where there is no way between the two
    checks: tuple[Callable[[Any, Any], object], ...] = ()
    # does the same to a dask batch; not given where `run` does
    by_chunk: Callable[[Batch, Any, Any], Batch] | None = None


# by the two kinds of space; an entry for a base class counts where there is no nearer one
ROUTES: dict[tuple[type, type], Route] = {}


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
    pairs = product(type(source).__mro__, type(target).__mro__)
    route = next(ROUTES[pair] for pair in pairs if pair in ROUTES)
    for check in route.checks:
        call_for(source, check, source, target)
    return route


def convert(batch: Batch, source: Any, target: Any) -> Batch:
    """Lay out a batch that is known to be valid; for routes that call other routes."""
    route = route_between(source, target)
    lazily = route.by_chunk if is_dask(batch) else None
    return call_for(source, lazily or route.run, batch, source, target)


# ---------------------------------------------------------------- messages
AT = "component ["  # how a message begins that names a component already


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

    kinds: ClassVar[str] = "biufc"  # kinds of dtype that a batch may have
    # spaces of one family are equal by value; of its own class if not given
    family: ClassVar[str] = ""
    _names: ClassVar[Axes] = ("b", "feature")  # what the axes of a batch are called in messages
    sparse = False  # whether batches are scipy sparse arrays
    dim = 0

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
        return 0

    def get_total_dimension(self) -> int:
        return math.prod(self.sizes(1))

    def with_dtype(self, dtype: Any) -> Self:
        change: Any = {"dtype": dtype}
        return replace(self, **change)

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        rows = length_of(f"{self}: the batch size", n, least=0)
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
        # the batches of a training loop: laying one out as a view takes 4.5 us, not 7
        if type(batch) is np.ndarray and not self.sparse:
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
            raise SpaceError(f"the batch has shape {shape}, expected {len(expected)} axes {names}")
        for axis, (length, wanted) in enumerate(zip(shape, expected, strict=True)):
            if axis != self.get_batch_axis() and length != wanted:
                shown = "an unknown length" if length != length else f"length {length}"
                found = f"axis {axis} ({names[axis]!r}) has {shown}, expected {wanted}"
                raise SpaceError(f"{found}; the batch has shape {shape}")
