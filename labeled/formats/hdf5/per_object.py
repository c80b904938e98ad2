"""Examples that are objects of their own: a dataset, or a group of datasets, each.

Utterances, molecules, seismograms and demonstrations often come so: ``data/trace_17``. A pattern
names them, and one pass over their headers finds what each holds. That pass is made once a process
for a file, and kept; what travels is the pattern.

Contiguous examples are read by byte range. The trade-off: h5py reads all others one after the
other, under its lock. A file that is read often is better written once as rows:
``labeled convert FILE NEW --examples 'data/*'``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from glob import has_magic
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.errors import FileFormatError, UnknownNameError, listed
from labeled.formats.bytesource import check_same, naming_rows, open_bytes, stamp_of
from labeled.formats.format import ExampleReader, Options, all_rows, chosen_sources, name_dims
from labeled.formats.hdf5 import dtypes, labels, safety
from labeled.formats.hdf5.arrays import matching, name_of
from labeled.formats.hdf5.filters import describe_missing
from labeled.formats.hdf5.headers import filters_of
from labeled.formats.header import TEXT, FileHeader, FileStamp, SourceHeader, is_text, vlen_base
from labeled.formats.reader import (
    UNSTORED,
    ByteRanges,
    ExampleRowsReader,
    count,
    row_nbytes,
)
from labeled.formats.region import Array, Ints
from labeled.ragged.flat import AnyRows, Rows

# Examples for which HDF5 opens a file: what it notes down about each stays in pieces in the memory
# of a thread, 10 MiB after 32 examples of two chunks. Opening takes no time to speak of.
AT_ONCE = 8

KEPT_FILES = 4096  # files of which it is kept what their examples hold

MAX_DEPTH = 16  # levels of groups below an example

# what the source of names is called, and how those of attributes begin
NAME, ATTRIBUTES = "name", "attrs/"

# why names and attributes are no sources: an epoch seldom wants all of them
VALUE_OF_EACH = "a value of each example; name it in sources= to read it"

EXAMPLE = "example"  # the example dim, where an axis of the examples has its usual name

WHY = "each example is a dataset of its own: by file offset where HDF5 has not to decode it"


@dataclass(frozen=True, slots=True)
class Each:
    """What a source takes of each object that a pattern matches."""

    pattern: str  # from the root of the file
    # the path of a dataset below each group, `""` if the objects are datasets; None for a value of
    # each object
    part: str | None
    attribute: str | None = None  # of a value: the attribute, or None for the names of the objects
    allow_external: bool = False  # whether links out of the file are followed


@dataclass(eq=False)
class ObjectPart:
    """A dataset that every example has, as far as examples have been looked at."""

    first: str  # the path of the first object that has it
    dtype: np.dtype[Any]  # as it is handed out, once all examples are known
    kind: Any  # its type in HDF5; None for single values of opaque bytes, of any number of them
    by_range: bool  # whether its bytes are those of `dtype`, so that they are read where they lie
    fault: str | None
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    # where the bytes of each lie in the file; negative where only HDF5 can read them
    offsets: list[int] = field(default_factory=list)
    stored_bytes: int = 0

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of all examples; None if they differ."""
        return self.shapes[0] if len(set(self.shapes)) == 1 else None

    def add(self, path: str, dataset: h5py.Dataset, file_number: int) -> None:
        """Take the dataset of one more example, or note how it differs from the first."""
        shape, kind = _layout(dataset)
        if self.fault is not None:
            return
        n_axes = len(self.shapes[0] if self.shapes else shape or ())
        if shape is None or (len(shape), kind is None) != (n_axes, self.kind is None):
            self.fault = f"it has other axes in {path!r} than in {self.first!r}"
            return
        if kind is not None and not kind.equal(self.kind):
            if not dataset.dtype.kind == "S" == self.dtype.kind:
                self.fault = f"it is {dataset.dtype} in {path!r}, but not in {self.first!r}"
                return
            # texts of fixed length: as long as the longest
            self.dtype = max(self.dtype, dataset.dtype, key=lambda dtype: dtype.itemsize)
            self.by_range = False
        plist, n_bytes, offset = dataset.id.get_create_plist(), dataset.id.get_storage_size(), None
        contiguous = plist.get_layout() == h5py.h5d.CONTIGUOUS and not plist.get_external_count()
        if contiguous and n_bytes and h5py.h5o.get_info(dataset.id).fileno == file_number:
            offset = dataset.id.get_offset()
        self.shapes.append(shape)
        self.stored_bytes += n_bytes
        self.offsets.append(0 if 0 in shape else UNSTORED if offset is None else offset)


def _part_of(path: str, dataset: h5py.Dataset) -> ObjectPart:
    """Return the part of which a dataset is the first example."""
    _, kind = _layout(dataset)
    if kind is None:
        return ObjectPart(path, np.dtype(np.uint8), None, by_range=False, fault=None)
    item = dtypes.item_of(dataset)
    dtype, fault = dtypes.numbers_of(item), dtypes.why_not_a_source(dataset)
    if vlen_base(dtype) is not None:
        fault = "each of its examples consists of rows of variable length"
    plain = dtype.kind not in "OV" and hasattr(os, "preadv") and dtypes.bytes_are_numpy(item, kind)
    return ObjectPart(path, dtype, kind, plain, fault)


class Objects(NamedTuple):
    """The objects of a file that a pattern matches, and what all of them hold."""

    names: list[str]  # their paths, in natural order
    parts: Mapping[str, ObjectPart]  # by path below each object
    left_out: Mapping[str, str]  # what only some hold, or what differs too much, with the reason


@lru_cache(maxsize=KEPT_FILES)
def objects_of(stamp: FileStamp, pattern: str, allow_external: bool) -> Objects:
    """Look at everything that a pattern matches.

    Raises
    ------
    UnknownNameError
        If it matches nothing, or objects that have no dataset in common.
    FileFormatError
        If it matches datasets and groups.
    UnsafeFileError
        If a link or dataset leads out of the file and `allow_external` is False.
    """
    names: list[str] = []
    datasets: list[str] = []  # the names that are datasets themselves
    found: dict[str, ObjectPart] = {}
    where = f"in file {stamp.path!r}"
    with safety.h5_of(stamp) as file:
        file_number = h5py.h5o.get_info(file.id).fileno
        matches = matching(file["/"], pattern, allow_external=allow_external)
        for path, (thing, _) in matches.items():
            names.append(path)
            datasets += [path] if isinstance(thing, h5py.Dataset) else []
            for part, dataset in _datasets(thing, allow_external, path):
                if part not in found:
                    found[part] = _part_of(path, dataset)
                found[part].add(path, dataset, file_number)
    if not names:
        raise UnknownNameError(f"examples={pattern!r} matches neither groups nor datasets {where}")
    if 0 < len(datasets) < len(names):
        raise FileFormatError(
            f"examples={pattern!r} matches {len(names) - len(datasets):,} groups and "
            f"{len(datasets):,} datasets ({listed(datasets, 4)}) {where}; give a pattern that "
            "matches one kind"
        )
    for each in found.values():
        if each.fault is None and len(each.shapes) < len(names):
            each.fault = f"only {len(each.shapes):,} of {len(names):,} groups have it"
        elif each.fault is None and is_text(each.dtype) and each.shape is None:
            each.fault = "its examples are texts, and not equally many in each"
    left_out = {part: each.fault for part, each in found.items() if each.fault is not None}
    parts = {part: each for part, each in found.items() if each.fault is None}
    if not parts:
        reasons = "; ".join(f"{name or 'the dataset'!r}: {why}" for name, why in left_out.items())
        raise UnknownNameError(
            f"no dataset is the same in all {len(names):,} things that examples={pattern!r} "
            f"matches {where} ({reasons or 'they hold none'}); give a pattern that matches fewer"
        )
    return Objects(names, parts, left_out)


def _layout(dataset: h5py.Dataset) -> tuple[tuple[int, ...] | None, Any]:
    """Return the shape and type of a dataset; an opaque value is so many bytes without a type."""
    kind = dataset.id.get_type()
    if dataset.shape == () and kind.get_class() == h5py.h5t.OPAQUE:
        return (kind.get_size(),), None
    return dataset.shape, kind


def _datasets(
    thing: Any, allow_external: bool, path: str, prefix: str = ""
) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield the datasets of an object, by their paths below it."""
    if isinstance(thing, h5py.Dataset):
        where = f"{path}/{prefix}".rstrip("/")
        safety.check_dataset(thing, where, allow_external=allow_external)
        yield prefix.rstrip("/"), thing
    elif isinstance(thing, h5py.Group):
        if prefix.count("/") == MAX_DEPTH:
            raise FileFormatError(
                f"groups below {path!r} in file {thing.file.filename!r} nest more than {MAX_DEPTH} "
                "deep, or run in a circle"
            )
        for name in map(safety.to_text, thing.id):
            below = safety.find(thing, name, allow_external=allow_external).thing
            yield from _datasets(below, allow_external, path, f"{prefix}{name}/")


# headers


def scan_examples(path: str, options: Options) -> FileHeader:
    """Return the header of a file in which everything that a pattern matches is an example.

    Raises
    ------
    FileFormatError, UnsafeFileError
        As :func:`objects_of` raises them.
    UnknownNameError
        If the pattern matches nothing of use, or `sources` or `dims` name what is not there.
    DimsError
        If names of axes repeat, or do not fit.
    FileChangedError
        If the file was written to meanwhile.
    """
    pattern = "/".join(filter(None, (options.group, options.examples)))
    allowed, given, stamp = options.allow_external, dict(options.dims), stamp_of(path)
    objects = objects_of(stamp, pattern, allowed)
    parts = {name_of(p, pattern): Each(pattern, p, None, allowed) for p in sorted(objects.parts)}
    not_opened = {name_of(part, pattern): why for part, why in objects.left_out.items()}
    headers: dict[str, SourceHeader] = {}
    likely: dict[str, tuple[str, ...]] = {}
    with safety.opened(path, headers=True) as file:
        values = {NAME: Each(pattern, None, None, allowed)}
        for key, value in sorted(labels.attrs_of(file[objects.names[0]], "an example", []).items()):
            if isinstance(value, str) or np.asarray(value).dtype.kind in "biufc":
                values[f"{ATTRIBUTES}{key}"] = Each(pattern, None, key, allowed)
        each = values | parts
        for name in (*(options.sources or ()), *given):
            if name in not_opened:
                raise UnknownNameError(
                    f"{name!r} cannot be a source of file {path!r}: {not_opened[name]}"
                )
        asked = chosen_sources(each, options, f"the examples of file {path!r}")
        wanted = tuple(parts) if options.sources is None else asked
        for name in wanted:
            made, axes = _header(stamp, name, each[name], objects, file, given.get(name))
            headers[name] = made
            if axes and name in parts:
                likely[name] = labels.likely_dims(made, (0, *axes))
    check_same(stamp, "Close it where it is open for writing, then open it again")
    faults = list(describe_missing(headers.values()))
    if likely:
        some = dict([*likely.items()][: labels.MAX_SUGGESTED])
        more = ", ..." * (len(likely) > len(some))
        axes_of_them = f"axes of the examples of {listed([*likely], labels.MAX_SUGGESTED)}"
        dims = f"dims={{{str(some)[1:-1]}{more}}}"
        faults.insert(0, f"{axes_of_them} have no names; pass {dims} when opening it")
    left = {name: VALUE_OF_EACH for name in values if name not in parts and name not in wanted}
    return FileHeader(
        stamp=stamp,
        sources=headers,
        splits=all_rows(headers),
        not_opened=not_opened | left,
        warnings=(": " + "; ".join(faults),) if faults else (),
    )


def _header(
    stamp: FileStamp,
    name: str,
    each: Each,
    objects: Objects,
    file: h5py.File,
    given: Sequence[str | None] | None,
) -> tuple[SourceHeader, tuple[int, ...]]:
    """Return the header of a source, and which of its axes have no names.

    Axes are called as those of the first example.
    """
    if each.part is None:
        values = values_of_each(stamp, each)
        inner, key = [""] * (values.ndim - 1), f"{each.pattern} ({name})"
        dtype = TEXT if values.dtype.kind == "O" else values.dtype
        made = SourceHeader(stamp, name, key, values.shape, dtype, ())
    else:
        part = objects.parts[each.part]
        first = file["/".join(filter(None, (objects.names[0], each.part)))]
        inner = [axis.name for axis in labels.axes_of(first, name)] or [""] * len(part.shapes[0])
        key = "/".join(filter(None, (each.pattern, each.part)))
        # HDF5 makes an example out of chunks, packed and unpacked, before it is copied
        lies_there = part.by_range and UNSTORED not in part.offsets
        held = 0 if lies_there else 3 * row_nbytes(part.shape or (), part.dtype)
        made = SourceHeader(
            stamp, name, key, (len(part.shapes), *(part.shape or ())), part.dtype, (),
            attrs=dtypes.class_attrs(dtypes.item_of(first)),
            filters=filters_of(first.id.get_create_plist()),
            stored_bytes=part.stored_bytes,
            scratch_bytes=held,
            ragged="every example is a dataset of its own shape" if part.shape is None else None,
        )  # fmt: skip
    found = [EXAMPLE if "batch" in inner else "batch", *inner]
    dims, unnamed = name_dims(stamp.path, name, found, given)
    return replace(made, dims=dims, storage="records", detail=each), unnamed


# reading


class EachRowsReader(ExampleRowsReader):
    """Examples of one shape; a :class:`~labeled.formats.reader.Reader`."""

    why = WHY

    def _read_each(self, rows: Ints, outs: Sequence[Array]) -> None:
        _read(self.source, rows, outs)

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        """Count a call an example: only HDF5 knows where they are."""
        return (ByteRanges.elsewhere(np.full(count(runs), self.source.row_bytes)),)


class EachReader(ExampleReader):
    """Examples of different shapes; follows :class:`~labeled.ragged.RaggedReader`."""

    kind, why = "records", WHY

    def _found(self, rows: AnyRows) -> tuple[Rows, Rows]:
        shapes = _objects(self.source).parts[self.source.detail.part].shapes
        found = np.array([shapes[row] for row in rows], np.int64).reshape(-1, len(shapes[0]))
        return found, np.asarray(rows, np.int64)

    def _check_claim(self, wanted: Rows, sizes: Rows) -> None:
        safety.check_claim(self.source, int(sizes.sum()) * self.dtype.itemsize)

    def _read(self, wanted: Rows, out: Array, places: Rows, sizes: Rows, threads: int) -> None:
        ends = zip(places.tolist(), (places + sizes).tolist(), strict=True)
        _read(self.source, wanted, [out[start:stop] for start, stop in ends])


def _objects(source: SourceHeader) -> Objects:
    each: Each = source.detail
    return objects_of(source.file, each.pattern, each.allow_external)


def _read(source: SourceHeader, rows: Ints, targets: Sequence[Array]) -> None:
    """Read examples, each to an array of its size in native byte order.

    Raises
    ------
    ReadError
        If HDF5 cannot; names the row.
    """
    objects, below = _objects(source), source.detail.part
    part = objects.parts[below]
    offsets = [part.offsets[row] for row in rows.tolist()]
    if part.by_range and UNSTORED not in offsets:  # about twenty times as fast as h5py finds them
        bytes_of_file = open_bytes(source.file)
        bytes_of_file.check()
        for row, offset, target in zip(rows.tolist(), offsets, targets, strict=True):
            with naming_rows(source, row, row + 1):
                bytes_of_file.read_into(target, offset)
            if not source.dtype.isnative:
                target.byteswap(inplace=True)
        return
    wanted = [*zip(rows.tolist(), targets, strict=True)]
    for start in range(0, len(wanted), AT_ONCE):
        with safety.h5_of(source.file) as file:
            for row, target in wanted[start : start + AT_ONCE]:
                if not target.size:
                    continue
                with naming_rows(source, row, row + 1, Exception):  # damage is nearly any of them
                    thing = file[objects.names[row]]
                    values = np.asarray((thing[below] if below else thing)[()])
                    if values.dtype.kind == "V":  # opaque bytes
                        values = np.frombuffer(values.tobytes(), source.dtype)
                    target[...] = values.reshape(target.shape)


def values_of(source: SourceHeader) -> Array:
    """Return the names, or the values of an attribute, of all examples: (n, ...)."""
    return values_of_each(source.file, source.detail)


@lru_cache(maxsize=KEPT_FILES)
def values_of_each(stamp: FileStamp, value: Each) -> Array:
    """Return the same for a file, which is looked at once.

    Raises
    ------
    FileFormatError
        If an example has no such attribute, or one of another kind or shape; names it.
    """
    names, key = objects_of(stamp, value.pattern, value.allow_external).names, value.attribute
    if key is None:  # the part of each path that the pattern leaves open
        parts = value.pattern.strip("/").split("/")
        n_known = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
        return np.array(["/".join(name.split("/")[n_known:]) for name in names], object)
    found: list[Any] = []
    with safety.h5_of(stamp) as file:
        for name in names:
            stored = file[name].attrs.get(safety.to_bytes(key))
            if stored is None:
                raise FileFormatError(
                    f"{name!r} in file {stamp.path!r} has no attribute {key!r}, which other "
                    "examples have; leave it out of sources=, or write it there"
                )
            found.append(labels.plain_value(stored, scalars=True))
            one, first = np.asarray(found[-1]), np.asarray(found[0])
            if one.shape != first.shape or (one.dtype.kind == "U") != (first.dtype.kind == "U"):
                raise FileFormatError(
                    f"attribute {key!r} is {found[-1]!r} at {name!r} in file {stamp.path!r}, "
                    f"but {found[0]!r} at {names[0]!r}; write it again alike, or leave it out of "
                    "sources="
                )
    return np.array(found, object if np.asarray(found[0]).dtype.kind == "U" else None)
