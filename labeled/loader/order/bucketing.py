"""Batches of examples of about equal size: which source is measured for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.ragged import RaggedSource
from labeled.errors import LoaderError
from labeled.selection import Selection

Rows = npt.NDArray[np.int64]


def bucket_source(
    asked: bool | str, sources: Mapping[str, Any], shuffle: Any, *, repeats: bool
) -> RaggedSource:
    """Find the source whose examples are measured for buckets.

    Raises
    ------
    LoaderError
        If it is none, several could be meant, or rows are not shuffled within windows.
    """
    if shuffle not in (True, "window") or repeats:
        raise LoaderError(
            f"bucket={asked!r} arranges rows within their windows: give shuffle='window' with it, "
            f"and neither balance, weights nor sampler"
        )
    ragged = [name for name, source in sources.items() if isinstance(source, RaggedSource)]
    name = ragged[0] if asked is True and len(ragged) == 1 else asked
    if name not in ragged:
        raise LoaderError(
            f"bucket={asked!r} must name the ragged source whose examples are measured; there are "
            f"{ragged or 'none'}"
        )
    found: RaggedSource = sources[name]
    return found


def selected_sizes(source: RaggedSource, selection: Selection, group: Rows | None) -> Rows:
    """Return how many elements the example at each grouped position has."""
    sizes: Rows = source.sizes[selection.rows]
    return sizes if group is None else sizes[group]
