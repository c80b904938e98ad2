"""The options of delimited text, checked where they are given."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.errors import LoaderError
from labeled.formats.header import TEXT

WHITESPACE = "whitespace"
UTF_8 = "utf-8"

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
        a number, and only outermost fields are empty: above row numbers, or after a
        delimiter that ends the lines. If nothing ever follows that delimiter, it makes no column.
    names : sequence of str, optional
        Names of all columns, instead of those in the file.
    labels : column or list of columns, optional
        Columns, by name or number, that become the source ``labels``.
    columns : "matrix", "separate" or mapping, optional
        "matrix" puts all numeric columns with a name side by side as the source ``features``;
        "separate" makes a source of every column; a mapping gives the column of each source, or
        a list of columns to put side by side. By default columns named ``x_0``, ``x_1``, ...
        are put side by side as the source ``x``, if there are any, else all numeric ones; a
        file of one column is one source of one value a row.
    dtype : dtype or mapping, optional
        Of all numeric columns, or by source or column; ``str`` leaves text as it is. By default
        samples of the file decide: int64, uint64 (integers too large for int64, such as ids),
        float64, bool, datetime64[ns] (dates and times in ISO 8601, ``2026-11-20`` or
        ``2026-11-20 12:30:00``; those with a zone, ``2026-11-20T12:30:00+02:00``, become
        times of UTC) or text. Integers that float64 would round become a source of their own
        beside floats, and text where some are missing. Any datetime64 means datetime64[ns].
    missing : sequence of str
        Fields that stand for a missing value: NaN in floating columns, NaT among times, an error
        in others.
    quote : str, optional
        What encloses fields that hold delimiters or line ends; None if nothing does.
    skip_lines : int
        Lines to skip at the beginning of the file.
    encoding : str
        Of names and text: "utf-8", or one of a byte a character, such as "latin-1" or "cp1252".
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
    encoding: str = UTF_8
    decimal: str = "."

    def __post_init__(self) -> None:
        for name, also in (("delimiter", WHITESPACE), ("quote", None), ("decimal", "")):
            value: Any = getattr(self, name)
            if (value is None and name != "decimal") or (value and value == also):
                continue
            if not isinstance(value, str) or len(value.encode()) != 1 or value in "\r\n":
                hint = f", or {also!r}" if also else ""
                raise LoaderError(f"{name}={value!r}: give one ASCII character{hint}")
        if self.decimal == self.delimiter:
            raise LoaderError(f"decimal={self.decimal!r} is the delimiter, too; give another one")
        if self.header not in (None, True, False):
            raise LoaderError(f"header={self.header!r}: give True, False, or leave it out")
        skipped: Any = self.skip_lines
        if not isinstance(skipped, int) or skipped < 0:
            raise LoaderError(f"skip_lines={self.skip_lines!r}: give a number of lines, 0 or more")
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


def _checked_encoding(encoding: Any) -> str:
    """Return the usual name of an encoding that keeps ASCII and takes one byte a character."""
    try:
        name = codecs.lookup(encoding).name
        every = bytes(range(256)).decode(name, "replace")
    except (LookupError, TypeError) as fault:
        raise LoaderError(f"encoding={encoding!r}: {fault}; give 'utf-8' or 'latin-1'") from None
    bytewise = len(every) == 256 and every[:128].isascii() and every[48:58] == "0123456789"
    if name != UTF_8 and not bytewise:
        raise LoaderError(
            f"encoding={encoding!r} has characters of several bytes, in which a delimiter might "
            f"stand; save the file as UTF-8 (iconv -f {encoding} -t UTF-8)"
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
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as fault:
        raise LoaderError(f"dtype={dtype!r}: {fault}") from None
    if found.kind in "MUSO":
        return TIME if found.kind == "M" else TEXT
    if found.kind not in "biuf":
        raise LoaderError(f"dtype={dtype!r}: text is read as numbers, bool, datetime64 or str")
    if found.kind == "f" and found.itemsize not in (4, 8):
        raise LoaderError(
            f"dtype={dtype!r}: text is read as float32 or float64; batches(dtype=) makes others"
        )
    return found.newbyteorder("=")
