"""Writing record files: payloads as they come, or pictures that are encoded on the way.

Files are those of the genuine writer, byte for byte, and appear only when they are complete:
first under a hidden name in their folder, then renamed. What is written is asked for piece by
piece and never held as a whole; pictures are encoded by several threads, a few ahead. Reading
needs none of this, and lies beside it.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labeled._threads import Waiting, taken, workers
from labeled.errors import ArrayError, WriteError
from labeled.formats.header import first_rounded
from labeled.formats.pictures import encode
from labeled.formats.recordio.records import LABEL, SUFFIX, FramingError, HeaderError, frame, pack
from labeled.formats.replacing import check_target, explained, replacing

AHEAD = 4  # pictures that are encoded ahead by each thread

AHEAD_BYTES = 64 << 20


def write_records(
    path: str | os.PathLike[str],
    examples: Iterable[Any],
    labels: Iterable[Any] | None = None,
    ids: Iterable[int] | None = None,
    *,
    format: str = ".jpg",
    quality: int | None = None,
    threads: int | None = None,
    ahead_bytes: int = AHEAD_BYTES,
    overwrite: bool = False,
) -> int:
    """Write a record file, and its index beside it.

    Parameters
    ----------
    path : path
        Of the ``.rec``; the index has the same name, with the suffix ``.idx``.
    examples : iterable of bytes or uint8 arrays
        Bytes are stored as they are; arrays are pictures (height, width, channel), red first,
        and are encoded.
    labels : iterable of numbers or arrays, optional
        Of each example; arrays may differ in length. 0 where only `ids` are given.
    ids : iterable of int, optional
        0, 1, 2, ... by default where there are labels. They are the keys of the index.
    format : str
        How arrays are encoded, by suffix.
    quality : int, optional
        As for :func:`labeled.formats.pictures.encode`.
    threads : int, optional
        That encode; from the cores by default.
    ahead_bytes : int
        Of arrays that are encoded at the same time, or wait for it; a single one may be larger.
    overwrite : bool
        Whether files may be there already.

    Returns
    -------
    int
        How many records were written. Without labels and ids they have no header.

    Raises
    ------
    WriteError
        If the files are there already, or cannot be written, or an example does not fit its
        record; nothing is left behind then.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.rec"
    >>> write_records(path, [b"one", b"two"], labels=[0, 1])
    2
    >>> path.with_suffix(".idx").read_text().split()
    ['0', '0', '1', '36']
    """
    target = check_target(path, overwrite=overwrite)
    beside = str(Path(target).with_suffix(SUFFIX))
    if beside == target:
        raise WriteError(f"{target!r} is the name of an index; let records end in '.rec'")
    check_target(beside, overwrite=overwrite)
    n_threads = (os.cpu_count() or 1) if threads is None else threads
    records = _records(_encoded(examples, format, quality, n_threads, ahead_bytes), labels, ids)
    with (
        replacing(target, overwrite=overwrite) as rec_part,
        replacing(beside, overwrite=overwrite) as idx_part,
    ):
        lines, at = list[str](), 0
        with open(rec_part, "wb") as rec:
            for key, payload in records:
                try:
                    stored = frame(payload)
                except FramingError as fault:
                    raise WriteError(f"record {len(lines)} of {target!r}: {fault}") from None
                with explained(target):
                    rec.write(stored)
                lines.append(f"{key}\t{at}\n")
                at += len(stored)
        with open(idx_part, "w", encoding="ascii", newline="\n") as out:
            out.writelines(lines)
    return len(lines)


def _records(
    examples: Iterator[Any], labels: Iterable[Any] | None, ids: Iterable[int] | None
) -> Iterator[tuple[int, bytes]]:
    """Yield (key, payload), with a header where there are labels or ids."""
    if labels is None and ids is None:
        yield from enumerate(examples)
        return
    columns = [column for column in (labels, ids) if column is not None]
    rows = zip(examples, *columns, strict=True)
    for number in itertools.count():
        try:
            row = next(rows, None)
        except ValueError as fault:  # lengths differ
            raise WriteError(f"examples, labels and ids differ in number: {fault}") from None
        if row is None:
            return
        try:
            key = number if ids is None else operator.index(row[-1])
            yield key, pack(row[0], 0 if labels is None else _exact(row[1]), key)
        except (HeaderError, TypeError) as fault:
            raise WriteError(f"record {number}: {fault}") from None


def _exact(labels: Any) -> Any:
    """Return labels; raise :class:`HeaderError` for whole ones that a record's float32 rounds."""
    values = np.ravel(labels)
    at = first_rounded(values, LABEL) if values.dtype.kind in "iu" else None
    if at is not None:
        raise HeaderError(
            f"the label {values[at]} would be rounded, since records hold float32; number the "
            "classes from 0, or write such numbers as ids"
        )
    return labels


def _encoded(
    examples: Iterable[Any], format: str, quality: int | None, threads: int, ahead_bytes: int
) -> Iterator[bytes]:
    """Yield bytes as they come and pictures encoded, in order, `AHEAD` a thread at a time."""
    waiting = Waiting[bytes]()

    def one(number: int, example: Any) -> bytes:
        try:
            return encode(example, format, quality)
        except ArrayError as fault:
            raise WriteError(f"record {number}: {fault}") from None

    with workers(threads) as pool:
        for number, example in enumerate(examples):
            n_bytes = getattr(example, "nbytes", 0)
            yield from taken(waiting, AHEAD * threads, ahead_bytes - n_bytes)
            if hasattr(example, "dtype"):  # copied: the caller may fill it again
                waiting.append((n_bytes, pool.submit(one, number, np.array(example)).result))
            elif isinstance(example, bytes | bytearray | memoryview):
                waiting.append((n_bytes, partial(bytes, bytes(example))))
            else:
                raise WriteError(
                    f"record {number}: {type(example).__name__} is neither bytes nor a picture (an "
                    "array of uint8 by height, width, channel)"
                )
        yield from taken(waiting)
