"""Pictures in a record file, decoded by hand: the bare loop, and torch's loader.

The bare loop knows where every JPEG lies before timing starts. Its threads share a batch:
each reads its records by ``pread`` and decodes them with the decoder that this library uses,
into the memory of three batches used in turn (or into arrays of their own, where sizes
differ). That memory starts where the decoder is fastest, whatever the allocator would have
made of it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labeled.bench.bare import RING, THREADS
from labeled.bench.subject import Array, Batch, Subject, as_objects
from labeled.bench.timing import Epoch, Way
from labeled.catalog.ragged import RaggedSource
from labeled.catalog.source import Source
from labeled.formats.bytesource import is_remote, stamp_of
from labeled.formats.header import SourceHeader
from labeled.formats.recordio.irheader import HEADER_BYTES
from labeled.formats.recordio.reading import RecordFile
from labeled.loader.reading.slots import ASIDE, owned

JPEG = b"\xff\xd8\xff"
PICTURES = "images"


def decode_pictures(subject: Subject, order: str) -> list[Way]:
    """Return the bare loop, in file order, and torch's loader, where rows are JPEGs."""
    header = pictures(subject)
    if header is None or importlib.util.find_spec("simplejpeg") is None:
        return []
    size = header.row_shape[:2] if header.ragged is None else None
    path, rows, main = header.file.path, subject.batch_rows, ("simplejpeg",)
    how = f"pread and simplejpeg, {THREADS} threads"
    if order == "file":
        return [
            Way("bare decode", "bare", "file", how, lambda: bare(path, size, rows), needs=main),
        ]
    if importlib.util.find_spec("torch") is None:
        return []
    how = "pread and simplejpeg a row, two worker processes"
    needs = (*main, "torch")
    return [
        Way(
            "torch DataLoader, 2 workers",
            "peer",
            "full",
            how,
            lambda: torch_epoch(path, size, rows, shuffle=True),
            needs=needs,
        )
    ]


def pictures(subject: Subject) -> SourceHeader | None:
    """Return the source of JPEGs in colour that a whole record file holds, if it does."""
    names = [name for name in subject.dataset.sources if name == PICTURES]
    source = subject.dataset.files.catalog.sources[names[0]] if names else None
    if not isinstance(source, Source | RaggedSource) or len(source.headers) != 1:
        return None
    header = source.headers[0]
    if header.format != "recordio" or is_remote(header.file.path) or not header.n_rows:
        return None
    if subject.n_rows != header.n_rows or len(header.dims) != 4:
        return None
    return header if _all_jpeg(RecordFile(stamp_of(header.file.path))) else None


def _all_jpeg(file: RecordFile) -> bool:
    """Whether the first, a middle and the last payload are JPEGs."""
    rows = np.unique([0, file.n_rows // 2, file.n_rows - 1])
    payloads = [bytes(payload) for _, payload in file.payloads(rows)]
    return all(payload[HEADER_BYTES : HEADER_BYTES + 3] == JPEG for payload in payloads)


def places(path: str | Path) -> list[tuple[int, int]]:
    """Return the offset and length of every JPEG."""
    file = RecordFile(stamp_of(path))
    lengths = [len(payload) - HEADER_BYTES for _, payload in file.payloads(range(file.n_rows))]
    starts = (file.index.offsets[:-1] + 8 + HEADER_BYTES).tolist()
    return list(zip(starts, lengths, strict=True))


def bare(path: str | Path, size: tuple[int, ...] | None, batch_rows: int) -> Epoch:
    """Return the shortest loop that reads and decodes, on two threads.

    Parameters
    ----------
    size : (height, width), optional
        Of every picture; each has its own if None.
    """
    decode = import_module("simplejpeg").decode_jpeg
    descriptor, where = os.open(path, os.O_RDONLY), places(path)
    shape = None if size is None else (RING, batch_rows, *size, 3)
    ring = None if shape is None else owned(shape, np.dtype(np.uint8), ASIDE)

    def some(out: Any, first: int, stop: int, begin: int) -> None:
        for i in range(begin, stop - first, THREADS):
            offset, length = where[first + i]
            data = os.pread(descriptor, length, offset)
            if ring is None:
                out[i] = decode(data, "RGB")
            else:
                decode(data, "RGB", buffer=out[i])

    def epoch() -> Iterator[Batch]:
        with ThreadPoolExecutor(THREADS) as pool:
            pending: list[Any] = []
            for number, first in enumerate(range(0, len(where), batch_rows)):
                stop = min(len(where), first + batch_rows)
                n = stop - first
                out = np.empty(n, object) if ring is None else ring[number % RING]
                tasks = [pool.submit(some, out, first, stop, k) for k in range(THREADS)]
                pending.append((out[:n], tasks))
                if len(pending) == RING - 1:
                    yield _done(pending.pop(0))
            while pending:
                yield _done(pending.pop(0))

    return epoch


def _done(one: tuple[Array, list[Any]]) -> Batch:
    for task in one[1]:
        task.result()
    return (one[0],)


class Records:
    """Pictures one by one, read and decoded by who asks for them."""

    def __init__(self, path: str | Path) -> None:
        self.where, self.descriptor = places(path), os.open(path, os.O_RDONLY)

    def __len__(self) -> int:
        return len(self.where)

    def __getitem__(self, row: int) -> Any:
        offset, length = self.where[row]
        data = os.pread(self.descriptor, length, offset)
        return import_module("torch").from_numpy(import_module("simplejpeg").decode_jpeg(data))


def torch_epoch(
    path: str | Path, size: tuple[int, ...] | None, batch_rows: int, *, shuffle: bool = False
) -> Epoch:
    """Return a DataLoader over the same file as its documentation has it: two workers."""
    loader = import_module("torch.utils.data").DataLoader(
        Records(path),
        batch_rows,
        shuffle=shuffle,
        num_workers=THREADS,
        persistent_workers=True,
        collate_fn=None if size else list,
    )

    def epoch() -> Iterator[Batch]:
        for batch in loader:
            yield (batch.numpy() if size else as_objects([one.numpy() for one in batch]),)

    return epoch
