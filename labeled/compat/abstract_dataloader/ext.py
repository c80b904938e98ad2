"""The old extensions that need no array library of their own.

Random draws for augmentations, a value each, made once a sample; transforms as a graph, whose
nodes run once what they need is there; and sub-sampling of datasets. The old package had a module
for each; ``install_aliases`` gives their names to this one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from labeled.compat.abstract_dataloader import spec
from labeled.compat.abstract_dataloader.abstract import TSample
from labeled.compat.abstract_dataloader.spec import Index

# augmentations

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
    """A factor of normal logarithm, cut at `clip` deviations unless 0; of a probability `p`."""

    def __init__(self, p: float = 1.0, std: float = 0.2, clip: float = 2.0) -> None:
        self.p, self.std, self.clip = p, std, clip

    def __call__(self, rng: np.random.Generator) -> float:
        if not _happens(self.p, rng):
            return 1.0
        bound = self.clip if self.clip > 0 else math.inf
        return float(np.exp(np.clip(rng.normal(), -bound, bound) * self.std))


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


# graphs


@dataclass
class Node:
    """A transform, which of the data it takes by which argument, and what it adds to them."""

    transform: Callable[..., Any]
    output: str | Sequence[str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)

    def apply(self, data: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Add what the transform makes to the data, in place."""
        given = {argument: data[key] for argument, key in self.inputs.items()}
        given |= {arg: data[key] for arg, key in self.optional.items() if key in data}
        made = self.transform(**given)
        if isinstance(self.output, str):
            data[self.output] = made
            return data
        if not isinstance(made, Sequence):
            raise TypeError(f"Node {name!r} output is expected to be a sequence, not {made!r:.30}")
        if len(made) != len(self.output):
            raise ValueError(f"Node {name!r} output length mismatch: {len(made)} for {self.output}")
        data.update(zip(self.output, made, strict=True))
        return data


class Transform:
    """Runs the first node whose inputs are there, again and again, until none is left.

    The mapping that is given is changed, as it always was. With `outputs` and without
    `keep_all`, what no node requires and nobody asked for is forgotten after each node.
    """

    def __init__(
        self,
        outputs: Mapping[str, str] | None = None,
        keep_all: bool = False,
        **nodes: Node | dict[str, Any],
    ) -> None:
        self.outputs, self.keep_all = outputs, keep_all
        self.nodes = {
            k: Node(**node) if isinstance(node, dict) else node for k, node in nodes.items()
        }

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        waiting, wanted = dict(self.nodes), set((self.outputs or {}).values())
        for node in waiting.values():
            wanted |= set(node.inputs.values())
        while waiting:
            names = (k for k, node in waiting.items() if data.keys() >= {*node.inputs.values()})
            ready = next(names, None)
            if ready is None:
                missing = {k: {*node.inputs.values()} - {*data} for k, node in waiting.items()}
                raise ValueError(
                    f"There are {len(waiting)} nodes remaining, whose inputs are missing: {missing}"
                )
            data = waiting.pop(ready).apply(data, ready)
            if self.outputs is not None and not self.keep_all:
                data = {key: value for key, value in data.items() if key in wanted}
        if self.outputs is None:
            return data
        asked = {name: data[key] for name, key in self.outputs.items()}
        if not self.keep_all:
            return asked
        data.update(asked)
        return data

    def children(self) -> Iterable[Any]:
        return [node.transform for node in self.nodes.values()]


# sub-sampling

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
    return np.asarray((np.arange(count, dtype=np.int64) * step + first) % total, np.int64)


def _whole(value: Any, total: int) -> Any:
    """Take a float for a share of the total."""
    return int(value * total) if isinstance(value, float) else value


def _step(total: int, q: int) -> int:
    """Return the first of q, q + 1, q - 1, q + 2, ... without a divisor in common with `total`."""
    for number in range(1, min(q, total - q) + 1):
        step = q - number // 2 if number % 2 else q + number // 2
        if math.gcd(step, total) == 1:
            return step
    raise ValueError(f"No GCD found: no number near {q} is coprime with {total}")


def _chosen(n: int, samples: float, seed: float, mode: Any) -> Any:
    count = min(_whole(samples, n), n)
    if mode == "ld":
        return sample_ld(n, count, seed)
    if mode == "uniform":
        return np.linspace(0, n - 1, count, dtype=np.int64)
    if mode == "random":
        return np.random.default_rng(_whole(seed, n)).integers(0, n, count)
    return mode(n).astype(np.int64)  # a word that is not known fails here


class SampledDataset(Generic[TSample]):
    """Some of the items of a dataset; ``1`` is one of them, ``1.0`` all."""

    def __init__(
        self, dataset: spec.Dataset[Any], samples: float, seed: float = 0, mode: Mode = "ld"
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
