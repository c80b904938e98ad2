"""Fuel's split table: which rows of which source belong to which split.

The table is the root attribute `split`, one row for each (split, source) pair; a row
holds a range or refers to a dataset of row numbers. Everything in it is checked against
the sources here, once, so that a split can later be taken without looking at the file.
Old forms are read too: six fields (without `indices`), and numbers of shape ``(1,)``.

Index lists are kept as they are, order and repeats included; the compatibility layer
sorts them where Fuel did. A list that several rows refer to is read once and shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from labeled.errors import SplitError
from labeled.formats.hdf5.layout import dtype_of, layout_of
from labeled.formats.hdf5.safety import Address, address, check_claim, to_text
from labeled.formats.header import FileStamp, Rows, SourceHeader

TABLE = "split"
_REQUIRED = ("split", "source", "start", "stop")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of the split table; `rows` is a range, or a reference to a list of rows."""

    number: int
    split: str
    source: str
    rows: range | h5py.Reference
    available: bool


@dataclass(frozen=True, slots=True)
class Table:
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
    def unavailable(self) -> frozenset[str]:
        """Sources that no split provides."""
        return frozenset(self.sources) - {row.source for row in self.rows if row.available}


def read_table(base: h5py.Group) -> Table | None:
    """Return the split table of a file (or group), or None where there is none.

    An attribute called `split` that is not a table (a plain string, say) is not one.

    Raises
    ------
    SplitError
        If the table lacks a field, holds numbers of the wrong kind, is empty, or names a
        (split, source) pair twice.
    """
    if not h5py.h5a.exists(base.id, TABLE.encode()):
        return None
    where = base.file.filename
    try:
        table = base.attrs[TABLE]
    except Exception as error:  # any exception may come of a foreign or damaged type
        raise SplitError(f"the split table of file {where!r} cannot be read: {error}") from error
    names = getattr(getattr(table, "dtype", None), "names", None)
    if names is None:
        return None
    _check_fields(where, np.atleast_1d(table))
    rows = tuple(_table_rows(where, np.atleast_1d(table)))
    _check_pairs(where, rows)
    return Table(rows)


def _check_fields(where: str, table: np.ndarray[Any, Any]) -> None:
    names = table.dtype.names or ()
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        raise SplitError(
            f"the split table of file {where!r} lacks {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, names))}. Write it with the fields split, source, start, stop, "
            f"indices, available, comment"
        )
    for name in ("start", "stop"):
        if table.dtype[name].base.kind not in "iu":
            raise SplitError(
                f"field {name!r} of the split table of file {where!r} is "
                f"{table.dtype[name].base}; row numbers must be integers"
            )
    if table.ndim != 1 or len(table) == 0:
        raise SplitError(
            f"the split table of file {where!r} has shape {table.shape}; it must be a list of at "
            f"least one (split, source) pair. Delete the attribute to open every dataset"
        )


def _table_rows(where: str, table: np.ndarray[Any, Any]) -> Iterator[TableRow]:
    names = table.dtype.names or ()
    starts, stops = _numbers(where, table, "start"), _numbers(where, table, "stop")
    available = _numbers(where, table, "available") if "available" in names else [True] * len(table)
    references = table["indices"] if "indices" in names else [None] * len(table)
    for number, row in enumerate(table):
        reference = references[number]
        if isinstance(reference, np.ndarray):
            reference = reference.reshape(-1)[0]
        listed = isinstance(reference, h5py.Reference) and bool(reference)
        yield TableRow(
            number=number,
            split=_name(row["split"]),
            source=_name(row["source"]),
            rows=reference if listed else range(int(starts[number]), int(stops[number])),
            available=bool(available[number]),
        )


def _numbers(where: str, table: np.ndarray[Any, Any], name: str) -> list[Any]:
    """Return a field of numbers of shape ``()`` or ``(1,)`` as a flat list."""
    values = table[name]
    if values.size != len(table):
        raise SplitError(
            f"field {name!r} of the split table of file {where!r} holds {values.shape[1:]} "
            f"numbers a row; expected one"
        )
    flat: list[Any] = values.reshape(-1).tolist()
    return flat


def _name(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.reshape(-1)[0]
    return to_text(bytes(value)) if isinstance(value, bytes) else str(value)


def _check_pairs(where: str, rows: tuple[TableRow, ...]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        first = seen.setdefault((row.split, row.source), row.number)
        if first != row.number:
            raise SplitError(
                f"the split table of file {where!r} names split {row.split!r} of source "
                f"{row.source!r} twice, in rows {first} and {row.number}; keep one of them"
            )


def splits_of(
    table: Table,
    sources: Mapping[str, SourceHeader],
    file: h5py.File,
    stamp: FileStamp,
    *,
    allow_external: bool = False,
) -> dict[str, dict[str, Rows]]:
    """Return split -> source -> rows, for the given sources where available.

    Raises
    ------
    SplitError
        If rows lie outside their source, a list is not 1-D integers, or the sources
        of a split have different lengths.
    """
    found: dict[str, dict[str, Rows]] = {split: {} for split in table.splits}
    lists: dict[Address, np.ndarray[Any, Any]] = {}
    for row in table.rows:
        if not row.available or row.source not in sources:
            continue
        pair = f"split {row.split!r}, source {row.source!r} of file {stamp.path!r}"
        n_rows = sources[row.source].n_rows
        rows = row.rows
        if isinstance(rows, range):
            _check_range(pair, row.number, rows, n_rows)
        else:
            dataset = _index_dataset(pair, row.number, file, rows)
            key = address(dataset)
            if key not in lists:
                lists[key] = _integers(pair, row.number, dataset, stamp, allow_external)
            rows = lists[key]
            _check_inside(pair, rows, n_rows)
        _check_length(row, rows, found[row.split], stamp.path)
        found[row.split][row.source] = rows
    return found


def _check_range(pair: str, number: int, rows: range, n_rows: int) -> None:
    if not 0 <= rows.start <= rows.stop <= n_rows:
        raise SplitError(
            f"{pair} is rows {rows.start} to {rows.stop}, but the source has {n_rows} rows; "
            f"expected 0 <= start <= stop <= {n_rows}. Correct row {number} of the split table"
        )


def _index_dataset(
    pair: str, number: int, file: h5py.File, reference: h5py.Reference
) -> h5py.Dataset:
    try:
        thing = file[reference]
    except Exception as error:  # a reference to nothing raises whatever HDF5 meets there
        raise SplitError(
            f"{pair} refers to an index dataset that is not there ({error}); write the list "
            f"again, or give start and stop in row {number} of the split table"
        ) from error
    if not isinstance(thing, h5py.Dataset):
        raise SplitError(f"{pair} refers to {thing!r}, which is not a dataset")
    return thing


def _integers(
    pair: str, number: int, dataset: h5py.Dataset, stamp: FileStamp, allow_external: bool
) -> np.ndarray[Any, Any]:
    """Return the row numbers that a dataset holds."""
    name = dataset.name or "(nameless)"
    shape, dtype = dataset.shape, dataset.dtype
    if shape is None or len(shape) != 1 or dtype.kind not in "iu":
        raise SplitError(
            f"{pair} refers to index dataset {name!r} of shape {shape} and dtype {dtype}; row "
            f"numbers must be 1-D integers. Write the list again with dtype 'i8', or give start "
            f"and stop in row {number} of the split table"
        )
    placement = layout_of(dataset, name, allow_external=allow_external)
    header = SourceHeader(stamp, name, name, shape, dtype_of(dataset), ("rows",), **placement)
    stored = int(dataset.id.get_storage_size())
    check_claim(replace(header, stored_bytes=stored), dataset.nbytes)
    values = dataset[()]
    if dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise SplitError(f"{pair}: row {values.max()} is out of range")
    rows = np.ascontiguousarray(values, dtype=np.int64)
    rows.flags.writeable = False
    return rows


def _check_inside(pair: str, rows: np.ndarray[Any, Any], n_rows: int) -> None:
    outside = np.flatnonzero((rows < 0) | (rows >= n_rows))
    if outside.size:
        at = int(outside[0])
        raise SplitError(
            f"{pair} lists row {rows[at]} (at position {at} of its index dataset), but the source "
            f"has rows 0 to {n_rows - 1}; correct the list"
        )


def _check_length(row: TableRow, rows: Rows, others: Mapping[str, Rows], path: str) -> None:
    for name, known in others.items():
        if len(known) != len(rows):
            raise SplitError(
                f"split {row.split!r} of file {path!r} has {len(known)} rows of source {name!r} "
                f"but {len(rows)} of source {row.source!r}; they must agree. Correct the split "
                f"table, or open one of them with sources=[{name!r}]"
            )
