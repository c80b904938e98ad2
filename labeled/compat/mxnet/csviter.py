"""``CSVIter``: numbers in text, one example a line, read as the old parser read them.

Numbers are float32 step by step, never correctly rounded. A field is the longest number at its
beginning, behind blanks; what follows is ignored. The whole part and the fraction are read as whole
numbers, divided and added in float32, and the exponent is multiplied in, ten by ten: 2.36 becomes
2.3600001. Versions differ:

* ``"1.9.1"``: the whole part wraps at 64 bits, 19 digits of the fraction count, infinities and
  nan are known, and a field in which nothing can be read is left out.
* before: the whole part is added up in float32, the fraction wraps at 64 bits, and whatever is
  not a number is 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.iterators import MXDataProvider, RoundBatches, Row
from labeled.compat.mxnet.parameters import (
    NAMES,
    Parameter,
    Version,
    checked_version,
    each_of,
    files_of,
    flag_of,
    integer_of,
    options_of,
    read_parameters,
    shape_of,
)
from labeled.compat.mxnet.twister import F32
from labeled.errors import FileFormatError, LoaderError

Array = npt.NDArray[Any]

PARAMETERS = {
    **NAMES,
    "data_csv": Parameter(str),
    "data_shape": Parameter(shape_of),
    **each_of(str, label_csv="NULL", dtype="float32"),
    "label_shape": Parameter(shape_of, (1,)),
    "batch_size": Parameter(integer_of, least=1),
    "round_batch": Parameter(flag_of, True),
}
DTYPES = ("float32", "int32", "int64")
BOM = b"\xef\xbb\xbf"
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
        dtype = asked.dtype if version == "1.9.1" else "float32"
        if dtype not in DTYPES:
            raise LoaderError(f"CSVIter: dtype={dtype!r} is none of {', '.join(DTYPES)}")
        data = _Table(asked.data_csv, asked.data_shape, version, dtype)
        label = None
        if asked.label_csv != "NULL":
            label = _Table(asked.label_csv, asked.label_shape, version, dtype)

        def rows() -> Iterator[Row]:
            labels = repeat(np.zeros((), dtype)) if label is None else label.rows()
            for number, row in enumerate(data.rows()):
                found = next(labels, None)
                if found is None:
                    raise FileFormatError(
                        f"{asked.label_csv!r} has {number} rows of labels, {asked.data_csv!r} has "
                        "more"
                    )
                yield Row(number, row, found)

        batches = RoundBatches(rows, asked.batch_size, asked.round_batch)
        super().__init__(batches.begin_epoch, version, asked)


class _Table:
    """The lines of some files, each an array."""

    def __init__(self, uri: str, shape: tuple[int, ...], version: Version, dtype: str) -> None:
        self.uri, self._shape, self._version = uri, shape, version
        self._dtype, self._files = np.dtype(dtype), files_of(uri)
        options = options_of(uri) if version == "1.9.1" else {}
        self._delimiter = options.get("delimiter", ",").encode()
        self._dropped = int(options.get("label_column", -1))
        self._plain = self._dropped < 0 and self._delimiter == b"," and dtype == "float32"

    def rows(self) -> Iterator[Array]:
        """Yield the lines that hold anything as arrays."""
        number, size = 0, math.prod(self._shape)
        for file in self._files:
            with open(file, "rb") as lines:
                for line in filter(None, chain.from_iterable(map(LINE_ENDS.split, lines))):
                    values = self._values(line)
                    if len(values) != size:
                        raise FileFormatError(
                            f"{self.uri!r}, row {number}: {len(values)} values, where the shape "
                            f"{self._shape} asks for {size}"
                        )
                    yield np.array(values, self._dtype).reshape(self._shape)
                    number += 1

    def _values(self, line: bytes) -> Any:
        if self._plain and PLAIN.fullmatch(line):
            return plain_floats(line)
        if self._version == "1.9.1":
            line = line.removeprefix(BOM)
        fields = line.split(self._delimiter)
        if fields[-1] == b"":  # a delimiter at the end is harmless
            fields.pop()
        if self._dropped >= 0:
            del fields[self._dropped : self._dropped + 1]
        if self._dtype.kind == "i":
            bits = 8 * self._dtype.itemsize
            return [n for f in fields if (n := whole_of(f, bits)) is not None]
        found = (float_of(field, self._version) for field in fields)
        return [x for x in found if x is not None]


# numbers

FLOAT = re.compile(rb"[ \t\r\n\f]*([+-]?)(\d*)(\.?)(\d*)((?:[eE][+-]?\d*)?)[fF]?")
WORDS = re.compile(rb"(nan)|(?:infinity|inf(?!i))", re.IGNORECASE)
WHOLE = re.compile(rb"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)")

PLAIN = re.compile(rb"-?\d{1,7}(?:\.\d{1,15})?(?:,-?\d{1,7}(?:\.\d{1,15})?)*")
"""Numbers that all versions read alike, and whose parts float64 holds exactly."""
POWERS = 10.0 ** np.arange(16)

LARGEST_EXPONENT = 38
MIN_FACTOR = F32(1.17549435)
"""With an exponent of -38 smaller numbers were raised to it: the least normal float32."""
FRACTION_DIGITS = 19
WORD = 1 << 64


def plain_floats(line: bytes) -> npt.NDArray[np.float32]:
    """Read the plain numbers of a line together.

    Examples
    --------
    >>> plain_floats(b"-2.36,7").tolist()
    [-2.3600001335144043, 7.0]
    """
    parts = [field.partition(b".") for field in line.split(b",")]
    value = np.abs(np.array([int(whole) for whole, _, _ in parts], np.float64)).astype(np.float32)
    digits = np.array([int(fraction or b"0") for _, _, fraction in parts], np.float64)
    value += (digits / POWERS[[len(fraction) for _, _, fraction in parts]]).astype(np.float32)
    below = [whole[:1] == b"-" for whole, _, _ in parts]
    return np.negative(value, where=below, out=value)


def float_of(field: bytes, version: Version) -> np.float32 | None:
    """Read the number that a field begins with; None where version 1.9.1 leaves it out."""
    found = FLOAT.match(field)
    assert found is not None, "every part of the pattern may be empty"
    sign, whole, _, fraction, exponent = found.groups()
    newest = version == "1.9.1"
    if newest and not whole:
        word = WORDS.match(field, found.end(1))
        if word is not None:
            value = F32("nan") if word[1] else F32("inf")
            return -value if sign == b"-" else value
    if newest and not found.end():
        return None
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        value = F32(0)
        if newest:
            value, fraction = F32(int(whole or b"0") % WORD), fraction[:FRACTION_DIGITS]
        else:
            for digit in whole:
                value = F32(F32(value * F32(10)) + F32(digit - ord("0")))
        if fraction:
            power = 10 ** len(fraction) % WORD
            value = F32(value + F32(np.float64(int(fraction) % WORD) / np.float64(power)))
        if exponent:
            value = _scaled(value, exponent, newest=newest)
    return -value if sign == b"-" else value


def _scaled(value: np.float32, exponent: bytes, *, newest: bool) -> np.float32:
    negative = exponent[1:2] == b"-"
    power = min(int(exponent[1:].lstrip(b"+-") or b"0") % (1 << 32), LARGEST_EXPONENT)
    if newest and negative and power == LARGEST_EXPONENT:
        value = max(value, MIN_FACTOR)
    factor = F32(1)
    for step in [1e8] * (power // 8) + [10] * (power % 8):
        factor = F32(factor * F32(step))
    return F32(value / factor if negative else value * factor)


def whole_of(field: bytes, bits: int) -> int | None:
    """Read a whole number as C does: octal behind 0, hexadecimal behind 0x; None if there is none.

    Examples
    --------
    >>> [whole_of(field, 32) for field in (b"010", b"-0x1f", b"2.9", b"2147483648", b"x")]
    [8, -31, 2, -2147483648, None]
    """
    found = WHOLE.match(field)
    if found is None:
        return None
    sign, digits = found.groups()
    base = 16 if digits[:2].lower() == b"0x" else 8 if digits[:1] == b"0" else 10
    value = int(digits, base) if base != 8 else int(b"0" + digits, 8)
    value = -value if sign == b"-" else value
    value = min(max(value, -(1 << 63)), (1 << 63) - 1)
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half
