"""How a text is written, and an index of its rows that is built in one pass over it.

The delimiter and the header are guessed from the first rows: the delimiter that cuts them into
the most fields, equally many in each row, wins; a first row without a number names the columns.

A line end ends a row unless it is quoted. The index keeps where every so-many-th row begins, eight
bytes for about half a mebibyte of text. To read a row, its block is read and cut into rows again,
so rows are read in any order, whatever the size of the file.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from labeled._optional import extra_module
from labeled.errors import FileFormatError
from labeled.formats.bytesource import FileRef, StoredBytes
from labeled.formats.csv.options import WHITESPACE, TextOptions
from labeled.formats.header import FileStamp
from labeled.formats.region import Array, Ints

LF, CR = 10, 13
READ_BYTES = 4 * 1024 * 1024
HEAD_BYTES = 1 << 21  # of a text, in which its first row must end
FIRST_BYTES = 1 << 14  # in which its first rows are looked for first
GUESSED_LINES = 20
MAX_COLUMNS = 1 << 17  # the parser takes five kibibytes for each

BLOCK_BYTES = 512 * 1024
"""Text of a block, about."""

MAX_BLOCK_BYTES = 16 * BLOCK_BYTES

MAX_ROW_BYTES = 8 * 1024 * 1024
"""The longest row allowed: a quote that is never closed would make one row of the whole file."""

_BOM, _GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"
_CANDIDATES = ",\t;|"
_BLANKS, _EDGES = re.compile(rb"[ \t]+"), re.compile(rb"(?m)^ | (?=\r?$)")
_SEP_LINE = re.compile(rb"(?i)sep=([ -~\t])\r?[\r\n]")  # spreadsheets name the delimiter so


@cache
def arrow(part: str = "") -> Any:
    """Return pyarrow, or a module of it."""
    return extra_module("pyarrow" + part, "delimited text needs pyarrow", "pyarrow", "tables")


@dataclass(frozen=True)
class Dialect:
    """How rows and fields are written."""

    delimiter: str
    """Between fields; :data:`WHITESPACE` for any number of blanks and tabs."""
    quote: str | None
    newline: int
    """The byte that ends rows."""
    begin: int
    """Where the first row of values begins, in the unpacked text."""
    first_line: int
    """Number of the line at `begin`, counted from 1."""
    encoding: str
    decimal: str
    names: tuple[str, ...] = ()
    trailing: bool = False
    """Whether each line ends with a delimiter that makes no column."""

    @property
    def n_fields(self) -> int:
        """Fields of a row."""
        return len(self.names) + self.trailing

    @property
    def separator(self) -> str:
        """The character between fields that the parser sees."""
        return " " if self.delimiter == WHITESPACE else self.delimiter

    def lines(self, text: Array, *, last: bool = True) -> Lines:
        """Return where the rows of a piece of text are; see :func:`lines_of`."""
        quote = None if self.quote is None else ord(self.quote)
        return lines_of(text, quote, ord(self.separator), self.newline, last)

    def first_rows(self, data: bytes, n: int, *, whole: bool) -> bytes:
        """Return the text of the first rows; empty if none of them ends in `data`."""
        text, ends = data[self.begin :], np.zeros(0, np.int64)
        for size in (FIRST_BYTES, len(text)):  # all of it only if rows are long
            part = np.frombuffer(text[:size], np.uint8)
            ends = self.lines(part, last=whole and len(part) == len(text)).ends[:n]
            if len(ends) == n:
                break
        return text[: int(ends[-1])] if len(ends) else b""

    def fields(self, text: bytes) -> list[list[str]]:
        """Cut rows into fields; return none if they have different numbers of fields."""
        text = text + bytes([self.newline])
        try:
            names = read_table(text, self).column_names
            words = read_table(text, self, column_types=dict.fromkeys(names, arrow().string()))
        except (arrow().ArrowInvalid, UnicodeDecodeError):
            return []
        columns = [column.to_pylist() for column in words.columns]
        return [list(row) for row in zip(*columns, strict=True)]


def read_table(
    text: Any, dialect: Dialect, names: Sequence[str] | None = None, **converting: Any
) -> Any:
    """Parse whole rows of text; columns are called f0, f1, ... if no `names` are given."""
    csv = arrow(".csv")
    if dialect.delimiter == WHITESPACE:  # one blank for blanks and tabs, none at the edges
        text = _EDGES.sub(b"", _BLANKS.sub(b" ", bytes(text)))
    return csv.read_csv(
        arrow().py_buffer(text),
        read_options=csv.ReadOptions(
            use_threads=False,
            block_size=len(text) + 1,
            column_names=names,
            autogenerate_column_names=names is None,
            encoding=dialect.encoding,
        ),
        parse_options=csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            newlines_in_values=dialect.quote is not None,
        ),
        convert_options=csv.ConvertOptions(decimal_point=dialect.decimal, **converting),
        memory_pool=arrow().system_memory_pool(),  # others keep much for the next block
    )


# how a text is written


def read_dialect(stamp: FileStamp, options: TextOptions) -> Dialect:
    """Find out how a text is written, from its beginning.

    Raises
    ------
    FileFormatError
        If it is not text, or holds no row.
    """
    data, whole, file = b"", True, f"file {stamp.path!r}"
    for part in text_parts(stamp):
        data += part
        if len(data) >= HEAD_BYTES:
            data, whole = data[:HEAD_BYTES], False
            break
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileFormatError(
            f"{file} is text in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"
        )
    if b"\0" in data:
        raise FileFormatError(
            f"{file} is not text: byte {data.index(0)} is zero; pass format= if you know what it is"
        )
    newline = CR if b"\n" not in data and b"\r" in data else LF
    end = bytes([newline])
    begin = len(_BOM) if data.startswith(_BOM) else 0
    for _ in range(options.skip_lines):
        begin = data.find(end, begin) + 1
        if not begin:
            raise FileFormatError(
                f"{file} has no line after the skip_lines={options.skip_lines} first"
            )
    begin = len(data) - len(data[begin:].lstrip(b"\r\n"))
    delimiter = options.delimiter
    if delimiter is None and (found := _SEP_LINE.match(data, begin)):
        delimiter, begin = found[1].decode(), found.end()
    if not whole and end not in data[begin:]:
        raise FileFormatError(
            f"{file} has no line end in its first {len(data):,} bytes: it is not a table, or has "
            "too many columns to parse; write such values with labeled.write, or as .npy"
        )
    dialect = Dialect(
        delimiter or ",",
        None if delimiter == WHITESPACE else options.quote,
        newline,
        begin,
        data[:begin].count(end) + 1,
        options.encoding,
        options.decimal,
    )
    if delimiter is None:
        dialect = _guess_delimiter(dialect, stamp.path, data, whole)
    first = dialect.first_rows(data, 1, whole=whole)
    if not first:
        raise FileFormatError(
            f"{file} holds no row of text at its beginning, or opens a quote there that is not "
            "closed (pass quote=None if quotes enclose nothing)"
        )
    if first.count(dialect.separator.encode()) >= MAX_COLUMNS:
        raise FileFormatError(
            f"{file} has more than the {MAX_COLUMNS:,} columns that are parsed; write such values "
            "with labeled.write, or as .npy"
        )
    rows = dialect.fields(dialect.first_rows(data, GUESSED_LINES, whole=whole))
    rows = rows or dialect.fields(first)
    if not rows:
        raise FileFormatError(
            f"the first row of {stamp.path!r} is not {options.encoding.upper()}: {first[:40]!r}; "
            "pass encoding='latin-1', 'cp1252' or whatever it is"
        )
    header = _guess_header(rows, options.decimal) if options.header is None else options.header
    names = _names(stamp.path, rows[0], header, options.names)
    if not header:
        return replace(dialect, names=names)
    line, begin = dialect.first_line + first.count(end), dialect.begin + len(first)
    return replace(dialect, begin=begin, first_line=line, names=names)


def text_parts(stamp: FileStamp) -> Iterator[bytes]:
    """Yield a text in pieces, unpacked.

    Raises
    ------
    FileFormatError
        If it cannot be unpacked.
    """
    if not is_packed(stamp):
        for at in range(0, stamp.size, READ_BYTES):
            yield StoredBytes(stamp).pread(at, READ_BYTES)
        return
    try:
        with gzip.open(stamp.path) as file:
            while part := file.read(READ_BYTES):
                yield part
    except (OSError, EOFError, zlib.error) as fault:
        raise FileFormatError(f"file {stamp.path!r} cannot be unpacked: {fault}") from None


def is_packed(stamp: FileStamp) -> bool:
    """Whether a file is gzip-compressed."""
    return StoredBytes(stamp).pread(0, len(_GZIP)) == _GZIP


def _guess_delimiter(dialect: Dialect, path: str, data: bytes, whole: bool) -> Dialect:
    """Choose the delimiter that cuts the first rows into the most fields, equally many in each."""
    name = path.lower().removesuffix(".gz")
    if name.endswith((".tsv", ".tab")) and b"\t" in data:
        return replace(dialect, delimiter="\t")
    blanks = replace(dialect, delimiter=WHITESPACE, quote=None)
    best, most = dialect, 0
    for delimiter in _CANDIDATES.replace(dialect.decimal, ""):
        one = replace(dialect, delimiter=delimiter)
        rows = one.fields(one.first_rows(data, GUESSED_LINES, whole=whole)) or [[""]]
        if len(rows[0]) > most:
            best, most = one, len(rows[0])
    rows = blanks.fields(blanks.first_rows(data, GUESSED_LINES, whole=whole))
    if most > 1 or not rows or len(rows[0]) == 1:
        return best
    if name.endswith((".csv", ".tsv", ".tab")):  # there, blanks may stand between words
        is_table = all(_is_number(field, dialect.decimal) for row in rows for field in row)
        return blanks if is_table else best
    return blanks


def _is_number(field: str, decimal: str) -> bool:
    try:
        float(field.replace(decimal, "."))
    except ValueError:
        return False
    return "_" not in field


def _guess_header(rows: list[list[str]], decimal: str) -> bool:
    """Whether the first row names columns: no field of it is a number, and few are empty.

    Programs that number their rows write no name above the numbers; others end each line with
    a delimiter. In other tables a column without a name counts if a word stands above numbers.
    """
    first, rest = [field.strip() for field in rows[0]], rows[1:]
    if any(_is_number(field, decimal) for field in first) or not any(first):
        return False
    columns = list(zip(*rest, strict=True)) if rest else [()] * len(first)
    numbers = [[_is_number(field, decimal) for field in column] for column in columns]
    if all(first):
        several = len(set(first)) == len(first) and (bool(rest) or len(first) > 1)
        return several or any(map(any, numbers))
    if any(name and below and all(below) for name, below in zip(first, numbers, strict=True)):
        return True
    inner = slice(not first[0], len(first) - (not first[-1]))
    if not all(first[inner]):
        return False
    counted = not first[0] and list(columns[0]) == [str(i) for i in range(len(rest))]
    return counted or any(map(any, numbers[inner]))


def _names(
    path: str, first: Sequence[str], header: bool, given: tuple[str, ...] | None
) -> tuple[str, ...]:
    if given is not None and len(given) != len(first):
        raise FileFormatError(
            f"names= gives {len(given)} names, but the first row of {path!r} has "
            f"{len(first)} fields"
        )
    fields = [field.strip() if header else "" for field in first]
    names = given or tuple(field or f"column_{i}" for i, field in enumerate(fields))
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise FileFormatError(
            f"columns {twice} of {path!r} have the same names; pass names=[...] to tell them apart"
        )
    return names


# where rows begin: after line ends, except quoted ones and those of blank lines


class Lines(NamedTuple):
    """Rows of a piece of text."""

    starts: Ints
    ends: Ints
    """One past the line end of each row, or past the text if it lacks one."""
    rest: int
    """Where an unfinished last row begins; the length of the text if there is none."""


def lines_of(text: Array, quote: int | None, delimiter: int, newline: int, last: bool) -> Lines:
    """Find the rows of a piece of text that begins with a row.

    Parameters
    ----------
    text : uint8 array
    quote, delimiter, newline : int
        As bytes; no quote if nothing is enclosed.
    last : bool
        Whether the end of the text ends a row, too.

    Examples
    --------
    >>> text = np.frombuffer(b'a,"b\\n"\\n\\nc,d\\ne', np.uint8)
    >>> found = lines_of(text, ord('"'), ord(","), LF, last=False)
    >>> found.starts.tolist(), found.ends.tolist(), found.rest
    ([0, 8], [7, 12], 12)
    """
    at, closed = np.flatnonzero(text == newline), True
    quotes = np.zeros(0, np.int64) if quote is None else np.flatnonzero(text == quote)
    if len(quotes):
        quotes = _enclosing(text, quotes, delimiter)
        at, closed = at[np.searchsorted(quotes, at) % 2 == 0], len(quotes) % 2 == 0
    rest = int(at[-1]) + 1 if len(at) else 0
    ends = at + 1
    if last and closed and rest < len(text):
        ends, rest = np.append(ends, len(text)), len(text)
    starts = np.append(0, ends)[:-1]
    length, first = ends - starts, text[starts]
    blank = (length == 1) & ((first == newline) | (first == CR))
    blank |= (length == 2) & (first == CR) & (text[ends - 1] == LF)
    return Lines(starts[~blank], ends[~blank], rest)


def _enclosing(text: Array, quotes: Ints, delimiter: int) -> Ints:
    """Return the quotes that open fields and those that close them, in turn."""
    opens, closes = quotes[0::2], quotes[1::2]
    before = text[np.maximum(opens - 1, 0)]
    begins = (opens == 0) | (before == delimiter) | (before == LF) | (before == CR)
    begins[1:] |= opens[1:] == closes[: len(opens) - 1] + 1  # goes on with a doubled one
    if begins.all():
        return quotes
    mark, found = re.escape(bytes(text[quotes[:1]])), []  # some quote opens no field: 5" pipe
    border = re.escape(bytes([delimiter]))
    fields = rb"%b(?:(?<=\A%b)|(?<=[%b\r\n]%b))(?:[^%b]++|%b%b)*+(%b)?"
    marks = (mark, mark, border, *[mark] * 5)
    for field in re.finditer(fields % marks, text.tobytes()):
        found += [field.start(), field.end() - 1] if field[1] else [field.start()]
    return np.array(found, np.int64)


# an index of rows


@dataclass(frozen=True, eq=False)
class RowIndex:
    """Where the rows of a text are."""

    starts: Ints
    """Where the first row of each block begins; then where the last row ends."""
    block_rows: int
    """Rows of each block but the last."""
    n_rows: int
    n_bytes: int
    """Of the text, unpacked."""

    @property
    def longest(self) -> int:
        """Bytes of the longest block."""
        return int(np.diff(self.starts).max(initial=0))


@lru_cache(maxsize=8)
def row_index(stamp: FileStamp, dialect: Dialect) -> RowIndex:
    """Find the rows of a text in one pass.

    Raises
    ------
    FileFormatError
        If a quote is not closed, or a row is longer than allowed.
    """
    index = _indexed(stamp, dialect, 0)
    while index.longest > MAX_BLOCK_BYTES and index.block_rows > 1:  # the first rows misled
        fewer = index.block_rows * BLOCK_BYTES // index.longest
        index = _indexed(stamp, dialect, max(1, fewer))
    return index


def _indexed(stamp: FileStamp, dialect: Dialect, block_rows: int) -> RowIndex:
    """Go through a text once; if `block_rows` is 0, the first rows decide how many make a block."""
    found: list[Ints] = []
    n_rows, at, end = 0, dialect.begin, dialect.begin
    skipped, left = dialect.begin, np.zeros(0, np.uint8)
    for part in chain(text_parts(stamp), [None]):
        last = part is None
        new = np.frombuffer(part or b"", np.uint8)
        text, skipped = np.concatenate((left, new[skipped:])), max(0, skipped - len(new))
        lines = dialect.lines(text, last=last)
        if len(lines.starts):
            if not block_rows:
                each = (int(lines.ends[-1]) - int(lines.starts[0])) / len(lines.starts)
                block_rows = max(1, int(BLOCK_BYTES / each))
            found.append(at + lines.starts[-n_rows % block_rows :: block_rows])
            n_rows += len(lines.starts)
            end = at + int(lines.ends[-1])
        left, at = text[lines.rest :], at + lines.rest
        if len(left) > (0 if last else MAX_ROW_BYTES):
            raise FileFormatError(
                f"file {stamp.path!r} opens a quote after byte {at} that is not closed (or has a "
                f"row of more than {MAX_ROW_BYTES} bytes); close it, or pass quote=None if quotes "
                "enclose nothing"
            )
    starts = np.concatenate([*found, np.array([end])]).astype(np.int64)
    return RowIndex(starts, max(1, min(block_rows, n_rows)), n_rows, at)


def line_at(stamp: FileStamp, dialect: Dialect, at: int) -> int:
    """Return the number of the line at byte `at`, by counting the line ends before it."""
    file, line, end = FileRef(stamp)(), dialect.first_line, bytes([dialect.newline])
    for begin in range(dialect.begin, at, READ_BYTES):
        data = np.empty(min(READ_BYTES, at - begin), np.uint8)
        file.read_into(data, begin)
        line += data.tobytes().count(end)
    return line
