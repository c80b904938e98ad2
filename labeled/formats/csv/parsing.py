"""Text to columns of numbers, by pyarrow's parser: correctly rounded, outside the GIL.

pyarrow is imported here only. It is given whole rows and told the type of each column;
where it fails, :mod:`.faults` finds the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from labeled.formats.csv.dialect import Dialect
from labeled.formats.csv.options import TIME, UTF_8
from labeled.formats.objects import TEXT
from labeled.formats.region import Array
from labeled.later import extra_module

SIGNED, UNSIGNED = np.dtype(np.int64), np.dtype(np.uint64)
MOST_SIGNED = 2.0**63
"""Integers from here on are none of int64."""

MOST_EXACT = 2**53
"""Whole numbers up to here are exact as float64."""

_BLANKS = re.compile(rb"[ \t]+")
_EDGES = re.compile(rb"(?m)^ | (?=\r?$)")


class TextFault(Exception):
    """The parser refused some text; nobody outside this package sees it."""


class Asked(NamedTuple):
    """A column that is wanted, and as what.

    Parameters
    ----------
    column : int
    dtype : dtype
    zoned : bool
        Times that tell their zone; they become those of UTC.
    exact : dtype, optional
        What would hold the whole numbers of the column, none of which may be rounded: their own
        dtype, or text where some are missing.
    """

    column: int
    dtype: np.dtype[Any]
    zoned: bool = False
    exact: np.dtype[Any] | None = None


class Guess(NamedTuple):
    """What some rows of a column hold.

    Parameters
    ----------
    dtype : dtype
        Of all their values; float64 where there are none.
    empty : bool
        There is no value.
    wide : bool
        Whole numbers, some of which float64 may round.
    zoned : bool
        Times that tell their zone.
    gaps : bool
        Whole numbers, some of which are missing.
    """

    dtype: np.dtype[Any]
    empty: bool = False
    wide: bool = False
    zoned: bool = False
    gaps: bool = False


@cache
def _pyarrow(part: str = "") -> Any:
    return extra_module("pyarrow" + part, "delimited text needs pyarrow", "pyarrow", "tables")


def parsed(
    text: bytes,
    dialect: Dialect,
    asked: Sequence[Asked],
    missing: Sequence[str],
) -> list[Any]:
    """Return some columns of whole rows of text.

    Raises
    ------
    TextFault
        If a row has too few or too many fields, or a field is no value of its dtype.
    """
    types = {str(one.column): _arrow_type(one.dtype, zoned=one.zoned) for one in asked}
    if dialect.trailing:
        types[str(len(dialect.names))] = _pyarrow().null()
    table = _table(text, dialect, types, [*types], missing)
    values = [_values(table.column(str(one.column)), one.dtype) for one in asked]
    for one, found in zip(asked, values, strict=True):
        if one.exact is not None:
            _check_exact(found, one.exact, text, dialect, one.column, missing)
    if dialect.encoding == UTF_8:
        return values
    return [_in_utf_8(one, dialect) if one.dtype.hasobject else one for one in values]


def _check_exact(
    values: Array,
    dtype: np.dtype[Any],
    text: bytes,
    dialect: Dialect,
    column: int,
    missing: Sequence[str],
) -> None:
    """Raise TextFault where floats round the whole numbers that stand in the text."""
    if not np.fmax.reduce(np.abs(values), initial=0) >= MOST_EXACT:
        return
    dtypes = (SIGNED, UNSIGNED) if dtype.hasobject else (dtype,)
    found = (_whole(text, dialect, column, one, missing) for one in dtypes)
    whole = next((one for one in found if one is not None), None)
    if whole is None:
        return
    with np.errstate(invalid="ignore"):
        rounded = values[~np.isnan(values)].astype(whole.dtype) != whole
    if rounded.any():
        raise TextFault(f"{values.dtype} rounds {whole[rounded][0]}")


def _whole(
    text: bytes, dialect: Dialect, column: int, dtype: np.dtype[Any], missing: Sequence[str]
) -> Array | None:
    """Return the numbers of a column that are there; None if some are not whole."""
    name = str(column)
    try:
        table = _table(text, dialect, {name: _arrow_type(dtype)}, [name], missing)
    except TextFault:
        return None
    found: Array = table.column(0).drop_null().to_numpy()
    return found


def _in_utf_8(texts: Array, dialect: Dialect) -> Array:
    """Return texts of another encoding as those that are in UTF-8 come."""
    out = np.empty_like(texts)
    out[:] = [dialect.text(one).encode("utf-8", "surrogateescape") for one in texts]
    return out


def guessed(text: bytes, dialect: Dialect, missing: Sequence[str]) -> list[Guess]:
    """Return for each column what holds all values of some rows.

    Raises
    ------
    TextFault
        If a row has too few or too many fields.
    """
    table = _table(text, dialect, {}, None, missing)
    found = [_guessed(column) for column in table.columns]
    for i, column in enumerate(table.columns):
        if _may_be_unsigned(column):
            whole = _whole(text, dialect, i, UNSIGNED, missing)
            if whole is not None:
                found[i] = _guessed_whole(whole, gaps=bool(column.null_count))
    return found


def _may_be_unsigned(column: Any) -> bool:
    """Whether what the parser takes for floats may be integers too large for int64."""
    if not _pyarrow().types.is_floating(column.type):
        return False
    values = column.drop_null().to_numpy()
    return bool(values.min(initial=0) >= 0 and values.max(initial=0) >= MOST_SIGNED)


def _table(
    text: bytes,
    dialect: Dialect,
    types: dict[str, Any],
    include: list[str] | None,
    missing: Sequence[str],
) -> Any:
    csv = _pyarrow(".csv")
    text = squeezed(text) if dialect.squeezed else text
    try:
        return csv.read_csv(
            _pyarrow().py_buffer(text),
            read_options=csv.ReadOptions(
                use_threads=False,
                block_size=len(text) + 1,
                column_names=[str(i) for i in range(dialect.n_fields)],
            ),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote or False,
                newlines_in_values=dialect.quote is not None,
            ),
            convert_options=csv.ConvertOptions(
                column_types=types,
                include_columns=include,
                null_values=list(missing),
                check_utf8=False,
                strings_can_be_null=False,
                decimal_point=dialect.decimal,
            ),
            memory_pool=_pyarrow().system_memory_pool(),  # others keep much for the next block
        )
    except (_pyarrow().ArrowInvalid, _pyarrow().ArrowKeyError) as fault:
        raise TextFault(str(fault)) from None


def squeezed(text: bytes) -> bytes:
    """Put one blank for any number of blanks and tabs, none at the edges of lines.

    Examples
    --------
    >>> squeezed(b"  1.5\\t 2 \\n3  4\\n")
    b'1.5 2\\n3 4\\n'
    """
    return _EDGES.sub(b"", _BLANKS.sub(b" ", text))


def _arrow_type(dtype: np.dtype[Any], *, zoned: bool = False) -> Any:
    arrow = _pyarrow()
    if zoned and dtype == TIME:
        return arrow.timestamp("ns", tz="UTC")
    return arrow.binary() if dtype.hasobject else arrow.from_numpy_dtype(dtype)


def _values(column: Any, dtype: np.dtype[Any]) -> Any:
    """Return a column as an array; a missing value is NaN or NaT where there is one."""
    if column.null_count and dtype.kind not in "fM":
        raise TextFault(f"a value is missing, and {dtype} has none that says so")
    if dtype.kind in "fM":
        column = column.combine_chunks() if column.num_chunks > 1 else column
    values: Array = column.to_numpy()
    return values


def _guessed(column: Any) -> Guess:
    kinds, kind = _pyarrow().types, column.type
    if kinds.is_null(kind):
        return Guess(np.dtype(np.float64), empty=True)
    if kinds.is_integer(kind):
        return _guessed_whole(column.drop_null().to_numpy(), gaps=bool(column.null_count))
    if kinds.is_floating(kind):
        return Guess(np.dtype(np.float64))
    if kinds.is_boolean(kind) and not column.null_count:
        return Guess(np.dtype(bool))
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        zoned = kinds.is_timestamp(kind) and kind.tz is not None
        return Guess(TIME, zoned=zoned) if _fits(column, zoned=zoned) else Guess(TEXT)
    return Guess(TEXT)


def _guessed_whole(values: Array, *, gaps: bool) -> Guess:
    """Tell what holds whole numbers: floats if some are missing, text if those would round."""
    wide = bool(len(values)) and bool(values.max() > MOST_EXACT or values.min() < -MOST_EXACT)
    if gaps:
        return Guess(TEXT) if wide else Guess(np.dtype(np.float64), gaps=True)
    return Guess(values.dtype, wide=wide)


def _fits(column: Any, *, zoned: bool) -> bool:
    """Whether all times of a column are within those that :data:`TIME` holds."""
    try:
        column.cast(_arrow_type(TIME, zoned=zoned))
    except _pyarrow().ArrowInvalid:
        return False
    return True
