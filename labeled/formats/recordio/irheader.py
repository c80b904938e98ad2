"""The header of a labelled payload: labels and ids before the bytes of a picture.

::

    flag u32 | label f32 | id u64 | id2 u64 | flag times f32 | payload

Flag 0 says that the header holds the only label; any other flag counts the labels that
follow, and the one in the header means nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.formats.recordio.framing import Buffer

HEADER = struct.Struct("<IfQQ")
HEADER_BYTES = HEADER.size
_FLAG = struct.Struct("<I")

HEADER_DTYPE = np.dtype(
    [("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")], align=False
)
LABEL = np.dtype("<f4")
LABEL_BYTES = LABEL.itemsize

Labels = npt.NDArray[np.float32]


class HeaderError(ValueError):
    """A payload does not begin with such a header. Never leaves the formats."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A payload taken apart."""

    id: int
    id2: int
    labels: Labels
    """float32 (n,); one where the header holds it."""
    payload: memoryview


def pack(payload: Buffer, labels: Any, id: int, id2: int = 0) -> bytes:
    """Put labels and ids before a payload.

    Parameters
    ----------
    labels : number or array of numbers
        A single number goes into the header; an array, of whatever length, behind it.
    id, id2 : int
        0 .. 2**64 - 1.

    Raises
    ------
    HeaderError
        If an id is out of range, or labels are no numbers.

    Examples
    --------
    >>> pack(b"xy", 3, id=7).hex()
    '0000000000004040070000000000000000000000000000007879'
    """
    try:
        with np.errstate(over="ignore"):  # becomes infinite, as for a plain cast
            values = np.asarray(labels).astype(np.float32)
        if values.ndim == 0:
            return HEADER.pack(0, float(values), id, id2) + bytes(payload)
        head = HEADER.pack(values.size, 0.0, id, id2)
    except (struct.error, ValueError, TypeError) as error:
        raise HeaderError(f"labels {labels!r} with ids {id!r}, {id2!r}: {error}") from None
    return b"".join((head, np.ascontiguousarray(values, LABEL).tobytes(), payload))


def unpack(data: Buffer) -> Labelled:
    """Take a payload apart.

    Raises
    ------
    HeaderError
        If it is shorter than its header says.

    Examples
    --------
    >>> one = unpack(pack(b"xy", [1, 2.5], id=7))
    >>> one.id, one.labels.tolist(), bytes(one.payload)
    (7, [1.0, 2.5], b'xy')
    """
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise HeaderError(f"it has {len(view)} bytes, where a header alone takes {HEADER_BYTES}")
    flag, label, id, id2 = HEADER.unpack_from(view)
    begin = HEADER_BYTES + flag * LABEL.itemsize
    if begin > len(view):
        raise HeaderError(f"it claims {flag:,} labels, more than its {len(view):,} bytes hold")
    labels = np.frombuffer(view[HEADER_BYTES:begin], LABEL) if flag else np.array([label], LABEL)
    return Labelled(id, id2, labels, view[begin:])


def body_of(data: memoryview) -> memoryview:
    """Return what follows the header and the labels, without taking these apart.

    Raises
    ------
    HeaderError
        If there is no room for them.
    """
    n_bytes = len(data)
    if n_bytes < HEADER_BYTES:
        raise HeaderError(f"it has {n_bytes} bytes, where a header alone takes {HEADER_BYTES}")
    begin = HEADER_BYTES + LABEL_BYTES * _FLAG.unpack_from(data)[0]
    if begin > n_bytes:
        raise HeaderError(f"it claims more labels than its {n_bytes:,} bytes hold")
    return data[begin:]
