"""Small questions asked of batches and arguments, and how a fault is worded.

Kinds of batch are recognised by duck typing, so that neither dask nor xarray nor scipy has
to be imported to recognise what is not theirs. Every message of a space begins with
the branch it stands at in a composite, and the space itself.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np

from labeled.errors import SpaceError, SpaceTypeError

Batch = Any
"""An array, a scipy sparse matrix, a dask array, a DataArray, None, or a tuple of batches."""


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


def is_dask(batch: Batch) -> bool:
    """Whether `batch` is a dask collection with a shape; does not import dask."""
    return hasattr(batch, "__dask_graph__") and batch.__dask_graph__() is not None


def is_lazy(batch: Batch) -> bool:
    """Whether `batch`, or any part of a tuple, is a dask collection."""
    if isinstance(batch, np.ndarray):
        return False
    if isinstance(batch, tuple):
        return any(is_lazy(part) for part in batch)
    return is_dask(batch)


def has_names(batch: Batch) -> bool:
    """Whether `batch`, or any part of a tuple, is a DataArray; does not import xarray."""
    if isinstance(batch, np.ndarray):
        return False
    if isinstance(batch, tuple):
        return any(has_names(part) for part in batch)
    return hasattr(batch, "dims") and hasattr(batch, "coords") and hasattr(batch, "variable")


class NamedBatches(Protocol):
    """What `labeled.spaces.dataarrays` does for spaces: batches whose axes have names."""

    def data_of(self, x: Any, space: Any, branch: str) -> Any:
        """Return the data of `x` with its axes in the order of `space`."""

    def named(self, data: Any, space: Any, dims: Any) -> Any:
        """Return `data`, a batch of `space`, as a DataArray."""

    def convert(self, x: Any, source: Any, target: Any, branch: str) -> Any:
        """Return `x`, a batch of `source`, as a DataArray laid out for `target`."""

    def joined(self, pieces: list[Any], who: str) -> Any:
        """Return rows, some of them DataArrays, joined along the features."""


_NAMED: list[NamedBatches] = []


def serve_named_batches(how: NamedBatches) -> None:
    """Register how DataArrays are converted; called once, on import."""
    _NAMED[:] = [how]


def named_batches() -> NamedBatches:
    """Return how DataArrays are converted."""
    return _NAMED[0]


def refuse_lazy(space: object, batch: Batch) -> None:
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


def rows_asked(space: object, n: Any) -> int:
    """Return `n` as a count of rows, zero or more."""
    rows = whole(n, f"{space}: the batch size")
    if rows < 0:
        fault(SpaceError, space, "", f"the batch size must be 0 or more, found {rows}")
    return rows
