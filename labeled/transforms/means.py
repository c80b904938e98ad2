"""The mean of many pictures, and the files that hold it.

A mean is computed with some rows in memory at a time. In files, as MXNet saves them, all numbers
are little-endian: a list of arrays, and a list of their names. An array comes in three forms,
distinguished by its first word.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.errors import ArrayError, AugmentError, FileFormatError
from labeled.formats.bytesource import bytes_of
from labeled.formats.replacing import check_target, replacing
from labeled.transforms.augment import axes_of_pictures, open_pictures

BLOCK_BYTES = 1 << 24

LIST_MAGIC = 0x112
NEWEST_MAGIC = 0xF993FAC9
V1_MAGIC = 0xF993FAC8
CPU = 1
DTYPES = ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8")  # type flags, by number

# what follows the first word of an array (storage, axes), and the type of its lengths; where that
# word is neither, it counts the axes, of 32 bits each
FORMS = {NEWEST_MAGIC: ("ii", "q"), V1_MAGIC: ("i", "q")}

MAX_AXES = 32


def mean_image(pictures: xr.DataArray) -> xr.DataArray:
    """Compute the mean picture of a source, out of core.

    Parameters
    ----------
    pictures : DataArray
        One dim counts pictures. A lazy one is read some rows at a time.

    Returns
    -------
    DataArray (channel, height, width), float32
        Summed up in float64. :func:`write_mean_file` saves it, ``Normalize(mean=...)`` takes it.

    Raises
    ------
    AugmentError
        If there is no picture, no dim counts them, or they have different sizes.

    Examples
    --------
    >>> images = xr.DataArray(np.arange(8.0).reshape(2, 1, 2, 2), dims=("b", "c", "y", "x"))
    >>> mean_image(images).values.tolist()
    [[[2.0, 3.0], [4.0, 5.0]]]
    """
    found = axes_of_pictures(pictures.dims)
    counts = found.dim_of_axis.get("b", found.others[0] if found.others else None)
    if counts is None:
        remedy = "expand_dims('batch') makes a batch of one picture"
        raise AugmentError(f"no dim of {pictures.dims} counts pictures; {remedy}")
    n = pictures.sizes[counts]
    if not n:
        raise AugmentError("there is no picture, and so no mean")
    step = max(1, BLOCK_BYTES // max(1, pictures.nbytes // n))
    total: Any = 0
    shapes = set[tuple[int, ...]]()
    for start in range(0, n, step):
        block = pictures.isel({counts: slice(start, start + step)}).load()
        some = open_pictures(block, None, batch=True).pictures
        shapes |= {one.shape for one in some}
        if len(shapes) > 1:
            raise AugmentError(f"pictures of sizes {sorted(shapes)} have no mean; resize them")
        total = total + np.sum(some, axis=0, dtype=np.float64)
    mean = xr.DataArray((total / n).astype(np.float32), dims=("height", "width", "channel"))
    return mean.transpose("channel", "height", "width")


def read_mean_file(path: str | os.PathLike[str]) -> npt.NDArray[np.float32]:
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
    name, content = os.fspath(path), bytes_of(path)
    try:
        return _first_array(content)
    except struct.error:
        found = f"ends at byte {len(content)}, in the middle of a header"
    except ValueError as fault:
        found = str(fault)
    raise FileFormatError(f"{name!r} {found}; expected a mean image of MXNet or write_mean_file")


def _first_array(content: bytes) -> npt.NDArray[np.float32]:
    magic, _, n_arrays, form = struct.unpack_from("<QQQI", content)
    if magic != LIST_MAGIC or n_arrays < 1:
        raise ValueError(f"begins with {magic:#x} and holds {n_arrays} arrays")
    fields, lengths = FORMS.get(form, ("", "I"))
    opening, at = f"<QQQI{fields}", struct.calcsize(f"<QQQI{fields}")
    *storage, n_axes = struct.unpack_from(opening, content)[3:]
    if storage[1:] not in ([], [0]):
        raise ValueError(f"holds an array of storage type {storage[1]}, not a dense one")
    if not 1 <= n_axes <= MAX_AXES:
        raise ValueError(f"holds an array of {n_axes} axes")
    head = f"<{n_axes}{lengths}iii"
    *shape, _, _, flag = struct.unpack_from(head, content, at)
    at += struct.calcsize(head)
    if not 0 <= flag < len(DTYPES):
        raise ValueError(f"holds an array of unknown type {flag}")
    dtype, size = np.dtype(DTYPES[flag]), math.prod(shape)
    if min(shape) < 0 or at + size * dtype.itemsize > len(content):
        raise ValueError(f"says it holds an array of shape {shape}, {dtype}, and ends before")
    return np.frombuffer(content, dtype, size, at).reshape(shape).astype(np.float32)


def write_mean_file(
    path: str | os.PathLike[str],
    mean: npt.ArrayLike,
    *,
    form: Literal["newest", "oldest"] = "newest",
) -> None:
    """Write one array so that MXNet reads it.

    Parameters
    ----------
    path : path
        Replaced in one step if it is there.
    mean : array (channel, height, width)
        Stored as float32.
    form : {"newest", "oldest"}
        "oldest" is what releases before 1.0 read.

    Raises
    ------
    ArrayError
        If `form` is neither.
    WriteError
        If the file cannot be written; what was there before is untouched.
    """
    array = np.ascontiguousarray(mean, "<f4")
    n, name = array.ndim, b"mean_img"
    heads = {
        "newest": struct.pack(f"<Iii{n}q", NEWEST_MAGIC, 0, n, *array.shape),
        "oldest": struct.pack(f"<I{n}I", n, *array.shape),
    }
    if form not in heads:
        raise ArrayError(f"form={form!r} must be 'newest' or 'oldest'")
    before = struct.pack("<QQQ", LIST_MAGIC, 0, 1) + heads[form] + struct.pack("<iii", CPU, 0, 0)
    behind = struct.pack("<QQ", 1, len(name)) + name
    with replacing(check_target(path, overwrite=True)) as part:
        Path(part).write_bytes(before + array.tobytes() + behind)
