"""Opening an HDF5 file safely: nothing outside itself is read, and no more than it stores.

Whatever HDF5 or h5py raises about a file that is missing, damaged or in use leaves
here as a :class:`FileFormatError` that names the file and what to do. A file is open only inside
``with opened(path)``: opening again costs a third of a millisecond, and in exchange no handle
outlives its use, blocks a writer, crosses a fork or has to be pickled.

An HDF5 file can name other files in four ways: an external link anywhere along a path,
a soft link that runs into one, external storage, and a virtual dataset. HDF5 follows all
of them silently, so every path is walked here one link at a time, soft links included.

The trade-off: with ``allow_external=True`` such data is read through h5py, never by byte
range, because its bytes are not where this file's bytes are.
"""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import h5py
from h5py._objects import phil

from labeled.errors import FileFormatError, LabeledError, UnsafeFileError, is_interrupt, listed
from labeled.formats.bytesource import RemoteFile, check_same, is_remote, stamp_of
from labeled.formats.contiguous import check_extent
from labeled.formats.hdf5.dtypes import item_of
from labeled.formats.header import FileStamp, SourceHeader

HEADER_BYTES = 64 * 1024  # what one request to an address brings of the headers

# The end of a program takes h5py's lock for good, once no thread reads. Python stops daemon threads
# wherever they are: one stopped within HDF5 would keep the lock, which closing whatever is open
# waits for, or read on while HDF5 is taken down.
atexit.register(phil.acquire)

# HDF5 refuses a second opening in one process whose locking differs from the first.
# "best-effort" honours locks where the file system has any; the others only follow
# whoever in this process has opened the file already.
_LOCKINGS: tuple[str | bool, ...] = ("best-effort", False, True)

# what HDF5 says of a file that it does not open, and what to do; the first that fits counts
_CAUSES = {
    "file signature not found": "is not an HDF5 file, or its beginning is missing; check the path",
    "truncated file": (
        "is truncated: it is shorter than its own header says; copy or download it again"
    ),
    "unable to lock file": (
        "is open for writing elsewhere; close it there first, or set "
        "HDF5_USE_FILE_LOCKING=FALSE if nothing writes to it"
    ),
    "already open for write": (
        "is open for writing, or its last writer did not close it; close it there, or clear the "
        "mark with `h5clear -s FILE`"
    ),
    "flag values don't match": "is open in this process in another way; close it first",
    "Permission denied": "may not be read by this user; check its permissions",
    "": "cannot be opened as HDF5; it is probably damaged or truncated, so copy it again",
}


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
    try:
        with _open(stamp, 1 if headers else None) as file:
            yield file
    except LabeledError:
        raise
    except Exception as error:
        if is_interrupt(error):
            raise
        # Damage inside an HDF5 file surfaces as nearly any exception: KeyError, OSError,
        # RuntimeError, TypeError, UnicodeError, MemoryError for an impossible length; a damaged
        # file can fail even to close.
        raise FileFormatError(
            f"file {stamp.path!r} is damaged, or holds something h5py cannot read: "
            f"{type(error).__name__}: {error}; compare it with `h5dump -H`, or copy it again"
        ) from error


def _open(stamp: FileStamp, slots: int | None) -> h5py.File:
    name, target, lockings = stamp.path, stamp.path, _LOCKINGS
    if is_remote(name):
        target, lockings = RemoteFile(name).opened(HEADER_BYTES), _LOCKINGS[1:2]
    for locking in lockings:
        try:
            return h5py.File(target, "r", locking=locking, rdcc_nslots=slots)
        except Exception as error:
            if is_interrupt(error):
                raise
            fault, text = error, str(error)
            if "flag values don't match" not in text:
                break
    meaning = next(meaning for sign, meaning in _CAUSES.items() if sign in text)
    raise FileFormatError(f"file {name!r} {meaning} (HDF5 says: {text})") from fault


@contextmanager
def h5_of(stamp: FileStamp) -> Iterator[h5py.File]:
    """Open a file with h5py for a moment, after checking that it is still the same one.

    Raises
    ------
    FileFormatError
        If it cannot be opened as HDF5.
    FileChangedError
        If its size or modification time is not that of `stamp`, before or when something fails.
    """
    check_same(stamp)
    try:
        with opened(stamp.path) as file:
            yield file
    except LabeledError:
        check_same(stamp)
        raise


MAX_SOFT_LINKS = 32
MAX_VIRTUAL_DEPTH = 8

FREE_BYTES = 1 << 30  # what may be allocated for a dataset whatever it stores (see check_claim)

MAX_EXPANSION = 1100  # bytes that one stored byte may stand for: deflate cannot pass 1032


class NotThereError(FileFormatError):
    """A path leads nowhere: a missing name, a dangling soft link, or a loop of them."""


class GoneError(NotThereError):
    """Another file, which a link or a virtual dataset names, is not there."""


class FoundObject(NamedTuple):
    """An object at the end of a checked path; `outside` where a link left the file."""

    thing: Any
    outside: bool = False


def to_text(value: object) -> str:
    """Return a text of HDF5 as str; bytes that are not UTF-8 survive as surrogates.

    Anything else is ``""``.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else ""


def to_bytes(name: str | bytes) -> bytes:
    """Undo :func:`to_text`; what h5py could not decode is bytes already."""
    return name if isinstance(name, bytes) else str.encode(name, "utf-8", "surrogateescape")


def resolve(base: h5py.Group, path: str, *, allow_external: bool = False) -> FoundObject:
    """Walk `path` from `base` one link at a time, following soft links ourselves.

    Raises
    ------
    NotThereError
        If a component is missing, is not a group, or soft links run in a circle.
    UnsafeFileError
        If a component is an external or user-defined link and `allow_external` is False.
    """
    here: h5py.Group | h5py.Dataset | h5py.Datatype = base
    if path[:1] == "/":
        here = open_object(base, b"/")
    pending = _components(path)
    hops, outside, whole = 0, False, base.file.filename
    while pending:
        name = pending.pop(0)
        links = here.id.links if isinstance(here, h5py.Group) else None
        if links is None or not links.exists(name):
            gone = to_text(name)
            raise NotThereError(f"file {whole!r} has nothing at {path!r} ({gone!r} is missing)")
        kind = links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT:
            hops += 1
            if hops > MAX_SOFT_LINKS:
                raise NotThereError(f"soft links in file {whole!r} run in a circle at {path!r}")
            target = to_text(links.get_val(name))
            here = open_object(here, b"/") if target[:1] == "/" else here
            pending = _components(target) + pending
            continue
        if kind != h5py.h5l.TYPE_HARD:
            outside = True
            _refuse(base, path, "passes through an external link", allow_external)
        try:
            here = open_object(here, name)
        except (KeyError, OSError) as error:
            if kind != h5py.h5l.TYPE_EXTERNAL:
                raise
            where, target = map(to_text, links.get_val(name))
            raise GoneError(
                f"{path!r} in file {whole!r} leads to {target!r} in file {where!r}, which is not "
                "there or cannot be opened; copy that file to where the link looks for it"
            ) from error
    return FoundObject(here, outside)


def find(base: h5py.Group, path: str, *, allow_external: bool = False) -> FoundObject:
    """Return what :func:`resolve` finds; None as the thing if the path leads nowhere."""
    try:
        return resolve(base, path, allow_external=allow_external)
    except NotThereError:
        return FoundObject(None)


def _components(path: str) -> list[bytes]:
    return [to_bytes(part) for part in path.split("/") if part not in ("", ".")]


def open_object(group: h5py.Group, name: bytes) -> h5py.Group | h5py.Dataset | h5py.Datatype:
    """Return what a link leads to, whatever kind of link it is."""
    opened_id = h5py.h5o.open(group.id, name)
    if isinstance(opened_id, h5py.h5g.GroupID):
        return h5py.Group(opened_id)
    if isinstance(opened_id, h5py.h5d.DatasetID):
        return h5py.Dataset(opened_id, readonly=True)  # its shape is then asked for only once
    return h5py.Datatype(opened_id)


def _refuse(found: h5py.Group | h5py.Dataset, path: str, what: str, allow_external: bool) -> None:
    if not allow_external:
        raise UnsafeFileError(
            f"{path!r} in file {found.file.filename!r} {what}, so reading it would read another "
            "file. If you trust this file, pass allow_external=True, or put all into one file: "
            "labeled repack FILE NEW --allow-external"
        )


def check_dataset(
    dataset: h5py.Dataset, path: str, *, allow_external: bool = False, depth: int = 0
) -> Literal["virtual", "external"] | None:
    """Refuse data that lies outside the file; return "external", "virtual" or None (inside).

    Raises
    ------
    UnsafeFileError
        If the dataset has external storage, or is virtual over other files, and
        `allow_external` is False.
    """
    plist = dataset.id.get_create_plist()
    if plist.get_external_count() > 0:
        _refuse(dataset, path, "keeps its data in other files (external storage)", allow_external)
        return "external"
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        _check_virtual(dataset, path, allow_external, depth)
        return "virtual"
    return None


def _check_virtual(dataset: h5py.Dataset, path: str, allow_external: bool, depth: int) -> None:
    """Refuse a virtual dataset unless every piece of it lies inside this file.

    Where others are allowed, they have to be there: HDF5 would read fill values.
    """
    here, gone = dataset.file.filename, set[str]()
    if depth > MAX_VIRTUAL_DEPTH:
        raise UnsafeFileError(
            f"{path!r} in file {here!r} is virtual over virtual datasets more than "
            f"{MAX_VIRTUAL_DEPTH} deep, or over itself; store its data in one dataset"
        )
    folder = os.path.dirname(os.path.abspath(here))
    searched = os.path.exists(here) and "HDF5_VDS_PREFIX" not in os.environ
    for piece in sorted({(m.file_name, m.dset_name) for m in dataset.virtual_sources()}):
        name, dataset_name = map(to_text, piece)
        if name == "." and "%" not in dataset_name:
            inner = find(dataset.file["/"], dataset_name, allow_external=allow_external).thing
            if isinstance(inner, h5py.Dataset):
                check_dataset(inner, path, allow_external=allow_external, depth=depth + 1)
            continue
        _refuse(dataset, path, f"is virtual, over {name!r}:{dataset_name!r}", allow_external)
        places = (name, os.path.join(folder, name), os.path.join(folder, os.path.basename(name)))
        if searched and name != "." and "%" not in name and not any(map(os.path.exists, places)):
            gone.add(name)
    if gone:
        raise GoneError(
            f"{path!r} in file {here!r} is a virtual dataset whose files are not all there, and "
            f"HDF5 would read fill values in their place; copy to where it looks for them (beside "
            f"this file) {listed(sorted(gone), 4)}"
        )


def address(thing: h5py.Group | h5py.Dataset | h5py.Datatype) -> int:
    """Return what identifies an object, whatever path led to it: h5py's own hash of its place.

    H5Oget_info would add up a table of chunks first, which may be 100 MB on a disk, and may be
    damaged: that has ended the process.
    """
    return hash(thing.id)


def stored_bytes(headers: Sequence[SourceHeader]) -> list[int]:
    """Return the bytes that each source takes in its file, after compression.

    Known at once except for chunked data, where HDF5 must add up all chunks (70 ns each:
    0.1 s for a million), so files are opened and asked only here, each of them once.
    """
    found = [header.stored_bytes or 0 for header in headers]
    asked: dict[str, list[int]] = {}
    for place, header in enumerate(headers):
        if header.stored_bytes is None:
            asked.setdefault(header.file.path, []).append(place)
    for path, places in asked.items():
        with opened(path, headers=True) as file:
            for place in places:
                found[place] = _stored_in(file, headers[place])
    return found


def _stored_in(file: h5py.File, header: SourceHeader) -> int:
    if header.storage == "sparse":
        return sum(_stored_in(file, part) for part in header.parts.values())
    dataset = resolve(file, header.key, allow_external=header.storage == "external").thing
    share = 1.0 if header.detail is None else header.detail.share_of(item_of(dataset))
    return int(dataset.id.get_storage_size() * share)


def check_claim(header: SourceHeader, nbytes_wanted: int) -> None:
    """Refuse to allocate memory for data that a file claims but does not store.

    Up to :data:`FREE_BYTES` (1 GiB) may always be allocated, so lazily allocated datasets
    and fill values of any shape can be read piece by piece. Beyond it, a dataset must
    store at least one byte for every :data:`MAX_EXPANSION` (1100) asked for at once;
    deflate reaches 1032 to 1, so no deflated data is refused, while a shape written by
    hand over nothing is. Better codecs on constant data can pass that ratio; reading such
    data in pieces of up to 1 GiB works. One chunk counts whole: it is decoded whole.

    Parameters
    ----------
    header : SourceHeader
        The source about to be read.
    nbytes_wanted : int
        Bytes about to be allocated for it, in the file's dtype.

    Raises
    ------
    UnsafeFileError
        If the claim is out of all proportion to what is stored.
    FileFormatError
        If contiguous data reaches past the end of the file.
    """
    if header.storage == "contiguous" and header.offset is not None:
        check_extent(header, header.offset)
        return
    chunk = math.prod(header.chunks or (0,)) * header.dtype.itemsize
    wanted = max(nbytes_wanted, chunk)
    if wanted <= FREE_BYTES or header.storage in ("virtual", "external"):
        return
    (stored,) = stored_bytes([header])
    if wanted > stored * MAX_EXPANSION:
        raise UnsafeFileError(
            f"{header.where} claims shape {header.shape} of {header.dtype}, and {wanted} bytes of "
            f"it are asked for at once, but only {stored} bytes are stored. Read at most "
            f"{FREE_BYTES} bytes at a time, or write the file again"
        )
