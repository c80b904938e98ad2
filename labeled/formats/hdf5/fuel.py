"""Fuel's split table: which rows of which source belong to which split.

The table is the root attribute `split`, one row for each (split, source) pair; a row
holds a range or refers to a dataset of row numbers. Everything in it is checked against
the sources here, once, so that a split can later be taken without looking at the file.
Old forms are read too: six fields (without `indices`), and numbers of shape ``(1,)``.

Index lists are kept as they are, order and repeats included; the compatibility layer
sorts them where Fuel did. A list that several rows refer to is read once and shared.

Only what the table names exists in such a file. Values are left as stored, whatever CF
attributes they carry: such files are made for training, and their writers do not mean CF. Files
that this library wrote are the exception.

A table is written as its first writer did, with one difference: the width of a text is counted
in bytes once encoded, so that a name beyond ASCII is never cut. Lists that are equal are written
once. Tables beyond 64 KiB need a file whose attributes may be stored densely (HDF5 1.10 and
newer, see :mod:`.writing`); in an older one HDF5 refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from labeled.errors import SplitError, did_you_mean
from labeled.formats.hdf5.arrays import ArrayInfo, Opening
from labeled.formats.hdf5.dtypes import why_not_a_source
from labeled.formats.hdf5.headers import header_of
from labeled.formats.hdf5.safety import (
    NotThereError,
    address,
    check_claim,
    resolve,
    to_bytes,
    to_text,
)
from labeled.formats.header import Rows, SourceHeader

Integers = np.ndarray[Any, Any]
Lists = dict[int, Integers]  # lists of rows that were read before, by where they are

TABLE = "split"
FIELDS = ("split", "source", "start", "stop", "indices", "available", "comment")
NO_COMMENT = "."


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of the split table; `rows` is a range, or a reference to a list of rows."""

    number: int
    split: str
    source: str
    rows: range | h5py.Reference
    available: bool
    comment: str


@dataclass(frozen=True, slots=True)
class SplitTable:
    """The rows of a split table, as written."""

    rows: tuple[TableRow, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.split for row in self.rows))

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source the table names, sorted."""
        return tuple(sorted({row.source for row in self.rows}))

    @property
    def comments(self) -> dict[tuple[str, str], str]:
        """The comments, by split and source."""
        return {(row.split, row.source): row.comment for row in self.rows if row.comment}


def read_table(base: h5py.Group) -> SplitTable | None:
    """Return the split table of a file (or group), or None if there is none.

    An attribute called `split` that is not a table (a plain string, say) is not one.

    Raises
    ------
    SplitError
        If the table lacks a field, holds numbers of the wrong kind, is empty, or names a
        (split, source) pair twice.
    """
    if not h5py.h5a.exists(base.id, TABLE.encode()):
        return None
    where = f"the split table of file {base.file.filename!r}"
    try:
        table = np.atleast_1d(base.attrs[TABLE])
    except Exception as error:  # any exception may come of a foreign or damaged type
        raise SplitError(f"{where} cannot be read: {error}") from error
    names = table.dtype.names
    if names is None:
        return None
    missing = [repr(name) for name in FIELDS[:4] if name not in names]
    if missing:
        raise SplitError(
            f"{where} lacks {', '.join(missing)}; write it with the fields {', '.join(FIELDS)}"
        )
    if table.ndim != 1 or len(table) == 0:
        raise SplitError(
            f"{where} has shape {table.shape}; it must be a list of at "
            f"least one (split, source) pair. Delete the attribute to open every dataset"
        )
    columns: list[list[Any]] = []
    for name in FIELDS:
        values = table[name] if name in names else np.full(len(table), None)
        if name in ("start", "stop") and values.dtype.kind not in "iu":
            raise SplitError(
                f"field {name!r} of {where} is {values.dtype}; row numbers must be integers"
            )
        if values.size != len(table):  # shapes () and (1,) were both written
            raise SplitError(
                f"field {name!r} of {where} holds {values.shape[1:]} values a row; expected one"
            )
        columns.append(values.reshape(-1).tolist())
    rows: dict[tuple[str, str], TableRow] = {}
    for number, row in enumerate(zip(*columns, strict=True)):
        split, source, start, stop, listed, available, comment = row
        pair = split, source = to_text(split), to_text(source)
        if pair in rows:
            raise SplitError(
                f"{where} names split {split!r} of source {source!r} twice, in rows "
                f"{rows[pair].number} and {number}; keep one of them"
            )
        is_list = isinstance(listed, h5py.Reference) and bool(listed)
        place = listed if is_list else range(start, stop)
        comment = "" if to_text(comment) == NO_COMMENT else to_text(comment)
        is_there = available is None or bool(available)
        rows[pair] = TableRow(number, split, source, place, is_there, comment)
    return SplitTable(tuple(rows.values()))


# scanning


def arrays_in_table(opening: Opening, table: SplitTable) -> list[ArrayInfo]:
    """Return the datasets that a split table names, or those of them that are asked for.

    Raises
    ------
    SplitError
        If it names what is not there, or no dataset.
    UnsafeFileError
        If a source lies outside the file, and that is not allowed.
    """
    base, path, wanted = opening.base, opening.stamp.path, opening.options.sources
    infos: list[ArrayInfo] = []
    for name in table.sources:
        if wanted is not None and name not in wanted:
            continue
        try:
            thing, outside = resolve(base, name, allow_external=opening.options.allow_external)
        except NotThereError as error:
            if any(row.available for row in table.rows if row.source == name):
                raise SplitError(
                    f"the split table of file {path!r} names source {name!r}, but there is no such "
                    f"dataset ({error}); {did_you_mean(name, map(to_text, base.id))}. Correct the "
                    "table, or open the other sources with sources=[...]"
                ) from error
            why_not = "it is not in the file, and no split provides it"
            infos.append(ArrayInfo(name, name, why_not=why_not))
            continue
        if not isinstance(thing, h5py.Dataset):
            raise SplitError(
                f"the split table of file {path!r} names source {name!r}, which is a group or "
                f"a type, not a dataset; name the dataset in it ({name + '/...'!r})"
            )
        why_not_one = why_not_a_source(thing)
        infos.append(ArrayInfo(name, name, thing, outside=outside, why_not=why_not_one))
    return infos


def splits_of(
    table: SplitTable, sources: Mapping[str, SourceHeader], opening: Opening
) -> dict[str, dict[str, Rows]]:
    """Return split -> source -> rows, for the given sources where available.

    Raises
    ------
    SplitError
        If rows lie outside their source, a list is not 1-D integers, or the sources
        of a split have different lengths.
    """
    found: dict[str, dict[str, Rows]] = {split: {} for split in table.splits}
    lists: Lists = {}
    path = opening.stamp.path
    for row in table.rows:
        if not row.available or row.source not in sources:
            continue
        pair = f"split {row.split!r}, source {row.source!r} of file {path!r}"
        n_rows, rows = sources[row.source].n_rows, row.rows
        if not isinstance(rows, range):
            rows = _listed(pair, row, lists, opening)
            outside = np.flatnonzero((rows < 0) | (rows >= n_rows))
            if outside.size:
                at = int(outside[0])
                raise SplitError(
                    f"{pair} lists row {rows[at]} (at position {at} of its index dataset), but "
                    f"the source has rows 0 to {n_rows - 1}; correct the list"
                )
        elif not 0 <= rows.start <= rows.stop <= n_rows:
            raise SplitError(
                f"{pair} is rows {rows.start} to {rows.stop}, but the source has {n_rows} rows; "
                f"correct row {row.number} of the split table"
            )
        for name, known in found[row.split].items():
            if len(known) != len(rows):
                raise SplitError(
                    f"split {row.split!r} of file {path!r} has {len(known)} rows of source "
                    f"{name!r} but {len(rows)} of source {row.source!r}; they must agree. Correct "
                    f"the split table, or open one of them with sources=[{name!r}]"
                )
        found[row.split][row.source] = rows
    return found


def _listed(pair: str, row: TableRow, known: Lists, opening: Opening) -> Integers:
    """Return the row numbers of the index dataset that a row of the table refers to."""
    remedy = f"write the list again, or give start and stop in row {row.number} of the split table"
    try:
        dataset = opening.base.file[row.rows]
    except Exception as error:  # a reference to nothing raises whatever HDF5 meets there
        raise SplitError(
            f"{pair} refers to an index dataset that is not there ({error}); {remedy}"
        ) from error
    if not isinstance(dataset, h5py.Dataset):
        raise SplitError(f"{pair} refers to {dataset!r}, which is not a dataset; {remedy}")
    here = address(dataset)
    if here in known:
        return known[here]
    name, shape, dtype = dataset.name or "(nameless)", dataset.shape or (), dataset.dtype
    if len(shape) != 1 or dtype.kind not in "iu":
        raise SplitError(
            f"{pair} refers to index dataset {name!r} of shape {shape} and dtype {dtype}; row "
            f"numbers must be 1-D integers (such as 'i8'): {remedy}"
        )
    check_claim(header_of(opening, ArrayInfo(name, name, dataset)), dataset.nbytes)
    values = dataset[()]
    if dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise SplitError(f"{pair}: row {values.max()} is out of range")
    rows = known[here] = np.ascontiguousarray(values, dtype=np.int64)
    rows.flags.writeable = False
    return rows


# writing


# `(start, stop)`, `(start, stop, indices)` or `(start, stop, indices, comment)`
Pair = Sequence[Any]


def split_array(
    splits: Mapping[str, Mapping[str, Pair]], *, sources: Iterable[str] = ()
) -> Integers:
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
        If there is no pair at all.
    ValueError, TypeError
        If a tuple has fewer than two items, or a comment is not text.

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
    rows: list[tuple[Any, ...]] = []
    for split, pairs in splits.items():
        for source in names:
            start, stop, *more = pairs.get(source, (0, 0))
            listed, comment = (*more, None, None)[:2]
            numbers = int(start), int(stop), listed or h5py.Reference(), source in pairs
            words = to_bytes(comment or NO_COMMENT)
            rows.append((to_bytes(split), to_bytes(source), *numbers, words))
    split_, source_, comment_ = (max(1, *(len(row[i]) for row in rows)) for i in (0, 1, 6))
    kinds = f"S{split_}", f"S{source_}", "i8", "i8", h5py.ref_dtype, "?", f"S{comment_}"
    return np.array(rows, np.dtype([*zip(FIELDS, kinds, strict=True)]))


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
    written: dict[bytes, h5py.Reference] = {}
    pairs: dict[str, dict[str, Pair]] = {}
    for split, by_source in splits.items():
        pairs[split] = {}
        alone = len({id(rows) for rows in by_source.values()}) == 1
        for source, rows in by_source.items():
            comment = (comments or {}).get((split, source))
            if isinstance(rows, range):
                pairs[split][source] = rows.start, rows.stop, None, comment
                continue
            key = np.ascontiguousarray(rows, np.int64).tobytes()
            if key not in written:
                name = free_name(base, f"{split if alone else f'{split}_{source}'}_indices")
                dataset = base.create_dataset(name, data=rows, dtype=np.int64)
                if scales:
                    dataset.make_scale(name)
                written[key] = dataset.ref
            pairs[split][source] = -1, -1, written[key], comment
    base.attrs[TABLE] = split_array(pairs, sources=sources)


def remove_table(base: h5py.Group) -> dict[tuple[str, str], str]:
    """Remove a split table and the lists of rows written with it; return its comments.

    A list stays that has another name than :func:`write_table` gives, or attributes of its own:
    it may serve others.
    """
    table = read_table(base)
    assert table is not None
    for row in table.rows:
        if not isinstance(row.rows, range):
            name = h5py.h5r.get_name(row.rows, base.file.id)
            if name is None or name not in base:  # several pairs may share one list
                continue
            owners = row.split, f"{row.split}_{row.source}"
            called = {plain_name(f"{owner}_indices") for owner in owners}
            as_written = re.sub(r"_\d+$", "", to_text(name).lstrip("/")) in called
            if as_written and set(base[name].attrs) <= {"CLASS", "NAME"}:  # those of a scale
                del base[name]
    del base.attrs[TABLE]
    return table.comments


def plain_name(wanted: str) -> str:
    """Return a name as valid text, and without the ``/`` that makes a group."""
    return to_bytes(wanted).decode(errors="replace").replace("/", "_")


def free_name(base: h5py.Group, wanted: str) -> str:
    """Return a name that nothing in a group has yet."""
    wanted = name = plain_name(wanted)
    number = 1
    while name in base:
        number += 1
        name = f"{wanted}_{number}"
    return name
