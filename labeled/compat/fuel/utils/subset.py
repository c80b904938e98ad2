"""Rows of a source as Fuel kept them: one slice, or a sorted list without repeats.

The rules are the old ones: negative rows never count from the end, slices are never
cut to fit, and what continues without a gap is a slice. `list_or_slice` is what old code
compares; beside it stands the same as an int64 array, by which rows are found quickly.
"""

from __future__ import annotations

import numbers
from functools import cached_property
from typing import Any, TypeGuard

import h5py
import numpy as np
import numpy.typing as npt

from labeled.compat.errors import OldTypeError, OldValueError

Rows = npt.NDArray[np.int64]


class Subset:
    """Some rows of a source of `original_num_examples` rows.

    Parameters
    ----------
    list_or_slice : list of int, or slice with step None or 1
        A list is sorted and loses its repeats; without gaps it becomes a slice.
    original_num_examples : int
        Rows of the source.

    Raises
    ------
    OldValueError
        If a row is negative or too large, a slice has another step, begins at or behind
        the end of the source, or ends before it begins.

    Examples
    --------
    >>> Subset([3, 1, 2, 2], 10).list_or_slice, Subset([5, 1], 10).list_or_slice
    (slice(1, 4, None), [1, 5])
    >>> (Subset(slice(0, 4), 10) + Subset(slice(4, 6), 10)).list_or_slice
    slice(0, 6, 1)
    """

    def __init__(self, list_or_slice: Any, original_num_examples: int) -> None:
        n = original_num_examples
        self.original_num_examples = n
        self.list_or_slice: Any
        if _is_slice(list_or_slice):
            _check_slice(list_or_slice, n)
            self.list_or_slice = list_or_slice
        else:
            _check_list(list_or_slice, n)
            self.list_or_slice = _simplest(list_or_slice)

    def __repr__(self) -> str:
        return f"Subset({self.list_or_slice!r}, {self.original_num_examples})"

    @classmethod
    def subset_of(cls, subset: Subset, list_or_slice: Any) -> Subset:
        """Return some rows of a subset, sorted and without repeats again."""
        return cls(subset[list_or_slice], subset.original_num_examples)

    @staticmethod
    def empty_subset(original_num_examples: int) -> Subset:
        """Return the subset without rows."""
        return Subset([], original_num_examples)

    @cached_property
    def is_list(self) -> bool:
        return not _is_slice(self.list_or_slice)

    @cached_property
    def num_examples(self) -> int:
        return len(self.list_or_slice if self.is_list else self._range)

    @property
    def is_empty(self) -> bool:
        return self.num_examples == 0

    @cached_property
    def _range(self) -> range:
        """The rows of a slice."""
        return range(*self.slice_to_numerical_args(self.list_or_slice, self.original_num_examples))

    @cached_property
    def _rows(self) -> Rows:
        """The rows of a list."""
        return np.asarray(self.list_or_slice, np.int64)

    def get_list_representation(self) -> list[int]:
        """Return the rows as a list.

        Raises
        ------
        OldValueError
            If this is a slice without rows.
        """
        if self.is_list:
            rows: list[int] = self.list_or_slice
            return rows
        if self.is_empty:
            raise OldValueError(f"{self.list_or_slice} has no rows, and so no list of them")
        return list(self._range)

    def __add__(self, other: Subset) -> Subset:
        """Join two subsets of one source; rows of both count once.

        Raises
        ------
        OldValueError
            If they are of sources of different lengths, or one is an empty slice that does
            not touch the other.
        """
        n = self.original_num_examples
        if n != other.original_num_examples:
            raise OldValueError(
                f"subsets of {n} and of {other.original_num_examples} rows cannot be joined"
            )
        if self.is_empty:
            return other
        if not (self.is_list or other.is_list):
            one, two = self._range, other._range
            if max(one.start, two.start) <= min(one.stop, two.stop):
                return Subset(slice(min(one.start, two.start), max(one.stop, two.stop), 1), n)
        return Subset(self.get_list_representation() + other.get_list_representation(), n)

    def __getitem__(self, key: Any) -> Any:
        """Translate a request among the rows of this subset to rows of the source.

        Parameters
        ----------
        key : slice or list of int
            ``slice(None)`` gives what is stored; a list keeps order and repeats.

        Raises
        ------
        OldValueError
            If the request is empty, negative or beyond the end.
        OldTypeError
            If it is an integer.
        """
        if isinstance(key, numbers.Integral):
            raise OldTypeError(f"a subset takes a slice or a list, found the integer {key}")
        if isinstance(key, slice) and key == slice(None):
            return self.list_or_slice
        if not _is_slice(key):
            self._list_request_sanity_check(key, self.num_examples)
            return self._translate(key).tolist()
        self._slice_request_sanity_check(key, self.num_examples)
        key = slice(key.start, key.stop, key.step)  # of ranges, too
        if self.is_list:
            return self.list_or_slice[key]
        chosen = self._range[key]
        return slice(chosen.start, chosen.stop, chosen.step)

    def _translate(self, request: Any) -> Rows:
        """Return the rows at checked positions."""
        positions = np.asarray(request, np.int64)
        return self._rows[positions] if self.is_list else positions + self._range.start

    @staticmethod
    def slice_to_numerical_args(slice_: Any, num_examples: int) -> tuple[int, int, int]:
        """Return start, stop and step as numbers."""
        start = slice_.start if slice_.start is not None else 0
        stop = slice_.stop if slice_.stop is not None else num_examples
        return start, stop, slice_.step if slice_.step is not None else 1

    @staticmethod
    def _list_request_sanity_check(request: Any, num_examples: int) -> None:
        if not request:
            raise OldValueError("a list of no rows is asked for")
        _check_list(request, num_examples)

    @staticmethod
    def _slice_request_sanity_check(request: Any, num_examples: int) -> None:
        start, stop = request.start, request.stop
        if any(number is not None and number < 0 for number in (start, stop, request.step)):
            raise OldValueError(f"{request} has negative numbers, which do not count from the end")
        if max(stop or 0, 0 if start is None else start + 1) > num_examples:
            raise OldValueError(f"{request} is out of range: there are {num_examples} rows")
        if start is not None and stop is not None and start >= stop:
            raise OldValueError(f"{request} asks for no rows")

    @staticmethod
    def sorted_fancy_indexing(indexable: Any, request: Any) -> Any:
        """Read listed rows in ascending order, and return them in the order asked.

        Parameters
        ----------
        indexable : array or dataset with `shape` and `dtype`
        request : list of int
        """
        if len(request) <= 1:
            return indexable[request]
        rows = np.asarray(request)
        order = np.argsort(rows, kind="stable")
        data = np.empty((len(rows), *indexable.shape[1:]), indexable.dtype)
        data[order] = indexable[rows[order], ...]
        return data

    def index_within_subset(
        self, indexable: Any, subset_request: Any, sort_indices: bool = False
    ) -> Any:
        """Return what a request among the rows of this subset means in `indexable`.

        Parameters
        ----------
        indexable : array, dataset or list
        subset_request : int, slice or list of int
            An int gives one row without its axis.
        sort_indices : bool
            Read lists in ascending order; for what needs it.
        """
        if isinstance(subset_request, int | numbers.Integral):
            return indexable[self._row(int(subset_request))]
        request = self[subset_request]
        if _is_slice(request):
            return indexable[slice(request.start, request.stop, request.step)]
        if hasattr(indexable, "take_rows"):  # reads any order, each row once
            return indexable.take_rows(request)
        if sort_indices:
            return self.sorted_fancy_indexing(indexable, request)
        if isinstance(indexable, np.ndarray | h5py.Dataset):
            return indexable[request]
        return [indexable[row] for row in request]

    def _row(self, position: int) -> int:
        """Return the row at one position."""
        if not 0 <= position < self.num_examples:
            raise OldValueError(f"row {position} is asked for; there are {self.num_examples} rows")
        return int((self.list_or_slice if self.is_list else self._range)[position])


def _is_slice(request: Any) -> TypeGuard[slice]:
    """Whether a request is taken for a slice: all that has a step, ranges included."""
    return hasattr(request, "step")


def _check_list(rows: Any, n: int) -> None:
    if not rows:  # an array of several rows has no truth value: it was, and is, a ValueError
        return
    if min(rows) < 0 or max(rows) >= n:
        raise OldValueError(
            f"rows {min(rows)} to {max(rows)} are listed, but there are rows 0 to {n - 1}; "
            "negative rows do not count from the end"
        )


def _check_slice(rows: slice, n: int) -> None:
    numbers_given = [x for x in (rows.start, rows.stop, rows.step) if x is not None]
    if any(number < 0 for number in numbers_given):
        raise OldValueError(f"{rows} has negative numbers, which do not count from the end")
    if rows.step not in (None, 1):
        raise OldValueError(f"{rows} has step {rows.step}; a subset is a slice with step 1")
    if (rows.stop is not None and rows.stop > n) or (rows.start is not None and rows.start >= n):
        raise OldValueError(f"{rows} is out of range: there are {n} rows")
    if rows.start is not None and rows.stop is not None and rows.start > rows.stop:
        raise OldValueError(f"{rows} ends before it begins")


def _simplest(rows: Any) -> list[int] | slice:
    """Return sorted rows without repeats; as a slice where they have no gaps."""
    found: Rows = np.unique(np.asarray(rows, np.int64))
    if len(found) and found[-1] - found[0] == len(found) - 1:
        return slice(int(found[0]), int(found[-1]) + 1, None)
    listed: list[int] = found.tolist()
    return listed
