"""Rows of numbers, rows of labels that stand for indicator rows, and sequences of either.

A `VectorSpace` batch is (batch, feature), dense or sparse. An `IndexSpace` batch is
(batch, index): integers that another space may want expanded to indicators. A sequence,
(time, feature) or (time, index), is one example however long it is, so its batch size is
always 1 and it has no total dimension. Sequences convert among themselves only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from labeled._validation import check_arguments
from labeled.device import dtype_of, is_array
from labeled.errors import SpaceError, SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.checks import Batch, fault, is_dask, positive, rows_asked, title, whole
from labeled.spaces.dtypes import as_dtype
from labeled.spaces.onehot import check_labels, not_labels
from labeled.spaces.sparse import csr, is_sparse


@dataclass(frozen=True, init=False, repr=False)
class VectorSpace(ArraySpace):
    """Batches of rows of `dim` numbers: (batch, feature).

    Parameters
    ----------
    dim : int
        Numbers in a row, zero or more.
    sparse : bool
        Whether batches are scipy sparse arrays (the extra ``sparse``).
    dtype : dtype, optional
        None keeps the dtype that comes.

    Examples
    --------
    >>> VectorSpace(3, dtype="float32")
    VectorSpace(dim=3, dtype='float32')
    >>> VectorSpace(3) == VectorSpace(3), VectorSpace(3) == VectorSpace(3, sparse=True)
    (True, False)
    """

    dim: int = 1
    sparse: bool = False

    @check_arguments(SpaceTypeError, but=("shape", "axes", "components", "sparse"))
    def __init__(
        self,
        dim: int,
        sparse: bool = False,
        dtype: DTypeLike | None = None,
        *,
        validate_callbacks: Iterable[Any] = (),
        np_validate_callbacks: Iterable[Any] = (),
    ) -> None:
        self._set_callbacks(validate_callbacks, np_validate_callbacks)
        if not isinstance(sparse, bool | np.bool_):
            raise SpaceTypeError(
                f"VectorSpace: sparse must be True or False, found {sparse!r}; "
                f"a dtype is given by name: dtype={sparse!r}"
            )
        self._set(dim=_width(dim), sparse=bool(sparse))
        self._set_dtype(dtype)

    def __repr__(self) -> str:
        sparse = ", sparse=True" if self.sparse else ""
        dtype = "" if self.dtype is None else f", dtype={self.dtype.name!r}"
        return f"VectorSpace(dim={self.dim}{sparse}{dtype})"

    def axis_names(self) -> tuple[str, str]:
        return ("b", "feature")

    def about(self) -> list[str]:
        return [*(["sparse"] if self.sparse else []), *super().about()]

    def sizes(self, n: int) -> tuple[int, int]:
        return (n, self.dim)

    def get_total_dimension(self) -> int:
        return self.dim

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        shape = self.sizes(rows_asked(self, n))
        zeros = np.zeros(shape if not self.sparse else (0, self.dim), self._origin_dtype(dtype))
        if not self.sparse:
            return zeros
        empty = (zeros[:0, 0], np.zeros(0, np.int64), np.zeros(shape[0] + 1, np.int64))
        return csr(empty, shape)

    def _make_batch(self, n: int | None, dtype: Any, chunks: Any, dims: Any) -> Any:
        if not self.sparse:
            return super()._make_batch(n, dtype, chunks, dims)
        if dims is not None:
            text = "a DataArray holds no scipy sparse array; leave dims out"
            fault(UnsupportedSpaceError, self, "", text)
        zeros = super()._make_batch(n, dtype, chunks, None)
        return zeros.map_blocks(csr, dtype=zeros.dtype, meta=self.get_origin_batch(0, dtype))

    def _check_container(self, batch: Batch, branch: str) -> None:
        sparse = is_sparse(getattr(batch, "_meta", batch) if is_dask(batch) else batch)
        if sparse and not self.sparse:
            text = "expected a dense array, found a sparse one; ask for VectorSpace(sparse=True)"
            fault(SpaceTypeError, self, branch, text)
        if self.sparse and not sparse:
            found = "a dask array of dense chunks" if is_dask(batch) else type(batch).__qualname__
            fault(SpaceTypeError, self, branch, f"expected a scipy sparse array, found {found}")
        if not sparse:
            super()._check_container(batch, branch)


@dataclass(frozen=True, init=False, repr=False)
class LabelRows(ArraySpace):
    """Rows of integer labels: what `IndexSpace` and `IndexSequenceSpace` share."""

    max_labels: int | None = None
    dim: int = 1

    @check_arguments(SpaceTypeError, but=("shape", "axes", "components", "sparse"))
    def __init__(
        self,
        max_labels: int | None = None,
        dim: int = 1,
        dtype: DTypeLike | None = None,
        *,
        validate_callbacks: Iterable[Any] = (),
        np_validate_callbacks: Iterable[Any] = (),
    ) -> None:
        self._set_callbacks(validate_callbacks, np_validate_callbacks)
        name = type(self).__name__
        known = None if max_labels is None else positive(max_labels, f"{name}: max_labels")
        self._set(max_labels=known, dim=positive(dim, f"{name}: dim"))
        self._set_dtype(dtype)

    def _set_dtype(self, dtype: DTypeLike | None) -> None:
        wanted = as_dtype(dtype)
        if wanted is not None and wanted.kind not in "iu":
            raise SpaceTypeError(f"{type(self).__name__}: dtype must be integer, found {wanted}")
        super()._set_dtype(wanted)

    def __repr__(self) -> str:
        dtype = "" if self.dtype is None else f", dtype={self.dtype.name!r}"
        return f"{type(self).__name__}(max_labels={self.max_labels}, dim={self.dim}{dtype})"

    def axis_names(self) -> tuple[str, str]:
        return ("b", "index")

    def about(self) -> list[str]:
        known = "labels not counted" if self.max_labels is None else f"{self.max_labels:,} labels"
        return [known, *super().about()]

    def sizes(self, n: int) -> tuple[int, int]:
        return (n, self.dim)

    def get_total_dimension(self) -> int:
        return self.dim

    def _origin_dtype(self, dtype: DTypeLike | None) -> np.dtype[Any]:
        if dtype is None and self.dtype is None:
            return np.dtype(np.int64)
        wanted = super()._origin_dtype(dtype)
        if wanted.kind not in "iu":
            fault(SpaceTypeError, self, "", f"labels are integers, found dtype {wanted}")
        return wanted

    def check(self, batch: Batch, branch: str = "") -> None:
        super().check(batch, branch)
        if is_array(batch):
            check_labels(batch, self.max_labels, title(self, branch))

    def _check_shape(self, shape: tuple[int, ...], branch: str) -> None:
        if len(shape) == 1:
            text = f"the batch has 1 axis, shape {shape}; labels are (batch, index): add an axis"
            fault(SpaceError, self, branch, text)
        super()._check_shape(shape, branch)

    def _check_dtype(self, found: np.dtype[Any], batch: Batch, branch: str) -> None:
        if found.kind not in "iu":
            raise not_labels(batch, dtype_of(batch), title(self, branch))
        super()._check_dtype(found, batch, branch)


@dataclass(frozen=True, init=False, repr=False)
class IndexSpace(LabelRows):
    """Batches of rows of labels: (batch, index), integers in ``[0, max_labels)``.

    Parameters
    ----------
    max_labels : int or None
        How many labels there are. None: not known yet; taken from the target of a
        conversion where that tells.
    dim : int
        Labels in a row.
    dtype : integer dtype, optional
        None keeps the dtype that comes.

    Examples
    --------
    >>> IndexSpace(max_labels=10, dim=1).np_format_as(np.array([[3], [1]]), VectorSpace(10)).shape
    (2, 10)
    """


def _no_length(space: Space, what: str) -> NoReturn:
    text = f"a sequence has no length of its own, so no {what}"
    fault(UnsupportedSpaceError, space, "", text)


class _Sequence(ArraySpace):
    """What is not defined for one sequence of any length."""

    def get_total_dimension(self) -> int:
        _no_length(self, "total dimension")

    def get_origin(self) -> Any:
        _no_length(self, "origin")

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        _no_length(self, "origin batch")

    def batch_rows(self, batch: Batch) -> int:
        return 1


@dataclass(frozen=True, init=False, repr=False)
class VectorSequenceSpace(_Sequence):
    """One sequence of rows of `dim` numbers: (time, feature).

    Parameters
    ----------
    dim : int
        Numbers at each time.
    dtype : dtype, optional
        None keeps the dtype that comes.

    Examples
    --------
    >>> import numpy as np
    >>> VectorSequenceSpace(3).np_batch_size(np.zeros((100, 3)))
    1
    """

    dim: int = 1

    @check_arguments(SpaceTypeError, but=("shape", "axes", "components", "sparse"))
    def __init__(
        self,
        dim: int,
        dtype: DTypeLike | None = None,
        *,
        validate_callbacks: Iterable[Any] = (),
        np_validate_callbacks: Iterable[Any] = (),
    ) -> None:
        self._set_callbacks(validate_callbacks, np_validate_callbacks)
        self._set(dim=positive(dim, "VectorSequenceSpace: dim"))
        self._set_dtype(dtype)

    def __repr__(self) -> str:
        dtype = "" if self.dtype is None else f", dtype={self.dtype.name!r}"
        return f"VectorSequenceSpace(dim={self.dim}{dtype})"

    def axis_names(self) -> tuple[str, str]:
        return ("time", "feature")

    def sizes(self, n: int) -> tuple[int, int]:
        return (n, self.dim)


@dataclass(frozen=True, init=False, repr=False)
class IndexSequenceSpace(_Sequence, LabelRows):
    """One sequence of rows of `dim` labels: (time, index).

    Parameters
    ----------
    max_labels : int or None
        How many labels there are; None: not known yet.
    dim : int
        Labels at each time.
    dtype : integer dtype, optional
        None keeps the dtype that comes.
    """

    def axis_names(self) -> tuple[str, str]:
        return ("time", "index")


def _width(dim: Any) -> int:
    width = whole(dim, "VectorSpace: dim")
    if width < 0:
        raise SpaceError(f"VectorSpace: dim must be 0 or more, found {width}")
    return width
