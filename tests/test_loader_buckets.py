"""Examples of about equal size share a batch: within windows, and without losing any law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import labeled
from labeled.errors import LoaderError


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 200, 1000)
    x = [np.full(n, i, "u2") for i, n in enumerate(sizes)]
    return labeled.write(
        tmp_path_factory.mktemp("buckets") / "x.h5", {"x": x, "y": np.arange(1000)}
    )


def padding_waste(sizes, batches):
    """The share of padding when each batch is padded to its longest example."""
    held = sum(len(rows) * sizes[rows].max() for rows in batches)
    return 1 - sizes.sum() / held


def epoch(loader: Any) -> list[np.ndarray[Any, Any]]:
    return [batch.rows[: batch.count] for batch in loader]


@pytest.mark.parametrize("options", [{}, {"last": "drop"}, {"last": "pad"}, {"threads": 0}])
@pytest.mark.parametrize("parts", [1, 3])
def test_every_row_once_and_little_padding(path: str, parts: int, options: Any) -> None:
    dataset = labeled.open_dataset(path)
    sizes = np.asarray(dataset["x"].sizes)
    seen, waste, plain = [], [], []
    for index in range(parts):
        told = {"shuffle": "window", "seed": 7, "window_rows": 400, "shard": (index, parts)}
        loader = dataset.batches(16, bucket=True, **told, **options)
        batches = epoch(loader)
        seen += batches
        waste.append(padding_waste(sizes, batches) if parts == 1 else 0.0)
        usual = epoch(dataset.batches(16, **told, **options))
        plain.append(padding_waste(sizes, usual) if parts == 1 else 1.0)
        assert sorted(map(len, batches)) == sorted(map(len, usual))
    rows = np.concatenate(seen)
    assert len(np.unique(rows)) == len(rows) >= 1000 - 16 * parts * ("last" in options)
    assert max(waste) < 0.2 * min(plain) + 0.05


def test_rows_are_those_that_were_asked_for_and_the_order_differs_by_epoch(path: str) -> None:
    loader = labeled.open_dataset(path).batches(
        16, shuffle=True, seed=7, bucket="x", ragged="pad", window_rows=300
    )
    first = []
    for batch in loader:
        first.append(batch.rows)
        for row, values, inside in zip(
            batch.rows, batch["x"].values, batch["x_mask"].values, strict=True
        ):
            assert (values[inside] == row).all()
        np.testing.assert_array_equal(batch["y"].values, batch.rows)
    assert not np.array_equal(np.concatenate(first), np.concatenate(epoch(loader)))
    sizes = labeled.open_dataset(path)["x"].sizes
    means = [sizes[rows].mean() for rows in first]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5  # batches are shuffled


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shuffle": False}, "shuffle='window'"),
        ({"shuffle": "full"}, "shuffle='window'"),
        ({"shuffle": True, "bucket": "y"}, r"must name the ragged source.*\['x'\]"),
        ({"weights": np.ones(1000)}, "shuffle='window'"),
    ],
)
def test_what_has_no_meaning_is_refused(path: str, options: Any, words: str) -> None:
    with pytest.raises(LoaderError, match=words):
        labeled.open_dataset(path).batches(16, **{"bucket": True, **options})
