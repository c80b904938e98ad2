"""Text to columns of numbers, by pyarrow's parser: correctly rounded, outside the GIL.

pyarrow is imported here only. It is given whole rows and told the type of each column;
where it fails, :mod:`.faults` finds the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from labeled.formats.csv.dialect import Dialect
from labeled.formats.csv.options import TIME, UTF_8
from labeled.formats.objects import TEXT
from labeled.formats.region import Array
from labeled.later import extra_module

UNSIGNED = np.dtype(np.uint64)
MOST_SIGNED = 2.0**63
"""Integers from here on are none of int64."""

_BLANKS = re.compile(rb"[ \t]+")
_EDGES = re.compile(rb"(?m)^ | (?=\r?$)")


class TextFault(Exception):
    """The parser refused some text; nobody outside this package sees it."""


@cache
def _pyarrow(part: str = "") -> Any:
    return extra_module("pyarrow" + part, "delimited text needs pyarrow", "pyarrow", "tables")


def parsed(
    text: bytes,
    dialect: Dialect,
    columns: Sequence[int],
    dtypes: Sequence[np.dtype[Any]],
    missing: Sequence[str],
) -> list[Any]:
    """Return some columns of whole rows of text.

    Raises
    ------
    TextFault
        If a row has too few or too many fields, or a field is no value of its dtype.
    """
    types = {str(i): _arrow_type(one) for i, one in zip(columns, dtypes, strict=True)}
    table = _table(text, dialect, types, [str(i) for i in columns], missing)
    values = [_values(table.column(i), dtype) for i, dtype in enumerate(dtypes)]
    if dialect.encoding == UTF_8:
        return values
    return [_in_utf_8(one, dialect) if one.dtype.hasobject else one for one in values]


def _in_utf_8(texts: Array, dialect: Dialect) -> Array:
    """Return texts of another encoding as those that are in UTF-8 come."""
    out = np.empty_like(texts)
    out[:] = [dialect.text(one).encode("utf-8", "surrogateescape") for one in texts]
    return out


def guessed(text: bytes, dialect: Dialect, missing: Sequence[str]) -> list[np.dtype[Any]]:
    """Return a dtype for each column that holds all values of some rows.

    Raises
    ------
    TextFault
        If a row has too few or too many fields.
    """
    table = _table(text, dialect, {}, None, missing)
    found = [_guessed(column) for column in table.columns]
    for i in (i for i, column in enumerate(table.columns) if _may_be_unsigned(column)):
        with suppress(TextFault):
            parsed(text, dialect, [i], [UNSIGNED], missing)
            found[i] = UNSIGNED
    return found


def _may_be_unsigned(column: Any) -> bool:
    """Whether what the parser takes for floats may be integers too large for int64."""
    if not _pyarrow().types.is_floating(column.type) or column.null_count:
        return False
    values = column.to_numpy()
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
                column_names=[str(i) for i in range(len(dialect.names))],
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


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    arrow = _pyarrow()
    return arrow.binary() if dtype.hasobject else arrow.from_numpy_dtype(dtype)


def _values(column: Any, dtype: np.dtype[Any]) -> Any:
    """Return a column as an array; a missing value is NaN or NaT where there is one."""
    if column.null_count and dtype.kind not in "fM":
        raise TextFault(f"a value is missing, and {dtype} has none that says so")
    if dtype.kind in "fM":
        column = column.combine_chunks() if column.num_chunks > 1 else column
    values: Array = column.to_numpy()
    return values


def _guessed(column: Any) -> np.dtype[Any]:
    kinds, kind = _pyarrow().types, column.type
    if kinds.is_null(kind):
        return np.dtype(np.float64)
    if kinds.is_integer(kind):
        return np.dtype(np.float64 if column.null_count else np.int64)
    if kinds.is_floating(kind):
        return np.dtype(np.float64)
    if kinds.is_boolean(kind) and not column.null_count:
        return np.dtype(bool)
    if kinds.is_date(kind) or (kinds.is_timestamp(kind) and kind.tz is None):
        return TIME if _fits(column) else TEXT
    return TEXT


def _fits(column: Any) -> bool:
    """Whether all times of a column are within those that :data:`TIME` holds."""
    try:
        column.cast(_arrow_type(TIME))
    except _pyarrow().ArrowInvalid:
        return False
    return True
