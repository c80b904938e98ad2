"""The mean of many pictures, and the files that hold it, as MXNet saves them.

Means are computed with some rows in memory at a time. In a file all numbers are little-endian: a
list of arrays, and a list of their names. An array comes in three forms, distinguished by its first
word. Every length is checked against what is left of the file before anything is allocated.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.errors import ArrayError, AugmentError, FileFormatError
from labeled.formats.replacing import check_target, replacing
from labeled.transforms.augment import open_pictures

FloatArray = npt.NDArray[np.float32]
Form = Literal["newest", "v1", "oldest"]

BLOCK_BYTES = 1 << 24

LIST_MAGIC = 0x112
NEWEST_MAGIC = 0xF993FAC9
V1_MAGIC = 0xF993FAC8
CPU = 1
DTYPES: tuple[str, ...] = ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8")
"""Type flags, by number."""

MAX_AXES = 32


def mean_image(pictures: xr.DataArray) -> xr.DataArray:
    """Compute the mean picture of a source, out of core.

    Parameters
    ----------
    pictures : DataArray
        The first dim counts pictures. A lazy one is read some rows at a time.

    Returns
    -------
    DataArray (channel, height, width), float32
        Summed up in float64. :func:`write_mean_file` saves it, ``Normalize(mean=...)`` takes it.

    Raises
    ------
    AugmentError
        If there is no picture, or they have different sizes.

    Examples
    --------
    >>> images = xr.DataArray(np.arange(8.0).reshape(2, 1, 2, 2), dims=("b", "c", "y", "x"))
    >>> mean_image(images).values.tolist()
    [[[2.0, 3.0], [4.0, 5.0]]]
    """
    n = len(pictures)
    if not n:
        raise AugmentError("there is no picture, and so no mean")
    step = max(1, BLOCK_BYTES // max(1, pictures.nbytes // n))
    total: Any = 0
    shapes = set[tuple[int, ...]]()
    for start in range(0, n, step):
        some = open_pictures(pictures[start : start + step].load(), None).pictures
        shapes |= {one.shape for one in some}
        if len(shapes) > 1:
            raise AugmentError(
                f"pictures of sizes {sorted(shapes)} have no mean; crop or resize them"
            )
        total = total + np.sum(some, axis=0, dtype=np.float64)
    mean = xr.DataArray((total / n).astype(np.float32), dims=("height", "width", "channel"))
    return mean.transpose("channel", "height", "width")


def read_mean_file(path: str | os.PathLike[str]) -> FloatArray:
    """Return the first array of a file, a mean image as a rule.

    Parameters
    ----------
    path : path
        Written by MXNet, of any age, or by :func:`write_mean_file`.

    Returns
    -------
    float32 array
        Of a mean image: (channel, height, width), planes R, G, B.

    Raises
    ------
    FileFormatError
        If the file is missing, cut off, or of another kind.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"{os.fspath(path)!r} cannot be read: {error}") from error
    fields = _Fields(content, os.fspath(path))
    magic, _, n_arrays = fields.take("<QQQ")
    if magic != LIST_MAGIC or n_arrays < 1:
        raise fields.error(f"begins with {magic:#x} and holds {n_arrays} arrays")
    return fields.array()


def write_mean_file(
    path: str | os.PathLike[str],
    mean: npt.ArrayLike,
    *,
    form: Form = "newest",
) -> None:
    """Write one array so that MXNet reads it.

    Parameters
    ----------
    path : path
        Replaced in one step if it is there.
    mean : array (channel, height, width)
        Stored as float32.
    form : {"newest", "v1", "oldest"}
        "oldest" is what releases before 1.0 read.

    Raises
    ------
    ArrayError
        If `form` is none of these.
    WriteError
        If the file cannot be written; what was there before is untouched.
    """
    array = np.ascontiguousarray(mean, "<f4")
    shape64, tail = struct.pack(f"<{array.ndim}q", *array.shape), struct.pack("<iii", CPU, 0, 0)
    if form == "newest":
        head = struct.pack("<Iii", NEWEST_MAGIC, 0, array.ndim) + shape64
    elif form == "v1":
        head = struct.pack("<Ii", V1_MAGIC, array.ndim) + shape64
    elif form == "oldest":
        head = struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape)
    else:
        raise ArrayError(f"form={form!r} must be 'newest', 'v1' or 'oldest'")
    name = b"mean_img"
    pieces = (
        struct.pack("<QQQ", LIST_MAGIC, 0, 1), head, tail, array.tobytes(),
        struct.pack("<QQ", 1, len(name)), name,
    )  # fmt: skip
    with replacing(check_target(path, overwrite=True)) as part:
        Path(part).write_bytes(b"".join(pieces))


@dataclass
class _Fields:
    """The bytes of a file, taken from the front."""

    content: bytes
    path: str
    at: int = 0

    def take(self, fields: str) -> tuple[Any, ...]:
        """Return the next numbers."""
        length = struct.calcsize(fields)
        if self.at + length > len(self.content):
            raise self.error(f"ends at byte {len(self.content)}, in the middle of a header")
        found = struct.unpack_from(fields, self.content, self.at)
        self.at += length
        return found

    def array(self) -> FloatArray:
        """Return the next array."""
        (first,) = self.take("<I")
        if first == NEWEST_MAGIC:
            (storage,) = self.take("<i")
            if storage != 0:
                raise self.error(f"holds an array of storage type {storage}, not a dense one")
            shape = self._shape(self.take("<i")[0], "q")
        elif first == V1_MAGIC:
            shape = self._shape(self.take("<i")[0], "q")
        else:
            shape = self._shape(first, "I")
        _, _, flag = self.take("<iii")
        if not 0 <= flag < len(DTYPES):
            raise self.error(f"holds an array of unknown type {flag}")
        dtype, size = np.dtype(DTYPES[flag]), math.prod(shape)
        if min(shape) < 0 or self.at + size * dtype.itemsize > len(self.content):
            raise self.error(f"says it holds an array of shape {shape}, {dtype}, and ends before")
        values = np.frombuffer(self.content, dtype, size, self.at)
        self.at += values.nbytes
        return values.reshape(shape).astype(np.float32)

    def _shape(self, n_axes: int, kind: str) -> tuple[int, ...]:
        if not 1 <= n_axes <= MAX_AXES:
            raise self.error(f"holds an array of {n_axes} axes")
        return self.take(f"<{n_axes}{kind}")

    def error(self, found: str) -> FileFormatError:
        return FileFormatError(
            f"{self.path!r} {found}; a mean image written by MXNet or by write_mean_file was "
            f"expected"
        )
