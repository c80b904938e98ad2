"""Handles of h5py for a moment, once it is sure that the file is still the same one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import h5py

from labeled.formats.bytesource import RemoteFile, check_path, is_remote
from labeled.formats.hdf5.door import opened
from labeled.formats.header import FileStamp


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
    if is_remote(stamp.path):
        RemoteFile(stamp)
    else:
        check_path(stamp)
    with opened(stamp.path) as file:
        yield file
