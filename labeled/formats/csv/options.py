"""The options of delimited text, checked where they are given."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled._validation import check_fields, whole
from labeled.errors import LoaderError
from labeled.formats.header import TEXT

WHITESPACE = "whitespace"

TIME = np.dtype("datetime64[ns]")
"""The dtype of all times, as in every other format."""

MISSING = ("", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "NULL", "null", "None", "#N/A")
"""Fields that stand for a missing value in a column of numbers or times."""


@dataclass(frozen=True)
class TextOptions:
    """Options of :func:`labeled.open_dataset` for delimited text.

    Parameters
    ----------
    delimiter : str, optional
        One character between fields, or "whitespace" for any number of blanks and tabs. By
        default it is guessed from the first lines.
    header : bool, optional
        Whether the first line names the columns. By default it does if none of its fields is
        a number. A last column without name and values, made by a delimiter that ends the lines,
        is left out.
    names : sequence of str, optional
        Names of all columns, instead of those in the file.
    labels : column or list of columns, optional
        Columns, by name or number, that become the source ``labels``.
    columns : "matrix", "separate" or mapping, optional
        "matrix" puts all numeric columns with a name side by side as the source ``features``,
        and is the default where there are several columns;
        "separate" makes a source of every column; a mapping gives the column of each source, or
        a list of columns to put side by side.
    dtype : dtype or mapping, optional
        Of all numeric columns, or by source or column; ``str`` leaves text as it is. By default
        samples of the file decide, as pyarrow infers types: int64, uint64 (integers too large for
        int64, such as ids), float64, bool, datetime64[ns] (dates and times in ISO 8601,
        ``2026-11-20`` or ``2026-11-20 12:30:00``; those with a zone become times of UTC) or text.
        Integers become float64 where some are missing, or beside floats; if float64 would round
        them, they stay apart as far as samples tell, and are an error elsewhere. Any datetime64
        means datetime64[ns].
    missing : sequence of str
        Fields that stand for a missing value: NaN in floating columns, NaT among times, an error
        in others.
    quote : str, optional
        What encloses fields that hold delimiters or line ends; None if nothing does.
    skip_lines : int
        Lines to skip at the beginning of the file.
    encoding : str
        Of names and text: "utf-8", or another that contains ASCII, such as "latin-1" or "cp1252".
    decimal : str
        The decimal point of numbers, such as "," where ";" separates fields.
    """

    delimiter: str | None = None
    header: bool | None = None
    names: Any = None
    labels: Any = None
    columns: Any = None
    dtype: Any = None
    missing: Any = MISSING
    quote: str | None = '"'
    skip_lines: int = 0
    encoding: str = "utf-8"
    decimal: str = "."

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        whole("skip_lines", self.skip_lines, least=0, error=LoaderError)
        for name in ("delimiter", "quote", "decimal"):
            value = getattr(self, name)
            if value is None or (name == "delimiter" and value == WHITESPACE):
                continue
            if len(value.encode()) != 1 or value in "\r\n":
                hint = f", or {WHITESPACE!r}" if name == "delimiter" else ""
                raise LoaderError(f"{name}={value!r}: give one ASCII character{hint}")
        if self.decimal == self.delimiter:
            raise LoaderError(f"decimal={self.decimal!r} is the delimiter, too; give another one")
        for name in ("names", "missing"):
            if isinstance(words := getattr(self, name), str):
                raise LoaderError(f"{name}={words!r} is one word; give a list, [{words!r}]")
        labels = (self.labels,) if isinstance(self.labels, str | int) else self.labels
        checked = {
            "encoding": _checked_encoding(self.encoding),
            "names": None if self.names is None else tuple(map(str, self.names)),
            "missing": tuple(map(str, self.missing or ())),
            "labels": None if labels is None else tuple(labels),
            "columns": _checked_columns(self.columns),
            "dtype": _checked_dtype(self.dtype),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def _checked_encoding(encoding: str) -> str:
    """Return the usual name of an encoding that keeps ASCII: rows are found by their bytes."""
    ascii_bytes = bytes(range(128))
    try:
        name = codecs.lookup(encoding).name
        kept = ascii_bytes.decode(name, "replace").encode() == ascii_bytes
    except LookupError as fault:
        raise LoaderError(f"encoding={encoding!r}: {fault}; give 'utf-8' or 'latin-1'") from None
    if not kept:
        raise LoaderError(
            f"encoding={encoding!r} does not contain ASCII; save the file as UTF-8 "
            f"(iconv -f {encoding} -t UTF-8)"
        )
    return name


def _checked_columns(columns: Any) -> Any:
    if columns in (None, "matrix", "separate"):
        return columns
    if not isinstance(columns, Mapping):
        raise LoaderError(
            f"columns={columns!r}: give 'matrix', 'separate', or a mapping of sources to columns"
        )
    found = []
    for name, one in columns.items():
        if isinstance(one, list | tuple) and not one:
            raise LoaderError(f"columns= of source {name!r} names no column; leave it out")
        found.append((str(name), one if isinstance(one, str | int) else tuple(one)))
    return tuple(found)


def _checked_dtype(dtype: Any) -> Any:
    if isinstance(dtype, Mapping):
        return tuple((str(name), _checked_dtype(one)) for name, one in dtype.items())
    if dtype is None:
        return None
    try:
        found: np.dtype[Any] = np.dtype(dtype).newbyteorder("=")
    except TypeError as fault:
        raise LoaderError(f"dtype={dtype!r}: {fault}") from None
    if found.kind in "MUSO":
        return TIME if found.kind == "M" else TEXT
    if found.kind not in "biu" and found not in (np.dtype("f4"), np.dtype("f8")):
        raise LoaderError(
            f"dtype={dtype!r}: text is read as integers, float32, float64, bool, datetime64 or "
            "str; batches(dtype=) makes others"
        )
    return found
