"""Small made-up datasets: points on spirals, and on a rolled sheet."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.compat.fuel.config_parser import config
from labeled.compat.fuel.datasets.base import IndexableDataset


class Spiral(IndexableDataset):
    """Points on spirals in a plane: sources ``features``, ``position`` and ``label``.

    Parameters
    ----------
    num_examples : int
    classes : int
        How many spirals.
    cycles : float
        How often each turns.
    noise : float
        Standard deviation of what is added to the points.
    seed : int, optional
        ``config.default_seed`` if not given.
    """

    def __init__(
        self,
        num_examples: int = 1000,
        classes: int = 1,
        cycles: float = 1.0,
        noise: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        rng = _rng(seed)
        position = rng.uniform(0, cycles, num_examples)
        label = rng.randint(0, classes, num_examples)
        angle = 2 * np.pi * position + label * (2 * np.pi) / classes
        radius = (2 * position + 1) / 3
        features = _noisy(rng, [radius * np.sin(angle), radius * np.cos(angle)], noise)
        named = {"features": features, "position": position, "label": label}
        super().__init__(named, **kwargs)


class SwissRoll(IndexableDataset):
    """Points on a rolled sheet: sources ``features`` (n, 3) and ``position`` (n, 2) on it.

    Parameters
    ----------
    num_examples : int
    noise : float
        Standard deviation of what is added to the points.
    seed : int, optional
        ``config.default_seed`` if not given.
    """

    def __init__(
        self,
        num_examples: int = 1000,
        noise: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        rng = _rng(seed)
        along = rng.uniform(0, 1, num_examples)
        across = rng.uniform(-1, 1, num_examples)
        angle, radius = 1.5 * np.pi * (1 + 2 * along), (1 + 2 * along) / 3
        points = [radius * np.cos(angle), radius * np.sin(angle), across]
        features = _noisy(rng, points, noise)
        position = np.stack([along, across], axis=1).astype("float32")
        super().__init__({"features": features, "position": position}, **kwargs)


def _rng(seed: int | None) -> np.random.RandomState:
    return np.random.RandomState(config.default_seed if seed is None else seed)


def _noisy(rng: np.random.RandomState, points: list[Any], noise: float) -> Any:
    """Return points as float32; what is added to them is added to what was rounded."""
    features = np.stack(points, axis=1).astype("float32")
    features += noise * rng.standard_normal(features.shape)
    return features
