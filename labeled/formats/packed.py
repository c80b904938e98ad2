"""Contents of a gzip-compressed file by position, in bounded memory.

A deflated stream can only be inflated forwards. So the state of inflating is kept at
places evenly apart (*points*, about 50 KiB each, made in passing), and wherever the last
reads ended. A read goes on from the nearest of these: reading in order inflates everything
once, and once the points are there, threads inflate stretches between them side by side.

The trade-off: before there are points, a jump ahead inflates all that lies between.
"""

from __future__ import annotations

import threading
import zlib
from typing import Any, Protocol

import numpy as np

from labeled.formats.header import Packing
from labeled.formats.region import Array

MOST_POINTS = 256
LEAST_STEP = 1 << 20
POINT_BYTES = 56 * 1024
"""What a point takes: the window of deflate, zlib's own state, and unread input."""

MOST_EXPANSION = 1032
"""Bytes that one deflated byte may stand for."""

_INPUT_BYTES = 16 * 1024
_SKIP_BYTES = 256 * 1024
_PARKED = 8


class StoredBytes(Protocol):
    """The file as it is stored."""

    def pread(self, offset: int, n: int) -> bytes: ...
    def check(self) -> None: ...


def step_for(n_bytes: int) -> int:
    """Return how far apart points should be in contents of a size."""
    return max(LEAST_STEP, -(-n_bytes // MOST_POINTS))


class Inflating:
    """One place in the contents, from which they can be read on."""

    __slots__ = ("_fed", "_file", "_inflater", "_source_at", "at")

    def __init__(self, file: StoredBytes) -> None:
        self.at = 0
        self._file = file
        self._source_at = 0
        self._fed = b""
        self._inflater: Any = zlib.decompressobj(wbits=31)

    def copy(self) -> Inflating:
        """Return another one at the same place."""
        other = Inflating(self._file)
        other.at = self.at
        other._source_at = self._source_at - len(self._fed)
        other._inflater = self._inflater.copy()
        return other

    def read(self, most: int) -> bytes:
        """Return the next bytes of the contents, at most `most`; none at their end.

        Raises
        ------
        EOFError
            If the file ends in the middle.
        OSError
            If it is damaged.
        """
        while not self._inflater.eof or self._next_member():
            try:
                out: bytes = self._inflater.decompress(self._fed, most)
            except zlib.error as fault:
                place = self._source_at - len(self._fed)
                raise OSError(f"its gzip data is damaged before byte {place}: {fault}") from None
            # At the end of a member what is left is told twice; see _next_member.
            self._fed = b"" if self._inflater.eof else self._inflater.unconsumed_tail
            if out:
                self.at += len(out)
                return out
            if not (self._fed or self._inflater.eof or self._fill()):
                raise EOFError(f"its gzip data ends early, at byte {self._source_at}")
        return b""

    def _fill(self) -> bool:
        more = self._file.pread(self._source_at, _INPUT_BYTES)
        self._source_at += len(more)
        self._fed += more
        return bool(more)

    def _next_member(self) -> bool:
        """Go on to the next member of a file made of several; False where there is none."""
        self._fed = self._inflater.unused_data.lstrip(b"\0")
        while not self._fed:
            if not self._fill():
                return False
            self._fed = self._fed.lstrip(b"\0")
        self._inflater = zlib.decompressobj(wbits=31)
        return True


class PackedFile:
    """The contents of a gzip-compressed file; as safe in threads as a plain one."""

    def __init__(self, file: StoredBytes, packing: Packing) -> None:
        self._file = file
        self._packing = packing
        self._lock = threading.Lock()
        self._points: dict[int, Inflating] = {}
        self._parked: list[Inflating] = []

    @property
    def size(self) -> int:
        return self._packing.n_bytes

    def check(self) -> None:
        """Raise FileChangedError unless the file is still the one that was opened."""
        self._file.check()

    def read_into(self, target: Array, offset: int) -> None:
        """Fill a C-contiguous array with the bytes at `offset`.

        Raises
        ------
        EOFError, OSError
            If the file is truncated or damaged.
        """
        view = target.reshape(-1).view(np.uint8)
        place = self._nearest(offset)
        while place.at < offset:
            self._ahead(place, min(offset - place.at, _SKIP_BYTES))
        done = 0
        while done < len(view):
            part = self._ahead(place, len(view) - done)
            view[done : done + len(part)] = np.frombuffer(part, np.uint8)
            done += len(part)
        if place.at == self.size:
            place.read(1)  # past the end is where the checksum stands
        else:
            self._park(place)

    def _ahead(self, place: Inflating, most: int) -> bytes:
        """Read on, as far as the next point at most, and keep that point."""
        first, step = self._packing.first, self._packing.step
        border = first if place.at < first else place.at + step - (place.at - first) % step
        part = place.read(min(most, border - place.at))
        if not part:
            raise EOFError(f"its contents end at byte {place.at}, before {self.size}")
        if place.at == border and place.at < self.size and place.at not in self._points:
            self._points[place.at] = place.copy()
        return part

    def _nearest(self, offset: int) -> Inflating:
        """Return the place nearest before an offset, for one reader alone."""
        first, step = self._packing.first, self._packing.step
        with self._lock:
            parked = [one for one in self._parked if one.at <= offset]
            best = max(parked, key=_place, default=None)
            border = first + (offset - first) // step * step if offset >= first else 0
            while border > (0 if best is None else best.at):
                if border in self._points:
                    return self._points[border].copy()
                border -= step
            if best is not None:
                self._parked.remove(best)
                return best
        return Inflating(self._file)

    def _park(self, place: Inflating) -> None:
        with self._lock:
            self._parked.append(place)
            del self._parked[:-_PARKED]

    def mapped(self, *, scattered: bool = False) -> Array | None:
        """Return None: what a map would show is compressed."""
        return None

    def copied(self, n_bytes: int, *, scattered: bool = False) -> None:
        """Do nothing: there is no map."""

    def holds(self, offset: int) -> bool:
        """Say yes: where in the file a byte is stored is not known."""
        return True

    def advise(self, offset: int, n: int) -> None:
        """Do nothing: the file is read forwards, which the system foresees."""


def _place(one: Inflating) -> int:
    return one.at
