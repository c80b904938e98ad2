"""A file that appears only when it is complete: written beside its target, then renamed.

The new file (a *part*) has a hidden name of its own in the target's folder until it is whole and
on the disk; renaming is atomic, so readers see the old file or the new one. An
exception removes the part. Only a process that is killed leaves it behind, under a
name that nothing opens; the next writer of the same target removes it.

A part is called ``.TARGET.WRITER.TOKEN.part``. WRITER tells the machine since it was last started
(and the process namespace), the process, and when that process began. A part is *dead* only if
it was begun on this machine, since it was last started, by a process that is gone. Nobody can
tell this of a part that another machine or another container began, or this machine before a
restart: such parts are reported, never removed.

This module knows paths, permissions, processes and disks, and nothing of HDF5.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import platform
import re
import secrets
import shutil
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Literal

from labeled.errors import LabeledError, WriteError

log = logging.getLogger(__name__)

PART = ".part"  # how the names of files end that are not complete yet
STEM_BYTES = 160  # of the target's name in that of its part: file systems allow 255 bytes in all

State = Literal["dead", "living", "unknown"]

_NAME = re.compile(r"\.([0-9a-f]{12})-([0-9a-f]+)-([0-9a-f]+)\.[0-9a-f]{12}" + re.escape(PART))
_BOOT = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = "/proc/self/ns/pid"
_COPY_BYTES = 64 << 20

# what the system answers to writers alone, though readers beside them may be blamed for it
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# what folders answer that may be written but not listed, and file systems that only sync files
_NO_WAITING = (errno.EACCES, errno.EBADF, errno.EINVAL)

_CAUSES = {
    errno.ENOSPC: "the disk is full; free some space, or write elsewhere",
    errno.EDQUOT: "the disk quota is used up; free some space, or write elsewhere",
    errno.EFBIG: "the file would be longer than this system or user may write",
    errno.EACCES: "this user may not write there; check the permissions of the folder",
    errno.EPERM: "this user may not write there; check the permissions of the folder",
    errno.EROFS: "the file system is read-only; write elsewhere",
    errno.ENOENT: "the folder is gone, or takes no files (as /proc does not); write elsewhere",
    errno.ENOTDIR: "part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EAGAIN: "it is open elsewhere; close it there first",
    errno.EIO: "the device failed (input/output error)",
}


def check_target(path: str | os.PathLike[str], *, overwrite: bool, n_bytes: int = 0) -> str:
    """Return the absolute path to write, following a symbolic link; refuse what cannot work.

    What writers of the same target left behind when they were killed is removed.

    Parameters
    ----------
    overwrite : bool
        Whether a file may be there already.
    n_bytes : int
        What the new file will at least take; compared with the space that is free.

    Raises
    ------
    WriteError
        If the folder is missing or may not be written, a folder or (without `overwrite`) a
        file is there already, or the disk has too little space. Devices and pipes are never
        replaced.
    """
    name, why = os.path.expanduser(os.fsdecode(path)), ""
    target = name if "\0" in name else os.path.realpath(name)
    folder = os.path.dirname(target)
    if "\0" in name:
        why = "names cannot contain a null byte; leave it out"
    elif name == "-":
        why = "standard output cannot hold a file that is written here and there; name a file "
        why += "(./- for one that is called so)"
    elif "://" in name and not os.path.isdir(folder):
        why = "that is an address; write a file of this machine, and copy it there"
    elif name.endswith(("/", os.sep)) and not os.path.isdir(name):
        why = "that names a folder; name a file in it"
    elif not os.path.lexists(folder):
        why = f"folder {folder!r} does not exist; make it first"
    elif not os.path.isdir(folder):
        why = f"{folder!r} is not a folder"
    elif os.path.isdir(target):
        why = "it is a folder; name a file in it"
    elif os.path.exists(target) and not os.path.isfile(target):
        why = "it is a device or a pipe, not a file; name a new file"
    elif os.path.lexists(target) and not overwrite:
        raise WriteError(f"{target!r} exists already; pass overwrite=True to replace it")
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = f"this user may not write in {folder!r}; check its permissions"
        if hasattr(os, "statvfs") and os.statvfs(folder).f_flag & os.ST_RDONLY:
            why = _CAUSES[errno.EROFS]
    elif os.path.exists(target) and not _may_replace(target, folder):
        why = f"the file is another user's, and in {folder!r} only owners may replace their files; "
        why += "write elsewhere"
    if why:
        raise WriteError(f"cannot write {name!r}: {why}")
    remove_dead(target)
    disk = shutil.disk_usage(folder)
    if n_bytes > disk.free and disk.total:  # some network file systems tell no sizes
        raise WriteError(
            f"cannot write {target!r}: it takes at least {n_bytes:,} bytes and {folder!r} has "
            f"{disk.free:,} free; free some space, write elsewhere, or compress"
        )
    return target


def _may_replace(target: str, folder: str) -> bool:
    """Whether a file may give its name to another, in a folder that may be written."""
    found = os.stat(folder)
    if not found.st_mode & stat.S_ISVTX or not hasattr(os, "geteuid"):
        return True
    return os.geteuid() in (0, found.st_uid, os.stat(target).st_uid)


@contextlib.contextmanager
def replacing(target: str, *, overwrite: bool = True) -> Iterator[str]:
    """Yield the path of a new empty file that takes the place of `target` in the end.

    Parameters
    ----------
    target : str
        From :func:`check_target`. Whatever is there stays until the block has ended well,
        and keeps its permissions.
    overwrite : bool
        Whether it replaces a file that appeared there meanwhile.

    Raises
    ------
    WriteError
        For whatever the system refuses; the new file is removed, `target` is as before. Only
        where the new name could not be brought to the disk, it is there already, and complete.
    """
    part = part_name(target)
    try:
        with explained(target):
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            mode = _mode_of(target)
            if mode is not None:
                os.chmod(part, mode | stat.S_IWUSR)
            yield part
            sync(part)
            mode = _mode_of(target)
            if mode is not None and not mode & stat.S_IWUSR:
                os.chmod(part, mode)
            if overwrite:
                os.replace(part, target)
            else:
                _take_name(part, target)
    except BaseException:  # KeyboardInterrupt included: nothing may stay behind
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    with explained(target, "the new file is there, but may be gone if the machine stops now"):
        try:
            if os.name != "nt":  # folders cannot be opened there, and need not be
                sync(os.path.dirname(target))
        except OSError as error:
            if error.errno not in _NO_WAITING:
                raise


def _mode_of(target: str) -> int | None:
    """Return the permissions of a file; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(target).st_mode)
    return None


def _take_name(part: str, target: str) -> None:
    """Rename a file unless the name is taken: of several writers, one gets it."""
    try:
        os.link(part, target)
    except OSError:  # the name is taken, or the file system has no second names
        if os.path.lexists(target):
            raise WriteError(
                f"{target!r} was written by another process meanwhile, and stays as it is; write "
                f"elsewhere, or pass overwrite=True to replace it"
            ) from None
        os.replace(part, target)
    else:
        with contextlib.suppress(OSError):
            os.unlink(part)


@contextlib.contextmanager
def part_folder(target: str) -> Iterator[str]:
    """Yield a new folder beside a target, for files on the way to it; removed in the end.

    Raises
    ------
    WriteError
        If it cannot be made.
    """
    path = part_name(target)
    try:
        with explained(target):
            os.mkdir(path, 0o700)
        yield path
    except LabeledError as error:  # that names a file on the way
        inside = re.escape(repr(path)[1:-1]) + r"[\w./\\-]*"
        said = re.sub(inside, lambda _: repr(target)[1:-1], str(error))
        error.args = (said, *error.args[1:])
        raise
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def explained(target: str, after: str = "what was there before is untouched") -> Iterator[None]:
    """Turn errors of the system, and HDF5's about them, into :class:`WriteError`.

    `after` ends the message: how the target is now.
    """
    try:
        yield
    except WriteError:
        raise
    except LabeledError as error:
        number = errno_of(error.__cause__ or error)
        if number not in _NO_ROOM:
            raise
        raise WriteError(f"writing {target!r} failed: {_CAUSES[number]}; {after}") from error
    except (OSError, RuntimeError) as error:
        number = errno_of(error)
        if number is None and not isinstance(error, OSError):
            raise
        cause = _CAUSES.get(number or 0, str(error))
        raise WriteError(f"writing {target!r} failed: {cause}; {after}") from error


def errno_of(error: BaseException) -> int | None:
    """Return the system's number for an error; HDF5 hides it in its message.

    Examples
    --------
    >>> errno_of(OSError("Unable to flush (file write failed: errno = 28, error message = 'x')"))
    28
    """
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number:
        return number
    hidden = re.search(r"errno = (\d+)", str(error))
    return None if hidden is None else int(hidden.group(1))


def clone(path: str, copy: str) -> None:
    """Copy a file, by reference if the file system can: at once, whatever its size."""
    with open(path, "rb", buffering=0) as source, open(copy, "wb", buffering=0) as target:
        with contextlib.suppress(OSError, AttributeError):  # not between these, or not here
            while os.copy_file_range(source.fileno(), target.fileno(), _COPY_BYTES):
                pass
        shutil.copyfileobj(source, target, _COPY_BYTES)


def sync(path: str) -> None:
    """Wait until a file is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# parts: their names, and whether anybody still writes them


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file (or folder of files) that was begun and is not complete.

    Parameters
    ----------
    state : {"dead", "living", "unknown"}
        Of its writer; "unknown" if it is not of this machine, as it runs now.
    """

    path: str
    state: State
    process: int

    def remove(self) -> None:
        """Remove it if it is still there and may be removed."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def part_name(target: str) -> str:
    """Return a new path beside a target, for a part that this process writes."""
    folder, name = os.path.split(target)
    process = os.getpid()
    writer = f"{_machine()}-{process:x}-{_began(process) or 0:x}"
    return os.path.join(folder, f".{_stem(name)}.{writer}.{secrets.token_hex(6)}{PART}")


def parts_of(target: str) -> list[PartFile]:
    """Return the parts of a target, of all writers."""
    folder, name = os.path.split(target)
    begin, found, names = f".{_stem(name)}", [], list[str]()
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder or "."))
    for each in names:
        parts = _NAME.fullmatch(each, len(begin)) if each.startswith(begin) else None
        if parts is not None:
            process, began = int(parts[2], 16), int(parts[3], 16)
            state: State = "unknown"
            if parts[1] == _machine():
                state = "living" if _lives(process, began) else "dead"
            found.append(PartFile(os.path.join(folder, each), state, process))
    return found


def remove_dead(target: str) -> None:
    """Remove the parts of a target whose writers are gone."""
    for part in parts_of(target):
        if part.state == "dead":
            log.info("removing %r, whose writer (process %d) is gone", part.path, part.process)
            part.remove()


def _stem(name: str) -> str:
    """Shorten a name, never within a character."""
    return os.fsencode(name)[:STEM_BYTES].decode("utf-8", "ignore")


@cache
def _machine() -> str:
    """Return a name for this machine since it was started, and the processes that are seen."""
    try:
        with open(_BOOT, encoding="ascii") as file:
            name = f"{file.read().strip()} {os.stat(_NAMESPACE).st_ino}"
    except OSError:
        if platform.system() == "Linux":  # a sandbox hides it, so that no part is known to be dead
            return secrets.token_hex(6)
        name = f"{platform.node()} {uuid.getnode()}"
    return blake2b(name.encode(), digest_size=6).hexdigest()


def _lives(process: int, began: int) -> bool:
    """Whether a process that began then still runs; in doubt it does."""
    if os.name == "nt":
        return True  # asking there would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    found = _began(process)
    return found is None or not began or found == began


def _began(process: int) -> int | None:
    """Return when a process began, in ticks; 1 if it has ended already, None if unknown."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
