"""A softmax classifier in a few lines of NumPy: the training loop of the demo."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(eq=False)
class Softmax:
    """Linear scores and their softmax, trained by plain gradient descent.

    Parameters
    ----------
    weights : float32 array, lengths (feature, class)
    bias : float32 array, lengths (class,)
    """

    weights: Floats
    bias: Floats

    @classmethod
    def zeros(cls, n_features: int, n_classes: int) -> Softmax:
        return cls(np.zeros((n_features, n_classes), np.float32), np.zeros(n_classes, np.float32))

    def scores(self, images: Floats) -> Floats:
        return images @ self.weights + self.bias

    def learn(self, images: Floats, targets: Floats, rate: float = 0.5) -> None:
        """Take one step: `images` (batch, feature), `targets` (batch, class) one-hot."""
        scores = self.scores(images)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        wrong = odds / odds.sum(axis=1, keepdims=True) - targets
        step = np.float32(rate / max(len(images), 1))
        self.weights -= step * (images.T @ wrong)
        self.bias -= step * wrong.sum(axis=0)

    def accuracy(self, batches: Iterable[tuple[Floats, Floats]]) -> float:
        """Return the share of rows whose highest score is the right class."""
        right = seen = 0
        for images, targets in batches:
            right += int((self.scores(images).argmax(axis=1) == targets.argmax(axis=1)).sum())
            seen += len(images)
        return right / max(seen, 1)
