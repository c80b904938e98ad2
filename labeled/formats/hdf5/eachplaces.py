"""Where examples lie that are objects of their own: a dataset, or a group of datasets, each.

Utterances, molecules, seismograms and demonstrations often come so: ``data/trace_17``. A pattern
names them, and one pass over their headers tells what each holds and where its bytes are. That
pass is made once a process for a file, and kept; what travels is the pattern.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import h5py
import numpy as np

from labeled.errors import FileFormatError, UnknownNameError, listed
from labeled.formats.hdf5.columns import item_of
from labeled.formats.hdf5.eachchunks import ChunkLook, ChunkPlaces
from labeled.formats.hdf5.groups import matching, natural
from labeled.formats.hdf5.handles import h5_of
from labeled.formats.hdf5.layout import dtype_of, layout_of, why_not_a_source
from labeled.formats.hdf5.safety import NotThereError, check_dataset, resolve, to_bytes, to_text
from labeled.formats.header import FileStamp
from labeled.formats.objects import is_text, vlen_base
from labeled.formats.region import Array, Ints

KEPT_FILES = 4096
"""Files whose places are kept."""

DEEPEST = 16
"""Levels of groups below an example."""

NOWHERE = -1
"""The place of an example that only HDF5 can read."""

IN_CHUNKS = -2
"""The place of an example whose chunks are known."""


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


@dataclass(frozen=True, eq=False)
class Places:
    """Where the examples of one source are.

    Parameters
    ----------
    dtype : dtype
        In the file.
    offsets : int64 (n,)
        Bytes from the beginning of the file; `IN_CHUNKS`, or `NOWHERE` where only HDF5 reads them.
    shapes : int64 (n, axes of an example)
    stored_bytes : int
    """

    dtype: np.dtype[Any]
    offsets: Ints
    shapes: Ints
    stored_bytes: int
    chunks: ChunkPlaces

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
    names : bytes (n,)
        Paths in natural order.
    parts : mapping of str to Places
        What each of them holds.
    left_out : mapping of str to str
        What only some hold, or what differs too much, with the reason.
    """

    names: Array
    parts: Mapping[str, Places]
    left_out: Mapping[str, str]


def places_of(stamp: FileStamp, each: Each) -> tuple[Array, Places]:
    """Return the names of all examples, and where those of a source are."""
    things = things_of(stamp, each.pattern, each.allow_external)
    return things.names, things.parts[each.part]


@lru_cache(maxsize=KEPT_FILES)
def things_of(stamp: FileStamp, pattern: str, allow_external: bool) -> Things:
    """Look at everything that a pattern matches.

    Raises
    ------
    UnknownNameError
        If it matches nothing, or a group of groups without datasets of their own.
    FileFormatError
        If it matches datasets and groups, or a dataset reaches past the end of the file.
    UnsafeFileError
        If a link or dataset leads out of the file and `allow_external` is False.
    """
    with h5_of(stamp) as file:
        look = _Look(file, stamp, pattern, allow_external)
        for path, group, name in _matched(file["/"], pattern, allow_external):
            look.at(path, group, name)
        return look.found(file)


def _matched(
    root: h5py.Group, pattern: str, allow_external: bool
) -> Iterator[tuple[str, h5py.Group, bytes]]:
    """Yield (path, the group it lies in, its name there) of all that matches, in natural order."""
    above, _, last = pattern.strip("/").rpartition("/")
    for parent, group in matching(root, above, allow_external=allow_external).items():
        for name in sorted(map(to_text, group.id), key=natural):
            if fnmatchcase(name, last):
                yield f"{parent}/{name}".lstrip("/"), group, to_bytes(name)


@dataclass
class _Part:
    """What is known so far of one dataset of each example."""

    first: str
    kind: Any
    opaque: bool
    n_axes: int
    chunks: ChunkLook
    offsets: list[int] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    stored: int = 0
    widest: int | None = None
    """The longest text, where texts of fixed length differ in it."""
    fault: str | None = None

    def takes(self, kind: Any) -> bool:
        """Whether an example of this type is one of them; texts may be longer and shorter."""
        if self.opaque or kind.equal(self.kind):
            return True
        if not (_is_fixed_text(kind) and _is_fixed_text(self.kind)):
            return False
        self.widest = max(self.widest or self.kind.get_size(), kind.get_size())
        return True


def _is_fixed_text(kind: Any) -> bool:
    return kind.get_class() == h5py.h5t.STRING and not kind.is_variable_str()


class _Look:
    """One pass over what a pattern matches."""

    def __init__(
        self, file: h5py.File, stamp: FileStamp, pattern: str, allow_external: bool
    ) -> None:
        self.stamp, self.pattern, self.allow_external = stamp, pattern, allow_external
        # behind a user block HDF5 tells an offset of whatever is not in one piece, too
        self.tells_places = file.userblock_size == 0
        self.names: list[bytes] = []
        self.parts: dict[str, _Part] = {}
        self.sole: list[str] = []  # those that are datasets themselves

    def at(self, path: str, group: h5py.Group, name: bytes) -> None:
        """Look at one thing that matches; what is neither dataset nor group is no example."""
        thing, outside = self._opened(group, name)
        if isinstance(thing, h5py.h5d.DatasetID):
            self.sole.append(path)
            self._add("", path, thing, outside)
        elif isinstance(thing, h5py.h5g.GroupID):
            self._below("", path, h5py.Group(thing), outside, DEEPEST)
        else:
            return
        self.names.append(to_bytes(path))

    def _below(self, prefix: str, path: str, group: h5py.Group, outside: bool, deep: int) -> None:
        if not deep:
            raise FileFormatError(
                f"groups below {path!r} in file {self.stamp.path!r} nest more than {DEEPEST} deep, "
                "or run in a circle"
            )
        for raw in group.id:
            name = raw if isinstance(raw, bytes) else to_bytes(raw)
            part = prefix + to_text(name)
            thing, beyond = self._opened(group, name)
            if isinstance(thing, h5py.h5d.DatasetID):
                self._add(part, path, thing, outside or beyond)
            elif isinstance(thing, h5py.h5g.GroupID):
                below = h5py.Group(thing)
                self._below(f"{part}/", path, below, outside or beyond, deep - 1)

    def _opened(self, group: h5py.Group, name: bytes) -> tuple[Any, bool]:
        """Return the identifier behind a link, and whether it leads out of the file."""
        if group.id.links.get_info(name).type == h5py.h5l.TYPE_HARD:
            return h5py.h5o.open(group.id, name), False
        try:
            found = resolve(group, to_text(name), allow_external=self.allow_external)
        except NotThereError:
            return None, False
        return found.thing.id, found.outside

    def _add(self, name: str, path: str, dataset: Any, outside: bool) -> None:
        shape, kind = dataset.shape, dataset.get_type()
        opaque = shape == () and kind.get_class() == h5py.h5t.OPAQUE
        if opaque:  # bytes, as many as there are
            shape = (kind.get_size(),)
        part = self.parts.get(name)
        if part is None:
            n_axes = len(shape or ())
            part = self.parts[name] = _Part(path, kind, opaque, n_axes, ChunkLook(n_axes))
        if part.fault is not None:
            return
        if shape is None or len(shape) != part.n_axes or opaque != part.opaque:
            part.fault = f"it has other axes in {path!r} than in {part.first!r}"
        elif not part.takes(kind):
            part.fault = f"it is {dataset.dtype} in {path!r}, but not in {part.first!r}"
        else:
            where, stored = f"{path}/{name}".rstrip("/"), dataset.get_storage_size()
            place = self._place(dataset, where, outside, stored, part.chunks)
            size = 1 if opaque else kind.get_size()
            whole = place < 0 or stored >= math.prod(shape) * size
            part.offsets.append(place if whole else NOWHERE)
            part.shapes.append(shape)
            part.stored += stored

    def _place(self, dataset: Any, path: str, outside: bool, stored: int, chunks: ChunkLook) -> int:
        """Return where the bytes of a dataset are in this file, which must hold them all."""
        offset = dataset.get_offset() if self.tells_places and stored and not outside else None
        if offset is None:
            plist = dataset.get_create_plist()
            layout = plist.get_layout()
            if layout == h5py.h5d.CHUNKED and not outside:
                known = chunks.add(dataset, plist, path, self.stamp.size)
                return IN_CHUNKS if known else NOWHERE
            external = self.allow_external
            whole = h5py.Dataset(dataset)
            beyond = check_dataset(
                whole, path, allow_external=external, outside=outside, plist=plist
            )
            if beyond is None and layout == h5py.h5d.CONTIGUOUS and stored:
                offset = dataset.get_offset()
        chunks.skip()
        if offset is None:
            return NOWHERE
        if offset + stored > self.stamp.size:
            raise FileFormatError(
                f"{path!r} in file {self.stamp.path!r} is said to reach to byte {offset + stored}, "
                f"but the file has {self.stamp.size}; it is damaged, so copy it again"
            )
        return int(offset)

    def found(self, file: h5py.File) -> Things:
        """Return what all of them hold, and why the rest is left out."""
        self._check()
        n = len(self.names)
        left_out = {name: part.fault for name, part in self.parts.items() if part.fault is not None}
        parts: dict[str, Places] = {}
        for name, part in self.parts.items():
            if name in left_out:
                continue
            if len(part.offsets) < n:
                left_out[name] = f"only {len(part.offsets):,} of {n:,} groups have it"
                continue
            dataset = file["/".join(filter(None, (part.first, name)))]
            fault = _why_not(dataset, part)
            if fault is None:
                parts[name] = self._places(dataset, part)
            else:
                left_out[name] = fault
        if not parts:
            told = "; ".join(f"{name or 'the dataset'!r}: {why}" for name, why in left_out.items())
            raise UnknownNameError(
                f"no dataset is the same in all {n:,} things that examples={self.pattern!r} "
                f"matches in file {self.stamp.path!r} ({told or 'they hold none'}); give a pattern "
                "that matches fewer"
            )
        return Things(np.array(self.names), parts, left_out)

    def _check(self) -> None:
        where = f"in file {self.stamp.path!r}"
        if not self.names:
            raise UnknownNameError(
                f"examples={self.pattern!r} matches neither groups nor datasets {where}"
            )
        if self.sole and len(self.sole) < len(self.names):
            others = len(self.names) - len(self.sole)
            raise FileFormatError(
                f"examples={self.pattern!r} matches {others:,} groups and {len(self.sole):,} "
                f"datasets ({listed(self.sole, 4)}) {where}; give a pattern that matches one kind"
            )

    def _places(self, dataset: h5py.Dataset, part: _Part) -> Places:
        """Return where examples are: nowhere, if their bytes are not those of the dtype."""
        offsets = np.array(part.offsets, np.int64)
        shapes = np.array(part.shapes, np.int64).reshape(len(offsets), part.n_axes)
        if part.opaque:
            chunks = ChunkLook(1).found()
            return Places(np.dtype(np.uint8), offsets, shapes, part.stored, chunks)
        placed = layout_of(dataset, part.first, allow_external=self.allow_external)
        dtype = dtype_of(dataset) if part.widest is None else np.dtype(f"S{part.widest}")
        if placed["storage"] == "foreign" or dtype.hasobject or part.widest is not None:
            offsets[:] = NOWHERE
        return Places(dtype, offsets, shapes, part.stored, part.chunks.found())


def _why_not(dataset: h5py.Dataset, part: _Part) -> str | None:
    """Return why datasets alike cannot be the examples of a source; None if they can."""
    dtype = item_of(dataset)
    if part.opaque:
        return None
    if vlen_base(dtype) is not None:
        return "each of its examples consists of rows of variable length"
    if is_text(dtype) and len(set(part.shapes)) > 1:
        return "its examples are texts, and not equally many in each"
    return why_not_a_source(dataset)
