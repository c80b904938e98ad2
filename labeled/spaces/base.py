"""What every space can do, and the register of conversions between them.

A space is a frozen value that says what one batch looks like to a consumer: its
axes, lengths and dtype. It holds no data and opens nothing. Two spaces meet in a
*route*, found once per pair and remembered: either a function that lays a batch of
one space out for the other, or the reason why there is none.

The classes know their own batches only; routes are written beside each other in
:mod:`labeled.spaces.routes` and put into the register here, so that no class has to
know its neighbours. The trade-off: a user's own subclass of `Space` needs routes of
its own (:func:`planner`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from labeled.device import dtype_of, is_array
from labeled.errors import SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.dtypes import as_dtype, why_not_cast

Batch = Any
"""An array, a scipy sparse matrix, a dask array, a DataArray, None, or a tuple of batches."""

Callbacks = tuple[Callable[[Any], None], ...]


@dataclass(frozen=True, init=False, repr=False)
class Space:
    """What a batch looks like to its consumer; a frozen, hashable value.

    Parameters
    ----------
    validate_callbacks, np_validate_callbacks : iterable of functions
        Called with the batch before the space's own checks of lazy and of numeric
        batches; what they raise goes through. They take no part in equality.
    """

    validate_callbacks: Callbacks = field(default=(), compare=False, kw_only=True)
    np_validate_callbacks: Callbacks = field(default=(), compare=False, kw_only=True)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _set_callbacks(self, lazy: Iterable[Any], numeric: Iterable[Any]) -> None:
        self._set(validate_callbacks=tuple(lazy), np_validate_callbacks=tuple(numeric))

    # ------------------------------------------------------------ what a space is
    @property
    def dtype(self) -> Any:
        """The dtype of a batch, None for "keep"; nested for composites."""
        raise NotImplementedError

    def sizes(self, n: int) -> Any:
        """Return the shape of a batch of `n` rows (nested for composites, None for null)."""
        raise NotImplementedError

    def get_total_dimension(self) -> int:
        """Return how many numbers one row holds; of an `IndexSpace`, how many indices."""
        raise NotImplementedError

    def get_batch_axis(self) -> int:
        """Return the position of the batch axis."""
        return 0

    def with_dtype(self, dtype: Any) -> Self:
        """Return this space with another dtype."""
        raise NotImplementedError

    def get_origin(self) -> Any:
        """Return one row of zeros, without the batch axis."""
        raise NotImplementedError

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        """Return a batch of `n` rows of zeros.

        Parameters
        ----------
        n : int
            Rows, zero or more.
        dtype : dtype, optional
            Instead of the space's own; float64 where neither says.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ does a batch fit
    def check(self, batch: Batch, branch: str = "") -> None:
        """Check one batch, numeric or lazy, without callbacks; lazy values are not looked at.

        Parameters
        ----------
        batch : batch
            In this space.
        branch : str
            Where in a composite this space stands; begins the message.
        """
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
        refuse_lazy(self, batch)
        for callback in self.np_validate_callbacks:
            callback(batch)
        self.check(batch)

    def validate(self, batch: Batch) -> None:
        """Check all that shape, dims and dtype can tell of a lazy batch, computing nothing.

        A numeric batch is checked as :meth:`np_validate` does. A batch whose length is
        not known yet (NaN) is fine.
        """
        if not is_lazy(batch) and not has_names(batch):
            self.np_validate(batch)
            return
        for callback in self.validate_callbacks:
            callback(batch)
        self.check(batch)

    def np_batch_size(self, batch: Batch) -> int:
        """Return how many rows a numeric batch has, after checking it."""
        self.np_validate(batch)
        return self.batch_rows(batch)

    def batch_rows(self, batch: Batch) -> int:
        """Return how many rows a batch known to be valid has."""
        return int(batch.shape[self.get_batch_axis()])

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
        plan = plan_between(self, space, "")
        return plan.reason if isinstance(plan, Refusal) else None

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
        route = route_between(self, space)
        self.np_validate(batch)
        result = route.run(batch, self, space, "")
        space.np_validate(result)
        return result

    def undo_np_format_as(self, batch: Batch, space: Space) -> Batch:
        """Bring a batch that :meth:`np_format_as` made for `space` back to this space."""
        return space.np_format_as(batch, self)

    def format_as(self, batch: Batch, space: Space) -> Batch:
        """Lay a batch of this space out for another: numeric at once, dask lazily.

        As :meth:`np_format_as`, and also for dask arrays, dask-backed DataArrays (whose
        axes are found by name) and tuples of them. What shape, dims and dtype can tell is
        checked now; values (labels) when they are computed. Chunks stay NumPy or CuPy.
        """
        if not is_lazy(batch) and not has_names(batch):
            return self.np_format_as(batch, space)
        self.validate(batch)
        result = convert(batch, self, space)
        space.validate(result)
        return result

    def undo_format_as(self, batch: Batch, space: Space) -> Batch:
        """Bring a batch that :meth:`format_as` made for `space` back to this space."""
        return space.format_as(batch, self)


@dataclass(frozen=True, init=False, repr=False)
class ArraySpace(Space):
    """A space whose batch is one array; the base of all but composites and null."""

    dtype: np.dtype[Any] | None = None

    def _set_dtype(self, dtype: DTypeLike | None) -> None:
        self._set(dtype=as_dtype(dtype))

    def axis_names(self) -> tuple[Any, ...]:
        """Return what the axes of a batch are called in messages."""
        raise NotImplementedError

    def with_dtype(self, dtype: Any) -> Self:
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._set_dtype(dtype)
        return changed

    def get_origin(self) -> Any:
        shape = self.sizes(1)
        axis = self.get_batch_axis()
        return np.zeros(shape[:axis] + shape[axis + 1 :], self._origin_dtype(None))

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        return np.zeros(self.sizes(rows_asked(self, n)), self._origin_dtype(dtype))

    def _origin_dtype(self, dtype: DTypeLike | None) -> np.dtype[Any]:
        wanted = as_dtype(dtype)
        if wanted is not None:
            return wanted
        return np.dtype(np.float64) if self.dtype is None else self.dtype

    def check(self, batch: Batch, branch: str = "") -> None:
        if has_names(batch):
            batch = named_batches().data_of(batch, self, branch)
        self._check_container(batch, branch)
        self._check_shape(batch.shape, branch)
        found = dtype_of(batch)
        if found != self.dtype:
            self._check_dtype(found, batch, branch)

    def _check_container(self, batch: Batch, branch: str) -> None:
        if not (is_array(batch) or is_dask(batch)):
            found = "None" if batch is None else type(batch).__qualname__
            hint = "; a list is not a batch, make it an array" if found == "list" else ""
            fault(SpaceTypeError, self, branch, f"expected an array, found {found}{hint}")

    def _check_shape(self, shape: tuple[int, ...], branch: str) -> None:
        expected = self.sizes(0)
        names = self.axis_names()
        if len(shape) != len(expected):
            fault(
                SpaceError,
                self,
                branch,
                f"the batch has {len(shape)} axes, shape {shape}; expected {len(expected)} axes "
                f"{names}",
            )
        free = self.get_batch_axis()
        for axis, (found, wanted) in enumerate(zip(shape, expected, strict=True)):
            if axis != free and found != wanted:
                shown = "an unknown length" if found != found else f"length {found}"
                fault(
                    SpaceError,
                    self,
                    branch,
                    f"axis {axis} ({names[axis]!r}) has {shown}, expected {wanted}; "
                    f"the batch has shape {shape}",
                )

    def _check_dtype(self, found: np.dtype[Any], batch: Batch, branch: str) -> None:
        reason = why_not_cast(found, self.dtype)
        if reason is not None:
            fault(SpaceTypeError, self, branch, f"{reason}; cast the batch first")


# ---------------------------------------------------------------- checks shared by all
def fault(kind: type[SpaceError], space: Space, branch: str, text: str) -> NoReturn:
    """Raise an error that names the branch and the space."""
    raise kind(f"{title(space, branch)}{text}")


def title(space: Space, branch: str) -> str:
    """Return how a message about `space` begins.

    Examples
    --------
    >>> from labeled.spaces import NullSpace
    >>> title(NullSpace(), "[1][0]")
    'component [1][0], NullSpace(): '
    """
    return f"component {branch}, {space}: " if branch else f"{space}: "


def is_dask(batch: Batch) -> bool:
    """Whether `batch` is a dask collection with a shape: told by duck, without dask."""
    return hasattr(batch, "__dask_graph__") and batch.__dask_graph__() is not None


def is_lazy(batch: Batch) -> bool:
    """Whether `batch`, or any part of a tuple, is a dask collection."""
    if isinstance(batch, np.ndarray):
        return False
    if isinstance(batch, tuple):
        return any(is_lazy(part) for part in batch)
    return is_dask(batch)


def has_names(batch: Batch) -> bool:
    """Whether `batch`, or any part of a tuple, is a DataArray: told by duck, without xarray."""
    if isinstance(batch, np.ndarray):
        return False
    if isinstance(batch, tuple):
        return any(has_names(part) for part in batch)
    return hasattr(batch, "dims") and hasattr(batch, "coords") and hasattr(batch, "variable")


class NamedBatches(Protocol):
    """What `labeled.spaces.dataarrays` does for spaces: batches whose axes have names."""

    def data_of(self, x: Any, space: Any, branch: str) -> Any:
        """Return the data of `x` with its axes in the order of `space`."""

    def convert(self, x: Any, source: Any, target: Any, branch: str) -> Any:
        """Return `x`, a batch of `source`, as a DataArray laid out for `target`."""


_NAMED: list[NamedBatches] = []


def serve_named_batches(how: NamedBatches) -> None:
    """Register how DataArrays are converted; called once, on import."""
    _NAMED[:] = [how]


def named_batches() -> NamedBatches:
    """Return how DataArrays are converted."""
    return _NAMED[0]


def refuse_lazy(space: Space, batch: Batch) -> None:
    """Raise if `batch` is lazy or a DataArray: the ``np_`` methods look at values."""
    if is_lazy(batch) or has_names(batch):
        fault(
            SpaceTypeError,
            space,
            "",
            f"expected a numeric batch, found a {'lazy ' * is_lazy(batch)}"
            f"{type(batch).__qualname__}; use the name without np_, or pass its values",
        )


def positive(value: Any, what: str) -> int:
    """Return `value` as an int above zero.

    Raises
    ------
    SpaceTypeError, SpaceError
        If it is not an integer, or below one.
    """
    number = whole(value, what)
    if number < 1:
        raise SpaceError(f"{what} must be at least 1, found {number}")
    return number


def whole(value: Any, what: str) -> int:
    """Return `value` as an int; bool is not one."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise SpaceTypeError(f"{what} must be an integer, found {value!r}")
    return int(value)


def rows_asked(space: Space, n: Any) -> int:
    """Return `n` as a count of rows, zero or more."""
    rows = whole(n, f"{space}: the batch size")
    if rows < 0:
        fault(SpaceError, space, "", f"the batch size must be 0 or more, found {rows}")
    return rows


# ---------------------------------------------------------------- routes
@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no route, and the error to raise for it."""

    kind: type[SpaceError]
    reason: str


@dataclass(frozen=True, slots=True)
class Route:
    """How batches get from one space to another: ``run(batch, source, target, branch)``."""

    run: Callable[[Any, Any, Any, str], Any]


Planner = Callable[[Any, Any, str], Route | Refusal]
_PLANNERS: dict[tuple[type[Space], type[Space]], Planner] = {}
P = TypeVar("P", bound=Planner)


def planner(source: type[Space], target: type[Space]) -> Callable[[P], P]:
    """Register the decorated function as what plans routes between two kinds of space."""

    def register(function: P) -> P:
        _PLANNERS[source, target] = function
        return function

    return register


def plan_between(source: Space, target: Space, branch: str) -> Route | Refusal:
    """Return the route from one space to another, or why there is none."""
    if not isinstance(target, Space):
        raise SpaceTypeError(f"{source}: the target must be a space, found {target!r}")
    for kind in type(source).__mro__:
        for other in type(target).__mro__:
            plan = _PLANNERS.get((kind, other))
            if plan is not None:
                return plan(source, target, branch)
    return _no_planner(source, target, branch)


def _no_planner(source: Space, target: Space, branch: str) -> Refusal:
    try:
        mismatch = size_mismatch(source, target, branch)
    except UnsupportedSpaceError:
        mismatch = None
    if mismatch is not None:
        return mismatch
    text = f"{title(source, branch)}no conversion leads to {target}"
    return Refusal(UnsupportedSpaceError, text)


def size_mismatch(source: Space, target: Space, branch: str) -> Refusal | None:
    """Return a refusal if the total dimensions of two spaces differ."""
    found, wanted = source.get_total_dimension(), target.get_total_dimension()
    if found == wanted:
        return None
    return Refusal(
        SpaceError,
        f"{title(source, branch)}rows hold {found} values, {target} expects {wanted}",
    )


@lru_cache(maxsize=4096)
def route_between(source: Space, target: Space, branch: str = "") -> Route:
    """Return the route from one space to another; planned once per pair.

    Raises
    ------
    SpaceError
        If there is none; the message says why.
    """
    plan = plan_between(source, target, branch)
    if isinstance(plan, Refusal):
        raise plan.kind(plan.reason)
    return plan


def convert(batch: Batch, source: Space, target: Space, branch: str = "") -> Batch:
    """Lay out a batch that is known to be valid; for routes that call other routes."""
    route = route_between(source, target, branch)
    if not isinstance(batch, tuple) and has_names(batch):
        return named_batches().convert(batch, source, target, branch)
    return route.run(batch, source, target, branch)


def refusal_of(source: Space, target: Space, branch: str) -> Refusal | None:
    """Return why there is no route, or None; for planners that look into components."""
    plan = plan_between(source, target, branch)
    return plan if isinstance(plan, Refusal) else None
