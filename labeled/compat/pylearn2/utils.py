"""Small helpers, random number generators, and labels as indicator rows by the old rules.

Labels out of range:

=============  ===========================  ====================================
layout         dense                        sparse
=============  ===========================  ====================================
`concatenate`  label too high: IndexError   wraps into another index's columns
`merge`        label too high: IndexError   ValueError; repeats add up to 2, 3...
`stack`        one more axis                ValueError
=============  ===========================  ====================================

A negative label counts from the end in the dense layouts. Native one-hot
(:mod:`labeled.spaces.arrays`) refuses all of these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.local import get_sync

from labeled.compat.errors import check, old, require
from labeled.compat.pylearn2 import config
from labeled.spaces import arrays


def safe_zip(*sequences: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Zip sequences of one length.

    Raises
    ------
    ValueError
        If their lengths differ.

    Examples
    --------
    >>> safe_zip((1, 2), "ab")
    [(1, 'a'), (2, 'b')]
    """
    lengths = [len(sequence) for sequence in sequences]
    check(len(set(lengths)) < 2, f"sequences of lengths {lengths} are not zipped")
    return list(zip(*sequences, strict=True))


def safe_izip(*sequences: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The same as :func:`safe_zip`, one by one."""
    return iter(safe_zip(*sequences))


def as_floatX(x: Any) -> Any:
    """Return `x` in floatX."""
    return np.asarray(x).astype(config.floatX) if np.isscalar(x) else x.astype(config.floatX)


def function(inputs: Iterable[Any], outputs: Any, **ignored: Any) -> Callable[..., Any]:
    """Return a function from values of lazy batches to the value of what was built on them.

    Parameters
    ----------
    inputs : lazy batches
        As :meth:`~labeled.compat.pylearn2.space.Space.make_theano_batch` makes them: of
        one chunk each.
    outputs : dask array, or tuple or list of them
    **ignored
        Options of the old compiler (``on_unused_input``, ``name``, ...), without meaning.

    Returns
    -------
    function
        Takes one array an input, in order.

    Examples
    --------
    >>> from labeled.compat.pylearn2.space import Conv2DSpace, VectorSpace
    >>> rows, images = VectorSpace(4), Conv2DSpace((2, 2), channels=1)
    >>> x = rows.make_theano_batch()
    >>> function([x], rows.format_as(x, images))(np.zeros((3, 4))).shape
    (3, 2, 2, 1)
    """
    keys = [_only_key(x) for x in inputs]
    several = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    wanted = [_only_key(y) for y in several]
    graph: dict[Any, Any] = {}
    for y in several:
        graph |= dict(y.__dask_graph__())

    def call(*values: Any) -> Any:
        check(len(values) == len(keys), f"{len(values)} batches for {len(keys)} inputs", TypeError)
        results = list(get_sync({**graph, **dict(zip(keys, values, strict=True))}, wanted))
        return results if isinstance(outputs, tuple | list) else results[0]

    return call


def _only_key(x: Any) -> tuple[Any, ...]:
    check(x.npartitions == 1, f"a function is built on batches of one chunk, found {x!r}")
    return (x.name, *(0,) * x.ndim)


# ---------------------------------------------------------------- random numbers
DEFAULT_SEED = 42


def permutation(state: np.random.RandomState, n: int) -> npt.NDArray[np.int64]:
    """Return a random order of ``range(n)``, drawn as the old code drew it.

    Shuffling a list, shuffling an array and permuting ``range(n)`` are one and the same order.
    """
    rows = np.arange(n, dtype=np.int64)
    state.shuffle(rows)
    return rows


def make_np_rng(rng_or_seed: Any = None, default_seed: Any = None, which_method: Any = None) -> Any:
    """Return a ``RandomState``: the one given, or one made of a seed.

    Parameters
    ----------
    rng_or_seed : RandomState, int, sequence of int or None
        Anything with the methods of `which_method` is handed back as it is.
    default_seed : int or sequence of int, optional
        Where nothing is given; 42 without it.
    which_method : str or list of str, optional
        What tells a generator.

    Examples
    --------
    >>> int(make_np_rng(3).randint(100)) == int(np.random.RandomState(3).randint(100))
    True
    """
    names = [which_method] if isinstance(which_method, str) else (which_method or ["shuffle"])
    if rng_or_seed is not None and all(hasattr(rng_or_seed, name) for name in names):
        return rng_or_seed
    seed = default_seed if rng_or_seed is None else rng_or_seed
    return np.random.RandomState(DEFAULT_SEED if seed is None else seed)


# ---------------------------------------------------------------- labels as indicator rows
MODES = ("concatenate", "merge", "stack")


def csr_matrix(x: Any, shape: tuple[int, int] | None = None) -> Any:
    """Return `x` as a ``scipy.sparse.csr_matrix``, where ``*`` multiplies matrices."""
    made = arrays.csr(x, shape)  # says what to install where scipy is missing
    return importlib.import_module("scipy.sparse").csr_matrix(made)


class OneHotFormatter:
    """Writes integer targets as indicator rows.

    Parameters
    ----------
    max_labels : int
        How many labels there are.
    dtype : dtype, optional
        Of the result; floatX if not given.

    Examples
    --------
    >>> OneHotFormatter(3, dtype="uint8").format(np.array([[0, 2]]), mode="concatenate")
    array([[1, 0, 0, 0, 0, 1]], dtype=uint8)
    """

    def __init__(self, max_labels: Any, dtype: Any = None) -> None:
        whole = isinstance(max_labels, int | np.integer) and max_labels >= 0
        check(whole, f"max_labels is an integer, 0 or more, not {max_labels!r}")
        self._max_labels = int(max_labels)
        try:
            self._dtype = np.dtype(config.floatX if dtype is None or dtype == "floatX" else dtype)
        except TypeError as error:
            raise old(TypeError, f"dtype {dtype!r} is not a dtype: {error}") from error

    def format(self, targets: Any, mode: str = "stack", sparse: bool = False) -> Any:
        """Return the indicator rows of `targets`.

        Parameters
        ----------
        targets : array of int, (n,) or (n, k)
            With one axis, a single example of n labels for `concatenate` and `merge`.
        mode : {'stack', 'concatenate', 'merge'}
        sparse : bool
            Return a csr matrix.

        Returns
        -------
        array or csr matrix
            `stack`: one axis more; `concatenate`: k blocks side by side; `merge`: one block.
        """
        dtype = targets.dtype
        check(mode in MODES, f"mode must be one of {MODES}, found {mode!r}")
        check(targets.ndim < 3, f"targets have 1 or 2 axes, not {targets.shape}")
        check("int" in str(dtype), f"targets are integers, found {dtype}", TypeError)
        check(not (sparse and mode == "stack"), "a sparse matrix has no axis to stack along")
        if arrays.is_dask(targets):
            return _lazy(targets, self._max_labels, mode, self._dtype, sparse)
        return (_sparse if sparse else _dense)(targets, self._max_labels, mode, self._dtype)

    theano_expr = format  # the same, of a dask array; labels are checked when they are computed


def _dense(targets: Any, max_labels: int, mode: str, dtype: np.dtype[Any]) -> Any:
    for label in (int(targets.max()), int(targets.min())) if targets.size else ():
        check(-max_labels <= label < max_labels, f"label {label} of {max_labels}", IndexError)
    rows = np.atleast_2d(targets).astype(np.int64) % max(max_labels, 1)
    made = arrays.one_hot(rows, max_labels, "merge" if mode == "merge" else "concatenate", dtype)
    if mode == "stack":
        return made.reshape((*targets.shape, max_labels))
    return made if targets.ndim == 2 else made[0]


def _sparse(targets: Any, max_labels: int, mode: str, dtype: np.dtype[Any]) -> Any:
    targets = np.atleast_2d(targets)
    n, k = targets.shape
    width = max_labels if mode == "merge" else k * max_labels
    offsets = 0 if mode == "merge" else np.arange(k) * max_labels
    columns = (targets.astype(np.int64) + offsets).reshape(-1)
    check(not ((columns < 0) | (columns >= width)).any(), f"a label is beyond {width} columns")
    return csr_matrix((np.ones(n * k, dtype), (np.repeat(np.arange(n), k), columns)), (n, width))


def _lazy(targets: Any, max_labels: int, mode: str, dtype: np.dtype[Any], sparse: bool) -> Any:
    """Do it chunk by chunk, each of whole rows."""
    run, stacks = _sparse if sparse else _dense, mode == "stack"
    require(targets.ndim == 2 or not sparse, "lazy sparse indicators need two axes")
    # a length that is not known is that of one chunk
    rows = targets if stacks or targets.numblocks[-1] == 1 else targets.rechunk({-1: -1})
    width = max_labels * (targets.shape[-1] if mode == "concatenate" else 1)
    return rows.map_blocks(
        partial(run, max_labels=max_labels, mode=mode, dtype=dtype),
        new_axis=[targets.ndim] if stacks else None,
        chunks=(*(rows.chunks if stacks else rows.chunks[:-1]), (width,)),
        dtype=dtype,
        meta=csr_matrix(np.zeros((0, width), dtype)) if sparse else np.empty(0, dtype),
    )


def convert_to_one_hot(
    integer_vector: Any,
    dtype: Any = None,
    max_labels: int | None = None,
    mode: str = "stack",
    sparse: bool = False,
) -> Any:
    """Return the indicator rows of integer labels, as many labels as the highest needs.

    Examples
    --------
    >>> convert_to_one_hot([0, 2], dtype="uint8")
    array([[1, 0, 0],
           [0, 0, 1]], dtype=uint8)
    """
    labels = np.asarray(integer_vector)
    require(labels.size == 0 or labels.min() >= 0, "labels are 0 or more")
    require(labels.ndim <= 2, f"labels have 1 or 2 axes, found {labels.ndim}")
    count = int(labels.max(initial=-1)) + 1 if max_labels is None else max_labels
    return OneHotFormatter(count, dtype=dtype).format(labels, mode=mode, sparse=sparse)


def compressed_one_hot(
    labels: Any, dtype: Any = None, simplify_binary: bool = True
) -> tuple[Any, Any]:
    """Return indicator rows of the labels that occur, and these labels in ascending order.

    Parameters
    ----------
    labels : array of int, (n,)
    simplify_binary : bool
        Write two labels as one column of 0 and 1.

    Examples
    --------
    >>> rows, found = compressed_one_hot(np.array([7, 3, 7, 9]), dtype="uint8")
    >>> rows
    array([[0, 1, 0],
           [1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]], dtype=uint8)
    >>> found
    array([3, 7, 9])
    >>> compressed_one_hot(np.array([7, 3, 7]), dtype="uint8")[0].T
    array([[1, 0, 1]], dtype=uint8)
    """
    found = np.asarray(labels)
    check(found.dtype.kind in "iu", f"labels are integers, found {found.dtype}", TypeError)
    check(found.ndim == 1, f"labels have one axis, not {found.shape}")
    values, numbers = np.unique(found, return_inverse=True)
    if simplify_binary and values.size == 2:
        return numbers[:, None].astype(config.floatX if dtype is None else dtype), values
    return convert_to_one_hot(numbers, dtype=dtype, max_labels=values.size), values
