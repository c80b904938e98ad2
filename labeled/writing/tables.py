"""Tables as sources: the columns of a parquet file or of a DataFrame.

A column becomes a source of one value a row; several may be put side by side as one source
(``columns={"features": ["a", "b"]}``). Columns of lists become sources of two axes where all
lists are of one length by type, else ragged ones.

Parquet is read column by column from its beginning, a batch of rows at a time; pyarrow is
imported here and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from labeled._optional import extra_module
from labeled.errors import (
    ArrayError,
    FileFormatError,
    UnknownNameError,
    did_you_mean,
)
from labeled.formats.region import Array
from labeled.ragged import Ragged
from labeled.ragged.flat import AnyRows, Flat, Rows, offsets_of
from labeled.selection import Selection
from labeled.writing.source import SequentialSource

ROW_GROUP = 1 << 16


def pyarrow(part: str = "") -> Any:
    """Import pyarrow, or a part of it.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    return extra_module("pyarrow" + part, "parquet files need pyarrow", "pyarrow", "tables")


# a DataFrame


def is_frame(given: Any) -> bool:
    """Whether something is a table as pandas has them."""
    return _is_pandas(given) and hasattr(given, "columns")


def is_column(given: Any) -> bool:
    """Whether something is one column of such a table."""
    return _is_pandas(given) and not hasattr(given, "columns")


def _is_pandas(given: Any) -> bool:
    """Whether something is a table or a column in memory; dask's are not."""
    return hasattr(given, "iloc") and hasattr(given, "to_numpy")


def frame_sources(frame: Any, columns: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Return the columns of a pandas DataFrame as arrays.

    Raises
    ------
    ArrayError
        If a column holds what no source can.
    UnknownNameError
        If `columns` names what is not there.
    """
    _check_different("the table", [str(name) for name in frame.columns])
    arrays = {
        str(name): frame_column(str(name), frame.iloc[:, place])
        for place, name in enumerate(frame.columns)
    }
    return _grouped(arrays, columns, lambda parts: np.stack(parts, axis=1))


def frame_column(name: str, column: Any) -> Array:
    """Return a column as an array of numbers, times (in UTC) or texts.

    Raises
    ------
    ArrayError
        If it holds anything else, or nothing in some row.
    """
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert(None)  # to UTC
    if str(column.dtype) in ("category", "str", "string"):
        column = column.astype(object)
    values: Array = column.to_numpy()
    if values.dtype.kind == "O":
        kinds = {type(value) for value in values.tolist()}
        if kinds <= {int, float, bool} and kinds:
            return np.array(values.tolist())
        texts = np.array([isinstance(value, str) for value in values.tolist()], bool)
        missing = column.isna().to_numpy()
        if not texts.all():
            odd = int(np.argmax(missing if missing.any() else ~texts))
            raise ArrayError(
                f"column {name!r}, row {odd} holds {values[odd]!r:.60}; give a column texts only, "
                f"or numbers only (fillna puts something in place of what is missing)"
            )
    return values


def _grouped(
    columns: Mapping[str, Any], groups: Mapping[str, Sequence[str]] | None, stack: Any
) -> dict[str, Any]:
    """Put columns side by side, in the place of the first of them."""
    given = {} if groups is None else groups
    for source, parts in given.items():
        if not len(parts):
            raise ArrayError(f"columns= of source {source!r} names no column; leave it out")
        for part in parts:
            if part not in columns:
                raise UnknownNameError(
                    f"columns= of source {source!r} has {part!r}, which is not a column; "
                    f"{did_you_mean(part, columns)}"
                )
    out: dict[str, Any] = {}
    for name, column in columns.items():
        holders = [source for source, parts in given.items() if name in parts]
        if not holders:
            out[name] = column
        for source in holders:
            if source not in out:
                out[source] = stack([columns[part] for part in given[source]])
    return out


# parquet


def open_parquet(path: str, columns: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Return the columns of a file as sources.

    Raises
    ------
    FileFormatError
        If the file is damaged.
    ArrayError
        If a column holds what no source can.
    """
    table = _Parquet(path)
    _check_different(repr(path), table.names)
    found = {name: table.source(name) for name in table.names}
    return _grouped(found, columns, _side_by_side)


def _check_different(where: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ArrayError(f"{where} has columns of the same name: {list(names)}; rename them")


def _side_by_side(parts: Sequence[Any]) -> SequentialSource:
    if any(not isinstance(part, SequentialSource) or len(part.shape) > 1 for part in parts):
        raise ArrayError("only columns of one value a row can be put side by side")
    dtype = np.result_type(*(part.dtype for part in parts))
    if dtype.kind == "O":
        raise ArrayError("columns of texts cannot be put side by side; leave them out of columns=")

    def begin(rows: int) -> Iterator[Array]:
        for blocks in zip(*(part.begin(rows) for part in parts), strict=True):
            yield np.stack(blocks, axis=1).astype(dtype, copy=False)

    return SequentialSource(dtype, (parts[0].shape[0], len(parts)), begin)


@dataclass(frozen=True)
class _Parquet:
    """One file; every column is read for itself."""

    path: str

    @cached_property
    def file(self) -> Any:
        try:
            return pyarrow(".parquet").ParquetFile(self.path)
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            raise FileFormatError(f"{self.path!r} is not a sound parquet file: {error}") from error

    @property
    def names(self) -> list[str]:
        return list(self.file.schema_arrow.names)

    @property
    def n_rows(self) -> int:
        return int(self.file.metadata.num_rows)

    def source(self, name: str) -> Any:
        kinds, kind = pyarrow().types, self.file.schema_arrow.field(name).type
        if kinds.is_dictionary(kind):
            kind = kind.value_type
        if kinds.is_string(kind) or kinds.is_large_string(kind):
            return SequentialSource(
                np.dtype(object), (self.n_rows,), partial(self._blocks, name, None)
            )
        if kinds.is_fixed_size_list(kind):
            dtype = self._dtype(name, kind.value_type)
            return SequentialSource(
                dtype,
                (self.n_rows, kind.list_size),
                partial(self._lists, name, kind.list_size, dtype),
            )
        if kinds.is_list(kind) or kinds.is_large_list(kind):
            dtype = self._dtype(name, kind.value_type)
            reader = ParquetLists(self.path, name, self.n_rows, dtype)
            dims = ("batch", f"{name}_axis_1")
            return Ragged(reader, Selection.all(self.n_rows), dims, name)
        dtype = self._dtype(name, kind)
        if dtype.kind in "iub" and self._has_nulls(name):
            dtype = np.dtype(np.float64)
        return SequentialSource(dtype, (self.n_rows,), partial(self._blocks, name, dtype))

    def _dtype(self, name: str, kind: Any) -> np.dtype[Any]:
        dtype: np.dtype[Any]
        if pyarrow().types.is_fixed_size_binary(kind):
            return np.dtype(f"S{kind.byte_width}")
        if pyarrow().types.is_timestamp(kind):
            return np.dtype(f"datetime64[{kind.unit}]")  # UTC, where it has a zone
        try:
            dtype = np.dtype(kind.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            dtype = np.dtype(object)
        if dtype.kind not in "biufMm":
            raise ArrayError(
                f"column {name!r} of {self.path!r} has the type {kind}, which no source can hold; "
                f"choose the columns to convert with sources=[...]"
            )
        return dtype

    def _has_nulls(self, name: str) -> bool:
        """Whether a value is missing: from the statistics of the file, else by reading it."""
        place, about = self.names.index(name), self.file.metadata
        found = [about.row_group(i).column(place).statistics for i in range(about.num_row_groups)]
        if about.num_columns == len(self.names) and all(
            each is not None and each.has_null_count for each in found
        ):
            return any(each.null_count for each in found)
        return any(batch.null_count for batch in self._batches(name, ROW_GROUP))

    def _batches(self, name: str, rows: int) -> Iterator[Any]:
        reader = pyarrow(".parquet").ParquetFile(self.path)
        one = {"columns": [name], "use_threads": False}  # each thread keeps memory of its own
        try:
            for groups in _row_groups(reader.metadata, rows):  # of all at once, pyarrow keeps all
                for batch in reader.iter_batches(rows, row_groups=groups, **one):
                    yield batch.column(0)
        except (OSError, ValueError) as error:
            raise FileFormatError(f"column {name!r} of {self.path!r}: {error}") from error
        finally:
            reader.close()

    def _blocks(self, name: str, dtype: np.dtype[Any] | None, rows: int) -> Iterator[Array]:
        start = 0
        for batch in self._batches(name, rows):
            if (dtype is None or dtype.kind == "S") and batch.null_count:
                row = start + int(np.flatnonzero(batch.is_null().to_numpy(zero_copy_only=False))[0])
                raise ArrayError(
                    f"column {name!r} of {self.path!r}, row {row}: its text is missing; fill it "
                    f"in, or leave the column out with sources=[...]"
                )
            values: Array = batch.to_numpy(zero_copy_only=False)
            yield values.astype(object if dtype is None else dtype, copy=False)
            start += len(batch)

    def _lists(self, name: str, size: int, dtype: np.dtype[Any], rows: int) -> Iterator[Array]:
        start = 0
        for batch in self._batches(name, rows):
            _no_nulls(self.path, name, batch, start)
            values = batch.flatten().to_numpy(zero_copy_only=False)
            yield values.reshape(len(batch), size).astype(dtype, copy=False)
            start += len(batch)


def _row_groups(about: Any, rows: int) -> Iterator[list[int]]:
    """Put row groups together until they have so many rows; larger ones stand alone."""
    some: list[int] = []
    held = 0
    for number in range(about.num_row_groups):
        n_rows = about.row_group(number).num_rows
        if some and held + n_rows > rows:
            yield some
            some, held = [], 0
        some.append(number)
        held += n_rows
    if some:
        yield some


def _no_nulls(path: str, name: str, batch: Any, start: int) -> None:
    if batch.null_count or batch.flatten().null_count:
        stop = start + len(batch) - 1
        raise ArrayError(
            f"column {name!r} of {path!r} lacks values within rows {start} to {stop}; fill them "
            f"in, or leave the column out with sources=[...]"
        )


@dataclass(frozen=True)
class ParquetLists:
    """A column of lists; follows :class:`~labeled.ragged.RaggedReader`. Reads row groups whole."""

    path: str
    name: str
    n_rows: int
    dtype: np.dtype[Any]
    kind: str = "parquet"
    why: str = "lists in a column"
    chunk_rows: int = ROW_GROUP
    n_axes: int = 1

    @property
    def where(self) -> str:
        return f"column {self.name!r} of {self.path!r}"

    @cached_property
    def _edges(self) -> Rows:
        """Rows at which row groups begin, and the end."""
        about = _Parquet(self.path).file.metadata
        return offsets_of(
            np.array([about.row_group(i).num_rows for i in range(about.num_row_groups)], np.int64)
        )

    @cached_property
    def _sizes(self) -> Rows:
        groups = range(len(self._edges) - 1)
        sizes = [np.diff(self._group(group).offsets) for group in groups]
        return np.concatenate([np.empty(0, np.int64), *sizes])

    def _group(self, number: int) -> Flat:
        about = os.stat(self.path)
        stamp = (about.st_size, about.st_mtime_ns)
        flat = _lists_of_group(self.path, stamp, self.name, number, int(self._edges[number]))
        return flat._replace(values=flat.values.astype(self.dtype, copy=False))

    def shapes(self, rows: AnyRows) -> Rows:
        return self.sizes(rows).reshape(-1, 1)

    def sizes(self, rows: AnyRows) -> Rows:
        sizes: Rows = self._sizes[np.asarray(rows, np.int64)]
        return sizes

    def read_flat(self, rows: AnyRows) -> Flat:
        listed = np.asarray(rows, np.int64)
        sizes = self.sizes(listed)
        out: list[Array] = [np.empty(0, self.dtype)] * len(listed)
        which = np.searchsorted(self._edges, listed, side="right") - 1
        for number in np.unique(which):
            flat = self._group(int(number))
            for place in np.flatnonzero(which == number):
                row = int(listed[place] - self._edges[number])
                out[place] = flat.values[flat.offsets[row] : flat.offsets[row + 1]]
        values = np.concatenate([np.empty(0, self.dtype), *out])
        return Flat(values, offsets_of(sizes), sizes.reshape(-1, 1))


@lru_cache(maxsize=2)
def _lists_of_group(path: str, stamp: tuple[int, int], name: str, number: int, start: int) -> Flat:
    """Read one row group of a column of lists; neighbours ask for the same one many times.

    `stamp` is the size and time of the file: another file of this name is read anew.
    """
    column = _Parquet(path).file.read_row_group(number, columns=[name]).column(0)
    batch = pyarrow().concat_arrays(column.chunks) if column.num_chunks else column
    _no_nulls(path, name, batch, start)
    sizes = batch.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    values = batch.flatten().to_numpy(zero_copy_only=False)
    return Flat(values, offsets_of(sizes), sizes.reshape(-1, 1))
