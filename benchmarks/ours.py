"""This library, as its documentation says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.subject import Batch, Subject
from benchmarks.timing import Epoch, Way
from labeled.loader.loader import Loader

SEED = 7


def loader(subject: Subject, rows: Any = None, **options: Any) -> Loader:
    """Make a loader over a subject, or over some of its rows."""
    data = subject.dataset if rows is None else subject.dataset.subset(rows)
    options = {"memory": subject.memory, "seed": SEED, **options}
    return data.batches(subject.batch_rows, **options)


def way(
    subject: Subject,
    name: str,
    order: str,
    *,
    rows: Any = None,
    labelled: bool = False,
    **options: Any,
) -> Way:
    """Batches as plain arrays; as the labelled arrays of each batch if `labelled`."""
    name_of_rows = subject.source

    def make() -> Epoch:
        batches = loader(subject, rows, **options)

        def epoch() -> Iterator[Batch]:
            with iter(batches) as live:
                if labelled:
                    for batch in live:
                        yield (batch[name_of_rows].data,)
                else:
                    for batch in live:
                        yield (batch.arrays[name_of_rows],)

        return epoch

    def explain() -> Any:
        labels = subject.labels if rows is None else subject.labels[rows]
        return loader(subject, rows, **options).explain(labels)

    shown = ", ".join(f"{k}={v!r}" for k, v in {"memory": subject.memory, **options}.items())
    how = f"batches({subject.batch_rows}, {shown})" + (", as DataArrays" if labelled else "")
    return Way(name, "ours", order, how, make, explain)


def in_order(subject: Subject, **options: Any) -> Way:
    return way(subject, "ours, file order", "file", **options)


def full(subject: Subject, **options: Any) -> Way:
    return way(subject, "ours, full shuffle", "full", shuffle="full", **options)


def window(subject: Subject, **options: Any) -> Way:
    return way(subject, "ours, window shuffle", "window", shuffle="window", **options)


def chosen(subject: Subject, **options: Any) -> Way:
    """A random list of 80 % of the rows."""
    rows = chosen_rows(subject.n_rows)
    return way(subject, "ours, 80 % list", "list", rows=rows, **options)


def chosen_rows(n_rows: int) -> npt.NDArray[np.int64]:
    """Return a random list of 80 % of the rows, as a split into train and test makes it."""
    return np.random.default_rng(9).permutation(n_rows)[: n_rows * 4 // 5]
