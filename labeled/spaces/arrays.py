"""What spaces do to plain arrays: cast them, move and flatten axes, expand labels.

No space and no name of a dim is known here. Which casts are allowed is decided in one place: a
dtype of None means "keep what comes"; a batch may be wider or narrower than the dtype asked
for, but complex to real, float to integer and a number to bool are refused. Integers are
narrowed only where every value fits, which costs one pass over the values.

Rows are flattened in the canonical order ``('b', 0, ..., 'c')`` always, never in a space's own
order: the position of (row, column, channel) is ``(row * columns + column) * channels +
channel``. Results are views wherever strides allow.

Whether a batch is sparse is found without scipy; making one needs the extra ``sparse``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from labeled import permute
from labeled._optional import extra_module
from labeled.device import Array, astype, dtype_of, is_cupy, namespace, permute_dims, to_host
from labeled.errors import SpaceError, SpaceTypeError

Axes = Sequence[str | int]
Mode = Literal["merge", "concatenate"]
_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


# ---------------------------------------------------------------- kinds of batch
def is_dask(batch: Any) -> bool:
    """Whether `batch` is a dask array; does not import dask."""
    return hasattr(batch, "__dask_graph__") and hasattr(batch, "_meta")


def is_lazy(batch: Any) -> bool:
    """Whether `batch`, or any part of a tuple, is a dask array."""
    return any(map(is_lazy, batch)) if isinstance(batch, tuple) else is_dask(batch)


def is_sparse(x: object) -> bool:
    """Whether `x` is a scipy sparse array or matrix of any format; does not import scipy.

    Examples
    --------
    >>> import scipy.sparse
    >>> is_sparse(scipy.sparse.coo_matrix((2, 3))), is_sparse([0])
    (True, False)
    """
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


# ---------------------------------------------------------------- casts
def as_dtype(dtype: DTypeLike | None) -> np.dtype[Any] | None:
    """Return `dtype` as NumPy's own, None as None.

    Raises
    ------
    SpaceTypeError
        If it is not bool, integer, float or complex.

    Examples
    --------
    >>> as_dtype("f4"), as_dtype(np.uint8), as_dtype(None)
    (dtype('float32'), dtype('uint8'), None)
    """
    if dtype is None:
        return None
    found = numpy_dtype(dtype)
    if found.kind not in _RANK:
        raise SpaceTypeError(f"a space's dtype is bool, integer, float or complex, not {found}")
    return found.newbyteorder("=")


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a dtype of any library as NumPy's; torch's have names of NumPy's.

    Raises
    ------
    SpaceTypeError
        If it is none, or one of several values.
    """
    wanted = getattr(dtype, "as_numpy_dtype", dtype)  # of TensorFlow's
    if type(dtype).__module__ == "torch":
        wanted = str(dtype).removeprefix("torch.")
    try:
        found: np.dtype[Any] = np.dtype(wanted)
        why = "it is of several values" if found.subdtype or found.fields else ""
    except (TypeError, ValueError) as error:
        why = str(error)
    if isinstance(wanted, str) and wanted == "bfloat16":  # known once JAX is imported
        why = (
            "NumPy has none of that name; take float32, and cast where the model is: "
            "x.to(torch.bfloat16) or torch.autocast, x.astype(jax.numpy.bfloat16)"
        )
    if why:
        raise SpaceTypeError(f"dtype={dtype!r} is not a dtype: {why}")
    return found


def why_not_cast(
    found: np.dtype[Any], wanted: np.dtype[Any] | None, *, scaled: bool = False
) -> str | None:
    """Say why values of one dtype, scaled or not, cannot become another's, or return None.

    Examples
    --------
    >>> why_not_cast(np.dtype("f8"), np.dtype("i4"))
    'float64 is not cast to int32, which would drop fractions and NaN'
    >>> why_not_cast(np.dtype("i8"), np.dtype("u1")) is None
    True
    >>> why_not_cast(np.dtype("u1"), np.dtype("u1"), scaled=True)
    'a scaled result is not cast to uint8; ask for a float dtype'
    """
    if scaled and wanted is not None and wanted.kind in "biu":
        return f"a scaled result is not cast to {wanted}; ask for a float dtype"
    if wanted is not None and wanted.kind not in _RANK:  # dates, texts, bytes of no type
        texts = wanted.kind in "SU"  # which lose their ends where they are longer
        fits = np.can_cast(found, wanted, "safe" if texts else "same_kind")
        if wanted.kind == "V" or not wanted.itemsize:  # NumPy casts anything to these
            fits = found == wanted
        hint = "" if wanted.itemsize else "; give it a length, as in 'U21'"
        return None if fits else f"{found} is not cast to {wanted}{hint}"
    if scaled:
        return None
    if found.kind == "O":
        return "dtype object holds no numbers (neither text nor rows of different lengths are cast)"
    if wanted is None or found == wanted:
        return None
    if found.kind not in _RANK:
        return f"{found} holds no numbers, expected {wanted}"
    if _RANK[found.kind] <= _RANK[wanted.kind]:
        return None
    lost = {"b": "every value but 0 and 1", "u": "fractions and NaN", "i": "fractions and NaN"}
    dropped = lost.get(wanted.kind, "imaginary parts")
    return f"{found} is not cast to {wanted}, which would drop {dropped}"


def cast(x: Array, wanted: np.dtype[Any] | None, batch_axis: int = 0) -> Array:
    """Return `x` in dtype `wanted`; `x` itself if that is None or already so.

    Parameters
    ----------
    x : array
        Any shape, also a scipy sparse matrix.
    wanted : dtype or None
        None keeps the dtype.
    batch_axis : int
        The axis along which rows are counted in messages.

    Raises
    ------
    SpaceTypeError
        If the cast would lose meaning (:func:`why_not_cast`).
    SpaceError
        If an integer does not fit the narrower dtype; names the value and its row.

    Examples
    --------
    >>> cast(np.array([1, 2]), np.dtype("uint8"))
    array([1, 2], dtype=uint8)
    """
    found = dtype_of(x)
    if wanted is None or found == wanted:
        return x
    reason = why_not_cast(found, wanted)
    if reason is not None:
        raise SpaceTypeError(reason)
    if is_sparse(x) and not getattr(x, "has_canonical_format", True):
        x = x.copy()  # what lies at one place more than once counts as its sum
        x.sum_duplicates()
    check_fits(x, wanted, batch_axis)
    return astype(x, wanted)


def check_fits(x: Array, wanted: np.dtype[Any] | None, batch_axis: int = 0) -> None:
    """Raise a `SpaceError` that names the first integer `wanted` cannot hold, and its row."""
    found = dtype_of(x)
    integers = wanted is not None and found.kind in "iu" and wanted.kind in "iu"
    if wanted is None or not integers or np.can_cast(found, wanted, "safe"):
        return
    x = x.gathered() if isinstance(x, permute.Taken) else x
    limits = np.iinfo(wanted)
    stored = x.tocoo() if is_sparse(x) else None
    values = x if stored is None else stored.data
    offender = _first_outside(values, int(limits.min), int(limits.max))
    if offender is None:
        return
    value, position = offender
    row = position[batch_axis] if stored is None else int(stored.row[position[0]])
    wrong = f"value {value} in row {row} does not fit {wanted} ({limits.min} to {limits.max})"
    raise SpaceError(f"{wrong}; ask for a wider dtype").at_row(row)


def _first_outside(x: Array, low: int, high: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the first value of `x` outside ``[low, high]`` and where it is, or None."""
    if x.size == 0:
        return None
    xp = namespace(x)
    if low <= int(xp.min(x)) and int(xp.max(x)) <= high:
        return None
    host = to_host(x)
    limits = np.iinfo(host.dtype)  # comparing beyond them would overflow
    bad = (host < max(low, limits.min)) | (host > min(high, limits.max))
    position = tuple(int(i) for i in np.argwhere(bad)[0])
    return int(host[position]), position


def value_for(source: str, option: Any) -> Any:
    """Return what an option says of a source: the same for all, or a mapping by their names."""
    return option.get(source) if isinstance(option, Mapping) else option


# ---------------------------------------------------------------- axes
def canonical_axes(n_spatial: int) -> tuple[str | int, ...]:
    """Return the axis order in which rows are flattened.

    Examples
    --------
    >>> canonical_axes(2)
    ('b', 0, 1, 'c')
    """
    return ("b", *range(n_spatial), "c")


def move_axes(x: Array, source: Axes, target: Axes) -> Array:
    """Return `x`, whose axes are in order `source`, in order `target`: a view, or `x` itself.

    Examples
    --------
    >>> move_axes(np.zeros((8, 3, 4, 5)), ("b", "c", 0, 1), ("c", 0, 1, "b")).shape
    (3, 4, 5, 8)
    """
    source, target = tuple(source), tuple(target)
    return x if source == target else permute_dims(x, tuple(map(source.index, target)))


# ---------------------------------------------------------------- labels
def check_labels(labels: Array, max_labels: int | None) -> None:
    """Check that labels are integers in ``[0, max_labels)``.

    Parameters
    ----------
    labels : array (batch, index) or (batch,)
        Any integer dtype.
    max_labels : int or None
        None: only the sign is checked.

    Raises
    ------
    SpaceTypeError
        If the dtype is not integer.
    SpaceError
        If a label is out of range; names the label and its row.

    Examples
    --------
    >>> check_labels(np.array([[3], [10]]), 10)
    Traceback (most recent call last):
    labeled.errors.SpaceError: label 10 in row 1 is out of range, expected 0 to 9
    """
    found = dtype_of(labels)
    if found.kind not in "iu":
        remedy = "cast them first, e.g. with astype('int64')"
        raise SpaceTypeError(f"labels must be integers, found {found}; {remedy}")
    top = np.iinfo(found).max if max_labels is None else max_labels - 1
    offender = _first_outside(labels, 0, int(top))
    if offender is not None:
        value, position = offender
        limit = "0 or more" if max_labels is None else f"0 to {max_labels - 1}"
        row = position[0]
        text = f"label {value} in row {row} is out of range, expected {limit}"
        raise SpaceError(text).at_row(row)


def one_hot(
    labels: Array, max_labels: int, mode: Mode, dtype: DTypeLike, *, sparse: bool = False
) -> Any:
    """Return indicator rows of `labels`, after checking every label.

    A label that is negative or beyond the last one is an error that names the value and its
    row; it never wraps into another column.

    Parameters
    ----------
    labels : array (batch, index)
        Integers in ``[0, max_labels)``.
    max_labels : int
        How many labels there are.
    mode : "merge" or "concatenate"
        Mark all labels of a row in one block (repeats count once), or give each a block of
        its own.
    dtype : dtype
        Of the result.
    sparse : bool
        Return a ``scipy.sparse.csr_array``.

    Returns
    -------
    array
        ``merge``: (batch, max_labels); ``concatenate``: (batch, index * max_labels). New
        memory, of the kind `labels` are.

    Examples
    --------
    >>> one_hot(np.array([[0, 2], [1, 1]]), 3, "merge", np.uint8)
    array([[1, 0, 1],
           [0, 1, 0]], dtype=uint8)
    >>> one_hot(np.array([[0, 2]]), 3, "concatenate", np.uint8, sparse=True).toarray()
    array([[1, 0, 0, 0, 0, 1]], dtype=uint8)
    """
    check_labels(labels, max_labels)
    xp = namespace(labels)
    n, k = labels.shape
    width = max_labels if mode == "merge" else k * max_labels
    blocks = xp.arange(k, dtype=xp.int64) * (0 if mode == "merge" else max_labels)
    columns = astype(labels, np.int64) + blocks
    if sparse:
        places = (np.repeat(np.arange(n), k), columns.reshape(-1))
        made = csr((np.ones(n * k, dtype), places), (n, width))
        made.data[:] = 1  # repeats were added up
        return made
    if isinstance(labels, np.ndarray) or is_cupy(labels):
        made = xp.zeros((n, width), dtype)
        made[xp.arange(n)[:, None], columns] = 1
        return made
    marks = columns[:, :, None] == xp.arange(width, dtype=xp.int64)
    return astype(xp.any(marks, axis=1), dtype)


# ---------------------------------------------------------------- memory
def csr(x: Any, shape: tuple[int, int] | None = None) -> Any:
    """Return `x` (dense, sparse, or what ``csr_array`` takes) as a ``scipy.sparse.csr_array``.

    Raises
    ------
    MissingExtraError
        If scipy is not installed.
    SpaceTypeError
        If scipy does not know the dtype, such as float16.
    """
    try:
        return _scipy_sparse().csr_array(x, shape=shape)
    except ValueError as error:
        raise SpaceTypeError(f"{error}; ask for another dtype") from error


def hstack(pieces: list[Any]) -> Any:
    """Return sparse pieces joined along the columns, as a ``csr_array``."""
    return csr(_scipy_sparse().hstack(pieces))


def vstack(rows: list[Any]) -> Any:
    """Return sparse rows one below the other, as a ``csr_array``."""
    return csr(_scipy_sparse().vstack(rows))


def _scipy_sparse() -> Any:
    return extra_module("scipy.sparse", "sparse batches need scipy", "scipy", "sparse")
