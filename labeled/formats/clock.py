"""How long each thread has been decoding: undoing filters, parsing text, decoding pictures.

A loader cannot see this from outside, as bytes are fetched and decoded by one call. Those
who decode say so here, and whoever made the call looks before and after it. What HDF5
itself decodes cannot be told from its reading.
"""

from __future__ import annotations

import threading
from time import perf_counter


class _Clock(threading.local):
    decode_s = 0.0


_CLOCK = _Clock()


def decode_s() -> float:
    """Return the seconds that this thread has spent decoding since it began."""
    return _CLOCK.decode_s


class _Counted:
    """Adds the time inside to the clock; a class, as a picture is decoded in 40 microseconds."""

    __slots__ = ("_began", "_sign")

    def __init__(self, sign: int) -> None:
        self._sign = sign

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *fault: object) -> None:
        _CLOCK.decode_s += self._sign * (perf_counter() - self._began)


def decoding() -> _Counted:
    """Count what happens inside as decoding, but for what is inside :func:`fetching`.

    Examples
    --------
    >>> before = decode_s()
    >>> with decoding():
    ...     pass
    >>> decode_s() > before
    True
    """
    return _Counted(1)


def fetching() -> _Counted:
    """Take what happens inside out of the time counted by :func:`decoding` around it."""
    return _Counted(-1)
