"""Handles of h5py for a moment: for local files, and over bytes from elsewhere."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py

from labeled.errors import FileFormatError
from labeled.formats.bytesource import ByteSource, RemoteFile, check_path, is_remote
from labeled.formats.hdf5.door import opened
from labeled.formats.header import FileStamp


class _SourceIO(io.RawIOBase):
    """A file object over a byte source, for h5py to read headers from."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size}[whence]
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._source.pread(self._at, min(len(view), max(self._source.size - self._at, 0)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def h5_of(stamp: FileStamp) -> Iterator[h5py.File]:
    """Open a file with h5py for a moment, after checking that it is still the same one.

    Raises
    ------
    FileFormatError
        If it cannot be opened as HDF5.
    FileChangedError
        If its size or modification time is not that of `stamp`.
    """
    if not is_remote(stamp.path):
        check_path(stamp)
        with opened(stamp.path) as file:
            yield file
        return
    source = RemoteFile(stamp).source
    try:
        file = h5py.File(io.BufferedReader(_SourceIO(source), 64 * 1024), "r")
    except OSError as fault:
        raise FileFormatError(f"{stamp.path!r} cannot be opened as HDF5: {fault}") from fault
    with file:
        yield file
