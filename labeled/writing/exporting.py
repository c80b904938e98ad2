"""Pictures of a dataset as records: what no other library here writes.

Rows are read in stretches of bounded size. What records have no place for is said or refused,
never dropped in silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from labeled.dims import role_of
from labeled.errors import ArrayError, LoaderError, warn
from labeled.formats.recordio.writing import write_records
from labeled.formats.region import Array
from labeled.formats.replacing import check_target
from labeled.ragged import Ragged
from labeled.ragged.flat import Rows, block_cuts
from labeled.writing.folders import Pictures
from labeled.writing.progress import progress_bar
from labeled.writing.streaming import COUNTED_BYTES
from labeled.writing.write import checked_effort, own_splits

HELD_PICTURES = 5
"""How often the largest picture is held: it is encoded besides."""

STRETCHES = 8
"""What reading, loading and handing out a stretch of rows takes, in stretches."""


def export(
    dataset: Any,
    target: str | os.PathLike[str],
    *,
    overwrite: bool,
    memory: float | str | None,
    progress: bool | None,
) -> str:
    """Write pictures as PNG, which loses nothing, with their labels and ids.

    Parameters
    ----------
    target : path
    overwrite : bool
        Replace a file that is there.
    memory : int or str, optional
    progress : bool, optional
        Both as for :func:`labeled.write`.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    ArrayError
        If records cannot hold the sources.
    LoaderError
        If `memory` does not hold the largest picture, as often as it is held.
    WriteError
        If writing fails; nothing is left behind then.
    """
    budget, _ = checked_effort(memory, None)
    images = _pictures_of(dataset)
    if memory is not None:
        _check_memory(dataset, images, memory, budget)
    path = check_target(target, overwrite=overwrite)
    columns = {name: dataset[name].values for name in ("labels", "ids") if name in dataset.sources}
    columns = columns or {"ids": np.arange(dataset.n_rows)}  # without any there is no header
    for name, values in columns.items():
        if values.dtype.kind not in "biuf" or values.ndim > (2 if name == "labels" else 1):
            raise ArrayError(
                f"source {name!r} has dtype {values.dtype} and dims {dataset[name].dims}; .rec "
                f"holds numbers, one a row (or a row of them, of labels)"
            )
    lost = [name for name in dataset.sources if name not in (images, "labels", "ids")]
    if lost:
        warn(f".rec has no place for the sources {lost}")
    if own_splits(dataset):
        warn(".rec has no place for splits")
    n_bytes = int(dataset[images].nbytes)
    with progress_bar(progress, n_bytes, f"write {os.path.basename(path)}") as told:
        examples = _pictures(dataset.select(images), images, budget, told)
        write_records(
            path,
            examples,
            format=".png",
            ahead_bytes=budget // STRETCHES,
            overwrite=overwrite,
            **columns,
        )
    return path


def _check_memory(dataset: Any, name: str, memory: float | str, budget: int) -> None:
    row_bytes = int(_row_bytes(dataset, name).max(initial=0))
    needed = row_bytes * HELD_PICTURES
    if needed > max(budget, COUNTED_BYTES):
        raise LoaderError(
            f"memory={memory!r} is too small for source {name!r}: its largest row takes "
            f"{row_bytes:,} bytes, and .rec needs {needed:,}, as it is read and as it is "
            f"written; give memory='{-(-needed >> 20)} MiB'"
        )


def pass_on(
    sources: Mapping[str, Any],
    target: str | os.PathLike[str],
    *,
    overwrite: bool,
    progress: bool | None,
) -> str:
    """Write the pictures of a folder as records, as they are encoded, with their labels."""
    images = sources["images"]
    pictures = images.reader if isinstance(images, Ragged) else images
    assert isinstance(pictures, Pictures)
    path = check_target(target, overwrite=overwrite)
    labels = sources.get("labels")
    with progress_bar(progress, pictures.n_bytes, f"write {os.path.basename(path)}") as told:
        write_records(
            path,
            pictures.encoded(told),
            labels=[0] * len(pictures) if labels is None else labels,
            overwrite=overwrite,
        )
    return path


def _pictures_of(dataset: Any) -> str:
    """Return the one source that holds pictures of eight bits."""
    found: list[str] = [
        name
        for name in dataset.sources
        if dataset[name].dtype == np.uint8
        and {"height", "width"} <= set(_roles(dataset, name)) <= {"height", "width", "channel"}
    ]
    if len(found) != 1:
        raise ArrayError(
            f".rec holds one source of pictures, uint8 with dims of height and width, and here "
            f"are {found or 'none'}; choose with sources=[...], or name the axes with dims="
        )
    return found[0]


def _row_bytes(dataset: Any, name: str) -> Rows:
    value = dataset[name]
    if isinstance(value, Ragged):
        return value.sizes
    return np.full(len(value), int(np.prod(value.shape[1:], dtype=np.int64)))


def _roles(dataset: Any, name: str) -> list[str]:
    return [role_of(dim) or str(dim) for dim in dataset[name].dims[1:]]


def _pictures(one: Any, name: str, budget: int, told: Callable[[int], None]) -> Iterator[Array]:
    """Yield pictures by height, width and channel."""
    roles = _roles(one, name)
    axes = [roles.index(role) for role in ("height", "width", "channel") if role in roles]
    for a, b in pairwise(block_cuts(_row_bytes(one, name), max(budget // STRETCHES, 1))):
        rows = one.subset(slice(a, b)).load().loaded[name]
        for row in rows.to_objects() if isinstance(rows, Ragged) else rows:
            image = row.transpose(axes)
            told(image.nbytes)
            yield image if image.ndim == 3 else image[..., np.newaxis]
