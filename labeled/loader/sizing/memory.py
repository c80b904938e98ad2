"""The option ``memory=``: how it is read, how sizes are written, and the error of too little."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes, parse_bytes

from labeled.errors import LoaderError, told_of_memory, warn
from labeled.formats.machine import room_bytes

DEFAULT_MEMORY = "256 MiB"
"""What is taken where nothing is said; twice, four times as much where batches need it."""


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for, checked; None where it is chosen here."""

    memory_bytes: int
    window_rows: int | None = None
    threads: int | None = None
    prefetch: int | None = None
    grows: bool = False
    """Whether twice as much may be taken where it is too small: nobody said how much."""


class TooSmallError(LoaderError):
    """Memory does not hold the smallest plan made with it.

    A plan made with more may need yet more: it keeps more sources, reads larger jobs, or has
    more batches in a pipeline.
    """

    held = ""
    """What was planned, in words."""
    needed_bytes = 0
    """What that plan needs, more than the memory there was."""
    others: Sequence[str] = ()
    """Remedies besides more memory."""

    @classmethod
    def of(cls, held: str, needed_bytes: int, others: Sequence[str]) -> TooSmallError:
        made = cls(held)
        made.held, made.needed_bytes, made.others = held, needed_bytes, others
        return made

    def told(self, memory_bytes: int, enough_bytes: int, others: Sequence[str] = ()) -> LoaderError:
        """Return the error for a user who gave less memory than is enough."""
        enough = f"give memory={size_words(enough_bytes)!r}"
        remedies = [enough, "smaller batches", *self.others, *others]
        # with more memory another plan may be made, one that needs less than this one
        need = f"need {format_bytes(self.needed_bytes)}"
        return LoaderError(
            f"memory of {format_bytes(memory_bytes)} is too small: {self.held} "
            f"{need if enough_bytes >= self.needed_bytes else 'do not fit'}; "
            f"{', or '.join(remedies)}"
        )


def memory_of(memory: Any) -> int:
    """Read a size such as ``"512 MiB"`` or a number of bytes.

    Raises
    ------
    LoaderError
        If it is not a size, or not positive.
    """
    try:
        if isinstance(memory, bool | np.bool_):
            raise TypeError
        n = int(memory if isinstance(memory, np.number) else parse_bytes(memory))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise LoaderError(f"memory={memory!r} is not a size; write it like '512 MiB'") from None
    if n <= 0:
        raise LoaderError(f"memory={memory!r} must be more than nothing")
    return n


def enough_memory(memory_bytes: int) -> AbstractContextManager[None]:
    """Say what to do where the system gives less memory than a loader was allowed.

    Raises
    ------
    RowsMemoryError
        In the place of a MemoryError.
    """
    return told_of_memory(
        lambda why: (
            f"the system gives no memory for windows and batches ({why}). This loader may take "
            f"memory={size_words(memory_bytes)!r}: give less of it, smaller batches, or let go of "
            "batches that are kept"
        )
    )


def warn_of_room(promised_bytes: int) -> None:
    """Warn where a loader may take more than the system lets this process have."""
    room = room_bytes()
    if promised_bytes > room:
        warn(f"batches may take {format_bytes(promised_bytes)}, but {room_words(room)}")


def room_words(room_bytes: float) -> str:
    """Say how much memory is left, and what to ask for there."""
    room, most = max(int(room_bytes), 0), max(int(room_bytes) >> 1, 1 << 20)
    return (
        f"this process may take {format_bytes(room)} more before the system ends it (that is the "
        "machine's memory, or the limit of its container or job); give "
        f"memory='{most >> 20} MiB' or less"
    )


def size_words(n_bytes: int) -> str:
    """Write a size so that ``memory=`` reads back no less.

    Examples
    --------
    >>> size_words(20 * 2**20 + 1)
    '21 MiB'
    """
    return f"{rounded_up(n_bytes) >> 20} MiB"


def rounded_up(n_bytes: int) -> int:
    """Return whole mebibytes, in bytes."""
    return -(-n_bytes >> 20) << 20
