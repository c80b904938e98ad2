"""``labeled.repack``: the same rows in other chunks, another codec, another order.

Values go from file to file as they are stored, with their names, coordinates, attributes,
splits and provenance, and so does whatever else the file holds. What is not asked for stays
as it is. Before the new file takes its name its rows are read back and compared with the checksums
of those of the original.

Rows that keep their order are read in blocks of whole stored chunks. Where they change places, or
chunks lie across very many of them, they are laid out in a mapped temporary file first, so that no
chunk is decoded twice. The file has no name, so that nothing of it stays behind whatever happens.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Any, Unpack

import numpy as np

from labeled._validation import check_arguments
from labeled.display.progress import Advance, progress_bar
from labeled.errors import ArrayError, WriteError
from labeled.formats.bytesource import check_same
from labeled.formats.cf import cf_of
from labeled.formats.hdf5.extras import extras_of
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.headers import stored_dtype
from labeled.formats.hdf5.metadata import ATTRIBUTES, datasets_of, read_checksums
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.safety import to_bytes
from labeled.formats.hdf5.writing import storable
from labeled.formats.header import CF, FileHeader, SourceHeader, vlen_base
from labeled.formats.reader import native, read_rows
from labeled.formats.region import Array, Ints
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import check_target, explained
from labeled.ragged.flat import Flat, FlatRows, RaggedReader, block_cuts, elements_of, offsets_of
from labeled.writing.inputs import Inputs, check_names, coordinate
from labeled.writing.layouts import AS_STORED, RaggedAs, Storage, StorageKeywords, expanded
from labeled.writing.packing import PackingPlan, fitting
from labeled.writing.source import (
    BLOCK_BYTES,
    Block,
    Examples,
    Read,
    SourceToWrite,
    ragged_datasets,
    read_by,
    slices,
)
from labeled.writing.splits import ORDERS, Splits, moved, order_of
from labeled.writing.verify import differences_of, stored_datasets
from labeled.writing.write import Planned, Table, check_ending


@check_arguments(but=("path",), options=AS_STORED)
def repack(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ragged: RaggedAs | None = None,
    order: str = "keep",
    seed: int = 0,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    allow_external: bool = False,
    verify: bool = True,
    **options: Unpack[StorageKeywords],
) -> str:
    """Write a file of examples again, stored differently.

    Parameters
    ----------
    path, target : path
        An HDF5 file, and where the new one goes; the same path replaces the file, with
        `overwrite`.
    layout, compression, level, chunks
        As for :func:`labeled.write`, for all sources or by source, also by patterns such as
        ``data/demo_*/x``. What is not given stays as it is, but for codecs that cannot be
        written here: gzip takes their place.
    ragged : {"flat", "fuel"}, optional
        How examples of different shapes are stored.
    order : {"keep", "splits", "shuffle"}
        "splits" puts the rows of each split together, in its own order, so that lists of rows
        become stretches. "shuffle" also shuffles rows, but only among those that are in the
        same splits. Both need two passes over the rows and, beside the target, disk space
        for the largest source.
    seed : int
        Of a shuffle; the same seed gives the same file.
    dims : mapping of source to names, optional
        Names of all axes, in place of those in the file; also by patterns.
    allow_external : bool
        Read what the file has in other files, and put it into the new one; only for files that
        you trust.
    overwrite : bool
        Replace a file that is at `target`.
    verify : bool
        Read the new file back, and compare its rows with what was read, before it takes its name.
    progress, memory, threads
        As for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the new file.

    Raises
    ------
    ArrayError, SplitError, UnknownNameError
        If the options do not fit the file; before anything is written.
    WriteError
        If the file cannot be written, or differs from the original; nothing is left behind.
    NotYetError
        If the file holds what cannot be carried over (references, data in other files, sources
        of its split table that cannot be opened); the message names it.

    Warns
    -----
    LabeledWarning
        If rows change places, and datasets that belong to no source are as long; or attributes of
        sources or of the file hold references, which are left out.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> path = labeled.write(path, {"x": np.arange(6)}, {"a": [5, 0], "b": [1, 2, 3]}, chunks=1)
    >>> path = labeled.repack(path, path, layout="contiguous", order="splits", overwrite=True)
    >>> labeled.open_dataset(path)["x"].values
    array([5, 0, 1, 2, 3, 4])
    """
    if order not in ORDERS:
        raise ArrayError(f"order={order!r} must be one of {ORDERS}")
    check_hdf5(path, "repacking")
    check_ending(target)
    storage = replace(AS_STORED, **options)
    if any("*" in name for name in dims or ()):
        here = scan(path, decode_cf=False, allow_external=allow_external, quiet=True)
        dims = expanded("dims", dims or {}, here.sources)
    header = scan(path, dims=dims or None, decode_cf=False, allow_external=allow_external)
    counts = {name: source.n_rows for name, source in header.sources.items()}
    table = splits_of(header)
    moves = order_of(order, table or {}, counts, seed)
    budget, n_threads = storage.effort()
    target = check_target(target, overwrite=storage.overwrite)
    stored = StoredSources(header, target, budget // 6, moves)
    if table is not None and moves is not None:
        positions = np.argsort(moves)
        for by_source in table.values():
            by_source |= {name: moved(positions, rows) for name, rows in by_source.items()}
    check = partial(_check, stored, verify, n_threads)
    passes = 1 + verify + (moves is not None)
    return rewrite(stored, stored.inputs(ragged), table, storage, check, "repack", passes)


def splits_of(header: FileHeader) -> Splits | None:
    """Return a copy of the split table of a file; None where it has none."""
    if header.kind != "fuel":
        return None
    return {split: dict(by_source) for split, by_source in header.splits.items()}


def rewrite(
    stored: StoredSources,
    inputs: Inputs,
    table: Splits | None,
    storage: Storage,
    check: Callable[[str], None],
    title: str,
    passes: int = 1,
    counted: Table | None = None,
    growing: str | None = None,
) -> str:
    """Write the rows of a file, or more, into a new file with whatever else the file holds.

    Parameters
    ----------
    inputs : Inputs
        Rows of `stored`, alone or followed by others.
    table : mapping, optional
        The split table.
    check : callable of a path
        Has the last word on the new file before it takes its name.
    title : str
        What the progress bar says of the file.
    passes : int
        How often the bytes of all rows are reported.
    counted : callable of numbers of rows, optional
        Returns the split table, where these are not known before.
    growing : str, optional
        The split that then gets all rows beyond those of `stored`.
    """
    header, order = stored.header, stored.order
    old: dict[str, SourceHeader] = {}
    for name, source in header.sources.items():
        fuel = source.ragged is not None and "values" not in source.parts
        if fuel == (vlen_base(inputs.sources[name].dtype) is not None):  # stored as it was
            old |= datasets_of(source)
    plan = fitting(PackingPlan.of(inputs, storage, table, stored=old), storage.memory)
    if growing is not None:
        for name, tally in plan.tallies.items():
            tally.go_on(growing, header.sources[name].n_rows)
    plan = replace(plan, budget=plan.reserved + max(plan.budget - plan.reserved, 0) // 3)
    rows = None if order is None else order.__getitem__
    extras = extras_of(header, rows, storage.effort()[0] // 4)
    attrs = storable("the file", _kept(header.attrs))
    netcdf = header.kind != "plain" and extras.has_scales
    new = Planned(plan, counted or (lambda _: table), attrs, netcdf, extras, check)
    n_bytes = None if inputs.n_bytes is None else passes * inputs.n_bytes
    name = os.path.basename(stored.target)
    with progress_bar(storage.progress, n_bytes, f"{title} {name}") as advance:
        stored.advance = advance
        new.create(stored.target, advance, overwrite=storage.overwrite)
    return stored.target


def _check(stored: StoredSources, compare: bool, threads: int, part: str) -> None:
    """Compare the new file with the original, before it takes its name.

    Raises
    ------
    WriteError
        If they differ; names source and rows.
    FileChangedError
        If somebody changed the original meanwhile.
    """
    names = tuple(stored.header.sources)  # dims= may take one of a dataset that has two
    new = scan(part, sources=names, decode_cf=False, quiet=True)
    check_looks(stored.header, new, "in the new file; the original is untouched")
    if compare:
        datasets, most = stored_datasets(new), stored.block_bytes // threads
        for first in differences_of(datasets, read_checksums(part), threads, stored.advance, most):
            raise WriteError(
                f"{stored.target!r} differs from the original ({first}); the disk or memory may be "
                f"damaged, and the original is untouched"
            )


def check_looks(old: FileHeader, new: FileHeader, otherwise: str, *, coords: bool = False) -> None:
    """Refuse a new file whose sources are others, and an old one that was changed meanwhile.

    Raises
    ------
    WriteError
        Names the source; `otherwise` goes on.
    FileChangedError
    """
    check_same(old.stamp, "Try again")
    for name, source in old.sources.items():
        there, of = new.sources.get(name), old.stamp.path
        if there is None or _looks(there, coords) != _looks(source, coords):
            raise WriteError(f"source {name!r} of {of!r} would be read otherwise {otherwise}")


def _looks(source: SourceHeader, coords: bool) -> tuple[Any, ...]:
    dtype = open_ragged(source).dtype if source.ragged is not None else source.dtype
    cf = source.cf or CF(dtype.newbyteorder("="))  # which decodes nothing
    return source.dims, source.shape, dtype.str, cf, coords and source.coords


def _kept(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as they can be stored again: texts that hold a null byte had one width."""
    out = dict(attrs)
    for name, value in attrs.items():
        if isinstance(value, str) and "\0" in value:
            out[name] = np.bytes_(to_bytes(value))
    return out


# the sources of a file on their way into another one


@dataclass(eq=False)
class StoredSources:
    """The sources of a file, as they are written into another one.

    Parameters
    ----------
    header : FileHeader
    target : str
        Beside which temporary files lie.
    budget : int
        Bytes of memory for what is read.
    order : int64 (n,), optional
        Which row goes to each position.
    advance : callable of int
        Hears how many bytes were laid out for another order.
    """

    header: FileHeader
    target: str
    budget: int
    order: Ints | None = None
    advance: Advance = lambda _: None

    @property
    def block_bytes(self) -> int:
        """What is read at a time."""
        return max(min(BLOCK_BYTES, self.budget // 4), 1)

    def inputs(self, ragged: RaggedAs | None = None) -> Inputs:
        """Return everything to write, in the new order; `ragged` is how examples are stored."""
        given: dict[str, SourceToWrite] = {}
        if not self.header.sources:
            where = self.header.stamp.path
            raise ArrayError(f"file {where!r} has no source; labeled info says why")
        check_names(self.header.sources, {})
        for name, source in self.header.sources.items():
            if source.ragged is None:
                given[name] = self._dense(source)
            else:
                kind: RaggedAs = "flat" if "values" in source.parts else "fuel"
                examples = self._examples(source)
                if (kind, ragged) == ("flat", "fuel") and (
                    cf_of(name, examples.dtype, examples.attrs, [])[0] is not None
                ):
                    raise ArrayError(
                        f"source {name!r} has examples of times or packed numbers, which Fuel's "
                        "rows of variable length do not tell; leave ragged= out"
                    )
                given |= ragged_datasets(name, examples, ragged or kind)
        return Inputs(given)

    def _dense(self, source: SourceHeader) -> SourceToWrite:
        coords, name = [], source.name  # those along one dim; others are carried over as they are
        for coord in source.coords:
            variable = self.header.variables[coord]
            if len(variable.dims) == 1:
                kept = read_rows(open_reader(variable), range(variable.n_rows))
                if self.order is not None and variable.dims[0] == source.dims[0]:
                    kept = kept[self.order]
                kept = kept if kept.dtype.kind == "O" else kept.astype(stored_dtype(variable))
                coords.append(coordinate(coord, variable.dims[0], kept, _kept(variable.attrs)))
        attrs, along = storable(f"source {name!r}", _kept(source.attrs)), tuple(coords)
        dtype, blocks = stored_dtype(source), partial(self._blocks, source)
        given = SourceToWrite(name, dtype, source.shape, source.dims, attrs, blocks, coords=along)
        if dtype.kind != "O":
            return given
        reader, texts = open_reader(source), replace(given, dtype=np.dtype(object))
        texts = read_by(texts, lambda a, b: read_rows(reader, range(a, b)), source.n_rows)
        return texts if self.order is None else replace(texts, blocks=partial(self._moved, texts))

    def _moved(self, texts: SourceToWrite, rows: int) -> Iterator[Block]:
        """Yield texts in the new order; they are laid out as they lie in a temporary file first."""
        n_rows, *shape = (int(n or 0) for n in texts.shape)
        found, folder = [np.empty(0, np.int64)], os.path.dirname(self.target)
        with explained(self.target), tempfile.TemporaryFile(dir=folder) as file:
            for block in texts.blocks(rows):
                assert block.read is not None  # no block of a file is dask's
                stored = block.read().reshape(-1).tolist()
                found.append(np.fromiter(map(len, stored), np.int64, len(stored)))
                file.write(b"".join(stored))
                self.advance((block.stop - block.start) * texts.row_bytes)
            file.flush()
            values = np.memmap(file, np.uint8, "r") if file.tell() else np.empty(0, np.uint8)
        sizes = np.concatenate(found)
        laid = FlatRows(Flat(np.asarray(values), offsets_of(sizes), sizes[:, None]))
        within = np.arange(math.prod(shape))

        def read(start: int, stop: int) -> Array:
            which = np.asarray(self._rows(start, stop))[:, None] * within.size + within
            flat = laid.read_flat(which.reshape(-1))
            raw, out = flat.values.tobytes(), np.empty(which.size, object)
            out[:] = [raw[a:b] for a, b in pairwise(flat.offsets.tolist())]
            return out.reshape(len(which), *shape)

        yield from read_by(texts, read, n_rows).blocks(rows)

    def _blocks(self, source: SourceHeader, rows: int) -> Iterator[Block]:
        """Cut a source into blocks, of whole stored chunks where these are read as they lie."""
        n_rows, step = source.n_rows, 1 if source.chunks is None else source.chunks[0]
        tall = step > 1 and step * source.row_bytes > self.block_bytes
        if self.order is None and not tall:
            reader = open_reader(source)
            rows = -(-rows // step) * step
            return slices(lambda a, b: read_rows(reader, range(a, b)), n_rows, rows)
        laid = self._laid_out(source)
        return slices(lambda a, b: laid[self._rows(a, b)], n_rows, rows)

    def _rows(self, start: int, stop: int) -> Any:
        return range(start, stop) if self.order is None else self.order[start:stop]

    def _examples(self, source: SourceHeader) -> Examples:
        """Return a source of examples of different shapes."""
        reader: RaggedReader = open_ragged(source)
        shapes = reader.shapes(range(source.n_rows))

        def opened() -> Read:
            laid = reader if self.order is None else self._laid_flat(reader, shapes)
            return lambda start, stop: laid.read_flat(self._rows(start, stop)).values

        attrs = {k: v for k, v in _kept(source.attrs).items() if k not in ATTRIBUTES}
        moved = shapes if self.order is None else shapes[self.order]
        return Examples(reader.dtype, moved, source.dims, attrs, opened)

    def _laid_flat(self, reader: RaggedReader, shapes: Any) -> FlatRows:
        """Return examples, in the order of the file, whose values are in a temporary file."""
        sizes, itemsize = elements_of(shapes), reader.dtype.itemsize
        edges = offsets_of(sizes)
        values = self._room(int(edges[-1]) * itemsize).view(reader.dtype)
        for a, b in pairwise(block_cuts(sizes * itemsize, self.block_bytes)):
            values[edges[a] : edges[b]] = reader.read_flat(range(a, b)).values
            self.advance(int(edges[b] - edges[a]) * itemsize)
        return FlatRows(Flat(values, edges, shapes))

    def _laid_out(self, source: SourceHeader) -> Array:
        """Return rows as they lie, in a temporary file; each chunk is decoded once."""
        n_rows, row_shape, dtype = source.n_rows, source.row_shape, native(source.dtype)
        out: Array = self._room(n_rows * source.row_bytes).view(dtype).reshape(source.shape)
        step, *widths = source.chunks or (1, *row_shape)
        if step * source.row_bytes <= self.block_bytes:  # all of some rows, else of a few chunks
            widths = list(row_shape)
            step *= max(self.block_bytes // max(step * source.row_bytes, 1), 1)
        tiles = [range(0, n, width) for n, width in zip(row_shape, widths, strict=True) if n]
        for corner in product(*tiles) if out.size else ():
            ends = zip(corner, widths, row_shape, strict=True)
            tile = tuple(slice(at, min(at + width, n), 1) for at, width, n in ends)
            reader = open_reader(source, region=tile)
            for start in range(0, n_rows, step):
                stop = min(start + step, n_rows)
                rows = read_rows(reader, range(start, stop))
                out[(slice(start, stop), *tile)] = rows
                self.advance(0 if self.order is None else rows.nbytes)
        return out

    def _room(self, n_bytes: int) -> Array:
        """Map a file without a name beside the target, with so many bytes set aside.

        Raises
        ------
        WriteError
            If the disk does not have them.
        """
        if not n_bytes:
            return np.empty(0, np.uint8)
        folder = os.path.dirname(self.target)
        with explained(self.target), tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            return np.asarray(np.memmap(file, np.uint8, "r+", shape=(n_bytes,)))
