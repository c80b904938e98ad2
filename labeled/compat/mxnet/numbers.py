"""Numbers as the old text iterators read them: float32 step by step, never correctly rounded.

A field is the longest number at its beginning, behind blanks; what follows is ignored. The whole
part and the fraction are read as whole numbers, divided and added in float32, and the exponent
is multiplied in, ten by ten: 2.36 becomes 2.3600001. Versions differ:

* ``"1.9.1"``: the whole part wraps at 64 bits, 19 digits of the fraction count, infinities and
  nan are known, and a field in which nothing can be read is left out.
* before: the whole part is added up in float32, the fraction wraps at 64 bits, and whatever is
  no number is 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.parameters import Version
from labeled.compat.mxnet.twister import F32

FloatArray = npt.NDArray[np.float32]

FLOAT = re.compile(rb"[ \t\r\n\f]*([+-]?)(\d*)(\.?)(\d*)((?:[eE][+-]?\d*)?)[fF]?")
WORDS = re.compile(rb"(nan)|(?:infinity|inf(?!i))", re.IGNORECASE)
WHOLE = re.compile(rb"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)")

PLAIN = re.compile(rb"-?\d{1,7}(?:\.\d{1,15})?(?:,-?\d{1,7}(?:\.\d{1,15})?)*")
"""Numbers that all versions read alike, and whose parts float64 holds exactly."""
POWERS = 10.0 ** np.arange(16)

LARGEST_EXPONENT = 38
LEAST_FACTOR = F32(1.17549435)
"""With an exponent of -38 smaller numbers were raised to it: the least normal float32."""
FRACTION_DIGITS = 19
WORD = 1 << 64


def plain_floats(text: bytes) -> FloatArray | None:
    """Read many plain numbers, apart by commas, at once; None where one is not plain.

    Examples
    --------
    >>> plain_floats(b"-2.36,7").tolist(), plain_floats(b"1e5,7")
    ([-2.3600001335144043, 7.0], None)
    """
    if not PLAIN.fullmatch(text):
        return None
    fields = text.split(b",")
    if b"." not in text and b"-" not in text:
        return np.array([int(field) for field in fields], np.float32)
    parts = [field.partition(b".") for field in fields]
    value = np.abs(np.array([int(whole) for whole, _, _ in parts], np.float64)).astype(np.float32)
    digits = np.array([int(fraction or b"0") for _, _, fraction in parts], np.float64)
    value += (digits / POWERS[[len(fraction) for _, _, fraction in parts]]).astype(np.float32)
    below = [whole[:1] == b"-" for whole, _, _ in parts]
    return np.negative(value, where=below, out=value)


def floats_of(fields: Sequence[bytes], version: Version) -> list[np.float32 | None]:
    """Read fields one by one; None for a field that version 1.9.1 leaves out.

    Examples
    --------
    >>> [float(x) for x in floats_of([b"2.36", b" -1e39", b"1.5f"], "1.9.1")]
    [2.3600001335144043, -1.0000000694406173e+38, 1.5]
    >>> floats_of([b"abc", b"inf"], "1.9.1")
    [None, np.float32(inf)]
    >>> floats_of([b"abc", b"inf"], "0.9.5")
    [np.float32(0.0), np.float32(0.0)]
    """
    return [_float_of(field, version) for field in fields]


def _float_of(field: bytes, version: Version) -> np.float32 | None:
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
        value = _whole_part(whole, newest=newest)
        if fraction:
            value = F32(value + _fraction(fraction, newest=newest))
        if exponent:
            value = _scaled(value, exponent, newest=newest)
    return -value if sign == b"-" else value


def _whole_part(digits: bytes, *, newest: bool) -> np.float32:
    if newest:
        return F32(int(digits or b"0") % WORD)
    value = F32(0)
    for digit in digits:
        value = F32(F32(value * F32(10)) + F32(digit - ord("0")))
    return value


def _fraction(digits: bytes, *, newest: bool) -> np.float32:
    if newest:
        digits = digits[:FRACTION_DIGITS]
    power = 10 ** len(digits) % WORD
    return F32(np.float64(int(digits) % WORD) / np.float64(power))


def _scaled(value: np.float32, exponent: bytes, *, newest: bool) -> np.float32:
    negative = exponent[1:2] == b"-"
    digits = exponent[1:].lstrip(b"+-")
    power = min(int(digits or b"0") % (1 << 32), LARGEST_EXPONENT)
    if newest and negative and power == LARGEST_EXPONENT:
        value = max(value, LEAST_FACTOR)
    factor = F32(1)
    for _ in range(power // 8):
        factor = F32(factor * F32(1e8))
    for _ in range(power % 8):
        factor = F32(factor * F32(10))
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
