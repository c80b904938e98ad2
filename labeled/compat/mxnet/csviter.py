"""``CSVIter``: numbers in text, one example a line, read as the old parser read them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.iterators import MXDataProvider, RoundBatches, Row
from labeled.compat.mxnet.numbers import floats_of, plain_floats, whole_of
from labeled.compat.mxnet.parameters import (
    NAMES,
    Parameter,
    Version,
    blocks_of,
    checked_version,
    files_of,
    flag_of,
    integer_of,
    options_of,
    read_parameters,
    shape_of,
    text_of,
)
from labeled.errors import FileFormatError, LoaderError

Array = npt.NDArray[Any]

PARAMETERS = {
    **NAMES,
    "data_csv": Parameter(text_of),
    "data_shape": Parameter(shape_of),
    "label_csv": Parameter(text_of, "NULL"),
    "label_shape": Parameter(shape_of, (1,)),
    "batch_size": Parameter(integer_of, least=1),
    "round_batch": Parameter(flag_of, True),
    "prefetch_buffer": Parameter(integer_of, 4),
    "dtype": Parameter(text_of, "float32"),
}
DTYPES = ("float32", "int32", "int64")
BOM = b"\xef\xbb\xbf"
LINES = 64
"""Lines that are read together where they are plain."""
BLANKS = b" \t\f"
LINE_ENDS = re.compile(rb"[\r\n]+")


class CSVIter(MXDataProvider):
    """Batches of the numbers in text files.

    Parameters
    ----------
    version : {"seed", "0.9.5", "1.9.1"}
        Whose rules: numbers, byte-order marks, fields without a number and `dtype` differ.
    strict : bool
        Refuse words that are no parameters, rather than pass them over as it was.
    **parameters
        `data_csv`, `data_shape`, `label_csv`, `label_shape`, `batch_size`, `round_batch`,
        `dtype`, `data_name`, `label_name`, and `prefetch_buffer`, which changes nothing here.

    Raises
    ------
    FileFormatError
        If there is no such file, or a line has another number of values than the shape.
    LoaderError
        If a parameter is missing or cannot be read.
    """

    def __init__(self, *, version: Version = "1.9.1", strict: bool = False, **parameters: Any):
        version = checked_version(version)
        asked = read_parameters("CSVIter", PARAMETERS, parameters, strict=strict)
        dtype = asked["dtype"] if version == "1.9.1" else "float32"
        if dtype not in DTYPES:
            raise LoaderError(f"CSVIter: dtype={dtype!r} is none of {', '.join(DTYPES)}")
        rows = _Rows(asked, version, np.dtype(dtype))
        batches = RoundBatches(rows.begin, asked["batch_size"], asked["round_batch"])
        super().__init__(batches, version, asked)


class _Rows:
    """The rows of the files of one iterator."""

    def __init__(self, asked: dict[str, Any], version: Version, dtype: np.dtype[Any]) -> None:
        self._data = _Table(asked["data_csv"], asked["data_shape"], version, dtype)
        labels = asked["label_csv"]
        self._label = (
            None if labels == "NULL" else _Table(labels, asked["label_shape"], version, dtype)
        )
        self._none = np.zeros((), dtype)

    def begin(self) -> Iterator[Row]:
        """Begin a pass."""
        labels = repeat(self._none) if self._label is None else self._label.rows()
        for number, data in enumerate(self._data.rows()):
            label = next(labels, None)
            if label is None:
                assert self._label is not None
                raise FileFormatError(
                    f"{self._label.uri!r} has {number} rows of labels, {self._data.uri!r} has more"
                )
            yield Row(number, data, label)


class _Table:
    """The lines of some files, each an array."""

    def __init__(
        self, uri: str, shape: tuple[int, ...], version: Version, dtype: np.dtype[Any]
    ) -> None:
        self.uri, self._shape, self._dtype, self._version = uri, shape, dtype, version
        self._files = files_of(uri)
        self._size = math.prod(shape)
        options = options_of(uri) if version == "1.9.1" else {}
        self._delimiter = options.get("delimiter", ",").encode()
        self._dropped = int(options.get("label_column", -1))
        self._plain = self._dropped < 0 and self._delimiter == b"," and dtype.kind == "f"

    def rows(self) -> Iterator[Array]:
        """Yield the lines as arrays."""
        lines, number = self._lines(), 0
        while some := list(islice(lines, LINES)):
            table = self._plain_table(some)
            if table is not None:
                yield from table
            else:
                yield from (self._row(line, number + i) for i, line in enumerate(some))
            number += len(some)

    def _plain_table(self, lines: list[bytes]) -> Array | None:
        """Read plain lines together; None where one of them is not plain."""
        commas = self._size - 1
        if not self._plain or any(line.count(b",") != commas for line in lines):
            return None
        values = plain_floats(b",".join(lines))
        return None if values is None else values.reshape(len(lines), *self._shape)

    def _row(self, line: bytes, number: int) -> Array:
        values = self._values(line)
        if len(values) != self._size:
            raise FileFormatError(
                f"{self.uri!r}, row {number}: {len(values)} values, where the shape "
                f"{self._shape} asks for {self._size}"
            )
        return np.array(values, self._dtype).reshape(self._shape)

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines that hold anything; one that ends in blanks with the line behind it."""
        rest, held = b"", None
        for block in blocks_of(self._files):
            lines = LINE_ENDS.split(rest + block)
            rest = lines.pop()
            for line in filter(None, lines):
                if held is not None:
                    yield held + b"\n" + line
                held = line if line[-1] in BLANKS else None
                if held is None:
                    yield line
        if held is not None:
            yield held

    def _values(self, line: bytes) -> list[Any]:
        if self._version == "1.9.1":
            line = line.removeprefix(BOM)
        line, _, following = line.partition(b"\n")
        fields = line.split(self._delimiter)
        if following:  # the old parser skipped blanks, and with them the end of a line
            fields[-1] += b"\n" + following
        if fields[-1] == b"":  # a delimiter at the end is harmless
            fields.pop()
        if self._dropped >= 0:
            del fields[self._dropped : self._dropped + 1]
        if self._dtype.kind == "i":
            bits = 8 * self._dtype.itemsize
            return [n for f in fields if (n := whole_of(f, bits)) is not None]
        return [x for x in floats_of(fields, self._version) if x is not None]
