"""How long each thread has been decoding: undoing filters, parsing text, decoding pictures.

A loader cannot see this from outside, as bytes are fetched and decoded by one call. Those
who decode say so here, and whoever made the call looks before and after it. What HDF5
itself decodes cannot be told from its reading.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class _Clock(threading.local):
    decode_s = 0.0


_CLOCK = _Clock()


def decode_s() -> float:
    """Return the seconds that this thread has spent decoding since it began."""
    return _CLOCK.decode_s


@contextmanager
def decoding() -> Iterator[None]:
    """Count what happens inside as decoding, but for what is inside :func:`fetching`.

    Examples
    --------
    >>> before = decode_s()
    >>> with decoding():
    ...     pass
    >>> decode_s() > before
    True
    """
    began = perf_counter()
    try:
        yield
    finally:
        _CLOCK.decode_s += perf_counter() - began


@contextmanager
def fetching() -> Iterator[None]:
    """Take what happens inside out of the time counted by :func:`decoding` around it."""
    began = perf_counter()
    try:
        yield
    finally:
        _CLOCK.decode_s -= perf_counter() - began
