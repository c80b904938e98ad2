"""Subsets, lazy attributes, paths of data, and copies of files on a disk of this machine.

The rules of subsets are the old ones: negative rows never count from the end, slices are never
cut to fit, and what continues without a gap is a slice. `list_or_slice` is what old code
compares; beside it stands the same as an int64 array, by which rows are found quickly.

Lazy attributes are left out of pickles, and loaded again when they are first asked for. The
old mechanism put its `__getstate__` where a class had none. Since Python 3.11 every object
has one, so that it silently did nothing; here only a `__getstate__` that the class or a base
of it wrote counts.

``config.local_data_path`` (``FUEL_LOCAL_DATA_PATH``) names the folder of copies; without it
files are read where they are. They also are on any doubt: a copy of another size or older
than the file, a folder that cannot be written, a disk that would be more than 90 % full.
"""

from __future__ import annotations

import numbers
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

import h5py
import numpy as np
import numpy.typing as npt

from labeled.compat.errors import OldOSError, OldTypeError, OldValueError
from labeled.compat.fuel.config_parser import ConfigurationError, config

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


# ---------------------------------------------------------------- lazy attributes
Class = TypeVar("Class", bound=type)


def do_not_pickle_attributes(*lazy_attributes: str) -> Callable[[Class], Class]:
    """Make attributes of a class lazy: not pickled, set by `load` when they are missing.

    Parameters
    ----------
    *lazy_attributes : str
        Names. The values are kept under the same names with an underscore before them.

    Returns
    -------
    class decorator

    Raises
    ------
    OldValueError
        If the class has no method `load`; when pickling, if one of the attributes is an
        iterator; when reading one, if `load` did not set it.

    Examples
    --------
    >>> @do_not_pickle_attributes("squares")
    ... class Table:
    ...     def load(self):
    ...         self.squares = [n * n for n in range(4)]
    >>> Table().squares
    [0, 1, 4, 9]
    """

    def getstate(self: Any) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in lazy_attributes:
            if isinstance(state.pop("_" + name, None), Iterator):
                raise OldValueError(
                    f"{name!r} of {type(self).__name__} is an iterator: its place would be lost"
                )
        return state

    def decorate(cls: Class) -> Class:
        if not hasattr(cls, "load"):
            raise OldValueError(f"{cls.__name__} has lazy attributes, so it needs a method load()")
        for name in lazy_attributes:
            setattr(cls, name, _lazy(name))
        if getattr(cls, "__getstate__", None) is getattr(object, "__getstate__", None):
            setattr(cls, "__getstate__", getstate)  # noqa: B010 (a class)
        return cls

    return decorate


def _lazy(name: str) -> property:
    held = "_" + name

    def get(self: Any) -> Any:
        if not hasattr(self, held):
            self.load()
        if not hasattr(self, held):
            raise OldValueError(f"load() of {type(self).__name__} does not set {name!r}")
        return getattr(self, held)

    return property(get, lambda self, value: setattr(self, held, value))


def find_in_data_path(filename: str) -> str:
    """Return the path of a file in the first folder of ``config.data_path`` that has it.

    Raises
    ------
    ConfigurationError
        If ``config.data_path`` is not set.
    OldOSError
        If none has it.
    """
    folders = config.data_path
    if not folders:
        raise ConfigurationError(
            f"data_path is not set, so {filename!r} is not found; assign config.data_path, or set "
            "FUEL_DATA_PATH"
        )
    for folder in folders:
        path = os.path.join(os.path.expanduser(os.path.expandvars(folder)), filename)
        if os.path.isfile(path):
            return path
    raise OldOSError(f"{filename!r} is in none of the folders of data_path, {list(folders)}")


# ---------------------------------------------------------------- local copies
MAX_DISK_USE = 0.9


def cache_file(filename: str) -> str:
    """Return the path of a local copy of a file, made if there is none; else its own path."""
    folder = config.local_data_path
    if not folder or not os.path.isfile(filename):
        return filename
    folder = os.path.abspath(os.path.expanduser(os.path.expandvars(folder)))
    path = os.path.abspath(filename)
    if path.startswith(os.path.join(folder, "")):
        return filename
    copy = os.path.join(folder, os.path.splitdrive(path)[1].lstrip(os.sep))
    try:
        there = os.stat(path)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        if not os.path.exists(copy):
            disk = shutil.disk_usage(folder)
            if disk.used + there.st_size > MAX_DISK_USE * disk.total:
                return filename
            with tempfile.TemporaryDirectory(dir=os.path.dirname(copy)) as beside:
                part = os.path.join(beside, "part")
                shutil.copy2(path, part)
                os.replace(part, copy)  # it appears under its name only once it is whole
        here = os.stat(copy)
    except OSError:
        return filename
    current = here.st_size == there.st_size and here.st_mtime >= there.st_mtime
    return copy if current else filename
