"""This library, as its documentation says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import labeled
from benchmarks.files import GOOD_NAME, BenchFile
from benchmarks.measure import Array, Epoch, Way

MEMORY = "64 MiB"
SEED = 7


def loader(file: BenchFile, batch_rows: int, rows: Any = None, **options: Any) -> labeled.Loader:
    """Open a file and make a loader over it."""
    data = labeled.open_dataset(str(file.path)).select(GOOD_NAME)
    if rows is not None:
        data = data.subset(rows)
    options = {"memory": MEMORY, "seed": SEED, **options}
    return data.batches(batch_rows, **options)


def way(
    file: BenchFile,
    batch_rows: int,
    name: str,
    order: str,
    *,
    rows: Any = None,
    labelled: bool = False,
    **options: Any,
) -> Way:
    """Batches as plain arrays; as the labelled arrays of each batch if `labelled`."""

    def make() -> Epoch:
        batches = loader(file, batch_rows, rows, **options)

        def epoch() -> Iterator[Array]:
            with iter(batches) as live:
                if labelled:
                    for batch in live:
                        yield batch[GOOD_NAME].data
                else:
                    for batch in live:
                        yield batch.arrays[GOOD_NAME]

        return epoch

    def explain() -> Any:
        labels = file.spec.labels
        return loader(file, batch_rows, rows, **options).explain(
            labels if rows is None else labels[rows]
        )

    shown = ", ".join(f"{k}={v!r}" for k, v in {"memory": MEMORY, **options}.items())
    how = f"batches({batch_rows}, {shown})" + (", as DataArrays" if labelled else "")
    return Way(name, "ours", order, how, make, explain)


def in_order(file: BenchFile, batch_rows: int, **options: Any) -> Way:
    return way(file, batch_rows, "ours, file order", "file", **options)


def full(file: BenchFile, batch_rows: int, **options: Any) -> Way:
    return way(file, batch_rows, "ours, full shuffle", "full", shuffle="full", **options)


def window(file: BenchFile, batch_rows: int, **options: Any) -> Way:
    return way(file, batch_rows, "ours, window shuffle", "window", shuffle="window", **options)
