"""Bytes of files by position: one descriptor a file, shared by all readers and threads.

A file is opened for one :class:`FileStamp` and refused when it is another one now.
Descriptors live in a process-wide cache of bounded size; a thread that reads holds a
reference, so dropping a file from the cache closes it only when nobody reads any more.
Nothing here crosses a fork: a child starts with an empty cache.

Names with a scheme (``memory://x.h5``) are read through fsspec. What lies there cannot be mapped,
so it is slower but no less right.

The trade-off: the file is looked at again (one ``fstat``) once a group of calls, not
once a read, so a file that shrinks in between gives a short read, which is an error too.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import importlib
import mmap
import os
import shlex
import stat
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

import numpy as np

from labeled.errors import (
    FileChangedError,
    FileFormatError,
    LabeledError,
    MissingExtraError,
    ReadError,
    ends_early,
    is_interrupt,
)
from labeled.formats.header import FileStamp, SourceHeader
from labeled.formats.memory import aliases_pages, machine_bytes, scratch
from labeled.formats.region import Array


def _max_open() -> int:
    try:
        import resource  # not on Windows
    except ImportError:
        return 64
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 64 if allowed == resource.RLIM_INFINITY else max(1, min(64, allowed // 4))


# files that are kept open: 64, and no more than a fourth of what this process may open
MAX_OPEN_FILES = _max_open()

# What is copied out of a memory map, stretch after stretch, before its pages are let go of. They
# belong to the system's cache, but count as this process's own until then: a loop over a large file
# would seem to grow without end. An epoch comes by each page once, so that letting go costs nothing
# that can be measured and keeps about so much mapped. Rows in random order come back to every page,
# so that it would only cost there.
MAPPED_BYTES = 64 << 20

MIN_BUFFERED_BYTES = 1 << 14  # less than this is read as fast as one can look where it goes to

# what is read at once where bytes are read to a buffer first; stays in a core's cache
BUFFER_BYTES = 1 << 17

_SINGLE_READ_BYTES = 1 << 30  # Linux moves at most 2 GiB - 4 KiB a call


def is_remote(path: str) -> bool:
    """Return whether the path of a stamp names something other than a local file."""
    return "://" in path


def is_address(path: str) -> bool:
    """Return whether a path, as a user gives it, is not a local file."""
    return is_remote(path) and not os.path.exists(path)


class LocalFile:
    """A regular file of this machine."""

    def __init__(self, stamp: FileStamp) -> None:
        self.stamp, self._n_bytes = stamp, stamp.size
        self._map: Array | None = None
        self._mapping: Any = None
        self._copied = 0
        try:
            self._fd = self._stored = os.open(stamp.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as fault:
            if fault.errno != errno.EMFILE:
                raise unreadable(stamp.path, fault) from fault
            raise FileFormatError(
                f"cannot open {stamp.path!r}: this process has as many files open as it may. At "
                f"most {MAX_OPEN_FILES} of them are kept open here; close others, or allow more "
                "with resource.setrlimit or ulimit -n"
            ) from fault
        weakref.finalize(self, os.close, self._fd).atexit = False
        self.check()

    def check(self) -> None:
        """Raise FileChangedError unless the file is still the one that was opened."""
        check_same(self.stamp, descriptor=self._stored)

    def read_into(self, target: Array, offset: int) -> None:
        """Fill a C-contiguous array with the bytes at `offset`, or raise EOFError."""
        memory: Any = target
        want: int = memory.nbytes
        if want >= MIN_BUFFERED_BYTES and aliases_pages(target, offset):
            whole = target.reshape(-1).view(np.uint8)
            for at in range(0, want, BUFFER_BYTES):  # through a buffer that lies better
                part = whole[at : at + BUFFER_BYTES]
                buffer = scratch("buffer", len(part), offset + at)
                _read_rest(self._fd, buffer, offset + at, 0)
                part[:] = buffer
            return
        small = 0 < want <= _SINGLE_READ_BYTES
        got = os.preadv(self._fd, [memory], offset) if small else 0
        if got < want:
            _read_rest(self._fd, target.reshape(-1).view(np.uint8), offset, got)

    def mapped(self, n_bytes: int = 0) -> Array | None:
        """Return all bytes of the file as a read-only array over a memory map.

        None where the system makes none: the file system has no maps, no address space or
        descriptor is left (a map takes one of its own). Reading by calls needs none of that.

        Of one stretch `n_bytes` are copied next; once that is much, pages are let go of (others
        may be reading: their next touch maps a page again). Without that rows are scattered.
        Around a row that is not in memory the system fetches far more than the row. In a file
        that fits into memory that pays, for other rows are wanted soon. Of a larger file it is
        asked not to.
        """
        if self._map is None and self._n_bytes:
            self.check()
            try:
                self._mapping = mmap.mmap(self._fd, self._n_bytes, access=mmap.ACCESS_READ)
            except (OSError, MemoryError):
                return None
            if not n_bytes and self._n_bytes > machine_bytes() and hasattr(mmap, "MADV_RANDOM"):
                self._mapping.madvise(mmap.MADV_RANDOM)
            self._map = np.frombuffer(self._mapping, np.uint8)
        self._copied += n_bytes
        if self._copied >= MAPPED_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            self._copied = 0
            self._mapping.madvise(mmap.MADV_DONTNEED)
        return self._map

    def holds(self, offset: int) -> bool:
        """Whether the system has the byte at `offset` in memory; True where it cannot tell."""
        try:
            os.preadv(self._fd, [bytearray(1)], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except (AttributeError, OSError):  # a system, or a file system, that cannot tell
            return True
        return True

    def advise(self, offset: int, n: int) -> None:
        """Ask the system to fetch these bytes ahead, where it can be asked."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, n, os.POSIX_FADV_WILLNEED)


def _read_rest(descriptor: int, target: Array, offset: int, got: int) -> None:
    """Fill the bytes of `target` from number `got` on."""
    while got < len(target):
        part = target[got : got + _SINGLE_READ_BYTES]
        more = os.preadv(descriptor, [cast(Any, part)], offset + got)
        if more == 0:
            raise ends_early(offset, len(target), got)
        got += more


class UnpackedFile(LocalFile):
    """The contents of a gzip-compressed file, in a temporary file.

    All of them are inflated at the first read; from then on they are read like any
    file, in any order and by several threads. The price is their size in the folder of temporary
    files, until the file is closed.
    """

    def __init__(self, stamp: FileStamp) -> None:
        assert stamp.unpacked_bytes is not None
        super().__init__(stamp)
        self._n_bytes = stamp.unpacked_bytes
        self._fd, name = tempfile.mkstemp(prefix="labeled-")
        os.unlink(name)  # its bytes go when it is closed, however this process ends
        weakref.finalize(self, os.close, self._fd).atexit = False
        self._lock, self._is_unpacked = threading.Lock(), False

    def read_into(self, target: Array, offset: int) -> None:
        """Fill a C-contiguous array with the bytes at `offset`.

        Raises
        ------
        EOFError, OSError
            If the file is truncated or damaged, or (ReadError) there is no room for its contents.
        """
        self._unpack()
        super().read_into(target, offset)

    def mapped(self, n_bytes: int = 0) -> Array | None:
        """Return the contents as an array over a memory map; raises what `read_into` raises."""
        self._unpack()
        return super().mapped(n_bytes)

    def _unpack(self) -> None:
        with self._lock:
            if not self._is_unpacked:
                self._inflate()

    def _inflate(self) -> None:
        left = self._n_bytes
        try:
            with (
                gzip.open(self.stamp.path) as contents,
                open(self._fd, "wb", closefd=False) as copy,
            ):
                copy.seek(0)
                while part := contents.read(min(BUFFER_BYTES, left)):
                    left -= copy.write(part)
                contents.read(1)  # the checksum is behind the contents
        except (zlib.error, gzip.BadGzipFile, EOFError) as fault:
            done = f"its gzip data is damaged or ends early, after byte {self._n_bytes - left}"
            raise OSError(f"{done}: {fault}") from None
        except OSError as fault:  # from None: it is not the file being written that lacks room
            raise ReadError(
                f"unpacking {self.stamp.path!r} takes {self._n_bytes:,} bytes in "
                f"{tempfile.gettempdir()!r} ({fault.strerror}); free some space, or set TMPDIR to "
                "another folder"
            ) from None
        if left:
            raise EOFError(f"its contents end at byte {self._n_bytes - left}, not {self._n_bytes}")
        self._is_unpacked = True


class RemoteFile:
    """A file of any file system that fsspec knows; the time of its stamp stands for its version.

    Raises
    ------
    MissingExtraError
        If fsspec, or what it needs for such an address, is not installed.
    FileFormatError
        If there is no such file.
    """

    def __init__(self, path: str) -> None:
        try:
            fsspec = importlib.import_module("fsspec.core")
            common = importlib.import_module("fsspec.spec").AbstractFileSystem.ukey
            self._fs, self._path = fsspec.url_to_fs(path)
            info = self._fs.info(self._path)  # one request, where each is one over a network
        except ImportError as fault:
            what = f"reading {path!r} needs fsspec, and what it uses for such an address"
            raise MissingExtraError(f"{what}: {fault}") from fault
        except (OSError, ValueError) as fault:  # a protocol that fsspec does not know: ValueError
            raise FileFormatError(f"cannot open {path!r}: {fault}") from fault
        own = getattr(self._fs.ukey, "__func__", None) is not common  # which would ask again
        key = str(self._fs.ukey(self._path) if own else info).encode()  # size, times, tags
        version = int.from_bytes(hashlib.blake2b(key, digest_size=7).digest())
        self.stamp = FileStamp(path, int(info["size"]), version)

    def check(self) -> None:
        """Do nothing: one request found out, when it was opened, that it is the same file."""

    def read_into(self, target: Array, offset: int) -> None:
        """Fill a C-contiguous array with the bytes at `offset`, or raise EOFError."""
        if not target.nbytes:
            return
        data = self._fs.cat_file(self._path, start=offset, end=offset + target.nbytes)
        if len(data) != target.nbytes:
            raise ends_early(offset, target.nbytes, len(data))
        target.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)

    def mapped(self, n_bytes: int = 0) -> Array | None:
        """Return None: there is no map."""
        return None

    def holds(self, offset: int) -> bool:
        """Say yes: fetching bytes ahead is not possible."""
        return True

    def advise(self, offset: int, n: int) -> None:
        """Do nothing: fetching bytes ahead is not possible."""

    def opened(self, block_bytes: int) -> Any:
        """Return a file object that reads ahead so many bytes."""
        return self._fs.open(self._path, "rb", block_size=block_bytes)


OpenFile = LocalFile | RemoteFile | UnpackedFile


@lru_cache(MAX_OPEN_FILES)
def open_bytes(stamp: FileStamp) -> OpenFile:
    """Return the open file of a stamp; hold it only while reading.

    Raises
    ------
    FileFormatError
        If it cannot be opened.
    FileChangedError
        If its size or modification time is not that of `stamp`.
    """
    if is_remote(stamp.path):
        remote = RemoteFile(stamp.path)
        if remote.stamp != stamp:
            check_same(stamp)
        return remote
    return LocalFile(stamp) if stamp.unpacked_bytes is None else UnpackedFile(stamp)


# forget all open files; each is closed once nobody reads from it
close_files = open_bytes.cache_clear

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close_files)


def check_same(
    stamp: FileStamp, remedy: str = "Open it again", descriptor: int | None = None
) -> None:
    """Refuse a file (that of a descriptor) that is not the one of a stamp any more.

    Raises
    ------
    FileChangedError
        Says what changed, and the remedy.
    """
    what = ""
    if descriptor is None and is_remote(stamp.path):
        there = RemoteFile(stamp.path).stamp
        size, time, what = there.size, there.mtime_ns, "it has another version"
    else:
        try:
            found = os.stat(stamp.path if descriptor is None else descriptor)
        except OSError as fault:
            raise unreadable(stamp.path, fault) from fault
        size, time = found.st_size, found.st_mtime_ns
    if size != stamp.size:
        what = f"{stamp.size} bytes then, {size} now"
    elif time == stamp.mtime_ns:
        return
    raise FileChangedError(
        f"{stamp.path!r} has changed since it was opened: "
        f"{what or modified(stamp.mtime_ns, time)}. {remedy}."
    )


def modified(then_ns: int, now_ns: int) -> str:
    """Return when a file was modified, by the clock of this machine."""
    then, now = (
        f"{datetime.fromtimestamp(ns // 10**9)}.{ns % 10**9:09d}" for ns in (then_ns, now_ns)
    )
    return f"modified at {then} then, {now} now"


def stored_bytes(stamp: FileStamp, offset: int, n: int) -> bytes:
    """Return at most `n` bytes of a file as they are stored; fewer at its end."""
    data = np.empty(max(0, min(n, stamp.size - offset)), np.uint8)
    open_bytes(stamp._replace(unpacked_bytes=None)).read_into(data, offset)
    return data.tobytes()


GZIP = b"\x1f\x8b"


def is_packed(stamp: FileStamp) -> bool:
    """Whether a file is gzip-compressed."""
    return stored_bytes(stamp, 0, len(GZIP)) == GZIP


def contents(stamp: FileStamp, n_bytes: int) -> Iterator[bytes]:
    """Yield what a local file contains in pieces of `n_bytes`, unpacked.

    Raises
    ------
    FileFormatError
        If it cannot be read, or unpacked.
    """
    packed = is_packed(stamp)
    opener: Any = gzip.open if packed else open
    try:
        with opener(stamp.path, "rb") as file:
            while part := file.read(n_bytes):
                yield part
    except (OSError, EOFError, zlib.error) as fault:
        what = "unpacked" if packed else "read"
        raise FileFormatError(f"file {stamp.path!r} cannot be {what}: {fault}") from None


def bytes_of(path: str | os.PathLike[str]) -> bytes:
    """Return all that a local file contains, as it is.

    Raises
    ------
    FileFormatError
        If it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise unreadable(os.fspath(path), error) from error


def unreadable(path: str, error: OSError) -> FileFormatError:
    """Return what is raised where the system refuses to read a file or a folder."""
    why = error.strerror
    if isinstance(error, PermissionError):
        why = "this user may not; check its permissions, and those of the folders it lies in"
    return FileFormatError(f"{os.path.abspath(path)!r} cannot be read: {why}")


def stamp_of(path: str | os.PathLike[str]) -> FileStamp:
    """Return which file is at `path` now; FileFormatError where there is none to read."""
    text = os.fspath(path)
    if is_address(text):
        stamp = RemoteFile(text).stamp
    else:
        name = os.path.abspath(os.path.expanduser(text))
        try:
            found = os.stat(name)
        except FileNotFoundError:
            raise FileFormatError(f"file {name!r} does not exist; check the path") from None
        except OSError as error:
            raise unreadable(name, error) from error
        if stat.S_ISDIR(found.st_mode):
            raise FileFormatError(f"{name!r} is a folder, not a file; name a file in it")
        if not stat.S_ISREG(found.st_mode):
            raise FileFormatError(
                f"{name!r} is a pipe or a device, which cannot be read at any place and again; "
                f"write what comes out of it into a file first: cat {shlex.quote(name)} > FILE"
            )
        stamp = FileStamp(name, found.st_size, found.st_mtime_ns)
    if stamp.size == 0:
        raise FileFormatError(f"file {stamp.path!r} is empty (0 bytes)")
    return stamp


class naming_rows:
    """Name file, source and rows in an error of a kind, or in that a file ends early.

    Of a file that was changed meanwhile, whatever went wrong, that is the error.
    """

    def __init__(
        self, source: SourceHeader, start: int, stop: int, faults: type[Exception] = OSError
    ) -> None:
        self._source, self._rows, self._faults = source, (start, stop), (EOFError, faults)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, fault: Any, _: object) -> None:
        if not isinstance(fault, self._faults) or is_interrupt(fault):
            return
        stamp = self._source.file
        if not os.path.isdir(stamp.path):  # stores have stamps of their own
            with suppress(FileFormatError):  # it is gone, or out of reach
                check_same(stamp)
        if not isinstance(fault, LabeledError):
            start, stop = self._rows
            where = f"{self._source.where}, rows {start} to {stop - 1}"
            raise ReadError(f"{where}: {fault}") from fault
