"""The old sub-sampling of datasets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled.compat.abstract_dataloader import spec
from labeled.compat.abstract_dataloader.spec import Index

Rows = npt.NDArray[np.integer[Any]]
Mode = Literal["ld", "uniform", "random"] | Callable[[int], Rows]

ALPHA = 2 / (math.sqrt(5) + 1)


def sample_ld(
    total: int, samples: float, seed: float = 0, alpha: float = ALPHA
) -> npt.NDArray[np.int64]:
    """Take numbers below `total` in equal steps, modulo `total`, the step about `alpha` of it.

    Floats are shares of `total`; an ``int`` as `alpha` is the step itself, whatever it is.
    """
    count, first = _whole(samples, total), _whole(seed, total)
    if count < 0 or count > total:
        raise ValueError(f"{count} samples of {total}")
    given: Any = alpha
    step = _step(total, int(total * given)) if isinstance(given, float) else given
    if step * count >= np.iinfo(np.int64).max:
        raise NotImplementedError(f"{count} steps of {step} overflow")
    found: npt.NDArray[np.int64] = (np.arange(count, dtype=np.int64) * step + first) % total
    return found


def _whole(value: Any, total: int) -> Any:
    """Take a float for a share of the total."""
    return int(value * total) if isinstance(value, float) else value


def _step(total: int, q: int) -> int:
    """Return the first of q, q + 1, q - 1, q + 2, ... without a divisor in common with `total`."""
    for number in range(1, min(q, total - q) + 1):
        step = q + (number // 2 if number % 2 == 0 else -(number // 2))
        if math.gcd(step, total) == 1:
            return step
    raise ValueError(f"No GCD found: no number near {q} is coprime with {total}")


def _chosen(n: int, samples: float, seed: float, mode: Any) -> Rows:
    count = min(_whole(samples, n), n)
    found: Rows
    if mode == "ld":
        found = sample_ld(n, count, seed)
    elif mode == "uniform":
        found = np.linspace(0, n - 1, count, dtype=np.int64)
    elif mode == "random":
        found = np.random.default_rng(_whole(seed, n)).integers(0, n, count)
    else:
        found = mode(n)  # a word it does not know fails here
    return found


class SampledDataset:
    """Some of the items of a dataset; ``1`` is one of them, ``1.0`` all."""

    def __init__(
        self,
        dataset: spec.Dataset[Any],
        samples: float,
        seed: float = 0,
        mode: Mode = "ld",
    ) -> None:
        self.dataset = dataset
        self.subset = _chosen(len(dataset), samples, seed, mode)

    def __getitem__(self, index: Index) -> Any:
        return self.dataset[self.subset[index]]

    def __len__(self) -> int:
        return len(self.subset)

    def children(self) -> Iterable[Any]:
        return [self.dataset]

    def __repr__(self) -> str:
        return f"Sampled({self.dataset!r}, n={len(self.subset)})"
