"""Decoded chunks that outlast the call which needed them, where memory holds only a few.

Usually a thread decodes a chunk into memory of its own, hands out all rows that are wanted of
it, and forgets it. Of chunks so large that windows hold no whole one, rows are wanted bit by
bit: then the chunks of one band are kept until those of another are asked for, by all threads
and all files of a source together.

The trade-off: one thread decodes at a time, so memory holds one band and what decoding one of
its chunks takes, whoever reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

Array = npt.NDArray[Any]


class ChunkKeeper:
    """The decoded chunks of one band; pickles as an empty one.

    Examples
    --------
    >>> keeper = ChunkKeeper()
    >>> with keeper.band("file", 0) as chunks:
    ...     chunks[3] = b"decoded"
    >>> with keeper.band("file", 0) as chunks:
    ...     print(list(chunks))
    [3]
    >>> with keeper.band("file", 1) as chunks:
    ...     print(list(chunks))
    []
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Hashable, ...] = ()
        self._chunks: dict[int, Array] = {}

    def __reduce__(self) -> tuple[Callable[[], ChunkKeeper], tuple[()]]:
        return ChunkKeeper, ()

    @contextmanager
    def band(self, *key: Hashable) -> Iterator[dict[int, Array]]:
        """Give the chunks kept of a band, by number; those of others are let go."""
        with self._lock:
            if key != self._key:
                self._key = key
                self._chunks.clear()
            yield self._chunks


@runtime_checkable
class KeepsChunks(Protocol):
    """A reader that can keep the chunks it decoded."""

    def keep_in(self, keeper: ChunkKeeper) -> None:
        """Keep decoded chunks there from now on."""


def keep_decoded(readers: Iterable[object], keeper: ChunkKeeper) -> None:
    """Let those of some readers that can keep the chunks they decode in one place."""
    for reader in readers:
        if isinstance(reader, KeepsChunks):
            reader.keep_in(keeper)
