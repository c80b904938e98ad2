"""How a text is written: its delimiter, its header, where its rows begin.

What is not said is guessed from the first mebibyte: the delimiter is the one that cuts the
first lines into equally many fields, unless a line ``sep=;`` before them tells it; a first line
without a number in it names columns.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.bytesource import StoredBytes, inflating
from labeled.formats.csv.lines import CR, LF, lines_of
from labeled.formats.csv.options import UTF_8, WHITESPACE, TextOptions
from labeled.formats.header import FileStamp

HEAD_BYTES = 1 << 20
LONGEST_HEAD_BYTES = 1 << 23
"""Of a file whose first row is longer than that."""

GUESSED_LINES = 20

MOST_COLUMNS = 1 << 17
"""The parser takes five kibibytes for each."""

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_CANDIDATES = ",\t;|"
_SAID = re.compile(rb"(?i)sep=([ -~\t])\r?[\r\n]")
"""The first line by which spreadsheets tell the delimiter."""


@dataclass(frozen=True)
class Dialect:
    """What is needed to find rows and fields.

    Parameters
    ----------
    delimiter : str
        Between fields.
    squeezed : bool
        Any number of blanks and tabs is one delimiter.
    quote : str or None
    newline : int
        The byte that ends rows.
    begin : int
        Where the first row of values begins, in the unpacked text.
    names : tuple of str
        Of all columns.
    packed : bool
        Whether the file is gzip-compressed.
    first_line : int
        Number of the line that `begin` is in, counted from 1.
    encoding : str
    decimal : str
        Between the whole of a number and its fraction.
    nameless_end : bool
        Whether neither the file nor the caller names the last column.
    trailing : bool
        Whether lines end with a delimiter, behind which nothing stands: no column.
    """

    delimiter: str
    squeezed: bool
    quote: str | None
    newline: int
    begin: int
    names: tuple[str, ...]
    packed: bool
    first_line: int
    encoding: str = UTF_8
    decimal: str = "."
    nameless_end: bool = False
    trailing: bool = False

    @property
    def n_fields(self) -> int:
        """Fields of a row."""
        return len(self.names) + self.trailing

    def text(self, row: bytes) -> str:
        """Return some bytes as text; those that mean nothing are kept visible."""
        return row.decode(self.encoding, "surrogateescape")

    @property
    def delimiter_byte(self) -> int:
        return ord(self.delimiter)

    @property
    def quote_byte(self) -> int | None:
        return None if self.quote is None else ord(self.quote)

    def fields(self, line: str) -> list[str]:
        """Cut one row into its fields."""
        if self.squeezed:
            return line.split()
        return next(iter(_rows(line, self.delimiter, self.quote, 1)), [])


def read_dialect(stamp: FileStamp, options: TextOptions) -> Dialect:
    """Look at the beginning of a text.

    Raises
    ------
    FileFormatError
        If it is no text, or holds no row.
    """
    data, packed = _head(stamp, HEAD_BYTES)
    whole = len(data) < HEAD_BYTES
    if not whole and b"\n" not in data and b"\r" not in data:
        data, packed = _head(stamp, LONGEST_HEAD_BYTES)
        whole = len(data) < LONGEST_HEAD_BYTES
    _check_text(stamp, data)
    begin = len(_BOM) if data.startswith(_BOM) else 0
    newline = CR if b"\n" not in data and b"\r" in data else LF
    end = bytes([newline])
    for _ in range(options.skip_lines):
        begin = data.find(end, begin) + 1
        if not begin:
            raise FileFormatError(
                f"file {stamp.path!r} has no line after the skip_lines={options.skip_lines} first"
            )
    skipped = data[:begin].count(end)
    rest = data[begin:].lstrip(b"\r\n")
    skipped += data[begin : len(data) - len(rest)].count(end)
    begin = len(data) - len(rest)
    said = None if options.delimiter else _SAID.match(rest)
    if said is not None:
        begin, rest, skipped = begin + said.end(), rest[said.end() :], skipped + 1
    text = rest.decode(options.encoding, "surrogateescape")
    delimiter = said[1].decode() if said else options.delimiter
    delimiter = delimiter or _guessed_delimiter(stamp.path, text, options)
    squeezed = delimiter == WHITESPACE
    quote = None if squeezed else options.quote
    rows = _first_rows(text, " " if squeezed else delimiter, quote, squeezed)
    if not rows:
        raise FileFormatError(
            f"file {stamp.path!r} holds no row of text at its beginning, or opens a quote there "
            "that is not closed (pass quote=None if quotes enclose nothing)"
        )
    _check_first_row(stamp, rows[0], rest, newline, whole=whole)
    header = _guessed_header(rows, options.decimal) if options.header is None else options.header
    if header:
        taken = _length_of_row(stamp, rest, " " if squeezed else delimiter, quote, newline)
        skipped += rest[:taken].count(end)
        begin += taken
    names = _names(stamp, rows[0], header, options.names)
    return Dialect(
        " " if squeezed else delimiter,
        squeezed,
        quote,
        newline,
        begin,
        names,
        packed,
        skipped + 1,
        options.encoding,
        options.decimal,
        options.names is None and not squeezed and not (header and rows[0][-1].strip()),
    )


def _head(stamp: FileStamp, n_bytes: int) -> tuple[bytes, bool]:
    data = StoredBytes(stamp).pread(0, n_bytes)
    if not data.startswith(_GZIP):
        return data, False
    place, parts = inflating(stamp), [b""]
    try:
        while place.at < n_bytes and (part := place.read(n_bytes)):
            parts.append(part)
    except (OSError, EOFError) as fault:
        raise FileFormatError(f"file {stamp.path!r} cannot be unpacked: {fault}") from None
    return b"".join(parts), True


def _check_text(stamp: FileStamp, data: bytes) -> None:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileFormatError(
            f"file {stamp.path!r} is text in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"
        )
    if b"\0" in data:
        raise FileFormatError(
            f"file {stamp.path!r} is no text: byte {data.index(0)} is zero; pass format= if "
            "you know what it is"
        )


def _check_first_row(
    stamp: FileStamp, first: Sequence[str], rest: bytes, newline: int, *, whole: bool
) -> None:
    """Refuse what would take memory without end to parse, and names that cannot be shown."""
    if not whole and bytes([newline]) not in rest:
        raise FileFormatError(
            f"file {stamp.path!r} has no line end in its first {len(rest):,} bytes: it is no "
            "table, or has too many columns to parse; write such values with labeled.write, or as "
            ".npy"
        )
    if len(first) > MOST_COLUMNS:
        raise FileFormatError(
            f"file {stamp.path!r} has {len(first):,} columns, more than the {MOST_COLUMNS:,} that "
            "are parsed; write such values with labeled.write, or as .npy"
        )
    odd = next((field for field in first if any("\udc80" <= c <= "\udcff" for c in field)), None)
    if odd is not None:
        shown = odd.encode("utf-8", "surrogateescape")[:40]
        raise FileFormatError(
            f"the first row of {stamp.path!r} is no UTF-8: it has {shown!r}; tell its encoding="
            "'latin-1', 'cp1252' or whatever it is"
        )


def _rows(text: str, delimiter: str, quote: str | None, most: int) -> list[list[str]]:
    """Cut text into rows of fields, and return the first ones that are not blank."""
    try:
        return list(islice(filter(None, _read_rows(text, delimiter, quote)), most))
    except csv.Error:  # a field is longer than any that it takes
        return list(islice(filter(None, long_rows(text, delimiter, quote)), most))


def _read_rows(text: str, delimiter: str, quote: str | None) -> Iterator[list[str]]:
    lines = io.StringIO(text, newline="")
    if quote is None:
        return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=delimiter, quotechar=quote)


def long_rows(text: str, delimiter: str, quote: str | None) -> Iterator[list[str]]:
    r"""Cut text into rows of fields of any length.

    Examples
    --------
    >>> list(long_rows("a,'b,''c'\n\nd", ",", "'"))
    [['a', "b,'c"], [], ['d']]
    """
    field, row = _field(delimiter, quote), list[str]()
    at, mark = 0, quote or ""
    while at < len(text):
        found = field.match(text, at)
        assert found is not None, "any text begins with a field"
        enclosed, plain, end = found.groups()
        value = plain if enclosed is None else enclosed.replace(2 * mark, mark) + plain
        at = found.end()
        if row or value or enclosed is not None or end == delimiter:
            row.append(value)
        if end != delimiter:
            yield row
            row = []
        elif at == len(text):
            yield [*row, ""]


@cache
def _field(delimiter: str, quote: str | None) -> re.Pattern[str]:
    """Return what matches a field, and what ends it."""
    cut = re.escape(delimiter)
    end = rf"([^{cut}\r\n]*)({cut}|\r\n|\r|\n|\Z)"
    if quote is None:
        return re.compile(rf"((?!))?{end}")
    mark = re.escape(quote)
    return re.compile(rf"(?:{mark}([^{mark}]*(?:{mark}{mark}[^{mark}]*)*)(?:{mark}|\Z))?{end}")


def _first_rows(text: str, delimiter: str, quote: str | None, squeezed: bool) -> list[list[str]]:
    """Return the first rows that are not blank, at most `GUESSED_LINES` of them."""
    if squeezed:
        rows = [line.split() for line in text.splitlines()[: 2 * GUESSED_LINES]]
        return [row for row in rows if row][:GUESSED_LINES]
    return _rows(text, delimiter, quote, GUESSED_LINES)


def _guessed_delimiter(path: str, text: str, options: TextOptions) -> str:
    """Return the delimiter that cuts the first lines into equally many fields, most of all."""
    plain = path.lower().removesuffix(".gz")
    if plain.endswith((".tsv", ".tab")) and "\t" in text:
        return "\t"
    candidates = _CANDIDATES.replace(options.decimal, "")
    best, most = candidates[0], 1
    for one in candidates:
        counts = {len(row) for row in _first_rows(text, one, options.quote, squeezed=False)}
        if len(counts) == 1 and (n := counts.pop()) > most:
            best, most = one, n
    numbers = plain.endswith((".csv", ".tsv", ".tab"))
    if most == 1 and _in_columns(text, options.decimal, numbers=numbers):
        return WHITESPACE
    return best


def _in_columns(text: str, decimal: str, *, numbers: bool) -> bool:
    """Whether blanks cut the first lines into equally many fields, all of them `numbers`."""
    rows = _first_rows(text, " ", None, squeezed=True)
    alike = len({len(row) for row in rows}) == 1 and len(rows[0]) > 1
    return alike and (
        not numbers or all(_is_number(field, decimal) for row in rows for field in row)
    )


def _is_number(field: str, decimal: str) -> bool:
    try:
        float(field if decimal == "." else field.replace(decimal, "."))
    except ValueError:
        return False
    return "_" not in field


def _guessed_header(rows: Sequence[Sequence[str]], decimal: str) -> bool:
    first = [field.strip() for field in rows[0]]
    numbers = [[_is_number(field, decimal) for field in row] for row in rows]
    if any(numbers[0]):
        return False
    if not all(first):
        return _lacks_names(first, rows[1:], numbers[1:])
    names = len(set(first)) == len(first)
    return any(map(any, numbers)) or (names and (len(rows) > 1 or len(first) > 1))


def _lacks_names(
    first: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[Sequence[bool]]
) -> bool:
    """Whether a first line with empty fields names columns: a word stands above numbers alone.

    Programs that number their rows write no name above the numbers; others end each line
    with a delimiter; and there are tables with some column that has none.
    """
    for i in (i for i, name in enumerate(first) if name):
        below = [row[i] for row in numbers if i < len(row)]
        if below and all(below):
            return True
    inner = range(not first[0], len(first) - (not first[-1]))
    if not inner or not all(first[i] for i in inner):
        return False
    if any(row[i] for row in numbers for i in inner if i < len(row)):
        return True
    return not first[0] and [row[:1] for row in rows] == [[str(i)] for i in range(len(rows))]


def _length_of_row(
    stamp: FileStamp, data: bytes, delimiter: str, quote: str | None, newline: int
) -> int:
    """Bytes of the first row, its line end included."""
    mark = None if quote is None else ord(quote)
    text = np.frombuffer(data, np.uint8)
    lines = lines_of(text, mark, ord(delimiter), newline, last=True)
    if not len(lines.ends):
        raise FileFormatError(
            f"file {stamp.path!r} opens a quote in its first row that is not closed; close it, or "
            "pass quote=None if quotes enclose nothing"
        )
    return int(lines.ends[0])


def _names(
    stamp: FileStamp, first: Sequence[str], header: bool, given: tuple[str, ...] | None
) -> tuple[str, ...]:
    if given is not None and len(given) != len(first):
        raise FileFormatError(
            f"names= gives {len(given)} names, but the first row of {stamp.path!r} has "
            f"{len(first)} fields"
        )
    if given is not None:
        names = given
    elif header:
        names = tuple(field.strip() or f"column_{i}" for i, field in enumerate(first))
    else:
        names = tuple(f"column_{i}" for i in range(len(first)))
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise FileFormatError(
            f"columns {twice} of {stamp.path!r} have the same names; pass names=[...] to tell them "
            "apart"
        )
    return names
