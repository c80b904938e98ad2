"""Writing Fuel's split table: one row for each (split, source) pair of a file.

:func:`split_array` lays out the seven fields as their first writer did, with one
difference: the width of a text is counted in bytes once encoded, so that a name beyond
ASCII is never cut. :func:`write_table` turns rows into such an array: a range becomes
start and stop, a list becomes a dataset of row numbers that the table refers to, and lists
that are equal are written once. What rows *mean* is checked by whoever calls.

Tables beyond 64 KiB need a file whose attributes may be stored densely (HDF5 1.10 and
newer, see :mod:`.writing`); in an older one HDF5 refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from labeled.errors import SplitError, SplitTypeError
from labeled.formats.hdf5.fuel import TABLE
from labeled.formats.hdf5.safety import to_text
from labeled.formats.header import Rows

Pair = Sequence[Any]
"""``(start, stop)``, ``(start, stop, indices)`` or ``(start, stop, indices, comment)``."""

NO_COMMENT = "."


def split_array(
    splits: Mapping[str, Mapping[str, Pair]], *, sources: Iterable[str] = ()
) -> np.ndarray[Any, Any]:
    """Return the table of a file as the value of its root attribute ``split``.

    Rows are in the order of `splits`, and by name of source within a split. A pair that is
    not given is not available. Nothing is compared with the data.

    Parameters
    ----------
    splits : mapping of split to mapping of source to tuple
        ``(start, stop)``; an ``h5py.Reference`` to a dataset of row numbers (or None) and a
        comment may follow. With a reference, start and stop do not matter.
    sources : iterable of str
        Sources to list besides those that `splits` name: they are in the file, and no
        split has them.

    Returns
    -------
    structured array of shape (splits x sources,)
        Fields ``split``, ``source``, ``start``, ``stop``, ``indices``, ``available`` and
        ``comment``; texts are UTF-8 in fixed bytes, an empty comment is a full stop.

    Raises
    ------
    SplitError
        If there is no pair at all, or a tuple has fewer than two or more than four items.
    SplitTypeError
        If a comment is no text.

    Examples
    --------
    >>> table = split_array({"train": {"x": (0, 90), "y": (0, 90)}, "test": {"x": (90, 100)}})
    >>> [(str(r["split"], "utf8"), str(r["source"], "utf8"), int(r["stop"])) for r in table]
    [('train', 'x', 90), ('train', 'y', 90), ('test', 'x', 100), ('test', 'y', 0)]
    >>> table["available"].tolist()
    [True, True, True, False]
    """
    names = sorted({source for pairs in splits.values() for source in pairs} | set(sources))
    if not splits or not names:
        raise SplitError("a split table needs at least one split with one source; found none")
    rows = [
        _row(split, source, pairs.get(source))
        for split, pairs in splits.items()
        for source in names
    ]
    table: np.ndarray[Any, Any] = np.empty(len(rows), dtype=_dtype(rows))
    for place, row in zip(table, rows, strict=True):
        for name, value in row.items():
            place[name] = value
    return table


def _row(split: str, source: str, pair: Pair | None) -> dict[str, Any]:
    """Return the fields of one pair; one that is not given is there, but not available."""
    available = pair is not None
    items: list[Any] = [0, 0] if pair is None else list(pair)
    if not 2 <= len(items) <= 4:
        raise SplitError(
            f"split {split!r} of source {source!r} is {tuple(items)!r}; expected (start, stop), "
            f"and perhaps a reference to row numbers and a comment"
        )
    start, stop, reference, comment = items + [None, ""][len(items) - 2 :]
    if not isinstance(comment, str):
        raise SplitTypeError(
            f"the comment on split {split!r} of source {source!r} is {comment!r}; give a text"
        )
    return {
        "split": split.encode(),
        "source": source.encode(),
        "start": int(start),
        "stop": int(stop),
        "indices": h5py.Reference() if reference is None else reference,
        "available": available,
        "comment": (comment or NO_COMMENT).encode(),
    }


def _dtype(rows: Sequence[Mapping[str, Any]]) -> np.dtype[Any]:
    def text(name: str) -> str:
        return f"S{max(max(len(row[name]) for row in rows), 1)}"

    return np.dtype(
        [
            ("split", text("split")),
            ("source", text("source")),
            ("start", np.int64),
            ("stop", np.int64),
            ("indices", h5py.ref_dtype),
            ("available", np.bool_),
            ("comment", text("comment")),
        ]
    )


def write_table(
    base: h5py.Group,
    splits: Mapping[str, Mapping[str, Rows]],
    sources: Iterable[str] = (),
    *,
    comments: Mapping[tuple[str, str], str] | None = None,
    scales: bool = True,
) -> None:
    """Write the split table of a file, and the lists of rows it refers to.

    Parameters
    ----------
    base : h5py.Group
        The root of a file open for writing; a table that is there is replaced.
    splits : mapping of split to mapping of source to rows
        A range with step 1, or an int64 array (n,).
    sources : iterable of str
        Sources in no split, listed all the same.
    comments : mapping of (split, source) to str, optional
    scales : bool
        Make each list a dimension scale, which netCDF readers take for a coordinate; they
        refuse datasets whose axes have no scale.
    """
    said = {} if comments is None else comments
    written: dict[bytes, h5py.Reference] = {}
    pairs: dict[str, dict[str, Pair]] = {}
    for split, by_source in splits.items():
        pairs[split] = {}
        for source, rows in by_source.items():
            if isinstance(rows, range):
                pairs[split][source] = (rows.start, rows.stop, None, said.get((split, source), ""))
                continue
            key = np.ascontiguousarray(rows, np.int64).tobytes()
            if key not in written:
                alone = len({id(r) for r in by_source.values()}) == 1
                name = split if alone else f"{split}_{source}"
                written[key] = _write_list(base, name, rows, scales)
            pairs[split][source] = (-1, -1, written[key], said.get((split, source), ""))
    base.attrs[TABLE] = split_array(pairs, sources=sources)


def comments_of(base: h5py.Group) -> dict[tuple[str, str], str]:
    """Return the comments of a split table, by split and source."""
    said: dict[tuple[str, str], str] = {}
    for row in np.atleast_1d(base.attrs[TABLE]):
        if "comment" in (row.dtype.names or ()):
            comment = _plain(row["comment"])
            if comment not in ("", NO_COMMENT):
                said[_plain(row["split"]), _plain(row["source"])] = comment
    return said


def remove_table(base: h5py.Group) -> dict[tuple[str, str], str]:
    """Remove a split table and the lists of rows it refers to; return its comments."""
    said = comments_of(base)
    table = np.atleast_1d(base.attrs[TABLE])
    for row in table:
        reference = np.ravel(row["indices"])[0] if "indices" in (table.dtype.names or ()) else None
        if isinstance(reference, h5py.Reference) and reference:
            name = h5py.h5r.get_name(reference, base.file.id)
            if name is not None and name in base:  # several pairs may share one list
                del base[name]
    del base.attrs[TABLE]
    return said


def _plain(value: Any) -> str:
    value = np.ravel(value)[0]
    return to_text(bytes(value)) if isinstance(value, bytes) else str(value)


def _write_list(
    base: h5py.Group, name: str, rows: np.ndarray[Any, Any], scales: bool
) -> h5py.Reference:
    dataset = base.create_dataset(free_name(base, f"{name}_indices"), data=rows, dtype=np.int64)
    if scales:
        dataset.make_scale(dataset.name.rsplit("/", 1)[-1])
    return dataset.ref


def free_name(base: h5py.Group, wanted: str) -> str:
    """Return a name that nothing in a group has yet; a ``/`` in `wanted` makes no group."""
    name, number = wanted.replace("/", "_"), 1
    while name in base:
        number += 1
        name = f"{wanted.replace('/', '_')}_{number}"
    return name
