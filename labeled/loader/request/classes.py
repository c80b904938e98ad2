"""The class of each row, or its weight, read from a source that a caller names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.loading import load_rows
from labeled.catalog.source import AnySource
from labeled.errors import LoaderError, did_you_mean
from labeled.selection import Selection


def read_classes(
    asked: str,
    name: Any,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
) -> npt.NDArray[Any]:
    """Read one class label, or one weight, a row.

    Parameters
    ----------
    asked : str
        The argument that names the source; errors begin with it.
    name : str

    Returns
    -------
    array, lengths ``(n_rows,)``
        Stored values, in the order of the rows that were selected.

    Raises
    ------
    LoaderError
        If there is no such source, or its rows are not one label each.
    """
    if not isinstance(name, str) or name not in sources:
        raise LoaderError(f"{asked}={name!r} is no source; {did_you_mean(str(name), sources)}")
    source, n_rows = sources[name], len(selections[name])
    if int(np.prod(source.row_shape)) != 1:
        raise LoaderError(
            f"{asked}={name!r}: its rows have shape {source.row_shape}; it takes one value a row"
        )
    return load_rows(source, selections[name]).reshape(n_rows)
