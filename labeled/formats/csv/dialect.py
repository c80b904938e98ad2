"""How a text is written: its delimiter, its header, where its rows begin.

Line ends are found by whole arrays. Quotes come in pairs, so a line end counts where an even number
of them stands before it; where some quote opens no field (``5" pipe``), the text is walked through
from quote to quote instead.

What is not said is guessed from the first rows: the delimiter is the one that cuts them into
equally many fields, most of all; a first row without a number in it names columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.bytesource import StoredBytes, inflating
from labeled.formats.csv.options import UTF_8, WHITESPACE, TextOptions
from labeled.formats.header import FileStamp
from labeled.formats.region import Array, Ints
from labeled.later import extra_module

LF, CR = 10, 13

READ_BYTES = 4 * 1024 * 1024

HEAD_BYTES = 1 << 20
LONGEST_HEAD_BYTES = 1 << 23
"""Of a file whose first row is longer than that."""

GUESSED_LINES = 20

MOST_COLUMNS = 1 << 17
"""The parser takes five kibibytes for each."""

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_CANDIDATES = ",\t;|"
_BLANKS = re.compile(rb"[ \t]+")
_EDGES = re.compile(rb"(?m)^ | (?=\r?$)")

_SAID = re.compile(rb"(?i)sep=([ -~\t])\r?[\r\n]")
"""The first line by which spreadsheets tell the delimiter."""

Rows = list[list[str]]


@cache
def arrow(part: str = "") -> Any:
    """Return pyarrow, or a module of it."""
    return extra_module("pyarrow" + part, "delimited text needs pyarrow", "pyarrow", "tables")


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

    def lines(self, text: Array, *, last: bool = True) -> Lines:
        """Return where the rows of a piece of text are; see :func:`.lines.lines_of`."""
        quote = None if self.quote is None else ord(self.quote)
        return lines_of(text, quote, ord(self.delimiter), self.newline, last)


def read_dialect(stamp: FileStamp, options: TextOptions) -> Dialect:
    """Look at the beginning of a text.

    Raises
    ------
    FileFormatError
        If it is not text, or holds no row.
    """
    data = _head(stamp, HEAD_BYTES)
    whole = len(data) < HEAD_BYTES
    if not whole and b"\n" not in data and b"\r" not in data:
        data = _head(stamp, LONGEST_HEAD_BYTES)
        whole = len(data) < LONGEST_HEAD_BYTES
    _check_text(stamp, data)
    newline = CR if b"\n" not in data and b"\r" in data else LF
    end = bytes([newline])
    begin = _begin(stamp, data, end, options.skip_lines)
    said = None if options.delimiter else _SAID.match(data, begin)
    begin = begin if said is None else said.end()
    if not whole and end not in data[begin:]:
        raise FileFormatError(
            f"file {stamp.path!r} has no line end in its first {len(data):,} bytes: it is not a "
            "table, or has too many columns to parse; write such values with labeled.write, or as "
            ".npy"
        )
    first_line = data[:begin].count(end) + 1
    plain = Dialect(
        ",",
        False,
        options.quote,
        newline,
        begin,
        (),
        is_packed(stamp),
        first_line,
        options.encoding,
        options.decimal,
    )
    delimiter = options.delimiter if said is None else said[1].decode()
    dialect = _with_delimiter(plain, delimiter, stamp.path, data, whole=whole)
    first = _first_rows(dialect, data, 1, whole=whole)
    if not first:
        raise FileFormatError(
            f"file {stamp.path!r} holds no row of text at its beginning, or opens a quote there "
            "that is not closed (pass quote=None if quotes enclose nothing)"
        )
    if first.count(dialect.delimiter.encode()) >= MOST_COLUMNS:
        raise FileFormatError(
            f"file {stamp.path!r} has more than the {MOST_COLUMNS:,} columns that are parsed; "
            "write such values with labeled.write, or as .npy"
        )
    some = _first_rows(dialect, data, GUESSED_LINES, whole=whole)
    rows = _fields(dialect, some) or _fields(dialect, first)
    if rows is None:
        raise FileFormatError(
            f"the first row of {stamp.path!r} is not {options.encoding.upper()}: {first[:40]!r}; "
            "pass encoding='latin-1', 'cp1252' or whatever it is"
        )
    header = _guessed_header(rows, options.decimal) if options.header is None else options.header
    if header:
        first_line += data[begin : begin + len(first)].count(end)
        dialect = replace(dialect, begin=begin + len(first), first_line=first_line)
    nameless_end = options.names is None and not (header and rows[0][-1].strip())
    names = _names(stamp, rows[0], header, options.names)
    return replace(dialect, names=names, nameless_end=nameless_end and not dialect.squeezed)


def _first_rows(dialect: Dialect, data: bytes, n: int, *, whole: bool) -> bytes:
    """Return the text of the first rows; empty where none of them ends."""
    text = np.frombuffer(data, np.uint8)[dialect.begin :]
    ends = dialect.lines(text, last=whole).ends[:n]
    return data[dialect.begin : dialect.begin + int(ends[-1])] if len(ends) else b""


def parts_of(stamp: FileStamp) -> Iterator[bytes]:
    """Yield a text in pieces of any length, unpacked.

    Raises
    ------
    FileFormatError
        If it cannot be unpacked.
    """
    if not is_packed(stamp):
        for at in range(0, stamp.size, READ_BYTES):
            yield StoredBytes(stamp).pread(at, READ_BYTES)
        return
    place = inflating(stamp)
    try:
        while part := place.read(READ_BYTES):
            yield part
    except (OSError, EOFError) as fault:
        raise FileFormatError(f"file {stamp.path!r} cannot be unpacked: {fault}") from None


def is_packed(stamp: FileStamp) -> bool:
    """Whether a file is gzip-compressed."""
    return StoredBytes(stamp).pread(0, len(_GZIP)) == _GZIP


def _head(stamp: FileStamp, n_bytes: int) -> bytes:
    data = bytearray()
    for part in parts_of(stamp):
        data += part
        if len(data) >= n_bytes:
            break
    return bytes(data[:n_bytes])


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


def _begin(stamp: FileStamp, data: bytes, end: bytes, skip_lines: int) -> int:
    """Return where the first row begins: behind lines to skip, and blank ones."""
    begin = len(_BOM) if data.startswith(_BOM) else 0
    for _ in range(skip_lines):
        begin = data.find(end, begin) + 1
        if not begin:
            raise FileFormatError(
                f"file {stamp.path!r} has no line after the skip_lines={skip_lines} first"
            )
    return len(data) - len(data[begin:].lstrip(b"\r\n"))


def squeezed(text: bytes) -> bytes:
    """Put one blank for any number of blanks and tabs, none at the edges of lines.

    Examples
    --------
    >>> squeezed(b"  1.5\\t 2 \\n3  4\\n")
    b'1.5 2\\n3 4\\n'
    """
    return _EDGES.sub(b"", _BLANKS.sub(b" ", text))


def _with_delimiter(
    dialect: Dialect, asked: str | None, path: str, data: bytes, *, whole: bool
) -> Dialect:
    """Choose the delimiter that cuts the first rows into equally many fields, most of all."""
    blanks = replace(dialect, delimiter=" ", squeezed=True, quote=None)
    if asked is not None:
        return blanks if asked == WHITESPACE else replace(dialect, delimiter=asked)
    plain = path.lower().removesuffix(".gz")
    if plain.endswith((".tsv", ".tab")) and b"\t" in data:
        return replace(dialect, delimiter="\t")

    def rows_of(one: Dialect) -> Rows:
        return _fields(one, _first_rows(one, data, GUESSED_LINES, whole=whole)) or [[""]]

    each = [replace(dialect, delimiter=d) for d in _CANDIDATES.replace(dialect.decimal, "")]
    best = max(each, key=lambda one: len(rows_of(one)[0]))  # the first of them, where alike
    rows = rows_of(blanks)
    if len(rows_of(best)[0]) > 1 or len(rows[0]) < 2:
        return best
    if plain.endswith((".csv", ".tsv", ".tab")):  # where blanks are in words, too
        numbers = all(_is_number(field, dialect.decimal) for row in rows for field in row)
        return blanks if numbers else best
    return blanks


def _fields(dialect: Dialect, text: bytes) -> Rows | None:
    """Cut rows into fields, as the parser does; None where they have not equally many."""
    text = text + bytes([dialect.newline])
    try:
        names = read_table(text, dialect).column_names
        words = read_table(text, dialect, column_types=dict.fromkeys(names, arrow().string()))
    except (arrow().ArrowInvalid, UnicodeDecodeError):
        return None
    columns = [column.to_pylist() for column in words.columns]
    return [list(row) for row in zip(*columns, strict=True)] or None


def read_table(
    text: Any, dialect: Dialect, names: Sequence[str] | None = None, **converting: Any
) -> Any:
    """Parse whole rows of text; columns are called f0, f1, ... where no `names` are given."""
    csv = arrow(".csv")
    text = squeezed(bytes(text)) if dialect.squeezed else text
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
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            newlines_in_values=dialect.quote is not None,
        ),
        convert_options=csv.ConvertOptions(decimal_point=dialect.decimal, **converting),
        memory_pool=arrow().system_memory_pool(),  # others keep much for the next block
    )


def _is_number(field: str, decimal: str) -> bool:
    try:
        float(field if decimal == "." else field.replace(decimal, "."))
    except ValueError:
        return False
    return "_" not in field


def _guessed_header(rows: Rows, decimal: str) -> bool:
    """Whether the first row names columns: no field of it is a number, and few are empty.

    Programs that number their rows write no name above the numbers; others end each line with
    a delimiter; and there are tables with some column that has none: a word above numbers alone.
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


# where rows begin: at line ends, but for those within quotes and of blank lines


class Lines(NamedTuple):
    """Rows of a piece of text."""

    starts: Ints
    """Where each row begins, and ..."""
    ends: Ints
    """... one past its line end (or past the text, where that lacks one)."""
    rest: int
    """Where a last row begins whose end is not there; the length of the text without one."""


def lines_of(text: Array, quote: int | None, delimiter: int, newline: int, last: bool) -> Lines:
    """Find the rows of a piece of text that begins with a row.

    Parameters
    ----------
    text : uint8 array
    quote, delimiter, newline : int
        As bytes; no quote where nothing is enclosed.
    last : bool
        Whether the end of the text ends a row, too.

    Examples
    --------
    >>> text = np.frombuffer(b'a,"b\\n"\\n\\nc,d\\ne', np.uint8)
    >>> found = lines_of(text, ord('"'), ord(","), LF, last=False)
    >>> found.starts.tolist(), found.ends.tolist(), found.rest
    ([0, 8], [7, 12], 12)
    """
    at = np.flatnonzero(text == newline)
    open_from = len(text)
    if quote is not None:
        at, open_from = _outside_quotes(text, at, quote, delimiter)
    ends = at + 1
    if last and open_from == len(text) > (int(ends[-1]) if len(ends) else 0):
        ends = np.append(ends, len(text))
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    rest = int(ends[-1]) if len(ends) else 0
    full = ~_blank(text, starts, ends, newline)
    return Lines(starts[full].astype(np.int64), ends[full].astype(np.int64), rest)


def _blank(text: Array, starts: Ints, ends: Ints, newline: int) -> Array:
    """Whether lines hold nothing but their end."""
    if not len(starts):
        return np.zeros(0, bool)
    length = ends - starts
    only_end = (length == 1) & ((text[starts] == newline) | (text[starts] == CR))
    both = (length == 2) & (text[starts] == CR) & (text[ends - 1] == LF)
    blank: Array = only_end | both
    return blank


def _outside_quotes(text: Array, at: Ints, quote: int, delimiter: int) -> tuple[Ints, int]:
    """Keep line ends that no quotes enclose; tell where a quote stays open."""
    quotes = np.flatnonzero(text == quote)
    if not len(quotes):
        return at, len(text)
    if not _pairs_open_fields(text, quotes, delimiter):
        quotes = _true_pairs(text, quotes, quote, delimiter)
    kept: Ints = at[np.searchsorted(quotes, at) % 2 == 0]
    return kept, int(quotes[-1]) if len(quotes) % 2 else len(text)


def _pairs_open_fields(text: Array, quotes: Ints, delimiter: int) -> bool:
    """Whether every first quote of a pair begins a field, or goes on with a doubled one."""
    opens = quotes[0::2]
    before = text[np.maximum(opens - 1, 0)]
    begins = (opens == 0) | (before == delimiter) | (before == LF) | (before == CR)
    doubled = np.zeros(len(opens), bool)
    closes = quotes[1::2]
    doubled[1:] = opens[1:] == closes[: len(opens) - 1] + 1
    return bool((begins | doubled).all())


def _true_pairs(text: Array, quotes: Ints, quote: int, delimiter: int) -> Ints:
    """Return quotes that open fields and those that close them, by walking through."""
    pairs: list[int] = []
    field_ends = (delimiter, LF, CR)
    doubled = -1
    for at in quotes.tolist():
        if at == doubled:
            continue
        if len(pairs) % 2 == 0:
            if at == 0 or int(text[at - 1]) in field_ends:
                pairs.append(at)
        elif at + 1 < len(text) and int(text[at + 1]) == quote:
            doubled = at + 1
        else:
            pairs.append(at)
    return np.array(pairs, np.int64)
