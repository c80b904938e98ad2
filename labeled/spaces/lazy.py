"""Dask batches: the same conversions, chunk by chunk, nothing computed.

A chunk holds whole rows (other axes are rechunked together) and is converted by the
very function that converts a numeric batch, so chunks stay NumPy or CuPy and the two
sides cannot disagree. The type and dtype of the result are found by converting zero
rows of the input's meta; dask never has to guess. Chunks of unknown length work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from labeled.device import concat
from labeled.errors import SpaceError
from labeled.later import Later
from labeled.spaces.sparse import hstack, is_sparse

da: Any = Later("dask.array")
Run = Callable[..., Any]


def by_chunk(
    run: Run, x: Any, source: Any, target: Any, branch: str, *, counted: bool = False
) -> Any:
    """Return the dask array of `run` applied to every chunk of rows of `x`.

    Parameters
    ----------
    run : function (chunk, source, target, branch, first_row=0) -> array
        Converts a numeric batch.
    x : dask array, in `source`
    source, target : ArraySpace
    branch : str
        Begins the messages.
    counted : bool
        Whether values may be refused: each chunk gets its first row, for the message.
    """
    axis, batch_axis = source.get_batch_axis(), target.get_batch_axis()
    whole = x.rechunk({i: -1 for i in range(x.ndim) if i != axis})
    meta = meta_of(run, x, source, target, branch)
    sizes = target.sizes(0)
    inner = tuple(axis if i == axis else x.ndim + i for i in range(x.ndim))
    outer = tuple(axis if i == batch_axis else 3 * x.ndim + i for i in range(len(sizes)))
    starts = first_rows(whole, axis) if counted else None
    return da.blockwise(
        partial(_run_chunk, run, source, target, branch, counted),
        outer,
        whole,
        inner,
        starts,
        None if starts is None else (axis,),
        token="format_as",
        new_axes={label: sizes[i] for i, label in enumerate(outer) if label != axis},
        concatenate=None,  # other axes are one chunk each: nested lists of one, not a copy
        align_arrays=False,
        dtype=meta.dtype,
        meta=meta,
    )


def _run_chunk(
    run: Run, source: Any, target: Any, branch: str, counted: bool, chunk: Any, start: Any
) -> Any:
    while isinstance(chunk, list):
        (chunk,) = chunk
    if start is not None:
        return run(chunk, source, target, branch, first_row=int(start[0]))
    try:
        return run(chunk, source, target, branch)
    except SpaceError as error:
        if not counted:
            raise
        text = f"{error}; the row is counted within its chunk, as lengths of chunks are unknown"
        raise type(error)(text) from error


def first_rows(x: Any, axis: int) -> Any:
    """Return a dask array with the first row of each chunk of `x`, or None if unknown."""
    lengths = x.chunks[axis]
    if any(n != n for n in lengths):
        return None
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
    return da.from_array(starts, chunks=1, name=f"first-row-{tokenize(x.chunks[axis])}")


def meta_of(run: Run, x: Any, source: Any, target: Any, branch: str) -> Any:
    """Return an empty array of the kind and dtype that `run` makes of chunks of `x`."""
    empty = x._meta if is_sparse(x._meta) else x._meta.reshape(source.sizes(0))
    if is_sparse(empty):
        empty = type(empty)(source.sizes(0), dtype=x.dtype)
    made = run(empty, source, target, branch)
    return made if is_sparse(made) else made.reshape((0,) * made.ndim)


def lazy_concat(pieces: list[Any]) -> Any:
    """Return batches of (batch, feature), some of them dask's, joined along the features.

    Where lengths are not known, chunk meets chunk; what they hold is compared when computed.

    Raises
    ------
    SpaceError
        If lengths are not known and the pieces have different numbers of chunks.
    """
    if not any(n != n for piece in pieces for n in piece.shape):
        return da.concatenate(pieces, axis=1)
    whole = [da.asarray(piece).rechunk({1: -1}) for piece in pieces]
    counts = [piece.numblocks[0] for piece in whole]
    if len(set(counts)) > 1:
        raise SpaceError(
            f"the components have {counts} chunks of rows, of lengths not known; call "
            "compute_chunk_sizes() on them first"
        )
    metas = [piece._meta for piece in whole]
    return da.blockwise(
        _joined,
        (0, 1),
        *(part for i, piece in enumerate(whole) for part in (piece, (0, 2 + i))),
        token="format_as",
        new_axes={1: sum(piece.shape[1] for piece in whole)},
        concatenate=True,
        align_arrays=False,
        meta=hstack(metas) if any(map(is_sparse, metas)) else concat(metas, axis=1),
    )


def _joined(*pieces: Any) -> Any:
    lengths = [piece.shape[0] for piece in pieces]
    if len(set(lengths)) > 1:
        raise SpaceError(f"the components differ in rows: {lengths} in one chunk")
    return hstack(list(pieces)) if is_sparse(pieces[0]) else concat(list(pieces), axis=1)
