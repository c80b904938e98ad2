"""Sparse batches of the old kind."""

from __future__ import annotations

import importlib
from typing import Any

from labeled.spaces.arrays import csr


def csr_matrix(x: Any, shape: tuple[int, int] | None = None) -> Any:
    """Return `x` as a ``scipy.sparse.csr_matrix``, where ``*`` multiplies matrices."""
    made = csr(x, shape)  # says what to install where scipy is missing
    return importlib.import_module("scipy.sparse").csr_matrix(made)
