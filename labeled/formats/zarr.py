"""Zarr stores as one format among others: folders of arrays, whose bytes zarr-python alone reads.

Dims are those of the arrays (`dimension_names`, or xarray's `_ARRAY_DIMENSIONS`). Arrays along the
example dim are sources; one that is named as its only dim, or in an attribute `coordinates` as
xarray writes it, is a coordinate; the others are carried whole. Shards of an array count as its
chunks: they are read together.

The trade-off: where chunks lie is known to zarr alone. Costs are counted in decoded chunks, and no
disk is advised of what is read next.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labeled._optional import extra_module
from labeled.dims import default_name
from labeled.errors import FileChangedError, FileFormatError, check_known, warn
from labeled.formats.bytesource import naming_rows
from labeled.formats.cf import PACKED, cf_of, named_coordinates
from labeled.formats.format import Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import (
    CALLED_LIKE_A_DIM,
    TEXT,
    FileHeader,
    FileStamp,
    FilterInfo,
    SourceHeader,
)
from labeled.formats.reader import (
    ByteRanges,
    FileReader,
    Io,
    bands_of,
    calls_of,
    put_parts,
)
from labeled.formats.region import Array, Ints, Region, box_of, outer_take

# files that hold what zarr says of a group or an array
MARKS = ("zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")

_ENCODED = np.vectorize(str.encode, otypes=[object])  # texts are bytes until they are handed out

XARRAY_DIMS = "_ARRAY_DIMENSIONS"

# what is asked of zarr at a time, at least a chunk: each call takes about a millisecond
CALL_BYTES = 1 << 20

KINDS = "?biufcSmMV"  # kinds of dtypes whose values are all of one size
TEXTS = "UT"  # those of texts, which are read as texts of variable length


def opened(path: str, group: str | None) -> Any:
    """Open a group of a store, or an array that is one by itself.

    Raises
    ------
    MissingExtraError
        If zarr is not installed.
    FileFormatError
        If zarr cannot open it.
    """
    zarr = extra_module("zarr", f"reading {path!r} needs zarr", "zarr", "zarr")
    try:
        return zarr.open(path, mode="r", path=group or "")
    except Exception as fault:  # whatever it makes of metadata that are damaged
        where = f"group {group!r} of " if group else ""
        raise FileFormatError(f"zarr cannot open {where}{path!r}: {fault}") from fault


def _stamp(path: str, key: str) -> FileStamp:
    """Return what tells whether an array is still the one that was opened: its metadata."""
    found = [folder / mark for folder in sorted({Path(path), Path(path, key)}) for mark in MARKS]
    states = [os.stat(file) for file in found if file.exists()]
    newest = max((state.st_mtime_ns for state in states), default=0)
    return FileStamp(path, sum(state.st_size for state in states), newest)


def _file_header(path: str, options: Options) -> FileHeader:
    root = opened(path, options.group)
    single = not hasattr(root, "members")
    members = [(Path(path).stem, root)] if single else sorted(root.members(max_depth=None))
    arrays = {name: array for name, array in members if not hasattr(array, "members")}
    whole = {
        name: f"values of {array.dtype} are not read from zarr stores"
        for name, array in arrays.items()
        if np.dtype(array.dtype).kind not in KINDS + TEXTS
    }
    headers = {n: _header(path, n, one, options) for n, one in arrays.items() if n not in whole}
    every = {dim for header in headers.values() for dim in header.dims}
    for name in [name for name, header in headers.items() if not header.dims and name in every]:
        whole[name] = CALLED_LIKE_A_DIM
        del headers[name]
    if (example_dim := options.example_dim) is None:
        example_dim = _example_dim(headers, arrays)
    else:
        check_known("example_dim= names", [example_dim], every, f"a dim of store {path!r}")
    attrs = {} if single else dict(root.attrs)
    scales = {name for name, header in headers.items() if header.dims == (name,)}
    named = [("", attrs), *((_group_of(n), header.used_attrs) for n, header in headers.items())]
    named += [(f"{name}/", dict(one.attrs)) for name, one in members if name not in arrays]
    declared = {
        at + n for group, own in named for n in named_coordinates([own]) for at in ("", group)
    }
    # xarray has no place for a coordinate of several dims named like one of them
    scales |= {name for name in headers.keys() & declared if name not in headers[name].dims}
    along = {n for n in headers.keys() - scales if headers[n].dims[:1] == (example_dim,)}
    sources, unnamed = {}, {}
    for name in chosen_sources(along, options, repr(path)):
        names = dims_of(name, headers[name].dims, options, path)
        sizes = set(zip(names, headers[name].shape, strict=True))
        own = {n: set(zip(headers[n].dims, headers[n].shape, strict=True)) for n in scales}
        coords = sorted(n for n in scales if own[n] <= sizes and name.startswith(_group_of(n)))
        sources[name] = replace(headers[name], dims=names, coords=tuple(coords))
        if len(names) > 1 and not _names_in(arrays[name]):
            unnamed[name] = names
    if unnamed.keys() - dict(options.dims).keys():
        first = next(iter(unnamed))
        warn(
            f"{path!r} does not name the axes of {', '.join(map(repr, unnamed))}; those of "
            f"{first!r} are called {', '.join(unnamed[first])}. Give the array dimension_names "
            f"where it is written, or pass dims={{{first!r}: (...)}} when opening it"
        )
    return FileHeader(
        stamp=_stamp(path, options.group or ""),
        attrs={key: value for key, value in attrs.items() if key != "coordinates"},
        sources=sources,
        variables={n: header for n, header in headers.items() if n not in along},
        splits=all_rows(sources),
        not_opened=whole,
        example_dim=example_dim,
        kind="zarr",
        coordinates=frozenset(scales),
        format="zarr",
        group=options.group or "",
    )


def _group_of(name: str) -> str:
    """Return what the names of all arrays in and below the group of an array begin with."""
    return name[: name.rfind("/") + 1]


def _names_in(array: Any) -> Sequence[str | None]:
    """Return the names of axes in the metadata of an array; none where it has none."""
    return getattr(array.metadata, "dimension_names", None) or array.attrs.get(XARRAY_DIMS) or ()


def _dims_of(name: str, array: Any) -> tuple[str, ...]:
    """Return the names of all axes; those that nobody named are numbered."""
    given = _names_in(array)
    if len(given) != array.ndim:
        given = (None,) * array.ndim
    return tuple(own or default_name(name, axis) for axis, own in enumerate(given))


def _example_dim(headers: Mapping[str, SourceHeader], arrays: Mapping[str, Any]) -> str | None:
    """Return "batch" where it is the first dim of an array, else that of the most bytes."""
    sizes: Counter[str] = Counter()
    for name, header in headers.items():
        if header.dims and header.dims != (name,):
            sizes[header.dims[0]] += int(arrays[name].nbytes)
    if "batch" in sizes:
        return "batch"
    return sizes.most_common(1)[0][0] if sizes else None


def _header(path: str, name: str, array: Any, options: Options) -> SourceHeader:
    attrs = {key: value for key, value in dict(array.attrs).items() if key != XARRAY_DIMS}
    cf, used, faults = None, frozenset[str](), list[str]()
    dtype, fill = np.dtype(array.dtype), attrs.get("_FillValue")
    if dtype.kind in TEXTS:
        dtype = TEXT
    if array.metadata.zarr_format == 2 and XARRAY_DIMS in array.attrs:
        # There xarray keeps it. A plain 0 is what zarr gives arrays that nobody gave one.
        fill = array.fill_value
        if fill is not None and (fill != 0 or not attrs.keys().isdisjoint(PACKED)):
            attrs.setdefault("_FillValue", fill)
    elif isinstance(fill, str) and dtype.kind == "f":  # as xarray writes it, so that NaN fits
        attrs["_FillValue"] = np.frombuffer(base64.b64decode(fill), "<f8")[0]
    if options.decode_cf:
        cf, used = cf_of(name, dtype, attrs, faults)
        cf = cf if used else None
    used |= {"coordinates"}  # those of a source stand for it
    for fault in faults:
        warn(f"{path!r}: {fault}")
    key = array.path
    together = getattr(array, "shards", None) or array.chunks
    return SourceHeader(
        file=_stamp(path, key),
        name=name,
        key=key,
        shape=tuple(array.shape),
        dtype=dtype,
        dims=_dims_of(name, array),
        attrs={k: value for k, value in attrs.items() if k not in used},
        used_attrs={k: value for k, value in attrs.items() if k in used},
        storage="chunked",
        chunks=tuple(together) if array.ndim else None,
        filters=(FilterInfo(0, "codecs of zarr"),),
        stored_bytes=None,
        cf=cf,
        format="zarr",
        scratch_bytes=2 * CALL_BYTES,
    )


class ZarrReader(FileReader):
    """Rows of one array, read by zarr-python; a :class:`~labeled.formats.reader.Reader`."""

    kind = "zarr"
    why = "zarr-python reads and decodes whole chunks"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self._box, self._inner = box_of(self.region)
        self._chunks_each = max(1, CALL_BYTES // max(1, self.chunk_rows * source.row_bytes))

    @cached_property
    def _array(self) -> Any:
        return opened(self.source.file.path, self.source.key)

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        source = self.source
        if _stamp(source.file.path, source.key) != source.file:
            raise FileChangedError(
                f"{source.file.path!r} has changed since it was opened: the metadata of "
                f"{source.key!r} have changed. Open it again."
            )
        # of a few chunks at a time, none of which lies between others unwanted
        for parts in calls_of(runs, self.chunk_rows, self._chunks_each, self.chunk_rows - 1):
            start, stop = int(parts[0, 0]), int(parts[-1, 1])
            with naming_rows(source, start, stop, Exception):  # each codec has errors of its own
                box = np.asarray(self._array[(slice(start, stop), *self._box)])
                box = _ENCODED(box) if source.dtype.hasobject else box
            put_parts(out, places, parts, outer_take(box, self._inner))

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        """Count touched chunks, by what they hold decoded: zarr alone knows where they are."""
        n = len(np.unique(bands_of(runs, self.chunk_rows)[:, 0] // self.chunk_rows))
        return (ByteRanges.elsewhere(np.full(n, self.chunk_rows * self.row_bytes), n),)


def _stored_bytes(sources: Sequence[SourceHeader]) -> list[int]:
    """Return what arrays take in the store: zarr adds up the sizes of its files."""
    return [opened(one.file.path, one.key).nbytes_stored() for one in sources]


def _read_scalar(source: SourceHeader) -> Array:
    """Return the value of an array without axes."""
    return np.asarray(opened(source.file.path, source.key)[()], source.dtype)


FORMAT = Format(
    name="zarr",
    title="a zarr store",
    suffixes=(".zarr",),
    scan=lambda paths, options: tuple(_file_header(path, options) for path in paths),
    open_reader=ZarrReader,
    kinds={"zarr": "zarr"},
    accepts=frozenset({"group", "decode_cf"}),
    read_scalar=_read_scalar,
    stored_bytes=_stored_bytes,
    marks=MARKS,
)
