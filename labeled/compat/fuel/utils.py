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
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard, TypeVar

import h5py
import numpy as np
import numpy.typing as npt

from labeled.compat.errors import check, old
from labeled.compat.fuel.config_parser import ConfigurationError, config
from labeled.formats.replacing import replacing

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
    ValueError
        If a row is negative or too large, a slice has another step, begins at or behind
        the end of the source, or ends before it begins.
    TypeError
        If a row is not an integer.

    Examples
    --------
    >>> Subset([3, 1, 2, 2], 10).list_or_slice, Subset([5, 1], 10).list_or_slice
    (slice(1, 4, None), [1, 5])
    >>> (Subset(slice(0, 4), 10) + Subset(slice(4, 6), 10)).list_or_slice
    slice(0, 6, 1)
    """

    def __init__(self, list_or_slice: Any, original_num_examples: int) -> None:
        n, self.is_list = original_num_examples, not _is_slice(list_or_slice)
        self._rows: Any
        if self.is_list:
            _check_list(list_or_slice, n)
            rows: Rows = np.unique(np.asarray(list_or_slice, np.int64))
            list_or_slice, self._rows = rows.tolist(), rows
            if rows.size and rows[-1] - rows[0] == rows.size - 1:  # without gaps
                list_or_slice, self.is_list = slice(int(rows[0]), int(rows[-1]) + 1, None), False
        if not self.is_list:
            self._slice_request_sanity_check(list_or_slice, n, least=0)
            check(list_or_slice.step in (None, 1), f"{list_or_slice} has a step other than 1")
            self._rows = range(*self.slice_to_numerical_args(list_or_slice, n))
        self.list_or_slice, self.original_num_examples = list_or_slice, n
        self.num_examples, self.is_empty = len(self._rows), not len(self._rows)

    @classmethod
    def subset_of(cls, subset: Subset, list_or_slice: Any) -> Subset:
        """Return some rows of a subset, sorted and without repeats again."""
        return cls(subset[list_or_slice], subset.original_num_examples)

    @staticmethod
    def empty_subset(original_num_examples: int) -> Subset:
        """Return the subset without rows."""
        return Subset([], original_num_examples)

    def get_list_representation(self) -> list[int]:
        """Return the rows as a list.

        Raises
        ------
        ValueError
            If this is a slice without rows.
        """
        check(self.is_list or not self.is_empty, f"{self.list_or_slice} has no rows to list")
        return list(self.list_or_slice if self.is_list else self._rows)

    def __add__(self, other: Subset) -> Subset:
        """Join two subsets of one source; rows of both count once.

        Raises
        ------
        ValueError
            If they are of sources of different lengths, or one is an empty slice that does
            not touch the other.
        """
        n, other_n = self.original_num_examples, other.original_num_examples
        check(n == other_n, f"subsets of {n} and of {other_n} rows are not joined")
        if self.is_empty:
            return other
        if not (self.is_list or other.is_list):
            one, two = self._rows, other._rows
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
        ValueError
            If the request is empty, negative or beyond the end.
        TypeError
            If it is an integer, or a list of other numbers.
        """
        if isinstance(key, numbers.Integral):
            raise old(TypeError, f"a subset takes a slice or a list, found the integer {key}")
        if isinstance(key, slice) and key == slice(None):
            return self.list_or_slice
        if not _is_slice(key):
            self._list_request_sanity_check(key, self.num_examples)
            places = np.asarray(key, np.int64)
            found = self._rows[places] if self.is_list else places + self._rows.start
            return found.tolist()
        self._slice_request_sanity_check(key, self.num_examples)
        key = slice(key.start, key.stop, key.step)  # of ranges, too
        if self.is_list:
            return self.list_or_slice[key]
        chosen = self._rows[key]
        return slice(chosen.start, chosen.stop, chosen.step)

    @staticmethod
    def slice_to_numerical_args(slice_: Any, num_examples: int) -> tuple[int, int, int]:
        """Return start, stop and step as numbers."""
        stop = num_examples if slice_.stop is None else slice_.stop
        return slice_.start or 0, stop, slice_.step or 1

    @staticmethod
    def _list_request_sanity_check(request: Any, num_examples: int) -> None:
        check(len(request), "a list of no rows is asked for")
        _check_list(list(request) if len(request) == 1 else request, num_examples)

    @staticmethod
    def _slice_request_sanity_check(request: Any, num_examples: int, least: int = 1) -> None:
        """Check a slice of `least` rows or more."""
        start, stop, step = request.start, request.stop, request.step
        if any(number is not None and number < 0 for number in (start, stop, step)):
            raise old(ValueError, f"{request}: negative numbers do not count from the end")
        if max(stop or 0, 0 if start is None else start + 1) > num_examples:
            raise old(ValueError, f"{request} is out of range: there are {num_examples} rows")
        if start is not None and stop is not None and start > stop - least:
            raise old(ValueError, f"{request} ends before it begins, or has no rows")

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
        rows, places = np.unique(request, return_inverse=True)
        return indexable[rows, ...][places]

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
            place, n = int(subset_request), self.num_examples
            if not 0 <= place < n:
                raise old(ValueError, f"row {place} is asked for; there are {n} rows")
            return indexable[int(self._rows[place])]
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


def _is_slice(request: Any) -> TypeGuard[slice]:
    """Whether a request is taken for a slice: all that has a step, ranges included."""
    return hasattr(request, "step")


def _check_list(rows: Any, n: int) -> None:
    if rows and (min(rows) < 0 or max(rows) >= n):  # an array has no truth value: a ValueError
        raise old(ValueError, f"rows {min(rows)} to {max(rows)} are not all among 0 to {n - 1}")
    number = next((row for row in rows if isinstance(row, float | np.floating)), None)
    if number is not None:
        raise old(TypeError, f"a subset takes integers, found {number}")


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
    ValueError
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
            iterates = isinstance(state.pop("_" + name, None), Iterator)
            check(not iterates, f"{name!r} is an iterator: its place is lost")
        return state

    def decorate(cls: Class) -> Class:
        check(hasattr(cls, "load"), f"{cls.__name__} has lazy attributes, so it needs load()")
        for name in lazy_attributes:
            setattr(cls, name, _lazy(name))
        if getattr(cls, "__getstate__", None) is getattr(object, "__getstate__", None):
            setattr(cls, "__getstate__", getstate)  # noqa: B010 (a class)
        return cls

    return decorate


def _lazy(name: str) -> Any:
    def loaded(self: Any) -> Any:
        self.load()
        check(hasattr(self, "_" + name), f"load() of {type(self).__name__} does not set {name!r}")
        return getattr(self, "_" + name)

    return kept(name, loaded)


def kept(name: str, absent: Callable[[Any], Any]) -> Any:
    """Return a property kept under its name with an underscore; `absent` gives it until then."""
    held = "_" + name

    def get(self: Any) -> Any:
        return getattr(self, held) if hasattr(self, held) else absent(self)

    return property(get, lambda self, value: setattr(self, held, value))


def find_in_data_path(filename: str) -> str:
    """Return the path of a file in the first folder of ``config.data_path`` that has it.

    Raises
    ------
    ConfigurationError
        If ``config.data_path`` is not set.
    OSError
        If none has it.
    """
    folders = config.data_path
    missing = "data_path is not set; assign config.data_path, or set FUEL_DATA_PATH"
    check(folders, missing, ConfigurationError)
    for folder in folders:
        path = os.path.join(os.path.expanduser(os.path.expandvars(folder)), filename)
        if os.path.isfile(path):
            return path
    raise old(OSError, f"{filename!r} is in none of the folders of data_path, {list(folders)}")


# ---------------------------------------------------------------- local copies
MAX_DISK_USE = 0.9


def cache_file(filename: str) -> str:
    """Return the path of a local copy of a file, made if there is none; else its own path."""
    folder = config.local_data_path
    folder = os.path.abspath(os.path.expanduser(os.path.expandvars(folder))) if folder else ""
    path = os.path.abspath(filename)
    if not folder or not os.path.isfile(path) or path.startswith(os.path.join(folder, "")):
        return filename
    copy = os.path.join(folder, os.path.splitdrive(path)[1].lstrip(os.sep))
    try:
        there = os.stat(path)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        if not os.path.exists(copy):
            disk = shutil.disk_usage(folder)
            if disk.used + there.st_size > MAX_DISK_USE * disk.total:
                return filename
            with replacing(copy) as part:  # it appears under its name only once it is whole
                shutil.copy2(path, part)
        here = os.stat(copy)
    except OSError:
        return filename
    current = here.st_size == there.st_size and here.st_mtime >= there.st_mtime
    return copy if current else filename
