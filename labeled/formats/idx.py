"""IDX as one format among others: files that belong together open as one dataset.

Names of files say which source a file holds, and of which split: ``train-images-idx3-ubyte`` and
``t10k-labels.idx1-ubyte.gz`` are how the MNIST files and their relatives are named;
``images-idx3-ubyte`` does without a split. Anything else is one source, "data".

A file begins with four bytes: two zeros, a code for the dtype, and the number of axes; then
comes the length of each axis as a 32-bit number. Numbers are big-endian throughout. What the
header claims is compared with the size of the file before anyone takes memory for it;
in a gzip-compressed one, with the most that its size could inflate to.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from labeled.dims import likely_image
from labeled.errors import FileFormatError, UnsafeFileError, warn
from labeled.formats.bytesource import contents, is_packed, stamp_of
from labeled.formats.contiguous import ContiguousReader
from labeled.formats.format import SPLITS, Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import FileHeader, Rows, SourceHeader

ORDER = ("train", "valid", "test")

# words in names, and the sources they mean
SOURCES = {source: source for source in ("images", "labels", "targets", "features")}
SOURCES |= {"image": "images", "label": "labels"}

DEFAULT = "data"

_ENDING = re.compile(r"[-._]idx(\d+)?([-._][a-z]+\d*)?(\.gz)?$")


class Named(NamedTuple):
    """What a name says."""

    group: str  # the same in all files that belong together
    split: str | None
    source: str


def is_named_idx(path: str) -> bool:
    """Whether a name is that of an IDX file; a bare ``.idx`` may be an index of something else.

    Examples
    --------
    >>> is_named_idx("t10k-images.idx3-ubyte.gz"), is_named_idx("cifar.idx")
    (True, False)
    """
    found = _ENDING.search(os.path.basename(path).lower())
    return found is not None and found[1] is not None


def what_is_in(path: str) -> Named:
    """Return what the name of a file says.

    Examples
    --------
    >>> what_is_in("/data/emnist-digits-train-images-idx3-ubyte.gz")
    Named(group='emnist-digits', split='train', source='images')
    >>> what_is_in("labels-idx1-ubyte"), what_is_in("faces.idx")
    (Named(group='', split=None, source='labels'), Named(group='', split=None, source='data'))
    """
    stem = _ENDING.sub("", os.path.basename(path).lower())
    words = re.split(r"[-._ ]+", stem.removesuffix(".gz"))
    source = next((SOURCES[word] for word in reversed(words) if word in SOURCES), DEFAULT)
    split = next((SPLITS[word] for word in words if word in SPLITS), None)
    if source == DEFAULT and split is None:
        return Named("", None, DEFAULT)
    group = "-".join(word for word in words if word not in SOURCES and word not in SPLITS)
    return Named(group, split, source)


def in_order(path: str) -> tuple[int, str]:
    """Return what sorts the files of a folder: train before test, then by name."""
    split = what_is_in(path).split
    return (len(ORDER) if split is None else ORDER.index(split), path)


def _scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    """Return one header for each set of files that differ only in their source, in their order."""
    units: dict[tuple[str, str | None, int], dict[str, str]] = {}
    for path in paths:
        group, split, source = what_is_in(path)
        number = 0  # of those that are named alike, in different folders
        while source in units.setdefault((group, split, number), {}):
            number += 1
        units[group, split, number][source] = path
    splits = [split for _, split, _ in units if split is not None]
    return tuple(
        _unit_header(unit, split, splits, options) for (_, split, _), unit in units.items()
    )


def _unit_header(
    unit: dict[str, str], split: str | None, splits: Sequence[str], options: Options
) -> FileHeader:
    where = next(iter(unit.values()))
    names = chosen_sources(unit, options, repr(where))
    sources = {name: _read_header(name, unit[name], options) for name in names}
    counts = {source.file.path: source.n_rows for source in sources.values()}
    if len(set(counts.values())) > 1:
        raise FileFormatError(
            "files that belong together hold different numbers of rows: "
            + ", ".join(f"{n} in {path!r}" for path, n in counts.items())
            + "; name those that fit, or open them apart"
        )
    rows: dict[str, dict[str, Rows]] = {
        each: {n: range(s.n_rows if each == split else 0) for n, s in sources.items()}
        for each in dict.fromkeys(splits)
    }
    stamp = next(iter(sources.values())).file
    return FileHeader(stamp, sources, rows or all_rows(sources), kind="idx", format="idx")


def default_dims(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Name axes by their number; of four, a last one as long as colours is the channel.

    Examples
    --------
    >>> default_dims((60000, 28, 28)), default_dims((10, 32, 32, 3))
    (('batch', 'height', 'width'), ('batch', 'height', 'width', 'channel'))
    """
    if len(shape) == 4:
        return ("batch", *(likely_image(shape[1:]) or ("channel", "height", "width")))
    known = {1: (), 2: ("feature",), 3: ("height", "width")}
    return ("batch", *known.get(len(shape), (f"axis_{axis}" for axis in range(1, len(shape)))))


# the header of a file


DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}

MAX_AXES = 64  # what NumPy can hold

# the largest row; the most rows that take no byte, or bytes of a row where there is none
MAX_ROW_BYTES, MAX_EMPTY = 1 << 40, 1 << 24

MAX_EXPANSION = 1032  # bytes that one deflated byte may stand for


def is_idx(data: bytes) -> bool:
    """Whether the first bytes of a file are those of an IDX file.

    Examples
    --------
    >>> is_idx(bytes([0, 0, 8, 3])), is_idx(bytes([0, 0, 7, 3])), is_idx(b"PK")
    (True, False, False)
    """
    return len(data) >= 4 and data[:2] == b"\0\0" and data[2] in DTYPES and 0 < data[3] <= MAX_AXES


def _read_header(name: str, path: str, options: Options) -> SourceHeader:
    """Read and check the header of an IDX file.

    Raises
    ------
    FileFormatError
        If it is not an IDX file, or shorter than its header says.
    UnsafeFileError
        If it claims more than its compressed bytes can stand for.

    Warns
    -----
    LabeledWarning
        If bytes follow its last row.
    """
    stamp = stamp_of(path)
    file, packed = f"file {stamp.path!r}", is_packed(stamp)
    data = next(contents(stamp, 4 + 4 * MAX_AXES), b"")
    if not is_idx(data):
        raise FileFormatError(
            f"{file} is not an IDX file: it begins with {data[:4].hex(' ') or 'nothing'}, where "
            "two zero bytes, a code of a dtype (08, 09, 0b, 0c, 0d, 0e) and a count of axes should "
            "stand; check the path"
        )
    dtype, n_axes, offset = DTYPES[data[2]], data[3], 4 + 4 * data[3]
    if len(data) < offset:
        raise FileFormatError(
            f"{file} ends within its header, which should tell the lengths of {n_axes} axes; "
            "copy it again"
        )
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", n_axes, offset=4))
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    most = MAX_ROW_BYTES if shape[0] else MAX_EMPTY
    is_absurd = math.prod(max(n, 1) for n in shape[1:]) * dtype.itemsize > most
    if is_absurd or (not row_bytes and shape[0] > MAX_EMPTY):
        raise UnsafeFileError(
            f"{file} claims the shape {shape} of {dtype}, which no array has; it is damaged, or no "
            "IDX file"
        )
    end = offset + shape[0] * row_bytes
    if packed and end > stamp.size * MAX_EXPANSION:
        raise UnsafeFileError(
            f"{file} claims {end} bytes (shape {shape} of {dtype}), but its {stamp.size} "
            f"compressed bytes cannot stand for more than {stamp.size * MAX_EXPANSION}; it is "
            "damaged, so copy it again"
        )
    if not packed and stamp.size < end:
        whole = max(0, stamp.size - offset) // max(1, row_bytes)
        raise FileFormatError(
            f"{file} is truncated: its header announces {shape[0]} rows, which end at byte {end}, "
            f"but it has {stamp.size} bytes ({whole} whole rows); copy it again"
        )
    if not packed and stamp.size > end:
        warn(f"{file} goes on for {stamp.size - end} bytes after its last row; they are not read")
    return SourceHeader(
        file=stamp._replace(unpacked_bytes=end) if packed else stamp,
        name=name,
        key="",
        shape=shape,
        dtype=dtype,
        dims=dims_of(name, default_dims(shape), options, stamp.path),
        offset=offset,
        stored_bytes=stamp.size,
        format="idx",
    )


FORMAT = Format(
    name="idx",
    title="IDX",
    suffixes=("-idx1-ubyte", "-idx3-ubyte", ".idx3-ubyte", "-idx3-ubyte.gz", "..."),
    recognises=lambda head: is_idx(head.data),
    scan=_scan,
    open_reader=ContiguousReader,
    kinds={"idx": "IDX, one array a file"},
    named=is_named_idx,
    order=in_order,
)
