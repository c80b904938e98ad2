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
    """

    def __init__(
        self,
        num_examples: int = 1000,
        classes: int = 1,
        cycles: float = 1.0,
        noise: float = 0.0,
        **kwargs: Any,
    ) -> None:
        rng = np.random.default_rng(config.default_seed)
        position = rng.uniform(0, cycles, num_examples)
        label = rng.integers(0, classes, num_examples)
        angle = 2 * np.pi * (position + label / classes)
        radius = (2 * position / cycles + 1) / 3
        features = np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1)
        features = (features + noise * rng.standard_normal(features.shape)).astype("float32")
        named = {"features": features, "position": position, "label": label}
        super().__init__(named, **kwargs)


class SwissRoll(IndexableDataset):
    """Points on a rolled sheet: sources ``features`` (n, 3) and ``position`` (n, 2) on it.

    Parameters
    ----------
    num_examples : int
    noise : float
        Standard deviation of what is added to the points.
    """

    def __init__(self, num_examples: int = 1000, noise: float = 0.0, **kwargs: Any) -> None:
        rng = np.random.default_rng(config.default_seed)
        position = rng.uniform(0, 1, (num_examples, 2))
        along, across = position.T
        angle, radius = 1.5 * np.pi * (1 + 2 * along), (1 + 2 * along) / 3
        points = [radius * np.cos(angle), 2 * across - 1, radius * np.sin(angle)]
        features = np.stack(points, axis=1)
        features = (features + noise * rng.standard_normal(features.shape)).astype("float32")
        super().__init__({"features": features, "position": position}, **kwargs)
