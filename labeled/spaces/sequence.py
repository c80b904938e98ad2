"""One sequence at a time: (time, feature) or (time, index), of any length.

A sequence is one example however long it is, so its batch size is always 1 and it
has no total dimension. Sequences convert among themselves only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from numpy.typing import DTypeLike

from labeled._validation import check_arguments
from labeled.errors import SpaceTypeError, UnsupportedSpaceError
from labeled.spaces.base import ArraySpace, Space
from labeled.spaces.checks import Batch, fault, positive
from labeled.spaces.vector import LabelRows


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

    def make_batch(
        self,
        n: int | None = None,
        *,
        dtype: Any = None,
        chunks: Any = "auto",
        dims: Any = None,
    ) -> Any:
        """Return a lazy sequence of `n` times: here `n` is a length, not a count of rows."""
        return super().make_batch(n, dtype=dtype, chunks=chunks, dims=dims)

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
