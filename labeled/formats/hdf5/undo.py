"""What a file is before it grows in place, so that a change that is cut short can be taken back.

A source that grows keeps its whole chunks where they are. What HDF5 writes anew is its own
tables and the short chunks at the end: little, so all but whole chunks is read into memory
before anything is changed, and written back if the change fails. That takes no space on
the disk: these bytes are in the file already, and what came after them is cut off.

Only an exception can be undone so. A process that is killed, or a machine that stops,
leaves the file as HDF5 had it, with its mark.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import h5py
import numpy as np
import numpy.typing as npt

from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.header import SourceHeader

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Undo:
    """The bytes of a file that may change.

    Parameters
    ----------
    path : str
    n_bytes : int
        Of the whole file.
    kept : list of (offset, bytes)
    """

    path: str
    n_bytes: int
    kept: list[tuple[int, bytes]]

    @property
    def n_held(self) -> int:
        """Bytes in memory."""
        return sum(len(content) for _, content in self.kept)

    def write_to(self, handle: int) -> None:
        """Write the bytes into a file that is open, and make it as long as it was."""
        for offset, content in self.kept:
            view = memoryview(content)
            while view:
                written = os.pwrite(handle, view, offset)
                offset, view = offset + written, view[written:]
        os.ftruncate(handle, self.n_bytes)

    def abandon(self, file: h5py.File) -> None:
        """Close a file that is open in HDF5 without another byte being written to it."""
        with contextlib.suppress(Exception), tempfile.TemporaryFile() as nowhere:
            with contextlib.suppress(OSError):
                self.write_to(nowhere.fileno())  # HDF5 may read what it knows to be there
            os.dup2(nowhere.fileno(), file.id.get_vfd_handle())
            file.close()

    def take_back(self) -> None:
        """Make the file what it was, on the disk."""
        handle = os.open(self.path, os.O_WRONLY)
        try:
            self.write_to(handle)
            os.fsync(handle)
        finally:
            os.close(handle)


def undo_of(
    path: str, whole_rows: Mapping[str, tuple[SourceHeader, int]], most: int
) -> Undo | None:
    """Read what may change while sources grow; None where that is more than `most` bytes.

    Parameters
    ----------
    path : str
    whole_rows : mapping of source to (header, rows)
        How many rows, whole chunks, are never written again.
    most : int
    """
    n_bytes = os.path.getsize(path)
    stretches = list(_between([_chunks(*each) for each in whole_rows.values()], n_bytes))
    if sum(stop - start for start, stop in stretches) > most:
        return None
    with open(path, "rb") as file:
        return Undo(path, n_bytes, [(a, os.pread(file.fileno(), b - a, a)) for a, b in stretches])


def _chunks(source: SourceHeader, rows: int) -> tuple[Ints, Ints]:
    """Return where the stored chunks of the first rows begin and end."""
    assert source.chunks is not None
    index = chunk_index(source)
    n_chunks = rows // source.chunks[0] * int(np.prod(index.grid[1:], dtype=np.int64))
    offsets, sizes, _ = index.find(np.arange(n_chunks, dtype=np.int64))
    there = offsets >= 0
    return offsets[there], (offsets + sizes)[there]


def _between(chunks: list[tuple[Ints, Ints]], n_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a file that lie in no chunk."""
    starts = np.concatenate([np.empty(0, np.int64), *(each[0] for each in chunks)])
    stops = np.concatenate([np.empty(0, np.int64), *(each[1] for each in chunks)])
    order = np.argsort(starts)
    ends = np.concatenate([[0], np.maximum.accumulate(stops[order])])
    begins = np.concatenate([starts[order], [n_bytes]])
    for place in np.flatnonzero(begins > ends):
        yield int(ends[place]), int(begins[place])
