"""``CSVIter`` and ``MNISTIter``: numbers in text and in the classic IDX files.

Text has one example a line, read as the old parser read it. Numbers are float32 step by step,
never correctly rounded. A field is the longest number at its beginning, behind blanks; what
follows is ignored. The whole part and the fraction are read as whole numbers, divided and added in
float32, and the exponent is multiplied in, ten by ten: 2.36 becomes 2.3600001. Versions differ:

* ``"1.9.1"``: the whole part wraps at 64 bits, 19 digits of the fraction count, infinities and
  nan are known, and a field in which nothing can be read is left out.
* before: the whole part is added up in float32, the fraction wraps at 64 bits, and whatever is
  not a number is 0.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.iterators import Array, DataBatch, MXDataProvider, Row
from labeled.compat.mxnet.parameters import Version, files_of, options_of, read_parameters
from labeled.compat.mxnet.twister import F32, Twister
from labeled.errors import FileFormatError, LoaderError
from labeled.formats.bytesource import bytes_of

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
        asked = read_parameters("CSVIter", parameters, version, strict)
        dtype = asked.dtype if version == "1.9.1" else "float32"
        if dtype not in DTYPES:
            raise LoaderError(f"CSVIter: dtype={dtype!r} is none of {', '.join(DTYPES)}")
        path, label_path = asked.data_csv, asked.label_csv
        self._data = partial(_table, path, files_of(path), asked.data_shape, version, dtype)
        self._labels: Callable[[], Iterator[Array]] = partial(repeat, np.zeros((), dtype))
        if label_path != "NULL":
            files = files_of(label_path)
            self._labels = partial(_table, label_path, files, asked.label_shape, version, dtype)
        super().__init__(version, asked)

    def _pass(self) -> Iterator[Row]:
        labels = self._labels()
        for number, row in enumerate(self._data()):
            label = next(labels, None)
            if label is None:
                path = self._asked.label_csv
                raise FileFormatError(f"{path!r} has {number} rows of labels, data more")
            yield Row(number, row, label)


def _table(
    path: str, files: list[str], shape: tuple[int, ...], version: Version, dtype: str
) -> Iterator[Array]:
    """Yield the lines of files that hold anything as arrays."""
    options = options_of(path) if version == "1.9.1" else {}
    delimiter = options.get("delimiter", ",").encode()
    dropped = int(options.get("label_column", -1))
    plain = dropped < 0 and delimiter == b"," and dtype == "float32"
    read: Callable[[bytes], Any] = partial(float_of, version=version)
    if dtype != "float32":
        read = partial(whole_of, bits=8 * np.dtype(dtype).itemsize)
    for number, line in enumerate(chain.from_iterable(map(_lines, files))):
        if plain and PLAIN.fullmatch(line):
            values: Any = plain_floats(line)
        else:
            fields = line.removeprefix(BOM if version == "1.9.1" else b"").split(delimiter)
            if fields[-1] == b"":  # a delimiter at the end is harmless
                fields.pop()
            if dropped >= 0:
                del fields[dropped : dropped + 1]
            values = [value for value in map(read, fields) if value is not None]
        if len(values) != math.prod(shape):
            wrong = f"{len(values)} values, where the shape {shape} asks for {math.prod(shape)}"
            raise FileFormatError(f"{path!r}, row {number}: {wrong}")
        yield np.array(values, dtype).reshape(shape)


def _lines(file: str) -> Iterator[bytes]:
    with open(file, "rb") as lines:
        yield from filter(None, chain.from_iterable(map(LINE_ENDS.split, lines)))


# numbers

FLOAT = re.compile(rb"[ \t\r\n\f]*([+-]?)(\d*)(\.?)(\d*)((?:[eE][+-]?\d*)?)[fF]?")
WORDS = re.compile(rb"(nan)|(?:infinity|inf(?!i))", re.IGNORECASE)
WHOLE = re.compile(rb"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)")

# numbers that all versions read alike, and whose parts float64 holds exactly
PLAIN = re.compile(rb"-?\d{1,7}(?:\.\d{1,15})?(?:,-?\d{1,7}(?:\.\d{1,15})?)*")
POWERS = 10.0 ** np.arange(16)

LARGEST_EXPONENT = 38
# with an exponent of -38 smaller numbers were raised to it: the least normal float32
MIN_FACTOR = F32(1.17549435)
FRACTION_DIGITS = 19
WORD = 1 << 64


def plain_floats(line: bytes) -> npt.NDArray[np.float32]:
    """Read the plain numbers of a line together: three times as fast as one by one.

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
    value = min(max(int(sign + digits, base), -(1 << 63)), (1 << 63) - 1)
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


# digits

log = logging.getLogger(__name__)


class MNISTIter(MXDataProvider):
    """Batches of pictures, each value 1/256 of its byte, and of their labels.

    A last batch that would be short is left out; the order is drawn once, not every epoch. The
    files' magic numbers are not checked, nor that there are no more labels than pictures.

    Parameters
    ----------
    version : {"seed", "0.9.5", "1.9.1"}
        With "seed" a loop begins a new epoch; otherwise all have the same rules.
    strict : bool
        Refuse words that are no parameters, rather than pass them over as it was.
    **parameters
        `image`, `label`, `batch_size`, `shuffle`, `flat`, `seed`, `silent`, `num_parts`,
        `part_index`, `data_name`, `label_name`, and `prefetch_buffer`, which changes nothing.

    Raises
    ------
    FileFormatError
        If a file is missing or shorter than its header says, or there are too few labels.
    LoaderError
        If a parameter cannot be read, or there is not one whole batch.
    """

    _ahead = 0

    def __init__(self, *, version: Version = "1.9.1", strict: bool = False, **parameters: Any):
        asked = read_parameters("MNISTIter", parameters, version, strict)
        part, parts, size = asked.part_index, asked.num_parts, asked.batch_size
        if part >= parts:
            raise LoaderError(f"MNISTIter: part_index={part} must be below num_parts={parts}")
        if asked.dtype != "float32":
            raise LoaderError(f"MNISTIter: dtype={asked.dtype!r} must be float32")
        images, labels = (
            values[int(len(values) / parts * part) : int(len(values) / parts * (part + 1))]
            for values in (_read(asked.image, 2), _read(asked.label, 0))
        )
        if len(labels) < len(images):
            few = f"{len(labels)} labels for the {len(images)} pictures"
            raise FileFormatError(f"{asked.label!r} holds {few} of {asked.image!r}, part {part}")
        if asked.shuffle:
            order = Twister(asked.seed).shuffled(len(images))
            images, labels = images[order], labels[order]
        shape = images.shape[1:]
        images = images.reshape(len(images), *([math.prod(shape)] if asked.flat else [1, *shape]))
        if not asked.silent:
            log.info(
                "MNISTIter: load %d images, shuffle=%d, shape=%s",
                len(images), asked.shuffle, (size, *images.shape[1:]),
            )  # fmt: skip

        self._images, self._labels = images, labels
        super().__init__(version, asked)

    def _batches(self) -> Iterator[DataBatch]:
        """Cut whole batches out of the arrays."""
        size = self._asked.batch_size
        for stop in range(size, len(self._images) + 1, size):
            data = self._images[stop - size : stop].astype(np.float32) * np.float32(1 / 256)
            label = self._labels[stop - size : stop].astype(np.float32)
            yield DataBatch([data], [label], 0, np.zeros(size, np.uint64))


def _read(path: str, n_lengths: int) -> npt.NDArray[np.uint8]:
    """Return the array that the header of an IDX file claims."""
    begin = 4 * (2 + n_lengths)
    found = np.frombuffer(bytes_of(path), np.uint8)
    lengths = found[4:begin].tobytes().ljust(begin - 4, b"\0")
    shape = np.frombuffer(lengths, ">u4").tolist()
    if not 0 < math.prod(shape) <= len(found) - begin:
        wrong = f"claims an array of {shape} and holds {max(0, len(found) - begin)} values"
        raise FileFormatError(f"{path!r} {wrong}; it is cut off, or not an IDX file of bytes")
    return found[begin : begin + math.prod(shape)].reshape(shape)
