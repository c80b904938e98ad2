"""Where a sampler's random numbers come from: keyed by (seed, epoch), or the old streams.

A sampler asks a stream for permutations and for whole numbers, one after another, and
does not care which kind it has. `KeyedStream` is the native one: what an epoch draws is
a function of seed and epoch alone. `LegacyStream` is NumPy's `RandomState` as older
libraries used it, where epoch k goes on where epoch k - 1 stopped; `legacy_stream` finds
that place again by drawing the earlier epochs anew, from the nearest one it remembers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from labeled.errors import LoaderError
from labeled.samplers.permutation import IntArray, explicit_permutation, key_of

Seed = int | tuple[int, ...]
REMEMBERED = 64
"""Places in old streams that are kept in mind, 2.5 kB each."""


class Stream(Protocol):
    """Random numbers, one request after another."""

    def permutation(self, n: int) -> IntArray:
        """Return a random order of ``range(n)``."""

    def below(self, high: int, size: int) -> IntArray:
        """Return `size` whole numbers from ``[0, high)``, with replacement."""


@dataclass(eq=False)
class KeyedStream:
    """The numbers of one epoch: request number i is a function of (seed, epoch, i).

    Examples
    --------
    >>> KeyedStream(7, 0).permutation(5).tolist() == KeyedStream(7, 0).permutation(5).tolist()
    True
    """

    seed: Seed
    epoch: int
    asked: int = 0

    def _key(self, purpose: str) -> int:
        self.asked += 1
        seeds = self.seed if isinstance(self.seed, tuple) else (self.seed,)
        return key_of(*seeds, self.epoch, purpose, self.asked)

    def permutation(self, n: int) -> IntArray:
        return explicit_permutation(n, self._key("sampler order"))

    def below(self, high: int, size: int) -> IntArray:
        words = np.random.Philox(key=self._key("sampler draws")).random_raw(size)
        chances = np.asarray(words >> np.uint64(11), np.float64) * 2.0**-53
        return np.minimum((chances * high).astype(np.int64), high - 1)


@dataclass(eq=False)
class LegacyStream:
    """A `RandomState`, asked as the older libraries asked it; advances it.

    Shuffling a list, shuffling an array and permuting ``range(n)`` are one and the same
    order; inclusive random integers are ``randint(low, high + 1)``.

    Examples
    --------
    >>> rows = np.arange(6)
    >>> np.random.RandomState(42).shuffle(rows)
    >>> bool((LegacyStream(np.random.RandomState(42)).permutation(6) == rows).all())
    True
    """

    state: np.random.RandomState

    def permutation(self, n: int) -> IntArray:
        rows = np.arange(n, dtype=np.int64)
        self.state.shuffle(rows)
        return rows

    def below(self, high: int, size: int) -> IntArray:
        return np.asarray(self.state.randint(0, high, size=size), np.int64)


_PLACES: OrderedDict[tuple[str, Seed, int], Any] = OrderedDict()
"""States of old streams where epochs begin; only ever saves drawing them anew."""


def legacy_stream(
    seed: Seed, epoch: int, whose: str, draw_epoch: Callable[[Stream], None]
) -> LegacyStream:
    """Return the stream of `seed` at the place where `epoch` begins.

    Parameters
    ----------
    whose : str
        Tells apart samplers that draw differently: a digest of what they are.
    draw_epoch : function
        Draws from a stream what one epoch draws.
    """
    places = ((k, _PLACES.get((whose, seed, k))) for k in range(epoch, 0, -1))
    start, place = next(((k, place) for k, place in places if place is not None), (0, None))
    stream = LegacyStream(np.random.RandomState(_old_seed(seed)))
    if place is not None:
        stream.state.set_state(place)
    for number in range(start + 1, epoch + 1):
        draw_epoch(stream)
        _PLACES[whose, seed, number] = stream.state.get_state()
    while len(_PLACES) > REMEMBERED:
        _PLACES.popitem(last=False)
    return stream


def _old_seed(seed: Seed) -> int | Sequence[int]:
    return list(seed) if isinstance(seed, tuple) else seed


def checked_seed(seed: Any, *, legacy: bool) -> Seed:
    """Return `seed` as a whole number or a tuple of them.

    Raises
    ------
    LoaderError
        If it is anything else, or no seed for a `RandomState` where `legacy` asks for one.
    """
    several = isinstance(seed, tuple | list) and len(seed) > 0
    numbers = tuple(seed) if several else (seed,)
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in numbers):
        raise LoaderError(f"seed={seed!r} must be a whole number or a tuple of them")
    if legacy and not all(0 <= n < 2**32 for n in numbers):
        raise LoaderError(f"seed={seed!r}: the old streams take seeds from 0 to 2**32 - 1")
    whole = tuple(int(n) for n in numbers)
    return whole if several else whole[0]
