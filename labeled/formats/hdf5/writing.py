"""Writing HDF5: files, sources, names of axes and attributes; no other module changes a file.

A file is written from the beginning under a name of its own (see
:mod:`~labeled.formats.replacing`) and in the format of HDF5 1.10 to 1.14: the chunk index is quick
to read, attributes may be of any size, and h5py reads it from 3.8 on. Chunks come ready-made from
:mod:`.filters` and go in by ``write_direct_chunk``; contiguous rows and texts are handed to HDF5
as arrays.

Chunked sources can always grow along axis 0; contiguous ones never can.

Axes: every axis gets a label, which is all that the Fuel layout knows. A netCDF reader finds dims
by dimension scales: one with values if there are coordinates along a dim, else an empty one that
takes no space and is not a variable. If sources give one name several lengths (or coordinates), the
scales of the later ones are called ``<source>_<dim>``, since netCDF has one length a name;
labels stay as they are, and go first when this library reads. A coordinate not called like its dim
is, in a file without splits, a netCDF variable that the attribute `coordinates` of its sources
names. In a file with splits it is one more scale of the axis, because only datasets that belong to
a source exist there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from labeled.errors import ArrayError, LabeledError
from labeled.formats.hdf5.filters import Chunk, Layout
from labeled.formats.hdf5.fuel import free_name
from labeled.formats.hdf5.labels import INTERNAL, NOT_A_VARIABLE
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.safety import to_bytes
from labeled.formats.header import vlen_base
from labeled.formats.region import Array

# that of HDF5 1.10, but for what is carried over from a file of a later one
LIBVER = ("v110", "latest")

# of chunks a source, and of what HDF5 notes down: heaps of texts among it, up to 32 MiB
CACHE_BYTES = 1 << 20


@contextlib.contextmanager
def open_to_write(path: str, mode: str, user_block: bytes = b"") -> Iterator[h5py.File]:
    """Open a file that nobody reads yet, with caches that stay small: nothing is written twice.

    `mode` is "w" for a new file, which begins with `user_block`, and "r+" for a copy that is to be
    changed.
    """
    before = {"userblock_size": len(user_block)} if user_block else {}
    file = h5py.File(path, mode, libver=LIBVER, rdcc_nbytes=CACHE_BYTES, **before)
    try:
        caching = file.id.get_mdc_config()
        caching.max_size = max(CACHE_BYTES, caching.min_size)
        caching.initial_size = min(caching.initial_size, caching.max_size)
        file.id.set_mdc_config(caching)
        yield file
    except BaseException:
        with contextlib.suppress(Exception):  # on a full disk closing fails once more
            file.close()
        raise
    file.close()
    if user_block:
        with open(path, "r+b") as written:
            written.write(user_block)


def file_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return how a dtype is stored: objects are texts of any length, unless it says otherwise."""
    return h5py.string_dtype() if dtype.kind == "O" and vlen_base(dtype) is None else dtype


vlen_dtype = h5py.vlen_dtype  # of rows of variable length; header.vlen_base undoes it


class SourceWriter:
    """Creates one source of an open file, and stores its rows.

    Parameters
    ----------
    file : h5py.File
        Open for writing.
    name : str
    dtype : dtype
        Object for texts.
    shape : tuple of int
        A first axis of None grows with the rows, and needs chunks.
    layout : Layout
    """

    def __init__(
        self,
        file: h5py.File,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int | None, ...],
        layout: Layout,
    ) -> None:
        n_rows, *row_shape = shape
        now = (n_rows or 0, *row_shape)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        for step in layout.filters:  # optional, so that HDF5 need not have it: it never applies it
            plist.set_filter(step.id, h5py.h5z.FLAG_OPTIONAL, step.options)
        if layout.fill:
            plist.set_fill_value(np.asarray(layout.fill, dtype))
            if layout.chunks is None:  # all rows are written, so that none needs it before
                plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        # HDF5 wants no chunk longer than a fixed axis, and none of length 0.
        most = None if layout.chunks is None else (None, *(n or None for n in row_shape))
        self.dataset = file.create_dataset(
            name, now, file_dtype(dtype), chunks=layout.chunks, maxshape=most, dcpl=plist
        )

    def put_chunks(self, chunks: Iterable[Chunk], stop: int) -> None:
        """Store encoded chunks of rows that end before row `stop`."""
        self._make_room(stop)
        for chunk in chunks:
            self.dataset.id.write_direct_chunk(chunk.offset, chunk.data, chunk.mask)

    def put_rows(self, start: int, rows: Array) -> None:
        """Store rows as they are, beginning at row `start`."""
        self._make_room(start + len(rows))
        if rows.dtype.kind == "O":
            store_objects(self.dataset, start, rows)
        elif rows.size:
            # As the dataset has it: HDF5 converts no character set into another.
            self.dataset[start : start + len(rows)] = np.asarray(rows, self.dataset.dtype)

    def _make_room(self, stop: int) -> None:
        # Never more than that: HDF5 cannot shorten a chunk that is stored without its filters.
        if stop > self.dataset.shape[0]:
            self.dataset.resize(stop, axis=0)


def attach_shapes(file: h5py.File, name: str, shapes: Array, dims: Sequence[str]) -> None:
    """Tell the shapes of rows of variable length as Fuel does, by two scales of their axis.

    Parameters
    ----------
    shapes : int array (n, axes of an example)
    dims : sequence of str
        One an axis of examples.
    """
    lengths = shapes.astype(np.int32) if shapes.max(initial=0) < 1 << 31 else shapes
    labels = np.array([to_bytes(dim) for dim in dims])
    for role, values in (("shapes", lengths), ("shape_labels", labels)):
        scale = file.create_dataset(free_name(file, f"{name}_{role}"), data=values)
        scale.make_scale(role)
        file[name].dims[0].attach_scale(scale)


def storable(where: str, attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes as HDF5 can hold them; HDF5's own bookkeeping is left out.

    Texts and lists of texts become UTF-8 strings, numbers, arrays and tables stay, lists of
    different lengths become rows of variable length, None an empty attribute.

    Raises
    ------
    ArrayError
        If a value is none of these; the message names it.

    Examples
    --------
    >>> storable("file", {"title": "digits", "sizes": [1, 2]})
    {'title': 'digits', 'sizes': array([1, 2])}
    """
    if "" in attrs:
        raise ArrayError(f"an attribute of {where} has no name; give it one")
    found = {str(name): value for name, value in attrs.items() if str(name) not in INTERNAL}
    for name in found:
        check_name(f"an attribute of {where} is called", name)
    return {name: _storable(f"attribute {name!r} of {where}", found[name]) for name in found}


def check_name(what: str, name: str, error: type[LabeledError] = ArrayError) -> None:
    """Refuse a name that HDF5 cannot hold."""
    try:
        storable_text(name)
    except ValueError as why:
        raise error(f"{what} {why}") from None


def store_attrs(thing: h5py.HLObject, attrs: Mapping[str, Any]) -> None:
    """Store attributes from :func:`storable`; names that were no UTF-8 when read are bytes."""
    for name, value in attrs.items():
        thing.attrs[storable_text(name)] = value


def _storable(what: str, value: Any) -> Any:
    if value is None:
        return h5py.Empty("f4")
    if isinstance(value, np.bytes_) and 0 in value:
        return value  # only texts of one width can hold it
    if isinstance(value, np.generic) and value.dtype.kind in "US":
        value = value.item()
    try:
        array = _unchanged(value)
    except ValueError:  # lists of different lengths are no array
        array = _uneven(value)
    single = isinstance(value, str | bytes)
    rows = isinstance(h5py.check_vlen_dtype(array.dtype), np.dtype)
    if not single and (rows or array.dtype.kind in "biufcSV"):
        return array if isinstance(value, list | tuple | np.ndarray) else value
    texts = [value] if single else array.reshape(-1).tolist()
    if array.dtype.kind not in "SUTO" or not all(isinstance(text, str | bytes) for text in texts):
        raise ArrayError(
            f"{what} is {type(value).__name__} {value!r:.60}; HDF5 holds texts, numbers and lists "
            "or arrays that one dtype holds exactly; turn it into one (JSON, say) or leave it out"
        )
    out = np.empty(len(texts), h5py.string_dtype())
    try:
        out[:] = list(map(storable_text, texts))
    except ValueError as error:
        raise ArrayError(f"{what} is {error}") from None
    return out.reshape(array.shape)[()]


def _unchanged(value: Any) -> Array:
    """Return an attribute as an array; of Python objects where NumPy would change a list of them.

    It makes texts of numbers among texts, and rounds integers: those that only float64 holds
    together, and large ones among floats.
    """
    array = np.asarray(value)
    if array.dtype.kind in "SUfc" and array.size and isinstance(value, list | tuple):
        each = np.asarray(value, object)
        integers = [isinstance(one, int | np.integer) for one in each.flat]
        if array.dtype.kind == "f" and all(integers):
            return each.astype(np.uint64) if min(each.flat) >= 0 else each
        if array.dtype.kind in "fc":
            found = zip(integers, each.flat, array.reshape(-1).tolist(), strict=True)
            return each if any(whole and int(one) != kept for whole, one, kept in found) else array
        if not all(isinstance(one, str | bytes) for one in each.flat):
            return each
    return array


def _uneven(value: Any) -> Array:
    """Return lists of different lengths as rows of one dtype; None where they are not only that.

    Rows of compound values are arrays, which alone know their dtype.
    """
    if all(isinstance(row, np.ndarray) and row.dtype.names for row in value):
        kind = value[0].dtype
        if all(row.ndim == 1 and row.dtype == kind for row in value):
            return np.fromiter(value, h5py.vlen_dtype(kind), len(value))
    rows, out = value if all(isinstance(row, list) for row in value) else (), np.asarray(None)
    with contextlib.suppress(ValueError):
        items = _unchanged([item for row in rows for item in row])
        if items.ndim == 1 and items.size and items.dtype.kind in "biufcS":
            out = np.empty(len(rows), h5py.vlen_dtype(items.dtype))
            out[:] = np.split(items, np.cumsum(list(map(len, rows)))[:-1])
    return out


def storable_text(value: str | bytes) -> str | bytes:
    """Return a text as HDF5 can hold it; bytes that were no UTF-8 when read are bytes again.

    Raises
    ------
    ValueError
        If HDF5 cannot hold it; says why, and what to do.

    Examples
    --------
    >>> storable_text("digits"), storable_text("caf\\udce9")
    ('digits', b'caf\\xe9')
    """
    try:
        stored = to_bytes(value) if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise ValueError(f"{value!r:.60}, which is not valid Unicode; correct it") from None
    if b"\0" in stored:
        raise ValueError(f"{value!r:.60}, and HDF5 ends a text at its first \\0; take it out")
    return value if stored.decode(errors="ignore") == value else stored


# room on the disk: HDF5 reports a full disk while it stores arrays of numbers; while it stores
# texts or rows of variable length it ends the process instead, without a word

# what HDF5 holds at most of stretches within the file that it has not yet written
CACHED_BYTES = 4 << 20

PIECE_BYTES = 64  # what storing one text or row takes besides, and the place that refers to it

SLACK_BYTES = 1 << 20  # for tables, attributes, and what else ends a file


def check_room(file: h5py.File, n_bytes: int) -> None:
    """Refuse values of variable length for which the file has no room.

    Parameters
    ----------
    file : h5py.File
        Open for writing.
    n_bytes : int
        What they take, from :func:`heap_bytes`.

    Raises
    ------
    OSError
        With the number that the system would give: ENOSPC or EFBIG.
    """
    if sys.platform == "win32":
        return  # free space of open files is not reported there
    import resource  # there is no such module on Windows

    now, handle = file.id.get_filesize(), file.id.get_vfd_handle()
    needed = n_bytes + SLACK_BYTES
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and now + needed > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    stored, disk = os.fstat(handle), os.fstatvfs(handle)
    unwritten = now - min(now, stored.st_size)
    holes = max(0, min(now, stored.st_size) - stored.st_blocks * 512)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and needed + unwritten + min(holes, CACHED_BYTES) > free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def store_objects(dataset: h5py.Dataset, start: int, rows: Array) -> None:
    """Store texts or rows of variable length, beginning at row `start`, if there is room."""
    check_room(dataset.file, heap_bytes(rows))
    space = dataset.id.get_space()  # h5py would make one array of rows that are of one length
    space.select_hyperslab((start, *[0] * (rows.ndim - 1)), rows.shape)
    dataset.id.write(h5py.h5s.create_simple(rows.shape), space, rows.astype(dataset.dtype))
    dataset.file.flush()  # while there is room


def heap_bytes(values: Array) -> int:
    """Return what storing values takes at most: heaps may be half empty.

    Examples
    --------
    >>> heap_bytes(np.array(["abc", "de"], object))
    138
    """
    if values.dtype.names is not None:
        return sum(heap_bytes(values[name]) for name in values.dtype.names)
    if values.dtype.kind != "O":
        return values.nbytes
    total = 0
    for item in values.reshape(-1).tolist():
        n_bytes = heap_bytes(item) if isinstance(item, np.ndarray) else len(item or "")
        if isinstance(item, str) and not item.isascii():
            n_bytes *= 4
        total += 2 * n_bytes + PIECE_BYTES
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Coordinate:
    """Values along one dim of a source."""

    name: str
    dim: str
    values: Array
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Any:
        """Something that is equal for coordinates that are the same."""
        values = self.values
        content = repr(values.tolist()) if values.dtype.kind == "O" else values.tobytes()
        return self.name, self.dim, values.dtype.str, len(values), content


@dataclass(eq=False)
class ScaleWriter:
    """Names the axes of the sources of one open file, sharing scales where they are equal."""

    file: h5py.File  # open for writing; its sources are there
    with_table: bool  # whether the file has splits
    empty: bool  # whether dims without coordinates get an empty scale
    unlimited: Collection[str]  # dims whose scales may grow: one alone counts examples
    sources: Collection[str]
    made: dict[Any, h5py.Dataset] = field(default_factory=dict)

    def name_axes(self, source: str, dims: Sequence[str], coords: Sequence[Coordinate]) -> None:
        """Write labels and scales of one source."""
        dataset = self.file[source]
        variables: list[str] = []
        for axis, dim in enumerate(dims):
            h5py.h5ds.set_label(dataset.id, axis, to_bytes(dim))
            along = {coord.name: coord for coord in coords if coord.dim == dim}
            scale: h5py.Dataset | None = None
            if dim in along:
                scale = self._coordinate(source, along.pop(dim))
            elif self.empty:
                key = dim, dataset.shape[axis]
                if key not in self.made:  # as netCDF makes it: floats that are never allocated
                    # not called after the source, as coordinates are, which come later
                    plain = _plain(dim)
                    name = self._name(plain, f"{plain}_{key[1]}" if plain in self.file else plain)
                    made = self._scale(name, dim, key[1:], ">f4")
                    made.make_scale(f"{NOT_A_VARIABLE}.{key[1]:10d}")
                    self.made[key] = made
                scale = self.made[key]
            for coord in along.values():
                spaced = len(coord.name.split()) > 1  # so `coordinates` cannot name it
                # there it would mean a source in a group, too
                meant = any(name.endswith(f"/{coord.name}") for name in self.sources)
                if self.with_table or spaced or meant or scale is None:
                    dataset.dims[axis].attach_scale(self._coordinate(source, coord))
                else:
                    variable = self._coordinate(source, coord, scale)
                    variables.append(str(variable.name).lstrip("/"))
            if scale is not None:  # last: netCDF readers take the last scale for the dim
                dataset.dims[axis].attach_scale(scale)
        if variables:
            dataset.attrs["coordinates"] = " ".join(variables)

    def _coordinate(
        self, source: str, coord: Coordinate, scale: h5py.Dataset | None = None
    ) -> h5py.Dataset:
        """Return the values of a coordinate: a scale, or a netCDF variable along a `scale`."""
        key = (None if scale is None else scale.name, *coord.key)
        if key not in self.made:
            values, name = coord.values, self._name(source, coord.name)
            made = self._scale(name, coord.name, values.shape, file_dtype(values.dtype))
            if values.size:
                made[...] = values
            store_attrs(made, coord.attrs)
            if scale is None:  # the values of a dim open as these, whatever they are called here
                own = made.name.rsplit("/", 1)[-1]
                made.make_scale(to_bytes(coord.name if coord.name == coord.dim else own))
            else:
                h5py.h5ds.set_label(made.id, 0, to_bytes(coord.dim))
                made.dims[0].attach_scale(scale)
            self.made[key] = made
        return self.made[key]

    def _scale(self, name: str, dim: str, shape: tuple[int, ...], dtype: Any) -> h5py.Dataset:
        most = (None,) if dim in self.unlimited else None
        return self.file.create_dataset(name, shape, dtype, maxshape=most)

    def _name(self, source: str, wanted: str) -> str:
        plain = _plain(wanted)
        if plain == OWN or plain in self.file:
            return free_name(self.file, f"{source}_{plain}")
        return plain


def _plain(name: str) -> str:
    """Return a name as text that may be a link's: netCDF has names of valid text alone."""
    return to_bytes(name).decode(errors="replace").replace("/", "_")
