"""Permuting copies at the speed of memory: axes reordered, cast, scaled and shifted in one pass.

Positions only: no dim has a name here, and nothing here knows what an array holds. Callers that
know names turn them into axis numbers once, then ask for :func:`copy` or :func:`gather`.

What is decided here is *how* an array is copied: tiles of plain NumPy, or NumPy's own copy where
that is as fast as memory (:mod:`~labeled.permute.tiles`), or compiled kernels
(:mod:`~labeled.permute.compiled`, the extra ``fast``), which are imported by the first copy large
enough to earn the second that importing and compiling them costs. CuPy arrays have a kernel of
their own (:mod:`~labeled.permute.cuda`); those of any other array-API library are served by its
own functions. All ways give the same result; a scaled copy multiplies and adds in two rounded
steps on every one of them.

The environment variable ``LABELED_FAST=0`` turns the compiled kernels off; it is read when a
shape is copied for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled import device
from labeled.errors import ArrayError, DimsError
from labeled.permute import arguments, compiled, cuda, tiles
from labeled.permute.arguments import Array
from labeled.permute.compiled import available, describe, forget
from labeled.permute.plan import Request, plan

__all__ = ["Taken", "available", "copy", "describe", "empty", "forget", "gather"]


class Taken:
    """Rows of an array that are still to be gathered: :func:`copy` does it on the way.

    Parameters
    ----------
    src : array
        At least one axis; rows lie along axis 0.
    rows : 1-D array of integers

    Examples
    --------
    >>> taken = Taken(np.arange(12).reshape(4, 3), [3, 0])
    >>> taken.shape, copy(taken, (1, 0)).tolist()
    ((2, 3), [[9, 0], [10, 1], [11, 2]])
    """

    def __init__(self, src: Any, rows: Any) -> None:
        self.src, self.rows = src, rows
        self.shape, self.dtype, self.ndim = (len(rows), *src.shape[1:]), src.dtype, src.ndim

    def reshape(self, shape: Sequence[int]) -> Taken:
        """Return the same rows, each in another shape."""
        return Taken(self.src.reshape((len(self.src), *shape[1:])), self.rows)

    def gathered(self) -> Any:
        """Return the rows as an array."""
        return gather(self.src, self.rows, range(self.ndim))


def copy(
    src: Any,
    axes: Sequence[int],
    *,
    out: Any = None,
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
    threads: int | None = None,
) -> Any:
    """Copy an array into another order of its axes, cast and scaled on the way.

    Parameters
    ----------
    src : array
        Any shape, dtype and strides. An array of another array-API library than NumPy stays in
        it and is served by that library's own functions (`out` and `threads` are NumPy's only).
    axes : sequence of int
        Axis ``k`` of the result is axis ``axes[k]`` of `src`.
    out : ndarray, optional
        C-contiguous destination of the result's shape and dtype, clear of `src`. Large ones are
        written fastest where they start at a cache line (64 bytes), as :func:`empty` makes them.
    dtype : dtype, optional
        Of the result. Not given: that of `src`, in this machine's byte order; or, where integers
        are scaled or shifted, float32 for integers of up to 32 bits and float64 for wider ones.
    scale, shift : scalar or array, optional
        The result is ``(src * scale + shift).astype(dtype)``. Arrays broadcast against `src`, in
        the order of *its* axes. Computed in float32 where `src` has at most 32 bits and the
        result is float32 or smaller, in float64 otherwise. Without both this is a plain cast,
        as ``astype`` makes it.
    threads : int, optional
        At most so many; not given: as many as pay. 1 never starts a thread.

    Returns
    -------
    ndarray
        `out`, or a new C-contiguous array.

    Raises
    ------
    DimsError
        If `axes` is not an order of the axes of `src`.
    ArrayError
        If `out`, `scale` or `shift` do not fit, or `out` shares memory with `src`.

    Examples
    --------
    >>> images = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    >>> copy(images, (0, 2, 3, 1)).shape
    (2, 2, 2, 3)
    >>> copy(images, (1, 2, 3, 0), scale=1 / 255).dtype
    dtype('float32')
    """
    if isinstance(src, Taken):
        changes = {"dtype": dtype, "scale": scale, "shift": shift, "threads": threads}
        return gather(src.src, src.rows, axes, out=out, **changes)
    if isinstance(src, np.ndarray | np.generic):
        return _permute(np.asarray(src), axes, None, out, dtype, (scale, shift), threads)
    return _in_its_library(src, axes, None, out, dtype, scale, shift)


def gather(
    src: Any,
    rows: Any,
    axes: Sequence[int],
    *,
    out: Any = None,
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
    threads: int | None = None,
) -> Any:
    """Copy chosen rows of an array into another order of its axes, in one pass.

    Equal to ``copy(src[rows], axes, ...)`` without the array of gathered rows in between.

    Parameters
    ----------
    src : array
        At least one axis; rows lie along axis 0.
    rows : 1-D array of integers
        In any order, repeats allowed; negative ones count from the end.
    axes, out, dtype, scale, shift, threads
        As for :func:`copy`, with ``src[rows]`` in the place of `src`.

    Raises
    ------
    SelectionError
        If a row is not in `src`.
    SelectionTypeError
        If `rows` are not integers of rank 1.
    DimsError, ArrayError
        As for :func:`copy`.

    Examples
    --------
    >>> images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    >>> gather(images, [1, 0, 1], (2, 1, 0))[0]
    array([[12,  0, 12],
           [16,  4, 16],
           [20,  8, 20]], dtype=uint8)
    """
    if getattr(src, "ndim", 1) == 0:
        raise DimsError("an array of rank 0 has no rows to gather; pass rank 1 or more")
    if isinstance(src, np.ndarray):
        chosen = arguments.checked_rows(rows, src.shape[0])
        return _permute(src, axes, chosen, out, dtype, (scale, shift), threads)
    return _in_its_library(src, axes, rows, out, dtype, scale, shift)


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """Return new C-contiguous memory to copy into: a large array starts at a cache line.

    Examples
    --------
    >>> empty((4, 3), np.uint8).shape
    (4, 3)
    """
    return arguments.empty(tuple(shape), np.dtype(dtype))


def _permute(
    src: Array,
    axes: Sequence[int],
    rows: arguments.Rows | None,
    out: Any,
    dtype: Any,
    factors: tuple[Any, Any],
    threads: int | None,
) -> Array:
    if threads is not None and threads < 1:
        raise ArrayError(f"threads={threads} must be at least 1; or leave it out")
    scale, shift = factors
    found = plan(
        Request(
            src.shape,
            src.strides,
            src.dtype,
            tuple(axes),
            dtype,
            None if scale is None else np.shape(scale),
            None if shift is None else np.shape(shift),
            None if rows is None else len(rows),
        )
    )
    result = arguments.checked_out(out, found.shape, found.final, src)
    if result.size == 0:
        return result
    scale = arguments.checked_factor("scale", scale, found.compute)
    shift = arguments.checked_factor("shift", shift, found.compute)
    if not compiled.run(found, result, src, rows, scale, shift, threads):
        count = compiled.worth_threads(threads, found.moved_bytes)
        tiles.run(found, result, src, rows, scale, shift, count)
    return result


# ---------------------------------------------------------------- any other library
def _in_its_library(
    src: Any, axes: Sequence[int], rows: Any, out: Any, dtype: Any, scale: Any, shift: Any
) -> Any:
    """Permute, cast and scale where `src` is; the same rules as for NumPy arrays."""
    try:
        xp = device.namespace(src)
    except TypeError:
        raise ArrayError(
            f"{type(src).__name__} is neither a NumPy array nor one of an array-API library; "
            f"pass numpy.asarray(...) of it"
        ) from None
    if out is not None:
        raise ArrayError(f"out is for NumPy arrays; leave it out for {type(src).__name__}")
    order = arguments.checked_order(axes, src.ndim)
    chosen = None if rows is None else arguments.checked_rows(rows, src.shape[0])
    with device.kernels_at(src):
        if device.is_cupy(src):
            src = cuda.aligned(src)
            made = cuda.copied(src, order, dtype, scale, shift, chosen)
            if made is not None:
                return made
        if dtype is not None and not isinstance(dtype, str | type | np.dtype):
            dtype = str(dtype).rpartition(".")[2]  # "torch.float32" and the like
        scaled = scale is not None or shift is not None
        held = device.dtype_of(src)
        final = arguments.result_dtype(held, dtype, scaled)
        result = src if chosen is None else xp.take(src, xp.asarray(chosen), axis=0)
        if scaled:
            result = device.astype(result, arguments.compute_dtype(held, final))
            there = {} if device.is_cupy(src) else {"device": src.device}  # CuPy's is current
            if scale is not None:
                result = result * xp.asarray(scale, dtype=result.dtype, **there)
            if shift is not None:
                result = result + xp.asarray(shift, dtype=result.dtype, **there)
        return device.owned_copy(device.astype(xp.permute_dims(result, order), final))
