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
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.device import kernels_at
from labeled.errors import ArrayError, DimsError
from labeled.permute import arguments, blocked, compiled, libraries
from labeled.permute.arguments import Array
from labeled.permute.plan import Plan, Request, plan

__all__ = ["available", "copy", "describe", "empty", "forget", "gather"]

KNOWN_COPIES = 512
"""Pure copies and gathers that are remembered at most."""


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
    if type(src) is not np.ndarray:
        if not isinstance(src, np.ndarray | np.generic):
            with kernels_at(src):
                return libraries.copy(src, axes, out=out, dtype=dtype, scale=scale, shift=shift)
        src = np.asarray(src)
    if type(axes) is not tuple:
        axes = tuple(axes)
    if dtype is None and scale is None and shift is None and (threads is None or threads >= 1):
        known = _copies.get((src.shape, src.strides, axes))
        if known is not None and known.dtype is src.dtype:
            if (  # what `checked_out` sees first, without the call: a percent of 800 kB
                type(out) is not np.ndarray
                or out.shape != known.shape
                or out.dtype is not known.dtype
                or not out.flags.carray
                or out.base is not None
                or src.base is not None
                or out is src
            ):
                out = arguments.checked_out(out, known.shape, known.dtype, src)
            if known.plainly:
                blocked.move_plainly(known.plan, out, src)
                return out
            if compiled.run(known.plan, out, src, None, None, None, threads):
                return out
    return _permute(src, axes, None, out, dtype, scale, shift, threads)


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
    src, axes = np.asarray(src), tuple(axes)
    if src.ndim == 0:
        raise DimsError("an array of rank 0 has no rows to gather; pass rank 1 or more")
    chosen = arguments.checked_rows(rows, src.shape[0])
    if dtype is None and scale is None and shift is None and (threads is None or threads >= 1):
        known = _copies.get((src.shape, src.strides, axes, len(chosen)))
        if known is not None and known.dtype is src.dtype:
            result = arguments.checked_out(out, known.shape, known.dtype, src)
            if known.plainly:
                blocked.take_plainly(result, src, chosen)
                return result
            if compiled.run(known.plan, result, src, chosen, None, None, threads):
                return result
    return _permute(src, axes, chosen, out, dtype, scale, shift, threads)


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
    _copies.clear()
    compiled.forget()


def _permute(
    src: Array,
    axes: tuple[int, ...],
    rows: arguments.Rows | None,
    out: Any,
    dtype: Any,
    scale: Any,
    shift: Any,
    threads: int | None,
) -> Array:
    if threads is not None and threads < 1:
        raise ArrayError(f"threads={threads} can copy nothing; give 1 or more, or leave it out")
    scale, shift = (None if f is None else np.asarray(f) for f in (scale, shift))
    found = plan(
        Request(
            src.shape,
            src.strides,
            src.dtype,
            axes,
            dtype,
            None if scale is None else scale.shape,
            None if shift is None else shift.shape,
            None if rows is None else len(rows),
        )
    )
    result = arguments.checked_out(out, found.shape, found.final, src)
    if result.size == 0:
        return result
    if found.pure and rows is None and compiled.left_to_numpy(found):
        if dtype is None:
            _remember(src, axes, found, plainly=True)
        blocked.move_plainly(found, result, src)
        return result
    if rows is not None and src.flags.c_contiguous and compiled.rows_left_to_numpy(found):
        if dtype is None:
            _remember(src, axes, found, plainly=True)
        blocked.take_plainly(result, src, rows)
        return result
    if found.pure and rows is None and not found.tiled and not compiled.available():
        result[...] = src.transpose(found.order)
        return result
    scale = arguments.checked_factor("scale", scale, found.compute)
    shift = arguments.checked_factor("shift", shift, found.compute)
    if compiled.run(found, result, src, rows, scale, shift, threads):
        if dtype is None and found.pure:
            _remember(src, axes, found, plainly=False)
        return result
    moved_bytes = result.nbytes + result.size * src.itemsize
    count = compiled.worth_threads(threads, moved_bytes)
    blocked.run(blocked.job(found, result, src, rows, scale, shift), count)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """How a pure copy was made before: a microsecond matters beside so few."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    plan: Plan
    plainly: bool
    """Whether NumPy is the fastest, rather than a kernel."""


_copies: dict[tuple[Any, ...], _Known] = {}
"""By shape and steps of the source, the order asked for and, of gathers, the number of rows."""


def _remember(src: Array, axes: tuple[int, ...], found: Plan, *, plainly: bool) -> None:
    """Keep in mind how a pure copy of arrays of one dtype is made: by NumPy, or by a kernel."""
    if len(_copies) >= KNOWN_COPIES:
        _copies.clear()
    n_rows = () if found.axis is None else (found.lengths[found.axis],)
    _copies[src.shape, src.strides, axes, *n_rows] = _Known(found.shape, src.dtype, found, plainly)
