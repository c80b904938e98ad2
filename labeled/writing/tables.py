"""Tables as sources: the columns of a parquet file or of a DataFrame.

A column becomes a source of one value a row; several may be put side by side as one source
(``columns={"features": ["a", "b"]}``). Columns of lists of one length by type become sources of two
axes; others are ragged, and are read as a whole.

Parquet is read column by column, a row group at a time; pyarrow is imported here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from dask.delayed import delayed

from labeled._optional import extra_module
from labeled.errors import ArrayError, FileFormatError, check_known, listed, warn
from labeled.formats.header import first_rounded
from labeled.formats.region import Array


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
    """Whether something is a table in memory, as pandas has them; dask's are not."""
    return hasattr(given, "iloc") and hasattr(given, "to_numpy") and hasattr(given, "columns")


def is_column(given: Any) -> bool:
    """Whether something is one column of such a table."""
    return hasattr(given, "iloc") and hasattr(given, "to_numpy") and not hasattr(given, "columns")


def frame_sources(frame: Any, columns: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Return the columns of a pandas DataFrame as arrays.

    Raises
    ------
    ArrayError
        If a column holds what no source can.
    UnknownNameError
        If `columns` names what is not there.
    """
    names = [str(name) for name in frame.columns]
    _check_different("the table", names)
    arrays = {name: frame_column(name, frame.iloc[:, at]) for at, name in enumerate(names)}
    return grouped(arrays, columns)


def warn_of_index(frame: Any) -> None:
    """Report an index that says more than the number of a row; only columns become sources."""
    names = [name for name in frame.index.names if name is not None]
    if len(frame) and (names or frame.index.nlevels > 1 or frame.index.dtype.kind not in "iu"):
        what = listed(names) if names else f"of {frame.index.dtype}"
        warn(f"the index {what} of the table is left out; df.reset_index() makes columns of it")


def frame_column(name: str, column: Any) -> Array:
    """Return a column as an array of numbers, times (in UTC) or texts.

    Raises
    ------
    ArrayError
        If it holds anything else, nothing in some row, or integers that would be rounded.
    """
    where = f"column {name!r}"
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert(None)  # to UTC
    if str(column.dtype) in ("category", "str", "string"):
        column = column.astype(object)
    values: Array = column.to_numpy()
    if column.dtype.kind in "iu" and values.dtype.kind == "f":  # as NaN stands for what is missing
        _check_exact(where, column.fillna(0).to_numpy(), values.dtype)
    if values.dtype.kind != "O":
        return values
    listed = values.tolist()
    if listed and {type(value) for value in listed} <= {int, float, bool}:
        made = np.array(listed)
        check_listed(where, listed, made)
        return made
    wanted = str if any(isinstance(value, str) for value in listed) else int | float
    for row, value in enumerate(listed):
        if not isinstance(value, wanted):
            how = "fillna puts something in place of what is missing"
            if isinstance(value, bytes):
                how = ".str.decode('utf-8') makes texts of bytes"
            raise ArrayError(
                f"{where}, row {row} holds {value!r:.60}; give a column texts only, or "
                f"numbers only ({how})"
            )
    return values


def check_listed(where: str, listed: Sequence[Any], array: Array) -> None:
    """Refuse integers of a list that floats would round, and numbers that texts make texts of."""
    if array.dtype.kind in "SU":
        flat = np.asarray(listed, object).reshape(-1)
        for place, one in enumerate(flat.tolist()):
            if not isinstance(one, str | bytes) and np.asarray(one).dtype.kind not in "SU":
                row = place // (len(flat) // len(array))
                words = f"row {row} holds {one!r:.60} among texts"
                raise ArrayError(f"{where}, {words}; give texts only, or numbers only")
    if array.ndim == 1 and array.dtype.kind == "f":
        for row, (one, kept) in enumerate(zip(listed, array.tolist(), strict=True)):
            if isinstance(one, int) and one != kept:
                words = f"row {row} holds {one}, which {array.dtype} would round"
                raise ArrayError(f"{where}, {words}; give an array of one dtype")


def as_numpy(name: str, array: xr.DataArray) -> xr.DataArray:
    """Return a labelled array; a column of pandas inside it (an extension array) becomes NumPy's.

    Raises
    ------
    ArrayError
        As for :func:`frame_column`.
    """
    dtype: Any = array.dtype
    if isinstance(dtype, np.dtype):
        return array
    return array.copy(data=frame_column(name, array.variable.to_index().to_series()))


def plain_array(name: str, values: Any) -> Array:
    """Return an array or index of pandas as :func:`frame_column` returns such a column."""
    if getattr(values.dtype, "tz", None) is not None:
        values = values.tz_convert(None)  # xarray makes objects of the times of such arrays
    array: Array = as_numpy(name, xr.DataArray(values)).data
    return array


def _check_exact(where: str, whole: Array, dtype: np.dtype[Any]) -> None:
    at = first_rounded(whole, dtype)
    if at is not None:
        raise ArrayError(
            f"{where}, row {at} holds {whole[at]}, which {dtype} would round; fill in what is "
            "missing, so that integers stay integers, or make texts of them"
        )


def grouped(
    columns: Mapping[str, Any], groups: Mapping[str, Sequence[str]] | None
) -> dict[str, Any]:
    """Put columns side by side, in the place of the first of them."""
    given, made = groups or {}, dict[str, Any]()
    for source, parts in given.items():
        if not len(parts):
            raise ArrayError(f"columns= of source {source!r} names no column; leave it out")
        check_known(f"columns= of source {source!r} has", parts, columns, "a column")
        side = [columns[part] for part in parts]
        if any(isinstance(one, list) or one.ndim > 1 or one.dtype.kind == "O" for one in side):
            raise ArrayError("columns= joins only columns of one number a row; leave others out")
        made[source] = (np if isinstance(side[0], np.ndarray) else da).stack(side, axis=1)
    out: dict[str, Any] = {}
    for name, column in columns.items():
        holders = {source: made[source] for source, parts in given.items() if name in parts}
        out |= holders or {name: column}
    return out


# parquet


def open_parquet(paths: Sequence[str], wanted: Collection[str] | None) -> dict[str, Any]:
    """Return the columns of files as lazy arrays, one file after another; those not wanted as None.

    Lists of different lengths are read at once, as arrays in a list.

    Raises
    ------
    FileFormatError
        If a file is damaged.
    ArrayError
        If a column holds what no source can, or files differ in their columns.
    """
    with ExitStack() as opened:
        files = {}
        for path in paths:
            try:
                files[path] = opened.enter_context(pyarrow(".parquet").ParquetFile(path))
            except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
                raise FileFormatError(f"{path!r} is not a sound parquet file: {error}") from error
        first = list(files[paths[0]].schema_arrow.names)
        _check_different(repr(paths[0]), first)
        for path, file in files.items():
            names = list(file.schema_arrow.names)
            if names != first:
                found = f"{path!r} has the columns {names}, and {paths[0]!r} {first}"
                raise ArrayError(f"{found}; convert them one by one")
        chosen = first if wanted is None else wanted
        return {name: _column(files, name) if name in chosen else None for name in first}


def _check_different(where: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ArrayError(f"{where} has columns of the same name: {list(names)}; rename them")


def _column(files: Mapping[str, Any], name: str) -> Any:
    types, dtypes = pyarrow().types, {}
    groups = [(p, i) for p, file in files.items() for i in range(file.num_row_groups)]
    for path, file in files.items():
        kind = file.schema_arrow.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_list(kind) or types.is_large_list(kind):
            read = (_read(path, name, group) for path, group in groups)
            return [np.asarray(row) for group in read for row in group.to_numpy(False)]
        width = (kind.list_size,) if types.is_fixed_size_list(kind) else ()
        kind = kind.value_type if width else kind
        dtype, in_utc = _dtype(_where(path, name), kind), getattr(kind, "tz", None) is not None
        if dtype.kind in "iub" and not width and _has_nulls(path, file, name):
            dtype = np.dtype(np.float64)
        dtypes[path] = dtype, width, in_utc
    base, (first, width, was_in_utc) = next(iter(dtypes.items()))
    for path, (dtype, other, in_utc) in dtypes.items():
        if dtype.kind == first.kind == "M" and in_utc != was_in_utc:
            zones = ("without", "with") if in_utc else ("with", "without")
            raise ArrayError(
                f"{_where(base, name)} has times {zones[0]} a time zone, and {path!r} {zones[1]} "
                f"one; give all the same (pandas' tz_localize), or convert them one by one"
            )
        if other != width or (dtype != first and not {dtype.kind, first.kind} <= {*"iuf"}):
            raise ArrayError(
                f"{_where(path, name)} has rows of {dtype} {other}, and in the first file they are "
                f"of {first} {width}; convert them one by one"
            )
    dtype, blocks = np.result_type(*(dtype for dtype, _, _ in dtypes.values())), []
    for path, group in groups:
        n = files[path].metadata.row_group(group).num_rows
        values = delayed(_values, pure=False)(path, name, group, dtype, width)
        blocks.append(da.from_delayed(values, (n, *width), dtype))
    return da.concatenate(blocks) if blocks else np.empty((0, *width), dtype)


def _where(path: str, name: str) -> str:
    return f"column {name!r} of {path!r}"


def _dtype(where: str, kind: Any) -> np.dtype[Any]:
    types = pyarrow().types
    if types.is_string(kind) or types.is_large_string(kind):
        return np.dtype(object)
    if types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")  # UTC, where it has a zone
    dtype = np.dtype(object)
    with suppress(NotImplementedError, TypeError):
        dtype = np.dtype(kind.to_pandas_dtype())
    if dtype.kind not in "biufMm":
        words = f"{where} has the type {kind}, which no source can hold"
        raise ArrayError(f"{words}; leave it out with sources=[...]")
    return dtype


def _has_nulls(path: str, file: Any, name: str) -> bool:
    """Whether a value is missing: from the statistics of the file, else by reading it."""
    place, about = file.schema_arrow.names.index(name), file.metadata
    flat = about.num_columns == len(file.schema_arrow.names)
    for group in range(about.num_row_groups):
        known = about.row_group(group).column(place).statistics if flat else None
        if known is None or not known.has_null_count:
            known = _read(path, name, group)
        if known.null_count:
            return True
    return False


def _read(path: str, name: str, group: int) -> Any:
    """Read a row group of a column; lists must have no gaps."""
    where = _where(path, name)
    try:
        with pyarrow(".parquet").ParquetFile(path) as file:
            values = file.read_row_group(group, [name], use_threads=False).column(0)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{where}: {error}") from error
    array = pyarrow().concat_arrays(values.chunks) if values.num_chunks else values
    if "list" in str(array.type) and (array.null_count or array.flatten().null_count):
        raise ArrayError(f"{where} lacks values in row group {group}; fill them in, or drop it")
    return array


def _values(path: str, name: str, group: int, dtype: np.dtype[Any], width: Sequence[int]) -> Array:
    column = _read(path, name, group)
    if dtype.kind == "O" and column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(False))[0])
        words = f"{_where(path, name)}, row {row} of row group {group}: its text is missing"
        raise ArrayError(f"{words}; fill it in, or leave the column out with sources=[...]")
    flat = column.flatten() if width else column
    if dtype.kind == "f" and pyarrow().types.is_integer(flat.type):
        where = f"{_where(path, name)}, row group {group}"
        _check_exact(where, flat.fill_null(0).to_numpy(False), dtype)
    values: Array = flat.to_numpy(False)
    return values.astype(dtype, copy=False).reshape(len(column), *width)
