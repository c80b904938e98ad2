"""Which files a path of the old iterators meant, and their bytes from beginning to end.

A path is a file; several, joined by semicolons; a folder, whose files come in the order in which
the system lists them; or a pattern that the names in a folder match as a whole. Empty files are
passed over. What follows a ``?`` are options of the parser, what follows a ``#`` named a cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qsl

from labeled.errors import FileFormatError

BLOCK_BYTES = 8 << 20


def files_of(uri: str) -> list[str]:
    """Return the files that a path means, empty ones left out.

    Raises
    ------
    FileFormatError
        If there is none.
    """
    paths = uri.split("#")[0].split("?")[0]
    found = [file for path in paths.split(";") if path for file in _files(path)]
    sized = [file for file in found if os.path.getsize(file)]
    if not sized:
        raise FileFormatError(f"no file with anything in it matches {uri!r}")
    return sized


def options_of(uri: str) -> dict[str, str]:
    """Return what follows the ``?`` of a path.

    Examples
    --------
    >>> options_of("a.csv?delimiter=;&label_column=0")
    {'delimiter': ';', 'label_column': '0'}
    """
    _, _, options = uri.split("#")[0].partition("?")
    return dict(parse_qsl(options, keep_blank_values=True, separator="&"))


def _files(path: str) -> Iterator[str]:
    path = path.removeprefix("file://")
    if os.path.isfile(path):
        yield path
        return
    folder, pattern = (path, None) if os.path.isdir(path) else os.path.split(path)
    if not os.path.isdir(folder or "."):
        return
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if entry.is_file() and (pattern is None or _matches(pattern, entry.name)):
                yield os.path.join(folder, entry.name)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:
        return False


def blocks_of(files: Sequence[str], block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of files, one after another; a line break is put behind each."""
    for file in files:
        with open(file, "rb") as stream:
            while block := stream.read(block_bytes):
                yield block
        yield b"\n"
