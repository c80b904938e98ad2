"""Splits as people write them, checked against the sources before anything is written.

``{"train": (0, 90)}``, slices, ranges, lists of rows, masks, or any of these by source all
become ``split -> source -> rows``, where rows are a range with step 1 or an int64 array.
Splits that share rows are allowed, but said, since an example in two splits is nearly
always a mistake.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from labeled._validation import check_arguments
from labeled.errors import (
    SplitError,
    SplitTypeError,
    UnknownNameError,
    WriteError,
    did_you_mean,
    warn,
)
from labeled.formats.bytesource import check_same
from labeled.formats.hdf5.fuel import remove_table, write_table
from labeled.formats.hdf5.own import read_checksums, read_statistics, write_own
from labeled.formats.hdf5.scan import scan
from labeled.formats.hdf5.writing import changed_file
from labeled.formats.header import FileHeader, Rows
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import check_target, clone, replacing

Splits = dict[str, dict[str, Rows]]


@check_arguments(but=("path",))
def write_splits(
    path: str | os.PathLike[str], splits: Mapping[str, Any], *, overwrite: bool = False
) -> str:
    """Add splits to a file of examples; its rows stay as they are.

    The file is copied (by reference, where the file system can), and the copy takes its place
    once it is complete.

    Parameters
    ----------
    path : path
        An HDF5 file of examples, with splits or without.
    splits : mapping of split to rows
        As for :func:`labeled.write`. Splits that the file has already stay.
    overwrite : bool
        Replace splits of the same names.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    SplitError
        If rows lie outside their source, sources of a split differ in length, or the file has a
        split of that name.
    UnknownNameError
        If a split names a source that the file does not have.
    WriteError
        If the file cannot be written, or would be read otherwise with a split table. It is as
        it was before.

    Warns
    -----
    LabeledWarning
        If splits overlap.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = labeled.write(os.path.join(tempfile.mkdtemp(), "x.hdf5"), {"x": np.arange(6)})
    >>> path = labeled.write_splits(path, {"train": (0, 4), "test": [5, 4]})
    >>> labeled.open_dataset(path).split("test")["x"].values
    array([5, 4])
    """
    check_hdf5(path, "adding splits")
    header = scan(path)
    where = header.stamp.path
    table = as_splits(splits, {name: source.n_rows for name, source in header.sources.items()})
    old = header.splits if header.kind == "fuel" else {}
    both = sorted(old.keys() & table.keys())
    if both and not overwrite:
        raise SplitError(
            f"file {where!r} has splits {both} already; give others, or pass overwrite=True to "
            f"replace these"
        )
    table = {**{split: dict(by_source) for split, by_source in old.items()}, **table}
    warn_of_overlaps(table)
    statistics = read_statistics(where)
    for known in statistics.values():
        for split in both:
            known.get("splits", {}).pop(split, None)
    target = check_target(where, overwrite=True)
    with replacing(target, overwrite=True) as part:
        clone(target, part)
        with changed_file(part, mark=False) as file:
            scales = any(len(file[source.key].dims[0]) for source in header.sources.values())
            comments = remove_table(file["/"]) if header.kind == "fuel" else None
            write_table(file["/"], table, list(header.sources), comments=comments, scales=scales)
            write_own(file, statistics, read_checksums(where))
        _check_same(header, scan(part))
    return target


def _check_same(old: FileHeader, new: FileHeader) -> None:
    """Refuse a file whose sources are others with a split table, or that was changed meanwhile."""
    check_same(old.stamp, "try again")
    for name, source in old.sources.items():
        there = new.sources.get(name)
        if there is None or (there.dims, there.shape, there.dtype, there.cf, there.coords) != (
            (source.dims, source.shape, source.dtype, source.cf, source.coords)
        ):
            raise WriteError(
                f"source {name!r} of {old.stamp.path!r} would be read otherwise beside splits, as "
                f"files of other programs are; make a new file with labeled.convert(..., split=)"
            )


def as_splits(given: Any, n_rows: Mapping[str, int | None]) -> Splits:
    """Return splits in one form, checked as far as the numbers of rows are known.

    Parameters
    ----------
    given : mapping of split to rows, or to mapping of source to rows
        Rows are ``(start, stop)``, a slice or range, integers or a boolean mask. None, and
        a source left out, mean that the split does not have the source.
    n_rows : mapping of source to int
        None where the number is not known yet; see :func:`check_inside`.

    Raises
    ------
    SplitError
        If rows lie outside their source, or sources of a split differ in length.
    SplitTypeError
        If something names no rows.
    UnknownNameError
        If a split names a source that is not written.

    Examples
    --------
    >>> as_splits({"train": (0, 3), "test": [4, 3]}, {"x": 5})
    {'train': {'x': range(0, 3)}, 'test': {'x': array([4, 3])}}
    """
    if not isinstance(given, Mapping):
        raise SplitTypeError(f"splits={given!r:.60} is no mapping; give {{'train': (0, 90), ...}}")
    if not given:
        raise SplitError("splits={} names no split; leave it out to write a file without splits")
    out: Splits = {}
    for split, rows in given.items():
        check_split_name(split)
        by_source = rows if isinstance(rows, Mapping) else dict.fromkeys(n_rows, rows)
        out[split] = _by_source(split, by_source, n_rows)
    if not any(out.values()):
        raise SplitError(f"splits {tuple(out)} have no source at all; give at least one its rows")
    check_inside(out, n_rows)
    return out


def check_split_name(name: Any) -> None:
    """Raise :class:`SplitTypeError` for what cannot name a split."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise SplitTypeError(f"{name!r} cannot name a split; give a text")


def _by_source(
    split: str, rows: Mapping[Any, Any], n_rows: Mapping[str, int | None]
) -> dict[str, Rows]:
    out: dict[str, Rows] = {}
    done: dict[tuple[int, int | None], Rows] = {}
    for source, asked in rows.items():
        if source not in n_rows:
            raise UnknownNameError(
                f"split {split!r} names source {source!r}, which is not written; "
                f"{did_you_mean(str(source), n_rows)}"
            )
        if asked is not None:
            key = (id(asked), n_rows[source])  # sources that share a list go on sharing it
            if key not in done:
                done[key] = _rows(f"split {split!r} of source {source!r}", asked, n_rows[source])
            out[source] = done[key]
    return out


def _rows(where: str, asked: Any, n_rows: int | None) -> Rows:
    if isinstance(asked, tuple):
        if len(asked) != 2 or not all(isinstance(n, int | np.integer) for n in asked):
            raise SplitTypeError(
                f"{where} is {asked!r}; a tuple is (start, stop), other rows are a list"
            )
        return range(int(asked[0]), int(asked[1]))
    if isinstance(asked, slice):
        asked = _range_of(where, asked, n_rows)
    if isinstance(asked, range):
        return asked if asked.step == 1 else np.array(asked, np.int64)
    if np.ma.is_masked(asked):
        raise SplitTypeError(f"{where} has masked rows; leave them out with .compressed()")
    rows = np.asarray(asked)
    if rows.size == 0 and rows.ndim == 1:
        return np.empty(0, np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iub":
        raise SplitTypeError(
            f"{where} is {asked!r:.60}; give (start, stop), a slice, a range, a list of row "
            f"numbers or a boolean mask"
        )
    if rows.dtype.kind == "b":
        if n_rows is None or len(rows) != n_rows:
            raise SplitError(
                f"{where} is a mask of {len(rows)} values for "
                f"{'an unknown number of' if n_rows is None else n_rows} rows; they must agree"
            )
        return np.flatnonzero(rows)
    return np.ascontiguousarray(rows, np.int64)


def _range_of(where: str, asked: slice, n_rows: int | None) -> range:
    ends = (asked.start, asked.stop, asked.step)
    if not all(end is None or isinstance(end, int | np.integer) for end in ends):
        raise SplitTypeError(f"{where} is {asked!r}; give whole numbers")
    if n_rows is None:
        if asked.stop is None or any(n is not None and n < 0 for n in ends):
            raise SplitError(
                f"{where} is {asked!r}, but the number of rows is not known yet; give a start and "
                f"a stop that are not negative"
            )
        n_rows = int(asked.stop)
    for end in ends[:2]:
        if end is not None and not -n_rows <= end <= n_rows:
            raise SplitError(
                f"{where} is {asked!r}, but the source has {n_rows} rows; keep within them"
            )
    return range(*asked.indices(n_rows))


def check_inside(splits: Splits, n_rows: Mapping[str, int | None]) -> None:
    """Refuse rows outside their source, and splits whose sources differ in length.

    Raises
    ------
    SplitError
        Naming split, source and rows.
    """
    for split, by_source in splits.items():
        for source, rows in by_source.items():
            _check_rows(split, source, rows, n_rows[source])
        lengths = {source: len(rows) for source, rows in by_source.items()}
        if len(set(lengths.values())) > 1:
            raise SplitError(
                f"split {split!r} has different numbers of rows of its sources: {lengths}; they "
                f"must agree"
            )


def _check_rows(split: str, source: str, rows: Rows, n_rows: int | None) -> None:
    most = np.iinfo(np.int64).max if n_rows is None else n_rows
    if isinstance(rows, range):
        if not 0 <= rows.start <= rows.stop <= most:
            raise SplitError(
                f"split {split!r} of source {source!r} is rows {rows.start} to {rows.stop}, but "
                f"the source has {n_rows} rows; expected 0 <= start <= stop <= {n_rows}"
            )
    elif rows.size and (int(rows.min()) < 0 or int(rows.max()) >= most):
        at = int(np.flatnonzero((rows < 0) | (rows >= most))[0])
        raise SplitError(
            f"split {split!r} of source {source!r} lists row {rows[at]} (at position {at}), but "
            f"the source has {n_rows} rows, numbered from 0"
        )


def warn_of_overlaps(splits: Splits) -> None:
    """Warn, once, of splits that share rows, with how many."""
    told: list[str] = []
    for source in dict.fromkeys(name for by_source in splits.values() for name in by_source):
        rows = {split: by[source] for split, by in splits.items() if source in by}
        shared = shared_rows(rows)
        if shared is not None:
            one, two, count = shared
            words = "1 row" if count == 1 else f"{count:,} rows"
            told.append(f"{words} of source {source!r} (such as {one!r} and {two!r})")
    if told:
        more = f", and of {len(told) - 1} more sources" if len(told) > 1 else ""
        warn(
            f"splits overlap: more than one of them has {told[0]}{more}; an example in two "
            f"splits is usually a mistake"
        )


def shared_rows(rows: Mapping[str, Rows]) -> tuple[str, str, int] | None:
    """Return two splits that share rows, and how many rows are in more than one of all.

    Examples
    --------
    >>> shared_rows({"train": range(0, 90), "valid": range(80, 100), "test": range(100, 120)})
    ('train', 'valid', 10)
    >>> shared_rows({"train": range(0, 90), "test": np.array([95, 90])})
    """
    bounds = [_bounds(each) for each in rows.values() if len(each)]
    if _apart(bounds):
        return None
    n = max(stop for _, stop in bounds)
    seen = np.zeros(n, np.uint8)
    for each in rows.values():
        where = slice(each.start, each.stop) if isinstance(each, range) else np.unique(each)
        seen[where] = np.minimum(seen[where], 1) + 1
    count = int((seen > 1).sum())
    if count == 0:
        return None
    row = int(np.argmax(seen > 1))
    holders = [
        name
        for name, each in rows.items()
        if (row in each if isinstance(each, range) else bool((each == row).any()))
    ]
    return holders[0], holders[1], count


def _bounds(rows: Rows) -> tuple[int, int]:
    if isinstance(rows, range):
        return rows.start, rows.stop
    return int(rows.min()), int(rows.max()) + 1


def _apart(bounds: list[tuple[int, int]]) -> bool:
    """Whether stretches do not even touch each other's rows."""
    ordered = sorted(bounds)
    return all(one[1] <= two[0] for one, two in pairwise(ordered))
