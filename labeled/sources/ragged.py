"""One named ragged source, over one file or many, or in memory.

What :class:`~labeled.sources.source.Source` is to a dense source: it knows dims and
dtype, how examples are read and how they lie in storage, and it pickles as headers. Its
rows have no common shape; the axes of examples can therefore not be cut by ``isel``.

Sizes of all examples are read once where an order or a memory bound depends on them
(eight bytes a row), and are left behind when the source travels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from labeled.errors import LoaderError
from labeled.formats.header import SourceHeader
from labeled.formats.memory import BLOCK_BYTES
from labeled.formats.reader import Cost, Io, Reader
from labeled.formats.registry import format_named
from labeled.ragged import Flat, Ragged, RaggedReader
from labeled.ragged.flat import (
    AnyRows,
    Rows,
    copy_segments,
    elements_of,
    flat_by,
    offsets_of,
    own_examples,
    read_at,
)
from labeled.selection import Selection
from labeled.sources.source import Array, RowLayout, digest_of, is_elsewhere, where_of


def cost_of(reader: RaggedReader, rows: Rows) -> Cost:
    """Count what reading examples takes; one call where a reader does not count."""
    nbytes = int(reader.sizes(rows).sum()) * reader.dtype.itemsize
    count = getattr(reader, "cost", None)
    if count is not None:
        counted: Cost = replace(count(rows), bytes_used=nbytes)
        return counted
    stored_sizes = getattr(reader, "stored_sizes", None)
    return Cost(nbytes if stored_sizes is None else int(stored_sizes(rows).sum()), nbytes, 1)


class JoinedRagged:
    """Readers of ragged sources one after another; follows ``RaggedReader``."""

    chunk_rows = 1

    def __init__(self, readers: Sequence[RaggedReader]) -> None:
        first = readers[0]
        self.readers, self.n_axes, self.dtype = readers, first.n_axes, first.dtype
        self._starts = offsets_of(np.array([reader.n_rows for reader in readers], np.int64))
        self.n_rows = int(self._starts[-1])
        self.where = f"{first.where} and {len(readers) - 1} more files"
        self.kind = "+".join(sorted({reader.kind for reader in readers}))
        self.why = f"{len(readers)} files: {'; '.join(sorted({r.why for r in readers}))}"

    def _by_file(self, rows: AnyRows) -> Iterator[tuple[RaggedReader, Rows, Rows]]:
        """Yield (reader, places among `rows`, rows of that file) for each file that is hit."""
        listed = np.asarray(rows, np.int64)
        which = np.searchsorted(self._starts, listed, side="right") - 1
        for number in np.unique(which):
            places = np.flatnonzero(which == number)
            yield self.readers[number], places, listed[places] - self._starts[number]

    def shapes(self, rows: AnyRows) -> Rows:
        out = np.empty((len(rows), self.n_axes), np.int64)
        for reader, places, own in self._by_file(rows):
            out[places] = reader.shapes(own)
        return out

    def sizes(self, rows: AnyRows) -> Rows:
        out = np.empty(len(rows), np.int64)
        for reader, places, own in self._by_file(rows):
            out[places] = reader.sizes(own)
        return out

    def cost(self, rows: AnyRows) -> Cost:
        """Count what reading examples takes, file by file."""
        return sum([cost_of(reader, own) for reader, _, own in self._by_file(rows)], Cost())

    def read_flat(self, rows: AnyRows) -> Flat:
        return self.read_flat_by(1, rows)

    def read_flat_by(self, threads: int, rows: AnyRows) -> Flat:
        """Return the examples one after another, read by so many threads."""
        parts, shapes = [], np.empty((len(rows), self.n_axes), np.int64)
        for reader, places, own in self._by_file(rows):
            flat = flat_by(threads, reader, own)
            shapes[places] = flat.shapes
            parts.append((places, flat))
        offsets = offsets_of(elements_of(shapes))
        out = np.empty(int(offsets[-1]), self.dtype)
        for places, (values, starts, _) in parts:
            copy_segments(out, offsets[places], values, starts[:-1], np.diff(starts))
        return Flat(out, offsets, shapes)

    def read_at(self, rows: AnyRows, out: Array, places: Rows, sizes: Rows) -> Rows:
        """Read examples to their places, file by file; see :func:`labeled.ragged.flat.read_at`."""
        shapes = np.empty((len(rows), self.n_axes), np.int64)
        for reader, which, own in self._by_file(rows):
            shapes[which] = read_at(reader, own, out, places[which], sizes[which])
        return shapes

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        """Yield examples in the order of `rows`, each in memory of its own."""
        made = np.empty(len(rows), object)
        for reader, places, own in self._by_file(rows):
            for place, example in zip(places.tolist(), own_examples(reader, own), strict=True):
                made[place] = example
        yield from made


@dataclass(frozen=True, eq=False)
class RaggedSource:
    """A named source of examples of different shapes.

    Parameters
    ----------
    name : str
    headers : tuple of SourceHeader
        One a file, joined along the example axis.
    dims : tuple of str
        The example dim, then one name for each axis of an example.
    io : {"auto", "pread", "mmap"}
    loaded : Ragged, optional
        The examples themselves, where they were read into memory.
    """

    name: str
    headers: tuple[SourceHeader, ...]
    dims: tuple[str, ...]
    io: Io = "auto"
    loaded: Ragged | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    row_shape = ()  # a row is one object, an example of any shape
    stored_dtype: ClassVar[np.dtype[Any]] = np.dtype(object)
    cf, decodes = None, False  # values are decoded where they are read

    @classmethod
    def of(cls, headers: tuple[SourceHeader, ...], io: Io = "auto") -> RaggedSource:
        """Make the source of one header a file."""
        first = headers[0]
        return cls(first.name, headers, first.dims, io, attrs=first.attrs)

    def in_memory(self, rows: Any) -> RaggedSource:
        """Put examples in memory in the place of those in the files."""
        return replace(self, loaded=rows)

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def ragged(self) -> str:
        """Why its examples differ in shape."""
        return self.headers[0].ragged or "every example has its own shape"

    @property
    def n_rows(self) -> int:
        if self.loaded is not None:
            return len(self.loaded)
        return sum(header.n_rows for header in self.headers)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements of examples."""
        return self.examples().dtype

    @property
    def where(self) -> str:
        """How messages name the source and its file."""
        return where_of(self.name, self.headers)

    def examples(self) -> RaggedReader:
        """Make a reader of examples, rows numbered through all files."""
        if self.loaded is not None:
            return self.loaded.reader
        readers = tuple(format_named(h.format).open_ragged(h, self.io) for h in self.headers)
        return readers[0] if len(readers) == 1 else JoinedRagged(readers)

    def select(self, selection: Selection) -> Ragged:
        """Return the examples of some rows, lazily."""
        return Ragged(self.examples(), selection, self.dims, self.name, self.attrs)

    def reader(self) -> Reader:
        """Refuse: rows without a common shape have no such reader; see :meth:`examples`."""
        raise LoaderError(
            f"{self.where} holds examples of different shapes ({self.ragged}), where rows of one "
            "shape are needed; name another source"
        )

    def decode(self, raw: Array) -> Array:
        return raw

    # what order and memory depend on

    @cached_property
    def sizes(self) -> Rows:
        """How many elements each example has; reads offsets or lengths of all rows, once."""
        return self.examples().sizes(range(self.n_rows))

    @property
    def row_bytes(self) -> int:
        """Bytes of an average example."""
        return max(1, int(self.sizes.sum()) * self.dtype.itemsize // max(1, self.n_rows))

    @cached_property
    def layout(self) -> RowLayout:
        """What is stored together; rows at which chunks of flat values begin, through all files."""
        if self.loaded is not None:
            return RowLayout(None)
        values = [header.parts.get("values", header) for header in self.headers]
        longest = int(self.sizes.max(initial=0)) * self.dtype.itemsize
        block = min(BLOCK_BYTES, int(self.sizes.sum()) * self.dtype.itemsize)
        chunk = max((value.chunks or (0,))[0] * value.dtype.itemsize for value in values)
        scratch = block + 2 * max(longest, chunk) + max(h.scratch_bytes for h in self.headers)
        expensive = any(header.filters for header in values)
        if any("values" not in h.parts for h in self.headers) or values[0].chunks is None:
            first = self.headers[0]
            alone = "values" in first.parts or first.storage == "records"
            here = not is_elsewhere(self.headers)
            return RowLayout(None, None, scratch, expensive, random=alone and here)
        edges = self._chunk_edges(values)
        rows = max(1, self.n_rows // max(1, len(edges) - 1))
        return RowLayout(rows, edges, scratch, expensive, random=False)

    def _chunk_edges(self, values: list[SourceHeader]) -> Rows:
        """Rows at which a stored chunk begins; a row that two chunks share belongs to the first."""
        first, out = 0, [np.zeros(1, np.int64)]
        for source, header in zip(self.headers, values, strict=True):
            n = source.n_rows
            ends = np.cumsum(self.sizes[first : first + n])
            step = max(1, (header.chunks or (1,))[0])
            borders = np.arange(step, header.n_rows, step)
            out.append(first + np.searchsorted(ends, borders, side="left") + 1)
            first += n
            out.append(np.array([first], np.int64))
        edges: Rows = np.unique(np.concatenate(out)).astype(np.int64)
        return edges[edges <= self.n_rows]

    @cached_property
    def token(self) -> str:
        """A digest of which file data this is."""
        digest = digest_of(self.headers)
        digest.update(repr((self.name, self.dims, self.loaded is None)).encode())
        return digest.hexdigest()
