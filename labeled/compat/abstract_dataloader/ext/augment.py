"""The old random draws for augmentations: a value each, made once a sample."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

T = TypeVar("T", covariant=True)


@runtime_checkable
class Augmentation(Protocol[T]):
    """Draws a value."""

    def __call__(self, rng: np.random.Generator) -> T: ...


def _happens(p: float, rng: np.random.Generator) -> bool:
    """Whether something of that probability happens; nothing is drawn for what is certain."""
    return p >= 1 or bool(rng.random() < p)


class Bernoulli(Augmentation[bool]):
    """True with a probability of `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self.p)


class Normal(Augmentation[float]):
    """Normally distributed with a probability of `p`, else 0."""

    def __init__(self, p: float = 1.0, std: float = 1.0) -> None:
        self.p, self.std = p, std

    def __call__(self, rng: np.random.Generator) -> float:
        return rng.normal() * self.std if _happens(self.p, rng) else 0.0


class TruncatedLogNormal(Augmentation[float]):
    """A factor whose logarithm is normal, cut at `clip` deviations; with a probability of `p`."""

    def __init__(self, p: float = 1.0, std: float = 0.2, clip: float = 2.0) -> None:
        self.p, self.std, self.clip = p, std, clip

    def __call__(self, rng: np.random.Generator) -> float:
        if not _happens(self.p, rng):
            return 1.0
        z = np.clip(rng.normal(), -self.clip, self.clip)
        factor: float = np.exp(z * self.std)
        return factor


class Uniform(Augmentation[float]):
    """Uniform between two bounds with a probability of `p`, else 0."""

    def __init__(self, p: float = 1.0, lower: float = -math.pi, upper: float = math.pi) -> None:
        self.p, self.lower, self.upper = p, lower, upper

    def __call__(self, rng: np.random.Generator) -> float:
        return rng.uniform(self.lower, self.upper) if _happens(self.p, rng) else 0.0


class Augmentations:
    """Named draws from one generator, seeded with the number of the process.

    Nothing is drawn where the metadata say ``"train": False``; without a word, it is training.
    """

    def __init__(self, **kwargs: Augmentation[Any]) -> None:
        self.augmentations = kwargs
        self._made: tuple[int, np.random.Generator] | None = None

    @property
    def rng(self) -> np.random.Generator:
        pid = os.getpid()
        if self._made is None or self._made[0] != pid:
            self._made = pid, np.random.default_rng(pid)
        return self._made[1]

    def __call__(self, meta: dict[str, Any] = {}) -> dict[str, Any]:  # noqa: B006  # never changed
        if not meta.get("train", True):
            return {}
        return {name: draw(self.rng) for name, draw in self.augmentations.items()}

    def children(self) -> Iterable[Any]:
        return self.augmentations.values()
