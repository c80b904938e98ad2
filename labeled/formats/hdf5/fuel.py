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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from labeled.errors import (
    DimsError,
    FileFormatError,
    SplitError,
    SplitTypeError,
    UnknownNameError,
    UnsafeFileError,
    did_you_mean,
)
from labeled.formats.hdf5.arrays import ArrayInfo, Opening
from labeled.formats.hdf5.dtypes import why_not_a_source
from labeled.formats.hdf5.headers import (
    Described,
    decode,
    describe_array,
    file_header,
    header_of,
    with_coordinates,
)
from labeled.formats.hdf5.labels import attrs_of
from labeled.formats.hdf5.safety import (
    Address,
    NotThereError,
    address,
    check_claim,
    resolve,
    to_text,
)
from labeled.formats.header import FileHeader, Rows, SourceHeader

Integers = np.ndarray[Any, Any]
Lists = dict[Address, Integers]
"""Lists of rows that were read before, by where they are."""

TABLE = "split"
_REQUIRED = ("split", "source", "start", "stop")
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
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        raise SplitError(
            f"{where} lacks {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, names))}. Write it with the fields split, source, start, stop, "
            f"indices, available, comment"
        )
    if table.ndim != 1 or len(table) == 0:
        raise SplitError(
            f"{where} has shape {table.shape}; it must be a list of at "
            f"least one (split, source) pair. Delete the attribute to open every dataset"
        )
    values: dict[str, list[Any]] = {"available": [True] * len(table)}
    for name in {"start", "stop", "available"}.intersection(names):
        numbers = table[name]
        if name != "available" and numbers.dtype.kind not in "iu":
            raise SplitError(
                f"field {name!r} of {where} is {numbers.dtype}; row numbers must be integers"
            )
        if numbers.size != len(table):  # shapes () and (1,) were both written
            raise SplitError(
                f"field {name!r} of {where} holds {numbers.shape[1:]} numbers a row; expected one"
            )
        values[name] = numbers.reshape(-1).tolist()
    rows: dict[tuple[str, str], TableRow] = {}
    for number, row in enumerate(table):
        split, source = _text(row["split"]), _text(row["source"])
        comment = _text(row["comment"]) if "comment" in names else ""
        if (split, source) in rows:
            raise SplitError(
                f"{where} names split {split!r} of source {source!r} twice, in rows "
                f"{rows[split, source].number} and {number}; keep one of them"
            )
        listed: Any = np.ravel(row["indices"])[0] if "indices" in names else None
        if not (isinstance(listed, h5py.Reference) and listed):
            listed = range(values["start"][number], values["stop"][number])
        rows[split, source] = TableRow(
            number,
            split,
            source,
            listed,
            bool(values["available"][number]),
            "" if comment == NO_COMMENT else comment,
        )
    return SplitTable(tuple(rows.values()))


def _text(value: Any) -> str:
    value = np.ravel(value)[0]
    return to_text(bytes(value)) if isinstance(value, bytes) else str(value)


# scanning


def scan_fuel(opening: Opening, table: SplitTable) -> FileHeader:
    """Scan a file with a split table.

    Raises
    ------
    SplitError
        If the table names what is not there, or does not fit the sources.
    UnknownNameError, FileFormatError, UnsafeFileError, DimsError
        If `sources`, `dims` or `example_dim` do not fit, or a source cannot be opened.
    """
    path, wanted = opening.stamp.path, opening.options.sources
    for argument, names in (("sources=", wanted or ()), ("dims=", opening.dims)):
        for name in names:
            if name not in table.sources:
                raise UnknownNameError(
                    f"{argument} names {name!r}, which is not a source of file {path!r}; "
                    f"{did_you_mean(name, table.sources)}"
                )
    not_opened: dict[str, str] = {}
    described: dict[str, Described] = {}
    for name in table.sources if wanted is None else wanted:
        info = _source(opening, table, name)
        if info.why_not is None:
            try:
                described[name] = describe_array(opening, info)
            except UnsafeFileError as error:
                raise UnsafeFileError(f"{error}, or open the others with sources=[...]") from None
        elif wanted is None:
            not_opened[name] = info.why_not
        else:
            raise FileFormatError(f"{name!r} in file {path!r} cannot be a source: {info.why_not}")
    _check_example_dim(opening, described)
    faults = [fault for each in described.values() for fault in each.faults]
    variables: dict[str, SourceHeader] = {}
    sources = with_coordinates(opening, described, variables, faults)
    splits = splits_of(table, sources, opening)
    attrs = attrs_of(opening.base, "the file", faults, leave_out={TABLE})
    if opening.options.decode_cf and "labeled_version" in attrs:
        decode(sources, variables, faults)
    return file_header(
        opening,
        described,
        sources,
        splits,
        faults,
        attrs=attrs,
        variables=variables,
        not_opened=not_opened,
        kind="fuel",
        coordinates=frozenset(variables),
    )


def _source(opening: Opening, table: SplitTable, name: str) -> ArrayInfo:
    """Return the dataset of a source, perhaps with why it cannot be one."""
    base, path = opening.base, opening.stamp.path
    try:
        thing, outside = resolve(base, name, allow_external=opening.options.allow_external)
    except NotThereError as error:
        if not any(row.available for row in table.rows if row.source == name):
            return ArrayInfo(name, name, why_not="it is not in the file, and no split provides it")
        names = [to_text(each) for each in base.id]
        raise SplitError(
            f"the split table of file {path!r} names source {name!r}, but there is no such "
            f"dataset ({error}); {did_you_mean(name, names)}. Correct the table, or open the "
            f"other sources with sources=[...]"
        ) from error
    if not isinstance(thing, h5py.Dataset):
        raise SplitError(
            f"the split table of file {path!r} names source {name!r}, which is a group or a type, "
            f"not a dataset; name the dataset in it ({name + '/...'!r})"
        )
    why_not = why_not_a_source(thing)
    if why_not is None and thing.shape == ():
        why_not = "it is a single value (no axis)"
    return ArrayInfo(name, name, thing, outside=outside, why_not=why_not)


def _check_example_dim(opening: Opening, described: Mapping[str, Described]) -> None:
    example_dim = opening.options.example_dim
    for name, each in described.items():
        if example_dim is not None and each.header.dims[0] != example_dim:
            raise DimsError(
                f"example_dim={example_dim!r} is not axis 0 of source {name!r} in file "
                f"{opening.stamp.path!r}, whose dims are {each.header.dims}; in a file with a "
                f"split table axis 0 always counts the examples, so leave example_dim out"
            )


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
        if isinstance(rows, range):
            if not 0 <= rows.start <= rows.stop <= n_rows:
                raise SplitError(
                    f"{pair} is rows {rows.start} to {rows.stop}, but the source has {n_rows} "
                    f"rows; expected 0 <= start <= stop <= {n_rows}. Correct row {row.number} of "
                    "the split table"
                )
        else:
            rows = _listed(pair, row.number, rows, lists, opening)
            outside = np.flatnonzero((rows < 0) | (rows >= n_rows))
            if outside.size:
                at = int(outside[0])
                raise SplitError(
                    f"{pair} lists row {rows[at]} (at position {at} of its index dataset), but "
                    f"the source has rows 0 to {n_rows - 1}; correct the list"
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


def _listed(
    pair: str, number: int, reference: h5py.Reference, known: Lists, opening: Opening
) -> Integers:
    """Return the row numbers of the index dataset that a row of the table refers to."""
    try:
        dataset = opening.base.file[reference]
    except Exception as error:  # a reference to nothing raises whatever HDF5 meets there
        raise SplitError(
            f"{pair} refers to an index dataset that is not there ({error}); write the list "
            f"again, or give start and stop in row {number} of the split table"
        ) from error
    if not isinstance(dataset, h5py.Dataset):
        raise SplitError(f"{pair} refers to {dataset!r}, which is not a dataset")
    here = address(dataset)
    if here in known:
        return known[here]
    name = dataset.name or "(nameless)"
    shape, dtype = dataset.shape, dataset.dtype
    if shape is None or len(shape) != 1 or dtype.kind not in "iu":
        raise SplitError(
            f"{pair} refers to index dataset {name!r} of shape {shape} and dtype {dtype}; row "
            f"numbers must be 1-D integers. Write the list again with dtype 'i8', or give start "
            f"and stop in row {number} of the split table"
        )
    allowed = opening.options.allow_external
    header = header_of(opening.stamp, dataset, name, ("rows",), key=name, allow_external=allowed)
    stored = int(dataset.id.get_storage_size())
    check_claim(replace(header, stored_bytes=stored), dataset.nbytes)
    values = dataset[()]
    if dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise SplitError(f"{pair}: row {values.max()} is out of range")
    rows = known[here] = np.ascontiguousarray(values, dtype=np.int64)
    rows.flags.writeable = False
    return rows


# writing


Pair = Sequence[Any]
"""``(start, stop)``, ``(start, stop, indices)`` or ``(start, stop, indices, comment)``."""


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
        If there is no pair at all, or a tuple has fewer than two or more than four items.
    SplitTypeError
        If a comment is not text.

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
            pair = tuple(pairs.get(source, (0, 0)))
            if not 2 <= len(pair) <= 4:
                raise SplitError(
                    f"split {split!r} of source {source!r} is {pair!r}; expected (start, "
                    f"stop), and perhaps a reference to row numbers and a comment"
                )
            start, stop = pair[:2]
            reference = pair[2] if len(pair) > 2 else None
            comment = pair[3] if len(pair) > 3 else ""
            if not isinstance(comment, str):
                raise SplitTypeError(
                    f"the comment on split {split!r} of source {source!r} is {comment!r}; give a "
                    "text"
                )
            texts = [each.encode() for each in (split, source, comment or NO_COMMENT)]
            reference = h5py.Reference() if reference is None else reference
            rows.append((*texts, int(start), int(stop), reference, source in pairs))
    widths = [max(1, *(len(row[field]) for row in rows)) for field in range(3)]
    table = np.empty(
        len(rows),
        [
            ("split", f"S{widths[0]}"),
            ("source", f"S{widths[1]}"),
            ("start", np.int64),
            ("stop", np.int64),
            ("indices", h5py.ref_dtype),
            ("available", np.bool_),
            ("comment", f"S{widths[2]}"),
        ],
    )
    for place, row in enumerate(rows):
        split, source, comment, *numbers = row
        table[place] = (split, source, *numbers, comment)
    return table


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
    comments = {} if comments is None else comments
    written: dict[bytes, h5py.Reference] = {}
    pairs: dict[str, dict[str, Pair]] = {}
    for split, by_source in splits.items():
        pairs[split] = {}
        for source, rows in by_source.items():
            place: tuple[Any, ...]
            if isinstance(rows, range):
                place = rows.start, rows.stop, None
            else:
                key = np.ascontiguousarray(rows, np.int64).tobytes()
                if key not in written:
                    alone = len({id(r) for r in by_source.values()}) == 1
                    name = free_name(base, f"{split if alone else f'{split}_{source}'}_indices")
                    dataset = base.create_dataset(name, data=rows, dtype=np.int64)
                    if scales:
                        dataset.make_scale(name)
                    written[key] = dataset.ref
                place = -1, -1, written[key]
            pairs[split][source] = (*place, comments.get((split, source), ""))
    base.attrs[TABLE] = split_array(pairs, sources=sources)


def remove_table(base: h5py.Group) -> dict[tuple[str, str], str]:
    """Remove a split table and the lists of rows it refers to; return its comments."""
    table = read_table(base)
    assert table is not None
    for row in table.rows:
        if not isinstance(row.rows, range):
            name = h5py.h5r.get_name(row.rows, base.file.id)
            if name is not None and name in base:  # several pairs may share one list
                del base[name]
    del base.attrs[TABLE]
    return table.comments


def free_name(base: h5py.Group, wanted: str) -> str:
    """Return a name that nothing in a group has yet; a ``/`` in `wanted` makes no group."""
    name, number = wanted.replace("/", "_"), 1
    while name in base:
        number += 1
        name = f"{wanted.replace('/', '_')}_{number}"
    return name
