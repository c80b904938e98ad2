"""Sparse batches: the one door from spaces to scipy.

Whether a batch is sparse is found without scipy; building one needs the extra
``sparse``. What is made here is always a ``csr_array``; any format is accepted.
"""

from __future__ import annotations

from typing import Any

from labeled.later import extra_module


def is_sparse(x: object) -> bool:
    """Whether `x` is a scipy sparse array or matrix of any format; does not import scipy.

    Examples
    --------
    >>> import scipy.sparse
    >>> is_sparse(scipy.sparse.coo_matrix((2, 3))), is_sparse([0])
    (True, False)
    """
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


def csr(x: Any, shape: tuple[int, int] | None = None) -> Any:
    """Return `x` (dense, sparse, or what ``csr_array`` takes) as a ``scipy.sparse.csr_array``.

    Raises
    ------
    MissingExtraError
        If scipy is not installed.
    """
    return _scipy_sparse().csr_array(x, shape=shape)


def hstack(pieces: list[Any]) -> Any:
    """Return sparse pieces joined along the columns, as a ``csr_array``."""
    return csr(_scipy_sparse().hstack(pieces))


def _scipy_sparse() -> Any:
    return extra_module("scipy.sparse", "sparse batches need scipy", "scipy", "sparse")
