"""Rows that are no arrays of one shape: examples that differ in shape, and text.

One source at a time: each layout in which this library hands out examples, against the loops
that users of h5py write. Everything is touched: the values of each example, padding too,
and of text its characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.bench import ours
from labeled.bench.peers.common import Orders, cuts
from labeled.bench.pictures import decode_pictures
from labeled.bench.subject import Array, Batch, Stored, Subject, as_objects
from labeled.bench.timing import Epoch, Way, touch
from labeled.catalog.ragged import RaggedSource
from labeled.formats.bytesource import is_remote
from labeled.formats.header import SourceHeader


class ByH5py(NamedTuple):
    """How users of h5py read examples: one, or those from one row to before another."""

    one: Callable[[int], Any]
    some: Callable[[int, int], Any]


def ways(subject: Subject, order: str) -> list[Way]:
    """Return every way to read a source whose rows are no arrays of one shape."""
    mine = [ours.in_order(subject)] if order == "file" else [ours.window(subject)]
    if subject.form == "text":
        return [*mine, *_h5py(subject, order, _text)]
    if order == "file":
        mine += [laid_out(subject, "pad"), laid_out(subject, "flat")]
    return [*mine, *decode_pictures(subject, order), *_h5py(subject, order, _examples)]


def laid_out(subject: Subject, layout: str) -> Way:
    """Batches in file order with the examples padded to the longest, or end to end."""

    def make() -> Epoch:
        loader = ours.loader(subject, ragged=layout)

        def epoch() -> Iterator[int]:
            with iter(loader) as live:
                for batch in live:
                    for array in batch.arrays.values():
                        touch(array)
                    yield batch.count

        return epoch

    def explain() -> Any:
        return ours.loader(subject, ragged=layout).explain()

    words = {"pad": "padded", "flat": "flat values"}[layout]
    how = f"batches({subject.batch_rows}, memory={subject.memory!r}, ragged={layout!r})"
    return Way(f"ours, {words}", "ours", "file", how, make, explain)


def _h5py(subject: Subject, order: str, opened: Callable[[SourceHeader], ByH5py]) -> list[Way]:
    """Return the loops over examples that h5py allows: one a call, and by slices."""
    one = h5py_source(subject)
    if one is None or one.span is None:
        return []
    batches, header, base = cuts(one.n_rows, subject.batch_rows), one.header, one.span.start
    orders = Orders(one.n_rows) if order != "file" else None

    def row_by_row() -> Epoch:
        read = opened(header).one

        def epoch() -> Iterator[Batch]:
            rows = np.arange(len(one.span or ())) if orders is None else orders.next()
            for a, b in batches:
                yield (as_objects([read(base + row) for row in rows[a:b].tolist()]),)

        return epoch

    def slices() -> Epoch:
        read = opened(header).some

        def epoch() -> Iterator[Batch]:
            for a, b in batches:
                yield (as_objects(read(base + a, base + b)),)

        return epoch

    if orders is not None:
        how = "x[row] for the rows of a batch, in a new order each epoch"
        return [Way("h5py, row by row", "peer", "full", how, row_by_row)]
    return [
        Way("h5py, row by row", "peer", "file", "x[row], file open throughout", row_by_row),
        Way("h5py slices", "peer", "file", "x[a:b] of a batch, cut into examples", slices),
    ]


def h5py_source(subject: Subject) -> Stored | None:
    """Return the source if h5py can read it: in one file, all rows or a stretch of them."""
    (name,) = subject.dataset.sources
    source = subject.dataset.files.catalog.sources[name]
    if not isinstance(source, RaggedSource):
        one = subject.stored[0] if subject.by_h5py else None
    else:
        header = source.headers[0] if len(source.headers) == 1 else None
        local = header is not None and header.format == "hdf5" and not is_remote(header.file.path)
        one = Stored(header, subject.dataset.selection(name)) if header and local else None
    return None if one is None or one.span is None else one


def _text(header: SourceHeader) -> ByH5py:
    rows = h5py.File(header.file.path, "r")[header.key]
    rows = rows.asstr(errors="surrogateescape") if header.dtype.hasobject else rows
    return ByH5py(lambda row: rows[row], lambda a, b: rows[a:b])


def _examples(header: SourceHeader) -> ByH5py:
    """Read examples as users of h5py do who know how they are stored."""
    file = h5py.File(header.file.path, "r")
    shaped = header.parts.get("shapes")
    shapes = None if shaped is None else file[shaped.key][:]
    if "values" not in header.parts:
        rows = file[header.key]
        return _reshaped(ByH5py(lambda row: rows[row], lambda a, b: rows[a:b]), shapes)
    values, offsets = file[header.parts["values"].key], file[header.parts["offsets"].key][:]

    def some(a: int, b: int) -> Any:
        edges = offsets[a : b + 1]
        return np.split(values[edges[0] : edges[-1]], edges[1:-1] - edges[0])

    return _reshaped(ByH5py(lambda row: values[offsets[row] : offsets[row + 1]], some), shapes)


def _reshaped(read: ByH5py, shapes: Array | None) -> ByH5py:
    """Give examples of several axes their shapes."""
    if shapes is None:
        return read

    def some(a: int, b: int) -> Any:
        pairs = zip(read.some(a, b), shapes[a:b].tolist(), strict=True)
        return [example.reshape(shape) for example, shape in pairs]

    return ByH5py(lambda row: read.one(row).reshape(shapes[row]), some)
