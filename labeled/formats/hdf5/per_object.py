"""Examples that are objects of their own: a dataset, or a group of datasets, each.

Utterances, molecules, seismograms and demonstrations often come so: ``data/trace_17``. A pattern
names them, and one pass over their headers finds what each holds. That pass is made once a process
for a file, and kept; what travels is the pattern.

The trade-off: h5py reads the examples one after the other, under its lock. A file that is read
often is better written once as rows: ``labeled convert FILE NEW --examples 'data/*'``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import has_magic
from typing import Any

import h5py
import numpy as np

from labeled.errors import FileFormatError, UnknownNameError, did_you_mean, listed
from labeled.formats.bytesource import stamp_of
from labeled.formats.examples import ExampleReader
from labeled.formats.format import Options
from labeled.formats.hdf5.arrays import attrs_of, plain_value
from labeled.formats.hdf5.door import check_unchanged, h5_of, opened
from labeled.formats.hdf5.dtypes import class_attrs, item_of, numbers_of, why_not_a_source
from labeled.formats.hdf5.filters import describe_missing
from labeled.formats.hdf5.groups import matching, name_of, natural
from labeled.formats.hdf5.labels import MAX_SUGGESTED, Unnamed, axes_of, default_name, name_dims
from labeled.formats.hdf5.safety import (
    NotThereError,
    check_claim,
    check_dataset,
    resolve,
    to_bytes,
    to_text,
)
from labeled.formats.hdf5.sources import filters_of
from labeled.formats.header import (
    ALL,
    TEXT,
    FileHeader,
    FileStamp,
    SourceHeader,
    fingerprint,
    is_text,
    vlen_base,
)
from labeled.formats.memory import put_rows
from labeled.formats.reader import UNSTORED, ByteRanges, FileReader, Io, count, failed, spread
from labeled.formats.region import Array, Ints, Region, outer_take
from labeled.ragged.flat import AnyRows, Flat, Rows, elements_of, offsets_of

H5PY_BYTES = 8 * 1024 * 1024
"""What HDF5 reads at a time: it works behind one lock, and each call opens the file."""

KEPT_FILES = 4096
"""Files of which it is kept what their examples hold."""

DEEPEST = 16
"""Levels of groups below an example."""

NAME, ATTRIBUTES = "name", "attrs/"
"""What the source of names is called, and how those of attributes begin."""

VALUE_OF_EACH = "told of each example; name it in sources= to have it"
"""Why names and attributes are no sources: an epoch seldom wants all of them."""

RAGGED = "every example is a dataset of its own shape"

EXAMPLE = "example"
"""The example dim, where an axis of the examples has its usual name."""

BY_H5PY = "each example is a dataset of its own, read by h5py"


@dataclass(frozen=True, slots=True)
class Each:
    """What a source consists of: a dataset of each thing that a pattern matches.

    Parameters
    ----------
    pattern : str
        From the root of the file.
    part : str
        The dataset, by its path below each group; ``""`` where the things are datasets.
    allow_external : bool
        Whether links out of the file are followed.
    """

    pattern: str
    part: str
    allow_external: bool = False


@dataclass(frozen=True, slots=True)
class EachValue:
    """A value of each example that a pattern matches: its name, or an attribute that it has.

    Parameters
    ----------
    pattern : str
        From the root of the file.
    attribute : str, optional
        None for names.
    allow_external : bool
    """

    pattern: str
    attribute: str | None
    allow_external: bool = False


@dataclass(frozen=True, eq=False)
class Part:
    """A dataset of every example: its dtype in the file, and the shapes (n, axes)."""

    dtype: np.dtype[Any]
    shapes: Ints
    stored_bytes: int

    @property
    def shape(self) -> tuple[int, ...] | None:
        """What all examples have; None where they differ."""
        first: tuple[int, ...] = tuple(self.shapes[0].tolist())
        alike = bool((self.shapes == first).all())
        return first if alike else None


@dataclass(frozen=True, eq=False)
class Things:
    """What a pattern matches in a file.

    Parameters
    ----------
    names : list of str
        Paths in natural order.
    parts : mapping of str to Part
        What each of them holds.
    left_out : mapping of str to str
        What only some hold, or what differs too much, with the reason.
    """

    names: list[str]
    parts: Mapping[str, Part]
    left_out: Mapping[str, str]

    def path(self, row: int, part: str) -> str:
        """Return where an example's dataset is."""
        return f"{self.names[row]}/{part}" if part else self.names[row]


@lru_cache(maxsize=KEPT_FILES)
def things_of(stamp: FileStamp, pattern: str, allow_external: bool) -> Things:
    """Look at everything that a pattern matches.

    Raises
    ------
    UnknownNameError
        If it matches nothing, or a group of groups without datasets of their own.
    FileFormatError
        If it matches datasets and groups.
    UnsafeFileError
        If a link or dataset leads out of the file and `allow_external` is False.
    """
    names: list[str] = []
    sole: list[str] = []  # those that are datasets themselves
    parts: dict[str, _Part] = {}
    above, _, last = pattern.strip("/").rpartition("/")
    with h5_of(stamp) as file:
        for parent, group in matching(file["/"], above, allow_external=allow_external).items():
            for name in sorted(map(to_text, group.id), key=natural):
                if not fnmatchcase(name, last):
                    continue
                path = f"{parent}/{name}".lstrip("/")
                thing, outside = _opened(group, to_bytes(name), allow_external)
                if isinstance(thing, h5py.h5d.DatasetID):
                    sole.append(path)
                elif not isinstance(thing, h5py.h5g.GroupID):
                    continue  # what is neither is no example
                names.append(path)
                for part, dataset in _datasets(thing, outside, allow_external, path):
                    if part not in parts:
                        parts[part] = _Part(path, dataset.get_type(), *_axes_in(dataset)[1:])
                    parts[part].add(path, dataset)
        where = f"in file {stamp.path!r}"
        if not names:
            raise UnknownNameError(
                f"examples={pattern!r} matches neither groups nor datasets {where}"
            )
        if sole and len(sole) < len(names):
            raise FileFormatError(
                f"examples={pattern!r} matches {len(names) - len(sole):,} groups and {len(sole):,} "
                f"datasets ({listed(sole, 4)}) {where}; give a pattern that matches one kind"
            )
        return _things(file, pattern, names, parts, where)


@dataclass
class _Part:
    """What is known so far of one dataset of each example."""

    first: str
    kind: Any
    n_axes: int
    opaque: bool
    """A single value of bytes, as many as there are."""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    stored: int = 0
    widest: int | None = None
    """The longest text, where texts of fixed length differ in it."""
    fault: str | None = None

    def add(self, path: str, dataset: Any) -> None:
        """Take the dataset of one more example, or note why it is not like the others."""
        if self.fault is not None:
            return
        shape, n_axes, opaque = _axes_in(dataset)
        if shape is None or n_axes != self.n_axes or opaque != self.opaque:
            self.fault = f"it has other axes in {path!r} than in {self.first!r}"
        elif not self._takes(dataset.get_type()):
            self.fault = f"it is {dataset.dtype} in {path!r}, but not in {self.first!r}"
        else:
            self.shapes.append(shape)
            self.stored += dataset.get_storage_size()

    def _takes(self, kind: Any) -> bool:
        """Whether an example of this type is one of them; texts may be longer and shorter."""
        if self.opaque or kind.equal(self.kind):
            return True
        if not (_is_fixed_text(kind) and _is_fixed_text(self.kind)):
            return False
        self.widest = max(self.widest or self.kind.get_size(), kind.get_size())
        return True

    def why_not(self, dataset: h5py.Dataset, n: int) -> str | None:
        """Return why these are not the examples of a source; None if they are."""
        dtype = item_of(dataset)
        if self.fault is not None:
            return self.fault
        if len(self.shapes) < n:
            return f"only {len(self.shapes):,} of {n:,} groups have it"
        if self.opaque:
            return None
        if vlen_base(dtype) is not None:
            return "each of its examples consists of rows of variable length"
        if is_text(dtype) and len(set(self.shapes)) > 1:
            return "its examples are texts, and not equally many in each"
        return why_not_a_source(dataset)

    def made(self, dataset: h5py.Dataset) -> Part:
        """Return what is known of all of them."""
        dtype = np.dtype(np.uint8) if self.opaque else numbers_of(item_of(dataset))
        dtype = dtype if self.widest is None else np.dtype(f"S{self.widest}")
        shapes = np.array(self.shapes, np.int64).reshape(len(self.shapes), self.n_axes)
        return Part(dtype, shapes, self.stored)


def _is_fixed_text(kind: Any) -> bool:
    return kind.get_class() == h5py.h5t.STRING and not kind.is_variable_str()


def _axes_in(dataset: Any) -> tuple[tuple[int, ...] | None, int, bool]:
    """Return the shape of a dataset, how many axes that has, and whether it is opaque bytes."""
    shape, kind = dataset.shape, dataset.get_type()
    opaque = shape == () and kind.get_class() == h5py.h5t.OPAQUE
    shape = (kind.get_size(),) if opaque else shape
    return shape, len(shape or ()), opaque


def _datasets(
    thing: Any, outside: bool, allow_external: bool, path: str, prefix: str = "", deep: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield the datasets of a thing, by their paths below it."""
    where = f"{path}/{prefix}".rstrip("/")
    if isinstance(thing, h5py.h5d.DatasetID):
        dataset = h5py.Dataset(thing)
        check_dataset(dataset, where, allow_external=allow_external, outside=outside)
        yield prefix.rstrip("/"), thing
    elif isinstance(thing, h5py.h5g.GroupID):
        group = h5py.Group(thing)
        if deep == DEEPEST:
            raise FileFormatError(
                f"groups below {path!r} in file {group.file.filename!r} nest more than {DEEPEST} "
                "deep, or run in a circle"
            )
        for raw in thing:
            below, beyond = _opened(group, raw, allow_external)
            name = f"{prefix}{to_text(raw)}/"
            yield from _datasets(below, outside or beyond, allow_external, path, name, deep + 1)


def _opened(group: h5py.Group, name: bytes, allow_external: bool) -> tuple[Any, bool]:
    """Return the identifier behind a link, and whether it leads out of the file."""
    if group.id.links.get_info(name).type == h5py.h5l.TYPE_HARD:
        return h5py.h5o.open(group.id, name), False
    try:
        found = resolve(group, to_text(name), allow_external=allow_external)
    except NotThereError:
        return None, False
    return found.thing.id, found.outside


def _things(
    file: h5py.File, pattern: str, names: list[str], found: Mapping[str, _Part], where: str
) -> Things:
    """Return what all examples hold, and why the rest is left out."""
    n, parts, left_out = len(names), {}, {}
    for name, part in found.items():
        dataset = file["/".join(filter(None, (part.first, name)))]
        fault = part.why_not(dataset, n)
        if fault is None:
            parts[name] = part.made(dataset)
        else:
            left_out[name] = fault
    if not parts:
        told = "; ".join(f"{name or 'the dataset'!r}: {why}" for name, why in left_out.items())
        raise UnknownNameError(
            f"no dataset is the same in all {n:,} things that examples={pattern!r} matches {where} "
            f"({told or 'they hold none'}); give a pattern that matches fewer"
        )
    return Things(names, parts, left_out)


# headers


def scan_examples(path: str, options: Options) -> FileHeader:
    """Return the header of a file in which everything that a pattern matches is an example.

    Raises
    ------
    FileFormatError, UnsafeFileError
        As :func:`things_of` raises them.
    UnknownNameError
        If the pattern matches nothing of use, or `sources` or `dims` name what is not there.
    DimsError
        If names of axes repeat, or do not fit.
    FileChangedError
        If somebody wrote to the file meanwhile.
    """
    pattern = "/".join(filter(None, (options.group, options.examples)))
    allowed, given, stamp = options.allow_external, dict(options.dims), stamp_of(path)
    things = things_of(stamp, pattern, allowed)
    parts = {name_of(part, pattern): part for part in sorted(things.parts)}
    not_opened = {name_of(part, pattern): why for part, why in things.left_out.items()}
    wanted = tuple(parts) if options.sources is None else options.sources
    headers: dict[str, SourceHeader] = {}
    unnamed: dict[str, Unnamed] = {}
    with opened(path, headers=True) as file:
        values = {NAME: EachValue(pattern, None, allowed)}
        for key, value in sorted(attrs_of(file[things.names[0]], "an example", []).items()):
            if isinstance(value, str) or np.asarray(value).dtype.kind in "biufc":
                values[f"{ATTRIBUTES}{key}"] = EachValue(pattern, key, allowed)
        values = {name: value for name, value in values.items() if name not in parts}
        for argument, names in (("sources=", wanted), ("dims=", given)):
            for name in names:
                if name not in values and name not in parts:
                    there = did_you_mean(name, (*values, *parts))
                    what = f"is not in the examples of file {path!r}; {there}"
                    if name in not_opened:
                        what = f"cannot be a source of file {path!r}: {not_opened[name]}"
                    raise UnknownNameError(f"{argument} names {name!r}, which {what}")
        for name in wanted:
            if name in values:
                headers[name] = _value_header(stamp, name, values[name], given.get(name))
                continue
            each = Each(pattern, parts[name], allowed)
            dataset = file[things.path(0, each.part)]
            part = things.parts[each.part]
            headers[name], axes = _part_header(stamp, name, each, part, dataset, given.get(name))
            if axes:
                unnamed[name] = Unnamed((0, *axes), headers[name].dims, headers[name].shape)
    check_unchanged(path, stamp)
    splits = {ALL: {name: range(len(things.names)) for name in headers}}
    faults = [*_how_to_name(unnamed), *describe_missing(headers.values())]
    return FileHeader(
        stamp=stamp,
        fingerprint=fingerprint(headers, splits),
        attrs={},
        sources=headers,
        variables={},
        splits=splits,
        not_opened=not_opened | {n: VALUE_OF_EACH for n in values if n not in wanted},
        warnings=(": " + "; ".join(faults),) if faults else (),
    )


def _value_header(
    stamp: FileStamp, name: str, value: EachValue, given: Sequence[str | None] | None
) -> SourceHeader:
    """Return the header of names, or of an attribute."""
    values = attribute_values(stamp, value)
    found = [default_name(name, 0), *[""] * (values.ndim - 1)]
    return SourceHeader(
        file=stamp,
        name=name,
        key=f"{value.pattern} ({name})",
        shape=values.shape,
        dtype=TEXT if values.dtype.kind == "O" else values.dtype,
        dims=name_dims(stamp.path, name, found, given)[0],
        storage="records",
        detail=value,
    )


def _part_header(
    stamp: FileStamp,
    name: str,
    each: Each,
    part: Part,
    first: h5py.Dataset,
    given: Sequence[str | None] | None,
) -> tuple[SourceHeader, tuple[int, ...]]:
    """Return the header of a source, whose axes are those of the first example, and the axes
    that nobody named."""
    inner = [axis.name for axis in axes_of(first, name)] or [""] * part.shapes.shape[1]
    usual = default_name(name, 0)
    found = [EXAMPLE if usual in inner else usual, *inner]
    dims, unnamed = name_dims(stamp.path, name, found, given)
    header = SourceHeader(
        file=stamp,
        name=name,
        key="/".join(filter(None, (each.pattern, each.part))),
        shape=(len(part.shapes), *(part.shape or ())),
        dtype=part.dtype,
        dims=dims,
        attrs=class_attrs(item_of(first)),
        storage="records",
        filters=filters_of(first.id.get_create_plist()),
        stored_bytes=part.stored_bytes,
        ragged=RAGGED if part.shape is None else None,
        detail=each,
    )
    return header, unnamed


def _how_to_name(unnamed: Mapping[str, Unnamed]) -> list[str]:
    """Return what to say of axes without names."""
    if not unnamed:
        return []
    dims = {name: each.likely for name, each in [*unnamed.items()][:MAX_SUGGESTED]}
    more = ", ..." * (len(unnamed) > len(dims))
    return [
        f"axes of the examples of {listed([*unnamed], MAX_SUGGESTED)} have no names; pass "
        f"dims={{{str(dims)[1:-1]}{more}}} when opening it"
    ]


# reading


class EachRowsReader(FileReader):
    """Examples of one shape; a :class:`~labeled.formats.reader.Reader`."""

    kind, why = "records", BY_H5PY

    def __init__(self, source: SourceHeader, region: Region, io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self.chunk_rows = max(1, H5PY_BYTES // max(1, source.row_bytes))

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        wanted = spread(runs[:, 0], runs[:, 1] - runs[:, 0])
        for a in range(0, len(wanted), self.chunk_rows):
            some = wanted[a : a + self.chunk_rows]
            rows = np.empty((len(some), *self.source.row_shape), self.source.dtype)
            _read(self.source, some, [rows[i : i + 1] for i in range(len(rows))])
            place = slice(a, a + len(some)) if places is None else places[a : a + len(some)]
            put_rows(out, place, outer_take(rows, self.region))

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        """Count a call an example: only HDF5 knows where they are."""
        n = count(runs)
        return (ByteRanges(None, np.full(n, UNSTORED), np.full(n, self.source.row_bytes)),)


class EachReader(ExampleReader):
    """Examples of different shapes; follows :class:`~labeled.ragged.RaggedReader`."""

    kind, why, chunk_rows = "records", BY_H5PY, 1

    def shapes(self, rows: AnyRows) -> Rows:
        each = self.source.detail
        things = things_of(self.source.file, each.pattern, each.allow_external)
        return things.parts[each.part].shapes[np.asarray(rows, np.int64)]

    def sizes(self, rows: AnyRows) -> Rows:
        return elements_of(self.shapes(rows))

    def read_flat(self, rows: AnyRows) -> Flat:
        shapes = self.shapes(rows)
        offsets = offsets_of(elements_of(shapes))
        check_claim(self.source, int(offsets[-1]) * self.source.dtype.itemsize)
        out = np.empty(int(offsets[-1]), self.source.dtype)
        _read(self.source, np.asarray(rows, np.int64), np.split(out, offsets[1:-1]))
        return Flat(out.astype(self.dtype, copy=False), offsets, shapes)


def _read(source: SourceHeader, rows: Ints, targets: Sequence[Array]) -> None:
    """Read examples, each to an array of its size in the dtype of the file.

    Raises
    ------
    ReadError
        If HDF5 cannot; names the row.
    """
    each = source.detail
    things = things_of(source.file, each.pattern, each.allow_external)
    with h5_of(source.file) as file:
        for row, target in zip(rows.tolist(), targets, strict=True):
            if not target.size:
                continue
            try:
                values = np.asarray(file[things.path(row, each.part)][()])
                if values.dtype.kind == "V":  # complex numbers of two fields, or opaque bytes
                    values = np.frombuffer(values.tobytes(), source.dtype)
                target[()] = values.reshape(target.shape)
            except Exception as fault:  # what HDF5 makes of damage is nearly any of them
                raise failed(source, row, row + 1, fault) from fault


# names and attributes


def values_of(source: SourceHeader) -> Array:
    """Return the names, or the values of an attribute, of all examples: (n, ...)."""
    return attribute_values(source.file, source.detail)


@lru_cache(maxsize=KEPT_FILES)
def attribute_values(stamp: FileStamp, value: EachValue) -> Array:
    """Return the same for a file, which is looked at once.

    Raises
    ------
    FileFormatError
        If an example has no such attribute, or one of another kind or shape; names it.
    """
    names = things_of(stamp, value.pattern, value.allow_external).names
    if value.attribute is None:
        return np.array([_short(name, value.pattern) for name in names], object)
    with h5_of(stamp) as file:
        found = [_attribute(file, stamp, name, value.attribute) for name in names]
    first = np.asarray(found[0])
    for name, other in zip(names, found, strict=True):
        one = np.asarray(other)
        if one.shape != first.shape or (one.dtype.kind == "U") != (first.dtype.kind == "U"):
            raise FileFormatError(
                f"attribute {value.attribute!r} is {other!r} at {name!r} in file {stamp.path!r}, "
                f"but {found[0]!r} at {names[0]!r}; write it again alike, or leave it out of "
                "sources="
            )
    return np.array(found, object if first.dtype.kind == "U" else None)


def _short(path: str, pattern: str) -> str:
    """Return the part of a path that a pattern leaves open."""
    parts = pattern.strip("/").split("/")
    known = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    return "/".join(path.split("/")[known:])


def _attribute(file: h5py.File, stamp: FileStamp, path: str, key: str) -> Any:
    value = file[path].attrs.get(to_bytes(key))
    if value is None:
        raise FileFormatError(
            f"{path!r} in file {stamp.path!r} has no attribute {key!r}, which other examples have; "
            "leave it out of sources=, or write it there"
        )
    return plain_value(value, scalars=True)
