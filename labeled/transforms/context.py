"""Where a sample stands: what random transforms draw from, so that nothing else matters.

Results are to be the same for any number of threads, any order, shard or resumed run. A
transform therefore never keeps a generator of its own; it asks, by the names of its parameters,
for what is random about a row:

``rng``
    A fresh generator for this row, of this epoch, at this step of the pipeline.
``seed``, ``epoch``, ``row``
    The plain numbers, for transforms that draw in their own way.
``rows``
    The numbers of all rows: the transform then works on whole batches.
``place``
    All of these, as a :class:`Place`.

A parameter that a caller has bound already (``functools.partial``) is left alone, and so is the
first one, which takes the data.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.errors import PipelineError
from labeled.samplers.permutation import key_of

Rows = npt.NDArray[np.int64]
CONTEXT_NAMES = frozenset({"rng", "seed", "epoch", "row", "rows", "place"})


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
        One with an attribute ``context`` (a frozenset of str) hands places on to steps of its own,
        and takes ``place=``. A torch module is given tensors that share memory with the arrays.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform
        self.context = context_of(transform)
        self._composed = isinstance(getattr(transform, "context", None), frozenset)
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
        if place is None or not self.context:
            return self.transform(data)
        here = place if step is None else place.into(step)
        if self._composed:
            return self.transform(data, place=here)
        return self.transform(data, **{n: _given(n, here, self.transform) for n in self.context})


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


def context_of(transform: Any) -> frozenset[str]:
    """Return what a transform asks for by the names of its parameters.

    ``seed`` by itself, with a default, is taken for an option of the transform's own.

    Examples
    --------
    >>> sorted(context_of(lambda image, rows, seed, epoch: image))
    ['epoch', 'rows', 'seed']
    >>> context_of(lambda row: row), context_of(partial(lambda x, rng: x, rng=None))
    (frozenset(), frozenset())
    """
    given = getattr(transform, "context", None)
    if isinstance(given, frozenset):
        return given
    bound = transform.keywords if isinstance(transform, partial) else {}
    try:
        parameters = list(inspect.signature(transform).parameters.values())[1:]
    except (TypeError, ValueError):  # written in C, and says nothing
        return frozenset()
    by_name = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    found = (CONTEXT_NAMES & set(by_name)) - set(bound)
    if "seed" in found and not found & {"epoch", "row", "rows"}:
        return found if by_name["seed"].default is inspect.Parameter.empty else found - {"seed"}
    return found


def context_of_all(steps: Iterable[Callable[..., Any]]) -> frozenset[str]:
    """Return what any of some steps asks for."""
    return frozenset().union(*map(context_of, steps))


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
