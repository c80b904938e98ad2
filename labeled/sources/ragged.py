"""One named ragged source, over one file or many, or in memory.

What :class:`~labeled.sources.source.Source` is to a dense source: it knows dims and
dtype, how examples are read and how they lie in storage, and it pickles as headers. Its
rows have no common shape; the axes of examples can therefore not be cut by ``isel``.

Sizes of all examples are read once where an order or a memory bound depends on them
(eight bytes a row), and are left behind when the source travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from labeled.errors import LoaderError
from labeled.formats.header import CF, SourceHeader
from labeled.formats.memory import BLOCK_BYTES
from labeled.formats.reader import Cost, Reader
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
from labeled.sources.source import Array, Io, RowLayout, digest_of, is_elsewhere, where_of


@dataclass(frozen=True, eq=False)
class JoinedRagged:
    """Readers of ragged sources one after another; follows ``RaggedReader``."""

    readers: tuple[RaggedReader, ...]
    chunk_rows: int = 1

    @cached_property
    def _starts(self) -> Rows:
        return offsets_of(np.array([reader.n_rows for reader in self.readers], np.int64))

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def n_axes(self) -> int:
        return self.readers[0].n_axes

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.readers[0].dtype

    @property
    def where(self) -> str:
        return f"{self.readers[0].where} and {len(self.readers) - 1} more files"

    @property
    def kind(self) -> str:
        return "+".join(sorted({reader.kind for reader in self.readers}))

    @property
    def why(self) -> str:
        return f"{len(self.readers)} files: {'; '.join(sorted({r.why for r in self.readers}))}"

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

    def stored_sizes(self, rows: AnyRows) -> Rows:
        """Return the bytes that examples take in their files; decoded ones if that is unknown."""
        out = np.empty(len(rows), np.int64)
        for reader, places, own in self._by_file(rows):
            stored = getattr(reader, "stored_sizes", None)
            sizes = reader.sizes(own) * self.dtype.itemsize if stored is None else stored(own)
            out[places] = sizes
        return out

    @property
    def cost(self) -> Callable[[AnyRows], Cost] | None:
        """What counts the cost of reading examples; None if not all readers do."""
        if not all(hasattr(reader, "cost") for reader in self.readers):
            return None

        def counted(rows: AnyRows) -> Cost:
            parts: list[tuple[Any, Rows, Rows]] = [*self._by_file(rows)]
            return sum((reader.cost(own) for reader, _, own in parts), Cost())

        return counted

    def read_flat(self, rows: AnyRows) -> Flat:
        return self.read_flat_by(1, rows)

    def read_flat_by(self, threads: int, rows: AnyRows) -> Flat:
        """Return the examples one after another, read by so many threads."""
        parts = [
            (places, flat_by(threads, reader, own)) for reader, places, own in self._by_file(rows)
        ]
        shapes = np.empty((len(rows), self.n_axes), np.int64)
        for places, flat in parts:
            shapes[places] = flat.shapes
        offsets = offsets_of(elements_of(shapes))
        out = np.empty(int(offsets[-1]), self.dtype)
        for places, flat in parts:
            starts = flat.offsets[:-1]
            copy_segments(out, offsets[places], flat.values, starts, np.diff(flat.offsets))
        return Flat(out, offsets, shapes)

    def read_at(self, rows: AnyRows, out: Array, places: Rows, sizes: Rows) -> Rows:
        """Read examples to their places, file by file; see :func:`labeled.ragged.flat.read_at`."""
        shapes = np.empty((len(rows), self.n_axes), np.int64)
        for reader, which, own in self._by_file(rows):
            shapes[which] = read_at(reader, own, out, places[which], sizes[which])
        return shapes

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        """Yield examples in the order of `rows`, each in memory of its own."""
        made: list[Array | None] = [None] * len(rows)
        for reader, places, own in self._by_file(rows):
            for place, example in zip(places.tolist(), own_examples(reader, own), strict=True):
                made[place] = example
        yield from (example for example in made if example is not None)

    def _by_file(self, rows: AnyRows) -> list[tuple[RaggedReader, Rows, Rows]]:
        """Return (reader, places among `rows`, rows of that file) for each file that is hit."""
        listed = np.asarray(rows, np.int64)
        which = np.searchsorted(self._starts, listed, side="right") - 1
        out = []
        for number in np.unique(which):
            places = np.flatnonzero(which == number)
            out.append((self.readers[number], places, listed[places] - self._starts[number]))
        return out


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
    def row_shape(self) -> tuple[int, ...]:
        """Nothing: a row is one object, an example of any shape."""
        return ()

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        return np.dtype(object)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements of examples."""
        return self.examples().dtype

    @property
    def cf(self) -> CF | None:
        return None  # applied where values are read

    @property
    def decodes(self) -> bool:
        return False

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
