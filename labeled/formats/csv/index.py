"""How a text is written: its options, what its beginning tells, and an index of its rows.

The delimiter and the header are guessed from the first rows: the delimiter that cuts them into
the most fields, equally many in each row, wins; a first row without a number names the columns, and
so does one with numbers that are unlike the values below.

A line end ends a row unless it is quoted. The index is built in one pass and keeps where every
so-many-th row begins, eight bytes for about half a mebibyte of text. To read a row, its block is
read and cut into rows again, so rows are read in any order, whatever the size of the file.

Values are left to the reader, which knows no quotes and no line ends: that is why there are two
modules.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import numpy as np

from labeled._optional import extra_module
from labeled._validation import check_fields, integer
from labeled.errors import FileFormatError, LoaderError, listed, warn
from labeled.formats.bytesource import contents, open_bytes
from labeled.formats.header import TEXT, FileStamp
from labeled.formats.region import Array, Ints

WHITESPACE = "whitespace"

TIME = np.dtype("datetime64[ns]")  # the dtype of all times, as in every other format

# fields that stand for a missing value in a column of numbers or times
MISSING = ("", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "NULL", "null", "None", "#N/A")

LF, CR = 10, 13
READ_BYTES = 4 * 1024 * 1024
HEAD_BYTES = 1 << 21  # of a text, in which its first row must end
GUESSED_LINES = 20
MAX_COLUMNS = 1 << 17  # the parser takes five kibibytes for each

# text of a block, on average: no less than the first, nor than the second for each column, on which
# the parser spends 13 us however short it is; 500 columns of floats are read in half the time
BLOCK_BYTES, COLUMN_BYTES = 512 * 1024, 4 * 1024

MAX_BLOCK_BYTES = 16 * BLOCK_BYTES

MAX_NOTED = 1 << 20  # rows whose beginnings are noted while a text is gone through

# the longest row allowed: a quote that is never closed would make one row of the whole file
MAX_ROW_BYTES = 8 * 1024 * 1024

CANDIDATES = ",\t;|"
_ROW = re.compile(r"Row #(\d+): ")
_FIELD = re.compile(r"(?s)In CSV column #(\d+): (?:CSV )?(.*)")
_NAME = re.compile(r"\D*[^\W\d_]")  # letters before any digit
_YEAR = re.compile(r"(1[89]|20)\d\d")
_BOM = b"\xef\xbb\xbf"
_BLANKS, _EDGES = re.compile(rb"[ \t]+"), re.compile(rb"(?m)^ | (?=\r?$)")


def arrow(part: str = "") -> Any:
    """Return pyarrow, or a module of it."""
    return extra_module("pyarrow" + part, "delimited text needs pyarrow", "pyarrow", "tables")


# options


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
        a number, if it has a word above numbers, or if its numbers count columns (0, 1, 2 and so
        on, or years) as other lines do not; a warning says where it might. A last column without
        name and values, made by a delimiter that ends the lines, is left out.
    names : sequence of str, optional
        Names of all columns, instead of those in the file.
    labels : column or list of columns, optional
        Columns, by name or number, that become the source ``labels``.
    columns : "matrix", "separate" or mapping, optional
        "matrix" puts all numeric columns with a name side by side as the source ``features``,
        and is the default where there are several columns;
        "separate" makes a source of every column; a mapping gives the column of each source, or
        a list of columns to put side by side. The text is gone through once for each source that
        is read: many of them are read faster from what :func:`labeled.convert` makes of the file.
    dtype : dtype or mapping, optional
        Of all numeric columns, or by source or column; ``str`` leaves text as it is. By default
        samples of the file decide, as pyarrow infers types: int64, uint64 (integers too large for
        int64, such as ids), float64, bool, datetime64[ns] (dates and times in ISO 8601,
        ``2026-11-20`` or ``2026-11-20 12:30:00``; those with a zone become times of UTC) or text.
        Integers that neither dtype holds, or with a plus sign, are text, unless float64 holds each
        exactly.
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
        Values that are not UTF-8 come as Python's surrogate escapes, and a warning says so.
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
        integer("skip_lines", self.skip_lines, least=0)
        for name in ("delimiter", "quote", "decimal"):
            value = getattr(self, name)
            is_word = value is None or (name == "delimiter" and value == WHITESPACE)
            if not is_word and (len(value.encode()) != 1 or value in "\r\n"):
                hint = f", or {WHITESPACE!r}" if name == "delimiter" else ""
                raise LoaderError(f"{name}={value!r}: give one ASCII character{hint}")
        if self.decimal == self.delimiter:
            raise LoaderError(f"decimal={self.decimal!r} is the delimiter, too; give another one")
        for name in ("names", "missing"):
            if isinstance(words := getattr(self, name), str):
                raise LoaderError(f"{name}={words!r} is one word; give a list, [{words!r}]")
            object.__setattr__(self, name, None if words is None else tuple(map(str, words)))
        labels = (self.labels,) if isinstance(self.labels, str | int) else self.labels
        object.__setattr__(self, "labels", None if labels is None else tuple(labels))
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name)
        except LookupError as fault:
            raise LoaderError(f"encoding={self.encoding!r}: {fault}; give 'latin-1'") from None
        object.__setattr__(self, "columns", _checked_columns(self.columns))
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))


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


# how a text is written


class RowError(ValueError):
    """A row, counted from 0, is not what it should be. Never leaves the formats."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


@dataclass(frozen=True)
class Dialect:
    """How rows and fields are written."""

    given: TextOptions  # those on which rows and fields depend
    delimiter: str  # between fields; WHITESPACE for any number of blanks and tabs, empty if unknown
    begin: int  # where the first row of values begins, in the unpacked text
    names: tuple[str, ...] = ()

    @property
    def quote(self) -> str | None:
        """What encloses fields; nothing does between blanks."""
        return None if self.delimiter == WHITESPACE else self.given.quote

    @property
    def separator(self) -> str:
        """The character between fields that the parser sees."""
        return " " if self.delimiter == WHITESPACE else self.delimiter

    def parse(self, text: Array, types: Mapping[str, Any] | None = None) -> Any:
        """Return whole rows of text as a table of Arrow: columns that have `types`, or all.

        Raises
        ------
        RowError
            If a row has too few or too many fields, or a field is not a value of its type.
        """
        csv = arrow(".csv")
        if self.delimiter == WHITESPACE:  # one blank for blanks and tabs, none at the edges
            text = np.frombuffer(_EDGES.sub(b"", _BLANKS.sub(b" ", bytes(text))), np.uint8)
        reading = csv.ReadOptions(
            use_threads=False,
            block_size=len(text) + 1,
            column_names=self.names,
            autogenerate_column_names=not self.names,
            encoding=self.given.encoding,
        )
        parsing = csv.ParseOptions(
            delimiter=self.separator,
            quote_char=self.quote or False,
            newlines_in_values=self.quote is not None,
        )
        converting = csv.ConvertOptions(
            column_types=types,
            include_columns=[*(types or ())] if self.names else None,
            null_values=self.given.missing,
            strings_can_be_null=False,
            check_utf8=False,
            decimal_point=self.given.decimal,
        )
        pool = arrow().system_memory_pool()  # others keep much for the next block
        try:
            return csv.read_csv(arrow().py_buffer(text), reading, parsing, converting, pool)
        except UnicodeDecodeError as fault:
            row = int(np.searchsorted(self.rows(text)[1], fault.start, "right"))
            why = f"it is not {self.given.encoding}: {fault}; pass encoding="
        except ValueError as fault:
            row = int(found[1]) - 1 if (found := _ROW.search(str(fault))) else 0
            why = _ROW.sub("", str(fault), count=1)
            if found := _FIELD.match(why):
                name = self.names[int(found[1])]
                why = (
                    f"column {name!r}: {found[2]}; correct it, name it among missing=, or open "
                    f"with dtype={{{name!r}: str}}"
                )
            elif why.startswith("CSV parse error"):
                why += "; correct it, or check delimiter=, quote=, names= and skip_lines="
        raise RowError(row, why)

    def fields(self, text: bytes) -> list[list[str]]:
        """Cut rows into fields; return none if they have different numbers of fields."""
        n_most = text.count(self.separator.encode()) + 1
        words = {f"f{i}": arrow().string() for i in range(n_most)}
        try:
            table = replace(self, names=()).parse(np.frombuffer(text + b"\n", np.uint8), words)
            return [list(row.values()) for row in table.to_pylist()]
        except ValueError:
            return []

    def rows(self, text: Array, *, last: bool = True) -> tuple[Ints, Ints, int]:
        """Find the rows of a piece of text that begins with a row; blank lines are none.

        Parameters
        ----------
        text : uint8 array
        last : bool
            Whether the end of the text ends a row, too.

        Returns
        -------
        starts, ends : arrays of int
            A row ends behind its line end.
        rest : int
            Where an unfinished last row begins; the length of the text if there is none.

        Examples
        --------
        >>> dialect = Dialect(TextOptions(), ",", 0)
        >>> text = np.frombuffer(b'a,"b\\n"\\n\\nc,d\\ne', np.uint8)
        >>> starts, ends, rest = dialect.rows(text, last=False)
        >>> starts.tolist(), ends.tolist(), rest
        ([0, 8], [7, 12], 12)
        """
        ends, is_open = np.flatnonzero(text == LF) + 1, False
        quotes = np.flatnonzero(text == ord(self.quote)) if self.quote else ends[:0]
        if len(quotes):
            quotes = _enclosing(text, quotes, (self.separator or CANDIDATES).encode() + b"\r\n")
            ends, is_open = ends[np.searchsorted(quotes, ends) % 2 == 0], len(quotes) % 2 == 1
        if last and not is_open and len(text) and text[-1] != LF:
            ends = np.append(ends, len(text))
        starts = np.append(0, ends)[:-1]
        if self.delimiter == WHITESPACE:
            solid = np.append(0, np.cumsum(~np.isin(text, np.frombuffer(b" \t\r\n", np.uint8))))
            blank = solid[starts] == solid[ends]
        else:
            first, final = text[starts], text[ends - 1]
            blank = ((first == LF) | (first == CR)) & ((final == LF) | (final == CR))
            blank &= ends - starts <= 2
        return starts[~blank], ends[~blank], int(ends[-1]) if len(ends) else 0


def _enclosing(text: Array, quotes: Ints, borders: bytes) -> Ints:
    """Return the quotes that open fields and those that close them, in turn."""
    opens, closes = quotes[0::2], quotes[1::2]
    before = text[np.maximum(opens - 1, 0)]
    begins = (opens == 0) | np.isin(before, np.frombuffer(borders, np.uint8))
    begins[1:] |= opens[1:] == closes[: len(opens) - 1] + 1  # goes on with a doubled one
    if begins.all():
        return quotes
    mark, found = re.escape(bytes(text[quotes[:1]])), []  # some quote opens no field: 5" pipe
    fields = rb"%b(?:(?<=\A%b)|(?<=[%b]%b))(?:[^%b]++|%b%b)*+(%b)?"
    marks = (mark, mark, re.escape(borders), *[mark] * 5)
    for field in re.finditer(fields % marks, text.tobytes()):
        found += [field.start(), field.end() - 1] if field[1] else [field.start()]
    return np.array(found, np.int64)


def read_dialect(stamp: FileStamp, options: TextOptions) -> Dialect:
    """Find out how a text is written, from its beginning.

    Raises
    ------
    FileFormatError
        If it is not text, or holds no row.
    """
    data, file = next(contents(stamp, READ_BYTES), b"")[:HEAD_BYTES], f"file {stamp.path!r}"
    if b"\0" in data:
        raise FileFormatError(
            f"{file} is not text: byte {data.index(0)} is zero; save UTF-16 as UTF-8 (iconv -f "
            "UTF-16 -t UTF-8), or pass format= if you know what it is"
        )
    if b"\r" in data and b"\n" not in data:
        raise FileFormatError(f"{file} ends its lines by CR alone; save it with LF or CR LF")
    begin = len(_BOM) if data.startswith(_BOM) else 0
    for _ in range(options.skip_lines):
        begin = data.find(b"\n", begin) + 1
        if not begin:
            raise FileFormatError(
                f"{file} has no line after the skip_lines={options.skip_lines} first"
            )
    begin = len(data) - len(data[begin:].lstrip(b"\r\n"))
    given = replace(options, header=None, names=None, labels=None, columns=None, dtype=None)
    dialect = Dialect(given, options.delimiter or "", begin)
    text = np.frombuffer(data, np.uint8)[begin:]
    ends = dialect.rows(text, last=len(data) < HEAD_BYTES)[1] + begin
    if not len(ends):
        raise FileFormatError(
            f"{file} holds no row of text in its first {len(data):,} bytes: it opens a quote there "
            "that is not closed (pass quote=None if quotes enclose nothing), or is not a table"
        )
    first, some = data[begin : ends[0]], data[begin : ends[:GUESSED_LINES][-1]]
    if options.delimiter is None:
        dialect = _guess_delimiter(dialect, stamp.path, some)
    if first.count(dialect.separator.encode()) >= MAX_COLUMNS:
        raise FileFormatError(
            f"{file} has more than the {MAX_COLUMNS:,} columns that are parsed; write such values "
            "with labeled.write, or as .npy"
        )
    rows = [[*map(str.strip, row)] for row in dialect.fields(some) or dialect.fields(first)]
    if not rows:
        raise FileFormatError(
            f"the first row of {stamp.path!r} is not {options.encoding.upper()}: {first[:40]!r}; "
            "pass encoding='latin-1', 'cp1252' or whatever it is"
        )
    header, words = options.header, rows[0]
    if header is None:
        header = any(words) and (len(rows) > 1 or len(words) > 1)
        if header and any(_is_number(word, options.decimal) for word in words):
            header = min(len(words), len(rows)) > 1 and _is_header(stamp.path, *rows, given=options)
    names = options.names
    if names is None:
        names = tuple((word if header else "") or f"column_{i}" for i, word in enumerate(words))
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise FileFormatError(
            f"columns {twice} of {stamp.path!r} have the same names; pass names=[...] to tell them "
            "apart"
        )
    return replace(dialect, names=names, begin=int(ends[0]) if header else begin)


def _guess_delimiter(dialect: Dialect, path: str, text: bytes) -> Dialect:
    """Choose the delimiter that cuts the first rows into the most fields, equally many in each."""
    if path.lower().removesuffix(".gz").endswith((".tsv", ".tab")) and b"\t" in text:
        return replace(dialect, delimiter="\t")
    given = dialect.given
    candidates = CANDIDATES.replace(given.decimal, "")
    best, most = replace(dialect, delimiter=candidates[0]), 1
    for delimiter in candidates:
        one = replace(dialect, delimiter=delimiter)
        rows = one.fields(text)
        if rows and len(rows[0]) > most:
            best, most = one, len(rows[0])
    if most > 1:
        return best
    blanks = replace(dialect, delimiter=WHITESPACE)
    rows = blanks.fields(text)
    if not rows or len(rows[0]) == 1:
        return best
    fields = (each for each in rows[-1] if each not in given.missing)
    return blanks if all(_is_number(each, given.decimal) for each in fields) else best


def _is_header(path: str, words: list[str], *below: list[str], given: TextOptions) -> bool:
    """Whether a first row with numbers names the columns: by words above numbers, or by counting.

    Columns are counted from 0 or by years, unlike rows below; few of them could be values, too.
    """
    if max(Counter(filter(None, words)).values()) > 1:
        return False
    held = [[e for e in column if e not in given.missing] for column in zip(*below, strict=True)]
    for word, column in zip(words, held, strict=True):
        is_name = word not in given.missing and _NAME.match(word) and column
        if is_name and all(_is_number(each, given.decimal) for each in column):
            return True
    if not words[0] and held[0] == _numbers(0, len(below)):  # pandas numbers rows
        return True
    at = [i for i, word in enumerate(words) if _is_number(word, given.decimal)]
    first, n, n_counted = words[at[0]], len(at), len(at) + (not words[0])
    by_year = _YEAR.fullmatch(first) is not None
    if not (by_year or first == "0") or [words[i] for i in at] != _numbers(int(first), n):
        return False
    under = [[row[i] for i in at] for row in below]
    alike = [any(map(_YEAR.fullmatch, row)) if by_year else _counts(row) for row in under]
    # five columns make it sure, or four where one of them never holds a whole number
    n_sure = n_counted + any(held[i] and not any(map(str.isdecimal, held[i])) for i in at)
    if not any(alike) and (n > 1 and len(words) > 2 if by_year else n_sure > 4):
        return True
    if not all(alike) and (by_year or n_counted == len(words)):
        warn(
            f"the first row of {path!r}, {listed(words, 4)}, is read as values; pass header=True "
            "if it names the columns, or header=False if not"
        )
    return False


def _numbers(first: int, n: int) -> list[str]:
    return [str(i) for i in range(first, first + n)]


def _counts(fields: list[str]) -> bool:
    """Whether fields are whole numbers, evenly apart in some order."""
    whole = sorted(int(one) for one in fields if re.fullmatch(r"\d{1,9}", one))
    steps = {b - a for a, b in pairwise(whole)}
    return len(whole) == len(fields) and len(steps) == 1 and 0 < max(steps) < len(fields)


def _is_number(field: str, decimal: str) -> bool:
    try:
        float(field.replace(decimal, "."))
    except ValueError:
        return False
    return "_" not in field


# an index of rows


@dataclass(frozen=True, eq=False)
class RowIndex:
    """Where the rows of a text are."""

    starts: Ints  # where the first row of each block begins; then where the last row ends
    block_rows: int  # rows of each block but the last
    n_rows: int
    n_bytes: int  # of the text, unpacked
    odd: tuple[int, bytes] | None  # the first byte that should be UTF-8 and is not, and text around


@lru_cache(maxsize=8)
def row_index(stamp: FileStamp, dialect: Dialect) -> RowIndex:
    """Find the rows of a text in one pass.

    Every so-many-th row is noted, fewer as they become many. How many of them make a block is
    decided in the end, so that blocks are small also where later rows are longer than the first.

    Raises
    ------
    FileFormatError
        If a quote is not closed, or a row is longer than allowed.
    """
    found, each, n_rows, odd = [np.zeros(0, np.int64)], 1, 0, None
    at = end = dialect.begin
    parts = contents(stamp, READ_BYTES)
    text = np.frombuffer(next(parts, b""), np.uint8)[at:]
    for part in chain(parts, [None]):
        starts, ends, rest = dialect.rows(text, last=part is None)
        if len(starts):
            found.append(at + starts[-n_rows % each :: each])
            n_rows, end = n_rows + len(starts), at + int(ends[-1])
        if odd is None and dialect.given.encoding == "utf-8":  # the parser itself decodes others
            odd = _not_utf8(text[:rest], at)
        if sum(map(len, found)) > MAX_NOTED:
            found, each = [np.concatenate(found)[::2]], 2 * each
        text, at = text[rest:], at + rest
        if len(text) > (0 if part is None else MAX_ROW_BYTES):
            raise FileFormatError(
                f"file {stamp.path!r} opens a quote after byte {at} that is not closed (or has a "
                f"row of more than {MAX_ROW_BYTES} bytes); close it, or pass quote=None if quotes "
                "enclose nothing"
            )
        if part is not None:
            text = np.concatenate((text, np.frombuffer(part, np.uint8)))
    noted = np.concatenate(found)
    block = min(max(BLOCK_BYTES, COLUMN_BYTES * len(dialect.names)), MAX_BLOCK_BYTES)
    times = max(1, block * len(noted) // max(1, end - dialect.begin))
    while times > 1 and np.diff(noted[::times], append=end).max() > MAX_BLOCK_BYTES:
        times = times * 3 // 4
    starts = np.append(noted[::times], end)
    return RowIndex(starts, max(1, min(each * times, n_rows)), n_rows, at, odd)


def _not_utf8(text: Array, begin: int) -> tuple[int, bytes] | None:
    """Return the first byte that is not UTF-8, counted from `begin`, and what is around it."""
    whole = [None, arrow().py_buffer(np.array([0, len(text)], np.int32)), arrow().py_buffer(text)]
    try:  # Arrow checks without decoding, six times as fast as Python where not all is ASCII
        arrow().Array.from_buffers(arrow().utf8(), 1, whole).validate(full=True)
    except ValueError:
        try:
            str(text.data, "utf-8")
        except UnicodeDecodeError as fault:
            near = text[max(fault.start - 20, 0) : fault.start + 20]
            return begin + fault.start, near.tobytes()
    return None


def line_at(stamp: FileStamp, at: int) -> int:
    """Return the number of the line at byte `at`, by counting the line ends before it."""
    file, line = open_bytes(stamp), 1
    for begin in range(0, at, READ_BYTES):
        data = np.empty(min(READ_BYTES, at - begin), np.uint8)
        file.read_into(data, begin)
        line += int((data == LF).sum())
    return line
