"""Statistics out of core: each worker measures its part of the rows, once, as they pass by.

The numbers are those that :func:`labeled.write` gathers, by the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt

from labeled._validation import whole
from labeled.cluster.client import Reached, check_dataset, connected
from labeled.cluster.parts import run_parts
from labeled.dataset.dataset import Dataset
from labeled.errors import ArrayError, LoaderError
from labeled.loader.batch import Batch
from labeled.writing.statistics import (
    Measure,
    Moments,
    can_measure,
    plain,
)

Counts = npt.NDArray[np.int64]
Edges = npt.NDArray[np.float64]

BATCH_BYTES = 4 << 20
BATCH_ROWS = 1 << 16


def statistics(
    client: Reached, dataset: Dataset, *, every: int = 32, **options: Any
) -> dict[str, dict[str, Any]]:
    """Measure every numeric source of a dataset on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client, cluster or str
        Or the address of a scheduler.
    dataset : Dataset
        Its rows are those measured.
    every, **options
        As for :func:`run_parts`: `parts`, `workers`, `batch_size`, `memory`, ...

    Returns
    -------
    dict
        By source: ``n_rows``, ``n_values``, ``not_finite``, ``mean``, ``std``, ``min``,
        ``max`` (lists where a dim means channels, named ``by``), ``classes`` where there is
        one integer a row. Values that are not finite are counted and left out.

    Raises
    ------
    ArrayError
        If no source holds numbers.
    """
    check_dataset(dataset)
    measures = _measures(dataset)
    if not measures:
        raise ArrayError(
            f"no source of {dataset.where} holds numbers to measure: {dict(dataset.dtypes)}"
        )
    chosen = dataset.select(*measures)
    found = _fold(client, chosen, partial(_measured, measures), {}, _merged, every=every, **options)
    return {name: plain(found.get(name, Moments())) for name in measures}


def _fold(
    client: Reached,
    dataset: Dataset,
    fold: Callable[[Any, Batch], Any],
    init: Any,
    combine: Callable[[Any, Any], Any],
    **options: Any,
) -> Any:
    """Fold a dataset in file order, in batches of a sensible size."""
    ragged = {"ragged": "flat"} if _ragged(dataset) else {}
    known = {"batch_size": _batch_rows(dataset), **ragged}
    return run_parts(client, dataset, fold, init, combine, **{**known, **options})


def _measures(dataset: Dataset) -> dict[str, Measure]:
    ragged = _ragged(dataset)
    return {
        name: Measure()
        if name in ragged
        else Measure.of(dataset.dims[name], dataset.shapes[name][1:], dtype)
        for name, dtype in dataset.dtypes.items()
        if can_measure(dtype)
    }


def _ragged(dataset: Dataset) -> set[str]:
    """Sources whose examples differ in shape."""
    return {n for n, shape in dataset.shapes.items() if len(shape) < len(dataset.dims[n])}


def _batch_rows(dataset: Dataset) -> int:
    shapes = dataset.shapes
    row_bytes = sum(
        int(np.prod(shapes[name][1:], dtype=np.int64)) * dtype.itemsize
        for name, dtype in dataset.dtypes.items()
    )
    return int(np.clip(BATCH_BYTES // max(row_bytes, 1), 1, BATCH_ROWS))


def _measured(
    measures: Mapping[str, Measure], acc: dict[str, Moments], batch: Batch
) -> dict[str, Moments]:
    found = {name: measure.rows(batch.arrays[name]) for name, measure in measures.items()}
    # flat values of examples of different shapes are counted by example
    return _merged(acc, {n: replace(one, n_rows=batch.count) for n, one in found.items()})


def _merged(one: Mapping[str, Moments], two: Mapping[str, Moments]) -> dict[str, Moments]:
    """Return the moments of both, by source; a missing entry means no rows."""
    out = dict(one)
    for name, moments in two.items():
        out[name] = out[name].merge(moments) if name in out else moments
    return out


def histogram(
    client: Reached,
    dataset: Dataset,
    source: str,
    bins: int = 64,
    range: tuple[float, float] | None = None,
    **options: Any,
) -> tuple[Counts, Edges]:
    """Count the values of a source in bins of equal width, as :func:`numpy.histogram` does.

    Parameters
    ----------
    source : str
        A numeric one.
    bins : int
    range : (low, high), optional
        Values outside are not counted. From a pass of its own over the rows when not
        given; bytes have theirs.
    **options
        As for :func:`run_parts`.

    Returns
    -------
    counts, lengths ``(bins,)``
    edges, lengths ``(bins + 1,)``
    """
    whole("bins", bins, least=1, error=LoaderError)
    chosen = _numeric(dataset, source)
    with connected(client) as at:
        if range is None:
            range = _range(at, chosen, source, options)
        try:
            nothing, edges = np.histogram(np.empty(0), bins, range)
            if not np.all(np.diff(edges) > 0):  # which older NumPy does not look at
                raise ValueError("edges that are the same number")
        except ValueError as error:
            raise ArrayError(
                f"source {source!r} of {dataset.where}: no {bins} bins from {range[0]} to "
                f"{range[1]} ({error}); give another range=, or fewer bins"
            ) from error
        add = partial(_counted, source, bins, range)
        counts: Counts = _fold(at, chosen, add, nothing, np.add, **options)
    return counts, edges


def _numeric(dataset: Dataset, source: str) -> Dataset:
    """Return the dataset with this source alone.

    Raises
    ------
    ArrayError
        If it holds no numbers.
    """
    check_dataset(dataset)
    chosen = dataset.select(source)
    dtype = chosen.dtypes[source]
    if not can_measure(dtype):
        raise ArrayError(f"source {source!r} of {dataset.where} holds {dtype}, not numbers")
    return chosen


def _range(
    client: distributed.Client, chosen: Dataset, source: str, options: Mapping[str, Any]
) -> tuple[float, float]:
    dtype = chosen.dtypes[source]
    if dtype.itemsize == 1:
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return float(low), float(high)
    found = statistics(client, chosen, **options)[source]
    lows, highs = np.atleast_1d(found["min"]), np.atleast_1d(found["max"])
    ends = [float(v) for v in (*lows, *highs) if v is not None]
    return (min(ends), max(ends)) if ends else (0.0, 1.0)


def _counted(
    source: str, bins: int, range: tuple[float, float], acc: Counts, batch: Batch
) -> Counts:
    values = batch.arrays[source]
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    elif values.dtype.kind == "f":  # else edges would be rounded to the few digits of its dtype
        values = values.astype(np.float64, copy=False)
    acc += np.histogram(values, bins, range)[0]
    return acc


def class_counts(client: Reached, dataset: Dataset, source: str, **options: Any) -> dict[Any, int]:
    """Count the rows of each class: of each value of a source that has one a row.

    Parameters
    ----------
    source : str
        Integers, booleans or texts, one a row.
    **options
        As for :func:`run_parts`.

    Returns
    -------
    dict
        Value to number of rows, in the order of values.
    """
    check_dataset(dataset)
    shape = dataset.select(source).shapes[source]
    dtype = dataset.dtypes[source]
    if set(shape[1:]) - {1} or source in _ragged(dataset) or dtype.kind not in "biuSUO":
        raise ArrayError(
            f"source {source!r} of {dataset.where} has rows of shape {shape[1:]} and {dtype}, not "
            "one class a row"
        )
    add = partial(_classes, source)
    found = _fold(client, dataset.select(source), add, {}, _added, **options)
    return dict(sorted(found.items()))


def _classes(source: str, acc: dict[Any, int], batch: Batch) -> dict[Any, int]:
    values, counts = np.unique(batch.arrays[source].reshape(-1), return_counts=True)
    return _added(acc, dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _added(one: Mapping[Any, int], two: Mapping[Any, int]) -> dict[Any, int]:
    out = dict(one)
    for value, count in two.items():
        out[value] = out.get(value, 0) + count
    return out
