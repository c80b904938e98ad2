"""What every space can do, and how a way from one space to another is found.

A space is a frozen value that says what one batch looks like to a consumer: its
axes, lengths and dtype. It holds no data and opens nothing. Two spaces meet in a
*route*, found once per pair and remembered: a function that lays a batch of one space
out for the other; where there is none, an error gives the reason. The table of routes is
filled by :mod:`labeled.spaces.routes`, so that no class of space has to know its neighbours.

The classes know their own batches only. The trade-off: a user's own subclass of
`Space` needs routes of its own (:data:`ROUTES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from labeled._optional import LazyModule
from labeled.device import dtype_of, is_array
from labeled.display.summary import Summary, Table
from labeled.errors import SpaceError, SpaceTypeError
from labeled.spaces.arrays import (
    as_dtype,
    by_dlpack,
    compact,
    foreign_library,
    has_names,
    is_dask,
    is_lazy,
    is_sparse,
    lazy_zeros,
    why_not_cast,
)

Batch = Any
"""An array, a scipy sparse matrix, a dask array, a DataArray, None, or a tuple of batches."""

named: Any = LazyModule("labeled.spaces.dataarrays")  # which builds on all spaces


# ---------------------------------------------------------------- the table of routes
class Route(NamedTuple):
    """How batches of one kind of space become batches of another, and for which spaces."""

    run: Callable[..., Batch]
    """(batch, source, target, branch) -> batch"""
    checks: tuple[Callable[[Any, Any, str], None], ...] = ()
    """(source, target, branch); raise a `SpaceError` where there is no way between the two."""
    by_chunk: Callable[..., Batch] | None = None
    """Does the same to a dask batch; not given where `run` does."""


ROUTES: dict[tuple[type, type], Route] = {}
"""By the two kinds of space; an entry for a base class counts where there is no nearer one."""


@lru_cache(maxsize=4096)
def route_between(source: Any, target: Any, branch: str = "") -> Route:
    """Return how batches of one space are laid out for another; checked once per pair.

    Raises
    ------
    SpaceError
        If there is no conversion; the message gives the reason.
    """
    kinds = product(type(source).__mro__, type(target).__mro__)
    route = next(ROUTES[pair] for pair in kinds if pair in ROUTES)
    for check in route.checks:
        check(source, target, branch)
    return route


def convert(batch: Batch, source: Any, target: Any, branch: str = "") -> Batch:
    """Lay out a batch that is known to be valid; for routes that call other routes."""
    route = route_between(source, target, branch)
    if isinstance(batch, tuple) or batch is None:
        return route.run(batch, source, target, branch)
    if has_names(batch):
        return named.format_dataarray(batch, target, own=source)
    lazily = route.by_chunk if is_dask(batch) else None
    return (lazily or route.run)(batch, source, target, branch)


# ---------------------------------------------------------------- messages
def fault(kind: type[SpaceError], space: object, branch: str, text: str) -> NoReturn:
    """Raise an error that names the branch and the space."""
    raise kind(f"{title(space, branch)}{text}")


def title(space: object, branch: str) -> str:
    """Return how a message about `space` begins.

    Examples
    --------
    >>> from labeled.spaces import NullSpace
    >>> title(NullSpace(), "[1][0]")
    'component [1][0], NullSpace(): '
    """
    return f"component {branch}, {space}: " if branch else f"{space}: "


def call_for(space: object, branch: str, work: Callable[..., Any], *args: Any) -> Any:
    """Call `work`; an error it raises is prefixed with the space and the branch."""
    try:
        return work(*args)
    except SpaceError as error:
        raise type(error)(f"{title(space, branch)}{error}").at_row(error.row) from None


def whole(value: Any, what: str, least: int) -> int:
    """Return `value` as an int of at least `least`; bool is not one."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise SpaceTypeError(f"{what} must be an integer, found {value!r}")
    if value < least:
        limit = "0 or more" if least == 0 else f"at least {least}"
        raise SpaceError(f"{what} must be {limit}, found {value}")
    return int(value)


# ---------------------------------------------------------------- spaces
@dataclass(frozen=True, repr=False)
class Space:
    """What a batch looks like to its consumer; a frozen, hashable value.

    Parameters
    ----------
    validate_callbacks, np_validate_callbacks : iterable of functions
        Called with the batch before the space's own checks of lazy and of numeric
        batches; what they raise is passed on. Equality ignores them.
    """

    validate_callbacks: Iterable[Callable[[Any], None]] = field(
        default=(), compare=False, kw_only=True
    )
    np_validate_callbacks: Iterable[Callable[[Any], None]] = field(
        default=(), compare=False, kw_only=True
    )

    def __post_init__(self) -> None:
        for name in ("validate_callbacks", "np_validate_callbacks"):
            given: Any = getattr(self, name)
            if not np.iterable(given) or not all(map(callable, given := tuple(given))):
                raise SpaceError(f"{name}={given!r} must be a list of functions")
            self._set(**{name: given})

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def without_callbacks(self) -> Self:
        """Return an equal space without callbacks."""
        return replace(self, validate_callbacks=(), np_validate_callbacks=())

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
            Instead of the space's own; float64 if there is neither.
        """
        raise NotImplementedError

    def make_batch(
        self,
        n: int | None = None,
        *,
        dtype: Any = None,
        chunks: Any = "auto",
        dims: Any = None,
    ) -> Any:
        """Return a lazy batch of zeros: what a lazy batch of this space looks like.

        Parameters
        ----------
        n : int, optional
            Rows. None: a batch whose length is not known yet (it computes to no rows).
        dtype : dtype, optional
            Instead of the space's own.
        chunks : int or "auto"
            Rows per chunk.
        dims : True or mapping from axis to dim name, optional
            Return DataArrays, their dims named by the table and, beyond it, by `dims`.

        Returns
        -------
        dask array or DataArray, or a nested tuple of them

        Examples
        --------
        >>> from labeled.spaces import Conv2DSpace
        >>> space = Conv2DSpace((4, 5), channels=3, axes=("c", 0, 1, "b"), dtype="uint8")
        >>> space.make_batch(8, dims=True).dims
        ('channel', 'height', 'width', 'batch')
        >>> space.make_batch().shape
        (3, 4, 5, nan)
        """
        raise NotImplementedError

    # ------------------------------------------------------------ looks
    def axis_rows(self) -> list[tuple[str, ...]]:
        """Return component, axis and length of each axis, from the slowest to the fastest."""
        return []

    def about(self) -> list[str]:
        """Return what is said beside the axes."""
        return []

    def _repr_html_(self) -> str:
        axes = Table(("component", "axis, slowest first", "length"), self.axis_rows())
        return Summary(type(self).__name__, ", ".join(self.about()), (axes,)).html()

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
        if type(batch) is not np.ndarray and (is_lazy(batch) or has_names(batch)):
            found = f"{'lazy ' * is_lazy(batch)}{type(batch).__qualname__}"
            text = f"expected a numeric batch, found a {found}; use the name without np_, or pass "
            fault(SpaceTypeError, self, "", f"{text}its values")
        for callback in self.np_validate_callbacks:
            callback(batch)
        self.check(batch)

    def validate(self, batch: Batch) -> None:
        """Check what shape, dims and dtype show about a lazy batch; nothing is computed.

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
        target = as_target(self, space)
        try:
            route_between(self, target)
        except SpaceError as error:
            return str(error)
        return None

    def np_format_as(self, batch: Batch, space: Space, *, contiguous: bool = False) -> Batch:
        """Lay a numeric batch of this space out for another space.

        The batch is checked before, the result after. Data stays where it is: NumPy
        in, NumPy out; CuPy in, CuPy out; and so for tensors of torch and TensorFlow, by
        DLPack.

        Parameters
        ----------
        batch : batch, lengths ``self.sizes(n)``
            Numeric: an array, a scipy sparse matrix, None, or a tuple of those.
        space : Space
            What the consumer wants.
        contiguous : bool
            Whether the result must be C-contiguous; it is copied where it is not.

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
        run = route_between(self, as_target(self, space)).run
        library = None if type(batch) is np.ndarray else foreign_library(batch)
        if library is not None:
            again = partial(self.np_format_as, space=space, contiguous=contiguous)
            return by_dlpack(again, batch, library)
        self.np_validate(batch)
        result = run(batch, self, space, "")
        space.np_validate(result)
        return compact(result) if contiguous else result

    def undo_np_format_as(self, batch: Batch, space: Space) -> Batch:
        """Bring a batch that :meth:`np_format_as` made for `space` back to this space."""
        return space.np_format_as(batch, self)

    def format_as(self, batch: Batch, space: Space, *, contiguous: bool = False) -> Batch:
        """Lay a batch of this space out for another: numeric at once, dask lazily.

        As :meth:`np_format_as`, and also for dask arrays, dask-backed DataArrays (whose
        axes are found by name) and tuples of them. What shape, dims and dtype show is
        checked now; values (labels) when they are computed. Chunks stay NumPy or CuPy.
        """
        if not is_lazy(batch) and not has_names(batch):
            return self.np_format_as(batch, space, contiguous=contiguous)
        route_between(self, as_target(self, space))
        self.validate(batch)
        result = convert(batch, self, space)
        space.validate(result)
        return compact(result) if contiguous else result

    def undo_format_as(self, batch: Batch, space: Space) -> Batch:
        """Bring a batch that :meth:`format_as` made for `space` back to this space."""
        return space.format_as(batch, self)


@dataclass(frozen=True, repr=False)
class ArraySpace(Space):
    """A space whose batch is one array; the base of all but composites and null."""

    _dtype_name: str | None = field(default=None, init=False)
    """Compared instead of `dtype`: NumPy holds float64 and None for equal."""
    kinds: ClassVar[str] = "biufc"
    """Kinds of dtype that a batch may have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        found = as_dtype(self.dtype)
        if found is not None and found.kind not in self.kinds:
            raise SpaceTypeError(f"{type(self).__name__}: dtype must be integer, found {found}")
        self._set(dtype=found, _dtype_name=None if found is None else found.str)

    def __repr__(self) -> str:
        shown = []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.init and not one.kw_only and value is not False and one.name != "dtype":
                shown.append(f"{one.name}={value!r}")
        if self.dtype is not None:
            shown.append(f"dtype={self.dtype.name!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def sparse(self) -> bool:
        """Whether batches are scipy sparse arrays."""
        return False

    def axis_names(self) -> tuple[Any, ...]:
        """Return what the axes of a batch are called in messages."""
        raise NotImplementedError

    def axis_rows(self) -> list[tuple[str, ...]]:
        free, kind = self.get_batch_axis(), type(self).__name__
        axes = enumerate(zip(self.axis_names(), self.sizes(0), strict=True))
        return [(kind, repr(name), "n" if i == free else f"{n:,}") for i, (name, n) in axes]

    def about(self) -> list[str]:
        return ["dtype as it comes" if self.dtype is None else f"dtype {self.dtype.name}"]

    def with_dtype(self, dtype: Any) -> Self:
        change: Any = {"dtype": dtype}
        return replace(self, **change)

    def get_origin(self) -> Any:
        shape = self.sizes(1)
        axis = self.get_batch_axis()
        return np.zeros(shape[:axis] + shape[axis + 1 :], self._origin_dtype(None))

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        rows = whole(n, f"{self}: the batch size", 0)
        return np.zeros(self.sizes(rows), self._origin_dtype(dtype))

    def make_batch(
        self, n: int | None = None, *, dtype: Any = None, chunks: Any = "auto", dims: Any = None
    ) -> Any:
        rows = None if n is None else whole(n, f"{self}: the batch size", 0)
        made = self._origin_dtype(dtype)
        zeros = lazy_zeros(self.sizes, rows, self.get_batch_axis(), made, chunks)
        return zeros if dims is None else named.named(zeros, self, {} if dims is True else dims)

    def _origin_dtype(self, dtype: Any) -> np.dtype[Any]:
        wanted = as_dtype(self.dtype if dtype is None else dtype)
        if wanted is None:
            return np.dtype(np.float64 if "f" in self.kinds else np.int64)
        if wanted.kind not in self.kinds:
            fault(SpaceTypeError, self, "", f"labels are integers, found dtype {wanted}")
        return wanted

    def check(self, batch: Batch, branch: str = "") -> None:
        if type(batch) is np.ndarray and not self.sparse:  # the batches of a training loop
            shape, axis, dtype = batch.shape, self.get_batch_axis(), batch.dtype
            known = dtype is self.dtype or (self.dtype is None and dtype.kind in self.kinds)
            if known and len(shape) > axis and shape == self.sizes(shape[axis]):
                return
        if has_names(batch):
            batch = named.data_of(batch, self, branch)
        sparse = is_sparse(getattr(batch, "_meta", batch) if is_dask(batch) else batch)
        if sparse != self.sparse or not (sparse or is_array(batch) or is_dask(batch)):
            self._refuse_container(batch, sparse, branch)
        self._check_shape(batch.shape, branch)
        found = dtype_of(batch)
        if self.dtype is None or found != self.dtype:
            self._check_dtype(found, batch, branch)

    def _refuse_container(self, batch: Batch, sparse: bool, branch: str) -> NoReturn:
        found = "None" if batch is None else type(batch).__qualname__
        if self.sparse:
            found = "a dask array of dense chunks" if is_dask(batch) else found
            fault(SpaceTypeError, self, branch, f"expected a scipy sparse array, found {found}")
        if sparse and "sparse" in self.__dict__:
            text = "expected a dense array, found a sparse one; ask for VectorSpace(sparse=True)"
            fault(SpaceTypeError, self, branch, text)
        hint = "; a list is not a batch, make it an array" if found == "list" else ""
        fault(SpaceTypeError, self, branch, f"expected an array, found {found}{hint}")

    def _check_shape(self, shape: tuple[int, ...], branch: str) -> None:
        expected = self.sizes(0)
        names = self.axis_names()
        if len(shape) != len(expected):
            text = f"the batch has {len(shape)} axes, shape {shape}; expected {len(expected)} axes "
            fault(SpaceError, self, branch, f"{text}{names}")
        free = self.get_batch_axis()
        for axis, (found, wanted) in enumerate(zip(shape, expected, strict=True)):
            if axis != free and found != wanted:
                shown = "an unknown length" if found != found else f"length {found}"
                text = f"axis {axis} ({names[axis]!r}) has {shown}, expected {wanted}; the batch "
                fault(SpaceError, self, branch, f"{text}has shape {shape}")

    def _check_dtype(self, found: np.dtype[Any], batch: Batch, branch: str) -> None:
        reason = why_not_cast(found, self.dtype)
        if reason is not None:
            fault(SpaceTypeError, self, branch, f"{reason}; cast the batch first")


def as_target(source: Space, target: object) -> Space:
    """Return `target`, or raise if it is not a space."""
    if isinstance(target, Space):
        return target
    raise SpaceTypeError(f"{source}: the target must be a space, found {target!r}")
