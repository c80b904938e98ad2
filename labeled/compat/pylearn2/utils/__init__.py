"""Small helpers that old code imported from here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from dask.local import get_sync

from labeled.compat.errors import OldTypeError, OldValueError
from labeled.compat.pylearn2 import config

__all__ = ["as_floatX", "function", "safe_izip", "safe_zip"]


def safe_zip(*sequences: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Zip sequences of one length.

    Raises
    ------
    OldValueError
        If their lengths differ.

    Examples
    --------
    >>> safe_zip((1, 2), "ab")
    [(1, 'a'), (2, 'b')]
    """
    lengths = [len(sequence) for sequence in sequences]
    if len(set(lengths)) > 1:
        raise OldValueError(f"sequences of lengths {lengths} are not zipped")
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
    several = isinstance(outputs, tuple | list)
    wanted = [_only_key(y) for y in (outputs if several else [outputs])]
    graphs = [dict(y.__dask_graph__()) for y in (outputs if several else [outputs])]

    def call(*values: Any) -> Any:
        if len(values) != len(keys):
            raise OldTypeError(f"the function takes {len(keys)} batches, found {len(values)}")
        given = dict(zip(keys, values, strict=True))
        merged = {key: task for graph in graphs for key, task in graph.items()}
        results = list(get_sync({**merged, **given}, wanted))
        return results if several else results[0]

    return call


def _only_key(x: Any) -> tuple[Any, ...]:
    keys = x.__dask_keys__()
    while isinstance(keys, list):
        if len(keys) != 1:
            raise OldValueError(f"a function is built on batches of one chunk, found {x!r}")
        keys = keys[0]
    return tuple(keys)
