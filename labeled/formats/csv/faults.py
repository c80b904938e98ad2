"""Which line of a text the parser refused, and why: looked for only once it did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labeled.formats.bytesource import FileRef
from labeled.formats.csv.dialect import Dialect
from labeled.formats.csv.parsing import Asked, TextFault, parsed
from labeled.formats.header import FileStamp

READ_BYTES = 4 * 1024 * 1024
SHOWN = 40


def explained(
    stamp: FileStamp,
    dialect: Dialect,
    rows: Sequence[tuple[int, bytes]],
    asked: Sequence[Asked],
    missing: Sequence[str],
) -> tuple[int, str]:
    """Return which of some rows is the first bad one, and what is wrong with which line.

    Parameters
    ----------
    stamp, dialect
        Of the text.
    rows : sequence of (int, bytes)
        Where in the text each row begins, and the row.
    asked, missing
        What the parser was asked for.
    """

    def bad(some: Sequence[tuple[int, bytes]]) -> str | None:
        text = b"".join(with_end(row) for _, row in some)
        try:
            found = parsed(text, dialect, asked, missing)
        except TextFault as fault:
            return str(fault)
        if found and len(found[0]) != len(some):
            return f"it is read as {len(found[0])} rows"
        return None

    low, high = 0, len(rows)
    while high - low > 1:  # the first bad row is in rows[low:high]
        middle = (low + high) // 2
        low, high = (low, middle) if bad(rows[low:middle]) else (middle, high)
    at, row = rows[low]
    line = dialect.first_line + _line_ends(stamp, dialect, at)
    why = _why(row, dialect, asked, missing)
    return low, f"line {line} of {stamp.path!r} {why}"


def with_end(row: bytes) -> bytes:
    """Return a row with a line end, whether the text had one or not."""
    return row if row.endswith((b"\n", b"\r")) else row + b"\n"


def _why(row: bytes, dialect: Dialect, asked: Sequence[Asked], missing: Sequence[str]) -> str:
    fields = dialect.fields(dialect.text(row))
    n = dialect.n_fields
    if len(fields) != n:
        what = "few" if len(fields) < n else "many"
        return (
            f"has too {what} fields: {len(fields)}, where {n} columns are expected "
            f"({few(dialect.names)}); correct it, or check delimiter=, quote= and skip_lines="
        )
    if dialect.trailing and fields[-1] not in missing:
        return (
            f"has {fields[-1][:SHOWN]!r} behind its last delimiter, where others have nothing; "
            "correct it, or pass names= with one more name for that column"
        )
    for one in asked:
        try:
            parsed(with_end(row), dialect, [one], missing)
        except TextFault:
            i, dtype = one.column, one.dtype
            name, shown = dialect.names[i], fields[i][:SHOWN]
            if one.exact is not None and _parses(row, dialect, one._replace(exact=None), missing):
                other = f"dtype={{{name!r}: 'str'}} to have text"
                if not one.exact.hasobject:
                    other = f"columns='separate' to have {one.exact}"
                return (
                    f"has {shown!r} in column {name!r}, which {dtype} would round; open with "
                    f"{other}, or dtype={{{name!r}: {str(dtype)!r}}}"
                )
            if fields[i] in missing:
                return (
                    f"has nothing ({shown!r}) in column {name!r}, where {dtype} is expected; open "
                    f"with dtype={{{name!r}: 'float64'}}, which has NaN"
                )
            other = "str" if dtype.kind == "M" else "..."
            return (
                f"has {shown!r} in column {name!r}, which is no {dtype}; correct it, name it among "
                f"missing=, or open with dtype={{{name!r}: {other}}}"
            )
    return "cannot be read as one row: it holds a carriage return or an open quote"


def _parses(row: bytes, dialect: Dialect, one: Asked, missing: Sequence[str]) -> bool:
    try:
        parsed(with_end(row), dialect, [one], missing)
    except TextFault:
        return False
    return True


def few(names: Sequence[str]) -> str:
    """Name the first columns."""
    shown = ", ".join(map(repr, names[:4]))
    return shown if len(names) <= 4 else f"{shown}, ..."


def _line_ends(stamp: FileStamp, dialect: Dialect, at: int) -> int:
    """Count line ends between the first row and byte `at`."""
    file, count, end = FileRef(stamp)(), 0, bytes([dialect.newline])
    for begin in range(dialect.begin, at, READ_BYTES):
        data = np.empty(min(READ_BYTES, at - begin), np.uint8)
        file.read_into(data, begin)
        count += data.tobytes().count(end)
    return count
