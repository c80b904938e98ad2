"""What every space can do.

A space is a frozen value that says what one batch looks like to a consumer: its
axes, lengths and dtype. It holds no data and opens nothing. Two spaces meet in a
*route*, found once per pair and remembered: a function that lays a batch of one space
out for the other; where there is none, an error gives the reason.

The classes know their own batches only. The trade-off: a user's own subclass of
`Space` needs routes of its own (:data:`labeled.spaces.register.ROUTES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from labeled.device import dtype_of, is_array
from labeled.display.summary import Summary, Table
from labeled.errors import SpaceError, SpaceTypeError
from labeled.spaces.arrays import by_dlpack, compact, foreign_library, lazy_zeros
from labeled.spaces.checks import (
    Batch,
    fault,
    has_names,
    is_dask,
    is_lazy,
    named_batches,
    refuse_lazy,
    rows_asked,
)
from labeled.spaces.dtypes import as_dtype, why_not_cast
from labeled.spaces.register import convert, route_between

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

    def without_callbacks(self) -> Self:
        """Return this space, an equal one, which calls nobody."""
        bare = object.__new__(type(self))
        bare.__dict__.update(self.__dict__)
        bare._set_callbacks((), ())
        return bare

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
            Rows of a chunk.
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
        return self._make_batch(n, dtype, chunks, dims)

    def _make_batch(self, n: int | None, dtype: Any, chunks: Any, dims: Any) -> Any:
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
            Whether the result must be C-contiguous; copied, at the speed of memory,
            where it is not.

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
        run = route_between(self, as_target(self, space))
        library = foreign_library(batch)
        if library is not None:
            convert = partial(self.np_format_as, space=space, contiguous=contiguous)
            return by_dlpack(convert, batch, library)
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
        axes are found by name) and tuples of them. What shape, dims and dtype can tell is
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


@dataclass(frozen=True, init=False, repr=False)
class ArraySpace(Space):
    """A space whose batch is one array; the base of all but composites and null."""

    dtype: np.dtype[Any] | None = field(default=None, compare=False)
    _dtype_name: str | None = None  # compared instead: NumPy holds float64 and None for equal

    def _set_dtype(self, dtype: DTypeLike | None) -> None:
        found = as_dtype(dtype)
        self._set(dtype=found, _dtype_name=None if found is None else found.str)

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

    def _make_batch(self, n: int | None, dtype: Any, chunks: Any, dims: Any) -> Any:
        rows = None if n is None else rows_asked(self, n)
        zeros = lazy_zeros(
            self.sizes, rows, self.get_batch_axis(), self._origin_dtype(dtype), chunks
        )
        if dims is None:
            return zeros
        return named_batches().named(zeros, self, None if dims is True else dims)

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
        if self.dtype is None or found != self.dtype:
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


def as_target(source: Space, target: object) -> Space:
    """Return `target`, or raise if it is not a space."""
    if isinstance(target, Space):
        return target
    raise SpaceTypeError(f"{source}: the target must be a space, found {target!r}")
