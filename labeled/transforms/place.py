"""Where a sample stands: what random transforms draw from, so that nothing else matters.

Results are to be the same for any number of threads, any order, part or resumed run. A
transform therefore never keeps a generator of its own; it *asks*, by the names of its
parameters, for what is random about a row:

``rng``
    A fresh generator for this row, of this epoch, at this step of the pipeline.
``seed``, ``epoch``, ``row``
    The plain numbers, for transforms that draw in their own way.
``rows``
    The numbers of all rows: the transform then works on whole batches.
``place``
    All of these, as a :class:`Place`.

A parameter that a caller has bound already (``functools.partial``) is left alone, and so is
the first one, which takes the data.

Transforms of pictures draw for all rows of a batch at once (:class:`RowRandom`), yet a row gets
the same numbers in any batch, any order, any shard, and after a resume: numbers are hashed, not
streamed. A keyed mixer of 64 bits is applied to every row, once per name of what is drawn.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.errors import PipelineError
from labeled.samplers.permutation import key_of

Rows = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

LOW = (1 << 64) - 1
STRIDE = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The multipliers of splitmix64."""
ASKABLE = frozenset({"rng", "seed", "epoch", "row", "rows", "place"})


@dataclass(frozen=True, slots=True)
class Place:
    """Which row of which epoch, and which step of the pipeline.

    Parameters
    ----------
    seed, epoch : int
        Of the loader.
    row : int, optional
        Position in the dataset that ``batches`` was called on; -1 for rows that pad.
    rows : int64 array, optional
        The same for every row of a batch.
    path : tuple
        The steps that lead to the transform, numbers and names.

    Examples
    --------
    >>> place = Place(seed=7, epoch=0, row=3)
    >>> bool(place.rng().random() == Place(seed=7, epoch=0, row=3).rng().random())
    True
    >>> bool(place.rng().random() == place.into(1).rng().random())
    False
    """

    seed: int
    epoch: int
    row: int | None = None
    rows: Rows | None = None
    path: tuple[int | str, ...] = ()

    def into(self, step: int | str) -> Place:
        """Return the place of a step within this one."""
        return Place(self.seed, self.epoch, self.row, self.rows, (*self.path, step))

    def rng(self) -> np.random.Generator:
        """Return a new generator, which draws the same wherever and whenever it is made."""
        key = key_of("pipeline", self.seed, self.epoch, -1 if self.row is None else self.row)
        if self.path:
            key = key_of(str(key), *self.path)
        return np.random.Generator(np.random.Philox(key=key))


class Bound:
    """A transform as a step: what it asks for is worked out once, and passed to it.

    Parameters
    ----------
    transform : callable
        One with an attribute ``asks`` (a frozenset of str) hands places on to steps of its own,
        and takes ``place=``. A torch module is given tensors that share memory with the arrays.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform
        self.asks = asked_by(transform)
        self._composed = isinstance(getattr(transform, "asks", None), frozenset)
        torch = sys.modules.get("torch")  # not imported for this
        self.tensors = torch is not None and isinstance(transform, torch.nn.Module)

    def __call__(self, data: Any, place: Place | None = None, step: int | str | None = None) -> Any:
        """Apply the transform; without a place it is called with the data alone.

        Parameters
        ----------
        step : int or str, optional
            Which step within the place this is.
        """
        if self.tensors:
            data = as_tensors(data)
        if place is None or not self.asks:
            return self.transform(data)
        here = place if step is None else place.into(step)
        if self._composed:
            return self.transform(data, place=here)
        return self.transform(data, **{n: _given(n, here, self.transform) for n in self.asks})


def _given(name: str, place: Place, transform: Any) -> Any:
    if name == "place":
        return place
    if name in ("rng", "row") and place.row is None:
        raise PipelineError(
            f"{transform!r} asks for {name!r} of one row, but is given whole batches: let it take "
            "rows, seed and epoch and draw for each row, so that no result depends on its batch"
        )
    if name == "rows" and place.rows is None:
        raise PipelineError(
            f"{transform!r} asks for the rows of a whole batch, but stands where samples come one "
            "by one: put it before transforms of samples, or let it take row"
        )
    return place.rng() if name == "rng" else getattr(place, name)


def asked_by(transform: Any) -> frozenset[str]:
    """Return what a transform asks for by the names of its parameters.

    ``seed`` by itself, with a default, is taken for an option of the transform's own.

    Examples
    --------
    >>> sorted(asked_by(lambda image, rows, seed, epoch: image))
    ['epoch', 'rows', 'seed']
    >>> asked_by(lambda row: row), asked_by(partial(lambda x, rng: x, rng=None)), asked_by(abs)
    (frozenset(), frozenset(), frozenset())
    """
    asks = getattr(transform, "asks", None)
    if isinstance(asks, frozenset):
        return asks
    bound = transform.keywords if isinstance(transform, partial) else {}
    try:
        parameters = list(inspect.signature(transform).parameters.values())[1:]
    except (TypeError, ValueError):  # written in C, and says nothing
        return frozenset()
    by_name = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    found = (ASKABLE & set(by_name)) - set(bound)
    if "seed" in found and not found & {"epoch", "row", "rows"}:
        return found if by_name["seed"].default is inspect.Parameter.empty else found - {"seed"}
    return found


def asked_by_all(steps: Iterable[Callable[..., Any]]) -> frozenset[str]:
    """Return what any of some steps asks for."""
    return frozenset().union(*map(asked_by, steps))


def as_tensors(data: Any) -> Any:
    """Return arrays, and arrays in mappings and tuples, as tensors on the same memory."""
    torch = sys.modules["torch"]
    if hasattr(data, "items") and not isinstance(data, xr.DataArray):
        return {name: as_tensors(value) for name, value in data.items()}
    if isinstance(data, tuple | list):
        made = list(map(as_tensors, data))
        return type(data)(*made) if hasattr(data, "_fields") else type(data)(made)
    plain = data.data if isinstance(data, xr.DataArray) else data
    return torch.as_tensor(plain) if isinstance(plain, np.ndarray | np.generic) else plain


# ---------------------------------------------------------------- all rows of a batch
@dataclass(frozen=True, eq=False)
class RowRandom:
    """Random numbers of one step of an augmentation for the rows of one batch.

    Parameters
    ----------
    rows : int64 array
        One for each picture.
    seed, epoch : int
        Hashed together.
    path : tuple of int
        Place of the transform in its augmentation.

    Examples
    --------
    >>> whole = RowRandom(np.arange(8), seed=7).uniform("scale", 0, 1)
    >>> part = RowRandom(np.array([5, 2]), seed=7).uniform("scale", 0, 1)
    >>> bool((part == whole[[5, 2]]).all())
    True
    """

    rows: IntArray
    seed: int = 0
    epoch: int = 0
    path: tuple[int, ...] = ()

    def within(self, step: int) -> RowRandom:
        """Return the numbers of a transform within this one."""
        return replace(self, path=(*self.path, step))

    def uniform(self, name: str, low: Any, high: Any) -> FloatArray:
        """Return a number from [low, high) for every row; bounds may differ by row."""
        unit = (self._words(name) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        drawn: FloatArray = low + unit * (np.asarray(high, np.float64) - low)
        return drawn

    def integers(self, name: str, high: Any) -> IntArray:
        """Return an integer from ``0 .. high - 1`` for every row."""
        below = np.asarray(high, np.int64)
        drawn: IntArray = np.floor(self.uniform(name, 0.0, below)).astype(np.int64)
        return np.minimum(drawn, below - 1)

    def coin(self, name: str, chance: float) -> npt.NDArray[np.bool_]:
        """Return True for a share of the rows."""
        return self.uniform(name, 0.0, 1.0) < chance

    def normal(self, name: str) -> FloatArray:
        """Return a number from the standard normal distribution for every row."""
        radius = np.sqrt(-2 * np.log1p(-self.uniform(f"{name} radius", 0.0, 1.0)))
        drawn: FloatArray = radius * np.cos(self.uniform(f"{name} angle", 0.0, 2 * np.pi))
        return drawn

    def _words(self, name: str) -> Words:
        key = key_of("augment", self.seed, self.epoch, *self.path, name)
        low, high = np.uint64(key & LOW), np.uint64(key >> 64)
        words = _mixed(self.rows.astype(np.uint64) * STRIDE + low)
        return _mixed(words ^ high)


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
