"""Permuting copies at the speed of memory: axes reordered, cast, scaled and shifted in one pass.

Positions only: no dim has a name here, and nothing here knows what an array holds. Callers that
know names turn them into axis numbers once, then ask for :func:`copy` or :func:`gather`.

What is decided here is *how* an array is copied: NumPy's own copy where that is as fast as memory
(the fast axis stays last), tiles of plain NumPy (:mod:`~labeled.permute.blocked`), or compiled
kernels (:mod:`~labeled.permute.kernels`, the extra ``fast``), which are imported by the first
copy large enough to earn the second that importing and compiling them costs. All ways give the
same result; a scaled copy multiplies and adds in two rounded steps on every one of them.

The environment variable ``LABELED_FAST=0`` turns the compiled kernels off; it is read when a
shape is copied for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.device import kernels_at
from labeled.errors import ArrayError, DimsError
from labeled.permute import arguments, blocked, compiled, libraries
from labeled.permute.arguments import Array
from labeled.permute.plan import Plan, Request, plan

__all__ = ["Taken", "available", "copy", "describe", "empty", "forget", "gather"]

KNOWN_COPIES = 512
"""Copies left to NumPy that are remembered: a microsecond matters beside so few."""

_plain: dict[tuple[Any, ...], Plan] = {}


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
    if not isinstance(src, np.ndarray | np.generic):
        with kernels_at(src):
            return libraries.copy(src, axes, out=out, dtype=dtype, scale=scale, shift=shift)
    src, axes = np.asarray(src), tuple(axes)
    if dtype is None and scale is None and shift is None and (threads is None or threads >= 1):
        known = _plain.get((src.shape, src.strides, axes))
        if known is not None and known.final is src.dtype:
            result = arguments.checked_out(out, known.shape, known.final, src)
            result[...] = src.transpose(known.order)
            return result
    return _permute(src, axes, None, out, dtype, (scale, shift), threads)


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
    if not isinstance(src, np.ndarray | np.generic):
        with kernels_at(src):
            return libraries.gather(src, rows, axes, out=out, dtype=dtype, scale=scale, shift=shift)
    src = np.asarray(src)
    if src.ndim == 0:
        raise DimsError("an array of rank 0 has no rows to gather; pass rank 1 or more")
    chosen = arguments.checked_rows(rows, src.shape[0])
    return _permute(src, tuple(axes), chosen, out, dtype, (scale, shift), threads)


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """Return new C-contiguous memory to copy into: a large array starts at a cache line.

    Examples
    --------
    >>> empty((4, 3), np.uint8).shape
    (4, 3)
    """
    return arguments.empty(tuple(shape), np.dtype(dtype))


def available() -> bool:
    """Say whether large copies use compiled kernels: ``fast`` is installed and not turned off."""
    return compiled.available()


def describe() -> str:
    """Return one line about how large copies are made, for plans and reports."""
    return compiled.describe()


def forget() -> None:
    """Forget how shapes were copied before, and look at ``LABELED_FAST`` again.

    Examples
    --------
    >>> forget()
    """
    compiled.forget()


def _permute(
    src: Array,
    axes: tuple[int, ...],
    rows: arguments.Rows | None,
    out: Any,
    dtype: Any,
    factors: tuple[Any, Any],
    threads: int | None,
) -> Array:
    if threads is not None and threads < 1:
        raise ArrayError(f"threads={threads} must be at least 1; or leave it out")
    scaled, shifted = (None if f is None else np.shape(f) for f in factors)
    n_rows = None if rows is None else len(rows)
    found = plan(Request(src.shape, src.strides, src.dtype, axes, dtype, scaled, shifted, n_rows))
    result = arguments.checked_out(out, found.shape, found.final, src)
    if result.size == 0:
        return result
    by_numpy = found.cut is None or result.nbytes < compiled.USE_BYTES
    if found.pure and rows is None and by_numpy and found.tile is None:
        if dtype is None and len(_plain) < KNOWN_COPIES:
            _plain[src.shape, src.strides, axes] = found
        result[...] = src.transpose(found.order)
        return result
    scale = arguments.checked_factor("scale", factors[0], found.compute)
    shift = arguments.checked_factor("shift", factors[1], found.compute)
    if not compiled.run(found, result, src, rows, scale, shift, threads):
        count = compiled.worth_threads(threads, result.nbytes + result.size * src.itemsize)
        blocked.run(found, result, src, rows, scale, shift, count)
    return result
