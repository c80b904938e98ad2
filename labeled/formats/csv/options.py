"""How delimited text is opened, checked when it is said."""

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
"""Of all times, as in every other format."""

MISSING = ("", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "NULL", "null", "None", "#N/A")
"""Fields of a column of numbers or times that stand for no value."""


@dataclass(frozen=True)
class TextOptions:
    """What :func:`labeled.open_dataset` takes for delimited text alone.

    Parameters
    ----------
    delimiter : str, optional
        One character between fields, or "whitespace" for any number of blanks and tabs. By
        default the first lines tell.
    header : bool, optional
        Whether the first line names the columns. By default it does if none of its fields is
        a number, and none empty but outermost ones: above numbers of rows, or behind a
        delimiter that ends the lines. Where nothing stands behind that, it makes no column.
    names : sequence of str, optional
        Names of all columns, before those in the file.
    labels : column or list of columns, optional
        Columns, by name or number, that become the source ``labels``.
    columns : "matrix", "separate" or mapping, optional
        "matrix" puts all numeric columns with a name side by side as the source ``features``;
        "separate" makes a source of every column; a mapping tells the column of each source, or
        a list of columns to be put side by side. By default columns named ``x_0``, ``x_1``, ...
        are put side by side as the source ``x``, if there are any, else all numeric ones; a
        file of one column is one source of one value a row.
    dtype : dtype or mapping, optional
        Of all numeric columns, or by source or column; ``str`` leaves text as it is. By default
        samples of the file tell: int64, uint64 (of integers too large for int64, such as ids),
        float64, bool, datetime64[ns] (dates and times as ISO 8601 writes them, ``2026-11-20`` or
        ``2026-11-20 12:30:00``; those that tell their zone, ``2026-11-20T12:30:00+02:00``, become
        times of UTC) or text. Integers that float64 would round are a source of their own beside
        floats, and text where some are missing. A datetime64 of any unit asks for datetime64[ns].
    missing : sequence of str
        Fields that stand for no value: NaN in floating columns, NaT among times, an error in
        others.
    quote : str, optional
        What encloses fields that hold delimiters or line ends; None where nothing does.
    skip_lines : int
        Lines before the first one that counts.
    encoding : str
        Of names and text: "utf-8", or one of a byte a character, such as "latin-1" or "cp1252".
    decimal : str
        Between the whole of a number and its fraction, such as "," where fields end with ";".
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
        _check_character("delimiter", self.delimiter, WHITESPACE)
        _check_character("quote", self.quote)
        _check_character("decimal", self.decimal or "")
        if self.decimal == self.delimiter:
            raise LoaderError(f"decimal={self.decimal!r} is the delimiter, too; give another one")
        if self.header not in (None, True, False):
            raise LoaderError(f"header={self.header!r}: give True, False, or leave it out")
        skipped: Any = self.skip_lines
        if not isinstance(skipped, int) or skipped < 0:
            raise LoaderError(f"skip_lines={self.skip_lines!r}: give a number of lines, 0 or more")
        labels = (self.labels,) if isinstance(self.labels, str | int) else self.labels
        checked = {
            "encoding": _checked_encoding(self.encoding),
            "names": _listed("names", self.names),
            "missing": _listed("missing", self.missing) or (),
            "labels": None if labels is None else tuple(labels),
            "columns": _checked_columns(self.columns),
            "dtype": _checked_dtype(self.dtype),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def _check_character(name: str, value: Any, also: str | None = None) -> None:
    if value is None or value == also:
        return
    if not isinstance(value, str) or len(value.encode()) != 1 or value in "\r\n":
        hint = "" if also is None else f", or {also!r}"
        raise LoaderError(f"{name}={value!r}: give one ASCII character{hint}")


def _checked_encoding(encoding: Any) -> str:
    """Return an encoding by its usual name, if delimiters and digits are what they are in ASCII."""
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


def _listed(name: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        raise LoaderError(f"{name}={value!r} is one word; give a list, [{value!r}]")
    return tuple(map(str, value))


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
