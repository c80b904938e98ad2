"""What all consumers of one epoch must have in common, fixed before it is dealt out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labeled.dataset.dataset import Dataset
from labeled.errors import LoaderError


def shared_options(dataset: Dataset, options: Mapping[str, Any], deals: str) -> dict[str, Any]:
    """Check options of ``batches`` by making a loader of them, and fix the seed of all parts.

    Parameters
    ----------
    options : mapping
        But `shard`.
    deals : str
        Who deals out parts, and how that is said, for messages.

    Raises
    ------
    LoaderError
        If an option is impossible, or `shard` is among them.
    """
    if "shard" in options:
        raise LoaderError(f"shard= is what {deals}")
    loader = dataset.batches(**options)
    line = loader.plan.line
    seeded = options.get("sampler") is None or (line is not None and line.draws)
    return {**options, **({"seed": loader.seed} if seeded else {})}
