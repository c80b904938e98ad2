"""The door to an HDF5 file: open, look, close, and say plainly what is wrong.

Whatever HDF5 or h5py raises about a file that is missing, damaged or in use leaves
here as a :class:`FileFormatError` that names the file and what to do. The door knows
nothing of datasets or splits.

A file is open only inside ``with opened(path)``: opening again costs a third of a
millisecond, and in exchange no handle outlives its use, blocks a writer, crosses a
fork or has to be pickled.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py

from labeled.errors import FileChangedError, FileFormatError, LabeledError
from labeled.formats.bytesource import ByteSource, RemoteFile, check_path, is_remote, stamp_of
from labeled.formats.header import FileStamp

INCOMPLETE = "labeled_incomplete"
"""Root attribute that an append sets before it writes, and removes when it is done."""

HEADER_BYTES = 64 * 1024
"""What one request to an address brings of the headers."""

# HDF5 refuses a second opening in one process whose locking differs from the first.
# "best-effort" honours locks where the file system has any; the others only follow
# whoever in this process has opened the file already.
_LOCKINGS: tuple[str | bool, ...] = ("best-effort", False, True)

_CAUSES = (
    (
        "file signature not found",
        "is not an HDF5 file (or the beginning of it is missing); check the path",
    ),
    (
        "truncated file",
        "is truncated: it is shorter than its own header says; copy or download it again",
    ),
    (
        "unable to lock file",
        "is open for writing elsewhere; close it there first, or set "
        "HDF5_USE_FILE_LOCKING=FALSE if nothing writes to it",
    ),
    (
        "already open for write",
        "is open for writing, or its last writer did not close it; close it there, or clear the "
        "mark with `h5clear -s FILE`",
    ),
)


@contextmanager
def opened(path: str | os.PathLike[str], *, headers: bool = False) -> Iterator[h5py.File]:
    """Open a file for reading its headers, and close it again.

    Parameters
    ----------
    path : str or path-like
        A local file, or an address.
    headers : bool
        Whether no examples are read: HDF5 then takes no memory for chunks, which is three
        quarters of what each dataset takes.

    Yields
    ------
    h5py.File
        Open until the ``with`` block ends; objects taken from it die with it.

    Raises
    ------
    FileFormatError
        If the file is missing, a folder, not HDF5, truncated, not permitted, open for
        writing elsewhere, half-appended, or turns out to be damaged inside the block.

    Examples
    --------
    >>> with opened("no_such.hdf5") as file:
    ...     pass
    Traceback (most recent call last):
    labeled.errors.FileFormatError: file '...no_such.hdf5' does not exist; check the path
    """
    stamp = stamp_of(path)
    name = stamp.path
    slots = 1 if headers else None
    file = _open_remote(stamp, slots) if is_remote(name) else _open(name, slots)
    try:
        if h5py.h5a.exists(file.id, INCOMPLETE.encode()):
            raise FileFormatError(
                f"file {name!r} carries the mark {INCOMPLETE!r}: appending to it was interrupted, "
                f"so its last rows may be missing. Restore a copy of it; if you know that it is "
                f"whole, delete the attribute {INCOMPLETE!r} from its root group"
            )
        yield file
    except LabeledError:
        raise
    except Exception as error:
        # Damage inside an HDF5 file surfaces as nearly any exception: KeyError, OSError,
        # RuntimeError, TypeError, UnicodeError, MemoryError for an impossible length.
        raise FileFormatError(
            f"file {name!r} is damaged, or holds something h5py cannot read: "
            f"{type(error).__name__}: {error}; compare it with `h5dump -H`, or copy it again"
        ) from error
    finally:
        try:
            file.close()
        except Exception as error:
            # A damaged file can fail even to close; what was read is already judged.
            raise FileFormatError(
                f"file {name!r} is damaged: closing it failed ({error}); copy it again"
            ) from error


def _open(name: str, slots: int | None) -> h5py.File:
    if not os.access(name, os.R_OK):
        raise FileFormatError(f"file {name!r} may not be read by this user; check its permissions")
    mismatch: Exception | None = None
    for locking in _LOCKINGS:
        try:
            return h5py.File(name, "r", locking=locking, rdcc_nslots=slots)
        except Exception as error:
            if "flag values don't match" not in str(error):
                raise _explained(name, error) from error
            mismatch = error
    raise FileFormatError(f"file {name!r} is open in this process: {mismatch}; close it first")


def _open_remote(stamp: FileStamp, slots: int | None) -> h5py.File:
    headers = io.BufferedReader(_SourceIO(RemoteFile(stamp).source), HEADER_BYTES)
    try:
        return h5py.File(headers, "r", rdcc_nslots=slots)
    except Exception as error:
        raise _explained(stamp.path, error) from error


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


def _explained(name: str, error: Exception) -> FileFormatError:
    text = str(error)
    for sign, meaning in _CAUSES:
        if sign in text:
            return FileFormatError(f"file {name!r} {meaning} (HDF5 says: {text})")
    return FileFormatError(
        f"file {name!r} cannot be opened as HDF5; it is probably damaged or truncated, "
        f"so copy it again (HDF5 says: {text})"
    )


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


def check_unchanged(path: str | os.PathLike[str], stamp: FileStamp) -> None:
    """Refuse a file that somebody wrote to while its headers were read."""
    if stamp_of(path) != stamp:
        raise FileChangedError(
            f"file {stamp.path!r} changed while it was opened: it may be open for writing; "
            "close it there (or flush it), then open it again"
        )
